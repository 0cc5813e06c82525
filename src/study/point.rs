//! A finished point in memory: what was set, every request from both sides, what the monitor saw. Pure.
//!
//! Stamps are wall time, nanoseconds after 1970, so that both sides and the monitor lie on one axis.

use super::PointFile;
use super::monitor::Reading;
use super::problem::Problem;
use crate::load::sample::Sample;
use crate::measure::clock::Ns;
use crate::measure::outcome::Outcome;
use crate::measure::record::{Record, Stages};
use crate::report::generator::Generator;
use crate::report::latency::Bucket;
use crate::report::window::Window;

/// A point that was run to its end.
#[derive(Debug, Clone)]
pub struct Point {
    /// what was set
    pub file: PointFile,
    /// the part that counts; `None` if nothing was issued after the warm-up
    pub window: Option<Window>,
    /// what the generator cost and how it kept up; absent where the result file is
    pub generator: Option<Generator>,
    /// its lengths are those that Evenkeel assumes where nobody says others; absent where the result file is
    pub lengths_assumed: Option<bool>,
    /// every request of the load, in the order of the plan
    pub requests: Vec<PointRequest>,
    /// what the balancer recorded of requests that are not the load's: the batch beside it, or somebody else's
    pub others: Vec<Served>,
    /// what was seen of engines, GPUs and hosts
    pub monitor: Vec<Reading>,
    /// files that are not there, lines that could not be read
    pub problems: Vec<Problem>,
}

impl Point {
    /// Requests that count.
    pub fn counted(&self) -> impl Iterator<Item = &PointRequest> {
        self.requests.iter().filter(|request| request.counted)
    }

    /// Seconds on the axis of the monitor.
    pub fn at_s(&self, at_ns: Ns) -> f64 {
        (at_ns as f64 - self.file.started_unix_ns as f64) / 1e9
    }
}

/// A request of the load.
#[derive(Debug, Clone, PartialEq)]
pub struct PointRequest {
    /// `x-request-id`
    pub id: String,
    /// what the client saw: stamps, tokens, failure. Its figures are [`crate::report::latency::Figure::of`]
    pub sample: Sample,
    /// by its planned prompt
    pub bucket: Bucket,
    /// it is in the figures
    pub counted: bool,
    /// it was issued in the warm-up
    pub warm_up: bool,
    /// what the balancer saw; absent without a record of this id
    pub served: Option<Served>,
}

/// What the balancer recorded of a request, as far as reports need it.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// instance of the attempt that answered
    pub instance: Option<String>,
    /// how it ended
    pub outcome: Outcome,
    /// first byte of the request
    pub start_ns: Ns,
    /// attempts made; 0 if never sent
    pub attempts: u32,
    /// TTFT at the balancer's client, ms
    pub client_ttft_ms: Option<f64>,
    /// TTFT at the instance, ms
    pub server_ttft_ms: Option<f64>,
    /// client TTFT less server TTFT, ms
    pub outside_engine_ms: Option<f64>,
    /// its parts
    pub stages: Option<Stages>,
    /// first to last byte, ms
    pub e2e_ms: Option<f64>,
    /// prompt tokens by `usage`, else as estimated for routing
    pub prompt_tokens: Option<u64>,
    /// prompt tokens found in the engine's cache
    pub cached_tokens: Option<u64>,
    /// output tokens by `usage`
    pub output_tokens: Option<u64>,
    /// mean requests open on the instance meanwhile, this one counted
    pub mean_batch: Option<f64>,
}

impl Served {
    /// The part of a record that reports need.
    pub fn of(record: Record) -> Served {
        let estimated = record.prompt_tokens_est.map(u64::from);
        Served {
            instance: record.instance,
            outcome: record.outcome.0,
            start_ns: (record.start_s * 1e9).round().max(0.0) as Ns,
            attempts: record.attempts,
            client_ttft_ms: record.client_ttft_ms,
            server_ttft_ms: record.server_ttft_ms,
            outside_engine_ms: record.outside_engine_ms,
            stages: record.stages,
            e2e_ms: record.e2e_ms,
            prompt_tokens: record.prompt_tokens.or(estimated),
            cached_tokens: record.cached_tokens,
            output_tokens: record.output_tokens,
            mean_batch: record.mean_batch,
        }
    }
}
