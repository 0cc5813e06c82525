//! Writes records to disk from a thread of its own: the caller never waits.
//!
//! `LineWriter` is the part shared with the access log: a bounded queue, whole lines in one write
//! call, flushed when idle. A full queue drops and counts. A directory holds `run.toml` and
//! `records-<UTC time>-<n>.jsonl`, and with chunk logs `chunks-<UTC time>-<n>.jsonl`: a line
//! `{"request_id", "chunks": [[arrival_us, choice, tokens or null, hand-over_us or null], ...]}`
//! a request, times from the request's last byte at the instance. A killed process loses at most
//! what was queued; a reader should ignore a last line without its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::chunk_line::ChunkLine;
use super::chunk_log::ChunkLog;
use super::record::Record;
use super::spill::{self, Block, Spill};
use super::summary::Exchange;
use super::utc::utc_now;
use crate::config::checked::{ChunkSink, Config, Records};

/// Longest that a line waits for company.
const IDLE: Duration = Duration::from_millis(100);
/// Lines gathered for one write call.
const BATCH_BYTES: usize = 64 * 1024;

/// A place for lines.
pub(crate) trait Sink: Send + 'static {
    /// What is submitted.
    type Item: Send + 'static;
    /// Appends whole lines to buffers; how many of those that are counted as written.
    fn take(&mut self, item: Self::Item) -> u64;
    /// Bytes in the buffers.
    fn buffered(&self) -> usize;
    /// Writes the buffers out.
    fn flush(&mut self) -> io::Result<()>;
}

enum Message<T> {
    Item(T),
    Flush(SyncSender<()>),
    Close,
}

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    disk_errors: AtomicU64,
}

/// A thread that writes what is submitted.
pub(crate) struct LineWriter<T> {
    queue: SyncSender<Message<T>>,
    counts: Arc<Counts>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> LineWriter<T> {
    pub(crate) fn start(name: &str, queue: usize, sink: impl Sink<Item = T>) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(queue.max(1));
        let counts = Arc::new(Counts::default());
        let thread_counts = counts.clone();
        let builder = std::thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(move || run(&receiver, sink, &thread_counts))?;
        Ok(LineWriter {
            queue: sender,
            counts,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Puts items into the queue without keeping the writer: never waits, false if the queue is full.
    pub(crate) fn submitter(&self) -> impl Fn(T) -> bool + use<T> {
        let queue = self.queue.clone();
        move |item| queue.try_send(Message::Item(item)).is_ok()
    }

    /// Never waits; a full queue drops the item and counts it.
    pub(crate) fn submit(&self, item: T) {
        if self.queue.try_send(Message::Item(item)).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn written(&self) -> u64 {
        self.counts.written.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn disk_errors(&self) -> u64 {
        self.counts.disk_errors.load(Ordering::Relaxed)
    }

    /// Waits until all that was submitted before is handed to the system.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            // an ended thread drops its side, which ends the wait too
            let _ = wait.recv();
        }
    }

    pub(crate) fn close(&self) {
        let thread = self.thread.lock().take();
        let Some(thread) = thread else { return };
        if self.queue.send(Message::Close).is_ok() {
            let _ = thread.join();
        }
    }
}

impl<T> Drop for LineWriter<T> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        if self.queue.send(Message::Close).is_ok() {
            let _ = thread.join();
        }
    }
}

/// Writes out what `held` items left in the buffers.
fn write_out(sink: &mut impl Sink, counts: &Counts, held: &mut u64) {
    let held = std::mem::take(held);
    let Err(error) = sink.flush() else {
        counts.written.fetch_add(held, Ordering::Relaxed);
        return;
    };
    if counts.disk_errors.fetch_add(1, Ordering::Relaxed) == 0 {
        tracing::error!(%error, "cannot write; lines are lost, further errors are only counted");
    }
}

fn run<S: Sink>(queue: &Receiver<Message<S::Item>>, mut sink: S, counts: &Counts) {
    let mut oldest = Instant::now();
    let mut held = 0;
    loop {
        let wait = IDLE.saturating_sub(oldest.elapsed());
        let message = if sink.buffered() == 0 {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            queue.recv_timeout(wait)
        };
        match message {
            Ok(Message::Item(item)) => {
                if sink.buffered() == 0 {
                    oldest = Instant::now();
                }
                held += sink.take(item);
                if sink.buffered() >= BATCH_BYTES || oldest.elapsed() >= IDLE {
                    write_out(&mut sink, counts, &mut held);
                }
            }
            Ok(Message::Flush(done)) => {
                write_out(&mut sink, counts, &mut held);
                let _ = done.send(());
            }
            Err(RecvTimeoutError::Timeout) => write_out(&mut sink, counts, &mut held),
            Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => {
                return write_out(&mut sink, counts, &mut held);
            }
        }
    }
}

/// A file of whole lines that gives way to a new one by size and age.
struct RotatingFile {
    dir: PathBuf,
    prefix: &'static str,
    rotate_bytes: u64,
    rotate_age: Duration,
    number: u64,
    open: Option<(File, u64, Instant)>,
    buffer: Vec<u8>,
}

impl RotatingFile {
    fn new(prefix: &'static str, records: &Records) -> RotatingFile {
        RotatingFile {
            dir: records.dir.clone(),
            prefix,
            rotate_bytes: records.rotate_bytes,
            rotate_age: records.rotate_age,
            number: 0,
            open: None,
            buffer: Vec::new(),
        }
    }

