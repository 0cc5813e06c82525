//! What happens to a request before the engine may admit it: a CPU core tokenizes it. Pure.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A request that waits for a core.
#[derive(Debug)]
struct Job {
    key: usize,
    arrived_ns: u64,
    work_ns: u64,
}

/// The instance's cores, and the requests they prepare, first come first served.
#[derive(Debug)]
pub(super) struct Preparing {
    /// when each core is done with what it was given
    free_ns: Vec<u64>,
    queue: VecDeque<Job>,
    /// end, order of the start, sequence, work
    under_way: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    begun: u64,
    done_ns: u64,
}

impl Preparing {
    pub(super) fn new(cores: u32) -> Self {
        Preparing {
            free_ns: vec![0; cores as usize],
            queue: VecDeque::new(),
            under_way: BinaryHeap::new(),
            begun: 0,
            done_ns: 0,
        }
    }

    pub(super) fn push(&mut self, now_ns: u64, key: usize, work_ns: u64) {
        self.queue.push_back(Job {
            key,
            arrived_ns: now_ns,
            work_ns,
        });
        self.begin(now_ns);
    }

    /// Takes a core for the engine's loop, before any request that has not begun.
    pub(super) fn take_core(&mut self, now_ns: u64, work_ns: u64) {
        self.begin(now_ns);
        if let Some(free_ns) = self.free_ns.iter_mut().min() {
            *free_ns = (*free_ns).max(now_ns) + work_ns;
        }
    }

    /// Sequences that are ready by now, in order.
    pub(super) fn ready(&mut self, now_ns: u64, out: &mut VecDeque<usize>) {
        self.begin(now_ns);
        while let Some(Reverse((end_ns, _, key, work_ns))) = self.under_way.peek().copied() {
            if end_ns > now_ns {
                return;
            }
            self.under_way.pop();
            self.done_ns += work_ns;
            out.push_back(key);
        }
    }

    /// When something may be ready or begin; `None` if nothing is left.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let ends = self.under_way.peek().map(|Reverse((end_ns, ..))| *end_ns);
        let begins = (!self.queue.is_empty()).then(|| self.free_ns.iter().min().copied());
        ends.into_iter().chain(begins.flatten()).min()
    }

    pub(super) fn forget(&mut self, key: usize) {
        self.queue.retain(|job| job.key != key);
        self.under_way
            .retain(|Reverse((_, _, other, _))| *other != key);
    }

    /// CPU time of the requests that are prepared, nanoseconds.
    pub(super) fn done_ns(&self) -> u64 {
        self.done_ns
    }

    /// Hands the requests to cores that are free by now.
    fn begin(&mut self, now_ns: u64) {
        while let Some(job) = self.queue.front() {
            let Some(free_ns) = self
                .free_ns
                .iter_mut()
                .min()
                .filter(|free| **free <= now_ns)
            else {
                return;
            };
            let end_ns = (*free_ns).max(job.arrived_ns) + job.work_ns;
            *free_ns = end_ns;
            self.under_way
                .push(Reverse((end_ns, self.begun, job.key, job.work_ns)));
            self.begun += 1;
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(preparing: &mut Preparing, now_ns: u64) -> Vec<usize> {
        let mut out = VecDeque::new();
        preparing.ready(now_ns, &mut out);
        out.into()
    }

    #[test]
    fn one_core_prepares_one_after_the_other_and_two_at_once() {
        let mut one = Preparing::new(1);
        let mut two = Preparing::new(2);
        for key in 0..2 {
            one.push(0, key, 100);
            two.push(0, key, 100);
        }
        assert_eq!(ready(&mut one, 100), [0]);
        assert_eq!(one.next_ns(), Some(200));
        assert_eq!(ready(&mut one, 200), [1]);
        assert_eq!((one.next_ns(), one.done_ns()), (None, 200));
        assert_eq!(ready(&mut two, 100), [0, 1]);
    }

    #[test]
    fn the_loop_goes_before_what_has_not_begun() {
        let mut one = Preparing::new(1);
        one.push(0, 0, 100);
        one.push(0, 1, 100);
        one.take_core(50, 30);
        assert_eq!(ready(&mut one, 100), [0]);
        assert_eq!(one.next_ns(), Some(130));
        assert!(ready(&mut one, 229).is_empty());
        assert_eq!(ready(&mut one, 230), [1]);
    }

    #[test]
    fn who_leaves_is_not_ready_later() {
        let mut one = Preparing::new(1);
        one.push(0, 0, 100);
        one.push(0, 1, 100);
        one.forget(0);
        one.forget(1);
        assert!(ready(&mut one, 1000).is_empty());
        assert_eq!(one.next_ns(), None);
    }
}
