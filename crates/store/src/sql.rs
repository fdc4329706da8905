//! The interface to an SQL engine: connections, statements, and the values of rows.
//!
//! One SQL text serves every engine. Parameters are `$1`, `$2`, … in the order in which they first
//! appear, which SQLite and Postgres number alike. No text asks the database for time or chance,
//! and expected outcomes are rows, not errors.

mod value;

use std::sync::OnceLock;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::seal::Seal;

pub use self::value::Value;

/// One row, read column by column from the left. Every mistake names the table and the column.
#[derive(Debug)]
pub struct Row {
    table: &'static str,
    columns: &'static [&'static str],
    values: std::vec::IntoIter<Value>,
    next: usize,
}

/// Whether the last of a table's columns is sealed.
pub(crate) fn is_sealed(columns: &[&str]) -> bool {
    columns.last() == Some(&SEALED)
}

impl Row {
    /// A row of `table` whose values stand in the order of `columns`, nothing sealed.
    pub fn new(table: &'static str, columns: &'static [&'static str], values: Vec<Value>) -> Self {
        Self { table, columns, values: values.into_iter(), next: 0 }
    }

    /// An error about the column that was read last.
    pub fn corrupt(&self, what: impl std::fmt::Display) -> StoreError {
        let place = self.next.saturating_sub(1) % self.columns.len().max(1);
        let column = self.columns.get(place).copied().unwrap_or("?");
        StoreError::Corrupt { place: format!("{}.{column}", self.table), what: what.to_string() }
    }

    fn value(&mut self) -> Value {
        self.next += 1;
        self.values.next().unwrap_or(Value::Null)
    }

    /// Whether every column was read.
    pub fn is_at_end(&self) -> bool {
        self.values.len() == 0
    }

    /// The next column, an integer.
    pub fn int(&mut self) -> Result<i64, StoreError> {
        match self.value() {
            Value::Int(value) => Ok(value),
            Value::Null | Value::Text(_) | Value::Bytes(_) => Err(self.corrupt("not an integer")),
        }
    }

    /// The next column, null or what `read` reads.
    pub fn or_null<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        // Columns that are newer than the values are null.
        if self.values.as_slice().first().is_none_or(|value| *value == Value::Null) {
            self.value();
            return Ok(None);
        }
        read(self).map(Some)
    }

    /// The next column, an integer or null.
    pub fn int_or_null(&mut self) -> Result<Option<i64>, StoreError> {
        self.or_null(Self::int)
    }

    /// The next column, a count.
    pub fn count(&mut self) -> Result<u32, StoreError> {
        let value = self.int()?;
        u32::try_from(value).map_err(|_| self.corrupt("not a count"))
    }

    /// The next column, a flag.
    pub fn flag(&mut self) -> Result<bool, StoreError> {
        match self.int()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.corrupt("neither 0 nor 1")),
        }
    }

    /// The next column, an instant.
    pub fn time(&mut self) -> Result<domain::time::Timestamp, StoreError> {
        self.int().map(domain::time::Timestamp::from_millis)
    }

    /// The next column, an instant or null.
    pub fn time_or_null(&mut self) -> Result<Option<domain::time::Timestamp>, StoreError> {
        self.or_null(Self::time)
    }

    /// The next column, text.
    pub fn text(&mut self) -> Result<String, StoreError> {
        match self.value() {
            Value::Text(value) => Ok(value.into_owned()),
            Value::Null | Value::Int(_) | Value::Bytes(_) => Err(self.corrupt("not text")),
        }
    }

    /// The next column, text or null.
    pub fn text_or_null(&mut self) -> Result<Option<String>, StoreError> {
        self.or_null(Self::text)
    }

    /// The next column, the name of something that `from_name` knows.
    pub fn named<T>(&mut self, from_name: impl FnOnce(&str) -> Option<T>) -> Result<T, StoreError> {
        let name = self.text()?;
        from_name(&name).ok_or_else(|| self.corrupt(format!("unknown value '{name}'")))
    }

    /// The next column, bytes.
    pub fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.value() {
            Value::Bytes(value) => Ok(value),
            Value::Null | Value::Int(_) | Value::Text(_) => Err(self.corrupt("not bytes")),
        }
    }

    /// The next column, bytes or null.
    pub fn bytes_or_null(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        self.or_null(Self::bytes)
    }

    /// The next column, a uuid.
    pub fn uuid(&mut self) -> Result<uuid::Uuid, StoreError> {
        let bytes = self.bytes()?;
        uuid::Uuid::from_slice(&bytes).map_err(|_| self.corrupt("not a uuid"))
    }

    /// The next column, a uuid or null.
    pub fn uuid_or_null(&mut self) -> Result<Option<uuid::Uuid>, StoreError> {
        self.or_null(Self::uuid)
    }

    /// The next column, an identifier.
    pub fn id<K: domain::id::Kind>(&mut self) -> Result<domain::id::Id<K>, StoreError> {
        self.uuid().map(domain::id::Id::from_uuid)
    }

    /// The next column, the code of a currency of the books.
    pub fn currency_of_books(&mut self) -> Result<domain::currency::Currency, StoreError> {
        self.named(domain::currency::Currency::of_books)
    }

    /// The next column, the code of a currency.
    pub fn currency(&mut self) -> Result<domain::currency::Currency, StoreError> {
        self.named(domain::currency::Currency::from_code)
    }
}

