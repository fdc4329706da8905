//! `switchyard uma`: other institutions, as the platforms of this server know them.

use std::sync::Arc;

use domain::platform::Platform;
use domain::uma_address::UmaDomain;
use domain::uma_peer::{Rule, UmaPeer};
use serde_json::{Value, json};
use service::App;
use service::uma::{keys, peers};

use super::{Done, all_platforms, existing_platform, on};
use crate::command::{Failure, aligned};
use crate::config::{Config, PeerRule, RotateUmaKeys, UmaCommand};
#[cfg(feature = "ldk")]
use crate::wiring;

/// `switchyard uma …`.
pub async fn run(config: &Config, command: &UmaCommand) -> Result<u8, Failure> {
    let name = match command {
        UmaCommand::Peers => "uma peers",
        UmaCommand::Allow(_) => "uma allow",
        UmaCommand::Block(_) => "uma block",
        UmaCommand::Forget(_) => "uma forget",
        UmaCommand::RotateKeys(_) => "uma rotate-keys",
        #[cfg(feature = "ldk")]
        UmaCommand::Node => "uma node",
    };
    let done = match command {
        UmaCommand::Peers => on(config, name, list).await,
        UmaCommand::Allow(options) => {
            on(config, name, async |app| set_rule(app, options, Rule::Allowed).await).await
        }
        UmaCommand::Block(options) => {
            on(config, name, async |app| set_rule(app, options, Rule::Blocked).await).await
        }
        UmaCommand::Forget(options) => {
            on(config, name, async |app| forget(app, &options.domain).await).await
        }
        UmaCommand::RotateKeys(options) => {
            on(config, name, async |app| rotate(app, options).await).await
        }
        #[cfg(feature = "ldk")]
        UmaCommand::Node => node(config, name).await,
    };
    done?.tell(name)
}

async fn list(app: &App) -> Result<Done, Failure> {
    let header = [
        "domain",
        "platform",
        "rule",
        "version",
        "last request",
        "outcome",
        "ms",
        "at",
        "keys until",
    ];
    let peers = peers::all(app).await?;
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned))
        .chain(peers.iter().map(|peer| row(peer)))
        .collect();
    let values: Vec<_> = peers.iter().map(|peer| described(peer)).collect();
    Ok(Done { text: aligned(&rows), value: json!({ "peers": values }), changed: None })
}

fn row(peer: &UmaPeer) -> [String; 9] {
    let none = || "-".to_owned();
    let (last, keys) = (peer.last.as_ref(), peer.keys.as_ref());
    [
        peer.domain.to_string(),
        peer.platform.to_string(),
        peer.rule.name().to_owned(),
        last.and_then(|last| last.version.clone()).unwrap_or_else(none),
        last.map_or_else(none, |last| last.request.to_owned()),
        last.map_or_else(none, |last| last.outcome.clone()),
        last.map_or_else(none, |last| last.millis.to_string()),
        last.map_or_else(none, |last| last.at.to_string()),
        keys.map_or_else(none, |keys| keys.until.to_string()),
    ]
}

/// An institution for programs. Its keys are public.
fn described(peer: &UmaPeer) -> Value {
    json!({
        "domain": peer.domain.to_string(),
        "platform": peer.platform.to_string(),
        "rule": peer.rule.name(),
        "createdAt": peer.created_at.to_string(),
        "keys": peer.keys.as_ref().map(|keys| json!({
            "signing": keys.signing_hex,
            "encryption": keys.encryption_hex,
            "until": keys.until.to_string(),
        })),
        "last": peer.last.as_ref().map(|last| json!({
            "request": last.request,
            "outcome": last.outcome,
            "version": last.version,
            "milliseconds": last.millis,
            "at": last.at.to_string(),
        })),
    })
}

async fn set_rule(app: &App, options: &PeerRule, rule: Rule) -> Result<Done, Failure> {
    let platform = match options.platform {
        Some(id) => existing_platform(app, id).await?,
        None => only_platform(app).await?,
    };
    peers::set_rule(app, platform.id, options.domain.clone(), rule).await?;
    let (id, domain) = (platform.id.to_string(), options.domain.to_string());
    let text = match rule {
        Rule::Blocked => format!("{id} pays {domain} nothing and takes nothing from it\n"),
        Rule::Allowed | Rule::Unset => format!("{id} deals with {domain}\n"),
    };
    let value = json!({ "platform": id, "domain": domain, "rule": rule.name() });
    Ok(Done { text, value, changed: Some(id) })
}

/// Drops the keys of an institution. None are kept of one that was never met.
async fn forget(app: &App, domain: &UmaDomain) -> Result<Done, Failure> {
    let platforms = peers::forget_keys(app, domain.clone()).await?;
    let text = match platforms.is_empty() {
        true => format!("no keys of {domain} are kept\n"),
        false => format!("the keys of {domain} are fetched again\n"),
    };
    let ids: Vec<_> = platforms.iter().map(ToString::to_string).collect();
    let value = json!({ "domain": domain.to_string(), "platforms": ids });
    let changed = (!platforms.is_empty()).then(|| domain.to_string());
    Ok(Done { text, value, changed })
}

/// The platform that is meant where none is named.
async fn only_platform(app: &App) -> Result<Arc<Platform>, Failure> {
    let mut all = all_platforms(app).await?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err(Failure::new(
            "name the platform with --platform: switchyard platform list shows which there are",
        )
        .as_usage()),
    }
}

/// The id of the Lightning node, which follows from the secret of the database.
#[cfg(feature = "ldk")]
async fn node(config: &Config, name: &str) -> Result<Done, Failure> {
    // Nodes are given their peers before they start: then this makes the database.
    let opened = super::open(config, name)?;
    let id = crate::lightning_node::id(opened.app.store().keyring());
    wiring::close(opened).await;
    Ok(Done { text: format!("{id}\n"), value: json!({ "node": id }), changed: None })
}

async fn rotate(app: &App, options: &RotateUmaKeys) -> Result<Done, Failure> {
    let begins_at = keys::rotate(app, options.domain.clone()).await?;
    let domain = options.domain.to_string();
    let Some(begins_at) = begins_at else {
        return Err(Failure::new(format!("no platform has the domain {domain}")));
    };
    let text = format!("{domain} signs with new keys from {begins_at} on\n");
    let value = json!({ "domain": domain, "beginsAt": begins_at.to_string() });
    Ok(Done { text, value, changed: Some(domain) })
}
