//! The platform's configuration (specification 2.11, 4.2; contract 6.1).

use domain::platform::{Mode, Platform};
use domain::uma_address::UmaDomain;
use serde_json::{Value, json};
use service::{owners, platforms};

use crate::support::{Client, START, Server, fields, text, with_rail};

/// A currency with its limits and nothing else.
fn currency(code: &str, min: i64, max: i64) -> Value {
    json!({ "currencyCode": code, "minAmount": min, "maxAmount": max })
}

/// Sets the platform's currencies.
async fn support(client: &Client, currencies: &[Value]) {
    client.patch("/config", &json!({ "supportedCurrencies": currencies })).await.expect(200);
}

#[tokio::test]
async fn a_viewer_reads_the_configuration_of_a_new_platform() {
    let server = Server::new();
    let client = server.platform().await;
    let answer = client.get("/config").await;
    let config = answer.expect(200);
    let supported: Vec<_> = with_rail()
        .map(|currency| {
            json!({
                "currencyCode": currency.code(),
                "minAmount": 1,
                "maxAmount": 9_000_000_000_000_000_i64,
                "requiredCounterpartyFields": [],
                "enabledTransactionTypes": ["OUTGOING", "INCOMING"],
                "providerRequiredCustomerFields": [],
                "providerRequiredCounterpartyCustomerFields": [],
            })
        })
        .collect();
    let expected = json!({
        "id": client.platform.to_string(),
        "umaDomain": "uma.test",
        "proxyUmaSubdomain": format!("p-{}", client.platform.uuid().simple()),
        "supportedCurrencies": supported,
        "isRegulatedFinancialInstitution": true,
        "createdAt": START,
        "updatedAt": START,
    });
    assert_eq!(*config, expected);
}

#[tokio::test]
async fn a_manager_changes_every_field_and_what_is_left_out_stays() {
    let server = Server::new();
    let client = server.platform().await;
    server.clock.advance_millis(5);
    let usd = json!({
        "currencyCode": "USD",
        "minAmount": 0,
        "maxAmount": 5_000,
        "requiredCounterpartyFields": [
            { "name": "FULL_NAME", "mandatory": true },
            { "name": "BIRTH_DATE", "mandatory": false },
        ],
        "enabledTransactionTypes": ["OUTGOING"],
        "providerRequiredCustomerFields": ["FULL_NAME", "BIRTH_DATE"],
        "providerRequiredCounterpartyCustomerFields": [],
    });
    let mut expected = client.get("/config").await.expect(200).clone();
    expected["updatedAt"] = json!("2025-10-13T09:00:00.005Z");
    for (change, field, value) in [
        (json!({ "umaDomain": "Pay.Example.COM" }), "umaDomain", json!("pay.example.com")),
        (
            json!({ "webhookEndpoint": "https://example.com/hooks?x=1" }),
            "webhookEndpoint",
            json!("https://example.com/hooks?x=1"),
        ),
        (json!({ "supportedCurrencies": [usd] }), "supportedCurrencies", json!([usd])),
        (json!({}), "umaDomain", json!("pay.example.com")),
    ] {
        expected[field] = value;
        assert_eq!(*client.patch("/config", &change).await.expect(200), expected, "{change}");
        assert_eq!(*client.get("/config").await.expect(200), expected, "{change}");
    }
    server.verify();
}

#[tokio::test]
async fn a_manager_removes_the_webhook_endpoint_and_nothing_else() {
    let server = Server::new();
    let client = server.platform().await;
    let endpoint = json!({ "webhookEndpoint": "https://example.com/hooks" });
    let mut expected = client.patch("/config", &endpoint).await.expect(200).clone();
    for wrong in ["umaDomain", "supportedCurrencies"] {
        let change = json!({ wrong: null, "webhookEndpoint": null });
        let answer = client.patch("/config", &change).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [wrong]);
        assert_eq!(*client.get("/config").await.expect(200), expected);
    }
    expected.as_object_mut().expect("an object").remove("webhookEndpoint");
    for _ in 0..2 {
        let cleared = client.patch("/config", &json!({ "webhookEndpoint": null })).await;
        assert_eq!(*cleared.expect(200), expected);
        assert_eq!(*client.get("/config").await.expect(200), expected);
    }
    client.post("/webhooks/test", &json!({})).await.refused(400, "WEBHOOK_ENDPOINT_NOT_SET");
    server.verify();
}

