//! The document of `/.well-known/lnurlpubkey`: an institution's public keys (UMAD-02).
//!
//! Version 1 has certificate chains, version 0 bare keys. We publish both. Of a peer's document the
//! leaf of a chain is used, else the bare key. Chains lead to no authority that is trusted: TLS
//! vouches for the document, so neither issuers nor signatures of certificates are checked.

pub mod certificate;

use domain::time::Timestamp;
use serde::Serialize;

use crate::error::{ErrorCode, Refusal};
use crate::json::{self, Fields};
use crate::signature::{SigningKey, VerifyingKey};
use crate::travel_rule::{DecryptionKey, EncryptionKey};

use certificate::{InvalidTerms, Leaf, Terms};

/// The path of the document at the root of a domain.
pub const PATH: &str = "/.well-known/lnurlpubkey";

/// Our own document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyDocument {
    /// DER of the certificate of the signing key.
    pub signing_certificate: Vec<u8>,
    /// DER of the certificate of the encryption key.
    pub encryption_certificate: Vec<u8>,
    /// The key that verifies our signatures.
    pub verifying_key: VerifyingKey,
    /// The key that encrypts to us.
    pub encryption_key: EncryptionKey,
    /// Until when peers may keep the keys, in seconds since 1970-01-01T00:00:00Z. Some peers keep
    /// them forever without it, so it is always written.
    pub expires_at_seconds: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    signing_cert_chain: [String; 1],
    encryption_cert_chain: [String; 1],
    signing_pub_key: String,
    encryption_pub_key: String,
    expiration_timestamp: i64,
}

impl KeyDocument {
    /// Makes a self-signed certificate for each key. The same arguments give the same bytes.
    pub fn new(
        signing: &SigningKey,
        encryption: &DecryptionKey,
        terms: &Terms,
        expires_at: Timestamp,
    ) -> Result<Self, InvalidTerms> {
        let encryption_signer = SigningKey::from_bytes(&encryption.to_bytes()[..])
            .expect("both kinds of key are scalars of one curve");
        Ok(Self {
            signing_certificate: certificate::self_signed(signing, terms)?,
            encryption_certificate: certificate::self_signed(&encryption_signer, terms)?,
            verifying_key: signing.verifying_key(),
            encryption_key: encryption.encryption_key(),
            expires_at_seconds: expires_at.millis().div_euclid(1_000),
        })
    }

    /// The document as JSON.
    pub fn to_json(&self) -> String {
        json::text(&Document {
            signing_cert_chain: [hex::encode(&self.signing_certificate)],
            encryption_cert_chain: [hex::encode(&self.encryption_certificate)],
            signing_pub_key: self.verifying_key.to_hex(),
            encryption_pub_key: self.encryption_key.to_hex(),
            expiration_timestamp: self.expires_at_seconds,
        })
    }
}

/// Seconds for which a peer's keys are kept at most, whatever its document says: one that was read
/// while its domain was in wrong hands is believed for no longer.
const KEPT_SECONDS_MAX: i64 = 24 * 60 * 60;

/// The keys of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerKeys {
    /// Verifies the peer's signatures.
    pub verifying_key: VerifyingKey,
    /// Encrypts to the peer.
    pub encryption_key: EncryptionKey,
    /// Until when the keys may be kept, at most a day; `None`: they must not be kept at all.
    pub expires_at: Option<Timestamp>,
}

impl PeerKeys {
    /// Reads a peer's document. A certificate whose validity is over at `now` is refused.
    pub fn read(body: &[u8], now: Timestamp) -> Result<Self, Refusal> {
        let fields = Fields::read(ErrorCode::CounterpartyPubkeyFetchError, body)?;
        let signing = Key::read(&fields, "signingCertChain", "signingPubKey", now)?;
        let encryption = Key::read(&fields, "encryptionCertChain", "encryptionPubKey", now)?;
        let expires_at = fields.optional_integer("expirationTimestamp")?.map(|stated| {
            let ends = [signing.ends_at_seconds, encryption.ends_at_seconds];
            let latest = now.millis().div_euclid(1_000).saturating_add(KEPT_SECONDS_MAX);
            let first = ends.into_iter().flatten().fold(stated.min(latest), i64::min);
            Timestamp::from_millis(first.saturating_mul(1_000))
        });
        let invalid = |_| pubkey_format("a key is no point of secp256k1");
        Ok(Self {
            verifying_key: VerifyingKey::from_sec1(&signing.point).map_err(invalid)?,
            encryption_key: EncryptionKey::from_sec1(&encryption.point).map_err(invalid)?,
            expires_at,
        })
    }
}

/// One of the two keys of a document.
struct Key {
    /// The point in SEC1 form.
    point: Vec<u8>,
    /// The end of its certificate's validity.
    ends_at_seconds: Option<i64>,
}

impl Key {
    fn read(fields: &Fields<'_>, chain: &str, bare: &str, now: Timestamp) -> Result<Self, Refusal> {
        if let Some(leaf) = fields.optional_texts(chain)?.unwrap_or_default().first() {
            let invalid = |wrong: &str| {
                Refusal::new(ErrorCode::CertChainInvalid, format!("{chain}[0] {wrong}"))
            };
            let der = hex::decode(leaf).map_err(|_| invalid("is not in hexadecimal"))?;
            let leaf = Leaf::read(&der).map_err(|error| invalid(&error.to_string()))?;
            if leaf.not_after_seconds < now.millis().div_euclid(1_000) {
                let reason = format!("the validity of {chain}[0] is over");
                return Err(Refusal::new(ErrorCode::CertChainExpired, reason));
            }
            return Ok(Self { point: leaf.point, ends_at_seconds: Some(leaf.not_after_seconds) });
        }
        let Some(bare_hex) = fields.optional_filled(bare)? else {
            return Err(pubkey_format(&format!("both {chain} and {bare} are missing")));
        };
        let point = hex::decode(&bare_hex)
            .ok()
            .filter(|point| VerifyingKey::from_sec1(point).is_ok())
            .ok_or_else(|| pubkey_format(&format!("{bare} is no point of secp256k1")))?;
        Ok(Self { point, ends_at_seconds: None })
    }
}

fn pubkey_format(reason: &str) -> Refusal {
    Refusal::new(ErrorCode::InvalidPubkeyFormat, reason)
}
