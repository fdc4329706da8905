//! How the money of a payment ends: posted, voided, given back or taken back.

use domain::attention::Kind;
use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId};
use domain::money::{Money, Sending};
use domain::quote::{self, Quote};
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Direction, Event, Source, Status, StatusReason, Transaction,
};
use ledger::movements::{self, Movement};
use ledger::posting::Resolution;
use store::books::{self, PostingRow};
use store::unit::Unit;

use crate::app::App;
use crate::error::Error;
use crate::owners::Holder;
use crate::{attention, lifecycle, owners};

/// Whether a quote's money is still to be pulled from its external source.
pub(crate) fn waits_for_source(postings: &[PostingRow], transaction: &Transaction) -> bool {
    let draft = transaction.draft();
    let source = draft.source.as_ref().and_then(Source::account).and_then(AccountRef::external);
    draft.direction == Direction::Outgoing
        && source.is_some()
        && !postings.iter().any(|posting| posting.movement == Movement::Funding)
}

/// Ends a transaction: the pending posting becomes posted or voided, and the quote ends with it.
/// Money that had come just in time is given back.
pub(crate) fn end(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    event: Event,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let settled = event == Event::Settled;
    let resolution = if settled { Resolution::Post } else { Resolution::Void };
    let postings = unit.postings(transaction.id())?;
    // Nothing was set aside for money that was still to be pulled.
    if !waits_for_source(&postings, &transaction) {
        unit.resolve(transaction.id(), resolution, now)?;
    }
    let mut transaction = lifecycle::advance(app, unit, transaction, event, now)?;
    if let Some(terms) = &transaction.draft().terms
        && let Some(quote) = unit.get::<Quote>(&terms.quote)?
    {
        let event = if settled { quote::Event::Delivered } else { quote::Event::Failed };
        lifecycle::advance_quote(unit, Quote::clone(&quote), event, now)?;
    }
    let funded = postings.iter().any(|posting| posting.movement == Movement::Funding);
    if let (false, true, Some(sent)) = (settled, funded, transaction.draft().sent) {
        transaction = refund(app, unit, transaction, Sending::money(sent), now)?;
    }
    Ok(transaction)
}

/// Takes a deposit into suspense and gives it back; quote and transaction end.
#[expect(clippy::too_many_arguments, reason = "one step of one use case, named for its reader")]
pub(crate) fn give_back(
    app: &App,
    unit: &mut Unit<'_, '_>,
    quote: &Quote,
    rail: Rail,
    amount: Money,
    failed: Event,
    event: quote::Event,
    now: Timestamp,
) -> Result<(), Error> {
    let id = quote.draft().transaction;
    let transaction = unit
        .get::<Transaction>(&id)?
        .ok_or_else(|| Error::Internal(format!("{} has no transaction", quote.id())))?;
    unit.post(id, &movements::suspense(quote.draft().platform, rail, amount)?, now)?;
    lifecycle::advance_quote(unit, Quote::clone(quote), event, now)?;
    let transaction = Transaction::clone(&transaction);
    let transaction = lifecycle::advance(app, unit, transaction, failed, now)?;
    refund(app, unit, transaction, amount, now)?;
    Ok(())
}

/// Takes back what was delivered and has come back (contract 6.10): the settled posting is reversed
/// whole, at its own rate and with its fees, and what the sender had paid is the sender's again. A
/// quote stays executed; the transaction is `FAILED`, and `REFUNDED` once the money is the
/// sender's.
pub(crate) fn take_back(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    reason: StatusReason,
    now: Timestamp,
) -> Result<(), Error> {
    let draft = transaction.draft().clone();
    let corrupt = || Error::Internal(format!("{} has come back and was never delivered", draft.id));
    let settled = books::settled(&unit.postings(draft.id)?).ok_or_else(corrupt)?;
    let source = draft.source.as_ref().and_then(Source::account).and_then(AccountRef::internal);
    let transaction = lifecycle::advance(app, unit, transaction, Event::Returned(reason), now)?;
    let mut waits = source.is_none();
    let posting = match source {
        Some(account) => {
            // The currency may be out of the configuration by now: the account is still the
            // owner's.
            let owner = account.owner_uuid();
            let paid_by = match owner == draft.platform.uuid() {
                true => Owner::Platform(draft.platform),
                false => Owner::Customer(CustomerId::from_uuid(owner)),
            };
            waits = keeper(unit, draft.platform, paid_by)?.owner() != paid_by;
            if waits {
                movements::reverse_into_suspense(draft.platform, &settled, account)?
            } else {
                movements::reverse(&settled)
            }
        }
        None => movements::reverse(&settled),
    };
    unit.post(draft.id, &posting, now)?;
    match (waits, draft.sent) {
        (true, Some(sent)) => refund(app, unit, transaction, sent.money(), now)?,
        (true, None) | (false, _) => {
            lifecycle::advance(app, unit, transaction, Event::Refunded, now)?
        }
    };
    Ok(())
}

/// The keeper of money that has come for `owner` and cannot be refused: the platform, once the
/// customer is deleted, because nothing leaves a deleted customer's accounts.
pub(crate) fn keeper(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    owner: Owner,
) -> Result<Holder, Error> {
    let holder = owners::holder(unit, platform, owner.customer())?;
    Ok(match &holder {
        Holder::Customer(customer) if customer.is_deleted => Holder::Platform(platform),
        Holder::Customer(_) | Holder::Platform(_) => holder,
    })
}

/// Gives what a transaction has in suspense to the internal account of the payer. It waits there
/// for a person if the payer was deleted.
fn refund(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    amount: Money,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let draft = transaction.draft();
    // Money that was pulled goes back to the account that it came from, whose owner need not be the
    // paying customer.
    let source = draft.source.as_ref().and_then(Source::account);
    let owner = match source.and_then(AccountRef::external) {
        Some(id) => owners::external_account(unit, draft.platform, id)?.owner,
        None => draft.owner,
    };
    if keeper(unit, draft.platform, owner)?.owner() == owner {
        return return_from_suspense(app, unit, transaction, owner, amount, now);
    }
    notice_late_return(unit, &transaction, amount, now)?;
    Ok(transaction)
}

/// Has a person see to money that came back for a customer who was deleted.
pub(crate) fn notice_late_return(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    amount: Money,
    now: Timestamp,
) -> Result<(), Error> {
    let (minor, currency) = (amount.minor(), amount.currency().code());
    let note = format!("{minor} {currency} in smallest units wait in suspense");
    attention::notice_payment(unit, Kind::LateReturn, transaction, &note, now)
}

/// Posts what a transaction has in suspense to an owner's internal account.
pub(crate) fn return_from_suspense(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    owner: Owner,
    amount: Money,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let draft = transaction.draft();
    let account = InternalAccountId::of(owner, amount.currency());
    unit.post(draft.id, &movements::suspense_return(draft.platform, account, amount)?, now)?;
    match transaction.status() {
        Status::Failed => lifecycle::advance(app, unit, transaction, Event::Refunded, now),
        // The receiving side's refusal is the last that is said of it.
        Status::Created
        | Status::Pending
        | Status::Processing
        | Status::Completed
        | Status::Rejected
        | Status::Refunded
        | Status::Expired => Ok(transaction),
    }
}
