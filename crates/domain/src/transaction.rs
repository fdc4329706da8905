//! Transactions: payments as the client sees them (specification 2.3, 3.1; contract 6.10).

use std::collections::BTreeMap;
use std::fmt;

use crate::currency::Currency;
use crate::id::{ExternalAccountId, InternalAccountId, Owner, PlatformId, QuoteId, TransactionId};
use crate::money::{Money, Receiving, Sending};
use crate::pricing::Multipliers;
use crate::rate::Rate;
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved};
use crate::uma_address::UmaAddress;

pub use crate::failure::{FailureReason, StatusReason};

/// Which way money moves, seen from the platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// To the owner.
    Incoming,
    /// From the owner.
    Outgoing,
}

impl Direction {
    /// The `type` in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incoming => "INCOMING",
            Self::Outgoing => "OUTGOING",
        }
    }

    /// The direction with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Incoming, Self::Outgoing].into_iter().find(|direction| direction.name() == name)
    }
}

/// An account that money comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccountRef {
    /// A balance held here.
    Internal(InternalAccountId),
    /// A bank account or wallet elsewhere.
    External(ExternalAccountId),
}

impl AccountRef {
    /// The internal account, if it is one.
    pub fn internal(self) -> Option<InternalAccountId> {
        match self {
            Self::Internal(id) => Some(id),
            Self::External(_) => None,
        }
    }

    /// The external account, if it is one.
    pub fn external(self) -> Option<ExternalAccountId> {
        match self {
            Self::Internal(_) => None,
            Self::External(id) => Some(id),
        }
    }
}

impl fmt::Display for AccountRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internal(id) => id.fmt(f),
            Self::External(id) => id.fmt(f),
        }
    }
}

/// Where money comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// An account. A deposit that was simulated or received without an account on our side has no
    /// source at all.
    Account {
        /// The account.
        account: AccountRef,
        /// Its currency.
        currency: Currency,
    },
    /// A deposit that is made for one quote, just in time (contract 6.9.1).
    RealtimeFunding {
        /// Currency of the deposit.
        currency: Currency,
        /// The blockchain that it comes over, if one was named (`cryptoNetwork`).
        network: Option<&'static str>,
    },
    /// The holder of a UMA address, here or at another institution; of incoming payments.
    Uma {
        /// The address.
        address: UmaAddress,
    },
}

impl Source {
    /// The currency that is paid in; unknown where somebody else converts.
    pub fn currency(&self) -> Option<Currency> {
        match self {
            Self::Account { currency, .. } | Self::RealtimeFunding { currency, .. } => {
                Some(*currency)
            }
            Self::Uma { .. } => None,
        }
    }

    /// The account, if the source is one of ours to name.
    pub fn account(&self) -> Option<AccountRef> {
        match self {
            Self::Account { account, .. } => Some(*account),
            Self::RealtimeFunding { .. } | Self::Uma { .. } => None,
        }
    }
}

/// Where money goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An account.
    Account {
        /// The account.
        account: AccountRef,
        /// Its currency.
        currency: Currency,
    },
    /// The holder of a UMA address, here or at another institution; of outgoing payments.
    Uma {
        /// The address.
        address: UmaAddress,
        /// The currency that arrives.
        currency: Currency,
    },
}

impl Destination {
    /// The currency that arrives.
    pub fn currency(&self) -> Currency {
        match self {
            Self::Account { currency, .. } | Self::Uma { currency, .. } => *currency,
        }
    }

    /// The account, if the destination is one of ours to name.
    pub fn account(&self) -> Option<AccountRef> {
        match self {
            Self::Account { account, .. } => Some(*account),
            Self::Uma { .. } => None,
        }
    }
}

/// Facts about the other side of a payment, by the names of
/// [`crate::platform::COUNTERPARTY_FIELDS`].
pub type Facts = BTreeMap<&'static str, String>;

