//! Units of work: what a change may read and leave behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::approval::Approval;
use domain::attention::Attention;
use domain::bulk_import::{BulkImport, Part};
use domain::customer::Customer;
use domain::delivery::Delivery;
use domain::event::Event;
use domain::external_account::ExternalAccount;
use domain::id::TransactionId;
use domain::invitation::Invitation;
use domain::kyc::IdentityCheck;
use domain::lookup::Lookup;
use domain::platform::Platform;
use domain::quote::Quote;
use domain::time::Timestamp;
use domain::token::Token;
use domain::transaction::{Status, Transaction};
use domain::transition::Moved;
use domain::uma_peer::UmaPeer;
use uuid::Uuid;

use crate::books::{self, PostingRow, Postings};
use crate::committed_deliveries::Committed;
use crate::customers::UmaClaim;
use crate::error::StoreError;
use crate::events::Outbox;
use crate::external_accounts::Fingerprint;
use crate::idempotency::{Answer, Body, Given, Scope, Tells, kept};
use crate::journal::change_set::{ChangeSet, RowChange};
use crate::keyring::Keyring;
use crate::leases::{Lease, LeaseName};
use crate::memtable::shared::SharedMemtable;
use crate::open_payments::OpenPayments;
use crate::origin::Origin;
use crate::payment_hashes::PaymentHash;
use crate::record::{Found, Numbered as _, Record, Remembered, Tables, Wanted, committed, load};
use crate::sql::{Change, Connection, Write};
use crate::timers::{self, Timer, TimerKey};
use crate::uma_domains::DomainClaim;

/// Changes that are in memory and not yet in the database.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) tables: Tables,
    /// Rows of events.
    events: Vec<RowChange>,
    /// Events that are approval requests.
    approval_requests: Vec<Event>,
    /// Deliveries that are added, with their events and the revision of their outbox.
    deliveries: Vec<Committed>,
    pub(crate) timers: BTreeMap<TimerKey, Option<Timer>>,
    /// Owners whose data keys are erased.
    erased: BTreeSet<Uuid>,
}

impl Changes {
    fn merge(&mut self, newer: Self) {
        self.tables.merge(newer.tables);
        self.approval_requests.extend(newer.approval_requests);
        self.deliveries.extend(newer.deliveries);
        self.timers.extend(newer.timers);
        self.erased.extend(newer.erased);
    }

    /// The changes of rows by a unit about a customer, behind those `before` and what is
    /// remembered.
    fn rows(&self, owner: Option<Uuid>, before: &Self, cache: &mut Remembered) -> Vec<RowChange> {
        let mut rows = self.tables.changes(owner, &before.tables, cache);
        rows.extend(self.events.iter().cloned());
        rows.extend(timers::changes(&self.timers));
        rows
    }

    /// Takes out the wake-ups, which are published after the commit.
    pub(crate) fn take_wake_ups(&mut self) -> WakeUps {
        // A platform that never had an endpoint has no deliveries.
        let outboxes = self.tables.outboxes.rows().filter(|outbox| outbox.revision > 0);
        let outboxes = outboxes.map(|outbox| Committed::Outbox(outbox.platform, outbox.revision));
        self.deliveries.extend(outboxes);
        WakeUps {
            approval_requests: std::mem::take(&mut self.approval_requests),
            deliveries: std::mem::take(&mut self.deliveries),
            // Timers come nearer when a platform's clock is moved.
            timers: !self.tables.platforms.is_empty() || self.timers.values().any(Option::is_some),
            callers: !self.tables.tokens.is_empty() || !self.tables.platforms.is_empty(),
        }
    }

    /// Counts the payments that a committed batch has completed; the cache is from before it.
    pub(crate) fn count_completed(&self, cache: &mut Remembered) {
        let is_completed = |payment: &Transaction| payment.status() == Status::Completed;
        let completed = self.tables.transactions.rows().filter(|payment| {
            let before = Transaction::remembered(cache).get(&payment.id()).cloned().flatten();
            is_completed(payment) && !before.is_some_and(|before| is_completed(&before))
        });
        let count = completed.count() as u64;
        metrics::counter!("switchyard_payments_completed_total").increment(count);
    }

