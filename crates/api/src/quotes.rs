//! Quotes (specification 2.5, 4.13; contract 6.9).

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use domain::account_info::{AccountType, types};
use domain::id::{ExternalAccountId, InternalAccountId, Kind, LookupId, QuoteId, kind};
use domain::platform::Platform;
use domain::quote::{PURPOSES, Quote, Status};
use domain::transaction::{AccountRef, Destination, Source, reference};
use domain::uma_address::UmaAddress;
use ports::rail::Deposit;
use serde::{Deserialize, Serialize};
use service::App;
use service::error::QuoteError;
use service::expiry;
use service::quotes::{self, NewQuote, Quoted};
use service::uma::ToUma;
use store::quotes::QuoteFilter;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::external_accounts::CreateExternalAccount;
use crate::extract::{Json, Once, ok, respond};
use crate::instructions::{InstructionsBody, of_rail};
use crate::page::{Cursors, List};
use crate::receivers::address;
use crate::strict::BODY;
use crate::transactions::{Facts, RateDetailsBody, account_if, owner_if};
use crate::validate::{Checks, schema_of};
use crate::wire::{CurrencyBody, Number, currency};

/// What a price is asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateQuote {
    /// Where money comes from.
    source: QuoteSource,
    /// Where it goes.
    destination: QuoteDestination,
    /// Which side's amount is given.
    locked_currency_side: LockedSide,
    /// The amount, in the smallest unit of that side's currency; greater than 0.
    #[schema(minimum = 1, maximum = 9_000_000_000_000_000_i64, example = 100000)]
    locked_currency_amount: i64,
    /// The lookup of the receiver; needed for UMA addresses.
    #[serde(default)]
    #[schema(nullable = false, max_length = 80)]
    lookup_id: Option<String>,
    /// Whether the quote is executed with its creation; only from internal accounts.
    #[serde(default)]
    immediately_execute: bool,
    /// A memo, for the transaction.
    #[serde(default)]
    #[schema(nullable = false, max_length = 500)]
    description: Option<String>,
    /// What the payment is for.
    #[serde(default)]
    #[schema(nullable = false, max_length = 64)]
    purpose_of_payment: Option<String>,
    /// What the lookup asks about the payer, by the names of its `requiredPayerDataFields`.
    #[serde(default)]
    #[schema(nullable = false, value_type = Option<Facts>)]
    sender_customer_info: Option<BTreeMap<String, String>>,
}

schema_of!(CreateQuote);

/// The side of a quote whose amount is given.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LockedSide {
    /// What is charged, fees included.
    Sending,
    /// What arrives.
    Receiving,
}

/// Where a quote's money comes from; `sourceType` selects the variant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "sourceType")]
pub enum QuoteSource {
    /// An account.
    #[serde(rename = "ACCOUNT")]
    Account(AccountQuoteSource),
    /// A deposit that is made for this quote.
    #[serde(rename = "REALTIME_FUNDING")]
    RealtimeFunding(RealtimeFundingQuoteSource),
}

/// An account that a quote's money comes from.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountQuoteSource {
    /// An internal account.
    #[schema(max_length = 80)]
    account_id: String,
    /// The customer who sends, if the platform's own account pays.
    #[serde(default)]
    #[schema(nullable = false, max_length = 80)]
    customer_id: Option<String>,
}

/// A deposit that is made for a quote.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RealtimeFundingQuoteSource {
    /// Currency of the deposit.
    #[schema(max_length = 10, example = "USD")]
    currency: String,
    /// The customer who sends; the platform itself when left out.
    #[serde(default)]
    #[schema(nullable = false, max_length = 80)]
    customer_id: Option<String>,
    /// The blockchain of the deposit; needed for stablecoins.
    #[serde(default)]
    #[schema(nullable = false, max_length = 64)]
    crypto_network: Option<String>,
}

/// Where a quote's money goes; `destinationType` selects the variant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "destinationType")]
pub enum QuoteDestination {
    /// An account.
    #[serde(rename = "ACCOUNT")]
    Account(AccountQuoteDestination),
    /// A UMA address that was looked up.
    #[serde(rename = "UMA_ADDRESS")]
    UmaAddress(UmaQuoteDestination),
    /// An external account that is added with the quote and stays.
    #[serde(rename = "EXTERNAL_ACCOUNT_DETAILS")]
    Details(DetailsQuoteDestination),
}

/// An account that a quote's money goes to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountQuoteDestination {
    /// An internal or external account.
    #[schema(max_length = 80)]
    account_id: String,
}

/// A UMA address that a quote's money goes to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UmaQuoteDestination {
    /// The address.
    #[schema(max_length = 400)]
    uma_address: String,
    /// The currency that shall arrive; the receiver's first one when left out.
    #[serde(default)]
    #[schema(nullable = false, max_length = 10, example = "EUR")]
    currency: Option<String>,
    /// What the platform itself knows about the receiver.
    #[serde(default)]
    #[schema(nullable = false, value_type = Option<Facts>)]
    counterparty_information: Option<BTreeMap<String, String>>,
}

/// An external account that is added with a quote.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DetailsQuoteDestination {
    /// The account, as it would be added by itself. One that the owner has already is used.
    external_account_details: CreateExternalAccount,
}

/// The account that an id names.
fn account(checks: &mut Checks, field: &str, text: &str) -> Option<AccountRef> {
    if text.starts_with(kind::ExternalAccount::PREFIX) {
        let id: Option<ExternalAccountId> = checks.id(field, text);
        return id.map(AccountRef::External);
    }
    let id: Option<InternalAccountId> = checks.id(field, text);
    id.map(AccountRef::Internal)
}

