//! The messages of the UMA protocol (Universal Money Address), read, written, signed and checked.
//!
//! Pure: no socket, clock, random source or storage. The caller hands in the time, nonces and
//! random bytes, carries the bytes to and fro, and keeps the nonces that it has seen. Numbers are
//! exact: a multiplier is read from its digits and written digit by digit.
//!
//! Every reader takes any bytes of a peer and answers with the message, or with a [`Refusal`] that
//! names the field and has the protocol's code. Fields that it does not know are ignored, and
//! `null` is the same as absent. Readers set no limit of size: the caller bounds the body.
//!
//! [`Refusal`]: error::Refusal
//!
//! It speaks version 1 in full and version 0.3 as far as a payment needs it. Invoices of the
//! protocol, backing signatures, settlement other than Lightning, and UMA Auth are left out.
//!
//! Reading order: errors, versions and addresses first; then keys and signatures; then the
//! messages in the order in which two institutions exchange them.

pub mod error;
pub mod version;
pub mod address;
mod json;
pub mod nonce;
pub mod signature;
pub mod travel_rule;
pub mod keys;
pub mod configuration;
pub mod data;
pub mod kyc_status;
pub mod currency;
pub mod lnurlp;
pub mod pay_request;
pub mod pay_response;
pub mod post_transaction;
