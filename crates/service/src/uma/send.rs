//! The sending side: another institution is asked about a payee, and for an invoice (UMAD-03 to
//! UMAD-06). Its answers are checked before anything is believed; nothing moves here.

use domain::currency::Currency;
use domain::customer::{Customer, KycStatus};
use domain::lookup::{Offer, PayWay};
use domain::money::Money;
use domain::platform::{COUNTERPARTY_FIELDS, CounterpartyField, Platform};
use domain::time::Timestamp;
use domain::transaction::Facts;
use domain::uma_address::UmaAddress;
use ports::outbound::Method;
use ports::uma::PeerFailure;
use rust_decimal::prelude::ToPrimitive as _;
use rust_decimal::{Decimal, RoundingStrategy};
use store::unit::Unit;
use uma::currency::CurrencyCode;
use uma::data::{self, Demands};
use uma::error::{ErrorCode, PeerCode, PeerError, Refusal};
use uma::lnurlp::{LookupRequest, LookupResponse};
use uma::pay_request::{Amount, PayRequest, PayerCompliance, PayerData};
use uma::pay_response::PayResponse;
use uma::travel_rule::{self, EncryptionKey, Entropy};
use uma::version::Version;
use zeroize::Zeroizing;

use super::keys::{self, Keys};
use super::peers::{ASK_WITHIN, Contact, PAY_WITHIN, Seen};
use crate::app::App;
use crate::error::Error;
use crate::pricing::PeerPrice;

/// Percent by which an invoice may be dearer or cheaper than the lookup said: rates move in the
/// minutes between them, and one that moves more is a mistake or worse.
const DRIFT_PERCENT: i64 = 5;

/// Millisatoshi by which an invoice may differ from its own multiplier: peers round differently.
const ROUNDING_MSAT: i64 = 10;

/// How many times a lookup is sent: once with our newest version, once with the one that the other
/// side prefers.
const VERSIONS_MAX: usize = 2;

/// An institution's answer about a payee of its own.
#[derive(Debug, Clone)]
pub(crate) struct Payee {
    /// How it can be paid, in the order of its preference, each with its price in millisatoshi.
    /// Currencies that we do not know are left out.
    pub offers: Vec<Offer>,
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

/// The end of an exchange with an answer. One that was given before is not believed.
fn kept(seen: &Seen, unit: &mut Unit<'_, '_>) -> Result<Result<(), PeerFailure>, Error> {
    Ok(seen.keep(unit)?.map_err(|_| PeerFailure::Unreachable))
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
        Ok(response) => Ok(Ok(Payee {
            offers: response.currencies.iter().filter_map(|it| offer(it, &response)).collect(),
            payer_fields: known_fields(&response.payer_demands),
            way: PayWay {
                callback: response.callback.clone(),
                version: response.version.to_string(),
                is_subject_to_travel_rule: response.compliance.is_subject_to_travel_rule,
                comment_max: response.comment_max.unwrap_or(0),
            },
            seen: contact.seen("OK", Some(&response.compliance.signed.stamp)),
        })),
        Err((failure, outcome)) => {
            contact.keep_failure(&outcome).await;
            Ok(Err(failure))
        }
    }
}

/// Why there is no answer that can be used, and the code that is kept of it.
type Failed = (PeerFailure, String);

