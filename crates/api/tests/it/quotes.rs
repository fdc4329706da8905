//! Quotes (specification 2.5, 3.2, 4.13; contract 6.9): their life. Their arithmetic is in
//! `prices`.

use domain::platform::Mode;
use serde_json::{Value, json};

use crate::pay::{Payer, deposit, from, locked, sending, to, usd};
use crate::support::{Answer, Call, START, Server, text, usd_external, why};

const EXPIRES: &str = "2025-10-13T09:05:00.000Z";
const LIFETIME_MILLIS: i64 = 300_000;

/// A quote of 1,000 dollars to euros of the same customer.
async fn to_eur(payer: &Payer) -> Value {
    let eur = payer.account("EUR").await;
    payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 100_000)).await
}

/// A quote in US dollars to a bank account with this suffix.
async fn to_bank(payer: &Payer, suffix: &str, amount: i64) -> Value {
    let bank = payer.bank(suffix).await;
    payer.client.quote(&sending(&from(&payer.usd), &to(&bank), amount)).await
}

/// What an amount field of a quote says.
fn amount(quote: &Value, field: &str) -> i64 {
    quote[field].as_i64().unwrap_or_else(|| panic!("{field} of {quote}"))
}

#[tokio::test]
async fn a_quote_and_its_transaction_show_every_field() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.account("EUR").await;
    let mut body = sending(&from(&payer.usd), &to(&eur), 100_000);
    body["description"] = json!("invoice 7");
    body["purposeOfPayment"] = json!("GOODS_OR_SERVICES");
    let quote = payer.client.quote(&body).await;
    let expected = json!({
        "id": quote["id"],
        "status": "PENDING",
        "createdAt": START,
        "expiresAt": EXPIRES,
        "source":
            { "sourceType": "ACCOUNT", "accountId": payer.usd, "customerId": payer.customer },
        "destination": { "destinationType": "ACCOUNT", "accountId": eur },
        "sendingCurrency": usd(1)["currency"],
        "receivingCurrency": { "code": "EUR", "name": "Euro", "symbol": "€", "decimals": 2 },
        "totalSendingAmount": 100_000,
        // (100000 - 350) / 1.160775, rounded down.
        "totalReceivingAmount": 85_847,
        "exchangeRate": 1.160775,
        "feesIncluded": 350,
        "transactionId": quote["transactionId"],
        "rateDetails": {
            "rateBasis": {
                "midRate": 1.155,
                "midRateAt": "2025-11-21T00:00:00.000Z",
                "midRateSource": "BUILT_IN",
                "spread": 0.005,
                "priceRule": "DEFAULT",
            },
            // One cent is 10,000 millisatoshi; 0.3 % of it is the variable fee.
            "serviceApiMultiplier": 9970,
            "serviceApiFixedFee": 50,
            "serviceApiVariableFeeRate": 0.003,
            "serviceApiVariableFeeAmount": 300,
            "counterpartyMultiplier": 11607.75,
            "counterpartyFixedFee": 0,
        },
    });
    assert_eq!(with_floats(&quote), with_floats(&expected));
    assert_eq!(payer.client.quote_again(&quote).await, quote);
    let transaction = payer.client.transaction_of(&quote).await;
    // The quote alone shows what its rate was made from.
    let mut details = quote["rateDetails"].clone();
    details.as_object_mut().expect("details").remove("rateBasis");
    let expected = json!({
        "id": quote["transactionId"],
        "status": "PENDING",
        "type": "OUTGOING",
        "direction": "DEBIT",
        "source": { "sourceType": "ACCOUNT", "accountId": payer.usd, "currency": "USD" },
        "destination": { "destinationType": "ACCOUNT", "accountId": eur, "currency": "EUR" },
        "customerId": payer.customer,
        "platformCustomerId": transaction["platformCustomerId"],
        "sentAmount": usd(100_000),
        "receivedAmount": { "amount": 85_847, "currency": quote["receivingCurrency"] },
        "exchangeRate": quote["exchangeRate"],
        "fees": 350,
        "quoteId": quote["id"],
        "rateDetails": details,
        "createdAt": START,
        "updatedAt": START,
        "description": "invoice 7",
        "purposeOfPayment": "GOODS_OR_SERVICES",
        "reconciliationInstructions": transaction["reconciliationInstructions"],
    });
    assert_eq!(transaction, expected);
    server.verify();
}

/// The value with every number that is not an amount as a float, so that 9970 and 9970.0 agree.
fn with_floats(value: &Value) -> Value {
    let mut value = value.clone();
    for pointer in ["/exchangeRate", "/rateDetails/serviceApiMultiplier"] {
        if let Some(number) = value.pointer_mut(pointer) {
            *number = json!(number.as_f64());
        }
    }
    value
}

#[tokio::test]
async fn between_internal_accounts_a_quote_completes_at_once() {
    let server = Server::new();
    let payer = Payer::with(&server, 150_000).await;
    let eur = payer.account("EUR").await;
    let quote = to_eur(&payer).await;
    assert_eq!(payer.balance().await, 150_000, "a quote reserves nothing");
    let executed = payer.client.execute(&quote).await.expect(200).clone();
    assert_eq!(executed["status"], "COMPLETED");
    assert_eq!(payer.client.quote_again(&quote).await, executed);
    let transaction = payer.client.transaction_of(&quote).await;
    assert_eq!(transaction["status"], "COMPLETED");
    assert_eq!(transaction["settledAt"], START);
    assert_eq!(payer.balance().await, 50_000);
    assert_eq!(payer.client.balance(&eur).await, amount(&quote, "totalReceivingAmount"));
    server.pass(LIFETIME_MILLIS).await;
    payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    server.verify();
}

#[tokio::test]
async fn to_an_external_account_a_quote_completes_when_the_rail_settles() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let quote = to_bank(&payer, "789", 400).await;
    let executed = payer.client.execute(&quote).await.expect(200).clone();
    assert_eq!(executed["status"], "PROCESSING");
    payer.client.stands_at(&quote, "PROCESSING", "PROCESSING").await;
    assert_eq!(payer.balance().await, 600);
    server.verify();
    server.pass(1_000).await;
    let transaction = payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    assert_eq!(transaction["settledAt"], "2025-10-13T09:00:01.000Z");
    assert_eq!(payer.balance().await, 600);
    server.verify();
}

#[tokio::test]
async fn the_platform_pays_on_behalf_of_a_customer() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let own = payer.client.account(None, "USD").await;
    payer.client.fund(&own, 1_000).await;
    let bank = payer.bank("789").await;
    let mut source = from(&own);
    let quote = payer.client.quote(&sending(&source, &to(&bank), 400)).await;
    assert_eq!(quote["source"]["customerId"], payer.client.platform.to_string());
    source["customerId"] = json!(payer.customer);
    let quote = payer.client.quote(&sending(&source, &to(&bank), 400)).await;
    assert_eq!(quote["source"]["customerId"], payer.customer);
    payer.client.execute(&quote).await.expect(200);
    server.pass(1_000).await;
    let transaction = payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    assert_eq!(transaction["customerId"], payer.customer);
    assert_eq!(transaction["source"]["accountId"], own);
    assert_eq!(payer.client.balance(&own).await, 600);
    // A customer's account pays for no other customer.
    let other = payer.client.customer().await;
    let mut source = from(&payer.usd);
    source["customerId"] = json!(other);
    let answer = payer.client.post("/quotes", &sending(&source, &to(&bank), 400)).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "source.customerId");
    server.verify();
}

