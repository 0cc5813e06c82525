//! The bytes of a planned request: a streamed chat completion with text of its own.
//!
//! Pure. The prompt is made of common three-letter words, one token each for most tokenizers and
//! four characters each with the blank, which is also the usual rule of thumb. No two requests
//! begin alike, so a prefix cache gives no request of the plan an advantage.

use std::fmt::Write as _;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::workload::PlannedRequest;

const WORDS: [&str; 64] = [
    "act", "add", "age", "air", "and", "any", "arm", "art", "ask", "bad", "bag", "bar", "bed",
    "big", "bit", "box", "boy", "bus", "but", "buy", "can", "car", "cat", "cup", "cut", "day",
    "dog", "dry", "eat", "end", "eye", "far", "fit", "fly", "for", "fun", "get", "god", "hat",
    "hit", "hot", "ice", "job", "key", "kid", "law", "leg", "let", "lot", "low", "man", "map",
    "mix", "net", "new", "now", "oil", "old", "one", "out", "own", "pay", "red", "sea",
];

/// What all requests of a run have in common.
#[derive(Debug, Clone)]
pub struct RequestForm {
    /// model named in the body
    pub model: String,
    /// value of the `host` header
    pub host: String,
    /// `x-request-id` is this, a dash and the request's index
    pub id_prefix: String,
}

impl RequestForm {
    /// The `x-request-id` of the request with this index.
    pub fn request_id(&self, index: u32) -> String {
        format!("{}-{index}", self.id_prefix)
    }

    /// Head and body of a request, ready to be written in one go.
    ///
    /// The output length is asked for with `max_tokens` and `ignore_eos` (a vLLM extension that
    /// load tests rely on), and usage is asked for, so that lengths are known and not guessed.
    pub fn render(&self, request: &PlannedRequest) -> Vec<u8> {
        let body = format!(
            r#"{{"model":{model},"messages":[{{"role":"user","content":"{text}"}}],"max_tokens":{max_tokens},"ignore_eos":true,"temperature":0,"stream":true,"stream_options":{{"include_usage":true}}}}"#,
            model = serde_json::Value::from(self.model.as_str()),
            text = prompt_text(request),
            max_tokens = request.output_tokens,
        );
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\nx-request-id: {id}\r\ncontent-length: {length}\r\n\r\n{body}",
            host = self.host,
            id = self.request_id(request.index),
            length = body.len(),
        )
        .into_bytes()
    }
}

/// As many words as the request has prompt tokens.
fn prompt_text(request: &PlannedRequest) -> String {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(request.text_seed);
    let mut text = String::with_capacity(request.prompt_tokens as usize * 4);
    for position in 0..request.prompt_tokens {
        let word = WORDS[rng.random_range(0..WORDS.len())];
        let blank = if position == 0 { "" } else { " " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{blank}{word}");
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn render(index: u32, text_seed: u64) -> (String, serde_json::Value) {
        let form = RequestForm {
            model: "demo \"x\"".into(),
            host: "127.0.0.1:1".into(),
            id_prefix: "run".into(),
        };
        let request = PlannedRequest {
            index,
            at_ns: 0,
            class: 0,
            prompt_tokens: 40,
            output_tokens: 12,
            text_seed,
        };
        let wire = String::from_utf8(form.render(&request)).unwrap();
        let (head, body) = wire.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
        (head.to_owned(), serde_json::from_str(body).unwrap())
    }

    #[test]
    fn a_request_asks_for_exactly_its_lengths_as_a_stream_with_usage() {
        let (head, body) = render(7, 1);
        assert!(head.contains("x-request-id: run-7\r\n"));
        assert_eq!(body["model"], "demo \"x\"");
        assert_eq!(body["max_tokens"], 12);
        assert_eq!(body["ignore_eos"], true);
        assert_eq!(body["stream_options"]["include_usage"], true);
        let text = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(text.split(' ').count(), 40);
    }

    #[test]
    fn two_requests_begin_differently_and_one_is_always_the_same() {
        assert_eq!(render(0, 5).1, render(0, 5).1);
        assert_ne!(render(0, 5).1["messages"], render(0, 6).1["messages"]);
    }
}
