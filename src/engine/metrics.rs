//! The instance's `/metrics`, under vLLM's names and with its bucket edges.

use std::fmt::Write;

use hdrhistogram::Histogram;

use super::hardware::Hardware;
use super::model::Stats;

const TTFT_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_S: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_S: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
];

struct Buckets {
    name: &'static str,
    help: &'static str,
    edges: &'static [f64],
    counts: Vec<u64>,
    above: u64,
    sum: f64,
}

impl Buckets {
    fn new(name: &'static str, help: &'static str, edges: &'static [f64]) -> Self {
        Buckets {
            name,
            help,
            edges,
            counts: vec![0; edges.len()],
            above: 0,
            sum: 0.0,
        }
    }

    fn record(&mut self, value: f64) {
        let at = self.edges.partition_point(|edge| *edge < value);
        match self.counts.get_mut(at) {
            Some(count) => *count += 1,
            None => self.above += 1,
        }
        self.sum += value;
    }

    fn render(&self, labels: &str, out: &mut String) {
        let name = self.name;
        let _ = writeln!(
            out,
            "# HELP vllm:{name} {}\n# TYPE vllm:{name} histogram",
            self.help
        );
        let mut below = 0;
        for (edge, count) in self.edges.iter().zip(&self.counts) {
            below += count;
            let _ = writeln!(
                out,
                "vllm:{name}_bucket{{{labels},le=\"{edge:?}\"}} {below}"
            );
        }
        let all = below + self.above;
        let _ = writeln!(out, "vllm:{name}_bucket{{{labels},le=\"+Inf\"}} {all}");
        let _ = writeln!(out, "vllm:{name}_count{{{labels}}} {all}");
        let _ = writeln!(out, "vllm:{name}_sum{{{labels}}} {}", self.sum);
    }
}

/// Why a sequence ended, as counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// By itself.
    Stop,
    /// At its limit.
    Length,
}

impl Finish {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
        }
    }
}

/// A finished sequence's figures.
pub(crate) struct Finished {
    pub(crate) finish: Finish,
    pub(crate) e2e_s: f64,
    pub(crate) queue_s: f64,
    pub(crate) decode_s: f64,
    pub(crate) prefill_s: f64,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
}

/// All counters and histograms of an instance.
pub(crate) struct EngineMetrics {
    pub(crate) stats: Stats,
    pub(crate) hardware: Hardware,
    pub(crate) prompt_tokens: u64,
    /// Steps begun later than planned by more than the loop makes up for.
    pub(crate) rebased: u64,
    /// How late steps ended, in ns.
    pub(crate) lag_ns: Histogram<u64>,
    stop: u64,
    length: u64,
    ttft: Buckets,
    itl: Buckets,
    tpot: Buckets,
    e2e: Buckets,
    queue: Buckets,
    prefill: Buckets,
    decode: Buckets,
    inference: Buckets,
    prompt: Buckets,
    output: Buckets,
}

impl EngineMetrics {
    pub(crate) fn new(lag_ns: Histogram<u64>) -> Self {
        let b = Buckets::new;
        EngineMetrics {
            stats: Stats::default(),
            hardware: Hardware::default(),
            prompt_tokens: 0,
            rebased: 0,
            lag_ns,
            stop: 0,
            length: 0,
            ttft: b(
                "time_to_first_token_seconds",
                "Time to first token.",
                TTFT_S,
            ),
            itl: b(
                "inter_token_latency_seconds",
                "Time between tokens.",
                TOKEN_S,
            ),
            tpot: b(
                "request_time_per_output_token_seconds",
                "Time per output token.",
                TOKEN_S,
            ),
            e2e: b("e2e_request_latency_seconds", "Request latency.", REQUEST_S),
            queue: b(
                "request_queue_time_seconds",
                "Time in the queue.",
                REQUEST_S,
            ),
            prefill: b(
                "request_prefill_time_seconds",
                "Time in prefill.",
                REQUEST_S,
            ),
            decode: b("request_decode_time_seconds", "Time in decode.", REQUEST_S),
            inference: b("request_inference_time_seconds", "Time running.", REQUEST_S),
            prompt: b(
                "request_prompt_tokens",
                "Prompt tokens of a request.",
                TOKENS,
            ),
            output: b(
                "request_generation_tokens",
                "Tokens generated by a request.",
                TOKENS,
            ),
        }
    }

