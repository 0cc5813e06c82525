//! A request's body, checked as vLLM checks it, into what the model is asked to do.

use serde_json::{Value, json};

use super::metrics::Finish;
use super::profile::Profile;
use super::tokenizer::Prompt;
use crate::splitmix::mix;

/// Which API was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Completions,
    Responses,
    Messages,
    Embeddings,
}

/// An error before the stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl ApiError {
    pub(crate) fn new(status: u16, kind: &str, param: Option<&str>, message: String) -> Self {
        let body = json!({"error":
            {"message": message, "type": kind, "param": param, "code": status}});
        ApiError { status, body }
    }

    fn bad(param: &str, message: String) -> Self {
        ApiError::new(400, "BadRequestError", Some(param), message)
    }

    fn invalid(param: &str, kind: &str, message: &str) -> Self {
        let param = format!("body.{param}");
        let text = format!(
            "1 validation error:\n  {{'type': '{kind}', 'loc': '{param}', 'msg': '{message}'}}"
        );
        ApiError::new(400, "Bad Request", Some(&param), text)
    }
}

/// One sequence to generate.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) prompt: usize,
    pub(crate) output_tokens: u32,
    pub(crate) finish: Finish,
    /// Chooses its words.
    pub(crate) seed: u64,
}

/// A request, understood.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) limit_tokens: Option<u32>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) choices: Vec<Choice>,
}

impl Ask {
    pub(crate) fn prompt_tokens(&self) -> u32 {
        self.prompts
            .iter()
            .map(Prompt::tokens)
            .fold(0, u32::saturating_add)
    }
}

/// Reads and checks a body.
pub(crate) fn read(
    api: Api,
    body: &[u8],
    model_name: &str,
    profile: &Profile,
    seed: u64,
) -> Result<Ask, ApiError> {
    let body = parse(body)?;
    check_model(&body, model_name)?;
    if let Some(value) = body.get("temperature")
        && !value.is_null()
        && !value.is_number()
    {
        let message = "Input should be a valid number, unable to parse string as a number";
        return Err(ApiError::invalid("temperature", "float_parsing", message));
    }
    check_tools(&body)?;
    let prompts = prompts(api, &body)?;
    let n = whole(&body, "n")?.unwrap_or(1);
    if n == 0 || n > 128 {
        return Err(ApiError::bad(
            "n",
            format!("n must be at least 1 and at most 128, got {n}."),
        ));
    }
    let options = body.get("stream_options");
    let option = |name| options.and_then(|o| o.get(name)).and_then(Value::as_bool) == Some(true);
    let limit_tokens = limit(api, &body, profile)?;
    let mut ask = Ask {
        api,
        stream: flag(&body, "stream")? && api != Api::Embeddings,
        include_usage: option("include_usage"),
        continuous_usage: option("continuous_usage_stats"),
        limit_tokens,
        prompts,
        choices: Vec::new(),
    };
    for prompt in 0..ask.prompts.len() {
        for copy in 0..n {
            let choice = choice(&ask, prompt, copy, &body, profile, seed)?;
            ask.choices.push(choice);
        }
    }
    Ok(ask)
}

/// A JSON object, or vLLM's complaint.
pub(crate) fn parse(body: &[u8]) -> Result<Value, ApiError> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let at = error.column().saturating_sub(1);
        ApiError::invalid(&at.to_string(), "json_invalid", "JSON decode error")
    })?;
    if value.is_object() {
        return Ok(value);
    }
    Err(ApiError::invalid(
        "",
        "model_attributes_type",
        "Input should be a valid dictionary",
    ))
}

pub(crate) fn check_model(body: &Value, model_name: &str) -> Result<(), ApiError> {
    match body.get("model") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(name)) if name == model_name => Ok(()),
        Some(Value::String(name)) => {
            let text = format!("The model `{name}` does not exist. Valid aliases: {model_name}.");
            Err(ApiError::new(404, "NotFoundError", Some("model"), text))
        }
        Some(_) => Err(ApiError::invalid(
            "model",
            "string_type",
            "Input should be a valid string",
        )),
    }
}

fn check_tools(body: &Value) -> Result<(), ApiError> {
    let tools = body
        .get("tools")
        .and_then(Value::as_array)
        .is_some_and(|tools| !tools.is_empty());
    let choice = body.get("tool_choice").and_then(Value::as_str);
    if !tools || choice == Some("none") {
        return Ok(());
    }
    let text = "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser \
                to be set";
    Err(ApiError::new(400, "BadRequestError", None, text.to_owned()))
}

fn flag(body: &Value, name: &str) -> Result<bool, ApiError> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(ApiError::invalid(
            name,
            "bool_parsing",
            "Input should be a valid boolean",
        )),
    }
}

fn whole(body: &Value, name: &str) -> Result<Option<u64>, ApiError> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or_else(|| {
            ApiError::invalid(name, "int_parsing", "Input should be a valid integer")
        }),
    }
}

