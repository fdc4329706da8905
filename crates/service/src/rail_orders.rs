//! The order that a rail is given for a payment, made from what the books say.

use std::sync::Arc;

use domain::external_account::ExternalAccount;
use domain::id::TransactionId;
use domain::money::Money;
use domain::platform::Platform;
use domain::quote::{Quote, Route};
use domain::transaction::{Destination, Direction, Source, Status, Transaction};
use ledger::movements::Movement;
use ports::rail::{Cause, Flow, Instruction, Party};
use store::books::PostingRow;
use store::timers::Timer;
use store::unit::Unit;

use crate::error::Error;
use crate::owners;
use crate::settlement::waits_for_source;

/// An order with the platform whose money it moves.
pub(crate) type Order = (Instruction, Arc<Platform>);

/// The rail's open order of a transaction; nothing if it has ended.
pub(crate) fn order(unit: &mut Unit<'_, '_>, timer: &Timer) -> Result<Option<Order>, Error> {
    let id = TransactionId::from_uuid(timer.subject);
    let Some(transaction) = unit.get::<Transaction>(&id)? else { return Ok(None) };
    let is_asked_about = match transaction.status() {
        // Delivered money may come back, if the rail said that it may.
        Status::Pending | Status::Processing | Status::Completed => true,
        Status::Created
        | Status::Rejected
        | Status::Failed
        | Status::Refunded
        | Status::Expired => false,
    };
    if !is_asked_about {
        return Ok(None);
    }
    let flow = flow(&unit.postings(id)?, &transaction);
    let (party, amount) = other_side(unit, &transaction, flow)?;
    // It was chosen with the order, and stays whatever the account or the wiring has become.
    let no_rail = || Error::Internal(format!("{id} waits for a rail that was never chosen"));
    let rail = transaction.rail().ok_or_else(no_rail)?;
    let draft = transaction.draft();
    let platform = owners::platform(unit, draft.platform)?;
    // A deposit in the currency that was received is a transfer.
    let is_transfer = match (&draft.uma, flow) {
        (None, _) => draft.terms.is_none(),
        (Some(uma), Flow::PayOut) => draft.terms.is_none() && uma.conversion.is_none(),
        (Some(_), Flow::PullIn) => false,
    };
    let order = Instruction {
        key: id,
        flow,
        cause: if is_transfer { Cause::Transfer } else { Cause::Quote },
        rail,
        amount,
        party,
        remittance: draft.rail_request.remittance.clone(),
        purpose: draft.rail_request.purpose,
        since: timer.since,
        settings: platform.rail_settings.clone(),
    };
    Ok(Some((order, platform)))
}

/// The other side of a transaction's next order, and how much moves.
fn other_side(
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    flow: Flow,
) -> Result<(Party, Money), Error> {
    let draft = transaction.draft();
    let corrupt = || Error::Internal(format!("{} waits for a rail without need", draft.id));
    let source = draft.source.as_ref();
    let account = match (flow, source, &draft.destination) {
        (Flow::PayOut, _, Destination::Account { account, .. })
        | (Flow::PullIn, Some(Source::Account { account, .. }), _) => account.external(),
        (Flow::PullIn, Some(Source::Uma { address }), _) => {
            let msat = draft.uma.as_ref().and_then(|uma| uma.settlement.msat());
            let party = Party::Uma { address: address.clone(), invoice: None };
            return Ok((party, msat.ok_or_else(corrupt)?));
        }
        (Flow::PayOut, _, Destination::Uma { address, .. }) => {
            let quote = draft.terms.as_ref().map(|terms| terms.quote).ok_or_else(corrupt)?;
            let quote = unit.get::<Quote>(&quote)?.ok_or_else(corrupt)?;
            let route = quote.draft().uma.as_ref().map(|uma| &uma.route);
            let Some(Route::Lightning { invoice, msat }) = route else { return Err(corrupt()) };
            let (address, invoice) = (address.clone(), Some(invoice.clone()));
            return Ok((Party::Uma { address, invoice }, *msat));
        }
        (Flow::PullIn, Some(Source::RealtimeFunding { .. }) | None, _) => None,
    };
    let amount = match (flow, draft.direction, draft.sent) {
        (Flow::PullIn, Direction::Outgoing, Some(sent)) => sent.money(),
        (Flow::PayOut | Flow::PullIn, _, _) => draft.arrives(),
    };
    let account = unit.get::<ExternalAccount>(&account.ok_or_else(corrupt)?)?;
    let info = account.ok_or_else(corrupt)?.info.clone();
    Ok((Party::Account(Box::new(info)), amount))
}

/// Which way money has to move next for a transaction.
pub(crate) fn flow(postings: &[PostingRow], transaction: &Transaction) -> Flow {
    let is_deposited = || postings.iter().any(|posting| posting.movement == Movement::Payout);
    match transaction.draft().direction {
        Direction::Outgoing if !waits_for_source(postings, transaction) => Flow::PayOut,
        Direction::Incoming if is_deposited() => Flow::PayOut,
        Direction::Outgoing | Direction::Incoming => Flow::PullIn,
    }
}
