use domain::currency::Currency;
use domain::id::TransactionId;
use domain::money::Money;
use domain::rail::Rail;
use ports::lightning::{Lightning as _, NewInvoice};
use ports::outbound::Reach;
use ports::rail::{self, Cause, Flow, OVERDUE_RETRY_MILLIS, Party, PaymentRail as _};

use super::super::{RETRY_MILLIS_MIN, SandboxLightning};
use super::*;
use crate::lightning::LightningNode;
use crate::rails::sandbox::{SETTLES_AFTER_MILLIS, SandboxRail};
use crate::rails::tests::{Peer, answer_of, local};

const SINCE: Timestamp = Timestamp::from_millis(1_763_683_200_000);

/// The usual moment of the first question.
const FIRST_MILLIS: i64 = SETTLES_AFTER_MILLIS;

/// When an order is asked about again that was asked about at [`FIRST_MILLIS`].
const AGAIN_MILLIS: i64 = FIRST_MILLIS + RETRY_MILLIS_MIN;

fn node() -> LightningNode {
    LightningNode::new([9; 32], Network::Regtest)
}

fn key() -> TransactionId {
    TransactionId::parse("Transaction:019aa2f0-0000-7000-8000-000000000001").expect("id")
}

fn msat(minor: i64) -> Money {
    Money::positive(minor, Currency::MSAT).expect("an amount")
}

fn invoice(node: &LightningNode) -> String {
    let new = NewInvoice {
        payment: key(),
        msat: msat(5_000),
        description: b"[]",
        made_at: SINCE,
        expires_at: SINCE.plus_millis(INVOICE_MILLIS),
    };
    node.create_invoice(&new).expect("an invoice")
}

fn preimage() -> String {
    node().preimage(key()).expect("a preimage").to_lower_hex_string()
}

/// An order of 5 satoshi to or from an address.
fn order(flow: Flow, address: &str, invoice: Option<String>) -> Instruction {
    let address = UmaAddress::parse(address).expect("an address");
    Instruction {
        key: key(),
        flow,
        cause: Cause::Quote,
        rail: Rail::Lightning,
        amount: msat(5_000),
        party: Party::Uma { address, invoice },
        remittance: None,
        purpose: None,
        since: SINCE,
        settings: None,
    }
}

fn pay_out() -> Instruction {
    order(Flow::PayOut, "$bob@vasp.test", Some(invoice(&node())))
}

/// The rail of the sandbox, whose other institutions all answer like this one.
fn rail(peer: &Arc<Peer>) -> SandboxLightning {
    let peers = Arc::new(HashLocked::new(Arc::clone(peer) as _, Network::Regtest, local()));
    SandboxLightning::new(SandboxRail::default(), peers)
}

fn ask(peer: &Arc<Peer>, order: &Instruction, after_millis: i64) -> RailReply {
    answer_of(rail(peer).ask(order, SINCE.plus_millis(after_millis)))
}

fn pending(until_millis: i64) -> RailAnswer {
    RailAnswer::Pending { ask_again_at: SINCE.plus_millis(until_millis) }
}

