//! Quantiles, intervals and tests by which two runs are compared. Pure: randomness is an argument.
//!
//! All comparisons are paired, `a` against `b`: the difference is `a - b`, the ratio `a / b`.
//! Means of fewer than [`BOOTSTRAP_PAIRS`] pairs get Student's t interval, which keeps its
//! confidence with few pairs; from there on the bootstrap's BCa interval, which follows skewed
//! differences. Quantiles of two runs of one arrival sequence get a block bootstrap.

use rand::{Rng, RngExt};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Pairs from which a mean's interval is bootstrapped.
pub const BOOTSTRAP_PAIRS: usize = 20;
/// Fewest blocks with arrivals in both runs for an interval of a quantile's difference.
pub const LEAST_BLOCKS: usize = 5;
/// Resamples of a bootstrap.
pub const RESAMPLES: usize = 2000;
/// Pairs up to which all sign flips are tried: 2^16.
const EXACT_PAIRS: usize = 16;
/// Sign flips drawn above that.
const DRAWN_FLIPS: usize = 20_000;

/// An estimate and the interval that covers the true value with the asked confidence.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    /// point estimate
    pub estimate: f64,
    /// lower end
    pub low: f64,
    /// upper end
    pub high: f64,
}

impl Interval {
    /// Whether `value` is inside, ends included.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    fn map(self, change: impl Fn(f64) -> f64) -> Interval {
        Interval {
            estimate: change(self.estimate),
            low: change(self.low),
            high: change(self.high),
        }
    }
}

/// Quantile of ascending values by linear interpolation between order statistics: type 7 of
/// Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996; numpy's default. `None`
/// without values or for `q` outside 0 to 1.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=1.0).contains(&q) {
        return None;
    }
    let at = q * (sorted.len() - 1) as f64;
    let below = sorted[at.floor() as usize];
    let above = sorted[at.ceil() as usize];
    Some(between(below, above, at.fract()))
}

fn between(below: f64, above: f64, share: f64) -> f64 {
    if below == above {
        return below;
    }
    below + (above - below) * share
}

/// Arithmetic mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Interval of the mean of `a[i] - b[i]`. `None` with fewer than 2 pairs, slices of unequal
/// length, values that are not finite, or a confidence outside 0 to 1.
pub fn paired_interval(
    a: &[f64],
    b: &[f64],
    confidence: f64,
    rng: &mut impl Rng,
) -> Option<Interval> {
    if a.len() != b.len() {
        return None;
    }
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    mean_interval(&differences, confidence, rng)
}

/// Interval of the geometric mean of `a[i] / b[i]`, made on logarithms. `None` as with
/// [`paired_interval`], and where a value is not above 0.
pub fn paired_ratio_interval(
    a: &[f64],
    b: &[f64],
    confidence: f64,
    rng: &mut impl Rng,
) -> Option<Interval> {
    if a.iter().chain(b).any(|value| *value <= 0.0) {
        return None;
    }
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    Some(paired_interval(&logs(a), &logs(b), confidence, rng)?.map(f64::exp))
}

/// Interval of the mean of independent values: Student's t under [`BOOTSTRAP_PAIRS`], BCa above.
pub fn mean_interval(values: &[f64], confidence: f64, rng: &mut impl Rng) -> Option<Interval> {
    let usable = values.len() >= 2
        && values.iter().all(|value| value.is_finite())
        && confidence > 0.0
        && confidence < 1.0;
    if !usable {
        return None;
    }
    if values.len() < BOOTSTRAP_PAIRS {
        return t_interval(values, confidence);
    }
    bca_interval(values, confidence, rng)
}

/// Student, "The Probable Error of a Mean", 1908: mean ± t × s / √n.
fn t_interval(values: &[f64], confidence: f64) -> Option<Interval> {
    let n = values.len() as f64;
    let estimate = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - estimate).powi(2)).sum();
    let half = students_t(n - 1.0, (1.0 + confidence) / 2.0)? * (squares / (n - 1.0) / n).sqrt();
    Some(Interval {
        estimate,
        low: estimate - half,
        high: estimate + half,
    })
}

fn students_t(freedom: f64, q: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(q))
}

