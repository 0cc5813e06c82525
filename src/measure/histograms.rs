//! The live figures of all requests: histograms and counters per pool and instance, one set a core.
//!
//! A core records into its own set behind a lock nobody else wants, once a request, at its end.
//! Readers merge the sets. Only `ok` requests enter latency figures; all enter the counters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use super::clock::Ns;
use super::figures::Figures;
use super::outcome::Outcome;
use super::speed::{SampleRing, SpeedSample, speed_vs_fleet};
use super::summary::Exchange;
use super::windows::{Counts, Window, Windowed};

/// Decodes kept per instance and core for `speed_vs_fleet`.
const SPEED_SAMPLES: usize = 512;
/// Prompts below this are `short`.
pub const SHORT_PROMPT_TOKENS: u64 = 1024;
/// Prompts from this on are `long`.
pub const LONG_PROMPT_TOKENS: u64 = 8192;
/// The name everything past `max_series` goes under.
pub const OTHER: &str = "other";

/// A latency that is kept as a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// client TTFT
    ClientTtft,
    /// server TTFT
    ServerTtft,
    /// TPOT
    Tpot,
    /// time between output chunks of one choice
    ChunkGap,
    /// E2E
    E2e,
    /// the proxy's own share of client TTFT
    ProxyOwn,
    /// time in a lane's queue
    Queue,
}

impl Figure {
    /// All figures.
    pub const ALL: [Figure; 7] = [
        Figure::ClientTtft,
        Figure::ServerTtft,
        Figure::Tpot,
        Figure::ChunkGap,
        Figure::E2e,
        Figure::ProxyOwn,
        Figure::Queue,
    ];
}

/// By what a pool's requests are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// the whole pool
    Pool,
    /// by instance
    Instance,
    /// by arm of an experiment
    Arm,
    /// by lane
    Lane,
    /// by prompt length: `short`, `medium`, `long`
    Length,
}

/// Names one series: a pool, how it is cut, and the piece.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SeriesKey {
    /// pool; empty for requests that never had one
    pub pool: Arc<str>,
    /// how the pool is cut
    pub cut: Cut,
    /// name of the piece: the instance, arm, lane or length; empty for none or the whole pool
    pub name: Arc<str>,
}

/// What is counted of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Totals {
    /// requests by outcome, in the order of [`Outcome::ALL`]
    pub outcomes: [u64; 8],
    /// prompt tokens by `usage`
    pub prompt_tokens: u64,
    /// output tokens by `usage`
    pub output_tokens: u64,
    /// output tokens estimated for requests without `usage`
    pub output_tokens_est: f64,
    /// `ok` requests with `usage`
    pub with_usage: u64,
    /// `ok` requests without
    pub without_usage: u64,
    /// request body bytes
    pub request_bytes: u64,
    /// answer body bytes
    pub response_bytes: u64,
    /// events with data
    pub events: u64,
    /// upstream reads with body bytes
    pub reads: u64,
    /// output chunks
    pub chunks: u64,
    /// attempts after the first
    pub retries: u64,
    /// answers that could not be read
    pub unmeasured: u64,
}