#[tokio::test]
async fn a_failed_payment_of_the_platform_for_a_customer_goes_back_to_the_platform() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let own = payer.client.account(None, "USD").await;
    payer.client.fund(&own, 1_000).await;
    let bank = payer.bank("003").await;
    let mut source = from(&own);
    source["customerId"] = json!(payer.customer);
    let quote = payer.client.quote(&sending(&source, &to(&bank), 400)).await;
    payer.client.execute(&quote).await.expect(200);
    server.pass(1_000).await;
    payer.client.stands_at(&quote, "FAILED", "FAILED").await;
    assert_eq!(payer.client.balance(&own).await, 1_000);
    assert_eq!(payer.balance().await, 0);
    server.verify();
}

/// A quote to an account with this suffix: where it ends, and why.
async fn check_suffix(suffix: &str, quote_ends: &str, ends: &str, reason: [Option<&str>; 2]) {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let quote = to_bank(&payer, suffix, 400).await;
    assert_eq!(payer.client.execute(&quote).await.expect(200)["status"], "PROCESSING", "{suffix}");
    assert_eq!(payer.balance().await, 600, "{suffix}");
    if suffix == "005" {
        server.pass(29_999).await;
        payer.client.stands_at(&quote, "PROCESSING", "PROCESSING").await;
        server.pass(1).await;
    } else {
        server.pass(1_000).await;
    }
    let transaction = payer.client.stands_at(&quote, quote_ends, ends).await;
    assert_eq!(why(&transaction), reason, "{suffix}");
    let is_completed = ends == "COMPLETED";
    assert_eq!(transaction["refund"]["status"].as_str().is_none(), is_completed, "{suffix}");
    assert_eq!(payer.balance().await, if is_completed { 600 } else { 1_000 }, "{suffix}");
    payer.client.execute(&quote).await.refused(409, "CONFLICT");
    server.pass(LIFETIME_MILLIS).await;
    assert_eq!(payer.client.transaction_of(&quote).await, transaction, "{suffix}");
    server.verify();
}

#[tokio::test]
async fn the_suffix_of_the_account_steers_a_quote() {
    check_suffix(
        "003",
        "FAILED",
        "FAILED",
        [Some("QUOTE_EXECUTION_FAILED"), Some("ACCOUNT_INVALID")],
    )
    .await;
    check_suffix("004", "FAILED", "REJECTED", [None, Some("REJECTED_BY_RECEIVER")]).await;
    check_suffix("005", "FAILED", "FAILED", [Some("QUOTE_EXECUTION_FAILED"), Some("TIMEOUT")])
        .await;
    check_suffix("006", "COMPLETED", "COMPLETED", [None, None]).await;
    check_suffix("007", "COMPLETED", "COMPLETED", [None, None]).await;
}

#[tokio::test]
async fn a_payment_that_the_rail_does_not_take_leaves_the_quote_open() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let quote = to_bank(&payer, "002", 400).await;
    for _ in 0..2 {
        payer.client.execute(&quote).await.refused(400, "INSUFFICIENT_BALANCE");
        payer.client.stands_at(&quote, "PENDING", "PENDING").await;
    }
    assert_eq!(payer.balance().await, 1_000);
    server.pass(LIFETIME_MILLIS).await;
    payer.client.stands_at(&quote, "EXPIRED", "EXPIRED").await;
    server.verify();
}

#[tokio::test]
async fn a_payment_that_the_rail_does_not_take_is_not_executed_with_its_creation() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("002").await;
    let details = usd_external(Some(&payer.customer), "1002");
    let details = json!({
        "destinationType": "EXTERNAL_ACCOUNT_DETAILS",
        "externalAccountDetails": details,
    });
    let before = payer.client.count("/transactions").await;
    for destination in [to(&bank), details] {
        let mut body = sending(&from(&payer.usd), &destination, 400);
        body["immediatelyExecute"] = json!(true);
        let answer = payer.client.post("/quotes", &body).await;
        answer.refused(400, "INSUFFICIENT_BALANCE");
    }
    assert_eq!(payer.client.count("/quotes").await, 0);
    assert_eq!(payer.client.count("/transactions").await, before);
    assert_eq!(payer.client.count("/customers/external-accounts").await, 1);
    assert_eq!(payer.balance().await, 1_000);
    server.verify();
}

#[tokio::test]
async fn without_money_a_quote_stays_open_until_there_is_some() {
    let server = Server::new();
    let payer = Payer::with(&server, 99_999).await;
    let quote = to_eur(&payer).await;
    let answer = payer.client.execute(&quote).await;
    let details = answer.refused(400, "INSUFFICIENT_BALANCE");
    assert_eq!((&details["available"], &details["needed"]), (&json!(99_999), &json!(100_000)));
    payer.client.stands_at(&quote, "PENDING", "PENDING").await;
    assert_eq!(payer.balance().await, 99_999);
    payer.client.fund(&payer.usd, 1).await;
    assert_eq!(payer.client.execute(&quote).await.expect(200)["status"], "COMPLETED");
    assert_eq!(payer.balance().await, 0);
    server.verify();
}

#[tokio::test]
async fn a_quote_is_executed_once() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let quote = to_eur(&payer).await;
    payer.client.execute(&quote).await.expect(200);
    let answer = payer.client.execute(&quote).await;
    assert_eq!(answer.refused(409, "CONFLICT")["status"], "COMPLETED");
    assert_eq!(answer.headers["x-should-retry"], "false");
    let quote = to_bank(&payer, "789", 400).await;
    payer.client.execute(&quote).await.expect(200);
    let answer = payer.client.execute(&quote).await;
    assert_eq!(answer.refused(409, "CONFLICT")["status"], "PROCESSING");
    assert_eq!(payer.balance().await, 1_000_000 - 100_000 - 400);
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn a_quote_expires_by_the_clock_whether_or_not_its_timer_was_there() {
    let server = Server::new();
    let payer = Payer::with(&server, 200_000).await;
    let late = to_eur(&payer).await;
    server.clock.advance_millis(LIFETIME_MILLIS - 1);
    let in_time = to_eur(&payer).await;
    let also = to_eur(&payer).await;
    server.clock.advance_millis(1);
    // The clock decides, whether or not the timer was there first.
    let answer = payer.client.execute(&late).await;
    assert_eq!(answer.refused(409, "QUOTE_EXPIRED")["expiresAt"], EXPIRES);
    payer.client.execute(&in_time).await.expect(200);
    let transaction = payer.client.stands_at(&late, "EXPIRED", "EXPIRED").await;
    assert!(transaction["failureReason"].is_null());
    assert!(transaction["refund"].is_null());
    assert_eq!(server.notified_statuses(&late["transactionId"]).await, ["PENDING", "EXPIRED"]);
    payer.client.execute(&late).await.refused(409, "QUOTE_EXPIRED");
    payer.client.stands_at(&also, "PENDING", "PENDING").await;
    assert_eq!(payer.balance().await, 100_000);
    server.pass(LIFETIME_MILLIS).await;
    payer.client.stands_at(&also, "EXPIRED", "EXPIRED").await;
    payer.client.stands_at(&in_time, "COMPLETED", "COMPLETED").await;
    server.verify();
}

