//! Chaos: twenty thousand requests over a fleet of simulated engines behind fault proxies, with faults of
//! thirty kinds drawn from a seed, instances that die and come back, and clients that leave at all
//! stages. Nothing may panic, hang or leak, no answer may be spliced, and each request has its one record.
//!
//! `EVENKEEL_CHAOS_SEED` and `EVENKEEL_CHAOS_REQUESTS` set the seed and the number of requests.

mod fleet;
mod judge;
mod lanes;
mod plan;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::fleet::{Board, Fleet};
use self::judge::Case;
use self::lanes::{Lane, View};
use self::plan::{Kind, PROMPTS, body};
use crate::support::child::Child;
use crate::support::client::{Ask, Client};
use crate::support::client_h2::ClientH2;
use crate::support::fault_proxy::Sighting;
use crate::support::proxy::{Outstanding, Setup, admin_text, outstanding, settled};
use crate::support::reply::ms;
use crate::support::{PATIENCE, within};

const REQUESTS: usize = 20_000;
const INSTANCES: usize = 6;
/// A multiple of 5, so that each lane has one protocol.
const LANES: usize = 200;
const ROUNDS: usize = 4;
/// Requests held open at each checkpoint.
const HELD: usize = 12;

fn setup(fleet: &Fleet) -> Setup {
    let addrs: Vec<_> = fleet.proxies.iter().map(|proxy| proxy.addr).collect();
    Setup::over(&addrs)
        .policy("{ kind = \"least_outstanding_tokens\" }")
        .health("check_interval_s = 0.25, check_timeout_s = 1.0, probe_interval_s = 0.05, slow_start_s = 0.2, window_s = 1.0, retry_after_max_s = 0.1")
        .set("server", "workers = 2")
        .set("limits", "head_bytes = \"16 KiB\"")
        .set("timeouts", "connect_s = 3.0")
        .set("timeouts", "headers_s = 3.0")
        .set("timeouts", "first_event_s = 3.0")
        .set("timeouts", "silence_s = 3.0")
        .set("timeouts", "upstream_idle_s = 0.5")
        .set("timeouts", "drain_s = 10.0")
        // faults are a third of all requests: the budget is not what is tried here
        .set("retries", "budget_share = 1.0")
        .set("retries", &format!("instances_max = {INSTANCES}"))
}

fn env<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

/// Open descriptors of a process.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

/// Tasks alive on Evenkeel's cores.
async fn tasks(child: &Child) -> usize {
    let text = admin_text(child.admin, "/metrics").await;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("evenkeel_tasks "));
    line.unwrap().parse().unwrap()
}

/// What is open when nothing is: checks come and go, so the least of some looks counts.
async fn at_rest(child: &Child, fleet: &Fleet) -> (usize, usize) {
    settled(child.admin).await;
    for proxy in &fleet.proxies {
        proxy.idle().await;
    }
    let mut least = (usize::MAX, usize::MAX);
    for _ in 0..60 {
        least.0 = least.0.min(descriptors(child.pid()));
        least.1 = least.1.min(tasks(child).await);
        tokio::time::sleep(ms(5)).await;
    }
    least
}

/// The text of each prompt's answer, from an engine itself.
async fn texts(fleet: &Fleet) -> Vec<String> {
    let mut texts = Vec::new();
    for prompt in 0..PROMPTS {
        let ask = Ask::post("/v1/chat/completions", body(prompt, false));
        let json = Client::ask(fleet.engine_addr(0), &ask).await.json();
        let text = &json["choices"][0]["message"]["content"];
        texts.push(text.as_str().unwrap().to_owned());
    }
    texts
}

/// One run.
struct Run {
    board: Arc<Board>,
    fleet: Fleet,
    child: Child,
    rng: Xoshiro256PlusPlus,
    views: Vec<View>,
}

impl Run {
    /// Lanes send the requests of `numbers` while instances suffer.
    async fn round(&mut self, numbers: std::ops::Range<usize>) {
        let (done, progress) = watch::channel(0);
        let (over, ending) = watch::channel(false);
        let mut lanes = JoinSet::new();
        let mut http2 = None;
        for lane in 0..LANES {
            // six lanes share an HTTP/2 connection
            if lane % 30 == 4 || http2.is_none() {
                http2 = Some(ClientH2::connect(self.child.addr, 65_535).await);
            }
            let mut lane_itself = Lane {
                addr: self.child.addr,
                kept: None,
                http2: http2.clone().unwrap(),
                release: ending.clone(),
            };
            let (board, done) = (self.board.clone(), done.clone());
            let mine = numbers.clone().filter(move |number| number % LANES == lane);
            lanes.spawn(async move {
                let mut views = Vec::new();
                for number in mine {
                    let (plan, seen) = (board.plan(number), board.seen(number));
                    views.push(lane_itself.go(&plan, seen).await);
                    done.send_modify(|done| *done += 1);
                }
                views
            });
        }
        let all = async {
            let mut views = Vec::new();
            while let Some(lane) = lanes.join_next().await {
                views.extend(lane.unwrap());
            }
            over.send_replace(true);
            views
        };
        let (views, ()) = tokio::join!(all, self.fleet.suffer(&mut self.rng, progress, ending));
        self.views.extend(views);
    }

