//! Which times and nonces of signatures are acceptable.

use domain::time::Timestamp;
use uma::error::ErrorCode;
use uma::nonce::{Nonce, Stamp};

use crate::support::{SIGNED_AT, now, refused, stamp};

#[test]
fn a_signature_is_good_for_ten_minutes_and_five_before_its_time() {
    let check = |offset: i64| {
        let stamp = Stamp { at_seconds: SIGNED_AT + offset, ..stamp() };
        stamp.check_time(now())
    };
    for good in [-600, -599, 0, 299, 300] {
        check(good).expect("near enough");
    }
    for bad in [-601, 301, i64::MIN + SIGNED_AT.abs(), -SIGNED_AT] {
        refused(check(bad), ErrorCode::InvalidTimestamp, "timestamp");
    }
    let last = Stamp { at_seconds: i64::MAX, ..stamp() };
    refused(last.check_time(now()), ErrorCode::InvalidTimestamp, "timestamp");
    let first = Stamp { at_seconds: i64::MIN, ..stamp() };
    for now in [i64::MIN, 0, i64::MAX] {
        let now = Timestamp::from_millis(now);
        refused(first.check_time(now), ErrorCode::InvalidTimestamp, "timestamp");
    }
}

#[test]
fn a_stamp_has_whole_seconds() {
    let at = |millis| Stamp::new(Nonce::from_random(7), Timestamp::from_millis(millis)).at_seconds;
    assert_eq!((at(1_999), at(2_000), at(-1)), (1, 2, -1));
}

#[test]
fn nonces_are_opaque_but_bounded() {
    for good in ["1", "4294967295", "a-b_c", &"f".repeat(64)] {
        assert_eq!(Nonce::parse(good).expect(good).as_str(), good);
    }
    for wrong in ["", "1|2", "a b", "ä", "a\n", &"f".repeat(65)] {
        refused(Nonce::parse(wrong), ErrorCode::InvalidNonce, "nonce");
    }
    assert_eq!(Nonce::from_random(u64::MAX).as_str(), "18446744073709551615");
}
