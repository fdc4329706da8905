//! The pay request: the sending institution asks for an invoice over an amount (UMAD-05).

pub mod amount;
pub mod payer;

use serde_json::{Map, Value};

use crate::currency::CurrencyCode;
use crate::data::Demands;
use crate::error::{ErrorCode, Refusal};
use crate::json::Fields;
use crate::signature::{VerifyingKey, payload};
use crate::version::Form;

pub use amount::Amount;
pub use payer::{PayerCompliance, PayerData};

/// A pay request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayRequest {
    /// The form in which it came or goes.
    pub form: Form,
    /// How much is paid.
    pub amount: Amount,
    /// The currency that shall arrive, one of those that the lookup offered.
    pub receiving: CurrencyCode,
    /// The payer.
    pub payer: PayerData,
    /// Data about the payee that the sending institution asks for. Version 0 cannot ask.
    pub payee_demands: Demands,
    /// A text of the payer for the payee.
    pub comment: Option<String>,
    /// The id of the UMA invoice that is paid.
    pub invoice_uuid: Option<String>,
}

impl PayRequest {
    /// The request as JSON. Refuses an amount that its form cannot carry.
    pub fn to_json(&self) -> Result<String, Refusal> {
        let mut body = Map::new();
        self.amount.check(&self.receiving, ErrorCode::InvalidInput)?;
        match (self.form, &self.amount) {
            (Form::V1, amount) => {
                body.insert("amount".into(), amount.to_string().into());
                body.insert("convert".into(), self.receiving.as_str().into());
                body.insert("payeeData".into(), self.payee_demands.write());
            }
            (Form::V0, Amount::Receiving { minor, .. }) => {
                body.insert("amount".into(), (*minor).into());
                body.insert("currency".into(), self.receiving.as_str().into());
            }
            (Form::V0, Amount::Msat(_)) => {
                let reason = "version 0 has no amounts in millisatoshi: state what shall arrive";
                return Err(Refusal::new(ErrorCode::InvalidInput, reason));
            }
        }
        body.insert("payerData".into(), self.payer.write());
        if let Some(comment) = &self.comment {
            body.insert("comment".into(), comment.as_str().into());
        }
        if let Some(uuid) = &self.invoice_uuid {
            body.insert("invoiceUUID".into(), uuid.as_str().into());
        }
        Ok(Value::Object(body).to_string())
    }

    /// Reads a request of either form: one with `convert` is of version 1, one with `currency` of
    /// version 0.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fields = Fields::read(ErrorCode::ParsePayreqRequestError, body)?;
        let (form, receiving) = if fields.get("convert").is_some() {
            (Form::V1, CurrencyCode::read(&fields, "convert")?)
        } else if fields.get("currency").is_some() {
            (Form::V0, CurrencyCode::read(&fields, "currency")?)
        } else {
            return Err(fields.refusal("convert", "is missing"));
        };
        let amount = match form {
            Form::V0 => {
                Amount::Receiving { minor: fields.integer("amount")?, code: receiving.clone() }
            }
            Form::V1 => {
                let text = fields.filled("amount")?;
                Amount::parse(&text).map_err(|wrong| fields.refusal("amount", wrong))?
            }
        };
        amount.check(&receiving, ErrorCode::AmountOutOfRange)?;
        let payee_demands = match (form, fields.optional_fields("payeeData")?) {
            (Form::V1, Some(demands)) => Demands::read(&demands)?,
            (Form::V1, None) | (Form::V0, _) => Demands::default(),
        };
        Ok(Self {
            form,
            amount,
            receiving,
            payer: PayerData::read(fields.optional_fields("payerData")?)?,
            payee_demands,
            comment: fields.optional_filled("comment")?,
            invoice_uuid: fields.optional_filled("invoiceUUID")?,
        })
    }

    /// Refuses a request that the payer's institution did not sign, or whose callback is not its
    /// own. `key` is that of the domain of the payer's address.
    pub fn verify(&self, key: &VerifyingKey) -> Result<(), Refusal> {
        let signed = &self.payer.compliance.signed;
        let payload = payload::pay_request(&self.payer.identifier, &signed.stamp);
        key.verify(&payload, &signed.signature_hex)?;
        let Some(url) = &self.payer.compliance.utxo_callback else { return Ok(()) };
        let (field, code) =
            ("payerData.compliance.utxoCallback", ErrorCode::ParsePayreqRequestError);
        self.payer.identifier.domain().check_own(field, url, code)
    }
}
