//! What is passed on and what is not: paths, models, headers.

use crate::support::client::{Ask, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::Reply;
use crate::support::upstream::{Request, Script, Upstream};

fn models_of(name: &'static str) -> Upstream {
    Script::new(move |request: &Request| {
        if request.head.path().starts_with("/v1/models") {
            let list = format!(
                "{{\"object\":\"list\",\"data\":[{{\"id\":\"{name}\",\"object\":\"model\",\"created\":1,\"owned_by\":\"o\"}}]}}"
            );
            return Reply::json(200, &list);
        }
        Reply::json(200, &format!("{{\"served_by\":\"{name}\"}}"))
    })
    .start()
}

#[tokio::test]
async fn management_paths_are_out_of_reach() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    for path in [
        "/metrics",
        "/admin/fault",
        "/v1/../metrics",
        "/v1/%2e%2e/metrics",
        "/%6detrics",
        "//metrics",
        "/v1/chat/completions/../../../metrics",
        "/v1/chat/completions/..%2f..%2f..%2fmetrics",
        "/v1//../metrics",
        "/sleep",
        "/reset_prefix_cache",
        "/v1/load_lora_adapter",
        "/flush_cache",
        "/api/fleet",
        "/",
    ] {
        for ask in [Ask::get(path), Ask::post(path, "{}")] {
            let answer = Client::ask(proxy.addr, &ask).await;
            assert_eq!(answer.status(), 404, "{path}: {}", answer.text());
            assert!(answer.json()["error"]["message"].is_string(), "{path}");
        }
    }
    assert_eq!(upstream.connections(), 0, "something was passed on");
}

#[tokio::test]
async fn listed_paths_pass_with_their_query() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream)
        .set("server", "passthrough = [\"/custom/*\", \"/one\"]")
        .start();
    for path in [
        "/custom/a/b?x=1&y=%20",
        "/one",
        "/v1/embeddings?z=1",
        "/tokenize",
    ] {
        let answer = Client::ask(proxy.addr, &Ask::post(path, "{}")).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(upstream.requests().pop().unwrap().head.path(), path);
    }
    for path in ["/custom/../metrics", "/one/two"] {
        assert_eq!(
            Client::ask(proxy.addr, &Ask::post(path, "{}"))
                .await
                .status(),
            404
        );
    }
}

