//! Every message that we write is read as it was.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use rust_decimal::Decimal;
use uma::address::{Address, PeerDomain};
use uma::configuration::Configuration;
use uma::currency::{Currency, CurrencyCode};
use uma::data::{Demands, Facts};
use uma::kyc_status::KycStatus;
use uma::lnurlp::{Lookup, LookupRequest, LookupResponse, ReceiverCompliance};
use uma::nonce::{Nonce, Stamp};
use uma::pay_request::{Amount, PayRequest, PayerCompliance, PayerData};
use uma::pay_response::{Converted, PayResponse, PayeeCompliance};
use uma::post_transaction::{Outcome, PostTransaction, Utxo};
use uma::version::{Form, Version};

use crate::support::signing;

/// A text that is not empty: an empty one is the same as none.
const TEXT: &str = ".{1,20}";

fn domain() -> impl Strategy<Value = PeerDomain> {
    const NAMES: &[&str] =
        &["vasp1.com", "localhost:9101", "127.0.0.1:9102", "a-b.vasp.local", "x"];
    proptest::sample::select(NAMES).prop_map(|name| PeerDomain::parse(name).expect(name))
}

fn address() -> impl Strategy<Value = Address> {
    ("[a-zA-Z0-9._+-]{1,30}", domain()).prop_map(|(user, domain)| {
        Address::parse(&format!("${user}@{domain}")).expect("an address")
    })
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (any::<u64>(), 0..i64::MAX)
        .prop_map(|(number, at_seconds)| Stamp { nonce: Nonce::from_random(number), at_seconds })
}

fn kyc_status() -> impl Strategy<Value = KycStatus> {
    proptest::sample::select(&KycStatus::ALL[..])
}

fn version() -> impl Strategy<Value = Version> {
    proptest::sample::select(&Version::SUPPORTED[..])
}

fn form() -> impl Strategy<Value = Form> {
    proptest::sample::select(&[Form::V0, Form::V1][..])
}

fn code() -> impl Strategy<Value = CurrencyCode> {
    "[A-Z][A-Z0-9]{0,8}".prop_map(|text| CurrencyCode::parse(&text).expect("a code"))
}

fn multiplier() -> impl Strategy<Value = Decimal> {
    (1_i64.., 0_u32..=28).prop_map(|(digits, scale)| Decimal::new(digits, scale))
}

fn key_of_data() -> impl Strategy<Value = String> {
    ".{1,12}".prop_filter("no fact", |key| !["identifier", "compliance"].contains(&key.as_str()))
}

fn facts() -> impl Strategy<Value = Facts> {
    btree_map(key_of_data(), ".{0,20}", 0..4).prop_map(Facts)
}

fn demands() -> impl Strategy<Value = Demands> {
    btree_map(key_of_data(), any::<bool>(), 0..4).prop_map(Demands)
}

fn url() -> impl Strategy<Value = String> {
    (domain(), "[a-z0-9/]{0,20}").prop_map(|(domain, path)| domain.url(&format!("/{path}")))
}

fn currency() -> impl Strategy<Value = Currency> {
    let limits = (0..=i64::MAX, 0..=i64::MAX);
    (code(), ".{0,20}", ".{0,3}", multiplier(), 0_u8..=8, limits).prop_map(
        |(code, name, symbol, msat_per_unit, decimals, (one, other))| Currency {
            code,
            name,
            symbol,
            msat_per_unit,
            decimals,
            min_minor: one.min(other),
            max_minor: one.max(other),
        },
    )
}

fn lookup_response() -> impl Strategy<Value = LookupResponse> {
    let limits = (0..=i64::MAX, 0..=i64::MAX);
    let compliance = (address(), kyc_status(), any::<bool>(), stamp()).prop_map(
        |(receiver, status, travel, stamp)| {
            ReceiverCompliance::new(&signing(0x11), receiver, status, travel, stamp)
        },
    );
    let comment_max = option::of(1_u32..);
    (version(), url(), limits, TEXT, vec(currency(), 0..4), demands(), comment_max, compliance)
        .prop_map(
            |(version, callback, (one, other), plain, currencies, demands, comment, compliance)| {
                LookupResponse {
                    version,
                    callback,
                    min_sendable_msat: one.min(other),
                    max_sendable_msat: one.max(other),
                    metadata: serde_json::json!([["text/plain", plain]]).to_string(),
                    currencies,
                    left_out: Vec::new(),
                    payer_demands: demands,
                    comment_max: comment,
                    compliance,
                }
            },
        )
}

fn payer() -> impl Strategy<Value = PayerData> {
    let texts = (option::of(TEXT), option::of(TEXT), option::of(TEXT), option::of(url()));
    (address(), facts(), kyc_status(), stamp(), vec(".{0,9}", 0..3), texts).prop_map(
        |(identifier, facts, status, stamp, utxos, (node, sealed, format, callback))| {
            let compliance = PayerCompliance {
                utxos,
                node_pub_key: node,
                encrypted_travel_rule_info: sealed,
                travel_rule_format: format,
                utxo_callback: callback,
                ..PayerCompliance::new(&signing(0x11), &identifier, status, stamp)
            };
            PayerData { identifier, facts, compliance }
        },
    )
}

