//! The thread that asks every endpoint at an interval.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::exposition::Page;
use super::rates::{CpuSeconds, CpuTimes};
use super::{names, own};
use crate::load::fetch::{Ask, BLOCK_BYTES, Fetched};
use crate::measure::clock::{Ns, now_ns};
use crate::study::monitor::{Figures, Reading, Source};

/// Longest that one look at a source may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What is read off a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// vLLM's names
    Engine,
    /// DCGM's names
    Gpu,
    /// node-exporter's names
    Host,
    /// Evenkeel's own names
    Proxy,
}

/// A page of figures, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// host and port to connect to
    pub host: String,
    /// see `host`
    pub port: u16,
    /// what is asked
    pub ask: Ask,
    /// what is read off it; what one of ours does not tell is no fault
    pub kinds: Vec<Kind>,
    /// instance it belongs to
    pub instance: Option<String>,
    /// the GPU that is meant, where the page has several
    pub gpu: Option<String>,
}

/// One look, on the monotonic clock.
#[derive(Debug, Clone)]
struct Look {
    at_ns: Ns,
    source: Source,
    instance: Option<String>,
    gpu: Option<String>,
    figures: Figures,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    looks: Vec<Look>,
    /// sources that did not answer or told nothing, for people to read
    pub notes: Vec<String>,
}

impl Seen {
    /// The looks in time, on the axis of a load that began at `started_ns`.
    pub fn readings(mut self, started_ns: Ns) -> Vec<Reading> {
        self.looks.sort_by_key(|look| look.at_ns);
        let reading = |look: Look| Reading {
            at_s: (look.at_ns as f64 - started_ns as f64) / 1e9,
            source: look.source,
            instance: look.instance,
            gpu: look.gpu,
            figures: look.figures,
        };
        self.looks.into_iter().map(reading).collect()
    }
}

/// A monitor that looks until it is ended.
pub struct Monitor {
    end: watch::Sender<bool>,
    thread: JoinHandle<Seen>,
}

impl Monitor {
    /// Begins to look, at once and then at every interval.
    pub fn start(endpoints: Vec<Endpoint>, every: Duration) -> std::io::Result<Monitor> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (end, ended) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("monitor".into())
            .spawn(move || runtime.block_on(look_at_all(endpoints, every, ended)))?;
        Ok(Monitor { end, thread })
    }

    /// Ends it, with a last look.
    pub fn end(self) -> Seen {
        self.end.send_replace(true);
        self.thread.join().unwrap_or_default()
    }
}

async fn look_at_all(
    endpoints: Vec<Endpoint>,
    every: Duration,
    ended: watch::Receiver<bool>,
) -> Seen {
    let mut watches = JoinSet::new();
    for endpoint in endpoints {
        let watched = Watched {
            endpoint,
            seen: Seen::default(),
            before: Before::default(),
            tally: Tally::default(),
        };
        watches.spawn(watched.until(every, ended.clone()));
    }
    let mut seen = own_looks(every, ended).await;
    while let Some(Ok(one)) = watches.join_next().await {
        seen.looks.extend(one.looks);
        seen.notes.extend(one.notes);
    }
    seen.notes.sort();
    seen
}

