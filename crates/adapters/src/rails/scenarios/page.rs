//! The built-in table of scenarios for people, in Markdown.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use domain::platform::{REJECTED_SUFFIX, REVIEWED_SUFFIX};
use ports::rail::{Cause, RailFailure};

use super::{
    Account, AccountPath, AccountState, End, Payment, PaymentPath, SUCCEEDS, Scenarios, USABLE,
    Wait,
};

impl PaymentPath {
    /// The behaviour, for people.
    fn sentence(&self) -> String {
        let waits = match self.pending {
            Wait::Millis(millis) if millis > 0 => {
                format!("stays pending {}, then ", duration(millis))
            }
            Wait::Usual | Wait::Millis(_) => String::new(),
        };
        let end = match self.end {
            End::Settled => "succeeds".to_owned(),
            End::Returned { after_millis } => {
                format!("succeeds, and {} later the bank sends it back", duration(after_millis))
            }
            End::Refused => "rejected by the bank".to_owned(),
            End::Failed(RailFailure::TimedOut) => "fails".to_owned(),
            End::Failed(failure) if waits.is_empty() => {
                format!("{}, fails at once", words(failure))
            }
            End::Failed(failure) => format!("fails: {}", words(failure)),
            End::NotTaken(failure) => format!("{}, refused with a 400", words(failure)),
        };
        waits + &end
    }
}

impl AccountPath {
    /// The behaviour, for people.
    fn sentence(&self) -> String {
        let (first, last) = match self {
            Self::Known { first, last } => (first, last),
            Self::Unknown => return "does not exist: refused with a 400".to_owned(),
            Self::Fails => return "no answer: a 500, and nothing is changed".to_owned(),
        };
        let state = |state: &AccountState| {
            format!("`{}`, `{}`", state.status.name(), state.verification.name())
        };
        let timed = |(one, millis): &(AccountState, i64)| {
            format!("{} for {}, then ", state(one), duration(*millis))
        };
        first.iter().map(timed).collect::<String>() + &state(last)
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

fn duration(millis: i64) -> String {
    format!("{} seconds", millis / 1_000)
}

/// The behaviour of the built-in table for a user's payments, for people.
pub(crate) fn of_user(user: &str) -> String {
    let rows = &Scenarios::builtin().payments;
    let row = rows.iter().find(|row| row.user.as_deref() == Some(user));
    row.map_or(SUCCEEDS, |row| row.path.clone()).sentence()
}

/// The built-in table and how to write one of one's own, in Markdown.
pub(in crate::rails) fn markdown() -> String {
    let table = Scenarios::builtin();
    let mut page = String::from(
        "## Payments\n\n\
         The last three characters of an external account's own number or address decide what \
         becomes of a payment; of `user@domain` they are the last three of the user's part.\n\n\
         | Suffix | Transfers | Quotes |\n|---|---|---|\n",
    );
    let mut line = |cells: &[&str]| {
        writeln!(page, "| {} |", cells.join(" | ")).expect("writing to a string cannot fail");
    };
    let path = |suffix: &str, cause: Cause| {
        let fits = |row: &&Payment| {
            row.suffix.as_deref() == Some(suffix) && row.cause.is_none_or(|own| own == cause)
        };
        table.payments.iter().find(fits).map_or(SUCCEEDS, |row| row.path.clone()).sentence()
    };
    let suffixes: BTreeSet<_> =
        table.payments.iter().filter_map(|row| row.suffix.as_deref()).collect();
    for suffix in suffixes {
        let [transfer, quote] = [Cause::Transfer, Cause::Quote].map(|cause| path(suffix, cause));
        line(&[&format!("`{suffix}`"), &transfer, &quote]);
    }
    line(&["any other", &SUCCEEDS.sentence(), &SUCCEEDS.sentence()]);
    writeln!(
        page,
        "\n## Customers\n\n\
         The last three characters of the `fullName` or `legalName` of a new customer decide its \
         first status, unless a regulated platform says it: `{REVIEWED_SUFFIX}` is \
         `PENDING_REVIEW`, `{REJECTED_SUFFIX}` is `REJECTED`, any other `APPROVED`."
    )
    .expect("writing to a string cannot fail");
    page.push_str(
        "\n## Bank accounts\n\n\
         The same characters decide what is found out about the beneficiary and which status a new \
         bank account has. Only an `ACTIVE` one can pay and be paid. Wallets are `ACTIVE` and have \
         no beneficiary.\n\n\
         | Suffix | Status and verification |\n|---|---|\n",
    );
    for Account { suffix, path } in &table.accounts {
        writeln!(page, "| `{suffix}` | {} |", path.sentence())
            .expect("writing to a string cannot fail");
    }
    let usable = AccountPath::Known { first: Vec::new(), last: USABLE };
    writeln!(page, "| any other | {} |", usable.sentence())
        .expect("writing to a string cannot fail");
    page + OWN_ROWS + "```toml\n" + include_str!("since-2026-03-17.toml") + "```\n"
}

/// How an operator extends the table.
const OWN_ROWS: &str = "
## Rows of one's own

An operator puts rows before these for one platform, also while servers run:

    switchyard platform set-scenarios --platform PlatformConfig:.. --file rows.toml

Without `--file` the built-in table alone holds again. The first row that fits decides. A row of
`payments` fits a `suffix`, the `user` of a UMA address without its `$`, an `amount` in the smallest
unit of what moves (with or without its `currency`), or both, for a `cause` of `transfer` or `quote`, or for either. Its path is `PENDING` for some
`seconds` (without them, as long as payments usually take), then one of: `SETTLED`; `SETTLED` for
some seconds and `RETURNED`, for what is paid out; `REFUSED`; `FAILED` for a `reason`. `NOT_TAKEN`
for a reason stands alone: the order is refused before money is set aside. Reasons are
`INSUFFICIENT_FUNDS`, `ACCOUNT_INVALID` and `TIMED_OUT`. The last state may have a `code` and a
`text`, the bank's own words, which `statusReason` of a payment that was not made then shows. A row of `accounts` fits a suffix; its path
is states of `status` and `verification`, all but the last with `seconds`. `UNKNOWN` and `FAILS`
stand alone: there is no such account, and there is no answer.

This is a file, with what the suffixes do to quotes since 2026-03-17:

";
