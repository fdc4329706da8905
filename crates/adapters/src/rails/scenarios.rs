//! Scenarios: what becomes of payments and accounts where no money is real, as a table.
//!
//! A row says what it fits, the last characters of an account's number, the user of a UMA address
//! or an amount, and the states that follow, each with how long it lasts. The built-in table is
//! contract 6.18; an operator puts rows of one platform before it. The first row that fits decides.
//!
//! Guarantee: a table that was read has an end for every payment, and nothing in it depends on
//! anything but the order or the account, and the time. `markdown` prints the built-in one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use domain::account_info::AccountInfo;
use domain::clock::AHEAD_MAX_MILLIS;
use domain::currency::Currency;
use domain::external_account::{Status, Verification};
use domain::platform::{REJECTED_SUFFIX, REVIEWED_SUFFIX};
use domain::rail::RailWords;
use domain::time::Timestamp;
use ports::rail::{Cause, Flow, Instruction, NoReport, Party, RailAnswer, RailFailure, RailReply};
use serde::Deserialize;

use crate::uma::sandbox::is_known;

/// Bytes of a table: some hundred rows, which is more than anybody keeps in mind.
pub const TEXT_MAX: usize = 32 * 1_024;

/// States of one path.
const PATH_MAX: usize = 8;

/// Characters of a suffix.
const SUFFIX_LENGTH: usize = 3;

/// A table of scenarios.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scenarios {
    payments: Vec<Payment>,
    accounts: Vec<Account>,
}

/// Why a text is not a table of scenarios: where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScenarioError(String);

/// What becomes of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Payment {
    suffix: Option<String>,
    user: Option<String>,
    amount: Option<(i64, Option<Currency>)>,
    cause: Option<Cause>,
    path: PaymentPath,
}

/// The states of a payment, and how the bank puts the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PaymentPath {
    pending: Wait,
    end: End,
    code: Option<String>,
    text: Option<String>,
}

/// How long a payment stays undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// As long as the rail usually takes.
    Usual,
    /// This long.
    Millis(i64),
}

/// How a payment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The money has moved.
    Settled,
    /// The money has moved, and comes back later. What is pulled in does not.
    Returned { after_millis: i64 },
    /// The receiving side said no.
    Refused,
    /// It could not be done.
    Failed(RailFailure),
    /// The rail does not even take the order: it is refused before money is set aside.
    NotTaken(RailFailure),
}

/// What an order that no row fits does.
const SUCCEEDS: PaymentPath =
    PaymentPath { pending: Wait::Usual, end: End::Settled, code: None, text: None };

/// What an order to or from nobody does.
const NOBODY: PaymentPath = PaymentPath {
    pending: Wait::Millis(0),
    end: End::Failed(RailFailure::AccountInvalid),
    code: None,
    text: None,
};

impl PaymentPath {
    /// What the rail says about an order that was first due at `order.since`.
    fn reply(&self, order: &Instruction, usual_millis: i64, now: Timestamp) -> RailReply {
        let answer = self.answer(order, usual_millis, now);
        let is_last = match answer {
            RailAnswer::Pending { .. } | RailAnswer::SettledForNow { .. } => false,
            RailAnswer::Settled
            | RailAnswer::Returned
            | RailAnswer::Refused
            | RailAnswer::Failed(_) => true,
        };
        let said = |words: &Option<String>| words.clone().filter(|_| is_last);
        let (code, text) = (said(&self.code), said(&self.text));
        let reference = reference(order);
        let words = RailWords::new(code.as_deref(), text.as_deref(), Some(&reference));
        RailReply { answer, words }
    }

    fn answer(&self, order: &Instruction, usual_millis: i64, now: Timestamp) -> RailAnswer {
        let pending_millis = match self.pending {
            Wait::Usual => usual_millis.max(0),
            Wait::Millis(millis) => millis,
        };
        let decided_at = order.since.plus_millis(pending_millis);
        if now < decided_at {
            return RailAnswer::Pending { ask_again_at: decided_at };
        }
        match self.end {
            End::Settled => RailAnswer::Settled,
            End::Returned { after_millis } => match order.flow {
                Flow::PullIn => RailAnswer::Settled,
                Flow::PayOut => {
                    let back_at = decided_at.plus_millis(after_millis);
                    if now < back_at {
                        RailAnswer::SettledForNow { ask_again_at: back_at }
                    } else {
                        RailAnswer::Returned
                    }
                }
            },
            End::Refused => RailAnswer::Refused,
            End::Failed(failure) | End::NotTaken(failure) => RailAnswer::Failed(failure),
        }
    }

