//! The institutions of the sandbox as payees: keys, configuration, lookups and pay requests.

use domain::currency::Currency as Asset;
use domain::id::TransactionId;
use domain::money::Money;
use domain::platform::{COUNTERPARTY_FIELDS, CounterpartyField};
use domain::rate::round_to_digits;
use domain::time::Timestamp;
use ports::lightning::{Lightning as _, NewInvoice};
use ports::outbound::{Method, OutboundAnswer, OutboundFailure, OutboundRequest};
use ports::uma::PeerFailure;
use rust_decimal::Decimal;
use serde_json::json;
use url::Url;
use uuid::Uuid;

use ::uma::address::{Address as UmaName, PeerDomain};
use ::uma::configuration::{self, Configuration};
use ::uma::currency::{Currency, CurrencyCode};
use ::uma::data::{Demands, Facts, protocol_key, specification_name};
use ::uma::error::{ErrorCode, Refusal};
use ::uma::keys::certificate::Terms;
use ::uma::keys::{self, KeyDocument};
use ::uma::kyc_status::KycStatus;
use ::uma::lnurlp::request::PATH as LOOKUP_PATH;
use ::uma::lnurlp::{Lookup, LookupResponse, ReceiverCompliance};
use ::uma::pay_request::{Amount, PayRequest};
use ::uma::pay_response::{Converted, PayResponse, PayeeCompliance};
use ::uma::version::Form;

use super::SandboxInstitutions;
use super::addresses::{Address, is_ours, name_of, row};

/// Millisatoshi in one bitcoin.
const MSAT_PER_BITCOIN: i64 = 100_000_000_000;

/// Most that an address of the sandbox takes at once, in smallest units: enough for every test that
/// a person makes up, and little enough that the limit can be tested too.
const RECEIVED_MAX: i64 = 1_000_000_000;

/// How long an invoice of the sandbox can be paid, in milliseconds: longer than quotes are open, so
/// that the quote's own time decides.
const INVOICE_LIFETIME_MILLIS: i64 = 3_600_000;

/// How long peers may keep the keys, in milliseconds: as real institutions have it.
const KEYS_LIFETIME_MILLIS: i64 = 3_600_000;

/// The validity of the certificates, which never change: all the time that one can state.
const NOT_BEFORE: Timestamp = Timestamp::from_millis(0);
const NOT_AFTER: Timestamp = Timestamp::from_millis(253_402_300_799_000);

/// The path of pay requests; the user without its `$` follows.
const PAY_PATH: &str = "/uma/pay/";

/// The answer of an institution that has something else at its paths.
const NONSENSE: &str = "<html>It works!</html>";

/// The key of the signed statement among the data about a party, which every answer has.
const COMPLIANCE: &str = "compliance";

