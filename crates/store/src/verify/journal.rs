//! The journal: a chain of rows that were not edited, and that the tables follow.

use super::{Predicate, Run};
use crate::error::StoreError;
use crate::journal::{Chain, End, data_keys, tail};
use crate::sql::{self, Value};

/// Follows the chain from its first row to the one that the tables name.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Some(database) = tail::database(run.connection)? else {
        run.findings.broke(Predicate::J1, "the database has no id, which its journal is bound to");
        return Ok(());
    };
    let keys = run.keyring.map(|keyring| tail::keys(run.connection, keyring)).transpose();
    let keys = keys.unwrap_or_else(|_| {
        run.findings.broke(Predicate::J2, "the journal's key does not open");
        None
    });
    if let Some(keyring) = run.keyring {
        let (count, broken) = data_keys::check(run.connection, keyring)?;
        run.findings.saw(Predicate::J2, count);
        broken.into_iter().for_each(|what| run.findings.broke(Predicate::J2, what));
    }
    let (mut keys, mut chain, mut some) = (keys, Chain::new(database), tail::Rows::behind(0));
    let applied = tail::said_applied(run.connection)?;
    let mut is_there = applied == Some(End::START);
    loop {
        let values = some.next(run.connection)?;
        if values.is_empty() {
            break;
        }
        run.findings.saw(Predicate::J1, values.len());
        let mut rows = Vec::new();
        for values in values {
            let name = format!("row {} of the journal", number(&values));
            let row = &mut sql::Row::new(tail::JOURNAL.table, tail::JOURNAL.columns, values);
            match tail::read(row) {
                Ok(row) => rows.push(row),
                Err(error) => run.findings.unreadable(Predicate::J1, name, &error),
            }
        }
        if let (Some(keys), Some(keyring)) = (&mut keys, run.keyring) {
            keys.data = data_keys::of_rows(run.connection, keyring, &keys.journal, rows.iter())?;
        }
        for row in rows {
            if let Some(keys) = &keys {
                run.findings.saw(Predicate::J2, 1);
                if let Err(what) = tail::open(keys, database, &row) {
                    run.findings
                        .broke(Predicate::J2, format!("row {} of the journal: {what}", row.seq));
                }
            }
            if let Err(broken) = chain.take(&row) {
                run.findings.broke(Predicate::J1, broken);
                // The rows behind it are held to it, so that each break is named once.
                chain = Chain::behind(database, &row);
            }
            is_there |= applied == Some(chain.end());
        }
    }
    run.findings.demand(Predicate::J1, is_there, || match applied {
        Some(applied) => no_row(applied, chain.end()),
        None => "the tables do not say which row of the journal they follow".to_owned(),
    });
    Ok(())
}

/// The number of a row that perhaps cannot be read.
fn number(values: &[Value]) -> String {
    match values.first() {
        Some(Value::Int(number)) => number.to_string(),
        Some(Value::Null | Value::Text(_) | Value::Bytes(_)) | None => "?".to_owned(),
    }
}

/// Why the journal does not have the row that the tables follow.
fn no_row(applied: End, last: End) -> String {
    if applied.seq > last.seq {
        return format!(
            "the tables follow row {} of the journal, which ends with row {}: it was cut off",
            applied.seq, last.seq
        );
    }
    format!("the tables follow another row {} than the journal has", applied.seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::RowHash;

    #[test]
    fn the_end_is_named() {
        let end = |seq, hash| End { seq, hash: RowHash([hash; 32]) };
        assert!(no_row(end(7, 1), end(5, 1)).ends_with("ends with row 5: it was cut off"));
        assert!(no_row(end(5, 1), end(5, 2)).contains("another row 5"));
    }
}
