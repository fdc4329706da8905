//! The shape of a field, and the errors of its value.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use regex::Regex;

use crate::checks::Check;
use crate::country::Country;
use crate::text::{ERASED, readable};
use crate::time::Date;

/// Most entries of a list.
const LIST_MAX: usize = 32;

/// One field: its limits and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The kind of its value.
    pub shape: Shape,
    /// Whether it must be there.
    pub presence: Presence,
    /// A regular expression that the whole text fulfils, in the subset that ECMA-262 and Rust
    /// share; empty when any text will do. For lists it is about each entry.
    pub pattern: &'static str,
    /// Fewest characters, of each entry if it is a list.
    pub min_length: u16,
    /// Most characters, of each entry if it is a list.
    pub max_length: u16,
    /// The only texts it may have; empty when there are others.
    pub values: &'static [&'static str],
    /// Whether it tells this account from others.
    pub role: Role,
    /// Whether capitals and small letters are different characters in it.
    pub case_matters: bool,
    /// Check digits that a live platform has verified.
    pub check: Option<Check>,
    /// Its description, for people.
    pub description: &'static str,
    /// A value that passes the pattern and the check digits.
    pub example: &'static str,
}

/// The kind of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A text.
    Text,
    /// A list of texts.
    TextList,
    /// A calendar date, `YYYY-MM-DD`.
    Date,
    /// A country, ISO 3166-1 alpha-2.
    Country,
}

/// Whether a field must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It must.
    Required,
    /// It may.
    Optional,
    /// Exactly one field of the group with this name must.
    OneOf(&'static str),
}

/// Whether a field tells an account from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The account's own number or address. Its last three characters steer the sandbox.
    Primary,
    /// Needed beside the primary one, such as the bank's code.
    Part,
    /// Says nothing about which account it is.
    Detail,
}

impl Field {
    /// A required text of 1 to 255 characters.
    pub(crate) const fn text(
        name: &'static str,
        description: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            name,
            shape: Shape::Text,
            presence: Presence::Required,
            pattern: "",
            min_length: 1,
            max_length: 255,
            values: &[],
            role: Role::Detail,
            case_matters: false,
            check: None,
            description,
            example,
        }
    }

    /// A required country.
    pub(crate) const fn country(
        name: &'static str,
        description: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            shape: Shape::Country,
            ..Self::text(name, description, example).pattern("^[A-Z]{2}$", 2, 2)
        }
    }

    pub(crate) const fn lengths(self, min_length: u16, max_length: u16) -> Self {
        Self { min_length, max_length, ..self }
    }

    pub(crate) const fn optional(self) -> Self {
        Self { presence: Presence::Optional, ..self }
    }

    pub(super) const fn pattern(
        self,
        pattern: &'static str,
        min_length: u16,
        max_length: u16,
    ) -> Self {
        Self { pattern, min_length, max_length, ..self }
    }

    pub(super) const fn values(self, values: &'static [&'static str]) -> Self {
        Self { values, ..self }
    }

    pub(super) const fn one_of(self, group: &'static str) -> Self {
        Self { presence: Presence::OneOf(group), ..self }
    }

    pub(super) const fn list(self) -> Self {
        Self { shape: Shape::TextList, ..self }
    }

    pub(super) const fn date(self) -> Self {
        Self { shape: Shape::Date, ..self }
    }

    pub(super) const fn primary(self) -> Self {
        Self { role: Role::Primary, ..self }
    }

    pub(super) const fn part(self) -> Self {
        Self { role: Role::Part, ..self }
    }

    pub(super) const fn case_matters(self) -> Self {
        Self { case_matters: true, ..self }
    }

    pub(super) const fn checked(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Whether this is the primary identifier.
    pub const fn is_identifier(&self) -> bool {
        matches!(self.role, Role::Primary)
    }

    /// Whether it is a name or another text without a form, of which people must see something.
    const fn is_read_by_people(&self) -> bool {
        self.pattern.is_empty() && self.values.is_empty() && self.min_length > 0
    }

    /// Holds one text against the field. Lengths come first, so that no pattern meets a text of
    /// any size.
    fn check(&self, text: &str) -> Result<(), (Rule, String)> {
        match self.shape {
            Shape::Date => {
                return Date::parse(text)
                    .map(|_| ())
                    .map_err(|_| (Rule::Format("date"), "must be a date as YYYY-MM-DD".into()));
            }
            Shape::Country => {
                return Country::parse(text).map(|_| ()).map_err(|_| {
                    let message = "must be an ISO 3166-1 alpha-2 country code such as US";
                    (Rule::Format("iso-3166-1-alpha-2"), message.into())
                });
            }
            Shape::Text | Shape::TextList => {}
        }
        let most = usize::from(self.max_length);
        let length = text.chars().take(most + 1).count();
        if length < usize::from(self.min_length) {
            let message = format!("must have at least {} characters", self.min_length);
            return Err((Rule::MinLength(self.min_length), message));
        }
        if length > most {
            let message = format!("must have at most {most} characters");
            return Err((Rule::MaxLength(self.max_length), message));
        }
        if text.chars().any(char::is_control) {
            return Err((Rule::Other, "must not have control characters".into()));
        }
        if self.is_read_by_people()
            && let Err(error) = readable(text)
        {
            return Err((Rule::Other, error.to_string()));
        }
        if !self.values.is_empty() && !self.values.contains(&text) {
            let message = format!("must be one of {}", self.values.join(", "));
            return Err((Rule::Enum(self.values.to_vec()), message));
        }
        if !matches(self.pattern, text) {
            let message = format!("must match {}, for example {}", self.pattern, self.example);
            return Err((Rule::Pattern(self.pattern), message));
        }
        Ok(())
    }

    pub(super) fn check_value(&self, value: &FieldValue) -> Result<(), (Rule, String)> {
        match (self.shape, value) {
            (Shape::TextList, FieldValue::List(entries)) => {
                if entries.len() > LIST_MAX {
                    return Err((Rule::Other, format!("must have at most {LIST_MAX} entries")));
                }
                entries.iter().try_for_each(|entry| self.check(entry))
            }
            (Shape::TextList, FieldValue::Text(_)) => {
                Err((Rule::Type("array"), "must be a list of strings".into()))
            }
            (_, FieldValue::List(_)) => Err((Rule::Type("string"), "must be a string".into())),
            (_, FieldValue::Text(text)) => self.check(text),
        }
    }
}

