//! Random input: any split gives the same events, a template reads what the full parse reads,
//! garbage never panics, the chunk log gives back what went in, the filter changes nothing else.

use bytes::Bytes;
use evenkeel_policies::shape::Api;
use proptest::prelude::*;
use serde_json::json;

use super::wire;
use crate::measure::answer::Reader;
use crate::measure::chunk_log::{Chunk, ChunkKind, ChunkLog};
use crate::measure::meter::{Meter, MeterOptions};
use crate::measure::sse::{Item, Scanner};
use crate::measure::withhold::UsageFilter;

/// Events (name, data) and comments (`None`).
type Seen = Vec<Option<(Option<Vec<u8>>, Vec<u8>)>>;

fn scan<'a>(reads: impl Iterator<Item = &'a [u8]>, cap: usize) -> Seen {
    let mut seen = Seen::new();
    let mut scanner = Scanner::new(cap);
    let mut sink = |item: Item<'_>| {
        seen.push(match item {
            Item::Event { name, data, .. } => Some((name.map(<[u8]>::to_vec), data.to_vec())),
            Item::Comment => None,
        });
    };
    for read in reads {
        scanner.feed(read, &mut sink);
    }
    scanner.end(true, &mut sink);
    seen
}

/// Pieces that streams are made of, and things that look like them.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "data: ",
        "data:",
        "data",
        "event: x",
        "event",
        ": note",
        "id: 7",
        "retry: 3",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\r\n\r\n",
        "\r\r",
        "\u{feff}",
        "error: x",
        " ",
        ":",
        "{\"a\":1}",
        "[DONE]",
    ]);
    prop_oneof![
        6 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

fn split<'a>(bytes: &'a [u8], sizes: &'a [usize]) -> Vec<&'a [u8]> {
    let mut reads = Vec::new();
    let mut rest = bytes;
    for &size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (read, later) = rest.split_at(size.min(rest.len()));
        reads.push(read);
        rest = later;
    }
    reads
}

/// Strings that try to look like JSON around them.
fn nasty() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "\"",
        "\\",
        "\\\"",
        "\"},",
        "\"content\":\"",
        "\"finish_reason\":\"stop\"",
        "{",
        "}",
        "]",
        "a",
        "ø🌊",
        "\n",
        "\u{1}",
        "\"usage\":{",
        "null",
        "\"}}]}",
        "",
    ]);
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

fn chunk() -> impl Strategy<Value = String> {
    let field = prop::sample::select(vec!["content", "reasoning", "reasoning_content", "refusal"]);
    let finish = prop::option::weighted(0.1, Just("stop"));
    (field, nasty(), 0..3u32, finish, any::<bool>(), 0..2u64).prop_map(
        |(field, text, index, finish, usage, created)| {
            let mut value = json!({
                "id": "c-1", "created": 1_700_000_000 + created, "model": "m",
                "choices": [{"index": index, "delta": {field: text}, "finish_reason": finish}],
            });
            if usage && index == 2 {
                value["usage"] = json!({"prompt_tokens": 3, "completion_tokens": 4});
            }
            value.to_string()
        },
    )
}

