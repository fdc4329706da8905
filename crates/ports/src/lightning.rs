//! Lightning: invoices of ours, and reading those of others (BOLT 11). Paying them is a rail's.

use domain::id::TransactionId;
use domain::money::Money;
use domain::time::Timestamp;

/// How long an invoice of ours can be paid, in milliseconds: the payer confirms a quote within it,
/// and the rate in it is ours to keep.
pub const INVOICE_MILLIS: i64 = 10 * 60_000;

/// An invoice that another institution shall pay.
#[derive(Debug, Clone, Copy)]
pub struct NewInvoice<'a> {
    /// The incoming payment that it is for. The same payment has the same preimage.
    pub payment: TransactionId,
    /// Its amount, in [`domain::currency::Currency::MSAT`].
    pub msat: Money,
    /// The bytes that it commits to by their SHA-256.
    pub description: &'a [u8],
    /// When it is made, by the server's clock.
    pub made_at: Timestamp,
    /// From when on it cannot be paid, by the server's clock.
    pub expires_at: Timestamp,
}

/// The contents of an invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoice {
    /// SHA-256 of the preimage, which only who was paid gives out.
    pub payment_hash: [u8; 32],
    /// Its amount in [`domain::currency::Currency::MSAT`].
    pub msat: Money,
    /// From when on it cannot be paid, by the server's clock.
    pub expires_at: Timestamp,
    /// The node that it pays: a compressed point in hexadecimal.
    pub node: String,
    /// Bytes that the payee's node wrote into it for itself (`payment_metadata`).
    pub metadata: Vec<u8>,
}

/// Why a text is no invoice that can be paid from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInvoice {
    /// It is no BOLT 11 invoice, or its signature is wrong.
    #[error("is not a BOLT 11 invoice")]
    Unreadable,
    /// It is for another network than ours.
    #[error("is an invoice of another Bitcoin network")]
    Network,
    /// It leaves its amount open, or names one that no payment may have.
    #[error("has no amount that can be paid")]
    Amount,
    /// It pays a node to which ours has no channel.
    #[error("pays a Lightning node that ours has no channel with")]
    NoChannel,
}

/// A Lightning node of ours.
pub trait Lightning: Send + Sync {
    /// The node: a compressed point in hexadecimal.
    fn node(&self) -> String;

    /// Makes an invoice. The same arguments give the same invoice; nothing if there is none for
    /// such an amount.
    fn create_invoice(&self, new: &NewInvoice<'_>) -> Option<String>;

    /// The preimage of an invoice of ours. It is given out only when the money has come: it is
    /// the payer's proof that the invoice was paid. Nothing where the network itself gives it out.
    fn preimage(&self, payment: TransactionId) -> Option<[u8; 32]>;

    /// The payment hash of the invoice of a payment.
    fn payment_hash(&self, payment: TransactionId) -> [u8; 32];

    /// Reads an invoice of anybody on the network.
    fn read_invoice(&self, text: &str) -> Result<Invoice, InvalidInvoice>;
}
