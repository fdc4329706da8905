//! Lightning in the sandbox: invoices that any wallet reads and none can pay.
//!
//! Orders and accounts follow the scenarios, as on the sandbox's other rails.

pub(super) mod invoice;

use domain::money::AMOUNT_MAX;
use domain::rail::Rail;
use domain::time::Timestamp;
use ports::rail::{
    AccountInquiry, AccountReport, Deposit, FundingInstruction, Instruction, NoReport, PaymentRail,
    Pending, RailFailure, RailReply,
};
use ports::rails::Leg;

use super::sandbox::{self, SandboxRail};

/// The Lightning port of sandbox platforms. Stateless: clones and restarts answer alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SandboxLightning(SandboxRail);

impl SandboxLightning {
    /// A port whose orders take as long as those of the sandbox's other rails.
    pub const fn new(sandbox: SandboxRail) -> Self {
        Self(sandbox)
    }
}

impl PaymentRail for SandboxLightning {
    fn amount_max(&self, leg: &Leg) -> Option<i64> {
        (leg.rail == Rail::Lightning).then_some(AMOUNT_MAX)
    }

    fn instructions(&self, deposit: &Deposit<'_>) -> Vec<FundingInstruction> {
        sandbox::instructions(self, deposit)
    }

    fn check<'a>(&'a self, order: &'a Instruction) -> Pending<'a, Result<(), RailFailure>> {
        self.0.check(order)
    }

    fn gives_after_millis(&self) -> i64 {
        self.0.gives_after_millis()
    }

    fn inspect<'a>(
        &'a self,
        inquiry: &'a AccountInquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<AccountReport, NoReport>> {
        self.0.inspect(inquiry, now)
    }

    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        self.0.ask(order, now)
    }
}
