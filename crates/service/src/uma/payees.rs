//! Lookups of payees at other institutions, and which of their currencies can be paid in (UMAD-03,
//! UMAD-04).

use domain::currency::Currency;
use domain::lookup::{Offer, PayWay};
use domain::platform::{CounterpartyField, Platform};
use domain::uma_address::UmaAddress;
use ports::outbound::Method;
use ports::uma::PeerFailure;
use rust_decimal::prelude::ToPrimitive as _;
use rust_decimal::{Decimal, RoundingStrategy};
use store::unit::Unit;
use uma::error::{ErrorCode, PeerCode, PeerError, Refusal};
use uma::lnurlp::{LookupRequest, LookupResponse};
use uma::version::Version;

use super::keys::{self, Keys};
use super::peers::{ASK_WITHIN, Contact, Seen};
use super::send::{Failed, found, kept, known, known_fields, refused, verified};
use crate::app::App;
use crate::error::Error;

/// How many times a lookup is sent: once with our newest version, once with the one that the other
/// side prefers.
const VERSIONS_MAX: usize = 2;

/// An institution's answer about a payee of its own.
#[derive(Debug, Clone)]
pub(crate) struct Payee {
    /// How it can be paid, in the order of its preference, each with its price in millisatoshi.
    pub offers: Vec<Offer>,
    /// The reasons for which currencies of the answer are not among them.
    pub left_out: Vec<String>,
    /// Facts about the payer that the institution asks for.
    pub payer_fields: Vec<CounterpartyField>,
    /// The terms of the pay request.
    pub way: PayWay,
    /// The exchange, to be kept with the lookup.
    seen: Seen,
}

impl Payee {
    /// Keeps the exchange and uses up the answer's nonce. Refuses an answer that was given before.
    pub(crate) fn keep(&self, unit: &mut Unit<'_, '_>) -> Result<Result<(), PeerFailure>, Error> {
        kept(&self.seen, unit)
    }
}

/// Asks the institution of an address about it.
pub(crate) async fn look_up(
    app: &App,
    platform: &Platform,
    receiver: &UmaAddress,
) -> Result<Result<Payee, PeerFailure>, Error> {
    let mut contact = Contact::new(app, platform, receiver.domain(), "LOOKUP").await?;
    if contact.is_blocked() {
        return Ok(Err(PeerFailure::NotAllowed));
    }
    match ask(app, platform, &mut contact, receiver).await? {
        Ok(response) => {
            let (offers, left_out) = offers(&response);
            Ok(Ok(Payee {
                offers,
                left_out,
                payer_fields: known_fields(&response.payer_demands),
                way: PayWay {
                    callback: response.callback.clone(),
                    version: response.version.to_string(),
                    is_subject_to_travel_rule: response.compliance.is_subject_to_travel_rule,
                    comment_max: response.comment_max.unwrap_or(0),
                },
                seen: contact.seen("OK", Some(&response.compliance.signed.stamp)),
            }))
        }
        Err((failure, outcome)) => {
            contact.keep_failure(&outcome).await;
            Ok(Err(failure))
        }
    }
}

/// The lookup, once more in the version that the other side prefers if it does not know ours.
async fn ask(
    app: &App,
    platform: &Platform,
    contact: &mut Contact,
    receiver: &UmaAddress,
) -> Result<Result<LookupResponse, Failed>, Error> {
    let mut version = Version::CURRENT;
    for attempt in 1..=VERSIONS_MAX {
        let now = app.server_now();
        let request = LookupRequest::new(
            &Keys::of(app, platform, now).signing,
            keys::address(receiver),
            version,
            keys::domain(platform)?,
            platform.is_regulated,
            keys::stamp(app),
        );
        let answer = contact.send(Method::Get, request.url(), vec![], ASK_WITHIN).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                return Ok(Err((PeerFailure::Unreachable, failure.to_string())));
            }
        };
        let Some(error) = PeerError::read(answer.status, &answer.body) else {
            return Ok(believed(app, contact, &answer.body, receiver).await);
        };
        let is_of_version = error.code == PeerCode::Known(ErrorCode::UnsupportedUmaVersion);
        if !is_of_version {
            return Ok(Err(refused(&error, PeerFailure::Unreachable)));
        }
        match Version::negotiate_again(&error.supported_major_versions) {
            Err(refusal) => return Ok(Err(found(PeerFailure::NoCommonVersion, &refusal))),
            Ok(_) if attempt == VERSIONS_MAX => {
                return Ok(Err(refused(&error, PeerFailure::UnsupportedVersion)));
            }
            Ok(other) => version = other,
        }
    }
    Ok(Err((PeerFailure::UnsupportedVersion, ErrorCode::UnsupportedUmaVersion.name().to_owned())))
}

