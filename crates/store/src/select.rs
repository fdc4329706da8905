//! Pages of lists: keyset paging on the time-ordered id, and how many rows match in all.
//!
//! A page is a merge of strands (`strands`), each a run of an index that is entered where
//! the page before ended, so that a deep page costs what the first one costs. The number of rows
//! comes from tallies (`tallies`) and is counted only where no tally answers the filter.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::StoreError;
use crate::readers::View;
use crate::record::Record;
use crate::sql::{Connection, Row, Value};
use crate::strands::{Facet, Ids, Index, Strand};
use crate::tallies::{self, Group, Sum};

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
    /// How many rows match in all.
    pub total: u64,
}

impl<R> Page<R> {
    /// A page of a list that has no rows.
    pub(crate) const EMPTY: Self = Self { rows: Vec::new(), has_more: false, total: 0 };
}

/// Strands that one statement merges. More are merged here, from several statements.
const MERGED_MAX: usize = 64;

/// Conditions on a row, in which `?` stands for each value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
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

    /// Those of a strand.
    pub(crate) fn of(strand: &Strand) -> Self {
        let (text, values) = strand.conditions();
        Self { texts: vec![text], values }
    }

    fn append(&mut self, other: &Self) {
        self.texts.extend_from_slice(&other.texts);
        self.values.extend_from_slice(&other.values);
    }

    fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    fn text(&self) -> String {
        self.texts.join(" and ")
    }
}

/// Rows that a list merges with others: those of a table, or of what has their ids, that meet
/// conditions.
#[derive(Debug, Clone)]
pub(crate) struct Arm {
    from: &'static str,
    conditions: Conditions,
    /// The ids that they can have.
    ids: Ids,
}

impl Arm {
    /// Rows of a table.
    fn new(from: &'static str, conditions: Conditions) -> Self {
        Self { from, conditions, ids: Ids::ALL }
    }

    /// The same rows, of which it is known that they can only have these ids.
    fn within(self, ids: Ids) -> Self {
        Self { ids, ..self }
    }

    /// The rows of a strand that meet other conditions as well.
    pub(crate) fn of(
        strand: &Strand,
        others: &Conditions,
        connection: &mut dyn Connection,
    ) -> Result<Vec<Self>, StoreError> {
        let mut plain = Conditions::of(strand);
        plain.append(others);
        let table = strand.index.table;
        let waiting = match strand.is_kept_apart() {
            true => connection.kept_apart(strand)?,
            false => None,
        };
        Ok(match waiting {
            None => vec![Self::new(table, plain)],
            Some(waiting) => Self::apart(strand, others, plain, &waiting),
        })
    }

    /// The same where the strand is kept apart: what is in that table, and what waits for it.
    fn apart(
        strand: &Strand,
        others: &Conditions,
        plain: Conditions,
        waiting: &[Uuid],
    ) -> Vec<Self> {
        let table = strand.index.table;
        let place = || [Value::from(strand.leader), i64::from(strand.kind()).into()];
        let mut listed = Conditions::default();
        listed.and("leader = ? and kind = ?", place());
        if !others.is_empty() {
            let others_text = others.text();
            let exists = format!(
                "exists (select 1 from {table} where {table}.id = listed.id and {others_text})"
            );
            listed.and(exists, others.values.iter().cloned());
        }
        let mut arms = vec![Self::new("listed", listed)];
        if let Some(last) = waiting.last() {
            // Few lengths are few statements.
            let count = waiting.len().next_power_of_two();
            let ids = waiting.iter().chain(std::iter::repeat(last)).take(count);
            let marks = vec!["?"; count].join(", ");
            let mut conditions = Conditions::default();
            conditions.and(format!("id in ({marks})"), ids.map(|id| Value::from(*id)));
            conditions.append(&plain);
            let is_new = format!(
                "not exists (select 1 from listed where listed.leader = ? and listed.kind = ? \
                 and listed.id = {table}.id)"
            );
            conditions.and(is_new, place());
            arms.push(Self::new(table, conditions));
        }
        arms
    }

    /// Where its rows are found, with `?` for each value: a condition on their ids can follow.
    pub(crate) fn text(&self) -> String {
        format!("{} where {}", self.from, self.conditions.text())
    }

    /// Which of these ids its rows can have.
    pub(crate) fn reach(&self, ids: Ids) -> Ids {
        ids.and(self.ids)
    }

