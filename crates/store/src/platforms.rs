//! Platforms in the store.

use std::borrow::Cow;
use std::sync::Arc;

use domain::clock::Ahead;
use domain::currency::Currency;
use domain::event::EventNames;
use domain::id::PlatformId;
use domain::platform::{
    BasisPoints, COUNTERPARTY_FIELDS, CorridorRule, CounterpartyField, Mode, Platform,
    SupportedCurrency,
};
use domain::signing::Generations;
use domain::time::Timestamp;
use domain::transaction::Direction;
use domain::uma_address::UmaDomain;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::reader::View;
use crate::record::{self, Record, record_table};
use crate::sealed::each;
use crate::sql::{Row, Value};

/// How the settings of a platform are kept; none of them is personal or secret.
#[derive(Serialize, Deserialize)]
struct Settings {
    uma_domain: String,
    proxy_uma_subdomain: String,
    webhook_endpoint: Option<String>,
    event_names: Cow<'static, str>,
    is_regulated: bool,
    currencies: Vec<StoredCurrency>,
    corridors: Vec<StoredCorridor>,
    signing_generation: u32,
    signing_rotated_at: Option<i64>,
    uma_keys: (u32, Option<i64>),
    rail: Option<String>,
    /// Basis points; nothing where the operator has set none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost_drift_max: Option<u16>,
}

#[derive(Serialize, Deserialize)]
struct StoredCurrency {
    code: String,
    min: i64,
    max: i64,
    fields: Vec<(Cow<'static, str>, bool)>,
    #[serde(default)]
    customer_fields: Vec<Cow<'static, str>>,
    enabled: Vec<Cow<'static, str>>,
}

#[derive(Serialize, Deserialize)]
struct StoredCorridor {
    sending: Option<String>,
    receiving: Option<String>,
    spread: Option<String>,
    fixed_fee: Option<i64>,
    variable_fee_rate: Option<String>,
}

impl StoredCurrency {
    fn of(supported: &SupportedCurrency) -> Self {
        Self {
            code: supported.currency.code().to_owned(),
            min: supported.min_minor,
            max: supported.max_minor,
            fields: supported
                .required_counterparty_fields
                .iter()
                .map(|field| (Cow::Borrowed(field.name), field.mandatory))
                .collect(),
            customer_fields: supported
                .provider_required_customer_fields
                .iter()
                .map(|name| Cow::Borrowed(*name))
                .collect(),
            enabled: supported.enabled.iter().map(|way| Cow::Borrowed(way.name())).collect(),
        }
    }

    fn into_domain(self) -> Option<SupportedCurrency> {
        let known = |name: &str| COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name);
        let field = |(name, mandatory): (Cow<'_, str>, bool)| {
            Some(CounterpartyField { name: known(&name)?, mandatory })
        };
        Some(SupportedCurrency {
            currency: Currency::from_code(&self.code)?,
            min_minor: self.min,
            max_minor: self.max,
            required_counterparty_fields: self
                .fields
                .into_iter()
                .map(field)
                .collect::<Option<_>>()?,
            provider_required_customer_fields: self
                .customer_fields
                .iter()
                .map(|name| known(name))
                .collect::<Option<_>>()?,
            enabled: self
                .enabled
                .iter()
                .map(|way| Direction::from_name(way))
                .collect::<Option<_>>()?,
        })
    }
}

impl StoredCorridor {
    fn of(rule: &CorridorRule) -> Self {
        let code = |currency: Option<Currency>| currency.map(|currency| currency.code().to_owned());
        let digits = |value: Option<Decimal>| value.map(|value| value.to_string());
        Self {
            sending: code(rule.sending),
            receiving: code(rule.receiving),
            spread: digits(rule.spread),
            fixed_fee: rule.fixed_fee_minor,
            variable_fee_rate: digits(rule.variable_fee_rate),
        }
    }

    fn into_domain(self) -> Option<CorridorRule> {
        Some(CorridorRule {
            sending: each(self.sending, |code| Currency::from_code(&code))?,
            receiving: each(self.receiving, |code| Currency::from_code(&code))?,
            spread: each(self.spread, |digits| digits.parse().ok())?,
            fixed_fee_minor: self.fixed_fee,
            variable_fee_rate: each(self.variable_fee_rate, |digits| digits.parse().ok())?,
        })
    }
}

