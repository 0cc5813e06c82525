//! A line of the chunk file: the chunk log of one request, written straight into the buffer.

use std::io::Write;

use super::chunk_log::Chunk;
use super::summary::Exchange;

/// Appends the line, if a chunk log was kept. Times are µs since the request's last byte at the
/// instance (negative before it).
pub fn write(exchange: &Exchange, line: &mut Vec<u8>) {
    let (Some(log), Some(sent_ns)) = (&exchange.chunks, exchange.stamps.sent_ns) else {
        return;
    };
    line.extend_from_slice(b"{\"request_id\":");
    line.extend_from_slice(quoted(&exchange.request_id).as_bytes());
    line.extend_from_slice(b",\"chunks\":[");
    for (at, chunk) in log.iter().enumerate() {
        if at > 0 {
            line.push(b',');
        }
        write_chunk(&chunk, sent_ns, line);
    }
    let end: &[u8] = match log.truncated() {
        true => b"],\"chunks_truncated\":true}\n",
        false => b"],\"chunks_truncated\":false}\n",
    };
    line.extend_from_slice(end);
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write_chunk(chunk: &Chunk, sent_ns: u64, line: &mut Vec<u8>) {
    let since_us = |ns: u64| (ns as i64 - sent_ns as i64) / 1000;
    // writing to a Vec cannot fail
    let _ = write!(line, "[{},{},", since_us(chunk.arrival_ns), chunk.choice);
    let _ = match chunk.tokens {
        Some(tokens) => write!(line, "{tokens},"),
        None => write!(line, "null,"),
    };
    let _ = match chunk.handed_ns.map(since_us) {
        Some(handed_us) => write!(line, "{handed_us}]"),
        None => write!(line, "null]"),
    };
}
