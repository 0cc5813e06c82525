//! TLS with instances: the right authority and name, a certificate of our own, and what is told when they do not fit.

use crate::support::PATIENCE;
use crate::support::client::{Answer, Ask, BodyEnd, Client};
use crate::support::proxy::{Dir, Proxy, Setup};
use crate::support::reply::{DONE, End, Reply, ms, text_event};
use crate::support::tls::{Ca, Tunnel};
use crate::support::upstream::{Script, Upstream};

const BODY: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// A proxy over one `https://` instance, with this in the pool's `tls`.
fn over(front: &Tunnel, tls: &str) -> Proxy {
    let url = format!("https://localhost:{}", front.addr.port());
    let pool = format!("tls = {{ {tls} }}");
    // connections are kept by each worker for itself
    let setup = Setup::over_urls(vec![url]).set("server", "workers = 1");
    setup.pool(&pool).start()
}

fn trust(ca: &Ca, dir: &Dir) -> String {
    let file = dir.0.join("ca.pem");
    std::fs::write(&file, ca.pem()).unwrap();
    format!("ca = {file:?}")
}

fn chat() -> Upstream {
    Script::new(|_| Reply::paced_chat(5, ms(10))).start()
}

async fn ask(proxy: &Proxy, id: &str) -> Answer {
    Client::ask(proxy.addr, &Ask::post("/v1/chat/completions", BODY).id(id)).await
}

#[tokio::test]
async fn streams_come_whole_over_one_kept_connection() {
    let (upstream, ca, dir) = (chat(), Ca::new("engines"), Dir::new());
    let front = ca.issue(&["localhost"]).serving(None);
    let front = Tunnel::out_of_tls(upstream.addr, front).await;
    let proxy = over(&front, &trust(&ca, &dir));
    for number in 0..5 {
        let id = format!("r{number}");
        let answer = ask(&proxy, &id).await;
        assert_eq!(
            (answer.status(), answer.end),
            (200, BodyEnd::Clean),
            "{}",
            answer.text()
        );
        assert!(answer.text().ends_with(DONE));
        let record = proxy.record(&id).await;
        assert_eq!(record["outcome"], "ok");
        assert!(record["server_ttft_ms"].as_f64().unwrap() > 5.0, "{record}");
        assert!(record["stages"]["connect_ms"].is_number(), "{record}");
    }
    // tickets that TLS sends by itself do not make an idle connection look used
    assert_eq!(front.handshakes(), 1, "connections were not kept");
    assert_eq!(upstream.request(0).await.body, BODY);
    let fleet = proxy.admin_text("/api/fleet").await;
    assert!(
        fleet.contains(&format!("https://localhost:{}", front.addr.port())),
        "{fleet}"
    );
    proxy.settled().await;
}

#[tokio::test]
async fn a_large_request_is_written_whole() {
    let (upstream, ca, dir) = (chat(), Ca::new("engines"), Dir::new());
    let front = ca.issue(&["localhost"]).serving(None);
    let front = Tunnel::out_of_tls(upstream.addr, front).await;
    let proxy = over(&front, &trust(&ca, &dir));
    // above the hold limit, so that it streams, and far above what the socket takes at once
    let body: Vec<u8> = (0..12_u32 << 20).map(|at| b'a' + (at % 23) as u8).collect();
    let asked = Ask::post("/v1/chat/completions", body.clone()).id("large");
    let answer = Client::ask(proxy.addr, &asked).await;
    assert_eq!(
        (answer.status(), answer.end),
        (200, BodyEnd::Clean),
        "{}",
        answer.text()
    );
    assert!(upstream.request(0).await.body == body);
    let record = proxy.record("large").await;
    assert_eq!(record["outcome"], "ok");
    proxy.settled().await;
}

#[tokio::test]
async fn what_the_certificate_must_be_is_checked_and_a_misfit_told() {
    let (upstream, dir) = (chat(), Dir::new());
    let (ca, other) = (Ca::new("engines"), Ca::new("others"));
    let front = ca.issue(&["engines.internal"]).serving(None);
    let front = Tunnel::out_of_tls(upstream.addr, front).await;
    let trusted = trust(&ca, &dir);
    let named = format!("{trusted}, server_name = \"engines.internal\"");
    let stranger = Dir::new();
    for (tls, word) in [
        // the host of the URL is localhost
        (trusted.clone(), "not valid for name"),
        (trust(&other, &stranger), "UnknownIssuer"),
        (
            "server_name = \"engines.internal\"".to_owned(),
            "UnknownIssuer",
        ),
        (
            named.replace("engines.internal", "engine.internal"),
            "not valid for name",
        ),
    ] {
        let proxy = over(&front, &tls);
        let answer = ask(&proxy, "misfit").await;
        assert_eq!(answer.status(), 502, "{}", answer.text());
        assert_eq!(answer.error_code(), "connect_failed");
        for word in [word, "TLS", "i0"] {
            assert!(
                answer.text().contains(word),
                "no {word:?} in {}",
                answer.text()
            );
        }
        let record = proxy.record("misfit").await;
        assert_eq!(record["outcome"], "engine_error");
        proxy.settled().await;
    }
    assert_eq!(upstream.requests().len(), 0);
    let proxy = over(&front, &named);
    assert_eq!(ask(&proxy, "fits").await.status(), 200);
}

