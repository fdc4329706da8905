//! Connections to payment rails.

mod invoice;
pub mod sandbox;
pub mod scenarios;

use std::future::ready;

use domain::time::Timestamp;
use ports::rail::{
    AccountInquiry, AccountReport, Deposit, FundingInstruction, Instruction, NoReport, PaymentRail,
    Pending, RailAnswer, RailFailure, RailReply,
};

/// The rail of a live platform that no partner has been connected to: it takes no order and says
/// so. Money that cannot be moved must not look as if it had been.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unconnected;

impl PaymentRail for Unconnected {
    fn is_connected(&self) -> bool {
        false
    }

    fn instructions(&self, _: &Deposit<'_>) -> Vec<FundingInstruction> {
        Vec::new()
    }

    fn check<'a>(&'a self, _: &'a Instruction) -> Pending<'a, Result<(), RailFailure>> {
        Box::pin(ready(Err(RailFailure::NotConnected)))
    }

    fn ask<'a>(&'a self, _: &'a Instruction, _: Timestamp) -> Pending<'a, RailReply> {
        Box::pin(ready(RailAnswer::Failed(RailFailure::NotConnected).into()))
    }

    /// An account that nobody can check or pay would wait for ever.
    fn inspect<'a>(
        &'a self,
        _: &'a AccountInquiry,
        _: Timestamp,
    ) -> Pending<'a, Result<AccountReport, NoReport>> {
        Box::pin(ready(Err(NoReport::NotConnected)))
    }
}

#[cfg(test)]
pub(crate) mod tests;
