#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::path::Path;

use super::super::agreement::Bounds;
use super::super::arrivals::Arrivals;
use super::super::traces::open;
use super::*;

fn trace(file: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    open(&folder.join(file)).unwrap().into_requests().unwrap()
}

fn at_speed(time_scale: f64) -> Replay {
    Replay {
        time_scale,
        ..Replay::default()
    }
}

#[test]
fn a_replayed_trace_agrees_with_its_source_at_any_speed() {
    let files = [
        "azure2023_conv.csv",
        "azure2023_code.csv",
        "mooncake_conversation.jsonl",
        "mooncake_synthetic.jsonl",
        "made_up_burstgpt.csv",
        "otel_prefix_sharing.json",
    ];
    for file in files {
        let trace = trace(file);
        for scale in [1.0, 0.05, 3.0] {
            let replayed = at_speed(scale).plan(&trace, 7).unwrap();
            assert_eq!(replayed.requests.len(), trace.requests.len(), "{file}");
            assert_eq!(replayed.differences(), [], "{file} at {scale}");
            assert!(replayed.requests.is_sorted_by_key(|request| request.at_ns));
        }
    }
}

#[test]
fn even_gaps_agree_with_themselves_when_a_scale_rounds_them() {
    let rows: String = (0..50).map(|second| format!("{second},1,9\n")).collect();
    let text = format!("arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}");
    let trace = super::super::traces::read("even", text.as_bytes()).unwrap();
    let trace = trace.into_requests().unwrap();
    let replayed = at_speed(1.0 / 3.0).plan(&trace, 1).unwrap();
    assert_eq!(replayed.source.gap_cv, Some(0.0));
    assert_eq!(replayed.differences(), []);
}

#[test]
fn azures_bursts_are_kept_to_the_nanosecond() {
    let trace = trace("azure2023_code.csv");
    let replayed = at_speed(1.0).plan(&trace, 1).unwrap();
    let planned = replayed.requests.iter().map(|request| Some(request.at_ns));
    assert!(planned.eq(trace.requests.iter().map(|request| request.at_ns)));
    assert_eq!(replayed.tick_ns, None);
    let gap_cv = replayed.realised.gap_cv.unwrap();
    assert!(gap_cv > 8.0, "{gap_cv}");
    // the silence of 217 s
    let gaps = replayed
        .requests
        .windows(2)
        .map(|pair| pair[1].at_ns - pair[0].at_ns);
    assert!(gaps.max().unwrap() > 217_000_000_000);
}

#[test]
fn mooncakes_ticks_are_spread_unless_they_are_to_be_kept() {
    let trace = trace("mooncake_conversation.jsonl");
    let spread = at_speed(1.0).plan(&trace, 1).unwrap();
    assert_eq!(spread.tick_ns, Some(3_000_000_000));
    let (before, after) = (
        spread.source.gap_cv.unwrap(),
        spread.realised.gap_cv.unwrap(),
    );
    assert!(
        before > 2.5 && (0.8..1.3).contains(&after),
        "CV {before} to {after}"
    );
    for (request, row) in spread.requests.iter().zip(&trace.requests) {
        let moved_ns = request.at_ns - row.at_ns.unwrap();
        assert!(moved_ns < 3_000_000_000, "{moved_ns}");
        assert_eq!(request.prompt_tokens, row.prompt_tokens);
    }
    let keep = Replay {
        ticks: Ticks::Keep,
        ..at_speed(1.0)
    };
    assert_eq!(
        keep.plan(&trace, 1).unwrap().realised.gap_cv,
        spread.source.gap_cv
    );
    // one whose clock is fine is left as it is
    let fine = self::trace("mooncake_synthetic.jsonl");
    assert_eq!(Ticks::Known.of(&fine), None);
    assert_eq!(
        Ticks::Known.of(&self::trace("made_up_burstgpt.csv")),
        Some(1_000_000_000)
    );
}

#[test]
fn requests_share_the_blocks_that_the_trace_says_and_another_run_others() {
    let trace = trace("mooncake_synthetic.jsonl");
    let one = at_speed(1.0).plan(&trace, 1).unwrap();
    assert_eq!(one.realised.block_hits, one.source.block_hits);
    assert!(one.source.block_hits.unwrap() > 0.0);
    let other = at_speed(1.0).plan(&trace, 2).unwrap();
    let seeds = |replayed: &Replayed| {
        replayed.requests[0]
            .prefix
            .clone()
            .unwrap()
            .block_seeds
            .clone()
    };
    assert!(seeds(&one).iter().all(|seed| !seeds(&other).contains(seed)));
}

