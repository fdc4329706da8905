//! Asks: is every event found where it stands, however many were committed with it?

use std::collections::HashSet;

use domain::delivery::{Attempt, Delivery, Event as Happened, Outcome, delivery_id};
use domain::event::{Event, EventKind, event_id};
use domain::id::PlatformId;
use store::events::{Endpoint, Numbered, Outbox, Place};
use store::outbox::{DueBy, DueDelivery, Pending};
use store::unit::Unit;
use uuid::Uuid;

use crate::support::*;
use crate::{Opened, Provider, open_with_platform};

/// How many events each commit has, of both platforms in turn: some alone, and some that take
/// several rows.
const COMMITS: [u128; 7] = [1, 1, 2, 150, 3, 64, 1];

/// Events of a platform.
const EVENTS: u128 = 111;

/// Each of these has a body that is too long to stand with many others.
const LONG_ONES: u128 = 20;

/// An event of the kind that is rare.
const RARE: u128 = 77;

/// The event with this number among all of a platform's.
fn event_of(platform: PlatformId, number: u128) -> Event {
    let resource = Uuid::from_u128(platform.uuid().as_u128() ^ number << 32);
    let id = event_id(resource, 1);
    let length = if number.is_multiple_of(LONG_ONES) { 12_000 } else { 5 };
    let said = format!("{{\"id\":\"{id}\",\"data\":\"{}\"}}", "long".repeat(length));
    let kind = match number {
        RARE => EventKind::BulkUpload,
        _ if number.is_multiple_of(3) => EventKind::IncomingPayment,
        _ => EventKind::OutgoingPayment,
    };
    let (at, body) = (at(number as i64), said.into_bytes());
    Event { id, platform, kind, resource, number: 1, at, body }
}

/// An event about a resource.
fn about(resource: u128, number: u32) -> Event {
    let resource = Uuid::from_u128(resource);
    let id = event_id(resource, number);
    let body = format!("{{\"id\":\"{id}\"}}").into_bytes();
    let (kind, at) = (EventKind::OutgoingPayment, at(10));
    Event { id, platform: platform_id(1), kind, resource, number, at, body }
}

/// Three events about one resource, and one about another.
fn outbox() -> [Event; 4] {
    [about(7, 1), about(7, 2), about(7, 3), about(8, 1)]
}

/// Adds events of the first platform, which has an endpoint.
fn deliver(unit: &mut Unit<'_, '_>, events: impl IntoIterator<Item = Event>) -> Result {
    let outbox = unit.outbox(platform_id(1))?;
    unit.put(Outbox { endpoint: Endpoint::Open, ..outbox });
    Ok(events.into_iter().try_for_each(|event| unit.add_event(event).map(drop))?)
}

pub async fn deliveries_are_due_behind_those_before_them<P: Provider>() {
    let platform = platform_id(1);
    let opened = open_with_platform::<P>().await;
    opened.write(|unit| deliver(unit, outbox())).await;
    let due = opened.read(|view| Ok(view.due()?)).await;
    assert_eq!((due[0].outbox.taken, due[0].next_at), (4, Some(at(10))));
    let due = async |now: i64, untouched_since: Option<i64>, limit| {
        let by = DueBy { now: at(now), untouched_since: untouched_since.map(at) };
        opened
            .read(move |view| {
                let found = view.due_deliveries(platform, by, &HashSet::new(), limit)?;
                let deliveries = found.deliveries;
                assert_eq!(found.has_more, deliveries.len() == limit as usize);
                let known = deliveries.iter().map(|it| it.delivery.draft().ordinal).collect();
                let again = view.due_deliveries(platform, by, &known, limit)?;
                assert_eq!((again.deliveries.len(), again.has_more), (0, found.has_more));
                Ok(deliveries)
            })
            .await
    };
    assert!(due(9, None, 9).await.is_empty());
    assert_eq!(due(10, None, 2).await.len(), 2);
    let all = due(10, None, 9).await;
    for (row, event) in all.iter().zip(outbox()) {
        assert_eq!((row.event.as_ref(), row.delivery.id()), (Some(&event), delivery_id(&event)));
    }
    let before: Vec<_> = all.iter().map(|row| row.predecessor).collect();
    assert_eq!(before, [None, Some((1, at(10))), Some((2, at(10))), None]);
    // The first fails, and the second is due with it.
    let [first, second, third, _] = outbox().map(|event| delivery_id(&event));
    opened
        .write(move |unit| {
            let attempt = Attempt { at: at(20), millis: 7, peer: None, outcome: Outcome::TimedOut };
            let found = unit.get::<Delivery>(&first)?.unwrap();
            let failed = Happened::Failed(attempt, at(100));
            unit.put_moved(Delivery::clone(&found).apply(failed, at(20)).unwrap());
            let found = unit.get::<Delivery>(&second)?.unwrap();
            unit.put(Delivery::clone(&found).rescheduled(at(100)));
            Ok(())
        })
        .await;
    let rows = async |now, untouched_since| {
        let found = due(now, untouched_since, 9).await;
        let row = |it: &DueDelivery| (it.delivery.draft().ordinal, it.predecessor);
        found.iter().map(row).collect::<Vec<_>>()
    };
    let behind = (3, Some((2, at(100))));
    assert_eq!(rows(50, None).await, [behind, (4, None)]);
    assert_eq!(rows(50, Some(5)).await, [behind, (4, None)]);
    let [before, last] = [(1, None), (2, Some((1, at(100))))];
    assert_eq!(rows(50, Some(15)).await, [behind, (4, None), last]);
    assert_eq!(rows(50, Some(50)).await, [behind, (4, None), before, last]);
    assert_eq!(rows(100, None).await, [behind, (4, None), before, last]);
    let (pending, backlog, of_platform) = opened
        .read(move |view| {
            let pending = view.pending_deliveries(Uuid::from_u128(7), 9)?;
            Ok((pending, view.backlog()?, view.backlog_of(platform)?))
        })
        .await;
    let place = |it: &Pending| (it.id, it.ordinal, it.due_at);
    let places: Vec<_> = pending.iter().map(place).collect();
    assert_eq!(places, [(first, 1, at(100)), (second, 2, at(100)), (third, 3, at(10))]);
    assert_eq!((backlog, of_platform), ((4, Some(at(10))), 4));
}

