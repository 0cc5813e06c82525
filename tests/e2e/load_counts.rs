//! C20: under every policy and every way a request can end, while instances are added, removed and added again,
//! outstanding work is what is really open, and at the end exactly nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_policies::PolicyConfig;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::client::{Ask, Client};
use crate::support::proxy::{Outstanding, Proxy, Setup};
use crate::support::reply::{End, Reply, error_event, finish_event, ms, role_event, text_event};
use crate::support::upstream::{Refusing, Request, Script, Upstream};
use crate::support::{PATIENCE, within};

/// How a request of the storm goes, and how many there are of it.
const STORM: [(&str, usize, &str); 8] = [
    ("normal", 100, "ok"),
    ("leave-before-head", 50, "client_cancelled"),
    ("leave-mid-stream", 50, "client_cancelled"),
    ("reset-before-head", 13, "engine_error"),
    ("reset-mid-chunk", 12, "cut"),
    ("status-500", 25, "engine_error"),
    ("refused", 25, "engine_error"),
    ("error-event", 25, "engine_error"),
];

fn reply(request: &Request) -> Reply {
    let kind = request.head.header("x-kind").unwrap_or("normal");
    let begun = Reply::sse()
        .chunk(ms(0), role_event().as_bytes())
        .chunk(ms(1), text_event("a").as_bytes());
    match kind {
        "normal" => begun
            .chunk(ms(3), finish_event().as_bytes())
            .last_chunk(ms(3)),
        "leave-before-head" => Reply::new().then(End::Hold),
        "leave-mid-stream" => begun.then(End::Hold),
        "reset-before-head" => Reply::new().then(End::Reset),
        "reset-mid-chunk" => begun.write(ms(2), "a6\r\ndata: {").then(End::Reset),
        "status-500" => Reply::json(500, "{\"error\":{\"message\":\"no\",\"code\":500}}"),
        "error-event" => begun
            .chunk(ms(2), error_event().as_bytes())
            .last_chunk(ms(2)),
        other => panic!("no such kind: {other}"),
    }
}

fn ask(kind: &str) -> Ask {
    let model = if kind == "refused" { "dead" } else { "m-small" };
    let body = format!(
        "{{\"model\":\"{model}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}"
    );
    Ask::post("/v1/chat/completions", body).header("x-kind", kind)
}

async fn client(addr: std::net::SocketAddr, kind: &'static str, mut leave: watch::Receiver<bool>) {
    let mut client = Client::connect(addr).await;
    client.send(&ask(kind).bytes()).await;
    match kind {
        "leave-before-head" => {
            leave.wait_for(|leave| *leave).await.unwrap();
            client.abort();
        }
        "leave-mid-stream" => {
            let head = client.head().await;
            let mut body = client.body(&head);
            body.at_least(role_event().len() as u64 + 1).await;
            leave.wait_for(|leave| *leave).await.unwrap();
            client.abort();
        }
        _ => {
            client.answer().await;
        }
    }
}

