//! How two sides agree on a version.

use uma::error::ErrorCode;
use uma::version::{Form, Version};

use crate::support::refused;

#[test]
fn the_receiver_answers_in_the_lower_version() {
    let check = |requested: &str, answered: &str| {
        let version = Version::parse(requested).expect(requested);
        assert_eq!(version.negotiate().expect(requested).to_string(), answered, "{requested}");
    };
    check("1.0", "1.0");
    check("1.3", "1.0");
    check("1.9", "1.0");
    check("0.3", "0.3");
    check("0.9", "0.3");
    check("0.2", "0.2");
}

#[test]
fn an_unknown_major_version_is_a_412_with_ours() {
    for requested in ["2.0", "3.7", "4294967295.0"] {
        let refusal = Version::parse(requested).expect("a version").negotiate();
        let refusal = refusal.expect_err(requested);
        assert_eq!((refusal.code, refusal.code.status()), (ErrorCode::UnsupportedUmaVersion, 412));
        assert_eq!(refusal.supported_major_versions, [1, 0]);
    }
}

#[test]
fn a_malformed_version_is_a_400() {
    for wrong in [
        "",
        "1",
        "1.",
        ".1",
        "1.0.0",
        "v1.0",
        "1.0 ",
        "+1.0",
        "-1.0",
        "01.0",
        "1.00",
        "1,0",
        "4294967296.0",
        "１.０",
        "1.x",
    ] {
        let read = Version::parse(wrong);
        assert_eq!(read.as_ref().map_err(|refusal| refusal.code.status()), Err(400), "{wrong}");
        refused(read, ErrorCode::ParseLnurlpRequestError, "umaVersion");
    }
}

#[test]
fn the_sender_takes_the_highest_common_major_version() {
    assert_eq!(Version::negotiate_again(&[0, 1, 2]), Ok(Version::CURRENT));
    assert_eq!(Version::negotiate_again(&[2, 0]), Ok(Version::LEGACY));
    for none in [&[][..], &[2, 3]] {
        let code = ErrorCode::NoCompatibleUmaVersion;
        refused(Version::negotiate_again(none), code, "major versions");
    }
}

#[test]
fn the_form_follows_from_the_major_version() {
    assert_eq!(Version::LEGACY.form(), Form::V0);
    assert_eq!(Version::CURRENT.form(), Form::V1);
}
