//! Rows that are read by key, changed in memory and written back once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use crate::books::{POSTINGS, Postings};
use crate::cache::{self, BatchCache};
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::sql::{Change, Connection, Keys, Row, Shape, Value, Write, is_sealed};

/// A row of one table, with its mapping between columns and domain values. Every table of records
/// has a `version` column besides those named here: an update states the version that it read, and
/// must meet it.
pub trait Record: Clone + Send + Sync + 'static {
    /// The key of the row.
    type Key: Ord + Hash + Clone + Send + Sync + Into<Value>;
    /// The table.
    const TABLE: &'static str;
    /// Its columns, the key first, without `version`.
    const COLUMNS: &'static [&'static str];
    /// How many rows the writer thread remembers ([`crate::cache`]).
    const CACHED_MAX: usize = cache::CACHED_MAX;

    /// The row's key.
    fn key(&self) -> Self::Key;

    /// The values of all columns, nothing sealed.
    fn values(&self) -> Vec<Value>;

    /// The row as its table keeps it: a last column that is named `sealed` is sealed for the row of
    /// its key. Both are bytes.
    fn stored(&self, keyring: &Keyring) -> Vec<Value> {
        let mut values = self.values();
        if is_sealed(Self::COLUMNS) {
            let [Value::Bytes(key), .., Value::Bytes(last)] = &mut values[..] else {
                panic!("{}: a sealed column and its key are bytes", Self::TABLE);
            };
            *last = keyring.seal(Self::TABLE, key, last);
        }
        values
    }

    /// Reads a row and checks it.
    fn read(row: &mut Row, keyring: &Keyring) -> Result<Self, StoreError>;

    /// Where changed rows of this table wait to be written.
    fn slots(tables: &mut Tables) -> &mut Slots<Self>;

    /// Where rows of this table are remembered.
    fn remembered(cache: &mut Remembered) -> &mut BatchCache<Self::Key, Found<Self>>;

    /// Which rows of this table are to be fetched.
    fn wanted(wanted: &mut Wanted) -> &mut BTreeSet<Self::Key>;

    /// The table's statements.
    fn shape() -> &'static Shape;
}

/// The row of a key as it was read, and its version.
#[derive(Debug, Clone)]
pub struct Found<R> {
    /// The row; `None` if the table has none with that key.
    pub(crate) row: Option<Arc<R>>,
    /// Its version in the database; 0 if it is not there.
    pub(crate) version: i64,
}

impl<R> Found<R> {
    const NOTHING: Self = Self { row: None, version: 0 };
}

/// Changed rows of one table, by key.
pub struct Slots<R: Record>(BTreeMap<R::Key, Arc<R>>);

impl<R: Record> Default for Slots<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Record> Slots<R> {
    /// The changed row with this key.
    pub(crate) fn get(&self, key: &R::Key) -> Option<Arc<R>> {
        self.0.get(key).map(Arc::clone)
    }

    /// Keeps a new or changed row.
    pub(crate) fn put(&mut self, row: Arc<R>) {
        self.0.insert(row.key(), row);
    }

    /// The changed rows, in the order of their keys.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<R>> {
        self.0.values()
    }

    /// Whether no row has changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over every row of `newer`.
    fn merge(&mut self, newer: Self) {
        self.0.extend(newer.0);
    }

    /// The writes that bring every changed row into the database.
    pub(crate) fn writes(
        &self,
        cache: &mut Remembered,
        keyring: &Keyring,
        writes: &mut Vec<Write>,
    ) {
        let (mut inserted, mut updated) = (Vec::new(), Vec::new());
        for (key, row) in &self.0 {
            let mut values = row.stored(keyring);
            match version_of::<R>(cache, key) {
                0 => inserted.push(values),
                version => {
                    values.push(Value::Int(version));
                    updated.push(values);
                }
            }
        }
        for (change, rows) in [(Change::Insert, inserted), (Change::Update, updated)] {
            if !rows.is_empty() {
                writes.push(Write { shape: R::shape(), change, rows });
            }
        }
    }

    /// Remembers every changed row as it is in the database now.
    fn remember(self, cache: &mut Remembered) {
        for (key, row) in self.0 {
            let version = version_of::<R>(cache, &key) + 1;
            R::remembered(cache).insert(key, Found { row: Some(row), version });
        }
    }
}

/// The version of a row before the batch; 0 for one that is new. Rows are read before they are
/// changed, and stay known within the batch.
fn version_of<R: Record>(cache: &mut Remembered, key: &R::Key) -> i64 {
    R::remembered(cache).get(key).map_or(0, |found| found.version)
}

/// A row and its version, which stands behind its columns.
pub(crate) fn read<R: Record>(
    mut values: Vec<Value>,
    keyring: &Keyring,
) -> Result<(R, i64), StoreError> {
    let version = values.pop();
    let mut row = Row::new(R::TABLE, R::COLUMNS, values);
    let record = R::read(&mut row, keyring)?;
    let Some(Value::Int(version)) = version else { return Err(row.corrupt("no version")) };
    Ok((record, version))
}

/// Reads rows by their keys, in one round trip. Keys without a row are found to have none.
pub(crate) fn fetch<R: Record>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    keys: impl IntoIterator<Item = R::Key>,
) -> Result<BTreeMap<R::Key, Found<R>>, StoreError> {
    let mut found: BTreeMap<_, _> = keys.into_iter().map(|key| (key, Found::NOTHING)).collect();
    let keys: Vec<_> = found.keys().cloned().map(Into::into).collect();
    connection.fetch(R::shape(), &keys, &mut |values| {
        let (record, version) = read::<R>(values, keyring)?;
        found.insert(record.key(), Found { row: Some(Arc::new(record)), version });
        Ok(())
    })?;
    Ok(found)
}

