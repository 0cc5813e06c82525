//! A thousand paced streams at once: none fails, each takes little memory.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::support::child::Child;
use crate::support::client::{Ask, BodyEnd, Client};
use crate::support::proxy::{Setup, settled};
use crate::support::reply::{DONE, Reply, finish_event, ms, role_event, text_event};
use crate::support::upstream::{Script, Upstream};

/// The bar is 40 kB for the program as it is shipped; without optimisation its futures are larger.
const LIMIT_KB_PER_STREAM: u64 = if cfg!(debug_assertions) { 48 } else { 40 };
/// Two buffers at hyper's largest size beside that.
const LAGGING_KB_PER_STREAM: u64 = LIMIT_KB_PER_STREAM + 2 * 64;

fn body_bytes(events: u32) -> u64 {
    let fixed = role_event().len() + finish_event().len() + DONE.len();
    fixed as u64 + u64::from(events) * text_event("word").len() as u64
}

/// Runs the streams: none fails, and the memory that each takes at the peak is bounded.
async fn assert_carried(streams: u32, events: u32, gap: Duration) {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let reply = Reply::paced_chat(events, gap);
    let upstream: Upstream = Script::new(move |_| reply.clone()).forgetful().start();
    let child = Child::serve(&Setup::one(&upstream));
    // what is made once, however many streams there are, is made before
    let mut warm = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(child.addr).await;
        client.send(&Ask::chat().bytes()).await;
        client.head().await;
        warm.push(client);
    }
    drop(warm);
    settled(child.admin).await;
    child.forget_peak();
    let (before, cpu_before, begun) = (child.resident_kb(), child.cpu(), Instant::now());

    let mut clients = JoinSet::new();
    for _ in 0..streams {
        let addr = child.addr;
        clients.spawn(async move {
            let mut client = Client::connect(addr).await;
            client.send(&Ask::chat().bytes()).await;
            let head = client.head().await;
            let mut body = client.body(&head);
            let mut total = 0;
            while let Some(piece) = body.next().await {
                total += piece.bytes.len() as u64;
            }
            (head.status(), total, body.end())
        });
    }
    let mut failed = 0;
    while let Some(done) = clients.join_next().await {
        let whole = (200, body_bytes(events), Some(BodyEnd::Clean));
        failed += u32::from(done.unwrap() != whole);
    }
    assert_eq!(failed, 0, "of {streams} streams");
    settled(child.admin).await;
    let (took, cpu) = (begun.elapsed(), child.cpu() - cpu_before);
    let grown = child.peak_kb().saturating_sub(before);
    println!(
        "{streams} streams of {events} events, {gap:?} apart: 0 failed, {took:.1?}, {} kB a stream, {:.1?} CPU an event",
        grown / u64::from(streams),
        cpu / (streams * events),
    );
    let kb = grown / u64::from(streams);
    // where the machine lags behind the schedule, reads come in larger pieces and buffers grow
    let on_time = took < gap * (events + 1) + Duration::from_millis(500);
    let limit_kb = if on_time {
        LIMIT_KB_PER_STREAM
    } else {
        LAGGING_KB_PER_STREAM
    };
    assert!(kb <= limit_kb, "{kb} kB a stream, on time: {on_time}");
}

#[tokio::test]
async fn a_thousand_of_64_events() {
    assert_carried(1000, 64, ms(100)).await;
}

#[tokio::test]
async fn a_hundred_of_4096_events() {
    assert_carried(100, 4096, ms(8)).await;
}
