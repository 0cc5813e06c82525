//! Coarse clocks of traces: requests that were stamped alike are spread over the tick they share.
//!
//! Pure. Mooncake's conversations have a tick of some 3 s with ten requests on it: sent as they are
//! stamped they would be a comb of bursts that never was. Within a tick all orders of time are
//! equally likely, so requests are spread by chance; their order in the file stays.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::traces::{Format, Trace};

/// What to do about a coarse clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ticks {
    /// spread where the format is known for a coarse clock and the file has one
    #[default]
    Known,
    /// keep all times: bursts are bursts
    Keep,
    /// spread over so many seconds after each time
    Spread(f64),
}

const SECOND_NS: u64 = 1_000_000_000;

impl Ticks {
    /// The tick to spread over, if any.
    pub fn of(self, trace: &Trace) -> Option<u64> {
        match self {
            Ticks::Keep => None,
            Ticks::Spread(seconds) => Some((seconds * 1e9) as u64).filter(|tick_ns| *tick_ns > 0),
            Ticks::Known => match trace.format {
                Format::Mooncake | Format::Bailian => measured_ns(trace),
                Format::BurstGpt => whole_seconds(trace).then_some(SECOND_NS),
                Format::Records
                | Format::Azure
                | Format::Lengths
                | Format::Otel
                | Format::ServeGen => None,
            },
        }
    }
}

/// The usual step between times, where most requests share theirs with the one before.
fn measured_ns(trace: &Trace) -> Option<u64> {
    let times: Vec<u64> = trace
        .requests
        .iter()
        .filter_map(|request| request.at_ns)
        .collect();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    let mut steps: Vec<u64> = gaps.filter(|gap| *gap > 0).collect();
    let ties = times.len().checked_sub(1)? - steps.len();
    steps.sort_unstable();
    steps
        .get(steps.len() / 2)
        .copied()
        .filter(|_| ties > steps.len())
}

fn whole_seconds(trace: &Trace) -> bool {
    let mut times = trace.requests.iter().filter_map(|request| request.at_ns);
    times.all(|at_ns| at_ns.is_multiple_of(SECOND_NS))
}

/// Spreads times, ascending, that are alike: each moves by less than a tick and none past the next time.
pub fn spread(times_ns: &mut [u64], tick_ns: u64, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ SPREAD_STREAM);
    let mut from = 0;
    while let Some(at_ns) = times_ns.get(from).copied() {
        let alike = times_ns[from..].partition_point(|other| *other == at_ns);
        let room_ns = match times_ns.get(from + alike) {
            Some(next_ns) => tick_ns.min(next_ns - at_ns),
            None => tick_ns,
        };
        let tick = &mut times_ns[from..from + alike];
        for time_ns in tick.iter_mut() {
            *time_ns = at_ns.saturating_add((rng.random::<f64>() * room_ns as f64) as u64);
        }
        tick.sort_unstable();
        from += alike;
    }
}

const SPREAD_STREAM: u64 = 0x7469_636b_735f_5f5f;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_leaves_its_tick_or_overtakes(
            mut times in prop::collection::vec(0..2_000_u64, 0..200),
            tick_ns in 1..300_u64,
            seed: u64,
        ) {
            times.sort_unstable();
            let mut moved = times.clone();
            spread(&mut moved, tick_ns, seed);
            prop_assert!(moved.is_sorted());
            for (before, after) in times.iter().zip(&moved) {
                prop_assert!((*before..before + tick_ns).contains(after), "{} to {}", before, after);
            }
        }
    }

    #[test]
    fn ten_requests_a_tick_become_as_uneven_as_chance() {
        let mut times: Vec<u64> = (0..100_000)
            .map(|index| index / 10 * 3 * SECOND_NS)
            .collect();
        spread(&mut times, 3 * SECOND_NS, 1);
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let cv = (square / gaps.len() as f64).sqrt() / mean;
        // ten in every tick, no more and no less, make it a little more even than Poisson: 0.912
        assert!((cv - 0.912).abs() < 0.01, "{cv}");
    }
}
