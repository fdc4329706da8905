//! States and their consequences: histories, quotes beside their transactions, what is under way,
//! and what is sealed.

use std::fmt::Display;

use domain::id::{QuoteId, TransactionId};
use domain::quote::{self, Quote};
use domain::time::Timestamp;
use domain::transaction::{self, Direction, FailureReason, Transaction, reference};

use super::payment::{Payment, RawQuote, RawSettlement, RawTransaction};
use super::{Findings, Predicate, Run, money};
use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{self, Record};
use crate::sql::Value;

/// Checks T1 to T6, H3 and S4 of one payment.
pub(super) fn check(run: &mut Run<'_>, payment: &Payment) {
    let findings = &mut run.findings;
    for quote in &payment.quotes {
        let name = format!("Quote:{}", quote.id);
        let steps = named_steps(&quote.history, &quote::Status::ALL);
        let machine = Machine {
            first: &[quote::Status::Pending],
            all: &quote::Status::ALL,
            may_become: quote::Status::may_become,
        };
        check_steps(
            findings,
            &machine,
            &name,
            steps,
            quote.status,
            [QuoteId::from_uuid(quote.id).created_at(), quote.created_at, quote.updated_at],
        );
        executed_in_time(findings, quote, &name);
    }
    let Some(transaction) = &payment.transaction else {
        return if !payment.is_unreadable {
            without_transaction(findings, payment)
        };
    };
    let name = payment.name();
    let steps = named_steps(&transaction.history, &transaction::Status::ALL);
    let machine = Machine {
        first: &[transaction::Status::Created, transaction::Status::Pending],
        all: &transaction::Status::ALL,
        may_become: transaction::Status::may_become,
    };
    let drawn = TransactionId::from_uuid(payment.id).created_at();
    let times = [drawn, transaction.created_at, transaction.updated_at];
    only_what_was_received_is_kept(findings, transaction, &name, steps.as_deref());
    check_steps(findings, &machine, &name, steps, transaction.status, times);
    quote_fits(findings, payment, transaction);
    expired_holds_nothing(findings, payment);
    failure_has_reason(findings, transaction, &name);
    findings.saw(Predicate::T6, 1);
    let reference = reference(TransactionId::from_uuid(payment.id));
    findings.demand(Predicate::T6, run.last_reference != reference, || {
        format!("{name} shares its reference with the transaction before it")
    });
    run.last_reference = reference;
    money_is_set_aside(run, payment, transaction);
    belongs_together(run, payment, transaction);
}

/// The rules of a state machine that T1 and T2 check.
struct Machine<'a, S> {
    first: &'a [S],
    all: &'a [S],
    may_become: fn(S, S) -> bool,
}

/// The steps with their statuses; nothing where the number of a status is none.
fn named_steps<S: Copy>(history: &[(usize, Timestamp)], all: &[S]) -> Option<Vec<(S, Timestamp)>> {
    history.iter().map(|(status, at)| Some((*all.get(*status)?, *at))).collect()
}

/// T1 and T2.
fn check_steps<S: Copy + PartialEq>(
    findings: &mut Findings,
    machine: &Machine<'_, S>,
    name: &impl Display,
    steps: Option<Vec<(S, Timestamp)>>,
    status: S,
    [drawn, created_at, updated_at]: [Timestamp; 3],
) {
    findings.saw(Predicate::T1, 1);
    findings.saw(Predicate::T2, 1);
    let Some(steps) = steps else {
        return findings.broke(Predicate::T1, format!("{name} has a step of an unknown status"));
    };
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return findings.broke(Predicate::T1, format!("{name} has no history"));
    };
    findings.demand(Predicate::T1, machine.first.contains(&first.0), || {
        format!("{name} starts where nothing starts")
    });
    for (number, pair) in (2..).zip(steps.windows(2)) {
        let (from, to) = (pair[0].0, pair[1].0);
        let is_final = machine.all.iter().all(|next| !(machine.may_become)(from, *next));
        findings.demand(Predicate::T2, !is_final, || {
            format!("step {number} of {name} follows a final status")
        });
        findings.demand(Predicate::T1, is_final || (machine.may_become)(from, to), || {
            format!("step {number} of {name} is no arrow of its machine")
        });
    }
    findings.demand(Predicate::T1, last.0 == status, || {
        format!("{name} is not in the status of its last step")
    });
    findings.demand(Predicate::T1, (first.1, last.1) == (created_at, updated_at), || {
        format!("{name} was not made or changed when its steps say")
    });
    findings.demand(Predicate::T1, first.1 == drawn, || {
        format!("{name} does not start when its id was drawn")
    });
}

