//! Customers (specification 2.6; contract 6.3).

use std::sync::Arc;

use domain::account_info::{FieldError, Rule};
use domain::clock::Ahead;
use domain::code::letter;
use domain::customer::{BusinessPatch, Customer, Identity, IndividualPatch, KycStatus};
use domain::id::{CustomerId, Owner, PlatformId};
use domain::kyc::{Event, Kyc};
use domain::platform::Platform;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use ledger::account::Side;
use store::keyring::{Keyring, Purpose};
use store::open_payments::OpenPayments;
use store::unit::Unit;

use crate::app::App;
use crate::error::{CustomerError, Error, UmaError};
use crate::once::{Keyed, Render, Reply, once};
use crate::{identity, owners, platforms};

/// A platform's request for a new customer.
#[derive(Debug, Clone)]
pub struct NewCustomer {
    /// The platform's own name for it; one is made up without it.
    pub platform_customer_id: Option<String>,
    /// Its address; one is made up without it.
    pub uma_address: Option<String>,
    /// The platform's statement about its identity; counts only for regulated platforms.
    pub kyc_status: Option<KycStatus>,
    /// The person or business.
    pub identity: Identity,
}

/// Random values for a new customer, so that a repeat of the unit makes the same one.
#[derive(Debug, Clone)]
pub struct Drawn {
    id: CustomerId,
    user: String,
}

/// Characters of an address that we make up: 60 random bits.
const USER_LENGTH: usize = 12;

/// Draws what a new customer needs.
pub fn draw(app: &App, ahead: Ahead) -> Drawn {
    let now = app.now(ahead);
    let user = app.random::<USER_LENGTH>().into_iter().map(letter).collect();
    Drawn { id: app.new_owner_id(ahead, now), user }
}

impl Drawn {
    /// The same, with the address that a platform's name for a customer always leads to. The key is
    /// in it, so that the name does not tell the address.
    pub(crate) fn named(mut self, keyring: &Keyring, platform: PlatformId, name: &str) -> Self {
        let platform = platform.uuid();
        let parts = [platform.as_bytes().as_slice(), name.as_bytes()];
        let digest = keyring.hash(Purpose::LinkedAddress, &parts);
        self.user = digest.into_iter().take(USER_LENGTH).map(letter).collect();
        self
    }

    fn address(&self, platform: &Platform) -> Result<UmaAddress, Error> {
        let address = UmaAddress::at(&self.user, &platform.uma_domain);
        address.map_err(|error| Error::Internal(error.to_string()))
    }

    /// The customer who took the drawn address when it was made, and is still there.
    pub(crate) fn holder(
        &self,
        unit: &mut Unit<'_, '_>,
        platform: PlatformId,
    ) -> Result<Option<Arc<Customer>>, Error> {
        let address = self.address(&*owners::platform(unit, platform)?)?;
        let Some(customer) = unit.claim(&address)? else { return Ok(None) };
        Ok(Some(owners::customer(unit, platform, customer)?))
    }
}

/// Makes a customer. Its internal accounts exist from now on, one per supported currency.
pub fn create(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewCustomer,
    drawn: &Drawn,
) -> Result<Customer, Error> {
    add(unit, platform, new, drawn, |platform| {
        platform.first_kyc_status(new.kyc_status, new.identity.name())
    })
}

/// Makes a customer of whom this much is known.
pub(crate) fn add(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewCustomer,
    drawn: &Drawn,
    first_status: impl FnOnce(&Platform) -> KycStatus,
) -> Result<Customer, Error> {
    plausible(&new.identity, drawn.id.created_at())?;
    let platform = owners::platform(unit, platform)?;
    let uma_address = match &new.uma_address {
        Some(text) => own_address(&platform, text)?,
        None => drawn.address(&platform)?,
    };
    claim(unit, &uma_address, drawn.id)?;
    let customer = Customer {
        id: drawn.id,
        platform: platform.id,
        platform_customer_id: new
            .platform_customer_id
            .clone()
            .unwrap_or_else(|| drawn.id.uuid().to_string()),
        uma_address,
        kyc: Kyc::first(first_status(&platform)),
        identity_check: None,
        identity: new.identity.clone(),
        default_uma_deposit_account: None,
        is_deleted: false,
        created_at: drawn.id.created_at(),
        updated_at: drawn.id.created_at(),
    };
    unit.put(customer.clone());
    Ok(customer)
}

/// Refuses an impossible identity at `now`, by the platform's clock.
fn plausible(identity: &Identity, now: Timestamp) -> Result<(), Error> {
    let errors = identity.implausible(now.date());
    if errors.is_empty() { Ok(()) } else { Err(Error::Invalid(errors)) }
}

/// An address at the platform's own domain.
fn own_address(platform: &Platform, text: &str) -> Result<UmaAddress, Error> {
    let refused =
        |reason: String| Error::Uma(UmaError::InvalidAddress { address: text.to_owned(), reason });
    let address = UmaAddress::parse(text).map_err(|error| refused(error.to_string()))?;
    if address.domain() != platform.uma_domain.as_str() {
        let domain = &platform.uma_domain;
        return Err(refused(format!("a customer's UMA address ends in @{domain}")));
    }
    Ok(address)
}

/// Takes an address for a customer, unless another one has it or ever had it.
fn claim(unit: &mut Unit<'_, '_>, address: &UmaAddress, customer: CustomerId) -> Result<(), Error> {
    match unit.claim(address)? {
        Some(holder) if holder == customer => Ok(()),
        Some(_) => {
            Err(Error::Customer(CustomerError::UmaAddressTaken { address: address.clone() }))
        }
        None => {
            unit.put_claim(address, customer);
            Ok(())
        }
    }
}