/// How money gets from one UMA address to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// Both are customers of this server, and each side has its transaction. That of the incoming
    /// side begins when the outgoing one is executed, and names it.
    Here {
        /// The payer's transaction; on incoming payments.
        outgoing: Option<TransactionId>,
    },
    /// Over Lightning, from or to another institution.
    Lightning {
        /// What is paid, in millisatoshi.
        msat: Money,
    },
}

impl Settlement {
    /// The names of the ways in storage.
    pub const NAMES: [&str; 2] = ["HERE", "LIGHTNING"];

    /// The name in storage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Here { .. } => Self::NAMES[0],
            Self::Lightning { .. } => Self::NAMES[1],
        }
    }

    /// What is paid over Lightning, if anything is.
    pub const fn msat(self) -> Option<Money> {
        match self {
            Self::Here { .. } => None,
            Self::Lightning { msat } => Some(msat),
        }
    }
}

/// What a payment between UMA addresses has besides its accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uma {
    /// The payer.
    pub sender: UmaAddress,
    /// The payee.
    pub receiver: UmaAddress,
    /// What is known about the other side: the receiver of an outgoing, the sender of an incoming
    /// payment (specification 2.3 `counterpartyInformation`).
    pub counterparty: Facts,
    /// How the money gets there.
    pub settlement: Settlement,
    /// What the receiver's side of an incoming payment costs, in the currency that arrives.
    pub rate_details: Option<RateDetails>,
    /// What an incoming payment becomes for a deposit account in another currency than what was
    /// received.
    pub conversion: Option<Conversion>,
}

/// A received amount converted for a deposit account (specification 2.8; contract 13, row 36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// What reaches the account.
    pub deposited: Money,
    /// From the received currency to the account's.
    pub rate: Rate,
    /// What the platform takes, in the received currency.
    pub fees: Money,
}

/// Status of a transaction (specification 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// A counterparty has looked the payee up.
    Created,
    /// There is a quote or a transfer, and no money has left.
    Pending,
    /// Funded and under way.
    Processing,
    /// Delivered. What was delivered may come back.
    Completed,
    /// The receiving side said no; nothing is owed.
    Rejected,
    /// We could not.
    Failed,
    /// Money that had arrived or left was given back.
    Refunded,
    /// The time to pay was over.
    Expired,
}

impl Status {
    /// Every status, in the order of the specification.
    pub const ALL: [Self; 8] = [
        Self::Created,
        Self::Pending,
        Self::Processing,
        Self::Completed,
        Self::Rejected,
        Self::Failed,
        Self::Refunded,
        Self::Expired,
    ];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Rejected => "REJECTED",
            Self::Failed => "FAILED",
            Self::Refunded => "REFUNDED",
            Self::Expired => "EXPIRED",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub fn after(self, event: &Event) -> Option<Self> {
        arrow(self, event.name())
    }

    /// Whether the machine has an arrow from this status to `next`.
    pub fn may_become(self, next: Self) -> bool {
        Event::ALL.iter().any(|event| self.after(event) == Some(next))
    }
}

/// What can happen to a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A pay request was accepted.
    Quoted,
    /// Funded and handed to the rail.
    Started,
    /// The rail has delivered.
    Settled,
    /// The receiving side refused.
    Refused(StatusReason),
    /// We could not deliver: why as the specification lists it, and finer.
    Failed(FailureReason, StatusReason),
    /// What was delivered has come back.
    Returned,
    /// Money that had come for the payment was given back.
    Refunded,
    /// The deposit account did not take what was received: it stays in the internal account.
    Kept(StatusReason),
    /// The time to pay is over.
    Expired,
}

impl Event {
    /// One of every event, for tables and tests.
    pub const ALL: [Self; 9] = [
        Self::Quoted,
        Self::Started,
        Self::Settled,
        Self::Refused(StatusReason::REJECTED_BY_RECEIVER),
        Self::Failed(FailureReason::OfframpFailed, StatusReason::ACCOUNT_INVALID),
        Self::Returned,
        Self::Refunded,
        Self::Kept(StatusReason::REJECTED_BY_RECEIVER),
        Self::Expired,
    ];

