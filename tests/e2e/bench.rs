//! `evenkeel bench` as a process, against scripted upstreams and simulated engines on real sockets.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use evenkeel::engine::profile::Profile;
use evenkeel::engine::server::{self, EngineOptions};
use serde_json::Value;

use crate::support::child::{PROGRAM, run};
use crate::support::proxy::Dir;
use crate::support::reply::{DONE, End, Reply, error_event, gate, ms, role_event, text_event};
use crate::support::upstream::{Script, Upstream};

/// What a run left: how it ended, what it printed, its result and its lines.
struct Left {
    status: ExitStatus,
    out: String,
    result: Value,
    lines: Vec<Value>,
}

impl Left {
    /// The lines of requests that count.
    fn counted(&self) -> impl Iterator<Item = &Value> {
        let counted = |line: &&Value| line["metadata"]["counted"] == true;
        self.lines.iter().filter(counted)
    }

    fn figure(&self, key: &str) -> f64 {
        self.result[key]
            .as_f64()
            .unwrap_or_else(|| panic!("no number {key} in {}", self.result))
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn bench(url: &str, options: &[&str]) -> Left {
    let dir = Dir::new();
    let (result, lines) = (dir.0.join("r.json"), dir.0.join("r.jsonl"));
    let mut args = vec!["bench", "--base-url", url, "--save-detailed"];
    args.extend(["--save-result", result.to_str().unwrap()]);
    args.extend(["--requests-jsonl", lines.to_str().unwrap()]);
    args.extend(options);
    let (status, out, err) = run(&args);
    assert!(!err.contains("panicked"), "{err}");
    assert!(result.exists(), "no result:\n{out}{err}");
    let read = std::fs::read_to_string(&lines).unwrap();
    Left {
        status,
        out,
        result: json(&result),
        lines: read
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
    }
}

const CHAT: [&str; 4] = ["--backend", "openai-chat", "--model", "m-small"];

fn chat<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&CHAT[..], options].concat()
}

fn words(count: u32, every: Duration) -> Upstream {
    Script::new(move |_| Reply::paced_chat(count, every)).start()
}

#[test]
fn figures_are_those_of_the_servers_schedule() {
    let upstream = words(4, ms(40));
    let options = ["--max-concurrency", "2", "--num-prompts", "6"];
    let left = bench(&upstream.url(), &chat(&options));
    assert!(left.status.success(), "{}", left.out);
    assert_eq!(
        (left.figure("completed"), left.figure("failed")),
        (6.0, 0.0)
    );
    // The server is never early; how late this machine may be is left open.
    for (key, least_ms) in [("ttft", 40.0), ("e2el", 200.0)] {
        assert!(left.figure(&format!("mean_{key}_ms")) >= least_ms - 1.0);
    }
    let gaps: Vec<f64> = left.result["itls"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|one| one.as_array().unwrap())
        .map(|gap| gap.as_f64().unwrap())
        .collect();
    assert_eq!(gaps.len(), 18);
    let mean_gap_ms = gaps.iter().sum::<f64>() / 18.0 * 1e3;
    assert!((mean_gap_ms - left.figure("mean_itl_ms")).abs() < 1e-6);
    assert!((mean_gap_ms - left.figure("mean_tpot_ms")).abs() < 0.01);
    // No usage came, so chunks were counted, and that is said.
    assert_eq!(left.result["evenkeel"]["token_counts_from"]["chunks"], 6);
    assert!(
        left.out.contains("from counted chunks in 6"),
        "{}",
        left.out
    );
    assert_eq!(left.result["max_concurrent_requests"], 2);
    assert_eq!(
        upstream.connections(),
        2 + 1,
        "connections were not used again"
    );
}

#[test]
fn the_result_has_vllms_keys_and_the_lines_have_aiperfs() {
    let upstream = words(3, ms(1));
    let left = bench(
        &upstream.url(),
        &chat(&[
            "--request-rate",
            "200",
            "--num-prompts",
            "10",
            "--metadata",
            "gpu=none",
        ]),
    );
    let mut wanted: Vec<String> = "date endpoint_type backend label model_id tokenizer_id num_prompts request_rate \
        burstiness max_concurrency duration completed failed total_input_tokens total_output_tokens \
        request_throughput request_goodput output_throughput total_token_throughput input_lens output_lens ttfts \
        itls latencies start_times queue_times generated_texts errors max_output_tokens_per_s \
        max_concurrent_requests rtfx gpu evenkeel"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    for figure in [
        "ttft",
        "tpot",
        "itl",
        "e2el",
        "client_queue_time",
        "e2el_including_client_queue",
    ] {
        for of in ["mean", "median", "std", "p50", "p90", "p95", "p99"] {
            wanted.push(format!("{of}_{figure}_ms"));
        }
    }
    let mut found: Vec<String> = left.result.as_object().unwrap().keys().cloned().collect();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    assert_eq!(left.result["ttfts"].as_array().unwrap().len(), 10);
    assert_eq!(left.result["request_rate"], 200.0);
    assert_eq!(left.result["request_goodput"], Value::Null);

    assert_eq!(left.lines.len(), 10);
    let ids = ids(&left);
    for request in upstream.requests() {
        let id = request.head.header("x-request-id").unwrap().to_owned();
        assert!(ids.contains(&id.as_str()), "{id}");
    }
    let line = &left.lines[0];
    for metric in [
        "time_to_first_token",
        "request_latency",
        "inter_token_latency",
        "output_sequence_length",
    ] {
        assert!(
            line["metrics"][metric]["value"].is_number(),
            "{metric} in {line}"
        );
    }
    assert_eq!(line["error"], Value::Null);
}

