//! Tables of prompt and output lengths, such as those made of ShareGPT's conversations.
//!
//! Most have no times; where `arrived_at` (seconds) is given, it is taken.

use super::columns::{Header, split};
use super::gather::{Refusal, Row};
use super::numbers;

/// Where the columns are.
pub(super) struct Columns {
    count: usize,
    prompt: usize,
    output: usize,
    time: Option<usize>,
}

impl Columns {
    pub(super) fn find(header: &Header) -> Option<Columns> {
        Some(Columns {
            count: header.count(),
            prompt: header.find("num_prefill_tokens")?,
            output: header.find("num_decode_tokens")?,
            time: header.find("arrived_at"),
        })
    }

    pub(super) fn row(&self, line: &str) -> Result<Row, Refusal> {
        let fields = split(line, self.count)?;
        let at_ns = self
            .time
            .map(|column| numbers::time_ns("arrived_at", fields[column], 1e9));
        Ok(Row {
            at_ns: at_ns.transpose()?,
            prompt_tokens: numbers::tokens("num_prefill_tokens", fields[self.prompt])?,
            output_tokens: numbers::tokens("num_decode_tokens", fields[self.output])?,
            ..Row::default()
        })
    }
}
