//! Invoices of Lightning (BOLT 11): those of a node of ours, and reading those of others.
//!
//! Everything secret of a payment is derived from the node's secret and the payment's id. Nothing
//! is stored, so a restart and another server with the same secret make the same invoice. No
//! invoice is paid here.

use std::sync::LazyLock;
use std::time::Duration;

use bitcoin::hashes::{Hash as _, HashEngine as _, Hmac, HmacEngine, sha256};
use bitcoin::secp256k1::ecdsa::RecoverableSignature;
use bitcoin::secp256k1::{Message, Secp256k1, SecretKey, SignOnly};
use domain::currency::Currency;
use domain::id::TransactionId;
use domain::money::Money;
use domain::time::Timestamp;
use lightning_invoice::{Bolt11Invoice, InvoiceBuilder, PaymentSecret};
use ports::lightning::{InvalidInvoice, Invoice, Lightning, NewInvoice};

pub use bitcoin::Network;

/// Blocks that the last hop of a payment has, as nodes ask for usually.
pub(crate) const FINAL_EXPIRY_BLOCKS: u64 = 144;

/// Its tables take longer to make than a signature.
static SIGNER: LazyLock<Secp256k1<SignOnly>> = LazyLock::new(Secp256k1::signing_only);

/// Purposes of what is derived from a node's secret. None begins with another.
const NODE: &str = "node";
const PREIMAGE: &str = "preimage";
const PAYMENT_SECRET: &str = "payment secret";

/// A node of ours. Prints nothing of itself: the secret gives out every preimage.
pub struct LightningNode {
    secret: [u8; 32],
    key: SecretKey,
    network: Network,
}

impl LightningNode {
    /// The node of a secret. The secret must stay the same as long as invoices can be paid.
    pub fn new(secret: [u8; 32], network: Network) -> Self {
        let key = SecretKey::from_slice(&derive(&secret, NODE, &[]))
            .expect("one digest in 2^127 is no secret key of the curve");
        Self { secret, key, network }
    }

    /// Like [`LightningNode::new`], with a key that is not derived here.
    #[cfg(feature = "ldk")]
    pub(crate) const fn with_key(secret: [u8; 32], key: SecretKey, network: Network) -> Self {
        Self { secret, key, network }
    }

    /// The preimage of the invoice of a payment.
    pub(crate) fn preimage_of(&self, payment: TransactionId) -> [u8; 32] {
        self.derive(PREIMAGE, payment)
    }

    /// The payment hash of the invoice of a payment.
    pub(crate) fn hash_of(&self, payment: TransactionId) -> [u8; 32] {
        sha256::Hash::hash(&self.preimage_of(payment)).to_byte_array()
    }

    /// The invoice with this payment secret; `metadata` is what payers send along.
    pub(crate) fn write_invoice(
        &self,
        new: &NewInvoice<'_>,
        payment_secret: [u8; 32],
        metadata: Vec<u8>,
    ) -> Option<String> {
        let msat = u64::try_from(new.msat.minor()).ok().filter(|msat| *msat > 0)?;
        let made_at = seconds(new.made_at)?;
        let lifetime = seconds(new.expires_at)?.checked_sub(made_at)?;
        let invoice = InvoiceBuilder::new(self.network.into())
            .description_hash(sha256::Hash::hash(new.description))
            .payment_hash(sha256::Hash::from_byte_array(self.hash_of(new.payment)))
            .payment_secret(PaymentSecret(payment_secret))
            .basic_mpp()
            .payment_metadata(metadata)
            .duration_since_epoch(Duration::from_secs(made_at))
            .expiry_time(Duration::from_secs(lifetime))
            .min_final_cltv_expiry_delta(FINAL_EXPIRY_BLOCKS)
            .amount_milli_satoshis(msat);
        Some(invoice.build_signed(sign(&self.key)).ok()?.to_string())
    }

    fn derive(&self, purpose: &str, payment: TransactionId) -> [u8; 32] {
        derive(&self.secret, purpose, payment.uuid().as_bytes())
    }
}

impl Lightning for LightningNode {
    fn node(&self) -> String {
        self.key.public_key(&SIGNER).to_string()
    }

