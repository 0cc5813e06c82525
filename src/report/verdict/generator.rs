//! The client is too slow: its core is full, or it was kept from it. Pure.

use super::evidence::Evidence;
use super::{Case, CounterExperiment, Found, Judgement, advice};
use crate::report::curves::Curve;
use crate::report::generator::{BUSY_SHARE, LATE_MS};
use crate::report::scaling::is_generator_bound;

pub(super) fn judge(_case: &Case<'_>, curve: &Curve<'_>) -> Judgement {
    let bound: Vec<_> = curve
        .steps
        .iter()
        .filter(|step| is_generator_bound(step))
        .collect();
    let known = curve
        .steps
        .iter()
        .any(|step| step.first().generator.is_some());
    let Some(worst) = bound.last() else {
        if known {
            return Judgement::Not(Vec::new());
        }
        return Judgement::Unknown("the generator's own CPU and lateness (result.json)".into());
    };
    let ids = worst.ids();
    let cpu = worst.mean(|point| point.generator?.cpu_share);
    let waited = worst.mean(|point| point.generator?.waited_share);
    let late = worst.mean(|point| Some(point.generator?.lag?.own_p99_ms));
    let evidence = [
        Evidence::some(
            "the generator's use of its core",
            cpu,
            "of one core",
            format!("at least {BUSY_SHARE}"),
            ids.clone(),
        ),
        Evidence::some(
            "time in which it had work and no core",
            waited,
            "of all time",
            format!("at least {BUSY_SHARE} with the use of its core"),
            ids.clone(),
        ),
        Evidence::some(
            "its own lateness, P99",
            late,
            "ms",
            format!("above {LATE_MS}"),
            ids,
        ),
    ];
    let affected = bound.len() as f64 / curve.steps.len() as f64;
    Judgement::Holds(Found {
        cost_share: affected,
        says: format!(
            "At {} of {} loads the client was the limit: what was measured there is the client, not the fleet.",
            bound.len(),
            curve.steps.len()
        ),
        evidence: evidence.into_iter().flatten().collect(),
        change: "Send the load from a faster machine, or from several".into(),
        counter_experiment: Some(CounterExperiment::at(
            curve,
            worst,
            "half-load",
            advice::load_change(worst, 0.5),
            "the generator keeps up, and throughput falls by less than half",
            "throughput halves: the generator was not what held it back",
        )),
    })
}
