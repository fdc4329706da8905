//! Asks: do units that run while others are being written see what those leave, and does nothing of
//! them remain or be answered before its time?

use std::future::poll_fn;
use std::result::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Poll;

use domain::platform::Platform;
use domain::transaction::{self, Status, Transaction};
use store::Store;
use store::error::StoreError;
use store::sql::{Connection, Turn};
use store::unit::Unit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::records::{answer_like_event, said_in};
use crate::support::*;
use crate::tampered::{self, Tamper};
use crate::{Provider, open_with_platform};

/// Holds commits until they are let go, each with its outcome.
struct Gate {
    holds: Moment,
    began: UnboundedSender<()>,
    arrived: UnboundedSender<()>,
    outcome: Mutex<mpsc::Receiver<Result<(), StoreError>>>,
    reads: bool,
}

/// When a commit is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Nothing of it is there, and whoever else would write waits.
    Before,
    /// It is there, and the lane does not know.
    After,
}

impl Tamper for Gate {
    fn begin_read(&self, inner: &mut dyn Connection) -> Result<(), StoreError> {
        if !self.reads {
            return Err(StoreError::Unavailable("for a test".to_owned()));
        }
        inner.begin_read()
    }

    fn begin(&self, inner: &mut dyn Connection) -> Result<Turn, StoreError> {
        let _ = self.began.send(());
        inner.begin()
    }

    fn commit(&self, inner: &mut dyn Connection) -> Result<(), StoreError> {
        if self.holds == Moment::After {
            inner.commit()?;
        }
        let _ = self.arrived.send(());
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).recv();
        // Whoever holds the gate may have gone, which opens it.
        outcome.unwrap_or(Ok(()))?;
        match self.holds {
            Moment::Before => inner.commit(),
            Moment::After => Ok(()),
        }
    }
}

/// A store whose commits wait.
struct Gated {
    store: Store,
    began: UnboundedReceiver<()>,
    arrived: UnboundedReceiver<()>,
    let_go: mpsc::Sender<Result<(), StoreError>>,
    threads: store::Threads,
}

fn gated<P: Provider>(provider: &P) -> Gated {
    opened(provider, Moment::Before, true)
}

fn opened<P: Provider>(provider: &P, holds: Moment, reads: bool) -> Gated {
    let ((began, begins), (arrived, arrivals)) = (unbounded_channel(), unbounded_channel());
    let (let_go, outcome) = mpsc::channel();
    let gate = Gate { holds, began, arrived, outcome: Mutex::new(outcome), reads };
    let (store, threads) = tampered::open(provider, Arc::new(gate));
    Gated { store, began: begins, arrived: arrivals, let_go, threads }
}

impl Gated {
    /// Waits until a commit waits.
    async fn commit_waits(&mut self) {
        self.arrived.recv().await.unwrap();
    }

    /// Lets all commits go from now on.
    fn open_up(&mut self) {
        self.let_go = mpsc::channel().0;
    }

    /// Lets all commits go, and closes the store. No other handle of it may be left.
    fn close(self) {
        drop((self.let_go, self.store));
        self.threads.join();
    }
}

/// Adds a letter to the name of the platform 1, and gives what it is then.
fn add(letter: char) -> impl FnMut(&mut Unit<'_, '_>) -> Result<String, StoreError> {
    move |unit| {
        let old = unit.get::<Platform>(&platform_id(1))?.unwrap();
        let name = format!("{}{letter}", old.name);
        unit.put_platform(Platform { name: name.clone(), ..Platform::clone(&old) });
        Ok(name)
    }
}

/// A letter that is being added, and one that was added ahead of it.
struct Two {
    first: Adding,
    second: Adding,
}

type Adding = std::pin::Pin<Box<dyn Future<Output = Result<String, StoreError>> + Send>>;

/// Adds the letter a, then b, whose commit is held, and then c, which has run when this returns.
async fn two(gated: &mut Gated) -> Two {
    // The first batch after a start finds out whether somebody else has written.
    gated.let_go.send(Ok(())).unwrap();
    gated.store.write(add('a')).await.unwrap();
    gated.commit_waits().await;
    let store = gated.store.clone();
    let mut first: Adding = Box::pin(async move { store.write(add('b')).await });
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let (ran, mut runs) = unbounded_channel();
    let (store, mut work) = (gated.store.clone(), add('c'));
    let mut second: Adding = Box::pin(async move {
        let write = store.write(move |unit| {
            let name = work(unit)?;
            let _ = ran.send(name.clone());
            Ok::<_, StoreError>(name)
        });
        write.await
    });
    assert!(is_pending(&mut second).await);
    assert_eq!(runs.recv().await.unwrap(), "Platform 1abc");
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    Two { first, second }
}

