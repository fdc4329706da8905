//! Rows without the texts that tell of a person. A text is a whole column, or a text of JSON.
//!
//! In the place of a text stands the control character 1 and the number of the text. JSON would
//! write that character as `\u0001`, and no text of a column has it.

use memchr::memmem;

use crate::sql::Value;

/// Begins what stands in the place of a text.
const HOLE: &str = "\u{1}";

/// The same in JSON.
const HOLE_IN_JSON: &[u8] = b"\"\x01";

/// A text of so many bytes that stands within another one tells of the person too. A shorter one
/// may be anything.
const TELLING: usize = 4;

/// A text as JSON has it.
fn in_json(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).expect("a text is JSON")
}

/// The values without some texts, which are added to those that are `known`; nothing if one of them
/// would be left within another text.
pub(super) fn taken_out(
    values: &[Value],
    texts: &[String],
    known: &mut Vec<String>,
) -> Option<Vec<Value>> {
    let (mut without, before) = (values.to_vec(), known.len());
    for text in texts.iter().filter(|text| !text.is_empty()) {
        let number = known.iter().position(|it| it == text).unwrap_or_else(|| {
            known.push(text.clone());
            known.len() - 1
        });
        let (json, hole) = (in_json(text), format!("{HOLE}{number}"));
        let hole_in_json = [b"\"", hole.as_bytes(), b"\""].concat();
        for value in &mut without {
            match value {
                Value::Text(column) if column == text => *value = hole.clone().into(),
                Value::Bytes(bytes) => replace(bytes, &json, &hole_in_json),
                Value::Null | Value::Int(_) | Value::Text(_) => {}
            }
        }
    }
    // Not all bytes are JSON, and a text may stand within another one.
    let is_left = |text: &String| {
        let (json, text) = (in_json(text), text.as_bytes());
        let within = &json[1..json.len() - 1];
        let has = |bytes: &[u8]| {
            memmem::find(bytes, text).is_some() || memmem::find(bytes, within).is_some()
        };
        text.len() >= TELLING
            && without.iter().any(|value| match value {
                Value::Text(text) => has(text.as_bytes()),
                Value::Bytes(bytes) => has(bytes),
                Value::Null | Value::Int(_) => false,
            })
    };
    let is_right = !texts.iter().any(is_left)
        && put_back(without.clone(), known).is_some_and(|again| again == values);
    if !is_right {
        known.truncate(before);
    }
    is_right.then_some(without)
}

/// The values with their texts; nothing if one is not there.
pub(super) fn put_back(values: Vec<Value>, texts: &[String]) -> Option<Vec<Value>> {
    let put_back = |value| {
        Some(match value {
            Value::Text(column) => match column.strip_prefix(HOLE) {
                Some(number) => Value::from(&**texts.get(number.parse::<usize>().ok()?)?),
                None => Value::Text(column),
            },
            Value::Bytes(bytes) => filled(&bytes, texts)?.into(),
            other => other,
        })
    };
    values.into_iter().map(put_back).collect()
}

/// Bytes with their texts.
fn filled(bytes: &[u8], texts: &[String]) -> Option<Vec<u8>> {
    let (mut filled, mut rest) = (Vec::with_capacity(bytes.len()), 0);
    for at in memmem::find_iter(bytes, HOLE_IN_JSON) {
        let number = &bytes[at + HOLE_IN_JSON.len()..];
        let length = memchr::memchr(b'"', number)?;
        let number = str::from_utf8(&number[..length]).ok()?.parse::<usize>().ok()?;
        filled.extend_from_slice(bytes.get(rest..at)?);
        filled.extend_from_slice(&in_json(texts.get(number)?));
        rest = at + HOLE_IN_JSON.len() + length + 1;
    }
    filled.extend_from_slice(bytes.get(rest..)?);
    Some(filled)
}

fn replace(bytes: &mut Vec<u8>, what: &[u8], with: &[u8]) {
    if memmem::find(bytes, what).is_none() {
        return;
    }
    let (mut replaced, mut rest) = (Vec::with_capacity(bytes.len()), 0);
    for at in memmem::find_iter(bytes, what) {
        replaced.extend_from_slice(&bytes[rest..at]);
        replaced.extend_from_slice(with);
        rest = at + what.len();
    }
    replaced.extend_from_slice(&bytes[rest..]);
    *bytes = replaced;
}
