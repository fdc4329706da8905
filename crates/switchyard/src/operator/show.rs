//! `switchyard show`: the whole story of a payment.
//!
//! Everything that the database has of one payment, on one time line: states, postings, the
//! platform's decision, and each attempt to deliver an event. It answers "where is my payment?"
//! without the API, beside a server or without one.

use std::sync::Arc;

use domain::approval::Approval;
use domain::attention::Attention;
use domain::delivery::{self, Attempt, Delivery, Outcome};
use domain::id::TransactionId;
use domain::money::Sending;
use domain::platform::Platform;
use domain::quote::Quote;
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::{AccountRef, Destination, Source, Status, Transaction};
use ledger::account::{AccountKey, Side};
use ledger::posting::{Entry, Resolution};
use serde_json::{Value, json};
use service::App;
use store::books::{PostingRow, RowPhase};
use store::deliveries::DeliveryFilter;
use store::error::StoreError;
use store::list::PageRequest;
use store::reader::View;
use store::transactions::TransactionFilter;

use super::{Done, on};
use crate::command::Failure;
use crate::config::{Config, Show, Shown};

/// Open matters that are looked through: more than a person goes through.
const MATTERS_MAX: u32 = 1_000;

/// `switchyard show ID`.
pub async fn run(config: &Config, options: &Show) -> Result<u8, Failure> {
    on(config, "show", async |app| show(app, &options.what).await).await?.tell("show")
}

/// Everything that the database has of a payment.
struct Story {
    transaction: Arc<Transaction>,
    platform: Option<Arc<Platform>>,
    quote: Option<Arc<Quote>>,
    approval: Option<Arc<Approval>>,
    postings: Vec<PostingRow>,
    deliveries: Vec<Arc<Delivery>>,
    /// Matters of the payment that wait for a person.
    matters: Vec<Arc<Attention>>,
}

fn find(view: &mut View<'_>, what: &Shown) -> Result<Option<Story>, StoreError> {
    let id = match what {
        Shown::Transaction(id) => Some(*id),
        Shown::Quote(id) => view.get::<Quote>(id)?.map(|quote| quote.draft().transaction),
        Shown::Reference(text) => referenced(view, text)?,
    };
    let Some(transaction) = id.map_or(Ok(None), |id| view.get::<Transaction>(&id))? else {
        return Ok(None);
    };
    let draft = transaction.draft();
    let quote = match &draft.terms {
        Some(terms) => view.get::<Quote>(&terms.quote)?,
        None => None,
    };
    let resource = Some(draft.id.uuid());
    let filter = DeliveryFilter { resource, ..DeliveryFilter::default() };
    let mut deliveries = view.deliveries(draft.platform, &filter, PageRequest::ALL)?.rows;
    deliveries.sort_by_key(|delivery| delivery.draft().ordinal);
    let mut matters = view.attention(false, MATTERS_MAX)?;
    matters.retain(|matter| Some(matter.subject) == resource);
    Ok(Some(Story {
        platform: view.get::<Platform>(&draft.platform)?,
        quote,
        approval: view.get::<Approval>(&draft.id)?,
        postings: view.postings(draft.id)?,
        deliveries,
        matters,
        transaction: Arc::clone(&transaction),
    }))
}

/// The payment with a reconciliation reference, of whatever platform.
fn referenced(view: &mut View<'_>, text: &str) -> Result<Option<TransactionId>, StoreError> {
    for platform in view.platforms()? {
        let reference = Some(text.to_owned());
        let filter = TransactionFilter { reference, ..TransactionFilter::default() };
        let page = view.transactions(platform.id, &filter, PageRequest::ALL)?;
        if let Some(found) = page.rows.first() {
            return Ok(Some(found.id()));
        }
    }
    Ok(None)
}

async fn show(app: &App, what: &Shown) -> Result<Done, Failure> {
    let wanted = what.clone();
    let read = move |view: &mut View<'_>| find(view, &wanted);
    let found = app.store().read::<_, StoreError, _>(read).await?;
    let Some(story) = found else { return Err(missing(what)) };
    Ok(Done { text: story.text(), value: story.value(), changed: None })
}

fn missing(what: &Shown) -> Failure {
    Failure::new(match what {
        Shown::Transaction(id) => format!("there is no {id} in this database"),
        Shown::Quote(id) => format!("there is no {id} in this database"),
        Shown::Reference(text) => {
            format!("no payment in this database has the reference {text}")
        }
    })
}

/// Something that happened, at one place of the time line.
struct Step {
    at: Timestamp,
    what: &'static str,
    text: String,
    /// Lines below it.
    below: Vec<String>,
}

