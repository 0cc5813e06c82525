//! Lanes: requests by length, so that short ones do not wait behind long prompts.
//!
//! An engine prefills in the order of arrival, so a short request's TTFT is mostly the prompt
//! tokens ahead of it. Hence two rules of steering, with or without slots:
//! - a request of any lane but the last goes where little prefill is ahead of it; the inner policy
//!   chooses among the instances within a small slack of the best;
//! - a request of the last lane keeps to instances that prefill long prompts already, once these are
//!   as many as the other lanes' reserve leaves; it borrows a clean one when that is far emptier.
//!
//! With slots, a lane may take any free slot but those that other lanes' unused reserve holds back.

use crate::config::{LanesConfig, QueueConfig};
use crate::event::Observation;
use crate::load::InstanceLoad;
use crate::shape::RequestShape;
use crate::view::{Candidate, FleetView, LaneLoad};
use crate::{Choice, Policy, PolicyRng};

/// How much more a prompt token ahead delays a first token than an output token left does. Output
/// left is spread over many steps that are shared by the batch; prefill ahead is waited for whole.
const PREFILL_WEIGHT: f64 = 8.0;
/// Prompt tokens of wait that are as good as none: less than one step's usual budget.
const SLACK_PREFILL_TOKENS: f64 = 128.0;
/// Long requests borrow clean instances once those with long prompts hold this many times the request itself.
const BORROW_FACTOR: f64 = 2.0;

/// Which lane a request takes, and what room a lane has.
#[derive(Debug, Clone)]
pub struct LaneRules {
    names: Vec<String>,
    limits: Vec<Option<u32>>,
    reserves: Vec<u32>,
    slots: Option<u32>,
    queue: QueueConfig,
}

impl LaneRules {
    /// The rules a configuration sets.
    pub fn new(config: &LanesConfig) -> Self {
        let slots = config.slots_per_instance.unwrap_or(0);
        Self {
            names: config.lanes.iter().map(|lane| lane.name.clone()).collect(),
            limits: config.lanes.iter().map(|lane| lane.max_tokens).collect(),
            // rounded down: the sum stays under the slots, so every lane has at least one to use
            reserves: config
                .lanes
                .iter()
                .map(|lane| (lane.reserve * f64::from(slots)) as u32)
                .collect(),
            slots: config.slots_per_instance,
            queue: config.queue.clone().unwrap_or_default(),
        }
    }

    /// Names by index.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Bounds of the queue; used only with slots.
    pub fn queue(&self) -> &QueueConfig {
        &self.queue
    }

    /// The first lane that is long enough for uncached prompt + predicted output.
    pub fn classify(&self, shape: &RequestShape) -> usize {
        self.lane_of(shape.work_tokens())
    }

    /// The same by the tokens themselves.
    pub(crate) fn lane_of(&self, tokens: u64) -> usize {
        let fits = |limit: &Option<u32>| limit.is_none_or(|limit| tokens <= u64::from(limit));
        self.limits
            .iter()
            .position(fits)
            .unwrap_or(self.limits.len().saturating_sub(1))
    }

    /// Slots that the unused part of all lanes' reserves holds back.
    pub(crate) fn held(&self, lanes: &[LaneLoad]) -> u32 {
        let left = |(reserve, used): (&u32, &LaneLoad)| reserve.saturating_sub(used.requests);
        self.reserves.iter().zip(lanes).map(left).sum()
    }

    /// Whether an instance has a slot this lane may take; `held` as of [`Self::held`].
    pub(crate) fn has_room(
        &self,
        lane: usize,
        load: &InstanceLoad,
        held: u32,
        lanes: &[LaneLoad],
    ) -> bool {
        let Some(slots) = self.slots else { return true };
        let free = slots.saturating_sub(load.requests);
        if free == 0 || free > held {
            return free > 0;
        }
        let own = self.reserves[lane].saturating_sub(lanes[lane].requests);
        free > held - own
    }
}

/// What one pass over the instances found at a place.
#[derive(Clone, Copy)]
struct Mark {
    least: f64,
    dirty: bool,
}

