//! The loop that runs one model in real time. Steps follow absolute deadlines: step k+1 begins at
//! the planned end of step k, so being woken late once delays no later step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::faults::{FaultKind, Faults};
use super::kv::NumberMap;
use super::metrics::{EngineMetrics, Finish, Finished};
use super::model::{Emission, Engine, Refused, Request};
use super::profile::Profile;

/// Being later than this is not made up for: the clock is set to now, and it is counted.
const REBASE_NS: u64 = 250_000_000;

/// One simulated instance, as its connections see it.
pub(crate) struct Instance {
    /// its place among the instances of this process
    pub(crate) number: u64,
    pub(crate) profile: Profile,
    pub(crate) model_name: String,
    pub(crate) seed: u64,
    pub(crate) faults: Faults,
    pub(crate) metrics: Mutex<EngineMetrics>,
    /// Requests being served, as `/load` tells.
    pub(crate) in_service: AtomicU64,
    /// Woken when a fault comes or goes.
    pub(crate) fault_changed: tokio::sync::Notify,
    speed_bits: AtomicU64,
    next_id: AtomicU64,
    origin: Instant,
    commands: UnboundedSender<Command>,
}

/// A token on its way to a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) choice: u32,
    pub(crate) index: u32,
    pub(crate) finish: Option<Finish>,
}

pub(crate) enum Command {
    Submit {
        request: Request,
        choice: u32,
        finish: Finish,
        to: UnboundedSender<Token>,
    },
    Abort(u64),
    Look,
}

impl Instance {
    pub(crate) fn new(
        number: u64,
        profile: Profile,
        model_name: String,
        seed: u64,
        lag_ns: Histogram<u64>,
    ) -> (Arc<Instance>, UnboundedReceiver<Command>) {
        let (commands, receiver) = unbounded_channel();
        let instance = Instance {
            number,
            profile,
            model_name,
            seed,
            faults: Faults::default(),
            metrics: Mutex::new(EngineMetrics::new(lag_ns)),
            in_service: AtomicU64::new(0),
            fault_changed: tokio::sync::Notify::new(),
            speed_bits: AtomicU64::new(1f64.to_bits()),
            next_id: AtomicU64::new(1),
            origin: Instant::now(),
            commands,
        };
        (Arc::new(instance), receiver)
    }

    pub(crate) fn set_speed(&self, factor: f64) {
        self.speed_bits.store(factor.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn fresh_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn send(&self, command: Command) {
        // A loop that is gone drops the senders of its streams: they end as cut.
        let _ = self.commands.send(command);
    }

    /// Tells loop and listener to look at the faults again.
    pub(crate) fn faults_changed(&self) {
        self.fault_changed.notify_waiters();
        self.send(Command::Look);
    }

    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn factor(&self) -> f64 {
        f64::from_bits(self.speed_bits.load(Ordering::Relaxed)) * self.faults.slow_factor()
    }
}

struct Stream {
    to: UnboundedSender<Token>,
    choice: u32,
    finish: Finish,
    prompt_tokens: u32,
    arrived_ns: u64,
    first_ns: u64,
    last_ns: u64,
}

struct Runner {
    instance: Arc<Instance>,
    engine: Engine,
    streams: NumberMap<Stream>,
    commands: UnboundedReceiver<Command>,
    emissions: Vec<Emission>,
}

/// Runs until every handle to the instance is gone or the task is aborted.
pub(crate) async fn run(instance: Arc<Instance>, commands: UnboundedReceiver<Command>) {
    let engine = Engine::new(instance.profile.clone());
    let streams = NumberMap::default();
    let mut runner = Runner {
        instance,
        engine,
        streams,
        commands,
        emissions: Vec::new(),
    };
    runner.publish();
    let mut clock_ns = 0;
    loop {
        while let Ok(command) = runner.commands.try_recv() {
            runner.take(command);
        }
        if let Some(until) = runner.instance.faults.holds(&FaultKind::Stall) {
            runner.wait(until).await;
            clock_ns = runner.instance.now_ns();
            continue;
        }
        let factor = runner.instance.factor();
        runner.engine.set_speed_factor(factor);
        let begun = runner.engine.start_step(clock_ns);
        runner.publish();
        let Some(end_ns) = begun else {
            let ready_ns = runner.engine.next_ready_ns();
            let until = ready_ns.map(|ns| runner.instance.origin + Duration::from_nanos(ns));
            runner.wait(until).await;
            clock_ns = clock_ns.max(runner.instance.now_ns());
            continue;
        };
        let end = runner.instance.origin + Duration::from_nanos(end_ns);
        while runner.wait(Some(end)).await {}
        clock_ns = runner.finish(end_ns);
    }
}

impl Runner {
    /// Takes one command, or waits until `until`; true if it was a command.
    async fn wait(&mut self, until: Option<Instant>) -> bool {
        let command = match until {
            None => self.commands.recv().await,
            Some(until) => {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(until.into()) => return false,
                    command = self.commands.recv() => command,
                }
            }
        };
        if let Some(command) = command {
            self.take(command);
        }
        true
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Look => {}
            Command::Abort(id) => {
                self.streams.remove(&id);
                if self.engine.abort(id) {
                    self.publish();
                }
            }
            Command::Submit {
                request,
                choice,
                finish,
                to,
            } => {
                let now_ns = self.instance.now_ns();
                let (id, prompt_tokens) = (request.id, request.prompt_tokens);
                let taken: Result<(), Refused> = self.engine.submit(now_ns, request);
                if let Err(refused) = taken {
                    tracing::warn!(%refused, "the model refused a checked request");
                    return;
                }
                let (arrived_ns, first_ns, last_ns) = (now_ns, 0, 0);
                self.streams.insert(
                    id,
                    Stream {
                        to,
                        choice,
                        finish,
                        prompt_tokens,
                        arrived_ns,
                        first_ns,
                        last_ns,
                    },
                );
            }
        }
    }