    /// The event's name in documents and refusals.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Quoted => "quoted",
            Self::Started => "started",
            Self::Settled => "settled",
            Self::Refused(_) => "refused",
            Self::Failed(..) => "failed",
            Self::Returned => "returned",
            Self::Refunded => "refunded",
            Self::Kept(_) => "kept",
            Self::Expired => "expired",
        }
    }

    /// What happens to money when the arrow is taken, for `docs/states.md`.
    pub const fn money(&self) -> &'static str {
        match self {
            Self::Quoted | Self::Expired => "none",
            Self::Started => "pending, or posted at once between internal accounts",
            Self::Settled => "pending becomes posted, or what came is posted",
            Self::Refused(_) | Self::Failed(..) => "pending becomes voided",
            Self::Returned => "posted is reversed by a posting of its own",
            Self::Refunded => "what waits in suspense goes to the internal account",
            Self::Kept(_) => "the deposit is voided or reversed, and stays in the internal account",
        }
    }
}

/// The arrows of the machine, by the name of the event: the one table that [`Transaction::apply`],
/// `verify` and the documents share.
fn arrow(from: Status, event: &str) -> Option<Status> {
    use Status::{Completed, Created, Expired, Failed, Pending, Processing, Refunded, Rejected};
    match (from, event) {
        (Created, "quoted") => Some(Pending),
        (Pending, "started") => Some(Processing),
        (Processing, "settled") => Some(Completed),
        // What came in has come in, whatever became of its deposit.
        (Processing | Completed, "kept") => Some(Completed),
        (Pending | Processing, "refused") => Some(Rejected),
        (Created | Pending | Processing, "failed") | (Completed, "returned") => Some(Failed),
        (Failed, "refunded") => Some(Refunded),
        (Created | Pending, "expired") => Some(Expired),
        (
            Created | Pending | Processing | Completed | Rejected | Failed | Refunded | Expired,
            _,
        ) => None,
    }
}

/// One step of a transaction's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The status that it reached.
    pub status: Status,
    /// When.
    pub at: Timestamp,
}

/// What a quote fixed for its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The quote.
    pub quote: QuoteId,
    /// Its rate.
    pub rate: Rate,
    /// All fees, in the sending currency.
    pub fees: Money,
    /// Its fee parts.
    pub rate_details: RateDetails,
}

/// Fee parts and multipliers (specification 2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDetails {
    /// Fixed fee, in the sending currency.
    pub fixed_fee: Money,
    /// Variable fee, in the sending currency.
    pub variable_fee: Money,
    /// The fraction behind the variable fee.
    pub variable_fee_rate: rust_decimal::Decimal,
    /// Fee of the payee's institution, in the receiving currency.
    pub counterparty_fee: Money,
    /// Millisatoshi multipliers; absent where they leave the range of exact decimals.
    pub multipliers: Option<Multipliers>,
}

/// What a transaction is made from; it starts in the given status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// System id.
    pub id: TransactionId,
    /// The platform.
    pub platform: PlatformId,
    /// Whose payment it is: sender of an outgoing, recipient of an incoming one.
    pub owner: Owner,
    /// The platform's own name for that owner.
    pub platform_customer_id: String,
    /// Which way money moves.
    pub direction: Direction,
    /// Where money comes from; absent for a bare deposit.
    pub source: Option<Source>,
    /// Where it goes.
    pub destination: Destination,
    /// What leaves the source, on outgoing transactions.
    pub sent: Option<Sending>,
    /// What arrives.
    pub received: Receiving,
    /// What the quote fixed, if there was one.
    pub terms: Option<Terms>,
    /// What it has besides, if it is one between UMA addresses.
    pub uma: Option<Uma>,
    /// The memo.
    pub description: Option<String>,
}

