//! Properties of the scheduler under any order of calls, held against a model of truth.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::config::{InnerPolicy, LaneConfig, LanesConfig, PolicyConfig, QueueConfig};
use crate::load::{EngineGauges, InstanceState};
use crate::scheduler::*;
use crate::shape::{Api, RequestShape};

const IDS: u32 = 4;

#[derive(Debug, Clone)]
enum Op {
    Arrive {
        prompt: u32,
        output: u32,
        exclude: u8,
    },
    Pinned {
        prompt: u32,
        output: u32,
        id: u32,
    },
    FirstOutput(usize),
    Progress(usize, u64),
    Finish(usize),
    FinishAgain(usize),
    Cancel(usize),
    Add(u32, f64),
    Remove(u32),
    State(u32, InstanceState),
    Gauges(u32, u32),
    Policy(PolicyConfig),
    SlowStart(u32, u64),
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let state = prop_oneof![
        3 => Just(InstanceState::Up),
        2 => Just(InstanceState::Probing),
        1 => Just(InstanceState::Draining),
        1 => Just(InstanceState::Down),
    ];
    prop_oneof![
        12 => (0..3000_u32, 0..600_u32, 0..16_u8)
            .prop_map(|(prompt, output, exclude)| Op::Arrive { prompt, output, exclude }),
        1 => (0..3000_u32, 0..600_u32, 0..IDS).prop_map(|(prompt, output, id)| Op::Pinned { prompt, output, id }),
        4 => any::<usize>().prop_map(Op::FirstOutput),
        4 => (any::<usize>(), 0..900_u64).prop_map(|(at, tokens)| Op::Progress(at, tokens)),
        6 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::FinishAgain),
        2 => any::<usize>().prop_map(Op::Cancel),
        3 => (0..IDS, 0.5..4.0).prop_map(|(id, weight)| Op::Add(id, weight)),
        1 => (0..IDS).prop_map(Op::Remove),
        2 => (0..IDS, state).prop_map(|(id, state)| Op::State(id, state)),
        1 => (0..IDS, 0..20_u32).prop_map(|(id, running)| Op::Gauges(id, running)),
        2 => config().prop_map(Op::Policy),
        1 => (0..IDS, 0..4_000_000_000_u64).prop_map(|(id, ns)| Op::SlowStart(id, ns)),
        2 => (0..4_000_000_000_u64).prop_map(Op::Wait),
    ]
}

fn lanes(inner: InnerPolicy, slots: Option<u32>) -> PolicyConfig {
    let lane = |name: &str, max_tokens, reserve| LaneConfig {
        name: name.into(),
        max_tokens,
        reserve,
    };
    PolicyConfig::Lanes(LanesConfig {
        inner,
        slots_per_instance: slots,
        lanes: vec![
            lane("short", Some(500), 0.34),
            lane("middle", Some(1500), 0.0),
            lane("long", None, 0.34),
        ],
        queue: slots.map(|_| QueueConfig {
            max_requests: 6,
            max_bytes: 60_000,
            max_wait_s: 5.0,
        }),
    })
}

fn config() -> impl Strategy<Value = PolicyConfig> {
    prop_oneof![
        Just(PolicyConfig::Random {}),
        Just(PolicyConfig::RoundRobin {}),
        Just(PolicyConfig::LeastRequests {}),
        Just(PolicyConfig::LeastOutstandingTokens {}),
        Just(lanes(InnerPolicy::LeastOutstandingTokens, None)),
        Just(lanes(InnerPolicy::RoundRobin, Some(3))),
        Just(lanes(InnerPolicy::LeastOutstandingTokens, Some(3))),
        Just(lanes(InnerPolicy::LeastRequests, Some(1))),
    ]
}

struct Open {
    instance: InstanceId,
    prefill: u64,
    decode: u64,
    predicted: u64,
    work: u64,
}

/// What must be true, kept apart from the scheduler by the simplest means.
struct Truth {
    scheduler: Scheduler,
    config: PolicyConfig,
    now_ns: u64,
    states: BTreeMap<InstanceId, InstanceState>,
    open: BTreeMap<LeaseId, Open>,
    ended: Vec<LeaseId>,
    shapes: BTreeMap<Ticket, (RequestShape, Vec<InstanceId>)>,
    waiting: BTreeSet<Ticket>,
    answered: BTreeSet<Ticket>,
    next_ticket: u64,
    out: Vec<Action>,
}

impl Truth {
    fn new(config: &PolicyConfig) -> Self {
        let mut scheduler = Scheduler::new(config, 7).unwrap();
        scheduler.record_events(true);
        Self {
            scheduler,
            config: config.clone(),
            now_ns: 0,
            states: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: Vec::new(),
            shapes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            answered: BTreeSet::new(),
            next_ticket: 0,
            out: Vec::new(),
        }
    }

