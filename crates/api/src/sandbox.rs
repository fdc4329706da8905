//! Routes of the sandbox: making money arrive (contract 6.18) and time pass
//! (docs/decisions/0013). Each of these routes makes an input, and the same code that takes real
//! ones does the rest.

use axum::extract::Path;
use axum::response::Response;
use domain::clock::{Advance, Ahead};
use domain::id::{InternalAccountId, QuoteId};
use domain::platform::{Mode, Platform};
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use service::clock;
use service::funding::{self, QuoteDeposit};
use service::uma::tester::{self, TesterOrder};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once, ok};
use crate::internal_accounts::{AccountView, InternalAccountBody};
use crate::receivers::address;
use crate::strict::BODY;
use crate::transactions::TransactionBody;
use crate::validate::{Checks, schema_of};
use crate::webhooks::{self, TestBody};
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

/// How far a clock is moved on: one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvanceClock {
    /// By this many seconds.
    #[serde(default)]
    #[schema(nullable = false, minimum = 1, maximum = 315_619_200, example = 360)]
    advance_by_seconds: Option<i64>,
    /// To this instant, which must not be before the one that the clock shows.
    #[serde(default)]
    #[schema(nullable = false, format = DateTime, max_length = 40)]
    advance_to: Option<String>,
}

schema_of!(FundInternalAccount, SendForQuote, AdvanceClock, ReceiveUmaPayment);

impl AdvanceClock {
    fn checked(&self) -> Result<Advance, ApiError> {
        let mut checks = Checks::new();
        let to = checks.time_if("advanceTo", self.advance_to.as_deref());
        if self.advance_by_seconds.is_some() == self.advance_to.is_some() {
            checks.refuse("advanceBySeconds", "give either advanceBySeconds or advanceTo");
        }
        let by = self.advance_by_seconds.map(Advance::BySeconds);
        checks.finish(by.or(to.map(Advance::To)))
    }
}

/// A platform's clock.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Clock)]
pub struct ClockBody {
    /// The time for everything of this platform.
    #[schema(format = DateTime)]
    now: String,
    /// The time of the server, and of every platform whose clock was not moved.
    #[schema(format = DateTime)]
    server_time: String,
    /// How far the first is ahead of the second.
    #[schema(minimum = 0)]
    ahead_milliseconds: i64,
}

impl ClockBody {
    fn new(platform: &Platform, server_now: Timestamp) -> Self {
        Self {
            now: platform.ahead.shows(server_now).to_string(),
            server_time: server_now.to_string(),
            ahead_milliseconds: platform.ahead.millis(),
        }
    }
}

/// A payment of another institution to a customer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiveUmaPayment {
    /// An address of the sandbox, such as `$success.usd@sandbox.uma.money`.
    #[schema(max_length = 400, example = "$success.usd@sandbox.uma.money")]
    sender_uma_address: String,
    /// The customer's address; may be left out with a `customerId`.
    #[serde(default)]
    #[schema(nullable = false, max_length = 400)]
    receiver_uma_address: Option<String>,
    /// The customer; may be left out with a `receiverUmaAddress`.
    #[serde(default)]
    #[schema(nullable = false, max_length = 80)]
    customer_id: Option<String>,
    /// The currency that shall arrive.
    #[schema(max_length = 10, example = "USD")]
    receiving_currency_code: String,
    /// The amount that shall arrive, in its smallest unit.
    #[schema(minimum = 1, maximum = 9_000_000_000_000_000_i64, example = 5000)]
    receiving_currency_amount: i64,
}

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

