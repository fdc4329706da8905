//! Requests are checked against the schema that the OpenAPI document shows: one source for the
//! documents, the checks and the hints in the answers (docs/decisions/0007).

use std::collections::{BTreeMap, BTreeSet};

use domain::country::Country;
use domain::id::{Id, Kind};
use domain::patch::Patch;
use domain::platform::COUNTERPARTY_FIELDS;
use domain::text::readable;
use domain::time::{Date, Timestamp};
use domain::transaction::Facts;
use domain::uma_address::{UmaAddress, UmaDomain};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError, Validator};
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, schema::Schema as OpenApiSchema};
use utoipa::{PartialSchema, ToSchema};

use crate::error::{ApiError, Code, Problem};
use crate::openapi::{branches, names};
use crate::patch::Nulls;
use crate::query;

/// A request type whose schema checks it. Implemented by `schema_of!`.
pub trait Schema {
    /// The meaning of `null` in it.
    const NULLS: Nulls = Nulls::Absent;

    /// Reports everything about a JSON value that the schema does not allow.
    fn check(value: &Value) -> Result<(), ApiError>;
}

/// Makes a request type check itself against its own schema.
macro_rules! schema_of {
    ($($request:ty),+ $(,)?) => {
        $(
            impl $crate::validate::Schema for $request {
                fn check(value: &serde_json::Value) -> Result<(), $crate::error::ApiError> {
                    static CHECKER: std::sync::LazyLock<$crate::validate::Checker> =
                        std::sync::LazyLock::new($crate::validate::Checker::of::<$request>);
                    CHECKER.check(value)
                }
            }
        )+
    };
}
pub(crate) use schema_of;

/// Makes the request type of a `PATCH` check itself against its own schema. `null` clears fields at
/// the top of the body, and in the objects that are named.
macro_rules! patch_of {
    ($request:ty $(, $merged:literal)*) => {
        impl $crate::validate::Schema for $request {
            const NULLS: $crate::patch::Nulls = $crate::patch::Nulls::Clear(&[$($merged),*]);

            fn check(value: &serde_json::Value) -> Result<(), $crate::error::ApiError> {
                static CHECKER: std::sync::LazyLock<$crate::validate::Checker> =
                    std::sync::LazyLock::new($crate::validate::Checker::of::<$request>);
                CHECKER.check(value)
            }
        }
    };
}
pub(crate) use patch_of;

/// A compiled schema.
pub struct Checker(Validator);

/// A rule about a text that no regular expression says; the document names it as the `format`.
struct Format {
    name: &'static str,
    holds: fn(&str) -> bool,
    message: &'static str,
}

const UMA_ADDRESS: &str = "uma-address";

const FORMATS: [Format; 7] = [
    Format {
        name: "date",
        holds: |text| Date::parse(text).is_ok(),
        message: "must be a date that exists, as YYYY-MM-DD",
    },
    Format {
        name: "iso-3166-1-alpha-2",
        holds: |text| Country::parse(text).is_ok(),
        message: "must be an ISO 3166-1 alpha-2 country code such as US",
    },
    Format {
        name: "label",
        holds: |text| readable(text).is_ok(),
        message: "must be a text that people can see, without control or invisible characters",
    },
    Format {
        name: "name",
        holds: is_name,
        message: "must be a name that people can see, without special, control or invisible \
                  characters and spare spaces",
    },
    Format {
        name: UMA_ADDRESS,
        holds: |text| UmaAddress::parse(text).is_ok(),
        message: "must be a UMA address such as $ada@example.com",
    },
    Format {
        name: "uma-domain",
        holds: |text| UmaDomain::parse(text).is_ok(),
        message: "must be a domain name such as uma.example.com",
    },
    Format {
        name: "web-address",
        holds: is_web_address,
        message: "must be an absolute http or https URL without credentials, with a port up to \
                  65535 where it has one",
    },
];

/// Whether a text is an absolute URL of the web, without credentials in it. Whether the address
/// may be called is decided at each call.
pub(crate) fn is_web_address(text: &str) -> bool {
    // It knows the names that a host can have, in any script.
    let Ok(parsed) = url::Url::parse(text) else { return false };
    let ascii = if text.is_ascii() { text } else { parsed.as_str() };
    let Ok(url) = ascii.parse::<axum::http::Uri>() else { return false };
    let scheme = url.scheme_str();
    let host = url.host().unwrap_or_default();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    // The library reads a port of any length; what stands behind the host must be one that exists.
    let port = authority.strip_prefix(host).unwrap_or_default();
    let has_sound_port = port.is_empty() || url.port_u16().is_some_and(|port| port > 0);
    matches!(scheme, Some("http" | "https"))
        && !host.is_empty()
        && !authority.contains('@')
        && has_sound_port
}

