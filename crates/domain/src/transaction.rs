//! Transactions: payments as the client sees them (specification 2.3, 3.1; contract 6.10).

mod reference;
mod sides;
mod status;

use crate::id::{ExternalAccountId, InternalAccountId, Owner, PlatformId, QuoteId, TransactionId};
use crate::money::{Money, Receiving, Sending};
use crate::pricing::Multipliers;
use crate::rail::{Rail, RailWords};
use crate::rate::Rate;
use crate::time::Timestamp;
use crate::transition::{IllegalTransition, Moved};

use self::status::arrow;

pub use self::reference::{reference, referenced};
pub use self::sides::{
    AboutPayee, AccountRef, Conversion, Destination, Facts, Settlement, Source, Uma,
};
pub use self::status::{Event, Status, Step};
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

    /// The `direction` in the API: what it is for the owner's account.
    pub const fn entry_name(self) -> &'static str {
        match self {
            Self::Incoming => "CREDIT",
            Self::Outgoing => "DEBIT",
        }
    }

    /// The direction with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Incoming, Self::Outgoing].into_iter().find(|direction| direction.name() == name)
    }
}

/// The terms that a quote fixed for its transaction.
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

/// The purposes of payments (contract 5).
pub const PURPOSES: [&str; 12] = [
    "GIFT",
    "SELF",
    "GOODS_OR_SERVICES",
    "EDUCATION",
    "HEALTH_OR_MEDICAL",
    "REAL_ESTATE_PURCHASE",
    "TAX_PAYMENT",
    "LOAN_PAYMENT",
    "UTILITY_BILL",
    "DONATION",
    "TRAVEL",
    "OTHER",
];

/// Wishes of the payer that go with an order to a rail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RailRequest {
    /// A text for the other side, which goes with the payment.
    pub remittance: Option<String>,
    /// The purpose of the payment, one of [`PURPOSES`].
    pub purpose: Option<&'static str>,
    /// The rail over which it is paid out; the server chooses without one.
    pub rail: Option<Rail>,
}

/// The draft of a transaction, which starts in the given status.
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
    /// The amount that leaves the source, on outgoing transactions.
    pub sent: Option<Sending>,
    /// The amount that arrives.
    pub received: Receiving,
    /// The terms of its quote, if there was one.
    pub terms: Option<Terms>,
    /// Its UMA data, if it is between UMA addresses.
    pub uma: Option<Uma>,
    /// The memo.
    pub description: Option<String>,
    /// Wishes of the payer for the rail.
    pub rail_request: RailRequest,
}

impl Draft {
    /// The amount that reaches the destination: the received one, unless it is converted on the way
    /// there.
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
    rail: Option<Rail>,
    rail_words: RailWords,
    request: Option<String>,
}

/// A stored transaction whose parts contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {what}")]
pub struct Inconsistent {
    /// The transaction.
    pub id: TransactionId,
    /// The fault.
    pub what: String,
}

impl Transaction {
    /// A new transaction, `PENDING` since its id was drawn: a quote or a transfer exists.
    pub fn pending(draft: Draft) -> Self {
        let first = Step { status: Status::Pending, at: draft.id.created_at() };
        let (history, rail_words) = (vec![first], RailWords::NONE);
        Self { draft, history, failure: None, reason: None, rail: None, rail_words, request: None }
    }

    /// A new transaction, `CREATED` since its id was drawn: another institution wants to make the
    /// payment, and its platform was not asked yet (specification 3.1).
    pub fn created(draft: Draft) -> Self {
        let first = Step { status: Status::Created, at: draft.id.created_at() };
        Self { history: vec![first], ..Self::pending(draft) }
    }

    /// Puts a stored transaction together again and checks what the machine guarantees. For the
    /// store only.
    pub fn restore(
        draft: Draft,
        history: Vec<Step>,
        failure: Option<FailureReason>,
        reason: Option<StatusReason>,
        (rail, rail_words): (Option<Rail>, RailWords),
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
        let is_under_way = history.last().is_some_and(|step| step.status == Status::Processing);
        if was_not_made != reason.is_some() && !was_kept && !is_under_way {
            return inconsistent("a status reason goes with FAILED and REJECTED".to_owned());
        }
        Ok(Self { draft, history, failure, reason, rail, rail_words, request: None })
    }

    /// Its draft.
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

