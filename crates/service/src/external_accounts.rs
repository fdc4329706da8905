//! External accounts (specification 4.7, 4.8; contract 6.7).

use std::sync::Arc;

use domain::account_info::{AccountInfo, FieldError, Rule};
use domain::currency::Currency;
use domain::customer::Customer;
use domain::external_account::{Event, ExternalAccount, Status};
use domain::id::{CustomerId, ExternalAccountId, PlatformId};
use domain::patch::Patch;
use domain::platform::Platform;
use domain::time::Timestamp;
use ports::rail::{AccountInquiry, AccountReport, NoReport};
use store::external_accounts::{Fingerprint, fingerprint};
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::{AccountError, CustomerError, Error, Missing, MoneyError};
use crate::once::{Keyed, Render, Reply, answered, once};
use crate::owners::{self, Holder};

/// A platform's request for a new external account.
#[derive(Debug, Clone)]
pub struct NewExternalAccount {
    /// Whose it is; the platform's without one.
    pub customer_id: Option<CustomerId>,
    /// Where it stands in the request; empty if it is the request.
    pub path: &'static str,
    /// The currency that it holds.
    pub currency: Currency,
    /// Its identifiers on its rail, and its holder.
    pub info: AccountInfo,
    /// The platform's own name for it.
    pub platform_account_id: Option<String>,
    /// Whether incoming UMA payments of the customer go on to it.
    pub default_uma_deposit_account: bool,
    /// The blockchain of a wallet, which fits its type.
    pub crypto_network: Option<&'static str>,
}

/// The treatment of an account that its owner has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicate {
    /// The request is refused.
    Refused,
    /// The one that exists is used.
    Used,
}

/// The rail's report on an account, or its error.
pub type Report = Result<AccountReport, Unknown>;

/// Why nothing is known about an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The receiving side says that there is none.
    NoSuchAccount,
    /// There is no rail to ask.
    NotConnected,
}

/// Asks a platform's rail about an account, outside any unit of work. `since` is when it was added;
/// now, if it is still to be.
pub async fn inspect(
    app: &App,
    platform: PlatformId,
    (info, currency): (&AccountInfo, Currency),
    since: Option<Timestamp>,
) -> Result<Report, Error> {
    let platform = self::platform(app, platform).await?;
    report(app, &platform, (info, currency), since).await
}

/// A platform, outside any unit of work.
pub(crate) async fn platform(app: &App, id: PlatformId) -> Result<Arc<Platform>, Error> {
    let found = app.store().get::<Platform>(id).await;
    let vanished = || Error::Internal(format!("the platform {id} has vanished"));
    found.map_err(Error::Store)?.ok_or_else(vanished)
}

/// The same as [`inspect`] of a platform that was read. Waits for nothing but the rail.
pub(crate) async fn report(
    app: &App,
    platform: &Platform,
    (info, currency): (&AccountInfo, Currency),
    since: Option<Timestamp>,
) -> Result<Report, Error> {
    let now = app.now(platform.ahead);
    let inquiry = AccountInquiry {
        account: info.clone(),
        since: since.unwrap_or(now),
        settings: platform.rail_settings.clone(),
    };
    let rails = app.env().rails(platform.mode);
    let leg = rails.legs(info, currency).next();
    let Some(port) = leg.and_then(|leg| rails.port(&leg)) else {
        return Ok(Err(Unknown::NotConnected));
    };
    match port.inspect(&inquiry, now).await {
        Ok(report) => Ok(Ok(report)),
        Err(NoReport::NoSuchAccount) => Ok(Err(Unknown::NoSuchAccount)),
        Err(NoReport::NotConnected) => Ok(Err(Unknown::NotConnected)),
        Err(NoReport::Failed) => {
            tracing::warn!(
                platform = %platform.id, rail = leg.map(|leg| leg.rail.name()),
                account_type = info.account_type().name, currency = currency.code(),
                "the bank did not answer an account check"
            );
            Err(Error::Account(AccountError::NoReport))
        }
    }
}

/// Adds an external account as its own request.
pub async fn add<R: Render<ExternalAccount>>(
    app: &App,
    keyed: Keyed,
    new: NewExternalAccount,
    render: R,
) -> Result<Reply, Error> {
    if let Some(reply) = answered(app, keyed).await? {
        return Ok(reply);
    }
    let now = app.now(keyed.ahead);
    let id = app.new_id(keyed.ahead, now);
    let report = inspect(app, keyed.platform, (&new.info, new.currency), Some(now)).await?;
    once(app, keyed, render, move |unit| {
        create(unit, keyed.platform, &new, id, Duplicate::Refused, &report, now)
    })
    .await
}

