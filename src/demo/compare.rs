//! Whether one policy beat another on the same requests, with the interval that chance leaves. Pure.
//!
//! Within one run both policies had the same requests at the same times, so whole stretches of time
//! are resampled for both at once; over several seeds the seeds are the sample.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::Serialize;

use super::arm::ArmRun;
use super::summary::{SHORT, measured};
use crate::report::statistics::{
    Interval, block_bootstrap_quantile_difference, paired_interval, quantile,
};

/// Length of a block of time: a few times what a short request's wait lasts, and so short that a run
/// has enough of them.
const BLOCK_NS: u64 = 2_000_000_000;
/// The quantile that is compared.
const QUANTILE: f64 = 0.99;
const CONFIDENCE: f64 = 0.95;
/// What a failed request is said to have waited: the load client's own limit. Leaving it out would
/// let a policy win by failing.
const FAILED_MS: f64 = 300_000.0;

/// How an interval was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// within one seed: blocks of 2 s drawn with replacement, the same for both policies
    PairedBlockBootstrap,
    /// over seeds: the mean of the seeds' differences
    PairedSeeds,
}

/// What a difference allows to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// the whole interval lies below 0
    Faster,
    /// the whole interval lies above 0
    Slower,
    /// the interval includes no difference, or there is none
    Undecided,
}

/// A policy against the one that others are compared with: 99th percentile of client TTFT of short requests.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// the policy
    pub policy: String,
    /// what it is compared with
    pub control: String,
    /// what is compared
    pub figure: &'static str,
    /// how the interval was found
    pub method: Method,
    /// short requests, or seeds, that both had
    pub pairs: u64,
    /// policy − control with its 95 % interval, milliseconds; absent where nothing can be said
    pub difference_ms: Option<Interval>,
    /// what it allows to be said
    pub verdict: Verdict,
}

/// One short request: when it was planned, nanoseconds after the start, and its client TTFT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wait {
    /// planned
    pub at_ns: u64,
    /// client TTFT; infinite if it failed
    pub ttft_ms: f64,
}

/// The waits of one seed under both policies, by index in the plan.
#[derive(Debug, Clone, Default)]
pub struct PairedWaits {
    /// under the policy in question
    pub treated: Vec<Wait>,
    /// under the policy it is compared with
    pub control: Vec<Wait>,
}

/// Compares two policies run with the same seeds.
pub fn compare(treated: &[&ArmRun], control: &[&ArmRun], warm_up_ns: u64) -> Comparison {
    let paired = |run: &&ArmRun| {
        let other = control.iter().find(|other| other.seed == run.seed)?;
        Some(pair(&waits(run, warm_up_ns), &waits(other, warm_up_ns)))
    };
    let name = |runs: &[&ArmRun]| {
        runs.first()
            .map(|run| run.policy.clone())
            .unwrap_or_default()
    };
    let seeds: Vec<PairedWaits> = treated.iter().filter_map(paired).collect();
    compare_waits(name(treated), name(control), &seeds)
}

/// Compares two policies by their waits, one entry a seed.
pub fn compare_waits(policy: String, control: String, seeds: &[PairedWaits]) -> Comparison {
    let (method, pairs, difference_ms) = match seeds {
        [only] => (
            Method::PairedBlockBootstrap,
            only.treated.len(),
            within(only),
        ),
        several => (Method::PairedSeeds, several.len(), between(several)),
    };
    Comparison {
        policy,
        control,
        figure: "short.client_ttft_ms.p99",
        method,
        pairs: pairs as u64,
        difference_ms,
        verdict: difference_ms.map_or(Verdict::Undecided, verdict),
    }
}

fn verdict(interval: Interval) -> Verdict {
    if interval.high < 0.0 {
        Verdict::Faster
    } else if interval.low > 0.0 {
        Verdict::Slower
    } else {
        Verdict::Undecided
    }
}

/// The difference within one seed.
fn within(waits: &PairedWaits) -> Option<Interval> {
    let stamped = |waits: &[Wait]| {
        waits
            .iter()
            .map(|wait| (wait.at_ns as f64 / 1e9, wait.ttft_ms.min(FAILED_MS)))
            .collect::<Vec<_>>()
    };
    let (first, last) = (waits.control.first()?.at_ns, waits.control.last()?.at_ns);
    let blocks = ((last - first) / BLOCK_NS) as usize;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let (treated, control) = (stamped(&waits.treated), stamped(&waits.control));
    block_bootstrap_quantile_difference(&treated, &control, QUANTILE, blocks, CONFIDENCE, &mut rng)
}

