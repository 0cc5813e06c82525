//! How slow a client may be: with a request's body, and with taking an answer.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::timer::Timer;

/// A client has to send this much of a body within `timeouts.client_body_s`, so that a byte now and then is not enough.
const STEP_BYTES: usize = 16 * 1024;

/// The cause in the record of a client that was cut because it took nothing of its answer.
pub const WRITE_TIMEOUT: &str = "client_write_timeout";

/// Whether a request's body comes fast enough. Only time in which we wait for the client counts.
pub struct BodyPace {
    limit: Duration,
    came_bytes: usize,
    waited: Duration,
    waiting_since: Option<Instant>,
    timer: Timer,
}

impl BodyPace {
    /// `limit` is for each step.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            came_bytes: 0,
            waited: Duration::ZERO,
            waiting_since: None,
            timer: Timer::default(),
        }
    }

    /// So many bytes came.
    pub fn came(&mut self, bytes: usize) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += since.elapsed();
        }
        self.came_bytes += bytes;
        if self.came_bytes >= STEP_BYTES {
            (self.came_bytes, self.waited) = (0, Duration::ZERO);
        }
    }

    /// Nothing has come; ready once the client is too slow.
    pub fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let left = self.limit.saturating_sub(self.waited);
        self.timer.poll(cx, since + left)
    }
}
