//! Webhooks: the keys that deliveries are signed with, and the try-out of an endpoint (contract 7,
//! 6.18; design decision 11).

use std::sync::Arc;

use axum::response::Response;
use domain::platform::Platform;
use serde::Serialize;
use service::App;
use service::webhooks::signature::{PublicKeys, Signer};
use service::webhooks::{self, Tested};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Acting, Once, ok, respond};

/// Data for a receiver to check that a delivery is from here and unchanged.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookKeys)]
pub struct KeysBody {
    /// The secret of the header `webhook-signature`, as the libraries of Standard Webhooks take it.
    #[schema(pattern = "^whsec_[A-Za-z0-9+/]{43}=$")]
    secret: String,
    /// The public key of the header `X-Grid-Signature`: PEM, P-256. Its value is JSON, `s` is the
    /// signature over SHA-256 of the body, DER in base64.
    public_key: String,
    /// The keys before, while deliveries are signed with them too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    previous: Option<PreviousKeysBody>,
}

/// Keys that were replaced.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PreviousWebhookKeys)]
pub struct PreviousKeysBody {
    /// As of the newest.
    #[schema(pattern = "^whsec_[A-Za-z0-9+/]{43}=$")]
    secret: String,
    /// As of the newest; its signature is `s` in the header until then, and that of the newest
    /// `next`.
    public_key: String,
    /// When they sign no more.
    #[schema(format = DateTime)]
    signs_until: String,
}

impl KeysBody {
    fn new(app: &App, platform: &Platform) -> Self {
        let signer = Signer::of(app, platform, app.now(platform.ahead));
        let PublicKeys { secret, public_key } = signer.newest();
        let previous = signer.previous().map(|(keys, until)| PreviousKeysBody {
            secret: keys.secret,
            public_key: keys.public_key,
            signs_until: until.to_string(),
        });
        Self { secret, public_key, previous }
    }
}

/// The answer of an endpoint (contract 6.18).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookTest)]
pub struct TestBody {
    /// Its status.
    #[schema(minimum = 100, maximum = 999)]
    response_status: u16,
    /// Where the event went.
    url: String,
    /// The first 4 kB of its body; what is not text stands as replacement characters.
    response_body: String,
}

impl From<Tested> for TestBody {
    fn from(Tested { url, answer }: Tested) -> Self {
        let response_body = String::from_utf8_lossy(&answer.body).into_owned();
        Self { response_status: answer.status, url, response_body }
    }
}

/// Get the signing keys.
///
/// Deliveries are signed with them.
#[utoipa::path(get, path = "/webhooks/keys",
    operation_id = "getWebhookKeys", tag = "Webhooks",
    responses((status = 200, description = "The keys.", body = KeysBody)))]
pub async fn keys(Acting(app): Acting, caller: Caller) -> Response {
    ok(&KeysBody::new(&app, &caller.platform))
}

/// Rotate the signing keys.
///
/// Deliveries are signed with the old and the new ones for a day.
#[utoipa::path(post, path = "/webhooks/keys/rotate",
    operation_id = "rotateWebhookKeys", tag = "Webhooks",
    responses((status = 200, description = "The new keys, and those before.", body = KeysBody)))]
pub async fn rotate(Acting(app): Acting, caller: Caller, request: Once) -> Response {
    let platform = caller.platform.id;
    let shape = {
        let app = app.clone();
        move |platform: &Platform| KeysBody::new(&app, platform)
    };
    request.run(200, shape, move |unit| webhooks::rotate_keys(unit, &app, platform)).await
}

/// Send a test webhook.
///
/// Sends an event of the type `TEST` to the platform's endpoint, once, and shows what it answered.
#[utoipa::path(post, path = "/webhooks/test",
    operation_id = "sendTestWebhook", tag = "Webhooks",
    responses(
        (status = 200, description = "What the endpoint answered.", body = TestBody),
        (status = 400, description = "There is no endpoint, or it did not answer.",
            body = ErrorBody),
    ))]
pub async fn test(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
) -> Result<Response, ApiError> {
    try_out(app, caller.platform, request).await
}

/// Tries the endpoint of a platform out.
pub(crate) async fn try_out(
    app: App,
    platform: Arc<Platform>,
    request: Once,
) -> Result<Response, ApiError> {
    let keyed = request.keyed();
    let render = request.renderer(200, |tested: &Tested| TestBody::from(tested.clone()));
    // In a task of its own: a client that goes away does not break off what the endpoint sees.
    let tested =
        tokio::spawn(async move { webhooks::test(&app, keyed, &platform, render).await }).await;
    let panicked = |_| service::Error::Internal("a try-out did not come back".to_owned());
    Ok(respond(tested.map_err(panicked)?))
}
