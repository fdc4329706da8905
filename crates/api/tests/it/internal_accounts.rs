//! Internal accounts (specification 2.10, 4.10; contract 6.6).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Call, Client, START, Server, fields, text, with_rail};

/// Every row of a list, in pages of `limit`.
async fn all(client: &Client, query: &str, limit: u32) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/customers/internal-accounts?limit={limit}{query}{cursor}");
        let answer = client.get(&path).await;
        let body = answer.expect(200);
        let page = body["data"].as_array().expect("rows");
        assert!(page.len() <= limit as usize);
        rows.extend(page.iter().cloned());
        let Some(next) = body["nextCursor"].as_str() else {
            assert_eq!(body["hasMore"], false);
            assert_eq!(body["totalCount"], rows.len(), "{query}");
            return rows;
        };
        assert_eq!((page.len(), &body["hasMore"]), (limit as usize, &json!(true)));
        cursor = format!("&cursor={next}");
    }
}

fn codes(rows: &[Value]) -> Vec<String> {
    rows.iter().map(|row| text(&row["balance"]["currency"]["code"])).collect()
}

#[tokio::test]
async fn a_new_customer_has_an_account_in_every_supported_currency() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let rows = all(&client, &format!("&customerId={customer}"), 100).await;
    let expected: Vec<_> = with_rail().map(|currency| currency.code().to_owned()).collect();
    assert_eq!(codes(&rows), expected);
    for (row, currency) in rows.iter().zip(with_rail()) {
        let nothing = json!({
            "amount": 0,
            "currency": {
                "code": currency.code(),
                "name": currency.name(),
                "symbol": currency.symbol(),
                "decimals": currency.decimals(),
            },
        });
        let shown = json!({
            "id": row["id"],
            "status": "OPEN",
            "balance": nothing,
            "totalBalance": nothing,
            "fundingPaymentInstructions": row["fundingPaymentInstructions"],
            "createdAt": START,
            "updatedAt": START,
            "customerId": customer,
        });
        assert_eq!(*row, shown);
    }
    let again = all(&client, &format!("&customerId={customer}"), 100).await;
    assert_eq!(rows, again);
}

#[tokio::test]
async fn ids_and_references_stay_when_money_comes_and_the_server_restarts() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let query = format!("&customerId={customer}&currency=EUR");
    let mut expected = all(&client, &query, 5).await;
    server.clock.advance_millis(9);
    client.fund(&text(&expected[0]["id"]), 1_234).await;
    expected[0]["balance"]["amount"] = json!(1_234);
    expected[0]["totalBalance"]["amount"] = json!(1_234);
    expected[0]["updatedAt"] = json!("2025-10-13T09:00:00.009Z");
    assert_eq!(all(&client, &query, 5).await, expected);
    let server = server.restart();
    let client = server.token(client.platform, domain::token::Permissions::ALL).await;
    assert_eq!(all(&client, &query, 5).await, expected);
    server.verify();
}

#[tokio::test]
async fn every_account_says_how_to_pay_in_and_by_which_reference() {
    let server = Server::new();
    let client = server.platform().await;
    client.customer().await;
    client.customer().await;
    let mut rows = all(&client, "", 100).await;
    let own = client.get("/platform/internal-accounts").await;
    rows.extend(own.expect(200)["data"].as_array().expect("rows").iter().cloned());
    let mut references = BTreeSet::new();
    for row in &rows {
        let ways = row["fundingPaymentInstructions"].as_array().expect("a list");
        assert!(!ways.is_empty(), "{row}");
        let of_row: BTreeSet<_> =
            ways.iter().map(|way| text(&way["accountOrWalletInfo"]["reference"])).collect();
        assert_eq!(of_row.len(), 1, "{row}");
        for way in ways {
            assert!(way["instructionsNotes"].is_string(), "{way}");
            assert_eq!(way["isPlatformAccount"], json!(row.get("customerId").is_none()), "{way}");
        }
        references.extend(of_row);
    }
    assert_eq!(references.len(), rows.len());
    assert_eq!(rows.len(), 3 * with_rail().count());
}

