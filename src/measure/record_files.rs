//! Which files of a folder hold records, as the writer names them.

use std::io;
use std::path::{Path, PathBuf};

/// All `records-*.jsonl` of a folder, in the order of their names, which is that of their times.
pub fn record_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<PathBuf>> = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect();
    let mut files = entries?;
    files.retain(|path| is_records_file(path));
    files.sort_unstable();
    Ok(files)
}

fn is_records_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("records-") && name.ends_with(".jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_records_are_read() {
        assert!(is_records_file(Path::new("a/records-20260101-1.jsonl")));
        assert!(!is_records_file(Path::new("a/chunks-20260101-1.jsonl")));
        assert!(!is_records_file(Path::new("a/run.toml")));
    }
}
