//! The Messages API: typed events; output is in `content_block_delta`, usage is cumulative.

use super::event::{Event, Part, add_text, error};
use super::json::Json;
use crate::measure::chunk_log::ChunkKind;
use crate::measure::summary::Usage;

/// Reads an event, or a whole answer.
pub fn read<'a>(json: &Json<'a>, name: Option<&'a [u8]>) -> Event<'a> {
    let named = name.and_then(|name| std::str::from_utf8(name).ok());
    let kind = json
        .text_at("type")
        .map(|kind| kind.as_ref())
        .or(named)
        .unwrap_or("");
    match kind {
        "message_start" => Event {
            usage: json
                .get("message")
                .and_then(|message| message.get("usage"))
                .and_then(usage),
            ..Event::default()
        },
        "content_block_delta" => delta(json),
        "message_delta" => Event {
            usage: json.get("usage").and_then(usage),
            parts: finished(json.get("delta")),
            ..Event::default()
        },
        "message_stop" => Event {
            done: true,
            ..Event::default()
        },
        "error" => Event {
            error: Some(error(json.get("error").unwrap_or(json))),
            ..Event::default()
        },
        "message" => Event {
            usage: json.get("usage").and_then(usage),
            parts: finished(Some(json)),
            ..Event::default()
        },
        _ => Event {
            error: json.get("error").map(error),
            ..Event::default()
        },
    }
}

fn finished<'a>(from: Option<&Json<'a>>) -> Vec<Part<'a>> {
    let reason = from.and_then(|from| from.text_at("stop_reason"));
    let part = |finish: &std::borrow::Cow<'a, str>| Part {
        finish: Some(finish.clone()),
        ..Part::default()
    };
    reason.map(part).into_iter().collect()
}

fn delta<'a>(json: &Json<'a>) -> Event<'a> {
    let mut part = Part::default();
    if let Some(delta) = json.get("delta") {
        match delta.text_at("type").map(|kind| kind.as_ref()) {
            Some("text_delta") => add_text(&mut part, delta.get("text"), ChunkKind::Text),
            Some("thinking_delta") => {
                add_text(&mut part, delta.get("thinking"), ChunkKind::Reasoning);
            }
            Some("input_json_delta") => {
                add_text(&mut part, delta.get("partial_json"), ChunkKind::Tool);
            }
            _ => return Event::default(),
        }
    }
    Event {
        parts: vec![part],
        ..Event::default()
    }
}

/// `input_tokens` leaves out what came from the cache or went into it; the prompt is all three.
fn usage(json: &Json<'_>) -> Option<Usage> {
    let read = json.count_at("cache_read_input_tokens");
    let written = json.count_at("cache_creation_input_tokens").unwrap_or(0);
    let own = json.count_at("input_tokens");
    let usage = Usage {
        prompt_tokens: own.map(|own| own + read.unwrap_or(0) + written),
        output_tokens: json.count_at("output_tokens"),
        cached_tokens: read,
    };
    (usage != Usage::default()).then_some(usage)
}
