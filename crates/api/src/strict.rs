//! JSON, read strictly: an object, no key twice, no control characters, no number that is read
//! inexactly. A payment that two readers could understand differently is two payments.
//!
//! Every problem names its field. The wording is the API's own: no text of a parser goes out.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::error::Problem;

/// Levels of nesting: more than twice what any request has.
const DEPTH_MAX: usize = 16;

/// The field that a problem of the whole body names.
pub const BODY: &str = "body";

/// Characters of a field's name that an answer repeats.
const NAME_MAX: usize = 200;

/// The values that were read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The object.
    pub object: Value,
    /// Whole numbers beyond 64 bits, which are in it as other numbers beyond them. A schema may
    /// have a narrower range to name.
    pub beyond: Vec<Problem>,
}

/// Reads one JSON object. The error names the field and says what is wrong with it.
pub fn object(bytes: &[u8]) -> Result<Read, Problem> {
    let body = |message: String| Problem::new(BODY, message);
    if bytes.is_empty() {
        return Err(body("is empty; send a JSON object".to_owned()));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(body("begins with a byte order mark; send UTF-8 without one".to_owned()));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| body(format!("is not UTF-8 at byte {}", error.valid_up_to())))?;
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| syntax(text, &error))?;
    let mut beyond = Vec::new();
    let object = value(raw.get(), "", 0, &mut beyond)?;
    if !object.is_object() {
        return Err(body("must be a JSON object".to_owned()));
    }
    Ok(Read { object, beyond })
}

/// Says where a text stops to be JSON.
fn syntax(text: &str, error: &serde_json::Error) -> Problem {
    if error.classify() == Category::Eof {
        return Problem::new(BODY, "is not JSON: it ends too early");
    }
    let lines: usize = text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum();
    let byte = (lines + error.column()).min(text.len());
    // A raw control character or a word such as NaN is the fault of one field.
    let mut reader = serde_json::Deserializer::from_str(text);
    let place = serde_path_to_error::deserialize::<_, Value>(&mut reader)
        .err()
        .map(|error| field(error.path()))
        .filter(|path| !path.is_empty() && path.split('.').count() <= DEPTH_MAX);
    at(&place.unwrap_or_default(), format!("is not JSON at byte {byte}"))
}

