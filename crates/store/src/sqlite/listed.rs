//! Where the payments of an account are, once they do not change any more
//! (docs/decisions/0041).
//!
//! With many accounts, an index by account has another page for almost every payment of a commit:
//! each is written to the log and moved into the file for one entry of some 40 bytes. So the
//! entries of those payments are a table of their own, `listed`, and they come to it later, many to
//! a page.
//!
//! Each commit leaves a row of `newly_listed` with the entries that it has made, one behind the
//! other. They are remembered by account, and all of an account's are put into the table when many
//! wait ([`Limits::of_leader`]), or when its turn comes: a round goes through all accounts that
//! have some, a few with each commit, in the order in which the table stands. What a round has gone
//! through is no longer needed in `newly_listed`.
//!
//! A list looks into the table and adds what waits for it. Which entries wait depends on the
//! snapshot that it reads: those of the rows of `newly_listed` that are there, without those that
//! were put into the table by a commit that is there too. All readers of a process share what the
//! one who writes remembers. Whoever has nothing to share, or reads a snapshot that is older than
//! what is remembered, reads the rows themselves.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rusqlite::Connection;
use uuid::Uuid;

use crate::error::StoreError;
use crate::sql::Value;
use crate::sqlite::failure;
use crate::strands::{Facet, Index, Membership, Strand};
use crate::tallies;

/// How much waits, and how much a commit does about it.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Entries of one leader that wait at most: they are on one page of the table, and a list looks
    /// them up one by one.
    of_leader: usize,
    /// Entries that wait when a round begins. With 10,000 accounts, it finds some six of each, of
    /// one of the two sides of a payment.
    waiting: usize,
    /// Rows of `newly_listed` when a round begins at the latest: whoever reads them reads so many.
    rows: i64,
    /// Rows that a commit removes at most when a round is over, while it adds one.
    removed: i64,
    /// Entries that a round puts into the table with each commit, at least.
    moved: usize,
    /// Rows that are added until an entry is forgotten that was put into the table: whoever began
    /// to read before that reads the rows themselves.
    kept: i64,
}

const LIMITS: Limits =
    Limits { of_leader: 16, waiting: 131_072, rows: 4_096, removed: 4, moved: 8, kept: 64 };

const ADD_ROW: &str = "insert into newly_listed (number, entries) values ($1, $2)";
const REMOVE_ROWS: &str = "delete from newly_listed where number between $1 and $2";
const ROWS: &str = "select number, entries from newly_listed order by number";
const LAST: &str = "select max(number) from newly_listed";
const ADD: &str =
    "insert into listed (leader, kind, id) values ($1, $2, $3) on conflict do nothing";
const REMOVE: &str = "delete from listed where leader = $1 and kind = $2 and id = $3";
const IS_IN: &str = "select count(*) from listed where leader = $1 and kind = $2 and id = $3";
const CLEAR: [&str; 2] = ["delete from listed", "delete from newly_listed"];
const COUNT: &str = "select count(*) from listed";

/// Every statement of this module that runs with payments.
pub(crate) fn statements() -> impl Iterator<Item = String> {
    [ADD_ROW, REMOVE_ROWS, ROWS, LAST, ADD, REMOVE, IS_IN].into_iter().map(str::to_owned)
}

/// A payment is in a strand from now on, or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    leader: Uuid,
    kind: u16,
    id: Uuid,
    is_in: bool,
}

/// Bytes of an entry in a row: leader, kind and whether it is in, id.
const ENTRY_BYTES: usize = 16 + 2 + 16;

