//! A line of the chunk file: the chunk log of one request, as JSON.

use serde::{Serialize, Serializer};

use super::chunk_log::ChunkLog;
use super::summary::Exchange;

/// The line of a request. Times are µs since the request's last byte at the instance (negative before it).
#[derive(Serialize)]
pub struct ChunkLine<'a> {
    request_id: &'a str,
    chunks: Chunks<'a>,
    chunks_truncated: bool,
}

impl ChunkLine<'_> {
    /// The line; absent if no chunk log was kept.
    pub fn of(exchange: &Exchange) -> Option<ChunkLine<'_>> {
        let (log, sent_ns) = (exchange.chunks.as_ref()?, exchange.stamps.sent_ns?);
        Some(ChunkLine {
            request_id: &exchange.request_id,
            chunks: Chunks { log, sent_ns },
            chunks_truncated: log.truncated(),
        })
    }
}

struct Chunks<'a> {
    log: &'a ChunkLog,
    sent_ns: u64,
}

impl Serialize for Chunks<'_> {
    /// `[arrival, choice, tokens, hand-over]` each, straight from the log: a long one is not built twice.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let since_us = |ns: u64| (ns as i64 - self.sent_ns as i64) / 1000;
        serializer.collect_seq(self.log.iter().map(|chunk| {
            let arrival_us = since_us(chunk.arrival_ns);
            let handed_us = chunk.handed_ns.map(since_us);
            (arrival_us, chunk.choice, chunk.tokens, handed_us)
        }))
    }
}
