//! The proof that a copy is what was copied: every row, and every account.

use std::collections::{BTreeMap, BTreeSet};

use domain::currency::Currency;
use ledger::account::AccountKey;
use ledger::audit::Sums;
use sha2::{Digest as _, Sha256};

use super::Step;
use crate::catalogue;
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::sql::{Connection, Shape, Value};
use crate::verify::{self, FoundAccount, Ledger, Report};

/// The contents of a table, as a count and a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// How many rows.
    pub rows: u64,
    /// The exclusive or of the SHA-256 of every row, whose values are in the order of the columns.
    /// No two rows of a table are the same, and engines may keep them in different orders.
    pub digest: [u8; 32],
}

impl Contents {
    /// Adds a row to the digest, or takes away one that is in it.
    fn exchange(&mut self, row: &[Value]) {
        let mut digest = Sha256::new();
        row.iter().for_each(|value| add(&mut digest, value));
        let bytes = self.digest.iter_mut().zip(digest.finalize());
        bytes.for_each(|(all, byte)| *all ^= byte);
    }

    /// Takes a row away.
    fn leave_out(&mut self, row: &[Value]) {
        self.exchange(row);
        self.rows = self.rows.saturating_sub(1);
    }

    /// The first 64 bits of the digest, in hexadecimal digits.
    pub fn short_digest(&self) -> String {
        self.digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The last row of the target's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// It is that of the source.
    IsOfSource,
    /// It says who has moved the source, and the source does not have it.
    SaysWhoMoved,
}

/// One table on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableProof {
    /// The table.
    pub table: &'static str,
    /// Its contents in the source.
    pub source: Contents,
    /// Its contents in the target.
    pub target: Contents,
}

impl TableProof {
    /// Whether both sides hold the same.
    pub fn holds(&self) -> bool {
        self.source == self.target
    }
}

/// One ledger account on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountProof {
    /// The account.
    pub account: AccountKey,
    /// Its balance and entries in the source.
    pub source: FoundAccount,
    /// Its balance and entries in the target.
    pub target: FoundAccount,
}

impl AccountProof {
    /// Whether the target's balance is what its entries come to, and both are those of the source.
    pub fn holds(&self) -> bool {
        self.target.agrees() && self.source == self.target
    }
}

/// The comparison of both sides, which were read again for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Every table.
    pub tables: Vec<TableProof>,
    /// Every ledger account that either side has.
    pub accounts: Vec<AccountProof>,
    /// Every predicate of [`crate::verify`], on the target.
    pub report: Report,
}

impl Proof {
    /// Whether the target is the source.
    pub fn holds(&self) -> bool {
        self.tables.iter().all(TableProof::holds)
            && self.accounts.iter().all(AccountProof::holds)
            && self.report.is_sound()
    }

    /// How many accounts there are in each currency, and the sums of their balances in the target.
    pub fn totals(&self) -> BTreeMap<Currency, (usize, Sums)> {
        let mut totals = BTreeMap::<_, (usize, Sums)>::new();
        for AccountProof { account, target, .. } in &self.accounts {
            if let (Some(currency), Some(stored)) = (account.currency(), target.stored) {
                let (accounts, sums) = totals.entry(currency).or_default();
                *accounts += 1;
                sums.add(stored.into());
            }
        }
        totals
    }
}

/// Reads both sides again, each from one snapshot. The source's transaction stays open, so no
/// process changes the source until the copy is finished.
///
/// `ledger` is the source's from when the copy began. It is still right if the tables are the same.
pub(super) fn prove(
    source: &mut dyn Connection,
    (target, last): (&mut dyn Connection, Last),
    keyring: &Keyring,
    mut ledger: Ledger,
    on_step: &mut dyn FnMut(Step),
) -> Result<Proof, StoreError> {
    source.begin_read()?;
    target.begin_read()?;
    let mut compare = |shape: &'static Shape| {
        on_step(Step::Comparing { table: shape.table });
        let (source, mut of_target) = (contents(source, shape)?, contents(target, shape)?);
        if last == Last::SaysWhoMoved && shape.table == tail::JOURNAL.table {
            of_target.leave_out(&last_row(target)?);
        }
        let target = of_target;
        Ok(TableProof { table: shape.table, source, target })
    };
    let tables: Vec<_> =
        catalogue::tables().iter().copied().map(&mut compare).collect::<Result<_, StoreError>>()?;
    on_step(Step::CheckingTarget);
    let (report, mut target_ledger) = verify::everything(target, keyring)?;
    target.rollback()?;
    let all: BTreeSet<_> = ledger.keys().chain(target_ledger.keys()).copied().collect();
    let account = |account| AccountProof {
        account,
        source: ledger.remove(&account).unwrap_or_default(),
        target: target_ledger.remove(&account).unwrap_or_default(),
    };
    Ok(Proof { tables, accounts: all.into_iter().map(account).collect(), report })
}

/// The last row of the journal.
fn last_row(connection: &mut dyn Connection) -> Result<Vec<Value>, StoreError> {
    let before = tail::end(connection)?.seq.saturating_sub(1);
    let rows = tail::Rows::behind(before).next(connection)?;
    Ok(rows.into_iter().next().unwrap_or_default())
}

/// Reads a whole table.
fn contents(
    connection: &mut dyn Connection,
    shape: &'static Shape,
) -> Result<Contents, StoreError> {
    let (mut contents, mut after) = (Contents { rows: 0, digest: [0; 32] }, None);
    loop {
        let limit = catalogue::rows_at_once(shape);
        let chunk = catalogue::chunk(connection, shape, after.as_deref(), limit)?;
        for row in &chunk.rows {
            contents.exchange(row);
            contents.rows += 1;
        }
        if chunk.last.is_none() {
            return Ok(contents);
        }
        after = chunk.last;
    }
}

/// Adds a value so that no two rows look the same: its kind and its length stand before it.
fn add(digest: &mut Sha256, value: &Value) {
    let mut sized = |kind: u8, bytes: &[u8]| {
        digest.update([kind]);
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    match value {
        Value::Null => sized(0, &[]),
        Value::Int(number) => sized(1, &number.to_be_bytes()),
        Value::Text(text) => sized(2, text.as_bytes()),
        Value::Bytes(bytes) => sized(3, bytes),
    }
}
