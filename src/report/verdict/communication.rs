//! GPUs of one instance wait for each other: more of them bring little, though kernels run all the time. Pure.

use super::evidence::Evidence;
use super::marks::mean_of;
use super::{Case, CounterExperiment, Found, Judgement, cpu, kv};
use crate::report::curves::{Curve, Step};
use crate::report::scaling::Efficiency;
use crate::study::Scaling;

/// Efficiency below which vertical scaling falls off.
const FALLS_OFF_BELOW: f64 = 0.7;
/// Use of the GPUs below which they wait for their host and not for each other.
const GPU_BUSY_SHARE: f64 = 0.5;

pub(super) fn judge(case: &Case<'_>, curve: &Curve<'_>) -> Judgement {
    if curve.scaling() != Some(Scaling::Vertical) {
        return Judgement::NotItsMatter;
    }
    let its = case
        .scalings
        .iter()
        .filter(|view| view.family == curve.family && view.scaling == Scaling::Vertical)
        .flat_map(|view| &view.fleets)
        .find(|fleet| fleet.gpus_per_instance == curve.gpus_per_instance);
    let judged = |efficiency: &&Efficiency| !efficiency.generator_bound;
    let Some(at) = its.and_then(|fleet| fleet.at_equal_load.iter().rfind(judged)) else {
        return Judgement::Unknown("one GPU under the same load for each GPU".into());
    };
    let Some(step) = curve.at_load(at.load_per_unit) else {
        return Judgement::NotItsMatter;
    };
    if kv::is_bound(step) || cpu::is_bound(step) {
        return Judgement::NotItsMatter;
    }
    let one = case.curves.iter().find(|unit| unit.is_unit_of(curve));
    let one = one.and_then(|unit| unit.at_load(at.load_per_unit));
    let found = evidence(at, step, one);
    if at.value >= FALLS_OFF_BELOW {
        return Judgement::Not(found);
    }
    let gpu = mean_of(step, |watch| watch.gpu_use_share);
    if gpu.is_none() {
        return Judgement::Unknown(
            "use of the GPUs: they may wait for each other or for their host (DCGM_FI_DEV_GPU_UTIL)"
                .into(),
        );
    }
    if gpu.is_some_and(|share| share < GPU_BUSY_SHARE) {
        return Judgement::Not(found);
    }
    let gpus = curve.gpus_per_instance;
    Judgement::Holds(Found {
        cost_share: (1.0 - at.value).clamp(0.0, 1.0),
        says: format!(
            "{gpus} GPUs in one instance do {:.0} % of {gpus} times one: they wait for each other.",
            at.value * 100.0
        ),
        evidence: found,
        change: format!(
            "Use fewer GPUs for each instance and more instances, or join the {gpus} GPUs by a faster link"
        ),
        counter_experiment: Some(CounterExperiment::at(
            curve,
            step,
            "half-gpus",
            format!("{{ engine = {{ gpus = {} }} }}", (gpus / 2).max(1)),
            "tokens a second for each GPU rise",
            "tokens a second for each GPU stay: the GPUs do not wait for each other",
        )),
    })
}

fn evidence(at: &Efficiency, step: &Step<'_>, one: Option<&Step<'_>>) -> Vec<Evidence> {
    let ids = step.ids();
    let share = |what: &str, step: &Step<'_>, of, held: &str| {
        Evidence::some(what, mean_of(step, of), "of time", held, step.ids())
    };
    let efficiency = Evidence::new(
        "scaling efficiency at equal load for each GPU",
        at.value,
        "",
        format!("falls off below {FALLS_OFF_BELOW}"),
        at.points.clone(),
    );
    let all = [
        Some(efficiency),
        share(
            "use of the GPUs, mean",
            step,
            |watch| watch.gpu_use_share,
            "kernels run from 0.5",
        ),
        share(
            "SMs at work, mean",
            step,
            |watch| watch.sm_active_share,
            "lower than with one GPU",
        ),
        one.and_then(|one| {
            share(
                "SMs at work with one GPU, mean",
                one,
                |watch| watch.sm_active_share,
                "for comparison",
            )
        }),
        Evidence::some(
            "bytes each GPU sends to others",
            step.mean(|point| point.watched.fleet.nvlink_sent_bytes_per_s),
            "bytes/s",
            "for comparison with the link",
            ids,
        ),
    ];
    all.into_iter().flatten().collect()
}