/// Counts how often a unit comes to its end.
fn counted(
    mut work: impl FnMut(&mut Unit<'_, '_>) -> Result<String, StoreError>,
    ran: Arc<Mutex<u32>>,
) -> impl FnMut(&mut Unit<'_, '_>) -> Result<String, StoreError> {
    move |unit| {
        let name = work(unit)?;
        *ran.lock().unwrap() += 1;
        Ok(name)
    }
}

/// The name of the platform 1.
async fn name(store: &Store) -> String {
    let read = store.read(|view| {
        Ok::<_, StoreError>(view.get::<Platform>(&platform_id(1))?.unwrap().name.clone())
    });
    read.await.unwrap()
}

/// Whether a future is not ready; it goes on as far as it can.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending()))
        .await
}

pub async fn units_see_what_is_being_written_and_are_answered_after_it<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let store = gated.store.clone();
    let mut first = Box::pin(store.write(add('a')));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    // It runs now where units run ahead, and otherwise as soon as the commit is done.
    let mut second = Box::pin(store.write(add('b')));
    assert!(is_pending(&mut second).await);
    gated.let_go.send(Ok(())).unwrap();
    assert_eq!(first.await.unwrap(), "Platform 1a");
    gated.commit_waits().await;
    assert!(is_pending(&mut second).await, "it is answered before it is durable");
    gated.let_go.send(Ok(())).unwrap();
    assert_eq!(second.await.unwrap(), "Platform 1ab");
    drop(store);
    gated.close();
}

pub async fn units_run_while_others_are_written<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let Two { first, second } = two(&mut gated).await;
    gated.let_go.send(Ok(())).unwrap();
    gated.let_go.send(Ok(())).unwrap();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abc");
    gated.close();
}

pub async fn what_ran_on_a_batch_that_failed_runs_again<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let store = gated.store.clone();
    gated.let_go.send(Ok(())).unwrap();
    store.write(add('a')).await.unwrap();
    gated.commit_waits().await;
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noting = |letter| {
        let (mut work, runs) = (add(letter), Arc::clone(&runs));
        move |unit: &mut Unit<'_, '_>| {
            let name = work(unit)?;
            runs.lock().unwrap().push(name.clone());
            Ok::<_, StoreError>(name)
        }
    };
    let mut first = Box::pin(store.write(noting('b')));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let mut second = Box::pin(store.write(noting('c')));
    assert!(is_pending(&mut second).await);
    let failed = Err(StoreError::Conflict("for a test".to_owned()));
    gated.let_go.send(failed).unwrap();
    gated.open_up();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abc");
    let runs = runs.lock().unwrap().clone();
    assert_eq!(runs.iter().filter(|name| *name == "Platform 1ab").count(), 2, "{runs:?}");
    assert_eq!(name(&store).await, "Platform 1abc");
    drop(store);
    gated.close();
}

pub async fn an_answer_that_is_being_written_is_given_again_after_it<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let store = gated.store.clone();
    gated.let_go.send(Ok(())).unwrap();
    store.write(add('a')).await.unwrap();
    gated.commit_waits().await;
    let mut first = Box::pin(store.write(|unit| answer_like_event(unit, 1)));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let mut again = Box::pin(store.write(|unit| Ok::<_, Refused>(unit.answer(&[1; 16], at(0))?)));
    assert!(is_pending(&mut again).await);
    gated.let_go.send(Ok(())).unwrap();
    gated.let_go.send(Ok(())).unwrap();
    first.await.unwrap();
    let said = event(&transfer_out(1, 1, 1, 10)).body;
    assert_eq!(again.await.unwrap(), Some((201, said_in(&said).to_vec())));
    drop(store);
    gated.close();
}

/// Units in more batches than one, which wait together while a commit is held.
struct Many {
    first: Adding,
    others: Vec<Adding>,
}

/// Units that fill some batches on each engine.
const MANY: usize = 60;

/// What each group of them adds.
const LETTERS: [char; 3] = ['d', 'e', 'f'];

