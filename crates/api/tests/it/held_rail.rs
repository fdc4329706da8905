//! Rails whose answers a test decides: they come when it lets them, never, or are refusals.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adapters::clock::ManualClock;
use adapters::rails::sandbox::SandboxRail;
use domain::money::AMOUNT_MAX;
use domain::time::Timestamp;
use ports::rail::{
    AccountInquiry, AccountReport, Deposit, FundingInstruction, Instruction, NoReport, PaymentRail,
    Pending, Proof, RailAnswer, RailFailure, RailReply,
};
use ports::rails::Leg;
use tokio::sync::Semaphore;

/// Answers everything but orders as the sandbox does.
macro_rules! as_the_sandbox {
    () => {
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
    };
}

/// The rail of the sandbox, each of whose answers waits for a permit.
pub struct HeldRail {
    answers: SandboxRail,
    /// A permit for each order that was given.
    pub asked: Semaphore,
    /// A permit for each order that may be answered.
    pub let_go: Semaphore,
    /// Its limit on a leg.
    amount_max: fn(&Leg) -> Option<i64>,
    /// The orders that were given.
    pub orders: Mutex<Vec<Instruction>>,
}

impl HeldRail {
    pub fn new() -> Arc<Self> {
        Self::on(|_| Some(AMOUNT_MAX))
    }

    /// One that serves the legs which this gives a limit for.
    pub fn on(amount_max: fn(&Leg) -> Option<i64>) -> Arc<Self> {
        let answers = SandboxRail::new(0);
        let (asked, let_go) = (Semaphore::new(0), Semaphore::new(0));
        Arc::new(Self { answers, asked, let_go, amount_max, orders: Mutex::default() })
    }
}

impl PaymentRail for HeldRail {
    fn amount_max(&self, leg: &Leg) -> Option<i64> {
        (self.amount_max)(leg)
    }

    as_the_sandbox!();

    fn ask<'a>(&'a self, order: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        Box::pin(async move {
            self.orders.lock().expect("no test panics with it").push(order.clone());
            self.asked.add_permits(1);
            self.let_go.acquire().await.expect("it stays open").forget();
            self.answers.ask(order, now).await
        })
    }
}

/// A rail that takes every order of its legs and carries none out.
pub struct Refusing {
    answers: SandboxRail,
    /// Its limit on a leg.
    amount_max: fn(&Leg) -> Option<i64>,
}

impl Refusing {
    pub fn new() -> Arc<Self> {
        Self::on(|_| Some(AMOUNT_MAX))
    }

    /// One that serves the legs which this gives a limit for.
    pub fn on(amount_max: fn(&Leg) -> Option<i64>) -> Arc<Self> {
        Arc::new(Self { answers: SandboxRail::new(0), amount_max })
    }
}

impl PaymentRail for Refusing {
    fn amount_max(&self, leg: &Leg) -> Option<i64> {
        (self.amount_max)(leg)
    }

    as_the_sandbox!();

    fn ask<'a>(&'a self, _: &'a Instruction, _: Timestamp) -> Pending<'a, RailReply> {
        let failed = RailAnswer::Failed(RailFailure::AccountInvalid, Proof::OtherSide);
        Box::pin(std::future::ready(failed.into()))
    }
}

/// A rail that says of every order what the test wants, and is asked again an hour later.
pub struct Saying {
    answers: SandboxRail,
    answer: Mutex<RailAnswer>,
}

/// When an answer that is not the last is asked for again.
const AGAIN_MILLIS: i64 = 3_600_000;

impl Saying {
    pub fn new(answer: RailAnswer) -> Arc<Self> {
        Arc::new(Self { answers: SandboxRail::new(0), answer: Mutex::new(answer) })
    }

    /// Its answer from now on.
    pub fn say(&self, answer: RailAnswer) {
        *self.answer.lock().expect("no panic") = answer;
    }
}

impl PaymentRail for Saying {
    fn amount_max(&self, _: &Leg) -> Option<i64> {
        Some(AMOUNT_MAX)
    }

    as_the_sandbox!();

    fn ask<'a>(&'a self, _: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        let ask_again_at = now.plus_millis(AGAIN_MILLIS);
        let answer = match self.answer.lock().expect("no panic").clone() {
            RailAnswer::Pending { .. } => RailAnswer::Pending { ask_again_at },
            RailAnswer::SettledForNow { .. } => RailAnswer::SettledForNow { ask_again_at },
            answer => answer,
        };
        Box::pin(std::future::ready(answer.into()))
    }
}

/// A rail on which every order takes nine seconds of the clock and then has no answer.
pub struct Hanging {
    answers: SandboxRail,
    clock: ManualClock,
    /// How many orders were given, or asked about.
    pub asked: AtomicUsize,
}

impl Hanging {
    pub fn new(clock: &ManualClock) -> Arc<Self> {
        let (answers, asked) = (SandboxRail::new(0), AtomicUsize::new(0));
        Arc::new(Self { answers, clock: clock.clone(), asked })
    }
}

impl PaymentRail for Hanging {
    fn amount_max(&self, _: &Leg) -> Option<i64> {
        Some(AMOUNT_MAX)
    }

    as_the_sandbox!();

    fn ask<'a>(&'a self, _: &'a Instruction, now: Timestamp) -> Pending<'a, RailReply> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.clock.advance_millis(9_000);
        let pending = RailAnswer::Pending { ask_again_at: now.plus_millis(10_000) };
        Box::pin(std::future::ready(pending.into()))
    }
}
