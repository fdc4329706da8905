//! Payments to UMA addresses of this server: begun, decided on by the receiver's platform, credited
//! (contract 6.10, 7.3).
//!
//! Everything here begins with a payment that waits, and ends with the decision on it. Who decides
//! is said in one place, [`Platform::first_decision`]. A platform that is asked decides by its
//! answer ([`crate::approvals`]), by a call, or by letting its time run out; whichever is first
//! goes through [`decide`].

use std::sync::Arc;

use domain::approval::{Approval, Event as Decided, Outcome};
use domain::currency::Currency;
use domain::customer::Customer;
use domain::external_account;
use domain::id::{
    CustomerId, ExternalAccountId, InternalAccountId, Owner, PlatformId, TransactionId, moved_ahead,
};
use domain::money::{Money, Receiving, Sending};
use domain::platform::{CounterpartyField, Decision, Platform};
use domain::quote::{Quote, Route};
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Conversion, Destination, Direction, Draft, Event, Facts, FailureReason, Settlement,
    Source, Status, StatusReason, Transaction, Uma,
};
use domain::uma_address::UmaAddress;
use ledger::movements;
use ledger::posting::{Posting, Resolution};
use store::books;
use store::timers::{Timer, TimerKind};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::{funding, jobs, lifecycle, limits, lookups, owners, pricing, uma};

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
    let rates = app.env().rates.as_ref();
    // By the clock of the payee's platform, as everything that is its own.
    let ours = owners::platform(unit, outgoing.draft().platform)?.ahead;
    let theirs = owners::platform(unit, customer.platform)?.ahead;
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
            rate_details: Some(pricing::free_of_charge(rates, received.currency(), now)),
            conversion,
        },
    );
    let description = outgoing.draft().description.clone();
    let draft = Draft { description, ..draft };
    begin(app, unit, draft, now)?;
    Ok(())
}

/// What another institution wants to pay.
#[derive(Debug, Clone)]
pub struct PayIn {
    /// The address of whoever pays.
    pub sender: UmaAddress,
    /// What its institution says about it.
    pub payer: Facts,
    /// What it says if it is asked.
    pub if_asked: Facts,
    /// The address that is paid, if it is given.
    pub receiver: Option<UmaAddress>,
    /// The customer who is paid, if it is given. One of the two must be.
    pub customer_id: Option<CustomerId>,
    /// The currency that shall arrive.
    pub currency: Currency,
    /// What shall arrive, in its smallest unit.
    pub amount_minor: i64,
}

/// Takes a pay request of another institution for a customer of the platform. The money comes once
/// the platform has approved.
pub fn receive(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    request: &PayIn,
    id: TransactionId,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let platform = owners::platform(unit, platform)?;
    let customer = receiver(unit, &platform, request)?;
    let holder = owners::Holder::Customer(Arc::clone(&customer));
    holder.may_move_money()?;
    if request.sender == customer.uma_address {
        return Err(Error::SelfPayment);
    }
    limits::enabled(&platform, request.currency, Direction::Incoming)?;
    let received = limits::amount(request.amount_minor, request.currency)?;
    limits::receivable(&platform, received)?;
    let account = InternalAccountId::of(holder.owner(), request.currency);
    limits::has_room(unit, account, received)?;
    let asked = uma::asked_by(&platform, [request.currency]);
    let mut payer = request.payer.clone();
    payer.extend(uma::wanted(request.if_asked.clone(), &asked));
    let fields = uma::missing(&asked, &payer);
    if !fields.is_empty() {
        return Err(Error::PayerDataMissing { fields });
    }
    let receipt = pricing::receipt(app.env().rates.as_ref(), &platform, received, now)?;
    let (destination, conversion) = destination(app, unit, &customer, received, now)?;
    let draft = draft(
        id,
        &customer,
        destination,
        received,
        Uma {
            sender: request.sender.clone(),
            receiver: customer.uma_address.clone(),
            counterparty: payer,
            settlement: Settlement::Lightning { msat: receipt.msat },
            rate_details: Some(receipt.details),
            conversion,
        },
    );
    begin(app, unit, draft, now)
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
            let unknown = || Error::UmaNotFound { address: address.clone() };
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
        let rates = app.env().rates.as_ref();
        match pricing::conversion(rates, &platform, received, account.currency, now) {
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
    }
}

/// Adds an incoming payment. Its platform decides now, or within the window.
fn begin(
    app: &App,
    unit: &mut Unit<'_, '_>,
    draft: Draft,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let platform = owners::platform(unit, draft.platform)?;
    let transaction = Transaction::pending(draft);
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
            unit.add_approval(approval);
            Ok(transaction)
        }
        Decision::NobodyToAsk => {
            lifecycle::begin(app, unit, transaction.clone())?;
            let event = failed(FailureReason::PaymentApprovalWebhookError);
            stop(app, unit, transaction, event, now)
        }
    }
}

