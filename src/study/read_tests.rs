#![allow(clippy::unwrap_used)]
use super::*;
use crate::load::sample::Failure;
use crate::report::latency::{FIGURES, Figure};
use crate::study::problem::Problem;
use serde_json::json;

const REQUEST: &str = r#"{"metadata":{"session_num":0,"x_request_id":"p-0","request_start_ns":1000000000,"request_ack_ns":1010000000,"request_end_ns":1165000000,"worker_id":"evenkeel","benchmark_phase":"profiling","was_cancelled":false,"planned_start_ns":999000000,"counted":true,"length":"short","planned_input_tokens":90,"planned_output_tokens":4},"metrics":{"time_to_first_token":{"value":100.0,"unit":"ms"},"time_per_output_token":{"value":20.0,"unit":"ms"},"inter_chunk_latency":{"value":[10.0,20.0,30.0],"unit":"ms"},"output_sequence_length":{"value":4,"unit":"tokens"},"input_sequence_length":{"value":93,"unit":"tokens"}},"error":null}"#;
const FAILED: &str = r#"{"metadata":{"session_num":1,"x_request_id":"p-1","request_start_ns":2000000000,"request_ack_ns":null,"request_end_ns":2500000000,"benchmark_phase":"warmup","planned_start_ns":2000000000,"counted":false,"length":"long"},"metrics":{},"error":{"code":503,"type":"refused","message":"refused_503"}}"#;

fn study_file(schema: u32) -> Value {
    json!({"schema": schema, "name": "s", "simulated": true, "seed": 1, "version": "0.1.0", "started_unix_ns": 1,
        "machine": {"system": "x", "cores": 2, "processor": null, "memory_bytes": null}, "plan_sha256": "", "objectives": ["ttft:500"],
        "attainment": 0.99, "gpu_hour_price": null})
}

fn point_file(order: u32) -> Value {
    json!({"schema": 1, "id": "x", "order": order, "started_unix_ns": 500000000, "seconds": 2.0, "setting": {
        "scenario": "online", "scaling": "horizontal", "instances": 1, "gpus_per_instance": 1,
        "load": {"kind": "closed", "concurrency": 4}, "load_per_instance": 4.0, "lengths": "mix", "policy": "random",
        "repeat": 0, "seed": 1, "variant": "base"}})
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.put("study.json", &study_file(1).to_string());
        folder
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self) -> Result<Study, StudyError> {
        Study::read(self.0.path())
    }
}

