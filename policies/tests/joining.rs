//! A pool that changes while it serves: instances that join (C21), and policies that take over.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use evenkeel_policies::PolicyConfig;
use evenkeel_policies::load::RAMP_START;
use evenkeel_policies::scheduler::{
    Action, Arrival, Grant, InstanceId, Observation, Scheduler, Ticket,
};
use evenkeel_policies::shape::{Api, RequestShape};

const SECOND: u64 = 1_000_000_000;
const NEW: InstanceId = InstanceId(3);

fn shape(prompt_tokens: u32) -> RequestShape {
    RequestShape {
        api: Api::Chat,
        model: 0,
        prompt_tokens,
        cached_tokens: 0,
        max_output_tokens: None,
        predicted_output_tokens: 100,
        choices: 1,
        stream: true,
        body_bytes: 1000,
        session: None,
    }
}

fn config(text: &str) -> PolicyConfig {
    toml::from_str(text).unwrap()
}

fn simple() -> Vec<PolicyConfig> {
    vec![
        PolicyConfig::Random {},
        PolicyConfig::RoundRobin {},
        PolicyConfig::LeastRequests {},
        PolicyConfig::LeastOutstandingTokens {},
    ]
}

const LANES: &str = "kind = \"lanes\"\nlanes = [{ name = \"short\", max_tokens = 1024, reserve = 0.25 }, { name = \"long\" }]";

fn pool(config: &PolicyConfig, instances: u32) -> Scheduler {
    let mut scheduler = Scheduler::new(config, 1).unwrap();
    for id in 0..instances {
        scheduler.add_instance(0, InstanceId(id), 1.0, &mut Vec::new());
    }
    scheduler
}

fn arrive(scheduler: &mut Scheduler, now_ns: u64, ticket: u64, shape: &RequestShape) -> Arrival {
    scheduler.arrive(now_ns, Ticket(ticket), shape, &[], &mut Vec::new())
}

fn sent(arrival: Arrival) -> Grant {
    match arrival {
        Arrival::Send(grant) => grant,
        other => panic!("not sent: {other:?}"),
    }
}

fn grants(actions: &[Action]) -> Vec<(u64, Option<usize>)> {
    let grant = |action: &Action| match action {
        Action::Grant(grant) => (grant.ticket.0, grant.lane),
        Action::Shed { .. } => panic!("shed: {action:?}"),
    };
    actions.iter().map(grant).collect()
}

/// C21's first second, under every policy: 30 open on each of three, an empty one joins, 10 new requests.
#[test]
fn a_ramp_binds_every_policy() {
    const LENGTH_S: f64 = 30.0;
    let mut policies = simple();
    policies.push(config(LANES));
    for policy in policies {
        let mut scheduler = pool(&policy, 3);
        for ticket in 0..3 * 30 {
            let only = InstanceId(ticket as u32 % 3);
            let out = &mut Vec::new();
            scheduler.arrive_pinned(0, Ticket(ticket), &shape(100), only, out);
        }
        let begun = SECOND;
        scheduler.add_instance(begun, NEW, 1.0, &mut Vec::new());
        scheduler.slow_start(begun, NEW, (LENGTH_S * 1e9) as u64);
        let mut got = 0_u32;
        for number in 0..10_u64 {
            let now = begun + number * SECOND / 10;
            let grant = sent(arrive(&mut scheduler, now, 1000 + number, &shape(100)));
            got += u32::from(grant.instance == NEW);
            let past_s = number as f64 / 10.0;
            let others = 90 + number as u32 + 1 - got;
            let share = RAMP_START + (1.0 - RAMP_START) * past_s / LENGTH_S;
            let most = share * f64::from(others) / 3.0;
            assert!(
                f64::from(got) <= most.max(1.0),
                "{got} of {most} after {past_s} s under {policy:?}"
            );
        }
        assert!(got <= 4, "{got} in the first second under {policy:?}");
        let aware = matches!(
            policy,
            PolicyConfig::LeastRequests {} | PolicyConfig::LeastOutstandingTokens {}
        );
        assert!(!aware || got >= 3, "only {got} under {policy:?}");
        // the ramp is over: those who look at load fill it up
        let late = begun + 31 * SECOND;
        let grant = sent(arrive(&mut scheduler, late, 2000, &shape(100)));
        assert!(!aware || grant.instance == NEW);
    }
}

