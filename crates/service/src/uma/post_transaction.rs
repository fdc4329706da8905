//! The post-transaction callback: institutions say to each other how a payment went on their side
//! (UMAD-07). It is a hint and never moves money: nothing in it is signed, and the preimage is the
//! proof of a payment. One that comes is kept as the last exchange.
//!
//! Ours is due once the end of the payment is committed. The next attempt is set before one begins,
//! so a crash costs an attempt and no more, and the peer may get it twice.

use domain::id::{PlatformId, TransactionId};
use domain::platform::Platform;
use domain::transaction::{Direction, Status, Transaction};
use domain::uma_address::UmaAddress;
use ports::outbound::{Method, OutboundFailure};
use store::timers::{Timer, TimerKey};
use store::unit::Unit;
use uma::error::{ErrorCode, Refusal};
use uma::post_transaction::{Outcome, PostTransaction};
use uuid::Uuid;

use super::callback::{opened, sealed_url};
use super::keys::{self, Keys};
use super::peers::{ASK_WITHIN, Contact};
use super::receive::failed;
use super::send::as_code;
use crate::app::App;
use crate::bulkheads::{Entry, Target};
use crate::error::Error;
use crate::leadership::Leadership;
use crate::owners;

/// The path of callbacks at the root of a domain.
pub const POST_TRANSACTION_PATH: &str = "/uma/transaction/";

/// The place for which tokens are sealed, so that nothing else that is sealed opens as one.
const PLACE: &str = "uma_post_transactions";

/// Bytes of a URL that is kept for a callback: longer ones are no callback's.
const URL_MAX: usize = 2_000;

/// How long after each attempt the next one is, in milliseconds: a peer may be away for an hour.
/// The attempt after the last of them is the last.
const WAITS_MILLIS: [i64; 4] = [10_000, 60_000, 600_000, 3_600_000];

/// Bytes of a platform's id.
const ID: usize = 16;

/// The URL at which an institution tells us how payments with it went.
pub(super) fn url(app: &App, platform: &Platform, peer: &str) -> Result<String, Error> {
    let plain = [&platform.id.uuid().as_bytes()[..], peer.as_bytes()].concat();
    let domain = keys::domain(platform)?;
    Ok(sealed_url(app, &domain, POST_TRANSACTION_PATH, PLACE, &plain))
}

/// The URL of an institution's callback, if it is one.
pub(super) fn given(url: Option<&str>) -> Option<String> {
    let url = url.filter(|url| url.len() <= URL_MAX)?;
    let is_web = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
    is_web.then(|| url.to_owned())
}

/// Begins an attempt, which goes on beside the step: money never waits for it. It has a place in
/// the institution's bulkhead.
pub(crate) async fn begin(app: &App, leadership: Leadership, timer: &Timer) -> Result<(), Error> {
    let (timer, unit_app) = (timer.clone(), app.clone());
    let (attempt, ended) = app
        .write_behind(move |unit: &mut Unit<'_, '_>| {
            leadership.check(&unit_app, unit)?;
            let wait_millis = WAITS_MILLIS.get(timer.attempts as usize);
            let id = TransactionId::from_uuid(timer.subject);
            let platform = owners::platform(unit, timer.platform)?;
            let ended = unit.get::<Transaction>(&id)?;
            match wait_millis.filter(|_| ended.is_some()) {
                Some(wait_millis) => {
                    let now = platform.ahead.shows(unit_app.server_now());
                    unit.set_timer(timer.again(now.plus_millis(*wait_millis)));
                }
                None => unit.clear_timer(timer.key()),
            }
            Ok::<_, Error>(((platform, timer.key()), ended))
        })
        .await?;
    let (Some(ended), (platform, timer)) = (ended, attempt) else { return Ok(()) };
    let Some(peer) = peer(&ended) else { return Ok(()) };
    let target = Target::Peer(peer.domain().to_owned());
    // Without a place, the next attempt is when its time comes.
    if let Entry::Now(slot) = app.bulkheads().enter(&target, app.server_now()) {
        let under_way = app.bulkheads().begin(timer, platform.id);
        let task_app = app.clone();
        app.bulkheads().spawn(async move {
            let app = task_app;
            match notify(&app, &platform, &ended, timer).await {
                Ok(true) => slot.answered(),
                Ok(false) => slot.hung(app.server_now(), app.env().entropy.number()),
                Err(error) => {
                    let id = ended.id();
                    tracing::warn!(transaction = %id, %error, "an institution was not notified");
                }
            }
            drop(under_way);
        });
    }
    Ok(())
}

