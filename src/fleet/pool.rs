//! One pool: its instances and the scheduler that chooses among them.
//!
//! Choosing and counting are one step under one short lock. Nothing is sent or dropped under that
//! lock: actions are collected, the lock is let go, and only then waiters are told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use evenkeel_policies::load::InstanceState;
use evenkeel_policies::scheduler::{
    Action, Arrival, EventLog, Grant, InstanceId, LeaseId, Observation, Scheduler, ShedReason,
    Ticket,
};
use evenkeel_policies::shape::RequestShape;
use evenkeel_policies::{ConfigError, PolicyConfig};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::estimates::Estimates;
use super::health::{Cause, Change, Checked, Health};
use super::instance::{Instance, next_serial};
use super::lease::Lease;
use super::link::Link;
use super::members::{Members, policy_names};
use super::retries::{Retry, RetryBudget};
use crate::config::checked::{self, Config};
use crate::measure::clock::{Ns, now_ns};
use crate::measure::skew::Spread;

/// Refused by the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed {
    /// why
    pub reason: ShedReason,
    /// when to try again
    pub retry_after_s: u32,
}

/// The pool itself has gone, or forgot a request.
const GONE: Shed = Shed {
    reason: ShedReason::NoInstance,
    retry_after_s: 1,
};

/// Where a request may go.
#[derive(Debug, Clone, Copy)]
pub enum To<'a> {
    /// any instance; these only if no other is up
    AnyBut(&'a [InstanceId]),
    /// one instance
    Only(InstanceId),
}

type Answer = Result<Lease, Shed>;

/// What came of an arrival; lives for one match.
#[allow(clippy::large_enum_variant)]
enum Arrived {
    Answered(Answer),
    Waits(oneshot::Receiver<Answer>),
}

pub(super) struct Inner {
    pub(super) scheduler: Scheduler,
    pub(super) health: Health,
    /// as the scheduler follows it
    pub(super) policy: PolicyConfig,
    /// id of the next new instance
    pub(super) next_id: u32,
    pub(super) slow_start_ns: u64,
    /// when health may change by time alone
    judge_next_ns: Ns,
    waiters: HashMap<Ticket, oneshot::Sender<Answer>>,
    /// token-seconds that each ended lease laid on its instance
    pub(super) token_seconds: Spread,
    /// reused between calls so that deciding allocates nothing
    pub(super) actions: Vec<Action>,
}

/// A pool and its scheduler.
pub struct Pool {
    /// name
    pub name: Arc<str>,
    /// a number no other pool of this process has or had
    pub serial: u64,
    /// length estimate and output prediction
    pub estimates: Estimates,
    /// retries under way
    pub retries: Arc<RetryBudget>,
    pub(super) members: ArcSwap<Members>,
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
    pub fn new(
        config: &Config,
        pool: &checked::Pool,
        index: u64,
        link: Link,
    ) -> Result<Self, ConfigError> {
        let now = now_ns();
        let scheduler = scheduler(config, pool, index, now)?;
        let ids = (0..).map(InstanceId);
        let instances = ids.zip(&pool.instances);
        let instances: Vec<_> = instances
            .map(|(id, instance)| Arc::new(Instance::new(id, instance, now)))
            .collect();
        let (policy, lanes) = policy_names(&scheduler);
        Ok(Self {
            name: pool.name.clone(),
            serial: next_serial(),
            estimates: Estimates::new(&config.measure),
            tickets: AtomicU64::new(1),
            retries: Arc::default(),
            inner: Mutex::new(Inner {
                scheduler,
                health: Health::new(&pool.health, instances.len()),
                policy: pool.policy.clone(),
                next_id: u32::try_from(instances.len()).unwrap_or(u32::MAX),
                slow_start_ns: ns(pool.health.slow_start),
                judge_next_ns: Ns::MAX,
                waiters: HashMap::new(),
                token_seconds: Spread::default(),
                actions: Vec::new(),
            }),
            members: ArcSwap::from_pointee(Members {
                instances,
                leaving: Vec::new(),
                policy,
                lanes,
                health: pool.health.clone(),
                link,
            }),
        })
    }

    /// Who belongs to it now, and its rules; takes no lock.
    pub fn members(&self) -> Guard<Arc<Members>> {
        self.members.load()
    }

    /// Requests that are open or wait.
    pub fn open_requests(&self) -> usize {
        let inner = self.inner.lock();
        inner.scheduler.open_leases() + inner.scheduler.queue_len()
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
        match self.arrive(ticket, shape, to) {
            Arrived::Answered(answer) => answer,
            Arrived::Waits(waiting) => self.wait(ticket, waiting).await,
        }
    }

