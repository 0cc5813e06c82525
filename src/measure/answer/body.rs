//! Answers that are not streams: one JSON document, read at its end.
//!
//! Small bodies are kept whole. Of a large one (embeddings run to megabytes) only the tail is
//! kept, where engines put `usage`.

use evenkeel_policies::shape::Api;
use memchr::memmem;

use super::event::{self, Event, cut};
use super::json::Json;
use super::read;
use crate::measure::summary::{Answer, Choice};

/// A body up to this is kept whole.
const WHOLE_BYTES: usize = 256 * 1024;
/// Of a larger one, this much of its end.
const TAIL_BYTES: usize = 64 * 1024;

/// The part of a body that is kept.
#[derive(Debug, Default)]
pub struct Body {
    kept: Vec<u8>,
    cut: bool,
}

impl Body {
    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(TAIL_BYTES));
            self.kept.extend_from_slice(now);
            bytes = later;
            if self.kept.len() > WHOLE_BYTES {
                self.cut = true;
                self.kept.drain(..self.kept.len() - TAIL_BYTES);
            }
        }
    }

    /// Reads what was kept.
    pub fn read(&self, api: Api) -> Answer {
        if self.cut {
            tail_answer(&self.kept)
        } else {
            json_answer(api, &self.kept)
        }
    }
}

/// Reads a whole JSON answer: usage, finish reasons, error.
pub fn json_answer(api: Api, body: &[u8]) -> Answer {
    let Some(json) = Json::read(body) else {
        return Answer::default();
    };
    let event = read(api, &json, None);
    answer(event, json.get("error").is_some())
}

fn answer(event: Event<'_>, error: bool) -> Answer {
    let mut answer = Answer {
        usage: event.usage.unwrap_or_default(),
        ..Answer::default()
    };
    for part in event.parts.iter().take(super::CHOICES) {
        let finish = part.finish.as_ref().map(|finish| cut(finish, 64));
        answer.aborted |= finish.as_deref() == Some("abort");
        let at = (part.choice as usize).min(super::CHOICES - 1);
        if answer.choices.len() <= at {
            answer.choices.resize_with(at + 1, Choice::default);
        }
        answer.choices[at] = Choice {
            finish,
            seen: true,
            ..Choice::default()
        };
    }
    answer.error = event.error;
    debug_assert!(!error || answer.error.is_some());
    answer
}

/// The last value under a key of a cut document. Inside a string the key's quotes would be
/// escaped, so the bytes `"usage":` are always a key.
fn last_value<'a>(tail: &'a [u8], key: &str) -> Option<Json<'a>> {
    let quoted = format!("\"{key}\"");
    let mut end = tail.len();
    loop {
        let at = memmem::rfind(&tail[..end], quoted.as_bytes())?;
        let rest = tail[at + quoted.len()..].trim_ascii_start();
        if let Some(value) = rest.strip_prefix(b":") {
            let mut documents = serde_json::Deserializer::from_slice(value).into_iter();
            return documents.next()?.ok();
        }
        end = at;
    }
}

fn tail_answer(tail: &[u8]) -> Answer {
    let usage = last_value(tail, "usage").as_ref().and_then(event::usage);
    let finish = last_value(tail, "finish_reason");
    let finish = finish
        .as_ref()
        .and_then(Json::text)
        .map(|finish| cut(finish, 64));
    let choices = finish
        .into_iter()
        .map(|finish| Choice {
            finish: Some(finish),
            seen: true,
            ..Choice::default()
        })
        .collect();
    Answer {
        usage: usage.unwrap_or_default(),
        choices,
        ..Answer::default()
    }
}
