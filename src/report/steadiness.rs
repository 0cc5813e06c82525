//! Whether a run was steady while it was measured, or still rising or falling. Pure.
//!
//! The window is cut into [`BINS`] equal times; each gives one value of a figure, and the values are
//! asked for a trend: Mann (1945) and Kendall for whether there is one, Sen's slope (1968) for how large.
//! Medians of bins, not single requests: neighbours share a queue and are no independent samples.

use std::borrow::Borrow;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::latency::Figure;
use super::statistics::quantile;
use super::window::{Window, entered_ns};
use crate::load::sample::Sample;

/// Times that the window is cut into.
pub const BINS: usize = 10;
/// Fewest requests in a bin for its median to say something.
const LEAST_IN_BIN: usize = 5;
/// A trend is one from here on: unlikely by chance ...
const P_VALUE: f64 = 0.01;
/// ... and large enough to matter, as a share of the median.
const LEAST_CHANGE: f64 = 0.10;

/// What became of a figure over the window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trend {
    /// `ttft`, `e2el` or `throughput`
    pub figure: &'static str,
    /// change from the start to the end, as a share of the median; above 0 it rose
    pub change: f64,
    /// how likely so clear an order is by chance
    pub p_value: f64,
}

impl Trend {
    /// Whether it is large and clear enough to speak of.
    pub fn matters(&self) -> bool {
        self.p_value < P_VALUE && self.change.abs() >= LEAST_CHANGE
    }
}

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", content = "trends", rename_all = "snake_case")]
pub enum Steadiness {
    /// no figure has a trend
    Steady(Vec<Trend>),
    /// at least one has
    Trending(Vec<Trend>),
    /// too few requests in the window's bins to tell
    TooFew,
}

impl Steadiness {
    /// Looks at the complete requests of a window.
    pub fn of<S: Borrow<Sample>>(samples: &[S], window: &Window) -> Steadiness {
        let span_ns = window.to_ns.saturating_sub(window.from_ns);
        let mut bins: [Vec<&Sample>; BINS] = Default::default();
        let mut ends = [0_u64; BINS];
        let all = samples.iter().map(Borrow::borrow);
        for sample in all.filter(|sample: &&Sample| sample.failure.is_none()) {
            if let Some(at) = bin(entered_ns(sample), window, span_ns) {
                bins[at].push(sample);
            }
            if let Some(at) = bin(sample.end_ns, window, span_ns) {
                ends[at] += 1;
            }
        }
        if bins.iter().any(|bin| bin.len() < LEAST_IN_BIN) {
            return Steadiness::TooFew;
        }
        let medians = |figure: Figure| -> Option<Vec<f64>> {
            let median = |bin: &Vec<&Sample>| figure.over(bin)?.percentile(50.0);
            bins.iter().map(median).collect()
        };
        let ends: Vec<f64> = ends.iter().map(|count| *count as f64).collect();
        let series = [
            (Figure::Ttft.key(), medians(Figure::Ttft)),
            (Figure::E2el.key(), medians(Figure::E2el)),
            ("throughput", Some(ends)),
        ];
        let trends: Vec<Trend> = series
            .into_iter()
            .filter_map(|(figure, values)| trend(figure, &values?))
            .collect();
        if trends.iter().any(Trend::matters) {
            Steadiness::Trending(trends)
        } else {
            Steadiness::Steady(trends)
        }
    }
}

fn bin(at_ns: u64, window: &Window, span_ns: u64) -> Option<usize> {
    let inside = (window.from_ns..=window.to_ns).contains(&at_ns) && span_ns > 0;
    let share = at_ns.saturating_sub(window.from_ns) as f64 / span_ns as f64;
    inside.then(|| ((share * BINS as f64) as usize).min(BINS - 1))
}

fn trend(figure: &'static str, values: &[f64]) -> Option<Trend> {
    let mut slopes = Vec::new();
    let mut score = 0.0;
    for (at, early) in values.iter().enumerate() {
        for (distance, late) in values[at + 1..].iter().enumerate() {
            let difference = late - early;
            score += if difference == 0.0 {
                0.0
            } else {
                difference.signum()
            };
            slopes.push(difference / (distance + 1) as f64);
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5).filter(|median| *median > 0.0)?;
    let n = values.len() as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let z = (score.abs() - 1.0).max(0.0) / deviation;
    Some(Trend {
        figure,
        change: quantile(&slopes, 0.5)? * (n - 1.0) / median,
        p_value: 2.0 * (1.0 - Normal::standard().cdf(z)),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::report::sample_of;
    use crate::report::window::WindowRule;

    fn run(ttft_ms: impl Fn(u64) -> u64) -> Steadiness {
        let samples: Vec<Sample> = (0..1000)
            .map(|at| sample_of(at as u32, 1 + at * 100, ttft_ms(at), &[10], 0))
            .collect();
        let rule = WindowRule {
            warm_up_ns: 0,
            trim_s: Some(5.0),
        };
        let window = Window::of(&samples, 1_000_000, rule).unwrap();
        Steadiness::of(&samples, &window)
    }

    #[test]
    fn a_growing_queue_is_a_trend_and_noise_is_none() {
        let noise = |at: u64| 100 + at.wrapping_mul(2_654_435_761) % 60;
        assert!(
            matches!(run(noise), Steadiness::Steady(_)),
            "{:?}",
            run(noise)
        );
        let Steadiness::Trending(trends) = run(|at| 100 + at + noise(at) / 4) else {
            panic!("a growing queue was called steady");
        };
        let ttft = trends.iter().find(|trend| trend.figure == "ttft").unwrap();
        assert!(
            ttft.matters() && (1.0..2.0).contains(&ttft.change),
            "{ttft:?}"
        );
    }

    #[test]
    fn a_few_requests_tell_nothing() {
        let samples: Vec<Sample> = (0..20)
            .map(|at| sample_of(at, 1 + u64::from(at), 5, &[], 0))
            .collect();
        let rule = WindowRule {
            warm_up_ns: 0,
            trim_s: None,
        };
        let window = Window::of(&samples, 1, rule).unwrap();
        assert_eq!(Steadiness::of(&samples, &window), Steadiness::TooFew);
    }
}
