//! Payment rails: asking a bank or network to move money, and how it went.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use domain::account_info::{AccountInfo, AccountType};
use domain::currency::Currency;
use domain::external_account::{Status, Verification};
use domain::id::TransactionId;
use domain::money::Money;
use domain::rail::{Rail, RailWords};
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;

use crate::rails::Leg;

/// A future on the heap, so that traits with asynchronous methods can be objects.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which way an instruction moves money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To the other side.
    PayOut,
    /// From the other side.
    PullIn,
}

/// The other side of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    /// A bank account or wallet.
    Account(Box<AccountInfo>),
    /// The holder of a UMA address at another institution.
    Uma {
        /// The address.
        address: UmaAddress,
        /// The invoice that its institution gave; nothing where it pays us.
        invoice: Option<String>,
    },
}

/// The cause of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A transfer in one currency.
    Transfer,
    /// A quote.
    Quote,
}

/// One order to a rail. The same key and flow are the same order, however often it is given: a
/// quote from an external account is pulled in and paid out under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Identifies the order at the rail, together with `flow`: never executed twice.
    pub key: TransactionId,
    /// Which way.
    pub flow: Flow,
    /// The cause.
    pub cause: Cause,
    /// Over which rail.
    pub rail: Rail,
    /// How much.
    pub amount: Money,
    /// The other side.
    pub party: Party,
    /// A text for the other side, which goes with the payment.
    pub remittance: Option<String>,
    /// The purpose of the payment, one of [`domain::transaction::PURPOSES`].
    pub purpose: Option<&'static str>,
    /// When the order was first due.
    pub since: Timestamp,
    /// The platform's settings, in words of the rail's own.
    pub settings: Option<Arc<str>>,
}

impl Instruction {
    /// The leg that it is an order for.
    pub fn leg(&self) -> Leg {
        let account_type = match &self.party {
            Party::Account(account) => Some(account.account_type()),
            Party::Uma { .. } => None,
        };
        Leg { rail: self.rail, account_type, currency: self.amount.currency() }
    }
}

/// A question about an account elsewhere. The same question at the same time has the same answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountInquiry {
    /// The account.
    pub account: AccountInfo,
    /// When it was added.
    pub since: Timestamp,
    /// The platform's settings, in words of the rail's own.
    pub settings: Option<Arc<str>>,
}

/// A rail's report on an account (specification 2.8; contract 6.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountReport {
    /// Whether it can be used.
    pub status: Status,
    /// The check of the beneficiary's name; nothing where there is no beneficiary.
    pub verification: Option<Verification>,
    /// The name under which the receiving side knows the holder, if it tells.
    pub holder_name: Option<String>,
    /// When to ask again; nothing if no more is to be learned.
    pub ask_again_at: Option<Timestamp>,
}

impl AccountReport {
    /// An account that can be used and about which there is no more to know.
    pub fn usable() -> Self {
        Self { status: Status::Active, verification: None, holder_name: None, ask_again_at: None }
    }
}

/// Why a rail says nothing about an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReport {
    /// The receiving side knows that there is no such account.
    NoSuchAccount,
    /// No partner is connected that could be asked.
    NotConnected,
    /// The other side did not answer.
    Failed,
}

/// Why a rail could not move money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RailFailure {
    /// There was no money where it should have come from.
    InsufficientFunds,
    /// The account is closed or does not exist.
    AccountInvalid,
    /// The rail did not get an answer in time.
    TimedOut,
    /// No partner is connected that could move money over the rail.
    NotConnected,
}

/// Proof that a failed order has moved no money and never will.
///
/// The rule of every port: once a question about an order may have left, it may have had an effect,
/// whatever becomes of its answer. From then on only the other side's own refusal ends the order.
/// Silence, a guard, or an answer of something between the two sides never does, on no try: the
/// order is [`RailAnswer::Pending`], and [`ask`] hands it to a person after its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// No question can leave: what the order says forbids it, on every try alike.
    Unsendable,
    /// The other side refused it itself: in a code of the rail's protocol, signed, or by the hash
    /// that locks the payment.
    OtherSide,
    /// It was to bring money, and this server takes none for it any more.
    Closed,
    /// A person asked the other side, and says so with a reason.
    Operator,
}

