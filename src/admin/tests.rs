//! The admin listener of a running server, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::proxy::server::{Running, Server};

const ANSWER: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" you\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n",
    "data: [DONE]\n\n",
);

/// An instance that gives every request the same stream, until the test ends.
fn instance() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            read_message(&mut reader);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close";
            let length = ANSWER.len();
            let answer = format!("{head}\r\ncontent-length: {length}\r\n\r\n{ANSWER}");
            let _ = reader.get_mut().write_all(answer.as_bytes());
        }
    });
    addr
}

/// Head and body of a message with a length.
fn read_message(reader: &mut BufReader<TcpStream>) -> (String, String) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

fn ask(addr: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    read_message(&mut BufReader::new(stream))
}

fn get(running: &Running, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\n\r\n");
    ask(running.admin_addr.unwrap(), &request)
}

fn chat(running: &Running, model: &str) -> (String, String) {
    let body = format!(
        r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"Hi"}}]}}"#
    );
    let length = body.len();
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {length}");
    ask(running.server_addr, &format!("{head}\r\n\r\n{body}"))
}

fn start() -> Running {
    let (one, two) = (instance(), instance());
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[pools]]\nname = \"chat\"\nmodels = [\"m\"]\npolicy = {{ kind = \"round_robin\" }}\n\
         [[pools.instances]]\nname = \"one\"\nurl = \"http://{one}\"\n\
         [[pools.instances]]\nname = \"two\"\nurl = \"http://{two}\"\n"
    );
    Server::start(crate::config::parse(&text, "test.toml").unwrap()).unwrap()
}

/// Requests are counted when they end, a moment after the client has its answer.
fn get_until(running: &Running, path: &str, holds: impl Fn(&str) -> bool) -> (String, String) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        let (head, body) = get(running, path);
        if holds(&body) || std::time::Instant::now() > deadline {
            return (head, body);
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_scrape_shows_what_was_served() {
    let running = start();
    for _ in 0..4 {
        let (head, body) = chat(&running, "m");
        assert!(
            head.starts_with("HTTP/1.1 200") && body.contains("[DONE]"),
            "{head}"
        );
    }
    let (head, _) = chat(&running, "unknown");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let labels = |instance: &str| format!("{{pool=\"chat\",instance=\"{instance}\"");
    let ok = |instance| {
        format!(
            "evenkeel_requests_total{},outcome=\"ok\"}} 2\n",
            labels(instance)
        )
    };
    let rejected = "evenkeel_requests_total{pool=\"\",instance=\"\",outcome=\"rejected\"} 1\n";
    let all_there = |text: &str| {
        text.contains(&ok("one")) && text.contains(&ok("two")) && text.contains(rejected)
    };
    let (head, text) = get_until(&running, "/metrics", all_there);
    let head = head.to_ascii_lowercase();
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(all_there(&text), "{text}");
    for instance in ["one", "two"] {
        let labels = labels(instance);
        for line in [
            format!("evenkeel_output_tokens_total{labels}}} 4\n"),
            format!("evenkeel_prompt_tokens_total{labels}}} 14\n"),
            format!("evenkeel_output_chunks_total{labels}}} 4\n"),
            format!("evenkeel_requests_with_usage_total{labels}}} 2\n"),
            format!("evenkeel_client_ttft_seconds_count{labels}}} 2\n"),
            format!("evenkeel_server_ttft_seconds_bucket{labels},le=\"+Inf\"}} 2\n"),
            format!("evenkeel_instance_outstanding_tokens{labels}}} 0\n"),
            format!("evenkeel_instance_up{labels}}} 1\n"),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
    assert!(
        text.contains("evenkeel_grants_total{pool=\"chat\"} 4\n"),
        "{text}"
    );
    super::metrics::tests::promtool(&text);
}

#[test]
fn the_fleet_shows_shares_and_says_nothing_of_skew_too_early() {
    let running = start();
    for _ in 0..4 {
        chat(&running, "m");
    }
    let fleet_of = |body: &str| serde_json::from_str::<serde_json::Value>(body).unwrap();
    let (_, body) = get_until(&running, "/api/fleet", |body| {
        fleet_of(body)["pools"][0]["requests"]["ok"] == 4
    });
    let fleet = fleet_of(&body);
    let pool = &fleet["pools"][0];
    assert_eq!(pool["requests"], serde_json::json!({"ok": 4}));
    assert!(
        pool["load_skew"].is_null() && pool["load_skew_by_chance"].is_null(),
        "{pool}"
    );
    for instance in pool["instances"].as_array().unwrap() {
        assert_eq!(instance["share_requests"], 0.5, "{instance}");
        assert_eq!(instance["share_tokens"], 0.5, "{instance}");
        assert!(
            instance["mean_outstanding_tokens"].as_f64().unwrap() > 0.0,
            "{instance}"
        );
    }
    for _ in 0..40 {
        chat(&running, "m");
    }
    let (_, body) = get_until(&running, "/api/fleet", |body| {
        fleet_of(body)["pools"][0]["load_skew"].is_f64()
    });
    let pool = &fleet_of(&body)["pools"][0];
    let skew = pool["load_skew"].as_f64().unwrap();
    assert!((1.0..=2.0).contains(&skew), "{pool}");
    assert!(
        pool["load_skew_by_chance"].as_f64().unwrap() > 1.0,
        "{pool}"
    );
}

#[test]
fn stats_tell_of_the_process() {
    let running = start();
    for _ in 0..3 {
        chat(&running, "m");
    }
    chat(&running, "unknown");
    let stats_of = |body: &str| serde_json::from_str::<serde_json::Value>(body).unwrap();
    let (_, body) = get_until(&running, "/api/stats", |body| {
        stats_of(body)["requests"] == serde_json::json!({"ok": 3, "rejected": 1})
    });
    let stats = stats_of(&body);
    assert_eq!(
        stats["requests"],
        serde_json::json!({"ok": 3, "rejected": 1})
    );
    assert_eq!(stats["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(stats["workers"], 2);
    assert_eq!(
        stats["usage"],
        serde_json::json!({"with": 3, "without": 0, "coverage": 1.0})
    );
    assert!(
        stats["records"].is_null() && stats["access_log"].is_null(),
        "no such files are kept"
    );
    assert_eq!(stats["connections"]["by_core"].as_array().unwrap().len(), 2);
    assert!(stats["uptime_s"].as_f64().unwrap() > 0.0);
    assert!(stats["memory"]["figures_bytes"].as_u64().unwrap() > 0);
    assert!(stats["memory"]["resident_bytes"].as_u64().unwrap() > 1_000_000);
    let pool = &stats["pools"][0];
    assert_eq!(
        (&pool["name"], &pool["grants"]),
        (&"chat".into(), &3.into()),
        "{pool}"
    );
    assert_eq!(
        (&pool["finishes"], &pool["stale_finishes"]),
        (&3.into(), &0.into()),
        "{pool}"
    );
    assert_eq!(pool["sheds"]["queue_full"], 0);
}
