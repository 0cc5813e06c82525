//! Lanes: classes, reserve, borrowing, steering, and the bounds of the queue.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use evenkeel_policies::PolicyConfig;
use evenkeel_policies::load::InstanceState;
use evenkeel_policies::scheduler::{
    Action, Arrival, Grant, InstanceId, Observation, Scheduler, ShedReason, Ticket,
};
use evenkeel_policies::shape::{Api, RequestShape};

const SECOND: u64 = 1_000_000_000;

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

fn short() -> RequestShape {
    shape(100)
}

fn long() -> RequestShape {
    shape(8000)
}

fn pool(instances: u32, settings: &str) -> Scheduler {
    let text = format!(
        "kind = \"lanes\"\n{settings}\nlanes = [{{ name = \"short\", max_tokens = 1024, reserve = 0.25 }}, {{ name = \"long\" }}]"
    );
    let config: PolicyConfig = toml::from_str(&text).unwrap();
    let mut scheduler = Scheduler::new(&config, 1).unwrap();
    for id in 0..instances {
        scheduler.add_instance(0, InstanceId(id), 1.0, &mut Vec::new());
    }
    scheduler
}

const SLOTS_8: &str =
    "slots_per_instance = 8\nqueue = { max_requests = 4, max_bytes = 3500, max_wait_s = 2 }";

fn arrive(scheduler: &mut Scheduler, ticket: u64, shape: &RequestShape) -> Arrival {
    scheduler.arrive(0, Ticket(ticket), shape, &[], &mut Vec::new())
}

fn sent(arrival: Arrival) -> Grant {
    match arrival {
        Arrival::Send(grant) => grant,
        other => panic!("not sent: {other:?}"),
    }
}

fn finish(scheduler: &mut Scheduler, grant: &Grant) -> Vec<Action> {
    let mut out = Vec::new();
    scheduler.finish(0, grant.lease, &Observation::default(), &mut out);
    out
}

fn granted(actions: &[Action]) -> Vec<u64> {
    let ticket = |action: &Action| match action {
        Action::Grant(grant) => Some(grant.ticket.0),
        Action::Shed { .. } => None,
    };
    actions.iter().filter_map(ticket).collect()
}

#[test]
fn the_class_is_by_uncached_prompt_plus_predicted_output() {
    let mut scheduler = pool(1, "");
    assert_eq!(sent(arrive(&mut scheduler, 0, &shape(924))).lane, Some(0));
    assert_eq!(sent(arrive(&mut scheduler, 1, &shape(925))).lane, Some(1));
    let cached = RequestShape {
        cached_tokens: 7900,
        ..long()
    };
    assert_eq!(sent(arrive(&mut scheduler, 2, &cached)).lane, Some(0));
}

#[test]
fn long_requests_leave_the_reserve_to_short_ones() {
    let mut scheduler = pool(1, SLOTS_8);
    for ticket in 0..6 {
        sent(arrive(&mut scheduler, ticket, &long()));
    }
    assert_eq!(
        arrive(&mut scheduler, 6, &long()),
        Arrival::Queued { lane: 1 }
    );
    sent(arrive(&mut scheduler, 7, &short()));
    sent(arrive(&mut scheduler, 8, &short()));
    assert_eq!(
        arrive(&mut scheduler, 9, &short()),
        Arrival::Queued { lane: 0 }
    );
}

#[test]
fn short_requests_borrow_every_idle_slot() {
    let mut scheduler = pool(1, SLOTS_8);
    for ticket in 0..8 {
        sent(arrive(&mut scheduler, ticket, &short()));
    }
    assert_eq!(
        arrive(&mut scheduler, 8, &short()),
        Arrival::Queued { lane: 0 }
    );
}

#[test]
fn a_long_request_is_served_under_a_never_ending_line_of_short_ones() {
    let mut scheduler = pool(
        1,
        "slots_per_instance = 2\nqueue = { max_requests = 400, max_bytes = 999999, max_wait_s = 900 }",
    );
    let mut open = vec![
        sent(arrive(&mut scheduler, 0, &short())),
        sent(arrive(&mut scheduler, 1, &short())),
    ];
    for ticket in 2..10 {
        arrive(&mut scheduler, ticket, &short());
    }
    arrive(&mut scheduler, 1000, &long());
    for ticket in 10..300 {
        arrive(&mut scheduler, ticket, &short());
        let grant = open.remove(0);
        for action in finish(&mut scheduler, &grant) {
            let Action::Grant(grant) = action else {
                panic!("shed")
            };
            if grant.ticket == Ticket(1000) {
                return;
            }
            open.push(grant);
        }
    }
    panic!("the long request starved");
}

