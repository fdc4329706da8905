//! The post-transaction callback of version 1: after the payment, each institution tells the other
//! which outputs were used (UMAD-07).
//!
//! It is a hint and proves nothing: its contents are not signed. The preimage proves a payment.

use serde_json::{Map, Value, json};

use crate::address::PeerDomain;
use crate::error::{ErrorCode, Refusal};
use crate::json::Fields;
use crate::nonce::Stamp;
use crate::signature::{Signed, SigningKey, VerifyingKey, payload};

/// A post-transaction callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostTransaction {
    /// Outputs that carried the payment.
    pub utxos: Vec<Utxo>,
    /// The institution that calls, whose keys verify the signature.
    pub vasp_domain: PeerDomain,
    /// The outcome of the payment, if the caller states it.
    pub outcome: Option<Outcome>,
    /// The signature over nonce and time.
    pub signed: Signed,
}

/// An output that carried a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Utxo {
    /// Its transaction and index.
    pub utxo: String,
    /// Its part of the payment, in millisatoshi.
    pub amount_msat: i64,
}

/// The outcome of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The payee has the money.
    Completed,
    /// The payee does not get the money.
    Failed {
        /// A code of the protocol, or another text.
        code: Option<String>,
        /// The reason in words.
        reason: Option<String>,
    },
}

impl PostTransaction {
    /// A signed callback.
    pub fn new(
        key: &SigningKey,
        vasp_domain: PeerDomain,
        utxos: Vec<Utxo>,
        outcome: Option<Outcome>,
        stamp: Stamp,
    ) -> Self {
        let signed = Signed::new(key, &payload::post_transaction(&stamp), stamp);
        Self { utxos, vasp_domain, outcome, signed }
    }

    /// The callback as JSON.
    pub fn to_json(&self) -> String {
        let mut body = Map::new();
        let utxo = |one: &Utxo| json!({ "utxo": one.utxo, "amountMsats": one.amount_msat });
        body.insert("utxos".into(), self.utxos.iter().map(utxo).collect());
        body.insert("vaspDomain".into(), self.vasp_domain.as_str().into());
        self.signed.write(&mut body);
        match &self.outcome {
            None => {}
            Some(Outcome::Completed) => {
                body.insert("transactionStatus".into(), COMPLETED.into());
            }
            Some(Outcome::Failed { code, reason }) => {
                body.insert("transactionStatus".into(), FAILED.into());
                for (name, text) in [("errorCode", code), ("errorReason", reason)] {
                    if let Some(text) = text {
                        body.insert(name.into(), text.as_str().into());
                    }
                }
            }
        }
        Value::Object(body).to_string()
    }

    /// Reads a callback. A status that is not known is as good as none.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let fields = Fields::read(ErrorCode::ParseUtxoCallbackError, body)?;
        let utxo = |one: &Fields<'_>| -> Result<Utxo, Refusal> {
            Ok(Utxo { utxo: one.text("utxo")?, amount_msat: one.count("amountMsats")? })
        };
        let utxos = fields.optional_objects("utxos")?.unwrap_or_default();
        let vasp_domain = PeerDomain::parse(&fields.filled("vaspDomain")?)
            .map_err(|error| fields.refusal("vaspDomain", format!("is wrong: {error}")))?;
        let outcome = match fields.optional_text("transactionStatus")?.as_deref() {
            Some(COMPLETED) => Some(Outcome::Completed),
            Some(FAILED) => Some(Outcome::Failed {
                code: fields.optional_filled("errorCode")?,
                reason: fields.optional_filled("errorReason")?,
            }),
            Some(_) | None => None,
        };
        Ok(Self {
            utxos: utxos.iter().map(utxo).collect::<Result<_, _>>()?,
            vasp_domain,
            outcome,
            signed: Signed::read(&fields)?,
        })
    }

    /// Refuses a callback that the calling institution did not sign. `key` is that of
    /// [`Self::vasp_domain`].
    pub fn verify(&self, key: &VerifyingKey) -> Result<(), Refusal> {
        let payload = payload::post_transaction(&self.signed.stamp);
        key.verify(&payload, &self.signed.signature_hex)
    }
}

/// Values of `transactionStatus`.
const COMPLETED: &str = "COMPLETED";
const FAILED: &str = "FAILED";
