//! Platforms: made by the operator, configured by their own tokens (specification 2.11).

use std::sync::Arc;

use domain::account_info::has_rail;
use domain::clock::Ahead;
use domain::currency::Currency;
use domain::event::EventNames;
use domain::id::{InternalAccountId, Owner, PlatformId};
use domain::money::AMOUNT_MAX;
use domain::patch::Patch;
use domain::platform::{BasisPoints, CorridorRule, Mode, Platform, SupportedCurrency};
use domain::signing::Generations;
use domain::time::Timestamp;
use domain::transaction::Direction;
use domain::uma_address::UmaDomain;
use ledger::account::{AccountKey, Balance};
use ports::outbound::Reach;
use store::error::StoreError;
use store::leases::{Lease, LeaseName};
use store::uma_domains::{DomainClaim, domain_key};
use store::unit::Unit;

use crate::app::App;
use crate::error::{Error, MoneyError};
use crate::once::{Keyed, Render, Reply, once};
use crate::tokens::NewToken;
use crate::{owners, tokens, webhooks};

/// An operator's request for a new platform.
#[derive(Debug, Clone)]
pub struct NewPlatform {
    /// Name for the operator.
    pub name: String,
    /// Real money or not.
    pub mode: Mode,
    /// Domain of its customers' addresses.
    pub uma_domain: UmaDomain,
    /// Whether it is regulated and knows its customers itself.
    pub is_regulated: bool,
}

/// Terms of a currency before the platform has set its own: every payment that the server can
/// make, in both directions.
pub fn default_terms(currency: Currency) -> SupportedCurrency {
    SupportedCurrency {
        currency,
        min_minor: 1,
        max_minor: AMOUNT_MAX,
        required_counterparty_fields: Vec::new(),
        provider_required_customer_fields: Vec::new(),
        enabled: vec![Direction::Outgoing, Direction::Incoming],
    }
}

/// A new platform that supports every currency that a rail moves.
fn draw(app: &App, new: NewPlatform, now: Timestamp) -> Platform {
    let id: PlatformId = app.new_owner_id(Ahead::NONE, now);
    Platform {
        id,
        proxy_uma_subdomain: format!("p-{}", id.uuid().simple()),
        name: new.name,
        mode: new.mode,
        uma_domain: new.uma_domain,
        webhook_endpoint: None,
        event_names: EventNames::Plain,
        is_regulated: new.is_regulated,
        currencies: Currency::all().filter(|it| has_rail(*it)).map(default_terms).collect(),
        corridors: Vec::new(),
        manager_tokens: 0,
        ahead: Ahead::NONE,
        signing: Generations::FIRST,
        uma_keys: Generations::FIRST,
        rail_settings: None,
        cost_drift_max: BasisPoints::DRIFT,
        created_at: now,
        updated_at: now,
    }
}

/// Refuses a domain of institutions that answer here: a platform that gave out their addresses
/// would take them from everybody else.
fn may_give_out(app: &App, domain: &UmaDomain) -> Result<(), Error> {
    if app.env().institutions.values().any(|known| known.owns(domain.as_str())) {
        let message = format!("{domain} is the domain of institutions that answer here");
        return Err(Error::field("umaDomain", message));
    }
    Ok(())
}

/// Claims a domain for a platform, unless it is or was another's. A platform that gave out
/// addresses of another's domain would sign with its keys and be paid in its place.
fn claim(unit: &mut Unit<'_, '_>, id: PlatformId, domain: &UmaDomain) -> Result<(), Error> {
    match unit.get::<DomainClaim>(&domain_key(domain))? {
        Some(claim) if claim.platform != id => {
            let message = format!(
                "{domain} is the domain of another platform of this server; only the operator can \
                 give it to this one, once the other has another"
            );
            Err(Error::field("umaDomain", message))
        }
        Some(_) => Ok(()),
        None => {
            unit.put(DomainClaim { domain: domain.clone(), platform: id });
            Ok(())
        }
    }
}

/// Claims a domain for a platform as the operator wants it: also one that another platform had
/// before, whose customers keep their addresses.
fn assign(unit: &mut Unit<'_, '_>, id: PlatformId, domain: &UmaDomain) -> Result<(), Error> {
    if let Some(other) = unit.get::<DomainClaim>(&domain_key(domain))?
        && other.platform != id
    {
        let holder = owners::platform(unit, other.platform)?;
        if holder.uma_domain == *domain {
            let message = format!(
                "{domain} is the domain of {}; give that platform another one first",
                holder.id
            );
            return Err(Error::Conflict(message));
        }
        unit.put(DomainClaim { domain: domain.clone(), platform: id });
        return Ok(());
    }
    claim(unit, id, domain)
}

