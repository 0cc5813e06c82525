//! The configuration as the rest of the program uses it: every default filled in, every rule held.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use evenkeel_policies::PolicyConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::key_hash::KeyHash;
use super::secret::SecretSource;

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// the data port
    pub server: Server,
    /// the admin port
    pub admin: Admin,
    /// how clients are treated
    pub client: Client,
    /// bounds on everything that a client or an upstream could make grow
    pub limits: Limits,
    /// bounds on waiting; none on the total of an exchange
    pub timeouts: Timeouts,
    /// second tries of a request
    pub retries: Retries,
    /// when the configuration is read again
    pub reload: Reload,
    /// what is measured and how
    pub measure: Measure,
    /// records of requests; `None` writes none
    pub records: Option<Records>,
    /// the program's own log and the access log
    pub log: Log,
    /// API keys of clients; `None` lets everybody in
    pub keys: Option<Vec<Key>>,
    /// pools of instances, in the order of the file; at least one
    pub pools: Vec<Pool>,
    /// where requests go by the model they name
    pub models: ModelTable,
    /// the text as it was read, for the run's record
    pub source: String,
    /// seed of everything that is drawn at random
    pub seed: u64,
    /// what is allowed but probably not meant, in plain sentences
    pub warnings: Vec<String>,
}

/// The listener that serves inference requests.
#[derive(Debug, Clone)]
pub struct Server {
    /// address and port; port 0 lets the kernel choose
    pub listen: SocketAddr,
    /// worker threads
    pub workers: usize,
    /// how the workers share the connections
    pub runtime: RuntimeShape,
    /// further paths that are passed on; one that ends in `/*` passes all below it
    pub passthrough: Vec<String>,
    /// whether `x-gateway-destination-endpoint` may name the instance
    pub allow_endpoint_header: bool,
    /// headers added to answers
    pub response_headers: ResponseHeaders,
    /// whether HTTP/2 is spoken (by ALPN, or with prior knowledge on plain text)
    pub http2: bool,
    /// whether clients' credentials go on to engines that have no key of their own
    pub forward_client_credentials: bool,
    /// TLS with clients; `None` is plain text
    pub tls: Option<ServerTls>,
}

/// TLS with clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// the certificate, and those that lead to its authority
    pub cert: PathBuf,
    /// its private key
    pub key: PathBuf,
    /// authorities of clients' certificates; `None` asks clients for none
    pub client_ca: Option<PathBuf>,
    /// time between two looks at the files
    pub reload_check: Duration,
}

/// How worker threads and connections go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeShape {
    /// one single-threaded runtime a worker; a connection stays on its core
    PerCore,
    /// one work-stealing runtime over all workers
    MultiThread,
}

/// Which headers Evenkeel adds to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeaders {
    /// `x-request-id`
    pub request_id: bool,
    /// `x-evenkeel-instance`
    pub instance: bool,
    /// `server-timing`
    pub server_timing: bool,
}

/// The listener for metrics, readiness and the admin API.
#[derive(Debug, Clone)]
pub struct Admin {
    /// address and port; `None` opens no admin listener
    pub listen: Option<SocketAddr>,
    /// bearer token for what changes state
    pub token: Option<SecretSource>,
}

/// A client's API key.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// unique; up to 128 bytes
    pub name: Arc<str>,
    /// what is known of the key itself
    pub hash: KeyHash,
    /// how often it may be used
    pub rate: Option<Rate>,
    /// requests open at the same time
    pub max_concurrent: Option<usize>,
}

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// times a second in the long run, above 0
    pub per_s: f64,
    /// times at once
    pub burst: NonZeroU32,
}

/// How clients are treated.
#[derive(Debug, Clone)]
pub struct Client {
    /// whether a client's FIN on HTTP/1.1 only ends its sending side (else it is a cancel)
    pub half_close: bool,
}

/// Bounds on memory and counts.
#[derive(Debug, Clone)]
pub struct Limits {
    /// request bytes held whole for skimming and retry; larger bodies stream
    pub hold_bytes: usize,
    /// largest request body; above it 413
    pub body_bytes: u64,
    /// request bytes held by all requests together
    pub buffered_bytes: u64,
    /// how long a request may wait for room in `buffered_bytes` before 503
    pub buffered_wait: Duration,
    /// open client connections
    pub max_connections: usize,
    /// largest request head
    pub head_bytes: usize,
    /// metric series, past which figures go to `other`
    pub max_series: usize,
}

/// When the configuration is read again by itself.
#[derive(Debug, Clone)]
pub struct Reload {
    /// whether the file, and files that it names, are watched
    pub watch: bool,
    /// time between two looks at them
    pub check: Duration,
}

/// Second tries of a request that no instance has begun to answer.
#[derive(Debug, Clone)]
pub struct Retries {
    /// instances tried for one request, the first one counted
    pub instances_max: usize,
    /// whether a request refused with 429 or 503 goes to another instance
    pub busy: bool,
    /// whether a request is sent again when its kept-alive connection closes without an answer
    pub resend: bool,
    /// retries under way, as a share of a pool's open requests
    pub budget_share: f64,
    /// retries that may be under way however few requests are open
    pub budget_least: u32,
}

