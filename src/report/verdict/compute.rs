//! The GPU's arithmetic or memory bandwidth is used up: more sequences only make each slower. Pure.

use super::evidence::Evidence;
use super::marks::{
    STALLED_GAIN, batch_gain, clean, gain, is_stalled, mean_of, missing_share, tpot_growth,
};
use super::queue::BATCH_PAYS_GAIN;
use super::{Case, CounterExperiment, Found, Judgement, advice, balancer, cpu, kv};
use crate::report::curves::{Curve, Step};

/// Use of the GPU from which it is busy.
const GPU_BUSY_SHARE: f64 = 0.85;
/// Growth of the median TPOT, from the lowest to the highest load, from which it worsened.
const TPOT_WORSE: f64 = 1.5;

pub(super) fn judge(_case: &Case<'_>, curve: &Curve<'_>) -> Judgement {
    let steps = clean(curve);
    let Some(top) = steps.last() else {
        return Judgement::NotItsMatter;
    };
    if kv::is_bound(top) || cpu::is_bound(top) || balancer::is_uneven(top) {
        return Judgement::NotItsMatter;
    }
    let Some(stalled) = is_stalled(&steps) else {
        return Judgement::Unknown(
            "a second load: one does not show whether throughput stalls".into(),
        );
    };
    let found = evidence(&steps, top);
    let worse = tpot_growth(&steps).is_some_and(|growth| growth >= TPOT_WORSE);
    // A batch that would still have paid was kept small by something else.
    let pays = batch_gain(&steps).is_some_and(|gain| gain >= BATCH_PAYS_GAIN);
    if !stalled || !worse || pays {
        return Judgement::Not(found);
    }
    let Some(gpu) = mean_of(top, |watch| watch.gpu_use_share) else {
        return Judgement::Unknown("use of the GPUs (DCGM_FI_DEV_GPU_UTIL)".into());
    };
    if gpu < GPU_BUSY_SHARE {
        return Judgement::Not(found);
    }
    Judgement::Holds(Found {
        cost_share: missing_share(&steps),
        says: format!(
            "The GPU is busy, and more load only makes each token slower: its {} used up.",
            resource(top)
        ),
        evidence: found,
        change: "Admit fewer requests at once; for more throughput: quantize the model, or take a GPU with more bandwidth"
            .into(),
        counter_experiment: Some(CounterExperiment::at(
            curve,
            top,
            "half-load",
            advice::load_change(top, 0.5),
            "TPOT falls back and throughput hardly falls",
            "TPOT stays: it is not the number of sequences",
        )),
    })
}

/// Which of both is nearer its end, where that was measured.
fn resource(step: &Step<'_>) -> &'static str {
    let sm = mean_of(step, |watch| watch.sm_active_share);
    let dram = mean_of(step, |watch| watch.dram_active_share);
    match sm.zip(dram) {
        Some((sm, dram)) if dram > sm => "memory bandwidth is",
        Some(_) => "arithmetic is",
        None => "arithmetic or memory bandwidth is",
    }
}

fn evidence(steps: &[&Step<'_>], top: &Step<'_>) -> Vec<Evidence> {
    let ids = top.ids();
    let share = |what: &str, of, held: String| {
        Evidence::some(what, mean_of(top, of), "of time", held, ids.clone())
    };
    let all = [
        Evidence::some(
            "growth of throughput for growth of load at the highest loads",
            gain(steps),
            "",
            format!("stalled below {STALLED_GAIN}"),
            ids.clone(),
        ),
        Evidence::some(
            "median TPOT at the highest load over that at the lowest",
            tpot_growth(steps),
            "",
            format!("worse from {TPOT_WORSE}"),
            ids.clone(),
        ),
        share(
            "use of the GPU, mean",
            |watch| watch.gpu_use_share,
            format!("busy from {GPU_BUSY_SHARE}"),
        ),
        share(
            "SMs at work, mean",
            |watch| watch.sm_active_share,
            "for comparison".into(),
        ),
        share(
            "GPU memory read or written, mean",
            |watch| watch.dram_active_share,
            "for comparison".into(),
        ),
    ];
    all.into_iter().flatten().collect()
}
