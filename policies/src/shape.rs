//! What routing may know of a request: its shape.

use serde::{Deserialize, Serialize};

/// Which API a request speaks; decides how its JSON and its answer are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// Anthropic's `/v1/messages`
    Messages,
    /// `/v1/embeddings`
    Embeddings,
    /// any other path that is passed on
    Other,
}

/// Characters of the prompt's text by class. Each class has its own usual tokens per character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextCounts {
    /// ASCII letters and white space
    pub letters: u64,
    /// ASCII digits, punctuation and control characters
    pub symbols: u64,
    /// characters of two UTF-8 bytes (Latin with accents, Cyrillic, Greek, Arabic, ...)
    pub two_byte: u64,
    /// characters of three UTF-8 bytes (CJK, Indic, ...)
    pub three_byte: u64,
    /// characters of four UTF-8 bytes (emoji, rare ideographs)
    pub four_byte: u64,
}

impl TextCounts {
    /// All characters, whatever their class.
    pub fn chars(&self) -> u64 {
        self.letters + self.symbols + self.two_byte + self.three_byte + self.four_byte
    }
}

/// What the body of a request says about its prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptFacts {
    /// text of messages, prompts, instructions, tool definitions
    pub text: TextCounts,
    /// tokens given as ids (exact)
    pub exact_tokens: u64,
    /// pictures, each estimated as a configured constant
    pub images: u32,
    /// prompts in the request (a list of prompts counts each); at least 1
    pub prompts: u32,
    /// sequences that will be generated: prompts × n (or best_of)
    pub choices: u32,
}

/// A request as policies see it. All token counts are for the whole request (all prompts, all choices).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RequestShape {
    /// API spoken
    pub api: Api,
    /// index of the model in the pool's table
    pub model: u32,
    /// prompt tokens, estimated or exact
    pub prompt_tokens: u32,
    /// prompt tokens believed to be in the prefix cache already
    pub cached_tokens: u32,
    /// output limit of the request per choice, if it names one
    pub max_output_tokens: Option<u32>,
    /// predicted output tokens over all choices
    pub predicted_output_tokens: u32,
    /// sequences generated
    pub choices: u32,
    /// whether the answer is to be streamed
    pub stream: bool,
    /// size of the request's body
    pub body_bytes: u64,
    /// hash of a session key, if the request has one
    pub session: Option<u64>,
}

impl RequestShape {
    /// Prompt tokens that must really be prefilled.
    pub fn uncached_tokens(&self) -> u32 {
        self.prompt_tokens.saturating_sub(self.cached_tokens)
    }

    /// What the request asks of an instance: uncached prompt and predicted output.
    pub fn work_tokens(&self) -> u64 {
        u64::from(self.uncached_tokens()) + u64::from(self.predicted_output_tokens)
    }
}