fn error(code: &str) -> String {
    format!(r#"{{"status":"ERROR","reason":"because","code":"{code}"}}"#)
}

fn check(peer: Peer, expected: RailAnswer, code: Option<&str>, text: Option<&str>) {
    let (peer, order) = (Arc::new(peer), pay_out());
    let reply = ask(&peer, &order, FIRST_MILLIS);
    let case = format!("{:?}", peer.answer);
    assert_eq!(reply.answer, expected, "{case}");
    assert_eq!((reply.words.code(), reply.words.text()), (code, text), "{case}");
    let reference = (expected == RailAnswer::Settled).then(preimage);
    assert_eq!(reply.words.reference(), reference.as_deref(), "{case}");
    assert_eq!(ask(&peer, &order, FIRST_MILLIS), reply, "the same again: {case}");
    assert_eq!(peer.sent().len(), 2, "{case}");
}

#[test]
fn a_preimage_of_the_invoice_settles_and_no_other_does() {
    for body in [
        format!(r#"{{"preimage":"{}"}}"#, preimage()),
        format!(r#"{{"preimage":"{}","more":[1]}}"#, preimage().to_uppercase()),
    ] {
        check(Peer::answering(200, &body), RailAnswer::Settled, None, None);
    }
    let wrong = "the payee's server answered with a preimage that is not the invoice's";
    let body = format!(r#"{{"preimage":"{}"}}"#, "00".repeat(32));
    check(Peer::answering(200, &body), pending(AGAIN_MILLIS), None, Some(wrong));
    let none = "the payee's server answered without a preimage";
    for body in [
        String::new(),
        "{}".to_owned(),
        "null".to_owned(),
        r#"{"preimage":null}"#.to_owned(),
        r#"{"preimage":"xy"}"#.to_owned(),
        format!(r#"{{"preimage":"{}00"}}"#, preimage()),
        format!(r#"{{"preimage":"{}"}}"#, &preimage()[2..]),
        format!(r#"{{"preimage":"{}""#, preimage()),
    ] {
        check(Peer::answering(200, &body), pending(AGAIN_MILLIS), None, Some(none));
    }
    // A preimage that comes with an error is no receipt.
    let body = format!(r#"{{"preimage":"{}","reason":"because"}}"#, preimage());
    check(Peer::answering(500, &body), pending(AGAIN_MILLIS), None, Some("because"));
}

fn failed(failure: RailFailure) -> RailAnswer {
    RailAnswer::Failed(failure, Proof::OtherSide)
}

#[test]
fn only_a_code_that_refuses_the_payment_itself_ends_it() {
    use RailFailure::{AccountInvalid, NotConnected, TimedOut};
    let unknown = || pending(AGAIN_MILLIS);
    let answer = |status, code| Peer::answering(status, &error(code));
    for code in ErrorCode::ALL {
        let expected = match code.name() {
            "INVOICE_EXPIRED" | "QUOTE_EXPIRED" => failed(TimedOut),
            "REQUEST_NOT_FOUND" | "QUOTE_NOT_FOUND" | "USER_NOT_FOUND" | "INVALID_INVOICE" => {
                failed(AccountInvalid)
            }
            "NOT_IMPLEMENTED" => failed(NotConnected),
            "AMOUNT_OUT_OF_RANGE"
            | "INVALID_CURRENCY"
            | "SENDER_NOT_ACCEPTED"
            | "MISSING_MANDATORY_PAYER_DATA"
            | "MISSING_MANDATORY_PAYEE_DATA"
            | "UNRECOGNIZED_MANDATORY_PAYEE_DATA_KEY"
            | "VELOCITY_LIMIT_EXCEEDED"
            | "USER_NOT_READY"
            | "COUNTERPARTY_NOT_ALLOWED" => RailAnswer::Refused,
            // About a message: something on the way may have changed it.
            _ => unknown(),
        };
        // As much of it as the words of a rail keep.
        let name = code.name();
        let (name, because) = (Some(name.get(..35).unwrap_or(name)), Some("because"));
        check(answer(code.status(), code.name()), expected.clone(), name, because);
        // Errors of plain LNURL come with a 200.
        check(answer(200, code.name()), expected, name, because);
        for status in [302, 307, 408, 425, 429, 500, 502, 503, 504] {
            check(answer(status, code.name()), unknown(), name, because);
        }
    }
    for code in ["NOT_FOUND", "METHOD_NOT_ALLOWED", "invoice_expired"] {
        check(answer(404, code), unknown(), Some(code), Some("because"));
    }
}

/// A proxy answers for a server that may have booked, with any status and a body of its own.
#[test]
fn an_answer_without_a_code_of_the_protocol_decides_nothing() {
    let bodies = [
        "",
        "<html>",
        r#"{"error":"not found"}"#,
        r#"{"status":"ERROR"}"#,
        r#"{"status":404,"code":"REQUEST_NOT_FOUND"}"#,
        r#"{"code":"INVOICE_EXPIRED"}"#,
        r#"{"status":"ERROR","code":404}"#,
    ];
    for status in (300..=308).chain(400..=431).chain([451, 499]).chain(500..=511).chain(520..=530) {
        for body in bodies {
            let peer = Arc::new(Peer::answering(status, body));
            let reply = ask(&peer, &pay_out(), FIRST_MILLIS);
            assert_eq!(reply.answer, pending(AGAIN_MILLIS), "{status} {body}");
        }
    }
    let refused = OutboundFailure::Refused("a private address".to_owned());
    for failure in [refused, OutboundFailure::Unreachable, OutboundFailure::TimedOut] {
        let text = failure.to_string();
        check(Peer::failing(failure), pending(AGAIN_MILLIS), None, Some(&text));
    }
}

#[test]
fn a_payment_without_an_outcome_is_for_a_person_after_its_deadline() {
    let peer = Arc::new(Peer::answering(404, "<html>"));
    let deadline_millis = 2 * INVOICE_MILLIS;
    let answer = |order: &Instruction, after_millis: i64| {
        let now = SINCE.plus_millis(after_millis);
        let rail = rail(&peer);
        answer_of(Box::pin(async move { rail::ask(&rail, order, now).await.answer }))
    };
    let overdue = |after_millis: i64| RailAnswer::Overdue {
        ask_again_at: SINCE.plus_millis(after_millis + OVERDUE_RETRY_MILLIS),
    };
    let order = pay_out();
    assert!(matches!(answer(&order, deadline_millis - 1), RailAnswer::Pending { .. }));
    for after_millis in [deadline_millis, 100 * deadline_millis] {
        assert_eq!(answer(&order, after_millis), overdue(after_millis));
    }
    // An invoice with an end that no clock reaches has a deadline too.
    let new = NewInvoice {
        payment: key(),
        msat: msat(5_000),
        description: b"[]",
        made_at: SINCE,
        expires_at: SINCE.plus_millis(10_000 * 86_400_000),
    };
    let long = Some(node().create_invoice(&new).expect("an invoice"));
    let order = self::order(Flow::PayOut, "$bob@vasp.test", long);
    let two_days = 2 * 86_400_000;
    assert_eq!(answer(&order, two_days), overdue(two_days));
    // The sandbox's own institutions are asked until they answer.
    let ours = self::order(Flow::PayOut, "$success.usd@sandbox.uma.money", None);
    assert_eq!(rail(&peer).deadline(&ours), None);
}

#[test]
fn waits_double_up_to_five_minutes_and_never_end() {
    let peer = Arc::new(Peer::failing(OutboundFailure::TimedOut));
    for (after_millis, again_millis) in [
        // A clock that was set back neither hurries nor waits for ever.
        (-60_000, -59_000),
        (0, 1_000),
        (200, 1_200),
        (1_200, 2_400),
        (2_400, 4_800),
        (150_000, 300_000),
        (300_000, 600_000),
        (600_000, 900_000),
        (86_400_000, 86_700_000),
        (31_536_000_000, 31_536_300_000),
    ] {
        let reply = ask(&peer, &pay_out(), after_millis);
        assert_eq!(reply.answer, pending(again_millis), "{after_millis}");
    }
}

#[test]
fn an_invoice_that_expired_is_still_asked_about() {
    let body = format!(r#"{{"preimage":"{}"}}"#, preimage());
    let peer = Arc::new(Peer::answering(200, &body));
    let reply = ask(&peer, &pay_out(), 10 * INVOICE_MILLIS);
    assert_eq!(reply.answer, RailAnswer::Settled);
}

#[test]
fn the_same_order_posts_the_same_invoice() {
    for (address, url) in [
        ("$bob@vasp.test", "https://vasp.test/uma/settle"),
        ("$bob@localhost:8081", "http://localhost:8081/uma/settle"),
        ("$bob@127.0.0.1:8081", "http://127.0.0.1:8081/uma/settle"),
    ] {
        let peer = Arc::new(Peer::failing(OutboundFailure::TimedOut));
        let order = order(Flow::PayOut, address, Some(invoice(&node())));
        for after_millis in [FIRST_MILLIS, 86_400_000] {
            ask(&peer, &order, after_millis);
        }
        let expected = OutboundRequest {
            method: Method::Post,
            url: url.to_owned(),
            reach: Reach::Private,
            headers: vec![("content-type", "application/json".to_owned())],
            body: format!(r#"{{"pr":"{}"}}"#, invoice(&node())).into_bytes(),
            within: Duration::from_secs(9),
        };
        assert_eq!(peer.sent(), [expected.clone(), expected]);
    }
}

#[test]
fn an_order_whose_invoice_does_not_fit_is_not_sent() {
    let elsewhere = invoice(&LightningNode::new([9; 32], Network::Bitcoin));
    let other_amount = Instruction { amount: msat(5_001), ..pay_out() };
    let with = |invoice| order(Flow::PayOut, "$bob@vasp.test", invoice);
    for (order, text) in [
        (other_amount, "the invoice is for 5000 and not for 5001 millisatoshi"),
        (with(None), "the order has no invoice"),
        (with(Some("lnbcrt1".to_owned())), "the text of the order is not a BOLT 11 invoice"),
        (with(Some(elsewhere)), "the text of the order is an invoice of another Bitcoin network"),
    ] {
        let peer = Arc::new(Peer::failing(OutboundFailure::TimedOut));
        let reply = ask(&peer, &order, FIRST_MILLIS);
        let unsendable = RailAnswer::Failed(RailFailure::AccountInvalid, Proof::Unsendable);
        assert_eq!(reply.answer, unsendable, "{text}");
        assert_eq!(reply.words.text(), Some(text));
        assert_eq!(peer.sent(), []);
    }
}

#[test]
fn money_from_elsewhere_is_awaited_while_its_invoice_can_be_paid() {
    let peer = Arc::new(Peer::failing(OutboundFailure::TimedOut));
    let order = order(Flow::PullIn, "$alice@vasp.test", None);
    for after_millis in [-60_000, 0, FIRST_MILLIS, INVOICE_MILLIS - 1] {
        let reply = ask(&peer, &order, after_millis);
        assert_eq!(reply, RailReply::from(pending(600_000)), "{after_millis}");
    }
    for after_millis in [INVOICE_MILLIS, 2 * INVOICE_MILLIS] {
        let reply = ask(&peer, &order, after_millis);
        let closed = RailAnswer::Failed(RailFailure::TimedOut, Proof::Closed);
        assert_eq!(reply.answer, closed, "{after_millis}");
    }
    assert_eq!(peer.sent(), []);
}

#[test]
fn orders_with_addresses_of_the_sandbox_stay_in_the_process() {
    let unknown = failed(RailFailure::AccountInvalid);
    for (user, expected) in [
        ("success.usd", RailAnswer::Settled),
        ("fail.compliance.usd", RailAnswer::Refused),
        ("non.existent.usd", unknown),
    ] {
        for flow in [Flow::PayOut, Flow::PullIn] {
            let peer = Arc::new(Peer::failing(OutboundFailure::TimedOut));
            let address = format!("${user}@sandbox.uma.money");
            let order = order(flow, &address, Some(invoice(&node())));
            assert_eq!(answer_of(rail(&peer).check(&order)), Ok(()), "{user}");
            assert_eq!(ask(&peer, &order, SETTLES_AFTER_MILLIS).answer, expected, "{user}");
            assert_eq!(peer.sent(), []);
        }
    }
}

#[test]
fn rows_of_an_operator_do_not_steer_other_institutions() {
    let rows = "[[payments]]\namount = 5000\n\
        path = [{ state = 'NOT_TAKEN', reason = 'INSUFFICIENT_FUNDS' }]\n";
    let with_rows = |order| Instruction { settings: Some(rows.into()), ..order };
    let body = format!(r#"{{"preimage":"{}"}}"#, preimage());
    let peer = Arc::new(Peer::answering(200, &body));
    let elsewhere = with_rows(pay_out());
    assert_eq!(answer_of(rail(&peer).check(&elsewhere)), Ok(()));
    assert_eq!(ask(&peer, &elsewhere, FIRST_MILLIS).answer, RailAnswer::Settled);
    let ours = with_rows(order(Flow::PayOut, "$success.usd@sandbox.uma.money", None));
    let refused = Err(RailFailure::InsufficientFunds);
    assert_eq!(answer_of(rail(&peer).check(&ours)), refused);
}
