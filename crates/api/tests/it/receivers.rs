//! Receiver lookups (specification 4.11, 4.12; contract 6.8).

use domain::platform::Mode;
use domain::token::Permission;
use serde_json::{Value, json};

use crate::support::{Answer, Client, Server, text, usd_external};

/// Looks an address up for a customer.
async fn look_up(client: &Client, address: &str, customer: &str) -> Answer {
    let address = address.replace('$', "%24");
    client.get(&format!("/receiver/uma/{address}?customerId={customer}")).await
}

/// The address of a customer.
async fn address_of(client: &Client, customer: &str) -> String {
    text(&client.get(&format!("/customers/{customer}")).await.expect(200)["umaAddress"])
}

/// The codes of the currencies of a lookup.
fn codes(lookup: &Value) -> Vec<String> {
    let currencies = lookup["supportedCurrencies"].as_array().expect("currencies");
    currencies.iter().map(|one| text(&one["currency"]["code"])).collect()
}

#[tokio::test]
async fn a_lookup_shows_every_field() {
    let server = Server::new();
    let client = server.platform().await;
    let (payer, payee) = (client.customer().await, client.customer().await);
    let address = address_of(&client, &payee).await;
    let lookup = look_up(&client, &address, &payer).await.expect(200).clone();
    assert!(text(&lookup["lookupId"]).starts_with("Lookup:"));
    assert_eq!(lookup["receiverUmaAddress"], address);
    assert!(lookup["accountId"].is_null());
    assert_eq!(lookup["requiredPayerDataFields"], json!([]));
    let config = client.get("/config").await.expect(200).clone();
    let supported = config["supportedCurrencies"].as_array().expect("currencies");
    let supported: Vec<_> = supported.iter().map(|one| text(&one["currencyCode"])).collect();
    assert_eq!(codes(&lookup), supported);
    let euro = &lookup["supportedCurrencies"][1];
    assert_eq!(euro["currency"]["code"], "EUR");
    // What a quote from US dollars, the platform's first currency, would have.
    assert_eq!(euro["estimatedExchangeRate"], 1.160775);
    assert_eq!(lookup["supportedCurrencies"][0]["estimatedExchangeRate"].as_f64(), Some(1.0));
    // Every lookup is one of its own.
    let again = look_up(&client, &address, &payer).await.expect(200).clone();
    assert_ne!(again["lookupId"], lookup["lookupId"]);
    server.verify();
}

#[tokio::test]
async fn the_payer_is_named_by_id_or_by_address() {
    let server = Server::new();
    let client = server.platform().await;
    let (payer, payee) = (client.customer().await, client.customer().await);
    let (own, address) = (address_of(&client, &payer).await, address_of(&client, &payee).await);
    let ask = async |query: &str| client.get(&format!("/receiver/uma/{address}{query}")).await;
    for good in [
        format!("?customerId={payer}"),
        format!("?senderUmaAddress={own}"),
        format!("?senderUmaAddress={}", own.to_uppercase().replace('$', "%24")),
        format!("?customerId={payer}&senderUmaAddress={own}"),
    ] {
        ask(&good).await.expect(200);
    }
    assert_eq!(ask("").await.refused(400, "INVALID_INPUT")["field"], "customerId");
    let answer = ask(&format!("?customerId={payer}&senderUmaAddress={address}")).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "senderUmaAddress");
    ask("?customerId=x").await.refused(400, "INVALID_INPUT");
    ask("?senderUmaAddress=ada").await.refused(400, "INVALID_UMA_ADDRESS");
    ask("?senderUmaAddress=$unknown@uma.test").await.refused(404, "USER_NOT_FOUND");
    let unknown = "Customer:0199dccc-4a80-7000-8000-000000000000";
    ask(&format!("?customerId={unknown}")).await.refused(404, "USER_NOT_FOUND");
    // Another platform's customer cannot be the payer, by neither name.
    let other = server.platform().await;
    let theirs = other.customer().await;
    ask(&format!("?customerId={theirs}")).await.refused(404, "USER_NOT_FOUND");
    let theirs = address_of(&other, &theirs).await;
    ask(&format!("?senderUmaAddress={theirs}")).await.refused(404, "USER_NOT_FOUND");
    client.delete_customer(&payer).await;
    ask(&format!("?customerId={payer}")).await.refused(410, "CUSTOMER_DELETED");
    server.verify();
}

