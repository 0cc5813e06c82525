//! What a policy sees of the pool when it chooses.

use rand::RngExt;

use crate::event::InstanceId;
use crate::lanes::LaneRules;
use crate::load::{InstanceLoad, InstanceState, Ramp};
use crate::{Choice, PolicyRng};

/// Gauges older than this say nothing of other proxies' traffic any more.
const GAUGE_MAX_AGE_NS: u64 = 15_000_000_000;

/// One lane's part of an instance's load.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaneLoad {
    /// requests open
    pub requests: u32,
    /// uncached prompt tokens whose first output was not seen yet
    pub prefill_tokens: u64,
}

/// An instance as the scheduler keeps it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub id: InstanceId,
    pub state: InstanceState,
    pub load: InstanceLoad,
    /// requests others had there when the gauges were read
    pub foreign_requests: u32,
    pub lanes: Vec<LaneLoad>,
    /// slots that lanes' unused reserves hold back; kept beside the counts it follows from
    pub held: u32,
    pub ramp: Option<Ramp>,
}

/// An instance that may take the request.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// place in the pool; stable until an instance is removed
    pub index: usize,
    /// id
    pub id: InstanceId,
    /// own counts
    pub load: &'a InstanceLoad,
    lanes: &'a [LaneLoad],
    foreign_requests: f64,
    typical_tokens: f64,
}

impl Candidate<'_> {
    /// Open requests: own ones plus those that fresh gauges show beyond them.
    pub fn requests(&self) -> f64 {
        f64::from(self.load.requests) + self.foreign_requests
    }

    /// Outstanding tokens; a request of others counts as a usual one of ours.
    pub fn outstanding_tokens(&self) -> f64 {
        self.load.outstanding_tokens() as f64 + self.foreign_requests * self.typical_tokens
    }

    /// Load by lane; empty without lanes.
    pub fn lanes(&self) -> &[LaneLoad] {
        self.lanes
    }
}

/// The pool at the moment of a choice.
#[derive(Clone, Copy)]
pub struct FleetView<'a> {
    pub(crate) slots: &'a [Slot],
    pub(crate) exclude: &'a [InstanceId],
    pub(crate) rules: Option<&'a LaneRules>,
    pub(crate) lane: Option<usize>,
    pub(crate) now_ns: u64,
    pub(crate) typical_tokens: f64,
    pub(crate) mask: Option<&'a [bool]>,
    /// mean open requests of the instances in full service; ramps hold where it is known
    pub(crate) ramp_mean: Option<f64>,
}

impl<'a> FleetView<'a> {
    /// Instances in the pool, whatever their state; every candidate's index is below it.
    pub fn instances(&self) -> usize {
        self.slots.len()
    }

    /// The request's lane.
    pub fn lane(&self) -> Option<usize> {
        self.lane
    }

    /// Instances that may take the request now: up, not excluded, with room for its lane.
    pub fn candidates(&self) -> impl Iterator<Item = Candidate<'a>> + use<'a> {
        let view = *self;
        view.slots
            .iter()
            .enumerate()
            .filter(move |(index, slot)| view.allows(*index, slot))
            .map(move |(index, slot)| Candidate {
                index,
                id: slot.id,
                load: &slot.load,
                lanes: &slot.lanes,
                foreign_requests: f64::from(view.foreign_requests(slot)),
                typical_tokens: view.typical_tokens,
            })
    }

    /// The same pool with only those candidates whose place in `mask` is true.
    pub fn masked<'b>(&self, mask: &'b [bool]) -> FleetView<'b>
    where
        'a: 'b,
    {
        FleetView {
            mask: Some(mask),
            ..*self
        }
    }

    /// As `masked`, for a mask that holds candidates of this view only: nothing is asked twice.
    pub(crate) fn narrowed<'b>(&self, mask: &'b [bool]) -> FleetView<'b>
    where
        'a: 'b,
    {
        FleetView {
            mask: Some(mask),
            exclude: &[],
            rules: None,
            ..*self
        }
    }

    pub(crate) fn allows(&self, index: usize, slot: &Slot) -> bool {
        self.mask.is_none_or(|mask| mask.get(index) == Some(&true))
            && slot.state.takes_requests()
            && !self.exclude.contains(&slot.id)
            && self.has_room(slot)
            && self.ramp_allows(slot)
    }

    fn ramp_allows(&self, slot: &Slot) -> bool {
        match (self.ramp_mean, &slot.ramp) {
            (Some(mean), Some(ramp)) => {
                ramp.is_over(self.now_ns)
                    || slot.load.requests < ramp.most_requests(self.now_ns, mean)
            }
            _ => true,
        }
    }

    fn has_room(&self, slot: &Slot) -> bool {
        match (self.rules, self.lane) {
            (Some(rules), Some(lane)) => rules.has_room(lane, &slot.load, slot.held, &slot.lanes),
            _ => true,
        }
    }

    fn foreign_requests(&self, slot: &Slot) -> u32 {
        let fresh = slot
            .load
            .gauges
            .is_some_and(|gauges| self.now_ns.saturating_sub(gauges.at_ns) <= GAUGE_MAX_AGE_NS);
        if fresh { slot.foreign_requests } else { 0 }
    }
}

/// The candidate with the lowest score; ties are broken at random, each as likely.
pub fn least<'a>(
    fleet: &FleetView<'a>,
    rng: &mut PolicyRng,
    score: impl Fn(&Candidate<'a>) -> f64,
) -> Option<Choice> {
    let mut best: Option<(f64, usize)> = None;
    let mut ties = 1_u32;
    for candidate in fleet.candidates() {
        let value = score(&candidate);
        match best {
            Some((lowest, _)) if value > lowest => {}
            Some((lowest, _)) if value == lowest => {
                ties += 1;
                if rng.random_range(0..ties) == 0 {
                    best = Some((value, candidate.index));
                }
            }
            _ => {
                best = Some((value, candidate.index));
                ties = 1;
            }
        }
    }
    best.map(|(_, index)| Choice { index })
}
