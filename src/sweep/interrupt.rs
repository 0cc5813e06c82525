//! Ctrl-C and SIGTERM: seen by whoever looks, so that each part of a sweep ends at a place of its own choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use super::SweepError;

/// As a shell says of a command that an interrupt ended.
pub const EXIT_CODE: u8 = 130;
/// How often it is looked at while something else is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether somebody asked to stop.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    times: Arc<AtomicU32>,
}

impl Interrupt {
    /// From now on signals are seen here. The third one ends the process at once, which a study survives.
    pub fn begin() -> Result<Interrupt, SweepError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(SweepError::Start)?;
        let of = |kind| {
            let _inside = runtime.enter();
            signal(kind).map_err(SweepError::Start)
        };
        let mut interrupt = of(SignalKind::interrupt())?;
        let mut terminate = of(SignalKind::terminate())?;
        let seen = Interrupt::default();
        let times = Arc::clone(&seen.times);
        let listen = async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if times.fetch_add(1, Relaxed) >= 2 {
                    std::process::exit(i32::from(EXIT_CODE));
                }
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || runtime.block_on(listen))
            .map_err(SweepError::Start)?;
        Ok(seen)
    }

    /// How often it was asked.
    pub fn times(&self) -> u32 {
        self.times.load(Relaxed)
    }

    /// Whether it was asked.
    pub fn is_set(&self) -> bool {
        self.times() > 0
    }

    /// Waits a little; true if it was asked more often than `known` times.
    pub fn is_above_after_a_look(&self, known: u32) -> bool {
        if self.times() <= known {
            std::thread::sleep(LOOK_EVERY);
        }
        self.times() > known
    }

    /// Waits so long, or until somebody asks; true if somebody did.
    pub fn wait(&self, how_long: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < how_long {
            if self.is_above_after_a_look(0) {
                return true;
            }
        }
        self.is_set()
    }
}
