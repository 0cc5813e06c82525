//! One line of JSON a request, shaped as AIPerf's `profile_export.jsonl`.
//!
//! Their names for our figures: `time_to_first_token` is TTFT, `request_latency` E2E, and
//! `inter_token_latency` the variant (E2E − TTFT) / (N − 1). Stamps are wall time in nanoseconds.

use std::io::Write;

use serde_json::{Map, Value, json};

use super::BenchError;
use super::result_file::Told;
use crate::load::sample::Sample;
use crate::measure::clock::Ns;
use crate::report::latency::{Bucket, Figure, output_tokens};
use crate::report::load_summary::failure_name;
use crate::report::window::entered_ns;

/// Writes a line for every request that ended, those that do not count too.
pub fn write(told: &Told<'_>, out: &mut dyn Write) -> Result<(), BenchError> {
    for sample in &told.run.samples {
        serde_json::to_writer(&mut *out, &line(told, sample))?;
        out.write_all(b"\n").map_err(serde_json::Error::io)?;
    }
    Ok(())
}

fn line(told: &Told<'_>, sample: &Sample) -> Value {
    let wall = |at_ns: Ns| told.started_wall_ns + at_ns.saturating_sub(told.run.started_ns);
    let kept = told
        .summary
        .window
        .is_some_and(|window| window.keeps(sample));
    let warm_up = entered_ns(sample) < told.run.started_ns + told.settings.rule.warm_up_ns;
    json!({
        "metadata": {
            "session_num": sample.index,
            "x_request_id": told.settings.form.request_id(sample.index),
            "request_start_ns": sample.issued_ns.map(wall),
            "request_ack_ns": sample.head_ns.map(wall),
            "request_end_ns": wall(sample.end_ns),
            "worker_id": "evenkeel",
            "benchmark_phase": if warm_up { "warmup" } else { "profiling" },
            "was_cancelled": false,
            "planned_start_ns": wall(sample.planned_ns),
            "counted": kept,
            "length": Bucket::of(sample.planned_prompt_tokens).name(),
            "planned_input_tokens": sample.planned_prompt_tokens,
            "planned_output_tokens": sample.planned_output_tokens,
        },
        "metrics": metrics(sample),
        "error": sample.failure.map(|failure| json!({
            "code": sample.status,
            "type": failure.name(),
            "message": failure_name(failure, sample.status),
        })),
    })
}

fn metrics(sample: &Sample) -> Map<String, Value> {
    let mut metrics = Map::new();
    let mut put = |tag: &str, value: Option<Value>, unit: &str| {
        if let Some(value) = value {
            metrics.insert(tag.to_owned(), json!({"value": value, "unit": unit}));
        }
    };
    let figure = |figure: Figure| figure.of(sample).map(Value::from);
    put("time_to_first_token", figure(Figure::Ttft), "ms");
    put(
        "time_to_first_token_from_planned",
        figure(Figure::TtftFromPlanned),
        "ms",
    );
    put("request_latency", figure(Figure::E2el), "ms");
    put(
        "request_latency_from_planned",
        figure(Figure::E2elFromPlanned),
        "ms",
    );
    put("inter_token_latency", figure(Figure::TpotOfE2e), "ms");
    put("time_per_output_token", figure(Figure::Tpot), "ms");
    let complete = sample.failure.is_none();
    let gaps = || {
        sample
            .gaps_us
            .iter()
            .map(|us| f64::from(*us) / 1e3)
            .collect::<Vec<f64>>()
    };
    let has_gaps = complete && !sample.gaps_us.is_empty();
    put("inter_chunk_latency", has_gaps.then(|| json!(gaps())), "ms");
    let tokens = output_tokens(sample).filter(|_| complete);
    put("output_sequence_length", tokens.map(Value::from), "tokens");
    put(
        "input_sequence_length",
        sample.prompt_tokens.map(Value::from),
        "tokens",
    );
    put("schedule_lag", sample.lag_ms().map(Value::from), "ms");
    metrics
}