#[tokio::test]
async fn a_viewer_pages_through_the_accounts_of_all_customers_and_sees_each_once() {
    let server = Server::new();
    let (client, other) = (server.platform().await, server.platform().await);
    other.customer().await;
    let mut customers = Vec::new();
    for _ in 0..5 {
        customers.push(client.customer().await);
    }
    let whole = all(&client, "", 100).await;
    for limit in [1, 7, 27, 28, 100] {
        if limit > 1 {
            assert_eq!(all(&client, "", limit).await, whole, "{limit}");
        }
    }
    let ids: BTreeSet<_> = whole.iter().map(|row| text(&row["id"])).collect();
    assert_eq!((whole.len(), ids.len()), (135, 135));
    let owners: Vec<_> = whole.chunks(27).map(|rows| text(&rows[0]["customerId"])).collect();
    customers.reverse();
    assert_eq!(owners, customers);
    assert!(
        whole
            .chunks(27)
            .all(|rows| rows.iter().all(|row| row["customerId"] == rows[0]["customerId"]))
    );
    let euros = all(&client, "&currency=EUR", 2).await;
    assert_eq!(codes(&euros), ["EUR"; 5]);
    let of_one = all(&client, &format!("&customerId={}", customers[2]), 4).await;
    assert_eq!(of_one, whole[54..81]);
    let one = all(&client, &format!("&customerId={}&currency=ZMW", customers[2]), 1).await;
    assert_eq!(codes(&one), ["ZMW"]);
}

#[tokio::test]
async fn a_page_is_not_disturbed_by_customers_that_come_and_go() {
    let server = Server::new();
    let client = server.platform().await;
    let (first, second) = (client.customer().await, client.customer().await);
    let page = client.get("/customers/internal-accounts?limit=10").await;
    let cursor = text(&page.expect(200)["nextCursor"]);
    client.customer().await;
    client.delete(&format!("/customers/{second}")).await.expect(200);
    let rest = client.get(&format!("/customers/internal-accounts?limit=100&cursor={cursor}")).await;
    let rest = rest.expect(200)["data"].as_array().expect("rows").clone();
    assert_eq!(rest.len(), 27);
    assert!(rest.iter().all(|row| row["customerId"] == first.as_str()));
}

#[tokio::test]
async fn a_viewer_reads_the_platforms_own_accounts() {
    let server = Server::new();
    let client = server.platform().await;
    client.customer().await;
    let answer = client.get("/platform/internal-accounts").await;
    let body = answer.expect(200);
    let rows = body["data"].as_array().expect("rows").clone();
    let count = rows.len();
    assert_eq!(*body, json!({ "data": rows, "hasMore": false, "totalCount": count }));
    let expected: Vec<_> = with_rail().map(|currency| currency.code().to_owned()).collect();
    assert_eq!(codes(&rows), expected);
    assert!(rows.iter().all(|row| row.get("customerId").is_none()));
    let euros = client.get("/platform/internal-accounts?currency=EUR").await;
    assert_eq!(euros.expect(200)["data"], json!([rows[1]]));
    client.fund(&text(&rows[1]["id"]), 7).await;
    let euros = client.get("/platform/internal-accounts?currency=EUR").await;
    assert_eq!(euros.expect(200)["data"][0]["balance"]["amount"], 7);
    server.verify();
}

/// Published clients page both lists of the platform as they page those of its customers.
#[tokio::test]
async fn the_lists_of_the_platform_are_paged_too() {
    let server = Server::new();
    let client = server.platform().await;
    for number in 0..5 {
        let account = json!({
            "currency": "USD",
            "accountInfo": {
                "accountType": "USD_ACCOUNT",
                "accountNumber": format!("00012345678{number}"),
                "routingNumber": "021000021",
                "beneficiary": {
                    "beneficiaryType": "BUSINESS", "legalName": "Analytical Engines Ltd",
                },
            },
        });
        client.post("/platform/external-accounts", &account).await.expect(201);
    }
    for path in ["/platform/internal-accounts", "/platform/external-accounts"] {
        let whole = client.get(path).await.expect(200).clone();
        let rows = whole["data"].as_array().expect("rows").clone();
        assert_eq!((&whole["hasMore"], whole.get("nextCursor")), (&json!(false), None), "{path}");
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("{path}?limit=2{cursor}")).await.expect(200).clone();
            let data = page["data"].as_array().expect("rows").clone();
            assert!((1..=2).contains(&data.len()), "{path}: {page}");
            assert_eq!(page["totalCount"], rows.len(), "{path}");
            paged.extend(data);
            assert_eq!(page["hasMore"], paged.len() < rows.len(), "{path}");
            match page.get("nextCursor") {
                Some(next) => cursor = format!("&cursor={}", text(next)),
                None => break,
            }
        }
        assert_eq!(paged, rows, "{path}");
        // Without a limit it is the whole rest.
        let first = client.get(&format!("{path}?limit=1")).await.expect(200).clone();
        let rest = client.get(&format!("{path}?cursor={}", text(&first["nextCursor"]))).await;
        assert_eq!(rest.expect(200)["data"], json!(rows[1..]), "{path}");
        let answer = client.get(&format!("{path}?limit=101&cursor=AAAA")).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["cursor", "limit"], "{path}");
    }
}

