//! The configuration as written in the file, with its defaults. Docs here become the JSON schema.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::checked::{
    AccessFormat, ArrivalStamp, ChunkSink, PolicyConfig, RuntimeShape, UsageMode, WhenNoneLeft,
};
use super::units::ByteSize;

/// Configuration of `evenkeel serve`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// the data port
    pub server: Server,
    /// the admin port
    #[serde(default)]
    pub admin: Admin,
    /// how clients are treated
    #[serde(default)]
    pub client: Client,
    /// bounds on memory and counts
    #[serde(default)]
    pub limits: Limits,
    /// bounds on waiting; none on the total of an exchange
    #[serde(default)]
    pub timeouts: Timeouts,
    /// second tries of a request that no instance has begun to answer
    #[serde(default)]
    pub retries: Retries,
    /// when the configuration is read again
    #[serde(default)]
    pub reload: Reload,
    /// what is measured and how
    #[serde(default)]
    pub measure: Measure,
    /// records of requests; without this table none are written
    pub records: Option<Records>,
    /// logs
    #[serde(default)]
    pub log: Log,
    /// API keys of clients; without it everybody may come in
    pub keys: Option<Vec<Key>>,
    /// pools of instances
    pub pools: Vec<Pool>,
    /// seed of everything drawn at random; absent: another one at every start
    pub seed: Option<u64>,
}

/// The listener that serves inference requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// address and port, such as "0.0.0.0:8080"; port 0 lets the kernel choose
    pub listen: String,
    /// worker threads; absent: one a core
    pub workers: Option<usize>,
    /// how the workers share the connections
    #[serde(default = "per_core")]
    pub runtime: RuntimeShape,
    /// further paths passed on to the engines; one that ends in "/*" passes all below it
    #[serde(default)]
    pub passthrough: Vec<String>,
    /// whether the header x-gateway-destination-endpoint may name the instance
    #[serde(default)]
    pub allow_endpoint_header: bool,
    /// whether HTTP/2 is spoken besides HTTP/1.1
    #[serde(default = "yes")]
    pub http2: bool,
    /// headers added to answers
    #[serde(default)]
    pub response_headers: ResponseHeaders,
    /// whether the client's Authorization and x-api-key go on to engines that have no `engine_key`; absent: only if
    /// there are no `keys`
    pub forward_client_credentials: Option<bool>,
    /// TLS with clients; absent: plain text
    pub tls: Option<ServerTls>,
}

/// TLS with clients. Files are PEM, and read again when they change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// the certificate, and those that lead to its authority
    pub cert: PathBuf,
    /// the certificate's private key
    pub key: PathBuf,
    /// authorities of clients' certificates; absent: clients need none
    pub client_ca: Option<PathBuf>,
    /// seconds between two looks at the files
    #[serde(default = "reload_check")]
    pub reload_check_s: f64,
}

fn reload_check() -> f64 {
    5.0
}

fn per_core() -> RuntimeShape {
    RuntimeShape::PerCore
}

fn yes() -> bool {
    true
}

/// Headers added to answers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseHeaders {
    /// x-request-id
    pub request_id: bool,
    /// x-evenkeel-instance
    pub instance: bool,
    /// server-timing
    pub server_timing: bool,
}

impl Default for ResponseHeaders {
    fn default() -> Self {
        ResponseHeaders {
            request_id: true,
            instance: true,
            server_timing: false,
        }
    }
}

/// The listener for metrics, readiness and the admin API.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// address and port; absent: no admin listener. Keep it on the loopback or a closed network
    pub listen: Option<String>,
    /// bearer token for what changes state, "file:PATH" or "env:NAME"; absent: that is allowed only on the loopback
    pub token: Option<String>,
}

/// A client's API key. Clients send it as `Authorization: Bearer` or `x-api-key`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// unique; stands in records and logs in the key's place
    pub name: String,
    /// SHA-256 of the key in hexadecimal digits, as `evenkeel hash-key` prints it
    pub sha256: String,
    /// requests a second in the long run; above it 429. Absent: no limit
    pub requests_per_s: Option<f64>,
    /// requests that may come at once within that rate; absent: a second's worth
    pub burst: Option<u32>,
    /// requests open at the same time; above it 429. Absent: no limit
    pub max_concurrent: Option<usize>,
}

/// How clients are treated.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Client {
    /// true: a client's FIN on HTTP/1.1 only ends its sending side; false: it is a cancel
    pub half_close: bool,
}

