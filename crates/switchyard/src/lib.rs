//! The parts of the binary that tests can reach: how it is configured, served, stopped and watched,
//! and what its commands do.
//!
//! Guarantees: no client can hold a connection, a buffer or a stop of the server for longer than
//! [`edge::Limits`] says; no secret is logged or taken from the command line; printed secrets go
//! to their caller alone ([`first_start`], [`operator`], [`listen`]).
//! This crate decides nothing about payments.

pub mod config;
pub mod database;
pub mod exit;
pub mod command;
pub mod dispatch;
pub mod keyfile;
pub mod telemetry;
pub mod wiring;
pub mod delivery_loop;
pub mod first_start;
pub mod serve;
pub mod edge;
mod locality;
pub mod forwarding;
pub mod descriptors;
pub mod health;
pub mod approval_loop;
pub mod job_loop;
pub mod rates_loop;
pub mod shutdown;
pub mod operator;
pub mod audit;
pub mod verify;
pub mod backup;
pub mod restore;
pub mod rebuild;
pub mod migrate;
pub mod copies;
pub mod files;
pub mod scratch;
pub mod manual;
pub mod progress;
pub mod demo;
pub mod listen;
pub mod trigger;
#[cfg(feature = "ldk")]
pub mod lightning_node;
