//! Payments to another institution over the wire, which answers as the test says: it has keys, an
//! address and a Lightning node of its own, and a proxy in front of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::uma::address::{Address, PeerDomain};
use ::uma::currency::{Currency, CurrencyCode};
use ::uma::data::{Demands, Facts};
use ::uma::kyc_status::KycStatus;
use ::uma::lnurlp::{LookupResponse, ReceiverCompliance};
use ::uma::nonce::{Nonce, Stamp};
use ::uma::pay_request::{Amount, PayRequest};
use ::uma::pay_response::{Converted, PayResponse, PayeeCompliance};
use ::uma::signature::SigningKey;
use ::uma::version::Version;
use adapters::lightning::{LightningNode, Network};
use domain::currency::Currency as Asset;
use domain::id::TransactionId;
use domain::money::Money;
use domain::platform::BasisPoints;
use domain::time::Timestamp;
use ports::clock::Clock as _;
use ports::lightning::{Lightning as _, NewInvoice};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive as _;
use serde_json::{Value, json};
use service::platforms;
use testbed::receiver::{Answer as Reply, Received, Receiver};
use uuid::Uuid;

use crate::institutions::{Institution, key_document};
use crate::pay::Payer;
use crate::support::{Answer, Server, text};
use crate::uma::body;

const MINUTE_MILLIS: i64 = 60_000;

const HOUR_MILLIS: i64 = 60 * MINUTE_MILLIS;

/// How long after an execution the payee is asked first.
const FIRST_MILLIS: i64 = 200;

/// US cents that a payer has.
const FUNDED: i64 = 1_000_000;

/// How the institution settles.
#[derive(Clone)]
enum Settles {
    /// It books and gives the preimage.
    Pays,
    /// It books, and its answer is lost.
    Lost,
    /// Something in front of it answers this.
    Answers(u16, String),
}

/// How the institution behaves.
struct Manner {
    /// Millisatoshi of a US cent: by its lookups, and by its answers to pay requests.
    looked_up: Decimal,
    asked: Decimal,
    fee_msat: i64,
    /// The number of the payment that its invoices are for; each has one of its own without it.
    payment: Option<u128>,
    /// An invoice in the place of its own.
    invoice: Option<String>,
    settles: Settles,
    /// How many messages it has signed, and invoices it has made.
    signed: u64,
    /// The preimages of what it has booked.
    booked: Vec<[u8; 32]>,
}

/// The institution, which runs until it is dropped.
struct Elsewhere {
    receiver: Receiver,
    manner: Arc<Mutex<Manner>>,
    domain: PeerDomain,
}

fn lock(manner: &Mutex<Manner>) -> MutexGuard<'_, Manner> {
    manner.lock().unwrap_or_else(PoisonError::into_inner)
}

fn signing() -> SigningKey {
    SigningKey::from_bytes(&[0x11; 32]).expect("a key")
}

fn node() -> LightningNode {
    LightningNode::new([5; 32], Network::Regtest)
}

impl Elsewhere {
    fn beside(server: &Server) -> Self {
        let receiver = Receiver::start().expect("a receiver");
        let url = receiver.url("");
        let domain = url.trim_start_matches("http://").trim_end_matches('/');
        let domain = PeerDomain::parse(domain).expect("a domain");
        let manner = Arc::new(Mutex::new(Manner {
            looked_up: Decimal::from(10_000),
            asked: Decimal::from(10_000),
            fee_msat: 0,
            payment: None,
            invoice: None,
            settles: Settles::Pays,
            signed: 0,
            booked: Vec::new(),
        }));
        let clock = server.clock.clone();
        let document = key_document(&domain, &signing(), clock.now());
        let (own, shared) = (domain.clone(), Arc::clone(&manner));
        receiver.answer_by(move |asked| match asked.path.as_str() {
            ::uma::keys::PATH => Reply::status(200).body(document.clone()),
            "/pay" => lock(&shared).answer_pay_request(asked, clock.now()),
            "/uma/settle" => lock(&shared).settle(asked),
            path if path.starts_with(::uma::lnurlp::PATH) => {
                lock(&shared).answer_lookup(&own, clock.now())
            }
            _ => Reply::status(404),
        });
        Self { receiver, manner, domain }
    }

    fn now_settles(&self, settles: Settles) {
        lock(&self.manner).settles = settles;
    }

    fn address(&self) -> String {
        format!("$bob@{}", self.domain)
    }

