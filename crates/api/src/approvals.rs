//! Approval requests about incoming payments, and their answers (contract 7.3).

use domain::platform::{COUNTERPARTY_FIELDS, CounterpartyField};
use domain::transaction::Facts;
use serde::Serialize;
use serde_json::Value;
use service::presenter::ApprovalAnswer;

use crate::config::CounterpartyFieldBody;
use crate::transactions::TransactionBody;
use crate::validate::FACT_MAX;

/// The payment, and what the platform is to say about its customer who is paid.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequestBody {
    #[serde(flatten)]
    transaction: TransactionBody,
    requested_receiver_customer_info_fields: Vec<CounterpartyFieldBody>,
}

impl ApprovalRequestBody {
    /// The approval request about a payment.
    pub fn new(transaction: TransactionBody, asked: &[CounterpartyField]) -> Self {
        let requested_receiver_customer_info_fields = asked.iter().map(Into::into).collect();
        Self { transaction, requested_receiver_customer_info_fields }
    }
}

/// Reads the body of an answer: nothing, or a JSON object in which `receiverCustomerInfo` is an
/// object of texts. No answer goes back, so parts of another form count as left out.
pub(crate) fn read(body: &[u8]) -> ApprovalAnswer {
    let is_empty = body.trim_ascii().is_empty();
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let known = |name: &str| COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name);
    let is_fact = |value: &Value| match value.as_str() {
        Some(text) => text.chars().count() <= FACT_MAX && !text.chars().any(char::is_control),
        None => value.is_null(),
    };
    let fact = |(name, value): (&String, &Value)| {
        let value = value.as_str().filter(|_| is_fact(value))?;
        Some((known(name)?, value.to_owned()))
    };
    let info = &body["receiverCustomerInfo"];
    let has_shape = body.is_object()
        && (info.is_null() || info.as_object().is_some_and(|info| info.values().all(is_fact)));
    let receiver = info.as_object().into_iter().flatten();
    let required = body["requiredFields"].as_array().into_iter().flatten();
    ApprovalAnswer {
        has_shape: is_empty || has_shape,
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
        assert_eq!(read(&[0xff, 0xfe]), ApprovalAnswer::default());
    }

    #[test]
    fn an_answer_is_empty_or_an_object_of_texts() {
        for whole in [
            "",
            " \r\n",
            "{}",
            r#"{"receiverCustomerInfo":null}"#,
            r#"{"receiverCustomerInfo":{}}"#,
            r#"{"receiverCustomerInfo":{"TAX_ID":"1","SHOE_SIZE":"38","EMAIL":null}}"#,
            r#"{"message":"fine\n","n":1.5}"#,
        ] {
            assert!(read(whole.as_bytes()).has_shape, "{whole}");
        }
        let long = format!(r#"{{"receiverCustomerInfo":{{"EMAIL":"{}"}}}}"#, "x".repeat(501));
        for other in [
            "<!doctype html><p>OK",
            "OK",
            "{",
            "{}{}",
            "[]",
            "[{}]",
            "null",
            "true",
            "0",
            r#""{}""#,
            r#"{"receiverCustomerInfo":[]}"#,
            r#"{"receiverCustomerInfo":"TAX_ID"}"#,
            r#"{"receiverCustomerInfo":{"TAX_ID":7}}"#,
            r#"{"receiverCustomerInfo":{"SHOE_SIZE":{}}}"#,
            r#"{"receiverCustomerInfo":{"TAX_ID":"a\u0000b"}}"#,
            long.as_str(),
        ] {
            assert!(!read(other.as_bytes()).has_shape, "{other}");
        }
        assert!(!read(&[0xff, 0xfe]).has_shape);
    }
}
