//! Simulated instances on real sockets: listeners, connections, start and end.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hdrhistogram::Histogram;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::EngineError;
use super::faults::{Fault, FaultKind};
use super::profile::Profile;
use super::routes;
use super::runner::{self, Instance};

/// What to run.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The machine each instance stands for.
    pub profile: Profile,
    /// How many instances.
    pub instances: usize,
    /// The first one's address; ports count up from it, port 0 lets the kernel choose each.
    pub listen: SocketAddr,
    /// The model they serve.
    pub model_name: String,
    /// How many times slower each instance is; instances past the end run at 1.
    pub speed_factors: Vec<f64>,
    /// Seeds output lengths and texts. All instances share it, so that a request asks for the same
    /// work wherever it goes.
    pub seed: u64,
    /// Idle connections are closed after this (uvicorn: 5 s).
    pub keep_alive: Duration,
}

impl EngineOptions {
    /// `instances` of `profile` on loopback ports of the kernel's choice.
    pub fn new(profile: Profile, instances: usize) -> Self {
        EngineOptions {
            model_name: profile.name.clone(),
            profile,
            instances,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            speed_factors: Vec::new(),
            seed: 0,
            keep_alive: Duration::from_secs(5),
        }
    }
}

/// How late steps ended against their plan, over all instances since the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LagSummary {
    /// Steps ended.
    pub steps: u64,
    /// Median; `None` before the first step.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// The largest.
    pub max_ms: Option<f64>,
    /// Steps so late (250 ms) that the delay was not made up for.
    pub rebased: u64,
}

/// Instances that serve until [`RunningEngines::shutdown`] or drop.
pub struct RunningEngines {
    addrs: Vec<SocketAddr>,
    instances: Vec<Arc<Instance>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Opens all listeners, then serves on tasks of the calling runtime.
pub async fn start(options: EngineOptions) -> Result<RunningEngines, EngineError> {
    check(&options)?;
    let mut listeners = Vec::with_capacity(options.instances);
    for at in 0..options.instances {
        let addr = address(options.listen, at)?;
        let bound = TcpListener::bind(addr).await;
        listeners.push(bound.map_err(|source| EngineError::Listen { addr, source })?);
    }
    let mut running = RunningEngines {
        addrs: Vec::new(),
        instances: Vec::new(),
        tasks: Vec::new(),
    };
    for (at, listener) in listeners.into_iter().enumerate() {
        running.add(at, listener, &options)?;
    }
    Ok(running)
}

fn check(options: &EngineOptions) -> Result<(), EngineError> {
    if options.instances == 0 {
        return Err(EngineError::Options(
            "at least one instance is needed".to_owned(),
        ));
    }
    if options.speed_factors.len() > options.instances {
        return Err(EngineError::Options(
            "more speed factors than instances".to_owned(),
        ));
    }
    if options
        .speed_factors
        .iter()
        .any(|factor| !factor.is_finite() || *factor <= 0.0)
    {
        return Err(EngineError::Options(
            "speed factors must be above 0".to_owned(),
        ));
    }
    Ok(())
}

fn address(first: SocketAddr, at: usize) -> Result<SocketAddr, EngineError> {
    let mut addr = first;
    if first.port() != 0 {
        let port = usize::from(first.port()) + at;
        let port = u16::try_from(port)
            .map_err(|_| EngineError::Options(format!("port {port} does not exist")))?;
        addr.set_port(port);
    }
    Ok(addr)
}

impl RunningEngines {
    fn add(
        &mut self,
        at: usize,
        listener: TcpListener,
        options: &EngineOptions,
    ) -> Result<(), EngineError> {
        let addr = listener
            .local_addr()
            .map_err(|source| EngineError::Listen {
                addr: options.listen,
                source,
            })?;
        let lag_ns = new_lag()?;
        let (instance, commands) = Instance::new(
            at as u64,
            options.profile.clone(),
            options.model_name.clone(),
            options.seed,
            lag_ns,
        );
        instance.set_speed(options.speed_factors.get(at).copied().unwrap_or(1.0));
        self.tasks
            .push(tokio::spawn(runner::run(instance.clone(), commands)));
        let accepting = accept(listener, addr, instance.clone(), options.keep_alive);
        self.tasks.push(tokio::spawn(accepting));
        self.addrs.push(addr);
        self.instances.push(instance);
        Ok(())
    }

