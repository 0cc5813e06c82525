//! The state machine: arrivals, progress, ends and changes of the pool go in, grants come out.
//!
//! Choosing and counting are one step. The live proxy and the simulator drive this same code.
//! After every call no request waits while an instance that its lane may use has room.

use std::collections::BTreeMap;

use rand::SeedableRng;
use slab::Slab;

pub use crate::event::*;
use crate::lanes::LaneRules;
use crate::load::{EngineGauges, InstanceLoad, InstanceState};
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
    typical_tokens: f64,
    finish_interval_ns: Option<f64>,
    last_finish_ns: Option<u64>,
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
        let lanes = match config {
            PolicyConfig::Lanes(lanes) => Some(lanes),
            _ => None,
        };
        let rules = lanes.map(LaneRules::new);
        let queued = rules
            .as_ref()
            .filter(|_| lanes.is_some_and(|lanes| lanes.slots_per_instance.is_some()));
        Self {
            policy,
            rng: PolicyRng::seed_from_u64(seed),
            queue: queued.map(|rules| Queue::new(rules.names().len(), rules.queue())),
            rules,
            slots: Vec::new(),
            places: BTreeMap::new(),
            leases: Slab::new(),
            counters: Counters::default(),
            typical_tokens: 0.0,
            finish_interval_ns: None,
            last_finish_ns: None,
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
            return Arrival::Send(grant);
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
            .filter(|index| self.slots[*index].state == InstanceState::Up)
        {
            Some(index) => Arrival::Send(self.count(index, ticket, shape, lane, 0)),
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

    // ---- what is known

    /// Every instance, those that leave with open leases included.
    pub fn loads(&self) -> impl Iterator<Item = (InstanceId, &InstanceLoad, InstanceState)> {
        self.slots
            .iter()
            .map(|slot| (slot.id, &slot.load, slot.state))
    }

    /// One instance's load.
    pub fn load(&self, id: InstanceId) -> Option<&InstanceLoad> {
        self.places.get(&id).map(|index| &self.slots[*index].load)
    }

    /// The policy's name.
    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    /// Names of the lanes by index; empty without lanes.
    pub fn lanes(&self) -> &[String] {
        self.rules.as_ref().map_or(&[], LaneRules::names)
    }

    /// Each lane's open and waiting requests.
    pub fn lane_stats(&self) -> impl Iterator<Item = LaneStats<'_>> {
        self.lanes()
            .iter()
            .enumerate()
            .map(|(lane, name)| LaneStats {
                name,
                requests: self
                    .slots
                    .iter()
                    .filter_map(|slot| slot.lanes.get(lane))
                    .map(|load| load.requests)
                    .sum(),
                waiting: self.queue.as_ref().map_or(0, |queue| queue.lane_len(lane)),
            })
    }

    /// Requests that wait.
    pub fn queue_len(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::len)
    }

    /// Body bytes of the requests that wait.
    pub fn queue_bytes(&self) -> u64 {
        self.queue.as_ref().map_or(0, Queue::bytes)
    }

    /// Leases not ended.
    pub fn open_leases(&self) -> usize {
        self.leases.len()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Decisions that could not follow the policy's own rule.
    pub fn fallbacks(&self) -> u64 {
        self.policy.fallbacks() + self.counters.excluded_used + self.counters.policy_failed
    }

    /// Number of the last call.
    pub fn last_seq(&self) -> u64 {
        self.seq
    }

    /// Starts (or ends) recording calls and decisions. Start before the first call to replay a run.
    pub fn record_events(&mut self, on: bool) {
        self.log = on.then(EventLog::default);
    }

    /// The log so far; recording goes on with an empty one.
    pub fn take_events(&mut self) -> Option<EventLog> {
        self.log.as_mut().map(std::mem::take)
    }

    /// Makes a recorded call again.
    pub fn apply(&mut self, event: &Event, out: &mut Vec<Action>) -> Option<Arrival> {
        let now = event.at_ns;
        match &event.input {
            Input::AddInstance { id, weight } => self.add_instance(now, *id, *weight, out),
            Input::RemoveInstance { id } => self.remove_instance(now, *id, out),
            Input::SetState { id, state } => self.set_state(now, *id, *state, out),
            Input::SetWeight { id, weight } => self.set_weight(now, *id, *weight),
            Input::SetGauges { id, gauges } => self.set_gauges(now, *id, *gauges),
            Input::Arrive {
                ticket,
                shape,
                exclude,
            } => return Some(self.arrive(now, *ticket, shape, exclude, out)),
            Input::ArrivePinned {
                ticket,
                shape,
                instance,
            } => {
                return Some(self.arrive_pinned(now, *ticket, shape, *instance, out));
            }
            Input::Cancel { ticket } => drop(self.cancel(now, *ticket, out)),
            Input::FirstOutput { lease } => self.first_output(now, *lease),
            Input::Progress {
                lease,
                output_tokens,
            } => self.progress(now, *lease, *output_tokens),
            Input::Finish { lease, observation } => self.finish(now, *lease, observation, out),
            Input::Expire => self.expire(now, out),
        }
        None
    }

    // ---- inside

    fn record(&mut self, at_ns: u64, input: impl FnOnce() -> Input) {
        self.seq += 1;
        if let Some(log) = &mut self.log {
            log.events.push(Event {
                seq: self.seq,
                at_ns,
                input: input(),
            });
        }
    }

    fn decided(&mut self, decision: Decision) {
        if let Some(log) = &mut self.log {
            log.decisions.push(decision);
        }
    }

    fn slot_mut(&mut self, id: InstanceId) -> Option<&mut Slot> {
        self.places.get(&id).map(|index| &mut self.slots[*index])
    }

    fn any_up(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.state == InstanceState::Up)
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

    /// Sheds the overdue, then grants to waiters until none can go.
    fn settle(&mut self, now_ns: u64, out: &mut Vec<Action>) {
        if self.queue_len() == 0 {
            return;
        }
        while let Some(waiter) = self
            .queue
            .as_mut()
            .and_then(|queue| queue.take_expired(now_ns))
        {
            self.shed_waiter(&waiter, ShedReason::QueueWait, out);
        }
        if !self.any_up() {
            while let Some(waiter) = self.queue.as_mut().and_then(Queue::take_any) {
                self.shed_waiter(&waiter, ShedReason::NoInstance, out);
            }
            return;
        }
        while let Some((lane, waiter)) = self.next_waiter(now_ns) {
            let waited_ns = now_ns.saturating_sub(waiter.since_ns);
            let grant = self.try_grant(
                now_ns,
                waiter.ticket,
                &waiter.shape,
                &waiter.exclude,
                Some(lane),
                waited_ns,
            );
            match grant {
                Some(grant) => out.push(Action::Grant(grant)),
                // cannot be: `next_waiter` saw a candidate
                None => self.shed_waiter(&waiter, ShedReason::NoInstance, out),
            }
        }
    }

    fn next_waiter(&mut self, now_ns: u64) -> Option<(usize, Waiter)> {
        let queue = self.queue.as_mut()?;
        let view = FleetView {
            slots: &self.slots,
            exclude: &[],
            rules: self.rules.as_ref(),
            lane: None,
            now_ns,
            typical_tokens: self.typical_tokens,
            mask: None,
        };
        let mut full = None;
        queue.take(|lane, waiter| {
            if full == Some(lane) {
                return false;
            }
            let view = FleetView {
                lane: Some(lane),
                ..view
            };
            if view.candidates().next().is_none() {
                full = Some(lane);
                return false;
            }
            without(&view, &waiter.exclude)
                .candidates()
                .next()
                .is_some()
        })
    }

    fn try_grant(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        shape: &RequestShape,
        exclude: &[InstanceId],
        lane: Option<usize>,
        waited_ns: u64,
    ) -> Option<Grant> {
        let view = FleetView {
            slots: &self.slots,
            exclude: &[],
            rules: self.rules.as_ref(),
            lane,
            now_ns,
            typical_tokens: self.typical_tokens,
            mask: None,
        };
        let view = without(&view, exclude);
        let forced = !exclude.is_empty() && view.exclude.is_empty();
        // nobody to choose from is a full pool, not a policy's failure
        view.candidates().next()?;
        let choice = self.policy.choose(shape, &view, &mut self.rng);
        let usable = |choice: &Choice| {
            self.slots
                .get(choice.index)
                .is_some_and(|slot| view.allows(choice.index, slot))
        };
        let (index, failed) = match choice.filter(usable) {
            Some(choice) => (choice.index, false),
            None => (
                crate::view::least(&view, &mut self.rng, |_| 0.0)?.index,
                true,
            ),
        };
        self.counters.policy_failed += u64::from(failed);
        self.counters.excluded_used += u64::from(forced);
        Some(self.count(index, ticket, shape, lane, waited_ns))
    }

    fn count(
        &mut self,
        index: usize,
        ticket: Ticket,
        shape: &RequestShape,
        lane: Option<usize>,
        waited_ns: u64,
    ) -> Grant {
        self.counters.grants += 1;
        let (prefill, decode) = (shape.uncached_tokens(), shape.predicted_output_tokens);
        let slot = &mut self.slots[index];
        let generation = self.counters.grants;
        let place = self.leases.insert(Lease {
            generation,
            instance: slot.id,
            lane,
            prefill_tokens: prefill,
            decode_tokens: decode,
            predicted_tokens: decode,
        });
        let grant = Grant {
            ticket,
            lease: LeaseId {
                slot: place as u32,
                generation,
            },
            instance: slot.id,
            lane,
            outstanding_requests: slot.load.requests,
            outstanding_tokens: slot.load.outstanding_tokens(),
            predicted_prefill_tokens: prefill,
            predicted_output_tokens: decode,
            waited_ns,
        };
        slot.load.requests += 1;
        slot.load.prefill_tokens += u64::from(prefill);
        slot.load.decode_tokens += u64::from(decode);
        if let Some(load) = lane.and_then(|lane| slot.lanes.get_mut(lane)) {
            load.requests += 1;
            load.prefill_tokens += u64::from(prefill);
        }
        if let Some(rules) = &self.rules {
            slot.held = rules.held(&slot.lanes);
        }
        self.decided(Decision::Grant {
            seq: self.seq,
            grant,
        });
        grant
    }

    fn update(&mut self, lease: LeaseId, change: impl FnOnce(&mut Lease)) {
        if !self.is_open(lease) {
            self.counters.stale += 1;
            return;
        }
        let one = &mut self.leases[lease.slot as usize];
        let (prefill, decode) = (one.prefill_tokens, one.decode_tokens);
        change(one);
        let (prefill, decode) = (prefill - one.prefill_tokens, decode - one.decode_tokens);
        let (instance, lane) = (one.instance, one.lane);
        self.uncount(instance, lane, prefill, decode, 0);
    }

    fn release(&mut self, one: &Lease) {
        self.uncount(
            one.instance,
            one.lane,
            one.prefill_tokens,
            one.decode_tokens,
            1,
        );
    }

    fn uncount(
        &mut self,
        instance: InstanceId,
        lane: Option<usize>,
        prefill: u32,
        decode: u32,
        requests: u32,
    ) {
        let Some(index) = self.places.get(&instance).copied() else {
            return;
        };
        let slot = &mut self.slots[index];
        slot.load.requests -= requests;
        slot.load.prefill_tokens -= u64::from(prefill);
        slot.load.decode_tokens -= u64::from(decode);
        if let Some(load) = lane.and_then(|lane| slot.lanes.get_mut(lane)) {
            load.requests -= requests;
            load.prefill_tokens -= u64::from(prefill);
        }
        if let Some(rules) = &self.rules {
            slot.held = rules.held(&slot.lanes);
        }
    }

    fn shed_waiter(&mut self, waiter: &Waiter, reason: ShedReason, out: &mut Vec<Action>) {
        let lane = self
            .rules
            .as_ref()
            .map(|rules| rules.classify(&waiter.shape));
        let Shed {
            reason,
            retry_after_s,
        } = self.shed(waiter.ticket, reason, lane);
        out.push(Action::Shed {
            ticket: waiter.ticket,
            reason,
            retry_after_s,
        });
    }

    fn shed(&mut self, ticket: Ticket, reason: ShedReason, lane: Option<usize>) -> Shed {
        let counters = &mut self.counters;
        *match reason {
            ShedReason::QueueFull => &mut counters.shed_queue_full,
            ShedReason::QueueBytes => &mut counters.shed_queue_bytes,
            ShedReason::QueueWait => &mut counters.shed_queue_wait,
            ShedReason::NoInstance => &mut counters.shed_no_instance,
        } += 1;
        let shed = Shed {
            reason,
            retry_after_s: self.retry_after_s(lane),
        };
        self.decided(Decision::Shed {
            seq: self.seq,
            ticket,
            shed,
        });
        shed
    }

    /// Time the lane's line needs at the mean pace of ends seen; 1 s before any was seen.
    fn retry_after_s(&self, lane: Option<usize>) -> u32 {
        let waiting = lane
            .and_then(|lane| self.queue.as_ref().map(|queue| queue.lane_len(lane)))
            .unwrap_or(0);
        let wait_s = self.finish_interval_ns.unwrap_or(0.0) * 1e-9 * (waiting + 1) as f64;
        wait_s.ceil().clamp(1.0, MAX_RETRY_AFTER_S) as u32
    }

    fn learn_size(&mut self, shape: &RequestShape) {
        let tokens = f64::from(shape.uncached_tokens()) + f64::from(shape.predicted_output_tokens);
        let gain = if self.typical_tokens == 0.0 {
            1.0
        } else {
            TYPICAL_GAIN
        };
        self.typical_tokens += gain * (tokens - self.typical_tokens);
    }

    fn learn_interval(&mut self, now_ns: u64) {
        if let Some(last) = self.last_finish_ns {
            let interval = now_ns.saturating_sub(last) as f64;
            let mean = self.finish_interval_ns.unwrap_or(interval);
            self.finish_interval_ns = Some(mean + INTERVAL_GAIN * (interval - mean));
        }
        self.last_finish_ns = Some(now_ns);
    }

    #[cfg(test)]
    pub(crate) fn held_is_right(&self) -> bool {
        let right = |slot: &Slot| {
            self.rules
                .as_ref()
                .is_none_or(|rules| rules.held(&slot.lanes) == slot.held)
        };
        self.slots.iter().all(right)
    }

    #[cfg(test)]
    pub(crate) fn stuck(&self) -> Option<Ticket> {
        let queue = self.queue.as_ref()?;
        let view = |lane| FleetView {
            slots: &self.slots,
            exclude: &[],
            rules: self.rules.as_ref(),
            lane: Some(lane),
            now_ns: 0,
            typical_tokens: 0.0,
            mask: None,
        };
        let mut waiters = queue.waiters();
        waiters
            .find(|(lane, one)| {
                without(&view(*lane), &one.exclude)
                    .candidates()
                    .next()
                    .is_some()
            })
            .map(|(_, one)| one.ticket)
    }
}

/// The view without the excluded instances, or as it is if no other is up.
fn without<'a>(view: &FleetView<'a>, exclude: &'a [InstanceId]) -> FleetView<'a> {
    let other = |slot: &Slot| slot.state == InstanceState::Up && !exclude.contains(&slot.id);
    if exclude.is_empty() || !view.slots.iter().any(other) {
        return *view;
    }
    FleetView { exclude, ..*view }
}

fn usable_weight(weight: f64) -> f64 {
    if weight.is_finite() && weight > 0.0 {
        weight
    } else {
        1.0
    }
}