impl Record for Platform {
    type Key = PlatformId;
    const TABLE: &'static str = "platforms";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "name",
        "mode",
        "settings",
        "manager_tokens",
        "clock_ahead",
        "created_at",
        "updated_at",
    ];
    record_table!(platforms);

    fn key(&self) -> PlatformId {
        self.id
    }

    fn values(&self) -> Vec<Value> {
        let settings = Settings {
            uma_domain: self.uma_domain.to_string(),
            proxy_uma_subdomain: self.proxy_uma_subdomain.clone(),
            webhook_endpoint: self.webhook_endpoint.clone(),
            event_names: Cow::Borrowed(self.event_names.name()),
            is_regulated: self.is_regulated,
            currencies: self.currencies.iter().map(StoredCurrency::of).collect(),
            corridors: self.corridors.iter().map(StoredCorridor::of).collect(),
            signing_generation: self.signing.newest,
            signing_rotated_at: self.signing.rotated_at.map(Timestamp::millis),
            uma_keys: (self.uma_keys.newest, self.uma_keys.rotated_at.map(Timestamp::millis)),
            rail: self.rail_settings.as_deref().map(str::to_owned),
            cost_drift_max: Some(self.cost_drift_max)
                .filter(|it| *it != BasisPoints::DRIFT)
                .map(BasisPoints::get),
        };
        let settings = serde_json::to_string(&settings).expect("settings have text keys only");
        vec![
            self.id.into(),
            self.name.as_str().into(),
            Value::name(self.mode.name()),
            settings.into(),
            self.manager_tokens.into(),
            self.ahead.millis().into(),
            self.created_at.into(),
            self.updated_at.into(),
        ]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let (id, name, mode) = (row.id()?, row.text()?, row.named(Mode::from_name)?);
        let settings: Settings =
            serde_json::from_str(&row.text()?).map_err(|error| row.corrupt(error))?;
        let unknown = |row: &Row| row.corrupt("a name in the settings is unknown");
        Ok(Self {
            id,
            name,
            mode,
            uma_domain: UmaDomain::parse(&settings.uma_domain)
                .map_err(|error| row.corrupt(error))?,
            proxy_uma_subdomain: settings.proxy_uma_subdomain,
            webhook_endpoint: settings.webhook_endpoint,
            event_names: EventNames::from_name(&settings.event_names)
                .ok_or_else(|| unknown(row))?,
            is_regulated: settings.is_regulated,
            currencies: settings
                .currencies
                .into_iter()
                .map(StoredCurrency::into_domain)
                .collect::<Option<_>>()
                .ok_or_else(|| unknown(row))?,
            corridors: settings
                .corridors
                .into_iter()
                .map(StoredCorridor::into_domain)
                .collect::<Option<_>>()
                .ok_or_else(|| unknown(row))?,
            rail_settings: settings.rail.map(Arc::from),
            cost_drift_max: each(settings.cost_drift_max, BasisPoints::new)
                .ok_or_else(|| row.corrupt("not basis points"))?
                .unwrap_or(BasisPoints::DRIFT),
            manager_tokens: row.count()?,
            ahead: Ahead::from_millis(row.int()?)
                .ok_or_else(|| row.corrupt("not how far a clock can be ahead"))?,
            signing: Generations {
                newest: settings.signing_generation,
                rotated_at: settings.signing_rotated_at.map(Timestamp::from_millis),
            },
            uma_keys: Generations {
                newest: settings.uma_keys.0,
                rotated_at: settings.uma_keys.1.map(Timestamp::from_millis),
            },
            created_at: row.time()?,
            updated_at: row.time()?,
        })
    }
}

impl View<'_> {
    /// Every platform, newest first. Operators have few.
    pub fn platforms(&mut self) -> Result<Vec<Arc<Platform>>, StoreError> {
        record::select(self.connection, self.keyring, "order by id desc", &[])
    }
}