#[tokio::test]
async fn a_manager_cannot_change_what_only_the_server_decides() {
    let server = Server::new();
    let client = server.platform().await;
    let before = client.get("/config").await.expect(200).clone();
    let mut currencies = before["supportedCurrencies"].clone();
    currencies[0]["providerRequiredCounterpartyCustomerFields"] = json!(["EMAIL"]);
    let body = json!({
        "id": "PlatformConfig:019542f5-b3e7-7d02-8000-000000000000",
        "isRegulatedFinancialInstitution": false,
        "proxyUmaSubdomain": "mine",
        "createdAt": "2000-01-01T00:00:00Z",
        "mode": "LIVE",
        "supportedCurrencies": currencies,
    });
    assert_eq!(*client.patch("/config", &body).await.expect(200), before);
}

#[tokio::test]
async fn a_manager_may_leave_out_what_a_currency_has_by_default() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "supportedCurrencies": [currency("EUR", 1, 2)] });
    let config = client.patch("/config", &body).await;
    let expected = json!([{
        "currencyCode": "EUR",
        "minAmount": 1,
        "maxAmount": 2,
        "requiredCounterpartyFields": [],
        "enabledTransactionTypes": ["OUTGOING", "INCOMING"],
        "providerRequiredCustomerFields": [],
        "providerRequiredCounterpartyCustomerFields": [],
    }]);
    assert_eq!(config.expect(200)["supportedCurrencies"], expected);
    let answer = client.patch("/config", &json!({ "supportedCurrencies": [{}] })).await;
    let missing = ["currencyCode", "maxAmount", "minAmount"]
        .map(|field| format!("supportedCurrencies.0.{field}"));
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), missing);
}

#[tokio::test]
async fn a_manager_learns_every_bad_value_at_once() {
    let server = Server::new();
    let client = server.platform().await;
    let before = client.get("/config").await.expect(200).clone();
    let mut usd = currency("USD", -1, 9);
    usd["requiredCounterpartyFields"] = json!([{ "name": "SHOE_SIZE", "mandatory": true }]);
    let body = json!({
        "umaDomain": "not a domain",
        "webhookEndpoint": "ftp://example.com",
        "supportedCurrencies": [usd],
    });
    let answer = client.patch("/config", &body).await;
    let wrong = [
        "supportedCurrencies.0.minAmount",
        "supportedCurrencies.0.requiredCounterpartyFields.0.name",
        "umaDomain",
        "webhookEndpoint",
    ];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
    // A platform that gives out addresses of the sandbox's institutions takes them from all others.
    for domain in ["sandbox.uma.money", "Sandbox.Grid.uma.money"] {
        let answer = client.patch("/config", &json!({ "umaDomain": domain })).await;
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "umaDomain", "{domain}");
    }
    for domain in
        ["0", "10", "127.0.0.1", "pay.7", "a..b", "-a.example", "a_b.example", "x:0", "x:65536"]
    {
        let answer = client.patch("/config", &json!({ "umaDomain": domain })).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["umaDomain"], "{domain}");
    }
    let twice = [currency("USD", 10, 9), currency("EUR", 0, 1), currency("USD", 0, 1)];
    let answer = client.patch("/config", &json!({ "supportedCurrencies": twice })).await;
    let wrong = ["supportedCurrencies.0.minAmount", "supportedCurrencies.2.currencyCode"];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
    assert_eq!(*client.get("/config").await.expect(200), before);
}

