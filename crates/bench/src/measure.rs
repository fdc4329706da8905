//! One engine, measured: which servers are started on which databases, what load each gets, and
//! what figures come of it.
//!
//! Every server is a process of its own with everything on that production has on: authentication,
//! durability, metrics, the log, and the jobs that settle payments. After each load that pays, the
//! next one waits until all of its payments have settled.

mod clients;
mod costs;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use self::clients::{Clients, page_millis, pages, reading_pages};
use crate::child::{Server, Starter};
use crate::conditions::Condition;
use crate::load::{Pace, Phase};
use crate::place::{Ground, Place};
use crate::receivers::Receivers;
use crate::report::EngineReport;
use crate::row_locks::RowLocks;
use crate::rows::{Figure, PageTime, Row, Side};
use crate::samples::{Sample, Samples, median};

/// Customers of a database, over whose accounts payments are spread.
const PAYERS: u64 = 10_000;

/// Clients at once.
const CONNECTIONS: usize = 64;

/// Customers of each platform whose events are delivered.
const NOTIFIED_PAYERS: u64 = 1_000;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How often each load of a comparison is measured.
    pub rounds: usize,
    /// Before each.
    pub warm_up: Duration,
    /// How long each is measured.
    pub duration: Duration,
    /// How long latency at a fixed pace is measured.
    pub latency_duration: Duration,
    /// How long the full load is whose costs are measured.
    pub costs_duration: Duration,
    /// Payments in the small database.
    pub small: u64,
    /// Payments in the large one.
    pub large: u64,
    /// Payments of each of the two platforms whose events are delivered.
    pub notified: u64,
    /// Whether the large one is kept for later runs, and taken over from an earlier one.
    pub keeps_large: bool,
}

impl Plan {
    /// The subjects of figures.
    pub const FULL: Self = Self {
        rounds: 3,
        warm_up: Duration::from_secs(2),
        duration: Duration::from_secs(10),
        latency_duration: Duration::from_secs(30),
        costs_duration: Duration::from_secs(60),
        small: 10_000,
        large: 10_000_000,
        notified: 30_000,
        keeps_large: false,
    };

    /// A plan that shows in some minutes whether something is far off.
    pub const QUICK: Self = Self {
        rounds: 2,
        warm_up: Duration::from_millis(500),
        duration: Duration::from_millis(1_500),
        latency_duration: Duration::from_secs(3),
        costs_duration: Duration::from_secs(4),
        small: 10_000,
        large: 100_000,
        notified: 5_000,
        keeps_large: false,
    };

    fn closed(&self) -> Phase {
        Phase {
            sessions: CONNECTIONS,
            warm_up: self.warm_up,
            duration: self.duration,
            pace: Pace::Closed,
        }
    }

    /// The plan as conditions of its figures.
    pub fn conditions(&self) -> Vec<Condition> {
        let Self { rounds, warm_up, duration, latency_duration, costs_duration, .. } = self;
        let Self { small, large, notified, .. } = self;
        let loads = format!(
            "{rounds} rounds in turn, {duration:?} each after {warm_up:?}, {CONNECTIONS} \
             connections; latency {latency_duration:?} at half of the peak, costs over \
             {costs_duration:?}"
        );
        let data = format!(
            "{small} payments in the small database, {large} in the large one, {PAYERS} customers; \
             events of {notified} payments of each of two platforms"
        );
        vec![Condition::new("load", loads), Condition::new("data", data)]
    }
}

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    NoopPost,
    Transfer,
    Hot,
    RowLocks,
    SettledRowLocks,
    Exchange,
    NoopGet,
    Get,
    TransferLarge,
    OneServer,
    TwoServers,
}

impl Load {
    const ALL: [Self; 11] = [
        Self::NoopPost,
        Self::Transfer,
        Self::Hot,
        Self::RowLocks,
        Self::SettledRowLocks,
        Self::Exchange,
        Self::NoopGet,
        Self::Get,
        Self::TransferLarge,
        Self::OneServer,
        Self::TwoServers,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::NoopPost => "no-op POST",
            Self::Transfer => "transfer-out, random accounts",
            Self::Hot => "transfer-out, one hot account",
            Self::RowLocks => "row locks, one hot account",
            Self::SettledRowLocks => "the same, settled with row locks too",
            Self::Exchange => "quote + execute",
            Self::NoopGet => "no-op GET",
            Self::Get => "GET one transaction",
            Self::TransferLarge => "transfer-out, large database",
            Self::OneServer => "one server, hot account",
            Self::TwoServers => "two servers, hot account",
        }
    }

    /// Whether it leaves payments that settle.
    fn pays(self) -> bool {
        match self {
            Self::Transfer
            | Self::Hot
            | Self::Exchange
            | Self::TransferLarge
            | Self::OneServer
            | Self::TwoServers => true,
            Self::NoopPost | Self::RowLocks | Self::SettledRowLocks | Self::NoopGet | Self::Get => {
                false
            }
        }
    }
}

