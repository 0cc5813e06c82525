//! What a planted study is drawn from: a machine, lengths, and the knee that follows from both. Pure.

use std::collections::BTreeMap;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::{Kind, PlantedStudy};
use crate::engine::cost::CpuCost;
use crate::engine::profile::Profile;
use crate::load::lengths::Lengths;
use crate::load::workload::Class;
use crate::simulate::{Fleet, PointSpec, SimulateError};
use crate::study::{Load, Scaling, Scenario, Setting};

const MACHINES: [&str; 3] = ["h100-llama3-8b", "a100-llama3-8b", "l4-llama3-8b"];
const POLICIES: [&str; 2] = ["least_requests", "round_robin"];
/// The machine whose `fixed_us` this is runs for [`SECONDS`]; slower ones for as many steps.
const FIXED_US: f64 = 7_000.0;
const SECONDS: f64 = 30.0;
/// Fewer sequences make no ladder of loads.
const LEAST_KNEE: f64 = 4.0;
/// Draws of lengths before one gives up.
const TRIES: u32 = 10_000;
/// Sigma of lengths: requests of one kind.
const SIGMA: f64 = 0.4;

/// Numbers out of a seed.
pub(super) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(super) fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.0.random::<f64>()
    }

    pub(super) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())]
    }
}

/// What a study is drawn by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) number: u32,
    pub(super) seed: u64,
}

/// The fleet before a fault is planted.
pub(super) struct Scene {
    pub(super) machine: &'static str,
    pub(super) fleet: Fleet,
    pub(super) prompt_tokens: f64,
    pub(super) output_tokens: f64,
    pub(super) seconds: f64,
    policy: &'static str,
    seed: u64,
}

/// Ranges to draw lengths from, and what must fit.
pub(super) struct Wanted {
    pub(super) prompt: (f64, f64),
    pub(super) output: (f64, f64),
    /// sequences at once, in multiples of the knee
    pub(super) knees: f64,
}

impl Scene {
    /// A machine by the study's number, and lengths drawn until so many sequences fit its KV cache and its
    /// `max_num_seqs` with room to spare.
    pub(super) fn draw(
        dice: &mut Dice,
        source: Source,
        wanted: &Wanted,
    ) -> Result<Scene, SimulateError> {
        let machine = MACHINES[source.number as usize % MACHINES.len()];
        let profile = with_cpu(halved_on_l4(Profile::load(machine)?));
        let policy = dice.one_of(&POLICIES);
        for _ in 0..TRIES {
            let scene = Scene {
                machine,
                seconds: SECONDS * profile.step.fixed_us / FIXED_US,
                fleet: Fleet::new(profile.clone()),
                prompt_tokens: dice.between(wanted.prompt.0, wanted.prompt.1).round(),
                output_tokens: dice.between(wanted.output.0, wanted.output.1).round(),
                policy,
                seed: source.seed,
            };
            if scene.has_room_for(wanted.knees * scene.knee()) {
                return Ok(scene);
            }
        }
        let problem = format!("no lengths were drawn that fit the KV cache of {machine}");
        Err(SimulateError::Load(problem))
    }

    /// What one more sequence adds to a step, µs.
    pub(super) fn sequence_us(&self) -> f64 {
        let step = &self.fleet.profile.step;
        let context_tokens = self.prompt_tokens + self.output_tokens / 2.0;
        step.decode_sequence_us
            + context_tokens * step.kv_token_us
            + self.prompt_tokens / self.output_tokens * step.prefill_token_us
    }

    /// Sequences at which half of the greatest throughput is reached.
    pub(super) fn knee(&self) -> f64 {
        self.fleet.profile.step.fixed_us / self.sequence_us()
    }

    /// Tokens a second with so many sequences.
    pub(super) fn tokens_per_s(&self, sequences: f64) -> f64 {
        let step_us = self.fleet.profile.step.fixed_us + sequences * self.sequence_us();
        sequences / step_us * 1e6
    }

    fn has_room_for(&self, sequences: f64) -> bool {
        let profile = &self.fleet.profile;
        let cache_tokens = f64::from(profile.kv_blocks * profile.block_size_tokens);
        let longest = self.prompt_tokens + self.output_tokens;
        // lengths are spread, and a hot spot of the draw must not fill it
        sequences * longest * 1.2 <= 0.6 * cache_tokens
            && sequences <= 0.6 * f64::from(profile.max_num_seqs)
            && self.knee() >= LEAST_KNEE
    }