/// Adds the letter a, then b, whose commit is held, and then many, which come in groups and have
/// run when this returns.
async fn many(gated: &mut Gated) -> Many {
    let Two { first, second } = two(gated).await;
    let mut others = vec![second];
    for letter in LETTERS {
        let work = || add(letter);
        others.extend(run_many(gated, &work).await);
    }
    Many { first, others }
}

/// Runs many units of a kind, none of which is answered.
async fn run_many<F>(gated: &Gated, work: &impl Fn() -> F) -> Vec<Adding>
where
    F: FnMut(&mut Unit<'_, '_>) -> Result<String, StoreError> + Send + 'static,
{
    let (ran, mut runs) = unbounded_channel();
    let mut units = Vec::new();
    for _ in 0..MANY {
        let (store, ran, mut work) = (gated.store.clone(), ran.clone(), work());
        let unit = async move {
            let unit = store.write(move |unit| {
                let said = work(unit)?;
                let _ = ran.send(());
                Ok::<_, StoreError>(said)
            });
            unit.await
        };
        let mut unit: Adding = Box::pin(unit);
        assert!(is_pending(&mut unit).await);
        units.push(unit);
    }
    for _ in 0..MANY {
        runs.recv().await.unwrap();
    }
    // Meanwhile the lane has nothing to run, and hands over what it has.
    name(&gated.store).await;
    units
}

/// Each letter is added once, in the order in which the units came.
async fn all_are_added(gated: Gated, Many { first, others }: Many) {
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    let mut expected = "Platform 1ab".to_owned();
    let letters = std::iter::once('c').chain(LETTERS.into_iter().flat_map(|it| [it; MANY]));
    for (unit, letter) in others.into_iter().zip(letters) {
        expected.push(letter);
        assert_eq!(unit.await.unwrap(), expected);
    }
    assert_eq!(name(&gated.store).await, expected);
    gated.close();
}

pub async fn batches_that_wait_are_written_together<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let many = many(&mut gated).await;
    gated.open_up();
    all_are_added(gated, many).await;
}

pub async fn batches_behind_one_that_failed_run_again_in_their_order<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let many = many(&mut gated).await;
    let failed = Err(StoreError::Conflict("for a test".to_owned()));
    gated.let_go.send(failed).unwrap();
    gated.open_up();
    all_are_added(gated, many).await;
}

pub async fn what_waits_to_be_written_is_not_forgotten<P: Provider>() {
    /// Of each unit: more of a group than the lane remembers in one generation.
    const ANSWERS: u64 = 40;
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let Two { first, second } = two(&mut gated).await;
    let scope = |number: u64| u128::from(number).to_be_bytes();
    let next = AtomicU64::new(0);
    let fill = || {
        let number = next.fetch_add(ANSWERS, Ordering::Relaxed);
        move |unit: &mut Unit<'_, '_>| {
            for answer in number..number + ANSWERS {
                unit.keep_answer(scope(answer), at(0), 201, b"said");
            }
            Ok(String::new())
        }
    };
    let mut units = Vec::new();
    for _ in 0..4 {
        units.extend(run_many(&gated, &fill).await);
    }
    let (saw, mut seen) = unbounded_channel();
    let store = gated.store.clone();
    let mut look = Box::pin(store.write(move |unit| {
        let _ = saw.send(unit.answer(&scope(0), at(0))?.is_some());
        Ok::<_, StoreError>(())
    }));
    assert!(is_pending(&mut look).await);
    assert!(seen.recv().await.unwrap(), "it is not in the database yet, and nowhere else any more");
    gated.open_up();
    for unit in [first, second].into_iter().chain(units) {
        unit.await.unwrap();
    }
    look.await.unwrap();
    drop(store);
    gated.close();
}

/// What everybody who looks is told of the payment 1.
async fn status(store: &Store) -> Status {
    store.get::<Transaction>(transaction_id(1)).await.unwrap().unwrap().status()
}

