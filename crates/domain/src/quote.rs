//! Quotes: priced offers with a locked rate (specification 2.5, 3.2; contract 6.9).

use crate::clock::is_from_ahead;
use crate::id::{CustomerId, LookupId, Owner, PlatformId, QuoteId, TransactionId};
use crate::money::Money;
use crate::pricing::{Locked, Price, PriceError, price_with};
use crate::rate_basis::RateBasis;
use crate::time::Timestamp;
use crate::transaction::{Destination, Facts, RateDetails, Source};
use crate::transition::{IllegalTransition, Moved, arrows_of};
use crate::uma_address::UmaAddress;

/// Status of a quote (specification 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Open to be executed or funded.
    Pending,
    /// Its transfer is under way.
    Processing,
    /// Its transfer was delivered.
    Completed,
    /// Its transfer could not be made.
    Failed,
    /// Its time was over.
    Expired,
}

impl Status {
    /// Every status, in the order of the specification.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Processing, Self::Completed, Self::Failed, Self::Expired];

    /// The name that the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Processing => "PROCESSING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Expired => "EXPIRED",
        }
    }

    /// The status with this API name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Where the event leads from this status, if the machine has an arrow for it.
    pub fn after(self, event: Event) -> Option<Self> {
        arrow(self, event)
    }

    /// Whether the machine has an arrow from this status to `next`.
    pub fn may_become(self, next: Self) -> bool {
        Event::ALL.into_iter().any(|event| self.after(event) == Some(next))
    }
}

/// Events of a quote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The client confirmed it, or the matching deposit arrived.
    Executed,
    /// The transfer was delivered.
    Delivered,
    /// The transfer could not be made, or the deposit did not match.
    Failed,
    /// The time is over.
    Expired,
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 4] = [Self::Executed, Self::Delivered, Self::Failed, Self::Expired];

    /// The event's name in documents and refusals.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Expired => "expired",
        }
    }
}

/// The arrows of the machine: the one table that [`Quote::apply`], `verify` and the documents
/// share.
fn arrow(from: Status, event: Event) -> Option<Status> {
    use Status::{Completed, Expired, Failed, Pending, Processing};
    match (from, event) {
        (Pending, Event::Executed) => Some(Processing),
        (Pending, Event::Expired) => Some(Expired),
        (Processing, Event::Delivered) => Some(Completed),
        (Pending | Processing, Event::Failed) => Some(Failed),
        (
            Pending | Processing | Completed | Failed | Expired,
            Event::Executed | Event::Delivered | Event::Failed | Event::Expired,
        ) => None,
    }
}

/// How a UMA address is reached that a quote pays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// It is a customer of this server.
    Here {
        /// The customer.
        customer: CustomerId,
    },
    /// Its institution has given an invoice, which is paid over Lightning.
    Lightning {
        /// The invoice.
        invoice: String,
        /// Its amount, in millisatoshi.
        msat: Money,
    },
}

/// UMA data of a quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uma {
    /// The lookup that it was made on.
    pub lookup: LookupId,
    /// The address of the payer.
    pub sender: UmaAddress,
    /// Facts about the payer for the receiver's side.
    pub payer: Facts,
    /// How the receiver is reached.
    pub route: Route,
}

/// The draft of a quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// System id.
    pub id: QuoteId,
    /// The platform.
    pub platform: PlatformId,
    /// The sender.
    pub owner: Owner,
    /// Its transaction, which exists from the quote's creation.
    pub transaction: TransactionId,
    /// Where money comes from.
    pub source: Source,
    /// Where it goes.
    pub destination: Destination,
    /// Which side the client locked.
    pub locked: Locked,
    /// Its price.
    pub price: Price,
    /// Fee parts as shown.
    pub rate_details: RateDetails,
    /// The basis of its rate.
    pub basis: RateBasis,
    /// Until when it can be executed or funded.
    pub expires_at: Timestamp,
    /// The purpose of the payment, one of [`crate::transaction::PURPOSES`].
    pub purpose: Option<&'static str>,
    /// Its UMA data, if it pays a UMA address.
    pub uma: Option<Uma>,
}

