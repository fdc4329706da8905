//! The sending side: another institution is asked for an invoice (UMAD-05, UMAD-06). Its answers
//! are checked before anything is believed; nothing moves here.

use domain::customer::{Customer, KycStatus};
use domain::lookup::{Offer, PayWay};
use domain::money::Money;
use domain::platform::{COUNTERPARTY_FIELDS, CounterpartyField, Platform};
use domain::time::Timestamp;
use domain::transaction::Facts;
use domain::uma_address::UmaAddress;
use ports::outbound::{Method, OutboundAnswer};
use ports::uma::PeerFailure;
use rust_decimal::prelude::ToPrimitive as _;
use rust_decimal::{Decimal, RoundingStrategy};
use store::unit::Unit;
use uma::currency::CurrencyCode;
use uma::data::{self, Demands};
use uma::error::{ErrorCode, PeerCode, PeerError, Refusal};
use uma::pay_request::{Amount, PayRequest, PayerCompliance, PayerData};
use uma::pay_response::PayResponse;
use uma::travel_rule::{self, EncryptionKey, Entropy};
use uma::version::Version;
use zeroize::Zeroizing;

use super::keys::{self, Keys};
use super::peers::{Contact, PAY_WITHIN, Seen};
use super::texts;
use crate::app::App;
use crate::error::Error;
use crate::pricing::{PeerPrice, ROUNDING_MSAT};

/// The end of an exchange with an answer. One that was given before is not believed.
pub(super) fn kept(seen: &Seen, unit: &mut Unit<'_, '_>) -> Result<Result<(), PeerFailure>, Error> {
    Ok(seen.keep(unit)?.map_err(|_| PeerFailure::Unreachable))
}

/// Why there is no answer that can be used, and the code that is kept of it.
pub(super) type Failed = (PeerFailure, String);

/// A failure that we have found in an answer.
pub(super) fn found(failure: PeerFailure, refusal: &Refusal) -> Failed {
    // The reason may name an address, so only the code is logged.
    tracing::info!(code = refusal.code.name(), "the answer of an institution is refused");
    (failure, refusal.code.name().to_owned())
}

/// Checks a signature with the institution's keys.
pub(super) async fn verified(
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
pub(super) fn refused(error: &PeerError, other: PeerFailure) -> Failed {
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

/// The specification's name of a key of the protocol, if it has one.
pub(super) fn known(key: &str) -> Option<&'static str> {
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
    /// Exactly this is paid, in [`domain::currency::Currency::MSAT`].
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
    /// Its amount, in [`domain::currency::Currency::MSAT`].
    pub msat: Money,
    /// The amount that arrives.
    pub arrives: Money,
    /// Millisatoshi for one smallest unit of the currency that arrives.
    pub msat_per_unit: Decimal,
    /// The institution's fee, in the smallest unit of the currency that arrives.
    pub fee_minor: i64,
    /// SHA-256 of its preimage.
    pub payment_hash: [u8; 32],
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
    let Asked { payer, form, answer } = match ask_to_pay(app, platform, contact, order).await? {
        Ok(asked) => asked,
        Err(failed) => return Ok(Err(failed)),
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
    let code = ErrorCode::ParsePayreqResponseError;
    let checked = checked.and_then(|it| Ok((it, texts::facts(&response.facts, code)?)));
    let (checked, payee) = match checked {
        Ok(checked) => checked,
        Err(refusal) => return Ok(Err(found(PeerFailure::Unreadable, &refusal))),
    };
    let Checked { msat, arrives, fee_minor, payment_hash, expires_at } = checked;
    Ok(Ok(Invoice {
        text: response.invoice.clone(),
        msat,
        arrives,
        msat_per_unit: response.converted.msat_per_unit,
        fee_minor,
        payment_hash,
        expires_at,
        payee,
        callback: super::post_transaction::given(response.compliance.utxo_callback.as_deref()),
        seen: contact.seen("OK", stamp),
    }))
}

/// A pay request that was answered.
struct Asked {
    /// The payer's address, as the request had it.
    payer: uma::address::Address,
    form: uma::version::Form,
    answer: OutboundAnswer,
}

/// Sends the pay request: once more where the institution cannot open its travel-rule data and
/// shows another key by now. Nothing moves by it, so a second one is safe.
async fn ask_to_pay(
    app: &App,
    platform: &Platform,
    contact: &mut Contact,
    order: &Order<'_>,
) -> Result<Result<Asked, Failed>, Error> {
    let encrypts_to = match contact.keys().await {
        Ok(keys) => keys.encryption_key,
        Err(refusal) => return Ok(Err(found(PeerFailure::KeysUnavailable, &refusal))),
    };
    let first = ask_with(app, platform, contact, order, &encrypts_to).await?;
    let is_sealed = order.way.is_subject_to_travel_rule;
    if !first.as_ref().is_ok_and(|asked| is_sealed && may_be_unopened(&asked.answer)) {
        return Ok(first);
    }
    match contact.rotated(&encrypts_to).await {
        Some(rotated) => ask_with(app, platform, contact, order, &rotated).await,
        None => Ok(first),
    }
}

/// Whether an answer may mean that data could not be decrypted: the protocol has no code for it.
fn may_be_unopened(answer: &OutboundAnswer) -> bool {
    let error = PeerError::read(answer.status, &answer.body);
    error.is_some_and(|error| match error.code {
        PeerCode::Known(code) => matches!(
            code,
            ErrorCode::ParsePayreqRequestError
                | ErrorCode::InvalidInput
                | ErrorCode::InvalidRequestFormat
                | ErrorCode::InvalidPubkeyFormat
                | ErrorCode::InternalError
        ),
        PeerCode::Unknown(_) | PeerCode::Absent => true,
    })
}

/// Sends a pay request with travel-rule data for this key.
async fn ask_with(
    app: &App,
    platform: &Platform,
    contact: &Contact,
    order: &Order<'_>,
    encrypts_to: &EncryptionKey,
) -> Result<Result<Asked, Failed>, Error> {
    let request = request(app, platform, order, encrypts_to)?;
    let (payer, form) = (request.payer.identifier.clone(), request.form);
    let body = request.to_json().map_err(|refusal| Error::Internal(refusal.to_string()))?;
    let url = order.way.callback.clone();
    Ok(match contact.send(Method::Post, url, body.into_bytes(), PAY_WITHIN).await {
        Ok(answer) => Ok(Asked { payer, form, answer }),
        Err(failure) => Err((PeerFailure::Unreachable, failure.to_string())),
    })
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
    payment_hash: [u8; 32],
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
    // An institution that was paid before has invoices of ours.
    if invoice.node == lightning.node() {
        return Err(bad_invoice("pr pays this server".to_owned()));
    }
    if invoice.expires_at <= now {
        return Err(Refusal::new(ErrorCode::InvoiceExpired, "pr has expired already"));
    }
    if let Some(node) = &response.compliance.node_pub_key
        && !node.eq_ignore_ascii_case(&invoice.node)
    {
        return Err(bad_invoice("pr does not pay the node that compliance names".to_owned()));
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
    let (payment_hash, expires_at) = (invoice.payment_hash, invoice.expires_at);
    Ok(Checked { msat: invoice.msat, arrives, fee_minor, payment_hash, expires_at })
}
