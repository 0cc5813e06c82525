#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::path::PathBuf;

use super::*;

fn path(file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    folder.join(file)
}

fn requests(file: &str) -> Trace {
    open(&path(file)).unwrap().into_requests().unwrap()
}

fn of_text(text: &str) -> Result<TraceFile, TraceError> {
    read("t", text.as_bytes())
}

fn words(text: &str) -> String {
    of_text(text).unwrap_err().to_string()
}

#[test]
fn every_format_is_known_by_its_begin_and_read_whole() {
    let right = [
        ("azure2023_conv.csv", Format::Azure, 120, true),
        ("azure2023_code.csv", Format::Azure, 200, true),
        ("mooncake_conversation.jsonl", Format::Mooncake, 120, true),
        ("mooncake_synthetic.jsonl", Format::Mooncake, 60, true),
        ("made_up_bailian.jsonl", Format::Bailian, 3, true),
        ("made_up_burstgpt_sessions.csv", Format::BurstGpt, 4, true),
        ("lengths_sharegpt.csv", Format::Lengths, 100, false),
        ("otel_prefix_sharing.json", Format::Otel, 7, true),
    ];
    for (file, format, rows, has_times) in right {
        let trace = requests(file);
        assert_eq!((trace.format, trace.rows), (format, rows), "{file}");
        assert_eq!(trace.requests.len() as u64, rows, "{file}");
        assert_eq!(trace.has_times(), has_times, "{file}");
        assert_eq!(trace.notes(), [""; 0], "{file}");
    }
}

#[test]
fn azures_times_are_kept_to_their_last_digit() {
    let trace = requests("azure2023_conv.csv");
    let begin = &trace.requests[..3];
    let times: Vec<u64> = begin.iter().filter_map(|request| request.at_ns).collect();
    // 18:15:46.6805900, 18:15:50.9951690, 18:15:51.2224670
    assert_eq!(times, [0, 4_314_579_000, 4_541_877_000]);
    let lengths = begin
        .iter()
        .map(|request| (request.prompt_tokens, request.output_tokens));
    assert_eq!(
        lengths.collect::<Vec<_>>(),
        [(374, 44), (396, 109), (879, 55)]
    );
}

#[test]
fn azures_columns_go_by_their_names_and_a_zone_is_known() {
    let text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-02-01 00:00:00+00:00,3,70,8\n2025-02-01 01:00:00.5+01:00,0,90,9\n";
    let trace = of_text(text).unwrap().into_requests().unwrap();
    let read = trace.requests.iter();
    let read = read.map(|r| (r.at_ns, r.prompt_tokens, r.output_tokens));
    let right = [(Some(0), 70, 8), (Some(500_000_000), 90, 9)];
    assert_eq!(read.collect::<Vec<_>>(), right);
}

#[test]
fn mooncake_has_milliseconds_and_blocks_of_512_tokens_and_bailian_seconds_and_blocks_of_16() {
    let mooncake = requests("mooncake_conversation.jsonl");
    assert_eq!(mooncake.requests[10].at_ns, Some(3_000_000_000));
    let prefix = mooncake.requests[0].prefix.clone().unwrap();
    assert_eq!((prefix.block_tokens, prefix.ids.len()), (512, 14));
    let bailian = requests("made_up_bailian.jsonl");
    let times = bailian.requests.iter().map(|request| request.at_ns);
    assert_eq!(
        times.collect::<Vec<_>>(),
        [0, 9_386_000_000, 9_636_000_000].map(Some)
    );
    assert_eq!(bailian.requests[1].prefix.clone().unwrap().block_tokens, 16);
    // a turn belongs to the chat of the turn before
    let sessions = bailian.requests.iter().map(|request| request.session);
    assert_eq!(sessions.collect::<Vec<_>>(), [0, 0, 1].map(Some));
}

