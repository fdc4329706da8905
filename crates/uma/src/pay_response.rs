//! The answer to a pay request: an invoice, what arrives when it is paid, and the payee (UMAD-06).

use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::address::Address;
use crate::currency::{self, CurrencyCode};
use crate::data::{COMPLIANCE, Facts, IDENTIFIER};
use crate::error::{ErrorCode, Refusal};
use crate::json::{self, Fields, Number};
use crate::nonce::Stamp;
use crate::pay_request::payer::utxo_callback;
use crate::signature::{Signed, SigningKey, VerifyingKey, payload};
use crate::version::Form;

/// The name of `fee` in version 0.
const OLD_FEE: &str = "exchangeFeesMillisatoshi";

/// The answer to a pay request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayResponse {
    /// A BOLT11 invoice. This crate does not read it.
    pub invoice: String,
    /// The amount that arrives when the invoice is paid.
    pub converted: Converted,
    /// The payee's address; some peers leave it out.
    pub payee: Option<Address>,
    /// Data about the payee that was asked for.
    pub facts: Facts,
    /// The receiving institution's statement about the payment.
    pub compliance: PayeeCompliance,
}

/// The amount that arrives when an invoice is paid, and its price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// Smallest units of the currency that arrives. Version 0 may not say it.
    pub amount_minor: Option<i64>,
    /// The currency that arrives.
    pub code: CurrencyCode,
    /// Decimal places of its major unit.
    pub decimals: u8,
    /// Millisatoshi for one smallest unit; greater than zero.
    pub msat_per_unit: Decimal,
    /// The receiving institution's fee, in millisatoshi, which is part of the invoice.
    pub fee_msat: i64,
}

/// The receiving institution's statement about the payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayeeCompliance {
    /// Outputs of channels over which the money will come.
    pub utxos: Vec<String>,
    /// The Lightning node that will be paid.
    pub node_pub_key: Option<String>,
    /// The URL that takes the post-transaction callback.
    pub utxo_callback: Option<String>,
    /// The signature over both addresses, nonce and time. Version 0 signs no answer, so its absence
    /// is the form of version 0.
    pub signed: Option<Signed>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    pr: &'a str,
    routes: [u8; 0],
    disposable: bool,
    payee_data: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    converted: Option<ConvertedBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_info: Option<ConvertedBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compliance: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConvertedBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    currency_code: &'a str,
    decimals: u8,
    multiplier: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    fee: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange_fees_millisatoshi: Option<i64>,
}

impl Converted {
    fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let multiplier = fields.decimal("multiplier")?;
        if multiplier <= Decimal::ZERO {
            return Err(fields.refusal("multiplier", "must be greater than 0"));
        }
        let has_old_name = fields.get("fee").is_none() && fields.get(OLD_FEE).is_some();
        let fee = if has_old_name { OLD_FEE } else { "fee" };
        let amount = fields.get("amount").map(|_| fields.count("amount")).transpose()?;
        Ok(Self {
            amount_minor: amount,
            code: CurrencyCode::read(fields, "currencyCode")?,
            decimals: currency::decimals(fields)?,
            msat_per_unit: multiplier,
            fee_msat: fields.count(fee)?,
        })
    }

    fn body(&self, form: Form) -> ConvertedBody<'_> {
        let (fee, exchange_fees_millisatoshi) = match form {
            Form::V0 => (None, Some(self.fee_msat)),
            Form::V1 => (Some(self.fee_msat), None),
        };
        ConvertedBody {
            amount: self.amount_minor,
            currency_code: self.code.as_str(),
            decimals: self.decimals,
            multiplier: Number(self.msat_per_unit),
            fee,
            exchange_fees_millisatoshi,
        }
    }
}

impl PayeeCompliance {
    /// A signed statement of version 1, with all that is optional left out.
    pub fn new(key: &SigningKey, payer: &Address, payee: &Address, stamp: Stamp) -> Self {
        let payload = payload::pay_response(payer, payee, &stamp);
        Self { signed: Some(Signed::new(key, &payload, stamp)), ..Self::unsigned() }
    }

    /// A statement of version 0, with all that is optional left out.
    pub fn unsigned() -> Self {
        Self { utxos: Vec::new(), node_pub_key: None, utxo_callback: None, signed: None }
    }

    fn read(fields: &Fields<'_>, form: Form) -> Result<Self, Refusal> {
        Ok(Self {
            utxos: fields.optional_texts("utxos")?.unwrap_or_default(),
            node_pub_key: fields.optional_filled("nodePubKey")?,
            utxo_callback: utxo_callback(fields)?,
            signed: match form {
                Form::V0 => None,
                Form::V1 => Some(Signed::read(fields)?),
            },
        })
    }

