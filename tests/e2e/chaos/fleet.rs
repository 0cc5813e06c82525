//! The fleet: simulated engines behind fault proxies, and what happens to whole instances while requests
//! run: they die and come back, refuse, reset what they accept, fail, slow down.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use evenkeel::engine::faults::{Fault as EngineFault, FaultKind};
use evenkeel::engine::profile::Profile;
use evenkeel::engine::server::{self, EngineOptions, RunningEngines};
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use tokio::sync::{oneshot, watch};

use super::plan::Plan;
use crate::support::fault::Fault;
use crate::support::fault_proxy::{FaultProxy, Passing};

/// Which requests there are, how often each came through, and who waits for it to come.
pub struct Board {
    pub seed: u64,
    /// numbers from here on are held requests
    pub planned: usize,
    times: Vec<AtomicUsize>,
    waiting: Mutex<HashMap<usize, oneshot::Sender<()>>>,
}

impl Board {
    pub fn new(seed: u64, planned: usize, held: usize) -> Board {
        Board {
            seed,
            planned,
            times: (0..planned + held).map(|_| AtomicUsize::new(0)).collect(),
            waiting: Mutex::default(),
        }
    }

    /// The plan of a request.
    pub fn plan(&self, number: usize) -> Plan {
        if number < self.planned {
            Plan::of(self.seed, number)
        } else {
            Plan::held(number)
        }
    }

    /// Told when that request has reached an instance's fault proxy.
    pub fn seen(&self, number: usize) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().insert(number, sender);
        receiver
    }

    fn fault(&self, passing: &Passing) -> Fault {
        let id = passing.head.header("x-request-id").unwrap_or_default();
        let number = id
            .strip_prefix("chaos-")
            .and_then(|id| id.parse::<usize>().ok());
        // health checks pass
        let Some(number) = number else {
            return Fault::none();
        };
        let time = self.times[number].fetch_add(1, Relaxed);
        if let Some(sender) = self.waiting.lock().remove(&number) {
            let _ = sender.send(());
        }
        self.plan(number).fault(time)
    }
}

/// Instance `instance` was not well for some time.
#[derive(Debug, Clone, Copy)]
pub struct Spell {
    pub instance: usize,
    pub from: Instant,
    pub to: Instant,
}

/// What happened to whole instances.
#[derive(Debug, Default)]
pub struct Events {
    pub deaths: usize,
    pub refusals: usize,
    pub resets: usize,
    /// faults on demand of the engines, by name
    pub engine_faults: usize,
    pub spells: Vec<Spell>,
}

/// The instances.
pub struct Fleet {
    pub proxies: Vec<FaultProxy>,
    engines: Vec<Option<RunningEngines>>,
    pub events: Events,
}

impl Fleet {
    pub async fn start(instances: usize, board: &Arc<Board>) -> Fleet {
        let (mut proxies, mut engines) = (Vec::new(), Vec::new());
        for _ in 0..instances {
            let engine = engine().await;
            let board = board.clone();
            let plan = move |passing: &Passing| board.fault(passing);
            proxies.push(FaultProxy::start(engine.addrs()[0], plan));
            engines.push(Some(engine));
        }
        Fleet {
            proxies,
            engines,
            events: Events::default(),
        }
    }

    /// Where the engine of an instance is.
    pub fn engine_addr(&self, instance: usize) -> std::net::SocketAddr {
        self.engines[instance].as_ref().unwrap().addrs()[0]
    }

    /// Ends all engines.
    pub async fn stop(&mut self) {
        for engine in &mut self.engines {
            if let Some(engine) = engine.take() {
                engine.shutdown().await;
            }
        }
    }

    /// Exchanges open at an instance, checks left out.
    pub fn open(&self, instance: usize) -> u64 {
        let log = self.proxies[instance].sightings();
        let open = log
            .iter()
            .filter(|one| one.end.is_none() && !one.id.is_empty());
        open.count() as u64
    }

    /// Lets one thing after another happen, each after some more requests have ended, until `over`.
    pub async fn suffer(
        &mut self,
        rng: &mut Xoshiro256PlusPlus,
        mut done: watch::Receiver<usize>,
        mut over: watch::Receiver<bool>,
    ) {
        while !*over.borrow() {
            requests(&mut done, &mut over, rng.random_range(40..120)).await;
            let instance = rng.random_range(0..self.proxies.len());
            let from = Instant::now();
            match rng.random_range(0..10) {
                0..4 => {
                    self.die(instance).await;
                    requests(&mut done, &mut over, rng.random_range(40..160)).await;
                    self.come_back(instance).await;
                    self.events.deaths += 1;
                }
                4 | 5 => {
                    self.proxies[instance].refuse().await;
                    requests(&mut done, &mut over, rng.random_range(20..80)).await;
                    self.proxies[instance].listen();
                    self.events.refusals += 1;
                }
                6 => {
                    self.proxies[instance].reset_accepted(true);
                    requests(&mut done, &mut over, rng.random_range(10..40)).await;
                    self.proxies[instance].reset_accepted(false);
                    self.events.resets += 1;
                }
                _ => {
                    self.fail(instance, rng);
                    continue;
                }
            }
            let to = Instant::now();
            self.events.spells.push(Spell { instance, from, to });
        }
    }

    async fn die(&mut self, instance: usize) {
        self.proxies[instance].refuse().await;
        self.proxies[instance].kill_connections();
        if let Some(engine) = self.engines[instance].take() {
            engine.shutdown().await;
        }
    }

    async fn come_back(&mut self, instance: usize) {
        let engine = engine().await;
        self.proxies[instance].set_target(engine.addrs()[0]);
        self.proxies[instance].listen();
        self.engines[instance] = Some(engine);
    }

    /// A fault on demand: it strikes whoever comes next, and shows in what the client gets.
    fn fail(&mut self, instance: usize, rng: &mut Xoshiro256PlusPlus) {
        let timed = |kind, for_ms| EngineFault {
            for_ms: Some(for_ms),
            ..EngineFault::new(kind)
        };
        let counted = |kind| EngineFault {
            count: Some(4),
            ..EngineFault::new(kind)
        };
        let after_chunks = rng.random_range(0..4);
        let fault = match rng.random_range(0..5) {
            0 => timed(FaultKind::Stall, 80),
            1 => timed(FaultKind::Slow { factor: 4.0 }, 200),
            2 => counted(FaultKind::Status { status: 500 }),
            3 => counted(FaultKind::InBandError { after_chunks }),
            _ => counted(FaultKind::Abort { after_chunks }),
        };
        if let Some(engine) = &self.engines[instance] {
            engine.add_fault(0, fault).unwrap();
            self.events.engine_faults += 1;
        }
    }
}

async fn engine() -> RunningEngines {
    let profile = Profile::load("test-fast").unwrap();
    server::start(EngineOptions::new(profile, 1)).await.unwrap()
}

/// Returns when so many more requests have ended, or all of them.
async fn requests(
    done: &mut watch::Receiver<usize>,
    over: &mut watch::Receiver<bool>,
    more: usize,
) {
    let until = *done.borrow() + more;
    tokio::select! {
        _ = done.wait_for(|done| *done >= until) => {}
        _ = over.wait_for(|over| *over) => {}
    }
}
