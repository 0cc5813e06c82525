//! The configuration changes while requests run: none is lost, none is miscounted, a bad one changes nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use tokio::task::JoinSet;

use crate::support::child::{Child, run_with};
use crate::support::client::{Answer, Ask, BodyEnd, Client};
use crate::support::proxy::{
    Outstanding, Proxy, Setup, instance, instance_until, outstanding, settled,
};
use crate::support::reply::{Reply, gate, ms};
use crate::support::upstream::{Script, Upstream};

mod fleet;

const RELOADS: usize = 50;
/// Some wait and some do not, so that waiters meet every change.
const POLICIES: [&str; 6] = [
    "{ kind = \"round_robin\" }",
    "{ kind = \"lanes\", slots_per_instance = 3, lanes = [{ name = \"short\", max_tokens = 300, reserve = 0.34 }, { name = \"long\" }], queue = { max_requests = 200, max_wait_s = 30 } }",
    "{ kind = \"least_outstanding_tokens\" }",
    "{ kind = \"lanes\", slots_per_instance = 4, lanes = [{ name = \"tiny\", max_tokens = 30 }, { name = \"middle\", max_tokens = 400 }, { name = \"rest\" }] }",
    "{ kind = \"least_requests\" }",
    "{ kind = \"random\" }",
];

fn paced() -> Upstream {
    Script::new(|_| Reply::paced_chat(8, ms(4))).start()
}

fn quick() -> Upstream {
    Script::new(|_| Reply::chat("served")).start()
}

fn long_chat(words: usize) -> Ask {
    let text = "word ".repeat(words);
    let body = format!(
        "{{\"model\":\"m-small\",\"stream\":true,\"max_tokens\":20,\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    );
    Ask::post("/v1/chat/completions", body)
}

fn assert_taken(answer: &Answer) {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(answer.json()["reloaded"], true);
}

fn assert_served(answer: &Answer) {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(answer.end, BodyEnd::Clean);
}

/// Clients that ask again and again, until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    lanes: JoinSet<()>,
}

impl Load {
    fn on(addr: SocketAddr, lanes: usize) -> Load {
        let mut load = Load {
            stop: Arc::default(),
            sent: Arc::default(),
            lanes: JoinSet::new(),
        };
        for lane in 0..lanes {
            let (stop, sent) = (load.stop.clone(), load.sent.clone());
            load.lanes.spawn(async move {
                let mut client = Client::connect(addr).await;
                let ask = long_chat(1 + lane % 4 * 150);
                while !stop.load(Relaxed) {
                    client.send(&ask.bytes()).await;
                    assert_served(&client.answer().await);
                    sent.fetch_add(1, Relaxed);
                }
            });
        }
        load
    }

    /// Returns when `count` more requests were served.
    async fn serves(&self, count: usize) {
        let until = self.sent.load(Relaxed) + count;
        while self.sent.load(Relaxed) < until {
            assert!(!self.lanes.is_empty());
            tokio::time::sleep(ms(1)).await;
        }
    }

    /// Ends it; how many requests were served in all.
    async fn end(mut self) -> usize {
        self.stop.store(true, Relaxed);
        while let Some(lane) = self.lanes.join_next().await {
            lane.unwrap();
        }
        self.sent.load(Relaxed)
    }
}

