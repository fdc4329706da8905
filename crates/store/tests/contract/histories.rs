//! Asks: whatever happens in whatever order, on two servers that come and go and whose projectors
//! fail and die at every step, does each read see everything that was acknowledged, and does the
//! journal make the same tables?

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::result::Result as StdResult;
use std::sync::{Arc, Mutex};

use domain::clock::Ahead;
use domain::customer::Customer;
use domain::platform::Platform;
use domain::rail::Rail;
use ledger::account::{AccountKey, Counters};
use ledger::movements;
use ledger::posting::Resolution;
use store::customers::CustomerFilter;
use store::error::StoreError;
use store::idempotency::{Answer, Given};
use store::list::PageRequest;
use store::sql::{Connection, Write};
use store::timers::TimerKind;
use store::transactions::TransactionFilter;
use store::unit::Unit;
use store::verify::{replay, verify};
use store::{SqliteFile, Store, Threads};
use tokio::task::JoinSet;

use crate::Provider;
use crate::money::take;
use crate::support::*;
use crate::tampered::{self, Tamper};

/// Histories, each from a seed of its own.
const HISTORIES: u64 = 2;

/// Steps of a history. In each, a few units are written at once.
const STEPS: usize = 60;

/// Servers on the database.
const SERVERS: usize = 2;

/// A unit of work. No two of a step are about the same thing.
#[derive(Debug, Clone)]
enum Work {
    /// A new customer.
    Add(u128),
    /// Another name for a customer.
    Rename(u128, String),
    /// Money comes to the account of the first customer.
    Deposit(u128, i64),
    /// Money of it is set aside.
    Take(u128, i64),
    /// It is delivered, or given back.
    Resolve(u128, Resolution),
    /// A request under a key, which makes a customer if it was not answered before.
    Once(u8, u128),
    /// A timer is set, or set anew.
    Timer(u128, i64),
    /// It is taken away.
    Clear(u128),
    /// A customer is added, and then the unit refuses.
    Refuse(u128),
}

/// Everything that was acknowledged.
#[derive(Debug, Default)]
struct Model {
    customers: BTreeMap<u128, String>,
    payments: BTreeSet<u128>,
    pending: BTreeMap<u128, i64>,
    counters: Counters,
    /// The customer that the request of a key has made.
    answers: BTreeMap<u8, u128>,
    timers: BTreeMap<u128, i64>,
    /// The number of the next new thing.
    next: u128,
}

impl Model {
    /// Draws the units of a step.
    fn step(&mut self, random: &mut fastrand::Rng) -> Vec<Work> {
        let available = self.counters.credits_posted
            - self.counters.debits_posted
            - self.counters.debits_pending;
        let mut left = i64::try_from(available).unwrap();
        let mut touched = BTreeSet::new();
        let mut works = Vec::new();
        for _ in 0..random.usize(1..=5) {
            self.next += 1;
            let new = self.next;
            let minor = random.i64(1..50);
            let old = random.choice(self.customers.keys()).copied();
            let pending = random.choice(self.pending.keys()).copied();
            let timer = random.choice(self.timers.keys()).copied();
            let resolution = if random.bool() { Resolution::Post } else { Resolution::Void };
            let (work, about) = match (random.u8(..9), old, pending, timer) {
                (0, ..) => (Work::Add(new), ("customer", new)),
                (1, Some(old), ..) => (Work::Rename(old, format!("name-{new}")), ("customer", old)),
                (2, ..) => (Work::Deposit(new, minor), ("payment", new)),
                (3, ..) if minor <= left => {
                    left -= minor;
                    (Work::Take(new, minor), ("payment", new))
                }
                (4, _, Some(pending), _) => {
                    (Work::Resolve(pending, resolution), ("payment", pending))
                }
                (5, ..) => {
                    let key = random.u8(1..20);
                    (Work::Once(key, new), ("key", u128::from(key)))
                }
                (6, _, _, Some(timer)) if random.bool() => (Work::Clear(timer), ("timer", timer)),
                (6, ..) => (Work::Timer(random.u128(1..30), minor), ("timers", 0)),
                (7, ..) => (Work::Refuse(new), ("customer", new)),
                _ => (Work::Deposit(new, minor), ("payment", new)),
            };
            // Timers may be set anew: only one unit of a step is about any of them.
            let about = if about.0 == "timer" { ("timers", 0) } else { about };
            if touched.insert(about) {
                works.push(work);
            }
        }
        works
    }

