//! Lists: keyset pagination on the time-ordered id, over ordinary indexes.
//!
//! A run is a set of rows that one index holds side by side in the order of their ids: the columns
//! before `id` are compared with one value each. A page merges the first rows of a few runs, so a
//! deep page costs as much as the first one. A filter that leaves a column of the index open has
//! one run for each of its values.

use std::collections::HashMap;
use std::sync::Arc;

use domain::time::Timestamp;
use domain::transaction::referenced;
use uuid::Uuid;

use crate::error::StoreError;
use crate::reader::View;
use crate::record::{self, Record};
use crate::sql::{Row, Value};

/// Rows up to which a list is counted. An index holds so many entries on some hundred pages.
pub const COUNT_MAX: u64 = 10_000;

/// Runs that one statement merges. More are merged here, from several statements.
const RUNS_MERGED_MAX: usize = 64;

/// Bits of an id below its milliseconds.
const TIME_SHIFT: u32 = 80;

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

    /// The ids that come after the page before.
    fn within(self, ids: Ids) -> Ids {
        match (self.after, self.order) {
            (None, _) => ids,
            (Some(after), Order::Descending) => ids.below(after),
            (Some(after), Order::Ascending) => ids.above(after),
        }
    }
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Page<R> {
    /// Its rows.
    pub rows: Vec<Arc<R>>,
    /// Whether there are more behind them.
    pub has_more: bool,
    /// How many rows match in all; left out above [`COUNT_MAX`].
    pub total: Option<u64>,
}

impl<R> Page<R> {
    /// A page of a list that has no rows.
    pub(crate) const EMPTY: Self = Self { rows: Vec::new(), has_more: false, total: Some(0) };
}

/// Conditions on a row, in which `?` stands for each value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// A column that has one value.
    pub(crate) fn equal(column: &str, value: impl Into<Value>) -> Self {
        let mut conditions = Self::default();
        conditions.and(format!("{column} = ?"), [value.into()]);
        conditions
    }

    /// Adds a condition.
    pub(crate) fn and(
        &mut self,
        condition: impl Into<String>,
        values: impl IntoIterator<Item = Value>,
    ) -> &mut Self {
        self.texts.push(condition.into());
        self.values.extend(values);
        self
    }

    /// Adds a condition if there is a value for it.
    pub(crate) fn and_if(&mut self, condition: &str, value: Option<impl Into<Value>>) -> &mut Self {
        match value {
            Some(value) => self.and(condition, [value.into()]),
            None => self,
        }
    }

    /// Both.
    fn with(&self, other: &Self) -> Self {
        let texts = [&self.texts[..], &other.texts].concat();
        Self { texts, values: [&self.values[..], &other.values].concat() }
    }

    fn text(&self) -> String {
        self.texts.join(" and ")
    }
}

/// Each run once for each of these values of the next column of its index.
pub(crate) fn split_by(
    runs: Vec<Conditions>,
    column: &str,
    values: impl IntoIterator<Item = &'static str>,
) -> Vec<Conditions> {
    let values: Vec<_> = values.into_iter().collect();
    let one = |run: &Conditions, value| run.with(&Conditions::equal(column, Value::name(value)));
    runs.iter().flat_map(|run| values.iter().map(move |value| one(run, *value))).collect()
}

/// One way to the rows that a filter names.
pub(crate) struct Way {
    /// The runs that have them. No row is in two.
    pub(crate) runs: Vec<Conditions>,
    /// The same as one condition on a row, for when another way is taken.
    pub(crate) condition: Conditions,
}

impl Way {
    /// A way that no other is compared with.
    pub(crate) fn only(runs: Vec<Conditions>) -> Self {
        Self { runs, condition: Conditions::default() }
    }
}

/// Which rows are listed.
pub(crate) struct Query {
    /// Ways to them. Every row lies on each; the one with the fewest rows is taken.
    pub(crate) ways: Vec<Way>,
    /// Their ids.
    pub(crate) ids: Ids,
    /// Further conditions, which are compared row by row.
    pub(crate) rest: Conditions,
    /// How many rows are counted at most.
    pub(crate) count_max: u64,
}

impl Query {
    /// The rows on one way.
    pub(crate) fn of(way: Way, ids: Ids) -> Self {
        Self { ways: vec![way], ids, rest: Conditions::default(), count_max: COUNT_MAX }
    }
}