    /// The answer to a request for a quote from a payer's dollars to dollars here.
    async fn quoted(&self, payer: &Payer, side: &str, amount: i64) -> Answer {
        let body = self.body(payer, side, amount).await;
        payer.client.post("/quotes", &body).await
    }

    async fn body(&self, payer: &Payer, side: &str, amount: i64) -> Value {
        let mut body = body(payer, &self.address(), side, amount).await;
        body["destination"]["currency"] = json!("USD");
        body
    }

    /// A quote that is executed, of so many cents.
    async fn executed(&self, payer: &Payer, cents: i64) -> Value {
        let quote = self.quoted(payer, "SENDING", cents).await.expect(201).clone();
        payer.client.execute(&quote).await.expect(200);
        quote
    }

    fn booked(&self) -> usize {
        lock(&self.manner).booked.len()
    }
}

impl Manner {
    fn stamp(&mut self, now: Timestamp) -> Stamp {
        self.signed += 1;
        Stamp::new(Nonce::from_random(self.signed), now)
    }

    fn answer_lookup(&mut self, domain: &PeerDomain, now: Timestamp) -> Reply {
        let address = Address::parse(&format!("$bob@{domain}")).expect("an address");
        let stamp = self.stamp(now);
        let response = LookupResponse {
            version: Version::CURRENT,
            callback: domain.url("/pay"),
            min_sendable_msat: 1,
            max_sendable_msat: 9_000_000_000_000_000,
            metadata: r#"[["text/plain","Pay"]]"#.to_owned(),
            currencies: vec![Currency {
                code: CurrencyCode::parse("USD").expect("a code"),
                name: "US dollar".to_owned(),
                symbol: "$".to_owned(),
                msat_per_unit: self.looked_up,
                decimals: 2,
                min_minor: 1,
                max_minor: 1_000_000_000,
            }],
            left_out: Vec::new(),
            payer_demands: Demands::default(),
            comment_max: None,
            compliance: ReceiverCompliance::new(
                &signing(),
                address,
                KycStatus::Verified,
                false,
                stamp,
            ),
        };
        Reply::status(200).body(response.to_json().expect("an answer"))
    }

    fn answer_pay_request(&mut self, asked: &Received, now: Timestamp) -> Reply {
        let request = PayRequest::read(&asked.body).expect("a pay request");
        let (minor, msat) = match request.amount {
            Amount::Receiving { minor, .. } => {
                let owed =
                    (Decimal::from(minor) * self.asked).ceil() + Decimal::from(self.fee_msat);
                (minor, owed.to_i64().expect("an amount"))
            }
            Amount::Msat(msat) => {
                let rest = Decimal::from(msat) - Decimal::from(self.fee_msat);
                ((rest / self.asked).floor().to_i64().expect("an amount"), msat)
            }
        };
        let stamp = self.stamp(now);
        let payment = Uuid::from_u128(self.payment.unwrap_or(u128::from(self.signed)));
        let invoice = node().create_invoice(&NewInvoice {
            payment: TransactionId::from_uuid(payment),
            msat: Money::positive(msat.max(1), Asset::MSAT).expect("an amount"),
            description: b"[]",
            made_at: now,
            expires_at: now.plus_millis(10 * MINUTE_MILLIS),
        });
        let payee = Address::parse(&format!("$bob@{}", host(asked))).expect("an address");
        let payer = &request.payer.identifier;
        let response = PayResponse {
            invoice: self.invoice.clone().or(invoice).expect("an invoice"),
            converted: Converted {
                amount_minor: Some(minor),
                code: request.receiving.clone(),
                decimals: 2,
                msat_per_unit: self.asked,
                fee_msat: self.fee_msat,
            },
            payee: Some(payee.clone()),
            facts: Facts::default(),
            compliance: PayeeCompliance::new(&signing(), payer, &payee, stamp),
        };
        Reply::status(200).body(response.to_json().expect("an answer"))
    }

    fn settle(&mut self, asked: &Received) -> Reply {
        if let Settles::Answers(status, body) = &self.settles {
            return Reply::status(*status).body(body.clone());
        }
        let shown: Value = serde_json::from_slice(&asked.body).expect("JSON");
        let invoice = node().read_invoice(&text(&shown["pr"])).expect("an invoice");
        let payment = Uuid::from_slice(&invoice.metadata).expect("an id");
        let preimage = node().preimage(TransactionId::from_uuid(payment)).expect("a preimage");
        if !self.booked.contains(&preimage) {
            self.booked.push(preimage);
        }
        match self.settles {
            Settles::Lost => Reply::closed(),
            _ => Reply::status(200).body(json!({ "preimage": hex::encode(preimage) }).to_string()),
        }
    }
}

