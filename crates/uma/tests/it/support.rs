//! Sound messages, and ways to spoil one field of them.

use std::collections::BTreeMap;

use domain::time::Timestamp;
use serde_json::Value;
use uma::address::{Address, PeerDomain};
use uma::currency::{Currency, CurrencyCode};
use uma::data::{Demands, Facts};
use uma::error::{ErrorCode, Refusal};
use uma::kyc_status::KycStatus;
use uma::lnurlp::{LookupRequest, LookupResponse, ReceiverCompliance};
use uma::nonce::{Nonce, Stamp};
use uma::pay_request::{Amount, PayRequest, PayerCompliance, PayerData};
use uma::pay_response::{Converted, PayResponse, PayeeCompliance};
use uma::post_transaction::{Outcome, PostTransaction, Utxo};
use uma::signature::SigningKey;
use uma::version::{Form, Version};

/// When every sample was signed, in unix seconds.
pub const SIGNED_AT: i64 = 1_700_000_000;

pub fn now() -> Timestamp {
    Timestamp::from_millis(SIGNED_AT * 1_000)
}

/// The key whose 32 bytes are all `byte`: 1 to 254, since 255 is above the order of the curve.
pub fn signing(byte: u8) -> SigningKey {
    SigningKey::from_bytes(&[byte; 32]).expect("small enough for the curve")
}

pub fn stamp() -> Stamp {
    Stamp { nonce: Nonce::parse("1234").expect("digits"), at_seconds: SIGNED_AT }
}

pub fn address(text: &str) -> Address {
    Address::parse(text).expect(text)
}

pub fn peer(text: &str) -> PeerDomain {
    PeerDomain::parse(text).expect(text)
}

pub fn code(text: &str) -> CurrencyCode {
    CurrencyCode::parse(text).expect(text)
}

pub fn alice() -> Address {
    address("$alice@vasp1.com")
}

pub fn bob() -> Address {
    address("$bob@vasp2.com")
}

pub fn facts(entries: &[(&str, &str)]) -> Facts {
    Facts(entries.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect())
}

pub fn demands(entries: &[(&str, bool)]) -> Demands {
    let entries = entries.iter().map(|(key, mandatory)| ((*key).to_owned(), *mandatory));
    Demands(entries.collect::<BTreeMap<_, _>>())
}

pub fn lookup_request() -> LookupRequest {
    LookupRequest::new(&signing(0x11), bob(), Version::CURRENT, peer("vasp1.com"), true, stamp())
}

pub fn dollars() -> Currency {
    Currency {
        code: code("USD"),
        name: "US Dollar".into(),
        symbol: "$".into(),
        msat_per_unit: "14971.123456789".parse().expect("decimal"),
        decimals: 2,
        min_minor: 1,
        max_minor: 1_000_000,
    }
}

pub fn lookup_response(version: Version) -> LookupResponse {
    let status = KycStatus::Verified;
    LookupResponse {
        version,
        callback: "https://vasp2.com/uma/payreq/7".into(),
        min_sendable_msat: 1_000,
        max_sendable_msat: 5_000_000_000,
        metadata: r#"[["text/plain","Pay Bob"],["text/identifier","$bob@vasp2.com"]]"#.into(),
        currencies: vec![dollars()],
        left_out: Vec::new(),
        payer_demands: demands(&[("birthDate", false), ("name", true)]),
        comment_max: Some(140),
        compliance: ReceiverCompliance::new(&signing(0x11), bob(), status, true, stamp()),
    }
}

pub fn pay_request(form: Form) -> PayRequest {
    let status = KycStatus::Verified;
    let mut compliance = PayerCompliance::new(&signing(0x11), &alice(), status, stamp());
    compliance.utxos = vec!["abc:0".into()];
    compliance.node_pub_key = Some("02ab".into());
    compliance.encrypted_travel_rule_info = Some("04dd".into());
    compliance.travel_rule_format = Some("IVMS@101.2023".into());
    compliance.utxo_callback = Some("https://vasp1.com/uma/post/9".into());
    let payee_demands = match form {
        Form::V0 => Demands::default(),
        Form::V1 => demands(&[("name", true), ("email", false)]),
    };
    PayRequest {
        form,
        amount: Amount::Receiving { minor: 595, code: code("USD") },
        receiving: code("USD"),
        payer: PayerData {
            identifier: alice(),
            facts: facts(&[("name", "Alice"), ("birthDate", "1990-01-31")]),
            compliance,
        },
        payee_demands,
        comment: Some("For lunch".into()),
        invoice_uuid: Some("5a6e2f0c".into()),
    }
}

pub fn pay_response(form: Form) -> PayResponse {
    let compliance = match form {
        Form::V0 => PayeeCompliance::unsigned(),
        Form::V1 => PayeeCompliance::new(&signing(0x11), &alice(), &bob(), stamp()),
    };
    PayResponse {
        invoice: "lnbc1".into(),
        converted: Converted {
            amount_minor: Some(595),
            code: code("USD"),
            decimals: 2,
            msat_per_unit: "14971.1".parse().expect("decimal"),
            fee_msat: 120,
        },
        payee: Some(bob()),
        facts: facts(&[("name", "Bob")]),
        compliance: PayeeCompliance {
            utxos: vec!["def:1".into()],
            node_pub_key: Some("03cd".into()),
            utxo_callback: Some("https://vasp2.com/uma/post/3".into()),
            ..compliance
        },
    }
}

pub fn post_transaction() -> PostTransaction {
    let utxos = vec![Utxo { utxo: "abc:0".into(), amount_msat: 8_907_924 }];
    let outcome = Outcome::Failed { code: Some("QUOTE_EXPIRED".into()), reason: None };
    PostTransaction::new(&signing(0x11), peer("vasp1.com"), utxos, Some(outcome), stamp())
}

/// The message with the value at `pointer` replaced, or left out where there is none.
pub fn spoiled(json: &str, pointer: &str, value: Option<Value>) -> Vec<u8> {
    let mut message: Value = serde_json::from_str(json).expect("a sound message");
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = message.pointer_mut(parent).expect(pointer);
    let parent = parent.as_object_mut().expect("the parent is an object");
    match value {
        Some(value) => parent.insert(name.into(), value),
        None => parent.remove(name),
    };
    message.to_string().into_bytes()
}

/// The code and the reason of a refusal.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(read: Result<T, Refusal>, code: ErrorCode, reason_part: &str) {
    let refusal = read.expect_err(reason_part);
    assert_eq!(refusal.code, code, "{refusal}");
    assert!(refusal.reason.contains(reason_part), "'{reason_part}' is not in '{refusal}'");
}
