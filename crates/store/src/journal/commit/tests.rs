//! Random histories of two servers on one journal, with faults, crashes and take-overs, against the
//! fold of the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::journal::frames::{self, Frame, Keys, Opened, Place};
use crate::journal::memory::{Fault, MemoryJournal};
use crate::keyring::SealingKey;

const DATABASE: Uuid = Uuid::from_u128(7);

/// The balance at the beginning. More payments are asked for than it has.
const BALANCE: i64 = 6;

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Balance,
    /// The payment under this idempotency key.
    Payment(u8),
}

type Records = BTreeMap<Key, i64>;

/// Tables in memory, of which a step can be lost.
#[derive(Clone)]
struct MemoryTables {
    /// As they are, and as they were before the last step.
    states: Arc<Mutex<(State, State)>>,
    /// Whether records have to be fetched, as over a network.
    is_far: bool,
}

#[derive(Clone, PartialEq, Debug)]
struct State {
    applied: End,
    records: Records,
}

impl MemoryTables {
    fn new(is_far: bool) -> Self {
        let empty = State { applied: End::START, records: Records::new() };
        Self { states: Arc::new(Mutex::new((empty.clone(), empty))), is_far }
    }

    fn go_back(&self) {
        let state = &mut *self.states.lock();
        state.0 = state.1.clone();
    }

    fn now(&self) -> State {
        self.states.lock().0.clone()
    }
}

impl Tables<Key, i64> for MemoryTables {
    fn applied(&mut self) -> Result<End, StoreError> {
        Ok(self.now().applied)
    }

    fn get(&mut self, key: &Key) -> Result<Option<Snapshot<i64>>, StoreError> {
        Ok(if self.is_far { None } else { self.fetch(&[*key])?.pop() })
    }

    fn fetch(&mut self, keys: &[Key]) -> Result<Vec<Snapshot<i64>>, StoreError> {
        let State { applied, records } = self.now();
        Ok(keys.iter().map(|key| (records.get(key).copied(), applied)).collect())
    }

    fn write(
        &mut self,
        from: End,
        to: End,
        records: &mut dyn Iterator<Item = (&Key, Option<&i64>)>,
    ) -> Result<bool, StoreError> {
        let (now, before) = &mut *self.states.lock();
        if now.applied != from {
            return Ok(false);
        }
        *before = now.clone();
        for (key, record) in records {
            match record {
                Some(record) => now.records.insert(*key, *record),
                None => now.records.remove(key),
            };
        }
        now.applied = to;
        Ok(true)
    }
}

/// Bodies whose payments stand in a frame of their owner: twelve bytes for each change, which are
/// set, kind, key and value.
struct Bytes;

const OWNER: Uuid = Uuid::from_u128(3);

fn keys() -> Keys {
    Keys {
        journal: BTreeMap::from([(1, SealingKey::of(&[1; 32]))]),
        data: HashMap::from([(OWNER, Some(SealingKey::of(&[2; 32])))]),
    }
}

impl Body<Key, i64> for Bytes {
    fn write(&self, previous: End, sets: &ChangeSets<Key, i64>) -> Result<Vec<u8>, StoreError> {
        let mut frames = [None, Some(OWNER)].map(|owner| Frame { owner, plain: Vec::new() });
        for (set, changes) in (0_u8..).zip(sets) {
            for (key, change) in changes {
                let (kind, value) = match change {
                    Change::Insert(value) => (0, *value),
                    Change::Update(value) => (1, *value),
                    Change::Remove => (2, 0),
                };
                let (frame, payment) = match key {
                    Key::Balance => (0, 0),
                    Key::Payment(payment) => (1, *payment),
                };
                let plain = &mut frames[frame].plain;
                plain.extend([set, kind, frame as u8, payment]);
                plain.extend(value.to_be_bytes());
            }
        }
        let place = Place { database: DATABASE, previous };
        Ok(frames::seal(&keys(), place, &frames).expect("keys"))
    }

    fn read(&self, previous: End, row: &Row) -> Result<ChangeSets<Key, i64>, StoreError> {
        let mut sets = ChangeSets::new();
        let place = Place { database: DATABASE, previous };
        for frame in frames::open(&keys(), place, &row.body).expect("a body of this place") {
            let Opened::Frame(Frame { plain, .. }) = frame else { panic!("it is not erased") };
            for change in plain.chunks_exact(12) {
                let value = i64::from_be_bytes(change[4..].try_into().expect("eight bytes"));
                let key = if change[2] == 0 { Key::Balance } else { Key::Payment(change[3]) };
                let changed = match change[1] {
                    0 => Change::Insert(value),
                    1 => Change::Update(value),
                    _ => Change::Remove,
                };
                let set = usize::from(change[0]);
                sets.resize_with(sets.len().max(set + 1), Vec::new);
                sets[set].push((key, changed));
            }
        }
        Ok(sets)
    }
}

