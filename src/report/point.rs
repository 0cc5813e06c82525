//! A point of a study in figures: all that tables, curves and verdicts are made from. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::both_sides::BothSides;
use super::generator::Generator;
use super::goodput::{Goodput, Objective, is_good};
use super::instances::Instances;
use super::latency::{BUCKETS, output_tokens};
use super::load_summary::failure_name;
use super::slices::Slice;
use super::steadiness::Steadiness;
use super::throughput::Throughput;
use super::watched::Watched;
use super::window::entered_ns;
use crate::load::sample::Sample;
use crate::study::point::{Point, PointRequest};
use crate::study::{Load, Setting};

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

/// How many requests are in the figures and how many are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// that count
    pub counted: u64,
    /// issued in the warm-up
    pub warm_up: u64,
    /// cut at the ends
    pub cut: u64,
}

/// Requests of one length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LengthView {
    /// `short`, `medium` or `long`, by planned prompt
    pub length: &'static str,
    /// their latencies
    pub latencies: BothSides,
}

/// What was asked of the fleet and what it did, under Poisson arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Offered {
    /// requests a second that were set
    pub set_per_s: f64,
    /// requests a second that were planned in the window; the draw differs from what was set by chance
    pub planned_per_s: f64,
    /// requests a second that were issued
    pub issued_per_s: f64,
    /// complete answers a second
    pub completed_per_s: f64,
    /// requests that count and failed: lost
    pub lost: u64,
    /// share of them
    pub lost_share: f64,
}

/// A point in figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointView {
    /// its name
    pub id: String,
    /// what was set
    pub setting: Setting,
    /// requests in and out
    pub kept: Kept,
    /// complete requests among those that count
    pub completed: u64,
    /// share of them; absent if none counts
    pub success_share: Option<f64>,
    /// failures among those that count, by kind
    pub failures: BTreeMap<String, u64>,
    /// of all that count
    pub latencies: BothSides,
    /// by length, for lengths that occur
    pub lengths: Vec<LengthView>,
    /// requests that met every objective; absent without objectives
    pub goodput: Option<Goodput>,
    /// share of requests that met every objective, failed ones in the denominator
    pub attainment: Option<f64>,
    /// good requests a second
    pub good_per_s: Option<f64>,
    /// output tokens a second of good requests: throughput, by their share of the tokens
    pub good_output_tokens_per_s: Option<f64>,
    /// work done in the window
    pub throughput: Option<Work>,
    /// throughput in equal parts of the window
    pub slices: Vec<Slice>,
    /// whether it was steady
    pub steadiness: Steadiness,
    /// absent without a rate
    pub offered: Option<Offered>,
    /// what the generator cost and how it kept up
    pub generator: Option<Generator>,
    /// what each instance got; absent without the balancer's records
    pub instances: Option<Instances>,
    /// what the monitor saw
    pub watched: Watched,
    /// preemptions for each complete answer in the window
    pub preemptions_per_request: Option<f64>,
    /// files and lines that are missing or could not be read
    pub problems: u64,
}

/// Throughput in the units that people ask for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Work {
    /// what was counted
    #[serde(flatten)]
    pub counted: Throughput,
    /// complete answers a second
    pub requests_per_s: f64,
    /// output tokens a second
    pub output_tokens_per_s: f64,
    /// prompt and output tokens a second
    pub tokens_per_s: f64,
    /// output tokens a GPU a day
    pub output_tokens_per_gpu_day: f64,
}

impl PointView {
    /// Reads a point; `objectives` are those of the study.
    pub fn of(point: &Point, objectives: &[Objective]) -> PointView {
        let counted: Vec<&PointRequest> = point.counted().collect();
        let samples: Vec<&Sample> = counted.iter().map(|request| &request.sample).collect();
        let all: Vec<&Sample> = point
            .requests
            .iter()
            .map(|request| &request.sample)
            .collect();
        let completed = complete(&samples);
        let goodput = Goodput::of(objectives, &samples);
        let throughput = point
            .window
            .and_then(|window| Throughput::of(&all, &window));
        let watched = Watched::of(point);
        let work = throughput.map(|counted| work(counted, &point.file.setting));
        PointView {
            id: point.file.id.clone(),
            setting: point.file.setting.clone(),
            kept: kept(point),
            completed,
            success_share: share(completed, samples.len() as u64),
            failures: failures(&samples),
            latencies: BothSides::of(&counted),
            lengths: lengths(&counted),
            attainment: goodput.as_ref().and_then(Goodput::share),
            good_per_s: goodput
                .as_ref()
                .zip(throughput)
                .map(|(goodput, done)| goodput.good as f64 / done.seconds),
            good_output_tokens_per_s: good_tokens_share(objectives, &samples)
                .zip(work)
                .map(|(share, work)| share * work.output_tokens_per_s),
            goodput,
            slices: point
                .window
                .map_or_else(Vec::new, |window| super::slices::of(&all, &window)),
            steadiness: point
                .window
                .map_or(Steadiness::TooFew, |window| Steadiness::of(&all, &window)),
            offered: offered(point, &samples),
            generator: point.generator,
            instances: Instances::of(point),
            preemptions_per_request: preemptions_per_request(&watched, throughput),
            watched,
            throughput: work,
            problems: point.problems.len() as u64,
        }
    }

