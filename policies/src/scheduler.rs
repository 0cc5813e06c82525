//! The state machine: arrivals, progress, ends and changes of the pool go in, grants come out.
//!
//! Choosing and counting are one step. The live proxy and the simulator drive this same code.
//! After every call no request waits while an instance that its lane may use has room.

use std::collections::BTreeMap;

use rand::SeedableRng;
use slab::Slab;

mod grants;
mod known;
mod policies;
mod replay;
mod sheds;

pub use crate::event::*;
use crate::lanes::LaneRules;
use crate::load::{EngineGauges, InstanceLoad, InstanceState, Ramp};
use crate::queue::{Queue, Waiter};
use crate::shape::RequestShape;
use crate::view::{FleetView, LaneLoad, Slot};
use crate::{Choice, ConfigError, Policy, PolicyConfig, PolicyRng};

/// Weight of the newest request in the mean size of a request.
const TYPICAL_GAIN: f64 = 0.05;
/// Weight of the newest interval in the mean time between ends.
const INTERVAL_GAIN: f64 = 0.1;
/// Longest `Retry-After` given.
const MAX_RETRY_AFTER_S: f64 = 60.0;

/// What was counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// requests given an instance
    pub grants: u64,
    /// leases ended
    pub finishes: u64,
    /// reports on leases that had ended already
    pub stale: u64,
    /// of these, second or unknown `finish`
    pub stale_finishes: u64,
    /// waiters that left
    pub cancels: u64,
    /// shed: as many waited as may
    pub shed_queue_full: u64,
    /// shed: too many bytes waited
    pub shed_queue_bytes: u64,
    /// shed: waited too long
    pub shed_queue_wait: u64,
    /// shed: no instance up
    pub shed_no_instance: u64,
    /// retries that had to use an excluded instance
    pub excluded_used: u64,
    /// choices that the policy did not make or that could not be used
    pub policy_failed: u64,
}

/// A lane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneStats<'a> {
    /// name
    pub name: &'a str,
    /// requests open on instances
    pub requests: u32,
    /// requests that wait
    pub waiting: usize,
}

#[derive(Debug)]
struct Lease {
    generation: u64,
    instance: InstanceId,
    lane: Option<usize>,
    prefill_tokens: u32,
    decode_tokens: u32,
    /// output tokens predicted at the grant
    predicted_tokens: u32,
    /// uncached prompt and predicted output at the grant: what a lane goes by
    work_tokens: u64,
}

/// Chooses instances and counts what is open on them.
pub struct Scheduler {
    policy: Box<dyn Policy>,
    rng: PolicyRng,
    rules: Option<LaneRules>,
    queue: Option<Queue>,
    slots: Vec<Slot>,
    places: BTreeMap<InstanceId, usize>,
    leases: Slab<Lease>,
    counters: Counters,
    /// of the policies before this one
    past_fallbacks: u64,
    typical_tokens: f64,
    finish_interval_ns: Option<f64>,
    last_finish_ns: Option<u64>,
    /// some instance may be in its slow start
    ramping: bool,
    seq: u64,
    log: Option<EventLog>,
}

