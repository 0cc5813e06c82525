//! When an instance's bytes arrived: when they were read, or, if asked for, when the kernel got the last packet read.
//!
//! A read is stamped after this thread was woken and has read: about 0.1 ms late on an idle machine, and as late as the
//! thread is on a busy one. The kernel stamps a packet before it wakes anyone (`SO_TIMESTAMPNS`), by the wall clock.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, ReadBuf};

use super::wire::Wire;
use crate::config::checked::ArrivalStamp;
use crate::measure::clock::{Ns, now_ns, wall_ns};

/// The stamps of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// what it brought arrived
    pub at_ns: Ns,
    /// it was done
    pub read_ns: Ns,
    /// the arrival is the kernel's stamp
    pub by_kernel: bool,
}

impl Arrival {
    fn at_read(read_ns: Ns) -> Self {
        Self {
            at_ns: read_ns,
            read_ns,
            by_kernel: false,
        }
    }

    /// The next read of the connection, done now. `stamp_ns` is the kernel's, by the wall clock.
    fn next(self, stamp_ns: Option<u64>) -> Self {
        let Some(stamp_ns) = stamp_ns else {
            return Self::at_read(now_ns());
        };
        // In this order: if the thread is held up between the two, the arrival comes out late, but within the read.
        let wall_ns = wall_ns();
        self.stamped(stamp_ns, wall_ns, now_ns())
    }

    /// The wall clock may be set between packet and read: a stamp in the future counts as none, and one before the
    /// previous read of the connection as that.
    fn stamped(self, stamp_ns: u64, wall_ns: u64, read_ns: Ns) -> Self {
        let Some(age_ns) = wall_ns.checked_sub(stamp_ns) else {
            return Self::at_read(read_ns);
        };
        Self {
            at_ns: read_ns.saturating_sub(age_ns).max(self.at_ns).min(read_ns),
            read_ns,
            by_kernel: true,
        }
    }
}

/// Keeps the kernel stamping. It does so only while some socket asks for it, and begins a little after the first does:
/// without this, what comes first after a time without connections to instances had no stamp.
pub struct Stamping {
    _socket: Option<Socket>,
}

impl Stamping {
    /// Begins, if stamps are wanted.
    pub fn begin(wanted: ArrivalStamp) -> Self {
        let socket = (wanted == ArrivalStamp::Kernel)
            .then(|| Socket::new(Domain::IPV4, Type::DGRAM, None))
            .and_then(Result::ok)
            .filter(kernel::ask);
        Self { _socket: socket }
    }
}

/// A connection to an instance that stamps its reads.
pub struct StampedWire {
    wire: Wire,
    /// the kernel was asked to stamp packets
    kernel: bool,
    newest: Arrival,
}

impl StampedWire {
    /// Asks the kernel for stamps if they are wanted; where it has none, and over TLS, reads are stamped.
    pub fn new(wire: Wire, wanted: ArrivalStamp) -> Self {
        let kernel = match &wire {
            Wire::Plain(socket) => wanted == ArrivalStamp::Kernel && kernel::ask(socket),
            _ => false,
        };
        Self {
            wire,
            kernel,
            newest: Arrival::at_read(now_ns()),
        }
    }

    /// For writing.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// The newest read; before the first, the connection's beginning.
    pub fn newest(&self) -> Arrival {
        self.newest
    }

    /// Neither bytes nor an end wait to be read.
    pub fn is_quiet(&mut self) -> bool {
        self.wire.is_quiet()
    }

