//! `switchyard serve`: from a free port to the last answer.

use std::time::Duration;

use axum::Router;
use ports::locality::Locality;
use service::{App, Env, leadership, locality};
use store::EXIT_IO_ERROR;
use store::keyring::Keyring;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::command::Failure;
use crate::config::{Config, Connections, EXIT_OK, Listen, Serve};
use crate::edge::Limits;
use crate::first_start::Addresses;
use crate::forwarding::Routers;
use crate::health::Endpoints;
#[cfg(feature = "ldk")]
use crate::lightning_node;
use crate::locality::{watch, while_local};
use crate::{
    approval_loop, delivery_loop, descriptors, edge, first_start, forwarding, health, job_loop,
    rates_loop, shutdown, telemetry, wiring,
};

/// A step of the jobs is a request to the rail and a commit, and deliveries end soon. Work that it
/// does not finish is due again after the next start.
const JOBS_TIMEOUT: Duration = Duration::from_secs(2);

/// The time that a platform has to answer, and a commit. Payments whose platform was not heard fail
/// after the next start.
const ASKING_TIMEOUT: Duration = Duration::from_secs(6);

/// Serves until the process is asked to stop and what had begun is answered.
pub async fn run(config: &Config, options: &Serve) -> Result<u8, Failure> {
    run_beside(config, options, |_| Router::new()).await
}

/// Like [`run`], with routes of the caller's beside those of the server. The benchmark has some to
/// compare with; the product has none.
pub async fn run_beside(
    config: &Config,
    options: &Serve,
    routes: impl FnOnce(&App) -> Router,
) -> Result<u8, Failure> {
    let shutdown = shutdown::on_signals()
        .map_err(|error| Failure::new(format!("signals cannot be listened for: {error}")))?;
    // The port comes first: a second server on it must not touch the database.
    let (listener, listen) = bind(&options.listen, "--listen").await?;
    let is_of_this_machine = is_loopback(&listener);
    let (admin, missed) = bind_for_operators(&options.connections).await?;
    telemetry::metrics();
    let public_url =
        options.public_url.as_ref().map_or_else(|| origin(&listen), ToString::to_string);
    let for_servers = match &admin {
        // Another machine means itself by an address of its own.
        Some((bound, admin)) => (is_of_this_machine || !is_loopback(bound)).then_some(admin),
        None => is_of_this_machine.then_some(&listen),
    };
    let peer_address = options.peer_address_at(for_servers);
    hint_at_peer_address(config, options, peer_address.is_some());
    let locality = Locality::new(is_of_this_machine && options.is_for_this_machine());
    let (env, rates) = wiring::env_of(options, public_url, locality.clone())?;
    let env = Env { peer_address, ..env };
    let mut held = config.database.hold()?;
    #[cfg(feature = "ldk")]
    let mut node = lightning_node::Bound::new(config, &options.lightning).await?;
    #[cfg(feature = "ldk")]
    let connect = |env, keyring: &Keyring| match &mut node {
        Some(node) => node.connect(env, keyring),
        None => Ok(env),
    };
    #[cfg(not(feature = "ldk"))]
    let connect = |env, _: &Keyring| Ok(env);
    let opened = wiring::open_to_serve(&config.database, &config.key, env, &mut held, connect)?;
    let domain = options.uma_domain_at(listen.port);
    let first = first_start::run(&opened.app, config.credentials.as_ref(), domain).await?;
    locality::notice_all(&opened.app).await?;
    let at = addresses(options, &locality, &listen, admin.as_ref().map(|(_, admin)| admin));
    if let Some(failure) = missed {
        say_missed(&failure, at.is_local);
    }
    tracing::info!(
        base_url = at.base_url, metrics_url = at.metrics_url.as_deref(), is_local = at.is_local,
        database = %config.database, "serving"
    );
    match first {
        Some(first) => first.print(&at),
        None => first_start::greet_again(&opened.app, &config.database, &at).await?,
    }
    let app = opened.app.clone();
    let routes = routes(&app);
    let listeners = listeners(options, &app, (listener, admin), routes, &shutdown);
    #[cfg(feature = "ldk")]
    let node = node.map(|node| tokio::spawn(node.run(app.clone(), shutdown.clone())));
    let rates = tokio::spawn(rates_loop::run(rates, app.clone(), shutdown.clone()));
    until_with(shutdown, listeners, app).await;
    rates.abort();
    #[cfg(feature = "ldk")]
    if let Some(node) = node {
        finish("the Lightning node", node, JOBS_TIMEOUT).await;
    }
    let are_files_moved = opened.app.store().are_files_moved();
    wiring::close(opened).await;
    // Loops that did not end in time may still write until the process has ended.
    std::mem::forget(held);
    tracing::info!("stopped");
    Ok(if are_files_moved { EXIT_IO_ERROR } else { EXIT_OK })
}

