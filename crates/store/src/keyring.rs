//! The secrets of a database and their uses: keyed hashes, and sealing values that must not stand
//! in a plain column.
//!
//! The hashing secret never changes, because the text behind a hash is not kept. The sealing secret
//! can be replaced: the newest one seals, and older ones still open.
//!
//! Sealing is XChaCha20-Poly1305. The nonce is a keyed hash of the place and the text (a synthetic
//! nonce): no randomness is needed, the same state always has the same bytes, and a nonce repeats
//! only where text and place do. The place is authenticated too, so a sealed value that is copied
//! to another row does not open there.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use domain::code::Code;
use hmac::{Hmac, Mac};
use parking_lot::RwLock;
use sha2::Sha256;
use uuid::Uuid;

use crate::error::StoreError;

/// Length of a key in bytes.
pub const KEY_LENGTH: usize = 32;

/// Length of a nonce in bytes.
const NONCE_LENGTH: usize = 24;

/// The number of the first sealing secret. It equals the hashing secret.
pub(crate) const FIRST_NUMBER: u32 = 1;

/// The secrets of a database, split by purpose. Prints nothing of itself.
pub struct Keyring {
    /// The keys of the sealing secrets by number, the newest first; never empty. A server adds one
    /// while it runs.
    sealing: RwLock<Vec<(u32, SealingKey)>>,
    hashes: [KeyedHash; Purpose::ALL.len()],
}

/// A sealing secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SealingSecret {
    /// Its number. Each new secret has the next one.
    pub(crate) number: u32,
    /// Its bytes.
    pub(crate) secret: [u8; KEY_LENGTH],
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
    /// A value of a person in a column.
    Hidden,
}

impl Purpose {
    /// Every purpose.
    const ALL: [Self; 14] = [
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
        Self::Hidden,
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
            Self::Hidden => b"hidden",
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
    /// Derives the keys for each purpose from one secret that hashes and seals.
    pub fn new(key: &[u8; KEY_LENGTH]) -> Self {
        Self::of(key, &[SealingSecret { number: FIRST_NUMBER, secret: *key }])
    }

    /// The same from the hashing secret and the sealing secrets, the newest first.
    pub(crate) fn of(hashing: &[u8; KEY_LENGTH], sealing: &[SealingSecret]) -> Self {
        let hashes = keyed(&hmac(&keyed(hashing), &[b"switchyard hashes 1"]));
        let sealing = sealing.iter().map(|it| (it.number, SealingKey::of_database(&it.secret)));
        Self {
            sealing: RwLock::new(sealing.collect()),
            hashes: Purpose::ALL.map(|purpose| keyed(&hmac(&hashes, &[purpose.label()]))),
        }
    }

    /// The number of the newest sealing secret.
    pub(crate) fn newest(&self) -> u32 {
        self.sealing.read().first().map_or(0, |(number, _)| *number)
    }

    /// Adds the sealing secret with this number, which the secret before it has sealed for a place.
    /// False if it does not open: the secret stays unknown.
    pub(crate) fn add(&self, number: u32, table: &'static str, sealed: &[u8]) -> bool {
        let mut all = self.sealing.write();
        let Some((newest, key)) = all.first() else { return false };
        if *newest >= number {
            // Another thread was faster.
            return true;
        }
        // Only the newest is believed: a thief may know an older one.
        let secret = key.open(&place(table, &number.to_be_bytes()), sealed);
        let secret = secret.filter(|_| *newest + 1 == number);
        let Some(secret) = secret.and_then(|it| it.try_into().ok()) else { return false };
        all.insert(0, (number, SealingKey::of_database(&secret)));
        true
    }

    /// Forgets sealing secrets above this number, which the database has lost.
    pub(crate) fn forget_newer(&self, number: u32) {
        self.sealing.write().retain(|(known, _)| *known <= number);
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
        let sealing = self.sealing.read();
        let (_, newest) = sealing.first().expect("there is always one");
        newest.seal(&place(table, row), plain)
    }

    /// Opens what [`Keyring::seal`] made for the same place.
    pub fn open(
        &self,
        table: &'static str,
        row: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let (place, sealing) = (place(table, row), self.sealing.read());
        let opened = sealing.iter().find_map(|(_, key)| key.open(&place, sealed));
        opened.ok_or(StoreError::Sealed { place: table.to_owned() })
    }

    /// Seals a value again with the newest secret; nothing if the newest has sealed it already.
    pub(crate) fn reseal(
        &self,
        table: &'static str,
        row: &[u8],
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let plain = self.open(table, row, sealed)?;
        // The same text has the same bytes.
        Ok(Some(self.seal(table, row, &plain)).filter(|again| again != sealed))
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

    /// The key that follows from a sealing secret.
    fn of_database(secret: &[u8; KEY_LENGTH]) -> Self {
        let master = keyed(secret);
        let part = |label: &[u8]| hmac(&master, &[label]);
        Self::new(part(b"switchyard sealing 1"), &part(b"switchyard nonces 1"))
    }

    /// The key that follows from a random one.
    pub(crate) fn of(key: &[u8; KEY_LENGTH]) -> Self {
        let master = keyed(key);
        let part = |label: &[u8]| hmac(&master, &[label]);
        Self::new(part(b"switchyard data 1"), &part(b"switchyard data nonces 1"))
    }

    /// Seals `plain` for one place.
    pub(crate) fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        metrics::counter!("switchyard_aead_calls_total", "operation" => "seal").increment(1);
        let digest = hmac(&self.nonces, &[place, plain]);
        let nonce =
            XNonce::try_from(&digest[..NONCE_LENGTH]).expect("a hash is longer than a nonce");
        let payload = Payload { msg: plain, aad: place };
        let sealed = self.cipher.encrypt(&nonce, payload).expect("a row is far below the limit");
        [nonce.as_slice(), &sealed].concat()
    }

    /// Opens a value that was sealed for the same place; nothing if it was not.
    pub(crate) fn open(&self, place: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        metrics::counter!("switchyard_aead_calls_total", "operation" => "open").increment(1);
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LENGTH)?;
        let payload = Payload { msg: sealed, aad: place };
        self.cipher.decrypt(&XNonce::try_from(nonce).ok()?, payload).ok()
    }
}

