//! Tallies that lag behind their rows (docs/decisions/0036).
//!
//! A payment is in the lists of an account, a payee, a payer and an address, and each of them is a
//! page of its own among millions of tallies. So a new row changes no tally of theirs. What is kept
//! for each group of rows of a leader is a time: its tallies of all states count the rows that were
//! made before it, and those that were made since are counted on the index, where they are few.
//! One new row in [`ROWS_COUNTED_TOGETHER`] has its groups counted up to a few seconds before it,
//! and no further than rows whose index all leaders share: those would take a look at all of them.
//!
//! A row may come late: it was made before the time up to which its group is counted. `counted`
//! has, for each platform, a time that none of its groups is ahead of, so that hardly any row needs
//! a look at its groups. One made before that is added to the tally by a statement that looks.

use std::collections::BTreeMap;

use domain::id::PlatformId;
use uuid::Uuid;

use super::{Scope, TALLIES, row};
use crate::cache::Cache;
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, Slots, record_table};
use crate::select::{Arm, Conditions, Order, merged};
use crate::sql::{Change, Connection, Row, Shape, Value, Write};
use crate::strands::{ALL_TIME, Brief, Facet, Ids, Index, Strand, bucket};

/// The bucket of the row that says up to when a group is counted. No span of time has this number.
pub(crate) const COUNTED: i64 = -1;

/// A group is counted each time that about so many new rows are in it: few enough for a list to
/// count on the index.
const ROWS_COUNTED_TOGETHER: u128 = 256;

/// Rows that are counted at once at most. After hours in which a group was not counted, each time
/// catches up with as many, and no commit waits for millions.
const ROWS_AT_ONCE: u32 = 4_096;

/// Rows have groups counted up to multiples of `2^10` milliseconds, so that a platform's
/// row of `counted` changes once a second at most, however many accounts it has.
const TICK: u32 = 10;

/// How many ticks a group's time is behind its newest row: longer than requests that were made
/// together are under way, so that hardly any row comes late.
const TICKS_BEHIND: i64 = 4;

/// Up to when a group may be counted because of a row.
fn due(id: Uuid) -> i64 {
    (bucket(id, TICK) - TICKS_BEHIND).max(0) << TICK
}

/// When a row was made.
pub(crate) fn made(id: Uuid) -> i64 {
    bucket(id, 0)
}

/// A time that no group of a platform's is counted beyond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The platform.
    pub platform: PlatformId,
    /// The time, in the milliseconds of ids.
    pub until: i64,
}

impl Record for Counted {
    type Key = PlatformId;
    const TABLE: &'static str = "counted";
    const COLUMNS: &'static [&'static str] = &["platform", "until"];
    record_table!(counted);

    fn key(&self) -> PlatformId {
        self.platform
    }

    fn key_value(key: &PlatformId) -> Value {
        (*key).into()
    }

    fn values(&self, _: &Keyring) -> Vec<Value> {
        vec![self.platform.into(), self.until.into()]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        Ok(Self { platform: row.id()?, until: row.int()? })
    }
}

/// Tallies of groups that are new; of one that is there, nothing changes.
pub(crate) static NEW: Shape = Shape::new("tallies", TALLIES.columns, 3, Some("do nothing"));

/// The times up to which groups are counted.
pub(crate) static MOVED: Shape =
    Shape::new("tallies", TALLIES.columns, 3, Some("do update set rows = excluded.rows"));

/// Up to when a group is counted.
pub(crate) const UNTIL: &str =
    "select rows from tallies where scope = $1 and facet = $2 and bucket = $3";

/// Adds rows that came late to a tally if their group is counted beyond them.
pub(crate) const LATE: &str = "insert into tallies (scope, facet, bucket, rows) \
    select scope, facet, cast($1 as bigint), cast($2 as bigint) from tallies \
    where scope = $3 and facet = $4 and bucket = $5 and rows > $6 \
    on conflict (scope, facet, bucket) do update set rows = tallies.rows + excluded.rows";

/// What a batch does to groups whose tallies lag behind.
#[derive(Default)]
pub(super) struct Deltas(BTreeMap<(Scope, i64), Group>);

