//! The secret of a database and its uses: keyed hashes, and sealing values that must not stand in a
//! plain column.
//!
//! Sealing is XChaCha20-Poly1305. The nonce is a keyed hash of the place and the text (a synthetic
//! nonce): no randomness is needed, the same state always has the same bytes, and a nonce repeats
//! only where text and place do. The place is authenticated too, so a sealed value that is copied
//! to another row does not open there.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use domain::code::Code;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::error::StoreError;

/// Length of a key in bytes.
pub const KEY_LENGTH: usize = 32;

/// Length of a nonce in bytes.
const NONCE_LENGTH: usize = 24;

/// The secret of a database, split by purpose. Prints nothing of itself.
pub struct Keyring {
    sealing: SealingKey,
    hashes: [KeyedHash; Purpose::ALL.len()],
}

/// A keyed hash that has taken its key and nothing else yet; cloned for each use.
type KeyedHash = Hmac<Sha256>;

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyring(..)")
    }
}

/// The purpose of a keyed hash. Hashes for different purposes never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A token's secret.
    ClientSecret,
    /// The identifiers of an external account on its rail.
    Fingerprint,
    /// The scope of an idempotency key.
    Idempotency,
    /// The cursor of a list.
    Cursor,
    /// Whether a key belongs to a database.
    KeyCheck,
    /// The resource that a code opens.
    Code,
    /// The secret that a platform's deliveries are signed with.
    WebhookSecret,
    /// The key of their other signature.
    WebhookSigning,
    /// The address of the customer whom a platform's first link for a name makes.
    LinkedAddress,
    /// The key with which a domain signs messages of UMA.
    UmaSigning,
    /// The key to which others encrypt to a domain.
    UmaEncryption,
    /// The secret of the Lightning node.
    LightningNode,
    /// A UMA address that was given out.
    UmaAddress,
}

impl Purpose {
    /// Every purpose.
    const ALL: [Self; 13] = [
        Self::ClientSecret,
        Self::Fingerprint,
        Self::Idempotency,
        Self::Cursor,
        Self::KeyCheck,
        Self::Code,
        Self::WebhookSecret,
        Self::WebhookSigning,
        Self::LinkedAddress,
        Self::UmaSigning,
        Self::UmaEncryption,
        Self::LightningNode,
        Self::UmaAddress,
    ];

    const fn label(self) -> &'static [u8] {
        match self {
            Self::ClientSecret => b"client-secret",
            Self::Fingerprint => b"fingerprint",
            Self::Idempotency => b"idempotency",
            Self::Cursor => b"cursor",
            Self::KeyCheck => b"key-check",
            Self::Code => b"code",
            Self::WebhookSecret => b"webhook-secret",
            Self::WebhookSigning => b"webhook-signing",
            Self::LinkedAddress => b"linked-address",
            Self::UmaSigning => b"uma-signing",
            Self::UmaEncryption => b"uma-encryption",
            Self::LightningNode => b"lightning-node",
            Self::UmaAddress => b"uma-address",
        }
    }
}

fn keyed(key: &[u8]) -> KeyedHash {
    <KeyedHash as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length")
}

