//! Tables made anew from the journal, where they are lost or damaged.
//!
//! New tables follow the journal from its first row, in steps (`projector`). Each step is committed
//! with the row that they follow then, so that a rebuild which was stopped goes on behind it. The
//! tables beside the journal stay: its keys, those of persons, the secrets and the leases. The
//! frames of an erased person open to no one, so that nothing of that person comes back.
//!
//! How new tables take the place of the former ones is the engine's: SQLite makes them in a file
//! beside (`sqlite::rebuilt`), PostgreSQL in their own place (`postgres::rebuilt`).

use std::path::PathBuf;

use crate::catalogue;
use crate::engine::{self, Engine};
use crate::error::StoreError;
use crate::journal::tail;
use crate::keyring::Keyring;
use crate::leases::Lease;
use crate::projector;
pub use crate::projector::Progress;
use crate::record::Record as _;
use crate::sql::{Connection, Shape};

/// The end of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// The row of the journal behind which it went on; 0 if it began with the first.
    pub behind: u64,
    /// How many rows of the journal the tables follow.
    pub rows: u64,
    /// Where the former tables are kept, if there are any.
    pub former: Option<PathBuf>,
}

/// Makes the tables of a database anew. `on_step` gets how far they are, at the beginning and
/// after each step.
pub fn rebuild(
    engine: &dyn Engine,
    keyring: &Keyring,
    on_step: &mut dyn FnMut(Progress),
) -> Result<Rebuilt, StoreError> {
    let mut tables = engine.new_tables(keyring)?;
    let connection = tables.connection();
    let ends = tail::ends(connection)?;
    on_step(Progress { row: ends.applied, of_rows: ends.last });
    projector::project(connection, keyring, on_step)?;
    let rows = tail::applied(connection)?.seq;
    let former = tables.keep()?;
    Ok(Rebuilt { behind: ends.applied, rows, former })
}

/// The tables that follow the journal, and the one that says how far.
pub(crate) fn derived() -> impl Iterator<Item = &'static str> {
    catalogue::tables().iter().copied().filter(|shape| is_derived(shape)).map(|shape| shape.table)
}

/// Whether a table can be made anew from the journal.
pub(crate) fn is_derived(shape: &Shape) -> bool {
    let is_kept = tail::SHAPES_OF_JOURNAL.iter().any(|kept| kept.table == shape.table);
    !is_kept && shape.table != Lease::TABLE
}

/// Refuses a journal that is no database's of this key.
pub(crate) fn refuse_journal(
    connection: &mut dyn Connection,
    keyring: &Keyring,
) -> Result<(), StoreError> {
    if engine::compare_key_of_journal(connection, keyring)? {
        return Ok(());
    }
    Err(StoreError::Engine("nothing was ever in the database".to_owned()))
}