/// A group of rows of a leader, and what a batch does to it.
struct Group {
    strand: Strand,
    platform: PlatformId,
    /// Rows that it has now and had not before (1), or the other way round (-1).
    rows: Vec<(Uuid, i64)>,
}

impl Deltas {
    /// A row of a platform came into a group, or left it. `strand` is one of the group's.
    pub(super) fn moved(
        &mut self,
        platform: PlatformId,
        (scope, code): (Scope, i64),
        strand: &Strand,
        row: (Uuid, i64),
    ) {
        let new = || Group { strand: *strand, platform, rows: Vec::new() };
        self.0.entry((scope, code)).or_insert_with(new).rows.push(row);
    }

    /// Adds the writes, and tells what is to be done behind them. It was read up to when each of
    /// the platforms is counted.
    pub(super) fn settle(
        self,
        cache: &mut Cache,
        keyring: &Keyring,
        counted: &mut Slots<Counted>,
        writes: &mut Vec<Write>,
    ) -> Lags {
        let (mut lags, mut new) = (Lags::default(), Vec::new());
        let mut ahead = BTreeMap::<PlatformId, i64>::new();
        for ((scope, code), Group { strand, platform, rows }) in self.0 {
            let known = cache.rows.counted.get(&platform).and_then(|found| found.row.as_ref());
            let until = known.map_or(0, |counted| counted.until);
            let late = rows.iter().filter(|(id, _)| made(*id) < until);
            lags.late.extend(late.map(|(id, sign)| Late {
                scope,
                code,
                strand,
                id: *id,
                sign: *sign,
            }));
            let come = || rows.iter().filter(|(_, sign)| *sign > 0).map(|(id, _)| *id);
            // A group that is new has had no rows before these.
            let Some(first) = come().map(due).min() else { continue };
            let known = cache.groups.get(&(scope, code)).copied();
            let mut time = known.unwrap_or_else(|| {
                new.push(row(scope, code, COUNTED, first));
                first
            });
            let is_drawn = |id: &Uuid| id.as_u128().is_multiple_of(ROWS_COUNTED_TOGETHER);
            let drawn = come().filter(is_drawn).map(due).max();
            if let Some(until) = drawn.filter(|due| *due > time) {
                lags.due.push(Due { scope, code, strand, until });
                time = until;
            }
            cache.groups.insert((scope, code), time);
            if time > until {
                let ahead = ahead.entry(platform).or_insert(time);
                *ahead = time.max(*ahead);
            }
        }
        if !new.is_empty() {
            writes.push(Write { shape: &NEW, change: Change::Upsert, rows: new });
        }
        for (platform, until) in ahead {
            counted.put(Counted { platform, until }.into());
        }
        counted.writes(&mut cache.rows, keyring, &mut super::Deltas::default(), writes);
        lags
    }
}

/// A row that perhaps came late.
struct Late {
    scope: Scope,
    code: i64,
    strand: Strand,
    id: Uuid,
    sign: i64,
}

/// A group that is to be counted up to a time.
struct Due {
    scope: Scope,
    code: i64,
    strand: Strand,
    until: i64,
}

/// What is to be done to tallies behind the writes of a batch, in its transaction.
#[derive(Default)]
pub(crate) struct Lags {
    late: Vec<Late>,
    due: Vec<Due>,
}

impl Lags {
    /// Whether there is nothing to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.late.is_empty() && self.due.is_empty()
    }

    /// Does it.
    pub(crate) fn write(&self, connection: &mut dyn Connection) -> Result<(), StoreError> {
        // Each in the state of the group before this batch counts it.
        for late in &self.late {
            late.write(connection)?;
        }
        self.due.iter().try_for_each(|due| due.write(connection))
    }
}

impl Late {
    fn write(&self, connection: &mut dyn Connection) -> Result<(), StoreError> {
        let Self { scope, code, strand, id, sign } = self;
        let values = [
            bucket(*id, span(strand.index)).into(),
            (*sign).into(),
            Value::from(&scope[..]),
            (*code).into(),
            COUNTED.into(),
            made(*id).into(),
        ];
        connection.execute(LATE, &values).map(drop)
    }
}

