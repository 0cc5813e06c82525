//! Reads a study's folder. What can be done without is told as a problem; what cannot is an error.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::monitor::Reading;
use super::point::{Point, PointRequest, Served};
use super::problem::{Problem, read_lines};
use super::{PointFile, STUDY_VERSION, StudyFile, request_line};
use crate::measure::record::{RECORD_VERSION, Record};
use crate::report::generator::Generator;
use crate::report::window::{Window, entered_ns};

/// Why a study cannot be read at all.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// a file or folder without which there is no study
    #[error("cannot read {}: {source}; a study is a folder that `evenkeel sweep` wrote, with study.json in it", path.display())]
    File {
        /// which
        path: PathBuf,
        /// why
        source: std::io::Error,
    },
    /// a file that is not what it should be
    #[error("{}: {what}", path.display())]
    Form {
        /// which
        path: PathBuf,
        /// what is wrong
        what: String,
    },
    /// written by a later Evenkeel
    #[error("{}: its schema is {found}, and this Evenkeel reads up to {known}: use the Evenkeel that wrote it, or a later one", path.display())]
    Newer {
        /// which
        path: PathBuf,
        /// its version
        found: u64,
        /// the latest that is known
        known: u32,
    },
}

/// A study whose points are read one by one.
#[derive(Debug)]
pub struct StudyFolder {
    dir: PathBuf,
    /// `study.json`
    pub file: StudyFile,
    finished: Vec<PointFile>,
    /// folders of points that were begun and not finished
    pub unfinished: Vec<String>,
    /// points whose `point.json` cannot be read
    pub problems: Vec<Problem>,
}

/// A study in memory.
#[derive(Debug)]
pub struct Study {
    /// `study.json`
    pub file: StudyFile,
    /// finished points, in the order of the sweep
    pub points: Vec<Point>,
    /// folders of points that were begun and not finished
    pub unfinished: Vec<String>,
    /// points whose `point.json` cannot be read
    pub problems: Vec<Problem>,
}

impl Study {
    /// Reads all of it.
    pub fn read(dir: &Path) -> Result<Study, StudyError> {
        let folder = StudyFolder::open(dir)?;
        let points = folder.points().collect();
        Ok(Study {
            file: folder.file,
            points,
            unfinished: folder.unfinished,
            problems: folder.problems,
        })
    }
}

impl StudyFolder {
    /// Reads `study.json` and looks which points are there.
    pub fn open(dir: &Path) -> Result<StudyFolder, StudyError> {
        let mut folder = StudyFolder {
            file: read_versioned(&dir.join("study.json"))?,
            dir: dir.to_owned(),
            finished: Vec::new(),
            unfinished: Vec::new(),
            problems: Vec::new(),
        };
        for name in point_names(&dir.join("points"))? {
            folder.look_at(name)?;
        }
        folder.finished.sort_by_key(|point| point.order);
        Ok(folder)
    }

    fn look_at(&mut self, name: String) -> Result<(), StudyError> {
        let path = self.dir.join("points").join(&name).join("point.json");
        if !path.exists() {
            self.unfinished.push(name);
            return Ok(());
        }
        match read_versioned::<PointFile>(&path) {
            // Files are found by the folder's name, whatever the file says.
            Ok(point) => self.finished.push(PointFile { id: name, ..point }),
            Err(error @ StudyError::Newer { .. }) => return Err(error),
            Err(error) => {
                self.problems.push(Problem {
                    file: format!("points/{name}/point.json"),
                    line: None,
                    what: error.to_string(),
                });
                self.unfinished.push(name);
            }
        }
        Ok(())
    }

    /// The finished points, in the order of the sweep, each read when its turn comes.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        self.finished.iter().map(|file| self.point(file))
    }

    fn point(&self, file: &PointFile) -> Point {
        let mut files = PointFiles {
            dir: self.dir.join("points").join(&file.id),
            name: format!("points/{}", file.id),
            problems: Vec::new(),
        };
        let mut requests = files.lines("requests.jsonl", request_line::parse);
        requests.sort_by_key(|request| request.sample.index);
        let records = files.lines("records.jsonl", record);
        let others = join(&mut requests, records);
        let monitor: Vec<Reading> = files.lines("monitor.jsonl", |line| {
            serde_json::from_str(line).map_err(|error| error.to_string())
        });
        let result = files.result();
        Point {
            window: result
                .as_ref()
                .and_then(window_told)
                .or_else(|| window_of(&requests)),
            generator: result.as_ref().and_then(|result| files.generator(result)),
            lengths_assumed: result.as_ref().and_then(lengths_assumed),
            file: file.clone(),
            requests,
            others,
            monitor,
            problems: files.problems,
        }
    }
}

