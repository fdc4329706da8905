//! The log of payments that end other than `COMPLETED`, or whose end only a person can find out: one
//! line each, without personal data.

use domain::id::TransactionId;
use domain::transaction::{Status, Transaction};
use store::unit::Unit;

/// A payment that a unit has left there.
#[derive(Debug)]
pub(crate) struct Ended {
    id: TransactionId,
    status: Status,
    reason: Option<String>,
}

impl Ended {
    fn of(transaction: &Transaction) -> Option<Self> {
        let status = transaction.status();
        match status {
            Status::Rejected | Status::Failed | Status::Refunded | Status::Expired => {}
            Status::Processing if transaction.is_undecided() => {}
            Status::Created | Status::Pending | Status::Processing | Status::Completed => {
                return None;
            }
        }
        let reason = transaction.reason().map(|reason| reason.code().to_owned());
        Some(Self { id: transaction.id(), status, reason })
    }
}

/// The payments that the unit has ended so far. A unit may run more than once, so they are logged
/// by its caller once it is committed.
pub(crate) fn by(unit: &Unit<'_, '_>) -> Vec<Ended> {
    unit.changed_transactions().filter_map(Ended::of).collect()
}

/// Logs payments that have ended.
pub(crate) fn log(ended: &[Ended]) {
    for Ended { id, status, reason } in ended {
        let (is_open, status, reason) =
            (*status == Status::Processing, status.name(), reason.as_deref());
        if is_open {
            tracing::warn!(
                transaction = %id, status, reason,
                "outcome of a payment is unknown past its deadline: ask the other side"
            );
        } else {
            tracing::info!(transaction = %id, status, reason, "payment ended without completion");
        }
    }
}
