//! What is known of one request once it has ended: the meter's answer plus the proxy's stages.
//!
//! `Answer` comes from the meter (what the engine sent and when); `Exchange` adds who, where and
//! the stamps of the proxy's own stages. Records, histograms, logs and the calibration all read these.

use serde::{Deserialize, Serialize};

use std::sync::Arc;

use super::clock::Ns;
use super::gap_figures::GapFigures;
use super::outcome::Outcome;
use evenkeel_policies::shape::{Api, RequestShape};

/// Tokens as the engine reported them in `usage`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// prompt tokens
    pub prompt_tokens: Option<u64>,
    /// output tokens over all choices
    pub output_tokens: Option<u64>,
    /// prompt tokens the engine took from its prefix cache
    pub cached_tokens: Option<u64>,
}

/// An error the engine reported, in a status or inside the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineError {
    /// numeric code where one was given (`error.code`, else the status)
    pub code: Option<i64>,
    /// `error.type`, bounded to 64 bytes
    pub kind: Option<String>,
}

/// What one choice of the answer did. Stamps are arrivals of the read that completed the event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choice {
    /// output chunks of this choice
    pub chunks: u32,
    /// first output chunk
    pub first_ns: Option<Ns>,
    /// last output chunk
    pub last_ns: Option<Ns>,
    /// finish reason; `None` if none was seen
    pub finish: Option<String>,
    /// an event named this choice (a lower index may be listed only to keep the order)
    pub seen: bool,
}

/// What the meter saw of an answer. `None` means absent, never 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// the body was an event stream
    pub streamed: bool,
    /// events with non-empty data, `[DONE]` included
    pub events: u64,
    /// comment lines
    pub comments: u64,
    /// output chunks over all choices
    pub content_chunks: u64,
    /// chunks whose content was present but empty, before or between output
    pub empty_chunks: u64,
    /// index of the first output event
    pub first_output_event: Option<u64>,
    /// index of the last output event
    pub last_output_event: Option<u64>,
    /// index of the first output event that is not reasoning
    pub first_answer_event: Option<u64>,
    /// arrival of the first output event
    pub first_output_ns: Option<Ns>,
    /// arrival of the first output event that is not reasoning
    pub first_answer_ns: Option<Ns>,
    /// arrival of the last output event
    pub last_output_ns: Option<Ns>,
    /// choices by index, as far as seen (bounded)
    pub choices: Vec<Choice>,
    /// `usage`, the last one seen
    pub usage: Usage,
    /// an error the engine reported
    pub error: Option<EngineError>,
    /// `[DONE]`, `response.completed|incomplete` or `message_stop` was seen
    pub done_marker: bool,
    /// no error, and end marker seen or every choice finished
    pub complete: bool,
    /// body ended as its framing says
    pub transport_clean: bool,
    /// the body could not be read (unknown coding, a line past the cap)
    pub unmeasured: bool,
    /// a finish reason of `abort` was seen
    pub aborted: bool,
    /// upstream reads that carried body bytes
    pub reads: u64,
    /// body bytes received
    pub body_bytes: u64,
    /// status of the answer
    pub status: Option<u16>,
    /// events whose data was not the JSON expected
    pub unread_events: u64,
    /// more choices than are told apart; the rest are counted under the last
    pub choices_folded: bool,
    /// reads that completed at least one output chunk
    pub output_reads: u64,
    /// output chunks whose tokens are known, by running usage
    pub counted_chunks: u64,
    /// output chunks whose tokens are not known
    pub uncounted_chunks: u64,
    /// gaps between output chunks of one choice, as they arrived
    pub gaps: GapFigures,
    /// the same, as the client's socket took them
    pub client_gaps: GapFigures,
    /// gaps per token; ITL only where `itl_known()`
    pub itl: GapFigures,
}

