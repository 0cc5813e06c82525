//! Slow clients: who sends or takes too little in the time allowed loses the connection, in words where that is possible,
//! and costs nobody else anything.

use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::child::Child;
use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::client_h2::{ClientH2, next_piece, whole};
use crate::support::proxy::{Proxy, Setup, outstanding};
use crate::support::reply::{DONE, Reply, ms};
use crate::support::upstream::{Script, Upstream};

const MIB: usize = 1 << 20;
const LIMIT: Duration = Duration::from_millis(300);
/// A limit that fires late by this much on a busy machine is still the limit.
const SLACK: Duration = Duration::from_secs(5);

fn ok() -> Upstream {
    Script::new(|_| Reply::paced_chat(3, ms(1))).start()
}

/// Answers `unread` with more than any buffer holds, everything else with a short stream.
fn flood_if_unread() -> Upstream {
    Script::new(|request| match request.head.header("x-request-id") {
        Some("unread") => {
            let piece = vec![b'a'; 16 * 1024];
            Reply::sse()
                .chunks(ms(0), ms(0), (64 * MIB / (16 * 1024)) as u32, &piece)
                .last_chunk(ms(0))
        }
        _ => Reply::paced_chat(20, ms(20)),
    })
    .forgetful()
    .start()
}

async fn serves(proxy: &Proxy) {
    let answer = Client::ask(proxy.addr, &Ask::chat()).await;
    assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
}

fn in_time(begun: Instant, limit: Duration) {
    let took = begun.elapsed();
    assert!(took >= limit && took < limit + SLACK, "took {took:?}");
}

/// Sends `bytes` one by one, `every` so often, until the other side answers or closes.
async fn trickle(client: &mut Client, bytes: &[u8], every: Duration) {
    for byte in bytes.chunks(1) {
        if client.try_send(byte).await.is_err() || client.hears_within(every).await {
            return;
        }
    }
}

