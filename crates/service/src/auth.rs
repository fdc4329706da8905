//! Who is asking (specification 5).

use std::sync::Arc;

use domain::platform::Platform;
use domain::token::Token;
use store::error::StoreError;
use store::keyring::{Keyring, Purpose};
use subtle::ConstantTimeEq;

use crate::app::App;

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

/// The client behind a Basic authentication, if there is one. Takes the same time whether the
/// client is unknown or its secret is wrong, and does not say which.
pub async fn authenticate(
    app: &App,
    client_id: String,
    secret: String,
) -> Result<Option<Caller>, StoreError> {
    let keyring_app = app.clone();
    app.store()
        .read(move |view| {
            let given = hash_secret(keyring_app.store().keyring(), &client_id, &secret);
            let token = view.token_by_client_id(&client_id)?;
            let kept = token.as_ref().map_or([0; 32], |token| token.secret_hash);
            let matches = bool::from(given.ct_eq(&kept));
            let Some(token) = token.filter(|token| matches && !token.revoked) else {
                return Ok(None);
            };
            let platform = view.get::<Platform>(&token.platform)?;
            Ok(platform.map(|platform| Caller { token, platform }))
        })
        .await
}
