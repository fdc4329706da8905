//! Asks: does the group commit take many writes at once, and does no reader wait for it?

use std::sync::{Arc, Mutex};

use domain::platform::Platform;
use domain::token::Token;
use store::error::StoreError;
use store::timers::TimerKind;
use store::unit::Unit;

use crate::support::{self, *};
use crate::units::hold;
use crate::{Provider, open, open_with_platform};

/// More than one batch and far below the queue.
const WRITES: u128 = 2_000;

pub async fn many_writes_at_once_are_all_durable<P: Provider>() {
    let opened = open::<P>();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=WRITES {
        let store = opened.store.clone();
        tasks.spawn(async move {
            let write = store.write(origin(), move |unit| {
                unit.put(bare_platform(number));
                Ok::<_, StoreError>(())
            });
            write.await
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    let opened = opened.reopen();
    assert_eq!(opened.read(|view| Ok(view.platforms()?.len())).await as u128, WRITES);
}

pub async fn reads_never_wait_for_the_writer<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    let held = hold(&opened).await;
    let found = opened.read(|view| Ok(view.get::<Platform>(&platform_id(1))?)).await;
    assert!(found.is_some());
    drop(held);
}

pub async fn many_point_reads_at_once_each_get_their_row<P: Provider>() {
    const ROWS: u128 = 100;
    let opened = open::<P>();
    opened
        .write(|unit| {
            for number in 1..=ROWS {
                unit.put(bare_platform(number));
            }
            unit.put(token(1, 1));
            Ok(())
        })
        .await;
    let mut reads = tokio::task::JoinSet::new();
    // Each row twice, others that are not there, and a second table between them.
    for number in (1..=2 * ROWS).chain(1..=ROWS) {
        let store = opened.store.clone();
        reads.spawn(async move {
            let platform = store.get::<Platform>(platform_id(number)).await.unwrap();
            let expected = (number <= ROWS).then(|| bare_platform(number));
            assert_eq!(platform.as_deref(), expected.as_ref());
            let token = store.get::<Token>(token(1, 1).id).await.unwrap();
            assert_eq!(token.as_deref(), Some(&support::token(1, 1)));
        });
    }
    while let Some(done) = reads.join_next().await {
        done.unwrap();
    }
}

pub async fn a_read_sees_what_was_written_before_it<P: Provider>() {
    let opened = open::<P>();
    for number in 1..=50 {
        opened
            .write(move |unit| {
                unit.put(bare_platform(number));
                Ok(())
            })
            .await;
        let found = opened.store.get::<Platform>(platform_id(number)).await.unwrap();
        assert!(found.is_some(), "the platform {number}");
    }
}

/// Payments are read all the time while they change.
pub async fn a_payment_is_never_older_than_what_was_answered<P: Provider>() {
    let opened = open_with_platform::<P>().await;
    change_while_read(&[&opened.store], 24, 4).await;
}

pub async fn a_full_queue_says_so<P: Provider>() {
    // The units that may wait while one runs, as in `commit::queue`.
    const QUEUE_MAX: usize = 4_096;
    let opened = open::<P>();
    let held = hold(&opened).await;
    let mut waiting = Vec::new();
    for _ in 0..QUEUE_MAX {
        let mut write = Box::pin(opened.store.write(origin(), |_| Ok::<_, StoreError>(())));
        // The first poll queues it.
        assert!(
            std::future::poll_fn(|context| {
                std::task::Poll::Ready(write.as_mut().poll(context).is_pending())
            })
            .await
        );
        waiting.push(write);
    }
    let refused = opened.store.write(origin(), |_| Ok::<_, StoreError>(())).await;
    assert_eq!(refused, Err(StoreError::Busy));
    drop(held);
    for write in waiting {
        write.await.unwrap();
    }
    opened.store.write(origin(), |_| Ok::<_, StoreError>(())).await.unwrap();
}

pub async fn requests_go_before_jobs_and_jobs_follow<P: Provider>() {
    const JOBS: usize = 100;
    let opened = open::<P>();
    let held = hold(&opened).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (store, ran) = (&opened.store, Arc::clone(&order));
    let note = move |what: &'static str| {
        let ran = Arc::clone(&ran);
        move |_: &mut Unit<'_, '_>| {
            ran.lock().unwrap().push(what);
            Ok::<_, StoreError>(())
        }
    };
    let jobs = (0..JOBS).map(|_| store.write_behind(origin(), note("job")));
    let request = store.write(origin(), note("request"));
    let all = futures_util::future::join(futures_util::future::join_all(jobs), request);
    let (jobs, request) = tokio::join!(all, async { drop(held) }).0;
    request.unwrap();
    jobs.into_iter().for_each(|job| job.unwrap());
    let order = order.lock().unwrap();
    assert_eq!(order.len(), JOBS + 1);
    assert_eq!(order[0], "request");
}

pub async fn a_caller_who_goes_away_changes_nothing_about_the_effect<P: Provider>() {
    let opened = open::<P>();
    let held = hold(&opened).await;
    let mut write = Box::pin(opened.store.write(origin(), |unit| {
        unit.put(platform(1));
        Ok::<_, StoreError>(())
    }));
    let queued = std::future::poll_fn(|context| {
        std::task::Poll::Ready(write.as_mut().poll(context).is_pending())
    });
    assert!(queued.await);
    drop((write, held));
    let opened = opened.reopen();
    assert_eq!(opened.read(|view| Ok(view.platforms()?.len())).await, 1);
}

pub async fn a_read_that_panics_is_an_error_and_the_next_one_works<P: Provider>() {
    let opened = open::<P>();
    for _ in 0..8 {
        let read = opened.store.read(|_| -> Result { panic!("a bug") });
        let refused = read.await.unwrap_err();
        assert!(matches!(refused, Refused::Store(StoreError::Panicked(_))), "{refused:?}");
    }
    assert_eq!(opened.read(|view| Ok(view.platforms()?.len())).await, 0);
}

pub async fn a_read_after_one_that_panicked_sees_what_was_written_since<P: Provider>() {
    let opened = open::<P>();
    let read = opened.store.read(|view| -> Result {
        view.platforms()?;
        panic!("a bug")
    });
    let refused = read.await.unwrap_err();
    assert!(matches!(refused, Refused::Store(StoreError::Panicked(_))), "{refused:?}");
    opened
        .write(|unit| {
            unit.put(bare_platform(1));
            Ok(())
        })
        .await;
    assert!(opened.store.get::<Platform>(platform_id(1)).await.unwrap().is_some());
}

pub async fn timers_that_are_set_wake_their_job<P: Provider>() {
    let opened = open::<P>();
    opened
        .write(|unit| {
            unit.set_timer(timer(uuid(1), TimerKind::AskRail, at(1), at(0)));
            Ok(())
        })
        .await;
    opened.store.timers_set().notified().await;
}
