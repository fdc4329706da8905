//! External accounts: what a bank account or wallet elsewhere is described by (specification 2.9).
//!
//! One table, [`types`], says for every account type which fields it has and what they look like.
//! It is data because validation, the OpenAPI document and the reference for people all read it,
//! and so cannot contradict each other. An [`AccountInfo`] is a description that was held against
//! the table; check digits are a question of their own ([`crate::checks`]).
//!
//! Patterns say what an identifier looks like, not that it exists: wallet patterns accept any
//! letter and digit. The sandbox steers outcomes by the last three characters, and endings such as
//! `002` are in no wallet's alphabet.

mod beneficiary;
mod field;
mod plausible;
pub mod reference;
mod table;

use std::collections::BTreeMap;

pub use self::beneficiary::{Beneficiary, BeneficiaryDraft, BeneficiaryType, beneficiary_fields};
pub use self::field::{Field, FieldError, FieldValue, Presence, Role, Rule, Shape};
pub(crate) use self::field::{FieldReader, birth_error};
pub use self::table::{AccountType, Holder, has_rail, types};
use crate::currency::Currency;
use crate::rail::Rail;
use crate::text::ERASED;
use crate::time::Date;

/// How many fields that the table does not know an account may carry.
const EXTRA_FIELDS_MAX: usize = 32;
/// Longest name of such a field.
const EXTRA_NAME_MAX: usize = 64;
/// Longest value of such a field, and of each entry if it is a list.
const EXTRA_VALUE_MAX: u16 = 1024;
/// Parts of an account that are no fields of their own, so that no extra field can pose as one.
const RESERVED: [&str; 3] = ["accountType", "paymentRails", "beneficiary"];

/// A description of a bank account or wallet that fits its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountInfo {
    account_type: &'static AccountType,
    fields: BTreeMap<String, FieldValue>,
    rails: Vec<Rail>,
    beneficiary: Option<Beneficiary>,
}

