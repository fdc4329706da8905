//! Payments to another institution over the wire: it has keys of its own, answers lookups and pay
//! requests as any other does, or otherwise if a test wants it to (docs/uma.md).

use std::sync::{Arc, Mutex};

use ::uma::address::{Address, PeerDomain};
use ::uma::currency::{Currency, CurrencyCode};
use ::uma::data::{Demands, Facts};
use ::uma::error::{ErrorCode, Refusal};
use ::uma::keys::certificate::Terms;
use ::uma::keys::{self, KeyDocument};
use ::uma::kyc_status::KycStatus;
use ::uma::lnurlp::{LookupResponse, ReceiverCompliance};
use ::uma::nonce::{Nonce, Stamp};
use ::uma::pay_request::{Amount, PayRequest};
use ::uma::pay_response::{Converted, PayResponse, PayeeCompliance};
use ::uma::signature::SigningKey;
use ::uma::travel_rule::{self, DecryptionKey};
use ::uma::version::{Form, Version};
use adapters::lightning::{LightningNode, Network};
use domain::id::TransactionId;
use domain::money::Money;
use domain::time::Timestamp;
use domain::uma_address::UmaDomain;
use domain::uma_peer::Rule;
use ports::lightning::{Lightning as _, NewInvoice};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use service::uma::peers;
use testbed::receiver::{Answer as Reply, Received, Receiver};

use crate::pay::{Payer, deposit, from, locked};
use crate::support::{Answer, Server, text};

const DAY_MILLIS: i64 = 86_400_000;

/// Millisatoshi for a cent, as our own rates have it.
const MSAT_PER_CENT: i64 = 10_000;

/// The answers of an institution: sound ones, and the change that a test makes to each.
struct Says {
    version: Version,
    lookup: Box<dyn Fn(&mut Value) + Send>,
    pay: Box<dyn Fn(&mut Value) + Send>,
    /// Whether it wants travel-rule data.
    is_subject_to_travel_rule: bool,
    /// The byte of which its decryption key is made.
    decryption: u8,
    /// How long its key document may be kept.
    keys_millis: i64,
    nonce: u64,
}

/// An institution elsewhere, whose customers are paid.
pub struct Bank {
    pub receiver: Receiver,
    pub domain: PeerDomain,
    says: Arc<Mutex<Says>>,
}

impl Bank {
    pub fn beside(server: &Server) -> Self {
        let receiver = Receiver::start().expect("a receiver");
        let url = receiver.url("");
        let domain = PeerDomain::parse(url.trim_start_matches("http://")).expect("a domain");
        let says = Arc::new(Mutex::new(Says {
            version: Version::CURRENT,
            lookup: Box::new(|_| ()),
            pay: Box::new(|_| ()),
            is_subject_to_travel_rule: false,
            decryption: 0x22,
            keys_millis: DAY_MILLIS,
            nonce: 0,
        }));
        let (known, own, app) = (Arc::clone(&says), domain.clone(), server.app.clone());
        receiver.answer_by(move |asked| {
            let mut says = known.lock().expect("no panic");
            says.nonce += 1;
            let answer = says.answer(asked, &own, app.server_now());
            match answer {
                Ok(body) => Reply::status(200).body(body),
                Err(refusal) => Reply::status(refusal.code.status()).body(refusal.to_json()),
            }
        });
        Self { receiver, domain, says }
    }

    fn set(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.says.lock().expect("no panic"));
    }

    /// An address that it gives out.
    pub fn address(&self) -> String {
        format!("$bob@{}", self.domain)
    }

    /// The answer of our server to a customer's lookup of the address.
    pub async fn look_up(&self, payer: &Payer) -> Answer {
        let address = self.address().replace('$', "%24");
        let path = format!("/receiver/uma/{address}?customerId={}", payer.customer);
        payer.client.get(&path).await
    }

    /// The answer of our server to a quote on a lookup.
    async fn quote(&self, payer: &Payer, lookup: &Value, description: Option<&str>) -> Answer {
        let to = json!({
            "destinationType": "UMA_ADDRESS", "umaAddress": self.address(), "currency": "USD",
        });
        let mut body = locked("RECEIVING", &from(&payer.usd), &to, 1_000);
        body["lookupId"] = lookup["lookupId"].clone();
        if let Some(description) = description {
            body["description"] = json!(description);
        }
        payer.client.post("/quotes", &body).await
    }

    /// How often a path was asked for.
    fn asked(&self, path: &str) -> usize {
        self.receiver.received().iter().filter(|it| it.path.starts_with(path)).count()
    }
}

