//! Payments under way that hold no money of their customer's: what a customer who is to be deleted
//! must not have, besides money. A unit decides by it, so that no payment begins meanwhile.
//!
//! Those of other institutions are counted with their institution too, which bounds them.

use domain::id::CustomerId;
use domain::transaction::{AccountRef, Direction, Source, Status, Transaction};
use domain::uma_address::UmaDomain;
use domain::uma_peer::UmaPeer;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};
use crate::uma_peers::peer_key;
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
        if change != 0 && payment.is_from_peer() {
            self.count_of_peer(payment, change > 0)?;
        }
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

    /// Counts a payment with the institution that makes it, if that is known. A payment that an
    /// earlier release has begun was not counted, so that the count may be too low for a while.
    fn count_of_peer(&mut self, payment: &Transaction, begins: bool) -> Result<(), StoreError> {
        let draft = payment.draft();
        let sender = draft.uma.as_ref().map(|uma| UmaDomain::parse(uma.sender.domain()));
        let Some(Ok(domain)) = sender else { return Ok(()) };
        if let Some(peer) = self.get::<UmaPeer>(&peer_key(draft.platform, &domain))? {
            let open_payments = match begins {
                true => peer.open_payments.saturating_add(1),
                false => peer.open_payments.saturating_sub(1),
            };
            self.put(UmaPeer { open_payments, ..UmaPeer::clone(&peer) });
        }
        Ok(())
    }
}
