//! The text that each message signs: its fields joined by `|`. The protocol's documents write `+`
//! between them; every implementation uses `|`.

use crate::address::Address;
use crate::nonce::Stamp;

/// A lookup, signed by the sending institution.
pub fn lookup_request(receiver: &Address, stamp: &Stamp) -> String {
    format!("{}|{}|{}", receiver.as_written(), stamp.nonce, stamp.at_seconds)
}

/// The answer to a lookup, signed by the receiving institution.
pub fn lookup_response(receiver: &Address, stamp: &Stamp) -> String {
    format!("{}|{}|{}", receiver.as_written(), stamp.nonce, stamp.at_seconds)
}

/// A pay request, signed by the sending institution.
pub fn pay_request(payer: &Address, stamp: &Stamp) -> String {
    format!("{}|{}|{}", payer.as_written(), stamp.nonce, stamp.at_seconds)
}

/// The answer to a pay request of version 1, signed by the receiving institution.
pub fn pay_response(payer: &Address, payee: &Address, stamp: &Stamp) -> String {
    let (payer, payee) = (payer.as_written(), payee.as_written());
    format!("{payer}|{payee}|{}|{}", stamp.nonce, stamp.at_seconds)
}

/// A post-transaction callback of version 1, signed by the institution that calls.
pub fn post_transaction(stamp: &Stamp) -> String {
    format!("{}|{}", stamp.nonce, stamp.at_seconds)
}
