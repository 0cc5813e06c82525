//! Every wire file through the proxy over real sockets: expected values in the record, the same
//! bytes at the client; whole on its schedule, and one byte a read.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::client::{Answer, Ask, BodyEnd, Client};
use crate::support::http1::{Head, find};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{Reply, ms};
use crate::support::upstream::{Script, Upstream};
use crate::wire_cases::Case;

/// What the case log allows on real sockets.
const TOLERANCE_MS: f64 = 5.0;

fn upstream_of(replies: HashMap<String, Reply>) -> Upstream {
    Script::new(move |request| replies[request.head.header("x-case").unwrap()].clone()).start()
}

/// The client's side: the bytes are the upstream's, and a cut is a cut.
fn wrong_at_client(case: &Case, answer: &Answer) -> Option<String> {
    let clean = answer.end == BodyEnd::Clean;
    let same = answer.body() == case.body();
    (!same || clean != case.is_clean()).then(|| {
        format!(
            "{}: the client got {} of {} bytes (the same: {same}), ended {:?}",
            case.name,
            answer.body().len(),
            case.body().len(),
            answer.end
        )
    })
}

async fn ask(addr: SocketAddr, ask: Ask, arrived: Option<watch::Sender<u64>>) -> Answer {
    let mut client = Client::connect(addr).await;
    if let Some(arrived) = arrived {
        client.tell_to(arrived);
    }
    client.send(&ask.bytes()).await;
    client.answer().await
}

/// How late the upstream's own writes were, at worst, in milliseconds.
async fn lateness_ms(case: &Case, upstream: &Upstream, id: &str) -> f64 {
    let requests = upstream.requests();
    let is_it = |head: &Head| head.header("x-request-id") == Some(id);
    let request = requests
        .iter()
        .find(|request| is_it(&request.head))
        .unwrap();
    // its last write may be noted after the client has it
    let written = upstream.answered(request.number).await.at;
    let due = case.due();
    let skipped = written.len() - due.len();
    let late = written[skipped..]
        .iter()
        .zip(due)
        .map(|(at, due)| (*at - request.at).saturating_sub(due).as_secs_f64() * 1e3);
    late.fold(0.0, f64::max)
}