/// Says how the servers of a database find each other, where this one cannot be found.
fn hint_at_peer_address(config: &Config, options: &Serve, has_address: bool) {
    if config.database.is_shared() && !has_address && options.peer_url.is_none() {
        tracing::info!(
            "other servers on this database cannot forward requests to this one: give it an \
             address in their network with --admin-listen, and with --peer-url if that is every \
             address of this machine, or say --peer-url none"
        );
    }
}

/// Takes the address for operators and other servers. The usual one is no reason not to start:
/// another server on this machine may have it.
async fn bind_for_operators(options: &Connections) -> Result<(Bound, Option<Failure>), Failure> {
    match bind(&options.admin_address(), "--admin-listen").await {
        Ok(bound) => Ok((Some(bound), None)),
        Err(failure) if options.admin_listen.is_some() => Err(failure),
        Err(failure) => Ok((None, Some(failure))),
    }
}

/// Says where operator endpoints are that have no listener of their own.
fn say_missed(failure: &Failure, is_local: bool) {
    match is_local {
        true => tracing::info!(
            %failure, "operator endpoints are at --listen alone, while only this machine reaches it"
        ),
        false => tracing::warn!(%failure, "operator endpoints are nowhere"),
    }
}

/// Where clients find the API, and the operator the metrics.
fn addresses(
    options: &Serve,
    locality: &Locality,
    listen: &Listen,
    admin: Option<&Listen>,
) -> Addresses {
    let is_local = locality.is_local();
    let is_shared = options.connections.admin_listen.is_none() && is_local;
    let metrics_at = if is_shared { Some(listen) } else { admin };
    Addresses {
        base_url: base_url(listen),
        metrics_url: metrics_at.map(|at| format!("{}/metrics", origin(at))),
        is_local,
    }
}

/// The routes of each listener. Operators and other servers have their own. If its address was not
/// given, they also have that of clients while only this machine reaches it.
fn listeners(
    options: &Serve,
    app: &App,
    (listener, admin): (TcpListener, Bound),
    routes: Router,
    shutdown: &CancellationToken,
) -> Vec<Served> {
    let local = || api::router(app.clone());
    let Routers { clients, servers } = match options.forwards() {
        true => forwarding::routers(app, local),
        false => Routers { clients: local(), servers: Router::new() },
    };
    let limits = options.connections.within(descriptors::limits());
    let endpoints = Endpoints::new(app.clone(), shutdown.clone());
    let operators = servers.merge(endpoints.for_operators());
    let clients = clients.merge(routes).merge(endpoints.for_everyone());
    let clients = match &options.connections.admin_listen {
        Some(_) => clients,
        None => clients.merge(while_local(app, operators.clone())),
    };
    let clients = watch(app.env().locality.clone(), clients);
    let Some((admin, _)) = admin else { return vec![(listener, clients, limits)] };
    let operators = operators.merge(endpoints.for_everyone()).fallback(health::not_found);
    let (limits, limits_of_operators) = descriptors::apart(limits);
    vec![(listener, clients, limits), (admin, operators, limits_of_operators)]
}

/// Takes the address that `option` gave, and tells which one it became if the system was to choose
/// the port.
pub async fn bind(listen: &Listen, option: &str) -> Result<(TcpListener, Listen), Failure> {
    let bound = TcpListener::bind((listen.host.as_str(), listen.port)).await;
    let bound = bound.and_then(|listener| {
        let port = listener.local_addr()?.port();
        Ok((listener, Listen { host: listen.host.clone(), port }))
    });
    bound.map_err(|error| {
        Failure::new(format!(
            "cannot listen on {listen}: {error}; choose another address with {option} HOST:PORT, or \
             stop what uses this one"
        ))
    })
}

