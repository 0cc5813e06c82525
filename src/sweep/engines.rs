//! Simulated engines and the real proxy in this process, fresh for each point.

use std::net::SocketAddr;
use std::path::Path;

use super::SweepError;
use super::check::profile_of;
use super::drive::{self, Place, drive};
use super::interrupt::Interrupt;
use super::plan::{Plan, Point, Simulated};
use super::progress::Shown;
use super::records::Tail;
use super::sent::Ran;
use crate::engine::EngineError;
use crate::engine::apart::EnginesApart;
use crate::engine::server::EngineOptions;
use crate::load::fetch::Ask;
use crate::monitor::{Endpoint, Kind};
use crate::proxy::{Running, Server};
use crate::simulate::instance_name;
use crate::study::{Load, Setting};

/// File descriptors that are not for requests: listeners, logs, files, idle connections.
const SPARE_DESCRIPTORS: u64 = 512;
const DESCRIPTORS_EACH: u64 = 4;

/// Runs a point; `None` if it was interrupted.
pub fn run(
    plan: &Plan,
    fleet: &Simulated,
    point: &Point,
    interrupt: &Interrupt,
    shown: &Shown,
) -> Result<Option<Ran>, SweepError> {
    let most_at_once = most_at_once(point)?;
    let dir = tempfile::tempdir().map_err(SweepError::Start)?;
    let engines = Engines::start(fleet, &point.setting)?;
    let proxy = start_proxy(
        plan,
        point,
        engines.running.addrs(),
        (dir.path(), most_at_once),
    )?;
    let tail = Tail::begin(dir.path())?;
    let place = Place {
        base_url: format!("http://{}", proxy.server_addr),
        endpoints: endpoints(&engines, proxy.admin_addr),
        id_prefix: drive::id_prefix(point),
        most_at_once: Some(most_at_once),
    };
    let id_prefix = place.id_prefix.clone();
    let driven = drive(plan, point, place, interrupt, shown)?;
    proxy.flush_records();
    let dropped = proxy
        .shared()
        .records
        .as_ref()
        .map_or(0, |records| records.dropped());
    proxy.shutdown();
    let late = engines.stop();
    let Some(driven) = driven else {
        return Ok(None);
    };
    let mut notes = driven.notes;
    notes.extend(late);
    if dropped > 0 {
        notes.push(format!("records: the proxy dropped {dropped}"));
    }
    Ok(Some(Ran {
        online: driven.online,
        batch: driven.batch,
        readings: driven.readings,
        records: Some(tail.found(&id_prefix)?.records),
        notes,
    }))
}

/// How many requests can be under way: each has two connections, and both ends of both are in this process.
fn most_at_once(point: &Point) -> Result<usize, SweepError> {
    let descriptors = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(1024);
    let possible = descriptors.saturating_sub(SPARE_DESCRIPTORS) / DESCRIPTORS_EACH;
    let setting = &point.setting;
    let places = match setting.load {
        Load::Closed { concurrency } => concurrency,
        _ => 0,
    };
    let wanted = u64::from(places) + u64::from(setting.batch_concurrency.unwrap_or(0));
    if wanted > possible {
        return Err(SweepError::Options(format!(
            "{} has {wanted} requests at once, each with {DESCRIPTORS_EACH} file descriptors in this process, which may open {descriptors}: raise the limit (ulimit -n {}), or run with --simulate",
            point.id,
            wanted * DESCRIPTORS_EACH + SPARE_DESCRIPTORS
        )));
    }
    Ok(usize::try_from(possible).unwrap_or(usize::MAX))
}

/// The engines of a point.
struct Engines {
    running: EnginesApart,
    /// whether they have a host of which something can be told
    has_cpu: bool,
}

impl Engines {
    fn start(fleet: &Simulated, setting: &Setting) -> Result<Engines, SweepError> {
        let profile = profile_of(&fleet.profile, setting.gpus_per_instance, &setting.engine)
            .map_err(|why| SweepError::Engine(EngineError::Options(why)))?;
        let has_cpu = profile.cpu.is_some();
        let instances = setting.instances as usize;
        let mut options = EngineOptions::new(profile, instances);
        options.speed_factors = fleet.slow_factors.iter().copied().take(instances).collect();
        options.seed = setting.seed;
        options.model_name.clone_from(&fleet.profile.name);
        Ok(Engines {
            running: EnginesApart::start(options)?,
            has_cpu,
        })
    }

    /// Ends them; tells how late their steps were, which is this machine's doing and not the model's.
    fn stop(self) -> Option<String> {
        let lag = self.running.stop();
        let (p50_ms, p99_ms) = lag.p50_ms.zip(lag.p99_ms)?;
        Some(format!(
            "engines: {} steps, late by P50 {p50_ms:.2} ms, P99 {p99_ms:.2} ms",
            lag.steps
        ))
    }
}

/// All that simulated engines and the proxy show.
fn endpoints(engines: &Engines, admin: Option<SocketAddr>) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    let mut put = |addr: SocketAddr, path: &str, kind: Kind, instance: Option<String>| {
        endpoints.push(Endpoint {
            host: addr.ip().to_string(),
            port: addr.port(),
            ask: Ask {
                authority: addr.to_string(),
                path: path.into(),
                headers: String::new(),
            },
            kinds: vec![kind],
            instance,
            gpu: None,
        });
    };
    for (addr, at) in engines.running.addrs().iter().zip(0..) {
        let name = || Some(instance_name(at));
        put(*addr, "/metrics", Kind::Engine, name());
        put(*addr, "/dcgm/metrics", Kind::Gpu, name());
        if engines.has_cpu {
            put(*addr, "/node/metrics", Kind::Host, name());
        }
    }
    if let Some(addr) = admin {
        put(addr, "/metrics", Kind::Proxy, None);
    }
    endpoints
}

fn start_proxy(
    plan: &Plan,
    point: &Point,
    engines: &[SocketAddr],
    (records, connections): (&Path, usize),
) -> Result<Running, SweepError> {
    let setting = &point.setting;
    let instances: String = engines
        .iter()
        .zip(0..)
        .map(|(addr, at)| {
            let name = instance_name(at);
            format!("\n[[pools.instances]]\nname = \"{name}\"\nurl = \"http://{addr}\"\n")
        })
        .collect();
    let policy = match plan.policy_settings.get(&setting.policy) {
        Some(config) => toml::Value::try_from(config)
            .map(|value| value.to_string())
            .ok(),
        None => None,
    };
    let policy = policy.unwrap_or_else(|| format!("{{ kind = \"{}\" }}", setting.policy));
    let text = format!(
        "seed = {seed}\n\n[server]\nlisten = \"127.0.0.1:0\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n\n[limits]\nmax_connections = {connections}\n\n[records]\ndir = {dir}\n\n[[pools]]\nname = \"sweep\"\npolicy = {policy}\n{instances}",
        seed = setting.seed,
        dir = toml::Value::from(records.display().to_string()),
    );
    let name = format!("the proxy's configuration for {}", point.id);
    Ok(Server::start(crate::config::parse(&text, &name)?)?)
}
