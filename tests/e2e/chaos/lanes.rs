//! The clients: each lane sends its requests one after the other and behaves as planned; what it saw of
//! each is kept.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::plan::{Conduct, LEAVE_BYTES, Plan};
use crate::support::client::{BodyEnd, Client};
use crate::support::client_h2::{ClientH2, next_piece};
use crate::support::reply::ms;

/// A request that takes longer hangs: the longest limit that Evenkeel was given is 3 s.
const HANG: Duration = Duration::from_secs(20);
const WINDOW: u32 = 65_535;

/// What a client saw of its request.
#[derive(Debug)]
pub struct View {
    pub plan: Plan,
    pub begun: std::time::Instant,
    pub ended: std::time::Instant,
    pub status: Option<u16>,
    /// `x-request-id` of the answer
    pub id: Option<String>,
    pub body: Vec<u8>,
    /// the body ended as its framing says
    pub clean: bool,
    /// the client left before the end
    pub left: bool,
    /// neither end nor leave within the limit
    pub hung: bool,
    /// what must not be, seen on the way
    pub wrong: Option<String>,
}

impl View {
    fn of(plan: &Plan) -> View {
        View {
            plan: plan.clone(),
            begun: std::time::Instant::now(),
            ended: std::time::Instant::now(),
            status: None,
            id: None,
            body: Vec::new(),
            clean: false,
            left: false,
            hung: false,
            wrong: None,
        }
    }
}

/// One lane.
pub struct Lane {
    pub addr: SocketAddr,
    pub kept: Option<Client>,
    /// shared with other lanes
    pub http2: ClientH2,
    pub release: watch::Receiver<bool>,
}

impl Lane {
    /// Sends a request; `seen` tells when it has reached an instance.
    pub async fn go(&mut self, plan: &Plan, seen: oneshot::Receiver<()>) -> View {
        let mut view = View::of(plan);
        let done = if plan.http2 {
            timeout(HANG, self.over_http2(plan, seen, &mut view)).await
        } else {
            timeout(HANG, self.over_http1(plan, seen, &mut view)).await
        };
        view.hung = done.is_err();
        view.ended = std::time::Instant::now();
        view
    }

    async fn over_http1(&mut self, plan: &Plan, seen: oneshot::Receiver<()>, view: &mut View) {
        let mut client = match self.kept.take() {
            Some(client) => client,
            None => Client::connect(self.addr).await,
        };
        let bytes = plan.ask().bytes();
        let sent = match plan.conduct {
            Conduct::LeaveInRequest => bytes.len() - 1 - plan.offset as usize % 100,
            _ => bytes.len(),
        };
        if let Err(error) = client.try_send(&bytes[..sent]).await {
            view.wrong = Some(format!("the request could not be sent: {error}"));
            return;
        }
        match plan.conduct {
            // closed, not reset: a reset may take away what was not read yet
            Conduct::LeaveAtOnce | Conduct::LeaveInRequest => {
                view.left = true;
                return;
            }
            Conduct::LeaveBeforeHead | Conduct::HalfClose | Conduct::Hold => {
                tokio::select! {
                    _ = seen => {
                        view.left = true;
                        self.hold(plan).await;
                        if plan.conduct == Conduct::HalfClose {
                            client.half_close().await;
                            if client.try_head().await.is_some() {
                                view.wrong = Some("an answer after a half-close".to_owned());
                            }
                        }
                        return leave(client, plan);
                    }
                    () = client.readable() => {}
                }
            }
            _ => {}
        }
        self.read_http1(client, plan, view).await;
    }

    async fn read_http1(&mut self, mut client: Client, plan: &Plan, view: &mut View) {
        let Some(head) = client.try_head().await else {
            view.wrong = Some("the connection ended without an answer".to_owned());
            return;
        };
        view.status = Some(head.status());
        view.id = head.header("x-request-id").map(str::to_owned);
        let closes = head.header("connection") == Some("close");
        let mut body = client.body(&head);
        loop {
            if leaves(plan, view) {
                view.left = true;
                return leave(client, plan);
            }
            let Some(piece) = body.next().await else {
                break;
            };
            view.body.extend_from_slice(&piece.bytes);
            if plan.conduct == Conduct::ReadSlowly {
                tokio::time::sleep(ms(1 + plan.offset % 4)).await;
            }
        }
        view.clean = body.end() == Some(BodyEnd::Clean);
        if view.clean && !client.is_read_out() {
            view.wrong = Some("bytes after the answer".to_owned());
        }
        if view.clean && !closes {
            self.kept = Some(client);
        }
    }

    async fn over_http2(&mut self, plan: &Plan, seen: oneshot::Receiver<()>, view: &mut View) {
        let alone = plan.roughly && !matches!(plan.conduct, Conduct::Stay | Conduct::ReadSlowly);
        let client = if alone {
            // it goes with its only stream
            ClientH2::connect(self.addr, WINDOW).await
        } else {
            self.http2.clone()
        };
        let (id, body) = (plan.id.clone(), plan.body());
        let asked = async move { client.post("/v1/chat/completions", &id, &body).await };
        let mut asked = Box::pin(asked);
        match plan.conduct {
            Conduct::LeaveAtOnce => {
                let soon = Duration::from_micros(plan.offset);
                if let Ok(answer) = timeout(soon, &mut asked).await {
                    view.status = Some(answer.status().as_u16());
                }
                view.left = true;
                return;
            }
            Conduct::LeaveBeforeHead | Conduct::Hold => {
                tokio::select! {
                    Ok(()) = seen => {
                        view.left = true;
                        self.hold(plan).await;
                        return;
                    }
                    answer = &mut asked => return read_http2(answer, plan, view).await,
                }
            }
            _ => {}
        }
        let answer = asked.await;
        read_http2(answer, plan, view).await;
    }

    async fn hold(&mut self, plan: &Plan) {
        if plan.conduct == Conduct::Hold {
            let _ = self.release.wait_for(|release| *release).await;
        }
    }
}

async fn read_http2(
    mut answer: http::Response<hyper::body::Incoming>,
    plan: &Plan,
    view: &mut View,
) {
    view.status = Some(answer.status().as_u16());
    let id = answer.headers().get("x-request-id");
    view.id = id.map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    loop {
        if leaves(plan, view) {
            view.left = true;
            return;
        }
        match next_piece(answer.body_mut()).await {
            Some(Ok(piece)) => view.body.extend_from_slice(&piece),
            Some(Err(_)) => return,
            None => {
                view.clean = true;
                return;
            }
        }
        if plan.conduct == Conduct::ReadSlowly {
            tokio::time::sleep(ms(1 + plan.offset % 4)).await;
        }
    }
}

fn leaves(plan: &Plan, view: &View) -> bool {
    let after = match plan.conduct {
        Conduct::LeaveMidStream => LEAVE_BYTES,
        Conduct::LeaveSomewhere => plan.offset,
        _ => return false,
    };
    view.status == Some(200) && view.body.len() as u64 >= after
}

fn leave(client: Client, plan: &Plan) {
    if plan.roughly {
        client.abort();
    }
}
