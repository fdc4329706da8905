//! Payments of another institution over the wire, with a clock that is moved: it has keys and an
//! address of its own, and signs its messages as any other does (docs/uma.md).

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use ::uma::address::{Address, PeerDomain};
use ::uma::currency::CurrencyCode;
use ::uma::data::{Demands, Facts};
use ::uma::keys::certificate::Terms;
use ::uma::keys::{KeyDocument, PeerKeys};
use ::uma::kyc_status::KycStatus;
use ::uma::lnurlp::{LookupRequest, LookupResponse};
use ::uma::nonce::{Nonce, Stamp};
use ::uma::pay_request::{Amount, PayRequest, PayerCompliance, PayerData};
use ::uma::post_transaction::{Outcome, PostTransaction};
use ::uma::signature::SigningKey;
use ::uma::travel_rule::DecryptionKey;
use ::uma::version::{Form, Version};
use axum::body::Body;
use axum::http::Request;
use domain::id::{CustomerId, InternalAccountId, TransactionId};
use domain::money::{AMOUNT_MAX, Money, Sending};
use domain::platform::Mode;
use domain::rail::Rail;
use domain::time::Timestamp;
use domain::transaction::Transaction;
use domain::uma_address::UmaDomain;
use domain::uma_peer::Rule;
use http_body_util::BodyExt as _;
use ledger::movements;
use serde_json::{Value, json};
use service::platforms::{self, NewPlatform};
use service::uma::{keys, peers};
use store::open_payments::OpenPayments;
use store::unit::Unit;
use testbed::receiver::{Answer as Reply, Received, Receiver};

use tower::ServiceExt as _;

use crate::pay::{Payer, transaction_id};
use crate::payees::Bank;
use crate::receive::Payee;
use crate::support::{Answer, Call, Client, Server, text};
use crate::uma::address_of;

const DAY_MILLIS: i64 = 86_400_000;

const HOUR_MILLIS: i64 = 3_600_000;

/// How long a lookup can be paid on, and an invoice can be paid.
const TEN_MINUTES_MILLIS: i64 = 10 * 60_000;

/// The path at which the institution is notified.
const NOTIFIED: &str = "/after/secret";

/// An institution elsewhere, and the customer whom it pays.
pub struct Institution {
    receiver: Receiver,
    /// The status of its answers to notifications.
    answers: Arc<AtomicU16>,
    domain: PeerDomain,
    signing: SigningKey,
    pub server: Server,
    client: Client,
    payee: Payee,
    address: Address,
    nonces: std::cell::Cell<u64>,
}

/// The key document of an institution elsewhere, which is good for a day.
pub fn key_document(domain: &PeerDomain, signing: &SigningKey, now: Timestamp) -> String {
    let encryption = DecryptionKey::from_bytes(&[0x22; 32]).expect("a key");
    let expires_at = now.plus_millis(DAY_MILLIS);
    let terms = Terms { name: domain.clone(), serial: 1, not_before: now, not_after: expires_at };
    let document = KeyDocument::new(signing, &encryption, &terms, expires_at);
    document.expect("a document").to_json()
}

impl Institution {
    pub async fn new() -> Self {
        let server = Server::new();
        let payee = Payee::on(&server).await;
        let address = address_of(&payee.client, &payee.customer).await;
        let receiver = Receiver::start().expect("a receiver");
        let url = receiver.url("");
        let domain = url.trim_start_matches("http://").trim_end_matches('/');
        let domain = PeerDomain::parse(domain).expect("a domain");
        let signing = SigningKey::from_bytes(&[0x11; 32]).expect("a key");
        let document: Arc<str> = key_document(&domain, &signing, server.app.server_now()).into();
        let answers = Arc::new(AtomicU16::new(200));
        let status = Arc::clone(&answers);
        receiver.answer_by(move |asked| match asked.path.as_str() {
            ::uma::keys::PATH => Reply::status(200).body(document.to_string()),
            NOTIFIED => Reply::status(status.load(Ordering::SeqCst)),
            _ => Reply::status(404),
        });
        Self {
            client: server.anonymous(),
            address: Address::parse(&address).expect("an address"),
            receiver,
            answers,
            domain,
            signing,
            server,
            payee,
            nonces: std::cell::Cell::new(0),
        }
    }

    /// The same, once the server has started again.
    pub fn restart(self) -> Self {
        let server = self.server.restart();
        Self { client: server.anonymous(), server, ..self }
    }

    /// A nonce that was never used, and the time.
    fn stamp(&self) -> Stamp {
        self.nonces.set(self.nonces.get() + 1);
        Stamp::new(Nonce::from_random(self.nonces.get()), self.server.app.server_now())
    }

