//! What each request costs once: reading its body, and counting and writing it down at its end.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use evenkeel::measure::clock::now_ns;
use evenkeel::measure::figures::Figures;
use evenkeel::measure::histograms::Registry;
use evenkeel::measure::outcome::Outcome;
use evenkeel::measure::record::Record;
use evenkeel::measure::summary::{Exchange, Stamps};
use evenkeel::proxy::skim::skim;
use evenkeel_policies::shape::Api;

use crate::allocations::print_per_step;
use crate::stream::measured;

const MS: u64 = 1_000_000;
const CHUNKS: u64 = 200;

/// A chat of some turns, `bytes` long in all.
fn body(bytes: usize) -> Vec<u8> {
    let turn = "The tide turns at six; mind the ballast, and the \\\"keel\\\" — it's even.\\n";
    let mut text =
        String::from("{\"model\":\"m\",\"stream\":true,\"max_tokens\":256,\"messages\":[");
    while text.len() < bytes.saturating_sub(64) {
        let room = (bytes - text.len()).min(2000);
        let content = turn.repeat((room / turn.len()).max(1));
        text.push_str(&format!("{{\"role\":\"user\",\"content\":\"{content}\"}},"));
    }
    text.pop();
    text.push_str("]}");
    text.into_bytes()
}

pub fn skimmer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("skimmer");
    for (name, bytes) in [("1 kB", 1000), ("16 kB", 16_000), ("1 MB", 1_000_000)] {
        let body = body(bytes);
        assert!(skim(Api::Chat, &body).is_json);
        print_per_step(&format!("skimmer/{name}"), 10, || {
            black_box(skim(Api::Chat, &body));
        });
        group.throughput(Throughput::BytesDecimal(body.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| skim(Api::Chat, &body)));
    }
    group.finish();
}

/// A request that ended well, with a chunk log if `logged`.
fn exchange(logged: bool) -> Exchange {
    let (answer, chunks) = measured(CHUNKS, logged);
    let stamps = Stamps {
        request_first_ns: Some(MS),
        request_last_ns: Some(2 * MS),
        arrive_ns: Some(3 * MS),
        chosen_ns: Some(4 * MS),
        connected_ns: Some(5 * MS),
        sent_ns: Some(6 * MS),
        head_ns: Some(10 * MS),
        end_ns: answer.last_output_ns,
        client_first_output_ns: answer.first_output_ns,
        client_end_ns: answer.last_output_ns,
        ..Stamps::default()
    };
    Exchange {
        request_id: "5b4a7a4e-44ac-4c46-bd74-8ac4b8c4f0bb".into(),
        pool: Some("chat".into()),
        instance: Some("gpu-1".into()),
        lane: Some("short".into()),
        policy: Some("lanes".into()),
        model: Some("meta-llama/Llama-3.1-8B".into()),
        path: "/v1/chat/completions".into(),
        api: Api::Chat,
        status: Some(200),
        outcome: Outcome::Ok,
        attempts: 1,
        stamp: "socket",
        stamps,
        answer: Some(answer),
        chunks,
        ..Exchange::default()
    }
}

pub fn ended(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ended request");
    group.throughput(Throughput::Elements(1));
    for logged in [false, true] {
        let exchange = exchange(logged);
        let with = if logged { " and 200 logged chunks" } else { "" };
        let recorder = Registry::new(1, 100).core(0);
        let mut count = || {
            let figures = Figures::of(&exchange);
            recorder.record(&exchange, &figures, 1);
        };
        let name = format!("histograms{with}");
        print_per_step(&name, 100, &mut count);
        group.bench_function(name, |bencher| bencher.iter(&mut count));
        let line = || serde_json::to_string(&Record::of(&exchange)).unwrap();
        let name = format!("record line{with}");
        print_per_step(&name, 100, || {
            black_box(line());
        });
        group.bench_function(name, |bencher| bencher.iter(line));
    }
    group.bench_function("one read of the clock", |bencher| bencher.iter(now_ns));
    group.finish();
}
