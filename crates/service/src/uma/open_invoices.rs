//! Bounds of invoices that were given and not paid yet, by institution and by payee. Anyone can ask
//! for invoices, so they reserve nothing and are few.

use domain::id::CustomerId;
use domain::uma_peer::{Rule, UmaPeer};
use store::open_payments::OpenPayments;
use store::unit::Unit;
use uma::error::{ErrorCode, Refusal};
use uuid::Uuid;

use crate::error::Error;

/// Open invoices of a platform that an institution may have which the operator does not know. Those
/// that are paid are not open any more, and the others end after ten minutes.
const OF_PEER_MAX: u32 = 100;

/// The same for an institution that the operator has allowed.
const OF_ALLOWED_PEER_MAX: u32 = 10_000;

/// Open payments of a payee from which on it gets no invoice for institutions that the operator
/// does not know. One of them alone cannot take all the places.
const OF_PAYEE_MAX: i64 = 1_000;

/// The same for institutions that the operator has allowed: places that no stranger takes.
const OF_PAYEE_ALLOWED_MAX: i64 = 2_000;

/// Refuses another invoice to an institution that has too many open, or for a payee who has.
pub(super) fn has_place(
    unit: &mut Unit<'_, '_>,
    peer: Uuid,
    payee: Option<CustomerId>,
) -> Result<Result<(), Refusal>, Error> {
    let peer = unit.get::<UmaPeer>(&peer)?;
    let of_payee = match payee {
        Some(payee) => unit.get::<OpenPayments>(&payee)?.map_or(0, |open| open.count),
        None => 0,
    };
    let (rule, of_peer) = peer.map_or((Rule::Unset, 0), |peer| (peer.rule, peer.open_payments));
    let (of_peer_max, of_payee_max) = match rule {
        Rule::Allowed => (OF_ALLOWED_PEER_MAX, OF_PAYEE_ALLOWED_MAX),
        Rule::Unset | Rule::Blocked => (OF_PEER_MAX, OF_PAYEE_MAX),
    };
    let is_full = of_peer >= of_peer_max || of_payee >= of_payee_max;
    let reason = "too many invoices wait to be paid; try again in some minutes";
    let refusal = Refusal::new(ErrorCode::VelocityLimitExceeded, reason);
    Ok(if is_full { Err(refusal) } else { Ok(()) })
}
