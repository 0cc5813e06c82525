//! Requests queue, or throughput stalls, while the GPU could take more: `max_num_seqs`, scheduling. Pure.

use super::evidence::Evidence;
use super::marks::{batch_gain, clean, gain, is_stalled, max_of, mean_of, missing_share};
use super::{Case, CounterExperiment, Found, Judgement, balancer, cpu, kv};
use crate::report::curves::{Curve, Step};

/// Sequences that wait, on the average, for each that runs.
const WAITING_SHARE: f64 = 0.25;
/// Elasticity of throughput to the batch from which a larger batch would still have paid.
pub(super) const BATCH_PAYS_GAIN: f64 = 0.5;
/// Use of the GPU below which it plainly has room.
const GPU_IDLE_SHARE: f64 = 0.5;

pub(super) fn judge(_case: &Case<'_>, curve: &Curve<'_>) -> Judgement {
    let steps = clean(curve);
    let Some(top) = steps.last() else {
        return Judgement::NotItsMatter;
    };
    let other = kv::is_bound(top) || cpu::is_bound(top) || balancer::is_uneven(top);
    if other {
        return Judgement::NotItsMatter;
    }
    let Some(stalled) = is_stalled(&steps) else {
        return Judgement::Unknown(
            "a second load: one does not show whether throughput stalls".into(),
        );
    };
    let waiting = mean_of(top, |watch| watch.waiting);
    let gpu = mean_of(top, |watch| watch.gpu_use_share);
    let found = evidence(&steps, top);
    if !stalled {
        return Judgement::Not(found);
    }
    let (Some(waiting), Some(running)) = (waiting, mean_of(top, |watch| watch.running)) else {
        return match gpu {
            Some(share) if share < GPU_IDLE_SHARE => Judgement::Holds(verdict(curve, &steps, top)),
            Some(_) => {
                Judgement::Unknown("queue of the engines (vllm:num_requests_waiting)".into())
            }
            None => Judgement::Unknown("queue of the engines and use of the GPUs".into()),
        };
    };
    let queues = waiting >= (WAITING_SHARE * running).max(1.0);
    let pays = batch_gain(&steps).is_some_and(|gain| gain >= BATCH_PAYS_GAIN);
    let idle = gpu.is_some_and(|share| share < GPU_IDLE_SHARE);
    if (queues && pays) || idle {
        return Judgement::Holds(verdict(curve, &steps, top));
    }
    Judgement::Not(found)
}

fn verdict(curve: &Curve<'_>, steps: &[&Step<'_>], top: &Step<'_>) -> Found {
    let most = max_of(top, |watch| watch.running).unwrap_or(1.0).max(1.0);
    Found {
        cost_share: missing_share(steps),
        says: format!(
            "Requests wait in the engine's queue while it runs {most:.0} sequences at most and its GPU could take more."
        ),
        evidence: evidence(steps, top),
        change: format!("Raise max_num_seqs, from about {most:.0}"),
        counter_experiment: Some(CounterExperiment::at(
            curve,
            top,
            "max_num_seqs-x2",
            format!("{{ engine = {{ max_num_seqs = {:.0} }} }}", most * 2.0),
            "throughput grows and the queue shrinks",
            "throughput stays: it is not the number of sequences",
        )),
    }
}

fn evidence(steps: &[&Step<'_>], top: &Step<'_>) -> Vec<Evidence> {
    let ids = top.ids();
    let all = [
        Evidence::some(
            "growth of throughput for growth of load at the highest loads",
            gain(steps),
            "",
            format!("stalled below {}", super::marks::STALLED_GAIN),
            ids.clone(),
        ),
        Evidence::some(
            "sequences that wait on the busiest instance, mean",
            mean_of(top, |watch| watch.waiting),
            "sequences",
            format!("from {WAITING_SHARE} for each that runs"),
            ids.clone(),
        ),
        Evidence::some(
            "sequences that run there, mean",
            mean_of(top, |watch| watch.running),
            "sequences",
            "for comparison",
            ids.clone(),
        ),
        Evidence::some(
            "growth of throughput for growth of the batch at the largest batches",
            batch_gain(steps),
            "",
            format!("a larger batch pays from {BATCH_PAYS_GAIN}"),
            ids.clone(),
        ),
        Evidence::some(
            "use of its GPU, mean",
            mean_of(top, |watch| watch.gpu_use_share),
            "of time",
            format!("it has room below {GPU_IDLE_SHARE}"),
            ids,
        ),
    ];
    all.into_iter().flatten().collect()
}