/// A path as answers write it: names and places of entries, with dots.
pub fn field(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let segments = path.iter().map_while(|segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    segments.collect::<Vec<_>>().join(".")
}

/// A client's own text as an answer may repeat it.
fn shown(text: &str) -> String {
    let escape = |character: char| match character {
        control if control.is_control() => control.escape_unicode().collect(),
        other => other.to_string(),
    };
    text.chars().take(NAME_MAX).map(escape).collect()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A problem of the value at a path.
fn at(path: &str, message: impl Into<String>) -> Problem {
    Problem::new(shown(if path.is_empty() { BODY } else { path }), message)
}

/// Reads a value whose text is JSON.
fn value(raw: &str, path: &str, depth: usize, beyond: &mut Vec<Problem>) -> Result<Value, Problem> {
    let refuse = |message: String| at(path, message);
    let deeper = || match depth {
        DEPTH_MAX => Err(refuse(format!("is nested more than {DEPTH_MAX} levels deep"))),
        _ => Ok(depth + 1),
    };
    match raw.as_bytes().first() {
        Some(b'{') => entries(raw, path, deeper()?, beyond),
        Some(b'[') => {
            let depth = deeper()?;
            let items: Vec<&RawValue> = serde_json::from_str(raw).map_err(|_| unreadable(path))?;
            let read = |(index, item): (usize, &&RawValue)| {
                value(item.get(), &join(path, &index.to_string()), depth, beyond)
            };
            items.iter().enumerate().map(read).collect::<Result<_, _>>().map(Value::Array)
        }
        Some(b'"') => {
            let text: String = serde_json::from_str(raw).map_err(|_| unreadable(path))?;
            match control(&text) {
                Some(message) => Err(refuse(message)),
                None => Ok(Value::String(text)),
            }
        }
        Some(b'-' | b'0'..=b'9') => match whole(raw) {
            Whole::Fits(number) => Ok(number.into()),
            Whole::Beyond => {
                let message = format!("must be from {} to {}", i64::MIN, i64::MAX);
                beyond.push(refuse(message));
                Ok(if raw.starts_with('-') { -BEYOND } else { BEYOND }.into())
            }
            Whole::Fraction => fraction(raw).map(Value::Number).map_err(|it| refuse(it.to_owned())),
        },
        Some(_) | None => serde_json::from_str(raw).map_err(|_| unreadable(path)),
    }
}

/// The grammar allows half of a character, which no text has.
fn unreadable(path: &str) -> Problem {
    at(path, "has half of a surrogate pair; send whole characters")
}

fn control(text: &str) -> Option<String> {
    let control = text.chars().find(|character| character.is_control())?;
    Some(format!("has the control character U+{:04X}", control as u32))
}

/// The entries of an object, in the order in which they were written, with their texts.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Entries(all))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

fn entries(
    raw: &str,
    path: &str,
    depth: usize,
    beyond: &mut Vec<Problem>,
) -> Result<Value, Problem> {
    let Entries(given) = serde_json::from_str(raw).map_err(|_| unreadable(path))?;
    let mut all = Map::new();
    for (key, raw) in given {
        let place = join(path, &key);
        if let Some(message) = control(&key) {
            return Err(at(&place, format!("{message} in its name")));
        }
        if all.contains_key(&key) {
            return Err(at(&place, "is given twice"));
        }
        let value = value(raw.get(), &place, depth, beyond)?;
        all.insert(key, value);
    }
    Ok(Value::Object(all))
}

/// Stands for every whole number that does not fit 64 bits.
const BEYOND: f64 = 1e19;

/// From here on doubles have no fraction.
const FRACTIONS_MAX: f64 = 4_503_599_627_370_496.0;

/// Reads a number with a fraction. It must still have one as a double.
fn fraction(text: &str) -> Result<Number, &'static str> {
    let double: f64 = text.parse().unwrap_or(f64::INFINITY);
    let is_one = double.fract() != 0.0 && double.abs() < FRACTIONS_MAX;
    let number = Number::from_f64(double).filter(|_| is_one);
    number.ok_or("must be a whole number, or have at most 15 digits")
}

/// A number of JSON as a whole number.
enum Whole {
    /// It is this one.
    Fits(i64),
    /// It is one, and does not fit 64 bits.
    Beyond,
    /// It has a fraction.
    Fraction,
}

/// Digits of a whole number of 64 bits.
const DIGITS_MAX: usize = 19;

fn whole(text: &str) -> Whole {
    let (text, is_negative) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = [integer, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Whole::Fits(0);
    }
    // The number is its significant digits, times ten to the power of `shift`.
    let significant = digits.trim_end_matches('0');
    let zeros = digits.len() - significant.len();
    let exponent = exponent.parse().unwrap_or(match exponent.starts_with('-') {
        true => i64::MIN / 2,
        false => i64::MAX / 2,
    });
    let length = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 4);
    let shift = exponent.saturating_add(length(zeros)).saturating_sub(length(fraction.len()));
    let Ok(shift) = usize::try_from(shift) else { return Whole::Fraction };
    if significant.len().saturating_add(shift) > DIGITS_MAX {
        return Whole::Beyond;
    }
    let sign = if is_negative { "-" } else { "" };
    let written = [sign, significant, &"0".repeat(shift)].concat();
    written.parse().map_or(Whole::Beyond, Whole::Fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(bytes: &[u8], field: &str) {
        let problem = object(bytes).expect_err(&String::from_utf8_lossy(bytes));
        assert_eq!(problem.field, field, "{}: {}", String::from_utf8_lossy(bytes), problem.message);
        let words =
            ["expected", "invalid type", "EOF", "line ", "column", "i64", "f64", "floating"];
        assert!(words.iter().all(|word| !problem.message.contains(word)), "{}", problem.message);
    }

    #[test]
    fn a_body_that_is_no_object_is_refused_as_a_body() {
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
            r#"{"a":1,}"#,
            "{/**/}",
            "{'a':1}",
            "\u{feff}{}",
            r#"{"a":1 "b":2}"#,
            r#"{"a":"#,
            r#"{"a":{"b":1"#,
            r#"{"a":"x"#,
        ] {
            check(wrong.as_bytes(), BODY);
        }
        check(b"{\"a\":\"\xff\"}", BODY);
        check(&[b"[".repeat(100_000), b"]".repeat(100_000)].concat(), &["0"; 16].join("."));
    }

    #[test]
    fn a_field_that_could_be_read_two_ways_is_named() {
        for (wrong, field) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"a":{"b":1,"b":2}}"#, "a.b"),
            (r#"{"a":1,"\u0061":2}"#, "a"),
            (r#"{"a":null,"a":2}"#, "a"),
            (r#"{"a":[{"b":1,"b":2}]}"#, "a.0.b"),
            (r#"{"a":"x\u0000y"}"#, "a"),
            (r#"{"a\u0007":1}"#, "a\\u{7}"),
            (r#"{"a":"\u001b[0m"}"#, "a"),
            (r#"{"a":{"b":["x","b\nc"]}}"#, "a.b.1"),
            ("{\"a\":\"\u{1}\"}", "a"),
            ("{\"a\":{\"b\":\"x\ty\"}}", "a.b"),
            (r#"{"a":{"b":01}}"#, "a.b"),
            (r#"{"a":+1}"#, "a"),
            (r#"{"a":0x10}"#, "body"),
            (r#"{"a":NaN}"#, "a"),
            (r#"{"a":"\ud800"}"#, "a"),
            (r#"{"a":100.00000000000000001}"#, "a"),
            (r#"{"a":8999999999999999.9}"#, "a"),
            (r#"{"a":9007199254740993.5}"#, "a"),
            (r#"{"a":1e-400}"#, "a"),
        ] {
            check(wrong.as_bytes(), field);
        }
        let deep = format!("{}1{}", r#"{"a":"#.repeat(17), "}".repeat(17));
        check(deep.as_bytes(), &["a"; 16].join("."));
        let deepest = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        check(deepest.as_bytes(), &["a"; 16].join("."));
    }

    #[test]
    fn a_message_says_where_json_ends() {
        let message = |text: &str| object(text.as_bytes()).expect_err(text).message;
        assert_eq!(message("{\"a\":1,\n \"b\" 2}"), "is not JSON at byte 14");
        assert_eq!(message("{\"a\":1"), "is not JSON: it ends too early");
    }

    #[test]
    fn ordinary_objects_are_read() {
        let read = object(r#" {"a":[1,-2.5,null,true],"b":{"c":"é"},"d":null} "#.as_bytes());
        let expected = json!({"a": [1, -2.5, null, true], "b": {"c": "é"}, "d": null});
        assert_eq!(read, Ok(Read { object: expected, beyond: Vec::new() }));
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        for (text, number) in [
            ("100.0", 100),
            ("1e3", 1_000),
            ("1E+3", 1_000),
            ("-0.0", 0),
            ("0e999999999999999999999", 0),
            ("10000000000000000e-2", 100_000_000_000_000),
            ("0.0012e4", 12),
            ("120e-1", 12),
            ("-1.20e1", -12),
            ("9223372036854775807.000", i64::MAX),
            ("-9.223372036854775808e18", i64::MIN),
            ("9007199254740993.0", 9_007_199_254_740_993),
        ] {
            let body = format!("{{\"a\":{text}}}");
            let read = object(body.as_bytes()).expect(text);
            assert_eq!(read, Read { object: json!({ "a": number }), beyond: Vec::new() }, "{text}");
        }
        for text in
            ["9223372036854775808", "-9223372036854775809", "1e400", "-1e99999999999999999999"]
        {
            let read = object(format!("{{\"a\":[{text}]}}").as_bytes()).expect(text);
            assert_eq!(read.beyond.len(), 1, "{text}");
            assert_eq!(read.beyond[0].field, "a.0");
            assert!(read.beyond[0].message.ends_with("to 9223372036854775807"));
            let number = read.object["a"][0].as_f64().expect(text);
            assert_eq!(number, if text.starts_with('-') { -1e19 } else { 1e19 }, "{text}");
        }
        for text in ["100.5", "1e-1", "-0.5", "0.1"] {
            let read = object(format!("{{\"a\":{text}}}").as_bytes()).expect(text);
            assert!(read.object["a"].as_f64().is_some_and(|it| it.fract() != 0.0), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = object(&bytes);
        }

        #[test]
        fn any_number_is_read_or_refused(text in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,25})?") {
            let _ = object(format!("{{\"a\":{text}}}").as_bytes());
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
            prop_assert_eq!(object(&bytes), Ok(Read { object: written, beyond: Vec::new() }));
        }
    }
}
