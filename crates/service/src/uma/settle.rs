//! Hash-locked settlement, the receiving end: a payer's server shows an invoice of ours, and gets
//! its preimage once the payment is booked (docs/uma.md).
//!
//! No money moves between the two servers, so it serves platforms whose money is not real.

use domain::attention::Kind;
use domain::id::{InternalAccountId, TransactionId};
use domain::platform::Mode;
use domain::transaction::{Event, FailureReason, Status, StatusReason, Transaction};
use ports::lightning::Invoice;
use ports::rail::Flow;
use sha2::{Digest as _, Sha256};
use store::timers::TimerKind;
use store::unit::Unit;
use uma::error::{ErrorCode, Refusal};
use uuid::Uuid;

use super::peers::count_settle;
use super::receive::{called, failed};
use crate::app::App;
use crate::error::Error;
use crate::guesses::Network;
use crate::rail_orders::flow;
use crate::strangers::Kind as Asked;
use crate::{attention, incoming, limits, owners};

/// The path at the root of a domain.
pub const SETTLE_PATH: &str = "/uma/settle";

/// Refuses a request from an address that has sent too many of late. The payment itself is not
/// refused: it may be booked.
pub fn admit(app: &App, from: Network) -> Result<(), Refusal> {
    called(app, Asked::Settle, from)
}

/// Books the payment of an invoice of ours, once, and gives its preimage. The same invoice has the
/// same answer however often it is shown, but for an institution that shows too many.
pub async fn settle(app: &App, invoice: &str) -> Result<[u8; 32], Refusal> {
    let unknown = || Refusal::new(ErrorCode::RequestNotFound, "no payment waits for this invoice");
    let (mode, invoice, payment, preimage) = ours(app, invoice)?;
    let found = app.store().get::<Transaction>(payment).await;
    let found = found.map_err(|error| failed(&error.into()))?.ok_or_else(unknown)?;
    count_settle(app, mode, &found).await.map_err(|error| failed(&error))??;
    let (unit_app, server_now) = (app.clone(), app.server_now());
    let booked = app.write(move |unit: &mut Unit<'_, '_>| {
        let Some(transaction) = unit.get::<Transaction>(&payment)? else {
            return Ok(Err(unknown()));
        };
        let is_over = server_now >= invoice.expires_at;
        if !has_room(unit, &transaction)? {
            return no_room(&unit_app, unit, &transaction);
        }
        book(&unit_app, unit, &transaction, mode, is_over)
    });
    booked.await.map_err(|error| failed(&error))??;
    Ok(preimage)
}

/// Whether the payee's account has room for a payment that is not booked yet.
fn has_room(unit: &mut Unit<'_, '_>, transaction: &Transaction) -> Result<bool, Error> {
    let (draft, id) = (transaction.draft(), transaction.id());
    let waits = transaction.status() == Status::Processing && transaction.is_from_peer();
    if !waits || !unit.postings(id)?.is_empty() {
        return Ok(true);
    }
    let received = draft.received.money();
    let account = InternalAccountId::of(draft.owner, received.currency());
    match limits::has_room(unit, account, received) {
        Ok(()) => Ok(true),
        Err(error) if error.is_failure() => Err(error),
        Err(_) => Ok(false),
    }
}

/// Ends a payment for which there is no room, before any money has moved. The refusal is final, so
/// the invoice cannot be shown again.
fn no_room(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
) -> Result<Result<(), Refusal>, Error> {
    let now = app.now(owners::platform(unit, transaction.draft().platform)?.ahead);
    let event = Event::Failed(FailureReason::OfframpFailed, StatusReason::DESTINATION_UNAVAILABLE);
    unit.clear_timer((transaction.id().uuid(), TimerKind::AskRail));
    incoming::stop(app, unit, transaction.clone(), event, now)?;
    Ok(Err(Refusal::new(ErrorCode::UserNotReady, "the payee cannot be paid so much")))
}

/// Books a payment of platforms of this mode whose money has come over Lightning, once. One that
/// does not wait for money any more stays as it is: the node takes none for it.
pub async fn arrived(app: &App, mode: Mode, payment: TransactionId) -> Result<(), Error> {
    let unit_app = app.clone();
    let booked = app.write(move |unit: &mut Unit<'_, '_>| {
        let Some(transaction) = unit.get::<Transaction>(&payment)? else { return Ok(()) };
        let booked = book(&unit_app, unit, &transaction, mode, false)?;
        if booked.is_err() {
            let ahead = owners::platform(unit, transaction.draft().platform)?.ahead;
            let (kind, now) = (Kind::RailContradiction, unit_app.now(ahead));
            let note = "money came after it had ended";
            attention::notice_payment(unit, kind, &transaction, note, now)?;
        }
        Ok(())
    });
    booked.await
}

/// An invoice of ours: the mode of the payment that it is for, and its preimage.
fn ours(app: &App, text: &str) -> Result<(Mode, Invoice, TransactionId, [u8; 32]), Refusal> {
    let unknown = || Refusal::new(ErrorCode::RequestNotFound, "no payment waits for this invoice");
    let mut refusal = unknown();
    for (mode, node) in &app.env().lightning {
        let invoice = match node.read_invoice(text) {
            Ok(invoice) => invoice,
            Err(error) => {
                let reason = format!("the invoice {error}");
                refusal = Refusal::new(ErrorCode::InvalidInvoice, reason);
                continue;
            }
        };
        let payment = Uuid::from_slice(&invoice.metadata).map(TransactionId::from_uuid);
        let Some((payment, preimage)) =
            payment.ok().and_then(|payment| Some((payment, node.preimage(payment)?)))
        else {
            return Err(unknown());
        };
        let is_ours =
            invoice.node == node.node() && invoice.payment_hash[..] == Sha256::digest(preimage)[..];
        return if is_ours { Ok((*mode, invoice, payment, preimage)) } else { Err(unknown()) };
    }
    Err(refusal)
}

/// Books a payment that waits for its money; does nothing to one that has it.
fn book(
    app: &App,
    unit: &mut Unit<'_, '_>,
    transaction: &Transaction,
    mode: Mode,
    is_over: bool,
) -> Result<Result<(), Refusal>, Error> {
    let id = transaction.id();
    let expired = || Refusal::new(ErrorCode::InvoiceExpired, "the invoice cannot be paid any more");
    match transaction.status() {
        Status::Completed => return Ok(Ok(())),
        // It goes on to a deposit account already.
        Status::Processing if flow(&unit.postings(id)?, transaction) == Flow::PayOut => {
            return Ok(Ok(()));
        }
        Status::Processing if !is_over => {}
        Status::Created
        | Status::Pending
        | Status::Processing
        | Status::Rejected
        | Status::Failed
        | Status::Refunded
        | Status::Expired => return Ok(Err(expired())),
    }
    let platform = owners::platform(unit, transaction.draft().platform)?;
    if platform.mode != mode || !transaction.is_from_peer() {
        return Ok(Err(expired()));
    }
    let now = app.now(platform.ahead);
    // Money that goes on to a deposit account is asked about by the same timer, set anew.
    unit.clear_timer((id.uuid(), TimerKind::AskRail));
    incoming::credit(app, unit, transaction.clone(), now)?;
    Ok(Ok(()))
}
