//! `/metrics`: all metrics in Prometheus' text format.

use std::sync::atomic::Ordering::Relaxed;

use evenkeel_policies::load::InstanceState;

use crate::fleet::health::Cause;
use crate::fleet::snapshot::{FleetSnapshot, InstanceSnapshot, PoolSnapshot};
use crate::measure::clock::{Ns, now_ns};
use crate::measure::histograms::Registry;
use crate::measure::prometheus::{self, Described, Family, InstanceName};
use crate::proxy::core::Shared;

/// What is known of the process.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// open client connections
    pub open_connections: usize,
    /// tasks alive on the cores
    pub tasks: usize,
    /// connections refused because too many were open
    pub refused_connections: u64,
    /// heads refused before they were read as requests, by reason
    pub refused_heads: Vec<(&'static str, u64)>,
    /// records written; absent where none are kept
    pub records_written: Option<u64>,
    /// records not written because the queue was full; absent where none are kept
    pub records_dropped: Option<u64>,
    /// write calls for records the disk refused; absent where none are kept
    pub record_disk_errors: Option<u64>,
    /// access log lines dropped because the queue was full; absent where none is kept
    pub access_log_dropped: Option<u64>,
    /// configuration files read again and taken, and refused
    pub reloads: (u64, u64),
    /// the last one read is in use
    pub last_reload_taken: bool,
}

impl Process {
    /// Of a running server.
    pub fn of(shared: &Shared) -> Process {
        let records = shared.records.as_ref();
        Process {
            open_connections: shared.connections.load(Relaxed),
            tasks: shared.tasks(),
            refused_connections: shared.refused_connections.load(Relaxed),
            refused_heads: shared.refused_heads.counts(),
            records_written: records.map(|records| records.written()),
            records_dropped: records.map(|records| records.dropped()),
            record_disk_errors: records.map(|records| records.disk_errors()),
            access_log_dropped: shared.access_log.as_ref().map(|log| log.dropped()),
            reloads: shared.reloads.counts(),
            last_reload_taken: shared.reloads.last_was_taken(),
        }
    }
}

type OfInstance = fn(&InstanceSnapshot) -> f64;

const INSTANCES: [(Described, OfInstance); 5] = [
    (
        Described::gauge(
            "evenkeel_instance_up",
            "",
            "1 if the instance takes requests, 0 if it is down, draining or leaving.",
        ),
        |instance| f64::from(u8::from(instance.state == InstanceState::Up)),
    ),
    (
        Described::gauge(
            "evenkeel_instance_outstanding_requests",
            "",
            "Requests the instance has open through this proxy.",
        ),
        |instance| f64::from(instance.outstanding_requests),
    ),
    (
        Described::gauge(
            "evenkeel_instance_outstanding_tokens",
            "tokens",
            "Prompt tokens to prefill and predicted output tokens left, of its open requests.",
        ),
        |instance| instance.outstanding_tokens as f64,
    ),
    (
        Described::gauge(
            "evenkeel_instance_weight",
            "",
            "Share of work the instance is meant to take.",
        ),
        |instance| instance.weight,
    ),
    (
        Described::counter(
            "evenkeel_instance_outstanding_token_seconds_total",
            "tokens × seconds",
            "Outstanding tokens over the time in rotation; its rate is their mean over the rate's window.",
        ),
        |instance| instance.token_seconds,
    ),
];

const SKEW: Described = Described::gauge(
    "evenkeel_load_skew",
    "",
    "Greatest over mean of the instances' mean outstanding tokens over weight, since the start: 1 is even. Absent under 20 requests per instance.",
);
const SKEW_BY_CHANCE: Described = Described::gauge(
    "evenkeel_load_skew_by_chance",
    "",
    "Load skew that random placement of as many requests would give on average.",
);

const SPEED: Described = Described::gauge(
    "evenkeel_instance_speed_vs_fleet",
    "",
    "TPOT over the other instances' at equal batch and length: 1.6 is 1.6 times slower. Absent under 100 requests of overlapping load.",
);

type OfPool = fn(&PoolSnapshot) -> f64;