/// The statuses that rows of a list have.
fn statuses(list: &Answer) -> Vec<String> {
    let rows = list.expect(200)["data"].as_array().expect("rows").clone();
    rows.iter().map(|row| text(&row["status"])).collect()
}

#[tokio::test]
async fn a_quote_that_is_over_reads_expired_however_it_is_read_first() {
    for first in ["quote", "transaction", "/quotes", "/transactions", "/events"] {
        let server = Server::new();
        let payer = Payer::with(&server, 0).await;
        let quote = to_eur(&payer).await;
        let open = ["/quotes?status=PENDING", "/transactions?status=PENDING"];
        let over = ["/quotes?status=EXPIRED", "/transactions?status=EXPIRED"];
        server.clock.advance_millis(LIFETIME_MILLIS - 1);
        for path in open {
            assert_eq!(statuses(&payer.client.get(path).await), ["PENDING"], "{first}");
        }
        // No job runs.
        server.clock.advance_millis(1);
        match first {
            "quote" => assert_eq!(payer.client.quote_again(&quote).await["status"], "EXPIRED"),
            "transaction" => {
                assert_eq!(payer.client.transaction_of(&quote).await["status"], "EXPIRED");
            }
            "/events" => {
                let events = payer.client.get("/events?limit=100").await;
                let last = events.expect(200)["data"].as_array().expect("rows").last().cloned();
                assert_eq!(last.expect("an event")["data"]["status"], "EXPIRED");
            }
            list => {
                let path = format!("{list}?status=EXPIRED");
                assert_eq!(statuses(&payer.client.get(&path).await), ["EXPIRED"], "{first}");
            }
        }
        for path in open {
            let list = payer.client.get(path).await;
            assert_eq!((statuses(&list).len(), &list.body["totalCount"]), (0, &json!(0)));
        }
        for path in over {
            assert_eq!(statuses(&payer.client.get(path).await), ["EXPIRED"], "{first}");
        }
        let transaction = payer.client.stands_at(&quote, "EXPIRED", "EXPIRED").await;
        assert_eq!(transaction["updatedAt"], EXPIRES);
        assert_eq!(server.notified_statuses(&quote["transactionId"]).await, ["PENDING", "EXPIRED"]);
        server.pass(0).await;
        assert_eq!(payer.client.transaction_of(&quote).await, transaction, "{first}");
        server.verify();
    }
}

#[tokio::test]
async fn a_quote_that_is_over_reads_expired_however_many_are_over() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    // More than one unit of work ends.
    for _ in 0..300 {
        to_eur(&payer).await;
    }
    server.clock.advance_millis(1);
    let [quote, paid] = [to_eur(&payer).await, to_eur(&payer).await];
    server.clock.advance_millis(LIFETIME_MILLIS);
    assert_eq!(payer.client.quote_again(&quote).await["status"], "EXPIRED");
    assert_eq!(payer.client.transaction_of(&paid).await["status"], "EXPIRED");
    let list = payer.client.get("/quotes?status=PENDING").await;
    assert_eq!((statuses(&list).len(), &list.body["totalCount"]), (0, &json!(0)));
    payer.client.stands_at(&paid, "EXPIRED", "EXPIRED").await;
    server.verify();
}

#[tokio::test]
async fn an_invoice_of_a_quote_asks_for_its_amount() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for (amount, asks) in
        [(123_456, "lnbcrt1234560n1"), (5_000_000, "lnbcrt50m1"), (100_001, "lnbcrt1000010n1")]
    {
        let body = sending(&deposit("BTC", &payer.customer), &to(&payer.usd), amount);
        let quote = payer.client.quote(&body).await;
        let invoices = |shown: &Value| {
            let ways = shown["paymentInstructions"].as_array().expect("a list").clone();
            let invoice =
                |way: &Value| way["accountOrWalletInfo"]["invoice"].as_str().map(str::to_owned);
            ways.iter().filter_map(invoice).collect::<Vec<_>>()
        };
        let shown = invoices(&quote);
        // Of the Spark wallet and the Lightning one.
        assert_eq!(shown.len(), 2, "{quote}");
        assert!(shown.iter().all(|invoice| invoice.starts_with(asks)), "{amount}: {shown:?}");
        assert_eq!(invoices(&payer.client.transaction_of(&quote).await), shown);
        assert_eq!(invoices(&payer.client.quote_again(&quote).await), shown);
    }
    server.verify();
}

#[tokio::test]
async fn a_deposit_that_no_one_can_make_is_not_quoted() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let limits =
        |code: &str| json!({ "currencyCode": code, "minAmount": 1, "maxAmount": 1_000_000 });
    let supported = json!({ "supportedCurrencies": [limits("USD"), limits("JPY"), limits("KWD")] });
    payer.client.patch("/config", &supported).await.expect(200);
    for code in ["JPY", "KWD"] {
        let body = sending(&deposit(code, &payer.customer), &to(&payer.usd), 100_000);
        let refused = payer.client.post("/quotes", &body).await;
        assert_eq!(refused.refused(400, "INVALID_INPUT")["field"], "source.currency", "{code}");
    }
    // Without a rail no platform has instructions to give.
    let live = server.platform_with(Mode::Live, true).await;
    let usd = live.account(None, "EUR").await;
    let source = json!({ "sourceType": "REALTIME_FUNDING", "currency": "USD" });
    let refused = live.post("/quotes", &sending(&source, &to(&usd), 100_000)).await;
    assert_eq!(refused.refused(400, "INVALID_INPUT")["field"], "source.currency");
    let source = json!({
        "sourceType": "REALTIME_FUNDING", "currency": "USDC", "cryptoNetwork": "SOLANA_MAINNET",
    });
    let refused = live.post("/quotes", &sending(&source, &to(&usd), 9_000_000)).await;
    assert_eq!(refused.refused(400, "INVALID_INPUT")["field"], "source.cryptoNetwork");
    for client in [&payer.client, &live] {
        assert_eq!(client.count("/quotes").await, 0);
        assert_eq!(client.count("/transactions").await, 0);
    }
    server.verify();
}

#[tokio::test]
async fn a_quote_of_the_last_millisecond_is_executed() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let quote = to_eur(&payer).await;
    server.clock.advance_millis(LIFETIME_MILLIS - 1);
    payer.client.execute(&quote).await.expect(200);
    server.pass(10).await;
    payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    server.verify();
}

