//! Tallies: how many rows each strand of a list has, kept exact by the transaction that changes
//! them, so that a list of any length tells its `totalCount` at once.
//!
//! A batch of units sums what it changes and adds it to each tally once. Nothing is read for that:
//! what a changed row was before is known to the lane. `verify` counts all rows and compares.
//!
//! Tallies of accounts, of which there are as many as there are accounts, lag behind ([`lag`]).

pub(crate) mod lag;

use std::collections::BTreeMap;

use uuid::Uuid;

use self::lag::{Counted, Lags};
use crate::cache::Cache;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::readers::View;
use crate::record::Slots;
use crate::select::{Arm, Branch, Conditions, numbered};
use crate::sql::{Change, Connection, Row, Shape, Value, Write};
use crate::strands::{Facet, Ids, Index, Membership, Part, Strand, bucket};
use crate::{customers, deliveries, external_accounts, quotes, tokens, transactions};

/// The table of tallies.
pub(crate) static TALLIES: Shape = Shape::new(
    "tallies",
    &["scope", "facet", "bucket", "rows"],
    3,
    Some("do update set rows = tallies.rows + excluded.rows"),
);

/// What is tallied together: an index, a length of time and a leader, in this order.
pub(crate) type Scope = [u8; 18];

/// The scope of a leader's tallies for spans of a length.
pub(crate) fn scope(index: &Index, span: u32, leader: Uuid) -> Scope {
    let mut scope = [0; 18];
    scope[0] = index.tag;
    scope[1] = span as u8;
    scope[2..].copy_from_slice(leader.as_bytes());
    scope
}

/// The leader of a scope.
pub(crate) fn leader(scope: &[u8]) -> Option<Uuid> {
    Uuid::from_slice(scope.get(2..)?).ok()
}

/// The tallies in which a row counts that is in these strands.
pub(crate) fn of_row(id: Uuid, strand: &Strand) -> impl Iterator<Item = (Scope, i64, i64)> {
    let Strand { index, leader, facet } = *strand;
    let all = Facet::all_of(facet.group);
    let own = index.tallies(facet.state).then(|| facet.code());
    index.spans.iter().flat_map(move |span| {
        let (scope, bucket) = (scope(index, *span, leader), bucket(id, *span));
        std::iter::once(all).chain(own).map(move |code| (scope, code, bucket))
    })
}

/// What a batch does to tallies.
#[derive(Default)]
pub(crate) struct Deltas {
    sums: BTreeMap<(Scope, i64, i64), i64>,
    lagging: lag::Deltas,
    /// Rows that came into strands that are kept apart, and that left them.
    pub(crate) memberships: Vec<Membership>,
}

impl Deltas {
    /// A row was in some strands, if it was there, and is in others now.
    pub(crate) fn moved(&mut self, id: Uuid, before: &[Strand], after: &[Strand]) {
        for (strands, others, sign) in [(before, after, -1), (after, before, 1)] {
            let of_platform = of_platform(strands);
            for strand in strands.iter().filter(|strand| !others.contains(strand)) {
                if strand.is_kept_apart() {
                    self.memberships.push(Membership { strand: *strand, id, is_in: sign > 0 });
                }
                if sign > 0 && of_platform.is_some_and(|own| own.index.tag == strand.index.tag) {
                    self.lagging.came(strand, id);
                }
                let stays_in_group = others.iter().any(|other| other.is_of_group(strand));
                let all = Facet::all_of(strand.facet.group);
                for tally in of_row(id, strand) {
                    let (scope, code, _) = tally;
                    if code != all || !(stays_in_group || strand.index.lags()) {
                        *self.sums.entry(tally).or_default() += sign;
                    } else if !stays_in_group && let Some(of_platform) = of_platform {
                        self.lagging.moved(of_platform, (scope, code), strand, (id, sign));
                    }
                }
            }
        }
    }

