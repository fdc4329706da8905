//! Rows that are read by key, changed in memory and written back once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use domain::erasure::Erase;
use uuid::Uuid;

use crate::cache::{self, BatchCache};
use crate::error::StoreError;
use crate::journal::change_set::{Kind, Personal, RowChange, TableChange};
use crate::journal::tail::Ends;
use crate::keyring::Keyring;
use crate::memtable::shared::{RecordKey, SharedMemtable, Values};
use crate::point_reads;
use crate::seal::Seal;
use crate::sql::{Connection, Keys, Row, SEALED, Shape, Value, is_sealed};

/// The number of a record's table.
pub trait Numbered {
    /// The number ([`Shape::number`]).
    const NUMBER: u16;
}

/// A row of one table, with its mapping between columns and domain values.
pub trait Record: Numbered + Clone + Send + Sync + 'static {
    /// The key of the row.
    type Key: Ord + Hash + Clone + Send + Sync + Into<Value>;
    /// The table.
    const TABLE: &'static str;
    /// The columns of its values, those of the primary key first. The last one may be named
    /// `sealed`: bytes that must not stand in a plain column. A table whose rows are sealed has
    /// that column in any case.
    const COLUMNS: &'static [&'static str];
    /// How many of them are the primary key. If it is more than one, a record is all rows whose
    /// first column is its key, one behind the other, and never loses one.
    const KEY_COLUMNS: usize = 1;
    /// Whether its last value stands in the journal alone ([`Shape::with_body_in_journal`]).
    const IS_BODY_IN_JOURNAL: bool = false;
    /// Columns that tell of a person: the table has a keyed hash of each value, by which it is
    /// found. Of an account column, that is the key of a UMA address.
    const HIDDEN: &'static [&'static str] = &[];
    /// How its rows are sealed. A body in the journal is compared with its row there instead.
    const SEAL: Seal = if Self::IS_BODY_IN_JOURNAL { Seal::NONE } else { Seal::ROW };
    /// How many rows the writer thread remembers ([`crate::cache`]).
    const CACHED_MAX: usize = cache::CACHED_MAX;

    /// The record's key.
    fn key(&self) -> Self::Key;

    /// The customer whose personal data it has.
    fn owner(&self) -> Option<Uuid> {
        None
    }

    /// The owner of the data key that seals it in the journal, in a unit about this customer:
    /// nothing if it tells of no person.
    fn data_key(&self, _unit: Option<Uuid>) -> Option<Uuid> {
        None
    }

    /// The personal texts of the data key's owner, if all personal data in the record are texts.
    fn only_texts(&self) -> Option<Vec<&str>> {
        None
    }

    /// The values of all columns of each row, nothing sealed.
    fn values(&self) -> Vec<Value>;

    /// Reads the row, or each of the rows, nothing sealed, and checks it.
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

impl Personal {
    /// The part of a record that tells of a person, in a unit about this customer.
    pub(crate) fn of<R: Record>(record: &R, unit: Option<Uuid>) -> Option<Self> {
        let owner = record.data_key(unit)?;
        let texts = record.only_texts();
        let texts = texts.map(|texts| texts.into_iter().map(str::to_owned).collect());
        Some(Self { owner, texts })
    }
}

/// The customer of a record, unless it tells nothing of the person, or nothing any more.
pub(crate) fn of_person<R: Record + Erase>(record: &R) -> Option<Uuid> {
    record.owner().filter(|_| record.tells_of_person())
}

/// The row of a key as it was read; `None` if the table has none with that key.
pub type Found<R> = Option<Arc<R>>;

/// Changed rows of one table, by key; `None` for one that is removed.
pub struct Slots<R: Record>(BTreeMap<R::Key, Found<R>>);

impl<R: Record> Default for Slots<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Record> Slots<R> {
    /// The row with this key, if it was changed or removed.
    pub(crate) fn get(&self, key: &R::Key) -> Option<Found<R>> {
        self.0.get(key).cloned()
    }

    /// Keeps a new or changed row.
    pub(crate) fn put(&mut self, row: Arc<R>) {
        self.0.insert(row.key(), Some(row));
    }

    /// Keeps that a row is removed.
    pub(crate) fn remove(&mut self, key: R::Key) {
        self.0.insert(key, None);
    }

