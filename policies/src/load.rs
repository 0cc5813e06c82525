//! What is known of an instance: own counts, the engine's gauges, state.

use serde::{Deserialize, Serialize};

/// Gauges an engine publishes, as last read.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EngineGauges {
    /// sequences running
    pub running: u32,
    /// sequences waiting
    pub waiting: u32,
    /// share of KV blocks in use, 0 to 1
    pub kv_usage: f64,
    /// when they were read
    pub at_ns: u64,
}

/// Load of an instance. Own counts are the truth for own traffic.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InstanceLoad {
    /// requests open through us
    pub requests: u32,
    /// uncached prompt tokens of requests whose first output was not seen yet
    pub prefill_tokens: u64,
    /// predicted output tokens left
    pub decode_tokens: u64,
    /// share of work; 2.0 gets twice as much as 1.0
    pub weight: f64,
    /// the engine's gauges, if they were read
    pub gauges: Option<EngineGauges>,
}

impl InstanceLoad {
    pub(crate) fn new(weight: f64) -> Self {
        Self {
            requests: 0,
            prefill_tokens: 0,
            decode_tokens: 0,
            weight,
            gauges: None,
        }
    }

    /// Prompt tokens to prefill plus predicted output tokens left.
    pub fn outstanding_tokens(&self) -> u64 {
        self.prefill_tokens + self.decode_tokens
    }
}

/// Whether an instance takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    /// takes requests
    Up,
    /// takes one request, to see whether it answers; down from then on until told otherwise
    Probing,
    /// ends what it has, takes nothing new
    Draining,
    /// ejected or unreachable: takes nothing new
    Down,
    /// removed from the pool; forgotten once its last lease ends
    Leaving,
}

impl InstanceState {
    /// Whether a request may be sent there.
    pub fn takes_requests(self) -> bool {
        matches!(self, InstanceState::Up | InstanceState::Probing)
    }
}

/// Share of the others' mean number of open requests that an instance may have when its ramp begins.
pub const RAMP_START: f64 = 0.1;

/// A slow start: an instance that is new or back takes no more than a growing share of what others have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ramp {
    pub since_ns: u64,
    pub length_ns: u64,
}

impl Ramp {
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.since_ns.saturating_add(self.length_ns)
    }

    /// Requests it may have open, where others have `mean`: at least 1.
    pub fn most_requests(&self, now_ns: u64, mean: f64) -> u32 {
        let past = now_ns.saturating_sub(self.since_ns) as f64 / self.length_ns.max(1) as f64;
        let share = RAMP_START + (1.0 - RAMP_START) * past.min(1.0);
        ((share * mean) as u32).max(1)
    }
}
