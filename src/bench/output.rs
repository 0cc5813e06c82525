//! Files of results: opened before the run, so that a wrong path costs no run, and never half written.

use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::BenchError;

/// A file to be.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    temporary: NamedTempFile,
}

impl Output {
    /// Makes sure that the file can be written, without touching one that is there.
    pub fn open(path: &Path) -> Result<Output, BenchError> {
        let failed = |source| BenchError::File {
            path: path.to_owned(),
            source,
        };
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        if path.is_dir() {
            return Err(failed(std::io::ErrorKind::IsADirectory.into()));
        }
        Ok(Output {
            temporary: NamedTempFile::new_in(dir).map_err(failed)?,
            path: path.to_owned(),
        })
    }

    /// Writes all of it and gives it its name.
    pub fn write(
        mut self,
        fill: impl FnOnce(&mut dyn Write) -> Result<(), BenchError>,
    ) -> Result<PathBuf, BenchError> {
        let failed = |path: &Path, source| BenchError::File {
            path: path.to_owned(),
            source,
        };
        let mut buffered = std::io::BufWriter::new(self.temporary.as_file_mut());
        fill(&mut buffered)?;
        buffered
            .flush()
            .map_err(|error| failed(&self.path, error))?;
        drop(buffered);
        readable_by_others(self.temporary.as_file()).map_err(|error| failed(&self.path, error))?;
        match self.temporary.persist(&self.path) {
            Ok(_) => Ok(self.path),
            Err(error) => Err(failed(&self.path, error.error)),
        }
    }
}

/// Temporary files are their owner's only; results are as any file.
pub(crate) fn readable_by_others(file: &std::fs::File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        std::fs::write(&path, "old").unwrap();
        let failing = Output::open(&path).unwrap().write(|out| {
            let _ = out.write_all(b"half");
            Err(BenchError::Options("no".into()))
        });
        assert!(failing.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        let written = Output::open(&path).unwrap().write(|out| {
            let _ = out.write_all(b"new");
            Ok(())
        });
        assert_eq!(written.unwrap(), path);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named_before_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let said = Output::open(&dir.path().join("no/where.json")).unwrap_err();
        assert!(said.to_string().contains("where.json"), "{said}");
        assert!(Output::open(dir.path()).is_err());
    }
}
