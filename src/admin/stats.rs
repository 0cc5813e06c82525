//! `/api/stats`: the process and its counts since the start.
//!
//! | key | meaning |
//! | --- | --- |
//! | `version` | of this program |
//! | `uptime_s` | seconds since the start |
//! | `workers` | threads that serve, as configured |
//! | `draining` | stopping: takes no new requests |
//! | `generation` | of the configuration: 1 at the start, one more with each change |
//! | `connections.open`, `.by_core` | open client connections; the same by core |
//! | `requests` | ended requests over all pools, by outcome; an outcome without requests is absent |
//! | `failed` | of these `client_error`, `engine_error`, `cut` and `timeout` |
//! | `usage.with`, `.without` | `ok` requests whose answer had `usage`, and had none |
//! | `usage.coverage` | share with `usage`; null before the first |
//! | `retries`, `unmeasured` | attempts after a request's first; answers that could not be read |
//! | `records.written`, `.dropped`, `.disk_errors` | null where no records are kept |
//! | `access_log.dropped` | null where none is kept |
//! | `memory.figures_bytes` | held by histograms and other figures, roughly |
//! | `memory.resident_bytes` | of the process; null where the system does not tell |
//! | `pools[].name`, `.policy` | |
//! | `pools[].queued` | requests waiting for an instance now |
//! | `pools[].grants`, `.finishes` | requests given an instance; given back |
//! | `pools[].cancels` | waiting requests whose client left |
//! | `pools[].sheds` | refused: `queue_full`, `queue_bytes`, `queue_wait`, `no_instance` |
//! | `pools[].fallbacks` | decisions the policy could not make by its own rule |
//! | `pools[].policy_failed` | choices of the policy that could not be used |
//! | `pools[].excluded_used` | retries that had to go where the request had failed before |
//! | `pools[].stale`, `.stale_finishes` | reports on requests that had ended; of these, ends |

use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Map, Value, json};

use crate::fleet::snapshot::PoolSnapshot;
use crate::measure::clock::now_ns;
use crate::measure::histograms::{Cut, Totals};
use crate::measure::outcome::Outcome;
use crate::proxy::core::Shared;

/// The whole answer.
pub fn json(shared: &Shared) -> Value {
    let totals = over_all(shared);
    let with_or_without = totals.with_usage + totals.without_usage;
    let coverage = (with_or_without > 0).then(|| totals.with_usage as f64 / with_or_without as f64);
    let by_core = shared.live.iter().map(|live| live.load(Relaxed));
    let records = shared.records.as_ref().map(|records| {
        json!({
            "written": records.written(),
            "dropped": records.dropped(),
            "disk_errors": records.disk_errors(),
        })
    });
    let access_log = shared.access_log.as_ref();
    let generation = shared.generation();
    let fleet = generation.fleet.snapshot();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": now_ns().saturating_sub(shared.started_ns) as f64 / 1e9,
        "workers": generation.config.server.workers,
        "draining": shared.draining.load(Relaxed),
        "generation": generation.number,
        "connections": {
            "open": shared.connections.load(Relaxed),
            "by_core": by_core.collect::<Vec<usize>>(),
        },
        "requests": by_outcome(&totals),
        "failed": totals.failed(),
        "usage": {
            "with": totals.with_usage,
            "without": totals.without_usage,
            "coverage": coverage,
        },
        "retries": totals.retries,
        "unmeasured": totals.unmeasured,
        "records": records,
        "access_log": access_log.map(|log| json!({"dropped": log.dropped()})),
        "memory": {
            "figures_bytes": shared.registry.bytes(),
            "resident_bytes": resident_bytes(),
        },
        "pools": fleet.pools.iter().map(pool_json).collect::<Vec<_>>(),
    })
}

/// Totals of all requests, those without a pool too.
fn over_all(shared: &Shared) -> Totals {
    let mut all = Totals::default();
    for (key, totals) in shared.registry.totals() {
        if key.cut == Cut::Instance {
            all.merge(&totals);
        }
    }
    all
}

fn by_outcome(totals: &Totals) -> Map<String, Value> {
    let counts = Outcome::ALL
        .into_iter()
        .map(|outcome| (outcome, totals.of(outcome)));
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(outcome, count)| (outcome.name().to_owned(), json!(count)))
        .collect()
}

fn pool_json(pool: &PoolSnapshot) -> Value {
    let counters = &pool.counters;
    let sheds = pool
        .sheds()
        .map(|(reason, count)| (reason.to_owned(), json!(count)));
    json!({
        "name": &*pool.name,
        "policy": &*pool.policy,
        "queued": pool.queued,
        "grants": counters.grants,
        "finishes": counters.finishes,
        "cancels": counters.cancels,
        "sheds": Map::from_iter(sheds),
        "fallbacks": pool.fallbacks,
        "policy_failed": counters.policy_failed,
        "excluded_used": counters.excluded_used,
        "stale": counters.stale,
        "stale_finishes": counters.stale_finishes,
    })
}

/// Resident memory as Linux tells it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}
