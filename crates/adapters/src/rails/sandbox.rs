//! The rail of the sandbox: no network, no memory, no chance.
//!
//! What it answers follows from the order and the time alone, so a restart changes nothing and a
//! test can be repeated. Outcomes are steered by the last three characters of the external
//! account's own number or address; [`markdown`] prints what each does.

use std::fmt::Write as _;
use std::future::ready;

use domain::account_info::{AccountType, types};
use domain::currency::Currency;
use domain::time::Timestamp;
use ports::rail::{
    Cause, FundingInstruction, Instruction, Party, PaymentRail, Pending, RailAnswer, RailFailure,
};

use crate::uma;

/// How long an order takes to settle unless somebody configures it: long enough that a client sees
/// in its first answers that payments take time, and well within the second in which the sandbox
/// promises completion.
pub const SETTLES_AFTER_MILLIS: i64 = 200;

/// How long an order that times out stays undecided (contract 6.18: about 30 seconds).
pub const TIMES_OUT_AFTER_MILLIS: i64 = 30_000;

/// How long a payment takes that stays pending long (contract 6.18: about 6 minutes).
pub const LONG_MILLIS: i64 = 360_000;

/// The field by which a deposit is recognised.
const REFERENCE: &str = "reference";

/// What becomes of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Pending for the usual time, then settled.
    Settles,
    /// Pending for [`LONG_MILLIS`], then settled.
    SettlesLate,
    /// Not even taken: refused before money is set aside.
    NotTaken(RailFailure),
    /// Failed at once.
    Fails(RailFailure),
    /// Refused by the receiving side at once.
    Refused,
    /// Pending for [`TIMES_OUT_AFTER_MILLIS`], then failed.
    TimesOut,
}

/// What one suffix does.
struct Row {
    suffix: &'static str,
    transfer: Outcome,
    quote: Outcome,
}

/// The suffixes of contract 6.18: its column of transfers, and its older column of quotes, which
/// is that of this specification's time. A suffix that is not here settles. A further behaviour is
/// a further row.
const SUFFIXES: &[Row] = &[
    Row {
        suffix: "002",
        transfer: Outcome::Fails(RailFailure::InsufficientFunds),
        quote: Outcome::NotTaken(RailFailure::InsufficientFunds),
    },
    Row {
        suffix: "003",
        transfer: Outcome::Fails(RailFailure::AccountInvalid),
        quote: Outcome::Fails(RailFailure::AccountInvalid),
    },
    Row { suffix: "004", transfer: Outcome::Refused, quote: Outcome::Refused },
    Row { suffix: "005", transfer: Outcome::TimesOut, quote: Outcome::TimesOut },
    Row { suffix: "006", transfer: Outcome::Settles, quote: Outcome::Settles },
    Row { suffix: "007", transfer: Outcome::Settles, quote: Outcome::Settles },
];

/// The payment rail of sandbox platforms. Stateless: clones and restarts answer alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxRail {
    settles_after_millis: i64,
}

impl Default for SandboxRail {
    fn default() -> Self {
        Self::new(SETTLES_AFTER_MILLIS)
    }
}

impl SandboxRail {
    /// A rail on which orders settle `settles_after_millis` after they were first due; with 0 or
    /// less, at once.
    pub const fn new(settles_after_millis: i64) -> Self {
        Self { settles_after_millis }
    }

    fn answer(self, order: &Instruction, now: Timestamp) -> RailAnswer {
        let after = |millis: i64, answer: RailAnswer| {
            let decided_at = order.since.plus_millis(millis);
            if now < decided_at { RailAnswer::Pending { ask_again_at: decided_at } } else { answer }
        };
        match outcome(order) {
            Outcome::Settles => after(self.settles_after_millis.max(0), RailAnswer::Settled),
            Outcome::SettlesLate => after(LONG_MILLIS, RailAnswer::Settled),
            Outcome::NotTaken(failure) | Outcome::Fails(failure) => RailAnswer::Failed(failure),
            Outcome::Refused => RailAnswer::Refused,
            Outcome::TimesOut => {
                after(TIMES_OUT_AFTER_MILLIS, RailAnswer::Failed(RailFailure::TimedOut))
            }
        }
    }
}

/// What becomes of an order, by the other side and its cause.
fn outcome(order: &Instruction) -> Outcome {
    let account = match &order.party {
        Party::Account(account) => account,
        Party::Uma { address, .. } => return uma::sandbox::outcome(address),
    };
    let suffix = account.magic_suffix();
    let row = SUFFIXES.iter().find(|row| suffix == Some(row.suffix));
    row.map_or(Outcome::Settles, |row| match order.cause {
        Cause::Transfer => row.transfer,
        Cause::Quote => row.quote,
    })
}

