//! Who there is: platforms with their tokens, customers, external accounts and stored answers, and
//! what belongs to whom.
//!
//! What later passes ask, [`Parties`] keeps: one small entry for each owner and external account.

use std::collections::{BTreeMap, BTreeSet};

use domain::customer::Customer;
use domain::external_account::{ExternalAccount, Status};
use domain::id::{CustomerId, ExternalAccountId, InternalAccountId, LookupId, Owner};
use domain::lookup::Lookup;
use domain::platform::{Mode, Platform};
use domain::token::Token;
use domain::uma_address::UmaAddress;
use uuid::Uuid;

use super::{Predicate, Run, shown};
use crate::catalogue;
use crate::error::StoreError;
use crate::external_accounts::read_owner;
use crate::idempotency::Answer;
use crate::record::Record;
use crate::sql::{Row, Value};

const PLATFORMS: &str = "select id, mode, clock_ahead from platforms";
const TOKENS: &str = "select id, platform from tokens";
const CUSTOMERS: &str = "select c.id, c.platform, c.uma_address, c.default_uma_deposit_account, \
    u.customer from customers c left join uma_addresses u on u.address = c.uma_address";
const EXTERNAL_ACCOUNTS: &str = "select id, platform, owner_kind, owner, status \
    from external_accounts";
const FINGERPRINTS: &str = "select fingerprint, external_account \
    from external_account_fingerprints";
const LOOKUPS: &str = "select id, platform, sender from lookups";
const UMA_ADDRESSES: &str = "select address, customer from uma_addresses";

pub(super) fn statements() -> impl Iterator<Item = String> {
    let fixed =
        [PLATFORMS, TOKENS, CUSTOMERS, EXTERNAL_ACCOUNTS, FINGERPRINTS, LOOKUPS, UMA_ADDRESSES];
    let read = [
        whole::<Platform>(),
        whole::<Token>(),
        whole::<Customer>(),
        whole::<ExternalAccount>(),
        whole::<Lookup>(),
    ];
    fixed.map(str::to_owned).into_iter().chain(read)
}

pub(super) fn whole<R: Record>() -> String {
    format!("select {} from {}", R::COLUMNS.join(", "), R::TABLE)
}

/// Who owns what.
#[derive(Default)]
pub(super) struct Parties {
    platforms: BTreeSet<Uuid>,
    /// The platform of every customer.
    customers: BTreeMap<Uuid, Uuid>,
    /// The platform of every owner, by the uuid that its internal accounts name.
    owners: BTreeMap<Uuid, Uuid>,
    /// Platform and owner of every external account.
    external_accounts: BTreeMap<Uuid, (Uuid, Owner)>,
    /// External accounts that were switched off.
    inactive: BTreeSet<Uuid>,
    /// Default deposit accounts, by customer.
    deposit_accounts: BTreeMap<Uuid, Uuid>,
}

impl Parties {
    fn add_owner(&mut self, owner: Uuid, platform: Uuid) {
        let named = InternalAccountId::from_uuid(owner).owner_uuid();
        self.owners.insert(named, platform);
    }

    /// The platform of an owner, if there is such an owner.
    pub(super) fn platform_of(&self, owner: Owner) -> Option<Uuid> {
        match owner {
            Owner::Platform(id) => self.platforms.get(&id.uuid()).copied(),
            Owner::Customer(id) => self.customers.get(&id.uuid()).copied(),
        }
    }

    /// The platform of whoever owns an internal account; nothing if nobody does.
    pub(super) fn platform_of_internal(&self, account: InternalAccountId) -> Option<Uuid> {
        self.owners.get(&account.owner_uuid()).copied().filter(|_| account.currency().is_some())
    }

    /// The internal account with this uuid, if somebody has one.
    pub(super) fn internal(&self, account: Uuid) -> Option<InternalAccountId> {
        let account = InternalAccountId::from_uuid(account);
        self.platform_of_internal(account).map(|_| account)
    }

    /// The owner of an external account, if there is such an account.
    pub(super) fn owner_of_external(&self, account: Uuid) -> Option<Owner> {
        self.external_accounts.get(&account).map(|(_, owner)| *owner)
    }

    /// The platform of an account of either kind.
    pub(super) fn platform_of_account(&self, account: Uuid) -> Option<Uuid> {
        let external = self.external_accounts.get(&account).map(|(platform, _)| *platform);
        external.or_else(|| self.platform_of_internal(InternalAccountId::from_uuid(account)))
    }
}

/// Checks C1, C2, I1, and what S2 and S4 say about the tables read here.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    platforms(run)?;
    tokens(run)?;
    customers(run)?;
    external_accounts(run)?;
    fingerprints(run)?;
    lookups(run)?;
    deposit_accounts(run);
    uma_addresses(run)?;
    answers(run)?;
    readable::<Platform>(run, Predicate::S4)?;
    readable::<Token>(run, Predicate::S4)?;
    readable::<Customer>(run, Predicate::C2)?;
    readable::<ExternalAccount>(run, Predicate::S4)?;
    readable::<Lookup>(run, Predicate::S4)
}