fn pay_request() -> impl Strategy<Value = PayRequest> {
    let texts = (option::of(TEXT), option::of(TEXT));
    (form(), any::<bool>(), 1_i64.., code(), payer(), demands(), texts).prop_map(
        |(form, is_msat, number, receiving, payer, demands, (comment, invoice_uuid))| {
            let amount = if is_msat && form == Form::V1 {
                Amount::Msat(number)
            } else {
                Amount::Receiving { minor: number, code: receiving.clone() }
            };
            let payee_demands = if form == Form::V0 { Demands::default() } else { demands };
            PayRequest { form, amount, receiving, payer, payee_demands, comment, invoice_uuid }
        },
    )
}

fn pay_response() -> impl Strategy<Value = PayResponse> {
    let amounts = (0..=i64::MAX, 0..=i64::MAX);
    let converted = (amounts, code(), 0_u8..=8, multiplier()).prop_map(
        |((amount, fee_msat), code, decimals, msat_per_unit)| Converted {
            amount_minor: Some(amount),
            code,
            decimals,
            msat_per_unit,
            fee_msat,
        },
    );
    let texts = (option::of(TEXT), option::of(url()), vec(".{0,9}", 0..3));
    (form(), TEXT, converted, address(), address(), facts(), stamp(), texts).prop_map(
        |(form, invoice, converted, payer, payee, facts, stamp, (node, callback, utxos))| {
            let compliance = match form {
                Form::V0 => PayeeCompliance::unsigned(),
                Form::V1 => PayeeCompliance::new(&signing(0x11), &payer, &payee, stamp),
            };
            let compliance = PayeeCompliance {
                utxos,
                node_pub_key: node,
                utxo_callback: callback,
                ..compliance
            };
            PayResponse { invoice, converted, payee: Some(payee), facts, compliance }
        },
    )
}

fn outcome() -> impl Strategy<Value = Option<Outcome>> {
    let failed = (option::of(TEXT), option::of(TEXT))
        .prop_map(|(code, reason)| Some(Outcome::Failed { code, reason }));
    prop_oneof![Just(None), Just(Some(Outcome::Completed)), failed]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn lookups(
        receiver in address(),
        version in version(),
        own in domain(),
        travel: bool,
        stamp in stamp(),
    ) {
        let key = signing(0x11);
        let request = LookupRequest::new(&key, receiver, version, own, travel, stamp);
        let url = url::Url::parse(&request.url()).expect("a URL");
        prop_assert!(url.path().starts_with("/.well-known/lnurlp/$"), "{}", url);
        let query = url.query().unwrap_or_default();
        let read = Lookup::read(url.path(), query, request.receiver.domain()).expect("sound");
        prop_assert_eq!(&read, &Lookup::Uma(request.clone()));
        prop_assert_eq!(request.verify(&key.verifying_key()), Ok(()));
    }

    #[test]
    fn lookup_responses(response in lookup_response()) {
        let json = response.to_json().expect("sound");
        prop_assert_eq!(LookupResponse::read(json.as_bytes()), Ok(response));
    }

    #[test]
    fn pay_requests(request in pay_request()) {
        let json = request.to_json().expect("sound");
        prop_assert_eq!(PayRequest::read(json.as_bytes()), Ok(request));
    }

    #[test]
    fn pay_responses(response in pay_response()) {
        let json = response.to_json().expect("sound");
        prop_assert_eq!(PayResponse::read(json.as_bytes()), Ok(response));
    }

    #[test]
    fn callbacks(
        own in domain(), utxos in vec((".{0,9}", 0..=i64::MAX), 0..4), outcome in outcome(),
        stamp in stamp(),
    ) {
        let utxo = |(utxo, amount_msat)| Utxo { utxo, amount_msat };
        let utxos = utxos.into_iter().map(utxo).collect();
        let callback = PostTransaction::new(&signing(0x11), own, utxos, outcome, stamp);
        prop_assert_eq!(PostTransaction::read(callback.to_json().as_bytes()), Ok(callback));
    }

    #[test]
    fn configurations(
        name in ".{0,20}",
        majors in vec(any::<u32>(), 0..16),
        url in option::of(url()),
    ) {
        let configuration = Configuration { name, majors, request_endpoint: url };
        let json = configuration.to_json();
        prop_assert_eq!(Configuration::read(json.as_bytes()), Ok(configuration));
    }

    #[test]
    fn addresses(address in address()) {
        prop_assert_eq!(Address::parse(address.as_written()), Ok(address.clone()));
        prop_assert!(address.is_same(&address.normalised()));
    }
}
