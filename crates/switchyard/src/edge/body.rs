//! The body of a request, which the router may leave unread, and the end of the answer to it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, timeout};

use super::connections::Memory;
use super::exchange::{Exchange, Phase};
use super::{now, timer_until};

/// Bytes of a body that are not counted, so that ordinary requests take no common lock: as many as
/// each connection may hold in its buffer anyway.
pub(super) const UNCOUNTED_BYTES: usize = 32 * 1024;

/// So many more are counted at a time.
const COUNTED_BYTES: usize = 64 * 1024;

/// A body that must have arrived by a deadline. Dropped before its end, it leaves what is left.
pub(super) struct RequestBody {
    body: Option<Incoming>,
    memory: Memory,
    /// Bytes that were read, and how many of them are counted.
    bytes: usize,
    counted: usize,
    left: Leftover,
    was_polled: bool,
    deadline: Instant,
    /// Made when the body first keeps the reader waiting; most never do.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Where a body goes when its reader has finished with it.
#[derive(Clone, Default)]
pub(super) struct Leftover(Arc<Mutex<Left>>);

#[derive(Default)]
enum Left {
    /// Its reader has it.
    #[default]
    InUse,
    /// It was read to its end.
    Nothing,
    /// It ended with an error.
    Broken,
    /// It was not read to its end.
    Unread { body: Incoming, was_polled: bool },
}

impl Leftover {
    fn set(&self, left: Left) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Reads what is left of a body that is short and arrives soon. Tells whether the connection
    /// stands at the end of the request then. A client that `expects` to be asked for its body, and
    /// was not, may or may not send it: nothing can be read then.
    pub(super) async fn drain(&self, expects: bool, limit: usize, time: Duration) -> bool {
        let left = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut body, was_polled) = match left {
            Left::Nothing => return true,
            Left::InUse | Left::Broken => return false,
            Left::Unread { body, was_polled } => (body, was_polled),
        };
        if expects && !was_polled {
            return false;
        }
        if body.size_hint().lower() > limit as u64 {
            return false;
        }
        let read = async {
            let mut left = limit;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                let length = frame.data_ref().map_or(0, Bytes::len);
                match left.checked_sub(length) {
                    Some(rest) => left = rest,
                    None => return false,
                }
            }
            true
        };
        timeout(time, read).await.unwrap_or(false)
    }
}

impl RequestBody {
    pub(super) fn new(body: Incoming, memory: Memory, limit: Duration) -> (Self, Leftover) {
        let left = Leftover::default();
        let body = Self {
            body: Some(body),
            memory,
            bytes: 0,
            counted: 0,
            left: left.clone(),
            was_polled: false,
            deadline: now() + limit,
            timer: None,
        };
        (body, left)
    }

    /// Counts bytes that the reader keeps from now on. Tells whether there is room for them.
    fn count(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.bytes <= self.counted.max(UNCOUNTED_BYTES) {
            return true;
        }
        self.counted += COUNTED_BYTES;
        self.memory.hold(COUNTED_BYTES)
    }

    /// Ends the reading of the body with an error of the server's.
    fn fail(&mut self, kind: io::ErrorKind, message: &str) -> BoxError {
        self.body = None;
        self.left.set(Left::Broken);
        io::Error::new(kind, message).into()
    }

    /// Whether it is not the client's connection but its bytes that are wrong.
    fn explained(&self, error: hyper::Error) -> BoxError {
        let is_framing = std::error::Error::source(&error)
            .and_then(|source| source.downcast_ref::<io::Error>())
            .is_some_and(|error| {
                matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
            });
        if is_framing || self.memory.exchange.is_malformed() {
            let message = "the chunks of the request body are malformed";
            return io::Error::new(io::ErrorKind::InvalidData, message).into();
        }
        error.into()
    }
}

impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        this.was_polled = true;
        let Some(body) = this.body.as_mut() else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            this.memory.exchange.enter(Phase::Busy);
            let has_ended = body.is_end_stream();
            let length = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => 0,
            };
            if !this.count(length) {
                let message = "the clients of this address send too much at once";
                let error = this.fail(io::ErrorKind::ResourceBusy, message);
                return Poll::Ready(Some(Err(error)));
            }
            let left = match &frame {
                None => Left::Nothing,
                Some(Err(_)) => Left::Broken,
                Some(Ok(_)) if has_ended => Left::Nothing,
                Some(Ok(_)) => return Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            };
            this.left.set(left);
            // Whatever has ended is not given back.
            if !matches!(frame, Some(Ok(_))) {
                this.body = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| this.explained(error))));
        }
        this.memory.exchange.enter(Phase::Body);
        let deadline = this.deadline;
        let timer = this.timer.get_or_insert_with(|| Box::pin(timer_until(deadline)));
        ready!(timer.as_mut().poll(cx));
        let message = "the request body did not arrive in time";
        Poll::Ready(Some(Err(this.fail(io::ErrorKind::TimedOut, message))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        let left = if body.is_end_stream() {
            Left::Nothing
        } else {
            Left::Unread { body, was_polled: self.was_polled }
        };
        self.left.set(left);
    }
}

/// The body of an answer, which tells when hyper has all of it.
pub(super) struct AnswerBody {
    body: Body,
    exchange: Arc<Exchange>,
}

impl AnswerBody {
    pub(super) fn new(body: Body, exchange: Arc<Exchange>) -> Self {
        Self { body, exchange }
    }
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.exchange.answered();
    }
}
