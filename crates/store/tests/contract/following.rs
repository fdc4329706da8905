//! Asks: do the tables follow the journal, however far they are behind, and is a loss found by a
//! reader as by the writer?

use std::io;
use std::result::Result as StdResult;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};

use domain::id::TransactionId;
use domain::platform::Platform;
use store::Store;
use store::error::StoreError;
use store::origin::Origin;
use store::reader::View;
use store::rebuild::rebuild;
use store::sql::{Connection, Value};
use store::timers::TimerKind;

use crate::support::*;
use crate::tampered::{self, Tamper};
use crate::{Opened, Provider, open_with_platform};

/// Holds the steps of a projector until they are let go.
#[derive(Default)]
struct Held {
    is_free: Mutex<bool>,
    freed: Condvar,
}

impl Held {
    fn let_go(&self) {
        *self.is_free.lock().unwrap() = true;
        self.freed.notify_all();
    }
}

impl Tamper for Held {
    fn begin(&self, inner: &mut dyn Connection) -> StdResult<(), StoreError> {
        let is_free = self.is_free.lock().unwrap();
        drop(self.freed.wait_while(is_free, |is_free| !*is_free).unwrap());
        inner.begin()
    }
}

/// Whether a platform is in its table.
async fn lists(store: &Store, number: u128) -> bool {
    let read = move |view: &mut View<'_>| view.get::<Platform>(&platform_id(number));
    store.read(read).await.unwrap().is_some()
}

/// A list at a second server has a payment that a first one acknowledged before, although the
/// second server learns of it through another read while the list waits for its turn.
pub async fn a_list_has_what_was_acknowledged_before_it<P: Provider>() {
    let provider = open_with_platform::<P>().await.close();
    let held = [Arc::<Held>::default(), Arc::default()];
    let [ours, theirs] =
        [&held[0], &held[1]].map(|held| tampered::open_projector(&provider, Arc::clone(held) as _));
    let (store, (other, other_threads)) = (ours.0, theirs);
    let (end, ended) = mpsc::channel::<()>();
    let (ended, begun) = (Arc::new(Mutex::new(ended)), Arc::new(AtomicUsize::new(0)));
    let readers = provider.engine().readers() - 1;
    let busy: Vec<_> = (0..readers)
        .map(|_| {
            let (store, ended, begun) = (store.clone(), Arc::clone(&ended), Arc::clone(&begun));
            let read = move |_: &mut View<'_>| {
                begun.fetch_add(1, Ordering::SeqCst);
                // Nothing is sent: it waits for the end.
                let _ = ended.lock().unwrap().recv();
                Ok::<_, StoreError>(())
            };
            tokio::spawn(async move { store.read(read).await })
        })
        .collect();
    while begun.load(Ordering::SeqCst) < readers {
        tokio::task::yield_now().await;
    }
    let put = |unit: &mut store::unit::Unit<'_, '_>| {
        unit.put(platform(2));
        Ok::<_, Refused>(())
    };
    other.write(origin(), put).await.unwrap();
    let mut list = Box::pin(lists(&store, 2));
    tokio::select! {
        biased;
        _ = &mut list => panic!("every reader is busy"),
        () = std::future::ready(()) => {}
    }
    assert!(store.get::<Platform>(platform_id(2)).await.unwrap().is_some());
    drop(end);
    for read in busy {
        read.await.unwrap().unwrap();
    }
    tokio::select! {
        biased;
        has = &mut list => assert!(has, "the list lacks what was acknowledged before it"),
        () = tokio::task::yield_now() => {}
    }
    held.iter().for_each(|held| held.let_go());
    assert!(list.await, "the list lacks what was acknowledged before it");
    drop((store, other));
    ours.1.join();
    other_threads.join();
}

/// The log of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Acknowledged payments that a database lost are named, although a reader was the first who met
/// the rows that another server has appended in their place.
pub async fn lost_payments_are_named_if_a_reader_meets_the_loss_first<P: Provider>() {
    let log = Log::default();
    let writer = log.clone();
    let logs = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
    // Another test of this process may have been first; then this one sees nothing.
    if logs.try_init().is_err() {
        return;
    }
    let opened = open_with_platform::<P>().await;
    for number in 1..=2 {
        opened.write(move |unit| begin(unit, deposit(number, 1, 1, 100, "USD"))).await;
    }
    let rows_before = journal_rows(&opened);
    for number in 3..=4 {
        opened.write(move |unit| begin(unit, deposit(number, 1, 1, 100, "USD"))).await;
    }
    assert!(lists(&opened.store, 1).await, "the tables follow");
    opened.provider.run(&format!(
        "delete from journal where seq > {rows_before}; update applied set seq = {rows_before}, \
         hash = (select hash from journal where seq = {rows_before})"
    ));
    let (other, threads) = Store::open(&*opened.provider.engine(), keyring()).unwrap();
    for number in 2..=9 {
        let put = move |unit: &mut store::unit::Unit<'_, '_>| {
            unit.put(platform(number));
            Ok::<_, Refused>(())
        };
        other.write(origin(), put).await.unwrap();
    }
    assert!(lists(&other, 9).await);
    assert!(opened.store.get::<Platform>(platform_id(9)).await.unwrap().is_some());
    opened.write(|unit| begin(unit, deposit(5, 1, 1, 100, "USD"))).await;
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let is_named = |number| {
        let id: TransactionId = transaction_id(number);
        log.contains(&id.to_string())
    };
    assert_eq!([1, 2, 3, 4, 5].map(is_named), [false, false, true, true, false], "{log}");
    drop(other);
    threads.join();
}