#[tokio::test]
async fn own_paths_are_answered_here() {
    let upstream = Script::new(|_| Reply::json(500, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    for path in ["/health", "/ping", "/version"] {
        assert_eq!(
            Client::ask(proxy.addr, &Ask::get(path)).await.status(),
            200,
            "{path}"
        );
    }
    assert_eq!(upstream.connections(), 0);
    for path in [
        "/ready",
        "/live",
        "/readyz",
        "/livez",
        "/metrics",
        "/api/stats",
    ] {
        proxy.admin_text(path).await;
    }
}

#[tokio::test]
async fn an_upgrade_is_not_implemented() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    let ask = Ask::chat()
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    assert_eq!(Client::ask(proxy.addr, &ask).await.status(), 501);
    assert_eq!(upstream.connections(), 0);
}

fn two_pools(a: &Upstream, b: &Upstream) -> Proxy {
    Setup::one(a)
        .pool("models = [{ name = \"alpha\", aliases = [\"alpha-lora\"] }]")
        .and_pool("q", "models = [\"beta\"]", &[b.addr])
        .start()
}

async fn served_by(proxy: &Proxy, model: &str) -> String {
    let body = format!("{{\"messages\":[],\"model\":\"{model}\"}}");
    let answer = Client::ask(proxy.addr, &Ask::post("/v1/chat/completions", body)).await;
    answer.json()["served_by"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn models_and_aliases_lead_to_their_pool() {
    let (a, b) = (models_of("alpha"), models_of("beta"));
    let proxy = two_pools(&a, &b);
    assert_eq!(served_by(&proxy, "alpha").await, "alpha");
    assert_eq!(served_by(&proxy, "alpha-lora").await, "alpha");
    assert_eq!(served_by(&proxy, "beta").await, "beta");

    let list = Client::ask(proxy.addr, &Ask::get("/v1/models")).await;
    assert_eq!(list.status(), 200);
    let list = list.json();
    assert_eq!(list["object"], "list");
    let mut ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    ids.retain(|id| *id != "alpha-lora");
    assert_eq!(ids, ["alpha", "beta"], "{list}");
}

#[tokio::test]
async fn an_unknown_model_is_openais_404() {
    let (a, b) = (models_of("alpha"), models_of("beta"));
    let proxy = two_pools(&a, &b);
    let ask = Ask::post("/v1/chat/completions", r#"{"model":"gamma","messages":[]}"#).id("g");
    let answer = Client::ask(proxy.addr, &ask).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(answer.error_code(), "model_not_found");
    let error = &answer.json()["error"];
    assert!(
        error["message"].as_str().unwrap().contains("gamma"),
        "{error}"
    );
    assert_eq!(error["type"], "invalid_request_error");
    let record = proxy.record("g").await;
    assert_eq!(record["outcome"], "rejected", "{record}");
}

#[tokio::test]
async fn a_multipart_model_field_is_read() {
    let (a, b) = (models_of("alpha"), models_of("beta"));
    let proxy = two_pools(&a, &b);
    let body = "--XX\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\ncontent-type: audio/wav\r\n\r\nRIFF\x01\x02name=\"model\"\r\n--XX\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nbeta\r\n--XX--\r\n";
    let ask = Ask::post("/v1/audio/transcriptions", body)
        .header("content-type", "multipart/form-data; boundary=XX");
    let answer = Client::ask(proxy.addr, &ask).await;
    assert_eq!(answer.json()["served_by"], "beta", "{}", answer.text());
    assert_eq!(b.request(0).await.body, body);
}

#[tokio::test]
async fn a_request_id_is_kept_or_made() {
    let upstream = Script::new(|_| Reply::chat("x")).start();
    let proxy = Setup::one(&upstream).start();
    let kept = Client::ask(proxy.addr, &Ask::chat().id("my-id.1")).await;
    assert_eq!(kept.head.all("x-request-id"), ["my-id.1"]);
    assert_eq!(
        upstream.request(0).await.head.all("x-request-id"),
        ["my-id.1"]
    );

    let (one, two) = (
        Client::ask(proxy.addr, &Ask::chat()).await,
        Client::ask(proxy.addr, &Ask::chat()).await,
    );
    let id = one.head.header("x-request-id").unwrap();
    assert!(!id.is_empty());
    assert_ne!(Some(id), two.head.header("x-request-id"));
    assert_eq!(
        upstream.request(1).await.head.header("x-request-id"),
        Some(id)
    );
    assert_eq!(proxy.record(id).await["outcome"], "ok");
    let instance = one.head.header("x-evenkeel-instance");
    assert_eq!(instance, Some("i0"));
}

#[tokio::test]
async fn hop_by_hop_headers_end_here_and_others_go_on() {
    let upstream = Script::new(|_| {
        Reply::new().write(
            std::time::Duration::ZERO,
            "HTTP/1.1 200 OK\r\nconnection: x-up, keep-alive\r\nx-up: 1\r\nkeep-alive: timeout=5\r\nset-cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 2\r\n\r\n{}",
        )
    })
    .start();
    let proxy = Setup::one(&upstream).start();
    let ask = Ask::chat()
        .also("connection", "x-secret")
        .also("connection", "keep-alive")
        .also("x-secret", "1")
        .also("keep-alive", "timeout=9")
        .also("proxy-connection", "keep-alive")
        .also("te", "trailers")
        .also("authorization", "Bearer k")
        .also(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        .also("x-many", "1")
        .also("x-many", "2");
    let answer = Client::ask(proxy.addr, &ask).await;
    let sent = &upstream.request(0).await.head;
    for name in ["x-secret", "keep-alive", "proxy-connection", "te"] {
        assert_eq!(sent.header(name), None, "{name} went on");
    }
    assert_eq!(sent.header("authorization"), Some("Bearer k"));
    assert!(
        sent.header("traceparent")
            .unwrap()
            .contains("4bf92f3577b34da6a3ce929d0e0e4736")
    );
    assert_eq!(sent.all("x-many"), ["1", "2"]);
    for name in ["x-up", "keep-alive"] {
        assert_eq!(answer.head.header(name), None, "{name} came back");
    }
    assert_eq!(answer.head.all("set-cookie"), ["a=1", "b=2"]);
}

#[tokio::test]
async fn a_request_with_two_lengths_or_a_doubtful_one_is_refused() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let proxy = Setup::one(&upstream).start();
    for framing in [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: +5",
        "content-length: 5, 6",
        "content-length: -1",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: xchunked",
    ] {
        let mut client = Client::connect(proxy.addr).await;
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: t\r\n{framing}\r\n\r\n");
        client.send(head.as_bytes()).await;
        let _ = client.try_send(b"0\r\n\r\n12345").await;
        let status = client.try_head().await.map(|head| head.status());
        assert!(
            matches!(status, None | Some(400..=499 | 501)),
            "{framing}: {status:?}"
        );
    }
    assert_eq!(upstream.requests().len(), 0, "a doubtful request went on");
}