/// Claims the domains of platforms that an earlier release made, live ones and older ones first.
/// Returns the platforms whose domain is another's, each with that one.
pub async fn claim_domains(app: &App) -> Result<Vec<(Arc<Platform>, PlatformId)>, Error> {
    let mut all = app.store().read(|view| view.platforms()).await.map_err(Error::Store)?;
    all.sort_by_key(|platform| (platform.mode != Mode::Live, platform.id));
    app.store()
        .write(app.origin(), move |unit| {
            let mut shared = Vec::new();
            for platform in &all {
                let holder = unit.get::<DomainClaim>(&domain_key(&platform.uma_domain))?;
                match holder.map(|claim| claim.platform) {
                    Some(holder) if holder != platform.id => {
                        shared.push((Arc::clone(platform), holder));
                    }
                    Some(_) => {}
                    None => claim(unit, platform.id, &platform.uma_domain)?,
                }
            }
            Ok(shared)
        })
        .await
}

/// Makes a platform that supports every currency that a rail moves.
pub async fn create(app: &App, new: NewPlatform) -> Result<Platform, Error> {
    may_give_out(app, &new.uma_domain)?;
    claim_domains(app).await?;
    let platform = draw(app, new, app.server_now());
    app.store()
        .write(app.origin(), move |unit| {
            assign(unit, platform.id, &platform.uma_domain)?;
            unit.put(platform.clone());
            Ok(platform.clone())
        })
        .await
}

/// Makes the first platform of a database, with a token, unless another server was first.
pub async fn create_first(
    app: &App,
    new: NewPlatform,
    token: impl FnOnce(&Platform) -> NewToken,
) -> Result<Option<(Platform, NewToken)>, Error> {
    may_give_out(app, &new.uma_domain)?;
    let now = app.server_now();
    let platform = draw(app, new, now);
    let token = token(&platform);
    let holder = app.server();
    app.store()
        .write(app.origin(), move |unit| {
            if unit.get::<Lease>(&LeaseName::FirstStart)?.is_some() {
                return Ok(None);
            }
            unit.put(Lease {
                name: LeaseName::FirstStart,
                holder,
                epoch: 1,
                until: now,
                address: None,
            });
            assign(unit, platform.id, &platform.uma_domain)?;
            unit.put(platform.clone());
            tokens::add(unit, &token, None)?;
            let platform = owners::platform(unit, platform.id)?;
            Ok(Some((Platform::clone(&platform), token.clone())))
        })
        .await
}

/// Changes of a platform by itself. Absent fields stay.
#[derive(Debug, Clone, Default)]
pub struct ConfigChange {
    /// Domain of addresses that are given out from now on.
    pub uma_domain: Option<UmaDomain>,
    /// Where its events go; nowhere once it is cleared.
    pub webhook_endpoint: Patch<String>,
    /// All currencies, in the place of those before (contract 13, row 26).
    pub currencies: Option<Vec<SupportedCurrency>>,
}

/// Changes a platform's configuration; it holds at once.
pub async fn configure<R: Render<Platform>>(
    app: &App,
    keyed: Keyed,
    change: ConfigChange,
    render: R,
) -> Result<Reply, Error> {
    let now = app.now(keyed.ahead);
    let id = keyed.platform;
    let in_use = currencies_in_use(app, id, &change).await?;
    let unit_app = app.clone();
    once(app, keyed, render, move |unit| {
        let mut platform = Platform::clone(&*owners::platform(unit, id)?);
        if let Some(currencies) = &change.currencies {
            let is_kept = |currency| currencies.iter().any(|kept| kept.currency == currency);
            if let Some(currency) = in_use.iter().copied().find(|currency| !is_kept(*currency)) {
                return Err(Error::Money(MoneyError::CurrencyInUse { currency }));
            }
            let rates = unit_app.env().rates(platform.mode);
            let is_unpriced = |currency: &Currency| {
                platform.supported(*currency).is_none() && !rates.names(*currency)
            };
            if let Some(currency) = currencies.iter().map(|it| it.currency).find(is_unpriced) {
                return Err(Error::Money(MoneyError::CurrencyUnpriced { currency }));
            }
            platform.currencies.clone_from(currencies);
        }
        if let Some(domain) = &change.uma_domain {
            may_give_out(&unit_app, domain)?;
            // An earlier release may have given one domain to two platforms.
            if *domain != platform.uma_domain {
                claim(unit, id, domain)?;
            }
            platform.uma_domain = domain.clone();
        }
        let endpoint = reachable(&unit_app, &platform, &change.webhook_endpoint)?;
        platform.webhook_endpoint = endpoint.applied_to(&platform.webhook_endpoint);
        match &endpoint {
            Patch::Keep => {}
            Patch::Clear => webhooks::close(unit, id)?,
            Patch::Set(_) => {
                webhooks::open(unit, id)?;
                webhooks::notify_endpoint(&unit_app, unit, &platform, now)?;
            }
        }
        platform.touch(now);
        unit.put(platform.clone());
        Ok(platform)
    })
    .await
}

