//! Draws requests from ServeGen's rates and lengths, from a seed. Pure.
//!
//! Gaps have mean 1 and are stretched by the rate of their time, so that the rate is met whatever
//! the windows' borders cut, and a fitted scale that contradicts the rate does no harm. A prompt's
//! length says nothing of its answer's: ServeGen gives the two apart.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::load::arrivals::REQUESTS_MAX;
use crate::load::draws::{gamma, weibull};
use crate::load::traces::{Format, Trace, TraceError, TraceRequest, UnusedRows};

use super::{Family, LengthWindows, RateWindow, RateWindows};

/// What to draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// begin of the part to draw, in the file's time
    pub from_ns: u64,
    /// its end; beyond the file's end nothing comes
    pub until_ns: u64,
    /// requests for each that the file has: 0.01 takes a hundredth of the rate
    pub rate_scale: f64,
    /// seed of times and lengths
    pub seed: u64,
}

impl Draw {
    /// When requests come, in nanoseconds after `from_ns`, ascending.
    pub fn times_ns(&self, rates: &RateWindows) -> Result<Vec<u64>, TraceError> {
        let nothing = |why: String| TraceError::NothingDrawn(rates.name.to_string(), why);
        if !(self.rate_scale.is_finite() && self.rate_scale > 0.0) {
            return Err(nothing(format!(
                "the rate is to be scaled by {}, and a positive number is wanted",
                self.rate_scale
            )));
        }
        let expected = rates.expected_requests(self.from_ns, self.until_ns) * self.rate_scale;
        let too_many = || {
            nothing(format!(
                "{expected:.0} requests are asked for, and at most {REQUESTS_MAX} are possible: scale the rate or shorten the time"
            ))
        };
        if expected > REQUESTS_MAX as f64 {
            return Err(too_many());
        }
        let times_ns = self.walk(rates);
        // chance may bring more than are to be expected
        if times_ns.len() > REQUESTS_MAX {
            return Err(too_many());
        }
        if times_ns.is_empty() {
            return Err(nothing(format!(
                "{expected:.1} requests are to be expected from {} s to {} s",
                self.from_ns as f64 / 1e9,
                self.until_ns as f64 / 1e9
            )));
        }
        Ok(times_ns)
    }

    /// Goes through the windows with gaps of mean 1, and stops at one request more than there may be.
    fn walk(&self, rates: &RateWindows) -> Vec<u64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut times_ns = Vec::new();
        let mut gap = None;
        for window in &rates.windows {
            let end_ns = (window.start_ns + rates.window_ns).min(self.until_ns) as f64;
            let mut at_ns = window.start_ns.max(self.from_ns) as f64;
            let per_ns = window.rate_per_s * self.rate_scale / 1e9;
            while at_ns < end_ns && times_ns.len() <= REQUESTS_MAX {
                let left = gap.unwrap_or_else(|| unit_gap(&mut rng, window));
                let due_ns = at_ns + left / per_ns;
                if due_ns >= end_ns {
                    // of a gap that rounding made end at the border itself, nothing is left
                    gap = Some((left - (end_ns - at_ns) * per_ns).max(0.0));
                    break;
                }
                times_ns.push((due_ns as u64).saturating_sub(self.from_ns));
                (at_ns, gap) = (due_ns, None);
            }
        }
        times_ns
    }

    /// Requests with lengths of their time.
    pub fn trace(&self, rates: &RateWindows, lengths: &LengthWindows) -> Result<Trace, TraceError> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ LENGTHS_STREAM);
        let times_ns = self.times_ns(rates)?;
        let first_ns = times_ns.first().copied().unwrap_or(0);
        let request = |at_ns: u64| {
            let window = lengths.at(self.from_ns + at_ns)?;
            Some(TraceRequest {
                at_ns: Some(at_ns - first_ns),
                prompt_tokens: window.prompt.quantile(rng.random())?,
                output_tokens: window.output.quantile(rng.random())?,
                prefix: None,
                session: None,
            })
        };
        let requests: Vec<TraceRequest> = times_ns.into_iter().filter_map(request).collect();
        Ok(Trace {
            name: format!("{} with {}", rates.name, lengths.name),
            format: Format::ServeGen,
            rows: requests.len() as u64,
            requests,
            malformed: UnusedRows::default(),
            left_out: UnusedRows::default(),
            estimated: 0,
            sessions: 0,
        })
    }
}

/// Lengths do not change with the rate, nor times with the lengths.
const LENGTHS_STREAM: u64 = 0x6c65_6e67_7468_735f;

fn unit_gap(rng: &mut Xoshiro256PlusPlus, window: &RateWindow) -> f64 {
    match window.family {
        Family::Gamma(shape) => gamma(rng, shape),
        Family::Weibull(shape) => weibull(rng, shape),
    }
}
