//! The outcomes of payments, by payment hash. An outcome that is kept never changes to another,
//! except from claiming to claimed.

use std::io;
use std::sync::Arc;

use bitcoin::hex::DisplayHex as _;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::disk::Disk;

/// The folder of the outcomes. The files in it stay: each has about 100 bytes.
const FOLDER: &str = "payments";

/// The outcome of a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// We have paid: the preimage in hexadecimal.
    Paid(String),
    /// We have not paid, and never will.
    Failed(Failure),
    /// We are being paid: the preimage may have been given out.
    Claiming,
    /// We were paid.
    Claimed,
    /// We are not paid any more.
    Closed,
}

/// Why we have not paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failure {
    /// The payee's node did not want it.
    Rejected,
    /// The invoice expired before it could be paid.
    Expired,
    /// The library cannot pay such an invoice.
    Unpayable,
}

/// The outcomes, on the disk.
pub(super) struct Outcomes {
    disk: Arc<Disk>,
    turn: Mutex<()>,
}

/// The right to read outcomes and to decide by them: no other task decides meanwhile.
pub(super) struct Turn<'a> {
    disk: &'a Disk,
    _guard: MutexGuard<'a, ()>,
}

impl Outcomes {
    pub(super) fn new(disk: Arc<Disk>) -> Self {
        Self { disk, turn: Mutex::new(()) }
    }

    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { disk: &self.disk, _guard: self.turn.lock() }
    }
}

impl Turn<'_> {
    pub(super) fn get(&self, hash: &[u8; 32]) -> io::Result<Option<Outcome>> {
        self.disk.get(FOLDER, &hash.to_lower_hex_string())
    }

    pub(super) fn keep(&self, hash: &[u8; 32], outcome: &Outcome) -> io::Result<()> {
        self.disk.put(FOLDER, &hash.to_lower_hex_string(), outcome)
    }
}