    /// What happens, for people.
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

/// The reference under which the sandbox's bank knows an order.
fn reference(order: &Instruction) -> String {
    let way = match order.flow {
        Flow::PayOut => "O",
        Flow::PullIn => "I",
    };
    // The end of an id is its random part.
    let key = order.key.uuid().as_u128() as u64;
    format!("SBX{way}{key:016X}")
}

impl Payment {
    fn fits(&self, order: &Instruction) -> bool {
        let amount = order.amount;
        let (suffix, user) = match &order.party {
            Party::Account(account) => (account.magic_suffix(), None),
            Party::Uma { address, .. } => (None, is_known(address).then(|| address.user())),
        };
        self.suffix.as_deref().is_none_or(|own| suffix == Some(own))
            && self.user.as_deref().is_none_or(|own| user == Some(own))
            && self.cause.is_none_or(|cause| cause == order.cause)
            && self.amount.is_none_or(|(minor, currency)| {
                minor == amount.minor() && currency.is_none_or(|own| own == amount.currency())
            })
    }
}

/// What becomes of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    suffix: String,
    path: AccountPath,
}

/// The states of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AccountPath {
    /// There is no such account.
    Unknown,
    /// Nobody answers.
    Fails,
    /// Each for so many milliseconds, then the last one.
    Known { first: Vec<(AccountState, i64)>, last: AccountState },
}

/// A state of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AccountState {
    pub(super) status: Status,
    pub(super) verification: Verification,
}

/// What an account that no row fits is.
const USABLE: AccountState =
    AccountState { status: Status::Active, verification: Verification::Matched };

/// The state of an account, and until when it lasts.
pub(super) type Found = Result<(AccountState, Option<Timestamp>), NoReport>;

impl AccountPath {
    fn at(&self, since: Timestamp, now: Timestamp) -> Found {
        let (first, last) = match self {
            Self::Known { first, last } => (first, last),
            Self::Unknown => return Err(NoReport::NoSuchAccount),
            Self::Fails => return Err(NoReport::Failed),
        };
        let mut ends_at = since;
        for (state, millis) in first {
            ends_at = ends_at.plus_millis(*millis);
            if now < ends_at {
                return Ok((*state, Some(ends_at)));
            }
        }
        Ok((*last, None))
    }

    /// What happens, for people.
    fn sentence(&self) -> String {
        let (first, last) = match self {
            Self::Known { first, last } => (first, last),
            Self::Unknown => return "does not exist: refused with a 400".to_owned(),
            Self::Fails => return "nobody answers: a 500, and nothing is changed".to_owned(),
        };
        let state = |state: &AccountState| {
            format!("`{}`, `{}`", state.status.name(), state.verification.name())
        };
        let lasting = |(one, millis): &(AccountState, i64)| {
            format!("{} for {}, then ", state(one), duration(*millis))
        };
        first.iter().map(lasting).collect::<String>() + &state(last)
    }
}

impl Scenarios {
    /// The table that comes with this program.
    pub fn builtin() -> &'static Self {
        static BUILTIN: LazyLock<Scenarios> = LazyLock::new(|| {
            let text = include_str!("scenarios/builtin.toml");
            Scenarios::parse(text).expect("a test reads the built-in table")
        });
        &BUILTIN
    }

    /// Reads a table.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > TEXT_MAX {
            let what = format!("{} bytes are more than the {TEXT_MAX} of a table", text.len());
            return Err(ScenarioError(what));
        }
        let file: File = toml::from_str(text).map_err(|error| ScenarioError(error.to_string()))?;
        let at = |table: &str, index: usize| {
            let place = format!("row {} of {table}: ", index + 1);
            move |what: String| ScenarioError(place + &what)
        };
        let payments = file.payments.into_iter().enumerate();
        let payments = payments.map(|(index, row)| row.read().map_err(at("payments", index)));
        let accounts = file.accounts.into_iter().enumerate();
        let accounts = accounts.map(|(index, row)| row.read().map_err(at("accounts", index)));
        Ok(Self {
            payments: payments.collect::<Result<_, _>>()?,
            accounts: accounts.collect::<Result<_, _>>()?,
        })
    }

    fn payment(&self, order: &Instruction) -> Option<PaymentPath> {
        self.payments.iter().find(|row| row.fits(order)).map(|row| row.path.clone())
    }

    fn account(&self, account: &AccountInfo) -> Option<&AccountPath> {
        let suffix = account.magic_suffix()?;
        self.accounts.iter().find(|row| row.suffix == suffix).map(|row| &row.path)
    }
}

