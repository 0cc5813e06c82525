//! The promises of SECURITY.md and configs/README.md name the tests that hold them: each of those is there.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files under a folder whose names end so.
fn files(folder: &Path, ending: &str, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, into);
        } else if path.to_string_lossy().ends_with(ending) {
            into.push(path);
        }
    }
}

/// The functions under a test's attribute.
fn tests_in(source: &str) -> Vec<&str> {
    let mut tests = Vec::new();
    let mut attribute = false;
    for line in source.lines().map(str::trim_start) {
        attribute |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let name = line.strip_prefix("async ").unwrap_or(line);
        if let (true, Some(name)) = (attribute, name.strip_prefix("fn ")) {
            tests.push(name.split('(').next().unwrap());
            attribute = false;
        }
    }
    tests
}

/// What stands in back-quotes in the last column of each table that has a column `held by`.
fn holders(page: &str) -> Vec<String> {
    let mut holders = Vec::new();
    let mut in_table = false;
    for line in page.lines() {
        let row = line.strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let Some(last) = row.and_then(|row| row.rsplit('|').next()) else {
            in_table = false;
            continue;
        };
        if last.trim() == "held by" {
            in_table = true;
        } else if in_table && !last.contains("---") {
            let quoted = last.split('`').skip(1).step_by(2);
            let before = holders.len();
            holders.extend(quoted.map(str::to_owned));
            assert!(holders.len() > before, "held by nothing: {line}");
        }
    }
    holders
}

/// Whether a holder is a test, the beginning of some tests' names, or a file with tests.
fn is_there(holder: &str, tests: &BTreeSet<String>) -> bool {
    if let Some(beginning) = holder.strip_suffix('*') {
        return tests.iter().any(|name| name.starts_with(beginning));
    }
    if !holder.contains(['.', '/']) {
        return tests.contains(holder);
    }
    let folder = match holder {
        path if path.contains('/') => "",
        name if name.ends_with(".py") => "tests/real",
        _ => "tests/e2e",
    };
    let text = std::fs::read_to_string(root().join(folder).join(holder)).unwrap_or_default();
    match holder.rsplit_once('.') {
        Some((_, "rs")) => !tests_in(&text).is_empty(),
        Some((_, "py")) => text.contains("def test_"),
        _ => !text.is_empty(),
    }
}

#[test]
fn every_promise_names_tests_that_are_there() {
    let mut sources = Vec::new();
    for folder in ["src", "policies", "tests"] {
        files(&root().join(folder), ".rs", &mut sources);
    }
    let mut tests = BTreeSet::new();
    for path in sources {
        let source = std::fs::read_to_string(path).unwrap();
        tests.extend(tests_in(&source).into_iter().map(str::to_owned));
    }
    let mut missing = Vec::new();
    for page in ["SECURITY.md", "configs/README.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let holders = holders(&text);
        assert!(!holders.is_empty(), "{page} promises nothing");
        let gone = holders.iter().filter(|one| !is_there(one, &tests));
        missing.extend(gone.map(|holder| format!("{page}: {holder}")));
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}
