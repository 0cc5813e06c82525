//! API keys: who has none is refused, who has one is served within its limits, engines get their own.

use crate::support::child::run_with;
use crate::support::client::{Answer, Ask, Client};
use crate::support::proxy::{Dir, Proxy, Setup};
use crate::support::reply::{Reply, gate};
use crate::support::upstream::{Script, Upstream};

const KEY: &str = "ek-0123456789abcdef";

fn hash(key: &str) -> String {
    let (status, out, err) = run_with(&["hash-key"], &format!("{key}\n"));
    assert!(status.success(), "{err}");
    out.trim().to_owned()
}

fn key(name: &str, key: &str, limits: &str) -> String {
    format!(
        "[[keys]]\nname = \"{name}\"\nsha256 = \"{}\"\n{limits}\n",
        hash(key)
    )
}

fn served() -> Upstream {
    Script::new(|_| Reply::chat("served")).start()
}

async fn ask(proxy: &Proxy, ask: Ask) -> Answer {
    Client::ask(proxy.addr, &ask).await
}

fn bearer(ask: Ask, key: &str) -> Ask {
    ask.header("authorization", &format!("Bearer {key}"))
}

fn assert_refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status(), status, "{}", answer.text());
    assert_eq!(answer.error_code(), code);
}

#[tokio::test]
async fn a_known_key_is_served_and_named_in_the_record() {
    let upstream = served();
    let proxy = Setup::one(&upstream).and(&key("team-a", KEY, "")).start();
    for (id, asked) in [
        ("bearer", bearer(Ask::chat(), KEY)),
        ("header", Ask::chat().header("x-api-key", KEY)),
    ] {
        let answer = ask(&proxy, asked.id(id)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let record = proxy.record(id).await;
        assert_eq!(
            (&record["key"], &record["outcome"]),
            (&"team-a".into(), &"ok".into())
        );
    }
    // an engine that wants no key learns none
    for request in upstream.requests() {
        assert_eq!(request.head.header("authorization"), None);
        assert_eq!(request.head.header("x-api-key"), None);
    }
}

#[tokio::test]
async fn without_a_known_key_nothing_is_served_and_nothing_counted() {
    let upstream = served();
    let proxy = Setup::one(&upstream).and(&key("team-a", KEY, "")).start();
    let answer = ask(&proxy, Ask::chat().id("none")).await;
    assert_refused(&answer, 401, "api_key_missing");
    assert_eq!(answer.head.header("www-authenticate"), Some("Bearer"));
    assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    let wrong = ask(&proxy, bearer(Ask::chat().id("wrong"), "ek-wrong")).await;
    assert_refused(&wrong, 401, "invalid_api_key");
    assert!(!wrong.text().contains("ek-wrong"), "{}", wrong.text());
    for id in ["none", "wrong"] {
        let record = proxy.record(id).await;
        assert_eq!(record["outcome"], "rejected");
        assert_eq!(record["status"], 401);
        assert_eq!(
            (&record["key"], &record["instance"]),
            (&().into(), &().into())
        );
    }
    for path in [
        "/v1/models",
        "/v1/models/m",
        "/v1/responses/resp_1",
        "/sleep",
    ] {
        assert_refused(&ask(&proxy, Ask::get(path)).await, 401, "api_key_missing");
    }
    // a balancer before this one asks without a key
    assert_eq!(ask(&proxy, Ask::get("/health")).await.status(), 200);
    proxy.settled().await;
    assert_eq!(
        upstream.connections(),
        0,
        "a refused request reached an instance"
    );
}

#[tokio::test]
async fn a_refused_body_is_read_away_and_the_connection_goes_on() {
    let upstream = served();
    let proxy = Setup::one(&upstream).and(&key("team-a", KEY, "")).start();
    let mut client = Client::connect(proxy.addr).await;
    client
        .send(&Ask::post("/v1/chat/completions", vec![b' '; 200_000]).bytes())
        .await;
    assert_refused(&client.answer().await, 401, "api_key_missing");
    client.send(&bearer(Ask::chat(), KEY).bytes()).await;
    assert_eq!(client.answer().await.status(), 200);
}

#[tokio::test]
async fn anthropics_clients_get_their_own_shape_of_error() {
    let upstream = served();
    let proxy = Setup::one(&upstream).and(&key("team-a", KEY, "")).start();
    let answer = ask(&proxy, Ask::post("/v1/messages", "{}")).await;
    assert_refused(&answer, 401, "api_key_missing");
    let json = answer.json();
    assert_eq!(
        (&json["type"], &json["error"]["type"]),
        (&"error".into(), &"authentication_error".into())
    );
}

#[tokio::test]
async fn a_key_has_only_so_many_requests_open() {
    let (opener, gate) = gate();
    let upstream = Script::new(move |_| {
        let mut reply = Reply::new().wait(&gate);
        reply.steps.extend(Reply::chat("served").steps);
        reply
    })
    .start();
    let keys = key("narrow", KEY, "max_concurrent = 2") + &key("second", "ek-other-0123456789", "");
    let proxy = Setup::one(&upstream).and(&keys).start();
    let mut open = Vec::new();
    for number in 0..2 {
        let mut client = Client::connect(proxy.addr).await;
        client.send(&bearer(Ask::chat(), KEY).bytes()).await;
        upstream.request(number).await;
        open.push(client);
    }
    let third = ask(&proxy, bearer(Ask::chat().id("third"), KEY)).await;
    assert_refused(&third, 429, "concurrency_limit_exceeded");
    assert_eq!(third.head.header("retry-after"), Some("1"));
    let record = proxy.record("third").await;
    assert_eq!(
        (&record["key"], &record["outcome"]),
        (&"narrow".into(), &"rejected".into())
    );
    assert_eq!(record["attempts"], 0);

    // one that leaves makes room, and other keys never lacked it
    open.pop().unwrap().abort();
    upstream.closed(1).await;
    proxy.outstanding().await;
    opener.open();
    let other = ask(&proxy, bearer(Ask::chat(), "ek-other-0123456789")).await;
    assert_eq!(other.status(), 200, "{}", other.text());
    assert_eq!(open[0].answer().await.status(), 200);
    // once an answer has come whole, its place is free: no request in turn is refused
    for _ in 0..20 {
        let answer = ask(&proxy, bearer(Ask::chat(), KEY)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    proxy.settled().await;
}

#[tokio::test]
async fn a_key_has_a_burst_and_then_its_rate() {
    let upstream = served();
    let keys = key("slow", KEY, "requests_per_s = 0.01\nburst = 3");
    let proxy = Setup::one(&upstream).and(&keys).start();
    for _ in 0..3 {
        assert_eq!(ask(&proxy, bearer(Ask::chat(), KEY)).await.status(), 200);
    }
    let over = ask(&proxy, bearer(Ask::chat(), KEY)).await;
    assert_refused(&over, 429, "rate_limit_exceeded");
    let wait: u32 = over.head.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=100).contains(&wait), "{wait}");
    assert_eq!(upstream.requests().len(), 3);
    proxy.settled().await;
}

#[tokio::test]
async fn engines_get_their_own_key_in_place_of_the_clients() {
    let dir = Dir::new();
    let file = dir.0.join("engine-key");
    std::fs::write(&file, "sk-engine-1\n").unwrap();
    let upstream = served();
    let proxy = Setup::one(&upstream)
        .pool(&format!("engine_key = \"file:{}\"", file.display()))
        .and(&key("team-a", KEY, ""))
        .start();
    ask(&proxy, bearer(Ask::chat(), KEY)).await;
    ask(&proxy, Ask::chat().header("x-api-key", KEY)).await;
    ask(&proxy, bearer(Ask::get("/v1/models"), KEY)).await;
    let requests = upstream.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert_eq!(request.head.all("authorization"), ["Bearer sk-engine-1"]);
        assert!(!String::from_utf8_lossy(&request.head.raw).contains(KEY));
    }
    assert_eq!(requests[1].head.all("x-api-key"), ["sk-engine-1"]);
    assert_eq!(requests[0].head.header("x-api-key"), None);
}

#[tokio::test]
async fn without_keys_the_clients_credentials_go_on_unless_told_otherwise() {
    let upstream = served();
    let open = Setup::one(&upstream).start();
    ask(&open, bearer(Ask::chat(), KEY)).await;
    let closed = Setup::one(&upstream)
        .set("server", "forward_client_credentials = false")
        .start();
    ask(&closed, bearer(Ask::chat(), KEY)).await;
    let kept = Setup::one(&upstream)
        .set("server", "forward_client_credentials = true")
        .and(&key("team-a", KEY, ""))
        .start();
    ask(&kept, bearer(Ask::chat(), KEY)).await;
    let sent: Vec<_> = upstream
        .requests()
        .iter()
        .map(|request| request.head.header("authorization").map(str::to_owned))
        .collect();
    let whole = Some(format!("Bearer {KEY}"));
    assert_eq!(sent, [whole.clone(), None, whole]);
}
