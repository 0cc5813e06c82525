//! What is wrong with a study's files, and where; told, but no reason to give up on the rest.

use serde::Serialize;

/// Malformed lines of a file that are named one by one.
const NAMED_LINES: u64 = 10;

/// Something that is missing or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// the file, from the study's folder
    pub file: String,
    /// the line, from 1, where it is about one
    pub line: Option<u64>,
    /// what is wrong
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

/// Reads every line that has something on it; those that cannot be read are counted, and the first ones named.
pub(super) fn read_lines<T>(
    file: &str,
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
    problems: &mut Vec<Problem>,
) -> Vec<T> {
    let mut values = Vec::new();
    let mut malformed = 0;
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let what = match read(line) {
            Ok(value) => {
                values.push(value);
                continue;
            }
            Err(what) => what,
        };
        malformed += 1;
        if malformed <= NAMED_LINES {
            problems.push(Problem {
                file: file.to_owned(),
                line: Some(at as u64 + 1),
                what,
            });
        }
    }
    if malformed > NAMED_LINES {
        problems.push(Problem {
            file: file.to_owned(),
            line: None,
            what: format!("{malformed} lines in all could not be read"),
        });
    }
    values
}
