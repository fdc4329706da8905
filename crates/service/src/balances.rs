//! Notifies platforms of their internal accounts (design decision 10): every unit that changes what
//! is available on one ends with an event about it, one for each account. Whether none is left out
//! is one of the predicates of `verify`: an account's row says what was sent last.

use domain::customer::Customer;
use domain::event::EventKind;
use domain::id::{CustomerId, PlatformId};
use store::books::BalanceChange;
use store::unit::Unit;

use crate::env::Env;
use crate::error::Error;
use crate::owners::{self, Holder};
use crate::presenter::{ChangedAccount, Subject};

/// Notifies of every balance that the unit has changed and that was not notified yet. Each path
/// that commits units calls it at their end: [`crate::app::App::write`] and [`crate::once::once`].
pub fn tell(env: &Env, unit: &mut Unit<'_, '_>) -> Result<(), Error> {
    for change in unit.tell_balances() {
        let account = changed(unit, change)?;
        let row = &account.change.row;
        let change = (account.change.account.uuid(), row.notified.times);
        let (kind, subject) = (EventKind::AccountStatus, Subject::Account(&account));
        unit.add_event(env.event(&account.platform, kind, change, row.updated_at, subject))?;
    }
    Ok(())
}

/// Finds out whose an account is. Most are a customer's, whom the unit has read already.
fn changed(unit: &mut Unit<'_, '_>, change: BalanceChange) -> Result<ChangedAccount, Error> {
    let owner = change.account.owner_uuid();
    let (platform, owner) = match unit.get::<Customer>(&CustomerId::from_uuid(owner))? {
        Some(customer) => (owners::platform(unit, customer.platform)?, Holder::Customer(customer)),
        None => {
            let platform = owners::platform(unit, PlatformId::from_uuid(owner))?;
            let id = platform.id;
            (platform, Holder::Platform(id))
        }
    };
    Ok(ChangedAccount { platform, owner, change })
}
