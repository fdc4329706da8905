//! The figures, and their aims.

use serde::{Deserialize, Serialize};

use crate::place::Engine;

/// A figure that has a aim, or that others are judged by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// Processor time of the server for a settled payment.
    Processor,
    /// Settled payments against requests that store nothing.
    Transfer,
    /// One account that everybody uses against many.
    Hot,
    /// The same against a ledger with row locks, which only accepts.
    RowLocks,
    /// The same against row locks that are taken for the acceptance and for the settlement.
    SettledRowLocks,
    /// Settled payments against accepted payments, under full load.
    Settled,
    /// Bytes written to the device against the growth of the journal.
    Device,
    /// A commit against a flush of as many bytes.
    Commit,
    /// Bytes of the log of a database server for each payment.
    Log,
    /// Quote and execution against a payment.
    Exchange,
    /// Latency when the server is half busy.
    Latency,
    /// A read of a payment against one that reads nothing.
    Get,
    /// Time of the slowest list page in a large database, beside a small one.
    Pages,
    /// Time of a list page while payments are made.
    PagesUnderLoad,
    /// Payments in a large database against a small one.
    Growth,
    /// Events that an endpoint gets while another one hangs.
    Deliveries,
    /// Disk for each payment.
    Disk,
    /// Memory of a server that does nothing.
    MemoryRest,
    /// Memory of a server under load.
    MemoryLoad,
    /// Start on nothing.
    StartEmpty,
    /// Start on a large database.
    StartLarge,
    /// Two servers on one database against one.
    TwoServers,
}

/// The aim of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Aim {
    /// Whether a figure reaches it.
    pub fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }
}

impl Row {
    /// All rows, in the order of the report.
    pub const ALL: [Self; 22] = [
        Self::Processor,
        Self::Transfer,
        Self::Hot,
        Self::RowLocks,
        Self::SettledRowLocks,
        Self::Settled,
        Self::Device,
        Self::Commit,
        Self::Log,
        Self::Exchange,
        Self::Latency,
        Self::Get,
        Self::Pages,
        Self::PagesUnderLoad,
        Self::Growth,
        Self::Deliveries,
        Self::Disk,
        Self::MemoryRest,
        Self::MemoryLoad,
        Self::StartEmpty,
        Self::StartLarge,
        Self::TwoServers,
    ];

