//! How long an answer will be, and how many tokens a chunk carries; both learnt from answers.

use std::collections::BTreeMap;

use crate::estimate::Models;
use crate::shape::Api;

/// Answers of a key before its own mean is used.
const KEY_MIN_ANSWERS: u32 = 4;
/// Weight of the newest answer once there are many.
const GAIN: f64 = 0.05;
/// Keys in each of two generations; the older one is dropped when the newer is full.
const KEYS_PER_GENERATION: usize = 4096;
/// What is left of an answer's weight after one more answer.
const RATIO_DECAY: f64 = 0.98;

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    answers: u32,
    tokens: f64,
}

impl Mean {
    fn observe(&mut self, tokens: f64) {
        self.answers = self.answers.saturating_add(1);
        let gain = (1.0 / f64::from(self.answers)).max(GAIN);
        self.tokens += gain * (tokens - self.tokens);
    }
}

type Key = (u32, Api, u64);

/// Predicts output tokens: the request's limit, capped by the mean of what this key, or else this
/// model and API, was seen to produce; a configured default before any answer.
#[derive(Debug)]
pub struct OutputPredictor {
    default_tokens: u32,
    models: Models,
    means: BTreeMap<(u32, Api), Mean>,
    young: BTreeMap<Key, Mean>,
    old: BTreeMap<Key, Mean>,
}

impl Default for OutputPredictor {
    /// 256 tokens before any answer.
    fn default() -> Self {
        Self::new(256)
    }
}

impl OutputPredictor {
    /// Nothing learnt yet.
    pub fn new(default_tokens: u32) -> Self {
        Self {
            default_tokens,
            models: Models::default(),
            means: BTreeMap::new(),
            young: BTreeMap::new(),
            old: BTreeMap::new(),
        }
    }

    /// Another default before any answer; what was learnt stays.
    pub fn set_default_tokens(&mut self, default_tokens: u32) {
        self.default_tokens = default_tokens;
    }

    /// Output tokens over all choices; 0 for embeddings, which generate nothing.
    pub fn predict(
        &self,
        model: &str,
        api: Api,
        key: Option<u64>,
        max_output: Option<u32>,
        choices: u32,
    ) -> u32 {
        if api == Api::Embeddings {
            return 0;
        }
        let number = self.models.number(model);
        let own = key.and_then(|key| self.key_mean(&(number, api, key)));
        let mean = own
            .filter(|mean| mean.answers >= KEY_MIN_ANSWERS)
            .or_else(|| self.means.get(&(number, api)));
        let seen = mean.map_or(self.default_tokens, |mean| mean.tokens.round() as u32);
        max_output
            .map_or(seen, |limit| limit.min(seen))
            .saturating_mul(choices.max(1))
    }

    /// Learns from one answer that ran to its own end.
    pub fn observe(
        &mut self,
        model: &str,
        api: Api,
        key: Option<u64>,
        output_tokens_per_choice: u64,
    ) {
        let tokens = output_tokens_per_choice as f64;
        let number = self.models.number_or_add(model);
        self.means.entry((number, api)).or_default().observe(tokens);
        let Some(key) = key else { return };
        let place = (number, api, key);
        let mut mean = self.key_mean(&place).copied().unwrap_or_default();
        mean.observe(tokens);
        self.old.remove(&place);
        self.young.insert(place, mean);
        if self.young.len() >= KEYS_PER_GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
    }

    fn key_mean(&self, key: &Key) -> Option<&Mean> {
        self.young.get(key).or_else(|| self.old.get(key))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Ratio {
    chunks: f64,
    tokens: f64,
}

/// Output tokens an output chunk carries, by model and API: a ratio of sums that decay.
#[derive(Debug, Default)]
pub struct TokensPerChunk {
    models: Models,
    ratios: BTreeMap<(u32, Api), Ratio>,
}

impl TokensPerChunk {
    /// Output tokens of so many chunks; `None` before any answer with usage.
    pub fn estimate(&self, model: &str, api: Api, chunks: u64) -> Option<f64> {
        let ratio = self.ratios.get(&(self.models.number(model), api))?;
        Some(chunks as f64 * ratio.tokens / ratio.chunks)
    }

    /// Learns from an answer whose usage is known; one without chunks teaches nothing.
    pub fn observe(&mut self, model: &str, api: Api, chunks: u64, output_tokens: u64) {
        if chunks == 0 {
            return;
        }
        let ratio = self
            .ratios
            .entry((self.models.number_or_add(model), api))
            .or_default();
        ratio.chunks = ratio.chunks * RATIO_DECAY + chunks as f64;
        ratio.tokens = ratio.tokens * RATIO_DECAY + output_tokens as f64;
    }
}
