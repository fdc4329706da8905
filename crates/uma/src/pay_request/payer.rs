//! The payer in a pay request: address, data that was asked for, and compliance (UMAD-05).

use serde_json::{Map, Value};

use crate::address::{self, Address};
use crate::data::{COMPLIANCE, Facts, IDENTIFIER};
use crate::error::{ErrorCode, Refusal};
use crate::json::Fields;
use crate::kyc_status::KycStatus;
use crate::nonce::Stamp;
use crate::signature::{Signed, SigningKey, payload};

/// The payer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayerData {
    /// The payer's address; its domain is that of the institution that signs.
    pub identifier: Address,
    /// Data that was asked for.
    pub facts: Facts,
    /// The sending institution's signed statement about the payer.
    pub compliance: PayerCompliance,
}

/// The sending institution's signed statement about the payer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayerCompliance {
    /// The payer's identity status.
    pub kyc_status: KycStatus,
    /// Outputs of channels over which the money may come.
    pub utxos: Vec<String>,
    /// The Lightning node that will pay.
    pub node_pub_key: Option<String>,
    /// Travel-rule data, encrypted to the receiving institution, in hexadecimal.
    pub encrypted_travel_rule_info: Option<String>,
    /// The standard that the travel-rule data follows, such as `IVMS@101.2023`.
    pub travel_rule_format: Option<String>,
    /// The URL that takes the post-transaction callback.
    pub utxo_callback: Option<String>,
    /// The signature over the payer's address, nonce and time.
    pub signed: Signed,
}

impl PayerCompliance {
    /// A signed statement about a payer, with all that is optional left out.
    pub fn new(key: &SigningKey, payer: &Address, kyc_status: KycStatus, stamp: Stamp) -> Self {
        let payload = payload::pay_request(payer, &stamp);
        Self {
            kyc_status,
            utxos: Vec::new(),
            node_pub_key: None,
            encrypted_travel_rule_info: None,
            travel_rule_format: None,
            utxo_callback: None,
            signed: Signed::new(key, &payload, stamp),
        }
    }

    fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let kyc_status = fields.optional_text("kycStatus")?.unwrap_or_default();
        Ok(Self {
            kyc_status: KycStatus::from_name(&kyc_status),
            utxos: fields.optional_texts("utxos")?.unwrap_or_default(),
            node_pub_key: fields.optional_filled("nodePubKey")?,
            encrypted_travel_rule_info: fields.optional_filled("encryptedTravelRuleInfo")?,
            travel_rule_format: fields.optional_filled("travelRuleFormat")?,
            utxo_callback: utxo_callback(fields)?,
            signed: Signed::read(fields)?,
        })
    }

    fn write(&self) -> Value {
        let mut body = Map::new();
        body.insert("kycStatus".into(), self.kyc_status.name().into());
        body.insert("utxos".into(), self.utxos.clone().into());
        let optional = [
            ("nodePubKey", &self.node_pub_key),
            ("encryptedTravelRuleInfo", &self.encrypted_travel_rule_info),
            ("travelRuleFormat", &self.travel_rule_format),
        ];
        for (name, text) in optional {
            if let Some(text) = text {
                body.insert(name.into(), text.as_str().into());
            }
        }
        // Peers insist on the field; empty means that no callback is wanted.
        body.insert("utxoCallback".into(), self.utxo_callback.clone().unwrap_or_default().into());
        self.signed.write(&mut body);
        Value::Object(body)
    }
}

impl PayerData {
    /// Reads `payerData`. Every payer has an address and a compliance object.
    pub(super) fn read(fields: Option<Fields<'_>>) -> Result<Self, Refusal> {
        let missing = |name: &str| {
            let reason = format!("payerData{name} is missing");
            Refusal::new(ErrorCode::MissingMandatoryPayerData, reason)
        };
        let fields = fields.ok_or_else(|| missing(""))?;
        let identifier =
            fields.optional_filled(IDENTIFIER)?.ok_or_else(|| missing(".identifier"))?;
        let identifier = Address::parse(&identifier)
            .map_err(|error| fields.refusal(IDENTIFIER, format!("is wrong: {error}")))?;
        let compliance =
            fields.optional_fields(COMPLIANCE)?.ok_or_else(|| missing(".compliance"))?;
        Ok(Self {
            identifier,
            facts: Facts::read(&fields),
            compliance: PayerCompliance::read(&compliance)?,
        })
    }

    pub(super) fn write(&self) -> Value {
        let mut body = self.facts.write();
        body.insert(IDENTIFIER.into(), self.identifier.as_written().into());
        body.insert(COMPLIANCE.into(), self.compliance.write());
        Value::Object(body)
    }
}

/// Reads `utxoCallback`; an empty one is absent.
pub(crate) fn utxo_callback(fields: &Fields<'_>) -> Result<Option<String>, Refusal> {
    let url = fields.optional_filled("utxoCallback")?;
    if let Some(url) = &url {
        address::check_url(url).map_err(|wrong| fields.refusal("utxoCallback", wrong))?;
    }
    Ok(url)
}