fn platforms(run: &mut Run<'_>) -> Result<(), StoreError> {
    let columns = &["id", "mode", "clock_ahead"];
    run.each(PLATFORMS, (Platform::TABLE, columns), |run, mut row| {
        run.findings.saw(Predicate::S4, 1);
        run.findings.saw(Predicate::P1, 1);
        match row.uuid().and_then(|id| Ok((id, row.named(Mode::from_name)?, row.int()?))) {
            Ok((id, mode, ahead)) => {
                run.parties.platforms.insert(id);
                run.parties.add_owner(id, id);
                let is_real = mode == Mode::Live;
                run.findings.demand(Predicate::P1, !is_real || ahead == 0, || {
                    format!("the clock of PlatformConfig:{id} was moved, and its money is real")
                });
            }
            Err(error) => run.findings.unreadable(Predicate::S4, "a platform", &error),
        }
    })
}

fn tokens(run: &mut Run<'_>) -> Result<(), StoreError> {
    run.each(TOKENS, (Token::TABLE, &["id", "platform"]), |run, mut row| {
        run.findings.saw(Predicate::S4, 1);
        match row.uuid().and_then(|id| Ok((id, row.uuid()?))) {
            Ok((id, platform)) => {
                let is_known = run.parties.platforms.contains(&platform);
                run.findings.demand(Predicate::S4, is_known, || {
                    format!("Token:{id} is of a platform that is not there")
                });
            }
            Err(error) => run.findings.unreadable(Predicate::S4, "a token", &error),
        }
    })
}

fn customers(run: &mut Run<'_>) -> Result<(), StoreError> {
    let columns =
        &["id", "platform", "uma_address", "default_uma_deposit_account", "uma_addresses.customer"];
    run.each(CUSTOMERS, (Customer::TABLE, columns), |run, mut row| {
        for predicate in [Predicate::C1, Predicate::C2, Predicate::S4] {
            run.findings.saw(predicate, 1);
        }
        let read = |row: &mut Row| {
            let (id, platform, address) = (row.id()?, row.uuid()?, row.text()?);
            Ok((id, platform, address, row.uuid_or_null()?, row.uuid_or_null()?))
        };
        let found: Result<(CustomerId, _, _, _, _), _> = read(&mut row);
        let (id, platform, address, account, claimed) = match found {
            Ok(columns) => columns,
            Err(error) => return run.findings.unreadable(Predicate::C2, "a customer", &error),
        };
        run.parties.customers.insert(id.uuid(), platform);
        run.parties.add_owner(id.uuid(), platform);
        if let Some(account) = account {
            run.parties.deposit_accounts.insert(id.uuid(), account);
        }
        let findings = &mut run.findings;
        findings.demand(Predicate::S4, run.parties.platforms.contains(&platform), || {
            format!("{id} is of a platform that is not there")
        });
        findings.demand(Predicate::C2, is_spelled(&address), || {
            format!("{id} has an address that is none")
        });
        findings.demand(Predicate::C2, claimed == Some(id.uuid()), || {
            format!("{id} has an address that was not given to it")
        });
    })
}

/// Whether a stored address is one, in its one spelling.
fn is_spelled(address: &str) -> bool {
    UmaAddress::parse(address).is_ok_and(|read| read.as_str() == address)
}

fn external_accounts(run: &mut Run<'_>) -> Result<(), StoreError> {
    let columns = &["id", "platform", "owner_kind", "owner", "status"];
    run.each(EXTERNAL_ACCOUNTS, (ExternalAccount::TABLE, columns), |run, mut row| {
        run.findings.saw(Predicate::S4, 1);
        let read = |row: &mut Row| {
            let (id, platform, owner) = (row.id()?, row.uuid()?, read_owner(row)?);
            Ok((id, platform, owner, row.text()?))
        };
        let found: Result<(ExternalAccountId, _, _, _), _> = read(&mut row);
        let (id, platform, owner, status) = match found {
            Ok(columns) => columns,
            Err(error) => {
                return run.findings.unreadable(Predicate::S4, "an external account", &error);
            }
        };
        run.parties.external_accounts.insert(id.uuid(), (platform, owner));
        if status == Status::Inactive.name() {
            run.parties.inactive.insert(id.uuid());
        }
        let is_its = run.parties.platform_of(owner) == Some(platform);
        run.findings.demand(Predicate::S4, is_its, || {
            format!("{id} belongs to an owner who is not its platform's")
        });
    })
}