/// The endpoint as it is called. Refuses one to which no event could ever be sent.
fn reachable(
    app: &App,
    platform: &Platform,
    endpoint: &Patch<String>,
) -> Result<Patch<String>, Error> {
    let Patch::Set(url) = endpoint else { return Ok(endpoint.clone()) };
    // A server that other machines reach now may be for this machine alone after its next start.
    let reach = if platform.mode == Mode::Live { Reach::Public } else { Reach::Private };
    let checked = app.env().outbound.checked(url, reach);
    let checked =
        checked.map_err(|refusal| Error::field("webhookEndpoint", refusal.to_string()))?;
    Ok(Patch::Set(checked))
}

/// The currencies that a change would take away and in which there is money.
async fn currencies_in_use(
    app: &App,
    id: PlatformId,
    change: &ConfigChange,
) -> Result<Vec<Currency>, Error> {
    let Some(kept) = &change.currencies else { return Ok(Vec::new()) };
    let is_kept = |currency| kept.iter().any(|kept| kept.currency == currency);
    let platform = app.store().get::<Platform>(id).await.map_err(Error::Store)?;
    let supported = platform.iter().flat_map(|platform| &platform.currencies);
    let gone: Vec<_> =
        supported.map(|it| it.currency).filter(|currency| !is_kept(*currency)).collect();
    app.store()
        .read(move |view| {
            let mut in_use = Vec::new();
            for currency in gone {
                if view.holds_money(id, currency)? {
                    in_use.push(currency);
                }
            }
            Ok(in_use)
        })
        .await
}

/// Sets a platform's own price for a corridor, in the place of a rule for the same corridor.
pub async fn set_pricing(app: &App, id: PlatformId, rule: CorridorRule) -> Result<Platform, Error> {
    let server_now = app.server_now();
    app.store()
        .write(app.origin(), move |unit| {
            let mut platform = Platform::clone(&*owners::platform(unit, id)?);
            let is_same = |known: &CorridorRule| {
                (known.sending, known.receiving) == (rule.sending, rule.receiving)
            };
            platform.corridors.retain(|known| !is_same(known));
            platform.corridors.push(rule);
            // The most specific rule is met first.
            platform.corridors.sort_by_key(|rule| {
                u8::from(rule.sending.is_none()) * 2 + u8::from(rule.receiving.is_none())
            });
            platform.touch(platform.ahead.shows(server_now));
            unit.put(platform.clone());
            Ok(platform)
        })
        .await
}

/// Gives a platform another UMA domain. Addresses that were given out stay.
pub async fn set_domain(app: &App, id: PlatformId, domain: UmaDomain) -> Result<(), Error> {
    may_give_out(app, &domain)?;
    claim_domains(app).await?;
    let server_now = app.server_now();
    app.store()
        .write(app.origin(), move |unit| {
            assign(unit, id, &domain)?;
            let mut platform = Platform::clone(&*owners::platform(unit, id)?);
            platform.uma_domain = domain.clone();
            platform.updated_at = platform.ahead.shows(server_now);
            unit.put(platform);
            Ok(())
        })
        .await
}

/// Sets how a platform's events are named from now on. Those that are there already keep their
/// bytes.
pub async fn set_event_names(app: &App, id: PlatformId, names: EventNames) -> Result<(), Error> {
    change(app, id, move |platform| platform.event_names = names).await
}

/// Sets what a platform's rail knows about it, or takes it away. The caller has asked the rail
/// whether it understands it.
pub async fn set_rail_settings(
    app: &App,
    id: PlatformId,
    settings: Option<Arc<str>>,
) -> Result<(), Error> {
    change(app, id, move |platform| platform.rail_settings.clone_from(&settings)).await
}

/// Sets how much an invoice of another institution may cost more or less than its lookup said.
pub async fn set_cost_drift(app: &App, id: PlatformId, max: BasisPoints) -> Result<(), Error> {
    change(app, id, move |platform| platform.cost_drift_max = max).await
}

/// Changes a platform as its operator wants it.
async fn change(
    app: &App,
    id: PlatformId,
    change: impl Fn(&mut Platform) + Send + 'static,
) -> Result<(), Error> {
    let server_now = app.server_now();
    app.store()
        .write(app.origin(), move |unit| {
            let mut platform = Platform::clone(&*owners::platform(unit, id)?);
            change(&mut platform);
            platform.touch(platform.ahead.shows(server_now));
            unit.put(platform);
            Ok(())
        })
        .await
}

/// The balance of an owner's account in a currency.
pub(crate) fn balance_of(
    unit: &mut Unit<'_, '_>,
    owner: Owner,
    currency: Currency,
) -> Result<Balance, StoreError> {
    unit.balance(&AccountKey::Internal(InternalAccountId::of(owner, currency)))
}
