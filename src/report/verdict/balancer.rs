//! One instance saturates while others have room: balancer, connection skew, hashing. Pure.

use super::evidence::Evidence;
use super::{Case, CounterExperiment, Found, Judgement};
use crate::report::curves::{Curve, Step};
use crate::report::point::PointView;
use crate::report::scaling::{Efficiency, is_generator_bound};
use crate::report::watched::InstanceWatch;
use crate::study::Scaling;

/// Greatest over mean load from which it is uneven.
const UNEVEN: f64 = 1.4;
/// The excess over 1 must be so many times what chance gives.
const TIMES_CHANCE: f64 = 2.0;
/// Efficiency below which the unevenness costs something.
const COSTS_BELOW: f64 = 0.85;
/// TTFT of the fullest instance over the others' from which it costs something.
const TTFT_WORSE: f64 = 1.5;
/// Greatest over mean number of requests below which the balancer spread them evenly.
const REQUESTS_EVEN: f64 = 1.15;

pub(super) fn judge(case: &Case<'_>, curve: &Curve<'_>) -> Judgement {
    if curve.scaling() != Some(Scaling::Horizontal) {
        return Judgement::NotItsMatter;
    }
    let steps: Vec<&Step<'_>> = curve
        .steps
        .iter()
        .filter(|step| !is_generator_bound(step))
        .collect();
    let Some(top) = steps.last() else {
        return Judgement::NotItsMatter;
    };
    if !steps.iter().any(|step| unevenness(step).is_some()) {
        return Judgement::Unknown(
            "load of each instance (the balancer's records, or the engines' queues)".into(),
        );
    }
    let costly = |step: &&&Step<'_>| is_uneven(step) && cost(case, curve, step).is_some();
    let by_cost = |a: &&&Step<'_>, b: &&&Step<'_>| {
        let of = |step: &Step<'_>| cost(case, curve, step).unwrap_or(0.0);
        of(a).total_cmp(&of(b))
    };
    let Some(worst) = steps.iter().filter(costly).max_by(by_cost) else {
        return Judgement::Not(evidence(case, curve, top));
    };
    let even_requests = worst
        .mean(|point| point.instances.as_ref()?.request_imbalance)
        .is_some_and(|imbalance| imbalance < REQUESTS_EVEN);
    let (says, change) = match even_requests {
        true => (
            "One instance carries far more than its share, though it gets no more requests: it is slower.",
            "Look at the fullest instance: what makes it slower than the others",
        ),
        false => (
            "One instance saturates first while others have room: the balancer spreads the load unevenly.",
            "Let the balancer choose by load (least_requests), for each request and not for each connection",
        ),
    };
    Judgement::Holds(Found {
        cost_share: cost(case, curve, worst).unwrap_or(0.0),
        says: says.into(),
        evidence: evidence(case, curve, worst),
        change: change.into(),
        counter_experiment: Some(CounterExperiment::at(
            curve,
            worst,
            "by-load",
            format!("{{ policy = \"{}\" }}", other_policy(worst)),
            "load evens out and the scaling efficiency rises",
            "load stays uneven: an instance is slower than the others, or something behind the balancer hashes",
        )),
    })
}

