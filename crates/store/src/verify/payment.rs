//! Payments as they were found: a transaction with its quote, postings and entries.
//!
//! They are read in order of the transaction's id, some at a time: the rows of every table between
//! two ids are put together, so that a row whose transaction is missing is met too.

use std::collections::BTreeMap;

use domain::currency::Currency;
use domain::id::Owner;
use domain::quote::{self, Quote};
use domain::time::Timestamp;
use domain::transaction::{self, Direction, Settlement, Transaction};
use ledger::audit::RawEntry;
use ledger::movements::Movement;
use ledger::posting::Resolution;
use uuid::Uuid;

use super::{Predicate, Run, money, shown, states};
use crate::books::{self, Postings, RowPhase};
use crate::error::StoreError;
use crate::external_accounts::read_owner;
use crate::record::Record;
use crate::sql::{Row, Value};
use crate::transactions::read_history;

/// Transactions that are looked at together. More would only take memory: a thousand is already
/// few statements.
const CHUNK: usize = 1_000;

/// Greater than every id, which has 16 bytes.
const BEYOND: [u8; 17] = [0xff; 17];

fn transactions() -> String {
    let columns = Transaction::COLUMNS.join(", ");
    format!("select {columns} from transactions where id > $1 order by id limit $2")
}

fn quotes() -> String {
    let columns = Quote::COLUMNS.join(", ");
    format!(
        "select {columns} from quotes where transaction_id > $1 and transaction_id <= $2 \
         order by transaction_id"
    )
}

const POSTINGS: &str = "select transaction_id, number, movement, phase, resolves, at, entries \
    from postings where transaction_id > $1 and transaction_id <= $2 \
    order by transaction_id, number";

pub(super) fn statements() -> impl Iterator<Item = String> {
    [transactions(), quotes(), POSTINGS.to_owned()].into_iter()
}

/// Everything that is stored about one transaction.
#[derive(Default)]
pub(super) struct Payment {
    pub(super) id: Uuid,
    /// Nothing if the row is missing or cannot be read.
    pub(super) transaction: Option<RawTransaction>,
    /// Whether there is a row that cannot be read, which says enough.
    pub(super) is_unreadable: bool,
    pub(super) quotes: Vec<RawQuote>,
    pub(super) postings: Vec<RawPosting>,
}

/// How a payment between UMA addresses is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RawSettlement {
    /// It is none.
    None,
    /// Within this server.
    Here,
    /// Over Lightning, for so many millisatoshi.
    Lightning(i64),
}

/// A row of `transactions`.
pub(super) struct RawTransaction {
    pub(super) platform: Uuid,
    pub(super) owner: Owner,
    pub(super) direction: Direction,
    pub(super) status: transaction::Status,
    pub(super) failure_reason: Option<String>,
    pub(super) source_account: Option<Uuid>,
    pub(super) destination_account: Uuid,
    pub(super) sending_currency: Option<Currency>,
    pub(super) sending_minor: Option<i64>,
    pub(super) receiving_currency: Currency,
    pub(super) receiving_minor: i64,
    pub(super) quote: Option<Uuid>,
    pub(super) settlement: RawSettlement,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) history: Vec<(usize, Timestamp)>,
    pub(super) values: Vec<Value>,
}

/// A row of `quotes`.
pub(super) struct RawQuote {
    pub(super) id: Uuid,
    pub(super) platform: Uuid,
    pub(super) owner: Owner,
    pub(super) status: quote::Status,
    pub(super) source_account: Option<Uuid>,
    pub(super) destination_account: Uuid,
    pub(super) sending_currency: Currency,
    pub(super) sending_minor: i64,
    pub(super) fees_minor: i64,
    pub(super) receiving_currency: Currency,
    pub(super) receiving_minor: i64,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) expires_at: Timestamp,
    pub(super) settlement: RawSettlement,
    pub(super) history: Vec<(usize, Timestamp)>,
    pub(super) values: Vec<Value>,
}

/// A row of `postings` with its entries.
pub(super) struct RawPosting {
    pub(super) number: u32,
    pub(super) at: Timestamp,
    pub(super) movement: Movement,
    pub(super) phase: RowPhase,
    pub(super) entries: Vec<RawEntry>,
}

