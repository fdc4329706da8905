//! The keys of a domain in UMA: they sign its messages and decrypt travel-rule data (UMAD-02).
//!
//! They follow from the secret of the database, the domain and a generation, so that nothing keeps
//! them and a restart changes nothing. Platforms that share a domain share its keys.

use domain::platform::Platform;
use domain::signing::Generations;
use domain::time::Timestamp;
use domain::uma_address::UmaDomain;
use store::keyring::{Keyring, Purpose};
use uma::address::{Address, PeerDomain};
use uma::error::Refusal;
use uma::keys::KeyDocument;
use uma::keys::certificate::Terms;
use uma::nonce::{Nonce, Stamp};
use uma::signature::SigningKey;
use uma::travel_rule::{self, DecryptionKey};
use zeroize::Zeroizing;

use crate::app::App;
use crate::error::Error;
use crate::owners;

/// How long others may keep our keys, in milliseconds: new ones begin to be used that much after
/// they were made, so that no peer still has the old ones then.
const KEPT_MILLIS: i64 = 3_600_000;

/// How long a certificate is valid, in milliseconds. Peers do not look at it; an operator rotates
/// the keys long before.
const CERTIFICATE_MILLIS: i64 = 10 * 365 * 86_400_000;

/// The keys of one generation. Neither prints anything of itself.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Signs.
    pub signing: SigningKey,
    /// Decrypts.
    pub encryption: DecryptionKey,
}

impl Keys {
    fn derive(keyring: &Keyring, domain: &str, generation: u32) -> Self {
        let derived = |purpose: Purpose, attempt: u32| {
            let parts = [domain.as_bytes(), &generation.to_be_bytes(), &attempt.to_be_bytes()];
            Zeroizing::new(keyring.hash(purpose, &parts))
        };
        // All but a few of 2^128 digests are scalars of the curve.
        let signing = (0_u32..)
            .find_map(|attempt| {
                SigningKey::from_bytes(&derived(Purpose::UmaSigning, attempt)[..]).ok()
            })
            .expect("some digest is a scalar");
        let encryption = (0_u32..)
            .find_map(|attempt| {
                DecryptionKey::from_bytes(&derived(Purpose::UmaEncryption, attempt)[..]).ok()
            })
            .expect("some digest is a scalar");
        Self { signing, encryption }
    }

    /// The keys of a platform's domain at `now`, by the server's clock.
    pub(crate) fn of(app: &App, platform: &Platform, now: Timestamp) -> Self {
        let (generation, _) = platform.uma_keys.in_use(now, KEPT_MILLIS);
        Self::derive(app.store().keyring(), platform.uma_domain.as_str(), generation)
    }
}

/// The domain of a platform's addresses, as it stands in messages.
pub(crate) fn domain(platform: &Platform) -> Result<PeerDomain, Error> {
    let domain = PeerDomain::parse(platform.uma_domain.as_str());
    domain.map_err(|error| Error::Internal(error.to_string()))
}

/// A nonce that was never used, and the machine's time, which the other side compares with its own.
pub(crate) fn stamp(app: &App) -> Stamp {
    Stamp::new(Nonce::from_random(app.env().entropy.number()), app.machine_now())
}

/// Refuses a signature that is too old, or ahead of the machine's clock.
pub(crate) fn check_time(app: &App, stamp: &Stamp) -> Result<(), Refusal> {
    stamp.check_time(app.machine_now())
}

/// The key document of a platform's domain, as JSON.
pub fn document(app: &App, platform: &Platform) -> Result<String, Error> {
    let now = app.server_now();
    let (generation, ends_at) = platform.uma_keys.in_use(now, KEPT_MILLIS);
    let keys = Keys::derive(app.store().keyring(), platform.uma_domain.as_str(), generation);
    let made_at = platform.uma_keys.rotated_at.unwrap_or(platform.created_at);
    let terms = Terms {
        name: domain(platform)?,
        serial: u64::from(generation),
        not_before: made_at,
        not_after: made_at.plus_millis(CERTIFICATE_MILLIS),
    };
    let kept_until = now.plus_millis(KEPT_MILLIS);
    let expires_at = ends_at.map_or(kept_until, |end| end.min(kept_until));
    let document = KeyDocument::new(&keys.signing, &keys.encryption, &terms, expires_at);
    document.map(|it| it.to_json()).map_err(|error| Error::Internal(error.to_string()))
}

/// Makes new keys for a domain. They begin to be used at the instant that is given back, by the
/// server's clock; nothing if no platform has the domain.
pub async fn rotate(app: &App, domain: UmaDomain) -> Result<Option<Timestamp>, Error> {
    let now = app.server_now();
    let all = app.store().read(|view| view.platforms()).await.map_err(Error::Store)?;
    let ids: Vec<_> =
        all.iter().filter(|it| it.uma_domain == domain).map(|platform| platform.id).collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let is_under_way = |it: &std::sync::Arc<Platform>| {
        it.uma_domain == domain && it.uma_keys.in_use(now, KEPT_MILLIS).1.is_some()
    };
    if all.iter().any(is_under_way) {
        return Err(Error::Conflict(format!("new keys of {domain} are about to be used already")));
    }
    let newest = all.iter().filter(|it| it.uma_domain == domain).map(|it| it.uma_keys.newest).max();
    let newest = newest.unwrap_or_default().saturating_add(1);
    app.store()
        .write(app.origin(), move |unit| {
            for id in &ids {
                let mut platform = Platform::clone(&*owners::platform(unit, *id)?);
                platform.uma_keys = Generations { newest, rotated_at: Some(now) };
                unit.put(platform);
            }
            Ok::<_, Error>(Some(now.plus_millis(KEPT_MILLIS)))
        })
        .await
}

/// Decrypts travel-rule data: with the keys in use, else with those before or after them, which a
/// peer may have fetched shortly before a change.
pub(crate) fn decrypt(
    app: &App,
    platform: &Platform,
    sealed_hex: &str,
) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let newest = platform.uma_keys.newest;
    let (keyring, domain) = (app.store().keyring(), platform.uma_domain.as_str());
    let open = |generation: u32| {
        travel_rule::open(sealed_hex, &Keys::derive(keyring, domain, generation).encryption)
    };
    open(newest).or_else(|refusal| match newest {
        1 => Err(refusal),
        _ => open(newest.saturating_sub(1)),
    })
}

/// An address as it stands in messages.
pub(crate) fn address(address: &domain::uma_address::UmaAddress) -> Address {
    Address::from(address)
}