#[tokio::test]
async fn a_head_that_trickles_is_refused_in_words_and_reaches_nobody() {
    let upstream = ok();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_header_s = 0.3")
        .start();
    let mut client = Client::connect(proxy.addr).await;
    let begun = Instant::now();
    trickle(&mut client, &[b'P'; 5], ms(20)).await;
    trickle(
        &mut client,
        &b"OST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n".repeat(99),
        ms(20),
    )
    .await;
    in_time(begun, LIMIT);
    let answer = client.answer().await;
    assert_eq!(answer.status(), 408);
    assert_eq!(answer.error_code(), "client_header_timeout");
    let counted = "evenkeel_refused_heads_total{reason=\"client_header_timeout\"} 1\n";
    assert!(proxy.admin_text("/metrics").await.contains(counted));
    serves(&proxy).await;
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_a_word_and_one_with_an_open_answer_is_not() {
    let upstream = Script::new(|_| Reply::paced_chat(2, ms(900))).start();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_idle_s = 0.3")
        .start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().bytes()).await;
    // its answer takes three times the limit
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
    let begun = Instant::now();
    assert!(client.answer_if_any().await.is_none(), "a word to nobody");
    in_time(begun, LIMIT - ms(50));
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed_and_one_with_an_open_stream_is_not() {
    let upstream = Script::new(|_| Reply::paced_chat(2, ms(900))).start();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_idle_s = 0.3")
        .start();
    let client = ClientH2::connect(proxy.addr, 65_535).await;
    let mut answer = client.post("/v1/chat/completions", "h2", BODY).await;
    let (body, error) = whole(answer.body_mut()).await;
    assert!(error.is_none() && body.ends_with(DONE.as_bytes()));
    let begun = Instant::now();
    client.closed().await;
    in_time(begun, LIMIT - ms(50));
}

const BODY: &str =
    r#"{"model":"m-small","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

#[tokio::test]
async fn a_body_that_trickles_is_refused_whether_it_is_held_or_streamed() {
    for (id, hold, sent_first) in [("held", "8 MiB", 0), ("streamed", "64 KiB", 100_000)] {
        let upstream = ok();
        let proxy = Setup::one(&upstream)
            .set("limits", &format!("hold_bytes = \"{hold}\""))
            .set("timeouts", "client_body_s = 0.3")
            .start();
        let ask = Ask::post("/v1/chat/completions", vec![b' '; 200_000]).id(id);
        let mut client = Client::connect(proxy.addr).await;
        client.send(&ask.head_bytes()).await;
        client.send(&vec![b' '; sent_first]).await;
        let begun = Instant::now();
        trickle(&mut client, &[b' '; 1000], ms(20)).await;
        in_time(begun, LIMIT - ms(50));
        let answer = client.answer().await;
        assert_eq!(
            (answer.status(), answer.error_code().as_str()),
            (408, "client_body_timeout"),
            "{id}"
        );
        let record = proxy.record(id).await;
        assert_eq!(
            (&record["outcome"], &record["cause"]),
            (&"rejected".into(), &"client_body_timeout".into()),
            "{record}"
        );
        proxy.settled().await;
        if id == "streamed" {
            // its instance is not left with half a request
            upstream.closed(0).await;
        }
        serves(&proxy).await;
    }
}

#[tokio::test]
async fn a_slow_body_that_keeps_the_pace_is_served() {
    let upstream = ok();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_body_s = 0.3")
        .start();
    let body = format!("{BODY}{}", " ".repeat(160_000));
    let ask = Ask::post("/v1/chat/completions", body.clone()).id("slow");
    let mut client = Client::connect(proxy.addr).await;
    client.send(&ask.head_bytes()).await;
    let begun = Instant::now();
    for piece in body.as_bytes().chunks(20_000) {
        tokio::time::sleep(ms(100)).await;
        client.send(piece).await;
    }
    assert!(begun.elapsed() > LIMIT * 2, "else this shows nothing");
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(proxy.record("slow").await["outcome"], "ok");
}

#[tokio::test]
async fn the_wait_for_a_head_begins_with_the_last_byte_of_the_request() {
    let upstream = ok();
    let proxy = Setup::one(&upstream)
        .set("limits", "hold_bytes = \"64 KiB\"")
        .set("timeouts", "headers_s = 0.3")
        .start();
    let body = format!("{BODY}{}", " ".repeat(160_000));
    let ask = Ask::post("/v1/chat/completions", body.clone()).id("long");
    let mut client = Client::connect(proxy.addr).await;
    client.send(&ask.head_bytes()).await;
    for piece in body.as_bytes().chunks(40_000) {
        client.send(piece).await;
        tokio::time::sleep(ms(250)).await;
    }
    assert_eq!(client.answer().await.status(), 200);
    assert_eq!(proxy.record("long").await["outcome"], "ok");
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_and_its_instance_freed() {
    let upstream = flood_if_unread();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_write_s = 0.3")
        .start();
    let mut client = Client::connect_narrow(proxy.addr, 16 * 1024).await;
    client.send(&Ask::chat().id("unread").bytes()).await;
    let head = client.head().await;
    upstream.closed(0).await;
    let record = proxy.record("unread").await;
    assert_eq!(record["outcome"], "client_cancelled", "{record}");
    assert_eq!(record["cause"], "client_write_timeout", "{record}");
    assert!(
        record["client_blocked_ms"].as_f64().unwrap() >= 300.0,
        "{record}"
    );
    proxy.settled().await;
    // what it did not take is not kept for it in the kernel
    let mut body = client.body(&head);
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Reset));
    serves(&proxy).await;
}

