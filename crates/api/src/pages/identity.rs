//! The page of an identity check: the person says who it is, and goes back to where it came from.
//! Where the platform has a tester instead of a person, the buttons say how the check ends.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use domain::address::{Address, AddressDraft};
use domain::code::Code;
use domain::country::Country;
use domain::customer::{Customer, Identity, Individual};
use domain::id::IdentityCheckId;
use domain::kyc::IdentityCheck;
use domain::platform::Platform;
use domain::time::Date;
use maud::{Markup, html};
use ports::identity::Outcome;
use serde::Deserialize;
use service::{App, Error, identity};
use store::error::StoreError;

use super::{POLICY, later, nothing, page};
use crate::validate::is_name;

/// Characters of one field of the form, as of the same field in the API.
const FIELD_MAX: usize = 255;

/// What the person has filled in.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answers {
    outcome: String,
    full_name: String,
    birth_date: String,
    nationality: String,
    line1: String,
    line2: String,
    city: String,
    state: String,
    postal_code: String,
    country: String,
}

/// A field of the form: its name, its label, and what is typed into it.
type Field = (&'static str, &'static str, fn(&Answers) -> &str);

const FIELDS: [Field; 9] = [
    ("fullName", "Full name", |answers| &answers.full_name),
    ("birthDate", "Date of birth (YYYY-MM-DD)", |answers| &answers.birth_date),
    ("nationality", "Nationality (two letters, such as GB)", |answers| &answers.nationality),
    ("line1", "Street and number", |answers| &answers.line1),
    ("line2", "Flat, floor or building", |answers| &answers.line2),
    ("city", "City", |answers| &answers.city),
    ("state", "State or region", |answers| &answers.state),
    ("postalCode", "Postal code", |answers| &answers.postal_code),
    ("country", "Country (two letters)", |answers| &answers.country),
];

