//! Evenkeel's own records, as `serve` writes them, taken for what was asked of the fleet.
//!
//! Shed and failed requests were demand too and are kept, with the output length that was
//! predicted for them; only what Evenkeel itself rejected is left out. No prefix is known.

use std::path::Path;

use serde::Deserialize;

use super::gather::{Gather, Refusal, Row, Sessions};
use super::lines::Lines;
use super::{Format, LINE_BYTES_MAX, TOKENS_MAX, Trace, TraceError, numbers, open_file};
use crate::measure::outcome::Outcome;
use crate::measure::record::RECORD_VERSION;
use crate::measure::record_files::record_files;

/// What a replay needs of a [`crate::measure::record::Record`]; further fields do not matter.
#[derive(Deserialize)]
struct Line {
    schema: u32,
    outcome: Outcome,
    start_s: f64,
    api: String,
    key: Option<String>,
    prompt_tokens: Option<u64>,
    prompt_tokens_est: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_est: Option<f64>,
    output_tokens_predicted: Option<u64>,
    max_output_tokens: Option<u64>,
}

/// APIs whose requests a replay can stand for.
const GENERATING: [&str; 4] = ["chat", "completions", "responses", "messages"];

/// All `records-*.jsonl` of a folder, in the order of their names.
pub(super) fn read_dir(dir: &Path) -> Result<Trace, TraceError> {
    let name = dir.display().to_string();
    let files = record_files(dir).map_err(|source| TraceError::Open {
        name: name.clone(),
        source,
    })?;
    if files.is_empty() {
        return Err(TraceError::NoRecords(name));
    }
    let mut gather = Gather::new(&name);
    for path in files {
        let file = path.display().to_string();
        gather.begin_file(&file);
        let mut lines = Lines::new(&file, open_file(&path)?, LINE_BYTES_MAX);
        gather.lines(&mut lines, row)?;
    }
    gather.finish(Format::Records)
}

pub(super) fn row(line: &str, sessions: &mut Sessions) -> Result<Row, Refusal> {
    let line: Line = serde_json::from_str(line).map_err(|error| numbers::json_words(&error))?;
    if line.schema > RECORD_VERSION {
        return Err(Refusal::Malformed(format!(
            "schema is {}: this version of Evenkeel reads records up to {RECORD_VERSION}",
            line.schema
        )));
    }
    let at_ns = numbers::time_ns("start_s", &line.start_s.to_string(), 1e9)?;
    if line.outcome == Outcome::Rejected {
        return Err(Refusal::LeftOut("rejected before it was routed".to_owned()));
    }
    if !GENERATING.contains(&line.api.as_str()) {
        let api = numbers::shown(&line.api);
        return Err(Refusal::LeftOut(format!(
            "a request of the API {api:?} generates nothing"
        )));
    }
    let unknown = |what: &str| Refusal::LeftOut(format!("its {what} length is not known"));
    let prompt = line.prompt_tokens.or(line.prompt_tokens_est);
    let output = measured_output(&line).or_else(|| expected_output(&line));
    Ok(Row {
        at_ns: Some(at_ns),
        prompt_tokens: within("prompt", prompt.ok_or_else(|| unknown("prompt"))?)?,
        output_tokens: within("output", output.ok_or_else(|| unknown("output"))?)?,
        prefix: None,
        session: line.key.as_deref().map(|key| sessions.number(key)),
        estimated: line.prompt_tokens.is_none() || measured_output(&line).is_none(),
    })
}

/// Only of a complete answer: one that was cut says nothing of what was asked for.
fn measured_output(line: &Line) -> Option<u64> {
    line.output_tokens.filter(|_| line.outcome == Outcome::Ok)
}

fn expected_output(line: &Line) -> Option<u64> {
    let by_chunks = line
        .output_tokens_est
        .filter(|_| line.outcome == Outcome::Ok);
    let by_chunks = by_chunks.map(|tokens| tokens.round().max(1.0) as u64);
    by_chunks
        .or(line.output_tokens_predicted)
        .or(line.max_output_tokens)
}

fn within(what: &str, tokens: u64) -> Result<u32, Refusal> {
    let fits = u32::try_from(tokens)
        .ok()
        .filter(|tokens| *tokens <= TOKENS_MAX);
    fits.ok_or_else(|| {
        Refusal::Malformed(format!(
            "{what} of {tokens} tokens: at most {TOKENS_MAX} are possible"
        ))
    })
}
