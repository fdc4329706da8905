//! Changes of rows as statements over arrays.

use std::sync::Arc;

use tokio_postgres::types::ToSql;

use super::failure::Failure;
use super::link::{Answer, Question};
use super::texts::Texts;
use crate::error::StoreError;
use crate::sql::{Change, Shape, Value, Write};

/// Rows in one statement: some hundred kilobytes.
pub(super) const ROWS_MAX: usize = 2_000;

/// Changes that one statement makes.
pub(super) struct Part<'w> {
    shape: &'static Shape,
    change: Change,
    texts: Arc<Texts>,
    rows: &'w [Vec<Value>],
}

impl<'w> Part<'w> {
    /// The statements that make a change, of so many rows each at most.
    pub(super) fn of(
        Write { shape, change, rows }: &'w Write,
        texts: &Arc<Texts>,
    ) -> Result<impl Iterator<Item = Self>, Failure> {
        if texts.of(shape, *change).is_none() {
            let what = format!("{change:?} is no change of {}", shape.table);
            return Err(Failure::known(StoreError::Engine(what)));
        }
        let part = |rows| Part { shape, change: *change, texts: Arc::clone(texts), rows };
        Ok(rows.chunks(ROWS_MAX).map(part))
    }

    /// The statement, and how many columns of each row are its parameters.
    fn text(&self) -> (&str, usize) {
        // Nothing that is no change of a table becomes a part.
        self.texts.of(self.shape, self.change).unwrap_or_default()
    }

    /// Hands the statements of all parts to `ask`.
    pub(super) fn ask<T>(parts: &[Self], ask: impl FnOnce(&[Question<'_>]) -> T) -> T {
        let texts = || parts.iter().map(Self::text);
        let columns = parts.iter().zip(texts());
        let columns: Vec<_> =
            columns.map(|(part, (_, width))| columns_of(part.rows, width)).collect();
        let parameters: Vec<_> = columns.iter().map(|columns| arrays(columns)).collect();
        let questions = texts().zip(&parameters);
        let questions = questions.map(|((sql, _), parameters)| Question { sql, parameters });
        ask(&questions.collect::<Vec<_>>())
    }

    /// Refuses an update of rows that were not all as they had been read.
    pub(super) fn check(parts: &[Self], answers: &[Answer]) -> Result<(), Failure> {
        for (Part { shape, change, rows, .. }, answer) in parts.iter().zip(answers) {
            if *change == Change::Update && answer.changed != rows.len() {
                let what = format!("a row of {} was not as read", shape.table);
                return Err(Failure::known(StoreError::Conflict(what)));
            }
        }
        Ok(())
    }
}

/// The first columns of rows, each with its value of every row.
fn columns_of(rows: &[Vec<Value>], width: usize) -> Vec<Vec<&Value>> {
    (0..width).map(|column| rows.iter().map(|row| &row[column]).collect()).collect()
}

/// Columns as parameters.
fn arrays<'a>(columns: &'a [Vec<&'a Value>]) -> Vec<&'a (dyn ToSql + Sync)> {
    columns.iter().map(|column| column as &(dyn ToSql + Sync)).collect()
}