/// Ends the payment when the time to decide is over.
fn set_time(unit: &mut Unit<'_, '_>, platform: &Platform, approval: &Approval, now: Timestamp) {
    let (subject, due_at) = (approval.transaction().uuid(), approval.decide_by());
    unit.set_timer(Timer::new(platform, subject, TimerKind::DecidePayment, due_at, now));
}

/// The platform's incoming payment that waits for its decision, and the question.
fn waiting(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: TransactionId,
    now: Timestamp,
) -> Result<(Transaction, Approval), Error> {
    let found = unit.get::<Transaction>(&id)?;
    let transaction = found
        .filter(|transaction| transaction.draft().platform == platform)
        .ok_or(Error::TransactionNotFound { id })?;
    let approval = unit.get::<Approval>(&id)?;
    // The timer may not have been there yet: the clock decides.
    let approval = approval
        .filter(|approval| approval.is_open(now))
        .ok_or(Error::NotPendingApproval { id, status: transaction.status() })?;
    Ok((Transaction::clone(&transaction), Approval::clone(&approval)))
}

/// Decides on an incoming payment that waits, with what the platform says about its customer, or
/// puts the decision off. Refuses what comes after the decision or the end of the time.
pub fn decide(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    id: TransactionId,
    decision: Decided,
    receiver: &Facts,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let (transaction, approval) = waiting(unit, platform, id, now)?;
    settle(app, unit, transaction, approval, decision, receiver, now)
}

/// Keeps what happened to a question, and does to its payment what it means.
fn settle(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    approval: Approval,
    decision: Decided,
    receiver: &Facts,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let moved = approval.apply(decision, now)?;
    let approval = moved.now().clone();
    unit.move_approval(moved);
    match approval.status().outcome() {
        Outcome::Open => {
            let platform = owners::platform(unit, approval.platform())?;
            set_time(unit, &platform, &approval, now);
            Ok(transaction)
        }
        Outcome::Approved => go_on(app, unit, transaction, receiver, now),
        Outcome::Rejected => {
            let event = Event::Refused(StatusReason::REJECTED_BY_PLATFORM);
            stop(app, unit, transaction, event, now)
        }
        Outcome::Failed(reason) => stop(app, unit, transaction, failed(reason), now),
    }
}

/// Ends an incoming payment on which nobody has decided in time. Does nothing to one that does not
/// wait any more, and waits on where the decision was put off.
pub(crate) fn time_out(
    app: &App,
    unit: &mut Unit<'_, '_>,
    id: TransactionId,
    now: Timestamp,
) -> Result<(), Error> {
    let (approval, transaction) = (unit.get::<Approval>(&id)?, unit.get::<Transaction>(&id)?);
    let (Some(approval), Some(transaction)) = (approval, transaction) else { return Ok(()) };
    if approval.is_open(now) {
        let platform = owners::platform(unit, approval.platform())?;
        set_time(unit, &platform, &approval, now);
    } else if approval.status().outcome() == Outcome::Open {
        let (transaction, approval) =
            (Transaction::clone(&transaction), Approval::clone(&approval));
        let decision = Decided::TimedOut;
        settle(app, unit, transaction, approval, decision, &Facts::new(), now)?;
    }
    Ok(())
}

/// What the payer's platform asks about the receiver of a payment, and nobody has said yet.
fn asked(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
) -> Result<Vec<CounterpartyField>, Error> {
    let Some(outgoing) = outgoing(unit, transaction)? else { return Ok(Vec::new()) };
    let mut asked = uma::asked_by_payer(unit, &outgoing)?;
    let payee = payee(unit, transaction)?;
    let known = payee.map(|customer| uma::about(&customer, &asked)).unwrap_or_default();
    // The payer's platform may know itself what it asks for.
    let told = outgoing.draft().uma.as_ref().map(|uma| &uma.counterparty);
    let is_known =
        |name: &str| [Some(&known), told].into_iter().flatten().any(|facts| uma::says(facts, name));
    asked.retain(|field| !is_known(field.name));
    Ok(asked)
}

/// Whether a payment comes from another institution over Lightning.
pub(crate) fn is_from_peer(transaction: &Transaction) -> bool {
    let draft = transaction.draft();
    let settlement = draft.uma.as_ref().map(|uma| uma.settlement);
    draft.direction == Direction::Incoming
        && matches!(settlement, Some(Settlement::Lightning { .. }))
}

/// The customer whom a payment is for, if it is not for the platform itself.
fn payee(unit: &mut Unit<'_, '_>, incoming: &Transaction) -> Result<Option<Arc<Customer>>, Error> {
    let draft = incoming.draft();
    Ok(match owners::holder(unit, draft.platform, draft.owner.customer())? {
        owners::Holder::Customer(customer) => Some(customer),
        owners::Holder::Platform(_) => None,
    })
}

