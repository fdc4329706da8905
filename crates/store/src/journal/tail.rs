//! The end of the journal in a database, where its writer appends.
//!
//! A batch is one row, or more if its change sets are long, in the transaction that brings the
//! tables up to date with it. `applied` names the last row that the tables follow.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::time::Timestamp;
use uuid::Uuid;

use super::change_set::{ChangeSet, from_frames, to_frames};
use super::data_keys::{self, DATA_KEYS};
use super::frames::{self, Keys, Place};
use super::{Chain, End, Row, RowHash, number};
use crate::catalogue;
use crate::engine::{self, SET_META};
use crate::error::StoreError;
use crate::keyring::{KEY_LENGTH, Keyring, SealingKey};
use crate::leases::Lease;
use crate::projector;
use crate::record::Numbered as _;
use crate::sql::{self, Change, Connection, Shape, Value, Write};

/// The number of tables that no change set is about.
pub(crate) const NONE: u16 = 0;

/// The table of rows.
pub(crate) static JOURNAL: Shape =
    Shape::new(NONE, "journal", &["seq", "epoch", "at", "previous", "hash", "body"]);

/// The keys of the journal, sealed with the server's.
pub(crate) static KEYS: Shape = Shape::new(NONE, "journal_keys", &["number", "sealed"]);

/// The last row of the journal that the tables follow.
pub(crate) static APPLIED: Shape = Shape::new(NONE, "applied", &["one", "seq", "hash"]);

/// The tables of the journal.
pub(crate) const SHAPES: [&Shape; 4] = [&JOURNAL, &KEYS, &DATA_KEYS, &APPLIED];

/// The row of `meta` with the id of the database, to which the rows of its journal are bound.
const DATABASE_NAME: Value = Value::name("database");

/// Rows since a time and behind another, in their order.
pub(crate) const ROWS: &str = "select seq, epoch, at, previous, hash, body from journal \
    where at >= $1 and seq > $2 order by seq limit $3";

/// The columns of a row before its body.
const HEAD: &[&str] = &["seq", "epoch", "at", "previous", "hash"];

/// The last row.
pub(crate) const LAST: &str =
    "select seq, epoch, at, previous, hash from journal order by seq desc limit 1";

pub(crate) const ALL_KEYS: &str = "select number, sealed from journal_keys";

pub(crate) const APPLIED_ROW: &str = "select seq, hash from applied where one = 1";

/// The epoch of all rows, as long as every server appends behind the others' rows.
const EPOCH: u64 = 1;

/// Bytes of change sets in a row, not compressed: one more begins a new row. Rows are read whole.
const BODY_MAX: usize = 256 * 1024;

/// The id of a database.
pub(crate) fn database(connection: &mut dyn Connection) -> Result<Option<Uuid>, StoreError> {
    let Some(bytes) = engine::meta(connection, DATABASE_NAME)? else { return Ok(None) };
    let corrupt = |_| StoreError::Corrupt {
        place: "meta.database".to_owned(),
        what: "not a uuid".to_owned(),
    };
    Uuid::from_slice(&bytes).map(Some).map_err(corrupt)
}

/// Gives a database its id, inside a transaction.
pub(crate) fn keep_database(
    connection: &mut dyn Connection,
    database: Uuid,
) -> Result<(), StoreError> {
    connection.execute(SET_META, &[DATABASE_NAME, database.into()]).map(drop)
}

/// The keys of a journal.
pub(crate) fn keys(connection: &mut dyn Connection, keyring: &Keyring) -> Result<Keys, StoreError> {
    let all = connection.all(ALL_KEYS, &[], (KEYS.table, KEYS.columns), |row| {
        let (number, sealed) = (row.count()?, row.bytes()?);
        let key = keyring.open(KEYS.table, &number.to_be_bytes(), &sealed)?;
        let key = key.first_chunk().ok_or_else(|| row.corrupt("not a key"))?;
        Ok((number, SealingKey::of(key)))
    })?;
    Ok(Keys { journal: BTreeMap::from_iter(all), data: HashMap::new() })
}

/// Reads a row.
pub(crate) fn read(row: &mut sql::Row) -> Result<Row, StoreError> {
    let head = head(row)?;
    Ok(Row { body: row.bytes()?, ..head })
}

/// Reads a row without its body.
fn head(row: &mut sql::Row) -> Result<Row, StoreError> {
    Ok(Row {
        seq: counted(row)?,
        epoch: counted(row)?,
        at: row.time()?,
        previous: hash(row)?,
        hash: hash(row)?,
        body: Vec::new(),
    })
}

/// The change sets of a row, or why they cannot be read.
pub(crate) fn open(keys: &Keys, database: Uuid, row: &Row) -> Result<Vec<ChangeSet>, String> {
    let previous = End { seq: row.seq.saturating_sub(1), hash: row.previous };
    let opened = frames::open(keys, Place { database, previous }, &row.body);
    let opened = opened.map_err(|error| error.to_string())?;
    from_frames(opened).ok_or_else(|| "the body has no change sets".to_owned())
}

