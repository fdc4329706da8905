//! Signatures of deliveries, twice over the same bytes: as Standard Webhooks has it, and as the
//! existing clients of the public API check it (design decision 11).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::event::Event;
use domain::id::PlatformId;
use domain::platform::Platform;
use domain::time::Timestamp;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePublicKey as _, LineEnding};
use sha2::Sha256;
use store::keyring::{Keyring, Purpose};

use crate::app::App;

/// What the secrets of Standard Webhooks begin with.
const SECRET_PREFIX: &str = "whsec_";

/// Generations whose keys are remembered. Whoever delivers for more platforms derives some again.
const REMEMBERED_MAX: usize = 1_024;

/// The keys of one generation. Prints nothing of itself.
struct Pair {
    secret: [u8; 32],
    signing: SigningKey,
}

impl Pair {
    /// The keys follow from the server's key, the platform and the generation.
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

    fn standard(&self, signed: &[&[u8]]) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes a key of any length");
        for part in signed {
            mac.update(part);
        }
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
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

/// What a receiver needs to check signatures of one generation.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKeys {
    /// The shared secret of Standard Webhooks, `whsec_…`.
    pub secret: String,
    /// The public key of the other signature: PEM, SubjectPublicKeyInfo, P-256.
    pub public_key: String,
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
        let (id, seconds) = (event.id.to_string(), (now.millis() / 1_000).to_string());
        let signed: [&[u8]; 5] = [id.as_bytes(), b".", seconds.as_bytes(), b".", &event.body];
        let previous = self.previous.iter().map(|(pair, _)| pair);
        let pairs = std::iter::once(&self.newest).chain(previous);
        let standard: Vec<_> = pairs.map(|pair| pair.standard(&signed)).collect();
        let newest = self.newest.ecdsa(&event.body);
        let ecdsa = match &self.previous {
            None => format!(r#"{{"v":"1","s":"{newest}"}}"#),
            Some((pair, _)) => {
                let previous = pair.ecdsa(&event.body);
                format!(r#"{{"v":"1","s":"{newest}","previous":"{previous}"}}"#)
            }
        };
        vec![
            ("content-type", "application/json".to_owned()),
            ("webhook-id", id),
            ("webhook-timestamp", seconds),
            ("webhook-signature", standard.join(" ")),
            ("x-grid-signature", ecdsa),
        ]
    }
}
