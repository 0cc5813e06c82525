//! C22 and C26 on real sockets: a broken instance gets probes only, and checks do not lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::proxy::{Outstanding, Proxy, Setup, instance_until, post};
use crate::support::reply::{End, Reply, ms};
use crate::support::upstream::{Refusing, Script, Upstream};
use crate::support::{PATIENCE, within};

const BROKEN: &str = "{\"error\":{\"message\":\"broken\"}}";

fn healthy() -> Upstream {
    Script::new(|_| Reply::chat("hello")).start()
}

/// Waits until an instance is in that state.
async fn is(proxy: &Proxy, instance: &str, state: &str) {
    let wanted = async {
        loop {
            let fleet: serde_json::Value =
                serde_json::from_str(&proxy.admin_text("/api/fleet").await).unwrap();
            let text = fleet.to_string();
            let found = fleet["pools"][0]["instances"]
                .as_array()
                .unwrap_or_else(|| panic!("no instances in {text}"))
                .iter()
                .any(|one| one["name"] == instance && one["health"] == state);
            if found {
                return;
            }
            tokio::time::sleep(ms(5)).await;
        }
    };
    within(&format!("{instance} to be {state}"), PATIENCE, wanted).await;
}

#[tokio::test]
async fn an_instance_that_fails_fast_does_not_attract_traffic() {
    let slow = || {
        let reply = |_: &_| Reply::paced_chat(2, ms(333));
        Script::new(reply).start()
    };
    let (a, c) = (slow(), slow());
    let b = Script::new(|_| Reply::json(500, BROKEN)).start();
    let proxy = Setup::over(&[a.addr, b.addr, c.addr])
        .policy("{ kind = \"least_outstanding_tokens\" }")
        .health("check_path = \"\"")
        .start();
    let until = Instant::now() + Duration::from_secs(10);
    let mut clients = JoinSet::new();
    let addr = proxy.addr;
    for _ in 0..10 {
        clients.spawn(async move {
            while Instant::now() < until {
                Client::ask(addr, &Ask::chat()).await;
            }
        });
    }
    while clients.join_next().await.is_some() {}
    let (good, bad) = (a.requests().len() + c.requests().len(), b.requests().len());
    println!("{bad} requests to the broken instance, {good} to the others");
    assert!((6..=15).contains(&bad));
    // ten clients, ten seconds, a second each
    assert!(good > 80);
    assert_failures_are_apart(&proxy, bad).await;
    proxy.settled().await;
    assert!(
        proxy
            .outstanding()
            .await
            .values()
            .all(|work| *work == Outstanding::default())
    );
}

/// The broken instance has its failures as a rate of its own, and no latency.
async fn assert_failures_are_apart(proxy: &Proxy, failures: usize) {
    let metrics = proxy.admin_text("/metrics").await;
    let of = |outcome| {
        format!("evenkeel_requests_total{{pool=\"p\",instance=\"i1\",outcome=\"{outcome}\"}} ")
    };
    let lines: Vec<_> = metrics.lines().collect();
    assert!(
        lines.contains(&&*format!("{}{failures}", of("engine_error"))),
        "{metrics}"
    );
    let latency = lines.iter().filter(|line| line.contains("_seconds_count"));
    let latency: Vec<_> = latency.filter(|line| line.contains("i1")).collect();
    assert!(latency.is_empty(), "{latency:?}");
}

#[tokio::test]
async fn a_mended_instance_comes_back_by_a_probe() {
    let broken = Arc::new(AtomicBool::new(true));
    let state = broken.clone();
    let b = Script::new(move |_| match state.load(Relaxed) {
        true => Reply::json(500, BROKEN),
        false => Reply::chat("hello"),
    })
    .start();
    let a = healthy();
    let proxy = Setup::over(&[a.addr, b.addr])
        .health("check_path = \"\", probe_interval_s = 0.05")
        .start();
    while b.requests().len() < 5 {
        Client::ask(proxy.addr, &Ask::chat()).await;
    }
    proxy.settled().await;
    broken.store(false, Relaxed);
    let back = async {
        while Client::ask(proxy.addr, &Ask::chat()).await.status() == 200 {
            if b.requests().len() >= 10 {
                return;
            }
        }
        panic!("a request failed after the instance was mended");
    };
    within("the instance to be back", PATIENCE, back).await;
    is(&proxy, "i1", "up").await;
}

