//! Query strings, checked before a handler reads them: every parameter must be one that the
//! operation describes, and be given once unless it is a list. A slip in a name would otherwise
//! answer with an unfiltered list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use utoipa::openapi::path::Paths;

use crate::error::{ApiError, Code, Problem};

/// A parameter of a query.
struct Parameter {
    name: String,
    /// Whether it may be repeated.
    is_list: bool,
}

/// The parameters that the operations of a path take, by method, as the document describes them.
pub struct Parameters(BTreeMap<String, Vec<Parameter>>);

impl Parameters {
    /// Those of a path's operations.
    pub fn of(paths: &Paths) -> Self {
        let paths = serde_json::to_value(paths).expect("paths are JSON");
        let items =
            paths.as_object().into_iter().flatten().filter_map(|(_, item)| item.as_object());
        let parameter = |parameter: &Value| {
            let name = parameter["name"].as_str().filter(|_| parameter["in"] == "query")?;
            let of_type = &parameter["schema"]["type"];
            let is_list = of_type == "array"
                || of_type.as_array().is_some_and(|types| types.contains(&"array".into()));
            Some(Parameter { name: name.to_owned(), is_list })
        };
        let taken = |operation: &Value| {
            operation["parameters"].as_array().into_iter().flatten().filter_map(parameter).collect()
        };
        let operations = items.flatten().map(|(method, it)| (method.to_uppercase(), taken(it)));
        Self(operations.collect())
    }

    fn check(&self, method: &Method, query: &str) -> Result<(), ApiError> {
        // HEAD is answered as GET is.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let taken = self.0.get(method.as_str()).map_or(&[][..], Vec::as_slice);
        let mut problems: Vec<Problem> = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in pairs(query) {
            let problem = match decode(name) {
                Err(message) => Some(Problem::new(shown(name), format!("{message}, in its name"))),
                Ok(name) => {
                    let problem = problem(taken, &seen, &name, decode(value).err());
                    seen.push(name.into_owned());
                    problem
                }
            };
            if let Some(problem) = problem
                && problems.iter().all(|known| known.field != problem.field)
            {
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ApiError::fields(Code::InvalidInput, problems))
        }
    }
}

/// The error of a parameter of this name.
fn problem(
    taken: &[Parameter],
    seen: &[String],
    name: &str,
    undecodable: Option<&'static str>,
) -> Option<Problem> {
    let refuse = |message: String| Some(Problem::new(shown(name), message));
    let Some(known) = taken.iter().find(|known| known.name == name) else {
        return refuse(unknown(taken, name));
    };
    if let Some(message) = undecodable {
        return refuse(message.to_owned());
    }
    if !known.is_list && seen.iter().any(|seen| seen == name) {
        return refuse("is given twice; give it once".to_owned());
    }
    None
}

/// Mistakes between two names that are taken for each other.
const SLIPS_MAX: usize = 2;