    fn create_invoice(&self, new: &NewInvoice<'_>) -> Option<String> {
        let payment_secret = self.derive(PAYMENT_SECRET, new.payment);
        self.write_invoice(new, payment_secret, new.payment.uuid().as_bytes().to_vec())
    }

    fn preimage(&self, payment: TransactionId) -> Option<[u8; 32]> {
        Some(self.preimage_of(payment))
    }

    fn payment_hash(&self, payment: TransactionId) -> [u8; 32] {
        self.hash_of(payment)
    }

    fn read_invoice(&self, text: &str) -> Result<Invoice, InvalidInvoice> {
        read_invoice(self.network, text)
    }
}

/// Reads an invoice of anybody on a network.
pub(crate) fn read_invoice(network: Network, text: &str) -> Result<Invoice, InvalidInvoice> {
    // The library checks the signature and the fields that BOLT 11 insists on.
    let invoice: Bolt11Invoice = text.parse().map_err(|_| InvalidInvoice::Unreadable)?;
    if invoice.currency() != lightning_invoice::Currency::from(network) {
        return Err(InvalidInvoice::Network);
    }
    let msat = invoice.amount_milli_satoshis().and_then(|msat| i64::try_from(msat).ok());
    let msat = msat.and_then(|msat| Money::positive(msat, Currency::MSAT).ok());
    Ok(Invoice {
        payment_hash: invoice.payment_hash().to_byte_array(),
        msat: msat.ok_or(InvalidInvoice::Amount)?,
        expires_at: end_of(&invoice),
        node: invoice.get_payee_pub_key().to_string(),
        metadata: invoice.payment_metadata().cloned().unwrap_or_default(),
    })
}

/// From when on an invoice of anybody on any network cannot be paid.
pub(crate) fn expiry(text: &str) -> Option<Timestamp> {
    text.parse::<Bolt11Invoice>().ok().as_ref().map(end_of)
}

/// An invoice may have an end that no clock reaches.
fn end_of(invoice: &Bolt11Invoice) -> Timestamp {
    let expires_at = invoice.expires_at().and_then(|end| i64::try_from(end.as_millis()).ok());
    Timestamp::from_millis(expires_at.unwrap_or(i64::MAX))
}

/// Signs an invoice with a node's key.
pub(crate) fn sign(key: &SecretKey) -> impl Fn(&Message) -> RecoverableSignature {
    move |hash| SIGNER.sign_ecdsa_recoverable(hash, key)
}

/// Whole seconds since 1970-01-01T00:00:00Z; nothing for instants before.
pub(crate) fn seconds(at: Timestamp) -> Option<u64> {
    u64::try_from(at.millis().div_euclid(1_000)).ok()
}