impl Due {
    fn write(&self, connection: &mut dyn Connection) -> Result<(), StoreError> {
        let Self { scope, code, strand, until } = self;
        let span = span(strand.index);
        let mut from = None;
        let group = [Value::from(&scope[..]), (*code).into(), COUNTED.into()];
        connection.query(UNTIL, &group, 1, &mut |values| {
            from = Some(Row::new(TALLIES.table, &["rows"], values).int()?);
            Ok(())
        })?;
        let from = from.ok_or_else(|| StoreError::Corrupt {
            place: "tallies.bucket".to_owned(),
            what: "a group has no time up to which it is counted".to_owned(),
        })?;
        let (strands, brief) = strands(strand);
        let oldest = match brief {
            Some(brief) => oldest(connection, strand.index, brief)?.map(made),
            None => None,
        };
        let mut until = oldest.unwrap_or(i64::MAX).min(*until);
        if from >= until {
            return Ok(());
        }
        let mut arms = Vec::new();
        for strand in &strands {
            arms.extend(Arm::of(strand, &Conditions::default(), connection)?);
        }
        let range = Ids::since(from).and(Ids::before(until));
        let oldest_first = (ROWS_AT_ONCE, Order::Ascending);
        let mut ids = merged(connection, strand.index.table, &arms, range, oldest_first)?;
        if let Some(last) = ids.get(ROWS_AT_ONCE as usize - 1) {
            until = made(*last);
            ids.retain(|id| made(*id) < until);
        }
        let mut counted = BTreeMap::<i64, i64>::new();
        for id in ids {
            *counted.entry(bucket(id, span)).or_default() += 1;
        }
        let counted = counted.into_iter().map(|(bucket, rows)| row(*scope, *code, bucket, rows));
        let moved = vec![row(*scope, *code, COUNTED, until)];
        let writes = [(&TALLIES, counted.collect()), (&MOVED, moved)];
        let writes = writes.map(|(shape, rows)| Write { shape, change: Change::Upsert, rows });
        connection.write(writes.into_iter().filter(|write| !write.rows.is_empty()).collect())
    }
}

/// The only span of time for which there are tallies of an index that lags.
fn span(index: &Index) -> u32 {
    index.spans.first().copied().unwrap_or(ALL_TIME)
}

/// Every strand of a group but the one that shares an index with all leaders: a run of it is as
/// long as all of them wait for something. No group is counted beyond the oldest of these rows.
fn strands(of: &Strand) -> (Vec<Strand>, Option<Brief>) {
    let facet = |state| Facet { group: of.facet.group, state };
    let brief = of.index.brief.filter(|brief| brief.facet.group == of.facet.group);
    let facets = (0..of.index.lagging).map(facet);
    let facets = facets.filter(|facet| brief.is_none_or(|brief| brief.facet != *facet));
    (facets.map(|facet| Strand { facet, ..*of }).collect(), brief)
}

/// The first of the rows that share an index with all leaders.
fn text_of_oldest(index: &Index, brief: Brief) -> String {
    format!("select id from {} where {} order by id limit 1", index.table, brief.is)
}

fn oldest(
    connection: &mut dyn Connection,
    index: &Index,
    brief: Brief,
) -> Result<Option<Uuid>, StoreError> {
    let mut oldest = None;
    connection.query(&text_of_oldest(index, brief), &[], 1, &mut |values| {
        oldest = Some(Row::new(index.table, &["id"], values).uuid()?);
        Ok(())
    })?;
    Ok(oldest)
}

/// Every statement whose text is fixed.
pub(crate) fn statements() -> Vec<String> {
    let upserts = [&NEW, &MOVED].map(|shape| shape.texts().upsert.clone());
    let briefs = super::indexes().filter_map(|index| Some(text_of_oldest(index, index.brief?)));
    let texts = [UNTIL, LATE].map(str::to_owned);
    texts.into_iter().chain(upserts.into_iter().flatten()).chain(briefs).collect()
}
