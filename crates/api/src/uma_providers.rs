//! The institutions whose addresses can be paid (contract 6.15).

use axum::extract::Query;
use axum::response::Response;
use domain::country::Country;
use ports::uma::Provider;
use serde::{Deserialize, Serialize};
use store::list::{Order, Page};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::auth::Caller;
use crate::error::ApiError;
use crate::extract::{Acting, ok};
use crate::page::{Cursors, List};
use crate::validate::Checks;
use crate::wire::{CurrencyBody, currency};

/// An institution.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UmaProvider)]
pub struct ProviderBody {
    /// Its name.
    name: &'static str,
    /// Countries that it serves, ISO 3166-1 alpha-2.
    supported_regions: Vec<&'static str>,
    /// Domain of its addresses.
    #[schema(example = "bank.example")]
    domain: &'static str,
    /// A picture for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    logo_url: Option<&'static str>,
    /// Currencies in which its customers can be paid.
    supported_currencies: Vec<CurrencyBody>,
    /// Its legal entity identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lei: Option<&'static str>,
    /// Whether this server deals with it.
    allow_list_status: bool,
}

impl From<&Provider> for ProviderBody {
    fn from(provider: &Provider) -> Self {
        Self {
            name: provider.name,
            supported_regions: provider.regions.to_vec(),
            domain: provider.domain,
            logo_url: provider.logo_url,
            supported_currencies: provider.currencies.iter().copied().map(Into::into).collect(),
            lei: provider.lei,
            allow_list_status: provider.is_allowed,
        }
    }
}

/// Which institutions are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListProviders {
    /// Those that serve this country.
    country_code: Option<String>,
    /// Those that can be paid in this currency.
    currency_code: Option<String>,
    /// Whether those that this server does not deal with are listed too.
    #[param(value_type = Option<bool>, default = true)]
    has_blocked_providers: Option<String>,
    /// Rows of a page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
    /// `asc` or `desc`, by the domain.
    #[param(default = "desc")]
    sort_order: Option<String>,
}

/// List UMA institutions.
#[utoipa::path(get, path = "/uma-providers",
    operation_id = "listUmaProviders", tag = "Receivers", params(ListProviders),
    responses((status = 200, description = "A page of institutions.",
        body = List<ProviderBody>)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListProviders>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let country = query.country_code.as_deref();
    let country = country.and_then(|text| checks.take("countryCode", Country::parse(text)));
    let blocked = query.has_blocked_providers.as_deref();
    let blocked = checks.named_if("hasBlockedProviders", blocked, |name| name.parse::<bool>().ok());
    let order = checks.named_if("sortOrder", query.sort_order.as_deref(), |name| match name {
        "asc" => Some(Order::Ascending),
        "desc" => Some(Order::Descending),
        _ => None,
    });
    let order = order.unwrap_or(Order::Descending);
    let list = match order {
        Order::Ascending => "uma-providers",
        Order::Descending => "uma-providers desc",
    };
    let cursors = Cursors::new(&app, caller.platform.id, list);
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, order);
    checks.done()?;
    let currency = query.currency_code.as_deref().map(currency).transpose();
    let currency = currency.map_err(|refusal| refusal.at("currencyCode"))?;

    let mut found = app.env().institutions(caller.platform.mode).providers();
    found.retain(|provider| {
        country.is_none_or(|country| provider.regions.contains(&country.code()))
            && currency.is_none_or(|currency| provider.currencies.contains(&currency))
            && (provider.is_allowed || blocked.unwrap_or(true))
    });
    found.sort_by_key(|provider| provider.domain);
    if order == Order::Descending {
        found.reverse();
    }
    let total = Some(found.len() as u64);
    let after = page.after.and_then(|last| found.iter().position(|it| place(it) == last));
    let mut rows = found.split_off(after.map_or(0, |position| position + 1));
    let limit = page.limit as usize;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let rows = rows.into_iter().map(std::sync::Arc::new).collect();
    let page = Page { rows, has_more, total };
    Ok(ok(&cursors.list(page, place, |row| ProviderBody::from(row))))
}

/// The key of an institution in a cursor.
fn place(provider: &Provider) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, provider.domain.as_bytes())
}