/// A failure that we have found in an answer.
fn found(failure: PeerFailure, refusal: &Refusal) -> Failed {
    // The reason may name an address, so only the code is logged.
    tracing::info!(code = refusal.code.name(), "the answer of an institution is refused");
    (failure, refusal.code.name().to_owned())
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

/// Checks a signature with the institution's keys.
async fn verified(
    contact: &mut Contact,
    check: impl Fn(&uma::signature::VerifyingKey) -> Result<(), Refusal>,
) -> Result<EncryptionKey, Failed> {
    let keys = contact.verify(check).await;
    let keys = keys.map_err(|refusal| {
        let failure = match refusal.code {
            ErrorCode::InvalidSignature => PeerFailure::Unreachable,
            ErrorCode::ParseLnurlpResponseError | ErrorCode::ParsePayreqResponseError => {
                PeerFailure::Unreadable
            }
            _ => PeerFailure::KeysUnavailable,
        };
        found(failure, &refusal)
    })?;
    Ok(keys.encryption_key)
}

/// The failure behind an error that the institution answered with; `other` for those that say
/// nothing which a client could use.
fn refused(error: &PeerError, other: PeerFailure) -> Failed {
    let (failure, code) = match &error.code {
        PeerCode::Known(code) => {
            let failure = match code {
                ErrorCode::UserNotFound => PeerFailure::UnknownAddress,
                ErrorCode::UserNotReady => PeerFailure::PayeeNotReady,
                ErrorCode::CounterpartyNotAllowed
                | ErrorCode::SenderNotAccepted
                | ErrorCode::Forbidden => PeerFailure::NotAllowed,
                ErrorCode::CounterpartyPubkeyFetchError => PeerFailure::KeysUnavailable,
                ErrorCode::NoCompatibleUmaVersion => PeerFailure::NoCommonVersion,
                _ => other,
            };
            (failure, code.name().to_owned())
        }
        PeerCode::Unknown(code) => (other, as_code(code)),
        PeerCode::Absent => (other, NO_CODE.to_owned()),
    };
    tracing::info!(code, "an institution has refused a request");
    (failure, code)
}

/// The outcome of a request that was refused without a code.
const NO_CODE: &str = "NO_CODE";

/// A peer's own code as it is kept and logged. Any other text in its place may be about a person.
pub(super) fn as_code(text: &str) -> String {
    let is_code = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    if is_code && (1..=CODE_MAX).contains(&text.len()) {
        text.to_owned()
    } else {
        NO_CODE.to_owned()
    }
}

/// Characters of a code: as many as the longest of the protocol has, and some more.
const CODE_MAX: usize = 80;

/// A currency of an answer in which we can pay: one that we know, with as many decimals.
fn offer(theirs: &uma::currency::Currency, response: &LookupResponse) -> Option<Offer> {
    let currency = Currency::from_code(theirs.code.as_str())?;
    if currency.decimals() != theirs.decimals {
        return None;
    }
    let units = |msat: i64, rounding: RoundingStrategy| {
        let units = Decimal::from(msat).checked_div(theirs.msat_per_unit)?;
        units.round_dp_with_strategy(0, rounding).to_i64()
    };
    let least = units(response.min_sendable_msat, RoundingStrategy::ToPositiveInfinity)?;
    let most = units(response.max_sendable_msat, RoundingStrategy::ToZero).unwrap_or(i64::MAX);
    let (min_minor, max_minor) = (theirs.min_minor.max(least).max(1), theirs.max_minor.min(most));
    let msat_per_unit = Some(theirs.msat_per_unit);
    let offer = Offer { currency, min_minor, max_minor, msat_per_unit };
    (min_minor <= max_minor).then_some(offer)
}

/// The specification's name of a key of the protocol, if it has one.
fn known(key: &str) -> Option<&'static str> {
    let name = data::specification_name(key);
    COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name)
}

/// Demands as the specification names them and in its order; those that it does not know are left
/// out.
pub(super) fn known_fields(demands: &Demands) -> Vec<CounterpartyField> {
    let field = |name: &'static str| {
        let mandatory = *demands.0.get(&data::protocol_key(name))?;
        Some(CounterpartyField { name, mandatory })
    };
    COUNTERPARTY_FIELDS.into_iter().filter_map(field).collect()
}

/// Facts by the protocol's keys.
pub(super) fn to_protocol(facts: &Facts) -> data::Facts {
    let entry = |(name, value): (&&str, &String)| (data::protocol_key(name), value.clone());
    data::Facts(facts.iter().map(entry).collect())
}

/// Facts by the specification's names; those that it does not know are left out.
pub(super) fn from_protocol(facts: &data::Facts) -> Facts {
    let entry = |(key, value): (&String, &String)| Some((known(key)?, value.clone()));
    facts.0.iter().filter_map(entry).collect()
}

/// Fields that we ask for, as demands of the protocol.
pub(super) fn demands(fields: &[CounterpartyField]) -> Demands {
    let asked = fields.iter().filter(|field| field.name != super::IDENTIFIER);
    Demands(asked.map(|field| (data::protocol_key(field.name), field.mandatory)).collect())
}

