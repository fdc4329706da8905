//! JSON objects of peers, read field by field so that a refusal names the field, and written with
//! exact numbers.
//!
//! A value stays raw text until its field is asked for: a number is read from its digits and never
//! passes through a float. An object is opened one level at a time, so nesting costs no stack.

use std::collections::BTreeMap;
use std::fmt;

use rust_decimal::Decimal;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{ErrorCode, Refusal};

/// Characters of a peer's value that a refusal repeats.
const SHOWN_MAX: usize = 80;

/// The beginning of a peer's text, without control characters.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_MAX).collect()
}

/// A message of ours as JSON.
pub(crate) fn text(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("keys are text and writing to memory does not fail")
}

/// A decimal number, written to JSON digit by digit.
pub(crate) struct Number(pub(crate) Decimal);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = RawValue::from_string(self.0.normalize().to_string())
            .expect("the digits of a decimal are a JSON number");
        digits.serialize(serializer)
    }
}

/// The fields of one object.
pub(crate) struct Fields<'a> {
    code: ErrorCode,
    /// The way to this object from the message, with a dot at its end; empty for the message.
    path: String,
    values: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    /// Reads a message. Its refusals have `code`.
    pub(crate) fn read(code: ErrorCode, body: &'a [u8]) -> Result<Self, Refusal> {
        match serde_json::from_slice(body) {
            Ok(values) => Ok(Self { code, path: String::new(), values }),
            Err(_) => Err(Refusal::new(code, "the body is not a JSON object")),
        }
    }

    /// The value of a field, `null` excepted.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.values.get(name).copied().filter(|raw| raw.get() != "null")
    }

    /// The names of all fields that have a value.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let has_value = |(_, raw): &(&String, &&RawValue)| raw.get() != "null";
        self.values.iter().filter(has_value).map(|(name, _)| name.as_str())
    }

    /// A refusal that names the field: `wrong` continues the sentence. The peer may have chosen the
    /// name, so it is shortened.
    pub(crate) fn refusal(&self, name: &str, wrong: impl fmt::Display) -> Refusal {
        let field = shown(&format!("{}{name}", self.path));
        Refusal::new(self.code, format!("{field} {wrong}"))
    }

    fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, Refusal> {
        value.ok_or_else(|| self.refusal(name, "is missing"))
    }

    /// A text.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<String>, Refusal> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        match serde_json::from_str(raw.get()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.refusal(name, "must be a text")),
        }
    }

    /// A text that must be there.
    pub(crate) fn text(&self, name: &str) -> Result<String, Refusal> {
        self.required(name, self.optional_text(name)?)
    }

    /// A text; an empty one is absent.
    pub(crate) fn optional_filled(&self, name: &str) -> Result<Option<String>, Refusal> {
        Ok(self.optional_text(name)?.filter(|text| !text.is_empty()))
    }

    /// A text that must be there and not empty.
    pub(crate) fn filled(&self, name: &str) -> Result<String, Refusal> {
        self.required(name, self.optional_filled(name)?)
    }

    /// A number, exactly as its digits say.
    pub(crate) fn optional_decimal(&self, name: &str) -> Result<Option<Decimal>, Refusal> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        let digits = raw.get();
        if !digits.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err(self.refusal(name, "must be a number"));
        }
        let number = if digits.contains(['e', 'E']) {
            Decimal::from_scientific(digits)
        } else {
            Decimal::from_str_exact(digits)
        };
        let wrong = "is outside the range of numbers that can be read exactly";
        number.map(Some).map_err(|_| self.refusal(name, wrong))
    }

    /// A number that must be there.
    pub(crate) fn decimal(&self, name: &str) -> Result<Decimal, Refusal> {
        self.required(name, self.optional_decimal(name)?)
    }

    /// A whole number, also if it is written as `1000.0`.
    pub(crate) fn optional_integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(number) = self.optional_decimal(name)? else { return Ok(None) };
        let whole = Some(number).filter(|number| number.fract().is_zero());
        match whole.and_then(|number| i64::try_from(number).ok()) {
            Some(integer) => Ok(Some(integer)),
            None => Err(self.refusal(name, "must be a whole number of 64 bits")),
        }
    }

    /// A whole number that must be there.
    pub(crate) fn integer(&self, name: &str) -> Result<i64, Refusal> {
        self.required(name, self.optional_integer(name)?)
    }

    /// A whole number, zero or more, that must be there.
    pub(crate) fn count(&self, name: &str) -> Result<i64, Refusal> {
        let number = self.integer(name)?;
        if number < 0 {
            return Err(self.refusal(name, "must not be negative"));
        }
        Ok(number)
    }

    /// `true` or `false`.
    pub(crate) fn optional_flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.get(name).map(RawValue::get) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.refusal(name, "must be true or false")),
        }
    }

    /// An object.
    pub(crate) fn optional_fields(&self, name: &str) -> Result<Option<Self>, Refusal> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        match serde_json::from_str(raw.get()) {
            Ok(values) => {
                let path = format!("{}{name}.", self.path);
                Ok(Some(Self { code: self.code, path, values }))
            }
            Err(_) => Err(self.refusal(name, "must be an object")),
        }
    }

    /// An object that must be there.
    pub(crate) fn fields(&self, name: &str) -> Result<Self, Refusal> {
        self.required(name, self.optional_fields(name)?)
    }

    fn optional_list(&self, name: &str) -> Result<Option<Vec<&'a RawValue>>, Refusal> {
        let Some(raw) = self.get(name) else { return Ok(None) };
        match serde_json::from_str(raw.get()) {
            Ok(list) => Ok(Some(list)),
            Err(_) => Err(self.refusal(name, "must be a list")),
        }
    }

    /// A list of objects.
    pub(crate) fn optional_objects(&self, name: &str) -> Result<Option<Vec<Self>>, Refusal> {
        let Some(list) = self.optional_list(name)? else { return Ok(None) };
        self.entries_of(name, &list).into_iter().collect::<Result<_, _>>().map(Some)
    }

    /// The entries of a list that must be there, each an object or the refusal of it: for lists of
    /// which some entries are enough.
    pub(crate) fn entries(&self, name: &str) -> Result<Vec<Result<Self, Refusal>>, Refusal> {
        let list = self.required(name, self.optional_list(name)?)?;
        Ok(self.entries_of(name, &list))
    }

    fn entries_of(&self, name: &str, list: &[&'a RawValue]) -> Vec<Result<Self, Refusal>> {
        let object = |(index, raw): (usize, &&'a RawValue)| match serde_json::from_str(raw.get()) {
            Ok(values) => {
                let path = format!("{}{name}[{index}].", self.path);
                Ok(Self { code: self.code, path, values })
            }
            Err(_) => Err(self.refusal(&format!("{name}[{index}]"), "must be an object")),
        };
        list.iter().enumerate().map(object).collect()
    }

    /// A list of texts.
    pub(crate) fn optional_texts(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        let Some(list) = self.optional_list(name)? else { return Ok(None) };
        let text = |(index, raw): (usize, &&'a RawValue)| {
            serde_json::from_str(raw.get())
                .map_err(|_| self.refusal(&format!("{name}[{index}]"), "must be a text"))
        };
        list.iter().enumerate().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// A list of whole numbers that must be there.
    pub(crate) fn integers(&self, name: &str) -> Result<Vec<i64>, Refusal> {
        let list = self.required(name, self.optional_list(name)?)?;
        let integer = |(index, raw): (usize, &&'a RawValue)| {
            let wrong = "must be a whole number of 64 bits";
            raw.get().parse().map_err(|_| self.refusal(&format!("{name}[{index}]"), wrong))
        };
        list.iter().enumerate().map(integer).collect()
    }
}
