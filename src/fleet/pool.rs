//! One pool: its instances and the scheduler that chooses among them.
//!
//! Choosing and counting are one step under one short lock. Nothing is sent or dropped under that
//! lock: actions are collected, the lock is let go, and only then waiters are told.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_policies::ConfigError;
use evenkeel_policies::scheduler::{
    Action, Arrival, EventLog, Grant, InstanceId, LeaseId, Observation, Scheduler, ShedReason,
    Ticket,
};
use evenkeel_policies::shape::RequestShape;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::estimates::Estimates;
use super::health::{Cause, Change, Checked, Health};
use super::lease::Lease;
use super::retries::{Retry, RetryBudget};
use crate::config::checked::{self, Config, Health as HealthRules, Upstream};
use crate::measure::clock::{Ns, now_ns};
use crate::measure::skew::{RotationLoad, Spread};
use crate::measure::speed::LoadIntegral;

/// One inference server, as the live path knows it.
pub struct Instance {
    /// index in the pool, and its id in the scheduler
    pub id: InstanceId,
    /// name
    pub name: Arc<str>,
    /// where it listens
    pub url: Upstream,
    /// share of work
    pub weight: f64,
    /// free words
    pub labels: BTreeMap<String, String>,
    /// integral of outstanding requests over time, for the mean batch a request met
    pub batch: Mutex<LoadIntegral>,
    /// outstanding tokens over the time in rotation, for load skew
    pub load: Mutex<RotationLoad>,
}

/// Refused by the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed {
    /// why
    pub reason: ShedReason,
    /// when to try again
    pub retry_after_s: u32,
}

/// Where a request may go.
#[derive(Debug, Clone, Copy)]
pub enum To<'a> {
    /// any instance; these only if no other is up
    AnyBut(&'a [InstanceId]),
    /// one instance
    Only(InstanceId),
}

type Answer = Result<Lease, Shed>;

pub(super) struct Inner {
    pub(super) scheduler: Scheduler,
    pub(super) health: Health,
    slow_start_ns: u64,
    /// when health may change by time alone
    judge_next_ns: Ns,
    waiters: HashMap<Ticket, oneshot::Sender<Answer>>,
    /// token-seconds that each ended lease laid on its instance
    pub(super) token_seconds: Spread,
    /// reused between calls so that deciding allocates nothing
    actions: Vec<Action>,
}

/// A pool and its scheduler.
pub struct Pool {
    /// name
    pub name: Arc<str>,
    /// instances by [`InstanceId`]
    pub instances: Vec<Arc<Instance>>,
    /// policy's name
    pub policy: Arc<str>,
    /// lanes by index
    pub lanes: Vec<Arc<str>>,
    /// length estimate and output prediction
    pub estimates: Estimates,
    /// when instances are taken out, and how they come back
    pub health: HealthRules,
    /// retries under way
    pub retries: Arc<RetryBudget>,
    tickets: AtomicU64,
    pub(super) inner: Mutex<Inner>,
}

/// A scheduler as a pool begins with it: its instances known, nothing open.
pub fn scheduler(
    config: &Config,
    pool: &checked::Pool,
    index: u64,
    now_ns: u64,
) -> Result<Scheduler, ConfigError> {
    let mut scheduler = Scheduler::new(&pool.policy, config.seed.wrapping_add(index))?;
    for (id, instance) in (0..).map(InstanceId).zip(&pool.instances) {
        scheduler.add_instance(now_ns, id, instance.weight, &mut Vec::new());
    }
    Ok(scheduler)
}

impl Pool {
    /// Builds the pool; its scheduler draws from `config.seed` and the pool's index.
    pub fn new(config: &Config, pool: &checked::Pool, index: u64) -> Result<Self, ConfigError> {
        let now = now_ns();
        let scheduler = scheduler(config, pool, index, now)?;
        let instances = (0..)
            .map(InstanceId)
            .zip(&pool.instances)
            .map(|(id, instance)| {
                Arc::new(Instance {
                    id,
                    name: instance.name.clone(),
                    url: instance.url.clone(),
                    weight: instance.weight,
                    labels: instance.labels.clone(),
                    batch: Mutex::new(LoadIntegral::new(now)),
                    load: Mutex::new(RotationLoad::new(now)),
                })
            });
        Ok(Self {
            name: pool.name.clone(),
            instances: instances.collect(),
            policy: scheduler.policy_name().into(),
            lanes: scheduler
                .lanes()
                .iter()
                .map(|lane| lane.as_str().into())
                .collect(),
            estimates: Estimates::new(&config.measure),
            tickets: AtomicU64::new(1),
            health: pool.health.clone(),
            retries: Arc::default(),
            inner: Mutex::new(Inner {
                scheduler,
                health: Health::new(&pool.health, pool.instances.len()),
                slow_start_ns: ns(pool.health.slow_start),
                judge_next_ns: Ns::MAX,
                waiters: HashMap::new(),
                token_seconds: Spread::default(),
                actions: Vec::new(),
            }),
        })
    }