    /// The transaction as it was at its change with this number, as far as its steps say.
    #[must_use]
    pub fn at_version(&self, version: u32) -> Self {
        let steps = self.history.iter().take(usize::try_from(version).unwrap_or(usize::MAX));
        let history: Vec<_> = steps.copied().collect();
        let has_been = |status| history.iter().any(|step: &Step| step.status == status);
        let (has_failed, was_rejected) = (has_been(Status::Failed), has_been(Status::Rejected));
        // A payment that was kept has a reason and was made. One that came back later had none yet.
        let was_kept = has_been(Status::Completed) && self.failure.is_none();
        let has_reason = has_failed || was_rejected || was_kept;
        Self {
            failure: self.failure.filter(|_| has_failed),
            reason: self.reason.clone().filter(|_| has_reason),
            history,
            ..self.clone()
        }
    }

    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<FailureReason> {
        self.failure
    }

    /// Why it failed or was rejected, finer than [`Transaction::failure`]. On one that is under
    /// way, why a person has to look into it.
    pub fn reason(&self) -> Option<&StatusReason> {
        self.reason.as_ref()
    }

    /// Whether it is under way past the deadline of its rail: only a person can find out how it
    /// ended. Nothing is given back meanwhile, as the other side may have the money.
    pub fn is_undecided(&self) -> bool {
        self.status() == Status::Processing && self.reason.is_some()
    }

    /// The transaction, under way, whose rail has not said in time how it ended.
    #[must_use]
    pub fn undecided(self) -> Self {
        Self { reason: Some(StatusReason::OUTCOME_UNKNOWN), ..self }
    }

    /// The rail that its latest order was given to, or is to be: every later question about the
    /// order goes there too.
    pub fn rail(&self) -> Option<Rail> {
        self.rail
    }

    /// The transaction with the rail of its next order, about which nothing is known yet.
    #[must_use]
    pub fn ordered_over(self, rail: Rail) -> Self {
        Self { rail: Some(rail), reason: None, ..self }
    }

    /// The rail's own words about it, from the latest answer that had any.
    pub fn rail_words(&self) -> &RailWords {
        &self.rail_words
    }

    /// The transaction with what its rail has said in its own words.
    #[must_use]
    pub fn said_by_rail(mut self, words: &RailWords) -> Self {
        self.rail_words = self.rail_words.followed_by(words);
        self
    }

    /// The id of the latest request that has changed it, for the operator's log. A client may have
    /// chosen it.
    pub fn request(&self) -> Option<&str> {
        self.request.as_deref()
    }

