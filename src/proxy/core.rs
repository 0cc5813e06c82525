//! What one core works with: its connection pools and recorder, and what all cores share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::arrival::Stamping;
use super::credentials::Credentials;
use super::keys::{Entry, Keyring};
use super::response_ids::ResponseIds;
use super::upstream::ConnectionPool;
use crate::admin::access::Access;
use crate::config::checked::Config;
use crate::fleet::Fleet;
use crate::measure::access_log::AccessLog;
use crate::measure::clock::Ns;
use crate::measure::histograms::{CoreRecorder, Registry};
use crate::measure::summary::Exchange;
use crate::measure::writer::RecordWriter;
use crate::tls::inbound::Inbound;
use crate::tls::outbound::Outbound;

/// Shared by all cores.
pub struct Shared {
    /// configuration
    pub config: Arc<Config>,
    /// pools and their schedulers
    pub fleet: Fleet,
    /// TLS with clients, if the listener speaks it
    pub tls: Option<Arc<Inbound>>,
    /// clients' API keys; without them everybody may come in
    pub keys: Option<Keyring>,
    /// TLS with instances, by pool, where there is any
    pub outbound: Vec<Option<Outbound>>,
    /// credentials for instances, by pool
    pub credentials: Vec<Credentials>,
    /// who may change something through the admin listener
    pub admin_access: Access,
    /// histograms and counters
    pub registry: Arc<Registry>,
    /// record writer, if records are kept
    pub records: Option<RecordWriter>,
    /// access log, if one is kept
    pub access_log: Option<AccessLog>,
    /// request bytes that may be held
    pub budget: Arc<Semaphore>,
    /// where responses were made
    pub response_ids: Arc<ResponseIds>,
    /// stopping: not ready, and no new requests
    pub draining: AtomicBool,
    /// open client connections over all cores
    pub connections: AtomicUsize,
    /// the same, by core
    pub live: Vec<Arc<AtomicUsize>>,
    /// the kernel stamps what comes from instances, if it is asked to
    pub stamping: Stamping,
    /// the cores' runtimes, once they are there
    pub runtimes: Mutex<Vec<Handle>>,
    /// when it started
    pub started_ns: Ns,
}

impl Shared {
    /// Lets a request in by its key, or says why not.
    pub fn enter(&self, headers: &http::HeaderMap) -> Entry {
        match &self.keys {
            Some(keys) => keys.enter(headers),
            None => Entry::open(),
        }
    }

    /// Tasks alive on the cores.
    pub fn tasks(&self) -> usize {
        let alive = |runtime: &Handle| runtime.metrics().num_alive_tasks();
        self.runtimes.lock().iter().map(alive).sum()
    }

    /// Hands an ended exchange to the writers; never blocks.
    pub fn submit(&self, exchange: &mut Exchange) {
        if let Some(log) = &self.access_log {
            log.submit(exchange);
        }
        if let Some(records) = &self.records {
            records.submit(std::mem::take(exchange));
        }
    }
}

/// One worker.
pub struct Core {
    /// shared with the other cores
    pub shared: Arc<Shared>,
    /// idle connections, by pool and instance
    pub connections: Vec<Vec<Arc<ConnectionPool>>>,
    /// this core's histograms
    pub recorder: Arc<CoreRecorder>,
    /// live client connections on this core
    pub live: Arc<AtomicUsize>,
}

impl Core {
    /// The core number `index`.
    pub fn new(shared: &Arc<Shared>, index: usize) -> Self {
        let pools = shared.fleet.pools.iter();
        let connections = pools.map(|pool| pool.instances.iter().map(|_| Arc::default()).collect());
        Self {
            shared: shared.clone(),
            connections: connections.collect(),
            recorder: shared.registry.core(index),
            live: shared.live.get(index).cloned().unwrap_or_default(),
        }
    }

    /// Closes connections that have been idle too long.
    pub fn sweep(&self) {
        let idle_limit = self.shared.config.timeouts.upstream_idle;
        for pool in self.connections.iter().flatten() {
            pool.sweep(idle_limit);
        }
    }
}
