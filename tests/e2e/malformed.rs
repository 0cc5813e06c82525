//! Malformed and hostile requests: a clear refusal or the end of the connection, nothing reaches an instance, and a
//! well-formed request beside it is served.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::client::{Answer, Ask, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{Reply, gate, ms};
use crate::support::upstream::{Script, Upstream};

/// A status and an `error.code` that a client is told.
type Told = (u16, &'static str);

const MALFORMED: Told = (400, "request_malformed");
const BODY: Told = (400, "body_unreadable");
const CODING: Told = (501, "transfer_coding_not_supported");
const VERSION: Told = (505, "http_version_not_supported");
const UPGRADE: Told = (501, "upgrade_not_supported");
const CLOSED_PATH: Told = (404, "path_not_served");

/// A request for an inference path with these fields, and what follows its head.
fn post(fields: &str, rest: &str) -> Vec<u8> {
    format!("POST /v1/completions HTTP/1.1\r\nhost: t\r\n{fields}\r\n\r\n{rest}").into_bytes()
}

/// A chunked request with this on the wire for a body.
fn chunked(wire: &str) -> Vec<u8> {
    post("transfer-encoding: chunked", wire)
}

/// A request for this target, with a body that an engine would take.
fn to(method: &str, target: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\n{{}}").into_bytes()
}

/// A well-formed request that must never be answered: it lies in the body of the one before it.
const SMUGGLED: &str =
    "POST /v1/completions HTTP/1.1\r\nhost: t\r\nx-smuggled: 1\r\ncontent-length: 2\r\n\r\n{}";

fn framing() -> Vec<(&'static str, Vec<u8>, Told)> {
    let both = |first, second| {
        post(
            &format!("{first}\r\n{second}"),
            &format!("0\r\n\r\n{SMUGGLED}"),
        )
    };
    let (length, coding) = ("content-length: 5", "transfer-encoding: chunked");
    vec![
        ("length, then chunked", both(length, coding), MALFORMED),
        ("chunked, then length", both(coding, length), MALFORMED),
        ("two lengths", post("content-length: 2\r\ncontent-length: 3", "{}"), MALFORMED),
        ("one length twice", post("content-length: 2\r\ncontent-length: 2", "{}"), MALFORMED),
        ("a list of lengths", post("content-length: 2, 3", "{}"), MALFORMED),
        ("a signed length", post("content-length: +2", "{}"), MALFORMED),
        ("a negative length", post("content-length: -2", "{}"), MALFORMED),
        ("a hexadecimal length", post("content-length: 0x2", "{}"), MALFORMED),
        ("an empty length", post("content-length:", "{}"), MALFORMED),
        ("a length past 64 bits", post("content-length: 99999999999999999999", "{}"), MALFORMED),
        ("gzip", post("transfer-encoding: gzip", "0\r\n\r\n"), CODING),
        ("gzip, chunked", post("transfer-encoding: gzip, chunked", "0\r\n\r\n"), CODING),
        ("chunked, gzip", post("transfer-encoding: chunked, gzip", "0\r\n\r\n"), CODING),
        ("chunked twice", post("transfer-encoding: chunked, chunked", "0\r\n\r\n"), CODING),
        ("chunked in two lines", post("transfer-encoding: chunked\r\ntransfer-encoding: chunked", "0\r\n\r\n"), CODING),
        ("xchunked", post("transfer-encoding: xchunked", "0\r\n\r\n"), CODING),
        ("identity", post("transfer-encoding: identity", "0\r\n\r\n"), CODING),
        ("a coding behind a form feed", post("transfer-encoding: \x0cchunked", "0\r\n\r\n"), MALFORMED),
        ("a folded coding", post("transfer-encoding:\r\n chunked", "0\r\n\r\n"), CODING),
        ("a coding in HTTP/1.0", b"POST /v1/completions HTTP/1.0\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_vec(), MALFORMED),
    ]
}

fn chunks() -> Vec<(&'static str, Vec<u8>, Told)> {
    vec![
        ("no chunk size", chunked("\r\n{}\r\n0\r\n\r\n"), BODY),
        ("no hexadecimal size", chunked("g\r\n{}\r\n0\r\n\r\n"), BODY),
        ("0x before a size", chunked("0x2\r\n{}\r\n0\r\n\r\n"), BODY),
        ("a negative size", chunked("-2\r\n{}\r\n0\r\n\r\n"), BODY),
        ("a signed size", chunked("+2\r\n{}\r\n0\r\n\r\n"), BODY),
        (
            "a size past 64 bits",
            chunked("fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "white space before a size",
            chunked(" 2\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "a size's line ends in LF",
            chunked("2\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "data longer than its size",
            chunked("1\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        (
            "an LF in an extension",
            chunked("2;a\nb\r\n{}\r\n0\r\n\r\n"),
            BODY,
        ),
        ("data ends in LF", chunked("2\r\n{}\n0\r\n\r\n"), BODY),
        (
            "a request behind a broken size",
            chunked(&format!("x\r\n\r\n{SMUGGLED}")),
            BODY,
        ),
        (
            "a request as a trailer",
            chunked(&format!("0\r\n{SMUGGLED}")),
            BODY,
        ),
    ]
}

fn heads() -> Vec<(&'static str, Vec<u8>, Told)> {
    let raw = |text: &str| text.as_bytes().to_vec();
    vec![
        (
            "lines end in LF",
            raw("POST /v1/completions HTTP/1.1\nhost: t\ncontent-length: 2\n\n{}"),
            MALFORMED,
        ),
        (
            "one line ends in LF",
            post("x: y\ncontent-length: 2", "{}"),
            MALFORMED,
        ),
        (
            "a CR within a value",
            post("x: a\rtransfer-encoding: chunked", "{}"),
            MALFORMED,
        ),
        (
            "a folded value",
            post("x: a\r\n b\r\ncontent-length: 2", "{}"),
            MALFORMED,
        ),
        (
            "the first header is folded",
            raw("POST /v1/completions HTTP/1.1\r\n host: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "white space before a colon",
            post("content-length : 2", "{}"),
            MALFORMED,
        ),
        (
            "a tab before a colon",
            post("transfer-encoding\t: chunked", "0\r\n\r\n"),
            MALFORMED,
        ),
        ("no colon", post("content-length 2", "{}"), MALFORMED),
        ("no name", post(": 2", "{}"), MALFORMED),
        ("a NUL in a name", post("x\0y: 2", "{}"), MALFORMED),
        (
            "a control byte in a name",
            post("x\x08y: 2", "{}"),
            MALFORMED,
        ),
        (
            "a byte past ASCII in a name",
            post("caf\u{e9}: 2", "{}"),
            MALFORMED,
        ),
        ("a NUL in a value", post("x: a\0b", "{}"), MALFORMED),
        (
            "a control byte in a value",
            post("x: a\x1bb", "{}"),
            MALFORMED,
        ),
        ("DEL in a value", post("x: a\x7fb", "{}"), MALFORMED),
        (
            "no host",
            raw("POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}"),
            MALFORMED,
        ),
        ("two hosts", post("host: u", "{}"), MALFORMED),
        (
            "a host with a path",
            raw("GET /health HTTP/1.1\r\nhost: t/x\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a host with a user",
            raw("GET /health HTTP/1.1\r\nhost: u@t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a list of hosts",
            raw("GET /health HTTP/1.1\r\nhost: t, u\r\n\r\n"),
            MALFORMED,
        ),
        (
            "another host in the target",
            to("POST", "http://elsewhere/v1/completions"),
            MALFORMED,
        ),
        (
            "a target of another scheme",
            to("POST", "file:///v1/completions"),
            MALFORMED,
        ),
        (
            "a target without a slash",
            to("POST", "v1/completions"),
            MALFORMED,
        ),
        (
            "a space in the target",
            to("POST", "/v1/completions x"),
            MALFORMED,
        ),
        (
            "a control byte in the target",
            to("POST", "/v1/\x01completions"),
            MALFORMED,
        ),
        (
            "a byte past ASCII in the target",
            to("POST", "/v1/completions?\u{e9}"),
            MALFORMED,
        ),
        (
            "a fragment in the target",
            to("POST", "/v1/completions#x"),
            MALFORMED,
        ),
        (
            "two spaces",
            raw("POST  /v1/completions HTTP/1.1\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a tab for a space",
            raw("POST\t/v1/completions HTTP/1.1\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a method that is no token",
            to("PO(ST", "/v1/completions"),
            MALFORMED,
        ),
        (
            "an expectation unheard of",
            post("expect: 200-ok\r\ncontent-length: 2", "{}"),
            (417, "expectation_failed"),
        ),
        (
            "two expectations",
            post("expect: 100-continue, x\r\ncontent-length: 2", "{}"),
            (417, "expectation_failed"),
        ),
        ("HTTP/0.9", raw("GET /v1/models\r\n\r\n"), MALFORMED),
        (
            "HTTP/1.2",
            raw("GET /v1/models HTTP/1.2\r\nhost: t\r\n\r\n"),
            VERSION,
        ),
        (
            "HTTP/2.0 in HTTP/1.1's form",
            raw("GET /v1/models HTTP/2.0\r\nhost: t\r\n\r\n"),
            VERSION,
        ),
        (
            "HTTP/1.10",
            raw("GET /v1/models HTTP/1.10\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "http in small letters",
            raw("GET /v1/models http/1.1\r\nhost: t\r\n\r\n"),
            MALFORMED,
        ),
        (
            "another protocol",
            raw("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n"),
            MALFORMED,
        ),
        (
            "a request line without end",
            format!("GET /{}", "x".repeat(70_000)).into_bytes(),
            (414, "target_too_long"),
        ),
        (
            "a header without end",
            post(&format!("x: {}", "y".repeat(70_000)), ""),
            (431, "head_too_large"),
        ),
        (
            "headers without end",
            post(&"x: y\r\n".repeat(12_000), ""),
            (431, "head_too_large"),
        ),
        (
            "101 headers",
            post(&["x: y"; 100].join("\r\n"), ""),
            (431, "head_too_large"),
        ),
    ]
}

fn meanings() -> Vec<(&'static str, Vec<u8>, Told)> {
    let upgrade = |to: &str| {
        post(
            &format!(
                "connection: upgrade, http2-settings\r\nupgrade: {to}\r\nhttp2-settings: AAMAAABkAAQAAP__\r\ncontent-length: {}",
                SMUGGLED.len()
            ),
            SMUGGLED,
        )
    };
    let mut cases = vec![
        ("an upgrade to h2c", upgrade("h2c"), UPGRADE),
        ("an upgrade to websocket", upgrade("websocket"), UPGRADE),
        (
            "CONNECT to a host",
            b"CONNECT engine:8000 HTTP/1.1\r\nhost: engine:8000\r\n\r\n".to_vec(),
            (501, "connect_not_supported"),
        ),
        (
            "CONNECT to a path",
            to("CONNECT", "/v1/completions"),
            (501, "connect_not_supported"),
        ),
        (
            "TRACE",
            to("TRACE", "/v1/completions"),
            (405, "method_not_allowed"),
        ),
        (
            "DELETE of a path for POST",
            to("DELETE", "/v1/completions"),
            (405, "method_not_allowed"),
        ),
        (
            "a method in small letters",
            to("post", "/v1/completions"),
            (405, "method_not_allowed"),
        ),
        ("a star", to("OPTIONS", "*"), CLOSED_PATH),
    ];
    for target in [
        "/metrics",
        "/v1/load_lora_adapter",
        "/v1/../metrics",
        "/v1/completions/../../metrics",
        "/v1/./completions",
        "//v1/completions",
        "/v1//completions",
        "/v1/%2e%2e/metrics",
        "/v1/completions%2f..%2f..%2fmetrics",
        "/%76%31/completions",
        "/v1/completions%00",
        "/v1/completions;/../../metrics",
        "/v1\\..\\metrics",
        "/v1/responses/../load_lora_adapter",
        "/v1/responses/%2e%2e/cancel",
        "/V1/COMPLETIONS",
        "/sleep?/v1/completions",
        "http://t/metrics",
        "http://t//v1/completions",
    ] {
        cases.push((target, to("POST", target), CLOSED_PATH));
    }
    cases
}

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

async fn all_refused(cases: Vec<(&'static str, Vec<u8>, Told)>) {
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
