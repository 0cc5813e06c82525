//! C25 on real sockets, with all limits and times divided by 100; `src/proxy/timeout_tests.rs` has them whole, on a
//! virtual clock.

use std::time::{Duration, Instant};

use crate::support::client::{Answer, Ask, BodyEnd, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{DONE, End, Reply, ms, text_event};
use crate::support::upstream::{Script, Upstream};

/// The defaults over 100.
const LIMITS: &str =
    "connect_s = 0.03\nheaders_s = 6.0\nfirst_event_s = 6.0\nsilence_s = 6.0\nclient_write_s = 1.2";
const LIMIT: Duration = Duration::from_secs(6);

fn hi() -> Vec<u8> {
    text_event("Hi").into_bytes()
}

/// What the instance does, by the request's id.
fn reply(id: &str) -> Reply {
    match id {
        "a" => Reply::sse()
            .chunk(ms(750), &hi())
            .chunk(ms(750), DONE.as_bytes())
            .last_chunk(ms(750)),
        "b" => Reply::new()
            .write(ms(750), crate::support::reply::SSE_HEAD)
            .chunk(ms(750), &hi())
            .chunk(ms(750), DONE.as_bytes())
            .last_chunk(ms(750)),
        "c" => Reply::sse()
            .chunk(ms(10), &hi())
            .chunk(ms(1210), &hi())
            .chunk(ms(1210), DONE.as_bytes())
            .last_chunk(ms(1210)),
        // a token each 100 ms, for longer than any limit
        "d" => Reply::sse()
            .chunks(ms(0), ms(100), 67, &hi())
            .chunk(ms(6700), DONE.as_bytes())
            .last_chunk(ms(6700)),
        "e-head" => Reply::new().then(End::Hold),
        "e-first" => Reply::sse().then(End::Hold),
        "e-silence" => Reply::sse().chunk(ms(10), &hi()).then(End::Hold),
        other => panic!("no script for {other}"),
    }
}

async fn ask(proxy: &Proxy, id: &str) -> (Answer, Duration) {
    let begun = Instant::now();
    let answer = Client::ask(proxy.addr, &Ask::chat().id(id)).await;
    (answer, begun.elapsed())
}

fn start() -> (Upstream, Proxy) {
    let upstream =
        Script::new(|request| reply(request.head.header("x-request-id").unwrap())).start();
    let proxy = Setup::one(&upstream).set("timeouts", LIMITS).start();
    (upstream, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c25_what_is_slow_but_comes_passes() {
    let (_upstream, proxy) = start();
    let (a, b, c, d) = tokio::join!(
        ask(&proxy, "a"),
        ask(&proxy, "b"),
        ask(&proxy, "c"),
        ask(&proxy, "d")
    );
    for (id, (answer, _)) in [("a", a), ("b", b), ("c", c), ("d", d)] {
        assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean), "{id}");
        assert!(answer.text().ends_with(DONE), "{id}");
        assert_eq!(proxy.record(id).await["outcome"], "ok", "{id}");
    }
    proxy.settled().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c25e_what_never_comes_ends_by_its_own_limit() {
    let (upstream, proxy) = start();
    let (head, first, silence) = tokio::join!(
        ask(&proxy, "e-head"),
        ask(&proxy, "e-first"),
        ask(&proxy, "e-silence")
    );
    assert_eq!(
        (head.0.status(), head.0.error_code().as_str()),
        (504, "headers_timeout")
    );
    for (answer, _) in [&first, &silence] {
        assert_eq!(answer.status(), 200);
        assert_ne!(
            answer.end,
            BodyEnd::Clean,
            "an answer that was not whole ended clean"
        );
    }
    assert_eq!(silence.0.body(), hi(), "what came had gone on");
    for (id, cause, took) in [
        ("e-head", "headers_timeout", head.1),
        ("e-first", "first_event_timeout", first.1),
        ("e-silence", "silence_timeout", silence.1),
    ] {
        assert!(took >= LIMIT && took < LIMIT * 3, "{id} took {took:?}");
        let record = proxy.record(id).await;
        assert_eq!(
            (&record["outcome"], &record["cause"]),
            (&"timeout".into(), &cause.into()),
            "{record}"
        );
    }
    for connection in 0..3 {
        upstream.closed(connection).await;
    }
    proxy.settled().await;
}

#[tokio::test]
async fn c25e_an_instance_that_cannot_be_connected_to_is_502_in_time() {
    // a listener whose backlog is full answers no SYN
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener
        .bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(socket)) =
        tokio::time::timeout(ms(300), tokio::net::TcpStream::connect(addr)).await
    {
        waiting.push(socket);
    }
    let proxy = Setup::over(&[addr]).set("timeouts", LIMITS).start();
    let (answer, took) = ask(&proxy, "connect").await;
    assert_eq!(
        (answer.status(), answer.error_code().as_str()),
        (502, "connect_failed")
    );
    assert!(
        answer.text().contains("timeouts.connect_s"),
        "{}",
        answer.text()
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
    proxy.settled().await;
}
