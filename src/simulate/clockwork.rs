//! The discrete-event loop: arrivals and engine steps in order of virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use evenkeel_policies::PolicyConfig;
use evenkeel_policies::estimate::OutputPredictor;
use evenkeel_policies::event::{Action, Arrival, Grant, InstanceId, LeaseId, Observation, Ticket};
use evenkeel_policies::scheduler::Scheduler;
use evenkeel_policies::shape::{Api, RequestShape};

use super::SimulateError;
use super::outcome::{SimRequest, SimResult};
use crate::engine::model::{Emission, Engine, Request};
use crate::engine::profile::Profile;
use crate::load::workload::PlannedRequest;

/// Tokens and time between two reports of progress, as the live lease reports it.
const PROGRESS_TOKENS: u32 = 16;
const PROGRESS_NS: u64 = 100_000_000;

/// A fleet and the policy before it.
#[derive(Debug, Clone)]
pub struct FleetSpec {
    /// what every instance is
    pub profile: Profile,
    /// one an instance: how many times as long its steps last (1.6 is 1.6 times slower)
    pub slow_factors: Vec<f64>,
    /// the policy
    pub policy: PolicyConfig,
    /// output tokens expected before anything was learnt
    pub default_output_tokens: u32,
    /// the limit a request names is its length times this, as users who ask for more than they get
    pub limit_factor: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// a step of this instance ends; before arrivals of the same instant, so that they see its end
    StepEnd(usize),
    /// a request of the plan comes
    Arrive(usize),
    /// a request that waits in a queue may have waited too long
    Expire,
}

struct Live {
    lease: LeaseId,
    reported_tokens: u32,
    reported_ns: u64,
}

struct Clockwork<'a> {
    plan: &'a [PlannedRequest],
    spec: &'a FleetSpec,
    scheduler: Scheduler,
    predictor: OutputPredictor,
    engines: Vec<Engine>,
    stepping: Vec<bool>,
    busy_ns: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    live: HashMap<u64, Live>,
    requests: Vec<SimRequest>,
    actions: Vec<Action>,
    emissions: Vec<Emission>,
    end_ns: u64,
}

/// Runs a plan through a fleet to its last token. The same arguments give the same result.
pub fn run(
    spec: &FleetSpec,
    plan: &[PlannedRequest],
    seed: u64,
) -> Result<SimResult, SimulateError> {
    if spec.slow_factors.is_empty() {
        return Err(SimulateError::NoInstance);
    }
    let mut clockwork = Clockwork::new(spec, plan, seed)?;
    while let Some(Reverse((now_ns, event))) = clockwork.events.pop() {
        clockwork.take(now_ns, event);
    }
    Ok(clockwork.result())
}

impl<'a> Clockwork<'a> {
    fn new(
        spec: &'a FleetSpec,
        plan: &'a [PlannedRequest],
        seed: u64,
    ) -> Result<Self, SimulateError> {
        let mut scheduler = Scheduler::new(&spec.policy, seed)?;
        let mut actions = Vec::new();
        for id in 0..spec.slow_factors.len() as u32 {
            scheduler.add_instance(0, InstanceId(id), 1.0, &mut actions);
        }
        let engine = |factor: &f64| {
            let mut engine = Engine::new(spec.profile.clone());
            engine.set_speed_factor(*factor);
            engine
        };
        let arrive = |(index, request): (usize, &PlannedRequest)| {
            Reverse((request.at_ns, Event::Arrive(index)))
        };
        Ok(Clockwork {
            plan,
            spec,
            scheduler,
            predictor: OutputPredictor::new(spec.default_output_tokens),
            engines: spec.slow_factors.iter().map(engine).collect(),
            stepping: vec![false; spec.slow_factors.len()],
            busy_ns: vec![0; spec.slow_factors.len()],
            events: plan.iter().enumerate().map(arrive).collect(),
            live: HashMap::new(),
            requests: plan.iter().map(waiting).collect(),
            actions,
            emissions: Vec::new(),
            end_ns: 0,
        })
    }