/// Refuses a name that is invisible, or that no person or register has.
pub(crate) fn is_name(text: &str) -> bool {
    readable(text).is_ok()
        && text.trim() == text
        && !text.contains("  ")
        && !text.contains(['<', '>', '{', '}', '\\', '|', '^', '`'])
}

/// Names of fields that hold an amount to be moved.
const AMOUNTS: [&str; 5] =
    ["amount", "lockedCurrencyAmount", "currencyAmount", "amountToSend", "receivingCurrencyAmount"];

/// Whether the field at a path holds an amount to be moved.
pub(crate) fn is_amount(field: &str) -> bool {
    AMOUNTS.contains(&field.rsplit('.').next().unwrap_or_default())
}

/// Characters of one fact about a person.
pub const FACT_MAX: usize = 500;

impl Checker {
    /// The checker of a request type.
    pub fn of<T: ToSchema + PartialSchema>() -> Self {
        let mut components: Vec<(String, RefOr<OpenApiSchema>)> = Vec::new();
        T::schemas(&mut components);
        let components: serde_json::Map<String, Value> = components
            .into_iter()
            .map(|(name, schema)| (name, serde_json::to_value(schema).expect("a schema is JSON")))
            .collect();
        let mut document = json!({ "components": { "schemas": components } });
        // The type stands among its parts, because it can be a union itself.
        let name = T::name();
        document["components"]["schemas"][&*name] =
            serde_json::to_value(T::schema()).expect("a schema is JSON");
        names(&mut document);
        branches(&mut document);
        let mut root = json!({ "$ref": format!("#/components/schemas/{name}") });
        root["components"] = document["components"].take();
        let mut options = jsonschema::options().should_validate_formats(true);
        for format in FORMATS {
            options = options.with_format(format.name, format.holds);
        }
        Self(options.build(&root).expect("our own schemas compile"))
    }