/// Why a request gets no message in answer.
enum Failure {
    /// An error of the protocol.
    Refused(Refusal),
    /// The answer is no message.
    Nonsense,
    /// There is no connection.
    Unreachable,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The way in which an institution comes to fail so.
impl From<PeerFailure> for Failure {
    fn from(failure: PeerFailure) -> Self {
        let refused = |code, reason: &str| Self::Refused(Refusal::new(code, reason));
        let speaks = |majors: &[u32]| {
            Self::Refused(Refusal {
                code: ErrorCode::UnsupportedUmaVersion,
                reason: format!("the major versions {majors:?} are supported"),
                supported_major_versions: majors.to_vec(),
            })
        };
        match failure {
            PeerFailure::UnknownAddress => {
                refused(ErrorCode::UserNotFound, "there is no such address")
            }
            PeerFailure::PayeeNotReady => {
                refused(ErrorCode::UserNotReady, "the address cannot be paid yet")
            }
            PeerFailure::NotAllowed => {
                refused(ErrorCode::CounterpartyNotAllowed, "we do not deal with each other")
            }
            PeerFailure::KeysUnavailable => {
                refused(ErrorCode::CounterpartyPubkeyFetchError, "your keys could not be had")
            }
            PeerFailure::Unreachable => Self::Unreachable,
            PeerFailure::Unreadable => Self::Nonsense,
            // It lists versions of ours, and refuses them all the same.
            PeerFailure::UnsupportedVersion => speaks(&[1, 0]),
            PeerFailure::NoCommonVersion => speaks(&[2]),
        }
    }
}

/// The price of a payment.
struct Price {
    amount_minor: i64,
    msat: Money,
    fee_msat: i64,
}

impl SandboxInstitutions {
    /// The answer to a request; nothing if its host is not one of the sandbox's.
    pub fn answer(
        &self,
        request: &OutboundRequest,
    ) -> Option<Result<OutboundAnswer, OutboundFailure>> {
        let url = Url::parse(&request.url).ok()?;
        let domain = domain_of(&url)?;
        let now = self.clock.machine();
        let path = url.path();
        let message = match (request.method, path.strip_prefix(PAY_PATH)) {
            (Method::Get, _) if path == keys::PATH => self.key_document(&domain, now),
            (Method::Get, _) if path == configuration::PATH => {
                Ok(Configuration::ours(name_of(domain.as_str())).to_json())
            }
            (Method::Get, _) if path.starts_with(LOOKUP_PATH) => {
                self.lookup_answer(path, url.query().unwrap_or_default(), &domain, now)
            }
            (Method::Post, Some(user)) => self.pay_answer(user, &domain, &request.body, now),
            (Method::Get | Method::Post, _) => {
                Err(Refusal::new(ErrorCode::RequestNotFound, "there is nothing here").into())
            }
        };
        let (status, body) = match message {
            Ok(json) => (200, json),
            Err(Failure::Refused(refusal)) => (refusal.code.status(), refusal.to_json()),
            Err(Failure::Nonsense) => (200, NONSENSE.to_owned()),
            Err(Failure::Unreachable) => return Some(Err(OutboundFailure::Unreachable)),
        };
        Some(Ok(OutboundAnswer { status, body: body.into_bytes(), retry_after: None, peer: None }))
    }

    fn key_document(&self, domain: &PeerDomain, now: Timestamp) -> Result<String, Failure> {
        let name = domain.clone();
        let terms = Terms { name, serial: 1, not_before: NOT_BEFORE, not_after: NOT_AFTER };
        let expires_at = now.plus_millis(KEYS_LIFETIME_MILLIS);
        let document = KeyDocument::new(&self.signing, &self.encryption, &terms, expires_at);
        let document = document.map_err(|error| internal(&error.to_string()))?;
        Ok(document.to_json())
    }

    fn lookup_answer(
        &self,
        path: &str,
        query: &str,
        domain: &PeerDomain,
        now: Timestamp,
    ) -> Result<String, Failure> {
        let request = match Lookup::read(path, query, domain)? {
            Lookup::Uma(request) => request,
            Lookup::Plain { .. } => {
                let reason = "the lookup is not signed: plain LNURL is not served";
                return Err(Refusal::new(ErrorCode::NonUmaLnurlNotSupported, reason).into());
            }
        };
        request.signed.stamp.check_time(now)?;
        let version = request.version.negotiate()?;
        let row = row(request.receiver.user(), domain.as_str())?;
        let payer_demands = demands(row.answer?);
        let currency = self.currency(row, now)?;
        let receiver = request.receiver.normalised();
        let sendable = |minor| msat_of(minor, &currency).ok_or_else(|| internal("no such price"));
        let response = LookupResponse {
            version,
            callback: domain.url(&format!("{PAY_PATH}{}", row.user)),
            min_sendable_msat: sendable(currency.min_minor)?,
            max_sendable_msat: sendable(currency.max_minor)?,
            metadata: metadata(&receiver),
            payer_demands,
            comment_max: None,
            compliance: ReceiverCompliance::new(
                &self.signing,
                receiver,
                KycStatus::Verified,
                true,
                self.stamp(now),
            ),
            currencies: vec![currency],
            left_out: Vec::new(),
        };
        Ok(response.to_json()?)
    }

