//! Prometheus' text format: how a metric is described, and the registry's metrics.
//!
//! Names start with `evenkeel_`, units are base units. What was not measured has no sample: a
//! histogram appears with its first value. Label values come from the configuration only, and
//! series past `limits.max_series` are under `other`, so that their number is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily};
use ::prometheus::{TextEncoder, proto::MetricType};

use super::clock::Ns;
use super::histograms::{Cut, Figure, Registry, Totals};
use super::outcome::Outcome;
use super::windows::{Counts, Window};

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// its name
    pub name: &'static str,
    /// counter, gauge or histogram
    pub kind: MetricType,
    /// its unit; empty for a plain number
    pub unit: &'static str,
    /// its meaning
    pub help: &'static str,
}

impl Described {
    /// A counter.
    pub const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Described {
        Described {
            name,
            kind: MetricType::COUNTER,
            unit,
            help,
        }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Described {
        Described {
            name,
            kind: MetricType::GAUGE,
            unit,
            help,
        }
    }

    const fn seconds(name: &'static str, help: &'static str) -> Described {
        Described {
            name,
            kind: MetricType::HISTOGRAM,
            unit: "seconds",
            help,
        }
    }
}

/// Label names with their values.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// A metric and its samples.
pub struct Family {
    described: Described,
    samples: Vec<Metric>,
}

impl Family {
    /// Without samples yet.
    pub fn new(described: Described) -> Family {
        Family {
            described,
            samples: Vec::new(),
        }
    }

    /// A metric of one sample without labels; of none if there is no value.
    pub fn single(described: Described, value: impl Into<Option<f64>>) -> Family {
        let mut family = Family::new(described);
        if let Some(value) = value.into() {
            family.push(&[], value);
        }
        family
    }

    /// Adds a counter's or gauge's sample.
    pub fn push(&mut self, labels: Labels<'_>, value: f64) {
        let mut sample = labelled(labels);
        if self.described.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            sample.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            sample.set_gauge(gauge);
        }
        self.samples.push(sample);
    }

    fn push_histogram(&mut self, labels: Labels<'_>, counts: &Counts, edges_s: &[f64]) {
        let bucket = |&edge_s: &f64| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(edge_s);
            bucket.set_cumulative_count(counts.at_most((edge_s * 1e6).round() as u64));
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(edges_s.iter().map(bucket).collect());
        histogram.set_sample_count(counts.count());
        histogram.set_sample_sum(counts.sum_us() as f64 / 1e6);
        let mut sample = labelled(labels);
        sample.set_histogram(histogram);
        self.samples.push(sample);
    }

    fn into_proto(self) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.described.name.into());
        family.set_help(self.described.help.into());
        family.set_field_type(self.described.kind);
        family.set_metric(self.samples);
        family
    }
}

fn labelled(labels: Labels<'_>) -> Metric {
    let pair = |&(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.into());
        pair.set_value(value.into());
        pair
    };
    Metric::from_label(labels.iter().map(pair).collect())
}

/// The text of all metrics that have a sample.
pub fn encode(families: Vec<Family>) -> Result<String, ::prometheus::Error> {
    let with_samples = families
        .into_iter()
        .filter(|family| !family.samples.is_empty());
    let protos: Vec<MetricFamily> = with_samples.map(Family::into_proto).collect();
    TextEncoder::new().encode_to_string(&protos)
}