type OneServer = Server<Key, i64, MemoryJournal, MemoryTables, Bytes>;

/// The answer to a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Made,
    WasMade,
}

enum Refused {
    NoMoney,
    /// The tables could not be read.
    Store,
}

impl From<StoreError> for Refused {
    fn from(_: StoreError) -> Self {
        Self::Store
    }
}

/// Pays one under a key, once.
fn pay(unit: &mut Unit<'_, Key, i64>, payment: u8) -> Result<Answer, Refused> {
    if unit.get(&Key::Payment(payment))?.is_some() {
        return Ok(Answer::WasMade);
    }
    let balance = unit.get(&Key::Balance)?.unwrap_or(BALANCE);
    // The change of a unit that refuses does not count.
    unit.put(Key::Balance, Some(balance - 1))?;
    if balance == 0 {
        return Err(Refused::NoMoney);
    }
    unit.put(Key::Payment(payment), Some(1))?;
    Ok(Answer::Made)
}

#[derive(Debug, Clone)]
enum Step {
    Pay { server: usize, payments: Vec<u8> },
    Fails(Fault),
    Project { server: usize },
    TakeOver { server: usize },
    Die { server: usize },
    GoBack,
    Get { server: usize, payment: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (server, payment) = (0_usize..2, 0_u8..9);
    let faults = [Fault::LosesRequest, Fault::LosesAnswer, Fault::IsFull];
    let step = prop_oneof![
        6 => (server.clone(), prop::collection::vec(payment.clone(), 1..4))
            .prop_map(|(server, payments)| Step::Pay { server, payments }),
        2 => prop::sample::select(faults.to_vec()).prop_map(Step::Fails),
        4 => server.clone().prop_map(|server| Step::Project { server }),
        2 => server.clone().prop_map(|server| Step::TakeOver { server }),
        1 => server.clone().prop_map(|server| Step::Die { server }),
        1 => Just(Step::GoBack),
        4 => (server, payment).prop_map(|(server, payment)| Step::Get { server, payment }),
    ];
    prop::collection::vec(step, 1..80)
}

struct World {
    journal: MemoryJournal,
    tables: MemoryTables,
    servers: [Option<OneServer>; 2],
    take_overs: u128,
    acknowledged: BTreeSet<u8>,
}

impl World {
    fn new(is_far: bool) -> Self {
        Self {
            journal: MemoryJournal::default(),
            tables: MemoryTables::new(is_far),
            servers: [None, None],
            take_overs: 0,
            acknowledged: BTreeSet::new(),
        }
    }

    /// The records after so many rows.
    fn fold(&mut self, rows: u64) -> Records {
        let mut records = Records::new();
        let max = u32::try_from(rows).expect("few rows");
        let mut previous = End::START;
        for row in self.journal.rows(0, max).expect("rows") {
            let sets = Bytes.read(previous, &row).expect("a body");
            previous = End { seq: row.seq, hash: row.hash };
            for (key, change) in sets.into_iter().flatten() {
                let before = match change {
                    Change::Insert(value) => {
                        assert_eq!(records.get(&key), None, "{key:?} is there for the second time");
                        records.insert(key, value)
                    }
                    Change::Update(value) => Some(records.insert(key, value).expect("a record")),
                    Change::Remove => Some(records.remove(&key).expect("a record")),
                };
                if let (Key::Balance, Some(before)) = (key, before) {
                    assert_eq!(records[&key], before - 1, "each payment takes one");
                }
            }
        }
        records
    }

    fn take_over(&mut self, server: usize) {
        self.take_overs += 1;
        let holder = Uuid::from_u128(self.take_overs);
        let seen = self.journal.leadership().expect("an answer");
        let leader = self.journal.take_over(seen, holder).expect("an answer");
        let parts = (self.journal.clone(), self.tables.clone(), Bytes);
        let started = Server::start(parts, leader.expect("the leadership"), DATABASE, |_, _| 1);
        self.servers[server] = Some(started.expect("a start"));
    }

