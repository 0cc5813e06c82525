//! What a step costs and where: memory, compute, link between GPUs, host. Pure.

use serde::{Deserialize, Serialize};

/// Coefficients of a step's duration, in microseconds. Additive, so slightly above a roofline's
/// `max(compute, memory)`: `fixed + prefill·a + decodes·b + kv·c`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct StepCost {
    /// Of any step: weights read once, launch, scheduling.
    pub fixed_us: f64,
    /// Of `fixed_us`: launch and scheduling, in which the GPU waits for the host.
    #[serde(default)]
    pub host_us: f64,
    /// Of each prompt token computed.
    pub prefill_token_us: f64,
    /// Of each sequence that decodes.
    pub decode_sequence_us: f64,
    /// Of each token of context read from the KV cache.
    pub kv_token_us: f64,
}

/// One GPU, and what lies in its memory.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// What it calls itself.
    pub name: String,
    /// All of it, 10^9 bytes.
    pub memory_gb: f64,
    /// The model's weights, 10^9 bytes, over all GPUs.
    pub weights_gb: f64,
    /// Activations, 10^9 bytes on each GPU.
    pub activations_gb: f64,
    /// Keys and values of one token, bytes, over all GPUs.
    pub kv_token_bytes: f64,
}

/// What joins the GPUs of an instance under tensor parallelism: two all-reduces a layer (Shoeybi et al. 2019,
/// Megatron-LM), each as a ring of `g` GPUs with `2(g-1)` hops of latency and `2(g-1)/g` of the message sent by each
/// GPU (NCCL tests, PERFORMANCE.md).
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Layers of the model.
    pub layers: u32,
    /// Bytes of one token's activations between layers.
    pub hidden_bytes: f64,
    /// Of one hop, microseconds.
    pub latency_us: f64,
    /// One way, 10^9 bytes a second.
    pub gb_per_s: f64,
}

/// What the CPU does. `cores` are shared by the workers that prepare requests (tokenization, before a request may be
/// admitted, first come first served) and the loop that plans each step, which goes first. The GPU waits for that loop.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct CpuCost {
    /// Cores the instance has.
    pub cores: u32,
    /// Of each request, before it is admitted.
    pub request_us: f64,
    /// Of each token of its prompt, before it is admitted.
    pub prompt_token_us: f64,
    /// Of each step, beside `step.host_us`.
    pub step_us: f64,
    /// Of each sequence in a step: scheduling, sampling, detokenizing.
    pub step_sequence_us: f64,
}

/// What a step computes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepWork {
    /// Prompt tokens.
    pub prefill_tokens: u64,
    /// Sequences that decode.
    pub decode_sequences: u64,
    /// Tokens of context read from the KV cache.
    pub kv_tokens: u64,
    /// Sequences in the step.
    pub sequences: u64,
}

/// A step's duration by what it is spent on, one after the other, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepParts {
    /// The GPU waits for the host.
    pub host_us: f64,
    /// Weights and KV cache are read.
    pub memory_us: f64,
    /// Prompts are computed.
    pub compute_us: f64,
    /// Tokens are sampled.
    pub sample_us: f64,
    /// Results go between GPUs.
    pub link_us: f64,
    /// Bytes each GPU sends to others.
    pub link_bytes: f64,
}

impl StepParts {
    /// All of it, in nanoseconds, at least 1.
    pub fn ns(&self) -> u64 {
        ((self.us() * 1e3) as u64).max(1)
    }

    /// All of it, in microseconds.
    pub fn us(&self) -> f64 {
        self.host_us + self.memory_us + self.compute_us + self.sample_us + self.link_us
    }
}

impl StepCost {
    /// A step on `gpus` GPUs: what is read and computed is divided by them, launch and sampling are not.
    pub fn parts(
        &self,
        work: StepWork,
        gpus: u32,
        link: Option<&Link>,
        cpu: Option<&CpuCost>,
    ) -> StepParts {
        let each = f64::from(gpus.max(1));
        let mut parts = StepParts {
            host_us: self.host_us,
            memory_us: (self.fixed_us - self.host_us + work.kv_tokens as f64 * self.kv_token_us)
                / each,
            compute_us: work.prefill_tokens as f64 * self.prefill_token_us / each,
            sample_us: work.decode_sequences as f64 * self.decode_sequence_us,
            ..StepParts::default()
        };
        if let Some(cpu) = cpu {
            parts.host_us += cpu.step_us + work.sequences as f64 * cpu.step_sequence_us;
        }
        if let Some(link) = link.filter(|_| gpus > 1) {
            let tokens = (work.prefill_tokens + work.decode_sequences) as f64;
            let all_reduces = 2.0 * f64::from(link.layers);
            let hops = 2.0 * (each - 1.0);
            parts.link_bytes = all_reduces * tokens * link.hidden_bytes * hops / each;
            // 10^9 bytes a second are 10^3 bytes a microsecond
            parts.link_us =
                all_reduces * hops * link.latency_us + parts.link_bytes / (link.gb_per_s * 1e3);
        }
        parts
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let costs = [
            self.fixed_us,
            self.host_us,
            self.prefill_token_us,
            self.decode_sequence_us,
            self.kv_token_us,
        ];
        if !all_usable(&costs) || self.fixed_us <= 0.0 {
            return Err("costs must be finite and not negative, fixed_us above 0".to_owned());
        }
        if self.host_us > self.fixed_us {
            return Err("step.host_us is a part of fixed_us and cannot exceed it".to_owned());
        }
        Ok(())
    }
}

