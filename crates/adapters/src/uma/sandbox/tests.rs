use std::collections::BTreeSet;
use std::time::Duration;

use bitcoin::hashes::{Hash as _, sha256};
use domain::currency::Currency as Asset;
use domain::money::Money;
use domain::platform::Mode;
use lightning_invoice::{Bolt11Invoice, Bolt11InvoiceDescriptionRef};
use ports::lightning::Lightning as _;
use ports::outbound::{Method, Outbound, OutboundAnswer, OutboundFailure, OutboundRequest, Reach};
use ports::rail::Pending;
use rust_decimal::Decimal;

use ::uma::address::{Address, PeerDomain};
use ::uma::configuration::Configuration;
use ::uma::currency::{Currency, CurrencyCode};
use ::uma::data::{Demands, Facts};
use ::uma::error::{ErrorCode, PeerCode, PeerError};
use ::uma::keys::certificate::Terms;
use ::uma::keys::{KeyDocument, PeerKeys};
use ::uma::kyc_status::KycStatus;
use ::uma::lnurlp::{Lookup, LookupRequest, LookupResponse, ReceiverCompliance};
use ::uma::pay_request::{Amount, PayRequest, PayerCompliance, PayerData};
use ::uma::pay_response::PayResponse;
use ::uma::travel_rule;
use ::uma::version::{Form, Version};

use super::addresses::ADDRESSES;
use super::*;
use crate::clock::ManualClock;
use crate::entropy::SeededEntropy;
use crate::rails::tests::answer_of;
use crate::rates::feed::{ModeRates, RateTable};
use crate::uma::WithSandbox;

const NOW: Timestamp = Timestamp::from_millis(1_763_683_200_000);

/// The address that pays, and that is paid, at a domain of a platform of ours.
const OURS: &str = "$ada@uma.test";

fn institutions() -> SandboxInstitutions {
    let rates = Arc::new(ModeRates::new(Arc::new(RateTable::builtin()), Mode::Sandbox));
    let clock = Arc::new(ManualClock::new(NOW));
    SandboxInstitutions::new(rates, clock, Arc::new(SeededEntropy::new(1)))
}

fn our_key() -> SigningKey {
    SigningKey::from_bytes(&[0x11; 32]).expect("a key")
}

fn address(text: &str) -> Address {
    Address::parse(text).expect("an address")
}

fn domain_address(text: &str) -> UmaAddress {
    UmaAddress::parse(text).expect("an address")
}

fn stamp(number: u64) -> Stamp {
    Stamp::new(Nonce::from_random(number), NOW)
}

fn code(text: &str) -> CurrencyCode {
    CurrencyCode::parse(text).expect("a code")
}

fn request(method: Method, url: &str, body: Vec<u8>) -> OutboundRequest {
    let (url, within) = (url.to_owned(), Duration::from_secs(5));
    OutboundRequest { method, url, reach: Reach::Public, headers: Vec::new(), body, within }
}

fn send(method: Method, url: &str, body: Vec<u8>) -> Result<OutboundAnswer, OutboundFailure> {
    institutions().answer(&request(method, url, body)).expect("a host of the sandbox")
}

fn get(url: &str) -> Result<OutboundAnswer, OutboundFailure> {
    send(Method::Get, url, Vec::new())
}

/// The URL of a lookup by us.
fn lookup_url(payee: &str, version: Version, at: Timestamp) -> String {
    let domain = PeerDomain::parse("uma.test").expect("a domain");
    let stamp = Stamp::new(Nonce::from_random(7), at);
    LookupRequest::new(&our_key(), address(payee), version, domain, true, stamp).url()
}

fn look_up(payee: &str) -> LookupResponse {
    let answer = get(&lookup_url(payee, Version::CURRENT, NOW)).expect("an answer");
    assert_eq!(answer.status, 200, "{payee}");
    let response = LookupResponse::read(&answer.body).expect("a lookup answer");
    response.verify(&keys().verifying_key, &address(payee)).expect("signed by the institution");
    response
}