#[tokio::test]
async fn accounts_exist_in_the_currencies_that_the_platform_supports_now() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let support = async |codes: &[&str]| {
        let all: Vec<_> = codes
            .iter()
            .map(|code| json!({ "currencyCode": code, "minAmount": 0, "maxAmount": 9 }))
            .collect();
        client.patch("/config", &json!({ "supportedCurrencies": all })).await.expect(200);
    };
    let gbp = client.account(Some(&customer), "GBP").await;
    support(&["EUR", "USD"]).await;
    assert_eq!(codes(&all(&client, "", 1).await), ["EUR", "USD"]);
    assert!(all(&client, "&currency=GBP", 1).await.is_empty());
    let fund = format!("/sandbox/internal-accounts/{gbp}/fund");
    client.post(&fund, &json!({ "amount": 1 })).await.refused(404, "ACCOUNT_NOT_FOUND");
    support(&["GBP"]).await;
    assert_eq!(client.account(Some(&customer), "GBP").await, gbp);
}

#[tokio::test]
async fn a_viewer_learns_which_filter_is_wrong() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    for path in [
        "/customers/internal-accounts",
        "/platform/internal-accounts",
        "/customers/external-accounts",
        "/platform/external-accounts",
    ] {
        for unknown in ["XXX", "usd", ""] {
            let answer = client.get(&format!("{path}?currency={unknown}")).await;
            assert_eq!(answer.refused(400, "INVALID_CURRENCY")["currency"], unknown, "{path}");
        }
    }
    for path in ["/customers/internal-accounts", "/customers/external-accounts"] {
        let wrong = customer.replace("Customer:", "Quote:");
        let answer = client.get(&format!("{path}?customerId={wrong}&limit=0&cursor=AAAA")).await;
        let named = fields(answer.refused(400, "INVALID_INPUT"));
        assert_eq!(named, ["cursor", "customerId", "limit"], "{path}");
        let unknown = "Customer:00000000-0000-7000-8000-000000000000";
        let answer = client.get(&format!("{path}?customerId={unknown}")).await;
        let none = json!({ "data": [], "hasMore": false, "totalCount": 0 });
        assert_eq!(*answer.expect(200), none, "{path}");
    }
}

/// Money that is set aside is in the account until it has left it.
#[tokio::test]
async fn the_total_balance_has_what_is_set_aside() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let usd = client.funded(&customer, "USD", 1_000).await;
    let external = client.usd_external(&customer, "789").await;
    let check = async |available: i64, total: i64| {
        let list = client.get("/customers/internal-accounts?currency=USD").await;
        let account = &list.expect(200)["data"][0];
        assert_eq!(account["balance"]["amount"], available);
        assert_eq!(account["totalBalance"]["amount"], total);
        assert_eq!(account["totalBalance"]["currency"], account["balance"]["currency"]);
    };
    check(1_000, 1_000).await;
    let out = json!({
        "source": { "accountId": usd }, "destination": { "accountId": external }, "amount": 400,
    });
    client.post("/transfer-out", &out).await.expect(201);
    check(600, 1_000).await;
    server.pass(60_000).await;
    check(600, 600).await;
    let pulled = json!({
        "source": { "accountId": external }, "destination": { "accountId": usd }, "amount": 50,
    });
    client.post("/transfer-in", &pulled).await.expect(201);
    check(600, 650).await;
    server.pass(60_000).await;
    check(650, 650).await;
    server.verify();
}

#[tokio::test]
async fn an_account_is_open_while_money_of_its_owner_moves() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let path = format!("/customers/internal-accounts?currency=USD&customerId={customer}");
    let status = async || text(&client.get(&path).await.expect(200)["data"][0]["status"]);
    for (kyc, expected) in [
        ("APPROVED", "OPEN"),
        ("PENDING_REVIEW", "PENDING"),
        ("MANUALLY_REJECTED", "FROZEN"),
        ("MANUALLY_APPROVED", "OPEN"),
    ] {
        let change = json!({ "customerType": "INDIVIDUAL", "kycStatus": kyc });
        client.patch(&format!("/customers/{customer}"), &change).await.expect(200);
        assert_eq!(status().await, expected, "{kyc}");
    }
    client.send("DELETE", &format!("/customers/{customer}"), Call::default()).await.expect(200);
    assert_eq!(status().await, "CLOSED");
    let own = client.get("/platform/internal-accounts").await;
    assert!(
        own.expect(200)["data"].as_array().expect("rows").iter().all(|it| it["status"] == "OPEN")
    );
}