/// All that a reader tells, by a stream of events; `fresh` knows no template at any event.
fn read_all(chunks: &[String], templates: bool) -> (Vec<Chunk>, u64) {
    let mut out = Vec::new();
    let mut reader = Reader::new(Api::Chat);
    let mut empty = 0;
    for (at, chunk) in chunks.iter().enumerate() {
        if !templates {
            reader = Reader::new(Api::Chat);
        }
        let before = reader.answer().empty_chunks;
        reader.event(None, chunk.as_bytes(), at as u64 + 1, &mut |mut chunk| {
            chunk.tokens = None;
            out.push(chunk);
        });
        empty += reader.answer().empty_chunks - before;
    }
    (out, empty)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_events(
        bytes in stream(),
        sizes in prop::collection::vec(1usize..20, 1..8),
    ) {
        for cap in [1 << 20, 16] {
            let whole = scan(std::iter::once(bytes.as_slice()), cap);
            let parts = scan(split(&bytes, &sizes).into_iter(), cap);
            prop_assert_eq!(&whole, &parts);
            let single = scan(bytes.chunks(1), cap);
            prop_assert_eq!(&whole, &single);
        }
    }

    #[test]
    fn a_template_reads_what_the_full_parse_reads(
        chunks in prop::collection::vec(chunk(), 1..30),
    ) {
        prop_assert_eq!(read_all(&chunks, true), read_all(&chunks, false));
    }

    #[test]
    fn garbage_never_panics(
        reads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20),
        tail in stream(),
        coding in prop::sample::select(vec!["", "gzip", "deflate", "br"]),
        kind in prop::sample::select(vec!["text/event-stream", "application/json", "x"]),
        api in prop::sample::select(vec![Api::Chat, Api::Responses, Api::Messages]),
        status in prop::sample::select(vec![200u16, 404, 500]),
    ) {
        let options = MeterOptions { scan_cap_bytes: 64, ..MeterOptions::default() };
        let kind = Some(kind.as_bytes());
        let mut meter = Meter::new(api, status, kind, Some(coding.as_bytes()), &options)
            .with_log(Some(ChunkLog::new(64)));
        for read in reads.iter().chain([&tail]) {
            meter.read(read, 7);
            meter.handed(3);
        }
        meter.end(true, 1);
        let _ = meter.finish().0.outcome();
    }

    #[test]
    fn the_log_gives_back_what_went_in(
        steps in prop::collection::vec(
            (0u64..5_000_000, 0u32..3, 0usize..3, prop::option::of(0u32..300),
             prop::option::of(0u64..100_000)),
            0..300,
        ),
    ) {
        let mut log = ChunkLog::new(1 << 20);
        let mut at_us = 1_000_000;
        let mut chunks = Vec::new();
        for (step_us, choice, kind, tokens, handed) in steps {
            at_us += step_us;
            let kind = [ChunkKind::Text, ChunkKind::Reasoning, ChunkKind::Tool][kind];
            let handed_ns = handed.map(|after| (at_us + after) * 1000);
            let chunk = Chunk { arrival_ns: at_us * 1000, choice, kind, tokens, handed_ns };
            log.push(chunk);
            chunks.push(chunk);
        }
        prop_assert_eq!(log.iter().collect::<Vec<_>>(), chunks);
        prop_assert!(!log.truncated());
    }

    #[test]
    fn the_filter_takes_out_the_usage_event_alone(
        sizes in prop::collection::vec(1usize..90, 1..8),
        ending in prop::sample::select(vec!["\n", "\r\n", "\r"]),
    ) {
        let file = wire::one("c28_usage_asked_by_proxy.sse");
        let text = String::from_utf8(file.bytes).unwrap();
        let blocks: Vec<String> = text.split_inclusive("\n\n").map(str::to_owned).collect();
        let bytes = format!(": hello\n{text}").replace('\n', ending);
        let rest: String =
            blocks.iter().enumerate().filter(|(at, _)| *at != 3).map(|(_, b)| b.as_str()).collect();
        let wanted = format!(": hello\n{rest}").replace('\n', ending);
        let mut filter = UsageFilter::new();
        let mut passed = Vec::new();
        for read in split(bytes.as_bytes(), &sizes) {
            passed.extend_from_slice(&filter.push(Bytes::copy_from_slice(read)));
        }
        passed.extend_from_slice(&filter.finish());
        prop_assert_eq!(String::from_utf8(passed).unwrap(), wanted);
        prop_assert_eq!(filter.withheld(), 1);
    }

    #[test]
    fn the_filter_passes_all_else(
        bytes in stream(),
        sizes in prop::collection::vec(1usize..20, 1..8),
    ) {
        let mut filter = UsageFilter::new();
        let mut passed = Vec::new();
        for read in split(&bytes, &sizes) {
            passed.extend_from_slice(&filter.push(Bytes::copy_from_slice(read)));
        }
        passed.extend_from_slice(&filter.finish());
        prop_assert_eq!(passed, bytes);
    }
}

#[test]
fn a_usual_chunk_takes_six_bytes_at_most() {
    let mut log = ChunkLog::new(1 << 20);
    for at in 0..1000u64 {
        let arrival_ns = 1_000_000_000 + at * 20_123_456;
        let handed_ns = Some(arrival_ns + 60_000);
        log.push(Chunk {
            arrival_ns,
            choice: 0,
            kind: ChunkKind::Text,
            tokens: Some(1),
            handed_ns,
        });
    }
    assert!(log.bytes() <= 6 * 1000, "{} bytes", log.bytes());
}

#[test]
fn a_log_past_its_cap_is_truncated() {
    let mut log = ChunkLog::new(20);
    for at in 1..100u64 {
        let arrival_ns = at * 20_000_000;
        log.push(Chunk {
            arrival_ns,
            choice: 0,
            kind: ChunkKind::Text,
            tokens: None,
            handed_ns: None,
        });
    }
    assert!(log.truncated());
    assert_eq!(log.iter().count() as u64, log.len());
    assert!(log.bytes() <= 20);
}
