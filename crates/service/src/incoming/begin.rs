//! The receiver's side of a payment begins.

use std::sync::Arc;

use domain::approval::Approval;
use domain::currency::Currency;
use domain::customer::Customer;
use domain::external_account;
use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId, TransactionId, moved_ahead};
use domain::money::{Money, Receiving};
use domain::platform::{CounterpartyField, Decision, Platform};
use domain::quote::{Quote, Route};
use domain::time::Timestamp;
use domain::transaction::{
    AboutPayee, AccountRef, Conversion, Destination, Direction, Draft, Event, Facts, FailureReason,
    RailRequest, Settlement, Source, Status, Transaction, Uma,
};
use domain::uma_address::UmaAddress;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use super::{asked, failed, go_on, set_time, stop};
use crate::app::App;
use crate::error::{AccountError, Error, UmaError};
use crate::{lifecycle, limits, lookups, owners, pricing, uma};

/// Begins the receiver's side of a payment within this server, which `outgoing` pays. The id was
/// drawn by the server's clock.
pub(crate) fn begin_here(
    app: &App,
    unit: &mut Unit<'_, '_>,
    outgoing: &Transaction,
    quote: &Quote,
    id: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let broken = || Error::Internal(format!("{} is not within this server", outgoing.id()));
    let Some(said) = &quote.draft().uma else { return Err(broken()) };
    let Route::Here { customer } = said.route else { return Err(broken()) };
    let customer = unit.get::<Customer>(&customer)?.ok_or_else(broken)?;
    let Some(paid) = &outgoing.draft().uma else { return Err(broken()) };
    let received = outgoing.draft().received.money();
    // By the clock of the payee's platform, as everything that is its own.
    let ours = owners::platform(unit, outgoing.draft().platform)?.ahead;
    let payee = owners::platform(unit, customer.platform)?;
    let (theirs, rates) = (payee.ahead, app.env().rates(payee.mode));
    let id = TransactionId::from_uuid(moved_ahead(id.uuid(), theirs));
    let now = theirs.shows(ours.on_server(now));
    let (destination, conversion) = destination(app, unit, &customer, received, now)?;
    let draft = draft(
        id,
        &customer,
        destination,
        received,
        Uma {
            sender: paid.sender.clone(),
            receiver: paid.receiver.clone(),
            counterparty: said.payer.clone(),
            settlement: Settlement::Here { outgoing: Some(outgoing.id()) },
            rate_details: Some(pricing::free_of_charge(rates.as_ref(), received.currency(), now)),
            conversion,
            payee: AboutPayee::default(),
            callback: None,
        },
    );
    let description = outgoing.draft().description.clone();
    let draft = Draft { description, ..draft };
    begin(app, unit, Transaction::pending(draft), now)?;
    Ok(())
}

/// How long a payment may be `CREATED`, in milliseconds: the keys of the payer's institution are
/// fetched meanwhile. Only a server that stops there leaves one behind.
const CREATED_MILLIS: i64 = 60_000;

/// The side whose amount a payer elsewhere has fixed.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// So many smallest units arrive.
    Arrives(i64),
    /// So many millisatoshi are paid.
    Paid(i64),
}

/// A payment that another institution wants to make.
#[derive(Debug, Clone)]
pub struct PayIn {
    /// The address of the payer.
    pub sender: UmaAddress,
    /// Facts that its institution states about it.
    pub payer: Facts,
    /// The address that is paid, if it is given.
    pub receiver: Option<UmaAddress>,
    /// The customer who is paid, if it is given. One of the two must be.
    pub customer_id: Option<CustomerId>,
    /// The currency that shall arrive.
    pub currency: Currency,
    /// How much.
    pub amount: Wanted,
    /// The facts about the payee that its institution asks for.
    pub asked: Vec<CounterpartyField>,
    /// The payer's text for the payee.
    pub description: Option<String>,
    /// Where its institution is notified of how the payment ended.
    pub callback: Option<String>,
}

/// Takes a pay request of another institution for a customer of the platform, in one step. The
/// money comes once the platform has approved.
pub fn receive(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    request: &PayIn,
    id: TransactionId,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let platform = owners::platform(unit, platform)?;
    let created = created(app, unit, &platform, request, (id, now))?;
    check(unit, &platform, request, created.draft())?;
    asked_for(app, unit, created, now)
}

