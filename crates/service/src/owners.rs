//! Whose account is it, and may its owner move money?

use std::sync::Arc;

use domain::account_info::AccountInfo;
use domain::currency::Currency;
use domain::customer::Customer;
use domain::external_account::{self, ExternalAccount};
use domain::id::{CustomerId, ExternalAccountId, InternalAccountId, Owner, PlatformId};
use domain::platform::Platform;
use domain::rail::Rail;
use domain::time::Timestamp;
use store::error::StoreError;
use store::unit::Unit;

use crate::error::{AccountError, CustomerError, Error};

/// An internal account of the calling platform.
#[derive(Debug, Clone)]
pub struct InternalAccount {
    /// Its id.
    pub id: InternalAccountId,
    /// Its currency.
    pub currency: Currency,
    /// Whose it is.
    pub owner: Holder,
}

/// The owner of an account, with its record.
#[derive(Debug, Clone)]
pub enum Holder {
    /// The platform itself.
    Platform(PlatformId),
    /// A customer.
    Customer(Arc<Customer>),
}

impl Holder {
    /// The owner's id.
    pub fn owner(&self) -> Owner {
        match self {
            Self::Platform(id) => Owner::Platform(*id),
            Self::Customer(customer) => Owner::Customer(customer.id),
        }
    }

    /// The platform's own name for the owner (design decision 13: its own id for itself).
    pub fn platform_customer_id(&self) -> String {
        match self {
            Self::Platform(id) => id.to_string(),
            Self::Customer(customer) => customer.platform_customer_id.clone(),
        }
    }

    /// When the owner was made, and its accounts with it.
    pub fn created_at(&self, platform: &Platform) -> Timestamp {
        match self {
            Self::Platform(_) => platform.created_at,
            Self::Customer(customer) => customer.created_at,
        }
    }

    /// Refuses an owner whose money must not move.
    pub fn may_move_money(&self) -> Result<(), Error> {
        match self {
            Self::Platform(_) => Ok(()),
            Self::Customer(customer) if customer.is_deleted => {
                Err(Error::Customer(CustomerError::Deleted { id: customer.id }))
            }
            Self::Customer(customer) if !customer.kyc.status().may_move_money() => {
                Err(Error::Customer(CustomerError::NotReady {
                    id: customer.id,
                    status: customer.kyc.status(),
                }))
            }
            Self::Customer(_) => Ok(()),
        }
    }
}

impl Holder {
    /// Refuses a customer of whom less is known than the platform's configuration asks for in this
    /// currency (`providerRequiredCustomerFields`, contract 6.1).
    pub fn is_known_enough(&self, platform: &Platform, currency: Currency) -> Result<(), Error> {
        let Self::Customer(customer) = self else { return Ok(()) };
        let Some(supported) = platform.supported(currency) else { return Ok(()) };
        let needed = &supported.provider_required_customer_fields;
        if needed.is_empty() {
            return Ok(());
        }
        let known = customer.facts();
        let fields: Vec<_> =
            needed.iter().copied().filter(|name| !known.contains_key(name)).collect();
        match fields.is_empty() {
            true => Ok(()),
            false => Err(Error::Customer(CustomerError::DataMissing {
                id: customer.id,
                currency,
                fields,
            })),
        }
    }
}

/// The platform that asks, as the unit sees it.
pub fn platform(unit: &mut Unit<'_, '_>, id: PlatformId) -> Result<Arc<Platform>, Error> {
    unit.get::<Platform>(&id)?
        .ok_or_else(|| Error::Internal(format!("the platform {id} has vanished")))
}

/// A customer of the platform, deleted or not.
pub fn customer(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: CustomerId,
) -> Result<Arc<Customer>, Error> {
    unit.get::<Customer>(&id)?
        .filter(|customer| customer.platform == platform)
        .ok_or(Error::Customer(CustomerError::NotFound { id }))
}

/// The owner that an optional customer id names: the platform itself without one.
pub fn holder(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    customer_id: Option<CustomerId>,
) -> Result<Holder, Error> {
    match customer_id {
        None => Ok(Holder::Platform(platform)),
        Some(id) => Ok(Holder::Customer(customer(unit, platform, id)?)),
    }
}

/// Whose an internal account is, by the two ways in which rows are read.
pub trait Lookup {
    /// The customer with this id.
    fn customer(&mut self, id: CustomerId) -> Result<Option<Arc<Customer>>, StoreError>;
}

impl Lookup for Unit<'_, '_> {
    fn customer(&mut self, id: CustomerId) -> Result<Option<Arc<Customer>>, StoreError> {
        self.get::<Customer>(&id)
    }
}

impl Lookup for store::reader::View<'_> {
    fn customer(&mut self, id: CustomerId) -> Result<Option<Arc<Customer>>, StoreError> {
        self.get::<Customer>(&id)
    }
}

/// An internal account of the platform or of one of its customers. An account exists for every
/// currency that the platform supports, whether or not anything was ever posted to it.
pub fn internal_account(
    rows: &mut impl Lookup,
    platform: &Platform,
    id: InternalAccountId,
) -> Result<InternalAccount, Error> {
    let not_found = || Error::Account(AccountError::NotFound { id: id.to_string() });
    let currency = id
        .currency()
        .filter(|currency| platform.supported(*currency).is_some())
        .ok_or_else(not_found)?;
    let owner = id.owner_uuid();
    if owner == platform.id.uuid() {
        return Ok(InternalAccount { id, currency, owner: Holder::Platform(platform.id) });
    }
    let customer = rows
        .customer(CustomerId::from_uuid(owner))?
        .filter(|customer| customer.platform == platform.id)
        .ok_or_else(not_found)?;
    Ok(InternalAccount { id, currency, owner: Holder::Customer(customer) })
}

/// An external account of the platform or of one of its customers.
pub fn external_account(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: ExternalAccountId,
) -> Result<Arc<ExternalAccount>, Error> {
    unit.get::<ExternalAccount>(&id)?
        .filter(|account| account.platform == platform)
        .ok_or_else(|| Error::Account(AccountError::NotFound { id: id.to_string() }))
}

/// Refuses an external account that cannot pay or be paid now: one that is not active, one whose
/// owner's money must not move, or one of a customer other than the one whose money moves. A
/// customer's money never leaves through another's account.
pub fn usable_by(
    unit: &mut Unit<'_, '_>,
    account: &ExternalAccount,
    holder: &Holder,
    field: &str,
) -> Result<(), Error> {
    self::holder(unit, account.platform, account.owner.customer())?.may_move_money()?;
    if account.status != external_account::Status::Active {
        return Err(Error::Account(AccountError::NotActive {
            id: account.id,
            status: account.status,
        }));
    }
    match (account.owner, holder) {
        (Owner::Customer(theirs), Holder::Customer(customer)) if theirs != customer.id => {
            Err(Error::field(field, "is an account of another customer"))
        }
        (Owner::Customer(_) | Owner::Platform(_), _) => Ok(()),
    }
}

/// Refuses a wanted rail that is none of an account's own.
pub(crate) fn has_rail(account: &AccountInfo, wanted: Option<Rail>) -> Result<(), Error> {
    let Some(rail) = wanted.filter(|rail| !account.rails().contains(rail)) else { return Ok(()) };
    let own: Vec<_> = account.rails().iter().map(|rail| rail.name()).collect();
    let message = format!("{} is none of the account's rails: {}", rail.name(), own.join(", "));
    Err(Error::field("destination.paymentRail", message))
}
