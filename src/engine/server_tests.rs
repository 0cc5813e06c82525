//! The simulated engine over real sockets: its wire shape, faults, aborts and metrics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

async fn engines() -> RunningEngines {
    let mut options = EngineOptions::new(Profile::load("test-fast").unwrap(), 1);
    options.model_name = "tiny".to_owned();
    start(options).await.unwrap()
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")
}

async fn open(addr: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until the bytes end with `end`, or the connection does.
async fn until(stream: &mut TcpStream, end: &str) -> (String, std::io::Result<()>) {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&all).ends_with(end) {
        match stream.read(&mut piece).await {
            Ok(0) => break,
            Ok(n) => all.extend_from_slice(&piece[..n]),
            Err(error) => return (String::from_utf8_lossy(&all).into_owned(), Err(error)),
        }
    }
    (String::from_utf8_lossy(&all).into_owned(), Ok(()))
}

/// The head and the unchunked body of one exchange on a connection that is closed after it.
async fn exchange(addr: SocketAddr, request: &str) -> (String, String) {
    let request = request.replacen("host: x\r\n", "host: x\r\nconnection: close\r\n", 1);
    let (text, end) = until(&mut open(addr, &request).await, "\0").await;
    end.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    if !head.contains("transfer-encoding: chunked") {
        return (head.to_owned(), body.to_owned());
    }
    assert!(body.ends_with("0\r\n\r\n"), "unclean end: {body}");
    // Chunks here hold no CRLF of their own: every second line is data.
    let data = body.split("\r\n").skip(1).step_by(2).collect();
    (head.to_owned(), data)
}

async fn get(addr: SocketAddr, path: &str) -> (String, String) {
    exchange(addr, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await
}

fn events(body: &str) -> Vec<String> {
    body.split_terminator("\n\n")
        .map(|event| event.rsplit("data: ").next().unwrap().into())
        .collect()
}

fn parsed(body: &str) -> Vec<Value> {
    events(body)
        .iter()
        .filter(|e| *e != "[DONE]")
        .map(|e| serde_json::from_str(e).unwrap())
        .collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

fn metric(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.starts_with(name) && line.contains('}'));
    line.unwrap_or_else(|| panic!("{name} in {text}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_chat_stream_has_vllms_shape() {
    let engines = engines().await;
    let body = r#"{"model":"tiny","stream":true,"max_tokens":4,"ignore_eos":true,
        "stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hello"}]}"#;
    let request = post(CHAT, body).replacen("host", "x-request-id: my-req-1\r\nhost", 1);
    let (head, body) = exchange(engines.addrs()[0], &request).await;
    assert!(head.starts_with("HTTP/1.1 200 OK"));
    for line in [
        "server: uvicorn",
        "content-type: text/event-stream; charset=utf-8",
        "vary: Origin",
    ] {
        assert!(head.contains(line), "{head}");
    }
    let chunks = parsed(&body);
    assert_eq!(chunks.len(), 6, "role, four tokens, usage");
    assert_eq!(
        keys(&chunks[0]),
        [
            "choices",
            "created",
            "id",
            "model",
            "object",
            "prompt_text",
            "prompt_token_ids"
        ]
    );
    assert_eq!(chunks[0]["id"], "chatcmpl-my-req-1");
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(
        keys(&chunks[1]),
        ["choices", "created", "id", "model", "object"]
    );
    let choice = &chunks[3]["choices"][0];
    assert_eq!(
        keys(choice),
        ["delta", "finish_reason", "index", "logprobs", "token_ids"]
    );
    let last = &chunks[4]["choices"][0];
    assert_eq!(last["finish_reason"], "length");
    assert_eq!(
        last["delta"]["content"].as_str().unwrap().len(),
        4,
        "the last token's own chunk"
    );
    assert!(last.as_object().unwrap().contains_key("stop_reason"));
    assert_eq!(chunks[5]["choices"], json!([]));
    assert_eq!(chunks[5]["usage"]["completion_tokens"], 4);
    assert_eq!(events(&body).last().unwrap(), "[DONE]");
    engines.shutdown().await;
}

