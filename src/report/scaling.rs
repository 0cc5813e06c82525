//! Scaling efficiency Tn / (n · T1), at equal load for each unit and each at its own best load within the service
//! level; horizontal and vertical apart. Pure.
//!
//! T is output tokens a second. Never at equal total load: a fleet of n that gets the load of one has nothing to scale.

use serde::Serialize;

use super::capacity::{Effective, LOST_SHARE, Onset, largest_effective, overload_onset};
use super::curves::{Curve, Family, Step, curves};
use super::point::PointView;
use super::statistics::{Interval, ratio_of_means_interval};
use crate::study::{Price, Scaling, Scenario, StudyFile};

/// Confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;
/// Growth of the mean request time of offline work that is a worsening.
const WORSE_TIME_RATIO: f64 = 1.1;

/// What an efficiency is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Band {
    /// below 0.6
    Bottleneck,
    /// 0.6 to 0.7
    Doubtful,
    /// from 0.7
    Acceptable,
    /// from 0.9
    Excellent,
}

impl Band {
    /// Of an efficiency.
    pub fn of(efficiency: f64) -> Band {
        match efficiency {
            at_least if at_least >= 0.9 => Band::Excellent,
            at_least if at_least >= 0.7 => Band::Acceptable,
            at_least if at_least >= 0.6 => Band::Doubtful,
            _ => Band::Bottleneck,
        }
    }

    /// The next lower one: what failures cost.
    fn lower(self) -> Band {
        match self {
            Band::Excellent => Band::Acceptable,
            Band::Acceptable => Band::Doubtful,
            Band::Doubtful | Band::Bottleneck => Band::Bottleneck,
        }
    }

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Band::Excellent => "excellent",
            Band::Acceptable => "acceptable",
            Band::Doubtful => "doubtful",
            Band::Bottleneck => "bottleneck",
        }
    }
}

/// What an interval was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalOf {
    /// repetitions of the whole point
    Repeats,
    /// equal parts of one run: it knows nothing of what differs between runs
    Slices,
}

/// An efficiency.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Efficiency {
    /// load for each unit; at own best loads, that of the larger fleet
    pub load_per_unit: f64,
    /// Tn, output tokens a second
    pub tokens_per_s: f64,
    /// T1
    pub unit_tokens_per_s: f64,
    /// Tn / (n · T1), with its interval where one could be made
    pub value: f64,
    /// 95 %
    pub interval: Option<Interval>,
    /// what the interval was made from
    pub interval_of: Option<IntervalOf>,
    /// what it is called; one lower where requests failed
    pub band: Band,
    /// requests failed: share of the larger fleet's, where above 1 %
    pub failed_share: Option<f64>,
    /// share within the service level, of the larger fleet and of the unit
    pub attainment: Option<(f64, f64)>,
    /// mean request time of the larger fleet over that of the unit
    pub mean_e2e_ratio: Option<f64>,
    /// offline work whose mean request time grew
    pub request_time_grew: bool,
    /// the generator was the limit in one of both
    pub generator_bound: bool,
    /// points, larger fleet first
    pub points: Vec<String>,
}

/// A fleet beside its unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fleet {
    /// instances
    pub instances: u32,
    /// GPUs in each
    pub gpus_per_instance: u32,
    /// n
    pub multiple: u32,
    /// largest load within the service level
    pub effective: Option<Effective>,
    /// where overload begins
    pub overload: Option<Onset>,
    /// (a) at equal load for each unit, lowest first; empty for the unit itself
    pub at_equal_load: Vec<Efficiency>,
    /// (b) each at its own best load within the service level
    pub at_best: Option<Efficiency>,
    /// price of a million output tokens within the service level, at the largest effective load
    pub price_per_million_tokens: Option<f64>,
}

impl Fleet {
    /// The efficiency at the highest equal load: what it is called by.
    pub fn at_highest_load(&self) -> Option<&Efficiency> {
        self.at_equal_load.last()
    }
}

/// One curve of fleets: a unit and its multiples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScalingView {
    /// what all points share
    pub family: Family,
    /// more instances, or more GPUs in an instance
    pub scaling: Scaling,
    /// the unit first
    pub fleets: Vec<Fleet>,
}

/// Every scaling curve of a study.
pub fn scalings(points: &[PointView], study: &StudyFile) -> Vec<ScalingView> {
    let curves = curves(points);
    let mut views: Vec<ScalingView> = Vec::new();
    for unit in &curves {
        for scaling in [Scaling::Horizontal, Scaling::Vertical] {
            let bigger: Vec<&Curve<'_>> = curves
                .iter()
                .filter(|curve| curve.scaling() == Some(scaling) && unit.is_unit_of(curve))
                .collect();
            if bigger.is_empty() {
                continue;
            }
            let mut fleets = vec![fleet(unit, None, study)];
            fleets.extend(
                bigger
                    .into_iter()
                    .map(|curve| fleet(curve, Some(unit), study)),
            );
            views.push(ScalingView {
                family: unit.family.clone(),
                scaling,
                fleets,
            });
        }
    }
    views
}

