//! Reading a request: its path, its body up to the hold limit, and what routing may know of it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_policies::shape::Api;
use http::header::{CONTENT_TYPE, EXPECT, HOST, HeaderValue, UPGRADE};
use http::request::Parts;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::{self, Streamed, UpstreamBody};
use super::client_pace::BodyPace;
use super::paths::{self, PathKind};
use super::refusal::Refusal;
use super::skim::{self, Skim};
use super::{multipart, request_head, usage_ask};
use crate::config::checked::{Config, Limits, UsageMode};

/// Bytes one permit of the buffer budget stands for.
const PERMIT_BYTES: usize = 1024;
/// Room reserved for a body before any of it has come.
const RESERVE_BYTES_LEAST: usize = 64 * 1024;
/// Bytes read on from a client that was refused.
const READ_AWAY_BYTES_MAX: usize = 64 << 20;
/// Time spent on them.
const READ_AWAY_TIME_MAX: Duration = Duration::from_secs(5);

/// The budget for request bytes held by all requests together.
pub fn buffer_budget(limits: &Limits) -> Arc<Semaphore> {
    let permits = (limits.buffered_bytes / PERMIT_BYTES as u64).max(1);
    Arc::new(Semaphore::new(
        usize::try_from(permits)
            .unwrap_or(Semaphore::MAX_PERMITS)
            .min(Semaphore::MAX_PERMITS),
    ))
}

/// A request's path, decided before its body is touched.
pub fn classify(config: &Config, parts: &Parts) -> Result<PathKind, Refusal> {
    if parts.headers.contains_key(UPGRADE) && parts.version < http::Version::HTTP_2 {
        return Err(Refusal::Upgrade);
    }
    if parts.version == http::Version::HTTP_2 {
        let authority = parts.uri.authority().map(|authority| authority.as_str());
        let hosts = parts.headers.get_all(HOST).iter();
        let named = hosts.map(HeaderValue::as_bytes);
        request_head::one_host(authority.map(str::as_bytes).into_iter().chain(named))?;
    }
    let path = parts.uri.path();
    let named = || (bounded(parts.method.as_str(), 16), bounded(path, 128));
    match paths::classify(&parts.method, path) {
        PathKind::Unknown if paths::is_listed(&config.server.passthrough, path) => {
            Ok(PathKind::Passed)
        }
        PathKind::Unknown => {
            let (method, path) = named();
            Err(Refusal::UnknownPath { method, path })
        }
        PathKind::WrongMethod(allowed) => {
            let (method, path) = named();
            Err(Refusal::WrongMethod {
                method,
                path,
                allowed,
            })
        }
        kind => Ok(kind),
    }
}

/// How the JSON of a path's requests and answers is read.
pub fn api(kind: &PathKind) -> Api {
    match kind {
        PathKind::Inference(api) => *api,
        PathKind::ResponseById(_) => Api::Responses,
        _ => Api::Other,
    }
}

