//! Sends a plan open loop: each request at its own time, whatever the earlier ones are doing.
//!
//! The runner has its own thread with its own single-threaded runtime, so that neither the proxy
//! nor the engines of the same process delay its sends, and it publishes how late it was.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::LoadError;
use super::client::{Client, ClientOptions};
use super::request::RequestForm;
use super::sample::Sample;
use super::workload::PlannedRequest;
use crate::measure::clock::{Ns, now_ns};

/// A run of a plan against one address.
#[derive(Debug, Clone)]
pub struct RunSpec {
    /// where to send
    pub target: SocketAddr,
    /// what to send and when
    pub plan: Arc<[PlannedRequest]>,
    /// how the requests are written
    pub form: RequestForm,
    /// requests that may be unanswered at once; a send that must wait for one counts as held back
    pub max_in_flight: usize,
    /// limits of the client
    pub client: ClientOptions,
}

/// What a run has done so far, readable while it goes on.
#[derive(Debug, Default)]
pub struct RunProgress {
    /// requests whose turn came
    pub started: AtomicU64,
    /// requests that ended, failed ones included
    pub ended: AtomicU64,
    /// requests that failed
    pub failed: AtomicU64,
    stop: AtomicBool,
}

impl RunProgress {
    /// Asks the run to start no further request; those under way are waited for.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }
}

/// How late requests were sent, against the plan.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct SendLag {
    /// median, ms
    pub p50_ms: f64,
    /// 99th percentile, ms
    pub p99_ms: f64,
    /// greatest, ms
    pub max_ms: f64,
    /// sends that had to wait because too many requests were unanswered
    pub held_back: u64,
}

/// What a run saw.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// the start the plan's times count from
    pub started_ns: Ns,
    /// one a request, in plan order
    pub samples: Vec<Sample>,
    /// how late requests were sent; `None` if none was
    pub lag: Option<SendLag>,
}

/// A run under way on its own thread.
pub struct Run {
    /// what it has done so far
    pub progress: Arc<RunProgress>,
    thread: JoinHandle<Result<RunResult, LoadError>>,
}

impl Run {
    /// Starts a run on a thread of its own.
    pub fn start(spec: RunSpec) -> Result<Run, LoadError> {
        let progress = Arc::new(RunProgress::default());
        let seen = Arc::clone(&progress);
        let thread = std::thread::Builder::new()
            .name("load".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let local = tokio::task::LocalSet::new();
                local.block_on(&runtime, send_all(spec, &seen))
            })?;
        Ok(Run { progress, thread })
    }

    /// Whether the last answer has come.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the last answer.
    pub fn join(self) -> Result<RunResult, LoadError> {
        self.thread.join().map_err(|_| LoadError::Panicked)?
    }
}

async fn send_all(spec: RunSpec, progress: &Arc<RunProgress>) -> Result<RunResult, LoadError> {
    let client = Rc::new(Client::new(spec.target, spec.client));
    let slots = Arc::new(Semaphore::new(spec.max_in_flight));
    let form = Rc::new(spec.form);
    let mut tasks = JoinSet::new();
    let mut samples = Vec::with_capacity(spec.plan.len());
    let mut held_back = 0;
    let started_ns = now_ns();
    for request in spec.plan.iter().copied() {
        until(started_ns + request.at_ns).await;
        if progress.stop.load(Relaxed) {
            break;
        }
        held_back += u64::from(slots.available_permits() == 0);
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            break;
        };
        progress.started.fetch_add(1, Relaxed);
        let (client, form, progress) = (Rc::clone(&client), Rc::clone(&form), Arc::clone(progress));
        tasks.spawn_local(async move {
            let sample = send_one(&client, &form, &request, started_ns).await;
            progress.ended.fetch_add(1, Relaxed);
            progress
                .failed
                .fetch_add(u64::from(sample.failure.is_some()), Relaxed);
            drop(slot);
            sample
        });
        while let Some(ended) = tasks.try_join_next() {
            samples.push(ended.map_err(|_| LoadError::Panicked)?);
        }
    }
    while let Some(ended) = tasks.join_next().await {
        samples.push(ended.map_err(|_| LoadError::Panicked)?);
    }
    samples.sort_unstable_by_key(|sample| sample.index);
    let lag = send_lag(&samples, held_back);
    Ok(RunResult {
        started_ns,
        samples,
        lag,
    })
}

/// Waits for a time on the clock that stamps are taken from; the timer's own clock may run a little
/// differently, so what is left is computed anew for every wait.
async fn until(due_ns: Ns) {
    let mut now = now_ns();
    while now < due_ns {
        tokio::time::sleep(Duration::from_nanos(due_ns - now)).await;
        now = now_ns();
    }
}

async fn send_one(
    client: &Client,
    form: &RequestForm,
    request: &PlannedRequest,
    started_ns: Ns,
) -> Sample {
    let mut sample = Sample::planned(request, started_ns + request.at_ns);
    client.send(&form.render(request), &mut sample).await;
    sample
}

fn send_lag(samples: &[Sample], held_back: u64) -> Option<SendLag> {
    let mut lags_ms: Vec<f64> = samples.iter().filter_map(Sample::lag_ms).collect();
    lags_ms.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| {
        lags_ms
            .get(((lags_ms.len() as f64 * quantile).ceil() as usize).max(1) - 1)
            .copied()
    };
    Some(SendLag {
        p50_ms: at(0.5)?,
        p99_ms: at(0.99)?,
        max_ms: *lags_ms.last()?,
        held_back,
    })
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