/// A payment that somebody looked at stays the one that the database has while a commit changes it:
/// the old one before, and the new one as soon as lists and others' looks have that.
pub async fn a_payment_that_is_being_changed_is_as_the_database_has_it<P: Provider>() {
    let held = [(Moment::Before, Status::Pending), (Moment::After, Status::Processing)];
    for (holds, meanwhile) in held {
        let opened_first = open_with_platform::<P>().await;
        opened_first.write(|unit| begin(unit, deposit(1, 1, 1, 100, "USD"))).await;
        let provider = opened_first.close();
        let mut gated = opened(&provider, holds, true);
        let store = gated.store.clone();
        store.has_payments_alone();
        assert_eq!(
            (status(&store).await, status(&store).await),
            (Status::Pending, Status::Pending)
        );
        let started =
            |unit: &mut Unit<'_, '_>| advance(unit, 1, &[transaction::Event::Started], at(2));
        let mut write = Box::pin(store.write(started));
        assert!(poll_fn(|context| Poll::Ready(write.as_mut().poll(context).is_pending())).await);
        gated.commit_waits().await;
        assert_eq!((status(&store).await, status(&store).await), (meanwhile, meanwhile));
        gated.open_up();
        write.await.unwrap();
        assert_eq!(status(&store).await, Status::Processing);
        assert_eq!(status(&store).await, Status::Processing);
        drop(store);
        gated.close();
    }
}

/// Only in this process can it be told that nobody else changes payments; if it was told and is not
/// so, the next commit notices.
pub async fn what_was_looked_at_is_remembered_until_somebody_else_is_noticed<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    opened.store.has_payments_alone();
    opened.write(|unit| begin(unit, deposit(1, 1, 1, 100, "USD"))).await;
    let store = &opened.store;
    let whose = async || {
        let payment = store.get::<Transaction>(transaction_id(1)).await.unwrap().unwrap();
        payment.draft().platform_customer_id.clone()
    };
    let remembered = whose().await;
    opened.provider.run("update transactions set platform_customer_id = 'other'");
    assert_eq!(whose().await, remembered);
    store.write(add('a')).await.unwrap();
    assert_eq!(whose().await, "other");
}

/// Holds those who look while it is closed.
struct Blind {
    closed: AtomicBool,
    arrived: UnboundedSender<()>,
    let_go: Mutex<mpsc::Receiver<()>>,
}

impl Tamper for Blind {
    fn before_look(&self) {
        if self.closed.load(Ordering::Acquire) {
            let _ = self.arrived.send(());
            let _ = self.let_go.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}

/// Another server changes a payment after it was found in memory and before it was asked who has
/// written, and then this one writes, so that the last turn is its own.
pub async fn what_is_remembered_is_looked_for_behind_the_question<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    opened.write(|unit| begin(unit, deposit(1, 1, 1, 100, "USD"))).await;
    let provider = opened.close();
    let ((arrived, mut arrivals), (go, let_go)) = (unbounded_channel(), mpsc::channel());
    let let_go = Mutex::new(let_go);
    let blind = Arc::new(Blind { closed: AtomicBool::new(false), arrived, let_go });
    let (store, threads) = tampered::open(&provider, Arc::<Blind>::clone(&blind));
    let (other, other_threads) = Store::open(&*provider.engine(), keyring()).unwrap();
    for _ in 0..3 {
        assert_eq!(status(&store).await, Status::Pending);
    }
    blind.closed.store(true, Ordering::Release);
    let mut look = Box::pin(status(&store));
    assert!(poll_fn(|context| Poll::Ready(look.as_mut().poll(context).is_pending())).await);
    arrivals.recv().await.unwrap();
    blind.closed.store(false, Ordering::Release);
    let started = |unit: &mut Unit<'_, '_>| advance(unit, 1, &[transaction::Event::Started], at(2));
    other.write(started).await.unwrap();
    store.write(add('a')).await.unwrap();
    go.send(()).unwrap();
    assert_eq!(look.await, Status::Processing);
    drop((store, other));
    threads.join();
    other_threads.join();
}

pub async fn what_somebody_else_wrote_is_seen<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    assert_eq!(opened.store.write(add('a')).await.unwrap(), "Platform 1a");
    opened.provider.run("update platforms set name = 'Other ', version = version + 1");
    assert_eq!(opened.store.write(add('b')).await.unwrap(), "Other b");
}

pub async fn what_another_server_wrote_before_the_turn_is_seen<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = opened(&provider, Moment::After, true);
    let (other, other_threads) = Store::open(&*provider.engine(), keyring()).unwrap();
    let Two { first, second } = two(&mut gated).await;
    assert_eq!(other.write(add('x')).await.unwrap(), "Platform 1abx");
    gated.open_up();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abxc");
    assert_eq!(name(&other).await, "Platform 1abxc");
    drop(other);
    other_threads.join();
    gated.close();
}

