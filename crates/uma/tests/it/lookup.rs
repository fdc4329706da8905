//! The lookup, as the receiving and as the sending institution read it.

use serde_json::{Value, json};
use uma::address::PeerDomain;
use uma::currency::Currency;
use uma::error::{ErrorCode, Refusal};
use uma::kyc_status::KycStatus;
use uma::lnurlp::{Lookup, LookupRequest, LookupResponse};
use uma::version::Version;

use crate::support::{
    address, alice, bob, demands, dollars, lookup_request, lookup_response, peer, refused, signing,
    spoiled, stamp,
};

const PATH: &str = "/.well-known/lnurlp/$bob";

/// The query of a sound request.
const QUERY: &str = "signature=30440220179b917d79e835d25c32c27eb35248cb34935cf113f7cd326db83c736\
                     83f6e0c02203776439baecb17a4a73c2b43c195c58ba3a10bbe5e2f6653782c1cc921d9f3f8\
                     &vaspDomain=vasp1.com&nonce=1234&isSubjectToTravelRule=true\
                     &timestamp=1700000000&umaVersion=1.0";

fn read(path: &str, query: &str) -> Result<Lookup, Refusal> {
    Lookup::read(path, query, &peer("vasp2.com"))
}

fn uma(lookup: Lookup) -> LookupRequest {
    match lookup {
        Lookup::Uma(request) => request,
        Lookup::Plain { user } => panic!("a plain lookup of {user}"),
    }
}

#[test]
fn a_request_is_a_url_and_is_read_back() {
    let request = lookup_request();
    assert_eq!(request.url(), format!("https://vasp2.com{PATH}?{QUERY}"));
    let read = uma(read(PATH, QUERY).expect("sound"));
    assert_eq!(read, request);
    read.verify(&signing(0x11).verifying_key()).expect("signed");
}

#[test]
fn a_request_writes_the_address_in_lower_case_and_ports_encoded() {
    let request = LookupRequest::new(
        &signing(0x11),
        address("$Bob@LOCALHOST:9102"),
        Version::LEGACY,
        peer("127.0.0.1:9101"),
        false,
        stamp(),
    );
    let url = request.url();
    assert!(url.starts_with("http://localhost:9102/.well-known/lnurlp/$bob?"), "{url}");
    assert!(url.contains("&vaspDomain=127.0.0.1%3A9101&"), "{url}");
    assert!(url.contains("&isSubjectToTravelRule=false&"), "{url}");
    assert!(url.ends_with("&umaVersion=0.3"), "{url}");
}

#[test]
fn the_dollar_may_be_encoded_and_the_spelling_is_kept() {
    let request = uma(read("/.well-known/lnurlp/%24Bob", QUERY).expect("sound"));
    assert_eq!(request.receiver.as_written(), "$Bob@vasp2.com");
    assert_eq!(request.receiver.user(), "bob");
    refused(
        request.verify(&signing(0x11).verifying_key()),
        ErrorCode::InvalidSignature,
        "not the peer's",
    );
}

#[test]
fn a_request_without_signed_parameters_is_plain() {
    let plain = |user: &str| Ok(Lookup::Plain { user: user.into() });
    assert_eq!(read("/.well-known/lnurlp/bob", ""), plain("bob"));
    assert_eq!(read(PATH, "isSubjectToTravelRule=true&amount=5"), plain("$bob"));
}

#[test]
fn signed_parameters_come_together() {
    for name in ["signature", "vaspDomain", "nonce", "timestamp", "umaVersion"] {
        let others: Vec<_> =
            QUERY.split('&').filter(|one| !one.starts_with(&format!("{name}="))).collect();
        for query in [others.join("&"), format!("{}&{name}=", others.join("&"))] {
            refused(read(PATH, &query), ErrorCode::MissingRequiredUmaParameters, name);
        }
    }
    refused(
        read(PATH, "nonce=1"),
        ErrorCode::MissingRequiredUmaParameters,
        "signature, vaspDomain",
    );
}

