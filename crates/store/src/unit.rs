//! Units of work: what a change may read and leave behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::approval::Approval;
use domain::bulk_import::{BulkImport, Part};
use domain::clock::Ahead;
use domain::customer::Customer;
use domain::delivery::Delivery;
use domain::event::Event;
use domain::external_account::ExternalAccount;
use domain::id::{PlatformId, TransactionId};
use domain::invitation::Invitation;
use domain::kyc::IdentityCheck;
use domain::lookup::Lookup;
use domain::platform::Platform;
use domain::quote::Quote;
use domain::time::Timestamp;
use domain::token::Token;
use domain::transaction::Transaction;
use domain::transition::Moved;
use domain::uma_peer::UmaPeer;

use crate::books::{self, PostingRow, Postings};
use crate::cache::Cache;
use crate::customers::UmaClaim;
use crate::error::StoreError;
use crate::events::{self, Numbered, Outbox};
use crate::external_accounts::Fingerprint;
use crate::idempotency::{Answer, Scope, given_since};
use crate::keyring::Keyring;
use crate::leases::Lease;
use crate::record::{Found, Record, Tables, Wanted, load};
use crate::sql::{Change, Connection, Value, Write};
use crate::timers::{self, Timer, TimerKey};

/// Changes that are in memory and not yet in the database.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) tables: Tables,
    pub(crate) postings: BTreeMap<TransactionId, Vec<PostingRow>>,
    pub(crate) events: Vec<Numbered>,
    /// Events that are approval requests.
    approval_requests: Vec<Event>,
    pub(crate) timers: BTreeMap<TimerKey, Option<Timer>>,
    /// By how many milliseconds the timers that were set before come nearer.
    nearer: BTreeMap<PlatformId, i64>,
    /// Answers that are removed.
    removed_answers: BTreeSet<Scope>,
}

impl Changes {
    fn merge(&mut self, newer: Self) {
        self.tables.merge(newer.tables);
        for (transaction, postings) in newer.postings {
            self.postings.entry(transaction).or_default().extend(postings);
        }
        self.events.extend(newer.events);
        self.approval_requests.extend(newer.approval_requests);
        for (platform, millis) in newer.nearer {
            self.bring_nearer(platform, millis);
        }
        self.timers.extend(newer.timers);
        self.removed_answers.extend(newer.removed_answers);
        // A request that was answered anew keeps its answer.
        self.removed_answers.retain(|scope| self.tables.idempotency.get(scope).is_none());
    }

    /// Takes out the wake-ups, which are published after the commit.
    pub(crate) fn take_wake_ups(&mut self) -> WakeUps {
        WakeUps {
            approval_requests: std::mem::take(&mut self.approval_requests),
            timers: !self.nearer.is_empty() || self.timers.values().any(Option::is_some),
            events: !self.tables.outboxes.is_empty(),
            callers: !self.tables.tokens.is_empty() || !self.tables.platforms.is_empty(),
        }
    }

    /// Brings a platform's timers nearer: those that are here at once, the rest when this is
    /// written, which is before the ones that are here.
    fn bring_nearer(&mut self, platform: PlatformId, millis: i64) {
        for timer in self.timers.values_mut().flatten().filter(|it| it.platform == platform) {
            timer.due_at = timer.due_at.plus_millis(-millis);
        }
        *self.nearer.entry(platform).or_default() += millis;
    }

    /// Puts the committed changes into the cache.
    pub(crate) fn remember(self, cache: &mut Cache) {
        self.tables.remember(&mut cache.rows);
        for scope in self.removed_answers {
            cache.rows.idempotency.insert(scope, Found { row: None, version: 0 });
        }
        for (transaction, newer) in self.postings {
            let known = cache.postings.get(&transaction);
            let mut postings = known.map_or_else(Vec::new, |known| Vec::clone(known));
            postings.extend(newer);
            cache.postings.insert(transaction, Arc::new(postings));
        }
        cache.end_batch();
    }
}

/// Rows that units asked for and that are still to be fetched.
#[derive(Default)]
struct Missing {
    rows: Wanted,
    postings: BTreeSet<TransactionId>,
}

