//! Questions to platforms about incoming payments, beside the payments themselves.

use domain::approval::{Approval, Outcome, Status};
use domain::id::TransactionId;
use domain::transaction::{self, Direction, FailureReason};
use uuid::Uuid;

use super::parties::{readable, whole};
use super::{Predicate, Run, shown};
use crate::error::StoreError;
use crate::record::Record;
use crate::sql::{Row, Value};
use crate::timers::TimerKind;

const APPROVALS: &str = "select a.transaction_id, a.platform, a.status, t.platform, t.direction, \
    t.status, t.failure_reason \
    from approvals a left join transactions t on t.id = a.transaction_id";
const COLUMNS: &[&str] = &[
    "transaction_id",
    "platform",
    "status",
    "payments_platform",
    "direction",
    "payments_status",
    "failure_reason",
];

pub(super) fn statements() -> impl Iterator<Item = String> {
    [APPROVALS.to_owned(), whole::<Approval>()].into_iter()
}

/// A question and its payment as they were found.
struct Found {
    id: TransactionId,
    platform: Uuid,
    status: Status,
    payment: Option<Payment>,
}

struct Payment {
    platform: Uuid,
    is_incoming: bool,
    status: transaction::Status,
    failure: Option<String>,
}

fn read(row: &mut Row) -> Result<Found, StoreError> {
    let (id, platform) = (row.id()?, row.uuid()?);
    let status = row.named(Status::from_name)?;
    let payment = match row.uuid_or_null()? {
        None => None,
        Some(platform) => Some(Payment {
            platform,
            is_incoming: row.named(Direction::from_name)? == Direction::Incoming,
            status: row.named(transaction::Status::from_name)?,
            failure: row.text_or_null()?,
        }),
    };
    Ok(Found { id, platform, status, payment })
}

/// Checks A1, and what S2 and S4 say about the table.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let Run { connection, findings, timers, .. } = run;
    let mut waits: Vec<_> = timers
        .keys()
        .filter(|(_, kind)| *kind == TimerKind::DecidePayment)
        .map(|(payment, _)| *payment)
        .collect();
    connection.query(APPROVALS, &[], COLUMNS.len(), &mut |values: Vec<Value>| {
        for predicate in [Predicate::A1, Predicate::S4] {
            findings.saw(predicate, 1);
        }
        let name = format!("the approval of {}", shown(values.first()));
        let Found { id, platform, status, payment } =
            match read(&mut Row::new(Approval::TABLE, COLUMNS, values)) {
                Ok(found) => found,
                Err(error) => {
                    findings.unreadable(Predicate::A1, name, &error);
                    return Ok(());
                }
            };
        let Some(payment) = payment.filter(|payment| payment.is_incoming) else {
            findings.broke(Predicate::A1, format!("{name} is of no incoming payment"));
            return Ok(());
        };
        findings.demand(Predicate::S4, payment.platform == platform, || {
            format!("{name} is another platform's to give")
        });
        findings.demand(Predicate::A1, fits(status, &payment), || {
            format!("{name} is {}, and the payment {}", status.name(), payment.status.name())
        });
        let timer = waits.binary_search(&id.uuid()).ok().map(|place| waits.remove(place));
        let is_open = status.outcome() == Outcome::Open;
        findings.demand(Predicate::A1, timer.is_some() == is_open, || {
            format!("{name} is waited for without a timer, or the other way round")
        });
        Ok(())
    })?;
    for payment in waits {
        findings.broke(Predicate::A1, format!("{payment} waits, and nobody was asked"));
    }
    readable::<Approval>(run, Predicate::A1)
}

/// Whether a payment is where the decision led, or further.
fn fits(status: Status, payment: &Payment) -> bool {
    let failed_by = |reason: FailureReason| {
        payment.status == transaction::Status::Failed
            && payment.failure.as_deref() == Some(reason.name())
    };
    match status.outcome() {
        Outcome::Open => payment.status == transaction::Status::Pending,
        Outcome::Approved => payment.status != transaction::Status::Pending,
        Outcome::Rejected => payment.status == transaction::Status::Rejected,
        Outcome::Failed(reason) => failed_by(reason),
    }
}
