//! How the process is asked to stop: SIGTERM, SIGINT or SIGHUP once for an orderly end, twice for a
//! quick one. SIGHUP is what a terminal sends that is closed; under `nohup` it is ignored.
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
    /// None where whatever started the process lets it ignore the signal.
    hangup: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: match ignores_hangup() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = hangup => "SIGHUP",
        }
    }
}

/// Whether the process was started so that it ignores SIGHUP, as far as the system tells: a handler
/// would undo that.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored_in(&status, nix::sys::signal::Signal::SIGHUP as u32)
}

/// Whether a signal is in the mask of ignored ones, a bit for each from the lowest.
#[cfg(unix)]
fn is_ignored_in(status: &str, signal: u32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_the_lowest_bit() {
        for (status, expected) in [
            ("Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000000\n", true),
            ("SigIgn:\t0000000000001001\n", true),
            ("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", false),
            ("", false),
        ] {
            assert_eq!(is_ignored_in(status, 1), expected, "{status}");
        }
    }
}