/// Reads one row by its key.
pub(crate) fn load<R: Record>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    key: &R::Key,
) -> Result<Found<R>, StoreError> {
    let found = fetch::<R>(connection, keyring, [key.clone()])?;
    Ok(found.into_iter().next().map_or(Found::NOTHING, |(_, found)| found))
}

macro_rules! tables {
    ($($field:ident: $record:ty,)*) => {
        /// Changed rows of all tables.
        #[derive(Default)]
        pub struct Tables {
            $(pub(crate) $field: Slots<$record>,)*
        }

        /// Rows of all tables as the database has them.
        pub struct Remembered {
            $(pub(crate) $field: BatchCache<<$record as Record>::Key, Found<$record>>,)*
        }

        /// Keys of all tables whose rows are to be fetched.
        #[derive(Default)]
        pub struct Wanted {
            $(pub(crate) $field: BTreeSet<<$record as Record>::Key>,)*
        }

        impl Tables {
            /// Takes over every change of `newer`.
            pub(crate) fn merge(&mut self, newer: Self) {
                $(self.$field.merge(newer.$field);)*
            }

            /// The writes of every changed row, referenced tables before those that refer to them.
            pub(crate) fn writes(
                &self,
                cache: &mut Remembered,
                keyring: &Keyring,
            ) -> Vec<Write> {
                let mut writes = Vec::new();
                $(self.$field.writes(cache, keyring, &mut writes);)*
                writes
            }

            /// Remembers every changed row as it is in the database now.
            pub(crate) fn remember(self, cache: &mut Remembered) {
                $(self.$field.remember(cache);)*
            }

            /// Every table.
            pub(crate) fn shapes() -> Vec<&'static Shape> {
                vec![$(<$record as Record>::shape(),)*]
            }
        }

        impl Default for Remembered {
            fn default() -> Self {
                Self { $($field: BatchCache::new(<$record as Record>::CACHED_MAX),)* }
            }
        }

        impl Remembered {
            /// Forgets everything.
            pub(crate) fn clear(&mut self) {
                $(self.$field.clear();)*
            }

            /// Lets the rows of a batch that is over be evicted from now on.
            pub(crate) fn end_batch(&mut self) {
                $(self.$field.end_batch();)*
            }
        }

        impl Wanted {
            /// Fetches every row that is wanted, of all tables and the postings at once. Keys
            /// without a row are found to have none.
            pub(crate) fn fetch(
                self,
                connection: &mut dyn Connection,
                keyring: &Keyring,
                cache: &mut Remembered,
                postings: &mut Postings,
            ) -> Result<(), StoreError> {
                let mut wanted: Vec<_> = postings.wanted().into_iter().collect();
                $(if !self.$field.is_empty() {
                    let keys = self.$field.iter().cloned().map(Into::into).collect();
                    wanted.push(Keys { shape: <$record as Record>::shape(), keys });
                    for key in self.$field {
                        cache.$field.insert(key, Found::NOTHING);
                    }
                })*
                connection.fetch_all(&wanted, &mut |place, values| {
                    let shape = wanted[place].shape;
                    if std::ptr::eq(shape, &POSTINGS) {
                        return postings.take(values);
                    }
                    $(if std::ptr::eq(shape, <$record as Record>::shape()) {
                        let (row, version) = read::<$record>(values, keyring)?;
                        let key = row.key();
                        cache.$field.insert(key, Found { row: Some(Arc::new(row)), version });
                        return Ok(());
                    })*
                    Err(StoreError::Engine(format!("{} is no table of records", shape.table)))
                })
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
    lookups: domain::lookup::Lookup,
    uma_peers: domain::uma_peer::UmaPeer,
    quotes: domain::quote::Quote,
    transactions: domain::transaction::Transaction,
    approvals: domain::approval::Approval,
    ledger_accounts: crate::books::LedgerAccount,
    idempotency: crate::idempotency::Answer,
    leases: crate::leases::Lease,
    invitations: domain::invitation::Invitation,
    identity_checks: domain::kyc::IdentityCheck,
    bulk_imports: domain::bulk_import::BulkImport,
    bulk_parts: domain::bulk_import::Part,
    outboxes: crate::events::Outbox,
    deliveries: domain::delivery::Delivery,
}

/// Implements the parts of [`Record`] that are the same for every table.
macro_rules! record_table {
    ($field:ident) => {
        fn slots(tables: &mut $crate::record::Tables) -> &mut $crate::record::Slots<Self> {
            &mut tables.$field
        }

        fn remembered(
            cache: &mut $crate::record::Remembered,
        ) -> &mut $crate::cache::BatchCache<Self::Key, $crate::record::Found<Self>> {
            &mut cache.$field
        }

        fn wanted(
            wanted: &mut $crate::record::Wanted,
        ) -> &mut std::collections::BTreeSet<Self::Key> {
            &mut wanted.$field
        }

        fn shape() -> &'static $crate::sql::Shape {
            static SHAPE: std::sync::OnceLock<$crate::sql::Shape> = std::sync::OnceLock::new();
            SHAPE.get_or_init(|| $crate::sql::Shape::record(Self::TABLE, Self::COLUMNS))
        }
    };
}
pub(crate) use record_table;
