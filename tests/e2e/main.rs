//! End to end: raw clients, the real proxy, scripted upstreams, real sockets.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod support_holds;
