//! Other institutions: asked over the outbound port, believed by their keys, remembered with how it
//! went (UMAD-02).

use std::sync::Arc;
use std::time::Duration;

use domain::id::PlatformId;
use domain::platform::{Mode, Platform};
use domain::time::Timestamp;
use domain::transaction::Transaction;
use domain::uma_address::{UmaAddress, UmaDomain};
use domain::uma_peer::{Exchange, PeerKeys as KeptKeys, Rule, UmaPeer};
use ports::outbound::{Method, OutboundAnswer, OutboundFailure, OutboundRequest};
use ports::uma::PeerFailure;
use store::idempotency::{self, Given, NONCE_STATUS};
use store::uma_peers::peer_key;
use store::unit::Unit;
use uma::address::PeerDomain;
use uma::error::{ErrorCode, Refusal};
use uma::keys::{self, PeerKeys};
use uma::nonce::{FUTURE_SECONDS_MAX, PAST_SECONDS_MAX, Stamp};
use uma::signature::VerifyingKey;
use uma::travel_rule::EncryptionKey;
use uuid::Uuid;

use crate::app::App;
use crate::error::{Error, PeerStage, UmaError};
use crate::locality;
use crate::once::EVER;
use crate::strangers::Kind;

/// The request of an institution that asks about a payee.
pub(super) const RECEIVED_LOOKUP: &str = "RECEIVED_LOOKUP";

/// The names of requests in which an institution asks us begin so.
const RECEIVED: &str = "RECEIVED_";

/// How long a lookup or a key document may take: a person waits.
pub(super) const ASK_WITHIN: Duration = Duration::from_secs(5);

/// How long a pay request may take: the payee's platform is asked within it.
pub(super) const PAY_WITHIN: Duration = Duration::from_secs(9);

/// How long a nonce is remembered, in milliseconds: as long as a signature with it may be good.
pub(crate) const NONCE_MILLIS: i64 = (PAST_SECONDS_MAX + FUTURE_SECONDS_MAX) * 1_000;

/// An exchange with an institution that is under way.
pub(super) struct Contact {
    app: App,
    platform: PlatformId,
    mode: Mode,
    domain: UmaDomain,
    rule: Rule,
    kept: Option<KeptKeys>,
    /// Whether its document was read in this exchange.
    has_fetched: bool,
    request: &'static str,
    began: Timestamp,
    /// The version of the protocol that is spoken, once it is known.
    pub(super) version: Option<String>,
}

/// An exchange that is over, to be kept with its effect.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    platform: PlatformId,
    domain: UmaDomain,
    keys: Option<KeptKeys>,
    exchange: Exchange,
    /// The signature of the institution that was verified, if its message has one.
    signed: Option<Stamp>,
    ended_at: Timestamp,
}

impl Contact {
    /// Begins an exchange: `request` is one of [`domain::uma_peer::REQUESTS`].
    pub(super) async fn new(
        app: &App,
        platform: &Platform,
        domain: &str,
        request: &'static str,
    ) -> Result<Self, Error> {
        let domain =
            UmaDomain::parse(domain).map_err(|error| Error::Internal(error.to_string()))?;
        locality::notice(app, platform);
        let known = app.store().get::<UmaPeer>(peer_key(platform.id, &domain)).await;
        let known = known.map_err(Error::Store)?;
        Ok(Self {
            app: app.clone(),
            platform: platform.id,
            mode: platform.mode,
            rule: known.as_ref().map_or(Rule::Unset, |peer| peer.rule),
            kept: known.and_then(|peer| peer.keys.clone()),
            has_fetched: false,
            domain,
            request,
            began: app.server_now(),
            version: None,
        })
    }

    /// Counts a request that it has signed. Refuses one too many.
    pub(super) fn count(&self) -> Result<(), Refusal> {
        count(&self.app, Kind::Message, (self.mode, &self.domain), self.rule)
    }

