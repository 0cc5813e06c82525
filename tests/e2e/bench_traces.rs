//! `evenkeel bench --trace`, one format after the other: what reaches a server over a socket, and what the
//! result says of it, against the rows of the file as this test reads them.
//!
//! Bounds: the planned times are the file's, scaled, to a microsecond (within the tick where the clock is
//! coarse); lengths are the file's to the token. Rate and CV are of the times at which requests were
//! issued: within 1 % and 5 % of the file's, and what the lateness that was measured can make of that, so
//! that a busy machine breaks nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::child::run;
use crate::support::proxy::Dir;
use crate::support::reply::Reply;
use crate::support::upstream::{Script, Upstream};

/// Bounds of the issued traffic, relative, before lateness.
const RATE: f64 = 0.01;
const GAP_CV: f64 = 0.05;
/// Half of all requests are issued no later than this, in nanoseconds, however busy the machine is.
const LATE_NS: f64 = 1e9;
/// Every replay is scaled to last so long, in seconds.
const SPAN_S: f64 = 2.0;

/// A row of a file: when, in nanoseconds of its own clock, and its lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    at_ns: i64,
    prompt: u64,
    output: u64,
}

fn extract(name: &str) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    traces.join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(extract(name)).unwrap()
}

/// Seconds in decimals, to the nanosecond and not by way of a float.
fn seconds_ns(text: &str) -> i64 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = format!("{fraction:0<9}");
    whole.parse::<i64>().unwrap() * 1_000_000_000 + fraction[..9].parse::<i64>().unwrap()
}

/// Time of the day of `2023-11-16 18:15:46.6805900` or `2024-05-12T00:00:00.25+00:00`.
fn clock_ns(text: &str) -> i64 {
    let clock = text.split([' ', 'T']).nth(1).unwrap();
    let clock = clock.split('+').next().unwrap();
    let parts: Vec<&str> = clock.split(':').collect();
    let minutes = parts[0].parse::<i64>().unwrap() * 60 + parts[1].parse::<i64>().unwrap();
    minutes * 60_000_000_000 + seconds_ns(parts[2])
}

/// Rows of a table: columns by name, and how its times are written.
fn table(name: &str, columns: [&str; 3], time: fn(&str) -> i64) -> Vec<Row> {
    let text = text(name);
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|column| *column == name);
    let [at, prompt, output] = columns.map(column);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Row {
            at_ns: at.map_or(0, |at| time(fields[at])),
            prompt: fields[prompt.unwrap()].parse().unwrap(),
            output: fields[output.unwrap()].parse().unwrap(),
        }
    };
    lines.map(row).filter(|row| row.output > 0).collect()
}

/// Rows of JSON lines, each read by `row`.
fn json_lines(name: &str, row: fn(&Value) -> Row) -> Vec<Row> {
    let text = text(name);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.map(|line: Value| row(&line)).collect()
}

/// A row whose times are numbers of so many nanoseconds each.
fn lengths(line: &Value, unit: f64) -> Row {
    Row {
        at_ns: (line["timestamp"].as_f64().unwrap() * unit).round() as i64,
        prompt: line["input_length"].as_u64().unwrap(),
        output: line["output_length"].as_u64().unwrap(),
    }
}

/// A record: a request that got no answer was to have the length that was predicted.
fn record(line: &Value) -> Row {
    let first = |keys: [&str; 2]| keys.iter().find_map(|key| line[key].as_u64()).unwrap();
    Row {
        at_ns: seconds_ns(&line["start_s"].to_string()),
        prompt: first(["prompt_tokens", "prompt_tokens_est"]),
        output: first(["output_tokens", "output_tokens_predicted"]),
    }
}

fn spans(name: &str) -> Vec<Row> {
    let document: Value = serde_json::from_str(&text(name)).unwrap();
    let spans = document["spans"].as_array().unwrap().iter();
    let row = |span: &Value| {
        let usage = |what: &str| span["attributes"][format!("gen_ai.usage.{what}_tokens")].as_u64();
        Row {
            at_ns: clock_ns(span["start_time"].as_str().unwrap()),
            prompt: usage("prompt").unwrap(),
            output: usage("completion").unwrap(),
        }
    };
    spans.map(row).collect()
}

/// Requests per second and the CV of the gaps, of times in nanoseconds, ascending.
fn rate_and_cv(times_ns: &[f64]) -> (f64, f64) {
    let gaps: Vec<f64> = times_ns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (count, sum) = (gaps.len() as f64, gaps.iter().sum::<f64>());
    let mean = sum / count;
    let square: f64 = gaps.iter().map(|gap| (gap - mean).powi(2)).sum();
    (1e9 / mean, (square / count).sqrt() / mean)
}

