//! Which instance is chosen: bursts on stale gauges, ties, weights, retries, drains.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;

use evenkeel_policies::PolicyConfig;
use evenkeel_policies::load::{EngineGauges, InstanceState, RAMP_START};
use evenkeel_policies::scheduler::{
    Arrival, Grant, InstanceId, Observation, Scheduler, ShedReason, Ticket,
};
use evenkeel_policies::shape::{Api, RequestShape};

fn shape(prompt_tokens: u32, predicted_output_tokens: u32) -> RequestShape {
    RequestShape {
        api: Api::Chat,
        model: 0,
        prompt_tokens,
        cached_tokens: 0,
        max_output_tokens: None,
        predicted_output_tokens,
        choices: 1,
        stream: true,
        body_bytes: 100,
        session: None,
    }
}

fn pool(config: &PolicyConfig, weights: &[f64], seed: u64) -> Scheduler {
    let mut scheduler = Scheduler::new(config, seed).unwrap();
    for (id, weight) in weights.iter().enumerate() {
        scheduler.add_instance(0, InstanceId(id as u32), *weight, &mut Vec::new());
    }
    scheduler
}

fn send(
    scheduler: &mut Scheduler,
    ticket: u64,
    shape: &RequestShape,
    exclude: &[InstanceId],
) -> Grant {
    match scheduler.arrive(0, Ticket(ticket), shape, exclude, &mut Vec::new()) {
        Arrival::Send(grant) => grant,
        other => panic!("not sent: {other:?}"),
    }
}

fn all() -> Vec<PolicyConfig> {
    let lanes = r#"{"kind":"lanes","lanes":[{"name":"short","max_tokens":1024,"reserve":0.25},{"name":"long"}]}"#;
    vec![
        PolicyConfig::Random {},
        PolicyConfig::RoundRobin {},
        PolicyConfig::LeastRequests {},
        PolicyConfig::LeastOutstandingTokens {},
        serde_json::from_str(lanes).unwrap(),
    ]
}

fn load_aware() -> [PolicyConfig; 2] {
    [
        PolicyConfig::LeastRequests {},
        PolicyConfig::LeastOutstandingTokens {},
    ]
}

fn gauges(running: u32) -> EngineGauges {
    EngineGauges {
        running,
        waiting: 0,
        kv_usage: 0.0,
        at_ns: 0,
    }
}

#[test]
fn a_burst_on_gauges_0_and_1_is_split_evenly() {
    for config in load_aware() {
        for seed in 0..50 {
            let mut scheduler = pool(&config, &[1.0, 1.0], seed);
            scheduler.set_gauges(0, InstanceId(0), gauges(0));
            scheduler.set_gauges(0, InstanceId(1), gauges(1));
            let first = (0..8).filter(|ticket| {
                send(&mut scheduler, *ticket, &shape(100, 50), &[])
                    .instance
                    .0
                    == 0
            });
            let count = first.count();
            assert!((4..=5).contains(&count), "{} gave {count}", config.kind());
        }
    }
}

#[test]
fn sixty_four_at_once_from_many_threads_are_split_evenly() {
    for config in load_aware() {
        let scheduler = Mutex::new(pool(&config, &[1.0, 1.0], 3));
        scheduler
            .lock()
            .unwrap()
            .set_gauges(0, InstanceId(1), gauges(1));
        std::thread::scope(|scope| {
            for ticket in 0..64 {
                let scheduler = &scheduler;
                scope.spawn(move || {
                    send(&mut scheduler.lock().unwrap(), ticket, &shape(100, 50), &[])
                });
            }
        });
        let scheduler = scheduler.into_inner().unwrap();
        let requests = scheduler.load(InstanceId(0)).unwrap().requests;
        assert!(
            (30..=34).contains(&requests),
            "{} gave {requests}",
            config.kind()
        );
    }
}

