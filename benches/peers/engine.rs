//! A null engine: answers every request with as many paced SSE events as it asks for, and does nothing else.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::cells::Cell;

/// How an answer is written.
#[derive(Debug, Clone, Copy)]
struct Pace {
    event_bytes: usize,
    burst: usize,
    first: Duration,
    gap: Duration,
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
/// What routers that look at their engines are told.
const HEALTHY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 41\r\n\r\n{\"status\":\"ok\",\"object\":\"list\",\"data\":[]}";

/// A cell's engines, all on one thread of their own until the process ends.
pub fn start(cell: &Cell) -> anyhow::Result<Vec<SocketAddr>> {
    let listeners: Vec<std::net::TcpListener> = (0..cell.instances)
        .map(|_| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            listener.set_nonblocking(true)?;
            // with the standard library's backlog of 128 a burst of connections waits for a second SYN
            socket2::SockRef::from(&listener).listen(4096)?;
            Ok(listener)
        })
        .collect::<std::io::Result<_>>()
        .context("an engine cannot listen")?;
    let addrs = listeners
        .iter()
        .map(std::net::TcpListener::local_addr)
        .collect::<Result<_, _>>()?;
    let pace = Pace {
        event_bytes: cell.event_bytes,
        burst: cell.burst,
        first: cell.first,
        gap: cell.gap,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            for listener in listeners {
                tokio::spawn(accept(listener, pace));
            }
            std::future::pending::<()>().await;
        });
    });
    Ok(addrs)
}

async fn accept(listener: std::net::TcpListener, pace: Pace) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve(stream, pace));
    }
}

async fn serve(mut stream: TcpStream, pace: Pace) -> Option<()> {
    let event = chunk(&event(pace.event_bytes));
    let burst = event.repeat(pace.burst);
    let done = [chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat();
    let mut buffer = vec![0; 4 * 1024];
    loop {
        let Some(events) = read_request(&mut stream, &mut buffer).await? else {
            stream.write_all(HEALTHY).await.ok()?;
            continue;
        };
        let start = Instant::now();
        stream.write_all(HEAD).await.ok()?;
        for (write, from) in (0..events).step_by(pace.burst).enumerate() {
            let due = pace.first + pace.gap * u32::try_from(write).ok()?;
            if !due.is_zero() {
                tokio::time::sleep_until(start + due).await;
            }
            let bytes = event.len() * pace.burst.min(events - from);
            stream.write_all(&burst[..bytes]).await.ok()?;
        }
        stream.write_all(&done).await.ok()?;
    }
}

/// The events a request asks for (`max_tokens`); none inside for a request that is not for output.
async fn read_request(stream: &mut TcpStream, buffer: &mut [u8]) -> Option<Option<usize>> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await;
        filled += read.ok().filter(|n| *n > 0)?;
        let seen = &buffer[..filled];
        // a router that tries whether we speak gRPC: we do not, and leave
        if seen.starts_with(b"PRI ") {
            return None;
        }
        let Some(head_end) = memchr::memmem::find(seen, b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&seen[..head_end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| {
            let value = line.strip_prefix("content-length:")?;
            value.trim().parse::<usize>().ok()
        });
        if filled >= head_end + 4 + length.unwrap_or(0) {
            let body = &seen[head_end..];
            // sglang-router writes the one as the other
            let keys: [&[u8]; 2] = [b"\"max_tokens\":", b"\"max_completion_tokens\":"];
            return Some(keys.into_iter().find_map(|key| number_after(body, key)));
        }
    }
}

fn number_after(body: &[u8], key: &[u8]) -> Option<usize> {
    let from = memchr::memmem::find(body, key)? + key.len();
    let digits: String = body[from..]
        .iter()
        .map(|byte| char::from(*byte))
        .skip_while(|c| *c == ' ')
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

/// An event in vLLM's shape, filled up to about `bytes`; the smallest has only what an event needs.
fn event(bytes: usize) -> Vec<u8> {
    let json = |text: &str| {
        if bytes < 200 {
            return format!(
                r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#
            );
        }
        format!(
            r#"{{"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1796189111,"model":"null-engine-model","choices":[{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":null,"token_ids":null}}]}}"#
        )
    };
    let around = json("").len() + "data: \n\n".len();
    let text = "abcd".repeat(bytes.saturating_sub(around).div_ceil(4).max(1));
    format!("data: {}\n\n", json(&text)).into_bytes()
}

fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}
