//! End to end: raw clients, the real proxy, scripted upstreams, real sockets.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod arrivals;
mod backpressure;
mod bench;
mod bench_replay;
mod bench_traces;
mod bodies;
mod bounded_fields;
mod chaos;
mod chunk_file;
mod client_leaves;
mod client_leaves_h2;
mod drain;
mod endings;
mod equivalence;
mod fault_proxy_holds;
mod flush;
mod fuzz_targets;
mod health;
mod http2;
mod http2_attacks;
mod keep_alive;
mod keys;
mod lanes_queue;
mod late_checks;
mod load_counts;
mod malformed;
mod many_streams;
mod models_list;
mod paths;
mod reload;
mod retries;
mod secrets;
mod serve_command;
mod shutdown;
mod slow_clients;
mod support_holds;
mod sweep;
mod time_limits;
mod tls_in;
mod tls_out;
mod unusual;
mod wire_cases;
mod wire_replay;
