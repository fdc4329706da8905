//! Ports that a server can leave and take again.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context as _, Result};

/// Below the ports that Linux (32768..) and macOS (49152..) give to outgoing connections: while a
/// server is down no client can be given its port as its own, not even by connecting to itself.
const FIRST: u16 = 20_000;

/// How many ports there are to choose from.
const COUNT: u16 = 12_000;

/// Spreads processes over the range, so that those that start together do not ask for the same
/// ports; prime to [`COUNT`], so that neighbours come as far apart as can be.
const STRIDE: u32 = 7_919;

/// A port of the loopback address without a listener now.
///
/// # Errors
///
/// If every port of the range is taken.
pub fn free() -> Result<u16> {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let spread = std::process::id().wrapping_mul(STRIDE) % u32::from(COUNT);
    let start = u16::try_from(spread).context("a remainder is below what it was divided by")?;
    (0..COUNT)
        .map(|_| {
            let step = TAKEN.fetch_add(1, Ordering::Relaxed) % COUNT;
            FIRST + (start + step) % COUNT
        })
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .with_context(|| format!("no port from {FIRST} on is free: end what listens on them"))
}
