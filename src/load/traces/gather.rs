//! Collects the requests of a file, and counts the rows that give none.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;

use super::lines::Lines;
use super::{
    Format, NAMED_ROWS, PrefixIds, ROWS_MAX, Trace, TraceError, TraceRequest, UnusedRow, UnusedRows,
};

/// What a row says, its time still that of the file's own clock.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) at_ns: Option<i64>,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) prefix: Option<Arc<PrefixIds>>,
    pub(super) session: Option<u32>,
    /// a length is not measured
    pub(super) estimated: bool,
}

/// Why a row gives no request.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    /// it cannot be read
    Malformed(String),
    /// it stands for nothing that can be sent
    LeftOut(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Malformed(why)
    }
}

/// Numbers for the names of sessions or clients; the names themselves are not kept.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    numbers: HashMap<String, u32>,
}

impl Sessions {
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

impl UnusedRows {
    pub(super) fn add(&mut self, file: &Arc<str>, line: u64, why: String) {
        self.count += 1;
        if self.first.len() < NAMED_ROWS {
            let file = Arc::clone(file);
            self.first.push(UnusedRow { file, line, why });
        }
    }
}

/// The trace under way.
pub(super) struct Gather {
    name: Arc<str>,
    file: Arc<str>,
    rows: u64,
    requests: Vec<Row>,
    malformed: UnusedRows,
    left_out: UnusedRows,
    sessions: Sessions,
}

impl Gather {
    pub(super) fn new(name: &str) -> Gather {
        let name: Arc<str> = name.into();
        Gather {
            file: Arc::clone(&name),
            name,
            rows: 0,
            requests: Vec::new(),
            malformed: UnusedRows::default(),
            left_out: UnusedRows::default(),
            sessions: Sessions::default(),
        }
    }

    /// What is read from here on is of this file, one of several of the trace.
    pub(super) fn begin_file(&mut self, file: &str) {
        self.file = file.into();
    }

    /// Reads all lines that are left.
    pub(super) fn lines<R: BufRead>(
        &mut self,
        lines: &mut Lines<'_, R>,
        mut read: impl FnMut(&str, &mut Sessions) -> Result<Row, Refusal>,
    ) -> Result<(), TraceError> {
        while let Some(line) = lines.next_filled()? {
            match line.text {
                Ok(text) => self.line(line.number, text, &mut read)?,
                Err(why) => self.take(line.number, Err(Refusal::Malformed(why)))?,
            }
        }
        Ok(())
    }

    /// Reads a line.
    pub(super) fn line(
        &mut self,
        number: u64,
        text: &str,
        mut read: impl FnMut(&str, &mut Sessions) -> Result<Row, Refusal>,
    ) -> Result<(), TraceError> {
        let row = read(text, &mut self.sessions);
        self.take(number, row)
    }

    fn take(&mut self, line: u64, row: Result<Row, Refusal>) -> Result<(), TraceError> {
        if self.rows == ROWS_MAX {
            return Err(TraceError::TooManyRows(self.name.to_string()));
        }
        self.rows += 1;
        match row {
            Ok(row) if row.prompt_tokens == 0 => {
                self.left_out.add(
                    &self.file,
                    line,
                    "a prompt of 0 tokens cannot be sent".to_owned(),
                );
            }
            Ok(row) if row.output_tokens == 0 => {
                self.left_out.add(
                    &self.file,
                    line,
                    "an answer of 0 tokens cannot be asked for".to_owned(),
                );
            }
            Ok(row) => self.requests.push(row),
            Err(Refusal::Malformed(why)) => self.malformed.add(&self.file, line, why),
            Err(Refusal::LeftOut(why)) => self.left_out.add(&self.file, line, why),
        }
        Ok(())
    }

    /// The trace: in order of time, counted from the first request.
    pub(super) fn finish(mut self, format: Format) -> Result<Trace, TraceError> {
        if self.requests.is_empty() {
            return Err(TraceError::NoUsableRow {
                name: self.name.to_string(),
                rows: self.rows,
                malformed: self.malformed,
                left_out: self.left_out,
            });
        }
        // stable: requests of one moment stay in the file's order
        self.requests.sort_by_key(|row| row.at_ns);
        let first_ns = self.requests.iter().find_map(|row| row.at_ns).unwrap_or(0);
        let request = |row: &Row| TraceRequest {
            at_ns: row.at_ns.map(|at_ns| at_ns.abs_diff(first_ns)),
            prompt_tokens: row.prompt_tokens,
            output_tokens: row.output_tokens,
            prefix: row.prefix.clone(),
            session: row.session,
        };
        Ok(Trace {
            name: self.name.to_string(),
            format,
            requests: self.requests.iter().map(request).collect(),
            rows: self.rows,
            malformed: self.malformed,
            left_out: self.left_out,
            estimated: self.requests.iter().filter(|row| row.estimated).count() as u64,
            sessions: self.sessions.numbers.len() as u32,
        })
    }
}
