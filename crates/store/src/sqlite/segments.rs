//! First answers in the order of time, and how one of them is found (docs/decisions/0037).
//!
//! The scope of an answer is as good as chance ([`crate::idempotency`]). In a table that stands in
//! the order of scopes, each new answer changes a page of its own, and a look for one that is not
//! there, which nearly every request begins with, reads one. So the table stands by segment, and
//! within a segment by scope: new answers go into the newest segment, which is a few pages, until
//! it is full.
//!
//! Where to look for a scope, filters in memory tell ([`Filters`]), each of a part of the table,
//! which is some segments. They may name a segment that does not have the scope, and never leave
//! out one that has it: a scope is in its filter before it is in the database. The filter of a part
//! that takes no more answers is kept in the database, with the answer that begins the next part.
//! Whatever filter is not there at a start, or is not as it was kept, is made from the answers
//! themselves, so that nothing depends on it that a crash or a disk could lose: a scope that a
//! damaged filter leaves out would be taken for new, and its payment made again.
//!
//! Who has no filters looks into every segment: commands beside a server, which hardly ever look.

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rusqlite::Connection;
use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use crate::idempotency::Scope;
use crate::sqlite::failure;
use crate::sqlite::filters::{Filter, Filters};

/// Answers of one segment, which is then some 50 pages: a commit of full load changes about 20 of
/// them. Fewer would be looked at in vain more often, since a filter names all segments of a part.
const SEGMENT_ANSWERS: usize = 2_048;

/// Segments of one part. A look for a scope asks the filters of all parts, of which there are 153
/// for 10^7 answers.
const PART_SEGMENTS: i64 = 32;

/// Answers of one part.
const PART_ANSWERS: usize = SEGMENT_ANSWERS * PART_SEGMENTS as usize;

const NEWEST: &str = "select max(segment) from idempotency";
const FILTERS: &str =
    "select part, bits, sum from idempotency_filters where part >= $1 order by part";
const KEEP_FILTER: &str = "insert into idempotency_filters (part, bits, sum) values ($1, $2, $3) \
    on conflict (part) do update set bits = excluded.bits, sum = excluded.sum";
const SCOPES: &str = "select segment, scope from idempotency where segment between $1 and $2 \
    order by segment";
const IS_IN: &str = "select count(*) from idempotency where segment = $1 and scope = $2";

/// Every statement of this module.
pub(crate) const STATEMENTS: [&str; 5] = [NEWEST, FILTERS, KEEP_FILTER, SCOPES, IS_IN];

/// The part that a segment is in.
fn part_of(segment: i64) -> usize {
    usize::try_from(segment / PART_SEGMENTS).unwrap_or(0)
}

/// The number of a part as the database has it.
fn number_of(part: usize) -> i64 {
    i64::try_from(part).unwrap_or(i64::MAX)
}

/// The first segment of a part.
fn first_of(part: usize) -> i64 {
    number_of(part).saturating_mul(PART_SEGMENTS)
}

/// What tells a filter as it was kept from a damaged one, or one of another part.
fn sum_of(part: usize, bits: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(number_of(part).to_be_bytes()).chain_update(bits).finalize().into()
}

/// Puts the filter of a part into the database.
fn keep(connection: &Connection, part: usize, filter: &Filter) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(KEEP_FILTER).map_err(failure)?;
    let bits = filter.bits();
    statement.execute((number_of(part), bits, sum_of(part, bits))).map_err(failure).map(drop)
}

/// A filter that was to be there as it was kept, and was not: it was made from the answers.
struct Mended {
    part: usize,
    filter: Filter,
}

/// What is in which part.
struct Parts {
    /// The filters of those that take no more and are in the database, from the first.
    kept: Filters,
    /// The filters of those that take no more, behind these.
    unkept: Vec<Filter>,
    /// How many of the latter will be kept with the commit to come.
    keeping: usize,
    /// The filter of the part that takes answers.
    open: Filter,
    /// The segment in it that takes them.
    segment: i64,
    /// Answers of that segment.
    answers: usize,
}

