//! Links by which customers prove who they are (contract 6.4).

use axum::extract::Query;
use axum::response::Response;
use domain::kyc::IdentityCheck;
use serde::{Deserialize, Serialize};
use service::identity::{self, LinkRequest};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{Acting, ok};
use crate::validate::{Checks, is_web_address};

/// For whom a link is made.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct MakeKycLink {
    /// The platform's own name for the customer. One that has no customer yet gets one.
    #[param(required = true, min_length = 1, max_length = 255)]
    platform_customer_id: Option<String>,
    /// Where the person goes afterwards: an absolute http or https URL.
    #[param(max_length = 2048)]
    redirect_uri: Option<String>,
}

/// A link that a person follows to prove who it is. It works once, and for a day.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = KycLink)]
pub struct KycLinkBody {
    /// The link.
    #[schema(example = "http://localhost:8080/kyc/ab9a9hijkmnpqrst")]
    kyc_url: String,
    /// The platform's own name for the customer.
    platform_customer_id: String,
    /// System id of the customer.
    #[schema(example = "Customer:019542f5-b3e7-7d02-8000-000000000000")]
    customer_id: String,
}

/// Characters of a platform's name for a customer.
const NAME_MAX: usize = 255;

/// Characters of an address of the web.
const URL_MAX: usize = 2_048;

impl TryFrom<MakeKycLink> for LinkRequest {
    type Error = ApiError;

    fn try_from(query: MakeKycLink) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let name = query.platform_customer_id.filter(|name| !name.is_empty());
        match name.as_deref().map(|name| name.chars().count()) {
            None => checks.refuse("platformCustomerId", "is required"),
            Some(length) if length > NAME_MAX => {
                let message = format!("must have at most {NAME_MAX} characters");
                checks.refuse("platformCustomerId", message);
            }
            Some(_) => {}
        }
        if let Some(uri) = &query.redirect_uri
            && (uri.len() > URL_MAX || !is_web_address(uri))
        {
            let message = "must be an absolute http or https URL without credentials, with a port \
                           up to 65535 where it has one";
            checks.refuse("redirectUri", message);
        }
        checks.finish(name.map(|platform_customer_id| Self {
            platform_customer_id,
            redirect_uri: query.redirect_uri,
        }))
    }
}

/// Get an identity check link.
///
/// A customer proves by it who it is. While such a link is open, asking again gives the same one.
/// The customer cannot move money before its identity is approved.
#[utoipa::path(get, path = "/customers/kyc-link",
    operation_id = "getKycLink", tag = "Customers", params(MakeKycLink),
    responses(
        (status = 200, description = "The link.", body = KycLinkBody),
        (status = 409, description = "The identity is decided, or being reviewed.",
            body = ErrorBody),
    ))]
pub async fn link(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<MakeKycLink>,
) -> Result<Response, ApiError> {
    let request = LinkRequest::try_from(query)?;
    let platform_customer_id = request.platform_customer_id.clone();
    let check: IdentityCheck = identity::link(&app, &caller.platform, request).await?;
    let draft = check.draft();
    Ok(ok(&KycLinkBody {
        kyc_url: format!("{}/kyc/{}", app.env().public_url, draft.code.reveal()),
        platform_customer_id,
        customer_id: draft.customer.to_string(),
    }))
}
