//! Asks: do units that run while others are being written see what those leave, and does nothing of
//! them remain or be answered before its time?

use std::future::poll_fn;
use std::result::Result;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Poll;

use domain::platform::Platform;
use store::Store;
use store::error::StoreError;
use store::sql::Connection;
use store::unit::Unit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::records::{answer_like_event, said_in};
use crate::support::*;
use crate::tampered::{self, Tamper};
use crate::{Opened, Provider, open};

/// Holds commits until they are let go, each with its outcome.
struct Gate {
    arrived: UnboundedSender<()>,
    outcome: Mutex<mpsc::Receiver<Result<(), StoreError>>>,
}

impl Tamper for Gate {
    fn commit(&self, inner: &mut dyn Connection) -> Result<(), StoreError> {
        let _ = self.arrived.send(());
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).recv();
        // Whoever holds the gate may have gone, which opens it.
        outcome.unwrap_or(Ok(()))?;
        inner.commit()
    }
}

/// A store whose commits wait.
struct Gated {
    store: Store,
    arrived: UnboundedReceiver<()>,
    let_go: mpsc::Sender<Result<(), StoreError>>,
    threads: store::Threads,
}

fn gated<P: Provider>(provider: &P) -> Gated {
    let (arrived, arrivals) = unbounded_channel();
    let (let_go, outcome) = mpsc::channel();
    let gate = Arc::new(Gate { arrived, outcome: Mutex::new(outcome) });
    let (store, threads) = tampered::open(provider, gate);
    Gated { store, arrived: arrivals, let_go, threads }
}

impl Gated {
    /// Waits until a commit waits.
    async fn commit_waits(&mut self) {
        self.arrived.recv().await.unwrap();
    }

    /// Lets all commits go, and closes the store. No other handle of it may be left.
    fn close(self) {
        drop((self.let_go, self.store));
        self.threads.join();
    }
}

/// A database with the platform 1 in it.
async fn with_platform<P: Provider>() -> P {
    let opened = open::<P>();
    opened
        .write(|unit| {
            unit.put_platform(platform(1));
            Ok(())
        })
        .await;
    Opened::close(opened)
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

/// Whether a future is not ready; it goes on as far as it can.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending()))
        .await
}

pub async fn units_see_what_is_being_written_and_are_answered_after_it<P: Provider>() {
    let provider = with_platform::<P>().await;
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
    let provider = with_platform::<P>().await;
    let mut gated = gated(&provider);
    let store = gated.store.clone();
    let (ran, mut runs) = unbounded_channel();
    // The first batch after a start finds out whether somebody else has written.
    gated.let_go.send(Ok(())).unwrap();
    store.write(add('a')).await.unwrap();
    gated.commit_waits().await;
    let mut first = Box::pin(store.write(add('b')));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let mut work = add('c');
    let mut second = Box::pin(store.write(move |unit| {
        let name = work(unit)?;
        let _ = ran.send(name.clone());
        Ok::<_, StoreError>(name)
    }));
    assert!(is_pending(&mut second).await);
    // Its commit still waits.
    assert_eq!(runs.recv().await.unwrap(), "Platform 1abc");
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    gated.let_go.send(Ok(())).unwrap();
    gated.let_go.send(Ok(())).unwrap();
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abc");
    drop(store);
    gated.close();
}

pub async fn what_ran_on_a_batch_that_failed_runs_again<P: Provider>() {
    let provider = with_platform::<P>().await;
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
    drop(std::mem::replace(&mut gated.let_go, mpsc::channel().0));
    assert_eq!(first.await.unwrap(), "Platform 1ab");
    assert_eq!(second.await.unwrap(), "Platform 1abc");
    let runs = runs.lock().unwrap().clone();
    assert_eq!(runs.iter().filter(|name| *name == "Platform 1ab").count(), 2, "{runs:?}");
    let name = store.read(|view| {
        Ok::<_, StoreError>(view.get::<Platform>(&platform_id(1))?.unwrap().name.clone())
    });
    assert_eq!(name.await.unwrap(), "Platform 1abc");
    drop(store);
    gated.close();
}

pub async fn an_answer_that_is_being_written_is_given_again_after_it<P: Provider>() {
    let provider = with_platform::<P>().await;
    let mut gated = gated(&provider);
    let store = gated.store.clone();
    gated.let_go.send(Ok(())).unwrap();
    store.write(add('a')).await.unwrap();
    gated.commit_waits().await;
    let mut first = Box::pin(store.write(|unit| answer_like_event(unit, 1)));
    assert!(is_pending(&mut first).await);
    gated.commit_waits().await;
    let mut again = Box::pin(store.write(|unit| Ok::<_, Refused>(unit.answer(&[1; 16])?)));
    assert!(is_pending(&mut again).await);
    gated.let_go.send(Ok(())).unwrap();
    gated.let_go.send(Ok(())).unwrap();
    first.await.unwrap();
    let said = event(&transfer_out(1, 1, 1, 10)).body;
    assert_eq!(again.await.unwrap(), Some((201, said_in(&said).to_vec())));
    drop(store);
    gated.close();
}

pub async fn what_somebody_else_wrote_is_seen<P: Provider>() {
    let opened = open::<P>();
    opened
        .write(|unit| {
            unit.put_platform(platform(1));
            Ok(())
        })
        .await;
    assert_eq!(opened.store.write(add('a')).await.unwrap(), "Platform 1a");
    opened.provider.run("update platforms set name = 'Other ', version = version + 1");
    assert_eq!(opened.store.write(add('b')).await.unwrap(), "Other b");
}
