//! Cost of the scanner and of the meter on 250-byte events.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use evenkeel::measure::meter::{Meter, MeterOptions};
use evenkeel::measure::sse::Scanner;
use evenkeel_policies::shape::Api;

const EVENTS: u64 = 4096;

fn events() -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in 0..EVENTS {
        let text = [" the", " sea", " \\\"is\\\"", " wide"][at as usize % 4];
        let event = format!(
            "data: {{\"id\":\"chatcmpl-abca642d8f12c1400123456789abcdef\",\
             \"object\":\"chat.completion.chunk\",\"created\":1796189129,\
             \"model\":\"meta-llama/Llama-3.1-8B\",\"choices\":[{{\"index\":0,\"delta\":\
             {{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null,\
             \"token_ids\":null}}]}}\n\n"
        );
        bytes.extend_from_slice(event.as_bytes());
    }
    bytes
}

fn scanner(criterion: &mut Criterion) {
    let bytes = events();
    for read_bytes in [bytes.len() / EVENTS as usize, 8192] {
        let mut group = criterion.benchmark_group(format!("reads of {read_bytes} bytes"));
        group.throughput(Throughput::BytesDecimal(bytes.len() as u64));
        group.bench_function("scanner", |bencher| {
            let mut scanner = Scanner::new(4 << 20);
            bencher.iter(|| {
                let mut seen = 0;
                for read in bytes.chunks(read_bytes) {
                    scanner.feed(read, &mut |item| {
                        black_box(&item);
                        seen += 1;
                    });
                }
                assert!(seen >= EVENTS - 1);
            });
        });
        for keep_chunks in [false, true] {
            let options = MeterOptions {
                keep_chunks,
                ..MeterOptions::default()
            };
            let name = if keep_chunks {
                "meter and chunk log"
            } else {
                "meter"
            };
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let kind = Some(&b"text/event-stream"[..]);
                    let mut meter = Meter::new(Api::Chat, 200, kind, None, &options);
                    let mut at_ns = 1;
                    for read in bytes.chunks(read_bytes) {
                        at_ns += 20_000_000;
                        black_box(meter.read(read, at_ns));
                        meter.handed(at_ns + 50_000);
                    }
                    meter.end(true, at_ns);
                    let (answer, log) = meter.finish();
                    assert_eq!(answer.content_chunks, EVENTS);
                    black_box(log);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, scanner);
criterion_main!(benches);