/// The tables that hold for one platform: its own, then the built-in one.
pub(super) struct Tables {
    own: Option<Scenarios>,
}

impl Tables {
    /// With the rows that an operator has set. They were read when they were set; should a program
    /// that is older than them not know them, the built-in table holds.
    pub(super) fn of(settings: Option<&str>) -> Self {
        Self { own: settings.and_then(|text| Scenarios::parse(text).ok()) }
    }

    fn each(&self) -> impl Iterator<Item = &Scenarios> {
        self.own.iter().chain([Scenarios::builtin()])
    }

    fn path(&self, order: &Instruction) -> PaymentPath {
        let usual = match &order.party {
            Party::Uma { address, .. } if !is_known(address) => NOBODY,
            Party::Uma { .. } | Party::Account(_) => SUCCEEDS,
        };
        self.each().find_map(|table| table.payment(order)).unwrap_or(usual)
    }

    /// What the rail says about an order.
    pub(super) fn reply(&self, order: &Instruction, usual: i64, now: Timestamp) -> RailReply {
        self.path(order).reply(order, usual, now)
    }

    /// Why the rail does not take an order, if it does not.
    pub(super) fn refusal(&self, order: &Instruction) -> Option<RailFailure> {
        match self.path(order).end {
            End::NotTaken(failure) => Some(failure),
            End::Settled | End::Returned { .. } | End::Refused | End::Failed(_) => None,
        }
    }

