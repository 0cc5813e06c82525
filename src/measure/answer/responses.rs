//! The Responses API: typed events; output is in `response.*.delta`.

use std::borrow::Cow;

use super::event::{Event, Part, add_text, error, usage};
use super::json::Json;
use crate::measure::chunk_log::ChunkKind;

/// Reads an event, or a whole answer (an object of type `response` without an event type).
pub fn read<'a>(json: &Json<'a>, name: Option<&'a [u8]>) -> Event<'a> {
    let named = name.and_then(|name| std::str::from_utf8(name).ok());
    let kind = json
        .text_at("type")
        .map(|kind| kind.as_ref())
        .or(named)
        .unwrap_or("");
    match kind {
        "error" => Event {
            error: Some(error(json.get("error").unwrap_or(json))),
            ..Event::default()
        },
        "response.completed" | "response.incomplete" => {
            ended(json.get("response").unwrap_or(json), kind)
        }
        "response.failed" | "response.cancelled" => {
            let response = json.get("response").unwrap_or(json);
            let cause =
                response
                    .get("error")
                    .map(error)
                    .unwrap_or(crate::measure::summary::EngineError {
                        code: None,
                        kind: None,
                    });
            Event {
                usage: response.get("usage").and_then(usage),
                error: Some(cause),
                ..Event::default()
            }
        }
        _ if kind.starts_with("response.") && kind.ends_with(".delta") => delta(json, kind),
        "" => whole(json),
        _ => Event {
            error: json.get("error").map(error),
            ..Event::default()
        },
    }
}

fn delta<'a>(json: &Json<'a>, kind: &str) -> Event<'a> {
    let output = if kind.contains("reasoning") {
        ChunkKind::Reasoning
    } else if kind.contains("text") || kind.contains("refusal") {
        ChunkKind::Text
    } else {
        ChunkKind::Tool
    };
    let mut part = Part::default();
    add_text(&mut part, json.get("delta"), output);
    part.empty &= part.output.is_none();
    Event {
        parts: vec![part],
        ..Event::default()
    }
}

fn ended<'a>(response: &Json<'a>, kind: &str) -> Event<'a> {
    let reason = response
        .get("incomplete_details")
        .and_then(|why| why.text_at("reason"));
    let otherwise = if kind == "response.incomplete" {
        "incomplete"
    } else {
        "completed"
    };
    let finish = reason.cloned().unwrap_or(Cow::Owned(otherwise.to_owned()));
    Event {
        parts: vec![Part {
            finish: Some(finish),
            ..Part::default()
        }],
        usage: response.get("usage").and_then(usage),
        error: response.get("error").map(error),
        done: true,
    }
}

/// A body that is the response itself.
fn whole<'a>(json: &Json<'a>) -> Event<'a> {
    let status = json.text_at("status").map(|status| status.as_ref());
    match status {
        Some("completed") => ended(json, "response.completed"),
        Some("incomplete") => ended(json, "response.incomplete"),
        _ => Event {
            usage: json.get("usage").and_then(usage),
            error: json.get("error").map(error),
            ..Event::default()
        },
    }
}
