//! Signatures of deliveries, twice over the same bytes: as Standard Webhooks has it, and as the
//! existing clients of the public API check it (design decision 11).
//!
//! The same body has the same ECDSA signature every time (RFC 6979). Libraries that sign in a third
//! of the time draw on chance of their own, which here comes through its port alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::event::Event;
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::{Signer as _, Verifier as _};
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use p256::pkcs8::{DecodePublicKey as _, EncodePublicKey as _, LineEnding};
use sha2::Sha256;
use store::keyring::{Keyring, Purpose};

use crate::app::App;

/// The prefix of secrets of Standard Webhooks.
const SECRET_PREFIX: &str = "whsec_";

/// The prefix of signatures of Standard Webhooks with a secret.
const STANDARD_PREFIX: &str = "v1,";

/// Generations whose keys are remembered. A server with more platforms derives some again.
const REMEMBERED_MAX: usize = 1_024;

/// The keys of one generation. Prints nothing of itself.
struct Pair {
    secret: [u8; 32],
    signing: SigningKey,
}

impl Pair {
    /// The keys follow from the secret of the database, the platform and the generation.
    fn derive(keyring: &Keyring, platform: &Platform, generation: u32) -> Self {
        let (id, number) = (platform.id.uuid(), generation.to_be_bytes());
        let secret = keyring.hash(Purpose::WebhookSecret, &[id.as_bytes(), &number]);
        // All but a few of 2^128 digests are scalars of the curve.
        let signing = (0_u32..)
            .find_map(|attempt| {
                let parts = [&id.as_bytes()[..], &number, &attempt.to_be_bytes()];
                let scalar = keyring.hash(Purpose::WebhookSigning, &parts);
                SigningKey::from_slice(&scalar).ok()
            })
            .expect("some digest is a scalar");
        Self { secret, signing }
    }

    fn standard(&self, id: &str, seconds: &str, body: &[u8]) -> String {
        let mac = standard(&self.secret, id, seconds, body);
        format!("{STANDARD_PREFIX}{}", STANDARD.encode(mac.finalize().into_bytes()))
    }

    /// ECDSA over SHA-256 of the body, DER, in base64.
    fn ecdsa(&self, body: &[u8]) -> String {
        let signature: Signature = self.signing.sign(body);
        STANDARD.encode(signature.to_der())
    }

    fn public(&self) -> PublicKeys {
        let key = self.signing.verifying_key();
        let pem = key.to_public_key_pem(LineEnding::LF).expect("a key of the curve has a form");
        PublicKeys {
            secret: format!("{SECRET_PREFIX}{}", STANDARD.encode(self.secret)),
            public_key: pem,
        }
    }
}

/// The MAC of Standard Webhooks.
fn standard(secret: &[u8; 32], id: &str, seconds: &str, body: &[u8]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(secret);
    let mut mac = mac.expect("HMAC takes a key of any length");
    for part in [id.as_bytes(), b".", seconds.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

/// The secret behind its text.
fn read_secret(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text.strip_prefix(SECRET_PREFIX)?).ok()?.try_into().ok()
}

/// Keys that were derived before: to derive them takes as long as a signature.
#[derive(Default)]
pub(crate) struct Remembered(Mutex<HashMap<(PlatformId, u32), Arc<Pair>>>);

impl Remembered {
    fn pair(&self, keyring: &Keyring, platform: &Platform, generation: u32) -> Arc<Pair> {
        let key = (platform.id, generation);
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pair) = known().get(&key) {
            return Arc::clone(pair);
        }
        let pair = Arc::new(Pair::derive(keyring, platform, generation));
        let mut known = known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(key, Arc::clone(&pair));
        pair
    }
}

/// The keys with which a receiver checks signatures of one generation.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKeys {
    /// The shared secret of Standard Webhooks, `whsec_…`.
    pub secret: String,
    /// The public key of the other signature: PEM, SubjectPublicKeyInfo, P-256.
    pub public_key: String,
}