/// The outcome of a unit that was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    /// Its changes are in the batch.
    Kept,
    /// It refused, and nothing of it remains.
    Refused,
    /// It needs rows that are still to be fetched; nothing of it remains.
    Waits,
}

/// The changes of a batch, ready to be written.
pub(crate) struct Prepared {
    nearer: BTreeMap<PlatformId, i64>,
    writes: Vec<Write>,
}

impl Prepared {
    /// Writes it and makes it durable. A batch that only read costs no flush.
    pub(crate) fn commit(self, connection: &mut dyn Connection) -> Result<(), StoreError> {
        if self.writes.is_empty() {
            return connection.rollback();
        }
        for (platform, millis) in self.nearer {
            timers::bring_nearer(connection, platform, millis)?;
        }
        connection.write(self.writes)?;
        connection.commit()
    }
}

/// The wake-ups of a commit.
pub(crate) struct WakeUps {
    /// Approval requests that are to be sent.
    pub(crate) approval_requests: Vec<Event>,
    /// Whether it sets a timer, or brings some nearer.
    pub(crate) timers: bool,
    /// Whether there is an event to deliver.
    pub(crate) events: bool,
    /// Whether it may change the rights of a caller.
    pub(crate) callers: bool,
}

/// Many units of work on their way into one database transaction.
pub(crate) struct Batch<'a> {
    connection: &'a mut dyn Connection,
    keyring: &'a Keyring,
    cache: &'a mut Cache,
    changes: Changes,
    missing: Missing,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        connection: &'a mut dyn Connection,
        keyring: &'a Keyring,
        cache: &'a mut Cache,
    ) -> Self {
        let (changes, missing) = (Changes::default(), Missing::default());
        Self { connection, keyring, cache, changes, missing }
    }

    /// Runs one unit. If `work` refuses, nothing of the unit remains.
    pub(crate) fn run(&mut self, work: impl FnOnce(&mut Unit<'_, 'a>) -> bool) -> Ran {
        let mut unit = Unit::new(self);
        let keep = work(&mut unit);
        let Unit { local, waits, .. } = unit;
        match (waits, keep) {
            (true, _) => Ran::Waits,
            (false, true) => {
                self.changes.merge(local);
                Ran::Kept
            }
            (false, false) => Ran::Refused,
        }
    }

    /// Runs one unit only to learn which rows it needs; nothing of it remains.
    pub(crate) fn foresee(&mut self, work: impl FnOnce(&mut Unit<'_, 'a>) -> bool) {
        work(&mut Unit::new(self));
    }

    /// Fetches the first answers to these requests, which their units look up first, where one
    /// statement for all of them saves round trips.
    pub(crate) fn fetch_answers(
        &mut self,
        scopes: impl Iterator<Item = Scope>,
    ) -> Result<(), StoreError> {
        if self.connection.is_remote() {
            let cache = &mut self.cache.rows.idempotency;
            self.missing.rows.idempotency.extend(scopes.filter(|it| cache.get(it).is_none()));
            if !self.missing.rows.idempotency.is_empty() {
                self.fetch()?;
            }
        }
        Ok(())
    }

    /// Fetches what units wait for.
    pub(crate) fn fetch(&mut self) -> Result<(), StoreError> {
        let Missing { rows, mut postings } = std::mem::take(&mut self.missing);
        // A unit that reads a payment reads its postings next.
        let payments = rows.transactions.iter().copied();
        postings.extend(payments.filter(|id| self.cache.postings.get(id).is_none()));
        let mut postings = Postings::of(postings);
        rows.fetch(self.connection, self.keyring, &mut self.cache.rows, &mut postings)?;
        for (transaction, rows) in postings.into_rows() {
            self.cache.postings.insert(transaction, Arc::new(rows));
        }
        Ok(())
    }

    /// The changes of all units: once ready to be written, and once for the cache.
    pub(crate) fn prepare(self) -> (Prepared, Changes) {
        let Self { keyring, cache, changes, .. } = self;
        let mut writes = changes.tables.writes(&mut cache.rows, keyring);
        writes.push(books::write(changes.postings.values().flatten()));
        writes.push(events::write(&changes.events, keyring));
        writes.extend(timers::writes(&changes.timers));
        let removed = changes.removed_answers.iter().map(|scope| vec![Value::from(*scope)]);
        let (shape, rows) = (Answer::shape(), removed.collect());
        writes.push(Write { shape, change: Change::Delete, rows });
        writes.retain(|write| !write.rows.is_empty());
        let nearer = changes.nearer.clone();
        (Prepared { nearer, writes }, changes)
    }
}

