//! Receiver lookups: who can be paid, how, and what has to be said about the payer (specification
//! 4.11, 4.12; contract 6.8).

use std::sync::Arc;

use domain::customer::Customer;
use domain::id::{CustomerId, ExternalAccountId, LookupId, PlatformId};
use domain::lookup::{LIFETIME_MILLIS, Lookup, Offer, Receiver};
use domain::money::AMOUNT_MAX;
use domain::platform::{CounterpartyField, Platform};
use domain::rate::Rate;
use domain::time::Timestamp;
use domain::transaction::Direction;
use domain::uma_address::UmaAddress;
use ports::uma::PeerFailure;
use store::unit::Unit;

use crate::app::App;
use crate::error::{CustomerError, Error, Missing, PeerStage, UmaError};
use crate::uma::payees::{self, Payee};
use crate::{limits, owners, pricing};

/// A request for a lookup.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The customer who wants to pay, by its id.
    pub customer_id: Option<CustomerId>,
    /// The same customer, by its address. One of the two must be there.
    pub sender: Option<UmaAddress>,
    /// The payee.
    pub receiver: Wanted,
}

/// The payee.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// The holder of this address.
    Address(UmaAddress),
    /// An external account of the platform.
    Account(ExternalAccountId),
}

/// A lookup with what each offer would cost now.
#[derive(Debug, Clone)]
pub struct Looked {
    /// The lookup.
    pub lookup: Lookup,
    /// Its offers for which there is a rate, from the first currency of the platform's that can be
    /// sent. Indicative: the fees are not in it, and the quote's currency may be another.
    pub offers: Vec<(Offer, Rate)>,
}

/// Where an address was found.
enum Found {
    /// On this server, or it is an account; the lookup is kept.
    Here(Lookup),
    /// Not here: another institution has to be asked.
    Elsewhere { address: UmaAddress, sender: Arc<Customer> },
}

/// Looks a receiver up and keeps what was said. Another institution is asked outside any unit of
/// work.
pub async fn look_up(app: &App, asking: &Platform, asked: Asked) -> Result<Looked, Error> {
    let (platform, now) = (asking.id, app.now(asking.ahead));
    let id: LookupId = app.new_id(asking.ahead, now);
    let found = {
        let asked = asked.clone();
        let unit_app = app.clone();
        app.store()
            .write(app.origin(), move |unit| find(&unit_app, unit, platform, &asked, id, now))
            .await?
    };
    let (lookup, platform) = match found {
        (Found::Here(lookup), platform) => (lookup, platform),
        (Found::Elsewhere { address, sender }, platform) => {
            if app.env().lightning(platform.mode).is_none() {
                return Err(Error::NotConnected { missing: Missing::UmaNetwork });
            }
            let refused = |failure: PeerFailure| {
                let (address, stage) = (address.clone(), PeerStage::Lookup);
                Error::Uma(UmaError::Peer { address, stage, failure })
            };
            let payee = payees::look_up(app, &platform, &address).await?.map_err(&refused)?;
            let offers = allowed(app, &platform, payee.offers.clone(), now);
            let lookup =
                from_peer(id, &platform, sender.id, address.clone(), (&payee, offers), now);
            let looked = payable(app, &platform, lookup, &payee, now);
            let kept = looked.clone().ok().map(|looked| looked.lookup);
            let add = move |unit: &mut Unit<'_, '_>| {
                let is_new = payee.keep(unit)?;
                if is_new.is_ok() {
                    kept.iter().cloned().for_each(|lookup| unit.put(lookup));
                }
                Ok::<_, Error>(is_new)
            };
            app.store().write(app.origin(), add).await?.map_err(&refused)?;
            return looked;
        }
    };
    priced(app, &platform, lookup, now)
}

