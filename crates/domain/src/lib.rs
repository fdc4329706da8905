//! Resources, and their legal changes.
//!
//! Pure and synchronous. This crate never reads a clock, a random source, a file, a socket or the
//! environment; it has no floats, no `async` and no serialisation: a type that serialises is a
//! promise to someone outside, and those promises are made at the edges (`api`, `store`).
//!
//! Reading order: identifiers, time and money first; then the resources of the specification, each
//! with the machine that allows its changes of state.

pub mod id;
pub mod time;
pub mod text;
pub mod clock;
pub mod currency;
pub mod money;
pub mod rate;
pub mod rate_basis;
pub mod pricing;
pub mod rail;
pub mod country;
pub mod postcode;
pub mod address;
pub mod uma_address;
pub mod uma_peer;
pub mod code;
pub mod counterparty_field;
pub mod platform;
pub mod signing;
pub mod token;
pub mod customer;
pub mod kyc;
pub mod internal_account;
pub mod bulk_import;
pub mod account_info;
pub mod checks;
pub mod external_account;
pub mod failure;
pub mod lookup;
pub mod transition;
pub mod patch;
pub mod quote;
pub mod transaction;
pub mod approval;
pub mod invitation;
pub mod event;
pub mod network;
pub mod delivery;
pub mod attention;
pub mod erasure;
pub mod states;
