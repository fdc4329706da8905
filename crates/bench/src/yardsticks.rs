//! The server under test: `switchyard serve` with two routes more, which do everything that a
//! payment and a read of one have in common and store and read nothing. The cost of the real ones
//! on top is what the store costs.
//!
//! The routes are behind the same layers as all others: limits of the edge, permission, metrics and
//! the log. The product does not have them.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use api::auth::{self, Caller};
use api::error::{ApiError, json_response};
use api::extract::Json;
use api::transactions::TransactionBody;
use api::transfers::TransferOut;
use axum::Router;
use axum::extract::{Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use domain::clock::Ahead;
use domain::currency::Currency;
use domain::id::{InternalAccountId, Owner};
use domain::money::{Money, Receiving, Sending};
use domain::platform::Mode;
use domain::token::Permission;
use domain::transaction::{
    AccountRef, Destination, Direction, Draft, Event, RailRequest, Source, Transaction,
};
use service::App;
use switchyard::config::{self, Command};
use switchyard::{serve, telemetry};

use crate::counters::{ALLOCATED_BYTES, ALLOCATIONS};

/// Where the payment is that pays nothing, below the version of the API.
pub const TRANSFER_OUT: &str = "/bench/transfer-out";

/// Where the transaction is that was never stored, below the version of the API.
pub const TRANSACTION: &str = "/bench/transactions/one";

/// Where the allocations are counted, below the version of the API.
pub const ALLOCATED: &str = "/bench/allocated";

/// The allocations of a server so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allocated {
    /// How many.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// Serves until the process is asked to stop, with the options of `switchyard serve`. Returns the
/// exit code.
pub fn serve(options: &[String], allocated: fn() -> Allocated) -> Result<u8> {
    let line = ["switchyard", "serve"].into_iter().map(str::to_owned).chain(options.to_vec());
    let line = line.map(std::ffi::OsString::from);
    let config = match config::read(line, &std::env::vars_os().collect()) {
        Ok(config) => config,
        Err(refusal) => return Ok(refusal.print()),
    };
    let Command::Serve(options) = &config.command else { unreachable!("the line says serve") };
    let filter = telemetry::filter(|name| std::env::var(name).ok()).map_err(anyhow::Error::msg)?;
    telemetry::start_log(config.log_format, filter);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served =
        runtime.block_on(serve::run_beside(&config, options, |app| routes(app, allocated)));
    runtime.shutdown_background();
    served.map_err(|failure| anyhow::anyhow!("{failure}"))
}

fn routes(app: &App, allocated: fn() -> Allocated) -> Router {
    let bodies = bodies(app).expect("an ordinary transaction");
    let guarded = |any_of: &'static [Permission]| {
        let guard = auth::Guard { app: app.clone(), any_of, takes_body: true };
        from_fn_with_state(guard, auth::require)
    };
    let pay = post(transfer_out).layer(guarded(&[Permission::Transact]));
    let read = get(transaction).layer(guarded(&[Permission::View]));
    let routes = Router::new()
        .route("/bench/transfer-out", pay)
        .route("/bench/transactions/{id}", read)
        .layer(from_fn_with_state(app.clone(), api::finish))
        .route(ALLOCATED, get(async move || as_counters(allocated())))
        .with_state(Arc::new(bodies));
    Router::new().nest(&format!("/{}", api::VERSION), routes)
}

/// As `/metrics` has counters.
fn as_counters(Allocated { count, bytes }: Allocated) -> String {
    format!("{ALLOCATIONS} {count}\n{ALLOCATED_BYTES} {bytes}\n")
}

/// The answer.
struct Bodies {
    pending: Vec<u8>,
    completed: Vec<u8>,
}

/// The bodies of a transaction that begins and of one that has ended, as the API writes them.
fn bodies(app: &App) -> Result<Bodies> {
    let now = app.server_now();
    let currency = Currency::from_code("USD").context("USD is in the table")?;
    let owner = Owner::Customer(app.new_owner_id::<domain::id::kind::Customer>(Ahead::NONE, now));
    let amount = Money::positive(crate::sessions::AMOUNT_MINOR, currency)?;
    let internal = InternalAccountId::of(owner, currency);
    let external = app.new_id(Ahead::NONE, now);
    let pending = Transaction::pending(Draft {
        id: app.new_id(Ahead::NONE, now),
        platform: app.new_id(Ahead::NONE, now),
        owner,
        platform_customer_id: owner.uuid().to_string(),
        direction: Direction::Outgoing,
        source: Some(Source::Account { account: AccountRef::Internal(internal), currency }),
        destination: Destination::Account { account: AccountRef::External(external), currency },
        sent: Some(Sending(amount)),
        received: Receiving(amount),
        terms: None,
        uma: None,
        description: Some(crate::sessions::DESCRIPTION.to_owned()),
        rail_request: RailRequest::default(),
    });
    let started = pending.clone().apply(Event::Started, now)?.into_now();
    let completed = started.apply(Event::Settled, now)?.into_now();
    // Rails show in the body of payments that are funded in real time only: this is none.
    let rails = app.env().rails(Mode::Live);
    let bytes = |transaction| serde_json::to_vec(&TransactionBody::new(transaction, rails));
    Ok(Bodies { pending: bytes(&pending)?, completed: bytes(&completed)? })
}

async fn transfer_out(
    State(bodies): State<Arc<Bodies>>,
    _: Caller,
    Json(body): Json<TransferOut>,
) -> Result<Response, ApiError> {
    body.map(|_| json_response(201, bodies.pending.clone()))
}

async fn transaction(
    State(bodies): State<Arc<Bodies>>,
    _: Caller,
    Path(_): Path<String>,
) -> Response {
    json_response(200, bodies.completed.clone())
}
