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
//!
//! Rows whose index all leaders share are there for a moment, and leave entries of rows that are
//! gone, which PostgreSQL clears up seldom: a look at the oldest would pass all of them. So a
//! platform has a **horizon** as well, a time before which none of its rows there was made. It is
//! moved whenever a group is counted, from itself onwards, is never later than the time in
//! `counted`, and goes back for a row that comes late (docs/decisions/0043).

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

/// A tally's row without its bucket.
pub(crate) type Key = (Scope, i64);

/// Where the horizon of a platform stands, if rows of this index share one with all leaders: beside
/// the tallies of these rows, where groups have their times. `index` is the one by platform.
pub(crate) fn horizon(index: &Index, platform: Uuid) -> Option<Key> {
    let brief = index.brief?;
    Some((super::scope(index, span(index), platform), brief.facet.code()))
}

/// The bucket of the row that says up to when a group is counted. No span of time has this number.
pub(crate) const COUNTED: i64 = -1;

/// A group is counted each time that so many new rows are in it: few enough for a list to count on
/// the index.
const ROWS_COUNTED_TOGETHER: u32 = 256;

/// Rows that are counted at once at most. After hours in which a group was not counted, each time
/// catches up with as many, and no commit waits for millions. A group that has more in a tick is
/// counted several times in it.
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

/// When the lane has a group counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The last time up to which this lane had it counted; 0 if that is not known.
    time: i64,
    /// Rows that came since then, as far as the lane knows.
    rows: u32,
}

impl Pace {
    /// That of a group of which nothing is remembered. How far it is from being counted, the id of
    /// the row with which it is met says by chance: groups that are forgotten after each row are
    /// counted as often as others.
    fn of_unknown(id: Uuid) -> Self {
        let left = (id.as_u128() % u128::from(ROWS_COUNTED_TOGETHER)) as u32;
        Self { time: 0, rows: ROWS_COUNTED_TOGETHER - 1 - left }
    }

    /// A row came. Tells up to when the group is to be counted with it, if it is.
    fn came(&mut self, id: Uuid) -> Option<i64> {
        self.rows = self.rows.saturating_add(1);
        let until = due(id).max(self.time);
        let most = if until > self.time { ROWS_COUNTED_TOGETHER } else { ROWS_AT_ONCE };
        if self.rows < most {
            return None;
        }
        *self = Self { time: until, rows: 0 };
        Some(until)
    }
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

/// Takes a horizon back.
pub(crate) const BACK: &str = "update tallies set rows = $1 \
    where scope = $2 and facet = $3 and bucket = $4 and rows > $1";

/// What a batch does to groups whose tallies lag behind.
#[derive(Default)]
pub(super) struct Deltas {
    groups: BTreeMap<Key, Group>,
    /// The oldest row of each platform that came into the index which all leaders share.
    waiting: BTreeMap<PlatformId, (Key, Uuid)>,
}

/// A group of rows of a leader, and what a batch does to it.
struct Group {
    strand: Strand,
    platform: PlatformId,
    /// That of its platform.
    horizon: Option<Key>,
    /// Rows that it has now and had not before (1), or the other way round (-1).
    rows: Vec<(Uuid, i64)>,
}

impl Deltas {
    /// A row came into a group, or left it. `strand` is one of the group's, and `of_platform` the
    /// row's in the list of its platform.
    pub(super) fn moved(
        &mut self,
        of_platform: &Strand,
        (scope, code): Key,
        strand: &Strand,
        row: (Uuid, i64),
    ) {
        let Strand { index, leader, .. } = *of_platform;
        let (platform, horizon) = (PlatformId::from_uuid(leader), horizon(index, leader));
        let new = || Group { strand: *strand, platform, horizon, rows: Vec::new() };
        self.groups.entry((scope, code)).or_insert_with(new).rows.push(row);
    }