    /// Adds the writes that change tallies, and tells what is to be done behind them.
    pub(crate) fn settle(
        self,
        cache: &mut Cache,
        keyring: &Keyring,
        counted: &mut Slots<Counted>,
        writes: &mut Vec<Write>,
    ) -> Lags {
        let sums = self.sums.into_iter().filter(|(_, rows)| *rows != 0);
        let rows: Vec<_> =
            sums.map(|((scope, facet, bucket), rows)| row(scope, facet, bucket, rows)).collect();
        if !rows.is_empty() {
            writes.push(Write { shape: &TALLIES, change: Change::Upsert, rows });
        }
        self.lagging.settle(cache, keyring, counted, writes)
    }
}

/// A row of the table.
fn row(scope: Scope, facet: i64, bucket: i64, rows: i64) -> Vec<Value> {
    vec![Value::from(&scope[..]), facet.into(), bucket.into(), rows.into()]
}

/// Of a row's strands, the one in the list of its platform.
pub(crate) fn of_platform(strands: &[Strand]) -> Option<&Strand> {
    strands.iter().find(|strand| strand.index.columns.first() == Some(&"platform"))
}

/// The strands of one leader that agree in their group, with their tallies for all of time.
pub(crate) struct Group {
    index: &'static Index,
    leader: Uuid,
    group: u8,
    all: i64,
    /// Up to when its tally of all states counts them, if that lags behind.
    until: Option<i64>,
    /// Before which time none of its rows was made that share an index with all leaders.
    horizon: i64,
    states: BTreeMap<u16, i64>,
}

impl Group {
    /// How many rows it has, or had when they were counted last.
    pub(crate) fn rows(&self) -> i64 {
        self.all
    }

    /// What its rows agree in for ever.
    pub(crate) fn group(&self) -> u8 {
        self.group
    }

    /// Whether it is of the same index as a branch.
    pub(crate) fn is_along(&self, branch: &Branch) -> bool {
        branch.index.tag == self.index.tag
    }

    /// Whether it is one of a branch's.
    pub(crate) fn is_on(&self, branch: &Branch) -> bool {
        let [first, last] = branch.leaders;
        self.is_along(branch)
            && (first..=last).contains(&self.leader)
            && branch.group.is_none_or(|group| group == self.group)
    }

    /// Its strands that may have rows, of all states or of one.
    pub(crate) fn strands(&self, state: Option<u16>) -> Vec<Strand> {
        let tallied: i64 = self.states.values().sum();
        let (passing, usual) = (self.index.passing.iter(), self.index.usual.iter());
        let has_others = self.until.is_some() || self.all != tallied;
        let others = passing.chain(usual).copied().filter(|_| has_others);
        let states = self.states.iter().filter(|(_, rows)| **rows != 0).map(|(state, _)| *state);
        let mut strands: Vec<_> = states.chain(others).map(|state| self.strand(state)).collect();
        strands.retain(|strand| state.is_none_or(|state| strand.facet.state == state));
        strands
    }

    /// Which of these ids the rows of one of its strands can have.
    pub(crate) fn reach(&self, strand: &Strand, ids: Ids) -> Ids {
        match strand.index.brief(strand.facet) {
            Some(_) => ids.and(Ids::since(self.horizon)),
            None => ids,
        }
    }

    /// Adds how many rows one of its strands has among `ids`.
    fn count_strand(
        &self,
        sign: i64,
        strand: &Strand,
        ids: Ids,
        sum: &mut Sum,
        connection: &mut dyn Connection,
    ) -> Result<(), StoreError> {
        sum.count(sign, strand, self.reach(strand, ids), connection)
    }

    fn strand(&self, state: u16) -> Strand {
        let (index, leader) = (self.index, self.leader);
        Strand { index, leader, facet: Facet { group: self.group, state } }
    }

