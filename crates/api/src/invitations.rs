//! Invitations (specification 2.13, 3.4, 4.15; contract 6.13).

use axum::extract::Path;
use axum::response::Response;
use domain::code::Code as SecretCode;
use domain::id::InvitationId;
use domain::invitation::{Invitation, Status};
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use serde::{Deserialize, Serialize};
use service::App;
use service::error::InvitationError;
use service::invitations::{self, Found, NewInvitation};
use service::once::Keyed;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once, ok};
use crate::validate::{Checks, schema_of};
use crate::wire::AmountBody;

/// A new invitation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateInvitation {
    /// UMA address of the customer who invites.
    #[schema(format = "uma-address", max_length = 400, example = "$ada@localhost:8080")]
    inviter_uma: String,
    /// The inviter's first name, which the invited person is shown.
    #[serde(default)]
    #[schema(nullable = false, format = "name", min_length = 1, max_length = 100, example = "Ada")]
    first_name: Option<String>,
    /// The amount that the platform will send to the invitee when it is notified of the claim, in
    /// smallest units of the inviter's primary currency. It is shown, not sent, by this server.
    #[serde(default)]
    #[schema(nullable = false, minimum = 1, maximum = 9_000_000_000_000_000_i64, example = 5000)]
    amount_to_send: Option<i64>,
    /// Until when it can be claimed; for ever when left out.
    #[serde(default)]
    #[schema(nullable = false, format = DateTime, max_length = 64)]
    expires_at: Option<String>,
}

/// A claim.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimInvitation {
    /// UMA address of the invitee: a customer of the platform that claims.
    #[schema(format = "uma-address", max_length = 400, example = "$grace@localhost:8080")]
    invitee_uma: String,
}

schema_of!(CreateInvitation, ClaimInvitation);

/// An invitation.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Invitation)]
pub struct InvitationBody {
    /// Its code: the holder may claim it.
    #[schema(example = "ab9a9hijkmnpqrst")]
    code: String,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// A page for the invited person.
    #[schema(example = "http://localhost:8080/i/ab9a9hijkmnpqrst")]
    url: String,
    /// UMA address of the customer who invites.
    inviter_uma: String,
    /// Its outcome.
    status: &'static str,
    /// When it was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    claimed_at: Option<String>,
    /// Until when it can be claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    expires_at: Option<String>,
    /// UMA address of the claimant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    invitee_uma: Option<String>,
    /// The inviter's first name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    first_name: Option<String>,
    /// The amount that the inviter's platform promises to send after the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    amount_to_send: Option<AmountBody>,
}

impl InvitationBody {
    /// The invitation as it is seen at `now`, with its page under `public_url`.
    pub fn new(invitation: &Invitation, public_url: &str, now: Timestamp) -> Self {
        let draft = invitation.draft();
        let (invitee, claimed_at) = invitation.claim().unzip();
        Self {
            code: draft.code.reveal().to_owned(),
            created_at: draft.created_at.to_string(),
            url: format!("{public_url}/i/{}", draft.code.reveal()),
            inviter_uma: draft.inviter_uma.to_string(),
            status: invitation.status_at(now).name(),
            claimed_at: claimed_at.map(|at| at.to_string()),
            expires_at: draft.expires_at.map(|at| at.to_string()),
            invitee_uma: invitee.map(UmaAddress::to_string),
            first_name: draft.first_name.clone(),
            amount_to_send: draft.amount_to_send.map(AmountBody::from),
        }
    }
}

/// Makes the bodies of one request.
fn body(app: &App, now: Timestamp) -> impl Fn(&Invitation) -> InvitationBody + Send + 'static {
    let app = app.clone();
    move |invitation| InvitationBody::new(invitation, &app.env().public_url, now)
}

impl From<InvitationError> for ApiError {
    fn from(error: InvitationError) -> Self {
        let plain = |code| Self::new(code, error.to_string()).about("code");
        let (status, invitee, expires_at) = match &error {
            InvitationError::NotFound => return plain(Code::InvitationNotFound),
            InvitationError::OfAnother => return plain(Code::Forbidden),
            InvitationError::Over { status, invitee, expires_at } => (status, invitee, expires_at),
        };
        let code = match status {
            Status::Claimed => Code::InvitationAlreadyClaimed,
            Status::Cancelled => Code::InvitationCancelled,
            Status::Expired => Code::InvitationExpired,
            // An open invitation is not over.
            Status::Pending => Code::InternalError,
        };
        let mut refusal = plain(code).with("status", status.name());
        if let Some(invitee) = invitee {
            refusal = refusal.with("inviteeUma", invitee.as_str());
        }
        match (status, expires_at) {
            (Status::Expired, Some(at)) => refusal.with("expirationTime", at.to_string()),
            _ => refusal,
        }
    }
}

