//! The record of a request: one JSON object a line.
//!
//! Times are milliseconds with three decimals. What was not measured is left out, never 0 or
//! null. `ttft` figures from the instance's side and `last_output_ms`, `end_ms` count from the
//! last byte of the request written to the instance; client figures from the request's first
//! byte. The fields and their meaning are in [`Record`]; `record_schema` gives them as a schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::figures::{chunk_gaps_ms, itl_ms};
use super::figures::Figures;
use super::outcome::Outcome;
use super::summary::{Answer, Choice, Exchange};

/// Version of the record's form; grows when a field changes its meaning or goes.
pub const RECORD_VERSION: u32 = 1;
/// Gaps written of one request at most.
const GAPS: usize = 4096;

/// Times before the engine worked and after, by stage; they add up to `outside_engine_ms`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    /// first to last byte of the request from the client
    pub client_send_ms: f64,
    /// in a lane's queue
    pub queue_ms: f64,
    /// in attempts that failed
    pub retry_ms: f64,
    /// the proxy's own work until an instance was chosen
    pub choose_ms: f64,
    /// getting a connection
    pub connect_ms: f64,
    /// writing the request to the instance
    pub upstream_send_ms: f64,
    /// the proxy's own work on the first output chunk
    pub relay_ms: f64,
    /// first output chunk held up by the client
    pub client_blocked_ms: f64,
}

/// An attempt that was followed by another one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptRecord {
    /// instance
    pub instance: String,
    /// why it was given up: the code of an error made by the proxy, or `busy` for a 429 or 503
    pub cause: String,
    /// status of its answer
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// when it was given up, from the request's first byte
    pub at_ms: f64,
}

/// What one choice did, where there is more than one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChoiceRecord {
    /// output chunks
    pub chunks: u32,
    /// first output chunk, from the request's last byte
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// last output chunk
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output_ms: Option<f64>,
    /// gaps between its output chunks, where the chunk log was kept
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_gap_ms: Option<Vec<f64>>,
}