#[tokio::test]
async fn an_instance_may_ask_for_our_certificate() {
    let (upstream, dir) = (chat(), Dir::new());
    let (ca, clients) = (Ca::new("engines"), Ca::new("proxies"));
    let front = ca.issue(&["localhost"]).serving(Some(&clients));
    let front = Tunnel::out_of_tls(upstream.addr, front).await;
    let trusted = trust(&ca, &dir);
    let without = over(&front, &trusted);
    assert_eq!(ask(&without, "without").await.status(), 502);
    without.settled().await;
    let (cert, key) = clients.issue(&["evenkeel"]).write(&dir.0);
    let with = over(
        &front,
        &format!("{trusted}, cert = {cert:?}, key = {key:?}"),
    );
    let answer = ask(&with, "with").await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_instances_connection() {
    let held = Script::new(|_| {
        Reply::sse()
            .chunk(ms(0), text_event("Hi").as_bytes())
            .then(End::Hold)
    })
    .start();
    let (ca, dir) = (Ca::new("engines"), Dir::new());
    let front = ca.issue(&["localhost"]).serving(None);
    let front = Tunnel::out_of_tls(held.addr, front).await;
    let proxy = over(&front, &trust(&ca, &dir));
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("left").bytes()).await;
    client.head().await;
    client.abort();
    held.closed(0).await;
    assert_eq!(proxy.record("left").await["outcome"], "client_cancelled");
    proxy.settled().await;
}

#[tokio::test]
async fn an_end_without_tls_saying_so_is_a_cut() {
    // a body that ends with the connection: whoever cuts that must not pass for an end
    let upstream = Script::new(|_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        Reply::new()
            .write(ms(0), head)
            .write(ms(0), text_event("Hi"))
            .then(End::Hold)
    })
    .start();
    let (ca, dir) = (Ca::new("engines"), Dir::new());
    let front = ca.issue(&["localhost"]).serving(None);
    let front = Tunnel::out_of_tls(upstream.addr, front).await;
    let proxy = over(&front, &trust(&ca, &dir));
    let mut client = Client::connect(proxy.addr).await;
    client.send(&Ask::chat().id("cut").bytes()).await;
    client.head().await;
    drop(front);
    assert!(client.ends_within(PATIENCE).await);
    assert_eq!(proxy.record("cut").await["outcome"], "cut");
    proxy.settled().await;
}

#[tokio::test]
async fn another_authority_holds_after_a_reload_and_no_kept_connection_gets_round_it() {
    let (upstream, dir) = (chat(), Dir::new());
    let (ca, other) = (Ca::new("engines"), Ca::new("others"));
    let front = ca.issue(&["localhost"]).serving(None);
    let front = Tunnel::out_of_tls(upstream.addr, front).await;
    let proxy = over(&front, &trust(&ca, &dir));
    assert_eq!(ask(&proxy, "first").await.status(), 200);
    // the file is another, the configuration is the same
    trust(&other, &dir);
    let taken = proxy.post("/api/reload", "").await;
    assert_eq!(taken.status(), 200, "{}", taken.text());
    let refused = ask(&proxy, "second").await;
    assert_eq!(refused.status(), 502, "{}", refused.text());
    std::fs::write(dir.0.join("ca.pem"), "no certificate").unwrap();
    let bad = proxy.post("/api/reload", "").await;
    assert_eq!(bad.status(), 422);
    assert!(bad.text().contains("pools[0].tls.ca"), "{}", bad.text());
    trust(&ca, &dir);
    let taken = proxy.post("/api/reload", "").await;
    assert_eq!(taken.status(), 200, "{}", taken.text());
    assert_eq!(ask(&proxy, "third").await.status(), 200);
    // what is the same keeps its connections
    let before = front.handshakes();
    proxy.post("/api/reload", "").await;
    assert_eq!(ask(&proxy, "fourth").await.status(), 200);
    assert_eq!(front.handshakes(), before);
}