    /// Where the instances listen, in order.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The scheduling lag so far.
    pub fn lag(&self) -> LagSummary {
        let mut all: Option<Histogram<u64>> = None;
        let mut rebased = 0;
        for instance in &self.instances {
            let metrics = instance.metrics.lock();
            rebased += metrics.rebased;
            match &mut all {
                None => all = Some(metrics.lag_ns.clone()),
                Some(all) => {
                    // Same bounds: cannot fail.
                    let _ = all.add(&metrics.lag_ns);
                }
            }
        }
        let all = all.filter(|all| !all.is_empty());
        let ms = |quantile: f64| {
            all.as_ref()
                .map(|all| all.value_at_quantile(quantile) as f64 / 1e6)
        };
        LagSummary {
            steps: all.as_ref().map_or(0, Histogram::len),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            max_ms: ms(1.0),
            rebased,
        }
    }

    /// Makes instance `at`'s later steps `factor` times as long as its profile's.
    pub fn set_speed(&self, at: usize, factor: f64) {
        if let Some(instance) = self.instances.get(at)
            && factor.is_finite()
            && factor > 0.0
        {
            instance.set_speed(factor);
        }
    }

    /// Sets a fault on instance `at`, as `POST /admin/fault` does.
    pub fn add_fault(&self, at: usize, fault: Fault) -> Result<(), EngineError> {
        fault.check().map_err(EngineError::Options)?;
        if let Some(instance) = self.instances.get(at) {
            instance.faults.add(fault);
            instance.faults_changed();
        }
        Ok(())
    }

    /// Lifts all faults of instance `at`.
    pub fn clear_faults(&self, at: usize) {
        if let Some(instance) = self.instances.get(at) {
            instance.faults.clear();
            instance.faults_changed();
        }
    }

    /// Sequences running and waiting on instance `at`.
    pub fn load(&self, at: usize) -> Option<(u32, u32)> {
        let stats = self.instances.get(at)?.metrics.lock().stats;
        Some((stats.running, stats.waiting))
    }

    /// Closes listeners and connections at once and waits for the tasks' end.
    pub async fn shutdown(mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

impl Drop for RunningEngines {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn new_lag() -> Result<Histogram<u64>, EngineError> {
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3)
        .map_err(|error| EngineError::Options(format!("lag histogram: {error}")))
}

/// Accepts until aborted; connections end with it. Under `refuse` the port is closed.
async fn accept(
    listener: TcpListener,
    addr: SocketAddr,
    instance: Arc<Instance>,
    keep_alive: Duration,
) {
    let mut connections = JoinSet::new();
    let mut listener = Some(listener);
    loop {
        let changed = instance.fault_changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if let Some(until) = instance.faults.holds(&FaultKind::Refuse) {
            listener = None;
            let wait =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            let _ = tokio::time::timeout(wait.unwrap_or(Duration::MAX), changed).await;
            continue;
        }
        let Some(open) = &listener else {
            match TcpListener::bind(addr).await {
                Ok(again) => listener = Some(again),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            continue;
        };
        tokio::select! {
            accepted = open.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, instance.clone(), keep_alive));
                }
                // Out of descriptors: the queue waits.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            },
            () = changed => {}
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, instance: Arc<Instance>, keep_alive: Duration) {
    let _ = stream.set_nodelay(true);
    let reset = Arc::new(AtomicBool::new(false));
    let socket = EngineSocket {
        stream,
        reset: reset.clone(),
    };
    let service = service_fn(|request| routes::answer(instance.clone(), reset.clone(), request));
    // The wait for a next request's head is the idle time.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(keep_alive)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the simulated engine ended early");
    }
}

/// A socket that can end by RST.
struct EngineSocket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for EngineSocket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for EngineSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for EngineSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(())); // The drop that follows resets it.
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