/// Figures of an empty database.
const ON_EMPTY: &[Row] = &[Row::StartEmpty, Row::MemoryRest];

/// Figures of one server on a small database.
const ON_SMALL: &[Row] = &[
    Row::Transfer,
    Row::Hot,
    Row::RowLocks,
    Row::SettledRowLocks,
    Row::Exchange,
    Row::Latency,
    Row::Get,
    Row::MemoryLoad,
];

/// Figures of a server on a large database, some of it in turn with one on a small database.
const ON_LARGE: &[Row] = &[Row::StartLarge, Row::Growth, Row::Pages, Row::PagesUnderLoad];

const DELIVERIES: &[Row] = &[Row::Deliveries];
const TWO_SERVERS: &[Row] = &[Row::TwoServers];

/// Figures of a long time of full load.
const COSTS: &[Row] =
    &[Row::Processor, Row::Settled, Row::Device, Row::Commit, Row::Log, Row::Disk];

/// Rows that are measured together: their name, and how.
type Group<'a> = (&'static str, &'static [Row], fn(&mut Run<'a>) -> Result<()>);

/// Measures the rows that are wanted. A group of rows that fails does not take the others along:
/// its errors are given beside the report.
pub fn run(
    ground: &Ground,
    plan: &Plan,
    wanted: &BTreeSet<Row>,
    starter: &Starter,
) -> Result<(EngineReport, Vec<anyhow::Error>)> {
    let engine = ground.engine();
    let report = EngineReport { conditions: plan.conditions(), ..EngineReport::default() };
    let (receivers, large) = (None, None);
    let mut run = Run { ground, plan, wanted: BTreeSet::new(), starter, receivers, large, report };
    let mut errors = Vec::new();
    for is_notified in [false, true] {
        let rows = wanted.iter().copied().filter(|row| row.is_of(engine));
        run.wanted = rows.filter(|row| !is_notified || row.is_notified()).collect();
        if is_notified && !run.wanted.is_empty() {
            println!("{engine}: with a webhook endpoint");
            run.receivers = Some(starter.receive()?);
        }
        for (name, rows, measure) in Run::GROUPS {
            if run.wants(rows)
                && let Err(error) = measure(&mut run)
            {
                let error = error.context(format!("{engine}, {name}"));
                println!("NOT MEASURED: {error:#}");
                errors.push(error);
            }
        }
    }
    let mut report = run.report;
    report.figures.sort_by_key(|figure| figure.row);
    Ok((report, errors))
}

struct Run<'a> {
    ground: &'a Ground,
    plan: &'a Plan,
    wanted: BTreeSet<Row>,
    starter: &'a Starter,
    /// Those to whom events are delivered, while that is measured.
    receivers: Option<Receivers>,
    /// The large database, once it was made.
    large: Option<Place>,
    report: EngineReport,
}

impl<'a> Run<'a> {
    const GROUPS: [Group<'a>; 6] = [
        ("an empty database", ON_EMPTY, Self::empty),
        ("deliveries", DELIVERIES, Self::deliveries),
        ("costs", COSTS, Self::costs),
        ("a small database", ON_SMALL, Self::small),
        ("two servers", TWO_SERVERS, Self::two_servers),
        ("a large database", ON_LARGE, Self::large),
    ];