fn fingerprints(run: &mut Run<'_>) -> Result<(), StoreError> {
    let columns = &["fingerprint", "external_account"];
    run.each(FINGERPRINTS, ("external_account_fingerprints", columns), |run, mut row| {
        run.findings.saw(Predicate::S4, 1);
        match row.bytes().and_then(|_| row.uuid()) {
            Ok(account) => {
                let is_there = run.parties.external_accounts.contains_key(&account);
                run.findings.demand(Predicate::S4, is_there, || {
                    format!("a fingerprint is of ExternalAccount:{account}, which is not there")
                });
            }
            Err(error) => run.findings.unreadable(Predicate::S4, "a fingerprint", &error),
        }
    })
}

fn lookups(run: &mut Run<'_>) -> Result<(), StoreError> {
    run.each(LOOKUPS, (Lookup::TABLE, &["id", "platform", "sender"]), |run, mut row| {
        run.findings.saw(Predicate::S4, 1);
        let read = |row: &mut Row| Ok((row.id()?, row.uuid()?, row.id()?));
        let (id, platform, sender): (LookupId, _, _) = match read(&mut row) {
            Ok(columns) => columns,
            Err(error) => return run.findings.unreadable(Predicate::S4, "a lookup", &error),
        };
        let is_its = run.parties.platform_of(Owner::Customer(sender)) == Some(platform);
        run.findings.demand(Predicate::S4, is_its, || {
            format!("{id} was asked for by a customer who is not its platform's")
        });
    })
}

/// C1.
fn deposit_accounts(run: &mut Run<'_>) {
    for (customer, account) in std::mem::take(&mut run.parties.deposit_accounts) {
        let id = CustomerId::from_uuid(customer);
        let owner = run.parties.external_accounts.get(&account).map(|(_, owner)| *owner);
        run.findings.demand(Predicate::C1, owner == Some(Owner::Customer(id)), || {
            format!("ExternalAccount:{account} gets deposits of {id} and is not its own")
        });
        let is_inactive = run.parties.inactive.contains(&account);
        run.findings.demand(Predicate::C1, !is_inactive, || {
            format!("ExternalAccount:{account} gets deposits of {id} and was switched off")
        });
    }
}

fn uma_addresses(run: &mut Run<'_>) -> Result<(), StoreError> {
    let columns = &["address", "customer"];
    run.each(UMA_ADDRESSES, ("uma_addresses", columns), |run, mut row| {
        run.findings.saw(Predicate::C2, 1);
        match row.text().and_then(|address| Ok((address, row.id::<domain::id::kind::Customer>()?)))
        {
            Ok((address, customer)) => {
                run.findings.demand(Predicate::C2, is_spelled(&address), || {
                    format!("{customer} was given an address that is none")
                });
                let is_there = run.parties.customers.contains_key(&customer.uuid());
                run.findings.demand(Predicate::C2, is_there, || {
                    format!("{customer} has an address and is not there")
                });
            }
            Err(error) => run.findings.unreadable(Predicate::C2, "an address", &error),
        }
    })
}

/// I1, chunk by chunk: stored answers are many.
fn answers(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Some(keyring) = run.keyring else { return Ok(()) };
    let mut after = None;
    loop {
        let Run { connection, findings, .. } = run;
        let chunk =
            catalogue::chunk(*connection, Answer::shape(), after.as_deref(), ANSWERS_AT_ONCE)?;
        for values in chunk.rows {
            let name = format!("answer {}", shown(values.first()));
            findings.saw(Predicate::I1, 1);
            match Answer::read(&mut Row::new(Answer::TABLE, Answer::COLUMNS, values), keyring) {
                Ok(answer) => {
                    let may_be_repeated = matches!(answer.status, 200..=299 | 400..=499);
                    findings.demand(Predicate::I1, may_be_repeated, || {
                        format!("{name} has a status that is not kept")
                    });
                }
                Err(error) => findings.unreadable(Predicate::I1, name, &error),
            }
        }
        if chunk.last.is_none() {
            return Ok(());
        }
        after = chunk.last;
    }
}

/// Answers that are read together.
const ANSWERS_AT_ONCE: usize = 256;

/// Reads every row of a table as the rest of the program does, if there is a key: what is sealed
/// must open (S2), and the rest must be what the program can read.
pub(super) fn readable<R: Record>(
    run: &mut Run<'_>,
    unreadable: Predicate,
) -> Result<(), StoreError> {
    let Run { connection, keyring: Some(keyring), findings, .. } = run else { return Ok(()) };
    connection.query(&whole::<R>(), &[], R::COLUMNS.len(), &mut |values: Vec<Value>| {
        let name = format!("{} {}", R::TABLE, shown(values.first()));
        let has_sealed = R::COLUMNS.contains(&"sealed");
        findings.saw(Predicate::S2, usize::from(has_sealed));
        match R::read(&mut Row::new(R::TABLE, R::COLUMNS, values), keyring) {
            Ok(_) => {}
            Err(StoreError::Sealed { .. }) => {
                findings.broke(Predicate::S2, format!("{name} does not open"));
            }
            Err(error) => findings.unreadable(unreadable, name, &error),
        }
        Ok(())
    })
}
