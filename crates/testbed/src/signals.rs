//! Signals to processes of ours.

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Sends `signal` to `process`, which must be a child of ours that was not reaped yet: then the id
/// cannot have gone to another.
pub(crate) fn send(process: u32, signal: Signal) -> Result<()> {
    let id = i32::try_from(process).with_context(|| format!("{process} is no process id"))?;
    kill(Pid::from_raw(id), signal)
        .with_context(|| format!("sending {signal} to process {process}"))
}
