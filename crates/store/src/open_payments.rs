//! Payments under way that hold no money of their customer's: what a customer who is to be deleted
//! must not have, besides money. A unit decides by it, so that no payment begins meanwhile.

use domain::id::CustomerId;
use domain::transaction::{AccountRef, Direction, Source, Status, Transaction};

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};
use crate::unit::Unit;

/// How many of these payments a customer has; there is no row for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenPayments {
    /// The customer.
    pub customer: CustomerId,
    /// How many.
    pub count: i64,
}

impl Record for OpenPayments {
    type Key = CustomerId;
    const TABLE: &'static str = "open_payments";
    const COLUMNS: &'static [&'static str] = &["customer", "count"];
    record_table!(open_payments);

    fn key(&self) -> CustomerId {
        self.customer
    }

    fn values(&self) -> Vec<Value> {
        vec![self.customer.into(), self.count.into()]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        Ok(Self { customer: row.id()?, count: row.int()? })
    }
}

/// Whether a payment is counted: it is being made, or its payee waits for its money or for the
/// platform's decision. One from an account has money set aside there while it is under way, by
/// which it is seen.
pub fn is_counted(payment: &Transaction) -> bool {
    let (draft, status) = (payment.draft(), payment.status());
    let is_incoming = draft.direction == Direction::Incoming;
    let holds_money =
        matches!(draft.source, Some(Source::Account { account: AccountRef::Internal(_), .. }));
    match is_incoming {
        true => status == Status::Processing || status == Status::Pending,
        false => status == Status::Processing && !holds_money,
    }
}

impl Unit<'_, '_> {
    /// Counts a payment that this unit adds or changes, and that was counted before or not.
    pub fn count_payment(
        &mut self,
        was_counted: bool,
        payment: &Transaction,
    ) -> Result<(), StoreError> {
        let change = i64::from(is_counted(payment)) - i64::from(was_counted);
        let Some(customer) = payment.draft().owner.customer().filter(|_| change != 0) else {
            return Ok(());
        };
        let known = self.get::<OpenPayments>(&customer)?;
        match known.map_or(0, |known| known.count) + change {
            0 => self.remove::<OpenPayments>(customer),
            count => self.put(OpenPayments { customer, count }),
        }
        Ok(())
    }
}
