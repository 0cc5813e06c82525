//! A client that does not read stops the upstream; what is held for it is bounded; the time is told.

use std::time::{Duration, Instant};

use crate::support::child::Child;
use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{DONE, Reply, ms, text_event};
use crate::support::upstream::{Script, Upstream};

const MIB: u64 = 1 << 20;

fn flood(total: u64) -> Upstream {
    let mut event = text_event(&"x".repeat(4096 - 175)).into_bytes();
    event.resize(4096, b'\n');
    let count = u32::try_from(total / 4096).unwrap();
    Script::new(move |_| {
        Reply::sse()
            .chunks(ms(0), ms(0), count, &event)
            .chunk(ms(0), DONE.as_bytes())
            .last_chunk(ms(0))
    })
    .forgetful()
    .start()
}

/// Returns once the upstream's writes have stood still for a while, with how much it had written.
async fn standing_still(upstream: &Upstream) -> u64 {
    let mut last = (upstream.written_bytes(), Instant::now());
    while last.1.elapsed() < ms(300) {
        tokio::time::sleep(ms(20)).await;
        let now = upstream.written_bytes();
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    last.0
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_upstream() {
    let upstream = flood(64 * MIB);
    let child = Child::serve(&Setup::one(&upstream));
    let before = child.resident_kb();
    let mut client = Client::connect_narrow(child.addr, 16 * 1024).await;
    client.send(&Ask::chat().id("slow").bytes()).await;
    let head = client.head().await;
    let written = standing_still(&upstream).await;
    let grown_kb = child.peak_kb().saturating_sub(before);
    println!(
        "unread: the upstream wrote {} kB, the proxy grew by {grown_kb} kB",
        written / 1024
    );
    // what the kernel's socket buffers take is all that may be on its way
    assert!(written < 24 * MIB, "{written} bytes were taken");
    assert!(grown_kb < 4096, "{grown_kb} kB are held for one client");

    let mut body = client.body(&head);
    let mut total = 0;
    while let Some(piece) = body.next().await {
        total += piece.bytes.len() as u64;
    }
    let whole = 64 * MIB + DONE.len() as u64;
    assert_eq!((total, body.end()), (whole, Some(BodyEnd::Clean)));
    let deadline = Instant::now() + Duration::from_secs(10);
    let record = loop {
        if let Some(record) = child
            .records()
            .into_iter()
            .find(|r| r["request_id"] == "slow")
        {
            break record;
        }
        assert!(Instant::now() < deadline, "no record");
        tokio::time::sleep(ms(10)).await;
    };
    let blocked_ms = record["client_blocked_ms"].as_f64().unwrap();
    assert!(blocked_ms >= 250.0, "{record}");
    assert_eq!(record["outcome"], "ok");
}

#[tokio::test]
async fn a_client_that_leaves_while_blocked_frees_everything() {
    let upstream = flood(64 * MIB);
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect_narrow(proxy.addr, 16 * 1024).await;
    client.send(&Ask::chat().id("gone").bytes()).await;
    client.head().await;
    standing_still(&upstream).await;
    let left = Instant::now();
    client.abort();
    let closed = upstream.closed(0).await;
    assert!(closed.at.saturating_duration_since(left) < ms(100));
    proxy.settled().await;
    assert_eq!(proxy.record("gone").await["outcome"], "client_cancelled");
}

#[tokio::test]
async fn an_upstream_that_does_not_read_stops_the_client() {
    use crate::support::reply::End;
    let upstream = Script::new(|_| Reply::new())
        .on_head(|_| Some(Reply::new().then(End::HoldDeaf)))
        .start();
    let child = Child::serve(&Setup::one(&upstream).set("limits", "hold_bytes = 65536"));
    let before = child.resident_kb();
    let ask = Ask::post("/v1/chat/completions", vec![b' '; 100 * MIB as usize]);
    let bytes = ask.bytes();
    let mut client = Client::connect(child.addr).await;
    let sending = tokio::time::timeout(Duration::from_secs(1), client.send(&bytes)).await;
    assert!(
        sending.is_err(),
        "100 MiB were taken for an upstream that reads none"
    );
    let grown_kb = child.peak_kb().saturating_sub(before);
    println!("request to a deaf upstream: the proxy grew by {grown_kb} kB");
    assert!(grown_kb < 4096, "{grown_kb} kB are held");
}
