//! Use cases and jobs: the only code that writes.
//!
//! Each function here is one thing that a client, an operator or time can cause. It reads the clock
//! once, draws its identifiers, and does the rest in one unit of work ([`store::Store::write`]).
//! Calls to the outside world (rails, UMA peers) happen before or after, never inside.
//!
//! This crate knows nothing of HTTP and has no getters: who only reads, reads the store.

pub mod error;
pub mod presenter;
mod decisions;
mod notices;
pub mod env;
mod slots;
pub mod locality;
mod strangers;
mod windows;
mod pace;
mod bulkheads;
mod steps;
pub mod app;
pub mod auth;
pub mod guesses;
mod refusals;
pub mod once;
pub mod owners;
pub mod limits;
pub mod lifecycle;
pub mod balances;
pub mod platforms;
pub mod clock;
pub mod tokens;
pub mod customers;
pub mod identity;
pub mod erasure;
pub mod bulk;
pub mod external_accounts;
pub mod pricing;
pub mod lookups;
pub mod uma;
pub mod transfers;
pub mod quotes;
pub mod incoming;
pub mod approvals;
pub mod funding;
pub mod invitations;
pub mod webhooks;
pub mod expiry;
mod settlement;
mod rail_orders;
mod rail_answers;
pub mod attention;
pub mod resolutions;
pub mod leadership;
mod clock_steps;
mod sweeps;
pub mod jobs;

pub use app::App;
pub use env::Env;
pub use error::Error;
