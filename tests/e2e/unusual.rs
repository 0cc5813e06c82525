//! Well-formed but unusual requests, judged by the bytes that the instance saw.

use crate::support::client::{Ask, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{Reply, ms};
use crate::support::upstream::{Script, Upstream};

fn engine() -> Upstream {
    Script::new(|_| Reply::json(200, "{}")).start()
}

/// Sends one request in bytes; gives its status and the head that the instance saw, as text.
async fn seen(wire: &str) -> (u16, String) {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(wire.as_bytes()).await;
    let status = client.answer().await.status();
    let head = engine.request(0).await.head.raw.clone();
    (status, String::from_utf8(head.to_vec()).unwrap())
}

#[tokio::test]
async fn hop_by_hop_fields_end_here() {
    let (status, head) = seen(
        "POST /v1/completions HTTP/1.1\r\nHost: t\r\nConnection: close, X-Hop, content-length\r\nconnection: authorization, x-request-id , host\r\nX-Hop: 1\r\nx-hop: 2\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\nTE: trailers, gzip\r\nTrailer: x-sum\r\nAuthorization: Bearer k\r\nX-Request-Id: r1\r\nX-Stays: a, b\r\nContent-Length: 2\r\n\r\n{}",
    )
    .await;
    assert_eq!(status, 200);
    let mut lines: Vec<_> = head.split_inclusive("\r\n").collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "POST /v1/completions HTTP/1.1\r\n",
            "\r\n",
            "authorization: Bearer k\r\n",
            "content-length: 2\r\n",
            "host: t\r\n",
            "x-request-id: r1\r\n",
            "x-stays: a, b\r\n",
        ]
    );
}

#[tokio::test]
async fn a_chunked_body_with_extensions_and_trailers_goes_on_as_its_data() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    let mut client = Client::connect(proxy.addr).await;
    client
        .send(b"POST /v1/completions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: ChunKed\r\ntrailer: x-a\r\n\r\n1;q=\"\xff\"\r\n{\r\n01 \r\n}\r\n000\r\nx-a: 1\r\ncontent-length: 9\r\n\r\n")
        .await;
    client.send(&Ask::chat().bytes()).await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(client.answer().await.status(), 200);
    let request = engine.request(0).await;
    assert_eq!(request.body, "{}");
    let head = String::from_utf8(request.head.raw.to_vec()).unwrap();
    assert!(
        head.starts_with("POST /v1/completions HTTP/1.1\r\nhost: t\r\nx-request-id: "),
        "{head}"
    );
    assert!(head.ends_with("\r\ncontent-length: 2\r\n\r\n"), "{head}");
    assert!(!head.contains("x-a"), "a trailer became a header: {head}");
}

#[tokio::test]
async fn an_absolute_target_goes_on_as_a_path() {
    let (status, head) = seen(
        "POST http://T:80/v1/completions?x=%2F HTTP/1.1\r\nhost: t:80\r\nx-request-id: r\r\ncontent-length: 2\r\n\r\n{}",
    )
    .await;
    assert_eq!(status, 200);
    assert_eq!(
        head,
        "POST /v1/completions?x=%2F HTTP/1.1\r\nhost: t:80\r\nx-request-id: r\r\ncontent-length: 2\r\n\r\n"
    );
}

#[tokio::test]
async fn http_1_0_is_answered_without_chunks_and_closed() {
    let engine =
        Script::new(|_| Reply::sse().chunk(ms(0), b"data: x\n\n").last_chunk(ms(0))).start();
    let proxy = Setup::one(&engine).start();
    let mut client = Client::connect(proxy.addr).await;
    client
        .send(b"POST /v1/completions HTTP/1.0\r\nx-request-id: r\r\ncontent-length: 2\r\n\r\n{}")
        .await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), &answer.text()[..]), (200, "data: x\n\n"));
    assert_eq!(answer.head.header("transfer-encoding"), None);
    let sent = &engine.request(0).await.head;
    assert_eq!(sent.first_line, "POST /v1/completions HTTP/1.1");
    assert_eq!(sent.all("host"), [engine.addr.to_string()]);
}

#[tokio::test]
async fn values_past_ascii_and_empty_ones_go_on_byte_for_byte() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    let mut client = Client::connect(proxy.addr).await;
    client
        .send(b"\r\nPOST /v1/completions HTTP/1.1\r\nhost: t\r\nx-request-id: r\r\nx-latin: caf\xe9 \xff\r\nx-tab:\ta\tb\t\r\nx-empty:\r\ncontent-length: 2\r\n\r\n{}")
        .await;
    assert_eq!(client.answer().await.status(), 200);
    let raw = engine.request(0).await.head.raw.clone();
    assert_eq!(
        &raw[..],
        b"POST /v1/completions HTTP/1.1\r\nhost: t\r\nx-request-id: r\r\nx-latin: caf\xe9 \xff\r\nx-tab: a\tb\r\nx-empty: \r\ncontent-length: 2\r\n\r\n"
    );
}

#[tokio::test]
async fn what_lies_in_a_body_is_no_request() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    let inner = "POST /metrics HTTP/1.1\r\nhost: t\r\n\r\n";
    let ask = Ask::post("/v1/completions", inner);
    let mut client = Client::connect(proxy.addr).await;
    client.send(&[ask.bytes(), ask.bytes()].concat()).await;
    for number in 0..2 {
        assert_eq!(client.answer().await.status(), 200);
        assert_eq!(engine.request(number).await.body, inner);
    }
}

#[tokio::test]
async fn an_expectation_is_met_here_and_does_not_go_on() {
    let engine = engine();
    let proxy = Setup::one(&engine).start();
    let ask = Ask::chat().header("expect", "100-Continue");
    let mut client = Client::connect(proxy.addr).await;
    client.send(&ask.head_bytes()).await;
    assert_eq!(client.any_head().await.status(), 100);
    assert_eq!(engine.connections(), 0);
    let whole = ask.bytes();
    client.send(&whole[ask.head_bytes().len()..]).await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(engine.request(0).await.head.header("expect"), None);
}
