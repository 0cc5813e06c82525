//! What the client saw of one request: its stamps, its lengths and how it failed, if it did.

use serde::{Deserialize, Serialize};

use super::workload::PlannedRequest;
use crate::measure::clock::{Ns, ms_between};

/// Why a request failed, by the stage at which it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// no connection
    Connect,
    /// the request could not be written, or the connection went before any byte of an answer
    Send,
    /// the answer took longer than the limit
    Timeout,
    /// the answer is not HTTP/1.1 that can be read
    BadResponse,
    /// refused with 429 or 503
    Refused,
    /// any other status that is not 2xx
    Status,
    /// an error inside an answer of status 200
    ErrorEvent,
    /// the answer ended unfinished: no end marker and no finish reason, or short of its framing
    Cut,
}

impl Failure {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Connect => "connect",
            Failure::Send => "send",
            Failure::Timeout => "timeout",
            Failure::BadResponse => "bad_response",
            Failure::Refused => "refused",
            Failure::Status => "status",
            Failure::ErrorEvent => "error_event",
            Failure::Cut => "cut",
        }
    }
}

/// One request as its client saw it. Stamps are on [`crate::measure::clock`]; `None` is "did not happen".
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// position in the plan
    pub index: u32,
    /// class in the workload
    pub class: u16,
    /// prompt tokens the plan meant it to have
    pub planned_prompt_tokens: u32,
    /// output tokens the plan asked for
    pub planned_output_tokens: u32,
    /// when the schedule wanted it sent
    pub planned_ns: Ns,
    /// when the client took it up: from here on it is the server's turn, connecting included
    pub issued_ns: Option<Ns>,
    /// how long it was kept back because too many requests were unanswered
    pub held_ns: u64,
    /// just before the first byte was written
    pub sent_ns: Option<Ns>,
    /// head of the answer
    pub head_ns: Option<Ns>,
    /// arrival of the first output chunk
    pub first_output_ns: Option<Ns>,
    /// arrival of the last output chunk
    pub last_output_ns: Option<Ns>,
    /// last byte of the answer, or the failure
    pub end_ns: Ns,
    /// status of the answer
    pub status: Option<u16>,
    /// prompt tokens as `usage` gave them
    pub prompt_tokens: Option<u64>,
    /// output tokens as `usage` gave them
    pub output_tokens: Option<u64>,
    /// output chunks that arrived
    pub output_chunks: u64,
    /// times between output chunks, µs; empty unless [`super::client::ClientOptions::keep_gaps`]
    pub gaps_us: Vec<u32>,
    /// how it failed
    pub failure: Option<Failure>,
}

impl Sample {
    /// A request of a plan whose turn has come at `planned_ns`.
    pub fn planned(request: &PlannedRequest, planned_ns: Ns) -> Sample {
        Sample {
            index: request.index,
            class: request.class,
            planned_prompt_tokens: request.prompt_tokens,
            planned_output_tokens: request.output_tokens,
            planned_ns,
            issued_ns: None,
            held_ns: 0,
            sent_ns: None,
            head_ns: None,
            first_output_ns: None,
            last_output_ns: None,
            end_ns: planned_ns,
            status: None,
            prompt_tokens: None,
            output_tokens: None,
            output_chunks: 0,
            gaps_us: Vec::new(),
            failure: None,
        }
    }

    /// Sent → first output chunk, milliseconds.
    pub fn ttft_ms(&self) -> Option<f64> {
        Some(ms_between(self.sent_ns?, self.first_output_ns?))
    }

    /// Planned → first output chunk, milliseconds: what a user waits even where the generator was late.
    pub fn ttft_from_planned_ms(&self) -> Option<f64> {
        Some(ms_between(self.planned_ns, self.first_output_ns?))
    }

    /// Sent → last byte, milliseconds, of a request that did not fail.
    pub fn e2e_ms(&self) -> Option<f64> {
        if self.failure.is_some() {
            return None;
        }
        Some(ms_between(self.sent_ns?, self.end_ns))
    }

    /// Planned → issued, milliseconds.
    pub fn lag_ms(&self) -> Option<f64> {
        Some(ms_between(self.planned_ns, self.issued_ns?))
    }

    /// The part of the lag that was not spent waiting for answers: the generator's own.
    pub fn own_lag_ms(&self) -> Option<f64> {
        Some((self.lag_ms()? - self.held_ns as f64 / 1e6).max(0.0))
    }
}
