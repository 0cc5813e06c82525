//! The discrete-event loop: requests and engine steps in order of virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use evenkeel_policies::PolicyConfig;
use evenkeel_policies::estimate::OutputPredictor;
use evenkeel_policies::event::{Action, Arrival, Grant, InstanceId, LeaseId, Observation, Ticket};
use evenkeel_policies::progress;
use evenkeel_policies::scheduler::Scheduler;
use evenkeel_policies::shape::{Api, RequestShape};

use super::SimulateError;
use super::connections::Connections;
use super::flow::Flow;
use super::generator::{Generator, GeneratorCost};
use super::job::{Job, Sender};
use super::looks::Looks;
use super::outcome::SimResult;
use crate::engine::model::{Emission, Engine, Request};
use crate::engine::profile::Profile;
use crate::load::runner::{GeneratorUse, Pace, planned};
use crate::load::sample::Failure;
use crate::load::workload::PlannedRequest;
use crate::study::monitor::Reading;

/// A refusal takes its way over the network too; so a closed loop that is always refused comes to an end.
const REFUSAL_NS: u64 = 1_000_000;

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

/// What a fleet is put through.
pub(super) struct Course {
    /// who sends; the first one's end is the end of all
    pub(super) flows: Vec<Flow>,
    /// what sending costs
    pub(super) generator: GeneratorCost,
    /// chooses instances in the policy's place
    pub(super) connections: Option<Connections>,
    /// time between two looks at the fleet
    pub(super) look_every_ns: Option<u64>,
}

/// What came of it.
pub(super) struct Driven {
    pub(super) jobs: Vec<Job>,
    pub(super) busy: Vec<f64>,
    pub(super) end_ns: u64,
    pub(super) readings: Vec<Reading>,
    pub(super) generator: GeneratorUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// a step of this instance ends; before arrivals of the same instant, so that they see its end
    StepEnd(usize),
    /// a request may be ready on this idle instance
    Ready(usize),
    /// a request comes to the balancer
    Arrive(usize),
    /// the client of a request has its last byte
    Answered(usize),
    /// a flow's next request is due
    Due(usize),
    /// a request that waits in a queue may have waited too long
    Expire,
    /// the monitor looks
    Look,
}

struct Live {
    lease: LeaseId,
    reported_tokens: u32,
    reported_ns: u64,
}

struct Clockwork<'a> {
    spec: &'a FleetSpec,
    scheduler: Scheduler,
    predictor: OutputPredictor,
    engines: Vec<Engine>,
    stepping: Vec<bool>,
    /// when each idle instance is looked at again
    ready_ns: Vec<u64>,
    busy_ns: Vec<u64>,
    flows: Vec<Flow>,
    due: Vec<bool>,
    generator: Generator,
    connections: Option<Connections>,
    looks: Option<Looks>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    live: HashMap<u64, Live>,
    jobs: Vec<Job>,
    actions: Vec<Action>,
    emissions: Vec<Emission>,
    /// requests whose clients wait
    open: u64,
    /// requests that the balancer has open on each instance
    open_on: Vec<u32>,
    end_ns: u64,
}

/// Runs a plan through a fleet to its last token. The same arguments give the same result.
pub fn run(
    spec: &FleetSpec,
    plan: &[PlannedRequest],
    seed: u64,
) -> Result<SimResult, SimulateError> {
    let requests = planned(plan.into());
    let course = Course {
        flows: vec![Flow::new(requests, Pace::Schedule, 0)],
        generator: GeneratorCost::default(),
        connections: None,
        look_every_ns: None,
    };
    let driven = drive(spec, course, seed)?;
    Ok(SimResult {
        requests: driven.jobs.into_iter().map(|job| job.fleet).collect(),
        busy: driven.busy,
        end_ns: driven.end_ns,
    })
}

/// Puts a fleet through a course, to the last byte of the last answer.
pub(super) fn drive(spec: &FleetSpec, course: Course, seed: u64) -> Result<Driven, SimulateError> {
    if spec.slow_factors.is_empty() {
        return Err(SimulateError::NoInstance);
    }
    let mut clockwork = Clockwork::new(spec, course, seed)?;
    while let Some(Reverse((now_ns, event))) = clockwork.events.pop() {
        clockwork.take(now_ns, event);
    }
    Ok(clockwork.result())
}

