//! Hardware profiles: the figures that make a model run like a given machine.

use serde::Deserialize;

use super::EngineError;
use crate::splitmix::mix;

const NAMED: [(&str, &str); 5] = [
    (
        "h100-llama3-8b",
        include_str!("../../configs/hardware/h100-llama3-8b.toml"),
    ),
    (
        "a100-llama3-8b",
        include_str!("../../configs/hardware/a100-llama3-8b.toml"),
    ),
    (
        "l4-llama3-8b",
        include_str!("../../configs/hardware/l4-llama3-8b.toml"),
    ),
    (
        "demo-small",
        include_str!("../../configs/hardware/demo-small.toml"),
    ),
    (
        "test-fast",
        include_str!("../../configs/hardware/test-fast.toml"),
    ),
];

/// One machine running one model.
#[derive(Debug, Clone, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name.
    pub name: String,
    /// What it stands for.
    #[serde(default)]
    pub description: String,
    /// Most tokens of one sequence, prompt and output together.
    pub max_model_len_tokens: u32,
    /// Tokens in a KV block.
    pub block_size_tokens: u32,
    /// KV blocks of the instance.
    pub kv_blocks: u32,
    /// Most sequences that run at once.
    pub max_num_seqs: u32,
    /// Most tokens computed in one step (prefill chunks and decodes together).
    pub max_num_batched_tokens: u32,
    /// How long a step lasts.
    pub step: StepCost,
    /// Output lengths where a request leaves them open.
    pub output: OutputLengths,
}

/// Coefficients of a step's duration, in microseconds. Additive, so slightly above a roofline's
/// `max(compute, memory)`: `fixed + prefill·a + decodes·b + kv·c`.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct StepCost {
    /// Of any step: weights read once, launch, scheduling.
    pub fixed_us: f64,
    /// Of each prompt token computed.
    pub prefill_token_us: f64,
    /// Of each sequence that decodes.
    pub decode_sequence_us: f64,
    /// Of each token of context read from the KV cache.
    pub kv_token_us: f64,
}

impl StepCost {
    /// A step's duration in nanoseconds.
    pub fn step_ns(&self, prefill_tokens: u64, decode_sequences: u64, kv_tokens: u64) -> u64 {
        let us = self.fixed_us
            + prefill_tokens as f64 * self.prefill_token_us
            + decode_sequences as f64 * self.decode_sequence_us
            + kv_tokens as f64 * self.kv_token_us;
        ((us * 1e3) as u64).max(1)
    }
}

/// A log-normal distribution of output lengths.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct OutputLengths {
    /// Its median.
    pub median_tokens: f64,
    /// Standard deviation of the logarithm.
    pub sigma: f64,
}

impl OutputLengths {
    /// The length that belongs to `seed`, at least 1. The same seed gives the same length on
    /// every instance, so that compared runs ask for the same work.
    pub fn draw_tokens(&self, seed: u64) -> u32 {
        let unit = |x: u64| ((x >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (u, v) = (unit(mix(seed)), unit(mix(seed ^ 0x9e37_79b9_7f4a_7c15)));
        // Box-Muller.
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        let tokens = (self.median_tokens.ln() + self.sigma * normal).exp();
        tokens.round().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

impl Profile {
    /// Names of the profiles that are built in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// A built-in profile by name, else a TOML file by path.
    pub fn load(name_or_path: &str) -> Result<Profile, EngineError> {
        if let Some((_, text)) = NAMED.iter().find(|(name, _)| *name == name_or_path) {
            return Profile::parse(name_or_path, text);
        }
        let text = std::fs::read_to_string(name_or_path).map_err(|error| {
            let known = NAMED.map(|(name, _)| name).join(", ");
            problem(
                name_or_path,
                format!("not built in ({known}) and not a file: {error}"),
            )
        })?;
        Profile::parse(name_or_path, &text)
    }

    /// Reads a profile's TOML text and checks it; `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Profile, EngineError> {
        let profile: Profile = toml::from_str(text).map_err(|e| problem(name, e.to_string()))?;
        profile.check().map_err(|text| problem(name, text))?;
        Ok(profile)
    }

    /// Blocks that hold `tokens`.
    pub fn blocks_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_size_tokens)
    }

    fn check(&self) -> Result<(), String> {
        let counts = [
            ("max_model_len_tokens", self.max_model_len_tokens),
            ("block_size_tokens", self.block_size_tokens),
            ("kv_blocks", self.kv_blocks),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        if self.max_num_batched_tokens < self.max_num_seqs {
            return Err("max_num_batched_tokens must be at least max_num_seqs".to_owned());
        }
        let costs = [
            self.step.fixed_us,
            self.step.prefill_token_us,
            self.step.decode_sequence_us,
            self.step.kv_token_us,
            self.output.sigma,
        ];
        if costs.iter().any(|cost| !cost.is_finite() || *cost < 0.0) || self.step.fixed_us <= 0.0 {
            return Err("costs must be finite and not negative, fixed_us above 0".to_owned());
        }
        if !self.output.median_tokens.is_finite() || self.output.median_tokens < 1.0 {
            return Err("output.median_tokens must be at least 1".to_owned());
        }
        if self.blocks_for(self.max_model_len_tokens) > self.kv_blocks {
            return Err("kv_blocks cannot hold one sequence of max_model_len_tokens".to_owned());
        }
        Ok(())
    }
}

fn problem(name: &str, problem: String) -> EngineError {
    EngineError::Profile {
        name: name.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn every_built_in_profile_loads_under_its_own_name() {
        for name in Profile::names() {
            assert_eq!(Profile::load(name).unwrap().name, name);
        }
    }

    #[test]
    fn a_wrong_profile_says_what_is_wrong() {
        let error = Profile::load("no-such-machine").unwrap_err().to_string();
        assert!(error.contains("h100-llama3-8b"), "{error}");
        let text = NAMED[3].1.replace("kv_blocks = 2048", "kv_blocks = 2");
        assert!(
            Profile::parse("x", &text)
                .unwrap_err()
                .to_string()
                .contains("kv_blocks")
        );
        let text = format!("colour = 1\n{}", NAMED[3].1);
        assert!(
            Profile::parse("x", &text)
                .unwrap_err()
                .to_string()
                .contains("colour")
        );
    }

    #[test]
    fn drawn_lengths_have_the_stated_median() {
        let lengths = OutputLengths {
            median_tokens: 100.0,
            sigma: 0.8,
        };
        let mut drawn: Vec<u32> = (0..4001).map(|seed| lengths.draw_tokens(seed)).collect();
        drawn.sort_unstable();
        assert!((90..=110).contains(&drawn[2000]), "{}", drawn[2000]);
    }
}