impl Entry {
    fn of(membership: &Membership) -> Self {
        let Membership { strand, id, is_in } = membership;
        Self { leader: strand.leader, kind: strand.kind(), id: *id, is_in: *is_in }
    }

    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.leader.as_bytes());
        into.extend_from_slice(&(self.kind << 1 | u16::from(self.is_in)).to_be_bytes());
        into.extend_from_slice(self.id.as_bytes());
    }

    /// The entries of a row.
    fn decode(row: &[u8]) -> Result<Vec<Self>, StoreError> {
        let (entries, rest) = row.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(StoreError::Corrupt {
                place: "newly_listed.entries".to_owned(),
                what: format!("{} bytes are not whole entries", row.len()),
            });
        }
        let entry = |bytes: &[u8; ENTRY_BYTES]| {
            let uuid = |from: usize| {
                Uuid::from_bytes(*bytes[from..].first_chunk().expect("it has two of them"))
            };
            let kind = u16::from_be_bytes([bytes[16], bytes[17]]);
            let (is_in, kind) = (kind & 1 == 1, kind >> 1);
            Self { leader: uuid(0), kind, id: uuid(18), is_in }
        };
        Ok(entries.iter().map(entry).collect())
    }

    /// Puts it into the table, or takes it out.
    fn settle(&self, connection: &Connection) -> Result<(), StoreError> {
        let sql = if self.is_in { ADD } else { REMOVE };
        let mut statement = connection.prepare_cached(sql).map_err(failure)?;
        statement.execute(self.values()).map_err(failure).map(drop)
    }

    /// Whether the table has it.
    fn is_settled(&self, connection: &Connection) -> Result<bool, StoreError> {
        let mut statement = connection.prepare_cached(IS_IN).map_err(failure)?;
        let count: i64 = statement.query_row(self.values(), |row| row.get(0)).map_err(failure)?;
        Ok(count > 0)
    }

    fn values(&self) -> (&[u8], u16, &[u8]) {
        (self.leader.as_bytes(), self.kind, self.id.as_bytes())
    }
}

/// What a commit does.
#[derive(Debug, Default)]
struct Work {
    /// The row that it adds.
    number: i64,
    row: Vec<u8>,
    /// What it puts into the table or takes out of it, in this order.
    settled: Vec<Entry>,
    /// The first and the last row that it removes.
    removed: Option<(i64, i64)>,
}

impl Work {
    fn done(self, connection: &Connection) -> Result<(), StoreError> {
        let mut add = connection.prepare_cached(ADD_ROW).map_err(failure)?;
        add.execute((self.number, self.row)).map_err(failure)?;
        self.settled.iter().try_for_each(|entry| entry.settle(connection))?;
        if let Some(removed) = self.removed {
            let mut remove = connection.prepare_cached(REMOVE_ROWS).map_err(failure)?;
            remove.execute(removed).map_err(failure)?;
        }
        Ok(())
    }
}

/// An entry that is remembered with its leader.
#[derive(Debug, Clone, Copy)]
struct Noted {
    /// The row of `newly_listed` that it is in.
    number: i64,
    /// The row that was added when it was put into the table; the last number there is until then.
    settled: i64,
    kind: u16,
    id: Uuid,
    is_in: bool,
}

impl Noted {
    fn waits(&self) -> bool {
        self.settled == i64::MAX
    }
}

/// What is remembered.
#[derive(Debug)]
struct Known {
    limits: Limits,
    leaders: HashMap<Uuid, Vec<Noted>>,
    /// What was put into the table with this row or before is not remembered: a snapshot without it
    /// may not have that in its table.
    oldest: i64,
    /// Leaders with entries that were put into the table and are still remembered, and with which
    /// row that was.
    settled: VecDeque<(i64, Uuid)>,
    /// The first row that is in the database.
    low: i64,
    /// The row that comes next. No number is used twice, so that an older snapshot is not taken for
    /// one of other rows with its numbers.
    next: i64,
    /// Entries that wait.
    waiting: usize,
    /// Leaders that the round has still to go through, the last first.
    round: Vec<Uuid>,
    /// The last row that is not needed any more once the round is over.
    round_end: i64,
    /// The last row that is not needed any more.
    done: i64,
}

impl Known {
    /// Nothing, and the number of the row that comes next.
    fn new(limits: Limits, next: i64) -> Self {
        Self {
            limits,
            leaders: HashMap::new(),
            oldest: 0,
            settled: VecDeque::new(),
            low: next,
            next,
            waiting: 0,
            round: Vec::new(),
            round_end: 0,
            done: 0,
        }
    }

