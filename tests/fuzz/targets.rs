//! What must hold for any bytes: each function takes some and panics where it does not.
//!
//! `tests/fuzz/run` feeds them what a fuzzer finds; `tests/e2e/fuzz_targets.rs` the corpus and cuts of it.

use std::io::BufReader;

use bytes::BytesMut;
use evenkeel::load::replay::Replay;
use evenkeel::load::traces::servegen::{Draw, RateWindows};
use evenkeel::load::traces::{self, NAMED_ROWS, TOKENS_MAX, Trace, TraceFile, UnusedRows};
use evenkeel::measure::meter::{Meter, MeterOptions};
use evenkeel::measure::sse::{Item, Scanner};
use evenkeel::proxy::framing::Framing;
use evenkeel::proxy::request_head::RequestHead;
use evenkeel::proxy::{response_head, skim};
use evenkeel_policies::shape::Api;

/// Bytes of an unfinished event that the scanner may hold.
const CAP_BYTES: usize = 4096;
const HEAD_BYTES_MAX: usize = 8192;
const APIS: [Api; 5] = [
    Api::Chat,
    Api::Completions,
    Api::Responses,
    Api::Messages,
    Api::Embeddings,
];

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const ALL: [Target; 7] = [
    ("scanner", scanner),
    ("meter", meter),
    ("skim", skimmer),
    ("config", config),
    ("request_head", request_head),
    ("response", response),
    ("traces", traces),
];

/// The first byte says how the rest is cut into reads.
fn cut(input: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = input.split_first()?;
    Some((usize::from(*first).max(1), rest))
}

/// However the bytes are cut, the scanner finds the same, and holds no more than it may.
pub fn scanner(input: &[u8]) {
    let Some((step, bytes)) = cut(input) else {
        return;
    };
    let whole = scanned([bytes]);
    assert_eq!(whole, scanned(bytes.chunks(step)), "cut every {step} bytes");
    assert_eq!(whole, scanned(bytes.chunks(1)), "byte by byte");
}

type Found = (Vec<(Option<Vec<u8>>, Vec<u8>)>, usize, bool);

fn scanned<'a>(reads: impl IntoIterator<Item = &'a [u8]>) -> Found {
    let mut scanner = Scanner::new(CAP_BYTES);
    let (mut events, mut comments) = (Vec::new(), 0);
    let mut sink = |item: Item<'_>| match item {
        Item::Event { name, data, .. } => events.push((name.map(<[u8]>::to_vec), data.to_vec())),
        Item::Comment => comments += 1,
    };
    for read in reads {
        scanner.feed(read, &mut sink);
        // a buffer grows by doubling, past its cap for a moment at most
        assert!(
            scanner.held_bytes() <= 3 * CAP_BYTES,
            "{}",
            scanner.held_bytes()
        );
    }
    scanner.end(true, &mut sink);
    let unmeasured = scanner.unmeasured();
    (events, comments, unmeasured)
}

/// The figures of an answer depend on its bytes, not on how they were cut.
pub fn meter(input: &[u8]) {
    let Some((step, bytes)) = cut(input) else {
        return;
    };
    for api in APIS {
        let whole = metered(api, [bytes]);
        assert_eq!(
            whole,
            metered(api, bytes.chunks(step)),
            "{api:?}, every {step} bytes"
        );
    }
}

fn metered<'a>(api: Api, reads: impl IntoIterator<Item = &'a [u8]>) -> String {
    let options = MeterOptions {
        scan_cap_bytes: CAP_BYTES,
        enabled: true,
    };
    let mut meter = Meter::new(api, 200, Some(b"text/event-stream"), None, &options);
    for read in reads {
        // all at one moment: only what was found is compared, not when
        meter.read(read, 1);
    }
    meter.end(true, 1);
    let answer = meter.answer();
    format!(
        "{:?} {:?} {:?} {:?} events {} {} {} {} {} {:?} {:?}",
        answer.outcome(),
        answer.usage,
        answer.error,
        answer.choices,
        answer.events,
        answer.comments,
        answer.content_chunks,
        answer.empty_chunks,
        answer.unread_events,
        answer.first_output_event,
        answer.last_output_event,
    )
}

/// Any body is read without harm, and what JSON names as its model is what is found.
pub fn skimmer(input: &[u8]) {
    for api in APIS {
        let found = skim::skim(api, input);
        let _ = skim::skim_prefix(api, input, Some(input.len() as u64 * 2));
        if let Some(range) = &found.stream_options {
            assert!(input.get(range.clone()).is_some(), "{range:?} lies outside");
        }
        let Ok(serde_json::Value::Object(body)) = serde_json::from_slice(input) else {
            continue;
        };
        assert!(found.is_json, "JSON was not read to its end");
        if let Some(serde_json::Value::String(model)) = body.get("model")
            && model.len() <= skim::MODEL_BYTES_MAX
        {
            assert_eq!(found.model.as_deref(), Some(model.as_str()));
        }
    }
}

/// A configuration is read or refused in words that name the file.
pub fn config(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Err(error) = evenkeel::config::parse(text, "fuzzed.toml") {
        assert!(error.to_string().contains("fuzzed.toml"), "{error}");
    }
}

/// A head is judged alike however it comes; one that passes is read alike by the parser behind, to the byte.
pub fn request_head(input: &[u8]) {
    let whole = RequestHead::default().judge(input, HEAD_BYTES_MAX);
    let mut head = RequestHead::default();
    let bytewise = (1..=input.len())
        .map(|end| head.judge(&input[..end], HEAD_BYTES_MAX))
        .find(|judged| !matches!(judged, Ok(None)))
        .unwrap_or(Ok(None));
    match (whole, bytewise) {
        (Ok(Some((length, framing))), Ok(Some((again, _)))) => {
            assert_eq!(length, again);
            read_alike(&input[..length], &framing);
        }
        (Ok(None), Ok(None)) => {}
        // too large can be said earlier where less has come at once
        (Err(_), Err(_)) => {}
        (whole, bytewise) => panic!(
            "whole {:?}, byte by byte {:?}",
            whole.map(|found| found.map(|(length, _)| length)),
            bytewise.map(|found| found.map(|(length, _)| length))
        ),
    }
}