/// Records that units may write as they are. Balances are the ledger's to write, and answers are
/// kept under the key of their request.
pub trait Writable: Record {}

macro_rules! writable {
    ($($record:ty),* $(,)?) => { $(impl Writable for $record {})* };
}

writable! {
    Platform, Token, Customer, UmaClaim, ExternalAccount, Fingerprint, Lookup, Quote, Transaction,
    Approval, Invitation, IdentityCheck, BulkImport, Part, Outbox, Delivery, Lease, UmaPeer,
}

/// One unit of work: reads through the batch, so that it sees the units before it, and keeps its
/// changes to itself until it succeeds.
///
/// The closure that gets it is synchronous and may be run again from the start, so it takes time
/// and chance as values and touches nothing else.
pub struct Unit<'b, 'a> {
    batch: &'b mut Batch<'a>,
    local: Changes,
    waits: bool,
}

impl<'b, 'a> Unit<'b, 'a> {
    fn new(batch: &'b mut Batch<'a>) -> Self {
        Self { batch, local: Changes::default(), waits: false }
    }
}

impl Unit<'_, '_> {
    /// The row with this key, as the units before this one left it.
    pub fn get<R: Record>(&mut self, key: &R::Key) -> Result<Option<Arc<R>>, StoreError> {
        if let Some(row) = R::slots(&mut self.local.tables).get(key) {
            return Ok(Some(row));
        }
        if let Some(row) = R::slots(&mut self.batch.changes.tables).get(key) {
            return Ok(Some(row));
        }
        if let Some(found) = R::remembered(&mut self.batch.cache.rows).get(key) {
            return Ok(found.row.clone());
        }
        if self.batch.connection.is_remote() {
            R::wanted(&mut self.batch.missing.rows).insert(key.clone());
            return self.wait();
        }
        let found = load::<R>(self.batch.connection, self.batch.keyring, key)?;
        let row = found.row.clone();
        R::remembered(&mut self.batch.cache.rows).insert(key.clone(), found);
        Ok(row)
    }

