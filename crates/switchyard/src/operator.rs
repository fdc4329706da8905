//! `switchyard platform`, `customer`, `token`, `uma`, `attention`, `show`, `ledger`, `rates` and
//! `key`: commands of the operator alone. They may run beside the server, which sees their changes
//! with its next read of the database.

pub mod attention;
pub mod keys;
pub mod ledger;
pub mod rates;
pub mod show;
pub mod uma;

use std::sync::Arc;

use adapters::rails::scenarios::Scenarios;
use domain::currency::Currency;
use domain::customer::KycStatus;
use domain::id::PlatformId;
use domain::platform::{CorridorRule, Mode, Platform};
use domain::token::Token;
use serde_json::{Value, json};
use service::erasure::{self, Erased};
use service::error::{CustomerError, TokenError};
use service::platforms::{self, NewPlatform};
use service::{App, Error, identity, owners, tokens};
use store::audit;
use store::customers::CustomerFilter;
use store::error::StoreError;
use store::keyring::Keyring;
use store::list::PageRequest;
use store::origin::{Actor, Origin};
use store::tokens::TokenFilter;

use crate::command::{Failure, aligned, emit, print};
use crate::config::{
    Config, CreatePlatform, CreateToken, CustomerCommand, EXIT_OK, ListTokens, OneCustomer,
    PlatformCommand, RevokeToken, SetCostDrift, SetDomain, SetEvents, SetPricing, SetScenarios,
    TokenCommand,
};
use crate::database::Database;
use crate::telemetry::log_change;
use crate::wiring::{self, Opened};

/// The outcome of a command, for people and for programs.
struct Done {
    text: String,
    value: Value,
    /// The id of what was changed; nothing for commands that only show.
    changed: Option<String>,
}

impl Done {
    /// Logs the change that the command has made, and prints what it has done.
    fn tell(&self, command: &str) -> Result<u8, Failure> {
        if let Some(object) = &self.changed {
            log_change(command, object);
        }
        print(&self.text)?;
        emit(&self.value)?;
        Ok(EXIT_OK)
    }
}

/// `switchyard platform …`.
pub async fn platform(config: &Config, command: &PlatformCommand) -> Result<u8, Failure> {
    let name = match command {
        PlatformCommand::List => "platform list",
        PlatformCommand::Create(_) => "platform create",
        PlatformCommand::SetPricing(_) => "platform set-pricing",
        PlatformCommand::SetDomain(_) => "platform set-domain",
        PlatformCommand::SetScenarios(_) => "platform set-scenarios",
        PlatformCommand::SetEvents(_) => "platform set-events",
        PlatformCommand::SetCostDrift(_) => "platform set-cost-drift",
    };
    let opened = match command {
        // An operator may want a live platform only: then no sandbox is made by a first start.
        PlatformCommand::Create(_) => open(config, name)?,
        PlatformCommand::List
        | PlatformCommand::SetPricing(_)
        | PlatformCommand::SetDomain(_)
        | PlatformCommand::SetScenarios(_)
        | PlatformCommand::SetEvents(_)
        | PlatformCommand::SetCostDrift(_) => open_existing(config, name)?,
    };
    let done = match command {
        PlatformCommand::List => list_platforms(&opened.app).await,
        PlatformCommand::Create(options) => create_platform(&opened.app, options).await,
        PlatformCommand::SetPricing(options) => set_pricing(&opened.app, options).await,
        PlatformCommand::SetDomain(options) => set_domain(&opened.app, options).await,
        PlatformCommand::SetScenarios(options) => set_scenarios(&opened.app, options).await,
        PlatformCommand::SetEvents(options) => set_events(&opened.app, options).await,
        PlatformCommand::SetCostDrift(options) => set_cost_drift(&opened.app, options).await,
    };
    wiring::close(opened).await;
    done?.tell(name)
}

/// `switchyard customer …`.
pub async fn customer(config: &Config, command: &CustomerCommand) -> Result<u8, Failure> {
    let name = match command {
        CustomerCommand::Pending => "customer pending",
        CustomerCommand::Approve(_) => "customer approve",
        CustomerCommand::Reject(_) => "customer reject",
        CustomerCommand::Erase(_) => "customer erase",
    };
    let opened = open_existing(config, name)?;
    let done = match command {
        CustomerCommand::Pending => list_pending(&opened.app).await,
        CustomerCommand::Approve(options) => decide(&opened.app, options, true).await,
        CustomerCommand::Reject(options) => decide(&opened.app, options, false).await,
        CustomerCommand::Erase(options) => erase(&opened.app, options).await,
    };
    wiring::close(opened).await;
    done?.tell(name)
}