fn hmac(keyed: &KeyedHash, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed.clone();
    for part in parts {
        // Lengths between the parts: no two lists of parts give the same input.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

impl Keyring {
    /// Derives the keys for each purpose from the secret of a database.
    pub fn new(key: &[u8; KEY_LENGTH]) -> Self {
        let master = keyed(key);
        let hashes = keyed(&hmac(&master, &[b"switchyard hashes 1"]));
        Self {
            sealing: SealingKey::new(
                hmac(&master, &[b"switchyard sealing 1"]),
                &hmac(&master, &[b"switchyard nonces 1"]),
            ),
            hashes: Purpose::ALL.map(|purpose| keyed(&hmac(&hashes, &[purpose.label()]))),
        }
    }

    /// A keyed hash.
    pub fn hash(&self, purpose: Purpose, parts: &[&[u8]]) -> [u8; 32] {
        hmac(&self.hashes[purpose as usize], parts)
    }

    /// The uuid of the resource that a code opens. It is a keyed hash, so that the database alone
    /// gives no code away.
    pub fn opened_by(&self, what: &'static str, code: &Code) -> Uuid {
        let digest = self.hash(Purpose::Code, &[what.as_bytes(), code.reveal().as_bytes()]);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Uuid::from_bytes(bytes)
    }

    /// Seals `plain` for one place: a table and the key of a row.
    pub fn seal(&self, table: &'static str, row: &[u8], plain: &[u8]) -> Vec<u8> {
        self.sealing.seal(&place(table, row), plain)
    }

    /// Opens what [`Keyring::seal`] made for the same place.
    pub fn open(
        &self,
        table: &'static str,
        row: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let opened = self.sealing.open(&place(table, row), sealed);
        opened.ok_or(StoreError::Sealed { place: table })
    }
}

/// A key that seals values for places. Prints nothing of itself.
pub(crate) struct SealingKey {
    cipher: XChaCha20Poly1305,
    nonces: KeyedHash,
}

impl SealingKey {
    fn new(cipher: [u8; KEY_LENGTH], nonces: &[u8]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(&Key::from(cipher)), nonces: keyed(nonces) }
    }

    /// The key that follows from a random one.
    pub(crate) fn of(key: &[u8; KEY_LENGTH]) -> Self {
        let master = keyed(key);
        let part = |label: &[u8]| hmac(&master, &[label]);
        Self::new(part(b"switchyard data 1"), &part(b"switchyard data nonces 1"))
    }

    /// Seals `plain` for one place.
    pub(crate) fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        let digest = hmac(&self.nonces, &[place, plain]);
        let nonce =
            XNonce::try_from(&digest[..NONCE_LENGTH]).expect("a hash is longer than a nonce");
        let payload = Payload { msg: plain, aad: place };
        let sealed = self.cipher.encrypt(&nonce, payload).expect("a row is far below the limit");
        [nonce.as_slice(), &sealed].concat()
    }

    /// Opens a value that was sealed for the same place; nothing if it was not.
    pub(crate) fn open(&self, place: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LENGTH)?;
        let payload = Payload { msg: sealed, aad: place };
        self.cipher.decrypt(&XNonce::try_from(nonce).ok()?, payload).ok()
    }
}

fn place(table: &'static str, row: &[u8]) -> Vec<u8> {
    [table.as_bytes(), &[0], row].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_values_open_only_in_their_place_with_their_key() {
        let keyring = Keyring::new(&[7; KEY_LENGTH]);
        let sealed = keyring.seal("customers", b"row", b"Ada Lovelace");
        assert!(!sealed.windows(3).any(|window| window == b"Ada"));
        assert_eq!(keyring.open("customers", b"row", &sealed).as_deref(), Ok(&b"Ada Lovelace"[..]));
        assert!(keyring.open("customers", b"other", &sealed).is_err());
        assert!(keyring.open("quotes", b"row", &sealed).is_err());
        assert!(Keyring::new(&[8; KEY_LENGTH]).open("customers", b"row", &sealed).is_err());
        for cut in 0..sealed.len() {
            assert!(keyring.open("customers", b"row", &sealed[..cut]).is_err());
        }
        let mut flipped = sealed.clone();
        flipped[30] ^= 1;
        assert!(keyring.open("customers", b"row", &flipped).is_err());
    }

    #[test]
    fn the_same_state_has_the_same_bytes() {
        let keyring = Keyring::new(&[7; KEY_LENGTH]);
        assert_eq!(keyring.seal("t", b"r", b"x"), keyring.seal("t", b"r", b"x"));
        assert_ne!(keyring.seal("t", b"r", b"x"), keyring.seal("t", b"r", b"y"));
    }

    #[test]
    fn hashes_differ_by_purpose_and_by_the_cut_between_parts() {
        let keyring = Keyring::new(&[7; KEY_LENGTH]);
        let hash = |purpose, parts: &[&[u8]]| keyring.hash(purpose, parts);
        assert_ne!(hash(Purpose::Cursor, &[b"ab"]), hash(Purpose::Fingerprint, &[b"ab"]));
        assert_ne!(hash(Purpose::Cursor, &[b"ab", b"c"]), hash(Purpose::Cursor, &[b"a", b"bc"]));
    }
}