/// Stamps of the proxy's own stages. `None`: never got there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamps {
    /// first byte of the request read from the client
    pub request_first_ns: Option<Ns>,
    /// last byte of the request read from the client
    pub request_last_ns: Option<Ns>,
    /// handed to the scheduler
    pub arrive_ns: Option<Ns>,
    /// an instance was chosen (for the attempt that answered)
    pub chosen_ns: Option<Ns>,
    /// a connection was ready for the attempt that answered
    pub connected_ns: Option<Ns>,
    /// last byte of the request written to the instance
    pub sent_ns: Option<Ns>,
    /// response head read from the instance
    pub head_ns: Option<Ns>,
    /// the first output chunk was read from the instance; only where the kernel stamped its arrival before
    pub first_output_read_ns: Option<Ns>,
    /// last byte of the answer read from the instance
    pub end_ns: Option<Ns>,
    /// bytes of the first output chunk taken by the client's socket
    pub client_first_output_ns: Option<Ns>,
    /// last byte of the answer taken by the client's socket
    pub client_end_ns: Option<Ns>,
    /// time before the answering attempt spent in attempts that failed
    pub retry_ns: u64,
    /// time in a lane's queue
    pub queue_ns: u64,
    /// time a write to the client could not go on before the first output chunk was taken
    pub client_blocked_first_ns: u64,
    /// the same over the whole answer
    pub client_blocked_ns: u64,
}

/// An attempt that was followed by another one.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedAttempt {
    /// instance
    pub instance: Arc<str>,
    /// why it was given up, as the code of an error of ours; `busy` for a 429 or 503, `stale_connection` if it
    /// went to the same instance again because a kept connection was closed
    pub cause: &'static str,
    /// status of its answer, if there was one
    pub status: Option<u16>,
    /// when it was given up
    pub at_ns: Ns,
}

/// One request, ended.
#[derive(Debug)]
pub struct Exchange {
    /// `x-request-id`, kept or made
    pub request_id: String,
    /// wall time of the request's first byte, nanoseconds since the Unix epoch
    pub wall_ns: u64,
    /// pool, if routed
    pub pool: Option<std::sync::Arc<str>>,
    /// instance of the attempt that answered
    pub instance: Option<std::sync::Arc<str>>,
    /// experiment arm
    pub arm: Option<std::sync::Arc<str>>,
    /// lane
    pub lane: Option<std::sync::Arc<str>>,
    /// policy
    pub policy: Option<std::sync::Arc<str>>,
    /// model as the request named it, bounded
    pub model: Option<String>,
    /// path, bounded
    pub path: String,
    /// API
    pub api: Api,
    /// what routing knew
    pub shape: Option<RequestShape>,
    /// status sent to the client
    pub status: Option<u16>,
    /// how it ended
    pub outcome: Outcome,
    /// name of the API key it came with
    pub key: Option<std::sync::Arc<str>>,
    /// stable code of an error we made ourselves (`queue_full`, `connect_failed`, ...)
    pub cause: Option<&'static str>,
    /// attempts made (0 if never sent)
    pub attempts: u32,
    /// outstanding requests on the instance at choice, this one not counted
    pub outstanding_requests: Option<u32>,
    /// outstanding tokens on the instance at choice, this one not counted
    pub outstanding_tokens: Option<u64>,
    /// attempts before the one that answered, each on another instance
    pub failed_attempts: Vec<FailedAttempt>,
    /// how long the answer asked to be left alone (429 and 503)
    pub retry_after: Option<std::time::Duration>,
    /// mean number of requests outstanding on the instance while it held this one, this one counted
    pub mean_batch: Option<f64>,
    /// output tokens estimated from output chunks, where `usage` gave none
    pub output_tokens_est: Option<f64>,
    /// body bytes taken from the client
    pub request_bytes: u64,
    /// answer body bytes handed to the client
    pub response_bytes: u64,
    /// `"socket"` (HTTP/1.1) or `"stream"` (HTTP/2)
    pub stamp: &'static str,
    /// stages
    pub stamps: Stamps,
    /// what the meter saw; `None` if no answer came
    pub answer: Option<Answer>,
    /// the chunk log, where kept
    pub chunks: Option<super::chunk_log::ChunkLog>,
}

impl Default for Exchange {
    /// Nothing known yet: dropped like this, the client left.
    fn default() -> Self {
        Self {
            request_id: String::new(),
            wall_ns: 0,
            pool: None,
            instance: None,
            arm: None,
            lane: None,
            policy: None,
            model: None,
            path: String::new(),
            api: Api::Other,
            shape: None,
            status: None,
            outcome: Outcome::ClientCancelled,
            key: None,
            cause: None,
            attempts: 0,
            outstanding_requests: None,
            outstanding_tokens: None,
            mean_batch: None,
            failed_attempts: Vec::new(),
            retry_after: None,
            output_tokens_est: None,
            request_bytes: 0,
            response_bytes: 0,
            stamp: "socket",
            stamps: Stamps::default(),
            answer: None,
            chunks: None,
        }
    }
}