/// Adds a payment that another institution wants to make. It is `CREATED` until [`accept`] asks the
/// platform, or [`fail_created`] ends it, or its time is over (specification 3.1).
pub(crate) fn create(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    request: &PayIn,
    id: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let platform = owners::platform(unit, platform)?;
    let created = created(app, unit, &platform, request, (id, now))?;
    let due_at = now.plus_millis(CREATED_MILLIS);
    unit.set_timer(Timer::new(&platform, id.uuid(), TimerKind::DecidePayment, due_at, now));
    unit.put(created);
    Ok(())
}

/// Asks the platform about a payment that is `CREATED`, once it is known who wants to make it.
pub(crate) fn accept(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    request: &PayIn,
    id: TransactionId,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let platform = owners::platform(unit, platform)?;
    let transaction = unit.get::<Transaction>(&id)?;
    let transaction = transaction.ok_or_else(|| Error::Internal(format!("{id} has vanished")))?;
    check(unit, &platform, request, transaction.draft())?;
    unit.clear_timer((id.uuid(), TimerKind::DecidePayment));
    asked_for(app, unit, Transaction::clone(&transaction), now)
}

/// Ends a payment whose platform was not asked. Does nothing to one that was.
pub(crate) fn fail_created(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: TransactionId,
    reason: FailureReason,
    now: Timestamp,
) -> Result<(), Error> {
    let Some(transaction) = unit.get::<Transaction>(&id)? else { return Ok(()) };
    if transaction.status() == Status::Created {
        stop(app, unit, Transaction::clone(&transaction), failed(reason), now)?;
    }
    Ok(())
}

/// Refuses a payment that the customer cannot get, or of whose payer too little is said.
fn check(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    request: &PayIn,
    draft: &Draft,
) -> Result<(), Error> {
    let customer = receiver(unit, platform, request)?;
    let holder = owners::Holder::Customer(Arc::clone(&customer));
    holder.may_move_money()?;
    if request.sender == customer.uma_address {
        return Err(Error::Account(AccountError::SelfPayment));
    }
    let received = draft.received.money();
    limits::receivable(platform, received)?;
    let account = InternalAccountId::of(holder.owner(), request.currency);
    limits::has_room(unit, account, received)?;
    let asked = uma::asked_by(platform, [request.currency]);
    let fields = uma::missing(&asked, &request.payer);
    if fields.is_empty() { Ok(()) } else { Err(Error::Uma(UmaError::PayerDataMissing { fields })) }
}

/// The payment that a request is about, at the price of this moment.
fn created(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    request: &PayIn,
    (id, now): (TransactionId, Timestamp),
) -> Result<Transaction, Error> {
    let customer = receiver(unit, platform, request)?;
    let (rates, currency) = (app.env().rates(platform.mode), request.currency);
    let rates = rates.as_ref();
    limits::enabled(platform, currency, Direction::Incoming)?;
    let (received, receipt) = match request.amount {
        Wanted::Arrives(minor) => {
            let received = limits::amount(minor, currency)?;
            (received, pricing::receipt(rates, platform, received, now)?)
        }
        Wanted::Paid(msat) => {
            let msat = limits::amount(msat, Currency::MSAT)?;
            pricing::receipt_for(rates, platform, (msat, currency), now)?
        }
    };
    let (destination, conversion) = destination(app, unit, &customer, received, now)?;
    let draft = draft(
        id,
        &customer,
        destination,
        received,
        Uma {
            sender: request.sender.clone(),
            receiver: customer.uma_address.clone(),
            counterparty: request.payer.clone(),
            settlement: Settlement::Lightning { msat: receipt.msat },
            rate_details: Some(receipt.details),
            conversion,
            payee: AboutPayee { asked: request.asked.clone(), given: Facts::new() },
            callback: request.callback.clone(),
        },
    );
    let description = request.description.clone();
    Ok(Transaction::created(Draft { description, ..draft }))
}