impl Says {
    fn stamp(&self, now: Timestamp) -> Stamp {
        Stamp::new(Nonce::from_random(self.nonce), now)
    }

    fn answer(
        &self,
        asked: &Received,
        own: &PeerDomain,
        now: Timestamp,
    ) -> Result<String, Refusal> {
        match asked.path.as_str() {
            keys::PATH => Ok(self.document(own, now)),
            path if path.starts_with("/.well-known/lnurlp/") => Ok(self.looked_up(own, now)),
            "/pay" => self.paid(own, &asked.body, now),
            _ => Err(Refusal::new(ErrorCode::RequestNotFound, "there is no such path")),
        }
    }

    fn document(&self, own: &PeerDomain, now: Timestamp) -> String {
        let until = now.plus_millis(10 * DAY_MILLIS);
        let terms = Terms { name: own.clone(), serial: 1, not_before: now, not_after: until };
        let expires_at = now.plus_millis(self.keys_millis);
        let document =
            KeyDocument::new(&signing(), &decryption(self.decryption), &terms, expires_at);
        document.expect("a document").to_json()
    }

    fn looked_up(&self, own: &PeerDomain, now: Timestamp) -> String {
        let payee = payee(own);
        let response = LookupResponse {
            version: self.version,
            callback: own.url("/pay"),
            min_sendable_msat: 1,
            max_sendable_msat: 1_000_000_000_000,
            metadata: r#"[["text/plain","Pay Bob"]]"#.to_owned(),
            currencies: vec![currency("USD"), currency("EUR")],
            left_out: Vec::new(),
            payer_demands: Demands::default(),
            comment_max: Some(100),
            compliance: ReceiverCompliance::new(
                &signing(),
                payee,
                KycStatus::Verified,
                self.is_subject_to_travel_rule,
                self.stamp(now),
            ),
        };
        changed(&response.to_json().expect("an answer"), &self.lookup)
    }

    fn paid(&self, own: &PeerDomain, body: &[u8], now: Timestamp) -> Result<String, Refusal> {
        let request = PayRequest::read(body)?;
        if let Some(sealed) = &request.payer.compliance.encrypted_travel_rule_info {
            travel_rule::open(sealed, &decryption(self.decryption))?;
        }
        let (minor, msat) = match request.amount {
            Amount::Receiving { minor, .. } => (minor, minor * MSAT_PER_CENT),
            Amount::Msat(msat) => (msat / MSAT_PER_CENT, msat),
        };
        let node = LightningNode::new([9; 32], Network::Regtest);
        let nonce = u128::from(self.nonce);
        let invoice = node.create_invoice(&NewInvoice {
            payment: TransactionId::from_uuid(uuid::Uuid::from_u128(nonce)),
            msat: Money::positive(msat, domain::currency::Currency::MSAT).expect("an amount"),
            description: b"Pay Bob",
            made_at: now,
            expires_at: now.plus_millis(600_000),
        });
        let (payer, payee) = (&request.payer.identifier, payee(own));
        let response = PayResponse {
            invoice: invoice.expect("an invoice"),
            converted: Converted {
                amount_minor: Some(minor),
                code: request.receiving.clone(),
                decimals: 2,
                msat_per_unit: Decimal::from(MSAT_PER_CENT),
                fee_msat: 0,
            },
            payee: Some(payee.clone()),
            facts: Facts::default(),
            compliance: match request.form {
                Form::V0 => PayeeCompliance::unsigned(),
                Form::V1 => PayeeCompliance::new(&signing(), payer, &payee, self.stamp(now)),
            },
        };
        Ok(changed(&response.to_json().expect("an answer"), &self.pay))
    }
}

fn signing() -> SigningKey {
    SigningKey::from_bytes(&[0x11; 32]).expect("a key")
}

fn decryption(byte: u8) -> DecryptionKey {
    DecryptionKey::from_bytes(&[byte; 32]).expect("a key")
}

fn payee(own: &PeerDomain) -> Address {
    Address::parse(&format!("$bob@{own}")).expect("an address")
}

