//! Usual chunks noted and told later give what telling each at once gives: any events, any cuts, any stamps.

use evenkeel_policies::shape::Api;
use proptest::prelude::*;

use crate::measure::chunk_log::{Chunk, ChunkLog};
use crate::measure::meter::{Meter, MeterOptions, Progress};
use crate::measure::summary::Answer;

/// Events as engines send them, mostly usual ones, and what comes between them.
fn event() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::sample::select(vec![
        "a",
        " sea",
        "",
        "\\\"",
        "ø🌊",
        "\\\\",
        "\"content\\\"",
    ]);
    let usual = (text, 0..2u32, 0..2u64, prop::bool::weighted(0.1)).prop_map(
        |(text, choice, created, reasoning)| {
            let field = if reasoning { "reasoning" } else { "content" };
            format!(
                "data: {{\"id\":\"c-1\",\"created\":17{created},\"choices\":[{{\"index\":{choice},\
                 \"delta\":{{\"{field}\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
            )
        },
    );
    let other = prop::sample::select(vec![
        ": keep-alive\n\n",
        "event: error\ndata: {\"error\":{\"code\":500}}\n\n",
        "event: message\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":9}}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\r\n\r\n",
        "data: {\"choices\":\ndata: [{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
        "data: not json\n\n",
        "data: [DONE]\n\n",
        "\n",
        "\r",
        "id: 4\n",
    ]);
    prop_oneof![
        12 => usual.prop_map(String::into_bytes),
        1 => other.prop_map(|text| text.as_bytes().to_vec()),
    ]
}

/// What happens to a stream.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// so many bytes come in one read
    Read(usize),
    /// the client's socket takes all there is
    Handed,
    /// time passes, ns
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop_oneof![1 => 0usize..40, 3 => 90usize..130, 1 => 100usize..3000].prop_map(Step::Read),
        6 => Just(Step::Handed),
        2 => (0u64..200_000_000).prop_map(Step::Wait),
        1 => (1_000_000_000u64..9_000_000_000).prop_map(Step::Wait),
    ]
}

fn told(mut meter: Meter, stream: &[u8], steps: &[Step]) -> (Vec<Progress>, Answer, Vec<Chunk>) {
    let mut told = Vec::new();
    let mut rest = stream;
    let mut now_ns = 1_000_000_000;
    for step in steps.iter().cycle().take(4000) {
        match *step {
            Step::Read(bytes) => {
                let (read, later) = rest.split_at(bytes.min(rest.len()));
                told.push(meter.read(read, now_ns));
                rest = later;
            }
            Step::Handed => meter.handed(now_ns),
            Step::Wait(ns) => now_ns += ns,
        }
        if rest.is_empty() {
            break;
        }
    }
    told.push(meter.read(rest, now_ns));
    meter.end(true, now_ns);
    let (answer, log) = meter.finish();
    (told, answer, log.iter().flat_map(ChunkLog::iter).collect())
}

/// Whole events a read, as they come one by one.
fn one_by_one(events: &[Vec<u8>]) -> Vec<Step> {
    let each = |event: &Vec<u8>| {
        [
            Step::Read(event.len()),
            Step::Wait(20_000_000),
            Step::Handed,
        ]
    };
    events.iter().flat_map(each).collect()
}

fn meter(cap_bytes: usize) -> Meter {
    let options = MeterOptions {
        scan_cap_bytes: cap_bytes,
        ..MeterOptions::default()
    };
    Meter::new(Api::Chat, 200, Some(b"text/event-stream"), None, &options)
        .with_log(Some(ChunkLog::new(1 << 20)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_shortcut_tells_what_the_full_way_tells(
        events in prop::collection::vec(event(), 1..80),
        steps in prop::collection::vec(step(), 1..12),
        cap_bytes in prop::sample::select(vec![100usize, 110, 4 << 20]),
    ) {
        let stream = events.concat();
        for steps in [steps, one_by_one(&events)] {
            let short = told(meter(cap_bytes), &stream, &steps);
            let full = told(meter(cap_bytes).in_full(), &stream, &steps);
            prop_assert_eq!(short, full);
        }
    }
}

#[test]
fn usual_chunks_are_noted_and_others_are_told_at_once() {
    let chunk = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let mut meter = meter(4 << 20);
    let mut noted = Vec::new();
    for read in [
        &chunk("a"),
        &chunk("b"),
        &chunk("c").repeat(3),
        ": note\n\n",
        &chunk("d"),
    ] {
        meter.read(read.as_bytes(), 5);
        noted.push(meter.noted());
    }
    assert_eq!((noted, meter.output_chunks()), (vec![0, 1, 4, 0, 1], 6));
    for _ in 0..100 {
        meter.read(chunk("e").as_bytes(), 6);
        meter.handed(7);
    }
    assert_eq!(
        (meter.output_chunks(), meter.answer().content_chunks),
        (106, 106)
    );
}
