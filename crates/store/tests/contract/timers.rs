//! Asks: is a timer due when it should be, and gone when it was cleared?

use std::collections::HashSet;
use std::result::Result;

use domain::clock::Ahead;
use domain::platform::Platform;
use domain::time::Timestamp;
use store::error::StoreError;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::support::*;
use crate::{Opened, Provider, open};

async fn due<P: Provider>(opened: &Opened<P>, now: Timestamp, limit: usize) -> Vec<Timer> {
    opened.store.due_timers(now, limit, &HashSet::new()).await.unwrap().timers
}

/// When the next timer is due.
fn next<P: Provider>(opened: &Opened<P>) -> Option<Timestamp> {
    opened.store.next_due(&HashSet::new())
}

/// An empty database with two platforms, whose clocks are not ahead.
async fn opened<P: Provider>() -> Opened<P> {
    let opened = open::<P>();
    opened
        .write(|unit| {
            unit.put(Platform { ahead: Ahead::NONE, ..platform(1) });
            unit.put(Platform { ahead: Ahead::NONE, ..platform(2) });
            Ok(())
        })
        .await;
    opened
}

pub async fn timers_are_set_moved_and_cleared<P: Provider>() {
    let opened = opened::<P>().await;
    let first = timer(uuid(1), TimerKind::AskRail, at(10), at(5));
    let moved = Timer { due_at: at(20), attempts: 3, ..first.clone() };
    let other = timer(uuid(1), TimerKind::ExpireQuote, at(30), at(5));
    for set in [first.clone(), other.clone()] {
        opened
            .write(move |unit| {
                unit.set_timer(set.clone());
                Ok(())
            })
            .await;
    }
    assert_eq!(due(&opened, at(9), 10).await, []);
    assert_eq!(due(&opened, at(10), 10).await, std::slice::from_ref(&first));
    assert_eq!(next(&opened), Some(at(10)));
    let later = moved.clone();
    opened
        .write(move |unit| {
            unit.set_timer(later.clone());
            Ok(())
        })
        .await;
    let opened = opened.reopen();
    assert_eq!(due(&opened, at(19), 10).await, []);
    assert_eq!(due(&opened, at(30), 10).await, [moved, other.clone()]);
    opened
        .write(move |unit| {
            unit.clear_timer(first.key());
            unit.clear_timer((uuid(9), TimerKind::AskRail));
            Ok(())
        })
        .await;
    assert_eq!(due(&opened, at(99), 10).await, std::slice::from_ref(&other));
    // A timer that is set and cleared in one unit is never written.
    opened
        .write(move |unit| {
            unit.set_timer(timer(uuid(2), TimerKind::AskRail, at(1), at(0)));
            unit.clear_timer((uuid(2), TimerKind::AskRail));
            unit.clear_timer(other.key());
            Ok(())
        })
        .await;
    assert_eq!(next(&opened), None);
}

pub async fn due_timers_come_in_order<P: Provider>() {
    let opened = opened::<P>().await;
    opened
        .write(|unit| {
            for (number, seconds) in [(1, 50), (2, 10), (3, 40), (4, 20), (5, 30)] {
                let due_at = at(seconds);
                unit.set_timer(timer(uuid(number), TimerKind::AskRail, due_at, at(0)));
            }
            Ok(())
        })
        .await;
    let subjects: Vec<_> = due(&opened, at(40), 3).await.iter().map(|due| due.subject).collect();
    assert_eq!(subjects, [uuid(2), uuid(4), uuid(5)]);
    assert_eq!(due(&opened, at(40), 10).await.len(), 4);
    // Timers whose jobs are under way are in no other's way.
    let under_way: HashSet<_> = [2, 4].map(|number| (uuid(number), TimerKind::AskRail)).into();
    let busy = under_way.clone();
    let rest = opened.store.due_timers(at(40), 1, &busy).await.unwrap();
    assert_eq!((rest.timers.len(), rest.timers[0].subject, rest.since), (1, uuid(5), Some(at(30))));
    assert_eq!(opened.store.next_due(&under_way), Some(at(30)));
    assert_eq!(next(&opened), Some(at(10)));
}

/// Moves the clock of the first platform.
fn move_clock(unit: &mut Unit<'_, '_>, millis: i64) -> Result<Platform, StoreError> {
    let platform = unit.get::<Platform>(&platform_id(1))?.unwrap();
    let ahead = Ahead::from_millis(millis).unwrap();
    let moved = Platform { ahead, ..Platform::clone(&platform) };
    unit.put(moved.clone());
    Ok(moved)
}

