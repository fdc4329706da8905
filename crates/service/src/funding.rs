//! Money that arrives: deposits to internal accounts, and deposits for quotes that are funded in
//! real time (design section 3; contract 6.9.3).

use domain::account_info::types;
use domain::currency::Currency;
use domain::id::{InternalAccountId, Owner, PlatformId, QuoteId, TransactionId};
use domain::money::{Money, Receiving};
use domain::quote::{self, Quote};
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Destination, Direction, Draft, Event, FailureReason, RailRequest, Source,
    StatusReason, Transaction,
};
use ledger::movements;
use store::unit::Unit;

use crate::app::App;
use crate::error::{Error, MoneyError, QuoteError};
use crate::owners::InternalAccount;
use crate::settlement::{give_back, keeper};
use crate::{lifecycle, limits, owners, quotes};

/// The rail over which deposits of a currency arrive when nothing else is said: the first of the
/// first account type that holds it, on the network if one was named. A currency of no account type
/// comes by ordinary bank transfer.
pub fn usual_rail(currency: Currency, network: Option<&str>) -> Rail {
    types()
        .iter()
        .filter(|kind| network.is_none_or(|network| kind.is_on(network)))
        .find(|kind| kind.holds(currency))
        .and_then(|kind| kind.rails.first().copied())
        .unwrap_or(Rail::BankTransfer)
}

/// Credits a deposit to an internal account: an incoming transaction that is complete at once.
pub fn deposit(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    account: InternalAccountId,
    amount_minor: i64,
    id: TransactionId,
    now: Timestamp,
) -> Result<InternalAccount, Error> {
    let platform = owners::platform(unit, platform)?;
    let account = owners::internal_account(unit, &platform, account)?;
    account.owner.may_move_money()?;
    limits::enabled(&platform, account.currency, Direction::Incoming)?;
    let amount = limits::amount(amount_minor, account.currency)?;
    limits::has_room(unit, account.id, amount)?;
    let posting =
        movements::deposit(platform.id, usual_rail(account.currency, None), account.id, amount)?;
    let owner = account.owner.owner();
    let name = account.owner.platform_customer_id();
    let transaction = incoming(id, platform.id, owner, name, account.id, amount);
    complete(app, unit, Transaction::pending(transaction), now)?;
    unit.post(id, &posting, now)?;
    Ok(account)
}

fn incoming(
    id: TransactionId,
    platform: PlatformId,
    owner: Owner,
    platform_customer_id: String,
    account: InternalAccountId,
    amount: Money,
) -> Draft {
    Draft {
        id,
        platform,
        owner,
        platform_customer_id,
        direction: Direction::Incoming,
        source: None,
        destination: Destination::Account {
            account: AccountRef::Internal(account),
            currency: amount.currency(),
        },
        sent: None,
        received: Receiving(amount),
        terms: None,
        uma: None,
        description: None,
        rail_request: RailRequest::default(),
    }
}

/// Adds a transaction and takes it to its end.
fn complete(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: Transaction,
    now: Timestamp,
) -> Result<(), Error> {
    lifecycle::begin(app, unit, transaction.clone())?;
    let transaction = lifecycle::advance(app, unit, transaction, Event::Started, now)?;
    lifecycle::advance(app, unit, transaction, Event::Settled, now)?;
    Ok(())
}

/// A deposit with the reference of a quote that is funded in real time.
#[derive(Debug, Clone, Copy)]
pub struct QuoteDeposit {
    /// The quote.
    pub quote: QuoteId,
    /// The amount that came; the one that the quote asks for, when absent.
    pub amount_minor: Option<i64>,
    /// Its currency.
    pub currency: Currency,
    /// Drawn for the deposit, in case it is too late for the quote's own transaction.
    pub late: TransactionId,
    /// Drawn for the payee's side, in case it is a customer of this server.
    pub other_side: TransactionId,
}

