//! The live path of a request, top to bottom:
//! `listen` → `connection` → `serve` (the story) → `receive` → `route` → `attempt` over `upstream`
//! → `relay` → `finish`.

pub mod arrival;
pub mod attempt;
pub mod body;
pub mod checks;
pub mod cli;
pub mod client_io;
pub mod client_pace;
pub mod client_socket;
pub mod client_tls;
pub mod connection;
pub mod core;
pub mod finish;
pub mod framing;
pub mod generation;
pub mod guard;
pub mod headers;
pub mod keys;
pub mod listen;
pub mod models;
pub mod multipart;
pub mod own;
pub mod paths;
pub mod pieces;
pub mod read_buffer;
pub mod receive;
pub mod refusal;
pub mod refused_heads;
pub mod relay;
pub mod reload;
pub mod reply;
pub mod request_head;
pub mod response_head;
pub mod response_ids;
pub mod route;
pub mod scratch;
pub mod sending;
pub mod serve;
pub mod server;
pub mod skim;
pub mod stream_body;
pub mod stream_tasks;
#[cfg(test)]
mod timeout_tests;
pub mod timer;
pub mod turn;
pub mod upstream;
pub mod usage_ask;
pub mod wire;

pub use server::{Running, Server, StartError};