async fn with_events<P: Provider>() -> Opened<P> {
    let opened = open_with_platform::<P>().await;
    let mut number = 0;
    for count in COMMITS {
        let (from, to) = (number, number + count);
        opened
            .write(move |unit| {
                for number in from..to {
                    let platform = platform_id(number % 2 + 1);
                    unit.add_event(event_of(platform, number / 2 + 1))?;
                }
                Ok(())
            })
            .await;
        number = to;
    }
    assert_eq!(number, 2 * EVENTS);
    opened.reopen()
}

pub async fn events_come_page_by_page<P: Provider>() {
    let opened = with_events::<P>().await;
    for platform in [platform_id(1), platform_id(2)] {
        for kind in [None, Some(EventKind::IncomingPayment), Some(EventKind::BulkUpload)] {
            let all = (1..=EVENTS).map(|number| event_of(platform, number));
            let expected: Vec<_> =
                all.filter(|event| kind.is_none_or(|kind| kind == event.kind)).collect();
            for limit in [1, 2, 31, 32, 33, 1_000] {
                let (mut found, mut after) = (Vec::new(), 0);
                while after < EVENTS as i64 {
                    let feed =
                        opened.read(move |view| Ok(view.feed(platform, after, kind, limit)?)).await;
                    assert!(feed.events.len() <= limit as usize && feed.until > after);
                    assert_eq!(feed.head, EVENTS as i64);
                    for numbered in feed.events {
                        assert!(after < numbered.ordinal && numbered.ordinal <= feed.until);
                        assert_eq!(event_of(platform, numbered.ordinal as u128), numbered.event);
                        found.push(numbered.event);
                    }
                    after = feed.until;
                }
                assert!(found == expected, "{kind:?}, {limit} at a time");
                let end =
                    opened.read(move |view| Ok(view.feed(platform, after, kind, limit)?)).await;
                assert!(end.events.is_empty() && end.until == EVENTS as i64);
            }
        }
    }
}

pub async fn every_event_is_found_at_its_place_and_time<P: Provider>() {
    let opened = with_events::<P>().await;
    for number in 1..=EVENTS {
        let (ordinal, time) = (number as i64, at(number as i64));
        let (event, before) = opened
            .read(move |view| {
                let event = view.event(Place { platform: platform_id(2), ordinal })?;
                Ok((event, view.last_before(platform_id(2), time)?))
            })
            .await;
        assert_eq!((event, before), (Some(event_of(platform_id(2), number)), ordinal - 1));
    }
    for (platform, ordinal) in [(1, 0), (1, EVENTS as i64 + 1), (3, 1)] {
        let place = Place { platform: platform_id(platform), ordinal };
        assert_eq!(opened.read(move |view| Ok(view.event(place)?)).await, None);
    }
    let end = at(EVENTS as i64 + 1);
    let last = opened.read(move |view| Ok(view.last_before(platform_id(1), end)?)).await;
    assert_eq!(last, EVENTS as i64);
}

/// Events of the first platform about an identity, the second of a person who is erased later.
fn about_persons() -> [Event; 3] {
    [1, 2, 3].map(|person| {
        let resource = Uuid::from_u128(person);
        let body = format!("{{\"person\":{person}}}").into_bytes();
        let (id, platform, at) = (event_id(resource, 1), platform_id(1), at(10));
        Event { id, platform, kind: EventKind::KycStatus, resource, number: 1, at, body }
    })
}

pub async fn an_event_about_an_erased_person_comes_with_another_body<P: Provider>() {
    let platform = platform_id(1);
    let opened = open_with_platform::<P>().await;
    opened.write(|unit| deliver(unit, about_persons())).await;
    opened
        .write(|unit| {
            unit.erase_key(Uuid::from_u128(2));
            Ok(())
        })
        .await;
    let found = async || {
        opened
            .read(move |view| {
                let by = DueBy { now: at(10), untouched_since: None };
                let due = view.due_deliveries(platform, by, &HashSet::new(), 9)?.deliveries;
                let due: Vec<_> = due.into_iter().map(|it| it.event.unwrap().body).collect();
                let feed = view.feed(platform, 0, None, 9)?;
                let second = view.event(Place { platform, ordinal: 2 })?.unwrap();
                Ok((feed.events, feed.until, second, due))
            })
            .await
    };
    let [first, second, third] = about_persons();
    let (events, until, found_second, due) = found().await;
    assert_eq!((events.len(), until), (1, 1));
    assert_eq!(found_second, Event { body: Vec::new(), ..second.clone() });
    assert_eq!(due, [first.body.clone(), third.body.clone()]);
    let anew = Event { body: b"{}".to_vec(), ..second };
    let numbered = Numbered { ordinal: 2, event: anew.clone() };
    opened
        .write(move |unit| {
            unit.change_event(&numbered);
            Ok(())
        })
        .await;
    let (events, until, found_second, due) = found().await;
    let events: Vec<_> = events.into_iter().map(|it| it.event).collect();
    assert_eq!((events, until), (vec![first.clone(), anew.clone(), third.clone()], 3));
    assert_eq!(found_second, anew);
    assert_eq!(due, [first.body, anew.body, third.body]);
}