fn currency(code: &str) -> Currency {
    Currency {
        code: CurrencyCode::parse(code).expect("a code"),
        name: code.to_owned(),
        symbol: String::new(),
        msat_per_unit: Decimal::from(MSAT_PER_CENT),
        decimals: 2,
        min_minor: 1,
        max_minor: 1_000_000,
    }
}

fn changed(json: &str, change: &(dyn Fn(&mut Value) + Send)) -> String {
    let mut value = serde_json::from_str(json).expect("JSON");
    change(&mut value);
    value.to_string()
}

/// Puts a changed entry before the currencies of an answer.
fn put_first(answer: &mut Value, change: impl Fn(&mut Value)) {
    let entry = odd(answer, change);
    answer["currencies"].as_array_mut().expect("a list").insert(0, entry);
}

/// A currency entry of an answer, changed.
fn odd(answer: &Value, change: impl Fn(&mut Value)) -> Value {
    let mut entry = answer["currencies"][0].clone();
    change(&mut entry);
    entry
}

/// A change of an entry.
type Spoil = Box<dyn Fn(&mut Value) + Send + Sync>;

/// Entries that cannot be paid in, by the name of their fault.
fn odd_entries() -> Vec<(&'static str, Spoil)> {
    let set = |pointer: &'static str, value: Value| -> Spoil {
        Box::new(move |entry| match entry.pointer_mut(pointer) {
            Some(field) => *field = value.clone(),
            None => *entry = value.clone(),
        })
    };
    vec![
        ("USDC.e", set("/code", json!("USDC.e"))),
        ("1INCH", set("/code", json!("1INCH"))),
        ("eur", set("/code", json!("eur"))),
        ("no limits", set("/convertible", Value::Null)),
        ("no name", set("/name", Value::Null)),
        ("a float beyond 64 bits", set("/convertible/max", json!(1e20))),
        (
            "an integer beyond 64 bits",
            set("/convertible/max", json!(9_223_372_036_854_775_808_u64)),
        ),
        ("free", set("/multiplier", json!(0))),
        ("cheaper than free", set("/multiplier", json!(-1.5))),
        ("NaN", set("/multiplier", json!("NaN"))),
        ("min > max", set("/convertible/min", json!(2_000_000))),
        ("18 decimals", set("/decimals", json!(18))),
        ("another number of decimals", set("/decimals", json!(6))),
        ("unknown", set("/code", json!("XYZ"))),
        ("a list", set("", json!([]))),
        ("a number", set("", json!(7))),
        ("null", set("", Value::Null)),
    ]
}

#[tokio::test]
async fn an_odd_currency_is_left_out_and_the_others_can_be_paid() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    for (name, spoil) in odd_entries() {
        let spoil = Arc::new(spoil);
        let one = Arc::clone(&spoil);
        bank.set(|says| {
            says.lookup = Box::new(move |answer| put_first(answer, &**one));
        });
        let looked = bank.look_up(&payer).await.expect(200).clone();
        let offers = looked["supportedCurrencies"].as_array().expect("a list");
        let codes: Vec<_> = offers.iter().map(|it| text(&it["currency"]["code"])).collect();
        assert_eq!(codes, ["USD", "EUR"], "{name}");
        bank.quote(&payer, &looked, None).await.expect(201);
        // Alone it leaves nothing to pay in, which the refusal says.
        bank.set(|says| {
            says.lookup = Box::new(move |answer| {
                let entry = odd(answer, &**spoil);
                answer["currencies"] = json!([entry]);
            });
        });
        let refused = bank.look_up(&payer).await;
        assert_eq!(refused.refused(400, "INVALID_CURRENCY")["umaAddress"], bank.address());
        let said = text(&refused.body["message"]);
        assert!(said.contains("cannot be paid in any currency"), "{name}: {said}");
    }
    server.verify();
}

#[tokio::test]
async fn an_odd_currency_is_left_out_in_version_0_too() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    bank.set(|says| says.version = Version::LEGACY);
    for (field, value) in
        [("maxSendable", json!(1e20)), ("minSendable", Value::Null), ("code", json!("eur"))]
    {
        bank.set(|says| {
            says.lookup = Box::new(move |answer| {
                put_first(answer, |entry| entry[field] = value.clone());
            });
        });
        let looked = bank.look_up(&payer).await.expect(200).clone();
        assert_eq!(looked["supportedCurrencies"].as_array().map(Vec::len), Some(2), "{field}");
    }
    server.verify();
}

