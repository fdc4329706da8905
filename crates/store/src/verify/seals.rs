//! S2: every row is as a server sealed it. An edit by SQL, of whatever column, is named here.

use super::{Predicate, Run, shown};
use crate::catalogue;
use crate::error::StoreError;

/// Opens every row of every table whose rows are sealed, if there is a key.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Run { connection, keyring: Some(keyring), findings, .. } = run else { return Ok(()) };
    for shape in catalogue::tables().iter().filter(|shape| shape.is_sealed()) {
        let (limit, mut after) = (catalogue::rows_at_once(shape), None);
        loop {
            let chunk = catalogue::chunk(&mut **connection, shape, after.as_deref(), limit)?;
            findings.saw(Predicate::S2, chunk.rows.len());
            for mut row in chunk.rows {
                let name = shown(row.first());
                if (shape.seal.open)(shape, &mut row, keyring).is_err() {
                    let what = format!("{} {name} is not as it was sealed", shape.table);
                    findings.broke(Predicate::S2, what);
                }
            }
            after = chunk.last;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}