#[tokio::test]
async fn customers_of_every_platform_in_the_same_mode_are_found() {
    let server = Server::with_market();
    let client = server.platform().await;
    let payer = client.customer().await;
    let other = server.platform().await;
    let payee = other.customer().await;
    let address = address_of(&other, &payee).await;
    let lookup = look_up(&client, &address, &payer).await.expect(200).clone();
    assert_eq!(lookup["receiverUmaAddress"], address);
    assert!(!lookup.to_string().contains(&payee), "{lookup}");
    // To itself is fine; only paying itself is not.
    let own = address_of(&client, &payer).await;
    look_up(&client, &own, &payer).await.expect(200);
    // Real money and other money never meet.
    let live = server.platform_with(Mode::Live, true).await;
    let real = live.customer().await;
    let theirs = address_of(&live, &real).await;
    look_up(&client, &theirs, &payer).await.refused(404, "UMA_NOT_FOUND");
    look_up(&live, &address, &real).await.refused(404, "UMA_NOT_FOUND");
    server.verify();
}

#[tokio::test]
async fn who_cannot_be_paid_is_not_found() {
    let server = Server::new();
    let client = server.platform().await;
    let (payer, payee) = (client.customer().await, client.customer().await);
    let address = address_of(&client, &payee).await;
    for wrong in ["ada", "ada@uma.test", "$@uma.test", "$a%20b@uma.test", "%20"] {
        look_up(&client, wrong, &payer).await.refused(400, "INVALID_UMA_ADDRESS");
    }
    look_up(&client, "$unknown@uma.test", &payer).await.refused(404, "UMA_NOT_FOUND");
    client.set_kyc(&payee, "REJECTED").await;
    let answer = look_up(&client, &address, &payer).await;
    let details = answer.refused(403, "USER_NOT_READY");
    assert_eq!(*details, json!({ "umaAddress": address }), "nothing about whose it is");
    client.set_kyc(&payee, "APPROVED").await;
    // An address that was given up does not exist.
    let body = json!({ "customerType": "INDIVIDUAL", "umaAddress": "$other@uma.test" });
    client.patch(&format!("/customers/{payee}"), &body).await.expect(200);
    look_up(&client, &address, &payer).await.refused(404, "UMA_NOT_FOUND");
    look_up(&client, "$other@uma.test", &payer).await.expect(200);
    client.delete_customer(&payee).await;
    look_up(&client, "$other@uma.test", &payer).await.refused(404, "UMA_NOT_FOUND");
    server.verify();
}

#[tokio::test]
async fn what_a_platform_asks_of_payers_is_in_the_lookup() {
    let server = Server::new();
    let client = server.platform().await;
    let payer = client.customer().await;
    let other = server.platform().await;
    let payee = other.customer().await;
    let address = address_of(&other, &payee).await;
    let currency = |code: &str, types: Value, fields: Value| {
        json!({
            "currencyCode": code,
            "minAmount": 0,
            "maxAmount": 5_000,
            "enabledTransactionTypes": types,
            "requiredCounterpartyFields": fields,
        })
    };
    let field = |name: &str, mandatory: bool| json!({ "name": name, "mandatory": mandatory });
    let body = json!({ "supportedCurrencies": [
        currency("EUR", json!(["INCOMING"]), json!([field("FULL_NAME", false)])),
        currency("GBP", json!(["OUTGOING"]), json!([field("TAX_ID", true)])),
        currency("USD", json!(["INCOMING", "OUTGOING"]),
            json!([field("FULL_NAME", true), field("EMAIL", false)])),
    ] });
    other.patch("/config", &body).await.expect(200);
    let lookup = look_up(&client, &address, &payer).await.expect(200).clone();
    assert_eq!(codes(&lookup), ["EUR", "USD"]);
    let euro = &lookup["supportedCurrencies"][0];
    assert_eq!((&euro["min"], &euro["max"]), (&json!(1), &json!(5_000)));
    let asked = json!([field("FULL_NAME", true), field("EMAIL", false)]);
    assert_eq!(lookup["requiredPayerDataFields"], asked);
    server.verify();
}