    /// Hands out the step's tokens; where the clock stands now.
    fn finish(&mut self, end_ns: u64) -> u64 {
        let now_ns = self.instance.now_ns();
        let lag_ns = now_ns.saturating_sub(end_ns);
        let mut emissions = std::mem::take(&mut self.emissions);
        self.engine.finish_step(&mut emissions);
        let instance = self.instance.clone();
        let mut metrics = instance.metrics.lock();
        metrics.lag_ns.saturating_record(lag_ns);
        for emission in emissions.drain(..) {
            self.hand_out(&emission, now_ns, &mut metrics);
        }
        metrics.stats = self.engine.stats();
        metrics.hardware.note(end_ns, self.engine.progress(end_ns));
        self.emissions = emissions;
        if lag_ns < REBASE_NS {
            return end_ns;
        }
        metrics.rebased += 1;
        now_ns
    }

    fn hand_out(&mut self, emission: &Emission, now_ns: u64, metrics: &mut EngineMetrics) {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        let Some(stream) = self.streams.get_mut(&emission.request) else {
            return;
        };
        if emission.token_index == 0 {
            metrics.first_token(seconds(stream.arrived_ns, now_ns));
            metrics.prompt_tokens += u64::from(stream.prompt_tokens);
            stream.first_ns = now_ns;
        } else {
            metrics.next_token(seconds(stream.last_ns, now_ns));
        }
        stream.last_ns = now_ns;
        let finish = emission.finished.then_some(stream.finish);
        // A connection that is gone sends its own abort.
        let _ = stream.to.send(Token {
            choice: stream.choice,
            index: emission.token_index,
            finish,
        });
        if !emission.finished {
            return;
        }
        metrics.finished(&Finished {
            finish: stream.finish,
            e2e_s: seconds(stream.arrived_ns, now_ns),
            queue_s: seconds(stream.arrived_ns, emission.scheduled_ns),
            prefill_s: seconds(emission.scheduled_ns, stream.first_ns),
            decode_s: seconds(stream.first_ns, now_ns),
            prompt_tokens: stream.prompt_tokens,
            output_tokens: emission.token_index + 1,
        });
        self.streams.remove(&emission.request);
    }

    fn publish(&self) {
        let mut metrics = self.instance.metrics.lock();
        metrics.stats = self.engine.stats();
        let now_ns = self.instance.now_ns();
        metrics.hardware.note(now_ns, self.engine.progress(now_ns));
    }
}