impl PaymentRail for SandboxRail {
    /// Every account type that holds the currency, with made-up numbers and the reference.
    fn instructions(&self, currency: Currency, reference: &str) -> Vec<FundingInstruction> {
        let instruction = |account_type: &'static AccountType| {
            let made_up =
                account_type.instruction_fields.iter().filter(|field| field.name != REFERENCE).map(
                    |field| match field.name {
                        "assetType" => (field.name, currency.code().to_owned()),
                        name => (name, field.example.to_owned()),
                    },
                );
            FundingInstruction {
                account_type,
                fields: made_up.chain([(REFERENCE, reference.to_owned())]).collect(),
                notes: format!("Put {reference} in the reference of the payment."),
            }
        };
        types()
            .iter()
            .filter(|account_type| account_type.holds(currency))
            .filter(|account_type| !account_type.instruction_fields.is_empty())
            .map(instruction)
            .collect()
    }

    fn check<'a>(&'a self, order: &'a Instruction) -> Pending<'a, Result<(), RailFailure>> {
        let taken = match outcome(order) {
            Outcome::NotTaken(failure) => Err(failure),
            Outcome::Settles
            | Outcome::SettlesLate
            | Outcome::Fails(_)
            | Outcome::Refused
            | Outcome::TimesOut => Ok(()),
        };
        Box::pin(ready(taken))
    }

    /// Nothing is decided before, so nothing is asked.
    fn gives_after_millis(&self) -> i64 {
        self.settles_after_millis.max(0)
    }

    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailAnswer> {
        Box::pin(ready(self.answer(order, now)))
    }
}

impl Outcome {
    /// What happens, for people.
    pub(crate) fn sentence(self) -> String {
        match self {
            Self::Settles => "succeeds".to_owned(),
            Self::SettlesLate => {
                format!("stays pending {} minutes, then succeeds", LONG_MILLIS / 60_000)
            }
            Self::NotTaken(failure) => format!("{}, refused with a 400", words(failure)),
            Self::Fails(failure) => format!("{}, fails at once", words(failure)),
            Self::Refused => "rejected by the bank".to_owned(),
            Self::TimesOut => {
                format!("stays pending {} seconds, then fails", TIMES_OUT_AFTER_MILLIS / 1_000)
            }
        }
    }
}

fn words(failure: RailFailure) -> &'static str {
    match failure {
        RailFailure::InsufficientFunds => "insufficient funds",
        RailFailure::AccountInvalid => "account closed or invalid",
        RailFailure::TimedOut => "no answer in time",
        RailFailure::NotConnected => "no connection",
    }
}