fn unknown(taken: &[Parameter], name: &str) -> String {
    let letters = |text: &str| -> String {
        text.chars().filter(|it| it.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let wanted = letters(&shown(name));
    let slips = |known: &Parameter| strsim::osa_distance(&letters(&known.name), &wanted);
    let nearest = taken.iter().min_by_key(|known| slips(known));
    let nearest = nearest.filter(|known| slips(known) <= SLIPS_MAX.min(known.name.len() / 3));
    let names: Vec<_> = taken.iter().map(|known| known.name.as_str()).collect();
    match nearest {
        Some(known) => format!("is not a parameter here; did you mean {}?", known.name),
        None if names.is_empty() => "is not a parameter here; there are none".to_owned(),
        None => format!("is not a parameter here; there are {}", names.join(", ")),
    }
}

/// Characters of a name that an answer repeats.
const NAME_MAX: usize = 80;

/// A client's own text as an answer may repeat it, and never an empty one.
fn shown(name: &str) -> String {
    let name: String = name.chars().filter(|it| !it.is_control()).take(NAME_MAX).collect();
    if name.is_empty() { "query".to_owned() } else { name }
}

/// Names and values as they were written.
fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// A text of a form. The error says what is wrong with its percent-encoding.
fn decode(text: &str) -> Result<Cow<'_, str>, &'static str> {
    let is_broken = |(at, _): (usize, &str)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if text.match_indices('%').any(is_broken) {
        return Err("has a % without two hexadecimal digits; a % itself is written %25");
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map(Cow::into_owned);
    decoded.map(Cow::Owned).map_err(|_| "is not UTF-8 in its percent-encoding")
}

/// The values of a list: one after the other, separated by commas, or both.
pub fn values(query: &str, name: &str) -> Vec<String> {
    let all = form_urlencoded::parse(query.as_bytes()).filter(|(known, _)| known == name);
    all.flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The value of a parameter that is no list.
pub fn value(query: &str, name: &str) -> Option<String> {
    let mut all = form_urlencoded::parse(query.as_bytes()).filter(|(known, _)| known == name);
    all.next().map(|(_, value)| value.into_owned())
}

/// The remedy for a value in which a `+` may have arrived as a space.
pub fn hint(value: &str) -> &'static str {
    if value.contains(' ') { "; in a query a + is written %2B" } else { "" }
}

/// Refuses a request whose query has anything that its operation does not describe.
pub async fn check(
    State(parameters): State<Arc<Parameters>>,
    request: Request,
    next: Next,
) -> Response {
    let query = request.uri().query().unwrap_or_default();
    match parameters.check(request.method(), query) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        let parameter = |name: &str, is_list| Parameter { name: name.to_owned(), is_list };
        let taken = vec![
            parameter("createdAfter", false),
            parameter("limit", false),
            parameter("currency", true),
        ];
        Parameters(BTreeMap::from([("GET".to_owned(), taken), ("POST".to_owned(), Vec::new())]))
    }

    #[track_caller]
    fn check(query: &str, field: &str, message: &str) {
        let refusal = parameters().check(&Method::GET, query).expect_err(query);
        let error = &refusal.details["errors"][0];
        assert_eq!(error["field"], field, "{query}");
        let said = error["message"].as_str().expect("a text");
        assert!(said.contains(message), "{query}: {said}");
    }

    #[test]
    fn a_parameter_is_known_and_given_once() {
        for query in ["", "&", "limit=1", "limit=1&currency=A&currency=B&createdAfter=", "limit"] {
            assert!(parameters().check(&Method::GET, query).is_ok(), "{query}");
        }
        check("createdafter=x", "createdafter", "did you mean createdAfter?");
        check("created_after=x", "created_after", "did you mean createdAfter?");
        check("limits=1", "limits", "did you mean limit?");
        check("sort=1", "sort", "there are createdAfter, limit, currency");
        check("=1", "query", "is not a parameter here");
        check("limit=1&limit=1", "limit", "is given twice");
        check("limit=1&lim%69t=2", "limit", "is given twice");
        check("limit=%", "limit", "%25");
        check("limit=%4", "limit", "%25");
        check("limit=%zz", "limit", "%25");
        check("limit=%ff", "limit", "not UTF-8");
        check("%ff=1", "%ff", "not UTF-8");
        let refusal = parameters().check(&Method::POST, "limit=1").expect_err("no parameters");
        assert!(refusal.message.contains("there are none"), "{}", refusal.message);
        assert!(parameters().check(&Method::HEAD, "limit=1").is_ok());
    }

    #[test]
    fn a_list_is_repeated_or_separated_by_commas() {
        let given = |query: &str| values(query, "currency");
        assert_eq!(given("currency=A&currency=B&limit=1"), ["A", "B"]);
        assert_eq!(given("currency=A,B&currency=C"), ["A", "B", "C"]);
        assert_eq!(given("currency=A%2CB"), ["A", "B"]);
        assert_eq!(given("currency="), [""]);
        assert!(given("limit=1").is_empty());
    }
}