    fn write(&self) -> Value {
        let mut body = Map::new();
        body.insert("utxos".into(), self.utxos.clone().into());
        if let Some(node) = &self.node_pub_key {
            body.insert("nodePubKey".into(), node.as_str().into());
        }
        // Peers insist on the field; empty means that no callback is wanted.
        body.insert("utxoCallback".into(), self.utxo_callback.clone().unwrap_or_default().into());
        if let Some(signed) = &self.signed {
            signed.write(&mut body);
        }
        Value::Object(body)
    }
}

impl PayResponse {
    /// The form of the answer: only version 1 signs it.
    pub fn form(&self) -> Form {
        if self.compliance.signed.is_some() { Form::V1 } else { Form::V0 }
    }

    /// The answer as JSON. Refuses one of version 1 that does not say what arrives.
    pub fn to_json(&self) -> Result<String, Refusal> {
        let form = self.form();
        if form == Form::V1 && self.converted.amount_minor.is_none() {
            let reason = "version 1 states the amount that arrives";
            return Err(Refusal::new(ErrorCode::InvalidInput, reason));
        }
        let mut payee_data = self.facts.write();
        if let Some(payee) = &self.payee {
            payee_data.insert(IDENTIFIER.into(), payee.as_written().into());
        }
        let (converted, payment_info, compliance) = match form {
            Form::V0 => (None, Some(self.converted.body(form)), Some(self.compliance.write())),
            Form::V1 => {
                payee_data.insert(COMPLIANCE.into(), self.compliance.write());
                (Some(self.converted.body(form)), None, None)
            }
        };
        Ok(json::text(&Body {
            pr: &self.invoice,
            routes: [],
            disposable: true,
            payee_data: Value::Object(payee_data),
            converted,
            payment_info,
            compliance,
        }))
    }

    /// Reads an answer of either form: `payeeData.compliance` is of version 1, `compliance` at the
    /// top of version 0.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fields = Fields::read(ErrorCode::ParsePayreqResponseError, body)?;
        let invoice = fields.filled("pr")?;
        let payee_data = fields.optional_fields("payeeData")?;
        let in_payee_data =
            payee_data.as_ref().map(|payee| payee.optional_fields(COMPLIANCE)).transpose()?;
        let (form, compliance) = match in_payee_data.flatten() {
            Some(compliance) => (Form::V1, compliance),
            None => match fields.optional_fields(COMPLIANCE)? {
                Some(compliance) => (Form::V0, compliance),
                None => return Err(fields.refusal("payeeData.compliance", "is missing")),
            },
        };
        let converted = match (fields.optional_fields("converted")?, form) {
            (Some(converted), _) => converted,
            (None, Form::V0) => fields.fields("paymentInfo")?,
            (None, Form::V1) => return Err(fields.refusal("converted", "is missing")),
        };
        let converted = Converted::read(&converted)?;
        if form == Form::V1 && converted.amount_minor.is_none() {
            return Err(fields.refusal("converted.amount", "is missing"));
        }
        let payee = match &payee_data {
            Some(payee_data) => payee(payee_data)?,
            None => None,
        };
        Ok(Self {
            invoice,
            converted,
            payee,
            facts: payee_data.as_ref().map(Facts::read).unwrap_or_default(),
            compliance: PayeeCompliance::read(&compliance, form)?,
        })
    }

    /// Refuses an answer about another payee than the one looked up, one whose callback is not its
    /// institution's own, and one of version 1 that the receiving institution did not sign. `payer`
    /// is the address as the request had it; `key` is that of the domain of `looked_up`.
    pub fn verify(
        &self,
        key: &VerifyingKey,
        payer: &Address,
        looked_up: &Address,
    ) -> Result<(), Refusal> {
        let payee = self.payee.as_ref().unwrap_or(looked_up);
        if !payee.is_same(looked_up) {
            let reason = format!("payeeData.identifier is {payee}, but {looked_up} was looked up");
            return Err(Refusal::new(ErrorCode::ParsePayreqResponseError, reason));
        }
        if let Some(signed) = &self.compliance.signed {
            let payload = payload::pay_response(payer, payee, &signed.stamp);
            key.verify(&payload, &signed.signature_hex)?;
        }
        let Some(url) = &self.compliance.utxo_callback else { return Ok(()) };
        let code = ErrorCode::ParsePayreqResponseError;
        looked_up.domain().check_own("compliance.utxoCallback", url, code)
    }
}

/// The payee's address, where it is stated.
fn payee(fields: &Fields<'_>) -> Result<Option<Address>, Refusal> {
    let Some(text) = fields.optional_filled(IDENTIFIER)? else { return Ok(None) };
    Address::parse(&text)
        .map(Some)
        .map_err(|error| fields.refusal(IDENTIFIER, format!("is wrong: {error}")))
}
