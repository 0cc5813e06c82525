//! The scanner and the meter on events of about 250 bytes.

use std::hint::black_box;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use evenkeel::measure::chunk_log::ChunkLog;
use evenkeel::measure::meter::{Meter, MeterOptions};
use evenkeel::measure::sse::Scanner;
use evenkeel::measure::summary::Answer;
use evenkeel_policies::shape::Api;

use crate::allocations::allocations;

const EVENTS: u64 = 4096;

fn events(count: u64) -> Vec<Vec<u8>> {
    let event = |at: u64| {
        let text = [" the", " sea", " \\\"is\\\"", " wide"][at as usize % 4];
        let event = format!(
            "data: {{\"id\":\"chatcmpl-abca642d8f12c1400123456789abcdef\",\
             \"object\":\"chat.completion.chunk\",\"created\":1796189129,\
             \"model\":\"meta-llama/Llama-3.1-8B\",\"choices\":[{{\"index\":0,\"delta\":\
             {{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null,\
             \"token_ids\":null}}]}}\n\n"
        );
        event.into_bytes()
    };
    (0..count).map(event).collect()
}

fn meter(keep_chunks: bool) -> Meter {
    let log = keep_chunks.then(|| ChunkLog::new(1 << 20));
    let kind = Some(&b"text/event-stream"[..]);
    Meter::new(Api::Chat, 200, kind, None, &MeterOptions::default()).with_log(log)
}

fn meter_name(keep_chunks: bool) -> &'static str {
    if keep_chunks {
        "meter and chunk log"
    } else {
        "meter"
    }
}

/// Feeds reads 20 ms apart, each handed on at once; gives the time of the last.
fn feed(meter: &mut Meter, reads: &[&[u8]], mut at_ns: u64) -> u64 {
    for read in reads {
        at_ns += 20_000_000;
        black_box(meter.read(read, at_ns));
        meter.handed(at_ns + 50_000);
    }
    at_ns
}

/// An answer of `count` chunks, measured.
pub fn measured(count: u64, keep_chunks: bool) -> (Answer, Option<ChunkLog>) {
    let events = events(count);
    let reads: Vec<_> = events.iter().map(Vec::as_slice).collect();
    let mut meter = meter(keep_chunks);
    let at_ns = feed(&mut meter, &reads, 6_000_000);
    meter.end(true, at_ns);
    meter.finish()
}

fn scan(scanner: &mut Scanner, reads: &[&[u8]]) -> u64 {
    let mut seen = 0;
    for read in reads {
        scanner.feed(read, &mut |item| {
            black_box(&item);
            seen += 1;
        });
    }
    seen
}

/// Allocations of an event once the first output chunk was found.
fn print_allocations(reads: &[&[u8]]) {
    let per_event = |count: u64| count as f64 / (EVENTS - 64) as f64;
    let (first, rest) = reads.split_at(reads.len() / 64);
    let mut scanner = Scanner::new(4 << 20);
    scan(&mut scanner, first);
    let count = allocations(|| {
        scan(&mut scanner, rest);
    });
    println!("scanner: {:.3} allocations an event", per_event(count));
    for keep_chunks in [false, true] {
        let mut meter = meter(keep_chunks);
        let at_ns = feed(&mut meter, first, 1);
        let count = allocations(|| {
            feed(&mut meter, rest, at_ns);
        });
        let name = meter_name(keep_chunks);
        println!("{name}: {:.3} allocations an event", per_event(count));
    }
}

fn bench_meter(group: &mut BenchmarkGroup<'_, WallTime>, reads: &[&[u8]]) {
    for keep_chunks in [false, true] {
        let name = meter_name(keep_chunks);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut meter = meter(keep_chunks);
                let at_ns = feed(&mut meter, reads, 1);
                meter.end(true, at_ns);
                let (answer, log) = meter.finish();
                assert_eq!(answer.content_chunks, EVENTS);
                black_box(log);
            });
        });
    }
}

pub fn benches(criterion: &mut Criterion) {
    let events = events(EVENTS);
    let bytes = events.concat();
    let cases: [(&str, Vec<&[u8]>); 4] = [
        (
            "an event a read",
            events.iter().map(Vec::as_slice).collect(),
        ),
        ("reads of 8 KiB", bytes.chunks(8192).collect()),
        ("reads of 252 bytes, drifting", bytes.chunks(252).collect()),
        ("reads of 1 byte", bytes.chunks(1).collect()),
    ];
    for (name, reads) in &cases {
        println!("{name}:");
        print_allocations(reads);
        let mut group = criterion.benchmark_group(*name);
        group.throughput(Throughput::ElementsAndBytes {
            elements: EVENTS,
            bytes: bytes.len() as u64,
        });
        group.bench_function("scanner", |bencher| {
            let mut scanner = Scanner::new(4 << 20);
            bencher.iter(|| assert!(scan(&mut scanner, reads) >= EVENTS - 1));
        });
        bench_meter(&mut group, reads);
        group.finish();
    }
}