#[tokio::test]
async fn what_a_manager_says_twice_counts_once_or_is_refused() {
    let server = Server::new();
    let client = server.platform().await;
    let mut usd = currency("USD", 0, 9);
    usd["enabledTransactionTypes"] = json!(["INCOMING", "INCOMING"]);
    let config = client.patch("/config", &json!({ "supportedCurrencies": [usd] })).await;
    let supported = &config.expect(200)["supportedCurrencies"][0];
    assert_eq!(supported["enabledTransactionTypes"], json!(["INCOMING"]));
    let asked = |mandatory: bool| json!({ "name": "EMAIL", "mandatory": mandatory });
    usd["requiredCounterpartyFields"] = json!([asked(true), asked(false)]);
    let answer = client.patch("/config", &json!({ "supportedCurrencies": [usd] })).await;
    let wrong = ["supportedCurrencies.0.requiredCounterpartyFields.1.name"];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
    let mut usd = currency("USD", 0, 9);
    usd["providerRequiredCustomerFields"] = json!(["EMAIL", "SHOE_SIZE", "EMAIL"]);
    let answer = client.patch("/config", &json!({ "supportedCurrencies": [usd] })).await;
    let wrong =
        [1, 2].map(|at| format!("supportedCurrencies.0.providerRequiredCustomerFields.{at}"));
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
}

#[tokio::test]
async fn a_manager_learns_which_values_have_the_wrong_shape() {
    let server = Server::new();
    let client = server.platform().await;
    let check = async |body: Value, wrong: &[&str]| {
        let answer = client.patch("/config", &body).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong, "{body}");
    };
    let with = |field: &str, value: Value| {
        let mut usd = currency("USD", 0, 1);
        usd[field] = value;
        json!({ "supportedCurrencies": [usd] })
    };
    check(json!({ "umaDomain": 5, "webhookEndpoint": [] }), &["umaDomain", "webhookEndpoint"])
        .await;
    check(json!({ "supportedCurrencies": {} }), &["supportedCurrencies"]).await;
    check(with("minAmount", json!(-1)), &["supportedCurrencies.0.minAmount"]).await;
    check(
        with("maxAmount", json!(9_000_000_000_000_001_i64)),
        &["supportedCurrencies.0.maxAmount"],
    )
    .await;
    check(with("maxAmount", json!("5")), &["supportedCurrencies.0.maxAmount"]).await;
    check(
        with("enabledTransactionTypes", json!(["SIDEWAYS"])),
        &["supportedCurrencies.0.enabledTransactionTypes.0"],
    )
    .await;
    check(
        with("requiredCounterpartyFields", json!([{ "name": "EMAIL" }])),
        &["supportedCurrencies.0.requiredCounterpartyFields.0.mandatory"],
    )
    .await;
}

#[tokio::test]
async fn events_go_only_to_absolute_addresses_of_the_web() {
    let server = Server::new();
    let client = server.platform().await;
    let check = async |endpoint: &str, status: u16| {
        let answer = client.patch("/config", &json!({ "webhookEndpoint": endpoint })).await;
        if status == 200 {
            assert_eq!(answer.expect(200)["webhookEndpoint"], endpoint);
        } else {
            let details = answer.refused(status, "INVALID_INPUT");
            assert_eq!(fields(details), ["webhookEndpoint"], "{endpoint}");
        }
    };
    check("http://localhost:9/hook", 200).await;
    check("https://example.com", 200).await;
    check("https://example.com:65535/", 200).await;
    check("http://[::1]:8080/hook", 200).await;
    for wrong in [
        "",
        "/hook",
        "example.com/hook",
        "//example.com",
        "https://",
        "http:///x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://user:secret@example.com/",
        "https://exa mple.com/",
        "https://example.com:65536/",
        "https://example.com:99999",
        "https://example.com:0/hook",
        "https://[::1]:70000/",
    ] {
        check(wrong, 400).await;
    }
    check(&format!("https://example.com/{}", "x".repeat(2_048)), 400).await;
}