fn host(asked: &Received) -> String {
    asked.header("host").to_owned()
}

/// A proxy answers the second question about a payment whose first was booked: the payer's money is
/// not given back, and the payment ends as the payee's server says in the end.
#[tokio::test]
async fn a_payment_that_was_booked_is_not_ended_by_a_proxy() {
    let server = Server::new();
    let payer = Payer::with(&server, FUNDED).await;
    let peer = Elsewhere::beside(&server);
    let unsigned = json!({ "status": "ERROR", "code": "INVALID_SIGNATURE", "reason": "?" });
    let bodies = |status: u16| match status {
        401 => unsigned.to_string(),
        403 => json!({ "code": "FORBIDDEN", "message": "no" }).to_string(),
        404 => json!({ "error": "no such route" }).to_string(),
        412 | 501 => String::new(),
        _ => "<html>".to_owned(),
    };
    let statuses = [200, 307, 400, 401, 403, 404, 405, 410, 412, 413, 451, 501, 503];
    let mut quotes = Vec::new();
    for (number, status) in (1..).zip(statuses) {
        peer.now_settles(Settles::Lost);
        let quote = peer.executed(&payer, 1_000).await;
        server.pass(FIRST_MILLIS).await;
        assert_eq!(peer.booked(), number);
        peer.now_settles(Settles::Answers(status, bodies(status)));
        server.pass(1_000).await;
        let asked = peer.receiver.take();
        assert!(asked.iter().filter(|it| it.path == "/uma/settle").count() >= 2, "{status}");
        payer.client.stands_at(&quote, "PROCESSING", "PROCESSING").await;
        assert_eq!(payer.balance().await, FUNDED - 1_000 * i64::try_from(number).expect("few"));
        quotes.push(quote);
    }
    let paid = payer.balance().await;
    peer.now_settles(Settles::Pays);
    server.pass(10 * MINUTE_MILLIS).await;
    for quote in &quotes {
        let payment = payer.client.stands_at(quote, "COMPLETED", "COMPLETED").await;
        assert!(payment["statusReason"].is_null(), "{payment}");
    }
    assert_eq!((payer.balance().await, peer.booked()), (paid, quotes.len()));
    server.verify();
}

#[tokio::test]
async fn the_payees_own_refusal_gives_the_money_back() {
    let server = Server::new();
    let payer = Payer::with(&server, FUNDED).await;
    let peer = Elsewhere::beside(&server);
    for (status, code, ends) in [
        (400, "INVOICE_EXPIRED", "FAILED"),
        (404, "REQUEST_NOT_FOUND", "FAILED"),
        (403, "COUNTERPARTY_NOT_ALLOWED", "REJECTED"),
    ] {
        let refusal = json!({ "status": "ERROR", "code": code, "reason": "because" });
        peer.now_settles(Settles::Answers(status, refusal.to_string()));
        let quote = peer.executed(&payer, 1_000).await;
        server.pass(FIRST_MILLIS).await;
        let payment = payer.client.stands_at(&quote, "FAILED", ends).await;
        assert_eq!(payment["statusReason"]["code"], code);
        assert_eq!(payer.balance().await, FUNDED);
    }
    assert_eq!(peer.booked(), 0);
    server.verify();
}

/// Past its deadline a payment waits for a person: it says so, is asked about seldom, and nothing
/// is given back.
#[tokio::test]
async fn a_payment_without_an_outcome_waits_for_a_person() {
    let server = Server::new();
    let payer = Payer::with(&server, FUNDED).await;
    let mut peer = Elsewhere::beside(&server);
    peer.now_settles(Settles::Lost);
    let quote = peer.executed(&payer, 1_000).await;
    server.pass(FIRST_MILLIS).await;
    peer.receiver.kill();
    for _ in 0..4 {
        server.pass(5 * MINUTE_MILLIS).await;
    }
    let payment = payer.client.stands_at(&quote, "PROCESSING", "PROCESSING").await;
    assert_eq!(payment["statusReason"]["code"], "OUTCOME_UNKNOWN", "{payment}");
    assert!(payment["failureReason"].is_null() && payment["refund"].is_null(), "{payment}");
    assert_eq!(payer.balance().await, FUNDED - 1_000);
    server.verify();
    peer.receiver.resume().expect("the same address");
    peer.now_settles(Settles::Pays);
    peer.receiver.take();
    server.pass(HOUR_MILLIS - 6 * MINUTE_MILLIS).await;
    assert!(peer.receiver.take().is_empty(), "it is asked about seldom");
    server.pass(6 * MINUTE_MILLIS).await;
    let payment = payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    assert!(payment["statusReason"].is_null(), "{payment}");
    assert_eq!((payer.balance().await, peer.booked()), (FUNDED - 1_000, 1));
    server.verify();
}