#[test]
fn unreadable_requests_are_refused() {
    use ErrorCode::{
        InvalidNonce, MissingRequiredUmaParameters, ParseLnurlpRequestError, UnsupportedUmaVersion,
    };
    let check = |path: &str, from: &str, to: &str, code: ErrorCode, reason: &str| {
        assert!(QUERY.contains(from), "{from}");
        refused(read(path, &QUERY.replace(from, to)), code, reason);
    };
    let parse = ParseLnurlpRequestError;
    check("/.well-known/lnurlp/", "", "", parse, "no user");
    check("/.well-known/lnurlp/$bob/x", "", "", parse, "path");
    check("/api/.well-known/lnurlp/$bob", "", "", parse, "path");
    check("/.well-known/lnurlp/%ff", "", "", parse, "UTF-8");
    check("/.well-known/lnurlp/bob", "", "", parse, "bob@vasp2.com");
    check("/.well-known/lnurlp/$b b", "", "", parse, "not a UMA address");
    check(PATH, "umaVersion=1.0", "umaVersion=one", parse, "umaVersion");
    check(PATH, "vasp1.com", "vasp1..com", parse, "vaspDomain");
    check(PATH, "vasp1.com", "https%3A%2F%2Fvasp1.com", parse, "vaspDomain");
    check(PATH, "1700000000", "1.7e9", parse, "timestamp");
    check(PATH, "1700000000", "01700000000", parse, "timestamp");
    check(PATH, "1700000000", "99999999999999999999", parse, "timestamp");
    check(PATH, "nonce=1234", "nonce=1%7C2", InvalidNonce, "nonce");
    check(PATH, "umaVersion=1.0", "umaVersion=2.0", UnsupportedUmaVersion, "2.0");
    // Later versions may have other parameters, so the version is judged first.
    refused(read(PATH, "umaVersion=2.0"), UnsupportedUmaVersion, "2.0");
    refused(read(PATH, "umaVersion=1.7"), MissingRequiredUmaParameters, "nonce");
}

