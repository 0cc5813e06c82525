//! HTTP/2 streams, a task each: one whose client takes nothing of its answer for too long ends, whatever the others do.
//!
//! hyper asks a body for more only while the client's window has room. So a stream waits for its client whenever its
//! task has nothing to do and it was not our code that said so.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::Instant;

use super::timer::Timer;
use crate::measure::clock::now_ns;

thread_local! {
    /// our code was the last to be asked by the task that runs, and has nothing yet
    static WAITS_FOR_US: Cell<bool> = const { Cell::new(false) };
    /// a stream is being ended because its client took nothing
    static GAVE_UP: Cell<bool> = const { Cell::new(false) };
}

/// Passes on what our part of a stream says when it is polled.
pub fn noted<T>(polled: Poll<T>) -> Poll<T> {
    WAITS_FOR_US.set(polled.is_pending());
    polled
}

/// Whether what is dropped now belongs to a stream whose client took nothing for too long.
pub fn gave_up() -> bool {
    GAVE_UP.get()
}

/// The streams of one connection.
#[derive(Clone)]
pub struct StreamTasks(Arc<Streams>);

struct Streams {
    write_limit: Duration,
    open: AtomicUsize,
    newest_end_ns: AtomicU64,
}

impl StreamTasks {
    /// A client that takes nothing of a stream for `write_limit` loses that stream.
    pub fn new(write_limit: Duration) -> Self {
        Self(Arc::new(Streams {
            write_limit,
            open: AtomicUsize::new(0),
            newest_end_ns: AtomicU64::new(now_ns()),
        }))
    }

    /// Returns once no stream has been open for `limit`.
    pub async fn idle_for(&self, limit: Duration) {
        loop {
            let newest_end_ns = self.0.newest_end_ns.load(Relaxed);
            let idle = match self.0.open.load(Relaxed) {
                0 => Duration::from_nanos(now_ns().saturating_sub(newest_end_ns)),
                _ => Duration::ZERO,
            };
            if idle >= limit {
                return;
            }
            tokio::time::sleep(limit - idle).await;
        }
    }
}

impl<F> Executor<F> for StreamTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        let streams = self.0.clone();
        let open = Open::new(streams.clone());
        tokio::spawn(async move {
            let _open = open;
            let mut stream = Box::pin(stream);
            let mut pace = TakingPace::default();
            let ended = poll_fn(|cx| {
                WAITS_FOR_US.set(false);
                match stream.as_mut().poll(cx) {
                    Poll::Ready(_) => Poll::Ready(true),
                    Poll::Pending => pace.poll_too_slow(cx, streams.write_limit).map(|()| false),
                }
            });
            if !ended.await {
                GAVE_UP.set(true);
                drop(stream);
                GAVE_UP.set(false);
            }
        });
    }
}

/// How long a client has taken nothing of a stream that waits for it.
#[derive(Default)]
struct TakingPace {
    since: Option<Instant>,
    timer: Timer,
}

impl TakingPace {
    fn poll_too_slow(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        if WAITS_FOR_US.get() {
            self.since = None;
            return Poll::Pending;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        self.timer.poll(cx, since + limit)
    }
}

/// Counts an open stream.
struct Open(Arc<Streams>);

impl Open {
    fn new(streams: Arc<Streams>) -> Self {
        streams.open.fetch_add(1, Relaxed);
        Self(streams)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.newest_end_ns.store(now_ns(), Relaxed);
        self.0.open.fetch_sub(1, Relaxed);
    }
}
