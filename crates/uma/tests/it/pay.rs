//! The pay request and its answer.

use serde_json::{Value, json};
use uma::error::ErrorCode;
use uma::kyc_status::KycStatus;
use uma::pay_request::{Amount, PayRequest};
use uma::pay_response::PayResponse;
use uma::version::Form;

use crate::support::{
    address, alice, bob, code, facts, pay_request, pay_response, refused, signing, spoiled,
};

#[test]
fn a_request_of_version_1_has_this_form() {
    let json = pay_request(Form::V1).to_json().expect("sound");
    let body: Value = serde_json::from_str(&json).expect("JSON");
    let expected = json!({
        "amount": "595.USD",
        "convert": "USD",
        "payerData": {
            "identifier": "$alice@vasp1.com",
            "name": "Alice",
            "birthDate": "1990-01-31",
            "compliance": {
                "kycStatus": "VERIFIED", "utxos": ["abc:0"], "nodePubKey": "02ab",
                "encryptedTravelRuleInfo": "04dd", "travelRuleFormat": "IVMS@101.2023",
                "utxoCallback": "https://vasp1.com/uma/post/9",
                "signature": signing(0x11).sign("$alice@vasp1.com|1234|1700000000"),
                "signatureNonce": "1234", "signatureTimestamp": 1_700_000_000,
            },
        },
        "payeeData": {"name": {"mandatory": true}, "email": {"mandatory": false}},
        "comment": "For lunch",
        "invoiceUUID": "5a6e2f0c",
    });
    assert_eq!(body, expected);
}

#[test]
fn a_request_of_version_0_has_a_number_in_the_receiving_currency() {
    let request = pay_request(Form::V0);
    let json = request.to_json().expect("sound");
    let body: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&body["amount"], &body["currency"]), (&json!(595), &json!("USD")));
    assert_eq!((body.get("convert"), body.get("payeeData")), (None, None));
    assert_eq!(PayRequest::read(json.as_bytes()), Ok(request));

    let msat = PayRequest { amount: Amount::Msat(5), ..pay_request(Form::V0) };
    refused(msat.to_json(), ErrorCode::InvalidInput, "millisatoshi");
}

#[test]
fn amounts_are_of_the_locked_side() {
    let json = pay_request(Form::V1).to_json().expect("sound");
    let read = |amount: Value| PayRequest::read(&spoiled(&json, "/amount", Some(amount)));
    let receiving = |minor| Amount::Receiving { minor, code: code("USD") };
    for (text, amount) in [
        ("595.USD", receiving(595)),
        ("9223372036854775807.USD", receiving(i64::MAX)),
        ("13923000", Amount::Msat(13_923_000)),
    ] {
        assert_eq!(read(json!(text)).expect(text).amount, amount);
    }
    use ErrorCode::{AmountOutOfRange, InvalidCurrency, ParsePayreqRequestError};
    for (amount, code, reason) in [
        (json!("1.5"), ParsePayreqRequestError, "not a currency code"),
        (json!("1.5.USD"), ParsePayreqRequestError, "not a currency code"),
        (json!("1.USD.USD"), ParsePayreqRequestError, "not a currency code"),
        (json!("1.usd"), ParsePayreqRequestError, "not a currency code"),
        (json!("1."), ParsePayreqRequestError, "not a currency code"),
        (json!(".USD"), ParsePayreqRequestError, "must be digits"),
        (json!("-1"), ParsePayreqRequestError, "must be digits"),
        (json!("+1.USD"), ParsePayreqRequestError, "must be digits"),
        (json!("1 .USD"), ParsePayreqRequestError, "must be digits"),
        (json!("1e3"), ParsePayreqRequestError, "must be digits"),
        (json!("٣.USD"), ParsePayreqRequestError, "must be digits"),
        (json!(""), ParsePayreqRequestError, "amount is missing"),
        (json!(595), ParsePayreqRequestError, "amount must be a text"),
        (json!("9223372036854775808"), ParsePayreqRequestError, "64 bits"),
        (json!("0"), AmountOutOfRange, "greater than 0"),
        (json!("0.USD"), AmountOutOfRange, "greater than 0"),
        (json!("595.EUR"), InvalidCurrency, "EUR, but USD"),
    ] {
        refused(read(amount), code, reason);
    }
    let other = PayRequest { receiving: code("EUR"), ..pay_request(Form::V1) };
    refused(other.to_json(), InvalidCurrency, "USD, but EUR");
}