/// A priced offer, with a status that only [`Quote::apply`] changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    draft: Draft,
    history: Vec<Step>,
}

/// One step of a quote's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The status that it reached.
    pub status: Status,
    /// When.
    pub at: Timestamp,
}

/// A stored quote whose parts contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {what}")]
pub struct Inconsistent {
    /// The quote.
    pub id: QuoteId,
    /// The fault.
    pub what: String,
}

impl Quote {
    /// A new quote, `PENDING` since its id was drawn.
    pub fn pending(draft: Draft) -> Self {
        let first = Step { status: Status::Pending, at: draft.id.created_at() };
        Self { draft, history: vec![first] }
    }

    /// Puts a stored quote together again and checks what the machine guarantees. For the store
    /// only.
    pub fn restore(draft: Draft, history: Vec<Step>) -> Result<Self, Inconsistent> {
        let first = Step { status: Status::Pending, at: draft.id.created_at() };
        if history.first() != Some(&first) {
            let what = "does not start as PENDING when its id was drawn".to_owned();
            return Err(Inconsistent { id: draft.id, what });
        }
        for pair in history.windows(2) {
            let (from, to) = (pair[0].status, pair[1].status);
            if !from.may_become(to) {
                let what = format!("went from {} to {}", from.name(), to.name());
                return Err(Inconsistent { id: draft.id, what });
            }
        }
        Ok(Self { draft, history })
    }

    /// Its draft.
    pub fn draft(&self) -> &Draft {
        &self.draft
    }

    /// Prices it again from the figures that are kept: the same price, whenever it is asked.
    pub fn priced_again(&self) -> Result<Price, PriceError> {
        let Draft { price, locked, rate_details, basis, .. } = &self.draft;
        let rate = basis.rate(price.sent.currency(), price.received.currency())?;
        price_with(*locked, rate, price.fees, rate_details.counterparty_fee.minor())
    }

    /// System id.
    pub fn id(&self) -> QuoteId {
        self.draft.id
    }

    fn last(&self) -> Step {
        *self.history.last().expect("every constructor makes at least one step")
    }

    /// The present status.
    pub fn status(&self) -> Status {
        self.last().status
    }

    /// Every status it had, oldest first.
    pub fn history(&self) -> &[Step] {
        &self.history
    }

    /// How many statuses it had: the number of its latest change, from 1.
    pub fn version(&self) -> u32 {
        u32::try_from(self.history.len()).unwrap_or(u32::MAX)
    }

    /// When it was made.
    pub fn created_at(&self) -> Timestamp {
        self.history.first().map_or(self.last().at, |step| step.at)
    }

    /// When its status last changed.
    pub fn updated_at(&self) -> Timestamp {
        self.last().at
    }

    /// Whether its time is over at `now`. The rate of a quote that was made by a clock that was
    /// ahead would otherwise hold until that time comes.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.draft.expires_at || is_from_ahead(self.created_at(), now)
    }

    /// The one function that changes a quote's status. A clock that has stepped back does not take
    /// its history back: no step is before the last one.
    pub fn apply(mut self, event: Event, now: Timestamp) -> Result<Moved<Self>, IllegalTransition> {
        let Step { status: from, at: before } = self.last();
        let Some(to) = arrow(from, event) else {
            return Err(IllegalTransition {
                machine: "quote",
                state: from.name(),
                event: event.name(),
            });
        };
        self.history.push(Step { status: to, at: now.max(before) });
        Ok(Moved::new(from.name(), self))
    }
}