impl Story {
    /// The time line, oldest first. Of the same instant, a state comes before its postings, and
    /// these before what was sent.
    fn steps(&self) -> Vec<Step> {
        let state = |step: &domain::transaction::Step| Step {
            at: step.at,
            what: "state",
            text: step.status.name().to_owned(),
            below: Vec::new(),
        };
        let mut steps: Vec<_> = self.transaction.history().iter().map(state).collect();
        steps.extend(self.approval.iter().flat_map(|approval| decision(approval)));
        steps.extend(self.postings.iter().map(posted));
        for delivery in &self.deliveries {
            let attempt = |(number, attempt): (usize, &Attempt)| Step {
                at: attempt.at,
                what: "event",
                text: format!("{}, attempt {number}: {}", event(delivery), outcome(attempt)),
                below: Vec::new(),
            };
            steps.extend((1..).zip(&delivery.progress().attempts).map(attempt));
        }
        steps.sort_by_key(|step| step.at);
        steps
    }

    /// The next steps: of the server, of others, or of a person.
    fn next(&self) -> Vec<String> {
        let mut next = Vec::new();
        let has_quote = self.transaction.draft().terms.is_some();
        match self.transaction.status() {
            Status::Created => next.push("its platform is asked".to_owned()),
            Status::Pending => match (&self.approval, &self.quote) {
                (Some(approval), _) => {
                    next.push(format!("its platform decides until {}", approval.decide_by()));
                }
                (None, Some(quote)) if has_quote => {
                    let until = quote.draft().expires_at;
                    next.push(format!("its quote is executed until {until}, or expires"));
                }
                (None, _) => next.push("the rail is asked".to_owned()),
            },
            Status::Processing => next.push("the rail or the other side answers".to_owned()),
            Status::Completed
            | Status::Rejected
            | Status::Failed
            | Status::Refunded
            | Status::Expired => {}
        }
        for delivery in &self.deliveries {
            let (id, progress) = (delivery.id(), delivery.progress());
            match (progress.status, progress.due_at) {
                (delivery::Status::Pending, Some(due)) => {
                    next.push(format!("{} is sent at {due}", event(delivery)));
                }
                (delivery::Status::Dead, _) => next.push(format!(
                    "{} is given up: POST /webhooks/deliveries/{id}/retry sends it again",
                    event(delivery)
                )),
                _ => {}
            }
        }
        next.extend(self.matters.iter().map(|matter| {
            let (id, kind) = (matter.id(), matter.kind.name());
            format!("a person settles {kind}: switchyard attention show {id}")
        }));
        next
    }

    /// Names and values of the payment's own fields.
    fn fields(&self) -> Vec<(&'static str, String)> {
        let (transaction, draft) = (&self.transaction, self.transaction.draft());
        let words = transaction.rail_words();
        let mut fields = Vec::new();
        let mut add = |name, value: Option<String>| fields.extend(value.map(|it| (name, it)));
        let mode = self.platform.as_ref().map_or("", |platform| platform.mode.name());
        add("platform", Some(format!("{} {mode}", draft.platform).trim_end().to_owned()));
        add("customer", draft.owner.customer().map(|id| id.to_string()));
        add("direction", Some(draft.direction.name().to_owned()));
        add("from", draft.source.as_ref().map(source));
        add("to", Some(destination(&draft.destination)));
        add("sent", draft.sent.map(|sent| Sending::money(sent).to_string()));
        add("received", Some(draft.received.money().to_string()));
        let terms = draft.terms.as_ref();
        add("quote", terms.map(|terms| terms.quote.to_string()));
        add("rate", terms.map(|terms| terms.rate.value().to_string()));
        add("fees", terms.map(|terms| terms.fees.to_string()));
        add("reference", transaction.reference());
        add("request", transaction.request().map(str::to_owned));
        add("rail", transaction.rail().map(|rail| Rail::name(rail).to_owned()));
        add("rail code", words.code().map(str::to_owned));
        add("rail text", words.text().map(str::to_owned));
        add("rail reference", words.reference().map(str::to_owned));
        add("failure", transaction.failure().map(|reason| reason.name().to_owned()));
        let reason = transaction.reason();
        add("reason", reason.map(|reason| format!("{}: {}", reason.code(), reason.message())));
        fields
    }

    fn text(&self) -> String {
        let status = self.transaction.status().name();
        let mut text = format!("{} is {status}\n\n", self.transaction.id());
        for (name, value) in self.fields() {
            text += &format!("  {name:<15}{value}\n");
        }
        text.push('\n');
        for Step { at, what, text: step, below } in self.steps() {
            text += &format!("  {at}  {what:<8}  {step}\n");
            for line in below {
                text += &format!("      {line}\n");
            }
        }
        let next = self.next();
        if !next.is_empty() {
            text += "\nnext:\n";
        }
        for line in next {
            text += &format!("  {line}\n");
        }
        text
    }