#[tokio::test]
async fn a_quote_is_executed_with_its_creation() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_400).await;
    let eur = payer.account("EUR").await;
    let mut body = sending(&from(&payer.usd), &to(&eur), 100_000);
    body["immediatelyExecute"] = json!(true);
    let quote = payer.client.quote(&body).await;
    assert_eq!(quote["status"], "COMPLETED");
    payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    let mut body = sending(&from(&payer.usd), &to(&payer.bank("789").await), 400);
    body["immediatelyExecute"] = json!(true);
    let quote = payer.client.quote(&body).await;
    assert_eq!(quote["status"], "PROCESSING");
    server.pass(1_000).await;
    payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    assert_eq!(payer.balance().await, 0);
    // Without money nothing is made at all.
    let (quotes, transactions) =
        (payer.client.count("/quotes").await, payer.client.count("/transactions").await);
    payer.client.post("/quotes", &body).await.refused(400, "INSUFFICIENT_BALANCE");
    assert_eq!(payer.client.count("/quotes").await, quotes);
    assert_eq!(payer.client.count("/transactions").await, transactions);
    // A deposit executes a quote by itself.
    let mut body = sending(&deposit("USD", &payer.customer), &to(&eur), 100_000);
    body["immediatelyExecute"] = json!(true);
    let answer = payer.client.post("/quotes", &body).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "immediatelyExecute");
    assert_eq!(payer.client.count("/quotes").await, quotes);
    server.verify();
}

#[tokio::test]
async fn an_account_given_with_the_quote_is_made_once_and_stays() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let mut details = usd_external(None, "789");
    let body = |details: &Value| {
        let destination = json!({
            "destinationType": "EXTERNAL_ACCOUNT_DETAILS",
            "externalAccountDetails": details,
        });
        sending(&from(&payer.usd), &destination, 400)
    };
    let quote = payer.client.quote(&body(&details)).await;
    let account = text(&quote["destination"]["accountId"]);
    assert_eq!(quote["destination"]["destinationType"], "ACCOUNT");
    let list = payer.client.get("/customers/external-accounts").await.expect(200).clone();
    assert_eq!(list["data"][0]["id"], account);
    assert_eq!(list["data"][0]["customerId"], payer.customer);
    details["customerId"] = json!(payer.customer);
    let again = payer.client.quote(&body(&details)).await;
    assert_eq!(again["destination"]["accountId"], account);
    assert_eq!(payer.client.count("/customers/external-accounts").await, 1);
    payer.client.execute(&quote).await.expect(200);
    server.pass(1_000).await;
    payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    // It can be used like any other, and not for another customer.
    let used = crate::pay::transfer(&payer.usd, &account, 100);
    payer.client.post("/transfer-out", &used).await.expect(201);
    let other = payer.client.customer().await;
    details["customerId"] = json!(other);
    let answer = payer.client.post("/quotes", &body(&details)).await;
    answer.refused(400, "INVALID_INPUT");
    assert_eq!(payer.client.count("/customers/external-accounts").await, 1);
    // What is wrong with it is said with its place.
    details["accountInfo"].as_object_mut().expect("an object").remove("routingNumber");
    let answer = payer.client.post("/quotes", &body(&details)).await;
    let field = text(&answer.refused(400, "INVALID_INPUT")["field"]);
    assert!(field.starts_with("destination.externalAccountDetails."), "{field}");
    server.verify();
}

#[tokio::test]
async fn a_refused_quote_makes_no_account() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let destination = json!({
        "destinationType": "EXTERNAL_ACCOUNT_DETAILS",
        "externalAccountDetails": usd_external(None, "789"),
    });
    let mut body = sending(&from(&payer.usd), &destination, 1_001);
    body["immediatelyExecute"] = json!(true);
    payer.client.post("/quotes", &body).await.refused(400, "INSUFFICIENT_BALANCE");
    assert_eq!(payer.client.count("/customers/external-accounts").await, 0);
    server.verify();
}

/// A customer without money and a quote from a deposit in US dollars to a place.
async fn funded_by_deposit(server: &Server, to_suffix: Option<&str>) -> (Payer, String, Value) {
    let payer = Payer::with(server, 0).await;
    let account = match to_suffix {
        Some(suffix) => payer.bank(suffix).await,
        None => payer.account("EUR").await,
    };
    let source = deposit("USD", &payer.customer);
    let quote = payer.client.quote(&sending(&source, &to(&account), 100_000)).await;
    (payer, account, quote)
}

#[tokio::test]
async fn the_right_deposit_executes_a_quote() {
    for given in [Some(100_000), None] {
        let server = Server::new();
        let (payer, eur, quote) = funded_by_deposit(&server, None).await;
        assert_eq!(
            quote["source"],
            json!({
                "sourceType": "REALTIME_FUNDING",
                "currency": "USD",
                "customerId": payer.customer,
            })
        );
        let transaction = payer.client.transaction_of(&quote).await;
        let reference = &transaction["reconciliationInstructions"]["reference"];
        let instructions = quote["paymentInstructions"].as_array().expect("instructions");
        assert!(!instructions.is_empty());
        assert_eq!(transaction["paymentInstructions"], quote["paymentInstructions"]);
        for instruction in instructions {
            assert_eq!(&instruction["accountOrWalletInfo"]["reference"], reference);
            assert!(instruction["accountOrWalletInfo"]["accountType"].is_string());
        }
        assert_eq!(payer.client.quote_again(&quote).await, quote);
        payer.client.execute(&quote).await.refused(400, "INVALID_INPUT");
        let sent = payer.client.deposit(&quote, given).await.expect(200).clone();
        assert_eq!(sent["status"], "COMPLETED");
        assert_eq!(sent["paymentInstructions"], quote["paymentInstructions"]);
        assert_eq!(sent, payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await);
        assert_eq!(payer.balance().await, 0);
        assert_eq!(payer.client.balance(&eur).await, amount(&quote, "totalReceivingAmount"));
        payer.client.deposit(&quote, given).await.refused(409, "CONFLICT");
        assert_eq!(payer.balance().await, 0);
        server.verify();
    }
}

#[tokio::test]
async fn a_deposit_on_behalf_of_the_platform_needs_no_customer() {
    let server = Server::new();
    let client = server.platform().await;
    let eur = client.account(None, "EUR").await;
    let source = json!({ "sourceType": "REALTIME_FUNDING", "currency": "USD" });
    let quote = client.quote(&sending(&source, &to(&eur), 100_000)).await;
    assert_eq!(quote["source"]["customerId"], client.platform.to_string());
    let transaction = client.deposit(&quote, None).await.expect(200).clone();
    assert_eq!(transaction["customerId"], client.platform.to_string());
    assert_eq!(client.balance(&eur).await, amount(&quote, "totalReceivingAmount"));
    server.verify();
}