/// vLLM's edges of `vllm:time_to_first_token_seconds`, and finer ones under 10 ms.
const TTFT_EDGES_S: &[f64] = &[
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// vLLM's edges of `vllm:inter_token_latency_seconds` and
/// `vllm:request_time_per_output_token_seconds`, and finer ones under 10 ms.
const TOKEN_EDGES_S: &[f64] = &[
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
    0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// vLLM's edges of `vllm:e2e_request_latency_seconds` and `vllm:request_queue_time_seconds`, and
/// finer ones under 300 ms.
const REQUEST_EDGES_S: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0,
    10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
];
/// From 10 µs, what a proxy should cost, to a second.
const OWN_EDGES_S: &[f64] = &[
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01,
    0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

/// Figures with their edges. Only `ok` requests enter.
const HISTOGRAMS: [(Figure, Described, &[f64]); 7] = [
    (
        Figure::ClientTtft,
        Described::seconds(
            "evenkeel_client_ttft_seconds",
            "First byte of the request read from the client to the first output chunk taken by the client's socket.",
        ),
        TTFT_EDGES_S,
    ),
    (
        Figure::ServerTtft,
        Described::seconds(
            "evenkeel_server_ttft_seconds",
            "Last byte of the request written to the instance to the arrival of the first output chunk.",
        ),
        TTFT_EDGES_S,
    ),
    (
        Figure::Tpot,
        Described::seconds(
            "evenkeel_tpot_seconds",
            "Time per output token after the first; one choice, tokens by usage.",
        ),
        TOKEN_EDGES_S,
    ),
    (
        Figure::ChunkGap,
        Described::seconds(
            "evenkeel_chunk_gap_seconds",
            "Time between output chunks of one choice. A chunk is not a token.",
        ),
        TOKEN_EDGES_S,
    ),
    (
        Figure::E2e,
        Described::seconds(
            "evenkeel_e2e_seconds",
            "First byte of the request to the last byte of the answer.",
        ),
        REQUEST_EDGES_S,
    ),
    (
        Figure::ProxyOwn,
        Described::seconds(
            "evenkeel_proxy_own_seconds",
            "The proxy's own share of client TTFT: choosing and relaying.",
        ),
        OWN_EDGES_S,
    ),
    (
        Figure::Queue,
        Described::seconds(
            "evenkeel_queue_seconds",
            "Time in a lane's queue; only requests of pools with a queue.",
        ),
        REQUEST_EDGES_S,
    ),
];

const REQUESTS: Described = Described::counter(
    "evenkeel_requests_total",
    "",
    "Requests ended, by outcome. An empty instance: none was chosen; an empty pool: rejected before routing.",
);

type Count = fn(&Totals) -> f64;

/// Counters by pool and instance.
const COUNTERS: [(Described, Count); 12] = [
    (
        Described::counter(
            "evenkeel_prompt_tokens_total",
            "tokens",
            "Prompt tokens by usage.",
        ),
        |totals| totals.prompt_tokens as f64,
    ),
    (
        Described::counter(
            "evenkeel_output_tokens_total",
            "tokens",
            "Output tokens by usage.",
        ),
        |totals| totals.output_tokens as f64,
    ),
    (
        Described::counter(
            "evenkeel_output_tokens_estimated_total",
            "tokens",
            "Output tokens estimated from output chunks, of requests without usage.",
        ),
        |totals| totals.output_tokens_est,
    ),
    (
        Described::counter(
            "evenkeel_requests_with_usage_total",
            "",
            "Ok requests whose answer had usage: what token figures rest on.",
        ),
        |totals| totals.with_usage as f64,
    ),
    (
        Described::counter(
            "evenkeel_requests_without_usage_total",
            "",
            "Ok requests whose answer had no usage.",
        ),
        |totals| totals.without_usage as f64,
    ),
    (
        Described::counter(
            "evenkeel_request_body_bytes_total",
            "bytes",
            "Request bodies read from clients.",
        ),
        |totals| totals.request_bytes as f64,
    ),
    (
        Described::counter(
            "evenkeel_response_body_bytes_total",
            "bytes",
            "Answer bodies.",
        ),
        |totals| totals.response_bytes as f64,
    ),
    (
        Described::counter("evenkeel_events_total", "", "SSE events with data."),
        |totals| totals.events as f64,
    ),
    (
        Described::counter(
            "evenkeel_upstream_reads_total",
            "",
            "Reads from instances with body bytes. Far more events than reads: something on the way buffers.",
        ),
        |totals| totals.reads as f64,
    ),
    (
        Described::counter(
            "evenkeel_output_chunks_total",
            "",
            "Events that carry generated output.",
        ),
        |totals| totals.chunks as f64,
    ),
    (
        Described::counter(
            "evenkeel_retries_total",
            "",
            "Attempts after a request's first.",
        ),
        |totals| totals.retries as f64,
    ),
    (
        Described::counter(
            "evenkeel_unmeasured_answers_total",
            "",
            "Answers that passed but could not be read, such as an unknown encoding.",
        ),
        |totals| totals.unmeasured as f64,
    ),
];

/// A pool's and an instance's name.
pub type InstanceName = (Arc<str>, Arc<str>);

/// The registry's metrics, by pool and instance. Instances in `known` have their counters from
/// the start, at 0, so that the first request is an increase.
pub fn registry_families(
    registry: &Registry,
    known: impl IntoIterator<Item = InstanceName>,
    now_ns: Ns,
) -> Vec<Family> {
    let mut totals: BTreeMap<InstanceName, Totals> = known
        .into_iter()
        .map(|name| (name, Totals::default()))
        .collect();
    let by_instance = registry.totals().into_iter();
    totals.extend(
        by_instance
            .filter(|(key, _)| key.cut == Cut::Instance)
            .map(|(key, totals)| ((key.pool, key.name), totals)),
    );
    let mut families = vec![requests(&totals)];
    families.extend(
        COUNTERS
            .iter()
            .map(|(described, count)| counter(*described, *count, &totals)),
    );
    families.extend(histograms(registry, now_ns));
    families
}

fn requests(totals: &BTreeMap<InstanceName, Totals>) -> Family {
    let mut family = Family::new(REQUESTS);
    for ((pool, instance), totals) in totals {
        for outcome in Outcome::ALL {
            let labels = [
                ("pool", &**pool),
                ("instance", instance),
                ("outcome", outcome.name()),
            ];
            family.push(&labels, totals.of(outcome) as f64);
        }
    }
    family
}

fn counter(described: Described, count: Count, totals: &BTreeMap<InstanceName, Totals>) -> Family {
    let mut family = Family::new(described);
    for ((pool, instance), totals) in totals {
        family.push(&[("pool", pool), ("instance", instance)], count(totals));
    }
    family
}

fn histograms(registry: &Registry, now_ns: Ns) -> Vec<Family> {
    let mut merged = registry.merged(now_ns, Window::Total);
    merged.retain(|key, _| key.cut == Cut::Instance);
    let one = |(figure, described, edges): &(Figure, Described, &[f64])| {
        let mut family = Family::new(*described);
        for (key, figures) in &merged {
            let Some(counts) = figures.get(figure) else {
                continue;
            };
            let labels = [("pool", &*key.pool), ("instance", &*key.name)];
            family.push_histogram(&labels, counts, edges);
        }
        family
    };
    HISTOGRAMS.iter().map(one).collect()
}

/// What the registry's metrics are.
pub fn described() -> Vec<Described> {
    let counters = COUNTERS.iter().map(|(described, _)| *described);
    let histograms = HISTOGRAMS.iter().map(|(_, described, _)| *described);
    std::iter::once(REQUESTS)
        .chain(counters)
        .chain(histograms)
        .collect()
}
