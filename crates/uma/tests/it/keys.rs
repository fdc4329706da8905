//! The documents of keys and of configuration.

use std::str::FromStr as _;
use std::time::Duration;

use domain::time::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use uma::configuration::Configuration;
use uma::error::ErrorCode;
use uma::keys::certificate::{InvalidLeaf, InvalidTerms, Leaf, Terms, self_signed};
use uma::keys::{KeyDocument, PeerKeys};
use uma::signature::VerifyingKey;
use uma::travel_rule::DecryptionKey;
use x509_cert::Certificate;
use x509_cert::builder::profile::cabf::Root;
use x509_cert::builder::{Builder as _, CertificateBuilder};
use x509_cert::der::asn1::UtcTime;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::time::{Time, Validity};

use crate::support::{SIGNED_AT, now, peer, refused, signing, spoiled};

fn seconds(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn decryption() -> DecryptionKey {
    DecryptionKey::from_bytes(&[0x22; 32]).expect("small enough for the curve")
}

fn terms() -> Terms {
    Terms {
        name: peer("vasp1.com"),
        serial: 7,
        not_before: seconds(SIGNED_AT - 60),
        not_after: seconds(SIGNED_AT + 86_400),
    }
}

fn document() -> KeyDocument {
    let expires_at = seconds(SIGNED_AT + 3_600);
    KeyDocument::new(&signing(0x11), &decryption(), &terms(), expires_at).expect("sound terms")
}

/// DER of a self-signed certificate of a key on P-256, the curve of most other certificates.
fn p256_certificate() -> Vec<u8> {
    let key = p256::ecdsa::SigningKey::from_slice(&[0x11; 32]).expect("a scalar");
    let time =
        |at| Time::UtcTime(UtcTime::from_unix_duration(Duration::from_secs(at)).expect("1970 on"));
    let name = Name::from_str("CN=vasp1.com,O=Vasp,C=AT").expect("a name");
    let public = SubjectPublicKeyInfoOwned::from_key(key.verifying_key()).expect("a key");
    let validity = Validity::new(time(1_600_000_000), time(1_800_000_000));
    let serial = SerialNumber::from(7_u32);
    let profile = Root::new(false, name).expect("a profile");
    CertificateBuilder::new(profile, serial, validity, public)
        .and_then(|builder| builder.build::<_, p256::ecdsa::DerSignature>(&key))
        .expect("a certificate")
        .to_der()
        .expect("DER")
}

#[test]
fn our_document_has_chains_and_bare_keys() {
    let body: Value = serde_json::from_str(&document().to_json()).expect("JSON");
    let bare = signing(0x11).verifying_key().to_hex();
    assert_eq!(body["signingPubKey"], json!(bare));
    assert_eq!(body["encryptionPubKey"], json!(decryption().encryption_key().to_hex()));
    assert_eq!(body["expirationTimestamp"], json!(SIGNED_AT + 3_600));
    for (chain, bare) in
        [("signingCertChain", "signingPubKey"), ("encryptionCertChain", "encryptionPubKey")]
    {
        assert_eq!(body[chain].as_array().map(Vec::len), Some(1));
        let der = hex::decode(body[chain][0].as_str().expect("hexadecimal")).expect("hexadecimal");
        assert_eq!(json!(hex::encode(Leaf::read(&der).expect("a leaf").point)), body[bare]);
    }
    assert_eq!(document(), document(), "the same arguments give the same bytes");
}

#[test]
fn our_document_is_read_back() {
    let keys = PeerKeys::read(document().to_json().as_bytes(), now()).expect("sound");
    assert_eq!(keys.verifying_key, signing(0x11).verifying_key());
    assert_eq!(keys.encryption_key, decryption().encryption_key());
    assert_eq!(keys.expires_at, Some(seconds(SIGNED_AT + 3_600)));
}

#[test]
fn a_certificate_is_signed_by_its_own_key() {
    let der = self_signed(&signing(0x11), &terms()).expect("sound terms");
    let certificate = Certificate::from_der(&der).expect("DER");
    let tbs = certificate.tbs_certificate();
    assert_eq!(tbs.issuer(), tbs.subject());
    assert_eq!(tbs.subject().to_string(), "CN=vasp1.com");
    assert_eq!(tbs.serial_number().as_bytes(), [7]);
    assert_eq!(tbs.signature().oid.to_string(), "1.2.840.10045.4.3.2", "ECDSA with SHA-256");
    // The payload of a signature is text here, so the key is asked directly.
    let key = k256::ecdsa::VerifyingKey::from_sec1_bytes(&Leaf::read(&der).expect("a leaf").point);
    let signature = certificate.signature().as_bytes().expect("whole bytes");
    let signature = k256::ecdsa::Signature::from_der(signature).expect("DER");
    use k256::ecdsa::signature::Verifier as _;
    key.expect("a point").verify(&tbs.to_der().expect("DER"), &signature).expect("self-signed");
}

#[test]
fn certificates_have_terms_that_can_be() {
    let check = |change: fn(&mut Terms), expected: Result<i64, InvalidTerms>| {
        let mut terms = terms();
        change(&mut terms);
        let der = self_signed(&signing(0x11), &terms);
        let end = der.map(|der| Leaf::read(&der).expect("a leaf").not_after_seconds);
        assert_eq!(end, expected);
    };
    check(|_| {}, Ok(SIGNED_AT + 86_400));
    // From 2050 on, dates have another form.
    check(|terms| terms.not_after = seconds(2_600_000_000), Ok(2_600_000_000));
    check(|terms| terms.name = peer("127.0.0.1:9101"), Ok(SIGNED_AT + 86_400));
    check(
        |terms| terms.name = peer(&["a".repeat(60), "b".repeat(60)].join(".")),
        Ok(SIGNED_AT + 86_400),
    );
    check(|terms| terms.serial = u64::MAX, Ok(SIGNED_AT + 86_400));
    check(|terms| terms.serial = 0, Err(InvalidTerms::Serial));
    check(|terms| terms.not_before = seconds(SIGNED_AT + 86_401), Err(InvalidTerms::Validity));
    check(|terms| terms.not_before = seconds(-1), Err(InvalidTerms::Validity));
    check(|terms| terms.not_after = seconds(300_000_000_000), Err(InvalidTerms::Validity));
}

#[test]
fn chains_are_preferred_and_leaves_come_first() {
    let json = document().to_json();
    let other = signing(0x12).verifying_key().to_hex();
    let read = |pointer: &str, value| {
        PeerKeys::read(&spoiled(&json, pointer, value), now()).expect(pointer)
    };
    let ours = signing(0x11).verifying_key();
    assert_eq!(read("/signingPubKey", Some(json!(other))).verifying_key, ours);
    assert_eq!(read("/signingPubKey", None).verifying_key, ours);
    let leaf = hex::encode(document().signing_certificate);
    let issuer = hex::encode(p256_certificate());
    assert_eq!(read("/signingCertChain", Some(json!([leaf, issuer]))).verifying_key, ours);
    for none in [None, Some(Value::Null), Some(json!([]))] {
        assert_eq!(read("/signingCertChain", none).verifying_key, ours, "the bare key");
    }
}

#[test]
fn keys_are_kept_until_they_or_a_certificate_expire() {
    let json = document().to_json();
    let expiry = |value: Option<Value>| {
        let body = spoiled(&json, "/expirationTimestamp", value);
        PeerKeys::read(&body, now()).expect("sound").expires_at
    };
    assert_eq!(expiry(None), None, "not kept at all");
    assert_eq!(expiry(Some(Value::Null)), None);
    assert_eq!(expiry(Some(json!(SIGNED_AT + 5))), Some(seconds(SIGNED_AT + 5)));
    let end = Some(seconds(SIGNED_AT + 86_400));
    assert_eq!(expiry(Some(json!(SIGNED_AT + 86_401))), end, "the certificates' end");
    assert_eq!(expiry(Some(json!(i64::MAX))), end);
    let body = spoiled(&json, "/expirationTimestamp", Some(json!("soon")));
    let read = PeerKeys::read(&body, now());
    refused(read, ErrorCode::CounterpartyPubkeyFetchError, "expirationTimestamp");
}

#[test]
fn unusable_keys_are_refused() {
    use ErrorCode::{
        CertChainExpired, CertChainInvalid, CounterpartyPubkeyFetchError, InvalidPubkeyFormat,
    };
    let json = document().to_json();
    let check = |pointer: &str, value: Value, code: ErrorCode, reason: &str| {
        let read = PeerKeys::read(&spoiled(&json, pointer, Some(value)), now());
        refused(read, code, reason);
    };
    let p256 = hex::encode(p256_certificate());
    assert_eq!(Leaf::read(&p256_certificate()), Err(InvalidLeaf::Key));
    for chain in ["signingCertChain", "encryptionCertChain"] {
        let pointer = format!("/{chain}");
        check(&pointer, json!([p256]), CertChainInvalid, &format!("{chain}[0] has a key"));
        check(&pointer, json!(["zz"]), CertChainInvalid, &format!("{chain}[0] is not in hex"));
        check(&pointer, json!([""]), CertChainInvalid, &format!("{chain}[0] is not DER"));
        check(&pointer, json!(["3082"]), CertChainInvalid, &format!("{chain}[0] is not DER"));
        check(&pointer, json!([7]), CounterpartyPubkeyFetchError, &format!("{chain}[0]"));
        check(&pointer, json!("04"), CounterpartyPubkeyFetchError, &format!("{chain} must be"));
    }
    let bare_only: Value = json!({
        "signingPubKey": signing(0x11).verifying_key().to_hex(),
        "encryptionPubKey": decryption().encryption_key().to_hex(),
    });
    let keys = PeerKeys::read(bare_only.to_string().as_bytes(), now()).expect("version 0");
    assert_eq!((keys.verifying_key, keys.expires_at), (signing(0x11).verifying_key(), None));
    for name in ["signingPubKey", "encryptionPubKey"] {
        for wrong in [json!("zz"), json!("04"), json!("00".repeat(65)), json!(""), Value::Null] {
            let body = spoiled(&bare_only.to_string(), &format!("/{name}"), Some(wrong));
            refused(PeerKeys::read(&body, now()), InvalidPubkeyFormat, name);
        }
    }
    for body in ["", "[]", "<html>"] {
        let read = PeerKeys::read(body.as_bytes(), now());
        refused(read, CounterpartyPubkeyFetchError, "not a JSON object");
    }
    let json = document().to_json();
    let read = |at| PeerKeys::read(json.as_bytes(), seconds(at));
    read(SIGNED_AT + 86_400).expect("the last second");
    refused(read(SIGNED_AT + 86_401), CertChainExpired, "signingCertChain[0]");
}

#[test]
fn compressed_bare_keys_are_read() {
    let key = k256::ecdsa::SigningKey::from_slice(&[0x11; 32]).expect("a scalar");
    let compressed = key.verifying_key().to_sec1_point(true);
    let read = VerifyingKey::from_sec1(compressed.as_bytes());
    assert_eq!(read, Ok(signing(0x11).verifying_key()));
}

#[test]
fn our_configuration_lists_both_major_versions() {
    let ours = Configuration::ours("Vasp One");
    let body: Value = serde_json::from_str(&ours.to_json()).expect("JSON");
    assert_eq!(body, json!({"name": "Vasp One", "uma_major_versions": [0, 1]}));
    assert_eq!(Configuration::read(ours.to_json().as_bytes()), Ok(ours));
}

#[test]
fn configurations_of_peers_are_read() {
    let read = |body: Value| Configuration::read(body.to_string().as_bytes());
    let endpoint = "https://vasp2.com/uma/request";
    let body = json!({
        "name": "Vasp", "uma_major_versions": [1, 7, -1], "uma_request_endpoint": endpoint,
        "token_endpoint": 5,
    });
    let majors = vec![1, 7];
    let expected =
        Configuration { name: "Vasp".into(), majors, request_endpoint: Some(endpoint.into()) };
    assert_eq!(read(body), Ok(expected));
    let code = ErrorCode::UmaConfigurationFetchError;
    refused(read(json!({"uma_major_versions": [1]})), code, "name is missing");
    refused(read(json!({"name": "x"})), code, "uma_major_versions is missing");
    refused(read(json!({"name": "x", "uma_major_versions": ["1"]})), code, "versions[0]");
    let body = json!({"name": "x", "uma_major_versions": [], "uma_request_endpoint": "/x"});
    refused(read(body), code, "uma_request_endpoint is not an absolute URL");
    refused(read(json!(7)), code, "not a JSON object");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_key_and_validity_comes_back(
        secret in 1_u8..=254,
        serial in 1_u64..,
        from in 0_i64..4_000_000_000,
        length in 0_i64..4_000_000_000,
    ) {
        let terms = Terms {
            serial,
            not_before: seconds(from),
            not_after: seconds(from + length),
            ..terms()
        };
        let der = self_signed(&signing(secret), &terms).expect("sound terms");
        let leaf = Leaf::read(&der).expect("a leaf");
        prop_assert_eq!(leaf.not_after_seconds, from + length);
        prop_assert_eq!(hex::encode(leaf.point), signing(secret).verifying_key().to_hex());
    }
}