    /// Reads once and stamps it; 0 is the end of the connection.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = match &mut self.wire {
            Wire::Plain(socket) if self.kernel => ready!(kernel::poll_read(socket, cx, room)),
            wire => {
                let mut room = ReadBuf::new(room);
                let read = ready!(Pin::new(wire).poll_read(cx, &mut room));
                read.map(|()| (room.filled().len(), None))
            }
        };
        let stamp_ns = read.as_ref().ok().and_then(|(_, stamp_ns)| *stamp_ns);
        self.newest = self.newest.next(stamp_ns);
        Poll::Ready(read.map(|(length, _)| length))
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::io::{self, IoSliceMut};
    use std::os::fd::{AsFd, AsRawFd};
    use std::task::{Context, Poll, ready};

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
    use nix::sys::time::TimeSpec;
    use tokio::io::Interest;
    use tokio::net::TcpStream;

    /// Room for the stamp, aligned as the kernel's header in front of it.
    #[repr(align(8))]
    struct Control([u8; 64]);

    /// Whether packets are stamped from now on.
    pub fn ask(socket: &impl AsFd) -> bool {
        let asked = setsockopt(socket, sockopt::ReceiveTimestampns, &true);
        if let Err(error) = asked {
            tracing::debug!(%error, "no stamps from the kernel: reads are stamped");
        }
        asked.is_ok()
    }

    /// Bytes read, and the kernel's stamp of the last packet among them.
    pub fn poll_read(
        stream: &TcpStream,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<u64>)>> {
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let mut read = Err(io::ErrorKind::WouldBlock.into());
            // its result says only whether to wait for the socket, which the next turn of the loop asks as well
            let _ = stream.try_io(Interest::READABLE, || {
                read = receive(stream, room);
                match &read {
                    // As tokio's own reads: one that does not fill its room has emptied the socket, and asking the
                    // socket once more to hear so would be a system call an event.
                    Ok((length, _)) if *length == 0 || *length == room.len() => Ok(()),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    fn receive(stream: &TcpStream, room: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
        let mut control = Control([0; 64]);
        let mut pieces = [IoSliceMut::new(room)];
        let message = recvmsg::<()>(
            stream.as_raw_fd(),
            &mut pieces,
            Some(&mut control.0),
            MsgFlags::empty(),
        )?;
        let stamp_ns = message.cmsgs().ok().and_then(|mut all| {
            all.find_map(|one| match one {
                ControlMessageOwned::ScmTimestampns(stamp) => nanoseconds(stamp),
                _ => None,
            })
        });
        Ok((message.bytes, stamp_ns))
    }

    fn nanoseconds(stamp: TimeSpec) -> Option<u64> {
        let seconds = u64::try_from(stamp.tv_sec()).ok()?;
        let rest = u64::try_from(stamp.tv_nsec()).ok()?;
        seconds.checked_mul(1_000_000_000)?.checked_add(rest)
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::io;
    use std::task::{Context, Poll};

    use tokio::net::TcpStream;

    /// Only Linux is asked.
    pub fn ask<S>(_: &S) -> bool {
        false
    }

    /// Never called.
    pub fn poll_read(
        _: &TcpStream,
        _: &mut Context<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<u64>)>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WALL: u64 = 1_800_000_000_000_000_000;

    #[test]
    fn an_arrival_lies_as_long_before_the_read_as_its_stamp_before_the_wall_clocks_now() {
        let before = Arrival::at_read(1_000);
        let arrival = before.stamped(WALL - 300, WALL, 5_000);
        assert_eq!((arrival.at_ns, arrival.read_ns), (4_700, 5_000));
        assert!(arrival.by_kernel);
    }

    #[test]
    fn a_stamp_in_the_future_is_none() {
        let arrival = Arrival::at_read(1_000).stamped(WALL + 1, WALL, 5_000);
        assert_eq!(arrival, Arrival::at_read(5_000));
    }

    #[test]
    fn without_a_stamp_the_read_counts() {
        let arrival = Arrival::at_read(1).next(None);
        assert_eq!(arrival, Arrival::at_read(arrival.read_ns));
    }

    proptest! {
        #[test]
        fn arrivals_never_go_back_and_never_pass_their_read(
            reads in prop::collection::vec((0u64..2_000, 0u64..4_000, 0u64..4_000), 1..20),
        ) {
            let mut previous = Arrival::at_read(1);
            for (later, wall, stamp) in reads {
                let arrival = previous.stamped(WALL + stamp, WALL + wall, previous.read_ns + later);
                prop_assert!(arrival.at_ns >= previous.at_ns);
                prop_assert!(arrival.at_ns <= arrival.read_ns);
                previous = arrival;
            }
        }
    }
}