/// C21: 30 open on each of three, and an empty fourth that is new: under ten requests a second it gets no more than its
/// ramp allows, which in the first second is a tenth of the others' mean and a little.
#[test]
fn a_new_instance_gets_no_more_than_its_ramp_allows() {
    const SECOND_NS: u64 = 1_000_000_000;
    for config in load_aware() {
        let mut scheduler = pool(&config, &[1.0; 3], 5);
        let mut tickets = 0..;
        for _ in 0..90 {
            send(
                &mut scheduler,
                tickets.next().unwrap(),
                &shape(100, 50),
                &[],
            );
        }
        let new = InstanceId(3);
        scheduler.add_instance(0, new, 1.0, &mut Vec::new());
        scheduler.slow_start(0, new, 30 * SECOND_NS);
        let mut had = Vec::new();
        for second in 0..30_u64 {
            for tenth in 0..10 {
                let now = second * SECOND_NS + tenth * SECOND_NS / 10;
                let ticket = Ticket(tickets.next().unwrap());
                scheduler.arrive(now, ticket, &shape(100, 50), &[], &mut Vec::new());
            }
            let open = |id| f64::from(scheduler.load(InstanceId(id)).unwrap().requests);
            let mean = (open(0) + open(1) + open(2)) / 3.0;
            let share = RAMP_START + (1.0 - RAMP_START) * (second + 1) as f64 / 30.0;
            assert!(
                open(3) <= share * mean,
                "{} of a mean of {mean} after {second} s",
                open(3)
            );
            had.push(open(3));
        }
        assert!((1.0..=4.0).contains(&had[0]), "{}: {had:?}", config.kind());
        assert!(
            had[29] >= 90.0,
            "at its end it has what the others have: {had:?}"
        );
    }
}

#[test]
fn old_gauges_are_not_believed() {
    let mut scheduler = pool(&PolicyConfig::LeastRequests {}, &[1.0, 1.0], 1);
    scheduler.set_gauges(0, InstanceId(1), gauges(1000));
    let now = 60_000_000_000;
    for ticket in 0..20 {
        scheduler.arrive(now, Ticket(ticket), &shape(10, 10), &[], &mut Vec::new());
    }
    assert_eq!(scheduler.load(InstanceId(1)).unwrap().requests, 10);
}

#[test]
fn own_requests_in_gauges_are_not_counted_twice() {
    let mut scheduler = pool(&PolicyConfig::LeastRequests {}, &[1.0, 1.0], 1);
    for ticket in 0..20 {
        send(&mut scheduler, ticket, &shape(10, 10), &[]);
    }
    scheduler.set_gauges(0, InstanceId(0), gauges(10));
    for ticket in 20..40 {
        send(&mut scheduler, ticket, &shape(10, 10), &[]);
    }
    assert_eq!(scheduler.load(InstanceId(0)).unwrap().requests, 20);
}

#[test]
fn ties_go_to_every_instance_alike() {
    for config in all() {
        let mut scheduler = pool(&config, &[1.0; 4], 11);
        let mut counts = [0_u32; 4];
        for ticket in 0..4000 {
            let grant = send(&mut scheduler, ticket, &shape(100, 50), &[]);
            counts[grant.instance.0 as usize] += 1;
            scheduler.finish(0, grant.lease, &Observation::default(), &mut Vec::new());
        }
        // 1000 expected, standard deviation 27
        assert!(
            counts.iter().all(|count| (880..1120).contains(count)),
            "{}: {counts:?}",
            config.kind()
        );
    }
}