#[tokio::test]
async fn another_amount_fails_the_quote_and_goes_to_the_internal_account() {
    for wrong in [1, 99_999, 100_001, 5_000_000] {
        let server = Server::new();
        let (payer, eur, quote) = funded_by_deposit(&server, None).await;
        let sent = payer.client.deposit(&quote, Some(wrong)).await.expect(200).clone();
        assert_eq!(sent["status"], "REFUNDED");
        let reason = [Some("QUOTE_EXECUTION_FAILED"), Some("FUNDING_AMOUNT_MISMATCH")];
        assert_eq!(why(&sent), reason);
        let message = "the deposit was not of the amount that the quote asks for";
        assert_eq!(sent["statusReason"]["message"], message);
        assert_eq!(sent["refund"]["status"], "COMPLETED");
        payer.client.stands_at(&quote, "FAILED", "REFUNDED").await;
        let notified = server.notified_statuses(&quote["transactionId"]).await;
        assert_eq!(notified, ["PENDING", "FAILED", "REFUNDED"]);
        assert_eq!((payer.balance().await, payer.client.balance(&eur).await), (wrong, 0));
        payer.client.deposit(&quote, Some(100_000)).await.refused(409, "CONFLICT");
        server.pass(LIFETIME_MILLIS).await;
        payer.client.stands_at(&quote, "FAILED", "REFUNDED").await;
        server.verify();
    }
}

#[tokio::test]
async fn a_deposit_in_another_currency_is_refused() {
    let server = Server::new();
    let (payer, _, quote) = funded_by_deposit(&server, None).await;
    let mut body = json!({ "quoteId": quote["id"], "currencyCode": "EUR" });
    for amount in [None, Some(100_000)] {
        if let Some(amount) = amount {
            body["currencyAmount"] = json!(amount);
        }
        payer.client.post("/sandbox/send", &body).await.refused(400, "INVALID_CURRENCY");
    }
    payer.client.stands_at(&quote, "PENDING", "PENDING").await;
    server.verify();
}

#[tokio::test]
async fn a_deposit_after_the_time_goes_to_the_internal_account() {
    // Before the timer: the transaction fails and is refunded.
    let server = Server::new();
    let (payer, _, quote) = funded_by_deposit(&server, None).await;
    server.clock.advance_millis(LIFETIME_MILLIS);
    let sent = payer.client.deposit(&quote, None).await.expect(200).clone();
    assert_eq!(
        (&sent["status"], &sent["failureReason"]),
        (&json!("REFUNDED"), &json!("QUOTE_EXPIRED"))
    );
    payer.client.stands_at(&quote, "EXPIRED", "REFUNDED").await;
    assert_eq!(payer.balance().await, 100_000);
    server.pass(1).await;
    payer.client.stands_at(&quote, "EXPIRED", "REFUNDED").await;
    server.verify();
    // After it: the transaction has ended, and the deposit is one of its own.
    let server = Server::new();
    let (payer, _, quote) = funded_by_deposit(&server, None).await;
    server.pass(LIFETIME_MILLIS).await;
    payer.client.stands_at(&quote, "EXPIRED", "EXPIRED").await;
    let before = payer.client.count("/transactions").await;
    payer.client.deposit(&quote, Some(77_000)).await.expect(200);
    payer.client.stands_at(&quote, "EXPIRED", "EXPIRED").await;
    assert_eq!(payer.balance().await, 77_000);
    assert_eq!(payer.client.count("/transactions").await, before + 1);
    let list = payer.client.get("/transactions?type=INCOMING").await.expect(200).clone();
    assert_eq!(list["data"][0]["status"], "COMPLETED");
    assert_eq!(list["data"][0]["receivedAmount"], usd(77_000));
    assert_eq!(list["data"][0]["destination"]["accountId"], payer.usd);
    let notified = server.notified_statuses(&list["data"][0]["id"]).await;
    assert_eq!(notified, ["PENDING", "PROCESSING", "COMPLETED"]);
    server.verify();
}

#[tokio::test]
async fn what_the_rail_refuses_of_a_deposit_goes_to_the_internal_account() {
    for (suffix, status, reason) in [
        ("002", "REFUNDED", [Some("QUOTE_EXECUTION_FAILED"), Some("INSUFFICIENT_FUNDS")]),
        ("003", "REFUNDED", [Some("QUOTE_EXECUTION_FAILED"), Some("ACCOUNT_INVALID")]),
        ("004", "REJECTED", [None, Some("REJECTED_BY_RECEIVER")]),
        ("005", "REFUNDED", [Some("QUOTE_EXECUTION_FAILED"), Some("TIMEOUT")]),
    ] {
        let server = Server::new();
        let (payer, _, quote) = funded_by_deposit(&server, Some(suffix)).await;
        let sent = payer.client.deposit(&quote, None).await.expect(200).clone();
        assert_eq!(sent["status"], "PROCESSING", "{suffix}");
        assert_eq!(payer.balance().await, 0, "{suffix}");
        server.pass(30_000).await;
        let transaction = payer.client.stands_at(&quote, "FAILED", status).await;
        assert_eq!(why(&transaction), reason, "{suffix}");
        assert_eq!(transaction["refund"]["status"], "COMPLETED", "{suffix}");
        assert_eq!(payer.balance().await, 100_000, "{suffix}");
        server.verify();
    }
    let server = Server::new();
    let (payer, _, quote) = funded_by_deposit(&server, Some("789")).await;
    payer.client.deposit(&quote, None).await.expect(200);
    server.pass(1_000).await;
    payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    assert_eq!(payer.balance().await, 0);
    server.verify();
}

#[tokio::test]
async fn a_deposit_is_for_a_quote_that_waits_for_one() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let quote = to_eur(&payer).await;
    payer.client.deposit(&quote, None).await.refused(400, "INVALID_INPUT");
    let unknown = json!({
        "quoteId": "Quote:0199dccc-4a80-7000-8000-000000000001",
        "currencyCode": "USD",
    });
    payer.client.post("/sandbox/send", &unknown).await.refused(404, "QUOTE_NOT_FOUND");
    let stranger = server.platform().await;
    let (_, _, waiting) = funded_by_deposit(&server, None).await;
    stranger.deposit(&waiting, None).await.refused(404, "QUOTE_NOT_FOUND");
    for (field, value, code) in [
        ("quoteId", json!("Quote:x"), "INVALID_INPUT"),
        ("quoteId", json!(7), "INVALID_INPUT"),
        ("currencyCode", json!("XXX"), "INVALID_CURRENCY"),
        ("currencyAmount", json!(0), "INVALID_AMOUNT"),
        ("currencyAmount", json!(-5), "INVALID_AMOUNT"),
    ] {
        let mut body = json!({ "quoteId": quote["id"], "currencyCode": "USD" });
        body[field] = value;
        payer.client.post("/sandbox/send", &body).await.refused(400, code);
    }
    server.verify();
}

#[tokio::test]
async fn money_that_came_for_a_customer_who_may_not_pay_is_given_back() {
    let server = Server::new();
    let (payer, _, quote) = funded_by_deposit(&server, None).await;
    payer.client.set_kyc(&payer.customer, "REJECTED").await;
    let sent = payer.client.deposit(&quote, None).await.expect(200).clone();
    assert_eq!(sent["status"], "REFUNDED");
    assert_eq!(sent["failureReason"], "QUOTE_EXECUTION_FAILED");
    payer.client.stands_at(&quote, "FAILED", "REFUNDED").await;
    assert_eq!(payer.balance().await, 100_000);
    server.verify();
}

