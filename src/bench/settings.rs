//! The options of a run, checked and resolved: whom to ask, how, for how long, with what to spare.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, header};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::BenchError;
use super::options::BenchArgs;
use super::plan::{self, Extent, Mode};
use super::replay::{Replaying, Sent};
use super::target::{self, Target};
use super::{models, result_file};
use crate::load::client::ClientOptions;
use crate::load::request::{OWN_KEYS, RequestForm};
use crate::load::runner::{Pace, RunResult, RunSpec};
use crate::load::workload::Class;
use crate::report::goodput::Objective;
use crate::report::load_summary::Reading;
use crate::report::window::WindowRule;

/// File descriptors that are not for connections: logs, files, the runtime.
const SPARE_DESCRIPTORS: u64 = 64;
/// Headers that a request has already.
const OURS: [HeaderName; 6] = [
    header::HOST,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::ACCEPT,
];

/// A run as it will be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// how requests are written
    pub form: RequestForm,
    /// what decides when they are sent
    pub mode: Mode,
    /// for how long
    pub extent: Extent,
    /// what they are
    pub classes: Vec<Class>,
    /// the classes are an assumption of ours
    pub mix_assumed: bool,
    /// a trace that is sent in their place
    pub replaying: Option<Arc<Replaying>>,
    /// seed of arrivals, lengths and texts
    pub seed: u64,
    /// what counts
    pub rule: WindowRule,
    /// most requests unanswered at once: as asked, or what the file descriptors allow
    pub max_in_flight: usize,
    /// longest time from send to last byte
    pub request_timeout: Duration,
}

impl Settings {
    /// Resolves the options and finds whom to ask; asks the server for its model if none was named.
    pub fn of(args: &BenchArgs) -> Result<(Settings, Target), BenchError> {
        let mut settings = Settings::unaddressed(args)?;
        let target = Target::find(args)?;
        let form = &mut settings.form;
        if form.model.is_empty() {
            form.model = models::first(&target, &form.headers)?;
        }
        form.api = target.api;
        form.path = format!("{}{}", target.base_path, target.endpoint);
        form.host.clone_from(&target.authority);
        Ok((settings, target))
    }

    /// Resolves the options but for whom to ask, which a run in virtual time does without.
    pub fn unaddressed(args: &BenchArgs) -> Result<Settings, BenchError> {
        let mode = Mode::of(args)?;
        let (classes, mix_assumed) = plan::classes(args)?;
        let replaying = Replaying::of(args, mode)?.map(Arc::new);
        let max_in_flight = places(args)?;
        let headers = headers(args)?;
        let model = args.served_model_name.as_ref().or(args.model.as_ref());
        let (api, path) = target::endpoint(args)?;
        Ok(Settings {
            form: RequestForm {
                api,
                path,
                host: String::new(),
                model: model.cloned().unwrap_or_default(),
                headers,
                ignore_eos: args.ignore_eos,
                extra_body: extra_body(args)?,
                id_prefix: id_prefix(args)?,
            },
            mode,
            extent: match &replaying {
                Some(replaying) if args.duration.is_none() => {
                    Extent::Requests(replaying.replayed.requests.len() as u32)
                }
                _ => Extent::of(args),
            },
            classes,
            mix_assumed,
            replaying,
            seed: args.seed,
            rule: WindowRule {
                warm_up_ns: (args.warmup_s * 1e9) as u64,
                trim_s: args.trim_s,
            },
            max_in_flight,
            request_timeout: Duration::from_secs_f64(args.request_timeout_s),
        })
    }

    /// Of a replay, what was sent beside its trace.
    pub fn sent(&self, run: &RunResult) -> Option<Sent> {
        self.replaying.as_ref()?.sent(&run.samples)
    }

    /// How what it saw is to be read.
    pub fn reading(&self, objectives: &[Objective]) -> Reading {
        Reading {
            rule: self.rule,
            objectives: objectives.to_vec(),
            scheduled: self.mode.is_scheduled(),
        }
    }

