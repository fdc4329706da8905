//! Exchange rates, without obligation (contract 6.14).

use std::collections::BTreeSet;

use axum::extract::RawQuery;
use axum::response::Response;
use domain::account_info::types;
use domain::currency::Currency;
use domain::money::{AMOUNT_MAX, Money, Sending};
use domain::platform::Platform;
use domain::pricing::{Locked, price};
use domain::rail::Rail;
use domain::time::Timestamp;
use ports::rates::Rates;
use serde::Serialize;
use service::error::{Error, MoneyError};
use service::pricing::corridor;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::{ApiError, Code};
use crate::extract::{Acting, ok};
use crate::page::All;
use crate::query;
use crate::validate::Checks;
use crate::wire::{CurrencyBody, Number, currency};

/// The amount to send when the client names none, in smallest units.
const SENDING_AMOUNT_DEFAULT: i64 = 10_000;

/// Currencies that one request may ask for, to keep its answer short.
const DESTINATIONS_MAX: usize = 50;

/// The price of a payment over one rail now.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ExchangeRate)]
pub struct ExchangeRateBody {
    /// The currency that pays.
    source_currency: CurrencyBody,
    /// The currency that is paid.
    destination_currency: CurrencyBody,
    /// The rail that delivers; absent for a currency that only moves between accounts here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, required = false)]
    destination_payment_rail: Option<&'static str>,
    /// The amount that would be charged, in the smallest sending unit.
    sending_amount: i64,
    /// Least that may be sent.
    min_sending_amount: i64,
    /// Most that may be sent.
    max_sending_amount: i64,
    /// The amount that would arrive after fees, in the smallest receiving unit; 0 if fees take
    /// everything.
    #[schema(minimum = 0)]
    receiving_amount: i64,
    /// Sending major units per one receiving major unit, as on quotes.
    #[schema(value_type = f64)]
    exchange_rate: Number,
    /// Fees, in the smallest sending unit.
    fees: FeesBody,
    /// When the market was there.
    #[schema(format = DateTime)]
    updated_at: String,
}

/// Fees of a corridor.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ExchangeRateFees)]
pub struct FeesBody {
    /// Per payment.
    #[schema(minimum = 0)]
    fixed: i64,
    /// As a fraction of the sending amount.
    #[schema(value_type = f64, minimum = 0)]
    variable_rate: Number,
}

/// The requested corridor.
struct Wanted {
    sources: Vec<Currency>,
    destinations: Vec<Currency>,
    sending_amount: i64,
}

fn wanted(platform: &Platform, query: &str) -> Result<Wanted, ApiError> {
    let supported = || platform.currencies.iter().map(|supported| supported.currency).collect();
    let source = query::value(query, "sourceCurrency");
    let source =
        source.map(|code| currency(&code).map_err(|it| it.at("sourceCurrency"))).transpose()?;
    let mut destinations = Vec::new();
    for code in query::values(query, "destinationCurrency") {
        let destination = currency(&code).map_err(|it| it.at("destinationCurrency"))?;
        if !destinations.contains(&destination) {
            destinations.push(destination);
        }
    }
    let mut checks = Checks::new();
    if destinations.len() > DESTINATIONS_MAX {
        let message = format!("must have at most {DESTINATIONS_MAX} currencies");
        checks.refuse("destinationCurrency", message);
    }
    let given = query::value(query, "sendingAmount");
    let range = format!("must be a whole number from 0 to {AMOUNT_MAX}");
    let in_range = |amount: &i64| (0..=AMOUNT_MAX).contains(amount);
    let sending_amount = given.as_ref().map(|text| text.parse().ok().filter(in_range));
    if sending_amount == Some(None) {
        // Digits alone are too many: the number is an amount, above the largest.
        let is_amount = given
            .is_some_and(|text| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()));
        if is_amount && checks.is_clean() {
            return Err(ApiError::new(Code::InvalidAmount, range).at("sendingAmount"));
        }
        checks.refuse("sendingAmount", range);
    }
    checks.finish(Some(Wanted {
        sources: source.map_or_else(supported, |source| vec![source]),
        destinations: if destinations.is_empty() { supported() } else { destinations },
        sending_amount: sending_amount.flatten().unwrap_or(SENDING_AMOUNT_DEFAULT),
    }))
}

/// Every rail that delivers a currency, once; none where it only moves between accounts here.
fn rails(currency: Currency) -> Vec<Option<Rail>> {
    let holding = types().iter().filter(|account_type| account_type.holds(currency));
    let rails: BTreeSet<_> =
        holding.flat_map(|account_type| account_type.rails.iter().copied()).collect();
    if rails.is_empty() { vec![None] } else { rails.into_iter().map(Some).collect() }
}

/// List exchange rates.
///
/// The cost of payments now, one entry per corridor and rail.
#[utoipa::path(get, path = "/exchange-rates",
    operation_id = "listExchangeRates", tag = "Exchange rates",
    params(
        ("sourceCurrency" = Option<String>, Query, description = "The currency that pays; all \
            supported ones when left out."),
        ("destinationCurrency" = Option<Vec<String>>, Query, description = "The currencies that \
            are paid, repeated or separated by commas; all supported ones when left out."),
        ("sendingAmount" = Option<i64>, Query, minimum = 0, description = "What is sent, in the \
            smallest unit; 10000 when left out."),
    ),
    responses((status = 200, description = "The rates.", body = All<ExchangeRateBody>)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let platform = &caller.platform;
    let wanted = wanted(platform, query.as_deref().unwrap_or_default())?;
    let (now, rates) = (app.now(platform.ahead), app.env().rates(platform.mode));
    let (mut data, mut refusal) = (Vec::new(), None);
    for source in &wanted.sources {
        for destination in wanted.destinations.iter().filter(|one| *one != source) {
            // One corridor without a rate hides no other.
            match entries(&*rates, platform, *source, *destination, &wanted, now) {
                Ok(entries) => data.extend(entries),
                Err(error @ Error::Money(MoneyError::NoRate(_))) => refusal = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
    }
    match refusal {
        Some(refusal) if data.is_empty() => Err(refusal.into()),
        Some(_) | None => Ok(ok(&All { data })),
    }
}

fn entries(
    rates: &dyn Rates,
    platform: &Platform,
    source: Currency,
    destination: Currency,
    wanted: &Wanted,
    now: Timestamp,
) -> Result<Vec<ExchangeRateBody>, Error> {
    let (Some(sending), Some(_)) = (platform.supported(source), platform.supported(destination))
    else {
        return Ok(Vec::new());
    };
    let corridor = corridor(rates, platform, source, destination, now)?;
    let received = Money::positive(wanted.sending_amount, source)
        .ok()
        .and_then(|sent| price(Locked::Sending(Sending(sent)), corridor.rate, corridor.fees).ok())
        .map_or(0, |price| price.received.minor());
    let entry = |rail: Option<Rail>| ExchangeRateBody {
        source_currency: source.into(),
        destination_currency: destination.into(),
        destination_payment_rail: rail.map(Rail::name),
        sending_amount: wanted.sending_amount,
        min_sending_amount: sending.min_minor,
        max_sending_amount: sending.max_minor,
        receiving_amount: received,
        exchange_rate: Number(corridor.rate.value()),
        fees: FeesBody {
            fixed: corridor.fees.fixed_minor(),
            variable_rate: Number(corridor.fees.variable_rate()),
        },
        updated_at: corridor.basis.as_of.to_string(),
    };
    Ok(rails(destination).into_iter().map(entry).collect())
}
