//! The real proxy in this process, and what can be asked of it: its fleet, its records, its metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use evenkeel::proxy::{Running, Server};
use serde_json::Value;

use super::client::{Answer, Ask, Client};
use super::upstream::Upstream;
use super::{PATIENCE, within};

/// A configuration to write down: ports by the kernel, records in a folder of its own.
#[derive(Debug, Clone)]
pub struct Setup {
    policy: String,
    pool: Vec<String>,
    health: String,
    instances: Vec<(String, String, String)>,
    sections: BTreeMap<&'static str, Vec<String>>,
    more: String,
}

/// A scripted upstream answers only what it was told to expect, errors too.
const NO_HEALTH: &str = "check_path = \"\", failures_in_a_row = 0, window_requests = 1000000";

impl Setup {
    /// One pool `p` over instances `i0`, `i1`, ... under round-robin.
    pub fn over(instances: &[SocketAddr]) -> Setup {
        let urls = instances.iter().map(|addr| format!("http://{addr}"));
        Setup::over_urls(urls.collect())
    }

    /// The same over base URLs.
    pub fn over_urls(urls: Vec<String>) -> Setup {
        let named = urls.into_iter().enumerate();
        Setup {
            policy: "{ kind = \"round_robin\" }".to_owned(),
            pool: Vec::new(),
            health: NO_HEALTH.to_owned(),
            instances: named
                .map(|(i, url)| (format!("i{i}"), url, String::new()))
                .collect(),
            sections: BTreeMap::new(),
            more: String::new(),
        }
    }

    /// One pool over one upstream.
    pub fn one(upstream: &Upstream) -> Setup {
        Setup::over(&[upstream.addr])
    }

    /// The policy's table.
    pub fn policy(mut self, table: &str) -> Setup {
        table.clone_into(&mut self.policy);
        self
    }

    /// A line of a section: `set("client", "half_close = true")`.
    pub fn set(mut self, section: &'static str, line: &str) -> Setup {
        let lines = self.sections.entry(section).or_default();
        lines.push(line.to_owned());
        self
    }

    /// The pool's health table; what is not in it is as by default.
    pub fn health(mut self, table: &str) -> Setup {
        table.clone_into(&mut self.health);
        self
    }

    /// A line of the pool.
    pub fn pool(mut self, line: &str) -> Setup {
        self.pool.push(line.to_owned());
        self
    }

    /// A further instance of the pool, with lines of its own.
    pub fn and_instance(mut self, name: &str, addr: SocketAddr, lines: &str) -> Setup {
        let url = format!("http://{addr}");
        self.instances
            .push((name.to_owned(), url, lines.to_owned()));
        self
    }

    /// A further pool.
    pub fn and_pool(mut self, name: &str, lines: &str, instances: &[SocketAddr]) -> Setup {
        self.more += &format!(
            "[[pools]]\nname = \"{name}\"\npolicy = {{ kind = \"round_robin\" }}\nhealth = {{ {NO_HEALTH} }}\n{lines}\n"
        );
        for addr in instances {
            self.more += &format!("[[pools.instances]]\nurl = \"http://{addr}\"\n");
        }
        self
    }

    /// Further tables, as they stand in the file.
    pub fn and(mut self, tables: &str) -> Setup {
        self.more += tables;
        self.more += "\n";
        self
    }