    /// Appends a whole line, or nothing.
    fn line(&mut self, line: &impl serde::Serialize) {
        let before = self.buffer.len();
        match serde_json::to_writer(&mut self.buffer, line) {
            Ok(()) => self.buffer.push(b'\n'),
            Err(error) => {
                self.buffer.truncate(before);
                tracing::error!(%error, "a record cannot be written as JSON");
            }
        }
    }

    fn is_spent(&self) -> bool {
        self.open.as_ref().is_none_or(|(_, bytes, since)| {
            let next = bytes + self.buffer.len() as u64;
            (*bytes > 0 && next > self.rotate_bytes) || since.elapsed() >= self.rotate_age
        })
    }

    /// A file that did not exist: names of an earlier run are passed over.
    fn create(&mut self) -> io::Result<File> {
        let stamp = utc_now();
        loop {
            let path = self
                .dir
                .join(format!("{}-{stamp}-{}.jsonl", self.prefix, self.number));
            self.number += 1;
            match OpenOptions::new().append(true).create_new(true).open(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return opened,
            }
        }
    }

    /// On an error the buffer is given up and a new file tried next time.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let written = self.write();
        self.buffer.clear();
        if written.is_err() {
            self.open = None;
        }
        written
    }

    fn write(&mut self) -> io::Result<()> {
        if self.is_spent() {
            self.open = None;
            let file = self.create()?;
            self.open = Some((file, 0, Instant::now()));
        }
        let Some((file, bytes, _)) = &mut self.open else {
            return Ok(());
        };
        file.write_all(&self.buffer)?;
        *bytes += self.buffer.len() as u64;
        Ok(())
    }
}

/// What the queue of the record writer holds.
enum Submitted {
    Record(Box<Exchange>),
    Block(Block),
}

struct RecordSink {
    spill: Arc<File>,
    records: RotatingFile,
    chunks: RotatingFile,
    sink: ChunkSink,
    sample: f64,
}

impl RecordSink {
    fn record(&mut self, mut exchange: Box<Exchange>) {
        if let Some(Err(error)) = exchange.chunks.as_mut().map(ChunkLog::recall) {
            tracing::warn!(%error, request_id = %exchange.request_id, "a chunk log is lost");
            exchange.chunks = None;
        }
        self.records.line(&Record::of(&exchange));
        if !self.keeps_chunks() {
            return;
        }
        if let Some(line) = ChunkLine::of(&exchange) {
            self.chunks.line(&line);
        }
    }

    fn keeps_chunks(&self) -> bool {
        match self.sink {
            ChunkSink::None => false,
            ChunkSink::All => true,
            ChunkSink::Sampled => rand::random::<f64>() < self.sample,
        }
    }
}