impl Draft {
    /// What reaches the destination: what is received, unless it is converted on the way there.
    pub fn arrives(&self) -> Money {
        let conversion = self.uma.as_ref().and_then(|uma| uma.conversion);
        conversion.map_or(self.received.money(), |conversion| conversion.deposited)
    }

    /// The external account into which an incoming UMA payment is deposited, if there is one.
    pub fn deposit_account(&self) -> Option<ExternalAccountId> {
        let is_received = self.direction == Direction::Incoming && self.uma.is_some();
        self.destination.account().and_then(AccountRef::external).filter(|_| is_received)
    }

    /// Whether it was received by a UMA address and is in an internal account, perhaps because the
    /// deposit account did not take it.
    fn may_be_kept(&self) -> bool {
        let is_received = self.direction == Direction::Incoming && self.uma.is_some();
        is_received && self.deposit_account().is_none()
    }
}

/// A payment, with a status that only [`Transaction::apply`] changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    draft: Draft,
    history: Vec<Step>,
    failure: Option<FailureReason>,
    reason: Option<StatusReason>,
}

/// A stored transaction whose parts contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {what}")]
pub struct Inconsistent {
    /// The transaction.
    pub id: TransactionId,
    /// What is wrong with it.
    pub what: String,
}

impl Transaction {
    /// A new transaction, `PENDING` since its id was drawn: a quote or a transfer exists.
    pub fn pending(draft: Draft) -> Self {
        let first = Step { status: Status::Pending, at: draft.id.created_at() };
        Self { draft, history: vec![first], failure: None, reason: None }
    }

    /// Puts a stored transaction together again and checks what the machine guarantees. For the
    /// store only.
    pub fn restore(
        draft: Draft,
        history: Vec<Step>,
        failure: Option<FailureReason>,
        reason: Option<StatusReason>,
    ) -> Result<Self, Inconsistent> {
        let inconsistent = |what: String| Err(Inconsistent { id: draft.id, what });
        let Some(first) = history.first() else {
            return inconsistent("has no history".to_owned());
        };
        if !matches!(first.status, Status::Created | Status::Pending) {
            return inconsistent(format!("starts as {}", first.status.name()));
        }
        if first.at != draft.id.created_at() {
            return inconsistent("does not start when its id was drawn".to_owned());
        }
        for pair in history.windows(2) {
            let (from, to) = (pair[0].status, pair[1].status);
            if !from.may_become(to) {
                return inconsistent(format!("went from {} to {}", from.name(), to.name()));
            }
        }
        let has_been = |status| history.iter().any(|step: &Step| step.status == status);
        let has_failed = has_been(Status::Failed);
        if has_failed != failure.is_some() {
            return inconsistent("a failure reason goes with FAILED, and only with it".to_owned());
        }
        let was_not_made = has_failed || has_been(Status::Rejected);
        let was_kept = has_been(Status::Completed) && reason.is_some() && draft.may_be_kept();
        if was_not_made != reason.is_some() && !was_kept {
            return inconsistent("a status reason goes with FAILED and REJECTED".to_owned());
        }
        Ok(Self { draft, history, failure, reason })
    }

    /// What it was made from.
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// System id.
    pub fn id(&self) -> TransactionId {
        self.draft.id
    }

    /// The present status.
    pub fn status(&self) -> Status {
        self.last().status
    }

    fn last(&self) -> Step {
        *self.history.last().expect("every constructor makes at least one step")
    }

    /// Every status it had, oldest first.
    pub fn history(&self) -> &[Step] {
        &self.history
    }

    /// How many statuses it had: the number of its latest change, from 1.
    pub fn version(&self) -> u32 {
        u32::try_from(self.history.len()).unwrap_or(u32::MAX)
    }

    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<FailureReason> {
        self.failure
    }