#[tokio::test]
async fn a_currency_that_is_listed_twice_is_offered_once() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    bank.set(|says| {
        says.lookup = Box::new(|answer| {
            put_first(answer, |entry| entry["convertible"]["max"] = json!(5));
        });
    });
    let looked = bank.look_up(&payer).await.expect(200).clone();
    let offers = looked["supportedCurrencies"].as_array().expect("a list");
    assert_eq!((offers.len(), &offers[0]["max"]), (2, &json!(5)), "the preferred one");
}

#[tokio::test]
async fn a_long_list_of_odd_currencies_is_a_short_refusal() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    for (currencies, said) in [
        (json!([]), "there is none"),
        (json!(vec![json!({ "code": "\u{7}x".repeat(10) }); 300]), "and 290 more"),
    ] {
        bank.set(|says| {
            says.lookup = Box::new(move |answer| answer["currencies"] = currencies.clone());
        });
        let answer = bank.look_up(&payer).await;
        answer.refused(400, "INVALID_CURRENCY");
        let message = text(&answer.body["message"]);
        assert!(message.contains(said) && message.len() < 3_000, "{message}");
    }
    bank.set(|says| says.lookup = Box::new(|answer| answer["currencies"] = json!({ "USD": 1 })));
    bank.look_up(&payer).await.refused(400, "PARSE_LNURLP_RESPONSE_ERROR");
    server.verify();
}

/// The operator's rule for the institution.
async fn set_rule(server: &Server, payer: &Payer, bank: &Bank, rule: Rule) {
    let domain = UmaDomain::parse(bank.domain.as_str()).expect("a domain");
    peers::set_rule(&server.app, payer.client.platform, domain, rule).await.expect("a rule");
}

#[tokio::test]
async fn a_quote_is_not_executed_once_its_institution_is_blocked() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    let looked = bank.look_up(&payer).await.expect(200).clone();
    let quote = bank.quote(&payer, &looked, None).await.expect(201).clone();
    set_rule(&server, &payer, &bank, Rule::Blocked).await;
    payer.client.execute(&quote).await.refused(403, "COUNTERPARTY_NOT_ALLOWED");
    assert_eq!(payer.balance().await, 100_000);
    bank.quote(&payer, &looked, None).await.refused(403, "COUNTERPARTY_NOT_ALLOWED");
    // A deposit for a quote cannot be refused, only given back.
    set_rule(&server, &payer, &bank, Rule::Allowed).await;
    let to = json!({
        "destinationType": "UMA_ADDRESS", "umaAddress": bank.address(), "currency": "USD",
    });
    let mut body = locked("RECEIVING", &deposit("USD", &payer.customer), &to, 1_000);
    body["lookupId"] = looked["lookupId"].clone();
    let funded = payer.client.quote(&body).await;
    set_rule(&server, &payer, &bank, Rule::Blocked).await;
    payer.client.deposit(&funded, None).await.expect(200);
    payer.client.stands_at(&funded, "FAILED", "REFUNDED").await;
    set_rule(&server, &payer, &bank, Rule::Unset).await;
    assert_eq!(payer.client.execute(&quote).await.expect(200)["status"], "PROCESSING");
    server.verify();
}

#[tokio::test]
async fn a_rotated_encryption_key_costs_a_key_fetch_and_no_lookup() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    bank.set(|says| says.is_subject_to_travel_rule = true);
    let looked = bank.look_up(&payer).await.expect(200).clone();
    bank.quote(&payer, &looked, None).await.expect(201);
    assert_eq!((bank.asked(keys::PATH), bank.asked("/pay")), (1, 1));
    bank.set(|says| says.decryption = 0x33);
    bank.quote(&payer, &looked, None).await.expect(201);
    assert_eq!((bank.asked(keys::PATH), bank.asked("/pay")), (2, 3));
    // The new key is kept, and every request had a nonce of its own.
    bank.quote(&payer, &looked, None).await.expect(201);
    assert_eq!((bank.asked(keys::PATH), bank.asked("/pay")), (2, 4));
    let all = bank.receiver.received();
    let nonce = |it: &Received| {
        let request = PayRequest::read(&it.body).expect("a pay request");
        request.payer.compliance.signed.stamp.nonce.to_string()
    };
    let nonces: std::collections::BTreeSet<_> =
        all.iter().filter(|it| it.path == "/pay").map(nonce).collect();
    assert_eq!(nonces.len(), 4);
    // An institution that refuses for another reason is not asked twice.
    bank.set(|says| says.pay = Box::new(|answer| *answer = json!({ "status": "ERROR" })));
    bank.quote(&payer, &looked, None).await.refused(424, "PAYREQ_REQUEST_FAILED");
    assert_eq!((bank.asked(keys::PATH), bank.asked("/pay")), (3, 5));
    server.verify();
}

