//! Pools that change while requests are open, wait, come and go.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_policies::scheduler::InstanceId;
use evenkeel_policies::shape::{Api, RequestShape};

use super::*;
use crate::config::checked::Config;
use crate::fleet::lease::Lease;
use crate::fleet::pool::To;
use crate::fleet::{Fleet, Plan};

const WAITING: &str = "{ kind = \"lanes\", slots_per_instance = 1, lanes = [{ name = \"short\", max_tokens = 300 }, \
    { name = \"long\" }], queue = { max_requests = 1000, max_wait_s = 60 } }";

fn config(policy: &str, ports: &[u16]) -> Config {
    let mut text =
        format!("[server]\nlisten = \"127.0.0.1:0\"\n[[pools]]\nname = \"p\"\npolicy = {policy}\n");
    for port in ports {
        text += &format!("[[pools.instances]]\nurl = \"http://127.0.0.1:{port}\"\n");
    }
    crate::config::parse(&text, "test.toml").unwrap()
}

fn change(fleet: &Fleet, config: &Config) -> (Fleet, Changes) {
    Plan::of(config, Some(fleet)).unwrap().carry_out(config)
}

fn shape(prompt_tokens: u32) -> RequestShape {
    RequestShape {
        prompt_tokens,
        predicted_output_tokens: 50,
        api: Api::Chat,
        model: 0,
        cached_tokens: 0,
        max_output_tokens: None,
        choices: 1,
        stream: true,
        body_bytes: 500,
        session: None,
    }
}

async fn lease(pool: &Arc<Pool>, prompt_tokens: u32) -> Lease {
    pool.admit(&shape(prompt_tokens), To::AnyBut(&[]))
        .await
        .unwrap_or_else(|shed| panic!("{shed:?}"))
}

/// Name and open requests of each instance, those that leave too.
fn open(pool: &Pool) -> Vec<(String, u32)> {
    let snapshot = pool.snapshot();
    let all = snapshot.instances.iter();
    all.map(|one| (one.name.to_string(), one.outstanding_requests))
        .collect()
}

#[tokio::test]
async fn who_waits_gets_a_place_on_what_comes_and_a_place_goes_back_to_what_left() {
    let fleet = Fleet::new(&config(WAITING, &[1])).unwrap();
    let pool = fleet.pools[0].clone();
    let first = lease(&pool, 10).await;
    let waiter = tokio::spawn({
        let pool = pool.clone();
        async move { lease(&pool, 10).await }
    });
    while pool.snapshot().queued == 0 {
        tokio::task::yield_now().await;
    }
    let (fleet, changes) = change(&fleet, &config(WAITING, &[2, 3]));
    assert_eq!(changes.instances_removed, ["p/127.0.0.1:1"]);
    assert_eq!(changes.instances_added, ["p/127.0.0.1:2", "p/127.0.0.1:3"]);
    assert!(changes.policies_changed.is_empty() && changes.pools_added.is_empty());
    let second = waiter.await.unwrap();
    assert_ne!(second.instance().url.port, 1);
    assert_eq!(second.lane.as_deref(), Some("short"));
    assert_eq!(open(&pool)[0], ("127.0.0.1:1".to_owned(), 1));
    drop(first);
    assert_eq!(open(&pool).len(), 2, "it left with its last request");
    assert!(pool.members().leaving.is_empty());

    // the same server again is a new one: its id was never used
    let (_fleet, _) = change(&fleet, &config(WAITING, &[1, 2, 3]));
    assert!(pool.members().serves(InstanceId(3)));
    drop(second);
    assert!(open(&pool).iter().all(|(_, requests)| *requests == 0));
}

