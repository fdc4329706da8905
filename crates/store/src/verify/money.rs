//! Money: postings and entries by themselves, the balances that are their fold, and what a payment
//! moved against what it says.
//!
//! Sums are the audit's of the ledger (`ledger::audit`), which shares no arithmetic with what wrote
//! the balances.

use std::collections::{BTreeMap, BTreeSet};

use domain::currency::Currency;
use domain::id::{InternalAccountId, Owner, PlatformId};
use domain::quote::Quote;
use domain::transaction;
use ledger::account::{AccountKey, Counters, Side};
use ledger::audit::{Audit, RawEntry};
use ledger::movements::Movement;
use uuid::Uuid;

use super::payment::{Payment, RawPosting, RawQuote, RawSettlement, RawTransaction};
use super::{Findings, Ledger, Predicate, Run, shown, states};
use crate::books::{self, LedgerAccount, RowPhase};
use crate::error::StoreError;
use crate::record::Record;
use crate::sql::Row;

pub(super) const ACCOUNTS: &str = "select account, currency, must_stay_covered, debits_pending, \
    debits_posted, credits_pending, credits_posted, notified_minor, high_parts \
    from ledger_accounts";
const ACCOUNT_COLUMNS: &[&str] = &[
    "account",
    "currency",
    "must_stay_covered",
    "debits_pending",
    "debits_posted",
    "credits_pending",
    "credits_posted",
    "notified_minor",
    "high_parts",
];

/// The fold of the whole history.
#[derive(Default)]
pub(super) struct Books {
    audit: Audit<String>,
    /// Accounts that have entries.
    touched: BTreeSet<AccountKey>,
    /// Fees of each platform and currency: as credited, and as completed quotes have them.
    fees: BTreeMap<(Uuid, Currency), (i128, i128)>,
    /// Every account with its stored balance and the fold of its entries.
    pub(super) ledger: Ledger,
}

/// Checks L6, L7, L9 and T7 to T9 of one payment, and adds it to the books.
pub(super) fn check_payment(run: &mut Run<'_>, payment: &Payment) {
    numbers_are_dense(&mut run.findings, payment);
    for posting in &payment.postings {
        for predicate in [Predicate::L1, Predicate::L2, Predicate::L3] {
            run.findings.saw(predicate, posting.entries.len());
        }
        accounts_are_the_platforms(run, payment, posting);
        let touched = posting.entries.iter().map(|line| line.account);
        run.books.touched.extend(touched);
        audit(run, payment, posting);
    }
    fees(run, payment);
    let Some(transaction) = &payment.transaction else { return };
    happened_in_time(&mut run.findings, payment, transaction);
    for quote in &payment.quotes {
        terms_are_kept(&mut run.findings, payment, transaction, quote);
    }
    moved_what_it_says(run, payment, transaction);
    took_nothing(run, payment, transaction);
    not_paid_and_returned(&mut run.findings, payment);
}

/// L7.
fn numbers_are_dense(findings: &mut Findings, payment: &Payment) {
    let name = payment.name();
    findings.saw(Predicate::L7, payment.postings.len());
    let numbers = payment.postings.iter().map(|posting| posting.number);
    findings.demand(Predicate::L7, numbers.eq(1..=payment.postings.len() as u32), || {
        format!("postings of {name} are not numbered 1, 2, 3 and so on")
    });
    for posting in &payment.postings {
        findings.demand(Predicate::L7, resolves_a_pending_one(payment, posting), || {
            format!("posting {} of {name} resolves none that is pending", posting.number)
        });
    }
}

/// Whether a posting that resolves another refers to an earlier pending one and moves nothing
/// itself.
fn resolves_a_pending_one(payment: &Payment, posting: &RawPosting) -> bool {
    match posting.phase {
        RowPhase::Pending | RowPhase::Posted => true,
        RowPhase::Resolves(number, _) => {
            let is_pending = |earlier: &RawPosting| {
                earlier.number == number && earlier.phase == RowPhase::Pending
            };
            number < posting.number
                && posting.entries.is_empty()
                && payment.postings.iter().any(is_pending)
        }
    }
}