    /// Adds the terms that count its rows among `ids`, of all states or of one.
    pub(crate) fn count(
        &self,
        state: Option<u16>,
        ids: Ids,
        sum: &mut Sum,
        connection: &mut dyn Connection,
    ) -> Result<(), StoreError> {
        for part in ids.parts(self.index.spans) {
            let (spans, ids) = match part {
                Part::Ids(ids) => {
                    for strand in self.strands(state) {
                        self.count_strand(1, &strand, ids, sum, connection)?;
                    }
                    continue;
                }
                Part::Spans { span, from, to, ids } => {
                    ((scope(self.index, span, self.leader), from, to), ids)
                }
            };
            match state {
                None => self.count_all(spans, ids, sum, connection)?,
                Some(state) if self.index.tallies(state) => {
                    let facet = Facet { group: self.group, state };
                    sum.tallies(1, spans, &[facet.code()]);
                }
                Some(state) if self.index.usual == Some(state) => {
                    self.count_all(spans, ids, sum, connection)?;
                    let code = |state: &u16| Facet { group: self.group, state: *state }.code();
                    let codes: Vec<_> = self.states.keys().map(code).collect();
                    if !codes.is_empty() {
                        sum.tallies(-1, spans, &codes);
                    }
                    for state in self.index.passing {
                        self.count_strand(-1, &self.strand(*state), ids, sum, connection)?;
                    }
                }
                Some(state) => self.count_strand(1, &self.strand(state), ids, sum, connection)?,
            }
        }
        Ok(())
    }
}

impl Group {
    /// Adds the terms that count its rows in whole spans, which have these ids.
    fn count_all(
        &self,
        spans: (Scope, i64, i64),
        ids: Ids,
        sum: &mut Sum,
        connection: &mut dyn Connection,
    ) -> Result<(), StoreError> {
        sum.tallies(1, spans, &[Facet::all_of(self.group)]);
        let Some(until) = self.until else { return Ok(()) };
        let ids = ids.and(Ids::since(until));
        if ids.is_empty() {
            return Ok(());
        }
        let mut strands = self.strands(None).into_iter();
        strands.try_for_each(|strand| self.count_strand(1, &strand, ids, sum, connection))
    }
}

/// Terms that are asked for with one statement. A sum of 1,000 is deeper than SQLite reads, and a
/// list of all accounts of some customers has more.
const TERMS_MAX: usize = 250;

/// A sum of tallies and counts.
#[derive(Default)]
pub(crate) struct Sum {
    parts: Vec<Terms>,
}

/// What one statement adds up.
#[derive(Default)]
struct Terms {
    text: String,
    values: Vec<Value>,
    count: usize,
}

impl Terms {
    fn statement(&self) -> String {
        numbered(&format!("select 0{}", self.text))
    }
}

impl Sum {
    fn add(&mut self, sign: i64, term: &str, values: impl IntoIterator<Item = Value>) {
        if self.parts.last().is_none_or(|terms| terms.count == TERMS_MAX) {
            self.parts.push(Terms::default());
        }
        if let Some(terms) = self.parts.last_mut() {
            terms.text.push_str(if sign < 0 { " - " } else { " + " });
            terms.text.push_str(term);
            terms.values.extend(values);
            terms.count += 1;
        }
    }

    fn tallies(&mut self, sign: i64, (scope, from, to): (Scope, i64, i64), facets: &[i64]) {
        let marks = vec!["?"; facets.len()].join(", ");
        let term = format!(
            "coalesce((select cast(sum(rows) as bigint) from tallies \
             where scope = ? and facet in ({marks}) and bucket between ? and ?), 0)"
        );
        let facets = facets.iter().map(|facet| Value::Int(*facet));
        let values = std::iter::once(Value::from(&scope[..])).chain(facets);
        self.add(sign, &term, values.chain([from.into(), to.into()]));
    }

    fn count(
        &mut self,
        sign: i64,
        strand: &Strand,
        ids: Ids,
        connection: &mut dyn Connection,
    ) -> Result<(), StoreError> {
        for arm in Arm::of(strand, &Conditions::default(), connection)? {
            self.rows(sign, &arm, ids);
        }
        Ok(())
    }

    /// Adds how many rows an arm has.
    pub(crate) fn rows(&mut self, sign: i64, arm: &Arm, ids: Ids) {
        let term = format!("(select count(*) from {} and id between ? and ?)", arm.text());
        self.add(sign, &term, arm.values().chain(arm.reach(ids).values()));
    }
}

