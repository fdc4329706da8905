//! External accounts (specification 4.7, 4.8; contract 6.7).

use domain::account_info::AccountInfo;
use domain::currency::Currency;
use domain::customer::Customer;
use domain::external_account::ExternalAccount;
use domain::id::{CustomerId, ExternalAccountId, PlatformId};
use domain::time::Timestamp;
use store::external_accounts::{Fingerprint, fingerprint};
use store::unit::Unit;

use crate::error::Error;
use crate::owners::{self, Holder};

/// What a platform says about a new external account.
#[derive(Debug, Clone)]
pub struct NewExternalAccount {
    /// Whose it is; the platform's without one.
    pub customer_id: Option<CustomerId>,
    /// The currency that it holds.
    pub currency: Currency,
    /// What identifies it on its rail, and who holds it.
    pub info: AccountInfo,
    /// The platform's own name for it.
    pub platform_account_id: Option<String>,
    /// Whether incoming UMA payments of the customer go on to it.
    pub default_uma_deposit_account: bool,
    /// The blockchain of a wallet.
    pub crypto_network: Option<String>,
}

/// What becomes of an account that its owner has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicate {
    /// The request is refused.
    Refused,
    /// The one that exists is used.
    Used,
}

/// Adds an external account, which has the id that was drawn for it.
pub fn create(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewExternalAccount,
    id: ExternalAccountId,
    duplicate: Duplicate,
    now: Timestamp,
) -> Result<ExternalAccount, Error> {
    let platform = owners::platform(unit, platform)?;
    let holder = owners::holder(unit, platform.id, new.customer_id)?;
    if let Holder::Customer(customer) = &holder
        && customer.is_deleted
    {
        return Err(Error::CustomerDeleted { id: customer.id });
    }
    if platform.supported(new.currency).is_none() {
        return Err(Error::CurrencyNotEnabled { currency: new.currency, what: "any" });
    }
    if platform.checks_digits() {
        let mut errors = new.info.check_digits();
        for error in &mut errors {
            error.field = format!("accountInfo.{}", error.field);
        }
        if !errors.is_empty() {
            return Err(Error::InvalidAccountDetails(errors));
        }
    }
    let owner = holder.owner();
    let fingerprint = fingerprint(unit.keyring(), owner, &new.info, new.currency);
    if let Some(existing) = unit.get::<Fingerprint>(&fingerprint)? {
        let existing = existing.external_account;
        return match duplicate {
            Duplicate::Refused => Err(Error::DuplicateExternalAccount { existing }),
            Duplicate::Used => owners::external_account(unit, platform.id, existing)
                .map(|account| ExternalAccount::clone(&account)),
        };
    }
    let account = ExternalAccount {
        id,
        platform: platform.id,
        owner,
        status: platform.first_account_status(&new.info),
        currency: new.currency,
        platform_account_id: new.platform_account_id.clone(),
        info: new.info.clone(),
        crypto_network: new.crypto_network.clone(),
        verification: None,
        created_at: id.created_at(),
        updated_at: id.created_at(),
    };
    unit.claim_fingerprint(Fingerprint { fingerprint, external_account: id });
    unit.put_external_account(account.clone());
    if new.default_uma_deposit_account {
        make_default(unit, &holder, id, now)?;
    }
    Ok(account)
}

/// Moves the flag of the default deposit account to this one. It is one field of the customer, so
/// there is no moment with two or none.
fn make_default(
    unit: &mut Unit<'_, '_>,
    holder: &Holder,
    id: ExternalAccountId,
    now: Timestamp,
) -> Result<(), Error> {
    let Holder::Customer(customer) = holder else {
        return Err(Error::field(
            "defaultUmaDepositAccount",
            "only a customer's account can receive UMA payments; give a customerId",
        ));
    };
    unit.put_customer(Customer {
        default_uma_deposit_account: Some(id),
        updated_at: now,
        ..Customer::clone(customer)
    });
    Ok(())
}