/// Rows of the journal that are read together, with the data keys that they need.
pub(crate) struct Rows {
    after: i64,
    since: Timestamp,
    is_whole: bool,
}

impl Rows {
    /// The rows since a time.
    pub(crate) fn since(since: Timestamp) -> Self {
        Self { after: 0, since, is_whole: false }
    }

    /// Every row.
    pub(crate) fn all() -> Self {
        Self::since(Timestamp::from_millis(0))
    }

    /// The values of some more rows; none behind the last.
    pub(crate) fn next(
        &mut self,
        connection: &mut dyn Connection,
    ) -> Result<Vec<Vec<Value>>, StoreError> {
        let (mut rows, limit) = (Vec::new(), catalogue::rows_at_once(&JOURNAL));
        if self.is_whole {
            return Ok(rows);
        }
        let count = i64::try_from(limit).unwrap_or(i64::MAX);
        let parameters = [self.since.into(), self.after.into(), count.into()];
        connection.query(ROWS, &parameters, JOURNAL.columns.len(), &mut |values| {
            if let Some(Value::Int(seq)) = values.first() {
                self.after = self.after.max(*seq);
            }
            rows.push(values);
            Ok(())
        })?;
        self.is_whole = rows.len() < limit;
        Ok(rows)
    }
}

/// Hands over the rows since a time, each with its change sets. One that cannot be read is an
/// error.
pub(crate) fn each(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    since: Timestamp,
    each: &mut dyn FnMut(Row, Vec<ChangeSet>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let database = database(connection)?.ok_or_else(|| no("id"))?;
    let (mut keys, mut some) = (keys(connection, keyring)?, Rows::since(since));
    loop {
        let rows = some.next(connection)?.into_iter();
        let rows =
            rows.map(|values| read(&mut sql::Row::new(JOURNAL.table, JOURNAL.columns, values)));
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        if rows.is_empty() {
            return Ok(());
        }
        keys.data = data_keys::of_rows(connection, keyring, rows.iter())?;
        for row in rows {
            let sets = open(&keys, database, &row).map_err(|what| StoreError::Corrupt {
                place: format!("row {} of the journal", row.seq),
                what,
            })?;
            each(row, sets)?;
        }
    }
}

/// How far the tables follow the journal.
pub(crate) fn applied(connection: &mut dyn Connection) -> Result<End, StoreError> {
    let read = |row: &mut sql::Row| Ok(End { seq: counted(row)?, hash: hash(row)? });
    let columns = (APPLIED.table, &["seq", "hash"][..]);
    Ok(connection.first(APPLIED_ROW, &[], columns, read)?.unwrap_or(End::START))
}

fn counted(row: &mut sql::Row) -> Result<u64, StoreError> {
    let value = row.int()?;
    u64::try_from(value).map_err(|_| row.corrupt("not a count"))
}

/// Reads the hash of a row.
fn hash(row: &mut sql::Row) -> Result<RowHash, StoreError> {
    let bytes = row.bytes()?;
    bytes.try_into().map(RowHash).map_err(|_| row.corrupt("not a hash"))
}

/// The end of the journal, as its writer knows it.
pub(crate) struct Tail {
    database: Uuid,
    keys: Keys,
    /// Nothing if another may have appended since.
    chain: Option<Chain>,
}

/// Change sets that are to be committed.
pub(crate) struct Prepared {
    writes: Vec<Write>,
    chain: Chain,
}

impl Tail {
    /// Finds the journal of a database.
    pub(crate) fn open(
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<Self, StoreError> {
        let database = database(connection)?.ok_or_else(|| no("id"))?;
        let keys = keys(connection, keyring)?;
        if keys.journal.is_empty() {
            return Err(no("key"));
        }
        Ok(Self { database, keys, chain: None })
    }

    /// Forgets where the journal ends, and the data keys: another server may have appended.
    pub(crate) fn forget(&mut self) {
        self.chain = None;
        self.keys.data.clear();
    }

    /// The writes that append change sets and bring the tables up to date, inside a transaction.
    /// The data keys of `erased` owners go with it.
    pub(crate) fn prepare(
        &mut self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
        sets: Vec<ChangeSet>,
        erased: &BTreeSet<Uuid>,
        at: Timestamp,
    ) -> Result<Prepared, StoreError> {
        let mut chain = match self.chain {
            Some(chain) => chain,
            None => self.find(connection, keyring)?,
        };
        let (mut rows, mut sets) = (Vec::new(), sets);
        let mut changes = Vec::new();
        sets.retain_mut(|set| {
            let is_empty = set.rows.is_empty();
            // A lease is renewed all the time, and is no data.
            changes.extend(set.rows.extract_if(.., |row| row.change.table == Lease::NUMBER));
            is_empty || !set.rows.is_empty()
        });
        let mut writes = Vec::new();
        if !erased.is_empty() {
            writes.push(data_keys::erase(&mut self.keys.data, erased));
        }
        let known = &mut self.keys.data;
        writes.extend(data_keys::of_change_sets(connection, keyring, known, &mut sets)?);
        for sets in in_rows(&sets) {
            let place = Place { database: self.database, previous: chain.end() };
            let body = frames::seal(&self.keys, place, &to_frames(sets))
                .map_err(|error| StoreError::Engine(error.to_string()))?;
            let row = chain.next(EPOCH, at, body);
            chain.take(&row).map_err(|error| StoreError::Engine(error.to_string()))?;
            rows.push(values(row)?);
        }
        if !rows.is_empty() {
            writes.push(Write { shape: &JOURNAL, change: Change::Insert, rows });
            writes.push(follow(chain.end())?);
        }
        changes.extend(sets.into_iter().flat_map(|set| set.rows));
        writes.extend(projector::writes(changes.into_iter().map(|row| row.change), keyring)?);
        Ok(Prepared { writes, chain })
    }

    /// Takes note that change sets were committed.
    pub(crate) fn committed(&mut self, chain: Chain) {
        self.chain = Some(chain);
    }

    /// The chain behind the last row. There may be a new key, too.
    fn find(
        &mut self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<Chain, StoreError> {
        self.keys.journal = keys(connection, keyring)?.journal;
        let last = connection.first(LAST, &[], (JOURNAL.table, HEAD), head)?;
        Ok(last.map_or(Chain::new(self.database), |row| Chain::behind(self.database, &row)))
    }
}

impl Prepared {
    /// Commits them. Gives the chain behind them.
    pub(crate) fn commit(self, connection: &mut dyn Connection) -> Result<Chain, StoreError> {
        connection.write(self.writes)?;
        connection.commit()?;
        Ok(self.chain)
    }
}

/// The journal lacks something.
fn no(what: &str) -> StoreError {
    StoreError::Engine(format!("the journal of the database has no {what}: run switchyard verify"))
}

/// Random bytes.
pub(super) fn drawn<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut drawn = [0; N];
    #[expect(
        clippy::disallowed_methods,
        reason = "keys and a name, and nothing is decided by them"
    )]
    getrandom::fill(&mut drawn)
        .map_err(|error| StoreError::Engine(format!("no random bits from the system: {error}")))?;
    Ok(drawn)
}

