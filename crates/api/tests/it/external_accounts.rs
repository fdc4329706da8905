//! External accounts (specification 2.8, 2.9, 4.7 to 4.9; contract 6.7).

use std::collections::BTreeSet;

use domain::account_info::{AccountType, Field, Presence, Shape, types};
use domain::platform::Mode;
use serde_json::{Value, json};

use crate::support::{Client, Server, fields, text};

const OF_CUSTOMERS: &str = "/customers/external-accounts";
const OF_PLATFORM: &str = "/platform/external-accounts";

/// A person who has everything that any type asks of a person.
fn maria() -> Value {
    json!({
        "beneficiaryType": "INDIVIDUAL",
        "fullName": "Maria da Silva",
        "birthDate": "1990-05-17",
        "nationality": "BR",
    })
}

fn example(field: &Field) -> Value {
    match field.shape {
        Shape::TextList => json!([field.example]),
        Shape::Text | Shape::Date | Shape::Country => json!(field.example),
    }
}

/// An account of a type with the table's examples: every field, and the first of each group.
fn account(kind: &AccountType) -> Value {
    let mut info = json!({ "accountType": kind.name });
    let mut groups = BTreeSet::new();
    for field in kind.fields {
        let is_given = match field.presence {
            Presence::OneOf(group) => groups.insert(group),
            Presence::Required | Presence::Optional => true,
        };
        if is_given {
            info[field.name] = example(field);
        }
    }
    if !kind.is_wallet() {
        info["beneficiary"] = maria();
    }
    let mut body = json!({ "currency": kind.currencies[0], "accountInfo": info });
    if kind.needs_network {
        body["cryptoNetwork"] = json!(kind.networks[0]);
    }
    body
}

/// The same by its type's name.
fn of_type(name: &str) -> Value {
    account(AccountType::from_name(name).expect("a type"))
}

/// An account with one field of its `accountInfo` changed.
fn with(name: &str, field: &str, value: impl Into<Value>) -> Value {
    let mut body = of_type(name);
    body["accountInfo"][field] = value.into();
    body
}

fn belonging_to(mut body: Value, customer: &str) -> Value {
    body["customerId"] = json!(customer);
    body
}

#[tokio::test]
async fn a_manager_adds_an_account_of_every_type_and_reads_it_back() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    for kind in types() {
        let body = belonging_to(account(kind), &customer);
        let answer = client.post(OF_CUSTOMERS, &body).await;
        let made = answer.expect(201);
        let mut shown = body.clone();
        shown["id"] = made["id"].clone();
        shown["status"] = json!("ACTIVE");
        shown["defaultUmaDepositAccount"] = json!(false);
        shown["platformAccountId"] = body["accountInfo"]["platformAccountId"].clone();
        let rails: Vec<_> = kind.rails.iter().map(|rail| rail.name()).collect();
        shown["accountInfo"]["paymentRails"] = json!(rails);
        if !kind.is_wallet() {
            let name = &body["accountInfo"]["beneficiary"]["fullName"];
            shown["beneficiaryVerificationStatus"] = json!("MATCHED");
            shown["beneficiaryVerifiedData"] = json!({ "fullName": name });
        }
        assert_eq!(*made, shown, "{}", kind.name);
        assert!(text(&made["id"]).starts_with("ExternalAccount:"));
        let listed = client.get(&format!("{OF_CUSTOMERS}?limit=1")).await;
        assert_eq!(listed.expect(200)["data"], json!([shown]), "{}", kind.name);
    }
    let all = client.get(&format!("{OF_CUSTOMERS}?customerId={customer}&limit=100")).await;
    assert_eq!(all.expect(200)["totalCount"], types().len());
    server.verify();
}

