//! Prints `docs/ledger.md`: every movement on T-accounts, as this code books it.
//!
//! Each example runs on a [`Book`] of its own, so the page cannot say what the ledger does not do.

use std::fmt::Write;

use domain::currency::Currency;
use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId};
use domain::money::{Money, Receiving, Sending};
use domain::rail::Rail;
use uuid::Uuid;

use crate::account::{AccountKey, Balance, COUNTER_MAX, NormalSide, Side};
use crate::apply::Refusal;
use crate::book::{Book, PostingRef};
use crate::movements::{self, Movement, Source, Target};
use crate::posting::{Phase, Posting, PostingError, Resolution};

/// The whole page.
pub fn document() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str(&chart());
    page.push_str(LEGEND);
    for example in examples() {
        page.push('\n');
        page.push_str(&example);
    }
    page
}

const INTRODUCTION: &str = "\
# The ledger

This page is printed by `crates/ledger/src/t_accounts.rs`, which runs every movement on a real book;
a test fails when it is stale. To write it anew: `cargo xtask docs`.

All money moves through one double-entry ledger. A posting is a set of debits and credits that
balances in every currency it touches; a movement is the business reason of a posting. A posting is
posted at once, or it is pended first and later posted or voided, once. Nothing recorded is edited:
money that comes back after it had settled is a new posting.

";

const LEGEND: &str = "
## Movements

In the tables below each side of an account is counted in two columns, pending and posted; an empty
field is zero. *Available* is credits posted less debits posted and pending, and is shown where it
may never be less than zero. Ada and Bo are customers of the platform Acme. \"Dr\" is a debit,
\"Cr\" a credit.
";

/// One row for each kind of account.
fn chart() -> String {
    let mut text = String::from(
        "## Accounts\n\n| account | one for each | stands on | covered | what it is |\n\
         |---|---|---|---|---|\n",
    );
    for (account, each, what) in [
        (AccountKey::Internal(ada("USD")), "owner and currency", "money that we owe to its owner"),
        (ach("USD"), "rail and currency", "the outside world"),
        (AccountKey::Exchange(currency("USD")), "currency", "the open position of exchanges"),
        (fees("USD"), "platform and currency", "income of the platform"),
        (
            AccountKey::Suspense(currency("USD")),
            "currency",
            "money that waits for its quote, or matches nothing yet",
        ),
        (
            AccountKey::Transit(currency("USD")),
            "currency",
            "money that one payment hands to another in the same change",
        ),
    ] {
        let kind = match account {
            AccountKey::Internal(_) => "internal",
            AccountKey::Rail { .. } => "rail",
            AccountKey::Exchange(_) => "exchange",
            AccountKey::Fees { .. } => "fees",
            AccountKey::Suspense(_) => "suspense",
            AccountKey::Transit(_) => "transit",
        };
        let side = match account.side() {
            NormalSide::Debit => "debit",
            NormalSide::Credit => "credit",
            NormalSide::Either => "either side",
        };
        let covered = if account.must_stay_covered() { "always" } else { "" };
        line(&mut text, &format!("| {kind} | {each} | {side} | {covered} | {what} |"));
    }
    let most = decimal(COUNTER_MAX, 0);
    line(
        &mut text,
        &format!(
            "\nA covered account never has less than nothing available: a posting that would take \
             more is refused\nand changes nothing. One side of one account counts at most {most} \
             smallest units.\nAn internal account needs no row before its first posting."
        ),
    );
    text
}

/// Every movement in every way it can end.
fn examples() -> Vec<String> {
    vec![
        deposit(),
        transfer_out_settled(),
        transfer_out_rejected(),
        transfer_out_refused(),
        transfer_in_settled(),
        transfer_in_failed(),
        quote_to_internal(),
        quote_in_one_currency(),
        quote_to_external_settled(),
        quote_to_external_failed(),
        quote_to_another_institution(),
        quote_to_a_customer_here(),
        quote_funded_in_real_time(),
        quote_funded_with_the_wrong_amount(),
        unmatched_money(),
        receipt(),
        receipt_deposited(),
        receipt_converted_and_refused(),
        return_after_settlement(),
        return_to_suspense(),
        return_to_somebody_gone(),
    ]
}

