//! An operator drains an instance under load: what it has ends well, nothing new comes, and it comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::client::{Answer, Ask, BodyEnd, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{Reply, ms};
use crate::support::upstream::{Script, Upstream};

fn fleet() -> Vec<Upstream> {
    let one = || Script::new(|_| Reply::paced_chat(10, ms(10))).start();
    (0..3).map(|_| one()).collect()
}

fn start(fleet: &[Upstream]) -> Proxy {
    let addrs: Vec<_> = fleet.iter().map(|upstream| upstream.addr).collect();
    // back, it takes its share at once
    Setup::over(&addrs)
        .health("check_path = \"\", slow_start_s = 0.0")
        .start()
}

async fn change(proxy: &Proxy, path: &str) -> Answer {
    let ask = Ask::post(&format!("/api/pools/{path}"), "").header("connection", "close");
    Client::ask(proxy.admin, &ask).await
}

async fn state(proxy: &Proxy, instance: usize) -> Value {
    let fleet: Value = serde_json::from_str(&proxy.admin_text("/api/fleet").await).unwrap();
    fleet["pools"][0]["instances"][instance].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_is_drained_and_comes_back_without_a_failed_request() {
    let fleet = fleet();
    let proxy = start(&fleet);
    let (stop, sent) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut lanes = JoinSet::new();
    for lane in 0..30 {
        let (addr, stop, sent) = (proxy.addr, stop.clone(), sent.clone());
        lanes.spawn(async move {
            let mut client = Client::connect(addr).await;
            while !stop.load(Relaxed) {
                client
                    .send(&Ask::chat().id(&format!("lane-{lane}")).bytes())
                    .await;
                let answer = client.answer().await;
                assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
                sent.fetch_add(1, Relaxed);
            }
        });
    }
    for _ in 0..3 {
        fleet[1].open_at_least(3).await;
        let drained = change(&proxy, "p/instances/i1/drain").await;
        assert_eq!(drained.status(), 200, "{}", drained.text());
        assert_eq!(drained.json()["health"], "draining");
        // what was chosen before the answer is all that may still reach it
        let left = drained.json()["outstanding_requests"].as_u64().unwrap();
        assert!(left > 0, "else this shows nothing");
        while state(&proxy, 1).await["outstanding_requests"] != 0 {
            tokio::task::yield_now().await;
        }
        let (had, others) = (fleet[1].requests().len(), sent.load(Relaxed));
        while sent.load(Relaxed) < others + 60 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            fleet[1].requests().len(),
            had,
            "it got a request while drained"
        );
        assert_eq!(state(&proxy, 1).await["health"], "draining");
        let back = change(&proxy, "p/instances/i1/undrain").await;
        assert_eq!(back.json()["health"], "up");
    }
    fleet[1].open_at_least(1).await;
    stop.store(true, Relaxed);
    while let Some(lane) = lanes.join_next().await {
        lane.unwrap();
    }
    proxy.settled().await;
    let requests = sent.load(Relaxed);
    let records = proxy.stop();
    println!("{requests} requests around 3 drains, 0 failed");
    assert_eq!(records.len(), requests);
    assert!(records.iter().all(|record| record["outcome"] == "ok"));
}

#[tokio::test]
async fn a_pool_whose_instances_are_all_drained_refuses_at_once() {
    let fleet = fleet();
    let proxy = start(&fleet);
    for instance in 0..3 {
        change(&proxy, &format!("p/instances/i{instance}/drain")).await;
    }
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    assert_eq!(
        (answer.status(), answer.error_code().as_str()),
        (503, "no_instance")
    );
    let ready = Client::ask(proxy.admin, &Ask::get("/ready")).await;
    assert_eq!(ready.status(), 503);
    change(&proxy, "p/instances/i2/undrain").await;
    assert_eq!(Client::ask(proxy.addr, &Ask::chat()).await.status(), 200);
}

#[tokio::test]
async fn what_is_not_there_is_said_and_reading_changes_nothing() {
    let fleet = fleet();
    let proxy = start(&fleet);
    for (path, names) in [
        ("q/instances/i0/drain", "p"),
        ("p/instances/i9/drain", "i0, i1, i2"),
    ] {
        let answer = change(&proxy, path).await;
        assert_eq!(answer.status(), 404);
        assert!(answer.text().contains(names), "{}", answer.text());
    }
    let ask = Ask::get("/api/pools/p/instances/i0/drain").header("connection", "close");
    assert_eq!(Client::ask(proxy.admin, &ask).await.status(), 405);
    assert_eq!(state(&proxy, 0).await["health"], "up");
}