/// Outstanding requests come to be what the upstreams have open, instance by instance.
async fn assert_counts_are_true(proxy: &Proxy, upstreams: &[Upstream]) {
    let names = ["p/i0", "p/i1", "p/i2", "p/late"];
    let open = |i: usize| upstreams.get(i).map_or(0, Upstream::open_requests) as u64;
    let agree = async {
        loop {
            let outstanding = proxy.outstanding().await;
            let has = |i: usize| outstanding[names[i]].requests;
            if (0..4).all(|i| has(i) == open(i)) && outstanding["p/refusing"].requests == 0 {
                return;
            }
            tokio::time::sleep(ms(2)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(2), agree)
        .await
        .is_err()
    {
        let open: Vec<_> = (0..4).map(open).collect();
        panic!(
            "{:?} against {open:?} really open",
            proxy.outstanding().await
        );
    }
}

/// In the midst of the storm one instance joins, and another one leaves and comes back twice: once with requests of
/// its own still open, and once, it may be, without.
async fn change_fleet(proxy: &Proxy, round: usize, upstreams: &[Upstream]) {
    let add = |name: &str, upstream: &Upstream| {
        format!("{{\"name\":\"{name}\",\"url\":\"{}\"}}", upstream.url())
    };
    let (path, body) = match round {
        20 => ("", add("late", &upstreams[3])),
        30 | 60 => ("/i1/remove", String::new()),
        45 | 80 => ("", add("i1", &upstreams[1])),
        _ => return,
    };
    let path = format!("/api/pools/p/instances{path}");
    let answer = proxy.post(&path, &body).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

async fn storm(policy: &str) {
    // the last one joins in the midst of it
    let upstreams: Vec<_> = (0..4).map(|_| Script::new(reply).start()).collect();
    let (refusing, dead) = (Refusing::new(), Refusing::new());
    let addrs: Vec<_> = upstreams.iter().map(|upstream| upstream.addr).collect();
    let proxy = Setup::over(&addrs[..3])
        .and_instance("refusing", refusing.addr, "")
        .policy(policy)
        // a burst on a fleet with a dead instance: this is about counts, not about the budget
        .set("retries", "budget_share = 1.0")
        .pool("models = [\"m-small\"]")
        .and_pool("dead", "models = [\"dead\"]", &[dead.addr])
        .start();
    let (leave, leaving) = watch::channel(false);
    let (mut stayers, mut leavers) = (JoinSet::new(), JoinSet::new());
    // interleaved, so that every kind meets every other
    for round in 0..100 {
        for (kind, count, _) in STORM {
            if round * count / 100 < (round + 1) * count / 100 {
                let set = if kind.starts_with("leave") {
                    &mut leavers
                } else {
                    &mut stayers
                };
                set.spawn(client(proxy.addr, kind, leaving.clone()));
            }
        }
        change_fleet(&proxy, round, &upstreams).await;
        if round % 10 == 0 {
            // numbers below 0 do not parse
            let sampled = proxy.outstanding().await;
            assert!(sampled.values().map(|work| work.requests).sum::<u64>() <= 300);
        }
        tokio::task::yield_now().await;
    }
    within("the stayers", PATIENCE, async {
        while stayers.join_next().await.is_some() {}
    })
    .await;
    let all_held = async {
        while upstreams.iter().map(Upstream::open_requests).sum::<usize>() < 100 {
            tokio::time::sleep(ms(2)).await;
        }
    };
    within("100 held requests", PATIENCE, all_held).await;
    assert!(!upstreams[3].requests().is_empty(), "it joined for nothing");
    assert_counts_are_true(&proxy, &upstreams).await;
    let held: u64 = proxy.outstanding().await.values().map(|w| w.requests).sum();
    assert_eq!(held, 100);

    leave.send_replace(true);
    while leavers.join_next().await.is_some() {}
    for upstream in &upstreams {
        upstream.open(0).await;
    }
    let freed = proxy.settled().await;
    assert!(freed < ms(500), "freed only after {freed:?}");
    let outstanding = proxy.outstanding().await;
    assert!(
        outstanding
            .values()
            .all(|work| *work == Outstanding::default())
    );

    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for record in proxy.stop() {
        *outcomes
            .entry(record["outcome"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    for (_, count, outcome) in STORM {
        *expected.entry(outcome.to_owned()).or_default() += count;
    }
    assert_eq!(outcomes, expected, "{policy}");
}

/// Every kind of policy that a configuration may name, as the product's own schema lists them.
fn kinds() -> Vec<String> {
    let schema = schemars::schema_for!(PolicyConfig).to_value();
    let choices = schema["oneOf"].as_array().unwrap().iter();
    let kind = |choice: &serde_json::Value| {
        let kind = &choice["properties"]["kind"]["const"];
        kind.as_str().unwrap().to_owned()
    };
    choices.map(kind).collect()
}

/// A policy's table. A new one needs a line here only if it has settings that must be given.
fn table(kind: &str) -> String {
    let settings = match kind {
        "lanes" => {
            ", inner = \"least_outstanding_tokens\", slots_per_instance = 100, lanes = [{ name = \"short\", max_tokens = 1024, reserve = 0.25 }, { name = \"long\" }]"
        }
        _ => "",
    };
    format!("{{ kind = \"{kind}\"{settings} }}")
}

#[tokio::test]
async fn counts_are_true_throughout_and_0_at_the_end_under_every_policy() {
    let kinds = kinds();
    assert!(kinds.len() >= 5, "{kinds:?}");
    for kind in kinds {
        storm(&table(&kind)).await;
    }
}
