//! What is known of the scheduler: loads, lanes, counters.

use super::*;

impl Scheduler {
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
        self.past_fallbacks
            + self.policy.fallbacks()
            + self.counters.excluded_used
            + self.counters.policy_failed
    }

    /// Number of the last call.
    pub fn last_seq(&self) -> u64 {
        self.seq
    }
}
