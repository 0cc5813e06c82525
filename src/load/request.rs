//! The bytes of a planned request: a streamed completion with text of its own.
//!
//! Pure. The prompt is made of common three-letter words, one token each for most tokenizers and
//! four characters each with the blank, which is also the usual rule of thumb. No two requests
//! begin alike, so a prefix cache gives no request of the plan an advantage, unless the plan says
//! which prefix they share.

use serde_json::{Map, Value};

use super::prefix::push_words;
use super::workload::PlannedRequest;

/// Keys of a body that a plan or the reading of its answers stands on.
pub const OWN_KEYS: [&str; 7] = [
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "ignore_eos",
    "stream",
    "stream_options",
];

/// Which API is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedApi {
    /// a prompt
    Completions,
    /// messages
    Chat,
}

/// What all requests of a run have in common.
#[derive(Debug, Clone)]
pub struct RequestForm {
    /// which API
    pub api: AskedApi,
    /// path of the API at this server
    pub path: String,
    /// value of the `host` header
    pub host: String,
    /// model named in the body
    pub model: String,
    /// more headers, each ended by its line end, checked to be one line each
    pub headers: String,
    /// ask for the full output length, by a vLLM extension that load tests rely on
    pub ignore_eos: bool,
    /// more keys of the body, which stand in place of ours; none of [`OWN_KEYS`]
    pub extra_body: Map<String, Value>,
    /// `x-request-id` is this and the request's index
    pub id_prefix: String,
}

impl RequestForm {
    /// Chat completions that go on to their full length.
    pub fn chat(host: String, model: String, id_prefix: String) -> RequestForm {
        RequestForm {
            api: AskedApi::Chat,
            path: "/v1/chat/completions".to_owned(),
            host,
            model,
            headers: String::new(),
            ignore_eos: true,
            extra_body: Map::new(),
            id_prefix,
        }
    }

    /// The `x-request-id` of the request with this index.
    pub fn request_id(&self, index: u32) -> String {
        format!("{}{index}", self.id_prefix)
    }

    /// Head and body of a request, ready to be written in one go.
    pub fn render(&self, request: &PlannedRequest) -> Vec<u8> {
        let body = self.body(request);
        format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\nx-request-id: {id}\r\n{headers}content-length: {length}\r\n\r\n{body}",
            path = self.path,
            host = self.host,
            id = self.request_id(request.index),
            headers = self.headers,
            length = body.len(),
        )
        .into_bytes()
    }

    /// Usage is asked for, so that lengths are known and not guessed.
    fn body(&self, request: &PlannedRequest) -> String {
        let text = prompt_text(request);
        let asked = match self.api {
            AskedApi::Completions => format!(r#""prompt":"{text}""#),
            AskedApi::Chat => format!(r#""messages":[{{"role":"user","content":"{text}"}}]"#),
        };
        format!(
            r#"{{"model":{model},{asked},"max_tokens":{max_tokens}{options},"stream":true,"stream_options":{{"include_usage":true}}}}"#,
            model = Value::from(self.model.as_str()),
            max_tokens = request.output_tokens,
            options = self.options(),
        )
    }

    /// Each key once: of two, servers differ in which they take.
    fn options(&self) -> String {
        let mut options = self.extra_body.clone();
        options
            .entry("temperature")
            .or_insert_with(|| Value::from(0));
        if self.ignore_eos {
            options.insert("ignore_eos".into(), Value::from(true));
        }
        let member =
            |(key, value): (&String, &Value)| format!(",{}:{value}", Value::from(key.as_str()));
        options.iter().map(member).collect()
    }
}

/// As many words as the request has prompt tokens: those it shares, then its own.
fn prompt_text(request: &PlannedRequest) -> String {
    let mut text = String::with_capacity(request.prompt_tokens as usize * 4);
    let shared_tokens = match &request.prefix {
        Some(prefix) => prefix.push_text(&mut text, request.prompt_tokens),
        None => 0,
    };
    let own_tokens = request.prompt_tokens.saturating_sub(shared_tokens);
    push_words(&mut text, request.text_seed, own_tokens);
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn chat() -> RequestForm {
        RequestForm::chat("h:1".into(), "a \"b\"".into(), "run-".into())
    }

    fn render(form: &RequestForm, text_seed: u64) -> (String, serde_json::Value) {
        let request = PlannedRequest {
            index: 7,
            at_ns: 0,
            class: 0,
            prompt_tokens: 40,
            output_tokens: 12,
            text_seed,
            prefix: None,
        };
        let wire = String::from_utf8(form.render(&request)).unwrap();
        let (head, body) = wire.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
        (head.to_owned(), serde_json::from_str(body).unwrap())
    }

    #[test]
    fn a_request_asks_for_exactly_its_lengths_as_a_stream_with_usage() {
        let (head, body) = render(&chat(), 1);
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\nhost: h:1\r\n"));
        assert!(head.contains("\r\nx-request-id: run-7\r\n"));
        assert_eq!(body["model"], "a \"b\"");
        assert_eq!(body["max_tokens"], 12);
        assert_eq!(body["ignore_eos"], true);
        assert_eq!(body["stream_options"]["include_usage"], true);
        assert_eq!(body["messages"][0]["role"], "user");
        let text = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(text.split(' ').count(), 40);
    }

    #[test]
    fn another_api_path_and_header_are_sent_where_asked_for() {
        let form = RequestForm {
            api: AskedApi::Completions,
            path: "/base/v1/completions".into(),
            headers: "x-a: 1\r\n".into(),
            ignore_eos: false,
            ..chat()
        };
        let (head, body) = render(&form, 1);
        assert!(head.starts_with("POST /base/v1/completions HTTP/1.1\r\n"));
        assert!(head.contains("\r\nx-request-id: run-7\r\nx-a: 1\r\n"));
        assert_eq!(body["prompt"].as_str().unwrap().split(' ').count(), 40);
        assert!(body.get("ignore_eos").is_none() && body.get("messages").is_none());
    }

    #[test]
    fn more_keys_stand_in_the_body_in_place_of_ours() {
        let extra = serde_json::json!({"temperature": 0.7, "a \"b\"": [1, 2]});
        let form = RequestForm {
            extra_body: extra.as_object().unwrap().clone(),
            ..chat()
        };
        let (_, body) = render(&form, 1);
        assert_eq!(body["temperature"], 0.7);
        assert_eq!(body["a \"b\""], serde_json::json!([1, 2]));
        assert_eq!(body["max_tokens"], 12);
        assert_eq!(form.options().matches("temperature").count(), 1);
    }

    #[test]
    fn two_requests_begin_differently_and_one_is_always_the_same() {
        assert_eq!(render(&chat(), 5).1, render(&chat(), 5).1);
        assert_ne!(
            render(&chat(), 5).1["messages"],
            render(&chat(), 6).1["messages"]
        );
    }
}
