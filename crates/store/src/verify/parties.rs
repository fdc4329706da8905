//! Owners and their accounts: one small entry for each platform, customer and external account.
//! Later passes look up owners there. [`read_all`] checks that every row of a table can be read.

use std::collections::{BTreeMap, BTreeSet};

use domain::attention::Attention;
use domain::customer::Customer;
use domain::external_account::ExternalAccount;
use domain::id::{InternalAccountId, Owner};
use domain::platform::{Mode, Platform};
use uuid::Uuid;

use super::{Findings, Predicate, Run, shown};
use crate::error::StoreError;
use crate::external_accounts::read_owner;
use crate::record::{self, Record};
use crate::sql::{Row, Value};

const PLATFORMS: &str = "select id, mode from platforms";
const CUSTOMERS: &str = "select id, platform from customers";
/// Payments whose money an operator is to see to.
const LATE_RETURNS: &str =
    "select subject from attention where kind = 'LATE_RETURN' and resolved_at is null";
const EXTERNAL_ACCOUNTS: &str = "select id, platform, owner_kind, owner from external_accounts";

pub(super) fn statements() -> impl Iterator<Item = String> {
    [PLATFORMS, CUSTOMERS, LATE_RETURNS, EXTERNAL_ACCOUNTS].map(str::to_owned).into_iter()
}

/// Owners and their accounts.
#[derive(Default)]
pub(super) struct Parties {
    /// Whether the money of each platform is real.
    platforms: BTreeMap<Uuid, bool>,
    /// The platform of every customer.
    customers: BTreeMap<Uuid, Uuid>,
    /// The platform of every owner, by the uuid that its internal accounts name.
    owners: BTreeMap<Uuid, Uuid>,
    /// Platform and owner of every external account.
    external_accounts: BTreeMap<Uuid, (Uuid, Owner)>,
    /// The payments with money that waits for a person.
    late_returns: BTreeSet<Uuid>,
}

impl Parties {
    fn add_owner(&mut self, owner: Uuid, platform: Uuid) {
        let named = InternalAccountId::from_uuid(owner).owner_uuid();
        self.owners.insert(named, platform);
    }

    /// Whether a platform's money is real. One that is not there may be anything.
    pub(super) fn is_live(&self, platform: Uuid) -> bool {
        self.platforms.get(&platform).copied().unwrap_or(true)
    }

    /// The platform of an owner, if there is such an owner.
    pub(super) fn platform_of(&self, owner: Owner) -> Option<Uuid> {
        match owner {
            Owner::Platform(id) => self.platforms.get(&id.uuid()).map(|_| id.uuid()),
            Owner::Customer(id) => self.customers.get(&id.uuid()).copied(),
        }
    }

    /// The platform of an internal account's owner, if there is such an owner.
    pub(super) fn platform_of_internal(&self, account: InternalAccountId) -> Option<Uuid> {
        self.owners.get(&account.owner_uuid()).copied().filter(|_| account.currency().is_some())
    }

    /// The internal account with this uuid, if an owner has one.
    pub(super) fn internal(&self, account: Uuid) -> Option<InternalAccountId> {
        let account = InternalAccountId::from_uuid(account);
        self.platform_of_internal(account).map(|_| account)
    }

    /// The owner of an external account, if there is such an account.
    pub(super) fn owner_of_external(&self, account: Uuid) -> Option<Owner> {
        self.external_accounts.get(&account).map(|(_, owner)| *owner)
    }

    /// Whether money that came back for a payment waits for a person.
    pub(super) fn has_late_return(&self, payment: Uuid) -> bool {
        self.late_returns.contains(&payment)
    }

    /// The platform of an account of either kind.
    pub(super) fn platform_of_account(&self, account: Uuid) -> Option<Uuid> {
        let external = self.external_accounts.get(&account).map(|(platform, _)| *platform);
        external.or_else(|| self.platform_of_internal(InternalAccountId::from_uuid(account)))
    }
}

/// Reads the parties. A row that cannot be read is named where all of it is read.
pub(super) fn read(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Run { connection, parties, .. } = run;
    connection.query(PLATFORMS, &[], 2, &mut |values| {
        let row = &mut Row::new(Platform::TABLE, &["id", "mode"], values);
        if let Ok(id) = row.uuid() {
            let is_live = row.named(Mode::from_name).is_ok_and(|mode| mode == Mode::Live);
            parties.platforms.insert(id, is_live);
            parties.add_owner(id, id);
        }
        Ok(())
    })?;
    connection.query(CUSTOMERS, &[], 2, &mut |values| {
        let row = &mut Row::new(Customer::TABLE, &["id", "platform"], values);
        if let (Ok(id), Ok(platform)) = (row.uuid(), row.uuid()) {
            parties.customers.insert(id, platform);
            parties.add_owner(id, platform);
        }
        Ok(())
    })?;
    connection.query(LATE_RETURNS, &[], 1, &mut |values| {
        let row = &mut Row::new(Attention::TABLE, &["subject"], values);
        parties.late_returns.extend(row.uuid().ok());
        Ok(())
    })?;
    let columns = &["id", "platform", "owner_kind", "owner"];
    connection.query(EXTERNAL_ACCOUNTS, &[], columns.len(), &mut |values| {
        let row = &mut Row::new(ExternalAccount::TABLE, columns, values);
        if let (Ok(id), Ok(platform), Ok(owner)) = (row.uuid(), row.uuid(), read_owner(row)) {
            parties.external_accounts.insert(id, (platform, owner));
        }
        Ok(())
    })
}

/// Reads every row of a table as the rest of the program does, if there is a key, and hands it to
/// `each` with its name. One that cannot be read breaks `unreadable`. One that does not open is
/// named by the pass of seals.
pub(super) fn read_all<R: Record>(
    run: &mut Run<'_>,
    unreadable: Predicate,
    mut each: impl FnMut(&mut Findings, &Parties, &str, &R),
) -> Result<(), StoreError> {
    let Run { connection, keyring: Some(keyring), findings, parties, .. } = run else {
        return Ok(());
    };
    let width = R::shape().columns.len();
    connection.query(&record::selection::<R>(""), &[], width, &mut |values: Vec<Value>| {
        let name = format!("{} {}", R::TABLE, shown(values.first()));
        findings.saw(unreadable, 1);
        match record::read::<R>(values, keyring) {
            Ok(read) => each(findings, parties, &name, &read),
            Err(StoreError::Sealed { .. }) => {}
            Err(error) => findings.unreadable(unreadable, name, &error),
        }
        Ok(())
    })
}
