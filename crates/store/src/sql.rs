//! What the store asks of an SQL engine, and values that go in and come out.
//!
//! One SQL text serves every engine. Parameters are `$1`, `$2`, … in the order in which they first
//! appear, which SQLite and Postgres number alike. No text asks the database for time or chance,
//! and expected outcomes are rows, not errors.

use std::borrow::Cow;

use crate::error::StoreError;

/// A value of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Null,
    /// A 64-bit integer, also times (milliseconds) and flags (0, 1).
    Int(i64),
    /// Text.
    Text(Cow<'static, str>),
    /// Bytes, also uuids (16 of them).
    Bytes(Vec<u8>),
}

impl Value {
    /// Text that lives as long as the program, such as the name of a state.
    pub const fn name(name: &'static str) -> Self {
        Self::Text(Cow::Borrowed(name))
    }

    /// `Null` or the value.
    pub fn or_null<T: Into<Self>>(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}
impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}
impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Cow::Owned(value))
    }
}
impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Cow::Owned(value.to_owned()))
    }
}
impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}
impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.to_vec())
    }
}
impl From<uuid::Uuid> for Value {
    fn from(value: uuid::Uuid) -> Self {
        Self::Bytes(value.as_bytes().to_vec())
    }
}
impl<K> From<domain::id::Id<K>> for Value
where
    K: domain::id::Kind,
{
    fn from(value: domain::id::Id<K>) -> Self {
        value.uuid().into()
    }
}
impl From<domain::time::Timestamp> for Value {
    fn from(value: domain::time::Timestamp) -> Self {
        Self::Int(value.millis())
    }
}

/// One row, read column by column from the left. Every mistake names the table and the column.
#[derive(Debug)]
pub struct Row {
    table: &'static str,
    columns: &'static [&'static str],
    values: std::vec::IntoIter<Value>,
    next: usize,
}

impl Row {
    /// A row of `table` whose values stand in the order of `columns`.
    pub fn new(table: &'static str, columns: &'static [&'static str], values: Vec<Value>) -> Self {
        Self { table, columns, values: values.into_iter(), next: 0 }
    }

    /// An error about the column that was read last.
    pub fn corrupt(&self, what: impl std::fmt::Display) -> StoreError {
        let column = self.columns.get(self.next.saturating_sub(1)).copied().unwrap_or("?");
        StoreError::Corrupt { place: format!("{}.{column}", self.table), what: what.to_string() }
    }

    fn value(&mut self) -> Value {
        self.next += 1;
        self.values.next().unwrap_or(Value::Null)
    }

    /// The next column, an integer.
    pub fn int(&mut self) -> Result<i64, StoreError> {
        match self.value() {
            Value::Int(value) => Ok(value),
            Value::Null | Value::Text(_) | Value::Bytes(_) => Err(self.corrupt("not an integer")),
        }
    }

    /// The next column, an integer or null.
    pub fn int_or_null(&mut self) -> Result<Option<i64>, StoreError> {
        match self.value() {
            Value::Int(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            Value::Text(_) | Value::Bytes(_) => Err(self.corrupt("not an integer")),
        }
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

    /// The next column, text.
    pub fn text(&mut self) -> Result<String, StoreError> {
        match self.value() {
            Value::Text(value) => Ok(value.into_owned()),
            Value::Null | Value::Int(_) | Value::Bytes(_) => Err(self.corrupt("not text")),
        }
    }

    /// The next column, text or null.
    pub fn text_or_null(&mut self) -> Result<Option<String>, StoreError> {
        match self.value() {
            Value::Text(value) => Ok(Some(value.into_owned())),
            Value::Null => Ok(None),
            Value::Int(_) | Value::Bytes(_) => Err(self.corrupt("not text")),
        }
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

    /// The next column, a uuid.
    pub fn uuid(&mut self) -> Result<uuid::Uuid, StoreError> {
        let bytes = self.bytes()?;
        uuid::Uuid::from_slice(&bytes).map_err(|_| self.corrupt("not a uuid"))
    }

    /// The next column, a uuid or null.
    pub fn uuid_or_null(&mut self) -> Result<Option<uuid::Uuid>, StoreError> {
        match self.value() {
            Value::Null => Ok(None),
            Value::Bytes(bytes) => {
                uuid::Uuid::from_slice(&bytes).map(Some).map_err(|_| self.corrupt("not a uuid"))
            }
            Value::Int(_) | Value::Text(_) => Err(self.corrupt("not a uuid")),
        }
    }

    /// The next column, an identifier.
    pub fn id<K: domain::id::Kind>(&mut self) -> Result<domain::id::Id<K>, StoreError> {
        self.uuid().map(domain::id::Id::from_uuid)
    }

    /// The next column, the code of a currency.
    pub fn currency(&mut self) -> Result<domain::currency::Currency, StoreError> {
        self.named(domain::currency::Currency::from_code)
    }
}

/// One connection of an engine. Synchronous: no network call fits between its statements.
pub trait Connection: Send {
    /// Starts a transaction that will write.
    fn begin(&mut self) -> Result<(), StoreError>;

    /// Starts a transaction that only reads, from one snapshot.
    fn begin_read(&mut self) -> Result<(), StoreError>;

    /// Makes the transaction durable. [`StoreError::OutcomeUnknown`] means that only the next
    /// start can tell whether it is.
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

    /// Leaves the database so that its main file alone is complete: called before the connection
    /// that writes is closed. A failure loses nothing; the next start finds the rest in the log.
    fn settle(&mut self) -> Result<(), StoreError>;

    /// Checks that the engine accepts a statement without running it.
    fn prepare(&mut self, sql: &str) -> Result<(), StoreError>;

    /// What the engine itself finds wrong with the database: damaged pages and indexes, values
    /// that a constraint refuses, references to nothing. Each line is a finding.
    fn integrity(&mut self) -> Result<Vec<String>, StoreError>;
}
