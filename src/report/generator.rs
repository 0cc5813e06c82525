//! Whether a run says something about the server, or only about its own generator. Pure.

use serde::{Deserialize, Serialize};

use crate::load::runner::{GeneratorUse, SendLag};

/// A thread that is busy for this share of its time, or busy and waiting for a core, has no room for bursts.
pub const BUSY_SHARE: f64 = 0.85;
/// Its own lateness from which a schedule was not kept.
pub const LATE_MS: f64 = 10.0;

/// What holds the generator back, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// its core is used up
    Cpu,
    /// its core is not used up, and still it sent late or hardly ever had nothing to do: the core is given to others, or a
    /// limit is set on it
    Lateness,
}

/// What the generator cost and how it kept up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// share of one core that its thread used; absent where the system does not tell
    pub cpu_share: Option<f64>,
    /// share of its time in which its thread had work and no core; absent where the system does not tell
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_share: Option<f64>,
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
        let waited_share = used.waited_ns.and_then(over(used.wall_ns));
        let lag = lag.filter(|_| scheduled);
        Generator {
            bottleneck: bottleneck(cpu_share, waited_share, lag),
            cpu_share,
            waited_share,
            cpu_us_per_event: used
                .cpu_ns
                .and_then(over(used.events))
                .map(|ns| ns / 1000.0),
            events: used.events,
            connections: used.connections,
            stolen_share: used.stolen_share,
            lag,
        }
    }
}

/// A closed loop keeps no times that it could miss: that it is slow shows in that it never waits for the server.
fn bottleneck(
    cpu_share: Option<f64>,
    waited_share: Option<f64>,
    lag: Option<SendLag>,
) -> Option<Bottleneck> {
    let late = lag.is_some_and(|lag| lag.own_p99_ms > LATE_MS);
    let working = cpu_share.map(|share| share + waited_share.unwrap_or(0.0));
    match (cpu_share, working) {
        (Some(share), _) if share >= BUSY_SHARE => Some(Bottleneck::Cpu),
        (_, Some(share)) if share >= BUSY_SHARE => Some(Bottleneck::Lateness),
        _ if late => Some(Bottleneck::Lateness),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_NS: u64 = 1_000_000_000;

    fn judged(cpu_ns: Option<u64>, waited_ns: u64, own_p99_ms: f64, scheduled: bool) -> Generator {
        let used = GeneratorUse {
            cpu_ns,
            waited_ns: Some(waited_ns),
            wall_ns: WALL_NS,
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
        let fine = judged(Some(500_000_000), 0, 1.0, true);
        assert_eq!((fine.bottleneck, fine.cpu_us_per_event), (None, Some(10.0)));
        assert_eq!(fine.cpu_share, Some(0.5));
        let full = judged(Some(900_000_000), 0, 50.0, true);
        assert_eq!(full.bottleneck, Some(Bottleneck::Cpu));
        let late = judged(None, 0, 10.1, true);
        assert_eq!(
            (late.bottleneck, late.cpu_share),
            (Some(Bottleneck::Lateness), None)
        );
        let closed = judged(Some(1), 0, 10.1, false);
        assert_eq!((closed.bottleneck, closed.lag), (None, None));
    }

    #[test]
    fn the_rule_changes_at_its_thresholds_and_nowhere_else() {
        let busy_ns = (BUSY_SHARE * WALL_NS as f64) as u64;
        for (cpu_ns, waited_ns, late_ms, verdict) in [
            (busy_ns, 0, 0.0, Some(Bottleneck::Cpu)),
            (busy_ns - 1, 0, 0.0, None),
            (busy_ns - 1, 1, 0.0, Some(Bottleneck::Lateness)),
            (0, busy_ns, 0.0, Some(Bottleneck::Lateness)),
            (0, busy_ns - 1, LATE_MS, None),
            (0, 0, LATE_MS + 0.001, Some(Bottleneck::Lateness)),
        ] {
            let judged = judged(Some(cpu_ns), waited_ns, late_ms, true);
            assert_eq!(judged.bottleneck, verdict, "{cpu_ns} {waited_ns} {late_ms}");
        }
    }

    #[test]
    fn a_closed_loop_that_was_given_too_little_of_a_core_is_told_too() {
        let starved = judged(Some(200_000_000), 700_000_000, 0.0, false);
        assert_eq!(starved.bottleneck, Some(Bottleneck::Lateness));
        assert_eq!(starved.waited_share, Some(0.7));
    }
}
