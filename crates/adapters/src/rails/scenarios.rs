//! Scenarios: what becomes of payments and accounts where no money is real, as a table.
//!
//! A row has a condition: the last characters of an account's number, the user of a UMA address or
//! an amount. It lists the states that follow, each with how long it lasts. The built-in table is
//! contract 6.18; an operator puts rows of one platform before it. The first row that fits decides.
//!
//! Guarantee: a table that was read has an end for every payment. It depends only on the order or
//! the account, and the time. `markdown` prints the built-in one.

mod page;
mod rows;

use std::sync::LazyLock;

use domain::account_info::AccountInfo;
use domain::currency::Currency;
use domain::external_account::{Status, Verification};
use domain::rail::RailWords;
use domain::time::Timestamp;
use ports::rail::{
    Cause, Flow, Instruction, NoReport, Party, Proof, RailAnswer, RailFailure, RailReply,
};

pub(super) use self::page::markdown;
pub(crate) use self::page::of_user;
use self::rows::File;
use crate::uma::sandbox::is_known;

/// Bytes of a table: some hundred rows, which is more than anybody keeps in mind.
pub const TEXT_MAX: usize = 32 * 1_024;

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

/// The path of a payment.
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
    /// The money has moved, and comes back later. Money that is pulled in does not.
    Returned { after_millis: i64 },
    /// The receiving side said no.
    Refused,
    /// It could not be done.
    Failed(RailFailure),
    /// The rail does not even take the order: it is refused before money is set aside.
    NotTaken(RailFailure),
}

/// The path of an order that no row fits.
const SUCCEEDS: PaymentPath =
    PaymentPath { pending: Wait::Usual, end: End::Settled, code: None, text: None };

/// An order to or from a party that does not exist.
const NO_SUCH_PARTY: PaymentPath = PaymentPath {
    pending: Wait::Millis(0),
    end: End::Failed(RailFailure::AccountInvalid),
    code: None,
    text: None,
};

impl PaymentPath {
    /// The rail's answer to an order that was first due at `order.since`.
    fn reply(&self, order: &Instruction, usual_millis: i64, now: Timestamp) -> RailReply {
        let answer = self.answer(order, usual_millis, now);
        let is_last = match answer {
            RailAnswer::Pending { .. }
            | RailAnswer::Overdue { .. }
            | RailAnswer::SettledForNow { .. } => false,
            RailAnswer::Settled
            | RailAnswer::Returned
            | RailAnswer::Refused
            | RailAnswer::Failed(..) => true,
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
            // The sandbox is the other side too.
            End::Failed(failure) | End::NotTaken(failure) => {
                RailAnswer::Failed(failure, Proof::OtherSide)
            }
        }
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

/// The path of an account.
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
    /// There is no answer.
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

/// The state of an account that no row fits.
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
            Party::Uma { address, .. } if !is_known(address) => NO_SUCH_PARTY,
            Party::Uma { .. } | Party::Account(_) => SUCCEEDS,
        };
        self.each().find_map(|table| table.payment(order)).unwrap_or(usual)
    }

    /// The rail's answer to an order.
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
