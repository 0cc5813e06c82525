//! Sends requests open loop, each at its own time, or closed loop, each as a place becomes free.
//!
//! The runner has its own thread with its own single-threaded runtime, so that neither the proxy
//! nor the engines of the same process delay its sends, and it publishes how late it was and what
//! it cost. Nothing is drained between warm-up and measurement: they differ only by issue time.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::LoadError;
use super::client::{Client, ClientOptions};
use super::cpu::{MachineTicks, thread_cpu_ns, thread_waited_ns};
use super::pacer::Pacer;
use super::progress::RunProgress;
use super::sample::Sample;
use super::workload::PlannedRequest;
use crate::measure::clock::{Ns, now_ns};

/// The requests of a run, in sending order.
pub type Requests = Box<dyn Iterator<Item = PlannedRequest> + Send>;

/// The requests of a plan that others hold too.
pub fn planned(plan: Arc<[PlannedRequest]>) -> Requests {
    Box::new((0..plan.len()).map(move |at| plan[at].clone()))
}

/// Writes a request's head and body as they go on the wire.
pub type Render = Box<dyn Fn(&PlannedRequest) -> Vec<u8> + Send>;

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// each at its planned time, whatever became of the earlier ones
    Schedule,
    /// each as soon as fewer than `max_in_flight` are unanswered
    Closed(ClosedEnd),
}

/// When a closed loop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedEnd {
    /// after so many requests beyond those issued in the first `warm_up_ns`
    Count {
        /// length of the warm-up
        warm_up_ns: u64,
        /// requests after it
        requests: u64,
    },
    /// so long after the start
    After {
        /// length of the whole run
        run_ns: u64,
    },
}

/// A run against one address.
pub struct RunSpec {
    /// where to send
    pub target: SocketAddr,
    /// what to send and, with [`Pace::Schedule`], when
    pub requests: Requests,
    /// how requests are written
    pub render: Render,
    /// what decides when a request is sent
    pub pace: Pace,
    /// requests that may be unanswered at once; a send that must wait for one counts as held back
    pub max_in_flight: usize,
    /// limits of the client
    pub client: ClientOptions,
}

/// How late requests were issued, against the plan.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SendLag {
    /// median, ms
    pub p50_ms: f64,
    /// 99th percentile, ms
    pub p99_ms: f64,
    /// greatest, ms
    pub max_ms: f64,
    /// 99th percentile of the part that was not a wait for answers, ms
    pub own_p99_ms: f64,
    /// sends that had to wait because too many requests were unanswered
    pub held_back: u64,
}

/// What the generator itself used.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct GeneratorUse {
    /// CPU time of its thread; `None` where the system does not tell
    pub cpu_ns: Option<u64>,
    /// time its thread could have run and had no core; `None` where the system does not tell
    pub waited_ns: Option<u64>,
    /// time from its first send to its last answer
    pub wall_ns: u64,
    /// events it read
    pub events: u64,
    /// connections it made
    pub connections: u64,
    /// share of the machine's CPU time that its host gave to others; `None` where the system does not tell
    pub stolen_share: Option<f64>,
}

/// What a run saw.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// the start the plan's times count from
    pub started_ns: Ns,
    /// one a request that ended, in plan order
    pub samples: Vec<Sample>,
    /// requests under way when the run was abandoned
    pub unfinished: u64,
    /// how late requests were issued; `None` if none was
    pub lag: Option<SendLag>,
    /// what the generator used
    pub generator: GeneratorUse,
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
                local.block_on(&runtime, send_all(spec, seen))
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

async fn send_all(spec: RunSpec, progress: Arc<RunProgress>) -> Result<RunResult, LoadError> {
    let (cpu_before_ns, waited_before_ns) = (thread_cpu_ns(), thread_waited_ns());
    let ticks_before = MachineTicks::now();
    let mut sender = Sender {
        client: Rc::new(Client::new(spec.target, spec.client)),
        slots: Arc::new(Semaphore::new(spec.max_in_flight)),
        pacer: Pacer::new()?,
        pace: spec.pace,
        started_ns: now_ns(),
        blocked_until_ns: 0,
        measured: 0,
        tasks: JoinSet::new(),
        samples: Vec::new(),
        progress,
    };
    let unfinished = sender.run(spec.requests, &spec.render).await?;
    let since = |before_ns: Option<u64>, now_ns: Option<u64>| {
        before_ns
            .zip(now_ns)
            .map(|(before, now)| now.saturating_sub(before))
    };
    let cpu_ns = since(cpu_before_ns, thread_cpu_ns());
    let waited_ns = since(waited_before_ns, thread_waited_ns());
    let mut samples = sender.samples;
    samples.sort_unstable_by_key(|sample| sample.index);
    Ok(RunResult {
        started_ns: sender.started_ns,
        lag: send_lag(&samples),
        unfinished,
        generator: GeneratorUse {
            cpu_ns,
            waited_ns,
            wall_ns: now_ns() - sender.started_ns,
            events: sender.client.events(),
            connections: sender.client.connections(),
            stolen_share: ticks_before
                .zip(MachineTicks::now())
                .and_then(|(before, after)| after.stolen_share(before)),
        },
        samples,
    })
}

/// The run under way.
struct Sender {
    client: Rc<Client>,
    slots: Arc<Semaphore>,
    pacer: Pacer,
    pace: Pace,
    started_ns: Ns,
    /// when the last wait for a slot ended; what was planned before waited with it
    blocked_until_ns: Ns,
    /// requests issued by a closed loop after its warm-up
    measured: u64,
    tasks: JoinSet<Sample>,
    samples: Vec<Sample>,
    progress: Arc<RunProgress>,
}