    /// The changed rows, in the order of their keys.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Arc<R>> {
        self.0.values().flatten()
    }

    /// The changes of rows, of which some are there before, by a unit about this customer.
    fn changes(
        &self,
        owner: Option<Uuid>,
        mut is_there: impl FnMut(&R::Key) -> bool,
        changes: &mut Vec<RowChange>,
    ) {
        changes.extend(self.0.iter().map(|(key, row)| {
            let (kind, values) = match row {
                None => (Kind::Remove, vec![key.clone().into()]),
                Some(row) if is_there(key) => (Kind::Update, row.values()),
                Some(row) => (Kind::Insert, row.values()),
            };
            let of_person = row.as_ref().and_then(|row| Personal::of(&**row, owner));
            RowChange { of_person, change: TableChange::new(R::NUMBER, kind, values) }
        }));
    }

    /// Whether no row has changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over every row of `newer`.
    fn merge(&mut self, newer: Self) {
        self.0.extend(newer.0);
    }

    /// Remembers every changed row as it is in the database now.
    fn remember(self, cache: &mut Remembered) {
        for (key, row) in self.0 {
            R::remembered(cache).insert(key, row);
        }
    }
}

/// Puts a row behind those before it with the same first column: they are one record.
fn join(records: &mut Vec<Vec<Value>>, row: Vec<Value>) {
    match records.last_mut() {
        Some(before) if before.first() == row.first() => before.extend(row),
        _ => records.push(row),
    }
}

/// A record as its table has it.
pub(crate) fn read<R: Record>(values: Vec<Value>, keyring: &Keyring) -> Result<R, StoreError> {
    let values = R::shape().opened(values, keyring)?;
    R::read(&mut Row::new(R::TABLE, R::COLUMNS, values), keyring)
}

/// The columns of a record's table.
pub(crate) fn columns<R: Record>() -> &'static [&'static str] {
    if !R::SEAL.covers_row || is_sealed(R::COLUMNS) {
        return R::COLUMNS;
    }
    // Once for each table: the caller keeps it.
    [R::COLUMNS, &[SEALED]].concat().leak()
}

/// A statement for whole rows of a table, with its end behind the table's name.
pub(crate) fn selection<R: Record>(which: &str) -> String {
    format!("select {} from {} {which}", R::shape().columns.join(", "), R::TABLE)
}

/// The records that such a statement selects.
pub(crate) fn select<R: Record>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    which: &str,
    parameters: &[Value],
) -> Result<Vec<Arc<R>>, StoreError> {
    let (sql, mut found) = (selection::<R>(which), Vec::new());
    connection.query(&sql, parameters, R::shape().columns.len(), &mut |values| {
        found.push(Arc::new(read(values, keyring)?));
        Ok(())
    })?;
    Ok(found)
}

/// Reads rows by their keys, in one round trip. Keys without a row are found to have none.
pub(crate) fn fetch<R: Record>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    keys: impl IntoIterator<Item = R::Key>,
) -> Result<BTreeMap<R::Key, Found<R>>, StoreError> {
    let mut found: BTreeMap<_, _> = keys.into_iter().map(|key| (key, None)).collect();
    let keys: Vec<_> = found.keys().cloned().map(Into::into).collect();
    let mut records = Vec::new();
    connection.fetch(R::shape(), &keys, &mut |values| {
        join(&mut records, values);
        Ok(())
    })?;
    for values in records {
        let record = read::<R>(values, keyring)?;
        found.insert(record.key(), Some(Arc::new(record)));
    }
    Ok(found)
}

/// The record of a key that is committed and that the tables may not have; nothing if they say.
pub(crate) fn committed<R: Record>(
    memtable: &SharedMemtable,
    keyring: &Keyring,
    key: &R::Key,
) -> Result<Option<Found<R>>, StoreError> {
    let name = RecordKey { table: R::NUMBER, columns: vec![key.clone().into()] };
    let Some(values) = memtable.get(&name) else { return Ok(None) };
    read_plain::<R>(values, keyring).map(Some)
}

/// The record of values in which nothing is sealed; nothing of one that is gone.
fn read_plain<R: Record>(
    values: Option<Values>,
    keyring: &Keyring,
) -> Result<Found<R>, StoreError> {
    let read = |values: Values| {
        let row = &mut Row::new(R::TABLE, R::COLUMNS, values.to_vec());
        R::read(row, keyring).map(Arc::new)
    };
    values.map(read).transpose()
}

/// A record that was found by its key.
pub(crate) fn found<R: Record>(
    found: point_reads::Found,
    keyring: &Keyring,
) -> Result<Found<R>, StoreError> {
    match found {
        point_reads::Found::InMemtable(values) => read_plain(values, keyring),
        point_reads::Found::InTable(values) => {
            values.map(|values| read(values, keyring).map(Arc::new)).transpose()
        }
    }
}

/// Reads a record that was fetched, and remembers it.
fn remember<R: Record>(
    values: Vec<Value>,
    keyring: &Keyring,
    cache: &mut Remembered,
) -> Result<(), StoreError> {
    let record = read::<R>(values, keyring)?;
    R::remembered(cache).insert(record.key(), Some(Arc::new(record)));
    Ok(())
}