impl AccountInfo {
    /// Checks a description and reports everything that is wrong with it.
    ///
    /// Without `rails` the account has all of its type. Fields that the table does not know are
    /// kept as they are, so that a client reads back what it wrote.
    pub fn new(
        account_type: &'static AccountType,
        fields: BTreeMap<String, FieldValue>,
        rails: Option<Vec<String>>,
        beneficiary: Option<BeneficiaryDraft>,
    ) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        check_fields(account_type, &fields, &mut errors);
        check_groups(account_type, &fields, &mut errors);
        check_extra_fields(account_type, &fields, &mut errors);
        plausible::check(account_type, &fields, &mut errors);
        let rails = read_rails(account_type, &fields, rails, &mut errors);
        let individual_needs = match account_type.holder {
            Holder::Beneficiary { individual_needs } => individual_needs,
            Holder::Wallet => &["fullName"],
        };
        if beneficiary.is_none() && !account_type.is_wallet() {
            refuse(&mut errors, "beneficiary", Rule::Required, "is required".into());
        }
        let beneficiary = beneficiary.and_then(|draft| {
            Beneficiary::read(&draft, individual_needs, "beneficiary", &mut errors)
        });
        if errors.is_empty() {
            Ok(Self { account_type, fields, rails, beneficiary })
        } else {
            Err(errors)
        }
    }

    /// A description that was checked when it was new. It is not checked again: rules may have
    /// become stricter, and what was stored must stay readable. `None` if it is none of ours.
    pub fn restore(
        account_type: &'static AccountType,
        fields: BTreeMap<String, FieldValue>,
        rails: &[String],
        beneficiary: Option<BeneficiaryDraft>,
    ) -> Option<Self> {
        let rails = rails.iter().map(|name| Rail::from_name(name)).collect::<Option<_>>()?;
        let beneficiary = match beneficiary {
            Some(draft) => Some(Beneficiary::restore(draft)?),
            None => None,
        };
        Some(Self { account_type, fields, rails, beneficiary })
    }

    /// The description once its holder is erased: a valid one of the same type and rails, with
    /// nothing but what every account of the type has, and nothing of that known.
    #[must_use]
    pub fn erased(&self) -> Self {
        let mut groups = Vec::new();
        let mut is_needed = |field: &&Field| match field.presence {
            Presence::Required => true,
            Presence::Optional => false,
            Presence::OneOf(group) => {
                let is_first = !groups.contains(&group);
                groups.push(group);
                is_first
            }
        };
        let needed: Vec<_> = self.account_type.fields.iter().filter(|it| is_needed(it)).collect();
        let rails: Vec<_> = self.rails.iter().map(|rail| rail.name().to_owned()).collect();
        let holder = BeneficiaryDraft {
            beneficiary_type: Some(BeneficiaryType::Business.name().to_owned()),
            legal_name: Some(ERASED.to_owned()),
            ..BeneficiaryDraft::default()
        };
        let holder = self.beneficiary.is_some().then_some(holder);
        let with = |value: fn(&Field) -> FieldValue| {
            let fields = needed.iter().map(|field| (field.name.to_owned(), value(field)));
            Self::new(self.account_type, fields.collect(), Some(rails.clone()), holder.clone())
        };
        // Of some types, one field says what another has to look like.
        let erased = with(Field::erased).or_else(|_| with(Field::example));
        erased.expect("the examples of the table are valid together")
    }

    /// The fields that are implausible on `today`, by the platform's clock.
    pub fn implausible(&self, today: Date) -> Vec<FieldError> {
        let beneficiary = self.beneficiary.as_ref();
        beneficiary.and_then(|it| it.implausible(today, "beneficiary")).into_iter().collect()
    }

    /// The account's type.
    pub fn account_type(&self) -> &'static AccountType {
        self.account_type
    }

    /// All fields, those that the table does not know among them, but for `accountType`,
    /// `paymentRails` and `beneficiary`.
    pub fn fields(&self) -> &BTreeMap<String, FieldValue> {
        &self.fields
    }

    /// The text of one field.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(FieldValue::as_text)
    }

    /// The rails that may be used; never empty.
    pub fn rails(&self) -> &[Rail] {
        &self.rails
    }

    /// The beneficiary; every bank account has one.
    pub fn beneficiary(&self) -> Option<&Beneficiary> {
        self.beneficiary.as_ref()
    }

    /// The account's own number or address.
    pub fn primary_identifier(&self) -> &str {
        self.account_type
            .fields
            .iter()
            .filter(|field| field.is_identifier())
            .find_map(|field| self.text(field.name))
            .expect("every type requires a primary identifier, which `new` has checked")
    }

    /// The last three characters of the primary identifier, by which the sandbox is steered. Of
    /// `user@domain` they are the last three of the user's part.
    pub fn magic_suffix(&self) -> Option<&str> {
        let identifier = self.primary_identifier();
        let user = identifier.rsplit_once('@').map_or(identifier, |(user, _)| user);
        user.char_indices().rev().nth(2).map(|(start, _)| &user[start..])
    }

    /// A text that two descriptions of one account share however they are spelled: type, currency
    /// and what tells accounts of the type apart, without separators and in small letters.
    pub fn fingerprint_text(&self, currency: Currency) -> String {
        let mut text = format!("{}\n{}", self.account_type.name, currency.code());
        for field in self.account_type.fields.iter().filter(|field| field.role != Role::Detail) {
            if let Some(value) = self.text(field.name) {
                // No value has control characters, so lines cannot be mistaken for one another.
                text.push('\n');
                text.push_str(field.name);
                text.push('=');
                text.push_str(&folded(field, value));
            }
        }
        text
    }
}

fn refuse(errors: &mut Vec<FieldError>, field: &str, rule: Rule, message: String) {
    errors.push(FieldError { field: field.to_owned(), rule, message });
}

/// Holds every field that the type knows against its limits.
fn check_fields(
    account_type: &AccountType,
    fields: &BTreeMap<String, FieldValue>,
    errors: &mut Vec<FieldError>,
) {
    for field in account_type.fields {
        match fields.get(field.name).map(|value| field.check_value(value)) {
            None if field.presence == Presence::Required => {
                refuse(errors, field.name, Rule::Required, "is required".into());
            }
            Some(Err((rule, message))) => refuse(errors, field.name, rule, message),
            None | Some(Ok(())) => {}
        }
    }
}