/// The mean difference over seeds.
fn between(seeds: &[PairedWaits]) -> Option<Interval> {
    let of = |waits: fn(&PairedWaits) -> &[Wait]| {
        seeds
            .iter()
            .map(|seed| quantile_of(waits(seed)))
            .collect::<Option<Vec<f64>>>()
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    paired_interval(
        &of(|seed| &seed.treated)?,
        &of(|seed| &seed.control)?,
        CONFIDENCE,
        &mut rng,
    )
}

fn quantile_of(waits: &[Wait]) -> Option<f64> {
    let mut sorted: Vec<f64> = waits
        .iter()
        .map(|wait| wait.ttft_ms.min(FAILED_MS))
        .collect();
    sorted.sort_unstable_by(f64::total_cmp);
    quantile(&sorted, QUANTILE)
}

fn waits(run: &ArmRun, warm_up_ns: u64) -> BTreeMap<u32, Wait> {
    let short = measured(run, warm_up_ns).filter(|request| request.planned.class == SHORT);
    short
        .map(|request| {
            let ttft_ms = request
                .figure(|record| record.client_ttft_ms)
                .filter(|_| !request.is_failed());
            let wait = Wait {
                at_ns: request.planned.at_ns,
                ttft_ms: ttft_ms.unwrap_or(f64::INFINITY),
            };
            (request.planned.index, wait)
        })
        .collect()
}

/// The requests that both had.
fn pair(treated: &BTreeMap<u32, Wait>, control: &BTreeMap<u32, Wait>) -> PairedWaits {
    let both = treated
        .iter()
        .filter_map(|(index, wait)| Some((*wait, *control.get(index)?)));
    let (treated, control) = both.unzip();
    PairedWaits { treated, control }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use rand::RngExt;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A minute of requests whose waits wander from second to second; the treated ones are `gain_ms` shorter.
    fn waits(seed: u64, gain_ms: f64) -> PairedWaits {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut paired = PairedWaits::default();
        let mut level_ms = 200.0;
        for index in 0..1200 {
            if index % 20 == 0 {
                level_ms = 150.0 + 100.0 * rng.random::<f64>();
            }
            let at_ns = index * SECOND_NS / 20;
            let mut draw = |gain_ms: f64| Wait {
                at_ns,
                ttft_ms: level_ms + 30.0 * rng.random::<f64>() - gain_ms,
            };
            paired.treated.push(draw(gain_ms));
            paired.control.push(draw(0.0));
        }
        paired
    }

    fn compared(seeds: &[PairedWaits]) -> Comparison {
        compare_waits("a".into(), "b".into(), seeds)
    }

    #[test]
    fn a_clear_gain_within_one_seed_is_found_with_its_size() {
        let comparison = compared(&[waits(1, 60.0)]);
        assert_eq!(
            (comparison.method, comparison.verdict),
            (Method::PairedBlockBootstrap, Verdict::Faster)
        );
        let interval = comparison.difference_ms.unwrap();
        assert!((interval.estimate + 60.0).abs() < 10.0, "{interval:?}");
    }

    #[test]
    fn no_gain_is_not_called_one() {
        assert_eq!(compared(&[waits(1, 0.0)]).verdict, Verdict::Undecided);
        assert_eq!(
            compared(&(0..6).map(|seed| waits(seed, 0.0)).collect::<Vec<_>>()).verdict,
            Verdict::Undecided
        );
    }

    #[test]
    fn over_seeds_the_seeds_are_the_sample() {
        let comparison = compared(&(0..6).map(|seed| waits(seed, 60.0)).collect::<Vec<_>>());
        assert_eq!(
            (comparison.method, comparison.pairs, comparison.verdict),
            (Method::PairedSeeds, 6, Verdict::Faster)
        );
    }

    #[test]
    fn a_policy_cannot_win_by_failing() {
        let mut failing = waits(1, 60.0);
        failing
            .treated
            .iter_mut()
            .step_by(20)
            .for_each(|wait| wait.ttft_ms = f64::INFINITY);
        let comparison = compared(&[failing]);
        assert_eq!(comparison.verdict, Verdict::Slower, "{comparison:?}");
    }

    #[test]
    fn too_short_a_run_gives_no_interval() {
        let mut short = waits(1, 60.0);
        short.treated.truncate(60);
        short.control.truncate(60);
        assert_eq!(compared(&[short]).difference_ms, None);
        assert_eq!(compared(&[PairedWaits::default()]).difference_ms, None);
    }

    #[test]
    fn only_requests_that_both_had_are_paired() {
        let one = |index, at_ns| {
            (
                index,
                Wait {
                    at_ns,
                    ttft_ms: 1.0,
                },
            )
        };
        let paired = pair(
            &[one(1, 10), one(2, 20)].into(),
            &[one(2, 20), one(3, 30)].into(),
        );
        assert_eq!((paired.treated.len(), paired.control[0].at_ns), (1, 20));
    }
}
