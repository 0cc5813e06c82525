//! The options of `evenkeel bench`, named as in `vllm bench serve` wherever that has them.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, ValueEnum};

use super::BenchError;
use crate::load::arrivals::SHAPE_LEAST;
use crate::report::goodput::Objective;

/// Send a load to an inference server and tell what its users would wait for.
///
/// With a rate, requests are sent open loop: each at its own time, whatever became of the earlier ones,
/// and latencies are told both from when a request was sent and from when it should have been. With
/// --max-concurrency alone, closed loop: each as soon as a place is free. Options named as in
/// `vllm bench serve` mean what they mean there; so do the keys of the result file.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("how_long").args(["num_prompts", "duration"])))]
pub struct BenchArgs {
    /// Server's base URL [default: http://HOST:PORT]
    #[arg(long, value_name = "URL", conflicts_with_all = ["host", "port"])]
    pub base_url: Option<String>,
    /// Server's host, where there is no --base-url
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Server's port, where there is no --base-url
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Kind of API, which sets the endpoint: openai and vllm are completions, openai-chat is chat
    #[arg(long, value_enum, default_value = "openai")]
    pub backend: Backend,
    /// Path requests go to: /v1/completions or /v1/chat/completions [default: the backend's]
    #[arg(long, value_name = "PATH")]
    pub endpoint: Option<String>,
    /// Model to ask for [default: the first that the server lists]
    #[arg(long)]
    pub model: Option<String>,
    /// Name of the model in requests, where it is another than --model
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,

    /// Requests per second; inf sends as fast as --max-concurrency lets it, or all at once
    #[arg(long, value_name = "RATE", default_value = "inf", value_parser = rate)]
    pub request_rate: f64,
    /// How even arrivals are: 1 Poisson, below 1 in bursts, inf at equal gaps (shape of gamma-distributed gaps)
    #[arg(long, default_value_t = 1.0, value_parser = burstiness)]
    pub burstiness: f64,
    /// Most requests unanswered at once
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub max_concurrency: Option<u32>,
    /// Requests to send, those of the warm-up not counted [default: 1000]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub num_prompts: Option<u32>,
    /// Seconds to send for after the warm-up, instead of a number of requests
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub duration: Option<f64>,
    /// Seconds of load before measuring; nothing is drained in between
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = seconds_or_none)]
    pub warmup_s: f64,
    /// Seconds left out at both ends, by issue time [default: 30 where that leaves half of the run, else 0]
    #[arg(long, value_name = "S", value_parser = seconds_or_none)]
    pub trim_s: Option<f64>,
    /// Seed of arrivals, lengths and texts
    // Not 0: its Poisson schedule happens to begin with 65 arrivals in the time of 40.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Shares of short, medium and long requests [default: 20:60:20]
    #[arg(long, value_name = "SHORT:MEDIUM:LONG", conflicts_with_all = ["dataset_name", "random_input_len", "random_output_len", "random_range_ratio"])]
    pub mix: Option<String>,
    /// random: prompts of 1024 and outputs of 128 tokens where not given otherwise, in place of the mix
    #[arg(long, value_enum)]
    pub dataset_name: Option<Dataset>,
    /// Prompt tokens of every request, in place of the mix
    #[arg(long, visible_alias = "input-len", value_name = "N", value_parser = at_least_one)]
    pub random_input_len: Option<u32>,
    /// Output tokens of every request, in place of the mix
    #[arg(long, visible_alias = "output-len", value_name = "N", value_parser = at_least_one)]
    pub random_output_len: Option<u32>,
    /// Spread of both lengths: from (1 - R) to (1 + R) times, equally likely [default: 0]
    #[arg(long, value_name = "R", value_parser = ratio)]
    pub random_range_ratio: Option<f64>,
    /// Trace to replay in place of the mix: at its own times, or at those of --request-rate
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mix", "dataset_name", "random_input_len", "random_output_len", "random_range_ratio"])]
    pub trace: Option<PathBuf>,
    /// ServeGen's lengths (-dataset.json), to draw requests from where --trace is its rates (-trace.csv)
    #[arg(long, value_name = "FILE", requires = "trace")]
    pub trace_lengths: Option<PathBuf>,
    /// Requests to draw for each that ServeGen's rates have: 0.01 is a hundredth of its rate [default: 1]
    #[arg(long, value_name = "FACTOR", requires = "trace_lengths")]
    pub trace_rate_scale: Option<f64>,
    /// What the trace's times are multiplied by: 0.5 is twice as fast [default: 1]
    #[arg(
        long,
        value_name = "FACTOR",
        requires = "trace",
        conflicts_with = "request_rate"
    )]
    pub time_scale: Option<f64>,
    /// Seconds of the trace to leave out at its begin [default: 0]
    #[arg(long, value_name = "S", requires = "trace", conflicts_with = "request_rate", value_parser = seconds_or_none)]
    pub trace_from_s: Option<f64>,
    /// Second of the trace to stop before [default: its end]
    #[arg(long, value_name = "S", requires = "trace", conflicts_with = "request_rate", value_parser = seconds)]
    pub trace_until_s: Option<f64>,
    /// Keep the times of a coarse clock, and do not spread requests over its ticks
    #[arg(long, requires = "trace", conflicts_with = "request_rate")]
    pub keep_ticks: bool,
    /// Leave out requests of the trace with more tokens, prompt and answer together
    #[arg(long, value_name = "N", requires = "trace", value_parser = at_least_one)]
    pub longest_tokens: Option<u32>,
    /// Have the model go on to the full output length
    #[arg(long)]
    pub ignore_eos: bool,
    /// More keys of every request's body, such as '{"temperature": 0.7, "seed": 1}'; what bench needs itself it keeps
    #[arg(long, value_name = "JSON")]
    pub extra_body: Option<String>,

    /// Headers to add to every request
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub header: Vec<String>,
    /// Environment variable with the API key, sent as a bearer token if it is set
    #[arg(long, value_name = "NAME", default_value = "OPENAI_API_KEY")]
    pub api_key_env: String,
    /// Start of every request's x-request-id [default: bench-, the time, -]
    #[arg(long, value_name = "PREFIX")]
    pub request_id_prefix: Option<String>,
    /// Longest time from send to last byte, seconds
    #[arg(long, value_name = "S", default_value_t = 600.0, value_parser = seconds)]
    pub request_timeout_s: f64,

    /// Objectives of a good request, in milliseconds: ttft:500 tpot:50 e2el:10000
    #[arg(long, value_name = "KEY:MS", num_args = 1.., value_parser = Objective::parse)]
    pub goodput: Vec<Objective>,
    /// Percentiles in the result file
    #[arg(long, value_name = "P,P", default_value = "50,90,95,99", value_delimiter = ',', value_parser = percentile)]
    pub metric_percentiles: Vec<f64>,
    /// Save the result as JSON [default name: as vllm bench serve]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub save_result: Option<Option<PathBuf>>,
    /// Folder of the result, made if it is not there
    #[arg(long, value_name = "DIR", requires = "save_result")]
    pub result_dir: Option<PathBuf>,
    /// Name of the result
    #[arg(long, value_name = "FILE", requires = "save_result")]
    pub result_filename: Option<PathBuf>,
    /// Save single requests in the result too
    #[arg(long, requires = "save_result")]
    pub save_detailed: bool,
    /// Save a line of JSON a request, as AIPerf's profile_export.jsonl
    #[arg(long, value_name = "FILE")]
    pub requests_jsonl: Option<PathBuf>,
    /// Label of the result [default: the backend]
    #[arg(long)]
    pub label: Option<String>,
    /// More keys for the result; its own keep their values
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., requires = "save_result")]
    pub metadata: Vec<String>,
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