/// Every arrow, for people and tests.
pub(crate) fn arrows() -> Vec<[&'static str; 3]> {
    arrows_of(
        &Status::ALL,
        &Event::ALL,
        |from, event| from.after(*event),
        Status::name,
        |event| event.name(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::currency::Currency;
    use crate::id::{ExternalAccountId, InternalAccountId};
    use crate::money::{Receiving, Sending};
    use crate::pricing::Fees;
    use crate::rate_basis::{PriceRule, RateSource};
    use crate::transaction::AccountRef;
    use proptest::prelude::*;
    use rust_decimal::Decimal;
    use uuid::Uuid;

    fn draft(locked: Locked, price: Price, counterparty_fee: Money, basis: RateBasis) -> Draft {
        let platform = PlatformId::from_uuid(Uuid::from_u128(1 << 16));
        let (sending, currency) = (price.sent.currency(), price.received.currency());
        let owner = Owner::Platform(platform);
        let source = AccountRef::Internal(InternalAccountId::of(owner, sending));
        let account = AccountRef::External(ExternalAccountId::from_uuid(Uuid::from_u128(9)));
        let rate_details = RateDetails {
            fixed_fee: price.fixed_fee,
            variable_fee: price.variable_fee,
            variable_fee_rate: price.fees.variable_rate(),
            counterparty_fee,
            multipliers: None,
        };
        Draft {
            id: QuoteId::from_uuid(Uuid::from_u128(7)),
            platform,
            owner,
            transaction: TransactionId::from_uuid(Uuid::from_u128(8)),
            source: Source::Account { account: source, currency: sending },
            destination: Destination::Account { account, currency },
            locked,
            price,
            rate_details,
            basis,
            expires_at: Timestamp::from_millis(300_000),
            purpose: None,
            uma: None,
        }
    }

    proptest! {
        #[test]
        fn the_kept_figures_price_a_quote_again(
            mid in 1..1_000_000_000_000_i64,
            scale in 0..12_u32,
            spread in 0..100_000_i64,
            (fixed, variable) in (0..1_000_i64, 0..50_000_i64),
            (minor, is_sending) in (1..1_000_000_000_i64, any::<bool>()),
            counterparty in prop_oneof![Just(0), 0..100_i64],
            pair in prop::sample::select(vec![("USD", "EUR"), ("USD", "VND"), ("BTC", "USD")]),
        ) {
            let currency = |code| Currency::from_code(code).expect("known currency");
            let (sending, receiving) = (currency(pair.0), currency(pair.1));
            let basis = RateBasis {
                mid: Decimal::new(mid, scale),
                as_of: Timestamp::from_millis(0),
                source: RateSource::RatesFile,
                spread: Decimal::new(spread, 6),
                rule: PriceRule::Platform,
            };
            let Ok(rate) = basis.rate(sending, receiving) else { return Ok(()) };
            let fees = Fees::new(fixed, Decimal::new(variable, 6)).expect("fees");
            let amount = |currency| Money::positive(minor, currency).expect("an amount");
            let locked = match is_sending {
                true => Locked::Sending(Sending(amount(sending))),
                false => Locked::Receiving(Receiving(amount(receiving))),
            };
            let Ok(price) = price_with(locked, rate, fees, counterparty) else { return Ok(()) };
            let fee = Money::new(counterparty, receiving).expect("a fee");
            let quote = Quote::pending(draft(locked, price, fee, basis));
            prop_assert_eq!(quote.priced_again(), Ok(price));
            // Another figure gives another price: nothing else is looked at.
            let other = RateBasis { mid: basis.mid + basis.mid, ..basis };
            let other = Quote::pending(draft(locked, price, fee, other));
            prop_assert_ne!(other.priced_again(), Ok(price));
        }
    }

    #[test]
    fn the_arrows_are_those_of_the_contract() {
        let arrows: Vec<_> = arrows().iter().map(|arrow| arrow.join(" ")).collect();
        assert_eq!(
            arrows,
            [
                "PENDING executed PROCESSING",
                "PENDING failed FAILED",
                "PENDING expired EXPIRED",
                "PROCESSING delivered COMPLETED",
                "PROCESSING failed FAILED",
            ]
        );
    }
}