fn other_policy(step: &Step<'_>) -> &'static str {
    match step.first().setting.policy.as_str() {
        "least_requests" => "least_outstanding_tokens",
        _ => "least_requests",
    }
}

/// Whether the load lies unevenly, beyond chance.
pub(super) fn is_uneven(step: &Step<'_>) -> bool {
    unevenness(step).is_some_and(|(measured, by_chance)| {
        let chance = by_chance.unwrap_or(1.0) - 1.0;
        measured >= UNEVEN && measured - 1.0 >= TIMES_CHANCE * chance
    })
}

/// Greatest over mean load, and what chance gives: by records, else by the engines' sequences, of which chance is not
/// known.
fn unevenness(step: &Step<'_>) -> Option<(f64, Option<f64>)> {
    let by_records = |point: &PointView| point.instances.as_ref()?.load_skew;
    if let Some(measured) = step.mean(|point| Some(by_records(point)?.measured)) {
        return Some((
            measured,
            step.mean(|point| Some(by_records(point)?.by_chance)),
        ));
    }
    Some((step.mean(by_sequences)?, None))
}

fn by_sequences(point: &PointView) -> Option<f64> {
    let sequences = |watch: &InstanceWatch| Some(watch.running?.mean + watch.waiting?.mean);
    let all: Vec<f64> = point.watched.each.values().filter_map(sequences).collect();
    let mean = crate::report::statistics::mean(&all).filter(|mean| *mean > 0.0)?;
    (all.len() > 1).then(|| all.iter().copied().fold(0.0, f64::max) / mean)
}

/// What it costs: the missing efficiency; where throughput follows the load all the same, as under a rate, the waiting
/// on the fullest instance. `None` if nothing.
fn cost(case: &Case<'_>, curve: &Curve<'_>, step: &Step<'_>) -> Option<f64> {
    let missing = efficiency(case, curve, step).map(|efficiency| 1.0 - efficiency.value);
    let costs = missing.is_some_and(|missing| missing > 1.0 - COSTS_BELOW)
        || ttft_of_fullest(step).is_some_and(|ratio| ratio >= TTFT_WORSE);
    costs.then(|| missing.unwrap_or(0.0).max(0.0))
}

fn efficiency<'c>(
    case: &'c Case<'_>,
    curve: &Curve<'_>,
    step: &Step<'_>,
) -> Option<&'c Efficiency> {
    let its = |efficiency: &&Efficiency| {
        !efficiency.generator_bound && efficiency.points.starts_with(&step.ids())
    };
    case.scalings
        .iter()
        .filter(|view| view.family == curve.family)
        .flat_map(|view| &view.fleets)
        .flat_map(|fleet| &fleet.at_equal_load)
        .find(its)
}

/// Median server TTFT of the fullest instance over the mean of the others' medians.
fn ttft_of_fullest(step: &Step<'_>) -> Option<f64> {
    step.mean(|point| {
        let each = &point.instances.as_ref()?.each;
        let fullest = each.iter().max_by(|a, b| {
            a.mean_outstanding_tokens
                .total_cmp(&b.mean_outstanding_tokens)
        })?;
        let others = each.iter().filter(|view| view.name != fullest.name);
        let others: Vec<f64> = others
            .filter_map(|view| Some(view.server_ttft?.p50))
            .collect();
        let mean = crate::report::statistics::mean(&others).filter(|mean| *mean > 0.0)?;
        Some(fullest.server_ttft?.p50 / mean)
    })
}

fn evidence(case: &Case<'_>, curve: &Curve<'_>, step: &Step<'_>) -> Vec<Evidence> {
    let ids = step.ids();
    let uneven = unevenness(step);
    let all = [
        Evidence::some(
            "load of the fullest instance over the mean",
            uneven.map(|(measured, _)| measured),
            "",
            format!("uneven from {UNEVEN}"),
            ids.clone(),
        ),
        Evidence::some(
            "the same by chance alone",
            uneven.and_then(|(_, by_chance)| by_chance),
            "",
            format!("the excess over 1 must be {TIMES_CHANCE} times its"),
            ids.clone(),
        ),
        Evidence::some(
            "requests of the instance that got most over the mean",
            step.mean(|point| point.instances.as_ref()?.request_imbalance),
            "",
            format!("even below {REQUESTS_EVEN}"),
            ids.clone(),
        ),
        Evidence::some(
            "scaling efficiency at equal load for each instance",
            efficiency(case, curve, step).map(|efficiency| efficiency.value),
            "",
            format!("costs something below {COSTS_BELOW}"),
            ids.clone(),
        ),
        Evidence::some(
            "median server TTFT of the fullest instance over the others'",
            ttft_of_fullest(step),
            "",
            format!("worse from {TTFT_WORSE}"),
            ids,
        ),
    ];
    all.into_iter().flatten().collect()
}