    /// The values.
    pub(crate) fn values(&self) -> impl Iterator<Item = Value> {
        self.conditions.values.iter().cloned()
    }
}

/// Strands of one index.
#[derive(Clone, Copy)]
pub(crate) struct Branch {
    /// The index.
    pub(crate) index: &'static Index,
    /// The first and the last leader.
    pub(crate) leaders: [Uuid; 2],
    /// The only group that is wanted, if there is one.
    pub(crate) group: Option<u8>,
}

/// One way to the rows that a filter names.
pub(crate) struct Way {
    /// The strands that have them. No row is in two.
    pub(crate) branches: Vec<Branch>,
    /// What tells them from others, for when another way is taken.
    pub(crate) conditions: Conditions,
}

impl Way {
    /// Whether the rows of a group are on it, as far as the group tells: a row is in one strand of
    /// an index, so that a way along that index alone has the group or has none of it.
    fn has(&self, group: &Group) -> Option<bool> {
        let is_along = self.branches.iter().all(|branch| group.is_along(branch));
        is_along.then(|| self.branches.iter().any(|branch| group.is_on(branch)))
    }
}

/// Which rows are listed.
pub(crate) struct Query {
    /// Ways to them. Every row lies on each; the one with the fewest rows is taken. Without any,
    /// the conditions alone find them, by an index of their own.
    pub(crate) ways: Vec<Way>,
    /// The only group that is wanted, if there is one.
    pub(crate) group: Option<u8>,
    /// The only state that is wanted, if there is one.
    pub(crate) state: Option<u16>,
    /// Where the horizon of the platform stands, if these rows have one ([`tallies::lag`]).
    pub(crate) horizon: Option<tallies::lag::Key>,
    /// Their ids.
    pub(crate) ids: Ids,
    /// What else they must meet. It is looked up row by row.
    pub(crate) rest: Conditions,
}

/// The rows of a query: what is merged, and how many they are.
struct Found {
    arms: Vec<Arm>,
    total: u64,
}

