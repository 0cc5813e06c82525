//! C27, C28: request bodies go on byte for byte, however big; usage is asked for only where told.

use bytes::Bytes;

use crate::support::client::{Ask, Client};
use crate::support::http1::find;
use crate::support::proxy::Setup;
use crate::support::reply::{DONE, Reply, finish_event, ms, role_event, text_event};
use crate::support::upstream::Script;

/// A body whose every 8 bytes differ, so that nothing can be lost or swapped unseen.
fn big_body(bytes: usize) -> Bytes {
    let mut body = Vec::with_capacity(bytes);
    for i in 0..(bytes as u64).div_ceil(8) {
        body.extend_from_slice(&i.to_be_bytes());
    }
    body.truncate(bytes);
    body.into()
}

#[tokio::test]
async fn bodies_go_on_byte_for_byte() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    let bodies: [&[u8]; 6] = [
        br#"{"model":"m", "seed":12345678901234567890123,"temperature":1.0000000000000001, "messages":[]}"#,
        br#"{ "stream" : true ,"model":"a","model":"m","prompt":"\u00e9 \ud83c\udf0a"}"#,
        b"\xef\xbb\xbf{\"model\":\"m\"}",
        b"not json at all \xff\xfe\x00",
        b"{\"model\":\"m\"",
        b"",
    ];
    for (number, body) in bodies.iter().enumerate() {
        let ask = Ask::post("/v1/chat/completions", body.to_vec());
        let answer = Client::ask(proxy.addr, &ask).await;
        assert_eq!(answer.status(), 200, "body {number}: {}", answer.text());
        let request = upstream.request(number).await;
        assert_eq!(&request.body[..], *body, "body {number}");
        let length = body.len().to_string();
        assert_eq!(request.head.header("content-length"), Some(&length[..]));
    }
}

#[tokio::test]
async fn a_chunked_body_arrives_whole() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    let ask = Ask::post("/v1/completions", "")
        .without_length()
        .header("transfer-encoding", "chunked");
    client.send(&ask.head_bytes()).await;
    client
        .send_bytewise(b"9\r\n{\"model\":\r\n4\r\n\"m\"}\r\n0\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(&upstream.request(0).await.body[..], b"{\"model\":\"m\"}");
}

#[tokio::test]
async fn a_hundred_megabytes_arrive_whole() {
    let body = big_body(100_000_000);
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    let ask = Ask::post("/v1/chat/completions", body.clone()).id("big");
    let answer = Client::ask(proxy.addr, &ask).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert!(upstream.request(0).await.body == body, "bytes were changed");
    proxy.settled().await;
}

#[tokio::test]
async fn a_hundred_megabytes_after_100_continue_arrive_whole() {
    let body = big_body(100_000_000);
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    let ask = Ask::post("/v1/chat/completions", body.clone()).header("expect", "100-continue");
    let mut client = Client::connect(proxy.addr).await;
    client.send(&ask.head_bytes()).await;
    assert_eq!(client.any_head().await.status(), 100);
    client.send(&body).await;
    assert_eq!(client.answer().await.status(), 200);
    assert!(upstream.request(0).await.body == body, "bytes were changed");
}

#[tokio::test]
async fn over_the_limit_is_a_413_in_json() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream)
        .set("limits", "hold_bytes = 100000")
        .set("limits", "body_bytes = 100000")
        .start();
    let ask = Ask::post("/v1/chat/completions", vec![b' '; 100_001]).id("over");
    let mut client = Client::connect(proxy.addr).await;
    client.send(&ask.head_bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 413);
    assert_eq!(answer.head.header("content-type"), Some("application/json"));
    assert!(answer.json()["error"]["code"].is_string());
    let record = proxy.record("over").await;
    assert_eq!(record["outcome"], "rejected", "{record}");

    // the same, where only the bytes themselves tell
    let ask = Ask::post("/v1/chat/completions", "")
        .without_length()
        .header("transfer-encoding", "chunked");
    let mut client = Client::connect(proxy.addr).await;
    client.send(&ask.head_bytes()).await;
    let chunk = crate::support::http1::chunk(&vec![b' '; 60_000]);
    client.send(&chunk).await;
    client.send(&chunk).await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 413);
    let exact = Ask::post("/v1/chat/completions", vec![b' '; 100_000]);
    assert_eq!(Client::ask(proxy.addr, &exact).await.status(), 200);
}

#[tokio::test]
async fn a_413_reaches_a_client_that_is_still_sending() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream)
        .set("limits", "hold_bytes = 100000")
        .set("limits", "body_bytes = 100000")
        .start();
    let ask = Ask::post("/v1/chat/completions", vec![b' '; 1_000_000]);
    for _ in 0..20 {
        let answer = Client::ask(proxy.addr, &ask).await;
        assert_eq!(answer.status(), 413);
    }
}

