//! The load generator of a simulated run: one thread that issues requests and reads answers, one thing at a time. Pure.

use crate::load::runner::GeneratorUse;

/// What the generator's one core costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GeneratorCost {
    /// CPU of issuing a request, µs
    pub request_us: f64,
    /// CPU of reading a chunk, µs
    pub event_us: f64,
}

impl GeneratorCost {
    /// Near what `evenkeel bench` tells of itself on a server's core (an estimate).
    pub const USUAL: GeneratorCost = GeneratorCost {
        request_us: 50.0,
        event_us: 5.0,
    };
}

/// The thread: first come, first served.
#[derive(Debug, Default)]
pub(super) struct Generator {
    cost: GeneratorCost,
    free_ns: u64,
    given_ns: u64,
    events: u64,
}

/// When a piece of its work begins and ends.
pub(super) struct Turn {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
}

impl Generator {
    pub(super) fn new(cost: GeneratorCost) -> Self {
        Generator {
            cost,
            ..Generator::default()
        }
    }

    /// Issues a request.
    pub(super) fn issue(&mut self, now_ns: u64) -> Turn {
        self.work(now_ns, self.cost.request_us)
    }

    /// Reads a chunk that came at `now_ns`.
    pub(super) fn read(&mut self, now_ns: u64) -> Turn {
        self.events += 1;
        self.work(now_ns, self.cost.event_us)
    }

    fn work(&mut self, now_ns: u64, us: f64) -> Turn {
        let work_ns = (us * 1e3) as u64;
        let begin_ns = self.free_ns.max(now_ns);
        self.free_ns = begin_ns + work_ns;
        self.given_ns += work_ns;
        Turn {
            begin_ns,
            end_ns: self.free_ns,
        }
    }

    /// CPU time it has used by `now_ns`.
    pub(super) fn cpu_ns(&self, now_ns: u64) -> u64 {
        self.given_ns
            .saturating_sub(self.free_ns.saturating_sub(now_ns))
    }

    /// What it used by the end of a run.
    pub(super) fn used(&self, end_ns: u64, connections: u64) -> GeneratorUse {
        GeneratorUse {
            cpu_ns: Some(self.cpu_ns(end_ns)),
            waited_ns: None,
            wall_ns: end_ns,
            events: self.events,
            connections,
            stolen_share: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_it_works_waits_and_its_cpu_is_what_it_did() {
        let mut generator = Generator::new(GeneratorCost {
            request_us: 10.0,
            event_us: 4.0,
        });
        assert_eq!(generator.issue(1_000).end_ns, 11_000);
        let late = generator.read(5_000);
        assert_eq!((late.begin_ns, late.end_ns), (11_000, 15_000));
        assert_eq!(generator.cpu_ns(12_000), 11_000);
        assert_eq!(generator.cpu_ns(20_000), 14_000);
        assert_eq!(generator.used(20_000, 1).events, 1);
    }
}
