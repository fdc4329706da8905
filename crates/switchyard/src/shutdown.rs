//! How the process is asked to stop: SIGTERM or SIGINT once for an orderly end, twice for a quick
//! one.
//!
//! A quick end loses nothing that was answered: what a 2xx reported is on disk, and what was in
//! flight looks to the client like any other lost answer.

use std::io;

use tokio_util::sync::CancellationToken;

use crate::config::EXIT_FAILURE;

/// Listens for signals from now on. The token is cancelled by the first; the second ends the
/// process at once, for an operator who does not want to wait for slow requests.
pub fn on_signals() -> io::Result<CancellationToken> {
    let mut signals = Signals::listen()?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let name = signals.next().await;
        stop.cancel();
        tracing::info!(signal = name, "stopping: finishing what is in flight");
        let name = signals.next().await;
        tracing::warn!(signal = name, "stopping at once: asked a second time");
        std::process::exit(i32::from(EXIT_FAILURE));
    });
    Ok(token)
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            // Without a handler the system ends the process itself.
            Err(_) => std::future::pending().await,
        }
    }
}
