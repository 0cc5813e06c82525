//! A study's files: where they lie, how they are written whole, and how they are read back.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::NamedTempFile;

use super::{PointFile, STUDY_VERSION, StudyFile};

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
    #[error("{}: {source}", path.display())]
    Json {
        /// the file
        path: PathBuf,
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
        serde_json::from_value(value).map_err(|source| StudyError::Json { path, source })
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
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StudyError> {
    let file = File::open(path).map_err(|source| StudyError::File {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_reader(BufReader::new(file)).map_err(|source| StudyError::Json {
        path: path.to_owned(),
        source,
    })
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
    fn lines_are_written_whole_and_a_point_is_finished_by_its_last_file() {
        let dir = tempfile::tempdir().unwrap();
        let point = Folder::new(dir.path()).point("p");
        std::fs::create_dir_all(point.path()).unwrap();
        write_lines(&point.file("monitor.jsonl"), &[1, 2]).unwrap();
        let text = std::fs::read_to_string(point.file("monitor.jsonl")).unwrap();
        assert_eq!(text, "1\n2\n");
        assert_eq!(point.finished().unwrap(), None);
        std::fs::write(point.file("point.json"), "{\"id\":").unwrap();
        let said = point.finished().unwrap_err().to_string();
        assert!(said.contains("point.json"), "{said}");
        let failing = write_whole(&point.file("x"), |_| Err(std::io::ErrorKind::Other.into()));
        assert!(failing.is_err() && !point.file("x").exists());
    }
}