#[test]
fn round_robin_goes_smoothly_by_weight() {
    let mut scheduler = pool(&PolicyConfig::RoundRobin {}, &[5.0, 1.0, 1.0], 1);
    let order: Vec<_> = (0..7)
        .map(|ticket| send(&mut scheduler, ticket, &shape(1, 1), &[]).instance.0)
        .collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn weights_set_the_shares_under_every_policy() {
    for config in all() {
        let mut scheduler = pool(&config, &[3.0, 1.0], 5);
        for ticket in 0..4000 {
            send(&mut scheduler, ticket, &shape(100, 50), &[]);
        }
        let requests = scheduler.load(InstanceId(0)).unwrap().requests;
        assert!(
            (2880..3120).contains(&requests),
            "{}: {requests} of 4000",
            config.kind()
        );
    }
}

#[test]
fn fewest_tokens_wins_over_fewest_requests() {
    let mut scheduler = pool(&PolicyConfig::LeastOutstandingTokens {}, &[1.0, 1.0], 1);
    let long = send(&mut scheduler, 0, &shape(8000, 500), &[]).instance;
    for ticket in 1..20 {
        assert_ne!(
            send(&mut scheduler, ticket, &shape(100, 50), &[]).instance,
            long
        );
    }
}

#[test]
fn progress_and_first_output_make_the_load_shrink() {
    let mut scheduler = pool(&PolicyConfig::LeastRequests {}, &[1.0], 1);
    let grant = send(&mut scheduler, 0, &shape(300, 100), &[]);
    assert_eq!(
        scheduler.load(InstanceId(0)).unwrap().outstanding_tokens(),
        400
    );
    scheduler.first_output(0, grant.lease);
    scheduler.progress(0, grant.lease, 30);
    assert_eq!(
        scheduler.load(InstanceId(0)).unwrap().outstanding_tokens(),
        70
    );
    scheduler.progress(0, grant.lease, 1_000_000);
    assert_eq!(
        scheduler.load(InstanceId(0)).unwrap().outstanding_tokens(),
        0
    );
    assert_eq!(scheduler.load(InstanceId(0)).unwrap().requests, 1);
}

#[test]
fn a_retry_takes_the_failed_instance_only_if_no_other_is_up() {
    for config in all() {
        let mut scheduler = pool(&config, &[1.0, 1.0], 1);
        for ticket in 0..20 {
            assert_eq!(
                send(&mut scheduler, ticket, &shape(9, 9), &[InstanceId(0)]).instance,
                InstanceId(1)
            );
        }
        scheduler.set_state(0, InstanceId(1), InstanceState::Down, &mut Vec::new());
        let before = scheduler.fallbacks();
        assert_eq!(
            send(&mut scheduler, 20, &shape(9, 9), &[InstanceId(0)]).instance,
            InstanceId(0)
        );
        assert_eq!(
            scheduler.fallbacks(),
            before + 1,
            "{}: a fallback is counted",
            config.kind()
        );
    }
}

#[test]
fn without_an_instance_up_requests_are_shed_at_once() {
    for config in all() {
        let mut scheduler = pool(&config, &[1.0], 1);
        scheduler.set_state(0, InstanceId(0), InstanceState::Draining, &mut Vec::new());
        let arrival = scheduler.arrive(0, Ticket(0), &shape(9, 9), &[], &mut Vec::new());
        assert!(matches!(arrival, Arrival::Shed(shed) if shed.reason == ShedReason::NoInstance));
    }
}

#[test]
fn an_instance_that_comes_back_keeps_its_counts() {
    let mut scheduler = pool(&PolicyConfig::LeastRequests {}, &[1.0, 1.0], 1);
    let grants: Vec<_> = (0..10)
        .map(|ticket| send(&mut scheduler, ticket, &shape(9, 9), &[]))
        .collect();
    let mut out = Vec::new();
    scheduler.remove_instance(0, InstanceId(0), &mut out);
    scheduler.add_instance(0, InstanceId(0), 1.0, &mut out);
    assert_eq!(scheduler.load(InstanceId(0)).unwrap().requests, 5);
    for grant in grants {
        scheduler.finish(0, grant.lease, &Observation::default(), &mut out);
    }
    assert!(
        scheduler
            .loads()
            .all(|(_, load, _)| load.requests == 0 && load.outstanding_tokens() == 0)
    );
}
