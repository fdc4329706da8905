//! Requests are checked against the schema that the OpenAPI document shows: one source for the
//! documents, the checks and the hints in the answers (docs/decisions/0007).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use boon::{
    Compiler, ErrorKind, Format, InstanceToken, SchemaIndex, Schemas, Type, Types, ValidationError,
};
use domain::country::Country;
use domain::id::{Id, Kind};
use domain::patch::Patch;
use domain::platform::COUNTERPARTY_FIELDS;
use domain::text::readable;
use domain::time::{Date, Timestamp};
use domain::transaction::Facts;
use domain::uma_address::{UmaAddress, UmaDomain};
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
pub struct Checker {
    schemas: Schemas,
    request: SchemaIndex,
}

/// The name of the document that a checker compiles. It is not an address that anything asks for.
const REQUEST: &str = "schema://request";

const UMA_ADDRESS: &str = "uma-address";

/// Rules about texts that no regular expression says; the document names each as the `format`.
const FORMATS: [Format; 7] = [
    Format {
        name: "date",
        func: |value| {
            let rule = "must be a date that exists, as YYYY-MM-DD";
            text_is(value, |text| Date::parse(text).is_ok(), rule)
        },
    },
    Format {
        name: "iso-3166-1-alpha-2",
        func: |value| {
            let rule = "must be an ISO 3166-1 alpha-2 country code such as US";
            text_is(value, |text| Country::parse(text).is_ok(), rule)
        },
    },
    Format {
        name: "label",
        func: |value| {
            let rule =
                "must be a text that people can see, without control or invisible characters";
            text_is(value, |text| readable(text).is_ok(), rule)
        },
    },
    Format {
        name: "name",
        func: |value| {
            let rule = "must be a name that people can see, without special, control or \
                        invisible characters and spare spaces";
            text_is(value, is_name, rule)
        },
    },
    Format {
        name: UMA_ADDRESS,
        func: |value| {
            let rule = "must be a UMA address such as $ada@example.com";
            text_is(value, |text| UmaAddress::parse(text).is_ok(), rule)
        },
    },
    Format {
        name: "uma-domain",
        func: |value| {
            let rule = "must be a domain name such as uma.example.com";
            text_is(value, |text| UmaDomain::parse(text).is_ok(), rule)
        },
    },
    Format {
        name: "web-address",
        func: |value| {
            let rule = "must be an absolute http or https URL without credentials, with a port up \
                        to 65535 where it has one";
            text_is(value, is_web_address, rule)
        },
    },
];

/// Refuses a text that a rule does not hold of. Types are checked elsewhere.
fn text_is(
    value: &Value,
    holds: impl Fn(&str) -> bool,
    rule: &'static str,
) -> Result<(), Box<dyn Error>> {
    if value.as_str().is_none_or(holds) { Ok(()) } else { Err(rule.into()) }
}

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
        // The type stands among its parts, because it can be a union itself.
        components.push((T::name().into_owned(), T::schema()));
        Self::compile(&T::name(), components)
    }

    /// Apart from the types, so that it is compiled once.
    fn compile(name: &str, components: Vec<(String, RefOr<OpenApiSchema>)>) -> Self {
        let components: serde_json::Map<String, Value> = components
            .into_iter()
            .map(|(name, schema)| (name, serde_json::to_value(schema).expect("a schema is JSON")))
            .collect();
        let mut document = json!({ "components": { "schemas": components } });
        names(&mut document);
        branches(&mut document);
        let mut root = json!({ "$ref": format!("#/components/schemas/{name}") });
        root["components"] = document["components"].take();
        let mut compiler = Compiler::new();
        compiler.enable_format_assertions();
        for format in FORMATS {
            compiler.register_format(format);
        }
        let mut schemas = Schemas::new();
        compiler.add_resource(REQUEST, root).expect("the name of the document is a URL");
        let request = compiler.compile(REQUEST, &mut schemas).expect("our own schemas compile");
        Self { schemas, request }
    }

    /// Reports everything that is wrong with a value.
    pub fn check(&self, value: &Value) -> Result<(), ApiError> {
        let Err(error) = self.schemas.validate(value, self.request) else { return Ok(()) };
        let mut faults =
            Faults { value, only_amounts: true, only_addresses: true, problems: vec![] };
        faults.take(&error);
        // A wrong address alone has a code of its own, which the use case gives.
        if faults.only_addresses {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        faults.problems.retain(|problem| seen.insert(problem.field.clone()));
        let code = if faults.only_amounts { Code::InvalidAmount } else { Code::InvalidInput };
        Err(ApiError::fields(code, faults.problems))
    }
}