/// Changes of a customer by its platform. Absent fields stay.
#[derive(Debug, Clone, Default)]
pub struct CustomerChange {
    /// The type that the platform believes the customer to have.
    pub customer_type: &'static str,
    /// A new address in the place of the old one.
    pub uma_address: Option<String>,
    /// The platform's statement about its identity; counts only for regulated platforms.
    pub kyc_status: Option<KycStatus>,
    /// Changes of a person.
    pub individual: IndividualPatch,
    /// Changes of a business.
    pub business: BusinessPatch,
}

impl CustomerChange {
    fn applied_to(&self, identity: &Identity) -> Identity {
        match identity {
            Identity::Individual(old) => Identity::Individual(old.patched(&self.individual)),
            Identity::Business(old) => Identity::Business(old.patched(&self.business)),
        }
    }
}

/// Refuses personal data that is another than before, every field of it.
fn refuse_changes(old: &Identity, new: &Identity) -> Result<(), Error> {
    let compared = match (old, new) {
        (Identity::Individual(old), Identity::Individual(new)) => vec![
            ("fullName", old.full_name == new.full_name),
            ("birthDate", old.birth_date == new.birth_date),
            ("nationality", old.nationality == new.nationality),
            ("address", old.address == new.address),
        ],
        (Identity::Business(old), Identity::Business(new)) => vec![
            ("businessInfo.legalName", old.legal_name == new.legal_name),
            ("businessInfo.registrationNumber", old.registration_number == new.registration_number),
            ("businessInfo.taxId", old.tax_id == new.tax_id),
            ("address", old.address == new.address),
            ("beneficialOwners", old.beneficial_owners == new.beneficial_owners),
        ],
        (Identity::Individual(_), Identity::Business(_))
        | (Identity::Business(_), Identity::Individual(_)) => vec![("customerType", false)],
    };
    let changed = compared.into_iter().filter(|(_, is_same)| !is_same);
    let errors: Vec<_> = changed
        .map(|(field, _)| FieldError {
            field: field.to_owned(),
            rule: Rule::Other,
            message: "cannot be changed after creation on an unregulated platform".to_owned(),
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(Error::Invalid(errors)) }
}

/// Changes a customer. Only a regulated platform may change personal data after creation: for the
/// others we have checked it (contract 6.3).
pub fn update(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: CustomerId,
    change: &CustomerChange,
    now: Timestamp,
) -> Result<Customer, Error> {
    let platform = owners::platform(unit, platform)?;
    let mut customer = Customer::clone(&*owners::customer(unit, platform.id, id)?);
    if customer.is_deleted {
        return Err(Error::Customer(CustomerError::Deleted { id }));
    }
    let customer_type = customer.identity.customer_type();
    if change.customer_type != customer_type {
        let message = format!("is {} and must stay {customer_type}", change.customer_type);
        return Err(Error::field("customerType", message));
    }
    let identity = change.applied_to(&customer.identity);
    plausible(&identity, now)?;
    if !platform.is_regulated {
        refuse_changes(&customer.identity, &identity)?;
    }
    customer.identity = identity;
    if let Some(text) = &change.uma_address {
        let address = UmaAddress::parse(text)
            .ok()
            .filter(|address| *address == customer.uma_address)
            .map_or_else(|| own_address(&platform, text), Ok)?;
        claim(unit, &address, id)?;
        customer.uma_address = address;
    }
    customer.touch(now);
    match change.kyc_status {
        Some(status) if platform.is_regulated && status != customer.kyc.status() => {
            identity::know(app, unit, customer, Event::Stated(status), now)
        }
        Some(_) | None => {
            unit.put(customer.clone());
            Ok(customer)
        }
    }
}

/// Deletes a customer: its records stay readable, its money does not move any more. Refused while
/// there is money or a payment under way.
pub async fn delete<R: Render<Customer>>(
    app: &App,
    keyed: Keyed,
    id: CustomerId,
    render: R,
) -> Result<Reply, Error> {
    let now = app.now(keyed.ahead);
    let platform = keyed.platform;
    once(app, keyed, render, move |unit| {
        let customer = owners::customer(unit, platform, id)?;
        if customer.is_deleted {
            return Err(Error::Customer(CustomerError::Deleted { id }));
        }
        let under_way = || Err(Error::Conflict(format!("{id} has payments under way")));
        if unit.get::<OpenPayments>(&id)?.is_some() {
            return under_way();
        }
        // Money is only in what the platform supports: nothing else can be taken in, and what has
        // money cannot be turned off.
        let supported = owners::platform(unit, platform)?;
        for currency in supported.currencies.iter().map(|it| it.currency) {
            let balance = platforms::balance_of(unit, Owner::Customer(id), currency)?;
            if balance.debits_pending() != 0 || balance.credits_pending() != 0 {
                return under_way();
            }
            if balance.available(Side::Credit) != 0 {
                let what = format!("{id} has money in {currency}; move it out first");
                return Err(Error::Conflict(what));
            }
        }
        let mut deleted = Customer { is_deleted: true, ..Customer::clone(&customer) };
        deleted.touch(now);
        identity::withdraw_check(unit, &deleted)?;
        unit.put(deleted.clone());
        Ok(deleted)
    })
    .await
}