/// T1: a payment is completed twice only where its deposit has come back.
fn only_what_was_received_is_kept(
    findings: &mut Findings,
    transaction: &RawTransaction,
    name: &str,
    steps: Option<&[(transaction::Status, Timestamp)]>,
) {
    let completed = |(status, _): &&(_, _)| *status == transaction::Status::Completed;
    let times = steps.unwrap_or_default().iter().filter(completed).count();
    findings.demand(Predicate::T1, times <= 1 || is_received(transaction), || {
        format!("{name} was completed twice and is not to a UMA address of a customer")
    });
}

/// T4, the time.
fn executed_in_time(findings: &mut Findings, quote: &RawQuote, name: &str) {
    findings.saw(Predicate::T4, 1);
    let steps = named_steps(&quote.history, &quote::Status::ALL).unwrap_or_default();
    let executed = steps.iter().find(|(status, _)| *status == quote::Status::Processing);
    let is_late = executed.is_some_and(|(_, at)| *at >= quote.expires_at);
    findings.demand(Predicate::T4, !is_late, || format!("{name} was executed after its time"));
}

/// T4, the money.
fn expired_holds_nothing(findings: &mut Findings, payment: &Payment) {
    for quote in &payment.quotes {
        let holds = quote.status == quote::Status::Expired && payment.unresolved() > 0;
        findings.demand(Predicate::T4, !holds, || {
            format!("Quote:{} is expired and holds money", quote.id)
        });
    }
}

/// Rows about a transaction that is not there.
fn without_transaction(findings: &mut Findings, payment: &Payment) {
    let name = payment.name();
    for quote in &payment.quotes {
        let what = format!("Quote:{} is of {name}, which is not there", quote.id);
        findings.broke(Predicate::T3, what);
    }
    if !payment.postings.is_empty() {
        findings.broke(Predicate::L7, format!("{name} has postings and is not there"));
    }
}

/// T3.
fn quote_fits(findings: &mut Findings, payment: &Payment, transaction: &RawTransaction) {
    findings.saw(Predicate::T3, 1);
    let name = payment.name();
    let named = transaction.quote.into_iter().collect::<Vec<_>>();
    let found: Vec<_> = payment.quotes.iter().map(|quote| quote.id).collect();
    findings.demand(Predicate::T3, named == found, || {
        format!("{name} and its quote do not name each other")
    });
    for quote in &payment.quotes {
        let was_delivered = history_has(transaction, transaction::Status::Completed);
        let fits = fits(quote.status, transaction.status, was_delivered);
        findings.demand(Predicate::T3, fits, || {
            format!(
                "{name} is {}, Quote:{} is {}",
                transaction.status.name(),
                quote.id,
                quote.status.name()
            )
        });
    }
}

/// Whether a transaction ever had this status.
fn history_has(transaction: &RawTransaction, status: transaction::Status) -> bool {
    let steps = named_steps(&transaction.history, &transaction::Status::ALL).unwrap_or_default();
    steps.iter().any(|(had, _)| *had == status)
}

/// Whether a quote and its transaction can be in these statuses at once. A quote that was carried
/// out stays so when the money comes back later.
fn fits(quote: quote::Status, transaction: transaction::Status, was_delivered: bool) -> bool {
    use transaction::Status;
    match quote {
        quote::Status::Pending => transaction == Status::Pending,
        quote::Status::Processing => transaction == Status::Processing,
        quote::Status::Completed => {
            let came_back = matches!(transaction, Status::Failed | Status::Refunded);
            transaction == Status::Completed || (was_delivered && came_back)
        }
        quote::Status::Failed => {
            matches!(transaction, Status::Failed | Status::Rejected | Status::Refunded)
        }
        quote::Status::Expired => {
            matches!(transaction, Status::Expired | Status::Failed | Status::Refunded)
        }
    }
}

/// T5.
fn failure_has_reason(findings: &mut Findings, transaction: &RawTransaction, name: &str) {
    use transaction::Status;
    findings.saw(Predicate::T5, 1);
    let has_failed = matches!(transaction.status, Status::Failed | Status::Refunded);
    let reason = transaction.failure_reason.as_deref();
    findings.demand(Predicate::T5, has_failed == reason.is_some(), || {
        format!("{name} has failed without a reason, or has one without having failed")
    });
    let is_known = reason.is_none_or(|reason| FailureReason::from_name(reason).is_some());
    findings.demand(Predicate::T5, is_known, || format!("{name} failed for an unknown reason"));
}

