//! API tokens (specification 2.12, 4.4).

use domain::id::{PlatformId, TokenId};
use domain::platform::Platform;
use domain::time::Timestamp;
use domain::token::{Permission, Permissions, Token};
use store::unit::Unit;

use crate::app::App;
use crate::auth::hash_secret;
use crate::error::{Error, TokenError};
use crate::owners;

/// A token that was just made, with the only copy of its secret.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The token.
    pub token: Token,
    /// Its secret, never to be seen again.
    pub secret: String,
}

/// Bytes of a secret: too many to be guessed.
const SECRET_BYTES: usize = 32;

/// Bytes of a client id.
const CLIENT_ID_BYTES: usize = 16;

/// Draws a token. It authenticates no client before [`add`].
pub fn draw(app: &App, platform: &Platform, name: String, permissions: Permissions) -> NewToken {
    let client_id = hex::encode(app.random::<CLIENT_ID_BYTES>());
    let secret = hex::encode(app.random::<SECRET_BYTES>());
    with_credentials(app, platform, name, permissions, client_id, secret)
}

/// A token with credentials that the operator has chosen.
pub fn with_credentials(
    app: &App,
    platform: &Platform,
    name: String,
    permissions: Permissions,
    client_id: String,
    secret: String,
) -> NewToken {
    let id: TokenId = app.new_id(platform.ahead, app.now(platform.ahead));
    let token = Token {
        id,
        platform: platform.id,
        name,
        permissions,
        secret_hash: hash_secret(app.store().keyring(), &client_id, &secret),
        client_id,
        created_at: id.created_at(),
        updated_at: id.created_at(),
        revoked: false,
    };
    NewToken { token, secret }
}

/// Adds a token. `granted_by` is what the token holds that asks for it; an operator has no such
/// limit.
pub fn add(
    unit: &mut Unit<'_, '_>,
    new: &NewToken,
    granted_by: Option<Permissions>,
) -> Result<(), Error> {
    let token = &new.token;
    if let Some(held) = granted_by {
        let missing = token.permissions.without(held);
        if !missing.is_empty() {
            return Err(Error::Token(TokenError::CannotGrant { missing }));
        }
    }
    count_managers(unit, token, 1)?;
    unit.put(token.clone());
    Ok(())
}

/// Deletes a token: from the answer on it authenticates no client.
pub fn revoke(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: TokenId,
    now: Timestamp,
) -> Result<(), Error> {
    let token = unit
        .get::<Token>(&id)?
        .filter(|token| token.platform == platform && !token.revoked)
        .ok_or(Error::Token(TokenError::NotFound))?;
    count_managers(unit, &token, -1)?;
    let mut revoked = Token { revoked: true, ..Token::clone(&token) };
    revoked.touch(now);
    unit.put(revoked);
    Ok(())
}

/// Keeps count of the tokens that can manage the platform; the last one stays.
fn count_managers(unit: &mut Unit<'_, '_>, token: &Token, change: i32) -> Result<(), Error> {
    if !token.permissions.contains(Permission::Manage) {
        return Ok(());
    }
    let platform = owners::platform(unit, token.platform)?;
    let manager_tokens = platform
        .manager_tokens
        .checked_add_signed(change)
        .filter(|left| *left > 0)
        .ok_or(Error::Token(TokenError::LastManager))?;
    unit.put(Platform { manager_tokens, ..Platform::clone(&platform) });
    Ok(())
}