#[tokio::test]
async fn a_currency_that_was_turned_off_is_off_for_open_quotes_too() {
    for (code, ways) in [("USD", ["INCOMING"]), ("EUR", ["OUTGOING"])] {
        let server = Server::new();
        let payer = Payer::with(&server, 100_000).await;
        let eur = payer.account("EUR").await;
        let now = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 50_000)).await;
        let source = deposit("USD", &payer.customer);
        let in_time = payer.client.quote(&sending(&source, &to(&eur), 50_000)).await;
        payer.client.allow_only(code, &ways).await;
        payer.client.execute(&now).await.refused(400, "INVALID_CURRENCY");
        payer.client.stands_at(&now, "PENDING", "PENDING").await;
        // Money that has come cannot be refused, only given back.
        payer.client.deposit(&in_time, None).await.expect(200);
        let sent = payer.client.stands_at(&in_time, "FAILED", "REFUNDED").await;
        assert_eq!(sent["failureReason"], "QUOTE_EXECUTION_FAILED");
        assert_eq!(payer.balance().await, 150_000);
        // What is on again is on again.
        payer.client.allow_only(code, &["INCOMING", "OUTGOING"]).await;
        payer.client.execute(&now).await.expect(200);
        server.verify();
    }
}

#[tokio::test]
async fn a_stablecoin_deposit_names_its_network() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for currency in ["USDC", "USDT"] {
        let mut source = deposit(currency, &payer.customer);
        let body = sending(&source, &to(&payer.usd), 9_000_000);
        let answer = payer.client.post("/quotes", &body).await;
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "source.cryptoNetwork");
        for network in ["NOWHERE", "LIGHTNING_MAINNET"] {
            source["cryptoNetwork"] = json!(network);
            let body = sending(&source, &to(&payer.usd), 9_000_000);
            let answer = payer.client.post("/quotes", &body).await;
            assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "source.cryptoNetwork");
        }
        source["cryptoNetwork"] = json!("SOLANA_MAINNET");
        let body = sending(&source, &to(&payer.usd), 9_000_000);
        let quote = payer.client.quote(&body).await;
        assert_eq!(quote["source"]["cryptoNetwork"], "SOLANA_MAINNET");
        // Only the ways that lead over it are shown, on the payment too.
        let transaction = payer.client.transaction_of(&quote).await;
        for shown in [&quote, &transaction] {
            let instructions = shown["paymentInstructions"].as_array().expect("a list");
            assert_eq!(instructions.len(), 1, "{instructions:?}");
            let info = &instructions[0]["accountOrWalletInfo"];
            assert_eq!(
                (&info["accountType"], &info["assetType"]),
                (&json!("SOLANA_WALLET"), &json!(currency))
            );
        }
        payer.client.deposit(&quote, None).await.expect(200);
    }
    let mut source = deposit("USD", &payer.customer);
    source["cryptoNetwork"] = json!("SOLANA_MAINNET");
    let answer = payer.client.post("/quotes", &sending(&source, &to(&payer.usd), 100)).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "source.cryptoNetwork");
    server.verify();
}

#[tokio::test]
async fn no_one_pays_itself() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let body = sending(&from(&payer.usd), &to(&payer.usd), 100);
    payer.client.post("/quotes", &body).await.refused(400, "SELF_PAYMENT");
    assert_eq!(payer.client.count("/quotes").await, 0);
    server.verify();
}

#[tokio::test]
async fn a_uma_address_needs_its_lookup() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let destination = json!({
        "destinationType": "UMA_ADDRESS",
        "umaAddress": "$ada@uma.test",
        "currency": "EUR",
    });
    let mut body = sending(&from(&payer.usd), &destination, 100);
    let answer = payer.client.post("/quotes", &body).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "lookupId");
    body["lookupId"] = json!("Lookup:0199dccc-4a80-7000-8000-000000000001");
    payer.client.post("/quotes", &body).await.refused(404, "LOOKUP_REQUEST_NOT_FOUND");
    body["lookupId"] = json!("x");
    payer.client.post("/quotes", &body).await.refused(400, "INVALID_INPUT");
    server.verify();
}

#[tokio::test]
async fn what_a_quote_is_for_is_one_of_a_list() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.account("EUR").await;
    let mut body = sending(&from(&payer.usd), &to(&eur), 100_000);
    for purpose in [
        "GIFT",
        "SELF",
        "GOODS_OR_SERVICES",
        "EDUCATION",
        "HEALTH_OR_MEDICAL",
        "REAL_ESTATE_PURCHASE",
        "TAX_PAYMENT",
        "LOAN_PAYMENT",
        "UTILITY_BILL",
        "DONATION",
        "TRAVEL",
        "OTHER",
    ] {
        body["purposeOfPayment"] = json!(purpose);
        payer.client.quote(&body).await;
    }
    for wrong in [json!("gift"), json!(""), json!("FUN"), json!(1)] {
        body["purposeOfPayment"] = wrong;
        let answer = payer.client.post("/quotes", &body).await;
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "purposeOfPayment");
    }
    server.verify();
}

#[tokio::test]
async fn what_a_quote_must_have_is_said() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.account("EUR").await;
    let good = sending(&from(&payer.usd), &to(&eur), 100_000);
    for field in ["source", "destination", "lockedCurrencySide"] {
        let mut body = good.clone();
        body.as_object_mut().expect("an object").remove(field);
        let answer = payer.client.post("/quotes", &body).await;
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], field);
    }
    let mut body = good.clone();
    body.as_object_mut().expect("an object").remove("lockedCurrencyAmount");
    payer.client.post("/quotes", &body).await.refused(400, "INVALID_AMOUNT");
    for (field, value, code) in [
        ("lockedCurrencyAmount", json!(0), "INVALID_AMOUNT"),
        ("lockedCurrencyAmount", json!(-1), "INVALID_AMOUNT"),
        ("lockedCurrencyAmount", json!(9_000_000_000_000_001_i64), "INVALID_AMOUNT"),
        ("lockedCurrencySide", json!("BOTH"), "INVALID_INPUT"),
        ("source", json!({ "sourceType": "CASH" }), "INVALID_INPUT"),
        ("source", json!({ "sourceType": "ACCOUNT" }), "INVALID_INPUT"),
        (
            "source",
            json!({ "sourceType": "REALTIME_FUNDING", "currency": "XXX" }),
            "INVALID_CURRENCY",
        ),
        ("destination", json!({ "destinationType": "ACCOUNT", "accountId": "x" }), "INVALID_INPUT"),
        ("immediatelyExecute", json!("yes"), "INVALID_INPUT"),
    ] {
        let mut body = good.clone();
        body[field] = value.clone();
        let answer = payer.client.post("/quotes", &body).await;
        answer.refused(400, code);
    }
    assert_eq!(payer.client.count("/quotes").await, 0);
    server.verify();
}

