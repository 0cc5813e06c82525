//! C19: a client goes away, at any stage; the instance is told within 100 ms and the load is freed.

use std::time::{Duration, Instant};

use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{
    End, Reply, error_event, finish_event, gate, ms, role_event, text_event,
};
use crate::support::upstream::{Script, Upstream};

const LIMIT: Duration = ms(100);

/// The upstream lost its connection in time, the load is gone, the record says why.
async fn assert_cancelled(proxy: &Proxy, upstream: &Upstream, left: Instant, id: &str) {
    let closed = upstream.closed(0).await;
    let took = closed.at.saturating_duration_since(left);
    assert!(took < LIMIT, "{id}: the instance was told after {took:?}");
    let freed = proxy.settled().await;
    assert!(freed < LIMIT, "{id}: the load was freed after {freed:?}");
    let record = proxy.record(id).await;
    assert_eq!(record["outcome"], "client_cancelled", "{record}");
}

fn silent() -> Upstream {
    Script::new(|_| Reply::new().then(End::Hold)).start()
}

#[tokio::test]
async fn before_the_head_by_reset() {
    let upstream = silent();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("a").bytes()).await;
    upstream.request(0).await;
    let left = Instant::now();
    client.abort();
    assert_cancelled(&proxy, &upstream, left, "a").await;
}

#[tokio::test]
async fn before_the_head_by_close() {
    let upstream = silent();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("a").bytes()).await;
    upstream.request(0).await;
    let left = Instant::now();
    drop(client);
    assert_cancelled(&proxy, &upstream, left, "a").await;
}

#[tokio::test]
async fn between_the_head_and_the_first_event() {
    let upstream = Script::new(|_| Reply::sse().then(End::Hold)).start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("b").bytes()).await;
    assert_eq!(client.head().await.status(), 200);
    let left = Instant::now();
    drop(client);
    assert_cancelled(&proxy, &upstream, left, "b").await;
    let record = proxy.record("b").await;
    assert!(record["server_ttft_ms"].is_null(), "{record}");
}

/// Client libraries close as soon as they have read `[DONE]`, before the body's own end.
#[tokio::test]
async fn after_the_whole_answer_it_is_ok_and_after_an_error_the_engines() {
    let done = "data: [DONE]\n\n".to_owned();
    let cases = [
        (
            "whole",
            vec![role_event(), text_event("a"), finish_event(), done],
            "ok",
        ),
        (
            "error",
            vec![role_event(), text_event("a"), error_event()],
            "engine_error",
        ),
    ];
    for (id, events, outcome) in cases {
        let bytes: usize = events.iter().map(String::len).sum();
        let upstream = Script::new(move |_| {
            let begun = events.iter().fold(Reply::sse(), |reply, event| {
                reply.chunk(ms(1), event.as_bytes())
            });
            begun.then(End::Hold)
        })
        .start();
        let proxy = Setup::one(&upstream).start();
        let mut client = Client::connect(proxy.addr).await;
        client.send(&Ask::chat().id(id).bytes()).await;
        let head = client.head().await;
        client.body(&head).at_least(bytes as u64).await;
        drop(client);
        proxy.settled().await;
        let record = proxy.record(id).await;
        assert_eq!(record["outcome"], outcome, "{record}");
        assert_eq!(record["complete"], outcome == "ok", "{record}");
        assert_eq!(record["transport_clean"], false, "{record}");
        assert_eq!(record["content_chunks"], 1, "{record}");
    }
}

#[tokio::test]
async fn in_the_middle_of_a_stream() {
    let upstream = Script::new(|_| Reply::paced_chat(1000, ms(10))).start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("c").bytes()).await;
    let head = client.head().await;
    client.body(&head).at_least(600).await;
    let left = Instant::now();
    client.abort();
    assert_cancelled(&proxy, &upstream, left, "c").await;
}

#[tokio::test]
async fn in_the_middle_of_a_stream_that_has_fallen_silent() {
    let upstream = Script::new(|_| Reply::sse().chunk(ms(0), b": up\n\n").then(End::Hold)).start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("c").bytes()).await;
    let head = client.head().await;
    client.body(&head).at_least(6).await;
    let left = Instant::now();
    drop(client);
    assert_cancelled(&proxy, &upstream, left, "c").await;
}

#[tokio::test]
async fn while_a_held_body_is_being_sent() {
    let upstream = silent();
    let proxy = Setup::one(&upstream).start();
    let ask = Ask::chat().id("d");
    let bytes = ask.bytes();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&bytes[..bytes.len() - 20]).await;
    // closed, not reset: a reset may take away what was not read yet
    drop(client);
    let record = proxy.record("d").await;
    assert_eq!(record["outcome"], "client_cancelled", "{record}");
    assert_eq!(upstream.connections(), 0, "nothing was to be sent");
    proxy.settled().await;
}