    fn class(&self) -> Class {
        let lengths = |median: f64| Lengths::LogNormal {
            median_tokens: (median as u32).max(1),
            sigma: SIGMA,
            min_tokens: (median / 4.0).max(2.0) as u32,
            max_tokens: (median * 2.5).max(4.0) as u32,
        };
        Class {
            name: "planted".into(),
            share: 1.0,
            prompt: lengths(self.prompt_tokens),
            output: lengths(self.output_tokens),
        }
    }

    /// A point of one curve: `units` instances, or GPUs of one instance, at `load_each` for each of them.
    pub(super) fn point(&self, scaling: Scaling, units: u32, load_each: Each) -> PointSpec {
        let (instances, gpus_per_instance) = match scaling {
            Scaling::Horizontal => (units, 1),
            Scaling::Vertical => (1, units),
        };
        let (load, load_per_instance) = match load_each {
            Each::Closed(places) => {
                let concurrency = units * places;
                (Load::Closed { concurrency }, f64::from(places))
            }
            Each::Poisson(rate_per_s) => {
                let all_per_s = f64::from(units) * rate_per_s;
                (
                    Load::Poisson {
                        rate_per_s: all_per_s,
                    },
                    rate_per_s,
                )
            }
        };
        let setting = Setting {
            scenario: Scenario::Online,
            scaling,
            instances,
            gpus_per_instance,
            load,
            load_per_instance,
            lengths: format!("p{}-o{}", self.prompt_tokens, self.output_tokens),
            policy: self.policy.into(),
            repeat: 0,
            seed: self.seed,
            variant: "base".into(),
            engine: BTreeMap::new(),
            batch_concurrency: None,
            labels: BTreeMap::new(),
        };
        let warm_up_s = self.seconds / 5.0;
        let classes = vec![self.class()];
        PointSpec {
            // so that no drain is in the throughput
            trim_s: Some(self.seconds / 15.0),
            ..PointSpec::new(
                setting,
                self.fleet.clone(),
                classes,
                warm_up_s,
                self.seconds,
            )
        }
    }

    /// A study of these points, with a service level that the machine keeps while a step lasts at most two and a half
    /// times that of an idle one.
    pub(super) fn study(&self, kind: Kind, number: u32, points: Vec<PointSpec>) -> PlantedStudy {
        let fixed_ms = self.fleet.profile.step.fixed_us / 1e3;
        PlantedStudy {
            name: format!("{kind:?} {number}, {}", self.machine),
            kind,
            truth: Vec::new(),
            efficiency: None,
            points,
            objectives: vec![
                format!("ttft:{:.0}", 70.0 * fixed_ms),
                format!("tpot:{:.0}", 2.5 * fixed_ms),
            ],
            attainment: 0.99,
        }
    }
}

/// A load for each instance or GPU.
#[derive(Debug, Clone, Copy)]
pub(super) enum Each {
    Closed(u32),
    Poisson(f64),
}

/// The L4 serves the model with 8-bit weights: half the bytes to read and twice the arithmetic (NVIDIA data sheet: 242
/// TFLOP/s fp8 dense), or its KV cache would be full long before its knee.
fn halved_on_l4(mut profile: Profile) -> Profile {
    let Some(gpu) = profile.gpu.as_mut().filter(|gpu| gpu.memory_gb < 40.0) else {
        return profile;
    };
    let freed_blocks = gpu.weights_gb / 2.0 * 1e9 / gpu.block_bytes(profile.block_size_tokens);
    gpu.weights_gb /= 2.0;
    profile.kv_blocks += freed_blocks as u32;
    let step = &mut profile.step;
    step.fixed_us = step.host_us + (step.fixed_us - step.host_us) / 2.0;
    step.prefill_token_us /= 2.0;
    profile
}

/// A server's CPU: tokenization at a million tokens a second on each of eight cores (an estimate).
fn with_cpu(profile: Profile) -> Profile {
    Profile {
        cpu: Some(CpuCost {
            cores: 8,
            request_us: 300.0,
            prompt_token_us: 1.0,
            step_us: 0.0,
            step_sequence_us: 0.0,
        }),
        ..profile
    }
}