#[tokio::test]
async fn a_manager_learns_which_required_field_is_missing() {
    let server = Server::new();
    let client = server.platform().await;
    for kind in types() {
        let check = async |missing: &str, named: &str| {
            let mut body = account(kind);
            body["accountInfo"].as_object_mut().expect("an object").remove(missing);
            let answer = client.post(OF_PLATFORM, &body).await;
            let details = answer.refused(400, "INVALID_INPUT");
            assert_eq!(fields(details), [format!("accountInfo.{named}")], "{}", kind.name);
        };
        let mut first_of_group = None;
        for field in kind.fields {
            match field.presence {
                Presence::Required => check(field.name, field.name).await,
                Presence::OneOf(_) if first_of_group.is_none() => {
                    first_of_group = Some(field.name);
                    check(field.name, field.name).await;
                }
                Presence::OneOf(_) | Presence::Optional => {}
            }
        }
        check("accountType", "accountType").await;
        if !kind.is_wallet() {
            check("beneficiary", "beneficiary").await;
        }
    }
    assert_eq!(client.get(OF_PLATFORM).await.expect(200)["data"], json!([]));
}

#[tokio::test]
async fn broken_bank_data_and_broken_input_have_different_codes() {
    let server = Server::new();
    let client = server.platform().await;
    for kind in types() {
        let code = if kind.is_wallet() { "INVALID_INPUT" } else { "INVALID_BANK_ACCOUNT" };
        let check = async |field: &Field, value: Value, code: &str| {
            let mut body = account(kind);
            let info = body["accountInfo"].as_object_mut().expect("an object");
            if matches!(field.presence, Presence::OneOf(_)) {
                let others = kind.fields.iter().filter(|other| other.presence == field.presence);
                others.for_each(|other| drop(info.remove(other.name)));
            }
            let value = match (field.shape, &value) {
                (Shape::TextList, Value::String(_)) => json!([value]),
                _ => value,
            };
            info.insert(field.name.to_owned(), value.clone());
            let answer = client.post(OF_PLATFORM, &body).await;
            let mut named = fields(answer.refused(400, code));
            if matches!(field.presence, Presence::OneOf(_)) {
                // A value of the wrong type counts as none, so its group may be named too.
                named.retain(|name| *name != "accountInfo.invoice" || field.name == "invoice");
            }
            assert_eq!(named, [format!("accountInfo.{}", field.name)], "{} {value}", kind.name);
        };
        for field in kind.fields {
            let most = usize::from(field.max_length);
            check(field, json!("x".repeat(most + 1)), code).await;
            check(field, json!(""), code).await;
            if !field.pattern.is_empty() {
                check(field, json!("!".repeat(usize::from(field.min_length))), code).await;
                check(field, json!(format!("{}\u{a0}", &field.example)), code).await;
            }
            if !field.values.is_empty() {
                check(field, json!("NOPE"), code).await;
            }
            for wrong in [json!(5), json!({}), json!(true), json!([1])] {
                check(field, wrong, "INVALID_INPUT").await;
            }
        }
    }
    assert_eq!(client.get(OF_PLATFORM).await.expect(200)["data"], json!([]));
}

#[tokio::test]
async fn everything_that_is_wrong_with_an_account_is_said_at_once() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({
        "currency": "USD",
        "accountInfo": {
            "accountType": "USD_ACCOUNT",
            "routingNumber": "12345",
            "accountCategory": "GOLD",
            "bankName": 5,
            "paymentRails": ["ACH", "PIX"],
            "beneficiary": {
                "beneficiaryType": "INDIVIDUAL",
                "fullName": "",
                "birthDate": "1990-02-30",
                "email": "no-address",
                "countryOfResidence": "UK",
                "address": { "line1": "x" },
            },
        },
    });
    let answer = client.post(OF_PLATFORM, &body).await;
    let wrong = [
        "accountCategory",
        "accountNumber",
        "bankName",
        "beneficiary.address.country",
        "beneficiary.address.postalCode",
        "beneficiary.birthDate",
        "beneficiary.countryOfResidence",
        "beneficiary.email",
        "beneficiary.fullName",
        "beneficiary.nationality",
        "paymentRails",
        "routingNumber",
    ]
    .map(|field| format!("accountInfo.{field}"));
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
    let body = belonging_to(with("USD_ACCOUNT", "routingNumber", "1"), "Customer:1");
    let answer = client.post(OF_CUSTOMERS, &body).await;
    let wrong = ["accountInfo.routingNumber", "customerId"];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
    for (body, wrong) in [
        (json!({}), &["accountInfo", "currency"][..]),
        (json!({ "currency": 5, "accountInfo": [] }), &["accountInfo", "currency"]),
        (json!({ "currency": "USD", "accountInfo": {} }), &["accountInfo.accountType"]),
        (with("USD_ACCOUNT", "accountType", "GOLD_ACCOUNT"), &["accountInfo.accountType"]),
        (with("USD_ACCOUNT", "accountType", 5), &["accountInfo.accountType"]),
        (with("USD_ACCOUNT", "accountType", "usd_account"), &["accountInfo.accountType"]),
    ] {
        let answer = client.post(OF_PLATFORM, &body).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong, "{body}");
    }
}