/// Begins the journal of a new database with its id and its key, inside a transaction.
pub(crate) fn begin(connection: &mut dyn Connection, keyring: &Keyring) -> Result<(), StoreError> {
    const FIRST: u32 = 1;
    keep_database(connection, Uuid::from_bytes(drawn()?))?;
    add_key(connection, keyring, FIRST)
}

/// Draws the key of the journal with this number, inside a transaction.
fn add_key(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    number: u32,
) -> Result<(), StoreError> {
    let sealed = keyring.seal(KEYS.table, &number.to_be_bytes(), &drawn::<KEY_LENGTH>()?);
    let rows = vec![vec![number.into(), sealed.into()]];
    connection.write(vec![Write { shape: &KEYS, change: Change::Insert, rows }])
}

/// Draws another key of the journal, with which rows are sealed from then on, inside a transaction.
/// Other servers find it when they find that another has written.
pub(crate) fn add_next_key(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    let last = keys(connection, keyring)?.journal.last_key_value().map_or(0, |(number, _)| *number);
    add_key(connection, keyring, last + 1)
}

/// Change sets by the rows that have them.
fn in_rows(sets: &[ChangeSet]) -> impl Iterator<Item = &[ChangeSet]> {
    let mut rest = sets;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take_while(|set| {
            let is_first = bytes == 0;
            bytes += size(set);
            is_first || bytes <= BODY_MAX
        });
        let (row, behind) = rest.split_at(fits.count());
        rest = behind;
        (!row.is_empty()).then_some(row)
    })
}

/// How many bytes a change set has, about; never none.
fn size(set: &ChangeSet) -> usize {
    let value = |value: &Value| match value {
        Value::Null => 1,
        Value::Int(_) => 9,
        Value::Text(text) => 3 + text.len(),
        Value::Bytes(bytes) => 3 + bytes.len(),
    };
    let row = |values: &[Value]| 8 + values.iter().map(value).sum::<usize>();
    32 + set.rows.iter().map(|it| row(&it.change.values)).sum::<usize>()
}

/// A row as the table has it.
fn values(row: Row) -> Result<Vec<Value>, StoreError> {
    Ok(vec![
        number(row.seq)?.into(),
        number(row.epoch)?.into(),
        row.at.into(),
        Value::from(&row.previous.0[..]),
        Value::from(&row.hash.0[..]),
        row.body.into(),
    ])
}

/// The write that says how far the tables follow.
fn follow(end: End) -> Result<Write, StoreError> {
    let row = vec![Value::Int(1), number(end.seq)?.into(), Value::from(&end.hash.0[..])];
    Ok(Write { shape: &APPLIED, change: Change::Upsert, rows: vec![row] })
}

#[cfg(test)]
mod tests;