    /// Takes note of what was acknowledged.
    fn done(&mut self, work: Work, said: Option<u128>) {
        match work {
            Work::Add(number) => drop(self.customers.insert(number, format!("user-{number}"))),
            Work::Rename(number, name) => drop(self.customers.insert(number, name)),
            Work::Deposit(number, minor) => {
                self.payments.insert(number);
                self.counters.credits_posted += i128::from(minor);
            }
            Work::Take(number, minor) => {
                self.payments.insert(number);
                self.pending.insert(number, minor);
                self.counters.debits_pending += i128::from(minor);
            }
            Work::Resolve(number, resolution) => {
                let minor = self.pending.remove(&number).unwrap();
                self.counters.debits_pending -= i128::from(minor);
                if resolution == Resolution::Post {
                    self.counters.debits_posted += i128::from(minor);
                }
            }
            Work::Once(key, number) => {
                let made = *self.answers.entry(key).or_insert(number);
                assert_eq!(said, Some(made), "a key has its first answer");
                self.customers.entry(made).or_insert_with(|| format!("user-{made}"));
            }
            Work::Timer(number, due_at) => drop(self.timers.insert(number, due_at)),
            Work::Clear(number) => drop(self.timers.remove(&number)),
            Work::Refuse(_) => {}
        }
    }

    /// Compares what a server shows with what was acknowledged.
    async fn compare(&self, store: &Store) {
        let read = store.read(|view| {
            let customers = view.customers(platform_id(1), &CustomerFilter::default(), ALL)?;
            let payments = view.transactions(platform_id(1), &TransactionFilter::default(), ALL)?;
            let account = view.ledger_account(&account())?;
            Ok::<_, Refused>((customers.rows, payments.rows, account))
        });
        let (customers, payments, account) = read.await.unwrap();
        let due = store.due_timers(at(1_000), usize::MAX, &HashSet::new()).await.unwrap();
        let timers = due.timers;
        let customers: BTreeMap<_, _> =
            customers.iter().map(|it| (it.id, it.platform_customer_id.clone())).collect();
        let expected: BTreeMap<_, _> = self
            .customers
            .iter()
            .map(|(number, name)| (customer_id(*number), name.clone()))
            .collect();
        assert_eq!(customers, expected);
        let payments: BTreeSet<_> = payments.iter().map(|it| it.id()).collect();
        assert_eq!(payments, self.payments.iter().map(|it| transaction_id(*it)).collect());
        let timers: BTreeMap<_, _> = timers.iter().map(|it| (it.subject, it.due_at)).collect();
        let expected = self.timers.iter().map(|(number, due)| (uuid(*number), at(*due)));
        assert_eq!(timers, expected.collect());
        let counters = account.map(|it| it.balance.counters()).unwrap_or_default();
        assert_eq!(counters, self.counters);
        for (number, name) in &self.customers {
            let found = store.get::<Customer>(customer_id(*number)).await.unwrap().unwrap();
            assert_eq!(found.platform_customer_id, *name);
        }
        for (key, made) in &self.answers {
            let (scope, made) = ([*key; 16], made.to_be_bytes().to_vec());
            assert!(store.get::<Answer>(scope).await.unwrap().is_some());
            let found = store.read(move |view| view.answer(&scope, at(0))).await.unwrap();
            assert_eq!(found.unwrap().body, made);
        }
    }
}

const ALL: PageRequest = PageRequest::ALL;

fn account() -> AccountKey {
    AccountKey::Internal(customer_account(1, "USD"))
}

/// Does a unit's work. A request under a key gives the customer that it has made.
fn run(unit: &mut Unit<'_, '_>, work: &Work) -> Result<Option<u128>> {
    match work {
        Work::Add(number) | Work::Refuse(number) => {
            assert!(unit.get::<Customer>(&customer_id(*number))?.is_none());
            unit.put(customer(*number, 1));
            if matches!(work, Work::Refuse(_)) {
                return Err(Refused::Store(StoreError::Engine("refused".to_owned())));
            }
        }
        Work::Rename(number, name) => {
            let found = unit.get::<Customer>(&customer_id(*number))?.unwrap();
            let platform_customer_id = name.clone();
            unit.put(Customer { platform_customer_id, ..Customer::clone(&found) });
        }
        Work::Deposit(number, minor) => {
            begin(unit, deposit(*number, 1, 1, *minor, "USD"))?;
            let to = customer_account(1, "USD");
            let posting = movements::deposit(platform_id(1), Rail::Ach, to, money(*minor, "USD"));
            unit.post(transaction_id(*number), &posting.unwrap(), at(1))?;
        }
        Work::Take(number, minor) => take(unit, *number, *minor)?,
        Work::Resolve(number, resolution) => {
            unit.resolve(transaction_id(*number), *resolution, at(3))?;
        }
        Work::Once(key, number) => {
            let scope = [*key; 16];
            if let Some(given) = unit.answer(&scope, at(0))? {
                return Ok(Some(u128::from_be_bytes(given.body.try_into().unwrap())));
            }
            unit.put(customer(*number, 1));
            unit.keep_answer(scope, at(1), &Given::new(201, number.to_be_bytes()));
            return Ok(Some(*number));
        }
        Work::Timer(number, due_at) => {
            unit.set_timer(timer(uuid(*number), TimerKind::AskRail, at(*due_at), at(0)));
        }
        Work::Clear(number) => unit.clear_timer((uuid(*number), TimerKind::AskRail)),
    }
    Ok(None)
}

/// A moment of a projector's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Begin,
    Write,
    Commit,
    /// It is committed, and the projector does not know.
    Committed,
}

