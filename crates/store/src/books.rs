//! The books: ledger accounts with their balances, postings and entries (docs/ledger.md).
//!
//! The only way to a balance. Postings are appended and never changed; a balance row is the fold of
//! its account's entries, kept beside them and checked against them by `verify`.

use std::collections::BTreeMap;

use domain::currency::Currency;
use domain::customer::Customer;
use domain::id::{CustomerId, InternalAccountId, PlatformId, TransactionId};
use domain::money::Money;
use domain::time::Timestamp;
use domain::transaction::Transaction;
use ledger::account::{AccountKey, Balance, Counters, Side};
use ledger::apply::{self, ApplyError, Balances, Refusal};
use ledger::audit::RawEntry;
use ledger::movements::Movement;
use ledger::posting::{Entry, Posting, Resolution};

use crate::entries;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::reader::View;
use crate::record::{self, Record, record_table};
use crate::sql::{Row, Value};
use crate::unit::Unit;

/// A ledger account with its balance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerAccount {
    /// The account.
    pub account: AccountKey,
    /// Its counters.
    pub balance: Balance,
    /// When they last changed.
    pub updated_at: Timestamp,
    /// The last balance event, if it is an internal account; other accounts have no events.
    pub notified: Notified,
}

/// The last event about an internal account's balance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notified {
    /// How often: the number of the account's latest event.
    pub times: u32,
    /// The available amount in the latest event, in smallest units.
    pub available: i64,
}

/// A change of an internal account's available amount, by one unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BalanceChange {
    /// The account.
    pub account: InternalAccountId,
    /// The available amount before, in smallest units.
    pub before: i64,
    /// The account as the unit leaves it, with this change counted as notified.
    pub row: LedgerAccount,
}

impl Record for LedgerAccount {
    type Key = AccountKey;
    const TABLE: &'static str = "ledger_accounts";
    const COLUMNS: &'static [&'static str] = &[
        "account",
        "currency",
        "must_stay_covered",
        "debits_pending",
        "debits_posted",
        "credits_pending",
        "credits_posted",
        "updated_at",
        "notified_count",
        "notified_minor",
        "high_parts",
    ];
    record_table!(ledger_accounts);

    fn key(&self) -> AccountKey {
        self.account
    }

    fn values(&self) -> Vec<Value> {
        let (low_parts, high_parts) = split(self.balance.counters());
        let [debits_pending, debits_posted, credits_pending, credits_posted] = low_parts;
        vec![
            Value::Bytes(self.account.encode()),
            Value::name(self.account.currency().map_or("?", |currency| currency.code())),
            self.account.must_stay_covered().into(),
            debits_pending.into(),
            debits_posted.into(),
            credits_pending.into(),
            credits_posted.into(),
            self.updated_at.into(),
            self.notified.times.into(),
            self.notified.available.into(),
            Value::or_null(high_parts),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let account = account_key(row)?;
        let currency = row.currency_of_books()?;
        if account.currency() != Some(currency) {
            return Err(row.corrupt("not the currency that the account's key names"));
        }
        if row.flag()? != account.must_stay_covered() {
            return Err(row.corrupt("not the rule of this kind of account"));
        }
        let low_parts = low_parts(row)?;
        let updated_at = row.time()?;
        let notified = Notified { times: row.count()?, available: row.int()? };
        let counters = joined(low_parts, row)?;
        let balance = Balance::from_counters(counters).map_err(|error| row.corrupt(error))?;
        Ok(Self { account, balance, updated_at, notified })
    }
}

/// Bits of a counter that stand in its own column. The rest of all four is in one more, which is
/// null until a counter outgrows 63 bits.
const LOW_BITS: u32 = 63;

/// Bytes of the high part of a counter.
const HIGH_BYTES: usize = size_of::<u64>();