    /// Why it failed or was rejected, finer than [`Transaction::failure`].
    pub fn reason(&self) -> Option<&StatusReason> {
        self.reason.as_ref()
    }

    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.history.first().map_or(self.last().at, |step| step.at)
    }

    /// When its status last changed.
    pub fn updated_at(&self) -> Timestamp {
        self.last().at
    }

    /// When it was delivered, if it was.
    pub fn settled_at(&self) -> Option<Timestamp> {
        self.reached(Status::Completed)
    }

    /// When it first had `status`, if it ever had.
    pub fn reached(&self, status: Status) -> Option<Timestamp> {
        self.history.iter().find(|step| step.status == status).map(|step| step.at)
    }

    /// The text that goes with the bank payment; every status but `CREATED` has it (specification
    /// 2.3). Derived from the id: unique, and the same after a retry.
    pub fn reference(&self) -> Option<String> {
        (self.status() != Status::Created).then(|| reference(self.id()))
    }

    /// The transaction with more facts about the other side than it had.
    #[must_use]
    pub fn knowing(mut self, facts: Facts) -> Self {
        if let Some(uma) = &mut self.draft.uma {
            uma.counterparty.extend(facts);
        }
        self
    }

    /// The transaction with an internal account in place of the deposit account that does not take
    /// what was received.
    #[must_use]
    pub fn kept_in(mut self, account: InternalAccountId) -> Self {
        let (account, currency) = (AccountRef::Internal(account), self.draft.received.currency());
        self.draft.destination = Destination::Account { account, currency };
        if let Some(uma) = &mut self.draft.uma {
            uma.conversion = None;
        }
        self
    }

    /// The one function that changes a transaction's status. A clock that has stepped back does
    /// not take its history back: no step is before the last one.
    pub fn apply(mut self, event: Event, now: Timestamp) -> Result<Moved<Self>, IllegalTransition> {
        let Step { status: from, at: before } = self.last();
        // Only what was received by a UMA address has a deposit that can fail.
        let is_possible = !matches!(event, Event::Kept(_)) || self.draft.may_be_kept();
        let Some(to) = arrow(from, event.name()).filter(|_| is_possible) else {
            return Err(IllegalTransition {
                machine: "transaction",
                state: from.name(),
                event: event.name(),
            });
        };
        match event {
            Event::Failed(failure, reason) => {
                (self.failure, self.reason) = (Some(failure), Some(reason));
            }
            Event::Returned => {
                self.failure = Some(FailureReason::OfframpFailed);
                self.reason = Some(StatusReason::RETURNED);
            }
            Event::Refused(reason) | Event::Kept(reason) => self.reason = Some(reason),
            Event::Quoted | Event::Started | Event::Settled | Event::Refunded | Event::Expired => {}
        }
        self.history.push(Step { status: to, at: now.max(before) });
        Ok(Moved::new(from.name(), self))
    }
}

/// Crockford's base 32: no I, L, O, U, so that it survives being read aloud.
const REFERENCE_DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// What every reference begins with.
const REFERENCE_PREFIX: &str = "SY-";

/// Digits of a reference, five bits each: 42 bits of milliseconds (until the year 2109), the 12
/// bits of the counter, and 46 of the 62 random bits of an id.
const REFERENCE_LENGTH: u32 = 20;

/// Random bits of an id that its reference does not hold.
const UNREFERENCED_BITS: u32 = 16;

/// The reconciliation reference of a transaction: 20 letters and digits that a bank statement
/// carries whole, made from the id. It leads back to the id ([`referenced`]), so nothing has to be
/// looked up by it.
pub fn reference(id: TransactionId) -> String {
    let id = id.uuid().as_u128();
    let (millis, counter) = (id >> 80, (id >> 64) & 0xfff);
    let random = (id & ((1 << 62) - 1)) >> UNREFERENCED_BITS;
    let bits = (millis << 58 | counter << 46 | random) & ((1 << 100) - 1);
    let digits = (0..REFERENCE_LENGTH).rev().map(|index| {
        let digit = (bits >> (5 * index)) & 0x1f;
        char::from(REFERENCE_DIGITS[digit as usize])
    });
    REFERENCE_PREFIX.chars().chain(digits).collect()
}