/// How much earlier than its transaction a posting may seem to be: ids run ahead of the clock for a
/// moment, and a clock may be set back while a server is away.
const BEHIND_MAX_MILLIS: i64 = 3_600_000;

/// L8.
fn happened_in_time(findings: &mut Findings, payment: &Payment, transaction: &RawTransaction) {
    use transaction::Status::{Created, Pending, Processing};
    findings.saw(Predicate::L8, payment.postings.len());
    let (Some(first), Some(last)) = (transaction.history.first(), transaction.history.last())
    else {
        return;
    };
    let is_under_way = matches!(transaction.status, Created | Pending | Processing);
    for posting in &payment.postings {
        let is_late = !is_under_way && posting.at > last.1;
        let is_early = posting.at.plus_millis(BEHIND_MAX_MILLIS) < first.1;
        findings.demand(Predicate::L8, !is_late && !is_early, || {
            format!("posting {} of {} is of another time", posting.number, payment.name())
        });
    }
}

/// L6.
fn accounts_are_the_platforms(run: &mut Run<'_>, payment: &Payment, posting: &RawPosting) {
    let platform = payment.transaction.as_ref().map(|transaction| transaction.platform);
    for (line, RawEntry { account, .. }) in (1..).zip(&posting.entries) {
        run.findings.saw(Predicate::L6, 1);
        let of = || format!("line {line} of posting {} of {}", posting.number, payment.name());
        let owner = match account {
            AccountKey::Internal(id) => Some(run.parties.platform_of_internal(*id)),
            AccountKey::Rail { platform, .. }
            | AccountKey::Exchange { platform, .. }
            | AccountKey::Fees { platform, .. }
            | AccountKey::Suspense { platform, .. } => Some(Some(platform.uuid())),
            AccountKey::Transit(_) => None,
        };
        if let (Some(owner), Some(_)) = (owner, platform) {
            run.findings.demand(Predicate::L6, owner == platform, || {
                format!("{} is on {account}, which is not its platform's", of())
            });
        }
    }
}

/// Adds a posting to the audit of the ledger: L1 to L5, H1, H2.
fn audit(run: &mut Run<'_>, payment: &Payment, posting: &RawPosting) {
    for predicate in [Predicate::L5, Predicate::H2] {
        run.findings.saw(predicate, posting.entries.len());
    }
    let name = |number: u32| format!("posting {number} of {}", payment.name());
    let entries = posting.entries.iter().copied();
    let audit = &mut run.books.audit;
    match posting.phase {
        RowPhase::Pending => audit.pended(name(posting.number), entries),
        RowPhase::Posted => audit.posted(name(posting.number), entries),
        RowPhase::Resolves(number, resolution) => {
            run.findings.saw(Predicate::H1, 1);
            // L7 reports a posting that refers to nothing.
            if resolves_a_pending_one(payment, posting) {
                audit.resolved(name(number), resolution);
            }
        }
    }
}

/// Adds to L10 what a payment earned, and what it should have.
fn fees(run: &mut Run<'_>, payment: &Payment) {
    let fees = &mut run.books.fees;
    // The fees of a deposit come back with the deposit.
    let is_deposit = has(payment, &[Movement::Payout]);
    // A receipt takes fees without a quote, so only what quotes exchange is compared.
    for posting in payment.posted() {
        let earns = match posting.movement {
            Movement::Exchange => Side::Credit,
            // A return gives the fees back too.
            Movement::Return if !is_deposit => Side::Debit,
            Movement::Deposit
            | Movement::TransferOut
            | Movement::TransferIn
            | Movement::Receipt
            | Movement::Delivery
            | Movement::Payout
            | Movement::Return
            | Movement::Funding
            | Movement::Suspense
            | Movement::SuspenseReturn => continue,
        };
        for line in posting.entries.iter().filter(|line| line.side == earns) {
            if let AccountKey::Fees { platform, currency } = line.account {
                let sign = if earns == Side::Credit { 1 } else { -1 };
                let earned = &mut fees.entry((platform.uuid(), currency)).or_default().0;
                *earned += sign * i128::from(line.minor);
            }
        }
    }
    let is_kept = payment
        .transaction
        .as_ref()
        .is_none_or(|transaction| transaction.status == transaction::Status::Completed);
    for quote in &payment.quotes {
        run.findings.saw(Predicate::L10, 1);
        match quote.status {
            domain::quote::Status::Completed if is_kept => {
                let key = (quote.platform, quote.sending_currency);
                fees.entry(key).or_default().1 += i128::from(quote.fees_minor);
            }
            domain::quote::Status::Completed
            | domain::quote::Status::Pending
            | domain::quote::Status::Processing
            | domain::quote::Status::Failed
            | domain::quote::Status::Expired => {}
        }
    }
}

