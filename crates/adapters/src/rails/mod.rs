//! Ports of payment rails. [`crate::modes`] says which of them a mode has.

pub mod lightning;
pub mod sandbox;
pub mod scenarios;

#[cfg(test)]
pub(crate) mod tests;
