//! Which instances of a pool take requests: what their answers and checks say, and how one comes back. Pure.
//!
//! An instance is taken out after failures in a row, after too large a share of failures, or when its checks fail
//! while no byte comes from it. Out, it gets one request a second as a probe; the first that succeeds brings it back,
//! into its slow start. One that an operator drains takes nothing, whatever it answers, until it is told to come back;
//! then it has a slow start too. A load is never touched here.

mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_policies::load::InstanceState;
use evenkeel_policies::scheduler::InstanceId;

use crate::config::checked::{Health as Rules, WhenNoneLeft};
use crate::measure::clock::Ns;
pub use verdict::{Verdict, retry_after};

/// Failures of requests that were on their way stand for so many probes at most, so that it is not left out for long.
const PROBES_SPARED_MAX: u64 = 5;

/// What an active check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// an answer under 500
    Answered,
    /// refused, reset, or an answer of 500 and above
    Failed,
    /// no answer in time: a busy engine does that too
    TimedOut,
}

/// Why an instance is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// so many failures in a row
    InARow,
    /// too large a share of failures
    Share,
    /// its checks fail
    Checks,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 3] = [Cause::InARow, Cause::Share, Cause::Checks];

    /// Name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::InARow => "failures_in_a_row",
            Cause::Share => "failure_share",
            Cause::Checks => "checks",
        }
    }
}

/// What the scheduler is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// instance
    pub id: InstanceId,
    /// its state now
    pub state: InstanceState,
    /// it is back: its slow start begins
    pub back: bool,
}

#[derive(Debug, Default)]
struct Instance {
    /// an operator wants it to end what it has and to take nothing new
    drained: bool,
    out: Option<Out>,
    cools_until_ns: Ns,
    in_a_row: u32,
    window: Window,
    checks_failed: u32,
    /// it was out and is in again: its slow start is to begin
    returns: bool,
    /// when its last check ended
    checked_ns: Ns,
    /// as the scheduler was told
    told: Option<InstanceState>,
    ejections: [u64; Cause::ALL.len()],
}

#[derive(Debug, Clone, Copy)]
struct Out {
    cause: Cause,
    probe_due_ns: Ns,
    probing: bool,
}

/// Successes and failures of the running window.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    begun_ns: Ns,
    ok: u32,
    failed: u32,
}

/// The health of a pool's instances.
#[derive(Debug)]
pub struct Health {
    rules: Rules,
    instances: BTreeMap<InstanceId, Instance>,
}

impl Health {
    /// Instances 0, 1, ... are in.
    pub fn new(rules: &Rules, instances: usize) -> Self {
        let ids = (0..).map(InstanceId).take(instances);
        Self {
            rules: rules.clone(),
            instances: ids.map(|id| (id, Instance::default())).collect(),
        }
    }

    /// An instance joins, in; what was known of it is forgotten.
    pub fn add(&mut self, id: InstanceId) {
        self.instances.insert(id, Instance::default());
    }

    /// An instance leaves: what becomes of its open requests says nothing any more.
    pub fn remove(&mut self, id: InstanceId) {
        self.instances.remove(&id);
    }

    /// Other rules hold from now on; who is out stays out until they let it in.
    pub fn set_rules(&mut self, rules: &Rules) {
        self.rules = rules.clone();
    }

    /// Whether an instance ends what it has and takes nothing new. One that comes back has its slow start.
    pub fn drain(&mut self, id: InstanceId, drained: bool) {
        if let Some(one) = self.instances.get_mut(&id) {
            one.returns |= one.drained && !drained;
            one.drained = drained;
        }
    }

    /// A request on an instance ended; `probe` if it was let through to see whether the instance answers again.
    pub fn ended(&mut self, id: InstanceId, verdict: Verdict, probe: bool, now_ns: Ns) {
        let (count, out) = (self.serving().count(), self.out());
        let rules = self.rules.clone();
        let forced = out == count;
        let Some(one) = self.instances.get_mut(&id) else {
            return;
        };
        if probe && let Some(out) = &mut one.out {
            // whatever came of it, the next one may go
            out.probing = false;
            out.probe_due_ns = now_ns + ns(rules.probe_interval);
        }
        match verdict {
            Verdict::Success => {
                one.in_a_row = 0;
                one.window.count(true, now_ns, ns(rules.window));
                if probe || forced {
                    one.bring_back();
                }
            }
            Verdict::Failure => {
                one.in_a_row = one.in_a_row.saturating_add(1);
                one.window.count(false, now_ns, ns(rules.window));
                if !probe && !forced {
                    one.probe_later(now_ns, ns(rules.probe_interval));
                }
                let cause = one.ejected_for(&rules);
                if let Some(cause) = cause.filter(|_| out < most_out(&rules, count)) {
                    one.take_out(cause, now_ns + ns(rules.probe_interval));
                }
            }
            Verdict::Busy(wait) => {
                let wait = wait.min(rules.retry_after_max);
                one.cools_until_ns = one.cools_until_ns.max(now_ns + ns(wait));
            }
            Verdict::Neutral => {}
        }
    }

