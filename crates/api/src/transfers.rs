//! Transfers in one currency (specification 4.1; contract 6.11).

use axum::response::Response;
use domain::id::{ExternalAccountId, InternalAccountId};
use domain::rail::Rail;
use domain::transaction::{Direction, PURPOSES, RailRequest};
use serde::Deserialize;
use service::App;
use service::transfers::{self, Transfer};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once};
use crate::transactions::TransactionBody;
use crate::validate::{Checks, schema_of};
use crate::wire::currency;

/// Wishes for the rail, as requests have them.
#[derive(Debug)]
pub(crate) struct Wishes {
    /// `remittanceInformation`.
    pub remittance: Option<String>,
    /// `purposeOfPayment`.
    pub purpose: Option<String>,
    /// `destination.paymentRail`.
    pub rail: Option<String>,
}

impl Wishes {
    /// The same with names that are known.
    pub(crate) fn checked(self, checks: &mut Checks) -> RailRequest {
        let purpose = checks.named_if("purposeOfPayment", self.purpose.as_deref(), |name| {
            PURPOSES.into_iter().find(|known| *known == name)
        });
        let rail =
            checks.named_if("destination.paymentRail", self.rail.as_deref(), Rail::from_name);
        RailRequest { remittance: self.remittance, purpose, rail }
    }
}

/// Adds the wishes of a payment that any rail may be asked for to the body of a request.
macro_rules! with_wishes {
    ($(#[$about:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$about])*
        pub struct $name {
            $($fields)*
            /// A text for the other side, which goes with the payment on its rail.
            #[serde(default)]
            #[schema(nullable = false, format = "label", min_length = 1, max_length = 80)]
            remittance_information: Option<String>,
            /// The purpose of the payment, which goes to the rail.
            #[serde(default)]
            #[schema(nullable = false, max_length = 64)]
            purpose_of_payment: Option<String>,
        }
    };
}
pub(crate) use with_wishes;

/// One end of a transfer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferEnd {
    /// The account.
    #[schema(max_length = 80)]
    account_id: String,
    /// The account's currency; checked if it is given.
    #[serde(default)]
    #[schema(nullable = false, max_length = 10)]
    currency: Option<String>,
}

/// The external account that a transfer pays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PayoutEnd {
    /// The account.
    #[schema(max_length = 80)]
    account_id: String,
    /// The account's currency; checked if it is given.
    #[serde(default)]
    #[schema(nullable = false, max_length = 10)]
    currency: Option<String>,
    /// The rail that pays, one of the account's `paymentRails`; chosen when left out.
    #[serde(default)]
    #[schema(nullable = false, max_length = 64, example = "ACH")]
    payment_rail: Option<String>,
}

with_wishes! {
    /// A transfer from an internal to an external account.
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct TransferOut {
        /// An internal account.
        source: TransferEnd,
        /// An external account in the same currency.
        destination: PayoutEnd,
        /// Smallest units of the accounts' currency; greater than 0.
        #[serde(default)]
        #[schema(
            nullable = false,
            minimum = 1,
            maximum = 9_000_000_000_000_000_i64,
            example = 12550
        )]
        amount: Option<i64>,
        /// A memo.
        #[serde(default)]
        #[schema(nullable = false, max_length = 500)]
        description: Option<String>,
    }
}

with_wishes! {
    /// A transfer from an external to an internal account.
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct TransferIn {
        /// An external account that money can be pulled from.
        source: TransferEnd,
        /// An internal account in the same currency.
        destination: TransferEnd,
        /// Smallest units of the accounts' currency; greater than 0.
        #[serde(default)]
        #[schema(
            nullable = false,
            minimum = 1,
            maximum = 9_000_000_000_000_000_i64,
            example = 12550
        )]
        amount: Option<i64>,
        /// A memo.
        #[serde(default)]
        #[schema(nullable = false, max_length = 500)]
        description: Option<String>,
    }
}

schema_of!(TransferOut, TransferIn);