impl Payment {
    /// The name of the transaction, whether it is there or not.
    pub(super) fn name(&self) -> String {
        format!("Transaction:{}", self.id)
    }

    /// The resolution of a pending posting.
    pub(super) fn resolution(&self, number: u32) -> Option<Resolution> {
        self.postings.iter().find_map(|posting| match posting.phase {
            RowPhase::Resolves(resolved, resolution) if resolved == number => Some(resolution),
            RowPhase::Pending | RowPhase::Posted | RowPhase::Resolves(..) => None,
        })
    }

    /// How many postings wait to be resolved.
    pub(super) fn unresolved(&self) -> usize {
        self.postings
            .iter()
            .filter(|posting| posting.phase == RowPhase::Pending)
            .filter(|posting| self.resolution(posting.number).is_none())
            .count()
    }

    /// Every posting that is final.
    pub(super) fn posted(&self) -> impl Iterator<Item = &RawPosting> {
        self.postings.iter().filter(|posting| match posting.phase {
            RowPhase::Posted => true,
            RowPhase::Pending => self.resolution(posting.number) == Some(Resolution::Post),
            RowPhase::Resolves(..) => false,
        })
    }
}

/// Reads every payment and checks it.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let mut low = Vec::new();
    loop {
        let mut chunk = Chunk::default();
        let last = chunk.read_transactions(run, &low)?;
        let high = last.clone().unwrap_or_else(|| BEYOND.to_vec());
        let bounds = [Value::Bytes(low), Value::Bytes(high)];
        chunk.read_quotes(run, &bounds)?;
        chunk.read_postings(run, &bounds)?;
        for payment in chunk.payments.values() {
            let breaks = run.findings.count;
            states::check(run, payment);
            money::check_payment(run, payment);
            states::check_contents(run, payment, breaks == run.findings.count);
        }
        match last {
            Some(last) => low = last,
            None => break,
        }
    }
    Ok(())
}

/// Payments that are looked at together.
#[derive(Default)]
struct Chunk {
    payments: BTreeMap<Uuid, Payment>,
}

impl Chunk {
    fn payment(&mut self, id: Uuid) -> &mut Payment {
        self.payments.entry(id).or_insert_with(|| Payment { id, ..Payment::default() })
    }

    /// Reads the next transactions. Gives the last one's key if there may be more.
    fn read_transactions(
        &mut self,
        run: &mut Run<'_>,
        after: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let (mut last, mut count) = (None, 0);
        let parameters = [Value::from(after), Value::Int(CHUNK as i64)];
        let Run { connection, findings, .. } = run;
        let width = Transaction::COLUMNS.len();
        connection.query(&transactions(), &parameters, width, &mut |values| {
            count += 1;
            let Some(Value::Bytes(key)) = values.first() else { return Ok(()) };
            last = Some(key.clone());
            let name = format!("Transaction:{}", shown(values.first()));
            let Ok(id) = Uuid::from_slice(key) else {
                findings.broke(Predicate::T1, format!("{name} has an id that is no uuid"));
                return Ok(());
            };
            let payment = self.payment(id);
            match read_transaction(values) {
                Ok(transaction) => payment.transaction = Some(transaction),
                Err(error) => {
                    payment.is_unreadable = true;
                    findings.unreadable(Predicate::T1, name, &error);
                }
            }
            Ok(())
        })?;
        Ok(last.filter(|_| count == CHUNK))
    }

    fn read_quotes(&mut self, run: &mut Run<'_>, bounds: &[Value]) -> Result<(), StoreError> {
        let Run { connection, findings, .. } = run;
        let width = Quote::COLUMNS.len();
        connection.query(&quotes(), bounds, width, &mut |values| {
            let name = format!("Quote:{}", shown(values.first()));
            match read_quote(values) {
                Ok((transaction, quote)) => self.payment(transaction).quotes.push(quote),
                Err(error) => findings.unreadable(Predicate::T1, name, &error),
            }
            Ok(())
        })
    }

