//! Long lines, compressed bombs, large bodies: memory stays bounded and nothing fails.

use std::io::Write;

use evenkeel_policies::shape::Api;

use crate::measure::answer::body::Body;
use crate::measure::gzip::Decoder;
use crate::measure::meter::{Meter, MeterOptions};
use crate::measure::outcome::Outcome;
use crate::measure::sse::Scanner;

fn stream() -> Meter {
    Meter::new(
        Api::Chat,
        200,
        Some(b"text/event-stream"),
        None,
        &MeterOptions::default(),
    )
}

fn long_event(letters: usize) -> Vec<u8> {
    let text = "a".repeat(letters);
    let chunk = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\
         \"finish_reason\":null}}]}}\n\n"
    );
    chunk.into_bytes()
}

#[test]
fn two_mebibytes_in_one_line_are_measured() {
    for size in [1, 16 * 1024] {
        let mut meter = stream();
        let started = std::time::Instant::now();
        for (at, read) in long_event(2 << 20).chunks(size).enumerate() {
            meter.read(read, at as u64 + 1);
        }
        assert!(
            started.elapsed().as_secs() < 30,
            "not linear at {size} bytes a read"
        );
        meter.read(b"data: [DONE]\n\n", 9_000_000);
        meter.end(true, 9_000_001);
        let (answer, _) = meter.finish();
        assert_eq!((answer.content_chunks, answer.unmeasured), (1, false));
        assert!(answer.complete);
    }
}

#[test]
fn a_line_without_end_stays_under_the_cap() {
    let cap = 4 << 20;
    let mut scanner = Scanner::new(cap);
    let read = vec![b'x'; 64 * 1024];
    let mut most = 0;
    let mut seen = 0;
    scanner.feed(b"data: ", &mut |_| seen += 1);
    for _ in 0..1024 {
        scanner.feed(&read, &mut |_| seen += 1);
        most = most.max(scanner.held_bytes());
    }
    assert!(scanner.unmeasured());
    assert!(most <= cap + (1 << 20), "{most} bytes held");
    scanner.feed(b"\n\ndata: next\n\n", &mut |_| seen += 1);
    assert_eq!(seen, 1, "the event after the long one is read again");
}

#[test]
fn a_stream_past_the_cap_is_unmeasured_and_does_not_fail() {
    let mut meter = stream();
    let read = vec![b'x'; 1 << 20];
    meter.read(b"data: ", 1);
    for at in 0..8 {
        meter.read(&read, at + 2);
    }
    meter.end(true, 20);
    let (answer, _) = meter.finish();
    assert!(answer.unmeasured);
    assert_eq!(answer.outcome(), Outcome::Ok);
}

#[test]
fn a_bomb_is_given_up_in_small_steps() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..256 {
        packed.write_all(&vec![b'a'; 1 << 20]).unwrap();
    }
    let packed = packed.finish().unwrap();
    let mut largest = 0;
    let mut decoder = Decoder::gzip();
    let result = decoder.feed(&packed, &mut |plain| largest = largest.max(plain.len()));
    assert!(result.is_err());
    assert!(largest <= 64 * 1024, "{largest} bytes in one step");
}

#[test]
fn deflate_is_read_with_and_without_a_header() {
    let event = long_event(10);
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&event).unwrap();
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    raw.write_all(&event).unwrap();
    for packed in [zlib.finish().unwrap(), raw.finish().unwrap()] {
        let kind = Some(&b"text/event-stream"[..]);
        let coding = Some(&b"deflate"[..]);
        let mut meter = Meter::new(Api::Chat, 200, kind, coding, &MeterOptions::default());
        for read in packed.chunks(3) {
            meter.read(read, 5);
        }
        meter.end(true, 9);
        assert_eq!(meter.finish().0.content_chunks, 1);
    }
}

#[test]
fn usage_is_read_from_the_end_of_a_large_body() {
    let mut body = Body::default();
    body.push(b"{\"data\":[");
    for _ in 0..40_000 {
        body.push(b"0.0123456789,-0.0123456789,0.0123456789,");
    }
    body.push(b"0],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":12}}");
    let answer = body.read(Api::Embeddings);
    assert_eq!(answer.usage.prompt_tokens, Some(12));
    assert_eq!(answer.usage.output_tokens, None);
}

#[test]
fn an_unknown_coding_is_unmeasured() {
    let kind = Some(&b"text/event-stream"[..]);
    let mut meter = Meter::new(Api::Chat, 200, kind, Some(b"br"), &MeterOptions::default());
    meter.read(&long_event(4), 3);
    meter.end(true, 4);
    let (answer, _) = meter.finish();
    assert!(answer.unmeasured);
    assert_eq!((answer.content_chunks, answer.outcome()), (0, Outcome::Ok));
}