/// A customer's identity status as the protocol names it (contract 13, row 48).
pub(super) fn kyc_status(customer: &Customer) -> uma::kyc_status::KycStatus {
    use uma::kyc_status::KycStatus as Theirs;
    match customer.kyc.status() {
        KycStatus::Approved | KycStatus::ManuallyApproved => Theirs::Verified,
        KycStatus::PendingReview => Theirs::Pending,
        KycStatus::Rejected
        | KycStatus::ManuallyRejected
        | KycStatus::Expired
        | KycStatus::Canceled => Theirs::NotVerified,
    }
}

/// The side whose amount a pay request fixes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fixed {
    /// Exactly this arrives.
    Arrives(Money),
    /// Exactly this is paid, in [`Currency::MSAT`].
    Paid(Money),
}

/// A request for an invoice.
#[derive(Debug, Clone)]
pub(crate) struct Order<'a> {
    /// The payee's institution, as it answered the lookup.
    pub way: &'a PayWay,
    /// The address that is paid.
    pub receiver: &'a UmaAddress,
    /// The customer who pays.
    pub sender: &'a Customer,
    /// How much.
    pub amount: Fixed,
    /// How the receiver can be paid, as the lookup said.
    pub offer: Offer,
    /// Facts about the payer that the institution asked for.
    pub payer: &'a Facts,
    /// Facts about the payee that we ask for.
    pub payee_fields: &'a [CounterpartyField],
    /// The payer's text for the payee. One that the institution does not take is left out.
    pub comment: Option<&'a str>,
}

/// An invoice of another institution, and its price.
#[derive(Debug, Clone)]
pub(crate) struct Invoice {
    /// An invoice over Lightning.
    pub text: String,
    /// Its amount, in [`Currency::MSAT`].
    pub msat: Money,
    /// The amount that arrives.
    pub arrives: Money,
    /// Millisatoshi for one smallest unit of the currency that arrives.
    pub msat_per_unit: Decimal,
    /// The institution's fee, in the smallest unit of the currency that arrives.
    pub fee_minor: i64,
    /// From when on it cannot be paid, by the server's clock.
    pub expires_at: Timestamp,
    /// Facts about the payee that the institution states.
    pub payee: Facts,
    /// Where the institution is notified of how the payment ended.
    pub callback: Option<String>,
    seen: Seen,
}

impl Invoice {
    /// Its price.
    pub(crate) fn price(&self) -> PeerPrice {
        PeerPrice { msat_per_unit: self.msat_per_unit, fee_minor: self.fee_minor }
    }

    /// As [`Payee::keep`].
    pub(crate) fn keep(&self, unit: &mut Unit<'_, '_>) -> Result<Result<(), PeerFailure>, Error> {
        kept(&self.seen, unit)
    }
}

/// Asks the institution of an address for an invoice.
pub(crate) async fn request_invoice(
    app: &App,
    platform: &Platform,
    order: &Order<'_>,
) -> Result<Result<Invoice, PeerFailure>, Error> {
    let domain = order.receiver.domain();
    let mut contact = Contact::new(app, platform, domain, "PAY_REQUEST").await?;
    if contact.is_blocked() {
        return Ok(Err(PeerFailure::NotAllowed));
    }
    contact.version = Some(order.way.version.clone());
    match pay(app, platform, &mut contact, order).await? {
        Ok(invoice) => Ok(Ok(invoice)),
        Err((failure, outcome)) => {
            contact.keep_failure(&outcome).await;
            Ok(Err(failure))
        }
    }
}

