//! The URL that takes a pay request: it carries the lookup that it belongs to, sealed, so that no
//! row is kept for lookups without a payment.

use domain::id::{CustomerId, PlatformId};
use domain::time::Timestamp;
use uma::address::PeerDomain;
use uuid::Uuid;

use crate::app::App;

/// The path of pay requests at the root of a domain.
pub const PAY_PATH: &str = "/uma/pay/";

/// The place for which tokens are sealed, so that nothing else that is sealed opens as one.
const PLACE: &str = "uma_callbacks";

/// Bytes of the fixed parts: two ids and the time.
const FIXED: usize = 16 + 16 + 8;

/// A lookup that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Callback {
    /// The payee's platform.
    pub platform: PlatformId,
    /// The payee.
    pub customer: CustomerId,
    /// The institution that asked: only its customers may pay here.
    pub payer_domain: String,
    /// From when on it cannot be paid on, by the server's clock.
    pub expires_at: Timestamp,
    /// The nonce of the lookup, so that each has its own URL.
    pub nonce: String,
}

impl Callback {
    /// Whether its time is over.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }

    /// The URL at the domain of the address that was looked up: payers' institutions refuse one at
    /// another, also at the present domain of a platform that had the address's domain before.
    pub(crate) fn url(&self, app: &App, domain: &PeerDomain) -> String {
        let text = format!("{} {}", self.payer_domain, self.nonce);
        let plain = [
            &self.platform.uuid().as_bytes()[..],
            self.customer.uuid().as_bytes(),
            &self.expires_at.millis().to_be_bytes(),
            text.as_bytes(),
        ]
        .concat();
        sealed_url(app, domain, PAY_PATH, PLACE, &plain)
    }

    /// The lookup behind the last part of a path; nothing if we did not make it.
    pub(crate) fn open(app: &App, token: &str) -> Option<Self> {
        let plain = opened(app, PLACE, token)?;
        let (fixed, text) = plain.split_at_checked(FIXED)?;
        let uuid = |from: usize| Uuid::from_slice(fixed.get(from..from + 16)?).ok();
        let expires_at = i64::from_be_bytes(fixed.get(32..)?.try_into().ok()?);
        let (payer_domain, nonce) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self {
            platform: PlatformId::from_uuid(uuid(0)?),
            customer: CustomerId::from_uuid(uuid(16)?),
            payer_domain: payer_domain.to_owned(),
            expires_at: Timestamp::from_millis(expires_at),
            nonce: nonce.to_owned(),
        })
    }
}

/// A URL at a domain, below a path of ours, that carries its purpose sealed for a place.
pub(super) fn sealed_url(
    app: &App,
    domain: &PeerDomain,
    path: &str,
    place: &'static str,
    plain: &[u8],
) -> String {
    let token = hex::encode(app.store().keyring().seal(place, &[], plain));
    domain.url(&format!("{path}{token}"))
}

/// The purpose that the last part of such a URL carries; nothing if we did not make it.
pub(super) fn opened(app: &App, place: &'static str, token: &str) -> Option<Vec<u8>> {
    app.store().keyring().open(place, &[], &hex::decode(token).ok()?).ok()
}
