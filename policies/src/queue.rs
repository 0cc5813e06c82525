//! Requests that wait for a slot: one line a lane, bounds over all lanes, fair turns between lanes.

use std::collections::{BTreeMap, VecDeque};

use crate::config::QueueConfig;
use crate::event::{InstanceId, ShedReason, Ticket};
use crate::shape::RequestShape;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub ticket: Ticket,
    pub shape: RequestShape,
    pub exclude: Vec<InstanceId>,
    pub since_ns: u64,
    /// when it has waited as long as it may; never before that of who stands ahead in its line
    deadline_ns: u64,
    number: u64,
}

impl Waiter {
    fn work_tokens(&self) -> u64 {
        self.shape.work_tokens() + 1
    }
}

#[derive(Debug, Default)]
struct Line {
    waiters: VecDeque<Waiter>,
    /// tokens granted to this lane from the queue; the lane with the fewest is next, so that lanes
    /// get equal work and none starves (start-time fair queueing)
    served_tokens: u64,
}

/// All lanes' lines.
#[derive(Debug)]
pub(crate) struct Queue {
    lines: Vec<Line>,
    places: BTreeMap<Ticket, (usize, u64)>,
    bytes: u64,
    max_requests: usize,
    max_bytes: u64,
    max_wait_ns: u64,
    next_number: u64,
}

impl Queue {
    pub fn new(lanes: usize, config: &QueueConfig) -> Self {
        Self {
            lines: (0..lanes).map(|_| Line::default()).collect(),
            places: BTreeMap::new(),
            bytes: 0,
            max_requests: config.max_requests as usize,
            max_bytes: config.max_bytes,
            max_wait_ns: (config.max_wait_s * 1e9) as u64,
            next_number: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn lane_len(&self, lane: usize) -> usize {
        self.lines.get(lane).map_or(0, |line| line.waiters.len())
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn lane_of(&self, ticket: Ticket) -> Option<usize> {
        self.places.get(&ticket).map(|(lane, _)| *lane)
    }

    pub fn push(
        &mut self,
        lane: usize,
        ticket: Ticket,
        shape: &RequestShape,
        exclude: &[InstanceId],
        now_ns: u64,
    ) -> Result<(), ShedReason> {
        if self.len() >= self.max_requests {
            return Err(ShedReason::QueueFull);
        }
        if self.bytes.saturating_add(shape.body_bytes) > self.max_bytes {
            return Err(ShedReason::QueueBytes);
        }
        if self.lines[lane].waiters.is_empty() {
            // a lane that comes back has no claim on what it did not ask for meanwhile
            let backlogged = self.lines.iter().filter(|line| !line.waiters.is_empty());
            let least = backlogged.map(|line| line.served_tokens).min().unwrap_or(0);
            let line = &mut self.lines[lane];
            line.served_tokens = line.served_tokens.max(least);
        }
        self.stand(
            lane,
            Waiter {
                ticket,
                shape: *shape,
                exclude: exclude.to_vec(),
                since_ns: now_ns,
                deadline_ns: now_ns.saturating_add(self.max_wait_ns),
                number: 0,
            },
        );
        Ok(())
    }

    /// Puts one who waits already at the end of a line, whatever the bounds say: it was promised a place.
    pub fn stand(&mut self, lane: usize, mut waiter: Waiter) {
        let waiters = &mut self.lines[lane].waiters;
        let ahead = waiters.back().map_or(0, |one| one.deadline_ns);
        waiter.deadline_ns = waiter.deadline_ns.max(ahead);
        waiter.number = self.next_number;
        self.next_number += 1;
        self.places.insert(waiter.ticket, (lane, waiter.number));
        self.bytes += waiter.shape.body_bytes;
        waiters.push_back(waiter);
    }

    /// All who wait, in the order in which they came.
    pub fn into_waiters(self) -> Vec<Waiter> {
        let lines = self.lines.into_iter();
        let mut waiters: Vec<Waiter> = lines.flat_map(|line| line.waiters).collect();
        waiters.sort_by_key(|waiter| waiter.number);
        waiters
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let (lane, number) = self.places.remove(&ticket)?;
        let waiters = &mut self.lines.get_mut(lane)?.waiters;
        let at = waiters
            .binary_search_by_key(&number, |waiter| waiter.number)
            .ok()?;
        let waiter = waiters.remove(at)?;
        self.bytes -= waiter.shape.body_bytes;
        Some(waiter)
    }

    /// The next request that can go, in fair turns between lanes, in order within a lane.
    pub fn take(
        &mut self,
        mut can_go: impl FnMut(usize, &Waiter) -> bool,
    ) -> Option<(usize, Waiter)> {
        let mut chosen: Option<(u64, usize, Ticket)> = None;
        for (lane, line) in self.lines.iter().enumerate() {
            if chosen.is_some_and(|(served, ..)| served <= line.served_tokens) {
                continue;
            }
            if let Some(waiter) = line.waiters.iter().find(|waiter| can_go(lane, waiter)) {
                chosen = Some((line.served_tokens, lane, waiter.ticket));
            }
        }
        let (_, lane, ticket) = chosen?;
        let waiter = self.remove(ticket)?;
        self.lines[lane].served_tokens += waiter.work_tokens();
        Some((lane, waiter))
    }

    /// The next request whose time is over.
    pub fn take_expired(&mut self, now_ns: u64) -> Option<Waiter> {
        let front = |line: &Line| {
            line.waiters
                .front()
                .filter(|one| one.deadline_ns <= now_ns)
                .map(|one| one.ticket)
        };
        let ticket = self.lines.iter().find_map(front)?;
        self.remove(ticket)
    }

    /// Any request that waits, in order within its lane.
    pub fn take_any(&mut self) -> Option<Waiter> {
        let ticket = self
            .lines
            .iter()
            .find_map(|line| line.waiters.front().map(|one| one.ticket))?;
        self.remove(ticket)
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.lines
            .iter()
            .filter_map(|line| line.waiters.front())
            .map(|waiter| waiter.deadline_ns)
            .min()
    }
}
