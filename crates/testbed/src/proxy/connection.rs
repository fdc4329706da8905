//! One connection: messages pass in both directions until it ends.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::dialogue::{Answers, FrontendMessages, Meaning, Outcome};
use super::{Moment, Shared, Traffic};

/// The bytes that are read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A side closed it.
    Closed,
    /// It is to be cut, at this moment of a commit.
    Cut(Moment),
}

/// Passes messages until a side closes or a commit is to be cut.
pub async fn pass(
    client: &mut TcpStream,
    server: &mut TcpStream,
    shared: &Shared,
) -> io::Result<End> {
    let flow = Flow { inner: Mutex::default(), shared };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        end = copy(from_client, to_server, shared, |bytes| flow.ask(bytes)) => end,
        end = copy(from_server, to_client, shared, |bytes| flow.answer(bytes)) => end,
    }
}

/// Waits while traffic is held.
pub async fn flows(traffic: &mut watch::Receiver<Traffic>) {
    // The sender lives as long as the proxy; when it goes, so does this connection.
    let _ = traffic.wait_for(|traffic| *traffic != Traffic::Held).await;
}

/// Reads what comes, lets `decide` say which part of it goes on, and whether that is all.
async fn copy(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    decide: impl Fn(&[u8]) -> (Vec<u8>, Option<Moment>),
) -> io::Result<End> {
    let mut traffic = shared.traffic.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(End::Closed);
        }
        flows(&mut traffic).await;
        let (passed, cut) = decide(&chunk[..read]);
        to.write_all(&passed).await?;
        if let Some(moment) = cut {
            return Ok(End::Cut(moment));
        }
    }
}

/// State that both directions of a connection share.
struct Flow<'a> {
    inner: Mutex<Inner>,
    shared: &'a Shared,
}

#[derive(Default)]
struct Inner {
    frontend: FrontendMessages,
    answers: Answers,
    /// Commits that the server has not answered yet.
    open: usize,
    /// The connection is cut when the server answers a commit that this many others are before.
    /// Until then nothing reaches the client.
    awaited: Option<usize>,
    /// The server's bytes meanwhile.
    kept_back: Vec<u8>,
}

impl Flow<'_> {
    fn ask(&self, bytes: &[u8]) -> (Vec<u8>, Option<Moment>) {
        let mut inner = self.inner();
        inner.frontend.push(bytes);
        let mut passed = Vec::with_capacity(bytes.len());
        while let Some(message) = inner.frontend.next() {
            match message.meaning {
                Meaning::Other => {}
                Meaning::EncryptionRequest => inner.answers.expect_single(),
                Meaning::Commit => match self.shared.commit_sent() {
                    Some(Moment::Before) => return (passed, Some(Moment::Before)),
                    Some(Moment::During) => {
                        passed.extend(message.bytes);
                        return (passed, Some(Moment::During));
                    }
                    Some(Moment::After) => {
                        inner.awaited = Some(inner.open);
                        inner.open += 1;
                    }
                    None => inner.open += 1,
                },
            }
            passed.extend(message.bytes);
        }
        (passed, None)
    }

    fn answer(&self, bytes: &[u8]) -> (Vec<u8>, Option<Moment>) {
        let mut inner = self.inner();
        inner.answers.push(bytes);
        let mut passed = Vec::with_capacity(bytes.len());
        while let Some(answer) = inner.answers.next() {
            match answer.outcome {
                Outcome::Other => {}
                Outcome::Encrypted => inner.frontend.make_opaque(),
                Outcome::Committed => {
                    inner.open = inner.open.saturating_sub(1);
                    match &mut inner.awaited {
                        Some(0) => return (passed, Some(Moment::After)),
                        Some(before) => *before -= 1,
                        None => {}
                    }
                }
                Outcome::NotCommitted => {
                    inner.open = 0;
                    if inner.awaited.take().is_some() {
                        passed.append(&mut inner.kept_back);
                        self.shared.not_committed();
                    }
                }
            }
            if inner.awaited.is_some() {
                inner.kept_back.extend(answer.bytes);
            } else {
                passed.extend(answer.bytes);
            }
        }
        (passed, None)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
