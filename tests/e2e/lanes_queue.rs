//! A lane with slots: the next request waits, one too many is shed, who leaves makes room.

use crate::support::client::{Answer, Ask, BodyEnd, Client};
use crate::support::proxy::{Proxy, Setup};
use crate::support::reply::{Gate, GateKey, Reply, gate, ms};
use crate::support::upstream::{Script, Upstream};
use crate::support::{PATIENCE, within};

/// One instance with one slot, one place in the queue; answers wait for the gate.
fn one_slot() -> (GateKey, Upstream, Proxy) {
    let (key, gate): (GateKey, Gate) = gate();
    let upstream = Script::new(move |_| {
        let mut reply = Reply::new().wait(&gate);
        reply.steps.extend(Reply::chat("served").steps);
        reply
    })
    .start();
    let proxy = Setup::one(&upstream)
        .policy(
            "{ kind = \"lanes\", inner = \"least_outstanding_tokens\", slots_per_instance = 1, lanes = [{ name = \"short\", max_tokens = 1024 }, { name = \"long\" }], queue = { max_requests = 1, max_wait_s = 30 } }",
        )
        .start();
    (key, upstream, proxy)
}

fn ask(proxy: &Proxy, id: &str) -> tokio::task::JoinHandle<Answer> {
    let (addr, ask) = (proxy.addr, Ask::chat().id(id));
    tokio::spawn(async move { Client::ask(addr, &ask).await })
}

/// Returns once that many requests wait.
async fn queued(proxy: &Proxy, count: u64) {
    within("a queue", PATIENCE, async {
        loop {
            let fleet = proxy.admin_text("/api/fleet").await;
            let fleet: serde_json::Value = serde_json::from_str(&fleet).unwrap();
            if fleet["pools"][0]["queued_requests"] == count {
                return;
            }
            tokio::time::sleep(ms(1)).await;
        }
    })
    .await;
}

fn assert_served(answer: &Answer) {
    assert_eq!(
        (answer.status(), answer.end),
        (200, BodyEnd::Clean),
        "{}",
        answer.text()
    );
    assert!(answer.text().contains("served"));
}

#[tokio::test]
async fn one_is_served_one_waits_one_is_shed() {
    let (key, upstream, proxy) = one_slot();
    let first = ask(&proxy, "first");
    upstream.request(0).await;
    let (one, two) = (ask(&proxy, "one"), ask(&proxy, "two"));
    let pair = async {
        let (mut one, mut two) = (one, two);
        tokio::select! {
            shed = &mut one => (shed.unwrap(), two, "one", "two"),
            shed = &mut two => (shed.unwrap(), one, "two", "one"),
        }
    };
    let (shed, waiting, shed_id, waiting_id) = pair.await;
    assert_eq!(shed.status(), 429, "{}", shed.text());
    let retry: u64 = shed.head.header("retry-after").unwrap().parse().unwrap();
    assert!(retry >= 1);
    assert!(shed.json()["error"]["code"].is_string());
    assert_eq!(
        upstream.requests().len(),
        1,
        "the one in the queue was sent"
    );

    key.open();
    assert_served(&first.await.unwrap());
    assert_served(&waiting.await.unwrap());
    let record = proxy.record(shed_id).await;
    assert_eq!(record["outcome"], "shed", "{record}");
    let record = proxy.record(waiting_id).await;
    assert_eq!(record["outcome"], "ok", "{record}");
    assert_eq!(record["lane"], "short");
    assert_eq!(record["policy"], "lanes");
    assert!(record["queue_ms"].as_f64().unwrap() > 0.0, "{record}");
    proxy.settled().await;
}

#[tokio::test]
async fn who_leaves_the_queue_makes_room() {
    let (key, upstream, proxy) = one_slot();
    let first = ask(&proxy, "first");
    upstream.request(0).await;
    for i in 0..20 {
        let id = format!("leaver-{i}");
        let mut leaver = Client::connect(proxy.addr).await;
        leaver.send(&Ask::chat().id(&id).bytes()).await;
        queued(&proxy, 1).await;
        leaver.abort();
        let record = proxy.record(&id).await;
        assert_eq!(record["outcome"], "client_cancelled", "{record}");
    }
    let waiting = ask(&proxy, "waiting");
    queued(&proxy, 1).await;
    key.open();
    assert_served(&first.await.unwrap());
    assert_served(&waiting.await.unwrap());
    assert_eq!(upstream.requests().len(), 2, "a leaver was sent");
    proxy.settled().await;
}

#[tokio::test]
async fn waiting_has_an_end() {
    let (_key, upstream, proxy) = one_slot_waiting("0.2");
    let _first = ask(&proxy, "first");
    upstream.request(0).await;
    let late = ask(&proxy, "late").await.unwrap();
    assert_eq!(late.status(), 429, "{}", late.text());
    assert!(late.head.header("retry-after").is_some());
    let record = proxy.record("late").await;
    assert_eq!(record["outcome"], "shed", "{record}");
    assert!(record["queue_ms"].as_f64().unwrap() >= 199.0, "{record}");
}

fn one_slot_waiting(max_wait_s: &str) -> (GateKey, Upstream, Proxy) {
    let (key, gate) = gate();
    let upstream = Script::new(move |_| Reply::new().wait(&gate)).start();
    let policy = format!(
        "{{ kind = \"lanes\", inner = \"least_requests\", slots_per_instance = 1, lanes = [{{ name = \"short\", max_tokens = 1024 }}, {{ name = \"long\" }}], queue = {{ max_requests = 1, max_wait_s = {max_wait_s} }} }}"
    );
    let proxy = Setup::one(&upstream).policy(&policy).start();
    (key, upstream, proxy)
}