/// Interval of the ratio of the means of `a` and `b`, which are independent of each other: Student's t on the logarithm,
/// its variance by the delta method, its degrees of freedom after Welch 1947. `None` with fewer than 2 values on a side,
/// a mean that is not above 0, or a confidence outside 0 to 1.
pub fn ratio_of_means_interval(a: &[f64], b: &[f64], confidence: f64) -> Option<Interval> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let ((mean_a, part_a), (mean_b, part_b)) = (log_variance(a)?, log_variance(b)?);
    let estimate = mean_a / mean_b;
    let variance = part_a + part_b;
    if variance == 0.0 {
        return Some(Interval {
            estimate,
            low: estimate,
            high: estimate,
        });
    }
    let share = |part: f64, n: usize| part * part / (n - 1) as f64;
    let freedom = variance * variance / (share(part_a, a.len()) + share(part_b, b.len()));
    let half = students_t(freedom, (1.0 + confidence) / 2.0)? * variance.sqrt();
    Some(Interval {
        estimate,
        low: estimate * (-half).exp(),
        high: estimate * half.exp(),
    })
}

/// A mean above 0 and the variance of its logarithm, s² / (n · mean²).
fn log_variance(values: &[f64]) -> Option<(f64, f64)> {
    let mean = mean(values).filter(|mean| *mean > 0.0 && mean.is_finite())?;
    let n = values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() >= 2).then(|| (mean, squares / (n - 1.0) / n / (mean * mean)))
}

/// Efron, "Better Bootstrap Confidence Intervals", 1987: percentiles of resampled means, moved
/// for bias (z0) and for the spread's change with the mean (acceleration, by jackknife).
fn bca_interval(values: &[f64], confidence: f64, rng: &mut impl Rng) -> Option<Interval> {
    let estimate = mean(values)?;
    let point = Interval {
        estimate,
        low: estimate,
        high: estimate,
    };
    if values.iter().all(|value| *value == values[0]) {
        return Some(point);
    }
    let n = values.len();
    let resampled_mean = |_| {
        let sum: f64 = (0..n).map(|_| values[rng.random_range(0..n)]).sum();
        sum / n as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).map(resampled_mean).collect();
    means.sort_unstable_by(f64::total_cmp);
    let normal = Normal::standard();
    // resamples equal to the estimate count half on either side
    let below = means.partition_point(|mean| *mean < estimate);
    let up_to = means.partition_point(|mean| *mean <= estimate);
    let share = (below + up_to) as f64 / 2.0 / RESAMPLES as f64;
    let edge = 0.5 / RESAMPLES as f64;
    let z0 = normal.inverse_cdf(share.clamp(edge, 1.0 - edge));
    let acceleration = mean_acceleration(values, estimate);
    let moved = |q: f64| {
        let z = z0 + normal.inverse_cdf(q);
        normal.cdf(z0 + z / (1.0 - acceleration * z))
    };
    Some(Interval {
        low: quantile(&means, moved((1.0 - confidence) / 2.0))?,
        high: quantile(&means, moved((1.0 + confidence) / 2.0))?,
        ..point
    })
}

/// The jackknife's acceleration; for a mean it is Σd³ / (6 (Σd²)^1.5).
fn mean_acceleration(values: &[f64], mean: f64) -> f64 {
    let powers = |power| {
        let deviations = values.iter().map(|value| (value - mean).powi(power));
        deviations.sum::<f64>()
    };
    powers(3) / (6.0 * powers(2).powf(1.5))
}

/// One run's value and the block its request arrived in.
struct Blocked {
    block: usize,
    value: f64,
}

/// Interval of `quantile(a, q) - quantile(b, q)` for two runs of one arrival sequence, each a list
/// of (planned arrival time, value).
///
/// Requests near in time share a queue, so they are not resampled one by one: the time span is cut
/// into `blocks` equal blocks, and whole blocks are drawn with replacement, the same ones for both
/// runs, which keeps the pairing (Künsch 1989; non-overlapping blocks after Carlstein 1986). Ends
/// are percentiles, widened for few blocks as in Hesterberg, "What Teachers Should Know About the
/// Bootstrap", 2015 (expanded percentile). A block must be longer than the time a queue needs to
/// forget; a quantile with few values beyond it (under about 10) has an interval that is too
/// narrow. `None` with fewer than [`LEAST_BLOCKS`] blocks with arrivals in both runs, or values
/// that are not finite.
pub fn block_bootstrap_quantile_difference(
    a: &[(f64, f64)],
    b: &[(f64, f64)],
    q: f64,
    blocks: usize,
    confidence: f64,
    rng: &mut impl Rng,
) -> Option<Interval> {
    resample_blocks(a, b, q, blocks, confidence, RESAMPLES, rng)
}