/// Whether the whole text fulfils a pattern of the tables; each is compiled once.
fn matches(pattern: &'static str, text: &str) -> bool {
    static COMPILED: Mutex<BTreeMap<&str, Option<Regex>>> = Mutex::new(BTreeMap::new());
    if pattern.is_empty() {
        return true;
    }
    let regex = {
        // A panic leaves the map as it was.
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.entry(pattern).or_insert_with(|| Regex::new(pattern).ok()).clone()
    };
    regex.is_some_and(|regex| regex.is_match(text))
}

/// The value of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// A text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
}

impl Field {
    /// Its example as a value.
    pub(super) fn example(&self) -> FieldValue {
        self.value(self.example.to_owned())
    }

    /// Its value in an account whose holder was erased: a word where any text will do, else the
    /// example, with zeros for its digits if that is a value.
    pub(super) fn erased(&self) -> FieldValue {
        let zeros = |digit: char| if digit.is_ascii_digit() { '0' } else { digit };
        let values = [ERASED.to_owned(), self.example.chars().map(zeros).collect()];
        let mut values = values.into_iter().map(|text| self.value(text));
        values.find(|value| self.check_value(value).is_ok()).unwrap_or_else(|| self.example())
    }

    fn value(&self, text: String) -> FieldValue {
        match self.shape {
            Shape::TextList => FieldValue::List(vec![text]),
            Shape::Text | Shape::Date | Shape::Country => FieldValue::Text(text),
        }
    }
}

impl FieldValue {
    /// The text, unless this is a list.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::List(_) => None,
        }
    }
}

impl From<String> for FieldValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// One thing that is wrong with what a client wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Where, as a path with dots.
    pub field: String,
    /// The rule that was broken.
    pub rule: Rule,
    /// The remedy. Never repeats the value, which may be a customer's.
    pub message: String,
}

/// A rule that a field can break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// It must be there.
    Required,
    /// It has another JSON type.
    Type(&'static str),
    /// It must match this pattern.
    Pattern(&'static str),
    /// It has fewer characters, or entries.
    MinLength(u16),
    /// It has more characters.
    MaxLength(u16),
    /// It must be one of these.
    Enum(Vec<&'static str>),
    /// It must have the format of this name.
    Format(&'static str),
    /// Its check digits do not fit.
    Checksum,
    /// The text of the message.
    Other,
}

/// Reads the fields of one object and collects what is wrong with all of them.
pub(crate) struct FieldReader<'a> {
    fields: &'static [Field],
    path: &'a str,
    /// Fields that are needed although the table has them as optional.
    pub(crate) needs: &'static [&'static str],
    errors: &'a mut Vec<FieldError>,
    errors_before: usize,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(
        fields: &'static [Field],
        path: &'a str,
        errors: &'a mut Vec<FieldError>,
    ) -> Self {
        let errors_before = errors.len();
        Self { fields, path, needs: &[], errors, errors_before }
    }

    /// Whether nothing was wrong so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.errors.len() == self.errors_before
    }

    /// The text of a field, if it is there and right.
    pub(crate) fn text(&mut self, name: &'static str, text: Option<&str>) -> Option<String> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        let needed = field.presence == Presence::Required || self.needs.contains(&name);
        match text.map(|text| field.check(text)) {
            None if needed => self.refuse(name, Rule::Required, "is required".into()),
            None => {}
            Some(Err((rule, message))) => self.refuse(name, rule, message),
            Some(Ok(())) => return text.map(str::to_owned),
        }
        None
    }

    /// The country that a field names.
    pub(crate) fn country(&mut self, name: &'static str, text: Option<&str>) -> Option<Country> {
        self.text(name, text).and_then(|text| Country::parse(&text).ok())
    }

    /// The date that a field names.
    pub(super) fn date(&mut self, name: &'static str, text: Option<&str>) -> Option<Date> {
        self.text(name, text).and_then(|text| Date::parse(&text).ok())
    }

    fn refuse(&mut self, name: &str, rule: Rule, message: String) {
        let field = joined(self.path, name);
        self.errors.push(FieldError { field, rule, message });
    }
}

/// The error of a date of birth that is implausible on `today`.
pub(crate) fn birth_error(birth: Date, today: Date, field: &str) -> Option<FieldError> {
    let error = birth.check_birth(today).err()?;
    let (field, message) = (field.to_owned(), error.to_string());
    Some(FieldError { field, rule: Rule::Other, message })
}

pub(super) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
