//! Response bodies: whole, or events as tokens come. Dropping one aborts what it waits for, so a
//! client that leaves frees its sequence by the end of the step.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::ask::Ask;
use super::faults::FaultKind;
use super::model::Request;
use super::runner::{Command, Instance, Token};
use super::wire::{self, Renderer};

/// The connection is to end here, in the middle.
#[derive(Debug, thiserror::Error)]
#[error("cut on demand")]
pub(crate) struct Cut;

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// A request in the model: its tokens; on drop, its end.
pub(crate) struct TokenStream {
    instance: Arc<Instance>,
    tokens: UnboundedReceiver<Token>,
    ids: Vec<u64>,
    done: bool,
}

impl TokenStream {
    /// Submits every choice of `ask`.
    pub(crate) fn begin(instance: &Arc<Instance>, ask: &Ask) -> Self {
        let (to, tokens) = unbounded_channel();
        let block = instance.profile.block_size_tokens;
        let hashes: Vec<Vec<u64>> = ask.prompts.iter().map(|p| p.block_hashes(block)).collect();
        let mut ids = Vec::with_capacity(ask.choices.len());
        for (at, choice) in ask.choices.iter().enumerate() {
            let id = instance.fresh_id();
            let request = Request {
                id,
                prompt_tokens: ask.prompts[choice.prompt].tokens(),
                block_hashes: hashes[choice.prompt].clone(),
                output_tokens: choice.output_tokens,
            };
            let (choice_index, finish, to) = (at as u32, choice.finish, to.clone());
            instance.send(Command::Submit {
                request,
                choice: choice_index,
                finish,
                to,
            });
            ids.push(id);
        }
        instance.in_service.fetch_add(1, Ordering::Relaxed);
        TokenStream {
            instance: instance.clone(),
            tokens,
            ids,
            done: false,
        }
    }

    pub(crate) fn poll_token(&mut self, cx: &mut Context<'_>) -> Poll<Option<Token>> {
        let token = ready!(self.tokens.poll_recv(cx));
        self.done |= token.is_none();
        Poll::Ready(token)
    }

    pub(crate) async fn next(&mut self) -> Option<Token> {
        std::future::poll_fn(|cx| self.poll_token(cx)).await
    }
}

impl Drop for TokenStream {
    fn drop(&mut self) {
        self.instance.in_service.fetch_sub(1, Ordering::Relaxed);
        if self.done {
            return;
        }
        for id in &self.ids {
            self.instance.send(Command::Abort(*id));
        }
    }
}

/// An event stream.
pub(crate) struct SseBody {
    stream: TokenStream,
    renderer: Renderer,
    queue: VecDeque<Bytes>,
    fault: Option<FaultKind>,
    reset: Arc<AtomicBool>,
    chunks: u32,
    ended: bool,
    /// The connection is to be cut as soon as what came before has been flushed.
    cutting: bool,
}

impl SseBody {
    pub(crate) fn new(
        stream: TokenStream,
        renderer: Renderer,
        fault: Option<FaultKind>,
        reset: Arc<AtomicBool>,
    ) -> Self {
        SseBody {
            stream,
            renderer,
            queue: VecDeque::new(),
            fault,
            reset,
            chunks: 0,
            ended: false,
            cutting: false,
        }
    }

    fn take(&mut self, token: Token) -> Result<(), Cut> {
        let mut finish = None;
        match self.fault {
            Some(FaultKind::Cut {
                after_chunks,
                reset,
            }) if self.chunks >= after_chunks => {
                self.reset.store(reset, Ordering::Relaxed);
                return Err(Cut);
            }
            Some(FaultKind::InBandError { after_chunks }) if self.chunks >= after_chunks => {
                wire::in_band_error(&mut self.queue);
                self.ended = true;
                return Ok(());
            }
            Some(FaultKind::Abort { after_chunks }) if self.chunks + 1 >= after_chunks => {
                finish = Some("abort");
            }
            _ => {}
        }
        self.chunks += 1;
        self.renderer.token(token, finish, &mut self.queue);
        // Of several choices, one was aborted: the others' tokens still come.
        self.ended = self.renderer.is_done();
        Ok(())
    }
}

impl Body for SseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        loop {
            if let Some(bytes) = self.queue.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if self.cutting {
                return Poll::Ready(Some(Err(Cut)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            if matches!(self.fault, Some(FaultKind::Silent { .. })) {
                return Poll::Pending; // Until the client leaves.
            }
            let Some(token) = ready!(self.stream.poll_token(cx)) else {
                return Poll::Ready(Some(Err(Cut)));
            };
            if self.take(token).is_err() {
                // An error now would drop what the server holds unflushed: it flushes when we pend.
                self.cutting = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}