/// The values of a row's first columns. A list that is collected with its errors does not know how
/// long it will be, and is moved as it grows.
pub(crate) fn collect_values(
    columns: usize,
    mut value: impl FnMut(usize) -> Result<Value, StoreError>,
) -> Result<Vec<Value>, StoreError> {
    let mut values = Vec::with_capacity(columns);
    for column in 0..columns {
        values.push(value(column)?);
    }
    Ok(values)
}

/// The name of the leadership lease: an engine sees by it whether a server is there.
pub const LEADERSHIP: &str = "JOBS";

/// The last column of a table whose rows are sealed.
pub(crate) const SEALED: &str = "sealed";

/// A table as engines read and write it by key. A database in this process takes one row at a time;
/// one behind a network takes many with each round trip.
#[derive(Debug)]
pub struct Shape {
    /// Its number in the journal. No other table has it, or ever had.
    pub number: u16,
    /// The table.
    pub table: &'static str,
    /// Its columns, those of the primary key first.
    pub columns: &'static [&'static str],
    /// How many of them are the primary key.
    pub key: usize,
    /// How many of them name a record: fewer than the key, if a record has several rows.
    pub record_key: usize,
    /// How many values the journal has of each row. A sealed row without a sealed part has one
    /// column more: its seal.
    pub width: usize,
    /// How its rows are sealed.
    pub seal: Seal,
    /// The places of the columns that have a keyed hash in the place of their value.
    pub hidden: Vec<usize>,
    /// Whether the last value of a row stands in the journal alone: the table has the number of
    /// its row there.
    pub is_body_in_journal: bool,
    texts: OnceLock<Texts>,
}

/// The statements of a table for one row each. Parameters stand in the order in which they appear.
#[derive(Debug)]
pub struct Texts {
    /// Rows by the first column of the key, in the order of the key: all columns.
    pub select: String,
    /// All columns.
    pub insert: String,
    /// All columns; a row that is there is replaced.
    pub upsert: String,
    /// The key.
    pub delete: String,
}

