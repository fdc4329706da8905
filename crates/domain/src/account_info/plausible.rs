//! Rules across the fields of one account, and those that no regular expression says.
//!
//! They hold in the sandbox too: none of them depends on the last three characters of a primary
//! identifier, by which the sandbox is steered.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::AccountInfo;
use super::field::{FieldError, FieldValue, Rule};
use super::table::{AccountType, OUTSIDE_SEPA};
use crate::checks;
use crate::country::Country;
use crate::rail::Rail;
use crate::uma_address::UmaDomain;

/// Characters of a BIC without its branch.
const BIC_OF_BANK: usize = 8;
/// The branch of a BIC that means the head office, as leaving it out does.
const HEAD_OFFICE: &str = "XXX";

impl AccountInfo {
    /// The fields whose check digits are wrong. Patterns were checked when the value was made.
    pub fn check_digits(&self) -> Vec<FieldError> {
        let fields = self.account_type().fields.iter();
        let key_type = self.text("pixKeyType");
        fields
            .filter_map(|field| Some((field, field.check?, self.text(field.name)?)))
            .filter(|(_, check, text)| !check.holds(text, key_type))
            .map(|(field, check, _)| FieldError {
                field: field.name.to_owned(),
                rule: Rule::Checksum,
                message: check.refusal(),
            })
            .collect()
    }
}

/// Reports everything about an account that fits the patterns of its type and still cannot be.
pub(super) fn check(
    account_type: &AccountType,
    fields: &BTreeMap<String, FieldValue>,
    errors: &mut Vec<FieldError>,
) {
    // A value that is not right by itself was reported already.
    let is_known = |name: &str| account_type.field(name).is_some();
    let is_wrong = |name: &str| errors.iter().any(|error| error.field == name);
    let text = |name: &str| {
        fields.get(name).filter(|_| is_known(name) && !is_wrong(name)).and_then(FieldValue::as_text)
    };
    let mut found: Vec<(&str, Rule, String)> = Vec::new();
    if let Some(iban) = text("iban")
        && !checks::is_iban_shaped(iban)
    {
        let message = "is not an IBAN of its country: check its length and characters; check \
                       digits are 02 to 98";
        found.push(("iban", Rule::Format("iban"), message.to_owned()));
    }
    for name in ["swiftCode", "swiftBic"] {
        if text(name).is_some_and(|bic| !names_a_country(bic)) {
            let message = "names no country in its fifth and sixth letter";
            found.push((name, Rule::Format("bic"), message.to_owned()));
        }
    }
    if let (Some(code), Some(older)) = (text("swiftCode"), text("swiftBic"))
        && names_a_country(code)
        && names_a_country(older)
        && bank(code) != bank(older)
    {
        let message = "contradicts swiftCode; it is the older name of the same field, so give one";
        found.push(("swiftBic", Rule::Other, message.to_owned()));
    }
    if let Some(address) = text("lightningAddress")
        && address.rsplit_once('@').is_none_or(|(_, host)| UmaDomain::parse(host).is_err())
    {
        let message = "must end in a domain name, with a port up to 65535 where it has one";
        found.push(("lightningAddress", Rule::Other, message.to_owned()));
    }
    if let Some(kind) = text("pixKeyType") {
        match PIX_KEYS.iter().find(|(known, _)| known.eq_ignore_ascii_case(kind)) {
            Some((kind, _)) if text("pixKey").is_some_and(|key| !is_pix_key(kind, key)) => {
                found.push(("pixKey", Rule::Other, format!("is no PIX key of the type {kind}")));
            }
            Some(_) => {}
            None => {
                let message = "must be CPF, CNPJ, EMAIL, PHONE or RANDOM".to_owned();
                found.push(("pixKeyType", Rule::Other, message));
            }
        }
    }
    if let (Some(region), Some(phone)) = (text("region"), text("phoneNumber"))
        && XOF_PREFIXES.iter().any(|(code, prefix)| *code == region && !phone.starts_with(prefix))
    {
        let message = "is not the country of phoneNumber; leave it out or correct it".to_owned();
        found.push(("region", Rule::Other, message));
    }
    let more = found.into_iter().map(|(field, rule, message)| FieldError {
        field: field.to_owned(),
        rule,
        message,
    });
    errors.extend(more.collect::<Vec<_>>());
}

/// The bank and branch that a BIC names.
fn bank(bic: &str) -> &str {
    if bic.len() > BIC_OF_BANK { bic.strip_suffix(HEAD_OFFICE).unwrap_or(bic) } else { bic }
}

/// Whether the country in a BIC exists. Kosovo has BICs and no code of ISO 3166-1.
fn names_a_country(bic: &str) -> bool {
    bic.get(4..6).is_some_and(|code| code == "XK" || Country::parse(code).is_ok())
}

/// Calling codes of the countries of an account in West African francs.
const XOF_PREFIXES: [(&str, &str); 4] =
    [("BJ", "+229"), ("CI", "+225"), ("SN", "+221"), ("TG", "+228")];

/// Kinds of PIX keys (Banco Central do Brasil, DICT) with what each looks like. Tax numbers may
/// have their punctuation; EVP is the central bank's name of a random key.
static PIX_KEYS: [(&str, &str); 6] = [
    ("CPF", r"^([0-9]{11}|[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2})$"),
    (
        "CNPJ",
        r"^([0-9A-Z]{12}[0-9]{2}|[0-9A-Z]{2}\.[0-9A-Z]{3}\.[0-9A-Z]{3}/[0-9A-Z]{4}-[0-9]{2})$",
    ),
    ("EMAIL", r"^[^@\s]{1,64}@[^@\s.]+(\.[^@\s.]+)+$"),
    ("PHONE", r"^\+55[1-9][0-9]{9,10}$"),
    ("RANDOM", RANDOM_KEY),
    ("EVP", RANDOM_KEY),
];

const RANDOM_KEY: &str = "^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32})$";

fn is_pix_key(kind: &str, key: &str) -> bool {
    static COMPILED: LazyLock<BTreeMap<&'static str, Regex>> = LazyLock::new(|| {
        PIX_KEYS.iter().filter_map(|(kind, key)| Some((*kind, Regex::new(key).ok()?))).collect()
    });
    COMPILED.get(kind).is_some_and(|regex| regex.is_match(key))
}

/// Countries and territories that the SEPA schemes reach, by the codes of their IBANs (European
/// Payments Council, EPC409-09, October 2025).
const SEPA: [&str; 42] = [
    "AD", "AL", "AT", "BE", "BG", "CH", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GB", "GI",
    "GR", "HR", "HU", "IE", "IS", "IT", "LI", "LT", "LU", "LV", "MC", "MD", "ME", "MK", "MT", "NL",
    "NO", "PL", "PT", "RO", "RS", "SE", "SI", "SK", "SM", "VA",
];

/// The rails that reach an account: those of its type, unless it is at a bank outside of SEPA.
pub(super) fn rails(
    account_type: &AccountType,
    fields: &BTreeMap<String, FieldValue>,
) -> &'static [Rail] {
    let iban = account_type.field("iban").and_then(|_| fields.get("iban")?.as_text());
    let country = iban.and_then(|iban| iban.get(..2));
    match country {
        Some(country) if !SEPA.contains(&country) => OUTSIDE_SEPA,
        Some(_) | None => account_type.rails,
    }
}
