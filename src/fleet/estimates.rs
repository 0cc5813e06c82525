//! Length estimate, output prediction and tokens per chunk of one pool, learnt from its answers.

use evenkeel_policies::estimate::{LengthEstimator, OutputPredictor, TokensPerChunk};
use evenkeel_policies::shape::{Api, PromptFacts};
use parking_lot::Mutex;

use crate::config::checked::Measure;

/// What a request is expected to weigh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// prompt tokens
    pub prompt_tokens: u32,
    /// output tokens over all choices
    pub output_tokens: u32,
}

/// What an answer taught.
pub struct Lesson<'a> {
    /// model as named
    pub model: &'a str,
    /// API
    pub api: Api,
    /// session key
    pub key: Option<u64>,
    /// the prompt, as skimmed
    pub facts: &'a PromptFacts,
    /// `usage.prompt_tokens`
    pub prompt_tokens: Option<u64>,
    /// `usage` output tokens over all choices
    pub output_tokens: Option<u64>,
    /// output chunks over all choices
    pub output_chunks: u64,
    /// whether the answer ran to its own end
    pub complete: bool,
}

struct Inner {
    length: LengthEstimator,
    output: OutputPredictor,
    tokens_per_chunk: TokensPerChunk,
}

/// One pool's estimators behind one short lock: taken at arrival and at the end, never per chunk.
pub struct Estimates {
    inner: Mutex<Inner>,
}

impl Estimates {
    /// Nothing learnt yet.
    pub fn new(measure: &Measure) -> Self {
        Self {
            inner: Mutex::new(Inner {
                length: LengthEstimator::new(measure.image_tokens),
                output: OutputPredictor::new(measure.default_output_tokens),
                tokens_per_chunk: TokensPerChunk::default(),
            }),
        }
    }

    /// Takes other settings; what was learnt stays.
    pub fn set(&self, measure: &Measure) {
        let mut inner = self.inner.lock();
        inner.length.set_image_tokens(measure.image_tokens);
        inner
            .output
            .set_default_tokens(measure.default_output_tokens);
    }

    /// Expected tokens of a request.
    pub fn expect(
        &self,
        model: &str,
        api: Api,
        key: Option<u64>,
        facts: &PromptFacts,
        max_output_tokens: Option<u32>,
    ) -> Estimate {
        let inner = self.inner.lock();
        Estimate {
            prompt_tokens: inner.length.prompt_tokens(model, facts),
            output_tokens: inner
                .output
                .predict(model, api, key, max_output_tokens, facts.choices),
        }
    }

    /// Output tokens for a number of output chunks; `None` before anything was learnt.
    pub fn output_tokens(&self, model: &str, api: Api, chunks: u64) -> Option<f64> {
        self.inner
            .lock()
            .tokens_per_chunk
            .estimate(model, api, chunks)
    }

    /// Learns from an answer.
    pub fn learn(&self, lesson: &Lesson<'_>) {
        let mut inner = self.inner.lock();
        if let Some(tokens) = lesson.prompt_tokens {
            inner.length.observe(lesson.model, lesson.facts, tokens);
        }
        let Some(tokens) = lesson.output_tokens else {
            return;
        };
        if lesson.output_chunks > 0 {
            inner
                .tokens_per_chunk
                .observe(lesson.model, lesson.api, lesson.output_chunks, tokens);
        }
        if lesson.complete {
            let each = tokens / u64::from(lesson.facts.choices.max(1));
            inner
                .output
                .observe(lesson.model, lesson.api, lesson.key, each);
        }
    }
}
