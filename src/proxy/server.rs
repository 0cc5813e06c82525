//! The running server: its threads, how it starts and how it stops.
//!
//! One current-thread runtime a core, so that a stream never crosses threads; one control thread
//! with the acceptor and the admin listener.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use super::arrival::Stamping;
use super::checks;
use super::connection::{Counted, serve_connection};
use super::core::{Core, Shared};
use super::credentials::{Credentials, NoEngineKey};
use super::keys::Keyring;
use super::listen::{self, Worker};
use super::receive;
use super::turn;
use crate::admin;
use crate::admin::access::Access;
use crate::config::checked::{Config, RuntimeShape};
use crate::config::secret::SecretError;
use crate::fleet::{Fleet, FleetError};
use crate::measure::access_log::AccessLog;
use crate::measure::clock::now_ns;
use crate::measure::histograms::Registry;
use crate::measure::writer::RecordWriter;
use crate::tls::TlsError;
use crate::tls::inbound::Inbound;
use crate::tls::outbound::Outbound;

/// Connections waiting to be accepted.
const BACKLOG: u32 = 4096;
/// How often idle upstream connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);

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
    /// the fleet's configuration
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// certificates and keys
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// the credential of a pool's instances
    #[error(transparent)]
    EngineKey(#[from] NoEngineKey),
    /// the admin token
    #[error("{0} (admin.token)")]
    AdminToken(SecretError),
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
        let config = Arc::new(config);
        let shared = shared(&config)?;
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
        control.spawn(listen::accept(
            listener,
            workers,
            listen::most_connections(config.limits.max_connections),
            stopping,
        ));
        {
            let _inside = control.enter();
            checks::begin(&shared);
        }
        if let Some(tls) = shared.tls.clone() {
            control.spawn(tls.keep_fresh());
        }
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

    /// Stops taking requests, lets open ones end within timeouts.drain_s, then stops.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.shared.draining.store(true, Relaxed);
        self.stop.send_replace(true);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker had panicked");
            }
        }
        if let Some(control) = self.control.take() {
            control.shutdown_background();
        }
        self.flush_records();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the cores share, without a core yet.
pub(super) fn shared(config: &Arc<Config>) -> Result<Arc<Shared>, StartError> {
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
        fleet: Fleet::new(config)?,
        tls: inbound(config)?,
        keys: config.keys.as_deref().map(Keyring::new),
        outbound: Outbound::of_pools(&config.pools)?,
        credentials: Credentials::of_pools(config)?,
        admin_access: Access::new(&config.admin).map_err(StartError::AdminToken)?,
        registry: Arc::new(Registry::new(
            config.server.workers,
            config.limits.max_series,
        )),
        records,
        access_log,
        budget: receive::buffer_budget(&config.limits),
        response_ids: Arc::default(),
        draining: AtomicBool::new(false),
        connections: AtomicUsize::new(0),
        live: (0..cores(config)).map(|_| Arc::default()).collect(),
        stamping: Stamping::begin(config.measure.arrival),
        runtimes: Mutex::default(),
        started_ns: now_ns(),
        config: config.clone(),
    }))
}

fn inbound(config: &Config) -> Result<Option<Arc<Inbound>>, TlsError> {
    let tls = config.server.tls.as_ref();
    let inbound = tls.map(|tls| Inbound::new(tls, config.server.http2));
    Ok(inbound.transpose()?.map(Arc::new))
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
    let count = shared.config.server.workers.max(1);
    let shape = shared.config.server.runtime;
    for index in 0..cores(&shared.config) {
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
            .spawn(move || run_worker(runtime, core, sockets, stopping))
            .map_err(StartError::Worker)?;
        threads.push(thread);
    }
    Ok((workers, threads))
}

fn run_worker(
    runtime: Runtime,
    core: Arc<Core>,
    mut sockets: mpsc::UnboundedReceiver<std::net::TcpStream>,
    stopping: watch::Receiver<bool>,
) {
    let config = &core.shared.config;
    let drain = config.timeouts.drain;
    runtime.block_on(async {
        if config.server.runtime == RuntimeShape::PerCore {
            tokio::spawn(turn::end_turns());
        }
        let mut stop = stopping.clone();
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                Some(socket) = sockets.recv() => begin(&core, socket, &stopping),
                _ = sweep.tick() => core.sweep(),
                _ = stop.wait_for(|stopping| *stopping) => break,
            }
        }
        let drained = async {
            while core.live.load(Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(drain, drained).await.is_err() {
            tracing::warn!(
                open = core.live.load(Relaxed),
                "timeouts.drain_s is over; open connections are cut"
            );
        }
    });
    // what is left is dropped here, and so ended
    drop(runtime);
}

fn begin(core: &Arc<Core>, socket: std::net::TcpStream, stopping: &watch::Receiver<bool>) {
    let counted = Counted::new(core.clone());
    let stream = match TcpStream::from_std(socket) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "could not take a connection over");
            return;
        }
    };
    let (core, stopping) = (core.clone(), stopping.clone());
    tokio::spawn(async move {
        serve_connection(core, stream, stopping).await;
        drop(counted);
    });
}