/// Counters as they stand in their columns: the low part of each, and the high parts of all.
fn split(counters: Counters) -> ([i64; 4], Option<Vec<u8>>) {
    let Counters { debits_pending, debits_posted, credits_pending, credits_posted } = counters;
    let all = [debits_pending, debits_posted, credits_pending, credits_posted];
    let low = all.map(|counter| (counter & i128::from(i64::MAX)) as i64);
    let high = all.map(|counter| (counter >> LOW_BITS) as u64);
    let bytes = high.iter().flat_map(|part| part.to_be_bytes()).collect();
    (low, (high != [0; 4]).then_some(bytes))
}

/// The four columns of the low parts.
pub(crate) fn low_parts(row: &mut Row) -> Result<[i64; 4], StoreError> {
    Ok([row.int()?, row.int()?, row.int()?, row.int()?])
}

/// Counters from their low parts and the next column.
pub(crate) fn joined(low: [i64; 4], row: &mut Row) -> Result<Counters, StoreError> {
    let mut counters = low.map(i128::from);
    if let Some(bytes) = row.bytes_or_null()? {
        if bytes.len() != counters.len() * HIGH_BYTES {
            return Err(row.corrupt("not the high parts of four counters"));
        }
        for (counter, high) in counters.iter_mut().zip(bytes.chunks_exact(HIGH_BYTES)) {
            let high = high.iter().fold(0_i128, |high, byte| high << 8 | i128::from(*byte));
            // A damaged counter of each sign stays so, and one that is too large is refused.
            *counter = counter.saturating_add(high << LOW_BITS);
        }
    }
    let [debits_pending, debits_posted, credits_pending, credits_posted] = counters;
    Ok(Counters { debits_pending, debits_posted, credits_pending, credits_posted })
}

pub(crate) fn account_key(row: &mut Row) -> Result<AccountKey, StoreError> {
    let bytes = row.bytes()?;
    AccountKey::decode(&bytes).map_err(|error| row.corrupt(error))
}

/// The effect of a row of `postings` on the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowPhase {
    /// Its entries wait for a later row.
    Pending,
    /// Its entries count at once.
    Posted,
    /// It ends the pending row with this number.
    Resolves(u32, Resolution),
}

impl RowPhase {
    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Posted => "POSTED",
            Self::Resolves(_, Resolution::Post) => "RESOLVED_POSTED",
            Self::Resolves(_, Resolution::Void) => "RESOLVED_VOIDED",
        }
    }

    fn from_columns(name: &str, resolves: Option<u32>) -> Option<Self> {
        match (name, resolves) {
            ("PENDING", None) => Some(Self::Pending),
            ("POSTED", None) => Some(Self::Posted),
            ("RESOLVED_POSTED", Some(number)) => Some(Self::Resolves(number, Resolution::Post)),
            ("RESOLVED_VOIDED", Some(number)) => Some(Self::Resolves(number, Resolution::Void)),
            _ => None,
        }
    }
}

/// One row of `postings` with its entries. A row that resolves another has none of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostingRow {
    /// The payment that moves the money.
    pub transaction: TransactionId,
    /// Its place among that payment's postings, from 1.
    pub number: u32,
    /// Why money moves.
    pub movement: Movement,
    /// Its effect on the books.
    pub phase: RowPhase,
    /// When.
    pub at: Timestamp,
    /// The debits and credits.
    pub entries: Vec<Entry>,
}

/// Every posting of a transaction, oldest first. There is one at least, and none is ever changed or
/// taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postings {
    transaction: TransactionId,
    rows: Vec<PostingRow>,
}

impl Postings {
    /// The postings.
    pub fn rows(&self) -> &[PostingRow] {
        &self.rows
    }
}