#[tokio::test]
async fn what_fees_would_take_is_refused() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let eur = payer.account("EUR").await;
    for amount in [1, 50, 51] {
        let body = sending(&from(&payer.usd), &to(&eur), amount);
        payer.client.post("/quotes", &body).await.refused(400, "AMOUNT_OUT_OF_RANGE");
    }
    let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 52)).await;
    assert_eq!(amount(&quote, "totalReceivingAmount"), 1);
    server.verify();
}

#[tokio::test]
async fn the_limits_of_the_configuration_bound_the_sending_side() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.account("EUR").await;
    payer.client.limit_usd(1_000, 2_000).await;
    for (side, amount) in
        [("SENDING", 999), ("SENDING", 2_001), ("RECEIVING", 700), ("RECEIVING", 2_000)]
    {
        let body = locked(side, &from(&payer.usd), &to(&eur), amount);
        let answer = payer.client.post("/quotes", &body).await;
        let details = answer.refused(400, "AMOUNT_OUT_OF_RANGE");
        assert_eq!(details["minAmount"], 1_000, "{side} {amount}");
    }
    for (side, amount) in [("SENDING", 1_000), ("SENDING", 2_000), ("RECEIVING", 1_000)] {
        payer.client.quote(&locked(side, &from(&payer.usd), &to(&eur), amount)).await;
    }
    // What is received is not bounded.
    let body = locked("SENDING", &from(&eur), &to(&payer.usd), 10_000_000);
    payer.client.quote(&body).await;
    server.verify();
}

#[tokio::test]
async fn unknown_accounts_and_those_of_others_are_not_found() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let stranger = Payer::with(&server, 1_000).await;
    let (eur, theirs) = (payer.account("EUR").await, stranger.bank("789").await);
    let unknown = "ExternalAccount:0199dccc-4a80-7000-8000-000000000001".to_owned();
    for (source, destination) in [
        (&stranger.usd, &eur),
        (&payer.usd, &stranger.usd),
        (&payer.usd, &theirs),
        (&payer.usd, &unknown),
        (&unknown, &eur),
    ] {
        let body = sending(&from(source), &to(destination), 500);
        payer.client.post("/quotes", &body).await.refused(404, "ACCOUNT_NOT_FOUND");
    }
    let unknown = "Customer:0199dccc-4a80-7000-8000-000000000001";
    let body = sending(&deposit("USD", unknown), &to(&eur), 500);
    payer.client.post("/quotes", &body).await.refused(404, "USER_NOT_FOUND");
    let body = sending(&deposit("USD", &stranger.customer), &to(&eur), 500);
    payer.client.post("/quotes", &body).await.refused(404, "USER_NOT_FOUND");
    let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 500)).await;
    stranger.client.execute(&quote).await.refused(404, "QUOTE_NOT_FOUND");
    let path = format!("/quotes/{}", text(&quote["id"]));
    stranger.client.get(&path).await.refused(404, "QUOTE_NOT_FOUND");
    for id in ["x", "Quote:x", "Quote:0199dccc-4a80-7000-8000-000000000001"] {
        payer.client.get(&format!("/quotes/{id}")).await.refused(404, "QUOTE_NOT_FOUND");
        let path = format!("/quotes/{id}/execute");
        let answer = payer.client.send("POST", &path, Call::default()).await;
        answer.refused(404, "QUOTE_NOT_FOUND");
    }
    server.verify();
}

#[tokio::test]
async fn customers_who_may_not_move_money_get_no_quote_and_execute_none() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let eur = payer.account("EUR").await;
    let body = sending(&from(&payer.usd), &to(&eur), 500);
    let quote = payer.client.quote(&body).await;
    payer.client.set_kyc(&payer.customer, "REJECTED").await;
    payer.client.post("/quotes", &body).await.refused(403, "USER_NOT_READY");
    payer.client.execute(&quote).await.refused(403, "USER_NOT_READY");
    payer.client.stands_at(&quote, "PENDING", "PENDING").await;
    payer.client.set_kyc(&payer.customer, "APPROVED").await;
    payer.client.execute(&quote).await.expect(200);
    server.verify();
}

#[tokio::test]
async fn no_one_is_paid_after_being_deleted() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let leaver = payer.client.customer().await;
    let eur = payer.client.account(Some(&leaver), "EUR").await;
    let bank = payer.client.usd_external(&leaver, "789").await;
    let own = payer.client.account(None, "USD").await;
    payer.client.fund(&own, 10_000).await;
    let to_account = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 500)).await;
    let to_bank = payer.client.quote(&sending(&from(&own), &to(&bank), 500)).await;
    let leaving = payer.client.account(Some(&leaver), "USD").await;
    let from_leaver = payer.client.quote(&sending(&from(&leaving), &to(&eur), 500)).await;
    payer.client.delete_customer(&leaver).await;
    for quote in [&to_account, &to_bank, &from_leaver] {
        payer.client.execute(quote).await.refused(410, "CUSTOMER_DELETED");
        payer.client.stands_at(quote, "PENDING", "PENDING").await;
    }
    for (source, destination) in [(&payer.usd, &eur), (&own, &bank), (&leaving, &eur)] {
        let body = sending(&from(source), &to(destination), 500);
        payer.client.post("/quotes", &body).await.refused(410, "CUSTOMER_DELETED");
    }
    server.pass(LIFETIME_MILLIS).await;
    payer.client.stands_at(&to_bank, "EXPIRED", "EXPIRED").await;
    assert_eq!(payer.balance().await, 10_000);
    server.verify();
}

/// The ids of a list's rows.
fn ids(answer: &Answer) -> Vec<String> {
    let rows = answer.expect(200)["data"].as_array().expect("rows").iter();
    rows.map(|row| text(&row["id"])).collect()
}

