//! The CPU of an instance is used up while its GPU waits: tokenizing, scheduling, sampling. Pure.

use super::evidence::Evidence;
use super::marks::{clean, is_stalled, mean_of, missing_share};
use super::{Case, CounterExperiment, Found, Judgement, advice};
use crate::report::curves::{Curve, Step};

/// Share of all cores of the host from which they are used up.
pub(super) const HOST_BUSY_SHARE: f64 = 0.9;
/// Cores of the engine's process from which its one planning loop may be full.
pub(super) const LOOP_BUSY_CORES: f64 = 0.95;
/// Use of the GPU below which it waits for somebody.
pub(super) const GPU_WAITS_SHARE: f64 = 0.7;
/// The same where only the process's cores are known, which may be many.
const GPU_IDLE_SHARE: f64 = 0.5;

pub(super) fn judge(_case: &Case<'_>, curve: &Curve<'_>) -> Judgement {
    let steps = clean(curve);
    let Some(top) = steps.last() else {
        return Judgement::NotItsMatter;
    };
    let bound: Vec<_> = steps.iter().filter(|step| is_bound(step)).collect();
    if bound.is_empty() {
        let judged = steps.iter().any(|step| is_used_up(step).is_some());
        if !judged {
            return Judgement::Unknown("CPU of the engines and their hosts".into());
        }
        return Judgement::Not(evidence(top));
    }
    // A full CPU under a load that still brings more is no limit yet.
    if is_stalled(&steps) == Some(false) {
        return Judgement::Not(evidence(top));
    }
    let worst = bound[bound.len() - 1];
    Judgement::Holds(Found {
        cost_share: missing_share(&steps),
        says: "The CPU of the engine is used up while its GPU waits for work.".into(),
        evidence: evidence(worst),
        change: "Give each instance more or faster cores; failing that, spread the same load over more instances"
            .into(),
        counter_experiment: Some(CounterExperiment::at(
            curve,
            worst,
            "half-load",
            advice::load_change(worst, 0.5),
            "throughput stays and TTFT falls: the GPU had room, the CPU had none",
            "throughput halves and the CPU is still idle: look for another cause",
        )),
    })
}

/// Whether the CPU is used up and the GPU waits, at this load.
pub(super) fn is_bound(step: &Step<'_>) -> bool {
    is_used_up(step) == Some(true)
}

/// `None` where neither is known.
pub(super) fn is_used_up(step: &Step<'_>) -> Option<bool> {
    let gpu = mean_of(step, |watch| watch.gpu_use_share);
    let host = mean_of(step, |watch| watch.host_cpu_share);
    let engine = mean_of(step, |watch| watch.engine_cpu_cores);
    let waits = |least: f64| gpu.is_none_or(|share| share < least);
    let by_host = host.map(|share| share >= HOST_BUSY_SHARE && waits(GPU_WAITS_SHARE));
    let by_loop = engine
        .zip(gpu)
        .map(|(cores, gpu)| cores >= LOOP_BUSY_CORES && gpu < GPU_IDLE_SHARE);
    match (by_host, by_loop) {
        (None, None) => None,
        (a, b) => Some(a == Some(true) || b == Some(true)),
    }
}

pub(super) fn evidence(step: &Step<'_>) -> Vec<Evidence> {
    let ids = step.ids();
    let all = [
        Evidence::some(
            "CPU of the busiest instance's host, mean",
            mean_of(step, |watch| watch.host_cpu_share),
            "of all cores",
            format!("used up from {HOST_BUSY_SHARE}"),
            ids.clone(),
        ),
        Evidence::some(
            "CPU of its engine, mean",
            mean_of(step, |watch| watch.engine_cpu_cores),
            "cores",
            format!("a loop on one core is full from {LOOP_BUSY_CORES}"),
            ids.clone(),
        ),
        Evidence::some(
            "use of its GPU, mean",
            mean_of(step, |watch| watch.gpu_use_share),
            "of time",
            format!("it waits below {GPU_WAITS_SHARE}"),
            ids,
        ),
    ];
    all.into_iter().flatten().collect()
}
