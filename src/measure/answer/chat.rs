//! Chat and legacy completions: `choices` with a `delta`, a whole `message`, or `text`.

use std::borrow::Cow;

use super::event::{Event, Part, add_text, error, usage};
use super::json::Json;
use crate::measure::chunk_log::ChunkKind;

/// Reads a chunk, or a whole answer.
pub fn read<'a>(json: &Json<'a>, name: Option<&[u8]>) -> Event<'a> {
    let choices = json.list_at("choices");
    let named_error = name == Some(b"error")
        || json
            .text_at("object")
            .is_some_and(|object| object == "error");
    let inner = choices.iter().find_map(|choice| choice.get("error"));
    let own = named_error.then_some(json);
    Event {
        parts: choices.iter().map(part).collect(),
        usage: json.get("usage").and_then(usage),
        error: json.get("error").or(inner).or(own).map(error),
        done: false,
    }
}

fn part<'a>(choice: &Json<'a>) -> Part<'a> {
    let mut part = Part {
        choice: choice
            .count_at("index")
            .unwrap_or(0)
            .min(u64::from(u32::MAX)) as u32,
        finish: choice.get("finish_reason").and_then(finish),
        ..Part::default()
    };
    add_text(&mut part, choice.get("text"), ChunkKind::Text);
    if let Some(delta) = choice.get("delta").or(choice.get("message")) {
        add_text(
            &mut part,
            delta.get("reasoning_content"),
            ChunkKind::Reasoning,
        );
        add_text(&mut part, delta.get("reasoning"), ChunkKind::Reasoning);
        add_text(&mut part, delta.get("content"), ChunkKind::Text);
        add_text(&mut part, delta.get("refusal"), ChunkKind::Text);
        let function = delta.get("function_call");
        if function.is_some_and(calls) || delta.list_at("tool_calls").iter().any(tool_calls) {
            part.output = Some(ChunkKind::Tool);
            part.plain = None;
        }
    }
    part.empty &= part.output.is_none() && part.finish.is_none();
    part
}

/// A finish reason is a string; one engine family sends an object with a `type`.
fn finish<'a>(reason: &Json<'a>) -> Option<Cow<'a, str>> {
    reason.text().or(reason.text_at("type")).cloned()
}

fn tool_calls(call: &Json<'_>) -> bool {
    call.get("function").is_some_and(calls)
}

fn calls(function: &Json<'_>) -> bool {
    let filled = |key| match function.get(key) {
        Some(Json::Text(text)) => !text.is_empty(),
        Some(Json::Object(_)) => true,
        _ => false,
    };
    filled("name") || filled("arguments")
}
