//! The result of a run as JSON, with the keys of `vllm bench serve`, so that what reads those reads it.
//!
//! What vLLM has no word for is under `evenkeel`. A figure that was not measured is null; vLLM writes 0.

use serde_json::{Map, Value, json};

use super::options::BenchArgs;
use super::plan::Extent;
use super::replay::{Replaying, Sent};
use super::settings::{Settings, key_value};
use super::{BenchError, opening};
use crate::load::runner::RunResult;
use crate::load::sample::Sample;
use crate::measure::utc::utc_now;
use crate::report::distribution::Distribution;
use crate::report::latency::{FIGURES, Figure, output_tokens};
use crate::report::load_summary::{LoadSummary, failure_name};

/// Figures that vLLM's file has at its top level.
const VLLM_FIGURES: [Figure; 6] = [
    Figure::Ttft,
    Figure::Tpot,
    Figure::Itl,
    Figure::E2el,
    Figure::ClientQueueTime,
    Figure::E2elFromPlanned,
];

/// A run and all that is known of it.
pub struct Told<'a> {
    /// the options
    pub args: &'a BenchArgs,
    /// what they came to
    pub settings: &'a Settings,
    /// what the run saw
    pub run: &'a RunResult,
    /// in figures
    pub summary: &'a LoadSummary,
    /// of a replay, what was sent beside its trace
    pub sent: Option<Sent>,
    /// it was interrupted
    pub interrupted: bool,
    /// when it began, as `YYYYMMDD-HHMMSS` in UTC
    pub date: &'a str,
    /// wall time at its start, nanoseconds since the Unix epoch
    pub started_wall_ns: u64,
}

impl Told<'_> {
    /// The whole file.
    pub fn json(&self) -> Result<Value, BenchError> {
        let mut file = self.heading()?;
        self.put_work(&mut file);
        for figure in VLLM_FIGURES {
            put_figure(
                &mut file,
                figure,
                self.summary.latencies.get(figure),
                &self.args.metric_percentiles,
            );
        }
        if self.args.save_detailed {
            self.put_requests(&mut file);
        }
        file.insert("evenkeel".into(), self.ours());
        Ok(Value::Object(file))
    }

    fn heading(&self) -> Result<Map<String, Value>, BenchError> {
        let args = self.args;
        let backend = args.backend.name();
        let mut file = Map::new();
        let mut put = |key: &str, value: Value| file.insert(key.to_owned(), value);
        // First, so that no label can take the place of a figure.
        for given in &args.metadata {
            let (key, value) = key_value("--metadata", given)?;
            put(key, json!(value));
        }
        put("date", json!(self.date));
        put("endpoint_type", json!(backend));
        put("backend", json!(backend));
        put("label", json!(args.label.as_deref().unwrap_or(backend)));
        put("model_id", json!(self.settings.form.model));
        put("tokenizer_id", Value::Null);
        let num_prompts = match self.settings.extent {
            Extent::Requests(requests) => u64::from(requests),
            Extent::Seconds(_) => self.summary.counts.kept,
        };
        put("num_prompts", json!(num_prompts));
        put("request_rate", rate(args.request_rate));
        put("burstiness", rate(args.burstiness));
        put("max_concurrency", json!(args.max_concurrency));
        Ok(file)
    }

    fn put_work(&self, file: &mut Map<String, Value>) {
        let summary = self.summary;
        let work = summary.throughput;
        let mut put = |key: &str, value: Value| file.insert(key.to_owned(), value);
        put("duration", json!(work.map(|work| work.seconds)));
        put("completed", json!(summary.completed));
        put("failed", json!(summary.failed()));
        put(
            "total_input_tokens",
            json!(work.map(|work| work.input_tokens)),
        );
        put(
            "total_output_tokens",
            json!(work.map(|work| work.output_tokens.round() as u64)),
        );
        put(
            "request_throughput",
            json!(work.map(|work| work.requests_per_s())),
        );
        let good = summary.goodput.as_ref().zip(work);
        put(
            "request_goodput",
            json!(good.map(|(goodput, work)| goodput.good as f64 / work.seconds)),
        );
        put(
            "output_throughput",
            json!(work.map(|work| work.output_tokens_per_s())),
        );
        put(
            "total_token_throughput",
            json!(work.map(|work| work.tokens_per_s())),
        );
        put(
            "max_output_tokens_per_s",
            json!(work.and_then(|work| work.peak_output_tokens_per_s)),
        );
        put(
            "max_concurrent_requests",
            json!(work.map(|work| work.max_concurrent)),
        );
        put("rtfx", Value::Null);
    }

    /// Requests that count, as parallel arrays in seconds.
    fn put_requests(&self, file: &mut Map<String, Value>) {
        let kept: Vec<&Sample> = self.kept().collect();
        let seconds =
            |figure: Figure| move |sample: &&&Sample| json!(figure.of(sample).map(|ms| ms / 1e3));
        let column = |of: &dyn Fn(&&&Sample) -> Value| {
            Value::Array(kept.iter().map(|one| of(&one)).collect())
        };
        let mut put = |key: &str, value: Value| file.insert(key.to_owned(), value);
        put(
            "input_lens",
            column(&|one| {
                json!(
                    one.prompt_tokens
                        .unwrap_or(u64::from(one.planned_prompt_tokens))
                )
            }),
        );
        put(
            "output_lens",
            column(&|one| json!(complete(one).and_then(output_tokens))),
        );
        put("ttfts", column(&seconds(Figure::Ttft)));
        put(
            "itls",
            column(&|one| {
                json!(complete(one).map(|one| {
                    one.gaps_us
                        .iter()
                        .map(|us| f64::from(*us) / 1e6)
                        .collect::<Vec<_>>()
                }))
            }),
        );
        put("latencies", column(&seconds(Figure::E2el)));
        put(
            "start_times",
            column(&|one| json!(one.issued_ns.map(|ns| ns as f64 / 1e9))),
        );
        put(
            "queue_times",
            column(&|one| json!(one.lag_ms().map(|ms| ms / 1e3))),
        );
        // Answers are measured and let go.
        put("generated_texts", Value::Null);
        put(
            "errors",
            column(&|one| {
                json!(
                    one.failure
                        .map_or_else(String::new, |failure| failure_name(failure, one.status))
                )
            }),
        );
    }

    /// The samples that count.
    fn kept(&self) -> impl Iterator<Item = &Sample> {
        let window = self.summary.window;
        let keeps = move |sample: &&Sample| window.is_some_and(|window| window.keeps(sample));
        self.run.samples.iter().filter(keeps)
    }

    fn ours(&self) -> Value {
        let summary = self.summary;
        let percentiles = &self.args.metric_percentiles;
        let window = summary.window.map(|window| {
            json!({"from_s": seconds_in(self.run, window.from_ns), "to_s": seconds_in(self.run, window.to_ns),
                "throughput_until_s": seconds_in(self.run, window.until_ns),
                "trim_s": window.trim_s, "issued_over_s": window.issued_over_s,
                "issued_per_s": window.issued_per_s(summary.counts.kept)})
        });
        let buckets: Vec<Value> = summary.buckets.iter().map(|bucket| {
            json!({"bucket": bucket.bucket.name(), "sent": bucket.sent, "completed": bucket.completed,
                "figures": figures(|figure| bucket.latencies.get(figure), percentiles)})
        }).collect();
        let definitions: Map<String, Value> = FIGURES
            .iter()
            .map(|figure| (figure.key().to_owned(), json!(figure.definition())))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "interrupted": self.interrupted,
            "started_unix_ns": self.started_wall_ns,
            "load": opening::load(self.args, self.settings),
            "seed": self.settings.seed,
            "classes": self.settings.classes,
            "trace": self.settings.replaying.as_deref().map(Replaying::json),
            "sent": self.sent.as_ref().map(Sent::json),
            "lengths_are_an_assumption": self.settings.mix_assumed,
            "ignore_eos": self.settings.form.ignore_eos,
            "extra_body": self.settings.form.extra_body,
            "endpoint": self.settings.form.path,
            "warmup_s": self.args.warmup_s,
            "counts": summary.counts,
            "unfinished": summary.unfinished,
            "window": window,
            "success_rate": summary.success_share(),
            "failures": summary.failures,
            "failed_left_out": summary.failed_left_out,
            "goodput": summary.goodput,
            "good_request_fraction": summary.goodput.as_ref().and_then(|goodput| goodput.share()),
            "token_counts_from": summary.tokens,
            "tokens_per_chunk": summary.tokens_per_chunk,
            "prompt_tokens_per_planned": summary.prompt_tokens_per_planned,
            "figures": figures(|figure| summary.latencies.get(figure), percentiles),
            "buckets": buckets,
            "steadiness": summary.steadiness,
            "generator": summary.generator,
            "definitions": definitions,
        })
    }
}

