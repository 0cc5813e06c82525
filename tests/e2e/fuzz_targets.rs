//! The fuzz targets over their corpus: the wire files, traces and configurations, cut short and with bytes changed.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

#[path = "../fuzz/targets.rs"]
mod targets;

const CHANGED_EACH: usize = 30;

fn corpus() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for dir in ["tests/wire", "tests/traces", "configs"] {
        for entry in std::fs::read_dir(root.join(dir)).unwrap() {
            files.extend(Some(entry.unwrap().path()).filter(|path| path.is_file()));
        }
    }
    files.sort();
    let texts = files.iter().map(|file| std::fs::read(file).unwrap());
    let heads: [&[u8]; 3] = [
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://b/v1/models HTTP/1.1\r\nhost: a\r\naccept: */*\r\n\r\n",
    ];
    let heads = heads.iter().map(|head| head.to_vec());
    // no longer than what a fuzzer tries, for every target reads each many times
    texts
        .map(|mut text| {
            text.truncate(8 * 1024);
            text
        })
        .chain(heads)
        .collect()
}

/// Cut short, with a byte changed, one put in, or one taken out.
fn changed(input: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut input = input[..random.random_range(0..=input.len())].to_vec();
    for _ in 0..random.random_range(0..4) {
        if input.is_empty() {
            break;
        }
        let at = random.random_range(0..input.len());
        let byte = b"\r\n:{}\"\\ ,\0\xff0"[random.random_range(0..12)];
        match random.random_range(0..3) {
            0 => input[at] = byte,
            1 => input.insert(at, byte),
            _ => drop(input.remove(at)),
        }
    }
    input
}

#[test]
fn what_must_hold_for_any_bytes_holds_for_the_corpus_and_cuts_of_it() {
    let mut random = StdRng::seed_from_u64(7);
    let corpus = corpus();
    let mut inputs = 0;
    for text in &corpus {
        let mut tried = vec![text.clone()];
        tried.extend((0..CHANGED_EACH).map(|_| changed(text, &mut random)));
        for input in tried {
            let step = random.next_u32() as u8;
            let cut: Vec<u8> = [&[step], input.as_slice()].concat();
            for (name, target) in targets::ALL {
                let input = if matches!(name, "scanner" | "meter" | "response") {
                    &cut
                } else {
                    &input
                };
                let held = std::panic::catch_unwind(|| target(input));
                assert!(
                    held.is_ok(),
                    "{name} with {:?}",
                    String::from_utf8_lossy(input)
                );
            }
            inputs += 1;
        }
    }
    println!(
        "{} files, {inputs} inputs for each of {} targets",
        corpus.len(),
        targets::ALL.len()
    );
}
