//! `switchyard attention`: matters that only a person can settle.

use std::sync::Arc;

use domain::attention::{Attention, Kind};
use domain::id::TransactionId;
use domain::money::Sending;
use domain::rail::Rail;
use domain::transaction::Transaction;
use serde_json::{Value, json};
use service::App;
use service::resolutions::{Finding, resolve};
use store::error::StoreError;
use store::reader::View;

use super::{Done, on, operator};
use crate::command::{Failure, aligned};
use crate::config::{AttentionCommand, Config, OneMatter, ResolveMatter};

/// Matters that are listed: more than a person goes through.
const LISTED_MAX: u32 = 1_000;

/// `switchyard attention …`.
pub async fn run(config: &Config, command: &AttentionCommand) -> Result<u8, Failure> {
    let (name, done) = match command {
        AttentionCommand::List(options) => {
            let name = "attention list";
            (name, on(config, name, async |app| list(app, options.all).await).await)
        }
        AttentionCommand::Show(options) => {
            let name = "attention show";
            (name, on(config, name, async |app| show(app, options).await).await)
        }
        AttentionCommand::Resolve(options) => {
            let name = "attention resolve";
            (name, on(config, name, async |app| settle(app, options).await).await)
        }
    };
    done?.tell(name)
}

/// The id of the subject of a matter.
fn subject(attention: &Attention) -> String {
    match attention.kind {
        Kind::RailContradiction | Kind::UnknownOutcome | Kind::LateReturn => {
            TransactionId::from_uuid(attention.subject).to_string()
        }
        Kind::DeadDeliveries => attention.platform.to_string(),
    }
}

async fn list(app: &App, with_resolved: bool) -> Result<Done, Failure> {
    let read = move |view: &mut View<'_>| view.attention(with_resolved, LISTED_MAX);
    let matters = app.store().read::<_, StoreError, _>(read).await?;
    if matters.is_empty() {
        let text = "nothing waits for a person\n".to_owned();
        return Ok(Done { text, value: json!({ "attention": [] }), changed: None });
    }
    let header = ["id", "kind", "subject", "since", "status", "count", "note"];
    let row = |it: &Arc<Attention>| {
        [
            it.id().to_string(),
            it.kind.name().to_owned(),
            subject(it),
            it.notice.at.to_string(),
            it.status().name().to_owned(),
            it.notice.count.to_string(),
            it.notice.note.clone(),
        ]
    };
    let rows: Vec<_> =
        std::iter::once(header.map(str::to_owned)).chain(matters.iter().map(row)).collect();
    let values: Vec<_> = matters.iter().map(|matter| described(matter)).collect();
    Ok(Done { text: aligned(&rows), value: json!({ "attention": values }), changed: None })
}

/// A matter for programs.
fn described(attention: &Attention) -> Value {
    let outcomes: Vec<_> = attention.kind.outcomes().iter().map(|it| it.name()).collect();
    json!({
        "id": attention.id().to_string(),
        "kind": attention.kind.name(),
        "status": attention.status().name(),
        "subject": subject(attention),
        "platform": attention.platform.to_string(),
        "openedAt": attention.notice.at.to_string(),
        "count": attention.notice.count,
        "note": attention.notice.note,
        "outcomes": outcomes,
        "resolution": attention.resolution.as_ref().map(|resolution| json!({
            "at": resolution.at.to_string(),
            "by": resolution.by,
            "reason": resolution.reason,
            "outcome": resolution.outcome.name(),
        })),
    })
}

/// The payment of a matter for programs, with the rail's own words, which the bank asks for.
fn payment(transaction: &Transaction) -> Value {
    let (draft, words) = (transaction.draft(), transaction.rail_words());
    let amount = draft.sent.map_or(draft.received.money(), Sending::money);
    json!({
        "id": transaction.id().to_string(),
        "status": transaction.status().name(),
        "amount": amount.minor(),
        "currency": amount.currency().code(),
        "rail": transaction.rail().map(Rail::name),
        "railCode": words.code(),
        "railText": words.text(),
        "railReference": words.reference(),
        "createdAt": transaction.created_at().to_string(),
    })
}

async fn show(app: &App, options: &OneMatter) -> Result<Done, Failure> {
    let id = options.id;
    let read = move |view: &mut View<'_>| {
        let found = view.get::<Attention>(&id)?;
        let transaction = match &found {
            Some(it) => view.get::<Transaction>(&TransactionId::from_uuid(it.subject))?,
            None => None,
        };
        Ok(found.map(|found| (found, transaction)))
    };
    let found = app.store().read::<_, StoreError, _>(read).await?;
    let Some((attention, transaction)) = found else { return Err(missing(options)) };
    let mut value = described(&attention);
    value["payment"] = transaction.map_or(Value::Null, |transaction| payment(&transaction));
    let text = lines(&value, "");
    Ok(Done { text, value, changed: None })
}

/// The fields of a value, one a line, without empty ones.
fn lines(value: &Value, before: &str) -> String {
    let mut text = String::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(shown) => text += &format!("{before}{name}: {shown}\n"),
            Value::Object(_) => text += &format!("{before}{name}:\n{}", lines(value, "  ")),
            Value::Array(all) => {
                let all: Vec<_> = all.iter().filter_map(Value::as_str).collect();
                text += &format!("{before}{name}: {}\n", all.join(", "));
            }
            Value::Bool(_) | Value::Number(_) => text += &format!("{before}{name}: {value}\n"),
        }
    }
    text
}

fn missing(OneMatter { id }: &OneMatter) -> Failure {
    Failure::new(format!("there is no {id}: switchyard attention list --all shows which there are"))
}

async fn settle(app: &App, options: &ResolveMatter) -> Result<Done, Failure> {
    let ResolveMatter { matter, reason, outcome } = options;
    let finding = Finding { outcome: *outcome, reason: reason.clone(), by: operator() };
    let resolved = resolve(app, matter.id, finding).await?.ok_or_else(|| missing(matter))?;
    let value = described(&resolved);
    let outcome = value["resolution"]["outcome"].as_str().unwrap_or_default();
    let text = format!("{} is resolved: {outcome}\n", matter.id);
    Ok(Done { text, value, changed: Some(matter.id.to_string()) })
}