#[tokio::test]
async fn two_choices_interleave_and_usage_runs_along() {
    let engines = engines().await;
    let body = r#"{"model":"tiny","stream":true,"max_tokens":3,"n":2,"ignore_eos":true,
        "stream_options":{"include_usage":true,"continuous_usage_stats":true},
        "messages":[{"role":"user","content":"hello"}]}"#;
    let (_, body) = exchange(engines.addrs()[0], &post(CHAT, body)).await;
    let chunks = parsed(&body);
    let indexes: Vec<u64> = chunks[..8]
        .iter()
        .map(|c| c["choices"][0]["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indexes, [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(chunks[0]["usage"]["completion_tokens"], 0);
    assert_eq!(chunks[7]["usage"]["completion_tokens"], 3);
    assert_eq!(chunks[8]["usage"]["completion_tokens"], 6);
    assert_eq!(
        chunks[8]["usage"]["prompt_tokens"],
        chunks[7]["usage"]["prompt_tokens"]
    );
}

#[tokio::test]
async fn completions_take_lists_and_say_the_fingerprint_last() {
    let engines = engines().await;
    let body = r#"{"model":"tiny","stream":true,"max_tokens":2,"ignore_eos":true,
        "prompt":["one prompt","another"]}"#;
    let (_, body) = exchange(engines.addrs()[0], &post("/v1/completions", body)).await;
    let chunks = parsed(&body);
    assert_eq!(chunks.len(), 4);
    assert_eq!(chunks[0]["object"], "text_completion");
    assert!(chunks[0].get("system_fingerprint").is_none());
    assert!(chunks[3].get("system_fingerprint").is_some());
    assert!(chunks.iter().any(|c| c["choices"][0]["index"] == 1));
}

#[tokio::test]
async fn whole_answers_agree_with_tokenize() {
    let engines = engines().await;
    let addr = engines.addrs()[0];
    let messages = r#""messages":[{"role":"user","content":"how are you today"}]"#;
    let ask = format!(r#"{{"model":"tiny","max_tokens":7,"ignore_eos":true,{messages}}}"#);
    let (head, body) = exchange(addr, &post(CHAT, &ask)).await;
    assert!(head.contains("content-length"));
    let answer: Value = serde_json::from_str(&body).unwrap();
    let (_, counted) = exchange(addr, &post("/tokenize", &format!("{{{messages}}}"))).await;
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], counted["count"]);
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let ask = json!({"model": "tiny", "prompt": text}).to_string();
    let (_, counted) = exchange(addr, &post("/tokenize", &ask)).await;
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted["count"], 7);
    let ask = json!({"tokens": counted["tokens"]}).to_string();
    let (_, back) = exchange(addr, &post("/detokenize", &ask)).await;
    assert_eq!(
        serde_json::from_str::<Value>(&back).unwrap()["prompt"],
        text
    );
}

