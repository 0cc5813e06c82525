//! The scheduler's log: its calls and decisions recorded, and made again.

use super::*;

impl Scheduler {
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
            Input::SlowStart { id, length_ns } => self.slow_start(now, *id, *length_ns),
            Input::SetGauges { id, gauges } => self.set_gauges(now, *id, *gauges),
            Input::SetPolicy { config } => {
                // it was checked when it was recorded
                let _ = self.set_policy(now, config, out);
            }
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

    pub(super) fn record(&mut self, at_ns: u64, input: impl FnOnce() -> Input) {
        self.seq += 1;
        if let Some(log) = &mut self.log {
            log.events.push(Event {
                seq: self.seq,
                at_ns,
                input: input(),
            });
        }
    }

    pub(super) fn decided(&mut self, decision: Decision) {
        if let Some(log) = &mut self.log {
            log.decisions.push(decision);
        }
    }
}
