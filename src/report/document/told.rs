//! What a report is made from: studies whose points were seen in figures. Pure.

use crate::report::goodput::Objective;
use crate::report::point::PointView;
use crate::study::problem::Problem;
use crate::study::{Load, Setting, StudyFile};

use super::Part;

/// A study and its points.
#[derive(Debug, Clone)]
pub struct ToldStudy {
    /// as its folder was named
    pub folder: String,
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

/// Points that differ only in how many instances and GPUs there are, how much is sent, and in the repetition.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// what they have in common, in words
    pub name: String,
    /// of these points of the study
    pub members: Vec<usize>,
}

/// The families of a study, in the order of the sweep.
pub fn families(study: &ToldStudy) -> Vec<Family> {
    let mut families: Vec<(String, Family)> = Vec::new();
    for (index, point) in study.points.iter().enumerate() {
        let key = family_key(&point.view.setting);
        match families.iter_mut().find(|(known, _)| *known == key) {
            Some((_, family)) => family.members.push(index),
            None => {
                let name = family_name(&point.view.setting);
                let members = vec![index];
                families.push((key, Family { name, members }));
            }
        }
    }
    families.into_iter().map(|(_, family)| family).collect()
}

fn family_key(setting: &Setting) -> String {
    format!("{}|{:?}", family_name(setting), setting.engine)
}

fn family_name(setting: &Setting) -> String {
    let load = match setting.load {
        Load::Closed { .. } => "fixed concurrency",
        Load::Poisson { .. } => "Poisson arrivals",
        Load::Batch { .. } => "a batch",
    };
    let batch = setting.batch_concurrency.map_or_else(String::new, |batch| {
        format!(", {batch} batch requests beside")
    });
    format!(
        "{}, {load}, lengths {}, policy {}, variant {}{batch}",
        setting.scenario.name(),
        setting.lengths,
        setting.policy,
        setting.variant
    )
}