    /// The run itself, against `target`.
    pub fn run_spec(&self, target: SocketAddr) -> Result<RunSpec, BenchError> {
        let (requests, pace) = match &self.replaying {
            Some(replaying) => (replaying.requests(), Pace::Schedule),
            None => plan::requests(
                self.mode,
                self.extent,
                self.classes.clone(),
                self.seed,
                self.rule.warm_up_ns,
            )?,
        };
        let form = self.form.clone();
        Ok(RunSpec {
            target,
            requests,
            render: Box::new(move |request| form.render(request)),
            pace,
            max_in_flight: self.max_in_flight,
            client: ClientOptions {
                answer_timeout: self.request_timeout,
                keep_gaps: true,
                ..ClientOptions::default()
            },
        })
    }
}

/// How many connections may be open: as asked, if the system lets us.
fn places(args: &BenchArgs) -> Result<usize, BenchError> {
    let descriptors = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1024);
    let possible = descriptors.saturating_sub(SPARE_DESCRIPTORS).max(1);
    let asked = args.max_concurrency.map_or(possible, u64::from);
    if asked > possible {
        return Err(BenchError::Options(format!(
            "--max-concurrency {asked} needs as many file descriptors, and this process may open {descriptors}: raise the limit (ulimit -n {}) or give at most {possible}",
            asked + SPARE_DESCRIPTORS
        )));
    }
    Ok(usize::try_from(asked.min(Semaphore::MAX_PERMITS as u64)).unwrap_or(usize::MAX))
}

/// The headers asked for and the key, as they go on the wire.
fn headers(args: &BenchArgs) -> Result<String, BenchError> {
    let mut out = String::new();
    let mut has_key = false;
    for given in &args.header {
        let (name, value) = key_value("--header", given)?;
        let wrong = |why: &str| {
            BenchError::Options(format!(
                "--header `{name}` {why}: give KEY=VALUE, such as x-team=search"
            ))
        };
        // Not repeated: what stands before a key's own `=` may be the key.
        let name_read: HeaderName = name.parse().map_err(|_| {
            BenchError::Options(
                "--header has a key that is no header name: give KEY=VALUE, such as x-team=search"
                    .into(),
            )
        })?;
        if OURS.contains(&name_read) || name_read.as_str() == "x-request-id" {
            return Err(wrong("is set by bench itself"));
        }
        HeaderValue::from_str(value).map_err(|_| wrong("has a value no header can have"))?;
        has_key |= name_read == header::AUTHORIZATION;
        out += &format!("{name_read}: {value}\r\n");
    }
    if let Ok(key) = std::env::var(&args.api_key_env)
        && !has_key
    {
        // The key is not repeated: messages end up in logs.
        let value = format!("Bearer {}", key.trim());
        if HeaderValue::from_str(&value).is_err() {
            return Err(BenchError::Options(format!(
                "the key in ${} has characters no header can have",
                args.api_key_env
            )));
        }
        out += &format!("authorization: {value}\r\n");
    }
    Ok(out)
}

/// More keys of the body; those that bench sets itself would make another load of it.
fn extra_body(args: &BenchArgs) -> Result<Map<String, Value>, BenchError> {
    let Some(given) = &args.extra_body else {
        return Ok(Map::new());
    };
    let keys: Map<String, Value> = serde_json::from_str(given).map_err(|error| {
        BenchError::Options(format!(
            "--extra-body is no JSON object ({error}): give one such as '{{\"temperature\": 0.7}}'"
        ))
    })?;
    match OWN_KEYS.iter().find(|own| keys.contains_key(**own)) {
        Some(own) => Err(BenchError::Options(format!(
            "--extra-body has `{own}`, which bench sets itself: leave it out"
        ))),
        None => Ok(keys),
    }
}

/// Splits `KEY=VALUE`.
pub fn key_value<'a>(option: &str, given: &'a str) -> Result<(&'a str, &'a str), BenchError> {
    match given.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim(), value.trim())),
        // What was given is not repeated: `authorization: Bearer ...` is no KEY=VALUE either.
        _ => Err(BenchError::Options(format!(
            "{option} takes KEY=VALUE, and one that was given has no `=` or no key"
        ))),
    }
}

fn id_prefix(args: &BenchArgs) -> Result<String, BenchError> {
    let prefix = match &args.request_id_prefix {
        Some(prefix) => prefix.clone(),
        None => format!("bench-{}-", result_file::date_now()),
    };
    if HeaderValue::from_str(&prefix).is_err() {
        return Err(BenchError::Options(format!(
            "--request-id-prefix `{prefix}` has characters no header can have"
        )));
    }
    Ok(prefix)
}