/// An endpoint that no event could ever reach is refused when it is set, and not with each event.
#[tokio::test]
async fn an_endpoint_that_can_never_be_reached_is_refused_at_once() {
    let server = Server::new();
    for mode in [Mode::Live, Mode::Sandbox] {
        let client = server.platform_with(mode, true).await;
        let set = async |endpoint: &str| {
            client.patch("/config", &json!({ "webhookEndpoint": endpoint })).await
        };
        for wrong in [
            "https://xn--/",
            "https://xn--a/hook",
            "https://[fe80::1%25eth0]/",
            "https://[fe80::1%eth0]/",
            "https://224.0.0.1/",
            "https://169.254.169.254/latest",
            "http://93.184.215.14/hook",
        ] {
            let details = set(wrong).await.refused(400, "INVALID_INPUT").clone();
            assert_eq!(fields(&details), ["webhookEndpoint"], "{wrong}");
        }
        for private in [
            "http://example.com/hook",
            "http://localhost:9/hook",
            "https://example.com:9000/",
            "https://127.0.0.1/",
            "https://10.0.0.7:8443/hook",
            "https://[::1]/",
            "https://[fd00::1]/",
            "https://2130706433/",
        ] {
            let answer = set(private).await;
            if mode == Mode::Live {
                let details = answer.refused(400, "INVALID_INPUT");
                assert_eq!(fields(details), ["webhookEndpoint"], "{private}");
            } else {
                assert_eq!(answer.expect(200)["webhookEndpoint"], private);
            }
        }
        for (given, kept) in [
            ("https://hooks.example.com/a?b=c", "https://hooks.example.com/a?b=c"),
            ("https://hooks.example.com:8443", "https://hooks.example.com:8443"),
            ("https://b\u{fc}cher.example/hook", "https://xn--bcher-kva.example/hook"),
            ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ] {
            assert_eq!(set(given).await.expect(200)["webhookEndpoint"], kept);
            assert_eq!(client.get("/config").await.expect(200)["webhookEndpoint"], kept);
        }
    }
}

#[tokio::test]
async fn a_currency_that_no_one_knows_is_refused() {
    let server = Server::new();
    let client = server.platform().await;
    let before = client.get("/config").await.expect(200).clone();
    for unknown in ["XXX", "XAU", "usd", "", "US", "🪙"] {
        let body = json!({ "supportedCurrencies": [currency(unknown, 0, 1)] });
        let details = client.patch("/config", &body).await;
        assert_eq!(details.refused(400, "INVALID_CURRENCY")["currency"], unknown);
    }
    assert_eq!(*client.get("/config").await.expect(200), before);
}

#[tokio::test]
async fn no_platform_takes_the_domain_of_another() {
    let server = Server::new();
    let one = server.platform_with(Mode::Live, true).await;
    let other = server.platform_with(Mode::Live, true).await;
    let sandbox = server.platform().await;
    let take = async |client: &Client, domain: &str| {
        client.patch("/config", &json!({ "umaDomain": domain })).await
    };
    take(&one, "bank.example").await.expect(200);
    take(&sandbox, "sandbox.example").await.expect(200);
    take(&other, "other.example").await.expect(200);
    // Neither the one it has, in whatever mode, nor the one it had, nor written otherwise.
    for (client, domain) in [
        (&other, "bank.example"),
        (&other, "BANK.example"),
        (&other, "uma.test"),
        (&other, "sandbox.example"),
        (&sandbox, "bank.example"),
        (&sandbox, "uma.test"),
    ] {
        let refused = take(client, domain).await;
        let details = refused.refused(400, "INVALID_INPUT");
        assert_eq!(fields(details), ["umaDomain"], "{domain}");
        assert!(!details.to_string().contains(&one.platform.to_string()), "{details}");
    }
    take(&one, "uma.test").await.expect(200);
    // The operator may give a former domain to another platform, and no present one.
    let domain = |text: &str| UmaDomain::parse(text).expect("a domain");
    let set = async |domain| platforms::set_domain(&server.app, other.platform, domain).await;
    set(domain("bank.example")).await.expect("free");
    assert!(set(domain("uma.test")).await.is_err());
    take(&one, "bank.example").await.refused(400, "INVALID_INPUT");
    assert_eq!(other.get("/config").await.expect(200)["umaDomain"], "bank.example");
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_platforms_that_want_one_domain_one_gets_it() {
    const RACES: usize = 40;
    let server = Server::new();
    let one = server.platform_with(Mode::Live, true).await;
    let other = server.platform_with(Mode::Live, true).await;
    for race in 0..RACES {
        let body = json!({ "umaDomain": format!("race-{race}.example") });
        let (first, second) =
            tokio::join!(one.patch("/config", &body), other.patch("/config", &body));
        let mut statuses = [first.status, second.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400], "race {race}");
    }
    server.verify();
}

