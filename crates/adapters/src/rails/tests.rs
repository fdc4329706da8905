use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use domain::account_info::{
    AccountInfo, AccountType, BeneficiaryDraft, FieldValue, Presence, Shape,
};
use domain::currency::Currency;
use domain::id::TransactionId;
use domain::money::Money;
use domain::rail::Rail;
use domain::time::Timestamp;
use ports::locality::{Locality, TestReach};
use ports::outbound::{Outbound, OutboundAnswer, OutboundFailure, OutboundRequest, Reach};
use ports::rail::{Cause, Flow, Instruction, Party, PaymentRail, Pending};
use ports::rails::Rails;

use super::lightning::{HashLocked, SandboxLightning};
use super::sandbox::SandboxRail;
use crate::lightning::Network;

/// The answer of a rail that waits for nothing.
pub(crate) fn answer_of<T>(mut answer: Pending<'_, T>) -> T {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("this rail has nothing to wait for"),
    }
}

/// Another institution, which gives every request the same answer.
pub(super) struct Peer {
    pub(super) answer: Result<OutboundAnswer, OutboundFailure>,
    sent: Mutex<Vec<OutboundRequest>>,
}

impl Peer {
    pub(super) fn answering(status: u16, body: &str) -> Self {
        let body = body.as_bytes().to_vec();
        let answer = Ok(OutboundAnswer { status, body, retry_after: None, peer: None });
        Self { answer, sent: Mutex::default() }
    }

    pub(super) fn failing(failure: OutboundFailure) -> Self {
        Self { answer: Err(failure), sent: Mutex::default() }
    }

    /// The requests that it was sent.
    pub(super) fn sent(&self) -> Vec<OutboundRequest> {
        self.sent.lock().unwrap().clone()
    }
}

impl Outbound for Peer {
    fn checked(&self, url: &str, _: Reach) -> Result<String, OutboundFailure> {
        Ok(url.to_owned())
    }

    fn send(
        &self,
        request: OutboundRequest,
    ) -> Pending<'_, Result<OutboundAnswer, OutboundFailure>> {
        self.sent.lock().unwrap().push(request);
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

/// The reach of a server that only its own machine reaches.
pub(super) fn local() -> TestReach {
    TestReach::new(Locality::new(true), false)
}

/// The Lightning port where no other institution can be reached.
fn lightning() -> SandboxLightning {
    let unreachable = Arc::new(Peer::failing(OutboundFailure::Unreachable));
    let peers = HashLocked::new(unreachable, Network::Regtest, local());
    SandboxLightning::new(SandboxRail::default(), Arc::new(peers))
}

/// An order to pay to the account of the type's examples, with one field changed.
pub(super) fn order(kind: &str, field: &str, value: &str, cause: Cause) -> Instruction {
    let account = account(kind, field, value);
    let code = account.account_type().currencies[0];
    let currency = Currency::from_code(code).expect("accounts hold known currencies");
    let amount = Money::positive(1_000, currency).expect("amount");
    let (others, lightning) = (SandboxRail::default(), lightning());
    let rails = Rails::new(vec![Arc::new(others), Arc::new(lightning)]);
    let leg = rails.route(&account, amount, None).expect("the sandbox serves every account");
    Instruction {
        key: TransactionId::parse("Transaction:019aa2f0-0000-7000-8000-000000000001").expect("id"),
        flow: Flow::PayOut,
        cause,
        rail: leg.rail,
        amount,
        party: Party::Account(Box::new(account)),
        remittance: None,
        purpose: None,
        since: Timestamp::from_millis(1_763_683_200_000),
        settings: None,
    }
}

/// The account of the type's examples, with one field changed.
pub(super) fn account(kind: &str, field: &str, value: &str) -> AccountInfo {
    let kind = AccountType::from_name(kind).expect("known type");
    let required = kind.fields.iter().filter(|field| field.presence == Presence::Required);
    let mut fields: BTreeMap<String, FieldValue> = required
        .map(|field| {
            let value = match field.shape {
                Shape::TextList => FieldValue::List(vec![field.example.to_owned()]),
                Shape::Text | Shape::Date | Shape::Country => field.example.into(),
            };
            (field.name.to_owned(), value)
        })
        .collect();
    fields.insert(field.to_owned(), value.into());
    let person = BeneficiaryDraft {
        beneficiary_type: Some("INDIVIDUAL".into()),
        full_name: Some("Maria da Silva".into()),
        birth_date: Some("1990-05-17".into()),
        nationality: Some("BR".into()),
        ..BeneficiaryDraft::default()
    };
    AccountInfo::new(kind, fields, None, Some(person)).expect("the examples fit the type")
}

/// The two ports of the sandbox, distinguished by their rails.
#[test]
fn every_leg_of_the_sandbox_has_one_port() {
    use domain::account_info::types;
    use ports::rails::Leg;
    let (others, lightning) = (SandboxRail::default(), lightning());
    for account_type in types() {
        for (rail, code) in account_type
            .every_rail()
            .into_iter()
            .flat_map(|rail| account_type.currencies.iter().map(move |code| (rail, *code)))
        {
            let currency = Currency::from_code(code).expect("accounts hold known currencies");
            let leg = Leg { rail, account_type: Some(account_type), currency };
            let served = (others.amount_max(&leg).is_some(), lightning.amount_max(&leg).is_some());
            let is_lightning = rail == Rail::Lightning;
            assert_eq!(served, (!is_lightning, is_lightning), "{rail} {}", account_type.name);
        }
    }
    assert!(lightning.amount_max(&Leg::to_institution()).is_some());
}
