//! Active checks: asks every instance at an interval, on connections of their own, and tells the pool's health.
//!
//! They hold no place on an instance and are in no figure.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, header};
use tokio::time::MissedTickBehavior;

use super::body::UpstreamBody;
use super::core::Shared;
use super::upstream::{self, AttemptError};
use crate::config::checked::ArrivalStamp;
use crate::fleet::health::Checked;
use crate::fleet::pool::{Instance, Pool};

/// How often health may change by time alone.
const TICK: Duration = Duration::from_millis(100);

/// Begins to check all instances of all pools. To be called in the runtime that is to do it.
pub fn begin(shared: &Arc<Shared>) {
    for (pool_index, pool) in shared.fleet.pools.iter().enumerate() {
        tokio::spawn(tick(pool.clone()));
        let Some(path) = &pool.health.check_path else {
            continue;
        };
        for instance in &pool.instances {
            let one = check_forever(shared.clone(), pool_index, instance.clone(), path.clone());
            tokio::spawn(one);
        }
    }
}

async fn tick(pool: Arc<Pool>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        pool.judge_by_time();
    }
}

async fn check_forever(
    shared: Arc<Shared>,
    pool_index: usize,
    instance: Arc<Instance>,
    path: String,
) {
    let pool = &shared.fleet.pools[pool_index];
    let rules = &pool.health;
    // not all at once
    tokio::time::sleep(rules.check_interval.mul_f64(rand::random())).await;
    let mut ticks = tokio::time::interval(rules.check_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let one = check(&shared, pool_index, &instance, &path);
        let checked = tokio::time::timeout(rules.check_timeout, one)
            .await
            .unwrap_or(Checked::TimedOut);
        if checked != Checked::Answered {
            tracing::debug!(pool = %pool.name, instance = %instance.name, ?checked, "check");
        }
        pool.checked(instance.id, checked);
    }
}

async fn check(shared: &Shared, pool_index: usize, instance: &Instance, path: &str) -> Checked {
    match ask(shared, pool_index, instance, path).await {
        Ok(status) if status < 500 => Checked::Answered,
        Err(AttemptError::ConnectTimeout(_)) => Checked::TimedOut,
        _ => Checked::Failed,
    }
}

async fn ask(
    shared: &Shared,
    pool_index: usize,
    instance: &Instance,
    path: &str,
) -> Result<u16, AttemptError> {
    let config = &shared.config;
    let connection = upstream::connect(
        &instance.url,
        shared.outbound[pool_index].as_ref(),
        config.timeouts.connect,
        config.limits.head_bytes,
        ArrivalStamp::Read,
    )
    .await?;
    let mut request = Request::new(UpstreamBody::Held(None));
    *request.method_mut() = Method::GET;
    let target = format!("{}{path}", instance.url.base_path);
    *request.uri_mut() = target.parse().unwrap_or_default();
    if let Ok(host) = HeaderValue::from_str(&instance.url.authority) {
        request.headers_mut().insert(header::HOST, host);
    }
    shared.credentials[pool_index].apply(request.headers_mut());
    let close = HeaderValue::from_static("close");
    request.headers_mut().insert(header::CONNECTION, close);
    let (head, _) = connection.send(request, config.timeouts.headers).await?;
    Ok(head.status.as_u16())
}