impl PublicKeys {
    /// Whether a header `webhook-signature` has the secret's signature of a delivery. How old the
    /// delivery is stands in `seconds`, the header `webhook-timestamp`, and is not judged here.
    pub fn is_standard(&self, header: &str, id: &str, seconds: &str, body: &[u8]) -> bool {
        let Some(secret) = read_secret(&self.secret) else { return false };
        let given = header.split(' ').filter_map(|it| it.strip_prefix(STANDARD_PREFIX));
        given
            .filter_map(|it| STANDARD.decode(it).ok())
            .any(|signature| standard(&secret, id, seconds, body).verify_slice(&signature).is_ok())
    }

    /// Whether `signature`, DER in base64, is the public key's of a body.
    pub fn is_ecdsa(&self, signature: &str, body: &[u8]) -> bool {
        let key = VerifyingKey::from_public_key_pem(&self.public_key);
        let signature = STANDARD.decode(signature).ok();
        let signature = signature.and_then(|der| Signature::from_der(&der).ok());
        key.ok().zip(signature).is_some_and(|(key, it)| key.verify(body, &it).is_ok())
    }
}

impl std::fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PublicKeys(..)")
    }
}

/// Signs a platform's deliveries.
pub struct Signer {
    newest: Arc<Pair>,
    previous: Option<(Arc<Pair>, Timestamp)>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl Signer {
    /// With a secret as receivers have it, and a signing key that `draw` makes. None if the text is
    /// no secret.
    pub fn with_secret(secret: &str, draw: impl FnMut() -> [u8; 32]) -> Option<Self> {
        let secret = read_secret(secret)?;
        let signing = std::iter::repeat_with(draw).find_map(|it| SigningKey::from_slice(&it).ok());
        let signing = signing.expect("all but a few of 2^128 draws are scalars of the curve");
        Some(Self { newest: Arc::new(Pair { secret, signing }), previous: None })
    }

    /// With the keys that a platform has now: the newest, and for a day those before.
    pub fn of(app: &App, platform: &Platform, now: Timestamp) -> Self {
        let of =
            |generation| app.remembered_keys().pair(app.store().keyring(), platform, generation);
        let previous = platform.signing.previous(now);
        Self {
            newest: of(platform.signing.newest),
            previous: previous.map(|(generation, until)| (of(generation), until)),
        }
    }

    /// Whether one of the keys does not sign any more at a time.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.previous.as_ref().is_some_and(|(_, until)| now >= *until)
    }

    /// The keys that a receiver needs now.
    pub fn newest(&self) -> PublicKeys {
        self.newest.public()
    }

    /// The keys before, and until when they sign.
    pub fn previous(&self) -> Option<(PublicKeys, Timestamp)> {
        self.previous.as_ref().map(|(pair, until)| (pair.public(), *until))
    }

    /// The headers of a delivery of an event at a time. A receiver that knows either generation's
    /// keys finds its signature among them.
    pub fn headers(&self, event: &Event, now: Timestamp) -> Vec<(&'static str, String)> {
        self.headers_of(&event.id.to_string(), &event.body, now)
    }

    /// The same for the id of an event and its bytes.
    pub fn headers_of(&self, id: &str, body: &[u8], now: Timestamp) -> Vec<(&'static str, String)> {
        let seconds = (now.millis() / 1_000).to_string();
        let previous = self.previous.iter().map(|(pair, _)| pair);
        let pairs = std::iter::once(&self.newest).chain(previous);
        let standard: Vec<_> = pairs.map(|pair| pair.standard(id, &seconds, body)).collect();
        let newest = self.newest.ecdsa(body);
        // A receiver that reads `s` alone keeps its key until it changes, within the day.
        let ecdsa = match &self.previous {
            None => format!(r#"{{"v":"1","s":"{newest}"}}"#),
            Some((pair, _)) => {
                let previous = pair.ecdsa(body);
                format!(r#"{{"v":"1","s":"{previous}","next":"{newest}"}}"#)
            }
        };
        vec![
            ("content-type", "application/json".to_owned()),
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", seconds),
            ("webhook-signature", standard.join(" ")),
            ("x-grid-signature", ecdsa),
        ]
    }
}