/// Takes a deposit for a quote. The right amount in time executes it. Anything else waits in
/// suspense and goes to the sender's internal account; the transaction fails and is refunded. Money
/// that comes after the quote has expired is a deposit of its own, because the transaction has
/// ended.
pub fn fund_quote(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    deposit: QuoteDeposit,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let id = deposit.quote;
    let quote = unit
        .get::<Quote>(&id)?
        .filter(|quote| quote.draft().platform == platform)
        .ok_or(Error::Quote(QuoteError::NotFound { id }))?;
    let draft = quote.draft();
    let Source::RealtimeFunding { currency, network } = draft.source else {
        return Err(Error::Quote(QuoteError::NotFundedInRealTime { id }));
    };
    if deposit.currency != currency {
        return Err(Error::Money(MoneyError::CurrencyMismatch {
            what: "the deposit and its quote",
            left: deposit.currency,
            right: currency,
        }));
    }
    let due = draft.price.sent.money();
    let amount = match deposit.amount_minor {
        Some(minor) => limits::amount(minor, currency)?,
        None => due,
    };
    let transaction_id = draft.transaction;
    let rail = usual_rail(currency, network);
    match quotes::may_start(&quote, now) {
        Ok(()) if amount == due && can_run(app, unit, &quote)? => {
            unit.post(transaction_id, &movements::funding(platform, rail, amount)?, now)?;
            let (quote, source) = (Quote::clone(&quote), movements::Source::Suspense);
            quotes::run(app, unit, quote, source, deposit.other_side, now)?;
        }
        Ok(()) => {
            let reason = if amount == due {
                StatusReason::DESTINATION_UNAVAILABLE
            } else {
                StatusReason::FUNDING_AMOUNT_MISMATCH
            };
            let failed = Event::Failed(FailureReason::QuoteExecutionFailed, reason);
            give_back(app, unit, &quote, rail, amount, failed, quote::Event::Failed, now)?;
        }
        Err(Error::Quote(QuoteError::Expired { .. }))
            if quote.status() == quote::Status::Pending =>
        {
            let reason = FailureReason::QuoteExpired;
            let failed = Event::Failed(reason, reason.status_reason());
            give_back(app, unit, &quote, rail, amount, failed, quote::Event::Expired, now)?;
        }
        Err(Error::Quote(QuoteError::Expired { .. })) => {
            let holder = keeper(unit, platform, draft.owner)?;
            let (owner, name) = (holder.owner(), holder.platform_customer_id());
            let account = InternalAccountId::of(owner, currency);
            let late = incoming(deposit.late, platform, owner, name, account, amount);
            complete(app, unit, Transaction::pending(late), now)?;
            unit.post(deposit.late, &movements::suspense(platform, rail, amount)?, now)?;
            unit.post(deposit.late, &movements::suspense_return(platform, account, amount)?, now)?;
        }
        Err(refusal) => return Err(refusal),
    }
    let transaction = unit
        .get::<Transaction>(&transaction_id)?
        .ok_or_else(|| Error::Internal(format!("{id} has no transaction")))?;
    unit.answers_with(&*transaction);
    Ok(Transaction::clone(&transaction))
}

/// Whether everything but the money is as it was when the quote was made: no customer was deleted
/// and the destination can still be paid. Money that has arrived cannot be refused, only given
/// back.
pub(crate) fn can_run(app: &App, unit: &mut Unit<'_, '_>, quote: &Quote) -> Result<bool, Error> {
    let draft = quote.draft();
    let holder = owners::holder(unit, draft.platform, draft.owner.customer())?;
    let ready = holder.may_move_money().and_then(|()| quotes::target(app, unit, quote).map(drop));
    match ready {
        Ok(()) => Ok(true),
        // Its rail was connected when the quote was made.
        Err(Error::NotConnected { .. }) => Ok(false),
        Err(error) if error.is_failure() => Err(error),
        Err(_) => Ok(false),
    }
}