    fn read_postings(&mut self, run: &mut Run<'_>, bounds: &[Value]) -> Result<(), StoreError> {
        let Run { connection, findings, .. } = run;
        let width = Postings::COLUMNS.len();
        connection.query(POSTINGS, bounds, width, &mut |values| {
            let name = format!("a posting of Transaction:{}", shown(values.first()));
            let row = &mut Row::new(Postings::TABLE, Postings::COLUMNS, values);
            let read = |row: &mut Row| {
                let (transaction, number) = (row.uuid()?, row.count()?);
                let (movement, phase) = (row.named(Movement::from_name)?, books::phase(row)?);
                let at = row.time()?;
                Ok((transaction, RawPosting { number, at, movement, phase, entries: Vec::new() }))
            };
            let (transaction, mut posting) = match read(row) {
                Ok(read) => read,
                Err(error) => {
                    findings.unreadable(Predicate::L7, name, &error);
                    return Ok(());
                }
            };
            match books::raw_entries(row, posting.phase) {
                Ok(entries) => posting.entries = entries,
                Err(error) => findings.unreadable(Predicate::L6, name, &error),
            }
            self.payment(transaction).postings.push(posting);
            Ok(())
        })
    }
}

fn read_transaction(values: Vec<Value>) -> Result<RawTransaction, StoreError> {
    let row = &mut Row::new(Transaction::TABLE, Transaction::COLUMNS, values.clone());
    row.uuid()?;
    let (platform, owner) = (row.uuid()?, read_owner(row)?);
    row.text()?;
    Ok(RawTransaction {
        platform,
        owner,
        direction: row.named(Direction::from_name)?,
        status: row.named(transaction::Status::from_name)?,
        failure_reason: row.text_or_null()?,
        source_account: row.uuid_or_null()?,
        destination_account: row.uuid()?,
        sending_currency: {
            // The owner's address is sealed too: what the row says is compared where it is opened.
            row.uuid_or_null()?;
            row.or_null(Row::currency)?
        },
        sending_minor: row.int_or_null()?,
        receiving_currency: row.currency()?,
        receiving_minor: row.int()?,
        quote: row.uuid_or_null()?,
        settlement: settlement(row)?,
        created_at: {
            row.uuid_or_null()?;
            row.time()?
        },
        updated_at: row.time()?,
        history: read_steps(row)?,
        values,
    })
}

fn read_quote(values: Vec<Value>) -> Result<(Uuid, RawQuote), StoreError> {
    let row = &mut Row::new(Quote::TABLE, Quote::COLUMNS, values.clone());
    let (id, platform, owner, transaction) =
        (row.uuid()?, row.uuid()?, read_owner(row)?, row.uuid()?);
    let quote = RawQuote {
        id,
        platform,
        owner,
        status: row.named(quote::Status::from_name)?,
        source_account: row.uuid_or_null()?,
        destination_account: row.uuid()?,
        sending_currency: row.currency()?,
        sending_minor: row.int()?,
        fees_minor: row.int()?,
        receiving_currency: row.currency()?,
        receiving_minor: row.int()?,
        created_at: row.time()?,
        updated_at: row.time()?,
        expires_at: row.time()?,
        settlement: {
            row.uuid_or_null()?;
            settlement(row)?
        },
        history: read_steps(row)?,
        values,
    };
    Ok((transaction, quote))
}

fn settlement(row: &mut Row) -> Result<RawSettlement, StoreError> {
    let (route, msat) = (row.text_or_null()?, row.int_or_null()?);
    let [here, lightning] = Settlement::NAMES;
    match (route.as_deref(), msat) {
        (None, None) => Ok(RawSettlement::None),
        (Some(route), None) if route == here => Ok(RawSettlement::Here),
        (Some(route), Some(msat)) if route == lightning => Ok(RawSettlement::Lightning(msat)),
        _ => Err(row.corrupt("not a settlement")),
    }
}

/// The steps of a machine, by their place among all of its states.
pub(super) fn read_steps(row: &mut Row) -> Result<Vec<(usize, Timestamp)>, StoreError> {
    read_history(&row.bytes()?).ok_or_else(|| row.corrupt("not a history"))
}
