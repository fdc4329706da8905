//! The rail of an external destination is asked before a quote starts whether it would pay at all.

use domain::external_account::ExternalAccount;
use domain::id::{ExternalAccountId, PlatformId, TransactionId};
use domain::money::Sending;
use domain::platform::Platform;
use domain::pricing::Locked;
use domain::quote::Quote;
use domain::time::Timestamp;
use domain::transaction::{AccountRef, RailRequest};
use ports::rail::{Cause, Flow, Instruction, Party, RailFailure};

use super::To;
use crate::app::App;
use crate::error::{AccountError, Error, Missing, MoneyError};
use crate::{limits, pricing};

/// The known side of a payment's amount, in smallest units.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    /// The amount that arrives.
    Arrives(i64),
    /// The amount that leaves this account, with all fees.
    Leaves(i64, AccountRef),
}

/// Asks the rail of an external destination whether it would take the payment at all.
pub(super) async fn ask_before(
    app: &App,
    platform: PlatformId,
    (to, request): (&To, &RailRequest),
    amount: Known,
    key: TransactionId,
    now: Timestamp,
) -> Result<Option<RailFailure>, Error> {
    let id = match to {
        // An institution that gave an invoice will take its payment.
        To::Account(AccountRef::Internal(_)) | To::Uma(_) => return Ok(None),
        To::Account(AccountRef::External(id)) => Some(*id),
        To::Details(_) => None,
    };
    let pulled = match amount {
        Known::Leaves(_, source) => source.external(),
        Known::Arrives(_) => None,
    };
    let account = async |id: Option<ExternalAccountId>| match id {
        Some(id) => app.store().get::<ExternalAccount>(id).await,
        None => Ok(None),
    };
    let platform = app.store().get::<Platform>(platform);
    let found = tokio::try_join!(account(id), account(pulled), platform);
    let (account, source, platform) = found.map_err(Error::Store)?;
    let Some(platform) = platform else { return Ok(None) };
    let account = account.filter(|account| account.platform == platform.id);
    let (info, currency) = match (to, &account) {
        (To::Details(details), _) => (&details.info, details.currency),
        (To::Account(_), Some(account)) => (&account.info, account.currency),
        (To::Account(_) | To::Uma(_), _) => return Ok(None),
    };
    let amount = match amount {
        Known::Arrives(minor) => limits::amount(minor, currency)?,
        Known::Leaves(minor, from) => {
            let sending = match from {
                AccountRef::Internal(id) => id.currency(),
                AccountRef::External(_) => source.map(|account| account.currency),
            };
            // An amount without a price is refused with the quote.
            let Some(sending) = sending else { return Ok(None) };
            let locked = Locked::Sending(Sending(limits::amount(minor, sending)?));
            let rates = app.env().rates(platform.mode);
            let corridor = pricing::corridor(rates.as_ref(), &platform, sending, currency, now);
            let price = corridor.and_then(|it| pricing::quote(&platform, it, locked, 0));
            let Ok(price) = price else { return Ok(None) };
            price.received.money()
        }
    };
    let rails = app.env().rails(platform.mode);
    // A quote that no port takes is refused when it starts.
    let Ok(leg) = rails.route(info, amount, request.rail) else { return Ok(None) };
    let Some(port) = rails.port(&leg) else { return Ok(None) };
    let order = Instruction {
        key,
        flow: Flow::PayOut,
        cause: Cause::Quote,
        rail: leg.rail,
        amount,
        party: Party::Account(Box::new(info.clone())),
        remittance: request.remittance.clone(),
        purpose: request.purpose,
        since: now,
        settings: platform.rail_settings.clone(),
    };
    Ok(port.check(&order).await.err())
}

pub(super) fn refuse_objection(
    quote: &Quote,
    source: String,
    objection: Option<RailFailure>,
) -> Result<(), Error> {
    let draft = quote.draft();
    let account = draft.destination.account().and_then(AccountRef::external);
    let Some(id) = account else { return Ok(()) };
    match objection {
        None => Ok(()),
        Some(RailFailure::InsufficientFunds) => {
            Err(Error::Money(MoneyError::InsufficientBalance {
                account: source,
                currency: draft.price.sent.currency(),
                available: 0,
                needed: draft.price.sent.minor(),
            }))
        }
        Some(RailFailure::NotConnected) => {
            Err(Error::NotConnected { missing: Missing::PaymentRail })
        }
        Some(RailFailure::AccountInvalid | RailFailure::TimedOut) => {
            Err(Error::Account(AccountError::Unreachable { id }))
        }
    }
}
