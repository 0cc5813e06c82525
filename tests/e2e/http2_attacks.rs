//! What clients may do to us on HTTP/2: floods end their own connection, what is malformed reaches no instance, and the
//! others do not feel it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::client_h2::{ClientH2, whole};
use crate::support::frames::{
    BODY, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, POST,
    PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, fields, frame, request,
};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{DONE, End, Reply, ms};
use crate::support::upstream::{Script, Upstream};
use crate::support::within;

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
const SLACK: Duration = Duration::from_secs(5);

fn ok() -> Upstream {
    Script::new(|_| Reply::paced_chat(3, ms(1))).start()
}

async fn serves(proxy: &Proxy) {
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

/// The client's streams have odd numbers.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

#[tokio::test]
async fn the_settings_bound_what_a_client_may_open() {
    let upstream = Script::new(|_| Reply::new().then(End::Hold)).start();
    let proxy = Setup::one(&upstream).start();
    let mut frames = Frames::connect(proxy.addr).await;
    let settings = frames.next_of(&[SETTINGS]).await.unwrap().settings();
    let setting = |id| {
        settings
            .iter()
            .find(|(known, _)| *known == id)
            .map(|(_, value)| *value)
    };
    let most = setting(3).expect("a limit of streams");
    assert!((100..=1000).contains(&most), "{most} streams");
    assert_eq!(setting(6), Some(64 * 1024), "limits.head_bytes");
    for stream in streams(most + 1) {
        assert!(frames.send(&request(stream)).await);
    }
    let refused = frames.next_of(&[RST_STREAM]).await.unwrap();
    assert_eq!(
        (refused.stream, refused.error()),
        (2 * most + 1, Some(REFUSED_STREAM))
    );
    upstream.open(most as usize).await;
    drop(frames);
    proxy.settled().await;
}

/// One after the other until told to stop: the times of whole answers, in ms.
async fn normal_streams(addr: SocketAddr, mut stop: impl FnMut() -> bool) -> Vec<f64> {
    let mut took = Vec::new();
    while !stop() {
        let begun = Instant::now();
        let ask = Ask::chat().header("x-kind", "normal");
        let answer = Client::ask(addr, &ask).await;
        assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
        took.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    took
}

/// Streams that are reset as soon as they are sent: we end such a connection, and it comes again.
async fn reset_at_once(addr: SocketAddr, count: u32) -> (u32, u32) {
    let (mut sent, mut calmed) = (0, 0);
    while sent < count {
        let mut frames = Frames::connect(addr).await;
        for stream in streams(100) {
            if !frames
                .send(&[request(stream), reset(stream)].concat())
                .await
            {
                break;
            }
            sent += 1;
        }
        // its own goodbye, so that a connection that was borne with ends too
        frames.send(&frame(GOAWAY, 0, 0, &[0; 8])).await;
        calmed += u32::from(frames.goodbye().await == Some(ENHANCE_YOUR_CALM));
    }
    (sent, calmed)
}

/// Streams that are reset once they have reached an instance: each is a client that left.
async fn reset_when_served(addr: SocketAddr, upstream: &Upstream, count: u32) {
    const AT_ONCE: u32 = 100;
    let mut frames = Frames::connect(addr).await;
    let all: Vec<u32> = streams(count).collect();
    for some in all.chunks(AT_ONCE as usize) {
        for stream in some {
            assert!(frames.send(&request(*stream)).await);
        }
        upstream.open_at_least(some.len()).await;
        for stream in some {
            assert!(frames.send(&reset(*stream)).await);
        }
        upstream.open(0).await;
    }
}

/// CVE-2023-44487.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timing_ten_thousand_rapid_resets_cost_nobody() {
    let upstream = Script::new(|request| match request.head.header("x-kind") {
        Some(_) => Reply::paced_chat(10, ms(5)),
        None => Reply::new().then(End::Hold),
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let mut left = 40;
    let quiet = normal_streams(proxy.addr, || {
        left -= 1;
        left < 0
    })
    .await;
    let addr = proxy.addr;
    let attack = async {
        let (sent, calmed) = reset_at_once(addr, 8000).await;
        reset_when_served(addr, &upstream, 2000).await;
        (sent, calmed)
    };
    let over = std::sync::atomic::AtomicBool::new(false);
    let during = normal_streams(addr, || over.load(std::sync::atomic::Ordering::Relaxed));
    let attack = async {
        let figures = attack.await;
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        figures
    };
    let begun = Instant::now();
    let ((sent, calmed), during) = tokio::join!(attack, during);
    let median = |took: &[f64]| took[took.len() / 2];
    println!(
        "{} resets in {:?}, {calmed} connections calmed; streams of 50 ms: median {:.1} ms quiet, {:.1} ms beside ({} of them)",
        sent + 2000,
        begun.elapsed(),
        median(&quiet),
        median(&during),
        during.len(),
    );
    assert!(sent + 2000 >= 10_000 && calmed > 0);
    assert!(median(&during) < median(&quiet) * 2.0 + 50.0);
    proxy.settled().await;
    upstream.open(0).await;
    let metrics = proxy.admin_text("/metrics").await;
    assert!(
        metrics.contains("evenkeel_open_connections 0\n"),
        "{metrics}"
    );
    let records = proxy.records();
    let cancelled = records
        .iter()
        .filter(|one| one["outcome"] == "client_cancelled")
        .count();
    let fine = records.iter().filter(|one| one["outcome"] == "ok").count();
    assert_eq!(fine, quiet.len() + during.len());
    assert_eq!(cancelled + fine, records.len());
    assert!(cancelled >= 2000, "{cancelled} were served and left");
}

#[tokio::test]
async fn a_flood_of_continuations_ends_its_connection() {
    let upstream = ok();
    let proxy = Setup::one(&upstream).start();
    for piece in [&b""[..], &[0], &[0; 16_384]] {
        let mut frames = Frames::connect(proxy.addr).await;
        frames
            .send(&frame(HEADERS, END_STREAM, 1, &fields(&POST)))
            .await;
        let mut sent = 0;
        while sent < 10_000 && frames.send(&frame(CONTINUATION, 0, 1, piece)).await {
            sent += 1;
        }
        assert!(sent < 10_000, "{sent} were taken of {} bytes", piece.len());
    }
    serves(&proxy).await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_head_without_end_ends_with_its_connection() {
    let upstream = ok();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_header_s = 0.3\nclient_idle_s = 0.3")
        .start();
    let begun_head = frame(HEADERS, END_STREAM, 1, &fields(&POST));
    let beginnings = [
        PREFACE[..5].to_vec(),
        PREFACE.to_vec(),
        [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat(),
        [PREFACE, &frame(SETTINGS, 0, 0, &[]), &begun_head].concat(),
    ];
    for (number, bytes) in beginnings.iter().enumerate() {
        let mut frames = Frames::connect_silent(proxy.addr).await;
        let begun = Instant::now();
        frames.send(bytes).await;
        frames.goodbye().await;
        let took = begun.elapsed();
        assert!(took >= ms(250) && took < SLACK, "{number}: {took:?}");
    }
    serves(&proxy).await;
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn pings_of_a_client_that_reads_nothing_end_its_connection() {
    let upstream = ok();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_write_s = 0.3")
        .start();
    let mut frames = Frames::connect(proxy.addr).await;
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(1000);
    let flood = async {
        let mut sent = 0_u64;
        while frames.send(&pings).await {
            sent += 1000;
        }
        sent
    };
    let sent = tokio::time::timeout(Duration::from_secs(20), flood).await;
    println!("closed after {sent:?} pings");
    assert!(sent.is_ok(), "it goes on");
    serves(&proxy).await;
}

/// A head that must not reach an instance, or a sequence of frames that must not.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let with = |more: &[(&str, &str)]| {
        let all = [&POST[..], more].concat();
        frame(HEADERS, END_HEADERS, 1, &fields(&all))
    };
    let instead = |name: &str, value| {
        let mut all = POST;
        all.iter_mut()
            .filter(|(known, _)| *known == name)
            .for_each(|field| field.1 = value);
        frame(HEADERS, END_HEADERS, 1, &fields(&all))
    };
    let without = |name: &str| {
        let all: Vec<_> = POST
            .into_iter()
            .filter(|(known, _)| *known != name)
            .collect();
        frame(HEADERS, END_HEADERS, 1, &fields(&all))
    };
    vec![
        (
            "a transfer-encoding",
            with(&[("transfer-encoding", "chunked")]),
        ),
        ("a connection field", with(&[("connection", "close")])),
        ("a keep-alive field", with(&[("keep-alive", "1")])),
        ("an upgrade", with(&[("upgrade", "h2c")])),
        ("te other than trailers", with(&[("te", "chunked")])),
        ("a capital in a name", with(&[("X-a", "1")])),
        ("a space in a name", with(&[("x a", "1")])),
        ("a colon in a name", with(&[("x:a", "1")])),
        ("an empty name", with(&[("", "1")])),
        ("CR LF in a value", with(&[("x", "a\r\ncontent-length: 0")])),
        ("LF in a value", with(&[("x", "a\nb")])),
        ("NUL in a value", with(&[("x", "a\0b")])),
        ("two paths", with(&[(":path", "/health")])),
        (
            "a pseudo field after others",
            with(&[("x", "1"), (":status", "200")]),
        ),
        ("a pseudo field unheard of", with(&[(":x", "1")])),
        ("no method", without(":method")),
        ("no path", without(":path")),
        ("an empty path", instead(":path", "")),
        (
            "a path without slash",
            instead(":path", "v1/chat/completions"),
        ),
        (
            "a space in the path",
            instead(":path", "/v1/chat/completions HTTP/1.1"),
        ),
        (
            "CR LF in the path",
            instead(":path", "/v1/completions\r\nx: y"),
        ),
        ("another path", instead(":path", "/v1/../metrics")),
        (
            "a URL for a path",
            instead(":path", "http://u/v1/chat/completions"),
        ),
        ("a method that is no token", instead(":method", "PO ST")),
        ("CONNECT", instead(":method", "CONNECT")),
        ("an authority with a user", instead(":authority", "u@t")),
        ("CR LF in the authority", instead(":authority", "t\r\nx: y")),
        ("another host", with(&[("host", "u")])),
        ("two hosts", with(&[("host", "t"), ("host", "u")])),
        (
            "a length that is no number",
            with(&[("content-length", "x")]),
        ),
        ("a signed length", with(&[("content-length", "+79")])),
        (
            "two lengths",
            with(&[("content-length", "79"), ("content-length", "78")]),
        ),
        (
            "a length past the body",
            with(&[("content-length", "1000")]),
        ),
        (
            "a length short of the body",
            with(&[("content-length", "3")]),
        ),
    ]
}

/// How a malformed request may end, and whether its connection goes on. Anything else fails the test.
async fn refused(name: &str, frames: &mut Frames) -> bool {
    match frames.next_of(&[RST_STREAM, GOAWAY, HEADERS]).await {
        None => false,
        Some(end) if end.kind == GOAWAY => {
            frames.goodbye().await;
            false
        }
        Some(end) => {
            assert_eq!(end.stream, 1, "{name}: {end:?}");
            let told = end.status();
            let fits = end.kind == RST_STREAM
                || told.is_some_and(|status| (400..500).contains(&status) || status == 501);
            assert!(fits, "{name}: {told:?}, {end:?}");
            true
        }
    }
}

/// A well-formed request on the stream after the malformed one.
async fn sibling_is_served(name: &str, frames: &mut Frames) {
    assert!(frames.send(&request(3)).await, "{name}: no sibling taken");
    loop {
        let frame = frames.next_of(&[RST_STREAM, GOAWAY, HEADERS, DATA]).await;
        let frame = frame.unwrap_or_else(|| panic!("{name}: closed on a sibling"));
        if frame.stream == 1 {
            continue;
        }
        assert!(matches!(frame.kind, HEADERS | DATA), "{name}: {frame:?}");
        if frame.kind == HEADERS {
            assert_eq!(frame.status(), Some(200), "{name}: a sibling's head");
        }
        if frame.flags & END_STREAM != 0 {
            return;
        }
    }
}

#[tokio::test]
async fn malformed_heads_on_http2_reach_no_instance() {
    let upstream = ok();
    let proxy = Setup::one(&upstream).start();
    let (mut well_formed, mut went_on) = (0, 0);
    for (name, head) in malformed() {
        let mut frames = Frames::connect(proxy.addr).await;
        let body = frame(DATA, END_STREAM, 1, BODY.as_bytes());
        frames.send(&[head, body].concat()).await;
        let (goes_on, ()) = tokio::join!(refused(name, &mut frames), serves(&proxy));
        well_formed += 1;
        if goes_on {
            sibling_is_served(name, &mut frames).await;
            well_formed += 1;
            went_on += 1;
        }
        // an instance would have it by now: it is asked before the client is answered
        let reached = upstream.requests().len();
        assert_eq!(reached, well_formed, "{name}: it reached the instance");
    }
    println!("{went_on} of {} connections went on", malformed().len());
    // what is no more than a wrong field costs its stream, not its siblings
    assert!(went_on > 0);
}

/// The server itself is made to reset its streams (CVE-2025-8671): only so often.
#[tokio::test]
async fn resets_that_a_client_provokes_end_its_connection() {
    let upstream = Script::new(|_| Reply::new().then(End::Hold)).start();
    let proxy = Setup::one(&upstream).start();
    let mut frames = Frames::connect(proxy.addr).await;
    let mut provoked = 0;
    for stream in streams(5000) {
        // a window that grows by nothing is a fault of the stream
        let fault = frame(WINDOW_UPDATE, 0, stream, &[0; 4]);
        if !frames.send(&[request(stream), fault].concat()).await {
            break;
        }
        provoked += 1;
    }
    let said = frames.goodbye().await;
    println!("{provoked} resets provoked, then {said:?}");
    assert!(provoked < 5000);
    assert!(
        matches!(said, None | Some(ENHANCE_YOUR_CALM | PROTOCOL_ERROR)),
        "{said:?}"
    );
    proxy.settled().await;
    upstream.open(0).await;
}

#[tokio::test]
async fn an_upload_that_its_instance_does_not_read_stops_no_sibling() {
    let upstream = Script::new(|_| Reply::paced_chat(3, ms(1)))
        .on_head(|head| {
            let deaf = head.header("x-request-id") == Some("deaf");
            deaf.then(|| Reply::new().then(End::HoldDeaf))
        })
        .start();
    let proxy = Setup::one(&upstream)
        .set("limits", "hold_bytes = 65536")
        .start();
    let client = ClientH2::connect(proxy.addr, 65_535).await;
    let (uploader, huge) = (client.clone(), " ".repeat(64 << 20));
    let upload =
        tokio::spawn(async move { uploader.post("/v1/chat/completions", "deaf", &huge).await });
    upstream.head(0).await;
    // until all windows that it may fill are full
    tokio::time::sleep(ms(500)).await;
    let sibling = client.post("/v1/chat/completions", "sibling", BODY);
    let mut sibling = within("a sibling's head", ms(5000), sibling).await;
    let (body, error) = whole(sibling.body_mut()).await;
    assert!(error.is_none() && body.ends_with(DONE.as_bytes()));
    upload.abort();
    proxy.settled().await;
}
