//! What can be wrong with a trace as a whole.

use super::{DOCUMENT_BYTES_MAX, ROWS_MAX, UnusedRows};

/// Why a file gives no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// it cannot be opened
    #[error("cannot open the trace {name}: {source}")]
    Open {
        /// file
        name: String,
        /// as the system says it
        source: std::io::Error,
    },
    /// a folder that is no trace
    #[error(
        "{0} is a folder without records-*.jsonl: give a trace, or a folder of Evenkeel's records"
    )]
    NoRecords(String),
    /// it cannot be read to its end
    #[error("cannot read the trace {name}: {source}")]
    Read {
        /// file
        name: String,
        /// as the system says it
        source: std::io::Error,
    },
    /// there is nothing in it
    #[error("the trace {0} is empty")]
    Empty(String),
    /// no format begins like this
    #[error(
        "{name}, line {line}: no trace begins with {found}. Known are Evenkeel's records; JSON lines of Mooncake and \
         Bailian (timestamp, input_length, output_length); CSV files with a header of Azure (TIMESTAMP, ContextTokens, \
         GeneratedTokens), BurstGPT (Timestamp, Request tokens, Response tokens) or lengths (num_prefill_tokens, \
         num_decode_tokens); ServeGen's rates (six columns) and lengths (JSON); OpenTelemetry spans (JSON)"
    )]
    Unknown {
        /// file
        name: String,
        /// line
        line: u64,
        /// its begin
        found: String,
    },
    /// a whole JSON text that is broken
    #[error("{name}, line {line}: the JSON is broken: {why}")]
    Broken {
        /// file
        name: String,
        /// line
        line: u64,
        /// as the parser says it
        why: String,
    },
    /// a JSON text that is too large to be held
    #[error("{0} is one JSON text of more than {DOCUMENT_BYTES_MAX} bytes: cut it into several")]
    TooLarge(String),
    /// too many rows
    #[error("{0} has more than {ROWS_MAX} rows: cut it into several")]
    TooManyRows(String),
    /// rows, but none to use
    #[error("{name}: none of {rows} rows can be used{}", first_words(.malformed, .left_out))]
    NoUsableRow {
        /// file
        name: String,
        /// rows with data
        rows: u64,
        /// those that cannot be read
        malformed: UnusedRows,
        /// those that stand for nothing to send
        left_out: UnusedRows,
    },
    /// ServeGen's rates, where requests are wanted
    #[error(
        "{0} has ServeGen's rates: give the client's lengths (-dataset.json) with it, to draw requests from both"
    )]
    RatesAlone(String),
    /// ServeGen's lengths, where requests are wanted
    #[error(
        "{0} has ServeGen's lengths: give the client's rates (-trace.csv) with it, to draw requests from both"
    )]
    LengthsAlone(String),
    /// ServeGen's rates give no requests as they are asked for
    #[error("no requests can be drawn from the rates {0}: {1}")]
    NothingDrawn(String, String),
}

impl TraceError {
    pub(super) fn unknown(name: &str, line: u64, found: &str) -> TraceError {
        TraceError::Unknown {
            name: name.to_owned(),
            line,
            found: found.to_owned(),
        }
    }
}

fn first_words(malformed: &UnusedRows, left_out: &UnusedRows) -> String {
    match malformed.first.first().or(left_out.first.first()) {
        Some(row) => format!(
            "; the first is {}, line {}: {}",
            row.file, row.line, row.why
        ),
        None => String::new(),
    }
}
