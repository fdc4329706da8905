//! The answer to a lookup: how a payee can be paid and what must be said of the payer (UMAD-04).

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::address::{self, Address};
use crate::currency::{Currency, CurrencyBody};
use crate::data::{COMPLIANCE, Demands, IDENTIFIER};
use crate::error::{ErrorCode, Refusal};
use crate::json::{self, Fields};
use crate::kyc_status::KycStatus;
use crate::nonce::Stamp;
use crate::signature::{Signed, SigningKey, VerifyingKey, payload};
use crate::version::Version;

/// The `tag` of LNURL-pay.
const TAG: &str = "payRequest";

/// The answer to a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupResponse {
    /// The version of the answer, which decides its form.
    pub version: Version,
    /// The URL to which the pay request is posted.
    pub callback: String,
    /// Least that can be sent, in millisatoshi.
    pub min_sendable_msat: i64,
    /// Most that can be sent, in millisatoshi.
    pub max_sendable_msat: i64,
    /// A JSON list of pairs, as text: the invoice commits to exactly these bytes.
    pub metadata: String,
    /// Currencies in which the payee can be paid, in the order of its preference.
    pub currencies: Vec<Currency>,
    /// The reasons for which entries of a peer's currencies were left out. It is never written.
    pub left_out: Vec<String>,
    /// Data about the payer that the receiving institution asks for. The address and the compliance
    /// object are always among what it gets and need not be listed.
    pub payer_demands: Demands,
    /// Characters that a comment may have; `None`: comments are not taken.
    pub comment_max: Option<u32>,
    /// The receiving institution's signed statement about the payee.
    pub compliance: ReceiverCompliance,
}

/// The receiving institution's signed statement about the payee.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverCompliance {
    /// The payee's identity status.
    pub kyc_status: KycStatus,
    /// Whether the receiving institution is subject to the travel rule.
    pub is_subject_to_travel_rule: bool,
    /// The payee's address.
    pub receiver: Address,
    /// The signature over address, nonce and time.
    pub signed: Signed,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    tag: &'static str,
    callback: &'a str,
    min_sendable: i64,
    max_sendable: i64,
    metadata: &'a str,
    currencies: Vec<CurrencyBody<'a>>,
    payer_data: Value,
    compliance: Value,
    uma_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment_allowed: Option<u32>,
}

impl ReceiverCompliance {
    /// A signed statement about a payee.
    pub fn new(
        key: &SigningKey,
        receiver: Address,
        kyc_status: KycStatus,
        is_subject_to_travel_rule: bool,
        stamp: Stamp,
    ) -> Self {
        let payload = payload::lookup_response(&receiver, &stamp);
        let signed = Signed::new(key, &payload, stamp);
        Self { kyc_status, is_subject_to_travel_rule, receiver, signed }
    }

    fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let receiver = Address::parse(&fields.filled("receiverIdentifier")?)
            .map_err(|error| fields.refusal("receiverIdentifier", format!("is wrong: {error}")))?;
        let kyc_status = fields.optional_text("kycStatus")?.unwrap_or_default();
        Ok(Self {
            kyc_status: KycStatus::from_name(&kyc_status),
            is_subject_to_travel_rule: fields
                .optional_flag("isSubjectToTravelRule")?
                .unwrap_or(false),
            receiver,
            signed: Signed::read(fields)?,
        })
    }

    fn write(&self) -> Value {
        let mut body = Map::new();
        body.insert("kycStatus".into(), self.kyc_status.name().into());
        body.insert("isSubjectToTravelRule".into(), self.is_subject_to_travel_rule.into());
        body.insert("receiverIdentifier".into(), self.receiver.as_written().into());
        self.signed.write(&mut body);
        Value::Object(body)
    }
}

impl LookupResponse {
    /// The answer as JSON, in the form of its version. Refuses currencies that no peer would take.
    pub fn to_json(&self) -> Result<String, Refusal> {
        self.currencies.iter().try_for_each(Currency::check)?;
        let form = self.version.form();
        let mut demands = self.payer_demands.clone();
        for always in [IDENTIFIER, COMPLIANCE] {
            demands.0.insert(always.to_owned(), true);
        }
        Ok(json::text(&Body {
            tag: TAG,
            callback: &self.callback,
            min_sendable: self.min_sendable_msat,
            max_sendable: self.max_sendable_msat,
            metadata: &self.metadata,
            currencies: self.currencies.iter().map(|one| one.body(form)).collect(),
            payer_data: demands.write(),
            compliance: self.compliance.write(),
            uma_version: self.version.to_string(),
            comment_allowed: self.comment_max,
        }))
    }