impl<'a> Clockwork<'a> {
    fn new(spec: &'a FleetSpec, course: Course, seed: u64) -> Result<Self, SimulateError> {
        let mut scheduler = Scheduler::new(&spec.policy, seed)?;
        let mut actions = Vec::new();
        let instances = spec.slow_factors.len();
        for id in 0..instances as u32 {
            scheduler.add_instance(0, InstanceId(id), 1.0, &mut actions);
        }
        let engine = |factor: &f64| {
            let mut engine = Engine::new(spec.profile.clone());
            engine.set_speed_factor(*factor);
            engine
        };
        let mut clockwork = Clockwork {
            spec,
            scheduler,
            predictor: OutputPredictor::new(spec.default_output_tokens),
            engines: spec.slow_factors.iter().map(engine).collect(),
            stepping: vec![false; instances],
            ready_ns: vec![0; instances],
            busy_ns: vec![0; instances],
            due: vec![false; course.flows.len()],
            flows: course.flows,
            generator: Generator::new(course.generator),
            connections: course.connections,
            looks: course
                .look_every_ns
                .map(|every| Looks::new(every, instances)),
            events: BinaryHeap::new(),
            live: HashMap::new(),
            jobs: Vec::new(),
            actions,
            emissions: Vec::new(),
            open: 0,
            open_on: vec![0; instances],
            end_ns: 0,
        };
        for flow in 0..clockwork.flows.len() {
            clockwork.announce(0, flow);
        }
        if let Some(looks) = &clockwork.looks {
            let first_ns = looks.every_ns();
            clockwork.push(first_ns, Event::Look);
        }
        Ok(clockwork)
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.events.push(Reverse((at_ns, event)));
    }

