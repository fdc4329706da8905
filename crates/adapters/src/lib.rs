//! The [`ports`] of this process: the real clock and the system's chance, a table of rates, a
//! Lightning node's invoices, the rails and the UMA institutions of the sandbox. Tests have a clock
//! and chance that can be set.
//!
//! The binary chooses among them. Nothing here decides whether a payment is allowed, keeps money,
//! or knows a database; the sandbox steers outcomes only through the answers of its rail.

pub mod clock;
pub mod entropy;
pub mod identity;
pub mod outbound;
pub mod rates;
pub mod lightning;
pub mod rails;
pub mod uma;
pub mod modes;
