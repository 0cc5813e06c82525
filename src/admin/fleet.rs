//! `/api/fleet`: pools and instances now, with what their users wait for.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_policies::load::InstanceState;
use serde_json::{Map, Value, json};

use crate::fleet::health::Cause;
use crate::fleet::snapshot::{InstanceSnapshot, PoolSnapshot};
use crate::measure::clock::now_ns;
use crate::measure::histograms::{Cut, SeriesKey, SeriesQuantiles, Totals};
use crate::measure::outcome::Outcome;
use crate::measure::skew;
use crate::measure::windows::Window;
use crate::proxy::core::Shared;

const WINDOWS: [(&str, Window); 3] = [
    ("1m", Window::OneMinute),
    ("5m", Window::FiveMinutes),
    ("total", Window::Total),
];

/// Figures by series, for each window.
struct Figures {
    windows: Vec<(&'static str, BTreeMap<SeriesKey, Vec<SeriesQuantiles>>)>,
    totals: BTreeMap<SeriesKey, Totals>,
}

impl Figures {
    fn read(shared: &Shared) -> Self {
        let now = now_ns();
        let by_key = |window| {
            let mut by_key: BTreeMap<SeriesKey, Vec<SeriesQuantiles>> = BTreeMap::new();
            for quantiles in shared.registry.quantiles(now, window) {
                by_key
                    .entry(quantiles.key.clone())
                    .or_default()
                    .push(quantiles);
            }
            by_key
        };
        let windows = WINDOWS
            .iter()
            .map(|(name, window)| (*name, by_key(*window)))
            .collect();
        Self {
            windows,
            totals: with_wholes(shared.registry.totals()),
        }
    }

    /// `{"1m": {"client_ttft_ms": {"count": …, "p50": …}}}`; a figure without values is absent.
    fn quantiles(&self, key: &SeriesKey) -> Value {
        let window = |by_key: &BTreeMap<SeriesKey, Vec<SeriesQuantiles>>| {
            let figures = by_key.get(key).into_iter().flatten().map(|one| {
                let name = serde_json::to_value(one.figure).unwrap_or_default();
                let name = format!("{}_ms", name.as_str().unwrap_or("figure"));
                let value = json!({"count": one.count, "p50": one.p50, "p90": one.p90, "p95": one.p95,
                    "p99": one.p99, "max": one.max, "mean": one.mean});
                (name, value)
            });
            Value::Object(figures.collect::<Map<_, _>>())
        };
        Value::Object(
            self.windows
                .iter()
                .map(|(name, by_key)| ((*name).to_owned(), window(by_key)))
                .collect(),
        )
    }

    fn requests(&self, key: &SeriesKey) -> Value {
        let Some(totals) = self.totals.get(key) else {
            return json!({});
        };
        let counts = Outcome::ALL
            .iter()
            .map(|outcome| (outcome.name().to_owned(), json!(totals.of(*outcome))));
        Value::Object(counts.filter(|(_, count)| *count != json!(0)).collect())
    }

    /// Each instance's part of the pool's ended requests and of their tokens, estimates included.
    fn shares(&self, pool: &PoolSnapshot) -> Vec<Shares> {
        let totals = pool.instances.iter().map(|instance| {
            let totals = self.totals.get(&instance_key(pool, instance));
            let tokens = |totals: &Totals| {
                (totals.prompt_tokens + totals.output_tokens) as f64 + totals.output_tokens_est
            };
            let requests = totals.map_or(0.0, |totals| totals.requests() as f64);
            (requests, totals.map_or(0.0, tokens))
        });
        let (requests, tokens): (Vec<f64>, Vec<f64>) = totals.unzip();
        let shares = skew::shares(&requests)
            .into_iter()
            .zip(skew::shares(&tokens));
        shares
            .map(|(requests, tokens)| Shares { requests, tokens })
            .collect()
    }