#[test]
fn a_waiter_goes_when_a_slot_falls_free_and_in_order() {
    let mut scheduler = pool(1, SLOTS_8);
    let grants: Vec<_> = (0..8)
        .map(|ticket| sent(arrive(&mut scheduler, ticket, &short())))
        .collect();
    arrive(&mut scheduler, 8, &short());
    arrive(&mut scheduler, 9, &short());
    assert_eq!(granted(&finish(&mut scheduler, &grants[3])), [8]);
    assert_eq!(granted(&finish(&mut scheduler, &grants[0])), [9]);
}

#[test]
fn a_new_instance_takes_the_waiters() {
    let mut scheduler = pool(1, SLOTS_8);
    for ticket in 0..10 {
        arrive(&mut scheduler, ticket, &short());
    }
    let mut out = Vec::new();
    scheduler.add_instance(0, InstanceId(9), 1.0, &mut out);
    assert_eq!(granted(&out), [8, 9]);
}

#[test]
fn waiters_are_told_when_the_last_instance_goes() {
    let mut scheduler = pool(1, SLOTS_8);
    for ticket in 0..9 {
        arrive(&mut scheduler, ticket, &short());
    }
    let mut out = Vec::new();
    scheduler.remove_instance(0, InstanceId(0), &mut out);
    assert!(matches!(
        out[..],
        [Action::Shed {
            ticket: Ticket(8),
            reason: ShedReason::NoInstance,
            ..
        }]
    ));
}

/// A probe takes the only other instance from who waits: what it shunned is better than none.
#[test]
fn a_waiter_goes_where_it_failed_once_a_probe_has_taken_the_other_instance() {
    let mut scheduler = pool(2, "slots_per_instance = 1");
    let (failed, other) = (InstanceId(0), InstanceId(1));
    let mut out = Vec::new();
    let pinned = |scheduler: &mut Scheduler, ticket, out: &mut Vec<Action>| {
        sent(scheduler.arrive_pinned(0, Ticket(ticket), &short(), other, out))
    };
    pinned(&mut scheduler, 0, &mut out);
    let waiting = scheduler.arrive(0, Ticket(1), &short(), &[failed], &mut out);
    assert_eq!(waiting, Arrival::Queued { lane: 0 });
    scheduler.set_state(0, other, InstanceState::Probing, &mut out);
    assert_eq!(out, []);
    assert!(pinned(&mut scheduler, 2, &mut out).probe);
    assert_eq!(granted(&out), [1]);
}

/// Where every instance is out but the one that is probed, nobody waits for what the probe will tell.
#[test]
fn waiters_beside_a_probe_are_told_at_once_that_no_instance_is_up() {
    let mut scheduler = pool(1, "slots_per_instance = 1");
    let only = InstanceId(0);
    let open = sent(arrive(&mut scheduler, 0, &short()));
    for ticket in 1..4 {
        let waiting = arrive(&mut scheduler, ticket, &short());
        assert_eq!(waiting, Arrival::Queued { lane: 0 });
    }
    scheduler.set_state(0, only, InstanceState::Probing, &mut Vec::new());
    let out = finish(&mut scheduler, &open);
    assert_eq!(granted(&out), [1]);
    assert_eq!(out.len(), 3, "{out:?}");
    assert_eq!(scheduler.counters().shed_no_instance, 2);
}

#[test]
fn the_queue_is_bounded_by_bytes_and_by_count() {
    let mut scheduler = pool(1, SLOTS_8);
    for ticket in 0..8 {
        sent(arrive(&mut scheduler, ticket, &short()));
    }
    let small = RequestShape {
        body_bytes: 10,
        ..short()
    };
    for ticket in 8..11 {
        assert!(matches!(
            arrive(&mut scheduler, ticket, &short()),
            Arrival::Queued { .. }
        ));
    }
    let over = arrive(&mut scheduler, 11, &short());
    assert!(
        matches!(over, Arrival::Shed(shed) if shed.reason == ShedReason::QueueBytes && shed.retry_after_s >= 1)
    );
    assert!(matches!(
        arrive(&mut scheduler, 12, &small),
        Arrival::Queued { .. }
    ));
    let full = arrive(&mut scheduler, 13, &small);
    assert!(
        matches!(full, Arrival::Shed(shed) if shed.reason == ShedReason::QueueFull && shed.retry_after_s >= 1)
    );
    assert_eq!(
        (
            scheduler.counters().shed_queue_full,
            scheduler.counters().shed_queue_bytes
        ),
        (1, 1)
    );
}

