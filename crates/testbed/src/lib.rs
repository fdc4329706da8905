//! The base of tests and measurements: a real PostgreSQL, and ways to break it.
//!
//! [`postgres`] starts clusters of its own and makes a fresh database for each test; it can kill,
//! freeze, restart, replicate and fail over what it started. [`proxy`] stands between a client and
//! a server and cuts their connections at the worst moment. [`instance`] runs our own server, and
//! [`recorder`] plays its clients and holds it to every answer; [`receiver`] plays those to whom it
//! sends webhooks. [`place`] is a database of whatever engine a run is about, and [`packages`] is
//! what users of ours have in other languages.
//!
//! It knows no other crate of ours, and no crate needs it to run: only tests, measurements and the
//! tasks of the repository do. A step that fails is an error with the output of the
//! program that refused; nothing is skipped because a program is missing.

pub mod postgres;
pub mod place;
pub mod packages;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod instance;
#[cfg(feature = "recorder")]
pub mod recorder;
#[cfg(feature = "receiver")]
pub mod receiver;

pub mod ports;
mod signals;
pub mod wait;
