//! The platform's configuration (specification 2.11, 4.2; contract 6.1).

use axum::response::Response;
use domain::currency::Currency;
use domain::money::AMOUNT_MAX;
use domain::patch::Patch;
use domain::platform::{COUNTERPARTY_FIELDS, CounterpartyField, Platform, SupportedCurrency};
use domain::transaction::Direction;
use domain::uma_address::UmaDomain;
use serde::{Deserialize, Serialize};
use service::platforms::{self, ConfigChange};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::error::ApiError;
use crate::extract::{Acting, Json, Once, ok, respond};
use crate::patch;
use crate::validate::{Checks, patch_of};
use crate::wire::currency;

/// A fact that the platform asks of counterparties.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = CounterpartyField)]
pub struct CounterpartyFieldBody {
    /// Which fact.
    #[schema(max_length = 64, example = "FULL_NAME")]
    name: String,
    /// Whether a payment without it is refused.
    mandatory: bool,
}

impl From<&CounterpartyField> for CounterpartyFieldBody {
    fn from(field: &CounterpartyField) -> Self {
        Self { name: field.name.to_owned(), mandatory: field.mandatory }
    }
}

/// A currency that the platform's customers can hold, send and receive.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SupportedCurrency)]
pub struct SupportedCurrencyBody {
    /// ISO 4217 code, or the asset's usual ticker.
    #[schema(max_length = 10, example = "USD")]
    currency_code: String,
    /// Least that may be sent, in smallest units.
    #[schema(minimum = 0, maximum = 9_000_000_000_000_000_i64)]
    min_amount: i64,
    /// Most that may be sent, in smallest units.
    #[schema(minimum = 0, maximum = 9_000_000_000_000_000_i64)]
    max_amount: i64,
    /// Facts that are asked of counterparties; none when left out.
    #[serde(default)]
    #[schema(max_items = 16)]
    required_counterparty_fields: Vec<CounterpartyFieldBody>,
    /// `OUTGOING`, `INCOMING`; both when left out.
    #[serde(default = "both")]
    #[schema(max_items = 2)]
    enabled_transaction_types: Vec<TransactionType>,
    /// Facts that a customer must have before it moves money in this currency; none when left out.
    #[serde(default)]
    #[schema(max_items = 16, example = json!(["FULL_NAME", "BIRTH_DATE"]))]
    provider_required_customer_fields: Vec<String>,
    /// Facts that this server itself asks of counterparties: none. Read only.
    #[serde(default)]
    #[schema(max_items = 16)]
    provider_required_counterparty_customer_fields: Vec<String>,
}

fn both() -> Vec<TransactionType> {
    vec![TransactionType::Outgoing, TransactionType::Incoming]
}

/// Which way money moves, seen from the platform.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TransactionType {
    /// From the platform or its customers.
    Outgoing,
    /// To the platform or its customers.
    Incoming,
}

impl From<TransactionType> for Direction {
    fn from(name: TransactionType) -> Self {
        match name {
            TransactionType::Outgoing => Self::Outgoing,
            TransactionType::Incoming => Self::Incoming,
        }
    }
}

impl From<&SupportedCurrency> for SupportedCurrencyBody {
    fn from(supported: &SupportedCurrency) -> Self {
        let way = |way: &Direction| match way {
            Direction::Outgoing => TransactionType::Outgoing,
            Direction::Incoming => TransactionType::Incoming,
        };
        Self {
            currency_code: supported.currency.code().to_owned(),
            min_amount: supported.min_minor,
            max_amount: supported.max_minor,
            required_counterparty_fields: supported
                .required_counterparty_fields
                .iter()
                .map(Into::into)
                .collect(),
            enabled_transaction_types: supported.enabled.iter().map(way).collect(),
            provider_required_customer_fields: supported
                .provider_required_customer_fields
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
            provider_required_counterparty_customer_fields: Vec::new(),
        }
    }
}

/// A platform's configuration.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlatformConfig)]
pub struct ConfigBody {
    /// System id.
    #[schema(example = "PlatformConfig:019542f5-b3e7-7d02-8000-000000000000")]
    id: String,
    /// Domain of its customers' UMA addresses.
    uma_domain: String,
    /// Subdomain of this server to which its UMA requests are proxied.
    proxy_uma_subdomain: String,
    /// Where its events go.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    webhook_endpoint: Option<String>,
    /// Currencies that its customers can hold, send and receive.
    supported_currencies: Vec<SupportedCurrencyBody>,
    /// Whether it is regulated and knows its customers itself.
    is_regulated_financial_institution: bool,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// When its configuration last changed.
    #[schema(format = DateTime)]
    updated_at: String,
}

impl From<&Platform> for ConfigBody {
    fn from(platform: &Platform) -> Self {
        Self {
            id: platform.id.to_string(),
            uma_domain: platform.uma_domain.to_string(),
            proxy_uma_subdomain: platform.proxy_uma_subdomain.clone(),
            webhook_endpoint: platform.webhook_endpoint.clone(),
            supported_currencies: platform.currencies.iter().map(Into::into).collect(),
            is_regulated_financial_institution: platform.is_regulated,
            created_at: platform.created_at.to_string(),
            updated_at: platform.updated_at.to_string(),
        }
    }
}

