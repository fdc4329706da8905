//! Travel-rule data, encrypted to the receiving institution (UMAD-02, UMAD-05): ECIES on secp256k1
//! in the form of `eciespy` and its relatives.
//!
//! ```text
//! ephemeral public key, 65 bytes uncompressed | nonce, 16 | tag, 16 | ciphertext
//! key = HKDF-SHA256(ephemeral public key | shared point, both 65 bytes uncompressed)
//! AES-256-GCM without associated data
//! ```
//!
//! The crate `ecies` is not used: it draws its own random bytes and keeps its form in a global.

use std::fmt;

use aes_gcm::aead::consts::U16;
use aes_gcm::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm::{AesGcm, aes::Aes256};
use hkdf::Hkdf;
use k256::elliptic_curve::sec1::ToSec1Point as _;
use k256::{PublicKey, SecretKey};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::address::Address;
use crate::data::Facts;
use crate::error::{ErrorCode, Refusal};
use crate::signature::{InvalidKey, SECRET_BYTES};

type Cipher = AesGcm<Aes256, U16>;

/// Bytes of an uncompressed point.
const POINT_BYTES: usize = 65;
/// Bytes of the nonce of AES-GCM.
const NONCE_BYTES: usize = 16;
/// Bytes of the tag of AES-GCM.
const TAG_BYTES: usize = 16;

/// A secret key that decrypts. Prints nothing of itself, and is wiped when it is dropped.
#[derive(Clone)]
pub struct DecryptionKey(SecretKey);

impl DecryptionKey {
    /// A key from its 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidKey> {
        // The library also takes shorter ones, which it fills up with zeros.
        if bytes.len() != SECRET_BYTES {
            return Err(InvalidKey::Secret);
        }
        SecretKey::from_slice(bytes).map(Self).map_err(|_| InvalidKey::Secret)
    }

    /// A key from 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, InvalidKey> {
        let bytes = hex::decode(text).map(Zeroizing::new).map_err(|_| InvalidKey::Secret)?;
        Self::from_bytes(&bytes)
    }

    /// The 32 bytes of the key, wiped when they are dropped.
    pub fn to_bytes(&self) -> Zeroizing<[u8; SECRET_BYTES]> {
        Zeroizing::new(self.0.to_bytes().into())
    }

    /// The key that encrypts to this one.
    pub fn encryption_key(&self) -> EncryptionKey {
        EncryptionKey(self.0.public_key())
    }
}

impl fmt::Debug for DecryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecryptionKey(..)")
    }
}

/// A public key that encrypts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionKey(pub(crate) PublicKey);

impl EncryptionKey {
    /// A key from a point in SEC1 form, uncompressed or compressed.
    pub fn from_sec1(bytes: &[u8]) -> Result<Self, InvalidKey> {
        PublicKey::from_sec1_bytes(bytes).map(Self).map_err(|_| InvalidKey::Public)
    }

    /// A key from a point in SEC1 form, in hexadecimal.
    pub fn from_hex(text: &str) -> Result<Self, InvalidKey> {
        let bytes = hex::decode(text).map_err(|_| InvalidKey::Public)?;
        Self::from_sec1(&bytes)
    }

    /// The uncompressed point in lower-case hexadecimal: 130 digits.
    pub fn to_hex(&self) -> String {
        hex::encode(uncompressed(&self.0))
    }
}

/// Random bytes for one encryption. They must come from a secure source and never be used again.
/// Prints nothing of itself.
pub struct Entropy {
    /// The secret of the ephemeral key.
    pub ephemeral: Zeroizing<[u8; SECRET_BYTES]>,
    /// The nonce of AES-GCM.
    pub nonce: [u8; NONCE_BYTES],
}

/// Encrypts to a peer, in lower-case hexadecimal.
///
/// Fails only if the ephemeral secret is no scalar of the curve, one draw in about 2^128: the
/// caller draws again.
pub fn seal(plain: &[u8], to: &EncryptionKey, entropy: &Entropy) -> Result<String, InvalidKey> {
    let ephemeral = DecryptionKey::from_bytes(&entropy.ephemeral[..])?;
    let ephemeral_point = uncompressed(&ephemeral.0.public_key());
    let cipher = cipher(&ephemeral_point, &ephemeral.0, &to.0).ok_or(InvalidKey::Public)?;
    let mut text = plain.to_vec();
    let tag = cipher
        .encrypt_inout_detached(&entropy.nonce.into(), &[], text.as_mut_slice().into())
        .expect("a message in memory is shorter than the 64 GiB of AES-GCM");
    Ok(hex::encode([&ephemeral_point[..], &entropy.nonce, &tag, &text].concat()))
}

/// Decrypts a peer's text. The result is wiped when it is dropped.
pub fn open(sealed_hex: &str, key: &DecryptionKey) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let refusal = |wrong: &str| {
        let reason = format!("payerData.compliance.encryptedTravelRuleInfo {wrong}");
        Refusal::new(ErrorCode::ParsePayreqRequestError, reason)
    };
    let sealed = hex::decode(sealed_hex).map_err(|_| refusal("is not in hexadecimal"))?;
    let (point, rest) = sealed
        .split_first_chunk::<POINT_BYTES>()
        .ok_or_else(|| refusal("is too short for an ephemeral key"))?;
    let (nonce, rest) = rest
        .split_first_chunk::<NONCE_BYTES>()
        .ok_or_else(|| refusal("is too short for a nonce"))?;
    let (tag, text) =
        rest.split_first_chunk::<TAG_BYTES>().ok_or_else(|| refusal("is too short for a tag"))?;
    let ephemeral = PublicKey::from_sec1_bytes(point)
        .map_err(|_| refusal("does not begin with a point of secp256k1"))?;
    let unopened = || refusal("was not encrypted to the key that we publish");
    let cipher = cipher(point, &key.0, &ephemeral).ok_or_else(unopened)?;
    let mut plain = Zeroizing::new(text.to_vec());
    cipher
        .decrypt_inout_detached(&(*nonce).into(), &[], plain.as_mut_slice().into(), &(*tag).into())
        .map_err(|_| unopened())?;
    Ok(plain)
}

/// The cipher that both sides come to: each has its own secret and the other's point. `None` if the
/// shared point is at infinity, which two keys of this curve never give.
fn cipher(ephemeral_point: &[u8], secret: &SecretKey, other: &PublicKey) -> Option<Cipher> {
    let scalar = Zeroizing::new(*secret.to_nonzero_scalar());
    let shared = other.to_projective() * *scalar;
    let shared = PublicKey::from_affine(shared.to_affine()).ok()?;
    let shared_point = Zeroizing::new(uncompressed(&shared));
    let material = Zeroizing::new([ephemeral_point, &shared_point[..]].concat());
    let mut key = Zeroizing::new([0; 32]);
    Hkdf::<Sha256>::new(None, &material)
        .expand(&[], &mut key[..])
        .expect("32 bytes are fewer than 255 digests");
    Cipher::new_from_slice(&key[..]).ok()
}

/// Travel-rule data in no standard form: what is known of the payer, by the protocol's keys, and
/// the two addresses.
pub fn free_text(payer: &Address, payee: &Address, facts: &Facts) -> String {
    let mut originator = facts.write();
    originator.insert("identifier".into(), payer.as_written().into());
    serde_json::json!({
        "originator": originator,
        "beneficiary": { "identifier": payee.as_written() },
    })
    .to_string()
}

fn uncompressed(key: &PublicKey) -> [u8; POINT_BYTES] {
    let point = key.to_sec1_point(false);
    point.as_bytes().try_into().expect("an uncompressed point has 65 bytes")
}
