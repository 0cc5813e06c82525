//! How long a prompt is in tokens: characters by class × usual tokens a character, corrected by what
//! engines reported for each model.
//!
//! `tokens = exact + images × constant + (a × guess + b)`, where `guess` is the text's sum over classes
//! and `b` the chat template's constant. `a` and `b` come from least squares with weights that decay
//! (older answers count less), weights 1 / (guess + 64) (errors grow with length) and a pull towards
//! a = 1, b = 0 (ridge), within fixed bounds.

use std::collections::BTreeMap;

pub use crate::output::{OutputPredictor, TokensPerChunk};
use crate::shape::{PromptFacts, TextCounts};

/// Models kept apart; further ones share one entry.
pub(crate) const MAX_MODELS: usize = 64;

/// Usual tokens a character, by class, for byte-pair vocabularies of 100k to 200k entries. Starting
/// values only: the fit corrects their sum.
const LETTERS: f64 = 0.22;
const SYMBOLS: f64 = 0.5;
const TWO_BYTE: f64 = 0.4;
const THREE_BYTE: f64 = 0.75;
const FOUR_BYTE: f64 = 1.6;

/// What is left of an answer's weight after one more answer.
const DECAY: f64 = 0.98;
/// Added to the guess in the weight of an answer.
const WEIGHT_OFFSET: f64 = 64.0;
/// Pull of the slope towards 1, in answers of 100 tokens.
const SLOPE_PULL: f64 = 0.25 * 100.0 * 100.0 / (100.0 + WEIGHT_OFFSET);
/// Pull of the constant towards 0.
const CONSTANT_PULL: f64 = 0.02 / WEIGHT_OFFSET;
const SLOPE_BOUNDS: (f64, f64) = (0.2, 5.0);
const CONSTANT_BOUNDS: (f64, f64) = (0.0, 2048.0);

/// Model names turned into numbers, so many and no more.
#[derive(Debug, Default)]
pub(crate) struct Models {
    numbers: BTreeMap<String, u32>,
}

impl Models {
    /// The shared entry of all models past the bound.
    const OTHER: u32 = u32::MAX;

    pub fn number(&self, model: &str) -> u32 {
        self.numbers.get(model).copied().unwrap_or(Self::OTHER)
    }

    pub fn number_or_add(&mut self, model: &str) -> u32 {
        let known = self.number(model);
        if known != Self::OTHER || self.numbers.len() >= MAX_MODELS {
            return known;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(model.to_owned(), number);
        number
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Fit {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Fit {
    fn observe(&mut self, guess: f64, tokens: f64) {
        // one wild answer must not carry the fit away
        let tokens = tokens.clamp(guess / 8.0, guess * 8.0 + 2048.0);
        let weight = 1.0 / (guess + WEIGHT_OFFSET);
        let add = |sum: &mut f64, value: f64| *sum = *sum * DECAY + weight * value;
        add(&mut self.weight, 1.0);
        add(&mut self.x, guess);
        add(&mut self.y, tokens);
        add(&mut self.xx, guess * guess);
        add(&mut self.xy, guess * tokens);
    }

    fn tokens(&self, guess: f64) -> f64 {
        let xx = self.xx + SLOPE_PULL;
        let xy = self.xy + SLOPE_PULL;
        let n = self.weight + CONSTANT_PULL;
        let determinant = xx * n - self.x * self.x;
        let slope =
            ((xy * n - self.x * self.y) / determinant).clamp(SLOPE_BOUNDS.0, SLOPE_BOUNDS.1);
        let constant = ((self.y - slope * self.x) / n).clamp(CONSTANT_BOUNDS.0, CONSTANT_BOUNDS.1);
        slope * guess + constant
    }
}

/// Estimates prompt tokens.
#[derive(Debug)]
pub struct LengthEstimator {
    image_tokens: u32,
    models: Models,
    fits: BTreeMap<u32, Fit>,
}

impl LengthEstimator {
    /// Nothing learnt yet; a picture counts as `image_tokens`.
    pub fn new(image_tokens: u32) -> Self {
        Self {
            image_tokens,
            models: Models::default(),
            fits: BTreeMap::new(),
        }
    }

    /// From now on a picture counts as `image_tokens`; what was learnt stays.
    pub fn set_image_tokens(&mut self, image_tokens: u32) {
        self.image_tokens = image_tokens;
    }

    /// Prompt tokens of the whole request.
    pub fn prompt_tokens(&self, model: &str, facts: &PromptFacts) -> u32 {
        let fixed = self.fixed_tokens(facts);
        let text = if facts.text.chars() == 0 {
            0.0
        } else {
            self.fit(model).tokens(guess(&facts.text))
        };
        let text = text.ceil() as u64; // `as` saturates
        u32::try_from(fixed.saturating_add(text)).unwrap_or(u32::MAX)
    }

    /// Learns from `usage.prompt_tokens`. Requests with pictures teach nothing of text.
    pub fn observe(&mut self, model: &str, facts: &PromptFacts, actual_prompt_tokens: u64) {
        if facts.text.chars() == 0 || facts.images > 0 || actual_prompt_tokens <= facts.exact_tokens
        {
            return;
        }
        let tokens = (actual_prompt_tokens - facts.exact_tokens) as f64;
        let number = self.models.number_or_add(model);
        self.fits
            .entry(number)
            .or_default()
            .observe(guess(&facts.text), tokens);
    }

    fn fixed_tokens(&self, facts: &PromptFacts) -> u64 {
        facts
            .exact_tokens
            .saturating_add(u64::from(facts.images) * u64::from(self.image_tokens))
    }

    fn fit(&self, model: &str) -> Fit {
        self.fits
            .get(&self.models.number(model))
            .copied()
            .unwrap_or_default()
    }
}

fn guess(text: &TextCounts) -> f64 {
    text.letters as f64 * LETTERS
        + text.symbols as f64 * SYMBOLS
        + text.two_byte as f64 * TWO_BYTE
        + text.three_byte as f64 * THREE_BYTE
        + text.four_byte as f64 * FOUR_BYTE
}
