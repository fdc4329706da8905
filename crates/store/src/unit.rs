//! Units of work: what a change may read and leave behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::customer::Customer;
use domain::event::Event;
use domain::external_account::ExternalAccount;
use domain::id::TransactionId;
use domain::platform::Platform;
use domain::quote::Quote;
use domain::token::Token;
use domain::transaction::Transaction;
use domain::transition::Moved;

use crate::books::{self, PostingRow};
use crate::customers::UmaClaim;
use crate::error::StoreError;
use crate::events;
use crate::external_accounts::Fingerprint;
use crate::idempotency::Answer;
use crate::keyring::Keyring;
use crate::record::{Record, Tables, load};
use crate::sql::Connection;
use crate::timers::{self, Timer, TimerKey};

/// Changes that are in memory and not yet in the database.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) tables: Tables,
    pub(crate) postings: BTreeMap<TransactionId, Vec<PostingRow>>,
    pub(crate) events: Vec<Event>,
    pub(crate) timers: BTreeMap<TimerKey, Option<Timer>>,
}

impl Changes {
    fn merge(&mut self, newer: Self) {
        self.tables.merge(newer.tables);
        for (transaction, postings) in newer.postings {
            self.postings.entry(transaction).or_default().extend(postings);
        }
        self.events.extend(newer.events);
        self.timers.extend(newer.timers);
    }

    fn write(&self, connection: &mut dyn Connection, keyring: &Keyring) -> Result<(), StoreError> {
        self.tables.write(connection, keyring)?;
        for posting in self.postings.values().flatten() {
            books::insert(connection, posting)?;
        }
        for event in &self.events {
            events::insert(connection, keyring, event)?;
        }
        for (key, timer) in &self.timers {
            timers::write(connection, key, timer.as_ref())?;
        }
        Ok(())
    }
}

/// Many units of work on their way into one database transaction.
pub(crate) struct Batch<'a> {
    connection: &'a mut dyn Connection,
    keyring: &'a Keyring,
    changes: Changes,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(connection: &'a mut dyn Connection, keyring: &'a Keyring) -> Self {
        Self { connection, keyring, changes: Changes::default() }
    }

    /// Runs one unit. If `work` refuses, nothing of the unit remains.
    pub(crate) fn run(&mut self, work: impl FnOnce(&mut Unit<'_, 'a>) -> bool) {
        let mut unit = Unit { batch: self, local: Changes::default() };
        if work(&mut unit) {
            let local = unit.local;
            self.changes.merge(local);
        }
    }

    /// Writes what all units left.
    pub(crate) fn write(self) -> Result<Changes, StoreError> {
        self.changes.write(self.connection, self.keyring)?;
        Ok(self.changes)
    }
}

/// One unit of work: reads through the batch, so that it sees the units before it, and keeps its
/// changes to itself until it succeeds.
///
/// The closure that gets it is synchronous and may be run again from the start, so it takes time
/// and chance as values and touches nothing else.
pub struct Unit<'b, 'a> {
    batch: &'b mut Batch<'a>,
    local: Changes,
}

impl Unit<'_, '_> {
    /// The row with this key, as the units before this one left it.
    pub fn get<R: Record>(&mut self, key: &R::Key) -> Result<Option<Arc<R>>, StoreError> {
        if let Some(row) = R::slots(&mut self.local.tables).get(key) {
            return Ok(row);
        }
        if let Some(row) = R::slots(&mut self.batch.changes.tables).get(key) {
            return Ok(row);
        }
        let found = load::<R>(self.batch.connection, self.batch.keyring, key)?;
        let row = found.as_ref().map(|(row, _)| Arc::clone(row));
        R::slots(&mut self.batch.changes.tables).loaded(key.clone(), found);
        Ok(row)
    }

    fn put<R: Record>(&mut self, row: R) {
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

    /// Adds a platform, or changes one that was read.
    pub fn put_platform(&mut self, platform: Platform) {
        self.put(platform);
    }

    /// Adds a token, or changes one that was read.
    pub fn put_token(&mut self, token: Token) {
        self.put(token);
    }

    /// Adds a customer, or changes one that was read.
    pub fn put_customer(&mut self, customer: Customer) {
        self.put(customer);
    }

    /// Takes an address for a customer. The caller has read that it is free.
    pub fn claim_uma_address(&mut self, claim: UmaClaim) {
        self.put(claim);
    }

    /// Adds an external account, or changes one that was read.
    pub fn put_external_account(&mut self, account: ExternalAccount) {
        self.put(account);
    }

    /// Marks what identifies an external account as used. The caller has read that it is free.
    pub fn claim_fingerprint(&mut self, fingerprint: Fingerprint) {
        self.put(fingerprint);
    }

    /// Adds a new quote.
    pub fn add_quote(&mut self, quote: Quote) {
        self.put(quote);
    }

    /// Keeps a quote's change of state.
    pub fn move_quote(&mut self, moved: Moved<Quote>) {
        self.put(moved.into_now());
    }

    /// Adds a new transaction.
    pub fn add_transaction(&mut self, transaction: Transaction) {
        self.put(transaction);
    }

    /// Keeps a transaction's change of state.
    pub fn move_transaction(&mut self, moved: Moved<Transaction>) {
        self.put(moved.into_now());
    }

    /// Keeps the first answer to an idempotency key. The caller has read that there is none.
    pub fn keep_answer(&mut self, answer: Answer) {
        self.put(answer);
    }

    /// Tells the platform.
    pub fn add_event(&mut self, event: Event) {
        self.local.events.push(event);
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
        let mut postings = books::of_transaction(self.batch.connection, transaction)?;
        for changes in [&self.batch.changes, &self.local] {
            postings.extend(changes.postings.get(&transaction).into_iter().flatten().cloned());
        }
        Ok(postings)
    }

    pub(crate) fn put_ledger_account(&mut self, account: books::LedgerAccount) {
        self.put(account);
    }

    pub(crate) fn add_posting(&mut self, posting: PostingRow) {
        self.local.postings.entry(posting.transaction).or_default().push(posting);
    }
}
