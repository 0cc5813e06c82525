//! Azure's public inference traces: wall time, prompt tokens, output tokens.
//!
//! 2023 and 2024 have these three columns, 2025 one more for images; columns go by their names.

use super::columns::{Header, split};
use super::gather::{Refusal, Row};
use super::{numbers, wall_time};

/// Where the columns are.
pub(super) struct Columns {
    count: usize,
    time: usize,
    prompt: usize,
    output: usize,
}

impl Columns {
    pub(super) fn find(header: &Header) -> Option<Columns> {
        Some(Columns {
            count: header.count(),
            time: header.find("TIMESTAMP")?,
            prompt: header.find("ContextTokens")?,
            output: header.find("GeneratedTokens")?,
        })
    }

    pub(super) fn row(&self, line: &str) -> Result<Row, Refusal> {
        let fields = split(line, self.count)?;
        Ok(Row {
            at_ns: Some(wall_time::parse_ns("TIMESTAMP", fields[self.time])?),
            prompt_tokens: numbers::tokens("ContextTokens", fields[self.prompt])?,
            output_tokens: numbers::tokens("GeneratedTokens", fields[self.output])?,
            ..Row::default()
        })
    }
}