fn fleet(curve: &Curve<'_>, unit: Option<&Curve<'_>>, study: &StudyFile) -> Fleet {
    let effective = largest_effective(curve, study.attainment);
    let n = f64::from(curve.multiple());
    let at_equal_load = unit.map_or_else(Vec::new, |unit| {
        let beside = |step: &Step<'_>| efficiency(step, unit.at_load(step.load_per_unit)?, n);
        curve.steps.iter().filter_map(beside).collect()
    });
    let best = |curve: &Curve<'_>| {
        let effective = largest_effective(curve, study.attainment)?;
        curve
            .steps
            .iter()
            .position(|step| step.ids() == effective.points)
    };
    let at_best = unit.and_then(|unit| {
        let (many, one) = (&curve.steps[best(curve)?], &unit.steps[best(unit)?]);
        efficiency(many, one, n)
    });
    Fleet {
        instances: curve.instances,
        gpus_per_instance: curve.gpus_per_instance,
        multiple: curve.multiple(),
        price_per_million_tokens: effective
            .as_ref()
            .zip(study.gpu_hour_price.as_ref())
            .and_then(|(effective, price)| price_per_million(curve, effective, price)),
        effective,
        overload: overload_onset(curve),
        at_equal_load,
        at_best,
    }
}

fn efficiency(many: &Step<'_>, one: &Step<'_>, n: f64) -> Option<Efficiency> {
    let (tokens_per_s, unit) = (many.output_tokens_per_s()?, one.output_tokens_per_s()?);
    if unit <= 0.0 {
        return None;
    }
    let value = tokens_per_s / (n * unit);
    let found = interval(many, one, n);
    let failed = many.mean(PointView::failed_share);
    let failed_share = failed.filter(|share| *share > LOST_SHARE);
    let band = Band::of(value);
    let mean_e2e = |step: &Step<'_>| step.mean(|point| Some(point.latencies.e2e?.mean));
    let mean_e2e_ratio = mean_e2e(many)
        .zip(mean_e2e(one))
        .map(|(many, one)| many / one);
    let offline = many.first().setting.scenario == Scenario::Offline;
    Some(Efficiency {
        load_per_unit: many.load_per_unit,
        tokens_per_s,
        unit_tokens_per_s: unit,
        value,
        interval: found.map(|(interval, _)| interval),
        interval_of: found.map(|(_, of)| of),
        band: failed_share.map_or(band, |_| band.lower()),
        failed_share,
        attainment: many
            .mean(|point| point.attainment)
            .zip(one.mean(|point| point.attainment)),
        request_time_grew: offline && mean_e2e_ratio.is_some_and(|ratio| ratio > WORSE_TIME_RATIO),
        mean_e2e_ratio,
        generator_bound: is_generator_bound(many) || is_generator_bound(one),
        points: [many.ids(), one.ids()].concat(),
    })
}

/// Whether what was measured is the generator and not the fleet.
pub fn is_generator_bound(step: &Step<'_>) -> bool {
    let bound = |point: &&PointView| {
        point
            .generator
            .is_some_and(|generator| generator.bottleneck.is_some())
    };
    step.repeats.iter().any(bound)
}

/// By repetitions where both have at least two, else by equal parts of one run.
fn interval(many: &Step<'_>, one: &Step<'_>, n: f64) -> Option<(Interval, IntervalOf)> {
    let repeats = |step: &Step<'_>, over: f64| -> Vec<f64> {
        let its = step.repeats.iter();
        its.filter_map(|point| Some(point.output_tokens_per_s()? / over))
            .collect()
    };
    let (a, b) = (repeats(many, n), repeats(one, 1.0));
    if a.len() >= 2 && b.len() >= 2 {
        return Some((
            ratio_of_means_interval(&a, &b, CONFIDENCE)?,
            IntervalOf::Repeats,
        ));
    }
    let slices = |step: &Step<'_>, over: f64| -> Vec<f64> {
        let its = step.first().slices.iter();
        its.map(|slice| slice.output_tokens_per_s() / over)
            .collect()
    };
    let found = ratio_of_means_interval(&slices(many, n), &slices(one, 1.0), CONFIDENCE)?;
    Some((found, IntervalOf::Slices))
}

/// Price of the GPUs over the tokens of requests within the service level.
fn price_per_million(curve: &Curve<'_>, effective: &Effective, price: &Price) -> Option<f64> {
    let step = curve
        .steps
        .iter()
        .find(|step| step.ids() == effective.points)?;
    let good_per_s = step.mean(|point| point.good_output_tokens_per_s)?;
    let gpus = f64::from(curve.units());
    (good_per_s > 0.0).then(|| price.amount * gpus / 3600.0 / good_per_s * 1e6)
}

#[cfg(test)]
#[path = "scaling_tests.rs"]
mod tests;
