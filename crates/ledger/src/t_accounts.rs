//! Prints `docs/ledger.md`: every movement on T-accounts, as this code books it.
//!
//! Each example runs on a [`Book`] of its own, so the page cannot say what the ledger does not do.

use std::fmt::Write;

use domain::currency::Currency;
use domain::id::{CustomerId, InternalAccountId, Owner, PlatformId};
use domain::money::Money;
use domain::rail::Rail;
use uuid::Uuid;

use crate::account::{AccountKey, Balance, NormalSide, Side};
use crate::apply::Refusal;
use crate::book::{Book, PostingRef};
use crate::movements::Movement;
use crate::posting::{Phase, Posting, PostingError, Resolution};

mod examples;

/// The whole page.
pub fn document() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str(&chart());
    page.push_str(LEGEND);
    for example in examples::all() {
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
        (ach("USD"), "platform, rail and currency", "the outside world"),
        (exchange("USD"), "platform and currency", "the open position of exchanges"),
        (fees("USD"), "platform and currency", "income of the platform"),
        (
            suspense("USD"),
            "platform and currency",
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
            AccountKey::Exchange { .. } => "exchange",
            AccountKey::Fees { .. } => "fees",
            AccountKey::Suspense { .. } => "suspense",
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
    line(
        &mut text,
        "\nA covered account never has less than nothing available: a posting that would take \
         more is refused\nand changes nothing. Counters only grow and have 120 bits, which no sum \
         of payments fills.\nAn internal account needs no row before its first posting.",
    );
    text
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
fn decimal(minor: i128, decimals: u8) -> String {
    let sign = if minor < 0 { "-" } else { "" };
    let minor = minor.unsigned_abs();
    if decimals == 0 {
        return format!("{sign}{minor}");
    }
    let whole = 10_u128.pow(u32::from(decimals));
    let width = usize::from(decimals);
    format!("{sign}{}.{:0width$}", minor / whole, minor % whole)
}

/// The entries as a bookkeeper says them: `Dr rail Acme ACH USD 60.00, Cr Ada USD 60.00`.
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
            let digits = decimal(amount.minor().into(), amount.currency().decimals());
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
        AccountKey::Rail { rail, currency, .. } => format!("rail Acme {rail} {currency}"),
        AccountKey::Exchange { currency, .. } => format!("exchange Acme {currency}"),
        AccountKey::Fees { currency, .. } => format!("fees Acme {currency}"),
        AccountKey::Suspense { currency, .. } => format!("suspense Acme {currency}"),
        AccountKey::Transit(_) => account.to_string(),
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
    AccountKey::Rail { platform: acme(), rail: Rail::Ach, currency: currency(code) }
}

fn exchange(code: &str) -> AccountKey {
    AccountKey::Exchange { platform: acme(), currency: currency(code) }
}

fn suspense(code: &str) -> AccountKey {
    AccountKey::Suspense { platform: acme(), currency: currency(code) }
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
            (i64::MIN.into(), 0, "-9223372036854775808"),
        ] {
            assert_eq!(decimal(minor, decimals), shown);
        }
    }
}