impl Parts {
    /// Reads the filters behind those that are known to be kept, and the answers of which no
    /// filter is kept. With it are the filters that were not as they were kept.
    fn load(connection: &Connection, mut kept: Filters) -> Result<(Self, Vec<Mended>), StoreError> {
        let newest = newest(connection)?.unwrap_or(0);
        let mended = read_filters(connection, &mut kept, part_of(newest))?;
        // A part whose filter is kept takes no more.
        let open = kept.count().max(part_of(newest));
        let mut unkept = Vec::new();
        for part in kept.count()..open {
            unkept.push(filter_of(connection, part)?.0);
        }
        let (filter, answers) = filter_of(connection, open)?;
        let segment = newest.max(first_of(open));
        Ok((Self { kept, unkept, keeping: 0, open: filter, segment, answers }, mended))
    }

    /// How many take no more.
    fn closed(&self) -> usize {
        self.kept.count() + self.unkept.len()
    }

    /// Gives a new answer its segment.
    fn place(&mut self, scope: &Scope) -> i64 {
        if self.answers >= SEGMENT_ANSWERS {
            (self.segment, self.answers) = (self.segment + 1, 0);
            if part_of(self.segment) > self.closed() {
                let next = Filter::new(PART_ANSWERS);
                self.unkept.push(std::mem::replace(&mut self.open, next));
            }
        }
        self.open.add(scope);
        self.answers += 1;
        self.segment
    }

    /// The segments that may have a scope, the newest first.
    fn candidates(&self, scope: &Scope) -> Vec<i64> {
        let mut segments = Vec::new();
        if self.open.may_have(scope) {
            segments.extend((first_of(self.closed())..=self.segment).rev());
        }
        let unkept = self.unkept.iter().enumerate().rev().filter(|it| it.1.may_have(scope));
        let unkept = unkept.map(|(place, _)| self.kept.count() + place);
        for part in unkept.chain(self.kept.that_may_have(scope)) {
            segments.extend((first_of(part)..first_of(part + 1)).rev());
        }
        segments
    }
}

/// The newest segment with an answer in it.
fn newest(connection: &Connection) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached(NEWEST).map_err(failure)?;
    statement.query_row([], |row| row.get(0)).map_err(failure)
}

/// Reads the filters that are kept, behind those that are known. Those that are damaged, or are not
/// there although that of a later part is, are made from the answers.
fn read_filters(
    connection: &Connection,
    filters: &mut Filters,
    newest: usize,
) -> Result<Vec<Mended>, StoreError> {
    let mut mended = Vec::new();
    let mut mend = |filters: &mut Filters| {
        let part = filters.count();
        let filter = filter_of(connection, part)?.0;
        filters.push(&filter);
        mended.push(Mended { part, filter });
        Ok::<_, StoreError>(())
    };
    let mut statement = connection.prepare_cached(FILTERS).map_err(failure)?;
    let mut rows = statement.query([number_of(filters.count())]).map_err(failure)?;
    while let Some(row) = rows.next().map_err(failure)? {
        let part: i64 = row.get(0).map_err(failure)?;
        let Some(part) = usize::try_from(part).ok().filter(|it| *it <= newest.max(filters.count()))
        else {
            return Err(StoreError::Corrupt {
                place: "idempotency_filters.part".to_owned(),
                what: format!("{part} is a part that no answer has come to"),
            });
        };
        while filters.count() < part {
            mend(filters)?;
        }
        let (bits, sum): (Vec<u8>, Vec<u8>) =
            (row.get(1).map_err(failure)?, row.get(2).map_err(failure)?);
        let is_as_kept = sum == sum_of(part, &bits);
        match Filter::of(bits, PART_ANSWERS).filter(|_| is_as_kept) {
            Some(filter) => filters.push(&filter),
            None => mend(filters)?,
        }
    }
    Ok(mended)
}

/// The filter of a part, made from its answers, and how many are in its newest segment.
fn filter_of(connection: &Connection, part: usize) -> Result<(Filter, usize), StoreError> {
    let (mut filter, mut newest, mut answers) = (Filter::new(PART_ANSWERS), 0, 0);
    each_scope(connection, first_of(part), first_of(part + 1) - 1, |segment, scope| {
        if segment != newest {
            (newest, answers) = (segment, 0);
        }
        answers += 1;
        filter.add(scope);
        Ok(())
    })?;
    Ok((filter, answers))
}