/// The customer of the platform who is paid.
fn receiver(
    unit: &mut Unit<'_, '_>,
    platform: &Platform,
    request: &PayIn,
) -> Result<Arc<Customer>, Error> {
    let by_id = match request.customer_id {
        Some(id) => Some(owners::customer(unit, platform.id, id)?),
        None => None,
    };
    let by_address = match &request.receiver {
        Some(address) => {
            let unknown = || Error::Uma(UmaError::NotFound { address: address.clone() });
            let local = lookups::local(unit, platform, address)?.ok_or_else(unknown)?;
            let is_its = local.platform.id == platform.id;
            Some(Some(local.customer).filter(|_| is_its).ok_or_else(unknown)?)
        }
        None => None,
    };
    match (by_id, by_address) {
        (Some(customer), Some(other)) if customer.id != other.id => {
            let message = "is not the address of the customer with this customerId";
            Err(Error::field("receiverUmaAddress", message))
        }
        (Some(customer), _) | (None, Some(customer)) => Ok(customer),
        (None, None) => {
            let message = "is required unless receiverUmaAddress says who is paid";
            Err(Error::field("customerId", message))
        }
    }
}

/// Where an incoming payment goes: into the deposit account that the receiver has named, converted
/// if it is in another currency; else, or if that cannot be, into the receiver's internal account
/// (specification 2.8; contract 13, rows 35 and 36). It counts whatever becomes of the account.
fn destination(
    app: &App,
    unit: &mut Unit<'_, '_>,
    customer: &Customer,
    received: Money,
    now: Timestamp,
) -> Result<(Destination, Option<Conversion>), Error> {
    let currency = received.currency();
    let internal = InternalAccountId::of(Owner::Customer(customer.id), currency);
    let internal = Destination::Account { account: AccountRef::Internal(internal), currency };
    let Some(named) = customer.default_uma_deposit_account else { return Ok((internal, None)) };
    let account = owners::external_account(unit, customer.platform, named)?;
    if account.status != external_account::Status::Active {
        return Ok((internal, None));
    }
    let conversion = if account.currency == currency {
        None
    } else {
        let platform = owners::platform(unit, customer.platform)?;
        let rates = app.env().rates(platform.mode);
        match pricing::conversion(rates.as_ref(), &platform, received, account.currency, now) {
            Ok(conversion) => Some(conversion),
            Err(error) if error.is_failure() => return Err(error),
            Err(_) => return Ok((internal, None)),
        }
    };
    let (account, currency) = (AccountRef::External(named), account.currency);
    Ok((Destination::Account { account, currency }, conversion))
}

/// An incoming payment to a customer.
fn draft(
    id: TransactionId,
    customer: &Customer,
    destination: Destination,
    received: Money,
    uma: Uma,
) -> Draft {
    Draft {
        id,
        platform: customer.platform,
        owner: Owner::Customer(customer.id),
        platform_customer_id: customer.platform_customer_id.clone(),
        direction: Direction::Incoming,
        source: Some(Source::Uma { address: uma.sender.clone() }),
        destination,
        sent: None,
        received: Receiving(received),
        terms: None,
        uma: Some(uma),
        description: None,
        rail_request: RailRequest::default(),
    }
}

/// Brings a payment that is `CREATED` to its platform's decision.
fn asked_for(
    app: &App,
    unit: &mut Unit<'_, '_>,
    created: Transaction,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let pending = created.apply(Event::Quoted, now)?.into_now();
    begin(app, unit, pending, now)
}

/// Keeps an incoming payment that is `PENDING`. Its platform decides now, or within the window.
fn begin(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let platform = owners::platform(unit, transaction.draft().platform)?;
    match platform.first_decision() {
        Decision::Approved => {
            lifecycle::begin(app, unit, transaction.clone())?;
            go_on(app, unit, transaction, &Facts::new(), now)
        }
        Decision::Asked => {
            let asked = asked(unit, &transaction)?;
            lifecycle::begin_asking(app, unit, transaction.clone(), &asked)?;
            let approval = Approval::asked(transaction.id(), platform.id, now);
            set_time(unit, &platform, &approval, now);
            unit.put(approval);
            Ok(transaction)
        }
        Decision::NobodyToAsk => {
            lifecycle::begin(app, unit, transaction.clone())?;
            let event = failed(FailureReason::PaymentApprovalWebhookError);
            stop(app, unit, transaction, event, now)
        }
    }
}
