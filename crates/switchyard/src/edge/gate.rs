//! The stream between a client and hyper, which lets one request through at a time.
//!
//! Guarantees:
//! - Hyper sees a head once all of it is there, with every line ended in CR LF, and nothing behind
//!   the request before its answer is written. So what a connection waits for is known at any
//!   time, and each wait has its own limit.
//! - An answer that hyper gives to a head by itself has the shape of all other errors.
//! - A client that does not read is given up, and one that is still sending sees the answer before
//!   the connection closes.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::connections::{HalfHead, Memory, Place};
use super::exchange::{At, Exchange, Framing, Phase};
use super::refusal::Refusal;
use super::{Limits, now, timer, timer_until};

/// The rest of what a client sends is thrown away after an answer, up to a few bodies of the
/// largest size.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// As much is thrown away at a time.
const LINGER_CHUNK_BYTES: usize = 8 * 1024;

/// Where the status begins in `HTTP/1.1 400`.
const STATUS_AT: usize = 9;

pub(super) struct Gate {
    stream: TcpStream,
    place: Place,
    memory: Memory,
    limits: GateLimits,
    /// Received, and not given to hyper.
    held: BytesMut,
    /// So many of them were searched for the end of a head.
    searched: usize,
    /// So many of them are the rest of a head that hyper is being given.
    head_left: usize,
    /// Of the wait for the next head, or for the rest of one.
    waiting: Option<(Phase, Pin<Box<Sleep>>)>,
    half_head: Option<HalfHead>,
    /// An answer of our own, and how much of it is written.
    own_answer: Option<(Vec<u8>, usize)>,
    /// From the first byte that had to wait until nothing waits any more. It does not start again
    /// when a few bytes get through, or a client could read one byte at a time for ever.
    stalled: Option<Stalled>,
    /// Set once our side is closed.
    lingering: Option<Lingering>,
}

struct GateLimits {
    idle_timeout: Duration,
    header_timeout: Duration,
    headers_max: usize,
    head_bytes_max: usize,
    write_timeout: Duration,
    answer_rate_min: u32,
    linger_timeout: Duration,
}

/// A client that takes an answer more slowly than it is written.
struct Stalled {
    since: Instant,
    /// Bytes that it has taken since.
    taken: u64,
    timer: Pin<Box<Sleep>>,
}

struct Lingering {
    timer: Pin<Box<Sleep>>,
    bytes_left: usize,
}

/// Whether a head is there.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    /// The first so many bytes.
    Whole(usize),
    Part,
    Refused(Refusal),
}

