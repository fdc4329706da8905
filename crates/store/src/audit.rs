//! The journal, read as an audit log: who changed what.

use std::collections::BTreeSet;

use domain::id::{Id, Kind, kind};
use domain::time::Timestamp;
use ledger::account::AccountKey;
use uuid::Uuid;

use crate::catalogue;
use crate::engine::{self, Engine};
use crate::error::StoreError;
use crate::journal::End;
use crate::journal::change_set::{self, ChangeSet, TableChange};
use crate::journal::tail::{self, Rows, Tail};
use crate::keyring::Keyring;
use crate::origin::{Actor, Origin};
use crate::outcome::settle;
use crate::sql::{Connection, Value};

/// The fate of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is new.
    Created,
    /// It is another than before.
    Changed,
    /// It is gone.
    Removed,
}

impl Effect {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// One unit of work: who asked for it, and what it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The row of the journal that has it.
    pub row: u64,
    /// The one who asked, and when.
    pub origin: Origin,
    /// Objects of the API and what became of them, without what only follows from them, such as
    /// postings and events. There are none where a command did something to the whole database.
    pub changes: Vec<(String, Effect)>,
}

/// Keeps in the journal that a command did something to the whole database, such as to make it from
/// a backup.
pub fn keep(engine: &dyn Engine, keyring: &Keyring, origin: Origin) -> Result<(), StoreError> {
    keep_with(engine, keyring, origin, |_| Ok(()))
}

/// The same for what is done in the transaction of the entry.
pub(crate) fn keep_with(
    engine: &dyn Engine,
    keyring: &Keyring,
    origin: Origin,
    work: impl FnOnce(&mut dyn Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    keep_in(&mut *engine.prepare(keyring)?, keyring, origin, work)
}

/// The same, by a connection that writes to the whole database.
pub(crate) fn keep_in<E: From<StoreError>>(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    origin: Origin,
    work: impl FnOnce(&mut dyn Connection) -> Result<(), E>,
) -> Result<(), E> {
    let Origin { actor, request, at } = origin;
    connection.begin()?;
    let sets = vec![ChangeSet { actor, request, rows: Vec::new() }];
    let kept = work(connection).and_then(|()| {
        // Only now: there may be another key.
        let mut tail = Tail::open(connection, keyring)?;
        let chain = tail.chain(connection)?;
        let prepared = tail.prepare(connection, keyring, chain, (sets, at), &BTreeSet::new())?;
        Ok(prepared.commit(connection)?)
    });
    match kept {
        Ok(_) => {
            settle(connection);
            Ok(())
        }
        Err(error) => {
            connection.rollback()?;
            Err(error)
        }
    }
}

/// Whether a journal is another one, which ends in `end`, with a single row more, which says that a
/// command did something to the whole database: it was done, and nothing was changed since.
pub(crate) fn ends_with(
    connection: &mut dyn Connection,
    keyring: &Keyring,
    end: End,
    command: &str,
) -> Result<bool, StoreError> {
    let is_next = tail::end(connection)?.seq == end.seq + 1 && tail::has(connection, end)?;
    if !is_next || !engine::compare_key(connection, keyring)? {
        return Ok(false);
    }
    let mut is_said = false;
    tail::each(connection, keyring, Rows::behind(end.seq), &mut |_, sets| {
        is_said = matches!(
            &sets[..],
            [ChangeSet { actor: Actor::Operator { command: said, .. }, rows, .. }]
                if said == command && rows.is_empty()
        );
        Ok(())
    })?;
    Ok(is_said)
}

/// Reads the journal since a time, and hands over each unit of work that changed an object, or was
/// about the whole database.
pub fn audit(
    engine: &dyn Engine,
    keyring: &Keyring,
    since: Option<Timestamp>,
    each: &mut dyn FnMut(Entry) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut connection = engine.auditor()?;
    connection.begin_read()?;
    if !engine::compare_key(&mut *connection, keyring)? {
        return connection.rollback();
    }
    let since = since.unwrap_or(Timestamp::from_millis(0));
    let rows = Rows::since(since);
    tail::each(&mut *connection, keyring, rows, &mut |row, sets| {
        for set in sets {
            let changes = set.rows.iter().filter_map(|row| change(&row.change));
            let changes: Vec<_> = changes.collect();
            if !changes.is_empty() || set.rows.is_empty() {
                let origin = Origin { actor: set.actor, request: set.request, at: row.at };
                each(Entry { row: row.seq, origin, changes })?;
            }
        }
        Ok(())
    })?;
    connection.rollback()
}

/// The object that a row is, and what becomes of it.
fn change(change: &TableChange) -> Option<(String, Effect)> {
    let effect = match change.kind {
        change_set::Kind::Insert => Effect::Created,
        change_set::Kind::Update => Effect::Changed,
        change_set::Kind::Remove => Effect::Removed,
    };
    let table = catalogue::table(change.table).ok()?.table;
    Some((object(table, change.values.first()?)?, effect))
}

/// The id of the object that has a row in this table with this key.
fn object(table: &str, key: &Value) -> Option<String> {
    fn id<K: Kind>(key: &[u8]) -> Option<String> {
        Some(Id::<K>::from_uuid(Uuid::from_slice(key).ok()?).to_string())
    }
    match (table, key) {
        ("platforms", Value::Bytes(key)) => id::<kind::Platform>(key),
        ("tokens", Value::Bytes(key)) => id::<kind::Token>(key),
        ("customers", Value::Bytes(key)) => id::<kind::Customer>(key),
        ("external_accounts", Value::Bytes(key)) => id::<kind::ExternalAccount>(key),
        ("lookups", Value::Bytes(key)) => id::<kind::Lookup>(key),
        ("quotes", Value::Bytes(key)) => id::<kind::Quote>(key),
        ("transactions", Value::Bytes(key)) => id::<kind::Transaction>(key),
        ("invitations", Value::Bytes(key)) => id::<kind::Invitation>(key),
        ("identity_checks", Value::Bytes(key)) => id::<kind::IdentityCheck>(key),
        ("bulk_imports", Value::Bytes(key)) => id::<kind::Job>(key),
        ("attention", Value::Bytes(key)) => id::<kind::Attention>(key),
        ("ledger_accounts", Value::Bytes(key)) => match AccountKey::decode(key).ok()? {
            AccountKey::Internal(account) => Some(account.to_string()),
            _ => None,
        },
        ("uma_peers", Value::Text(domain)) => Some(format!("UmaPeer:{domain}")),
        _ => None,
    }
}