impl Moment {
    fn any(random: &mut fastrand::Rng) -> Self {
        [Self::Begin, Self::Write, Self::Commit, Self::Committed][random.usize(..4)]
    }
}

/// What ends the next steps of a projector.
#[derive(Debug, Default)]
struct Faults {
    next: Mutex<VecDeque<Moment>>,
    /// The moment at which the projector dies.
    dies: Mutex<Option<Moment>>,
}

impl Faults {
    fn at(&self, moment: Moment) -> StdResult<(), StoreError> {
        let dies = *self.dies.lock().unwrap() == Some(moment);
        assert!(!dies, "the projector is killed at {moment:?}, for a test");
        let mut next = self.next.lock().unwrap();
        if next.front() != Some(&moment) {
            return Ok(());
        }
        next.pop_front();
        Err(StoreError::Conflict("for a test".to_owned()))
    }
}

impl Tamper for Faults {
    fn begin(&self, inner: &mut dyn Connection) -> StdResult<(), StoreError> {
        self.at(Moment::Begin)?;
        inner.begin()
    }

    fn write(&self, inner: &mut dyn Connection, writes: Vec<Write>) -> StdResult<(), StoreError> {
        self.at(Moment::Write)?;
        inner.write(writes)
    }

    fn commit(&self, inner: &mut dyn Connection) -> StdResult<(), StoreError> {
        if let Err(error) = self.at(Moment::Commit) {
            inner.rollback()?;
            return Err(error);
        }
        inner.commit()?;
        self.at(Moment::Committed)
    }
}

/// A server, and what ends the steps of its projector.
struct Server {
    store: Store,
    threads: Threads,
    faults: Arc<Faults>,
}

impl Server {
    fn start<P: Provider>(provider: &P) -> Self {
        let faults = Arc::<Faults>::default();
        let (store, threads) = tampered::open_projector(provider, Arc::clone(&faults) as _);
        Self { store, threads, faults }
    }

    /// Ends it. One that is killed leaves what is not projected to others.
    fn end(self, kill: Option<Moment>) {
        let Self { store, threads, faults } = self;
        *faults.dies.lock().unwrap() = kill;
        drop(store);
        threads.join();
    }
}

/// The journal and its tables are sound, and it makes the same tables.
fn assert_sound<P: Provider>(provider: &P) -> u64 {
    let (engine, folder) = (provider.engine(), tempfile::tempdir().unwrap());
    let report = verify(&*engine, Some(&keyring())).unwrap();
    // What else must hold, payments of the service have, and not these.
    let journal = report.checks.iter().filter(|check| check.predicate.starts_with(['J', 'M']));
    journal.for_each(|check| assert!(check.holds(), "{check:?}"));
    let scratch = SqliteFile::new(&folder.path().join("scratch.db"));
    let replayed = replay(&*engine, &keyring(), &scratch).unwrap();
    assert!(replayed.holds(), "{replayed:?}");
    replayed.rows
}

async fn history<P: Provider>(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let provider = P::new();
    let mut servers: Vec<_> = (0..SERVERS).map(|_| Some(Server::start(&provider))).collect();
    let set_up = servers[0].as_ref().unwrap().store.write(origin(), |unit| {
        unit.put(Platform { ahead: Ahead::NONE, ..platform(1) });
        Ok::<_, Refused>(())
    });
    set_up.await.unwrap();
    let mut model = Model { next: 100, ..Model::default() };
    for _ in 0..STEPS {
        if random.u8(..3) == 0 {
            let server = servers[random.usize(..SERVERS)].as_ref().unwrap();
            server.faults.next.lock().unwrap().push_back(Moment::any(&mut random));
        }
        let mut under_way = JoinSet::new();
        for work in model.step(&mut random) {
            let server = servers[random.usize(..SERVERS)].as_ref().unwrap();
            let (store, unit_work) = (server.store.clone(), work.clone());
            under_way.spawn(async move {
                (work, store.write(origin(), move |unit| run(unit, &unit_work)).await)
            });
        }
        while let Some(done) = under_way.join_next().await {
            match done.unwrap() {
                (work @ Work::Refuse(_), said) => {
                    assert!(said.is_err(), "{work:?}");
                    model.done(work, None);
                }
                (work, said) => {
                    let said = said.unwrap_or_else(|error| panic!("{work:?}: {error:?}"));
                    model.done(work, said);
                }
            }
        }
        if random.u8(..8) == 0 {
            // Before anything was read, there is more that is not projected.
            let server = &mut servers[random.usize(..SERVERS)];
            let kill = random.bool().then(|| Moment::any(&mut random));
            server.take().unwrap().end(kill);
            assert_sound(&provider);
            *server = Some(Server::start(&provider));
        }
        model.compare(&servers[random.usize(..SERVERS)].as_ref().unwrap().store).await;
    }
    for server in servers.into_iter().flatten() {
        model.compare(&server.store).await;
        server.end(None);
    }
    assert!(assert_sound(&provider) > 100);
}

pub async fn every_read_sees_what_was_acknowledged<P: Provider>() {
    for seed in 0..HISTORIES {
        println!("seed {seed}");
        history::<P>(seed).await;
    }
}