pub async fn who_had_company_runs_ahead_again_when_alone<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let (other, other_threads) = Store::open(&*provider.engine(), keyring()).unwrap();
    let mut runs = 0;
    for _ in 0..5 {
        other.write(add('x')).await.unwrap();
        gated.let_go.send(Ok(())).unwrap();
        let ran = Arc::new(Mutex::new(0));
        gated.store.write(counted(add('y'), Arc::clone(&ran))).await.unwrap();
        gated.commit_waits().await;
        runs = *ran.lock().unwrap();
    }
    assert_eq!(runs, 1, "it runs before its turn, in which it runs again");
    let write = other.write(|unit| {
        unit.get::<Platform>(&platform_id(1))?;
        unit.put_platform(platform(1));
        Ok::<_, StoreError>(())
    });
    write.await.unwrap();
    let seen = gated.store.write(|unit| unit.get::<Platform>(&platform_id(1)));
    assert_eq!(seen.await.unwrap().unwrap().name, "Platform 1");
    drop(other);
    other_threads.join();
    let Two { first, second } = two(&mut gated).await;
    gated.open_up();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abc");
    gated.close();
}

pub async fn what_comes_before_the_turn_is_part_of_it<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let (mut gated, mut other) = (gated(&provider), gated(&provider));
    // They write as often as each other.
    for _ in 0..5 {
        for server in [&mut other, &mut gated] {
            server.let_go.send(Ok(())).unwrap();
            server.store.write(add('x')).await.unwrap();
            server.commit_waits().await;
        }
    }
    while gated.began.try_recv().is_ok() {}
    let (ours, theirs) = (gated.store.clone(), other.store.clone());
    let mut has_turn = Box::pin(theirs.write(add('y')));
    assert!(is_pending(&mut has_turn).await);
    other.commit_waits().await;
    let mut first = Box::pin(ours.write(add('a')));
    assert!(is_pending(&mut first).await);
    gated.began.recv().await.unwrap();
    let mut second = Box::pin(ours.write(add('b')));
    assert!(is_pending(&mut second).await);
    gated.open_up();
    other.open_up();
    let name = has_turn.await.unwrap();
    assert_eq!(first.await.unwrap(), format!("{name}a"));
    assert_eq!(second.await.unwrap(), format!("{name}ab"));
    gated.commit_waits().await;
    assert!(gated.arrived.try_recv().is_err(), "each has a turn of its own");
    drop((ours, theirs));
    gated.close();
    other.close();
}

/// Ends the sessions of a database that are found by a condition.
fn end_sessions<P: Provider>(provider: &P, condition: &str) {
    provider.run(&format!(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
         where datname = current_database() and pid <> pg_backend_pid() and {condition}"
    ));
}

/// Both letters are added, each once, although these sessions end at the commit of the first.
async fn both_are_added<P: Provider>(provider: &P, mut gated: Gated, ended: &str) {
    let Two { first, second } = two(&mut gated).await;
    end_sessions(provider, ended);
    gated.open_up();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abc");
    assert_eq!(name(&gated.store).await, "Platform 1abc");
    gated.close();
}

pub async fn a_connection_that_is_lost_at_a_commit_takes_what_ran_ahead_along<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    both_are_added(&provider, gated(&provider), "state = 'idle in transaction'").await;
}

pub async fn what_ran_ahead_in_a_session_that_ended_runs_again<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    both_are_added(&provider, opened(&provider, Moment::After, true), "true").await;
}

pub async fn what_cannot_be_read_ahead_is_read_in_its_turn<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = opened(&provider, Moment::Before, false);
    gated.let_go.send(Ok(())).unwrap();
    gated.store.write(add('a')).await.unwrap();
    gated.commit_waits().await;
    let store = gated.store.clone();
    let mut first = Box::pin(store.write(add('b')));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    // It is about a platform that nobody has read yet.
    let mut second = Box::pin(store.write(|unit| {
        let found = unit.get::<Platform>(&platform_id(2))?.is_some();
        Ok::<_, StoreError>((found, add('c')(unit)?))
    }));
    assert!(is_pending(&mut second).await);
    gated.open_up();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), (false, "Platform 1abc".to_owned()));
    drop(store);
    gated.close();
}