#[tokio::test]
async fn old_clients_may_use_the_old_names_of_types() {
    let server = Server::new();
    let client = server.platform().await;
    for (old, new) in [
        ("US_ACCOUNT", "USD_ACCOUNT"),
        ("PIX", "BRL_ACCOUNT"),
        ("CLABE", "MXN_ACCOUNT"),
        ("IBAN", "EUR_ACCOUNT"),
        ("UPI", "INR_ACCOUNT"),
    ] {
        let answer = client.post(OF_PLATFORM, &with(new, "accountType", old)).await;
        assert_eq!(answer.expect(201)["accountInfo"]["accountType"], new);
        let again = client.post(OF_PLATFORM, &of_type(new)).await;
        assert_eq!(again.refused(409, "CONFLICT")["accountId"], answer.body["id"]);
    }
}

#[tokio::test]
async fn a_manager_chooses_among_the_rails_of_the_type() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let check = async |number: u8, rails: Value, expected: Option<Value>| {
        let mut body = belonging_to(with("USD_ACCOUNT", "paymentRails", rails), &customer);
        body["accountInfo"]["accountNumber"] = json!(format!("100{number}"));
        let answer = client.post(OF_CUSTOMERS, &body).await;
        match expected {
            Some(expected) => {
                assert_eq!(answer.expect(201)["accountInfo"]["paymentRails"], expected)
            }
            None => {
                let details = answer.refused(400, "INVALID_INPUT");
                assert_eq!(fields(details), ["accountInfo.paymentRails"]);
            }
        }
    };
    check(1, json!(["WIRE"]), Some(json!(["WIRE"]))).await;
    check(2, json!(["FEDNOW", "ACH", "ACH"]), Some(json!(["FEDNOW", "ACH"]))).await;
    check(3, json!(null), Some(json!(["ACH", "WIRE", "RTP", "FEDNOW"]))).await;
    for wrong in [json!([]), json!(["PIX"]), json!(["ach"]), json!("ACH"), json!([1])] {
        check(4, wrong, None).await;
    }
}

#[tokio::test]
async fn a_beneficiary_is_a_person_or_a_business_with_its_name() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let mut number = 1_000;
    let mut check = async |name: &str, beneficiary: Value, wrong: &[&str]| {
        number += 1;
        let mut body = belonging_to(with(name, "beneficiary", beneficiary.clone()), &customer);
        if name == "USD_ACCOUNT" {
            body["accountInfo"]["accountNumber"] = json!(number.to_string());
        } else {
            body["accountInfo"]["accountNumber"] = json!(format!("5577{number}"));
        }
        let answer = client.post(OF_CUSTOMERS, &body).await;
        if wrong.is_empty() {
            assert_eq!(answer.expect(201)["accountInfo"]["beneficiary"], beneficiary);
        } else {
            let wrong: Vec<_> =
                wrong.iter().map(|field| format!("accountInfo.beneficiary{field}")).collect();
            let details = answer.refused(400, "INVALID_INPUT");
            assert_eq!(fields(details), wrong, "{beneficiary}");
        }
    };
    let only_named = json!({ "beneficiaryType": "INDIVIDUAL", "fullName": "Maria da Silva" });
    let firm = json!({ "beneficiaryType": "BUSINESS", "legalName": "Silva Ltda" });
    let mut full = maria();
    for (name, value) in [
        ("email", json!("maria@mail.example")),
        ("phoneNumber", json!("+5511987654321")),
        ("registrationNumber", json!("1")),
        ("countryOfResidence", json!("BR")),
        ("address", json!({ "line1": "Rua X", "postalCode": "1", "country": "BR" })),
    ] {
        full[name] = value;
    }
    check("GBP_ACCOUNT", only_named.clone(), &[]).await;
    check("USD_ACCOUNT", only_named, &[".birthDate", ".nationality"]).await;
    for name in ["GBP_ACCOUNT", "USD_ACCOUNT"] {
        check(name, full.clone(), &[]).await;
        check(name, firm.clone(), &[]).await;
        check(name, json!({ "beneficiaryType": "BUSINESS", "fullName": "X" }), &[".legalName"])
            .await;
        check(name, json!({ "fullName": "X" }), &[".beneficiaryType"]).await;
        check(name, json!({ "beneficiaryType": "ROBOT" }), &[".beneficiaryType"]).await;
        check(name, json!("Maria"), &[""]).await;
    }
}

