//! Once per idempotency key (design decision 9): effect and first answer are one change.

use domain::clock::Ahead;
use domain::id::PlatformId;
use store::error::StoreError;
use store::idempotency::{Answer, Scope};
use store::unit::Unit;

use crate::app::App;
use crate::balances;
use crate::ended::{self, Ended};
use crate::error::Error;

/// A request that may be repeated.
#[derive(Debug, Clone, Copy)]
pub struct Keyed {
    /// What tells it from every other, if the client sent a key.
    pub scope: Option<Scope>,
    /// Who asks.
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
}

/// Turns results into answers. `api` has the one implementation.
pub trait Render<T>: Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static {}
impl<T, F: Fn(&Result<T, Error>) -> (u16, Vec<u8>) + Send + 'static> Render<T> for F {}

/// Does `work` unless the request was answered before; then gives that answer, byte for byte.
/// Refusals are answers too: they are kept, and nothing else of the unit is. Failures of ours are
/// not kept, so that a repeat tries again. Answers are kept by the server's time: clients repeat
/// requests as long as they do, however a platform's clock is moved.
pub async fn once<T, R, F>(app: &App, keyed: Keyed, render: R, mut work: F) -> Result<Reply, Error>
where
    T: Send + 'static,
    R: Render<T>,
    F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
{
    let (now, unit_app) = (app.server_now(), app.clone());
    let written = app
        .store()
        .write_once(keyed.scope, move |unit| {
            if let Some(reply) = stored(unit, keyed)? {
                return Ok((reply, Vec::new()));
            }
            let result =
                work(unit).and_then(|done| balances::tell(unit_app.env(), unit).map(|()| done));
            if let Err(error) = &result {
                if error.is_failure() {
                    return Err(error.clone());
                }
                unit.discard();
            }
            let ended = ended::by(unit);
            let (status, body) = render(&result);
            if let Some(scope) = keyed.scope {
                unit.keep_answer(scope, now, status, &body);
            }
            Ok((Reply { status, body, replayed: false }, ended))
        })
        .await;
    let (reply, ended): (Reply, Vec<Ended>) = written?;
    ended::log(&ended);
    Ok(reply)
}

fn stored(unit: &mut Unit<'_, '_>, keyed: Keyed) -> Result<Option<Reply>, StoreError> {
    let Some(scope) = keyed.scope else { return Ok(None) };
    Ok(unit.answer(&scope)?.map(replay))
}

fn replay((status, body): (u16, Vec<u8>)) -> Reply {
    Reply { status, body, replayed: true }
}

/// The stored first answer to a request, if there is one: for use cases that ask the outside world
/// before their unit of work, so that a repeat does not ask again.
pub async fn answered(app: &App, keyed: Keyed) -> Result<Option<Reply>, Error> {
    let Some(scope) = keyed.scope else { return Ok(None) };
    // Hardly any request is a repeat, and whether it is one is asked together with others.
    if app.store().get::<Answer>(scope).await.map_err(Error::Store)?.is_none() {
        return Ok(None);
    }
    let answer = app.store().look(move |view| view.answer(&scope)).await;
    Ok(answer.map_err(Error::Store)?.map(replay))
}
