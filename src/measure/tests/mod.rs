//! The meter against the wire files, and the scanner and readers against random input.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod limits;
mod random;
mod recent;
#[path = "../../../tests/support/wire.rs"]
mod wire;
mod wire_files;