#[tokio::test]
async fn another_institutions_answer_is_passed_on() {
    let server = Server::new();
    let client = server.platform().await;
    let payer = client.customer().await;
    let at = |user: &str| format!("${user}@sandbox.uma.money");
    for (user, code) in [("success.usd", "USD"), ("success.eur", "EUR"), ("success.mxn", "MXN")] {
        let lookup = look_up(&client, &at(user), &payer).await.expect(200).clone();
        assert_eq!(codes(&lookup), [code]);
        assert_eq!(lookup["receiverUmaAddress"], at(user));
    }
    let lookup = look_up(&client, &at("success.eur"), &payer).await.expect(200).clone();
    let rate = lookup["supportedCurrencies"][0]["estimatedExchangeRate"].as_f64();
    assert_eq!(rate, Some(1.160775), "the same as to a bank account");
    let lookup = look_up(&client, &at("identity.usd"), &payer).await.expect(200).clone();
    let fields = lookup["requiredPayerDataFields"].as_array().expect("fields");
    assert!(fields.contains(&json!({ "name": "FULL_NAME", "mandatory": true })), "{fields:?}");
    for (user, status, code) in [
        ("non.existent.usd", 404, "UMA_NOT_FOUND"),
        ("unknown", 404, "UMA_NOT_FOUND"),
        ("fail.blocked.usd", 403, "COUNTERPARTY_NOT_ALLOWED"),
        ("fail.notready.usd", 403, "USER_NOT_READY"),
        ("fail.lookup.usd", 424, "LNURLP_REQUEST_FAILED"),
        ("fail.keys.usd", 424, "COUNTERPARTY_PUBKEY_FETCH_ERROR"),
        ("fail.noversion.usd", 424, "NO_COMPATIBLE_UMA_VERSION"),
        ("fail.parse.usd", 400, "PARSE_LNURLP_RESPONSE_ERROR"),
        ("fail.version.usd", 412, "UNSUPPORTED_UMA_VERSION"),
    ] {
        let answer = look_up(&client, &at(user), &payer).await;
        assert_eq!(answer.refused(status, code)["umaAddress"], at(user), "{user}");
        // An institution that was unreachable may answer the next time.
        let is_final = answer.headers.get("x-should-retry").is_some_and(|value| value == "false");
        assert_eq!(is_final, status != 424, "{user}");
    }
    // No institution is there (RFC 2606), and to ask costs no more than a name.
    let nowhere = "$ada@peer.invalid";
    look_up(&client, nowhere, &payer).await.refused(424, "LNURLP_REQUEST_FAILED");
    server.verify();
}

#[tokio::test]
async fn an_external_account_is_looked_up() {
    let server = Server::new();
    let client = server.platform().await;
    let (payer, other) = (client.customer().await, client.customer().await);
    let bank = client.usd_external(&payer, "789").await;
    let ask = async |account: &str, customer: &str| {
        client.get(&format!("/receiver/external-account/{account}?customerId={customer}")).await
    };
    let lookup = ask(&bank, &payer).await.expect(200).clone();
    assert_eq!(lookup["accountId"], bank);
    assert!(lookup["receiverUmaAddress"].is_null());
    assert_eq!(codes(&lookup), ["USD"]);
    assert!(text(&lookup["lookupId"]).starts_with("Lookup:"));
    // The platform's own account can be paid by every customer, a customer's only by itself.
    let body = usd_external(None, "111");
    let own = client.post("/platform/external-accounts", &body).await.expect(201).clone();
    ask(&text(&own["id"]), &payer).await.expect(200);
    ask(&bank, &other).await.refused(400, "INVALID_INPUT");
    ask("x", &payer).await.refused(404, "ACCOUNT_NOT_FOUND");
    let no_ones = "ExternalAccount:0199dccc-4a80-7000-8000-000000000001";
    ask(no_ones, &payer).await.refused(404, "ACCOUNT_NOT_FOUND");
    let stranger = server.platform().await;
    let theirs = stranger.customer().await;
    let path = format!("/receiver/external-account/{bank}?customerId={theirs}");
    stranger.get(&path).await.refused(404, "ACCOUNT_NOT_FOUND");
    // An account that may not be used yet cannot be paid.
    let waiting = client.usd_external(&payer, "182").await;
    ask(&waiting, &payer).await.refused(400, "INVALID_BANK_ACCOUNT");
    // A currency that only comes in is none to pay in.
    client.allow_only("USD", &["INCOMING"]).await;
    assert!(codes(ask(&bank, &payer).await.expect(200)).is_empty());
    server.verify();
}

#[tokio::test]
async fn a_platform_that_sends_nothing_learns_no_rates() {
    let server = Server::new();
    let client = server.platform().await;
    let (payer, payee) = (client.customer().await, client.customer().await);
    let address = address_of(&client, &payee).await;
    client.patch("/config", &json!({ "supportedCurrencies": [] })).await.expect(200);
    let lookup = look_up(&client, &address, &payer).await.expect(200).clone();
    assert_eq!(lookup["supportedCurrencies"], json!([]));
    server.verify();
}

