//! The clients of a measured server: the loads that they send, and the pages that they read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use domain::id::Owner;

use super::Load;
use crate::child::{self, Server};
use crate::counters::{Counters, Window};
use crate::http::Client;
use crate::load::{self, Outcome, Phase};
use crate::place::Ground;
use crate::row_locks::{Booked, RowLocks};
use crate::samples::{Sample, median};
use crate::sessions::{self, Exchanges, Payer, Posts, Reads};
use crate::time::{now, pause};
use crate::yardsticks;

/// Pages that transactions to look at are taken from, at each end of the list.
const LOOK_PAGES: usize = 5;

/// A page of a list as clients ask for it by default.
const PAGE_ROWS: usize = 20;

/// Rows from the old end of a list at which its deepest page is read.
const DEEP_ROWS: usize = 100;

/// How often one page is asked for in one round, of each database. With 30 reads of a quarter of a
/// millisecond each, a burst of work in the background decided what the ratio was.
const PAGE_READS: usize = 200;

/// How long one page of both databases is asked for in one round if it is slow.
const PAGE_TIME_MAX: Duration = Duration::from_secs(3);

/// A list that pages are read of: its name, and the parameters that filter it.
const LISTS: [(&str, &str); 5] = [
    ("all", ""),
    ("COMPLETED", "&status=COMPLETED"),
    ("REJECTED", "&status=REJECTED"),
    ("PENDING", "&status=PENDING"),
    ("INCOMING", "&type=INCOMING"),
];

/// The requests of the clients of one database.
pub(super) struct Clients<'a> {
    ground: &'a Ground,
    /// Whether events are delivered, all of them before the next load.
    is_notified: bool,
    noop_post: Posts,
    transfers: Posts,
    hot: Posts,
    exchanges: Exchanges,
    noop_get: Reads,
    reads: Reads,
}

impl<'a> Clients<'a> {
    pub(super) fn of(server: &Server, ground: &'a Ground, is_notified: bool) -> Result<Self> {
        let heads = child::heads();
        let mut client = server.client();
        let payers = sessions::payers(&mut client)?;
        let one = payers.first().context("the database has no customer with an account")?;
        let hot = std::slice::from_ref(one);
        let paths = paths(&mut client)?;
        Ok(Self {
            ground,
            is_notified,
            noop_post: Posts::transfers(&heads, yardsticks::TRANSFER_OUT, &payers),
            transfers: Posts::transfers(&heads, "/transfer-out", &payers),
            hot: Posts::transfers(&heads, "/transfer-out", hot),
            exchanges: Exchanges::new(&heads, &payers),
            noop_get: Reads::new(&heads, [yardsticks::TRANSACTION]),
            reads: Reads::new(&heads, paths.iter().map(String::as_str)),
        })
    }

    /// Payments of many accounts, and their settlement.
    pub(super) fn pay(&self, server: &Server, phase: &Phase) -> Result<Sample> {
        self.measure(Load::Transfer, std::slice::from_ref(server), None, phase)
    }

    /// A phase of load on servers of one database, and the settlement of what was paid in it.
    pub(super) fn measure(
        &self,
        load: Load,
        servers: &[Server],
        row_locks: Option<&RowLocks>,
        phase: &Phase,
    ) -> Result<Sample> {
        // The system would write the dirty pages of earlier loads during this one, half a
        // minute after they did: 200 MB at once, for which commits waited 80 ms.
        nix::unistd::sync();
        let at = |number: usize| servers[number % servers.len()].address();
        let post = |posts: &Posts| load::run(phase, async |number| posts.open(at(number)).await);
        let read = |reads: &Reads| load::run(phase, async |number| reads.open(at(number)).await);
        let lock = |booked| {
            let row_locks = row_locks.context("no yardstick was set up")?;
            load::run(phase, async |_| row_locks.open(booked).await)
        };
        let (outcome, window) = self.watched(servers, phase, || match load {
            Load::NoopPost => post(&self.noop_post),
            Load::Transfer | Load::TransferLarge => post(&self.transfers),
            Load::Hot | Load::OneServer | Load::TwoServers => post(&self.hot),
            Load::Exchange => {
                let exchanges = &self.exchanges;
                load::run(phase, async |number| exchanges.open(at(number)).await)
            }
            Load::NoopGet => read(&self.noop_get),
            Load::Get => read(&self.reads),
            Load::RowLocks => lock(Booked::Accepted),
            Load::SettledRowLocks => lock(Booked::Settled),
        })?;
        let settled_after = if load.pays() { Some(servers[0].settle()?) } else { None };
        if load.pays() && self.is_notified {
            servers[0].deliver()?;
        }
        Ok(Sample { outcome, settled_after, window: Some(window) })
    }

