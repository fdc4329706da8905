//! Stored answers (I1). They are read in the order in which they were given, in which their bodies
//! stand in the journal.

use super::{Predicate, Run, shown};
use crate::catalogue;
use crate::error::StoreError;
use crate::idempotency::{Answer, Body};
use crate::journal::bodies;
use crate::keyring::Keyring;
use crate::record::Record as _;
use crate::sql::{Row, Value};

const ANSWERS: &str = "select scope, at, status, owner, seq from idempotency \
    where (at, scope) > ($1, $2) order by at, scope limit $3";

pub(super) fn statements() -> impl Iterator<Item = String> {
    std::iter::once(ANSWERS.to_owned())
}

/// Checks that every answer can be read and opens.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let limit = catalogue::rows_at_once(Answer::shape());
    let mut after = [Value::Int(i64::MIN), Value::Bytes(Vec::new())];
    loop {
        let [at, scope] = after.clone();
        let (mut all, limit_value) = (Vec::new(), i64::try_from(limit).unwrap_or(i64::MAX));
        let parameters = [at, scope, limit_value.into()];
        run.connection.query(ANSWERS, &parameters, Answer::COLUMNS.len(), &mut |values| {
            all.push(values);
            Ok(())
        })?;
        let is_last = all.len() < limit;
        if let Some([scope, at, ..]) = all.last().map(Vec::as_slice) {
            after = [at.clone(), scope.clone()];
        }
        let mut answers = Vec::with_capacity(all.len());
        for values in all {
            run.findings.saw(Predicate::I1, 1);
            let name = format!("the answer to {}", shown(values.first()));
            match Answer::read_row(&mut Row::new(Answer::TABLE, Answer::COLUMNS, values)) {
                Ok(answer) => answers.push((name, answer)),
                Err(error) => run.findings.unreadable(Predicate::I1, name, &error),
            }
        }
        if let Some(keyring) = run.keyring {
            open(run, keyring, &answers)?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Opens the bodies of answers.
fn open(
    run: &mut Run<'_>,
    keyring: &Keyring,
    answers: &[(String, Answer)],
) -> Result<(), StoreError> {
    let wanted = answers.iter().filter_map(|(_, answer)| match answer.body {
        Body::InRow(seq) => Some((seq, vec![Value::from(&answer.scope[..])])),
        Body::Here(_) => None,
    });
    let wanted: Vec<_> = wanted.collect();
    let found = bodies::find(run.connection, keyring, Answer::shape(), &wanted);
    let Some(found) = run.findings.readable(Predicate::I1, found)? else { return Ok(()) };
    for ((name, answer), found) in answers.iter().zip(found) {
        if let Err(what) = answer.body_of(found) {
            run.findings.broke(Predicate::I1, format!("{name} does not open: {what}"));
        }
    }
    Ok(())
}