/// Every index whose strands are tallied.
pub(crate) fn indexes() -> impl Iterator<Item = &'static Index> {
    transactions::INDEXES.all().chain(quotes::INDEXES.all()).chain([
        &customers::BY_PLATFORM,
        &external_accounts::BY_PLATFORM,
        &external_accounts::BY_OWNER,
        &tokens::BY_PLATFORM,
        &deliveries::BY_PLATFORM,
        &deliveries::BY_RESOURCE,
    ])
}

/// An example of a sum with everything that there may be in one, about arms of one index.
pub(crate) fn example(index: &Index, arms: &[Arm]) -> String {
    let mut sum = Sum::default();
    let scope = scope(index, index.spans[0], Uuid::nil());
    sum.tallies(1, (scope, 0, 1), &[0]);
    sum.tallies(-1, (scope, 0, 1), &[1, 2]);
    for arm in arms {
        sum.rows(-1, arm, Ids::ALL);
    }
    sum.parts.iter().map(Terms::statement).collect()
}

/// The tallies of leaders for all of time, and a horizon if one is asked for beside them.
pub(crate) fn present(branches: usize, horizon: bool) -> String {
    let one = |number: usize| {
        let (from, to) = (2 * number + 1, 2 * number + 2);
        format!(
            "select scope, facet, \
             cast(sum(case when bucket < 0 then 0 else rows end) as bigint), \
             max(case when bucket < 0 then rows else -1 end) from tallies \
             where scope >= ${from} and scope <= ${to} group by scope, facet"
        )
    };
    let beside = || {
        let [scope, facet, bucket] = [1, 2, 3].map(|column| 2 * branches + column);
        format!(
            "select scope, facet, cast(0 as bigint), rows from tallies \
             where scope = ${scope} and facet = ${facet} and bucket = ${bucket}"
        )
    };
    let branches = (0..branches).map(one);
    branches.chain(horizon.then(beside)).collect::<Vec<_>>().join(" union all ")
}