    fn value(&self) -> Value {
        let fields = self.fields().into_iter().map(|(name, value)| (camel(name), json!(value)));
        let mut value = Value::Object(fields.collect());
        value["id"] = json!(self.transaction.id().to_string());
        value["status"] = json!(self.transaction.status().name());
        let step = |step: &Step| {
            let (at, what, text) = (step.at.to_string(), step.what, &step.text);
            json!({ "at": at, "what": what, "text": text })
        };
        value["timeline"] = self.steps().iter().map(step).collect();
        value["postings"] = self.postings.iter().map(posting_value).collect();
        value["next"] = json!(self.next());
        value
    }
}

/// A name as JSON has it.
fn camel(name: &str) -> String {
    let mut words = name.split(' ');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (head, rest) = word.split_at(1);
        name + &head.to_uppercase() + rest
    })
}

fn decision(approval: &Approval) -> Vec<Step> {
    let step = |at, text| Step { at, what: "approval", text, below: Vec::new() };
    let asked = format!("its platform is asked, until {}", approval.decide_by());
    let mut steps = vec![step(approval.asked_at(), asked)];
    if approval.updated_at() > approval.asked_at() {
        steps.push(step(approval.updated_at(), approval.status().name().to_owned()));
    }
    steps
}

fn account(account: AccountRef) -> String {
    match account {
        AccountRef::Internal(id) => id.to_string(),
        AccountRef::External(id) => id.to_string(),
    }
}

/// Where money comes from, without personal data.
fn source(source: &Source) -> String {
    match source {
        Source::Account { account: id, .. } => account(*id),
        Source::RealtimeFunding { network, .. } => match network {
            Some(network) => format!("a deposit on {network}"),
            None => "a deposit".to_owned(),
        },
        Source::Uma { .. } => "a UMA address".to_owned(),
    }
}

fn destination(destination: &Destination) -> String {
    match destination {
        Destination::Account { account: id, .. } => account(*id),
        Destination::Uma { .. } => "a UMA address".to_owned(),
    }
}

/// A posting as a bookkeeper says it, with its entries below.
fn posted(posting: &PostingRow) -> Step {
    let (number, movement) = (posting.number, posting.movement.name());
    let text = match posting.phase {
        RowPhase::Posted => format!("{number} {movement}, posted"),
        RowPhase::Pending => format!("{number} {movement}, pending"),
        RowPhase::Resolves(pending, Resolution::Post) => {
            format!("{number} {movement}: {pending} is posted")
        }
        RowPhase::Resolves(pending, Resolution::Void) => {
            format!("{number} {movement}: {pending} is voided")
        }
    };
    let below = posting.entries.iter().map(entry).collect();
    Step { at: posting.at, what: "posting", text, below }
}

/// An entry: the left side first, the right side moved in. The platform of an account stands above.
fn entry(entry: &Entry) -> String {
    let side = match entry.side() {
        Side::Debit => "Dr ",
        Side::Credit => "   Cr ",
    };
    let account = match entry.account() {
        AccountKey::Internal(id) => id.to_string(),
        AccountKey::Rail { rail, .. } => format!("rail {rail}"),
        AccountKey::Exchange { .. } => "exchange".to_owned(),
        AccountKey::Fees { .. } => "fees".to_owned(),
        AccountKey::Suspense { .. } => "suspense".to_owned(),
        AccountKey::Transit(_) => "transit".to_owned(),
    };
    format!("{side}{account}  {}", entry.amount())
}

fn posting_value(posting: &PostingRow) -> Value {
    let resolves = match posting.phase {
        RowPhase::Resolves(pending, _) => Some(pending),
        RowPhase::Pending | RowPhase::Posted => None,
    };
    let entry = |entry: &Entry| {
        json!({
            "account": entry.account().to_string(),
            "side": entry.side().name(),
            "amount": entry.amount().minor(),
            "currency": entry.amount().currency().code(),
        })
    };
    json!({
        "number": posting.number,
        "movement": posting.movement.name(),
        "phase": posting.phase.name(),
        "resolves": resolves,
        "at": posting.at.to_string(),
        "entries": posting.entries.iter().map(entry).collect::<Vec<_>>(),
    })
}

/// The event of a delivery: its kind, and the state of the payment that it tells of.
fn event(delivery: &Delivery) -> String {
    let draft = delivery.draft();
    format!("{} {}", draft.kind.name(), draft.number)
}

/// How an attempt ended. The body of an answer may tell of a person, and is not shown.
fn outcome(attempt: &Attempt) -> String {
    let millis = attempt.millis;
    match &attempt.outcome {
        Outcome::Answered { status, .. } => format!("{status} in {millis} ms"),
        Outcome::Refused(why) => format!("not sent: {why}"),
        Outcome::Unreachable => format!("no connection after {millis} ms"),
        Outcome::TimedOut => format!("no answer in {millis} ms"),
    }
}