impl BenchArgs {
    /// What they are where the command line says nothing.
    pub fn usual() -> Result<BenchArgs, BenchError> {
        let line = Line::try_parse_from(["bench"]);
        let line = line.map_err(|error| BenchError::Options(error.to_string()))?;
        Ok(line.bench)
    }
}

/// Where requests come from, as vLLM names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dataset {
    /// drawn words
    Random,
}

/// Kinds of API, as vLLM names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// /v1/completions
    Openai,
    /// the same
    Vllm,
    /// /v1/chat/completions
    OpenaiChat,
}

impl Backend {
    /// Its name in the result.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Openai => "openai",
            Backend::Vllm => "vllm",
            Backend::OpenaiChat => "openai-chat",
        }
    }
}

fn number(text: &str, fits: impl Fn(f64) -> bool, right: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if fits(value) => Ok(value),
        _ => Err(format!("give {right}")),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, |value| value > 0.0, "a number above 0, or inf")
}

fn burstiness(text: &str) -> Result<f64, String> {
    let fits = |value: f64| value >= SHAPE_LEAST;
    number(text, fits, "a number from 0.001, or inf")
}

fn seconds(text: &str) -> Result<f64, String> {
    let fits = |value: f64| value.is_finite() && value > 0.0 && value < MAX_SECONDS;
    number(text, fits, "a number of seconds above 0")
}

fn seconds_or_none(text: &str) -> Result<f64, String> {
    let fits = |value: f64| (0.0..MAX_SECONDS).contains(&value);
    number(text, fits, "a number of seconds, 0 or more")
}

/// A year; longer is a slip.
pub(super) const MAX_SECONDS: f64 = 366.0 * 86_400.0;

fn ratio(text: &str) -> Result<f64, String> {
    let fits = |value: f64| (0.0..1.0).contains(&value);
    number(text, fits, "a number from 0 to below 1")
}

fn percentile(text: &str) -> Result<f64, String> {
    let fits = |value: f64| (0.0..=100.0).contains(&value);
    number(
        text.trim(),
        fits,
        "numbers from 0 to 100, such as 50,90,95,99",
    )
}

fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(format!("give a whole number from 1 to {}", u32::MAX)),
    }
}
