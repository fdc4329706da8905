//! Travel-rule data: opened as the reference implementation seals it, and sealed likewise.

use proptest::prelude::*;
use uma::error::ErrorCode;
use uma::signature::InvalidKey;
use uma::travel_rule::{DecryptionKey, EncryptionKey, Entropy, open, seal};
use zeroize::Zeroizing;

use crate::support::refused;

/// `{"originator":"Alice"}`, sealed by uma-sdk 1.6.0 (Python) to the key 0x22...
const VECTOR: &str = "04ddb48e03dfffb640176542277560b7c64379c832eb7bf1b15288c0b9dfc848c18665174525\
                      4b8fec75a998945961e5f4a19d0c601b6fa31008197f84edf2f0ecf0611eff8458226b53602b\
                      e0158da0db8df095b6fdad8f534c7f32b08e35bcb7ab9d090a1e0529faa1a4c33d4f172e90a9\
                      1001a492cd";

fn key(byte: u8) -> DecryptionKey {
    DecryptionKey::from_bytes(&[byte; 32]).expect("small enough for the curve")
}

fn entropy(ephemeral: u8, nonce: u8) -> Entropy {
    Entropy { ephemeral: Zeroizing::new([ephemeral; 32]), nonce: [nonce; 16] }
}

#[test]
fn what_the_reference_implementation_seals_is_opened() {
    assert_eq!(open(VECTOR, &key(0x22)).expect("ours")[..], *br#"{"originator":"Alice"}"#);
    refused(
        open(VECTOR, &key(0x23)),
        ErrorCode::ParsePayreqRequestError,
        "not encrypted to the key",
    );
}

#[test]
fn sealing_is_decided_by_its_random_bytes() {
    let seal = |ephemeral, nonce| seal(b"x", &key(1).encryption_key(), &entropy(ephemeral, nonce));
    let sealed = seal(5, 6).expect("a scalar");
    assert_eq!(sealed.len(), 2 * (65 + 16 + 16 + 1));
    assert_eq!(seal(5, 6), Ok(sealed.clone()));
    assert_ne!(seal(5, 7), Ok(sealed.clone()));
    assert_ne!(seal(4, 6), Ok(sealed));
    assert_eq!(seal(0, 6), Err(InvalidKey::Secret));
    assert_eq!(seal(0xff, 6), Err(InvalidKey::Secret));
}

#[test]
fn what_cannot_be_opened_is_refused() {
    let off_the_curve = format!("04{}", "01".repeat(96));
    let compressed = format!("02{}", &VECTOR[2..]);
    let flipped = format!("{}00", &VECTOR[..VECTOR.len() - 2]);
    for (sealed, reason) in [
        ("", "too short for an ephemeral key"),
        (&VECTOR[..130], "too short for a nonce"),
        (&VECTOR[..162], "too short for a tag"),
        (&VECTOR[..194], "not encrypted to the key"),
        (&VECTOR[1..], "hexadecimal"),
        ("zz", "hexadecimal"),
        (off_the_curve.as_str(), "point"),
        (compressed.as_str(), "point"),
        (flipped.as_str(), "not encrypted to the key"),
    ] {
        refused(open(sealed, &key(0x22)), ErrorCode::ParsePayreqRequestError, reason);
    }
}

#[test]
fn secret_keys_are_read_whole_and_never_shown() {
    let text = "22".repeat(32);
    let key = DecryptionKey::from_hex(&text).expect("a key");
    assert_eq!(
        (&key.to_bytes()[..], format!("{key:?}")),
        (&[0x22; 32][..], "DecryptionKey(..)".into())
    );
    for wrong in ["", "22", &text[2..], &"ff".repeat(32), "zz"] {
        assert_eq!(DecryptionKey::from_hex(wrong).err(), Some(InvalidKey::Secret), "{wrong}");
    }
    let public = key.encryption_key();
    assert_eq!(EncryptionKey::from_hex(&public.to_hex()), Ok(public));
    assert_eq!(EncryptionKey::from_hex("04"), Err(InvalidKey::Public));
}

proptest! {
    #[test]
    fn what_is_sealed_is_opened_by_the_receiver_alone(
        text in proptest::collection::vec(any::<u8>(), 0..200),
        receiver in 1_u8..=200,
        ephemeral in 1_u8..=200,
        nonce: u8,
    ) {
        let to = key(receiver).encryption_key();
        let sealed = seal(&text, &to, &entropy(ephemeral, nonce)).expect("a scalar");
        prop_assert_eq!(&open(&sealed, &key(receiver)).expect("ours")[..], &text[..]);
        prop_assert!(open(&sealed, &key(receiver + 1)).is_err());
    }
}