/// The transaction of whoever pays, of a payment within this server.
fn outgoing(unit: &mut Unit<'_, '_>, incoming: &Transaction) -> Result<Option<Transaction>, Error> {
    let settlement = incoming.draft().uma.as_ref().map(|uma| uma.settlement);
    let Some(Settlement::Here { outgoing: Some(id) }) = settlement else { return Ok(None) };
    let found = unit.get::<Transaction>(&id)?;
    let found = found.ok_or_else(|| Error::Internal(format!("{id} has vanished")))?;
    Ok(Some(Transaction::clone(&found)))
}

/// What the clock of the payer's platform shows when that of the payee's shows `now`.
fn on_the_other_side(
    unit: &mut Unit<'_, '_>,
    incoming: &Transaction,
    outgoing: &Transaction,
    now: Timestamp,
) -> Result<Timestamp, Error> {
    let payees = owners::platform(unit, incoming.draft().platform)?.ahead;
    let payers = owners::platform(unit, outgoing.draft().platform)?.ahead;
    Ok(payers.shows(payees.on_server(now)))
}

/// Goes on with a payment that was approved: to its end within this server, else until the money
/// has come.
fn go_on(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    receiver: &Facts,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let asked = asked(unit, &transaction)?;
    if !uma::missing(&asked, receiver).is_empty() {
        let event = failed(FailureReason::MissingMandatoryPayeeData);
        return stop(app, unit, transaction, event, now);
    }
    let received = transaction.draft().received.money();
    if let Some(customer) = transaction.draft().owner.customer()
        && let Err(error) = uma::can_be_paid(unit, customer, received)
    {
        if error.is_failure() {
            return Err(error);
        }
        let reason = StatusReason::DESTINATION_UNAVAILABLE;
        let event = Event::Failed(FailureReason::OfframpFailed, reason);
        return stop(app, unit, transaction, event, now);
    }
    unit.clear_timer((transaction.id().uuid(), TimerKind::DecidePayment));
    let transaction = lifecycle::advance(app, unit, transaction, Event::Started, now)?;
    let Some(outgoing) = outgoing(unit, &transaction)? else {
        unit.pend(transaction.id(), &receipt(&transaction)?, now)?;
        lifecycle::ask_rail(app, unit, &transaction, now)?;
        return Ok(transaction);
    };
    let told = shared(unit, &transaction, &outgoing, receiver)?;
    let then = on_the_other_side(unit, &transaction, &outgoing, now)?;
    jobs::end(app, unit, outgoing.knowing(told), Event::Settled, then)?;
    credit(app, unit, transaction, now)
}

/// What the payer's side is told of what it has asked about the receiver: what is known here and it
/// does not know itself, and what the receiver's platform has answered. Nothing of it is told
/// before that platform agrees.
fn shared(
    unit: &mut Unit<'_, '_>,
    incoming: &Transaction,
    outgoing: &Transaction,
    receiver: &Facts,
) -> Result<Facts, Error> {
    let Some(customer) = payee(unit, incoming)? else { return Ok(Facts::new()) };
    let platform = owners::platform(unit, incoming.draft().platform)?;
    let asked = uma::asked_by_payer(unit, outgoing)?;
    let mut told = uma::about(&customer, &asked);
    if let Some(uma) = &outgoing.draft().uma {
        told.retain(|name, _| !uma::says(&uma.counterparty, name));
    }
    told.extend(uma::wanted(uma::stated(&platform, &customer, receiver), &asked));
    Ok(told)
}

/// A failure of which no more is known than the specification's reason.
fn failed(reason: FailureReason) -> Event {
    Event::Failed(reason, reason.status_reason())
}

fn broken(transaction: &Transaction) -> Error {
    Error::Internal(format!("{} is no payment to a UMA address", transaction.id()))
}

/// The customer's account into which a payment comes, wherever it goes on to.
fn account(draft: &Draft) -> InternalAccountId {
    InternalAccountId::of(draft.owner, draft.received.currency())
}

/// What a payment from another institution posts. It pends from the approval to the rail's answer,
/// so that its account stays and has room.
fn receipt(transaction: &Transaction) -> Result<Posting, Error> {
    let Draft { platform, received, uma, .. } = transaction.draft();
    let uma = uma.as_ref().ok_or_else(|| broken(transaction))?;
    let (Some(msat), Some(details)) = (uma.settlement.msat(), uma.rate_details) else {
        return Err(broken(transaction));
    };
    let fees = details.variable_fee.checked_add(details.fixed_fee);
    let fees = fees.map_err(|error| Error::Internal(error.to_string()))?;
    let account = account(transaction.draft());
    Ok(movements::receipt(Rail::Lightning, account, *platform, Sending(msat), fees, *received)?)
}