#[tokio::test]
async fn a_client_that_takes_a_little_now_and_then_is_not_cut() {
    let upstream = flood_if_unread();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_write_s = 0.5")
        .start();
    let mut client = Client::connect_narrow(proxy.addr, 16 * 1024).await;
    client.send(&Ask::chat().id("unread").bytes()).await;
    let head = client.head().await;
    let mut body = client.body(&head);
    let begun = Instant::now();
    while begun.elapsed() < ms(1500) {
        let taken = body.next().await;
        assert!(taken.is_some(), "cut after {:?}", begun.elapsed());
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test]
async fn an_http2_stream_whose_client_takes_nothing_ends_and_its_siblings_go_on() {
    let upstream = flood_if_unread();
    let proxy = Setup::one(&upstream)
        .set("timeouts", "client_write_s = 0.3")
        .start();
    let client = ClientH2::connect(proxy.addr, 65_535).await;
    let mut unread = client.post("/v1/chat/completions", "unread", BODY).await;
    // lasts longer than the limit, at less than a window
    let mut sibling = client.post("/v1/chat/completions", "sibling", BODY).await;
    let (body, error) = whole(sibling.body_mut()).await;
    assert!(error.is_none() && body.ends_with(DONE.as_bytes()));
    let record = proxy.record("unread").await;
    assert_eq!(record["outcome"], "client_cancelled", "{record}");
    assert_eq!(record["cause"], "client_write_timeout", "{record}");
    proxy.settled().await;
    // what had been sent is there, and then the reset
    let error = loop {
        match next_piece(unread.body_mut()).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break error,
            None => panic!("an answer that was not whole ended clean"),
        }
    };
    println!("the stream ended with: {error:?}");
}

#[tokio::test]
async fn declared_lengths_take_no_room_from_others() {
    let upstream = ok();
    let proxy = Setup::one(&upstream)
        .set(
            "limits",
            "buffered_bytes = \"16 MiB\"\nbuffered_wait_s = 0.2",
        )
        .start();
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let mut client = Client::connect(proxy.addr).await;
        let ask = Ask::post("/v1/chat/completions", vec![b' '; 8 * MIB]);
        client.send(&ask.head_bytes()).await;
        waiting.push(client);
    }
    serves(&proxy).await;
}

/// Client TTFT and the time of the whole answer of `count` paced streams, in ms: median and P99 of each.
async fn normal_streams(addr: SocketAddr, count: usize) -> [f64; 4] {
    let mut streams = tokio::task::JoinSet::new();
    for _ in 0..count {
        streams.spawn(async move {
            let begun = Instant::now();
            let answer = Client::ask(addr, &Ask::chat()).await;
            assert_eq!((answer.status(), answer.end), (200, BodyEnd::Clean));
            let first = answer.pieces[0].at.duration_since(begun);
            [first, answer.end_at.duration_since(begun)].map(|time| time.as_secs_f64() * 1e3)
        });
        // spread over the time of one answer, as users are
        tokio::time::sleep(ms(2)).await;
    }
    let all = streams.join_all().await;
    let quantile = |figure: usize, at: f64| {
        let mut values: Vec<f64> = all.iter().map(|one| one[figure]).collect();
        values.sort_by(f64::total_cmp);
        values[((values.len() - 1) as f64 * at) as usize]
    };
    [
        quantile(0, 0.5),
        quantile(0, 0.99),
        quantile(1, 0.5),
        quantile(1, 0.99),
    ]
}

/// A connection that is slow in a way of its own.
enum Slow {
    /// within a request's head
    Head(Client),
    /// within its body
    Body(Client),
    /// in taking the answer
    Reader(Client),
}

impl Slow {
    async fn start(way: usize, addr: SocketAddr) -> Slow {
        match way % 5 {
            0 | 1 => {
                let mut client = Client::connect(addr).await;
                let begun = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx-slow: ";
                client.send(begun).await;
                Slow::Head(client)
            }
            2 | 3 => {
                let mut client = Client::connect(addr).await;
                let ask = Ask::post("/v1/chat/completions", vec![b' '; MIB]);
                client.send(&ask.head_bytes()).await;
                Slow::Body(client)
            }
            _ => {
                let mut client = Client::connect_narrowest(addr).await;
                client.send(&Ask::chat().id("unread").bytes()).await;
                client.readable().await;
                Slow::Reader(client)
            }
        }
    }

    /// Sends a byte, or takes one.
    async fn creep(&mut self) {
        match self {
            Slow::Head(client) => client.send(b"x").await,
            Slow::Body(client) => client.send(b" ").await,
            Slow::Reader(client) => assert!(client.drop_a_byte(), "nothing waits to be read"),
        }
    }
}