impl View<'_> {
    /// A page of the rows that a query names.
    pub(crate) fn list<R: Record>(
        &mut self,
        query: Query,
        page: PageRequest,
    ) -> Result<Page<R>, StoreError> {
        let ids = query.ids;
        if ids.is_empty() {
            return Ok(Page::EMPTY);
        }
        let Found { arms, total } = self.find::<R>(query)?;
        let limit = page.limit as usize;
        let mut listed = self.ids(R::TABLE, &arms, page.within(ids), page)?;
        let has_more = listed.len() > limit;
        listed.truncate(limit);
        Ok(Page { rows: self.rows(listed)?, has_more, total })
    }

    /// Chooses the way and counts.
    fn find<R: Record>(&mut self, query: Query) -> Result<Found, StoreError> {
        let Query { ways, group, state, horizon, ids, rest } = query;
        let (mut arms, mut sum) = (Vec::new(), Sum::default());
        let mut known = Vec::new();
        for way in ways {
            let groups = self.groups_of(&way, group, horizon)?;
            known.push((way, groups));
        }
        let rows = |(_, groups): &(Way, Vec<Group>)| groups.iter().map(Group::rows).sum::<i64>();
        let shortest = (0..known.len()).min_by_key(|number| rows(&known[*number]));
        let Some(shortest) = shortest else {
            let arm = Arm::new(R::TABLE, rest);
            sum.rows(1, &arm, ids);
            return Ok(Found { arms: vec![arm], total: self.sum(sum)? });
        };
        let (_, groups) = known.swap_remove(shortest);
        for group in groups {
            let mut others = rest.clone();
            let mut is_wanted = true;
            for (way, _) in &known {
                match way.has(&group) {
                    Some(has) => is_wanted &= has,
                    None => others.append(&way.conditions),
                }
            }
            if !is_wanted {
                continue;
            }
            let first = arms.len();
            for strand in group.strands(state) {
                let reach = group.reach(&strand, Ids::ALL);
                let found = Arm::of(&strand, &others, &mut *self.connection)?;
                arms.extend(found.into_iter().map(|arm| arm.within(reach)));
            }
            if others.is_empty() {
                group.count(state, ids, &mut sum, &mut *self.connection)?;
            } else {
                for arm in &arms[first..] {
                    sum.rows(1, arm, ids);
                }
            }
        }
        Ok(Found { arms, total: self.sum(sum)? })
    }

    /// The groups of strands on a way, of which only one may be wanted.
    fn groups_of(
        &mut self,
        way: &Way,
        group: Option<u8>,
        horizon: Option<tallies::lag::Key>,
    ) -> Result<Vec<Group>, StoreError> {
        let mut groups = self.groups(&way.branches, horizon)?;
        groups.retain(|found| {
            let is_on = way.branches.iter().any(|branch| found.is_on(branch));
            is_on && group.is_none_or(|group| group == found.group())
        });
        Ok(groups)
    }

    /// The ids of a page, with one more if there is one.
    fn ids(
        &mut self,
        table: &'static str,
        arms: &[Arm],
        ids: Ids,
        page: PageRequest,
    ) -> Result<Vec<Uuid>, StoreError> {
        let mut listed = Vec::new();
        if ids.is_empty() {
            return Ok(listed);
        }
        let limit = page.limit.saturating_add(1);
        for arms in arms.chunks(MERGED_MAX) {
            listed.extend(merged(&mut *self.connection, table, arms, ids, (limit, page.order))?);
        }
        if arms.len() > MERGED_MAX {
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
            let id = Row::new(R::TABLE, R::COLUMNS, values.clone()).uuid()?;
            let record = R::read(&mut Row::new(R::TABLE, R::COLUMNS, values), keyring)?;
            found.insert(id, Arc::new(record));
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

/// The first ids in a range of the rows of a table that are in one of some arms, as many as a limit
/// says and in an order.
pub(crate) fn merged(
    connection: &mut dyn Connection,
    table: &'static str,
    arms: &[Arm],
    ids: Ids,
    (limit, order): (u32, Order),
) -> Result<Vec<Uuid>, StoreError> {
    let limit = Value::from(limit);
    let of_arm = |arm: &Arm| {
        let [from, to] = arm.reach(ids).values();
        arm.values().chain([from, to, limit.clone()]).collect::<Vec<_>>()
    };
    let mut values: Vec<_> = arms.iter().flat_map(of_arm).collect();
    values.push(limit.clone());
    let mut listed = Vec::new();
    connection.query(&merge(arms, order), &values, 1, &mut |values| {
        listed.push(Row::new(table, &["id"], values).uuid()?);
        Ok(())
    })?;
    Ok(listed)
}

/// The first ids in a range of the rows of some arms, in an order. Each arm has a limit of its own:
/// a planner that only knows the one of all would rather sort everything.
fn merge(arms: &[Arm], order: Order) -> String {
    let direction = match order {
        Order::Descending => "desc",
        Order::Ascending => "asc",
    };
    let one = |(number, arm): (usize, &Arm)| {
        let rows = arm.text();
        format!(
            "select id from (select id from {rows} and id between ? and ? \
             order by id {direction} limit ?) as arm_{number}"
        )
    };
    let arms: Vec<_> = arms.iter().enumerate().map(one).collect();
    numbered(&format!("{} order by id {direction} limit ?", arms.join(" union all ")))
}

/// Examples of the statements of every list, whose texts are made as filters ask for them: with
/// strands of all parts of its index, where it has parts. They are those of one engine where one
/// keeps strands apart.
pub(crate) fn statements(is_embedded: bool) -> impl Iterator<Item = String> {
    tallies::indexes().flat_map(move |index| {
        let strand = |facet| Strand { index, leader: Uuid::nil(), facet };
        let facet = |state| Facet { group: 0, state };
        let passing = index.passing.first().copied().unwrap_or(0);
        let usual = index.usual.unwrap_or(passing);
        let brief = index.brief.map(|brief| brief.facet);
        let strands = [passing, usual].map(facet).into_iter().chain(brief).map(strand);
        let arms: Vec<_> = strands
            .map(|strand| match is_embedded && strand.is_kept_apart() {
                true => Arm::apart(&strand, &Conditions::default(), Conditions::default(), &[]),
                false => vec![Arm::new(index.table, Conditions::of(&strand))],
            })
            .collect::<Vec<_>>()
            .concat();
        let page = |order| merge(&arms, order);
        [page(Order::Descending), page(Order::Ascending), tallies::example(index, &arms)]
    })
}

/// A text with `$1`, `$2` and so on in place of each `?`.
pub(crate) fn numbered(text: &str) -> String {
    let mut parts = text.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    (1..).zip(parts).fold(first, |text, (number, part)| format!("{text}${number}{part}"))
}