const POOLS: [(Described, OfPool); 6] = [
    (
        Described::gauge(
            "evenkeel_retries_open",
            "",
            "Further tries of requests that no instance has begun to answer yet.",
        ),
        |pool| f64::from(pool.retries.open),
    ),
    (
        Described::counter(
            "evenkeel_retries_refused_total",
            "",
            "Further tries not made because the retry budget had no place.",
        ),
        |pool| pool.retries.refused as f64,
    ),
    (
        Described::gauge(
            "evenkeel_queued_requests",
            "",
            "Requests waiting for an instance.",
        ),
        |pool| pool.queued as f64,
    ),
    (
        Described::counter(
            "evenkeel_grants_total",
            "",
            "Requests given an instance, retries too.",
        ),
        |pool| pool.counters.grants as f64,
    ),
    (
        Described::counter(
            "evenkeel_policy_fallbacks_total",
            "",
            "Decisions a policy could not make by its own rule.",
        ),
        |pool| pool.fallbacks as f64,
    ),
    (
        Described::counter(
            "evenkeel_stale_finishes_total",
            "",
            "Ends reported of a request that had ended; other than 0 is a fault of this proxy.",
        ),
        |pool| pool.counters.stale_finishes as f64,
    ),
];

const STATE: Described = Described::gauge(
    "evenkeel_instance_state",
    "",
    "1 for the state the instance is in, 0 for the others: up, probing, draining, down, leaving.",
);
const EJECTIONS: Described = Described::counter(
    "evenkeel_instance_ejections_total",
    "",
    "Times the instance was taken out, by cause: failures_in_a_row, failure_share, checks.",
);
const STATES: [InstanceState; 5] = [
    InstanceState::Up,
    InstanceState::Probing,
    InstanceState::Draining,
    InstanceState::Down,
    InstanceState::Leaving,
];

const SHEDS: Described = Described::counter(
    "evenkeel_sheds_total",
    "",
    "Requests refused by a pool, by reason: queue_full, queue_bytes, queue_wait, no_instance.",
);
const CONNECTIONS: Described =
    Described::gauge("evenkeel_open_connections", "", "Open client connections.");
const TASKS: Described = Described::gauge(
    "evenkeel_tasks",
    "",
    "Tasks alive on the cores: some of each core's own, one a client connection, on HTTP/2 one more a request.",
);
const REFUSED_CONNECTIONS: Described = Described::counter(
    "evenkeel_refused_connections_total",
    "",
    "Client connections refused because `limits.max_connections`, or what the file descriptors allow, were open.",
);
const REFUSED_HEADS: Described = Described::counter(
    "evenkeel_refused_heads_total",
    "",
    "HTTP/1.1 requests refused by their head, by the reason they were told; they make no record.",
);
const RECORDS_WRITTEN: Described =
    Described::counter("evenkeel_records_written_total", "", "Records written.");
const RECORDS_DROPPED: Described = Described::counter(
    "evenkeel_records_dropped_total",
    "",
    "Records not written because the queue was full.",
);
const RECORD_DISK_ERRORS: Described = Described::counter(
    "evenkeel_record_disk_errors_total",
    "",
    "Write calls for records that the disk refused.",
);
const ACCESS_LOG_DROPPED: Described = Described::counter(
    "evenkeel_access_log_dropped_total",
    "",
    "Access log lines not written because the queue was full.",
);
const RELOADS: Described = Described::counter(
    "evenkeel_config_reloads_total",
    "",
    "Configuration files read again, by result: taken, refused.",
);
const LAST_RELOAD: Described = Described::gauge(
    "evenkeel_config_last_reload_taken",
    "",
    "1 if the configuration file that was read last is in use, 0 if it was refused and the one before goes on.",
);
const FIGURES_BYTES: Described = Described::gauge(
    "evenkeel_figures_memory_bytes",
    "bytes",
    "Memory that histograms and other figures hold, roughly.",
);
const BUILD: Described = Described::gauge("evenkeel_build_info", "", "1, with the version.");

/// The text for a running server.
pub fn text(shared: &Shared) -> Result<String, ::prometheus::Error> {
    let fleet = shared.generation().fleet.snapshot();
    encode(&shared.registry, &fleet, &Process::of(shared), now_ns())
}

/// The text from its parts.
pub fn encode(
    registry: &Registry,
    fleet: &FleetSnapshot,
    process: &Process,
    now_ns: Ns,
) -> Result<String, ::prometheus::Error> {
    let fleet = &fleet.by_name();
    let known = fleet
        .instances()
        .map(|(pool, instance)| (pool.name.clone(), instance.name.clone()));
    let known: Vec<InstanceName> = known.collect();
    let mut families = prometheus::registry_families(registry, known, now_ns);
    families.extend(instance_families(fleet));
    families.extend(health_families(fleet));
    families.push(speeds(registry));
    families.extend(pool_families(fleet));
    families.extend(process_families(registry, process));
    prometheus::encode(families)
}