impl View<'_> {
    /// The groups of strands on some branches that have rows. `horizon` says where that of their
    /// platform stands, if they have one.
    pub(crate) fn groups(
        &mut self,
        branches: &[Branch],
        horizon: Option<lag::Key>,
    ) -> Result<Vec<Group>, StoreError> {
        const COLUMNS: &[&str] = &["scope", "facet", "rows", "until"];
        let mut groups: BTreeMap<(u8, Uuid, u8), Group> = BTreeMap::new();
        let range = |Branch { index, leaders, .. }: &Branch| {
            leaders.map(|leader| Value::from(&scope(index, index.spans[0], leader)[..]))
        };
        let index_of = |scope: &[u8]| {
            let mut indexes = branches.iter().map(|branch| branch.index);
            indexes.find(|index| scope.first() == Some(&index.tag))
        };
        let mut values: Vec<_> = branches.iter().flat_map(range).collect();
        // It is among the tallies of its platform's list, which may be asked for anyway.
        let beside = horizon.filter(|(scope, _)| index_of(scope).is_none());
        let key = |(scope, code): (Scope, i64)| {
            [Value::from(&scope[..]), code.into(), lag::COUNTED.into()]
        };
        values.extend(beside.into_iter().flat_map(key));
        let mut since = 0;
        let text = present(branches.len(), beside.is_some());
        self.connection.query(&text, &values, COLUMNS.len(), &mut |values| {
            let row = &mut Row::new(TALLIES.table, COLUMNS, values);
            let scope = row.bytes()?;
            let (index, leader) = (index_of(&scope), leader(&scope));
            let of_group = index.zip(leader);
            if of_group.is_none() && beside.is_none_or(|(beside, _)| beside[..] != scope[..]) {
                return Err(row.corrupt("not the scope of a tally"));
            }
            let code = row.int()?;
            let (group, state) =
                Facet::decode(code).ok_or_else(|| row.corrupt("not a facet of its list"))?;
            let (rows, time) = (row.int()?, row.int()?);
            if horizon.is_some_and(|(own, of)| own[..] == scope[..] && of == code) {
                since = time.max(0);
            }
            let Some((index, leader)) = of_group else { return Ok(()) };
            let (until, horizon, states) = (None, 0, BTreeMap::new());
            let new = || Group { index, leader, group, all: 0, until, horizon, states };
            let found = groups.entry((index.tag, leader, group)).or_insert_with(new);
            match state {
                None => {
                    found.all += rows;
                    found.until = Some(time).filter(|_| index.lags());
                }
                Some(state) => *found.states.entry(state).or_default() += rows,
            }
            Ok(())
        })?;
        groups.retain(|_, group| group.all != 0 || group.until.is_some());
        groups.values_mut().for_each(|group| group.horizon = since);
        Ok(groups.into_values().collect())
    }

    /// The value of a sum.
    pub(crate) fn sum(&mut self, sum: Sum) -> Result<u64, StoreError> {
        let mut total = 0;
        for terms in &sum.parts {
            self.connection.query(&terms.statement(), &terms.values, 1, &mut |values| {
                total += Row::new(TALLIES.table, &["total"], values).int()?;
                Ok(())
            })?;
        }
        Ok(u64::try_from(total).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::strands::{Brief, Parts};

    #[test]
    fn no_two_indexes_share_their_tallies() {
        let tags: BTreeSet<_> = indexes().map(|index| index.tag).collect();
        assert_eq!(tags.len(), indexes().count());
    }

    /// What the columns of a facet hold, as texts have it.
    fn names_of(index: &Index, facet: Facet) -> Vec<String> {
        let quoted = (index.values)(facet).into_iter().map(|value| match value {
            Value::Text(name) => format!("'{name}'"),
            other => panic!("{other:?} is in no facet of {}", index.table),
        });
        quoted.collect()
    }

    #[test]
    fn every_state_of_an_index_that_lags_has_a_name() {
        for index in indexes().filter(|index| index.lags()) {
            let states = (0..index.lagging).map(|state| names_of(index, Facet { group: 0, state }));
            let names: BTreeSet<_> = states.collect();
            assert_eq!(names.len(), usize::from(index.lagging));
            let known = index.passing.iter().chain(&index.usual);
            assert!(known.into_iter().all(|state| *state < index.lagging));
        }
    }

    #[test]
    fn the_parts_of_an_index_say_which_states_are_passing() {
        for index in indexes() {
            let Some(Parts { passing, lasting }) = index.parts else { continue };
            let name = |state: &u16| {
                let names = names_of(index, Facet { group: 0, state: *state });
                names.last().cloned().expect("a state has a name")
            };
            let names: Vec<_> = index.passing.iter().map(name).collect();
            let (pair, rest) = names.split_first_chunk::<2>().expect("two states at least");
            let pair = pair.join(", ");
            let (mut is, mut is_not) =
                (format!("status in ({pair})"), format!("status not in ({pair})"));
            if let [other] = rest {
                is = format!("({is} or status = {other})");
                is_not += &format!(" and status <> {other}");
            }
            assert_eq!((passing, lasting), (&*is, &*is_not));
        }
    }

    #[test]
    fn rows_with_an_index_of_their_own_are_those_of_their_facet() {
        let briefs: Vec<_> = indexes().filter_map(|index| Some((index, index.brief?))).collect();
        assert_eq!(briefs.len(), 5, "the lists of transactions");
        for (index, Brief { facet, is, is_not }) in briefs {
            let [_, state] = &names_of(index, facet)[..] else {
                panic!("{facet:?} has two columns")
            };
            // There are two directions, so that one is what the other is not.
            let [other, _] = &names_of(index, Facet { group: 0, ..facet })[..] else {
                panic!("{facet:?} has two columns")
            };
            assert_eq!(facet.group, 1);
            assert!(index.parts.is_none() || index.passing.contains(&facet.state));
            assert_eq!(is, format!("status = {state} and direction <> {other}"));
            assert_eq!(is_not, format!("(status <> {state} or direction = {other})"));
        }
    }
}
