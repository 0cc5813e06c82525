//! What traffic looks like in figures: rate, burstiness, lengths and shared prefixes. Pure.
//!
//! Computed alike of a trace, of a plan made of it, and of what was sent, so that the three can be
//! held against each other.

use std::collections::HashSet;

use serde::Serialize;

/// One request, as far as the figures go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<'a> {
    /// when, in nanoseconds of any one clock; `None` if it has no time
    pub at_ns: Option<u64>,
    /// prompt length
    pub prompt_tokens: u32,
    /// length of the answer
    pub output_tokens: u32,
    /// its prefix blocks by number
    pub blocks: &'a [u64],
}

/// Figures of lengths, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LengthFigures {
    /// mean
    pub mean: f64,
    /// median
    pub p50: u32,
    /// 90th percentile
    pub p90: u32,
    /// 95th percentile
    pub p95: u32,
    /// 99th percentile
    pub p99: u32,
    /// longest
    pub max: u32,
}

/// Figures of some traffic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Traffic {
    /// requests
    pub requests: u64,
    /// seconds from the first to the last
    pub span_s: Option<f64>,
    /// requests per second: gaps over span
    pub rate_per_s: Option<f64>,
    /// coefficient of variation of the gaps: 0 even, 1 Poisson, above 1 in bursts
    pub gap_cv: Option<f64>,
    /// coefficient of variation of the requests in each window, which small shifts hardly change;
    /// absent where there are fewer than [`WINDOWS_LEAST`] whole windows
    pub window_cv: Option<f64>,
    /// prompts
    pub prompt: LengthFigures,
    /// answers
    pub output: LengthFigures,
    /// share of prefix blocks that came before: hits of a cache that forgets nothing
    pub block_hits: Option<f64>,
    #[serde(skip)]
    prompts: Vec<u32>,
    #[serde(skip)]
    outputs: Vec<u32>,
}

/// Windows that are enough to tell how their counts vary.
pub const WINDOWS_LEAST: usize = 10;

impl Traffic {
    /// Figures of requests in order of time, with windows of so many nanoseconds. `None` of no request.
    pub fn of<'a>(points: impl IntoIterator<Item = Point<'a>>, window_ns: u64) -> Option<Traffic> {
        let (mut times_ns, mut prompts, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        let mut blocks = Blocks::default();
        for point in points {
            times_ns.extend(point.at_ns);
            prompts.push(point.prompt_tokens);
            outputs.push(point.output_tokens);
            blocks.add(point.blocks);
        }
        prompts.sort_unstable();
        outputs.sort_unstable();
        let timed = times_ns.len() == prompts.len();
        let times = Times::of(if timed { &times_ns } else { &[] }, window_ns);
        Some(Traffic {
            requests: prompts.len() as u64,
            span_s: times.span_s,
            rate_per_s: times.rate_per_s,
            gap_cv: times.gap_cv,
            window_cv: times.window_cv,
            prompt: LengthFigures::of(&prompts)?,
            output: LengthFigures::of(&outputs)?,
            block_hits: blocks.hit_share(),
            prompts,
            outputs,
        })
    }

    /// Prompt lengths, ascending.
    pub(super) fn prompts(&self) -> &[u32] {
        &self.prompts
    }

    /// Lengths of answers, ascending.
    pub(super) fn outputs(&self) -> &[u32] {
        &self.outputs
    }
}

impl LengthFigures {
    fn of(ascending: &[u32]) -> Option<LengthFigures> {
        let sum: f64 = ascending.iter().map(|tokens| f64::from(*tokens)).sum();
        Some(LengthFigures {
            mean: sum / ascending.len() as f64,
            p50: quantile(ascending, 0.5)?,
            p90: quantile(ascending, 0.9)?,
            p95: quantile(ascending, 0.95)?,
            p99: quantile(ascending, 0.99)?,
            max: *ascending.last()?,
        })
    }
}

/// The least value that `share` of all are not above.
pub(super) fn quantile(ascending: &[u32], share: f64) -> Option<u32> {
    let rank = (ascending.len() as f64 * share).ceil() as usize;
    let last = ascending.len().checked_sub(1)?;
    ascending.get(rank.saturating_sub(1).min(last)).copied()
}

#[derive(Default)]
struct Times {
    span_s: Option<f64>,
    rate_per_s: Option<f64>,
    gap_cv: Option<f64>,
    window_cv: Option<f64>,
}