    fn pay_answer(
        &self,
        user: &str,
        domain: &PeerDomain,
        body: &[u8],
        now: Timestamp,
    ) -> Result<String, Failure> {
        let row = row(user, domain.as_str())?;
        let payer_demands = demands(row.answer?);
        let fee_minor = row.invoice?;
        let request = PayRequest::read(body)?;
        let asked = &request.payer.compliance.signed.stamp;
        asked.check_time(now)?;
        let currency = self.currency(row, now)?;
        check_payer(&payer_demands, &request)?;
        let facts = payee_facts(&request.payee_demands)?;
        let price = price(&request, fee_minor, &currency)?;
        let payee = UmaName::parse(&format!("${}@{domain}", row.user))
            .map_err(|error| internal(&error.to_string()))?;
        // Known by what was asked, so that the same request has the same invoice.
        let name = format!("{payee} {} {} {}", request.payer.identifier, asked.nonce, price.msat);
        let payment = TransactionId::from_uuid(Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()));
        let made_at = Timestamp::from_millis(asked.at_seconds.saturating_mul(1_000));
        let invoice = self.node.create_invoice(&NewInvoice {
            payment,
            msat: price.msat,
            description: metadata(&payee).as_bytes(),
            made_at,
            expires_at: made_at.plus_millis(INVOICE_LIFETIME_MILLIS),
        });
        let payer = &request.payer.identifier;
        let mut compliance = match request.form {
            Form::V0 => PayeeCompliance::unsigned(),
            Form::V1 => PayeeCompliance::new(&self.signing, payer, &payee, self.stamp(now)),
        };
        compliance.node_pub_key = Some(self.node.node());
        let response = PayResponse {
            invoice: invoice.ok_or_else(out_of_range)?,
            converted: Converted {
                amount_minor: Some(price.amount_minor),
                code: currency.code,
                decimals: currency.decimals,
                msat_per_unit: currency.msat_per_unit,
                fee_msat: price.fee_msat,
            },
            payee: Some(payee),
            facts,
            compliance,
        };
        Ok(response.to_json()?)
    }

    /// How an address is paid: at the middle of the market.
    fn currency(&self, row: &Address, now: Timestamp) -> Result<Currency, Refusal> {
        let no_rate = || internal("there is no rate for the currency of this address");
        let asset = Asset::from_code(row.currency).ok_or_else(no_rate)?;
        let bitcoin = Asset::from_code("BTC").ok_or_else(no_rate)?;
        let rates = self.rates.current();
        let per_bitcoin = rates.mid(asset, bitcoin, now).map_err(|_| no_rate())?.value;
        let units = 10_i64.checked_pow(u32::from(asset.decimals())).map(Decimal::from);
        let msat_per_unit = units
            .and_then(|units| per_bitcoin.checked_mul(units))
            .and_then(|units| Decimal::from(MSAT_PER_BITCOIN).checked_div(units))
            .ok_or_else(no_rate)?;
        Ok(Currency {
            code: CurrencyCode::parse(asset.code()).ok_or_else(no_rate)?,
            name: asset.name().to_owned(),
            symbol: asset.symbol().to_owned(),
            msat_per_unit: round_to_digits(msat_per_unit),
            decimals: asset.decimals(),
            min_minor: 1,
            max_minor: RECEIVED_MAX,
        })
    }
}

/// The domain of a URL, if it is one of the sandbox's.
fn domain_of(url: &Url) -> Option<PeerDomain> {
    let host = url.host_str().filter(|host| is_ours(host))?;
    let is_served = url.scheme() == "https" && url.port().is_none();
    PeerDomain::parse(host).ok().filter(|_| is_served)
}

/// The text that an invoice of an address commits to.
fn metadata(payee: &UmaName) -> String {
    let payee = payee.as_written();
    json!([["text/plain", format!("Pay {payee}")], ["text/identifier", payee]]).to_string()
}