/// The `number`-th configuration: 2 to 5 of 5 instances, other weights, another policy, `i1` on two sides in turn.
fn configuration(number: usize, fleet: &[Upstream]) -> Setup {
    let mut setup = Setup::over(&[fleet[0].addr])
        .set("reload", "watch = false")
        .set("timeouts", &format!("silence_s = {}", 100 + number))
        .policy(POLICIES[number % POLICIES.len()]);
    let side = fleet[1 + number / 2 % 2].addr;
    setup = setup.and_instance("i1", side, &format!("weight = {}", 1 + number % 3));
    for (one, upstream) in fleet.iter().enumerate().skip(3) {
        if !(number + one).is_multiple_of(3) {
            let label = format!("labels = {{ round = \"{number}\" }}");
            setup = setup.and_instance(&format!("i{one}"), upstream.addr, &label);
        }
    }
    setup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_reloads_under_load_lose_nothing() {
    let fleet: Vec<_> = (0..6).map(|_| paced()).collect();
    let proxy = configuration(0, &fleet).start();
    let load = Load::on(proxy.addr, 24);
    let (mut added, mut removed, mut changed, mut policies) = (0, 0, 0, 0);
    for number in 1..=RELOADS {
        let answer = proxy.reload(&configuration(number, &fleet)).await;
        assert_taken(&answer);
        let told = &answer.json()["changes"];
        let count = |what: &str| told[what].as_array().unwrap().len();
        added += count("instances_added");
        removed += count("instances_removed");
        changed += count("instances_changed");
        policies += count("policies_changed");
        // numbers below 0 do not parse
        let open: u64 = proxy.outstanding().await.values().map(|w| w.requests).sum();
        assert!(open <= 24, "{open} open of 24 clients");
        load.serves(12).await;
    }
    let requests = load.end().await;
    proxy.settled().await;
    println!(
        "{requests} requests around {RELOADS} reloads, 0 failed; {added} instances joined, {removed} left, {changed} \
         changed, {policies} policies"
    );
    assert!(added > 20 && removed > 20 && changed > 20 && policies == RELOADS);
    assert!(fleet.iter().all(|upstream| !upstream.requests().is_empty()));
    let stats: serde_json::Value =
        serde_json::from_str(&proxy.admin_text("/api/stats").await).unwrap();
    let pool = &stats["pools"][0];
    assert_eq!(
        (&pool["stale"], &pool["grants"]),
        (&0.into(), &pool["finishes"])
    );
    let records = proxy.stop();
    assert_eq!(records.len(), requests);
    assert!(records.iter().all(|record| record["outcome"] == "ok"));
}

#[tokio::test]
async fn a_bad_file_is_refused_with_line_and_key_and_the_old_one_goes_on() {
    let upstream = quick();
    let setup = Setup::one(&upstream).set("reload", "watch = false");
    let proxy = setup.start();
    for (bad, line, key) in [
        (
            setup.clone().policy("{ kind = \"round_robbin\" }"),
            "policy =",
            "policy",
        ),
        (setup.clone().pool("share = -1.0"), "share =", "share"),
        (
            setup.clone().pool("engine_key = \"file:/nowhere/key\""),
            "",
            "engine_key",
        ),
        (
            setup.clone().set("timeouts", "connect_s = 0.0"),
            "connect_s",
            "timeouts.connect_s",
        ),
        (
            setup.clone().set("server", "workers = 7"),
            "workers = 7",
            "server.workers",
        ),
        (
            setup.clone().set("log", "access = { format = \"text\" }"),
            "access =",
            "log.access",
        ),
        (setup.clone().and("[[pools]"), "[[pools]", "not TOML"),
    ] {
        let answer = proxy.reload(&bad).await;
        let said = answer.text();
        assert_eq!(answer.status(), 422, "{said}");
        assert!(said.contains("config.toml") && said.contains(key), "{said}");
        if !line.is_empty() {
            let text = bad.text(std::path::Path::new("x"));
            let lines: Vec<&str> = text.lines().collect();
            let at = lines.iter().rposition(|one| one.contains(line)).unwrap() + 1;
            let fault = &answer.json()["error"]["faults"][0];
            assert_eq!(fault["line"], at, "{said}");
        }
        assert_served(&Client::ask(proxy.addr, &Ask::chat()).await);
    }
    let metrics = proxy.admin_text("/metrics").await;
    for line in [
        "evenkeel_config_reloads_total{result=\"refused\"} 7\n",
        "evenkeel_config_reloads_total{result=\"taken\"} 0\n",
        "evenkeel_config_last_reload_taken 0\n",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    assert_taken(&proxy.reload(&setup).await);
    let metrics = proxy.admin_text("/metrics").await;
    assert!(
        metrics.contains("evenkeel_config_last_reload_taken 1\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn keys_limits_and_engine_keys_hold_for_what_comes_after() {
    let hash = |key: &str| run_with(&["hash-key"], key).1.trim().to_owned();
    let (key, closed) = gate();
    let upstream = Script::new(move |request| match request.number {
        0 => Reply::sse().wait(&closed).last_chunk(ms(0)),
        _ => Reply::chat("served"),
    })
    .start();
    let dir = crate::support::proxy::Dir::new();
    let secret = dir.0.join("engine-key");
    let with = |client: &str, most: usize| {
        Setup::one(&upstream)
            .set("reload", "watch = false")
            .pool(&format!("engine_key = \"file:{}\"", secret.display()))
            .and(&format!(
                "[[keys]]\nname = \"team\"\nsha256 = \"{}\"\nmax_concurrent = {most}",
                hash(client)
            ))
    };
    let ask = |proxy: &Proxy, key: &str| {
        let ask = Ask::chat().header("x-api-key", key);
        let addr = proxy.addr;
        async move { Client::ask(addr, &ask).await }
    };
    std::fs::write(&secret, "engine-one").unwrap();
    let proxy = with("client-one-0123456789", 1).start();
    let mut client = Client::connect(proxy.addr).await;
    let open = Ask::chat().header("x-api-key", "client-one-0123456789");
    client.send(&open.bytes()).await;
    let head = client.head().await;

    std::fs::write(&secret, "engine-two").unwrap();
    assert_taken(&proxy.reload(&with("client-two-0123456789", 1)).await);
    assert_eq!(ask(&proxy, "client-one-0123456789").await.status(), 401);
    // the open request is the key's, whatever its secret is now
    let busy = ask(&proxy, "client-two-0123456789").await;
    assert_eq!(busy.error_code(), "concurrency_limit_exceeded");
    assert_taken(&proxy.reload(&with("client-two-0123456789", 2)).await);
    assert_served(&ask(&proxy, "client-two-0123456789").await);
    let sent = |number: usize| {
        let requests = upstream.requests();
        let sent = requests[number].head.header("authorization");
        sent.map(str::to_owned)
    };
    assert_eq!(sent(0).as_deref(), Some("Bearer engine-one"));
    assert_eq!(sent(1).as_deref(), Some("Bearer engine-two"));
    key.open();
    let mut body = client.body(&head);
    while body.next().await.is_some() {}
    assert_eq!(body.end(), Some(BodyEnd::Clean));
}

#[tokio::test]
async fn checks_go_to_the_new_path_at_the_new_interval() {
    let upstream = Script::new(|_| Reply::json(200, "{}")).start();
    let checked = |path: &str, interval_s: f64| {
        let health = format!("check_path = \"{path}\", check_interval_s = {interval_s}");
        Setup::one(&upstream)
            .set("reload", "watch = false")
            .health(&health)
    };
    let counts = || {
        let requests = upstream.requests();
        let to = |path: &str| {
            requests
                .iter()
                .filter(|one| one.head.path() == path)
                .count()
        };
        (to("/old"), to("/new"))
    };
    let proxy = checked("/old", 0.02).start();
    upstream.request(2).await;
    assert_eq!(counts().1, 0);
    // longer than the test waits: what comes is by the intervals before and after
    assert_taken(&proxy.reload(&checked("/old", 600.0)).await);
    let (slow, _) = counts();
    assert_taken(&proxy.reload(&checked("/new", 0.02)).await);
    let anew = async {
        while counts().1 < 10 {
            tokio::time::sleep(ms(2)).await;
        }
    };
    crate::support::within("ten checks of the new path", crate::support::PATIENCE, anew).await;
    // one may have been under way at each reload, and one was due when the interval grew
    assert!(counts().0 <= slow + 3, "{:?} after {slow}", counts());
}

/// The real program, its log in a file.
fn serve(setup: &Setup) -> Child {
    Child::serve_with(setup, |command, dir| {
        let log = std::fs::File::create(dir.join("stderr.log")).unwrap();
        command.env("EVENKEEL_LOG", "info").stderr(log);
    })
}

async fn log_says(child: &Child, words: &[&str]) {
    let path = child.dir().join("stderr.log");
    let said = async {
        loop {
            let log = std::fs::read_to_string(&path).unwrap();
            if words.iter().all(|word| log.contains(word)) {
                return;
            }
            tokio::time::sleep(ms(5)).await;
        }
    };
    let what = format!("{words:?} in the log");
    crate::support::within(&what, crate::support::PATIENCE, said).await;
}

#[tokio::test]
async fn a_signal_or_the_files_change_makes_the_program_read_its_file_again() {
    let (first, second, third) = (quick(), quick(), quick());
    let setup = Setup::one(&first).set("reload", "watch = false");
    let child = serve(&setup);
    let text = |setup: &Setup| setup.text(child.dir());
    child.rewrite(&text(&setup.clone().and_instance("new", second.addr, "")));
    child.signal("HUP");
    instance_until(child.admin, "new", |one| one["health"] == "up").await;

    let bad = text(&setup).replace("round_robin", "round_robbin");
    let line = bad.lines().position(|one| one.contains("round_robbin"));
    let place = format!("config.toml:{}", line.unwrap() + 1);
    child.rewrite(&bad);
    child.signal("HUP");
    log_says(&child, &["refused", "SIGHUP", &place, "policy"]).await;
    assert!(!instance(child.admin, "new").await.is_null());
    assert_served(&Client::ask(child.addr, &Ask::chat()).await);

    // from here on it looks by itself
    let watching = Setup::one(&first).set("reload", "check_s = 0.02");
    child.rewrite(&text(&watching));
    child.signal("HUP");
    instance_until(child.admin, "new", serde_json::Value::is_null).await;
    child.rewrite(&text(
        &watching.clone().and_instance("third", third.addr, ""),
    ));
    instance_until(child.admin, "third", |one| one["health"] == "up").await;
    let bad = text(&watching).replace("connect_s", "conect_s") + "[timeout]\n";
    child.rewrite(&bad);
    log_says(&child, &["the file's change", "unknown key `timeout`"]).await;
    assert!(!instance(child.admin, "third").await.is_null());
    assert_served(&Client::ask(child.addr, &Ask::chat()).await);
    settled(child.admin).await;
    let open = outstanding(child.admin).await;
    assert!(open.values().all(|work| *work == Outstanding::default()));
}