impl Times {
    fn of(times_ns: &[u64], window_ns: u64) -> Times {
        let (Some(first_ns), Some(last_ns)) = (times_ns.first(), times_ns.last()) else {
            return Times::default();
        };
        let span_s = last_ns.saturating_sub(*first_ns) as f64 / 1e9;
        let gaps = (times_ns.len() - 1) as f64;
        let gap = |pair: &[u64]| pair[1].saturating_sub(pair[0]) as f64;
        Times {
            span_s: Some(span_s),
            rate_per_s: (span_s > 0.0).then_some(gaps / span_s),
            gap_cv: variation(times_ns.windows(2).map(gap)),
            window_cv: window_cv(times_ns, *first_ns, window_ns),
        }
    }
}

fn window_cv(times_ns: &[u64], first_ns: u64, window_ns: u64) -> Option<f64> {
    let span_ns = times_ns.last()?.saturating_sub(first_ns);
    let windows = usize::try_from(span_ns.checked_div(window_ns)?).ok()?;
    // of windows that are all but empty no variation is to be told, and there may be any number
    if windows < WINDOWS_LEAST || windows > times_ns.len() {
        return None;
    }
    let mut counts = vec![0.0; windows];
    for at_ns in times_ns {
        let window = at_ns.saturating_sub(first_ns) / window_ns;
        if let Some(count) = counts.get_mut(window as usize) {
            *count += 1.0;
        }
    }
    variation(counts.into_iter())
}

/// Standard deviation over mean. `None` of fewer than two values, and where the mean is 0.
fn variation(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let square = values.map(|value| (value - mean).powi(2)).sum::<f64>();
    (count >= 2.0 && mean > 0.0).then(|| (square / count).sqrt() / mean)
}

#[derive(Default)]
struct Blocks {
    known: HashSet<u64>,
    all: u64,
    hits: u64,
}

impl Blocks {
    /// A request's blocks hit from the first on, until one is new.
    fn add(&mut self, blocks: &[u64]) {
        let hits = blocks.iter().take_while(|block| self.known.contains(block));
        self.hits += hits.count() as u64;
        self.all += blocks.len() as u64;
        self.known.extend(blocks);
    }

    fn hit_share(&self) -> Option<f64> {
        (self.all > 0).then(|| self.hits as f64 / self.all as f64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn point(at_ns: Option<u64>, tokens: u32, blocks: &[u64]) -> Point<'_> {
        Point {
            at_ns,
            prompt_tokens: tokens,
            output_tokens: 2 * tokens,
            blocks,
        }
    }

    #[test]
    fn even_traffic_has_its_rate_and_no_variation() {
        let points =
            (0..101).map(|index| point(Some(7 + index * 500_000_000), 1 + index as u32, &[]));
        let traffic = Traffic::of(points, 5_000_000_000).unwrap();
        assert_eq!(
            (traffic.span_s, traffic.rate_per_s),
            (Some(50.0), Some(2.0))
        );
        assert_eq!((traffic.gap_cv, traffic.window_cv), (Some(0.0), Some(0.0)));
        let prompt = traffic.prompt;
        assert_eq!(
            (prompt.p50, prompt.p90, prompt.p99, prompt.max),
            (51, 91, 100, 101)
        );
        assert_eq!((prompt.mean, traffic.output.max), (51.0, 202));
        assert_eq!(traffic.block_hits, None);
    }

    #[test]
    fn what_was_not_there_is_absent_and_not_zero() {
        let one = Traffic::of([point(Some(5), 3, &[])], 1).unwrap();
        assert_eq!(
            (one.rate_per_s, one.gap_cv, one.window_cv),
            (None, None, None)
        );
        let timeless = Traffic::of([point(None, 3, &[]), point(None, 4, &[])], 1).unwrap();
        assert_eq!((timeless.span_s, timeless.rate_per_s), (None, None));
        assert_eq!(Traffic::of([], 1), None);
    }

    #[test]
    fn a_block_hits_only_after_the_blocks_before_it_hit() {
        let requests: [&[u64]; 3] = [&[1, 2, 3], &[1, 2, 9], &[8, 2, 3]];
        let points = requests.map(|blocks| point(None, 5, blocks));
        let traffic = Traffic::of(points, 1).unwrap();
        assert_eq!(traffic.block_hits, Some(2.0 / 9.0));
    }
}