    fn arrive(self: &Arc<Self>, ticket: Ticket, shape: &RequestShape, to: To<'_>) -> Arrived {
        self.with(|inner, now| {
            self.judge_when_due(inner, now);
            let (scheduler, actions) = (&mut inner.scheduler, &mut inner.actions);
            let arrival = match to {
                To::AnyBut(failed) => scheduler.arrive(now, ticket, shape, failed, actions),
                To::Only(pinned) => scheduler.arrive_pinned(now, ticket, shape, pinned, actions),
            };
            match arrival {
                Arrival::Send(grant) => Arrived::Answered(self.leased(inner, now, &grant)),
                Arrival::Shed(shed) => Arrived::Answered(Err(Shed {
                    reason: shed.reason,
                    retry_after_s: shed.retry_after_s,
                })),
                Arrival::Queued { .. } => {
                    let (sender, receiver) = oneshot::channel();
                    inner.waiters.insert(ticket, sender);
                    Arrived::Waits(receiver)
                }
            }
        })
    }

    async fn wait(
        self: &Arc<Self>,
        ticket: Ticket,
        mut waiting: oneshot::Receiver<Answer>,
    ) -> Answer {
        let _leave = Leave { pool: self, ticket };
        loop {
            let Some(deadline) = self.inner.lock().scheduler.next_deadline() else {
                return waiting.await.unwrap_or(Err(GONE));
            };
            let left = Duration::from_nanos(deadline.saturating_sub(now_ns()));
            tokio::select! {
                answer = &mut waiting => return answer.unwrap_or(Err(GONE)),
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
        let mut told = Vec::with_capacity(inner.actions.len());
        while !inner.actions.is_empty() {
            let actions = std::mem::take(&mut inner.actions);
            let addressed = actions
                .into_iter()
                .map(|action| self.addressed(&mut inner, now, action));
            told.extend(addressed);
        }
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
                let lease = self.leased(inner, now, &grant);
                (inner.waiters.remove(&grant.ticket), lease)
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

    /// Makes the lease of a grant. The instance is a member: both change under the same lock.
    fn leased(self: &Arc<Self>, inner: &mut Inner, now: Ns, grant: &Grant) -> Answer {
        let members = self.members.load();
        let Some(instance) = members.get(grant.instance) else {
            inner.finish(now, grant.lease, &Observation::default());
            return Err(GONE);
        };
        if grant.probe {
            inner.health.probe_sent(grant.instance);
        }
        let outstanding = f64::from(grant.outstanding_requests + 1);
        instance.batch.lock().advance(now, outstanding);
        inner.count_tokens(instance, now);
        let lane = grant.lane.and_then(|lane| members.lanes.get(lane)).cloned();
        let policy = members.policy.clone();
        Ok(Lease::new(self, instance, policy, lane, grant))
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
            let members = self.members.load();
            let heard_ns = members.get(id).and_then(|instance| instance.heard_ns());
            inner.health.checked(id, checked, heard_ns, now);
            self.judge(inner, now);
        });
    }

    /// Lets health change by time alone, so that waiters need not wait for an arrival.
    pub fn judge_by_time(self: &Arc<Self>) {
        self.with(|inner, now| self.judge_when_due(inner, now));
    }

    fn judge_when_due(&self, inner: &mut Inner, now: Ns) {
        if now >= inner.judge_next_ns {
            self.judge(inner, now);
        }
    }

    /// Tells the scheduler which instances take requests from now on.
    pub(super) fn judge(&self, inner: &mut Inner, now: Ns) {
        let changes = inner.health.changes(now);
        inner.judge_next_ns = inner.health.next_due_ns(now).unwrap_or(Ns::MAX);
        if changes.is_empty() {
            return;
        }
        let members = self.members.load();
        for Change { id, state, back } in changes {
            let Some(instance) = members.get(id) else {
                continue;
            };
            let is_in = state == InstanceState::Up;
            instance.load.lock().set_in_rotation(now, is_in);
            if back {
                inner.scheduler.slow_start(now, id, inner.slow_start_ns);
            }
            inner
                .scheduler
                .set_state(now, id, state, &mut inner.actions);
            let cause = inner.health.cause(id).map(Cause::name);
            tracing::info!(pool = %self.name, instance = %instance.name, ?state, cause, "instance changes");
        }
    }
}

impl Inner {
    pub(super) fn finish(&mut self, now: u64, lease: LeaseId, observation: &Observation) {
        self.scheduler
            .finish(now, lease, observation, &mut self.actions);
    }

    pub(super) fn outstanding_requests(&self, id: InstanceId) -> u32 {
        self.scheduler.load(id).map_or(0, |load| load.requests)
    }

    /// To be called wherever an instance's outstanding tokens may have changed.
    pub(super) fn count_tokens(&self, instance: &Instance, now: Ns) {
        let tokens = self.outstanding_tokens(instance.id);
        instance.load.lock().advance(now, tokens);
    }

    fn outstanding_tokens(&self, id: InstanceId) -> u64 {
        self.scheduler
            .load(id)
            .map_or(0, |load| load.outstanding_tokens())
    }
}

pub(super) fn ns(time: Duration) -> u64 {
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

#[cfg(test)]
#[path = "load_tests.rs"]
mod load_tests;