impl View<'_> {
    /// A page of the rows that a query names.
    pub(crate) fn list<R: Record>(
        &mut self,
        query: Query,
        page: PageRequest,
    ) -> Result<Page<R>, StoreError> {
        let (ids, count_max) = (query.ids, query.count_max);
        if ids.is_empty() {
            return Ok(Page::EMPTY);
        }
        let runs = self.shortest(R::TABLE, query)?;
        let limit = page.limit as usize;
        let mut listed = self.ids(R::TABLE, &runs, page.within(ids), page)?;
        let has_more = listed.len() > limit;
        listed.truncate(limit);
        let total = match page.after {
            None if !has_more => listed.len() as u64,
            _ => self.count(R::TABLE, &runs, ids, count_max)?,
        };
        let total = (total <= count_max).then_some(total);
        Ok(Page { rows: self.rows(listed)?, has_more, total })
    }

    /// The runs of the way with the fewest rows, as far as they are counted.
    fn shortest(&mut self, table: &str, query: Query) -> Result<Vec<Conditions>, StoreError> {
        let Query { mut ways, ids, mut rest, count_max } = query;
        let mut shortest = (0, u64::MAX);
        for (place, way) in ways.iter().enumerate().filter(|_| ways.len() > 1) {
            let rows = self.count(table, &way.runs, ids, count_max)?;
            if rows < shortest.1 {
                shortest = (place, rows);
            }
        }
        let Way { runs, .. } = ways.swap_remove(shortest.0);
        for way in ways {
            rest = rest.with(&way.condition);
        }
        Ok(runs.iter().map(|run| run.with(&rest)).collect())
    }

    /// How many rows of some runs have ids in a range; one more than `max` if there are more.
    fn count(
        &mut self,
        table: &str,
        runs: &[Conditions],
        ids: Ids,
        max: u64,
    ) -> Result<u64, StoreError> {
        let mut count = 0;
        for runs in runs.chunks(RUNS_MERGED_MAX) {
            if count > max {
                break;
            }
            let limit = i64::try_from(max.saturating_add(1)).unwrap_or(i64::MAX);
            let values = values_of(runs, ids, &[]).chain([Value::Int(limit)]).collect::<Vec<_>>();
            self.connection.query(&count_of(table, runs), &values, 1, &mut |values| {
                let counted = Row::new("a list", &["count"], values).int()?;
                count += u64::try_from(counted).unwrap_or(0);
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// The ids of a page, with one more if there is one.
    fn ids(
        &mut self,
        table: &'static str,
        runs: &[Conditions],
        ids: Ids,
        page: PageRequest,
    ) -> Result<Vec<Uuid>, StoreError> {
        let mut listed = Vec::new();
        if ids.is_empty() {
            return Ok(listed);
        }
        let limit = [Value::from(page.limit.saturating_add(1))];
        for runs in runs.chunks(RUNS_MERGED_MAX) {
            let values = values_of(runs, ids, &limit).chain(limit.clone()).collect::<Vec<_>>();
            self.connection.query(
                &page_of(table, runs, page.order),
                &values,
                1,
                &mut |values| {
                    listed.push(Row::new(table, &["id"], values).uuid()?);
                    Ok(())
                },
            )?;
        }
        if runs.len() > RUNS_MERGED_MAX {
            listed.sort_unstable();
            if page.order == Order::Descending {
                listed.reverse();
            }
        }
        Ok(listed)
    }

    /// Rows by their ids, in this order.
    fn rows<R: Record>(&mut self, ids: Vec<Uuid>) -> Result<Vec<Arc<R>>, StoreError> {
        let keys: Vec<_> = ids.iter().map(|id| Value::from(*id)).collect();
        let (keyring, mut found) = (self.keyring, HashMap::new());
        self.connection.fetch(R::shape(), &keys, &mut |values| {
            let id = Row::new(R::TABLE, R::COLUMNS, values[..1].to_vec()).uuid()?;
            found.insert(id, Arc::new(record::read::<R>(values, keyring)?));
            Ok(())
        })?;
        let row = |id| {
            found.remove(&id).ok_or_else(|| StoreError::Corrupt {
                place: format!("{}.id", R::TABLE),
                what: format!("an index names {id}, which is not there"),
            })
        };
        ids.into_iter().map(row).collect()
    }
}

/// The values of the statements below, each run's with others behind them.
fn values_of(runs: &[Conditions], ids: Ids, others: &[Value]) -> impl Iterator<Item = Value> {
    runs.iter().flat_map(move |run| {
        run.values.iter().cloned().chain(ids.values()).chain(others.iter().cloned())
    })
}

/// The first ids of the rows of some runs, in an order. Each run has a limit of its own: a planner
/// that only knows the one of all would rather sort everything.
fn page_of(table: &str, runs: &[Conditions], order: Order) -> String {
    let direction = match order {
        Order::Descending => "desc",
        Order::Ascending => "asc",
    };
    let one = |(number, run): (usize, &Conditions)| {
        let conditions = run.text();
        format!(
            "select id from (select id from {table} where {conditions} and id between ? and ? \
             order by id {direction} limit ?) as run_{number}"
        )
    };
    let runs: Vec<_> = runs.iter().enumerate().map(one).collect();
    numbered(&format!("{} order by id {direction} limit ?", runs.join(" union all ")))
}

/// How many rows some runs have, up to a limit.
fn count_of(table: &str, runs: &[Conditions]) -> String {
    let one = |run: &Conditions| {
        format!("select id from {table} where {} and id between ? and ?", run.text())
    };
    let runs: Vec<_> = runs.iter().map(one).collect();
    numbered(&format!("select count(*) from ({} limit ?) as counted", runs.join(" union all ")))
}

/// A text with `$1`, `$2` and so on in place of each `?`.
pub(crate) fn numbered(text: &str) -> String {
    let mut parts = text.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    (1..).zip(parts).fold(first, |text, (number, part)| format!("{text}${number}{part}"))
}

/// Examples of the statements of every list, whose texts are made as filters ask for them: each
/// index with two runs.
pub(crate) fn statements() -> impl Iterator<Item = String> {
    const INDEXES: [(&str, &[&str]); 19] = [
        ("tokens", &["platform", "revoked"]),
        ("customers", &["platform", "is_deleted", "customer_type"]),
        ("customers", &["platform", "platform_customer_id"]),
        ("customers", &["uma_address"]),
        ("external_accounts", &["platform", "owner_kind"]),
        ("external_accounts", &["platform", "owner_kind", "currency"]),
        ("external_accounts", &["owner"]),
        ("quotes", &["platform", "status"]),
        ("quotes", &["owner", "status"]),
        ("quotes", &["source_account", "status"]),
        ("quotes", &["destination_account", "status"]),
        ("transactions", &["platform", "direction", "status"]),
        ("transactions", &["owner", "direction", "status"]),
        ("transactions", &["source_account", "direction", "status"]),
        ("transactions", &["destination_account", "direction", "status"]),
        ("transactions", &["own_address", "direction", "status"]),
        ("deliveries", &["platform", "kind", "status"]),
        ("deliveries", &["platform"]),
        ("deliveries", &["resource"]),
    ];
    INDEXES.into_iter().flat_map(|(table, columns)| {
        let mut run = Conditions::default();
        for column in columns {
            run.and(format!("{column} = ?"), []);
        }
        let runs = [run.clone(), run];
        let page = |order| page_of(table, &runs, order);
        [page(Order::Descending), page(Order::Ascending), count_of(table, &runs)]
    })
}

/// A range of ids, both ends in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    /// The first.
    pub(crate) from: u128,
    /// The last.
    pub(crate) to: u128,
}

impl Ids {
    /// Every id.
    pub(crate) const ALL: Self = Self { from: 0, to: u128::MAX };

    /// The ids of what was made in a time, both ends in it.
    pub(crate) fn made(after: Option<Timestamp>, before: Option<Timestamp>) -> Self {
        /// The last millisecond that an id can name.
        const LATEST: i64 = (1 << (u128::BITS - TIME_SHIFT)) - 1;
        let from = match after.map(Timestamp::millis) {
            Some(after) if after > LATEST => return Self::NONE,
            after => u128::try_from(after.unwrap_or(0)).unwrap_or(0) << TIME_SHIFT,
        };
        let to = match before.map(|before| u128::try_from(before.millis().min(LATEST))) {
            Some(Ok(millis)) => millis << TIME_SHIFT | ((1 << TIME_SHIFT) - 1),
            Some(Err(_)) => return Self::NONE,
            None => u128::MAX,
        };
        Self { from, to }
    }

    /// The ids that a reconciliation reference leads back to.
    pub(crate) fn referenced(text: &str) -> Self {
        referenced(text).map_or(Self::NONE, |(first, last)| Self {
            from: first.uuid().as_u128(),
            to: last.uuid().as_u128(),
        })
    }

    /// The ids in both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    const NONE: Self = Self { from: 1, to: 0 };

    /// Whether no id is in it.
    pub(crate) fn is_empty(self) -> bool {
        self.from > self.to
    }

    /// Those above `id` as well.
    pub(crate) fn above(self, id: Uuid) -> Self {
        match id.as_u128().checked_add(1) {
            Some(next) => Self { from: self.from.max(next), ..self },
            None => Self::NONE,
        }
    }

    /// Those below `id` as well.
    pub(crate) fn below(self, id: Uuid) -> Self {
        match id.as_u128().checked_sub(1) {
            Some(next) => Self { to: self.to.min(next), ..self },
            None => Self::NONE,
        }
    }

    /// Its ends.
    pub(crate) fn values(self) -> [Value; 2] {
        [self.from, self.to].map(|id| Uuid::from_u128(id).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ranges_of_ids() {
        let at = Timestamp::from_millis;
        let id = |millis: u128, low: u128| millis << TIME_SHIFT | low;
        let low = (1 << TIME_SHIFT) - 1;
        assert_eq!(Ids::made(None, None), Ids::ALL);
        let made = Ids::made(Some(at(5)), Some(at(7)));
        assert_eq!(made, Ids { from: id(5, 0), to: id(7, low) });
        assert_eq!(Ids::made(Some(at(-5)), Some(at(i64::MAX))), Ids::ALL);
        for (after, before) in [(None, Some(-1)), (Some(i64::MAX), None), (Some(2), Some(1))] {
            assert!(Ids::made(after.map(at), before.map(at)).is_empty(), "{after:?} {before:?}");
        }
        assert_eq!(Ids::ALL.above(Uuid::from_u128(7)).below(Uuid::from_u128(9)).from, 8);
        assert!(Ids::ALL.above(Uuid::max()).is_empty());
        assert!(Ids::ALL.below(Uuid::nil()).is_empty());
    }
}
