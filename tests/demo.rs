//! `evenkeel demo` from the command line to its files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of this test's own, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("evenkeel-demo-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn demo(out: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .arg("demo")
        .arg("--out")
        .arg(out)
        .args(more)
        .output()
        .unwrap()
}

fn records(dir: &Path) -> Vec<serde_json::Value> {
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let of_records = files.filter(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("records-")
    });
    let lines = of_records.flat_map(|path| {
        std::fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    lines
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect()
}

#[test]
fn a_short_demo_leaves_a_summary_that_agrees_with_its_records() {
    let folder = Folder::new("short");
    let output = demo(
        &folder.0,
        &[
            "--seconds",
            "2",
            "--rate",
            "20",
            "--policies",
            "round_robin,lanes",
        ],
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let summary: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.0.join("summary.json")).unwrap())
            .unwrap();
    let policies = summary["policies"].as_array().unwrap();
    let names: Vec<_> = policies
        .iter()
        .map(|policy| policy["policy"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["round_robin", "lanes"]);
    for policy in policies {
        let records = records(&folder.0.join(policy["policy"].as_str().unwrap()));
        let measured = policy["requests"].as_u64().unwrap();
        // The warm-up is in the records and not in the summary.
        assert!(
            measured > 0 && measured < records.len() as u64,
            "{measured} of {}",
            records.len()
        );
        assert_eq!(policy["failed"], 0);
        assert_eq!(policy["timing"]["without_record"], 0);
        let counted: u64 = policy["instances"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["requests"].as_u64().unwrap())
            .sum();
        assert_eq!(counted, measured);
        assert!(records.iter().all(|record| record["outcome"] == "ok"));
    }
    // The same plan for both.
    assert_eq!(policies[0]["requests"], policies[1]["requests"]);
    assert!(
        text.contains("too few requests for an interval"),
        "2 s allow no verdict:\n{text}"
    );
}

#[test]
fn results_are_never_written_over_others() {
    let folder = Folder::new("taken");
    std::fs::write(folder.0.join("keep"), "mine").unwrap();
    let output = demo(&folder.0, &["--seconds", "1"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}
