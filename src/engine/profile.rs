//! Hardware profiles: the figures that make a model run like a given machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::EngineError;
use super::cost::{CpuCost, Gpu, Link, StepCost};
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

/// How sequences are put together into batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Batching {
    /// a sequence joins the batch as soon as it fits (Orca's iteration-level scheduling; vLLM)
    #[default]
    Continuous,
    /// a batch is made of what waits, and the next one only when its last sequence has ended
    Static,
}

impl Batching {
    /// Its name in profiles and options.
    pub fn name(self) -> &'static str {
        match self {
            Batching::Continuous => "continuous",
            Batching::Static => "static",
        }
    }
}

/// One machine running one model.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
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
    /// How batches are made.
    #[serde(default)]
    pub batching: Batching,
    /// GPUs that share every layer (tensor parallelism). `kv_blocks` are those of all of them; `step` is that of one.
    #[serde(default = "one")]
    pub gpus: u32,
    /// How long a step lasts.
    pub step: StepCost,
    /// Output lengths where a request leaves them open.
    pub output: OutputLengths,
    /// What lies in a GPU's memory; without it nothing is told of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// What joins the GPUs; needed for more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// What the CPU does that the GPU waits for; without it nothing but `step.host_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuCost>,
}

fn one() -> u32 {
    1
}

/// A log-normal distribution of output lengths.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
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

    /// The same with some keys set otherwise, by their names in the file: `max_num_seqs`, `cpu.cores`. `gpus` is
    /// set first and brings its KV blocks, see [`Profile::on_gpus`]; a key that a profile does not have is an error.
    pub fn with(&self, settings: &BTreeMap<String, toml::Value>) -> Result<Profile, EngineError> {
        let wrong = |text: String| problem(&self.name, text);
        let mut profile = self.clone();
        if let Some(gpus) = settings.get("gpus") {
            let gpus = gpus.as_integer().and_then(|gpus| u32::try_from(gpus).ok());
            let gpus = gpus.ok_or_else(|| wrong("gpus must be a whole number from 1".into()))?;
            profile = profile.on_gpus(gpus)?;
        }
        let mut table = toml::Table::try_from(&profile).map_err(|e| wrong(e.to_string()))?;
        for (key, value) in settings.iter().filter(|(key, _)| *key != "gpus") {
            set(&mut table, key, value).map_err(wrong)?;
        }
        let profile: Profile = table.try_into().map_err(|e| wrong(e.to_string()))?;
        profile.check().map_err(wrong)?;
        Ok(profile)
    }

    /// The same model on `gpus` of the GPU this profile has one of: weights are split, so KV blocks grow by the
    /// memory that a further GPU brings and by the weights it takes off the others,
    /// `gpus x kv_blocks + (gpus - 1) x weights / bytes of a block`.
    pub fn on_gpus(&self, gpus: u32) -> Result<Profile, EngineError> {
        let wrong = |text: &str| problem(&self.name, text.to_owned());
        if gpus == self.gpus {
            return Ok(self.clone());
        }
        if self.gpus != 1 || gpus == 0 {
            return Err(wrong(
                "GPUs are added to a profile of one: gpus must be 1 or more",
            ));
        }
        let (Some(gpu), Some(_)) = (&self.gpu, &self.link) else {
            return Err(wrong("more than one GPU needs the tables [gpu] and [link]"));
        };
        let freed_blocks = gpu.weights_gb * 1e9 / gpu.block_bytes(self.block_size_tokens);
        let blocks =
            f64::from(gpus) * f64::from(self.kv_blocks) + f64::from(gpus - 1) * freed_blocks;
        Ok(Profile {
            gpus,
            kv_blocks: blocks as u32,
            ..self.clone()
        })
    }

    /// Memory of each GPU in use and free, bytes: weights, activations, and the whole KV pool, which is reserved at
    /// the start as vLLM does. Absent where the profile does not tell.
    pub fn gpu_memory_bytes(&self) -> Option<(f64, f64)> {
        let gpu = self.gpu.as_ref()?;
        let gpus = f64::from(self.gpus);
        let pool = f64::from(self.kv_blocks) * gpu.block_bytes(self.block_size_tokens);
        let used = (gpu.weights_gb * 1e9 + pool) / gpus + gpu.activations_gb * 1e9;
        let all = gpu.memory_gb * 1e9;
        Some((used.min(all), (all - used).max(0.0)))
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
        self.step.check()?;
        if !self.output.sigma.is_finite() || self.output.sigma < 0.0 {
            return Err("output.sigma must be finite and not negative".to_owned());
        }
        self.gpu.as_ref().map_or(Ok(()), Gpu::check)?;
        self.link.as_ref().map_or(Ok(()), Link::check)?;
        self.cpu.as_ref().map_or(Ok(()), CpuCost::check)?;
        if self.gpus == 0 || (self.gpus > 1 && self.link.is_none()) {
            return Err(
                "gpus must be at least 1, and more than 1 need the table [link]".to_owned(),
            );
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

/// Sets `key`, which may name a table first: `cpu.cores`.
fn set(table: &mut toml::Table, key: &str, value: &toml::Value) -> Result<(), String> {
    let Some((name, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value.clone());
        return Ok(());
    };
    let inner = table
        .entry(name)
        .or_insert_with(|| toml::Value::Table(toml::Table::new()));
    match inner {
        toml::Value::Table(inner) => set(inner, rest, value),
        _ => Err(format!("{key}: {name} is no table")),
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