/// A string from a peer, cut to `limit` bytes at a character's edge.
pub fn bounded(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// A request that has been read as far as routing needs it.
pub struct Received {
    /// what was skimmed off the body
    pub skim: Skim,
    /// the proxy added `include_usage`: the usage event is withheld from the client
    pub usage_withheld: bool,
    /// body bytes taken from the client so far
    pub body_bytes: u64,
    body: Body,
    /// counts the held bytes until the first response byte
    permits: Option<OwnedSemaphorePermit>,
}

enum Body {
    Held(Bytes),
    Streamed(Option<Box<Streamed>>),
}

impl Received {
    /// The body for one attempt; `None` if it was streamed and is gone.
    pub fn body(&mut self) -> Option<UpstreamBody> {
        match &mut self.body {
            Body::Held(bytes) => Some(UpstreamBody::Held(Some(bytes.clone()))),
            Body::Streamed(streamed) => streamed.take().map(UpstreamBody::Streamed),
        }
    }

    /// Whether the body may be sent again.
    pub fn is_held(&self) -> bool {
        matches!(self.body, Body::Held(_))
    }

    /// Lets go of held bytes; no attempt follows.
    pub fn release(&mut self) {
        if let Body::Held(bytes) = &mut self.body {
            *bytes = Bytes::new();
        }
        self.permits = None;
    }
}

/// Reads a body up to the hold limit and skims it.
pub async fn receive(
    config: &Config,
    budget: &Arc<Semaphore>,
    parts: &Parts,
    api: Api,
    incoming: Incoming,
) -> Result<Received, Refusal> {
    let declared = incoming.size_hint().exact();
    let limit_bytes = config.limits.body_bytes;
    if declared.is_some_and(|bytes| bytes > limit_bytes) {
        read_away(parts, incoming);
        return Err(Refusal::BodyTooLarge { limit_bytes });
    }
    let mut reader = Reader {
        head: parts,
        limits: &config.limits,
        budget,
        pace: BodyPace::new(config.timeouts.client_body),
        permits: None,
        parts: Vec::new(),
        bytes: 0,
    };
    let rest = reader.read(incoming, declared).await?;
    let (held, permits, pace) = (reader.parts, reader.permits, reader.pace);
    let body_bytes = reader.bytes as u64;
    let received = |skim, body, usage_withheld| Received {
        skim,
        usage_withheld,
        body_bytes,
        body,
        permits,
    };
    let Some(rest) = rest else {
        let bytes = joined(held);
        let skim = skim_whole(parts, api, &bytes);
        let asked = match config.measure.usage {
            UsageMode::Ask => usage_ask::ask_usage(&bytes, &skim),
            UsageMode::AsAsked => None,
        };
        let usage_withheld = asked.is_some();
        return Ok(received(
            skim,
            Body::Held(asked.unwrap_or(bytes)),
            usage_withheld,
        ));
    };
    let first = joined(held.clone());
    let skim = match multipart_model(parts, api, &first) {
        Some(skim) => skim,
        None => skim::skim_prefix(api, &first, declared),
    };
    let streamed = Streamed::new(held, rest, pace, limit_bytes, declared);
    Ok(received(
        skim,
        Body::Streamed(Some(Box::new(streamed))),
        false,
    ))
}

/// Reads on for a while what a refused client still sends: closing a socket with unread bytes resets it, and
/// the reset can overtake the answer.
pub fn read_away(parts: &Parts, mut incoming: Incoming) {
    // reading would tell a client that waits for our word to go on
    if parts.headers.contains_key(EXPECT) {
        return;
    }
    tokio::spawn(async move {
        let reading = async {
            let mut left = READ_AWAY_BYTES_MAX;
            while let Some(Ok(frame)) = incoming.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(READ_AWAY_TIME_MAX, reading).await;
    });
}

fn skim_whole(parts: &Parts, api: Api, bytes: &Bytes) -> Skim {
    multipart_model(parts, api, bytes).unwrap_or_else(|| skim::skim(api, bytes))
}

fn multipart_model(parts: &Parts, api: Api, first: &Bytes) -> Option<Skim> {
    let content_type = parts.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    if !content_type
        .trim_start()
        .to_ascii_lowercase()
        .starts_with("multipart/")
    {
        return None;
    }
    Some(Skim {
        model: multipart::model_field(content_type, first),
        ..skim::skim(api, b"")
    })
}

fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() <= 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in &parts {
        whole.extend_from_slice(part);
    }
    whole.freeze()
}

/// The client sends its body too slowly.
struct TooSlow;

struct Reader<'a> {
    head: &'a Parts,
    limits: &'a Limits,
    budget: &'a Arc<Semaphore>,
    pace: BodyPace,
    permits: Option<OwnedSemaphorePermit>,
    parts: Vec<Bytes>,
    bytes: usize,
}

impl Reader<'_> {
    /// Reads to the end, or until more than the hold limit has come; then gives the rest.
    async fn read(
        &mut self,
        mut incoming: Incoming,
        declared: Option<u64>,
    ) -> Result<Option<Incoming>, Refusal> {
        let expected = declared.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let most = expected.min(self.limits.hold_bytes);
        loop {
            // room for twice what has come: who only declares much must not take it from others
            let declared_part = most.min((self.bytes * 2).max(RESERVE_BYTES_LEAST));
            self.reserve(declared_part.max(self.bytes)).await?;
            let Ok(frame) = self.next(&mut incoming).await else {
                read_away(self.head, incoming);
                return Err(Refusal::BodyTooSlow);
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(error)) if body::client_left(&error) => return Err(Refusal::ClientLeft),
                Some(Err(error)) => return Err(Refusal::BadBody(error.to_string())),
                None => return Ok(None),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.pace.came(data.len());
            self.bytes += data.len();
            self.parts.push(data);
            if self.bytes as u64 > self.limits.body_bytes {
                read_away(self.head, incoming);
                return Err(Refusal::BodyTooLarge {
                    limit_bytes: self.limits.body_bytes,
                });
            }
            if self.bytes >= self.limits.hold_bytes {
                let ended = declared.is_some_and(|bytes| self.bytes as u64 == bytes);
                return Ok((!ended).then_some(incoming));
            }
        }
    }

    /// The next frame, or that it did not come in time.
    async fn next(
        &mut self,
        incoming: &mut Incoming,
    ) -> Result<Option<hyper::Result<Frame<Bytes>>>, TooSlow> {
        let pace = &mut self.pace;
        poll_fn(|cx| match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => pace.poll_too_slow(cx).map(|()| Err(TooSlow)),
        })
        .await
    }

    /// Counts `bytes` in total against the budget, waiting a bounded time for room.
    async fn reserve(&mut self, bytes: usize) -> Result<(), Refusal> {
        let have = self
            .permits
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let want = bytes.div_ceil(PERMIT_BYTES);
        if want <= have {
            return Ok(());
        }
        let missing = u32::try_from(want - have).unwrap_or(u32::MAX);
        let more = tokio::time::timeout(
            self.limits.buffered_wait,
            self.budget.clone().acquire_many_owned(missing),
        )
        .await
        .map_err(|_| Refusal::NoMemory)?
        .map_err(|_| Refusal::NoMemory)?;
        match &mut self.permits {
            Some(permits) => permits.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}
