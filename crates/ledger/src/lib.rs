//! The double-entry ledger: accounts, postings, movements and their audit.
//!
//! Pure and synchronous: it computes balances and refusals, and its caller stores them. Money moves
//! only as a [`posting::Posting`], a set of debits and credits that balances in every currency it
//! touches. One function in [`movements`] makes it for each business reason.
//!
//! Reading order: [`account`] has the accounts and their balances, [`posting`] the legal changes,
//! [`apply`] their effect on balances and their refusals, [`movements`] the changes that the
//! business knows. [`audit`] folds the recorded history again and compares; [`book`] is the whole
//! ledger in memory, for tests, documents and the simulator; [`t_accounts`] prints
//! `docs/ledger.md`.
//!
//! Guarantees, each asserted in release builds too:
//! - a posting that does not balance per currency cannot be constructed;
//! - an internal account or a suspense account never has less than nothing available;
//! - counters never wrap: a posting that would pass [`account::COUNTER_MAX`] is refused, and it is
//!   refused when it is pended, so that a pending posting can always be posted;
//! - a refused posting has changed nothing;
//! - a pending posting is posted or voided, once ([`posting::Phase::resolve`]).
//!
//! Limits: an amount is at most [`domain::money::AMOUNT_MAX`] smallest units; a posting has at most
//! [`posting::ENTRIES_MAX`] entries; one side of one account sums to at most
//! [`account::COUNTER_MAX`].
//!
//! It never does this: read a clock, a random source, a file or a socket; use a float; round; edit
//! a posting after the fact (a return is a posting of its own); decide whether a payment is
//! allowed for any reason but its funds.

pub mod account;
pub mod posting;

pub mod apply;
pub mod movements;

pub mod audit;
pub mod book;
pub mod t_accounts;
