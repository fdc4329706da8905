//! A customer's identity: checks by a link, decisions of the operator, and what regulated platforms
//! say (specification 3.5; contract 6.4). Every change of what is known goes through `know`.

use std::sync::Arc;

use domain::code::{CODE_LENGTH, Code};
use domain::customer::{Customer, Identity, Individual, KycStatus};
use domain::event::EventKind;
use domain::id::{CustomerId, IdentityCheckId, PlatformId};
use domain::kyc::{CheckDraft, CheckEvent, CheckStatus, Event, IdentityCheck};
use domain::platform::Platform;
use domain::time::Timestamp;
use ports::identity::Outcome;
use store::customers::CustomerFilter;
use store::list::PageRequest;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::customers::{self, Drawn, NewCustomer};
use crate::error::{CustomerError, Error};
use crate::owners;
use crate::presenter::Subject;

/// How long the link of a check can be used, in milliseconds. A day: people are sent such links in
/// the evening and look for their passport in the morning.
pub const CHECK_LIFETIME_MILLIS: i64 = 24 * 3_600_000;

/// A platform's request for a link.
#[derive(Debug, Clone)]
pub struct LinkRequest {
    /// The platform's own name for the customer.
    pub platform_customer_id: String,
    /// Where the person goes afterwards.
    pub redirect_uri: Option<String>,
}

/// Gives the link by which a customer's identity is checked. Makes the customer if the platform has
/// none of this name. While a link is open, it is the same one, so that asking twice does no harm.
pub async fn link(
    app: &App,
    platform: &Platform,
    request: LinkRequest,
) -> Result<IdentityCheck, Error> {
    let (now, platform, ahead) = (app.now(platform.ahead), platform.id, platform.ahead);
    let filter = CustomerFilter {
        platform_customer_id: Some(request.platform_customer_id.clone()),
        ..CustomerFilter::default()
    };
    let newest = PageRequest { limit: 1, ..PageRequest::ALL };
    let known = app.store().read(move |view| view.customers(platform, &filter, newest)).await;
    let known = known.map_err(Error::Store)?.rows.first().map(|customer| customer.id);
    let (drawn, code) = (customers::draw(app, ahead), Code::of_random(app.random::<CODE_LENGTH>()));
    let unit_app = app.clone();
    app.store()
        .write(app.origin(), move |unit| {
            let customer = match known {
                Some(id) => Customer::clone(&*owners::customer(unit, platform, id)?),
                None => first(unit, platform, &request, &drawn)?,
            };
            open(&unit_app, unit, customer, &request, &code, now)
        })
        .await
}

/// The customer of a name that had none when it was looked for. Requests of the same moment all
/// found none: the first of them makes the customer, and the rest find it by its address.
fn first(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    request: &LinkRequest,
    drawn: &Drawn,
) -> Result<Customer, Error> {
    let named = drawn.clone().named(unit.keyring(), platform, &request.platform_customer_id);
    match named.holder(unit, platform)? {
        None => add(unit, platform, request, &named),
        // The name's earlier customer was deleted, and its address stays its own.
        Some(earlier) if earlier.is_deleted => add(unit, platform, request, drawn),
        Some(customer) => Ok(Customer::clone(&customer)),
    }
}

/// Makes the customer that a link is about. Nothing is known of it yet.
fn add(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    request: &LinkRequest,
    drawn: &Drawn,
) -> Result<Customer, Error> {
    let new = NewCustomer {
        platform_customer_id: Some(request.platform_customer_id.clone()),
        uma_address: None,
        kyc_status: None,
        identity: Identity::Individual(Individual::default()),
    };
    customers::add(unit, platform, &new, drawn, |_| KycStatus::PendingReview)
}

/// The open check of a customer, or a new one.
fn open(
    app: &App,
    unit: &mut Unit<'_, '_>,
    customer: Customer,
    request: &LinkRequest,
    code: &Code,
    now: Timestamp,
) -> Result<IdentityCheck, Error> {
    let before = current_check(unit, &customer)?;
    let status = customer.kyc.status();
    let mut customer = match (status, before) {
        (KycStatus::PendingReview, Some(check)) if check.status() == CheckStatus::Completed => {
            let what =
                format!("the identity of {} was submitted and is being reviewed", customer.id);
            return Err(Error::Conflict(what));
        }
        (KycStatus::PendingReview, Some(check))
            if check.is_usable(now) && check.draft().redirect_uri == request.redirect_uri =>
        {
            return Ok(IdentityCheck::clone(&check));
        }
        (KycStatus::PendingReview, before) => {
            if let Some(check) = before.filter(|check| check.status() == CheckStatus::Open) {
                end_check(unit, &check, CheckEvent::Withdrawn)?;
            }
            customer
        }
        (KycStatus::Expired | KycStatus::Canceled, _) => {
            know(app, unit, customer, Event::Restarted, now)?
        }
        (
            KycStatus::Approved
            | KycStatus::Rejected
            | KycStatus::ManuallyApproved
            | KycStatus::ManuallyRejected,
            _,
        ) => {
            let (id, status) = (customer.id, status.name());
            return Err(Error::Conflict(format!("the identity of {id} is {status} already")));
        }
    };
    let platform = owners::platform(unit, customer.platform)?;
    let id = unit.keyring().identity_check(code);
    let expires_at = now.plus_millis(CHECK_LIFETIME_MILLIS);
    let check = IdentityCheck::open(CheckDraft {
        id,
        code: code.clone(),
        platform: customer.platform,
        customer: customer.id,
        redirect_uri: request.redirect_uri.clone(),
        expires_at,
        created_at: now,
    });
    customer.identity_check = Some(id);
    let kind = TimerKind::ExpireIdentityCheck;
    unit.set_timer(Timer::new(&platform, id.uuid(), kind, expires_at, now));
    unit.put(check.clone());
    unit.put(customer);
    Ok(check)
}

