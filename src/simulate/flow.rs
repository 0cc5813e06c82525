//! Who sends what when in a simulated run: a schedule, or places that are filled again. Pure.

use std::iter::Peekable;

use crate::load::runner::{ClosedEnd, Pace, Requests};
use crate::load::workload::PlannedRequest;

/// A source of requests.
pub(super) struct Flow {
    requests: Peekable<Requests>,
    pace: Pace,
    /// places of a closed loop that are free
    free: Vec<u32>,
    /// requests issued after the warm-up
    measured: u64,
    over: bool,
}

impl Flow {
    /// Requests at their times, or as soon as one of `places` is free.
    pub(super) fn new(requests: Requests, pace: Pace, places: u32) -> Self {
        Flow {
            requests: requests.peekable(),
            pace,
            free: (0..places).rev().collect(),
            measured: 0,
            over: false,
        }
    }

    /// When its next request is due; `None` if none is, or none before a place is free.
    pub(super) fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.over {
            return None;
        }
        match self.pace {
            Pace::Schedule => Some(self.requests.peek()?.at_ns.max(now_ns)),
            Pace::Closed(_) => self.free.last().map(|_| now_ns),
        }
    }

    /// The request that is due now and the place it takes; `None` when the flow is over.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(PlannedRequest, u32)> {
        let place = match self.pace {
            Pace::Schedule => 0,
            Pace::Closed(end) => {
                if self.is_over(end, now_ns) {
                    self.over = true;
                    return None;
                }
                self.free.pop()?
            }
        };
        let next = self.requests.next();
        self.over = next.is_none();
        Some((next?, place))
    }

    /// Whether its requests have times to keep.
    pub(super) fn is_scheduled(&self) -> bool {
        self.pace == Pace::Schedule
    }

    /// A place is free again.
    pub(super) fn give_back(&mut self, place: u32) {
        if let Pace::Closed(_) = self.pace {
            self.free.push(place);
        }
    }

    /// Sends nothing more.
    pub(super) fn stop(&mut self) {
        self.over = true;
    }

    /// Whether it sends nothing more.
    pub(super) fn is_done(&mut self) -> bool {
        self.over || self.requests.peek().is_none()
    }

    /// As the live runner decides it.
    fn is_over(&mut self, end: ClosedEnd, now_ns: u64) -> bool {
        match end {
            ClosedEnd::After { run_ns } => now_ns >= run_ns,
            ClosedEnd::Count {
                warm_up_ns,
                requests,
            } => {
                self.measured += u64::from(now_ns >= warm_up_ns);
                self.measured > requests
            }
        }
    }
}
