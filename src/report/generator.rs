//! Whether a run says something about the server, or only about its own generator. Pure.

use serde::{Deserialize, Serialize};

use crate::load::runner::{GeneratorUse, SendLag};

/// A thread that is busy for this share of its time has no room for bursts.
pub const BUSY_SHARE: f64 = 0.85;
/// Its own lateness from which a schedule was not kept.
pub const LATE_MS: f64 = 10.0;

/// What holds the generator back, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// its core is used up
    Cpu,
    /// it has CPU to spare and still sent late: the machine is too busy with something else
    Lateness,
}

/// What the generator cost and how it kept up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// share of one core that its thread used; absent where the system does not tell
    pub cpu_share: Option<f64>,
    /// CPU time for each event it read, sending included, µs
    pub cpu_us_per_event: Option<f64>,
    /// events it read
    pub events: u64,
    /// connections it made
    pub connections: u64,
    /// share of the machine's CPU time that its host took; absent where the system does not tell
    pub stolen_share: Option<f64>,
    /// how late it issued requests; absent in a closed loop, which has no schedule
    pub lag: Option<SendLag>,
    /// set where the figures are the generator's and not the server's
    pub bottleneck: Option<Bottleneck>,
}

impl Generator {
    /// Judges a run. `scheduled`: it had times to keep.
    pub fn of(used: GeneratorUse, lag: Option<SendLag>, scheduled: bool) -> Generator {
        let over =
            |whole: u64| move |cpu_ns: u64| (whole > 0).then(|| cpu_ns as f64 / whole as f64);
        let cpu_share = used.cpu_ns.and_then(over(used.wall_ns));
        let lag = lag.filter(|_| scheduled);
        let late = lag.is_some_and(|lag| lag.own_p99_ms > LATE_MS);
        let bottleneck = match cpu_share {
            Some(share) if share >= BUSY_SHARE => Some(Bottleneck::Cpu),
            _ if late => Some(Bottleneck::Lateness),
            _ => None,
        };
        Generator {
            cpu_share,
            cpu_us_per_event: used
                .cpu_ns
                .and_then(over(used.events))
                .map(|ns| ns / 1000.0),
            events: used.events,
            connections: used.connections,
            stolen_share: used.stolen_share,
            lag,
            bottleneck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(cpu_ns: Option<u64>, own_p99_ms: f64, scheduled: bool) -> Generator {
        let used = GeneratorUse {
            cpu_ns,
            wall_ns: 1_000_000_000,
            events: 50_000,
            connections: 3,
            stolen_share: None,
        };
        let lag = SendLag {
            p50_ms: 0.1,
            p99_ms: 500.0,
            max_ms: 900.0,
            own_p99_ms,
            held_back: 4,
        };
        Generator::of(used, Some(lag), scheduled)
    }

    #[test]
    fn a_full_core_or_a_late_schedule_is_the_generators_fault_and_a_held_send_is_not() {
        let fine = judged(Some(500_000_000), 1.0, true);
        assert_eq!((fine.bottleneck, fine.cpu_us_per_event), (None, Some(10.0)));
        assert_eq!(fine.cpu_share, Some(0.5));
        let full = judged(Some(900_000_000), 50.0, true);
        assert_eq!(full.bottleneck, Some(Bottleneck::Cpu));
        let late = judged(None, 10.1, true);
        assert_eq!(
            (late.bottleneck, late.cpu_share),
            (Some(Bottleneck::Lateness), None)
        );
        let closed = judged(Some(1), 10.1, false);
        assert_eq!((closed.bottleneck, closed.lag), (None, None));
    }
}