fn ids(left: &Left) -> Vec<&str> {
    left.lines
        .iter()
        .map(|line| line["metadata"]["x_request_id"].as_str().unwrap())
        .collect()
}

#[test]
fn a_stalled_servers_waiting_shows_in_the_figures_from_the_plan() {
    // The schedule is 100 ms long, and the first answer takes longer than all of it.
    let upstream = Script::new(move |request| match request.number {
        0 => Reply::paced_chat(1, ms(200)),
        _ => Reply::chat("word"),
    })
    .start();
    let load = ["--request-rate", "200", "--burstiness", "inf"];
    let rest = ["--num-prompts", "20", "--max-concurrency", "1"];
    let left = bench(&upstream.url(), &chat(&[load, rest].concat()));
    assert_eq!(left.counted().count(), 20);
    let stamp = |line: &Value, name: &str| line["metadata"][name].as_u64().unwrap() as f64 / 1e6;
    let stall_ended_ms = stamp(&left.lines[0], "request_end_ns");
    for line in left.counted().skip(1) {
        let of = |metric: &str| line["metrics"][metric]["value"].as_f64().unwrap();
        let stalled_ms = stall_ended_ms - stamp(line, "planned_start_ns");
        let from_planned_ms = of("time_to_first_token_from_planned");
        assert!(
            from_planned_ms >= stalled_ms && stalled_ms >= 300.0,
            "{from_planned_ms} of {stalled_ms}"
        );
        let parts_ms = of("time_to_first_token") + of("schedule_lag");
        assert!((from_planned_ms - parts_ms).abs() < 0.001);
    }
    // From the send nothing is to be seen of it: only the plan shows it.
    let mean = |figure: &str| left.result["evenkeel"]["figures"][figure]["mean_ms"].as_f64();
    assert!(mean("ttft_from_planned").unwrap() >= mean("ttft").unwrap() + 280.0);
    let lag = &left.result["evenkeel"]["generator"]["lag"];
    assert_eq!(lag["held_back"], 19, "{lag}");
    assert!(lag["p99_ms"].as_f64().unwrap() > lag["own_p99_ms"].as_f64().unwrap());
}

#[test]
fn two_thousand_requests_a_second_are_all_issued_and_two_thousand_streams_held() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let (key, closed) = gate();
    // Nobody is answered until all have come.
    let upstream = Script::new(move |_| {
        let mut reply = Reply::new().wait(&closed);
        reply.steps.extend(Reply::chat("word").steps);
        reply
    })
    .forgetful()
    .start();
    let url = upstream.url();
    let running = std::thread::spawn(move || {
        let load = ["--request-rate", "2000", "--num-prompts", "2000"];
        let lengths = ["--input-len", "8", "--output-len", "1"];
        bench(&url, &chat(&[load, lengths].concat()))
    });
    while upstream.open_requests() < 2000 && !running.is_finished() {
        std::thread::yield_now();
    }
    key.open();
    let left = running.join().unwrap();
    assert_eq!(left.figure("completed"), 2000.0, "{}", left.out);
    assert_eq!(left.figure("max_concurrent_requests"), 2000.0);
    let mut issued: Vec<&str> = ids(&left);
    issued.sort_unstable();
    issued.dedup();
    assert_eq!((issued.len(), left.lines.len()), (2000, 2000));
    // How late it was is this machine's business; that it is told is ours.
    let lag = &left.result["evenkeel"]["generator"]["lag"];
    assert!(lag["p99_ms"].is_number() && lag["own_p99_ms"].is_number());
    assert!(left.out.contains("\nschedule lag: P50 "), "{}", left.out);
    assert!(left.out.contains("\ngenerator: "), "{}", left.out);
}

