//! Pages of lists: keyset paging on the time-ordered id, and how many rows match in all.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::StoreError;
use crate::readers::View;
use crate::record::Record;
use crate::sql::{Row, Value};

/// The direction of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Newest first.
    #[default]
    Descending,
    /// Oldest first.
    Ascending,
}

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    /// Rows at most.
    pub limit: u32,
    /// The last row of the page before.
    pub after: Option<Uuid>,
    /// The direction.
    pub order: Order,
}

impl PageRequest {
    /// Everything, newest first. For lists that the API does not page.
    pub const ALL: Self = Self { limit: u32::MAX, after: None, order: Order::Descending };
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Page<R> {
    /// Its rows.
    pub rows: Vec<Arc<R>>,
    /// Whether there are more behind them.
    pub has_more: bool,
    /// How many rows match in all.
    pub total: u64,
}

/// The conditions of a list. Parameters are numbered in the order in which they are added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds `condition`, in which `?` stands for `value` each time.
    pub(crate) fn and(&mut self, condition: &str, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        self.texts.push(condition.replace('?', &format!("${}", self.values.len())));
        self
    }

    /// Adds `condition` if there is a value for it.
    pub(crate) fn and_if(&mut self, condition: &str, value: Option<impl Into<Value>>) -> &mut Self {
        match value {
            Some(value) => self.and(condition, value),
            None => self,
        }
    }

    /// Adds a condition without a parameter.
    pub(crate) fn and_fixed(&mut self, condition: &str) -> &mut Self {
        self.texts.push(condition.to_owned());
        self
    }

    fn clause(&self) -> String {
        self.texts.join(" and ")
    }
}

impl View<'_> {
    /// A page of the rows that meet the conditions.
    pub(crate) fn page<R: Record>(
        &mut self,
        conditions: &Conditions,
        page: PageRequest,
    ) -> Result<Page<R>, StoreError> {
        let count = format!("select count(*) from {} where {}", R::TABLE, conditions.clause());
        let mut total = 0;
        self.connection.query(&count, &conditions.values, 1, &mut |values| {
            total = Row::new(R::TABLE, &["count"], values).int()?;
            Ok(())
        })?;

        let key = R::COLUMNS[0];
        let (order, beyond) = match page.order {
            Order::Descending => ("desc", "<"),
            Order::Ascending => ("asc", ">"),
        };
        let mut conditions = conditions.clone();
        conditions.and_if(&format!("{key} {beyond} ?"), page.after);
        conditions.values.push(Value::from(page.limit.saturating_add(1)));
        let sql = format!(
            "select {} from {} where {} order by {key} {order} limit ${}",
            R::COLUMNS.join(", "),
            R::TABLE,
            conditions.clause(),
            conditions.values.len(),
        );
        let (keyring, mut rows) = (self.keyring, Vec::new());
        self.connection.query(&sql, &conditions.values, R::COLUMNS.len(), &mut |values| {
            let mut row = Row::new(R::TABLE, R::COLUMNS, values);
            rows.push(Arc::new(R::read(&mut row, keyring)?));
            Ok(())
        })?;
        let limit = page.limit as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        Ok(Page { rows, has_more, total: u64::try_from(total).unwrap_or(0) })
    }
}