fn number<P: Provider>(provider: &P, sql: &str) -> i64 {
    let mut found = 0;
    let mut reader = provider.engine().reader().unwrap();
    reader.begin_read().unwrap();
    let read = reader.query(sql, &[], 1, &mut |values| {
        if let [Value::Int(number)] = values[..] {
            found = number;
        }
        Ok(())
    });
    read.unwrap();
    found
}

fn journal_rows<P: Provider>(opened: &Opened<P>) -> i64 {
    number(&opened.provider, "select max(seq) from journal")
}

/// Lets so many steps of a projector end, and no more.
struct Steps(AtomicUsize);

impl Tamper for Steps {
    fn commit(&self, inner: &mut dyn Connection) -> StdResult<(), StoreError> {
        let less = |steps: usize| steps.checked_sub(1);
        if self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
            inner.rollback()?;
            return Err(StoreError::Engine("it is killed here, for a test".to_owned()));
        }
        inner.commit()
    }
}

/// Timers of a row of the journal.
const TIMERS: u128 = 1_000;

/// A database with more timers than two steps write, and the first row of the journal behind which
/// they are.
async fn with_many_timers<P: Provider>() -> (Opened<P>, i64) {
    let opened = open_with_platform::<P>().await;
    let before = journal_rows(&opened);
    for row in 0..45 {
        let set = move |unit: &mut store::unit::Unit<'_, '_>| {
            for number in 0..TIMERS {
                let subject = uuid(row * TIMERS + number);
                unit.set_timer(timer(subject, TimerKind::AskRail, at(9), at(0)));
            }
            Ok(())
        };
        opened.write(set).await;
    }
    (opened, before)
}

/// The row of the journal that the tables follow.
fn applied<P: Provider>(provider: &P) -> i64 {
    number(provider, "select seq from applied where one = 1")
}

/// A start with tables that are far behind goes on from the last step of the start before, and so
/// does a rebuild.
pub async fn tables_far_behind_follow_in_steps_that_are_kept<P: Provider>() {
    let (opened, before) = with_many_timers::<P>().await;
    let last = journal_rows(&opened);
    let provider = opened.close();
    assert_eq!(applied(&provider), last);
    provider.run(&format!(
        "update applied set seq = {before}, \
         hash = (select hash from journal where seq = {before})"
    ));
    let steps = Arc::new(Steps(AtomicUsize::new(1)));
    let refused = Store::open(&tampered::engine(&provider, &steps), keyring()).err();
    assert!(refused.is_some_and(|it| it.to_string().contains("killed here")), "it starts");
    let followed = applied(&provider);
    assert!(before < followed && followed < last, "row {followed} between {before} and {last}");
    let opened = crate::open_again(provider);
    assert!(lists(&opened.store, 1).await);
    let provider = opened.close();
    assert_eq!(applied(&provider), last);

    let mut steps = Vec::new();
    rebuild(&*provider.engine(), &keyring(), &mut |progress| steps.push(progress.row)).unwrap();
    assert!(steps.len() > 1 && steps.is_sorted(), "{steps:?}");
    assert_eq!((applied(&provider), steps.last().copied()), (last, Some(last as u64)));
    assert_eq!(number(&provider, "select count(*) from timers"), 45 * TIMERS as i64);
}

/// Rows of the journal that are older than the row before them.
const WENT_BACK: &str = "select count(*) from journal a \
    join journal b on b.seq = a.seq + 1 where b.at < a.at";

/// The journal's times never go back, whatever clock a server has, also after a restart and at
/// another server.
pub async fn times_of_the_journal_never_go_back<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    let write = async |store: &Store, seconds| {
        let put = |unit: &mut store::unit::Unit<'_, '_>| {
            unit.put(platform(2));
            Ok::<_, Refused>(())
        };
        store.write(Origin { at: at(seconds), ..origin() }, put).await.unwrap();
    };
    for seconds in [500, 100, 600, 5] {
        write(&opened.store, seconds).await;
    }
    let (other, threads) = Store::open(&*opened.provider.engine(), keyring()).unwrap();
    write(&other, 10).await;
    write(&opened.store, 20).await;
    drop(other);
    threads.join();
    let opened = opened.reopen();
    write(&opened.store, 30).await;
    let last = "select max(at) from journal";
    assert_eq!(number(&opened.provider, last), at(600).millis());
    assert_eq!(number(&opened.provider, WENT_BACK), 0);
    assert_eq!(journal_rows(&opened), 8);
}