/// A key of the journal. Prints nothing of itself.
pub(crate) struct JournalKey {
    /// Seals frames without personal data.
    pub(crate) sealing: SealingKey,
    /// Derives the key of an owner's frames from its data key.
    owners: KeyedHash,
}

impl JournalKey {
    /// The key that follows from a random one.
    pub(crate) fn of(key: &[u8; KEY_LENGTH]) -> Self {
        let owners = keyed(&hmac(&keyed(key), &[b"switchyard owners 1"]));
        Self { sealing: SealingKey::of(key), owners }
    }

    /// The key of an owner's frames. It follows from this key and the data key together, so that a
    /// new key of the journal also protects frames under an old data key.
    pub(crate) fn of_owner(&self, data_key: &[u8; KEY_LENGTH]) -> SealingKey {
        SealingKey::of(&hmac(&self.owners, &[data_key]))
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
    fn a_newer_secret_seals_and_older_ones_open() {
        let keyring = Keyring::new(&[7; KEY_LENGTH]);
        let hash = keyring.hash(Purpose::Cursor, &[b"a"]);
        let old = keyring.seal("t", b"r", b"x");
        let handed_over = keyring.seal("next", &2_u32.to_be_bytes(), &[8; KEY_LENGTH]);
        assert!(!keyring.add(3, "next", &handed_over), "one is missing");
        assert!(!keyring.add(2, "other", &handed_over));
        assert!(keyring.add(2, "next", &handed_over) && keyring.add(2, "next", &[]));
        assert_eq!(keyring.newest(), 2);
        let new = keyring.seal("t", b"r", b"x");
        assert_ne!(old, new);
        for sealed in [&old, &new] {
            assert_eq!(keyring.open("t", b"r", sealed).as_deref(), Ok(&b"x"[..]));
        }
        assert_eq!(keyring.reseal("t", b"r", &old), Ok(Some(new.clone())));
        assert_eq!(keyring.reseal("t", b"r", &new), Ok(None));
        assert_eq!(keyring.hash(Purpose::Cursor, &[b"a"]), hash);
        // A secret that comes from an older one is not believed.
        let forged = Keyring::new(&[7; KEY_LENGTH]).seal("next", &3_u32.to_be_bytes(), &[6; 32]);
        assert!(!keyring.add(3, "next", &forged));
        keyring.forget_newer(1);
        assert!(keyring.open("t", b"r", &new).is_err());
        assert_eq!(keyring.seal("t", b"r", b"x"), old);
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
