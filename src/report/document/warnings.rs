//! What a reader must know before believing a figure. Pure.

use super::told::{ToldPoint, ToldStudy};
use crate::report::steadiness::Steadiness;
use crate::report::verdict::Diagnosis;
use crate::study::point::Point;

/// Of one study.
pub fn of(study: &ToldStudy, diagnosis: &Diagnosis) -> Vec<String> {
    let mut warnings = Vec::new();
    if study.file.simulated {
        warnings.push("Engines were models on a virtual clock, not servers.".to_owned());
    }
    let points = &study.points;
    let mut counted = |of: &dyn Fn(&ToldPoint) -> bool, what: &str| {
        let its: Vec<&str> = points
            .iter()
            .filter(|point| of(point))
            .map(|point| point.view.id.as_str())
            .collect();
        if let Some(first) = its.first() {
            let which = if its.len() == 1 {
                format!("{first} ")
            } else {
                format!(
                    "{} of {} points, such as {first}, ",
                    its.len(),
                    points.len()
                )
            };
            warnings.push(format!("{which}{what}"));
        }
    };
    counted(
        &|point| {
            point
                .view
                .generator
                .is_some_and(|generator| generator.bottleneck.is_some())
        },
        "had a saturated generator: figures there are the generator's, not the fleet's.",
    );
    counted(
        &|point| {
            point
                .view
                .latencies
                .ttft
                .is_some_and(|ttft| !ttft.p99_supported)
        },
        "had too few complete requests to bound a P99 (368 are needed).",
    );
    counted(
        &|point| matches!(point.view.steadiness, Steadiness::Trending(_)),
        "had not settled: TTFT, E2E or throughput still rose or fell within the window.",
    );
    counted(
        &|point| point.lengths_assumed,
        "drew lengths from the mix that Evenkeel assumes (20 % short, 60 % medium, 20 % long): replay a trace for yours.",
    );
    counted(
        &|point| point.one_length,
        "sent prompts, or asked for answers, of one single length: batches of equal lengths scale better than real ones.",
    );
    if !study.unfinished.is_empty() {
        warnings.push(format!(
            "{} points were not finished and are left out.",
            study.unfinished.len()
        ));
    }
    warnings.extend(diagnosis.caveats.iter().map(|caveat| format!("{caveat}.")));
    warnings
}

/// Whether all prompts, or all answers that were asked for, had one length.
pub fn has_one_length(point: &Point) -> bool {
    let one = |of: fn(&crate::load::sample::Sample) -> u32| {
        let mut lengths = point.requests.iter().map(|request| of(&request.sample));
        let first = lengths.next();
        first.is_some_and(|first| {
            first > 0 && point.requests.len() > 1 && lengths.all(|other| other == first)
        })
    };
    one(|sample| sample.planned_prompt_tokens) || one(|sample| sample.planned_output_tokens)
}
