//! Servers that are not good enough to keep money in, and servers that do not want us. Every
//! refusal is one line that says what to do.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, SimpleQueryMessage};

use super::address::Server;
use super::client::Purpose;
use super::failure;
use crate::error::StoreError;

/// The oldest server that this program is tested with.
const VERSION_MIN: u32 = 15;

/// Settings of a session, and a query for those of its server, in one round trip.
///
/// A commit is acknowledged only when it is on the disk, and on the standby if the server names
/// one, whatever the server does by default: `remote_apply` is more than that and stays. A setting
/// that the server does not know is left to it.
pub(super) fn setup(purpose: Purpose) -> String {
    let Purpose { statement, lock, idle, goes_by_keys } = purpose;
    let plans = if goes_by_keys { PLANS } else { "" };
    format!(
        "set statement_timeout = {}; set lock_timeout = {}; \
         set idle_in_transaction_session_timeout = {}; set client_min_messages = warning; \
         select current_setting('server_version_num'), \
         current_setting('server_encoding'), \
         current_setting('fsync', true), \
         current_setting('full_page_writes', true), \
         pg_is_in_recovery(), \
         set_config('synchronous_commit', case current_setting('synchronous_commit', true) \
         when 'remote_apply' then 'remote_apply' else 'on' end, false); {plans}; \
         {COMPRESSION}",
        statement.as_millis(),
        lock.as_millis(),
        idle.as_millis(),
    )
}

/// Settings of the planner where all rows are found by key or along an index: each statement has
/// one plan, which goes by these and is right however many rows there are
/// (docs/performance.md). A setting that the server does not know is left to it.
const PLANS: &str = "select count(set_config(name, value, false)) from (values \
    ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), \
    ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off'), ('jit', 'off'), \
    ('enable_hashagg', 'off'), ('max_parallel_workers_per_gather', '0')) \
    as settings (name, value) where current_setting(name, true) is not null";

/// Has the server compress the pages that it writes whole into its log, if we may decide that.
/// After each of its checkpoints, every page that a payment changes for the first time is one of
/// these, and the commits of the next seconds would wait for some megabytes each.
const COMPRESSION: &str = "select set_config(name, case when 'lz4' = any (enumvals) then 'lz4' \
    else 'on' end, false) from pg_settings where name = 'wal_compression' and setting = 'off' \
    and current_setting('is_superuser', true) = 'on'";

/// Looks at the answer to [`setup`].
pub(super) fn check(said: &[SimpleQueryMessage]) -> Result<(), StoreError> {
    let row = said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    judge([0, 1, 2, 3, 4, 5].map(|column| row.and_then(|row| row.get(column)).unwrap_or("")))
}

fn judge(
    [version, encoding, fsync, full_pages, recovery, commit]: [&str; 6],
) -> Result<(), StoreError> {
    let version = version.parse().unwrap_or(0) / 10_000;
    if version < VERSION_MIN {
        return Err(StoreError::Engine(format!(
            "it is PostgreSQL {version}, and this program needs {VERSION_MIN} or newer: upgrade it"
        )));
    }
    // A standby may become the server that writes, so it is worth coming back.
    if recovery == "t" {
        let what = "it is a standby, which only reads: name the server that writes".to_owned();
        return Err(StoreError::Unavailable(what));
    }
    if encoding != "UTF8" {
        return Err(StoreError::Engine(format!(
            "the database's encoding is {encoding}: make one with 'create database NAME encoding \
             utf8 template template0'"
        )));
    }
    for (setting, value) in [("fsync", fsync), ("full_page_writes", full_pages)] {
        if value == "off" {
            return Err(StoreError::Engine(format!(
                "{setting} is off, so a power cut would lose acknowledged payments: run 'alter \
                 system set {setting} = on' and 'select pg_reload_conf()'"
            )));
        }
    }
    if !["on", "remote_apply", ""].contains(&commit) {
        return Err(StoreError::Engine(format!(
            "synchronous_commit is {commit} and cannot be set to on: connect without the pooler \
             that keeps it so"
        )));
    }
    Ok(())
}

