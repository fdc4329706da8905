//! Quotes (specification 2.5, 4.13; contract 6.9).

mod request;

use axum::extract::{Path, Query};
use axum::response::Response;
use domain::id::QuoteId;
use domain::platform::Platform;
use domain::quote::{Quote, Status};
use domain::transaction::{Destination, Source, reference};
use domain::uma_address::UmaAddress;
use ports::rail::Deposit;
use serde::{Deserialize, Serialize};
use service::App;
use service::error::QuoteError;
use service::expiry;
use service::quotes::{self, NewQuote, Quoted};
use store::quotes::QuoteFilter;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once, ok, respond};
use crate::instructions::{InstructionsBody, of_rails};
use crate::page::{Cursors, List};
use crate::strict::BODY;
use crate::transactions::{RateDetailsBody, account_if, owner_if};
use crate::validate::Checks;
use crate::wire::{CurrencyBody, Number};

pub use request::CreateQuote;

/// Where a quote's money comes from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "sourceType")]
#[schema(as = QuotedSource)]
pub enum QuoteSourceBody {
    /// An account.
    #[serde(rename = "ACCOUNT")]
    Account(AccountQuoteSourceBody),
    /// A deposit that is made for this quote.
    #[serde(rename = "REALTIME_FUNDING")]
    RealtimeFunding(RealtimeFundingQuoteSourceBody),
}

/// An account that a quote's money comes from.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QuotedAccountSource)]
pub struct AccountQuoteSourceBody {
    /// The account.
    account_id: String,
    /// The sender; the platform's own id for itself.
    customer_id: String,
}

/// A deposit that is made for a quote.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QuotedRealtimeFundingSource)]
pub struct RealtimeFundingQuoteSourceBody {
    /// Currency of the deposit.
    currency: &'static str,
    /// The sender; the platform's own id for itself.
    customer_id: String,
    /// The blockchain of the deposit, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    crypto_network: Option<&'static str>,
}

/// Where a quote's money goes.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "destinationType")]
#[schema(as = QuotedDestination)]
pub enum QuoteDestinationBody {
    /// An account.
    #[serde(rename = "ACCOUNT")]
    Account(AccountQuoteDestinationBody),
    /// A UMA address.
    #[serde(rename = "UMA_ADDRESS")]
    UmaAddress(UmaQuoteDestinationBody),
}

/// A UMA address that a quote's money goes to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QuotedUmaDestination)]
pub struct UmaQuoteDestinationBody {
    /// The address.
    uma_address: String,
    /// The currency that arrives.
    currency: &'static str,
}

/// An account that a quote's money goes to.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QuotedAccountDestination)]
pub struct AccountQuoteDestinationBody {
    /// The account.
    account_id: String,
}

/// A priced offer with a locked rate (specification 2.5).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Quote)]
pub struct QuoteBody {
    /// System id.
    #[schema(example = "Quote:019542f5-b3e7-7d02-8000-000000000006")]
    id: String,
    /// Where it is in its life.
    status: &'static str,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// Until when it can be executed or funded.
    #[schema(format = DateTime)]
    expires_at: String,
    /// Where money comes from.
    source: QuoteSourceBody,
    /// Where it goes.
    destination: QuoteDestinationBody,
    /// The currency that pays.
    sending_currency: CurrencyBody,
    /// The currency that is paid.
    receiving_currency: CurrencyBody,
    /// Charged in total, fees included, in the smallest sending unit.
    total_sending_amount: i64,
    /// Delivered, in the smallest receiving unit.
    total_receiving_amount: i64,
    /// Sending major units per one receiving major unit.
    #[schema(value_type = f64, example = 1.08695652)]
    exchange_rate: Number,
    /// All fees, inside the amount charged, in the smallest sending unit.
    #[schema(minimum = 0)]
    fees_included: i64,
    /// The transaction, which exists from now on.
    transaction_id: String,
    /// How to make the deposit; only on quotes that are funded in real time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    payment_instructions: Vec<InstructionsBody>,
    /// Fee parts.
    rate_details: RateDetailsBody,
}

