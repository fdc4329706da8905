//! Everything that must hold of the data, checked from one snapshot.
//!
//! The database may be in use: [`verify`] reads on a connection of its own, in one transaction that
//! only reads, and never repairs. It believes nothing that the rest of the store believes: rows are
//! taken as they were found, sums are made in i128, and a row that cannot be read is a break of the
//! predicate that reads it. It streams: its memory grows with the number of accounts and of
//! payments under way, not with the length of the history. The engine does the sorting.
//!
//! Each predicate is one line of the table below. One SQL statement decides most of them (`rules`);
//! the others need what SQL cannot see. None is here without a damaged database in the tests.
//! Breaks are named by identifiers only, never by amounts or names of persons.

mod journal;
mod replay;
mod rules;
mod parties;
mod payment;
mod states;
mod answers;
mod events;
mod money;
mod deliveries;
mod seals;

use std::collections::BTreeMap;
use std::fmt;

use domain::approval::Approval;
use domain::attention::Attention;
use domain::bulk_import::{BulkImport, Part};
use domain::customer::Customer;
use domain::external_account::ExternalAccount;
use domain::id::Owner;
use domain::invitation::Invitation;
use domain::kyc::IdentityCheck;
use domain::lookup::Lookup;
use domain::platform::Platform;
use domain::token::Token;
use domain::uma_peer::UmaPeer;
use ledger::account::{AccountKey, Counters};
use ledger::audit::Sums;

use self::money::Books;
use self::parties::{Parties, read_all};
pub use self::replay::replay;
use crate::customers::UmaClaim;
use crate::engine::{self, Engine};
use crate::error::StoreError;
use crate::events::Outbox;
use crate::keyring::Keyring;
use crate::migrate::{self, Track};
use crate::open_payments::OpenPayments;
use crate::payment_hashes::PaymentHash;
use crate::record::Record;
use crate::sql::{Connection, Row, Value};
use crate::uma_domains::DomainClaim;

/// Breaks of one predicate that are named; the rest is counted. A hundred breaks have one cause,
/// and the report must not fill a disk.
pub const BREAKS_NAMED_MAX: usize = 100;

/// Why a predicate that opens sealed values was not checked.
const NO_KEY: &str = "it needs the key";

/// Why nothing but the schema was checked.
const OTHER_SCHEMA: &str = "the schema is not the one that this program knows";

