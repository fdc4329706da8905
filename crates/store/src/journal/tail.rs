//! The end of the journal in a database, where its writer appends.
//!
//! A batch is one row, or more if its change sets are long. `applied` names the last row that the
//! tables follow.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use domain::time::Timestamp;
use uuid::Uuid;

use super::change_set::{ChangeSet, TableChange, from_frames, to_frames};
use super::data_keys::{self, DATA_KEYS};
use super::frames::{self, Keys, Opened, Place};
use super::{Chain, End, Row, RowHash, lost_commit, number};
use crate::catalogue;
use crate::engine::{self, SET_META};
use crate::error::StoreError;
use crate::keyring::{JournalKey, KEY_LENGTH, Keyring};
use crate::sealing;
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

/// Those that are kept beside the tables which follow it, and not with them.
pub(crate) const SHAPES_OF_JOURNAL: [&Shape; 3] = [&JOURNAL, &KEYS, &DATA_KEYS];

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

/// Says that the tables follow another row, if they stand where they are known to stand.
pub(crate) const FOLLOW: &str =
    "update applied set seq = $1, hash = $2 where one = 1 and seq = $3 and hash = $4";

/// The number of the last row, and of the last that the tables follow.
pub(crate) const ENDS: &str = "select coalesce((select max(seq) from journal), 0), \
    coalesce((select seq from applied where one = 1), 0)";

/// The row with a number.
pub(crate) const ROW: &str = "select seq, epoch, at, previous, hash from journal where seq = $1";

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

/// The id of a database that has one.
pub(crate) fn database_of(connection: &mut dyn Connection) -> Result<Uuid, StoreError> {
    database(connection)?.ok_or_else(|| no("id"))
}

/// Gives a database its id, inside a transaction.
pub(crate) fn keep_database(
    connection: &mut dyn Connection,
    database: Uuid,
) -> Result<(), StoreError> {
    connection.execute(SET_META, &[DATABASE_NAME, database.into()]).map(drop)
}

/// The keys of a journal. A key that does not open is sealed with a newer secret, which this
/// process learns here, before it reads a row behind the announcement (`sealing`).
pub(crate) fn keys(connection: &mut dyn Connection, keyring: &Keyring) -> Result<Keys, StoreError> {
    match open_keys(connection, keyring) {
        Err(StoreError::Sealed { .. }) => {
            sealing::learn(connection, keyring)?;
            open_keys(connection, keyring)
        }
        keys => keys,
    }
}

