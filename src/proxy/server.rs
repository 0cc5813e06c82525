//! The running server: its threads, how it starts and how it stops.
//!
//! One current-thread runtime a core, so that a stream never crosses threads; one control thread
//! with the acceptor and the admin listener.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use super::arrival::Stamping;
use super::checks;
use super::connection::{Counted, Life, serve_connection};
use super::core::{Core, Shared};
use super::generation::{NotUsable, Prepared};
use super::listen::{self, Worker};
use super::reload::{self, Reloads};
use super::turn;
use crate::admin;
use crate::config::checked::{Config, RuntimeShape};
use crate::measure::access_log::AccessLog;
use crate::measure::clock::now_ns;
use crate::measure::histograms::Registry;
use crate::measure::writer::RecordWriter;
use crate::tls::{inbound, watch as tls_watch};

/// Connections waiting to be accepted.
const BACKLOG: u32 = 4096;
/// How often idle upstream connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How often it is looked whether a listener without TLS has got some.
const NO_TLS_CHECK: Duration = Duration::from_secs(5);
/// How often it is looked whether the last connection has gone, while the server stops.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// an address could not be listened on
    #[error("cannot listen on {addr} ({key}): {source}")]
    Listen {
        /// address
        addr: SocketAddr,
        /// key in the configuration
        key: &'static str,
        /// reason
        source: std::io::Error,
    },
    /// what the configuration names
    #[error(transparent)]
    Configuration(#[from] NotUsable),
    /// record files
    #[error("cannot write records to {dir} (records.dir): {source}")]
    Records {
        /// directory
        dir: String,
        /// reason
        source: std::io::Error,
    },
    /// the access log's file
    #[error("cannot write the access log (log.access): {0}")]
    AccessLog(std::io::Error),
    /// threads or runtimes
    #[error("cannot start a worker: {0}")]
    Worker(std::io::Error),
}

/// The server's constructor.
pub struct Server;

/// A server that runs; dropping it stops it.
pub struct Running {
    /// data listener
    pub server_addr: SocketAddr,
    /// admin listener
    pub admin_addr: Option<SocketAddr>,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
    control: Option<Runtime>,
}

impl Server {
    /// Starts listeners and workers; returns once they listen.
    pub fn start(config: Config) -> Result<Running, StartError> {
        Server::start_from(config, None)
    }

    /// The same for a configuration that was read from `file`, and may be read again from there.
    pub fn start_from(config: Config, file: Option<PathBuf>) -> Result<Running, StartError> {
        let config = Arc::new(config);
        let shared = shared(&config, file)?;
        let control = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("evenkeel-control")
            .enable_all()
            .build()
            .map_err(StartError::Worker)?;
        let inside = control.enter();
        let listener = bind(config.server.listen, "server.listen")?;
        let admin_listener = match config.admin.listen {
            Some(addr) => Some(bind(addr, "admin.listen")?),
            None => None,
        };
        drop(inside);
        let addr_of = |listener: &TcpListener| listener.local_addr().map_err(StartError::Worker);
        let server_addr = addr_of(&listener)?;
        let admin_addr = admin_listener.as_ref().map(addr_of).transpose()?;
        let (stop, stopping) = watch::channel(false);
        let (workers, threads) = start_workers(&shared, &stopping)?;
        control.spawn(listen::accept(listener, workers));
        control.spawn(checks::watch_over(shared.clone()));
        control.spawn(keep_fresh(shared.clone()));
        control.spawn(reload::watch(shared.clone()));
        if let Some(listener) = admin_listener {
            control.spawn(admin::serve(listener, shared.clone()));
        }
        Ok(Running {
            server_addr,
            admin_addr,
            shared,
            stop,
            workers: threads,
            control: Some(control),
        })
    }
}

impl Running {
    /// What the server works with.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Prints the line that tells where it listens.
    pub fn print_addresses(&self) -> std::io::Result<()> {
        let admin = self
            .admin_addr
            .map_or_else(|| "none".to_owned(), |addr| addr.to_string());
        let mut out = std::io::stdout().lock();
        writeln!(out, "listening server={} admin={admin}", self.server_addr)?;
        out.flush()
    }

    /// Waits until all records submitted so far are on disk.
    pub fn flush_records(&self) {
        if let Some(records) = &self.shared.records {
            records.flush();
        }
    }