/// Credits an incoming payment whose money is here, and sees that it goes on to its deposit
/// account.
pub(crate) fn credit(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let (id, draft) = (transaction.id(), transaction.draft());
    if is_from_peer(&transaction) {
        unit.resolve(id, Resolution::Post, now)?;
    } else {
        unit.post(id, &movements::delivery(account(draft), draft.received.money())?, now)?;
    }
    match draft.deposit_account() {
        Some(bank) => deposit(app, unit, transaction, bank, now),
        None => lifecycle::advance(app, unit, transaction, Event::Settled, now),
    }
}

/// Sends what has come on to the deposit account, unless its owner's money must not move any more.
fn deposit(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    bank: ExternalAccountId,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let draft = transaction.draft();
    let holder = owners::holder(unit, draft.platform, draft.owner.customer())?;
    match holder.may_move_money() {
        Ok(()) => {}
        Err(error) if error.is_failure() => return Err(error),
        Err(_) => {
            let (account, reason) = (account(draft), StatusReason::DESTINATION_UNAVAILABLE);
            return keep(app, unit, transaction, account, reason, now);
        }
    }
    let rail = owners::external_account(unit, draft.platform, bank)?.info.rails()[0];
    let conversion = draft.uma.as_ref().and_then(|uma| uma.conversion);
    let fees = conversion.map_or(Money::zero(draft.received.currency()), |it| it.fees);
    let (from, platform, deposited) = (account(draft), draft.platform, draft.arrives());
    let posting = movements::payout(from, rail, platform, draft.received, fees, deposited)?;
    unit.pend(draft.id, &posting, now)?;
    lifecycle::ask_rail(app, unit, &transaction, now)?;
    Ok(transaction)
}

/// Ends an incoming payment whose deposit account did not take it. What was set aside for that is
/// its owner's again.
pub(crate) fn refuse_deposit(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    reason: StatusReason,
    now: Timestamp,
) -> Result<(), Error> {
    unit.resolve(transaction.id(), Resolution::Void, now)?;
    let account = account(transaction.draft());
    keep(app, unit, transaction, account, reason, now)?;
    Ok(())
}

/// Takes back what the deposit account had taken and has sent back: the payout is reversed whole,
/// at its own rate and with its fees.
pub(crate) fn take_deposit_back(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    now: Timestamp,
) -> Result<(), Error> {
    let (id, draft) = (transaction.id(), transaction.draft());
    let corrupt = || Error::Internal(format!("{id} has come back and was never deposited"));
    let settled = books::settled(&unit.postings(id)?).ok_or_else(corrupt)?;
    let keeper = funding::keeper(unit, draft.platform, draft.owner)?.owner();
    let (own, amount) = (account(draft), draft.received.money());
    let account = InternalAccountId::of(keeper, amount.currency());
    if keeper == draft.owner {
        unit.post(id, &movements::reverse(&settled), now)?;
    } else {
        unit.post(id, &movements::reverse_into_suspense(&settled, own)?, now)?;
        unit.post(id, &movements::suspense_return(account, amount)?, now)?;
    }
    keep(app, unit, transaction, account, StatusReason::RETURNED, now)?;
    Ok(())
}

/// Completes an incoming payment whose money stays in an internal account.
fn keep(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    account: InternalAccountId,
    reason: StatusReason,
    now: Timestamp,
) -> Result<Transaction, Error> {
    // It goes from the lists of one account to those of another.
    unit.know_counted(transaction.draft().platform)?;
    lifecycle::advance(app, unit, transaction.kept_in(account), Event::Kept(reason), now)
}

/// Ends an incoming payment that is not made, on both sides if both are here.
pub(crate) fn stop(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    event: Event,
    now: Timestamp,
) -> Result<Transaction, Error> {
    unit.clear_timer((transaction.id().uuid(), TimerKind::DecidePayment));
    if is_from_peer(&transaction) && transaction.status() == Status::Processing {
        unit.resolve(transaction.id(), Resolution::Void, now)?;
    }
    if let Some(outgoing) = outgoing(unit, &transaction)? {
        let event = match &event {
            Event::Failed(failure, _) => {
                let reason = match failure {
                    FailureReason::PaymentApprovalTimedOut => StatusReason::TIMEOUT,
                    _ => StatusReason::COUNTERPARTY_FAILED,
                };
                Event::Failed(FailureReason::QuoteExecutionFailed, reason)
            }
            Event::Quoted
            | Event::Started
            | Event::Settled
            | Event::Refused(_)
            | Event::Returned
            | Event::Refunded
            | Event::Kept(_)
            | Event::Expired => event.clone(),
        };
        let then = on_the_other_side(unit, &transaction, &outgoing, now)?;
        jobs::end(app, unit, outgoing, event, then)?;
    }
    lifecycle::advance(app, unit, transaction, event, now)
}
