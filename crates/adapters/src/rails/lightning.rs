//! Lightning in the sandbox: invoices that any wallet reads and none can pay.
//!
//! Accounts and addresses of the sandbox follow the scenarios, as on its other rails. Payments
//! between us and other institutions settle hash-locked, or over a Lightning node of ours.

mod hash_locked;
pub(super) mod invoice;
#[cfg(feature = "ldk")]
pub mod ldk;

use std::future::ready;
use std::sync::Arc;

use domain::money::AMOUNT_MAX;
use domain::rail::{Rail, RailWords};
use domain::time::Timestamp;
use domain::uma_address::UmaAddress;
use ports::lightning::INVOICE_MILLIS;
use ports::rail::{
    AccountInquiry, AccountReport, Deposit, Flow, FundingInstruction, Instruction, NoReport, Party,
    PaymentRail, Pending, Proof, RailAnswer, RailFailure, RailReply,
};
use ports::rails::Leg;

pub use self::hash_locked::HashLocked;
use super::sandbox::{self, SandboxRail};
use crate::lightning::expiry;
use crate::uma::sandbox::is_ours;

/// How long the first wait for a payee that gave no answer is: a restart takes about that long.
const RETRY_MILLIS_MIN: i64 = 1_000;

/// The longest wait. A payment settles within it once the payee is back.
const RETRY_MILLIS_MAX: i64 = 5 * 60_000;

/// How long after its invoice a payment is undecided at most: clocks differ, and a server that
/// was away at the last moment is asked once more.
const DEADLINE_MARGIN_MILLIS: i64 = 10 * 60_000;

/// The longest life of an invoice that counts. One may have an end that no clock reaches.
const INVOICE_MILLIS_MAX: i64 = 86_400_000;

/// How an invoice is paid to another institution, and how money comes from one. The payment hash is
/// the identity of a payment: it is made once, however often it is asked for.
pub trait Settlement: Send + Sync {
    /// Pays the invoice, which `address` gave, or says how that went.
    fn pay<'a>(
        &'a self,
        order: &'a Instruction,
        address: &'a UmaAddress,
        invoice: &'a str,
        now: Timestamp,
    ) -> Pending<'a, RailReply>;

    /// Whether the invoice was paid that we gave for the order.
    fn await_payment<'a>(
        &'a self,
        order: &'a Instruction,
        now: Timestamp,
    ) -> Pending<'a, RailReply>;
}

/// The Lightning port of sandbox platforms. Clones and restarts answer alike.
#[derive(Clone)]
pub struct SandboxLightning {
    scenarios: SandboxRail,
    peers: Arc<dyn Settlement>,
}

impl SandboxLightning {
    /// A port whose orders take as long as those of the sandbox's other rails, and which settles
    /// with other institutions through `peers`.
    pub const fn new(scenarios: SandboxRail, peers: Arc<dyn Settlement>) -> Self {
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

    /// Shortly after the invoice can be paid no more.
    fn deadline(&self, order: &Instruction) -> Option<Timestamp> {
        let (_, invoice) = elsewhere(order)?;
        // A platform's clock may be ahead of the one by which invoices expire.
        let (least, most) = (INVOICE_MILLIS, INVOICE_MILLIS_MAX);
        let [least, most] = [least, most].map(|millis| order.since.plus_millis(millis));
        let expires_at = invoice.and_then(expiry).map_or(least, |end| end.clamp(least, most));
        Some(expires_at.plus_millis(DEADLINE_MARGIN_MILLIS))
    }

    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        match (elsewhere(order), order.flow) {
            (None, _) => self.scenarios.ask(order, now),
            (Some(_), Flow::PullIn) => self.peers.await_payment(order, now),
            (Some((address, Some(invoice))), Flow::PayOut) => {
                self.peers.pay(order, address, invoice, now)
            }
            (Some((_, None)), Flow::PayOut) => {
                Box::pin(ready(unsendable("the order has no invoice")))
            }
        }
    }
}

/// The order waits as long again as it is old, within the limits. So each wait is about twice the
/// one before, and nothing is remembered.
fn pending(order: &Instruction, now: Timestamp) -> RailAnswer {
    let age_millis = now.millis().saturating_sub(order.since.millis());
    let wait_millis = age_millis.clamp(RETRY_MILLIS_MIN, RETRY_MILLIS_MAX);
    RailAnswer::Pending { ask_again_at: now.plus_millis(wait_millis) }
}

/// The reply to an order that cannot be sent to anybody, now or later.
fn unsendable(why: &str) -> RailReply {
    said(RailAnswer::Failed(RailFailure::AccountInvalid, Proof::Unsendable), None, why)
}

fn said(answer: RailAnswer, code: Option<&str>, text: &str) -> RailReply {
    RailReply { answer, words: RailWords::new(code, Some(text), None) }
}