/// The other side of a payment between institutions.
fn peer(ended: &Transaction) -> Option<&UmaAddress> {
    let uma = ended.draft().uma.as_ref()?;
    Some(match ended.draft().direction {
        Direction::Outgoing => &uma.receiver,
        Direction::Incoming => &uma.sender,
    })
}

/// Sends the callback once. Any answer but one that asks for patience ends the attempts. Returns
/// whether the institution did not hang.
async fn notify(
    app: &App,
    platform: &Platform,
    ended: &Transaction,
    timer: TimerKey,
) -> Result<bool, Error> {
    let url = ended.draft().uma.as_ref().and_then(|uma| uma.callback.clone());
    let (Some(peer), Some(url)) = (peer(ended), url) else { return Ok(true) };
    let contact = Contact::new(app, platform, peer.domain(), "POST_TRANSACTION").await?;
    let now = app.server_now();
    let signing = Keys::of(app, platform, now).signing;
    let (domain, outcome) = (keys::domain(platform)?, Some(outcome(ended)));
    let message = PostTransaction::new(&signing, domain, vec![], outcome, keys::stamp(app));
    let body = message.to_json().into_bytes();
    let answer = match contact.is_blocked() {
        true => Err(OutboundFailure::Refused("the institution is blocked".to_owned())),
        false => contact.send(Method::Post, url, body, ASK_WITHIN).await,
    };
    let (seen, is_over) = match &answer {
        Ok(answer) => match answer.status {
            200..=299 => ("OK".to_owned(), true),
            status => (format!("STATUS_{status}"), !matches!(status, 408 | 425 | 429 | 500..=599)),
        },
        Err(OutboundFailure::Refused(_)) => ("REFUSED".to_owned(), true),
        Err(OutboundFailure::Unreachable) => ("UNREACHABLE".to_owned(), false),
        Err(OutboundFailure::TimedOut) => ("TIMED_OUT".to_owned(), false),
    };
    let hangs = matches!(answer, Err(OutboundFailure::TimedOut));
    let seen = contact.seen(&seen, None);
    app.store()
        .write(app.origin(), move |unit| {
            if is_over {
                unit.clear_timer(timer);
            }
            seen.keep(unit).map(|_| ())
        })
        .await?;
    Ok(!hangs)
}

/// The end of a payment, in the protocol's words. A failure has a code and no text, which might be
/// about a customer.
fn outcome(ended: &Transaction) -> Outcome {
    match ended.status() {
        Status::Completed => Outcome::Completed,
        _ => Outcome::Failed {
            code: ended.failure().map(|failure| failure.name().to_owned()),
            reason: None,
        },
    }
}

/// The platform and the institution that a URL was made for.
fn open(app: &App, token: &str) -> Option<(PlatformId, String)> {
    let plain = opened(app, PLACE, token)?;
    let (id, peer) = plain.split_at_checked(ID)?;
    let id = PlatformId::from_uuid(Uuid::from_slice(id).ok()?);
    Some((id, String::from_utf8(peer.to_vec()).ok()?))
}

/// Takes a callback. `token` is the last part of its path.
pub async fn take(app: &App, token: &str, body: &[u8]) -> Result<(), Refusal> {
    let unknown = || Refusal::new(ErrorCode::RequestNotFound, "there is no such callback");
    let (platform, peer) = open(app, token).ok_or_else(unknown)?;
    let callback = PostTransaction::read(body)?;
    if callback.vasp_domain.as_str() != peer {
        let reason =
            format!("vaspDomain is {}, but the URL was given to {peer}", callback.vasp_domain);
        return Err(Refusal::new(ErrorCode::Forbidden, reason));
    }
    keys::check_time(app, &callback.signed.stamp)?;
    let platform = app.store().get::<Platform>(platform).await;
    let platform = platform.map_err(|error| failed(&Error::Store(error)))?.ok_or_else(unknown)?;
    let contact = Contact::new(app, &platform, &peer, "RECEIVED_POST_TRANSACTION").await;
    let mut contact = contact.map_err(|error| failed(&error))?;
    contact.verify(|key| callback.verify(key)).await?;
    contact.count()?;
    let outcome = match &callback.outcome {
        Some(Outcome::Failed { code, .. }) => as_code(code.as_deref().unwrap_or("FAILED")),
        Some(Outcome::Completed) | None => "OK".to_owned(),
    };
    let kept = contact.keep(&outcome, Some(&callback.signed.stamp)).await;
    kept.map_err(|error| failed(&error))?
}