/// `switchyard token …`.
pub async fn token(config: &Config, command: &TokenCommand) -> Result<u8, Failure> {
    let name = match command {
        TokenCommand::List(_) => "token list",
        TokenCommand::Create(_) => "token create",
        TokenCommand::Revoke(_) => "token revoke",
    };
    let opened = open_existing(config, name)?;
    let done = match command {
        TokenCommand::List(options) => list_tokens(&opened.app, options).await,
        TokenCommand::Create(options) => create_token(&opened.app, options).await,
        TokenCommand::Revoke(options) => revoke_token(&opened.app, options).await,
    };
    wiring::close(opened).await;
    done?.tell(name)
}

/// Opens the database for a command, which acts for the person who runs it.
fn open(config: &Config, command: &str) -> Result<Opened, Failure> {
    let database = config.database.for_a_command();
    let opened = wiring::open(&database, &config.key, wiring::default_env())?;
    Ok(Opened { app: opened.app.acting_for(actor(command), None), ..opened })
}

/// Keeps in the journal that a command did something to a whole database.
pub(crate) fn keep(command: &str, database: &Database, keyring: &Keyring) -> Result<(), Failure> {
    audit::keep(&*database.engine(), keyring, origin(command)).map_err(|error| {
        Failure::new(format!(
            "{command} is done, but the journal of {database} could not take note of it: {error}"
        ))
    })
}

/// The origin of what a command does to a whole database.
pub(crate) fn origin(command: &str) -> Origin {
    Origin { actor: actor(command), request: None, at: wiring::default_env().clock.now() }
}

/// The actor of what a command changes.
fn actor(command: &str) -> Actor {
    Actor::Operator { command: command.to_owned(), by: operator() }
}

/// The person who runs this process and the machine, as the system names them.
#[cfg(unix)]
fn operator() -> String {
    let id = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(id).ok().flatten().map(|user| user.name);
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let user = user.unwrap_or_else(|| id.to_string());
    format!("{user}@{}", host.as_deref().unwrap_or("unknown"))
}

/// The system is not asked.
#[cfg(not(unix))]
fn operator() -> String {
    "unknown".to_owned()
}

/// Does something on the database of the command line.
async fn on(
    config: &Config,
    name: &str,
    work: impl AsyncFnOnce(&App) -> Result<Done, Failure>,
) -> Result<Done, Failure> {
    let opened = open_existing(config, name)?;
    let done = work(&opened.app).await;
    wiring::close(opened).await;
    done
}

/// A command about what exists must not make an empty database where a name was mistyped.
fn open_existing(config: &Config, command: &str) -> Result<Opened, Failure> {
    let database = &config.database;
    if !wiring::holds_data(database)? {
        wiring::refuse_lost_tables(database)?;
        return Err(Failure::new(format!(
            "there is no database at {database}: start the server once, or name another with \
             --database-url"
        )));
    }
    open(config, command)
}

async fn all_platforms(app: &App) -> Result<Vec<Arc<Platform>>, Failure> {
    Ok(app.store().read::<_, StoreError, _>(|view| view.platforms()).await?)
}

/// Refuses an id that no platform has.
async fn existing_platform(app: &App, id: PlatformId) -> Result<Arc<Platform>, Failure> {
    let read = move |view: &mut store::reader::View<'_>| view.get::<Platform>(&id);
    match app.store().read::<_, StoreError, _>(read).await? {
        Some(platform) => Ok(platform),
        None => Err(Failure::new(format!(
            "there is no platform {id}: switchyard platform list shows which there are"
        ))),
    }
}

async fn list_platforms(app: &App) -> Result<Done, Failure> {
    let row = |platform: &Platform| {
        [
            platform.id.to_string(),
            platform.mode.name().to_owned(),
            platform.uma_domain.to_string(),
            platform.created_at.to_string(),
            platform.name.clone(),
        ]
    };
    let header = ["id", "mode", "UMA domain", "created", "name"].map(str::to_owned);
    let platforms = all_platforms(app).await?;
    let rows: Vec<_> =
        std::iter::once(header).chain(platforms.iter().map(|platform| row(platform))).collect();
    let values: Vec<_> = platforms.iter().map(|platform| described(platform)).collect();
    Ok(Done { text: aligned(&rows), value: json!({ "platforms": values }), changed: None })
}