#[test]
fn amounts_of_version_0_are_greater_than_zero() {
    let json = pay_request(Form::V0).to_json().expect("sound");
    let read = |amount: Value| PayRequest::read(&spoiled(&json, "/amount", Some(amount)));
    refused(read(json!(0)), ErrorCode::AmountOutOfRange, "greater than 0");
    refused(read(json!(-5)), ErrorCode::AmountOutOfRange, "greater than 0");
    refused(read(json!("595.USD")), ErrorCode::ParsePayreqRequestError, "must be a number");
    refused(read(json!(5.5)), ErrorCode::ParsePayreqRequestError, "whole number");
}

#[test]
fn unreadable_requests_are_refused_by_field() {
    use ErrorCode::{MissingMandatoryPayerData, ParsePayreqRequestError};
    let json = pay_request(Form::V1).to_json().expect("sound");
    let check = |pointer: &str, value: Option<Value>, code: ErrorCode, reason: &str| {
        refused(PayRequest::read(&spoiled(&json, pointer, value)), code, reason);
    };
    let parse = ParsePayreqRequestError;
    let missing = MissingMandatoryPayerData;
    let compliance = "/payerData/compliance";
    check("/convert", None, parse, "convert is missing");
    check("/convert", Some(json!("dollars")), parse, "convert must be a currency code");
    check("/amount", None, parse, "amount is missing");
    check("/payerData", None, missing, "payerData is missing");
    check("/payerData", Some(json!([])), parse, "payerData must be an object");
    check("/payerData/identifier", None, missing, "payerData.identifier is missing");
    check("/payerData/identifier", Some(json!("alice")), parse, "payerData.identifier is wrong");
    check(compliance, None, missing, "payerData.compliance is missing");
    check(compliance, Some(json!("x")), parse, "payerData.compliance must be an object");
    let within = |name: &str| format!("{compliance}/{name}");
    for name in ["signature", "signatureNonce", "signatureTimestamp"] {
        check(&within(name), None, parse, &format!("payerData.compliance.{name} is missing"));
    }
    check(&within("utxos"), Some(json!([1])), parse, "utxos[0] must be a text");
    check(&within("utxoCallback"), Some(json!("x")), parse, "utxoCallback is not an absolute URL");
    check(&within("utxoCallback"), Some(json!("http://a.example/")), parse, "https");
    check("/payeeData", Some(json!({"name": 1})), parse, "payeeData.name must be an object");
    check("/comment", Some(json!(7)), parse, "comment must be a text");
}

#[test]
fn optional_parts_of_a_request_may_be_missing() {
    let json = pay_request(Form::V1).to_json().expect("sound");
    let read = |pointer: &str, value: Option<Value>| {
        PayRequest::read(&spoiled(&json, pointer, value)).expect(pointer)
    };
    for value in [None, Some(Value::Null)] {
        let within = |name: &str| read(&format!("/payerData/compliance/{name}"), value.clone());
        assert_eq!(within("utxos").payer.compliance.utxos, [""; 0]);
        assert_eq!(within("kycStatus").payer.compliance.kyc_status, KycStatus::Unknown);
        assert_eq!(within("utxoCallback").payer.compliance.utxo_callback, None);
        assert_eq!(within("nodePubKey").payer.compliance.node_pub_key, None);
        assert_eq!(read("/comment", value.clone()).comment, None);
        assert_eq!(read("/payeeData", value.clone()).payee_demands.0.len(), 0);
    }
    let status = read("/payerData/compliance/kycStatus", Some(json!("MAYBE")));
    assert_eq!(status.payer.compliance.kyc_status, KycStatus::Unknown);
    let callback = read("/payerData/compliance/utxoCallback", Some(json!("")));
    assert_eq!(callback.payer.compliance.utxo_callback, None);
}