    /// With some requests held and no other, outstanding work is what is really open; without them, none.
    async fn checkpoint(&mut self, first: usize) {
        let (release, released) = watch::channel(false);
        let (done, mut ended) = watch::channel(0);
        let mut holders = JoinSet::new();
        let mut seen = Vec::new();
        for number in first..first + HELD {
            let mut lane = Lane {
                addr: self.child.addr,
                kept: None,
                http2: ClientH2::connect(self.child.addr, 65_535).await,
                release: released.clone(),
            };
            let plan = self.board.plan(number);
            let (tell, told) = tokio::sync::oneshot::channel();
            let came = self.board.seen(number);
            let done = done.clone();
            seen.push(told);
            holders.spawn(async move {
                let (again, seen) = tokio::sync::oneshot::channel();
                tokio::spawn(async move {
                    let _ = came.await;
                    let _ = tell.send(());
                    let _ = again.send(());
                });
                let view = lane.go(&plan, seen).await;
                done.send_modify(|done| *done += 1);
                view
            });
        }
        for told in seen {
            within("held requests", PATIENCE, told).await.unwrap();
        }
        self.counts_are_true().await;
        release.send_replace(true);
        let all = ended.wait_for(|ended| *ended == HELD);
        within("held clients to leave", PATIENCE, all)
            .await
            .unwrap();
        while let Some(view) = holders.join_next().await {
            self.views.push(view.unwrap());
        }
        settled(self.child.admin).await;
        self.counts_are_true().await;
    }

    async fn counts_are_true(&self) {
        let mut last = BTreeMap::new();
        let agree = async {
            loop {
                last = outstanding(self.child.admin).await;
                let true_count = |at: usize| {
                    let work = last[&format!("p/i{at}")];
                    work.requests == self.fleet.open(at)
                        && (work.tokens == 0) == (work.requests == 0)
                };
                if (0..INSTANCES).all(true_count) {
                    return;
                }
                tokio::time::sleep(ms(5)).await;
            }
        };
        let agreed = tokio::time::timeout(Duration::from_secs(2), agree).await;
        if agreed.is_err() {
            panic!("{last:?} against what is really open:\n{}", self.open());
        }
    }

    /// Exchanges open at the instances, with their plans.
    fn open(&self) -> String {
        let mut text = String::new();
        for (at, proxy) in self.fleet.proxies.iter().enumerate() {
            for one in proxy.sightings() {
                if one.end.is_none() && !one.id.is_empty() {
                    let number = one.id.trim_start_matches("chaos-").parse().unwrap();
                    text += &format!("i{at}: {one:?} of {:?}\n", self.board.plan(number));
                }
            }
        }
        text
    }

    /// What befell each request upstream, in order of time.
    fn sightings(&self) -> HashMap<String, Vec<(usize, Sighting)>> {
        let mut by_id: HashMap<String, Vec<(usize, Sighting)>> = HashMap::new();
        for (at, proxy) in self.fleet.proxies.iter().enumerate() {
            for one in proxy.sightings() {
                by_id.entry(one.id.clone()).or_default().push((at, one));
            }
        }
        for all in by_id.values_mut() {
            all.sort_by_key(|(_, one)| one.at);
        }
        by_id
    }
}

/// Records by request.
fn records_by_id(records: Vec<Value>) -> HashMap<String, Vec<Value>> {
    let mut by_id: HashMap<String, Vec<Value>> = HashMap::new();
    for record in records {
        let id = record["request_id"].as_str().unwrap().to_owned();
        by_id.entry(id).or_default().push(record);
    }
    by_id
}