/// A platform for programs.
fn described(platform: &Platform) -> Value {
    json!({
        "id": platform.id.to_string(),
        "mode": platform.mode.name(),
        "umaDomain": platform.uma_domain.to_string(),
        "isRegulated": platform.is_regulated,
        "costDriftMaxBasisPoints": platform.cost_drift_max.get(),
        "createdAt": platform.created_at.to_string(),
        "name": platform.name,
    })
}

/// Limits of a live platform in this release.
const LIVE: &str = "
This release connects live platforms to no payment rail and to no Lightning node. It has
customers, identities that you decide about, accounts, quotes and payments between accounts of
this server. It refuses at once external accounts, transfers in and out, and UMA addresses of
other institutions (501 NOT_IMPLEMENTED), and quotes that are funded in real time (400). Rates are
those of --rates-file, and without one nothing is quoted. docs/operating.md says more.
";

async fn create_platform(app: &App, options: &CreatePlatform) -> Result<Done, Failure> {
    let new = NewPlatform {
        name: options.name.clone(),
        mode: if options.live { Mode::Live } else { Mode::Sandbox },
        uma_domain: options.uma_domain.clone(),
        is_regulated: options.regulated,
    };
    let platform = platforms::create(app, new).await?;
    let mut text = format!(
        "made platform {id} ({mode})\n\nIt has no token yet:\n\n  \
         switchyard token create --platform {id} --name first --permissions VIEW,TRANSACT,MANAGE\n",
        id = platform.id,
        mode = platform.mode.name(),
    );
    if platform.mode == Mode::Live {
        text += LIVE;
    }
    Ok(Done { text, value: described(&platform), changed: Some(platform.id.to_string()) })
}

async fn set_domain(app: &App, options: &SetDomain) -> Result<Done, Failure> {
    let (id, domain) = (options.platform, options.uma_domain.clone());
    existing_platform(app, id).await?;
    platforms::set_domain(app, id, domain.clone()).await?;
    Ok(Done {
        text: format!("{id} now gives out addresses at {domain}\n"),
        value: json!({ "platform": id.to_string(), "umaDomain": domain.to_string() }),
        changed: Some(id.to_string()),
    })
}

async fn set_pricing(app: &App, options: &SetPricing) -> Result<Done, Failure> {
    existing_platform(app, options.platform).await?;
    let rule = CorridorRule {
        sending: options.from,
        receiving: options.to,
        spread: options.spread,
        fixed_fee_minor: options.fixed_fee,
        variable_fee_rate: options.variable_fee_rate,
    };
    let platform = platforms::set_pricing(app, options.platform, rule).await?;
    let row = |rule: &CorridorRule| {
        let code = |currency: Option<Currency>| currency.map_or("any", Currency::code).to_owned();
        let or_built_in = |text: Option<String>| text.unwrap_or_else(|| "built-in".to_owned());
        [
            code(rule.sending),
            code(rule.receiving),
            or_built_in(rule.spread.map(|value| value.to_string())),
            or_built_in(rule.fixed_fee_minor.map(|value| value.to_string())),
            or_built_in(rule.variable_fee_rate.map(|value| value.to_string())),
        ]
    };
    let header = ["from", "to", "spread", "fixed fee", "variable fee rate"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header).chain(platform.corridors.iter().map(row)).collect();
    let text = format!(
        "{} now has these prices of its own, the first that fits decides:\n\n{}",
        platform.id,
        aligned(&rows)
    );
    let value = |rule: &CorridorRule| {
        json!({
            "from": rule.sending.map(Currency::code),
            "to": rule.receiving.map(Currency::code),
            "spread": rule.spread.map(|value| value.to_string()),
            "fixedFee": rule.fixed_fee_minor,
            "variableFeeRate": rule.variable_fee_rate.map(|value| value.to_string()),
        })
    };
    let values: Vec<_> = platform.corridors.iter().map(value).collect();
    let id = platform.id.to_string();
    let value = json!({ "platform": id, "prices": values });
    Ok(Done { text, value, changed: Some(id) })
}

