//! Whether traffic that was planned or sent is like the trace it came from, within stated bounds. Pure.

use std::fmt;

use super::replay::{Replayed, WINDOW_NS};
use super::traffic::{Traffic, quantile};

/// How far figures may lie from the source's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// of the rate, relative; absent where times are not the source's
    pub rate: Option<f64>,
    /// of the gaps' CV, relative, and absolute of one below 1: of even gaps the CV is 0, and rounding alone
    /// makes more of it; absent where times were changed on purpose
    pub gap_cv: Option<f64>,
    /// of the CV of the counts in each window, absolute
    pub window_cv: Option<f64>,
    /// of lengths: a quantile may lie between those of so much less and so much more
    pub quantile: f64,
    /// of the share of prefix blocks that came before, absolute; absent where not all requests are there
    pub block_hits: Option<f64>,
}

/// A figure that lies outside its bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// what
    pub what: &'static str,
    /// in the trace
    pub source: f64,
    /// in what was made of it
    pub realised: f64,
    /// least that would agree
    pub least: f64,
    /// most that would agree
    pub most: f64,
}

impl fmt::Display for Difference {
    fn fmt(&self, words: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            words,
            "{} is {:.3}, in the trace {:.3}: {:.3} to {:.3} would agree",
            self.what, self.realised, self.source, self.least, self.most
        )
    }
}

/// Rounding of times to nanoseconds and of a scale, relative.
const ROUNDING: f64 = 1e-4;
/// A request on a window's border may count to the other side, absolute in CV.
const BORDER_WINDOW_CV: f64 = 0.01;
/// Greatest change of a window's share of requests by a tick at its border, absolute in CV.
const SPREAD_WINDOW_CV: f64 = 0.1;
/// What a run may add to the plan's bounds: requests are issued a little late, each by another time.
const LATE_RATE: f64 = 0.01;
const LATE_GAP_CV: f64 = 0.05;
const LATE_WINDOW_CV: f64 = 0.02;
/// Of a sample of n, quantiles stray by more than this over √n once in a hundred times
/// (Kolmogorov's distribution).
const KOLMOGOROV: f64 = 1.63;

impl Bounds {
    /// Bounds of a trace replayed at its own times: all rows are there, so all but times is exact.
    pub fn replayed(source: &Traffic, tick_ns: Option<u64>) -> Bounds {
        let span_s = source.span_s.unwrap_or(0.0);
        match tick_ns {
            None => Bounds {
                rate: Some(ROUNDING),
                gap_cv: Some(ROUNDING),
                window_cv: Some(BORDER_WINDOW_CV),
                quantile: 0.0,
                block_hits: Some(0.0),
            },
            // the first and the last request each move within a tick
            Some(tick_ns) => Bounds {
                rate: Some(ROUNDING + tick_ns as f64 / 1e9 / span_s.max(1e-9)),
                gap_cv: None,
                window_cv: (tick_ns <= WINDOW_NS / 10).then_some(SPREAD_WINDOW_CV),
                quantile: 0.0,
                block_hits: Some(0.0),
            },
        }
    }

    /// The same for what was sent by a plan of these bounds: its times stray a little.
    pub fn sent(self) -> Bounds {
        Bounds {
            rate: self.rate.map(|bound| bound + LATE_RATE),
            gap_cv: self.gap_cv.map(|bound| bound + LATE_GAP_CV),
            window_cv: self.window_cv.map(|bound| bound + LATE_WINDOW_CV),
            // which request found a block there is the server's matter
            block_hits: None,
            ..self
        }
    }

    /// Bounds of so many requests drawn from a trace's lengths, at times that are not the trace's.
    pub fn drawn(requests: u64) -> Bounds {
        Bounds {
            rate: None,
            gap_cv: None,
            window_cv: None,
            quantile: KOLMOGOROV / (requests.max(1) as f64).sqrt(),
            block_hits: None,
        }
    }

    /// What of the traffic disagrees with the source, whose times were multiplied by `time_scale`.
    pub fn differences(
        &self,
        source: &Traffic,
        realised: &Traffic,
        time_scale: f64,
    ) -> Vec<Difference> {
        let rate = |traffic: &Traffic, scale: f64| traffic.rate_per_s.map(|rate| rate / scale);
        let judged = [
            self.rate.and_then(|bound| {
                let (was, is) = (rate(source, time_scale), rate(realised, 1.0));
                around("rate (requests per second)", was, is, |of| of * bound)
            }),
            self.gap_cv.and_then(|bound| {
                let (was, is) = (source.gap_cv, realised.gap_cv);
                around("CV of the gaps", was, is, |of| of.max(1.0) * bound)
            }),
            self.window_cv.and_then(|bound| {
                let (was, is) = (source.window_cv, realised.window_cv);
                around("CV of the requests a minute", was, is, |_| bound)
            }),
            self.block_hits.and_then(|bound| {
                let (was, is) = (source.block_hits, realised.block_hits);
                around("share of prefix blocks seen before", was, is, |_| bound)
            }),
        ];
        let prompts = self.lengths(PROMPTS, source.prompts(), realised.prompts());
        let outputs = self.lengths(OUTPUTS, source.outputs(), realised.outputs());
        judged
            .into_iter()
            .flatten()
            .chain(prompts)
            .chain(outputs)
            .collect()
    }

    fn lengths(
        &self,
        names: [&'static str; 4],
        source: &[u32],
        realised: &[u32],
    ) -> Vec<Difference> {
        let judged = names.into_iter().zip(SHARES).filter_map(|(what, share)| {
            let of = |share: f64| quantile(source, share.clamp(0.0, 1.0)).map(f64::from);
            outside(Difference {
                what,
                source: of(share)?,
                realised: f64::from(quantile(realised, share)?),
                least: of(share - self.quantile)?,
                most: of(share + self.quantile)?,
            })
        });
        judged.collect()
    }
}

const SHARES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];
const PROMPTS: [&str; 4] = [
    "P50 of prompt tokens",
    "P90 of prompt tokens",
    "P95 of prompt tokens",
    "P99 of prompt tokens",
];
const OUTPUTS: [&str; 4] = [
    "P50 of output tokens",
    "P90 of output tokens",
    "P95 of output tokens",
    "P99 of output tokens",
];

/// A figure that may stray by `bound` of it to both sides; one that either side lacks is not judged.
fn around(
    what: &'static str,
    source: Option<f64>,
    realised: Option<f64>,
    bound: impl Fn(f64) -> f64,
) -> Option<Difference> {
    let (source, realised) = source.zip(realised)?;
    let bound = bound(source);
    outside(Difference {
        what,
        source,
        realised,
        least: source - bound,
        most: source + bound,
    })
}

fn outside(difference: Difference) -> Option<Difference> {
    let agrees = (difference.least..=difference.most).contains(&difference.realised);
    (!agrees).then_some(difference)
}

impl Replayed {
    /// What of a plan at the trace's own times disagrees with the trace.
    pub fn differences(&self) -> Vec<Difference> {
        let bounds = Bounds::replayed(&self.source, self.tick_ns);
        bounds.differences(&self.source, &self.realised, self.time_scale)
    }
}