/// Asks of every group that exactly one of its fields is there.
fn check_groups(
    account_type: &AccountType,
    fields: &BTreeMap<String, FieldValue>,
    errors: &mut Vec<FieldError>,
) {
    let group_of = |field: &Field| match field.presence {
        Presence::OneOf(group) => Some(group),
        Presence::Required | Presence::Optional => None,
    };
    let mut groups: Vec<&str> = account_type.fields.iter().filter_map(group_of).collect();
    groups.dedup();
    for group in groups {
        let members = account_type.fields.iter().filter(|field| group_of(field) == Some(group));
        let names: Vec<&str> = members.map(|field| field.name).collect();
        let mut present = names.iter().filter(|name| fields.contains_key(**name));
        let message = format!("exactly one of {} is required", names.join(", "));
        match (present.next(), present.next()) {
            (None, _) => refuse(errors, names[0], Rule::Required, message),
            (Some(_), Some(second)) => refuse(errors, second, Rule::Other, message),
            (Some(_), None) => {}
        }
    }
}

/// Keeps fields that the type does not know within bounds.
fn check_extra_fields(
    account_type: &AccountType,
    fields: &BTreeMap<String, FieldValue>,
    errors: &mut Vec<FieldError>,
) {
    let mut extra = fields.iter().filter(|(name, _)| account_type.field(name).is_none());
    for (name, value) in extra.by_ref().take(EXTRA_FIELDS_MAX) {
        let any = Field::text("", "", "").lengths(0, EXTRA_VALUE_MAX);
        let any = if value.as_text().is_some() { any } else { any.list() };
        if name.chars().count() > EXTRA_NAME_MAX {
            let shown: String = name.chars().take(EXTRA_NAME_MAX).collect();
            let message = format!("names of fields have at most {EXTRA_NAME_MAX} characters");
            refuse(errors, &shown, Rule::Other, message);
        } else if RESERVED.contains(&name.as_str()) {
            refuse(errors, name, Rule::Other, "is not a field of its own".into());
        } else if let Err((rule, message)) = any.check_value(value) {
            refuse(errors, name, rule, message);
        }
    }
    if let Some((name, _)) = extra.next() {
        let shown: String = name.chars().take(EXTRA_NAME_MAX).collect();
        let message = format!("at most {EXTRA_FIELDS_MAX} fields of your own are kept");
        refuse(errors, &shown, Rule::Other, message);
    }
}

/// The rails that were chosen, each once, or all that reach the account.
fn read_rails(
    account_type: &AccountType,
    fields: &BTreeMap<String, FieldValue>,
    chosen: Option<Vec<String>>,
    errors: &mut Vec<FieldError>,
) -> Vec<Rail> {
    let reach = plausible::rails(account_type, fields);
    let Some(chosen) = chosen else { return reach.to_vec() };
    if chosen.is_empty() {
        let message = "must name a rail, or be left out for all of them";
        refuse(errors, "paymentRails", Rule::MinLength(1), message.into());
    }
    let mut rails = Vec::new();
    for name in chosen {
        match reach.iter().copied().find(|rail| rail.name() == name) {
            Some(rail) if rails.contains(&rail) => {}
            Some(rail) => rails.push(rail),
            None => {
                let names: Vec<_> = reach.iter().map(|rail| rail.name()).collect();
                let where_it_is = if reach == account_type.rails {
                    ""
                } else {
                    " in the country of its IBAN, which SEPA does not reach"
                };
                let name = account_type.name;
                let message = format!("must be of {} for {name}{where_it_is}", names.join(", "));
                refuse(errors, "paymentRails", Rule::Enum(names), message);
                break;
            }
        }
    }
    rails
}

/// One spelling of an identifier. In `user@domain` dots and hyphens are part of the name.
fn folded(field: &Field, value: &str) -> String {
    let separators: &[char] = if value.contains('@') { &[' '] } else { &[' ', '-', '.', '/'] };
    let text: String = value.chars().filter(|character| !separators.contains(character)).collect();
    if field.case_matters { text } else { text.to_lowercase() }
}

#[cfg(test)]
mod tests;
