//! The benchmark: what the server reaches, measured against yardsticks of the same run.
//!
//! `cargo xtask bench` starts it. It fills databases, starts servers on them as processes of their
//! own, loads them through their sockets, and compares what it sees with what it sees of the same
//! machine in the same minutes: a route that stores nothing, a ledger with row locks, a smaller
//! database. Absolute figures are the machine's; the ratios are ours.
//!
//! Nothing is switched off that production has on. It is no part of the product, and nothing of the
//! product knows it.

pub mod rows;
pub mod measure;
pub mod counters;
pub mod samples;
pub mod load;
pub mod http;
pub mod sessions;
pub mod yardsticks;
pub mod row_locks;
pub mod child;
pub mod receivers;
pub mod place;
pub mod postgres;
pub mod generate;
pub mod conditions;
pub mod report;
pub mod plot;
pub mod cells;
pub mod uma;
pub mod time;