#[tokio::test]
async fn a_refused_check_takes_an_instance_out_before_a_request_finds_it() {
    let (a, dead) = (healthy(), Refusing::new());
    let proxy = Setup::over(&[a.addr, dead.addr])
        .health("check_interval_s = 0.02")
        .start();
    is(&proxy, "i1", "down").await;
    for _ in 0..20 {
        assert_eq!(Client::ask(proxy.addr, &Ask::chat()).await.status(), 200);
    }
    let records = proxy.stop();
    let attempts = records
        .iter()
        .map(|record| record["attempts"].as_u64().unwrap());
    assert_eq!(attempts.sum::<u64>(), 20, "no attempt on the dead one");
}

#[tokio::test]
async fn a_check_that_is_not_answered_takes_out_what_is_silent_and_not_what_streams() {
    // both answer requests and hang on checks; one of them has a stream open
    let hang = || {
        Script::new(|_| Reply::paced_chat(1000, ms(10)))
            .on_head(|head| {
                head.path()
                    .ends_with("/health")
                    .then(|| Reply::new().then(End::Hold))
            })
            .start()
    };
    let (busy, silent) = (hang(), hang());
    let proxy = Setup::over(&[busy.addr, silent.addr])
        .health("check_interval_s = 0.05, check_timeout_s = 0.2")
        .start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    let head = client.head().await;
    assert_eq!(head.status(), 200);
    let (streams, other) = match head.header("x-evenkeel-instance") {
        Some("i0") => ("i0", "i1"),
        _ => ("i1", "i0"),
    };
    let mut body = client.body(&head);
    body.at_least(1).await;
    is(&proxy, other, "down").await;
    is(&proxy, streams, "up").await;
    let got = body.next().await;
    assert!(got.is_some(), "the stream goes on");
}

#[tokio::test]
async fn if_every_instance_is_out_the_pool_refuses_at_once_where_so_configured() {
    let dead = [Refusing::new(), Refusing::new()];
    let addrs = [dead[0].addr, dead[1].addr];
    let proxy = Setup::over(&addrs)
        .health("check_interval_s = 0.02, when_none_left = \"refuse\"")
        .start();
    is(&proxy, "i0", "down").await;
    is(&proxy, "i1", "down").await;
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    assert_eq!(
        (answer.status(), answer.error_code().as_str()),
        (503, "no_instance")
    );
    let tried = Setup::over(&addrs)
        .health("check_interval_s = 0.02")
        .start();
    let answer = Client::ask(tried.addr, &Ask::chat()).await;
    assert_eq!(answer.status(), 502, "tried, and found dead");
}

#[tokio::test]
async fn a_hundred_bad_requests_leave_an_instance_in() {
    let a = Script::new(|_| Reply::json(400, "{\"error\":{\"message\":\"too long\"}}")).start();
    let b = healthy();
    let proxy = Setup::over(&[a.addr, b.addr])
        .health("check_path = \"\"")
        .start();
    for _ in 0..200 {
        Client::ask(proxy.addr, &Ask::chat()).await;
    }
    assert_eq!(a.requests().len(), 100);
}

