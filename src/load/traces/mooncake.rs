//! Mooncake's JSON lines, and those of Qwen-Bailian, which look alike and mean other units.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Number;

use super::gather::{Refusal, Row, Sessions};
use super::{Format, PrefixIds, numbers};

/// Which of the two a file is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    /// milliseconds, blocks of 512 tokens
    Mooncake,
    /// seconds, blocks of 16 tokens, turns of a chat
    Bailian,
}

#[derive(Deserialize)]
struct Line {
    timestamp: Number,
    input_length: Number,
    output_length: Number,
    hash_ids: Option<Vec<u64>>,
    chat_id: Option<i64>,
    parent_chat_id: Option<i64>,
}

impl Dialect {
    pub(super) fn format(self) -> Format {
        match self {
            Dialect::Mooncake => Format::Mooncake,
            Dialect::Bailian => Format::Bailian,
        }
    }

    pub(super) fn row(self, line: &str, sessions: &mut Sessions) -> Result<Row, Refusal> {
        let line: Line = serde_json::from_str(line).map_err(|error| numbers::json_words(&error))?;
        let (unit_ns, block_tokens) = match self {
            Dialect::Mooncake => (1e6, 512),
            Dialect::Bailian => (1e9, 16),
        };
        let at_ns = numbers::time_ns("timestamp", &line.timestamp.to_string(), unit_ns)?;
        let prompt_tokens = numbers::tokens("input_length", &line.input_length.to_string())?;
        let output_tokens = numbers::tokens("output_length", &line.output_length.to_string())?;
        let prefix = prefix(
            line.hash_ids.unwrap_or_default(),
            prompt_tokens,
            block_tokens,
        )?;
        Ok(Row {
            at_ns: Some(at_ns),
            prompt_tokens,
            output_tokens,
            prefix,
            session: chat(line.chat_id, line.parent_chat_id, sessions),
            estimated: false,
        })
    }
}

/// A turn is named by its own chat's number and that of the turn before, -1 for the first. Only
/// a chain's last link is at hand here, so a session is a first turn and the turns right after it.
fn chat(chat_id: Option<i64>, parent: Option<i64>, sessions: &mut Sessions) -> Option<u32> {
    let root = parent.filter(|parent| *parent >= 0).or(chat_id)?;
    Some(sessions.number(&root.to_string()))
}

fn prefix(
    ids: Vec<u64>,
    prompt_tokens: u32,
    block_tokens: u32,
) -> Result<Option<Arc<PrefixIds>>, Refusal> {
    let most = prompt_tokens.div_ceil(block_tokens) as usize;
    if ids.len() > most {
        return Err(Refusal::Malformed(format!(
            "{} hash_ids, where {prompt_tokens} tokens in blocks of {block_tokens} have at most {most}",
            ids.len()
        )));
    }
    let prefix = (!ids.is_empty()).then(|| Arc::new(PrefixIds { block_tokens, ids }));
    Ok(prefix)
}
