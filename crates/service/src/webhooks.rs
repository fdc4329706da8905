//! Webhooks: the keys of deliveries, and the try-out of an endpoint (contract 7; design decision
//! 11).

pub mod signature;
pub mod dispatch;
pub mod again;
pub(crate) mod exchange;
mod queue;

use std::time::Duration;

use domain::delivery::{self, Attempt, Delivery, Schedule};
use domain::event::{Event, EventKind, event_id};
use domain::id::{EventId, PlatformId};
use domain::platform::Platform;
use domain::time::Timestamp;
use ports::outbound::OutboundAnswer;
use store::events::{Endpoint, Outbox};
use store::unit::Unit;

use crate::app::{App, Subject};
use crate::error::Error;
use crate::once::{Keyed, Render, Reply, answered, once};
use crate::owners;
use crate::webhooks::exchange::{Exchange, exchange};
use crate::webhooks::signature::Signer;

/// How long an endpoint has for the whole exchange of a try-out, while a client waits for it.
const TEST_TIME: Duration = Duration::from_secs(10);

/// Bytes of an answer that a try-out shows.
const TEST_ANSWER_MAX: usize = 4_096;

/// The result of a try-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    /// Where it went.
    pub url: String,
    /// The answer of the endpoint.
    pub answer: OutboundAnswer,
}

/// Sends an event of the kind `TEST` to the platform's endpoint, once, and gives its answer. A
/// repeat of the request is answered and sends nothing.
pub async fn test<R: Render<Tested>>(
    app: &App,
    keyed: Keyed,
    platform: &Platform,
    render: R,
) -> Result<Reply, Error> {
    if let Some(reply) = answered(app, keyed).await? {
        return Ok(reply);
    }
    let tested = deliver_test(app, platform).await;
    once(app, keyed, render, move |_| tested.clone()).await
}

async fn deliver_test(app: &App, platform: &Platform) -> Result<Tested, Error> {
    let url = platform.webhook_endpoint.clone().ok_or(Error::NoWebhookEndpoint)?;
    let now = app.now(platform.ahead);
    let event = test_event(app, platform, app.new_id(platform.ahead, now), 0, now);
    let signer = Signer::of(app, platform, now);
    let Exchange { answer, .. } = exchange(app, platform, &signer, &event, TEST_TIME).await;
    let mut answer = answer.map_err(|failure| Error::WebhookDelivery { failure })?;
    answer.body.truncate(TEST_ANSWER_MAX.min(app.env().answer_bytes_shown()));
    Ok(Tested { url, answer })
}

/// An event without content.
fn test_event(app: &App, platform: &Platform, id: EventId, number: u32, at: Timestamp) -> Event {
    let (kind, resource) = (EventKind::Test, platform.id.uuid());
    let event = Event { id, platform: platform.id, kind, resource, number, at, body: Vec::new() };
    app.rendered(platform, event, Subject::Nothing)
}

/// Gives a platform new keys; the ones before sign for a day more.
pub fn rotate_keys(unit: &mut Unit<'_, '_>, app: &App, id: PlatformId) -> Result<Platform, Error> {
    let mut platform = Platform::clone(&*owners::platform(unit, id)?);
    let now = app.now(platform.ahead);
    platform.signing = platform.signing.rotated(now);
    platform.touch(now);
    unit.put(platform.clone());
    wake_worker(unit, id)?;
    Ok(platform)
}

/// Begins to deliver a platform's events to the endpoint that was set: those that come from now on,
/// and those that wait for the endpoint before, if that had not said that it was gone.
pub(crate) fn open(unit: &mut Unit<'_, '_>, platform: PlatformId) -> Result<(), Error> {
    let outbox = unit.outbox(platform)?;
    let begun = match outbox.endpoint {
        Endpoint::Open => outbox,
        Endpoint::None | Endpoint::Gone => {
            Outbox { taken: outbox.head, opened: outbox.head, endpoint: Endpoint::Open, ..outbox }
        }
    };
    unit.put(Outbox { revision: begun.revision + 1, ..begun });
    Ok(())
}

/// Ends the deliveries of a platform that has removed its endpoint. Those that wait are given up,
/// as if the endpoint had answered 410.
pub(crate) fn close(unit: &mut Unit<'_, '_>, platform: PlatformId) -> Result<(), Error> {
    let outbox = unit.outbox(platform)?;
    if outbox.endpoint == Endpoint::Open {
        unit.put(Outbox { endpoint: Endpoint::Gone, revision: outbox.revision + 1, ..outbox });
    }
    Ok(())
}

/// Records the outcome of an approval request, which is sent once or, where its deadline was over
/// before, not at all (contract 7.3).
pub(crate) fn record_approval_request(
    unit: &mut Unit<'_, '_>,
    request: &Event,
    attempt: Option<&Attempt>,
    now: Timestamp,
) -> Result<(), Error> {
    let id = delivery::delivery_id(request);
    let Some(delivery) = unit.get::<Delivery>(&id)? else { return Ok(()) };
    let event = match attempt {
        // It is sent once, so that nothing waits.
        Some(attempt) => delivery.after(attempt.clone(), &Schedule::USUAL, 0, now),
        None => delivery::Event::Superseded,
    };
    if let Ok(moved) = Delivery::clone(&delivery).apply(event, now) {
        unit.put_moved(moved);
    }
    Ok(())
}

/// Notifies a platform's endpoint that it was set (contract 7.4).
pub(crate) fn notify_endpoint(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    now: Timestamp,
) -> Result<(), Error> {
    // No other event is about a platform, so that the count of all of its events numbers these.
    let number = unit.outbox(platform.id)?.head.saturating_add(1);
    let number = u32::try_from(number)
        .map_err(|_| Error::Internal(format!("{} has too many events", platform.id)))?;
    let id = event_id(platform.id.uuid(), number);
    unit.add_event(test_event(app, platform, id, number, now))?;
    Ok(())
}

/// Has the worker read a platform anew, and attempt at once all that is due.
pub(crate) fn wake_worker(unit: &mut Unit<'_, '_>, platform: PlatformId) -> Result<(), Error> {
    let outbox = unit.outbox(platform)?;
    if outbox.endpoint != Endpoint::None {
        unit.put(Outbox { revision: outbox.revision + 1, ..outbox });
    }
    Ok(())
}
