//! OpenTelemetry spans with `gen_ai` attributes: one a call of a model.
//!
//! Where a span has no token counts, its texts are counted at four characters a token and the
//! request is said to be estimated. When one call waited for another is not kept: each is sent at
//! its own time.

use serde::Deserialize;

use super::gather::{Refusal, Row, Sessions};
use super::{numbers, wall_time};

#[derive(Deserialize)]
struct Span {
    start_time: String,
    trace_id: Option<String>,
    attributes: Attributes,
}

/// Names of the conventions, and of versions of them before usage had its present names.
#[derive(Deserialize)]
struct Attributes {
    #[serde(rename = "gen_ai.operation.name")]
    operation: Option<String>,
    #[serde(rename = "gen_ai.conversation.id")]
    conversation: Option<String>,
    #[serde(
        rename = "gen_ai.usage.input_tokens",
        alias = "gen_ai.usage.prompt_tokens"
    )]
    input_tokens: Option<u64>,
    #[serde(
        rename = "gen_ai.usage.output_tokens",
        alias = "gen_ai.usage.completion_tokens"
    )]
    output_tokens: Option<u64>,
    #[serde(rename = "gen_ai.input.messages")]
    input_text: Option<String>,
    #[serde(rename = "gen_ai.output.messages", alias = "gen_ai.output.text")]
    output_text: Option<String>,
}

/// Operations that generate text.
const GENERATING: [&str; 3] = ["chat", "text_completion", "generate_content"];
const CHARS_A_TOKEN: usize = 4;

pub(super) fn row(span: &str, sessions: &mut Sessions) -> Result<Row, Refusal> {
    let span: Span = serde_json::from_str(span).map_err(|error| numbers::json_words(&error))?;
    let of = span.attributes;
    let operation = of.operation.as_deref().unwrap_or("no operation");
    if !GENERATING.contains(&operation) {
        let operation = numbers::shown(operation);
        return Err(Refusal::LeftOut(format!(
            "a span of {operation:?} is no call of a model"
        )));
    }
    let session = of.conversation.or(span.trace_id);
    Ok(Row {
        at_ns: Some(wall_time::parse_ns("start_time", &span.start_time)?),
        prompt_tokens: tokens("input", of.input_tokens, of.input_text.as_deref())?,
        output_tokens: tokens("output", of.output_tokens, of.output_text.as_deref())?,
        prefix: None,
        session: session.map(|name| sessions.number(&name)),
        estimated: of.input_tokens.is_none() || of.output_tokens.is_none(),
    })
}

fn tokens(what: &str, counted: Option<u64>, text: Option<&str>) -> Result<u32, Refusal> {
    let by_text = || text.map(|text| text.chars().count().div_ceil(CHARS_A_TOKEN) as u64);
    match counted.or_else(by_text) {
        Some(tokens) => Ok(numbers::tokens(
            &format!("gen_ai.usage.{what}_tokens"),
            &tokens.to_string(),
        )?),
        None => Err(Refusal::LeftOut(format!("its {what} length is not known"))),
    }
}