/// HMAC-SHA256 of purpose and subject.
fn derive(secret: &[u8; 32], purpose: &str, subject: &[u8]) -> [u8; 32] {
    let mut engine = HmacEngine::<sha256::Hash>::new(secret);
    engine.input(purpose.as_bytes());
    engine.input(subject);
    Hmac::<sha256::Hash>::from_engine(engine).to_byte_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE_AT: Timestamp = Timestamp::from_millis(1_763_683_200_500);

    fn node(network: Network) -> LightningNode {
        LightningNode::new([7; 32], network)
    }

    fn payment(last: u8) -> TransactionId {
        let text = format!("Transaction:019aa2f0-0000-7000-8000-0000000000{last:02x}");
        TransactionId::parse(&text).expect("an id")
    }

    fn new_invoice(last: u8, msat: i64) -> NewInvoice<'static> {
        NewInvoice {
            payment: payment(last),
            msat: Money::positive(msat, Currency::MSAT).expect("an amount"),
            description: b"[[\"text/plain\",\"Pay\"]]",
            made_at: MADE_AT,
            expires_at: MADE_AT.plus_millis(60_000),
        }
    }

    #[test]
    fn an_invoice_of_ours_is_read_as_it_was_made() {
        let node = node(Network::Regtest);
        for msat in [1, 999, 1_000, 123_456_789, 9_000_000_000_000_000] {
            let new = new_invoice(1, msat);
            let text = node.create_invoice(&new).expect("an invoice");
            let read = node.read_invoice(&text).expect("an invoice");
            let hash = sha256::Hash::hash(&node.derive(PREIMAGE, new.payment));
            assert_eq!(
                read,
                Invoice {
                    payment_hash: hash.to_byte_array(),
                    msat: new.msat,
                    expires_at: Timestamp::from_millis(1_763_683_260_000),
                    node: node.node(),
                    metadata: new.payment.uuid().as_bytes().to_vec(),
                }
            );
            assert_eq!(node.read_invoice(&text.to_uppercase()), Ok(read), "as in a QR code");
        }
        assert_eq!(node.node().len(), 66, "a compressed point");
    }

    #[test]
    fn an_invoice_has_the_fields_that_other_nodes_insist_on() {
        let text = node(Network::Regtest).create_invoice(&new_invoice(1, 5_000)).expect("invoice");
        let invoice: Bolt11Invoice = text.parse().expect("an invoice");
        let features = invoice.features().expect("features");
        assert!(features.requires_variable_length_onion() && features.requires_payment_secret());
        assert!(features.supports_basic_mpp());
        assert_eq!(invoice.min_final_cltv_expiry_delta(), FINAL_EXPIRY_BLOCKS);
        let described = sha256::Hash::hash(b"[[\"text/plain\",\"Pay\"]]").to_string();
        assert!(format!("{:?}", invoice.description()).contains(&described));
    }

    #[test]
    fn a_payment_has_one_preimage_and_its_own() {
        let ours = node(Network::Regtest);
        assert_eq!(ours.preimage(payment(1)), node(Network::Regtest).preimage(payment(1)));
        assert_ne!(ours.preimage(payment(1)), ours.preimage(payment(2)));
        let other = LightningNode::new([8; 32], Network::Regtest);
        assert_ne!(ours.preimage(payment(1)), other.preimage(payment(1)));
        assert_ne!(ours.node(), other.node());
        let first = new_invoice(1, 5_000);
        assert_eq!(ours.create_invoice(&first), ours.create_invoice(&first));
        assert_ne!(ours.create_invoice(&first), ours.create_invoice(&new_invoice(2, 5_000)));
    }

    #[test]
    fn an_invoice_that_is_over_before_it_is_made_is_not_made() {
        let new = NewInvoice { expires_at: MADE_AT.plus_millis(-1_000), ..new_invoice(1, 5_000) };
        assert_eq!(node(Network::Regtest).create_invoice(&new), None);
    }

    #[test]
    fn invoices_that_cannot_be_paid_from_here_are_refused() {
        let node = node(Network::Regtest);
        let main = LightningNode::new([7; 32], Network::Bitcoin);
        let elsewhere = main.create_invoice(&new_invoice(1, 5_000)).expect("an invoice");
        assert_eq!(node.read_invoice(&elsewhere), Err(InvalidInvoice::Network));
        let text = node.create_invoice(&new_invoice(1, 5_000)).expect("an invoice");
        let changed = text.replacen("lnbcrt50n", "lnbcrt60n", 1);
        assert_ne!(changed, text);
        for wrong in [changed.as_str(), &text[1..], "lnbcrt1", "", "ü"] {
            assert_eq!(node.read_invoice(wrong), Err(InvalidInvoice::Unreadable), "{wrong}");
        }
        let open = InvoiceBuilder::new(lightning_invoice::Currency::Regtest)
            .description("any amount".to_owned())
            .payment_hash(sha256::Hash::hash(b"hash"))
            .payment_secret(PaymentSecret([1; 32]))
            .duration_since_epoch(Duration::from_secs(1_763_683_200))
            .min_final_cltv_expiry_delta(FINAL_EXPIRY_BLOCKS);
        let huge = open.clone().amount_milli_satoshis(10_000_000_000_000_000);
        for invoice in [open, huge] {
            let text = invoice.build_signed(sign(&node.key)).expect("an invoice").to_string();
            assert_eq!(node.read_invoice(&text), Err(InvalidInvoice::Amount));
        }
    }
}
