//! A cheap, precise HTTP/1.1 client: one request out, every byte of its answer stamped as it is read.
//!
//! Raw tokio sockets, because what is measured must not be measured through a client library that
//! buffers or wakes late. Connections are kept and reused within [`ClientOptions::idle_limit`], which
//! stays under the 5 s after which engines close an idle connection.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use evenkeel_policies::shape::Api;

use super::http1::{Body, Head, parse_head};
use super::sample::{Failure, Sample};
use crate::measure::chunk_log::ChunkLog;
use crate::measure::clock::{Ns, now_ns};
use crate::measure::meter::{Meter, MeterOptions};
use crate::measure::summary::Answer;

/// Most bytes of one answer's chunk times: ten million chunks.
const GAPS_BYTES: usize = 64 << 20;

/// Limits of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// longest time to wait for a connection
    pub connect_timeout: Duration,
    /// longest time from the send to the last byte
    pub answer_timeout: Duration,
    /// longest time a connection may lie unused before it is closed instead of reused
    pub idle_limit: Duration,
    /// longest response head
    pub max_head_bytes: usize,
    /// keep the time between every two output chunks
    pub keep_gaps: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(300),
            idle_limit: Duration::from_millis(3500),
            max_head_bytes: 64 * 1024,
            keep_gaps: false,
        }
    }
}

struct Idle {
    stream: TcpStream,
    since: Instant,
}

/// A client of one address, for one thread.
pub struct Client {
    target: SocketAddr,
    options: ClientOptions,
    meter_options: MeterOptions,
    idle: RefCell<Vec<Idle>>,
    connections: Cell<u64>,
    events: Cell<u64>,
}

/// How far one attempt came when it failed.
struct Failed {
    failure: Failure,
    /// whether another connection may be tried: a reused one went before any byte of an answer
    stale: bool,
}

impl Failed {
    fn final_one(failure: Failure) -> Failed {
        Failed {
            failure,
            stale: false,
        }
    }
}

impl Client {
    /// A client that will connect to `target` when the first request is sent.
    pub fn new(target: SocketAddr, options: ClientOptions) -> Client {
        Client {
            target,
            options,
            meter_options: MeterOptions::default(),
            idle: RefCell::new(Vec::new()),
            connections: Cell::new(0),
            events: Cell::new(0),
        }
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.connections.get()
    }

    /// Events read so far, over all answers.
    pub fn events(&self) -> u64 {
        self.events.get()
    }

    /// Sends a request (head and body as they go on the wire) and reads its answer to the end,
    /// filling in `sample`. Never fails: what goes wrong is the sample's `failure`.
    pub async fn send(&self, wire: &[u8], sample: &mut Sample) {
        let attempt = tokio::time::timeout(
            self.options.answer_timeout,
            self.attempt_twice(wire, sample),
        );
        let failure = match attempt.await {
            Ok(Ok(())) => None,
            Ok(Err(failed)) => Some(failed.failure),
            Err(_) => Some(Failure::Timeout),
        };
        sample.failure = sample.failure.or(failure);
        if failure.is_some() {
            sample.end_ns = now_ns();
        }
    }

    async fn attempt_twice(&self, wire: &[u8], sample: &mut Sample) -> Result<(), Failed> {
        if let Some(stream) = self.take_idle() {
            match self.attempt(stream, true, wire, sample).await {
                Err(failed) if failed.stale => {}
                other => return other,
            }
        }
        let stream = self.connect().await?;
        self.attempt(stream, false, wire, sample).await
    }

