//! Asks: is a unit answered only when it is durable, and does nothing remain of a commit that
//! failed?

use std::future::poll_fn;
use std::result::Result;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Poll;

use domain::customer::Customer;
use domain::platform::Platform;
use domain::transaction::{self, Status, Transaction};
use store::error::StoreError;
use store::idempotency::Given;
use store::reader::View;
use store::sql::Connection;
use store::unit::Unit;
use store::verify::replay;
use store::{SqliteFile, Store};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::records::{answer_like_event, said_in};
use crate::support::*;
use crate::tampered::{self, Tamper};
use crate::{Opened, Provider, open_with_platform};

/// Holds commits until they are let go, each with its outcome.
struct Gate {
    holds: Moment,
    began: UnboundedSender<()>,
    arrived: UnboundedSender<()>,
    outcome: Mutex<mpsc::Receiver<Result<(), StoreError>>>,
}

/// When a commit is held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Nothing of it is there, and every other node that writes waits.
    Before,
    /// It is there, and the writer does not know.
    After,
}

impl Tamper for Gate {
    fn begin(&self, inner: &mut dyn Connection) -> Result<(), StoreError> {
        let _ = self.began.send(());
        inner.begin()
    }

    fn commit(&self, inner: &mut dyn Connection) -> Result<(), StoreError> {
        if self.holds == Moment::After {
            inner.commit()?;
        }
        let _ = self.arrived.send(());
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).recv();
        // The test that holds the gate may have ended, which opens it.
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
    opened(provider, Moment::Before)
}

fn opened<P: Provider>(provider: &P, holds: Moment) -> Gated {
    let ((began, begins), (arrived, arrivals)) = (unbounded_channel(), unbounded_channel());
    let (let_go, outcome) = mpsc::channel();
    let gate = Gate { holds, began, arrived, outcome: Mutex::new(outcome) };
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
        unit.put(Platform { name: name.clone(), ..Platform::clone(&old) });
        Ok(name)
    }
}

/// A letter whose commit is held, and one that waits behind it.
struct Two {
    first: Adding,
    second: Adding,
}

type Adding = std::pin::Pin<Box<dyn Future<Output = Result<String, StoreError>> + Send>>;

/// Queues a unit that adds a letter.
async fn queued(store: &Store, letter: char) -> Adding {
    let store = store.clone();
    let mut unit: Adding = Box::pin(async move { store.write(origin(), add(letter)).await });
    assert!(is_pending(&mut unit).await);
    unit
}

/// Adds the letter a, then b, whose commit is held, and queues c.
async fn two(gated: &mut Gated) -> Two {
    // The first batch after a start finds out whether another node has written.
    gated.let_go.send(Ok(())).unwrap();
    gated.store.write(origin(), add('a')).await.unwrap();
    gated.commit_waits().await;
    let first = queued(&gated.store, 'b').await;
    gated.commit_waits().await;
    let second = queued(&gated.store, 'c').await;
    Two { first, second }
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
    let mut first = Box::pin(store.write(origin(), add('a')));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let mut second = Box::pin(store.write(origin(), add('b')));
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

pub async fn units_that_wait_share_a_commit<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let Two { first, second } = two(&mut gated).await;
    let third = queued(&gated.store, 'd').await;
    gated.open_up();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abc");
    assert_eq!(third.await.unwrap(), "Platform 1abcd");
    gated.commit_waits().await;
    assert!(gated.arrived.try_recv().is_err(), "the last two have one commit");
    gated.close();
}

pub async fn a_batch_that_conflicts_runs_again<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = gated(&provider);
    let store = gated.store.clone();
    gated.let_go.send(Ok(())).unwrap();
    store.write(origin(), add('a')).await.unwrap();
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
    let mut first = Box::pin(store.write(origin(), noting('b')));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let mut second = Box::pin(store.write(origin(), noting('c')));
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
    store.write(origin(), add('a')).await.unwrap();
    gated.commit_waits().await;
    let mut first = Box::pin(store.write(origin(), |unit| answer_like_event(unit, 1)));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let mut again =
        Box::pin(store.write(origin(), |unit| Ok::<_, Refused>(unit.answer(&[1; 16], at(0))?)));
    assert!(is_pending(&mut again).await);
    gated.let_go.send(Ok(())).unwrap();
    gated.let_go.send(Ok(())).unwrap();
    first.await.unwrap();
    let said = event(&transfer_out(1, 1, 1, 10)).body;
    assert_eq!(again.await.unwrap(), Some(Given::new(201, said_in(&said))));
    drop(store);
    gated.close();
}

/// The status of the payment 1, as every reader sees it.
async fn status(store: &Store) -> Status {
    store.get::<Transaction>(transaction_id(1)).await.unwrap().unwrap().status()
}