impl Totals {
    /// Requests of all outcomes.
    pub fn requests(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Requests with `outcome`.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Requests that are `failed` in the sidecars' sense.
    pub fn failed(&self) -> u64 {
        Outcome::ALL
            .iter()
            .filter(|outcome| outcome.is_failed())
            .map(|&outcome| self.of(outcome))
            .sum()
    }

    fn record(&mut self, exchange: &Exchange, figures: &Figures) {
        self.outcomes[exchange.outcome as usize] += 1;
        self.request_bytes += exchange.request_bytes;
        self.response_bytes += exchange.response_bytes;
        self.retries += u64::from(exchange.attempts.saturating_sub(1));
        self.prompt_tokens += figures.prompt_tokens.unwrap_or(0);
        self.output_tokens += figures.output_tokens.unwrap_or(0);
        self.output_tokens_est += figures.output_tokens_est.unwrap_or(0.0);
        let Some(answer) = &exchange.answer else {
            return;
        };
        self.events += answer.events;
        self.reads += answer.reads;
        self.chunks += answer.content_chunks;
        self.unmeasured += u64::from(answer.unmeasured);
        if exchange.outcome == Outcome::Ok {
            let has_usage = figures.output_tokens.is_some() || figures.prompt_tokens.is_some();
            self.with_usage += u64::from(has_usage);
            self.without_usage += u64::from(!has_usage);
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Totals) {
        self.outcomes
            .iter_mut()
            .zip(other.outcomes)
            .for_each(|(mine, theirs)| *mine += theirs);
        self.prompt_tokens += other.prompt_tokens;
        self.output_tokens += other.output_tokens;
        self.output_tokens_est += other.output_tokens_est;
        self.with_usage += other.with_usage;
        self.without_usage += other.without_usage;
        self.request_bytes += other.request_bytes;
        self.response_bytes += other.response_bytes;
        self.events += other.events;
        self.reads += other.reads;
        self.chunks += other.chunks;
        self.retries += other.retries;
        self.unmeasured += other.unmeasured;
    }
}

/// A series: its histograms, made at first use, and what only instances have.
#[derive(Default)]
struct Series {
    figures: [Option<Box<Windowed>>; 7],
    totals: Totals,
    speed: Option<SampleRing>,
}

impl Series {
    fn record(&mut self, figure: Figure, us: u32, now_ns: Ns) {
        self.figure(figure).record(us, now_ns);
    }

    fn figure(&mut self, figure: Figure) -> &mut Windowed {
        self.figures[figure as usize].get_or_insert_with(Box::default)
    }

    fn bytes(&self) -> usize {
        let windowed = self
            .figures
            .iter()
            .flatten()
            .map(|windowed| windowed.bytes())
            .sum::<usize>();
        let speed = self
            .speed
            .as_ref()
            .map_or(0, |ring| std::mem::size_of_val(ring.samples()));
        std::mem::size_of::<Series>() + windowed + speed
    }
}

/// Quantiles of one series and figure. Times in milliseconds, each quantile within 1 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesQuantiles {
    /// which requests
    #[serde(flatten)]
    pub key: SeriesKey,
    /// which figure
    pub figure: Figure,
    /// values
    pub count: u64,
    /// median
    pub p50: f64,
    /// 90 %
    pub p90: f64,
    /// 95 %
    pub p95: f64,
    /// 99 %
    pub p99: f64,
    /// greatest, exact
    pub max: f64,
    /// mean, exact
    pub mean: f64,
}

impl SeriesQuantiles {
    fn of(key: SeriesKey, figure: Figure, counts: &Counts) -> Option<SeriesQuantiles> {
        let max = f64::from(counts.greatest_us()?) / 1e3;
        let histogram = counts.histogram()?;
        let at = |quantile| (histogram.value_at_quantile(quantile) as f64 / 1e3).min(max);
        Some(SeriesQuantiles {
            key,
            figure,
            count: counts.count(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max,
            mean: counts.sum_us() as f64 / counts.count() as f64 / 1e3,
        })
    }
}

/// An instance's speed against its pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceSpeed {
    /// pool
    pub pool: Arc<str>,
    /// instance
    pub instance: Arc<str>,
    /// 1.6 is 1.6 times slower; absent without enough overlapping load
    pub speed_vs_fleet: Option<f64>,
}

/// Which series there are, over all cores, up to a limit.
struct Admitted {
    keys: BTreeSet<SeriesKey>,
    max_series: usize,
}

impl Admitted {
    fn admit(&mut self, key: SeriesKey) -> SeriesKey {
        if self.keys.contains(&key) {
            return key;
        }
        if self.keys.len() < self.max_series {
            self.keys.insert(key.clone());
            return key;
        }
        SeriesKey {
            name: OTHER.into(),
            ..key
        }
    }
}

/// One core's set. Recording takes a lock that only readers contend for.
pub struct CoreRecorder {
    series: Mutex<HashMap<SeriesKey, Series>>,
    admitted: Arc<Mutex<Admitted>>,
}

fn us(ms: f64) -> u32 {
    // `as` saturates at the ends
    (ms * 1e3).round() as u32
}

fn length_bucket(exchange: &Exchange, figures: &Figures) -> Option<&'static str> {
    let estimated = exchange.shape.map(|shape| u64::from(shape.prompt_tokens));
    Some(match figures.prompt_tokens.or(estimated)? {
        ..SHORT_PROMPT_TOKENS => "short",
        SHORT_PROMPT_TOKENS..LONG_PROMPT_TOKENS => "medium",
        LONG_PROMPT_TOKENS.. => "long",
    })
}

