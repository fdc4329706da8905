//! Authentication of the caller (specification 5).

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use domain::platform::Platform;
use domain::time::Timestamp;
use domain::token::Token;
use store::error::StoreError;
use store::keyring::{Keyring, Purpose};
use store::reader::View;
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;

use crate::app::App;
use crate::guesses::Network;
use crate::windows::Wait;

/// An authenticated client.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The token that it showed.
    pub token: Arc<Token>,
    /// The platform that the token speaks for.
    pub platform: Arc<Platform>,
}

/// The keyed hash under which a token's secret is kept. The secret has 256 random bits, so a fast
/// hash is enough, and it is keyed, so the database alone proves nothing.
pub fn hash_secret(keyring: &Keyring, client_id: &str, secret: &str) -> [u8; 32] {
    keyring.hash(Purpose::ClientSecret, &[client_id.as_bytes(), secret.as_bytes()])
}

/// How long a client is remembered at most, in milliseconds: what another server or an operator's
/// command has revoked is refused after that. A token that this process revokes is refused at once.
/// Under load a hundred requests share a read; longer would gain nothing that can be measured.
const REMEMBERED_MILLIS: i64 = 10;

/// Clients that are remembered. Beyond, the database is asked.
const REMEMBERED_MAX: usize = 1_024;

/// Clients that were authenticated a moment ago.
#[derive(Default)]
pub(crate) struct Remembered(RwLock<HashMap<String, Known>>);

struct Known {
    caller: Caller,
    /// [`store::callers::Callers::changes`] before the client was read.
    changes: u64,
    at: Timestamp,
    /// Held by the request that reads again, so that of those that find the memory too old at
    /// the same time only one does.
    renewal: Arc<Mutex<()>>,
}

/// The cached entry of a client.
enum Memory {
    Fresh(Caller),
    /// It was known a moment ago.
    Stale(Caller, Arc<Mutex<()>>),
    Nothing,
}

/// The time of an authentication.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// When the request came.
    arrived: Timestamp,
    now: Timestamp,
}

impl Asked {
    /// Whether a read that began at `at` is new enough: for all requests a moment later, and for
    /// all that were there before it began, however long it took: their own would see no more.
    fn accepts(self, at: Timestamp) -> bool {
        let age = self.now.millis().saturating_sub(at.millis());
        (0..REMEMBERED_MILLIS).contains(&age) || (self.arrived <= at && at <= self.now)
    }
}

impl Remembered {
    fn get(&self, client_id: &str, changes: u64, asked: Asked) -> Memory {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = known.get(client_id) else { return Memory::Nothing };
        match known.changes == changes && asked.accepts(known.at) {
            true => Memory::Fresh(known.caller.clone()),
            false => Memory::Stale(known.caller.clone(), Arc::clone(&known.renewal)),
        }
    }

    fn keep(&self, caller: Caller, changes: u64, at: Timestamp) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        let client_id = caller.token.client_id.clone();
        let before = known.get(&client_id).map(|known| Arc::clone(&known.renewal));
        let renewal = before.unwrap_or_default();
        known.insert(client_id, Known { caller, changes, at, renewal });
    }
}

/// The outcome of an authentication.
#[derive(Debug, Clone)]
pub enum Authentication {
    /// The client is known.
    Known(Caller),
    /// There is no such client, or its secret is another one.
    Wrong,
    /// Too many secrets were wrong: this one was not looked at ([`crate::guesses`]).
    Slowed {
        /// When it is worth to try again.
        wait_seconds: i64,
    },
}

