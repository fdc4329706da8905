//! Messages of the reference implementation, uma-sdk 1.6.0 (Python), one a line: signed with the
//! key 0x11.., encrypted to the key 0x22.., by `$alice@vasp1.com` and `$bob@vasp2.com`.

use domain::time::Timestamp;
use uma::error::{ErrorCode, PeerCode, PeerError};
use uma::keys::PeerKeys;
use uma::lnurlp::{Lookup, LookupResponse};
use uma::pay_request::{Amount, PayRequest};
use uma::pay_response::PayResponse;
use uma::post_transaction::{Outcome, PostTransaction};
use uma::signature::VerifyingKey;
use uma::travel_rule::{DecryptionKey, open};
use uma::version::{Form, Version};

use crate::support::{alice, bob, code, demands, facts, peer, refused, signing};

const MESSAGES: &str = include_str!("uma-sdk-1.6.0.txt");

/// The second in which they were made.
const MADE_AT: i64 = 1_795_733_906;

fn message(index: usize) -> &'static str {
    MESSAGES.lines().nth(index).expect("ten lines")
}

/// The key of the document that is the first line.
fn key() -> VerifyingKey {
    let now = Timestamp::from_millis(MADE_AT * 1_000);
    let keys = PeerKeys::read(message(0).as_bytes(), now).expect("sound");
    assert_eq!(keys.verifying_key, signing(0x11).verifying_key());
    // It says more than a year, and is kept for a day.
    assert_eq!(keys.expires_at, Some(now.plus_millis(86_400_000)));
    keys.verifying_key
}

#[test]
fn its_lookup_is_read_and_verified() {
    let url = message(1);
    let rest = url.strip_prefix("https://vasp2.com").expect("the domain of the payee");
    let (path, query) = rest.split_once('?').expect("parameters");
    let Ok(Lookup::Uma(request)) = Lookup::read(path, query, &peer("vasp2.com")) else {
        panic!("{url}")
    };
    request.verify(&key()).expect("signed");
    assert_eq!(request.version.to_string(), "1.3");
    assert_eq!(request.version.negotiate(), Ok(Version::CURRENT));
    assert_eq!(request.url(), url, "we would write it so too");
}

#[test]
fn its_answers_to_lookups_are_read_and_verified() {
    for (index, version) in [(2, "1.3"), (3, "0.3")] {
        let response = LookupResponse::read(message(index).as_bytes()).expect(version);
        response.verify(&key(), &bob()).expect("signed");
        refused(
            response.verify(&signing(0x12).verifying_key(), &bob()),
            ErrorCode::InvalidSignature,
            "not the peer's",
        );
        assert_eq!(response.version.to_string(), version);
        let [dollars] = &response.currencies[..] else { panic!("{response:?}") };
        assert_eq!(dollars.msat_per_unit.to_string(), "34150.00000000001");
        assert_eq!((dollars.min_minor, dollars.max_minor), (1, 1_000_000));
        assert_eq!(response.payer_demands, demands(&[("email", true), ("name", false)]));
    }
}

#[test]
fn its_pay_requests_are_read_and_verified() {
    let decryption = DecryptionKey::from_bytes(&[0x22; 32]).expect("a scalar");
    for (index, form) in [(4, Form::V1), (5, Form::V0)] {
        let request = PayRequest::read(message(index).as_bytes()).expect("sound");
        request.verify(&key()).expect("signed");
        assert_eq!(request.form, form);
        assert_eq!(request.amount, Amount::Receiving { minor: 1_000, code: code("USD") });
        assert_eq!(request.payer.facts, facts(&[("name", "Alice")]));
        let sealed = request.payer.compliance.encrypted_travel_rule_info.expect("it is there");
        assert_eq!(open(&sealed, &decryption).expect("ours")[..], *br#"{"a":"travel"}"#);
    }
}

#[test]
fn its_answers_to_pay_requests_are_read_and_verified() {
    for (index, form) in [(6, Form::V1), (7, Form::V0)] {
        let response = PayResponse::read(message(index).as_bytes()).expect("sound");
        response.verify(&key(), &alice(), &bob()).expect("signed, or of version 0");
        assert_eq!(response.form(), form);
        assert_eq!(response.converted.amount_minor, Some(1_000));
        assert_eq!(response.converted.msat_per_unit.to_string(), "24150.5");
        assert_eq!(response.facts, facts(&[("name", "Bob")]));
    }
}

#[test]
fn its_callback_and_its_412_are_read() {
    let callback = PostTransaction::read(message(8).as_bytes()).expect("sound");
    callback.verify(&key()).expect("signed");
    assert_eq!(callback.outcome, Some(Outcome::Completed));

    let error = PeerError::read(412, message(9).as_bytes()).expect("an error");
    assert_eq!(error.code, PeerCode::Known(ErrorCode::UnsupportedUmaVersion));
    let again = Version::negotiate_again(&error.supported_major_versions);
    assert_eq!(again, Ok(Version::CURRENT));
}