/// Sums the amounts of entries on one side.
fn sum<'a>(
    postings: impl Iterator<Item = &'a RawPosting>,
    side: Side,
    counts: impl Fn(&AccountKey) -> bool,
) -> i128 {
    postings
        .flat_map(|posting| &posting.entries)
        .filter(|line| line.side == side && counts(&line.account))
        .map(|line| i128::from(line.minor))
        .sum()
}

/// Credits less debits.
fn net(payment: &Payment, counts: impl Fn(&AccountKey) -> bool + Copy) -> i128 {
    sum(payment.posted(), Side::Credit, counts) - sum(payment.posted(), Side::Debit, counts)
}

/// L9: a quote's amounts, in its row, in its transaction and in its exchange.
fn terms_are_kept(
    findings: &mut Findings,
    payment: &Payment,
    transaction: &RawTransaction,
    quote: &RawQuote,
) {
    findings.saw(Predicate::L9, 1);
    let name = format!("Quote:{}", quote.id);
    let is_part = (0..quote.sending_minor).contains(&quote.fees_minor);
    findings.demand(Predicate::L9, is_part, || {
        format!("{name} has fees that are not part of what is sent")
    });
    let amounts = (
        (Some(quote.sending_currency), Some(quote.sending_minor)),
        (quote.receiving_currency, quote.receiving_minor),
    );
    let same = amounts
        == (
            (transaction.sending_currency, transaction.sending_minor),
            (transaction.receiving_currency, transaction.receiving_minor),
        );
    findings.demand(Predicate::L9, same, || {
        format!("{name} and {} have different amounts", payment.name())
    });
    for posting in payment.postings.iter() {
        if posting.movement != Movement::Exchange || matches!(posting.phase, RowPhase::Resolves(..))
        {
            continue;
        }
        let side =
            |side, counts: fn(&AccountKey) -> bool| sum(std::iter::once(posting), side, counts);
        let taken = side(Side::Debit, |account| {
            matches!(account, AccountKey::Internal(_) | AccountKey::Suspense { .. })
        });
        let fees = side(Side::Credit, |account| matches!(account, AccountKey::Fees { .. }));
        let given = side(Side::Credit, |account| {
            matches!(
                account,
                AccountKey::Internal(_) | AccountKey::Rail { .. } | AccountKey::Transit(_)
            )
        });
        let moved = (taken, fees, given);
        let leaves = match quote.settlement {
            RawSettlement::Lightning(msat) => msat,
            RawSettlement::None | RawSettlement::Here => quote.receiving_minor,
        };
        let said = (quote.sending_minor, quote.fees_minor, leaves);
        let said = (said.0.into(), said.1.into(), said.2.into());
        findings.demand(Predicate::L9, moved == said, || {
            format!(
                "posting {} of {} moves what {name} does not say",
                posting.number,
                payment.name()
            )
        });
    }
}

/// L9: a quote's amounts follow from the rate, spread and fees that are kept with it.
pub(super) fn is_priced_as_it_says(findings: &mut Findings, quote: &Quote) {
    let is_same = quote.priced_again().is_ok_and(|price| price == quote.draft().price);
    findings.demand(Predicate::L9, is_same, || {
        format!("{} has amounts that its own rate and fees do not give", quote.id())
    });
}

