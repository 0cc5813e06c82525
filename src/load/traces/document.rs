//! Files that are one JSON text over many lines: OpenTelemetry spans, and ServeGen's lengths.
//!
//! Only where each row lies in the text is collected; a row is parsed on its own, so that one that
//! is broken in its meaning is named with its line and the others are read.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::gather::Gather;
use super::servegen::LengthWindows;
use super::{Format, TraceError, TraceFile, numbers, otel};

/// Rows of a document at most.
const DOCUMENT_ROWS_MAX: usize = 1_000_000;

/// The rows of a list, as they are written.
pub(super) struct List<'a>(pub(super) Vec<&'a RawValue>);

/// The rows of an object with their keys, as they are written.
pub(super) struct Table<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for List<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<List<'a>, D::Error> {
        struct Rows;
        impl<'de> Visitor<'de> for Rows {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, words: &mut fmt::Formatter<'_>) -> fmt::Result {
                words.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut rows = Vec::new();
                while let Some(row) = seq.next_element()? {
                    room_for_one(rows.len())?;
                    rows.push(row);
                }
                Ok(rows)
            }
        }
        source.deserialize_seq(Rows).map(List)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Table<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Table<'a>, D::Error> {
        struct Rows;
        impl<'de> Visitor<'de> for Rows {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, words: &mut fmt::Formatter<'_>) -> fmt::Result {
                words.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut rows = Vec::new();
                while let Some(row) = map.next_entry()? {
                    room_for_one(rows.len())?;
                    rows.push(row);
                }
                Ok(rows)
            }
        }
        source.deserialize_map(Rows).map(Table)
    }
}

fn room_for_one<E: serde::de::Error>(rows: usize) -> Result<(), E> {
    if rows < DOCUMENT_ROWS_MAX {
        return Ok(());
    }
    let words = format!("more than {DOCUMENT_ROWS_MAX} rows in one text");
    Err(E::custom(words))
}

/// What tells spans from other objects.
#[derive(Deserialize)]
struct Spans<'a> {
    #[serde(borrow)]
    spans: List<'a>,
}

#[derive(Deserialize)]
struct Probe {
    spans: Option<IgnoredAny>,
}

/// Reads a JSON text that begins in line `first_line` of the file.
pub(super) fn read(name: &str, first_line: u64, text: &[u8]) -> Result<TraceFile, TraceError> {
    let place = Place { first_line, text };
    let broken = |error: serde_json::Error| TraceError::Broken {
        name: name.to_owned(),
        line: first_line + (error.line() as u64).saturating_sub(1),
        why: numbers::json_words(&error),
    };
    let text = std::str::from_utf8(text).map_err(|error| TraceError::Broken {
        name: name.to_owned(),
        line: place.line_at(error.valid_up_to()),
        why: "no UTF-8".to_owned(),
    })?;
    if !text.trim_start().starts_with('{') {
        serde_json::from_str::<IgnoredAny>(text).map_err(broken)?;
        return Err(TraceError::unknown(name, first_line, "a JSON list"));
    }
    let probe: Probe = serde_json::from_str(text).map_err(broken)?;
    let mut lines = RowLines {
        text: text.as_bytes(),
        line: first_line,
        counted: 0,
    };
    if probe.spans.is_some() {
        let document: Spans<'_> = serde_json::from_str(text).map_err(broken)?;
        let mut gather = Gather::new(name);
        for span in document.spans.0 {
            gather.line(lines.line_of(span), span.get(), otel::row)?;
        }
        return gather.finish(Format::Otel).map(TraceFile::Requests);
    }
    let table: Table<'_> = serde_json::from_str(text).map_err(broken)?;
    LengthWindows::read(name, &table, &mut lines).map(TraceFile::Lengths)
}

/// Where in a file its text lies.
struct Place<'a> {
    first_line: u64,
    text: &'a [u8],
}

impl Place<'_> {
    fn line_at(&self, offset: usize) -> u64 {
        let before = &self.text[..offset.min(self.text.len())];
        self.first_line + memchr::memchr_iter(b'\n', before).count() as u64
    }
}

/// Tells the lines of rows, which are asked for in the order of the text.
pub(super) struct RowLines<'a> {
    text: &'a [u8],
    line: u64,
    counted: usize,
}

impl RowLines<'_> {
    /// The line in which a row begins.
    pub(super) fn line_of(&mut self, row: &RawValue) -> u64 {
        let offset = row
            .get()
            .as_ptr()
            .addr()
            .saturating_sub(self.text.as_ptr().addr());
        if let Some(passed) = self.text.get(self.counted..offset) {
            self.line += memchr::memchr_iter(b'\n', passed).count() as u64;
            self.counted = offset;
        }
        self.line
    }
}