fn read_alike(head: &[u8], framing: &Framing) {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(head).expect("the parser behind refuses it");
    assert_eq!(parsed, httparse::Status::Complete(head.len()));
    let values = |name: &str| {
        let fields = request.headers.iter();
        let named = fields.filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect::<Vec<_>>()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    assert!(
        lengths.is_empty() || codings.is_empty(),
        "two framings passed"
    );
    assert!(codings.len() <= 1);
    if codings.is_empty() {
        let length = lengths.first().map_or(0, |value| {
            let text = std::str::from_utf8(value).expect("a length that is no text passed");
            text.trim()
                .parse()
                .expect("a length that is no number passed")
        });
        assert_eq!(framing.left(), Some(length));
    } else {
        assert!(
            codings[0].eq_ignore_ascii_case(b"chunked"),
            "{:?}",
            codings[0]
        );
    }
}

/// A response gives the same body however it is cut, and never more than came.
pub fn response(input: &[u8]) {
    let Some((step, bytes)) = cut(input) else {
        return;
    };
    let Ok(Some((head, length))) = response_head::read(bytes, &http::Method::POST) else {
        return;
    };
    let whole = decoded(head.framing, [&bytes[length..]]);
    let Ok(Some((head, _))) = response_head::read(bytes, &http::Method::POST) else {
        panic!("the same bytes are read in two ways");
    };
    assert_eq!(whole, decoded(head.framing, bytes[length..].chunks(step)));
    assert!(whole.0.len() <= bytes.len());
}

fn decoded<'a>(
    mut framing: Framing,
    reads: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, bool, bool) {
    let mut body = BytesMut::new();
    for read in reads {
        if framing.is_done() || framing.is_broken() {
            break;
        }
        let used = framing.decode(read, &mut body);
        assert!(used <= read.len());
    }
    (body.to_vec(), framing.is_done(), framing.is_broken())
}

/// A trace is read alike however it comes, none of its rows is lost, and what was read can be replayed.
pub fn traces(input: &[u8]) {
    let read = traces::read("fuzzed.trace", input);
    let bytewise = traces::read("fuzzed.trace", BufReader::with_capacity(1, input));
    match (&read, &bytewise) {
        (Ok(read), Ok(bytewise)) => assert_eq!(read, bytewise),
        (Err(read), Err(bytewise)) => assert_eq!(read.to_string(), bytewise.to_string()),
        _ => panic!("whole {read:?}, byte by byte {bytewise:?}"),
    }
    match read {
        Ok(TraceFile::Requests(trace)) => requests(input, &trace),
        Ok(TraceFile::Rates(rates)) => {
            let sent = (rates.windows.len() as u64) + rates.idle;
            assert_eq!(sent + rates.malformed.count, rates.rows);
            named(input, &rates.malformed);
            drawn(&rates);
        }
        Ok(TraceFile::Lengths(lengths)) => {
            let used = lengths.windows.len() as u64 + lengths.empty;
            assert_eq!(used + lengths.malformed.count, lengths.rows);
            named(input, &lengths.malformed);
            for at_ns in [0, 1 << 40, u64::MAX] {
                assert!(lengths.at(at_ns).is_some());
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzzed.trace"), "{error}"),
    }
}

fn requests(input: &[u8], trace: &Trace) {
    let unused = trace.malformed.count + trace.left_out.count;
    assert_eq!(trace.requests.len() as u64 + unused, trace.rows);
    named(input, &trace.malformed);
    named(input, &trace.left_out);
    assert!(trace.requests.is_sorted_by_key(|request| request.at_ns));
    for request in &trace.requests {
        for tokens in [request.prompt_tokens, request.output_tokens] {
            assert!((1..=TOKENS_MAX).contains(&tokens));
        }
    }
    let replay = Replay::default();
    let replayed = match trace.has_times() {
        true => replay.plan(trace, 1),
        false => replay.plan_at(trace, &[0; 100], 1),
    };
    let replayed = replayed.expect("what was read cannot be replayed");
    let plan = &replayed.requests;
    assert!(plan.is_sorted_by_key(|request| request.at_ns));
    if trace.has_times() {
        assert_eq!(plan.len(), trace.requests.len());
    }
    let _ = (replayed.differences(), trace.notes());
}

/// The rows named are the first of all, in order, and lie in the file.
fn named(input: &[u8], unused: &UnusedRows) {
    assert_eq!(
        unused.first.len() as u64,
        unused.count.min(NAMED_ROWS as u64)
    );
    assert!(unused.first.is_sorted_by_key(|row| row.line));
    let lines = input.split(|byte| *byte == b'\n').count() as u64;
    assert!(
        unused
            .first
            .iter()
            .all(|row| (1..=lines).contains(&row.line))
    );
}

/// A few requests drawn from rates come in order and within their time.
fn drawn(rates: &RateWindows) {
    let expected = rates.expected_requests(0, rates.end_ns);
    let draw = Draw {
        from_ns: 0,
        until_ns: rates.end_ns,
        rate_scale: (10.0 / expected).min(1.0),
        seed: 1,
    };
    if let Ok(times_ns) = draw.times_ns(rates) {
        assert!(times_ns.is_sorted());
        assert!(times_ns.iter().all(|at_ns| *at_ns < rates.end_ns));
    }
}