fn close(is: f64, was: f64, bound: f64, what: &str) {
    assert!(
        (is - was).abs() <= bound,
        "{what} is {is}, and was to be {was} within {bound}"
    );
}

/// A run: what it printed, its result, its requests in the order of the plan, and what the server got.
struct Run {
    out: String,
    result: Value,
    lines: Vec<Value>,
    got: Vec<(u64, u64)>,
}

impl Run {
    fn of(trace: &Path, options: &[&str]) -> Run {
        let upstream = Script::new(|_| Reply::chat("ok")).start();
        let dir = Dir::new();
        let (result, lines) = (dir.0.join("r.json"), dir.0.join("r.jsonl"));
        let url = upstream.url();
        let mut args = vec!["bench", "--base-url", &url, "--backend", "openai-chat"];
        args.extend(["--model", "m", "--trace", trace.to_str().unwrap()]);
        args.extend(["--save-result", result.to_str().unwrap()]);
        args.extend(["--requests-jsonl", lines.to_str().unwrap()]);
        args.extend(options);
        let (status, out, err) = run(&args);
        assert!(status.success(), "{out}{err}");
        let lines = std::fs::read_to_string(lines).unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let mut lines: Vec<Value> = lines.collect();
        lines.sort_by_key(|line| line["metadata"]["session_num"].as_u64());
        Run {
            out,
            result: serde_json::from_slice(&std::fs::read(result).unwrap()).unwrap(),
            lines,
            got: got(&upstream),
        }
    }

    /// A stamp of every request, nanoseconds after the first one that was planned.
    fn stamps_ns(&self, name: &str) -> Vec<f64> {
        let stamp = |line: &Value, name: &str| line["metadata"][name].as_i64().unwrap();
        let first_ns = stamp(&self.lines[0], "planned_start_ns");
        let stamps = self.lines.iter().map(|line| stamp(line, name));
        // wall time in nanoseconds does not fit a float
        stamps.map(|at_ns| (at_ns - first_ns) as f64).collect()
    }

    fn number(&self, pointer: &str) -> f64 {
        let number = self.result.pointer(pointer).and_then(Value::as_f64);
        number.unwrap_or_else(|| panic!("no {pointer} in {}", self.result))
    }

    /// Times and lengths against those of a file's rows, in order of time.
    fn agrees(&self, rows: &[Row], scale: f64, tick_ns: f64) {
        self.has_lengths_of(rows);
        let file_ns: Vec<f64> = rows.iter().map(|row| row.at_ns as f64).collect();
        let due_ns = |at_ns: f64| (at_ns - file_ns[0]) * scale;
        let planned_ns = self.stamps_ns("planned_start_ns");
        let tick_ns = tick_ns * scale;
        for (at_ns, planned_ns) in file_ns.iter().zip(&planned_ns) {
            // the first may lie anywhere in its tick, and the others are counted from it
            close(*planned_ns, due_ns(*at_ns), tick_ns + 1e3, "planned time");
        }
        let source = rate_and_cv(&file_ns);
        self.is_issued_like((source.0 / scale, source.1), &planned_ns, tick_ns);
    }

    /// The issued times: those of the plan but for lateness, and so with the source's rate and CV.
    fn is_issued_like(&self, (rate, cv): (f64, f64), planned_ns: &[f64], tick_ns: f64) {
        let mut issued_ns = self.stamps_ns("request_start_ns");
        let late = issued_ns.iter().zip(planned_ns).map(|(is, was)| is - was);
        let mut late_ns: Vec<f64> = late.collect();
        late_ns.sort_by(f64::total_cmp);
        assert!(
            late_ns[0] >= -1e3,
            "issued {} ns after its time",
            late_ns[0]
        );
        assert!(late_ns[late_ns.len() / 2] < LATE_NS, "{late_ns:?}");
        let latest_ns = late_ns[late_ns.len() - 1].max(0.0);
        issued_ns.sort_by(f64::total_cmp);
        let (is_rate, is_cv) = rate_and_cv(&issued_ns);
        close(
            self.number("/evenkeel/sent/traffic/rate_per_s"),
            is_rate,
            is_rate * 1e-6,
            "told rate",
        );
        close(
            self.number("/evenkeel/sent/traffic/gap_cv"),
            is_cv,
            1e-6,
            "told CV",
        );
        // A request moves by its lateness, and by a tick where those are spread; the ends' moves change the
        // rate, and no gap changes by more than the two moves at its ends.
        let (moved_ns, span_ns) = (
            latest_ns + tick_ns,
            1e9 * (issued_ns.len() - 1) as f64 / rate,
        );
        let least_ns = (span_ns - moved_ns).max(1.0);
        close(is_rate, rate, rate * (RATE + moved_ns / least_ns), "rate");
        if tick_ns == 0.0 {
            let gap_ns = 1e9 / rate;
            let by_late = latest_ns / gap_ns * (1.0 + cv);
            close(is_cv, cv, cv * GAP_CV + by_late, "CV of the gaps");
        }
    }

