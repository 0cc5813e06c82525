//! What happens to a request before the engine may admit it: a CPU core tokenizes it. Pure.

use std::collections::VecDeque;

/// A request that waits for a core.
#[derive(Debug)]
struct Job {
    key: usize,
    arrived_ns: u64,
    work_ns: u64,
}

/// A request on a core.
#[derive(Debug)]
struct Busy {
    key: usize,
    began_ns: u64,
    work_ns: u64,
    /// what the engine's loop took of the core meanwhile
    taken_ns: u64,
}

#[derive(Debug, Default)]
struct Core {
    busy: Option<Busy>,
    /// when it is done with what it was given
    free_ns: u64,
}

/// The instance's cores, and the requests they prepare, first come first served.
#[derive(Debug)]
pub(super) struct Preparing {
    cores: Vec<Core>,
    queue: VecDeque<Job>,
    done_ns: u64,
}

impl Preparing {
    pub(super) fn new(cores: u32) -> Self {
        Preparing {
            cores: (0..cores).map(|_| Core::default()).collect(),
            queue: VecDeque::new(),
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

    /// Takes the core that is free first for the engine's loop; the request on it, if any, lasts so much longer.
    pub(super) fn take_core(&mut self, now_ns: u64, work_ns: u64) {
        self.begin(now_ns);
        if let Some(core) = self.cores.iter_mut().min_by_key(|core| core.free_ns) {
            core.free_ns = core.free_ns.max(now_ns) + work_ns;
            if let Some(busy) = &mut core.busy {
                busy.taken_ns += work_ns;
            }
        }
    }

    /// Sequences that are ready by now, in order.
    pub(super) fn ready(&mut self, now_ns: u64, out: &mut VecDeque<usize>) {
        loop {
            self.begin(now_ns);
            let ended = self
                .cores
                .iter_mut()
                .filter(|core| core.busy.is_some() && core.free_ns <= now_ns)
                .min_by_key(|core| core.free_ns);
            let Some(busy) = ended.and_then(|core| core.busy.take()) else {
                return;
            };
            self.done_ns += busy.work_ns;
            out.push_back(busy.key);
        }
    }

    /// When something may be ready or begin; `None` if nothing is left.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let waits = !self.queue.is_empty();
        let matters = |core: &&Core| core.busy.is_some() || waits;
        self.cores
            .iter()
            .filter(matters)
            .map(|core| core.free_ns)
            .min()
    }

    pub(super) fn forget(&mut self, key: usize) {
        self.queue.retain(|job| job.key != key);
        for core in &mut self.cores {
            core.busy.take_if(|busy| busy.key == key);
        }
    }

    /// CPU time of requests until now, nanoseconds.
    pub(super) fn cpu_ns(&self, now_ns: u64) -> u64 {
        let part = |busy: &Busy| {
            let since_ns = now_ns.saturating_sub(busy.began_ns);
            since_ns.saturating_sub(busy.taken_ns).min(busy.work_ns)
        };
        let under_way = self.cores.iter().filter_map(|core| core.busy.as_ref());
        self.done_ns + under_way.map(part).sum::<u64>()
    }

    /// Hands the requests to cores that are free by now.
    fn begin(&mut self, now_ns: u64) {
        while let Some(job) = self.queue.front() {
            let idle = self
                .cores
                .iter_mut()
                .filter(|core| core.busy.is_none() && core.free_ns <= now_ns)
                .min_by_key(|core| core.free_ns);
            let Some(core) = idle else { return };
            let began_ns = core.free_ns.max(job.arrived_ns);
            core.free_ns = began_ns + job.work_ns;
            core.busy = Some(Busy {
                key: job.key,
                began_ns,
                work_ns: job.work_ns,
                taken_ns: 0,
            });
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
        assert_eq!((one.next_ns(), one.cpu_ns(200)), (None, 200));
        assert_eq!(ready(&mut two, 100), [0, 1]);
    }

    #[test]
    fn the_loop_takes_its_time_from_the_request_on_the_core() {
        let mut one = Preparing::new(1);
        one.push(0, 0, 100);
        one.push(0, 1, 100);
        one.take_core(50, 30);
        assert!(ready(&mut one, 129).is_empty());
        assert_eq!(one.cpu_ns(129), 99);
        assert_eq!(ready(&mut one, 130), [0]);
        assert_eq!((one.next_ns(), one.cpu_ns(180)), (Some(230), 150));
        assert_eq!(ready(&mut one, 230), [1]);
    }

    #[test]
    fn a_core_that_the_loop_has_begins_a_request_after_it() {
        let mut one = Preparing::new(1);
        one.take_core(0, 30);
        one.push(10, 0, 100);
        assert_eq!(one.next_ns(), Some(30));
        assert!(ready(&mut one, 30).is_empty());
        assert_eq!(one.next_ns(), Some(130));
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