    /// The answer to a signed lookup of the payee.
    pub async fn look_up(&self) -> LookupResponse {
        let request = LookupRequest::new(
            &self.signing,
            self.address.clone(),
            Version::CURRENT,
            self.domain.clone(),
            false,
            self.stamp(),
        );
        let url = request.url();
        let (_, target) = url.split_once("/.well-known").expect("a path");
        let target = format!("/.well-known{target}");
        let answer = self.client.send_to("GET", &target, Call::default()).await;
        answer.expect(200);
        LookupResponse::read(&answer.bytes).expect("an answer")
    }

    /// A signed pay request over so many cents, which says the payer's name.
    pub fn request(&self, cents: i64) -> PayRequest {
        let payer = Address::parse(&format!("$bo@{}", self.domain)).expect("an address");
        let code = CurrencyCode::parse("USD").expect("a code");
        let stamp = self.stamp();
        let compliance = PayerCompliance::new(&self.signing, &payer, KycStatus::Verified, stamp);
        let facts = Facts([("name".to_owned(), "Bo Karlsson".to_owned())].into());
        PayRequest {
            form: Form::V1,
            amount: Amount::Receiving { minor: cents, code: code.clone() },
            receiving: code,
            payer: PayerData { identifier: payer, facts, compliance },
            payee_demands: Demands::default(),
            comment: None,
            invoice_uuid: None,
        }
    }

    pub async fn pay(&self, looked_up: &LookupResponse, request: &PayRequest) -> Answer {
        let (_, target) = looked_up.callback.split_once("/uma/").expect("a path");
        let body = request.to_json().expect("a request");
        self.client.send_to("POST", &format!("/uma/{target}"), Call::raw(body)).await
    }

    /// An invoice over so many cents.
    pub async fn invoice(&self, cents: i64) -> String {
        let answer = self.pay(&self.look_up().await, &self.request(cents)).await;
        text(&answer.expect(200)["pr"])
    }

    /// An invoice over so many cents, of a payer who wants to know how it ends.
    async fn invoice_of_interest(&self, cents: i64) -> String {
        let mut request = self.request(cents);
        request.payer.compliance.utxo_callback = Some(self.receiver.url(NOTIFIED));
        let answer = self.pay(&self.look_up().await, &request).await;
        text(&answer.expect(200)["pr"])
    }