    /// Records the scheduler's calls and decisions from now on, so that a run can be replayed.
    pub fn record_events(&self) {
        self.inner.lock().scheduler.record_events(true);
    }

    /// What was recorded since the last call.
    pub fn take_events(&self) -> Option<EventLog> {
        self.inner.lock().scheduler.take_events()
    }

    /// Chooses an instance, waiting in the lane's queue if it must. Dropping the future leaves the queue.
    pub async fn admit(self: &Arc<Self>, shape: &RequestShape, to: To<'_>) -> Answer {
        let ticket = Ticket(self.tickets.fetch_add(1, Relaxed));
        let (arrival, waiting) = self.arrive(ticket, shape, to);
        match arrival {
            Arrival::Send(grant) => Ok(Lease::new(self, &grant)),
            Arrival::Shed(shed) => Err(Shed {
                reason: shed.reason,
                retry_after_s: shed.retry_after_s,
            }),
            Arrival::Queued { .. } => self.wait(ticket, waiting).await,
        }
    }

    fn arrive(
        self: &Arc<Self>,
        ticket: Ticket,
        shape: &RequestShape,
        to: To<'_>,
    ) -> (Arrival, Option<oneshot::Receiver<Answer>>) {
        self.with(|inner, now| {
            inner.judge_when_due(now);
            let arrival = match to {
                To::AnyBut(failed) => {
                    inner
                        .scheduler
                        .arrive(now, ticket, shape, failed, &mut inner.actions)
                }
                To::Only(pinned) => {
                    inner
                        .scheduler
                        .arrive_pinned(now, ticket, shape, pinned, &mut inner.actions)
                }
            };
            let waiting = matches!(arrival, Arrival::Queued { .. }).then(|| {
                let (sender, receiver) = oneshot::channel();
                inner.waiters.insert(ticket, sender);
                receiver
            });
            if let Arrival::Send(grant) = &arrival {
                inner.granted(grant);
                self.count_batch(grant.instance, now, grant.outstanding_requests + 1);
                self.count_tokens(inner, grant.instance, now);
            }
            (arrival, waiting)
        })
    }

    async fn wait(
        self: &Arc<Self>,
        ticket: Ticket,
        waiting: Option<oneshot::Receiver<Answer>>,
    ) -> Answer {
        let gone = Shed {
            reason: ShedReason::NoInstance,
            retry_after_s: 1,
        };
        let Some(mut waiting) = waiting else {
            return Err(gone);
        };
        let _leave = Leave { pool: self, ticket };
        loop {
            let Some(deadline) = self.inner.lock().scheduler.next_deadline() else {
                return waiting.await.unwrap_or(Err(gone));
            };
            let left = Duration::from_nanos(deadline.saturating_sub(now_ns()));
            tokio::select! {
                answer = &mut waiting => return answer.unwrap_or(Err(gone)),
                () = tokio::time::sleep(left) => self.with(|inner, now| inner.scheduler.expire(now, &mut inner.actions)),
            }
        }
    }

    /// Runs one scheduler event under the lock, then performs its actions outside of it.
    pub(super) fn with<R>(self: &Arc<Self>, event: impl FnOnce(&mut Inner, u64) -> R) -> R {
        let mut inner = self.inner.lock();
        let now = now_ns();
        let result = event(&mut inner, now);
        if inner.actions.is_empty() {
            return result;
        }
        let actions = std::mem::take(&mut inner.actions);
        let told: Vec<_> = actions
            .into_iter()
            .map(|action| self.addressed(&mut inner, now, action))
            .collect();
        drop(inner);
        for (sender, answer) in told {
            match sender {
                // a waiter that left meanwhile gets its lease dropped right here, outside the lock
                Some(sender) => drop(sender.send(answer)),
                None => drop(answer),
            }
        }
        result
    }

