//! What only the sandbox has: making money arrive (contract 6.18). Each of these routes makes an
//! input, a deposit, and the same code that takes real ones does the rest.

use axum::extract::{Path, State};
use axum::response::Response;
use domain::id::{InternalAccountId, QuoteId};
use domain::platform::{Mode, Platform};
use domain::time::Timestamp;
use serde::Deserialize;
use service::App;
use service::funding::{self, QuoteDeposit};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Json, Once};
use crate::internal_accounts::{AccountView, InternalAccountBody};
use crate::transactions::TransactionBody;
use crate::validate::{Checks, schema_of};
use crate::wire::currency;

/// A deposit to an internal account.
#[derive(Debug, Deserialize, ToSchema)]
pub struct FundInternalAccount {
    /// Smallest units of the account's currency.
    #[schema(minimum = 1, maximum = 100_000_000_000_i64, example = 100000)]
    amount: i64,
}

/// A deposit for a quote that is funded in real time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SendForQuote {
    /// The quote.
    #[schema(max_length = 80)]
    quote_id: String,
    /// Currency of the deposit.
    #[schema(max_length = 10, example = "USD")]
    currency_code: String,
    /// Smallest units; what the quote asks for when left out.
    #[serde(default)]
    #[schema(nullable = false, minimum = 1, maximum = 9_000_000_000_000_000_i64)]
    currency_amount: Option<i64>,
}

schema_of!(FundInternalAccount, SendForQuote);

/// Refuses a platform whose money is real (contract 1.2).
fn only_sandbox(platform: &Platform) -> Result<(), ApiError> {
    match platform.mode {
        Mode::Sandbox => Ok(()),
        Mode::Live => {
            let message = "this is for sandbox platforms only; use a token of one";
            Err(ApiError::new(Code::Forbidden, message))
        }
    }
}

/// Makes a deposit to an internal account, which is credited at once.
#[utoipa::path(post, path = "/sandbox/internal-accounts/{accountId}/fund", tag = "Sandbox",
    request_body = FundInternalAccount,
    params(("accountId" = String, Path, description = "System id of the internal account.")),
    responses(
        (status = 200, description = "The account with its new balance.",
            body = InternalAccountBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn fund(
    State(app): State<App>,
    caller: Caller,
    request: Once,
    Path(account): Path<String>,
    Json(body): Json<FundInternalAccount>,
) -> Response {
    let parsed = only_sandbox(&caller.platform).and(body).and_then(|body| {
        let id = InternalAccountId::parse(&account).map_err(|_| {
            let id: String = account.chars().take(80).collect();
            ApiError::from(service::Error::AccountNotFound { id })
        })?;
        Ok((id, body.amount))
    });
    let (id, amount) = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let (now, platform) = (app.now(), caller.platform);
    let transaction = app.new_id(now);
    let shape = {
        let (app, platform) = (app.clone(), platform.clone());
        move |account: &AccountView| InternalAccountBody::new(&app, &platform, account)
    };
    request
        .run(200, shape, move |unit| {
            let account = funding::deposit(&app, unit, platform.id, id, amount, transaction, now)?;
            let created_at: Timestamp = account.owner.created_at(&platform);
            Ok(AccountView::after(unit, account.owner.owner(), created_at, account.currency)?)
        })
        .await
}

/// Makes the deposit that a quote which is funded in real time waits for. Another amount than the
/// quote's makes it fail, as a real deposit would.
#[utoipa::path(post, path = "/sandbox/send", tag = "Sandbox", request_body = SendForQuote,
    responses(
        (status = 200, description = "The quote's transaction.", body = TransactionBody),
        (status = 404, description = "There is no such quote.", body = ErrorBody),
        (status = 409, description = "The quote has its deposit already.", body = ErrorBody),
    ))]
pub async fn send(
    State(app): State<App>,
    caller: Caller,
    request: Once,
    Json(body): Json<SendForQuote>,
) -> Response {
    let (now, platform) = (app.now(), caller.platform);
    let parsed = only_sandbox(&platform).and(body).and_then(|body| {
        let mut checks = Checks::new();
        let quote: Option<QuoteId> = checks.id("quoteId", &body.quote_id);
        let quote = checks.finish(quote)?;
        Ok(QuoteDeposit {
            quote,
            amount_minor: body.currency_amount,
            currency: currency(&body.currency_code)?,
            late: app.new_id(now),
        })
    });
    let deposit = match parsed {
        Ok(deposit) => deposit,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let body = TransactionBody::of(&app, &platform);
    let platform = platform.id;
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        funding::fund_quote(&app, unit, platform, deposit, now)
    };
    request.run(200, body, work).await
}
