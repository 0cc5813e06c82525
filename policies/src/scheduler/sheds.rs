//! Refusing a request, and when it may be worth another try.

use super::*;

impl Scheduler {
    pub(super) fn shed_waiter(
        &mut self,
        waiter: &Waiter,
        reason: ShedReason,
        out: &mut Vec<Action>,
    ) {
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

    pub(super) fn shed(&mut self, ticket: Ticket, reason: ShedReason, lane: Option<usize>) -> Shed {
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
    pub(super) fn retry_after_s(&self, lane: Option<usize>) -> u32 {
        let waiting = lane
            .and_then(|lane| self.queue.as_ref().map(|queue| queue.lane_len(lane)))
            .unwrap_or(0);
        let wait_s = self.finish_interval_ns.unwrap_or(0.0) * 1e-9 * (waiting + 1) as f64;
        wait_s.ceil().clamp(1.0, MAX_RETRY_AFTER_S) as u32
    }

    pub(super) fn learn_size(&mut self, shape: &RequestShape) {
        let tokens = shape.work_tokens() as f64;
        let gain = if self.typical_tokens == 0.0 {
            1.0
        } else {
            TYPICAL_GAIN
        };
        self.typical_tokens += gain * (tokens - self.typical_tokens);
    }

    pub(super) fn learn_interval(&mut self, now_ns: u64) {
        if let Some(last) = self.last_finish_ns {
            let interval = now_ns.saturating_sub(last) as f64;
            let mean = self.finish_interval_ns.unwrap_or(interval);
            self.finish_interval_ns = Some(mean + INTERVAL_GAIN * (interval - mean));
        }
        self.last_finish_ns = Some(now_ns);
    }
}