/// Hands over the segment and the scope of every answer in some segments, in their order.
fn each_scope(
    connection: &Connection,
    first: i64,
    last: i64,
    mut each: impl FnMut(i64, &Scope) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(SCOPES).map_err(failure)?;
    let mut rows = statement.query([first, last]).map_err(failure)?;
    while let Some(row) = rows.next().map_err(failure)? {
        let scope: Scope = row.get(1).map_err(failure)?;
        each(row.get(0).map_err(failure)?, &scope)?;
    }
    Ok(())
}

/// Every segment, the newest first: those to look into for whoever has no filters.
pub(super) fn all(connection: &Connection) -> Result<Vec<i64>, StoreError> {
    Ok(newest(connection)?.map_or_else(Vec::new, |newest| (0..=newest).rev().collect()))
}

/// What all connections of a store to one file know of its segments. It is written by the one
/// connection that writes, before anything that it tells of is committed.
#[derive(Default)]
pub(crate) struct Segments {
    parts: RwLock<Option<Parts>>,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Segments").finish_non_exhaustive()
    }
}

impl Segments {
    /// The connection that writes is closed. What others write from now on is not in the filters.
    pub(super) fn release(&self) {
        *self.parts_mut() = None;
    }

    fn parts(&self) -> RwLockReadGuard<'_, Option<Parts>> {
        self.parts.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts_mut(&self) -> RwLockWriteGuard<'_, Option<Parts>> {
        self.parts.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what others may have written, in a transaction that was begun.
    pub(super) fn catch_up(&self, connection: &Connection) -> Result<(), StoreError> {
        // What is not told before the transaction ends is not there for anybody before that.
        let known = self.parts_mut().take().map(|parts| parts.kept).unwrap_or_default();
        let (parts, mended) = Parts::load(connection, known)?;
        for Mended { part, filter } in mended {
            tracing::warn!(part, "a filter of idempotency keys was damaged and is made anew");
            keep(connection, part, &filter)?;
        }
        *self.parts_mut() = Some(parts);
        Ok(())
    }

    /// The segments that may have a scope, the newest first, if it is known what they have.
    pub(super) fn candidates(&self, scope: &Scope) -> Option<Vec<i64>> {
        Some(self.parts().as_ref()?.candidates(scope))
    }

    /// Gives new answers their segments. They can be found before they are in the database.
    pub(super) fn place(&self, scopes: &[Scope]) -> Result<Vec<i64>, StoreError> {
        let mut parts = self.parts_mut();
        let parts = parts.as_mut();
        let parts =
            parts.ok_or_else(|| StoreError::Engine("no transaction was begun".to_owned()))?;
        Ok(scopes.iter().map(|scope| parts.place(scope)).collect())
    }

    /// Puts the filters of parts that take no more into the database.
    pub(super) fn keep_filters(&self, connection: &Connection) -> Result<(), StoreError> {
        let mut parts = self.parts_mut();
        let Some(parts) = parts.as_mut() else { return Ok(()) };
        while let Some(filter) = parts.unkept.get(parts.keeping) {
            keep(connection, parts.kept.count() + parts.keeping, filter)?;
            parts.keeping += 1;
        }
        Ok(())
    }

    /// The transaction ended: what it kept is in the database, or is still to be kept.
    pub(super) fn ended(&self, is_committed: bool) {
        if let Some(parts) = self.parts_mut().as_mut() {
            let keeping = std::mem::take(&mut parts.keeping);
            if is_committed {
                parts.unkept.drain(..keeping).for_each(|filter| parts.kept.push(&filter));
            }
        }
    }
}