    /// Reads what waits, and begins a round with it. Some of it may be in the table already, which
    /// does no harm; of a leader that has more than ever wait, it is looked up.
    fn load(connection: &Connection, limits: Limits, next: i64) -> Result<Self, StoreError> {
        let mut known = Self::new(limits, next);
        let mut low = None;
        each_row(connection, |number, entries| {
            low.get_or_insert(number);
            known.oldest = number;
            known.next = known.next.max(number + 1);
            entries.into_iter().for_each(|entry| known.note(number, entry));
            Ok(())
        })?;
        known.low = low.unwrap_or(known.next);
        known.done = known.low - 1;
        for (leader, noted) in &mut known.leaders {
            if noted.len() < limits.of_leader {
                continue;
            }
            for Noted { settled, kind, id, is_in, .. } in noted.iter_mut().filter(|it| it.is_in) {
                let entry = Entry { leader: *leader, kind: *kind, id: *id, is_in: *is_in };
                if entry.is_settled(connection)? {
                    *settled = known.oldest;
                    known.waiting -= 1;
                }
            }
            noted.retain(Noted::waits);
        }
        known.begin_round();
        Ok(known)
    }

    fn note(&mut self, number: i64, Entry { leader, kind, id, is_in }: Entry) {
        let noted = Noted { number, settled: i64::MAX, kind, id, is_in };
        self.leaders.entry(leader).or_default().push(noted);
        self.waiting += 1;
    }

    fn begin_round(&mut self) {
        let waits = |(leader, noted): (&Uuid, &Vec<Noted>)| {
            noted.iter().any(Noted::waits).then_some(*leader)
        };
        self.round = self.leaders.iter().filter_map(waits).collect();
        self.round.sort_unstable_by(|one, other| other.cmp(one));
        self.round_end = self.next - 1;
    }

    /// Adds a row with entries, and takes some of those that wait into the table.
    fn add(&mut self, entries: Vec<Entry>) -> Work {
        let number = self.next;
        self.next += 1;
        let mut work = Work { number, ..Work::default() };
        entries.iter().for_each(|entry| entry.encode(&mut work.row));
        let added = entries.len();
        let mut leaders: Vec<_> = entries.iter().map(|entry| entry.leader).collect();
        entries.into_iter().for_each(|entry| self.note(number, entry));
        leaders.sort_unstable();
        leaders.dedup();
        for leader in leaders {
            let noted = self.leaders.get(&leader).map_or(&[][..], Vec::as_slice);
            let waiting = noted.iter().filter(|noted| noted.waits()).count();
            // What leaves a strand must not be found in the table meanwhile.
            let leaves = noted.iter().any(|noted| noted.waits() && !noted.is_in);
            if waiting >= self.limits.of_leader || leaves {
                self.settle(leader, &mut work);
            }
        }
        self.go_round(work.settled.len() + self.limits.moved + added + added / 4, &mut work);
        work.removed = self.remove_rows();
        self.forget(number - self.limits.kept);
        work
    }

    /// Takes what waits of a leader into the table.
    fn settle(&mut self, leader: Uuid, work: &mut Work) {
        let Some(noted) = self.leaders.get_mut(&leader) else { return };
        self.settled.push_back((work.number, leader));
        for noted in noted.iter_mut().filter(|noted| noted.waits()) {
            let Noted { kind, id, is_in, .. } = *noted;
            noted.settled = work.number;
            work.settled.push(Entry { leader, kind, id, is_in });
            self.waiting -= 1;
        }
    }

    /// Goes on with the round until there is enough to be done, or begins one if much waits.
    fn go_round(&mut self, enough: usize, work: &mut Work) {
        let is_over = self.round.is_empty() && self.done < self.low;
        let Limits { waiting, rows, .. } = self.limits;
        if is_over && (self.waiting >= waiting || self.next - self.low >= rows) {
            self.begin_round();
        }
        while work.settled.len() < enough
            && let Some(leader) = self.round.pop()
        {
            self.settle(leader, work);
        }
        if self.round.is_empty() {
            self.done = self.done.max(self.round_end);
        }
    }

