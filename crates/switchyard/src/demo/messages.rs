//! The messages between two institutions, shown as they are sent.

use std::sync::Arc;

use adapters::outbound::GuardedClient;
use ports::outbound::{Method, Outbound, OutboundAnswer, OutboundFailure, OutboundRequest, Reach};
use ports::rail::Pending;
use serde_json::Value;

use crate::command::print;

/// Letters and digits in a row that are shown in full. Signatures, keys, tokens and invoices are
/// longer, names and ids are not.
const ROW_MAX: usize = 40;

/// Letters and digits that are left of a longer row.
const ROW_SHOWN: usize = 16;

/// The kinds of messages: a part of the path, and the name.
const KINDS: [(&str, &str); 5] = [
    ("/.well-known/lnurlpubkey", "key document"),
    ("/.well-known/lnurlp/", "lookup"),
    (service::uma::PAY_PATH, "pay request"),
    (service::uma::settle::SETTLE_PATH, "settlement"),
    (service::uma::post_transaction::POST_TRANSACTION_PATH, "post-transaction callback"),
];

/// A way out that shows every message to the other institution.
pub(super) struct Shown {
    inner: GuardedClient,
    from: &'static str,
    to: &'static str,
}

impl Shown {
    /// The way out of the institution `from`, which knows `to` alone.
    pub(super) fn new(from: &'static str, to: &'static str) -> Arc<Self> {
        Arc::new(Self { inner: GuardedClient::default(), from, to })
    }

    async fn exchange(&self, request: OutboundRequest) -> Result<OutboundAnswer, OutboundFailure> {
        let Some(kind) = kind(&request.url) else { return self.inner.send(request).await };
        show(&asked((self.from, self.to), kind, &request));
        let answer = self.inner.send(request).await;
        show(&answered((self.from, self.to), kind, &answer));
        answer
    }
}

impl Outbound for Shown {
    fn checked(&self, url: &str, reach: Reach) -> Result<String, OutboundFailure> {
        self.inner.checked(url, reach)
    }

    fn send(
        &self,
        request: OutboundRequest,
    ) -> Pending<'_, Result<OutboundAnswer, OutboundFailure>> {
        Box::pin(self.exchange(request))
    }
}

/// The name of a message by where it goes; nothing for what is no message of UMA.
fn kind(url: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|(path, _)| url.contains(path)).map(|(_, kind)| kind)
}

fn asked((from, to): (&str, &str), kind: &str, request: &OutboundRequest) -> String {
    let method = match request.method {
        Method::Get => "GET",
        Method::Post => "POST",
    };
    let url = shortened(&request.url);
    format!("\n    {from} to {to}: {kind}\n      {method} {url}\n{}", body(&request.body))
}

fn answered(
    (from, to): (&str, &str),
    kind: &str,
    answer: &Result<OutboundAnswer, OutboundFailure>,
) -> String {
    match answer {
        Ok(OutboundAnswer { status, body: bytes, .. }) => {
            format!("\n    {to} to {from}: answer to the {kind}\n      {status}\n{}", body(bytes))
        }
        Err(failure) => format!("\n    {to} to {from}: no answer to the {kind}: {failure}\n"),
    }
}

/// A body: JSON with a line for each member of its first two levels, or the text as it is.
fn body(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return String::new();
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => {
            members.iter().map(|(name, value)| member(name, value)).collect()
        }
        Ok(_) | Err(_) => format!("      {}\n", shortened(&String::from_utf8_lossy(bytes))),
    }
}

fn member(name: &str, value: &Value) -> String {
    let line = |text: &str| format!("        {}\n", shortened(text));
    let inner: String = match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| line(&format!("{name}: {value}"))).collect()
        }
        Value::Array(rows) => rows.iter().map(|row| line(&row.to_string())).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => String::new(),
    };
    if inner.is_empty() {
        return format!("      {name}: {}\n", shortened(&value.to_string()));
    }
    format!("      {name}:\n{inner}")
}

/// A text in which long rows of letters and digits are cut, with how long they were.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|next: char| !next.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (row, after) = rest.split_at(end);
        if row.len() > ROW_MAX {
            short += &format!("{}…({})", &row[..ROW_SHOWN], row.len());
        } else {
            short += row;
        }
        let mut others = after.chars();
        short.extend(others.next());
        rest = others.as_str();
    }
    short
}

fn show(text: &str) {
    // The story prints too, and ends when it cannot.
    if let Err(error) = print(text) {
        tracing::warn!(%error, "a message could not be shown");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_cut() {
        let row = "ab".repeat(21);
        assert_eq!(shortened(&format!("a={row}&b=1")), "a=abababababababab…(42)&b=1");
        assert_eq!(shortened(&"é".repeat(50)), "é".repeat(50));
        let id = "0199dcb0-ac54-7000-9ab5-9d06245ac05a";
        assert_eq!(shortened(id), id);
    }

    #[test]
    fn messages_are_known_by_their_path() {
        let kind = |path: &str| kind(&format!("http://localhost:1{path}"));
        assert_eq!(kind("/.well-known/lnurlpubkey"), Some("key document"));
        assert_eq!(kind("/.well-known/lnurlp/$bo?nonce=1"), Some("lookup"));
        assert_eq!(kind("/uma/pay/ab"), Some("pay request"));
        assert_eq!(kind("/uma/settle"), Some("settlement"));
        assert_eq!(kind("/hooks"), None);
    }

    #[test]
    fn a_body_has_a_line_for_each_member() {
        let json = br#"{"amount":"595.USD","list":[{"a":1},{"a":2}],"none":[],"of":{"b":true}}"#;
        let expected = [
            r#"      amount: "595.USD""#,
            "      list:",
            r#"        {"a":1}"#,
            r#"        {"a":2}"#,
            "      none: []",
            "      of:",
            "        b: true",
        ];
        assert_eq!(body(json).lines().collect::<Vec<_>>(), expected);
        assert_eq!(body(b"no JSON"), "      no JSON\n");
        assert_eq!(body(b""), "");
    }
}