/// Money that is sent on another network than the wallet's is lost, so none is guessed.
#[tokio::test]
async fn the_network_of_a_wallet_is_named_and_never_guessed() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    for kind in types() {
        for (path, body) in
            [(OF_CUSTOMERS, belonging_to(account(kind), &customer)), (OF_PLATFORM, account(kind))]
        {
            let mut silent = body.clone();
            silent.as_object_mut().expect("an object").remove("cryptoNetwork");
            let answer = client.post(path, &silent).await;
            if !kind.name.ends_with("_WALLET") {
                assert_eq!(answer.expect(201).get("cryptoNetwork"), None, "{}", kind.name);
                continue;
            }
            let details = answer.refused(400, "INVALID_INPUT");
            assert_eq!(fields(details), ["cryptoNetwork"], "{}", kind.name);
            // What else is wrong is said with it.
            silent["accountInfo"]["address"] = json!("?");
            let answer = client.post(path, &silent).await;
            let named = ["accountInfo.address", "cryptoNetwork"];
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), named, "{}", kind.name);
            assert_eq!(
                client.post(path, &body).await.expect(201)["cryptoNetwork"],
                kind.networks[0]
            );
        }
    }
    // Also where the account is described inside a quote.
    let usd = client.funded(&customer, "USD", 100_000).await;
    let mut details = of_type("TRON_WALLET");
    let network = details.as_object_mut().expect("an object").remove("cryptoNetwork");
    let quote = |details: &Value| {
        json!({
            "source": { "sourceType": "ACCOUNT", "accountId": usd },
            "destination": {
                "destinationType": "EXTERNAL_ACCOUNT_DETAILS",
                "externalAccountDetails": details,
            },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": 1_000,
        })
    };
    let answer = client.post("/quotes", &quote(&details)).await;
    let named = ["destination.externalAccountDetails.cryptoNetwork"];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), named);
    details["cryptoNetwork"] = network.expect("a network");
    client.post("/quotes", &quote(&details)).await.expect(201);
    server.verify();
}

#[tokio::test]
async fn a_wallet_is_on_a_network_that_fits_its_type() {
    let server = Server::new();
    let client = server.platform().await;
    for kind in types() {
        for network in types().iter().flat_map(|other| other.networks) {
            let mut body = belonging_to(account(kind), &client.customer().await);
            body["cryptoNetwork"] = json!(network);
            let answer = client.post(OF_CUSTOMERS, &body).await;
            if kind.networks.contains(network) {
                assert_eq!(answer.expect(201)["cryptoNetwork"], *network, "{}", kind.name);
            } else {
                let details = answer.refused(400, "INVALID_INPUT");
                assert_eq!(fields(details), ["cryptoNetwork"], "{} {network}", kind.name);
            }
        }
    }
}

#[tokio::test]
async fn a_lightning_wallet_is_named_in_exactly_one_way() {
    let server = Server::new();
    let client = server.platform().await;
    let kind = AccountType::from_name("LIGHTNING").expect("a type");
    let ways: Vec<_> =
        kind.fields.iter().filter(|field| matches!(field.presence, Presence::OneOf(_))).collect();
    assert_eq!(ways.len(), 3);
    for chosen in 0..8_usize {
        let mut info = json!({ "accountType": "LIGHTNING" });
        for (index, way) in ways.iter().enumerate().filter(|(index, _)| chosen >> index & 1 == 1) {
            assert!(index < 3);
            info[way.name] = json!(way.example);
        }
        let body = json!({ "currency": "BTC", "accountInfo": info });
        let answer = client.post(OF_PLATFORM, &body).await;
        if chosen.count_ones() == 1 {
            answer.expect(201);
        } else {
            answer.refused(400, "INVALID_INPUT");
        }
    }
}