/// A place whose instance may not take the request.
const NO_CANDIDATE: Mark = Mark {
    least: f64::INFINITY,
    dirty: false,
};

/// The policy `lanes`.
pub struct Lanes {
    inner: Box<dyn Policy>,
    last: usize,
    reserved: f64,
    /// reused between choices
    mask: Vec<bool>,
    marks: Vec<Mark>,
    borrowed: u64,
}

impl Lanes {
    /// Steers for `inner`.
    pub fn new(config: &LanesConfig, inner: Box<dyn Policy>) -> Self {
        let last = config.lanes.len().saturating_sub(1);
        let reserved = config
            .lanes
            .iter()
            .take(last)
            .map(|lane| lane.reserve)
            .sum();
        Self {
            inner,
            last,
            reserved,
            mask: Vec::new(),
            marks: Vec::new(),
            borrowed: 0,
        }
    }

    /// Long requests that took an instance kept for shorter ones.
    pub fn borrowed(&self) -> u64 {
        self.borrowed
    }

    fn mark_short(&mut self, fleet: &FleetView<'_>) {
        let mut best = f64::INFINITY;
        for one in fleet.candidates() {
            let wait = wait(&one);
            best = best.min(wait);
            let slack = PREFILL_WEIGHT * SLACK_PREFILL_TOKENS / one.load.weight;
            self.marks[one.index] = Mark {
                least: wait - slack,
                dirty: false,
            };
        }
        for (mark, mask) in self.marks.iter().zip(&mut self.mask) {
            *mask = mark.least.is_finite() && mark.least <= best;
        }
    }

    fn mark_long(&mut self, shape: &RequestShape, fleet: &FleetView<'_>) {
        let last = self.last;
        let (mut all, mut busy) = (0_u32, 0_u32);
        let mut dirty_load = f64::INFINITY;
        for one in fleet.candidates() {
            let load = one.outstanding_tokens() / one.load.weight;
            let dirty = one
                .lanes()
                .get(last)
                .is_some_and(|lane| lane.prefill_tokens > 0);
            self.marks[one.index] = Mark { least: load, dirty };
            all += 1;
            busy += u32::from(dirty);
            if dirty {
                dirty_load = dirty_load.min(load);
            }
        }
        let most = (f64::from(all) * (1.0 - self.reserved)).floor().max(1.0);
        let own = f64::from(shape.uncached_tokens()) + f64::from(shape.predicted_output_tokens);
        let keep = f64::from(busy) >= most;
        let borrow = dirty_load > BORROW_FACTOR * own;
        self.borrowed += u64::from(keep && borrow);
        for (mark, mask) in self.marks.iter().zip(&mut self.mask) {
            // borrowing widens the choice; it does not drive long requests away from where they belong
            *mask = mark.least.is_finite() && (!keep || borrow || mark.dirty);
        }
    }
}

/// Expected wait for a first token, in output tokens of an instance of weight 1.
fn wait(one: &Candidate<'_>) -> f64 {
    (PREFILL_WEIGHT * one.load.prefill_tokens as f64 + one.outstanding_tokens()) / one.load.weight
}

impl Policy for Lanes {
    fn name(&self) -> &'static str {
        "lanes"
    }

    fn choose(
        &mut self,
        shape: &RequestShape,
        fleet: &FleetView<'_>,
        rng: &mut PolicyRng,
    ) -> Option<Choice> {
        self.mask.clear();
        self.mask.resize(fleet.instances(), false);
        self.marks.clear();
        self.marks.resize(fleet.instances(), NO_CANDIDATE);
        match fleet.lane() {
            Some(lane) if lane < self.last => self.mark_short(fleet),
            _ => self.mark_long(shape, fleet),
        }
        self.inner.choose(shape, &fleet.narrowed(&self.mask), rng)
    }

    fn observe(&mut self, observation: &Observation) {
        self.inner.observe(observation);
    }

    fn fallbacks(&self) -> u64 {
        self.borrowed + self.inner.fallbacks()
    }
}