impl Sink for RecordSink {
    type Item = Submitted;

    fn take(&mut self, submitted: Submitted) -> u64 {
        match submitted {
            Submitted::Record(exchange) => {
                self.record(exchange);
                1
            }
            Submitted::Block(block) => {
                if let Err(error) = spill::write(&self.spill, &block) {
                    // the log notices when it is recalled
                    tracing::debug!(%error, "a block of a chunk log cannot be written");
                }
                0
            }
        }
    }

    fn buffered(&self) -> usize {
        self.records.buffer.len() + self.chunks.buffer.len()
    }

    fn flush(&mut self) -> io::Result<()> {
        let records = self.records.flush();
        self.chunks.flush().and(records)
    }
}

/// The writer of records.
pub struct RecordWriter {
    lines: LineWriter<Submitted>,
    spill: Arc<Spill>,
}

impl RecordWriter {
    /// Makes the directory, writes `run.toml`, and starts the thread.
    pub fn start(records: &Records, config: &Config) -> io::Result<RecordWriter> {
        RecordWriter::start_with(records, &config.source)
    }

    /// The same from the configuration's text.
    pub fn start_with(records: &Records, config_text: &str) -> io::Result<RecordWriter> {
        std::fs::create_dir_all(&records.dir)?;
        write_run(&records.dir, config_text)?;
        let file = spill::file(&records.dir)?;
        let sink = RecordSink {
            spill: file.clone(),
            records: RotatingFile::new("records", records),
            chunks: RotatingFile::new("chunks", records),
            sink: records.chunks,
            sample: records.sample,
        };
        let lines = LineWriter::start("records", records.queue, sink)?;
        let queue = lines.submitter();
        let pass = move |block| queue(Submitted::Block(block));
        Ok(RecordWriter {
            lines,
            spill: Arc::new(Spill::new(file, Box::new(pass))),
        })
    }

    /// An empty chunk log for a stream.
    pub fn chunk_log(&self, cap_bytes: usize) -> ChunkLog {
        ChunkLog::spilling(cap_bytes, self.spill.clone())
    }

    /// Takes a record to write. Never waits; when the queue is full it is dropped and counted.
    pub fn submit(&self, exchange: Exchange) {
        self.lines.submit(Submitted::Record(Box::new(exchange)));
    }

    /// Records handed to the system.
    pub fn written(&self) -> u64 {
        self.lines.written()
    }

    /// Records dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.lines.dropped()
    }

    /// Write calls the disk refused.
    pub fn disk_errors(&self) -> u64 {
        self.lines.disk_errors()
    }

    /// Waits until all records submitted before are handed to the system. Blocks: not for a core.
    pub fn flush(&self) {
        self.lines.flush();
    }

    /// Flushes and ends the thread. Blocks: not for a core.
    pub fn flush_and_close(&self) {
        self.lines.close();
    }
}

/// What is known of a run, beside its records.
#[derive(serde::Serialize)]
struct Run<'a> {
    started_utc: String,
    version: &'a str,
    record_schema: u32,
    machine: Machine,
    config: &'a str,
}

#[derive(serde::Serialize)]
struct Machine {
    os: &'static str,
    arch: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<usize>,
}

fn first_line(path: &str) -> Option<String> {
    Some(
        std::fs::read_to_string(path)
            .ok()?
            .lines()
            .next()?
            .to_owned(),
    )
}

fn machine() -> Machine {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
    Machine {
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        hostname: first_line("/proc/sys/kernel/hostname"),
        kernel: first_line("/proc/sys/kernel/osrelease"),
        cpu,
        cores: std::thread::available_parallelism().ok().map(usize::from),
    }
}

fn write_run(dir: &Path, config: &str) -> io::Result<()> {
    let run = Run {
        started_utc: utc_now(),
        version: env!("CARGO_PKG_VERSION"),
        record_schema: super::record::RECORD_VERSION,
        config,
        machine: machine(),
    };
    let text = toml::to_string(&run).map_err(io::Error::other)?;
    std::fs::write(dir.join("run.toml"), text)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