#[test]
fn failures_are_typed_and_beside_the_latencies() {
    let upstream = Script::new(|request| match request.number % 5 {
        0 => Reply::json(500, "{\"error\":{\"message\":\"x\"}}"),
        1 => Reply::sse()
            .chunk(ms(0), role_event().as_bytes())
            .chunk(ms(0), text_event("a").as_bytes())
            .chunk(ms(0), error_event().as_bytes())
            .chunk(ms(0), DONE.as_bytes())
            .last_chunk(ms(0)),
        2 => Reply::sse()
            .chunk(ms(0), text_event("a").as_bytes())
            .last_chunk(ms(0)),
        _ => Reply::chat("word"),
    })
    .start();
    let options = [
        "--max-concurrency",
        "1",
        "--num-prompts",
        "20",
        "--goodput",
        "ttft:60000",
    ];
    let left = bench(&upstream.url(), &chat(&options));
    assert!(left.status.success());
    assert_eq!(
        (left.figure("completed"), left.figure("failed")),
        (8.0, 12.0)
    );
    let ours = &left.result["evenkeel"];
    for kind in ["status_500", "error_event", "cut"] {
        assert_eq!(ours["failures"][kind], 4, "{kind}");
    }
    assert_eq!(ours["success_rate"], 0.4);
    assert_eq!(ours["good_request_fraction"], 0.4);
    for figure in ["ttft", "e2el", "ttft_from_planned"] {
        assert_eq!(ours["figures"][figure]["count"], 8, "{figure}");
    }
    // One-chunk answers have no TPOT: absent, not 0.
    assert_eq!(ours["figures"]["tpot"], Value::Null);
    assert_eq!(left.result["mean_tpot_ms"], Value::Null);
    assert!(
        left.out.starts_with("asking http://127.0.0.1") && left.out.contains("success rate 40.0 %")
    );
    let errors = left.lines.iter().filter(|line| !line["error"].is_null());
    assert_eq!(errors.count(), 12);
}

#[test]
fn a_server_where_nothing_succeeds_fails_the_run_and_shows_no_latency() {
    let upstream = Script::new(|_| Reply::json(404, "{}")).start();
    let left = bench(
        &upstream.url(),
        &chat(&["--num-prompts", "3", "--max-concurrency", "1"]),
    );
    assert_eq!(left.status.code(), Some(1));
    assert_eq!(left.result["mean_ttft_ms"], Value::Null);
    assert_eq!(left.figure("request_throughput"), 0.0);
    assert!(!left.out.contains("got through"), "{}", left.out);
    assert!(left.out.contains("status_404 3"), "{}", left.out);
}

#[test]
fn warm_up_and_ends_are_left_out_by_issue_time_without_a_drain() {
    // Answers take longer than anything that may hold up the generator between two sends.
    let upstream = words(2, ms(300));
    let load = [
        "--request-rate",
        "100",
        "--burstiness",
        "inf",
        "--duration",
        "1",
    ];
    let cut = ["--warmup-s", "0.3", "--trim-s", "0.2"];
    let left = bench(&upstream.url(), &chat(&[&load[..], &cut].concat()));
    let counts = &left.result["evenkeel"]["counts"];
    let of = |key: &str| counts[key].as_u64().unwrap();
    let sum = of("kept") + of("warm_up") + of("cut_start") + of("cut_end");
    assert_eq!((sum, left.lines.len()), (129, 129));
    assert!(
        of("warm_up") > 0 && of("cut_start") > 0 && of("cut_end") > 0,
        "{counts}"
    );
    assert_eq!(left.counted().count() as u64, of("kept"));
    let start = |line: &Value| line["metadata"]["request_start_ns"].as_u64().unwrap();
    let measured = || {
        let profiled = |line: &&Value| line["metadata"]["benchmark_phase"] == "profiling";
        left.lines.iter().filter(profiled).map(start)
    };
    let (first, last) = (measured().min().unwrap(), measured().max().unwrap());
    for line in left.counted() {
        assert!((first + 200_000_000..=last - 200_000_000).contains(&start(line)));
    }
    // Not drained: the first measured request is sent while warm-up requests are unanswered.
    let warm = |line: &&Value| line["metadata"]["benchmark_phase"] == "warmup";
    let ends = left.lines.iter().filter(warm);
    let last_end = ends
        .map(|line| line["metadata"]["request_end_ns"].as_u64().unwrap())
        .max();
    assert!(last_end.unwrap() > first);
}