#[test]
fn a_point_comes_back_as_it_was_written() {
    let folder = Folder::new();
    folder.put("points/b/point.json", &point_file(1).to_string());
    folder.put("points/a/point.json", &point_file(0).to_string());
    folder.put("points/a/requests.jsonl", &format!("{FAILED}\n{REQUEST}\n"));
    folder.put(
        "points/a/monitor.jsonl",
        r#"{"at_s": 0.5, "source": "engine", "instance": "e", "figures": {"running": 3}}"#,
    );
    let record = |id: &str| {
        json!({"schema": 1, "request_id": id, "outcome": "ok", "start_s": 1.0, "path": "", "api": "chat", "stamp": "socket",
            "attempts": 1, "request_bytes": 1, "response_bytes": 1, "instance": "e", "server_ttft_ms": 98.5})
        .to_string()
    };
    let records = format!("{}\n{}\n", record("p-0"), record("batch-0"));
    folder.put("points/a/records.jsonl", &records);
    folder.put("points/a/result.json", &json!({"evenkeel": {"started_unix_ns": 500_000_000, "window":
        {"from_s": 0.25, "to_s": 1.0, "throughput_until_s": 1.5, "trim_s": 0.0, "issued_over_s": 0.75},
        "generator": {"cpu_share": 0.5, "cpu_us_per_event": null, "events": 7, "connections": 1, "stolen_share": null,
            "lag": null, "bottleneck": "cpu"}}}).to_string());
    let study = folder.read().unwrap();
    let ids: Vec<&str> = study
        .points
        .iter()
        .map(|point| point.file.id.as_str())
        .collect();
    assert_eq!(ids, ["a", "b"]);
    let point = &study.points[0];
    assert_eq!(point.problems, []);
    let first = &point.requests[0];
    let figure = |figure: Figure| figure.of(&first.sample);
    assert_eq!(
        (figure(Figure::Ttft), figure(Figure::Tpot)),
        (Some(100.0), Some(20.0))
    );
    assert_eq!(figure(Figure::E2elFromPlanned), Some(166.0));
    assert_eq!(first.sample.gaps_us, [10_000, 20_000, 30_000]);
    assert_eq!(
        (
            first.sample.planned_prompt_tokens,
            first.sample.prompt_tokens
        ),
        (90, Some(93))
    );
    assert_eq!(first.served.as_ref().unwrap().server_ttft_ms, Some(98.5));
    assert!(first.counted && !first.warm_up);
    let failed = &point.requests[1];
    assert_eq!(failed.sample.failure, Some(Failure::Refused));
    assert!(failed.warm_up && failed.served.is_none() && failed.bucket.name() == "long");
    assert!(
        FIGURES
            .iter()
            .all(|figure| figure.of(&failed.sample).is_none())
    );
    assert_eq!(point.others.len(), 1);
    assert_eq!(point.monitor[0].figures.running, Some(3.0));
    assert_eq!(point.window.unwrap().from_ns, 750_000_000);
    assert_eq!(point.at_s(point.window.unwrap().until_ns), 1.5);
    assert_eq!(point.generator.unwrap().events, 7);
}

#[test]
fn malformed_lines_and_missing_files_are_named_and_the_rest_is_read() {
    let folder = Folder::new();
    folder.put("points/a/point.json", &point_file(0).to_string());
    let bad = "{\"metadata\": 3}\n".repeat(20);
    folder.put(
        "points/a/requests.jsonl",
        &format!("{REQUEST}\nnot json\n{bad}{FAILED}"),
    );
    folder.put("points/b/requests.jsonl", REQUEST);
    folder.put("points/c/point.json", "{");
    let study = folder.read().unwrap();
    assert_eq!(study.unfinished, ["b", "c"]);
    assert_eq!(study.problems[0].file, "points/c/point.json");
    let point = &study.points[0];
    assert_eq!(point.requests.len(), 2);
    let lines: Vec<u64> = point
        .problems
        .iter()
        .filter_map(|problem| problem.line)
        .collect();
    assert_eq!((lines[0], lines.len()), (2, 10));
    let said = |word: &str| {
        point
            .problems
            .iter()
            .any(|problem: &Problem| problem.to_string().contains(word))
    };
    assert!(said("points/a/requests.jsonl:2:") && said("21 lines in all"));
    assert!(
        said("points/a/records.jsonl: cannot be read")
            && said("result.json")
            && said("monitor.jsonl")
    );
    assert!(point.generator.is_none());
    // without the run's own window it is what the counted requests span
    assert_eq!(point.window.unwrap().until_ns, 1_165_000_000);
}

#[test]
fn a_later_schema_is_refused_in_words() {
    let folder = Folder::new();
    folder.put("study.json", &study_file(2).to_string());
    let said = folder.read().unwrap_err().to_string();
    assert!(
        said.contains("schema is 2") && said.contains("up to 1"),
        "{said}"
    );
    folder.put("study.json", &study_file(1).to_string());
    let mut point = point_file(0);
    point["schema"] = json!(9);
    folder.put("points/a/point.json", &point.to_string());
    assert!(
        folder
            .read()
            .unwrap_err()
            .to_string()
            .contains("schema is 9")
    );
}

#[test]
fn a_folder_that_is_no_study_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let said = Study::read(dir.path()).unwrap_err().to_string();
    assert!(
        said.contains("study.json") && said.contains("evenkeel sweep"),
        "{said}"
    );
}
