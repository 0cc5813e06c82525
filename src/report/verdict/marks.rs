//! What a curve shows: how throughput and TPOT answer to load, and its busiest instance. Pure.
//!
//! A gain is an elasticity: the logarithm of the growth of throughput over that of the load. 1 is "twice the load,
//! twice the work", 0 is a plateau, and below 0 throughput falls.

use crate::report::curves::{Curve, Step};
use crate::report::point::PointView;
use crate::report::scaling::is_generator_bound;
use crate::report::watched::{Gauge, InstanceWatch};

/// Least growth of a load between two steps whose gain is asked for.
const LEAST_GROWTH: f64 = 1.2;
/// Least growth of the batch between two steps.
const LEAST_BATCH_GROWTH: f64 = 1.15;
/// Gain below which more load brings little.
pub(super) const STALLED_GAIN: f64 = 0.35;

/// The steps of a curve that say something about the fleet: those at which the generator kept up.
pub(super) fn clean<'c, 'a>(curve: &'c Curve<'a>) -> Vec<&'c Step<'a>> {
    let steps = curve.steps.iter();
    steps.filter(|step| !is_generator_bound(step)).collect()
}

/// Elasticity of throughput to load at the highest clean loads.
pub(super) fn gain(steps: &[&Step<'_>]) -> Option<f64> {
    let top = steps.last()?;
    let before = steps
        .iter()
        .rev()
        .find(|step| step.load_per_unit * LEAST_GROWTH <= top.load_per_unit)?;
    elasticity(
        top.load_per_unit / before.load_per_unit,
        tokens(top)? / tokens(before)?,
    )
}

/// Whether more load brings little at the highest clean loads; `None` with one load only.
pub(super) fn is_stalled(steps: &[&Step<'_>]) -> Option<bool> {
    gain(steps).map(|gain| gain < STALLED_GAIN)
}

/// Elasticity of throughput to the sequences that run at once, on the busiest instance, at the largest batches.
pub(super) fn batch_gain(steps: &[&Step<'_>]) -> Option<f64> {
    let running = |step: &Step<'_>| mean_of(step, |watch| watch.running).filter(|mean| *mean > 0.0);
    let top = steps
        .iter()
        .filter(|step| running(step).is_some())
        .max_by(|a, b| {
            running(a)
                .unwrap_or(0.0)
                .total_cmp(&running(b).unwrap_or(0.0))
        })?;
    let most = running(top)?;
    let smaller = |step: &&&Step<'_>| {
        running(step).is_some_and(|running| running * LEAST_BATCH_GROWTH <= most)
    };
    let before = steps.iter().rev().find(smaller)?;
    elasticity(most / running(before)?, tokens(top)? / tokens(before)?)
}

fn elasticity(of_load: f64, of_throughput: f64) -> Option<f64> {
    let gain = of_throughput.ln() / of_load.ln();
    gain.is_finite().then_some(gain)
}

fn tokens(step: &Step<'_>) -> Option<f64> {
    step.output_tokens_per_s().filter(|tokens| *tokens > 0.0)
}

/// Median TPOT at the highest clean load over that at the lowest.
pub(super) fn tpot_growth(steps: &[&Step<'_>]) -> Option<f64> {
    Some(tpot_ms(steps.last()?)? / tpot_ms(steps.first()?)?)
}

/// Median TPOT.
pub(super) fn tpot_ms(step: &Step<'_>) -> Option<f64> {
    step.mean(|point| Some(point.latencies.tpot?.p50))
        .filter(|ms| *ms > 0.0)
}

/// Share of the throughput that the load would have brought at the gain of the lowest load, and did not.
pub(super) fn missing_share(steps: &[&Step<'_>]) -> f64 {
    let ends = steps.first().zip(steps.last());
    let share = ends.and_then(|(low, top)| {
        let hoped = tokens(low)? * top.load_per_unit / low.load_per_unit;
        Some(1.0 - tokens(top)? / hoped)
    });
    share.unwrap_or(0.0).clamp(0.0, 1.0)
}

/// The instance with the most sequences, running and waiting; of one, that one.
pub(super) fn busiest(point: &PointView) -> Option<(&str, &InstanceWatch)> {
    let mean = |gauge: Option<Gauge>| gauge.map_or(0.0, |gauge| gauge.mean);
    let sequences = |watch: &InstanceWatch| mean(watch.running) + mean(watch.waiting);
    let each = point.watched.each.iter();
    each.max_by(|(_, a), (_, b)| sequences(a).total_cmp(&sequences(b)))
        .map(|(name, watch)| (name.as_str(), watch))
}

/// Mean of a gauge of the busiest instance, over repetitions.
pub(super) fn mean_of(step: &Step<'_>, of: fn(&InstanceWatch) -> Option<Gauge>) -> Option<f64> {
    step.mean(|point| Some(of(busiest(point)?.1)?.mean))
}

/// Greatest of a gauge of the busiest instance, mean over repetitions.
pub(super) fn max_of(step: &Step<'_>, of: fn(&InstanceWatch) -> Option<Gauge>) -> Option<f64> {
    step.mean(|point| Some(of(busiest(point)?.1)?.max))
}
