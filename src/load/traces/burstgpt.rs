//! BurstGPT: seconds since the first midnight, model, tokens of request, response and both.
//!
//! The third release puts a session and an elapsed time in between, so columns go by their names.
//! A response of 0 tokens marks a request that failed.

use super::columns::{Header, split};
use super::gather::{Refusal, Row, Sessions};
use super::numbers;

/// Where the columns are.
pub(super) struct Columns {
    count: usize,
    time: usize,
    prompt: usize,
    output: usize,
    session: Option<usize>,
}

impl Columns {
    pub(super) fn find(header: &Header) -> Option<Columns> {
        Some(Columns {
            count: header.count(),
            time: header.find("Timestamp")?,
            prompt: header.find("Request tokens")?,
            output: header.find("Response tokens")?,
            session: header.find("Session ID"),
        })
    }

    pub(super) fn row(&self, line: &str, sessions: &mut Sessions) -> Result<Row, Refusal> {
        let fields = split(line, self.count)?;
        let output_tokens = numbers::tokens("Response tokens", fields[self.output])?;
        let row = Row {
            at_ns: Some(numbers::time_ns("Timestamp", fields[self.time], 1e9)?),
            prompt_tokens: numbers::tokens("Request tokens", fields[self.prompt])?,
            output_tokens,
            ..Row::default()
        };
        if output_tokens == 0 {
            let why = "a response of 0 tokens marks a request that failed";
            return Err(Refusal::LeftOut(why.to_owned()));
        }
        let session = self.session.map(|column| fields[column]);
        let session = session.filter(|name| !name.is_empty());
        Ok(Row {
            session: session.map(|name| sessions.number(name)),
            ..row
        })
    }
}