/// The suffixes as a table in Markdown, for documents.
pub fn markdown() -> String {
    let mut table = String::from(
        "# Steering the sandbox\n\n\
         Written from the table in `crates/adapters/src/rails/sandbox.rs`. The last three characters \
         of an external account's own number or address decide what becomes of a payment; of \
         `user@domain` they are the last three of the user's part.\n\n\
         | Suffix | Transfers | Quotes |\n|---|---|---|\n",
    );
    let mut line = |suffix: &str, transfer: Outcome, quote: Outcome| {
        writeln!(table, "| {suffix} | {} | {} |", transfer.sentence(), quote.sentence())
            .expect("writing to a string cannot fail");
    };
    for row in SUFFIXES {
        line(&format!("`{}`", row.suffix), row.transfer, row.quote);
    }
    line("any other", Outcome::Settles, Outcome::Settles);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rails::tests::{answer_of, order};
    use std::collections::BTreeSet;

    const SINCE: Timestamp = Timestamp::from_millis(1_763_683_200_000);

    fn ask(rail: SandboxRail, order: &Instruction, after_millis: i64) -> RailAnswer {
        answer_of(rail.ask(order, SINCE.plus_millis(after_millis)))
    }

    fn pending(until_millis: i64) -> RailAnswer {
        RailAnswer::Pending { ask_again_at: SINCE.plus_millis(until_millis) }
    }

    /// The answers at once, after the usual time, and just before and at the time-out.
    fn check(
        cause: Cause,
        suffix: &str,
        taken: Result<(), RailFailure>,
        expected: [RailAnswer; 4],
    ) {
        let rail = SandboxRail::default();
        let order = order("USD_ACCOUNT", "accountNumber", &format!("123456789{suffix}"), cause);
        assert_eq!(answer_of(rail.check(&order)), taken, "{cause:?} {suffix}");
        let times = [0, SETTLES_AFTER_MILLIS, TIMES_OUT_AFTER_MILLIS - 1, TIMES_OUT_AFTER_MILLIS];
        let answers = times.map(|millis| ask(rail, &order, millis));
        assert_eq!(answers, expected, "{cause:?} {suffix}");
        assert_eq!(times.map(|millis| ask(rail, &order, millis)), answers, "the same again");
    }

    fn always(answer: RailAnswer) -> [RailAnswer; 4] {
        [answer.clone(), answer.clone(), answer.clone(), answer]
    }

    fn settles() -> [RailAnswer; 4] {
        let settled = RailAnswer::Settled;
        [pending(SETTLES_AFTER_MILLIS), settled.clone(), settled.clone(), settled]
    }

    fn times_out() -> [RailAnswer; 4] {
        let pending = pending(TIMES_OUT_AFTER_MILLIS);
        let failed = RailAnswer::Failed(RailFailure::TimedOut);
        [pending.clone(), pending.clone(), pending, failed]
    }

    #[test]
    fn suffixes_steer_transfers_and_quotes_as_the_contract_says() {
        use Cause::{Quote, Transfer};
        use RailFailure::{AccountInvalid, InsufficientFunds};
        let failed = |failure| always(RailAnswer::Failed(failure));
        check(Transfer, "002", Ok(()), failed(InsufficientFunds));
        check(Quote, "002", Err(InsufficientFunds), failed(InsufficientFunds));
        for cause in [Transfer, Quote] {
            check(cause, "003", Ok(()), failed(AccountInvalid));
            check(cause, "004", Ok(()), always(RailAnswer::Refused));
            check(cause, "005", Ok(()), times_out());
            for suffix in ["000", "001", "006", "007", "008", "009", "102", "999"] {
                check(cause, suffix, Ok(()), settles());
            }
        }
    }

    #[test]
    fn the_suffix_is_that_of_the_own_number_of_any_account_type() {
        for (kind, field, identifier) in [
            ("INR_ACCOUNT", "vpa", "testuser.004@okbank"),
            ("MXN_ACCOUNT", "clabeNumber", "123456789012345004"),
            ("EUR_ACCOUNT", "iban", "DE89370400440532013004"),
            ("SOLANA_WALLET", "address", "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCF004"),
        ] {
            let order = order(kind, field, identifier, Cause::Transfer);
            assert_eq!(ask(SandboxRail::default(), &order, 0), RailAnswer::Refused, "{kind}");
        }
        let order = order("INR_ACCOUNT", "vpa", "testuser@okbank004", Cause::Transfer);
        assert_eq!(ask(SandboxRail::default(), &order, 0), pending(SETTLES_AFTER_MILLIS));
    }

    #[test]
    fn the_time_until_settlement_is_configured() {
        let order = order("USD_ACCOUNT", "accountNumber", "123456789012", Cause::Quote);
        assert_eq!(ask(SandboxRail::new(0), &order, 0), RailAnswer::Settled);
        assert_eq!(ask(SandboxRail::new(-5), &order, 0), RailAnswer::Settled);
        assert_eq!(ask(SandboxRail::new(5_000), &order, 4_999), pending(5_000));
        assert_eq!(ask(SandboxRail::new(5_000), &order, 5_000), RailAnswer::Settled);
        // A clock that was set back does not settle early and does not move the promised time.
        assert_eq!(ask(SandboxRail::new(5_000), &order, -60_000), pending(5_000));
    }

    #[test]
    fn rows_are_three_characters_and_each_stands_once() {
        let suffixes: BTreeSet<_> = SUFFIXES.iter().map(|row| row.suffix).collect();
        assert_eq!(suffixes.len(), SUFFIXES.len());
        assert!(suffixes.iter().all(|suffix| suffix.chars().count() == 3));
    }

    #[test]
    fn the_table_for_people_has_every_row() {
        let table = markdown();
        let rows = table.lines().filter(|line| line.starts_with('|')).count();
        assert_eq!(rows, SUFFIXES.len() + 3);
        assert!(table.contains(
            "| `002` | insufficient funds, fails at once | insufficient funds, refused with a 400 |"
        ));
        assert!(table.contains("| `005` | stays pending 30 seconds, then fails |"));
        assert!(table.ends_with("| any other | succeeds | succeeds |\n"));
    }
}