impl Sender {
    /// Issues every request and collects the answers; tells how many were abandoned.
    async fn run(&mut self, requests: Requests, render: &Render) -> Result<u64, LoadError> {
        for request in requests {
            // Before its time, so that writing it down does not make it late.
            let wire = render(&request);
            let Some((slot, planned_ns)) = self.turn(&request).await? else {
                break;
            };
            self.issue(&request, planned_ns, wire, slot);
            // Off it goes, before the next one is written down.
            tokio::task::yield_now().await;
            while let Some(ended) = self.tasks.try_join_next() {
                self.samples.push(ended.map_err(|_| LoadError::Panicked)?);
            }
        }
        self.drain().await
    }

    /// Waits until the request may go: its place, and the time it is due. `None` when the run is over.
    async fn turn(
        &mut self,
        request: &PlannedRequest,
    ) -> Result<Option<(OwnedSemaphorePermit, Ns)>, LoadError> {
        match self.pace {
            Pace::Schedule => {
                let planned_ns = self.started_ns + request.at_ns;
                if !self.wait_until(planned_ns).await? {
                    return Ok(None);
                }
                let slot = self.slot(None).await?;
                Ok(slot.map(|slot| (slot, planned_ns)))
            }
            Pace::Closed(end) => {
                let end_ns = match end {
                    ClosedEnd::After { run_ns } => Some(self.started_ns + run_ns),
                    ClosedEnd::Count { .. } => None,
                };
                let slot = self.slot(end_ns).await?;
                let now = now_ns();
                let over = self.is_over(end, now);
                Ok(slot.filter(|_| !over).map(|slot| (slot, now)))
            }
        }
    }

    /// False if the run was stopped meanwhile.
    async fn wait_until(&self, due_ns: Ns) -> Result<bool, LoadError> {
        if now_ns() >= due_ns {
            return Ok(!self.progress.is_stopped());
        }
        tokio::select! {
            biased;
            () = self.progress.stopped() => Ok(false),
            waited = self.pacer.until(due_ns) => Ok(waited.map(|()| true)?),
        }
    }

    /// A place among those in flight; `None` if the run was stopped or `give_up_ns` came before.
    async fn slot(
        &mut self,
        give_up_ns: Option<Ns>,
    ) -> Result<Option<OwnedSemaphorePermit>, LoadError> {
        if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(Some(slot).filter(|_| !self.progress.is_stopped()));
        }
        let slot = tokio::select! {
            biased;
            () = self.progress.stopped() => None,
            slot = Arc::clone(&self.slots).acquire_owned() => slot.ok(),
            waited = self.pacer.until(give_up_ns.unwrap_or(Ns::MAX)), if give_up_ns.is_some() => {
                waited?;
                None
            }
        };
        self.blocked_until_ns = now_ns();
        Ok(slot)
    }

    /// Whether a closed loop has issued all it should; counts the request if not.
    fn is_over(&mut self, end: ClosedEnd, now: Ns) -> bool {
        match end {
            ClosedEnd::After { run_ns } => now >= self.started_ns + run_ns,
            ClosedEnd::Count {
                warm_up_ns,
                requests,
            } => {
                self.measured += u64::from(now >= self.started_ns + warm_up_ns);
                self.measured > requests
            }
        }
    }

    fn issue(
        &mut self,
        request: &PlannedRequest,
        planned_ns: Ns,
        wire: Vec<u8>,
        slot: OwnedSemaphorePermit,
    ) {
        self.progress.started.fetch_add(1, Relaxed);
        let mut sample = Sample::planned(request, planned_ns);
        sample.held_ns = self.blocked_until_ns.saturating_sub(planned_ns);
        let (client, progress) = (Rc::clone(&self.client), Arc::clone(&self.progress));
        self.tasks.spawn_local(async move {
            sample.issued_ns = Some(now_ns());
            client.send(&wire, &mut sample).await;
            progress.note_end(sample.failure.is_some());
            drop(slot);
            sample
        });
    }

    /// Waits for what is under way, unless the run is abandoned.
    async fn drain(&mut self) -> Result<u64, LoadError> {
        loop {
            let ended = tokio::select! {
                biased;
                () = self.progress.abandoned() => break,
                ended = self.tasks.join_next() => ended,
            };
            match ended {
                Some(ended) => self.samples.push(ended.map_err(|_| LoadError::Panicked)?),
                None => break,
            }
        }
        let unfinished = self.tasks.len() as u64;
        self.tasks.shutdown().await;
        Ok(unfinished)
    }
}

/// How late these were issued; `None` if none was.
pub fn send_lag(samples: &[Sample]) -> Option<SendLag> {
    let sorted = |lag_ms: fn(&Sample) -> Option<f64>| {
        let mut lags_ms: Vec<f64> = samples.iter().filter_map(lag_ms).collect();
        lags_ms.sort_unstable_by(f64::total_cmp);
        lags_ms
    };
    let at = |sorted: &[f64], quantile: f64| {
        let rank = ((sorted.len() as f64 * quantile).ceil() as usize).max(1);
        sorted.get(rank - 1).copied()
    };
    let (all, own) = (sorted(Sample::lag_ms), sorted(Sample::own_lag_ms));
    Some(SendLag {
        p50_ms: at(&all, 0.5)?,
        p99_ms: at(&all, 0.99)?,
        max_ms: *all.last()?,
        own_p99_ms: at(&own, 0.99)?,
        held_back: samples.iter().filter(|sample| sample.held_ns > 0).count() as u64,
    })
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
