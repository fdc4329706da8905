//! The money of an incoming payment: credited, sent on to a deposit account, taken back.

use domain::id::{ExternalAccountId, InternalAccountId, Owner};
use domain::money::{Money, Sending};
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{Draft, Event, StatusReason, Transaction};
use ledger::movements;
use ledger::posting::{Posting, Resolution};
use store::books;
use store::unit::Unit;

use super::broken;
use crate::app::App;
use crate::error::Error;
use crate::settlement::{keeper, notice_late_return};
use crate::{lifecycle, owners};

/// The customer's account into which a payment comes, wherever it goes on to.
fn account(draft: &Draft) -> InternalAccountId {
    InternalAccountId::of(draft.owner, draft.received.currency())
}

/// The posting of a payment from another institution, made once its money is here. Nothing is set
/// aside before: anyone can ask for an invoice.
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
    if transaction.is_from_peer() && unit.postings(id)?.is_empty() {
        unit.post(id, &receipt(&transaction)?, now)?;
    } else if transaction.is_from_peer() {
        // An earlier release has set it aside.
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
    let (mode, arrives) = (owners::platform(unit, draft.platform)?.mode, draft.arrives());
    let bank = owners::external_account(unit, draft.platform, bank)?;
    let Ok(leg) = app.env().route(mode, &bank.info, arrives, None) else {
        let (account, reason) = (account(draft), StatusReason::DESTINATION_UNAVAILABLE);
        return keep(app, unit, transaction, account, reason, now);
    };
    let conversion = draft.uma.as_ref().and_then(|uma| uma.conversion);
    let fees = conversion.map_or(Money::zero(draft.received.currency()), |it| it.fees);
    let (from, platform) = (account(draft), draft.platform);
    let posting = movements::payout(from, leg.rail, platform, draft.received, fees, arrives)?;
    unit.pend(draft.id, &posting, now)?;
    lifecycle::ask_rail(app, unit, transaction, leg, now)
}

/// Ends an incoming payment whose deposit account did not take it. Money that was set aside for it
/// is its owner's again.
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
    reason: StatusReason,
    now: Timestamp,
) -> Result<(), Error> {
    let (id, draft) = (transaction.id(), transaction.draft());
    let corrupt = || Error::Internal(format!("{id} has come back and was never deposited"));
    let settled = books::settled(&unit.postings(id)?).ok_or_else(corrupt)?;
    let keeper = keeper(unit, draft.platform, draft.owner)?.owner();
    let (own, amount) = (account(draft), draft.received.money());
    let account = InternalAccountId::of(keeper, amount.currency());
    if keeper == draft.owner {
        unit.post(id, &movements::reverse(&settled), now)?;
    } else {
        unit.post(id, &movements::reverse_into_suspense(draft.platform, &settled, own)?, now)?;
        notice_late_return(unit, &transaction, amount, now)?;
    }
    keep(app, unit, transaction, account, reason, now)?;
    Ok(())
}

/// Gives the platform what the deposit account of a deleted customer has sent back, and what waited
/// in suspense since.
pub(crate) fn keep_returned(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    amount: Money,
    now: Timestamp,
) -> Result<(), Error> {
    let platform = transaction.draft().platform;
    let account = InternalAccountId::of(Owner::Platform(platform), amount.currency());
    let posting = movements::suspense_return(platform, account, amount)?;
    unit.post(transaction.id(), &posting, now)?;
    let reason = StatusReason::RETURNED.in_words_of(transaction.rail_words());
    keep(app, unit, transaction, account, reason, now)?;
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
    lifecycle::advance(app, unit, transaction.kept_in(account), Event::Kept(reason), now)
}