#[tokio::test]
async fn an_owner_has_each_account_once_however_it_is_spelled() {
    let server = Server::new();
    let client = server.platform().await;
    for (name, field, spellings) in [
        ("GBP_ACCOUNT", "sortCode", ["20-00-00", "200000", "20-0000"]),
        ("EUR_ACCOUNT", "bankName", ["Bank", "Other bank", "bank"]),
        (
            "EUR_ACCOUNT",
            "iban",
            [
                "FR1420041010050500013M02606",
                "FR1420041010050500013m02606",
                "FR1420041010050500013M02606",
            ],
        ),
        ("HKD_ACCOUNT", "accountNumber", ["012-345 678", "012345678", "012 345-678"]),
        (
            "ETHEREUM_WALLET",
            "address",
            [
                "0x52908400098527886E0F7030069857D2E4169EE7",
                "0x52908400098527886e0f7030069857d2e4169ee7",
                "0x52908400098527886E0F7030069857d2e4169ee7",
            ],
        ),
        (
            "INR_ACCOUNT",
            "vpa",
            ["Ramesh.Kumar@okbank", "ramesh.kumar@OKBANK", "ramesh.kumar@okbank"],
        ),
    ] {
        let customer = client.customer().await;
        let body = |spelling: &str| belonging_to(with(name, field, spelling), &customer);
        let first = client.post(OF_CUSTOMERS, &body(spellings[0])).await;
        assert_eq!(first.expect(201)["accountInfo"][field], spellings[0]);
        for spelling in spellings {
            let answer = client.post(OF_CUSTOMERS, &body(spelling)).await;
            assert_eq!(
                answer.refused(409, "CONFLICT")["accountId"],
                first.body["id"],
                "{spelling}"
            );
        }
        let other = client.customer().await;
        let body = belonging_to(with(name, field, spellings[0]), &other);
        client.post(OF_CUSTOMERS, &body).await.expect(201);
        client.post(OF_PLATFORM, &with(name, field, spellings[0])).await.expect(201);
        client.post(OF_CUSTOMERS, &with(name, field, spellings[0])).await.refused(409, "CONFLICT");
    }
    server.verify();
}

#[tokio::test]
async fn accounts_that_differ_are_different() {
    let server = Server::new();
    let client = server.platform().await;
    for (name, field, values) in [
        ("GBP_ACCOUNT", "sortCode", ["200000", "200001"]),
        ("GBP_ACCOUNT", "accountNumber", ["55779911", "55779912"]),
        ("USD_ACCOUNT", "routingNumber", ["021000021", "021000089"]),
        ("INR_ACCOUNT", "vpa", ["rameshkumar@okbank", "ramesh.kumar@okbank"]),
        ("NGN_ACCOUNT", "bankName", ["First Bank", "Second Bank"]),
        (
            "SOLANA_WALLET",
            "address",
            [
                "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV",
                "7ecDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV",
            ],
        ),
    ] {
        let customer = client.customer().await;
        for value in values {
            let body = belonging_to(with(name, field, value), &customer);
            client.post(OF_CUSTOMERS, &body).await.expect(201);
        }
    }
}

/// The accounts of a customer that hold the flag.
async fn defaults(client: &Client, customer: &str) -> Vec<String> {
    let answer = client.get(&format!("{OF_CUSTOMERS}?customerId={customer}")).await;
    let rows = answer.expect(200)["data"].as_array().expect("rows").clone();
    let defaults = rows.iter().filter(|row| row["defaultUmaDepositAccount"] == true);
    defaults.map(|row| text(&row["id"])).collect()
}