    /// Forgets what was put into the table with a row or before.
    fn forget(&mut self, last: i64) {
        while let Some((number, leader)) = self.settled.front().copied()
            && number <= last
        {
            self.settled.pop_front();
            self.oldest = number;
            if let Some(noted) = self.leaders.get_mut(&leader) {
                noted.retain(|noted| noted.settled > number);
                if noted.is_empty() {
                    self.leaders.remove(&leader);
                }
            }
        }
    }

    /// The rows to be removed now of those that are not needed any more.
    fn remove_rows(&mut self) -> Option<(i64, i64)> {
        if self.low > self.done {
            return None;
        }
        let removed = (self.low, self.done.min(self.low + self.limits.removed - 1));
        self.low = removed.1 + 1;
        Some(removed)
    }

    /// The payments of a strand that wait in the snapshot that ends with this row.
    fn of(&self, strand: &Strand, last: i64) -> Vec<Uuid> {
        let (kind, noted) = (strand.kind(), self.leaders.get(&strand.leader));
        let noted = noted.map_or(&[][..], Vec::as_slice).iter();
        let noted = noted.filter(|it| it.kind == kind && it.number <= last);
        let left = |id| noted.clone().any(|noted| !noted.is_in && noted.id == id);
        let waits = noted.clone().filter(|it| it.is_in && it.settled > last && !left(it.id));
        waits.map(|noted| noted.id).collect()
    }
}

/// Hands over the entries of each row, in their order.
fn each_row(
    connection: &Connection,
    mut each: impl FnMut(i64, Vec<Entry>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(ROWS).map_err(failure)?;
    let mut rows = statement.query([]).map_err(failure)?;
    while let Some(row) = rows.next().map_err(failure)? {
        let entries: Vec<u8> = row.get(1).map_err(failure)?;
        each(row.get(0).map_err(failure)?, Entry::decode(&entries)?)?;
    }
    Ok(())
}

/// The last row that is there.
fn last(connection: &Connection) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached(LAST).map_err(failure)?;
    statement.query_row([], |row| row.get(0)).map_err(failure)
}

/// What all connections of a store to one file know of entries that wait. It is written by the one
/// connection that writes, before anything that it tells of is committed.
#[derive(Debug)]
pub(crate) struct Listed(RwLock<Remembered>);

impl Default for Listed {
    fn default() -> Self {
        Self::within(LIMITS)
    }
}

#[derive(Debug)]
struct Remembered {
    known: Known,
    /// Whether it is what the database says.
    is_known: bool,
    /// Whether the transaction under way has changed it.
    is_changing: bool,
}

impl Remembered {
    fn forget(&mut self) {
        self.known = Known::new(self.known.limits, self.known.next);
        self.is_known = false;
    }
}

