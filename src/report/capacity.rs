//! How much a fleet carries: the largest load within the service level, and where overload begins. Pure.

use serde::Serialize;

use super::curves::{Curve, Step};

/// A fall or a stall of throughput by less than this share is noise.
const NOISE_SHARE: f64 = 0.02;
/// Load that must have grown by this share for a stall to say something.
const LEAST_LOAD_GROWTH: f64 = 0.2;
/// Failed requests from which a load is overload.
pub const LOST_SHARE: f64 = 0.01;
/// Answers to requests, under a rate, below which a load is overload.
const KEPT_UP_SHARE: f64 = 0.95;

/// What tells that a load is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// throughput is lower than under less load
    ThroughputFell,
    /// throughput is not higher than under less load
    ThroughputStalled,
    /// requests failed
    RequestsLost,
    /// answers came slower than requests
    FellBehind,
}

/// Where overload begins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Onset {
    /// the first load that is too much, for all instances together
    pub load: f64,
    /// what told
    pub sign: Sign,
    /// points
    pub points: Vec<String>,
}

/// The largest load that a fleet carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effective {
    /// concurrency, requests a second, or requests, for all instances together
    pub load: f64,
    /// output tokens a second there
    pub output_tokens_per_s: f64,
    /// share of requests within the service level there; absent without objectives
    pub attainment: Option<f64>,
    /// it is the highest load that was tried: it may carry more
    pub is_highest_tried: bool,
    /// points
    pub points: Vec<String>,
}

/// The highest load that meets the service level before throughput falls; `None` if none does. Without objectives it is
/// the highest before throughput falls or requests are lost.
pub fn largest_effective(curve: &Curve<'_>, attainment: f64) -> Option<Effective> {
    let mut best_tokens_per_s: f64 = 0.0;
    let mut found = None;
    for (at, step) in curve.steps.iter().enumerate() {
        let tokens_per_s = step.output_tokens_per_s()?;
        if tokens_per_s < best_tokens_per_s * (1.0 - NOISE_SHARE) {
            break;
        }
        best_tokens_per_s = best_tokens_per_s.max(tokens_per_s);
        if meets(step, attainment) {
            found = Some(Effective {
                load: load(step),
                output_tokens_per_s: tokens_per_s,
                attainment: step.mean(|point| point.attainment),
                is_highest_tried: at + 1 == curve.steps.len(),
                points: step.ids(),
            });
        }
    }
    found
}

/// Whether a load meets the service level, or, without one, loses no request.
pub fn meets(step: &Step<'_>, attainment: f64) -> bool {
    match step.mean(|point| point.attainment) {
        Some(share) => share >= attainment,
        None => step
            .mean(|point| point.failed_share())
            .is_some_and(|lost| lost <= LOST_SHARE),
    }
}

/// The first load that is too much; `None` if none was.
pub fn overload_onset(curve: &Curve<'_>) -> Option<Onset> {
    let signs = curve.steps.iter().enumerate().filter_map(|(at, step)| {
        let before = at.checked_sub(1).map(|at| &curve.steps[at]);
        Some((sign(step, before)?, step))
    });
    let (sign, step) = signs.into_iter().next()?;
    Some(Onset {
        load: load(step),
        sign,
        points: step.ids(),
    })
}

fn sign(step: &Step<'_>, before: Option<&Step<'_>>) -> Option<Sign> {
    let lost = step.mean(|point| point.failed_share());
    if lost.is_some_and(|lost| lost > LOST_SHARE) {
        return Some(Sign::RequestsLost);
    }
    let kept_up = step.mean(|point| {
        let offered = point.offered?;
        Some(offered.completed_per_s / offered.planned_per_s)
    });
    if kept_up.is_some_and(|share| share < KEPT_UP_SHARE) {
        return Some(Sign::FellBehind);
    }
    let before = before?;
    let change = step.output_tokens_per_s()? / before.output_tokens_per_s()?;
    if change < 1.0 - NOISE_SHARE {
        return Some(Sign::ThroughputFell);
    }
    let grew = step.load_per_unit >= before.load_per_unit * (1.0 + LEAST_LOAD_GROWTH);
    (grew && change < 1.0 + NOISE_SHARE).then_some(Sign::ThroughputStalled)
}

fn load(step: &Step<'_>) -> f64 {
    step.first().setting.load.amount()
}
