//! C11, C16, C18: what ends badly must not look whole, what is long must not wait, and what is no
//! stream must not be made one.

use crate::support::child::Child;
use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::http1::chunk;
use crate::support::proxy::Setup;
use crate::support::reply::{
    DONE, End, Reply, SSE_HEAD, finish_event, gate, ms, role_event, text_event,
};
use crate::support::upstream::Script;

#[tokio::test]
async fn a_cut_inside_a_chunk_is_passed_on_as_a_cut() {
    for end in [End::Close, End::Reset] {
        let (key, gate) = gate();
        let upstream = Script::new(move |_| {
            Reply::sse()
                .chunk(ms(0), text_event("Hi").as_bytes())
                .write(ms(0), "a6\r\ndata: {\"id\":\"c-1\"")
                .wait(&gate)
                .then(end)
        })
        .start();
        let proxy = Setup::one(&upstream).start();
        let mut client = Client::connect(proxy.addr).await;
        client.send(&Ask::chat().id("cut").bytes()).await;
        let head = client.head().await;
        let whole = text_event("Hi").len() as u64 + 17;
        let mut body = client.body(&head);
        body.at_least(whole).await;
        key.open();
        assert!(body.next().await.is_none(), "bytes out of nowhere");
        assert_ne!(body.end(), Some(BodyEnd::Clean));
        let record = proxy.record("cut").await;
        assert_eq!(record["outcome"], "cut", "{record}");
        assert_eq!(record["transport_clean"], false);
        proxy.settled().await;
    }
}