fn resample_blocks(
    a: &[(f64, f64)],
    b: &[(f64, f64)],
    q: f64,
    blocks: usize,
    confidence: f64,
    resamples: usize,
    rng: &mut impl Rng,
) -> Option<Interval> {
    let all = || a.iter().chain(b);
    let usable = all().all(|(time, value)| time.is_finite() && value.is_finite())
        && confidence > 0.0
        && confidence < 1.0
        && (0.0..=1.0).contains(&q);
    if !usable || blocks == 0 {
        return None;
    }
    let begin = all().map(|(time, _)| *time).reduce(f64::min)?;
    let end = all().map(|(time, _)| *time).reduce(f64::max)?;
    let block_of = |time: f64| {
        let at = (time - begin) / (end - begin) * blocks as f64;
        (at as usize).min(blocks - 1)
    };
    let (a, b) = (into_blocks(a, block_of), into_blocks(b, block_of));
    let holds = |run: &[Blocked], block| run.iter().any(|value| value.block == block);
    let shared: Vec<usize> = (0..blocks)
        .filter(|block| holds(&a, *block) && holds(&b, *block))
        .collect();
    if shared.len() < LEAST_BLOCKS {
        return None;
    }
    let mut times_drawn = vec![0u32; blocks];
    shared.iter().for_each(|block| times_drawn[*block] = 1);
    let difference =
        |times: &[u32]| Some(repeated_quantile(&a, times, q)? - repeated_quantile(&b, times, q)?);
    let estimate = difference(&times_drawn)?;
    let mut differences = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        times_drawn.fill(0);
        for _ in 0..shared.len() {
            times_drawn[shared[rng.random_range(0..shared.len())]] += 1;
        }
        differences.extend(difference(&times_drawn));
    }
    differences.sort_unstable_by(f64::total_cmp);
    let tail = expanded_tail(shared.len() as f64, confidence)?;
    Some(Interval {
        estimate,
        low: quantile(&differences, tail)?,
        high: quantile(&differences, 1.0 - tail)?,
    })
}

fn into_blocks(run: &[(f64, f64)], block_of: impl Fn(f64) -> usize) -> Vec<Blocked> {
    let blocked = run.iter().map(|(time, value)| Blocked {
        block: block_of(*time),
        value: *value,
    });
    let mut values: Vec<Blocked> = blocked.collect();
    values.sort_unstable_by(|a, b| a.value.total_cmp(&b.value));
    values
}

/// Type 7 quantile of ascending values, each taken as often as its block was drawn.
fn repeated_quantile(sorted: &[Blocked], times_drawn: &[u32], q: f64) -> Option<f64> {
    let times = |value: &Blocked| times_drawn[value.block] as usize;
    let n: usize = sorted.iter().map(times).sum();
    let at = q * n.checked_sub(1)? as f64;
    let (first, second) = (at.floor() as usize, at.ceil() as usize);
    let (mut passed, mut below) = (0, None);
    for value in sorted {
        passed += times(value);
        if passed > first && below.is_none() {
            below = Some(value.value);
        }
        if passed > second {
            return Some(between(below?, value.value, at.fract()));
        }
    }
    None
}

/// Tail probability whose normal quantile is that of Student's t, scaled by √(n / (n - 1)).
fn expanded_tail(n: f64, confidence: f64) -> Option<f64> {
    let t = students_t(n - 1.0, (1.0 + confidence) / 2.0)?;
    Some(Normal::standard().cdf(-t * (n / (n - 1.0)).sqrt()))
}

/// Two-sided p-value of "the mean difference is 0" by flipping signs (Fisher 1935): the share of
/// flips whose mean lies at least as far from 0. All flips up to 16 pairs; above that 20,000
/// drawn, the data counted among them, so that it is never 0. With n pairs it cannot fall under
/// 2 / 2^n. `None` without differences or with one that is not finite.
pub fn sign_flip_p_value(differences: &[f64], rng: &mut impl Rng) -> Option<f64> {
    let usable = !differences.is_empty() && differences.iter().all(|value| value.is_finite());
    if !usable {
        return None;
    }
    // sums in another order differ in their last bits
    let size: f64 = differences.iter().map(|value| value.abs()).sum();
    let seen = differences.iter().sum::<f64>().abs() - size * 1e-12;
    let n = differences.len();
    if n <= EXACT_PAIRS {
        let flips = 1u32 << n;
        let hits = (0..flips)
            .filter(|flip| flipped_sum(differences, |at| flip >> at & 1 == 1).abs() >= seen)
            .count();
        return Some(hits as f64 / f64::from(flips));
    }
    let hits = (0..DRAWN_FLIPS)
        .filter(|_| flipped_sum(differences, |_| rng.random()).abs() >= seen)
        .count();
    Some((hits + 1) as f64 / (DRAWN_FLIPS + 1) as f64)
}

fn flipped_sum(differences: &[f64], mut flip: impl FnMut(usize) -> bool) -> f64 {
    let signed = differences
        .iter()
        .enumerate()
        .map(|(at, value)| if flip(at) { -value } else { *value });
    signed.sum()
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