#[tokio::test]
async fn one_account_of_a_customer_at_most_takes_its_uma_payments() {
    let server = Server::new();
    let client = server.platform().await;
    let (customer, other) = (client.customer().await, client.customer().await);
    let add = async |customer: &str, number: &str, is_default: bool| {
        let mut body = belonging_to(with("USD_ACCOUNT", "accountNumber", number), customer);
        body["defaultUmaDepositAccount"] = json!(is_default);
        client.post(OF_CUSTOMERS, &body).await
    };
    let none: [String; 0] = [];
    add(&customer, "1001", false).await.expect(201);
    assert_eq!(defaults(&client, &customer).await, none);
    let one = text(&add(&customer, "1002", true).await.expect(201)["id"]);
    assert_eq!(defaults(&client, &customer).await, [one]);
    let answer = add(&customer, "1003", true).await;
    assert_eq!(answer.expect(201)["defaultUmaDepositAccount"], true);
    let two = text(&answer.body["id"]);
    assert_eq!(defaults(&client, &customer).await, [two.as_str()]);
    // What is refused moves nothing.
    add(&customer, "1001", true).await.refused(409, "CONFLICT");
    add(&customer, "no number", true).await.refused(400, "INVALID_BANK_ACCOUNT");
    add(&customer, "1004", false).await.expect(201);
    assert_eq!(defaults(&client, &customer).await, [two.as_str()]);
    assert_eq!(defaults(&client, &other).await, none);
    let theirs = text(&add(&other, "1002", true).await.expect(201)["id"]);
    assert_eq!(defaults(&client, &customer).await, [two]);
    assert_eq!(defaults(&client, &other).await, [theirs]);
    let mut body = of_type("USD_ACCOUNT");
    body["defaultUmaDepositAccount"] = json!(true);
    let answer = client.post(OF_CUSTOMERS, &body).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["defaultUmaDepositAccount"]);
    server.verify();
}

#[tokio::test]
async fn an_account_without_a_customer_is_the_platforms() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    client.usd_external(&customer, "789").await;
    let first = client.post(OF_CUSTOMERS, &of_type("USD_ACCOUNT")).await.expect(201).clone();
    let second = client.post(OF_PLATFORM, &of_type("EUR_ACCOUNT")).await.expect(201).clone();
    assert!(first.get("customerId").is_none());
    // The platform's own operation has no customer, whatever its body says.
    let theirs = belonging_to(of_type("GBP_ACCOUNT"), &customer);
    let third = client.post(OF_PLATFORM, &theirs).await.expect(201).clone();
    assert!(third.get("customerId").is_none());
    let listed = async |path: &str| client.get(path).await.expect(200).clone();
    assert_eq!(listed(OF_PLATFORM).await["data"], json!([third, second, first]));
    let euros = listed(&format!("{OF_PLATFORM}?currency=EUR")).await;
    assert_eq!(euros["data"], json!([second]));
    let none = json!({ "data": [], "hasMore": false, "totalCount": 0 });
    assert_eq!(listed(&format!("{OF_PLATFORM}?currency=ZAR")).await, none);
    assert_eq!(listed(OF_CUSTOMERS).await["totalCount"], 1);
}