/// 2,000 connections that say nothing and 2,000 that send or take a byte now and then, beside 200 normal streams.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timing_idle_and_slow_connections_cost_the_others_nothing() {
    const EACH: usize = 2000;
    const READERS: u64 = EACH as u64 / 5;
    const STREAMS: usize = 200;
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let upstream = Script::new(|request| match request.head.header("x-request-id") {
        // more than the kernel keeps for a reader that is narrow
        Some("unread") => Reply::sse().chunks(ms(0), ms(0), 16, &[b'a'; 16 * 1024]),
        _ => Reply::paced_chat(20, ms(20)),
    })
    .forgetful()
    .start();
    let child = Child::serve(&Setup::one(&upstream));
    let quiet = normal_streams(child.addr, STREAMS).await;
    let mut idle = Vec::new();
    let mut slow = Vec::new();
    for way in 0..EACH {
        idle.push(Client::connect(child.addr).await);
        slow.push(Slow::start(way, child.addr).await);
    }
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let creeping = tokio::spawn(async move {
        let mut bytes = 0_usize;
        while !*stopped.borrow_and_update() {
            for client in &mut slow {
                client.creep().await;
                bytes += 1;
                if bytes.is_multiple_of(20) {
                    tokio::time::sleep(ms(10)).await;
                }
            }
        }
        (slow, bytes)
    });
    let beside = normal_streams(child.addr, STREAMS).await;
    stop.send_replace(true);
    let (slow, bytes) = creeping.await.unwrap();
    let metrics = Client::ask(child.admin, &Ask::get("/metrics")).await.text();
    let open = metrics
        .lines()
        .find_map(|line| line.strip_prefix("evenkeel_open_connections "));
    let open: usize = open.unwrap().parse().unwrap();
    println!(
        "[TTFT P50, P99, E2E P50, P99] ms: quiet {quiet:.1?}, beside {EACH} idle and {EACH} slow connections {beside:.1?}; \
         {bytes} single bytes sent or taken; {open} connections open"
    );
    assert!(open >= 2 * EACH, "all of them were held");
    let work = outstanding(child.admin).await;
    assert_eq!(work["p/i0"].requests, READERS, "answers wait for readers");
    // the constants are a busy machine's; what thousands of connections cost, were it felt, would be more
    assert!(beside[0] < quiet[0] * 2.0 + 50.0, "median TTFT");
    assert!(beside[1] < quiet[1] * 3.0 + 150.0, "P99 of TTFT");
    // 20 chunks 20 ms apart: what the others cost would be on top of these 400 ms
    assert!(beside[2] < quiet[2] * 1.25 && beside[3] < quiet[3] * 1.5 + 100.0);
    drop((idle, slow));
}

#[tokio::test]
async fn connections_past_what_descriptors_allow_are_refused_in_words() {
    let upstream = ok();
    let child = Child::serve_with(&Setup::one(&upstream), |command, _| {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 90; exec \"$0\" \"$@\""]);
        limited.arg(command.get_program()).args(command.get_args());
        *command = limited;
    });
    // 90 descriptors less 64 for other things, two a stream
    const MOST: usize = 13;
    let mut held = Vec::new();
    for _ in 0..MOST {
        let mut client = Client::connect(child.addr).await;
        client.send(&Ask::chat().bytes()).await;
        assert_eq!(client.answer().await.status(), 200);
        held.push(client);
    }
    for _ in 0..100 {
        let answer = Client::connect(child.addr).await.answer().await;
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.error_code(), "too_many_connections");
    }
    let metrics = Client::ask(child.admin, &Ask::get("/metrics")).await.text();
    assert!(metrics.contains("evenkeel_refused_connections_total 100\n"));
    drop(held);
    let begun = Instant::now();
    while Client::ask(child.addr, &Ask::chat()).await.status() != 200 {
        assert!(
            begun.elapsed() < SLACK,
            "room that was given back is not there"
        );
    }
}