#[test]
fn the_scheme_follows_from_the_domain() {
    let check = |domain: &str, scheme: &str| {
        let url = format!("{scheme}://{domain}/x");
        assert_eq!(peer(domain).url("/x"), url);
    };
    check("vasp2.com", "https");
    check("vasp2.com:8443", "https");
    check("localhost:9101", "http");
    check("127.0.0.1:9101", "http");
    check("vasp.local", "http");
    check("vasp.internal:8080", "http");
    check("localhost", "https");
    check("local", "https");
    check("notlocal", "https");
    check("vasp.local.example.com", "https");
    check("localhost.example.com:80", "https");
    for wrong in ["127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.2:80", "10.0.0.1:80", ""] {
        assert!(PeerDomain::parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(address("$bob@127.0.0.1:9102").domain().as_str(), "127.0.0.1:9102");
}

#[test]
fn a_response_of_version_1_has_this_form() {
    let json = lookup_response(Version::CURRENT).to_json().expect("sound");
    let body: Value = serde_json::from_str(&json).expect("JSON");
    let expected = json!({
        "tag": "payRequest",
        "callback": "https://vasp2.com/uma/payreq/7",
        "minSendable": 1000,
        "maxSendable": 5_000_000_000_i64,
        "metadata": "[[\"text/plain\",\"Pay Bob\"],[\"text/identifier\",\"$bob@vasp2.com\"]]",
        "currencies": [{
            "code": "USD", "name": "US Dollar", "symbol": "$", "multiplier": 14971.123456789,
            "decimals": 2, "convertible": {"min": 1, "max": 1_000_000},
        }],
        "payerData": {
            "birthDate": {"mandatory": false}, "compliance": {"mandatory": true},
            "identifier": {"mandatory": true}, "name": {"mandatory": true},
        },
        "compliance": {
            "kycStatus": "VERIFIED", "isSubjectToTravelRule": true,
            "receiverIdentifier": "$bob@vasp2.com",
            "signature": signing(0x11).sign("$bob@vasp2.com|1234|1700000000"),
            "signatureNonce": "1234", "signatureTimestamp": 1_700_000_000,
        },
        "umaVersion": "1.0",
        "commentAllowed": 140,
    });
    assert_eq!(body, expected);
}

#[test]
fn a_response_of_version_0_has_the_limits_in_the_currency() {
    let json = lookup_response(Version::LEGACY).to_json().expect("sound");
    let body: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(body["umaVersion"], "0.3");
    let currency = &body["currencies"][0];
    assert_eq!(
        (&currency["minSendable"], &currency["maxSendable"]),
        (&json!(1), &json!(1_000_000))
    );
    assert_eq!(currency.get("convertible"), None);
}

#[test]
fn a_response_is_of_the_payee_that_was_looked_up_and_of_its_institution() {
    let response = lookup_response(Version::CURRENT);
    let key = signing(0x11).verifying_key();
    response.verify(&key, &bob()).expect("signed");
    response.verify(&key, &address("$BOB@vasp2.com")).expect("the same address");
    let code = ErrorCode::ParseLnurlpResponseError;
    refused(response.verify(&key, &alice()), code, "receiverIdentifier");
    let other = signing(0x12).verifying_key();
    refused(response.verify(&other, &bob()), ErrorCode::InvalidSignature, "not the peer's");
}

#[test]
fn a_callback_is_of_the_domain_of_the_address() {
    let key = signing(0x11).verifying_key();
    let check = |callback: &str, is_own: bool| {
        let mut response = lookup_response(Version::CURRENT);
        response.callback = callback.to_owned();
        let verified = response.verify(&key, &bob());
        if is_own {
            verified.expect(callback);
        } else {
            refused(verified, ErrorCode::ParseLnurlpResponseError, "callback is not a URL of");
        }
    };
    check("https://vasp2.com/pay", true);
    check("https://VASP2.com:443/pay", true);
    check("https://api.vasp2.com/pay", true);
    check("https://vasp2.com:8443/pay", false);
    check("https://xvasp2.com/pay", false);
    check("https://vasp2.com.example/pay", false);
    check("https://vasp2.com@vasp3.com/pay", false);
    check("https://com/pay", false);
    check("http://127.0.0.1:80/pay", false);
}

#[test]
fn unreadable_responses_are_refused_by_field() {
    let json = lookup_response(Version::CURRENT).to_json().expect("sound");
    let check = |pointer: &str, value: Option<Value>, reason: &str| {
        let read = LookupResponse::read(&spoiled(&json, pointer, value));
        refused(read, ErrorCode::ParseLnurlpResponseError, reason);
    };
    for name in [
        "tag",
        "callback",
        "minSendable",
        "maxSendable",
        "metadata",
        "currencies",
        "compliance",
        "umaVersion",
    ] {
        check(&format!("/{name}"), None, &format!("{name} is missing"));
        check(&format!("/{name}"), Some(Value::Null), &format!("{name} is missing"));
        // A currency that is no object is left out.
        let other = if name == "currencies" { json!({}) } else { json!([[[]]]) };
        check(&format!("/{name}"), Some(other), name);
    }
    check("/tag", Some(json!("withdrawRequest")), "tag must be payRequest");
    check("/callback", Some(json!("/pay")), "callback is not an absolute URL");
    check("/callback", Some(json!("http://vasp2.com/pay")), "callback must be an https URL");
    check("/callback", Some(json!("file:///etc/passwd")), "callback");
    check("/callback", Some(json!("javascript:1")), "callback");
    check("/minSendable", Some(json!(-1)), "minSendable must not be negative");
    check("/minSendable", Some(json!(5_000_000_001_i64)), "minSendable must not be more");
    check("/metadata", Some(json!("[]")), "metadata must be");
    check("/metadata", Some(json!("[[\"text/plain\"]]")), "metadata must be");
    check("/metadata", Some(json!("[[\"text/plain\",7]]")), "metadata must be");
    check("/umaVersion", Some(json!("one")), "umaVersion must be");
    check("/umaVersion", Some(json!("2.0")), "umaVersion is a version");
    check("/payerData", Some(json!({"name": true})), "payerData.name must be an object");
    check(
        "/payerData",
        Some(json!({"name": {"mandatory": "yes"}})),
        "payerData.name.mandatory must be true or false",
    );
    check("/currencies", Some(json!({"USD": 1})), "currencies must be a list");
    check("/compliance/signature", None, "compliance.signature is missing");
    check("/compliance/signature", Some(json!("")), "compliance.signature is missing");
    check("/compliance/signatureTimestamp", Some(json!("1")), "compliance.signatureTimestamp");
    check("/compliance/receiverIdentifier", Some(json!("bob@vasp2.com")), "receiverIdentifier");
    check("/compliance/isSubjectToTravelRule", Some(json!(1)), "isSubjectToTravelRule");
    let nonce = spoiled(&json, "/compliance/signatureNonce", Some(json!("1|2")));
    refused(LookupResponse::read(&nonce), ErrorCode::InvalidNonce, "nonce");
    for body in ["", "[]", "7", "null", "{\"tag\":", "\u{feff}{}"] {
        let read = LookupResponse::read(body.as_bytes());
        refused(read, ErrorCode::ParseLnurlpResponseError, "");
    }
}

/// One currency that cannot be used, between two that can, in the form of a version.
fn check_left_out(version: Version, spoil: impl Fn(&mut Value), reason: &str) {
    let json = lookup_response(version).to_json().expect("sound");
    let sound = serde_json::from_str::<Value>(&json).expect("JSON")["currencies"][0].clone();
    let mut odd = sound.clone();
    spoil(&mut odd);
    let body = spoiled(&json, "/currencies", Some(json!([sound, odd, sound])));
    let read = LookupResponse::read(&body).expect("the others can be used");
    assert_eq!(read.currencies, [dollars(), dollars()], "{odd}");
    let [left_out] = &read.left_out[..] else { panic!("{odd}: {:?}", read.left_out) };
    assert!(left_out.starts_with(&format!("currencies[1]{reason}")), "{odd}: {left_out}");
}

#[test]
fn unusable_currencies_are_left_out_with_their_field() {
    let check = |name: &str, value: Value, reason: &str| {
        let spoil = |odd: &mut Value| odd[name] = value.clone();
        check_left_out(Version::CURRENT, spoil, &format!(".{reason}"));
        if name != "convertible" {
            check_left_out(Version::LEGACY, spoil, &format!(".{reason}"));
        }
    };
    check("code", Value::Null, "code is missing");
    check("code", json!("5"), "code must be a currency code such as USD, not '5'");
    check("code", json!("usd"), "code must be a currency code");
    check("code", json!("USDC.e"), "code must be a currency code");
    check("code", json!("1INCH"), "code must be a currency code");
    check("code", json!(["USD"]), "code must be a text");
    check("name", Value::Null, "name is missing");
    check("name", json!(7), "name must be a text");
    check("symbol", json!(7), "symbol must be a text");
    check("multiplier", json!(0), "multiplier must be greater than 0");
    check("multiplier", json!(-0.0), "multiplier must be greater than 0");
    check("multiplier", json!(-2.5), "multiplier must be greater than 0");
    check("multiplier", json!("NaN"), "multiplier must be a number");
    check("multiplier", json!(1e-30), "multiplier is outside the range");
    check("decimals", json!(9), "decimals must be 0 to 8");
    check("decimals", json!(18), "decimals must be 0 to 8");
    check("decimals", Value::Null, "decimals is missing");
    check("decimals", json!(-1), "decimals must be 0 to 8");
    check("decimals", json!(2.5), "decimals must be a whole number");
    check("convertible", Value::Null, "convertible is missing");
    check("convertible", json!({"min": 1}), "convertible.max is missing");
    check("convertible", json!({"min": -1, "max": 5}), "min must not be negative");
    check("convertible", json!({"min": 6, "max": 5}), "min must not be more than max");
    check("convertible", json!([1, 5]), "convertible must be an object");
    check("convertible", json!({"min": 1, "max": 1e20}), "convertible.max must be a whole number");
    let limit = |name: &'static str, value: Value, reason: &str| {
        let spoil = move |odd: &mut Value| odd[name] = value.clone();
        check_left_out(Version::LEGACY, spoil, reason);
    };
    limit("maxSendable", json!(1e20), ".maxSendable must be a whole number of 64 bits");
    limit("maxSendable", json!(9_223_372_036_854_775_808_u64), ".maxSendable must be");
    limit("maxSendable", json!(0), ".min must not be more than max");
    limit("minSendable", Value::Null, ".convertible is missing");
    for odd in [json!(7), json!("USD"), json!([]), Value::Null] {
        check_left_out(Version::CURRENT, |it| *it = odd.clone(), " must be an object");
    }
}

#[test]
fn a_limit_of_comments_that_cannot_be_read_is_none() {
    let json = lookup_response(Version::CURRENT).to_json().expect("sound");
    for odd in [json!("140"), json!(true), json!(1e20), json!(-1)] {
        let read = LookupResponse::read(&spoiled(&json, "/commentAllowed", Some(odd)));
        assert_eq!(read.expect("sound").comment_max, None);
    }
}

#[test]
fn currencies_of_ours_that_no_peer_would_take_are_not_written() {
    let check = |change: fn(&mut Currency), reason: &str| {
        let mut response = lookup_response(Version::CURRENT);
        let mut currency = dollars();
        change(&mut currency);
        response.currencies.push(currency);
        refused(response.to_json(), ErrorCode::InvalidCurrency, reason);
    };
    check(|one| one.msat_per_unit = 0.into(), "multiplier of currency USD");
    check(|one| one.decimals = 9, "decimals");
    check(|one| one.min_minor = -1, "negative");
    check(|one| one.min_minor = one.max_minor + 1, "more than max");
}

#[test]
fn an_unknown_identity_status_is_unknown() {
    let json = lookup_response(Version::CURRENT).to_json().expect("sound");
    for status in [Some(json!("PERHAPS")), Some(Value::Null), None] {
        let read = LookupResponse::read(&spoiled(&json, "/compliance/kycStatus", status));
        assert_eq!(read.expect("sound").compliance.kyc_status, KycStatus::Unknown);
    }
}

#[test]
fn the_address_and_compliance_are_no_demands() {
    let read = lookup_response(Version::CURRENT).to_json().expect("sound");
    let read = LookupResponse::read(read.as_bytes()).expect("sound");
    assert_eq!(read.payer_demands, demands(&[("birthDate", false), ("name", true)]));
}
