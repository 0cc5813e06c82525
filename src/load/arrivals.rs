//! When requests are to be sent: an absolute schedule, made from a seed before the run starts.
//!
//! Pure. The schedule is absolute so that a late send never delays the ones after it: sleeping
//! gap by gap drifts (183 requests per second sent where 200 were asked for is a known case).

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma};
use serde::{Deserialize, Serialize};

use super::LoadError;

/// How arrivals are spread over time at a given mean rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Arrivals {
    /// independent exponential gaps: many users who do not know of each other
    Poisson {
        /// mean requests per second
        rate_per_s: f64,
    },
    /// equal gaps
    Constant {
        /// requests per second
        rate_per_s: f64,
    },
    /// gaps from a gamma distribution: in bursts, or more even than Poisson
    Gamma {
        /// mean requests per second
        rate_per_s: f64,
        /// shape of the distribution: the gaps' coefficient of variation is 1 / √burstiness
        burstiness: f64,
    },
}

impl Arrivals {
    /// Mean requests per second.
    pub fn rate_per_s(self) -> f64 {
        match self {
            Arrivals::Poisson { rate_per_s }
            | Arrivals::Constant { rate_per_s }
            | Arrivals::Gamma { rate_per_s, .. } => rate_per_s,
        }
    }

    /// Send times in nanoseconds after the start of the run, ascending, all below `duration_ns`.
    ///
    /// The number of Poisson arrivals is itself random, as it should be; nothing is rescaled to
    /// meet the rate exactly. The same seed gives the same schedule on every machine.
    pub fn schedule_ns(self, seed: u64, duration_ns: u64) -> Result<Vec<u64>, LoadError> {
        let rate_per_s = self.rate_per_s();
        if !(rate_per_s.is_finite() && rate_per_s > 0.0) {
            return Err(LoadError::Rate(rate_per_s));
        }
        let mean_gap_ns = 1e9 / rate_per_s;
        let gaps = self.gaps()?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut at_ns = 0.0_f64;
        let mut schedule =
            Vec::with_capacity((duration_ns as f64 / mean_gap_ns * 1.2) as usize + 8);
        loop {
            at_ns += gaps.draw(&mut rng) * mean_gap_ns;
            if at_ns >= duration_ns as f64 {
                return Ok(schedule);
            }
            schedule.push(at_ns as u64);
        }
    }

    fn gaps(self) -> Result<Gaps, LoadError> {
        Ok(match self {
            Arrivals::Poisson { .. } => Gaps::Exponential,
            Arrivals::Constant { .. } => Gaps::Equal,
            Arrivals::Gamma { burstiness, .. } => Gaps::Gamma(
                Gamma::new(burstiness, 1.0 / burstiness)
                    .map_err(|_| LoadError::Burstiness(burstiness))?,
            ),
        })
    }
}

/// Gaps of mean 1.
enum Gaps {
    Exponential,
    Equal,
    Gamma(Gamma<f64>),
}

impl Gaps {
    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> f64 {
        match self {
            Gaps::Exponential => exponential(rng),
            Gaps::Equal => 1.0,
            Gaps::Gamma(gamma) => gamma.sample(rng),
        }
    }
}

/// A draw from the exponential distribution of mean 1.
fn exponential(rng: &mut Xoshiro256PlusPlus) -> f64 {
    // 1 - u lies in (0, 1], so the logarithm is finite.
    -(1.0 - rng.random::<f64>()).ln()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    const MINUTE_NS: u64 = 60_000_000_000;

    fn gaps(schedule: &[u64]) -> Vec<f64> {
        schedule
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect()
    }

    fn mean_and_cv(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, variance.sqrt() / mean)
    }

    #[test]
    fn poisson_gaps_have_the_mean_of_the_rate_and_a_variation_of_one() {
        let schedule = Arrivals::Poisson { rate_per_s: 100.0 }
            .schedule_ns(7, 10 * MINUTE_NS)
            .unwrap();
        let (mean, cv) = mean_and_cv(&gaps(&schedule));
        assert!((mean / 1e7 - 1.0).abs() < 0.02, "mean gap {mean} ns");
        assert!((cv - 1.0).abs() < 0.02, "coefficient of variation {cv}");
    }

    #[test]
    fn gamma_gaps_are_as_bursty_as_asked_for_at_the_same_rate() {
        for burstiness in [0.25, 4.0] {
            let arrivals = Arrivals::Gamma {
                rate_per_s: 500.0,
                burstiness,
            };
            let schedule = arrivals.schedule_ns(7, 30 * MINUTE_NS).unwrap();
            let (mean, cv) = mean_and_cv(&gaps(&schedule));
            assert!((mean / 2e6 - 1.0).abs() < 0.02, "mean gap {mean} ns");
            let wanted = 1.0 / burstiness.sqrt();
            assert!(
                (cv / wanted - 1.0).abs() < 0.02,
                "{cv} where {wanted} is right"
            );
        }
    }

    #[test]
    fn constant_gaps_are_equal_and_do_not_drift() {
        let schedule = Arrivals::Constant { rate_per_s: 300.0 }
            .schedule_ns(7, MINUTE_NS)
            .unwrap();
        let last = *schedule.last().unwrap() as f64;
        assert!((last - schedule.len() as f64 * 1e9 / 300.0).abs() < 10.0);
        assert!(
            gaps(&schedule)
                .iter()
                .all(|gap| (gap - 1e9 / 300.0).abs() <= 1.0)
        );
    }

    #[test]
    fn the_seed_decides_the_schedule() {
        let arrivals = Arrivals::Poisson { rate_per_s: 50.0 };
        let first = arrivals.schedule_ns(1, MINUTE_NS).unwrap();
        assert_eq!(first, arrivals.schedule_ns(1, MINUTE_NS).unwrap());
        assert_ne!(first, arrivals.schedule_ns(2, MINUTE_NS).unwrap());
        assert!(first.is_sorted() && first.iter().all(|at| *at < MINUTE_NS));
    }

    #[test]
    fn a_rate_that_is_no_rate_is_refused() {
        for rate_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                Arrivals::Poisson { rate_per_s }
                    .schedule_ns(1, MINUTE_NS)
                    .is_err()
            );
        }
        for burstiness in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let arrivals = Arrivals::Gamma {
                rate_per_s: 1.0,
                burstiness,
            };
            assert!(arrivals.schedule_ns(1, MINUTE_NS).is_err(), "{burstiness}");
        }
    }
}
