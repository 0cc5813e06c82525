//! Tokens as vLLM puts them on the wire, streamed. What is the same in every chunk of a stream is
//! rendered once; a token costs a copy of it.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer;
use super::ask::{Api, Ask};
use super::runner::Token;
use super::tokenizer::word;

/// As in vLLM's own answers.
pub(crate) const FINGERPRINT: &str = "vllm-0.32.0-evenkeel";

/// Who answers what, when.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// Without the API's prefix.
    pub(crate) id: String,
    pub(crate) created_s: u64,
    pub(crate) model: String,
}

/// Renders the events of one answer.
pub(crate) struct Renderer {
    ask: Ask,
    head: Head,
    /// Up to a choice's index.
    opening: String,
    texts: Vec<String>,
    tokens: Vec<u32>,
    open: usize,
    begun: bool,
    sequence_number: u32,
}

impl Renderer {
    pub(crate) fn new(ask: Ask, head: Head) -> Self {
        let (prefix, object) = match ask.api {
            Api::Completions => ("cmpl", "text_completion"),
            _ => ("chatcmpl", "chat.completion.chunk"),
        };
        let opening = format!(
            "data: {{\"id\":{},\"object\":\"{object}\",\"created\":{},\"model\":{},\"choices\":[",
            json!(format!("{prefix}-{}", head.id)),
            head.created_s,
            json!(head.model)
        );
        let open = ask.choices.len();
        Renderer {
            texts: vec![String::new(); open],
            tokens: vec![0; open],
            opening,
            open,
            begun: false,
            sequence_number: 0,
            ask,
            head,
        }
    }