macro_rules! predicates {
    ($($name:ident $text:literal,)*) => {
        /// The predicates, in the order of the report.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Predicate {
            $($name,)*
        }

        impl Predicate {
            const ALL: &'static [Self] = &[$(Self::$name,)*];

            const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

predicates! {
    M1 "the schema is the one that this program knows",
    M2 "the engine finds the database sound",
    J1 "the journal is numbered from 1, nothing in it was changed, and the tables follow a row of it",
    J2 "every row of the journal opens with the key and can be read",
    L1 "every posting has two sides and balances in every currency",
    L2 "debits and credits of all accounts of a currency are equal, posted and pending",
    L3 "every balance is the fold of its entries, and there is one for each account with entries",
    L4 "no account that must stay covered has less than 0 available",
    L5 "every amount and every counter is inside its limits",
    L6 "accounts have their key's currency, and entries are on their transaction's platform's",
    L7 "postings are numbered from 1 without a gap; what is resolved is pending",
    L8 "no posting is older than its transaction, or younger than its end",
    L9 "a quote's amounts follow from its rate and fees, and its exchange moves them",
    L10 "the fees that were earned are those of the completed quotes that did not come back",
    H1 "every pending posting is resolved at most once",
    H2 "what an account counts as pending is what its unresolved postings say",
    H3 "money is set aside for a payment exactly while it is under way",
    H4 "every customer counts the payments under way that hold no money in its accounts",
    T1 "every step is an arrow of its machine, and the last one is the status",
    T2 "nothing follows a final status",
    T3 "a quote and its transaction name each other, and their statuses fit",
    T4 "no quote was executed after its time, and an expired one holds no money",
    T5 "a failure has its reason, and nothing else has one",
    T6 "no two transactions have the same reference",
    T7 "a completed payment took and gave exactly what it says",
    T8 "a payment that was not made took nothing, or gave it back",
    T9 "no payment was both paid out and given back, unless it came back",
    T10 "whatever is under way has a timer: no money is stuck",
    E1 "every step but CREATED has its event, and every event its step",
    E2 "the id of an event is the one that its resource and number give, and no other event's",
    E3 "every event is in the journal as its row says, and opens with the key",
    E4 "events happened when their steps did, in their order",
    E5 "every claim, every decision about an identity and the end of every import has one event",
    E6 "the events of every platform are numbered from 1 without a gap, and all are counted",
    W1 "every delivery is that of an event, and every event that was taken has one",
    W2 "what was delivered was received by its last attempt, and what is dead was not",
    W3 "no attempt went to an address that its platform may not reach",
    E7 "every balance change of an internal account has an event, and the last one has the balance",
    I1 "every stored answer is one that may be repeated, and opens with the key",
    U1 "the two sides of a payment within this server are each other's, and nothing stays between",
    A1 "every approval is of an incoming payment that is where the decision led, or waits for it",
    B1 "a quote to a UMA address stands on a lookup of its own payer that was still good",
    B2 "every payment hash is one payment's, which is there",
    C1 "a customer's default deposit account is one of its own that was not switched off",
    C2 "every customer can be read and has its address to itself",
    C3 "every invitation can be read, ended as it says, and waits for its time while it is open",
    C4 "every identity check can be read, and waits for its time while it is its customer's open one",
    C5 "every import is as far as its parts, keeps no row that was gone through, and goes on",
    P1 "no clock was moved where money is real",
    S2 "every row is as a server sealed it, and holds what belongs there",
    S4 "whatever belongs to a platform refers only to what is the same platform's",
    J3 "the tables are what the journal says, row by row",
}

/// The result of a check: every predicate and its breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every predicate.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether every predicate that was checked holds.
    pub fn is_sound(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }
}

/// One predicate and where it does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its short name, such as `L1`.
    pub predicate: &'static str,
    /// Its text, which says what must hold.
    pub what: &'static str,
    /// How many rows were looked at.
    pub rows: u64,
    /// Where it does not hold, by identifiers only; at most [`BREAKS_NAMED_MAX`].
    pub breaks: Vec<String>,
    /// How many breaks there are besides those.
    pub more: u64,
    /// Why it was not checked, or not wholly.
    pub skipped: Option<&'static str>,
}

impl Check {
    fn new(predicate: Predicate) -> Self {
        Self {
            predicate: predicate.name(),
            what: predicate.text(),
            rows: 0,
            breaks: Vec::new(),
            more: 0,
            skipped: None,
        }
    }

    /// Keeps a break.
    fn keep(&mut self, what: impl fmt::Display) {
        if self.breaks.len() < BREAKS_NAMED_MAX {
            self.breaks.push(what.to_string());
        } else {
            self.more += 1;
        }
    }

    /// Whether no break was found.
    pub fn holds(&self) -> bool {
        self.breaks.is_empty()
    }
}

/// A ledger account as it was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FoundAccount {
    /// Its stored balance; `None` if there is no row.
    pub stored: Option<Counters>,
    /// The fold of its entries.
    pub folded: Sums,
}

impl FoundAccount {
    /// Whether the stored balance is what the entries come to.
    pub fn agrees(&self) -> bool {
        self.stored.is_some_and(|stored| Sums::from(stored) == self.folded)
    }
}

/// Every ledger account that has a balance or an entry.
pub type Ledger = BTreeMap<AccountKey, FoundAccount>;

/// The report while it is made.
struct Findings {
    checks: Vec<Check>,
    count: u64,
}

impl Findings {
    fn new() -> Self {
        // The last one is checked by itself (`replay`).
        let all = Predicate::ALL.iter().copied().filter(|it| *it != Predicate::J3);
        Self { checks: all.map(Check::new).collect(), count: 0 }
    }

    fn check(&mut self, predicate: Predicate) -> &mut Check {
        // The checks stand in the order of the variants, see `new`.
        &mut self.checks[predicate as usize]
    }

    /// Counts rows that were looked at.
    fn saw(&mut self, predicate: Predicate, rows: usize) {
        self.check(predicate).rows += u64::try_from(rows).unwrap_or(u64::MAX);
    }

    /// Keeps a break.
    fn broke(&mut self, predicate: Predicate, what: impl fmt::Display) {
        self.count += 1;
        self.check(predicate).keep(what);
    }

