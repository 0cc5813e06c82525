//! C24: an instance closes its kept-alive connection under a request; no client sees it.

use std::time::Duration;

use serde_json::Value;

use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{End, Reply, ms};
use crate::support::upstream::Script;

/// 200 requests in four lanes, 49 to 51 ms apart in steps of 40 us; none fails. How many were sent again.
async fn race(proxy: &Proxy, round: usize, idle: Duration) -> usize {
    let addr = proxy.addr;
    let mut asks = tokio::task::JoinSet::new();
    for lane in 0..4_u32 {
        asks.spawn(async move {
            for i in 0..50_u32 {
                let ask = Ask::chat().id(&format!("{round}-{lane}-{i}"));
                let answer = Client::ask(addr, &ask).await;
                assert_eq!(answer.status(), 200, "{}", answer.text());
                assert_eq!(answer.end, BodyEnd::Clean);
                let gap = idle - ms(1) + Duration::from_micros(40) * i;
                tokio::time::sleep(gap).await;
            }
        });
    }
    while let Some(done) = asks.join_next().await {
        done.unwrap();
    }
    proxy.settled().await;
    let prefix = format!("{round}-");
    let mut records = proxy.records();
    records.retain(|one| one["request_id"].as_str().unwrap().starts_with(&prefix));
    assert_eq!(records.len(), 200);
    assert!(records.iter().all(|record| record["outcome"] == "ok"));
    let again = |record: &&Value| record["attempts"].as_u64() > Some(1);
    records.iter().filter(again).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_race_an_idle_close_all_succeed() {
    const IDLE: Duration = ms(50);
    // a close that is on its way for some time is what a request can be sent against
    let upstream = Script::new(|_| Reply::chat("ok"))
        .idle_close(IDLE)
        .close_lag(ms(5))
        .start();
    // the pool would keep a connection for longer than the instance does: only sending again helps
    let proxy = Setup::one(&upstream).set("server", "workers = 1").start();
    let mut again = 0;
    for round in 0..10 {
        again += race(&proxy, round, IDLE).await;
        println!(
            "after {} requests around an idle close: {again} sent again, 0 failed",
            (round + 1) * 200
        );
        if again > 0 {
            return;
        }
    }
    panic!("no request met a close: this shows nothing");
}

#[tokio::test]
async fn a_reused_connection_that_dies_under_a_request_is_replaced_once() {
    for end in [End::Close, End::Reset] {
        let upstream = Script::new(move |request| match request.reuse {
            0 => Reply::chat("ok"),
            _ => Reply::new().then(end),
        })
        .start();
        let proxy = Setup::one(&upstream).set("server", "workers = 1").start();
        for i in 0..10 {
            let id = format!("r{i}");
            let answer = Client::ask(proxy.addr, &Ask::chat().id(&id)).await;
            assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean), "{id}");
            // the connection goes back to the pool when the exchange ends
            let record = proxy.record(&id).await;
            assert_eq!(record["outcome"], "ok", "{record}");
            let attempts = if i == 0 { 1 } else { 2 };
            assert_eq!(record["attempts"], attempts, "{record}");
            let failed = record["failed_attempts"].as_array().into_iter().flatten();
            let failed: Vec<_> = failed
                .map(|one| (&one["instance"], &one["cause"]))
                .collect();
            let stale = (&record["instance"], &"stale_connection".into());
            assert_eq!(failed, vec![stale; attempts - 1], "{record}");
        }
        // each request after the first: once in vain on the old connection, once on a new one
        assert_eq!(upstream.requests().len(), 19);
        let bodies: Vec<_> = upstream.requests().iter().map(|r| r.body.clone()).collect();
        assert!(bodies.iter().all(|body| *body == bodies[0]));
    }
}