    /// Output tokens a second; absent if nothing was measured.
    pub fn output_tokens_per_s(&self) -> Option<f64> {
        self.throughput.map(|work| work.output_tokens_per_s)
    }

    /// Share of failed requests among those that count.
    pub fn failed_share(&self) -> Option<f64> {
        self.success_share.map(|share| 1.0 - share)
    }

    /// Figures of one length.
    pub fn length(&self, name: &str) -> Option<&BothSides> {
        let its = self.lengths.iter().find(|length| length.length == name)?;
        Some(&its.latencies)
    }
}

fn work(counted: Throughput, setting: &Setting) -> Work {
    let gpus = f64::from(setting.instances) * f64::from(setting.gpus_per_instance);
    Work {
        requests_per_s: counted.requests_per_s(),
        output_tokens_per_s: counted.output_tokens_per_s(),
        tokens_per_s: counted.tokens_per_s(),
        output_tokens_per_gpu_day: counted.output_tokens_per_s() * DAY_S / gpus.max(1.0),
        counted,
    }
}

/// Share of the complete requests' output tokens that is in good ones.
fn good_tokens_share(objectives: &[Objective], samples: &[&Sample]) -> Option<f64> {
    let tokens = |sample: &&&Sample| output_tokens(sample).unwrap_or(0);
    let complete = || samples.iter().filter(|sample| sample.failure.is_none());
    let good = complete().filter(|sample| is_good(objectives, sample));
    share(
        good.map(|one| tokens(&one)).sum(),
        complete().map(|one| tokens(&one)).sum(),
    )
}

fn complete(samples: &[&Sample]) -> u64 {
    let complete = samples.iter().filter(|sample| sample.failure.is_none());
    complete.count() as u64
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn kept(point: &Point) -> Kept {
    let mut kept = Kept::default();
    for request in &point.requests {
        let place = match (request.counted, request.warm_up) {
            (true, _) => &mut kept.counted,
            (false, true) => &mut kept.warm_up,
            (false, false) => &mut kept.cut,
        };
        *place += 1;
    }
    kept
}

fn failures(samples: &[&Sample]) -> BTreeMap<String, u64> {
    let mut failures = BTreeMap::new();
    for sample in samples {
        if let Some(failure) = sample.failure {
            let name = failure_name(failure, sample.status);
            *failures.entry(name).or_default() += 1;
        }
    }
    failures
}

fn lengths(counted: &[&PointRequest]) -> Vec<LengthView> {
    let view = |bucket| {
        let its = counted.iter().filter(|request| request.bucket == bucket);
        let its: Vec<&PointRequest> = its.copied().collect();
        (!its.is_empty()).then(|| LengthView {
            length: bucket.name(),
            latencies: BothSides::of(&its),
        })
    };
    BUCKETS.into_iter().filter_map(view).collect()
}

fn offered(point: &Point, counted: &[&Sample]) -> Option<Offered> {
    let Load::Poisson { rate_per_s } = point.file.setting.load else {
        return None;
    };
    let window = point.window?;
    let seconds = window.to_ns.saturating_sub(window.from_ns) as f64 / 1e9;
    if seconds <= 0.0 || counted.is_empty() {
        return None;
    }
    let inside = |at_ns: u64| (window.from_ns..=window.to_ns).contains(&at_ns);
    let of = |number: usize| number as f64 / seconds;
    let all = || point.requests.iter().map(|request| &request.sample);
    let ended = all().filter(|sample| sample.failure.is_none() && inside(sample.end_ns));
    let lost = counted.len() as u64 - complete(counted);
    Some(Offered {
        set_per_s: rate_per_s,
        planned_per_s: of(all().filter(|sample| inside(sample.planned_ns)).count()),
        issued_per_s: of(all().filter(|sample| inside(entered_ns(sample))).count()),
        completed_per_s: of(ended.count()),
        lost,
        lost_share: lost as f64 / counted.len() as f64,
    })
}

fn preemptions_per_request(watched: &Watched, done: Option<Throughput>) -> Option<f64> {
    let (preemptions, done) = (watched.fleet.preemptions?, done?);
    (done.completed > 0).then(|| preemptions / done.completed as f64)
}

#[cfg(test)]
#[path = "point_tests.rs"]
mod tests;
