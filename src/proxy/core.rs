//! What one core works with: its connection pools and recorder, and what all cores share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::arrival::Stamping;
use super::generation::Generation;
use super::refused_heads::RefusedHeads;
use super::reload::Reloads;
use super::response_ids::ResponseIds;
use super::upstream::ConnectionPool;
use crate::fleet::instance::Instance;
use crate::fleet::link::Link;
use crate::measure::access_log::AccessLog;
use crate::measure::clock::Ns;
use crate::measure::histograms::{CoreRecorder, Registry};
use crate::measure::summary::Exchange;
use crate::measure::writer::RecordWriter;

/// Shared by all cores.
pub struct Shared {
    /// what holds now: configuration, fleet, keys, TLS
    pub current: ArcSwap<Generation>,
    /// how it is changed, and how that went
    pub reloads: Reloads,
    /// histograms and counters
    pub registry: Arc<Registry>,
    /// record writer, if records are kept
    pub records: Option<RecordWriter>,
    /// access log, if one is kept
    pub access_log: Option<AccessLog>,
    /// where responses were made
    pub response_ids: Arc<ResponseIds>,
    /// stopping: not ready, and no new requests
    pub draining: AtomicBool,
    /// most client connections that may be open
    pub max_connections: AtomicUsize,
    /// open client connections over all cores
    pub connections: AtomicUsize,
    /// the same, by core
    pub live: Vec<Arc<AtomicUsize>>,
    /// connections refused because too many were open
    pub refused_connections: AtomicU64,
    /// heads refused before they were read as requests
    pub refused_heads: Arc<RefusedHeads>,
    /// the kernel stamps what comes from instances, if it is asked to
    pub stamping: Stamping,
    /// the cores' runtimes, once they are there
    pub runtimes: Mutex<Vec<Handle>>,
    /// when it started
    pub started_ns: Ns,
}

impl Shared {
    /// What holds now. A request asks once and keeps it to its end.
    pub fn generation(&self) -> Arc<Generation> {
        self.current.load_full()
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
    /// idle connections by instance and by the TLS they were made with; 0 for none
    connections: Mutex<HashMap<(u64, u64), Arc<ConnectionPool>>>,
    /// this core's histograms
    pub recorder: Arc<CoreRecorder>,
    /// live client connections on this core
    pub live: Arc<AtomicUsize>,
}

impl Core {
    /// The core number `index`.
    pub fn new(shared: &Arc<Shared>, index: usize) -> Self {
        Self {
            shared: shared.clone(),
            connections: Mutex::default(),
            recorder: shared.registry.core(index),
            live: shared.live.get(index).cloned().unwrap_or_default(),
        }
    }

    /// This core's connections to an instance.
    pub fn connections_to(&self, instance: &Instance, link: &Link) -> Arc<ConnectionPool> {
        let tls = link.tls.as_ref().filter(|_| instance.url.tls);
        let place = (instance.serial, tls.map_or(0, |tls| tls.serial));
        let mut connections = self.connections.lock();
        connections.entry(place).or_default().clone()
    }

    /// Closes connections that have been idle too long.
    pub fn sweep(&self) {
        let idle_limit = self.shared.current.load().config.timeouts.upstream_idle;
        let all: Vec<_> = self.connections.lock().values().cloned().collect();
        for pool in &all {
            pool.sweep(idle_limit);
        }
        drop(all);
        // of instances that are gone nothing is left here; one that is only idle begins anew
        let mut connections = self.connections.lock();
        connections.retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
    }
}
