//! What was seen of engines, GPUs and hosts while a load ran, on the load's own time axis. Pure.

use serde::{Deserialize, Serialize};

/// Where a reading comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// an inference server's own metrics, under vLLM's names
    Engine,
    /// a GPU, under DCGM's names
    Gpu,
    /// a host, under node-exporter's names
    Host,
    /// the process that sends the load
    Generator,
    /// the balancer
    Proxy,
}

/// One look at one source. What it does not tell is absent, never 0; shares are 0 to 1; what is named `_total` counts from
/// the source's own start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// sequences in the batch
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<f64>,
    /// sequences in the engine's queue
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    /// share of KV blocks in use
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_used_share: Option<f64>,
    /// sequences preempted
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptions_total: Option<f64>,
    /// prompt tokens computed
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_total: Option<f64>,
    /// tokens generated
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_tokens_total: Option<f64>,
    /// share of time in which the GPU ran any kernel (`DCGM_FI_DEV_GPU_UTIL`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_use_share: Option<f64>,
    /// GPU memory in use, bytes (`DCGM_FI_DEV_FB_USED`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_used_bytes: Option<f64>,
    /// GPU memory free, bytes (`DCGM_FI_DEV_FB_FREE`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_free_bytes: Option<f64>,
    /// share of time in which SMs had work (`DCGM_FI_PROF_SM_ACTIVE`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_active_share: Option<f64>,
    /// share of time in which GPU memory was read or written (`DCGM_FI_PROF_DRAM_ACTIVE`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_active_share: Option<f64>,
    /// bytes a second sent over NVLink (`DCGM_FI_PROF_NVLINK_TX_BYTES`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_sent_bytes_per_s: Option<f64>,
    /// CPU time of the process, seconds (`process_cpu_seconds_total`)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_total: Option<f64>,
    /// share of the CPU time it could have that is used: of a process, of one core; of a host, of all cores
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_use_share: Option<f64>,
    /// requests open
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_requests: Option<f64>,
}

/// A line of `monitor.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// seconds after the start of the load; negative before it
    pub at_s: f64,
    /// what was looked at
    pub source: Source,
    /// which instance it belongs to, by its name in the proxy's records; absent for what belongs to none
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// which GPU of it
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// what it told
    pub figures: Figures,
}
