//! Deliveries that a client wants to be made again.

use std::collections::BTreeSet;

use domain::delivery::{self, Delivery, Draft, Plan};
use domain::event::EventKind;
use domain::id::{DeliveryId, PlatformId};
use domain::time::Timestamp;
use store::error::StoreError;
use store::events::{Endpoint, Numbered};
use store::outbox::Pending;
use store::unit::Unit;

use crate::app::App;
use crate::error::{Error, REPLAYED_MAX};
use crate::once::{Keyed, Render, Reply, answered, once};
use crate::owners;
use crate::webhooks::wake_worker;

/// Events that are read, and written, together.
const AT_ONCE: u32 = 500;

/// A delivery that is sent again.
#[derive(Debug, Clone)]
pub struct Retried {
    /// The delivery.
    pub delivery: Delivery,
    /// The first pending delivery about its resource, if it waits for that.
    pub waits_for: Option<Pending>,
}

/// Sends the event of a delivery again, whatever became of it before. Those behind it about the
/// same resource are due with it.
pub async fn retry<R: Render<Retried>>(
    app: &App,
    keyed: Keyed,
    id: DeliveryId,
    render: R,
) -> Result<Reply, Error> {
    if let Some(reply) = answered(app, keyed).await? {
        return Ok(reply);
    }
    let pending = app.store().read(move |view| {
        let found = view.get::<Delivery>(&id)?;
        let pending = found.map(|it| view.pending_deliveries(it.draft().resource, AT_ONCE));
        Ok::<_, StoreError>(pending.transpose()?.unwrap_or_default())
    });
    let (pending, now) = (pending.await.map_err(Error::Store)?, app.now(keyed.ahead));
    once(app, keyed, render, move |unit| send_one_again(unit, keyed.platform, id, &pending, now))
        .await
}

fn send_one_again(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: DeliveryId,
    pending: &[Pending],
    now: Timestamp,
) -> Result<Retried, Error> {
    let found = unit.get::<Delivery>(&id)?;
    let delivery = found
        .filter(|delivery| delivery.draft().platform == platform)
        .ok_or(Error::DeliveryNotFound { id })?;
    demand_endpoint(unit, platform)?;
    let moved = Delivery::clone(&delivery).apply(delivery::Event::SentAgain, now)?;
    let delivery = moved.now().clone();
    unit.put_moved(moved);
    let ordinal = delivery.draft().ordinal;
    let behind = pending.iter().filter(|it| it.ordinal > ordinal && it.due_at > now);
    let behind: Vec<_> = behind.map(|it| it.id).collect();
    for behind in unit.get_all::<Delivery>(&behind)?.into_iter().flatten() {
        unit.put(Delivery::clone(&behind).rescheduled(now));
    }
    wake_worker(unit, platform)?;
    let waits_for = pending.first().filter(|first| first.ordinal < ordinal).copied();
    Ok(Retried { delivery, waits_for })
}

fn demand_endpoint(unit: &mut Unit<'_, '_>, platform: PlatformId) -> Result<(), Error> {
    match unit.outbox(platform)?.endpoint {
        Endpoint::Open => Ok(()),
        Endpoint::None => Err(Error::NoWebhookEndpoint),
        Endpoint::Gone if owners::platform(unit, platform)?.webhook_endpoint.is_none() => {
            Err(Error::NoWebhookEndpoint)
        }
        Endpoint::Gone => Err(Error::WebhookEndpointGone),
    }
}

/// Which events are sent again.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Those that happened then or later.
    pub from: Timestamp,
    /// Those that happened before.
    pub to: Timestamp,
    /// Of these kinds; of all if there are none.
    pub kinds: BTreeSet<EventKind>,
}

/// Sends a platform's events of a time again, each with the bytes that it always had. Gives how
/// many they are.
pub async fn replay<R: Render<usize>>(
    app: &App,
    keyed: Keyed,
    wanted: Replay,
    render: R,
) -> Result<Reply, Error> {
    if let Some(reply) = answered(app, keyed).await? {
        return Ok(reply);
    }
    let platform = keyed.platform;
    let outcome = send_again(app, platform, &wanted, app.now(keyed.ahead)).await;
    if let Err(error) = &outcome
        && error.is_failure()
    {
        return Err(error.clone());
    }
    once(app, keyed, render, move |_| outcome.clone()).await
}

async fn send_again(
    app: &App,
    platform: PlatformId,
    wanted: &Replay,
    now: Timestamp,
) -> Result<usize, Error> {
    app.store().write(app.origin(), move |unit| demand_endpoint(unit, platform)).await?;
    let events = find(app, platform, wanted).await?;
    let count = events.len();
    for some in events.chunks(AT_ONCE as usize) {
        let some = some.to_vec();
        app.store()
            .write(app.origin(), move |unit| {
                let ids: Vec<_> = some.iter().map(|draft| draft.id).collect();
                for (draft, known) in some.iter().zip(unit.get_all::<Delivery>(&ids)?) {
                    match known {
                        Some(known) => {
                            let again = delivery::Event::SentAgain;
                            unit.put_moved(Delivery::clone(&known).apply(again, now)?);
                        }
                        None => unit.put(Delivery::pending(*draft, now)),
                    }
                }
                wake_worker(unit, platform)
            })
            .await?;
    }
    Ok(count)
}

/// The events of the time, without their bytes.
async fn find(app: &App, platform: PlatformId, wanted: &Replay) -> Result<Vec<Draft>, Error> {
    let from = wanted.from;
    let first = app.store().read(move |view| view.last_before(platform, from)).await;
    let mut after = first.map_err(Error::Store)?;
    let mut found = Vec::new();
    loop {
        let feed = app
            .store()
            .read(move |view| view.feed(platform, after, None, AT_ONCE))
            .await
            .map_err(Error::Store)?;
        let is_end = feed.events.is_empty()
            || feed.events.first().is_some_and(|first| first.event.at >= wanted.to);
        for Numbered { ordinal, event } in feed.events {
            let is_wanted = (wanted.from..wanted.to).contains(&event.at)
                && (wanted.kinds.is_empty() || wanted.kinds.contains(&event.kind));
            if is_wanted {
                found.push(Draft::new(&event, ordinal, Plan::Retried));
            }
        }
        if found.len() > REPLAYED_MAX {
            return Err(Error::ReplayTooLong);
        }
        if is_end {
            return Ok(found);
        }
        after = feed.until;
    }
}