async fn list_pending(app: &App) -> Result<Done, Failure> {
    let header = ["id", "platform", "type", "platform customer id", "created"].map(str::to_owned);
    let (mut rows, mut values) = (vec![header], Vec::new());
    for platform in all_platforms(app).await? {
        let filter = CustomerFilter {
            kyc_status: Some(KycStatus::PendingReview),
            ..CustomerFilter::default()
        };
        let read = move |view: &mut store::reader::View<'_>| {
            view.customers(platform.id, &filter, PageRequest::ALL)
        };
        let page = app.store().read::<_, StoreError, _>(read).await?;
        values.extend(page.rows.iter().map(|customer| {
            json!({
                "id": customer.id.to_string(),
                "platform": customer.platform.to_string(),
                "customerType": customer.identity.customer_type(),
                "platformCustomerId": customer.platform_customer_id,
                "createdAt": customer.created_at.to_string(),
            })
        }));
        rows.extend(page.rows.iter().map(|customer| {
            [
                customer.id.to_string(),
                customer.platform.to_string(),
                customer.identity.customer_type().to_owned(),
                customer.platform_customer_id.clone(),
                customer.created_at.to_string(),
            ]
        }));
    }
    Ok(Done { text: aligned(&rows), value: json!({ "customers": values }), changed: None })
}

async fn decide(app: &App, options: &OneCustomer, approves: bool) -> Result<Done, Failure> {
    let customer = match identity::decide(app, options.id, approves).await {
        Err(Error::Customer(CustomerError::NotFound { id })) => {
            return Err(Failure::new(format!(
                "there is no customer {id}: switchyard customer pending shows who waits"
            )));
        }
        decided => decided?,
    };
    let (id, status) = (customer.id.to_string(), customer.kyc.status().name());
    let text = format!("{id} is {status} now\n");
    let value = json!({ "id": id, "kycStatus": status });
    Ok(Done { text, value, changed: Some(id) })
}

async fn erase(app: &App, options: &OneCustomer) -> Result<Done, Failure> {
    let Erased { records, events, answers } = match erasure::erase(app, options.id).await {
        Err(Error::Customer(CustomerError::NotFound { id })) => {
            return Err(Failure::new(format!("there is no customer {id}")));
        }
        Err(Error::Conflict(_)) => {
            return Err(Failure::new(format!(
                "{id} is not deleted, and only a deleted customer is erased: its platform deletes it \
                 with DELETE /customers/{id}",
                id = options.id
            )));
        }
        erased => erased?,
    };
    let id = options.id.to_string();
    let text = format!(
        "{id} is erased: {records} records, {events} events and {answers} answers were changed\n"
    );
    let value = json!({ "id": id, "records": records, "events": events, "answers": answers });
    Ok(Done { text, value, changed: Some(id) })
}

