//! The lookup: the sending institution asks about a payee, and the receiving one answers how it can
//! be paid (UMAD-03, UMAD-04).

pub mod request;
pub mod response;

pub use request::{Lookup, LookupRequest, PATH};
pub use response::{LookupResponse, ReceiverCompliance};