#[test]
fn the_queue_is_bounded_by_time() {
    let mut scheduler = pool(1, SLOTS_8);
    for ticket in 0..9 {
        arrive(&mut scheduler, ticket, &short());
    }
    assert_eq!(scheduler.next_deadline(), Some(2 * SECOND));
    let mut out = Vec::new();
    scheduler.expire(2 * SECOND - 1, &mut out);
    assert!(out.is_empty());
    scheduler.expire(2 * SECOND, &mut out);
    assert!(matches!(
        out[..],
        [Action::Shed {
            ticket: Ticket(8),
            reason: ShedReason::QueueWait,
            ..
        }]
    ));
    assert_eq!(scheduler.next_deadline(), None);
}

#[test]
fn retry_after_follows_the_pace_of_ends() {
    let mut scheduler = pool(1, SLOTS_8);
    let mut out = Vec::new();
    let grants: Vec<_> = (0..3)
        .map(|ticket| sent(arrive(&mut scheduler, ticket, &short())))
        .collect();
    for (grant, at) in grants.iter().zip(1_u64..) {
        scheduler.finish(
            at * 4 * SECOND,
            grant.lease,
            &Observation::default(),
            &mut out,
        );
    }
    let now = 12 * SECOND;
    let arrive = |scheduler: &mut Scheduler, ticket| {
        scheduler.arrive(now, Ticket(ticket), &short(), &[], &mut Vec::new())
    };
    for ticket in 10..21 {
        arrive(&mut scheduler, ticket);
    }
    // three wait, an end each 4 s: the fourth would be served after 16 s
    assert!(matches!(arrive(&mut scheduler, 99), Arrival::Shed(shed) if shed.retry_after_s == 16));
}

#[test]
fn without_slots_nothing_is_refused() {
    let mut scheduler = pool(1, "");
    for ticket in 0..5000 {
        sent(arrive(&mut scheduler, ticket, &long()));
    }
}

#[test]
fn short_requests_keep_away_from_long_prefill() {
    // an inner policy blind to load: only the lane can keep them away
    let mut scheduler = pool(4, "inner = \"random\"");
    let first = sent(arrive(&mut scheduler, 0, &long()));
    for ticket in 1..40 {
        let grant = sent(arrive(&mut scheduler, ticket, &short()));
        assert_ne!(grant.instance, first.instance);
        finish(&mut scheduler, &grant);
    }
    scheduler.first_output(0, first.lease);
    let back = (40..140).any(|ticket| {
        let grant = sent(arrive(&mut scheduler, ticket, &short()));
        finish(&mut scheduler, &grant);
        grant.instance == first.instance
    });
    assert!(
        back,
        "once the prompt is prefilled the instance is as good as any"
    );
}

#[test]
fn prefill_ahead_weighs_more_than_as_many_output_tokens_left() {
    let mut scheduler = pool(2, "");
    let answering = sent(arrive(
        &mut scheduler,
        0,
        &RequestShape {
            predicted_output_tokens: 5000,
            ..shape(100)
        },
    ));
    scheduler.first_output(0, answering.lease);
    let reading = sent(arrive(&mut scheduler, 1, &shape(3000)));
    assert_ne!(reading.instance, answering.instance);
    // 5000 tokens left to answer against 3100 outstanding, yet the first token comes sooner there
    assert_eq!(
        sent(arrive(&mut scheduler, 2, &short())).instance,
        answering.instance
    );
}

#[test]
fn long_prefill_leaves_the_reserved_share_of_instances_clean() {
    let mut scheduler = pool(4, "");
    let mut used = std::collections::BTreeSet::new();
    for ticket in 0..6 {
        used.insert(sent(arrive(&mut scheduler, ticket, &long())).instance);
    }
    assert_eq!(used.len(), 3, "a quarter of four instances stays clean");
}

#[test]
fn long_requests_borrow_a_clean_instance_when_the_others_are_much_fuller() {
    let mut scheduler = pool(4, "");
    for ticket in 0..12 {
        sent(arrive(&mut scheduler, ticket, &long()));
    }
    assert!(
        scheduler.loads().all(|(_, load, _)| load.requests > 0),
        "no instance stays idle"
    );
    assert!(scheduler.fallbacks() >= 1, "borrowing is counted");
}
