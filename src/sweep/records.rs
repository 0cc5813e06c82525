//! The proxy's records of one point, out of the files it writes all its records to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::SweepError;
use crate::measure::record::Record;
use crate::measure::record_files::record_files;

/// How long each file was before the point began.
#[derive(Debug)]
pub struct Tail {
    dir: PathBuf,
    known_bytes: BTreeMap<PathBuf, u64>,
}

/// What was found since.
#[derive(Debug, Default)]
pub struct Found {
    /// records of the point, in the order of the files
    pub records: Vec<Record>,
    /// lines that are no records
    pub unreadable: u64,
}

impl Tail {
    /// From now on.
    pub fn begin(dir: &Path) -> Result<Tail, SweepError> {
        let mut known_bytes = BTreeMap::new();
        for path in record_files(dir).map_err(SweepError::file(dir))? {
            let size = std::fs::metadata(&path).map_err(SweepError::file(&path))?;
            known_bytes.insert(path, size.len());
        }
        Ok(Tail {
            dir: dir.to_owned(),
            known_bytes,
        })
    }

    /// Records written since whose ids begin with `id_prefix`.
    pub fn found(&self, id_prefix: &str) -> Result<Found, SweepError> {
        let mut found = Found::default();
        for path in record_files(&self.dir).map_err(SweepError::file(&self.dir))? {
            let from = self.known_bytes.get(&path).copied().unwrap_or(0);
            read(&path, from, id_prefix, &mut found).map_err(SweepError::file(&path))?;
        }
        Ok(found)
    }
}

fn read(path: &Path, from: u64, id_prefix: &str, found: &mut Found) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::new(file);
    let mut line = String::new();
    loop {
        line.clear();
        // A last line without its end is still being written.
        if reader.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        match serde_json::from_str::<Record>(&line) {
            Ok(record) if record.request_id.starts_with(id_prefix) => found.records.push(record),
            Ok(_) => {}
            Err(_) => found.unreadable += 1,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(id: &str) -> String {
        let record = Record {
            request_id: id.into(),
            ..Record::default()
        };
        serde_json::to_string(&record).unwrap() + "\n"
    }

    #[test]
    fn only_what_was_written_since_and_belongs_to_the_point_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records-1.jsonl");
        std::fs::write(&path, line("p-1-0")).unwrap();
        std::fs::write(dir.path().join("chunks-1.jsonl"), "{}\n").unwrap();
        let tail = Tail::begin(dir.path()).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let more = line("p-1-1") + &line("q-1-0") + "half\n" + &line("p-1-2");
        file.write_all(more.as_bytes()).unwrap();
        std::fs::write(
            dir.path().join("records-2.jsonl"),
            line("p-1-3") + "{\"requ",
        )
        .unwrap();
        let found = tail.found("p-1-").unwrap();
        let ids: Vec<&str> = found
            .records
            .iter()
            .map(|one| one.request_id.as_str())
            .collect();
        assert_eq!(ids, ["p-1-1", "p-1-2", "p-1-3"]);
        assert_eq!(found.unreadable, 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let said = Tail::begin(Path::new("/no/where")).unwrap_err().to_string();
        assert!(said.contains("/no/where"), "{said}");
    }
}
