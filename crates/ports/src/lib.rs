//! Every way in which the outside world can touch us, on one page of traits.
//!
//! Time, chance, payment rails, Lightning, rate sources and UMA institutions are here; `adapters`
//! implements them, for real and for the sandbox, and the binary chooses. Nothing in this crate
//! does anything by itself.

pub mod clock;
pub mod entropy;
pub mod identity;
pub mod lightning;
pub mod locality;
pub mod outbound;
pub mod rail;
pub mod rails;
pub mod rates;
pub mod uma;