/// The institution names the same invoice, or another one with its hash, as often as it is asked.
#[tokio::test]
async fn a_payment_hash_is_paid_once() {
    let server = Server::new();
    let (payer, other) = (Payer::with(&server, FUNDED).await, Payer::with(&server, FUNDED).await);
    let peer = Elsewhere::beside(&server);
    lock(&peer.manner).payment = Some(1 << 80);
    let first = peer.quoted(&payer, "RECEIVING", 1_000).await.expect(201).clone();
    let refused = async |payer: &Payer, side: &str, cents: i64| {
        let answer = peer.quoted(payer, side, cents).await;
        let details = answer.refused(400, "INVALID_PAYREQ_RESPONSE");
        assert_eq!(details["reason"], "INVOICE_ALREADY_USED");
        assert_eq!(details["umaAddress"], peer.address());
    };
    // Of the same amount, of another one, and for the customer of another platform.
    refused(&payer, "RECEIVING", 1_000).await;
    refused(&payer, "SENDING", 5_000).await;
    refused(&other, "RECEIVING", 1_000).await;
    let mut at_once = peer.body(&payer, "RECEIVING", 1_000).await;
    at_once["immediatelyExecute"] = json!(true);
    payer.client.post("/quotes", &at_once).await.refused(400, "INVALID_PAYREQ_RESPONSE");
    assert_eq!(payer.balance().await, FUNDED);
    payer.client.execute(&first).await.expect(200);
    server.pass(FIRST_MILLIS).await;
    payer.client.stands_at(&first, "COMPLETED", "COMPLETED").await;
    refused(&payer, "RECEIVING", 1_000).await;
    // One that was never paid stays its own: the institution still has the preimage.
    lock(&peer.manner).payment = Some(2 << 80);
    let unpaid = peer.quoted(&payer, "RECEIVING", 1_000).await.expect(201).clone();
    server.pass(20 * MINUTE_MILLIS).await;
    payer.client.stands_at(&unpaid, "EXPIRED", "EXPIRED").await;
    refused(&payer, "RECEIVING", 1_000).await;
    lock(&peer.manner).payment = None;
    peer.quoted(&payer, "RECEIVING", 1_000).await.expect(201);
    assert_eq!(peer.booked(), 1);
    server.verify();
}

/// An institution that was to pay us gives our own invoice back, to be paid by a customer of ours.
#[tokio::test]
async fn an_invoice_of_ours_is_not_paid_by_us() {
    let from = Institution::new().await;
    let (server, ours) = (&from.server, from.invoice(1_000).await);
    let payer = Payer::with(server, FUNDED).await;
    let peer = Elsewhere::beside(server);
    lock(&peer.manner).invoice = Some(ours);
    let answer = peer.quoted(&payer, "RECEIVING", 1_000).await;
    assert_eq!(answer.refused(400, "PARSE_PAYREQ_RESPONSE_ERROR")["umaAddress"], peer.address());
    assert_eq!(payer.balance().await, FUNDED);
    server.verify();
}

