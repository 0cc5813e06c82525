//! One inference server, as the live path knows it: what never changes of it, and what lasts as long as it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use evenkeel_policies::scheduler::InstanceId;
use parking_lot::Mutex;

use crate::config::checked::{self, Upstream};
use crate::measure::clock::Ns;
use crate::measure::skew::RotationLoad;
use crate::measure::speed::LoadIntegral;

/// One inference server. A reload keeps it for as long as its name and its URL stay the same.
pub struct Instance {
    /// its id in the pool's scheduler; never given to another one
    pub id: InstanceId,
    /// a number no other instance of this process has or had
    pub serial: u64,
    /// name
    pub name: Arc<str>,
    /// where it listens
    pub url: Upstream,
    /// free words
    pub labels: Mutex<BTreeMap<String, String>>,
    /// integral of outstanding requests over time, for the mean batch a request met
    pub batch: Mutex<LoadIntegral>,
    /// outstanding tokens over the time in rotation, for load skew
    pub load: Mutex<RotationLoad>,
    /// when its newest byte came; 0 before any did
    heard_ns: AtomicU64,
}

/// Bytes that come sooner after the one noted need no note: cores would take the number from each other.
const HEARD_EVERY_NS: u64 = 1_000_000;

impl Instance {
    /// Idle from `now_ns` on.
    pub fn new(id: InstanceId, config: &checked::Instance, now_ns: Ns) -> Instance {
        Instance {
            id,
            serial: next_serial(),
            name: config.name.clone(),
            url: config.url.clone(),
            labels: Mutex::new(config.labels.clone()),
            batch: Mutex::new(LoadIntegral::new(now_ns)),
            load: Mutex::new(RotationLoad::new(now_ns)),
            heard_ns: AtomicU64::new(0),
        }
    }

    /// A byte came from it.
    #[inline]
    pub fn heard(&self, at_ns: Ns) {
        if at_ns >= self.heard_ns.load(Relaxed).saturating_add(HEARD_EVERY_NS) {
            self.heard_ns.fetch_max(at_ns, Relaxed);
        }
    }

    /// When its newest byte came, up to a millisecond late; `None` before any did.
    pub fn heard_ns(&self) -> Option<Ns> {
        Some(self.heard_ns.load(Relaxed)).filter(|at_ns| *at_ns > 0)
    }

    /// It joins anew: what came from it before says nothing.
    pub fn forget_heard(&self) {
        self.heard_ns.store(0, Relaxed);
    }

    /// Whether a configuration means this one.
    pub fn is(&self, config: &checked::Instance) -> bool {
        self.name == config.name && self.url == config.url
    }
}

/// A number that nothing else of this process has or had.
pub fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}
