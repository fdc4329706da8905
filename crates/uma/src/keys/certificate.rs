//! X.509 certificates of keys on secp256k1: self-signed ones of ours, and leaves of peers.

use std::str::FromStr as _;
use std::time::Duration;

use domain::time::Timestamp;
use k256::ecdsa::DerSignature;
use k256::elliptic_curve::sec1::ToSec1Point as _;
use x509_cert::Certificate;
use x509_cert::builder::profile::BuilderProfile;
use x509_cert::builder::{self, Builder as _, CertificateBuilder};
use x509_cert::certificate::TbsCertificate;
use x509_cert::der::asn1::{GeneralizedTime, UtcTime};
use x509_cert::der::referenced::OwnedToRef as _;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage, KeyUsages, SubjectKeyIdentifier};
use x509_cert::ext::{Extension, ToExtension as _};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{SubjectPublicKeyInfoOwned, SubjectPublicKeyInfoRef};
use x509_cert::time::{Time, Validity};

use crate::address::PeerDomain;
use crate::signature::SigningKey;

/// Characters of a common name at most (RFC 5280, upper bound of `CommonName`).
const COMMON_NAME_MAX: usize = 64;

/// The contents of a certificate beside its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The domain that it names. Peers do not look at it.
    pub name: PeerDomain,
    /// Its serial number; 1 or more.
    pub serial: u64,
    /// The beginning of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
}

/// Why no certificate can have these terms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTerms {
    /// Zero.
    #[error("the serial number of a certificate must be 1 or more")]
    Serial,
    /// Before 1970 or after 9999, or ends before it begins.
    #[error(
        "the validity of a certificate must lie between 1970 and 9999, and not end before it begins"
    )]
    Validity,
    /// Another part cannot be encoded.
    #[error("the certificate cannot be encoded: {0}")]
    Encoding(String),
}

/// DER of a certificate of the key, signed by the key itself.
pub fn self_signed(key: &SigningKey, terms: &Terms) -> Result<Vec<u8>, InvalidTerms> {
    if terms.serial == 0 {
        return Err(InvalidTerms::Serial);
    }
    if terms.not_after < terms.not_before {
        return Err(InvalidTerms::Validity);
    }
    let validity = Validity::new(time(terms.not_before)?, time(terms.not_after)?);
    let common_name: String = terms.name.as_str().chars().take(COMMON_NAME_MAX).collect();
    let encoding = |error: &dyn std::fmt::Display| InvalidTerms::Encoding(error.to_string());
    let name = Name::from_str(&format!("CN={common_name}")).map_err(|error| encoding(&error))?;
    let public = SubjectPublicKeyInfoOwned::from_key(key.0.verifying_key())
        .map_err(|error| encoding(&error))?;
    let serial = SerialNumber::from(terms.serial);
    CertificateBuilder::new(SelfSigned(name), serial, validity, public)
        .and_then(|builder| builder.build::<_, DerSignature>(&key.0))
        .map_err(|error| encoding(&error))?
        .to_der()
        .map_err(|error| encoding(&error))
}

/// An instant in whole seconds; until 2049 in the shorter form, as RFC 5280 asks.
fn time(at: Timestamp) -> Result<Time, InvalidTerms> {
    let seconds = u64::try_from(at.millis().div_euclid(1_000));
    let since = Duration::from_secs(seconds.map_err(|_| InvalidTerms::Validity)?);
    if let Ok(short) = UtcTime::from_unix_duration(since) {
        return Ok(Time::UtcTime(short));
    }
    let long = GeneralizedTime::from_unix_duration(since).map_err(|_| InvalidTerms::Validity)?;
    Ok(Time::GeneralTime(long))
}

/// A certificate that is its own issuer and issues no other.
struct SelfSigned(Name);

impl BuilderProfile for SelfSigned {
    fn get_issuer(&self, subject: &Name) -> Name {
        subject.clone()
    }

    fn get_subject(&self) -> Name {
        self.0.clone()
    }

    fn build_extensions(
        &self,
        key: SubjectPublicKeyInfoRef<'_>,
        _issuer_key: SubjectPublicKeyInfoRef<'_>,
        tbs: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        let subject = tbs.subject();
        // One set of uses for both keys: a peer may have one key pair for signing and encryption.
        let uses = KeyUsage(KeyUsages::DigitalSignature | KeyUsages::KeyAgreement);
        let constraints = BasicConstraints { ca: false, path_len_constraint: None };
        Ok(vec![
            SubjectKeyIdentifier::try_from(key)?.to_extension(subject, &[])?,
            constraints.to_extension(subject, &[])?,
            uses.to_extension(subject, &[])?,
        ])
    }
}

/// Why a certificate of a peer is of no use. The sentence continues the name of its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLeaf {
    /// Not DER of a certificate.
    #[error("is not DER of an X.509 certificate")]
    Certificate,
    /// A key of another kind or curve.
    #[error("has a key that is not a point of secp256k1")]
    Key,
}

/// The first certificate of a peer's chain, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its key, uncompressed in SEC1 form.
    pub point: Vec<u8>,
    /// The last second of its validity, since 1970-01-01T00:00:00Z.
    pub not_after_seconds: i64,
}

impl Leaf {
    /// Reads DER.
    pub fn read(der: &[u8]) -> Result<Self, InvalidLeaf> {
        let certificate = Certificate::from_der(der).map_err(|_| InvalidLeaf::Certificate)?;
        let tbs = certificate.tbs_certificate();
        let key = k256::PublicKey::try_from(tbs.subject_public_key_info().owned_to_ref())
            .map_err(|_| InvalidLeaf::Key)?;
        let end = tbs.validity().not_after.to_unix_duration().as_secs();
        Ok(Self {
            point: key.to_sec1_point(false).as_bytes().to_vec(),
            not_after_seconds: i64::try_from(end).unwrap_or(i64::MAX),
        })
    }
}