fn current_check(
    unit: &mut Unit<'_, '_>,
    customer: &Customer,
) -> Result<Option<Arc<IdentityCheck>>, Error> {
    match customer.identity_check {
        Some(id) => Ok(unit.get::<IdentityCheck>(&id)?),
        None => Ok(None),
    }
}

/// Ends a check. Nothing is left to expire.
fn end_check(
    unit: &mut Unit<'_, '_>,
    check: &IdentityCheck,
    event: CheckEvent,
) -> Result<(), Error> {
    let moved = check.clone().apply(event)?;
    unit.clear_timer((check.id().uuid(), TimerKind::ExpireIdentityCheck));
    unit.put_moved(moved);
    Ok(())
}

/// Withdraws the open check of a customer whose identity is not to be checked any more.
pub(crate) fn withdraw_check(unit: &mut Unit<'_, '_>, customer: &Customer) -> Result<(), Error> {
    let check = current_check(unit, customer)?;
    match check.filter(|check| check.status() == CheckStatus::Open) {
        Some(check) => end_check(unit, &check, CheckEvent::Withdrawn),
        None => Ok(()),
    }
}

/// Changes what is known of an identity, and tells the platform where that is final. A status that
/// still asks for it is withdrawn.
pub(crate) fn know(
    app: &App,
    unit: &mut Unit<'_, '_>,
    mut customer: Customer,
    event: Event,
    now: Timestamp,
) -> Result<Customer, Error> {
    customer.kyc = customer.kyc.apply(event)?.into_now();
    customer.touch(now);
    unit.put(customer.clone());
    if customer.kyc.status().is_final() {
        withdraw_check(unit, &customer)?;
        let platform = owners::platform(unit, customer.platform)?;
        let change = (customer.id.uuid(), customer.kyc.changes());
        let subject = Subject::Customer(&customer);
        let at = customer.updated_at;
        unit.add_event(app.env().event(&platform, EventKind::KycStatus, change, at, subject))?;
    }
    Ok(customer)
}

/// Keeps what a person said on the page of a check, and how it ended. The link works once.
pub fn complete(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: IdentityCheckId,
    stated: &Individual,
    outcome: Outcome,
    server_now: Timestamp,
) -> Result<IdentityCheck, Error> {
    let check =
        unit.get::<IdentityCheck>(&id)?.ok_or(Error::Customer(CustomerError::IdentityCheckOver))?;
    let now = owners::platform(unit, check.draft().platform)?.ahead.shows(server_now);
    if !check.is_usable(now) {
        return Err(Error::Customer(CustomerError::IdentityCheckOver));
    }
    let mut customer =
        Customer::clone(&*owners::customer(unit, check.draft().platform, check.draft().customer)?);
    end_check(unit, &check, CheckEvent::Completed)?;
    if let Identity::Individual(person) = &mut customer.identity
        && outcome != Outcome::Canceled
    {
        *person = person.changed(stated);
    }
    customer.touch(now);
    match outcome {
        Outcome::Approved => know(app, unit, customer, Event::Approved, now).map(drop)?,
        Outcome::Rejected => know(app, unit, customer, Event::Rejected, now).map(drop)?,
        Outcome::Canceled => know(app, unit, customer, Event::Canceled, now).map(drop)?,
        Outcome::LeftToOperator => unit.put(customer),
    }
    Ok(IdentityCheck::clone(&check))
}

/// Ends a check whose time is over. One that has ended in the meantime stays as it is.
pub(crate) fn expire(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: IdentityCheckId,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(check) = unit.get::<IdentityCheck>(&id)? else { return Ok(()) };
    if !check.is_over(now) {
        return Ok(());
    }
    let draft = check.draft();
    let customer = Customer::clone(&*owners::customer(unit, draft.platform, draft.customer)?);
    end_check(unit, &check, CheckEvent::Expired)?;
    know(app, unit, customer, Event::Expired, now).map(drop)
}

/// Keeps what the operator has decided: an approval or a refusal by a person.
pub async fn decide(app: &App, id: CustomerId, approves: bool) -> Result<Customer, Error> {
    let (server_now, unit_app) = (app.server_now(), app.clone());
    let event = if approves { Event::ManuallyApproved } else { Event::ManuallyRejected };
    app.store()
        .write(app.origin(), move |unit| {
            let customer = unit
                .get::<Customer>(&id)?
                .ok_or(Error::Customer(CustomerError::NotFound { id }))?;
            if customer.is_deleted {
                return Err(Error::Customer(CustomerError::Deleted { id }));
            }
            let now = owners::platform(unit, customer.platform)?.ahead.shows(server_now);
            know(&unit_app, unit, Customer::clone(&customer), event, now)
        })
        .await
}