/// Data about payers that an address asks for, by the protocol's keys.
fn demands(fields: &[CounterpartyField]) -> Demands {
    let demand = |field: &CounterpartyField| (protocol_key(field.name), field.mandatory);
    Demands(fields.iter().map(demand).collect())
}

/// Refuses a payer about whom a fact is missing that the address insists on.
fn check_payer(demands: &Demands, request: &PayRequest) -> Result<(), Refusal> {
    let missing = demands.missing_in(&request.payer.facts);
    if missing.is_empty() {
        return Ok(());
    }
    let reason = format!("payerData lacks {}", missing.join(", "));
    Err(Refusal::new(ErrorCode::MissingMandatoryPayerData, reason))
}

/// The facts about a payee that are asked for and can be given. A known fact that cannot be given
/// is left out, also one that is insisted on: the payer's platform may have it itself.
fn payee_facts(demands: &Demands) -> Result<Facts, Refusal> {
    let mut facts = Facts::default();
    for (key, mandatory) in &demands.0 {
        let name = specification_name(key);
        let is_known = COUNTERPARTY_FIELDS.contains(&name.as_str()) || key == COMPLIANCE;
        if let Some(fact) = about_payee(&name) {
            facts.0.insert(key.clone(), fact.to_owned());
        } else if *mandatory && !is_known {
            let reason = format!("payeeData.{key} is not known here");
            return Err(Refusal::new(ErrorCode::UnrecognizedMandatoryPayeeDataKey, reason));
        }
    }
    Ok(facts)
}

/// Facts of the institutions of the sandbox about their customers.
fn about_payee(field: &str) -> Option<&'static str> {
    match field {
        "FULL_NAME" => Some("Sandbox Receiver"),
        "BIRTH_DATE" => Some("1990-01-01"),
        "NATIONALITY" => Some("US"),
        _ => None,
    }
}

/// The price of what is asked for. The payer pays the fee, and every fraction of a millisatoshi.
fn price(request: &PayRequest, fee_minor: i64, currency: &Currency) -> Result<Price, Refusal> {
    if request.receiving != currency.code {
        let reason = format!("the address is paid in {}", currency.code);
        return Err(Refusal::new(ErrorCode::InvalidCurrency, reason));
    }
    let fee_msat = msat_of(fee_minor, currency).ok_or_else(out_of_range)?;
    let (amount_minor, msat) = match &request.amount {
        Amount::Receiving { minor, .. } => {
            let msat = msat_of(*minor, currency).and_then(|msat| msat.checked_add(fee_msat));
            (Some(*minor), msat)
        }
        Amount::Msat(msat) => {
            let rest = msat.checked_sub(fee_msat).map(Decimal::from);
            let units = rest.and_then(|rest| rest.checked_div(currency.msat_per_unit));
            (units.and_then(|units| i64::try_from(units.floor()).ok()), Some(*msat))
        }
    };
    let is_taken = |minor: &i64| (currency.min_minor..=currency.max_minor).contains(minor);
    let amount_minor = amount_minor.filter(is_taken).ok_or_else(out_of_range)?;
    let msat = msat.and_then(|msat| Money::positive(msat, Asset::MSAT).ok());
    Ok(Price { amount_minor, msat: msat.ok_or_else(out_of_range)?, fee_msat })
}

/// Millisatoshi for so many smallest units, rounded up; nothing if they are too many.
fn msat_of(minor: i64, currency: &Currency) -> Option<i64> {
    let msat = Decimal::from(minor).checked_mul(currency.msat_per_unit)?;
    i64::try_from(msat.ceil()).ok()
}

fn out_of_range() -> Refusal {
    let reason = format!("from 1 to {RECEIVED_MAX} smallest units can arrive at once");
    Refusal::new(ErrorCode::AmountOutOfRange, reason)
}

fn internal(reason: &str) -> Refusal {
    Refusal::new(ErrorCode::InternalError, reason)
}
