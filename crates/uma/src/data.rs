//! Data about payer and payee: the keys by which institutions ask for it and give it (UMAD-04 to
//! UMAD-06), and the names that our specification has for them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::json::Fields;

/// The key of the party's address, which is never a fact.
pub(crate) const IDENTIFIER: &str = "identifier";
/// The key of the compliance object, which is never a fact.
pub(crate) const COMPLIANCE: &str = "compliance";

/// Keys whose name in our specification does not follow from their spelling.
const NAMES: [(&str, &str); 2] = [("name", "FULL_NAME"), ("accountNumber", "ACCOUNT_IDENTIFIER")];

/// The specification's name of a key of the protocol: `birthDate` is `BIRTH_DATE`. Every key has
/// one; keys that are not known follow the same rule.
pub fn specification_name(key: &str) -> String {
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == key) {
        return (*name).to_owned();
    }
    let mut name = String::with_capacity(key.len());
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// The protocol's key of a name of the specification: the inverse of [`specification_name`].
pub fn protocol_key(name: &str) -> String {
    if let Some((key, _)) = NAMES.iter().find(|(_, known)| *known == name) {
        return (*key).to_owned();
    }
    let mut key = String::with_capacity(name.len());
    let mut begins_word = false;
    for letter in name.chars() {
        match letter {
            '_' => begins_word = true,
            _ if begins_word => {
                key.push(letter.to_ascii_uppercase());
                begins_word = false;
            }
            _ => key.push(letter.to_ascii_lowercase()),
        }
    }
    key
}

/// Data that one side asks of the other: by key, whether a payment without it is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands(pub BTreeMap<String, bool>);

impl Demands {
    /// The keys that are insisted on and not among the facts, in order. The address and the
    /// compliance object are no facts and not among them.
    pub fn missing_in<'a>(&'a self, facts: &Facts) -> Vec<&'a str> {
        let is_missing = |(key, mandatory): &(&String, &bool)| {
            **mandatory
                && ![IDENTIFIER, COMPLIANCE].contains(&key.as_str())
                && !facts.0.contains_key(*key)
        };
        self.0.iter().filter(is_missing).map(|(key, _)| key.as_str()).collect()
    }

    /// Reads `{"key": {"mandatory": true}}`. Without `mandatory`, a key is optional.
    pub(crate) fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let mut demands = BTreeMap::new();
        for key in fields.names() {
            let mandatory = fields.fields(key)?.optional_flag("mandatory")?;
            demands.insert(key.to_owned(), mandatory.unwrap_or(false));
        }
        Ok(Self(demands))
    }

    /// Writes what [`Self::read`] reads.
    pub(crate) fn write(&self) -> Value {
        let demand =
            |(key, mandatory): (&String, &bool)| (key.clone(), json!({ "mandatory": mandatory }));
        Value::Object(self.0.iter().map(demand).collect())
    }
}

/// The key whose value is an object of parts (UMAD-04).
const POSTAL_ADDRESS: &str = "postalAddress";

/// The parts of a postal address, in the order in which people write them in one line.
const ADDRESS_PARTS: [&str; 6] = ["line1", "line2", "city", "state", "postalCode", "country"];

/// A postal address in one line, if the value is an object.
fn address_line(raw: &RawValue) -> Option<String> {
    let parts: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).ok()?;
    let text = |name: &&str| serde_json::from_str::<String>(parts.get(*name)?.get()).ok();
    let shown = ADDRESS_PARTS.iter().filter_map(text).filter(|part| !part.trim().is_empty());
    Some(shown.collect::<Vec<_>>().join(", "))
}

/// A value that is no text: its JSON, without the spaces and line breaks of its writer.
fn json_text(raw: &RawValue) -> String {
    let compact = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    let is_nested = raw.get().starts_with(['{', '[']);
    let compact = compact(raw).filter(|_| is_nested).map(|value| value.to_string());
    compact.unwrap_or_else(|| raw.get().to_owned())
}

/// Data about a party by the protocol's keys. A postal address is kept in one line, any other value
/// that is no text as its JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts(pub BTreeMap<String, String>);

impl Facts {
    /// Reads all fields but the address and the compliance object.
    pub(crate) fn read(fields: &Fields<'_>) -> Self {
        let mut facts = BTreeMap::new();
        for key in fields.names().filter(|key| ![IDENTIFIER, COMPLIANCE].contains(key)) {
            let Some(raw) = fields.get(key) else { continue };
            let text = serde_json::from_str(raw.get()).ok();
            let line = || address_line(raw).filter(|_| key == POSTAL_ADDRESS);
            facts.insert(key.to_owned(), text.or_else(line).unwrap_or_else(|| json_text(raw)));
        }
        Self(facts)
    }

    /// Writes what [`Self::read`] reads.
    pub(crate) fn write(&self) -> Map<String, Value> {
        let is_fact = |key: &String| ![IDENTIFIER, COMPLIANCE].contains(&key.as_str());
        let facts = self.0.iter().filter(|(key, _)| is_fact(key));
        facts.map(|(key, text)| (key.clone(), text.as_str().into())).collect()
    }
}