    /// Reads an answer of either form. An error of the peer is not one: see
    /// [`PeerError`](crate::error::PeerError).
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fields = Fields::read(ErrorCode::ParseLnurlpResponseError, body)?;
        if fields.text("tag")? != TAG {
            return Err(fields.refusal("tag", "must be payRequest"));
        }
        let version = version(&fields)?;
        let callback = fields.filled("callback")?;
        address::check_url(&callback).map_err(|wrong| fields.refusal("callback", wrong))?;
        let min_sendable_msat = fields.count("minSendable")?;
        let max_sendable_msat = fields.count("maxSendable")?;
        if min_sendable_msat > max_sendable_msat {
            return Err(fields.refusal("minSendable", "must not be more than maxSendable"));
        }
        let metadata = fields.filled("metadata")?;
        if !is_metadata(&metadata) {
            let wrong = "must be a JSON list of pairs, one of them text/plain";
            return Err(fields.refusal("metadata", wrong));
        }
        let (currencies, left_out) = currencies(&fields)?;
        let payer_demands = match fields.optional_fields("payerData")? {
            Some(demands) => Demands::read(&demands)?,
            None => Demands::default(),
        };
        // A payment needs no comment, so a limit that cannot be read is as good as none.
        let comment_max = fields.optional_integer("commentAllowed").ok().flatten();
        Ok(Self {
            version,
            callback,
            min_sendable_msat,
            max_sendable_msat,
            metadata,
            currencies,
            left_out,
            payer_demands: without_always(payer_demands),
            comment_max: comment_max.and_then(|max| u32::try_from(max).ok()).filter(|max| *max > 0),
            compliance: ReceiverCompliance::read(&fields.fields("compliance")?)?,
        })
    }

    /// Refuses an answer that is about another address than the one looked up, that the receiving
    /// institution did not sign, or whose callback is not its own. `key` is that of the address's
    /// domain.
    pub fn verify(&self, key: &VerifyingKey, looked_up: &Address) -> Result<(), Refusal> {
        let receiver = &self.compliance.receiver;
        if !receiver.is_same(looked_up) {
            let reason = format!(
                "compliance.receiverIdentifier is {receiver}, but {looked_up} was looked up"
            );
            return Err(Refusal::new(ErrorCode::ParseLnurlpResponseError, reason));
        }
        let payload = payload::lookup_response(receiver, &self.compliance.signed.stamp);
        key.verify(&payload, &self.compliance.signed.signature_hex)?;
        let code = ErrorCode::ParseLnurlpResponseError;
        looked_up.domain().check_own("callback", &self.callback, code)
    }
}

/// Reads `currencies`. Peers list tokens and currencies of their own beside those in common, so an
/// entry that cannot be read is left out, with its reason, and the others can be paid in.
fn currencies(fields: &Fields<'_>) -> Result<(Vec<Currency>, Vec<String>), Refusal> {
    let (mut currencies, mut left_out) = (Vec::new(), Vec::new());
    for entry in fields.entries("currencies")? {
        match entry.and_then(|entry| Currency::read(&entry)) {
            Ok(currency) => currencies.push(currency),
            Err(refusal) => left_out.push(refusal.reason),
        }
    }
    Ok((currencies, left_out))
}

fn version(fields: &Fields<'_>) -> Result<Version, Refusal> {
    let version = Version::parse(&fields.filled("umaVersion")?)
        .map_err(|_| fields.refusal("umaVersion", "must be a version such as 1.0"))?;
    match version.negotiate() {
        Ok(_) => Ok(version),
        Err(_) => Err(fields.refusal("umaVersion", "is a version that was not asked for")),
    }
}

/// Whether a text is a JSON list of pairs with a `text/plain` among them (LUD-06).
fn is_metadata(text: &str) -> bool {
    let Ok(entries) = serde_json::from_str::<Vec<Vec<&RawValue>>>(text) else { return false };
    let is_plain_text = |entry: &Vec<&RawValue>| {
        entry.len() == 2
            && entry.first().is_some_and(|kind| kind.get() == r#""text/plain""#)
            && entry.last().is_some_and(|text| text.get().starts_with('"'))
    };
    entries.iter().any(is_plain_text)
}

/// The demands without those that every payer meets.
fn without_always(mut demands: Demands) -> Demands {
    demands.0.remove(IDENTIFIER);
    demands.0.remove(COMPLIANCE);
    demands
}