#[tokio::test]
async fn quotes_are_listed_by_every_filter() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let client = &payer.client;
    let eur = payer.account("EUR").await;
    let first = to_eur(&payer).await;
    server.clock.advance_millis(1_000);
    let bank = payer.bank("789").await;
    let second = client.quote(&sending(&from(&payer.usd), &to(&bank), 500)).await;
    server.clock.advance_millis(1_000);
    let own = client.account(None, "USD").await;
    let third = client.quote(&sending(&from(&own), &to(&eur), 500)).await;
    client.execute(&first).await.expect(200);
    let all = [&third, &second, &first];
    let of = |indexes: &[usize]| -> Vec<String> {
        indexes.iter().map(|index| text(&all[*index]["id"])).collect()
    };
    let platform = client.platform.to_string();
    for (query, expected) in [
        (String::new(), &[0, 1, 2][..]),
        (format!("customerId={}", payer.customer), &[1, 2]),
        (format!("customerId={platform}"), &[0]),
        (format!("sendingAccountId={}", payer.usd), &[1, 2]),
        (format!("sendingAccountId={own}"), &[0]),
        (format!("sendingAccountId={bank}"), &[]),
        (format!("receivingAccountId={eur}"), &[0, 2]),
        (format!("receivingAccountId={bank}"), &[1]),
        ("status=PENDING".to_owned(), &[0, 1]),
        ("status=COMPLETED".to_owned(), &[2]),
        ("status=FAILED".to_owned(), &[]),
        ("createdAfter=2025-10-13T09:00:01Z".to_owned(), &[0, 1]),
        ("createdBefore=2025-10-13T09:00:01Z".to_owned(), &[1, 2]),
        (
            "createdAfter=2025-10-13T11:00:01%2B02:00&createdBefore=2025-10-13T09:00:01Z"
                .to_owned(),
            &[1],
        ),
        ("createdAfter=2025-10-13T09:00:02.001Z".to_owned(), &[]),
        ("sendingUmaAddress=$ada@uma.test".to_owned(), &[]),
        ("receivingUmaAddress=$ada@uma.test".to_owned(), &[]),
        (format!("receivingAccountId={bank}&receivingUmaAddress=$ada@uma.test"), &[]),
        (format!("customerId={}&status=PENDING&receivingAccountId={bank}", payer.customer), &[1]),
    ] {
        let answer = client.get(&format!("/quotes?{query}")).await;
        assert_eq!(ids(&answer), of(expected), "{query}");
        assert_eq!(answer.body["totalCount"], expected.len(), "{query}");
        assert_eq!(answer.body["hasMore"], false, "{query}");
    }
    let page = client.get("/quotes?limit=2").await;
    assert_eq!((ids(&page), &page.body["hasMore"]), (of(&[0, 1]), &json!(true)));
    let cursor = text(&page.body["nextCursor"]);
    let page = client.get(&format!("/quotes?limit=2&cursor={cursor}")).await;
    assert_eq!((ids(&page), &page.body["hasMore"]), (of(&[2]), &json!(false)));
    for query in [
        "status=DONE",
        "customerId=x",
        "sendingAccountId=x",
        "receivingAccountId=x",
        "receivingUmaAddress=x",
        "createdAfter=yesterday",
        "createdBefore=2025-13-13T00:00:00Z",
        "limit=0",
        "limit=101",
        "limit=x",
        "cursor=x",
    ] {
        let answer = client.get(&format!("/quotes?{query}")).await;
        let field = query.split('=').next().expect("a name");
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], field);
    }
    let stranger = server.platform().await;
    assert!(ids(&stranger.get("/quotes").await).is_empty());
    stranger.get(&format!("/quotes?cursor={cursor}")).await.refused(400, "INVALID_INPUT");
    server.verify();
}

#[tokio::test]
async fn what_other_clients_send_along_is_taken() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let eur = payer.account("EUR").await;
    let mut body = sending(&from(&payer.usd), &to(&eur), 100_000);
    body["destination"]["currency"] = json!("EUR");
    body["senderCustomerInfo"] = json!({ "FULL_NAME": "Ada Lovelace" });
    let quote = payer.client.quote(&body).await;
    // Executing takes no body; one that is sent is not read.
    let path = format!("/quotes/{}/execute", text(&quote["id"]));
    let answer = payer.client.send("POST", &path, Call::raw("{ not JSON")).await;
    assert_eq!(answer.expect(200)["status"], "COMPLETED");
    server.verify();
}

#[tokio::test]
async fn a_currency_that_is_off_is_not_sent() {
    let server = Server::new();
    let payer = Payer::with(&server, 100_000).await;
    let (eur, bank) = (payer.account("EUR").await, payer.bank("789").await);
    payer.client.allow_only("USD", &["INCOMING"]).await;
    let body = sending(&from(&payer.usd), &to(&eur), 500);
    payer.client.post("/quotes", &body).await.refused(400, "INVALID_CURRENCY");
    let body = crate::pay::transfer(&payer.usd, &bank, 500);
    payer.client.post("/transfer-out", &body).await.refused(400, "INVALID_CURRENCY");
    let body = crate::pay::transfer(&bank, &payer.usd, 500);
    payer.client.post("/transfer-in", &body).await.expect(201);
    payer.client.quote(&sending(&from(&eur), &to(&payer.usd), 500)).await;
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn a_currency_for_outgoing_payments_is_paid_out_and_not_into_internal_accounts() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let eur = payer.client.funded(&payer.customer, "EUR", 100_000).await;
    let bank = payer.bank("789").await;
    for (way, internal, external) in [("OUTGOING", false, true), ("INCOMING", true, false)] {
        payer.client.allow_only("USD", &[way]).await;
        for (target, may) in [(&payer.usd, internal), (&bank, external)] {
            let body = sending(&from(&eur), &to(target), 500);
            let answer = payer.client.post("/quotes", &body).await;
            if may {
                answer.expect(201);
            } else {
                answer.refused(400, "INVALID_CURRENCY");
            }
        }
    }
    server.verify();
}

#[tokio::test]
async fn a_pulled_payment_that_cannot_be_delivered_goes_to_the_internal_account() {
    for (suffix, status) in [("003", "REFUNDED"), ("004", "REJECTED"), ("005", "REFUNDED")] {
        let server = Server::new();
        let payer = Payer::with(&server, 0).await;
        let (source, target) = (payer.bank("789").await, payer.bank(suffix).await);
        let quote = payer.client.quote(&sending(&from(&source), &to(&target), 700)).await;
        assert_eq!(payer.client.execute(&quote).await.expect(200)["status"], "PROCESSING");
        payer.client.execute(&quote).await.refused(409, "CONFLICT");
        let path = format!("/customers/{}", payer.customer);
        payer.client.delete(&path).await.refused(409, "CONFLICT");
        server.pass(1_000).await;
        server.verify();
        server.pass(40_000).await;
        let transaction = payer.client.stands_at(&quote, "FAILED", status).await;
        assert_eq!(transaction["refund"]["status"], "COMPLETED");
        assert_eq!(payer.balance().await, 700, "{suffix}");
        server.verify();
    }
}

#[tokio::test]
async fn a_wallet_cannot_be_the_source_and_an_account_cannot_pay_itself() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let body = crate::pay::usdc_wallet(&payer.customer, "abc");
    let wallet = payer.client.post("/customers/external-accounts", &body).await;
    let wallet = text(&wallet.expect(201)["id"]);
    let body = sending(&from(&wallet), &to(&payer.usd), 9_000_000);
    payer.client.post("/quotes", &body).await.refused(400, "INVALID_BANK_ACCOUNT");
    let bank = payer.bank("789").await;
    let body = sending(&from(&bank), &to(&bank), 500);
    payer.client.post("/quotes", &body).await.refused(400, "SELF_PAYMENT");
    let mut body = sending(&from(&bank), &to(&payer.usd), 500);
    body["immediatelyExecute"] = json!(true);
    let quote = payer.client.quote(&body).await;
    assert_eq!(quote["status"], "PROCESSING");
    server.pass(1_000).await;
    payer.client.stands_at(&quote, "COMPLETED", "COMPLETED").await;
    assert_eq!(payer.balance().await, 500);
    server.verify();
}