/// Whether only this machine can connect.
fn is_loopback(listener: &TcpListener) -> bool {
    listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
}

/// The address at which this machine reaches the API.
pub fn base_url(listen: &Listen) -> String {
    format!("{}/{}", origin(listen), api::VERSION)
}

/// The address of the server itself, as a browser on this machine reaches it.
pub fn origin(listen: &Listen) -> String {
    let host = if listen.is_everywhere() { "localhost".to_owned() } else { listen.host.clone() };
    format!("http://{}", Listen { host, port: listen.port })
}

/// Serves the application until `shutdown` and then until what had begun is answered or its time
/// is over.
pub async fn until(shutdown: CancellationToken, listener: TcpListener, app: App) {
    let endpoints = Endpoints::new(app.clone(), shutdown.clone());
    let operators = while_local(&app, endpoints.for_operators());
    let router = api::router(app.clone()).merge(endpoints.for_everyone()).merge(operators);
    let router = watch(app.env().locality.clone(), router);
    until_with(shutdown, vec![(listener, router, descriptors::limits())], app).await;
}

/// The listener of operators and other servers, with its address.
type Bound = Option<(TcpListener, Listen)>;

/// A listener with what is served there, within what limits.
type Served = (TcpListener, Router, Limits);

async fn until_with(shutdown: CancellationToken, listeners: Vec<Served>, app: App) {
    tokio::spawn(stop_when_files_moved(app.clone(), shutdown.clone()));
    let jobs = tokio::spawn(job_loop::run(app.clone(), shutdown.clone()));
    // Requests that are answered while the server stops may have begun payments.
    let answered = CancellationToken::new();
    let approvals = tokio::spawn(approval_loop::run(app.clone(), answered.clone()));
    let deliveries = tokio::spawn(delivery_loop::run(app.clone(), shutdown.clone()));
    let upkeep = tokio::spawn(telemetry::keep(app.clone(), shutdown.clone()));
    let serving = listeners.into_iter().map(|(listener, router, limits)| {
        tokio::spawn(edge::serve(listener, router, limits, shutdown.clone()))
    });
    for served in serving.collect::<Vec<_>>() {
        if let Err(error) = served.await {
            tracing::error!(%error, "listener ended unexpectedly");
        }
    }
    upkeep.abort();
    app.refusals().log_rest();
    answered.cancel();
    let leading = async {
        tokio::join!(
            finish("jobs", jobs, JOBS_TIMEOUT),
            finish("deliveries", deliveries, JOBS_TIMEOUT),
        );
        // Not before: whichever of the two still does something would take the lease again.
        let given_up = async move {
            if let Err(error) = leadership::give_up(&app).await {
                tracing::warn!(%error, "another server takes over when the lease has run out");
            }
        };
        finish("the leader lease", tokio::spawn(given_up), JOBS_TIMEOUT).await;
    };
    tokio::join!(leading, finish("approval requests", approvals, ASKING_TIMEOUT));
}

/// Stops the server once its database's files were moved away under it.
async fn stop_when_files_moved(app: App, shutdown: CancellationToken) {
    tokio::select! {
        () = app.store().files_moved() => shutdown.cancel(),
        () = shutdown.cancelled() => {}
    }
}

/// Waits for a loop that was asked to stop.
async fn finish(name: &str, mut running: JoinHandle<()>, limit: Duration) {
    match tokio::time::timeout(limit, &mut running).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, name, "worker loop ended unexpectedly"),
        Err(_) => {
            running.abort();
            tracing::warn!(name, "worker loop still busy at the deadline of the shutdown");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When service managers kill (design section 5).
    const KILLED_AFTER: Duration = Duration::from_secs(30);

    #[test]
    fn a_stop_takes_less_time_than_there_is() {
        let Limits { settle_time, drain_timeout, .. } = Limits::default();
        let jobs = (JOBS_TIMEOUT * 2).max(ASKING_TIMEOUT);
        let all = settle_time + drain_timeout + jobs + wiring::CLOSE_TIMEOUT;
        assert!(all + Duration::from_secs(1) < KILLED_AFTER, "{all:?}");
    }
}