    /// The file.
    pub fn text(&self, records: &Path) -> String {
        let mut sections = self.sections.clone();
        let mut set = |section, line: String| sections.entry(section).or_default().insert(0, line);
        set("server", "listen = \"127.0.0.1:0\"".to_owned());
        set("admin", "listen = \"127.0.0.1:0\"".to_owned());
        set("records", format!("dir = {records:?}"));
        let timeouts = sections.entry("timeouts").or_default();
        if !timeouts.iter().any(|line| line.starts_with("drain_s")) {
            // a test that ends with a stream open does not wait for it
            timeouts.push("drain_s = 0.5".to_owned());
        }
        let mut text = String::new();
        for (name, lines) in sections {
            text += &format!("[{name}]\n{}\n", lines.join("\n"));
        }
        text += &format!(
            "[[pools]]\nname = \"p\"\npolicy = {}\nhealth = {{ {} }}\n{}\n",
            self.policy,
            self.health,
            self.pool.join("\n")
        );
        for (name, url, lines) in &self.instances {
            text += &format!("[[pools.instances]]\nname = \"{name}\"\nurl = \"{url}\"\n{lines}\n");
        }
        text + &self.more
    }

    /// Starts the proxy.
    pub fn start(&self) -> Proxy {
        let dir = Dir::new();
        let text = self.text(&dir.0);
        let file = dir.file();
        std::fs::write(&file, &text).unwrap();
        let config = evenkeel::config::load(&file);
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        // it starts runtimes of its own, which a thread that drives one may not
        let running = std::thread::spawn(move || Server::start_from(config, Some(file)).unwrap());
        let running = running.join().unwrap();
        Proxy {
            addr: running.server_addr,
            admin: running.admin_addr.unwrap(),
            running: Some(running),
            dir,
        }
    }
}

/// A folder that goes when the test ends.
#[derive(Debug)]
pub struct Dir(pub PathBuf);