/// The pieces a request belongs to. Always one instance piece, so that totals are over all.
fn pieces(exchange: &Exchange, figures: &Figures) -> Vec<SeriesKey> {
    let pool = exchange.pool.clone().unwrap_or_else(|| "".into());
    let instance = exchange.instance.clone().unwrap_or_else(|| "".into());
    let key = |cut, name| SeriesKey {
        pool: pool.clone(),
        cut,
        name,
    };
    let mut keys = vec![key(Cut::Instance, instance)];
    keys.extend(exchange.arm.clone().map(|arm| key(Cut::Arm, arm)));
    keys.extend(exchange.lane.clone().map(|lane| key(Cut::Lane, lane)));
    keys.extend(length_bucket(exchange, figures).map(|name| key(Cut::Length, name.into())));
    keys
}

fn speed_sample(exchange: &Exchange, figures: &Figures) -> Option<SpeedSample> {
    Some(SpeedSample {
        batch: exchange.mean_batch?,
        tpot_ms: figures.tpot_ms?,
        prompt_tokens: figures.prompt_tokens?,
        output_tokens: figures.output_tokens?,
    })
}

fn latencies(figures: &Figures) -> [(Figure, Option<f64>); 6] {
    [
        (Figure::ClientTtft, figures.client_ttft_ms),
        (Figure::ServerTtft, figures.server_ttft_ms),
        (Figure::Tpot, figures.tpot_ms),
        (Figure::E2e, figures.e2e_ms),
        (Figure::ProxyOwn, figures.proxy_own_ms),
        (Figure::Queue, figures.queue_ms),
    ]
}

impl CoreRecorder {
    /// Counts an ended request; called once, at its end.
    pub fn record(&self, exchange: &Exchange, figures: &Figures, now_ns: Ns) {
        let ok = exchange.outcome == Outcome::Ok;
        let gaps = exchange.answer.as_ref().map(|answer| answer.gaps.counts());
        let mut all = self.series.lock();
        for key in pieces(exchange, figures) {
            let by_instance = key.cut == Cut::Instance;
            let series = self.resolve(&mut all, key);
            series.totals.record(exchange, figures);
            if !ok {
                continue;
            }
            for (figure, ms) in latencies(figures) {
                ms.into_iter()
                    .for_each(|ms| series.record(figure, us(ms), now_ns));
            }
            if let Some(gaps) = gaps.filter(|gaps| gaps.count() > 0) {
                series.figure(Figure::ChunkGap).merge(gaps, now_ns);
            }
            if let Some(sample) = speed_sample(exchange, figures).filter(|_| by_instance) {
                series
                    .speed
                    .get_or_insert_with(|| SampleRing::new(SPEED_SAMPLES))
                    .push(sample);
            }
        }
    }

    fn resolve<'a>(
        &self,
        all: &'a mut HashMap<SeriesKey, Series>,
        key: SeriesKey,
    ) -> &'a mut Series {
        let key = if all.contains_key(&key) {
            key
        } else {
            self.admitted.lock().admit(key)
        };
        all.entry(key).or_default()
    }
}

/// All cores' sets.
pub struct Registry {
    cores: Vec<Arc<CoreRecorder>>,
}

type Merged = BTreeMap<SeriesKey, BTreeMap<Figure, Counts>>;

