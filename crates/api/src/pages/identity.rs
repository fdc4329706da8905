//! The page of an identity check: the person says who it is, and goes back to where it came from.
//! Where the platform has a tester instead of a person, the buttons say how the check ends.

use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path};
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
use service::error::CustomerError;
use service::{App, Error, identity};
use store::error::StoreError;

use super::{POLICY, later, moment, nothing, page};
use crate::extract::Acting;
use crate::validate::is_name;

/// Characters of one field of the form, as of the same field in the API.
const FIELD_MAX: usize = 255;

/// The values that the person has filled in.
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

/// A field of the form.
struct Field {
    name: &'static str,
    label: &'static str,
    input: Input,
    /// Under which name browsers know what people fill in here (HTML, 4.10.18.7).
    autocomplete: &'static str,
    value: fn(&Answers) -> &str,
}

/// How a field is filled in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    /// A text that cannot be left out.
    Required,
    /// A text.
    Text,
    /// A day up to today.
    PastDate,
    /// A country from the list.
    Country,
}

impl Field {
    const fn new(
        name: &'static str,
        label: &'static str,
        input: Input,
        autocomplete: &'static str,
        value: fn(&Answers) -> &str,
    ) -> Self {
        Self { name, label, input, autocomplete, value }
    }
}

/// The person. Browsers know a person's country and not its nationality.
const PERSON: [Field; 3] = [
    Field::new("fullName", "Full name", Input::Required, "name", |answers| &answers.full_name),
    Field::new("birthDate", "Date of birth", Input::PastDate, "bday", |answers| {
        &answers.birth_date
    }),
    Field::new("nationality", "Nationality", Input::Country, "off", |answers| &answers.nationality),
];

/// Where the person lives.
const ADDRESS: [Field; 6] = [
    Field::new("line1", "Street and number", Input::Text, "address-line1", |answers| {
        &answers.line1
    }),
    Field::new("line2", "Flat, floor or building", Input::Text, "address-line2", |answers| {
        &answers.line2
    }),
    Field::new("city", "City", Input::Text, "address-level2", |answers| &answers.city),
    Field::new("state", "State or region", Input::Text, "address-level1", |answers| &answers.state),
    Field::new("postalCode", "Postal code", Input::Text, "postal-code", |answers| {
        &answers.postal_code
    }),
    Field::new("country", "Country", Input::Country, "country", |answers| &answers.country),
];

/// Errors of fields of the form, by name.
type Mistakes = Vec<(&'static str, String)>;

/// A text without the blanks around it, unless nothing is left.
fn given(text: &str) -> Option<String> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}

impl Answers {
    /// The person's data, or every error in it.
    fn individual(&self, today: Date) -> Result<Individual, Mistakes> {
        let mut mistakes = Mistakes::new();
        for Field { name, label, value, .. } in PERSON.iter().chain(&ADDRESS) {
            let value = value(self);
            if value.chars().count() > FIELD_MAX || value.chars().any(char::is_control) {
                let most = format!("{label} must be a text of at most {FIELD_MAX} characters.");
                mistakes.push((name, most));
            }
        }
        let full_name = given(&self.full_name).filter(|name| is_name(name));
        if full_name.is_none() {
            let message = "Enter your full name as it is in your passport.";
            mistakes.push(("fullName", message.to_owned()));
        }
        let birth_date = given(&self.birth_date).and_then(|text| {
            let date = Date::parse(&text).map_err(|error| format!("{error}.")).and_then(|date| {
                let checked = date.check_birth(today);
                checked.map(|()| date).map_err(|error| format!("Date of birth {error}."))
            });
            date.map_err(|message| mistakes.push(("birthDate", message))).ok()
        });
        let nationality = given(&self.nationality).and_then(|text| {
            let country = Country::parse(&text.to_ascii_uppercase()).ok();
            if country.is_none() {
                mistakes.push(("nationality", format!("'{text}' is not a country of the list.")));
            }
            country
        });
        let address = self.address(&mut mistakes);
        if mistakes.is_empty() {
            Ok(Individual { full_name, birth_date, nationality, address, ..Individual::default() })
        } else {
            Err(mistakes)
        }
    }

    /// The address, if there is one and nothing is wrong with it.
    fn address(&self, mistakes: &mut Mistakes) -> Option<Address> {
        let draft = AddressDraft {
            line1: given(&self.line1),
            line2: given(&self.line2),
            city: given(&self.city),
            state: given(&self.state),
            postal_code: given(&self.postal_code),
            country: given(&self.country).map(|text| text.to_ascii_uppercase()),
        };
        if draft == AddressDraft::default() {
            return None;
        }
        let errors = match Address::new(&draft) {
            Ok(address) => return Some(address),
            Err(errors) => errors,
        };
        for error in errors {
            let field = ADDRESS.iter().find(|field| field.name == error.field);
            let Field { name, label, .. } = field.unwrap_or(&ADDRESS[0]);
            mistakes.push((name, format!("{label}: {}.", error.message)));
        }
        None
    }
}

/// The check behind a link, with its customer.
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

