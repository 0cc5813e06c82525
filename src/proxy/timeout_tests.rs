//! C25 on a virtual clock: a client and an instance over pipes in memory, all limits as they are by default.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::client_io::ClientSide;
use super::connection::{Life, speak};
use super::core::{Core, Shared};
use super::server::shared;
use super::upstream::Connection;
use super::wire::Wire;
use crate::config::checked::ArrivalStamp;

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST: &str = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
/// What the limits are by default.
const LIMIT_S: u64 = 600;

fn event() -> String {
    let event = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n";
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// What an instance says, at seconds after it has the request.
#[derive(Default)]
struct Script(Vec<(u64, String)>);

impl Script {
    fn say(mut self, at_s: u64, text: &str) -> Self {
        self.0.push((at_s, text.to_owned()));
        self
    }

    /// Plays it; tells when the other side closed, in seconds.
    async fn play(self, mut pipe: DuplexStream) -> u64 {
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            assert!(pipe.read_buf(&mut request).await.unwrap() > 0);
        }
        let begun = Instant::now();
        for (at_s, text) in self.0 {
            sleep_until(begun + Duration::from_secs(at_s)).await;
            if pipe.write_all(text.as_bytes()).await.is_err() {
                break;
            }
        }
        while pipe.read_buf(&mut request).await.is_ok_and(|n| n > 0) {}
        begun.elapsed().as_secs()
    }
}

struct Ended {
    status: u16,
    body: String,
    /// the body did not end as its framing says
    broken: bool,
    took_s: u64,
    upstream_closed_s: u64,
    record: Value,
}

/// One request through the proxy; only the pipes are not real, and the clock.
async fn through_proxy(script: Script) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let shared = shared_by_default(dir.path());
    let core = Arc::new(Core::new(&shared, 0));
    let (near, far) = tokio::io::duplex(64 * 1024);
    let generation = shared.generation();
    let members = generation.fleet.pools[0].members();
    let to_instance = core.connections_to(&members.instances[0], &members.link);
    drop(members);
    to_instance.give(Connection::over(
        Wire::Pipe(near),
        1 << 16,
        ArrivalStamp::Read,
    ));
    let playing = tokio::spawn(script.play(far));
    let (client, server) = tokio::io::duplex(64 * 1024);
    let (_stop, stopping) = watch::channel(false);
    let side = Arc::new(ClientSide::default());
    tokio::spawn(speak(
        core.clone(),
        generation.config.clone(),
        TokioIo::new(server),
        side,
        true,
        Life::Served(stopping),
    ));
    let (mut send, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://test/v1/chat/completions")
        .body(Full::new(Bytes::from_static(
            b"{\"model\":\"m\",\"stream\":true,\"messages\":[]}",
        )))
        .unwrap();
    let begun = Instant::now();
    let answer = send.send_request(request).await.unwrap();
    let (status, mut frames) = (answer.status().as_u16(), answer.into_body());
    let (mut body, mut broken) = (Vec::new(), false);
    while let Some(frame) = frames.frame().await {
        let Ok(frame) = frame else {
            broken = true;
            break;
        };
        body.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
    }
    let took_s = begun.elapsed().as_secs();
    let snapshot = generation.fleet.snapshot();
    let instance = &snapshot.pools[0].instances[0];
    assert_eq!(
        (instance.outstanding_requests, instance.outstanding_tokens),
        (0, 0)
    );
    drop(core);
    let record = record(&shared, dir.path());
    // what was kept for the next request counts as closed by us here
    drop((shared, generation, to_instance, send));
    connection.abort();
    Ended {
        status,
        body: String::from_utf8(body).unwrap(),
        broken,
        took_s,
        upstream_closed_s: playing.await.unwrap(),
        record,
    }
}