    /// What the server was asked for, and the quantiles that are told of it, are the rows' to the token.
    fn has_lengths_of(&self, rows: &[Row]) {
        let mut asked: Vec<(u64, u64)> = rows.iter().map(|row| (row.prompt, row.output)).collect();
        let mut got = self.got.clone();
        asked.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, asked);
        assert_eq!(self.result["completed"], rows.len());
        for side in ["prompt", "output"] {
            let of = |row: &Row| {
                if side == "prompt" {
                    row.prompt
                } else {
                    row.output
                }
            };
            let mut lengths: Vec<u64> = rows.iter().map(of).collect();
            lengths.sort_unstable();
            for (name, percent) in [
                ("p50", 50),
                ("p90", 90),
                ("p95", 95),
                ("p99", 99),
                ("max", 100),
            ] {
                // the least that so many of all are not above
                let rank = (lengths.len() * percent).div_ceil(100);
                let told = &self.result["evenkeel"]["sent"]["traffic"][side][name];
                assert_eq!(*told, lengths[rank - 1], "{name} of {side} tokens");
            }
        }
    }
}

/// Words of the prompt, and tokens asked for, of each request that came.
fn got(upstream: &Upstream) -> Vec<(u64, u64)> {
    let got = upstream.requests().into_iter().map(|request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let text = body["messages"][0]["content"].as_str().unwrap();
        let words = text.split_whitespace().count() as u64;
        (words, body["max_tokens"].as_u64().unwrap())
    });
    got.collect()
}

/// Replays a whole extract at its own times, scaled, and holds it against the rows.
fn replays(name: &str, mut rows: Vec<Row>, tick_s: Option<f64>) {
    rows.sort_by_key(|row| row.at_ns);
    let span_ns = (rows[rows.len() - 1].at_ns - rows[0].at_ns) as f64;
    let scale = SPAN_S * 1e9 / span_ns;
    let run = Run::of(&extract(name), &["--time-scale", &scale.to_string()]);
    let trace = &run.result["evenkeel"]["trace"];
    assert_eq!(trace["tick_s"].as_f64(), tick_s, "{trace}");
    assert_eq!(trace["differences"], serde_json::json!([]), "the plan");
    assert_eq!(trace["malformed"]["count"], 0);
    run.agrees(&rows, scale, tick_s.unwrap_or(0.0) * 1e9);
}

const AZURE: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];
const BURSTGPT: [&str; 3] = ["Timestamp", "Request tokens", "Response tokens"];
const SHAREGPT: [&str; 3] = ["none", "num_prefill_tokens", "num_decode_tokens"];

#[test]
fn own_records_are_replayed_as_they_were() {
    replays("records.jsonl", json_lines("records.jsonl", record), None);
}

#[test]
fn azures_traces_are_replayed_as_they_were() {
    for name in [
        "azure2023_conv.csv",
        "azure2023_code.csv",
        "made_up_azure2024.csv",
    ] {
        replays(name, table(name, AZURE, clock_ns), None);
    }
}

#[test]
fn mooncakes_traces_are_replayed_as_they_were() {
    let rows = |name| json_lines(name, |line| lengths(line, 1e6));
    let (coarse, fine) = ("mooncake_conversation.jsonl", "mooncake_synthetic.jsonl");
    replays(coarse, rows(coarse), Some(3.0));
    replays(fine, rows(fine), None);
}

#[test]
fn bailians_traces_are_replayed_as_they_were() {
    let name = "made_up_bailian.jsonl";
    replays(name, json_lines(name, |line| lengths(line, 1e9)), None);
}

#[test]
fn burstgpts_traces_are_replayed_as_they_were() {
    for name in ["made_up_burstgpt.csv", "made_up_burstgpt_sessions.csv"] {
        replays(name, table(name, BURSTGPT, seconds_ns), Some(1.0));
    }
}

#[test]
fn spans_are_replayed_as_they_were() {
    let name = "otel_prefix_sharing.json";
    replays(name, spans(name), None);
}