/// What is wrong with the filters that are kept, and with the answers: one that no filter has, and
/// the earlier one of two with the same scope, would be given to nobody again.
pub(super) fn findings(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let (parts, mended) = match Parts::load(connection, Filters::default()) {
        Ok(loaded) => loaded,
        Err(StoreError::Corrupt { place, what }) => return Ok(vec![format!("{place}: {what}")]),
        Err(error) => return Err(error),
    };
    let (mut lost, mut twice) = (0_u64, 0_u64);
    // A filter names all segments of its part: those of one part are compared in memory.
    let (mut part, mut of_part) = (0, HashSet::new());
    each_scope(connection, 0, i64::MAX, |segment, scope| {
        if part_of(segment) != part {
            part = part_of(segment);
            of_part.clear();
        }
        let candidates = parts.candidates(scope);
        lost += u64::from(!candidates.contains(&segment));
        let mut others = candidates.into_iter().filter(|other| part_of(*other) < part);
        let is_there = others.try_fold(!of_part.insert(*scope), |found, other| {
            let mut statement = connection.prepare_cached(IS_IN).map_err(failure)?;
            let count: i64 =
                statement.query_row((other, scope), |row| row.get(0)).map_err(failure)?;
            Ok::<_, StoreError>(found || count > 0)
        })?;
        twice += u64::from(is_there);
        Ok(())
    })?;
    let told =
        [(lost, "are not found by their scopes"), (twice, "have the scope of an earlier one")];
    let told = told.into_iter().filter(|(count, _)| *count > 0);
    let told = told.map(|(count, what)| format!("{count} rows of idempotency {what}"));
    let mended = mended.iter().map(|Mended { part, .. }| {
        format!("idempotency_filters: that of part {part} is damaged; a start makes it anew")
    });
    Ok(mended.chain(told).collect())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::engine::{Engine, SqliteFile};
    use crate::idempotency::Answer;
    use crate::keyring::{KEY_LENGTH, Keyring};
    use crate::record::Record as _;
    use crate::sql::{Change, Value, Write};

    const PART: u32 = (SEGMENT_ANSWERS * PART_SEGMENTS as usize) as u32;

    type Boxed = Box<dyn crate::sql::Connection>;

    fn scope(number: u32) -> Scope {
        *Sha256::digest(number.to_be_bytes()).first_chunk().expect("a hash is longer")
    }

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("test.db")
        }

        /// What one process knows of the file.
        fn engine(&self) -> SqliteFile {
            SqliteFile::new(&self.path())
        }

        fn writer(&self) -> Boxed {
            writer(&self.engine())
        }

        /// Does something behind the engine's back.
        fn run(&self, sql: &str) {
            let connection = Connection::open(self.path()).expect("a connection");
            connection.execute_batch(sql).expect("statements");
        }

        fn number(&self, sql: &str) -> i64 {
            let connection = Connection::open(self.path()).expect("a connection");
            connection.query_row(sql, [], |row| row.get(0)).expect("a number")
        }

        fn filters(&self) -> i64 {
            self.number("select count(*) from idempotency_filters")
        }

        fn findings(&self) -> Vec<String> {
            let mut reader = self.engine().reader().expect("a reader");
            reader.integrity().expect("what is wrong")
        }
    }

    fn writer(engine: &SqliteFile) -> Boxed {
        engine.prepare(&Keyring::new(&[1; KEY_LENGTH])).expect("a database")
    }

    /// Adds answers in a transaction that was begun.
    fn add(writer: &mut Boxed, numbers: Range<u32>) {
        let row = |number| {
            let sealed = Value::from(vec![7; 4]);
            vec![Value::from(&scope(number)[..]), 1_i64.into(), 201_i64.into(), sealed]
        };
        let rows = numbers.map(row).collect();
        let write = Write { shape: Answer::shape(), change: Change::Insert, rows };
        writer.write(vec![write]).expect("a write");
    }

    fn commit(writer: &mut Boxed, numbers: Range<u32>) {
        writer.begin().expect("a transaction");
        add(writer, numbers);
        writer.commit().expect("a commit");
    }

    /// How many of these answers are found.
    fn found(connection: &mut Boxed, numbers: impl IntoIterator<Item = u32>) -> u32 {
        let keys: Vec<_> = numbers.into_iter().map(|it| Value::from(&scope(it)[..])).collect();
        let mut found = 0;
        let mut each = |row: Vec<Value>| {
            assert!(keys.contains(&row[0]), "{row:?}");
            assert_eq!(row.len(), Answer::shape().width());
            found += 1;
            Ok(())
        };
        connection.fetch(Answer::shape(), &keys, &mut each).expect("a look");
        found
    }

    /// Some of them, the first and the last with them.
    fn some(numbers: Range<u32>) -> Vec<u32> {
        let last = numbers.end - 1;
        numbers.step_by(997).chain([last]).collect()
    }

    #[test]
    fn an_answer_is_found_wherever_it_stands() {
        let place = Place::new();
        let engine = place.engine();
        let (mut writer, mut reader) = (writer(&engine), engine.reader().expect("a reader"));
        let all = PART + 5_000;
        for start in (0..all).step_by(5_000) {
            commit(&mut writer, start..(start + 5_000).min(all));
        }
        assert_eq!(place.filters(), 1);
        let segments = place.number("select count(distinct segment) from idempotency");
        assert_eq!(segments, 35, "32, and 5,000 in three");
        let looked = some(0..all);
        let expected = u32::try_from(looked.len()).expect("few");
        let mut stranger = place.engine().reader().expect("a reader");
        for connection in [&mut writer, &mut reader, &mut stranger] {
            assert_eq!(found(connection, looked.clone()), expected);
            assert_eq!(found(connection, all..all + 50), 0);
        }
        assert_eq!(place.findings(), Vec::<String>::new());
        // A later one reads what is kept, or makes it from what is there.
        drop((writer, reader));
        for forget in ["", "delete from idempotency_filters"] {
            place.run(forget);
            let mut writer = place.writer();
            writer.begin().expect("a transaction");
            assert_eq!(found(&mut writer, looked.clone()), expected, "{forget}");
            assert_eq!(found(&mut writer, all..all + 50), 0);
            writer.rollback().expect("a rollback");
        }
        assert_eq!(place.filters(), 0);
        commit(&mut place.writer(), all..all + 1);
        assert_eq!(place.filters(), 1, "it is kept again");
        assert_eq!(place.findings(), Vec::<String>::new());
    }

    #[test]
    fn a_part_whose_last_answers_were_rolled_back_is_kept_later() {
        let place = Place::new();
        let mut writer = place.writer();
        commit(&mut writer, 0..PART - 10);
        writer.begin().expect("a transaction");
        add(&mut writer, PART..PART + 100);
        writer.rollback().expect("a rollback");
        assert_eq!(place.filters(), 0);
        assert_eq!(found(&mut writer, PART..PART + 100), 0);
        commit(&mut writer, PART - 10..PART + 50);
        assert_eq!(place.filters(), 1);
        assert_eq!(found(&mut writer, PART - 20..PART + 100), 70);
        drop(writer);
        let mut writer = place.writer();
        writer.begin().expect("a transaction");
        assert_eq!(found(&mut writer, PART - 20..PART + 100), 70);
        assert_eq!(place.findings(), Vec::<String>::new());
    }

    #[test]
    fn what_another_process_wrote_is_found_from_the_next_transaction_on() {
        let place = Place::new();
        let (mut one, mut other) = (place.writer(), place.writer());
        commit(&mut one, 0..10);
        commit(&mut other, 10..20);
        // The other one goes on with the part, ends it, and begins the next one.
        let mut next = 20;
        for (writer, count) in [(0, PART - 25), (1, 3), (0, 30), (1, 5), (1, 5), (0, 5)] {
            let writer = if writer == 0 { &mut one } else { &mut other };
            writer.begin().expect("a transaction");
            let known = some(0..next);
            assert_eq!(found(writer, known.clone()) as usize, known.len());
            assert_eq!(found(writer, next..next + 50), 0);
            add(writer, next..next + count);
            writer.commit().expect("a commit");
            next += count;
        }
        assert_eq!(place.filters(), 1);
        assert_eq!(place.findings(), Vec::<String>::new());
    }

    #[test]
    fn others_go_on_with_a_part_whose_end_was_rolled_back() {
        let place = Place::new();
        let (mut one, mut other) = (place.writer(), place.writer());
        commit(&mut one, 0..PART - 10);
        one.begin().expect("a transaction");
        add(&mut one, PART..PART + 20);
        one.rollback().expect("a rollback");
        commit(&mut other, PART + 20..PART + 25);
        one.begin().expect("a transaction");
        assert_eq!(found(&mut one, PART..PART + 30), 5);
    }

    #[test]
    fn a_part_whose_filter_is_kept_takes_no_more() {
        let place = Place::new();
        commit(&mut place.writer(), 0..PART + 3);
        // As a copy does that starts over.
        place.run("delete from idempotency");
        let mut writer = place.writer();
        commit(&mut writer, 0..10);
        assert_eq!(found(&mut writer, 0..20), 10);
        let first = place.number("select min(segment) from idempotency");
        assert_eq!(first, PART_SEGMENTS);
        assert_eq!(place.findings(), Vec::<String>::new());
    }

    #[test]
    fn a_second_writer_of_one_engine_leaves_the_first_what_it_knows() {
        let place = Place::new();
        let engine = place.engine();
        let (mut first, mut reader) = (writer(&engine), engine.reader().expect("a reader"));
        commit(&mut first, 0..10);
        drop(writer(&engine));
        first.begin().expect("a transaction");
        add(&mut first, 10..20);
        drop(writer(&engine));
        first.commit().expect("a commit");
        assert_eq!(found(&mut reader, 0..30), 20);
        // Nobody tells what is written once the first one is closed.
        drop(first);
        commit(&mut place.writer(), 20..25);
        assert_eq!(found(&mut reader, 0..30), 25);
    }

    #[test]
    fn a_filter_that_is_damaged_is_made_anew() {
        let place = Place::new();
        commit(&mut place.writer(), 0..2 * PART + 3);
        assert_eq!(place.filters(), 2);
        let damage = [
            (
                "update idempotency_filters set bits = zeroblob(length(bits)) where part = 0",
                &[0][..],
            ),
            ("update idempotency_filters set bits = zeroblob(5) where part = 1", &[1]),
            ("update idempotency_filters set sum = zeroblob(32)", &[0, 1]),
            ("delete from idempotency_filters where part = 0", &[0]),
            (
                "update idempotency_filters set (bits, sum) = \
                 (select bits, sum from idempotency_filters where part = 0) where part = 1",
                &[1],
            ),
        ];
        let looked = some(0..2 * PART + 3);
        for (damage, parts) in damage {
            place.run(damage);
            let told = |part| {
                format!(
                    "idempotency_filters: that of part {part} is damaged; a start makes it anew"
                )
            };
            assert_eq!(place.findings(), parts.iter().map(told).collect::<Vec<_>>(), "{damage}");
            let mut writer = place.writer();
            writer.begin().expect("a transaction");
            assert_eq!(found(&mut writer, looked.clone()) as usize, looked.len(), "{damage}");
            // What is made anew is kept with whatever comes next.
            writer.rollback().expect("a rollback");
            drop(writer);
            commit(&mut place.writer(), 0..0);
            assert_eq!(place.findings(), Vec::<String>::new(), "{damage}");
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        let place = Place::new();
        commit(&mut place.writer(), 0..PART + 3);
        place.run("update idempotency_filters set part = 7");
        let what = "7 is a part that no answer has come to";
        assert_eq!(place.findings(), [format!("idempotency_filters.part: {what}")]);
        let begun = place.writer().begin();
        assert!(matches!(&begun, Err(StoreError::Corrupt { what: found, .. }) if found == what));
        place.run("delete from idempotency_filters");
        // In the same part, and in the next one.
        for further in [7, 30] {
            place.run(&format!(
                "insert into idempotency select {further} + segment, at, status, version, scope, \
                 sealed from idempotency where segment = 2 limit 5"
            ));
            let told = "5 rows of idempotency have the scope of an earlier one";
            assert_eq!(place.findings(), [told], "{further}");
            place.run(&format!(
                "delete from idempotency where segment = {further} + 2 and scope in \
                 (select scope from idempotency where segment = 2)"
            ));
            assert_eq!(place.findings(), Vec::<String>::new());
        }
    }

    #[test]
    fn no_other_table_is_in_segments() {
        let shapes = crate::shapes().into_iter().filter(|shape| shape.segmented);
        assert_eq!(shapes.map(|shape| shape.table).collect::<Vec<_>>(), ["idempotency"]);
    }

    #[test]
    fn the_engine_accepts_every_statement_and_reads_no_more_than_it_needs() {
        let place = Place::new();
        drop(place.writer());
        let connection = Connection::open(place.path()).expect("a connection");
        for sql in crate::embedded_statements() {
            let mut plan = connection.prepare(&format!("explain query plan {sql}")).expect(&sql);
            let unknown = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(unknown), |row| row.get(3));
            let steps: rusqlite::Result<Vec<String>> = steps.and_then(Iterator::collect);
            let steps = steps.expect(&sql).join(", ");
            assert!(!steps.contains("TEMP B-TREE"), "{sql}: {steps}");
            if sql.contains("segment = $1") {
                assert!(steps.contains("(segment=? AND scope=?)"), "{sql}: {steps}");
            }
        }
    }
}