impl Listed {
    fn within(limits: Limits) -> Self {
        let known = Known::new(limits, 1);
        Self(RwLock::new(Remembered { known, is_known: false, is_changing: false }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Remembered> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Remembered> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that writes is closed: what others write from now on is not known.
    pub(super) fn release(&self) {
        self.write().forget();
    }

    /// Takes up what others may have written, in a transaction that was begun, or all there is if
    /// nothing is known.
    pub(super) fn catch_up(&self, connection: &Connection, others: bool) -> Result<(), StoreError> {
        let (limits, next) = {
            let Remembered { known, is_known, .. } = &*self.read();
            if *is_known && !others {
                return Ok(());
            }
            (known.limits, known.next)
        };
        let loaded = Known::load(connection, limits, next)?;
        let mut remembered = self.write();
        (remembered.known, remembered.is_known) = (loaded, true);
        Ok(())
    }

    /// Payments came into strands and left others.
    pub(super) fn add(
        &self,
        connection: &Connection,
        memberships: &[Membership],
    ) -> Result<(), StoreError> {
        if memberships.is_empty() {
            return Ok(());
        }
        let entries = memberships.iter().map(Entry::of).collect();
        // Nobody who reads waits for the database: it is done once it is known.
        self.plan(entries)?.done(connection)
    }

    fn plan(&self, entries: Vec<Entry>) -> Result<Work, StoreError> {
        let mut remembered = self.write();
        if !remembered.is_known {
            return Err(StoreError::Engine("no transaction was begun".to_owned()));
        }
        remembered.is_changing = true;
        Ok(remembered.known.add(entries))
    }

    /// The transaction ended.
    pub(super) fn ended(&self, is_committed: bool) {
        let mut remembered = self.write();
        if std::mem::take(&mut remembered.is_changing) && !is_committed {
            // It tells of what is not there.
            remembered.forget();
        }
    }

    /// The payments of a strand that the table does not have yet in this snapshot, if it is known
    /// without a look at the rows.
    fn known(&self, strand: &Strand, last: i64) -> Option<Vec<Uuid>> {
        let Remembered { known, is_known, .. } = &*self.read();
        let is_known = *is_known && (known.oldest..known.next).contains(&last);
        is_known.then(|| known.of(strand, last))
    }
}

/// The payments of a strand that the table does not have yet, or not for sure.
pub(super) fn waiting(
    connection: &Connection,
    listed: Option<&Listed>,
    strand: &Strand,
) -> Result<Vec<Uuid>, StoreError> {
    let Some(last) = last(connection)? else { return Ok(Vec::new()) };
    if let Some(known) = listed.and_then(|listed| listed.known(strand, last)) {
        return Ok(known);
    }
    let kind = strand.kind();
    let mut waiting = Vec::new();
    each_row(connection, |_, entries| {
        let own = entries.into_iter().filter(|it| it.leader == strand.leader && it.kind == kind);
        for entry in own {
            if !entry.is_in {
                waiting.retain(|id| *id != entry.id);
            } else if !entry.is_settled(connection)? {
                waiting.push(entry.id);
            }
        }
        Ok(())
    })?;
    Ok(waiting)
}

/// An index of payments as the table has it.
struct Side {
    index: &'static Index,
    /// The column of the leader.
    leader: &'static str,
    /// The kind of a row.
    kind: String,
    /// Which rows have an entry.
    condition: String,
}

/// Every index that is kept apart.
fn sides() -> impl Iterator<Item = Side> {
    tallies::indexes().filter(|index| index.is_kept_apart).map(|index| {
        let leader = index.columns[0];
        let strand = |facet| Strand { index, leader: Uuid::nil(), facet };
        let facets =
            (0..2).flat_map(|group| (0..index.lagging).map(move |state| Facet { group, state }));
        let lasting = facets.filter(|facet| !index.passing.contains(&facet.state));
        let cases: Vec<_> = lasting
            .map(|facet| {
                let names = (index.values)(facet).into_iter().map(|value| match value {
                    Value::Text(name) => format!("'{name}'"),
                    _ => "null".to_owned(),
                });
                let is = index.columns[1..].iter().zip(names);
                let is: Vec<_> = is.map(|(column, name)| format!("{column} = {name}")).collect();
                format!("when {} then {}", is.join(" and "), strand(facet).kind())
            })
            .collect();
        let kind = format!("case {} end", cases.join(" "));
        // Whoever has a status that there is not is in no list; `verify` names it for that.
        let has_kind = format!("{leader} is not null and {kind} is not null");
        let conditions: Vec<_> = std::iter::once(&*has_kind).chain(index.condition).collect();
        let condition = conditions.join(" and ");
        Side { index, leader, kind, condition }
    })
}

impl Side {
    fn make(&self) -> String {
        let Self { index, leader, kind, condition } = self;
        format!(
            "insert into listed (leader, kind, id) select {leader}, {kind}, id from {} \
             where {condition} order by 1, 2, 3",
            index.table
        )
    }

    /// How many rows have an entry.
    fn count(&self) -> String {
        format!("select count(*) from {} where {}", self.index.table, self.condition)
    }

    /// The rows whose entry is not in the table.
    fn missing(&self) -> String {
        let Self { index, leader, kind, condition } = self;
        let table = index.table;
        format!(
            "select {leader}, {kind}, id from {table} where {condition} and not exists \
             (select 1 from listed where listed.leader = {table}.{leader} \
             and listed.kind = {kind} and listed.id = {table}.id)"
        )
    }
}

/// Makes the table from the payments that are there.
pub(super) fn make(connection: &Connection) -> Result<(), StoreError> {
    let texts = CLEAR.map(str::to_owned).into_iter().chain(sides().map(|side| side.make()));
    for text in texts {
        connection.execute(&text, []).map_err(failure)?;
    }
    Ok(())
}

/// What is wrong with the table: payments that lists would leave out, or have where they are not.
pub(super) fn findings(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut waiting = HashSet::new();
    let read = each_row(connection, |_, entries| {
        for entry in entries {
            let key = (entry.leader, entry.kind, entry.id);
            if entry.is_in {
                waiting.insert(key)
            } else {
                waiting.remove(&key)
            };
        }
        Ok(())
    });
    match read {
        Err(StoreError::Corrupt { place, what }) => return Ok(vec![format!("{place}: {what}")]),
        other => other?,
    }
    let (mut lost, mut expected) = (0_i64, 0_i64);
    for side in sides() {
        expected += number(connection, &side.count())?;
        let mut statement = connection.prepare(&side.missing()).map_err(failure)?;
        let mut rows = statement.query([]).map_err(failure)?;
        while let Some(row) = rows.next().map_err(failure)? {
            let uuid = |column| row.get(column).map(Uuid::from_bytes).map_err(failure);
            let key = (uuid(0)?, row.get(1).map_err(failure)?, uuid(2)?);
            expected -= 1;
            lost += i64::from(!waiting.contains(&key));
        }
    }
    let surplus = number(connection, COUNT)? - expected;
    let told = [
        (lost, "payments are not listed by an account of theirs"),
        (surplus, "entries of listed are of no payment that belongs there"),
    ];
    let told = told.into_iter().filter(|(count, _)| *count > 0);
    Ok(told.map(|(count, what)| format!("{count} {what}")).collect())
}

fn number(connection: &Connection, sql: &str) -> Result<i64, StoreError> {
    connection.query_row(sql, [], |row| row.get(0)).map_err(failure)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use domain::transaction::{Direction, Status};
    use proptest::prelude::*;

    use super::*;
    use crate::engine::{Engine as _, SqliteFile};
    use crate::keyring::{KEY_LENGTH, Keyring};
    use crate::select::{Arm, Conditions, numbered};
    use crate::sql::Connection as _;
    use crate::sqlite::{Access, Shared, Sqlite};
    use crate::transactions::{INDEXES, facet};

    /// Few, so that all of it happens often.
    const FEW: Limits =
        Limits { of_leader: 4, waiting: 12, rows: 9, removed: 2, moved: 1, kept: 3 };

    const LEADERS: u8 = 5;

    fn strand(leader: u8, status: Status) -> Strand {
        let leader = Uuid::from_u128(u128::from(leader) + 1);
        let facet = facet(Direction::Outgoing, status);
        Strand { index: &INDEXES.by_own_account, leader, facet }
    }

    fn connection(path: &std::path::Path) -> Connection {
        let connection = Connection::open(path).expect("a connection");
        connection
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = off; \
                 create table if not exists listed (leader blob, kind integer, id blob, \
                 primary key (leader, kind, id)) without rowid; \
                 create table if not exists newly_listed (number integer primary key, entries blob)",
            )
            .expect("tables");
        connection
    }

    /// What is in each strand, as somebody finds it who asks the table and adds what waits. What
    /// may be in the table already is there once.
    fn found(connection: &Connection, listed: Option<&Listed>) -> Model {
        let mut all = Model::new();
        for leader in 0..LEADERS {
            for status in [Status::Completed, Status::Failed] {
                let strand = strand(leader, status);
                let waiting = waiting(connection, listed, &strand).expect("what waits");
                assert!(waiting.len() < FEW.of_leader, "a list looks up {waiting:?}");
                let of_table = connection
                    .prepare("select id from listed where leader = $1 and kind = $2")
                    .expect("a statement")
                    .query_map((&strand.leader.as_bytes()[..], strand.kind()), |row| {
                        row.get(0).map(Uuid::from_bytes)
                    })
                    .expect("rows")
                    .collect::<rusqlite::Result<BTreeSet<_>>>()
                    .expect("ids");
                let ids = of_table.into_iter().chain(waiting).map(|id| id.as_u128());
                all.extend(ids.map(|id| (leader, status as u16, id)));
            }
        }
        all
    }

    type Model = BTreeSet<(u8, u16, u128)>;

    /// What a transaction does.
    #[derive(Debug, Clone)]
    enum Step {
        /// Payments of these leaders are completed.
        Complete(Vec<u8>),
        /// One that was completed comes back.
        Return(usize),
        /// The same as the first, and it is rolled back.
        RollBack(Vec<u8>),
        /// Somebody begins to read, and goes on to the end.
        Look,
        /// The writer ends, and another one begins.
        Restart,
        /// Somebody else writes meanwhile.
        Other(Vec<u8>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let leaders = || proptest::collection::vec(0..LEADERS, 1..6);
        let step = prop_oneof![
            20 => leaders().prop_map(Step::Complete),
            3 => any::<usize>().prop_map(Step::Return),
            2 => leaders().prop_map(Step::RollBack),
            2 => Just(Step::Look),
            1 => Just(Step::Restart),
            1 => leaders().prop_map(Step::Other),
        ];
        proptest::collection::vec(step, 1..80)
    }

    /// Adds payments in a transaction, and tells the model.
    fn complete(
        (connection, listed): (&Connection, &Listed),
        leaders: &[u8],
        next: &mut u128,
        model: &mut Model,
    ) {
        let mut memberships = Vec::new();
        for leader in leaders {
            *next += 1;
            let strand = strand(*leader, Status::Completed);
            memberships.push(Membership { strand, id: Uuid::from_u128(*next), is_in: true });
            model.insert((*leader, Status::Completed as u16, *next));
        }
        listed.add(connection, &memberships).expect("added");
    }

    fn begin(connection: &Connection, listed: &Listed, others: bool) {
        connection.execute_batch("begin immediate").expect("a transaction");
        listed.catch_up(connection, others).expect("what others did");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_snapshot_has_what_was_committed_before_it(steps in steps()) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("test.db");
            let writer = connection(&path);
            let (mut listed, mut is_new) = (Listed::within(FEW), true);
            let (mut model, mut next) = (Model::new(), 0);
            let mut looks: Vec<(Connection, Model)> = Vec::new();
            for step in steps {
                match step {
                    Step::Complete(leaders) => {
                        begin(&writer, &listed, std::mem::take(&mut is_new));
                        complete((&writer, &listed), &leaders, &mut next, &mut model);
                        prop_assert_eq!(&found(&writer, Some(&listed)), &model, "within");
                        writer.execute_batch("commit").expect("a commit");
                        listed.ended(true);
                    }
                    Step::Return(which) => {
                        let completed = model.iter().filter(|it| it.1 == Status::Completed as u16);
                        let completed: Vec<_> = completed.copied().collect();
                        if completed.is_empty() {
                            continue;
                        }
                        let (leader, status, id) = completed[which % completed.len()];
                        let at = |status, is_in| {
                            let (strand, id) = (strand(leader, status), Uuid::from_u128(id));
                            Membership { strand, id, is_in }
                        };
                        begin(&writer, &listed, std::mem::take(&mut is_new));
                        let moved = [at(Status::Completed, false), at(Status::Failed, true)];
                        listed.add(&writer, &moved).expect("moved");
                        writer.execute_batch("commit").expect("a commit");
                        listed.ended(true);
                        model.remove(&(leader, status, id));
                        model.insert((leader, Status::Failed as u16, id));
                    }
                    Step::RollBack(leaders) => {
                        begin(&writer, &listed, std::mem::take(&mut is_new));
                        complete((&writer, &listed), &leaders, &mut next, &mut model.clone());
                        writer.execute_batch("rollback").expect("a rollback");
                        listed.ended(false);
                    }
                    Step::Look => {
                        let reader = connection(&path);
                        reader.execute_batch("begin").expect("a transaction");
                        let all = found(&reader, Some(&listed));
                        prop_assert_eq!(&all, &model);
                        looks.push((reader, all));
                    }
                    Step::Restart => (listed, is_new) = (Listed::within(FEW), true),
                    Step::Other(leaders) => {
                        let (other, own) = (connection(&path), Listed::within(FEW));
                        begin(&other, &own, true);
                        complete((&other, &own), &leaders, &mut next, &mut model);
                        other.execute_batch("commit").expect("a commit");
                        is_new = true;
                    }
                }
                let reader = connection(&path);
                reader.execute_batch("begin").expect("a transaction");
                for listed in [Some(&listed), None] {
                    prop_assert_eq!(&found(&reader, listed), &model);
                }
                // Whoever began to read before finds what was there then.
                for (reader, all) in &looks {
                    prop_assert_eq!(&found(reader, Some(&listed)), all);
                }
            }
            let rows: i64 = number(&writer, "select count(*) from newly_listed").expect("a count");
            prop_assert!(rows <= 4 * FEW.rows, "{} rows are left", rows);
        }
    }

    #[test]
    fn what_waits_is_known_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("test.db");
        let key = Keyring::new(&[1; KEY_LENGTH]);
        let mut writer = SqliteFile::new(&path).prepare(&key).expect("a database");
        writer.begin().expect("a transaction");
        let id = Uuid::from_u128(7);
        let strand = strand(1, Status::Completed);
        writer.move_apart(&[Membership { strand, id, is_in: true }]).expect("moved");
        writer.commit().expect("a commit");
        drop(writer);

        let shared = Arc::new(Shared::default());
        let opened = Sqlite::open(&path, Access::Write).expect("a connection");
        let mut opened = opened.sharing(Arc::clone(&shared), true);
        assert_eq!(shared.listed.known(&strand, 1), None);
        opened.take_up().expect("what waits");
        assert_eq!(shared.listed.known(&strand, 1), Some(vec![id]));
        assert_eq!(opened.kept_apart(&strand).expect("what waits"), Some(vec![id]));
        opened.begin().expect("a transaction");
        opened.move_apart(&[Membership { strand, id, is_in: false }]).expect("moved");
        opened.rollback().expect("a rollback");
        // What was rolled back is not known, and what is there is looked for.
        assert_eq!(shared.listed.known(&strand, 1), None);
        assert_eq!(opened.kept_apart(&strand).expect("what waits"), Some(vec![id]));
    }

    #[test]
    fn what_waits_is_looked_up_by_its_id() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = Keyring::new(&[1; KEY_LENGTH]);
        let engine = SqliteFile::new(&folder.path().join("test.db"));
        let mut writer = engine.prepare(&key).expect("a database");
        writer.begin().expect("a transaction");
        let strand = strand(1, Status::Completed);
        let waits = |id| Membership { strand, id: Uuid::from_u128(id), is_in: true };
        writer.move_apart(&[waits(1), waits(2), waits(3)]).expect("moved");
        let mut others = Conditions::default();
        others.and("platform_customer_id = ?", [Value::from("a")]);
        let arms = Arm::of(&strand, &others, &mut *writer).expect("arms");
        let plans = arms.iter().map(|arm| {
            let sql = numbered(&format!("explain query plan select id from {}", arm.text()));
            let (mut plan, values) = (String::new(), arm.values().collect::<Vec<_>>());
            let each = &mut |values: Vec<Value>| {
                plan += &format!("{:?}; ", values[3]);
                Ok(())
            };
            writer.query(&sql, &values, 4, each).expect(&sql);
            plan
        });
        let plans: Vec<_> = plans.collect();
        let [listed, waiting] = &plans[..] else { panic!("{plans:?}") };
        assert!(listed.contains("SEARCH listed USING PRIMARY KEY (leader=? AND kind=?)"));
        assert!(listed.contains("SEARCH transactions EXISTS USING PRIMARY KEY (id=?)"));
        assert!(waiting.contains("SEARCH transactions USING PRIMARY KEY (id=?)"), "{waiting}");
        let is_new = "SEARCH listed USING PRIMARY KEY (leader=? AND kind=? AND id=?)";
        assert!(waiting.contains(is_new), "{waiting}");
        assert!(!plans.concat().contains("SCAN"), "{plans:?}");
        writer.rollback().expect("a rollback");
    }
}
