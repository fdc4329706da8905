//! `switchyard audit`: who changed what, from the journal.
//!
//! Only reads, so it may run beside the server.

use serde_json::{Value, json};
use store::audit::{Effect, Entry, audit};
use store::error::StoreError;
use store::origin::Actor;

use crate::command::{Failure, emit, print};
use crate::config::{Audit, Config, EXIT_OK};
use crate::wiring;

/// Prints each unit of work that changed an object, oldest first: a line for people, or an object
/// for programs.
pub fn run(config: &Config, options: &Audit) -> Result<u8, Failure> {
    wiring::refuse_missing(&config.database, "--database-url")?;
    let keyring = wiring::keyring_if_there(&config.database, &config.key)?.ok_or_else(|| {
        let line = "the journal is sealed: name the key of the database with --key-file or \
                    SWITCHYARD_SECRET_KEY";
        Failure::new(line).as_usage()
    })?;
    let mut printed = Ok(());
    let read = audit(&*config.database.engine(), &keyring, options.since, &mut |entry| {
        if !is_about(&entry, options.object.as_deref()) {
            return Ok(());
        }
        printed = emit(&described(&entry)).and_then(|()| print(&line(&entry)));
        // Standard output is closed: the rest need not be read.
        printed.clone().map_err(|failure| StoreError::Engine(failure.to_string()))
    });
    printed?;
    read.map_err(|error| wiring::failed(&config.database, error))?;
    Ok(EXIT_OK)
}

/// Whether an entry changed this object.
fn is_about(entry: &Entry, object: Option<&str>) -> bool {
    object.is_none_or(|object| entry.changes.iter().any(|(it, _)| it.eq_ignore_ascii_case(object)))
}

/// The entry for people.
fn line(entry: &Entry) -> String {
    let effects = [Effect::Created, Effect::Changed, Effect::Removed].into_iter();
    let changes = effects.filter_map(|effect| {
        let of_effect = entry.changes.iter().filter(|(_, it)| *it == effect);
        let objects: Vec<_> = of_effect.map(|(object, _)| object.as_str()).collect();
        (!objects.is_empty()).then(|| format!("{} {}", effect.name(), objects.join(", ")))
    });
    let mut changes: Vec<_> = changes.collect();
    if changes.is_empty() {
        changes.push("the whole database".to_owned());
    }
    let request = entry.origin.request.as_deref().unwrap_or("-");
    let (at, actor) = (entry.origin.at, named(&entry.origin.actor));
    format!("{at}  {actor}  {request}  {}\n", changes.join("; "))
}

/// The actor for people.
fn named(actor: &Actor) -> String {
    match actor {
        Actor::Token(_) => actor.token_id().map_or_else(String::new, |id| id.to_string()),
        Actor::Operator { command, by } => format!("{command} ({by})"),
        Actor::Job(name) => format!("job {name}"),
        Actor::Route(route) => format!("route {route}"),
    }
}

/// The entry for programs.
fn described(entry: &Entry) -> Value {
    let actor = match &entry.origin.actor {
        actor @ Actor::Token(_) => json!({ "token": actor.token_id().map(|id| id.to_string()) }),
        Actor::Operator { command, by } => json!({ "command": command, "by": by }),
        Actor::Job(name) => json!({ "job": name }),
        Actor::Route(route) => json!({ "route": route }),
    };
    let changes = entry
        .changes
        .iter()
        .map(|(object, effect)| json!({ "object": object, "effect": effect.name() }));
    json!({
        "at": entry.origin.at.to_string(),
        "journalRow": entry.row,
        "actor": actor,
        "requestId": entry.origin.request,
        "changes": changes.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use domain::id::TokenId;
    use domain::time::Timestamp;
    use store::origin::Origin;

    use super::*;

    fn entry(actor: Actor, request: Option<&str>) -> Entry {
        let request = request.map(str::to_owned);
        let changes = [("Customer:1", Effect::Changed), ("Quote:1", Effect::Created)];
        let changes = changes.into_iter().chain([("Quote:2", Effect::Created)]);
        Entry {
            row: 7,
            origin: Origin { actor, request, at: Timestamp::from_millis(0) },
            changes: changes.map(|(object, effect)| (object.to_owned(), effect)).collect(),
        }
    }

    #[test]
    fn people_see_who_changed_what() {
        let check = |actor, request, expected: &str| {
            let text = line(&entry(actor, request));
            let changes = "created Quote:1, Quote:2; changed Customer:1";
            assert_eq!(text, format!("1970-01-01T00:00:00.000Z  {expected}  {changes}\n"));
        };
        let token = "Token:019542f5-b3e7-1d02-0000-000000000001";
        let token = TokenId::parse(token).expect("an id");
        check(Actor::token(token), Some("r-1"), &format!("{token}  r-1"));
        check(Actor::job("ASK_RAIL"), None, "job ASK_RAIL  -");
        check(Actor::Route("/a".to_owned()), Some("r-2"), "route /a  r-2");
        let command = Actor::Operator { command: "token revoke".into(), by: "ada@host".into() };
        check(command, None, "token revoke (ada@host)  -");
    }

    #[test]
    fn programs_see_the_same() {
        let command = Actor::Operator { command: "token revoke".into(), by: "ada@host".into() };
        let value = described(&entry(command, None));
        assert_eq!(value["actor"], json!({ "command": "token revoke", "by": "ada@host" }));
        assert_eq!((&value["requestId"], &value["journalRow"]), (&Value::Null, &json!(7)));
        assert_eq!(value["changes"][0], json!({ "object": "Customer:1", "effect": "changed" }));
    }

    #[test]
    fn an_object_is_found_by_its_id() {
        let entry = entry(Actor::job("ASK_RAIL"), None);
        assert!(is_about(&entry, None) && is_about(&entry, Some("quote:2")));
        assert!(!is_about(&entry, Some("Quote:3")));
    }
}
