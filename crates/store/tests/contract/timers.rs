//! Asks: is a timer due when it should be, and gone when it was cleared?

use domain::time::Timestamp;
use store::timers::{Timer, TimerKind};

use crate::support::*;
use crate::{Opened, Provider, open};

async fn due<P: Provider>(opened: &Opened<P>, now: Timestamp, limit: u32) -> Vec<Timer> {
    opened.read(move |view| Ok(view.due_timers(now, limit)?)).await
}

pub async fn timers_are_set_moved_and_cleared<P: Provider>() {
    let opened = open::<P>();
    let timer = Timer::new(uuid(1), TimerKind::AskRail, at(10), at(5));
    let moved = Timer { due_at: at(20), attempts: 3, ..timer.clone() };
    let other = Timer::new(uuid(1), TimerKind::ExpireQuote, at(30), at(5));
    for set in [timer.clone(), other.clone()] {
        opened
            .write(move |unit| {
                unit.set_timer(set.clone());
                Ok(())
            })
            .await;
    }
    assert_eq!(due(&opened, at(9), 10).await, []);
    assert_eq!(due(&opened, at(10), 10).await, std::slice::from_ref(&timer));
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
            unit.clear_timer(timer.key());
            unit.clear_timer((uuid(9), TimerKind::AskRail));
            Ok(())
        })
        .await;
    assert_eq!(due(&opened, at(99), 10).await, std::slice::from_ref(&other));
    // What is set and cleared in one unit was never there.
    opened
        .write(move |unit| {
            unit.set_timer(Timer::new(uuid(2), TimerKind::AskRail, at(1), at(0)));
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
                unit.set_timer(Timer::new(uuid(number), TimerKind::AskRail, due_at, at(0)));
            }
            Ok(())
        })
        .await;
    let subjects: Vec<_> = due(&opened, at(40), 3).await.iter().map(|due| due.subject).collect();
    assert_eq!(subjects, [uuid(2), uuid(4), uuid(5)]);
    assert_eq!(due(&opened, at(40), 10).await.len(), 4);
    assert_eq!(opened.read(|view| Ok(view.next_due()?)).await, Some(at(10)));
}