    /// The state of a bank account that was added at `since`.
    pub(super) fn account(&self, info: &AccountInfo, since: Timestamp, now: Timestamp) -> Found {
        match self.each().find_map(|table| table.account(info)) {
            Some(path) => path.at(since, now),
            None => Ok((USABLE, None)),
        }
    }
}

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    payments: Vec<PaymentRow>,
    #[serde(default)]
    accounts: Vec<AccountRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaymentRow {
    suffix: Option<String>,
    user: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    cause: Option<String>,
    path: Vec<PaymentStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaymentStep {
    state: String,
    reason: Option<String>,
    seconds: Option<i64>,
    code: Option<String>,
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountRow {
    suffix: String,
    path: Vec<AccountStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountStep {
    status: Option<String>,
    verification: Option<String>,
    seconds: Option<i64>,
}

impl PaymentRow {
    fn read(self) -> Result<Payment, String> {
        if self.suffix.is_none() && self.user.is_none() && self.amount.is_none() {
            return Err("say what it fits: give a suffix, a user or an amount".to_owned());
        }
        if self.suffix.is_some() && self.user.is_some() {
            return Err("nothing has both a suffix and a user".to_owned());
        }
        let currency = match &self.currency {
            Some(_) if self.amount.is_none() => {
                return Err("a currency goes with an amount".to_owned());
            }
            Some(code) => {
                Some(Currency::from_code(code).ok_or_else(|| format!("{code} is no currency"))?)
            }
            None => None,
        };
        if self.amount.is_some_and(|minor| minor <= 0) {
            return Err("an amount is more than 0, in the smallest unit".to_owned());
        }
        let cause = match self.cause.as_deref() {
            None => None,
            Some("transfer") => Some(Cause::Transfer),
            Some("quote") => Some(Cause::Quote),
            Some(other) => return Err(format!("cause is transfer or quote, not {other}")),
        };
        Ok(Payment {
            suffix: self.suffix.map(suffix).transpose()?,
            user: self.user,
            amount: self.amount.map(|minor| (minor, currency)),
            cause,
            path: payment_path(&self.path)?,
        })
    }
}

/// A suffix of the length that account numbers are looked at with.
fn suffix(text: String) -> Result<String, String> {
    if text.chars().count() == SUFFIX_LENGTH {
        Ok(text)
    } else {
        Err(format!("a suffix has {SUFFIX_LENGTH} characters, not '{text}'"))
    }
}

fn millis(seconds: i64) -> Result<i64, String> {
    let most = AHEAD_MAX_MILLIS / 1_000;
    if (1..=most).contains(&seconds) {
        Ok(seconds * 1_000)
    } else {
        Err(format!("seconds are from 1 to {most}, not {seconds}"))
    }
}

fn payment_path(steps: &[PaymentStep]) -> Result<PaymentPath, String> {
    if steps.len() > PATH_MAX {
        return Err(format!("a path has at most {PATH_MAX} states"));
    }
    let waits = steps.iter().take_while(|step| step.state == "PENDING").count();
    let (waiting, rest) = steps.split_at(waits);
    let pending = match waiting {
        [] => Wait::Millis(0),
        [PaymentStep { seconds: None, reason: None, .. }] => Wait::Usual,
        _ => {
            let each = waiting.iter().map(|step| match (step.seconds, &step.reason) {
                (Some(seconds), None) => millis(seconds),
                (None, _) => Err("one of several PENDING needs seconds".to_owned()),
                (Some(_), Some(_)) => Err("PENDING has no reason".to_owned()),
            });
            let all = each.collect::<Result<Vec<_>, _>>()?;
            Wait::Millis(all.into_iter().fold(0, i64::saturating_add))
        }
    };
    let named = |reason: &Option<String>| match reason.as_deref() {
        Some("INSUFFICIENT_FUNDS") => Ok(RailFailure::InsufficientFunds),
        Some("ACCOUNT_INVALID") => Ok(RailFailure::AccountInvalid),
        Some("TIMED_OUT") => Ok(RailFailure::TimedOut),
        _ => Err("give a reason: INSUFFICIENT_FUNDS, ACCOUNT_INVALID or TIMED_OUT".to_owned()),
    };
    let end = match rest {
        [PaymentStep { state, reason: None, seconds: None, .. }] if state == "SETTLED" => {
            End::Settled
        }
        [PaymentStep { state, reason: None, seconds: None, .. }] if state == "REFUSED" => {
            End::Refused
        }
        [PaymentStep { state, reason, seconds: None, .. }] if state == "FAILED" => {
            End::Failed(named(reason)?)
        }
        [PaymentStep { state, reason, seconds: None, .. }]
            if state == "NOT_TAKEN" && waits == 0 =>
        {
            End::NotTaken(named(reason)?)
        }
        [
            PaymentStep { state: first, reason: None, seconds: Some(seconds), .. },
            PaymentStep { state: then, reason: None, seconds: None, .. },
        ] if first == "SETTLED" && then == "RETURNED" => {
            End::Returned { after_millis: millis(*seconds)? }
        }
        _ => {
            return Err("after PENDING, with or without seconds, a path ends with SETTLED; with \
                        SETTLED for some seconds, and RETURNED; with REFUSED; or with FAILED for \
                        a reason. NOT_TAKEN for a reason stands alone"
                .to_owned());
        }
    };
    let said_early = steps.split_last().is_some_and(|(_, earlier)| {
        earlier.iter().any(|step| step.code.is_some() || step.text.is_some())
    });
    if said_early {
        return Err("code and text belong to the last state".to_owned());
    }
    let words = |of: fn(&PaymentStep) -> &Option<String>| rest.last().and_then(|it| of(it).clone());
    let (code, text) = (words(|step| &step.code), words(|step| &step.text));
    Ok(PaymentPath { pending, end, code, text })
}

impl AccountRow {
    fn read(self) -> Result<Account, String> {
        Ok(Account { suffix: suffix(self.suffix)?, path: account_path(&self.path)? })
    }
}

fn account_path(steps: &[AccountStep]) -> Result<AccountPath, String> {
    if steps.len() > PATH_MAX {
        return Err(format!("a path has at most {PATH_MAX} states"));
    }
    if let [AccountStep { status: Some(status), verification: None, seconds: None }] = steps
        && let Some((_, path)) = [("UNKNOWN", AccountPath::Unknown), ("FAILS", AccountPath::Fails)]
            .into_iter()
            .find(|(name, _)| status == name)
    {
        return Ok(path);
    }
    let state = |step: &AccountStep| {
        let status = step.status.as_deref().unwrap_or(USABLE.status.name());
        let status = Status::from_name(status)
            .ok_or_else(|| format!("{status} is no status; UNKNOWN and FAILS stand alone"))?;
        let verification = step.verification.as_deref().unwrap_or(USABLE.verification.name());
        let verification = Verification::from_name(verification)
            .ok_or_else(|| format!("{verification} is no result of a verification"))?;
        Ok::<_, String>(AccountState { status, verification })
    };
    let Some((last, first)) = steps.split_last() else {
        return Err("a path has at least one state".to_owned());
    };
    if steps.iter().skip(1).any(|step| step.status.as_deref() == Some("PENDING")) {
        return Err("an account is PENDING only at first".to_owned());
    }
    if last.seconds.is_some() {
        return Err("the last state lasts, it has no seconds".to_owned());
    }
    let first = first.iter().map(|step| {
        let seconds = step.seconds.ok_or("every state but the last has seconds")?;
        Ok::<_, String>((state(step)?, millis(seconds)?))
    });
    Ok(AccountPath::Known { first: first.collect::<Result<_, _>>()?, last: state(last)? })
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

/// What the built-in table does with payments to or from a user, for people.
pub(crate) fn of_user(user: &str) -> String {
    let rows = &Scenarios::builtin().payments;
    let row = rows.iter().find(|row| row.user.as_deref() == Some(user));
    row.map_or(SUCCEEDS, |row| row.path.clone()).sentence()
}

/// The built-in table and how to write one of one's own, in Markdown.
pub(super) fn markdown() -> String {
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
    page + OWN_ROWS + "```toml\n" + include_str!("scenarios/since-2026-03-17.toml") + "```\n"
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
stand alone: there is no such account, and nobody answers.

This is a file, with what the suffixes do to quotes since 2026-03-17:

";

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, because: &str) {
        let error = Scenarios::parse(text).expect_err(text).to_string();
        assert!(error.contains(because), "{text}: {error}");
    }

    #[test]
    fn the_tables_that_come_with_the_program_can_be_read() {
        assert!(Scenarios::builtin().payments.len() >= 8);
        assert!(Scenarios::builtin().accounts.len() >= 10);
        let newer = include_str!("scenarios/since-2026-03-17.toml");
        assert_eq!(Scenarios::parse(newer).expect("a table").payments.len(), 4);
        assert_eq!(Scenarios::parse(""), Ok(Scenarios::default()));
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused_and_says_where() {
        let payment = |fits: &str, path: &str| format!("[[payments]]\n{fits}\npath = [{path}]\n");
        let account = |path: &str| format!("[[accounts]]\nsuffix = '123'\npath = [{path}]\n");
        let settled = "{ state = 'SETTLED' }";
        for (text, because) in [
            (payment("", settled), "row 1 of payments: say what it fits"),
            (payment("suffix = '12'", settled), "a suffix has 3 characters"),
            (payment("amount = 0", settled), "more than 0"),
            (payment("suffix = '123'\ncurrency = 'USD'", settled), "goes with an amount"),
            (payment("amount = 5\ncurrency = 'XYZ'", settled), "XYZ is no currency"),
            (payment("suffix = '123'\ncause = 'gift'", settled), "cause is transfer or quote"),
            (payment("suffix = '123'\nsufix = '123'", settled), "unknown field"),
            (payment("suffix = '123'", ""), "a path ends with SETTLED"),
            (payment("suffix = '123'", "{ state = 'PENDING' }"), "a path ends with SETTLED"),
            (payment("suffix = '123'", "{ state = 'LOST' }"), "a path ends with SETTLED"),
            (payment("suffix = '123'", "{ state = 'FAILED' }"), "give a reason"),
            (payment("suffix = '123'", "{ state = 'RETURNED' }"), "a path ends with SETTLED"),
            (
                payment("suffix = '123'", "{ state = 'SETTLED', seconds = 5 }"),
                "a path ends with SETTLED",
            ),
            (
                payment(
                    "suffix = '123'",
                    "{ state = 'PENDING', seconds = 0 }, { state = 'REFUSED' }",
                ),
                "seconds are from 1",
            ),
            (
                payment(
                    "suffix = '123'",
                    "{ state = 'PENDING' }, { state = 'NOT_TAKEN', reason = 'TIMED_OUT' }",
                ),
                "NOT_TAKEN for a reason stands alone",
            ),
            (account(""), "at least one state"),
            (account("{ status = 'LOST' }"), "LOST is no status"),
            (account("{ verification = 'MAYBE' }"), "MAYBE is no result"),
            (account("{ status = 'ACTIVE', seconds = 5 }"), "it has no seconds"),
            (account("{}, {}"), "every state but the last has seconds"),
            (account("{ seconds = 5 }, { status = 'PENDING' }"), "only at first"),
            (account("{ seconds = 5 }, { status = 'UNKNOWN' }"), "UNKNOWN and FAILS stand alone"),
            ("payments = 5".to_owned(), "invalid type"),
            (" ".repeat(TEXT_MAX + 1), "bytes are more than"),
        ] {
            refused(&text, because);
        }
    }

    #[test]
    fn the_page_has_every_row() {
        let page = markdown();
        for row in [
            "| `002` | insufficient funds, fails at once | insufficient funds, refused with a 400 |",
            "| `005` | stays pending 30 seconds, then fails |",
            "| any other | succeeds | succeeds |\n",
            "| `105` | does not exist: refused with a 400 |",
            "| `181` | `PENDING`, `PENDING` for 60 seconds, then `ACTIVE`, `MATCHED` |",
        ] {
            assert!(page.contains(row), "{row}");
        }
    }
}
