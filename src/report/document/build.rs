//! Puts a report together from studies. Pure.

use super::identity::Identity;
use super::told::ToldStudy;
use super::{
    Document, Origin, compare, definitions, fleet, head, latency, load, points, scaling, scenarios,
    setting, ttft, verdict, warnings,
};
use crate::measure::utc::utc_words;
use crate::report::verdict::{Diagnosis, diagnose};

impl Document {
    /// The report of these studies, at least one.
    pub fn of(studies: &[ToldStudy]) -> Document {
        let identity = Identity::over(studies);
        let diagnoses: Vec<Diagnosis> = studies
            .iter()
            .map(|study| diagnose(&study.views(), &study.file))
            .collect();
        let both = || studies.iter().zip(&diagnoses);
        let mut sections = vec![
            verdict::section(studies, &diagnoses),
            scaling::section(studies),
            load::section(studies, &identity),
            latency::section(studies, &identity),
        ];
        sections.extend(compare::section(studies));
        sections.push(ttft::section(studies, &identity));
        sections.push(fleet::section(studies, &identity));
        sections.extend(scenarios::mixed(studies, &identity));
        sections.extend(scenarios::offline(studies, &identity));
        sections.push(points::section(studies, &identity));
        sections.push(setting::section(studies, &identity));
        let names: Vec<&str> = studies.iter().map(|study| study.label.as_str()).collect();
        Document {
            title: names.join(" and "),
            made_from: studies.iter().map(origin).collect(),
            heads: both()
                .map(|(study, diagnosis)| head::of(study, diagnosis, studies.len() > 1))
                .collect(),
            warnings: both()
                .flat_map(|(study, diagnosis)| {
                    let lines = warnings::of(study, diagnosis).into_iter();
                    lines.map(|line| study.named(studies, &line))
                })
                .collect(),
            instances: instances(studies),
            sections,
            definitions: definitions::all(),
        }
    }
}

fn origin(study: &ToldStudy) -> Origin {
    Origin {
        folder: study.folder.clone(),
        name: study.file.name.clone(),
        version: study.file.version.clone(),
        started: utc_words(study.file.started_unix_ns),
        points: study.points.len() as u64,
        unfinished: study.unfinished.clone(),
    }
}

fn instances(studies: &[ToldStudy]) -> Vec<u32> {
    let points = studies.iter().flat_map(|study| &study.points);
    let mut counts: Vec<u32> = points.map(|point| point.view.setting.instances).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}