/// The client behind a Basic authentication that came `from` an address. Takes the same time
/// whether the client is unknown or its secret is wrong, and does not say which.
pub async fn authenticate(
    app: &App,
    client_id: String,
    secret: String,
    from: Network,
) -> Result<Authentication, StoreError> {
    let slowed = |Wait(wait_seconds)| Authentication::Slowed { wait_seconds };
    if let Err(wait) = app.guesses().check(&client_id, from, app.server_now()) {
        return Ok(slowed(wait));
    }
    if let Some(caller) = proven(app, &client_id, &secret).await? {
        // A secret that was right once is no guess: its owner has not heard yet.
        let is_revoked = caller.token.revoked;
        return Ok(if is_revoked { Authentication::Wrong } else { Authentication::Known(caller) });
    }
    match app.guesses().wrong(&client_id, from, app.server_now()) {
        Ok(()) => Ok(Authentication::Wrong),
        Err(wait) => Ok(slowed(wait)),
    }
}

/// The client whose secret it is, or was.
async fn proven(app: &App, client_id: &str, secret: &str) -> Result<Option<Caller>, StoreError> {
    let given = hash_secret(app.store().keyring(), client_id, secret);
    let arrived = app.server_now();
    let caller = match remembered(app, client_id, arrived) {
        Memory::Fresh(caller) => Some(caller),
        Memory::Nothing => read(app, client_id.to_owned()).await?,
        Memory::Stale(_, renewal) => {
            // A read may wait for its deadline; no other request waits for the one that reads.
            app.store().check_circuit()?;
            let _renewing = renewal.lock().await;
            match remembered(app, client_id, arrived) {
                Memory::Fresh(caller) => Some(caller),
                Memory::Stale(known, _) => read_again(app, &known).await?,
                Memory::Nothing => read(app, client_id.to_owned()).await?,
            }
        }
    };
    let kept = caller.as_ref().map_or([0; 32], |caller| caller.token.secret_hash);
    let matches = bool::from(given.ct_eq(&kept));
    Ok(caller.filter(|_| matches))
}

fn remembered(app: &App, client_id: &str, arrived: Timestamp) -> Memory {
    let changes = app.store().callers().changes();
    let asked = Asked { arrived, now: app.server_now() };
    app.remembered_callers().get(client_id, changes, asked)
}

/// Asks the database for a client, and remembers it.
async fn read(app: &App, client_id: String) -> Result<Option<Caller>, StoreError> {
    let (changes, now) = (app.store().callers().changes(), app.server_now());
    let found = app.store().read(move |view| find(view, &client_id)).await?;
    if let Some(caller) = &found {
        app.remembered_callers().keep(caller.clone(), changes, now);
    }
    Ok(found)
}

/// Asks the database for a client whose ids are known: neither the id of a token nor its platform
/// ever changes. Where that is across a network, both rows come with the reads of others.
async fn read_again(app: &App, known: &Caller) -> Result<Option<Caller>, StoreError> {
    let (changes, now) = (app.store().callers().changes(), app.server_now());
    let (token, platform) = tokio::try_join!(
        app.store().get::<Token>(known.token.id),
        app.store().get::<Platform>(known.platform.id),
    )?;
    let found = token.zip(platform).map(|(token, platform)| Caller { token, platform });
    if let Some(caller) = &found {
        app.remembered_callers().keep(caller.clone(), changes, now);
    }
    Ok(found)
}

fn find(view: &mut View<'_>, client_id: &str) -> Result<Option<Caller>, StoreError> {
    let Some(token) = view.token_by_client_id(client_id)? else { return Ok(None) };
    let platform = view.get::<Platform>(&token.platform)?;
    Ok(platform.map(|platform| Caller { token, platform }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_waited_for_a_long_read_need_none_of_their_own() {
        let at = Timestamp::from_millis;
        for (began, arrived, now, accepted) in [
            // A moment ago.
            (100, 105, 109, true),
            (100, 105, 110, false),
            // It took long, and they were there before it began.
            (100, 95, 140, true),
            (100, 100, 140, true),
            // They came while it was under way: what they ask about may have changed since.
            (100, 101, 140, false),
            // The clock was set back since: its age is unknown.
            (100, 40, 50, false),
        ] {
            let asked = Asked { arrived: at(arrived), now: at(now) };
            assert_eq!(asked.accepts(at(began)), accepted, "{began} {asked:?}");
        }
    }
}
