//! Models of the journal's rules, checked exhaustively within small bounds. No program uses this
//! crate: it is the proof of the rules before there is any SQL, and stays beside them.
//!
//! A commit appends change sets to a journal; a projector brings the tables up to date later.
//!
//! - [`memory`]: one server between its journal and its tables. Generations, admission, reads.
//! - [`servers`]: two servers on one journal. Leadership, appends, answers.
//!
//! Each model has switches that take one rule out. The tests show that the rules hold together, and
//! that each is needed: without it the checker finds the payment that is made twice, the read that
//! is stale, the answer that was not true.
//!
//! Not modelled: the contents of rows besides a balance and a key, the encoding, the hash chain,
//! lists over several pages, and time. A time-out may happen at any moment.

pub mod memory;
pub mod servers;
