//! When requests are to be sent: an absolute schedule, made from a seed before the run starts.
//!
//! Pure. The schedule is absolute so that a late send never delays the ones after it: sleeping
//! gap by gap drifts (183 requests per second sent where 200 were asked for is a known case).

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::LoadError;
use super::draws::{exponential, gamma};

/// Requests of one plan at most: a rate or duration beyond it is a slip of the pen.
pub const REQUESTS_MAX: usize = 20_000_000;

/// How arrivals are spread over time.
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
    /// gamma gaps: arrivals in bursts, or more even than chance
    Gamma {
        /// mean requests per second
        rate_per_s: f64,
        /// shape of the distribution, as vLLM's `--burstiness`: 1 is Poisson, below 1 comes in
        /// bursts, above 1 is more even; gaps vary by 1/√burstiness of their mean
        burstiness: f64,
    },
    /// a rate that goes in a straight line from one to another and stays there
    Ramp {
        /// requests per second at the start
        from_per_s: f64,
        /// requests per second at the end of the ramp and after it
        to_per_s: f64,
        /// seconds from the one to the other
        over_s: f64,
        /// as in [`Arrivals::Gamma`]
        burstiness: f64,
    },
}

impl Arrivals {
    /// Arrivals of vLLM's `--burstiness`: 1 is Poisson, infinity equal gaps.
    pub fn of_burstiness(rate_per_s: f64, burstiness: f64) -> Arrivals {
        if burstiness == 1.0 {
            return Arrivals::Poisson { rate_per_s };
        }
        if burstiness == f64::INFINITY {
            return Arrivals::Constant { rate_per_s };
        }
        Arrivals::Gamma {
            rate_per_s,
            burstiness,
        }
    }

    /// Arrivals whose gaps have this coefficient of variation: 1 is Poisson, 0 equal gaps.
    pub fn of_cv(rate_per_s: f64, gap_cv: f64) -> Arrivals {
        Arrivals::of_burstiness(rate_per_s, 1.0 / (gap_cv * gap_cv))
    }

    /// Mean requests per second; of a ramp, while it lasts.
    pub fn rate_per_s(self) -> f64 {
        match self {
            Arrivals::Poisson { rate_per_s }
            | Arrivals::Constant { rate_per_s }
            | Arrivals::Gamma { rate_per_s, .. } => rate_per_s,
            Arrivals::Ramp {
                from_per_s,
                to_per_s,
                ..
            } => from_per_s.midpoint(to_per_s),
        }
    }

    /// Mean number of requests in the first `seconds`.
    pub fn expected_requests(self, seconds: f64) -> f64 {
        match self {
            Arrivals::Ramp {
                from_per_s,
                to_per_s,
                over_s,
                ..
            } => {
                let ramp_s = seconds.min(over_s);
                let mean_per_s = from_per_s + (to_per_s - from_per_s) * ramp_s / over_s / 2.0;
                mean_per_s * ramp_s + to_per_s * (seconds - ramp_s)
            }
            steady => steady.rate_per_s() * seconds,
        }
    }

    /// Send times in nanoseconds after the start of the run, ascending, all below `duration_ns`.
    ///
    /// The number of random arrivals is itself random, as it should be; nothing is rescaled to
    /// meet the rate exactly. The same seed gives the same schedule on every machine.
    pub fn schedule_ns(self, seed: u64, duration_ns: u64) -> Result<Vec<u64>, LoadError> {
        self.validate()?;
        let expected = self.expected_requests(duration_ns as f64 / 1e9);
        if expected > REQUESTS_MAX as f64 {
            return Err(LoadError::TooManyRequests(expected, REQUESTS_MAX));
        }
        let mut schedule = Vec::with_capacity((expected * 1.2) as usize + 8);
        let mut clock = ArrivalClock::new(self, seed);
        loop {
            let at_ns = clock.next_ns();
            // of a ramp down to nothing there is an end, said as infinity
            if at_ns >= duration_ns as f64 {
                return Ok(schedule);
            }
            if schedule.len() == REQUESTS_MAX {
                return Err(LoadError::TooManyRequests(expected, REQUESTS_MAX));
            }
            schedule.push(at_ns as u64);
        }
    }

