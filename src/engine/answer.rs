//! Whole answers, as vLLM gives them where nothing is streamed.

use serde_json::{Value, json};

use super::ask::{Api, Ask};
use super::tokenizer::word;
use super::wire::{FINGERPRINT, Head};

/// How one choice ended.
pub(crate) struct End<'a> {
    pub(crate) text: &'a str,
    pub(crate) output_tokens: u32,
    pub(crate) finish: &'a str,
}

/// The answer to `ask` whose choices ended with `finishes`, tokens and reason each.
pub(crate) fn whole(ask: &Ask, head: &Head, finishes: &[(u32, String)]) -> Value {
    let texts: Vec<String> = ask
        .choices
        .iter()
        .zip(finishes)
        .map(|(choice, (tokens, _))| (0..*tokens).map(|index| word(choice.seed, index)).collect())
        .collect();
    let end = |at: usize| End {
        text: &texts[at],
        output_tokens: finishes[at].0,
        finish: &finishes[at].1,
    };
    match ask.api {
        Api::Responses => response(ask, head, Some(&end(0))),
        Api::Messages => message(ask, head, &end(0)),
        Api::Embeddings => embeddings(ask, head),
        Api::Chat | Api::Completions => {
            let choices = (0..texts.len())
                .map(|at| choice(ask.api, at, &end(at)))
                .collect();
            completion(ask, head, choices, finishes.iter().map(|one| one.0).sum())
        }
    }
}

fn completion(ask: &Ask, head: &Head, choices: Vec<Value>, output: u32) -> Value {
    let prompt = ask.prompt_tokens();
    let usage = json!({"prompt_tokens": prompt, "total_tokens": prompt + output,
        "completion_tokens": output, "prompt_tokens_details": null,
        "completion_tokens_details": null});
    let (prefix, object) = match ask.api {
        Api::Chat => ("chatcmpl", "chat.completion"),
        _ => ("cmpl", "text_completion"),
    };
    let mut body = json!({"id": format!("{prefix}-{}", head.id), "object": object,
        "created": head.created_s, "model": head.model, "choices": choices,
        "service_tier": null, "system_fingerprint": FINGERPRINT, "usage": usage,
        "kv_transfer_params": null});
    if ask.api == Api::Chat {
        for name in [
            "prompt_logprobs",
            "prompt_token_ids",
            "prompt_text",
            "ec_transfer_params",
            "metrics",
        ] {
            body[name] = Value::Null;
        }
    }
    body
}

fn choice(api: Api, index: usize, end: &End<'_>) -> Value {
    if api == Api::Chat {
        return json!({"index": index, "message": {"role": "assistant", "content": end.text,
            "refusal": null, "annotations": null, "audio": null, "function_call": null,
            "reasoning": null}, "logprobs": null, "finish_reason": end.finish,
            "stop_reason": null, "token_ids": null, "routed_experts": null});
    }
    json!({"index": index, "text": end.text, "logprobs": null, "finish_reason": end.finish,
        "stop_reason": null, "token_ids": null, "prompt_logprobs": null,
        "prompt_token_ids": null})
}

fn message(ask: &Ask, head: &Head, end: &End<'_>) -> Value {
    json!({"id": format!("chatcmpl-{}", head.id), "type": "message", "role": "assistant",
        "content": [{"type": "text", "text": end.text}], "model": head.model,
        "stop_reason": stop_reason(end.finish), "stop_sequence": null,
        "usage": {"input_tokens": ask.prompt_tokens(), "output_tokens": end.output_tokens}})
}

/// Anthropic's word for a finish reason.
pub(crate) fn stop_reason(finish: &str) -> &str {
    match finish {
        "stop" => "end_turn",
        "length" => "max_tokens",
        other => other,
    }
}

/// Eight numbers drawn from the prompt: the right shape, no meaning.
fn embeddings(ask: &Ask, head: &Head) -> Value {
    let vector = |seed: u64| -> Vec<f64> {
        (0..8)
            .map(|at| (crate::splitmix::mix(seed ^ at) >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
            .collect()
    };
    let data: Vec<Value> = ask
        .choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            json!({"index": index, "object": "embedding", "embedding": vector(choice.seed)})
        })
        .collect();
    let prompt = ask.prompt_tokens();
    json!({"id": format!("embd-{}", head.id), "object": "list", "created": head.created_s,
        "model": head.model, "data": data, "usage": {"prompt_tokens": prompt,
        "total_tokens": prompt, "completion_tokens": 0, "prompt_tokens_details": null}})
}

pub(crate) fn response_part(text: &str) -> Value {
    json!({"annotations": [], "text": text, "type": "output_text", "logprobs": null})
}

pub(crate) fn response_item(head: &Head, text: &str) -> Value {
    json!({"id": format!("msg_{}", head.id), "content": [response_part(text)],
        "role": "assistant", "status": "completed", "type": "message", "phase": null})
}

/// A response object, in progress or ended.
pub(crate) fn response(ask: &Ask, head: &Head, end: Option<&End<'_>>) -> Value {
    let mut body = json!({"id": format!("resp_{}", head.id), "created_at": head.created_s,
        "incomplete_details": null, "instructions": null, "metadata": null, "model": head.model,
        "object": "response", "output": [], "parallel_tool_calls": true, "temperature": 1.0,
        "tool_choice": "none", "tools": [], "top_p": 1.0, "background": false,
        "max_output_tokens": ask.limit_tokens, "max_tool_calls": null,
        "previous_response_id": null, "prompt": null, "reasoning": null,
        "service_tier": "auto", "status": "in_progress", "text": null, "top_logprobs": null,
        "truncation": "disabled", "usage": null, "user": null, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "kv_transfer_params": null, "ec_transfer_params": null,
        "input_messages": null, "output_messages": null});
    let Some(end) = end else { return body };
    let prompt = ask.prompt_tokens();
    body["output"] = json!([response_item(head, end.text)]);
    body["usage"] = json!({"input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0,
            "input_tokens_per_turn": [], "cached_tokens_per_turn": []},
        "output_tokens": end.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0, "tool_output_tokens": 0,
            "output_tokens_per_turn": [], "tool_output_tokens_per_turn": []},
        "total_tokens": prompt + end.output_tokens});
    body["status"] = json!(match end.finish {
        "stop" => "completed",
        "length" => "incomplete",
        _ => "cancelled",
    });
    if end.finish == "length" {
        body["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    body
}
