//! Stands between clients and PostgreSQL, forwards everything, and breaks connections on demand.
//!
//! A connection that breaks while a commit is under way leaves the client without an answer to the
//! one question that matters. Which moment it was cannot be chosen by killing processes; here it
//! can: before the server got the commit, while it commits, or after it has committed and before
//! the client knows.
//!
//! It runs on a thread of its own, so a test may block. Encrypted connections pass, but commits in
//! them are not seen.

mod connection;
mod dialogue;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use self::connection::End;
use crate::ports;
use crate::postgres::Server;

/// How long the port may take to be closed or opened; it takes as long as a thread needs to run.
const PORT_TIMEOUT: Duration = Duration::from_secs(30);

/// The fault of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Everything passes.
    Flows,
    /// New connections are refused; those that are open go on until they are [cut](Proxy::cut).
    Refused,
    /// New connections are accepted and open ones stay open, but nothing passes, as when a network
    /// falls apart. Sent bytes pass when traffic flows again.
    Held,
}

/// When a connection is cut, seen from the commit on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server never gets the commit: it rolls back.
    Before,
    /// The server gets the commit and no client waits for it: it may still be at it when the client
    /// asks again on another connection.
    During,
    /// The server has committed, the client gets no answer.
    After,
}

/// Which commits are cut.
#[derive(Clone, Debug)]
pub enum Chosen {
    /// The next so many, then none.
    Next(u32),
    /// Each with this chance in a hundred, until changed; the same seed draws the same.
    Percent {
        /// From 0 to 100.
        percent: u8,
        /// Where the generator starts.
        seed: u64,
    },
}

/// Counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were forwarded to a server.
    pub connections: u64,
    /// Commits that clients sent, cut ones among them.
    pub commits: u64,
    /// Connections cut at each [`Moment`].
    pub cut_before: u64,
    /// See [`Moment::During`].
    pub cut_during: u64,
    /// See [`Moment::After`].
    pub cut_after: u64,
}

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: Server,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy to `server`, on a free port of the loopback address.
    ///
    /// # Errors
    ///
    /// If no port or thread is to be had.
    pub fn start(server: &Server) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let listener = std::net::TcpListener::bind(address).context("opening the port")?;
        listener.set_nonblocking(true).context("opening the port")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.context("starting the proxy")?;
        let shared = Arc::new(Shared::new(server.address().to_owned()));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(listener, address, &shared) => {}
                        _ = stopped => {}
                    }
                });
            }
        });
        let thread = Some(thread.context("starting the proxy")?);
        let server = server.through(address);
        Ok(Self { shared, address, server, stop: Some(stop), thread })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server as it is reached through the proxy.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Passes connections that come from now on to another server. Those that are open stay where
    /// they are until they are [cut](Self::cut).
    pub fn retarget(&self, server: &Server) {
        server.address().clone_into(&mut self.shared.state().upstream);
    }

    /// Ends every open connection: the client finds it reset, the server closed.
    pub fn cut(&self) {
        self.shared.cut.send_modify(|generation| *generation += 1);
    }

    /// Says what happens to connections from now on: once this returns, the next one meets it.
    ///
    /// # Panics
    ///
    /// If the port cannot be opened again.
    pub fn set(&self, traffic: Traffic) {
        self.shared.traffic.send_replace(traffic);
        let state = self.shared.state();
        let is_other = |state: &mut State| state.is_open == (traffic == Traffic::Refused);
        let waited = self.shared.port.wait_timeout_while(state, PORT_TIMEOUT, is_other);
        let timed_out = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        assert!(!timed_out, "the port of the proxy does not follow: {traffic:?}");
    }

    /// Cuts connections at `moment` of the commits that are `chosen`; forgets what was said before.
    pub fn cut_commits(&self, moment: Moment, chosen: Chosen) {
        let generator = match chosen {
            Chosen::Next(_) => fastrand::Rng::with_seed(0),
            Chosen::Percent { seed, .. } => fastrand::Rng::with_seed(seed),
        };
        self.shared.state().plan = Some(Plan { moment, chosen, generator });
    }

    /// Lets every commit pass.
    pub fn spare_commits(&self) {
        self.shared.state().plan = None;
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State that the handle and all connections share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes who waits for [`State::is_open`].
    port: Condvar,
    traffic: watch::Sender<Traffic>,
    /// Goes up with each order to cut.
    cut: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    upstream: String,
    /// Whether the port has a listener.
    is_open: bool,
    plan: Option<Plan>,
    counts: Counts,
}