    fn ticket(
        &mut self,
        prompt: u32,
        output: u32,
        exclude: Vec<InstanceId>,
    ) -> (Ticket, RequestShape) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let shape = RequestShape {
            api: Api::Chat,
            model: 0,
            prompt_tokens: prompt,
            cached_tokens: prompt / 3,
            max_output_tokens: None,
            predicted_output_tokens: output,
            choices: 1,
            stream: true,
            body_bytes: u64::from(prompt) * 8,
            session: None,
        };
        self.shapes.insert(ticket, (shape, exclude));
        (ticket, shape)
    }

    fn sheds(&self) -> u64 {
        let counters = self.scheduler.counters();
        counters.shed_queue_wait + counters.shed_no_instance
    }

    fn lease(&self, at: usize) -> Option<LeaseId> {
        let count = self.open.len();
        (count > 0).then(|| *self.open.keys().nth(at % count).unwrap())
    }

    /// Whether an instance takes requests, and the request does not shun it.
    fn takes(&self, id: InstanceId, exclude: &[InstanceId]) -> bool {
        let taking = [InstanceState::Up, InstanceState::Probing];
        taking.contains(&self.states[&id]) && !exclude.contains(&id)
    }

    fn lane_of(lanes: &[LaneConfig], work: u64) -> usize {
        let fits = |lane: &LaneConfig| lane.max_tokens.is_none_or(|most| work <= most.into());
        lanes.iter().position(fits).unwrap()
    }

    /// Whether a request of so much work finds a slot: a free one that no other lane's unused reserve keeps.
    fn has_room(&self, id: InstanceId, work: u64) -> bool {
        let PolicyConfig::Lanes(config) = &self.config else {
            return true;
        };
        let Some(slots) = config.slots_per_instance else {
            return true;
        };
        let mut used = vec![0; config.lanes.len()];
        for one in self.open.values().filter(|one| one.instance == id) {
            used[Self::lane_of(&config.lanes, one.work)] += 1;
        }
        let own = Self::lane_of(&config.lanes, work);
        let kept_for = |lane: usize| {
            let reserve = (config.lanes[lane].reserve * f64::from(slots)).floor() as u32;
            reserve.saturating_sub(used[lane])
        };
        let kept: u32 = (0..used.len())
            .filter(|lane| *lane != own)
            .map(kept_for)
            .sum();
        used.iter().sum::<u32>() + kept < slots
    }

    /// A request that waits beside an instance that would take it.
    fn stuck(&self) -> Option<Ticket> {
        let waiting = self.waiting.iter();
        waiting.copied().find(|ticket| {
            let (shape, exclude) = &self.shapes[ticket];
            let others = self.states.keys().any(|id| self.takes(*id, exclude));
            let shunned = if others { &exclude[..] } else { &[] };
            let mut instances = self.states.keys();
            instances.any(|id| self.takes(*id, shunned) && self.has_room(*id, shape.work_tokens()))
        })
    }

    fn granted(&mut self, grant: &Grant, pinned: bool) {
        assert!(
            self.answered.insert(grant.ticket),
            "two answers for {:?}",
            grant.ticket
        );
        let (shape, exclude) = &self.shapes[&grant.ticket];
        let others = self.states.keys().any(|id| self.takes(*id, exclude));
        assert!(
            pinned || !others || !exclude.contains(&grant.instance),
            "used an excluded instance needlessly"
        );
        assert!(
            pinned || self.has_room(grant.instance, shape.work_tokens()),
            "granted without room"
        );
        let state = self.states.get_mut(&grant.instance).unwrap();
        match *state {
            InstanceState::Up => assert!(!grant.probe, "one that is up was probed"),
            InstanceState::Probing => {
                assert!(grant.probe, "a probe that does not know it");
                // it takes this one and no other
                *state = InstanceState::Down;
            }
            other => panic!("granted one that is {other:?}"),
        }
        let (prefill, decode) = (
            u64::from(shape.uncached_tokens()),
            u64::from(shape.predicted_output_tokens),
        );
        let open = Open {
            instance: grant.instance,
            prefill,
            decode,
            predicted: decode,
            work: shape.work_tokens(),
        };
        assert!(
            self.open.insert(grant.lease, open).is_none(),
            "a lease was given twice"
        );
        assert!(
            !self.ended.contains(&grant.lease),
            "an ended lease's id was used again"
        );
    }

    fn answer(&mut self, ticket: Ticket, arrival: Arrival, pinned: bool) {
        match arrival {
            Arrival::Send(grant) => self.granted(&grant, pinned),
            Arrival::Queued { .. } => assert!(self.waiting.insert(ticket)),
            Arrival::Shed(shed) => {
                assert!(shed.retry_after_s >= 1);
                assert!(self.answered.insert(ticket), "two answers for {ticket:?}");
            }
        }
    }

    fn take_actions(&mut self) {
        for action in std::mem::take(&mut self.out) {
            match action {
                Action::Grant(grant) => {
                    assert!(
                        self.waiting.remove(&grant.ticket),
                        "granted one that did not wait"
                    );
                    self.granted(&grant, false);
                }
                Action::Shed { ticket, .. } => {
                    assert!(self.waiting.remove(&ticket), "shed one that did not wait");
                    assert!(self.answered.insert(ticket), "two answers for {ticket:?}");
                }
            }
        }
    }

    fn finish(&mut self, lease: LeaseId) {
        self.open.remove(&lease).unwrap();
        self.ended.push(lease);
        self.scheduler
            .finish(self.now_ns, lease, &Observation::default(), &mut self.out);
    }

    fn run(&mut self, op: Op) {
        let now = self.now_ns;
        match op {
            Op::Arrive {
                prompt,
                output,
                exclude,
            } => {
                let exclude: Vec<_> = (0..IDS)
                    .filter(|id| exclude & (1 << id) != 0)
                    .map(InstanceId)
                    .collect();
                let (ticket, shape) = self.ticket(prompt, output, exclude.clone());
                let arrival = self
                    .scheduler
                    .arrive(now, ticket, &shape, &exclude, &mut self.out);
                self.answer(ticket, arrival, false);
            }
            Op::Pinned { prompt, output, id } => {
                let (ticket, shape) = self.ticket(prompt, output, Vec::new());
                let arrival = self.scheduler.arrive_pinned(
                    now,
                    ticket,
                    &shape,
                    InstanceId(id),
                    &mut self.out,
                );
                self.answer(ticket, arrival, true);
            }
            Op::FirstOutput(at) => {
                let Some(lease) = self.lease(at) else { return };
                self.open.get_mut(&lease).unwrap().prefill = 0;
                self.scheduler.first_output(now, lease);
            }
            Op::Progress(at, tokens) => {
                let Some(lease) = self.lease(at) else { return };
                let open = self.open.get_mut(&lease).unwrap();
                open.decode = open.decode.min(open.predicted.saturating_sub(tokens));
                self.scheduler.progress(now, lease, tokens);
            }
            Op::Finish(at) => {
                let Some(lease) = self.lease(at) else { return };
                self.finish(lease);
            }
            Op::FinishAgain(at) => {
                if self.ended.is_empty() {
                    return;
                }
                let lease = self.ended[at % self.ended.len()];
                let before = self.scheduler.counters().stale_finishes;
                self.scheduler
                    .finish(now, lease, &Observation::default(), &mut self.out);
                self.scheduler.progress(now, lease, 5);
                assert_eq!(self.scheduler.counters().stale_finishes, before + 1);
            }
            Op::Cancel(at) => {
                let ticket = Ticket(at as u64 % self.next_ticket.max(1));
                let was = self.waiting.remove(&ticket);
                assert_eq!(self.scheduler.cancel(now, ticket, &mut self.out), was);
                if was {
                    assert!(self.answered.insert(ticket));
                }
            }
            Op::Add(id, weight) => {
                self.states.insert(InstanceId(id), InstanceState::Up);
                self.scheduler
                    .add_instance(now, InstanceId(id), weight, &mut self.out);
            }
            Op::Remove(id) => {
                if let Some(state) = self.states.get_mut(&InstanceId(id)) {
                    *state = InstanceState::Leaving;
                }
                self.scheduler
                    .remove_instance(now, InstanceId(id), &mut self.out);
            }
            Op::State(id, state) => {
                if let Some(known) = self.states.get_mut(&InstanceId(id)) {
                    *known = state;
                }
                self.scheduler
                    .set_state(now, InstanceId(id), state, &mut self.out);
            }
            Op::Gauges(id, running) => {
                let gauges = EngineGauges {
                    running,
                    waiting: 0,
                    kv_usage: 0.1,
                    at_ns: now,
                };
                self.scheduler.set_gauges(now, InstanceId(id), gauges);
            }
            Op::Policy(config) => {
                let waiting = self.waiting.clone();
                let shed = self.sheds();
                self.scheduler
                    .set_policy(now, &config, &mut self.out)
                    .unwrap();
                self.config = config;
                let shed_now = |action: &&Action| matches!(action, Action::Shed { .. });
                let shed_now = self.out.iter().filter(shed_now).count();
                assert_eq!(self.sheds(), shed + shed_now as u64);
                let left = waiting.len() - self.out.len();
                assert_eq!(self.scheduler.queue_len(), left);
                self.take_actions();
                // one that is probed takes a single waiter, and then there may be nobody
                assert!(
                    shed_now == 0 || !self.states.keys().any(|id| self.takes(*id, &[])),
                    "a waiter was shed by a new policy"
                );
            }
            Op::SlowStart(id, ns) => self.scheduler.slow_start(now, InstanceId(id), ns),
            Op::Wait(ns) => {
                self.now_ns += ns;
                self.scheduler.expire(self.now_ns, &mut self.out);
                assert!(
                    self.scheduler
                        .next_deadline()
                        .is_none_or(|deadline| deadline > self.now_ns)
                );
            }
        }
        self.take_actions();
        self.forget();
        self.check();
    }

    fn forget(&mut self) {
        let open = &self.open;
        let in_use = |id: &InstanceId| open.values().any(|one| one.instance == *id);
        self.states
            .retain(|id, state| *state != InstanceState::Leaving || in_use(id));
    }

    fn check(&self) {
        let known: BTreeMap<_, _> = self
            .scheduler
            .loads()
            .map(|(id, _, state)| (id, state))
            .collect();
        assert_eq!(known, self.states);
        for (id, load, _) in self.scheduler.loads() {
            let mine = || self.open.values().filter(|one| one.instance == id);
            assert_eq!(load.requests as usize, mine().count(), "requests of {id:?}");
            assert_eq!(
                load.prefill_tokens,
                mine().map(|one| one.prefill).sum::<u64>(),
                "prefill of {id:?}"
            );
            assert_eq!(
                load.decode_tokens,
                mine().map(|one| one.decode).sum::<u64>(),
                "decode of {id:?}"
            );
        }
        assert_eq!(self.scheduler.open_leases(), self.open.len());
        assert_eq!(self.scheduler.queue_len(), self.waiting.len());
        if let PolicyConfig::Lanes(config) = &self.config {
            for (lane, stats) in self.scheduler.lane_stats().enumerate() {
                let mine = |one: &&Open| Self::lane_of(&config.lanes, one.work) == lane;
                let mine = self.open.values().filter(mine).count();
                assert_eq!(stats.requests as usize, mine, "requests of lane {lane}");
            }
        }
        let bytes: u64 = self
            .waiting
            .iter()
            .map(|ticket| self.shapes[ticket].0.body_bytes)
            .sum();
        assert_eq!(self.scheduler.queue_bytes(), bytes);
        assert!(
            self.scheduler.held_is_right(),
            "held slots drifted from the counts"
        );
        assert!(
            self.waiting.is_empty() || self.states.keys().any(|id| self.takes(*id, &[])),
            "requests wait though no instance is up"
        );
        assert_eq!(self.stuck(), None, "a request waits beside room it may use");
        assert_eq!(
            self.scheduler.counters().policy_failed,
            0,
            "a policy did not choose though it could"
        );
    }

    fn end(&mut self) {
        self.run(Op::Add(0, 1.0));
        while let Some(lease) = self.lease(0) {
            self.finish(lease);
            self.take_actions();
            self.forget();
            self.check();
        }
        self.run(Op::Wait(10_000_000_000));
        for (_, load, _) in self.scheduler.loads() {
            assert_eq!((load.requests, load.outstanding_tokens()), (0, 0));
        }
        assert_eq!(self.scheduler.queue_len(), 0);
        assert_eq!(
            self.answered.len() as u64,
            self.next_ticket,
            "every ticket has one answer"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn counts_equal_truth_and_end_at_zero_and_a_replay_chooses_the_same(
        config in config(),
        ops in prop::collection::vec(op(), 1..160),
    ) {
        let mut truth = Truth::new(&config);
        for id in 0..2 {
            truth.run(Op::Add(id, 1.0));
        }
        for op in ops {
            truth.run(op);
        }
        truth.end();

        let log = truth.scheduler.take_events().unwrap();
        prop_assert_eq!(log.events.last().unwrap().seq, truth.scheduler.last_seq());
        let text = serde_json::to_string(&log).unwrap();
        let read: EventLog = serde_json::from_str(&text).unwrap();
        let mut again = Scheduler::new(&config, 7).unwrap();
        again.record_events(true);
        let mut out = Vec::new();
        for event in &read.events {
            again.apply(event, &mut out);
        }
        prop_assert_eq!(again.take_events().unwrap().decisions, log.decisions);
    }
}