fn keys() -> PeerKeys {
    let answer = get("https://sandbox.uma.money/.well-known/lnurlpubkey").expect("an answer");
    PeerKeys::read(&answer.body, NOW).expect("keys")
}

/// The error of the protocol in an answer: its status, code and versions.
fn error(answer: Result<OutboundAnswer, OutboundFailure>) -> (u16, ErrorCode, Vec<u32>) {
    let answer = answer.expect("an answer");
    let error = PeerError::read(answer.status, &answer.body).expect("an error");
    match error.code {
        PeerCode::Known(code) => (answer.status, code, error.supported_major_versions),
        PeerCode::Unknown(_) | PeerCode::Absent => panic!("{error:?}"),
    }
}

/// A pay request of ours with all facts that an address can insist on.
fn pay_request(amount: Amount, receiving: &str) -> PayRequest {
    let facts = [("name", "Ada"), ("birthDate", "1990-05-17")];
    let payer = address(OURS);
    let compliance = PayerCompliance::new(&our_key(), &payer, KycStatus::Verified, stamp(8));
    PayRequest {
        form: Form::V1,
        amount,
        receiving: code(receiving),
        payer: PayerData {
            identifier: payer,
            facts: Facts(facts.map(|(key, fact)| (key.to_owned(), fact.to_owned())).into()),
            compliance,
        },
        payee_demands: Demands::default(),
        comment: None,
        invoice_uuid: None,
    }
}

fn receiving(minor: i64, currency: &str) -> PayRequest {
    pay_request(Amount::Receiving { minor, code: code(currency) }, currency)
}

fn ask(payee: &str, request: &PayRequest) -> Result<OutboundAnswer, OutboundFailure> {
    let callback = look_up(payee).callback;
    send(Method::Post, &callback, request.to_json().expect("a request").into_bytes())
}

fn pay(payee: &str, request: &PayRequest) -> PayResponse {
    let answer = ask(payee, request).expect("an answer");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let response = PayResponse::read(&answer.body).expect("a pay answer");
    let payer = &request.payer.identifier;
    response.verify(&keys().verifying_key, payer, &address(payee)).expect("signed");
    response
}

/// The amount of the invoice in an answer, in millisatoshi.
fn msat(response: &PayResponse) -> i64 {
    let reader = LightningNode::new([1; 32], Network::Regtest);
    let invoice = reader.read_invoice(&response.invoice).expect("an invoice");
    assert_eq!(response.compliance.node_pub_key.as_ref(), Some(&invoice.node));
    assert_eq!(invoice.expires_at, NOW.plus_millis(3_600_000));
    invoice.msat.minor()
}

#[test]
fn only_hosts_of_the_sandbox_are_answered_here() {
    let answer = |host: &str, scheme: &str| {
        let url = format!("{scheme}://{host}/.well-known/uma-configuration");
        institutions().answer(&request(Method::Get, &url, Vec::new()))
    };
    for host in ["sandbox.uma.money", "sandbox.grid.uma.money", "SANDBOX.umaaas.uma.money"] {
        assert_eq!(answer(host, "https").expect("ours").expect("an answer").status, 200, "{host}");
        assert_eq!(answer(host, "http"), None, "{host} without TLS");
    }
    for host in [
        "uma.money",
        "grid.uma.money",
        "sandbox.evil.com",
        "sandbox.notuma.money",
        "sandbox.uma.money.evil.com",
        "evil.sandbox.uma.money",
        "sandbox.uma.money:8080",
        "sandbox.uma.money@evil.com",
        "sandbox..uma.money",
    ] {
        assert_eq!(answer(host, "https"), None, "{host}");
        let address = UmaAddress::parse(&format!("$success.usd@{host}"));
        assert!(!address.is_ok_and(|address| is_known(&address)), "{host}");
    }
}

/// A way out that refuses each request with its URL.
struct Closed;

impl Outbound for Closed {
    fn checked(&self, url: &str, _: Reach) -> Result<String, OutboundFailure> {
        Ok(url.to_owned())
    }