macro_rules! record {
    ($($(#[$doc:meta])+ $name:ident: $kind:ty,)+) => {
        /// One ended request. Every field but the first few is left out where it was not measured.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Record {
            /// version of this form
            pub schema: u32,
            /// kept or made
            pub request_id: String,
            /// how it ended
            pub outcome: OutcomeName,
            /// wall time of the first byte, seconds since the Unix epoch
            pub start_s: f64,
            /// path asked for
            pub path: String,
            /// API spoken
            pub api: String,
            /// where stamps were taken: `socket` (HTTP/1.1) or `stream` (HTTP/2)
            pub stamp: String,
            /// attempts made; 0 if never sent
            pub attempts: u32,
            /// request body bytes from the client
            pub request_bytes: u64,
            /// answer body bytes to the client
            pub response_bytes: u64,
            $($(#[$doc])+ #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $name: Option<$kind>,)+
        }
    };
}

/// `outcome`, with a default for building.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct OutcomeName(pub Outcome);

impl Default for OutcomeName {
    fn default() -> Self {
        OutcomeName(Outcome::Rejected)
    }
}

record! {
    /// name of the API key the request came with
    key: String,
    /// pool
    pool: String,
    /// instance of the attempt that answered
    instance: String,
    /// experiment arm
    arm: String,
    /// lane
    lane: String,
    /// policy
    policy: String,
    /// model as named by the request
    model: String,
    /// status sent to the client
    status: u16,
    /// code of an error made by the proxy
    cause: String,
    /// attempts before this one, on other instances or on a connection that was closed; left out if there was none
    failed_attempts: Vec<AttemptRecord>,
    /// code of an error the engine reported
    error_code: i64,
    /// `error.type` the engine reported
    error_kind: String,
    /// the answer was an event stream
    streamed: bool,
    /// no error, and the end marker was seen or every choice finished
    complete: bool,
    /// `[DONE]` or its like was seen
    done_marker: bool,
    /// the body ended as its framing says
    transport_clean: bool,
    /// the answer could not be read
    unmeasured: bool,
    /// events with data, end marker included
    events: u64,
    /// comment lines
    comments: u64,
    /// events that carry output
    content_chunks: u64,
    /// chunks with present but empty content
    empty_chunks: u64,
    /// index of the first output event
    first_output_event: u64,
    /// index of the last output event
    last_output_event: u64,
    /// finish reasons by choice, `""` where none was seen
    finish: Vec<String>,
    /// prompt tokens by `usage`
    prompt_tokens: u64,
    /// prompt tokens from the engine's cache by `usage`
    cached_tokens: u64,
    /// output tokens by `usage`, over all choices
    output_tokens: u64,
    /// output chunks; not tokens
    output_chunks: u64,
    /// output tokens estimated from chunks, where `usage` gave none
    output_tokens_est: f64,
    /// first byte of the request to the first output chunk at the client's socket
    client_ttft_ms: f64,
    /// last byte of the request at the instance to the arrival of the first output chunk, as `measure.arrival` stamps it
    server_ttft_ms: f64,
    /// the same to the first output that is not reasoning
    ttft_answer_ms: f64,
    /// last output chunk
    last_output_ms: f64,
    /// last byte of the answer
    end_ms: f64,
    /// first byte of the request to the last byte of the answer at the client's socket
    e2e_ms: f64,
    /// (last output - first) / (output tokens - 1); one choice
    tpot_ms: f64,
    /// the variant (E2E - client TTFT) / output tokens
    tpot_e2e_ms: f64,
    /// mean gap between output chunks of one choice, over all choices
    chunk_gap_mean_ms: f64,
    /// greatest such gap
    chunk_gap_max_ms: f64,
    /// gaps between output chunks, one choice, where the chunk log was kept
    chunk_gap_ms: Vec<f64>,
    /// time per output token after the first, where the tokens of every chunk are known
    itl_ms: Vec<f64>,
    /// the chunk log ended before the answer did, or more gaps than are written
    chunks_truncated: bool,
    /// each choice, where there is more than one
    choices: Vec<ChoiceRecord>,
    /// client TTFT - server TTFT
    outside_engine_ms: f64,
    /// its parts
    stages: Stages,
    /// choose + relay
    proxy_own_ms: f64,
    /// of `relay_ms`: the first output chunk in the kernel until it was read; only with `measure.arrival = "kernel"`
    read_wait_ms: f64,
    /// time in a lane's queue
    queue_ms: f64,
    /// writes of the answer held up by the client, in all
    client_blocked_ms: f64,
    /// outstanding requests on the instance at choice, this one not counted
    outstanding_requests: u32,
    /// outstanding tokens on the instance at choice, this one not counted
    outstanding_tokens: u64,
    /// mean outstanding requests on the instance meanwhile, this one counted
    mean_batch: f64,
    /// prompt tokens estimated for routing
    prompt_tokens_est: u32,
    /// output tokens predicted for routing
    output_tokens_predicted: u32,
    /// output limit in the request
    max_output_tokens: u32,
    /// upstream reads with body bytes
    reads: u64,
}

/// To three decimals: microseconds.
fn round_ms(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

fn some_ms(ms: Option<f64>) -> Option<f64> {
    ms.map(round_ms)
}

fn ms(ns: u64) -> f64 {
    round_ms(ns as f64 / 1e6)
}

fn stages(figures: &Figures) -> Option<Stages> {
    let parts = figures.outside_engine?;
    Some(Stages {
        client_send_ms: ms(parts.client_send_ns),
        queue_ms: ms(parts.queue_ns),
        retry_ms: ms(parts.retry_ns),
        choose_ms: ms(parts.choose_ns),
        connect_ms: ms(parts.connect_ns),
        upstream_send_ms: ms(parts.upstream_send_ns),
        relay_ms: ms(parts.relay_ns),
        client_blocked_ms: ms(parts.client_blocked_ns),
    })
}

fn failed_attempts(exchange: &Exchange) -> Option<Vec<AttemptRecord>> {
    let first_ns = exchange.stamps.request_first_ns.unwrap_or_default();
    let attempts = exchange
        .failed_attempts
        .iter()
        .map(|attempt| AttemptRecord {
            instance: attempt.instance.to_string(),
            cause: attempt.cause.to_owned(),
            status: attempt.status,
            at_ms: ms(attempt.at_ns.saturating_sub(first_ns)),
        });
    Some(attempts.collect()).filter(|attempts: &Vec<_>| !attempts.is_empty())
}

fn bounded(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().take(GAPS).map(round_ms).collect()
}

fn name(name: &Option<std::sync::Arc<str>>) -> Option<String> {
    name.as_ref().map(|name| name.to_string())
}

impl Record {
    /// The record of an ended request.
    pub fn of(exchange: &Exchange) -> Record {
        let figures = Figures::of(exchange);
        let mut record = Record::of_route(exchange);
        record.read_figures(&figures);
        if let Some(answer) = &exchange.answer {
            record.read_answer(answer);
            record.read_choices(exchange, answer);
        }
        record
    }

    fn of_route(exchange: &Exchange) -> Record {
        let shape = exchange.shape.as_ref();
        let api = serde_json::to_value(exchange.api).ok();
        Record {
            schema: RECORD_VERSION,
            request_id: exchange.request_id.clone(),
            outcome: OutcomeName(exchange.outcome),
            start_s: (exchange.wall_ns / 1000) as f64 / 1e6,
            path: exchange.path.clone(),
            api: api
                .and_then(|api| api.as_str().map(str::to_owned))
                .unwrap_or_default(),
            stamp: exchange.stamp.to_owned(),
            attempts: exchange.attempts,
            request_bytes: exchange.request_bytes,
            response_bytes: exchange.response_bytes,
            key: name(&exchange.key),
            pool: name(&exchange.pool),
            instance: name(&exchange.instance),
            arm: name(&exchange.arm),
            lane: name(&exchange.lane),
            policy: name(&exchange.policy),
            model: exchange.model.clone(),
            status: exchange.status,
            cause: exchange.cause.map(str::to_owned),
            failed_attempts: failed_attempts(exchange),
            outstanding_requests: exchange.outstanding_requests,
            outstanding_tokens: exchange.outstanding_tokens,
            mean_batch: some_ms(exchange.mean_batch),
            prompt_tokens_est: shape.map(|shape| shape.prompt_tokens),
            output_tokens_predicted: shape.map(|shape| shape.predicted_output_tokens),
            max_output_tokens: shape.and_then(|shape| shape.max_output_tokens),
            client_blocked_ms: exchange
                .answer
                .as_ref()
                .map(|_| ms(exchange.stamps.client_blocked_ns)),
            ..Record::default()
        }
    }

    fn read_figures(&mut self, figures: &Figures) {
        self.client_ttft_ms = some_ms(figures.client_ttft_ms);
        self.server_ttft_ms = some_ms(figures.server_ttft_ms);
        self.ttft_answer_ms = some_ms(figures.ttft_answer_ms);
        self.last_output_ms = some_ms(figures.last_output_ms);
        self.end_ms = some_ms(figures.end_ms);
        self.e2e_ms = some_ms(figures.e2e_ms);
        self.tpot_ms = some_ms(figures.tpot_ms);
        self.tpot_e2e_ms = some_ms(figures.tpot_e2e_ms);
        self.outside_engine_ms = some_ms(figures.outside_engine_ms);
        self.stages = stages(figures);
        self.proxy_own_ms = some_ms(figures.proxy_own_ms);
        self.read_wait_ms = some_ms(figures.read_wait_ms);
        self.queue_ms = some_ms(figures.queue_ms);
        self.prompt_tokens = figures.prompt_tokens;
        self.output_tokens = figures.output_tokens;
        self.output_chunks = figures.output_chunks;
        self.output_tokens_est = some_ms(figures.output_tokens_est);
    }

    fn read_answer(&mut self, answer: &Answer) {
        self.streamed = Some(answer.streamed);
        self.transport_clean = Some(answer.transport_clean);
        self.reads = Some(answer.reads);
        self.cached_tokens = answer.usage.cached_tokens;
        self.error_code = answer.error.as_ref().and_then(|error| error.code);
        self.error_kind = answer.error.as_ref().and_then(|error| error.kind.clone());
        if answer.unmeasured {
            self.unmeasured = Some(true);
            return;
        }
        self.complete = Some(answer.complete);
        self.done_marker = Some(answer.done_marker);
        self.events = Some(answer.events);
        self.comments = Some(answer.comments);
        self.content_chunks = Some(answer.content_chunks);
        self.empty_chunks = Some(answer.empty_chunks);
        self.chunk_gap_mean_ms = some_ms(answer.gaps.mean_ms());
        self.chunk_gap_max_ms = some_ms(answer.gaps.greatest_ms());
        self.first_output_event = answer.first_output_event;
        self.last_output_event = answer.last_output_event;
        let finish = |choice: &Choice| choice.finish.clone().unwrap_or_default();
        let seen = !answer.choices.is_empty();
        self.finish = seen.then(|| answer.choices.iter().map(finish).collect());
    }

    fn read_choices(&mut self, exchange: &Exchange, answer: &Answer) {
        let log = exchange.chunks.as_ref();
        let gaps = |index| log.map(|log| chunk_gaps_ms(log, index));
        let truncated = log.is_some_and(|log| log.truncated());
        if answer.choices.len() <= 1 {
            let gaps = gaps(0);
            let over = gaps.as_ref().is_some_and(|gaps| gaps.len() > GAPS);
            self.chunks_truncated = (over || truncated).then_some(true);
            self.chunk_gap_ms = gaps.filter(|gaps| !gaps.is_empty()).map(bounded);
            self.itl_ms = log
                .and_then(itl_ms)
                .filter(|itl| !itl.is_empty())
                .map(bounded);
            return;
        }
        let since = |ns: Option<u64>| Some(ms(ns?.checked_sub(exchange.stamps.sent_ns?)?));
        self.chunks_truncated = truncated.then_some(true);
        let each = answer
            .choices
            .iter()
            .zip(0u32..)
            .map(|(choice, index)| ChoiceRecord {
                chunks: choice.chunks,
                ttft_ms: since(choice.first_ns),
                last_output_ms: since(choice.last_ns),
                chunk_gap_ms: gaps(index).filter(|gaps| !gaps.is_empty()).map(bounded),
            });
        self.choices = Some(each.collect());
    }
}

/// The record's JSON schema.
pub fn record_schema() -> serde_json::Value {
    schemars::schema_for!(Record).to_value()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::figures::tests::exchange;
    use super::*;

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let record = Record::of(&exchange("p", "gpu-1"));
        let line = serde_json::to_string(&record).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["outcome"], "ok");
        assert_eq!(value["server_ttft_ms"], 80.0);
        assert_eq!(value["finish"], serde_json::json!(["stop"]));
        assert_eq!(value["start_s"], 1_700_000_000.0);
        assert_eq!(value["api"], "chat");
        let stages = value["stages"].as_object().unwrap().values();
        assert_eq!(stages.map(|part| part.as_f64().unwrap()).sum::<f64>(), 30.0);
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut shed = exchange("p", "i");
        shed.outcome = Outcome::Shed;
        shed.answer = None;
        shed.stamps = Default::default();
        let value = serde_json::to_value(Record::of(&shed)).unwrap();
        for key in [
            "client_ttft_ms",
            "events",
            "complete",
            "output_tokens",
            "e2e_ms",
            "queue_ms",
        ] {
            assert!(value.get(key).is_none(), "{key} in {value}");
        }
        assert!(
            !value
                .as_object()
                .unwrap()
                .values()
                .any(serde_json::Value::is_null)
        );
    }

    #[test]
    fn the_schema_documents_every_key_of_a_record() {
        let schema = record_schema();
        let properties = schema["properties"].as_object().unwrap();
        let record = serde_json::to_value(Record::of(&exchange("p", "i"))).unwrap();
        for key in record.as_object().unwrap().keys() {
            assert!(properties.contains_key(key), "{key} has no schema");
        }
        for (key, property) in properties {
            assert!(
                property.get("description").is_some(),
                "{key} has no description"
            );
        }
        assert_eq!(schema["additionalProperties"], false);
    }

    #[test]
    fn times_have_microseconds() {
        let mut request = exchange("p", "i");
        request.stamps.end_ns = Some(1_150_000_000 + 1_234);
        assert_eq!(Record::of(&request).end_ms, Some(125.001));
    }
}