/// Bounds on waiting.
#[derive(Debug, Clone)]
pub struct Timeouts {
    /// to open a connection to an instance
    pub connect: Duration,
    /// from the request's last byte to the response's head
    pub headers: Duration,
    /// from the response's head to the first byte of its body
    pub first_event: Duration,
    /// between two reads of a response's body
    pub silence: Duration,
    /// for a client to send a request's head, from its first byte on
    pub client_header: Duration,
    /// for a client to send the next 16 KiB of a request's body, or the rest of it
    pub client_body: Duration,
    /// for a client to take anything of an answer that waits for it
    pub client_write: Duration,
    /// between two requests on a client's connection
    pub client_idle: Duration,
    /// after which an idle connection to an instance is closed; engines close at 5 s
    pub upstream_idle: Duration,
    /// between saying so (`/ready`) and refusing new connections, after a signal to stop
    pub drain_notice: Duration,
    /// for open requests to end then
    pub drain: Duration,
}

/// Whether the proxy may ask an engine for token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageMode {
    /// bodies go on byte for byte; token counts are there when the client asked
    AsAsked,
    /// ask with `stream_options.include_usage`, and keep the added event from a client that did not
    Ask,
}

/// What stamps the arrival of an instance's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalStamp {
    /// the end of the read that brought them
    Read,
    /// the kernel, as it got the last packet of that read (`SO_TIMESTAMPNS`); where it does not, and over TLS, as `read`
    Kernel,
}

/// What is measured and how.
#[derive(Debug, Clone)]
pub struct Measure {
    /// whether answers are read
    pub enabled: bool,
    /// whether engines are asked for token counts
    pub usage: UsageMode,
    /// what stamps the arrival of an instance's bytes
    pub arrival: ArrivalStamp,
    /// bytes of one event that are looked at; the rest of a longer one is passed on unread
    pub scan_cap_bytes: usize,
    /// prompt tokens that one picture counts as
    pub image_tokens: u32,
    /// bytes of chunk log kept for one request; past it the log is cut and says so
    pub chunks_cap_bytes: usize,
    /// output tokens expected of a request before anything was learnt
    pub default_output_tokens: u32,
}

/// Which requests' chunk logs are written beside the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChunkSink {
    /// none
    None,
    /// a random share of requests, `sample`
    Sampled,
    /// all
    All,
}

/// Records of requests: one JSON line each.
#[derive(Debug, Clone, PartialEq)]
pub struct Records {
    /// folder of the run's files
    pub dir: PathBuf,
    /// whose chunk logs are written
    pub chunks: ChunkSink,
    /// share of requests with a chunk log when `chunks` is sampled, 0 to 1
    pub sample: f64,
    /// size at which a new file is begun
    pub rotate_bytes: u64,
    /// age at which a new file is begun
    pub rotate_age: Duration,
    /// records that may wait for the disk; more are dropped and counted
    pub queue: usize,
}

/// Logs.
#[derive(Debug, Clone)]
pub struct Log {
    /// level or `tracing` filter, overridden by `EVENKEEL_LOG`
    pub level: String,
    /// the access log; `None` writes none
    pub access: Option<AccessLog>,
}

/// One line a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// file to append to; `None` is standard error
    pub path: Option<PathBuf>,
    /// how a line looks
    pub format: AccessFormat,
}

/// How a line of the access log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessFormat {
    /// key=value words
    Text,
    /// a JSON object
    Json,
}

/// Instances that share requests under one policy.
#[derive(Debug, Clone)]
pub struct Pool {
    /// unique name
    pub name: Arc<str>,
    /// models served; may be empty in the catch-all pool
    pub models: Vec<Model>,
    /// how an instance is chosen
    pub policy: PolicyConfig,
    /// which instances take requests
    pub health: Health,
    /// the instances; at least one
    pub instances: Vec<Instance>,
    /// whether requests for models that no pool names come here
    pub default: bool,
    /// credential that the instances ask for
    pub engine_key: Option<SecretSource>,
    /// how TLS is spoken with `https://` instances
    pub tls: PoolTls,
}

/// What is done when no instance of a pool is left in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenNoneLeft {
    /// all are used, as if all were in
    Try,
    /// 503 at once
    Refuse,
}

/// When an instance is taken out of a pool, and how it comes back.
#[derive(Debug, Clone)]
pub struct Health {
    /// path of the active check; `None`: no checks
    pub check_path: Option<String>,
    /// time between two checks of an instance
    pub check_interval: Duration,
    /// time a check waits for an answer
    pub check_timeout: Duration,
    /// failed checks in a row after which an instance is out
    pub check_failures: u32,
    /// failed requests in a row after which an instance is out; 0: any number
    pub failures_in_a_row: u32,
    /// share of failed requests in a window from which on an instance is out
    pub failure_share: f64,
    /// length of that window
    pub window: Duration,
    /// requests in a window below which its share says nothing
    pub window_requests: u32,
    /// share of the instances that failed requests may take out
    pub ejected_share_max: f64,
    /// time between two requests let through to an instance that is out
    pub probe_interval: Duration,
    /// what is done when no instance is left in
    pub when_none_left: WhenNoneLeft,
    /// longest time an instance is left alone because it asked for it
    pub retry_after_max: Duration,
    /// length of the slow start of an instance that is back
    pub slow_start: Duration,
}