fn report(what: &str, cases: usize, wrong: &[String]) {
    println!("{what}: {cases} wire files, {} values wrong", wrong.len());
    assert!(cases >= 30, "only {cases} wire files were found");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn without_the_proxy_every_wire_file_arrives_as_it_is() {
    let cases = Case::all();
    let mut wrong = Vec::new();
    let (mut replies, mut told) = (HashMap::new(), HashMap::new());
    for case in &cases {
        let (sender, arrived) = watch::channel(0);
        replies.insert(case.name.clone(), case.bytewise(&arrived));
        told.insert(case.name.clone(), sender);
    }
    let scheduled = upstream_of(
        cases
            .iter()
            .map(|c| (c.name.clone(), c.scheduled()))
            .collect(),
    );
    let bytewise = upstream_of(replies);
    let mut asks = JoinSet::new();
    for case in cases {
        let (whole, single) = (scheduled.addr, bytewise.addr);
        let told = told.remove(&case.name);
        asks.spawn(async move {
            let answers = [
                ask(whole, case.ask(&case.name), None).await,
                ask(single, case.ask(&case.name), told).await,
            ];
            (case, answers)
        });
    }
    let mut count = 0;
    while let Some(done) = asks.join_next().await {
        let (case, answers) = done.unwrap();
        count += 1;
        wrong.extend(
            answers
                .iter()
                .filter_map(|answer| wrong_at_client(&case, answer)),
        );
        let late = lateness_ms(&case, &scheduled, &case.name).await;
        if late > 20.0 {
            println!("{}: a write was {late:.1} ms late", case.name);
        }
    }
    report("without the proxy", count, &wrong);
}

/// Replays a case once: what is wrong for certain, and what is wrong in time.
async fn replay(proxy: &Proxy, upstream: &Upstream, case: &Case, id: &str) -> [Vec<String>; 2] {
    let answer = ask(proxy.addr, case.ask(id), None).await;
    let record = proxy.record(id).await;
    let mut wrong: Vec<_> = wrong_at_client(case, &answer).into_iter().collect();
    wrong.extend(case.wrong_in(&record, None));
    let tolerance = TOLERANCE_MS + lateness_ms(case, upstream, id).await;
    [wrong, case.wrong_in(&record, Some(tolerance))]
}

#[tokio::test]
async fn timing_every_wire_file_on_its_schedule() {
    let cases: Vec<_> = Case::all().into_iter().map(Arc::new).collect();
    let replies = cases
        .iter()
        .map(|case| (case.name.clone(), case.scheduled()));
    let upstream = Arc::new(upstream_of(replies.collect()));
    let proxy = Arc::new(Setup::one(&upstream).start());
    let mut replays = JoinSet::new();
    for (number, case) in cases.iter().cloned().enumerate() {
        let (proxy, upstream) = (proxy.clone(), upstream.clone());
        replays.spawn(async move {
            // not all in the same millisecond: they are to be measured, not to compete
            tokio::time::sleep(ms(10 * number as u64)).await;
            let id = format!("{}-0", case.name);
            (replay(&proxy, &upstream, &case, &id).await, case)
        });
    }
    let (mut wrong, mut late) = (Vec::new(), Vec::new());
    while let Some(done) = replays.join_next().await {
        let ([certain, in_time], case) = done.unwrap();
        if certain.is_empty() && !in_time.is_empty() {
            late.push(case);
        }
        wrong.extend(certain);
    }
    println!(
        "{} files are replayed on their own, to be sure of their times",
        late.len()
    );
    for case in late {
        // a busy machine is late once; a wrong rule is wrong every time
        let mut last = Vec::new();
        for attempt in 1..=4 {
            let id = format!("{}-{attempt}", case.name);
            let [certain, in_time] = replay(&proxy, &upstream, &case, &id).await;
            wrong.extend(certain);
            last = in_time;
            if last.is_empty() {
                break;
            }
        }
        wrong.extend(last);
    }
    report("on schedule", cases.len(), &wrong);
    proxy.settled().await;
}

async fn bytewise(cases: Vec<Arc<Case>>) -> (Proxy, Vec<String>) {
    let mut replies = HashMap::new();
    let mut told = HashMap::new();
    for case in &cases {
        let (sender, arrived) = watch::channel(0);
        replies.insert(case.name.clone(), case.bytewise(&arrived));
        told.insert(case.name.clone(), sender);
    }
    let upstream = upstream_of(replies);
    let proxy = Setup::one(&upstream).start();
    let mut asks = JoinSet::new();
    for case in cases {
        let (addr, arrived) = (proxy.addr, told.remove(&case.name));
        asks.spawn(async move { (ask(addr, case.ask(&case.name), arrived).await, case) });
    }
    let mut wrong = Vec::new();
    while let Some(done) = asks.join_next().await {
        let (answer, case) = done.unwrap();
        wrong.extend(wrong_at_client(&case, &answer));
        let record = proxy.record(&case.name).await;
        wrong.extend(case.wrong_in(&record, None));
    }
    (proxy, wrong)
}

#[tokio::test]
async fn every_wire_file_one_byte_a_read() {
    let cases: Vec<_> = Case::all().into_iter().map(Arc::new).collect();
    let count = cases.len();
    let (proxy, wrong) = bytewise(cases).await;
    report("one byte a read", count, &wrong);
    proxy.settled().await;
}

#[tokio::test]
async fn usage_that_the_proxy_asked_for_is_withheld_from_the_client() {
    let case = Case::named("c28_usage_asked_by_proxy.sse");
    let replies = HashMap::from([(case.name.clone(), case.scheduled())]);
    let upstream = upstream_of(replies);
    let proxy = Setup::one(&upstream)
        .set("measure", "usage = \"ask\"")
        .start();
    let answer = Client::ask(proxy.addr, &case.ask(&case.name)).await;
    let body = case.body();
    let usage_at = find(&body, b"\"usage\":{").unwrap();
    let begin = body[..usage_at]
        .windows(2)
        .rposition(|w| w == b"\n\n")
        .unwrap()
        + 2;
    let end = usage_at + find(&body[usage_at..], b"\n\n").unwrap() + 2;
    let expected = [&body[..begin], &body[end..]].concat();
    assert_eq!(answer.text(), String::from_utf8_lossy(&expected));
    assert_eq!(answer.end, BodyEnd::Clean);
    let record = proxy.record(&case.name).await;
    let wrong = case.wrong_in(&record, None);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn the_first_byte_of_a_long_line_does_not_wait_for_its_end() {
    let case = Case::named("c16_long_line.sse");
    let upstream = upstream_of(HashMap::from([(case.name.clone(), case.scheduled())]));
    let proxy = Setup::one(&upstream).start();
    let mut client = Client::connect(proxy.addr).await;
    client.send(&case.ask(&case.name).bytes()).await;
    let answer = client.answer().await;
    let request = upstream.request(0).await;
    let role = find(&case.body(), b"\n\n").unwrap() + 2;
    let mut bytes = 0;
    let first = answer.pieces.iter().find(|piece| {
        bytes += piece.bytes.len();
        bytes > role
    });
    let first = first.unwrap().at - request.at;
    // 100 ms by the schedule; the line ends at 140 ms
    assert!(first >= ms(100) && first < ms(130), "{first:?}");
    let record: Value = proxy.record(&case.name).await;
    assert!(
        record["server_ttft_ms"].as_f64().unwrap() >= 139.0,
        "{record}"
    );
}