/// A database of an earlier release has no claims, and may have one domain twice.
#[tokio::test]
async fn domains_of_an_earlier_release_are_claimed_live_ones_first() {
    let server = Server::new();
    let sandbox = server.platform().await;
    let live = server.platform_with(Mode::Live, true).await;
    server.tamper("delete from uma_domains", &[]).await;
    let (of_sandbox, of_live) = (sandbox.platform, live.platform);
    let shared = server.app.write(move |unit| {
        let platform = owners::platform(unit, of_sandbox)?;
        let uma_domain = platform.uma_domain.clone();
        let other = owners::platform(unit, of_live)?;
        unit.put(Platform { uma_domain, ..Platform::clone(&other) });
        Ok(())
    });
    shared.await.expect("a domain of both");
    for _ in 0..2 {
        let shared = platforms::claim_domains(&server.app).await.expect("claims");
        let shared: Vec<_> =
            shared.iter().map(|(platform, holder)| (platform.id, *holder)).collect();
        assert_eq!(shared, [(sandbox.platform, live.platform)]);
    }
    // Both go on; what they have is no change.
    let body = json!({ "umaDomain": "uma.test" });
    sandbox.patch("/config", &body).await.expect(200);
    live.patch("/config", &body).await.expect(200);
    let free = UmaDomain::parse("sandbox.test").expect("a domain");
    platforms::set_domain(&server.app, sandbox.platform, free).await.expect("free");
    assert_eq!(platforms::claim_domains(&server.app).await.expect("claims"), []);
    sandbox.patch("/config", &body).await.refused(400, "INVALID_INPUT");
    // The tables were changed behind the journal, so there is nothing to verify.
}

#[tokio::test]
async fn a_currency_with_money_in_it_cannot_be_removed() {
    let server = Server::new();
    let (client, other) = (server.platform().await, server.platform().await);
    let customer = client.customer().await;
    client.funded(&customer, "EUR", 5).await;
    let theirs = other.customer().await;
    other.funded(&theirs, "GBP", 5).await;
    let platforms_own = client.account(None, "CAD").await;
    client.fund(&platforms_own, 1).await;
    let usd = currency("USD", 0, 9);
    for (kept, in_use) in [("EUR", "CAD"), ("CAD", "EUR")] {
        let body = json!({ "supportedCurrencies": [usd, currency(kept, 0, 9)] });
        let answer = client.patch("/config", &body).await;
        assert_eq!(answer.refused(400, "INVALID_CURRENCY")["currency"], in_use);
    }
    let all = client.get("/config").await.expect(200)["supportedCurrencies"].clone();
    assert_eq!(all.as_array().map(Vec::len), Some(with_rail().count()));
    support(&client, &[usd, currency("EUR", 0, 9), currency("CAD", 0, 9)]).await;
    let path = format!("/customers/internal-accounts?customerId={customer}");
    let accounts = client.get(&path).await;
    let codes: Vec<_> = accounts.expect(200)["data"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| text(&row["balance"]["currency"]["code"]))
        .collect();
    assert_eq!(codes, ["USD", "EUR", "CAD"]);
    server.verify();
}

