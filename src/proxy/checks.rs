//! Active checks: asks every instance at an interval, on connections of their own, and tells the pool's health.
//!
//! They hold no place on an instance and are in no figure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, header};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::body::UpstreamBody;
use super::core::Shared;
use super::upstream::{self, AttemptError};
use crate::config::checked::{ArrivalStamp, Config};
use crate::fleet::Members;
use crate::fleet::health::Checked;
use crate::fleet::instance::Instance;
use crate::fleet::link::Link;
use crate::fleet::pool::Pool;

/// How often health may change by time alone, and how long a new instance may wait to be noticed.
const TICK: Duration = Duration::from_millis(100);

/// Between two looks at what is due.
const PAUSE_LEAST: Duration = Duration::from_millis(5);

/// The next check of an instance, and the one under way.
struct Due {
    at: Instant,
    running: Option<JoinHandle<()>>,
}

/// Checks all instances there are at any time, for as long as it is polled.
pub async fn watch_over(shared: Arc<Shared>) {
    let mut due: HashMap<u64, Due> = HashMap::new();
    loop {
        let generation = shared.generation();
        let mut next = Instant::now() + TICK;
        let mut seen = HashSet::with_capacity(due.len());
        for pool in generation.fleet.all() {
            pool.judge_by_time();
            let members = Arc::clone(&pool.members());
            let Some(path) = &members.health.check_path else {
                continue;
            };
            let interval = members.health.check_interval;
            for instance in &members.instances {
                seen.insert(instance.serial);
                // not all at once
                let first = || Due {
                    at: Instant::now() + interval.mul_f64(rand::random()),
                    running: None,
                };
                let due = due.entry(instance.serial).or_insert_with(first);
                // the interval may be shorter now
                due.at = due.at.min(Instant::now() + interval);
                let is_free = due.running.as_ref().is_none_or(JoinHandle::is_finished);
                if due.at <= Instant::now() && is_free {
                    due.at = Instant::now() + interval;
                    let one = check_once(
                        generation.config.clone(),
                        pool.clone(),
                        members.clone(),
                        instance.clone(),
                        path.clone(),
                    );
                    due.running = Some(tokio::spawn(one));
                }
                next = next.min(due.at);
            }
        }
        due.retain(|serial, _| seen.contains(serial));
        drop(generation);
        // a check that takes longer than its interval is not waited for by spinning
        let pause = next.saturating_duration_since(Instant::now());
        tokio::time::sleep(pause.max(PAUSE_LEAST)).await;
    }
}

async fn check_once(
    config: Arc<Config>,
    pool: Arc<Pool>,
    members: Arc<Members>,
    instance: Arc<Instance>,
    path: String,
) {
    let one = check(&config, &members.link, &instance, &path);
    let checked = tokio::time::timeout(members.health.check_timeout, one)
        .await
        .unwrap_or(Checked::TimedOut);
    if checked != Checked::Answered {
        tracing::debug!(pool = %pool.name, instance = %instance.name, ?checked, "check");
    }
    pool.checked(instance.id, checked);
}

async fn check(config: &Config, link: &Link, instance: &Instance, path: &str) -> Checked {
    match ask(config, link, instance, path).await {
        Ok(status) if status < 500 => Checked::Answered,
        Err(AttemptError::ConnectTimeout(_)) => Checked::TimedOut,
        _ => Checked::Failed,
    }
}

async fn ask(
    config: &Config,
    link: &Link,
    instance: &Instance,
    path: &str,
) -> Result<u16, AttemptError> {
    let connection = upstream::connect(
        &instance.url,
        link.tls.as_deref(),
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
    link.credentials.apply(request.headers_mut());
    let close = HeaderValue::from_static("close");
    request.headers_mut().insert(header::CONNECTION, close);
    let (head, _) = connection.send(request, config.timeouts.headers).await?;
    Ok(head.status.as_u16())
}
