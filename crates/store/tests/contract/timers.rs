//! Asks: is a timer due when it should be, and gone when it was cleared?

use domain::clock::Ahead;
use domain::platform::Platform;
use domain::time::Timestamp;
use store::error::StoreError;
use store::timers::{Timer, TimerKind};

use crate::support::*;
use crate::{Opened, Provider, open};

async fn due<P: Provider>(opened: &Opened<P>, now: Timestamp, limit: u32) -> Vec<Timer> {
    let due = opened.read(move |view| Ok(view.due_timers(now, limit)?)).await;
    assert_eq!(due.unreadable, 0);
    due.timers
}

pub async fn timers_are_set_moved_and_cleared<P: Provider>() {
    let opened = open::<P>();
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
    assert_eq!(opened.read(|view| Ok(view.next_due()?)).await, Some(at(10)));
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
    assert_eq!(opened.read(|view| Ok(view.next_due()?)).await, None);
}

pub async fn due_timers_come_in_order<P: Provider>() {
    let opened = open::<P>();
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
    assert_eq!(opened.read(|view| Ok(view.next_due()?)).await, Some(at(10)));
}

pub async fn a_clock_that_is_moved_on_brings_its_timers_nearer<P: Provider>() {
    let opened = open::<P>();
    let kind = TimerKind::AskRail;
    let of_another = Timer { platform: platform_id(2), ..timer(uuid(4), kind, at(60), at(0)) };
    let before = [timer(uuid(1), kind, at(50), at(0)), of_another.clone()];
    opened
        .write(move |unit| {
            unit.put(Platform { ahead: Ahead::NONE, ..platform(1) });
            before.clone().into_iter().for_each(|timer| unit.set_timer(timer));
            Ok(())
        })
        .await;
    // In one unit: set before, by the old clock; moved on; set afterwards, by the new one.
    opened
        .write(move |unit| {
            let platform = unit.get::<Platform>(&platform_id(1))?.unwrap();
            unit.set_timer(Timer::new(&platform, uuid(2), kind, at(70), at(0)));
            let platform = unit.move_clock(&platform, Ahead::from_millis(30_000).unwrap());
            let platform = unit.move_clock(&platform, Ahead::from_millis(40_000).unwrap());
            unit.set_timer(Timer::new(&platform, uuid(3), kind, at(55), at(0)));
            Ok(())
        })
        .await;
    let opened = opened.reopen();
    let due = due(&opened, at(99), 10).await;
    let shown: Vec<_> = due.iter().map(|due| (due.subject, due.due_at)).collect();
    assert_eq!(shown, [(uuid(1), at(10)), (uuid(3), at(15)), (uuid(2), at(30)), (uuid(4), at(60))]);
    let moved = opened.read(|view| Ok(view.get::<Platform>(&platform_id(1))?.unwrap().ahead)).await;
    assert_eq!(moved.millis(), 40_000);
}

/// As many as a busy platform has.
pub async fn a_clock_brings_each_of_many_timers_nearer_once<P: Provider>() {
    const TIMERS: u128 = 25_000;
    let opened = open::<P>();
    let kinds = [TimerKind::AskRail, TimerKind::DecidePayment];
    let mine = |subject: u128| !subject.is_multiple_of(5);
    opened
        .write(move |unit| {
            unit.put(Platform { ahead: Ahead::NONE, ..platform(1) });
            for number in 0..TIMERS {
                let (subject, kind) = (1 + number / 2, kinds[(number % 2) as usize]);
                let timer = timer(uuid(subject), kind, at(50), at(0));
                let of = platform_id(if mine(subject) { 1 } else { 2 });
                unit.set_timer(Timer { platform: of, ..timer });
            }
            Ok(())
        })
        .await;
    opened
        .write(|unit| {
            let platform = unit.get::<Platform>(&platform_id(1))?.unwrap();
            unit.move_clock(&platform, Ahead::from_millis(30_000).unwrap());
            Ok(())
        })
        .await;
    let due = due(&opened, at(99), u32::MAX).await;
    assert_eq!(due.len() as u128, TIMERS);
    for timer in due {
        let is_mine = timer.platform == platform_id(1);
        assert_eq!(timer.due_at, if is_mine { at(20) } else { at(50) }, "{timer:?}");
    }
}

pub async fn units_of_one_batch_move_a_clock_in_their_order<P: Provider>() {
    let opened = open::<P>();
    let kind = TimerKind::AskRail;
    opened
        .write(|unit| {
            unit.put(Platform { ahead: Ahead::NONE, ..platform(1) });
            Ok(())
        })
        .await;
    let set = |number: u128| {
        opened.store.write(move |unit| {
            let platform = unit.get::<Platform>(&platform_id(1))?.unwrap();
            unit.set_timer(Timer::new(&platform, uuid(number), kind, at(90), at(0)));
            Ok::<_, StoreError>(())
        })
    };
    let moved_to = |millis: i64| {
        opened.store.write(move |unit| {
            let platform = unit.get::<Platform>(&platform_id(1))?.unwrap();
            unit.move_clock(&platform, Ahead::from_millis(millis).unwrap());
            Ok::<_, StoreError>(())
        })
    };
    let (one, two, three, four, five) =
        tokio::join!(set(1), moved_to(20_000), set(2), moved_to(80_000), set(3));
    [one, two, three, four, five].into_iter().for_each(|written| written.unwrap());
    // Whenever they were set, they are due when the clock shows the same.
    let due = due(&opened, at(99), 10).await;
    assert!(due.iter().all(|due| due.due_at == at(10)), "{due:?}");
    assert_eq!(due.len(), 3);
}