impl TryFrom<CreateQuote> for NewQuote {
    type Error = ApiError;

    fn try_from(body: CreateQuote) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let purpose =
            checks.named_if("purposeOfPayment", body.purpose_of_payment.as_deref(), |name| {
                PURPOSES.into_iter().find(|known| *known == name)
            });
        let from = match &body.source {
            QuoteSource::Account(source) => {
                let customer_id = checks.id_if("source.customerId", source.customer_id.as_deref());
                account(&mut checks, "source.accountId", &source.account_id)
                    .map(|account| quotes::From::Account { account, customer_id })
            }
            QuoteSource::RealtimeFunding(source) => {
                let customer_id = checks.id_if("source.customerId", source.customer_id.as_deref());
                let currency =
                    currency(&source.currency).map_err(|refusal| refusal.at("source.currency"))?;
                let is_stablecoin = matches!(currency.code(), "USDC" | "USDT");
                let named = source.crypto_network.as_deref();
                if is_stablecoin && named.is_none() {
                    let message = "is required for a deposit of a stablecoin";
                    checks.refuse("source.cryptoNetwork", message);
                }
                let is_held = |network: &&'static str| {
                    types().iter().any(|kind| kind.holds(currency) && kind.is_on(network))
                };
                let network = named.and_then(AccountType::known_network).filter(is_held);
                if named.is_some() && network.is_none() {
                    let message = format!("no wallet on it holds {}", currency.code());
                    checks.refuse("source.cryptoNetwork", message);
                }
                Some(quotes::From::RealtimeFunding { currency, network, customer_id })
            }
        };
        let lookup: Option<LookupId> = checks.id_if("lookupId", body.lookup_id.as_deref());
        let to = match body.destination {
            QuoteDestination::Account(destination) => {
                let field = "destination.accountId";
                account(&mut checks, field, &destination.account_id).map(quotes::To::Account)
            }
            QuoteDestination::UmaAddress(destination) => {
                let address = address("destination.umaAddress", &destination.uma_address)?;
                if body.lookup_id.is_none() {
                    checks.refuse("lookupId", "is required for a UMA address: look it up first");
                }
                let currency = destination.currency.as_deref().map(currency).transpose();
                let currency = currency.map_err(|refusal| refusal.at("destination.currency"))?;
                let known = destination.counterparty_information;
                let counterparty = checks.facts("destination.counterpartyInformation", known);
                Some(quotes::To::Uma(ToUma { address, currency, counterparty }))
            }
            QuoteDestination::Details(destination) => {
                let path = "destination.externalAccountDetails";
                let details = destination.external_account_details.checked(path)?;
                Some(quotes::To::Details(Box::new(details)))
            }
        };
        let payer = checks.facts("senderCustomerInfo", body.sender_customer_info);
        let (from, to) = checks.finish(from.zip(to))?;
        Ok(Self {
            from,
            to,
            locked_side: match body.locked_currency_side {
                LockedSide::Sending => quotes::Side::Sending,
                LockedSide::Receiving => quotes::Side::Receiving,
            },
            locked_minor: body.locked_currency_amount,
            immediately_execute: body.immediately_execute,
            description: body.description,
            purpose,
            lookup,
            payer,
        })
    }
}

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
    /// Who sends; the platform's own id for itself.
    customer_id: String,
}

/// A deposit that is made for a quote.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QuotedRealtimeFundingSource)]
pub struct RealtimeFundingQuoteSourceBody {
    /// Currency of the deposit.
    currency: &'static str,
    /// Who sends; the platform's own id for itself.
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
                let rail = app.env().rail(platform.mode);
                let deposit = Deposit {
                    currency: *currency,
                    reference: &reference,
                    amount: Some(price.sent.money()),
                    since: draft.transaction.created_at(),
                };
                let instructions = of_rail(rail, &deposit, *network, None);
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
            rate_details: (&draft.rate_details).into(),
        }
    }
}

/// The body of a quote as a use case gives it.
fn body(app: &App) -> impl Fn(&Quoted) -> QuoteBody + Send + use<> {
    let app = app.clone();
    move |quoted| QuoteBody::new(&app, &quoted.platform, &quoted.quote)
}

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
pub async fn create(
    State(app): State<App>,
    request: Once,
    Json(new): Json<CreateQuote>,
) -> Response {
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

/// Lists the platform's quotes, newest first.
#[utoipa::path(get, path = "/quotes",
    operation_id = "listQuotes", tag = "Quotes", params(ListQuotes),
    responses((status = 200, description = "A page of quotes.", body = List<QuoteBody>)))]
pub async fn list(
    State(app): State<App>,
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

/// Shows a quote.
#[utoipa::path(get, path = "/quotes/{quoteId}",
    operation_id = "getQuote", tag = "Quotes",
    params(("quoteId" = String, Path, description = "System id of the quote.")),
    responses((status = 200, description = "The quote.", body = QuoteBody)))]
pub async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(quote): Path<String>,
) -> Result<Response, ApiError> {
    let id = id(&quote)?;
    let quote = expiry::quote(&app, &caller.platform, id).await?;
    Ok(ok(&QuoteBody::new(&app, &caller.platform, &quote)))
}

/// Executes a quote: the source is debited and the transfer starts. A second call is refused.
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
pub async fn execute(State(app): State<App>, request: Once, Path(quote): Path<String>) -> Response {
    let request = request.naming(&NAMES_OF_EXECUTE);
    let id = match id(&quote) {
        Ok(id) => id,
        Err(refusal) => return request.refuse(refusal).await,
    };
    respond(quotes::execute(&app, request.keyed(), id, request.renderer(200, body(&app))).await)
}
