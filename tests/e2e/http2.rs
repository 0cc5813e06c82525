//! HTTP/2 in: streams come whole, a reset is a cancel, an unread stream slows no sibling.

use std::time::Instant;

use crate::support::client_h2::{ClientH2, next_piece, whole};
use crate::support::http1::chunk;
use crate::support::proxy::Setup;
use crate::support::reply::{DONE, End, Reply, SSE_HEAD, ms, text_event};
use crate::support::upstream::Script;
use crate::support::{PATIENCE, within};

const PATH: &str = "/v1/chat/completions";
const BODY: &str =
    r#"{"model":"m-small","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
const WINDOW: u32 = 65_535;

#[tokio::test]
async fn a_stream_comes_whole_and_is_measured() {
    let upstream = Script::new(|_| Reply::paced_chat(5, ms(10))).start();
    let proxy = Setup::one(&upstream).start();
    let client = ClientH2::connect(proxy.addr, WINDOW).await;
    let mut answer = client.post(PATH, "h2", BODY).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(
        answer.headers()["content-type"],
        "text/event-stream; charset=utf-8"
    );
    let (body, error) = whole(answer.body_mut()).await;
    assert!(error.is_none(), "{error:?}");
    assert!(body.ends_with(DONE.as_bytes()));
    assert_eq!(upstream.request(0).await.body, BODY);
    // END_STREAM of the request is no cancel
    let record = proxy.record("h2").await;
    assert_eq!(record["outcome"], "ok", "{record}");
    assert_eq!(record["content_chunks"], 5);
    assert!(record["client_ttft_ms"].is_number(), "{record}");
    assert!(record["server_ttft_ms"].is_number(), "{record}");
}

#[tokio::test]
async fn a_reset_stream_closes_its_upstream_and_no_other() {
    let upstream = Script::new(|request| match request.number {
        0 => Reply::sse().chunk(ms(0), b": up\n\n").then(End::Hold),
        _ => Reply::paced_chat(20, ms(10)),
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let client = ClientH2::connect(proxy.addr, WINDOW).await;
    let mut held = client.post(PATH, "held", BODY).await;
    next_piece(held.body_mut()).await.unwrap().unwrap();
    let mut other = client.post(PATH, "other", BODY).await;
    let left = Instant::now();
    drop(held);
    let closed = upstream.closed(upstream.request(0).await.connection).await;
    assert!(closed.at.saturating_duration_since(left) < ms(100));
    assert_eq!(proxy.record("held").await["outcome"], "client_cancelled");
    let (body, error) = whole(other.body_mut()).await;
    assert!(error.is_none() && body.ends_with(DONE.as_bytes()));
    proxy.settled().await;
}

#[tokio::test]
async fn a_reset_before_the_head_closes_the_upstream() {
    let upstream = Script::new(|_| Reply::new().then(End::Hold)).start();
    let proxy = Setup::one(&upstream).start();
    let client = ClientH2::connect(proxy.addr, WINDOW).await;
    let waiting = tokio::spawn(async move { client.post(PATH, "early", BODY).await });
    upstream.request(0).await;
    let left = Instant::now();
    waiting.abort();
    let closed = upstream.closed(0).await;
    assert!(closed.at.saturating_duration_since(left) < ms(100));
    proxy.settled().await;
    assert_eq!(proxy.record("early").await["outcome"], "client_cancelled");
}

#[tokio::test]
async fn a_cut_is_a_reset() {
    let upstream = Script::new(|_| {
        Reply::sse()
            .chunk(ms(0), text_event("Hi").as_bytes())
            .write(ms(10), "a6\r\ndata: {")
            .then(End::Close)
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let client = ClientH2::connect(proxy.addr, WINDOW).await;
    let mut answer = client.post(PATH, "cut", BODY).await;
    let (body, error) = whole(answer.body_mut()).await;
    assert!(error.is_some(), "a cut answer ended clean");
    assert!(body.starts_with(text_event("Hi").as_bytes()));
    assert_eq!(proxy.record("cut").await["outcome"], "cut");
}

/// A reset takes away what waits on its stream: it must not be sent before that is out.
#[tokio::test]
async fn what_came_with_a_cut_arrives_before_the_reset() {
    let event = text_event("Hi");
    for events in [0, 1, 20] {
        // head, events and the end in one segment
        let mut bytes = SSE_HEAD.to_vec();
        for _ in 0..events {
            bytes.extend_from_slice(&chunk(event.as_bytes()));
        }
        let whole = bytes.clone();
        let upstream =
            Script::new(move |_| Reply::new().write(ms(0), whole.clone()).then(End::Close)).start();
        let proxy = Setup::one(&upstream).start();
        let client = ClientH2::connect(proxy.addr, WINDOW).await;
        for _ in 0..20 {
            let mut answer = client.post(PATH, "cut", BODY).await;
            assert_eq!(answer.status(), 200);
            let (body, error) = self::whole(answer.body_mut()).await;
            assert!(error.is_some(), "a cut answer ended clean");
            assert_eq!(String::from_utf8(body).unwrap(), event.repeat(events));
        }
        proxy.settled().await;
    }
}

/// A client that takes nothing does not hold a stream for ever whose answer broke off.
#[tokio::test]
async fn a_cut_stream_that_is_not_read_ends_too() {
    const BYTES: usize = 64 << 10;
    let upstream = Script::new(|request| match request.number {
        0 => Reply::paced_chat(1, ms(0)),
        _ => {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
            Reply::new()
                .write(ms(0), head)
                .write(ms(0), vec![b'a'; BYTES])
                .then(End::Close)
        }
    })
    .start();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_write_s = 0.2")
        .start();
    let client = ClientH2::connect(proxy.addr, 1000).await;
    let mut first = client.post(PATH, "first", BODY).await;
    assert!(whole(first.body_mut()).await.1.is_none());
    // the core's own tasks and the connection's
    let before = proxy.shared().tasks();
    let unread = client.post(PATH, "unread", BODY).await;
    proxy.record("unread").await;
    let over = async {
        while proxy.shared().tasks() > before {
            tokio::time::sleep(ms(5)).await;
        }
    };
    within("the stream's end", PATIENCE, over).await;
    drop(unread);
}

#[tokio::test]
async fn an_unread_stream_slows_no_sibling_and_stops_its_upstream() {
    const FLOOD: u64 = 64 << 20;
    let upstream = Script::new(|request| match request.number {
        0 => {
            let piece = vec![b'a'; 16 * 1024];
            Reply::sse()
                .chunks(ms(0), ms(0), (FLOOD / (16 * 1024)) as u32, &piece)
                .last_chunk(ms(0))
        }
        _ => Reply::paced_chat(20, ms(10)),
    })
    .forgetful()
    .start();
    let proxy = Setup::one(&upstream).start();
    let client = ClientH2::connect(proxy.addr, WINDOW).await;
    let unread = client.post(PATH, "unread", BODY).await;
    for i in 0..3 {
        let begun = Instant::now();
        let mut sibling = client.post(PATH, &format!("s{i}"), BODY).await;
        let (body, error) = whole(sibling.body_mut()).await;
        assert!(error.is_none() && body.ends_with(DONE.as_bytes()));
        let took = begun.elapsed();
        assert!(took < ms(600), "a stream of 210 ms took {took:?}");
    }
    let written = upstream.written(0).bytes;
    println!("unread stream on HTTP/2: the upstream wrote {written} bytes");
    assert!(
        written < FLOOD / 4,
        "{written} bytes were taken for a client that reads none"
    );
    drop(unread);
    proxy.settled().await;
}