    fn send(
        &self,
        request: OutboundRequest,
    ) -> Pending<'_, Result<OutboundAnswer, OutboundFailure>> {
        Box::pin(std::future::ready(Err(OutboundFailure::Refused(request.url))))
    }
}

#[test]
fn requests_to_others_go_on() {
    let outbound = WithSandbox::new(Arc::new(Closed), Arc::new(institutions()));
    let status = |url| {
        answer_of(outbound.send(request(Method::Get, url, Vec::new()))).map(|answer| answer.status)
    };
    assert_eq!(status("https://sandbox.uma.money/.well-known/uma-configuration"), Ok(200));
    assert_eq!(status("https://sandbox.uma.money/elsewhere"), Ok(404));
    for url in ["https://elsewhere.test/", "no URL"] {
        assert_eq!(status(url), Err(OutboundFailure::Refused(url.to_owned())));
    }
}

#[test]
fn keys_and_configuration_are_those_of_an_institution() {
    let keys = keys();
    assert_eq!(keys.expires_at, Some(NOW.plus_millis(3_600_000)));
    assert_ne!(keys.verifying_key.to_hex(), keys.encryption_key.to_hex());
    for (host, name) in [
        ("sandbox.uma.money", "Sandbox Bank"),
        ("sandbox.grid.uma.money", "Sandbox Bank"),
        ("sandbox.blocked.uma.money", "Blocked Sandbox Bank"),
    ] {
        let url = format!("https://{host}/.well-known/uma-configuration");
        let answer = get(&url).expect("an answer");
        assert_eq!(Configuration::read(&answer.body), Ok(Configuration::ours(name)));
    }
}

#[test]
fn every_row_of_the_table_has_its_outcome_over_the_wire() {
    let users: BTreeSet<_> = ADDRESSES.iter().map(|row| row.user).collect();
    assert_eq!(users.len(), ADDRESSES.len(), "a user stands once");
    for row in ADDRESSES {
        assert!(markdown().contains(&format!("| `${}` | {} |", row.user, row.currency)));
        let payee = format!("${}@sandbox.uma.money", row.user);
        let answers = [Version::CURRENT, Version::LEGACY]
            .map(|version| get(&lookup_url(&payee, version, NOW)));
        let [answer, legacy] = answers;
        match row.answer {
            Ok(fields) => {
                let response = look_up(&payee);
                let demands = response.payer_demands.0;
                assert_eq!(demands.len(), fields.len());
                let is_asked = |name: &str| demands[&::uma::data::protocol_key(name)];
                assert!(fields.iter().all(|field| is_asked(field.name) == field.mandatory));
                let legacy = LookupResponse::read(&legacy.expect("an answer").body);
                assert_eq!(legacy.expect("a lookup answer").version, Version::LEGACY);
            }
            Err(PeerFailure::Unreachable) => {
                assert_eq!(answer, Err(OutboundFailure::Unreachable));
            }
            Err(PeerFailure::Unreadable) => {
                let answer = answer.expect("an answer");
                assert_eq!(PeerError::read(answer.status, &answer.body), None);
                assert!(LookupResponse::read(&answer.body).is_err());
            }
            Err(_) => {
                let (status, code, majors): (u16, _, &[u32]) = match row.user {
                    "non.existent.usd" => (404, ErrorCode::UserNotFound, &[]),
                    "fail.blocked.usd" => (403, ErrorCode::CounterpartyNotAllowed, &[]),
                    "fail.notready.usd" => (403, ErrorCode::UserNotReady, &[]),
                    "fail.keys.usd" => (424, ErrorCode::CounterpartyPubkeyFetchError, &[]),
                    "fail.version.usd" => (412, ErrorCode::UnsupportedUmaVersion, &[1, 0]),
                    "fail.noversion.usd" => (412, ErrorCode::UnsupportedUmaVersion, &[2]),
                    user => panic!("{user} has no outcome"),
                };
                assert_eq!(error(answer), (status, code, majors.to_vec()), "{}", row.user);
                assert_eq!(error(legacy), (status, code, majors.to_vec()), "{}", row.user);
            }
        }
    }
    for (payee, status, code) in [
        ("$unknown@sandbox.uma.money", 404, ErrorCode::UserNotFound),
        ("$success.usd@sandbox.blocked.uma.money", 403, ErrorCode::CounterpartyNotAllowed),
    ] {
        let answer = get(&lookup_url(payee, Version::CURRENT, NOW));
        assert_eq!(error(answer), (status, code, Vec::new()), "{payee}");
    }
}

