//! Who has a tail: only long requests, or short ones too; and what that points to. Pure.
//!
//! Looked at under the largest load within the service level: under overload everybody waits.

use serde::Serialize;

use super::evidence::Evidence;
use super::marks::mean_of;
use super::{Case, kv};
use crate::report::capacity::largest_effective;
use crate::report::curves::{Curve, Step};
use crate::report::latency::Bucket;
use crate::report::scaling::is_generator_bound;

/// P99 over median from which a length has a tail.
const TAIL_RATIO: f64 = 4.0;
/// Complete requests of a length that a tail needs.
const LEAST_REQUESTS: u64 = 100;

/// Who has a tail of TTFT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TailPattern {
    /// nobody
    Nobody,
    /// only the longer ones: scheduling and memory
    OnlyLong,
    /// short ones too: preemption, long requests before them, or something outside of the engine
    ShortToo,
}

/// A tail, and what it points to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tail {
    /// the curve
    pub curve: String,
    /// who has one
    pub pattern: TailPattern,
    /// what it points to
    pub says: String,
    /// P99 over median of each length, and what tells causes apart
    pub evidence: Vec<Evidence>,
    /// what would tell further
    pub next: String,
}

/// One for each curve with enough requests of at least two lengths.
pub(super) fn tails(case: &Case<'_>) -> Vec<Tail> {
    let its = case.curves.iter();
    its.filter_map(|curve| tail(case, curve)).collect()
}

fn tail(case: &Case<'_>, curve: &Curve<'_>) -> Option<Tail> {
    let effective = largest_effective(curve, case.study.attainment)?;
    let step = curve
        .steps
        .iter()
        .find(|step| step.ids() == effective.points && !is_generator_bound(step))?;
    let lengths = [Bucket::Short, Bucket::Medium, Bucket::Long].map(Bucket::name);
    let ratios: Vec<(&str, f64)> = lengths
        .into_iter()
        .filter_map(|length| Some((length, ratio(step, length)?)))
        .collect();
    if ratios.len() < 2 {
        return None;
    }
    let has = |length: &str| {
        let mut its = ratios.iter().filter(|(name, _)| *name == length);
        its.any(|(_, ratio)| *ratio >= TAIL_RATIO)
    };
    let pattern = match (has(ratios[0].0), ratios.iter().any(|(name, _)| has(name))) {
        (true, _) => TailPattern::ShortToo,
        (false, true) => TailPattern::OnlyLong,
        (false, false) => TailPattern::Nobody,
    };
    let (says, next) = meaning(case, curve, step, pattern);
    let of_length = |(length, ratio): &(&str, f64)| {
        let threshold = format!("a tail from {TAIL_RATIO}");
        Evidence::new(
            format!("TTFT of {length} requests, P99 over median"),
            *ratio,
            "",
            threshold,
            step.ids(),
        )
    };
    let mut evidence: Vec<Evidence> = ratios.iter().map(of_length).collect();
    evidence.extend(kv::evidence(step));
    Some(Tail {
        curve: curve.name(),
        pattern,
        says: says.into(),
        evidence,
        next: next.into(),
    })
}

fn ratio(step: &Step<'_>, length: &str) -> Option<f64> {
    step.mean(|point| {
        let its = point.length(length)?;
        let ttft = its.ttft.filter(|ttft| ttft.p50 > 0.0)?;
        (its.completed >= LEAST_REQUESTS).then(|| ttft.p99 / ttft.p50)
    })
}

fn meaning(
    case: &Case<'_>,
    curve: &Curve<'_>,
    step: &Step<'_>,
    pattern: TailPattern,
) -> (&'static str, &'static str) {
    match pattern {
        TailPattern::Nobody => ("No length has a tail.", ""),
        TailPattern::OnlyLong => (
            "Only longer requests have a tail: their prompts wait for room in the batch or in the KV cache.",
            "Look at scheduling and memory: more KV cache, or larger prefill chunks",
        ),
        TailPattern::ShortToo if kv::preempts(step) == Some(true) => (
            "Short requests have a tail too, and sequences are preempted: they wait until they are computed again.",
            "Lower max_num_seqs until preemptions stop, and see whether the short tail goes",
        ),
        TailPattern::ShortToo => short_too(case, curve, step),
    }
}

/// Without preemptions: long ones before them, or something outside. Short ones alone, under the same load, tell.
fn short_too(case: &Case<'_>, curve: &Curve<'_>, step: &Step<'_>) -> (&'static str, &'static str) {
    let alone = case.curves.iter().find(|other| {
        other.family.lengths == Bucket::Short.name()
            && other.family.load_kind == curve.family.load_kind
            && (other.instances, other.gpus_per_instance)
                == (curve.instances, curve.gpus_per_instance)
    });
    let alone =
        alone.and_then(|other| ratio(other.at_load(step.load_per_unit)?, Bucket::Short.name()));
    let waits = mean_of(step, |watch| watch.waiting).is_some_and(|waiting| waiting >= 1.0);
    match (alone, waits) {
        (Some(ratio), _) if ratio < TAIL_RATIO => (
            "Short requests have a tail, but not where they are alone: long ones before them block them.",
            "Keep places for short requests (policy lanes)",
        ),
        (Some(_), _) => (
            "Short requests have a tail even alone, and nobody is preempted: something outside of the engine interferes.",
            "Turn off access logs and other work on the hosts, one at a time",
        ),
        (None, true) => (
            "Short requests have a tail too, without preemptions, while the engine queues: long ones probably block them.",
            "Run short requests alone under the same load (lengths = \"short\"): if the tail goes, keep places for them",
        ),
        (None, false) => (
            "Short requests have a tail too, without preemptions and without a queue: long ones that block them and interference from outside, such as logging, are not told apart by what was measured.",
            "Run short requests alone under the same load (lengths = \"short\"); if the tail stays, turn off access logs",
        ),
    }
}
