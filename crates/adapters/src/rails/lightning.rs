//! Lightning in the sandbox: invoices that any wallet reads and none can pay.
//!
//! Accounts and addresses of the sandbox follow the scenarios, as on its other rails. Payments
//! between us and other institutions are hash-locked.

mod hash_locked;
pub(super) mod invoice;

use std::future::ready;

use domain::money::AMOUNT_MAX;
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use ports::rail::{
    AccountInquiry, AccountReport, Deposit, FundingInstruction, Instruction, NoReport, Party,
    PaymentRail, Pending, RailFailure, RailReply,
};
use ports::rails::Leg;

pub use self::hash_locked::HashLocked;
use super::sandbox::{self, SandboxRail};
use crate::uma::sandbox::is_ours;

/// The Lightning port of sandbox platforms. Stateless: clones and restarts answer alike.
#[derive(Clone)]
pub struct SandboxLightning {
    scenarios: SandboxRail,
    peers: HashLocked,
}

impl SandboxLightning {
    /// A port whose orders take as long as those of the sandbox's other rails, and which settles
    /// with other institutions through `peers`.
    pub const fn new(scenarios: SandboxRail, peers: HashLocked) -> Self {
        Self { scenarios, peers }
    }
}

/// The address and invoice of an order whose other side is not in the sandbox.
fn elsewhere(order: &Instruction) -> Option<(&UmaAddress, Option<&str>)> {
    match &order.party {
        Party::Uma { address, invoice } if !is_ours(address.domain()) => {
            Some((address, invoice.as_deref()))
        }
        Party::Uma { .. } | Party::Account(_) => None,
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
        match elsewhere(order) {
            Some(_) => Box::pin(ready(Ok(()))),
            None => self.scenarios.check(order),
        }
    }

    fn gives_after_millis(&self) -> i64 {
        self.scenarios.gives_after_millis()
    }

    fn inspect<'a>(
        &'a self,
        inquiry: &'a AccountInquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<AccountReport, NoReport>> {
        self.scenarios.inspect(inquiry, now)
    }

    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        match elsewhere(order) {
            Some((address, invoice)) => Box::pin(self.peers.ask(order, address, invoice, now)),
            None => self.scenarios.ask(order, now),
        }
    }
}