impl Record for Postings {
    type Key = TransactionId;
    const TABLE: &'static str = "postings";
    const COLUMNS: &'static [&'static str] =
        &["transaction_id", "number", "movement", "phase", "resolves", "at", "entries"];
    const KEY_COLUMNS: usize = 2;
    record_table!(postings);

    fn key(&self) -> TransactionId {
        self.transaction
    }

    fn values(&self) -> Vec<Value> {
        let values = |posting: &PostingRow| {
            let (resolves, entries) = match posting.phase {
                RowPhase::Pending | RowPhase::Posted => {
                    (Value::Null, entries::encode(&posting.entries).into())
                }
                RowPhase::Resolves(number, _) => (number.into(), Value::Null),
            };
            [
                posting.transaction.into(),
                posting.number.into(),
                Value::name(posting.movement.name()),
                Value::name(posting.phase.name()),
                resolves,
                posting.at.into(),
                entries,
            ]
        };
        self.rows.iter().flat_map(values).collect()
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let first = posting(row)?;
        let (transaction, mut rows) = (first.transaction, vec![first]);
        while !row.is_at_end() {
            rows.push(posting(row)?);
        }
        Ok(Self { transaction, rows })
    }
}

fn posting(row: &mut Row) -> Result<PostingRow, StoreError> {
    let (transaction, number) = (row.id()?, row.count()?);
    let (movement, phase, at) = (row.named(Movement::from_name)?, phase(row)?, row.time()?);
    let entries = raw_entries(row, phase)?.into_iter().map(entries::checked);
    let entries = entries.collect::<Option<_>>();
    let entries = entries.ok_or_else(|| row.corrupt("an entry that cannot be"))?;
    Ok(PostingRow { transaction, number, movement, phase, at, entries })
}

/// Why the books were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// The ledger refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no pending posting to resolve, or it is resolved already.
    #[error("{0} has no pending posting")]
    NothingPending(TransactionId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<ApplyError<StoreError>> for BookError {
    fn from(error: ApplyError<StoreError>) -> Self {
        match error {
            ApplyError::Refused(refusal) => Self::Refused(refusal),
            ApplyError::Store(error) => Self::Store(error),
        }
    }
}

/// A unit's view of the balances at one instant.
struct Books<'u, 'b, 'a> {
    unit: &'u mut Unit<'b, 'a>,
    now: Timestamp,
    /// The last balance events of the accounts that were read, and when they were changed last.
    known: BTreeMap<AccountKey, (Notified, Timestamp)>,
}

impl<'u, 'b, 'a> Books<'u, 'b, 'a> {
    fn new(unit: &'u mut Unit<'b, 'a>, now: Timestamp) -> Self {
        Self { unit, now, known: BTreeMap::new() }
    }
}

impl Balances for Books<'_, '_, '_> {
    type Error = StoreError;

    fn balance(&mut self, account: &AccountKey) -> Result<Balance, StoreError> {
        let Some(row) = self.unit.get::<LedgerAccount>(account)? else { return Ok(Balance::ZERO) };
        self.known.insert(*account, (row.notified, row.updated_at));
        Ok(row.balance)
    }

    fn set(&mut self, account: AccountKey, balance: Balance) {
        let new = (Notified::default(), self.now);
        let (notified, changed_at) = self.known.get(&account).copied().unwrap_or(new);
        let updated_at = self.now.max(changed_at);
        let row = LedgerAccount { account, balance, updated_at, notified };
        self.unit.put_ledger_account(row);
    }
}

impl Unit<'_, '_> {
    /// The balance of an account; zero if nothing was ever posted to it.
    pub fn balance(&mut self, account: &AccountKey) -> Result<Balance, StoreError> {
        Ok(self.get::<LedgerAccount>(account)?.map_or(Balance::ZERO, |row| row.balance))
    }

    /// Posts at once for a transaction.
    pub fn post(
        &mut self,
        transaction: TransactionId,
        posting: &Posting,
        now: Timestamp,
    ) -> Result<(), BookError> {
        let now = now.max(transaction.created_at());
        apply::post(&mut Books::new(self, now), posting)?;
        self.append(transaction, posting, RowPhase::Posted, now)
    }

    /// Sets money aside for a transaction until [`Unit::resolve`].
    pub fn pend(
        &mut self,
        transaction: TransactionId,
        posting: &Posting,
        now: Timestamp,
    ) -> Result<(), BookError> {
        let now = now.max(transaction.created_at());
        apply::pend(&mut Books::new(self, now), posting)?;
        self.append(transaction, posting, RowPhase::Pending, now)
    }