fn complete(sample: &Sample) -> Option<&Sample> {
    Some(sample).filter(|sample| sample.failure.is_none())
}

fn seconds_in(run: &RunResult, at_ns: u64) -> f64 {
    at_ns.saturating_sub(run.started_ns) as f64 / 1e9
}

fn rate(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else {
        json!("inf")
    }
}

fn put_figure(
    file: &mut Map<String, Value>,
    figure: Figure,
    values: Option<&Distribution>,
    percentiles: &[f64],
) {
    let key = figure.key();
    file.insert(
        format!("mean_{key}_ms"),
        json!(values.map(|values| values.mean)),
    );
    file.insert(
        format!("median_{key}_ms"),
        json!(values.and_then(|values| values.percentile(50.0))),
    );
    file.insert(
        format!("std_{key}_ms"),
        json!(values.map(|values| values.std)),
    );
    for percent in percentiles {
        let value = values.and_then(|values| values.percentile(*percent));
        file.insert(format!("p{percent}_{key}_ms"), json!(value));
    }
}

fn figures<'a>(of: impl Fn(Figure) -> Option<&'a Distribution>, percentiles: &[f64]) -> Value {
    let one = |figure: &Figure| {
        let told = of(*figure).map(|values| {
            let mut told = Map::new();
            told.insert("count".into(), json!(values.count()));
            told.insert("mean_ms".into(), json!(values.mean));
            told.insert("std_ms".into(), json!(values.std));
            for percent in percentiles {
                told.insert(format!("p{percent}_ms"), json!(values.percentile(*percent)));
            }
            told
        });
        (figure.key().to_owned(), json!(told))
    };
    Value::Object(FIGURES.iter().map(one).collect())
}

/// vLLM's name for a result: `LABEL-RATEqps[-concurrencyN]-MODEL-DATE.json`.
pub fn usual_name(args: &BenchArgs, model: &str, date: &str) -> String {
    let label = args.label.as_deref().unwrap_or(args.backend.name());
    let concurrency = args
        .max_concurrency
        .map_or_else(String::new, |places| format!("-concurrency{places}"));
    let model = model.rsplit('/').next().unwrap_or(model);
    // As Python prints the number.
    let rate = if args.request_rate.is_finite() {
        format!("{:?}", args.request_rate)
    } else {
        "inf".to_owned()
    };
    format!("{label}-{rate}qps{concurrency}-{model}-{date}.json").replace('/', "-")
}

/// Now as `YYYYMMDD-HHMMSS` in UTC, as vLLM writes it.
pub fn date_now() -> String {
    utc_now().replace('T', "-")
}
