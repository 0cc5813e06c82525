//! The plan as written in its file, with its defaults. Docs here become the JSON schema and the text of errors.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::study::Scenario;

/// Values of TOML of any kind, by name.
pub type Values = BTreeMap<String, toml::Value>;

/// Plan of a sweep.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// the study's name
    pub name: String,
    /// seed of arrivals, lengths and texts
    #[serde(default = "one_u64")]
    pub seed: u64,
    /// loads that are usual for a scenario; what the scenario's own table says goes before them
    pub preset: Option<Preset>,
    /// what a good request is, as `--goodput` takes it: "ttft:500", "tpot:50", "e2el:10000" (milliseconds)
    #[serde(default)]
    pub objectives: Vec<String>,
    /// share of requests that must be good, 0 to 1
    #[serde(default = "usual_attainment")]
    pub attainment: f64,
    /// price of a GPU for an hour
    pub gpu_hour_price: Option<Price>,
    /// times each point is run
    #[serde(default = "one")]
    pub repeats: u32,
    /// what else is to be written into every point
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// where it runs
    pub fleet: Fleet,
    /// settings of the engine, such as `max_num_seqs = 64`
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub engine: Values,
    /// commands that start, restart and stop a live fleet
    pub hooks: Option<Hooks>,
    /// instances, GPUs and policies
    #[serde(default)]
    pub matrix: Matrix,
    /// how long each point is
    #[serde(default)]
    pub timing: Timing,
    /// people who wait
    pub online: Option<Online>,
    /// work that is to be done
    pub offline: Option<Offline>,
    /// both at once
    pub mixed: Option<Mixed>,
    /// sets of lengths beside `mix`, `short`, `medium` and `long`
    #[serde(default)]
    pub length_sets: BTreeMap<String, LengthSet>,
    /// settings of policies that need some, by the policy's name; `kind` where that is not the name
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, serde_json::Value>>")]
    pub policy_settings: BTreeMap<String, toml::Table>,
    /// counter-experiments: each changes one variable
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// exporters to look at while the load runs
    #[serde(default)]
    pub monitor: Vec<Exporter>,
}

fn one() -> u32 {
    1
}

fn one_u64() -> u64 {
    1
}

fn usual_attainment() -> f64 {
    0.99
}

/// Usual loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// 100 to 1,000 users at once
    Online,
    /// 1,000 requests at once, until they are done
    Offline,
    /// users with and without batch work beside them
    Mixed,
}

/// An amount of money.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// how much
    pub amount: f64,
    /// of what, such as "USD"
    pub currency: String,
}

/// Where a sweep runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fleet {
    /// simulated engines and the proxy, in this process
    Simulated {
        /// hardware profile: a built-in name or a TOML file
        #[serde(default = "usual_profile")]
        profile: String,
        /// how many times as long each instance's steps last
        #[serde(default)]
        slow_factors: Vec<f64>,
    },
    /// servers that hooks start, behind one base URL
    Live {
        /// base URL that requests go to, such as "http://127.0.0.1:8080"
        base_url: String,
        /// model to ask for; absent: the first that the server lists
        model: Option<String>,
        /// kind of API
        #[serde(default)]
        api: Api,
        /// folder into which Evenkeel in front of the fleet writes its records; absent: points have none
        records_dir: Option<PathBuf>,
        /// environment variable with the API key
        #[serde(default = "usual_key_env")]
        api_key_env: String,
        /// whether the model goes on to the full output length, by vLLM's extension `ignore_eos`
        #[serde(default = "yes")]
        ignore_eos: bool,
        /// longest time from send to last byte, seconds
        #[serde(default = "usual_request_timeout")]
        request_timeout_s: f64,
    },
}

fn usual_profile() -> String {
    "demo-small".to_owned()
}

fn usual_key_env() -> String {
    "OPENAI_API_KEY".to_owned()
}

fn yes() -> bool {
    true
}

fn usual_request_timeout() -> f64 {
    600.0
}

/// Kinds of API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// /v1/chat/completions
    #[default]
    Chat,
    /// /v1/completions
    Completions,
}

/// Shell commands; EVENKEEL_POINT, EVENKEEL_INSTANCES and others tell them what is to be.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hooks {
    /// starts the fleet as a point wants it
    pub start: Option<String>,
    /// starts the same fleet anew between two points, so that no cache is left from one to the next
    pub restart: Option<String>,
    /// stops the fleet
    pub stop: Option<String>,
    /// longest that a command may take, seconds
    #[serde(default = "usual_limit")]
    pub time_limit_s: f64,
    /// URLs that answer with 200 once the fleet is ready; absent: the base URL with /v1/models
    #[serde(default)]
    pub ready_urls: Vec<String>,
    /// longest wait for that, seconds
    #[serde(default = "usual_limit")]
    pub ready_limit_s: f64,
}

fn usual_limit() -> f64 {
    600.0
}

/// What is combined.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// numbers of instances, for the horizontal curve
    #[serde(default = "only_one")]
    pub instances: Vec<u32>,
    /// GPUs inside an instance, for the vertical curve
    #[serde(default = "only_one")]
    pub gpus_per_instance: Vec<u32>,
    /// policies of the balancer; the first is that of variants
    #[serde(default = "usual_policies")]
    pub policies: Vec<String>,
}

fn only_one() -> Vec<u32> {
    vec![1]
}

fn usual_policies() -> Vec<String> {
    vec!["least_outstanding_tokens".to_owned()]
}

impl Default for Matrix {
    fn default() -> Matrix {
        Matrix {
            instances: only_one(),
            gpus_per_instance: only_one(),
            policies: usual_policies(),
        }
    }
}