/// Adds an external account, which has the id that was drawn for it and of which the rail has said
/// this.
pub fn create(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewExternalAccount,
    id: ExternalAccountId,
    duplicate: Duplicate,
    report: &Report,
    now: Timestamp,
) -> Result<ExternalAccount, Error> {
    let (platform, holder) = check(unit, platform, new, now)?;
    let owner = holder.owner();
    let fingerprint = fingerprint(unit.keyring(), owner, &new.info, new.currency);
    if let Some(existing) = unit.get::<Fingerprint>(&fingerprint)? {
        let existing = owners::external_account(unit, platform.id, existing.external_account)?;
        match duplicate {
            // One that cannot be used any more is in no one's way (contract 6.7).
            _ if existing.status == Status::Inactive => {}
            Duplicate::Refused => {
                return Err(Error::Account(AccountError::Duplicate { existing: existing.id }));
            }
            Duplicate::Used => return Ok(ExternalAccount::clone(&existing)),
        }
    }
    let report = report.as_ref().map_err(|unknown| match unknown {
        Unknown::NoSuchAccount => Error::Account(AccountError::InvalidDetails(vec![FieldError {
            field: at(new.path, "accountInfo"),
            rule: Rule::Other,
            message: "names no account that the receiving side knows".to_owned(),
        }])),
        Unknown::NotConnected => Error::NotConnected { missing: Missing::PaymentRail },
    })?;
    if new.default_uma_deposit_account && report.status == Status::Inactive {
        return Err(Error::Account(AccountError::NotActive { id, status: report.status }));
    }
    let account = ExternalAccount {
        id,
        platform: platform.id,
        owner,
        status: report.status,
        is_removed: false,
        currency: new.currency,
        platform_account_id: new.platform_account_id.clone(),
        info: new.info.clone(),
        crypto_network: new.crypto_network.map(str::to_owned),
        verification: report.verification,
        holder_name: report.holder_name.clone(),
        created_at: id.created_at(),
        updated_at: id.created_at(),
    };
    unit.put(Fingerprint { fingerprint, external_account: id });
    unit.put(account.clone());
    if let Some(due_at) = report.ask_again_at {
        unit.set_timer(Timer::new(&platform, id.uuid(), TimerKind::AskAccount, due_at, now));
    }
    if new.default_uma_deposit_account {
        make_default(unit, &holder, id, now)?;
    }
    Ok(account)
}

/// Refuses an account that its platform cannot have, whatever the rail says of it.
fn check(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    new: &NewExternalAccount,
    now: Timestamp,
) -> Result<(Arc<Platform>, Holder), Error> {
    let mut errors = new.info.implausible(now.date());
    if !errors.is_empty() {
        under(new.path, &mut errors);
        return Err(Error::Invalid(errors));
    }
    let platform = owners::platform(unit, platform)?;
    let holder = owners::holder(unit, platform.id, new.customer_id)?;
    if let Holder::Customer(customer) = &holder
        && customer.is_deleted
    {
        return Err(Error::Customer(CustomerError::Deleted { id: customer.id }));
    }
    if platform.supported(new.currency).is_none() {
        return Err(Error::Money(MoneyError::CurrencyNotEnabled {
            currency: new.currency,
            what: "any",
        }));
    }
    if platform.checks_digits() {
        let mut errors = new.info.check_digits();
        under(new.path, &mut errors);
        if !errors.is_empty() {
            return Err(Error::Account(AccountError::InvalidDetails(errors)));
        }
    }
    Ok((platform, holder))
}

/// Names the fields of an account by where they stand in the request.
fn under(path: &str, errors: &mut [FieldError]) {
    for error in errors {
        error.field = at(path, &format!("accountInfo.{}", error.field));
    }
}

fn at(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Keeps what the rail says about an account that was added before.
pub(crate) fn keep_report(
    unit: &mut Unit<'_, '_>,
    timer: &Timer,
    report: &Report,
    now: Timestamp,
) -> Result<(), Error> {
    let id = ExternalAccountId::from_uuid(timer.subject);
    let platform = owners::platform(unit, timer.platform)?;
    let account = owners::external_account(unit, platform.id, id)?;
    let mut account = ExternalAccount::clone(&account);
    if account.is_removed {
        // It was removed while the rail was asked.
        unit.clear_timer(timer.key());
        return Ok(());
    }
    let (status, ask_again_at) = match report {
        Ok(report) => {
            account.verification = report.verification;
            account.holder_name.clone_from(&report.holder_name);
            (report.status, report.ask_again_at)
        }
        Err(Unknown::NoSuchAccount) => (Status::Inactive, None),
        // It stays as it was when the rail was there.
        Err(Unknown::NotConnected) => (account.status, None),
    };
    if status == Status::Inactive {
        clear_default(unit, &account, now)?;
    }
    match Event::to(status).filter(|_| status != account.status) {
        Some(event) => unit.put_moved(account.apply(event, now)?),
        // No event leads back to PENDING: what a rail has once let through is not new again.
        None => {
            let mut account = account;
            account.touch(now);
            unit.put(account);
        }
    }
    match ask_again_at {
        Some(at) => unit.set_timer(timer.again(at)),
        None => unit.clear_timer(timer.key()),
    }
    Ok(())
}

/// Whose external accounts a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountsOf {
    /// The platform's own.
    Platform,
    /// Its customers'.
    Customers,
}

