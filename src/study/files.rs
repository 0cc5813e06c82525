//! A study's files: where they lie, how they are written whole, and how they are read back.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::monitor::Reading;
use super::{PointFile, STUDY_VERSION, StudyFile};
use crate::measure::record::Record;

/// Why a study cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// a file or folder that the system refuses
    #[error("{}: {source}", path.display())]
    File {
        /// which
        path: PathBuf,
        /// what the system says
        source: std::io::Error,
    },
    /// text that is not what it should be
    #[error("{}{}: {source}", path.display(), line.map_or_else(String::new, |line| format!(", line {line}")))]
    Json {
        /// the file
        path: PathBuf,
        /// the line, of a file of lines
        line: Option<usize>,
        /// what was found
        source: serde_json::Error,
    },
    /// no study
    #[error("{} is no study: it has no study.json; give the folder that `evenkeel sweep` wrote with --out", .0.display())]
    NoStudy(PathBuf),
    /// written by a later version
    #[error("{} was written by a later Evenkeel (version {found} of its files, this one reads up to {STUDY_VERSION}): take that one", path.display())]
    Later {
        /// the file
        path: PathBuf,
        /// its version
        found: u32,
    },
}

/// The folder of a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// The folder of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointFolder(PathBuf);

impl Folder {
    /// The study in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Folder {
        Folder(dir.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `plan.toml`
    pub fn plan(&self) -> PathBuf {
        self.0.join("plan.toml")
    }

    /// `study.json`
    pub fn study(&self) -> PathBuf {
        self.0.join("study.json")
    }

    /// `points/ID`
    pub fn point(&self, id: &str) -> PointFolder {
        PointFolder(self.0.join("points").join(id))
    }

    /// Reads `study.json`.
    pub fn read(&self) -> Result<StudyFile, StudyError> {
        let path = self.study();
        if !path.exists() {
            return Err(StudyError::NoStudy(self.0.clone()));
        }
        let value: Value = read_json(&path)?;
        let found = value["schema"].as_u64().unwrap_or(0) as u32;
        if found > STUDY_VERSION {
            return Err(StudyError::Later { path, found });
        }
        serde_json::from_value(value).map_err(|source| StudyError::Json {
            path,
            line: None,
            source,
        })
    }

    /// The finished points, in the order of the sweep.
    pub fn points(&self) -> Result<Vec<(PointFile, PointFolder)>, StudyError> {
        let dir = self.0.join("points");
        if !dir.exists() {
            return Ok(Vec::new());
        }
        let failed = |source| StudyError::File {
            path: dir.clone(),
            source,
        };
        let mut points = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            let folder = PointFolder(entry.map_err(failed)?.path());
            if let Some(point) = folder.finished()? {
                points.push((point, folder));
            }
        }
        points.sort_by_key(|(point, _)| point.order);
        Ok(points)
    }
}

impl PointFolder {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `point.json`, if the point was finished.
    pub fn finished(&self) -> Result<Option<PointFile>, StudyError> {
        let path = self.file("point.json");
        match path.exists() {
            true => read_json(&path).map(Some),
            false => Ok(None),
        }
    }

    /// `result.json`
    pub fn result(&self) -> Result<Value, StudyError> {
        read_json(&self.file("result.json"))
    }

    /// `requests.jsonl`
    pub fn requests(&self) -> Result<Vec<Value>, StudyError> {
        read_lines(&self.file("requests.jsonl"))
    }

    /// `batch_result.json`; absent where no batch ran beside the load.
    pub fn batch_result(&self) -> Result<Option<Value>, StudyError> {
        let path = self.file("batch_result.json");
        path.exists().then(|| read_json(&path)).transpose()
    }

    /// `monitor.jsonl`; empty where nothing was looked at.
    pub fn readings(&self) -> Result<Vec<Reading>, StudyError> {
        lines_if_there(&self.file("monitor.jsonl"))
    }

    /// `records.jsonl`; empty where the proxy's records are not known.
    pub fn records(&self) -> Result<Vec<Record>, StudyError> {
        lines_if_there(&self.file("records.jsonl"))
    }
}

fn lines_if_there<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, StudyError> {
    match path.exists() {
        true => read_lines(path),
        false => Ok(Vec::new()),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StudyError> {
    let file = File::open(path).map_err(|source| StudyError::File {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_reader(BufReader::new(file)).map_err(|source| StudyError::Json {
        path: path.to_owned(),
        line: None,
        source,
    })
}

fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, StudyError> {
    let failed = |source| StudyError::File {
        path: path.to_owned(),
        source,
    };
    let lines = BufReader::new(File::open(path).map_err(failed)?).lines();
    let mut values = Vec::new();
    for (at, line) in lines.enumerate() {
        let value = serde_json::from_str(&line.map_err(failed)?);
        values.push(value.map_err(|source| StudyError::Json {
            path: path.to_owned(),
            line: Some(at + 1),
            source,
        })?);
    }
    Ok(values)
}

/// Writes a file that appears whole or not at all.
pub fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), StudyError> {
    let failed = |source| StudyError::File {
        path: path.to_owned(),
        source,
    };
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(dir).map_err(failed)?;
    let mut buffered = std::io::BufWriter::new(file.as_file_mut());
    fill(&mut buffered).map_err(failed)?;
    buffered.flush().map_err(failed)?;
    drop(buffered);
    crate::bench::output::readable_by_others(file.as_file()).map_err(failed)?;
    // A name that outlives a power cut must not stand for less than the file.
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Writes a value as JSON, a key a line.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StudyError> {
    write_whole(path, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Writes a value a line.
pub fn write_lines<T: Serialize>(path: &Path, values: &[T]) -> Result<(), StudyError> {
    write_whole(path, |out| {
        for value in values {
            serde_json::to_writer(&mut *out, value)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_study_or_a_later_one_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let said = folder.read().unwrap_err().to_string();
        assert!(
            said.contains("no study") && said.contains("--out"),
            "{said}"
        );
        std::fs::write(folder.study(), r#"{"schema": 999}"#).unwrap();
        let said = folder.read().unwrap_err().to_string();
        assert!(said.contains("later") && said.contains("999"), "{said}");
        assert!(folder.points().unwrap().is_empty());
    }

    #[test]
    fn a_file_of_lines_is_read_back_and_a_wrong_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let point = Folder::new(dir.path()).point("p");
        std::fs::create_dir_all(point.path()).unwrap();
        assert!(point.readings().unwrap().is_empty());
        assert_eq!(point.finished().unwrap(), None);
        let reading = Reading {
            at_s: -0.5,
            source: crate::study::monitor::Source::Gpu,
            instance: None,
            gpu: Some("1".into()),
            figures: Default::default(),
        };
        let path = point.file("monitor.jsonl");
        write_lines(&path, std::slice::from_ref(&reading)).unwrap();
        assert_eq!(point.readings().unwrap(), [reading]);
        let text = std::fs::read_to_string(&path).unwrap() + "{\"at_s\":\n";
        std::fs::write(&path, text).unwrap();
        let said = point.readings().unwrap_err().to_string();
        assert!(said.contains("monitor.jsonl, line 2"), "{said}");
    }
}
