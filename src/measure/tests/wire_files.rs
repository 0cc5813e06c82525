//! Every wire file on a virtual clock: the sidecar's values, by segments and one byte a read.

use evenkeel_policies::shape::Api;
use serde_json::Value;

use super::wire::{self, WireFile};
use crate::measure::answer::figures::{chunk_gaps_ms, client_gaps_ms, itl_ms};
use crate::measure::chunk_log::ChunkLog;
use crate::measure::meter::{Meter, MeterOptions};
use crate::measure::sse::{Item, Scanner};
use crate::measure::summary::Answer;

/// Virtual time of the end of the request.
const START_NS: u64 = 1_000_000_000;

fn at(ms: u64) -> u64 {
    START_NS + ms * 1_000_000
}

pub fn api(name: &str) -> Api {
    match name {
        "chat" => Api::Chat,
        "completions" => Api::Completions,
        "responses" => Api::Responses,
        "messages" => Api::Messages,
        other => panic!("api {other}"),
    }
}

/// A response as the proxy sees it: head fields, body reads with their time, a clean end or not.
struct Received {
    status: u16,
    content_type: Option<String>,
    content_encoding: Option<String>,
    reads: Vec<(u64, Vec<u8>)>,
    clean: bool,
}

fn received(file: &WireFile) -> Received {
    if file.kind == "http-response" {
        return received_http(file);
    }
    Received {
        status: file.status,
        content_type: file.content_type.clone(),
        content_encoding: file.content_encoding.clone(),
        reads: file
            .segments()
            .iter()
            .map(|(ms, bytes)| (*ms, bytes.to_vec()))
            .collect(),
        clean: true,
    }
}

/// Takes the framing off; `http-response` files are small, so byte by byte.
fn received_http(file: &WireFile) -> Received {
    let head_end = memchr::memmem::find(&file.bytes, b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(file.bytes[..head_end].to_vec())
        .unwrap()
        .to_lowercase();
    let field = |name: &str| {
        let line = head
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))?;
        Some(line.split_once(':').unwrap().1.trim().to_owned())
    };
    let mut body: Vec<std::ops::Range<usize>> = Vec::new();
    let mut clean = false;
    if let Some(length) = field("content-length") {
        let end = head_end + length.parse::<usize>().unwrap();
        clean = end <= file.bytes.len();
        body.push(head_end..end.min(file.bytes.len()));
    } else {
        let mut offset = head_end;
        while let Some(line) = memchr::memmem::find(&file.bytes[offset..], b"\r\n") {
            let size = std::str::from_utf8(&file.bytes[offset..offset + line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            let start = offset + line + 2;
            clean = size == 0;
            if clean {
                break;
            }
            body.push(start..(start + size).min(file.bytes.len()));
            offset = (start + size + 2).min(file.bytes.len());
        }
    }
    let mut start = 0;
    let mut reads = Vec::new();
    for (&ms, &end) in file.segment_ms.iter().zip(&file.segment_end) {
        let bytes: Vec<u8> = (start..end)
            .filter(|offset| body.iter().any(|range| range.contains(offset)))
            .map(|offset| file.bytes[offset])
            .collect();
        start = end;
        reads.push((ms, bytes));
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Received {
        status,
        content_type: field("content-type"),
        content_encoding: field("content-encoding"),
        reads,
        clean,
    }
}

fn run(file: &WireFile, received: &Received, bytewise: bool) -> (Answer, ChunkLog) {
    let mut meter = Meter::new(
        api(&file.api),
        received.status,
        received.content_type.as_deref().map(str::as_bytes),
        received.content_encoding.as_deref().map(str::as_bytes),
        &MeterOptions::default(),
    )
    .with_log(Some(ChunkLog::new(1 << 20)));
    let mut chunks = 0;
    for (ms, bytes) in &received.reads {
        let size = if bytewise { 1 } else { bytes.len().max(1) };
        for read in bytes.chunks(size) {
            chunks += u64::from(meter.read(read, at(*ms)).output_chunks);
            meter.handed(at(*ms) + 250_000);
        }
    }
    meter.end(received.clean, at(*file.segment_ms.last().unwrap()));
    assert_eq!(chunks, meter.output_chunks(), "{}: progress", file.name);
    let (answer, log) = meter.finish();
    (answer, log.unwrap_or_default())
}

/// Compares what was found with the sidecar, both as JSON; `None` must be absent there too.
fn same(file: &WireFile, table: &toml::Table, key: &str, found: Option<Value>) {
    let wanted = table
        .get(key)
        .map(|value| serde_json::to_value(value).unwrap());
    let number = |value: &Value| value.as_f64();
    let equal = match (&wanted, &found) {
        (Some(wanted), Some(found)) => match (number(wanted), number(found)) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            _ => lists_equal(wanted, found),
        },
        (None, None) => true,
        _ => false,
    };
    assert!(
        equal,
        "{}: {key}: wanted {wanted:?}, found {found:?}",
        file.name
    );
}

fn lists_equal(wanted: &Value, found: &Value) -> bool {
    let floats = |value: &Value| -> Option<Vec<f64>> {
        value.as_array()?.iter().map(Value::as_f64).collect()
    };
    match (floats(wanted), floats(found)) {
        (Some(a), Some(b)) => {
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9)
        }
        _ => wanted == found,
    }
}

