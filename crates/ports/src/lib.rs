//! Every way in which the outside world can touch us, on one page of traits.
//!
//! Time, chance, payment rails, rate sources and UMA peers are here; `adapters` implements them,
//! for real and for the sandbox, and the binary chooses. Nothing in this crate does anything by
//! itself.

pub mod clock;
pub mod entropy;
pub mod identity;
pub mod outbound;
pub mod rail;
pub mod rails;
pub mod rates;
pub mod uma;