#[tokio::test]
async fn a_viewer_filters_and_pages_the_accounts_of_customers() {
    let server = Server::new();
    let (client, other) = (server.platform().await, server.platform().await);
    let (one, two) = (client.customer().await, client.customer().await);
    other.usd_external(&other.customer().await, "123").await;
    let mut made = Vec::new();
    for (customer, name) in [
        (&one, "USD_ACCOUNT"),
        (&two, "USD_ACCOUNT"),
        (&one, "EUR_ACCOUNT"),
        (&two, "GBP_ACCOUNT"),
        (&one, "SPARK_WALLET"),
    ] {
        let answer = client.post(OF_CUSTOMERS, &belonging_to(of_type(name), customer)).await;
        made.insert(0, text(&answer.expect(201)["id"]));
    }
    let check = async |query: &str, expected: &[usize]| {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let answer = client.get(&format!("{OF_CUSTOMERS}?limit=2{query}{cursor}")).await;
            let body = answer.expect(200);
            assert_eq!(body["totalCount"], expected.len(), "{query}");
            seen.extend(body["data"].as_array().expect("rows").iter().map(|row| text(&row["id"])));
            let Some(next) = body["nextCursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        let expected: Vec<_> = expected.iter().map(|index| made[*index].clone()).collect();
        assert_eq!(seen, expected, "{query}");
    };
    check("", &[0, 1, 2, 3, 4]).await;
    check("&currency=USD", &[3, 4]).await;
    check(&format!("&customerId={one}"), &[0, 2, 4]).await;
    check(&format!("&customerId={one}&currency=EUR"), &[2]).await;
    check("&currency=ZAR", &[]).await;
}

#[tokio::test]
async fn fields_of_the_clients_own_are_given_back() {
    let server = Server::new();
    let client = server.platform().await;
    let mut body = of_type("USD_ACCOUNT");
    body["accountInfo"]["branch"] = json!("Mönchengladbach 🏦");
    body["accountInfo"]["tags"] = json!(["one", "two"]);
    body["accountInfo"]["platformAccountId"] = json!("inside");
    body["platformAccountId"] = json!("beside");
    body["status"] = json!("INACTIVE");
    body["id"] = json!("ExternalAccount:019542f5-b3e7-7d02-8000-000000000004");
    body["beneficiaryVerificationStatus"] = json!("NOT_MATCHED");
    let answer = client.post(OF_PLATFORM, &body).await;
    let made = answer.expect(201);
    assert_eq!(made["accountInfo"]["branch"], body["accountInfo"]["branch"]);
    assert_eq!(made["accountInfo"]["tags"], body["accountInfo"]["tags"]);
    assert_eq!(made["accountInfo"]["platformAccountId"], "inside");
    assert_eq!((&made["platformAccountId"], &made["status"]), (&json!("beside"), &json!("ACTIVE")));
    assert_ne!(made["id"], body["id"]);
    assert_eq!(made["beneficiaryVerificationStatus"], "MATCHED");
    let mut many = of_type("EUR_ACCOUNT");
    for number in 0..33 {
        many["accountInfo"][format!("field{number}")] = json!("x");
    }
    client.post(OF_PLATFORM, &many).await.refused(400, "INVALID_BANK_ACCOUNT");
    for (name, value) in [("note", json!("x".repeat(1_025))), ("note", json!({ "a": 1 }))] {
        let answer = client.post(OF_PLATFORM, &with("EUR_ACCOUNT", name, value)).await;
        assert_eq!(
            (answer.status, fields(&answer.body["details"])),
            (400, vec!["accountInfo.note".to_owned()])
        );
    }
}

#[tokio::test]
async fn an_account_holds_a_currency_of_its_type_that_the_platform_supports() {
    let server = Server::new();
    let client = server.platform().await;
    for (name, currency) in [
        ("USD_ACCOUNT", "EUR"),
        ("SOLANA_WALLET", "BTC"),
        ("USD_ACCOUNT", "XXX"),
        ("GBP_ACCOUNT", "gbp"),
    ] {
        let mut body = of_type(name);
        body["currency"] = json!(currency);
        let answer = client.post(OF_PLATFORM, &body).await;
        assert_eq!(answer.refused(400, "INVALID_CURRENCY")["currency"], currency);
    }
    for currency in ["USDC", "USDT"] {
        let mut body = of_type("SOLANA_WALLET");
        body["currency"] = json!(currency);
        client.post(OF_PLATFORM, &body).await.expect(201);
    }
    let only_eur = json!([{ "currencyCode": "EUR", "minAmount": 0, "maxAmount": 1 }]);
    client.patch("/config", &json!({ "supportedCurrencies": only_eur })).await.expect(200);
    let answer = client.post(OF_PLATFORM, &of_type("GBP_ACCOUNT")).await;
    assert_eq!(answer.refused(400, "INVALID_CURRENCY")["currency"], "GBP");
    client.post(OF_PLATFORM, &of_type("EUR_ACCOUNT")).await.expect(201);
}

#[tokio::test]
async fn only_a_live_platform_has_check_digits_verified() {
    let server = Server::new();
    let live = server.platform_with(Mode::Live, true).await;
    let sandbox = server.platform().await;
    for (name, field, value) in [
        ("USD_ACCOUNT", "routingNumber", "021000022"),
        ("USD_ACCOUNT", "routingNumber", "000000000"),
        ("EUR_ACCOUNT", "iban", "DE89370400440532013002"),
        ("MXN_ACCOUNT", "clabeNumber", "123456789012345678"),
        ("BRL_ACCOUNT", "taxId", "11111111112"),
        ("BRL_ACCOUNT", "pixKey", "11144477736"),
    ] {
        let body = with(name, field, value);
        let answer = live.post(OF_PLATFORM, &body).await;
        let named = fields(answer.refused(400, "INVALID_BANK_ACCOUNT"));
        assert_eq!(named, [format!("accountInfo.{field}")], "{name} {value}");
        let customer = sandbox.customer().await;
        sandbox.post(OF_CUSTOMERS, &belonging_to(body, &customer)).await.expect(201);
    }
    for kind in types() {
        // Good details are not enough: there is no rail that would ever check or use the account.
        let answer = live.post(OF_PLATFORM, &account(kind)).await;
        let details = answer.refused(501, "NOT_IMPLEMENTED");
        assert_eq!(details["missing"], "PAYMENT_RAIL", "{}", kind.name);
    }
    server.verify();
}

/// The fields of a bank account that fit their patterns and cannot be, also in the sandbox.
#[tokio::test]
async fn a_bank_account_is_plausible_and_not_only_well_formed() {
    let server = Server::new();
    let client = server.platform().await;
    let check = async |name: &str, changes: Value, code: &str, wrong: &str| {
        let mut body = of_type(name);
        for (field, value) in changes.as_object().expect("an object") {
            body["accountInfo"][field] = value.clone();
        }
        let answer = client.post(OF_PLATFORM, &body).await;
        if wrong.is_empty() {
            answer.expect(201);
        } else {
            let named = fields(answer.refused(400, code));
            assert_eq!(named, [format!("accountInfo.{wrong}")], "{name} {changes}");
        }
    };
    for iban in [
        "DE00370400440532013000",
        "DE01370400440532013000",
        "DE99370400440532013000",
        "DE8937040044053201300",
        "DE893704004405320130AB",
        "GB29123460161331926819",
        "US8937040044053201300",
        "HN88CABF000000000002500054",
    ] {
        check("EUR_ACCOUNT", json!({ "iban": iban }), "INVALID_BANK_ACCOUNT", "iban").await;
    }
    for iban in [
        "DE89370400440532013002",
        "DE02370400440532013003",
        "NO9386011117947",
        "PK36SCBL0000001123456702",
        "HN88CABF00000000000250005469",
    ] {
        check("EUR_ACCOUNT", json!({ "iban": iban }), "", "").await;
    }
    let saudi = "SA0380000000608010167519";
    let rails = json!({ "iban": saudi, "paymentRails": ["SEPA"] });
    check("EUR_ACCOUNT", rails, "INVALID_INPUT", "paymentRails").await;
    for (code, older, wrong) in [
        ("COBADEFF", "DEUTDEFF", "swiftBic"),
        ("COBADEFF", "COBADEFFXXX", ""),
        ("COBADEFF", "COBADEFF123", "swiftBic"),
        ("COBAQQFF", "COBADEFF", "swiftCode"),
    ] {
        let changes = json!({
            "swiftCode": code, "swiftBic": older, "iban": "FR1420041010050500013M02606",
        });
        check("EUR_ACCOUNT", changes, "INVALID_BANK_ACCOUNT", wrong).await;
    }
    for (kind, key, wrong) in [
        ("CPF", "maria@mail.example", "pixKey"),
        ("EMAIL", "11144477735", "pixKey"),
        ("PHONE", "+14155552671", "pixKey"),
        ("RANDOM", "not-random", "pixKey"),
        ("SHOE_SIZE", "11144477735", "pixKeyType"),
        ("EMAIL", "maria.002@mail.example", ""),
        ("PHONE", "+5511987654003", ""),
        ("CPF", "11144477004", ""),
    ] {
        let changes = json!({ "pixKeyType": kind, "pixKey": key });
        check("BRL_ACCOUNT", changes, "INVALID_BANK_ACCOUNT", wrong).await;
    }
    for (field, value) in [
        ("fullName", json!("\u{3164}")),
        ("fullName", json!("Ada\u{202E}ecalevoL")),
        ("birthDate", json!("2025-10-14")),
        ("birthDate", json!("1899-12-31")),
        ("email", json!("maria@mail")),
    ] {
        let mut beneficiary = maria();
        beneficiary[field] = value;
        let wrong = format!("beneficiary.{field}");
        check("GBP_ACCOUNT", json!({ "beneficiary": beneficiary }), "INVALID_INPUT", &wrong).await;
    }
    server.verify();
}