fn limit(api: Api, body: &Value, profile: &Profile) -> Result<Option<u32>, ApiError> {
    let names: &[&str] = match api {
        Api::Chat => &["max_completion_tokens", "max_tokens"],
        Api::Responses => &["max_output_tokens"],
        Api::Completions | Api::Messages => &["max_tokens"],
        Api::Embeddings => &[],
    };
    let longest = profile.max_model_len_tokens;
    for name in names {
        let Some(value) = whole(body, name)? else {
            continue;
        };
        if value == 0 {
            let text = format!("{name} must be at least 1, got 0. (parameter={name}, value=0)");
            return Err(ApiError::bad(name, text));
        }
        if value > u64::from(longest) {
            let text = format!(
                "{name}={value} cannot be greater than max_model_len={longest}. Please request \
                 fewer output tokens. (parameter={name}, value={value})"
            );
            return Err(ApiError::bad(name, text));
        }
        return Ok(u32::try_from(value).ok());
    }
    // vLLM's default for legacy completions is 16; elsewhere what the context leaves.
    Ok((api == Api::Completions).then_some(16))
}

fn choice(
    ask: &Ask,
    prompt: usize,
    copy: u64,
    body: &Value,
    profile: &Profile,
    seed: u64,
) -> Result<Choice, ApiError> {
    let longest = profile.max_model_len_tokens;
    let tokens = ask.prompts[prompt].tokens();
    let room = longest.saturating_sub(tokens);
    let asked = if ask.api == Api::Embeddings {
        Some(1)
    } else {
        ask.limit_tokens
    };
    if tokens == 0 {
        return Err(ApiError::bad(
            "prompt",
            "The prompt must hold at least one token.".to_owned(),
        ));
    }
    if room == 0 || asked.is_some_and(|asked| asked > room) {
        let wanted = asked.unwrap_or(1);
        let text = format!(
            "This model's maximum context length is {longest} tokens. However, you requested \
             {wanted} output tokens and your prompt contains {tokens} input tokens."
        );
        return Err(ApiError::bad("input_tokens", text));
    }
    let own = body.get("seed").and_then(Value::as_u64).unwrap_or(0);
    let print = ask.prompts[prompt].fingerprint();
    let seed = mix(mix(mix(seed ^ print) ^ own) ^ copy);
    let most = asked.unwrap_or(room);
    let ignore_eos = body.get("ignore_eos").and_then(Value::as_bool) == Some(true);
    if ignore_eos || ask.api == Api::Embeddings {
        return Ok(Choice {
            prompt,
            output_tokens: most,
            finish: Finish::Length,
            seed,
        });
    }
    let least = whole(body, "min_tokens")?
        .and_then(|least| u32::try_from(least).ok())
        .unwrap_or(0);
    let drawn = profile.output.draw_tokens(seed).max(least);
    let finish = if drawn > most {
        Finish::Length
    } else {
        Finish::Stop
    };
    Ok(Choice {
        prompt,
        output_tokens: drawn.min(most),
        finish,
        seed,
    })
}

fn prompts(api: Api, body: &Value) -> Result<Vec<Prompt>, ApiError> {
    let missing = |name: &str| ApiError::invalid(name, "missing", "Field required");
    match api {
        Api::Chat | Api::Messages => {
            let messages = body
                .get("messages")
                .and_then(Value::as_array)
                .ok_or_else(|| missing("messages"))?;
            Ok(vec![chat_prompt(body.get("system"), messages)])
        }
        Api::Responses => match body.get("input") {
            Some(Value::Array(items)) => Ok(vec![chat_prompt(body.get("instructions"), items)]),
            Some(text @ Value::String(_)) => {
                let message = json!({"role": "user", "content": text});
                Ok(vec![chat_prompt(body.get("instructions"), &[message])])
            }
            _ => Err(missing("input")),
        },
        Api::Completions => plain_prompts(body.get("prompt")).ok_or_else(|| missing("prompt")),
        Api::Embeddings => plain_prompts(body.get("input")).ok_or_else(|| missing("input")),
    }
}

/// A text, a list of texts, token ids, or a list of lists of token ids.
pub(crate) fn plain_prompts(value: Option<&Value>) -> Option<Vec<Prompt>> {
    let ids = |items: &[Value]| -> Option<Prompt> {
        let ids: Option<Vec<u32>> = items
            .iter()
            .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
            .collect();
        Some(Prompt::ids(&ids?))
    };
    match value? {
        Value::String(text) => Some(vec![Prompt::text(text)]),
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) if items[0].is_number() => Some(vec![ids(items)?]),
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Some(Prompt::text(text)),
                Value::Array(inner) => ids(inner),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// The chat template: a turn's prefix is the prefix of the next turn.
pub(crate) fn chat_prompt(system: Option<&Value>, messages: &[Value]) -> Prompt {
    let mut text = String::new();
    let mut turn = |role: &str, content: Option<&Value>| {
        text.push_str("<|");
        text.push_str(role);
        text.push_str("|>");
        push_content(content, &mut text);
        text.push('\n');
    };
    if system.is_some_and(|system| !system.is_null()) {
        turn("system", system);
    }
    for message in messages {
        let role = message
            .get("role")
            .and_then(Value::as_str)
            .unwrap_or("user");
        turn(role, message.get("content"));
    }
    text.push_str("<|assistant|>");
    Prompt::text(&text)
}

fn push_content(content: Option<&Value>, out: &mut String) {
    match content {
        Some(Value::String(text)) => out.push_str(text),
        Some(Value::Array(parts)) => {
            for part in parts {
                push_content(part.get("text"), out);
            }
        }
        _ => {}
    }
}