    /// Keeps a break if `holds` is not so.
    fn demand(&mut self, predicate: Predicate, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.broke(predicate, what());
        }
    }

    /// The part of the journal that was read; nothing if it is damaged, which is kept.
    fn readable<T>(
        &mut self,
        predicate: Predicate,
        read: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match read {
            Err(error @ (StoreError::Sealed { .. } | StoreError::Corrupt { .. })) => {
                self.broke(predicate, error);
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Keeps that a row cannot be read. The error's text may repeat a stored value, so only the
    /// place is named.
    fn unreadable(&mut self, predicate: Predicate, row: impl fmt::Display, error: &StoreError) {
        match error {
            StoreError::Corrupt { place, .. } => {
                self.broke(predicate, format!("{row} cannot be read at {place}"));
            }
            StoreError::Busy
            | StoreError::Behind(_)
            | StoreError::Closed
            | StoreError::DiskFull
            | StoreError::Unavailable(_)
            | StoreError::FilesMoved
            | StoreError::NotFetched
            | StoreError::Conflict(_)
            | StoreError::OutcomeUnknown(_)
            | StoreError::Sealed { .. }
            | StoreError::Refused(_)
            | StoreError::Engine(_)
            | StoreError::Panicked(_) => self.broke(predicate, format!("{row} cannot be read")),
        }
    }
}

/// A check under way.
struct Run<'a> {
    connection: &'a mut dyn Connection,
    keyring: Option<&'a Keyring>,
    findings: Findings,
    parties: Parties,
    books: Books,
    /// The reference of the transaction that was checked before, in the order of ids.
    last_reference: String,
}

impl<'a> Run<'a> {
    /// Runs one pass. A failure of the engine is a break of M2 and ends this pass only.
    fn tolerate(
        &mut self,
        pass: impl FnOnce(&mut Run<'a>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match pass(self) {
            Err(StoreError::Engine(what) | StoreError::Refused(what)) => {
                self.findings.broke(Predicate::M2, format!("reading stopped: {what}"));
                Ok(())
            }
            done => done,
        }
    }
}

/// Every statement of this module, for [`crate::statements`].
pub(crate) fn statements() -> Vec<String> {
    let schemas = migrate::TRACKS.iter().map(|track| track.applied());
    schemas
        .chain([money::ACCOUNTS.to_owned()])
        .chain(rules::statements())
        .chain(parties::statements())
        .chain(payment::statements())
        .chain(events::statements())
        .chain(answers::statements())
        .chain(deliveries::statements())
        .collect()
}

/// Checks every predicate from one snapshot. Without a key, sealed values stay closed and the
/// predicates about them are skipped. An error means that the database could not be read.
pub fn verify(engine: &dyn Engine, keyring: Option<&Keyring>) -> Result<Report, StoreError> {
    let mut connection = engine.auditor()?;
    connection.begin_read()?;
    let report = judge(&mut *connection, keyring, true).map(|(report, _)| report);
    connection.rollback()?;
    report
}

/// One pass over the rows of some tables.
type Pass = fn(&mut Run<'_>) -> Result<(), StoreError>;

/// Every pass. Later ones use the results of earlier ones.
const PASSES: [Pass; 11] = [
    integrity,
    journal::check,
    parties::read,
    payment::check,
    events::check,
    money::check,
    deliveries::check,
    rules::check,
    answers::check,
    check_rows,
    seals::check,
];

/// Reads every row of the tables that no other pass reads whole.
fn check_rows(run: &mut Run<'_>) -> Result<(), StoreError> {
    fn all<R: Record>(run: &mut Run<'_>, unreadable: Predicate) -> Result<(), StoreError> {
        read_all::<R>(run, unreadable, |_, _, _, _| {})
    }
    all::<Platform>(run, Predicate::S4)?;
    all::<Token>(run, Predicate::S4)?;
    let mut claims = BTreeMap::new();
    read_all::<UmaClaim>(run, Predicate::C2, |_, _, _, claim| {
        claims.insert(claim.address, claim.customer);
    })?;
    let keyring = run.keyring;
    read_all::<Customer>(run, Predicate::C2, |findings, _, _, customer| {
        let holder = keyring.and_then(|it| claims.get(&it.address_hash(&customer.uma_address)));
        findings.demand(Predicate::C2, holder == Some(&customer.id), || {
            format!("{} has an address that was not given to it", customer.id)
        });
    })?;
    all::<ExternalAccount>(run, Predicate::S4)?;
    all::<Lookup>(run, Predicate::S4)?;
    all::<Invitation>(run, Predicate::C3)?;
    all::<IdentityCheck>(run, Predicate::C4)?;
    all::<BulkImport>(run, Predicate::C5)?;
    all::<Part>(run, Predicate::C5)?;
    all::<Approval>(run, Predicate::A1)?;
    all::<Outbox>(run, Predicate::E6)?;
    all::<Attention>(run, Predicate::S4)?;
    all::<UmaPeer>(run, Predicate::S4)?;
    all::<PaymentHash>(run, Predicate::B2)?;
    read_all::<DomainClaim>(run, Predicate::S4, |findings, parties, _, claim| {
        let is_known = parties.platform_of(Owner::Platform(claim.platform)).is_some();
        findings.demand(Predicate::S4, is_known, || {
            format!("the UMA domain {} is of {}, which there is not", claim.domain, claim.platform)
        });
    })?;
    all::<OpenPayments>(run, Predicate::H4)
}

/// Checks every predicate in the transaction that the connection is in, and gives the accounts as
/// they were found. The key is believed to be the right one.
pub(crate) fn everything(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(Report, Ledger), StoreError> {
    judge(connection, Some(keyring), false)
}

fn judge(
    connection: &mut dyn Connection,
    keyring: Option<&Keyring>,
    compares_key: bool,
) -> Result<(Report, Ledger), StoreError> {
    let mut run = Run {
        connection,
        keyring,
        findings: Findings::new(),
        parties: Parties::default(),
        books: Books::default(),
        last_reference: String::new(),
    };
    if !schema_is_known(&mut run) {
        for check in &mut run.findings.checks {
            if check.holds() {
                check.skipped = Some(OTHER_SCHEMA);
            }
        }
        return Ok((Report { checks: run.findings.checks }, Ledger::new()));
    }
    was_started(&mut run)?;
    match keyring {
        // With a wrong key nothing would open, and everything look broken.
        Some(keyring) if compares_key => {
            engine::compare_key(run.connection, keyring)?;
        }
        Some(_) => {}
        None => {
            let sealed = [
                Predicate::J2,
                Predicate::E2,
                Predicate::E3,
                Predicate::W2,
                Predicate::W3,
                Predicate::S2,
                Predicate::I1,
            ];
            for predicate in sealed {
                run.findings.check(predicate).skipped = Some(NO_KEY);
            }
        }
    }
    for pass in PASSES {
        run.tolerate(pass)?;
    }
    Ok((Report { checks: run.findings.checks }, run.books.ledger))
}

/// M1: every migration up to the newest known one was applied, and none beyond.
fn schema_is_known(run: &mut Run<'_>) -> bool {
    migrate::TRACKS.iter().all(|track| track_is_known(run, track))
}

fn track_is_known(run: &mut Run<'_>, track: &Track) -> bool {
    let columns = ("a history of migrations", &["version"][..]);
    let read = run.connection.all(&track.applied(), &[], columns, Row::int);
    let is_read = read.is_ok();
    let applied = read.unwrap_or_default();
    run.findings.saw(Predicate::M1, applied.len());
    let known: Vec<_> = (1..=track.newest_known()).collect();
    let is_known = is_read && applied == known;
    run.findings.demand(Predicate::M1, is_known, || {
        let known = known.len();
        match applied.last() {
            Some(newest) => {
                format!("the database has schema {newest}, this program knows schemas 1 to {known}")
            }
            None => format!("the database has no schema: {COPIED_WITHOUT_LOG}"),
        }
    });
    is_known
}

/// M1: the first start writes the check of the key, before anything else.
fn was_started(run: &mut Run<'_>) -> Result<(), StoreError> {
    let was_started = engine::knows_key(run.connection)?
        || engine::meta(run.connection, engine::COPY_MARK_NAME)?.is_some();
    run.findings.demand(Predicate::M1, was_started, || {
        format!("the database has a schema and nothing in it: {COPIED_WITHOUT_LOG}")
    });
    Ok(())
}

/// How a database comes to lack what was written to it.
const COPIED_WITHOUT_LOG: &str = "a copy of the main file of a running database, without its log, \
    looks like this; use switchyard backup";

/// M2: the faults that the engine itself finds.
fn integrity(run: &mut Run<'_>) -> Result<(), StoreError> {
    let found = run.connection.integrity()?;
    run.findings.saw(Predicate::M2, 1);
    for line in found {
        run.findings.broke(Predicate::M2, line);
    }
    Ok(())
}

/// The key in a value, for the name of a row that cannot be read otherwise.
fn shown(value: Option<&Value>) -> String {
    value.unwrap_or(&Value::Null).shown()
}