fn shared_by_default(dir: &Path) -> Arc<Shared> {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nworkers = 1\n[records]\ndir = {dir:?}\n[[pools]]\nname = \"p\"\n\
         policy = {{ kind = \"round_robin\" }}\n[[pools.instances]]\nurl = \"http://127.0.0.1:9\"\n"
    );
    let config = crate::config::parse(&text, "test.toml").unwrap();
    shared(&Arc::new(config), None).unwrap()
}

fn record(shared: &Shared, dir: &Path) -> Value {
    shared.records.as_ref().unwrap().flush();
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().path());
    let texts = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "jsonl"))
        .map(|path| std::fs::read_to_string(path).unwrap());
    let lines: Vec<Value> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| serde_json::from_str(&line).unwrap())
        .filter(|line: &Value| line.get("outcome").is_some())
        .collect();
    assert_eq!(lines.len(), 1, "one record for one request: {lines:?}");
    lines.into_iter().next().unwrap()
}

fn passed(ended: &Ended, at_s: u64) {
    assert_eq!((ended.status, ended.broken), (200, false));
    assert!(ended.body.ends_with("data: [DONE]\n\n"), "{}", ended.body);
    assert_eq!(ended.took_s, at_s);
    assert_eq!(ended.record["outcome"], "ok", "{}", ended.record);
}

#[tokio::test(start_paused = true)]
async fn c25a_a_first_byte_after_75_s_passes() {
    let script = Script::default().say(0, HEAD);
    let ended = through_proxy(script.say(75, &event()).say(75, LAST)).await;
    passed(&ended, 75);
    assert_eq!(
        ended.record["server_ttft_ms"].as_f64().unwrap().round(),
        75_000.0
    );
}

#[tokio::test(start_paused = true)]
async fn c25b_headers_after_75_s_pass() {
    let script = Script::default().say(75, HEAD);
    passed(
        &through_proxy(script.say(75, &event()).say(75, LAST)).await,
        75,
    );
}

#[tokio::test(start_paused = true)]
async fn c25c_silence_of_120_s_passes() {
    let script = Script::default().say(0, HEAD).say(1, &event());
    passed(
        &through_proxy(script.say(121, &event()).say(121, LAST)).await,
        121,
    );
}

#[tokio::test(start_paused = true)]
async fn c25d_eleven_minutes_of_tokens_pass() {
    let mut script = Script::default().say(0, HEAD);
    for second in 0..=660 {
        script = script.say(second, &event());
    }
    let ended = through_proxy(script.say(660, LAST)).await;
    passed(&ended, 660);
    assert_eq!(ended.record["content_chunks"], 661);
}

#[tokio::test(start_paused = true)]
async fn c25e_an_instance_that_never_answers_is_504() {
    let ended = through_proxy(Script::default()).await;
    assert_eq!((ended.status, ended.broken), (504, false));
    assert!(ended.body.contains("headers_timeout"), "{}", ended.body);
    timed_out(&ended, "headers_timeout", LIMIT_S);
}

#[tokio::test(start_paused = true)]
async fn c25e_an_answer_without_a_first_event_is_broken_off() {
    let ended = through_proxy(Script::default().say(5, HEAD)).await;
    assert_eq!((ended.status, ended.broken), (200, true));
    timed_out(&ended, "first_event_timeout", LIMIT_S + 5);
}

#[tokio::test(start_paused = true)]
async fn c25e_an_answer_that_falls_silent_is_broken_off() {
    let script = Script::default().say(0, HEAD);
    let ended = through_proxy(script.say(3, &event()).say(10, &event())).await;
    assert_eq!((ended.status, ended.broken), (200, true));
    assert_eq!(
        ended.body.matches("data:").count(),
        2,
        "what came had gone on"
    );
    timed_out(&ended, "silence_timeout", LIMIT_S + 10);
}

fn timed_out(ended: &Ended, cause: &str, after_s: u64) {
    assert_eq!((ended.took_s, ended.upstream_closed_s), (after_s, after_s));
    assert_eq!(ended.record["outcome"], "timeout", "{}", ended.record);
    assert_eq!(ended.record["cause"], cause, "{}", ended.record);
}