impl Shape {
    /// A table whose primary key is its first column, and in which nothing is sealed.
    pub const fn new(number: u16, table: &'static str, columns: &'static [&'static str]) -> Self {
        let (key, record_key, is_body_in_journal) = (1, 1, false);
        let (width, seal) = (columns.len(), Seal::NONE);
        let hidden = Vec::new();
        let texts = OnceLock::new();
        Self {
            number,
            table,
            columns,
            key,
            record_key,
            width,
            seal,
            hidden,
            is_body_in_journal,
            texts,
        }
    }

    /// The table with a primary key of so many columns, of which so many name a record.
    #[must_use]
    pub const fn with_key(mut self, key: usize, record_key: usize) -> Self {
        (self.key, self.record_key) = (key, record_key);
        self
    }

    /// The table with rows of so many values in the journal, which are sealed in this way.
    #[must_use]
    pub const fn with_seal(mut self, width: usize, seal: Seal) -> Self {
        (self.width, self.seal) = (width, seal);
        self
    }

    /// The table, some of whose columns have a keyed hash of their value.
    #[must_use]
    pub fn with_hidden(mut self, names: &[&str]) -> Self {
        let place = |name| self.columns.iter().position(|column| column == name);
        self.hidden = names.iter().filter_map(place).collect();
        self
    }

    /// The table, whose last value may stand in the journal alone.
    #[must_use]
    pub const fn with_body_in_journal(mut self, is_body_in_journal: bool) -> Self {
        self.is_body_in_journal = is_body_in_journal;
        self
    }

    /// The rows of a table as it keeps them: from the values of one or more, one behind the other,
    /// nothing sealed. Columns that are newer than the values are null.
    pub fn rows(&self, values: Vec<Value>, keyring: &Keyring) -> Vec<Vec<Value>> {
        let mut rows = parts(values, self.width);
        if let Some(last) = rows.last_mut() {
            last.resize(self.width, Value::Null);
        }
        rows.iter_mut().for_each(|row| (self.seal.seal)(self, row, keyring));
        rows
    }

    /// The values of one or more rows as the table has them, one behind the other, as the journal
    /// has them. [`StoreError::Sealed`] if a row is not as it was sealed.
    pub fn opened(&self, values: Vec<Value>, keyring: &Keyring) -> Result<Vec<Value>, StoreError> {
        let mut rows = parts(values, self.columns.len());
        for row in &mut rows {
            (self.seal.open)(self, row, keyring)?;
        }
        Ok(match rows.len() {
            1 => rows.swap_remove(0),
            _ => rows.concat(),
        })
    }

    /// The clause of an insert that replaces a row that is there.
    pub(crate) fn replace(&self) -> String {
        let (keys, rest) = self.columns.split_at(self.key);
        let sets: Vec<_> = rest.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        format!("on conflict ({}) do update set {}", keys.join(", "), sets.join(", "))
    }

    /// Whether an edit of any column of a row is found.
    pub const fn is_sealed(&self) -> bool {
        self.seal.covers_row
    }

    /// The statements for one row.
    pub fn texts(&self) -> &Texts {
        self.texts.get_or_init(|| self.make_texts())
    }

    fn make_texts(&self) -> Texts {
        let Self { table, columns, key, .. } = *self;
        let list = columns.join(", ");
        let numbered: Vec<_> = (1..=columns.len()).map(|number| format!("${number}")).collect();
        let numbered = numbered.join(", ");
        let keys = &columns[..key];
        let meets: Vec<_> =
            (1..).zip(keys).map(|(number, column)| format!("{column} = ${number}")).collect();
        let insert = format!("insert into {table} ({list}) values ({numbered})");
        Texts {
            select: format!(
                "select {list} from {table} where {} = $1 order by {}",
                keys[0],
                keys.join(", ")
            ),
            upsert: format!("{insert} {}", self.replace()),
            insert,
            delete: format!("delete from {table} where {}", meets.join(" and ")),
        }
    }
}

/// Values in parts of a width, the last of which may be shorter: one at least.
fn parts(mut values: Vec<Value>, width: usize) -> Vec<Vec<Value>> {
    let mut parts = Vec::with_capacity(values.len() / width.max(1));
    while values.len() > width {
        let rest = values.split_off(width);
        parts.push(std::mem::replace(&mut values, rest));
    }
    parts.push(values);
    parts
}

/// Rows of one table that are wanted: those whose first column is one of these.
#[derive(Debug)]
pub struct Keys {
    /// The table.
    pub shape: &'static Shape,
    /// The values of its first column.
    pub keys: Vec<Value>,
}

/// The kind of a change to rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// They are new: all columns. A row that is there already is refused.
    Insert,
    /// They may be there: all columns.
    Upsert,
    /// They go, if they are there: the columns of the key.
    Delete,
}

/// One change to rows of one table.
#[derive(Debug)]
pub struct Write {
    /// The table.
    pub shape: &'static Shape,
    /// The kind of the change.
    pub change: Change,
    /// The rows, no two with the same key.
    pub rows: Vec<Vec<Value>>,
}