    fn tokens(&self, key: &SeriesKey) -> Value {
        let Some(totals) = self.totals.get(key) else {
            return json!({});
        };
        json!({
            "prompt_tokens": totals.prompt_tokens,
            "output_tokens": totals.output_tokens,
            "output_tokens_est": totals.output_tokens_est,
            "requests_with_usage": totals.with_usage,
            "requests_without_usage": totals.without_usage,
        })
    }
}

/// An instance's part of its pool; absent before there is anything to share.
struct Shares {
    requests: Option<f64>,
    tokens: Option<f64>,
}

/// Totals with each pool's whole, the sum of its instances.
fn with_wholes(mut totals: BTreeMap<SeriesKey, Totals>) -> BTreeMap<SeriesKey, Totals> {
    let mut wholes: BTreeMap<SeriesKey, Totals> = BTreeMap::new();
    for (key, totals) in totals.iter().filter(|(key, _)| key.cut == Cut::Instance) {
        let whole = pool_key(&key.pool);
        wholes.entry(whole).or_default().merge(totals);
    }
    totals.append(&mut wholes);
    totals
}

fn pool_key(pool: &Arc<str>) -> SeriesKey {
    SeriesKey {
        pool: pool.clone(),
        cut: Cut::Pool,
        name: "".into(),
    }
}

fn instance_key(pool: &PoolSnapshot, instance: &InstanceSnapshot) -> SeriesKey {
    SeriesKey {
        pool: pool.name.clone(),
        cut: Cut::Instance,
        name: instance.name.clone(),
    }
}

/// The whole answer.
pub fn json(shared: &Shared) -> Value {
    let figures = Figures::read(shared);
    let speeds = shared.registry.speeds();
    let generation = shared.generation();
    let pools = generation.fleet.snapshot().pools.into_iter();
    let pools = pools.map(|snapshot| {
        let speed_of = |name: &str| {
            let speed = speeds
                .iter()
                .find(|speed| *speed.pool == *snapshot.name && *speed.instance == *name);
            speed.and_then(|speed| speed.speed_vs_fleet)
        };
        let instances: Vec<Value> = snapshot
            .instances
            .iter()
            .zip(figures.shares(&snapshot))
            .map(|(instance, shares)| {
                let speed = speed_of(&instance.name);
                instance_json(&snapshot, instance, &figures, speed, shares)
            })
            .collect();
        pool_json(&snapshot, instances, &figures)
    });
    json!({"pools": pools.collect::<Vec<_>>()})
}

fn pool_json(pool: &PoolSnapshot, instances: Vec<Value>, figures: &Figures) -> Value {
    let key = pool_key(&pool.name);
    json!({
        "name": &*pool.name,
        "policy": &*pool.policy,
        "removed": pool.removed,
        "queued_requests": pool.queued,
        "retries_open": pool.retries.open,
        "retries_refused": pool.retries.refused,
        "fallbacks": pool.fallbacks,
        "load_skew": pool.load_skew.map(|skew| skew.measured),
        "load_skew_by_chance": pool.load_skew.map(|skew| skew.by_chance),
        "requests": figures.requests(&key),
        "tokens": figures.tokens(&key),
        "quantiles": figures.quantiles(&key),
        "instances": instances,
    })
}

fn instance_json(
    pool: &PoolSnapshot,
    instance: &InstanceSnapshot,
    figures: &Figures,
    speed: Option<f64>,
    shares: Shares,
) -> Value {
    let key = instance_key(pool, instance);
    json!({
        "name": &*instance.name,
        "url": instance.url,
        "health": health(instance.state),
        "ejections": ejections(instance),
        "weight": instance.weight,
        "labels": instance.labels,
        "outstanding_requests": instance.outstanding_requests,
        "outstanding_tokens": instance.outstanding_tokens,
        "mean_outstanding_tokens": instance.mean_outstanding_tokens,
        "speed_vs_fleet": speed,
        "share_requests": shares.requests,
        "share_tokens": shares.tokens,
        "requests": figures.requests(&key),
        "tokens": figures.tokens(&key),
        "quantiles": figures.quantiles(&key),
    })
}

/// How often the instance was taken out, by cause.
fn ejections(instance: &InstanceSnapshot) -> Value {
    let counts = Cause::ALL.iter().zip(instance.ejections);
    Value::Object(
        counts
            .map(|(cause, count)| (cause.name().to_owned(), json!(count)))
            .collect(),
    )
}

/// The word for an instance's state.
pub fn health(state: InstanceState) -> &'static str {
    match state {
        InstanceState::Up => "up",
        InstanceState::Probing => "probing",
        InstanceState::Draining => "draining",
        InstanceState::Down => "down",
        InstanceState::Leaving => "leaving",
    }
}
