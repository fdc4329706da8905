//! The body of a request for a quote, and its checks.

use std::collections::BTreeMap;

use domain::account_info::{AccountType, types};
use domain::id::{ExternalAccountId, InternalAccountId, Kind, LookupId, kind};
use domain::transaction::AccountRef;
use serde::Deserialize;
use service::quotes::{self, NewQuote};
use service::uma::ToUma;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::external_accounts::CreateExternalAccount;
use crate::receivers::address;
use crate::transactions::Facts;
use crate::transfers::{Wishes, with_wishes};
use crate::validate::{Checks, schema_of};
use crate::wire::currency;

with_wishes! {
    /// The payment to price.
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
        /// Facts about the payer that the lookup asks for, by the names of its
        /// `requiredPayerDataFields`.
        #[serde(default)]
        #[schema(nullable = false, value_type = Option<Facts>)]
        sender_customer_info: Option<BTreeMap<String, String>>,
    }
}

schema_of!(CreateQuote);

/// The side of a quote whose amount is given.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LockedSide {
    /// The amount that is charged, with fees.
    Sending,
    /// The amount that arrives.
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
    /// The rail that pays, one of the account's `paymentRails`; chosen when left out. Only of an
    /// external account.
    #[serde(default)]
    #[schema(nullable = false, max_length = 64, example = "ACH")]
    payment_rail: Option<String>,
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
    /// Facts about the receiver that the platform knows.
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
    /// The rail that pays, one of the account's `paymentRails`; chosen when left out. Only of an
    /// external account.
    #[serde(default)]
    #[schema(nullable = false, max_length = 64, example = "ACH")]
    payment_rail: Option<String>,
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

/// Where a quote's money comes from; none if that was refused.
fn source(checks: &mut Checks, source: &QuoteSource) -> Result<Option<quotes::From>, ApiError> {
    Ok(match source {
        QuoteSource::Account(source) => {
            let customer_id = checks.id_if("source.customerId", source.customer_id.as_deref());
            account(checks, "source.accountId", &source.account_id)
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
    })
}

/// Where a quote's money goes; none if that was refused.
fn destination(
    checks: &mut Checks,
    destination: QuoteDestination,
    is_looked_up: bool,
) -> Result<Option<quotes::To>, ApiError> {
    Ok(match destination {
        QuoteDestination::Account(destination) => {
            let field = "destination.accountId";
            account(checks, field, &destination.account_id).map(quotes::To::Account)
        }
        QuoteDestination::UmaAddress(destination) => {
            let address = address("destination.umaAddress", &destination.uma_address)?;
            if !is_looked_up {
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
    })
}

impl TryFrom<CreateQuote> for NewQuote {
    type Error = ApiError;

    fn try_from(body: CreateQuote) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let wishes = Wishes {
            remittance: body.remittance_information,
            purpose: body.purpose_of_payment,
            rail: match &body.destination {
                QuoteDestination::Account(destination) => destination.payment_rail.clone(),
                QuoteDestination::Details(destination) => destination.payment_rail.clone(),
                QuoteDestination::UmaAddress(_) => None,
            },
        };
        let rail_request = wishes.checked(&mut checks);
        let from = source(&mut checks, &body.source)?;
        let lookup: Option<LookupId> = checks.id_if("lookupId", body.lookup_id.as_deref());
        let to = destination(&mut checks, body.destination, body.lookup_id.is_some())?;
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
            rail_request,
            lookup,
            payer,
        })
    }
}
