//! What one event means, whatever API it came by.

use std::borrow::Cow;

use super::json::Json;
use crate::measure::chunk_log::ChunkKind;
use crate::measure::summary::{EngineError, Usage};

/// One choice's part of an event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Part<'a> {
    /// index of the choice
    pub choice: u32,
    /// kind of its output, if it carries any; an answer goes before reasoning
    pub output: Option<ChunkKind>,
    /// content was there, but empty
    pub empty: bool,
    /// finish reason
    pub finish: Option<Cow<'a, str>>,
    /// the one plain string that is its output, if that is all there is
    pub plain: Option<Cow<'a, str>>,
}

/// An event, read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Event<'a> {
    /// parts by choice
    pub parts: Vec<Part<'a>>,
    /// usage, running or final
    pub usage: Option<Usage>,
    /// an error
    pub error: Option<EngineError>,
    /// the end marker of the API
    pub done: bool,
}

/// Longest error kind kept.
const KIND_BYTES: usize = 64;

/// Cuts a string at `most` bytes, at a character's edge.
pub fn cut(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// Reads an error object, or an error that is only a string.
pub fn error(json: &Json<'_>) -> EngineError {
    let code = match json.get("code") {
        Some(Json::Number(number)) => Some(*number as i64),
        Some(Json::Text(text)) => text.parse().ok(),
        _ => None,
    };
    let kind = json
        .text_at("type")
        .or(json.text_at("code"))
        .map(|kind| cut(kind, KIND_BYTES));
    EngineError { code, kind }
}

/// Reads `usage` in either family's spelling. `None` if it names no count.
pub fn usage(json: &Json<'_>) -> Option<Usage> {
    let details = json
        .get("prompt_tokens_details")
        .or(json.get("input_tokens_details"));
    let cached = details.and_then(|details| details.count_at("cached_tokens"));
    let usage = Usage {
        prompt_tokens: json
            .count_at("prompt_tokens")
            .or(json.count_at("input_tokens")),
        output_tokens: json
            .count_at("completion_tokens")
            .or(json.count_at("output_tokens")),
        cached_tokens: cached,
    };
    (usage != Usage::default()).then_some(usage)
}

/// Adds to a part what one string field of output says.
pub fn add_text<'a>(part: &mut Part<'a>, value: Option<&Json<'a>>, kind: ChunkKind) {
    let filled = match value {
        Some(Json::Text(text)) if text.is_empty() => {
            part.empty = true;
            return;
        }
        Some(Json::Text(text)) => Some(text.clone()),
        Some(Json::List(items)) if !items.is_empty() => None,
        _ => return,
    };
    // A template is only safe where a single string makes the output.
    part.plain = if part.output.is_none() { filled } else { None };
    if part.output.is_none() || part.output == Some(ChunkKind::Reasoning) {
        part.output = Some(kind);
    }
}