    fn take(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Arrive(index) => self.arrive(now_ns, index),
            Event::StepEnd(instance) => self.step_end(now_ns, instance),
            Event::Expire => self.scheduler.expire(now_ns, &mut self.actions),
        }
        self.perform_actions(now_ns);
        self.end_ns = self.end_ns.max(now_ns);
    }

    fn arrive(&mut self, now_ns: u64, index: usize) {
        let shape = self.shape(&self.plan[index]);
        let ticket = Ticket(index as u64);
        match self
            .scheduler
            .arrive(now_ns, ticket, &shape, &[], &mut self.actions)
        {
            Arrival::Send(grant) => self.send(now_ns, &grant),
            Arrival::Shed(_) => self.requests[index].refused = true,
            Arrival::Queued { .. } => {
                if let Some(deadline_ns) = self.scheduler.next_deadline() {
                    self.events
                        .push(Reverse((deadline_ns.max(now_ns), Event::Expire)));
                }
            }
        }
    }

    fn shape(&self, request: &PlannedRequest) -> RequestShape {
        let limit = (f64::from(request.output_tokens) * self.spec.limit_factor).round() as u32;
        RequestShape {
            api: Api::Chat,
            model: 0,
            prompt_tokens: request.prompt_tokens,
            cached_tokens: 0,
            max_output_tokens: Some(limit),
            predicted_output_tokens: self.predictor.predict(
                "model",
                Api::Chat,
                None,
                Some(limit),
                1,
            ),
            choices: 1,
            stream: true,
            body_bytes: u64::from(request.prompt_tokens) * 4,
            session: None,
        }
    }

    /// Gives a request to the instance that was chosen for it.
    fn send(&mut self, now_ns: u64, grant: &Grant) {
        let index = grant.ticket.0 as usize;
        let (request, instance) = (&self.plan[index], grant.instance.0 as usize);
        let submitted = self.engines[instance].submit(
            now_ns,
            Request {
                id: grant.ticket.0,
                prompt_tokens: request.prompt_tokens,
                block_hashes: Vec::new(),
                output_tokens: request.output_tokens,
            },
        );
        self.requests[index].sent_ns = Some(now_ns);
        self.requests[index].instance = Some(grant.instance.0);
        if submitted.is_err() {
            self.requests[index].refused = true;
            self.scheduler.finish(
                now_ns,
                grant.lease,
                &Observation::default(),
                &mut self.actions,
            );
            return;
        }
        let live = Live {
            lease: grant.lease,
            reported_tokens: 0,
            reported_ns: now_ns,
        };
        self.live.insert(grant.ticket.0, live);
        self.start_step(now_ns, instance);
    }

    fn start_step(&mut self, now_ns: u64, instance: usize) {
        if self.stepping[instance] {
            return;
        }
        if let Some(end_ns) = self.engines[instance].start_step(now_ns) {
            self.stepping[instance] = true;
            self.busy_ns[instance] += end_ns - now_ns;
            self.events
                .push(Reverse((end_ns, Event::StepEnd(instance))));
        }
    }

    fn step_end(&mut self, now_ns: u64, instance: usize) {
        self.stepping[instance] = false;
        let mut emissions = std::mem::take(&mut self.emissions);
        self.engines[instance].finish_step(&mut emissions);
        for emission in emissions.drain(..) {
            self.token(now_ns, &emission);
        }
        self.emissions = emissions;
        // Waiters that were granted by these ends are in the queue before the next step is planned.
        self.perform_actions(now_ns);
        self.start_step(now_ns, instance);
    }

    fn token(&mut self, now_ns: u64, emission: &Emission) {
        let request = &mut self.requests[emission.request as usize];
        request.output_tokens = emission.token_index + 1;
        request.last_ns = Some(now_ns);
        let Some(live) = self.live.get_mut(&emission.request) else {
            return;
        };
        if request.first_ns.is_none() {
            request.first_ns = Some(now_ns);
            self.scheduler.first_output(now_ns, live.lease);
        }
        let tokens = emission.token_index + 1;
        if emission.finished {
            self.scheduler.finish(
                now_ns,
                live.lease,
                &Observation::default(),
                &mut self.actions,
            );
            self.predictor
                .observe("model", Api::Chat, None, u64::from(tokens));
            self.live.remove(&emission.request);
        } else if tokens >= live.reported_tokens + PROGRESS_TOKENS
            || now_ns >= live.reported_ns + PROGRESS_NS
        {
            live.reported_tokens = tokens;
            live.reported_ns = now_ns;
            self.scheduler
                .progress(now_ns, live.lease, u64::from(tokens));
        }
    }

    /// What the scheduler decided for requests in its queues.
    fn perform_actions(&mut self, now_ns: u64) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Grant(grant) => self.send(now_ns, &grant),
                    Action::Shed { ticket, .. } => self.requests[ticket.0 as usize].refused = true,
                }
            }
        }
    }

    fn result(self) -> SimResult {
        let span = self.end_ns.max(1) as f64;
        SimResult {
            requests: self.requests,
            busy: self
                .busy_ns
                .iter()
                .map(|busy| *busy as f64 / span)
                .collect(),
            end_ns: self.end_ns,
        }
    }
}

fn waiting(request: &PlannedRequest) -> SimRequest {
    SimRequest {
        index: request.index,
        class: request.class,
        arrived_ns: request.at_ns,
        sent_ns: None,
        instance: None,
        first_ns: None,
        last_ns: None,
        prompt_tokens: request.prompt_tokens,
        output_tokens: 0,
        refused: false,
    }
}