#[tokio::test]
async fn limits_of_a_currency_bound_what_is_sent() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let usd = client.funded(&customer, "USD", 100_000).await;
    let bank = client.usd_external(&customer, "789").await;
    support(&client, &[currency("USD", 100, 1_000)]).await;
    let send = async |amount: i64| {
        let body = json!({
            "source": { "accountId": usd },
            "destination": { "accountId": bank },
            "amount": amount,
        });
        client.post("/transfer-out", &body).await
    };
    for refused in [1, 99, 1_001] {
        let answer = send(refused).await;
        let details = answer.refused(400, "AMOUNT_OUT_OF_RANGE");
        let expected = json!({
            "currency": "USD", "amount": refused, "minAmount": 100, "maxAmount": 1_000,
            "errors": details["errors"],
        });
        assert_eq!(*details, expected);
    }
    assert_eq!(client.balance(&usd).await, 100_000);
    for sent in [100, 1_000] {
        send(sent).await.expect(201);
    }
    assert_eq!(client.balance(&usd).await, 98_900);
    let mut incoming = currency("USD", 0, 100_000);
    incoming["enabledTransactionTypes"] = json!(["INCOMING"]);
    support(&client, &[incoming]).await;
    assert_eq!(send(100).await.refused(400, "INVALID_CURRENCY")["currency"], "USD");
    server.verify();
}

#[tokio::test]
async fn a_new_domain_holds_for_new_customers_only() {
    let server = Server::new();
    let client = server.platform().await;
    let old = client.customer().await;
    let path = format!("/customers/{old}");
    let address = text(&client.get(&path).await.expect(200)["umaAddress"]);
    client.patch("/config", &json!({ "umaDomain": "new.test" })).await.expect(200);
    assert_eq!(client.get(&path).await.expect(200)["umaAddress"], address.as_str());
    let new = client.customer().await;
    let new = text(&client.get(&format!("/customers/{new}")).await.expect(200)["umaAddress"]);
    assert!(new.ends_with("@new.test"), "{new}");
    let same = json!({ "customerType": "INDIVIDUAL", "umaAddress": address });
    assert_eq!(client.patch(&path, &same).await.expect(200)["umaAddress"], address.as_str());
}

#[tokio::test]
async fn a_customer_has_what_a_currency_asks_for_before_money_moves() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let usd = client.funded(&customer, "USD", 10_000).await;
    let eur = client.account(Some(&customer), "EUR").await;
    let bank = client.usd_external(&customer, "789").await;
    let mut asking = currency("USD", 1, 10_000);
    asking["providerRequiredCustomerFields"] = json!(["FULL_NAME", "BIRTH_DATE", "NATIONALITY"]);
    support(&client, &[asking, currency("EUR", 1, 10_000)]).await;
    let quote = |from: &str, to: &str| {
        json!({
            "source": { "sourceType": "ACCOUNT", "accountId": from },
            "destination": { "destinationType": "ACCOUNT", "accountId": to },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": 100,
        })
    };
    let transfer = json!({
        "source": { "accountId": usd }, "destination": { "accountId": bank }, "amount": 100,
    });
    let asked = [
        ("/transfer-out", transfer),
        ("/quotes", quote(&usd, &eur)),
        ("/quotes", quote(&eur, &usd)),
    ];
    for (path, body) in &asked {
        let answer = client.post(path, body).await;
        let details = answer.refused(400, "MISSING_MANDATORY_USER_INFO");
        assert_eq!(details["missingFields"], json!(["BIRTH_DATE", "NATIONALITY"]), "{body}");
        assert_eq!(details["customerId"], customer);
    }
    let known = json!({
        "customerType": "INDIVIDUAL", "birthDate": "1985-12-10", "nationality": "GB",
    });
    client.patch(&format!("/customers/{customer}"), &known).await.expect(200);
    for (path, body) in &asked {
        client.post(path, body).await.expect(201);
    }
    server.pass(1_000).await;
    server.verify();
}