    /// The name of the figure, for people.
    pub fn what(self) -> &'static str {
        match self {
            Self::Processor => "processor of the server for a settled payment; for a no-op POST",
            Self::Transfer => "settled `POST /transfer-out` ÷ authenticated no-op POST",
            Self::Hot => "settled, one hot account ÷ 10,000 random accounts",
            Self::RowLocks => "settled, hot ÷ row locks that only accept",
            Self::SettledRowLocks => "settled, hot ÷ row locks that accept and settle",
            Self::Settled => "settled ÷ accepted under full load",
            Self::Device => "bytes written to the device ÷ bytes of the journal",
            Self::Commit => "mean commit ÷ fdatasync of as many bytes",
            Self::Log => "WAL for a settled payment; with row locks",
            Self::Exchange => "quote + execute between currencies ÷ transfer-out",
            Self::Latency => "p99 of transfer-out at half of peak load, open loop",
            Self::Get => "`GET /transactions/{id}` ÷ authenticated no-op GET",
            Self::Pages => "list page in a large database, median of the slowest",
            Self::PagesUnderLoad => "list page in it while payments are made, p99",
            Self::Growth => "transfer-out, large database ÷ small",
            Self::Deliveries => {
                "webhook deliveries to a fast receiver while another endpoint hangs"
            }
            Self::Disk => "disk for a settled payment, all included; of the journal",
            Self::MemoryRest => "memory at rest",
            Self::MemoryLoad => "memory under load, peak",
            Self::StartEmpty => "start to ready, empty database",
            Self::StartLarge => "start to ready, large database",
            Self::TwoServers => "two servers on one database, hot account ÷ one server",
        }
    }

    /// The unit of the figure; none for a ratio.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Transfer
            | Self::Hot
            | Self::RowLocks
            | Self::SettledRowLocks
            | Self::Settled
            | Self::Device
            | Self::Commit
            | Self::Exchange
            | Self::Get
            | Self::Growth
            | Self::TwoServers => "",
            Self::Processor => "µs",
            Self::Deliveries => "/s",
            Self::Latency | Self::Pages | Self::PagesUnderLoad => "ms",
            Self::Disk | Self::Log => "kB",
            Self::MemoryRest | Self::MemoryLoad => "MB",
            Self::StartEmpty | Self::StartLarge => "s",
        }
    }

    /// The aim, if there is one.
    pub fn aim(self, engine: Engine) -> Option<Aim> {
        match (self, engine) {
            (Self::Processor, Engine::Sqlite) => Some(Aim::AtMost(190.0)),
            (Self::Transfer, Engine::Sqlite) => Some(Aim::AtLeast(0.15)),
            // There the row locks are what it is compared with.
            (Self::Processor | Self::Transfer, Engine::Postgres) => None,
            (Self::Hot, _) => Some(Aim::AtLeast(0.95)),
            // It stands beside the row of row locks that settle.
            (Self::RowLocks, _) => None,
            (Self::SettledRowLocks, _) => Some(Aim::AtLeast(17.0)),
            (Self::Settled, _) => Some(Aim::AtLeast(0.95)),
            (Self::Device, _) => Some(Aim::AtMost(8.0)),
            (Self::Commit, _) => Some(Aim::AtMost(3.0)),
            (Self::Log, _) => Some(Aim::AtMost(3.0)),
            (Self::Exchange, _) => Some(Aim::AtLeast(0.35)),
            (Self::Latency, Engine::Sqlite) => Some(Aim::AtMost(8.0)),
            (Self::Latency, Engine::Postgres) => Some(Aim::AtMost(20.0)),
            (Self::Get, Engine::Sqlite) => Some(Aim::AtLeast(0.6)),
            (Self::Get, Engine::Postgres) => Some(Aim::AtLeast(0.45)),
            (Self::Pages, _) => Some(Aim::AtMost(5.0)),
            (Self::PagesUnderLoad, _) => Some(Aim::AtMost(150.0)),
            (Self::Growth, _) => Some(Aim::AtLeast(0.7)),
            (Self::Deliveries, _) => Some(Aim::AtLeast(5_000.0)),
            (Self::Disk, Engine::Sqlite) => Some(Aim::AtMost(1.2)),
            (Self::Disk, Engine::Postgres) => Some(Aim::AtMost(2.2)),
            (Self::MemoryRest, _) => Some(Aim::AtMost(30.0)),
            (Self::MemoryLoad, _) => Some(Aim::AtMost(300.0)),
            (Self::StartEmpty, _) => Some(Aim::AtMost(0.2)),
            (Self::StartLarge, _) => Some(Aim::AtMost(2.0)),
            (Self::TwoServers, _) => Some(Aim::AtLeast(0.9)),
        }
    }

    /// Whether the row is about this engine at all.
    pub fn is_of(self, engine: Engine) -> bool {
        match self {
            Self::RowLocks | Self::SettledRowLocks | Self::TwoServers | Self::Log => {
                engine == Engine::Postgres
            }
            // A database server writes in processes of its own.
            Self::Device => engine == Engine::Sqlite,
            Self::Processor
            | Self::Transfer
            | Self::Hot
            | Self::Settled
            | Self::Commit
            | Self::Exchange
            | Self::Latency
            | Self::Get
            | Self::Pages
            | Self::PagesUnderLoad
            | Self::Growth
            | Self::Deliveries
            | Self::Disk
            | Self::MemoryRest
            | Self::MemoryLoad
            | Self::StartEmpty
            | Self::StartLarge => true,
        }
    }

    /// Whether the row is measured with a webhook endpoint too: rows that pay are, but for a few
    /// that would say the same.
    pub fn is_notified(self) -> bool {
        match self {
            Self::Processor
            | Self::Transfer
            | Self::Hot
            | Self::SettledRowLocks
            | Self::Settled
            | Self::Device
            | Self::Commit
            | Self::Log
            | Self::Latency
            | Self::PagesUnderLoad
            | Self::Growth
            | Self::Disk => true,
            Self::RowLocks
            | Self::Exchange
            | Self::Get
            | Self::Pages
            | Self::Deliveries
            | Self::MemoryRest
            | Self::MemoryLoad
            | Self::StartEmpty
            | Self::StartLarge
            | Self::TwoServers => false,
        }
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The measured value.
    pub what: String,
    /// The median of its rounds.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

impl Side {
    /// A side.
    pub fn new(what: &str, value: f64, unit: &str) -> Self {
        Self { what: what.to_owned(), value, unit: unit.to_owned() }
    }
}

/// A measured row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Which.
    pub row: Row,
    /// The subject of the aim.
    pub value: f64,
    /// The same with a webhook endpoint, to which all events are delivered meanwhile.
    #[serde(default)]
    pub notified: Option<f64>,
    /// The two sides of a ratio, ours first; nothing where the figure stands for itself.
    pub sides: Vec<Side>,
    /// The aim.
    #[serde(alias = "goal")]
    pub aim: Option<Aim>,
    /// Further notes.
    pub note: String,
}

impl Figure {
    /// Whether the aim is met; none if there is no aim.
    pub fn is_met(&self) -> Option<bool> {
        self.aim.map(|aim| aim.is_met(self.value))
    }
}

/// Throughput of one kind of load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Which load.
    pub load: String,
    /// Operations a second; of payments, the accepted ones.
    pub per_second: f64,
    /// Payments completed in a second within the same time.
    #[serde(alias = "sustained_per_second")]
    pub settled_per_second: Option<f64>,
    /// Median latency in milliseconds.
    pub p50_millis: f64,
    /// Latency in milliseconds that 99 % did not exceed.
    pub p99_millis: f64,
}

/// A table of what a payment costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// Its subject.
    pub title: String,
    /// The rows.
    pub parts: Vec<Part>,
}

/// A row of such a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The name of the part.
    pub name: String,
    /// Its value.
    pub value: Option<f64>,
    /// The same with a webhook endpoint.
    pub notified: Option<f64>,
}

/// The time of a page of a list in a database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageTime {
    /// Which page of which list.
    pub page: String,
    /// Transactions in the database.
    pub transactions: u64,
    /// Median time in milliseconds.
    pub millis: f64,
}

/// A point of a latency curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyPoint {
    /// Of the operations, in percent.
    pub percent: f64,
    /// The percentile, in milliseconds.
    pub millis: f64,
}