/// TLS with a pool's instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolTls {
    /// authorities that instances' certificates are checked against; `None` takes the public ones
    pub ca: Option<PathBuf>,
    /// what we show to instances
    pub identity: Option<Identity>,
    /// the name that certificates must be for; `None` takes the URL's host
    pub server_name: Option<ServerName<'static>>,
}

impl PoolTls {
    /// All files that it names.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let identity = self.identity.iter();
        let identity = identity.flat_map(|one| [one.cert.as_path(), one.key.as_path()]);
        self.ca.as_deref().into_iter().chain(identity)
    }
}

/// A certificate and its key, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// the certificate, and those that lead to its authority
    pub cert: PathBuf,
    /// its private key
    pub key: PathBuf,
}

/// A model that a pool serves. Bodies go on unchanged: an alias reaches the engine as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// name as requests give it
    pub name: String,
    /// further names that lead to the same place (adapters too)
    pub aliases: Vec<String>,
}

/// One inference server.
#[derive(Debug, Clone)]
pub struct Instance {
    /// unique in its pool; `host:port` unless given
    pub name: Arc<str>,
    /// where it listens
    pub url: Upstream,
    /// its share of work relative to the others, above 0
    pub weight: f64,
    /// free words that go to metrics and reports
    pub labels: BTreeMap<String, String>,
}

/// Where an instance listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// whether TLS is spoken there
    pub tls: bool,
    /// name or address, IPv6 without brackets
    pub host: String,
    /// TCP port
    pub port: u16,
    /// the `Host` header: `host:port`, or `host` alone on the scheme's own port
    pub authority: String,
    /// put before every path; empty or `/like/this`, without an ending slash
    pub base_path: String,
}

impl fmt::Display for Upstream {
    /// As a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base_path)
    }
}

/// Where a request may go: a pool, and the model's place in that pool's table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// index in [`Config::pools`]
    pub pool: usize,
    /// index in [`Pool::models`]; its length for a model the pool takes without naming it
    pub model: u32,
    /// the pool's share of this model's requests, relative to the other places
    pub share: f64,
}

/// Which pools serve which model.
#[derive(Debug, Clone, Default)]
pub struct ModelTable {
    /// by model name or alias
    pub by_name: HashMap<String, Vec<Place>>,
    /// for a model that is not in the table
    pub catch_all: Option<Place>,
    /// for a request that names no model: the catch-all pool, or the only one
    pub unnamed: Option<Place>,
}

/// The pools that may serve a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PoolChoice<'a> {
    /// one pool
    One(Place),
    /// several, by share
    Split(&'a [Place]),
}

impl PoolChoice<'_> {
    /// The place to use; `random` is uniform in 0..1.
    pub fn pick(self, random: f64) -> Place {
        let places = match self {
            PoolChoice::One(place) => return place,
            PoolChoice::Split(places) => places,
        };
        let mut left = random * places.iter().map(|place| place.share).sum::<f64>();
        let mut chosen = places[0];
        for place in places {
            chosen = *place;
            left -= place.share;
            if left < 0.0 {
                break;
            }
        }
        chosen
    }
}

/// Why no pool can serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPool {
    /// nobody serves that model: 404 `model_not_found`
    #[error("no pool serves this model")]
    UnknownModel,
    /// several pools, none of them the catch-all, and the request names no model: 400
    #[error("the request names no model and several pools could be meant")]
    ModelMissing,
}

impl Config {
    /// Files that are read when the configuration is, but for those of `server.tls`, which are watched apart.
    pub fn named_files(&self) -> impl Iterator<Item = &Path> {
        let tls = self.pools.iter().flat_map(|pool| pool.tls.files());
        let keys = self
            .pools
            .iter()
            .filter_map(|pool| pool.engine_key.as_ref());
        let secrets = keys.chain(&self.admin.token);
        tls.chain(secrets.filter_map(SecretSource::file))
    }

    /// Where a request for `model` may go.
    pub fn pools_for(&self, model: Option<&str>) -> Result<PoolChoice<'_>, NoPool> {
        let Some(model) = model else {
            return self
                .models
                .unnamed
                .map(PoolChoice::One)
                .ok_or(NoPool::ModelMissing);
        };
        match self.models.by_name.get(model).map(Vec::as_slice) {
            Some([only]) => Ok(PoolChoice::One(*only)),
            Some(several @ [_, ..]) => Ok(PoolChoice::Split(several)),
            _ => self
                .models
                .catch_all
                .map(PoolChoice::One)
                .ok_or(NoPool::UnknownModel),
        }
    }
}