impl QuoteBody {
    fn new(app: &App, platform: &Platform, quote: &Quote) -> Self {
        let draft = quote.draft();
        let price = &draft.price;
        let customer_id = draft.owner.to_string();
        let reference = reference(draft.transaction);
        let (source, payment_instructions) = match &draft.source {
            Source::Account { account, .. } => {
                let account_id = account.to_string();
                let source = AccountQuoteSourceBody { account_id, customer_id };
                (QuoteSourceBody::Account(source), Vec::new())
            }
            Source::RealtimeFunding { currency, network } => {
                let source = RealtimeFundingQuoteSourceBody {
                    currency: currency.code(),
                    customer_id,
                    crypto_network: *network,
                };
                let rails = app.env().rails(platform.mode);
                let deposit = Deposit {
                    currency: *currency,
                    reference: &reference,
                    amount: Some(price.sent.money()),
                    since: draft.transaction.created_at(),
                };
                let instructions = of_rails(rails, &deposit, *network, None);
                (QuoteSourceBody::RealtimeFunding(source), instructions)
            }
            // Quotes are paid by accounts and deposits; an address pays from one of them.
            Source::Uma { address } => {
                let account_id = address.to_string();
                let source = AccountQuoteSourceBody { account_id, customer_id };
                (QuoteSourceBody::Account(source), Vec::new())
            }
        };
        let destination = match &draft.destination {
            Destination::Account { account, .. } => {
                let account_id = account.to_string();
                QuoteDestinationBody::Account(AccountQuoteDestinationBody { account_id })
            }
            Destination::Uma { address, currency } => {
                let (uma_address, currency) = (address.to_string(), currency.code());
                let destination = UmaQuoteDestinationBody { uma_address, currency };
                QuoteDestinationBody::UmaAddress(destination)
            }
        };
        Self {
            id: draft.id.to_string(),
            status: quote.status().name(),
            created_at: quote.created_at().to_string(),
            expires_at: draft.expires_at.to_string(),
            source,
            destination,
            sending_currency: price.sent.currency().into(),
            receiving_currency: price.received.currency().into(),
            total_sending_amount: price.sent.minor(),
            total_receiving_amount: price.received.minor(),
            exchange_rate: Number(price.rate.value()),
            fees_included: price.total_fees().minor(),
            transaction_id: draft.transaction.to_string(),
            payment_instructions,
            rate_details: RateDetailsBody::of_quote(draft),
        }
    }
}

/// The body of a quote as a use case gives it.
fn body(app: &App) -> impl Fn(&Quoted) -> QuoteBody + Send + use<> {
    let app = app.clone();
    move |quoted| QuoteBody::new(&app, &quoted.platform, &quoted.quote)
}

/// Create a quote.
///
/// Prices a payment and locks the rate until the quote expires. Nothing is debited before it is
/// executed or, funded in real time, before its deposit arrives.
#[utoipa::path(post, path = "/quotes",
    operation_id = "createQuote", tag = "Quotes", request_body = CreateQuote,
    responses(
        (status = 201, description = "The quote.", body = QuoteBody),
        (status = 404, description = "There is no such account, customer or lookup.",
            body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
        (status = 412, description = "The receiver's institution has another version of UMA.",
            body = ErrorBody),
        (status = 424, description = "The receiver's institution gave no invoice that can be used.",
            body = ErrorBody),
    ))]
pub async fn create(Acting(app): Acting, request: Once, Json(new): Json<CreateQuote>) -> Response {
    let request = request.naming(&NAMES_OF_CREATE);
    let new = match new.and_then(NewQuote::try_from) {
        Ok(new) => new,
        Err(refusal) => return request.refuse(refusal).await,
    };
    respond(quotes::create(&app, request.keyed(), new, request.renderer(201, body(&app))).await)
}

/// The fields of a new quote that refusals are about.
const NAMES_OF_CREATE: [(&str, &str); 4] = [
    ("amount", "lockedCurrencyAmount"),
    ("umaAddress", "destination.umaAddress"),
    ("accountId", "source.accountId"),
    ("currency", "destination.currency"),
];

/// The request names its quote and nothing else.
const NAMES_OF_EXECUTE: [(&str, &str); 5] = [
    ("amount", "quoteId"),
    ("umaAddress", "quoteId"),
    ("accountId", "quoteId"),
    ("currency", "quoteId"),
    (BODY, "quoteId"),
];

impl From<QuoteError> for ApiError {
    fn from(error: QuoteError) -> Self {
        let plain = |code| Self::new(code, error.to_string());
        match &error {
            QuoteError::NotFound { id } => {
                plain(Code::QuoteNotFound).with("quoteId", id.to_string())
            }
            QuoteError::Expired { id, expires_at } => plain(Code::QuoteExpired)
                .with("quoteId", id.to_string())
                .with("expiresAt", expires_at.to_string()),
            QuoteError::NotPending { id, status } => {
                plain(Code::Conflict).with("quoteId", id.to_string()).with("status", status.name())
            }
            QuoteError::FundedInRealTime { id } | QuoteError::NotFundedInRealTime { id } => {
                plain(Code::InvalidInput).with("quoteId", id.to_string()).with("field", "quoteId")
            }
        }
    }
}

