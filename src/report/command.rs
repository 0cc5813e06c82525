//! `evenkeel report`: folders of studies to a page, a JSON file and a summary on the terminal.

use std::path::{Path, PathBuf};

use clap::Args;

use super::document::Document;
use super::document::told::{ToldPoint, ToldStudy, tell_apart};
use super::goodput::Objective;
use super::page::page;
use super::summary;
use crate::bench::BenchError;
use crate::bench::output::Output;
use crate::study::problem::Problem;
use crate::study::read::{StudyError, StudyFolder};

/// Make a report of what was measured: one HTML page that needs nothing else, and a summary here.
///
/// It is made from the recorded files alone; nothing is asked of any server, and the page asks nothing of anybody.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders that `evenkeel sweep` wrote; several are shown side by side
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Every number of the tables as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Why no report could be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// a folder that is no study
    #[error(transparent)]
    Study(#[from] StudyError),
    /// a study with an objective that is none
    #[error("{}: objectives: {what}", path.display())]
    Objective {
        /// the study's file
        path: PathBuf,
        /// what is wrong
        what: String,
    },
    /// a file that could not be written
    #[error(transparent)]
    Output(#[from] BenchError),
    /// the JSON file
    #[error("cannot put the report into JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Makes the report.
pub fn run(args: &ReportArgs) -> Result<(), ReportError> {
    let out = Output::open(&args.out)?;
    let json = args.json.as_deref().map(Output::open).transpose()?;
    let mut studies: Vec<ToldStudy> = args
        .dirs
        .iter()
        .enumerate()
        .map(|(number, dir)| read(dir, number))
        .collect::<Result<_, ReportError>>()?;
    tell_apart(&mut studies);
    let document = Document::of(&studies);
    drop(studies);
    let html = page(&document);
    let mut written = vec![out.write(|to| put(to, html.as_bytes()))?];
    if let Some(json) = json {
        let value = document.json()?;
        written.push(json.write(|to| {
            serde_json::to_writer(&mut *to, &value)?;
            put(to, b"\n")
        })?);
    }
    println!("{}", summary::of(&document));
    for path in written {
        println!("written: {}", path.display());
    }
    Ok(())
}

fn put(to: &mut dyn std::io::Write, bytes: &[u8]) -> Result<(), BenchError> {
    Ok(to.write_all(bytes).map_err(serde_json::Error::io)?)
}

/// Reads a study; only one of its points is in memory at a time.
fn read(dir: &Path, number: usize) -> Result<ToldStudy, ReportError> {
    let folder = StudyFolder::open(dir)?;
    let objectives = objectives(&folder.file.objectives, dir)?;
    let mut problems: Vec<Problem> = folder.problems.clone();
    let told = |(index, point): (usize, crate::study::point::Point)| {
        let told = ToldPoint::of(&point, &objectives, format!("point-{number}-{index}"));
        problems.extend(point.problems);
        told
    };
    let points = folder.points().enumerate().map(told).collect();
    Ok(ToldStudy {
        folder: dir.display().to_string(),
        label: folder.file.name.clone(),
        plan: std::fs::read_to_string(dir.join("plan.toml")).ok(),
        points,
        unfinished: folder.unfinished,
        file: folder.file,
        objectives,
        problems,
    })
}

fn objectives(words: &[String], dir: &Path) -> Result<Vec<Objective>, ReportError> {
    let parse = |word: &String| Objective::parse(word);
    words
        .iter()
        .map(parse)
        .collect::<Result<_, String>>()
        .map_err(|what| ReportError::Objective {
            path: dir.join("study.json"),
            what,
        })
}