/// A full pool of one slot with waiters of both lanes, in the order 1 to 6; odd ones are long.
fn full() -> (Scheduler, Grant) {
    let slots = format!("slots_per_instance = 1\nqueue = {{ max_requests = 6 }}\n{LANES}");
    let mut scheduler = pool(&config(&slots), 1);
    let open = sent(arrive(&mut scheduler, 0, 0, &shape(100)));
    for ticket in 1..=6 {
        let prompt = if ticket % 2 == 1 { 8000 } else { 100 };
        let queued = arrive(&mut scheduler, ticket, ticket, &shape(prompt));
        assert!(matches!(queued, Arrival::Queued { .. }), "{queued:?}");
    }
    (scheduler, open)
}

#[test]
fn who_waits_goes_at_once_in_order_where_the_new_policy_has_no_queue() {
    for policy in simple() {
        let (mut scheduler, open) = full();
        let mut out = Vec::new();
        scheduler.set_policy(SECOND, &policy, &mut out).unwrap();
        let all: Vec<_> = (1..=6).map(|ticket| (ticket, None)).collect();
        assert_eq!(grants(&out), all);
        assert_eq!(scheduler.queue_len(), 0);
        assert_eq!(scheduler.load(open.instance).unwrap().requests, 7);
    }
}

#[test]
fn who_waits_keeps_order_and_place_in_a_smaller_queue_with_other_lanes() {
    let (mut scheduler, open) = full();
    let smaller = "kind = \"lanes\"\nslots_per_instance = 1\nqueue = { max_requests = 2, max_wait_s = 0.001 }\n\
        lanes = [{ name = \"tiny\", max_tokens = 10 }, { name = \"rest\" }]";
    let mut out = Vec::new();
    scheduler
        .set_policy(SECOND, &config(smaller), &mut out)
        .unwrap();
    assert_eq!(out, [], "the slot is still taken");
    assert_eq!(scheduler.queue_len(), 6);
    // who comes now finds the new bound
    let shed = arrive(&mut scheduler, SECOND, 7, &shape(100));
    assert!(matches!(shed, Arrival::Shed(_)), "{shed:?}");
    // and who waited was promised 30 s
    assert_eq!(scheduler.next_deadline(), Some(30 * SECOND + 1));
    let mut lease = open.lease;
    let mut order = Vec::new();
    for _ in 1..=6 {
        let mut out = Vec::new();
        scheduler.finish(2 * SECOND, lease, &Observation::default(), &mut out);
        order.extend(grants(&out));
        let Some(Action::Grant(grant)) = out.first() else {
            panic!("nobody went");
        };
        lease = grant.lease;
    }
    let all: Vec<_> = (1..=6).map(|ticket| (ticket, Some(1))).collect();
    assert_eq!(order, all);
}

#[test]
fn a_policy_that_cannot_be_used_changes_nothing() {
    let (mut scheduler, _) = full();
    let mut out = Vec::new();
    let wrong = config("kind = \"lanes\"\nlanes = []");
    assert!(scheduler.set_policy(SECOND, &wrong, &mut out).is_err());
    assert_eq!(out, []);
    assert_eq!(
        (scheduler.policy_name(), scheduler.queue_len()),
        ("lanes", 6)
    );
}

#[test]
fn open_requests_are_put_into_the_new_lanes_by_their_length() {
    let mut scheduler = pool(&PolicyConfig::RoundRobin {}, 2);
    let short = sent(arrive(&mut scheduler, 0, 0, &shape(100)));
    let long = sent(arrive(&mut scheduler, 0, 1, &shape(8000)));
    scheduler.first_output(0, long.lease);
    let lanes = config(&format!("slots_per_instance = 8\n{LANES}"));
    scheduler.set_policy(1, &lanes, &mut Vec::new()).unwrap();
    let requests = |scheduler: &Scheduler| -> Vec<u32> {
        scheduler.lane_stats().map(|lane| lane.requests).collect()
    };
    assert_eq!(requests(&scheduler), [1, 1]);
    for grant in [short, long] {
        scheduler.finish(2, grant.lease, &Observation::default(), &mut Vec::new());
    }
    assert_eq!(requests(&scheduler), [0, 0]);
}