    /// The rows with these keys, in their order, as the units before this one left them. Rows that
    /// are not there yet are fetched together.
    pub fn get_all<R: Record>(
        &mut self,
        keys: &[R::Key],
    ) -> Result<Vec<Option<Arc<R>>>, StoreError> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut waits = None;
        for key in keys {
            match self.get(key) {
                Ok(row) => rows.push(row),
                Err(StoreError::NotFetched) => waits = Some(StoreError::NotFetched),
                Err(error) => return Err(error),
            }
        }
        waits.map_or(Ok(rows), Err)
    }

    /// Gives up for now: the unit is run again when its rows were fetched, together with those of
    /// the other units of the batch.
    fn wait<T>(&mut self) -> Result<T, StoreError> {
        self.waits = true;
        Err(StoreError::NotFetched)
    }

    /// Adds a row, or changes one that was read. Before it adds one, the caller has read that there
    /// is none.
    pub fn put<R: Writable>(&mut self, row: R) {
        self.put_row(row);
    }

    /// Keeps a change of state.
    pub fn put_moved<R: Writable>(&mut self, moved: Moved<R>) {
        self.put_row(moved.into_now());
    }

    fn put_row<R: Record>(&mut self, row: R) {
        R::slots(&mut self.local.tables).put(Arc::new(row));
    }

    /// Drops everything that this unit has changed so far.
    pub fn discard(&mut self) {
        self.local = Changes::default();
    }

    /// Keyed hashes and sealing.
    pub fn keyring(&self) -> &Keyring {
        self.batch.keyring
    }

    /// Moves the clock of a platform that was read, and its timers with it. It was asked whether
    /// the clock may be moved ([`Platform::advanced`]).
    pub fn move_clock(&mut self, platform: &Platform, ahead: Ahead) -> Platform {
        let moved = Platform { ahead, ..Platform::clone(platform) };
        self.put(moved.clone());
        self.local.bring_nearer(platform.id, ahead.millis() - platform.ahead.millis());
        moved
    }

    /// Keeps the first answer to an idempotency key. The caller has read that there is none.
    pub fn keep_answer(&mut self, scope: Scope, at: Timestamp, status: u16, body: &[u8]) {
        self.put_row(Answer { scope, at, status, body: body.to_vec() });
    }

    /// Removes answers that were given before then. One that was given anew meanwhile stays.
    pub fn remove_answers(
        &mut self,
        scopes: &[Scope],
        before: Timestamp,
    ) -> Result<(), StoreError> {
        let answers = self.get_all::<Answer>(scopes)?;
        let outdated = answers.into_iter().flatten().filter(|answer| answer.at < before);
        self.local.removed_answers.extend(outdated.map(|answer| answer.scope));
        Ok(())
    }

    /// Status and bytes of the first answer to a request, if one was given since then.
    pub fn answer(
        &mut self,
        scope: &Scope,
        since: Timestamp,
    ) -> Result<Option<(u16, Vec<u8>)>, StoreError> {
        Ok(given_since(self.get::<Answer>(scope)?, since))
    }

    pub(crate) fn push_event(&mut self, event: Numbered) {
        self.local.events.push(event);
    }

    /// Has this server send an approval request once this is committed.
    pub(crate) fn push_approval_request(&mut self, event: Event) {
        self.local.approval_requests.push(event);
    }

    /// Sets a timer, or moves the one with the same subject and kind.
    pub fn set_timer(&mut self, timer: Timer) {
        self.local.timers.insert(timer.key(), Some(timer));
    }

    /// Takes a timer away, if there is one.
    pub fn clear_timer(&mut self, key: TimerKey) {
        self.local.timers.insert(key, None);
    }

    /// Every posting of a transaction, oldest first.
    pub fn postings(&mut self, transaction: TransactionId) -> Result<Vec<PostingRow>, StoreError> {
        let mut postings = self.postings_before(transaction)?;
        for changes in [&self.batch.changes, &self.local] {
            postings.extend(changes.postings.get(&transaction).into_iter().flatten().cloned());
        }
        Ok(postings)
    }

    /// The postings of a transaction that are in the database.
    fn postings_before(
        &mut self,
        transaction: TransactionId,
    ) -> Result<Vec<PostingRow>, StoreError> {
        if let Some(known) = self.batch.cache.postings.get(&transaction) {
            return Ok(Vec::clone(known));
        }
        if self.is_new(transaction) {
            return Ok(Vec::new());
        }
        if self.batch.connection.is_remote() {
            self.batch.missing.postings.insert(transaction);
            return self.wait();
        }
        let found = books::of_transactions(self.batch.connection, [transaction])?;
        let rows = found.into_values().next().unwrap_or_default();
        self.batch.cache.postings.insert(transaction, Arc::new(rows.clone()));
        Ok(rows)
    }

    /// Whether a transaction was added by this batch.
    fn is_new(&mut self, id: TransactionId) -> bool {
        let added = self.local.tables.transactions.get(&id).is_some()
            || self.batch.changes.tables.transactions.get(&id).is_some();
        let before = self.batch.cache.rows.transactions.get(&id);
        added && before.is_none_or(|found| found.row.is_none())
    }

    /// The transactions that this unit has changed, in the order of their keys.
    pub fn changed_transactions(&self) -> impl Iterator<Item = &Transaction> {
        self.local.tables.transactions.rows().map(|row| &**row)
    }

    /// The ledger accounts that this unit has changed, in the order of their keys.
    pub(crate) fn changed_ledger_accounts(&self) -> Vec<Arc<books::LedgerAccount>> {
        self.local.tables.ledger_accounts.rows().map(Arc::clone).collect()
    }

    pub(crate) fn put_ledger_account(&mut self, account: books::LedgerAccount) {
        self.put_row(account);
    }

    pub(crate) fn add_posting(&mut self, posting: PostingRow) {
        self.local.postings.entry(posting.transaction).or_default().push(posting);
    }
}
