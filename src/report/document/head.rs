//! The first screen of a study: the verdict in a sentence, what to do next, and the three figures that carry it: how it
//! scales, what it carries, and the evidence that names what holds it back. Pure.

use super::scaling::curve_words;
use super::told::{ToldStudy, load_words};
use super::{Head, Headline, Judgement};
use crate::report::scaling::{Band, Fleet, ScalingView, scalings};
use crate::report::terminal::number;
use crate::report::verdict::{Diagnosis, Kind};
use crate::study::{Load, Scenario};

/// Of a study.
pub fn of(study: &ToldStudy, diagnosis: &Diagnosis, named: bool) -> Head {
    let scalings = scalings(&study.views(), &study.file);
    let main = main_curve(&scalings);
    let verdict = diagnosis.verdicts.first();
    let sentence = match verdict {
        Some(verdict) if verdict.kind == Kind::Healthy => verdict.says.clone(),
        Some(verdict) => format!("{}. {}", capital(verdict.kind.name()), verdict.says),
        None => "Nothing was judged.".to_owned(),
    };
    Head {
        study: named.then(|| study.label.clone()),
        sentence,
        next: verdict.map(|verdict| verdict.change.clone()),
        figures: vec![
            efficiency(main),
            largest_load(study, main),
            evidence(diagnosis),
        ],
    }
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

/// The curve that stands for the study: of the base variant before others, of people who wait before batches, of fixed
/// concurrency before rates, of the most fleets.
fn main_curve(scalings: &[ScalingView]) -> Option<&ScalingView> {
    scalings.iter().min_by_key(|view| {
        let family = &view.family;
        (
            family.variant != "base",
            family.scenario != Scenario::Online,
            family.load_kind != "closed",
            std::cmp::Reverse(view.fleets.len()),
        )
    })
}

fn headline(name: &str, meaning: impl Into<String>) -> Headline {
    Headline {
        name: name.to_owned(),
        value: None,
        shown: "not measured".into(),
        judgement: None,
        meaning: meaning.into(),
    }
}

fn efficiency(main: Option<&ScalingView>) -> Headline {
    let name = "Scaling efficiency";
    let largest = main.and_then(|view| Some((view, view.fleets.last()?)));
    let found = largest.and_then(|(view, fleet)| Some((view, fleet, fleet.at_highest_load()?)));
    let Some((view, fleet, of)) = found else {
        return headline(
            name,
            "No curve has one unit and a multiple of it under equal load.",
        );
    };
    let interval = of.interval.map_or_else(String::new, |interval| {
        format!(
            ", 95 % interval {:.0} to {:.0} %",
            interval.low * 100.0,
            interval.high * 100.0
        )
    });
    Headline {
        name: name.to_owned(),
        value: Some(of.value),
        shown: format!("{:.0} %", of.value * 100.0),
        judgement: Some(match of.band {
            Band::Excellent => Judgement::Good,
            Band::Acceptable => Judgement::Acceptable,
            Band::Doubtful | Band::Bottleneck => Judgement::Bad,
        }),
        meaning: format!(
            "{}{interval}: {} do {:.2} times the work of 1 at the highest equal load. Curve: {}.",
            capital(of.band.name()),
            fleet.multiple,
            of.value * f64::from(fleet.multiple),
            curve_words(view)
        ),
    }
}

fn largest_load(study: &ToldStudy, main: Option<&ScalingView>) -> Headline {
    let name = "Largest load within the service level";
    let level = if study.objectives.is_empty() {
        "no objectives are set: at most 1 % may fail".to_owned()
    } else {
        format!(
            "{} for {} % of requests",
            study.file.objectives.join(" "),
            study.file.attainment * 100.0
        )
    };
    let Some(fleet) = main.and_then(|view| view.fleets.last()) else {
        return headline(name, "No curve to find it on.");
    };
    let Some(effective) = &fleet.effective else {
        return Headline {
            shown: "none".into(),
            value: Some(0.0),
            judgement: Some(Judgement::Bad),
            ..headline(name, format!("No load that was tried met it ({level})."))
        };
    };
    let load = effective
        .points
        .first()
        .and_then(|id| study.point(id))
        .map_or_else(
            || number(Some(effective.load)),
            |point| load_words(point.view.setting.load),
        );
    let reached = if effective.is_highest_tried {
        "the highest that was tried: it may carry more"
    } else {
        "a higher load was too much"
    };
    Headline {
        value: Some(effective.load),
        shown: load,
        ..headline(
            name,
            format!(
                "{}, {} tok/s there; {reached} ({level}).{}",
                size_words(fleet),
                number(Some(effective.output_tokens_per_s)),
                poisson_words(study)
            ),
        )
    }
}

fn size_words(fleet: &Fleet) -> String {
    format!(
        "{} instance(s) of {} GPU(s)",
        fleet.instances, fleet.gpus_per_instance
    )
}

/// Without a Poisson load nobody saw what arrivals by chance do.
fn poisson_words(study: &ToldStudy) -> &'static str {
    let poisson =
        |point: &super::told::ToldPoint| matches!(point.view.setting.load, Load::Poisson { .. });
    if study.points.iter().any(poisson) {
        ""
    } else {
        " No Poisson arrivals were tried."
    }
}

fn evidence(diagnosis: &Diagnosis) -> Headline {
    let verdict = diagnosis.verdicts.first();
    let piece = verdict.and_then(|verdict| Some((verdict, verdict.evidence.first()?)));
    let Some((verdict, piece)) = piece else {
        return headline(
            "Evidence",
            "Nothing that was measured speaks for or against the fleet.",
        );
    };
    let bad = verdict.kind != Kind::Healthy;
    Headline {
        name: capital(&piece.what),
        value: Some(piece.value),
        shown: format!("{} {}", number(Some(piece.value)), piece.unit)
            .trim_end()
            .to_owned(),
        judgement: Some(if bad { Judgement::Bad } else { Judgement::Good }),
        meaning: format!(
            "{}; at {}.",
            capital(&piece.threshold),
            piece.points.join(", ")
        ),
    }
}