    /// Reports everything that is wrong with a value.
    pub fn check(&self, value: &Value) -> Result<(), ApiError> {
        let (mut only_amounts, mut only_addresses) = (true, true);
        let mut problems: Vec<_> = self
            .0
            .iter_errors(value)
            .map(|error| {
                let problem = problem(&error);
                let is_range = matches!(
                    error.kind(),
                    ValidationErrorKind::Required { .. }
                        | ValidationErrorKind::Minimum { .. }
                        | ValidationErrorKind::Maximum { .. }
                );
                only_amounts &= is_range && is_amount(&problem.field);
                only_addresses &= matches!(error.kind(),
                    ValidationErrorKind::Format { format } if format == UMA_ADDRESS);
                problem
            })
            .collect();
        // A wrong address alone has a code of its own, which the use case gives.
        if problems.is_empty() || only_addresses {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        problems.retain(|problem| seen.insert(problem.field.clone()));
        let code = if only_amounts { Code::InvalidAmount } else { Code::InvalidInput };
        Err(ApiError::fields(code, problems))
    }
}

fn problem(error: &ValidationError<'_>) -> Problem {
    let pointer = error.instance_path().to_string();
    let mut field = pointer.trim_start_matches('/').replace('/', ".");
    let (message, constraint) = match error.kind() {
        ValidationErrorKind::Required { property } => {
            let property = property.as_str().unwrap_or_default();
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(property);
            ("is required".to_owned(), json!({ "required": true }))
        }
        ValidationErrorKind::Pattern { pattern } => {
            (format!("must match {pattern}"), json!({ "pattern": pattern }))
        }
        ValidationErrorKind::MinLength { limit } => {
            (format!("must have at least {limit} characters"), json!({ "minLength": limit }))
        }
        ValidationErrorKind::MaxLength { limit } => {
            (format!("must have at most {limit} characters"), json!({ "maxLength": limit }))
        }
        ValidationErrorKind::MinItems { limit } => {
            (format!("must have at least {limit} entries"), json!({ "minItems": limit }))
        }
        ValidationErrorKind::MaxItems { limit } => {
            (format!("must have at most {limit} entries"), json!({ "maxItems": limit }))
        }
        ValidationErrorKind::Minimum { limit } => {
            (format!("must be at least {limit}"), json!({ "minimum": limit }))
        }
        ValidationErrorKind::Maximum { limit } => {
            (format!("must be at most {limit}"), json!({ "maximum": limit }))
        }
        ValidationErrorKind::Format { format } => {
            let known = FORMATS.iter().find(|known| known.name == format);
            let message = known.map_or("has the wrong format", |known| known.message);
            (message.to_owned(), json!({ "format": format }))
        }
        ValidationErrorKind::Enum { options } => {
            (format!("must be one of {options}"), json!({ "enum": **options }))
        }
        ValidationErrorKind::Type { kind } => {
            let wanted = wanted_type(kind);
            (of_type(&wanted, error.instance(), &field), json!({ "type": wanted }))
        }
        _ => {
            let place = error.schema_path().to_string();
            ("does not fit the schema".to_owned(), json!({ "schema": place }))
        }
    };
    Problem { field, message, constraint: Some(constraint) }
}

/// Whether a path ends in a name, not in the place of an entry.
fn is_property(field: &str) -> bool {
    field.rsplit('.').next().is_some_and(|last| last.parse::<usize>().is_err())
}

/// The types that are wanted, but for `null`, which only clears a field.
fn wanted_type(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(wanted) => wanted.to_string(),
        TypeKind::Multiple(wanted) => {
            let names = wanted.iter().filter(|wanted| *wanted != JsonType::Null);
            names.map(|wanted| wanted.to_string()).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn of_type(wanted: &str, given: &Value, field: &str) -> String {
    match given {
        Value::Number(_) if wanted == "integer" => "must be a whole number".to_owned(),
        // Only a request that changes something can have it.
        Value::Null if is_property(field) => {
            "cannot be cleared: leave it out, and it stays as it is".to_owned()
        }
        _ => format!("must be of type {wanted}"),
    }
}

/// A value of a query, or what is wrong with it and with a `+` in it.
fn in_query<T, E: std::fmt::Display>(text: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{error}{}", query::hint(text)))
}

/// Collects what no schema can say: identifiers, dates, and rules across fields.
#[derive(Debug, Default)]
pub struct Checks {
    problems: Vec<Problem>,
}

impl Checks {
    /// Nothing wrong so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a problem.
    pub fn refuse(&mut self, field: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(field, message));
    }

    /// Takes the value or the problem.
    pub fn take<T, E: std::fmt::Display>(
        &mut self,
        field: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|error| self.refuse(field, error.to_string())).ok()
    }

    /// An identifier.
    pub fn id<K: Kind>(&mut self, field: &str, text: &str) -> Option<Id<K>> {
        self.take(field, Id::parse(text))
    }

    /// An optional identifier.
    pub fn id_if<K: Kind>(&mut self, field: &str, text: Option<&str>) -> Option<Id<K>> {
        text.and_then(|text| self.id(field, text))
    }

    /// A field that changes, read by `from_text`.
    pub fn patch<T, E: std::fmt::Display>(
        &mut self,
        field: &str,
        patch: Patch<String>,
        from_text: impl FnOnce(&str) -> Result<T, E>,
    ) -> Patch<T> {
        patch.and_then(|text| self.take(field, from_text(&text)))
    }

    /// An optional instant of a query.
    pub fn time_if(&mut self, field: &str, text: Option<&str>) -> Option<Timestamp> {
        text.and_then(|text| self.take(field, in_query(text, Timestamp::parse(text))))
    }

    /// A UMA address of a query.
    pub fn address(&mut self, field: &str, text: &str) -> Option<UmaAddress> {
        self.take(field, in_query(text, UmaAddress::parse(text)))
    }

    /// One of a list of names.
    pub fn named_if<T>(
        &mut self,
        field: &str,
        text: Option<&str>,
        from_name: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = text?;
        let found = from_name(text);
        if found.is_none() {
            let shown: String = text.chars().take(40).collect();
            self.refuse(field, format!("'{shown}' is not a value of this field"));
        }
        found
    }

    /// Facts about a person, by the names of the specification.
    pub fn facts(&mut self, field: &str, given: Option<BTreeMap<String, String>>) -> Facts {
        let mut facts = Facts::new();
        for (name, value) in given.unwrap_or_default() {
            match COUNTERPARTY_FIELDS.into_iter().find(|known| *known == name) {
                Some(_) if value.chars().count() > FACT_MAX => {
                    self.refuse(field, format!("{name} has more than {FACT_MAX} characters"));
                }
                Some(known) => {
                    facts.insert(known, value);
                }
                None => {
                    let shown: String = name.chars().take(40).collect();
                    self.refuse(field, format!("'{shown}' is not a fact that is asked for"));
                }
            }
        }
        facts
    }

    /// Adds the problems of a part of the request at `path`.
    pub fn part(&mut self, path: &str, problems: impl IntoIterator<Item = Problem>) {
        for mut problem in problems {
            if !path.is_empty() {
                problem.field = format!("{path}.{}", problem.field);
            }
            self.problems.push(problem);
        }
    }

    /// Whether there is no problem so far.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// The value, unless there is a problem.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, ApiError> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            Some(_) | None => Err(ApiError::fields(Code::InvalidInput, self.problems)),
        }
    }

    /// Refuses if there is a problem.
    pub fn done(self) -> Result<(), ApiError> {
        self.finish(Some(()))
    }
}