#[test]
fn burstgpt_goes_by_its_header_and_leaves_failures_out_aloud() {
    let plain = requests("made_up_burstgpt.csv");
    assert_eq!(
        (plain.rows, plain.requests.len(), plain.left_out.count),
        (5, 4, 1)
    );
    assert_eq!(plain.left_out.first[0].line, 5);
    assert!(
        plain.left_out.first[0]
            .why
            .contains("0 tokens marks a request that failed")
    );
    let sessions = requests("made_up_burstgpt_sessions.csv");
    let read = sessions.requests.iter();
    let read = read.map(|request| {
        (
            request.prompt_tokens,
            request.output_tokens,
            request.session,
        )
    });
    let right = [
        (472, 18, Some(0)),
        (1087, 230, Some(1)),
        (510, 44, Some(0)),
        (12, 4, None),
    ];
    assert_eq!(read.collect::<Vec<_>>(), right);
}

#[test]
fn spans_have_their_counts_and_where_they_lack_them_an_estimate_that_says_so() {
    let trace = requests("otel_prefix_sharing.json");
    assert_eq!(
        (
            trace.requests[2].prompt_tokens,
            trace.requests[2].output_tokens
        ),
        (100, 50)
    );
    let text = r#"{"spans": [
        {"start_time": "2026-02-25T10:00:00", "attributes": {"gen_ai.operation.name": "chat",
         "gen_ai.input.messages": "12345678", "gen_ai.output.text": "123"}},
        {"start_time": "2026-02-25T10:00:01", "attributes": {"gen_ai.operation.name": "execute_tool"}},
        7
    ]}"#;
    let trace = of_text(text).unwrap().into_requests().unwrap();
    assert_eq!(
        (
            trace.rows,
            trace.estimated,
            trace.left_out.count,
            trace.malformed.count
        ),
        (3, 1, 1, 1)
    );
    assert_eq!(
        (
            trace.requests[0].prompt_tokens,
            trace.requests[0].output_tokens
        ),
        (2, 1)
    );
    assert_eq!(
        (trace.left_out.first[0].line, trace.malformed.first[0].line),
        (4, 5)
    );
}

#[test]
fn own_records_are_demand_whatever_became_of_them() {
    let record = |id: &str, outcome: &str, start_s: f64, more: &str| {
        format!(
            r#"{{"schema":1,"request_id":"{id}","outcome":"{outcome}","start_s":{start_s},"path":"/v1/chat/completions","api":"chat","stamp":"socket","attempts":1,"request_bytes":1,"response_bytes":1{more}}}"#
        )
    };
    let text = [
        record(
            "a",
            "ok",
            1_700_000_000.5,
            r#","prompt_tokens":40,"output_tokens":12,"key":"x""#,
        ),
        record(
            "b",
            "ok",
            1_700_000_002.0,
            r#","prompt_tokens_est":30,"output_tokens_est":7.6"#,
        ),
        record(
            "c",
            "shed",
            1_700_000_001.0,
            r#","prompt_tokens_est":50,"output_tokens_predicted":90"#,
        ),
        record(
            "d",
            "cut",
            1_700_000_003.0,
            r#","prompt_tokens":60,"output_tokens":2,"max_output_tokens":80"#,
        ),
        record("e", "rejected", 1_700_000_003.0, ""),
        record("f", "timeout", 1_700_000_003.0, r#","prompt_tokens":60"#),
    ];
    let trace = of_text(&text.join("\n")).unwrap().into_requests().unwrap();
    let read = trace.requests.iter();
    let read: Vec<_> = read
        .map(|r| {
            (
                r.at_ns.unwrap() / 1_000_000,
                r.prompt_tokens,
                r.output_tokens,
            )
        })
        .collect();
    assert_eq!(
        read,
        [(0, 40, 12), (500, 50, 90), (1500, 30, 8), (2500, 60, 80)]
    );
    assert_eq!(
        (
            trace.rows,
            trace.left_out.count,
            trace.estimated,
            trace.sessions
        ),
        (6, 2, 3, 1)
    );
}

#[test]
fn a_folder_of_records_is_one_trace_and_names_the_file_of_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("folder without records-*.jsonl"), "{error}");
    let record = |start_s: u32| {
        format!(
            r#"{{"schema":1,"request_id":"a","outcome":"ok","start_s":{start_s},"api":"chat","prompt_tokens":4,"output_tokens":5}}"#
        )
    };
    let second = format!("{}\nbroken\n", record(9));
    std::fs::write(dir.path().join("records-20260101T000000Z-2.jsonl"), second).unwrap();
    std::fs::write(
        dir.path().join("records-20260101T000000Z-1.jsonl"),
        record(7),
    )
    .unwrap();
    std::fs::write(dir.path().join("chunks-20260101T000000Z-1.jsonl"), "{}").unwrap();
    let trace = open(dir.path()).unwrap().into_requests().unwrap();
    assert_eq!(
        (trace.requests.len(), trace.requests[1].at_ns),
        (2, Some(2_000_000_000))
    );
    let row = &trace.malformed.first[0];
    assert!(
        row.file.ends_with("records-20260101T000000Z-2.jsonl") && row.line == 2,
        "{row:?}"
    );
}