fn open_keys(connection: &mut dyn Connection, keyring: &Keyring) -> Result<Keys, StoreError> {
    let all = connection.all(ALL_KEYS, &[], (KEYS.table, KEYS.columns), |row| {
        let (number, sealed) = (row.count()?, row.bytes()?);
        let key = keyring.open(KEYS.table, &number.to_be_bytes(), &sealed)?;
        let key = key.first_chunk().ok_or_else(|| row.corrupt("not a key"))?;
        Ok((number, JournalKey::of(key)))
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
    change_sets(frames_of(keys, database, row)?)
}

/// The frames of a row, or why they cannot be read.
pub(super) fn frames_of(keys: &Keys, database: Uuid, row: &Row) -> Result<Vec<Opened>, String> {
    let previous = End { seq: row.seq.saturating_sub(1), hash: row.previous };
    let place = Place { database, previous, epoch: row.epoch, at: row.at };
    let opened = frames::open(keys, place, &row.body);
    opened.map_err(|error| error.to_string())
}

/// The change sets of frames.
pub(super) fn change_sets(frames: Vec<Opened>) -> Result<Vec<ChangeSet>, String> {
    from_frames(frames).ok_or_else(|| "the body has no change sets".to_owned())
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

    /// The rows behind one with this number.
    pub(crate) fn behind(seq: u64) -> Self {
        let after = i64::try_from(seq).unwrap_or(i64::MAX);
        Self { after, ..Self::since(Timestamp::from_millis(0)) }
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

/// A reader of rows with their change sets.
pub(crate) struct Scan {
    database: Uuid,
    keys: Keys,
    rows: Rows,
}

impl Scan {
    /// Begins to read some rows.
    pub(crate) fn of(
        connection: &mut dyn Connection,
        keyring: &Keyring,
        rows: Rows,
    ) -> Result<Self, StoreError> {
        let database = database_of(connection)?;
        Ok(Self { database, keys: keys(connection, keyring)?, rows })
    }

    /// Some more rows, each with its change sets; none behind the last. A row that cannot be read
    /// is an error.
    pub(crate) fn next(
        &mut self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<Vec<(Row, Vec<ChangeSet>)>, StoreError> {
        let rows = self.rows.next(connection)?.into_iter();
        let rows =
            rows.map(|values| read(&mut sql::Row::new(JOURNAL.table, JOURNAL.columns, values)));
        let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
        if !rows.iter().all(|row| frames::has_key(&self.keys, &row.body)) {
            // Rows and keys may be of two snapshots, with a new key between them.
            self.keys = keys(connection, keyring)?;
        }
        self.keys.data = data_keys::of_rows(connection, keyring, &self.keys.journal, rows.iter())?;
        let opened = rows.into_iter().map(|row| {
            let sets = open(&self.keys, self.database, &row).map_err(|what| {
                StoreError::Corrupt { place: format!("row {} of the journal", row.seq), what }
            })?;
            Ok((row, sets))
        });
        opened.collect()
    }
}

/// Hands over rows, each with its change sets. One that cannot be read is an error.
pub(crate) fn each(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    rows: Rows,
    each: &mut dyn FnMut(Row, Vec<ChangeSet>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut scan = Scan::of(connection, keyring, rows)?;
    loop {
        let rows = scan.next(connection, keyring)?;
        if rows.is_empty() {
            return Ok(());
        }
        rows.into_iter().try_for_each(|(row, sets)| each(row, sets))?;
    }
}

/// How far the tables follow the journal.
pub(crate) fn applied(connection: &mut dyn Connection) -> Result<End, StoreError> {
    Ok(said_applied(connection)?.unwrap_or(End::START))
}

/// The same, if the database says it.
pub(crate) fn said_applied(connection: &mut dyn Connection) -> Result<Option<End>, StoreError> {
    let mut applied = None;
    connection.fetch(&APPLIED, &[Value::Int(1)], &mut |values| {
        let row = &mut sql::Row::new(APPLIED.table, APPLIED.columns, values);
        row.int()?;
        applied = Some(End { seq: counted(row)?, hash: hash(row)? });
        Ok(())
    })?;
    Ok(applied)
}

/// Says that the tables follow the row `to`, inside a transaction. Whether they stood at `from`:
/// nothing is said otherwise.
pub(crate) fn follow(
    connection: &mut dyn Connection,
    from: End,
    to: End,
) -> Result<bool, StoreError> {
    let [to, from] = [to, from].map(|End { seq, hash }| (number(seq), Value::from(&hash.0[..])));
    let parameters = [to.0?.into(), to.1, from.0?.into(), from.1];
    Ok(connection.execute(FOLLOW, &parameters)? == 1)
}

/// The numbers of the last row, and of the last that the tables follow, in one snapshot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    pub(crate) last: u64,
    pub(crate) applied: u64,
}

impl Ends {
    const COLUMNS: &'static [&'static str] = &["last", "applied"];

    /// How they are fetched together with other rows.
    pub(crate) const QUERY: (&'static str, usize) = (ENDS, Self::COLUMNS.len());

    /// Reads them.
    pub(crate) fn read(values: Vec<Value>) -> Result<Self, StoreError> {
        let row = &mut sql::Row::new(JOURNAL.table, Self::COLUMNS, values);
        Ok(Self { last: counted(row)?, applied: counted(row)? })
    }
}

/// The ends, by themselves.
pub(crate) fn ends(connection: &mut dyn Connection) -> Result<Ends, StoreError> {
    let mut ends = Ends::default();
    connection.fetch_all(Ends::QUERY, &[], &mut |_, values| {
        ends = Ends::read(values)?;
        Ok(())
    })?;
    Ok(ends)
}

/// The last row, without its body.
pub(super) fn last(connection: &mut dyn Connection) -> Result<Option<Row>, StoreError> {
    connection.first(LAST, &[], (JOURNAL.table, HEAD), head)
}

/// The last row, or the place before the first.
pub(crate) fn end(connection: &mut dyn Connection) -> Result<End, StoreError> {
    Ok(last(connection)?.map_or(End::START, |row| End { seq: row.seq, hash: row.hash }))
}

/// The row with a number, without its body.
pub(super) fn row(connection: &mut dyn Connection, seq: u64) -> Result<Option<Row>, StoreError> {
    connection.first(ROW, &[number(seq)?.into()], (JOURNAL.table, HEAD), head)
}

/// Whether the journal has a row.
pub(crate) fn has(connection: &mut dyn Connection, end: End) -> Result<bool, StoreError> {
    let found = row(connection, end.seq)?;
    Ok(end == End::START || found.is_some_and(|row| row.hash == end.hash))
}

/// The chain behind a row, which the journal must have.
pub(crate) fn chain_behind(
    connection: &mut dyn Connection,
    database: Uuid,
    end: End,
) -> Result<Chain, StoreError> {
    if end == End::START {
        return Ok(Chain::new(database));
    }
    let found = row(connection, end.seq)?.filter(|row| row.hash == end.hash);
    found.map(|row| Chain::behind(database, &row)).ok_or_else(|| {
        StoreError::Engine(format!(
            "the tables follow row {} of another journal: tables and journal do not belong \
             together",
            end.seq
        ))
    })
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

/// The keys with which a writer seals rows.
pub(crate) struct Tail {
    database: Uuid,
    keys: Keys,
}

/// Change sets that are to be committed.
pub(crate) struct Prepared {
    writes: Vec<Write>,
    rows: Vec<Appended>,
    frames: usize,
    bytes: usize,
}

/// A row that is appended: the chain behind it, and its changes.
pub(crate) type Appended = (Chain, Vec<TableChange>);

impl Tail {
    /// Finds the journal of a database.
    pub(crate) fn open(
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<Self, StoreError> {
        let database = database_of(connection)?;
        let keys = keys(connection, keyring)?;
        if keys.journal.is_empty() {
            return Err(no("key"));
        }
        Ok(Self { database, keys })
    }

    /// The chain behind the last row.
    pub(crate) fn chain(&self, connection: &mut dyn Connection) -> Result<Chain, StoreError> {
        let last = last(connection)?;
        Ok(last.map_or(Chain::new(self.database), |row| Chain::behind(self.database, &row)))
    }

    /// Forgets the data keys: those of a batch that was not committed are none.
    pub(crate) fn forget(&mut self) {
        self.keys.data.clear();
    }

    /// Reads the keys again: another process has appended, perhaps with a new one.
    pub(crate) fn read_again(
        &mut self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<(), StoreError> {
        self.keys = keys(connection, keyring)?;
        Ok(())
    }

    /// The writes that append change sets behind a row, inside a transaction. The data keys of
    /// `erased` owners go with it.
    pub(crate) fn prepare(
        &mut self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
        mut chain: Chain,
        (mut sets, at): (Vec<ChangeSet>, Timestamp),
        erased: &BTreeSet<Uuid>,
    ) -> Result<Prepared, StoreError> {
        let mut writes = Vec::new();
        if !erased.is_empty() {
            writes.push(data_keys::erase(&mut self.keys.data, erased));
        }
        let known = (&self.keys.journal, &mut self.keys.data);
        writes.extend(data_keys::of_change_sets(connection, keyring, known, &mut sets)?);
        let (mut rows, mut appended) = (Vec::new(), Vec::new());
        let (mut count, mut bytes) = (0, 0);
        for sets in in_rows(sets) {
            let (place, frames) = (chain.place(EPOCH, at), to_frames(&sets));
            let body = frames::seal(&self.keys, place, &frames)
                .map_err(|error| StoreError::Engine(error.to_string()))?;
            (count, bytes) = (count + frames.len(), bytes + body.len());
            let row = chain.row(place, body);
            chain.take(&row).map_err(|error| StoreError::Engine(error.to_string()))?;
            rows.push(values(row)?);
            let changes = sets.into_iter().flat_map(|set| set.rows).map(|row| row.change);
            appended.push((chain, changes.collect()));
        }
        if !rows.is_empty() {
            writes.push(Write { shape: &JOURNAL, change: Change::Insert, rows });
        }
        Ok(Prepared { writes, rows: appended, frames: count, bytes })
    }
}

impl Prepared {
    /// With another change in the same transaction.
    pub(crate) fn with(mut self, beside: Option<Write>) -> Self {
        self.writes.extend(beside);
        self
    }

    /// Commits them. Gives the rows that were appended.
    pub(crate) fn commit(
        self,
        connection: &mut dyn Connection,
    ) -> Result<Vec<Appended>, StoreError> {
        #[expect(clippy::disallowed_methods, reason = "it is only measured")]
        let start = Instant::now();
        connection.write(self.writes)?;
        let end = self.rows.last().map(|(chain, _)| chain.end());
        lost_commit::commit(connection, end)?;
        metrics::histogram!("switchyard_journal_append_seconds").record(start.elapsed());
        let records: usize = self.rows.iter().map(|(_, changes)| changes.len()).sum();
        metrics::counter!("switchyard_journal_rows_total").increment(self.rows.len() as u64);
        metrics::counter!("switchyard_journal_records_total").increment(records as u64);
        metrics::counter!("switchyard_journal_frames_total").increment(self.frames as u64);
        metrics::counter!("switchyard_journal_bytes_total").increment(self.bytes as u64);
        Ok(self.rows)
    }
}

/// The journal lacks something.
fn no(what: &str) -> StoreError {
    let what = format!("it has no {what}: run switchyard verify");
    StoreError::Corrupt { place: "the journal of the database".to_owned(), what }
}

/// Random bytes.
pub(crate) fn drawn<const N: usize>() -> Result<[u8; N], StoreError> {
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
    begin_tables(connection)?;
    add_key(connection, keyring, FIRST)
}

/// Says that new tables follow no row yet, inside a transaction.
pub(crate) fn begin_tables(connection: &mut dyn Connection) -> Result<(), StoreError> {
    if said_applied(connection)?.is_some() {
        return Ok(());
    }
    let row = vec![Value::Int(1), Value::Int(0), Value::from(&RowHash::NONE.0[..])];
    connection.write(vec![Write { shape: &APPLIED, change: Change::Insert, rows: vec![row] }])
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
fn in_rows(mut sets: Vec<ChangeSet>) -> impl Iterator<Item = Vec<ChangeSet>> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = sets.iter().take_while(|set| {
            let is_first = bytes == 0;
            bytes += size(set);
            is_first || bytes <= BODY_MAX
        });
        let behind = sets.split_off(fits.count());
        let row = std::mem::replace(&mut sets, behind);
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

#[cfg(test)]
mod tests;