/// Fund an internal account.
///
/// Makes a deposit to it, which is credited at once.
#[utoipa::path(post, path = "/sandbox/internal-accounts/{accountId}/fund",
    operation_id = "fundInternalAccount", tag = "Sandbox",
    request_body = FundInternalAccount,
    params(("accountId" = String, Path, description = "System id of the internal account.")),
    responses(
        (status = 200, description = "The account with its new balance.",
            body = InternalAccountBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn fund(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Path(account): Path<String>,
    Json(body): Json<FundInternalAccount>,
) -> Response {
    let parsed = only_sandbox(&caller.platform).and(body).and_then(|body| {
        let id = InternalAccountId::parse(&account).map_err(|_| ApiError::no_account(&account))?;
        Ok((id, body.amount))
    });
    let (id, amount) = match parsed {
        Ok(parsed) => parsed,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let platform = caller.platform;
    let now = app.now(platform.ahead);
    let transaction = app.new_id(platform.ahead, now);
    let shape = {
        let (app, platform) = (app.clone(), platform.clone());
        move |account: &AccountView| {
            InternalAccountBody::new(app.env().rails(platform.mode), account)
        }
    };
    request
        .run(200, shape, move |unit| {
            let account = funding::deposit(&app, unit, platform.id, id, amount, transaction, now)?;
            Ok(AccountView::after(unit, &account.owner, &platform, account.currency)?)
        })
        .await
}

/// Send the deposit of a quote.
///
/// For a quote that is funded in real time and waits for it. Another amount than the quote's makes
/// it fail, as a real deposit would.
#[utoipa::path(post, path = "/sandbox/send",
    operation_id = "sendQuoteDeposit", tag = "Sandbox", request_body = SendForQuote,
    responses(
        (status = 200, description = "The quote's transaction.", body = TransactionBody),
        (status = 404, description = "There is no such quote.", body = ErrorBody),
        (status = 409, description = "The quote has its deposit already.", body = ErrorBody),
    ))]
pub async fn send(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Json(body): Json<SendForQuote>,
) -> Response {
    let request = request.naming(&[
        ("amount", "currencyAmount"),
        ("currency", "currencyCode"),
        (BODY, "quoteId"),
    ]);
    let platform = caller.platform;
    let now = app.now(platform.ahead);
    let parsed = only_sandbox(&platform).and(body).and_then(|body| {
        let mut checks = Checks::new();
        let quote: Option<QuoteId> = checks.id("quoteId", &body.quote_id);
        let quote = checks.finish(quote)?;
        Ok(QuoteDeposit {
            quote,
            amount_minor: body.currency_amount,
            currency: currency(&body.currency_code)
                .map_err(|refusal| refusal.at("currencyCode"))?,
            late: app.new_id(platform.ahead, now),
            other_side: app.new_id(Ahead::NONE, app.server_now()),
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

/// Get the sandbox clock.
///
/// The platform's own.
#[utoipa::path(get, path = "/sandbox/clock",
    operation_id = "getSandboxClock", tag = "Sandbox",
    responses((status = 200, description = "The clock.", body = ClockBody)))]
pub async fn clock(Acting(app): Acting, caller: Caller) -> Result<Response, ApiError> {
    only_sandbox(&caller.platform)?;
    Ok(ok(&ClockBody::new(&caller.platform, app.server_now())))
}

/// Advance the sandbox clock.
///
/// It goes on from there, and never back. Everything due by then has happened when this is
/// answered: quotes expire, payments settle. Only what takes longer than five seconds goes on
/// behind the answer, and webhooks follow it. No other platform is affected.
#[utoipa::path(post, path = "/sandbox/clock",
    operation_id = "advanceSandboxClock", tag = "Sandbox", request_body = AdvanceClock,
    responses((status = 200, description = "The clock.", body = ClockBody)))]
pub async fn advance_clock(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Json(body): Json<AdvanceClock>,
) -> Response {
    let parsed = only_sandbox(&caller.platform).and(body);
    let advance = match parsed.and_then(|body| body.checked()) {
        Ok(advance) => advance,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let (server_now, platform) = (app.server_now(), caller.platform.id);
    let shape = move |platform: &Platform| ClockBody::new(platform, server_now);
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        clock::advance(unit, platform, advance, server_now)
    };
    let response = request.run(200, shape, work).await;
    if response.status().is_success() {
        clock::settle(&app, platform).await;
    }
    response
}

/// Receive a UMA payment.
///
/// Makes another institution pay a customer. The payment takes the way of a real one: the platform
/// decides, then the money comes over Lightning.
#[utoipa::path(post, path = "/sandbox/uma/receive",
    operation_id = "receiveUmaPayment", tag = "Sandbox",
    request_body = ReceiveUmaPayment,
    responses(
        (status = 200, description = "The payment.", body = TransactionBody),
        (status = 404, description = "There is no such sender, or no such receiver.",
            body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
        (status = 412, description = "The sender's institution has another version of UMA.",
            body = ErrorBody),
        (status = 424, description = "The sender's institution gave no answer that can be used.",
            body = ErrorBody),
    ))]
pub async fn receive(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
    Json(body): Json<ReceiveUmaPayment>,
) -> Response {
    let request = request.naming(&[
        ("amount", "receivingCurrencyAmount"),
        ("currency", "receivingCurrencyCode"),
        ("umaAddress", "receiverUmaAddress"),
    ]);
    let parsed = only_sandbox(&caller.platform).and(body).and_then(|body| {
        let sender = address("senderUmaAddress", &body.sender_uma_address)?;
        let receiver = body.receiver_uma_address.as_deref();
        let receiver = receiver.map(|text| address("receiverUmaAddress", text)).transpose()?;
        let mut checks = Checks::new();
        let customer_id = checks.id_if("customerId", body.customer_id.as_deref());
        checks.done()?;
        Ok(TesterOrder {
            sender,
            receiver,
            customer_id,
            currency: currency(&body.receiving_currency_code)
                .map_err(|refusal| refusal.at("receivingCurrencyCode"))?,
            amount_minor: body.receiving_currency_amount,
        })
    });
    let order = match parsed {
        Ok(order) => order,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let platform = caller.platform;
    let now = app.now(platform.ahead);
    let id = app.new_id(platform.ahead, now);
    let requested = tester::request(&app, &platform, &order).await;
    let body = TransactionBody::of(&app, &platform);
    let platform = platform.id;
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        tester::receive(&app, unit, platform, (&order, &requested), (id, now))
    };
    request.run(200, body, work).await
}

/// Send a test webhook from the sandbox.
///
/// Sends an event of the type `TEST` to the platform's endpoint, once, and shows what it answered.
#[utoipa::path(post, path = "/sandbox/webhooks/test",
    operation_id = "sendSandboxTestWebhook", tag = "Sandbox",
    responses(
        (status = 200, description = "What the endpoint answered.", body = TestBody),
        (status = 400, description = "There is no endpoint, or it did not answer.",
            body = ErrorBody),
    ))]
pub async fn test_webhook(
    Acting(app): Acting,
    caller: Caller,
    request: Once,
) -> Result<Response, ApiError> {
    only_sandbox(&caller.platform)?;
    webhooks::try_out(app, caller.platform, request).await
}