    fn wants(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| self.wanted.contains(row))
    }

    /// Starts a server on a database, whose events are delivered if that is measured.
    fn serve(&self, place: &Place) -> Result<Server> {
        let server = self.starter.serve(place)?;
        if let Some(receivers) = &self.receivers {
            server.notify(Some(&receivers.fast))?;
        }
        Ok(server)
    }

    fn clients(&self, server: &Server) -> Result<Clients<'a>> {
        Clients::of(server, self.ground, self.receivers.is_some())
    }

    /// Keeps a figure, if it is wanted: that with a webhook endpoint beside the other.
    fn figure(&mut self, row: Row, value: f64, sides: Vec<Side>, note: impl Into<String>) {
        if self.receivers.is_some() {
            let mut figures = self.report.figures.iter_mut();
            if let Some(figure) = figures.find(|figure| figure.row == row) {
                figure.notified = Some(value);
            }
        } else if self.wanted.contains(&row) {
            let (notified, aim) = (None, row.aim(self.ground.engine()));
            let note = note.into();
            self.report.figures.push(Figure { row, value, notified, sides, aim, note });
        }
    }

    /// Keeps the ratio of two loads, if it is wanted and both were measured.
    fn ratio(&mut self, row: Row, samples: &Samples<Load>, ours: Load, yardstick: Load) {
        if samples.has(ours) && samples.has(yardstick) {
            let side = |load: Load| Side::new(load.name(), samples.per_second(load), "/s");
            let sides = vec![side(ours), side(yardstick)];
            self.figure(row, samples.ratio(ours, yardstick), sides, "");
        }
    }

    fn throughput(&mut self, samples: &Samples<Load>) {
        let measured = Load::ALL.into_iter().filter(|load| samples.has(*load));
        let notified = if self.receivers.is_some() { ", with webhooks" } else { "" };
        let name = |load: Load| format!("{}{notified}", load.name());
        let rows = measured.map(|load| samples.throughput(load, &name(load)));
        self.report.throughput.extend(rows);
    }

    fn database(&self, name: &str, payments: u64) -> Result<Place> {
        println!("{}: a {name} database", self.ground.engine());
        let place = self.ground.fresh(name)?;
        self.starter.generate(&place, PAYERS, payments, &[])?;
        Ok(place)
    }

    fn large_database(&self) -> Result<Place> {
        let name = format!("large-{}", self.plan.large);
        if !self.plan.keeps_large {
            return self.database("large", self.plan.large);
        }
        if let Some(kept) = self.ground.kept(&name)? {
            println!("{}: the large database that was kept", self.ground.engine());
            return Ok(kept);
        }
        self.database("large", self.plan.large)?.keep_as(self.ground, &name)
    }

    fn said(&self, name: &str, sample: Sample) -> Sample {
        println!("{:<10} {name:<30} {}", self.ground.engine().to_string(), sample.line());
        sample
    }

    fn empty(&mut self) -> Result<()> {
        let (mut seconds, mut megabytes, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.plan.rounds {
            let place = self.ground.fresh("empty")?;
            let server = self.starter.serve(&place)?;
            seconds.push(server.ready_after().as_secs_f64());
            let memory = server.memory()?;
            megabytes.push(in_megabytes(memory.resident));
            own.push(in_megabytes(memory.own));
            server.stop()?;
        }
        self.figure(Row::StartEmpty, median(seconds), Vec::new(), "the first start");
        let own = median(own);
        let note = format!("an empty database; {own:.1} MB without pages of the program's file");
        self.figure(Row::MemoryRest, median(megabytes), Vec::new(), note);
        Ok(())
    }

    /// The events of two platforms wait when the server starts. The figure is what the receiver of
    /// one has seen, each event once, from the first to the last.
    fn deliveries(&mut self) -> Result<()> {
        let (mut rates, mut events, mut again, mut hanging) = (Vec::new(), 0, 0, 0);
        for _ in 0..self.plan.rounds {
            let mut receivers = self.starter.receive()?;
            let place = self.ground.fresh("deliveries")?;
            let endpoints = [&*receivers.fast, &receivers.hanging];
            self.starter.generate(&place, NOTIFIED_PAYERS, self.plan.notified, &endpoints)?;
            let server = self.starter.serve(&place)?;
            let counted = receivers.when_quiet()?;
            let all = server.events()?;
            ensure!(counted.events == all, "{counted:?} came of {all} events");
            ensure!(counted.hanging > 0, "the endpoint that hangs was not asked");
            println!(
                "{:<10} {:<30} {:>9.0}/s   {} events",
                self.ground.engine().to_string(),
                "deliveries",
                counted.per_second(),
                counted.events
            );
            server.stop()?;
            rates.push(counted.per_second());
            (events, hanging) = (counted.events, counted.hanging);
            again += counted.requests - counted.events;
        }
        let note = format!(
            "{events} events, each in a request of its own that is signed twice; {again} came \
             again; {hanging} requests to the other endpoint had no answer"
        );
        self.figure(Row::Deliveries, median(rates), Vec::new(), note);
        Ok(())
    }

    fn small(&mut self) -> Result<()> {
        let small = self.database("small", self.plan.small)?;
        let server = self.serve(&small)?;
        let clients = self.clients(&server)?;
        let yardstick = match self.wants(&[Row::RowLocks, Row::SettledRowLocks]) {
            true => Some(self.ground.fresh("row-locks")?),
            false => None,
        };
        let row_locks =
            yardstick.as_ref().map(|place| RowLocks::set_up(&place.url())).transpose()?;
        let phase = self.plan.closed();

        let needs = [
            (Load::NoopPost, &[Row::Transfer][..]),
            (
                Load::Transfer,
                &[Row::Transfer, Row::Hot, Row::Exchange, Row::Latency, Row::MemoryLoad],
            ),
            (Load::Hot, &[Row::Hot, Row::RowLocks, Row::SettledRowLocks]),
            (Load::RowLocks, &[Row::RowLocks]),
            (Load::SettledRowLocks, &[Row::SettledRowLocks]),
            (Load::Exchange, &[Row::Exchange]),
            (Load::NoopGet, &[Row::Get]),
            (Load::Get, &[Row::Get]),
        ];
        let loads = needs.iter().filter(|(_, rows)| self.wants(rows)).map(|(load, _)| *load);
        let loads: Vec<_> = loads.collect();
        let samples = Samples::take(self.plan.rounds, &loads, |load| {
            let servers = std::slice::from_ref(&server);
            let sample = clients.measure(load, servers, row_locks.as_ref(), &phase)?;
            Ok(self.said(load.name(), sample))
        })?;
        self.throughput(&samples);
        self.ratio(Row::Transfer, &samples, Load::Transfer, Load::NoopPost);
        self.ratio(Row::Hot, &samples, Load::Hot, Load::Transfer);
        self.ratio(Row::RowLocks, &samples, Load::Hot, Load::RowLocks);
        self.ratio(Row::SettledRowLocks, &samples, Load::Hot, Load::SettledRowLocks);
        self.ratio(Row::Exchange, &samples, Load::Exchange, Load::Transfer);
        self.ratio(Row::Get, &samples, Load::Get, Load::NoopGet);
        if self.wants(&[Row::Latency]) {
            self.latency(&server, &clients, samples.per_second(Load::Transfer))?;
        }
        let peak = in_megabytes(server.memory()?.peak);
        self.figure(Row::MemoryLoad, peak, Vec::new(), format!("{CONNECTIONS} connections"));
        server.stop()
    }

    fn latency(&mut self, server: &Server, clients: &Clients, peak: f64) -> Result<()> {
        let phase = Phase {
            duration: self.plan.latency_duration,
            pace: Pace::Open { per_second: peak / 2.0 },
            ..self.plan.closed()
        };
        let sample = self.said("transfer-out, half of peak", clients.pay(server, &phase)?);
        let at = |percent| sample.outcome.millis_at(percent);
        let note = format!(
            "{:.0}/s; p50 {:.2} ms, p99.9 {:.2} ms",
            sample.outcome.per_second(),
            at(50.0),
            at(99.9)
        );
        self.figure(Row::Latency, at(99.0), Vec::new(), note);
        if self.receivers.is_none() {
            self.report.latency = sample.curve();
        }
        Ok(())
    }

    fn large(&mut self) -> Result<()> {
        let large = match self.large.take() {
            Some(large) => large,
            None => self.large_database()?,
        };
        let measured = self.on_large(&large);
        self.large = Some(large);
        measured
    }

    fn on_large(&mut self, large: &Place) -> Result<()> {
        let count = self.plan.large;
        let mut seconds = Vec::new();
        for _ in 0..self.plan.rounds {
            let server = self.starter.serve(large)?;
            seconds.push(server.ready_after().as_secs_f64());
            server.stop()?;
        }
        self.figure(Row::StartLarge, median(seconds), Vec::new(), format!("{count} payments"));
        let server = self.serve(large)?;
        if self.wants(&[Row::Pages]) {
            let small = self.database("small-pages", self.plan.small)?;
            let small = self.starter.serve(&small)?;
            self.pages(&[&small, &server])?;
            small.stop()?;
        }
        if self.wants(&[Row::PagesUnderLoad]) {
            self.pages_under_load(&server)?;
        }
        if self.wants(&[Row::Growth]) {
            self.growth(&server)?;
        }
        // The database may be kept for runs without an endpoint.
        server.notify(None)?;
        server.stop()
    }

    /// The small database is a new one in each round, as it grows while it is measured.
    fn growth(&mut self, large: &Server) -> Result<()> {
        let phase = self.plan.closed();
        let clients = self.clients(large)?;
        let loads = [Load::Transfer, Load::TransferLarge];
        let samples = Samples::take(self.plan.rounds, &loads, |load| {
            if load == Load::TransferLarge {
                return Ok(self.said(load.name(), clients.pay(large, &phase)?));
            }
            let small = self.database("small-growing", self.plan.small)?;
            let server = self.serve(&small)?;
            let sample = self.clients(&server)?.pay(&server, &phase)?;
            server.stop()?;
            Ok(self.said(load.name(), sample))
        })?;
        self.ratio(Row::Growth, &samples, Load::TransferLarge, Load::Transfer);
        let large = samples.throughput(Load::TransferLarge, Load::TransferLarge.name());
        self.report.throughput.push(large);
        Ok(())
    }

    fn pages(&mut self, servers: &[&Server; 2]) -> Result<()> {
        let sizes = [self.plan.small, self.plan.large];
        let mut asked = [pages(servers[0])?, pages(servers[1])?];
        let names = asked.each_ref().map(|(_, pages)| pages.iter().map(|(name, _)| name));
        let [of_small, of_large] = names;
        ensure!(of_small.eq(of_large), "the two databases do not have the same pages");
        let mut slowest: Option<(f64, Vec<Side>)> = None;
        for index in 0..asked[0].1.len() {
            let mut millis = [Vec::new(), Vec::new()];
            for _ in 0..self.plan.rounds {
                let sides = asked.each_mut().map(|(client, pages)| (client, &*pages[index].1));
                for (millis, of_round) in millis.iter_mut().zip(page_millis(sides)?) {
                    millis.push(of_round);
                }
            }
            let name = &asked[0].1[index].0;
            let ratio =
                median(millis[1].iter().zip(&millis[0]).map(|(large, small)| large / small));
            let times = millis.map(median);
            println!(
                "{:<10} page: {name:<24} {:>9.3} ms   {:>9.3} ms   {ratio:.2}",
                self.ground.engine().to_string(),
                times[0],
                times[1]
            );
            for (at, millis) in times.into_iter().enumerate() {
                let transactions = sizes[at];
                self.report.pages.push(PageTime { page: name.clone(), transactions, millis });
            }
            if slowest.as_ref().is_none_or(|(slowest, _)| times[1] > *slowest) {
                let side = |at: usize| {
                    Side::new(&format!("{name}, {} payments", sizes[at]), times[at], "ms")
                };
                slowest = Some((times[1], vec![side(1), side(0)]));
            }
        }
        let (millis, sides) = slowest.context("no page was read")?;
        self.figure(Row::Pages, millis, sides, format!("of {} lists", asked[0].1.len()));
        Ok(())
    }

    /// One client reads the newest payments again and again while others pay.
    fn pages_under_load(&mut self, server: &Server) -> Result<()> {
        let clients = self.clients(server)?;
        let (mut p50, mut p99) = (Vec::new(), Vec::new());
        for _ in 0..self.plan.rounds {
            let pay = || clients.pay(server, &self.plan.closed());
            let (paid, read) = reading_pages(server, pay)?;
            self.said("transfer-out, beside pages", paid);
            p50.push(read.millis_at(50.0));
            p99.push(read.millis_at(99.0));
        }
        let note = format!("p50 {:.2} ms", median(p50));
        self.figure(Row::PagesUnderLoad, median(p99), Vec::new(), note);
        Ok(())
    }

    fn two_servers(&mut self) -> Result<()> {
        let small = self.database("small", self.plan.small)?;
        let servers = [self.starter.serve(&small)?, self.starter.serve(&small)?];
        let clients = self.clients(&servers[0])?;
        let loads = [Load::OneServer, Load::TwoServers];
        let phase = self.plan.closed();
        let samples = Samples::take(self.plan.rounds, &loads, |load| {
            let used = if load == Load::OneServer { &servers[..1] } else { &servers[..] };
            Ok(self.said(load.name(), clients.measure(load, used, None, &phase)?))
        })?;
        self.throughput(&samples);
        self.ratio(Row::TwoServers, &samples, Load::TwoServers, Load::OneServer);
        servers.into_iter().try_for_each(Server::stop)
    }
}

fn in_megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