#[test]
fn facts_that_are_no_text_are_kept_as_json() {
    let json = pay_request(Form::V1).to_json().expect("sound");
    let body = spoiled(&json, "/payerData/address", Some(json!({"city": "Graz"})));
    let read = PayRequest::read(&body).expect("sound");
    let expected =
        facts(&[("address", r#"{"city":"Graz"}"#), ("birthDate", "1990-01-31"), ("name", "Alice")]);
    assert_eq!(read.payer.facts, expected);
}

#[test]
fn a_request_is_of_the_payer_s_institution() {
    for form in [Form::V0, Form::V1] {
        let mut request = pay_request(form);
        let key = signing(0x11).verifying_key();
        request.verify(&key).expect("signed");
        let other = signing(0x12).verifying_key();
        refused(request.verify(&other), ErrorCode::InvalidSignature, "not the peer's");
        request.payer.identifier = bob();
        refused(request.verify(&key), ErrorCode::InvalidSignature, "not the peer's");
    }
}

#[test]
fn a_response_of_version_1_has_this_form() {
    let json = pay_response(Form::V1).to_json().expect("sound");
    let body: Value = serde_json::from_str(&json).expect("JSON");
    let signed = "$alice@vasp1.com|$bob@vasp2.com|1234|1700000000";
    let expected = json!({
        "pr": "lnbc1",
        "routes": [],
        "disposable": true,
        "converted": {
            "amount": 595, "currencyCode": "USD", "decimals": 2, "multiplier": 14971.1, "fee": 120,
        },
        "payeeData": {
            "identifier": "$bob@vasp2.com",
            "name": "Bob",
            "compliance": {
                "utxos": ["def:1"], "nodePubKey": "03cd",
                "utxoCallback": "https://vasp2.com/uma/post/3",
                "signature": signing(0x11).sign(signed),
                "signatureNonce": "1234", "signatureTimestamp": 1_700_000_000,
            },
        },
    });
    assert_eq!(body, expected);
}

#[test]
fn a_response_of_version_0_is_not_signed() {
    let mut response = pay_response(Form::V0);
    response.converted.amount_minor = None;
    let json = response.to_json().expect("sound");
    let body: Value = serde_json::from_str(&json).expect("JSON");
    let info = json!({
        "currencyCode": "USD", "decimals": 2, "multiplier": 14971.1,
        "exchangeFeesMillisatoshi": 120,
    });
    assert_eq!(body["paymentInfo"], info);
    assert_eq!((body.get("converted"), body["payeeData"].get("compliance")), (None, None));
    assert_eq!(body["compliance"].get("signature"), None);
    let read = PayResponse::read(json.as_bytes()).expect("sound");
    assert_eq!(read, response);
    read.verify(&signing(0x12).verifying_key(), &alice(), &bob()).expect("nothing is signed");
}

#[test]
fn callbacks_are_of_the_institution_that_gives_them() {
    let key = signing(0x11).verifying_key();
    for form in [Form::V0, Form::V1] {
        let mut request = pay_request(form);
        request.payer.compliance.utxo_callback = Some("https://vasp2.com/post".into());
        refused(request.verify(&key), ErrorCode::ParsePayreqRequestError, "utxoCallback");
        let mut response = pay_response(form);
        response.compliance.utxo_callback = Some("https://vasp1.com/post".into());
        let verified = response.verify(&key, &alice(), &bob());
        refused(verified, ErrorCode::ParsePayreqResponseError, "utxoCallback");
    }
}

#[test]
fn values_that_are_no_texts_are_kept_on_one_line() {
    let json = pay_request(Form::V1).to_json().expect("sound");
    let check = |name: &str, value: Value, kept: &str| {
        let body = spoiled(&json, &format!("/payerData/{name}"), Some(value));
        let pretty: Value = serde_json::from_slice(&body).expect("JSON");
        let pretty = serde_json::to_vec_pretty(&pretty).expect("JSON");
        let read = PayRequest::read(&pretty).expect("sound");
        assert_eq!(read.payer.facts.0.get(name).map(String::as_str), Some(kept));
    };
    let address = json!({
        "country": "US", "line1": "123 Main St", "line2": "Apt 4B", "city": "Los Angeles",
        "state": "CA", "postalCode": "12345", "planet": "Earth",
    });
    check("postalAddress", address, "123 Main St, Apt 4B, Los Angeles, CA, 12345, US");
    check("postalAddress", json!({ "line1": 7, "city": " " }), "");
    check("postalAddress", json!("1 High Street"), "1 High Street");
    check("postalAddress", json!(["a", 1]), "[\"a\",1]");
    check("anything", json!({ "a": [true, null] }), "{\"a\":[true,null]}");
    check("number", json!(7), "7");
}

#[test]
fn a_response_is_of_the_payee_that_was_looked_up_and_of_its_institution() {
    let mut response = pay_response(Form::V1);
    let key = signing(0x11).verifying_key();
    response.verify(&key, &alice(), &bob()).expect("signed");
    response.verify(&key, &alice(), &address("$BOB@vasp2.com")).expect("the same address");
    let eve = address("$eve@vasp2.com");
    let invalid = ErrorCode::InvalidSignature;
    refused(response.verify(&key, &eve, &bob()), invalid, "not the peer's");
    refused(
        response.verify(&key, &alice(), &eve),
        ErrorCode::ParsePayreqResponseError,
        "payeeData.identifier",
    );
    let other = signing(0x12).verifying_key();
    refused(response.verify(&other, &alice(), &bob()), invalid, "not the peer's");
    // Without an address of its own, the answer is signed for the one that was looked up.
    response.payee = None;
    response.verify(&key, &alice(), &bob()).expect("signed");
    refused(response.verify(&key, &alice(), &eve), invalid, "not the peer's");
    // An answer of version 0 about another payee is refused too.
    let response = pay_response(Form::V0);
    let code = ErrorCode::ParsePayreqResponseError;
    refused(response.verify(&key, &alice(), &eve), code, "payeeData.identifier");
}

#[test]
fn unreadable_responses_are_refused_by_field() {
    let json = pay_response(Form::V1).to_json().expect("sound");
    let check = |pointer: &str, value: Option<Value>, reason: &str| {
        let read = PayResponse::read(&spoiled(&json, pointer, value));
        refused(read, ErrorCode::ParsePayreqResponseError, reason);
    };
    check("/pr", None, "pr is missing");
    check("/pr", Some(json!("")), "pr is missing");
    check("/pr", Some(json!(1)), "pr must be a text");
    check("/payeeData", None, "payeeData.compliance is missing");
    check("/payeeData/compliance", None, "payeeData.compliance is missing");
    check("/payeeData/identifier", Some(json!("bob")), "payeeData.identifier is wrong");
    check("/payeeData/compliance/signature", None, "payeeData.compliance.signature is missing");
    check("/converted", None, "converted is missing");
    for name in ["amount", "currencyCode", "decimals", "multiplier", "fee"] {
        let pointer = format!("/converted/{name}");
        check(&pointer, None, &format!("converted.{name} is missing"));
        check(&pointer, Some(json!({})), &format!("converted.{name} must be"));
    }
    check("/converted/amount", Some(json!(-1)), "converted.amount must not be negative");
    check("/converted/fee", Some(json!(-1)), "converted.fee must not be negative");
    check("/converted/multiplier", Some(json!(0)), "converted.multiplier must be greater");
    check("/converted/decimals", Some(json!(300)), "converted.decimals must be 0 to 8");
    let mut response = pay_response(Form::V1);
    response.converted.amount_minor = None;
    refused(response.to_json(), ErrorCode::InvalidInput, "amount");
}

#[test]
fn a_fee_may_have_its_old_name() {
    let json = pay_response(Form::V1).to_json().expect("sound");
    let json = json.replace("\"fee\"", "\"exchangeFeesMillisatoshi\"");
    let read = PayResponse::read(json.as_bytes()).expect("sound");
    assert_eq!(read.converted.fee_msat, 120);
}
