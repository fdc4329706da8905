//! Signals for a server and its backends.
//!
//! A backend is a child of the postmaster and leads a process group of its own, so there is no
//! group to signal. The postmaster is stopped before its children are listed: one that starts
//! between list and signal would escape.

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use sysinfo::{ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System};

use crate::signals::send;
use crate::wait;

/// A process that gets SIGKILL or SIGSTOP obeys at once, unless it waits for a disk.
const OBEYED_WITHIN: Duration = Duration::from_secs(30);

/// Stops the postmaster and all backends where they are.
pub fn freeze(postmaster: u32) -> Result<()> {
    signal_backends(postmaster, Signal::SIGSTOP, ProcessStatus::Stop)
}

/// Stops one process and waits until it has stopped.
pub fn freeze_one(process: u32) -> Result<()> {
    send(process, Signal::SIGSTOP)?;
    wait::until(&format!("process {process} stops"), OBEYED_WITHIN, || {
        Ok((status(process)? == Some(ProcessStatus::Stop)).then_some(()))
    })
}

/// Lets backends and postmaster go on.
pub fn thaw(postmaster: u32) -> Result<()> {
    for (backend, _) in children(postmaster)? {
        send(backend, Signal::SIGCONT)?;
    }
    send(postmaster, Signal::SIGCONT)
}

/// Kills the backends, then the postmaster; none can do anything in between.
pub fn kill_all(postmaster: u32) -> Result<()> {
    signal_backends(postmaster, Signal::SIGKILL, ProcessStatus::Zombie)?;
    send(postmaster, Signal::SIGKILL)
}

/// Stops the postmaster, sends `signal` to each backend and waits until it took effect. The stopped
/// postmaster cannot reap them, so their ids stay theirs.
fn signal_backends(postmaster: u32, signal: Signal, effect: ProcessStatus) -> Result<()> {
    freeze_one(postmaster)?;
    for (backend, status) in children(postmaster)? {
        if status != ProcessStatus::Zombie {
            send(backend, signal)?;
        }
    }
    wait::until(&format!("all backends obey {signal}"), OBEYED_WITHIN, || {
        let obeys = |status| [effect, ProcessStatus::Zombie].contains(&status);
        Ok(children(postmaster)?.into_iter().all(|(_, status)| obeys(status)).then_some(()))
    })
}

fn status(process: u32) -> Result<Option<ProcessStatus>> {
    let id = sysinfo::Pid::from_u32(process);
    let system = look(ProcessesToUpdate::Some(&[id]))?;
    Ok(system.process(id).map(|process| process.status()))
}

fn children(parent: u32) -> Result<Vec<(u32, ProcessStatus)>> {
    let parent = Some(sysinfo::Pid::from_u32(parent));
    let system = look(ProcessesToUpdate::All)?;
    let children = system.processes().values().filter(|process| process.parent() == parent);
    Ok(children.map(|process| (process.pid().as_u32(), process.status())).collect())
}

fn look(which: ProcessesToUpdate<'_>) -> Result<System> {
    let mut system = System::new().context("reading the processes of the machine")?;
    let only_status = ProcessRefreshKind::nothing().without_tasks();
    system.refresh_processes_specifics(which, true, only_status);
    Ok(system)
}