#[tokio::test]
async fn a_key_document_is_kept_for_a_day_or_until_it_is_forgotten() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    bank.set(|says| says.keys_millis = 9 * DAY_MILLIS);
    for (millis, fetches) in [(0, 1), (DAY_MILLIS - 1_000, 1), (1_000, 2)] {
        server.clock.advance_millis(millis);
        bank.look_up(&payer).await.expect(200);
        assert_eq!(bank.asked(keys::PATH), fetches, "{millis}");
    }
    let domain = UmaDomain::parse(bank.domain.as_str()).expect("a domain");
    let had_keys = peers::forget_keys(&server.app, domain.clone()).await.expect("a change");
    assert_eq!(had_keys, [payer.client.platform]);
    assert!(peers::forget_keys(&server.app, domain).await.expect("nothing").is_empty());
    bank.look_up(&payer).await.expect(200);
    assert_eq!(bank.asked(keys::PATH), 3);
    server.verify();
}

#[tokio::test]
async fn a_callback_is_of_the_institutions_own_domain() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    let own = bank.domain.to_string();
    for (callback, is_own) in [
        (format!("http://{own}/pay"), true),
        ("https://bank.example/pay".to_owned(), false),
        ("http://127.0.0.1:9/pay".to_owned(), false),
        (format!("http://localhost:{}/pay", own.split(':').nth(1).expect("a port")), false),
        (format!("https://{own}@bank.example/pay"), false),
    ] {
        let said = callback.clone();
        bank.set(|says| {
            says.lookup = Box::new(move |answer| answer["callback"] = json!(said));
        });
        let looked = bank.look_up(&payer).await;
        if is_own {
            looked.expect(200);
        } else {
            assert_eq!(
                looked.refused(400, "PARSE_LNURLP_RESPONSE_ERROR")["umaAddress"],
                bank.address()
            );
        }
    }
    bank.set(|says| says.lookup = Box::new(|_| ()));
    let looked = bank.look_up(&payer).await.expect(200).clone();
    for (callback, is_own) in
        [(bank.domain.url("/after"), true), ("https://x.example/".into(), false)]
    {
        bank.set(|says| {
            says.pay = Box::new(move |answer| {
                answer["payeeData"]["compliance"]["utxoCallback"] = json!(callback);
            });
        });
        let quoted = bank.quote(&payer, &looked, None).await;
        if is_own {
            quoted.expect(201);
        } else {
            quoted.refused(400, "PARSE_PAYREQ_RESPONSE_ERROR");
        }
    }
    server.verify();
}

#[tokio::test]
async fn texts_about_a_payee_are_bounded_as_those_about_a_payer() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let bank = Bank::beside(&server);
    let looked = bank.look_up(&payer).await.expect(200).clone();
    for (value, kept) in [
        (json!("Bob\nMarley"), Some("Bob Marley")),
        (json!("x".repeat(501)), None),
        (json!("\u{0}"), None),
    ] {
        bank.set(|says| {
            says.pay = Box::new(move |answer| {
                answer["payeeData"]["name"] = value.clone();
                answer["payeeData"]["shoeSize"] = json!("y".repeat(2_000));
                answer["payeeData"]["postalAddress"] =
                    json!({ "line1": "1 High Street", "line2": "", "city": "London" });
            });
        });
        let quoted = bank.quote(&payer, &looked, None).await;
        let Some(kept) = kept else {
            quoted.refused(400, "PARSE_PAYREQ_RESPONSE_ERROR");
            continue;
        };
        let transaction = payer.client.transaction_of(quoted.expect(201)).await;
        let known = json!({ "FULL_NAME": kept, "POSTAL_ADDRESS": "1 High Street, London" });
        assert_eq!(transaction["counterpartyInformation"], known);
    }
    server.verify();
}
