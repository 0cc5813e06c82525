//! Waits for points on the clock far more precisely than a runtime's millisecond timer.
//!
//! On Linux a kernel timer that wakes the runtime like a socket does: late by tens of microseconds,
//! and idle meanwhile, so that the generator's own CPU stays what sending and reading cost.

use std::io;

use crate::measure::clock::{Ns, now_ns};

#[cfg(target_os = "linux")]
pub use linux::Pacer;
#[cfg(not(target_os = "linux"))]
pub use portable::Pacer;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::time::Duration;

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::io::unix::AsyncFd;

    use super::{Ns, io, now_ns};

    /// Gives its descriptor to the runtime; it owns it and never swaps it.
    struct Timer(TimerFd);

    impl AsRawFd for Timer {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    /// A timer of one thread.
    pub struct Pacer {
        timer: AsyncFd<Timer>,
    }

    impl Pacer {
        /// A timer on the calling runtime.
        pub fn new() -> io::Result<Pacer> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            // The newer `register` is unsafe for the sake of types that swap their descriptor.
            #[allow(deprecated)]
            let timer = AsyncFd::new(Timer(timer))?;
            Ok(Pacer { timer })
        }

        /// Returns at `due_ns` or as soon after it as the machine lets it.
        pub async fn until(&self, due_ns: Ns) -> io::Result<()> {
            loop {
                let now = now_ns();
                if now >= due_ns {
                    return Ok(());
                }
                let left = TimeSpec::from_duration(Duration::from_nanos(due_ns - now));
                let timer = &self.timer.get_ref().0;
                timer.set(Expiration::OneShot(left), TimerSetTimeFlags::empty())?;
                let mut ready = self.timer.readable().await?;
                // An expiration left over from a wait that was given up only costs another turn.
                if let Ok(Err(error)) = ready.try_io(|timer| Ok(timer.get_ref().0.wait()?)) {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::time::Duration;

    use super::{Ns, io, now_ns};

    /// The runtime's timer, late by up to a millisecond.
    pub struct Pacer;

    impl Pacer {
        /// A timer on the calling runtime.
        pub fn new() -> io::Result<Pacer> {
            Ok(Pacer)
        }

        /// Returns at `due_ns` or as soon after it as the machine lets it.
        pub async fn until(&self, due_ns: Ns) -> io::Result<()> {
            let mut now = now_ns();
            while now < due_ns {
                tokio::time::sleep(Duration::from_nanos(due_ns - now)).await;
                now = now_ns();
            }
            Ok(())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_never_returns_early_and_survives_waits_that_were_given_up() {
        let pacer = Pacer::new().unwrap();
        for wait_ns in [0, 1, 50_000, 2_000_000] {
            let due_ns = now_ns() + wait_ns;
            pacer.until(due_ns).await.unwrap();
            assert!(now_ns() >= due_ns);
            let given_up = pacer.until(now_ns() + 100_000);
            tokio::select! { biased; result = given_up => result.unwrap(), () = std::future::ready(()) => {} }
        }
    }
}
