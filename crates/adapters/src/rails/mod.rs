//! Connections to payment rails.

pub mod sandbox;

use std::future::ready;

use domain::currency::Currency;
use domain::time::Timestamp;
use ports::rail::{FundingInstruction, Instruction, PaymentRail, Pending, RailAnswer, RailFailure};

/// The rail of a live platform that no partner has been connected to: it takes no order and says
/// so. Money that cannot be moved must not look as if it had been.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unconnected;

impl PaymentRail for Unconnected {
    fn instructions(&self, _: Currency, _: &str) -> Vec<FundingInstruction> {
        Vec::new()
    }

    fn check<'a>(&'a self, _: &'a Instruction) -> Pending<'a, Result<(), RailFailure>> {
        Box::pin(ready(Err(RailFailure::NotConnected)))
    }

    fn ask<'a>(&'a self, _: &'a Instruction, _: Timestamp) -> Pending<'a, RailAnswer> {
        Box::pin(ready(RailAnswer::Failed(RailFailure::NotConnected)))
    }
}

#[cfg(test)]
pub(crate) mod tests;
