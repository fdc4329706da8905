//! Messages of the protocol as peers see them: bytes in, bytes out.

mod support;

mod data;
mod errors;
mod fuzz;
mod keys;
mod lookup;
mod numbers;
mod pay;
mod post_transaction;
mod reference;
mod round_trips;
mod signatures;
mod times;
mod travel_rule;
mod versions;