    /// The most recently used connection that is still open; older ones are dropped.
    fn take_idle(&self) -> Option<TcpStream> {
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { stream, since }) = idle.pop() {
            if since.elapsed() > self.options.idle_limit {
                // The rest have lain even longer.
                idle.clear();
                return None;
            }
            let open = matches!(stream.try_read(&mut [0_u8; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            if open {
                return Some(stream);
            }
        }
        None
    }

    async fn connect(&self) -> Result<TcpStream, Failed> {
        let connecting = tokio::time::timeout(
            self.options.connect_timeout,
            TcpStream::connect(self.target),
        );
        match connecting.await {
            Ok(Ok(stream)) if stream.set_nodelay(true).is_ok() => {
                self.connections.set(self.connections.get() + 1);
                Ok(stream)
            }
            _ => Err(Failed::final_one(Failure::Connect)),
        }
    }

    async fn attempt(
        &self,
        mut stream: TcpStream,
        reused: bool,
        wire: &[u8],
        sample: &mut Sample,
    ) -> Result<(), Failed> {
        let lost = Failed {
            failure: Failure::Send,
            stale: reused,
        };
        sample.sent_ns = Some(now_ns());
        if stream.write_all(wire).await.is_err() {
            return Err(lost);
        }
        let mut buffer = Vec::with_capacity(16 * 1024);
        let Some((head, at_ns)) = self
            .read_head(&mut stream, &mut buffer)
            .await
            .map_err(Failed::final_one)?
        else {
            return Err(lost);
        };
        sample.status = Some(head.status);
        sample.head_ns = Some(at_ns);
        let (answer, reusable) = self
            .read_body(&mut stream, &head, buffer, at_ns, sample)
            .await
            .map_err(Failed::final_one)?;
        describe(&answer, sample);
        sample.failure = failure_of(head.status, &answer);
        if reusable {
            self.idle.borrow_mut().push(Idle {
                stream,
                since: Instant::now(),
            });
        }
        Ok(())
    }

    /// The head of the answer, with what was read behind it left in `buffer`; `None` if the
    /// connection ended before its first byte.
    async fn read_head(
        &self,
        stream: &mut TcpStream,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<(Head, Ns)>, Failure> {
        loop {
            let read = stream.read_buf(buffer).await;
            let at_ns = now_ns();
            match read {
                Ok(0) | Err(_) if buffer.is_empty() => return Ok(None),
                Ok(0) | Err(_) => return Err(Failure::Cut),
                Ok(_) => {}
            }
            while let Some(head) = parse_head(buffer).map_err(|_| Failure::BadResponse)? {
                buffer.drain(..head.head_bytes);
                if head.status >= 200 {
                    return Ok(Some((head, at_ns)));
                }
            }
            if buffer.len() > self.options.max_head_bytes {
                return Err(Failure::BadResponse);
            }
        }
    }

    /// Reads the body through the meter. `buffer` holds its first bytes, which arrived at `at_ns`.
    async fn read_body(
        &self,
        stream: &mut TcpStream,
        head: &Head,
        mut buffer: Vec<u8>,
        mut at_ns: Ns,
        sample: &mut Sample,
    ) -> Result<(Answer, bool), Failure> {
        let mut meter = Meter::new(
            Api::Chat,
            head.status,
            Some(head.content_type.as_bytes()),
            head.content_encoding.as_deref().map(str::as_bytes),
            &self.meter_options,
        )
        .with_log(self.options.keep_gaps.then(|| ChunkLog::new(GAPS_BYTES)));
        let mut body = Body::new(head.framing);
        let clean = loop {
            body.read(&buffer, |bytes| {
                meter.read(bytes, at_ns);
            })
            .map_err(|_| Failure::BadResponse)?;
            sample.end_ns = at_ns;
            if body.is_done() {
                break true;
            }
            buffer.clear();
            let read = stream.read_buf(&mut buffer).await;
            at_ns = now_ns();
            match read {
                Ok(0) => break body.may_end_by_close(),
                Err(_) => break false,
                Ok(_) => {}
            }
        };
        meter.end(clean, at_ns);
        let (answer, log) = meter.finish();
        self.events.set(self.events.get() + answer.events);
        sample.gaps_us = log.map_or_else(Vec::new, |log| gaps_us(&log));
        Ok((answer, clean && head.keep_alive && body.is_done()))
    }
}

/// Times between output chunks, which stand in the log in whole microseconds.
fn gaps_us(log: &ChunkLog) -> Vec<u32> {
    let mut gaps = Vec::with_capacity((log.len() as usize).saturating_sub(1));
    let mut last_ns = None;
    for chunk in log.iter() {
        if let Some(last_ns) = last_ns.replace(chunk.arrival_ns) {
            let gap_us = chunk.arrival_ns.saturating_sub(last_ns) / 1000;
            gaps.push(u32::try_from(gap_us).unwrap_or(u32::MAX));
        }
    }
    gaps
}

fn describe(answer: &Answer, sample: &mut Sample) {
    sample.first_output_ns = answer.first_output_ns;
    sample.last_output_ns = answer.last_output_ns;
    sample.prompt_tokens = answer.usage.prompt_tokens;
    sample.output_tokens = answer.usage.output_tokens;
    sample.output_chunks = answer.content_chunks;
}

fn failure_of(status: u16, answer: &Answer) -> Option<Failure> {
    match status {
        429 | 503 => Some(Failure::Refused),
        200..300 if answer.error.is_some() || answer.aborted => Some(Failure::ErrorEvent),
        200..300 if !answer.complete => Some(Failure::Cut),
        200..300 => None,
        _ => Some(Failure::Status),
    }
}