#[derive(Debug)]
struct Plan {
    moment: Moment,
    chosen: Chosen,
    generator: fastrand::Rng,
}

impl Plan {
    /// Whether the next commit is one of them.
    fn draw(&mut self) -> Option<Moment> {
        let is_chosen = match &mut self.chosen {
            Chosen::Next(0) => false,
            Chosen::Next(left) => {
                *left -= 1;
                true
            }
            Chosen::Percent { percent, .. } => self.generator.u8(..100) < *percent,
        };
        is_chosen.then_some(self.moment)
    }
}

impl Shared {
    fn new(upstream: String) -> Self {
        let state = State { upstream, is_open: true, plan: None, counts: Counts::default() };
        let (traffic, _) = watch::channel(Traffic::Flows);
        let (cut, _) = watch::channel(0);
        Self { state: Mutex::new(state), port: Condvar::new(), traffic, cut }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn port_is(&self, is_open: bool) {
        self.state().is_open = is_open;
        self.port.notify_all();
    }

    /// A client sent a commit: what becomes of it?
    fn commit_sent(&self) -> Option<Moment> {
        let mut state = self.state();
        state.counts.commits += 1;
        state.plan.as_mut()?.draw()
    }

    fn count(&self, moment: Moment) {
        let counts = &mut self.state().counts;
        match moment {
            Moment::Before => counts.cut_before += 1,
            Moment::During => counts.cut_during += 1,
            Moment::After => counts.cut_after += 1,
        }
    }

    /// A commit that was to be cut after it did not come about: another takes its place.
    fn not_committed(&self) {
        if let Some(Plan { chosen: Chosen::Next(left), .. }) = &mut self.state().plan {
            *left += 1;
        }
    }
}

/// Accepts connections while they are not refused.
async fn serve(first: std::net::TcpListener, address: SocketAddr, shared: &Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut traffic = shared.traffic.subscribe();
    let mut listener = TcpListener::from_std(first).ok();
    loop {
        if *traffic.borrow_and_update() == Traffic::Refused {
            // Only a port without a listener refuses.
            listener = None;
            shared.port_is(false);
            if traffic.changed().await.is_err() {
                return;
            }
            continue;
        }
        let open = match listener.take() {
            Some(open) => open,
            None => {
                let bound = TcpListener::bind(address).await;
                let bound = bound.expect("the port lies where no other program takes it");
                shared.port_is(true);
                bound
            }
        };
        tokio::select! {
            accepted = open.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(carry(client, Arc::clone(shared)));
            },
            changed = traffic.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
        }
        listener = Some(open);
    }
}

/// Connects `client` to the server and passes messages until one side closes or it is cut.
async fn carry(mut client: TcpStream, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    let mut traffic = shared.traffic.subscribe();
    connection::flows(&mut traffic).await;
    let upstream = shared.state().upstream.clone();
    // A server that cannot be reached looks as one that hangs up at once.
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    shared.state().counts.connections += 1;
    let end = tokio::select! {
        _ = cut.changed() => None,
        end = connection::pass(&mut client, &mut server, &shared) => Some(end),
    };
    let moment = match end {
        Some(Ok(End::Cut(moment))) => Some(moment),
        Some(Ok(End::Closed) | Err(_)) => return,
        None => None,
    };
    // Nothing that is still on its way arrives, as with a machine that went away.
    let _ = client.set_zero_linger();
    drop(client);
    let Some(moment) = moment else { return };
    shared.count(moment);
    if moment == Moment::During {
        // The end of input tells the server to go, after what it has to do. Closing at once could
        // take the commit away from it.
        let _ = server.shutdown().await;
        let _ = tokio::io::copy(&mut server, &mut tokio::io::sink()).await;
    }
}
