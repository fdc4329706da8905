//! How many files and sockets the process may have open, and how many of them clients may take.

use crate::command::Failure;
use crate::edge::{Limits, Trusted};

/// File descriptors of everything but connections of clients: the database and those who read it,
/// deliveries, requests that are forwarded to another server, and approval requests. A payment
/// fails whose platform cannot be asked.
const KEPT: u64 = 768;

/// A part of the connections is for the operator and for other servers, where these have a listener
/// of their own.
const OPERATORS_SHARE: usize = 8;

/// These limits for clients, and those for a listener that only the operator and other servers
/// reach, whose connections are all trusted.
pub fn apart(limits: Limits) -> (Limits, Limits) {
    let connections_max = (limits.connections_max / OPERATORS_SHARE).max(1);
    let operators = Limits {
        connections_max,
        connections_of_address_max: connections_max,
        heads_of_address_max: connections_max,
        trusted: Trusted::default(),
        ..limits.clone()
    };
    let clients = limits.connections_max.saturating_sub(connections_max).max(1);
    (Limits { connections_max: clients, ..limits }, operators)
}

/// A server without any client has some fifty files open: its database with those who read it, its
/// listeners and its threads. With fewer than this, it would fail later, where nothing says why.
const FILES_MIN: u64 = 128;

/// Refuses to run where too few files may be open. Commands open the database as a server does.
pub fn refuse_too_few() -> Result<(), Failure> {
    let allowed = raised_for(FILES_MIN);
    if allowed >= FILES_MIN {
        return Ok(());
    }
    Err(Failure::new(format!(
        "this process may have {allowed} files open at once and needs {FILES_MIN} at least: raise \
         the limit with ulimit -n, or LimitNOFILE= of the service"
    ))
    .as_usage())
}

/// The edge's limits, with as many connections as leave the process what else it needs. The
/// system's soft limit is raised for them as far as it lets us: the usual one of 1,024 is for
/// programs that cannot deal with more.
pub fn limits() -> Limits {
    let usual = Limits::default();
    let wanted = (usual.connections_max as u64).saturating_add(KEPT);
    let allowed = raised_for(wanted);
    let connections_max = connections(allowed, usual.connections_max);
    if connections_max < usual.connections_max {
        let usual = usual.connections_max;
        tracing::warn!(
            allowed,
            wanted,
            connections_max,
            usual,
            "few files may be open at once, so there are fewer connections: raise the limit with \
             ulimit -n, or LimitNOFILE= of the service"
        );
    }
    Limits { connections_max, ..usual }
}

/// How many may be open, if possible as many as are wanted.
#[cfg(unix)]
fn raised_for(wanted: u64) -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    let raised = wanted.min(hard).max(soft);
    if setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_ok() { raised } else { soft }
}

/// Other systems have no such limit for sockets.
#[cfg(not(unix))]
fn raised_for(wanted: u64) -> u64 {
    wanted
}

/// Connections where so many files may be open: half of them at least.
fn connections(allowed: u64, usual: usize) -> usize {
    let left = allowed.saturating_sub(KEPT).max(allowed / 2);
    usual.min(usize::try_from(left).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_the_rest_of_the_process_what_it_needs() {
        let given = [64, 1_024, 2_000, 4_864, u64::MAX].map(|allowed| connections(allowed, 4_096));
        assert_eq!(given, [32, 512, 1_232, 4_096, 4_096]);
    }
}
