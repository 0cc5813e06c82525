//! Malformed and hostile requests: a clear refusal or the end of the connection, nothing reaches an instance, and a
//! well-formed request beside it is served.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::client::{Answer, Ask, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{Reply, gate, ms};
use crate::support::upstream::{Script, Upstream};

pub mod table;

use self::table::{Case, MALFORMED, SMUGGLED, chunked, chunks, framing, heads, meanings, post};

/// An instance that answers, and would count what came through.
fn engine() -> Upstream {
    Script::new(|_| Reply::json(200, "{\"choices\":[]}")).start()
}

/// The answer, if one comes before the connection ends; where the fault keeps the client sending, that is no fault.
async fn refused(proxy: &Proxy, wire: &[u8]) -> Option<Answer> {
    let mut client = Client::connect(proxy.addr).await;
    let _ = client.try_send(wire).await;
    client.answer_if_any().await
}

async fn all_refused(cases: Vec<Case>) {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    for (number, (name, wire, told)) in cases.iter().enumerate() {
        let ask = Ask::chat().header("x-well-formed", "1");
        let well_formed = Client::ask(proxy.addr, &ask);
        let (answer, served) = tokio::join!(refused(&proxy, wire), well_formed);
        let answer = answer.unwrap_or_else(|| panic!("{name}: closed without a word"));
        let got = (answer.status(), &answer.error_code()[..]);
        assert_eq!(got, *told, "{name}: {}", answer.text());
        let kind = answer.head.header("content-type");
        assert_eq!(kind, Some("application/json"), "{name}");
        assert_eq!(
            served.status(),
            200,
            "{name}: a well-formed request beside it"
        );
        let requests = engine.requests();
        let through = requests
            .iter()
            .find(|request| request.head.header("x-well-formed").is_none());
        assert!(
            through.is_none(),
            "{name}: {through:?} reached the instance"
        );
        assert_eq!(requests.len(), number + 1, "{name}");
    }
}

#[tokio::test]
async fn doubtful_framing_is_refused() {
    all_refused(framing()).await;
}

#[tokio::test]
async fn broken_chunks_are_refused() {
    all_refused(chunks()).await;
}

#[tokio::test]
async fn malformed_heads_are_refused() {
    all_refused(heads()).await;
}

#[tokio::test]
async fn what_is_not_meant_for_an_engine_is_refused() {
    all_refused(meanings()).await;
}

/// Heads refused so far, by reason, where there were any.
async fn refused_heads(proxy: &Proxy) -> BTreeMap<String, u64> {
    let metrics = proxy.admin_text("/metrics").await;
    let samples = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("evenkeel_refused_heads_total{reason=\""));
    samples
        .map(|sample| sample.split_once("\"} ").unwrap())
        .map(|(reason, count)| (reason.to_owned(), count.parse().unwrap()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[tokio::test]
async fn refused_heads_are_counted_by_reason_and_make_no_record() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    let mut expected = BTreeMap::new();
    for (_, wire, (_, reason)) in framing().into_iter().chain(heads()) {
        refused(&proxy, &wire).await;
        *expected.entry(reason.to_owned()).or_default() += 1;
    }
    assert_eq!(refused_heads(&proxy).await, expected);
    assert_eq!(proxy.records().len(), 0);
}

#[tokio::test]
async fn a_faulty_head_is_refused_also_in_single_bytes() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    for (name, wire, told) in framing() {
        let mut client = Client::connect(proxy.addr).await;
        for byte in wire.chunks(1) {
            if client.try_send(byte).await.is_err() {
                break;
            }
        }
        let answer = client.answer_if_any().await;
        let answer = answer.unwrap_or_else(|| panic!("{name}: closed without a word"));
        assert_eq!((answer.status(), &answer.error_code()[..]), told, "{name}");
    }
    assert_eq!(engine.connections(), 0);
}

#[tokio::test]
async fn what_is_pipelined_behind_a_malformed_request_is_dropped() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    for bad in [
        post("content-length: x", ""),
        chunked("x\r\n"),
        post("expect: x", ""),
    ] {
        let wire = [&bad[..], SMUGGLED.as_bytes()].concat();
        let mut client = Client::connect(proxy.addr).await;
        client.send(&wire).await;
        let status = client.answer_if_any().await.map(|answer| answer.status());
        assert!(matches!(status, Some(400 | 417)), "{status:?}");
        assert!(
            client.ends_within(Duration::from_secs(5)).await,
            "the connection goes on"
        );
    }
    assert_eq!(engine.requests().len(), 0);
}

#[tokio::test]
async fn what_came_before_a_malformed_request_is_answered() {
    let (key, closed) = gate();
    let engine = Script::new(move |_| {
        Reply::new()
            .wait(&closed)
            .write(ms(0), "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    })
    .start();
    let proxy = Setup::one(&engine).start();
    let mut client = Client::connect(proxy.addr).await;
    let wire = [Ask::chat().bytes(), post("content-length: x", SMUGGLED)].concat();
    client.send(&wire).await;
    engine.request(0).await;
    tokio::time::sleep(ms(50)).await;
    key.open();
    assert_eq!(client.answer().await.text(), "{}");
    let refused = client.answer().await;
    assert_eq!((refused.status(), &refused.error_code()[..]), MALFORMED);
    assert!(client.ends_within(Duration::from_secs(5)).await);
    assert_eq!(engine.requests().len(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_behind_a_malformed_request_cancels_what_came_before() {
    let (_key, closed) = gate();
    let engine = Script::new(move |_| Reply::new().wait(&closed)).start();
    let proxy = Setup::one(&engine).start();
    let mut client = Client::connect(proxy.addr).await;
    let wire = [Ask::chat().bytes(), post("content-length: x", "")].concat();
    client.send(&wire).await;
    engine.request(0).await;
    drop(client);
    engine.closed(0).await;
    proxy.settled().await;
}

#[tokio::test]
async fn a_body_shorter_or_longer_than_declared_harms_nobody() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    // shorter: the client half-closes in its midst
    for wire in [
        post("content-length: 10", "{}"),
        chunked("a\r\n{}"),
        chunked("2\r\n{}\r\n"),
    ] {
        let mut client = Client::connect(proxy.addr).await;
        client.send(&wire).await;
        client.half_close().await;
        let answer = client.answer_if_any().await;
        assert!(answer.is_none_or(|answer| answer.status() == 400));
    }
    assert_eq!(engine.requests().len(), 0);
    // longer: what is left over is no request
    let mut client = Client::connect(proxy.addr).await;
    client.send(&post("content-length: 2", "{}{}\r\n")).await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(client.answer().await.error_code(), "request_malformed");
    assert_eq!(engine.request(0).await.body, "{}");
    assert_eq!(engine.requests().len(), 1);
}
