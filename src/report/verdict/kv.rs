//! The KV cache is full, or sequences are preempted because it is. Pure.

use super::evidence::Evidence;
use super::marks::{clean, max_of, mean_of, missing_share};
use super::{Case, CounterExperiment, Found, Judgement};
use crate::report::curves::{Curve, Step};

/// Mean share of KV blocks in use from which the cache is full.
pub(super) const FULL_SHARE: f64 = 0.9;
/// Sequences that wait, on the average, from which a full cache holds somebody back.
const LEAST_WAITING: f64 = 1.0;
/// Preemptions for each request from which they matter.
pub(super) const PREEMPTIONS_PER_REQUEST: f64 = 0.1;

pub(super) fn judge(_case: &Case<'_>, curve: &Curve<'_>) -> Judgement {
    let steps = clean(curve);
    if steps.is_empty() {
        return Judgement::NotItsMatter;
    }
    let known = |step: &&&Step<'_>| {
        mean_of(step, |watch| watch.kv_used_share).is_some()
            || step.mean(|point| point.preemptions_per_request).is_some()
    };
    if !steps.iter().any(|step| known(&step)) {
        return Judgement::Unknown(
            "KV use and preemptions of the engines (vllm:kv_cache_usage_perc, vllm:num_preemptions_total)"
                .into(),
        );
    }
    let Some(first) = steps.iter().find(|step| is_bound(step)) else {
        return Judgement::Not(steps.last().map_or_else(Vec::new, |top| evidence(top)));
    };
    let worst = steps
        .iter()
        .rev()
        .find(|step| is_bound(step))
        .unwrap_or(first);
    Judgement::Holds(Found {
        cost_share: missing_share(&steps),
        says: format!(
            "From a load of {:.0} on the KV cache is full: sequences wait for blocks or are preempted and computed again.",
            first.first().setting.load.amount()
        ),
        evidence: evidence(worst),
        change:
            "Give the KV cache more memory; failing that, lower max_num_seqs until preemptions stop"
                .into(),
        counter_experiment: Some(counter(curve, worst)),
    })
}

/// Whether memory or preemption holds this load back.
pub(super) fn is_bound(step: &Step<'_>) -> bool {
    is_full(step) == Some(true) || preempts(step) == Some(true)
}

/// Whether the cache is full and somebody waits for it.
pub(super) fn is_full(step: &Step<'_>) -> Option<bool> {
    let used = mean_of(step, |watch| watch.kv_used_share)?;
    let waiting = mean_of(step, |watch| watch.waiting)?;
    Some(used >= FULL_SHARE && waiting >= LEAST_WAITING)
}

/// Whether preemptions matter.
pub(super) fn preempts(step: &Step<'_>) -> Option<bool> {
    let each = step.mean(|point| point.preemptions_per_request)?;
    Some(each >= PREEMPTIONS_PER_REQUEST)
}

pub(super) fn evidence(step: &Step<'_>) -> Vec<Evidence> {
    let ids = step.ids();
    let all = [
        Evidence::some(
            "KV blocks in use on the busiest instance, mean",
            mean_of(step, |watch| watch.kv_used_share),
            "of all",
            format!("full from {FULL_SHARE}"),
            ids.clone(),
        ),
        Evidence::some(
            "sequences that wait there, mean",
            mean_of(step, |watch| watch.waiting),
            "sequences",
            format!("from {LEAST_WAITING}"),
            ids.clone(),
        ),
        Evidence::some(
            "preemptions for each request",
            step.mean(|point| point.preemptions_per_request),
            "",
            format!("matter from {PREEMPTIONS_PER_REQUEST}"),
            ids,
        ),
    ];
    all.into_iter().flatten().collect()
}

/// Half of the sequences that ran at most.
fn counter(curve: &Curve<'_>, step: &Step<'_>) -> CounterExperiment {
    let most = max_of(step, |watch| watch.running).unwrap_or(2.0);
    CounterExperiment::at(
        curve,
        step,
        "fewer-sequences",
        format!(
            "{{ engine = {{ max_num_seqs = {} }} }}",
            (most / 2.0).floor().max(1.0)
        ),
        "preemptions stop and TPOT falls, at about the same throughput",
        "throughput halves: the cache was not what held it back",
    )
}
