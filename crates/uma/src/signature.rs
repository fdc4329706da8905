//! Signatures over messages: ECDSA on secp256k1 over SHA-256, DER in lower-case hexadecimal
//! (UMAD-02). [`payload`] has the text that each message signs.
//!
//! Signing is deterministic (RFC 6979) and gives a low S; a high S is accepted. The protocol signs
//! no amounts, currencies, URLs and invoices: TLS alone protects them.

pub mod payload;

use std::fmt;

use k256::ecdsa::signature::{Signer as _, Verifier as _};
use k256::ecdsa::{self, Signature};
use zeroize::Zeroizing;

use crate::error::{ErrorCode, Refusal};
use crate::json::Fields;
use crate::nonce::{Nonce, Stamp};

/// Bytes of a secret key.
pub const SECRET_BYTES: usize = 32;

/// Why bytes are no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Zero, or not below the order of the curve, or not in hexadecimal.
    #[error("a secret key is 32 bytes below the order of secp256k1, in hexadecimal")]
    Secret,
    /// No point of the curve, or not in hexadecimal.
    #[error("a public key is a point of secp256k1, 65 bytes uncompressed, in hexadecimal")]
    Public,
}

/// A secret key that signs. Prints nothing of itself, and is wiped when it is dropped.
#[derive(Clone)]
pub struct SigningKey(pub(crate) ecdsa::SigningKey);

impl SigningKey {
    /// A key from its 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidKey> {
        // The library also takes shorter ones, which it fills up with zeros.
        if bytes.len() != SECRET_BYTES {
            return Err(InvalidKey::Secret);
        }
        ecdsa::SigningKey::from_slice(bytes).map(Self).map_err(|_| InvalidKey::Secret)
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

    /// The key that verifies what this one signs.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(*self.0.verifying_key())
    }

    /// The signature of a payload: DER in lower-case hexadecimal, with a low S.
    pub fn sign(&self, payload: &str) -> String {
        let signature: Signature = self.0.sign(payload.as_bytes());
        hex::encode(signature.normalize_s().to_der().as_bytes())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// A public key that verifies signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyingKey(pub(crate) ecdsa::VerifyingKey);

impl VerifyingKey {
    /// A key from a point in SEC1 form, uncompressed or compressed.
    pub fn from_sec1(bytes: &[u8]) -> Result<Self, InvalidKey> {
        ecdsa::VerifyingKey::from_sec1_bytes(bytes).map(Self).map_err(|_| InvalidKey::Public)
    }

    /// A key from a point in SEC1 form, in hexadecimal.
    pub fn from_hex(text: &str) -> Result<Self, InvalidKey> {
        let bytes = hex::decode(text).map_err(|_| InvalidKey::Public)?;
        Self::from_sec1(&bytes)
    }

    /// The uncompressed point in lower-case hexadecimal: 130 digits.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0.to_sec1_point(false).as_bytes())
    }

    /// Refuses a signature that is not this key's over the payload.
    pub fn verify(&self, payload: &str, signature_hex: &str) -> Result<(), Refusal> {
        let refusal = |reason| Refusal::new(ErrorCode::InvalidSignature, reason);
        let der = hex::decode(signature_hex)
            .map_err(|_| refusal("the signature is not in hexadecimal"))?;
        let signature = Signature::from_der(&der)
            .map_err(|_| refusal("the signature is not DER of an ECDSA signature"))?;
        self.0
            .verify(payload.as_bytes(), &signature.normalize_s())
            .map_err(|_| refusal("the signature is not the peer's over this message"))
    }
}

/// A signature as a message carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The nonce and the time that it covers.
    pub stamp: Stamp,
    /// DER in hexadecimal. A peer's is not checked until it is verified.
    pub signature_hex: String,
}

impl Signed {
    /// Signs a payload that was made with this stamp.
    pub fn new(key: &SigningKey, payload: &str, stamp: Stamp) -> Self {
        Self { stamp, signature_hex: key.sign(payload) }
    }

    /// Reads `signature`, `signatureNonce` and `signatureTimestamp`.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let signature_hex = fields.filled("signature")?;
        let nonce = Nonce::parse(&fields.filled("signatureNonce")?)?;
        let at_seconds = fields.integer("signatureTimestamp")?;
        Ok(Self { stamp: Stamp { nonce, at_seconds }, signature_hex })
    }

    /// Writes what [`Self::read`] reads.
    pub(crate) fn write(&self, into: &mut serde_json::Map<String, serde_json::Value>) {
        into.insert("signature".into(), self.signature_hex.as_str().into());
        into.insert("signatureNonce".into(), self.stamp.nonce.as_str().into());
        into.insert("signatureTimestamp".into(), self.stamp.at_seconds.into());
    }
}