/// H3: how many postings may wait in the present status.
fn money_is_set_aside(run: &mut Run<'_>, payment: &Payment, transaction: &RawTransaction) {
    use transaction::Status;
    run.findings.saw(Predicate::H3, 1);
    let waits = payment.unresolved();
    let is_from_internal =
        transaction.source_account.is_some_and(|account| run.parties.internal(account).is_some());
    let is_under_way = match transaction.status {
        Status::Processing => true,
        // Money moves when a quote is executed, and at once where there is none.
        Status::Pending => transaction.quote.is_none(),
        Status::Created
        | Status::Completed
        | Status::Rejected
        | Status::Failed
        | Status::Refunded
        | Status::Expired => false,
    };
    let holds = match (is_under_way, is_from_internal) {
        (true, true) => waits == 1,
        // Its deposit is on its way, or its invoice is not paid. Releases before this one set money
        // aside for an invoice.
        (true, false) if is_received(transaction) => {
            let is_here = transaction.settlement == RawSettlement::Here;
            let most = usize::from(transaction.status == Status::Processing);
            waits == most || !is_here && waits == 0
        }
        // The rail may not have announced money from outside yet.
        (true, false) => waits <= 1,
        (false, _) => waits == 0,
    };
    run.findings.demand(Predicate::H3, holds, || {
        format!(
            "{} is {} and has {waits} pending postings",
            payment.name(),
            transaction.status.name()
        )
    });
}

/// Whether it is a payment to the UMA address of a customer.
pub(super) fn is_received(transaction: &RawTransaction) -> bool {
    transaction.direction == Direction::Incoming && transaction.settlement != RawSettlement::None
}

/// S4: owner, accounts and quote are the same platform's.
fn belongs_together(run: &mut Run<'_>, payment: &Payment, transaction: &RawTransaction) {
    let Run { findings, parties, .. } = run;
    findings.saw(Predicate::S4, 1);
    let (name, platform) = (payment.name(), transaction.platform);
    let is_its_owner = parties.platform_of(transaction.owner) == Some(platform);
    findings.demand(Predicate::S4, is_its_owner, || {
        format!("{name} is of an owner who is not its platform's")
    });
    let destination = Some(transaction.destination_account);
    // A UMA address stands where the other side's account would.
    let is_uma = transaction.settlement != RawSettlement::None;
    let accounts = match (is_uma, transaction.direction) {
        (false, _) => [transaction.source_account, destination],
        (true, Direction::Outgoing) => [transaction.source_account, None],
        (true, Direction::Incoming) => [None, destination],
    };
    for account in accounts.into_iter().flatten() {
        let is_its = parties.platform_of_account(account) == Some(platform);
        findings.demand(Predicate::S4, is_its, || {
            format!("{name} is from or to account {account}, which is not its platform's")
        });
    }
    if is_received(transaction) {
        let owner = parties.owner_of_external(transaction.destination_account);
        findings.demand(Predicate::S4, owner.is_none_or(|it| it == transaction.owner), || {
            format!("{name} is deposited into an account that is not its owner's")
        });
    }
    for quote in &payment.quotes {
        let is_same = (quote.platform, quote.owner) == (platform, transaction.owner)
            && quote.source_account == transaction.source_account
            && quote.destination_account == transaction.destination_account
            && quote.settlement == transaction.settlement;
        findings.demand(Predicate::S4, is_same, || {
            format!("{name} and Quote:{} are of different parties", quote.id)
        });
    }
}

/// S2 of the parts of one payment. Each opened row is read as the rest of the program does, unless
/// another predicate has named its fault already.
pub(super) fn check_contents(run: &mut Run<'_>, payment: &Payment, is_sound: bool) {
    let Run { findings, keyring: Some(keyring), .. } = run else { return };
    let mut contents = Contents { findings, keyring, is_sound };
    if let Some(transaction) = &payment.transaction {
        let read = contents.check::<Transaction>(payment.name(), &transaction.values);
        if let Some(read) = read {
            money::deposits_what_it_says(contents.findings, payment, read.draft());
        }
    }
    for quote in &payment.quotes {
        let name = format!("Quote:{}", quote.id);
        let read = contents.check::<Quote>(name, &quote.values);
        if let Some(read) = read {
            money::is_priced_as_it_says(contents.findings, &read);
        }
    }
}

struct Contents<'a> {
    findings: &'a mut Findings,
    keyring: &'a Keyring,
    is_sound: bool,
}

impl Contents<'_> {
    fn check<R: Record>(&mut self, name: String, values: &[Value]) -> Option<R> {
        match record::read::<R>(values.to_vec(), self.keyring) {
            Ok(read) => return Some(read),
            Err(StoreError::Sealed { .. }) => {}
            Err(error) if self.is_sound => self.findings.unreadable(Predicate::S2, name, &error),
            Err(_) => {}
        }
        None
    }
}