/// A rail's answer to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailAnswer {
    /// The money has moved. Final.
    Settled,
    /// The money has moved, and an order to pay out may still come back; ask again then.
    SettledForNow {
        /// When to ask again.
        ask_again_at: Timestamp,
    },
    /// The money had moved, and the receiving side has sent it back. Final: it is with us again.
    /// Only orders to pay out come back.
    Returned,
    /// The receiving side itself said no. Final: no money has moved.
    Refused,
    /// The rail could not do it. Final: no money has moved, which is proven.
    Failed(RailFailure, Proof),
    /// Not decided; ask again then. An order whose fate is unknown is never given up by us.
    Pending {
        /// When to ask again.
        ask_again_at: Timestamp,
    },
    /// As [`RailAnswer::Pending`], and its deadline has passed: a person has to find out. No port
    /// says it, [`ask`] does.
    Overdue {
        /// When to ask again.
        ask_again_at: Timestamp,
    },
}

/// An answer of a rail about an order, with the rail's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RailReply {
    /// The outcome of the order.
    pub answer: RailAnswer,
    /// How the rail says it: kept with the payment, and shown where it was not made.
    pub words: RailWords,
}

impl From<RailAnswer> for RailReply {
    fn from(answer: RailAnswer) -> Self {
        Self { answer, words: RailWords::NONE }
    }
}

/// A way to pay in: an account or wallet of ours elsewhere (specification 2.5, 2.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FundingInstruction {
    /// The kind of account.
    pub account_type: &'static AccountType,
    /// Its identifiers, by the names of the type's instruction fields.
    pub fields: Vec<(&'static str, String)>,
    /// Notes for the payer.
    pub notes: String,
}

/// A deposit that is asked how to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deposit<'a> {
    /// Its currency.
    pub currency: Currency,
    /// The text by which it is recognised.
    pub reference: &'a str,
    /// How much, where only that is taken.
    pub amount: Option<Money>,
    /// When what it is for was made.
    pub since: Timestamp,
}

/// The fee of a network for a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkFee {
    /// Smallest units of the network's own asset.
    pub amount: i64,
    /// The asset.
    pub asset: &'static str,
}

/// A connection to one or more payment rails.
pub trait PaymentRail: Send + Sync {
    /// The most that it moves at once on a leg, in smallest units; nothing where it does not serve
    /// the leg. The same leg is served until a restart.
    fn amount_max(&self, leg: &Leg) -> Option<i64>;

    /// How to make a deposit. Empty where the rail takes none in its currency. The same question
    /// has the same answer.
    fn instructions(&self, deposit: &Deposit<'_>) -> Vec<FundingInstruction>;

    /// Whether the rail would take the order at all, before money is set aside. Nothing moves.
    fn check<'a>(&'a self, order: &'a Instruction) -> Pending<'a, Result<(), RailFailure>>;

    /// How long a new order waits before it is given, in milliseconds. A rail that would only say
    /// "pending" until then saves a question and a change of state for each payment.
    fn gives_after_millis(&self) -> i64 {
        0
    }

    /// Asks what is known about an account. Nothing moves.
    fn inspect<'a>(
        &'a self,
        inquiry: &'a AccountInquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<AccountReport, NoReport>>;

    /// About what the network takes for a payment over a rail now; nothing where the rail is no
    /// network with an asset of its own.
    fn network_fee(&self, _: Rail) -> Option<NetworkFee> {
        None
    }

    /// Until when the outcome of an order is known, if the other side does as it should; nothing
    /// where the port always knows it.
    fn deadline(&self, order: &Instruction) -> Option<Timestamp> {
        Some(order.since.plus_millis(DECIDED_WITHIN_MILLIS))
    }

    /// Gives the order, or, if it was given before, asks how it went.
    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply>;
}

/// How long an order is undecided at most where its port says nothing else, in milliseconds: a week
/// has every weekend and most holidays in it.
pub const DECIDED_WITHIN_MILLIS: i64 = 7 * 86_400_000;

/// How often an order is asked about after its deadline, in milliseconds. A person looks into it by
/// then, who needs no quicker answer.
pub const OVERDUE_RETRY_MILLIS: i64 = 3_600_000;

/// Asks a port about an order. One that has no outcome after its deadline is for a person, and is
/// asked about once an hour at most.
pub async fn ask(port: &dyn PaymentRail, order: &Instruction, now: Timestamp) -> RailReply {
    let RailReply { answer, words } = port.ask(order, now).await;
    let answer = match answer {
        RailAnswer::Pending { ask_again_at }
            if port.deadline(order).is_some_and(|deadline| now >= deadline) =>
        {
            let earliest = now.plus_millis(OVERDUE_RETRY_MILLIS);
            RailAnswer::Overdue { ask_again_at: ask_again_at.max(earliest) }
        }
        answer => answer,
    };
    RailReply { answer, words }
}
