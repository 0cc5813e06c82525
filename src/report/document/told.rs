//! What a report is made from: studies whose points were seen in figures. Pure.

use crate::report::curves::Family;
use crate::report::goodput::Objective;
use crate::report::point::PointView;
use crate::study::problem::Problem;
use crate::study::{Load, StudyFile};

use super::Part;

/// A study and its points.
#[derive(Debug, Clone)]
pub struct ToldStudy {
    /// as its folder was named
    pub folder: String,
    /// what it is called here: the plan's name, with the folder where several have that name
    pub label: String,
    /// `study.json`
    pub file: StudyFile,
    /// `plan.toml`; absent if it cannot be read
    pub plan: Option<String>,
    /// service level, as the study names it
    pub objectives: Vec<Objective>,
    /// finished points, in the order of the sweep
    pub points: Vec<ToldPoint>,
    /// folders of points that were begun and not finished
    pub unfinished: Vec<String>,
    /// files and lines that are missing or could not be read
    pub problems: Vec<Problem>,
}

/// A point.
#[derive(Debug, Clone)]
pub struct ToldPoint {
    /// place of its details on the page
    pub place: String,
    /// in figures
    pub view: PointView,
    /// what hooks said, or a source did not tell
    pub notes: Vec<String>,
    /// its lengths are those that Evenkeel assumes where nobody says others
    pub lengths_assumed: bool,
    /// all its prompts, or all its answers, had one length
    pub one_length: bool,
    /// its course over time and its single requests
    pub details: Vec<Part>,
}

/// What a load is, in words.
pub fn load_words(load: Load) -> String {
    let amount = crate::report::figures::scale::label(load.amount());
    match load {
        Load::Closed { .. } => format!("{amount} at once"),
        Load::Poisson { .. } => format!("{amount} req/s"),
        Load::Batch { .. } => format!("{amount} in a batch"),
    }
}

/// A family in words.
pub fn family_words(family: &Family) -> String {
    let load = match family.load_kind {
        "closed" => "fixed concurrency",
        "poisson" => "Poisson arrivals",
        _ => "a batch",
    };
    let batch = family.batch_per_instance.map_or_else(String::new, |batch| {
        format!(", {batch} batch requests beside for each instance")
    });
    format!(
        "{}, {load}, lengths {}, policy {}, variant {}{batch}",
        family.scenario.name(),
        family.lengths,
        family.policy,
        family.variant
    )
}

impl ToldStudy {
    /// Its points in figures.
    pub fn views(&self) -> Vec<PointView> {
        self.points.iter().map(|point| point.view.clone()).collect()
    }

    /// The point of this name.
    pub fn point(&self, id: &str) -> Option<&ToldPoint> {
        self.points.iter().find(|point| point.view.id == id)
    }

    /// A name for a part of the page that is about this study: with the study's, where there are several.
    pub fn named(&self, studies: &[ToldStudy], name: &str) -> String {
        if studies.len() > 1 {
            format!("{}: {name}", self.label)
        } else {
            name.to_owned()
        }
    }
}

/// Gives studies of the same name their folders' names, too.
pub fn tell_apart(studies: &mut [ToldStudy]) {
    let names: Vec<String> = studies
        .iter()
        .map(|study| study.file.name.clone())
        .collect();
    for study in studies {
        let same = names.iter().filter(|name| **name == study.file.name);
        if same.count() > 1 {
            study.label = format!("{} ({})", study.file.name, study.folder);
        }
    }
}