pub async fn a_clock_that_is_moved_on_brings_its_timers_nearer<P: Provider>() {
    let opened = opened::<P>().await;
    let kind = TimerKind::AskRail;
    let of_another = Timer { platform: platform_id(2), ..timer(uuid(4), kind, at(60), at(0)) };
    let before = [timer(uuid(1), kind, at(50), at(0)), of_another.clone()];
    opened
        .write(move |unit| {
            before.clone().into_iter().for_each(|timer| unit.set_timer(timer));
            Ok(())
        })
        .await;
    // In one unit: set before and after the clock is moved on.
    opened
        .write(move |unit| {
            unit.set_timer(timer(uuid(2), kind, at(70), at(0)));
            move_clock(unit, 30_000)?;
            let platform = move_clock(unit, 40_000)?;
            unit.set_timer(Timer::new(&platform, uuid(3), kind, at(55), at(0)));
            Ok(())
        })
        .await;
    let opened = opened.reopen();
    // By the server's clock they are due at 10, 15, 30 and 60 seconds.
    for (second, subjects) in [
        (9, &[][..]),
        (10, &[1][..]),
        (14, &[1]),
        (15, &[1, 3]),
        (29, &[1, 3]),
        (30, &[1, 3, 2]),
        (59, &[1, 3, 2]),
        (60, &[1, 3, 2, 4]),
    ] {
        let due = opened.store.due_timers(at(second), 10, &HashSet::new()).await.unwrap();
        let subjects: Vec<_> = subjects.iter().map(|subject| uuid(*subject)).collect();
        let found: Vec<_> = due.timers.iter().map(|timer| timer.subject).collect();
        assert_eq!(found, subjects, "{second}");
        assert_eq!(due.since, (second >= 10).then_some(at(10)));
        let has_due = opened.read(move |view| Ok(view.has_due(platform_id(1), at(second))?)).await;
        assert_eq!(has_due, second >= 10);
    }
    let limited = due(&opened, at(60), 3).await;
    assert!(limited.iter().all(|timer| timer.platform == platform_id(1)), "{limited:?}");
    assert_eq!(next(&opened), Some(at(10)));
}

pub async fn what_ends_is_due_by_its_platforms_clock<P: Provider>() {
    let opened = opened::<P>().await;
    opened
        .write(|unit| {
            unit.set_timer(timer(uuid(1), TimerKind::ExpireQuote, at(50), at(0)));
            unit.set_timer(timer(uuid(2), TimerKind::DecidePayment, at(40), at(0)));
            unit.set_timer(timer(uuid(3), TimerKind::AskRail, at(30), at(0)));
            let of_another = timer(uuid(4), TimerKind::ExpireQuote, at(1), at(0));
            unit.set_timer(Timer { platform: platform_id(2), ..of_another });
            move_clock(unit, 30_000).map(drop)?;
            Ok(())
        })
        .await;
    for (second, subjects) in [(9, &[][..]), (10, &[2]), (19, &[2]), (20, &[2, 1])] {
        let due = opened.read(move |view| Ok(view.due_ends(platform_id(1), at(second), 10)?)).await;
        let subjects: Vec<_> = subjects.iter().map(|subject| uuid(*subject)).collect();
        assert_eq!(due.iter().map(|it| it.subject).collect::<Vec<_>>(), subjects, "{second}");
    }
}

/// As many as a busy platform has.
pub async fn a_clock_brings_each_of_many_timers_nearer<P: Provider>() {
    const TIMERS: u128 = 25_000;
    let opened = opened::<P>().await;
    let kinds = [TimerKind::AskRail, TimerKind::DecidePayment];
    let mine = |subject: u128| !subject.is_multiple_of(5);
    opened
        .write(move |unit| {
            for number in 0..TIMERS {
                let (subject, kind) = (1 + number / 2, kinds[(number % 2) as usize]);
                let timer = timer(uuid(subject), kind, at(50), at(0));
                let of = platform_id(if mine(subject) { 1 } else { 2 });
                unit.set_timer(Timer { platform: of, ..timer });
            }
            move_clock(unit, 30_000).map(drop)?;
            Ok(())
        })
        .await;
    assert_eq!(due(&opened, at(19), usize::MAX).await, []);
    let nearer = due(&opened, at(20), usize::MAX).await;
    assert_eq!(nearer.len() as u128, TIMERS / 5 * 4);
    assert!(nearer.iter().all(|timer| timer.platform == platform_id(1)));
    assert_eq!(due(&opened, at(50), usize::MAX).await.len() as u128, TIMERS);
}