/// The answer to a lookup, once it can be read and its signature was verified.
async fn believed(
    app: &App,
    contact: &mut Contact,
    body: &[u8],
    receiver: &UmaAddress,
) -> Result<LookupResponse, Failed> {
    let response =
        LookupResponse::read(body).map_err(|refusal| found(PeerFailure::Unreadable, &refusal))?;
    contact.version = Some(response.version.to_string());
    let address = keys::address(receiver);
    verified(contact, |key| response.verify(key, &address)).await?;
    let in_time = keys::check_time(app, &response.compliance.signed.stamp);
    in_time.map_err(|refusal| found(PeerFailure::Unreachable, &refusal))?;
    let unknown: Vec<_> = response.payer_demands.0.iter().collect();
    let unknown = unknown.into_iter().find(|(key, mandatory)| **mandatory && known(key).is_none());
    if let Some((key, _)) = unknown {
        let reason = format!("it insists on {key}, which this server does not know");
        let refusal = Refusal::new(ErrorCode::MissingMandatoryPayerData, reason);
        return Err(found(PeerFailure::Unreachable, &refusal));
    }
    Ok(response)
}

/// The currencies of an answer in which we can pay, each once, and the reasons for which the others
/// are left out.
fn offers(response: &LookupResponse) -> (Vec<Offer>, Vec<String>) {
    let (mut offers, mut left_out) = (Vec::<Offer>::new(), response.left_out.clone());
    for theirs in &response.currencies {
        match offer(theirs, response) {
            Ok(offer) if offers.iter().any(|known| known.currency == offer.currency) => {
                left_out.push(format!("{} is listed more than once", theirs.code));
            }
            Ok(offer) => offers.push(offer),
            Err(reason) => left_out.push(reason),
        }
    }
    (offers, left_out)
}

/// A currency of an answer in which we can pay: one that we know, with as many decimals; else the
/// reason for which it is left out.
fn offer(theirs: &uma::currency::Currency, response: &LookupResponse) -> Result<Offer, String> {
    let code = &theirs.code;
    let currency = Currency::from_code(code.as_str())
        .ok_or_else(|| format!("{code} is not a currency of this server"))?;
    if currency.decimals() != theirs.decimals {
        let (ours, theirs) = (currency.decimals(), theirs.decimals);
        return Err(format!("{code} has {ours} decimals here and {theirs} there"));
    }
    let unpayable = || format!("nothing can be sent in {code} between the least and the most");
    let units = |msat: i64, rounding: RoundingStrategy| {
        let units = Decimal::from(msat).checked_div(theirs.msat_per_unit)?;
        units.round_dp_with_strategy(0, rounding).to_i64()
    };
    let least = units(response.min_sendable_msat, RoundingStrategy::ToPositiveInfinity)
        .ok_or_else(unpayable)?;
    let most = units(response.max_sendable_msat, RoundingStrategy::ToZero).unwrap_or(i64::MAX);
    let (min_minor, max_minor) = (theirs.min_minor.max(least).max(1), theirs.max_minor.min(most));
    let msat_per_unit = Some(theirs.msat_per_unit);
    let offer = Offer { currency, min_minor, max_minor, msat_per_unit };
    if min_minor <= max_minor { Ok(offer) } else { Err(unpayable()) }
}
