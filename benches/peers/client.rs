//! The load client: closed loop, one connection a stream, stamps of the first output event.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a run gave.
#[derive(Debug, Default)]
pub struct Loaded {
    /// request sent to first `data:` byte, in milliseconds, sorted
    pub ttft_ms: Vec<f64>,
    /// streams that ended whole
    pub ok: usize,
    /// streams that did not
    pub failed: usize,
    /// reads that carried bytes
    pub reads: u64,
    /// wall time
    pub wall: Duration,
}

impl Loaded {
    /// A quantile of TTFT in milliseconds (nearest rank).
    pub fn ttft_quantile_ms(&self, q: f64) -> f64 {
        let last = self.ttft_ms.len().saturating_sub(1);
        self.ttft_ms
            .get((last as f64 * q).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// `streams` at a time, `requests` in all, against `addr`; starts are spread over `spread`.
pub fn run(addr: SocketAddr, streams: usize, requests: usize, spread: Duration) -> Loaded {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async move {
        let start = Instant::now();
        let each = requests.div_ceil(streams);
        let tasks: Vec<_> = (0..streams)
            .map(|n| {
                let delay = spread.mul_f64(n as f64 / streams as f64);
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    stream_requests(addr, each).await
                })
            })
            .collect();
        let mut total = Loaded::default();
        for task in tasks {
            let one = task.await.unwrap_or_default();
            total.ttft_ms.extend(one.ttft_ms);
            total.ok += one.ok;
            total.reads += one.reads;
        }
        total.failed = each * streams - total.ok;
        total.wall = start.elapsed();
        total.ttft_ms.sort_by(f64::total_cmp);
        total
    })
}

async fn stream_requests(addr: SocketAddr, requests: usize) -> Loaded {
    let mut loaded = Loaded::default();
    let Ok(mut stream) = TcpStream::connect(addr).await else {
        return loaded;
    };
    let _ = stream.set_nodelay(true);
    let mut buffer = vec![0; 8 * 1024];
    for _ in 0..requests {
        if one_request(&mut stream, &mut buffer, &mut loaded)
            .await
            .is_none()
        {
            return loaded;
        }
        loaded.ok += 1;
    }
    loaded
}

const BODY: &str =
    r#"{"model":"m","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"hello"}]}"#;

async fn one_request(stream: &mut TcpStream, buffer: &mut [u8], loaded: &mut Loaded) -> Option<()> {
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    let sent = Instant::now();
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut first = true;
    let mut tail = [0_u8; 5];
    loop {
        let n = stream.read(buffer).await.ok().filter(|n| *n > 0)?;
        loaded.reads += 1;
        let seen = &buffer[..n];
        if first && seen.windows(5).any(|window| window == b"data:") {
            first = false;
            loaded.ttft_ms.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        let joined = [&tail[..], seen].concat();
        tail.copy_from_slice(&joined[joined.len() - 5..]);
        if tail == *b"0\r\n\r\n" {
            return Some(());
        }
    }
}