#[tokio::test]
async fn responses_and_messages_stream_their_own_events() {
    let engines = engines().await;
    let addr = engines.addrs()[0];
    let ask = r#"{"model":"tiny","stream":true,"max_output_tokens":2,"ignore_eos":true,"input":"hi there"}"#;
    let (_, body) = exchange(addr, &post("/v1/responses", ask)).await;
    let chunks = parsed(&body);
    let kinds: Vec<&str> = chunks.iter().map(|c| c["type"].as_str().unwrap()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds, expected);
    assert!(
        chunks
            .iter()
            .enumerate()
            .all(|(at, c)| c["sequence_number"] == at)
    );
    assert_eq!(chunks[9]["response"]["usage"]["output_tokens"], 2);
    assert_eq!(
        chunks[9]["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );

    let ask = r#"{"model":"tiny","stream":true,"max_tokens":2,"ignore_eos":true,
        "messages":[{"role":"user","content":"hi"}]}"#;
    let (_, body) = exchange(addr, &post("/v1/messages", ask)).await;
    let chunks = parsed(&body);
    let kinds: Vec<&str> = chunks.iter().map(|c| c["type"].as_str().unwrap()).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(chunks[5]["delta"]["stop_reason"], "max_tokens");
    assert_eq!(chunks[5]["usage"]["output_tokens"], 2);
    assert!(!body.contains("[DONE]"));

    let ask = r#"{"model":"tiny","input":["a text","b"]}"#;
    let (_, body) = exchange(addr, &post("/v1/embeddings", ask)).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn errors_are_vllms() {
    let engines = engines().await;
    let addr = engines.addrs()[0];
    let rows = [
        (
            r#"{"model":"nope","messages":[],"stream":true}"#,
            404,
            "NotFoundError",
            "model",
        ),
        (
            r#"{"model":"tiny","max_tokens":99999,"messages":[]}"#,
            400,
            "BadRequestError",
            "max_tokens",
        ),
        (
            r#"{"model":"tiny","messages":"#,
            400,
            "Bad Request",
            "body.",
        ),
        (
            r#"{"model":"tiny","temperature":"hot","messages":[]}"#,
            400,
            "Bad Request",
            "body.temperature",
        ),
    ];
    for (body, status, kind, param) in rows {
        let (head, body) = exchange(addr, &post(CHAT, body)).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        let error = serde_json::from_str::<Value>(&body).unwrap()["error"].clone();
        assert_eq!(keys(&error), ["code", "message", "param", "type"]);
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!(kind), &json!(status))
        );
        assert!(
            error["param"].as_str().unwrap().starts_with(param),
            "{error}"
        );
    }
    assert!(get(addr, "/health").await.0.contains("content-length: 0"));
    assert!(get(addr, "/v1/models").await.1.contains("\"id\":\"tiny\""));
    assert!(get(addr, "/nothing").await.0.starts_with("HTTP/1.1 404"));
}

fn long_chat(tokens: u32) -> String {
    let messages = r#"[{"role":"user","content":"hello"}]"#;
    let body = format!(
        r#"{{"stream":true,"max_tokens":{tokens},"ignore_eos":true,"messages":{messages}}}"#
    );
    post(CHAT, &body)
}

