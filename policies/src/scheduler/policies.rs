//! Another policy for a pool that serves: what is open stays counted, and who waits keeps the place in line.

use super::*;

impl Scheduler {
    /// From now on another policy chooses. Open leases and waiting requests are put into its lanes by their length;
    /// who waits keeps order and deadline, however small the new queue is, and goes at once where there is no queue
    /// any more. Nothing changes if the configuration cannot be used.
    pub fn set_policy(
        &mut self,
        now_ns: u64,
        config: &PolicyConfig,
        out: &mut Vec<Action>,
    ) -> Result<(), ConfigError> {
        config.validate()?;
        self.record(now_ns, || Input::SetPolicy {
            config: config.clone(),
        });
        self.past_fallbacks += self.policy.fallbacks();
        self.policy = crate::build(config);
        let before = self.queue.take().map_or_else(Vec::new, Queue::into_waiters);
        (self.rules, self.queue) = lanes_of(config);
        self.count_lanes_anew();
        for waiter in before {
            self.stand_or_go(now_ns, waiter, out);
        }
        self.settle(now_ns, out);
        Ok(())
    }

    fn stand_or_go(&mut self, now_ns: u64, waiter: Waiter, out: &mut Vec<Action>) {
        let rules = self.rules.as_ref();
        let lane = rules.map(|rules| rules.classify(&waiter.shape));
        if let (Some(queue), Some(lane)) = (&mut self.queue, lane) {
            return queue.stand(lane, waiter);
        }
        let waited_ns = now_ns.saturating_sub(waiter.since_ns);
        let (ticket, exclude) = (waiter.ticket, &waiter.exclude);
        match self.try_grant(now_ns, ticket, &waiter.shape, exclude, lane, waited_ns) {
            Some(grant) => out.push(Action::Grant(grant)),
            None => self.shed_waiter(&waiter, ShedReason::NoInstance, out),
        }
    }

    fn count_lanes_anew(&mut self) {
        let rules = self.rules.as_ref();
        let count = rules.map_or(0, |rules| rules.names().len());
        for slot in &mut self.slots {
            slot.lanes.clear();
            slot.lanes.resize(count, LaneLoad::default());
        }
        for (_, lease) in &mut self.leases {
            lease.lane = rules.map(|rules| rules.lane_of(lease.work_tokens));
            let slot = self.places.get(&lease.instance);
            let slot = slot.and_then(|index| self.slots.get_mut(*index));
            let load = slot.and_then(|slot| slot.lanes.get_mut(lease.lane?));
            if let Some(load) = load {
                load.requests += 1;
                load.prefill_tokens += u64::from(lease.prefill_tokens);
            }
        }
        for slot in &mut self.slots {
            slot.held = rules.map_or(0, |rules| rules.held(&slot.lanes));
        }
    }
}

/// Lanes and queue of a policy; a queue exists only where slots are given.
pub(super) fn lanes_of(config: &PolicyConfig) -> (Option<LaneRules>, Option<Queue>) {
    let PolicyConfig::Lanes(lanes) = config else {
        return (None, None);
    };
    let rules = LaneRules::new(lanes);
    let queue = lanes
        .slots_per_instance
        .map(|_| Queue::new(rules.names().len(), rules.queue()));
    (Some(rules), queue)
}