    /// The counters of the servers and of their database now.
    pub(super) fn counters(&self, servers: &[Server]) -> Result<(Instant, Counters)> {
        let mut counters = self.ground.counters()?;
        for server in servers {
            counters.merge(server.counters()?);
        }
        Ok((now(), counters))
    }

    /// Runs a load, and reads counters at both ends of the time that is measured.
    fn watched<T>(
        &self,
        servers: &[Server],
        phase: &Phase,
        load: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Window)> {
        let read = || self.counters(servers);
        let began = now();
        std::thread::scope(|scope| {
            let window = scope.spawn(|| {
                pause(phase.warm_up);
                let from = read()?;
                pause((phase.warm_up + phase.duration).saturating_sub(began.elapsed()));
                anyhow::Ok(Window::between(&from, &read()?))
            });
            let done = load();
            let window = window.join().expect("the thread does not panic");
            Ok((done?, window?))
        })
    }
}

/// Paths of transactions, the newest and the oldest.
fn paths(client: &mut Client) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for order in ["desc", "asc"] {
        let mut cursor = String::new();
        for _ in 0..LOOK_PAGES {
            let page = format!("/transactions?limit=100&sortOrder={order}{cursor}");
            let page = client.get(&page)?;
            for row in page["data"].as_array().context("a page has data")? {
                paths.push(format!("/transactions/{}", sessions::text(row, "id")?));
            }
            let Some(next) = page["nextCursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
    }
    Ok(paths)
}

/// The pages that are read of one database, with a client of its server: for each list the first
/// and, if it is long enough, the deepest that is full.
pub(super) fn pages(server: &Server) -> Result<(Client, Vec<(String, String)>)> {
    let mut client = server.client();
    let payers = sessions::payers(&mut client)?;
    // The oldest is the one that the generator keeps busy.
    let busy = payers.last().map(Payer::owner).context("the database has no customer")?;
    let Owner::Customer(busy) = busy else { unreachable!("payers are customers") };
    let customer = ("one customer".to_owned(), format!("&customerId={busy}"));
    let lists = LISTS.map(|(name, filter)| (name.to_owned(), filter.to_owned()));
    let mut pages = Vec::new();
    for (name, filter) in lists.into_iter().chain([customer]) {
        pages.push((format!("{name}, first"), format!("/transactions?limit={PAGE_ROWS}{filter}")));
        if let Some(cursor) = deep_cursor(&mut client, &filter)? {
            let deep = format!("/transactions?limit={PAGE_ROWS}{filter}&cursor={cursor}");
            pages.push((format!("{name}, deep"), deep));
        }
    }
    Ok((client, pages))
}

/// Where the deepest full page of a list starts; none if it is too short. No client walks there:
/// the date of a row near the old end leads to a cursor at it.
fn deep_cursor(client: &mut Client, filter: &str) -> Result<Option<String>> {
    let oldest = client.get(&format!("/transactions?limit={DEEP_ROWS}&sortOrder=asc{filter}"))?;
    let Some(row) = oldest["data"].get(DEEP_ROWS - 1) else { return Ok(None) };
    let date = sessions::text(row, "createdAt")?;
    let at = client.get(&format!("/transactions?limit=1&endDate={date}{filter}"))?;
    Ok(at["nextCursor"].as_str().map(str::to_owned))
}

/// The median times of a page of two databases. They are asked in turn, so that whatever else the
/// machine does meanwhile is beside both.
pub(super) fn page_millis(mut sides: [(&mut Client, &str); 2]) -> Result<[f64; 2]> {
    let mut millis = [Vec::new(), Vec::new()];
    let began = now();
    while millis[0].len() < PAGE_READS && (millis[0].is_empty() || began.elapsed() < PAGE_TIME_MAX)
    {
        for ((client, path), millis) in sides.iter_mut().zip(&mut millis) {
            let one = now();
            client.fetch(path)?;
            millis.push(one.elapsed().as_secs_f64() * 1_000.0);
        }
    }
    Ok(millis.map(median))
}

/// Does something while a client reads the first page of payments again and again. Returns how long
/// each page took.
pub(super) fn reading_pages<T>(
    server: &Server,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(T, Outcome)> {
    let path = format!("/transactions?limit={PAGE_ROWS}");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| -> Result<Outcome> {
            let (mut client, mut took) = (server.client(), Vec::new());
            let began = now();
            while !is_over.load(Ordering::Relaxed) {
                let one = now();
                client.fetch(&path)?;
                took.push(one.elapsed());
            }
            Outcome::counted(began.elapsed(), took)
        });
        let done = meanwhile();
        is_over.store(true, Ordering::Relaxed);
        let read = reader.join().expect("the reader does not panic")?;
        Ok((done?, read))
    })
}