fn deposit() -> String {
    let mut example = Example::new("Deposit", "Money comes in for an internal account.");
    example.post(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.finish()
}

fn transfer_out_settled() -> String {
    let mut example = Example::new(
        "Transfer-out, settled",
        "The money is set aside while the rail works and leaves when it settles.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending = example.pend(movements::transfer_out(ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn transfer_out_rejected() -> String {
    let mut example = Example::new(
        "Transfer-out, rejected or failed",
        "What was set aside is available again, as if nothing had been.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending = example.pend(movements::transfer_out(ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.resolve(pending, "the receiver's bank rejected the payment", Resolution::Void);
    example.finish()
}

fn transfer_out_refused() -> String {
    let mut example = Example::new(
        "Transfer-out, refused",
        "More is asked for than is available: the ledger refuses and nothing changes.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.pend(movements::transfer_out(ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.refused(movements::transfer_out(ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.finish()
}

fn transfer_in_settled() -> String {
    let mut example = Example::new(
        "Transfer-in, settled",
        "What is on its way in is not available before the rail has it.",
    );
    let pending = example.pend(movements::transfer_in(Rail::Ach, ada("USD"), money(4_000, "USD")));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn transfer_in_failed() -> String {
    let mut example = Example::new("Transfer-in, failed", "Nothing came, nothing is available.");
    let pending = example.pend(movements::transfer_in(Rail::Ach, ada("USD"), money(4_000, "USD")));
    example.resolve(pending, "the rail reported a failure", Resolution::Void);
    example.finish()
}

fn quote_to_internal() -> String {
    let mut example = Example::new(
        "Quote, internal account to internal account",
        "Each currency balances by itself; the two exchange accounts hold the open position.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.post(dollars_to_euros(Source::Internal(ada("USD")), Target::Internal(bo("EUR"))));
    example.finish()
}

fn quote_in_one_currency() -> String {
    let mut example = Example::new(
        "Quote in one currency",
        "Nothing is exchanged. Should rounding leave a smallest unit over, the exchange account \
         of the currency takes it, in plain sight.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    example.post(movements::exchange(
        Source::Internal(ada("USD")),
        Target::Internal(bo("USD")),
        acme(),
        Sending(money(10_000, "USD")),
        money(200, "USD"),
        Receiving(money(9_799, "USD")),
    ));
    example.finish()
}

fn quote_to_external_settled() -> String {
    let mut example = Example::new(
        "Quote, internal account to external account, settled",
        "The whole posting is pending until the rail answers.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending =
        example.pend(dollars_to_euros(Source::Internal(ada("USD")), Target::Rail(Rail::Sepa)));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn quote_to_external_failed() -> String {
    let mut example = Example::new(
        "Quote, internal account to external account, failed",
        "The fees go back with the rest.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending =
        example.pend(dollars_to_euros(Source::Internal(ada("USD")), Target::Rail(Rail::Sepa)));
    example.resolve(pending, "the rail reported a failure", Resolution::Void);
    example.finish()
}

fn quote_to_another_institution() -> String {
    let mut example = Example::new(
        "Quote to a UMA address at another institution",
        "What leaves is what its invoice asks for, in millisatoshi. The other institution turns it \
         into what its customer receives.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending = example.pend(movements::exchange(
        Source::Internal(ada("USD")),
        Target::Rail(Rail::Lightning),
        acme(),
        Sending(money(10_000, "USD")),
        money(200, "USD"),
        Receiving(Money::new(97_510_000, Currency::MSAT).expect("a small amount")),
    ));
    example.resolve(pending, "the invoice is paid", Resolution::Post);
    example.finish()
}

fn quote_to_a_customer_here() -> String {
    let mut example = Example::new(
        "Quote to a UMA address of this server",
        "Two payments, which may be of two platforms: that of the payer waits in transit until the \
         payee's platform has decided; then both are posted at once.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    let pending = example.pend(dollars_to_euros(Source::Internal(ada("USD")), Target::Transit));
    example.resolve(pending, "the payee's platform has approved", Resolution::Post);
    example.post(movements::delivery(bo("EUR"), money(9_000, "EUR")));
    example.finish()
}

fn quote_funded_in_real_time() -> String {
    let mut example = Example::new(
        "Quote funded in real time",
        "The money that funds the quote waits in suspense and is exchanged from there.",
    );
    example.post(movements::funding(Rail::Rtp, money(10_000, "USD")));
    let pending = example.pend(dollars_to_euros(Source::Suspense, Target::Rail(Rail::Sepa)));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    example.finish()
}

fn quote_funded_with_the_wrong_amount() -> String {
    let mut example = Example::new(
        "Quote funded with the wrong amount, or too late",
        "Nothing is exchanged. The money goes from suspense to the internal account; the \
         transaction is `FAILED`, then `REFUNDED`.",
    );
    example.post(movements::funding(Rail::Rtp, money(9_000, "USD")));
    example.post(movements::suspense_return(ada("USD"), money(9_000, "USD")));
    example.finish()
}

fn unmatched_money() -> String {
    let mut example = Example::new(
        "Money that matches nothing",
        "It stays in suspense until someone knows whose it is.",
    );
    example.post(movements::suspense(Rail::Wire, money(2_500, "USD")));
    example.post(movements::suspense_return(bo("USD"), money(2_500, "USD")));
    example.finish()
}

fn receipt() -> String {
    let mut example = Example::new(
        "Receipt of a payment from another institution",
        "What arrived stays on the exchange account of its asset; fees and the received amount \
         are in the currency of the receiver.",
    );
    let pending = example.pend(received_dollars());
    example.resolve(pending, "the invoice was paid", Resolution::Post);
    example.finish()
}

fn receipt_deposited() -> String {
    let mut example = Example::new(
        "Receipt that goes on to a deposit account",
        "What was received is in the internal account until the bank has it, all of it in one \
         payment.",
    );
    example.given(received_dollars());
    let pending = example.pend(movements::payout(
        ada("USD"),
        Rail::Ach,
        acme(),
        Receiving(money(9_900, "USD")),
        money(0, "USD"),
        money(9_900, "USD"),
    ));
    example.resolve(pending, "the bank has taken it", Resolution::Post);
    example.finish()
}

fn receipt_converted_and_refused() -> String {
    let mut example = Example::new(
        "Receipt that is converted for a deposit account, refused",
        "The money stays in the internal account, in the currency in which it was received, and \
         the fees with it.",
    );
    example.given(received_dollars());
    let pending = example.pend(movements::payout(
        ada("USD"),
        Rail::Sepa,
        acme(),
        Receiving(money(9_900, "USD")),
        money(100, "USD"),
        money(9_000, "EUR"),
    ));
    example.resolve(pending, "the bank has refused it", Resolution::Void);
    example.finish()
}

/// 99.00 USD received for 100,000 satoshi.
fn received_dollars() -> Result<Posting, PostingError> {
    movements::receipt(
        Rail::Lightning,
        ada("USD"),
        acme(),
        Sending(Money::new(100_000_000, Currency::MSAT).expect("a small amount")),
        money(100, "USD"),
        Receiving(money(9_900, "USD")),
    )
}

fn return_after_settlement() -> String {
    let mut example = Example::new(
        "Return after settlement",
        "The rail had settled and the money came back: the same entries once more, on the other \
         side.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(10_000, "USD")));
    let settled = movements::transfer_out(ada("USD"), Rail::Ach, money(6_000, "USD"));
    let pending = example.pend(settled);
    example.resolve(pending, "the rail has settled", Resolution::Post);
    let settled = example.book.posting(pending).expect("pended above").posting.clone();
    example.post(Ok(movements::reverse(&settled)));
    example.finish()
}

fn return_to_suspense() -> String {
    let mut example = Example::new(
        "Return of a quote that was funded in real time",
        "The exchange is reversed at its own rate, the fees with it; what had funded it goes from \
         suspense to the internal account. The transaction is `FAILED`, then `REFUNDED`.",
    );
    example.given(movements::funding(Rail::Rtp, money(10_000, "USD")));
    let settled = dollars_to_euros(Source::Suspense, Target::Rail(Rail::Sepa));
    let pending = example.pend(settled);
    example.resolve(pending, "the rail has settled", Resolution::Post);
    let settled = example.book.posting(pending).expect("pended above").posting.clone();
    example.post(Ok(movements::reverse(&settled)));
    example.post(movements::suspense_return(ada("USD"), money(10_000, "USD")));
    example.finish()
}

fn return_to_somebody_gone() -> String {
    let mut example = Example::new(
        "Return to a customer who was deleted",
        "Nothing leaves the accounts of a deleted customer any more, so what comes back is kept \
         for the platform.",
    );
    example.given(movements::deposit(Rail::Ach, ada("USD"), money(6_000, "USD")));
    let pending = example.pend(movements::transfer_out(ada("USD"), Rail::Ach, money(6_000, "USD")));
    example.resolve(pending, "the rail has settled", Resolution::Post);
    let settled = example.book.posting(pending).expect("pended above").posting.clone();
    example.post(movements::reverse_into_suspense(&settled, ada("USD")));
    let acmes = InternalAccountId::of(Owner::Platform(acme()), currency("USD"));
    example.post(movements::suspense_return(acmes, money(6_000, "USD")));
    example.finish()
}

/// 100.00 USD sent, 2.00 USD of them fees, 90.00 EUR received.
fn dollars_to_euros(source: Source, target: Target) -> Result<Posting, PostingError> {
    movements::exchange(
        source,
        target,
        acme(),
        Sending(money(10_000, "USD")),
        money(200, "USD"),
        Receiving(money(9_000, "EUR")),
    )
}

/// One section of the page while it is written. Its amounts are ours, so that what it books
/// cannot be refused unless it says so.
struct Example {
    text: String,
    book: Book,
    steps: usize,
}

impl Example {
    fn new(title: &str, what: &str) -> Self {
        Self { text: format!("### {title}\n\n{what}\n"), book: Book::new(), steps: 0 }
    }

    /// Something that happened before and is not the point.
    fn given(&mut self, posting: Result<Posting, PostingError>) {
        let posting = posting.expect("example amounts balance");
        line(&mut self.text, &format!("\nBefore: `{}`, {}.", posting.movement(), said(&posting)));
        self.book.post(posting).expect("example amounts are covered");
    }

    fn post(&mut self, posting: Result<Posting, PostingError>) {
        let posting = posting.expect("example amounts balance");
        self.step(posting.movement(), "posted", &said(&posting));
        self.book.post(posting).expect("example amounts are covered");
        self.show();
    }

    fn pend(&mut self, posting: Result<Posting, PostingError>) -> PostingRef {
        let posting = posting.expect("example amounts balance");
        self.step(posting.movement(), "pending", &said(&posting));
        let pending = self.book.pend(posting).expect("example amounts are covered");
        self.show();
        pending
    }

    fn refused(&mut self, posting: Result<Posting, PostingError>) {
        let posting = posting.expect("example amounts balance");
        let movement = posting.movement();
        let asked = said(&posting);
        let before = self.book.clone();
        let refusal = self.book.pend(posting).expect_err("the example is one of a refusal");
        assert_eq!(self.book, before, "a refused posting changed the book");
        let Refusal::InsufficientFunds { account, available, needed } = refusal else {
            panic!("the example lacks funds, it does not fail by: {refusal}");
        };
        let decimals = account.currency().map_or(0, Currency::decimals);
        let (available, needed) = (decimal(available, decimals), decimal(needed, decimals));
        let why = format!("{} has {available} available, not {needed}", label(&account));
        self.step(movement, "refused", &format!("{asked}; {why}"));
        self.show();
    }

    fn resolve(&mut self, posting: PostingRef, why: &str, resolution: Resolution) {
        self.book.resolve(posting, resolution).expect("the example resolves each posting once");
        let recorded = self.book.posting(posting).expect("just resolved");
        let (movement, phase) = (recorded.posting.movement(), recorded.phase);
        let phase = match phase {
            Phase::Pending => "pending",
            Phase::Posted => "posted",
            Phase::Voided => "voided",
        };
        self.step(movement, phase, why);
        self.show();
    }

    fn step(&mut self, movement: Movement, phase: &str, what: &str) {
        self.steps += 1;
        line(&mut self.text, &format!("\n{}. `{movement}` {phase}: {what}.\n", self.steps));
    }

    fn show(&mut self) {
        let rows: Vec<_> = self
            .book
            .balances()
            .map(|(account, balance)| (label(&account), account, balance))
            .collect();
        self.text.push_str(&table(&rows));
    }

    fn finish(self) -> String {
        assert_eq!(self.book.audit(), [], "the example's book");
        self.text
    }
}

/// T-accounts as a Markdown table: one row for each label, account and balance, in whole units.
pub fn table(rows: &[(String, AccountKey, Balance)]) -> String {
    let mut text = String::from(
        "| account | debits pending | debits posted | credits pending | credits posted | \
         available |\n|---|--:|--:|--:|--:|--:|\n",
    );
    for (label, account, balance) in rows {
        let decimals = account.currency().map_or(0, Currency::decimals);
        let counter = |minor| if minor == 0 { String::new() } else { decimal(minor, decimals) };
        let available = if account.must_stay_covered() {
            decimal(balance.available(Side::Credit), decimals)
        } else {
            String::new()
        };
        line(
            &mut text,
            &format!(
                "| {label} | {} | {} | {} | {} | {available} |",
                counter(balance.debits_pending()),
                counter(balance.debits_posted()),
                counter(balance.credits_pending()),
                counter(balance.credits_posted()),
            ),
        );
    }
    text
}

/// A number of smallest units with its decimals. Unlike [`Money`] it may be any integer, because
/// counters pass the limit of one payment.
fn decimal(minor: i64, decimals: u8) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    let minor = minor.unsigned_abs();
    if decimals == 0 {
        return format!("{sign}{minor}");
    }
    let whole = 10_u64.pow(u32::from(decimals));
    let width = usize::from(decimals);
    format!("{sign}{}.{:0width$}", minor / whole, minor % whole)
}

/// The entries as a bookkeeper says them: `Dr rail ACH USD 60.00, Cr Ada USD 60.00`.
fn said(posting: &Posting) -> String {
    let entries: Vec<_> = posting
        .entries()
        .iter()
        .map(|entry| {
            let side = match entry.side() {
                Side::Debit => "Dr",
                Side::Credit => "Cr",
            };
            let amount = entry.amount();
            let digits = decimal(amount.minor(), amount.currency().decimals());
            format!("{side} {} {digits}", label(&entry.account()))
        })
        .collect();
    entries.join(", ")
}

/// The names of the examples' people in place of their identifiers.
fn label(account: &AccountKey) -> String {
    match account {
        AccountKey::Internal(id) => {
            let owner = if id.owner_uuid() == ADA { "Ada" } else { "Bo" };
            id.currency().map_or_else(|| owner.to_owned(), |currency| format!("{owner} {currency}"))
        }
        AccountKey::Fees { currency, .. } => format!("fees Acme {currency}"),
        AccountKey::Rail { .. }
        | AccountKey::Exchange(_)
        | AccountKey::Suspense(_)
        | AccountKey::Transit(_) => account.to_string(),
    }
}

const ACME: Uuid = Uuid::from_u128(1 << 16);
const ADA: Uuid = Uuid::from_u128(2 << 16);
const BO: Uuid = Uuid::from_u128(3 << 16);

fn acme() -> PlatformId {
    PlatformId::from_uuid(ACME)
}

fn ada(code: &str) -> InternalAccountId {
    InternalAccountId::of(Owner::Customer(CustomerId::from_uuid(ADA)), currency(code))
}

fn bo(code: &str) -> InternalAccountId {
    InternalAccountId::of(Owner::Customer(CustomerId::from_uuid(BO)), currency(code))
}

fn ach(code: &str) -> AccountKey {
    AccountKey::Rail { rail: Rail::Ach, currency: currency(code) }
}

fn fees(code: &str) -> AccountKey {
    AccountKey::Fees { platform: acme(), currency: currency(code) }
}

fn currency(code: &str) -> Currency {
    Currency::from_code(code).expect("the examples use known currencies")
}

fn money(minor: i64, code: &str) -> Money {
    Money::new(minor, currency(code)).expect("the examples use small amounts")
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes every line");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_ledger_is_what_the_code_books() {
        expect_test::expect_file!["../../../docs/ledger.md"].assert_eq(&document());
    }

    #[test]
    fn the_page_shows_every_movement() {
        let page = document();
        for movement in Movement::ALL {
            assert!(page.contains(&format!("`{movement}` ")), "{movement} has no example");
            assert_eq!(Movement::from_name(movement.name()), Some(*movement));
        }
    }

    #[test]
    fn numbers_print_with_their_decimals() {
        for (minor, decimals, shown) in [
            (0, 2, "0.00"),
            (5, 2, "0.05"),
            (-5, 2, "-0.05"),
            (-1_234, 2, "-12.34"),
            (7, 0, "7"),
            (1, 8, "0.00000001"),
            (i64::MIN, 0, "-9223372036854775808"),
        ] {
            assert_eq!(decimal(minor, decimals), shown);
        }
    }
}