#[test]
fn rows_that_are_not_used_are_counted_and_named_by_file_and_line() {
    let trace = requests("malformed_azure.csv");
    assert_eq!((trace.rows, trace.requests.len()), (9, 2));
    let of = |unused: &UnusedRows| unused.first.iter().map(|row| row.line).collect::<Vec<_>>();
    assert_eq!(of(&trace.malformed), [3, 4, 6, 7, 11]);
    assert_eq!(of(&trace.left_out), [8, 9]);
    let notes = trace.notes();
    assert!(
        notes[0].ends_with("5 of 9 rows cannot be read"),
        "{}",
        notes[0]
    );
    assert!(
        notes[1].contains("malformed_azure.csv, line 3: 2 fields, where the file's header has 3"),
        "{}",
        notes[1]
    );
    let mooncake = requests("malformed_mooncake.jsonl");
    assert_eq!(of(&mooncake.malformed), [2, 3, 4]);
    assert!(
        mooncake.malformed.first[0]
            .why
            .contains("3 hash_ids, where 600 tokens in blocks of 512 have at most 2")
    );
    // the file is not in order of time, and its requests are
    let times = mooncake.requests.iter().map(|request| request.at_ns);
    assert_eq!(times.collect::<Vec<_>>(), [Some(0), Some(500_000_000)]);
}

#[test]
fn of_many_unused_rows_all_are_counted_and_the_first_are_named() {
    let mut text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,1,1\n".to_owned();
    text.push_str(&"x\n".repeat(1_000));
    let trace = of_text(&text).unwrap().into_requests().unwrap();
    assert_eq!(
        (trace.malformed.count, trace.malformed.first.len()),
        (1_000, NAMED_ROWS)
    );
    let notes = trace.notes();
    assert_eq!(notes.len(), 1 + NAMED_ROWS + 1);
    assert_eq!(notes.last().unwrap(), "  and 980 more");
}

#[test]
fn what_is_no_trace_is_refused_in_words() {
    assert!(words("").contains("is empty"));
    assert!(words("hello\n").contains("line 1: no trace begins with \"hello\""));
    assert!(words("[1, 2]").contains("a JSON list"));
    assert!(words("{\"a\": 1,\n \"b\": }").contains("t, line 2: the JSON is broken"));
    assert!(words("TIMESTAMP,ContextTokens,GeneratedTokens\nx\n").contains("none of 1 rows"));
    let missing = open(Path::new("no/such.csv")).unwrap_err().to_string();
    assert!(
        missing.starts_with("cannot open the trace no/such.csv"),
        "{missing}"
    );
    let rates = open(&path("servegen_m-small_client14_trace.csv")).unwrap();
    assert!(
        rates
            .into_requests()
            .unwrap_err()
            .to_string()
            .contains("-dataset.json")
    );
}