/// The quote that a path names.
fn id(text: &str) -> Result<QuoteId, ApiError> {
    QuoteId::parse(text).map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        ApiError::new(Code::QuoteNotFound, format!("there is no quote {shown}"))
            .with("quoteId", shown)
    })
}

/// A UMA address in a filter.
fn address_if(checks: &mut Checks, field: &str, text: Option<&str>) -> Option<UmaAddress> {
    text.and_then(|text| checks.take(field, UmaAddress::parse(text)))
}

/// Which quotes are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListQuotes {
    /// Of this sender; the platform's own id for its own quotes.
    customer_id: Option<String>,
    /// From this account.
    sending_account_id: Option<String>,
    /// To this account.
    receiving_account_id: Option<String>,
    /// From this UMA address.
    sending_uma_address: Option<String>,
    /// To this UMA address.
    receiving_uma_address: Option<String>,
    /// In this status.
    status: Option<String>,
    /// Made then or later.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Made then or earlier.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// Rows of a page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List quotes.
///
/// The newest come first.
#[utoipa::path(get, path = "/quotes",
    operation_id = "listQuotes", tag = "Quotes", params(ListQuotes),
    responses((status = 200, description = "A page of quotes.", body = List<QuoteBody>)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListQuotes>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let platform = caller.platform;
    let cursors = Cursors::new(&app, platform.id, "quotes");
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, Default::default());
    let (sending, receiving) =
        (query.sending_account_id.as_deref(), query.receiving_account_id.as_deref());
    let (from, to) = (query.sending_uma_address.as_deref(), query.receiving_uma_address.as_deref());
    let filter = QuoteFilter {
        owner: owner_if(&mut checks, "customerId", query.customer_id.as_deref()),
        source_account: account_if(&mut checks, "sendingAccountId", sending),
        destination_account: account_if(&mut checks, "receivingAccountId", receiving),
        receiver: address_if(&mut checks, "receivingUmaAddress", to),
        status: checks.named_if("status", query.status.as_deref(), Status::from_name),
        created_after: checks.time_if("createdAfter", query.created_after.as_deref()),
        created_before: checks.time_if("createdBefore", query.created_before.as_deref()),
        sender: address_if(&mut checks, "sendingUmaAddress", from),
    };
    checks.done()?;
    let id = platform.id;
    expiry::catch_up(&app, id).await?;
    let page = app.store().read(move |view| view.quotes(id, &filter, page)).await?;
    let body = |quote: &Quote| QuoteBody::new(&app, &platform, quote);
    Ok(ok(&cursors.list(page, |quote| quote.id().uuid(), body)))
}

/// Get a quote.
#[utoipa::path(get, path = "/quotes/{quoteId}",
    operation_id = "getQuote", tag = "Quotes",
    params(("quoteId" = String, Path, description = "System id of the quote.")),
    responses((status = 200, description = "The quote.", body = QuoteBody)))]
pub async fn get(
    Acting(app): Acting,
    caller: Caller,
    Path(quote): Path<String>,
) -> Result<Response, ApiError> {
    let id = id(&quote)?;
    let quote = expiry::quote(&app, &caller.platform, id).await?;
    Ok(ok(&QuoteBody::new(&app, &caller.platform, &quote)))
}

/// Execute a quote.
///
/// The source is debited and the transfer starts. A second call is refused.
#[utoipa::path(post, path = "/quotes/{quoteId}/execute",
    operation_id = "executeQuote", tag = "Quotes",
    params(("quoteId" = String, Path, description = "System id of the quote.")),
    responses(
        (status = 200, description = "The quote, `PROCESSING` or, between internal accounts, \
            `COMPLETED`.", body = QuoteBody),
        (status = 400, description = "The source has too little money, or the quote is funded in \
            real time.", body = ErrorBody),
        (status = 409, description = "The quote was executed before, or has expired.",
            body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn execute(Acting(app): Acting, request: Once, Path(quote): Path<String>) -> Response {
    let request = request.naming(&NAMES_OF_EXECUTE);
    let id = match id(&quote) {
        Ok(id) => id,
        Err(refusal) => return request.refuse(refusal).await,
    };
    respond(quotes::execute(&app, request.keyed(), id, request.renderer(200, body(&app))).await)
}
