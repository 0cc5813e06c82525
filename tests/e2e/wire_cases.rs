//! The wire files as replies of an upstream, and a record held against a file's expected values.

use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::sync::watch;

use crate::support::client::Ask;
use crate::support::http1::{BodyReader, Head, LAST_CHUNK, chunk};
use crate::support::reply::{End, Reply, Step, ms};

/// A wire file with what its sidecar says.
pub struct Case {
    /// the file's name
    pub name: String,
    bytes: Bytes,
    sidecar: Value,
}

impl Case {
    /// All wire files that are responses.
    pub fn all() -> Vec<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        let mut cases = Vec::new();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let sidecar: toml::Table = std::fs::read_to_string(&path).unwrap().parse().unwrap();
            let sidecar = serde_json::to_value(sidecar).unwrap();
            if sidecar["kind"] == "http-request-body" {
                continue;
            }
            let name = sidecar["file"].as_str().unwrap().to_owned();
            let bytes = std::fs::read(folder.join(&name)).unwrap().into();
            cases.push(Case {
                name,
                bytes,
                sidecar,
            });
        }
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        cases
    }

    /// One by name.
    pub fn named(name: &str) -> Case {
        let mut all = Case::all();
        all.retain(|case| case.name == name);
        all.pop().unwrap()
    }

    fn is_raw(&self) -> bool {
        self.sidecar["kind"] == "http-response"
    }

    /// The request that such an answer is given to.
    pub fn ask(&self, id: &str) -> Ask {
        let path = match self.sidecar["api"].as_str().unwrap() {
            "chat" => "/v1/chat/completions",
            "completions" => "/v1/completions",
            "responses" => "/v1/responses",
            "messages" => "/v1/messages",
            other => panic!("no path for {other}"),
        };
        Ask::post(path, r#"{"model":"m-small","stream":true}"#)
            .header("x-case", &self.name)
            .id(id)
    }

    /// Times are divided by this in a replay, so that no file takes longer than some seconds.
    pub fn divisor(&self) -> f64 {
        let last = self.schedule().last().unwrap().0;
        (last as f64 / 2500.0).ceil()
    }

    fn schedule(&self) -> Vec<(u64, usize)> {
        let list = |key: &str| self.sidecar[key].as_array().unwrap().clone();
        let times = list("segment_ms").into_iter().map(|v| v.as_u64().unwrap());
        let ends = list("segment_end").into_iter();
        times
            .zip(ends.map(|v| v.as_u64().unwrap() as usize))
            .collect()
    }

    /// When each of the reply's segments is due.
    pub fn due(&self) -> Vec<Duration> {
        let divided = |ms: u64| Duration::from_secs_f64(ms as f64 / 1e3 / self.divisor());
        self.schedule().iter().map(|(ms, _)| divided(*ms)).collect()
    }

    fn head(&self) -> String {
        let mut head = format!(
            "HTTP/1.1 {} OK\r\ncontent-type: {}\r\n",
            self.sidecar["status"],
            self.sidecar["content_type"].as_str().unwrap()
        );
        if let Some(coding) = self.sidecar["content_encoding"].as_str() {
            head += &format!("content-encoding: {coding}\r\n");
        }
        head + "transfer-encoding: chunked\r\n\r\n"
    }

    /// The file on its schedule. The head of a bare body is written before, as step 0.
    pub fn scheduled(&self) -> Reply {
        let mut reply = Reply::new().then(End::Close);
        if !self.is_raw() {
            reply = reply.write(Duration::ZERO, self.head());
        }
        let mut from = 0;
        for ((_, end), due) in self.schedule().into_iter().zip(self.due()) {
            let segment = self.bytes.slice(from..end);
            from = end;
            let mut framed = if self.is_raw() {
                segment.to_vec()
            } else {
                chunk(&segment).to_vec()
            };
            if end == self.bytes.len() && !self.is_raw() {
                framed.extend_from_slice(LAST_CHUNK);
            }
            reply = reply.write(due, framed);
        }
        reply
    }

    /// The file one byte a read: the next byte is written when the client has the one before.
    pub fn bytewise(&self, arrived: &watch::Receiver<u64>) -> Reply {
        let mut reply = Reply::new().then(End::Close);
        if self.is_raw() {
            // framing bytes do not reach the client, so only time can part them
            for (i, byte) in self.bytes.chunks(1).enumerate() {
                reply = reply.write(ms(i as u64), byte.to_vec());
            }
            return reply;
        }
        reply = reply.write(Duration::ZERO, self.head());
        let mut pieces: Vec<Bytes> = self.bytes.chunks(1).map(chunk).collect();
        pieces.push(Bytes::from_static(LAST_CHUNK));
        reply.steps.push(Step::Lockstep {
            pieces,
            arrived: arrived.clone(),
        });
        reply
    }

    /// The body that a client must get.
    pub fn body(&self) -> Vec<u8> {
        if !self.is_raw() {
            return self.bytes.to_vec();
        }
        let mut raw = BytesMut::from(&self.bytes[..]);
        let head = Head::take(&mut raw).unwrap();
        let mut body = Vec::new();
        BodyReader::new(head.response_framing(false)).feed(&mut raw, &mut body);
        body
    }

    /// Whether the body ends as its framing says.
    pub fn is_clean(&self) -> bool {
        self.expect("transport_clean") == true
    }

    fn expect(&self, key: &str) -> &Value {
        &self.sidecar["expect"][key]
    }

    fn timing(&self, key: &str) -> &Value {
        &self.sidecar["expect"]["timing"][key]
    }

    /// What in `record` is not as expected; times too, within `tolerance_ms`, if one is given.
    pub fn wrong_in(&self, record: &Value, tolerance_ms: Option<f64>) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut check = |key: &str, fits: bool, expected: &Value| {
            if !fits {
                wrong.push(format!(
                    "{}: {key} is {}, expected {expected}",
                    self.name, record[key]
                ));
            }
        };
        let failed = ["client_error", "engine_error", "cut", "timeout"];
        let outcome = record["outcome"].as_str().unwrap_or_default();
        let fits = match self.expect("outcome").as_str().unwrap() {
            "failed" => failed.contains(&outcome),
            expected => outcome == expected,
        };
        check("outcome", fits, self.expect("outcome"));
        for key in EXACT {
            let expected = self.expect(key);
            if !expected.is_null() {
                check(key, record[key] == *expected, expected);
            }
        }
        for key in ABSENT_UNLESS_NAMED {
            let expected = self.expect(key);
            check(key, record[key] == *expected, expected);
        }
        let finish = self.expect("finish");
        if !finish.is_null() {
            let named = |list: &Value| -> Vec<String> {
                let list = list.as_array().cloned().unwrap_or_default();
                let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
                list.iter().map(text).collect()
            };
            check("finish", named(&record["finish"]) == named(finish), finish);
        }
        if self.sidecar["expect"]["timing"].is_null() {
            // the sidecar says why its times are free
            return wrong;
        }
        for (key, name) in TIMES {
            let expected = self.timing(name);
            let fits = match tolerance_ms {
                Some(tolerance) => near(&record[key], expected, self.divisor(), tolerance),
                None => record[key].is_null() == expected.is_null(),
            };
            check(key, fits, expected);
        }
        self.check_lists(record, tolerance_ms, &mut wrong);
        wrong
    }

    fn check_lists(&self, record: &Value, tolerance_ms: Option<f64>, wrong: &mut Vec<String>) {
        for key in ["chunk_gap_ms", "itl_ms"] {
            let expected = self.timing(key);
            if expected.is_null() && key == "chunk_gap_ms" {
                // gaps of several choices have names of their own
                continue;
            }
            let length = |list: &Value| list.as_array().map_or(0, Vec::len);
            let same_length = length(&record[key]) == length(expected);
            let fits = same_length
                && match (tolerance_ms, expected.as_array()) {
                    (Some(tolerance), Some(list)) => list
                        .iter()
                        .enumerate()
                        .all(|(i, value)| near(&record[key][i], value, self.divisor(), tolerance)),
                    _ => true,
                };
            if !fits {
                wrong.push(format!(
                    "{}: {key} is {}, expected {expected}",
                    self.name, record[key]
                ));
            }
        }
    }
}

/// Compared where the sidecar names them.
const EXACT: [&str; 8] = [
    "complete",
    "done_marker",
    "transport_clean",
    "events",
    "comments",
    "content_chunks",
    "status",
    "streamed",
];

/// Absent from a record unless the sidecar names them.
const ABSENT_UNLESS_NAMED: [&str; 4] = [
    "first_output_event",
    "last_output_event",
    "prompt_tokens",
    "output_tokens",
];

/// Times: name in the record, name in the sidecar. Absent unless named.
const TIMES: [(&str, &str); 4] = [
    ("server_ttft_ms", "ttft_ms"),
    ("tpot_ms", "tpot_ms"),
    ("last_output_ms", "last_output_ms"),
    ("end_ms", "end_ms"),
];

fn near(actual: &Value, expected: &Value, divisor: f64, tolerance: f64) -> bool {
    match (actual.as_f64(), expected.as_f64()) {
        (None, None) => true,
        (Some(actual), Some(expected)) => (actual - expected / divisor).abs() <= tolerance,
        _ => false,
    }
}
