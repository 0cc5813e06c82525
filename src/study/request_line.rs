//! A line of `requests.jsonl` back into what the client saw; written by [`crate::bench::request_lines`]. Pure.

use serde::Deserialize;

use super::point::PointRequest;
use crate::load::sample::{Failure, Sample};
use crate::measure::clock::Ns;
use crate::report::latency::{BUCKETS, Bucket};

#[derive(Deserialize)]
struct Line {
    metadata: Metadata,
    metrics: Metrics,
    error: Option<LineError>,
}

#[derive(Deserialize)]
struct Metadata {
    session_num: u32,
    x_request_id: String,
    request_start_ns: Option<Ns>,
    request_ack_ns: Option<Ns>,
    request_end_ns: Ns,
    benchmark_phase: String,
    planned_start_ns: Ns,
    counted: bool,
    length: String,
    planned_input_tokens: Option<u32>,
    planned_output_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Metric<T> {
    value: T,
}

#[derive(Deserialize)]
struct Metrics {
    time_to_first_token: Option<Metric<f64>>,
    time_per_output_token: Option<Metric<f64>>,
    inter_chunk_latency: Option<Metric<Vec<f64>>>,
    output_sequence_length: Option<Metric<u64>>,
    input_sequence_length: Option<Metric<u64>>,
}

#[derive(Deserialize)]
struct LineError {
    code: Option<u16>,
    #[serde(rename = "type")]
    kind: Failure,
}

/// Reads a line.
pub(super) fn parse(line: &str) -> Result<PointRequest, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let named = |bucket: &Bucket| bucket.name() == line.metadata.length;
    let Some(bucket) = BUCKETS.into_iter().find(named) else {
        return Err(format!(
            "length `{}` is none: short, medium or long",
            line.metadata.length
        ));
    };
    Ok(PointRequest {
        sample: sample(&line, bucket),
        warm_up: line.metadata.benchmark_phase == "warmup",
        counted: line.metadata.counted,
        id: line.metadata.x_request_id,
        bucket,
        served: None,
    })
}

fn sample(line: &Line, bucket: Bucket) -> Sample {
    let (metadata, metrics) = (&line.metadata, &line.metrics);
    let told = metrics.input_sequence_length.as_ref().map(|m| m.value);
    let gaps_us: Vec<u32> = metrics
        .inter_chunk_latency
        .as_ref()
        .map_or_else(Vec::new, |gaps| {
            gaps.value
                .iter()
                .map(|ms| (ms * 1e3).round() as u32)
                .collect()
        });
    let first_output_ns = metadata
        .request_start_ns
        .zip(metrics.time_to_first_token.as_ref())
        .map(|(issued_ns, ttft)| issued_ns + ns(ttft.value));
    let output_tokens = metrics.output_sequence_length.as_ref().map(|m| m.value);
    let decode_ns = decode_ns(metrics, &gaps_us, output_tokens);
    Sample {
        index: metadata.session_num,
        class: 0,
        planned_prompt_tokens: metadata
            .planned_input_tokens
            .or_else(|| u32::try_from(told?).ok())
            .unwrap_or(least_tokens(bucket)),
        planned_output_tokens: metadata.planned_output_tokens.unwrap_or_default(),
        planned_ns: metadata.planned_start_ns,
        issued_ns: metadata.request_start_ns,
        held_ns: 0,
        sent_ns: metadata.request_start_ns,
        head_ns: metadata.request_ack_ns,
        first_output_ns,
        last_output_ns: first_output_ns
            .map(|first_ns| (first_ns + decode_ns).min(metadata.request_end_ns)),
        end_ns: metadata.request_end_ns,
        status: match &line.error {
            Some(error) => error.code,
            None => Some(200),
        },
        prompt_tokens: told,
        output_tokens,
        output_chunks: first_output_ns.map_or(0, |_| gaps_us.len() as u64 + 1),
        gaps_us,
        failure: line.error.as_ref().map(|error| error.kind),
    }
}

/// First to last output: by TPOT, which is exact, else by the gaps.
fn decode_ns(metrics: &Metrics, gaps_us: &[u32], output_tokens: Option<u64>) -> u64 {
    let by_tpot = metrics.time_per_output_token.as_ref().zip(output_tokens);
    match by_tpot {
        Some((tpot, tokens)) => ns(tpot.value * tokens.saturating_sub(1) as f64),
        None => gaps_us.iter().map(|us| u64::from(*us) * 1000).sum(),
    }
}

/// Fewest tokens of a bucket: stands for a planned length that is not told, as a failed request's, and keeps it there.
fn least_tokens(bucket: Bucket) -> u32 {
    match bucket {
        Bucket::Short => 1,
        Bucket::Medium => Bucket::SHORT_MAX_TOKENS + 1,
        Bucket::Long => Bucket::MEDIUM_MAX_TOKENS + 1,
    }
}

fn ns(ms: f64) -> u64 {
    (ms * 1e6).round().max(0.0) as u64
}