    fn take(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::StepEnd(instance) => self.step_end(now_ns, instance),
            Event::Ready(instance) => self.start_step(now_ns, instance),
            Event::Arrive(job) => self.arrive(now_ns, job),
            Event::Answered(job) => self.answered(now_ns, job),
            Event::Due(flow) => self.issue(now_ns, flow),
            Event::Expire => self.scheduler.expire(now_ns, &mut self.actions),
            Event::Look => return self.look(now_ns),
        }
        self.perform_actions(now_ns);
        self.end_ns = self.end_ns.max(now_ns);
    }

    /// Puts the next request of a flow into the clockwork, once.
    fn announce(&mut self, now_ns: u64, flow: usize) {
        if self.due[flow] {
            return;
        }
        if let Some(at_ns) = self.flows[flow].due_ns(now_ns) {
            self.due[flow] = true;
            self.push(at_ns, Event::Due(flow));
        }
    }

    fn issue(&mut self, now_ns: u64, flow: usize) {
        self.due[flow] = false;
        if let Some((request, place)) = self.flows[flow].take(now_ns) {
            self.send_off(now_ns, flow, place, &request);
        }
        if flow == 0 && self.flows[0].is_done() {
            self.flows.iter_mut().for_each(Flow::stop);
        }
        self.announce(now_ns, flow);
    }

    fn send_off(&mut self, now_ns: u64, flow: usize, place: u32, request: &PlannedRequest) {
        let turn = self.generator.issue(now_ns);
        // A closed loop has no time to keep: it plans as it takes a request up.
        let planned_ns = match self.flows[flow].is_scheduled() {
            true => request.at_ns,
            false => turn.begin_ns,
        };
        let job = self.jobs.len();
        let sender = Sender { flow, place };
        self.jobs
            .push(Job::issued(request, sender, planned_ns, &turn));
        self.open += 1;
        if turn.end_ns == now_ns {
            self.arrive(now_ns, job);
        } else {
            self.push(turn.end_ns, Event::Arrive(job));
        }
    }

    fn arrive(&mut self, now_ns: u64, job: usize) {
        let shape = self.shape(&self.jobs[job]);
        let ticket = Ticket(job as u64);
        let (scheduler, actions) = (&mut self.scheduler, &mut self.actions);
        let arrival = match &self.connections {
            None => scheduler.arrive(now_ns, ticket, &shape, &[], actions),
            Some(connections) => {
                let of = &self.jobs[job];
                let scheduled = self.flows[of.sender.flow].is_scheduled();
                let instance = connections.instance(of, scheduled);
                scheduler.arrive_pinned(now_ns, ticket, &shape, InstanceId(instance), actions)
            }
        };
        match arrival {
            Arrival::Send(grant) => self.send(now_ns, &grant),
            Arrival::Shed(_) => self.refuse(now_ns, job, Failure::Refused, 429),
            Arrival::Queued { .. } => {
                if let Some(deadline_ns) = self.scheduler.next_deadline() {
                    self.push(deadline_ns.max(now_ns), Event::Expire);
                }
            }
        }
    }

    fn shape(&self, job: &Job) -> RequestShape {
        let output_tokens = f64::from(job.client.planned_output_tokens);
        let limit = (output_tokens * self.spec.limit_factor).round() as u32;
        RequestShape {
            api: Api::Chat,
            model: 0,
            prompt_tokens: job.fleet.prompt_tokens,
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
            body_bytes: u64::from(job.fleet.prompt_tokens) * 4,
            session: None,
        }
    }

    /// Gives a request to the instance that was chosen for it.
    fn send(&mut self, now_ns: u64, grant: &Grant) {
        let (at, instance) = (grant.ticket.0 as usize, grant.instance.0 as usize);
        let job = &mut self.jobs[at];
        job.fleet.sent_ns = Some(now_ns);
        job.fleet.instance = Some(grant.instance.0);
        job.fleet.outstanding_requests = Some(grant.outstanding_requests);
        let request = Request {
            id: grant.ticket.0,
            prompt_tokens: job.fleet.prompt_tokens,
            block_hashes: Vec::new(),
            output_tokens: job.client.planned_output_tokens,
        };
        if self.engines[instance].submit(now_ns, request).is_err() {
            self.refuse(now_ns, at, Failure::Status, 400);
            let observation = Observation::default();
            self.scheduler
                .finish(now_ns, grant.lease, &observation, &mut self.actions);
            return;
        }
        let live = Live {
            lease: grant.lease,
            reported_tokens: 0,
            reported_ns: now_ns,
        };
        self.live.insert(grant.ticket.0, live);
        self.open_on[instance] += 1;
        self.start_step(now_ns, instance);
    }

    fn start_step(&mut self, now_ns: u64, instance: usize) {
        if self.stepping[instance] {
            return;
        }
        if let Some(end_ns) = self.engines[instance].start_step(now_ns) {
            self.stepping[instance] = true;
            self.busy_ns[instance] += end_ns - now_ns;
            self.push(end_ns, Event::StepEnd(instance));
        } else if let Some(ready_ns) = self.engines[instance].next_ready_ns()
            && self.ready_ns[instance] != ready_ns
        {
            self.ready_ns[instance] = ready_ns;
            self.push(ready_ns.max(now_ns), Event::Ready(instance));
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
        let job = &mut self.jobs[emission.request as usize];
        let tokens = emission.token_index + 1;
        job.fleet.output_tokens = tokens;
        job.fleet.last_ns = Some(now_ns);
        let read_ns = self.generator.read(now_ns).end_ns;
        job.see_chunk(read_ns);
        let Some(live) = self.live.get_mut(&emission.request) else {
            return;
        };
        if job.fleet.first_ns.is_none() {
            job.fleet.first_ns = Some(now_ns);
            self.scheduler.first_output(now_ns, live.lease);
        }
        if emission.finished {
            job.see_end(read_ns);
            let observation = Observation::default();
            self.scheduler
                .finish(now_ns, live.lease, &observation, &mut self.actions);
            self.predictor
                .observe("model", Api::Chat, None, u64::from(tokens));
            self.live.remove(&emission.request);
            if let Some(instance) = job.fleet.instance {
                self.open_on[instance as usize] -= 1;
            }
            self.push(read_ns, Event::Answered(emission.request as usize));
        } else if progress::is_due(
            u64::from(tokens.saturating_sub(live.reported_tokens)),
            now_ns.saturating_sub(live.reported_ns),
        ) {
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
                    Action::Shed { ticket, .. } => {
                        self.refuse(now_ns, ticket.0 as usize, Failure::Refused, 429);
                    }
                }
            }
        }
    }

    fn refuse(&mut self, now_ns: u64, at: usize, failure: Failure, status: u16) {
        let read_ns = self.generator.read(now_ns + REFUSAL_NS).end_ns;
        self.jobs[at].see_refusal(read_ns, failure, status);
        self.push(read_ns, Event::Answered(at));
    }

    fn answered(&mut self, now_ns: u64, job: usize) {
        let Sender { flow, place } = self.jobs[job].sender;
        self.open -= 1;
        self.flows[flow].give_back(place);
        self.announce(now_ns, flow);
    }

    fn look(&mut self, now_ns: u64) {
        let Some(looks) = &mut self.looks else { return };
        looks.look(now_ns, &self.engines, &self.generator, self.open);
        looks.look_at_balancer(now_ns, &self.open_on);
        if !self.events.is_empty() {
            let next_ns = now_ns + looks.every_ns();
            self.push(next_ns, Event::Look);
        }
    }

    fn result(self) -> Driven {
        let span = self.end_ns.max(1) as f64;
        let share = |busy_ns: &u64| *busy_ns as f64 / span;
        let connections = self
            .jobs
            .iter()
            .map(|job| u64::from(job.sender.place) + 1)
            .max();
        Driven {
            jobs: self.jobs,
            busy: self.busy_ns.iter().map(share).collect(),
            end_ns: self.end_ns,
            readings: self.looks.map(Looks::readings).unwrap_or_default(),
            generator: self.generator.used(self.end_ns, connections.unwrap_or(0)),
        }
    }
}