/// The invitation that the code in a path opens.
fn opened(app: &App, text: &str) -> Result<InvitationId, ApiError> {
    SecretCode::parse(text)
        .map(|code| app.store().keyring().invitation(&code))
        .ok_or_else(|| service::Error::Invitation(service::error::InvitationError::NotFound).into())
}

impl TryFrom<CreateInvitation> for NewInvitation {
    type Error = ApiError;

    fn try_from(body: CreateInvitation) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let expires_at = checks.time_if("expiresAt", body.expires_at.as_deref());
        checks.finish(Some(Self {
            inviter_uma: body.inviter_uma,
            first_name: body.first_name,
            amount_minor: body.amount_to_send,
            expires_at,
        }))
    }
}

fn invitee(body: ClaimInvitation) -> Result<UmaAddress, ApiError> {
    UmaAddress::parse(&body.invitee_uma).map_err(|error| {
        let reason = error.to_string();
        service::Error::Uma(service::error::UmaError::InvalidAddress {
            address: body.invitee_uma,
            reason,
        })
        .into()
    })
}

/// Create an invitation.
///
/// It is for a customer's friend. The code is a secret of the invitee.
#[utoipa::path(post, path = "/invitations",
    operation_id = "createInvitation", tag = "Invitations", request_body = CreateInvitation,
    responses(
        (status = 201, description = "The invitation, `PENDING`.", body = InvitationBody),
        (status = 410, description = "The inviter was deleted.", body = ErrorBody),
    ))]
pub async fn create(
    Acting(app): Acting,
    request: Once,
    Json(new): Json<CreateInvitation>,
) -> Response {
    let request = request.naming(&[("amount", "amountToSend"), ("umaAddress", "inviterUma")]);
    let new = match new.and_then(NewInvitation::try_from) {
        Ok(new) => new,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let Keyed { platform, ahead, .. } = request.keyed();
    let now = app.now(ahead);
    let (code, body) = (invitations::draw(&app), body(&app, now));
    request.run(201, body, move |unit| invitations::create(unit, platform, &new, &code, now)).await
}

/// Get an invitation.
///
/// Any platform of the same mode that has its code may.
#[utoipa::path(get, path = "/invitations/{invitationCode}",
    operation_id = "getInvitation", tag = "Invitations",
    params(("invitationCode" = String, Path, description = "Code of the invitation.")),
    responses((status = 200, description = "The invitation.", body = InvitationBody)))]
pub async fn get(
    Acting(app): Acting,
    caller: Caller,
    Path(code): Path<String>,
) -> Result<Response, ApiError> {
    let id = opened(&app, &code)?;
    let found = app.store().read(move |view| invitations::find(view, id)).await?;
    let Found { invitation, made_by } = found
        .filter(|found| found.made_by.mode == caller.platform.mode)
        .ok_or(service::Error::Invitation(service::error::InvitationError::NotFound))?;
    Ok(ok(&InvitationBody::new(&invitation, &app.env().public_url, app.now(made_by.ahead))))
}

/// Claim an invitation.
///
/// For a customer of the platform that asks. Any platform that has the code may; the inviter's
/// platform is notified with `INVITATION_CLAIMED`.
#[utoipa::path(post, path = "/invitations/{invitationCode}/claim",
    operation_id = "claimInvitation", tag = "Invitations",
    request_body = ClaimInvitation,
    params(("invitationCode" = String, Path, description = "Code of the invitation.")),
    responses(
        (status = 200, description = "The invitation, `CLAIMED`.", body = InvitationBody),
        (status = 410, description = "The invited customer was deleted.", body = ErrorBody),
    ))]
pub async fn claim(
    Acting(app): Acting,
    request: Once,
    Path(code): Path<String>,
    Json(claim): Json<ClaimInvitation>,
) -> Response {
    let request = request.naming(&[("umaAddress", "inviteeUma")]);
    let parsed = claim.and_then(|claim| Ok((opened(&app, &code)?, invitee(claim)?)));
    let (id, invitee) = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let (claimer, now) = (request.keyed().platform, app.server_now());
    // A claim stays, whatever the time.
    let body = body(&app, now);
    request
        .run(200, body, move |unit| invitations::claim(&app, unit, claimer, id, &invitee, now))
        .await
}

/// Cancel an invitation.
///
/// Only the platform that made it may.
#[utoipa::path(post, path = "/invitations/{invitationCode}/cancel",
    operation_id = "cancelInvitation", tag = "Invitations",
    params(("invitationCode" = String, Path, description = "Code of the invitation.")),
    responses(
        (status = 200, description = "The invitation, `CANCELLED`.", body = InvitationBody),
        (status = 403, description = "Another platform made it.", body = ErrorBody),
    ))]
pub async fn cancel(Acting(app): Acting, request: Once, Path(code): Path<String>) -> Response {
    let id = match opened(&app, &code) {
        Ok(id) => id,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let Keyed { platform, ahead, .. } = request.keyed();
    let now = app.now(ahead);
    let body = body(&app, now);
    request.run(200, body, move |unit| invitations::cancel(unit, platform, id, now)).await
}
