//! C29: what has come is written on at once, on both sides.

use std::time::{Duration, Instant};

use crate::support::client::{Answer, Ask, Client};
use crate::support::proxy::Setup;
use crate::support::reply::{Reply, ms};
use crate::support::upstream::{Script, Upstream};

/// 247 bytes.
fn event() -> Vec<u8> {
    let mut event = br#"data: {"choices":[{"index":0,"delta":{"content":""#.to_vec();
    event.resize(247 - 7, b'x');
    event.extend_from_slice(b"\"}}]}\n\n");
    assert_eq!(event.len(), 247);
    event
}

fn paced(count: u32, every: Duration) -> Upstream {
    let event = event();
    Script::new(move |_| {
        Reply::sse()
            .chunks(every, every, count, &event)
            .last_chunk(every * (count + 1))
    })
    .start()
}

/// From each event's being written by the upstream to its being read by the client, sorted.
async fn added(upstream: &Upstream, answer: &Answer) -> Vec<Duration> {
    let written = upstream.answered(0).await;
    let events = &written.at[1..written.at.len() - 1];
    let mut ends = Vec::new();
    let mut bytes = 0;
    for piece in &answer.pieces {
        let before = bytes / 247;
        bytes += piece.bytes.len();
        ends.extend(std::iter::repeat_n(piece.at, bytes / 247 - before));
    }
    assert_eq!(ends.len(), events.len());
    let mut added: Vec<_> = ends
        .iter()
        .zip(events)
        .map(|(read, written)| read.saturating_duration_since(*written))
        .collect();
    added.sort_unstable();
    added
}

#[tokio::test]
async fn timing_one_event_a_read_at_25_ms() {
    let upstream = paced(40, ms(25));
    let proxy = Setup::one(&upstream).start();
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    let lengths: Vec<_> = answer
        .pieces
        .iter()
        .map(|piece| piece.bytes.len())
        .collect();
    assert_eq!(lengths, [247; 40], "events were joined or split");
    let added = added(&upstream, &answer).await;
    println!("added at 25 ms: p50 {:?}, worst {:?}", added[20], added[39]);
    assert!(added[20] < ms(1), "p50 {:?}", added[20]);
}

#[tokio::test]
async fn timing_small_writes_5_ms_apart_do_not_wait_for_acknowledgements() {
    // Nagle's rule would hold every second of them back until the one before is acknowledged: 40 ms
    let upstream = paced(200, ms(5));
    let proxy = Setup::one(&upstream).start();
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    let added = added(&upstream, &answer).await;
    println!("added at 5 ms: p50 {:?}, p99 {:?}", added[100], added[197]);
    assert!(added[100] < ms(1), "p50 {:?}", added[100]);
    assert!(added[197] < ms(20), "p99 {:?}", added[197]);
}

#[tokio::test]
async fn timing_pieces_of_a_streamed_request_do_not_wait_either() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream)
        .set("limits", "hold_bytes = 65536")
        .start();
    let ask = Ask::post("/v1/chat/completions", vec![b' '; 70_000 + 100 * 50]);
    let bytes = ask.bytes();
    let (first, rest) = bytes.split_at(bytes.len() - 100 * 50);
    let mut took = Vec::new();
    let mut client = Client::connect(proxy.addr).await;
    client.send(first).await;
    let (connection, _) = upstream.head(0).await;
    for (i, piece) in rest.chunks(100).enumerate() {
        let sent = Instant::now();
        client.send(piece).await;
        while upstream.body_bytes(connection) < 70_000 + 100 * (i as u64 + 1) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        took.push(sent.elapsed());
        tokio::time::sleep(ms(3)).await;
    }
    assert_eq!(client.answer().await.status(), 200);
    took.sort_unstable();
    println!(
        "a piece of a request: p50 {:?}, worst {:?}",
        took[25], took[49]
    );
    assert!(took[25] < ms(10), "p50 {:?}", took[25]);
}

#[tokio::test]
async fn timing_both_ttfts_agree_with_the_client() {
    let upstream = paced(3, ms(50));
    let proxy = Setup::one(&upstream).start();
    let mut differences = Vec::new();
    for i in 0..20 {
        let id = format!("r{i}");
        let begun = Instant::now();
        let mut client = Client::connect(proxy.addr).await;
        client.send(&Ask::chat().id(&id).bytes()).await;
        let answer = client.answer().await;
        let own_ms = (answer.pieces[0].at - begun).as_secs_f64() * 1e3;
        let record = proxy.record(&id).await;
        let client_ms = record["client_ttft_ms"].as_f64().unwrap();
        let server_ms = record["server_ttft_ms"].as_f64().unwrap();
        assert!(server_ms <= client_ms, "{record}");
        differences.push((own_ms - client_ms).abs());
    }
    differences.sort_unstable_by(f64::total_cmp);
    println!("recorded against own TTFT: median {} ms", differences[10]);
    assert!(differences[10] < 2.0, "median {} ms", differences[10]);
}