impl Registry {
    /// One set a core (at least one), and at most `max_series` series, plus one `other` for each
    /// pool and cut.
    pub fn new(cores: usize, max_series: usize) -> Registry {
        let admitted = Arc::new(Mutex::new(Admitted {
            keys: BTreeSet::new(),
            max_series,
        }));
        let core = || CoreRecorder {
            series: Mutex::default(),
            admitted: admitted.clone(),
        };
        Registry {
            cores: (0..cores.max(1)).map(|_| Arc::new(core())).collect(),
        }
    }

    /// From now on at most `max_series` series; those there are stay.
    pub fn set_max_series(&self, max_series: usize) {
        // one for all cores
        if let Some(core) = self.cores.first() {
            core.admitted.lock().max_series = max_series;
        }
    }

    /// The set of core `index` (wraps round).
    pub fn core(&self, index: usize) -> Arc<CoreRecorder> {
        self.cores[index % self.cores.len()].clone()
    }

    /// Counts of all series in a window, cores merged, with each pool's whole.
    pub fn merged(&self, now_ns: Ns, window: Window) -> Merged {
        let mut merged = Merged::new();
        for core in &self.cores {
            for (key, series) in core.series.lock().iter() {
                for figure in Figure::ALL {
                    let Some(windowed) = &series.figures[figure as usize] else {
                        continue;
                    };
                    let counts = merged
                        .entry(key.clone())
                        .or_default()
                        .entry(figure)
                        .or_default();
                    windowed.read(window, now_ns, counts);
                }
            }
        }
        let instances = merged.iter().filter(|(key, _)| key.cut == Cut::Instance);
        let mut pools = Merged::new();
        for (key, figures) in instances {
            let whole = SeriesKey {
                pool: key.pool.clone(),
                cut: Cut::Pool,
                name: "".into(),
            };
            let whole = pools.entry(whole).or_default();
            figures
                .iter()
                .for_each(|(figure, counts)| whole.entry(*figure).or_default().merge(counts));
        }
        merged.append(&mut pools);
        merged
    }

    /// Quantiles of all series that have a value in the window.
    pub fn quantiles(&self, now_ns: Ns, window: Window) -> Vec<SeriesQuantiles> {
        let merged = self.merged(now_ns, window).into_iter();
        let each = merged.flat_map(|(key, figures)| {
            figures.into_iter().filter_map(move |(figure, counts)| {
                SeriesQuantiles::of(key.clone(), figure, &counts)
            })
        });
        each.collect()
    }

    /// Counters of all series but pools' wholes, since the start.
    pub fn totals(&self) -> BTreeMap<SeriesKey, Totals> {
        let mut totals: BTreeMap<SeriesKey, Totals> = BTreeMap::new();
        for core in &self.cores {
            for (key, series) in core.series.lock().iter() {
                totals.entry(key.clone()).or_default().merge(&series.totals);
            }
        }
        totals
    }

    /// How fast each instance is against the others of its pool, over its last decodes.
    pub fn speeds(&self) -> Vec<InstanceSpeed> {
        let mut pools: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<SpeedSample>>> = BTreeMap::new();
        for core in &self.cores {
            for (key, series) in core.series.lock().iter() {
                let Some(ring) = &series.speed else { continue };
                let pool = pools.entry(key.pool.clone()).or_default();
                pool.entry(key.name.clone())
                    .or_default()
                    .extend_from_slice(ring.samples());
            }
        }
        let mut speeds = Vec::new();
        for (pool, instances) in pools {
            let samples: Vec<&[SpeedSample]> = instances.values().map(Vec::as_slice).collect();
            let of_pool = instances.keys().zip(speed_vs_fleet(&samples));
            speeds.extend(of_pool.map(|(instance, speed_vs_fleet)| InstanceSpeed {
                pool: pool.clone(),
                instance: instance.clone(),
                speed_vs_fleet,
            }));
        }
        speeds
    }

    /// Bytes the sets hold, roughly.
    pub fn bytes(&self) -> usize {
        let core = |core: &Arc<CoreRecorder>| {
            core.series
                .lock()
                .values()
                .map(Series::bytes)
                .sum::<usize>()
        };
        self.cores.iter().map(core).sum()
    }
}

#[cfg(test)]
#[path = "histograms_tests.rs"]
mod tests;