    fn addressed(
        self: &Arc<Self>,
        inner: &mut Inner,
        now: u64,
        action: Action,
    ) -> (Option<oneshot::Sender<Answer>>, Answer) {
        match action {
            Action::Grant(grant) => {
                inner.granted(&grant);
                self.count_batch(grant.instance, now, grant.outstanding_requests + 1);
                self.count_tokens(inner, grant.instance, now);
                (
                    inner.waiters.remove(&grant.ticket),
                    Ok(Lease::new(self, &grant)),
                )
            }
            Action::Shed {
                ticket,
                reason,
                retry_after_s,
            } => (
                inner.waiters.remove(&ticket),
                Err(Shed {
                    reason,
                    retry_after_s,
                }),
            ),
        }
    }

    /// A place for a retry on an instance that is not in `failed`; `None` if the budget has none or no other is in.
    pub fn retry(&self, failed: &[InstanceId], share: f64, least: u32) -> Option<Retry> {
        let inner = self.inner.lock();
        let (mut live, mut other) = (0, false);
        for (id, load, state) in inner.scheduler.loads() {
            live += u64::from(load.requests);
            other |= state.takes_requests() && !failed.contains(&id);
        }
        drop(inner);
        other.then(|| self.retries.take(live, share, least))?
    }

    /// An active check of an instance ended.
    pub fn checked(self: &Arc<Self>, id: InstanceId, checked: Checked) {
        self.with(|inner, now| {
            inner.health.checked(id, checked, now);
            inner.judge(now);
        });
    }

    /// Drains an instance, or takes that back: it ends what it has and takes nothing new. Open requests are not touched.
    pub fn drain(self: &Arc<Self>, id: InstanceId, drained: bool) {
        self.with(|inner, now| {
            inner.health.drain(id, drained);
            inner.judge(now);
        });
    }

    /// Lets health change by time alone, so that waiters need not wait for an arrival.
    pub fn judge_by_time(self: &Arc<Self>) {
        self.with(|inner, now| inner.judge_when_due(now));
    }

    pub(super) fn count_batch(&self, id: InstanceId, now: u64, outstanding: u32) {
        if let Some(instance) = self.instances.get(id.0 as usize) {
            instance.batch.lock().advance(now, f64::from(outstanding));
        }
    }

    /// To be called wherever an instance's outstanding tokens may have changed.
    pub(super) fn count_tokens(&self, inner: &Inner, id: InstanceId, now: u64) {
        if let Some(instance) = self.instances.get(id.0 as usize) {
            let tokens = inner.outstanding_tokens(id);
            instance.load.lock().advance(now, tokens);
        }
    }
}

impl Inner {
    /// Tells the scheduler which instances take requests from now on.
    pub(super) fn judge(&mut self, now: Ns) {
        for change in self.health.changes(now) {
            let Change { id, state, back } = change;
            if back {
                self.scheduler.slow_start(now, id, self.slow_start_ns);
            }
            self.scheduler.set_state(now, id, state, &mut self.actions);
            tracing::info!(instance = id.0, state = ?state, cause = self.health.cause(id).map(Cause::name), "instance changes");
        }
        self.judge_next_ns = self.health.next_due_ns(now).unwrap_or(Ns::MAX);
    }

    fn judge_when_due(&mut self, now: Ns) {
        if now >= self.judge_next_ns {
            self.judge(now);
        }
    }

    fn granted(&mut self, grant: &Grant) {
        if grant.probe {
            self.health.probe_sent(grant.instance);
        }
    }

    pub(super) fn finish(&mut self, now: u64, lease: LeaseId, observation: &Observation) {
        self.scheduler
            .finish(now, lease, observation, &mut self.actions);
    }

    pub(super) fn outstanding_requests(&self, id: InstanceId) -> u32 {
        self.scheduler.load(id).map_or(0, |load| load.requests)
    }

    fn outstanding_tokens(&self, id: InstanceId) -> u64 {
        self.scheduler
            .load(id)
            .map_or(0, |load| load.outstanding_tokens())
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Leaves the queue when the waiting future goes.
struct Leave<'a> {
    pool: &'a Arc<Pool>,
    ticket: Ticket,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let sender = self.pool.with(|inner, now| {
            inner.scheduler.cancel(now, self.ticket, &mut inner.actions);
            inner.waiters.remove(&self.ticket)
        });
        drop(sender);
    }
}

/// What a lease remembers of its grant.
pub(super) fn lane_name(pool: &Pool, grant: &Grant) -> Option<Arc<str>> {
    grant.lane.and_then(|lane| pool.lanes.get(lane)).cloned()
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod load_tests;