    pub(crate) fn first_token(&mut self, ttft_s: f64) {
        self.ttft.record(ttft_s);
    }

    pub(crate) fn next_token(&mut self, gap_s: f64) {
        self.itl.record(gap_s);
    }

    pub(crate) fn finished(&mut self, one: &Finished) {
        match one.finish {
            Finish::Stop => self.stop += 1,
            Finish::Length => self.length += 1,
        }
        self.e2e.record(one.e2e_s);
        self.queue.record(one.queue_s);
        self.prefill.record(one.prefill_s);
        self.decode.record(one.decode_s);
        self.inference.record(one.prefill_s + one.decode_s);
        self.prompt.record(f64::from(one.prompt_tokens));
        self.output.record(f64::from(one.output_tokens));
        if one.output_tokens > 1 {
            self.tpot
                .record(one.decode_s / f64::from(one.output_tokens - 1));
        }
    }

    pub(crate) fn render(&self, model: &str, block_size: u32) -> String {
        let labels = format!("engine=\"0\",model_name=\"{}\"", escape(model));
        let mut out = String::with_capacity(16 * 1024);
        self.render_stats(&labels, block_size, &mut out);
        for buckets in [
            &self.ttft,
            &self.itl,
            &self.tpot,
            &self.e2e,
            &self.queue,
            &self.prefill,
            &self.decode,
            &self.inference,
            &self.prompt,
            &self.output,
        ] {
            buckets.render(&labels, &mut out);
        }
        out
    }

    fn render_stats(&self, labels: &str, block_size: u32, out: &mut String) {
        let s = &self.stats;
        let usage = f64::from(s.kv_used_blocks) / f64::from(s.kv_total_blocks.max(1));
        let gauges = [
            (
                "num_requests_running",
                "Number of requests in model execution batches.",
                f64::from(s.running),
            ),
            (
                "num_requests_waiting",
                "Number of requests waiting to be processed.",
                f64::from(s.waiting),
            ),
            (
                "kv_cache_usage_perc",
                "KV-cache usage. 1 means 100 percent usage.",
                usage,
            ),
        ];
        for (name, help, value) in gauges {
            let _ = writeln!(out, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} gauge");
            let _ = writeln!(out, "vllm:{name}{{{labels}}} {value:?}");
        }
        let counters = [
            (
                "prefix_cache_queries_total",
                "Prefix cache queries, in tokens.",
                s.prefix_queries_tokens,
            ),
            (
                "prefix_cache_hits_total",
                "Prefix cache hits, in tokens.",
                s.prefix_hits_tokens,
            ),
            ("num_preemptions_total", "Preemptions.", s.preemptions),
            (
                "prompt_tokens_total",
                "Prompt tokens of requests whose prefill is done.",
                self.prompt_tokens,
            ),
            (
                "prompt_tokens_cached_total",
                "Prompt tokens taken from the cache.",
                s.prefix_hits_tokens,
            ),
            (
                "generation_tokens_total",
                "Tokens generated.",
                s.generation_tokens,
            ),
        ];
        for (name, help, value) in counters {
            let _ = writeln!(out, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} counter");
            let _ = writeln!(out, "vllm:{name}{{{labels}}} {value}");
        }
        let name = "vllm:request_success_total";
        let _ = writeln!(
            out,
            "# HELP {name} Successfully processed requests.\n# TYPE {name} counter"
        );
        for (reason, value) in [
            ("stop", self.stop),
            ("length", self.length),
            ("abort", 0),
            ("error", 0),
        ] {
            let _ = writeln!(
                out,
                "{name}{{{labels},finished_reason=\"{reason}\"}} {value}"
            );
        }
        let name = "vllm:cache_config_info";
        let _ = writeln!(
            out,
            "# HELP {name} Information of the cache.\n# TYPE {name} gauge"
        );
        let blocks = s.kv_total_blocks;
        let _ = writeln!(
            out,
            "{name}{{block_size=\"{block_size}\",engine=\"0\",num_gpu_blocks=\"{blocks}\"}} 1.0"
        );
    }
}

pub(super) fn escape(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