#[tokio::test]
async fn a_token_that_may_view_or_pay_may_look_up() {
    let server = Server::new();
    let client = server.platform().await;
    let (payer, payee) = (client.customer().await, client.customer().await);
    let address = address_of(&client, &payee).await;
    for permission in [Permission::View, Permission::Transact] {
        let client = server.token_with(client.platform, permission).await;
        look_up(&client, &address, &payer).await.expect(200);
    }
    let manager = server.token_with(client.platform, Permission::Manage).await;
    look_up(&manager, &address, &payer).await.refused(403, "FORBIDDEN");
}

/// The limits of the only currency of a lookup.
fn limits(lookup: &Value) -> (i64, i64) {
    let [only] = &lookup["supportedCurrencies"].as_array().expect("currencies")[..] else {
        panic!("{lookup}")
    };
    let whole = |value: &Value| value.as_i64().expect("a number");
    (whole(&only["min"]), whole(&only["max"]))
}

#[tokio::test]
async fn limits_are_the_tighter_of_the_receivers_and_the_platforms() {
    let server = Server::new();
    let client = server.platform().await;
    let payer = client.customer().await;
    let bank = client.usd_external(&payer, "789").await;
    let account = format!("/receiver/external-account/{bank}?customerId={payer}");
    let of_account = async || limits(client.get(&account).await.expect(200));
    client.limit_usd(100, 1_000).await;
    assert_eq!(of_account().await, (100, 1_000));
    // Nothing is less than one smallest unit.
    client.limit_usd(0, 2_000).await;
    assert_eq!(of_account().await, (1, 2_000));
    // The receiver's institution has limits of its own.
    let peer = "$success.usd@sandbox.uma.money";
    let of_peer = async || look_up(&client, peer, &payer).await.expect(200).clone();
    client.limit_usd(0, 9_000_000_000_000_000).await;
    let (min, max) = limits(&of_peer().await);
    client.limit_usd(min + 7, max - 7).await;
    assert_eq!(limits(&of_peer().await), (min + 7, max - 7));
    client.limit_usd(0, max + 1).await;
    assert_eq!(limits(&of_peer().await), (min, max));
    // So has the platform of a customer here.
    let other = server.platform().await;
    let payee = other.customer().await;
    let address = address_of(&other, &payee).await;
    let usd = async || {
        let lookup = look_up(&client, &address, &payer).await.expect(200).clone();
        let all = lookup["supportedCurrencies"].as_array().expect("currencies").clone();
        let usd = all.into_iter().find(|one| one["currency"]["code"] == "USD");
        usd.map(|one| (one["min"].clone(), one["max"].clone()))
    };
    client.limit_usd(100, 1_000).await;
    other.limit_usd(50, 500).await;
    assert_eq!(usd().await, Some((json!(100), json!(500))));
    // Where nothing is left, nothing is offered.
    other.limit_usd(1, 99).await;
    assert_eq!(usd().await, None);
    client.limit_usd(max + 1, max + 2).await;
    let answer = look_up(&client, peer, &payer).await;
    assert_eq!(answer.refused(400, "INVALID_CURRENCY")["umaAddress"], peer);
    let said = text(&answer.body["message"]);
    assert!(said.contains("USD: this platform can send none of the"), "{said}");
    server.verify();
}

#[tokio::test]
async fn limits_in_another_currency_are_what_can_be_quoted() {
    let server = Server::new();
    let client = server.platform().await;
    let payer = client.customer().await;
    let usd = client.account(Some(&payer), "USD").await;
    let currency = json!({ "currencyCode": "USD", "minAmount": 1_000, "maxAmount": 5_000 });
    client.patch("/config", &json!({ "supportedCurrencies": [currency] })).await.expect(200);
    let receiver = "$success.eur@sandbox.uma.money";
    let lookup = look_up(&client, receiver, &payer).await.expect(200).clone();
    let (min, max) = limits(&lookup);
    assert!(1 < min && min < max && max < 5_000, "{min} to {max}");
    let quote = async |amount: i64| {
        let to = json!({
            "destinationType": "UMA_ADDRESS", "umaAddress": receiver, "currency": "EUR",
        });
        let mut body = crate::pay::locked("RECEIVING", &crate::pay::from(&usd), &to, amount);
        body["lookupId"] = lookup["lookupId"].clone();
        client.post("/quotes", &body).await
    };
    for amount in [min, max] {
        let sent = quote(amount).await.expect(201)["totalSendingAmount"].as_i64();
        assert!((1_000..=5_000).contains(&sent.expect("a number")), "{amount}: {sent:?}");
    }
    for amount in [min - 1, max + 1] {
        let answer = quote(amount).await;
        let details = answer.refused(400, "AMOUNT_OUT_OF_RANGE");
        assert_eq!(details["field"], "lockedCurrencyAmount");
    }
    server.verify();
}