/// Changes of the configuration. Fields that are left out stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UpdateConfig)]
pub struct UpdateConfig {
    /// Domain of addresses that are given out from now on.
    #[serde(default)]
    #[schema(nullable = false, format = "uma-domain", min_length = 1, max_length = 259)]
    uma_domain: Option<String>,
    /// Where events go: an absolute URL. `null` removes it, and with it what waits for delivery.
    #[serde(default, deserialize_with = "patch::read")]
    #[schema(
        value_type = Option<String>,
        required = false,
        format = "web-address",
        min_length = 1,
        max_length = 2048
    )]
    webhook_endpoint: Patch<String>,
    /// All currencies, in the place of those before.
    #[serde(default)]
    #[schema(nullable = false, max_items = 200)]
    supported_currencies: Option<Vec<SupportedCurrencyBody>>,
}

patch_of!(UpdateConfig);

impl TryFrom<UpdateConfig> for ConfigChange {
    type Error = ApiError;

    fn try_from(body: UpdateConfig) -> Result<Self, ApiError> {
        let mut checks = Checks::new();
        let uma_domain =
            body.uma_domain.and_then(|text| checks.take("umaDomain", UmaDomain::parse(&text)));
        let currencies = match body.supported_currencies {
            Some(bodies) => Some(supported(&mut checks, bodies)?),
            None => None,
        };
        checks.finish(Some(Self {
            uma_domain,
            webhook_endpoint: body.webhook_endpoint,
            currencies,
        }))
    }
}

fn supported(
    checks: &mut Checks,
    bodies: Vec<SupportedCurrencyBody>,
) -> Result<Vec<SupportedCurrency>, ApiError> {
    let mut all: Vec<SupportedCurrency> = Vec::new();
    for (index, body) in bodies.into_iter().enumerate() {
        let field = |name: &str| format!("supportedCurrencies.{index}.{name}");
        let currency: Currency =
            currency(&body.currency_code).map_err(|refusal| refusal.at(&field("currencyCode")))?;
        if all.iter().any(|known| known.currency == currency) {
            checks.refuse(&field("currencyCode"), format!("{currency} stands there twice"));
        }
        if body.min_amount > body.max_amount {
            checks.refuse(&field("minAmount"), "must not be greater than maxAmount");
        }
        let mut fields: Vec<CounterpartyField> = Vec::new();
        for (place, asked) in body.required_counterparty_fields.into_iter().enumerate() {
            let name = field(&format!("requiredCounterpartyFields.{place}.name"));
            if fields.iter().any(|known| known.name == asked.name) {
                checks.refuse(&name, "stands there twice");
            }
            if let Some(known) = known_field(checks, &name, &asked.name) {
                fields.push(CounterpartyField { name: known, mandatory: asked.mandatory });
            }
        }
        let mut customer_fields: Vec<&'static str> = Vec::new();
        for (place, asked) in body.provider_required_customer_fields.into_iter().enumerate() {
            let name = field(&format!("providerRequiredCustomerFields.{place}"));
            if customer_fields.contains(&asked.as_str()) {
                checks.refuse(&name, "stands there twice");
            }
            customer_fields.extend(known_field(checks, &name, &asked));
        }
        let mut enabled: Vec<Direction> = Vec::new();
        for way in body.enabled_transaction_types.into_iter().map(Direction::from) {
            if !enabled.contains(&way) {
                enabled.push(way);
            }
        }
        all.push(SupportedCurrency {
            currency,
            min_minor: body.min_amount,
            max_minor: body.max_amount.min(AMOUNT_MAX),
            required_counterparty_fields: fields,
            provider_required_customer_fields: customer_fields,
            enabled,
        });
    }
    Ok(all)
}

/// The fact about a person or business that is asked for at `field`.
fn known_field(checks: &mut Checks, field: &str, asked: &str) -> Option<&'static str> {
    let known = COUNTERPARTY_FIELDS.into_iter().find(|name| *name == asked);
    if known.is_none() {
        checks.refuse(field, format!("must be one of {}", COUNTERPARTY_FIELDS.join(", ")));
    }
    known
}

/// Get the platform configuration.
#[utoipa::path(get, path = "/config",
    operation_id = "getPlatformConfig", tag = "Platform",
    responses((status = 200, description = "The configuration.", body = ConfigBody)))]
pub async fn get(caller: Caller) -> Result<Response, ApiError> {
    Ok(ok(&ConfigBody::from(&*caller.platform)))
}

/// Update the platform configuration.
///
/// Changes hold at once.
#[utoipa::path(patch, path = "/config",
    operation_id = "updatePlatformConfig", tag = "Platform", request_body = UpdateConfig,
    responses((status = 200, description = "The whole configuration.", body = ConfigBody)))]
pub async fn update(
    Acting(app): Acting,
    request: Once,
    Json(body): Json<UpdateConfig>,
) -> Response {
    let request = request.naming(&[("currency", "supportedCurrencies")]);
    let change = match body.and_then(ConfigChange::try_from) {
        Ok(change) => change,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let render = request.renderer(200, |platform: &Platform| ConfigBody::from(platform));
    respond(platforms::configure(&app, request.keyed(), change, render).await)
}