impl Dir {
    /// A new, empty one.
    pub fn new() -> Dir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    /// Where a configuration is in it.
    pub fn file(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// Puts another file in its place, as a whole.
    pub fn rewrite(&self, text: &str) {
        let beside = self.0.join("config.toml.new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, self.file()).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running proxy; it ends when dropped.
pub struct Proxy {
    /// where clients go
    pub addr: SocketAddr,
    /// where operators go
    pub admin: SocketAddr,
    running: Option<Running>,
    dir: Dir,
}

impl Proxy {
    /// The record of a request, once it is written.
    pub async fn record(&self, id: &str) -> Value {
        let found = async {
            loop {
                let mut records = self.records();
                if let Some(at) = records.iter().position(|r| r["request_id"] == id) {
                    return records.swap_remove(at);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within(&format!("the record of {id}"), PATIENCE, found).await
    }

    /// All records written so far.
    pub fn records(&self) -> Vec<Value> {
        if let Some(running) = &self.running {
            running.flush_records();
        }
        records_in(&self.dir.0)
    }

    /// Stops it, letting open requests end; gives the records.
    pub fn stop(mut self) -> Vec<Value> {
        if let Some(running) = self.running.take() {
            running.shutdown();
        }
        records_in(&self.dir.0)
    }

    /// Lines of the chunk files written so far.
    pub fn chunk_lines(&self) -> Vec<Value> {
        chunk_lines_in(&self.dir.0)
    }

    /// What the running server works with.
    pub fn shared(&self) -> &Arc<evenkeel::proxy::core::Shared> {
        self.running.as_ref().unwrap().shared()
    }

    /// Puts another configuration in the place of the first; nobody is told.
    pub fn rewrite(&self, setup: &Setup) {
        self.dir.rewrite(&setup.text(&self.dir.0));
    }

    /// `POST path` to the admin listener.
    pub async fn post(&self, path: &str, body: &str) -> Answer {
        post(self.admin, path, body).await
    }

    /// Has `setup` read in the place of the configuration; the answer.
    pub async fn reload(&self, setup: &Setup) -> Answer {
        self.rewrite(setup);
        self.post("/api/reload", "").await
    }

    /// An instance of pool `p` as `/api/fleet` shows it; null if it does not.
    pub async fn instance(&self, name: &str) -> Value {
        instance(self.admin, name).await
    }

    /// `GET path` of the admin listener.
    pub async fn admin_text(&self, path: &str) -> String {
        admin_text(self.admin, path).await
    }

    /// Outstanding work by instance, as the fleet says.
    pub async fn outstanding(&self) -> BTreeMap<String, Outstanding> {
        outstanding(self.admin).await
    }

    /// Returns how long it took until nothing was outstanding anywhere.
    pub async fn settled(&self) -> Duration {
        settled(self.admin).await
    }
}

/// Records in a folder.
pub fn records_in(dir: &Path) -> Vec<Value> {
    lines_in(dir, "records-")
}

/// Lines of the chunk files in a folder.
pub fn chunk_lines_in(dir: &Path) -> Vec<Value> {
    lines_in(dir, "chunks-")
}

/// Lines of all files whose names begin like this.
fn lines_in(dir: &Path, prefix: &str) -> Vec<Value> {
    let names: BTreeSet<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(prefix) && name.ends_with(".jsonl")
        })
        .collect();
    let mut records = Vec::new();
    for path in names {
        let text = std::fs::read_to_string(path).unwrap();
        // a line that is being written has no line end yet
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            records.push(serde_json::from_str(line).unwrap());
        }
    }
    records
}

/// `GET path` of an admin listener.
pub async fn admin_text(admin: SocketAddr, path: &str) -> String {
    let answer = Client::ask(admin, &Ask::get(path).header("connection", "close")).await;
    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
    answer.text()
}

/// `POST path` to an admin listener.
pub async fn post(admin: SocketAddr, path: &str, body: &str) -> Answer {
    let ask = Ask::post(path, body.to_owned()).header("connection", "close");
    Client::ask(admin, &ask).await
}

/// An instance of pool `p` as `/api/fleet` shows it; null if it does not.
pub async fn instance(admin: SocketAddr, name: &str) -> Value {
    let fleet: Value = serde_json::from_str(&admin_text(admin, "/api/fleet").await).unwrap();
    let pools = fleet["pools"].as_array().unwrap();
    let instances = pools.iter().filter(|pool| pool["name"] == "p");
    let mut instances = instances.flat_map(|pool| pool["instances"].as_array().unwrap());
    let found = instances.find(|one| one["name"] == name);
    found.cloned().unwrap_or_default()
}

/// Waits until `holds` is true of an instance of pool `p`.
pub async fn instance_until(
    admin: SocketAddr,
    name: &str,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let what = format!("instance {name} to be as it should");
    within(&what, PATIENCE, async {
        loop {
            let found = instance(admin, name).await;
            if holds(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

/// Work that an instance has not finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// requests
    pub requests: u64,
    /// prompt and predicted output tokens
    pub tokens: u64,
}

/// Outstanding work by instance. A number below 0 or a missing one fails the test.
pub async fn outstanding(admin: SocketAddr) -> BTreeMap<String, Outstanding> {
    let fleet: Value = serde_json::from_str(&admin_text(admin, "/api/fleet").await).unwrap();
    let mut all = BTreeMap::new();
    for pool in fleet["pools"].as_array().unwrap() {
        for instance in pool["instances"].as_array().unwrap() {
            let count = |key: &str| {
                let value = &instance[key];
                value
                    .as_u64()
                    .unwrap_or_else(|| panic!("{key} is {value} in {instance}"))
            };
            let name = format!(
                "{}/{}",
                pool["name"].as_str().unwrap(),
                instance["name"].as_str().unwrap()
            );
            let work = Outstanding {
                requests: count("outstanding_requests"),
                tokens: count("outstanding_tokens"),
            };
            // one that leaves may share its name with the one that took its place
            let sum: &mut Outstanding = all.entry(name).or_default();
            sum.requests += work.requests;
            sum.tokens += work.tokens;
        }
    }
    all
}

/// Returns how long it took until nothing was outstanding anywhere.
pub async fn settled(admin: SocketAddr) -> Duration {
    let begun = Instant::now();
    within("an idle fleet", PATIENCE, async {
        loop {
            let all = outstanding(admin).await;
            if all.values().all(|work| *work == Outstanding::default()) {
                return begun.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}
