//! The post-transaction callback.

use serde_json::{Value, json};
use uma::error::ErrorCode;
use uma::post_transaction::{Outcome, PostTransaction};

use crate::support::{post_transaction, refused, signing, spoiled};

#[test]
fn a_callback_has_this_form_and_is_read_back() {
    let callback = post_transaction();
    let json = callback.to_json();
    let body: Value = serde_json::from_str(&json).expect("JSON");
    let expected = json!({
        "utxos": [{"utxo": "abc:0", "amountMsats": 8_907_924}],
        "vaspDomain": "vasp1.com",
        "transactionStatus": "FAILED",
        "errorCode": "QUOTE_EXPIRED",
        "signature": signing(0x11).sign("1234|1700000000"),
        "signatureNonce": "1234",
        "signatureTimestamp": 1_700_000_000,
    });
    assert_eq!(body, expected);
    assert_eq!(PostTransaction::read(json.as_bytes()), Ok(callback));
}

#[test]
fn the_outcome_may_be_unsaid() {
    let json = post_transaction().to_json();
    let outcome = |status: Option<Value>| {
        let read = PostTransaction::read(&spoiled(&json, "/transactionStatus", status));
        read.expect("sound").outcome
    };
    assert_eq!(outcome(Some(json!("COMPLETED"))), Some(Outcome::Completed));
    assert_eq!(outcome(Some(json!("LATER"))), None);
    assert_eq!(outcome(None), None);
    let read = PostTransaction::read(&spoiled(&json, "/utxos", None)).expect("sound");
    assert_eq!(read.utxos, []);
}

#[test]
fn a_callback_is_of_the_institution_that_calls() {
    let callback = post_transaction();
    callback.verify(&signing(0x11).verifying_key()).expect("signed");
    let other = signing(0x12).verifying_key();
    refused(callback.verify(&other), ErrorCode::InvalidSignature, "not the peer's");
}

#[test]
fn unreadable_callbacks_are_refused_by_field() {
    let json = post_transaction().to_json();
    let check = |pointer: &str, value: Option<Value>, reason: &str| {
        let read = PostTransaction::read(&spoiled(&json, pointer, value));
        refused(read, ErrorCode::ParseUtxoCallbackError, reason);
    };
    for name in ["vaspDomain", "signature", "signatureNonce", "signatureTimestamp"] {
        check(&format!("/{name}"), None, &format!("{name} is missing"));
    }
    check("/vaspDomain", Some(json!("a b")), "vaspDomain is wrong");
    check("/utxos", Some(json!({})), "utxos must be a list");
    check("/utxos", Some(json!(["abc:0"])), "utxos[0] must be an object");
    check("/utxos", Some(json!([{"utxo": "a"}])), "utxos[0].amountMsats is missing");
    check("/utxos", Some(json!([{"utxo": "a", "amountMsats": -1}])), "negative");
}
