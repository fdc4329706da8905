//! What platforms were told of internal accounts, beside the accounts themselves.
//!
//! There are as many of these events as there are payments, so no more is kept of them than how
//! many an account has.

use std::collections::BTreeMap;

use domain::id::InternalAccountId;
use ledger::account::AccountKey;
use uuid::Uuid;

use super::{Predicate, Run, shown};
use crate::books::{LedgerAccount, account_key};
use crate::error::StoreError;
use crate::record::Record;
use crate::sql::{Row, Value};

const TOLD: &str = "select account, debits_pending, debits_posted, credits_posted, told_times, \
    told_minor from ledger_accounts where must_stay_covered = 1";
const COLUMNS: &[&str] =
    &["account", "debits_pending", "debits_posted", "credits_posted", "told_times", "told_minor"];

pub(super) fn statements() -> impl Iterator<Item = String> {
    std::iter::once(TOLD.to_owned())
}

/// The events about one account. That no two of them have one number is E2's.
#[derive(Default)]
struct Events {
    count: u32,
    last: u32,
    /// Their platform; none if they go to more than one.
    platform: Option<Uuid>,
}

/// The events about each account.
#[derive(Default)]
pub(super) struct Accounts(BTreeMap<Uuid, Events>);

impl Accounts {
    /// Keeps an event about an account.
    pub(super) fn keep(&mut self, account: Uuid, number: u32, platform: Uuid) {
        let events = self.0.entry(account).or_default();
        let is_first = events.count == 0;
        events.platform = Some(platform).filter(|new| is_first || events.platform == Some(*new));
        events.count += 1;
        events.last = events.last.max(number);
    }
}

/// An account as it was found.
struct Found {
    account: AccountKey,
    available: i64,
    times: u32,
    told: i64,
}

fn read(row: &mut Row) -> Result<Found, StoreError> {
    let account = account_key(row)?;
    let [pending, debits, credits] = [row.int()?, row.int()?, row.int()?];
    let available = credits.saturating_sub(debits).saturating_sub(pending);
    Ok(Found { account, available, times: row.count()?, told: row.int()? })
}

/// Checks E7, and what S4 says about events of accounts.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Run { connection, findings, parties, accounts, .. } = run;
    let mut events = std::mem::take(&mut accounts.0);
    connection.query(TOLD, &[], COLUMNS.len(), &mut |values: Vec<Value>| {
        findings.saw(Predicate::E7, 1);
        let name = shown(values.first());
        let found = match read(&mut Row::new(LedgerAccount::TABLE, COLUMNS, values)) {
            Ok(found) => found,
            Err(error) => {
                findings.unreadable(Predicate::E7, format!("account {name}"), &error);
                return Ok(());
            }
        };
        // An account that is none of an owner's is L4's to name.
        let AccountKey::Internal(id) = found.account else { return Ok(()) };
        let told = events.remove(&id.uuid()).unwrap_or_default();
        findings.demand(Predicate::E7, [told.count, told.last] == [found.times; 2], || {
            format!("{id} was told {} times and has {} events", found.times, told.count)
        });
        findings.demand(Predicate::E7, found.told == found.available, || {
            format!("{id} does not have what its platform was told last")
        });
        let is_its = told.count == 0 || told.platform == parties.platform_of_internal(id);
        findings.demand(Predicate::S4, is_its, || {
            format!("an event about {id} goes to another platform")
        });
        Ok(())
    })?;
    for account in events.into_keys().map(InternalAccountId::from_uuid) {
        findings.broke(Predicate::E7, format!("{account} has events and no balance"));
    }
    Ok(())
}