/// What is wrong with fields of the form, by name.
type Mistakes = Vec<(&'static str, String)>;

impl Answers {
    /// What the person says about itself, or everything that is wrong with it.
    fn individual(&self) -> Result<Individual, Mistakes> {
        let mut mistakes = Mistakes::new();
        for (name, _, value) in FIELDS {
            let value = value(self);
            if value.chars().count() > FIELD_MAX || value.chars().any(char::is_control) {
                mistakes.push((name, format!("must be a text of at most {FIELD_MAX} characters")));
            }
        }
        if !is_name(&self.full_name) {
            mistakes.push(("fullName", "must be a name".to_owned()));
        }
        let given = |text: &str| (!text.trim().is_empty()).then(|| text.trim().to_owned());
        let birth_date = given(&self.birth_date).and_then(|text| {
            let date = Date::parse(&text);
            date.map_err(|error| mistakes.push(("birthDate", error.to_string()))).ok()
        });
        let nationality = given(&self.nationality).and_then(|text| {
            let country = Country::parse(&text.to_ascii_uppercase());
            country.map_err(|error| mistakes.push(("nationality", error.to_string()))).ok()
        });
        let draft = AddressDraft {
            line1: given(&self.line1),
            line2: given(&self.line2),
            city: given(&self.city),
            state: given(&self.state),
            postal_code: given(&self.postal_code),
            country: given(&self.country).map(|text| text.to_ascii_uppercase()),
        };
        let address = if draft == AddressDraft::default() {
            None
        } else {
            let refused = |errors: Vec<domain::account_info::FieldError>| {
                for error in errors {
                    let field = FIELDS.iter().find(|(name, _, _)| *name == error.field);
                    mistakes.push((field.map_or("line1", |(name, _, _)| name), error.message));
                }
            };
            Address::new(&draft).map_err(refused).ok()
        };
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let full_name = Some(self.full_name.clone());
        Ok(Individual { full_name, birth_date, nationality, address })
    }
}

/// What a link opens: the check with whose it is.
struct Opened {
    check: IdentityCheck,
    customer: Customer,
    platform: Platform,
}

impl Opened {
    /// Whether the link can be used, by the clock of its platform.
    fn is_usable(&self, app: &App) -> bool {
        self.check.is_usable(app.now(self.platform.ahead))
    }
}

fn id(app: &App, code: &str) -> Option<IdentityCheckId> {
    Code::parse(code).map(|code| app.store().keyring().identity_check(&code))
}

async fn look(app: &App, id: IdentityCheckId) -> Result<Option<Opened>, StoreError> {
    app.store()
        .look(move |view| {
            let Some(check) = view.get::<IdentityCheck>(&id)? else { return Ok(None) };
            let customer = view.get::<Customer>(&check.draft().customer)?;
            let platform = view.get::<Platform>(&check.draft().platform)?;
            let (Some(customer), Some(platform)) = (customer, platform) else { return Ok(None) };
            Ok(Some(Opened {
                check: IdentityCheck::clone(&check),
                customer: Customer::clone(&customer),
                platform: Platform::clone(&platform),
            }))
        })
        .await
}

/// The check behind a link that can still be used, or the page that says why there is none.
async fn usable(app: &App, code: &str) -> Result<Opened, Response> {
    let id = id(app, code).ok_or_else(nothing)?;
    match look(app, id).await {
        Ok(Some(opened)) if opened.is_usable(app) => Ok(opened),
        Ok(Some(_)) => Err(over()),
        Ok(None) => Err(nothing()),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &impl std::fmt::Display) -> Response {
    tracing::error!(%error, "the page of an identity check could not be shown");
    later()
}

/// Shows the form.
pub async fn show(State(app): State<App>, Path(code): Path<String>) -> Response {
    match usable(&app, &code).await {
        Ok(opened) => form(&app, &opened, &Answers::default(), &Mistakes::new()),
        Err(response) => response,
    }
}

/// Takes what the person has filled in.
pub async fn submit(
    State(app): State<App>,
    Path(code): Path<String>,
    answers: Result<Form<Answers>, FormRejection>,
) -> Response {
    let opened = match usable(&app, &code).await {
        Ok(opened) => opened,
        Err(response) => return response,
    };
    let Ok(Form(answers)) = answers else {
        return form(&app, &opened, &Answers::default(), &Mistakes::new());
    };
    let allowed = app.env().identification(opened.platform.mode).outcomes();
    let outcome = allowed.iter().copied().find(|outcome| outcome.name() == answers.outcome);
    let Some(outcome) = outcome else {
        return form(&app, &opened, &answers, &Mistakes::new());
    };
    let needs_person =
        outcome != Outcome::Canceled && matches!(opened.customer.identity, Identity::Individual(_));
    let stated = if needs_person { answers.individual() } else { Ok(Individual::default()) };
    let stated = match stated {
        Ok(stated) => stated,
        Err(mistakes) => return form(&app, &opened, &answers, &mistakes),
    };
    let (id, now, unit_app) = (opened.check.id(), app.server_now(), app.clone());
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        identity::complete(&unit_app, unit, id, &stated, outcome, now)
    };
    match app.store().write(work).await {
        Ok(check) => done(&check),
        Err(Error::IdentityCheckOver) => over(),
        Err(error) => failed(&error),
    }
}

fn form(app: &App, opened: &Opened, answers: &Answers, mistakes: &Mistakes) -> Response {
    let Opened { check, customer, platform } = opened;
    let field = |(name, label, value): &Field| -> Markup {
        html! {
            label {
                (label)
                input name=(name) value=(value(answers)) autocomplete="off";
            }
            @for (_, mistake) in mistakes.iter().filter(|(wrong, _)| wrong == name) {
                p.mistake { (mistake) }
            }
        }
    };
    let content = html! {
        p { (platform.name) " asks who you are." }
        form method="post" {
            @match &customer.identity {
                Identity::Individual(_) => { @for one in &FIELDS { (field(one)) } }
                Identity::Business(business) => { p.code { (business.legal_name) } }
            }
            @for outcome in app.env().identification(platform.mode).outcomes() {
                button name="outcome" value=(outcome.name()) { (label(*outcome)) }
            }
        }
        p.quiet { "This link works once, until " (check.draft().expires_at) "." }
    };
    let status = if mistakes.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let mut response = page(status, "Identity check", content);
    let policy = policy(check.draft().redirect_uri.as_deref());
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

fn label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Approved => "Approve",
        Outcome::Rejected => "Reject",
        Outcome::LeftToOperator => "Submit for review",
        Outcome::Canceled => "Cancel",
    }
}

/// The rules of the other pages, but the form may be sent here, and its answer may lead to where
/// the platform said that the person goes: browsers hold a redirect after a form to the same rule.
fn policy(redirect_uri: Option<&str>) -> HeaderValue {
    let target = redirect_uri.and_then(|uri| uri.parse::<Uri>().ok());
    let origin = target.and_then(|uri| {
        let (scheme, authority) = (uri.scheme_str()?.to_owned(), uri.authority()?.to_string());
        // What else an authority may hold would end the rule and begin another.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        authority.chars().all(is_plain).then(|| format!(" {scheme}://{authority}"))
    });
    let rule = format!("form-action 'self'{}", origin.unwrap_or_default());
    let policy = POLICY.replace("form-action 'none'", &rule);
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static(POLICY))
}

/// Sends the person to where the platform said, or thanks it.
fn done(check: &IdentityCheck) -> Response {
    let target = check.draft().redirect_uri.as_deref();
    if let Some(location) = target.and_then(|uri| HeaderValue::from_str(uri).ok()) {
        let mut response = StatusCode::SEE_OTHER.into_response();
        super::protect(response.headers_mut());
        response.headers_mut().insert(header::LOCATION, location);
        return response;
    }
    page(StatusCode::OK, "Thank you", html! { p { "You can close this page." } })
}

fn over() -> Response {
    let content = html! { p { "It works once, and for a day. Ask for a new one." } };
    page(StatusCode::GONE, "This link cannot be used any more", content)
}