    /// A row came into a strand of its platform's list.
    pub(super) fn came(&mut self, strand: &Strand, id: Uuid) {
        let Strand { index, leader, facet } = *strand;
        if index.brief(facet).is_some()
            && let Some(horizon) = horizon(index, leader)
        {
            let oldest = self.waiting.entry(PlatformId::from_uuid(leader)).or_insert((horizon, id));
            oldest.1 = oldest.1.min(id);
        }
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
        for (platform, (horizon, id)) in self.waiting {
            // One that is not known may be as late as this row.
            let until = counted_until(cache, platform);
            if until.is_none_or(|until| made(id) < until) {
                lags.back.push((horizon, id));
            }
        }
        for ((scope, code), Group { strand, platform, horizon, rows }) in self.groups {
            let until = counted_until(cache, platform).unwrap_or(0);
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
            let Some(first) = come().min() else { continue };
            let (mut pace, mut time) = match cache.groups.get(&(scope, code)).copied() {
                Some(pace) => (pace, pace.time),
                None => {
                    new.push(row(scope, code, COUNTED, due(first)));
                    (Pace::of_unknown(first), due(first))
                }
            };
            if let Some(until) = come().filter_map(|id| pace.came(id)).last() {
                lags.due.push(Due { scope, code, strand, horizon, until });
                time = until;
            }
            cache.groups.insert((scope, code), pace);
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

/// A time that no group of a platform's is counted beyond, if it is known; 0 if there is none.
fn counted_until(cache: &mut Cache, platform: PlatformId) -> Option<i64> {
    let found = cache.rows.counted.get(&platform)?;
    Some(found.row.as_ref().map_or(0, |counted| counted.until))
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
    /// That of its platform.
    horizon: Option<Key>,
    until: i64,
}

/// What is to be done to tallies behind the writes of a batch, in its transaction.
#[derive(Default)]
pub(crate) struct Lags {
    late: Vec<Late>,
    /// Horizons that are perhaps behind a row.
    back: Vec<(Key, Uuid)>,
    due: Vec<Due>,
}

impl Lags {
    /// Whether there is nothing to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.late.is_empty() && self.back.is_empty() && self.due.is_empty()
    }

    /// Does it.
    pub(crate) fn write(&self, connection: &mut dyn Connection) -> Result<(), StoreError> {
        // Each in the state of the group before this batch counts it.
        for late in &self.late {
            late.write(connection)?;
        }
        for ((scope, code), id) in &self.back {
            let values =
                [made(*id).into(), Value::from(&scope[..]), (*code).into(), COUNTED.into()];
            connection.execute(BACK, &values)?;
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
        let Self { scope, code, strand, horizon, mut until } = *self;
        let span = span(strand.index);
        let from = time(connection, (scope, code))?.ok_or_else(|| StoreError::Corrupt {
            place: "tallies.bucket".to_owned(),
            what: "a group has no time up to which it is counted".to_owned(),
        })?;
        let (strands, brief) = strands(&strand);
        let mut moved = Vec::new();
        if let (Some(brief), Some(horizon)) = (brief, horizon) {
            let since = time(connection, horizon)?.unwrap_or(0);
            let oldest = oldest(connection, strand.index, brief, (horizon, since))?;
            until = oldest.map_or(until, |oldest| until.min(made(oldest)));
            if until > since {
                let (scope, code) = horizon;
                moved.push(row(scope, code, COUNTED, until));
            }
        }
        let mut counted = BTreeMap::<i64, i64>::new();
        if from < until {
            let ids;
            (ids, until) = uncounted(connection, &strand, &strands, (from, until))?;
            for id in ids {
                *counted.entry(bucket(id, span)).or_default() += 1;
            }
            moved.push(row(scope, code, COUNTED, until));
        }
        let counted = counted.into_iter().map(|(bucket, rows)| row(scope, code, bucket, rows));
        let writes = [(&TALLIES, counted.collect()), (&MOVED, moved)];
        let writes = writes.map(|(shape, rows)| Write { shape, change: Change::Upsert, rows });
        connection.write(writes.into_iter().filter(|write| !write.rows.is_empty()).collect())
    }
}

/// The rows of some strands of one leader that were made in a time, and the end of the time if they
/// are not too many, or that of the part of it which they are of.
fn uncounted(
    connection: &mut dyn Connection,
    of: &Strand,
    strands: &[Strand],
    (from, mut until): (i64, i64),
) -> Result<(Vec<Uuid>, i64), StoreError> {
    let mut arms = Vec::new();
    for strand in strands {
        arms.extend(Arm::of(strand, &Conditions::default(), connection)?);
    }
    let range = Ids::since(from).and(Ids::before(until));
    let oldest_first = (ROWS_AT_ONCE, Order::Ascending);
    let mut ids = merged(connection, of.index.table, &arms, range, oldest_first)?;
    if let Some(last) = ids.get(ROWS_AT_ONCE as usize - 1) {
        until = made(*last);
        ids.retain(|id| made(*id) < until);
    }
    Ok((ids, until))
}

/// A time that stands in a tally's place.
fn time(connection: &mut dyn Connection, (scope, code): Key) -> Result<Option<i64>, StoreError> {
    let mut time = None;
    let key = [Value::from(&scope[..]), code.into(), COUNTED.into()];
    connection.query(UNTIL, &key, 1, &mut |values| {
        time = Some(Row::new(TALLIES.table, &["rows"], values).int()?);
        Ok(())
    })?;
    Ok(time)
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

/// The first of a platform's rows that share an index with all leaders, from an id on.
fn text_of_oldest(index: &Index, brief: Brief) -> String {
    format!(
        "select id from {} where {} and platform = $1 and id >= $2 order by id limit 1",
        index.table, brief.is
    )
}

fn oldest(
    connection: &mut dyn Connection,
    index: &Index,
    brief: Brief,
    ((scope, _), since): (Key, i64),
) -> Result<Option<Uuid>, StoreError> {
    let platform = super::leader(&scope).unwrap_or_default();
    let [first, _] = Ids::since(since).values();
    let mut oldest = None;
    let values = [platform.into(), first];
    connection.query(&text_of_oldest(index, brief), &values, 1, &mut |values| {
        oldest = Some(Row::new(index.table, &["id"], values).uuid()?);
        Ok(())
    })?;
    Ok(oldest)
}

/// Every statement whose text is fixed.
pub(crate) fn statements() -> Vec<String> {
    let upserts = [&NEW, &MOVED].map(|shape| shape.texts().upsert.clone());
    let briefs = super::indexes().filter_map(|index| Some(text_of_oldest(index, index.brief?)));
    let texts = [UNTIL, LATE, BACK].map(str::to_owned);
    texts.into_iter().chain(upserts.into_iter().flatten()).chain(briefs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id that was drawn so many ticks after the beginning.
    fn id(tick: i64, low: u128) -> Uuid {
        Uuid::from_u128(((tick << TICK) as u128) << 80 | low)
    }

    /// After how many rows that come within each tick a group is counted, each time.
    fn counted(mut pace: Pace, rows_in_tick: i64, rows: i64) -> Vec<(i64, i64)> {
        let ids = (0..rows).map(|row| (row + 1, id(100 + row / rows_in_tick, 7)));
        ids.filter_map(|(row, id)| Some((row, pace.came(id)? >> TICK))).collect()
    }

    #[test]
    fn a_group_is_counted_after_so_many_rows() {
        let known = Pace { time: 96 << TICK, rows: 0 };
        // Up to four ticks before the row with which it is counted.
        assert_eq!(counted(known, 1, 1_000), [(256, 351), (512, 607), (768, 863)]);
        assert_eq!(counted(known, 100, 1_000), [(256, 98), (512, 101), (768, 103)]);
        // Not twice up to the same time, but that more than is counted at once came since.
        assert_eq!(counted(known, 600, 1_800), [(601, 97), (1_201, 98)]);
        let steps = [(4_096, 96), (8_192, 96), (10_001, 97), (14_097, 97), (18_193, 97)];
        assert_eq!(counted(known, 10_000, 20_000), steps);
    }

    #[test]
    fn a_group_of_which_nothing_is_remembered_is_counted_as_often() {
        let first = |low| counted(Pace::of_unknown(id(100, low)), 1, 256)[0].0;
        assert_eq!([0, 1, 255, 256, 511].map(first), [1, 2, 256, 1, 256]);
        let is_at_once = |low: &u128| Pace::of_unknown(id(100, *low)).came(id(100, *low)).is_some();
        assert_eq!((0..1_024).filter(is_at_once).count(), 4);
    }

    #[test]
    fn a_row_that_comes_late_takes_no_time_back() {
        let mut pace = Pace { time: 96 << TICK, rows: ROWS_AT_ONCE - 1 };
        assert_eq!(pace.came(id(50, 0)), Some(96 << TICK));
        assert!(pace.came(id(100, 0)).is_none() && pace.time == 96 << TICK);
    }
}
