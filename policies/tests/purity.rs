//! The crate depends on nothing that can do I/O, read a clock or await.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

/// Each with its default features off where these bring I/O.
const ALLOWED: [&str; 5] = ["rand", "schemars", "serde", "slab", "thiserror"];

#[test]
fn dependencies_are_on_the_allow_list() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let manifest: toml::Table = toml::from_str(&text).unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    for name in dependencies.keys() {
        assert!(
            ALLOWED.contains(&name.as_str()),
            "{name} is not on the list"
        );
    }
    assert_eq!(
        dependencies["rand"]["default-features"].as_bool(),
        Some(false),
        "rand's defaults ask the system"
    );
    assert!(!manifest.contains_key("target") && !manifest.contains_key("build-dependencies"));
}

#[test]
fn the_source_names_nothing_that_does_io_reads_a_clock_or_awaits() {
    let forbidden = [
        "std::fs",
        "std::io",
        "std::net",
        "std::time",
        "std::env",
        "std::process",
        "std::thread",
        ".await",
        "HashMap",
    ];
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for word in forbidden {
            assert!(!text.contains(word), "{} names {word}", path.display());
        }
    }
}
