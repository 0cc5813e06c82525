//! Traces of real traffic: files of requests, or of rates and lengths, told apart by how they begin.
//!
//! One file here a format. Nothing is dropped in silence: a row that cannot be read is counted and
//! named with its line, and so is a row that was read but stands for nothing to send. A file with no
//! usable row is an error.

mod azure;
mod burstgpt;
mod columns;
mod document;
mod error;
mod gather;
mod lengths_table;
mod lines;
mod mooncake;
mod numbers;
mod otel;
mod records;
pub mod servegen;
mod wall_time;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use columns::Header;
pub use error::TraceError;
use gather::{Gather, Sessions};
use lines::Lines;
use servegen::{LengthWindows, RateWindows};

/// Bytes of a line at most.
pub const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a file that has to be read as a whole at most.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Rows of a file at most.
pub const ROWS_MAX: u64 = super::arrivals::REQUESTS_MAX as u64;
/// Tokens of a prompt or an answer at most.
pub const TOKENS_MAX: u32 = 1 << 24;
/// Rows named of those that could not be used; all are counted.
pub const NAMED_ROWS: usize = 20;

/// What kind of file a trace came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Evenkeel's own records
    Records,
    /// Mooncake: JSON lines with prefix blocks of 512 tokens, times in milliseconds
    Mooncake,
    /// Qwen-Bailian: the same with blocks of 16 tokens, and times in seconds
    Bailian,
    /// Azure's public traces of 2023 and later
    Azure,
    /// BurstGPT
    BurstGpt,
    /// prompt and answer lengths without times, or with (`arrived_at`)
    Lengths,
    /// OpenTelemetry spans with `gen_ai` attributes
    Otel,
    /// requests drawn from ServeGen's rates and lengths
    ServeGen,
}

/// One request of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRequest {
    /// when it came, nanoseconds after the first request of the file; `None` if the file has no times
    pub at_ns: Option<u64>,
    /// prompt length
    pub prompt_tokens: u32,
    /// length of the answer
    pub output_tokens: u32,
    /// its prefix blocks, where the file gives them
    pub prefix: Option<Arc<PrefixIds>>,
    /// number of its session or client, counted from 0 in the order they appear in the file
    pub session: Option<u32>,
}

/// Numbers of a prompt's prefix blocks: equal numbers stand for equal text up to the block's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixIds {
    /// tokens of a block
    pub block_tokens: u32,
    /// from the first block on; the last may be filled in part
    pub ids: Vec<u64>,
}

/// A row that was not used.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct UnusedRow {
    /// name of the file
    pub file: Arc<str>,
    /// line of the file, from 1
    pub line: u64,
    /// what was found, and what would be right
    pub why: String,
}

/// Rows that were not used: how many, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct UnusedRows {
    /// all of them
    pub count: u64,
    /// the first [`NAMED_ROWS`]
    pub first: Vec<UnusedRow>,
}

/// The requests of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// name of the file
    pub name: String,
    /// its format
    pub format: Format,
    /// its requests, in order of time, or as they stand if there are no times
    pub requests: Vec<TraceRequest>,
    /// rows with data: usable, malformed and left out
    pub rows: u64,
    /// rows that could not be read
    pub malformed: UnusedRows,
    /// rows that were read and stand for nothing that can be sent, such as failed requests
    pub left_out: UnusedRows,
    /// requests of which a length is not known but estimated
    pub estimated: u64,
    /// distinct sessions or clients
    pub sessions: u32,
}

impl Trace {
    /// Whether its requests have times.
    pub fn has_times(&self) -> bool {
        self.requests.iter().all(|request| request.at_ns.is_some())
    }

    /// What is to be known of the trace's rows, in words, a line each: how many were not used, and
    /// the first of them by file and line.
    pub fn notes(&self) -> Vec<String> {
        let estimated = (self.estimated > 0).then(|| {
            format!(
                "{}: {} of {} rows have a length that is estimated, not measured",
                self.name, self.estimated, self.rows
            )
        });
        let unused = self
            .malformed
            .notes(&self.name, self.rows, "cannot be read");
        let left_out = self.left_out.notes(&self.name, self.rows, "are left out");
        unused
            .into_iter()
            .chain(left_out)
            .chain(estimated)
            .collect()
    }
}

impl UnusedRows {
    /// These and those of another file.
    pub fn and(mut self, others: &UnusedRows) -> UnusedRows {
        self.count += others.count;
        let room = NAMED_ROWS.saturating_sub(self.first.len());
        self.first.extend(others.first.iter().take(room).cloned());
        self
    }