fn instance_families(fleet: &FleetSnapshot) -> Vec<Family> {
    let one = |(described, value): &(Described, OfInstance)| {
        let mut family = Family::new(*described);
        for (pool, instance) in fleet.instances() {
            family.push(
                &[("pool", &pool.name), ("instance", &instance.name)],
                value(instance),
            );
        }
        family
    };
    INSTANCES.iter().map(one).collect()
}

fn health_families(fleet: &FleetSnapshot) -> [Family; 2] {
    let (mut states, mut ejections) = (Family::new(STATE), Family::new(EJECTIONS));
    for (pool, instance) in fleet.instances() {
        let (pool, name) = (("pool", &*pool.name), ("instance", &*instance.name));
        for state in STATES {
            let is_in = f64::from(u8::from(instance.state == state));
            states.push(&[pool, name, ("state", super::fleet::health(state))], is_in);
        }
        for (cause, count) in Cause::ALL.iter().zip(instance.ejections) {
            ejections.push(&[pool, name, ("cause", cause.name())], count as f64);
        }
    }
    [states, ejections]
}

fn speeds(registry: &Registry) -> Family {
    let mut family = Family::new(SPEED);
    for speed in registry.speeds() {
        let labels = [("pool", &*speed.pool), ("instance", &*speed.instance)];
        if let Some(value) = speed.speed_vs_fleet {
            family.push(&labels, value);
        }
    }
    family
}

fn pool_families(fleet: &FleetSnapshot) -> Vec<Family> {
    let one = |(described, value): &(Described, OfPool)| {
        let mut family = Family::new(*described);
        for pool in &fleet.pools {
            family.push(&[("pool", &pool.name)], value(pool));
        }
        family
    };
    let mut families: Vec<Family> = POOLS.iter().map(one).collect();
    let mut sheds = Family::new(SHEDS);
    for pool in &fleet.pools {
        for (reason, count) in pool.sheds() {
            sheds.push(&[("pool", &pool.name), ("reason", reason)], count as f64);
        }
    }
    let (mut skew, mut by_chance) = (Family::new(SKEW), Family::new(SKEW_BY_CHANCE));
    for pool in &fleet.pools {
        let Some(load_skew) = pool.load_skew else {
            continue;
        };
        skew.push(&[("pool", &pool.name)], load_skew.measured);
        by_chance.push(&[("pool", &pool.name)], load_skew.by_chance);
    }
    families.extend([sheds, skew, by_chance]);
    families
}

fn process_families(registry: &Registry, process: &Process) -> Vec<Family> {
    let count = |count: Option<u64>| count.map(|count| count as f64);
    let mut build = Family::new(BUILD);
    build.push(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut reloads = Family::new(RELOADS);
    let (taken, refused) = process.reloads;
    reloads.push(&[("result", "taken")], taken as f64);
    reloads.push(&[("result", "refused")], refused as f64);
    let last = f64::from(u8::from(process.last_reload_taken));
    let mut refused = Family::new(REFUSED_HEADS);
    for (reason, count) in &process.refused_heads {
        refused.push(&[("reason", reason)], *count as f64);
    }
    vec![
        reloads,
        Family::single(LAST_RELOAD, last),
        Family::single(CONNECTIONS, process.open_connections as f64),
        Family::single(TASKS, process.tasks as f64),
        Family::single(REFUSED_CONNECTIONS, process.refused_connections as f64),
        refused,
        Family::single(RECORDS_WRITTEN, count(process.records_written)),
        Family::single(RECORDS_DROPPED, count(process.records_dropped)),
        Family::single(RECORD_DISK_ERRORS, count(process.record_disk_errors)),
        Family::single(ACCESS_LOG_DROPPED, count(process.access_log_dropped)),
        Family::single(FIGURES_BYTES, registry.bytes() as f64),
        build,
    ]
}

/// What all metrics are.
pub fn described() -> Vec<Described> {
    let single = [
        SPEED,
        STATE,
        EJECTIONS,
        SHEDS,
        SKEW,
        SKEW_BY_CHANCE,
        CONNECTIONS,
        TASKS,
        REFUSED_CONNECTIONS,
        REFUSED_HEADS,
        RECORDS_WRITTEN,
        RECORDS_DROPPED,
        RECORD_DISK_ERRORS,
        ACCESS_LOG_DROPPED,
        RELOADS,
        LAST_RELOAD,
        FIGURES_BYTES,
        BUILD,
    ];
    let mut all = prometheus::described();
    all.extend(INSTANCES.iter().map(|(described, _)| *described));
    all.extend(POOLS.iter().map(|(described, _)| *described));
    all.extend(single);
    all
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
pub(crate) mod tests;
