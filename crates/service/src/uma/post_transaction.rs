//! The post-transaction callback: another institution says how a payment with it went on its side
//! (UMAD-07). It is a hint, kept as the last exchange, and never moves money: nothing in it is
//! signed, and the preimage is the proof of a payment.

use domain::id::PlatformId;
use domain::platform::Platform;
use uma::error::{ErrorCode, Refusal};
use uma::post_transaction::{Outcome, PostTransaction};
use uuid::Uuid;

use super::callback::{opened, sealed_url};
use super::peers::Contact;
use super::receive::failed;
use super::send::as_code;
use crate::app::App;
use crate::error::Error;

/// The path of callbacks at the root of a domain.
pub const POST_TRANSACTION_PATH: &str = "/uma/transaction/";

/// The place for which tokens are sealed, so that nothing else that is sealed opens as one.
const PLACE: &str = "uma_post_transactions";

/// Bytes of a platform's id.
const ID: usize = 16;

/// The URL at which an institution tells us how payments with it went.
pub(super) fn url(app: &App, platform: &Platform, peer: &str) -> Result<String, Error> {
    let plain = [&platform.id.uuid().as_bytes()[..], peer.as_bytes()].concat();
    sealed_url(app, platform, POST_TRANSACTION_PATH, PLACE, &plain)
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
    let now = app.server_now();
    callback.signed.stamp.check_time(now)?;
    let platform = app.store().get::<Platform>(platform).await;
    let platform = platform.map_err(|error| failed(&Error::Store(error)))?.ok_or_else(unknown)?;
    let contact = Contact::new(app, &platform, &peer, "RECEIVED_POST_TRANSACTION").await;
    let mut contact = contact.map_err(|error| failed(&error))?;
    contact.verify(|key| callback.verify(key)).await?;
    let outcome = match &callback.outcome {
        Some(Outcome::Failed { code, .. }) => as_code(code.as_deref().unwrap_or("FAILED")),
        Some(Outcome::Completed) | None => "OK".to_owned(),
    };
    let kept = contact.keep(&outcome, Some(&callback.signed.stamp)).await;
    kept.map_err(|error| failed(&error))?
}