    /// An active check of an instance ended, from which the newest byte came at `heard_ns`.
    pub fn checked(&mut self, id: InstanceId, checked: Checked, heard_ns: Option<Ns>, now_ns: Ns) {
        let failures = self.rules.check_failures;
        let Some(one) = self.instances.get_mut(&id) else {
            return;
        };
        let before_ns = std::mem::replace(&mut one.checked_ns, now_ns);
        let speaks = heard_ns.is_some_and(|at_ns| at_ns >= before_ns);
        one.checks_failed = match checked {
            Checked::Answered => 0,
            // it works, and has no time for checks
            Checked::TimedOut if speaks => 0,
            // what it said before this check no longer counts
            Checked::Failed if speaks => 1,
            Checked::TimedOut | Checked::Failed => one.checks_failed.saturating_add(1),
        };
        if checked == Checked::Answered {
            if one.out.is_some_and(|out| out.cause == Cause::Checks) {
                one.bring_back();
            }
        } else if one.checks_failed >= failures && !speaks && one.out.is_none() {
            one.take_out(Cause::Checks, Ns::MAX);
        }
    }

    /// What changed since the last call.
    pub fn changes(&mut self, now_ns: Ns) -> Vec<Change> {
        let none_left = self.serving().all(|one| !one.is_in(now_ns));
        let forced = none_left && self.rules.when_none_left == WhenNoneLeft::Try;
        let mut changes = Vec::new();
        for (&id, one) in &mut self.instances {
            let state = one.state(now_ns, forced);
            let told = one.told.replace(state).unwrap_or(InstanceState::Up);
            if told != state {
                let back = state == InstanceState::Up && std::mem::take(&mut one.returns);
                changes.push(Change { id, state, back });
            }
        }
        changes
    }

    /// A probe was granted: the scheduler takes no other on its own.
    pub fn probe_sent(&mut self, id: InstanceId) {
        if let Some(one) = self.instances.get_mut(&id) {
            one.told = Some(InstanceState::Down);
            if let Some(out) = &mut one.out {
                out.probing = true;
            }
        }
    }

    /// When something may change by time alone.
    pub fn next_due_ns(&self, now_ns: Ns) -> Option<Ns> {
        let due = |one: &Instance| {
            let probe = one
                .out
                .filter(|out| !out.probing)
                .map(|out| out.probe_due_ns);
            let cooled = Some(one.cools_until_ns);
            [probe, cooled]
                .into_iter()
                .flatten()
                .filter(|due| *due > now_ns && *due < Ns::MAX)
                .min()
        };
        self.instances.values().filter_map(due).min()
    }

    /// Why an instance is out; `None` if it is in.
    pub fn cause(&self, id: InstanceId) -> Option<Cause> {
        Some(self.instances.get(&id)?.out?.cause)
    }

    /// How often an instance was taken out, by cause.
    pub fn ejections(&self, id: InstanceId) -> [u64; Cause::ALL.len()] {
        self.instances
            .get(&id)
            .map_or([0; Cause::ALL.len()], |one| one.ejections)
    }

    /// Those that nobody drains.
    fn serving(&self) -> impl Iterator<Item = &Instance> {
        self.instances.values().filter(|one| !one.drained)
    }

    fn out(&self) -> usize {
        self.serving().filter(|one| one.out.is_some()).count()
    }
}

impl Instance {
    fn is_in(&self, now_ns: Ns) -> bool {
        self.out.is_none() && !self.drained && self.cools_until_ns <= now_ns
    }

    fn state(&self, now_ns: Ns, forced: bool) -> InstanceState {
        match self.out {
            _ if self.drained => InstanceState::Draining,
            _ if forced => InstanceState::Up,
            Some(out) if !out.probing && out.probe_due_ns <= now_ns => InstanceState::Probing,
            Some(_) => InstanceState::Down,
            None if self.cools_until_ns > now_ns => InstanceState::Down,
            None => InstanceState::Up,
        }
    }

    fn ejected_for(&self, rules: &Rules) -> Option<Cause> {
        if self.out.is_some() {
            return None;
        }
        if rules.failures_in_a_row > 0 && self.in_a_row >= rules.failures_in_a_row {
            return Some(Cause::InARow);
        }
        let all = self.window.ok + self.window.failed;
        let share = f64::from(self.window.failed) / f64::from(all.max(1));
        (all >= rules.window_requests && share >= rules.failure_share).then_some(Cause::Share)
    }

    fn bring_back(&mut self) {
        self.returns |= self.out.take().is_some();
        self.checks_failed = 0;
        self.window = Window::default();
    }

    /// What was on its way when it was taken out has told what a probe would have.
    fn probe_later(&mut self, now_ns: Ns, interval_ns: Ns) {
        if let Some(out) = self.out.as_mut().filter(|out| out.cause != Cause::Checks) {
            let latest_ns = now_ns.saturating_add(interval_ns.saturating_mul(PROBES_SPARED_MAX));
            let later_ns = out.probe_due_ns.saturating_add(interval_ns);
            out.probe_due_ns = later_ns.min(latest_ns).max(out.probe_due_ns);
        }
    }

    fn take_out(&mut self, cause: Cause, probe_due_ns: Ns) {
        self.ejections[cause as usize] += 1;
        self.in_a_row = 0;
        self.window = Window::default();
        self.out = Some(Out {
            cause,
            probe_due_ns,
            probing: false,
        });
    }
}

impl Window {
    fn count(&mut self, ok: bool, now_ns: Ns, length_ns: u64) {
        if now_ns.saturating_sub(self.begun_ns) > length_ns {
            *self = Window {
                begun_ns: now_ns,
                ..Window::default()
            };
        }
        self.ok += u32::from(ok);
        self.failed += u32::from(!ok);
    }
}

/// Instances that answers alone may take out.
fn most_out(rules: &Rules, instances: usize) -> usize {
    (rules.ejected_share_max * instances as f64) as usize
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