/// The bytes that `changed` has and `original` has not; all else must be the same.
fn inserted<'a>(original: &[u8], changed: &'a [u8]) -> &'a [u8] {
    let same = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let front = same(original, changed);
    let (rest, changed_rest) = (&original[front..], &changed[front..]);
    let reversed = |bytes: &[u8]| bytes.iter().rev().copied().collect::<Vec<_>>();
    let back = same(&reversed(rest), &reversed(changed_rest));
    assert_eq!(
        front + back,
        original.len(),
        "bytes were taken away or changed"
    );
    &changed_rest[..changed_rest.len() - back]
}

fn usage_event() -> &'static str {
    "data: {\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m-small\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}\n\n"
}

/// A stream with a usage event if the request asks for one.
fn with_usage_if_asked(request: &crate::support::upstream::Request) -> Reply {
    let asked = find(&request.body, b"\"include_usage\":true").is_some();
    let mut reply = Reply::sse()
        .chunk(ms(0), role_event().as_bytes())
        .chunk(ms(1), text_event("a").as_bytes())
        .chunk(ms(2), text_event("b").as_bytes())
        .chunk(ms(3), finish_event().as_bytes());
    if asked {
        reply = reply.chunk(ms(4), usage_event().as_bytes());
    }
    reply.chunk(ms(5), DONE.as_bytes()).last_chunk(ms(5))
}

#[tokio::test]
async fn usage_is_asked_for_and_withheld_from_who_did_not_ask() {
    let upstream = Script::new(with_usage_if_asked).start();
    let proxy = Setup::one(&upstream)
        .set("measure", "usage = \"ask\"")
        .start();
    let plain = format!(
        "{}{}{}{}{DONE}",
        role_event(),
        text_event("a"),
        text_event("b"),
        finish_event()
    );
    let unasked: [&str; 4] = [
        r#"{"model":"m","seed":12345678901234567890, "stream":true,"messages":[{"role":"user","content":"hi"}]}"#,
        r#"{"model":"m","messages":[],"stream":true,"stream_options":null}"#,
        r#"{"model":"m","stream_options":{},"messages":[],"stream":true}"#,
        r#"{"model":"m","stream_options":{"other":1},"messages":[],"stream":true}"#,
    ];
    for (number, body) in unasked.iter().enumerate() {
        let id = format!("unasked-{number}");
        let answer = Client::ask(
            proxy.addr,
            &Ask::post("/v1/chat/completions", *body).id(&id),
        )
        .await;
        assert_eq!(answer.text(), plain, "{body}");
        let sent = upstream.request(number).await;
        let json: serde_json::Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(json["stream_options"]["include_usage"], true, "{json}");
        if number != 1 {
            inserted(body.as_bytes(), &sent.body);
        }
        if number == 3 {
            assert_eq!(json["stream_options"]["other"], 1);
        }
        let record = proxy.record(&id).await;
        assert_eq!(record["output_tokens"], 2, "{record}");
        assert_eq!(record["prompt_tokens"], 5);
    }
}

#[tokio::test]
async fn who_asked_for_usage_gets_it_and_who_does_not_stream_is_left_alone() {
    let upstream = Script::new(with_usage_if_asked).start();
    let proxy = Setup::one(&upstream)
        .set("measure", "usage = \"ask\"")
        .start();
    let asked =
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
    let answer = Client::ask(proxy.addr, &Ask::post("/v1/chat/completions", asked)).await;
    assert!(answer.text().contains(usage_event()));
    assert_eq!(upstream.request(0).await.body, asked);
    for body in [
        r#"{"model":"m","messages":[]}"#,
        r#"{"model":"m","stream":false,"messages":[]}"#,
    ] {
        Client::ask(proxy.addr, &Ask::post("/v1/chat/completions", body)).await;
        let last = upstream.requests().pop().unwrap();
        assert_eq!(last.body, body);
    }
}

#[tokio::test]
async fn as_asked_changes_nothing() {
    let upstream = Script::new(with_usage_if_asked).start();
    let proxy = Setup::one(&upstream).start();
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    let ask = Ask::post("/v1/chat/completions", body).id("plain");
    let answer = Client::ask(proxy.addr, &ask).await;
    assert!(answer.text().ends_with(DONE));
    assert_eq!(upstream.request(0).await.body, body);
    let record = proxy.record("plain").await;
    assert!(record["output_tokens"].is_null(), "{record}");
    assert_eq!(record["content_chunks"], 2);
}