fn same_if_named(file: &WireFile, table: &toml::Table, key: &str, found: Option<Value>) {
    if table.contains_key(key) {
        same(file, table, key, found);
    }
}

fn check_values(file: &WireFile, answer: &Answer, log: &ChunkLog) {
    let expect = &file.expect;
    let failed = answer.outcome().is_failed();
    let outcome = if failed { "failed" } else { "ok" };
    same(file, expect, "outcome", Some(outcome.into()));
    same_if_named(file, expect, "error", Some(answer.error.is_some().into()));
    let code = answer.error.as_ref().and_then(|error| error.code);
    same(file, expect, "error_code", code.map(Value::from));
    same(file, expect, "complete", Some(answer.complete.into()));
    same(
        file,
        expect,
        "transport_clean",
        Some(answer.transport_clean.into()),
    );
    same_if_named(file, expect, "done_marker", Some(answer.done_marker.into()));
    same_if_named(file, expect, "streamed", Some(answer.streamed.into()));
    let finish: Vec<&str> = answer
        .choices
        .iter()
        .map(|choice| choice.finish.as_deref().unwrap_or(""))
        .collect();
    same_if_named(file, expect, "finish", Some(finish.into()));
    same(
        file,
        expect,
        "prompt_tokens",
        answer.usage.prompt_tokens.map(Value::from),
    );
    same(
        file,
        expect,
        "output_tokens",
        answer.usage.output_tokens.map(Value::from),
    );
    same_if_named(
        file,
        expect,
        "cached_tokens",
        answer.usage.cached_tokens.map(Value::from),
    );
    if !answer.streamed {
        assert_eq!(
            (answer.events, answer.first_output_ns),
            (0, None),
            "{}",
            file.name
        );
        return;
    }
    same(file, expect, "events", Some(answer.events.into()));
    same(file, expect, "comments", Some(answer.comments.into()));
    same(
        file,
        expect,
        "content_chunks",
        Some(answer.content_chunks.into()),
    );
    same(
        file,
        expect,
        "first_output_event",
        answer.first_output_event.map(Value::from),
    );
    same(
        file,
        expect,
        "last_output_event",
        answer.last_output_event.map(Value::from),
    );
    same_if_named(
        file,
        expect,
        "first_answer_event",
        answer.first_answer_event.map(Value::from),
    );
    let chunks: Vec<u32> = answer.choices.iter().map(|choice| choice.chunks).collect();
    same_if_named(file, expect, "choice_chunks", Some(chunks.into()));
    let tokens: Option<Vec<u32>> = log.iter().map(|chunk| chunk.tokens).collect();
    same(
        file,
        expect,
        "tokens_per_chunk",
        tokens.filter(|list| !list.is_empty()).map(Value::from),
    );
}