async fn read(app: &App, id: IdentityCheckId) -> Result<Option<Opened>, StoreError> {
    app.store()
        .read(move |view| {
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
    match read(app, id).await {
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
pub async fn show(Acting(app): Acting, Path(code): Path<String>) -> Response {
    match usable(&app, &code).await {
        Ok(opened) => form(&app, &opened, &Answers::default(), &Mistakes::new()),
        Err(response) => response,
    }
}

/// Takes what the person has filled in.
pub async fn submit(
    Acting(app): Acting,
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
    let today = app.now(opened.platform.ahead).date();
    let needs_person =
        outcome != Outcome::Canceled && matches!(opened.customer.identity, Identity::Individual(_));
    let stated = if needs_person { answers.individual(today) } else { Ok(Individual::default()) };
    let stated = match stated {
        Ok(stated) => stated,
        Err(mistakes) => return form(&app, &opened, &answers, &mistakes),
    };
    let (id, now, unit_app) = (opened.check.id(), app.server_now(), app.clone());
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        identity::complete(&unit_app, unit, id, &stated, outcome, now)
    };
    match app.store().write(app.origin(), work).await {
        Ok(check) => done(&check),
        Err(Error::Customer(CustomerError::IdentityCheckOver)) => over(),
        Err(error) => failed(&error),
    }
}

fn form(app: &App, opened: &Opened, answers: &Answers, mistakes: &Mistakes) -> Response {
    let Opened { check, customer, platform } = opened;
    let today = app.now(platform.ahead).date();
    let field = |one: &Field| field(one, answers, mistakes, today);
    let content = html! {
        p { (platform.name) " asks who you are." }
        @if let Some(note) = app.env().identification(platform.mode).note() { p.note { (note) } }
        @if !mistakes.is_empty() {
            p.mistake role="alert" { "Please look again at what is marked below." }
        }
        form method="post" {
            @match &customer.identity {
                Identity::Individual(_) => {
                    fieldset { legend { "You" } @for one in &PERSON { (field(one)) } }
                    fieldset { legend { "Your address" } @for one in &ADDRESS { (field(one)) } }
                }
                Identity::Business(business) => { p.code { (business.legal_name) } }
            }
            div.buttons {
                @for outcome in app.env().identification(platform.mode).outcomes() {
                    button name="outcome" value=(outcome.name())
                        formnovalidate[*outcome == Outcome::Canceled] { (label(*outcome)) }
                }
            }
        }
        p.quiet { "This link works once, until " (moment(check.draft().expires_at)) "." }
    };
    let status = if mistakes.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let mut response = page(status, "Identity check", &content);
    let policy = policy(check.draft().redirect_uri.as_deref());
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

/// A field with its label, what was filled in, and what is wrong with that.
fn field(field: &Field, answers: &Answers, mistakes: &Mistakes, today: Date) -> Markup {
    let Field { name, label, input, autocomplete, value } = field;
    let value = value(answers);
    let wrong: Vec<_> = mistakes.iter().filter(|(wrong, _)| wrong == name).collect();
    let is_wrong = (!wrong.is_empty()).then_some("true");
    let described_by = is_wrong.map(|_| format!("{name}-mistake"));
    html! {
        label for=(name) { (label) }
        @match input {
            Input::Required | Input::Text => {
                input id=(name) name=(name) value=(value) autocomplete=(autocomplete)
                    maxlength=(FIELD_MAX) required[*input == Input::Required]
                    aria-invalid=[is_wrong] aria-describedby=[described_by.as_deref()];
            }
            Input::PastDate => {
                input id=(name) name=(name) value=(value) autocomplete=(autocomplete)
                    type="date" max=(today)
                    aria-invalid=[is_wrong] aria-describedby=[described_by.as_deref()];
            }
            Input::Country => {
                select id=(name) name=(name) autocomplete=(autocomplete)
                    aria-invalid=[is_wrong] aria-describedby=[described_by.as_deref()] {
                    option value="" { "Choose a country" }
                    @for country in Country::all() {
                        option value=(country.code())
                            selected[value.trim().eq_ignore_ascii_case(country.code())] {
                            (country.name())
                        }
                    }
                }
            }
        }
        @if let Some(id) = &described_by {
            p.mistake id=(id) { @for (_, mistake) in &wrong { (mistake) " " } }
        }
    }
}

fn label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Approved => "Approve",
        Outcome::Rejected => "Reject",
        Outcome::LeftToOperator => "Submit for review",
        Outcome::Canceled => "Cancel",
    }
}

/// The rules of the other pages, but the form may be sent here, and its answer may lead to the
/// platform's own address: browsers hold a redirect after a form to the same rule.
fn policy(redirect_uri: Option<&str>) -> HeaderValue {
    let target = redirect_uri.and_then(|uri| uri.parse::<Uri>().ok());
    let origin = target.and_then(|uri| {
        let (scheme, authority) = (uri.scheme_str()?.to_owned(), uri.authority()?.to_string());
        // Other characters of an authority would end the rule and begin another.
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
    page(StatusCode::OK, "Thank you", &html! { p { "You can close this page." } })
}

fn over() -> Response {
    let content = html! { p { "It works once, and for a day. Ask for a new one." } };
    page(StatusCode::GONE, "This link cannot be used any more", &content)
}