/// T7.
fn moved_what_it_says(run: &mut Run<'_>, payment: &Payment, transaction: &RawTransaction) {
    if transaction.status != transaction::Status::Completed {
        return;
    }
    run.findings.saw(Predicate::T7, 1);
    if states::is_received(transaction) {
        return received_what_it_says(run, payment, transaction);
    }
    let name = payment.name();
    // A later return does not undo the delivery.
    let made = || payment.posted().filter(|posting| posting.movement != Movement::Return);
    let platform = PlatformId::from_uuid(transaction.platform);
    let source = transaction.source_account.and_then(|account| run.parties.internal(account));
    let source = match (source, transaction.source_account, transaction.quote) {
        (Some(account), _, _) => Some(AccountKey::Internal(account)),
        // Money that came just in time is taken from where it waited.
        (None, None, Some(_)) => {
            transaction.sending_currency.map(|currency| AccountKey::Suspense { platform, currency })
        }
        (None, _, _) => None,
    };
    if let (Some(source), Some(sent)) = (source, transaction.sending_minor) {
        let taken = sum(made(), Side::Debit, |account| *account == source);
        run.findings.demand(Predicate::T7, taken == i128::from(sent), || {
            format!("{name} took from {source} what it does not say")
        });
    }
    let target = run.parties.internal(transaction.destination_account);
    let (leaves, currency) = match (transaction.settlement, target) {
        (RawSettlement::Lightning(msat), None) => (msat, Currency::MSAT),
        (RawSettlement::Lightning(_) | RawSettlement::Here | RawSettlement::None, _) => {
            (transaction.receiving_minor, transaction.receiving_currency)
        }
    };
    let is_here = transaction.settlement == RawSettlement::Here;
    let given = sum(made(), Side::Credit, |account| match (target, *account) {
        (Some(target), account) => account == AccountKey::Internal(target),
        (None, AccountKey::Rail { currency: of_rail, .. }) => !is_here && of_rail == currency,
        (None, AccountKey::Transit(of_transit)) => is_here && of_transit == currency,
        (
            None,
            AccountKey::Internal(_)
            | AccountKey::Exchange { .. }
            | AccountKey::Fees { .. }
            | AccountKey::Suspense { .. },
        ) => false,
    });
    run.findings.demand(Predicate::T7, given == i128::from(leaves), || {
        format!("{name} gave its destination what it does not say")
    });
}

/// T7 of a payment to a customer's UMA address: what came is in the customer's account, or has gone
/// on from there.
fn received_what_it_says(run: &mut Run<'_>, payment: &Payment, transaction: &RawTransaction) {
    let name = payment.name();
    let received = i128::from(transaction.receiving_minor);
    let own = InternalAccountId::of(transaction.owner, transaction.receiving_currency);
    let came = payment
        .posted()
        .filter(|posting| matches!(posting.movement, Movement::Receipt | Movement::Delivery));
    let came = sum(came, Side::Credit, |account| *account == AccountKey::Internal(own));
    run.findings.demand(Predicate::T7, came == received, || {
        format!("{name} gave its owner what it does not say")
    });
    // If it came back for an owner who was deleted in the meantime, it waits for a person, and
    // goes to the platform.
    let target = run.parties.internal(transaction.destination_account);
    let stays =
        net(payment, |account| target.is_some_and(|it| *account == AccountKey::Internal(it)));
    let waits = waits_for_a_person(run, payment, transaction, transaction.receiving_currency);
    let is_kept = match target {
        Some(_) => waits.is_some_and(|waits| stays + waits == received),
        None => is_deposited(payment),
    };
    run.findings.demand(Predicate::T7, is_kept, || {
        format!("{name} gave its destination what it does not say")
    });
}

/// Whether what a payment has received was paid out and did not come back.
fn is_deposited(payment: &Payment) -> bool {
    has(payment, &[Movement::Payout]) && !has(payment, &[Movement::Return])
}