fn count<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    *counts.entry(key).or_default() += 1;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos_loses_nothing() {
    let seed: u64 = env("EVENKEEL_CHAOS_SEED").unwrap_or_else(rand::random);
    let requests = env("EVENKEEL_CHAOS_REQUESTS").unwrap_or(REQUESTS);
    println!("chaos: EVENKEEL_CHAOS_SEED={seed} EVENKEEL_CHAOS_REQUESTS={requests}");
    let begun = Instant::now();
    let own_before = descriptors(std::process::id());

    let board = Arc::new(Board::new(seed, requests, ROUNDS * HELD));
    let fleet = Fleet::start(INSTANCES, &board).await;
    let texts = texts(&fleet).await;
    let child = Child::serve_with(&setup(&fleet), |command, dir| {
        let log = std::fs::File::create(dir.join("stderr")).unwrap();
        command.stderr(log);
    });
    for number in 0..100 {
        let ask = Ask::post("/v1/chat/completions", body(number % PROMPTS, true));
        let answer = Client::ask(child.addr, &ask.id("warm")).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    let rest = at_rest(&child, &fleet).await;

    let mut run = Run {
        board,
        fleet,
        child,
        rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        views: Vec::new(),
    };
    for round in 0..ROUNDS {
        let (from, to) = (round * requests / ROUNDS, (round + 1) * requests / ROUNDS);
        run.round(from..to).await;
        run.checkpoint(requests + round * HELD).await;
    }
    let served = begun.elapsed();

    settled(run.child.admin).await;
    let idle = outstanding(run.child.admin).await;
    assert!(idle.values().all(|work| *work == Outstanding::default()));
    let back = async {
        loop {
            let now = at_rest(&run.child, &run.fleet).await;
            if now.0 <= rest.0 && now.1 <= rest.1 {
                return now;
            }
            println!("descriptors and tasks {now:?}, at rest before: {rest:?}");
        }
    };
    let now = within("descriptors and tasks to be gone", PATIENCE, back).await;
    run.child.signal("TERM");
    assert!(run.child.wait().success());
    let log = std::fs::read_to_string(run.child.dir().join("stderr")).unwrap();
    assert!(!log.contains("panicked"), "{log}");

    assert_eq!(run.views.len(), requests + ROUNDS * HELD, "answers known");
    judge(&run, &texts, seed, served, (rest, now));
    if requests >= REQUESTS {
        was_chaos(&run);
    }
    run.fleet.stop().await;
    drop(run);
    let own = async {
        while descriptors(std::process::id()) > own_before {
            tokio::time::sleep(ms(5)).await;
        }
    };
    within("the test's own descriptors to be gone", PATIENCE, own).await;
}

/// At its full size a run has used most kinds of fault, and instances have died, whatever the seed.
fn was_chaos(run: &Run) {
    let sightings = run.sightings();
    let plans = run.views.iter().map(|view| &view.plan);
    let used = plans.filter(|plan| plan.kind != Kind::None && sightings.contains_key(&plan.id));
    let faults: BTreeSet<Kind> = used.map(|plan| plan.kind).collect();
    assert!(faults.len() >= 12, "only {faults:?} were used");
    assert!(run.fleet.events.deaths > 0, "no instance died");
}

/// Holds every request against its plan, and prints what there was.
fn judge(
    run: &Run,
    texts: &[String],
    seed: u64,
    served: Duration,
    rest: ((usize, usize), (usize, usize)),
) {
    let (sightings, records) = (run.sightings(), records_by_id(run.child.records()));
    let (mut kinds, mut conducts, mut outcomes) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut again, mut elsewhere) = (0, 0);
    let mut wrong = Vec::new();
    for view in &run.views {
        let seen = sightings.get(&view.plan.id).map_or(&[][..], Vec::as_slice);
        let own = records.get(&view.plan.id).map_or(&[][..], Vec::as_slice);
        let case = Case {
            view,
            records: own,
            sightings: seen,
            spells: &run.fleet.events.spells,
            text: &texts[view.plan.prompt],
        };
        count(&mut kinds, format!("{:?}", view.plan.kind));
        count(&mut conducts, format!("{:?}", view.plan.conduct));
        if let Some(record) = own.first() {
            let failed = record["failed_attempts"].as_array().into_iter().flatten();
            let (stale, tried): (Vec<_>, Vec<_>) =
                failed.partition(|attempt| attempt["cause"] == "stale_connection");
            again += stale.len();
            elsewhere += tried.len();
        }
        match case.judge() {
            Ok(outcome) => count(&mut outcomes, outcome),
            Err(what) => wrong.push(format!(
                "{what}\n  plan {:?}\n  status {:?}, {} bytes, clean {}, left {}, {:?}\n  upstream {seen:?}\n  records {own:?}",
                view.plan,
                view.status,
                view.body.len(),
                view.clean,
                view.left,
                view.ended - view.begun,
            )),
        }
    }
    let known = run.views.len();
    let strangers = records
        .keys()
        .filter(|id| !id.starts_with("chaos-") && *id != "warm");
    let events = &run.fleet.events;
    println!(
        "chaos: seed {seed}, {known} requests in {:.1} s: faults {kinds:?}; clients {conducts:?}; instances: {} deaths, {} refusals, {} spells of resets, {} engine faults; outcomes {outcomes:?}; {again} sent again, {elsewhere} tried elsewhere; descriptors and tasks at rest {:?} before, {:?} after",
        served.as_secs_f64(),
        events.deaths,
        events.refusals,
        events.resets,
        events.engine_faults,
        rest.0,
        rest.1,
    );
    assert_eq!(strangers.count(), 0, "records nobody asked for");
    assert!(
        wrong.is_empty(),
        "{} of {known} requests went wrong, among them:\n{}",
        wrong.len(),
        wrong.iter().take(8).cloned().collect::<Vec<_>>().join("\n")
    );
}
