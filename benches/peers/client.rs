//! The load client: closed loop, one connection a stream, stamps of the first output event.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cells::Cell;

/// What a run gave.
#[derive(Debug, Default)]
pub struct Loaded {
    /// request sent to first `data:` byte, in milliseconds, sorted
    pub ttft_ms: Vec<f64>,
    /// streams that brought all their events and ended whole
    pub ok: usize,
    /// streams that did not
    pub failed: usize,
    /// reads that carried bytes
    pub reads: u64,
    /// output events
    pub events: u64,
    /// wall time
    pub wall: Duration,
    /// what the probe rose by while all streams were open, an event
    pub steady: Option<f64>,
}

impl Loaded {
    /// A quantile of TTFT in milliseconds (nearest rank).
    pub fn ttft_quantile_ms(&self, q: f64) -> Option<f64> {
        let last = self.ttft_ms.len().checked_sub(1)?;
        self.ttft_ms
            .get((last as f64 * q).round() as usize)
            .copied()
    }
}

/// Runs a cell's load against `addr`; `probe` is read when the steady part begins and when it ends.
pub fn run(addr: SocketAddr, cell: &Cell, probe: impl Fn() -> f64) -> anyhow::Result<Loaded> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(async move {
        let start = Instant::now();
        let each = cell.requests.div_ceil(cell.streams);
        let patience = cell.answer_time() + Duration::from_secs(60);
        let seen = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..cell.streams)
            .map(|n| {
                let delay = cell.spread.mul_f64(n as f64 / cell.streams as f64);
                let (events, seen) = (cell.events, seen.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    let mut stream = Stream::open(addr, seen.clone()).await;
                    let mut loaded = Loaded::default();
                    for _ in 0..each {
                        if let Some(open) = &mut stream {
                            let answer = open.request(events, &mut loaded);
                            if let Ok(Some(())) = tokio::time::timeout(patience, answer).await {
                                loaded.ok += 1;
                                continue;
                            }
                        }
                        stream = Stream::open(addr, seen.clone()).await;
                    }
                    loaded
                })
            })
            .collect();
        let mut steady = None;
        if let Some((from, until)) = cell.steady() {
            let read = || (probe(), seen.load(Ordering::Relaxed));
            tokio::time::sleep_until((start + from).into()).await;
            let (cost, events) = read();
            tokio::time::sleep_until((start + until).into()).await;
            let (cost_then, events_then) = read();
            steady = Some((cost_then - cost) / (events_then - events).max(1) as f64);
        }
        let mut total = Loaded {
            steady,
            ..Loaded::default()
        };
        for task in tasks {
            let one = task.await.unwrap_or_default();
            total.ttft_ms.extend(one.ttft_ms);
            total.ok += one.ok;
            total.reads += one.reads;
        }
        total.failed = each * cell.streams - total.ok;
        total.events = seen.load(Ordering::Relaxed);
        total.wall = start.elapsed();
        total.ttft_ms.sort_by(f64::total_cmp);
        total
    }))
}

/// Whether `addr` answers a request for one event.
pub fn answers(addr: SocketAddr) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let one = async {
        let mut stream = Stream::open(addr, Arc::default()).await?;
        stream.request(1, &mut Loaded::default()).await
    };
    runtime.is_ok_and(|runtime| {
        let limited = async { tokio::time::timeout(Duration::from_secs(2), one).await };
        matches!(runtime.block_on(limited), Ok(Some(())))
    })
}

/// The end of the last read that may hold the begin of what is looked for.
const TAIL: usize = 4;
const MARKER: &[u8] = b"data:";

struct Stream {
    tcp: TcpStream,
    buffer: Vec<u8>,
    seen: Arc<AtomicU64>,
}

impl Stream {
    async fn open(addr: SocketAddr, seen: Arc<AtomicU64>) -> Option<Self> {
        let tcp = TcpStream::connect(addr).await.ok()?;
        tcp.set_nodelay(true).ok()?;
        Some(Self {
            tcp,
            buffer: vec![0; TAIL + 8 * 1024],
            seen,
        })
    }

    async fn request(&mut self, events: usize, loaded: &mut Loaded) -> Option<()> {
        let body = format!(
            r#"{{"model":"m","stream":true,"max_tokens":{events},"messages":[{{"role":"user","content":"hello"}}]}}"#
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let sent = Instant::now();
        self.tcp.write_all(request.as_bytes()).await.ok()?;
        let (mut found, mut head) = (0, true);
        self.buffer[..TAIL].fill(0);
        loop {
            let read = self.tcp.read(&mut self.buffer[TAIL..]).await;
            let end = TAIL + read.ok().filter(|n| *n > 0)?;
            loaded.reads += 1;
            let seen = &self.buffer[..end];
            if head && !seen[TAIL..].starts_with(b"HTTP/1.1 200") {
                return None;
            }
            head = false;
            // one marker more than events: `data: [DONE]`
            let now = memmem::find_iter(seen, MARKER).count();
            if found == 0 && now > 0 {
                let waited = sent.elapsed();
                loaded.ttft_ms.push(waited.as_secs_f64() * 1e3);
            }
            found += now;
            self.seen.fetch_add(now as u64, Ordering::Relaxed);
            let whole = seen.ends_with(b"0\r\n\r\n");
            self.buffer.copy_within(end - TAIL..end, 0);
            if whole {
                break;
            }
        }
        self.seen.fetch_sub(1, Ordering::Relaxed);
        (found == events + 1).then_some(())
    }
}