    /// Whether every choice has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.open == 0
    }

    /// The events of one token; `finish` overrides how the choice ends.
    pub(crate) fn token(&mut self, token: Token, finish: Option<&str>, out: &mut VecDeque<Bytes>) {
        let choice = token.choice as usize;
        if !self.begun {
            self.begun = true;
            self.begin(out);
        }
        let finish = finish.or(token.finish.map(|finish| finish.name()));
        let text = word(self.ask.choices[choice].seed, token.index);
        self.tokens[choice] += 1;
        match self.ask.api {
            Api::Responses => {
                self.texts[choice].push_str(text);
                self.response_delta(text, out);
            }
            Api::Messages => out.push_back(message_delta(text)),
            _ => out.push_back(self.chunk(choice, text, finish)),
        }
        let Some(finish) = finish else { return };
        self.open -= 1;
        if self.open == 0 {
            self.end(finish, out);
        }
    }

    fn chunk(&self, choice: usize, text: &str, finish: Option<&str>) -> Bytes {
        let mut chunk = String::with_capacity(self.opening.len() + 160);
        chunk.push_str(&self.opening);
        let chat = self.ask.api == Api::Chat;
        chunk.push_str("{\"index\":");
        chunk.push_str(&choice.to_string());
        chunk.push_str(if chat {
            ",\"delta\":{\"content\":\""
        } else {
            ",\"text\":\""
        });
        chunk.push_str(text);
        chunk.push_str(if chat { "\"}" } else { "\"" });
        chunk.push_str(",\"logprobs\":null,\"finish_reason\":");
        match finish {
            None => chunk.push_str("null"),
            Some(finish) => {
                chunk.push('"');
                chunk.push_str(finish);
                chunk.push('"');
            }
        }
        chunk.push_str(match (chat, finish) {
            (true, None) => ",\"token_ids\":null}]",
            (true, Some(_)) => ",\"stop_reason\":null,\"token_ids\":null}]",
            (false, _) => ",\"stop_reason\":null,\"prompt_token_ids\":null,\"token_ids\":null}]",
        });
        self.push_usage(choice, &mut chunk);
        if finish.is_some() && self.open == 1 && !self.ask.include_usage {
            chunk.push_str(&format!(",\"system_fingerprint\":\"{FINGERPRINT}\""));
        }
        chunk.push_str("}\n\n");
        Bytes::from(chunk)
    }

    fn push_usage(&self, choice: usize, chunk: &mut String) {
        if !self.ask.continuous_usage || !self.ask.include_usage {
            return;
        }
        let prompt = self.ask.prompts[self.ask.choices[choice].prompt].tokens();
        let output = self.tokens[choice];
        chunk.push_str(&format!(
            ",\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\
             \"completion_tokens\":{output},\"completion_tokens_details\":null}}",
            prompt + output
        ));
    }

    /// What comes before the first token.
    fn begin(&mut self, out: &mut VecDeque<Bytes>) {
        match self.ask.api {
            Api::Chat => {
                for choice in 0..self.ask.choices.len() {
                    let mut chunk = format!(
                        "{}{{\"index\":{choice},\"delta\":{{\"role\":\"assistant\",\"content\":\"\
                         \"}},\"logprobs\":null,\"finish_reason\":null}}]",
                        self.opening
                    );
                    self.push_usage(choice, &mut chunk);
                    chunk.push_str(",\"prompt_token_ids\":null,\"prompt_text\":null}\n\n");
                    out.push_back(Bytes::from(chunk));
                }
            }
            Api::Messages => {
                let message = json!({"type": "message_start", "message": {
                    "id": format!("chatcmpl-{}", self.head.id), "type": "message",
                    "role": "assistant", "content": [], "model": self.head.model,
                    "stop_reason": null, "stop_sequence": null,
                    "usage": {"input_tokens": self.ask.prompt_tokens(), "output_tokens": 0}}});
                out.push_back(event("message_start", &message));
                let block = json!({"type": "content_block_start",
                    "content_block": {"type": "text", "text": ""}, "index": 0});
                out.push_back(event("content_block_start", &block));
            }
            Api::Responses => self.begin_response(out),
            Api::Completions | Api::Embeddings => {}
        }
    }

    fn begin_response(&mut self, out: &mut VecDeque<Bytes>) {
        for kind in ["response.created", "response.in_progress"] {
            let response = answer::response(&self.ask, &self.head, None);
            self.numbered(kind, json!({"response": response}), out);
        }
        let item = json!({"id": format!("msg_{}", self.head.id), "content": [],
            "role": "assistant", "status": "in_progress", "type": "message", "phase": null});
        let added = json!({"item": item, "output_index": 0});
        self.numbered("response.output_item.added", added, out);
        let part = json!({"annotations": [], "text": "", "type": "output_text", "logprobs": []});
        let added = self.located(json!({"content_index": 0, "part": part}));
        self.numbered("response.content_part.added", added, out);
    }

    fn response_delta(&mut self, text: &str, out: &mut VecDeque<Bytes>) {
        let delta = self.located(json!({"content_index": 0, "delta": text, "logprobs": []}));
        self.numbered("response.output_text.delta", delta, out);
    }

    /// What comes after the last token.
    fn end(&mut self, finish: &str, out: &mut VecDeque<Bytes>) {
        match self.ask.api {
            Api::Messages => {
                let stop = json!({"type": "content_block_stop", "index": 0});
                out.push_back(event("content_block_stop", &stop));
                let usage = json!({"input_tokens": self.ask.prompt_tokens(),
                    "output_tokens": self.tokens[0]});
                let delta = json!({"stop_reason": answer::stop_reason(finish),
                    "stop_sequence": null});
                let delta = json!({"type": "message_delta", "delta": delta, "usage": usage});
                out.push_back(event("message_delta", &delta));
                out.push_back(event("message_stop", &json!({"type": "message_stop"})));
            }
            Api::Responses => self.end_response(finish, out),
            _ => {
                if self.ask.include_usage {
                    out.push_back(self.usage_chunk());
                }
                out.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
            }
        }
    }

    fn usage_chunk(&self) -> Bytes {
        let prompt = self.ask.prompt_tokens();
        let output: u32 = self.tokens.iter().sum();
        Bytes::from(format!(
            "{}],\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\
             \"completion_tokens\":{output}}},\"system_fingerprint\":\"{FINGERPRINT}\"}}\n\n",
            self.opening,
            prompt + output
        ))
    }

    fn end_response(&mut self, finish: &str, out: &mut VecDeque<Bytes>) {
        let text = std::mem::take(&mut self.texts[0]);
        let done = self.located(json!({"content_index": 0, "logprobs": [], "text": text}));
        self.numbered("response.output_text.done", done, out);
        let part = answer::response_part(&text);
        let done = self.located(json!({"content_index": 0, "part": part}));
        self.numbered("response.content_part.done", done, out);
        let item = answer::response_item(&self.head, &text);
        self.numbered(
            "response.output_item.done",
            json!({"item": item, "output_index": 0}),
            out,
        );
        let end = answer::End {
            text: &text,
            output_tokens: self.tokens[0],
            finish,
        };
        let response = answer::response(&self.ask, &self.head, Some(&end));
        self.numbered("response.completed", json!({"response": response}), out);
    }

    fn located(&self, mut body: Value) -> Value {
        body["item_id"] = json!(format!("msg_{}", self.head.id));
        body["output_index"] = json!(0);
        body
    }

    fn numbered(&mut self, kind: &str, mut body: Value, out: &mut VecDeque<Bytes>) {
        body["sequence_number"] = json!(self.sequence_number);
        body["type"] = json!(kind);
        self.sequence_number += 1;
        out.push_back(event(kind, &body));
    }
}

fn message_delta(text: &str) -> Bytes {
    Bytes::from(format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"delta\":\
         {{\"type\":\"text_delta\",\"text\":\"{text}\"}},\"index\":0}}\n\n"
    ))
}

fn event(kind: &str, body: &Value) -> Bytes {
    Bytes::from(format!("event: {kind}\ndata: {body}\n\n"))
}

/// What vLLM sends when its engine dies in mid-stream.
pub(crate) fn in_band_error(out: &mut VecDeque<Bytes>) {
    let error = json!({"error": {
        "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "type": "InternalServerError", "param": null, "code": 500}});
    out.push_back(Bytes::from(format!("data: {error}\n\n")));
    out.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
}