/// How long a point is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// seconds of load before measuring; nothing is drained in between
    #[serde(default = "usual_warm_up")]
    pub warm_up_s: f64,
    /// seconds of load after that, at a fixed concurrency
    #[serde(default = "usual_duration")]
    pub duration_s: f64,
    /// the same for Poisson arrivals; absent: `duration_s`
    pub poisson_duration_s: Option<f64>,
    /// seconds cut at both ends by issue time; absent: 30 where that leaves half, else 0
    pub trim_s: Option<f64>,
    /// seconds between two looks of the monitor
    #[serde(default = "usual_look")]
    pub look_every_s: f64,
}

fn usual_warm_up() -> f64 {
    30.0
}

fn usual_duration() -> f64 {
    300.0
}

fn usual_look() -> f64 {
    1.0
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            warm_up_s: usual_warm_up(),
            duration_s: usual_duration(),
            poisson_duration_s: None,
            trim_s: None,
            look_every_s: usual_look(),
        }
    }
}

/// Loads of the online scenario, for each instance.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Online {
    /// requests unanswered at once, for each instance
    #[serde(default)]
    pub concurrency: Vec<u32>,
    /// Poisson arrivals a second, for each instance
    #[serde(default)]
    pub rate_per_s: Vec<f64>,
    /// sets of lengths: "mix", "short", "medium", "long" or one of `length_sets`
    #[serde(default)]
    pub lengths: Vec<String>,
}

/// Loads of the offline scenario, for each instance.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Offline {
    /// requests sent at once, for each instance
    #[serde(default)]
    pub batch_requests: Vec<u32>,
    /// sets of lengths
    #[serde(default)]
    pub lengths: Vec<String>,
}

/// Loads of the mixed scenario, for each instance.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    /// online requests unanswered at once, for each instance
    #[serde(default)]
    pub concurrency: Vec<u32>,
    /// online requests a second, Poisson, for each instance
    #[serde(default)]
    pub rate_per_s: Vec<f64>,
    /// sets of lengths of the online requests
    #[serde(default)]
    pub lengths: Vec<String>,
    /// batch requests unanswered at once beside that, for each instance; absent: 16
    pub batch_concurrency: Option<u32>,
    /// set of lengths of the batch; absent: "long"
    pub batch_lengths: Option<String>,
}

/// A set of lengths: shares of the three that Evenkeel has, or classes of its own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthSet {
    /// shares of short, medium and long requests, such as [20, 60, 20]
    pub mix: Option<[f64; 3]>,
    /// kinds of requests
    #[serde(default)]
    pub classes: Vec<LengthClass>,
}

/// A kind of request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthClass {
    /// its name
    pub name: String,
    /// its share, relative to the others
    pub share: f64,
    /// tokens of a prompt
    pub prompt_tokens: u32,
    /// tokens of an answer
    pub output_tokens: u32,
    /// both lengths are from (1 - spread) to (1 + spread) times that, equally likely
    #[serde(default)]
    pub spread: f64,
}

/// A counter-experiment: some points again, with one variable changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// its name
    pub name: String,
    /// what it is to show
    pub why: Option<String>,
    /// the one variable, with its other value
    pub change: Change,
    /// which points are run again; absent: all of the first policy
    #[serde(default)]
    pub at: At,
}

/// One of these.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// a setting of the engine
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub engine: Values,
    /// how the engine makes batches: "continuous" or "static"; the same as engine = { batching = ... }
    pub batching: Option<String>,
    /// the balancer's policy
    pub policy: Option<String>,
    /// the set of lengths
    pub lengths: Option<String>,
    /// requests unanswered at once, for each instance
    pub concurrency: Option<u32>,
    /// Poisson arrivals a second, for each instance
    pub rate_per_s: Option<f64>,
    /// requests of a batch, for each instance
    pub batch_requests: Option<u32>,
    /// batch requests unanswered at once beside an online load, for each instance
    pub batch_concurrency: Option<u32>,
}

/// Which points; what is absent or empty does not choose.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// of these scenarios
    #[serde(default)]
    #[schemars(with = "Vec<ScenarioName>")]
    pub scenarios: Vec<Scenario>,
    /// of these numbers of instances
    #[serde(default)]
    pub instances: Vec<u32>,
    /// of these numbers of GPUs
    #[serde(default)]
    pub gpus_per_instance: Vec<u32>,
    /// of these sets of lengths
    #[serde(default)]
    pub lengths: Vec<String>,
    /// of these concurrencies, for each instance
    #[serde(default)]
    pub concurrency: Vec<u32>,
    /// of these rates, for each instance
    #[serde(default)]
    pub rate_per_s: Vec<f64>,
    /// of these batches, for each instance
    #[serde(default)]
    pub batch_requests: Vec<u32>,
}

/// The schema of [`Scenario`].
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)]
enum ScenarioName {
    Online,
    Offline,
    Mixed,
}

/// An exporter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exporter {
    /// what it tells of
    pub kind: ExporterKind,
    /// its page, such as "http://127.0.0.1:8000/metrics"
    pub url: String,
    /// the instance it belongs to, by its name in the proxy's records. A point of n instances looks at the first n
    /// that are named in the plan, in its order, and at what belongs to none
    pub instance: Option<String>,
    /// of a page with several GPUs, the one that is meant, by its label `gpu`
    pub gpu: Option<String>,
}

/// Kinds of exporters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExporterKind {
    /// an engine, under vLLM's names
    Engine,
    /// GPUs, under the names of NVIDIA's DCGM exporter
    Gpu,
    /// a host, under node-exporter's names
    Host,
    /// Evenkeel's admin listener
    Proxy,
}
