//! Cost of what every event, decision and request goes through: times by criterion, and allocations.
//!
//! `cargo bench --bench inside [-- FILTER]`.
#![allow(missing_docs, clippy::unwrap_used)]

mod allocations;
mod decision;
mod request;
mod stream;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    stream::benches,
    decision::benches,
    request::skimmer,
    request::ended
);
criterion_main!(benches);
