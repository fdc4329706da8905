//! Signed texts and signatures, against vectors of the reference implementation.

use k256::ecdsa::Signature;
use proptest::prelude::*;
use uma::error::ErrorCode;
use uma::signature::{InvalidKey, SigningKey, VerifyingKey, payload};

use crate::support::{address, alice, bob, refused, signing, stamp};

/// Made with uma-sdk 1.6.0 (Python) and the key 0x11...
const VECTORS: [(&str, &str); 2] = [
    (
        "$bob@vasp2.com|1234|1700000000",
        "30440220179b917d79e835d25c32c27eb35248cb34935cf113f7cd326db83c73683f6e0c\
         02203776439baecb17a4a73c2b43c195c58ba3a10bbe5e2f6653782c1cc921d9f3f8",
    ),
    (
        "$alice@vasp1.com|$bob@vasp2.com|1234|1700000000",
        "30440220599d729dc03179c1a36a1a656b796e52cc770a597f5733e8ba4a74528ef7f4bf\
         02202a235bd1cdbf7149e786b7b0da72f5a33fc8d41fc6e4b5a26feea373ba810768",
    ),
];

#[test]
fn signatures_are_those_of_the_reference_implementation() {
    for (text, signature) in VECTORS {
        assert_eq!(signing(0x11).sign(text), signature, "{text}");
        signing(0x11).verifying_key().verify(text, signature).expect(text);
    }
}

#[test]
fn each_message_signs_its_fields() {
    let stamp = stamp();
    let mixed = address("$Bob@VASP2.com");
    for (signed, expected) in [
        (payload::lookup_request(&bob(), &stamp), "$bob@vasp2.com|1234|1700000000"),
        (payload::lookup_response(&mixed, &stamp), "$Bob@VASP2.com|1234|1700000000"),
        (payload::pay_request(&alice(), &stamp), "$alice@vasp1.com|1234|1700000000"),
        (
            payload::pay_response(&alice(), &bob(), &stamp),
            "$alice@vasp1.com|$bob@vasp2.com|1234|1700000000",
        ),
        (payload::post_transaction(&stamp), "1234|1700000000"),
        (
            payload::lookup_request(&address("$bob@127.0.0.1:9102"), &stamp),
            "$bob@127.0.0.1:9102|1234|1700000000",
        ),
    ] {
        assert_eq!(signed, expected);
    }
}

#[test]
fn a_high_s_is_accepted() {
    let key = signing(0x11);
    let low = hex::decode(key.sign("text")).expect("hexadecimal");
    let low = Signature::from_der(&low).expect("DER");
    let high = Signature::from_scalars(low.r().to_bytes(), (-*low.s()).to_bytes()).expect("sound");
    assert_ne!(low, high);
    let high = hex::encode(high.to_der().as_bytes());
    key.verifying_key().verify("text", &high).expect("a high S");
}

#[test]
fn signatures_of_others_are_refused() {
    let (text, signature) = VECTORS[0];
    let key = signing(0x11).verifying_key();
    let cases = [
        (signing(0x12).verifying_key(), text, signature, "not the peer's"),
        (key.clone(), "$bob@vasp2.com|1234|1700000001", signature, "not the peer's"),
        (key.clone(), text, VECTORS[1].1, "not the peer's"),
        (key.clone(), text, "", "not DER"),
        (key.clone(), text, "30", "not DER"),
        (key.clone(), text, "zz", "hexadecimal"),
        (key, text, "MEQCIBebkX156DXSXDLC", "hexadecimal"),
    ];
    for (key, text, signature, reason) in cases {
        refused(key.verify(text, signature), ErrorCode::InvalidSignature, reason);
    }
}

#[test]
fn secret_keys_are_read_whole_and_never_shown() {
    let key = SigningKey::from_hex(&"11".repeat(32)).expect("a key");
    assert_eq!(key.to_bytes()[..], [0x11; 32]);
    assert_eq!(format!("{key:?}"), "SigningKey(..)");
    let order = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";
    let zero = "00".repeat(32);
    for wrong in [order, zero.as_str(), "11", &"11".repeat(31), &"11".repeat(33), "", "zz"] {
        assert_eq!(SigningKey::from_hex(wrong).err(), Some(InvalidKey::Secret), "{wrong}");
    }
}

#[test]
fn public_keys_are_points_of_the_curve() {
    let key = signing(0x11).verifying_key();
    let text = key.to_hex();
    assert_eq!((text.len(), &text[..2]), (130, "04"));
    assert_eq!(VerifyingKey::from_hex(&text), Ok(key));
    let off_the_curve = format!("{}00", &text[..128]);
    for wrong in ["", "04", &text[..128], off_the_curve.as_str(), "zz"] {
        assert_eq!(VerifyingKey::from_hex(wrong), Err(InvalidKey::Public), "{wrong}");
    }
}

proptest! {
    #[test]
    fn every_signature_has_a_low_s_and_is_verified(text in ".{0,60}", byte in 1_u8..=254) {
        let signature = signing(byte).sign(&text);
        prop_assert!(signing(byte).verifying_key().verify(&text, &signature).is_ok());
        prop_assert_eq!(signature.to_lowercase(), signature.clone());
        let der = hex::decode(&signature).expect("hexadecimal");
        let signature = Signature::from_der(&der).expect("DER");
        prop_assert_eq!(signature.normalize_s(), signature);
    }
}