    fn pay(&mut self, server: usize, payments: &[u8]) {
        let Some(leader) = &mut self.servers[server] else { return };
        let work = payments.iter().map(|payment| {
            let payment = *payment;
            Box::new(move |unit: &mut Unit<'_, Key, i64>| pay(unit, payment))
                as Work<'_, _, _, Answer, Refused>
        });
        match leader.turn(work.collect(), Timestamp::from_millis(5)) {
            Ok(answers) => {
                let mut went_back = false;
                for (payment, answer) in payments.iter().zip(answers) {
                    match answer {
                        Ok(Answer::Made | Answer::WasMade) => {
                            self.acknowledged.insert(*payment);
                        }
                        Err(Refused::NoMoney) => {}
                        Err(Refused::Store) => went_back = true,
                    }
                }
                if went_back {
                    leader.restart().expect("a start");
                }
            }
            Err(TurnError::Deposed | TurnError::Unknown(_)) => self.servers[server] = None,
            Err(TurnError::Failed(StoreError::DiskFull)) => {}
            Err(TurnError::Failed(error)) => panic!("{error}"),
        }
    }

    fn project(&mut self, server: usize) {
        let Some(leader) = &mut self.servers[server] else { return };
        if leader.project().is_err() {
            leader.restart().expect("a start");
        }
    }

    fn get(&mut self, server: usize, payment: u8) {
        let Some(leader) = &mut self.servers[server] else { return };
        match leader.get(&Key::Payment(payment)) {
            Ok(found) => {
                let end = u64::from(u32::MAX);
                let truth = self.fold(end).get(&Key::Payment(payment)).copied();
                assert_eq!(found, truth, "a leader reads the newest");
                assert!(found.is_some() || !self.acknowledged.contains(&payment));
            }
            Err(TurnError::Deposed | TurnError::Unknown(_)) => self.servers[server] = None,
            Err(TurnError::Failed(_)) => leader.restart().expect("a start"),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Pay { server, payments } => self.pay(*server, payments),
            Step::Fails(fault) => self.journal.fail(*fault),
            Step::Project { server } => self.project(*server),
            Step::TakeOver { server } => self.take_over(*server),
            Step::Die { server } => self.servers[*server] = None,
            Step::GoBack => self.tables.go_back(),
            Step::Get { server, payment } => self.get(*server, *payment),
        }
        self.check();
    }

    fn check(&mut self) {
        let all = self.fold(u64::from(u32::MAX));
        let made = all.keys().filter(|key| matches!(key, Key::Payment(_))).count();
        let left = all.get(&Key::Balance).copied().unwrap_or(BALANCE);
        assert_eq!(
            left,
            BALANCE - i64::try_from(made).expect("few"),
            "money is neither made nor lost"
        );
        assert!(left >= 0);
        for payment in &self.acknowledged {
            assert!(all.contains_key(&Key::Payment(*payment)), "{payment} was acknowledged");
        }
        let State { applied, records } = self.tables.now();
        assert_eq!(records, self.fold(applied.seq), "the tables are the fold of the journal");
    }
}

proptest! {
    #[test]
    fn no_payment_is_lost_or_made_twice(steps in steps(), is_far: bool) {
        let mut world = World::new(is_far);
        world.take_over(0);
        steps.iter().for_each(|step| world.step(step));
        // The last leader knows everything.
        world.take_over(1);
        let acknowledged = world.acknowledged.clone();
        for payment in acknowledged {
            world.get(1, payment);
            prop_assert!(world.servers[1].is_some());
        }
    }
}

#[test]
fn tables_of_another_journal_are_refused() {
    let mut world = World::new(false);
    world.take_over(0);
    world.pay(0, &[1, 2]);
    world.project(0);
    world.journal = MemoryJournal::default();
    let leader = world.journal.take_over(None, Uuid::from_u128(9)).expect("an answer");
    let parts = (world.journal.clone(), world.tables.clone(), Bytes);
    let started = Server::start(parts, leader.expect("the leadership"), DATABASE, |_, _| 1);
    assert!(matches!(started.err(), Some(StartError::Foreign { seq: 1 })));
}

#[test]
fn an_edited_row_is_named_at_the_start() {
    let mut world = World::new(false);
    world.take_over(0);
    world.pay(0, &[1]);
    let mut rows = world.journal.rows(0, 1).expect("rows");
    rows[0].body[40] ^= 1;
    let mut edited = MemoryJournal::default();
    let leader = edited.take_over(None, Uuid::from_u128(9)).expect("an answer");
    let leader = leader.expect("the leadership");
    edited.append(leader, &rows).expect("an append");
    let parts = (edited, world.tables.clone(), Bytes);
    let started = Server::start(parts, leader, DATABASE, |_, _| 1);
    assert!(matches!(started.err(), Some(StartError::Broken(Broken::Changed(1)))));
}
