//! `evenkeel bench --trace`: the requests of a trace, as the server gets them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::child::run;
use crate::support::proxy::Dir;
use crate::support::reply::Reply;
use crate::support::upstream::{Script, Upstream};

fn trace(name: &str) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    traces.join(name)
}

/// What a run printed, and its result.
fn replay(upstream: &Upstream, trace: &Path, options: &[&str]) -> (String, Value) {
    let dir = Dir::new();
    let result = dir.0.join("r.json");
    let url = upstream.url();
    let mut args = vec!["bench", "--base-url", &url, "--backend", "openai-chat"];
    args.extend(["--model", "m", "--trace", trace.to_str().unwrap()]);
    args.extend(["--save-result", result.to_str().unwrap()]);
    args.extend(options);
    let (status, out, err) = run(&args);
    assert!(status.success(), "{out}{err}");
    (
        out,
        serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap(),
    )
}

/// How a run ended that was not to begin, and what it said.
fn refused(upstream: &Upstream, trace: &Path) -> (Option<i32>, String) {
    let (url, trace) = (upstream.url(), trace.to_str().unwrap());
    let options = ["--base-url", &url, "--model", "m", "--trace", trace];
    let (status, _, err) = run(&[&["bench"][..], &options].concat());
    (status.code(), err)
}

/// Prompt and output tokens of each request, as they were asked for.
fn asked(upstream: &Upstream) -> Vec<(usize, u64)> {
    let asked = upstream.requests().into_iter().map(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let text = body["messages"][0]["content"].as_str().unwrap();
        let words = text.split_whitespace().count();
        (words, body["max_tokens"].as_u64().unwrap())
    });
    asked.collect()
}

fn answering() -> Upstream {
    Script::new(|_| Reply::chat("ok")).start()
}

/// The lengths in the first rows of a trace of Azure's.
fn rows(path: &Path, count: usize) -> Vec<(usize, u64)> {
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().skip(1).take(count).map(|row| {
        let mut columns = row.split(',').skip(1);
        let mut number = || columns.next().unwrap().trim().to_owned();
        (number().parse().unwrap(), number().parse().unwrap())
    });
    rows.collect()
}

#[test]
fn a_trace_is_sent_row_by_row_at_its_own_times() {
    let (upstream, path) = (answering(), trace("azure2023_code.csv"));
    // one after the other, so that they come in order
    let pace = ["--time-scale", "0.05", "--max-concurrency", "1"];
    let (out, result) = replay(
        &upstream,
        &path,
        &[&pace[..], &["--num-prompts", "20"]].concat(),
    );
    assert_eq!(asked(&upstream), rows(&path, 20));
    assert_eq!(result["completed"], 20);
    let told = &result["evenkeel"]["trace"];
    assert_eq!(
        (&told["planned"]["requests"], &told["time_scale"]),
        (&20.into(), &0.05.into())
    );
    assert_eq!(told["differences"], serde_json::json!([]));
    let sent = &result["evenkeel"]["sent"];
    assert_eq!(sent["traffic"]["requests"], 20);
    assert_eq!(
        sent["traffic"]["prompt"], told["source"]["prompt"],
        "lengths as in the trace"
    );
    for words in ["the trace's own times, multiplied by 0.05", "left out:"] {
        assert!(out.contains(words), "no {words} in {out}");
    }
}

#[test]
fn a_trace_without_times_is_sent_at_a_rate_and_refused_without_one() {
    let (upstream, path) = (answering(), trace("lengths_sharegpt.csv"));
    let rate = ["--request-rate", "500", "--num-prompts", "40"];
    let (_, result) = replay(&upstream, &path, &rate);
    assert_eq!(
        (asked(&upstream).len(), &result["completed"]),
        (40, &40.into())
    );
    let (code, err) = refused(&upstream, &path);
    assert_eq!(code, Some(2));
    assert!(
        err.contains("no times of its own: give --request-rate"),
        "{err}"
    );
}

#[test]
fn what_of_a_trace_cannot_be_sent_is_told_by_line() {
    let upstream = answering();
    let (out, result) = replay(
        &upstream,
        &trace("malformed_azure.csv"),
        &["--time-scale", "0.01"],
    );
    assert!(
        out.contains("rows cannot be read") && out.contains("malformed_azure.csv, line "),
        "{out}"
    );
    assert_eq!(result["completed"], asked(&upstream).len());
    let (code, err) = refused(&upstream, Path::new("/nowhere/t.csv"));
    assert_eq!(code, Some(1));
    assert!(err.contains("/nowhere/t.csv"), "{err}");
}

#[test]
fn what_was_sent_is_held_against_the_trace() {
    // one at a time to a server that takes longer than the trace's gaps: the rate cannot be the trace's
    let slow = Script::new(|_| Reply::paced_chat(3, Duration::from_millis(40))).start();
    let pace = [
        "--time-scale",
        "0.01",
        "--max-concurrency",
        "1",
        "--num-prompts",
        "12",
    ];
    let (out, result) = replay(&slow, &trace("azure2023_code.csv"), &pace);
    let unlike = result["evenkeel"]["sent"]["differences"].to_string();
    assert!(unlike.contains("rate (requests per second)"), "{unlike}");
    assert!(out.contains("unlike the trace: rate"), "{out}");
}

#[test]
fn requests_are_drawn_from_servegens_rates_and_lengths() {
    let (upstream, rates) = (answering(), trace("servegen_m-small_client14_trace.csv"));
    let lengths = trace("servegen_m-small_client14_dataset.json");
    let lengths = ["--trace-lengths", lengths.to_str().unwrap()];
    // 19.05 requests a second in the first window
    let part = ["--trace-until-s", "20", "--time-scale", "0.05"];
    let (_, result) = replay(&upstream, &rates, &[&lengths[..], &part].concat());
    let sent = asked(&upstream);
    assert_eq!(result["completed"], sent.len());
    assert!((200..600).contains(&sent.len()), "{}", sent.len());
    assert!(sent.iter().all(|(prompt, _)| (18..=110).contains(prompt)));
    assert_eq!(
        result["evenkeel"]["trace"]["differences"],
        serde_json::json!([])
    );
}

#[test]
fn rates_and_lengths_are_asked_for_together() {
    let upstream = answering();
    let (code, err) = refused(&upstream, &trace("servegen_m-small_client14_trace.csv"));
    assert_eq!(code, Some(2));
    assert!(err.contains("give --trace-lengths"), "{err}");
    let requests = trace("azure2023_code.csv");
    let lengths = trace("servegen_m-small_client14_dataset.json");
    let (url, requests) = (upstream.url(), requests.to_str().unwrap().to_owned());
    let options = [
        "bench",
        "--base-url",
        &url,
        "--model",
        "m",
        "--trace",
        &requests,
    ];
    let lengths = ["--trace-lengths", lengths.to_str().unwrap()];
    let (status, _, err) = run(&[&options[..], &lengths].concat());
    assert_eq!(status.code(), Some(2));
    assert!(err.contains("lengths of their own"), "{err}");
}