async fn idle_within(engines: &RunningEngines, limit: Duration) {
    let begun = Instant::now();
    while engines.load(0) != Some((0, 0)) {
        assert!(
            begun.elapsed() < limit,
            "still loaded: {:?}",
            engines.load(0)
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_head_leaves_before_prefill_and_a_client_that_leaves_frees_the_engine() {
    let engines = engines().await;
    engines.set_speed(0, 200.0); // A step of 200 ms.
    let mut stream = open(engines.addrs()[0], &long_chat(1000)).await;
    let begun = Instant::now();
    let (head, _) = until(&mut stream, "\r\n\r\n").await;
    assert!(head.contains("200 OK") && begun.elapsed() < Duration::from_millis(150));
    let (first, _) = until(&mut stream, "\n\n\r\n").await;
    assert!(first.contains("assistant"));
    assert_eq!(engines.load(0), Some((1, 0)));
    drop(stream);
    idle_within(&engines, Duration::from_millis(450)).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_time_without_a_word() {
    let mut options = EngineOptions::new(Profile::load("test-fast").unwrap(), 1);
    options.keep_alive = Duration::from_millis(120);
    let engines = start(options).await.unwrap();
    let request = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut stream = open(engines.addrs()[0], request).await;
    let (answer, _) = until(&mut stream, "\r\n\r\n").await;
    assert!(answer.contains("200 OK"));
    let begun = Instant::now();
    let (rest, end) = until(&mut stream, "\0").await;
    end.unwrap();
    let waited = begun.elapsed();
    assert_eq!(rest, "");
    assert!(
        waited > Duration::from_millis(100) && waited < Duration::from_secs(2),
        "{waited:?}"
    );
}

#[tokio::test]
async fn faults_strike_as_asked() {
    let engines = engines().await;
    let addr = engines.addrs()[0];
    let set = async |fault: &str| {
        let (head, body) = exchange(addr, &post("/admin/fault", fault)).await;
        assert!(head.contains("200 OK"), "{body}");
    };
    set(r#"{"kind":"status","count":1}"#).await;
    assert!(
        exchange(addr, &long_chat(3))
            .await
            .0
            .starts_with("HTTP/1.1 500")
    );
    assert!(
        exchange(addr, &long_chat(3))
            .await
            .0
            .starts_with("HTTP/1.1 200")
    );

    set(r#"{"kind":"in_band_error","after_chunks":2,"count":1}"#).await;
    let (_, body) = exchange(addr, &long_chat(9)).await;
    let seen = events(&body);
    assert_eq!(seen.len(), 5, "role, two tokens, error, done");
    assert!(seen[3].starts_with("{\"error\"") && seen[4] == "[DONE]");

    set(r#"{"kind":"abort","after_chunks":2,"count":1}"#).await;
    let chunks = parsed(&exchange(addr, &long_chat(9)).await.1);
    assert_eq!(
        (chunks.len(), &chunks[2]["choices"][0]["finish_reason"]),
        (3, &json!("abort"))
    );

    set(r#"{"kind":"cut","after_chunks":2,"count":1}"#).await;
    let (text, _) = until(&mut open(addr, &long_chat(9)).await, "\0").await;
    assert_eq!(text.matches("data: ").count(), 3, "{text}");
    assert!(!text.ends_with("0\r\n\r\n"));

    set(r#"{"kind":"cut","after_chunks":2,"reset":true,"count":1}"#).await;
    let (_, end) = until(&mut open(addr, &long_chat(9)).await, "\0").await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);

    set(r#"{"kind":"silent","count":1}"#).await;
    let mut stream = open(addr, &long_chat(9)).await;
    let silent = tokio::time::timeout(Duration::from_millis(100), until(&mut stream, "\n")).await;
    assert!(silent.is_err());
    set(r#"{"kind":"silent","head":true,"count":1}"#).await;
    let mut stream = open(addr, &long_chat(9)).await;
    assert!(until(&mut stream, "\r\n\r\n").await.0.contains("200 OK"));
    let silent = tokio::time::timeout(Duration::from_millis(100), until(&mut stream, "\n")).await;
    assert!(silent.is_err());
    drop(stream);
    idle_within(&engines, Duration::from_secs(2)).await;
}

#[tokio::test]
async fn slow_stall_and_refuse_hold_until_lifted() {
    let engines = engines().await;
    let addr = engines.addrs()[0];
    let timed = async || {
        let begun = Instant::now();
        exchange(addr, &long_chat(20)).await;
        begun.elapsed()
    };
    engines
        .add_fault(0, Fault::new(FaultKind::Slow { factor: 10.0 }))
        .unwrap();
    let slow = timed().await;
    assert!(
        slow > Duration::from_millis(200),
        "20 steps of 10 ms took {slow:?}"
    );
    engines.clear_faults(0);

    engines
        .add_fault(
            0,
            Fault {
                for_ms: Some(150),
                ..Fault::new(FaultKind::Stall)
            },
        )
        .unwrap();
    assert!(timed().await > Duration::from_millis(140));

    engines.add_fault(0, Fault::new(FaultKind::Refuse)).unwrap();
    let refused = async || TcpStream::connect(addr).await.is_err();
    while !refused().await {
        tokio::task::yield_now().await;
    }
    engines.clear_faults(0);
    while refused().await {
        tokio::task::yield_now().await;
    }
    assert!(exchange(addr, &long_chat(2)).await.0.contains("200 OK"));
}

#[tokio::test]
async fn metrics_count_what_was_served() {
    let engines = engines().await;
    let addr = engines.addrs()[0];
    for _ in 0..3 {
        exchange(addr, &long_chat(5)).await;
    }
    let (_, text) = get(addr, "/metrics").await;
    assert_eq!(metric(&text, "vllm:generation_tokens_total"), 15.0);
    assert_eq!(metric(&text, "vllm:time_to_first_token_seconds_count"), 3.0);
    assert_eq!(
        metric(&text, "vllm:inter_token_latency_seconds_count"),
        12.0
    );
    assert_eq!(metric(&text, "vllm:num_requests_running"), 0.0);
    assert_eq!(metric(&text, "vllm:kv_cache_usage_perc"), 0.0);
    assert!(text.contains("finished_reason=\"length\"} 3"));
    let lag = engines.lag();
    assert!(lag.steps >= 15 && lag.p50_ms.is_some());
}

#[tokio::test]
async fn late_wakes_do_not_add_up() {
    let engines = engines().await;
    let begun = Instant::now();
    exchange(engines.addrs()[0], &long_chat(300)).await;
    let took = begun.elapsed().as_secs_f64();
    // 300 steps of 1.005 ms and a little context: a timer of 1 ms that drifted would need 600 ms.
    assert!(took > 0.300, "{took}");
    if engines.lag().rebased == 0 && engines.lag().p99_ms.unwrap() < 20.0 {
        assert!(took < 0.400, "{took}");
    }
}

#[tokio::test]
async fn gpus_and_cpu_are_shown_under_the_exporters_names() {
    let settings = [
        ("gpus".to_owned(), 2.into()),
        ("cpu".to_owned(), toml::from_str::<toml::Value>(
            "cores = 1\nrequest_us = 2000.0\nprompt_token_us = 10.0\nstep_us = 100.0\nstep_sequence_us = 0.0",
        ).unwrap()),
    ];
    let profile = Profile::load("test-fast").unwrap();
    let profile = profile.with(&settings.into_iter().collect()).unwrap();
    let mut options = EngineOptions::new(profile, 1);
    options.model_name = "tiny".to_owned();
    let engines = start(options).await.unwrap();
    let addr = engines.addrs()[0];
    let body = r#"{"model":"tiny","max_tokens":50,"ignore_eos":true,
        "messages":[{"role":"user","content":"hello"}]}"#;
    let (head, _) = exchange(addr, &post(CHAT, body)).await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let (_, text) = get(addr, "/dcgm/metrics").await;
    for gpu in ["gpu=\"0\"", "gpu=\"1\""] {
        assert!(
            metric(&text, &format!("DCGM_FI_DEV_GPU_UTIL{{{gpu}")) > 0.0,
            "{text}"
        );
        assert!(metric(&text, &format!("DCGM_FI_PROF_NVLINK_TX_BYTES{{{gpu}")) > 0.0);
    }
    let memory = metric(&text, "DCGM_FI_DEV_FB_USED") + metric(&text, "DCGM_FI_DEV_FB_FREE");
    assert!((memory - 4e9 / 1_048_576.0).abs() <= 1.0, "{memory}");
    assert!(
        metric(&text, "DCGM_FI_PROF_SM_ACTIVE") < metric(&text, "DCGM_FI_DEV_GPU_UTIL") / 100.0
    );
    let (_, text) = get(addr, "/metrics").await;
    let line = text
        .lines()
        .find(|line| line.starts_with("process_cpu_seconds_total "));
    let cpu_s: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    // 2 ms and its prompt before it was admitted, 0.15 ms for each of 50 steps
    assert!((0.0095..0.012).contains(&cpu_s), "{cpu_s}");
    let (_, text) = get(addr, "/node/metrics").await;
    assert!(metric(&text, "node_cpu_seconds_total{cpu=\"0\",mode=\"user\"") >= cpu_s);
}
