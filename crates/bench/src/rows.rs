//! The figures, and their goals.

use serde::{Deserialize, Serialize};

use crate::place::Engine;

/// A figure that has a goal, or that others are judged by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// Durable payments against requests that store nothing.
    Transfer,
    /// One account that everybody uses against many.
    Hot,
    /// The same against a ledger with row locks.
    RowLocks,
    /// The same against row locks that are taken for the acceptance and for the settlement.
    SettledRowLocks,
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

/// The goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
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
    pub const ALL: [Self; 17] = [
        Self::Transfer,
        Self::Hot,
        Self::RowLocks,
        Self::SettledRowLocks,
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
            Self::Transfer => "durable `POST /transfer-out` ÷ authenticated no-op POST",
            Self::Hot => "the same, one hot account ÷ 10,000 random accounts",
            Self::RowLocks => "the same, hot ÷ one transaction per request with row locks",
            Self::SettledRowLocks => "the same, hot ÷ row locks for acceptance and settlement",
            Self::Exchange => "quote + execute between currencies ÷ transfer-out",
            Self::Latency => "p99 of transfer-out at half of peak load, open loop",
            Self::Get => "`GET /transactions/{id}` ÷ authenticated no-op GET",
            Self::Pages => "list page in a large database, median of the slowest",
            Self::PagesUnderLoad => "list page in it while payments are made, p99",
            Self::Growth => "transfer-out, large database ÷ small",
            Self::Deliveries => {
                "webhook deliveries to a fast receiver while another endpoint hangs"
            }
            Self::Disk => "disk per payment, all included",
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
            | Self::Exchange
            | Self::Get
            | Self::Growth
            | Self::TwoServers => "",
            Self::Deliveries => "/s",
            Self::Latency | Self::Pages | Self::PagesUnderLoad => "ms",
            Self::Disk => "kB",
            Self::MemoryRest | Self::MemoryLoad => "MB",
            Self::StartEmpty | Self::StartLarge => "s",
        }
    }

    /// The goal, if there is one.
    pub fn goal(self, engine: Engine) -> Option<Goal> {
        match (self, engine) {
            (Self::Transfer, Engine::Sqlite) => Some(Goal::AtLeast(0.25)),
            // There the row locks are what it is compared with.
            (Self::Transfer, Engine::Postgres) => None,
            (Self::Hot, _) => Some(Goal::AtLeast(0.95)),
            (Self::RowLocks, _) => Some(Goal::AtLeast(12.0)),
            (Self::SettledRowLocks, _) => Some(Goal::AtLeast(20.0)),
            (Self::Exchange, _) => Some(Goal::AtLeast(0.35)),
            (Self::Latency, Engine::Sqlite) => Some(Goal::AtMost(8.0)),
            (Self::Latency, Engine::Postgres) => Some(Goal::AtMost(20.0)),
            (Self::Get, Engine::Sqlite) => Some(Goal::AtLeast(0.7)),
            (Self::Get, Engine::Postgres) => Some(Goal::AtLeast(0.5)),
            (Self::Pages, _) => Some(Goal::AtMost(5.0)),
            (Self::PagesUnderLoad, _) => Some(Goal::AtMost(120.0)),
            (Self::Growth, _) => Some(Goal::AtLeast(0.6)),
            (Self::Deliveries, _) => Some(Goal::AtLeast(5_000.0)),
            (Self::Disk, _) => Some(Goal::AtMost(1.2)),
            (Self::MemoryRest, _) => Some(Goal::AtMost(30.0)),
            (Self::MemoryLoad, _) => Some(Goal::AtMost(300.0)),
            (Self::StartEmpty, _) => Some(Goal::AtMost(0.2)),
            (Self::StartLarge, _) => Some(Goal::AtMost(2.0)),
            (Self::TwoServers, _) => Some(Goal::AtLeast(0.9)),
        }
    }

    /// Whether the row is about this engine at all.
    pub fn is_of(self, engine: Engine) -> bool {
        match self {
            Self::RowLocks | Self::SettledRowLocks | Self::TwoServers => engine == Engine::Postgres,
            Self::Transfer
            | Self::Hot
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
    /// The subject of the goal.
    pub value: f64,
    /// The two sides of a ratio, ours first; nothing where the figure stands for itself.
    pub sides: Vec<Side>,
    /// The goal.
    pub goal: Option<Goal>,
    /// Further notes.
    pub note: String,
}

impl Figure {
    /// Whether the goal is met; none if there is no goal.
    pub fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| goal.is_met(self.value))
    }
}

/// Throughput of one kind of load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Which load.
    pub load: String,
    /// Operations a second.
    pub per_second: f64,
    /// The same with the time that settlement took afterwards, where there is one.
    pub sustained_per_second: Option<f64>,
    /// Median latency in milliseconds.
    pub p50_millis: f64,
    /// Latency in milliseconds that 99 % did not exceed.
    pub p99_millis: f64,
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