/// T7: what goes on to a deposit account is all that was received, and reaches it as is said.
pub(super) fn deposits_what_it_says(
    findings: &mut Findings,
    payment: &Payment,
    draft: &transaction::Draft,
) {
    if draft.deposit_account().is_none() {
        return;
    }
    let own = InternalAccountId::of(draft.owner, draft.received.currency());
    for posting in payment.postings.iter().filter(|posting| {
        posting.movement == Movement::Payout && !matches!(posting.phase, RowPhase::Resolves(..))
    }) {
        let side = |side, counts: &dyn Fn(&AccountKey) -> bool| {
            sum(std::iter::once(posting), side, counts)
        };
        let taken = side(Side::Debit, &|account| *account == AccountKey::Internal(own));
        let given = side(Side::Credit, &|account| {
            matches!(account, AccountKey::Rail { currency, .. }
                if *currency == draft.arrives().currency())
        });
        let said = (draft.received.minor(), draft.arrives().minor());
        let fits = (taken, given) == (said.0.into(), said.1.into());
        findings.demand(Predicate::T7, fits, || {
            format!(
                "posting {} of {} deposits what it does not say",
                posting.number,
                payment.name()
            )
        });
    }
}

/// T8.
fn took_nothing(run: &mut Run<'_>, payment: &Payment, transaction: &RawTransaction) {
    use transaction::Status;
    match transaction.status {
        Status::Refunded | Status::Failed | Status::Rejected => {}
        Status::Created
        | Status::Pending
        | Status::Processing
        | Status::Completed
        | Status::Expired => return,
    }
    run.findings.saw(Predicate::T8, 1);
    let name = payment.name();
    if let Some(source) =
        transaction.source_account.and_then(|account| run.parties.internal(account))
    {
        let left = net(payment, |account| *account == AccountKey::Internal(source));
        // Money that came back for an owner who was deleted in the meantime went to the platform.
        let platform = Owner::Platform(PlatformId::from_uuid(transaction.platform));
        let kept = transaction.sending_currency.map_or(0, |currency| {
            let platforms = InternalAccountId::of(platform, currency);
            let counts = |account: &AccountKey| *account == AccountKey::Internal(platforms);
            if has(payment, &[Movement::Return]) && platforms != source {
                net(payment, counts)
            } else {
                0
            }
        });
        // Until a person has decided so, it waits.
        let waits = transaction
            .sending_currency
            .map_or(Some(0), |currency| waits_for_a_person(run, payment, transaction, currency));
        let is_whole = waits.is_some_and(|waits| left + kept + waits == 0);
        run.findings.demand(Predicate::T8, is_whole, || {
            format!("{name} was not made and changed {}", AccountKey::Internal(source))
        });
        return;
    }
    let (None, Some(currency)) = (transaction.source_account, transaction.sending_currency) else {
        return;
    };
    // Funded just in time: what came went to the owner, whole. If the owner was deleted in the
    // meantime, it waits for a person, and goes to the platform.
    let owner = AccountKey::Internal(InternalAccountId::of(transaction.owner, currency));
    let platform = Owner::Platform(PlatformId::from_uuid(transaction.platform));
    let platform = AccountKey::Internal(InternalAccountId::of(platform, currency));
    let came = payment.posted().filter(|posting| posting.movement != Movement::Return);
    let came = sum(came, Side::Debit, |account| matches!(account, AccountKey::Rail { .. }));
    let waits = waits_for_a_person(run, payment, transaction, currency);
    let back = net(payment, |account| *account == owner || *account == platform);
    let is_whole = waits.is_some_and(|waits| came == back + waits);
    run.findings.demand(Predicate::T8, is_whole, || {
        format!("{name} was not made and {owner} did not get back what came for it")
    });
}

/// The money of a payment that waits in suspense. None if no person knows of it.
fn waits_for_a_person(
    run: &Run<'_>,
    payment: &Payment,
    transaction: &RawTransaction,
    currency: Currency,
) -> Option<i128> {
    let platform = PlatformId::from_uuid(transaction.platform);
    let suspense = AccountKey::Suspense { platform, currency };
    let waits = net(payment, |account| *account == suspense);
    let is_open = transaction.status != transaction::Status::Refunded
        && run.parties.has_late_return(payment.id);
    (waits == 0 || is_open).then_some(waits)
}