/// Reads one row by its key.
pub(crate) fn load<R: Record>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    key: &R::Key,
) -> Result<Found<R>, StoreError> {
    let found = fetch::<R>(connection, keyring, [key.clone()])?;
    Ok(found.into_values().next().flatten())
}

macro_rules! tables {
    ($($number:literal $field:ident: $record:ty,)*) => {
        $(impl Numbered for $record {
            const NUMBER: u16 = $number;
        })*

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

            /// The changes of rows by a unit about a customer, behind those `before` and what is
            /// remembered. Rows are read before they are changed, and stay known within the batch.
            /// One that was not read is taken for new: it replaces what has its key.
            pub(crate) fn changes(
                &self,
                owner: Option<Uuid>,
                before: &Self,
                cache: &mut Remembered,
            ) -> Vec<RowChange> {
                let mut changes = Vec::new();
                $(self.$field.changes(owner, |key| match before.$field.get(key) {
                    Some(found) => found.is_some(),
                    None => matches!(cache.$field.get(key), Some(Some(_))),
                }, &mut changes);)*
                changes
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
            /// Fetches every record that is wanted, of all tables at once, and how far the tables
            /// follow the journal at least. Keys without a row are found to have none.
            pub(crate) fn fetch(
                &self,
                connection: &mut dyn Connection,
                keyring: &Keyring,
                cache: &mut Remembered,
            ) -> Result<u64, StoreError> {
                let (mut wanted, mut records) = (Vec::new(), Vec::new());
                let mut applied = 0;
                $(if !self.$field.is_empty() {
                    let keys = self.$field.iter().cloned().map(Into::into).collect();
                    wanted.push(Keys { shape: <$record as Record>::shape(), keys });
                    let remember: fn(_, &Keyring, &mut Remembered) -> _ = remember::<$record>;
                    records.push((remember, Vec::new()));
                    for key in &self.$field {
                        cache.$field.insert(key.clone(), None);
                    }
                })*
                connection.fetch_all(Ends::QUERY, &wanted, &mut |place, values| {
                    // They were read first: rows are as new, or newer.
                    match place.checked_sub(1) {
                        None => applied = Ends::read(values)?.applied,
                        Some(place) => join(&mut records[place].1, values),
                    }
                    Ok(())
                })?;
                for (remember, records) in records {
                    records.into_iter().try_for_each(|it| remember(it, keyring, cache))?;
                }
                Ok(applied)
            }
        }
    };
}

// Numbers are for ever: a new table gets the next one, whatever its place in this list. 22 and 23
// are those of events and timers.
tables! {
    1 platforms: domain::platform::Platform,
    2 tokens: domain::token::Token,
    3 customers: domain::customer::Customer,
    4 uma_addresses: crate::customers::UmaClaim,
    5 external_accounts: domain::external_account::ExternalAccount,
    6 fingerprints: crate::external_accounts::Fingerprint,
    7 lookups: domain::lookup::Lookup,
    8 uma_peers: domain::uma_peer::UmaPeer,
    9 quotes: domain::quote::Quote,
    10 transactions: domain::transaction::Transaction,
    11 postings: crate::books::Postings,
    12 approvals: domain::approval::Approval,
    13 ledger_accounts: crate::books::LedgerAccount,
    14 idempotency: crate::idempotency::Answer,
    15 leases: crate::leases::Lease,
    16 invitations: domain::invitation::Invitation,
    17 identity_checks: domain::kyc::IdentityCheck,
    18 bulk_imports: domain::bulk_import::BulkImport,
    19 bulk_parts: domain::bulk_import::Part,
    20 outboxes: crate::events::Outbox,
    21 deliveries: domain::delivery::Delivery,
    24 open_payments: crate::open_payments::OpenPayments,
    25 attention: domain::attention::Attention,
    26 payment_hashes: crate::payment_hashes::PaymentHash,
    27 uma_domains: crate::uma_domains::DomainClaim,
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
            SHAPE.get_or_init(|| {
                let number = <Self as $crate::record::Numbered>::NUMBER;
                let columns = $crate::record::columns::<Self>();
                $crate::sql::Shape::new(number, Self::TABLE, columns)
                    .with_key(Self::KEY_COLUMNS, 1)
                    .with_seal(Self::COLUMNS.len(), <Self as $crate::record::Record>::SEAL)
                    .with_hidden(<Self as $crate::record::Record>::HIDDEN)
                    .with_body_in_journal(Self::IS_BODY_IN_JOURNAL)
            })
        }
    };
}
pub(crate) use record_table;
