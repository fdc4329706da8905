//! Transfers in one currency between internal and external accounts (specification 4.1; contract
//! 6.11).

use domain::currency::Currency;
use domain::id::{ExternalAccountId, InternalAccountId, PlatformId, TransactionId};
use domain::money::{Money, Receiving, Sending};
use domain::time::Timestamp;
use domain::transaction::{
    AccountRef, Destination, Direction, Draft, RailRequest, Source, Transaction,
};
use ledger::movements;
use ports::rails::Leg;
use store::unit::Unit;

use crate::app::App;
use crate::error::{AccountError, Error, MoneyError};
use crate::owners::InternalAccount;
use crate::{lifecycle, limits, owners};

/// A transfer between an internal and an external account.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The account held here.
    pub internal: InternalAccountId,
    /// The account elsewhere.
    pub external: ExternalAccountId,
    /// How much, in the smallest unit of the accounts' currency.
    pub amount_minor: i64,
    /// The currency, if the client named it.
    pub currency: Option<Currency>,
    /// The memo.
    pub description: Option<String>,
    /// Wishes for the rail.
    pub rail_request: RailRequest,
}

/// The data of both directions.
struct Parts {
    internal: InternalAccount,
    external: std::sync::Arc<domain::external_account::ExternalAccount>,
    amount: Money,
    leg: Leg,
}

fn parts(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    transfer: &Transfer,
    way: Direction,
) -> Result<Parts, Error> {
    let platform = owners::platform(unit, platform)?;
    let internal = owners::internal_account(unit, &platform, transfer.internal)?;
    let external = owners::external_account(unit, platform.id, transfer.external)?;
    // Before anything is said of the account: without a rail none can be used.
    app.env().needs_rail(platform.mode, &external.info, external.currency)?;
    internal.owner.may_move_money()?;
    internal.owner.is_known_enough(&platform, internal.currency)?;
    let field = match way {
        Direction::Incoming => "source.accountId",
        Direction::Outgoing => "destination.accountId",
    };
    owners::usable_by(unit, &external, &internal.owner, field)?;
    let currencies = [Some(external.currency), transfer.currency];
    let other = currencies.into_iter().flatten().find(|other| *other != internal.currency);
    if let Some(other) = other {
        return Err(Error::Money(MoneyError::CurrencyMismatch {
            what: "the accounts of a transfer",
            left: internal.currency,
            right: other,
        }));
    }
    let amount = limits::amount(transfer.amount_minor, internal.currency)?;
    match way {
        Direction::Outgoing => limits::sendable(&platform, amount)?,
        Direction::Incoming => limits::receivable(&platform, amount)?,
    }
    owners::has_rail(&external.info, transfer.rail_request.rail)?;
    let leg = app.env().route(platform.mode, &external.info, amount, transfer.rail_request.rail)?;
    Ok(Parts { internal, external, amount, leg })
}

/// Makes a transfer. Outgoing, the money is set aside at once; incoming, it is available once the
/// rail has it. Either way the rail is asked as soon as this is committed.
pub fn transfer(
    app: &App,
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    transfer: &Transfer,
    way: Direction,
    id: TransactionId,
    now: Timestamp,
) -> Result<Transaction, Error> {
    let Parts { internal, external, amount, leg } = parts(app, unit, platform, transfer, way)?;
    let rail = leg.rail;
    let (here, there) = (AccountRef::Internal(internal.id), AccountRef::External(external.id));
    let (source, destination, sent, posting) = match way {
        Direction::Outgoing => {
            let posting = movements::transfer_out(platform, internal.id, rail, amount)?;
            (here, there, Some(Sending(amount)), posting)
        }
        Direction::Incoming => {
            if !external.info.account_type().can_pull {
                return Err(Error::Account(AccountError::NotPullable { id: external.id }));
            }
            limits::has_room(unit, internal.id, amount)?;
            (there, here, None, movements::transfer_in(platform, rail, internal.id, amount)?)
        }
    };
    let currency = amount.currency();
    let draft = Draft {
        id,
        platform,
        owner: internal.owner.owner(),
        platform_customer_id: internal.owner.platform_customer_id(),
        direction: way,
        source: Some(Source::Account { account: source, currency }),
        destination: Destination::Account { account: destination, currency },
        sent,
        received: Receiving(amount),
        terms: None,
        uma: None,
        description: transfer.description.clone(),
        rail_request: transfer.rail_request.clone(),
    };
    let transaction = Transaction::pending(draft).ordered_over(rail);
    lifecycle::begin(app, unit, transaction.clone())?;
    unit.pend(id, &posting, now)?;
    let transaction = lifecycle::ask_rail(app, unit, transaction, leg, now)?;
    unit.answers_with(&transaction);
    Ok(transaction)
}
