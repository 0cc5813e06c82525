//! Giving places and taking them back: the only code that changes a load.

use super::*;

impl Scheduler {
    /// Sheds the overdue, then grants to waiters until none can go; all are shed once no instance is up.
    pub(super) fn settle(&mut self, now_ns: u64, out: &mut Vec<Action>) {
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
        loop {
            // a grant may have been the one that an instance takes to be probed
            if !self.any_up() {
                while let Some(waiter) = self.queue.as_mut().and_then(Queue::take_any) {
                    self.shed_waiter(&waiter, ShedReason::NoInstance, out);
                }
                return;
            }
            let Some((lane, waiter)) = self.next_waiter(now_ns) else {
                return;
            };
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

    /// The answer to who came and got this. A probe's instance takes nothing more, which others may have waited for.
    pub(super) fn sent(&mut self, now_ns: u64, grant: Grant, out: &mut Vec<Action>) -> Arrival {
        if grant.probe {
            self.settle(now_ns, out);
        }
        Arrival::Send(grant)
    }

    pub(super) fn next_waiter(&mut self, now_ns: u64) -> Option<(usize, Waiter)> {
        let queue = self.queue.as_mut()?;
        let view = FleetView {
            slots: &self.slots,
            exclude: &[],
            rules: self.rules.as_ref(),
            lane: None,
            now_ns,
            typical_tokens: self.typical_tokens,
            mask: None,
            ramp_mean: None,
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

    pub(super) fn try_grant(
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
            ramp_mean: None,
        };
        let view = without(&view, exclude);
        let forced = !exclude.is_empty() && view.exclude.is_empty();
        // nobody to choose from is a full pool, not a policy's failure
        view.candidates().next()?;
        let view = self.ramped(&view);
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

    /// The view with slow starts held to, unless nobody is left then.
    fn ramped<'a>(&self, view: &FleetView<'a>) -> FleetView<'a> {
        if !self.ramping {
            return *view;
        }
        let settled = |slot: &&Slot| {
            slot.state == InstanceState::Up
                && slot.ramp.is_none_or(|ramp| ramp.is_over(view.now_ns))
        };
        let (count, requests) = self
            .slots
            .iter()
            .filter(settled)
            .fold((0_u32, 0_u64), |(count, sum), slot| {
                (count + 1, sum + u64::from(slot.load.requests))
            });
        let ramped = FleetView {
            ramp_mean: (count > 0).then(|| requests as f64 / f64::from(count)),
            ..*view
        };
        if ramped.candidates().next().is_some() {
            ramped
        } else {
            *view
        }
    }

    pub(super) fn count(
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
        let probe = slot.state == InstanceState::Probing;
        if probe {
            slot.state = InstanceState::Down;
        }
        let generation = self.counters.grants;
        let place = self.leases.insert(Lease {
            generation,
            instance: slot.id,
            lane,
            prefill_tokens: prefill,
            decode_tokens: decode,
            predicted_tokens: decode,
            work_tokens: shape.work_tokens(),
        });
        let grant = Grant {
            ticket,
            lease: LeaseId {
                slot: place as u32,
                generation,
            },
            instance: slot.id,
            lane,
            probe,
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

    pub(super) fn update(&mut self, lease: LeaseId, change: impl FnOnce(&mut Lease)) {
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

    pub(super) fn release(&mut self, one: &Lease) {
        self.uncount(
            one.instance,
            one.lane,
            one.prefill_tokens,
            one.decode_tokens,
            1,
        );
    }

    pub(super) fn uncount(
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

    #[cfg(test)]
    pub(crate) fn held_is_right(&self) -> bool {
        let right = |slot: &Slot| {
            self.rules
                .as_ref()
                .is_none_or(|rules| rules.held(&slot.lanes) == slot.held)
        };
        self.slots.iter().all(right)
    }
}

/// The view without the excluded instances, or as it is if no other is up.
fn without<'a>(view: &FleetView<'a>, exclude: &'a [InstanceId]) -> FleetView<'a> {
    let other = |slot: &Slot| slot.state.takes_requests() && !exclude.contains(&slot.id);
    if exclude.is_empty() || !view.slots.iter().any(other) {
        return *view;
    }
    FleetView { exclude, ..*view }
}