    /// Posts or voids the transaction's pending posting.
    pub fn resolve(
        &mut self,
        transaction: TransactionId,
        resolution: Resolution,
        now: Timestamp,
    ) -> Result<(), BookError> {
        let mut rows = self.postings(transaction)?;
        let is_resolved = |number: u32| {
            rows.iter().any(|row| matches!(row.phase, RowPhase::Resolves(n, _) if n == number))
        };
        let pending = rows
            .iter()
            .find(|row| row.phase == RowPhase::Pending && !is_resolved(row.number))
            .ok_or(BookError::NothingPending(transaction))?;
        let (movement, phase) = (pending.movement, RowPhase::Resolves(pending.number, resolution));
        let posting = Posting::new(movement, pending.entries.clone()).map_err(|error| {
            StoreError::Corrupt { place: "entries".to_owned(), what: error.to_string() }
        })?;
        let now = now.max(transaction.created_at());
        apply::resolve(&mut Books::new(self, now), &posting, resolution)?;
        let (number, entries) = (next_number(&rows), Vec::new());
        rows.push(PostingRow { transaction, number, movement, phase, at: now, entries });
        self.put_postings(Postings { transaction, rows });
        Ok(())
    }

    /// The internal accounts whose available amount differs from their last balance event.
    ///
    /// They count as notified from then on, so the caller must add their events. It calls this at
    /// the end of the unit: each account has one event, however often its money moved.
    pub fn tell_balances(&mut self) -> Vec<BalanceChange> {
        let mut changes = Vec::new();
        for row in self.changed_ledger_accounts() {
            let AccountKey::Internal(account) = row.account else { continue };
            let (before, available) = (row.notified.available, row.balance.held_minor());
            if available != before {
                let notified = Notified { times: row.notified.times + 1, available };
                let row = LedgerAccount { notified, ..LedgerAccount::clone(&row) };
                changes.push(BalanceChange { account, before, row });
            }
        }
        for change in &changes {
            self.put_ledger_account(change.row.clone());
        }
        changes
    }

    fn append(
        &mut self,
        transaction: TransactionId,
        posting: &Posting,
        phase: RowPhase,
        now: Timestamp,
    ) -> Result<(), BookError> {
        let mut rows = self.postings(transaction)?;
        rows.push(PostingRow {
            transaction,
            number: next_number(&rows),
            movement: posting.movement(),
            phase,
            at: now,
            entries: posting.entries().to_vec(),
        });
        self.put_postings(Postings { transaction, rows });
        Ok(())
    }
}

/// The delivery of a payment: its last posting that was pending and became posted.
pub fn settled(rows: &[PostingRow]) -> Option<Posting> {
    let became_posted = |number: u32| {
        let posted = RowPhase::Resolves(number, Resolution::Post);
        rows.iter().any(|row| row.phase == posted)
    };
    let row =
        rows.iter().rfind(|row| row.phase == RowPhase::Pending && became_posted(row.number))?;
    Posting::new(row.movement, row.entries.clone()).ok()
}

/// The money that a payment has in its platform's suspense account.
pub fn in_suspense(rows: &[PostingRow]) -> Option<Money> {
    let is_final = |row: &&PostingRow| match row.phase {
        RowPhase::Posted => true,
        RowPhase::Pending => {
            rows.iter().any(|other| other.phase == RowPhase::Resolves(row.number, Resolution::Post))
        }
        RowPhase::Resolves(..) => false,
    };
    let entries = rows.iter().filter(is_final).flat_map(|row| &row.entries);
    let (mut minor, mut currency) = (0_i64, None);
    for entry in entries.filter(|it| matches!(it.account(), AccountKey::Suspense { .. })) {
        let amount = entry.amount();
        minor = match entry.side() {
            Side::Credit => minor.checked_add(amount.minor())?,
            Side::Debit => minor.checked_sub(amount.minor())?,
        };
        currency = Some(amount.currency());
    }
    Money::positive(minor, currency?).ok()
}

