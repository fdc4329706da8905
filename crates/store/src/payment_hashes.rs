//! Payment hashes that are claimed. An invoice is known by its hash, and a payee may give it again:
//! it is paid once because its hash is one payment's for ever, on all platforms.

use domain::id::TransactionId;

use crate::error::StoreError;
use crate::keyring::Keyring;
use crate::record::{Record, record_table};
use crate::sql::{Row, Value};

/// The claim of a payment to the hash of its invoice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaymentHash {
    /// SHA-256 of the preimage.
    pub hash: [u8; 32],
    /// The payment that the invoice is for.
    pub payment: TransactionId,
}

impl Record for PaymentHash {
    type Key = [u8; 32];
    const TABLE: &'static str = "payment_hashes";
    const COLUMNS: &'static [&'static str] = &["hash", "payment"];
    /// A hash is looked for once, when it is new.
    const CACHED_MAX: usize = 1_024;
    record_table!(payment_hashes);

    fn key(&self) -> [u8; 32] {
        self.hash
    }

    fn values(&self) -> Vec<Value> {
        vec![self.hash.into(), self.payment.into()]
    }

    fn read(row: &mut Row, _: &Keyring) -> Result<Self, StoreError> {
        let hash = row.bytes()?.try_into().map_err(|_| row.corrupt("not 32 bytes"))?;
        Ok(Self { hash, payment: row.id()? })
    }
}