#[test]
fn lengths_without_times_are_all_sent_at_the_rate_asked_for() {
    let name = "lengths_sharegpt.csv";
    let even = ["--request-rate", "50", "--burstiness", "inf"];
    let run = Run::of(
        &extract(name),
        &[&even[..], &["--num-prompts", "100"]].concat(),
    );
    run.has_lengths_of(&table(name, SHAREGPT, seconds_ns));
    let planned_ns = run.stamps_ns("planned_start_ns");
    let (rate, cv) = rate_and_cv(&planned_ns);
    close(rate, 50.0, 1e-3, "rate of the plan");
    run.is_issued_like((50.0, cv), &planned_ns, 0.0);
}

/// A length's share, as ServeGen writes it: `{23: 0.0004, 24: 0.011}`.
fn shares(text: &str) -> BTreeMap<u64, f64> {
    let pairs = text.trim_matches(['{', '}']).split(", ");
    let pairs = pairs.map(|pair| pair.split_once(": ").unwrap());
    pairs
        .map(|(length, share)| (length.parse().unwrap(), share.parse().unwrap()))
        .collect()
}

/// The greatest distance of what came from what was to be drawn from, as shares up to a length.
fn distance(shares: &BTreeMap<u64, f64>, drawn: &[u64]) -> f64 {
    let whole: f64 = shares.values().sum();
    let known = drawn.iter().all(|length| shares.contains_key(length));
    assert!(known, "lengths that the file does not have: {drawn:?}");
    let (mut wanted, mut greatest) = (0.0, 0.0_f64);
    for (length, share) in shares {
        wanted += share / whole;
        let up_to = drawn.iter().filter(|drawn| *drawn <= length).count();
        greatest = greatest.max((up_to as f64 / drawn.len() as f64 - wanted).abs());
    }
    greatest
}

/// Bounds of n draws: the count within three standard errors of gaps that vary as the window's do, and lengths
/// within Kolmogorov's 1.63/√n. The seed is fixed, so chance cannot break it.
#[test]
fn servegens_rates_and_lengths_are_drawn_as_the_files_have_them() {
    let (rates, lengths) = (
        "servegen_m-small_client14_trace.csv",
        "servegen_m-small_client14_dataset.json",
    );
    let rates_text = text(rates);
    let window: Vec<&str> = rates_text.lines().next().unwrap().split(',').collect();
    let (rate, cv): (f64, f64) = (window[1].parse().unwrap(), window[2].parse().unwrap());
    let lengths_path = extract(lengths);
    let options = ["--trace-lengths", lengths_path.to_str().unwrap()];
    let part = ["--trace-until-s", "600", "--trace-rate-scale", "0.05"];
    let pace = ["--time-scale", "0.006"];
    let run = Run::of(&extract(rates), &[&options[..], &part, &pace].concat());
    let (wanted, came) = (rate * 0.05 * 600.0, run.got.len() as f64);
    close(
        came,
        wanted,
        3.0 * cv * wanted.sqrt(),
        "requests of the window",
    );
    let planned_ns = run.stamps_ns("planned_start_ns");
    run.is_issued_like(rate_and_cv(&planned_ns), &planned_ns, 0.0);
    let document: Value = serde_json::from_str(&text(lengths)).unwrap();
    let shares = |of: &str| shares(document["0"][of].as_str().unwrap());
    let (prompts, outputs): (Vec<u64>, Vec<u64>) = run.got.iter().copied().unzip();
    let bound = 1.63 / came.sqrt();
    close(
        distance(&shares("input_tokens"), &prompts),
        0.0,
        bound,
        "prompts",
    );
    close(
        distance(&shares("output_tokens"), &outputs),
        0.0,
        bound,
        "outputs",
    );
}

/// Bad rows put into a good file, each before the line that has its number.
fn with_rows(name: &str, bad: &[(usize, &str)]) -> String {
    let text = text(name);
    let mut lines: Vec<&str> = text.lines().take(12).collect();
    for (line, row) in bad {
        lines.insert(line - 1, row);
    }
    lines.join("\n") + "\n"
}

/// Replays a file with bad rows: each is told by file and line, all are counted, and the others are sent.
fn tells(file: &str, text: &str, bad_lines: &[usize], options: &[&str]) {
    let dir = Dir::new();
    let path = dir.0.join(file);
    std::fs::write(&path, text).unwrap();
    tells_of(&path, &path, bad_lines, options);
}