#[test]
fn a_part_is_replayed_from_its_begin_and_what_is_left_out_is_counted() {
    let trace = trace("azure2023_conv.csv");
    let part = Replay {
        from_s: 5.0,
        until_s: Some(15.0),
        time_scale: 0.5,
        longest_tokens: Some(1_000),
        ..Replay::default()
    };
    let replayed = part.plan(&trace, 1).unwrap();
    let inside =
        |row: &&TraceRequest| (5_000_000_000..15_000_000_000).contains(&row.at_ns.unwrap());
    let rows: Vec<&TraceRequest> = trace.requests.iter().filter(inside).collect();
    let fitting: Vec<&&TraceRequest> = rows
        .iter()
        .filter(|row| row.prompt_tokens + row.output_tokens <= 1_000)
        .collect();
    assert!(!fitting.is_empty() && fitting.len() < rows.len());
    assert_eq!(replayed.requests.len(), fitting.len());
    assert_eq!(replayed.too_long, (rows.len() - fitting.len()) as u64);
    assert_eq!(replayed.outside, (trace.requests.len() - rows.len()) as u64);
    let first_ns = (fitting[0].at_ns.unwrap() - 5_000_000_000) / 2;
    assert!(replayed.requests[0].at_ns.abs_diff(first_ns) <= 1);
    // what is missing shows
    assert!(!replayed.differences().is_empty());
}

#[test]
fn lengths_without_times_come_at_any_arrivals_and_all_before_any_comes_again() {
    let trace = trace("lengths_sharegpt.csv");
    let error = at_speed(1.0).plan(&trace, 1).unwrap_err().to_string();
    assert!(error.contains("has no times of its own"), "{error}");
    let schedule = Arrivals::Constant { rate_per_s: 10.0 }
        .schedule_ns(1, 30_050_000_000)
        .unwrap();
    assert_eq!(schedule.len(), 300);
    let replayed = at_speed(1.0).plan_at(&trace, &schedule, 1).unwrap();
    assert!(
        replayed
            .requests
            .iter()
            .map(|request| request.at_ns)
            .eq(schedule)
    );
    let lengths = |requests: &[PlannedRequest]| {
        let mut lengths: Vec<(u32, u32)> = requests
            .iter()
            .map(|request| (request.prompt_tokens, request.output_tokens))
            .collect();
        lengths.sort_unstable();
        lengths
    };
    let passes: Vec<_> = replayed.requests.chunks(100).map(lengths).collect();
    assert!(passes[0] == passes[1] && passes[1] == passes[2]);
    let bounds = Bounds::drawn(300);
    assert_eq!(
        bounds.differences(&replayed.source, &replayed.realised, 1.0),
        []
    );
}

#[test]
fn a_second_pass_over_a_trace_does_not_find_its_own_prefixes() {
    let trace = trace("mooncake_synthetic.jsonl");
    let rows = trace.requests.len();
    let schedule: Vec<u64> = (0..2 * rows as u64).collect();
    let replayed = at_speed(1.0).plan_at(&trace, &schedule, 1).unwrap();
    let (first, second) = replayed.requests.split_at(rows);
    assert_eq!(first[0].prompt_tokens, second[0].prompt_tokens);
    assert_ne!(first[0].prefix, second[0].prefix);
    assert_eq!(replayed.realised.block_hits, replayed.source.block_hits);
}

#[test]
fn what_cannot_be_replayed_is_refused_in_words() {
    let trace = trace("azure2023_conv.csv");
    let words = |replay: Replay| replay.plan(&trace, 1).unwrap_err().to_string();
    for time_scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(words(at_speed(time_scale)).contains("time scale"));
    }
    assert!(words(at_speed(1e300)).contains("would last"));
    let part = |from_s, until_s| Replay {
        from_s,
        until_s: Some(until_s),
        ..Replay::default()
    };
    assert!(words(part(5.0, 5.0)).contains("from 5 s to 5 s"));
    assert!(words(part(-1.0, 5.0)).contains("from -1 s"));
    assert!(words(part(1e6, 2e6)).contains("none of the 120 requests"));
    let ticks = Replay {
        ticks: Ticks::Spread(f64::NAN),
        ..Replay::default()
    };
    assert!(words(ticks).contains("tick"));
}

#[test]
fn a_load_that_is_not_like_its_source_is_told_figure_by_figure() {
    let trace = trace("azure2023_conv.csv");
    let right = at_speed(1.0).plan(&trace, 1).unwrap();
    let wrong = at_speed(0.9).plan(&trace, 1).unwrap();
    let bounds = Bounds::replayed(&right.source, None);
    let found = bounds.differences(&right.source, &wrong.realised, 1.0);
    assert_eq!(found.len(), 1, "{found:?}");
    let words = found[0].to_string();
    assert!(
        words.starts_with("rate (requests per second) is"),
        "{words}"
    );
    let other = self::trace("azure2023_code.csv");
    let other = at_speed(1.0).plan(&other, 1).unwrap();
    let found = bounds.differences(&right.source, &other.realised, 1.0);
    let of = |what: &str| found.iter().any(|difference| difference.what == what);
    assert!(of("CV of the gaps") && of("P50 of prompt tokens") && of("P50 of output tokens"));
}