/// Returns true at each tick, and false at the end.
async fn tick(interval: &mut tokio::time::Interval, ended: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        biased;
        _ = ended.wait_for(|ended| *ended) => false,
        _ = interval.tick() => true,
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

/// The generator, which is in this process.
async fn own_looks(every: Duration, mut ended: watch::Receiver<bool>) -> Seen {
    let (mut seen, mut before) = (Seen::default(), None);
    let mut interval = ticks(every);
    loop {
        let goes_on = tick(&mut interval, &mut ended).await;
        if let Some(total_s) = own::generator_cpu_s() {
            let now = CpuSeconds {
                at_ns: now_ns(),
                total_s,
            };
            let share = before
                .replace(now)
                .and_then(|before| now.share_of_a_core(before));
            seen.looks.push(Look {
                at_ns: now.at_ns,
                source: Source::Generator,
                instance: None,
                gpu: None,
                figures: Figures {
                    cpu_seconds_total: Some(total_s),
                    cpu_use_share: share,
                    ..Figures::default()
                },
            });
        }
        if !goes_on {
            return seen;
        }
    }
}

/// Totals of the last look.
#[derive(Default)]
struct Before {
    process: Option<CpuSeconds>,
    host: Option<CpuTimes>,
}

/// What went wrong.
#[derive(Default)]
struct Tally {
    looks: u64,
    failed: u64,
    first_failure: Option<String>,
    malformed: u64,
    found: Vec<Kind>,
}

struct Watched {
    endpoint: Endpoint,
    seen: Seen,
    before: Before,
    tally: Tally,
}

impl Watched {
    async fn until(mut self, every: Duration, mut ended: watch::Receiver<bool>) -> Seen {
        let mut interval = ticks(every);
        loop {
            let goes_on = tick(&mut interval, &mut ended).await;
            self.look().await;
            if !goes_on {
                break;
            }
        }
        self.seen.notes = self.notes();
        self.seen
    }

    async fn look(&mut self) {
        self.tally.looks += 1;
        let at_ns = now_ns();
        let answer = tokio::time::timeout(LIMIT, self.endpoint.get()).await;
        let failure = match answer {
            Ok(Ok(answer)) if answer.status == 200 => {
                return self.take(at_ns, &String::from_utf8_lossy(&answer.body));
            }
            Ok(Ok(answer)) => format!("status {}", answer.status),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", LIMIT.as_secs()),
        };
        self.tally.failed += 1;
        self.tally.first_failure.get_or_insert(failure);
    }

    fn take(&mut self, at_ns: Ns, text: &str) {
        let page = Page::read(text);
        self.tally.malformed += page.malformed;
        for kind in self.endpoint.kinds.clone() {
            let looks = self.looks_of(kind, at_ns, &page);
            if !looks.is_empty() && !self.tally.found.contains(&kind) {
                self.tally.found.push(kind);
            }
            self.seen.looks.extend(looks);
        }
    }

    fn looks_of(&mut self, kind: Kind, at_ns: Ns, page: &Page<'_>) -> Vec<Look> {
        match kind {
            Kind::Gpu => {
                let gpus = names::gpus(page, self.endpoint.gpu.as_deref());
                let look = |(gpu, figures)| self.named(at_ns, Source::Gpu, Some(gpu), figures);
                gpus.into_iter().filter_map(look).collect()
            }
            Kind::Host => {
                let figures = Figures {
                    cpu_use_share: self.host_share(page),
                    ..Figures::default()
                };
                self.named(at_ns, Source::Host, None, figures)
                    .into_iter()
                    .collect()
            }
            Kind::Engine => self.process(at_ns, Source::Engine, names::engine(page)),
            Kind::Proxy => self.process(at_ns, Source::Proxy, names::proxy(page)),
        }
    }

    fn host_share(&mut self, page: &Page<'_>) -> Option<f64> {
        let now = names::host(page)?;
        now.busy_share(self.before.host.replace(now)?)
    }

    fn process(&mut self, at_ns: Ns, source: Source, mut figures: Figures) -> Vec<Look> {
        if let Some(total_s) = figures.cpu_seconds_total {
            let now = CpuSeconds { at_ns, total_s };
            let before = self.before.process.replace(now);
            figures.cpu_use_share = before.and_then(|before| now.share_of_a_core(before));
        }
        self.named(at_ns, source, None, figures)
            .into_iter()
            .collect()
    }

    /// None where nothing was told.
    fn named(
        &self,
        at_ns: Ns,
        source: Source,
        gpu: Option<String>,
        figures: Figures,
    ) -> Option<Look> {
        (figures != Figures::default()).then(|| Look {
            at_ns,
            source,
            instance: self.endpoint.instance.clone(),
            gpu,
            figures,
        })
    }

    fn notes(&self) -> Vec<String> {
        let (tally, url) = (&self.tally, self.endpoint.url());
        let mut notes = Vec::new();
        if let Some(why) = &tally.first_failure {
            let (failed, looks) = (tally.failed, tally.looks);
            notes.push(format!(
                "monitor: {url} did not answer {failed} of {looks} looks: {why}"
            ));
        }
        if tally.malformed > 0 {
            let malformed = tally.malformed;
            notes.push(format!(
                "monitor: {url} wrote {malformed} lines that are no figures"
            ));
        }
        if tally.failed < tally.looks && tally.found.is_empty() {
            notes.push(format!(
                "monitor: {url} answers, with none of the figures looked for"
            ));
        }
        notes
    }
}

impl Endpoint {
    /// As it is written.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.ask.authority, self.ask.path)
    }

    async fn addrs(&self) -> std::io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        // On the side: a slow resolver holds up no other source.
        let (host, port) = (self.host.clone(), self.port);
        let resolve = move || {
            (host.as_str(), port)
                .to_socket_addrs()
                .map(Iterator::collect)
        };
        let resolved = tokio::task::spawn_blocking(resolve).await;
        resolved.map_err(std::io::Error::other)?
    }

    async fn get(&self) -> std::io::Result<Fetched> {
        let addrs = self.addrs().await?;
        let mut stream = TcpStream::connect(addrs.as_slice()).await?;
        stream.write_all(&self.ask.bytes()).await?;
        let (mut bytes, mut block) = (Vec::new(), vec![0; BLOCK_BYTES]);
        loop {
            let count = stream.read(&mut block).await?;
            bytes.extend_from_slice(&block[..count]);
            if let Some(answer) = Fetched::read(&bytes, count == 0)? {
                return Ok(answer);
            }
        }
    }
}

/// Endpoints of one page are looked at together; the order stays.
pub fn merged(endpoints: impl IntoIterator<Item = Endpoint>) -> Vec<Endpoint> {
    let mut merged: Vec<Endpoint> = Vec::new();
    for endpoint in endpoints {
        let is_same = |known: &&mut Endpoint| {
            let kinds = known.kinds.clone();
            **known
                == Endpoint {
                    kinds,
                    ..endpoint.clone()
                }
        };
        match merged.iter_mut().find(is_same) {
            Some(known) => known.kinds.extend(&endpoint.kinds),
            None => merged.push(endpoint),
        }
    }
    merged
}

#[cfg(test)]
#[path = "watcher_tests.rs"]
mod tests;