#[tokio::test]
async fn what_stays_is_the_same_and_what_differs_is_told() {
    let fleet = Fleet::new(&config(WAITING, &[1, 2])).unwrap();
    let held = lease(&fleet.pools[0], 10).await;
    let same = |fleet: &Fleet| {
        let members = fleet.pools[0].members();
        let one = members.get(held.instance().id).cloned();
        one.is_some_and(|one| Arc::ptr_eq(&one, held.instance()))
    };
    let (fleet, changes) = change(&fleet, &config(WAITING, &[1, 2]));
    assert_eq!(changes, Changes::default());
    assert!(same(&fleet));
    let mut heavier = config("{ kind = \"random\" }", &[1, 2]);
    heavier.pools[0].instances[0].weight = 3.0;
    heavier.pools[0].instances[1].labels = [("gpu".into(), "L4".into())].into();
    let (fleet, changes) = change(&fleet, &heavier);
    assert_eq!(changes.policies_changed, ["p"]);
    assert_eq!(
        changes.instances_changed,
        ["p/127.0.0.1:1", "p/127.0.0.1:2"]
    );
    assert!(same(&fleet));
    let snapshot = fleet.pools[0].snapshot();
    assert_eq!(snapshot.instances[0].weight, 3.0);
    assert_eq!(snapshot.instances[1].labels["gpu"], "L4");
    assert_eq!(&*snapshot.policy, "random");
}

#[tokio::test]
async fn a_link_that_cannot_be_read_changes_nothing() {
    let fleet = Fleet::new(&config(WAITING, &[1])).unwrap();
    let mut wrong = config("{ kind = \"random\" }", &[2]);
    let nowhere = std::path::PathBuf::from("/nowhere/key");
    wrong.pools[0].engine_key = Some(crate::config::secret::SecretSource::File(nowhere));
    assert!(Plan::of(&wrong, Some(&fleet)).is_err());
    let snapshot = fleet.pools[0].snapshot();
    assert_eq!(&*snapshot.policy, "lanes");
    assert_eq!(open(&fleet.pools[0]), [("127.0.0.1:1".to_owned(), 0)]);
}

/// Requests come, wait, give up and end on many threads while the pool changes as fast as it can.
#[test]
fn counts_are_zero_at_the_end_of_any_order_of_changes() {
    let policies = [
        WAITING,
        "{ kind = \"round_robin\" }",
        "{ kind = \"least_requests\" }",
    ];
    let mut fleet = Fleet::new(&config(WAITING, &[1, 2])).unwrap();
    let pool = fleet.pools[0].clone();
    let (over, served) = (AtomicBool::new(false), AtomicU32::new(0));
    let client = |number: u32| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut turn = number;
            while !over.load(Relaxed) {
                turn = turn.wrapping_add(1);
                let shape = shape(turn % 5 * 100);
                let wanted = pool.admit(&shape, To::AnyBut(&[]));
                // some give up while they wait
                let patience = Duration::from_micros(u64::from(turn % 7) * 200 + 50);
                let Ok(got) = tokio::time::timeout(patience, wanted).await else {
                    continue;
                };
                let mut lease = got.unwrap_or_else(|shed| panic!("{shed:?}"));
                lease.first_output();
                tokio::task::yield_now().await;
                drop(lease);
                served.fetch_add(1, Relaxed);
            }
        });
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            let client = &client;
            scope.spawn(move || client(number * 1000));
        }
        for round in 0..300_usize {
            let stays = |port: &u16| !(round + usize::from(*port)).is_multiple_of(3);
            let ports: Vec<u16> = (1..=5).filter(stays).collect();
            let next = config(policies[round % policies.len()], &ports);
            fleet = change(&fleet, &next).0;
            std::thread::yield_now();
        }
        over.store(true, Relaxed);
    });
    assert!(served.load(Relaxed) > 100, "{served:?}");
    let inner = pool.inner.lock();
    assert_eq!(
        (inner.scheduler.open_leases(), inner.scheduler.queue_len()),
        (0, 0)
    );
    for (id, load, _) in inner.scheduler.loads() {
        assert_eq!((load.requests, load.outstanding_tokens()), (0, 0));
        assert!(pool.members().serves(id), "one that left is still there");
    }
    let counters = inner.scheduler.counters();
    assert_eq!((counters.stale, counters.shed_no_instance), (0, 0));
    assert!(pool.members().leaving.is_empty());
}
