//! Rows that are read by key, changed in memory and written back once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, OnceLock};

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::sql::{Connection, Row, Value};

/// A row of one table, with its mapping between columns and domain values. Every table of records
/// has a `version` column besides those named here: an update states the version that it read, and
/// must meet it.
pub trait Record: Clone + Send + Sync + 'static {
    /// What finds the row.
    type Key: Ord + Clone + Send + Sync;
    /// The table.
    const TABLE: &'static str;
    /// Its columns, the key first, without `version`.
    const COLUMNS: &'static [&'static str];

    /// The row's key.
    fn key(&self) -> Self::Key;

    /// The key as the value of the first column.
    fn key_value(key: &Self::Key) -> Value;

    /// The values of all columns.
    fn values(&self, keyring: &Keyring) -> Vec<Value>;

    /// Reads a row and checks it.
    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError>;

    /// Where rows of this table wait between reading and writing.
    fn slots(tables: &mut Tables) -> &mut Slots<Self>;

    /// The table's statements.
    fn statements() -> &'static Statements;
}

/// The three statements of a table.
#[derive(Debug)]
pub struct Statements {
    /// By key, with the version last.
    pub select: String,
    /// All columns, at version 1.
    pub insert: String,
    /// All columns but the key, where key and version are the given ones.
    pub update: String,
}

impl Statements {
    /// Statements for a table.
    pub fn of(table: &str, columns: &[&str]) -> Self {
        let list = columns.join(", ");
        let key = columns[0];
        let numbered = |count: usize| {
            (1..=count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
        };
        let assignments: Vec<_> = columns[1..]
            .iter()
            .enumerate()
            .map(|(index, column)| format!("{column} = ${}", index + 1))
            .collect();
        let (key_number, version_number) = (columns.len(), columns.len() + 1);
        Self {
            select: format!("select {list}, version from {table} where {key} = $1"),
            insert: format!(
                "insert into {table} ({list}, version) values ({}, 1)",
                numbered(columns.len())
            ),
            update: format!(
                "update {table} set {}, version = version + 1 \
                 where {key} = ${key_number} and version = ${version_number}",
                assignments.join(", ")
            ),
        }
    }
}

/// A row between reading and writing.
#[derive(Debug)]
pub struct Slot<R> {
    /// The row; `None` if the table has none with that key.
    row: Option<Arc<R>>,
    /// Its version in the database; 0 if it is not there.
    version: i64,
    changed: bool,
}

/// Rows of one table between reading and writing, by key.
pub struct Slots<R: Record>(BTreeMap<R::Key, Slot<R>>);

impl<R: Record> Default for Slots<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Record> Slots<R> {
    /// The row with this key as far as it is here: `None` means "not read yet".
    pub(crate) fn get(&self, key: &R::Key) -> Option<Option<Arc<R>>> {
        self.0.get(key).map(|slot| slot.row.clone())
    }

    /// Keeps what was read.
    pub(crate) fn loaded(&mut self, key: R::Key, found: Option<(Arc<R>, i64)>) {
        let (row, version) = match found {
            Some((row, version)) => (Some(row), version),
            None => (None, 0),
        };
        self.0.insert(key, Slot { row, version, changed: false });
    }

    /// Replaces the row of a key that was read, or adds one that is new.
    pub(crate) fn put(&mut self, row: Arc<R>) {
        match self.0.entry(row.key()) {
            Entry::Occupied(mut slot) => {
                let slot = slot.get_mut();
                slot.row = Some(row);
                slot.changed = true;
            }
            Entry::Vacant(slot) => {
                slot.insert(Slot { row: Some(row), version: 0, changed: true });
            }
        }
    }

    /// Takes over every row of `newer`.
    pub(crate) fn merge(&mut self, newer: Self) {
        for slot in newer.0.into_values() {
            if let (Some(row), true) = (slot.row, slot.changed) {
                self.put(row);
            }
        }
    }

    /// Writes every changed row.
    pub(crate) fn write(
        &self,
        connection: &mut dyn Connection,
        keyring: &Keyring,
    ) -> Result<(), StoreError> {
        let statements = R::statements();
        for slot in self.0.values().filter(|slot| slot.changed) {
            let Some(row) = &slot.row else { continue };
            let mut values = row.values(keyring);
            let (statement, written) = if slot.version == 0 {
                (R::TABLE, connection.execute(&statements.insert, &values)?)
            } else {
                let key = values.remove(0);
                values.extend([key, Value::Int(slot.version)]);
                (R::TABLE, connection.execute(&statements.update, &values)?)
            };
            if written != 1 {
                return Err(StoreError::Conflict(format!("a row of {statement} was not as read")));
            }
        }
        Ok(())
    }
}

/// Reads one row by its key.
pub(crate) fn load<R: Record>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    key: &R::Key,
) -> Result<Option<(Arc<R>, i64)>, StoreError> {
    let mut found = None;
    let sql = &R::statements().select;
    let width = R::COLUMNS.len() + 1;
    connection.query(sql, &[R::key_value(key)], width, &mut |mut values| {
        let version = values.pop();
        let mut row = Row::new(R::TABLE, R::COLUMNS, values);
        let record = R::read(&mut row, keyring)?;
        let Some(Value::Int(version)) = version else { return Err(row.corrupt("no version")) };
        found = Some((Arc::new(record), version));
        Ok(())
    })?;
    Ok(found)
}

macro_rules! tables {
    ($($field:ident: $record:ty,)*) => {
        /// Rows of all tables between reading and writing.
        #[derive(Default)]
        pub struct Tables {
            $(pub(crate) $field: Slots<$record>,)*
        }

        impl Tables {
            /// Takes over every change of `newer`.
            pub(crate) fn merge(&mut self, newer: Self) {
                $(self.$field.merge(newer.$field);)*
            }

            /// Writes every changed row, referenced tables before those that refer to them.
            pub(crate) fn write(
                &self,
                connection: &mut dyn Connection,
                keyring: &Keyring,
            ) -> Result<(), StoreError> {
                $(self.$field.write(connection, keyring)?;)*
                Ok(())
            }

            /// Every statement of every table.
            pub(crate) fn statements() -> Vec<&'static str> {
                let mut all = Vec::new();
                $({
                    let statements = <$record as Record>::statements();
                    all.extend([
                        statements.select.as_str(),
                        statements.insert.as_str(),
                        statements.update.as_str(),
                    ]);
                })*
                all
            }
        }
    };
}

tables! {
    platforms: domain::platform::Platform,
    tokens: domain::token::Token,
    customers: domain::customer::Customer,
    uma_addresses: crate::customers::UmaClaim,
    external_accounts: domain::external_account::ExternalAccount,
    fingerprints: crate::external_accounts::Fingerprint,
    quotes: domain::quote::Quote,
    transactions: domain::transaction::Transaction,
    ledger_accounts: crate::books::LedgerAccount,
    idempotency: crate::idempotency::Answer,
}

/// Implements the two parts of [`Record`] that are the same for every table.
macro_rules! record_table {
    ($field:ident) => {
        fn slots(tables: &mut $crate::record::Tables) -> &mut $crate::record::Slots<Self> {
            &mut tables.$field
        }

        fn statements() -> &'static $crate::record::Statements {
            static STATEMENTS: $crate::record::StatementCell = $crate::record::StatementCell::new();
            STATEMENTS.get_or_init(|| $crate::record::Statements::of(Self::TABLE, Self::COLUMNS))
        }
    };
}
pub(crate) use record_table;

/// Where a table's statements are kept once they are made.
pub(crate) type StatementCell = OnceLock<Statements>;