#[test]
fn an_address_is_paid_in_its_currency_at_the_middle_of_the_market() {
    let response = look_up("$success.usd@sandbox.grid.uma.money");
    assert_eq!(response.callback, "https://sandbox.grid.uma.money/uma/pay/success.usd");
    assert_eq!(response.compliance.kyc_status, KycStatus::Verified);
    let [offer] = response.currencies.as_slice() else { panic!("{response:?}") };
    assert_eq!((offer.code.as_str(), offer.decimals), ("USD", 2));
    // A bitcoin is 100,000 dollars, so a cent is 10,000 millisatoshi.
    assert_eq!(offer.msat_per_unit, Decimal::from(10_000));
    assert_eq!((offer.min_minor, offer.max_minor), (1, 1_000_000_000));
    assert_eq!((response.min_sendable_msat, response.max_sendable_msat), (10_000, 10_i64.pow(13)));
}

#[test]
fn lookups_that_are_not_as_the_protocol_wants_them_are_refused() {
    let payee = "$success.usd@sandbox.uma.money";
    let url = lookup_url(payee, Version::CURRENT, NOW);
    let plain = url.split('?').next().expect("a path").to_owned();
    let newer = Version { major: 2, minor: 0 };
    for (url, code) in [
        (plain, ErrorCode::NonUmaLnurlNotSupported),
        (url.replace("&nonce=7", ""), ErrorCode::MissingRequiredUmaParameters),
        (url.replace("/$", "/"), ErrorCode::ParseLnurlpRequestError),
        (
            lookup_url(payee, Version::CURRENT, NOW.plus_millis(-3_600_000)),
            ErrorCode::InvalidTimestamp,
        ),
        (lookup_url(payee, newer, NOW), ErrorCode::UnsupportedUmaVersion),
    ] {
        assert_eq!(error(get(&url)).1, code, "{url}");
    }
    assert_eq!(error(get("https://sandbox.uma.money/")).1, ErrorCode::RequestNotFound);
    let posted = send(Method::Post, &url, Vec::new());
    assert_eq!(error(posted).1, ErrorCode::RequestNotFound);
}

#[test]
fn an_invoice_asks_for_what_arrives_and_the_fee() {
    let payee = "$fee.eur@sandbox.uma.money";
    let response = pay(payee, &receiving(1_000, "EUR"));
    let converted = &response.converted;
    let exactly = |minor| Decimal::from(minor).checked_mul(converted.msat_per_unit).expect("small");
    assert_eq!(converted.amount_minor, Some(1_000));
    assert_eq!(Decimal::from(converted.fee_msat), exactly(25).ceil());
    let total = exactly(1_000).checked_add(Decimal::from(converted.fee_msat)).expect("small");
    assert_eq!(Decimal::from(msat(&response)), total.ceil());
    let invoice: Bolt11Invoice = response.invoice.parse().expect("an invoice");
    let metadata = look_up(payee).metadata;
    let hash = lightning_invoice::Sha256(sha256::Hash::hash(metadata.as_bytes()));
    assert_eq!(invoice.description(), Bolt11InvoiceDescriptionRef::Hash(&hash));
}