/// The files of one point.
struct PointFiles {
    dir: PathBuf,
    name: String,
    problems: Vec<Problem>,
}

impl PointFiles {
    fn text(&mut self, file: &str) -> Option<String> {
        match std::fs::read_to_string(self.dir.join(file)) {
            Ok(text) => Some(text),
            Err(error) => {
                self.problem(file, format!("cannot be read: {error}"));
                None
            }
        }
    }

    fn problem(&mut self, file: &str, what: String) {
        self.problems.push(Problem {
            file: format!("{}/{file}", self.name),
            line: None,
            what,
        });
    }

    fn lines<T>(&mut self, file: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let Some(text) = self.text(file) else {
            return Vec::new();
        };
        let name = format!("{}/{file}", self.name);
        read_lines(&name, &text, read, &mut self.problems)
    }

    fn result(&mut self) -> Option<Value> {
        let text = self.text("result.json")?;
        match serde_json::from_str(&text) {
            Ok(result) => Some(result),
            Err(error) => {
                self.problem("result.json", error.to_string());
                None
            }
        }
    }

    fn generator(&mut self, result: &Value) -> Option<Generator> {
        match Generator::deserialize(result.pointer("/evenkeel/generator")?) {
            Ok(generator) => Some(generator),
            Err(error) => {
                self.problem("result.json", format!("evenkeel.generator: {error}"));
                None
            }
        }
    }
}

fn read_versioned<T: DeserializeOwned>(path: &Path) -> Result<T, StudyError> {
    let text = std::fs::read_to_string(path).map_err(|source| StudyError::File {
        path: path.to_owned(),
        source,
    })?;
    let form = |error: serde_json::Error| StudyError::Form {
        path: path.to_owned(),
        what: error.to_string(),
    };
    let value: Value = serde_json::from_str(&text).map_err(form)?;
    let found = value.get("schema").and_then(Value::as_u64).unwrap_or(0);
    if found > u64::from(STUDY_VERSION) {
        return Err(StudyError::Newer {
            path: path.to_owned(),
            found,
            known: STUDY_VERSION,
        });
    }
    serde_json::from_value(value).map_err(form)
}

/// Names of the folders under `points`, sorted; none if no point was begun.
fn point_names(dir: &Path) -> Result<Vec<String>, StudyError> {
    let failed = |source| StudyError::File {
        path: dir.to_owned(),
        source,
    };
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn record(line: &str) -> Result<Record, String> {
    let record: Record = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if record.schema > RECORD_VERSION {
        return Err(format!(
            "a record of schema {}, and this Evenkeel reads up to {RECORD_VERSION}",
            record.schema
        ));
    }
    Ok(record)
}

/// Gives each request the record of its id; the rest comes back.
pub fn join(requests: &mut [PointRequest], records: Vec<Record>) -> Vec<Served> {
    let places: HashMap<String, usize> = requests
        .iter()
        .enumerate()
        .map(|(at, request)| (request.id.clone(), at))
        .collect();
    let mut others = Vec::new();
    for record in records {
        let place = places.get(&record.request_id).copied();
        match place {
            Some(at) => requests[at].served = Some(Served::of(record)),
            None => others.push(Served::of(record)),
        }
    }
    others
}

fn lengths_assumed(result: &Value) -> Option<bool> {
    result
        .pointer("/evenkeel/lengths_are_an_assumption")?
        .as_bool()
}

/// The window as the run itself told it.
fn window_told(result: &Value) -> Option<Window> {
    let ours = result.get("evenkeel")?;
    let started_ns = ours.get("started_unix_ns")?.as_u64()?;
    let window = ours.get("window")?;
    let seconds = |key: &str| window.get(key).and_then(Value::as_f64);
    let at_ns = |key: &str| Some(started_ns + (seconds(key)? * 1e9).round() as u64);
    Some(Window {
        from_ns: at_ns("from_s")?,
        to_ns: at_ns("to_s")?,
        until_ns: at_ns("throughput_until_s")?,
        trim_s: seconds("trim_s")?,
        issued_over_s: seconds("issued_over_s")?,
    })
}

/// The window that the counted requests span, where the run's own is not known.
fn window_of(requests: &[PointRequest]) -> Option<Window> {
    let counted = || requests.iter().filter(|request| request.counted);
    let entered = || counted().map(|request| entered_ns(&request.sample));
    let (from_ns, to_ns) = (entered().min()?, entered().max()?);
    let end_ns = counted().map(|request| request.sample.end_ns).max()?;
    let cut = requests
        .iter()
        .any(|request| !request.counted && !request.warm_up);
    Some(Window {
        from_ns,
        to_ns,
        until_ns: if cut { to_ns } else { end_ns },
        trim_s: 0.0,
        issued_over_s: (to_ns - from_ns) as f64 / 1e9,
    })
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