impl Scheduler {
    /// An empty pool under a policy.
    pub fn new(config: &PolicyConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::build(config, crate::build(config), seed))
    }

    /// An empty pool under a policy of one's own, without lanes.
    pub fn with_policy(policy: Box<dyn Policy>, seed: u64) -> Self {
        Self::build(&PolicyConfig::Random {}, policy, seed)
    }

    fn build(config: &PolicyConfig, policy: Box<dyn Policy>, seed: u64) -> Self {
        let (rules, queue) = policies::lanes_of(config);
        Self {
            policy,
            rng: PolicyRng::seed_from_u64(seed),
            queue,
            rules,
            slots: Vec::new(),
            places: BTreeMap::new(),
            leases: Slab::new(),
            counters: Counters::default(),
            past_fallbacks: 0,
            typical_tokens: 0.0,
            finish_interval_ns: None,
            last_finish_ns: None,
            ramping: false,
            seq: 0,
            log: None,
        }
    }

    // ---- instances

    /// Adds an instance, up. One that is leaving with open leases comes back with its counts.
    pub fn add_instance(
        &mut self,
        now_ns: u64,
        id: InstanceId,
        weight: f64,
        out: &mut Vec<Action>,
    ) {
        self.record(now_ns, || Input::AddInstance { id, weight });
        let weight = usable_weight(weight);
        match self.slot_mut(id) {
            Some(slot) => {
                slot.state = InstanceState::Up;
                slot.load.weight = weight;
            }
            None => {
                let count = self.rules.as_ref().map_or(0, |rules| rules.names().len());
                let lanes = vec![LaneLoad::default(); count];
                let held = self.rules.as_ref().map_or(0, |rules| rules.held(&lanes));
                self.places.insert(id, self.slots.len());
                self.slots.push(Slot {
                    id,
                    state: InstanceState::Up,
                    load: InstanceLoad::new(weight),
                    foreign_requests: 0,
                    lanes,
                    held,
                    ramp: None,
                });
            }
        }
        self.settle(now_ns, out);
    }

    /// Takes an instance out of the pool; it is forgotten once its last lease ends.
    pub fn remove_instance(&mut self, now_ns: u64, id: InstanceId, out: &mut Vec<Action>) {
        self.record(now_ns, || Input::RemoveInstance { id });
        if let Some(slot) = self.slot_mut(id) {
            slot.state = InstanceState::Leaving;
        }
        self.forget_if_left(id);
        self.settle(now_ns, out);
    }

    /// Sets whether an instance takes requests.
    pub fn set_state(
        &mut self,
        now_ns: u64,
        id: InstanceId,
        state: InstanceState,
        out: &mut Vec<Action>,
    ) {
        self.record(now_ns, || Input::SetState { id, state });
        if let Some(slot) = self.slot_mut(id) {
            slot.state = state;
        }
        self.forget_if_left(id);
        self.settle(now_ns, out);
    }

    /// Sets an instance's share of work; anything but a number above 0 counts as 1.
    pub fn set_weight(&mut self, now_ns: u64, id: InstanceId, weight: f64) {
        self.record(now_ns, || Input::SetWeight { id, weight });
        if let Some(slot) = self.slot_mut(id) {
            slot.load.weight = usable_weight(weight);
        }
    }

    /// From now on, for so long, an instance takes no more than a growing share of what the others have.
    /// It takes more only where no other has room.
    pub fn slow_start(&mut self, now_ns: u64, id: InstanceId, length_ns: u64) {
        self.record(now_ns, || Input::SlowStart { id, length_ns });
        let ramp = Ramp {
            since_ns: now_ns,
            length_ns,
        };
        if let Some(slot) = self.slot_mut(id) {
            slot.ramp = (length_ns > 0).then_some(ramp);
            self.ramping |= length_ns > 0;
        }
    }

    /// Takes the engine's gauges. What they show beyond our own open requests is others' traffic.
    pub fn set_gauges(&mut self, now_ns: u64, id: InstanceId, gauges: EngineGauges) {
        self.record(now_ns, || Input::SetGauges { id, gauges });
        if let Some(slot) = self.slot_mut(id) {
            slot.foreign_requests = gauges
                .running
                .saturating_add(gauges.waiting)
                .saturating_sub(slot.load.requests);
            slot.load.gauges = Some(gauges);
        }
    }

    // ---- requests

    /// A request arrives. Instances in `exclude` are used only if no other is up.
    pub fn arrive(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        shape: &RequestShape,
        exclude: &[InstanceId],
        out: &mut Vec<Action>,
    ) -> Arrival {
        self.record(now_ns, || Input::Arrive {
            ticket,
            shape: *shape,
            exclude: exclude.to_vec(),
        });
        self.settle(now_ns, out);
        if let Some(lane) = self.queue.as_ref().and_then(|queue| queue.lane_of(ticket)) {
            return Arrival::Queued { lane };
        }
        self.learn_size(shape);
        if !self.any_up() {
            return Arrival::Shed(self.shed(ticket, ShedReason::NoInstance, None));
        }
        let lane = self.rules.as_ref().map(|rules| rules.classify(shape));
        if let Some(grant) = self.try_grant(now_ns, ticket, shape, exclude, lane, 0) {
            return self.sent(now_ns, grant, out);
        }
        let (Some(queue), Some(lane)) = (self.queue.as_mut(), lane) else {
            return Arrival::Shed(self.shed(ticket, ShedReason::NoInstance, lane));
        };
        match queue.push(lane, ticket, shape, exclude, now_ns) {
            Ok(()) => Arrival::Queued { lane },
            Err(reason) => Arrival::Shed(self.shed(ticket, reason, Some(lane))),
        }
    }

    /// A request that must go to one instance (a stored response, an operator's header) and is only
    /// counted: slots do not hold it back. Shed if that instance is not up.
    pub fn arrive_pinned(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        shape: &RequestShape,
        instance: InstanceId,
        out: &mut Vec<Action>,
    ) -> Arrival {
        self.record(now_ns, || Input::ArrivePinned {
            ticket,
            shape: *shape,
            instance,
        });
        self.settle(now_ns, out);
        self.learn_size(shape);
        let lane = self.rules.as_ref().map(|rules| rules.classify(shape));
        match self
            .places
            .get(&instance)
            .copied()
            .filter(|index| self.slots[*index].state.takes_requests())
        {
            Some(index) => {
                let grant = self.count(index, ticket, shape, lane, 0);
                self.sent(now_ns, grant, out)
            }
            None => Arrival::Shed(self.shed(ticket, ShedReason::NoInstance, None)),
        }
    }

    /// A waiter leaves the queue; true if it was waiting.
    pub fn cancel(&mut self, now_ns: u64, ticket: Ticket, out: &mut Vec<Action>) -> bool {
        self.record(now_ns, || Input::Cancel { ticket });
        let was = self
            .queue
            .as_mut()
            .and_then(|queue| queue.remove(ticket))
            .is_some();
        self.counters.cancels += u64::from(was);
        self.settle(now_ns, out);
        was
    }

    /// The first output was seen: the prompt is prefilled.
    pub fn first_output(&mut self, now_ns: u64, lease: LeaseId) {
        self.record(now_ns, || Input::FirstOutput { lease });
        self.update(lease, |one| one.prefill_tokens = 0);
    }

    /// `output_tokens` so far, over all choices; never makes the load grow.
    pub fn progress(&mut self, now_ns: u64, lease: LeaseId, output_tokens: u64) {
        self.record(now_ns, || Input::Progress {
            lease,
            output_tokens,
        });
        let done = u32::try_from(output_tokens).unwrap_or(u32::MAX);
        self.update(lease, |one| {
            one.decode_tokens = one
                .decode_tokens
                .min(one.predicted_tokens.saturating_sub(done))
        });
    }

    /// A lease ends. A second end of the same lease is ignored and counted.
    pub fn finish(
        &mut self,
        now_ns: u64,
        lease: LeaseId,
        observation: &Observation,
        out: &mut Vec<Action>,
    ) {
        self.record(now_ns, || Input::Finish {
            lease,
            observation: *observation,
        });
        if !self.is_open(lease) {
            self.counters.stale += 1;
            self.counters.stale_finishes += 1;
            return self.settle(now_ns, out);
        }
        let one = self.leases.remove(lease.slot as usize);
        self.release(&one);
        self.counters.finishes += 1;
        self.learn_interval(now_ns);
        self.policy.observe(observation);
        self.forget_if_left(one.instance);
        self.settle(now_ns, out);
    }

    /// Sheds those who waited too long. To be called at [`Self::next_deadline`].
    pub fn expire(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        self.record(now_ns, || Input::Expire);
        self.settle(now_ns, out);
    }

    /// When the first waiter's time is over.
    pub fn next_deadline(&self) -> Option<u64> {
        self.queue.as_ref().and_then(Queue::next_deadline)
    }

    fn slot_mut(&mut self, id: InstanceId) -> Option<&mut Slot> {
        self.places.get(&id).map(|index| &mut self.slots[*index])
    }

    fn any_up(&self) -> bool {
        self.slots.iter().any(|slot| slot.state.takes_requests())
    }

    fn forget_if_left(&mut self, id: InstanceId) {
        let Some(index) = self.places.get(&id).copied() else {
            return;
        };
        let slot = &self.slots[index];
        if slot.state != InstanceState::Leaving || slot.load.requests > 0 {
            return;
        }
        self.slots.remove(index);
        self.places = self
            .slots
            .iter()
            .enumerate()
            .map(|(index, slot)| (slot.id, index))
            .collect();
    }

    fn is_open(&self, lease: LeaseId) -> bool {
        self.leases
            .get(lease.slot as usize)
            .is_some_and(|one| one.generation == lease.generation)
    }
}

fn usable_weight(weight: f64) -> f64 {
    if weight.is_finite() && weight > 0.0 {
        weight
    } else {
        1.0
    }
}
