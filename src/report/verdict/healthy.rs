//! What is said where no rule holds, and what weakens all that is said. Pure.

use super::evidence::Evidence;
use super::marks::{STALLED_GAIN, clean, gain, is_stalled};
use super::{Case, Kind, Verdict};
use crate::report::capacity::{LOST_SHARE, meets};
use crate::report::curves::Curve;
use crate::report::scaling::{Band, Efficiency};

/// Where no rule holds: healthy, or, if it scales badly, stalls, or never meets its service level, not explained.
pub(super) fn otherwise(case: &Case<'_>) -> Verdict {
    let (good, bad) = evidence(case);
    let curves = case.curves.iter().map(Curve::name).collect();
    if bad.is_empty() {
        return Verdict {
            kind: Kind::Healthy,
            cost_share: 0.0,
            says: "Nothing holds the fleet back within the loads that were tried.".into(),
            evidence: good,
            change: "Nothing; to find its limit, send more load".into(),
            counter_experiment: None,
            curves,
        };
    }
    Verdict {
        kind: Kind::Unexplained,
        cost_share: 0.0,
        says: "Something holds the fleet back, and nothing that was measured tells what.".into(),
        evidence: bad,
        change: "Measure what is listed as not judged, and run the same again".into(),
        counter_experiment: None,
        curves,
    }
}

/// What speaks for the fleet, and what against it.
fn evidence(case: &Case<'_>) -> (Vec<Evidence>, Vec<Evidence>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for efficiency in highest(case) {
        let one = Evidence::new(
            "scaling efficiency at the highest equal load",
            efficiency.value,
            "",
            "acceptable from 0.7",
            efficiency.points.clone(),
        );
        match Band::of(efficiency.value) {
            Band::Excellent | Band::Acceptable => good.push(one),
            Band::Doubtful | Band::Bottleneck => bad.push(one),
        }
    }
    for curve in &case.curves {
        let Some(lowest) = curve.steps.first() else {
            continue;
        };
        let steps = clean(curve);
        if is_stalled(&steps) == Some(true) {
            bad.extend(Evidence::some(
                "growth of throughput for growth of load at the highest loads",
                gain(&steps),
                "",
                format!("stalled below {STALLED_GAIN}"),
                steps.last().map_or_else(Vec::new, |step| step.ids()),
            ));
        }
        if !meets(lowest, case.study.attainment) {
            bad.extend(Evidence::some(
                "requests within the service level at the lowest load",
                lowest
                    .mean(|point| point.attainment)
                    .or_else(|| lowest.mean(|point| point.success_share)),
                "of all",
                format!("at least {}", case.study.attainment),
                lowest.ids(),
            ));
        }
    }
    (good, bad)
}

fn highest<'c>(case: &'c Case<'_>) -> impl Iterator<Item = &'c Efficiency> {
    let ours = |variant: &str| {
        case.curves
            .iter()
            .any(|curve| curve.family.variant == variant)
    };
    case.scalings
        .iter()
        .filter(move |view| ours(&view.family.variant))
        .flat_map(|view| &view.fleets)
        .filter_map(|fleet| fleet.at_highest_load())
}

/// Failures, and points of which files are missing.
pub(super) fn caveats(case: &Case<'_>) -> Vec<String> {
    let points = || {
        let steps = case.curves.iter().flat_map(|curve| &curve.steps);
        steps.flat_map(|step| step.repeats.iter())
    };
    let failing: Vec<f64> = points()
        .filter_map(|point| point.failed_share())
        .filter(|share| *share > LOST_SHARE)
        .collect();
    let incomplete = points().filter(|point| point.problems > 0).count();
    let mut caveats = Vec::new();
    if let Some(worst) = failing.iter().copied().reduce(f64::max) {
        caveats.push(format!(
            "{} points lost more than 1 % of their requests, the worst {:.0} %: latencies there are of those that came through",
            failing.len(),
            worst * 100.0
        ));
    }
    if incomplete > 0 {
        caveats.push(format!(
            "{incomplete} points lack files or have lines that could not be read"
        ));
    }
    caveats
}
