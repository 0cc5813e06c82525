//! The section of single points: course over time, single requests, each instance, what was set. Pure.

use super::fleet::instance_table;
use super::identity::Identity;
use super::told::{ToldPoint, ToldStudy, load_words};
use super::warnings::has_one_length;
use super::{Choice, Chosen, Part, Section, course, requests};
use crate::report::goodput::Objective;
use crate::report::point::PointView;
use crate::study::point::Point;

impl ToldPoint {
    /// What is told of a point, so that the point itself can be let go.
    pub fn of(point: &Point, objectives: &[Objective], place: String) -> ToldPoint {
        ToldPoint {
            view: PointView::of(point, objectives),
            notes: point.file.notes.clone(),
            lengths_assumed: point.lengths_assumed == Some(true),
            one_length: has_one_length(point),
            details: vec![
                Part::Panels(course::of(point, &place)),
                Part::Rows(requests::of(point, &place)),
            ],
            place,
        }
    }
}

/// The section.
pub fn section(studies: &[ToldStudy], identity: &Identity) -> Section {
    let mut options = Vec::new();
    for study in studies {
        for point in &study.points {
            let name = study.named(studies, &identity.short(&point.view.setting));
            options.push(option(point, name));
        }
    }
    Section {
        id: "points".into(),
        short: "Points",
        title: "A point in detail".into(),
        parts: vec![Part::Choice(Choice {
            id: "point-details".into(),
            label: "Point".into(),
            options,
        })],
    }
}

fn option(point: &ToldPoint, name: String) -> Chosen {
    let setting = &point.view.setting;
    let mut parts = vec![Part::Text(format!(
        "{}: {} instance(s) of {} GPU(s), {} ({} for each instance), lengths {}, policy {}, variant {}, seed {}.",
        point.view.id,
        setting.instances,
        setting.gpus_per_instance,
        load_words(setting.load),
        crate::report::figures::scale::label(setting.load_per_instance),
        setting.lengths,
        setting.policy,
        setting.variant,
        setting.seed,
    ))];
    if !setting.engine.is_empty() {
        let engine: Vec<String> = setting
            .engine
            .iter()
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        parts.push(Part::Text(format!("Engine: {}.", engine.join(", "))));
    }
    if !point.notes.is_empty() {
        parts.push(Part::List(point.notes.clone()));
    }
    parts.extend(point.details.iter().cloned());
    parts.extend(instance_table(point).map(Part::Table));
    Chosen {
        id: point.place.clone(),
        name,
        parts,
    }
}