impl dyn Connection + '_ {
    /// Reads the rows of a query, whose columns are those of a table or named like them.
    pub(crate) fn all<T>(
        &mut self,
        sql: &str,
        parameters: &[Value],
        (table, columns): (&'static str, &'static [&'static str]),
        mut read: impl FnMut(&mut Row) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut all = Vec::new();
        self.query(sql, parameters, columns.len(), &mut |values| {
            all.push(read(&mut Row::new(table, columns, values))?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads the row of a query that has one at most.
    pub(crate) fn first<T>(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: (&'static str, &'static [&'static str]),
        read: impl FnMut(&mut Row) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.all(sql, parameters, columns, read)?.into_iter().next())
    }
}

/// Commits what `work` does, or leaves nothing of it.
pub(crate) fn transaction<C: Connection + ?Sized, T, E: From<StoreError>>(
    connection: &mut C,
    work: impl FnOnce(&mut C) -> Result<T, E>,
) -> Result<T, E> {
    connection.begin()?;
    match work(connection) {
        Ok(done) => {
            connection.commit()?;
            Ok(done)
        }
        Err(error) => {
            connection.rollback()?;
            Err(error)
        }
    }
}

/// One connection of an engine. Synchronous: no other network call fits between its statements.
/// An engine that lost its connection makes a new one at the next [`Connection::begin`] or
/// [`Connection::begin_read`].
pub trait Connection: Send {
    /// Starts a transaction that will write, and takes the write lock until its end: here, or with
    /// the first statement.
    fn begin(&mut self) -> Result<(), StoreError>;

    /// Starts a transaction that only reads, from one snapshot.
    fn begin_read(&mut self) -> Result<(), StoreError>;

    /// Gets ready for one statement that reads, which is a snapshot without a transaction.
    fn begin_point_read(&mut self) -> Result<(), StoreError>;

    /// Makes the transaction durable. [`StoreError::OutcomeUnknown`] means that it may be: only the
    /// next start can find out, or across a network the next transaction.
    fn commit(&mut self) -> Result<(), StoreError>;

    /// Leaves the transaction without a trace.
    fn rollback(&mut self) -> Result<(), StoreError>;

    /// Runs a statement and gives how many rows it changed.
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize, StoreError>;

    /// Runs a query and hands over each row's values; `columns` is how many there are.
    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Hands over the rows whose first column is one of `keys`: all columns. Rows with the same
    /// first column come together, in the order of the key.
    fn fetch(
        &mut self,
        shape: &'static Shape,
        keys: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Runs a query of so many columns, and then [`Connection::fetch`] for several tables: in one
    /// round trip, where there is a network. `each` gets 0 with the rows of the query, and the
    /// place of the table in `wanted`, from 1, with the others.
    fn fetch_all(
        &mut self,
        (sql, columns): (&str, usize),
        wanted: &[Keys],
        each: &mut dyn FnMut(usize, Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.query(sql, &[], columns, &mut |values| each(0, values))?;
        for (place, Keys { shape, keys }) in (1..).zip(wanted) {
            self.fetch(shape, keys, &mut |values| each(place, values))?;
        }
        Ok(())
    }

    /// Makes changes, in their order.
    fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError>;

    /// Gives back the room of the disk that is kept for when it is full.
    fn free_reserve(&mut self) {}

    /// Keeps that room again. [`StoreError::DiskFull`] if there is not enough.
    fn keep_reserve(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether a query is a network round trip, so that reading many rows at once is worth work.
    fn is_remote(&self) -> bool;

    /// Whether the connection was not lost since the transaction began.
    fn is_connected(&self) -> bool {
        true
    }

    /// Leaves the database so that its main file alone is complete: called before the connection
    /// that writes is closed. A failure loses nothing; the next start finds the rest in the log.
    fn settle(&mut self) -> Result<(), StoreError>;

    /// Checks that the engine accepts a statement without running it.
    fn prepare(&mut self, sql: &str) -> Result<(), StoreError>;

    /// Faults of the database that the engine itself finds: damaged pages and indexes, values that
    /// a constraint refuses. Each line is a finding.
    fn integrity(&mut self) -> Result<Vec<String>, StoreError>;
}