    fn validate(self) -> Result<(), LoadError> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        match self {
            Arrivals::Ramp {
                from_per_s,
                to_per_s,
                over_s,
                ..
            } => {
                let rate = |value: f64| value.is_finite() && value >= 0.0;
                for value in [from_per_s, to_per_s] {
                    if !rate(value) || from_per_s.max(to_per_s) == 0.0 {
                        return Err(LoadError::RampRate(value));
                    }
                }
                if !positive(over_s) {
                    return Err(LoadError::RampTime(over_s));
                }
            }
            steady => {
                if !positive(steady.rate_per_s()) {
                    return Err(LoadError::Rate(steady.rate_per_s()));
                }
            }
        }
        match self {
            Arrivals::Gamma { burstiness, .. } | Arrivals::Ramp { burstiness, .. }
                if !(SHAPE_LEAST..=SHAPE_MOST).contains(&burstiness) =>
            {
                Err(LoadError::Burstiness(burstiness))
            }
            _ => Ok(()),
        }
    }
}

/// Least shape of a distribution of gaps: below it nearly all of them are 0.
pub const SHAPE_LEAST: f64 = 0.001;
/// Greatest shape: above it gaps are as good as constant.
pub(super) const SHAPE_MOST: f64 = 1e6;

/// Counts through the arrivals of one schedule.
struct ArrivalClock {
    arrivals: Arrivals,
    rng: Xoshiro256PlusPlus,
    at_ns: f64,
    /// arrivals that were due until now, for a rate that changes
    due: f64,
}

impl ArrivalClock {
    fn new(arrivals: Arrivals, seed: u64) -> ArrivalClock {
        ArrivalClock {
            arrivals,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            at_ns: 0.0,
            due: 0.0,
        }
    }

    fn next_ns(&mut self) -> f64 {
        let gap = match self.arrivals {
            Arrivals::Constant { .. } => 1.0,
            Arrivals::Poisson { .. } => exponential(&mut self.rng),
            Arrivals::Gamma { burstiness, .. } | Arrivals::Ramp { burstiness, .. } => {
                gamma(&mut self.rng, burstiness)
            }
        };
        if let Arrivals::Ramp {
            from_per_s,
            to_per_s,
            over_s,
            ..
        } = self.arrivals
        {
            self.due += gap;
            return ramp_reaches_s(self.due, from_per_s, to_per_s, over_s) * 1e9;
        }
        self.at_ns += gap * (1e9 / self.arrivals.rate_per_s());
        self.at_ns
    }
}

/// When `due` arrivals have come on average: gaps of mean 1, stretched by the rate of their time.
fn ramp_reaches_s(due: f64, from_per_s: f64, to_per_s: f64, over_s: f64) -> f64 {
    let in_ramp = from_per_s.midpoint(to_per_s) * over_s;
    if due == 0.0 {
        return 0.0;
    }
    if due > in_ramp {
        return over_s + (due - in_ramp) / to_per_s;
    }
    let slope = (to_per_s - from_per_s) / over_s;
    // from·t + slope·t²/2 = due, in the form that is exact for a slope near 0; rounding at the very
    // end of a ramp down to nothing must not make a root of less than nothing
    let root = (from_per_s * from_per_s + 2.0 * slope * due)
        .max(0.0)
        .sqrt();
    2.0 * due / (from_per_s + root)
}

/// A schedule given as seconds after the start: checked, and in nanoseconds.
pub fn absolute_ns(seconds: &[f64]) -> Result<Vec<u64>, LoadError> {
    let mut before_s = 0.0;
    let checked = seconds.iter().enumerate().map(|(index, at_s)| {
        let fits = at_s.is_finite() && *at_s >= before_s && *at_s < SCHEDULE_MOST_S;
        if !fits {
            return Err(LoadError::Schedule(index, *at_s, before_s));
        }
        before_s = *at_s;
        Ok((at_s * 1e9).round() as u64)
    });
    checked.collect()
}

/// A century, far under what nanoseconds in 64 bits can say.
const SCHEDULE_MOST_S: f64 = 3.2e9;

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;
