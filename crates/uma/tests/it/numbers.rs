//! Numbers are exact: what the digits say is what is read, and what is written.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use uma::error::ErrorCode;
use uma::lnurlp::LookupResponse;
use uma::version::Version;

use crate::support::{lookup_response, refused};

/// A lookup response whose multiplier has these digits.
fn with_multiplier(digits: &str) -> String {
    let json = lookup_response(Version::CURRENT).to_json().expect("sound");
    let before = "\"multiplier\":14971.123456789";
    assert!(json.contains(before), "{json}");
    json.replace(before, &format!("\"multiplier\":{digits}"))
}

#[test]
fn a_multiplier_is_read_from_its_digits() {
    for (digits, exact) in [
        ("1", "1"),
        ("1.50", "1.5"),
        ("0.1", "0.1"),
        ("34150.000000000004", "34150.000000000004"),
        // A float would make 0.30000000000000004 of its last digits.
        ("0.3000000000000000400001", "0.3000000000000000400001"),
        ("123456789012345678.123456789", "123456789012345678.123456789"),
        ("1.5e3", "1500"),
        ("1.5E+3", "1500"),
        ("2.5e-3", "0.0025"),
    ] {
        let read = LookupResponse::read(with_multiplier(digits).as_bytes()).expect(digits);
        let exact = exact.parse().expect("decimal");
        assert_eq!(read.currencies[0].msat_per_unit, exact, "{digits}");
    }
}

#[test]
fn a_multiplier_is_written_digit_by_digit() {
    let mut response = lookup_response(Version::CURRENT);
    for (value, digits) in
        [("14971.100", "14971.1"), ("0.3000000000000000400001", "0.3000000000000000400001")]
    {
        response.currencies[0].msat_per_unit = value.parse().expect("decimal");
        let json = response.to_json().expect("sound");
        let body: std::collections::BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(&json).expect("JSON");
        let currencies = body["currencies"].get();
        assert!(currencies.contains(&format!("\"multiplier\":{digits},")), "{currencies}");
    }
}

#[test]
fn numbers_that_cannot_be_are_left_out() {
    for (digits, reason) in [
        ("0", "greater than 0"),
        ("-1.5", "greater than 0"),
        ("\"1.5\"", "must be a number"),
        ("true", "must be a number"),
        ("[]", "must be a number"),
        ("null", "is missing"),
        ("1e400", "range"),
        ("1e-400", "range"),
        ("1e99999999999", "range"),
        ("0.00000000000000000000000000001", "range"),
        ("79228162514264337593543950336", "range"),
    ] {
        let read = LookupResponse::read(with_multiplier(digits).as_bytes()).expect("an answer");
        let [left_out] = &read.left_out[..] else { panic!("{digits}: {read:?}") };
        assert!(left_out.starts_with("currencies[0].multiplier"), "{digits}: {left_out}");
        assert!(left_out.contains(reason), "{digits}: {left_out}");
    }
}

#[test]
fn whole_numbers_may_have_a_zero_fraction() {
    let json = lookup_response(Version::CURRENT).to_json().expect("sound");
    let check = |digits: &str| {
        let json = json.replace("\"minSendable\":1000", &format!("\"minSendable\":{digits}"));
        LookupResponse::read(json.as_bytes())
    };
    for same in ["1000.0", "1e3"] {
        assert_eq!(check(same).expect(same).min_sendable_msat, 1_000);
    }
    for wrong in ["1000.5", "9223372036854775808", "-1", "\"1000\""] {
        refused(check(wrong), ErrorCode::ParseLnurlpResponseError, "minSendable");
    }
}

/// Nesting costs no stack, wherever it stands.
#[test]
fn deep_nesting_is_read_or_refused() {
    let json = lookup_response(Version::CURRENT).to_json().expect("sound");
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let unknown = json.replacen('{', &format!("{{\"x\":{deep},"), 1);
    LookupResponse::read(unknown.as_bytes()).expect("ignored");
    let within = |name: &str| {
        let known = json.replacen('{', &format!("{{\"{name}\":{deep},"), 1);
        let known = known.replacen(&format!(",\"{name}\":"), ",\"other\":", 1);
        LookupResponse::read(known.as_bytes())
    };
    for name in ["tag", "payerData", "minSendable"] {
        refused(within(name), ErrorCode::ParseLnurlpResponseError, name);
    }
    assert_eq!(within("currencies").expect("sound").left_out.len(), 1);
}

#[test]
fn unknown_fields_are_ignored_and_null_is_absent() {
    let response = lookup_response(Version::CURRENT);
    let mut json: Value = serde_json::from_str(&response.to_json().expect("sound")).expect("JSON");
    json["nostrPubkey"] = json!({"deep": [[[]]]});
    json["commentAllowed"] = Value::Null;
    json["compliance"]["backingSignatures"] = json!([{"domain": "x.example", "signature": "00"}]);
    let read = LookupResponse::read(json.to_string().as_bytes()).expect("sound");
    assert_eq!(read.comment_max, None);
    assert_eq!(read.compliance, response.compliance);
}