#[test]
fn the_same_request_has_the_same_invoice_and_another_one_its_own() {
    let payee = "$success.usd@sandbox.uma.money";
    let invoice = |request: &PayRequest| pay(payee, request).invoice;
    let first = receiving(1_000, "USD");
    assert_eq!(invoice(&first), invoice(&first));
    let mut second = first.clone();
    second.payer.compliance =
        PayerCompliance::new(&our_key(), &address(OURS), KycStatus::Verified, stamp(9));
    let hash = |text: String| {
        LightningNode::new([1; 32], Network::Regtest).read_invoice(&text).expect("one").payment_hash
    };
    assert_ne!(hash(invoice(&first)), hash(invoice(&second)), "another payment of as much");
}

#[test]
fn of_an_amount_that_is_sent_what_the_fee_leaves_arrives() {
    let response = pay("$success.usd@sandbox.uma.money", &pay_request(Amount::Msat(59_999), "USD"));
    assert_eq!((response.converted.amount_minor, msat(&response)), (Some(5), 59_999));
    let payee = "$fee.eur@sandbox.uma.money";
    let response = pay(payee, &pay_request(Amount::Msat(10_000_000), "EUR"));
    let rest = 10_000_000 - response.converted.fee_msat;
    let units = Decimal::from(rest).checked_div(response.converted.msat_per_unit).expect("small");
    assert_eq!(response.converted.amount_minor, i64::try_from(units.floor()).ok());
    assert_eq!(msat(&response), 10_000_000);
    let fee_only = pay_request(Amount::Msat(response.converted.fee_msat), "EUR");
    assert_eq!(error(ask(payee, &fee_only)).1, ErrorCode::AmountOutOfRange);
}

#[test]
fn a_pay_request_of_version_0_has_an_answer_without_a_signature() {
    let request = PayRequest { form: Form::V0, ..receiving(500, "USD") };
    let response = pay("$success.usd@sandbox.uma.money", &request);
    assert_eq!((response.form(), msat(&response)), (Form::V0, 5_000_000));
}

#[test]
fn amounts_and_currencies_that_an_address_does_not_take_are_refused() {
    let payee = "$success.usd@sandbox.uma.money";
    for (request, code) in [
        (receiving(1_000_000_001, "USD"), ErrorCode::AmountOutOfRange),
        (receiving(i64::MAX, "USD"), ErrorCode::AmountOutOfRange),
        (pay_request(Amount::Msat(9_999), "USD"), ErrorCode::AmountOutOfRange),
        (pay_request(Amount::Msat(i64::MAX), "USD"), ErrorCode::AmountOutOfRange),
        (receiving(1_000, "EUR"), ErrorCode::InvalidCurrency),
    ] {
        assert_eq!(error(ask(payee, &request)).1, code, "{:?}", request.amount);
    }
    assert_eq!(msat(&pay(payee, &receiving(1_000_000_000, "USD"))), 10_i64.pow(13));
}

#[test]
fn a_payer_states_what_an_address_insists_on() {
    let payee = "$identity.usd@sandbox.uma.money";
    let mut request = receiving(1_000, "USD");
    pay(payee, &request);
    request.payer.facts.0.remove("birthDate");
    assert_eq!(error(ask(payee, &request)).1, ErrorCode::MissingMandatoryPayerData);
    pay("$success.usd@sandbox.uma.money", &request);
}

#[test]
fn a_payee_is_known_as_far_as_it_is_asked_for() {
    let payee = "$success.usd@sandbox.uma.money";
    let asking = |demands: &[(&str, bool)]| {
        let demands = demands.iter().map(|(key, mandatory)| ((*key).to_owned(), *mandatory));
        PayRequest { payee_demands: Demands(demands.collect()), ..receiving(1_000, "USD") }
    };
    let asked = [("name", true), ("nationality", false), ("email", true), ("compliance", true)];
    let facts = pay(payee, &asking(&asked)).facts.0;
    let facts: Vec<_> = facts.iter().map(|(key, fact)| (key.as_str(), fact.as_str())).collect();
    assert_eq!(facts, [("name", "Sandbox Receiver"), ("nationality", "US")]);
    pay(payee, &asking(&[("shoeSize", false)]));
    let answer = ask(payee, &asking(&[("shoeSize", true)]));
    assert_eq!(error(answer).1, ErrorCode::UnrecognizedMandatoryPayeeDataKey);
}