/// The ids that have this reference: all from the first to the last. Nothing that is drawn on one
/// server or on several shares its reference with another (46 random bits in one millisecond). None
/// if this is no reference.
pub fn referenced(text: &str) -> Option<(TransactionId, TransactionId)> {
    let digits = text.strip_prefix(REFERENCE_PREFIX)?;
    if digits.len() != REFERENCE_LENGTH as usize {
        return None;
    }
    let bits = digits.bytes().try_fold(0_u128, |bits, byte| {
        let digit = REFERENCE_DIGITS.iter().position(|digit| *digit == byte)?;
        Some(bits << 5 | digit as u128)
    })?;
    let (millis, counter, random) = (bits >> 58, (bits >> 46) & 0xfff, bits & ((1 << 46) - 1));
    let first = millis << 80 | 0x7 << 76 | counter << 64 | 0b10 << 62 | random << UNREFERENCED_BITS;
    let last = first | ((1 << UNREFERENCED_BITS) - 1);
    let id = |bits| TransactionId::from_uuid(uuid::Uuid::from_u128(bits));
    Some((id(first), id(last)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn transaction() -> Transaction {
        let currency = Currency::from_code("USD").expect("known currency");
        let platform = PlatformId::from_uuid(Uuid::from_u128(1 << 16));
        let amount = Money::positive(100, currency).expect("amount");
        let account =
            AccountRef::Internal(InternalAccountId::of(Owner::Platform(platform), currency));
        let draft = Draft {
            id: TransactionId::from_uuid(Uuid::from_u128(7)),
            platform,
            owner: Owner::Platform(platform),
            platform_customer_id: platform.to_string(),
            direction: Direction::Outgoing,
            source: Some(Source::Account { account, currency }),
            destination: Destination::Account { account, currency },
            sent: Some(Sending(amount)),
            received: Receiving(amount),
            terms: None,
            uma: None,
            description: None,
        };
        Transaction::pending(draft)
    }

    fn in_status(status: Status) -> Transaction {
        let at = Timestamp::from_millis(0);
        let step = |status| Step { status, at };
        let mut transaction = transaction();
        transaction.history = vec![step(status)];
        transaction
    }

    #[test]
    fn every_status_meets_every_event() {
        let mut arrows = 0;
        for status in Status::ALL {
            for event in Event::ALL {
                let now = Timestamp::from_millis(1);
                match in_status(status).apply(event, now) {
                    Ok(moved) => {
                        arrows += 1;
                        assert_eq!(moved.from(), status.name());
                        assert!(status.may_become(moved.now().status()));
                        assert_eq!(moved.now().updated_at(), now);
                    }
                    Err(refused) => assert_eq!(refused.state, status.name()),
                }
            }
        }
        assert_eq!(arrows, 12);
    }

    #[test]
    fn only_what_was_received_can_be_kept() {
        const KEPT: Event = Event::Kept(StatusReason::REJECTED_BY_RECEIVER);
        let at = Timestamp::from_millis(1);
        let bank = ExternalAccountId::from_uuid(Uuid::from_u128(9));
        for status in [Status::Processing, Status::Completed] {
            assert!(in_status(status).apply(KEPT, at).is_err(), "not to a UMA address");
            let mut received = in_status(status);
            let (draft, currency) = (&mut received.draft, Currency::from_code("USD"));
            let currency = currency.expect("known currency");
            let address = UmaAddress::parse("$ada@uma.test").expect("an address");
            draft.direction = Direction::Incoming;
            draft.destination =
                Destination::Account { account: AccountRef::External(bank), currency };
            draft.uma = Some(Uma {
                sender: address.clone(),
                receiver: address,
                counterparty: Facts::new(),
                settlement: Settlement::Here { outgoing: None },
                rate_details: None,
                conversion: None,
            });
            assert_eq!(received.draft().deposit_account(), Some(bank));
            assert!(received.clone().apply(KEPT, at).is_err(), "it is still to be deposited");
            let account = InternalAccountId::of(received.draft().owner, currency);
            let kept = received.kept_in(account).apply(KEPT, at).expect("an arrow");
            assert_eq!(kept.now().status(), Status::Completed);
            assert_eq!(
                kept.now().draft().destination.account(),
                Some(AccountRef::Internal(account))
            );
        }
    }

    #[test]
    fn no_step_is_before_the_last_one() {
        let at = Timestamp::from_millis;
        let made = transaction();
        assert_eq!(made.created_at(), made.id().created_at());
        let started = made.apply(Event::Started, at(9)).expect("an arrow").into_now();
        let settled = started.apply(Event::Settled, at(4)).expect("an arrow").into_now();
        assert_eq!(settled.settled_at(), Some(at(9)));
    }

    #[test]
    fn final_statuses_have_no_arrow() {
        for status in [Status::Rejected, Status::Refunded, Status::Expired] {
            for next in Status::ALL {
                assert!(!status.may_become(next), "{status:?} to {next:?}");
            }
        }
    }

    #[test]
    fn restoring_refuses_what_the_machine_could_not_have_made() {
        let at = Timestamp::from_millis(0);
        let step = |status| Step { status, at };
        let restore = |steps: &[Status], failure: Option<FailureReason>| {
            Transaction::restore(
                transaction().draft,
                steps.iter().copied().map(step).collect(),
                failure,
                failure.map(FailureReason::status_reason),
            )
        };
        use Status::{Completed, Failed, Pending, Processing, Rejected};
        assert!(restore(&[Pending, Processing, Completed], None).is_ok());
        let returned = Some(FailureReason::OfframpFailed);
        assert!(restore(&[Pending, Processing, Completed, Failed], returned).is_ok());
        assert!(restore(&[Pending, Processing, Completed, Failed], None).is_err());
        assert!(restore(&[Pending, Processing, Completed, Completed], None).is_ok());
        assert!(restore(&[Pending, Processing, Completed, Pending], None).is_err());
        assert!(restore(&[], None).is_err());
        assert!(restore(&[Completed], None).is_err());
        assert!(restore(&[Pending, Completed], None).is_err());
        assert!(restore(&[Pending, Failed], None).is_err());
        assert!(restore(&[Pending], Some(FailureReason::QuoteExpired)).is_err());
        let late = Step { status: Pending, at: Timestamp::from_millis(1) };
        assert!(Transaction::restore(transaction().draft, vec![late], None, None).is_err());
        let rejected = |reason| {
            let steps = [Pending, Rejected].map(step).to_vec();
            Transaction::restore(transaction().draft, steps, None, reason)
        };
        assert!(rejected(Some(StatusReason::REJECTED_BY_RECEIVER)).is_ok());
        assert!(rejected(None).is_err());
    }

    #[test]
    fn references_are_readable_and_differ() {
        let mut ids = crate::id::IdSequence::default();
        let now = Timestamp::from_millis(1_760_000_000_000);
        let first = reference(TransactionId::from_uuid(ids.next(now, 0)));
        let second = reference(TransactionId::from_uuid(ids.next(now, 0)));
        assert_ne!(first, second);
        assert_eq!(first.len(), 23);
    }

    #[test]
    fn references_lead_back_to_their_ids() {
        let mut ids = crate::id::IdSequence::default();
        for (millis, random) in [(0, 0), (1_760_000_000_000, u64::MAX), (4_398_046_511_103, 77)] {
            let id = ids.next(Timestamp::from_millis(millis), random);
            let reference = reference(TransactionId::from_uuid(id));
            let (first, last) = referenced(&reference).expect("a reference");
            assert!((first.uuid()..=last.uuid()).contains(&id), "{reference}");
            assert_eq!(super::reference(first), reference);
            assert_eq!(super::reference(last), reference);
        }
        for wrong in ["", "SY-", "SY-1", "SY-0000000000000000000I", "sy-00000000000000000000"] {
            assert_eq!(referenced(wrong), None, "{wrong}");
        }
    }
}