/// The lookup of an address at another institution with its offers. Refuses an answer with nothing
/// in common, and says why each of its currencies is left out.
fn payable(
    app: &App,
    platform: &Platform,
    lookup: Lookup,
    payee: &Payee,
    now: Timestamp,
) -> Result<Looked, Error> {
    let receiver = lookup.receiver.address().cloned();
    let looked = priced(app, platform, lookup, now)?;
    let Some(address) = receiver.filter(|_| looked.offers.is_empty()) else { return Ok(looked) };
    let outside = |offer: &Offer| {
        let (code, min, max) = (offer.currency.code(), offer.min_minor, offer.max_minor);
        format!("{code}: this platform can send none of the {min} to {max} that are taken")
    };
    let mut left_out = payee.left_out.clone();
    left_out.extend(payee.offers.iter().map(outside));
    Err(Error::Uma(UmaError::NothingInCommon { address, left_out }))
}

/// The customer who wants to pay.
fn sender(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    asked: &Asked,
) -> Result<Arc<Customer>, Error> {
    let by_address = match &asked.sender {
        Some(address) => {
            let unknown = || Error::Uma(UmaError::SenderNotFound { address: address.clone() });
            let customer = unit.claim(address)?.ok_or_else(unknown)?;
            let customer = unit.get::<Customer>(&customer)?;
            let customer = customer.filter(|one| one.platform == platform);
            Some(customer.filter(|one| one.uma_address == *address).ok_or_else(unknown)?)
        }
        None => None,
    };
    let by_id = match asked.customer_id {
        Some(id) => Some(owners::customer(unit, platform, id)?),
        None => None,
    };
    let customer = match (by_id, by_address) {
        (Some(customer), Some(other)) if customer.id != other.id => {
            let message = "is not the address of the customer with this customerId";
            return Err(Error::field("senderUmaAddress", message));
        }
        (Some(customer), _) | (None, Some(customer)) => customer,
        (None, None) => {
            let message = "is required unless senderUmaAddress says who wants to pay";
            return Err(Error::field("customerId", message));
        }
    };
    if customer.is_deleted {
        return Err(Error::Customer(CustomerError::Deleted { id: customer.id }));
    }
    Ok(customer)
}

fn find(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    asked: &Asked,
    id: LookupId,
    now: Timestamp,
) -> Result<(Found, Arc<Platform>), Error> {
    let platform = owners::platform(unit, platform)?;
    let sender = sender(unit, platform.id, asked)?;
    let (receiver, offers, payer_fields) = match &asked.receiver {
        Wanted::Account(id) => {
            let account = owners::external_account(unit, platform.id, *id)?;
            let holder = owners::Holder::Customer(Arc::clone(&sender));
            owners::usable_by(unit, &account, &holder, "accountId")?;
            let offer = Offer {
                currency: account.currency,
                min_minor: 1,
                max_minor: AMOUNT_MAX,
                msat_per_unit: None,
            };
            // A currency that is not on could not be quoted.
            let is_on = limits::enabled(&platform, account.currency, Direction::Outgoing).is_ok();
            (Receiver::Account(*id), is_on.then_some(offer).into_iter().collect(), Vec::new())
        }
        Wanted::Address(address) => match local(unit, &platform, address)? {
            Some(local) => {
                let (address, customer) = (address.clone(), local.customer.id);
                let receiver = Receiver::Customer { address, customer };
                (receiver, offers_of(&local.platform), fields_of(&local.platform))
            }
            None => {
                let address = address.clone();
                return Ok((Found::Elsewhere { address, sender }, platform));
            }
        },
    };
    let lookup = Lookup {
        id,
        platform: platform.id,
        sender: sender.id,
        receiver,
        offers: allowed(app, &platform, offers, now),
        payer_fields,
        expires_at: now.plus_millis(LIFETIME_MILLIS),
    };
    unit.put(lookup.clone());
    Ok((Found::Here(lookup), platform))
}