fn check_times(file: &WireFile, answer: &Answer, log: &ChunkLog) {
    let timing = &file.timing;
    if !timing.contains_key("end_ms") {
        return;
    }
    let relative = |ns: Option<u64>| ns.map(|ns| Value::from((ns - START_NS) as f64 / 1e6));
    same(
        file,
        timing,
        "ttft_ms",
        answer.ttft_ms(START_NS).map(Value::from),
    );
    let reasoned = answer.first_answer_event != answer.first_output_event;
    if timing.contains_key("ttft_answer_ms") || reasoned {
        same(
            file,
            timing,
            "ttft_answer_ms",
            answer.ttft_answer_ms(START_NS).map(Value::from),
        );
    }
    same(file, timing, "tpot_ms", answer.tpot_ms().map(Value::from));
    same(
        file,
        timing,
        "last_output_ms",
        relative(answer.last_output_ns),
    );
    same(file, timing, "itl_ms", itl_ms(log).map(Value::from));
    assert_eq!(
        answer.itl_known(),
        timing.contains_key("itl_ms"),
        "{}",
        file.name
    );
    same_if_named(
        file,
        timing,
        "chunk_gap_ms",
        Some(chunk_gaps_ms(log, 0).into()),
    );
    for choice in 0..2 {
        let key = format!("choice_gap_ms_{choice}");
        same_if_named(file, timing, &key, Some(chunk_gaps_ms(log, choice).into()));
        // Handed over at a constant delay, the client's gaps are the same.
        assert_eq!(
            chunk_gaps_ms(log, choice),
            client_gaps_ms(log, choice),
            "{}",
            file.name
        );
    }
    let first: Vec<Value> = answer
        .choices
        .iter()
        .filter_map(|choice| relative(choice.first_ns))
        .collect();
    same_if_named(file, timing, "choice_ttft_ms", Some(first.into()));
    assert_eq!(answer.gap_shift(), None, "{}", file.name);
}

/// The text by a parse of its own, so that the events' bytes are known to be whole.
fn check_text(file: &WireFile, received: &Received) {
    if received.content_encoding.is_some() || file.api == "responses" || file.api == "messages" {
        return;
    }
    let mut scanner = Scanner::new(4 << 20);
    let (mut text, mut reasoning) = (String::new(), String::new());
    let mut sink = |item: Item<'_>| {
        let Item::Event { data, .. } = item else {
            return;
        };
        let Ok(json) = serde_json::from_slice::<Value>(data) else {
            return;
        };
        let choice = &json["choices"][0];
        let delta = &choice["delta"];
        text += choice["text"]
            .as_str()
            .or(delta["content"].as_str())
            .unwrap_or("");
        let spelt = delta["reasoning_content"]
            .as_str()
            .or(delta["reasoning"].as_str());
        reasoning += spelt.unwrap_or("");
    };
    for (_, bytes) in &received.reads {
        scanner.feed(bytes, &mut sink);
    }
    scanner.end(received.clean, &mut sink);
    let length = text.chars().count();
    if received.content_type.as_deref() == Some("text/event-stream") {
        same_if_named(file, &file.expect, "text", Some(text.into()));
        same_if_named(file, &file.expect, "reasoning_text", Some(reasoning.into()));
        same_if_named(file, &file.expect, "text_len", Some(length.into()));
    }
}

#[test]
fn every_wire_file_gives_its_values() {
    let mut checked = 0;
    for file in wire::all()
        .iter()
        .filter(|file| file.kind != "http-request-body")
    {
        let received = received(file);
        let (answer, log) = run(file, &received, false);
        check_values(file, &answer, &log);
        check_times(file, &answer, &log);
        check_text(file, &received);
        let (answer, log) = run(file, &received, true);
        check_values(file, &answer, &log);
        checked += 1;
    }
    println!("wire files checked: {checked}");
    assert!(checked >= 44, "only {checked} wire files");
}
