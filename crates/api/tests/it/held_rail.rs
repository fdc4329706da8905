//! A rail whose answers come when the test lets them.

use std::sync::Arc;

use adapters::rails::sandbox::SandboxRail;
use domain::time::Timestamp;
use ports::rail::{
    AccountInquiry, AccountReport, Deposit, FundingInstruction, Instruction, NoReport, PaymentRail,
    Pending, RailFailure, RailReply,
};
use tokio::sync::Semaphore;

/// The rail of the sandbox, each of whose answers waits for a permit.
pub struct HeldRail {
    answers: SandboxRail,
    /// A permit for each order that was given.
    pub asked: Semaphore,
    /// A permit for each order that may be answered.
    pub let_go: Semaphore,
}

impl HeldRail {
    pub fn new() -> Arc<Self> {
        let answers = SandboxRail::new(0);
        Arc::new(Self { answers, asked: Semaphore::new(0), let_go: Semaphore::new(0) })
    }
}

impl PaymentRail for HeldRail {
    fn instructions(&self, deposit: &Deposit<'_>) -> Vec<FundingInstruction> {
        self.answers.instructions(deposit)
    }

    fn check<'a>(&'a self, order: &'a Instruction) -> Pending<'a, Result<(), RailFailure>> {
        self.answers.check(order)
    }

    fn inspect<'a>(
        &'a self,
        inquiry: &'a AccountInquiry,
        now: Timestamp,
    ) -> Pending<'a, Result<AccountReport, NoReport>> {
        self.answers.inspect(inquiry, now)
    }

    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        Box::pin(async move {
            self.asked.add_permits(1);
            self.let_go.acquire().await.expect("it stays open").forget();
            self.answers.ask(order, now).await
        })
    }
}