/// The same of a trace of which `bad` is the file with bad rows.
fn tells_of(trace: &Path, bad: &Path, bad_lines: &[usize], options: &[&str]) {
    let run = Run::of(trace, options);
    let bad = bad.display().to_string();
    for line in bad_lines {
        let place = format!("{bad}, line {line}: ");
        assert!(run.out.contains(&place), "no {place} in {}", run.out);
    }
    let trace = &run.result["evenkeel"]["trace"];
    let malformed = &trace["malformed"];
    assert_eq!(malformed["count"], bad_lines.len(), "{trace}");
    let first = malformed["first"].as_array().unwrap().iter();
    let named: Vec<(&str, u64)> = first
        .map(|row| (row["file"].as_str().unwrap(), row["line"].as_u64().unwrap()))
        .collect();
    let wanted = bad_lines.iter().map(|line| (bad.as_str(), *line as u64));
    assert_eq!(named, wanted.collect::<Vec<_>>());
    assert_eq!(run.result["completed"], run.got.len());
    assert!(!run.got.is_empty());
    if trace["name"].as_str() == Some(&bad) {
        let unused = bad_lines.len() as u64 + trace["rows_left_out"]["count"].as_u64().unwrap();
        assert_eq!(
            trace["rows"],
            run.got.len() as u64 + unused,
            "a row is not counted"
        );
    }
}

const FAST: [&str; 2] = ["--time-scale", "0.001"];

#[test]
fn bad_rows_of_tables_are_told_by_line_and_counted() {
    let bad = [
        (3, "no time,5,6"),
        (5, "1,2"),
        (9, "2023-11-16 18:15:51,-4,7"),
    ];
    let lines = bad.map(|(line, _)| line);
    for name in ["azure2023_conv.csv", "made_up_azure2024.csv"] {
        tells(name, &with_rows(name, &bad), &lines, &FAST);
    }
    let bad = [
        (2, "5,ChatGPT,some,18,490,API log"),
        (4, "soon,ChatGPT,1,2,3,API log"),
    ];
    let name = "made_up_burstgpt.csv";
    tells(name, &with_rows(name, &bad), &[2, 4], &FAST);
    let name = "lengths_sharegpt.csv";
    let rate = ["--request-rate", "500"];
    tells(
        name,
        &with_rows(name, &[(2, "1,2"), (7, "1.5,2,3.5,0.75")]),
        &[2, 7],
        &rate,
    );
}

#[test]
fn bad_rows_of_json_lines_are_told_by_line_and_counted() {
    let cut = "{\"timestamp\": 3000, \"input_length\": 600, \"hash_ids\": [46";
    let bad = [(2, cut), (4, "{\"timestamp\": \"soon\"}"), (5, "[1]")];
    for name in [
        "mooncake_conversation.jsonl",
        "made_up_bailian.jsonl",
        "records.jsonl",
    ] {
        tells(name, &with_rows(name, &bad), &[2, 4, 5], &FAST);
    }
}

#[test]
fn bad_spans_are_told_by_line_and_counted() {
    let name = "otel_prefix_sharing.json";
    let text = text(name);
    let line_of = |word: &str| text.lines().position(|line| line.contains(word)).unwrap() + 1;
    // the span begins with its brace, five lines above its start
    let line = line_of("start_time") - 6;
    assert_eq!(text.lines().nth(line - 1).map(str::trim), Some("{"));
    tells(
        name,
        &text.replacen("2026-02-26T10:00:00.000000+00:00", "some day", 1),
        &[line],
        &FAST,
    );
}

#[test]
fn bad_windows_of_servegen_are_told_by_line_and_counted() {
    let (rates, lengths) = (
        "servegen_m-small_client14_trace.csv",
        "servegen_m-small_client14_dataset.json",
    );
    let part = ["--trace-until-s", "30", "--time-scale", "0.01"];
    let dir = Dir::new();
    let (bad_rates, bad_lengths) = (dir.0.join(rates), dir.0.join(lengths));
    let rows = with_rows(
        rates,
        &[(2, "600,much,1,Gamma,1,1"), (5, "1800,1,1,Normal,1,1")],
    );
    std::fs::write(&bad_rates, rows).unwrap();
    let good = extract(lengths);
    let with_good = ["--trace-lengths", good.to_str().unwrap()];
    tells_of(
        &bad_rates,
        &bad_rates,
        &[2, 5],
        &[&with_good[..], &part].concat(),
    );
    let text = text(lengths);
    let second = text.lines().position(|line| line.contains("\"21600\": {"));
    let second = second.unwrap() + 1;
    let at = text.find("\"21600\"").unwrap();
    let broken = text[at..].replacen("\"{", "\"{x: 1, ", 1);
    std::fs::write(&bad_lengths, format!("{}{broken}", &text[..at])).unwrap();
    let with_bad = ["--trace-lengths", bad_lengths.to_str().unwrap()];
    tells_of(
        &extract(rates),
        &bad_lengths,
        &[second],
        &[&with_bad[..], &part].concat(),
    );
}