/// Changes of an external account; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalAccountChange {
    /// The platform's own name for it.
    pub platform_account_id: Patch<String>,
    /// Whether incoming UMA payments of the customer are deposited into it.
    pub default_uma_deposit_account: Patch<bool>,
}

/// An external account as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedAccount {
    /// The account.
    pub account: ExternalAccount,
    /// Whether incoming UMA payments of its customer are deposited into it.
    pub is_default: bool,
}

impl AccountsOf {
    /// The platform's account with this id, if it is one of these.
    fn find(
        self,
        unit: &mut Unit<'_, '_>,
        platform: PlatformId,
        id: ExternalAccountId,
    ) -> Result<ExternalAccount, Error> {
        let account = owners::external_account(unit, platform, id)?;
        if !self.has(&account) {
            return Err(Error::Account(AccountError::NotFound { id: id.to_string() }));
        }
        Ok(ExternalAccount::clone(&account))
    }

    /// Whether an account of the platform is one of these.
    pub fn has(self, account: &ExternalAccount) -> bool {
        (self == Self::Customers) == account.owner.customer().is_some()
    }
}

/// Changes what a platform says about an external account that was not removed.
pub fn update(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    (of, id): (AccountsOf, ExternalAccountId),
    change: &ExternalAccountChange,
    now: Timestamp,
) -> Result<OwnedAccount, Error> {
    let mut account = of.find(unit, platform, id)?;
    let holder = owners::holder(unit, platform, account.owner.customer())?;
    if let Holder::Customer(customer) = &holder
        && customer.is_deleted
    {
        return Err(Error::Customer(CustomerError::Deleted { id: customer.id }));
    }
    refuse_removed(&account)?;
    if change.platform_account_id != Patch::Keep {
        let name = change.platform_account_id.applied_to(&account.platform_account_id);
        account.platform_account_id = name;
        account.touch(now);
        unit.put(account.clone());
    }
    match change.default_uma_deposit_account {
        Patch::Set(true) if account.status == Status::Inactive => {
            return Err(Error::Account(AccountError::NotActive { id, status: account.status }));
        }
        Patch::Set(true) => make_default(unit, &holder, id, now)?,
        Patch::Set(false) | Patch::Clear => clear_default(unit, &account, now)?,
        Patch::Keep => {}
    }
    owned(unit, account)
}

/// Removes an external account: nothing new goes to it or comes from it, and its owner may add the
/// same one again. Payments under way to it go on.
pub fn remove(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    (of, id): (AccountsOf, ExternalAccountId),
    now: Timestamp,
) -> Result<OwnedAccount, Error> {
    let account = of.find(unit, platform, id)?;
    refuse_removed(&account)?;
    clear_default(unit, &account, now)?;
    unit.clear_timer((id.uuid(), TimerKind::AskAccount));
    let removed = ExternalAccount { is_removed: true, ..account };
    let removed = if removed.status == Status::Inactive {
        let mut removed = removed;
        removed.touch(now);
        unit.put(removed.clone());
        removed
    } else {
        let moved = removed.apply(Event::Disabled, now)?;
        let removed = moved.now().clone();
        unit.put_moved(moved);
        removed
    };
    owned(unit, removed)
}

fn refuse_removed(account: &ExternalAccount) -> Result<(), Error> {
    if account.is_removed {
        let what = format!("{} was removed; add the account again to use it", account.id);
        return Err(Error::Conflict(what));
    }
    Ok(())
}

/// The account with whether it is its customer's default.
fn owned(unit: &mut Unit<'_, '_>, account: ExternalAccount) -> Result<OwnedAccount, Error> {
    let holder = owners::holder(unit, account.platform, account.owner.customer())?;
    let is_default = match holder {
        Holder::Customer(customer) => customer.default_uma_deposit_account == Some(account.id),
        Holder::Platform(_) => false,
    };
    Ok(OwnedAccount { account, is_default })
}

/// Takes the flag of the default deposit account from this one, if it has it.
fn clear_default(
    unit: &mut Unit<'_, '_>,
    account: &ExternalAccount,
    now: Timestamp,
) -> Result<(), Error> {
    let holder = owners::holder(unit, account.platform, account.owner.customer())?;
    if let Holder::Customer(customer) = holder
        && customer.default_uma_deposit_account == Some(account.id)
    {
        let mut changed =
            Customer { default_uma_deposit_account: None, ..Customer::clone(&customer) };
        changed.touch(now);
        unit.put(changed);
    }
    Ok(())
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
    let mut changed =
        Customer { default_uma_deposit_account: Some(id), ..Customer::clone(customer) };
    changed.touch(now);
    unit.put(changed);
    Ok(())
}