/// Bounds on memory and counts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// request bytes held whole for reading and retry; larger bodies stream
    pub hold_bytes: ByteSize,
    /// largest request body; above it 413
    pub body_bytes: ByteSize,
    /// request bytes held by all requests together; absent: a quarter of memory
    pub buffered_bytes: Option<ByteSize>,
    /// seconds a request may wait for room in buffered_bytes before 503
    pub buffered_wait_s: f64,
    /// open client connections
    pub max_connections: usize,
    /// largest request head
    pub head_bytes: ByteSize,
    /// metric series, past which figures go to "other"
    pub max_series: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            hold_bytes: ByteSize(8 << 20),
            body_bytes: ByteSize(512 << 20),
            buffered_bytes: None,
            buffered_wait_s: 5.0,
            max_connections: 65_536,
            head_bytes: ByteSize(64 << 10),
            max_series: 10_000,
        }
    }
}

/// Second tries of a request. Only before a byte has gone to the client, and only of a body held whole.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retries {
    /// instances tried for one request, the first one counted; 1: no second try
    pub instances_max: usize,
    /// whether a request that an instance refused with 429 or 503 goes to another one
    pub busy: bool,
    /// whether a request goes out again after its kept-alive connection closed without a byte of an answer
    /// (the engine closes idle connections; one that was working would have sent a head)
    pub resend: bool,
    /// retries under way, as a share of a pool's open requests
    pub budget_share: f64,
    /// retries that may be under way however few requests are open
    pub budget_least: u32,
}

impl Default for Retries {
    fn default() -> Self {
        Retries {
            instances_max: 3,
            busy: true,
            resend: true,
            budget_share: 0.2,
            budget_least: 3,
        }
    }
}

/// When the configuration is read again by itself. SIGHUP and the admin API do so at any time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Reload {
    /// whether this file, and the files that it names, are watched
    pub watch: bool,
    /// time between two looks; a change is taken when two looks in a row find the same
    pub check_s: f64,
}

impl Default for Reload {
    fn default() -> Self {
        Reload {
            watch: true,
            check_s: 2.0,
        }
    }
}

/// Bounds on waiting, in seconds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// to open a connection to an instance
    pub connect_s: f64,
    /// from the request's last byte to the response's head; long prefills are normal
    pub headers_s: f64,
    /// from the response's head to the first byte of its body
    pub first_event_s: f64,
    /// between two reads of a response's body
    pub silence_s: f64,
    /// for a client to send a request's head, from its first byte on
    pub client_header_s: f64,
    /// for a client to send the next 16 KiB of a request's body, or the rest of it
    pub client_body_s: f64,
    /// for a client to take anything of an answer that waits for it
    pub client_write_s: f64,
    /// between two requests on a client's connection
    pub client_idle_s: f64,
    /// after which an idle connection to an instance is closed; engines close at 5 s
    pub upstream_idle_s: f64,
    /// between saying so on /ready and /health and refusing new connections, after a signal to stop: for load
    /// balancers in front to notice
    pub drain_notice_s: f64,
    /// for open requests to end then
    pub drain_s: f64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect_s: 3.0,
            headers_s: 600.0,
            first_event_s: 600.0,
            silence_s: 600.0,
            client_header_s: 30.0,
            client_body_s: 30.0,
            client_write_s: 120.0,
            client_idle_s: 75.0,
            upstream_idle_s: 4.0,
            drain_notice_s: 0.0,
            drain_s: 120.0,
        }
    }
}

/// What is measured and how.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Measure {
    /// whether answers are read; without it streams have no figures and token counts are unknown to policies
    pub enabled: bool,
    /// whether engines are asked for token counts where the client does not
    pub usage: UsageMode,
    /// what stamps the arrival of an instance's bytes, and so server TTFT and gaps
    pub arrival: ArrivalStamp,
    /// bytes of one event that are looked at; a longer one is passed on all the same
    pub scan_cap_bytes: ByteSize,
    /// prompt tokens that one picture counts as
    pub image_tokens: u32,
    /// chunk log kept for one request; past it the log is cut and says so
    pub chunks_cap_bytes: ByteSize,
    /// output tokens expected of a request before anything was learnt
    pub default_output_tokens: u32,
}

impl Default for Measure {
    fn default() -> Self {
        Measure {
            enabled: true,
            usage: UsageMode::AsAsked,
            arrival: ArrivalStamp::Read,
            scan_cap_bytes: ByteSize(4 << 20),
            image_tokens: 1_000,
            chunks_cap_bytes: ByteSize(64 << 10),
            default_output_tokens: 256,
        }
    }
}

/// Records of requests: one JSON line each.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Records {
    /// folder of the run's files; made if it is not there
    pub dir: PathBuf,
    /// whose chunk logs are written beside the records
    #[serde(default = "no_chunks")]
    pub chunks: ChunkSink,
    /// share of requests whose chunk log is written when chunks = "sampled", 0 to 1
    #[serde(default = "one_in_hundred")]
    pub sample: f64,
    /// size at which a new file is begun
    #[serde(default = "file_size")]
    pub rotate_bytes: ByteSize,
    /// age in seconds at which a new file is begun
    #[serde(default = "file_age")]
    pub rotate_age_s: f64,
    /// records that may wait for the disk; more are dropped and counted
    #[serde(default = "queue")]
    pub queue: usize,
}