#[test]
fn an_interrupted_run_writes_what_it_has_and_says_so() {
    let upstream = Script::new(|request| match request.number {
        0..3 => Reply::chat("word"),
        _ => Reply::sse().then(End::Hold),
    })
    .start();
    let dir = Dir::new();
    let file = dir.0.join("r.json");
    let process = Command::new(PROGRAM)
        .args([
            "bench",
            "--base-url",
            &upstream.url(),
            "--max-concurrency",
            "2",
        ])
        .args(chat(&["--num-prompts", "50", "--save-result"]))
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while upstream.requests().len() < 5 || upstream.open_requests() < 2 {
        std::thread::yield_now();
    }
    let pid = process.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", "INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let result = json(&file);
    assert_eq!(result["evenkeel"]["interrupted"], true);
    assert_eq!(result["evenkeel"]["unfinished"], 2);
    assert_eq!(result["completed"], 3);
    assert!(String::from_utf8_lossy(&output.stdout).contains("INTERRUPTED"));
}

#[test]
fn what_cannot_be_run_is_said_before_anything_is_sent() {
    let upstream = words(1, ms(1));
    let url = upstream.url();
    for (options, code, word) in [
        (
            &["--save-result", "/no/where/r.json"][..],
            1,
            "/no/where/r.json",
        ),
        (&["--requests-jsonl", "/"], 1, "/"),
        (&["--goodput", "itl:3"], 2, "ttft:MS"),
        (&["--mix", "1:2"], 2, "20:60:20"),
        (&["--dataset-name", "sharegpt"], 2, "random"),
        (
            &["--save-result", "a", "--result-filename", "b"],
            2,
            "two names",
        ),
        (&["--request-rate", "1e-9"], 2, "higher rate"),
        (&["--header", "x"], 2, "KEY=VALUE"),
        (&["--header", "host=a"], 2, "by bench itself"),
        (&["--extra-body", "temperature=1"], 2, "no JSON object"),
        (&["--extra-body", "{\"stream\": false}"], 2, "leave it out"),
        (&["--header", "x=a\nb"], 2, "value no header"),
        (&["--duration", "3"], 2, "--max-concurrency"),
        (&["--num-prompts", "3", "--duration", "3"], 2, "--duration"),
        (&["--endpoint", "/v1/embeddings"], 2, "/v1/chat/completions"),
        (&["--max-concurrency", "4000000000"], 2, "ulimit -n"),
    ] {
        let args = [&["bench", "--base-url", &url, "--model", "m"][..], options].concat();
        let (status, _, err) = run(&args);
        assert_eq!(status.code(), Some(code), "{options:?}: {err}");
        assert!(
            err.contains(word) && !err.contains("panicked"),
            "{options:?}: {err}"
        );
    }
    for secret in [
        ["--header", "authorization: Bearer hush"],
        ["--header", "authorization: Bearer hush=="],
        ["--base-url", "http://me:hush@127.0.0.1"],
    ] {
        let (status, _, err) = run(&[&["bench", "--model", "m"][..], &secret].concat());
        assert_eq!(status.code(), Some(2), "{err}");
        assert!(!err.contains("hush"), "{err}");
    }
    let (status, _, err) = run(&["bench", "--base-url", "http://127.0.0.1:1", "--model", "m"]);
    assert_eq!(status.code(), Some(1));
    assert!(err.contains("takes no connection"), "{err}");
    assert!(upstream.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_engine_is_asked_for_its_model_and_gives_the_lengths_asked_for() {
    let profile = Profile::load("test-fast").unwrap();
    let engines = server::start(EngineOptions::new(profile, 1)).await.unwrap();
    let url = format!("http://{}", engines.addrs()[0]);
    let left = tokio::task::spawn_blocking(move || {
        let lengths = ["--random-input-len", "50", "--random-output-len", "12"];
        let load = [
            "--max-concurrency",
            "8",
            "--num-prompts",
            "40",
            "--ignore-eos",
        ];
        bench(&url, &[&lengths[..], &load].concat())
    });
    let left = left.await.unwrap();
    assert!(left.status.success(), "{}", left.out);
    assert_eq!(left.result["model_id"], "test-fast");
    assert_eq!(left.result["backend"], "openai");
    assert_eq!(left.result["total_output_tokens"], 40 * 12);
    let lens = left.result["output_lens"].as_array().unwrap();
    assert!(lens.iter().all(|length| length == 12), "{lens:?}");
    assert_eq!(left.result["evenkeel"]["token_counts_from"]["usage"], 40);
    assert_eq!(left.result["evenkeel"]["tokens_per_chunk"], 1.0);
    assert!(
        left.out
            .contains("every prompt has 50 tokens and every answer has 12 tokens"),
        "{}",
        left.out
    );
    // Twelve tokens on steps of 1 ms and more, the first of them under way when the request comes.
    assert!(left.figure("median_e2el_ms") >= 11.0);
    engines.shutdown().await;
}