impl Gpu {
    /// Bytes of a KV block of so many tokens.
    pub fn block_bytes(&self, block_size_tokens: u32) -> f64 {
        f64::from(block_size_tokens) * self.kv_token_bytes
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let above = [self.memory_gb, self.weights_gb, self.kv_token_bytes];
        if !all_above(&above) || !all_usable(&[self.activations_gb]) {
            return Err("[gpu] memory_gb, weights_gb and kv_token_bytes must be above 0, activations_gb not negative".to_owned());
        }
        Ok(())
    }
}

impl Link {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.layers == 0
            || !all_above(&[self.hidden_bytes, self.gb_per_s])
            || !all_usable(&[self.latency_us])
        {
            return Err(
                "[link] layers, hidden_bytes and gb_per_s must be above 0, latency_us not negative"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

impl CpuCost {
    /// Nanoseconds that a request keeps a core before it may be admitted.
    pub fn prepare_ns(&self, prompt_tokens: u32) -> u64 {
        ((self.request_us + f64::from(prompt_tokens) * self.prompt_token_us) * 1e3) as u64
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let costs = [
            self.request_us,
            self.prompt_token_us,
            self.step_us,
            self.step_sequence_us,
        ];
        if self.cores == 0 || self.cores > 4096 || !all_usable(&costs) {
            return Err(
                "[cpu] cores must be 1 to 4096 and its costs finite and not negative".to_owned(),
            );
        }
        Ok(())
    }
}

fn all_usable(values: &[f64]) -> bool {
    values
        .iter()
        .all(|value| value.is_finite() && *value >= 0.0)
}

fn all_above(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite() && *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: StepCost = StepCost {
        fixed_us: 7000.0,
        host_us: 1000.0,
        prefill_token_us: 30.0,
        decode_sequence_us: 10.0,
        kv_token_us: 0.05,
    };
    const WORK: StepWork = StepWork {
        prefill_tokens: 100,
        decode_sequences: 20,
        kv_tokens: 40_000,
        sequences: 21,
    };

    #[test]
    fn a_step_on_one_gpu_is_the_sum_of_its_coefficients() {
        let parts = STEP.parts(WORK, 1, None, None);
        assert_eq!(parts.ns(), (7000 + 3000 + 200 + 2000) * 1000);
        assert_eq!((parts.link_us, parts.link_bytes), (0.0, 0.0));
    }

    #[test]
    fn gpus_divide_memory_and_compute_and_pay_for_the_ring() {
        let link = Link {
            layers: 32,
            hidden_bytes: 8192.0,
            latency_us: 2.0,
            gb_per_s: 400.0,
        };
        let parts = STEP.parts(WORK, 4, Some(&link), None);
        assert_eq!((parts.memory_us, parts.compute_us), (2000.0, 750.0));
        assert_eq!((parts.host_us, parts.sample_us), (1000.0, 200.0));
        // 64 all-reduces; 6 hops; 6/4 of 120 tokens of 8192 bytes
        assert_eq!(parts.link_bytes, 64.0 * 120.0 * 8192.0 * 1.5);
        assert_eq!(
            parts.link_us,
            64.0 * 6.0 * 2.0 + parts.link_bytes / 400_000.0
        );
    }

    #[test]
    fn the_cpu_adds_to_the_hosts_part() {
        let cpu = CpuCost {
            cores: 1,
            request_us: 100.0,
            prompt_token_us: 2.0,
            step_us: 500.0,
            step_sequence_us: 100.0,
        };
        assert_eq!(
            STEP.parts(WORK, 1, None, Some(&cpu)).host_us,
            1000.0 + 500.0 + 2100.0
        );
        assert_eq!(cpu.prepare_ns(50), 200_000);
    }
}