    /// How many of a trace's rows these are and why, and then the first of them; nothing of none.
    pub fn notes(&self, name: &str, rows: u64, how: &str) -> Vec<String> {
        if self.count == 0 {
            return Vec::new();
        }
        let named = self.first.iter();
        let named = named.map(|row| format!("  {}, line {}: {}", row.file, row.line, row.why));
        let more = self.count - self.first.len() as u64;
        let more = (more > 0).then(|| format!("  and {more} more"));
        let head = format!("{name}: {} of {rows} rows {how}", self.count);
        std::iter::once(head).chain(named).chain(more).collect()
    }
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceFile {
    /// requests, one by one
    Requests(Trace),
    /// ServeGen: how many requests came and how unevenly, window by window
    Rates(RateWindows),
    /// ServeGen: how long they were, window by window
    Lengths(LengthWindows),
}

impl TraceFile {
    /// The requests, of a file that has them.
    pub fn into_requests(self) -> Result<Trace, TraceError> {
        match self {
            TraceFile::Requests(trace) => Ok(trace),
            TraceFile::Rates(rates) => Err(TraceError::RatesAlone(rates.name.to_string())),
            TraceFile::Lengths(lengths) => Err(TraceError::LengthsAlone(lengths.name.to_string())),
        }
    }
}

/// Reads a file, or a folder of Evenkeel's records.
pub fn open(path: &Path) -> Result<TraceFile, TraceError> {
    if path.is_dir() {
        return records::read_dir(path).map(TraceFile::Requests);
    }
    let name = path.display().to_string();
    read(&name, open_file(path)?)
}

fn open_file(path: &Path) -> Result<BufReader<File>, TraceError> {
    match File::open(path) {
        Ok(file) => Ok(BufReader::with_capacity(1 << 16, file)),
        Err(source) => Err(TraceError::Open {
            name: path.display().to_string(),
            source,
        }),
    }
}

/// Reads what a file of this name holds.
pub fn read(name: &str, source: impl BufRead) -> Result<TraceFile, TraceError> {
    let mut lines = Lines::new(name, source, LINE_BYTES_MAX);
    let Some(first) = lines.next_filled()? else {
        return Err(TraceError::Empty(name.to_owned()));
    };
    let number = first.number;
    let text = match first.text {
        Ok(text) => text.to_owned(),
        Err(why) => return Err(TraceError::unknown(name, number, &why)),
    };
    if text.starts_with(['{', '[']) {
        return read_json(name, number, text, lines);
    }
    if RateWindows::begins(&text) {
        return RateWindows::read(name, (number, &text), &mut lines).map(TraceFile::Rates);
    }
    let header = Header::of(&text);
    let mut gather = Gather::new(name);
    if let Some(columns) = azure::Columns::find(&header) {
        gather.lines(&mut lines, |line, _| columns.row(line))?;
        return gather.finish(Format::Azure).map(TraceFile::Requests);
    }
    if let Some(columns) = burstgpt::Columns::find(&header) {
        gather.lines(&mut lines, |line, sessions| columns.row(line, sessions))?;
        return gather.finish(Format::BurstGpt).map(TraceFile::Requests);
    }
    if let Some(columns) = lengths_table::Columns::find(&header) {
        gather.lines(&mut lines, |line, _| columns.row(line))?;
        return gather.finish(Format::Lengths).map(TraceFile::Requests);
    }
    let found = format!("{:?}", numbers::shown(&text));
    Err(TraceError::unknown(name, number, &found))
}

/// Keys that tell what kind of JSON lines a file has.
#[derive(Deserialize)]
struct Keys {
    request_id: Option<IgnoredAny>,
    outcome: Option<IgnoredAny>,
    timestamp: Option<IgnoredAny>,
    input_length: Option<IgnoredAny>,
    chat_id: Option<IgnoredAny>,
}

/// JSON lines if the first line is a whole object of a known kind, else a document over many lines.
fn read_json<R: BufRead>(
    name: &str,
    number: u64,
    first: String,
    mut lines: Lines<'_, R>,
) -> Result<TraceFile, TraceError> {
    let keys: Option<Keys> = serde_json::from_str(&first).ok();
    let mut gather = Gather::new(name);
    match keys {
        Some(keys) if keys.request_id.is_some() && keys.outcome.is_some() => {
            gather.line(number, &first, records::row)?;
            gather.lines(&mut lines, records::row)?;
            gather.finish(Format::Records).map(TraceFile::Requests)
        }
        Some(keys) if keys.timestamp.is_some() && keys.input_length.is_some() => {
            let dialect = match keys.chat_id {
                Some(_) => mooncake::Dialect::Bailian,
                None => mooncake::Dialect::Mooncake,
            };
            let row = |line: &str, sessions: &mut Sessions| dialect.row(line, sessions);
            gather.line(number, &first, row)?;
            gather.lines(&mut lines, row)?;
            gather.finish(dialect.format()).map(TraceFile::Requests)
        }
        _ => document::read(name, number, &lines.rest(first)?),
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