    /// The transaction as a request has changed it; as it was if a job has.
    #[must_use]
    pub fn requested_by(mut self, request: Option<&str>) -> Self {
        if let Some(request) = request {
            self.request = Some(request.to_owned());
        }
        self
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

    /// Whether it comes from another institution over Lightning.
    pub fn is_from_peer(&self) -> bool {
        let settlement = self.draft.uma.as_ref().map(|uma| uma.settlement);
        self.draft.direction == Direction::Incoming
            && matches!(settlement, Some(Settlement::Lightning { .. }))
    }

    /// The transaction with the facts about the payee that the payer's institution is given.
    #[must_use]
    pub fn giving(mut self, given: Facts) -> Self {
        if let Some(uma) = &mut self.draft.uma {
            uma.payee.given = given;
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
            Event::Returned(reason) => {
                (self.failure, self.reason) = (Some(FailureReason::OfframpFailed), Some(reason));
            }
            Event::Refused(reason) | Event::Kept(reason) => self.reason = Some(reason),
            Event::Settled => self.reason = None,
            Event::Quoted | Event::Started | Event::Refunded | Event::Expired => {}
        }
        self.history.push(Step { status: to, at: now.max(before) });
        Ok(Moved::new(from.name(), self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::currency::Currency;
    use crate::erasure::Erase as _;
    use crate::uma_address::UmaAddress;
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
            rail_request: RailRequest::default(),
        };
        Transaction::pending(draft)
    }

    /// A payment within this server from an address to itself.
    fn between(address: UmaAddress) -> Uma {
        Uma {
            sender: address.clone(),
            receiver: address,
            counterparty: Facts::new(),
            settlement: Settlement::Here { outgoing: None },
            rate_details: None,
            conversion: None,
            payee: AboutPayee::default(),
            callback: None,
        }
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
    fn an_earlier_version_is_what_it_was() {
        let first = transaction();
        let at = |millis| Timestamp::from_millis(millis);
        let next = |transaction: &Transaction, event, millis| {
            transaction.clone().apply(event, at(millis)).expect("an arrow").into_now()
        };
        let second = next(&first, Event::Started, 1);
        let third = next(&second, Event::Settled, 2);
        let returned = next(&third, Event::Returned(StatusReason::RETURNED), 3);
        for (number, version) in (1..).zip([&first, &second, &third, &returned]) {
            assert_eq!(version.version(), number);
            assert_eq!(returned.at_version(number), *version);
        }
        assert_eq!(returned.at_version(9), returned);
    }

    #[test]
    fn what_erasure_takes_out_are_the_texts_unless_it_is_of_addresses() {
        let made = transaction();
        let name = made.draft.platform_customer_id.clone();
        let address = || UmaAddress::parse("$ada@uma.test").expect("an address");
        let currency = Currency::from_code("USD").expect("known currency");
        let mut full = made.clone();
        full.draft.description = Some("rent".to_owned());
        full.draft.rail_request.remittance = Some("May".to_owned());
        full.draft.rail_request.purpose = Some("GIFT");
        full.rail_words = RailWords::new(Some("AC04"), Some("closed"), Some("TX-1"));
        assert_eq!(made.only_texts(), Some(vec![&*name]));
        assert_eq!(full.only_texts(), Some(vec![&*name, "rent", "May", "closed", "TX-1"]));
        let erased = full.erased();
        let mut without = made.clone();
        without.draft.rail_request.purpose = Some("GIFT");
        assert_eq!(erased.only_texts(), without.erased().only_texts(), "nothing else is left");
        assert_eq!(erased, without.erased());
        let tells: [fn(&mut Transaction, UmaAddress, Currency); 3] = [
            |it, address, _| it.draft.source = Some(Source::Uma { address }),
            |it, address, currency| it.draft.destination = Destination::Uma { address, currency },
            |it, address, _| it.draft.uma = Some(between(address)),
        ];
        for change in tells {
            let mut changed = made.clone();
            change(&mut changed, address(), currency);
            assert_ne!(changed.erased(), made.erased());
            assert_eq!(changed.only_texts(), None, "{changed:?}");
        }
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
            draft.uma = Some(between(address));
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
    fn later_words_of_a_rail_replace_earlier_ones_and_its_reference_stays() {
        let taken = RailWords::new(Some("ACSP"), None, Some("TX-1"));
        let refused = RailWords::new(Some("AC04"), Some("Closed account"), None);
        let words = transaction().said_by_rail(&taken).said_by_rail(&refused);
        let words = words.said_by_rail(&RailWords::NONE).rail_words().clone();
        assert_eq!(words, RailWords::new(Some("AC04"), Some("Closed account"), Some("TX-1")));
        let at = Timestamp::from_millis(1);
        let reason = StatusReason::RETURNED.in_words_of(&words);
        let returned = in_status(Status::Completed).apply(Event::Returned(reason), at);
        let returned = returned.expect("an arrow").into_now();
        let reason = returned.reason().expect("why it came back");
        assert_eq!((reason.code(), reason.message()), ("AC04", "Closed account"));
    }

    #[test]
    fn an_unknown_outcome_is_a_reason_until_it_is_known() {
        let at = Timestamp::from_millis(1);
        let started = transaction().apply(Event::Started, at).expect("an arrow").into_now();
        let undecided = started.undecided();
        assert!(undecided.is_undecided());
        let restored = Transaction::restore(
            undecided.draft.clone(),
            undecided.history.clone(),
            None,
            undecided.reason.clone(),
            (None, RailWords::NONE),
        );
        assert_eq!(restored, Ok(undecided.clone()));
        assert_eq!(undecided.clone().ordered_over(Rail::Ach).reason(), None);
        let settled = undecided.clone().apply(Event::Settled, at).expect("an arrow").into_now();
        assert_eq!((settled.reason(), settled.is_undecided()), (None, false));
        let refused = Event::Refused(StatusReason::REJECTED_BY_RECEIVER);
        let refused = undecided.apply(refused, at).expect("an arrow").into_now();
        assert_eq!(refused.reason(), Some(&StatusReason::REJECTED_BY_RECEIVER));
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
                (None, RailWords::NONE),
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
        assert!(
            Transaction::restore(
                transaction().draft,
                vec![late],
                None,
                None,
                (None, RailWords::NONE)
            )
            .is_err()
        );
        let rejected = |reason| {
            let steps = [Pending, Rejected].map(step).to_vec();
            Transaction::restore(transaction().draft, steps, None, reason, (None, RailWords::NONE))
        };
        assert!(rejected(Some(StatusReason::REJECTED_BY_RECEIVER)).is_ok());
        assert!(rejected(None).is_err());
    }
}