fn next_number(rows: &[PostingRow]) -> u32 {
    rows.last().map_or(1, |row| row.number + 1)
}

/// The entries of a posting, whatever they say. One that resolves another has none of its own.
pub(crate) fn raw_entries(row: &mut Row, phase: RowPhase) -> Result<Vec<RawEntry>, StoreError> {
    match (phase, row.bytes_or_null()?) {
        (RowPhase::Pending | RowPhase::Posted, Some(bytes)) => entries::decode(&bytes),
        (RowPhase::Resolves(..), None) => Some(Vec::new()),
        (RowPhase::Pending | RowPhase::Posted | RowPhase::Resolves(..), _) => None,
    }
    .ok_or_else(|| row.corrupt("not the entries of a posting"))
}

pub(crate) fn phase(row: &mut Row) -> Result<RowPhase, StoreError> {
    let name = row.text()?;
    let resolves = row.int_or_null()?.map(u32::try_from).transpose();
    resolves
        .ok()
        .and_then(|resolves| RowPhase::from_columns(&name, resolves))
        .ok_or_else(|| row.corrupt("not a phase of a posting"))
}

impl View<'_> {
    /// The balance of an account with the time of its last change; `None` if nothing was ever
    /// posted to it.
    pub fn ledger_account(
        &mut self,
        account: &AccountKey,
    ) -> Result<Option<std::sync::Arc<LedgerAccount>>, StoreError> {
        self.get(account)
    }

    /// Ledger accounts in the order of their keys, behind one of them, up to a limit.
    pub fn ledger_accounts(
        &mut self,
        after: Option<&AccountKey>,
        max: u32,
    ) -> Result<Vec<std::sync::Arc<LedgerAccount>>, StoreError> {
        let after = after.map_or_else(Vec::new, AccountKey::encode);
        let parameters = [Value::Bytes(after), max.into()];
        record::select(self.connection, self.keyring, ACCOUNTS, &parameters)
    }

    /// Every posting of a transaction, oldest first.
    pub fn postings(&mut self, transaction: TransactionId) -> Result<Vec<PostingRow>, StoreError> {
        let postings = self.get::<Postings>(&transaction)?;
        Ok(postings.map_or_else(Vec::new, |postings| postings.rows.clone()))
    }

    /// Whether any internal account of the platform or its customers holds the currency, or has
    /// some of it on its way, or an invoice of the platform may bring some. Looks at every account
    /// in that currency: for rare requests.
    pub fn holds_money(
        &mut self,
        platform: PlatformId,
        currency: Currency,
    ) -> Result<bool, StoreError> {
        let (code, columns) =
            (Value::name(currency.code()), (LedgerAccount::TABLE, &["account"][..]));
        for account in self.connection.all(HOLDERS, &[code], columns, account_key)? {
            let AccountKey::Internal(id) = account else { continue };
            let owner = id.owner_uuid();
            let customer = self.get::<Customer>(&CustomerId::from_uuid(owner))?;
            let belongs = customer.is_some_and(|customer| customer.platform == platform);
            if belongs || owner == platform.uuid() {
                return Ok(true);
            }
        }
        let parameters = [platform.into(), Value::name(currency.code())];
        let columns = (Transaction::TABLE, &["id"][..]);
        let awaited = self.connection.first(AWAITED, &parameters, columns, |row| {
            row.id::<domain::id::kind::Transaction>()
        })?;
        Ok(awaited.is_some())
    }
}

pub(crate) const ACCOUNTS: &str = "where account > $1 order by account limit $2";

/// Payments of other institutions whose invoices may still be paid: the books have nothing of them.
pub(crate) const AWAITED: &str = "select id from transactions where platform = $1 \
    and receiving_currency = $2 and direction = 'INCOMING' and status = 'PROCESSING' limit 1";

/// High parts need not be compared: what an internal account holds fits its low parts.
pub(crate) const HOLDERS: &str = "select account from ledger_accounts \
    where currency = $1 and must_stay_covered = 1 \
    and (credits_posted <> debits_posted or debits_pending <> 0 or credits_pending <> 0)";