#[test]
fn pay_requests_that_cannot_be_read_or_are_old_are_refused() {
    let payee = "$success.usd@sandbox.uma.money";
    let callback = look_up(payee).callback;
    let answer = send(Method::Post, &callback, b"{}".to_vec());
    assert_eq!(error(answer).1, ErrorCode::ParsePayreqRequestError);
    let mut old = receiving(1_000, "USD");
    old.payer.compliance.signed.stamp.at_seconds -= 3_600;
    assert_eq!(error(ask(payee, &old)).1, ErrorCode::InvalidTimestamp);
    let answer = send(Method::Post, &format!("{callback}x"), b"{}".to_vec());
    assert_eq!(error(answer).1, ErrorCode::UserNotFound);
    let request = receiving(1_000, "USD");
    let silent = ask("$fail.payreq.usd@sandbox.uma.money", &request);
    assert_eq!(silent, Err(OutboundFailure::Unreachable));
    let nonsense = ask("$fail.payreq.parse.usd@sandbox.uma.money", &request).expect("an answer");
    assert_eq!(nonsense.status, 200);
    assert!(PayResponse::read(&nonsense.body).is_err());
}

/// The answer of a platform of ours to a lookup of the sandbox, and its keys.
fn our_answer(demands: &[&str]) -> (String, String) {
    let payee = address(OURS);
    let answer = LookupResponse {
        version: Version::CURRENT,
        callback: "https://uma.test/pay".to_owned(),
        min_sendable_msat: 1,
        max_sendable_msat: 1_000_000_000,
        metadata: r#"[["text/plain","Pay"]]"#.to_owned(),
        currencies: vec![Currency {
            code: code("USD"),
            name: "US Dollar".to_owned(),
            symbol: "$".to_owned(),
            msat_per_unit: Decimal::from(10_000),
            decimals: 2,
            min_minor: 1,
            max_minor: 1_000_000,
        }],
        left_out: Vec::new(),
        payer_demands: Demands(demands.iter().map(|key| ((*key).to_owned(), true)).collect()),
        comment_max: None,
        compliance: ReceiverCompliance::new(
            &our_key(),
            payee,
            KycStatus::Verified,
            true,
            stamp(10),
        ),
    };
    let terms = Terms {
        name: PeerDomain::parse("uma.test").expect("a domain"),
        serial: 1,
        not_before: NOW,
        not_after: NOW.plus_millis(3_600_000),
    };
    let keys = KeyDocument::new(&our_key(), &our_decryption_key(), &terms, NOW);
    (answer.to_json().expect("an answer"), keys.expect("keys").to_json())
}

fn our_decryption_key() -> DecryptionKey {
    DecryptionKey::from_bytes(&[0x22; 32]).expect("a key")
}

fn order_pay(
    (answer, keys): &(String, String),
    payee: &str,
    currency: &str,
) -> Result<PayRequest, PeerFailure> {
    let currency = Asset::from_code(currency).expect("a currency");
    let order = PayOrder {
        payer: &domain_address("$success.usd@sandbox.uma.money"),
        payee: &domain_address(payee),
        answer: answer.as_bytes(),
        keys: keys.as_bytes(),
        amount: Money::positive(5_000, currency).expect("an amount"),
    };
    let body = institutions().pay(&order, NOW)?;
    Ok(PayRequest::read(&body).expect("a pay request"))
}

#[test]
fn a_payer_looks_an_address_of_ours_up() {
    let payer = domain_address("$success.usd@sandbox.grid.uma.money");
    let url = institutions().look_up(&payer, &domain_address(OURS), NOW).expect("a lookup");
    let url = url::Url::parse(&url).expect("a URL");
    assert_eq!((url.scheme(), url.host_str()), ("https", Some("uma.test")));
    let domain = PeerDomain::parse("uma.test").expect("a domain");
    let lookup = Lookup::read(url.path(), url.query().unwrap_or_default(), &domain);
    let Ok(Lookup::Uma(lookup)) = lookup else { panic!("{lookup:?}") };
    lookup.verify(&keys().verifying_key).expect("signed by the institution");
    assert_eq!(lookup.signed.stamp.check_time(NOW), Ok(()));
    assert_eq!(lookup.vasp_domain.as_str(), "sandbox.grid.uma.money");
    assert!(lookup.is_subject_to_travel_rule);
}

