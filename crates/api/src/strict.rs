//! JSON, read strictly: an object, no key twice, no control characters, no number that does not
//! fit. What two readers could understand differently is refused, because a payment that is read
//! two ways is two payments.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Levels of nesting: more than twice what any request has.
const DEPTH_MAX: usize = 16;

/// Reads one JSON object. The error says what is wrong and where.
pub fn object(bytes: &[u8]) -> Result<Value, String> {
    if bytes.is_empty() {
        return Err("the body is empty; send a JSON object".to_owned());
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0 }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| format!("the body is not valid JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("the body must be a JSON object".to_owned()) }
}

#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(format!("nested more than {DEPTH_MAX} levels deep")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

fn text<E: serde::de::Error>(text: &str) -> Result<String, E> {
    match text.chars().find(|character| character.is_control()) {
        Some(control) => {
            Err(E::custom(format!("control character U+{:04X} in a string", control as u32)))
        }
        None => Ok(text.to_owned()),
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        i64::try_from(value)
            .map(Value::from)
            .map_err(|_| E::custom(format!("number {value} does not fit into 64 bits")))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        /// Beyond this a double is not a whole number exactly, so it was meant to be an integer
        /// that does not fit.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        let number = Number::from_f64(value).filter(|_| value.abs() <= EXACT_MAX);
        number.map(Value::Number).ok_or_else(|| E::custom("a number does not fit into 64 bits"))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        text(value).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut all = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let key = text(&key)?;
            let value = entries.next_value_seed(inner)?;
            if all.contains_key(&key) {
                return Err(A::Error::custom(format!("key '{key}' stands twice in one object")));
            }
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_could_be_read_two_ways_is_refused() {
        for wrong in [
            "",
            " ",
            "[]",
            "[1,2]",
            "null",
            "true",
            "1",
            "\"x\"",
            "{",
            "{}x",
            "{} {}",
            r#"{"a":1,"a":1}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"a":"x\u0000y"}"#,
            r#"{"a\u0007":1}"#,
            r#"{"a":"\u001b[0m"}"#,
            r#"{"a":"b\nc"}"#,
            r#"{"a":9223372036854775808}"#,
            r#"{"a":123456789012345678901234567890}"#,
            r#"{"a":1e400}"#,
            r#"{"a":1e30}"#,
            r#"{"a":01}"#,
            r#"{"a":+1}"#,
            r#"{"a":0x10}"#,
            r#"{"a":NaN}"#,
            r#"{"a":"\ud800"}"#,
            "\u{feff}{}",
            "{\"a\":\"\u{1}\"}",
            "{'a':1}",
            r#"{"a":1,}"#,
            "{/**/}",
        ] {
            assert!(object(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_err());
        let deep = format!("{}1{}", r#"{"a":"#.repeat(17), "}".repeat(17));
        assert!(object(deep.as_bytes()).is_err());
        let deepest = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        assert!(object(deepest.as_bytes()).is_err());
    }

    #[test]
    fn ordinary_objects_are_read() {
        let read = object(r#"{"a":[1,-2.5,null,true],"b":{"c":"é"},"d":null}"#.as_bytes());
        let expected =
            serde_json::json!({"a": [1, -2.5, null, true], "b": {"c": "é"}, "d": null});
        assert_eq!(read, Ok(expected));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = object(&bytes);
        }

        #[test]
        fn what_is_read_is_what_was_written(
            key in "[a-z]{1,8}", number in any::<i64>(), text in "[^\\p{Cc}]{0,20}",
        ) {
            let mut written = Map::new();
            written.insert(key, number.into());
            written.insert("TEXT".to_owned(), text.into());
            let written = Value::Object(written);
            let bytes = serde_json::to_vec(&written).expect("text keys");
            prop_assert_eq!(object(&bytes), Ok(written));
        }
    }
}
