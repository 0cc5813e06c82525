//! The columns that say which point a row is about: the point's name always, and of its settings those that differ. Pure.

use super::table::{Cell, Column, Table, Unit};
use super::told::{ToldPoint, ToldStudy, load_words};
use crate::study::Setting;

type Of = fn(&Setting) -> Cell;

const SETTINGS: [(&str, &str, &str, Of); 8] = [
    ("scenario", "scenario", "what the load stands for", |s| {
        s.scenario.name().into()
    }),
    ("instances", "instances", "inference servers", |s| {
        s.instances.into()
    }),
    (
        "gpus_per_instance",
        "GPUs each",
        "GPUs inside one instance",
        |s| s.gpus_per_instance.into(),
    ),
    (
        "load",
        "load",
        "what is sent to all instances together",
        |s| load_words(s.load).into(),
    ),
    ("lengths", "lengths", "name of the set of lengths", |s| {
        s.lengths.clone().into()
    }),
    ("policy", "policy", "policy of the balancer", |s| {
        s.policy.clone().into()
    }),
    (
        "variant",
        "variant",
        "`base`, or what the plan varied",
        |s| s.variant.clone().into(),
    ),
    ("repeat", "repeat", "number of the repetition", |s| {
        s.repeat.into()
    }),
];

/// Columns before the figures of a table about points.
#[derive(Debug, Clone)]
pub struct Identity {
    told: Vec<usize>,
    study: bool,
}

impl Identity {
    /// Of these studies: instances and load always, what else differs between their points.
    pub fn over(studies: &[ToldStudy]) -> Identity {
        let settings: Vec<&Setting> = studies
            .iter()
            .flat_map(|study| &study.points)
            .map(|point| &point.view.setting)
            .collect();
        let told = (0..SETTINGS.len()).filter(|at| {
            let (key, _, _, of) = SETTINGS[*at];
            let first = settings.first().map(|setting| of(setting));
            let differs = settings.iter().any(|s| Some(of(s)) != first);
            differs || matches!(key, "instances" | "load")
        });
        Identity {
            told: told.collect(),
            study: studies.len() > 1,
        }
    }

    /// A table about points, with these figures.
    pub fn table(&self, id: &str, title: &str, figures: Vec<Column>) -> Table {
        let mut columns = vec![Column::new(
            "point",
            "point",
            Unit::NONE,
            "name of the point and of its folder; leads to its course over time",
        )];
        if self.study {
            columns.push(Column::plain("study", "study", "name of the study"));
        }
        for at in &self.told {
            let (key, name, definition, _) = SETTINGS[*at];
            columns.push(Column::plain(key, name, definition));
        }
        columns.extend(figures);
        Table::new(id, title, columns)
    }

    /// A point in few letters, by what differs.
    pub fn short(&self, setting: &Setting) -> String {
        let word = |at: &usize| match SETTINGS[*at].0 {
            "instances" => format!("n{}", setting.instances),
            "gpus_per_instance" => format!("{} GPU", setting.gpus_per_instance),
            "repeat" => format!("#{}", setting.repeat),
            _ => SETTINGS[*at].3(setting).shown(Unit::NONE),
        };
        let mut words: Vec<String> = self.told.iter().map(word).collect();
        words.extend(
            setting
                .batch_concurrency
                .map(|batch| format!("{batch} batch beside")),
        );
        words.join(" · ")
    }

    /// Adds a point's row.
    pub fn row(
        &self,
        table: &mut Table,
        study: &ToldStudy,
        point: &ToldPoint,
        figures: impl IntoIterator<Item = Cell>,
    ) {
        let setting = &point.view.setting;
        let mut cells = vec![Cell::from(point.view.id.clone())];
        if self.study {
            cells.push(study.label.clone().into());
        }
        cells.extend(self.told.iter().map(|at| SETTINGS[*at].3(setting)));
        cells.extend(figures);
        table
            .row(cells)
            .about(setting.instances, Some(point.place.clone()));
    }
}
