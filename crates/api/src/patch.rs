//! Changes by `PATCH`: JSON Merge Patch (RFC 7396), in which `null` clears an optional field.
//!
//! A request type marks a field that can be cleared as [`Patch`], reads it with [`read`], and lets
//! its schema allow `null`:
//!
//! ```text
//! #[serde(default, deserialize_with = "patch::read")]
//! #[schema(value_type = Option<String>, required = false, max_length = 255)]
//! full_name: Patch<String>,
//! ```
//!
//! It is registered by `patch_of!` in the place of `schema_of!`. Every other field refuses `null`.

use domain::patch::Patch;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The meaning of `null` in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// The field was left out.
    Absent,
    /// The field is cleared, at the top and in these objects. Everything else is replaced as a
    /// whole, so that `null` in it is a field that was left out.
    Clear(&'static [&'static str]),
}

impl Nulls {
    /// Removes the fields that count as left out.
    pub fn apply(self, body: &mut Value) {
        let Value::Object(fields) = body else { return };
        match self {
            Self::Absent => fields.retain(|_, value| !value.is_null()),
            Self::Clear(_) => {}
        }
        for (name, value) in fields {
            match self {
                Self::Clear(merged) if merged.contains(&name.as_str()) => {
                    Self::Clear(&[]).apply(value)
                }
                Self::Clear(_) | Self::Absent => drop_nulls(value),
            }
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reads a field that is there: `null` clears it.
pub fn read<'de, T, D>(deserializer: D) -> Result<Patch<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.map_or(Patch::Clear, Patch::Set))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_counts_where_a_field_can_be_cleared() {
        let body = json!({
            "a": null,
            "list": [{ "b": null, "c": [null] }],
            "merged": { "d": null, "whole": { "e": null } },
            "replaced": { "f": null },
        });
        let check = |nulls: Nulls, expected: Value| {
            let mut given = body.clone();
            nulls.apply(&mut given);
            assert_eq!(given, expected);
        };
        check(
            Nulls::Absent,
            json!({ "list": [{ "c": [null] }], "merged": { "whole": {} }, "replaced": {} }),
        );
        check(
            Nulls::Clear(&["merged"]),
            json!({
                "a": null,
                "list": [{ "c": [null] }],
                "merged": { "d": null, "whole": {} },
                "replaced": {},
            }),
        );
    }
}
