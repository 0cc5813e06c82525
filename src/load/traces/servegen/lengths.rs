//! ServeGen's lengths: for each window of time, how likely each length of prompt and answer is.
//!
//! The distributions are Python's text form of a map, `{23: 0.0004, 24: 0.011}`, inside a string.
//! The share of an answer that is reasoning (`reason_ratio`) is not used: both are output.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::load::lengths::SeenLengths;
use crate::load::traces::document::{RowLines, Table};
use crate::load::traces::{TraceError, UnusedRows, numbers};

use super::start_ns;

/// The lengths of a window of time.
#[derive(Debug, Clone, PartialEq)]
pub struct LengthWindow {
    /// when it begins; it lasts until the next begins
    pub start_ns: u64,
    /// of prompts
    pub prompt: Arc<SeenLengths>,
    /// of answers
    pub output: Arc<SeenLengths>,
}

/// A client's lengths over time.
#[derive(Debug, Clone, PartialEq)]
pub struct LengthWindows {
    /// name of the file
    pub name: Arc<str>,
    /// windows in which lengths were seen, in order of time; at least one
    pub windows: Vec<LengthWindow>,
    /// windows in the file
    pub rows: u64,
    /// windows without any length
    pub empty: u64,
    /// windows that could not be read
    pub malformed: UnusedRows,
}

#[derive(Deserialize)]
struct Window {
    input_tokens: String,
    output_tokens: String,
}

impl LengthWindows {
    pub(in crate::load::traces) fn read(
        name: &str,
        table: &Table<'_>,
        lines: &mut RowLines<'_>,
    ) -> Result<LengthWindows, TraceError> {
        let mut lengths = LengthWindows {
            name: name.into(),
            windows: Vec::new(),
            rows: table.0.len() as u64,
            empty: 0,
            malformed: UnusedRows::default(),
        };
        for (key, row) in &table.0 {
            match window(key, row) {
                Ok(Some(window)) => lengths.windows.push(window),
                Ok(None) => lengths.empty += 1,
                Err(why) => lengths
                    .malformed
                    .add(&lengths.name, lines.line_of(row), why),
            }
        }
        if lengths.windows.is_empty() {
            return Err(TraceError::NoUsableRow {
                name: name.to_owned(),
                rows: lengths.rows,
                malformed: lengths.malformed,
                left_out: UnusedRows::default(),
            });
        }
        lengths.windows.sort_by_key(|window| window.start_ns);
        Ok(lengths)
    }

    /// The lengths of a time: those of the last window that began before it, or else of the first.
    pub fn at(&self, at_ns: u64) -> Option<&LengthWindow> {
        let begun = self
            .windows
            .partition_point(|window| window.start_ns <= at_ns);
        self.windows.get(begun.saturating_sub(1))
    }
}

/// A window; `None` if no length was seen in it.
fn window(key: &str, row: &RawValue) -> Result<Option<LengthWindow>, String> {
    let start_ns = start_ns("window", key)?;
    let window: Window = serde_json::from_str(row.get()).map_err(|error| {
        format!(
            "window {}: {}; maps of lengths as text are wanted in input_tokens and output_tokens",
            numbers::shown(key),
            numbers::json_words(&error)
        )
    })?;
    let prompt = distribution("input_tokens", &window.input_tokens)?;
    let output = distribution("output_tokens", &window.output_tokens)?;
    Ok(prompt.zip(output).map(|(prompt, output)| LengthWindow {
        start_ns,
        prompt: Arc::new(prompt),
        output: Arc::new(output),
    }))
}

/// Lengths and how likely each is; `None` of an empty map.
fn distribution(field: &str, text: &str) -> Result<Option<SeenLengths>, String> {
    let inside = text
        .trim()
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let inside = inside.ok_or_else(|| {
        let found = numbers::shown(text);
        format!("{field} is {found:?}: a map of lengths such as {{23: 0.5, 24: 0.5}} is wanted")
    })?;
    if inside.trim().is_empty() {
        return Ok(None);
    }
    let pairs: Result<Vec<(u32, f64)>, String> =
        inside.split(',').map(|entry| pair(field, entry)).collect();
    let seen = SeenLengths::weighted(pairs?);
    if seen.is_usable() {
        return Ok(Some(seen));
    }
    Err(format!(
        "{field} has lengths or shares of 0 only, or a length of 0: at least 1 token and a share above 0 are wanted"
    ))
}

fn pair(field: &str, entry: &str) -> Result<(u32, f64), String> {
    let (length, share) = entry.split_once(':').ok_or_else(|| {
        let found = numbers::shown(entry.trim());
        format!("{field} has {found:?}: a length and its share such as 23: 0.5 are wanted")
    })?;
    Ok((
        numbers::tokens(field, length.trim())?,
        numbers::not_negative(field, share.trim())?,
    ))
}