#[tokio::test]
async fn while_a_streamed_body_is_being_sent() {
    let upstream = silent();
    let proxy = Setup::one(&upstream)
        .set("limits", "hold_bytes = 65536")
        .start();
    let ask = Ask::post("/v1/chat/completions", vec![b' '; 1 << 20]).id("d");
    let mut client = Client::connect(proxy.addr).await;
    client.send(&ask.bytes()[..400_000]).await;
    upstream.head(0).await;
    while upstream.body_bytes(0) < 65_536 {
        tokio::time::sleep(ms(1)).await;
    }
    let left = Instant::now();
    client.abort();
    assert_cancelled(&proxy, &upstream, left, "d").await;
}

#[tokio::test]
async fn a_half_close_is_a_cancel_by_default() {
    let upstream = silent();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("e").bytes()).await;
    upstream.request(0).await;
    let left = Instant::now();
    client.half_close().await;
    assert_cancelled(&proxy, &upstream, left, "e").await;
    assert!(client.try_head().await.is_none(), "an answer came");
}

#[tokio::test]
async fn a_half_close_ends_only_the_request_where_that_is_set() {
    let (key, gate) = gate();
    let upstream = Script::new(move |_| {
        let mut reply = Reply::new().wait(&gate);
        reply.steps.extend(Reply::chat("late").steps);
        reply
    })
    .start();
    let proxy = Setup::one(&upstream)
        .set("client", "half_close = true")
        .start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("e").bytes()).await;
    upstream.request(0).await;
    client.half_close().await;
    key.open();
    let answer = client.answer().await;
    assert_eq!(answer.end, BodyEnd::Clean);
    assert!(answer.text().contains("late"));
    assert_eq!(proxy.record("e").await["outcome"], "ok");
    proxy.settled().await;
}

#[tokio::test]
async fn with_half_close_allowed_a_reset_is_still_a_cancel() {
    let upstream = Script::new(|_| Reply::paced_chat(1000, ms(10))).start();
    let proxy = Setup::one(&upstream)
        .set("client", "half_close = true")
        .start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("c").bytes()).await;
    let head = client.head().await;
    client.body(&head).at_least(600).await;
    let left = Instant::now();
    client.abort();
    assert_cancelled(&proxy, &upstream, left, "c").await;
}

#[tokio::test]
async fn a_client_that_leaves_after_the_end_was_served_well() {
    let upstream = Script::new(|_| Reply::chat("done")).start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("f").bytes()).await;
    assert_eq!(client.answer().await.end, BodyEnd::Clean);
    client.abort();
    assert_eq!(proxy.record("f").await["outcome"], "ok");
}

/// C19, C23: not an upstream error, and no sample of a latency.
#[tokio::test]
async fn a_cancel_is_no_failure_of_the_instance_and_no_latency() {
    let upstream = Script::new(|_| Reply::paced_chat(1000, ms(10))).start();
    let proxy = Setup::one(&upstream)
        .health("check_path = \"\", failures_in_a_row = 2, window_requests = 2, failure_share = 0.1, when_none_left = \"refuse\"")
        .start();
    for number in 0..10 {
        let id = format!("c{number}");
        let mut client = Client::connect(proxy.addr).await;
        client.send(&Ask::chat().id(&id).bytes()).await;
        if number % 2 == 0 {
            upstream.request(number).await;
        } else {
            let head = client.head().await;
            client.body(&head).at_least(600).await;
        }
        client.abort();
        let record = proxy.record(&id).await;
        assert_eq!(record["outcome"], "client_cancelled", "{record}");
    }
    let text = proxy.admin_text("/metrics").await;
    let value = |start: &str| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(start));
        lines
            .map(|l| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    };
    assert_eq!(value("evenkeel_instance_up{"), 1.0, "{text}");
    assert_eq!(value("evenkeel_instance_ejections_total{"), 0.0);
    for figure in ["e2e", "client_ttft", "server_ttft", "tpot", "chunk_gap"] {
        let samples = value(&format!("evenkeel_{figure}_seconds_count"));
        assert_eq!(samples, 0.0, "{figure}");
    }
}

/// The end comes along with the request: it was there all the same.
#[tokio::test]
async fn at_once_leaves_a_record_too() {
    let upstream = silent();
    let proxy = Setup::one(&upstream).start();
    for number in 0..20 {
        let id = format!("a{number}");
        let mut client = Client::connect(proxy.addr).await;
        client.send(&Ask::chat().id(&id).bytes()).await;
        drop(client);
        let record = proxy.record(&id).await;
        assert_eq!(record["outcome"], "client_cancelled", "{record}");
    }
    proxy.settled().await;
}