    /// Says that it stops, takes no requests after timeouts.drain_notice_s, lets open ones end within
    /// timeouts.drain_s, then stops.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if !self.shared.draining.swap(true, Relaxed) {
            std::thread::sleep(self.shared.generation().config.timeouts.drain_notice);
        }
        self.stop.send_replace(true);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker had panicked");
            }
        }
        if let Some(control) = self.control.take() {
            control.shutdown_background();
        }
        // now: a task that still runs may keep the writers past the program's end
        self.flush_records();
        if let Some(log) = &self.shared.access_log {
            log.flush();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the cores share, without a core yet.
pub(super) fn shared(
    config: &Arc<Config>,
    file: Option<PathBuf>,
) -> Result<Arc<Shared>, StartError> {
    let (generation, _) = Prepared::of(config.clone(), None)?.begin();
    let records =
        match &config.records {
            Some(records) => Some(RecordWriter::start(records, config).map_err(|source| {
                StartError::Records {
                    dir: records.dir.display().to_string(),
                    source,
                }
            })?),
            None => None,
        };
    let access_log = config
        .log
        .access
        .as_ref()
        .map(AccessLog::start)
        .transpose()
        .map_err(StartError::AccessLog)?;
    Ok(Arc::new(Shared {
        current: ArcSwap::from_pointee(generation),
        reloads: Reloads::of(file),
        registry: Arc::new(Registry::new(
            config.server.workers,
            config.limits.max_series,
        )),
        records,
        access_log,
        response_ids: Arc::default(),
        draining: AtomicBool::new(false),
        max_connections: AtomicUsize::new(listen::most_connections(config.limits.max_connections)),
        connections: AtomicUsize::new(0),
        live: (0..cores(config)).map(|_| Arc::default()).collect(),
        refused_connections: AtomicU64::new(0),
        refused_heads: Arc::default(),
        stamping: Stamping::begin(config.measure.arrival),
        runtimes: Mutex::default(),
        started_ns: now_ns(),
    }))
}

/// Takes the listener's new certificates into use, whichever files are meant at the time.
async fn keep_fresh(shared: Arc<Shared>) {
    let (looking, pausing) = (shared.clone(), shared);
    let tls = |shared: &Shared| shared.current.load().tls.clone();
    let renew = move || tls(&looking)?.renew();
    let pause = move || tls(&pausing).map_or(NO_TLS_CHECK, |tls| tls.reload_check());
    tls_watch::repeat(inbound::KEY, pause, renew).await;
}

fn bind(addr: SocketAddr, key: &'static str) -> Result<TcpListener, StartError> {
    let listen = || {
        let socket = if addr.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| StartError::Listen { addr, key, source })
}

/// Runtimes, each with its own connections.
fn cores(config: &Config) -> usize {
    match config.server.runtime {
        RuntimeShape::PerCore => config.server.workers.max(1),
        RuntimeShape::MultiThread => 1,
    }
}

type Threads = (Vec<Worker>, Vec<JoinHandle<()>>);

fn start_workers(
    shared: &Arc<Shared>,
    stopping: &watch::Receiver<bool>,
) -> Result<Threads, StartError> {
    let mut workers = Vec::new();
    let mut threads = Vec::new();
    let config = shared.generation().config.clone();
    let count = config.server.workers.max(1);
    let shape = config.server.runtime;
    for index in 0..cores(&config) {
        let runtime = match shape {
            RuntimeShape::PerCore => Builder::new_current_thread().enable_all().build(),
            RuntimeShape::MultiThread => Builder::new_multi_thread()
                .worker_threads(count)
                .enable_all()
                .build(),
        };
        let runtime = runtime.map_err(StartError::Worker)?;
        shared.runtimes.lock().push(runtime.handle().clone());
        let core = Arc::new(Core::new(shared, index));
        let (inbox, sockets) = mpsc::unbounded_channel();
        workers.push(Worker {
            core: core.clone(),
            inbox,
        });
        let stopping = stopping.clone();
        let thread = std::thread::Builder::new()
            .name(format!("evenkeel-core-{index}"))
            .spawn(move || run_worker(runtime, shape, core, sockets, stopping))
            .map_err(StartError::Worker)?;
        threads.push(thread);
    }
    Ok((workers, threads))
}

fn run_worker(
    runtime: Runtime,
    shape: RuntimeShape,
    core: Arc<Core>,
    mut sockets: mpsc::UnboundedReceiver<std::net::TcpStream>,
    stopping: watch::Receiver<bool>,
) {
    runtime.block_on(async {
        if shape == RuntimeShape::PerCore {
            tokio::spawn(turn::end_turns());
        }
        let mut stop = stopping.clone();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stopping| *stopping) => break,
                Some(socket) = sockets.recv() => begin(&core, socket, Life::Served(stopping.clone())),
                _ = sweep.tick() => core.sweep(),
            }
        }
        drain(&core, &mut sockets).await;
    });
    // what is left is dropped here, and so ended
    drop(runtime);
}

/// Waits for the last open request of all cores, so that each is there for who comes late.
async fn drain(core: &Arc<Core>, sockets: &mut mpsc::UnboundedReceiver<std::net::TcpStream>) {
    let limit = core.shared.generation().config.timeouts.drain;
    let over = tokio::time::sleep(limit);
    tokio::pin!(over);
    let mut ticks = tokio::time::interval(DRAIN_LOOK);
    let live = || -> usize { core.shared.live.iter().map(|live| live.load(Relaxed)).sum() };
    while live() > 0 {
        tokio::select! {
            Some(socket) = sockets.recv() => begin(core, socket, Life::Late),
            _ = ticks.tick() => {}
            () = &mut over => {
                let open = core.live.load(Relaxed);
                tracing::warn!(open, "timeouts.drain_s is over; open connections are cut");
                return;
            }
        }
    }
}

fn begin(core: &Arc<Core>, socket: std::net::TcpStream, life: Life) {
    let counted = Counted::new(core.clone(), &life);
    let stream = match TcpStream::from_std(socket) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "could not take a connection over");
            return;
        }
    };
    let core = core.clone();
    tokio::spawn(async move {
        serve_connection(core, stream, life).await;
        drop(counted);
    });
}