/// Offers within what the platform that pays allows (specification 2.14): by its limits for the
/// offer's currency, or else by those for the currency that it sends. One of which nothing is left
/// is none.
fn allowed(app: &App, platform: &Platform, offers: Vec<Offer>, now: Timestamp) -> Vec<Offer> {
    let rates = app.env().rates(platform.mode);
    let rates = rates.as_ref();
    let within = |offer: Offer| {
        let (min, max) = match platform.supported(offer.currency) {
            Some(own) => (own.min_minor, own.max_minor),
            None => {
                let sending = platform.first_currency(Direction::Outgoing)?;
                let own = platform.supported(sending)?;
                let corridor = pricing::corridor_to(rates, platform, sending, &offer, now).ok()?;
                pricing::delivered(corridor, sending, (own.min_minor, own.max_minor))?
            }
        };
        let (min_minor, max_minor) = (offer.min_minor.max(min), offer.max_minor.min(max));
        (min_minor <= max_minor).then_some(Offer { min_minor, max_minor, ..offer })
    };
    offers.into_iter().filter_map(within).collect()
}

/// A customer of this server who can be paid at an address.
pub(crate) struct Local {
    /// The customer.
    pub customer: Arc<Customer>,
    /// Its platform.
    pub platform: Arc<Platform>,
}

/// The customer of this server who has an address; nothing if the address is another
/// institution's.
///
/// An address that a customer gave up reaches no customer, nor does one of a platform in the other
/// mode: money that is real and money that is not never meet.
pub(crate) fn local(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    address: &UmaAddress,
) -> Result<Option<Local>, Error> {
    let unknown = || Error::Uma(UmaError::NotFound { address: address.clone() });
    let Some(customer) = unit.claim(address)? else {
        let is_ours = address.domain() == platform.uma_domain.as_str();
        return if is_ours { Err(unknown()) } else { Ok(None) };
    };
    let customer = unit.get::<Customer>(&customer)?.ok_or_else(unknown)?;
    let theirs = owners::platform(unit, customer.platform)?;
    if customer.is_deleted || customer.uma_address != *address || theirs.mode != platform.mode {
        return Err(unknown());
    }
    if !customer.kyc.status().may_move_money() {
        return Err(Error::Uma(UmaError::PayeeNotReady { address: address.clone() }));
    }
    Ok(Some(Local { customer, platform: theirs }))
}

/// The currencies in which customers of a platform can be paid, in the order of its configuration.
pub(crate) fn offers_of(platform: &Platform) -> Vec<Offer> {
    let incoming = platform.currencies.iter().filter(|one| one.allows(Direction::Incoming));
    incoming
        .map(|supported| Offer {
            currency: supported.currency,
            min_minor: supported.min_minor.max(1),
            max_minor: supported.max_minor,
            msat_per_unit: None,
        })
        .filter(|offer| offer.min_minor <= offer.max_minor)
        .collect()
}

/// The facts that a platform asks about the payers of its customers, in any currency: the payer has
/// not chosen one yet.
pub(crate) fn fields_of(platform: &Platform) -> Vec<CounterpartyField> {
    let incoming = platform.currencies.iter().filter(|one| one.allows(Direction::Incoming));
    CounterpartyField::asked_for(incoming)
}

fn from_peer(
    id: LookupId,
    platform: &Platform,
    sender: CustomerId,
    address: UmaAddress,
    (payee, offers): (&Payee, Vec<Offer>),
    now: Timestamp,
) -> Lookup {
    Lookup {
        id,
        platform: platform.id,
        sender,
        receiver: Receiver::Peer { address, way: payee.way.clone() },
        offers,
        payer_fields: payee.payer_fields.clone(),
        expires_at: now.plus_millis(LIFETIME_MILLIS),
    }
}

/// A lookup with what its offers would cost. An offer without a rate is not shown: it could not be
/// quoted on. If none of them has one, that is said.
fn priced(app: &App, platform: &Platform, lookup: Lookup, now: Timestamp) -> Result<Looked, Error> {
    let rates = app.env().rates(platform.mode);
    let (mut offers, mut refusal) = (Vec::new(), None);
    if let Some(sending) = platform.first_currency(Direction::Outgoing) {
        for offer in &lookup.offers {
            match pricing::corridor_to(rates.as_ref(), platform, sending, offer, now) {
                Ok(corridor) => offers.push((*offer, corridor.rate)),
                Err(error) => refusal = Some(error),
            }
        }
    }
    match refusal {
        Some(refusal) if offers.is_empty() => Err(refusal),
        Some(_) | None => Ok(Looked { lookup, offers }),
    }
}