fn no_chunks() -> ChunkSink {
    ChunkSink::None
}

fn one_in_hundred() -> f64 {
    0.01
}

fn file_size() -> ByteSize {
    ByteSize(256 << 20)
}

fn file_age() -> f64 {
    3_600.0
}

fn queue() -> usize {
    8_192
}

/// Logs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// "error", "warn", "info", "debug", "trace", or a filter such as "info,evenkeel::proxy=debug"
    pub level: String,
    /// the access log; absent: none
    pub access: Option<AccessLog>,
}

impl Default for Log {
    fn default() -> Self {
        Log {
            level: "info".into(),
            access: None,
        }
    }
}

/// The access log: one line a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessLog {
    /// file to append to; absent: standard error
    pub path: Option<PathBuf>,
    /// how a line looks
    #[serde(default = "json_lines")]
    pub format: AccessFormat,
}

fn json_lines() -> AccessFormat {
    AccessFormat::Json
}

/// Instances that share requests under one policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// unique name
    pub name: String,
    /// how an instance is chosen
    pub policy: PolicyConfig,
    /// models served, each a name or a table with aliases; none: the pool takes every model that
    /// no other pool names
    #[serde(default)]
    pub models: Vec<Model>,
    /// true: the pool also takes every model that no pool names
    #[serde(default)]
    pub default: bool,
    /// this pool's share of the requests for a model that several pools serve, relative to theirs
    pub share: Option<f64>,
    /// which instances take requests
    #[serde(default)]
    pub health: Health,
    /// credential that the instances ask for, "file:PATH" or "env:NAME": sent in place of the client's
    pub engine_key: Option<String>,
    /// TLS with instances whose URL is `https://`
    pub tls: Option<PoolTls>,
    /// the inference servers
    pub instances: Vec<Instance>,
}

/// When an instance is taken out of a pool, and how it comes back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// path of the active check; any answer under 500 is well; "": no checks
    pub check_path: String,
    /// time between two checks of an instance
    pub check_interval_s: f64,
    /// time a check waits for an answer
    pub check_timeout_s: f64,
    /// failed checks in a row, with no byte from the instance meanwhile, after which it is out
    pub check_failures: u32,
    /// failed requests in a row after which an instance is out; 0: any number
    pub failures_in_a_row: u32,
    /// share of failed requests in a window from which on an instance is out
    pub failure_share: f64,
    /// length of that window
    pub window_s: f64,
    /// requests in a window below which its share says nothing
    pub window_requests: u32,
    /// share of a pool's instances that failed requests may take out; checks are not bound by it
    pub ejected_share_max: f64,
    /// time between two requests let through to an instance that is out
    pub probe_interval_s: f64,
    /// "try": if no instance is left, all are used; "refuse": 503 at once
    pub when_none_left: WhenNoneLeft,
    /// longest time an instance is left alone because its 429 or 503 asked for it (Retry-After)
    pub retry_after_max_s: f64,
    /// time over which an instance that is back may have a growing share (from a tenth to all) of the requests
    /// that others have open; 0: all at once
    pub slow_start_s: f64,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            check_path: "/health".into(),
            check_interval_s: 5.0,
            check_timeout_s: 2.0,
            check_failures: 3,
            failures_in_a_row: 5,
            failure_share: 0.5,
            window_s: 10.0,
            window_requests: 20,
            ejected_share_max: 0.5,
            probe_interval_s: 1.0,
            when_none_left: WhenNoneLeft::Try,
            retry_after_max_s: 60.0,
            slow_start_s: 30.0,
        }
    }
}

/// TLS with a pool's instances. Files are PEM.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolTls {
    /// authorities of the instances' certificates; absent: the public ones
    pub ca: Option<PathBuf>,
    /// the certificate shown to instances that ask for one
    pub cert: Option<PathBuf>,
    /// its private key
    pub key: Option<PathBuf>,
    /// the name that the certificates must be for; absent: the host of each URL
    pub server_name: Option<String>,
}

/// A model: its name, or its name with aliases.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Model {
    /// the name alone
    Name(String),
    /// with aliases
    Table(ModelTable),
}

/// A model with further names. Bodies go on unchanged: the engine must know the aliases too.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelTable {
    /// name as requests give it
    pub name: String,
    /// further names, adapters too, that lead to this pool
    #[serde(default)]
    pub aliases: Vec<String>,
}

/// One inference server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// base URL without /v1, such as "http://10.0.0.1:8000" or "https://engine.example"
    pub url: String,
    /// unique in the pool; absent: host:port
    pub name: Option<String>,
    /// share of work relative to the other instances, above 0
    #[serde(default = "one")]
    pub weight: f64,
    /// free words that go to metrics and reports
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn one() -> f64 {
    1.0
}