/// A payment that was read before is the one that the database has while a commit changes it: the
/// old one before, and the new one as soon as lists have that.
pub async fn a_payment_that_is_being_changed_is_as_the_database_has_it<P: Provider>() {
    let held = [(Moment::Before, Status::Pending), (Moment::After, Status::Processing)];
    for (holds, meanwhile) in held {
        let opened_first = open_with_platform::<P>().await;
        opened_first.write(|unit| begin(unit, deposit(1, 1, 1, 100, "USD"))).await;
        let provider = opened_first.close();
        let mut gated = opened(&provider, holds);
        let store = gated.store.clone();
        assert_eq!(
            (status(&store).await, status(&store).await),
            (Status::Pending, Status::Pending)
        );
        let started =
            |unit: &mut Unit<'_, '_>| advance(unit, 1, &[transaction::Event::Started], at(2));
        let mut write = Box::pin(store.write(origin(), started));
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

pub async fn what_another_process_wrote_is_seen<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    assert_eq!(opened.store.write(origin(), add('a')).await.unwrap(), "Platform 1a");
    assert_eq!(name(&opened.store).await, "Platform 1a");
    let (other, threads) = Store::open(&*opened.provider.engine(), keyring()).unwrap();
    assert_eq!(other.write(origin(), add('b')).await.unwrap(), "Platform 1ab");
    // Before its tables have followed, or after: in lists, by the key, and in a unit of work.
    assert_eq!(name(&opened.store).await, "Platform 1ab");
    assert_eq!(other.write(origin(), add('c')).await.unwrap(), "Platform 1abc");
    let found = opened.store.get::<Platform>(platform_id(1)).await.unwrap().unwrap();
    assert_eq!(found.name, "Platform 1abc");
    assert_eq!(opened.store.write(origin(), add('d')).await.unwrap(), "Platform 1abcd");
    drop(other);
    threads.join();
}

pub async fn what_another_node_wrote_before_is_seen<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let mut gated = opened(&provider, Moment::After);
    let (other, other_threads) = Store::open(&*provider.engine(), keyring()).unwrap();
    let Two { first, second } = two(&mut gated).await;
    assert_eq!(other.write(origin(), add('x')).await.unwrap(), "Platform 1abx");
    gated.open_up();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abxc");
    assert_eq!(name(&other).await, "Platform 1abxc");
    drop(other);
    other_threads.join();
    gated.close();
}

pub async fn what_comes_before_the_write_lock_is_part_of_the_batch<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let (mut gated, mut other) = (gated(&provider), gated(&provider));
    // They write as often as each other.
    for _ in 0..5 {
        for server in [&mut other, &mut gated] {
            server.let_go.send(Ok(())).unwrap();
            server.store.write(origin(), add('x')).await.unwrap();
            server.commit_waits().await;
        }
    }
    while gated.began.try_recv().is_ok() {}
    let (ours, theirs) = (gated.store.clone(), other.store.clone());
    let mut has_lock = Box::pin(theirs.write(origin(), add('y')));
    assert!(is_pending(&mut has_lock).await);
    other.commit_waits().await;
    let mut first = Box::pin(ours.write(origin(), add('a')));
    assert!(is_pending(&mut first).await);
    gated.began.recv().await.unwrap();
    let mut second = Box::pin(ours.write(origin(), add('b')));
    assert!(is_pending(&mut second).await);
    gated.open_up();
    other.open_up();
    let name = has_lock.await.unwrap();
    assert_eq!(first.await.unwrap(), format!("{name}a"));
    assert_eq!(second.await.unwrap(), format!("{name}ab"));
    gated.commit_waits().await;
    assert!(gated.arrived.try_recv().is_err(), "each has a commit of its own");
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

pub async fn a_batch_whose_connection_is_lost_at_the_commit_runs_again<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    both_are_added(&provider, gated(&provider), "state = 'idle in transaction'").await;
}

pub async fn a_commit_in_a_session_that_ended_is_made_once<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    both_are_added(&provider, opened(&provider, Moment::After), "true").await;
}

/// Customers who are in their table.
async fn customers_of<P: Provider>(opened: &Opened<P>) -> Vec<bool> {
    let read = |view: &mut View<'_>| {
        (1..=4).map(|it| Ok(view.get::<Customer>(&customer_id(it))?.is_some())).collect()
    };
    opened.read(read).await
}

pub async fn a_record_that_a_table_refuses_keeps_no_other_away<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    assert_eq!(customers_of(&opened).await, [false; 4]);
    // No table has such an index. It stands for a bug.
    opened.provider.run("create unique index bug on customers (platform)");
    let begin = |unit: &mut Unit<'_, '_>| {
        unit.put(platform(2));
        (1..=4).for_each(|it| unit.put(customer(it, 1 + u128::from(it == 4))));
        Ok(())
    };
    opened.write(begin).await;
    // It refuses two of the first platform's three, whichever come later.
    let found = customers_of(&opened).await;
    assert_eq!((found[..3].iter().filter(|it| **it).count(), found[3]), (1, true), "{found:?}");
    let is_there = |view: &mut View<'_>| Ok(view.get::<Platform>(&platform_id(2))?.is_some());
    assert!(opened.read(is_there).await, "what stood beside them");
    let replayed = || {
        let folder = tempfile::tempdir().unwrap();
        let scratch = SqliteFile::new(&folder.path().join("replay.db"));
        replay(&*opened.provider.engine(), &keyring(), &scratch).unwrap()
    };
    assert!(!replayed().holds());
    // A record that is changed later is written whole.
    opened.provider.run("drop index bug");
    opened.write(begin).await;
    assert_eq!(customers_of(&opened).await, [true; 4]);
    let replayed = replayed();
    assert!(replayed.holds(), "{replayed:?}");
}