#[test]
fn payers_that_a_lookup_would_not_find_do_not_pay() {
    let payee = domain_address(OURS);
    let look_up =
        |payer: &str| institutions().look_up(&domain_address(payer), &payee, NOW).map(|_| ());
    for row in ADDRESSES {
        let answer = look_up(&format!("${}@sandbox.uma.money", row.user));
        assert_eq!(answer, row.answer.map(|_| ()), "{}", row.user);
    }
    for (payer, failure) in [
        ("$success.usd@sandbox.blocked.uma.money", PeerFailure::NotAllowed),
        ("$unknown@sandbox.uma.money", PeerFailure::UnknownAddress),
        ("$success.usd@elsewhere.test", PeerFailure::UnknownAddress),
    ] {
        assert_eq!(look_up(payer), Err(failure), "{payer}");
    }
}

#[test]
fn a_pay_request_states_the_payer_and_what_was_asked() {
    let request = order_pay(&our_answer(&["email", "shoeSize"]), OURS, "USD").expect("a request");
    request.verify(&keys().verifying_key).expect("signed by the institution");
    assert_eq!(request.amount, Amount::Receiving { minor: 5_000, code: code("USD") });
    assert_eq!(request.form, Form::V1);
    assert_eq!(request.payer.identifier.as_written(), "$success.usd@sandbox.uma.money");
    let facts: Vec<_> = request.payer.facts.0.keys().map(String::as_str).collect();
    let always = ["birthDate", "countryOfResidence", "email", "name", "nationality", "userType"];
    assert_eq!(facts, always);
    let sealed = request.payer.compliance.encrypted_travel_rule_info.expect("travel-rule data");
    let opened = travel_rule::open(&sealed, &our_decryption_key()).expect("encrypted to us");
    let opened = String::from_utf8(opened.to_vec()).expect("text");
    assert!(opened.contains("Sandbox Sender") && opened.contains("$success.usd"), "{opened}");
    let plain = order_pay(&our_answer(&[]), OURS, "USD").expect("a request");
    assert!(!plain.payer.facts.0.contains_key("email"));
}

#[test]
fn an_answer_that_cannot_be_believed_is_not_paid() {
    let (answer, keys) = our_answer(&[]);
    let pay = |answer: &str, keys: &str, payee: &str, currency: &str| {
        order_pay(&(answer.to_owned(), keys.to_owned()), payee, currency).map(|_| ())
    };
    assert_eq!(pay(&answer, &keys, OURS, "USD"), Ok(()));
    assert_eq!(pay(&answer, &keys, OURS, "EUR"), Err(PeerFailure::Unreadable));
    assert_eq!(pay("{}", &keys, OURS, "USD"), Err(PeerFailure::Unreadable));
    assert_eq!(pay(&answer, "{}", OURS, "USD"), Err(PeerFailure::KeysUnavailable));
    assert_eq!(pay(&answer, &keys, "$eve@uma.test", "USD"), Err(PeerFailure::Unreachable));
    let forged = answer.replace("\"signatureNonce\":\"10\"", "\"signatureNonce\":\"11\"");
    assert_ne!(forged, answer);
    assert_eq!(pay(&forged, &keys, OURS, "USD"), Err(PeerFailure::Unreachable));
}

#[test]
fn the_list_shows_whom_we_deal_with() {
    let shown = institutions().providers();
    let shown: Vec<_> = shown.iter().map(|one| (one.domain, one.is_allowed)).collect();
    assert_eq!(shown, [("sandbox.uma.money", true), ("sandbox.blocked.uma.money", false)]);
    assert!(institutions().owns("sandbox.any.uma.money") && !institutions().owns("uma.test"));
}