async fn pay(
    app: &App,
    platform: &Platform,
    contact: &mut Contact,
    order: &Order<'_>,
) -> Result<Result<Invoice, Failed>, Error> {
    let encrypts_to = match contact.keys().await {
        Ok(keys) => keys.encryption_key,
        Err(refusal) => return Ok(Err(found(PeerFailure::KeysUnavailable, &refusal))),
    };
    let request = request(app, platform, order, &encrypts_to)?;
    let (payer, form) = (request.payer.identifier.clone(), request.form);
    let body = request.to_json().map_err(|refusal| Error::Internal(refusal.to_string()))?;
    let url = order.way.callback.clone();
    let answer = match contact.send(Method::Post, url, body.into_bytes(), PAY_WITHIN).await {
        Ok(answer) => answer,
        Err(failure) => return Ok(Err((PeerFailure::Unreachable, failure.to_string()))),
    };
    if let Some(error) = PeerError::read(answer.status, &answer.body) {
        return Ok(Err(refused(&error, PeerFailure::Unreachable)));
    }
    let response = match PayResponse::read(&answer.body) {
        Ok(response) => response,
        Err(refusal) => return Ok(Err(found(PeerFailure::Unreadable, &refusal))),
    };
    if response.form() != form {
        let reason = "the answer is of another version of the protocol than the request";
        let refusal = Refusal::new(ErrorCode::ParsePayreqResponseError, reason);
        return Ok(Err(found(PeerFailure::Unreadable, &refusal)));
    }
    let receiver = keys::address(order.receiver);
    let is_signed = verified(contact, |key| response.verify(key, &payer, &receiver)).await;
    if let Err(failed) = is_signed {
        return Ok(Err(failed));
    }
    // The invoice was made by another clock.
    let now = app.machine_now();
    let stamp = response.compliance.signed.as_ref().map(|signed| &signed.stamp);
    let checked = stamp.map_or(Ok(()), |stamp| keys::check_time(app, stamp));
    let checked = checked.and_then(|()| checked_invoice(app, platform, order, &response, now));
    let checked = match checked {
        Ok(checked) => checked,
        Err(refusal) => return Ok(Err(found(PeerFailure::Unreadable, &refusal))),
    };
    let Checked { msat, arrives, fee_minor, expires_at } = checked;
    Ok(Ok(Invoice {
        text: response.invoice.clone(),
        msat,
        arrives,
        msat_per_unit: response.converted.msat_per_unit,
        fee_minor,
        expires_at,
        payee: from_protocol(&response.facts),
        callback: super::post_transaction::given(response.compliance.utxo_callback.as_deref()),
        seen: contact.seen("OK", stamp),
    }))
}

/// The signed pay request.
fn request(
    app: &App,
    platform: &Platform,
    order: &Order<'_>,
    encrypts_to: &EncryptionKey,
) -> Result<PayRequest, Error> {
    let wrong = |error: String| Error::Internal(error);
    let now = app.server_now();
    let version = Version::parse(&order.way.version).map_err(|it| wrong(it.to_string()))?;
    let code = CurrencyCode::parse(order.offer.currency.code())
        .ok_or_else(|| wrong(format!("{} is no code", order.offer.currency)))?;
    let payer = keys::address(&order.sender.uma_address);
    let signing = Keys::of(app, platform, now).signing;
    let facts = to_protocol(order.payer);
    let mut compliance =
        PayerCompliance::new(&signing, &payer, kyc_status(order.sender), keys::stamp(app));
    let peer = order.receiver.domain();
    compliance.utxo_callback = Some(super::post_transaction::url(app, platform, peer)?);
    if order.way.is_subject_to_travel_rule {
        let known = to_protocol(&order.sender.facts());
        let text = travel_rule::free_text(&payer, &keys::address(order.receiver), &known);
        let entropy = Entropy { ephemeral: Zeroizing::new(app.random()), nonce: app.random() };
        let sealed = travel_rule::seal(text.as_bytes(), encrypts_to, &entropy);
        compliance.encrypted_travel_rule_info =
            Some(sealed.map_err(|error| wrong(error.to_string()))?);
    }
    let is_taken = |text: &&str| text.chars().count() <= order.way.comment_max as usize;
    let comment = order.comment.filter(is_taken);
    Ok(PayRequest {
        form: version.form(),
        amount: match order.amount {
            Fixed::Arrives(amount) => {
                Amount::Receiving { minor: amount.minor(), code: code.clone() }
            }
            Fixed::Paid(msat) => Amount::Msat(msat.minor()),
        },
        receiving: code,
        payer: PayerData { identifier: payer, facts, compliance },
        payee_demands: demands(order.payee_fields),
        comment: comment.map(str::to_owned),
        invoice_uuid: None,
    })
}

