//! Once per idempotency key (design decision 9): effect and first answer are one change.

use domain::clock::Ahead;
use domain::id::PlatformId;
use domain::time::Timestamp;
use store::error::StoreError;
use store::idempotency::{Answer, Digest, Given, Scope};
use store::unit::Unit;

use crate::app::{App, Outcome};
use crate::balances;
use crate::error::Error;

/// A request that may be repeated.
#[derive(Debug, Clone, Copy)]
pub struct Keyed {
    /// Its scope, if the client sent a key.
    pub scope: Option<Scope>,
    /// The digest of its body, if it has one and a scope.
    pub body: Option<Digest>,
    /// The caller's platform.
    pub platform: PlatformId,
    /// How far the platform's clock is ahead.
    pub ahead: Ahead,
}

/// An answer, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// Whether this is a stored first answer.
    pub replayed: bool,
    /// Whether it was given to another body than that of this request.
    pub differs: bool,
}

/// Turns results into answers. `api` has the one implementation.
pub trait Render<T>: Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static {}
impl<T, F: Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static> Render<T> for F {}

/// Does `work` unless the request was answered before; then gives that answer, byte for byte.
/// Refusals are answers too: they are kept, and nothing else of the unit is. Failures of ours are
/// not kept, so that a repeat tries again. An answer that is there is given again whatever its age:
/// a clock that is wrong must not make a payment happen twice.
pub async fn once<T, R, F>(app: &App, keyed: Keyed, render: R, mut work: F) -> Result<Reply, Error>
where
    T: Send + 'static,
    R: Render<T>,
    F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
{
    let (now, unit_app) = (app.server_now(), app.clone());
    let written = app
        .store()
        .write_once(keyed.scope, app.origin(), move |unit| {
            if let Some(reply) = stored(unit, keyed)? {
                return Ok((reply, Outcome::default()));
            }
            let result =
                work(unit).and_then(|done| balances::tell(unit_app.env(), unit).map(|()| done));
            if let Err(error) = &result {
                if error.is_failure() {
                    return Err(error.clone());
                }
                unit.discard();
            }
            let outcome = Outcome::of(unit);
            let (status, body) = render(&result);
            let given = Given { status, body, request: keyed.body };
            if let Some(scope) = keyed.scope {
                unit.keep_answer(scope, now, &given);
            }
            let Given { status, body, .. } = given;
            Ok((Reply { status, body, replayed: false, differs: false }, outcome))
        })
        .await;
    let (reply, outcome): (Reply, Outcome) = written?;
    app.committed(&outcome);
    warn_of_difference(app, keyed, &reply);
    Ok(reply)
}

/// An answer of any age.
pub(crate) const EVER: Timestamp = Timestamp::from_millis(i64::MIN);

fn stored(unit: &mut Unit<'_, '_>, keyed: Keyed) -> Result<Option<Reply>, StoreError> {
    let Some(scope) = keyed.scope else { return Ok(None) };
    Ok(unit.answer(&scope, EVER)?.map(|given| replay(keyed, given)))
}

fn replay(keyed: Keyed, given: Given) -> Reply {
    let Given { status, body, request } = given;
    let differs = keyed.body.zip(request).is_some_and(|(now, first)| now != first);
    Reply { status, body, replayed: true, differs }
}

/// Logs that a request was answered without being looked at, although it is not the first one: its
/// client may take the answer for that of a second payment.
fn warn_of_difference(app: &App, keyed: Keyed, reply: &Reply) {
    if reply.differs {
        let request_id = app.origin().request.unwrap_or_default();
        tracing::warn!(
            platform = %keyed.platform, request_id, status = reply.status,
            "an idempotency key was repeated with another body"
        );
    }
}

/// The stored first answer to a request, if there is one: for use cases that ask the outside world
/// before their unit of work, so that a repeat does not ask again.
pub async fn answered(app: &App, keyed: Keyed) -> Result<Option<Reply>, Error> {
    let Some(scope) = keyed.scope else { return Ok(None) };
    // Hardly any request is a repeat, and whether it is one is asked together with others.
    if app.store().get::<Answer>(scope).await.map_err(Error::Store)?.is_none() {
        return Ok(None);
    }
    let answer = app.store().read(move |view| view.answer(&scope, EVER)).await;
    let reply = answer.map_err(Error::Store)?.map(|given| replay(keyed, given));
    if let Some(reply) = &reply {
        warn_of_difference(app, keyed, reply);
    }
    Ok(reply)
}
