//! Accounts and addresses as keys of lists, and whose they are.

use domain::customer::Customer;
use domain::external_account::ExternalAccount;
use domain::id::{CustomerId, ExternalAccountId, InternalAccountId, Owner, PlatformId};
use domain::transaction::{AccountRef, Destination, Source};
use domain::uma_address::UmaAddress;
use uuid::Uuid;

use crate::error::StoreError;
use crate::reader::View;
use crate::record;
use crate::seal;
use crate::sql::Value;

/// The uuid of an account.
pub(crate) fn account_uuid(account: AccountRef) -> Uuid {
    match account {
        AccountRef::Internal(id) => id.uuid(),
        AccountRef::External(id) => id.uuid(),
    }
}

/// The key of a UMA address in lists by account. Each platform has a uuid of its own for it, so
/// that a platform's list of payments to an address holds no other platform's.
pub fn address_uuid(platform: PlatformId, address: &UmaAddress) -> Uuid {
    Uuid::new_v5(&platform.uuid(), address.as_str().as_bytes())
}

/// The key of a source in lists by account; nothing for a deposit.
pub(crate) fn source_uuid(platform: PlatformId, source: &Source) -> Option<Uuid> {
    match source {
        Source::Account { account, .. } => Some(account_uuid(*account)),
        Source::RealtimeFunding { .. } => None,
        Source::Uma { address } => Some(address_uuid(platform, address)),
    }
}

/// The key of a destination in lists by account.
pub(crate) fn destination_uuid(platform: PlatformId, destination: &Destination) -> Uuid {
    match destination {
        Destination::Account { account, .. } => account_uuid(*account),
        Destination::Uma { address, .. } => address_uuid(platform, address),
    }
}

/// An account or a UMA address that a list is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// An account, by its uuid.
    Account(Uuid),
    /// An address.
    Address(UmaAddress),
}

/// Owners whose lists are merged when the platform gave them the same name. A platform gives a name
/// to one customer, seldom to a few; of more, the name is compared row by row.
const OWNERS_MAX: u32 = 16;

pub(crate) const OWNERS_NAMED: &str =
    "where platform = $1 and platform_customer_id = $2 order by id limit $3";

/// The kind of account or owner that a uuid identifies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An owner, or an internal account of an owner.
    Owner,
    /// An external account.
    ExternalAccount,
}

impl View<'_> {
    /// The platform's customers with this name of the platform's, and the platform itself if it is
    /// its own; nothing if they are too many to be merged.
    pub(crate) fn owners_named(
        &mut self,
        platform: PlatformId,
        name: &str,
    ) -> Result<Option<Vec<Owner>>, StoreError> {
        let mut owners = Vec::new();
        if name == platform.to_string() {
            owners.push(Owner::Platform(platform));
        }
        let hidden = Value::or_null(seal::hidden(self.keyring, &name.into()));
        let parameters = [platform.into(), hidden, (OWNERS_MAX + 1).into()];
        let named =
            record::select::<Customer>(self.connection, self.keyring, OWNERS_NAMED, &parameters)?;
        owners.extend(named.into_iter().map(|customer| Owner::Customer(customer.id)));
        Ok((owners.len() <= OWNERS_MAX as usize).then_some(owners))
    }

    /// Whether an owner is this platform or one of its customers.
    pub(crate) fn is_owner(
        &mut self,
        platform: PlatformId,
        owner: Owner,
    ) -> Result<bool, StoreError> {
        match owner {
            Owner::Platform(id) => Ok(id == platform),
            Owner::Customer(id) => {
                let is_owner = InternalAccountId::from_uuid(id.uuid()).owner_uuid() == id.uuid();
                let is_other = id != CustomerId::from_uuid(platform.uuid());
                let kind = self.kind(platform, id.uuid())?;
                Ok(is_owner && is_other && kind == Some(Kind::Owner))
            }
        }
    }

    /// The key of an account or an address in a platform's lists. Nothing for an account that this
    /// platform does not have: its lists are empty, even if another platform has it.
    pub(crate) fn list_key(
        &mut self,
        platform: PlatformId,
        named: &Named,
    ) -> Result<Option<Uuid>, StoreError> {
        match named {
            Named::Address(address) => {
                Ok(Some(seal::hidden_address(self.keyring, address_uuid(platform, address))))
            }
            Named::Account(account) => Ok(self.kind(platform, *account)?.map(|_| *account)),
        }
    }

    /// The kind of a uuid; nothing if it does not belong to this platform.
    fn kind(&mut self, platform: PlatformId, uuid: Uuid) -> Result<Option<Kind>, StoreError> {
        let owner = InternalAccountId::from_uuid(uuid).owner_uuid();
        if owner == platform.uuid() {
            return Ok(Some(Kind::Owner));
        }
        let account = self.get::<ExternalAccount>(&ExternalAccountId::from_uuid(uuid))?;
        if account.is_some_and(|account| account.platform == platform) {
            return Ok(Some(Kind::ExternalAccount));
        }
        let customer = self.get::<Customer>(&CustomerId::from_uuid(owner))?;
        let is_its = customer.is_some_and(|customer| customer.platform == platform);
        Ok(is_its.then_some(Kind::Owner))
    }
}