    /// The notifications, once there are so many and the server has kept how the last went. Each
    /// is signed by the payee's institution.
    async fn notified(&self, count: usize, kept: &str) -> Vec<PostTransaction> {
        let (_, document) = keys_at(&self.server, self.address.domain().as_str()).await;
        let now = self.server.app.server_now();
        let keys = PeerKeys::read(document.to_string().as_bytes(), now).expect("keys");
        loop {
            let all = self.receiver.received();
            let read = |it: &Received| PostTransaction::read(&it.body).expect("a notification");
            let ours = all.iter().filter(|it| it.path == NOTIFIED);
            let found: Vec<_> = ours.map(read).collect();
            let peers = peers::all(&self.server.app).await.expect("peers");
            let last = peers.iter().find_map(|peer| peer.last.clone()).expect("an exchange");
            if found.len() >= count && (last.request, &*last.outcome) == ("POST_TRANSACTION", kept)
            {
                for one in &found {
                    one.verify(&keys.verifying_key).expect("its signature");
                    assert_eq!(one.vasp_domain, *self.address.domain());
                }
                return found;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The operator allows the institution.
    async fn allow(&self) {
        let domain = UmaDomain::parse(self.domain.as_str()).expect("a domain");
        let (app, platform) = (&self.server.app, self.payee.client.platform);
        peers::set_rule(app, platform, domain, Rule::Allowed).await.expect("a rule");
    }

    async fn settle(&self, invoice: &str) -> Answer {
        self.client.send_to("POST", "/uma/settle", Call::json(&json!({ "pr": invoice }))).await
    }

    /// The payments that the payee's platform sees, the newest first.
    async fn payments(&self) -> Vec<Value> {
        let page = self.payee.client.get("/transactions?type=INCOMING").await;
        page.expect(200)["data"].as_array().expect("a list").clone()
    }

    /// Checks that a pay request was refused with a code, and which payment it has left.
    async fn refused(&self, answer: &Answer, status: u16, code: &str, reason: Option<&str>) {
        let said = (answer.status, answer.body["code"].as_str());
        assert_eq!(said, (status, Some(code)), "{}", answer.body);
        assert_eq!(answer.body["status"], "ERROR");
        let payments = self.payments().await;
        match reason {
            Some(reason) => {
                let payment = &payments[0];
                let stands = (payment["status"].as_str(), payment["failureReason"].as_str());
                assert_eq!(stands, (Some("FAILED"), Some(reason)), "{payment}");
            }
            None => assert!(payments.is_empty(), "{payments:?}"),
        }
        assert_eq!(self.payee.client.balance(&self.payee.usd).await, 0);
        self.server.verify();
    }
}

#[tokio::test]
async fn a_payment_is_booked_once_and_its_preimage_given_again() {
    let peer = Institution::new().await;
    let invoice = peer.invoice(2_500).await;
    assert_eq!(peer.payments().await[0]["status"], "PROCESSING");
    assert_eq!(peer.payee.client.balance(&peer.payee.usd).await, 0);
    let first = peer.settle(&invoice).await.expect(200)["preimage"].clone();
    assert_eq!(text(&first).len(), 64);
    peer.server.pass(2 * TEN_MINUTES_MILLIS).await;
    assert_eq!(peer.settle(&invoice).await.expect(200)["preimage"], first);
    let payment = peer.payments().await[0].clone();
    assert_eq!(payment["status"], "COMPLETED");
    assert_eq!(payment["counterpartyInformation"]["FULL_NAME"], "Bo Karlsson");
    assert_eq!(peer.payee.client.balance(&peer.payee.usd).await, 2_500);
    peer.server.verify();
}

#[tokio::test]
async fn comments_and_addresses_of_several_lines_are_texts_of_a_payment() {
    let peer = Institution::new().await;
    let mut request = peer.request(2_500);
    request.comment = Some("For lunch\r\nand dinner".to_owned());
    let looked_up = peer.look_up().await;
    let mut body: Value =
        serde_json::from_str(&request.to_json().expect("a request")).expect("JSON");
    body["payerData"]["postalAddress"] = json!({
        "country": "GB", "postalCode": "N1", "city": "London",
        "line1": "1 High Street", "line2": "Flat 2",
    });
    body["payerData"]["anythingElse"] = json!({ "deep": ["x".repeat(1_000)] });
    let body = serde_json::to_string_pretty(&body).expect("JSON");
    let (_, target) = looked_up.callback.split_once("/uma/").expect("a path");
    let answer = peer.client.send_to("POST", &format!("/uma/{target}"), Call::raw(body)).await;
    answer.expect(200);
    let payment = peer.payments().await[0].clone();
    assert_eq!(payment["description"], "For lunch and dinner");
    let known = json!({
        "FULL_NAME": "Bo Karlsson",
        "POSTAL_ADDRESS": "1 High Street, Flat 2, London, N1, GB",
    });
    assert_eq!(payment["counterpartyInformation"], known);
    for comment in ["a\u{0}b".to_owned(), "x".repeat(501)] {
        let request = PayRequest { comment: Some(comment), ..peer.request(2_500) };
        let answer = peer.pay(&looked_up, &request).await;
        assert_eq!(answer.expect(400)["code"], "PARSE_PAYREQ_REQUEST_ERROR");
    }
    assert_eq!(peer.payments().await.len(), 1);
    peer.server.verify();
}

#[tokio::test]
async fn a_message_that_is_too_long_is_refused_in_the_protocols_form() {
    let peer = Institution::new().await;
    for path in ["/uma/pay/x", "/uma/transaction/x", "/uma/settle"] {
        let long = Call::raw(vec![b' '; 64 * 1_024 + 1]);
        let answer = peer.client.send_to("POST", path, long).await;
        let refusal = answer.expect(413);
        assert_eq!(
            (&refusal["status"], &refusal["code"]),
            (&json!("ERROR"), &json!("INVALID_REQUEST_FORMAT"))
        );
        assert!(text(&refusal["reason"]).contains("65536 bytes"), "{refusal}");
    }
}

/// A lookup of an address at the payee's domain, signed with a key.
fn lookup_of(peer: &Institution, user: &str, key: &SigningKey) -> String {
    let address = Address::parse(&format!("{user}@{}", peer.address.domain())).expect("an address");
    let (domain, stamp) = (peer.domain.clone(), peer.stamp());
    let request = LookupRequest::new(key, address, Version::CURRENT, domain, false, stamp);
    let url = request.url();
    format!("/.well-known{}", url.split_once("/.well-known").expect("a path").1)
}

#[tokio::test]
async fn a_lookup_that_is_not_signed_says_nothing_of_who_is_a_customer() {
    let peer = Institution::new().await;
    let waiting = peer.payee.client.customer().await;
    peer.payee.client.set_kyc(&waiting, "REJECTED").await;
    let waiting = address_of(&peer.payee.client, &waiting).await;
    let user = |address: &str| address.split('@').next().expect("a user").to_owned();
    let users = [user(peer.address.as_written()), user(&waiting), "$no.one".to_owned()];
    let other = SigningKey::from_bytes(&[0x33; 32]).expect("a key");
    let ask = async |target: String| {
        let answer = peer.client.send_to("GET", &target, Call::default()).await;
        (answer.status, answer.bytes)
    };
    let (mut unsigned, mut plain) = (Vec::new(), Vec::new());
    for user in &users {
        unsigned.push(ask(lookup_of(&peer, user, &other)).await);
        plain.push(ask(format!("/.well-known/lnurlp/{user}")).await);
    }
    assert_eq!(unsigned[0].0, 401, "{unsigned:?}");
    assert_eq!(plain[0].0, 403, "{plain:?}");
    for same in [unsigned, plain] {
        assert!(same.iter().all(|answer| *answer == same[0]), "{same:?}");
    }
    // Institutions that sign learn it.
    for (user, status) in users.iter().zip([200, 403, 404]) {
        assert_eq!(ask(lookup_of(&peer, user, &peer.signing)).await.0, status, "{user}");
    }
    peer.server.verify();
}

/// The nonces that are kept.
async fn nonces(peer: &Institution) -> usize {
    let ever = peer.server.app.server_now().plus_millis(DAY_MILLIS);
    let read = peer.server.app.store().read(move |view| view.outdated_nonces(ever, 100)).await;
    read.map_err(service::Error::Store).expect("a read").len()
}

#[tokio::test]
async fn an_unused_lookup_leaves_nothing_after_its_window() {
    let peer = Institution::new().await;
    peer.look_up().await;
    assert_eq!(nonces(&peer).await, 1);
    assert!(peers::all(&peer.server.app).await.expect("peers").is_empty(), "it has paid nothing");
    peer.server.pass(0).await;
    peer.server.pass(15 * 60_000).await;
    assert_eq!(nonces(&peer).await, 1, "its signature may still be good");
    peer.server.pass(1_000).await;
    assert_eq!(nonces(&peer).await, 0);
    peer.invoice(2_500).await;
    assert_eq!(peers::all(&peer.server.app).await.expect("peers").len(), 1);
    peer.server.verify();
}

#[tokio::test]
async fn a_domain_that_hangs_keeps_no_other_from_being_asked() {
    let peer = Institution::new().await;
    let hangs = Receiver::start().expect("a receiver");
    hangs.answer(Reply::status(200).held());
    let domain = hangs.url("").trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut under_way = tokio::task::JoinSet::new();
    for nonce in 0..70 {
        let target = format!(
            "/.well-known/lnurlp/$ada?signature=00&vaspDomain={domain}&nonce={nonce}\
             &timestamp={}&umaVersion=1.0",
            peer.server.app.server_now().millis() / 1_000
        );
        let client = peer.client.clone();
        under_way.spawn(async move { client.send_to("GET", &target, Call::default()).await });
    }
    hangs.wait_for(4).await.expect("four requests");
    peer.look_up().await;
    let bank = Bank::beside(&peer.server);
    let payer = Payer::on(peer.payee.client.clone(), 0).await;
    bank.look_up(&payer).await.expect(200);
    assert_eq!(hangs.received().len(), 4, "no more at a time");
    under_way.abort_all();
}

#[tokio::test]
async fn an_institution_and_an_address_ask_so_often_and_no_more() {
    let peer = Institution::new().await;
    let from = |last: u8| Call::default().from(&format!("192.0.2.{last}"));
    let plain = "/.well-known/lnurlp/$ada";
    for _ in 0..3_000 {
        assert_eq!(peer.client.send_to("GET", plain, from(1)).await.status, 403);
    }
    let refused = peer.client.send_to("GET", plain, from(1)).await;
    assert_eq!(refused.expect(403)["code"], "VELOCITY_LIMIT_EXCEEDED");
    let other = peer.client.send_to("GET", plain, from(2)).await;
    assert_eq!(other.body["code"], "NON_UMA_LNURL_NOT_SUPPORTED");
    peer.server.clock.advance_millis(60_000);
    let later = peer.client.send_to("GET", plain, from(1)).await;
    assert_eq!(later.body["code"], "NON_UMA_LNURL_NOT_SUPPORTED");
}

#[tokio::test]
async fn invoices_are_shown_so_often_and_no_more() {
    let peer = Institution::new().await;
    let invoice = peer.invoice(2_500).await;
    let receipt = peer.settle(&invoice).await.expect(200).clone();
    let from = |last: u8| Call::json(&json!({ "pr": "x" })).from(&format!("192.0.2.{last}"));
    let show = async |call: Call| peer.client.send_to("POST", "/uma/settle", call).await;
    for _ in 0..3_000 {
        assert_eq!(show(from(1)).await.body["code"], "INVALID_INVOICE");
    }
    // Another status than that of a payment that is refused: the payer's server asks again.
    assert_eq!(show(from(1)).await.expect(429)["code"], "VELOCITY_LIMIT_EXCEEDED");
    assert_eq!(show(from(2)).await.body["code"], "INVALID_INVOICE");
    // The institution has its own share, whatever else it asks, and whatever strangers ask.
    for _ in 1..1_200 {
        assert_eq!(*peer.settle(&invoice).await.expect(200), receipt);
    }
    assert_eq!(peer.settle(&invoice).await.expect(429)["code"], "VELOCITY_LIMIT_EXCEEDED");
    let other = peer.invoice(2_500).await;
    peer.allow().await;
    peer.settle(&other).await.expect(200);
    peer.server.verify();
}

#[tokio::test]
async fn a_callback_of_another_domain_is_refused() {
    let peer = Institution::new().await;
    let looked_up = peer.look_up().await;
    let mut request = peer.request(2_500);
    request.payer.compliance.utxo_callback = Some("https://elsewhere.example/x".to_owned());
    let answer = peer.pay(&looked_up, &request).await;
    peer.refused(&answer, 400, "PARSE_PAYREQ_REQUEST_ERROR", None).await;
}

#[tokio::test]
async fn an_invoice_that_has_expired_is_not_booked() {
    let peer = Institution::new().await;
    let invoice = peer.invoice(2_500).await;
    peer.server.pass(TEN_MINUTES_MILLIS).await;
    let answer = peer.settle(&invoice).await;
    peer.refused(&answer, 400, "INVOICE_EXPIRED", Some("QUOTE_EXPIRED")).await;
    // The clock alone decides, also before the payment has ended.
    let invoice = peer.invoice(2_500).await;
    peer.server.clock.advance_millis(TEN_MINUTES_MILLIS);
    assert_eq!(peer.settle(&invoice).await.body["code"], "INVOICE_EXPIRED");
}

/// Anyone can ask for invoices: those that are not paid take nothing from anybody, and end.
#[tokio::test]
async fn unpaid_invoices_are_bounded_and_reserve_nothing() {
    // About the most that an invoice is over.
    const CENTS: i64 = 800_000_000_000;
    const OF_PEER_MAX: usize = 100;
    const FUNDED: i64 = 100_000_000_000;
    let peer = Institution::new().await;
    let mut invoices = Vec::new();
    for _ in 0..OF_PEER_MAX {
        invoices.push(peer.invoice(CENTS).await);
    }
    let payments = peer.payee.client.count("/transactions?type=INCOMING").await;
    let refused = peer.pay(&peer.look_up().await, &peer.request(CENTS)).await;
    assert_eq!((refused.status, &refused.body["code"]), (403, &json!("VELOCITY_LIMIT_EXCEEDED")));
    let said = refused.body.to_string();
    assert!(!said.contains("PlatformConfig") && !said.contains("ledger"), "{said}");
    let left = peer.payee.client.count("/transactions?type=INCOMING").await;
    assert_eq!(left, payments, "a refused request leaves no payment");
    // An institution that the operator knows has more places.
    peer.allow().await;
    invoices.push(peer.invoice(CENTS).await);
    // The payee's account has room for what comes otherwise, and each invoice can be paid.
    peer.payee.client.fund(&peer.payee.usd, FUNDED).await;
    peer.settle(&invoices[0]).await.expect(200);
    assert_eq!(peer.payee.client.balance(&peer.payee.usd).await, FUNDED + CENTS);
    peer.server.verify();
    // Once they have ended, there is room for others.
    peer.server.pass(2 * TEN_MINUTES_MILLIS).await;
    let known = peers::all(&peer.server.app).await.expect("peers");
    assert_eq!(known[0].open_payments, 0);
    peer.invoice(CENTS).await;
    assert_eq!(peers::all(&peer.server.app).await.expect("peers")[0].open_payments, 1);
    peer.server.verify();
}

/// However many institutions ask: one payee has so many open invoices at most, and some more for
/// institutions that the operator knows.
#[tokio::test]
async fn open_invoices_of_a_payee_are_bounded() {
    const OF_PAYEE_MAX: i64 = 1_000;
    const OF_PAYEE_ALLOWED_MAX: i64 = 2_000;
    let peer = Institution::new().await;
    let customer = CustomerId::parse(&peer.payee.customer).expect("an id");
    // Ten institutions and more are behind most of them.
    let others = async |count: i64| {
        let write = move |unit: &mut Unit<'_, '_>| {
            unit.put(OpenPayments { customer, count });
            Ok(())
        };
        peer.server.app.write(write).await.expect("a counter");
    };
    let looked_up = peer.look_up().await;
    let pay = async || peer.pay(&looked_up, &peer.request(2_500)).await;
    let refused = async || {
        let answer = pay().await;
        assert_eq!(answer.expect(403)["code"], "VELOCITY_LIMIT_EXCEEDED");
    };
    others(OF_PAYEE_MAX - 1).await;
    pay().await.expect(200);
    refused().await;
    peer.allow().await;
    pay().await.expect(200);
    others(OF_PAYEE_ALLOWED_MAX - 1).await;
    pay().await.expect(200);
    refused().await;
    // One that is paid or over makes room for another.
    others(OF_PAYEE_ALLOWED_MAX - 1).await;
    pay().await.expect(200);
}

#[tokio::test]
async fn a_pay_request_that_is_not_decided_on_ends_with_its_time() {
    let peer = Institution::new().await;
    let url = json!({ "webhookEndpoint": "https://example.com/hook" });
    peer.payee.client.patch("/config", &url).await.expect(200);
    let (looked_up, request) = (peer.look_up().await, peer.request(2_500));
    let newest = async || match peer.payments().await.first() {
        Some(payment) => text(&payment["status"]),
        None => String::new(),
    };
    let time = async {
        while newest().await != "PENDING" {
            tokio::task::yield_now().await;
        }
        peer.server.pass(4_999).await;
        assert_eq!(newest().await, "PENDING");
        peer.server.pass(1).await;
        assert_eq!(newest().await, "FAILED");
    };
    // Only the server's clock moves: the answer does not wait for five seconds of ours.
    let both = async { tokio::join!(peer.pay(&looked_up, &request), time) };
    let answered = tokio::time::timeout(Duration::from_secs(4), both).await;
    let (answer, ()) = answered.expect("an answer with the end of the time");
    peer.refused(&answer, 500, "INTERNAL_ERROR", Some("PAYMENT_APPROVAL_TIMED_OUT")).await;
    assert_eq!(answer.body["reason"], "the payee's platform did not decide in time");
    peer.server.verify();
}

#[tokio::test]
async fn an_invoice_for_which_there_is_no_room_any_more_is_not_booked() {
    let peer = Institution::new().await;
    let invoice = peer.invoice(2_500).await;
    // By the ledger alone: a deposit of the sandbox is smaller.
    let id = transaction_id(&peer.payments().await[0]["id"]);
    let filled = peer.server.app.write(move |unit| {
        let payment = unit.get::<Transaction>(&id)?.expect("a payment");
        let (platform, owner) = (payment.draft().platform, payment.draft().owner);
        let usd = payment.draft().received.currency();
        let all = Money::positive(AMOUNT_MAX - 2_499, usd).expect("in range");
        let account = InternalAccountId::of(owner, usd);
        let deposit = movements::deposit(platform, Rail::Ach, account, all)?;
        let other = TransactionId::from_uuid(uuid::Uuid::from_u128(7));
        Ok(unit.post(other, &deposit, payment.updated_at())?)
    });
    filled.await.expect("a full account");
    let refused = peer.settle(&invoice).await;
    assert_eq!(refused.body["code"], "USER_NOT_READY", "{}", refused.body);
    let payment = peer.payments().await[0].clone();
    assert_eq!(
        (&payment["status"], &payment["failureReason"]),
        (&json!("FAILED"), &json!("OFFRAMP_FAILED"))
    );
    // The payer's side has given the money back by now.
    let again = peer.settle(&invoice).await;
    assert_eq!(again.body["code"], "INVOICE_EXPIRED", "{}", again.body);
    assert_eq!(peer.payee.client.balance(&peer.payee.usd).await, AMOUNT_MAX - 2_499);
}

/// An earlier release set the receipt aside when it gave the invoice.
#[tokio::test]
async fn a_receipt_of_an_earlier_release_is_posted_or_voided() {
    for (is_paid, status, balance) in [(true, "COMPLETED", 2_500), (false, "FAILED", 0)] {
        let peer = Institution::new().await;
        let invoice = peer.invoice(2_500).await;
        let id = transaction_id(&peer.payments().await[0]["id"]);
        let set_aside = peer.server.app.write(move |unit| {
            let payment = unit.get::<Transaction>(&id)?.expect("a payment");
            let draft = payment.draft();
            let uma = draft.uma.as_ref().expect("a payment to an address");
            let (msat, rate) = (uma.settlement.msat(), uma.rate_details.expect("a price"));
            let account = InternalAccountId::of(draft.owner, draft.received.currency());
            let (sent, fees) = (Sending(msat.expect("an invoice")), rate.variable_fee);
            let (rail, to) = (Rail::Lightning, draft.platform);
            let receipt = movements::receipt(rail, account, to, sent, fees, draft.received)?;
            Ok(unit.pend(id, &receipt, payment.updated_at())?)
        });
        set_aside.await.expect("a pending posting");
        peer.server.verify();
        if is_paid {
            peer.settle(&invoice).await.expect(200);
        }
        peer.server.pass(2 * TEN_MINUTES_MILLIS).await;
        assert_eq!(peer.payments().await[0]["status"], status);
        assert_eq!(peer.payee.client.balance(&peer.payee.usd).await, balance);
        peer.server.verify();
    }
}

#[tokio::test]
async fn an_invoice_of_another_server_is_unknown() {
    let (peer, other) = (Institution::new().await, Institution::new().await);
    let invoice = other.invoice(2_500).await;
    // Both have one node key in tests, so the payment is what is unknown.
    let answer = peer.settle(&invoice).await;
    peer.refused(&answer, 404, "REQUEST_NOT_FOUND", None).await;
    let answer = peer.settle("lnbc1").await;
    peer.refused(&answer, 400, "INVALID_INVOICE", None).await;
}

#[tokio::test]
async fn a_lookup_that_has_expired_fails_the_payment() {
    let peer = Institution::new().await;
    let looked_up = peer.look_up().await;
    peer.server.clock.advance_millis(TEN_MINUTES_MILLIS);
    let answer = peer.pay(&looked_up, &peer.request(2_500)).await;
    peer.refused(&answer, 404, "REQUEST_NOT_FOUND", Some("LNURLP_FAILED")).await;
}

#[tokio::test]
async fn a_request_that_the_rules_refuse_is_a_failed_payment() {
    let peer = Institution::new().await;
    peer.payee.client.limit_usd(1_000, 2_000).await;
    let looked_up = peer.look_up().await;
    let offer = looked_up.currencies.iter().find(|it| it.code.as_str() == "USD").expect("dollars");
    assert_eq!((offer.min_minor, offer.max_minor), (1_000, 2_000));
    let answer = peer.pay(&looked_up, &peer.request(999)).await;
    peer.refused(&answer, 400, "AMOUNT_OUT_OF_RANGE", Some("PAY_REQUEST_FAILED")).await;
    let field = json!([{ "name": "TAX_ID", "mandatory": true }]);
    peer.payee.client.set_of_currency("USD", &[("requiredCounterpartyFields", field)]).await;
    let looked_up = peer.look_up().await;
    assert_eq!(looked_up.payer_demands.0.get("taxId"), Some(&true));
    let answer = peer.pay(&looked_up, &peer.request(1_000)).await;
    peer.refused(&answer, 400, "MISSING_MANDATORY_PAYER_DATA", Some("PAY_REQUEST_FAILED")).await;
}

#[tokio::test]
async fn facts_about_the_payee_that_are_not_given_fail_the_payment() {
    let peer = Institution::new().await;
    let demands = |key: &str| Demands([(key.to_owned(), true)].into());
    let looked_up = peer.look_up().await;
    let mut request = peer.request(2_500);
    request.payee_demands = demands("taxId");
    let answer = peer.pay(&looked_up, &request).await;
    let reason = Some("MISSING_MANDATORY_PAYEE_DATA");
    peer.refused(&answer, 400, "MISSING_MANDATORY_PAYEE_DATA", reason).await;
    let mut request = peer.request(2_500);
    request.payee_demands = demands("name");
    let answer = peer.pay(&looked_up, &request).await;
    let name = &answer.expect(200)["payeeData"]["name"];
    assert!(name.as_str().is_some_and(|name| !name.is_empty()), "{name}");
}

#[tokio::test]
async fn a_request_that_was_not_signed_leaves_nothing() {
    let peer = Institution::new().await;
    let looked_up = peer.look_up().await;
    let mut request = peer.request(2_500);
    let other = SigningKey::from_bytes(&[0x33; 32]).expect("a key");
    let payer = request.payer.identifier.clone();
    request.payer.compliance =
        PayerCompliance::new(&other, &payer, KycStatus::Verified, peer.stamp());
    let answer = peer.pay(&looked_up, &request).await;
    peer.refused(&answer, 401, "INVALID_SIGNATURE", None).await;
    let mut request = peer.request(2_500);
    request.payer.identifier = Address::parse("$bo@other.example").expect("an address");
    let answer = peer.pay(&looked_up, &request).await;
    peer.refused(&answer, 400, "SENDER_NOT_ACCEPTED", None).await;
    // A request that is repeated is one payment.
    let request = peer.request(2_500);
    peer.pay(&looked_up, &request).await.expect(200);
    let answer = peer.pay(&looked_up, &request).await;
    assert_eq!((answer.status, &answer.body["code"]), (400, &json!("INVALID_NONCE")));
    assert_eq!(peer.payments().await.len(), 1);
}

/// The other side fixes what is paid, and both sides understand the same of it.
#[tokio::test]
async fn an_amount_in_millisatoshi_buys_what_it_is_worth() {
    let peer = Institution::new().await;
    let looked_up = peer.look_up().await;
    let usd = looked_up.currencies.iter().find(|it| it.code.as_str() == "USD").expect("dollars");
    for msat in [25_000_000, 25_000_001, 1_234_567_891] {
        let mut request = peer.request(1);
        request.amount = Amount::Msat(msat);
        let answer = peer.pay(&looked_up, &request).await;
        let converted = &answer.expect(200)["converted"];
        let minor = converted["amount"].as_i64().expect("an amount");
        let fee = converted["fee"].as_i64().expect("a fee");
        let owed = usd.msat_per_unit * rust_decimal::Decimal::from(minor)
            + rust_decimal::Decimal::from(fee);
        let rest = rust_decimal::Decimal::from(msat) - owed;
        let (none, one) = (rust_decimal::Decimal::ZERO, rust_decimal::Decimal::ONE);
        assert!(rest >= none && rest < usd.msat_per_unit + one, "{msat}: {converted}");
        let invoice = text(&answer.body["pr"]);
        peer.settle(&invoice).await.expect(200);
    }
    peer.server.verify();
}

#[tokio::test]
async fn an_institution_is_notified_of_a_payment_that_it_has_made() {
    let peer = Institution::new().await;
    let invoice = peer.invoice_of_interest(2_500).await;
    peer.settle(&invoice).await.expect(200);
    peer.server.pass(0).await;
    let notified = peer.notified(1, "OK").await;
    assert_eq!(notified[0].outcome, Some(Outcome::Completed));
    peer.server.pass(DAY_MILLIS).await;
    assert_eq!(peer.notified(1, "OK").await.len(), 1, "once");
    peer.server.verify();
}

#[tokio::test]
async fn an_institution_is_notified_of_a_payment_that_has_failed() {
    let peer = Institution::new().await;
    peer.invoice_of_interest(2_500).await;
    peer.server.pass(TEN_MINUTES_MILLIS).await;
    let notified = peer.notified(1, "OK").await;
    let code = Some("QUOTE_EXPIRED".to_owned());
    assert_eq!(notified[0].outcome, Some(Outcome::Failed { code, reason: None }));
    peer.server.verify();
}

#[tokio::test]
async fn an_institution_that_does_not_answer_is_notified_again_and_given_up() {
    let peer = Institution::new().await;
    peer.answers.store(503, Ordering::SeqCst);
    let invoice = peer.invoice_of_interest(2_500).await;
    peer.settle(&invoice).await.expect(200);
    let waits = [0, 10_000, 60_000, TEN_MINUTES_MILLIS, HOUR_MILLIS];
    for (attempt, wait_millis) in (1..).zip(waits) {
        peer.server.pass(wait_millis).await;
        assert_eq!(peer.notified(attempt, "STATUS_503").await.len(), attempt);
    }
    peer.server.pass(6 * HOUR_MILLIS).await;
    assert_eq!(peer.notified(5, "STATUS_503").await.len(), 5, "given up");
    // An answer that is no is as good as yes: it will not become another.
    peer.answers.store(404, Ordering::SeqCst);
    let invoice = peer.invoice_of_interest(2_500).await;
    peer.settle(&invoice).await.expect(200);
    peer.server.pass(0).await;
    peer.notified(6, "STATUS_404").await;
    peer.server.pass(6 * HOUR_MILLIS).await;
    assert_eq!(peer.notified(6, "STATUS_404").await.len(), 6);
    peer.server.verify();
}

/// The key document as a host of the server shows it.
async fn keys_at(server: &Server, host: &str) -> (u16, Value) {
    let request = Request::get(::uma::keys::PATH).header("host", host).body(Body::empty());
    let answer = server.router().oneshot(request.expect("a request")).await.expect("an answer");
    let (status, body) = (answer.status().as_u16(), answer.into_body());
    let bytes = body.collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&bytes).expect("JSON"))
}

#[tokio::test]
async fn each_domain_has_keys_of_its_own_and_new_ones_after_an_hour() {
    let server = Server::new();
    let client = server.platform().await;
    let (_, alone) = keys_at(&server, "10.0.0.1:8080").await;
    let (_, first) = keys_at(&server, "uma.test").await;
    assert_eq!(alone["signingPubKey"], first["signingPubKey"], "one domain answers for all");
    let other = platforms::create(
        &server.app,
        NewPlatform {
            name: "other".to_owned(),
            mode: Mode::Sandbox,
            uma_domain: UmaDomain::parse("other.test").expect("a domain"),
            is_regulated: true,
        },
    );
    let other = other.await.expect("a platform");
    let (_, second) = keys_at(&server, "other.test").await;
    assert_ne!(first["signingPubKey"], second["signingPubKey"]);
    assert_ne!(second["signingPubKey"], second["encryptionPubKey"]);
    let proxied = format!("{}.pay.example", other.proxy_uma_subdomain);
    assert_eq!(keys_at(&server, &proxied).await.1["signingPubKey"], second["signingPubKey"]);
    let (status, refusal) = keys_at(&server, "10.0.0.1:8080").await;
    assert_eq!((status, &refusal["code"]), (404, &json!("USER_NOT_FOUND")));

    let begins_at = keys::rotate(&server.app, other.uma_domain.clone()).await.expect("new keys");
    let begins_at = begins_at.expect("a platform");
    assert!(keys::rotate(&server.app, other.uma_domain.clone()).await.is_err(), "not yet");
    let (_, still) = keys_at(&server, "other.test").await;
    assert_eq!(still["signingPubKey"], second["signingPubKey"]);
    let until = still["expirationTimestamp"].as_i64().expect("a time");
    assert_eq!(until, begins_at.millis() / 1_000, "no peer keeps the old ones for longer");
    server.clock.advance_millis(HOUR_MILLIS);
    assert_ne!(keys_at(&server, "other.test").await.1["signingPubKey"], second["signingPubKey"]);
    assert_eq!(keys_at(&server, "uma.test").await.1["signingPubKey"], first["signingPubKey"]);
    drop(client);
    server.verify();
}