/// Looks for the end of a head behind the first `searched` bytes, which had none. Only a whole head
/// without a line feed of its own is for hyper, which would take that for the end of a line.
fn find_head(bytes: &[u8], searched: usize, bytes_max: usize) -> Head {
    let refused = |message: &str| Head::Refused(Refusal::new(StatusCode::BAD_REQUEST, message));
    if bytes.first().is_some_and(|first| *first != b'\n' && !is_of_method(*first)) {
        return refused("the request does not begin with a method: this server speaks HTTP/1.1");
    }
    for at in searched..bytes.len() {
        if bytes[at] != b'\n' {
            continue;
        }
        if at == 0 || bytes[at - 1] != b'\r' {
            return refused("a line of the head ends in a line feed alone: end lines with CR LF");
        }
        if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" {
            return Head::Whole(at + 1);
        }
    }
    if bytes.len() >= bytes_max {
        let message = format!("the head of the request is more than {bytes_max} bytes");
        return Head::Refused(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    Head::Part
}

/// A token of RFC 9110 section 5.6.2.
fn is_of_method(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl Gate {
    pub(super) fn new(stream: TcpStream, place: Place, limits: &Limits) -> Self {
        let limits = GateLimits {
            idle_timeout: limits.idle_timeout,
            header_timeout: limits.header_timeout,
            headers_max: limits.headers_max,
            head_bytes_max: limits.buffer_bytes_max,
            write_timeout: limits.write_timeout,
            answer_rate_min: limits.answer_rate_min.max(1),
            linger_timeout: limits.linger_timeout,
        };
        Self {
            stream,
            memory: place.memory(),
            place,
            limits,
            held: BytesMut::new(),
            searched: 0,
            head_left: 0,
            waiting: None,
            half_head: None,
            own_answer: None,
            stalled: None,
            lingering: None,
        }
    }

    fn exchange(&self) -> &Arc<Exchange> {
        &self.place.exchange
    }

    /// Receives behind what is held. Tells how many bytes came; none at the end.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let start = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let received = &buffer.filled()[start..];
        let count = received.len();
        self.held.extend_from_slice(received);
        buffer.set_filled(start);
        Poll::Ready(Ok(count))
    }

    /// Gives hyper the first `count` bytes that are held, or as many as it takes.
    fn give(&mut self, buffer: &mut ReadBuf<'_>, count: usize) -> usize {
        let count = count.min(buffer.remaining()).min(self.held.len());
        buffer.put_slice(&self.held[..count]);
        self.held.advance(count);
        if self.held.is_empty() {
            // An idle connection keeps no buffer.
            self.held = BytesMut::new();
        }
        count
    }

    /// Waits for a whole head, and gives it to hyper.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            // Empty lines before a request are nothing (RFC 9112 section 2.2).
            while self.searched == 0 && self.held.starts_with(b"\r\n") {
                self.held.advance(2);
            }
            if !self.held.is_empty() && *self.held != *b"\r" {
                match find_head(&self.held, self.searched, self.limits.head_bytes_max) {
                    Head::Whole(length) => {
                        self.begin_parsing(length);
                        return self.poll_rest_of_head(buffer);
                    }
                    Head::Refused(refusal) => return self.poll_refuse(cx, refusal),
                    Head::Part => self.searched = self.held.len(),
                }
            }
            match self.poll_receive(cx, buffer) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(self.poll_waiting(cx));
                    if self.searched == 0 {
                        // To hyper this is a client that has gone.
                        return Poll::Ready(Ok(()));
                    }
                    let message = "the head of the request did not arrive in time";
                    let refusal = Refusal::new(StatusCode::REQUEST_TIMEOUT, message);
                    return self.poll_refuse(cx, refusal);
                }
            }
        }
    }

    fn begin_parsing(&mut self, length: usize) {
        self.head_left = length;
        self.searched = 0;
        self.waiting = None;
        self.half_head = None;
        self.exchange().enter(Phase::Busy);
        self.exchange().progress().at = At::Parsing;
    }

    /// Ready when the time for the next head, or for the rest of this one, is over.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (phase, limit) = match self.searched {
            0 => (Phase::Idle, self.limits.idle_timeout),
            _ => (Phase::Head, self.limits.header_timeout),
        };
        if self.waiting.as_ref().is_none_or(|(of, _)| *of != phase) {
            self.waiting = Some((phase, Box::pin(timer(limit))));
            self.exchange().enter(phase);
            if phase == Phase::Head {
                self.half_head = Some(self.place.half_head());
            }
        }
        let (_, timer) = self.waiting.as_mut().expect("it was set");
        timer.as_mut().poll(cx)
    }

    fn poll_rest_of_head(&mut self, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.head_left == 0 {
            let message = "hyper sees another end of the head";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        self.head_left -= self.give(buffer, self.head_left);
        Poll::Ready(Ok(()))
    }

    /// Whether bytes of the client are here; there are none once it has gone.
    fn poll_held(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        if !self.held.is_empty() {
            return Poll::Ready(Ok(true));
        }
        self.poll_receive(cx, buffer).map_ok(|count| count > 0)
    }

    /// Gives hyper more of a body.
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !ready!(self.poll_held(cx, buffer))? {
            return Poll::Ready(Ok(()));
        }
        let exchange = Arc::clone(self.exchange());
        let mut progress = exchange.progress();
        let At::Body(framing) = &mut progress.at else { return Poll::Ready(Ok(())) };
        let available = self.held.len().min(buffer.remaining());
        let (count, has_ended) = match framing {
            Framing::Length(left) => {
                let count = usize::try_from(*left).map_or(available, |left| left.min(available));
                *left -= count as u64;
                (count, *left == 0)
            }
            Framing::Chunked(chunks) => match chunks.advance(&self.held[..available]) {
                Ok(count) => (count, chunks.has_ended()),
                Err(_) => {
                    progress.at = At::Over { is_malformed: true };
                    let message = "the chunks of the body are malformed";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
                }
            },
        };
        if has_ended {
            progress.at = At::Whole;
        }
        self.give(buffer, count);
        Poll::Ready(Ok(()))
    }

    /// Sees whether the client goes away while its request is being answered. Its later bytes wait.
    fn poll_gone(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !ready!(self.poll_held(cx, buffer))? {
            return Poll::Ready(Ok(()));
        }
        // Woken when the answer is written.
        Poll::Pending
    }

    /// Answers in hyper's place, and then looks to it like a client that has gone.
    fn poll_refuse(&mut self, cx: &mut Context<'_>, refusal: Refusal) -> Poll<io::Result<()>> {
        self.waiting = None;
        self.half_head = None;
        self.held = BytesMut::new();
        self.exchange().enter(Phase::Stalled);
        self.exchange().progress().at = At::Over { is_malformed: false };
        self.own_answer = Some((refusal.into_bytes(), 0));
        self.poll_own_answer(cx)
    }

    fn poll_own_answer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((bytes, written)) = &mut self.own_answer {
            if *written == bytes.len() {
                self.own_answer = None;
                break;
            }
            let result = Pin::new(&mut self.stream).poll_write(cx, &bytes[*written..]);
            let count = ready!(self.within_time(cx, result))?;
            if let Some((_, written)) = &mut self.own_answer {
                *written += count;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Before the service is called, hyper writes nothing but its answer to a head that it refuses.
    /// Ours is written in its place.
    fn takes_the_place_of(&mut self, bytes: &[u8]) -> bool {
        if self.own_answer.is_some() {
            return true;
        }
        let exchange = Arc::clone(self.exchange());
        let mut progress = exchange.progress();
        if !matches!(progress.at, At::Parsing) {
            return false;
        }
        progress.at = At::Over { is_malformed: false };
        let status = bytes.get(STATUS_AT..STATUS_AT + 3);
        let status = status.and_then(|status| StatusCode::from_bytes(status).ok());
        let status = status.unwrap_or(StatusCode::BAD_REQUEST);
        let GateLimits { headers_max, head_bytes_max, .. } = self.limits;
        let refusal = Refusal::of_head(status, headers_max, head_bytes_max);
        self.own_answer = Some((refusal.into_bytes(), 0));
        true
    }

    fn within_time(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            if let (Some(stalled), Poll::Ready(Ok(count))) = (&mut self.stalled, &written) {
                stalled.taken += *count as u64;
            }
            return written;
        }
        let GateLimits { write_timeout, answer_rate_min, .. } = self.limits;
        self.exchange().enter(Phase::Stalled);
        if self.stalled.is_none() && self.exchange().holds_bytes() {
            // One more answer waits: another that has waited longer may have to end.
            let _ = self.memory.hold(0);
        }
        let stalled = self.stalled.get_or_insert_with(|| {
            let since = now();
            Stalled { since, taken: 0, timer: Box::pin(timer_until(since + write_timeout)) }
        });
        loop {
            ready!(stalled.timer.as_mut().poll(cx));
            let for_taken = stalled.taken.saturating_mul(1_000) / u64::from(answer_rate_min);
            let deadline = stalled.since + write_timeout + Duration::from_millis(for_taken);
            if deadline <= stalled.timer.deadline() {
                let message = "the client does not read, or too slowly";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
            }
            stalled.timer.as_mut().reset(deadline);
        }
    }

    /// Goes on to the next request when this one is answered.
    fn begin_next(&mut self, cx: &mut Context<'_>) {
        let exchange = Arc::clone(self.exchange());
        {
            let mut progress = exchange.progress();
            if !progress.is_answered || !matches!(progress.at, At::Whole) {
                return;
            }
            progress.at = At::Head;
            progress.is_answered = false;
        }
        self.memory.release();
        exchange.enter(Phase::Idle);
        if !self.held.is_empty() || self.poll_waiting(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}

impl AsyncRead for Gate {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        enum Next {
            Head,
            RestOfHead,
            Body,
            Gone,
            Nothing,
        }
        let next = match this.exchange().progress().at {
            At::Head => Next::Head,
            At::Parsing => Next::RestOfHead,
            At::Body(_) => Next::Body,
            At::Whole => Next::Gone,
            At::Over { .. } => Next::Nothing,
        };
        match next {
            Next::Head => this.poll_head(cx, buffer),
            Next::RestOfHead => this.poll_rest_of_head(buffer),
            Next::Body => this.poll_body(cx, buffer),
            Next::Gone => this.poll_gone(cx, buffer),
            Next::Nothing => this.poll_own_answer(cx),
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.takes_the_place_of(bytes) {
            ready!(self.poll_own_answer(cx))?;
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within_time(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.takes_the_place_of(slices.first().map_or(&[], |first| first)) {
            ready!(self.poll_own_answer(cx))?;
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.within_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called by hyper when all it had to write is written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stalled.take().is_some() {
            self.exchange().enter(Phase::Busy);
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.begin_next(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.exchange().enter(Phase::Stalled);
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let limit = this.limits.linger_timeout;
        let lingering = this.lingering.get_or_insert_with(|| Lingering {
            timer: Box::pin(timer(limit)),
            bytes_left: LINGER_BYTES_MAX,
        });
        while lingering.bytes_left > 0 {
            if lingering.timer.as_mut().poll(cx).is_ready() {
                break;
            }
            let mut chunk = [0; LINGER_CHUNK_BYTES];
            let mut buffer = ReadBuf::new(&mut chunk);
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer));
            let count = buffer.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            lingering.bytes_left = lingering.bytes_left.saturating_sub(count);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line_and_has_no_line_feed_alone() {
        let check = |text: &str, expected: Option<usize>| {
            for searched in 0..text.len() {
                let before = find_head(&text.as_bytes()[..searched], 0, 1_000);
                if before == Head::Part {
                    let found = find_head(text.as_bytes(), searched, 1_000);
                    match expected {
                        Some(length) => assert_eq!(found, Head::Whole(length), "{text:?}"),
                        None => assert!(matches!(found, Head::Refused(_)), "{text:?}"),
                    }
                }
            }
        };
        check("GET / HTTP/1.1\r\n\r\nGET", Some(18));
        check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Some(27));
        check("GET / HTTP/1.1\n\n", None);
        check("GET / HTTP/1.1\r\nHost: a\n\r\n", None);
        check("GET / HTTP/1.1\r\nHost: a\r\n\n", None);
        check("GET / HTTP/1.1\nHost: a\r\n\r\n", None);
        check("\nGET / HTTP/1.1\r\n\r\n", None);
        check("\u{16}\u{3}\u{1}", None);
        assert_eq!(find_head(b"GET / HTTP/1.1\r\nHost", 0, 1_000), Head::Part);
        assert!(matches!(find_head(b"GET / HTTP/1.1\r\nHost", 0, 20), Head::Refused(_)));
    }
}