    /// The key of its row.
    pub(super) fn peer_key(&self) -> Uuid {
        peer_key(self.platform, &self.domain)
    }

    /// Whether the platform does not deal with it.
    pub(super) fn is_blocked(&self) -> bool {
        self.rule == Rule::Blocked
    }

    /// Sends a request to a URL that it chose.
    pub(super) async fn send(
        &self,
        method: Method,
        url: String,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<OutboundAnswer, OutboundFailure> {
        let headers = match method {
            Method::Get => vec![("accept", "application/json".to_owned())],
            Method::Post => vec![
                ("accept", "application/json".to_owned()),
                ("content-type", "application/json".to_owned()),
            ],
        };
        let reach = self.app.env().reach(self.mode);
        let request = OutboundRequest { method, url, reach, headers, body, within };
        self.app.env().outbound.send(request).await
    }

    /// Its keys: those that were kept while they may be, else from its document.
    pub(super) async fn keys(&mut self) -> Result<PeerKeys, Refusal> {
        let now = self.app.machine_now();
        if let Some(kept) = self.kept.as_ref().filter(|kept| now < kept.until)
            && let Some(keys) = read_kept(kept)
        {
            return Ok(keys);
        }
        self.fetch_keys().await
    }

    async fn fetch_keys(&mut self) -> Result<PeerKeys, Refusal> {
        let refused = |why: &str| {
            let reason = format!("the keys of {} could not be fetched: {why}", self.domain);
            Refusal::new(ErrorCode::CounterpartyPubkeyFetchError, reason)
        };
        let domain =
            PeerDomain::parse(self.domain.as_str()).map_err(|error| refused(&error.to_string()))?;
        let fetches = self.app.key_fetches();
        let fetches = match self.request.starts_with(RECEIVED) {
            true => &fetches.for_others,
            false => &fetches.for_us,
        };
        let host = bulkhead_of(&self.domain);
        let Some(_place) = fetches.enter(host, ASK_WITHIN).await else {
            return Err(refused("too many are being fetched; try again"));
        };
        let answer = self.send(Method::Get, domain.url(keys::PATH), vec![], ASK_WITHIN).await;
        let answer = answer.map_err(|failure| refused(&failure.to_string()))?;
        if answer.status != 200 {
            return Err(refused(&format!("it answered with status {}", answer.status)));
        }
        let keys = PeerKeys::read(&answer.body, self.app.machine_now())?;
        self.has_fetched = true;
        self.kept = keys.expires_at.map(|until| KeptKeys {
            signing_hex: keys.verifying_key.to_hex(),
            encryption_hex: keys.encryption_key.to_hex(),
            until,
        });
        Ok(keys)
    }

    /// Its encryption key, if its document has another one by now than the one that was kept.
    pub(super) async fn rotated(&mut self, known: &EncryptionKey) -> Option<EncryptionKey> {
        if self.has_fetched {
            return None;
        }
        let fresh = self.fetch_keys().await.ok()?;
        Some(fresh.encryption_key).filter(|fresh| fresh != known)
    }

    /// Checks a signature of the institution by its keys. Keys that were kept may be outdated: what
    /// they do not verify is checked once more with those of its document.
    pub(super) async fn verify(
        &mut self,
        check: impl Fn(&VerifyingKey) -> Result<(), Refusal>,
    ) -> Result<PeerKeys, Refusal> {
        let was_kept = self.kept.clone();
        let keys = self.keys().await?;
        match check(&keys.verifying_key) {
            Ok(()) => Ok(keys),
            Err(refusal) if refusal.code == ErrorCode::InvalidSignature && was_kept.is_some() => {
                let fresh = self.fetch_keys().await?;
                check(&fresh.verifying_key).map(|()| fresh)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// The end of the exchange: `OK`, or the code of an error. `signed` is of a signature that was
    /// verified.
    pub(super) fn seen(&self, outcome: &str, signed: Option<&Stamp>) -> Seen {
        let ended_at = self.app.server_now();
        let millis = ended_at.millis().saturating_sub(self.began.millis()).max(0);
        tracing::info!(
            peer = %self.domain, request = self.request, outcome, millis,
            "an institution and this server have exchanged a request"
        );
        Seen {
            platform: self.platform,
            domain: self.domain.clone(),
            keys: self.kept.clone(),
            exchange: Exchange {
                request: self.request,
                outcome: outcome.to_owned(),
                at: self.began,
                millis,
                version: self.version.clone(),
            },
            signed: signed.cloned(),
            ended_at,
        }
    }

    /// Keeps the end of an exchange that has no other effect. Refuses it as [`Seen::keep`] does.
    pub(super) async fn keep(
        &self,
        outcome: &str,
        signed: Option<&Stamp>,
    ) -> Result<Result<(), Refusal>, Error> {
        let seen = self.seen(outcome, signed);
        self.app.store().write(self.app.origin(), move |unit| seen.keep(unit)).await
    }

    /// Keeps that the institution has failed. Nothing depends on it, so a failure is only logged.
    pub(super) async fn keep_failure(&self, outcome: &str) {
        if let Err(error) = self.keep(outcome, None).await {
            tracing::warn!(%error, "an exchange with an institution could not be kept");
        }
    }
}

impl Seen {
    /// Keeps the exchange with its effect, and uses up the nonce of its signature. Refuses a nonce
    /// that was used before; nothing is kept then.
    pub(super) fn keep(&self, unit: &mut Unit<'_, '_>) -> Result<Result<(), Refusal>, Error> {
        if let Some(stamp) = &self.signed
            && let Err(refusal) = use_nonce(unit, &self.domain, stamp, self.ended_at)?
        {
            return Ok(Err(refusal));
        }
        // Anybody with a domain can look addresses up, so a lookup alone makes no row.
        let is_known = unit.get::<UmaPeer>(&peer_key(self.platform, &self.domain))?.is_some();
        if !is_known && self.exchange.request == RECEIVED_LOOKUP {
            return Ok(Ok(()));
        }
        let peer = peer(unit, self.platform, &self.domain, self.exchange.at)?;
        unit.put(UmaPeer { keys: self.keys.clone(), last: Some(self.exchange.clone()), ..peer });
        Ok(Ok(()))
    }
}

/// Counts a request of an institution. Refuses one too many. Institutions that the operator has
/// allowed are no strangers, and those in this process are called by testers.
fn count(
    app: &App,
    kind: Kind,
    (mode, domain): (Mode, &UmaDomain),
    rule: Rule,
) -> Result<(), Refusal> {
    let is_known = rule == Rule::Allowed || app.env().institutions(mode).owns(domain.as_str());
    match is_known {
        true => Ok(()),
        false => app.strangers().proven(kind, domain, app.server_now()),
    }
}

/// Counts an invoice of a payment that its payer's institution shows. Refuses one too many.
pub(super) async fn count_settle(
    app: &App,
    mode: Mode,
    payment: &Transaction,
) -> Result<Result<(), Refusal>, Error> {
    let Some(about) = &payment.draft().uma else { return Ok(Ok(())) };
    let domain = UmaDomain::parse(about.sender.domain())
        .map_err(|error| Error::Internal(error.to_string()))?;
    let known = app.store().get::<UmaPeer>(peer_key(payment.draft().platform, &domain)).await;
    let rule = known.map_err(Error::Store)?.map_or(Rule::Unset, |peer| peer.rule);
    Ok(count(app, Kind::Settle, (mode, &domain), rule))
}

/// The name under which fetches from a domain are counted: its host, as ports of one host fail
/// together. On this machine each port is another institution.
fn bulkhead_of(domain: &UmaDomain) -> &str {
    let host = domain.as_str().split(':').next().unwrap_or_default();
    if ["localhost", "127.0.0.1"].contains(&host) { domain.as_str() } else { host }
}

/// An institution as a platform knows it, or has just met it.
fn peer(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    domain: &UmaDomain,
    now: Timestamp,
) -> Result<UmaPeer, Error> {
    let known = unit.get::<UmaPeer>(&peer_key(platform, domain))?;
    let new = || UmaPeer::new(platform, domain.clone(), now);
    Ok(known.map_or_else(new, |known| UmaPeer::clone(&known)))
}

fn read_kept(kept: &KeptKeys) -> Option<PeerKeys> {
    Some(PeerKeys {
        verifying_key: VerifyingKey::from_hex(&kept.signing_hex).ok()?,
        encryption_key: EncryptionKey::from_hex(&kept.encryption_hex).ok()?,
        expires_at: Some(kept.until),
    })
}

/// Uses up the nonce of a signature that was verified. Refuses one that the same signer has used
/// before. A nonce is kept as an idempotency key is: for as long as it matters, and by one server
/// for all that share a database. One that is there counts whatever its age: a clock that was ahead
/// must not let a message in twice.
fn use_nonce(
    unit: &mut Unit<'_, '_>,
    signer: &UmaDomain,
    stamp: &Stamp,
    now: Timestamp,
) -> Result<Result<(), Refusal>, Error> {
    let scope = idempotency::nonce(unit.keyring(), signer.as_str(), stamp.nonce.as_str());
    if unit.answer(&scope, EVER)?.is_some() {
        let reason = format!("the nonce {} was used before", stamp.nonce);
        return Ok(Err(Refusal::new(ErrorCode::InvalidNonce, reason)));
    }
    unit.keep_answer(scope, now, &Given::new(NONCE_STATUS, []));
    Ok(Ok(()))
}

/// Refuses to pay an institution that was blocked since it was looked up or gave an invoice.
pub(crate) fn refuse_blocked(
    unit: &mut Unit<'_, '_>,
    platform: PlatformId,
    address: &UmaAddress,
) -> Result<(), Error> {
    let domain =
        UmaDomain::parse(address.domain()).map_err(|error| Error::Internal(error.to_string()))?;
    let known = unit.get::<UmaPeer>(&peer_key(platform, &domain))?;
    if known.is_none_or(|peer| peer.rule != Rule::Blocked) {
        return Ok(());
    }
    let (address, stage) = (address.clone(), PeerStage::PayRequest);
    Err(Error::Uma(UmaError::Peer { address, stage, failure: PeerFailure::NotAllowed }))
}

/// The operator's rule for an institution.
pub async fn set_rule(
    app: &App,
    platform: PlatformId,
    domain: UmaDomain,
    rule: Rule,
) -> Result<(), Error> {
    let now = app.server_now();
    app.store()
        .write(app.origin(), move |unit| {
            let peer = peer(unit, platform, &domain, now)?;
            unit.put(UmaPeer { rule, ..peer });
            Ok(())
        })
        .await
}

/// Drops the keys that were kept of an institution, for every platform: its document is read again.
/// The platforms that had some.
pub async fn forget_keys(app: &App, domain: UmaDomain) -> Result<Vec<PlatformId>, Error> {
    let known = all(app).await?;
    let ids: Vec<_> =
        known.iter().filter(|peer| peer.domain == domain).map(|peer| peer.platform).collect();
    app.store()
        .write(app.origin(), move |unit| {
            let mut had_keys = Vec::new();
            for id in &ids {
                let Some(peer) = unit.get::<UmaPeer>(&peer_key(*id, &domain))? else { continue };
                if peer.keys.is_some() {
                    unit.put(UmaPeer { keys: None, ..UmaPeer::clone(&peer) });
                    had_keys.push(*id);
                }
            }
            Ok::<_, Error>(had_keys)
        })
        .await
}

/// Every institution that a platform of this server knows, by its domain.
pub async fn all(app: &App) -> Result<Vec<Arc<UmaPeer>>, Error> {
    app.store().read(|view| view.uma_peers()).await.map_err(Error::Store)
}