/// The data of both bodies, with the name of the field of each end.
struct Parts {
    internal: (&'static str, TransferEnd),
    external: (&'static str, TransferEnd),
    amount: Option<i64>,
    description: Option<String>,
    wishes: Wishes,
}

impl From<TransferOut> for Parts {
    fn from(body: TransferOut) -> Self {
        let PayoutEnd { account_id, currency, payment_rail } = body.destination;
        Self {
            internal: ("source", body.source),
            external: ("destination", TransferEnd { account_id, currency }),
            amount: body.amount,
            description: body.description,
            wishes: Wishes {
                remittance: body.remittance_information,
                purpose: body.purpose_of_payment,
                rail: payment_rail,
            },
        }
    }
}

impl From<TransferIn> for Parts {
    fn from(body: TransferIn) -> Self {
        Self {
            internal: ("destination", body.destination),
            external: ("source", body.source),
            amount: body.amount,
            description: body.description,
            wishes: Wishes {
                remittance: body.remittance_information,
                purpose: body.purpose_of_payment,
                rail: None,
            },
        }
    }
}

impl TryFrom<Parts> for Transfer {
    type Error = ApiError;

    fn try_from(parts: Parts) -> Result<Self, ApiError> {
        let (internal_field, internal) = parts.internal;
        let (external_field, external) = parts.external;
        let mut checks = Checks::new();
        let internal_id: Option<InternalAccountId> =
            checks.id(&format!("{internal_field}.accountId"), &internal.account_id);
        let external_id: Option<ExternalAccountId> =
            checks.id(&format!("{external_field}.accountId"), &external.account_id);
        let rail_request = parts.wishes.checked(&mut checks);
        let (internal_id, external_id) = checks.finish(internal_id.zip(external_id))?;
        let named = [(internal_field, internal.currency), (external_field, external.currency)];
        let mut currencies = Vec::new();
        for (side, code) in named {
            let Some(code) = code else { continue };
            let found = currency(&code);
            currencies.push(found.map_err(|refusal| refusal.at(&format!("{side}.currency")))?);
        }
        if let [left, right] = currencies[..]
            && left != right
        {
            let message = "source and destination must have one currency";
            return Err(ApiError::new(Code::InvalidCurrency, message).at("destination.currency"));
        }
        let amount_minor = parts.amount.ok_or_else(|| {
            ApiError::new(Code::InvalidAmount, "amount: is required").with("field", "amount")
        })?;
        Ok(Self {
            internal: internal_id,
            external: external_id,
            amount_minor,
            currency: currencies.first().copied(),
            description: parts.description,
            rail_request,
        })
    }
}

/// Pay out to an external account.
///
/// The money of an internal account is set aside at once; the transaction is `COMPLETED` when the
/// rail has delivered it.
#[utoipa::path(post, path = "/transfer-out",
    operation_id = "createTransferOut", tag = "Transfers", request_body = TransferOut,
    responses(
        (status = 201, description = "The transaction, `PENDING`.", body = TransactionBody),
        (status = 404, description = "There is no such account.", body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn transfer_out(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Json(body): Json<TransferOut>,
) -> Response {
    let transfer = body.and_then(|body| Transfer::try_from(Parts::from(body)));
    run(
        app,
        caller,
        request.naming(&[("accountId", "destination.accountId")]),
        transfer,
        Direction::Outgoing,
    )
    .await
}

/// Pull money from an external account.
///
/// It goes to an internal account, and is available when the transaction is `COMPLETED`.
#[utoipa::path(post, path = "/transfer-in",
    operation_id = "createTransferIn", tag = "Transfers", request_body = TransferIn,
    responses(
        (status = 201, description = "The transaction, `PENDING`.", body = TransactionBody),
        (status = 404, description = "There is no such account.", body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn transfer_in(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Json(body): Json<TransferIn>,
) -> Response {
    let transfer = body.and_then(|body| Transfer::try_from(Parts::from(body)));
    run(
        app,
        caller,
        request.naming(&[("accountId", "source.accountId")]),
        transfer,
        Direction::Incoming,
    )
    .await
}

async fn run(
    app: App,
    caller: Caller,
    request: Once,
    transfer: Result<Transfer, ApiError>,
    way: Direction,
) -> Response {
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let (ahead, platform) = (caller.platform.ahead, caller.platform.id);
    let now = app.now(ahead);
    let id = app.new_id(ahead, now);
    let body = TransactionBody::of(&app, &caller.platform);
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        transfers::transfer(&app, unit, platform, &transfer, way, id, now)
    };
    request.run(201, body, work).await
}
