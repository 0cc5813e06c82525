//! Reads the wire files: bytes, their segments in time, and the values that must come out.
//!
//! Include it with `#[path = ...] mod wire;`.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

/// One wire file and its sidecar.
pub struct WireFile {
    pub name: String,
    pub kind: String,
    pub api: String,
    pub status: u16,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub bytes: Vec<u8>,
    pub segment_ms: Vec<u64>,
    pub segment_end: Vec<usize>,
    pub expect: toml::Table,
    pub timing: toml::Table,
}

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/wire")
}

/// All wire files, by name.
pub fn all() -> Vec<WireFile> {
    let mut names: Vec<PathBuf> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    names.sort();
    names.iter().map(read).collect()
}

/// One wire file by name, without `.toml`.
pub fn one(name: &str) -> WireFile {
    read(&directory().join(format!("{name}.toml")))
}

fn read(path: &PathBuf) -> WireFile {
    let sidecar: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let text = |key: &str| {
        sidecar
            .get(key)
            .and_then(|value| value.as_str())
            .map(str::to_owned)
    };
    let numbers = |key: &str| -> Vec<u64> {
        let list = sidecar.get(key).and_then(|value| value.as_array());
        list.into_iter()
            .flatten()
            .map(|value| value.as_integer().unwrap() as u64)
            .collect()
    };
    let name = text("file").unwrap();
    let table = |value: Option<&toml::Value>| -> toml::Table {
        value
            .and_then(|value| value.as_table())
            .cloned()
            .unwrap_or_default()
    };
    let mut expect = table(sidecar.get("expect"));
    let timing = table(expect.remove("timing").as_ref());
    WireFile {
        bytes: std::fs::read(path.with_file_name(&name)).unwrap(),
        name,
        kind: text("kind").unwrap(),
        api: text("api").unwrap_or_default(),
        status: sidecar
            .get("status")
            .and_then(|value| value.as_integer())
            .unwrap_or(200) as u16,
        content_type: text("content_type"),
        content_encoding: text("content_encoding"),
        segment_ms: numbers("segment_ms"),
        segment_end: numbers("segment_end")
            .iter()
            .map(|&end| end as usize)
            .collect(),
        expect,
        timing,
    }
}

impl WireFile {
    /// The bytes by segment, with their time.
    pub fn segments(&self) -> Vec<(u64, &[u8])> {
        let starts = std::iter::once(0).chain(self.segment_end.iter().copied());
        let parts = starts
            .zip(&self.segment_end)
            .map(|(start, &end)| &self.bytes[start..end]);
        self.segment_ms.iter().copied().zip(parts).collect()
    }
}