/// A pay response that asks for another amount than the lookup promised gets no quote, whichever
/// part of it is different, and nothing is debited by one that is executed at once.
#[tokio::test]
async fn an_invoice_costs_what_its_lookup_said() {
    let server = Server::new();
    let payer = Payer::with(&server, FUNDED).await;
    let peer = Elsewhere::beside(&server);
    let check = async |side: &str, cents: i64, (asked, fee_msat): (&str, i64), is_taken: bool| {
        let asked = asked.parse().expect("a decimal");
        let manner = || lock(&peer.manner);
        (manner().asked, manner().fee_msat) = (asked, fee_msat);
        let mut body = peer.body(&payer, side, cents).await;
        let case = format!("{side} {cents} {asked} {fee_msat}");
        let answer = payer.client.post("/quotes", &body).await;
        assert_eq!(answer.status == 201, is_taken, "{case}: {}", answer.body);
        if !is_taken {
            let details = answer.refused(400, "INVALID_PAYREQ_RESPONSE");
            assert_eq!(details["reason"], "COST_DIFFERS", "{case}");
            assert_eq!(details["maxBasisPoints"], 500, "{case}");
            assert_ne!(details["askedSendingAmount"], details["lookedUpSendingAmount"], "{case}");
            body["immediatelyExecute"] = json!(true);
            let answer = payer.client.post("/quotes", &body).await;
            answer.refused(400, "INVALID_PAYREQ_RESPONSE");
            assert_eq!(payer.balance().await, FUNDED, "{case}");
        }
    };
    // A cent costs 10,000 millisatoshi by the lookup. 5 % more is the bound, and less is as odd.
    for (side, cents, asked, is_taken) in [
        ("RECEIVING", 100, ("10000", 50_000), true),
        ("RECEIVING", 100, ("10000", 50_020), false),
        ("RECEIVING", 100, ("10000", 900_000_000), false),
        ("RECEIVING", 10_000, ("10500", 0), true),
        ("RECEIVING", 10_000, ("10501", 0), false),
        ("RECEIVING", 10_000, ("10300", 2_000_000), true),
        ("RECEIVING", 10_000, ("10300", 2_010_000), false),
        ("RECEIVING", 10_000, ("9500", 0), true),
        ("RECEIVING", 10_000, ("9400", 0), false),
        ("RECEIVING", 10_000, ("0.01", 0), false),
        ("RECEIVING", 10_000, ("100000", 0), false),
        ("RECEIVING", 1, ("10000", 20_000), false),
        ("SENDING", 100_000, ("10000", 40_000_000), true),
        ("SENDING", 100_000, ("10000", 60_000_000), false),
        ("SENDING", 100_000, ("10000", 900_000_000), false),
        ("SENDING", 100_000, ("10400", 0), true),
        ("SENDING", 100_000, ("11000", 0), false),
        ("SENDING", 100_000, ("100000", 0), false),
        ("SENDING", 100_000, ("10300", 40_000_000), false),
    ] {
        check(side, cents, asked, is_taken).await;
    }
    assert_eq!(peer.booked(), 0);
    server.verify();
}

/// A platform says by itself how much an invoice may differ.
#[tokio::test]
async fn how_much_an_invoice_may_differ_is_a_setting() {
    let server = Server::new();
    let payer = Payer::with(&server, FUNDED).await;
    let peer = Elsewhere::beside(&server);
    for (points, fee_msat, is_taken) in
        [(0, 0, true), (0, 1_000, false), (250, 25_000, true), (250, 25_100, false)]
    {
        let max = BasisPoints::new(points).expect("few");
        let set = platforms::set_cost_drift(&server.app, payer.client.platform, max).await;
        set.expect("a change");
        lock(&peer.manner).fee_msat = fee_msat;
        let answer = peer.quoted(&payer, "RECEIVING", 100).await;
        assert_eq!(answer.status == 201, is_taken, "{points} {fee_msat}: {}", answer.body);
    }
    server.verify();
}

/// No quote stands on numbers that make no payment.
#[tokio::test]
async fn a_pay_response_without_a_payment_gets_no_quote() {
    let server = Server::new();
    let payer = Payer::with(&server, FUNDED).await;
    let peer = Elsewhere::beside(&server);
    for (side, asked, fee_msat) in [
        // Nothing is left of what is paid, or less.
        ("SENDING", "10000", 9_950_000),
        ("SENDING", "10000", 100_000_000),
        ("SENDING", "10000", i64::MAX),
        ("RECEIVING", "0", 0),
        ("SENDING", "-1", 0),
        ("RECEIVING", "10000", -50_000),
        ("SENDING", "10000", -50_000),
    ] {
        lock(&peer.manner).asked = asked.parse().expect("a decimal");
        lock(&peer.manner).fee_msat = fee_msat;
        let mut body = peer.body(&payer, side, 1_000).await;
        body["immediatelyExecute"] = json!(true);
        let answer = payer.client.post("/quotes", &body).await;
        assert!((400..500).contains(&answer.status), "{side} {asked} {fee_msat}: {}", answer.body);
        assert_eq!(payer.balance().await, FUNDED);
    }
    server.verify();
}