#[tokio::test]
async fn bytes_before_a_cut_arrive_even_when_both_come_at_once() {
    let event = text_event("Hi");
    for events in [0, 1, 20] {
        // one segment: head, chunks, and then the end
        let mut bytes = SSE_HEAD.to_vec();
        for _ in 0..events {
            bytes.extend_from_slice(&chunk(event.as_bytes()));
        }
        let upstream = Script::new(move |request| match request.number % 2 {
            0 => Reply::chat("whole"),
            _ => Reply::new().write(ms(0), bytes.clone()).then(End::Close),
        })
        .start();
        let proxy = Setup::one(&upstream).start();
        for _ in 0..50 {
            // on a connection that had an answer before
            let mut client = Client::connect(proxy.addr).await;
            client.send(&Ask::chat().bytes()).await;
            assert_eq!(client.answer().await.end, BodyEnd::Clean);
            client.send(&Ask::chat().bytes()).await;
            let answer = client.answer().await;
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.text(), event.repeat(events));
            assert_ne!(answer.end, BodyEnd::Clean);
        }
    }
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_a_cut() {
    let upstream = Script::new(|_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"id\":";
        Reply::new().write(ms(0), head).then(End::Close)
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let answer = Client::ask(proxy.addr, &Ask::chat().id("short")).await;
    assert_eq!(answer.head.header("content-length"), Some("100"));
    assert_eq!(answer.text(), "{\"id\":");
    assert_ne!(answer.end, BodyEnd::Clean);
    assert_eq!(proxy.record("short").await["outcome"], "cut");
}

#[tokio::test]
async fn done_then_no_last_chunk_is_complete_but_unclean() {
    let upstream = Script::new(|_| {
        let mut reply = Reply::chat("Hi").then(End::Close);
        reply.steps.pop();
        reply
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let answer = Client::ask(proxy.addr, &Ask::chat().id("unclean")).await;
    assert!(answer.text().ends_with(DONE));
    assert_ne!(answer.end, BodyEnd::Clean);
    let record = proxy.record("unclean").await;
    assert_eq!(record["outcome"], "ok", "{record}");
    assert_eq!(record["transport_clean"], false);
}

#[tokio::test]
async fn an_answer_until_close_ends_clean() {
    let events = format!("{}{}{DONE}", text_event("a"), finish_event());
    let text = events.clone();
    let upstream = Script::new(move |_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        Reply::new()
            .write(ms(0), head)
            .write(ms(5), text.clone())
            .then(End::Close)
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let answer = Client::ask(proxy.addr, &Ask::chat().id("eof")).await;
    assert_eq!((answer.text(), answer.end), (events, BodyEnd::Clean));
    assert_eq!(proxy.record("eof").await["outcome"], "ok");
}

#[tokio::test]
async fn no_byte_at_all_is_a_502() {
    for end in [End::Close, End::Reset] {
        let upstream = Script::new(move |_| Reply::new().then(end)).start();
        let proxy = Setup::one(&upstream).start();
        let answer = Client::ask(proxy.addr, &Ask::chat().id("none")).await;
        assert_eq!(answer.status(), 502);
        assert!(answer.json()["error"]["message"].is_string());
        assert_eq!(
            upstream.requests().len(),
            1,
            "a fresh connection: not sent again"
        );
        assert_eq!(proxy.record("none").await["outcome"], "engine_error");
    }
}

#[tokio::test]
async fn status_headers_and_body_pass_unchanged() {
    let body = r#"{"error":{"message":"queue is full","type":"overloaded","code":429}}"#;
    let upstream = Script::new(move |_| {
        let raw = format!(
            "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nretry-after: 7\r\nx-own: a\r\nx-own: b\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Reply::new().write(ms(0), raw)
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let answer = Client::ask(proxy.addr, &Ask::chat().id("r429")).await;
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.text(), body);
    assert_eq!(answer.head.header("content-type"), Some("application/json"));
    assert_eq!(answer.head.header("retry-after"), Some("7"));
    assert_eq!(answer.head.all("x-own"), ["a", "b"]);
    let record = proxy.record("r429").await;
    assert_eq!(record["outcome"], "engine_error", "{record}");
    assert_eq!(record["status"], 429);
    assert!(record["server_ttft_ms"].is_null(), "{record}");
}

#[tokio::test]
async fn the_head_waits_for_the_upstreams() {
    let (key, gate) = gate();
    let upstream = Script::new(move |_| {
        let mut reply = Reply::new().wait(&gate);
        reply.steps.extend(Reply::json(401, "{\"error\":{}}").steps);
        reply
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    upstream.request(0).await;
    let early = tokio::time::timeout(ms(50), client.try_head()).await;
    assert!(early.is_err(), "a head before the upstream's");
    key.open();
    assert_eq!(client.answer().await.status(), 401);
}

#[tokio::test]
async fn a_long_line_is_passed_on_before_it_ends_and_is_measured() {
    let long = text_event(&"a".repeat(2 << 20)).into_bytes();
    let length = long.len() as u64;
    let (key, gate) = gate();
    let upstream = Script::new(move |_| {
        let mut reply = Reply::sse().chunk(ms(0), role_event().as_bytes());
        let (last, first) = long
            .split_last_chunk::<1000>()
            .map(|(f, l)| (l, f))
            .unwrap();
        for piece in first.chunks(16 * 1024) {
            reply = reply.chunk(ms(0), piece);
        }
        reply
            .wait(&gate)
            .chunk(ms(0), last)
            .chunk(ms(0), finish_event().as_bytes())
            .chunk(ms(0), DONE.as_bytes())
            .last_chunk(ms(0))
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("long").bytes()).await;
    let head = client.head().await;
    let mut body = client.body(&head);
    // all but the line's end arrives while the line is not ended
    body.at_least(role_event().len() as u64 + length - 1000)
        .await;
    key.open();
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Clean));
    let record = proxy.record("long").await;
    assert_eq!(record["outcome"], "ok", "{record}");
    assert_eq!(record["content_chunks"], 1);
    assert_eq!(record["events"], 4);
    assert!(record["server_ttft_ms"].is_number());
}

#[tokio::test]
async fn a_body_with_no_line_end_is_passed_on_in_bounded_memory() {
    const MIB: u64 = 1 << 20;
    let upstream = Script::new(|request| {
        if request.number == 0 {
            return Reply::chat("warm");
        }
        let piece = vec![b'a'; 64 * 1024];
        Reply::sse()
            .chunk(ms(0), b"data: ")
            .chunks(ms(0), ms(0), 1024, &piece)
            .last_chunk(ms(0))
    })
    .forgetful()
    .start();
    let cap_bytes = 4 * MIB;
    let child = Child::serve(
        &Setup::one(&upstream).set("measure", &format!("scan_cap_bytes = {cap_bytes}")),
    );
    Client::ask(child.addr, &Ask::chat()).await;
    child.forget_peak();
    let before = child.resident_kb();
    let mut client = Client::connect(child.addr).await;
    client.send(&Ask::chat().id("endless").bytes()).await;
    let head = client.head().await;
    let mut body = client.body(&head);
    let mut total = 0;
    while let Some(piece) = body.next().await {
        total += piece.bytes.len() as u64;
    }
    assert_eq!((total, body.end()), (64 * MIB + 6, Some(BodyEnd::Clean)));
    let grown = (child.peak_kb().saturating_sub(before)) * 1024;
    println!(
        "64 MiB in one line: peak memory grew by {} kB",
        grown / 1024
    );
    assert!(grown < cap_bytes + MIB, "grew by {grown} bytes");
}
