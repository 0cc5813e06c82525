//! A TCP proxy between Evenkeel and an instance that does wrong by a plan: it delays, cuts, resets,
//! trickles, half-closes, swallows, garbles and inserts bytes, at a byte of its plan's choice.
//!
//! It follows the framing as far as to know where an exchange begins and ends; the bytes themselves it
//! passes on as they are. What befell each exchange is kept in a log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::fault::Fault;
use super::fault_pipe::{Ending, Pipe};
use super::http1::Head;
use super::{PATIENCE, within};

/// A request that came through.
#[derive(Debug, Clone)]
pub struct Passing {
    /// the connection it came on, from 0
    pub connection: usize,
    /// exchanges on that connection before it
    pub reuse: usize,
    /// its head
    pub head: Head,
}

/// What befell an exchange.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// its `x-request-id`
    pub id: String,
    /// when its head was there
    pub at: Instant,
    /// exchanges on its connection before it
    pub reuse: usize,
    /// response bytes passed on
    pub down_bytes: u64,
    /// response bytes up to the head's end, once that was passed on
    pub head_bytes: Option<u64>,
    /// the plan's steps that were done
    pub struck: usize,
    /// how it ended; `None` while it is open
    pub end: Option<Ending>,
}

type Plan = dyn Fn(&Passing) -> Fault + Send + Sync;

pub(super) struct Shared {
    plan: Box<Plan>,
    target: Mutex<SocketAddr>,
    resets_accepted: AtomicBool,
    connections: AtomicUsize,
    log: Mutex<Vec<Sighting>>,
    /// counts what changes, for those who wait
    changed: watch::Sender<()>,
    /// connections that began before the newest number are over
    killed: watch::Sender<usize>,
}

impl Shared {
    /// Asks the plan and opens an entry in the log.
    pub(super) fn begin(&self, passing: &Passing) -> (usize, Fault) {
        let fault = (self.plan)(passing);
        let id = passing.head.header("x-request-id").unwrap_or_default();
        let mut log = self.log.lock();
        log.push(Sighting {
            id: id.to_owned(),
            at: Instant::now(),
            reuse: passing.reuse,
            down_bytes: 0,
            head_bytes: None,
            struck: 0,
            end: None,
        });
        let at = log.len() - 1;
        drop(log);
        self.changed.send_replace(());
        (at, fault)
    }

    /// Notes something of an exchange.
    pub(super) fn note(&self, at: usize, f: impl FnOnce(&mut Sighting)) {
        if let Some(sighting) = self.log.lock().get_mut(at) {
            f(sighting);
        }
    }

    /// The exchange is over, if it was not yet.
    pub(super) fn end(&self, at: usize, end: Ending) {
        self.note(at, |sighting| {
            sighting.end.get_or_insert(end);
        });
        self.changed.send_replace(());
    }
}

/// A running fault proxy; it ends when dropped.
pub struct FaultProxy {
    /// where it listens
    pub addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
    /// keeps the port while nobody listens on it
    _holder: socket2::Socket,
}

impl FaultProxy {
    /// Starts one before `target`, on a port of the kernel's choice and the runtime of the caller.
    pub fn start(
        target: SocketAddr,
        plan: impl Fn(&Passing) -> Fault + Send + Sync + 'static,
    ) -> FaultProxy {
        let holder = bound("127.0.0.1:0".parse().unwrap());
        let addr = holder.local_addr().unwrap().as_socket().unwrap();
        let proxy = FaultProxy {
            addr,
            shared: Arc::new(Shared {
                plan: Box::new(plan),
                target: Mutex::new(target),
                resets_accepted: AtomicBool::new(false),
                connections: AtomicUsize::new(0),
                log: Mutex::default(),
                changed: watch::Sender::new(()),
                killed: watch::Sender::new(0),
            }),
            accepting: Mutex::new(None),
            _holder: holder,
        };
        proxy.listen();
        proxy
    }

    /// Listens (again).
    pub fn listen(&self) {
        let socket = bound(self.addr);
        socket.listen(1024).unwrap();
        socket.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(socket.into()).unwrap();
        let task = tokio::spawn(accept(listener, self.shared.clone()));
        *self.accepting.lock() = Some(task);
    }

    /// Closes the listener: connects are refused. Returns when they are.
    pub async fn refuse(&self) {
        let task = self.accepting.lock().take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    /// Resets each connection as soon as it is accepted, or no longer.
    pub fn reset_accepted(&self, on: bool) {
        self.shared.resets_accepted.store(on, Relaxed);
    }

    /// Resets every connection that is open.
    pub fn kill_connections(&self) {
        self.shared.killed.send_modify(|killed| *killed += 1);
    }

    /// Later connections go to `target`.
    pub fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock() = target;
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Relaxed)
    }

    /// Exchanges that are open now.
    pub fn open(&self) -> usize {
        let log = self.shared.log.lock();
        log.iter().filter(|one| one.end.is_none()).count()
    }

    /// The log so far.
    pub fn sightings(&self) -> Vec<Sighting> {
        self.shared.log.lock().clone()
    }

    /// Returns once `f` holds of the log.
    pub async fn until<T>(&self, what: &str, f: impl Fn(&[Sighting]) -> Option<T>) -> T {
        let mut changed = self.shared.changed.subscribe();
        within(what, PATIENCE, async {
            loop {
                changed.borrow_and_update();
                if let Some(value) = f(&self.shared.log.lock()) {
                    return value;
                }
                changed.changed().await.unwrap();
            }
        })
        .await
    }

    /// Returns once no connection is open.
    pub async fn idle(&self) {
        let mut changed = self.shared.changed.subscribe();
        within("a fault proxy without connections", PATIENCE, async {
            while self.connections() > 0 {
                changed.changed().await.unwrap();
            }
        })
        .await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(task) = self.accepting.lock().take() {
            task.abort();
        }
        self.kill_connections();
    }
}

/// A socket on that port, beside others that do not listen.
fn bound(addr: SocketAddr) -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&addr.into()).unwrap();
    socket
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut next = 0;
    loop {
        let Ok((near, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let _ = near.set_nodelay(true);
        if shared.resets_accepted.load(Relaxed) {
            let _ = near.set_zero_linger();
            continue;
        }
        let counted = Counted::new(&shared);
        tokio::spawn(serve(near, next, counted));
        next += 1;
    }
}

async fn serve(near: TcpStream, number: usize, counted: Counted) {
    let shared = counted.0.clone();
    let mut killed = shared.killed.subscribe();
    let target = *shared.target.lock();
    let Ok(far) = TcpStream::connect(target).await else {
        let _ = near.set_zero_linger();
        return;
    };
    let _ = far.set_nodelay(true);
    let pipe = Pipe::new(shared.clone(), number);
    pipe.run(near, far, async {
        let _ = killed.changed().await;
    })
    .await;
}

/// Counts an open connection.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Counted {
        shared.connections.fetch_add(1, Relaxed);
        Counted(shared.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
        self.0.changed.send_replace(());
    }
}