    /// The owners whose data keys are erased.
    pub(crate) fn erased(&self) -> &BTreeSet<Uuid> {
        &self.erased
    }

    /// Puts the committed changes into the cache.
    pub(crate) fn remember(self, cache: &mut Remembered) {
        self.tables.remember(cache);
        cache.end_batch();
    }
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

/// The wake-ups of a commit.
pub(crate) struct WakeUps {
    /// Approval requests that are to be sent.
    pub(crate) approval_requests: Vec<Event>,
    /// Whether it sets a timer, or may have brought some nearer.
    pub(crate) timers: bool,
    /// Deliveries and outboxes, for the webhook worker.
    pub(crate) deliveries: Vec<Committed>,
    /// Whether it may change the rights of a caller.
    pub(crate) callers: bool,
}

/// The changes of a batch.
pub(crate) struct Finished {
    /// For the journal.
    pub(crate) sets: Vec<ChangeSet>,
    /// The time of the latest of them.
    pub(crate) at: Timestamp,
    /// To be written with it, and no part of it.
    pub(crate) beside: Option<Write>,
    /// For the cache.
    pub(crate) changes: Changes,
}

/// Many units of work on their way into one database transaction.
pub(crate) struct Batch<'a> {
    connection: &'a mut dyn Connection,
    keyring: &'a Keyring,
    cache: &'a mut Remembered,
    memtable: &'a SharedMemtable,
    sets: Vec<ChangeSet>,
    /// When the latest of them was asked for.
    at: Timestamp,
    changes: Changes,
    /// Rows that units asked for and that are still to be fetched.
    wanted: Wanted,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        connection: &'a mut dyn Connection,
        keyring: &'a Keyring,
        cache: &'a mut Remembered,
        memtable: &'a SharedMemtable,
    ) -> Self {
        let (sets, at) = (Vec::new(), Timestamp::from_millis(0));
        let (changes, wanted) = (Changes::default(), Wanted::default());
        Self { connection, keyring, cache, memtable, sets, at, changes, wanted }
    }

    /// Runs one unit. If `work` refuses, nothing of the unit remains.
    pub(crate) fn run(
        &mut self,
        origin: Origin,
        work: impl FnOnce(&mut Unit<'_, 'a>) -> bool,
    ) -> Ran {
        let mut unit = Unit::new(self);
        let keep = work(&mut unit);
        let Unit { local, waits, owner, .. } = unit;
        match (waits, keep) {
            (true, _) => Ran::Waits,
            (false, true) => {
                let rows = local.rows(owner, &self.changes, self.cache);
                // A key that is erased leaves a row that says who has erased one.
                if !rows.is_empty() || !local.erased.is_empty() {
                    let Origin { actor, request, at } = origin;
                    self.sets.push(ChangeSet { actor, request, rows });
                    self.at = self.at.max(at);
                }
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
            // Jobs look first whether this server still leads.
            self.wanted.leases.insert(LeaseName::Jobs);
            for scope in scopes {
                if self.known::<Answer>(&scope)?.is_none() {
                    self.wanted.idempotency.insert(scope);
                }
            }
            self.fetch()?;
        }
        Ok(())
    }

    /// Fetches what units wait for.
    pub(crate) fn fetch(&mut self) -> Result<(), StoreError> {
        let mut wanted = std::mem::take(&mut self.wanted);
        // A unit that reads a payment reads its postings next.
        for payment in &wanted.transactions {
            if self.known::<Postings>(payment)?.is_none() {
                wanted.postings.insert(*payment);
            }
        }
        // They were not found in the memtable before: tables that have what it had dropped by now
        // have them as they were committed last. Nothing else appends meanwhile.
        let base = self.memtable.base();
        if wanted.fetch(self.connection, self.keyring, self.cache)? < base {
            return Err(self.memtable.went_back());
        }
        Ok(())
    }

    /// The record of a key as it was committed last, if that is known without the tables.
    fn known<R: Record>(&mut self, key: &R::Key) -> Result<Option<Found<R>>, StoreError> {
        if let Some(found) = R::remembered(self.cache).get(key) {
            return Ok(Some(Option::clone(found)));
        }
        let found = committed::<R>(self.memtable, self.keyring, key)?;
        if let Some(found) = &found {
            R::remembered(self.cache).insert(key.clone(), found.clone());
        }
        Ok(found)
    }

    /// The record of a key that the memtable does not have, from the tables of the snapshot that
    /// all of the batch is read from: they have what the memtable had dropped when it began.
    fn load<R: Record>(&mut self, key: &R::Key) -> Result<Found<R>, StoreError> {
        let found = load::<R>(self.connection, self.keyring, key)?;
        R::remembered(self.cache).insert(key.clone(), found.clone());
        Ok(found)
    }

    /// The changes of all units. There is nothing of units that only read.
    pub(crate) fn finish(mut self) -> Finished {
        let mut leases = BTreeMap::new();
        self.sets.retain_mut(|set| {
            let is_empty = set.rows.is_empty();
            // A lease is renewed all the time, and is no data. The last change of each remains.
            for row in set.rows.extract_if(.., |row| row.change.table == Lease::NUMBER) {
                leases.insert(row.change.values[0].clone(), row.change.values);
            }
            is_empty || !set.rows.is_empty()
        });
        let shape = Lease::shape();
        let rows = leases.into_values().flat_map(|values| shape.rows(values, self.keyring));
        let leases = Write { shape, change: Change::Upsert, rows: rows.collect() };
        let beside = Some(leases).filter(|write| !write.rows.is_empty());
        Finished { sets: self.sets, beside, at: self.at, changes: self.changes }
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
    OpenPayments, Attention, PaymentHash, DomainClaim,
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
    /// The customer whom the first record is about that is about one.
    owner: Option<Uuid>,
    /// How much its answer tells of that customer.
    tells: Tells,
}

impl<'b, 'a> Unit<'b, 'a> {
    fn new(batch: &'b mut Batch<'a>) -> Self {
        Self { batch, local: Changes::default(), waits: false, owner: None, tells: Tells::All }
    }
}

impl Unit<'_, '_> {
    /// The row with this key, as the units before this one left it.
    pub fn get<R: Record>(&mut self, key: &R::Key) -> Result<Option<Arc<R>>, StoreError> {
        let found = self.find::<R>(key)?;
        self.owner = self.owner.or_else(|| found.as_ref().and_then(|row| row.owner()));
        Ok(found)
    }

    fn find<R: Record>(&mut self, key: &R::Key) -> Result<Found<R>, StoreError> {
        if let Some(found) = R::slots(&mut self.local.tables).get(key) {
            return Ok(found);
        }
        if let Some(found) = R::slots(&mut self.batch.changes.tables).get(key) {
            return Ok(found);
        }
        if let Some(found) = self.batch.known::<R>(key)? {
            return Ok(found);
        }
        if self.batch.connection.is_remote() {
            R::wanted(&mut self.batch.wanted).insert(key.clone());
            return self.wait();
        }
        self.batch.load::<R>(key)
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

    /// Removes a row, if it is there.
    pub fn remove<R: Writable>(&mut self, key: R::Key) {
        R::slots(&mut self.local.tables).remove(key);
    }

    /// Keeps a change of state.
    pub fn put_moved<R: Writable>(&mut self, moved: Moved<R>) {
        self.put_row(moved.into_now());
    }

    fn put_row<R: Record>(&mut self, row: R) {
        self.owner = self.owner.or_else(|| row.owner());
        R::slots(&mut self.local.tables).put(Arc::new(row));
    }

    /// Drops everything that this unit has changed so far.
    pub fn discard(&mut self) {
        (self.local, self.tells) = (Changes::default(), Tells::All);
    }

    /// Keyed hashes and sealing.
    pub fn keyring(&self) -> &Keyring {
        self.batch.keyring
    }

    /// Keeps the first answer to an idempotency key. The caller has read that there is none. It is
    /// about the first customer whom the unit has met.
    pub fn keep_answer(&mut self, scope: Scope, at: Timestamp, given: &Given) {
        let (owner, tells) = (self.owner, self.tells.clone());
        let body = Body::Here(kept(given.request, &given.body));
        self.put_row(Answer { scope, at, status: given.status, owner, body, tells });
    }

    /// Says that the answer shows a record, and tells no more of the customer than that does.
    pub fn answers_with<R: Record>(&mut self, record: &R) {
        if record.owner() == self.owner {
            self.tells = Tells::as_much_as(record);
        }
    }

    /// Gives a request another answer: the first one was about a customer who is erased.
    pub fn change_answer(
        &mut self,
        scope: Scope,
        status: u16,
        body: &[u8],
    ) -> Result<(), StoreError> {
        if let Some(answer) = self.get::<Answer>(&scope)? {
            let at = answer.at;
            let body = Body::Here(kept(None, body));
            let tells = Tells::Nothing;
            self.put_row(Answer { scope, at, status, owner: None, body, tells });
        }
        Ok(())
    }

    /// Removes answers that were given before then. One that was given anew meanwhile stays.
    pub fn remove_answers(
        &mut self,
        scopes: &[Scope],
        before: Timestamp,
    ) -> Result<(), StoreError> {
        let answers = self.get_all::<Answer>(scopes)?;
        for answer in answers.into_iter().flatten().filter(|answer| answer.at < before) {
            self.local.tables.idempotency.remove(answer.scope);
        }
        Ok(())
    }

    /// The first answer to a request, if one was given since then.
    pub fn answer(&mut self, scope: &Scope, since: Timestamp) -> Result<Option<Given>, StoreError> {
        let Some(answer) = self.get::<Answer>(scope)? else { return Ok(None) };
        // Hardly any request is repeated, so that one at a time is read.
        answer.given_since(since, self.batch.connection, self.batch.keyring)
    }

    /// Erases a data key: what it has sealed in the journal is unreadable from this commit on.
    pub fn erase_key(&mut self, owner: Uuid) {
        self.local.erased.insert(owner);
    }

    pub(crate) fn push_event(&mut self, change: RowChange) {
        self.local.events.push(change);
    }

    /// Hands a new delivery to the webhook worker once this is committed.
    pub(crate) fn push_delivery(&mut self, delivery: Delivery, event: Event, revision: i64) {
        self.local.deliveries.push(Committed::Delivery(delivery, event, revision));
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
        let postings = self.get::<Postings>(&transaction)?;
        Ok(postings.map_or_else(Vec::new, |postings| postings.rows().to_vec()))
    }

    /// The transactions that this unit has changed, in the order of their keys.
    pub fn changed_transactions(&self) -> impl Iterator<Item = &Transaction> {
        self.local.tables.transactions.rows().map(|row| &**row)
    }

    /// The records of a table that this unit has changed, in the order of their keys: each as the
    /// unit found it, if it was there, and as the unit leaves it.
    pub fn changed<R: Record>(&mut self) -> Vec<(Found<R>, Arc<R>)> {
        let rows: Vec<_> = R::slots(&mut self.local.tables).rows().map(Arc::clone).collect();
        let batch = &mut *self.batch;
        rows.into_iter()
            .map(|row| {
                let key = row.key();
                let before = R::slots(&mut batch.changes.tables).get(&key);
                // A record is read before it is changed, and stays known within the batch.
                let before = before.or_else(|| R::remembered(batch.cache).get(&key).cloned());
                (before.flatten(), row)
            })
            .collect()
    }

    /// The ledger accounts that this unit has changed, in the order of their keys.
    pub(crate) fn changed_ledger_accounts(&self) -> Vec<Arc<books::LedgerAccount>> {
        self.local.tables.ledger_accounts.rows().map(Arc::clone).collect()
    }

    pub(crate) fn put_ledger_account(&mut self, account: books::LedgerAccount) {
        self.put_row(account);
    }

    pub(crate) fn put_postings(&mut self, postings: Postings) {
        self.put_row(postings);
    }
}
