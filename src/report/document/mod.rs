//! What a report says, before it is a page, a JSON file or lines on a terminal. Pure.

pub mod build;
pub mod compare;
pub mod course;
pub mod definitions;
pub mod fleet;
pub mod head;
pub mod identity;
pub mod json;
pub mod latency;
pub mod load;
pub mod points;
pub mod requests;
#[cfg(test)]
pub(crate) mod sample;
pub mod scaling;
pub mod scenarios;
pub mod setting;
pub mod table;
pub mod told;
pub mod ttft;
pub mod verdict;
pub mod warnings;

use serde::Serialize;

use super::figures::panels::Panels;
use super::figures::plot::Plot;
use super::figures::rows::Rows;
use table::Table;

/// Version of the JSON file; grows when a key changes its meaning or goes.
pub const REPORT_VERSION: u32 = 1;

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// what it is about
    pub title: String,
    /// what it was made from and by
    pub made_from: Vec<Origin>,
    /// the verdict in a sentence, for each study
    pub heads: Vec<Head>,
    /// what a reader must know before believing a figure
    pub warnings: Vec<String>,
    /// instance counts that occur
    pub instances: Vec<u32>,
    /// the rest, in order
    pub sections: Vec<Section>,
    /// words and what they mean
    pub definitions: Vec<(String, String)>,
}

/// A folder of which a report is made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Origin {
    /// as it was named
    pub folder: String,
    /// what the plan calls itself
    pub name: String,
    /// version of Evenkeel that measured
    pub version: String,
    /// begun, UTC
    pub started: String,
    /// points that were read
    pub points: u64,
    /// points that were begun and not finished
    pub unfinished: Vec<String>,
}

/// What stands on the first screen for a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Head {
    /// the study, where there are several
    pub study: Option<String>,
    /// the verdict in a sentence
    pub sentence: String,
    /// what to do next, in a sentence
    pub next: Option<String>,
    /// the figures that carry it
    pub figures: Vec<Headline>,
}

/// A figure of the first screen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Headline {
    /// what it is
    pub name: String,
    /// its value; absent if it was not measured
    pub value: Option<f64>,
    /// as it is shown, unit included
    pub shown: String,
    /// a judgement of it, in a word
    pub judgement: Option<Judgement>,
    /// what it means, in a sentence
    pub meaning: String,
}

/// How a figure is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// as good as it can be expected
    Good,
    /// good enough
    Acceptable,
    /// not good enough
    Bad,
}

impl Judgement {
    /// A sign that tells it without colour.
    pub fn sign(self) -> &'static str {
        match self {
            Judgement::Good => "✓",
            Judgement::Acceptable => "≈",
            Judgement::Bad => "✗",
        }
    }
}

/// A part of a report under one heading.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// names its place on the page
    pub id: String,
    /// in the list of contents
    pub short: &'static str,
    /// heading
    pub title: String,
    /// what it holds, in order
    pub parts: Vec<Part>,
}

/// Something in a section.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// a paragraph
    Text(String),
    /// a smaller heading
    Heading(String),
    /// short lines
    List(Vec<String>),
    /// a table
    Table(Table),
    /// a table that is folded away until asked for
    Folded(Table),
    /// a plot; neighbours stand side by side
    Plot(Plot),
    /// time series over one axis
    Panels(Panels),
    /// stages end to end
    Rows(Rows),
    /// one of several is looked at, such as a point
    Choice(Choice),
    /// text as it is in a file
    Verbatim(String),
}

/// Several of a kind, of which a reader looks at one.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// names it on the page
    pub id: String,
    /// what is chosen
    pub label: String,
    /// what there is
    pub options: Vec<Chosen>,
}

/// One of a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// names its place on the page
    pub id: String,
    /// in the list
    pub name: String,
    /// what it shows
    pub parts: Vec<Part>,
}

impl Document {
    /// Every table, in the order of the page.
    pub fn tables(&self) -> Vec<&Table> {
        let mut tables = Vec::new();
        for section in &self.sections {
            collect(&section.parts, &mut tables);
        }
        tables
    }
}

fn collect<'a>(parts: &'a [Part], tables: &mut Vec<&'a Table>) {
    for part in parts {
        match part {
            Part::Table(table) | Part::Folded(table) => tables.push(table),
            Part::Choice(choice) => {
                for option in &choice.options {
                    collect(&option.parts, tables);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