#[tokio::test]
async fn a_second_death_is_told_to_the_client() {
    let upstream = Script::new(|request| match request.number {
        0 => Reply::chat("ok"),
        _ => Reply::new().then(End::Close),
    })
    .start();
    let proxy = Setup::one(&upstream).set("server", "workers = 1").start();
    let first = Client::ask(proxy.addr, &Ask::chat().id("first")).await;
    assert_eq!(first.status(), 200);
    proxy.record("first").await;
    let answer = Client::ask(proxy.addr, &Ask::chat().id("second")).await;
    assert_eq!(answer.status(), 502, "{}", answer.text());
    assert_eq!(upstream.requests().len(), 3, "sent again once, not more");
}

#[tokio::test]
async fn where_nothing_may_be_sent_again_the_client_is_told_and_the_instance_asked_once() {
    let upstream = Script::new(|request| match request.reuse {
        0 => Reply::chat("ok"),
        _ => Reply::new().then(End::Close),
    })
    .start();
    let proxy = Setup::one(&upstream)
        .set("server", "workers = 1")
        .set("retries", "resend = false")
        .start();
    Client::ask(proxy.addr, &Ask::chat().id("first")).await;
    proxy.record("first").await;
    let answer = Client::ask(proxy.addr, &Ask::chat().id("second")).await;
    assert_eq!(answer.status(), 502, "{}", answer.text());
    assert_eq!(proxy.record("second").await["attempts"], 1);
    assert_eq!((upstream.requests().len(), upstream.connections()), (2, 1));
}

#[tokio::test]
async fn nothing_is_sent_again_after_a_response_byte() {
    let upstream = Script::new(|request| match request.reuse {
        0 => Reply::chat("ok"),
        _ => Reply::new().write(ms(0), "HTTP/1.1 200 O").then(End::Close),
    })
    .start();
    let proxy = Setup::one(&upstream).set("server", "workers = 1").start();
    Client::ask(proxy.addr, &Ask::chat().id("first")).await;
    proxy.record("first").await;
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    assert_eq!(answer.status(), 502);
    assert_eq!(
        upstream.requests().len(),
        2,
        "sent again after a response byte"
    );
}

#[tokio::test]
async fn an_instance_that_closes_after_each_answer_without_saying_so_serves_on() {
    let upstream = Script::new(|_| Reply::chat("ok").then(End::Close)).start();
    let proxy = Setup::one(&upstream).start();
    for _ in 0..100 {
        let answer = Client::ask(proxy.addr, &Ask::chat()).await;
        assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
    }
}

#[tokio::test]
async fn connections_are_reused_and_given_up_after_the_idle_time() {
    let upstream = Script::new(|_| Reply::chat("ok")).start();
    let proxy = Setup::one(&upstream)
        .set("server", "workers = 1")
        .set("timeouts", "upstream_idle_s = 0.2")
        .start();
    for i in 0..5 {
        let id = format!("r{i}");
        Client::ask(proxy.addr, &Ask::chat().id(&id)).await;
        proxy.record(&id).await;
    }
    assert_eq!(upstream.connections(), 1, "a connection a request");
    upstream.closed(0).await;
}

#[tokio::test]
async fn client_connections_are_kept_and_pipelined_requests_are_answered_in_order() {
    let upstream = Script::new(|request| {
        let body = format!("{{\"n\":{}}}", request.head.header("x-n").unwrap());
        Reply::json(200, &body)
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    let mut bytes = Vec::new();
    for n in 0..5 {
        let ask = Ask::chat().id(&format!("p{n}"));
        bytes.extend(ask.header("x-n", &n.to_string()).bytes());
    }
    client.send(&bytes).await;
    for n in 0..5 {
        assert_eq!(client.answer().await.json()["n"], n);
    }
    let records = proxy.stop();
    assert_eq!(records.len(), 5);
    for record in records {
        assert_eq!(record["outcome"], "ok", "{record}");
        assert!(
            record["e2e_ms"].is_f64(),
            "its last byte has a stamp: {record}"
        );
    }
}
