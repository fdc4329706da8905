//! Errors as bodies: ours, and those of peers.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uma::error::{ErrorCode, PeerCode, PeerError, Refusal};
use uma::version::Version;

#[test]
fn the_table_has_the_39_codes_of_the_protocol() {
    let names: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
    assert_eq!((ErrorCode::ALL.len(), names.len()), (39, 39));
    let count = |status| ErrorCode::ALL.iter().filter(|code| code.status() == status).count();
    let counts = [400, 401, 403, 404, 412, 424, 500, 501].map(count);
    assert_eq!(counts, [21, 1, 5, 3, 1, 5, 1, 2]);
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_name(code.name()), Some(*code));
    }
    assert_eq!(ErrorCode::from_name("invalid_nonce"), None);
}

#[test]
fn a_refusal_is_a_body_and_is_read_back() {
    let refusal = Refusal::new(ErrorCode::UserNotFound, "no \"$bob\" here");
    let body: Value = serde_json::from_str(&refusal.to_json()).expect("JSON");
    let expected =
        json!({"status": "ERROR", "reason": "no \"$bob\" here", "code": "USER_NOT_FOUND"});
    assert_eq!(body, expected);

    let refusal = Version { major: 2, minor: 0 }.negotiate().expect_err("unsupported");
    let read = PeerError::read(412, refusal.to_json().as_bytes()).expect("an error");
    assert_eq!(read.code, PeerCode::Known(ErrorCode::UnsupportedUmaVersion));
    assert_eq!((read.reason, read.supported_major_versions), (refusal.reason, vec![1, 0]));
}

#[test]
fn errors_of_peers_are_recognised() {
    let check = |status: u16, body: &str, code: Option<PeerCode>, reason: &str| {
        let read = PeerError::read(status, body.as_bytes());
        assert_eq!(read.as_ref().map(|error| &error.code), code.as_ref(), "{body}");
        assert_eq!(read.map(|error| error.reason).unwrap_or_default(), reason, "{body}");
    };
    let known = |code| Some(PeerCode::Known(code));
    check(200, r#"{"tag": "payRequest"}"#, None, "");
    check(200, "garbage", None, "");
    check(200, r#"{"status":"ERROR","reason":"no"}"#, Some(PeerCode::Absent), "no");
    check(200, r#"{"status":"error","reason":null}"#, Some(PeerCode::Absent), "HTTP status 200");
    check(502, "<html>", Some(PeerCode::Absent), "HTTP status 502");
    check(404, r#"{"code":"USER_NOT_FOUND"}"#, known(ErrorCode::UserNotFound), "HTTP status 404");
    let unknown = Some(PeerCode::Unknown("NEW_CODE".into()));
    check(400, r#"{"status":"ERROR","code":"NEW_CODE","reason":"r"}"#, unknown, "r");
    check(412, "[]", known(ErrorCode::UnsupportedUmaVersion), "HTTP status 412");
    check(412, r#"{"code":7}"#, known(ErrorCode::UnsupportedUmaVersion), "HTTP status 412");
}

#[test]
fn lists_and_reasons_of_peers_are_bounded() {
    let majors = vec![json!(1); 1_000];
    let reason = "x".repeat(10_000);
    let body = json!({"supportedMajorVersions": majors, "reason": reason}).to_string();
    let read = PeerError::read(412, body.as_bytes()).expect("an error");
    assert_eq!((read.supported_major_versions.len(), read.reason.len()), (16, 500));

    let body = r#"{"supportedMajorVersions": [1, -1, "0", 1.5, null, 0]}"#;
    let read = PeerError::read(412, body.as_bytes()).expect("an error");
    assert_eq!(read.supported_major_versions, [1, 0]);
}