/// C26 (a), by ten: checks take 3 s where 2 s are allowed, while 50 streams flow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_checks_leave_in_what_has_fifty_streams() {
    let late = Script::new(|_| Reply::paced_chat(60, ms(50)))
        .on_head(|head| {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            let is_check = head.path().ends_with("/health");
            is_check.then(|| Reply::new().write(ms(300), answer))
        })
        .start();
    let other = healthy();
    let proxy = Setup::over(&[late.addr, other.addr])
        .health("check_interval_s = 0.5, check_timeout_s = 0.2")
        .start();
    // all 50 on one instance, while there is another one that could take its place
    let other_is = |what: &str| {
        let path = format!("/api/pools/p/instances/i1/{what}");
        let (admin, body) = (proxy.admin, "");
        async move { assert_eq!(post(admin, &path, body).await.status(), 200) }
    };
    other_is("drain").await;
    let mut streams = JoinSet::new();
    let addr = proxy.addr;
    for _ in 0..50 {
        streams.spawn(async move { Client::ask(addr, &Ask::chat()).await });
    }
    instance_until(proxy.admin, "i0", |one| one["outstanding_requests"] == 50).await;
    other_is("undrain").await;
    // six checks, all of them late
    for answer in streams.join_all().await {
        assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
    }
    let metrics = proxy.admin_text("/metrics").await;
    let taken_out = |line: &&str| {
        line.starts_with("evenkeel_instance_ejections_total") && !line.ends_with(" 0")
    };
    assert_eq!(metrics.lines().find(taken_out), None);
}

/// C26 (b): well by its checks, it takes requests and says nothing. What it streams already goes on.
#[tokio::test]
async fn an_instance_that_is_well_by_its_checks_and_silent_is_taken_out() {
    let mute = Script::new(|request| match request.head.header("x-request-id") {
        Some("first") => Reply::paced_chat(40, ms(50)),
        _ => Reply::new().then(End::Hold),
    })
    .on_head(|head| {
        let is_check = head.path().ends_with("/health");
        is_check.then(|| Reply::json(200, "{}"))
    })
    .start();
    let good = healthy();
    let proxy = Setup::over(&[mute.addr, good.addr])
        .health("check_interval_s = 0.05, probe_interval_s = 60.0")
        .set("timeouts", "headers_s = 0.1")
        .start();
    // a stream that is open on it; the turn may begin at the other one
    let (mut client, head) = loop {
        let mut client = Client::connect(proxy.addr).await;
        client.send(&Ask::chat().id("first").bytes()).await;
        let head = client.head().await;
        if head.header("x-evenkeel-instance") == Some("i0") {
            break (client, head);
        }
    };
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(Client::ask(proxy.addr, &Ask::chat()).await.status());
    }
    let silent = statuses.iter().filter(|status| **status == 504).count();
    assert_eq!(silent, 5, "{statuses:?}");
    is(&proxy, "i0", "down").await;
    for _ in 0..20 {
        assert_eq!(Client::ask(proxy.addr, &Ask::chat()).await.status(), 200);
    }
    let mut body = client.body(&head);
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Clean));
}

/// C26: checks move neither the turn, nor the load, nor a figure.
#[tokio::test]
async fn checks_are_felt_nowhere() {
    let instances: Vec<_> = (0..2).map(|_| healthy()).collect();
    let addrs: Vec<_> = instances.iter().map(|instance| instance.addr).collect();
    let proxy = Setup::over(&addrs)
        .health("check_interval_s = 0.005")
        .start();
    let mut took = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(ms(12)).await;
        let answer = Client::ask(proxy.addr, &Ask::chat()).await;
        took.push(
            answer
                .head
                .header("x-evenkeel-instance")
                .unwrap()
                .to_owned(),
        );
        proxy.settled().await;
    }
    assert!(took.windows(2).all(|pair| pair[0] != pair[1]), "{took:?}");
    let checks: usize = instances.iter().map(|one| one.requests().len()).sum();
    assert!(checks > 20 + 20, "{checks} requests with checks");
    assert_eq!(proxy.records().len(), 20);
    let metrics = proxy.admin_text("/metrics").await;
    let counted = metrics.lines().filter_map(|line| {
        let sample = line.strip_prefix("evenkeel_client_ttft_seconds_count")?;
        sample.rsplit(' ').next()?.parse::<u64>().ok()
    });
    assert_eq!(counted.sum::<u64>(), 20);
}
