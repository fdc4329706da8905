//! Invoices for deposits of the sandbox (BOLT 11): any wallet reads them, none can pay them.

use std::time::Duration;

use bitcoin::hashes::{Hash as _, sha256};
use bitcoin::secp256k1::SecretKey;
use lightning_invoice::{Currency as Network, InvoiceBuilder, PaymentSecret};
use ports::rail::Deposit;

use crate::lightning::{FINAL_EXPIRY_BLOCKS, seconds, sign};

/// How long an invoice without an amount can be paid: it stands on an account, which stays.
const ACCOUNT_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The key of the node for deposits. It may be public: nothing real is ever paid to it.
const NODE_KEY: [u8; 32] = [0x5b; 32];

const MSAT_PER_SAT: u64 = 1_000;

/// The invoice for a deposit, for its amount where it has one. The same deposit has the same one.
/// None is for more bitcoin than an invoice can name, which is about all that there will be.
pub(in crate::rails) fn of(deposit: &Deposit<'_>) -> Option<String> {
    let secret = sha256::Hash::hash(deposit.reference.as_bytes());
    let preimage = sha256::Hash::hash(secret.as_byte_array());
    let invoice = InvoiceBuilder::new(Network::Regtest)
        .description(deposit.reference.to_owned())
        .payment_hash(sha256::Hash::hash(preimage.as_byte_array()))
        .payment_secret(PaymentSecret(secret.to_byte_array()))
        .duration_since_epoch(Duration::from_secs(seconds(deposit.since).unwrap_or_default()))
        .min_final_cltv_expiry_delta(FINAL_EXPIRY_BLOCKS);
    let invoice = match deposit.amount {
        Some(amount) => {
            let sat = u64::try_from(amount.minor()).unwrap_or_default();
            invoice.amount_milli_satoshis(sat.checked_mul(MSAT_PER_SAT)?)
        }
        None => invoice.expiry_time(ACCOUNT_LIFETIME),
    };
    let key = SecretKey::from_slice(&NODE_KEY).ok()?;
    Some(invoice.build_signed(sign(&key)).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::currency::Currency;
    use domain::money::{AMOUNT_MAX, Money};
    use domain::time::Timestamp;
    use lightning_invoice::Bolt11Invoice;

    fn text(amount: Option<i64>) -> Option<String> {
        let currency = Currency::from_code("BTC").expect("known currency");
        let deposit = Deposit {
            currency,
            reference: "SY-0123456789ABCDEFGHJK",
            amount: amount.map(|minor| Money::positive(minor, currency).expect("amount")),
            since: Timestamp::from_millis(1_763_683_200_500),
        };
        assert_eq!(of(&deposit), of(&deposit));
        of(&deposit)
    }

    fn invoice(amount: Option<i64>) -> Bolt11Invoice {
        text(amount).expect("it can be named").parse().expect("an invoice")
    }

    #[test]
    fn an_invoice_is_for_the_amount_of_its_deposit() {
        for satoshi in [1, 100, 250_000, 1_800_000_000_000_000] {
            let invoice = invoice(Some(satoshi));
            assert_eq!(invoice.amount_milli_satoshis(), Some(satoshi as u64 * 1_000));
            assert_eq!(invoice.duration_since_epoch(), Duration::from_secs(1_763_683_200));
            assert!(invoice.check_signature().is_ok());
            assert_eq!(invoice.currency(), Network::Regtest);
        }
        assert_eq!(invoice(None).amount_milli_satoshis(), None);
        assert_eq!(text(Some(AMOUNT_MAX)), None);
    }
}