/// The parts of an answer that agree with each other and with the request.
struct Checked {
    msat: Money,
    arrives: Money,
    fee_minor: i64,
    expires_at: Timestamp,
}

/// Checks the invoice against the answer, and the answer against the request and the lookup: none
/// of its numbers is signed.
fn checked_invoice(
    app: &App,
    platform: &Platform,
    order: &Order<'_>,
    response: &PayResponse,
    now: Timestamp,
) -> Result<Checked, Refusal> {
    let wrong = |reason: String| Refusal::new(ErrorCode::ParsePayreqResponseError, reason);
    let bad_invoice = |reason: String| Refusal::new(ErrorCode::InvalidInvoice, reason);
    let (converted, currency) = (&response.converted, order.offer.currency);
    if converted.code.as_str() != currency.code() || converted.decimals != currency.decimals() {
        return Err(wrong(format!("converted is in {}, not in {currency}", converted.code)));
    }
    let lightning = app.env().lightning(platform.mode);
    let lightning = lightning.ok_or_else(|| bad_invoice("no node reads invoices".to_owned()))?;
    let invoice = lightning
        .read_invoice(&response.invoice)
        .map_err(|error| bad_invoice(format!("pr {error}")))?;
    if invoice.expires_at <= now {
        return Err(Refusal::new(ErrorCode::InvoiceExpired, "pr has expired already"));
    }
    if let Some(node) = &response.compliance.node_pub_key
        && !node.eq_ignore_ascii_case(&invoice.node)
    {
        return Err(bad_invoice("pr does not pay the node that compliance names".to_owned()));
    }
    let quoted = order.offer.msat_per_unit.unwrap_or(converted.msat_per_unit);
    let drift = converted.msat_per_unit.checked_sub(quoted).map(|drift| drift.abs());
    let drift_max = quoted.checked_mul(Decimal::new(DRIFT_PERCENT, 2));
    if drift.zip(drift_max).is_none_or(|(drift, max)| drift > max) {
        let reason = format!("converted.multiplier is {}, not {quoted}", converted.msat_per_unit);
        return Err(wrong(reason));
    }
    let minor = match (order.amount, converted.amount_minor) {
        (Fixed::Arrives(amount), Some(minor)) if minor != amount.minor() => {
            return Err(wrong(format!("converted.amount is {minor}, not {}", amount.minor())));
        }
        (Fixed::Arrives(amount), _) => amount.minor(),
        (Fixed::Paid(msat), _) if msat != invoice.msat => {
            return Err(bad_invoice(format!("pr is over {}, not {msat}", invoice.msat)));
        }
        (Fixed::Paid(_), Some(minor)) => minor,
        (Fixed::Paid(_), None) => return Err(wrong("converted.amount is missing".to_owned())),
    };
    let arrives = Money::positive(minor, currency).map_err(|error| wrong(error.to_string()))?;
    let fee = Decimal::from(converted.fee_msat);
    let owed = Decimal::from(minor)
        .checked_mul(converted.msat_per_unit)
        .and_then(|owed| owed.checked_add(fee));
    // Where the payer fixes what is paid, what arrives is rounded to a whole unit.
    let tolerance = match order.amount {
        Fixed::Arrives(_) => Decimal::from(ROUNDING_MSAT),
        Fixed::Paid(_) => converted.msat_per_unit.max(Decimal::from(ROUNDING_MSAT)),
    };
    let paid = Decimal::from(invoice.msat.minor());
    let difference = owed.and_then(|owed| paid.checked_sub(owed)).map(|it| it.abs());
    if difference.is_none_or(|difference| difference > tolerance) {
        let reason = format!("pr is over {}, which amount and fee do not make", invoice.msat);
        return Err(bad_invoice(reason));
    }
    let fee_minor = fee
        .checked_div(converted.msat_per_unit)
        .and_then(|fee| {
            fee.round_dp_with_strategy(0, RoundingStrategy::ToPositiveInfinity).to_i64()
        })
        .ok_or_else(|| wrong("converted.fee is too large".to_owned()))?;
    Ok(Checked { msat: invoice.msat, arrives, fee_minor, expires_at: invoice.expires_at })
}
