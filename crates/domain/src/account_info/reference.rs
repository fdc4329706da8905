//! The table of account types as a page for people.

use std::fmt::Write as _;

use super::beneficiary::beneficiary_fields;
use super::field::{Field, Presence, Shape};
use super::table::{ALIASES, AccountType, Holder, types};
use crate::address::Address;

/// The table as a reference in Markdown, one section for each type.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Account types\n\n\
         Written from the table that also validates requests (`crates/domain/src/account_info/table.rs`).\n\n\
         `accountType` selects the type. `paymentRails` may be left out and then means all rails of \
         the type. A bank account needs a [beneficiary](#beneficiary), a wallet none. Fields that are \
         not listed here are kept and returned if they are strings or lists of strings. Check digits \
         are verified on live platforms only.\n",
    );
    for kind in types() {
        section(&mut page, kind);
    }
    page.push_str("\n## Beneficiary\n\nAn `INDIVIDUAL` needs `fullName` and what its account type adds; a `BUSINESS` needs `legalName`.\n\n");
    table(&mut page, beneficiary_fields());
    page.push_str("\n### Address\n\n`address` of a beneficiary may be left out.\n\n");
    table(&mut page, Address::fields());
    page.push_str("\n## Older names\n\nAccepted in requests, never returned.\n\n| Older name | Account type |\n|---|---|\n");
    for (alias, name) in ALIASES {
        line(&mut page, format_args!("| `{alias}` | `{name}` |"));
    }
    page
}

fn section(page: &mut String, kind: &AccountType) {
    let rails: Vec<&str> = kind.rails.iter().map(|rail| rail.name()).collect();
    line(page, format_args!("\n## {}\n\n{}.\n", kind.name, kind.title));
    line(page, format_args!("- Currency: {}", quoted(kind.currencies)));
    let elsewhere = if kind.field("iban").is_some() {
        "; `BANK_TRANSFER` instead where the IBAN is of a country outside of SEPA"
    } else {
        ""
    };
    line(page, format_args!("- Rails: {}{elsewhere}", quoted(&rails)));
    if !kind.networks.is_empty() {
        let need = if kind.needs_network { "required" } else { "may be left out" };
        line(page, format_args!("- `cryptoNetwork`: {need}; {}", quoted(kind.networks)));
    }
    match kind.holder {
        Holder::Beneficiary { individual_needs } => line(
            page,
            format_args!("- Beneficiary: required; a person needs {}", quoted(individual_needs)),
        ),
        Holder::Wallet => line(page, format_args!("- Beneficiary: none needed")),
    }
    let pulled = if kind.can_pull { "yes" } else { "no" };
    line(page, format_args!("- Money can be pulled from it: {pulled}\n"));
    table(page, kind.fields);
    let names = |wanted: fn(&Field) -> bool| {
        let fields = kind.instruction_fields.iter().filter(|field| wanted(field));
        quoted(&fields.map(|field| field.name).collect::<Vec<_>>())
    };
    let always = names(|field| field.presence == Presence::Required);
    let sometimes = names(|field| field.presence != Presence::Required);
    let sometimes =
        if sometimes.is_empty() { String::new() } else { format!(", sometimes {sometimes}") };
    line(page, format_args!("\nPayment instructions of this type carry {always}{sometimes}."));
}

fn table(page: &mut String, fields: &[Field]) {
    page.push_str(
        "| Field | Required | Value | Length | Example | Meaning |\n|---|---|---|---|---|---|\n",
    );
    for field in fields {
        let required = match field.presence {
            Presence::Required => "yes",
            Presence::Optional => "no",
            Presence::OneOf(_) => "exactly one of these",
        };
        let value = match field.shape {
            Shape::Date => "date, `YYYY-MM-DD`".to_owned(),
            Shape::Country => "country code".to_owned(),
            Shape::Text | Shape::TextList if !field.values.is_empty() => quoted(field.values),
            Shape::Text | Shape::TextList if field.pattern.is_empty() => "any text".to_owned(),
            Shape::Text => format!("`{}`", field.pattern),
            Shape::TextList => format!("list of `{}`", field.pattern),
        };
        let value = match field.check {
            Some(check) => format!("{value}; {}", check.name()),
            None => value,
        };
        let length = if !field.values.is_empty() {
            String::new()
        } else if field.min_length == field.max_length {
            field.min_length.to_string()
        } else {
            format!("{}–{}", field.min_length, field.max_length)
        };
        let (name, example, meaning) = (field.name, field.example, field.description);
        // A vertical bar would end the cell, also inside of code.
        let value = value.replace('|', "\\|");
        line(
            page,
            format_args!(
                "| `{name}` | {required} | {value} | {length} | `{example}` | {meaning} |"
            ),
        );
    }
}

fn quoted(texts: &[&str]) -> String {
    texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ")
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(page, "{text}").expect("writing to a string cannot fail");
}