/// T9.
fn not_paid_and_returned(findings: &mut Findings, payment: &Payment) {
    findings.saw(Predicate::T9, 1);
    let paid = has(payment, &[Movement::Exchange, Movement::TransferOut, Movement::Payout]);
    let came_back = has(payment, &[Movement::Return]);
    let was_given_back = has(payment, &[Movement::SuspenseReturn]);
    findings.demand(Predicate::T9, came_back || !(paid && was_given_back), || {
        format!("{} was paid out and given back", payment.name())
    });
}

/// Whether a payment has a final posting for one of these reasons.
fn has(payment: &Payment, wanted: &[Movement]) -> bool {
    payment.posted().any(|posting| wanted.contains(&posting.movement))
}

/// Compares the books with the stored balances: L2 to L5, L10, H2.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let mut stored = BTreeSet::new();
    let Run { connection, findings, books, .. } = run;
    for (account, folded) in books.audit.folded() {
        books.ledger.entry(account).or_default().folded = folded;
    }
    connection.query(ACCOUNTS, &[], ACCOUNT_COLUMNS.len(), &mut |values| {
        for predicate in [Predicate::L3, Predicate::L4, Predicate::L5, Predicate::H2] {
            findings.saw(predicate, 1);
        }
        let name = format!("balance of account {}", shown(values.first()));
        let row = &mut Row::new(LedgerAccount::TABLE, ACCOUNT_COLUMNS, values);
        let mut read = || {
            let (account, currency) = (books::account_key(row)?, row.text()?);
            let is_covered = row.flag()?;
            let (low_parts, notified) = (books::low_parts(row)?, row.int()?);
            Ok((account, currency, is_covered, books::joined(low_parts, row)?, notified))
        };
        let (account, currency, must_stay_covered, counters, notified) = match read() {
            Ok(columns) => columns,
            Err(error) => {
                findings.unreadable(Predicate::L3, name, &error);
                return Ok(());
            }
        };
        let own = account.currency().map(Currency::code);
        findings.demand(Predicate::L6, own == Some(currency.as_str()), || {
            format!("the balance of {account} is kept in another currency")
        });
        let is_its_rule = must_stay_covered == account.must_stay_covered();
        findings.demand(Predicate::L4, is_its_rule, || {
            format!("the balance of {account} is kept under another rule")
        });
        findings.demand(Predicate::L3, books.touched.contains(&account), || {
            format!("{account} has a balance and no entries")
        });
        is_notified(findings, account, counters, notified);
        stored.insert(account);
        books.ledger.entry(account).or_default().stored = Some(counters);
        books.audit.cached(account, counters);
        Ok(())
    })?;
    let mut books = std::mem::take(&mut run.books);
    run.books.ledger = std::mem::take(&mut books.ledger);
    for account in books.touched.difference(&stored) {
        run.findings.broke(Predicate::L3, format!("{account} has entries and no balance"));
    }
    for found in books.audit.finish() {
        let known = Predicate::ALL.iter().find(|known| known.name() == found.predicate);
        run.findings.broke(*known.unwrap_or(&Predicate::L3), found.what);
    }
    for (account, found) in &run.books.ledger {
        if matches!(account, AccountKey::Transit(_)) {
            let rests = found.folded.credits_posted - found.folded.debits_posted;
            run.findings.demand(Predicate::U1, rests == 0, || {
                format!("{account} holds money that no payment has")
            });
        }
    }
    for ((platform, currency), (credited, quoted)) in books.fees {
        run.findings.demand(Predicate::L10, credited == quoted, || {
            format!("fees of PlatformConfig:{platform} in {currency} are not those of its quotes")
        });
    }
    Ok(())
}

/// E7: the last event of an internal account has its balance.
fn is_notified(findings: &mut Findings, account: AccountKey, counters: Counters, notified: i64) {
    let AccountKey::Internal(id) = account else { return };
    let Counters { debits_pending, debits_posted, credits_posted, .. } = counters;
    let available = credits_posted.saturating_sub(debits_posted).saturating_sub(debits_pending);
    findings.demand(Predicate::E7, i128::from(notified) == available, || {
        format!("the last event of {id} does not have its balance")
    });
}