/// Collects the rules of a schema that do not hold of a value.
struct Faults<'v> {
    value: &'v Value,
    only_amounts: bool,
    only_addresses: bool,
    problems: Vec<Problem>,
}

impl Faults<'_> {
    /// Takes the rules at the ends of a tree of errors. The rules above them hold if these do.
    fn take(&mut self, error: &ValidationError<'_, '_>) {
        match &error.kind {
            ErrorKind::Group
            | ErrorKind::Schema { .. }
            | ErrorKind::Reference { .. }
            | ErrorKind::AllOf => error.causes.iter().for_each(|cause| self.take(cause)),
            ErrorKind::Required { want } => {
                for property in want {
                    let mut field = path(&error.instance_location.tokens);
                    if !field.is_empty() {
                        field.push('.');
                    }
                    field.push_str(property);
                    self.only_amounts &= is_amount(&field);
                    self.only_addresses = false;
                    self.add(field, "is required".to_owned(), json!({ "required": true }));
                }
            }
            kind => {
                let field = path(&error.instance_location.tokens);
                let is_range =
                    matches!(kind, ErrorKind::Minimum { .. } | ErrorKind::Maximum { .. });
                self.only_amounts &= is_range && is_amount(&field);
                self.only_addresses &= matches!(kind,
                    ErrorKind::Format { want, .. } if *want == UMA_ADDRESS);
                let (message, constraint) = rule(error, self.value, &field);
                self.add(field, message, constraint);
            }
        }
    }

    fn add(&mut self, field: String, message: String, constraint: Value) {
        self.problems.push(Problem { field, message, constraint: Some(constraint) });
    }
}

/// The path of a field, as problems name it.
fn path(tokens: &[InstanceToken<'_>]) -> String {
    let names = tokens.iter().map(|token| match token {
        InstanceToken::Prop(name) => name.to_string(),
        InstanceToken::Item(place) => place.to_string(),
    });
    names.collect::<Vec<_>>().join(".")
}

/// The value at a path.
fn at<'v>(value: &'v Value, tokens: &[InstanceToken<'_>]) -> Option<&'v Value> {
    tokens.iter().try_fold(value, |value, token| match token {
        InstanceToken::Prop(name) => value.get(&**name),
        InstanceToken::Item(place) => value.get(place),
    })
}

/// A rule that does not hold of one field: for people, and for programs.
fn rule(error: &ValidationError<'_, '_>, root: &Value, field: &str) -> (String, Value) {
    match &error.kind {
        ErrorKind::Pattern { want, .. } => {
            (format!("must match {want}"), json!({ "pattern": want }))
        }
        ErrorKind::MinLength { want, .. } => {
            (format!("must have at least {want} characters"), json!({ "minLength": want }))
        }
        ErrorKind::MaxLength { want, .. } => {
            (format!("must have at most {want} characters"), json!({ "maxLength": want }))
        }
        ErrorKind::MinItems { want, .. } => {
            (format!("must have at least {want} entries"), json!({ "minItems": want }))
        }
        ErrorKind::MaxItems { want, .. } => {
            (format!("must have at most {want} entries"), json!({ "maxItems": want }))
        }
        ErrorKind::Minimum { want, .. } => {
            (format!("must be at least {want}"), json!({ "minimum": want }))
        }
        ErrorKind::Maximum { want, .. } => {
            (format!("must be at most {want}"), json!({ "maximum": want }))
        }
        ErrorKind::Format { want, err, .. } => {
            let is_ours = FORMATS.iter().any(|known| known.name == *want);
            let message = if is_ours { err.to_string() } else { "has the wrong format".to_owned() };
            (message, json!({ "format": want }))
        }
        ErrorKind::Enum { want } => {
            (format!("must be one of {}", json!(want)), json!({ "enum": want }))
        }
        ErrorKind::Type { want, .. } => {
            let wanted = wanted_type(*want);
            let given = at(root, &error.instance_location.tokens).unwrap_or(root);
            (of_type(&wanted, given, field), json!({ "type": wanted }))
        }
        _ => {
            let (_, place) = error.schema_url.split_once('#').unwrap_or_default();
            ("does not fit the schema".to_owned(), json!({ "schema": place }))
        }
    }
}

/// Whether a path ends in a name, not in the place of an entry.
fn is_property(field: &str) -> bool {
    field.rsplit('.').next().is_some_and(|last| last.parse::<usize>().is_err())
}

/// The types that are wanted, but for `null`, which only clears a field.
fn wanted_type(wanted: Types) -> String {
    let names = wanted.iter().filter(|wanted| *wanted != Type::Null);
    names.map(|wanted| wanted.to_string()).collect::<Vec<_>>().join(" or ")
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