/// Why a server did not let us in, and what to do about it.
pub(super) fn of_connection(server: &Server, error: &Error) -> StoreError {
    let text = failure::text(error);
    let Some(said) = error.as_db_error() else {
        return of_server(server, StoreError::Unavailable(text));
    };
    let user = server.config.get_user().unwrap_or_default();
    let database = server.config.get_dbname().unwrap_or(user);
    let what = match *said.code() {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            format!("{text}: check user and password of the URL")
        }
        SqlState::INVALID_CATALOG_NAME => {
            format!("{text}: make it with 'create database {database}', or name another")
        }
        _ => return of_server(server, failure::meaning(said)),
    };
    of_server(server, StoreError::Engine(what))
}

/// Why a migration was not applied.
pub(super) fn of_migration(error: &refinery::Error) -> StoreError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let said = loop {
        let Some(error) = cause else {
            return StoreError::Engine(format!("migrations: {error}"));
        };
        if let Some(said) = error.downcast_ref::<Error>() {
            break said;
        }
        cause = error.source();
    };
    let text = failure::text(said);
    let collisions = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::DUPLICATE_TABLE,
        SqlState::DUPLICATE_COLUMN,
        SqlState::DUPLICATE_OBJECT,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
    ];
    match said.code() {
        Some(code) if collisions.contains(code) => StoreError::Conflict(text),
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => StoreError::Busy,
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => StoreError::Engine(format!(
            "migrations: {text}: run 'grant create on schema public to' our role in this database, \
             or make the role its owner"
        )),
        _ => StoreError::Engine(format!("migrations: {error}: {text}")),
    }
}

/// The error of several servers, none of which can be used.
pub(super) fn of_all(mut errors: Vec<StoreError>) -> StoreError {
    if errors.len() < 2 {
        return errors.pop().unwrap_or_else(failure::disconnected);
    }
    // One that may come back is worth waiting for.
    let is_any_away = errors.iter().any(failure::is_lost);
    let texts: Vec<_> = errors.into_iter().map(text).collect();
    let what = format!("no server takes writes: {}", texts.join("; "));
    if is_any_away { StoreError::Unavailable(what) } else { StoreError::Engine(what) }
}

/// The same error, with the name of the server.
pub(super) fn of_server(server: &Server, error: StoreError) -> StoreError {
    let is_away = failure::is_lost(&error);
    let what = format!("{}: {}", server.name, text(error));
    if is_away { StoreError::Unavailable(what) } else { StoreError::Engine(what) }
}

/// The error without its kind, which the whole line names once.
fn text(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(what) | StoreError::Refused(what) | StoreError::Engine(what) => {
            what
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [&str; 6] = ["150014", "UTF8", "on", "on", "f", "on"];

    fn check(column: usize, value: &str, expected: &str) {
        let mut said = GOOD;
        said[column] = value;
        let line = judge(said).err().map_or("good".to_owned(), text);
        assert!(line.contains(expected) && !line.contains('\n'), "{value}: {line}");
    }

    #[test]
    fn only_a_server_that_keeps_what_it_acknowledges_is_good() {
        check(0, "150000", "good");
        check(0, "180001", "good");
        check(0, "140021", "it is PostgreSQL 14");
        check(0, "", "it is PostgreSQL 0");
        check(1, "SQL_ASCII", "encoding is SQL_ASCII");
        check(2, "off", "fsync is off");
        check(3, "off", "full_page_writes is off");
        check(4, "t", "standby");
        check(5, "remote_apply", "good");
        check(5, "local", "synchronous_commit is local");
        check(5, "off", "synchronous_commit is off");
        // Other engines that speak the protocol do not have these settings.
        check(2, "", "good");
        check(5, "", "good");
    }
}
