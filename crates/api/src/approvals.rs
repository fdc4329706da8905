//! What a platform is asked about an incoming payment, and what it answers (contract 7.3).

use domain::platform::{COUNTERPARTY_FIELDS, CounterpartyField};
use domain::transaction::Facts;
use serde::Serialize;
use serde_json::Value;
use service::approvals::Said;

use crate::config::CounterpartyFieldBody;
use crate::transactions::TransactionBody;
use crate::validate::FACT_MAX;

/// The payment, and what the platform is to say about its customer who is paid.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuestionBody {
    #[serde(flatten)]
    transaction: TransactionBody,
    requested_receiver_customer_info_fields: Vec<CounterpartyFieldBody>,
}

impl QuestionBody {
    /// The question about a payment.
    pub fn new(transaction: TransactionBody, asked: &[CounterpartyField]) -> Self {
        let requested_receiver_customer_info_fields = asked.iter().map(Into::into).collect();
        Self { transaction, requested_receiver_customer_info_fields }
    }
}

/// Reads the body of an answer. Nobody can be told that it is wrong, so whatever cannot be read is
/// as if it were not said: what was mandatory is then missing.
pub fn read(body: &[u8]) -> Said {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let known = |name: &str| COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name);
    let fact = |(name, value): (&String, &Value)| {
        let value = value.as_str().filter(|value| value.chars().count() <= FACT_MAX)?;
        Some((known(name)?, value.to_owned()))
    };
    let receiver = body["receiverCustomerInfo"].as_object().into_iter().flatten();
    let required = body["requiredFields"].as_array().into_iter().flatten();
    Said {
        receiver: receiver.filter_map(fact).collect::<Facts>(),
        reason: body["reason"].as_str().map(str::to_owned),
        required_fields: required.filter_map(|name| known(name.as_str()?)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, receiver: &[(&'static str, &str)], reason: Option<&str>, fields: &[&str]) {
        let said = read(body.as_bytes());
        let facts: Facts =
            receiver.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        assert_eq!((said.receiver, said.reason.as_deref()), (facts, reason), "{body}");
        assert_eq!(said.required_fields, fields, "{body}");
    }

    #[test]
    fn what_can_be_read_is_said() {
        check(r#"{"receiverCustomerInfo":{"TAX_ID":"1"}}"#, &[("TAX_ID", "1")], None, &[]);
        check(r#"{"code":"NO","reason":"RESTRICTED"}"#, &[], Some("RESTRICTED"), &[]);
        check(r#"{"requiredFields":["TAX_ID","SHOE_SIZE",7]}"#, &[], None, &["TAX_ID"]);
        let mixed = r#"{"receiverCustomerInfo":{"SHOE_SIZE":"38","TAX_ID":7,"EMAIL":"a@b"}}"#;
        check(mixed, &[("EMAIL", "a@b")], None, &[]);
        let long = format!(r#"{{"receiverCustomerInfo":{{"EMAIL":"{}"}}}}"#, "x".repeat(501));
        check(&long, &[], None, &[]);
        for nothing in ["", "{", "[]", "7", "null", r#"{"receiverCustomerInfo":[]}"#, "\u{0}"] {
            check(nothing, &[], None, &[]);
        }
        assert_eq!(read(&[0xff, 0xfe]), Said::default());
    }
}
