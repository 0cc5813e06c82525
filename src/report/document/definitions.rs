//! The words of a report. Pure.

use crate::report::latency::FIGURES;

const WORDS: &[(&str, &str)] = &[
    (
        "not measured",
        "Nobody told it: no source, no request with the figure, or a file that is missing. It is never 0.",
    ),
    (
        "counts",
        "A request counts if it was issued within the window: after the warm-up, and not within the cut at either end. It counts with its whole life, failed or not.",
    ),
    (
        "success rate",
        "Complete requests over those that count. Failed requests have no latency and are in every denominator.",
    ),
    (
        "client TTFT",
        "From when the load generator issued the request, connecting included, to the first output chunk it read.",
    ),
    (
        "server TTFT",
        "From the last byte of the request written to the instance to the read that brought the first output chunk back, at the balancer.",
    ),
    (
        "TPOT",
        "(last output − first output) / (N − 1), N output tokens by the engine's count; absent where N < 2. Variants: (E2E − TTFT) / (N − 1), as vLLM's tool has it, and (E2E − TTFT) / N. In short answers they differ much: say which one you compare.",
    ),
    (
        "ITL",
        "Time between two output chunks, those of all requests together. A chunk is not always a token.",
    ),
    ("E2E", "From issue to the last byte of a complete answer."),
    (
        "within SLO",
        "Share of the requests that count which met every objective of the plan; failed ones did not.",
    ),
    ("goodput", "Requests within the SLO a second."),
    (
        "throughput",
        "Work done within the window, whoever asked for it: output tokens in the seconds their chunks came, answers in the second they ended.",
    ),
    (
        "scaling efficiency",
        "Tn / (n · T1): throughput of n instances over n times that of one. At equal load for each instance (c against n·c at once, r against n·r a second), and each at its own best load within the SLO; never at equal total load. From 0.9 excellent, from 0.7 acceptable, under 0.6 there is a bottleneck.",
    ),
    (
        "horizontal, vertical",
        "More instances behind the balancer; more GPUs inside one instance. Their curves are apart, for what holds them back differs.",
    ),
    (
        "load skew",
        "The busiest instance's outstanding tokens, averaged over the window, over the mean of all; 1 is even. Beside it stands what random placement of the same requests would give.",
    ),
    (
        "client_send",
        "First to last byte of the request from the client.",
    ),
    ("queue", "In a lane's queue of the balancer."),
    ("retry", "In attempts that failed."),
    (
        "choose",
        "The balancer's own work until an instance was chosen.",
    ),
    ("connect", "Getting a connection to the instance."),
    ("upstream_send", "Writing the request to the instance."),
    (
        "relay",
        "The balancer's own work on the first output chunk.",
    ),
    (
        "client_blocked",
        "The first output chunk held up by the client.",
    ),
    (
        "GPU use",
        "Share of time in which the GPU ran any kernel (DCGM_FI_DEV_GPU_UTIL). It says nothing of how much of the GPU that kernel used: see SMs and memory busy.",
    ),
    ("KV use", "Share of the engine's KV blocks in use."),
    (
        "preemption",
        "The engine took a running sequence out of the batch to make room, to compute or load it again later.",
    ),
    (
        "steady",
        "TTFT, E2E and throughput have no trend over the window: Mann-Kendall test at p < 0.01 and a change of at least 10 % of the median (Sen's slope).",
    ),
    (
        "P50, P90, P95, P99",
        "The value below which so many of a hundred lie, interpolated as numpy does.",
    ),
];

/// All words, those of the figures last.
pub fn all() -> Vec<(String, String)> {
    let own = |(word, meaning): &(&str, &str)| ((*word).to_owned(), (*meaning).to_owned());
    let mut words: Vec<(String, String)> = WORDS.iter().map(own).collect();
    let known: Vec<String> = words.iter().map(|(word, _)| word.clone()).collect();
    let figures = FIGURES
        .iter()
        .filter(|figure| !known.iter().any(|word| word == figure.name()));
    words.extend(figures.map(|figure| (figure.name().to_owned(), figure.definition().to_owned())));
    words
}