async fn set_scenarios(app: &App, options: &SetScenarios) -> Result<Done, Failure> {
    let platform = existing_platform(app, options.platform).await?;
    if platform.mode == Mode::Live {
        return Err(Failure::new(format!(
            "{} moves real money, which goes its own way: scenarios are for sandboxes",
            platform.id
        )));
    }
    let settings = match &options.file {
        Some(path) => {
            let refused = |what: String| Failure::new(format!("{}: {what}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
            Scenarios::parse(&text).map_err(|error| refused(error.to_string()))?;
            Some(Arc::from(text))
        }
        None => None,
    };
    platforms::set_rail_settings(app, platform.id, settings).await?;
    let id = platform.id.to_string();
    let text = match options.file {
        Some(_) => format!("{id} has rows of its own before the built-in ones\n"),
        None => format!("{id} has the built-in rows alone\n"),
    };
    let value = json!({ "platform": id, "hasOwnRows": options.file.is_some() });
    Ok(Done { text, value, changed: Some(id) })
}

async fn set_events(app: &App, options: &SetEvents) -> Result<Done, Failure> {
    let platform = existing_platform(app, options.platform).await?;
    platforms::set_event_names(app, platform.id, options.names).await?;
    let (id, names) = (platform.id.to_string(), options.names.name());
    let text = format!("{id} names its events {names} from now on\n");
    let value = json!({ "platform": id, "eventNames": names });
    Ok(Done { text, value, changed: Some(id) })
}

async fn set_cost_drift(app: &App, options: &SetCostDrift) -> Result<Done, Failure> {
    let platform = existing_platform(app, options.platform).await?;
    let max = options.max_basis_points;
    platforms::set_cost_drift(app, platform.id, max).await?;
    let (id, points) = (platform.id.to_string(), max.get());
    let text = format!(
        "{id} quotes on invoices that cost at most {points} basis points more or less than their \
         lookup said\n"
    );
    let value = json!({ "platform": id, "costDriftMaxBasisPoints": points });
    Ok(Done { text, value, changed: Some(id) })
}

async fn list_tokens(app: &App, options: &ListTokens) -> Result<Done, Failure> {
    let platforms = match options.platform {
        Some(id) => {
            existing_platform(app, id).await?;
            vec![id]
        }
        None => all_platforms(app).await?.iter().map(|platform| platform.id).collect(),
    };
    let header = ["id", "platform", "client id", "permissions", "created", "status", "name"];
    let (mut rows, mut values) = (vec![header.map(str::to_owned)], Vec::new());
    let wanted = if options.all { &[false, true][..] } else { &[false] };
    for platform in platforms {
        for revoked in wanted.iter().copied() {
            let filter = TokenFilter { revoked, ..TokenFilter::default() };
            let read = move |view: &mut store::reader::View<'_>| {
                view.tokens(platform, &filter, PageRequest::ALL)
            };
            let page = app.store().read::<_, StoreError, _>(read).await?;
            rows.extend(page.rows.iter().map(|token| token_row(token)));
            values.extend(page.rows.iter().map(|token| described_token(token)));
        }
    }
    Ok(Done { text: aligned(&rows), value: json!({ "tokens": values }), changed: None })
}

/// A token for programs, without its secret.
fn described_token(token: &Token) -> Value {
    let permissions: Vec<_> =
        token.permissions.iter().map(|permission| permission.name()).collect();
    json!({
        "id": token.id.to_string(),
        "platform": token.platform.to_string(),
        "clientId": token.client_id,
        "permissions": permissions,
        "createdAt": token.created_at.to_string(),
        "isRevoked": token.revoked,
        "name": token.name,
    })
}

fn token_row(token: &Token) -> [String; 7] {
    let permissions: Vec<_> =
        token.permissions.iter().map(|permission| permission.name()).collect();
    [
        token.id.to_string(),
        token.platform.to_string(),
        token.client_id.clone(),
        permissions.join(","),
        token.created_at.to_string(),
        if token.revoked { "revoked" } else { "valid" }.to_owned(),
        token.name.clone(),
    ]
}

async fn create_token(app: &App, options: &CreateToken) -> Result<Done, Failure> {
    let platform = existing_platform(app, options.platform).await?;
    let new = tokens::draw(app, &platform, options.name.clone(), options.permissions());
    let new = app
        .store()
        .write(app.origin(), move |unit| {
            tokens::add(unit, &new, None)?;
            Ok::<_, Error>(new.clone())
        })
        .await?;
    let text = format!(
        "made {}, its secret is shown this once:\n\n  client id      {}\n  client secret  {}\n",
        new.token.id, new.token.client_id, new.secret
    );
    let mut value = described_token(&new.token);
    value["clientSecret"] = new.secret.into();
    Ok(Done { text, value, changed: Some(new.token.id.to_string()) })
}

async fn revoke_token(app: &App, options: &RevokeToken) -> Result<Done, Failure> {
    let (id, server_now) = (options.id, app.server_now());
    let revoked = app
        .store()
        .write(app.origin(), move |unit| {
            let token = unit.get::<Token>(&id)?.ok_or(Error::Token(TokenError::NotFound))?;
            let now = owners::platform(unit, token.platform)?.ahead.shows(server_now);
            tokens::revoke(unit, token.platform, id, now)
        })
        .await;
    match revoked {
        Ok(()) => Ok(Done {
            text: format!("revoked {id}: it authenticates no request any more\n"),
            value: json!({ "id": id.to_string(), "isRevoked": true }),
            changed: Some(id.to_string()),
        }),
        Err(Error::Token(TokenError::NotFound)) => Err(Failure::new(format!(
            "there is no token {id}, or it was revoked before: switchyard token list shows which \
             there are"
        ))),
        Err(Error::Token(TokenError::LastManager)) => Err(Failure::new(format!(
            "{id} is the last token of its platform with MANAGE: make another with switchyard \
             token create before it is revoked"
        ))),
        Err(error) => Err(error.into()),
    }
}
