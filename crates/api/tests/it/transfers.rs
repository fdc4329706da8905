//! Transfers in one currency (specification 4.1; contract 6.11, 6.12).

use serde_json::{Value, json};

use crate::pay::{Payer, transfer, usd, usdc_wallet};
use crate::support::{START, Server, text, usd_external, why};

const SETTLED: &str = "2025-10-13T09:00:01.000Z";

#[tokio::test]
async fn a_transfer_out_shows_every_field_from_pending_to_completed() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let mut body = transfer(&payer.usd, &bank, 400);
    body["description"] = json!("rent");
    let answer = payer.client.post("/transfer-out", &body).await;
    let pending = answer.expect(201);
    let customer = payer.client.get(&format!("/customers/{}", payer.customer)).await;
    let reference = text(&pending["reconciliationInstructions"]["reference"]);
    let mut expected = json!({
        "id": pending["id"],
        "status": "PENDING",
        "type": "OUTGOING",
        "direction": "DEBIT",
        "source": { "sourceType": "ACCOUNT", "accountId": payer.usd, "currency": "USD" },
        "destination": { "destinationType": "ACCOUNT", "accountId": bank, "currency": "USD" },
        "customerId": payer.customer,
        "platformCustomerId": customer.expect(200)["platformCustomerId"],
        "sentAmount": usd(400),
        "receivedAmount": usd(400),
        "createdAt": START,
        "updatedAt": START,
        "description": "rent",
        "reconciliationInstructions": { "reference": reference },
    });
    assert_eq!(pending, &expected);
    assert_eq!(payer.client.transaction(&pending["id"]).await, expected);
    assert_eq!(payer.balance().await, 600);
    server.pass(1_000).await;
    expected["status"] = json!("COMPLETED");
    expected["updatedAt"] = json!(SETTLED);
    expected["settledAt"] = json!(SETTLED);
    assert_eq!(payer.client.transaction(&pending["id"]).await, expected);
    assert_eq!(payer.balance().await, 600);
    server.verify();
}

#[tokio::test]
async fn a_transfer_of_the_platform_itself_names_the_platform() {
    let server = Server::new();
    let client = server.platform().await;
    let account = client.account(None, "USD").await;
    client.fund(&account, 500).await;
    let bank = client.post("/platform/external-accounts", &usd_external(None, "789")).await;
    let bank = text(&bank.expect(201)["id"]);
    let transaction = client.post("/transfer-out", &transfer(&account, &bank, 500)).await;
    let transaction = transaction.expect(201);
    assert_eq!(transaction["customerId"], client.platform.to_string());
    assert_eq!(transaction["platformCustomerId"], client.platform.to_string());
    assert_eq!(client.balance(&account).await, 0);
    server.pass(1_000).await;
    assert_eq!(client.transaction(&transaction["id"]).await["status"], "COMPLETED");
    server.verify();
}

/// A transfer out to an account with this suffix: where it ends, and why.
async fn check_out(suffix: &str, status: &str, reason: [Option<&str>; 2], notified: &[&str]) {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank(suffix).await;
    let body = transfer(&payer.usd, &bank, 400);
    let pending = payer.client.post("/transfer-out", &body).await.expect(201).clone();
    assert_eq!((&pending["status"], payer.balance().await), (&json!("PENDING"), 600), "{suffix}");
    server.verify();
    server.pass(1_000).await;
    server.verify();
    server.pass(29_000).await;
    let ended = payer.client.transaction(&pending["id"]).await;
    assert_eq!(ended["status"], status, "{suffix}: {ended}");
    assert_eq!(why(&ended), reason, "{suffix}");
    for path in ["/transactions?type=OUTGOING", "/events?type=OUTGOING_PAYMENT&limit=100"] {
        let list = payer.client.get(path).await;
        let row = list.expect(200)["data"].as_array().and_then(|rows| rows.last()).cloned();
        let row = row.expect("a row");
        assert_eq!(why(row.get("data").unwrap_or(&row)), reason, "{suffix} {path}");
    }
    let is_completed = status == "COMPLETED";
    assert_eq!(ended["settledAt"].is_string(), is_completed, "{suffix}");
    assert_eq!(payer.balance().await, if is_completed { 600 } else { 1_000 }, "{suffix}");
    let refund = if is_completed {
        Value::Null
    } else {
        json!({
            "reference": ended["reconciliationInstructions"]["reference"],
            "status": "COMPLETED",
            "reason": "TRANSACTION_FAILED",
            "initiatedAt": ended["updatedAt"],
            "settledAt": ended["updatedAt"],
        })
    };
    assert_eq!(ended["refund"], refund, "{suffix}");
    assert_eq!(server.notified_statuses(&pending["id"]).await, notified, "{suffix}");
    server.pass(600_000).await;
    assert_eq!(payer.client.transaction(&pending["id"]).await, ended, "{suffix}");
    server.verify();
}

#[tokio::test]
async fn the_suffix_of_the_account_steers_a_transfer_out() {
    let completed = ["PENDING", "PROCESSING", "COMPLETED"];
    let failed = ["PENDING", "FAILED"];
    let late = ["PENDING", "PROCESSING", "FAILED"];
    check_out("002", "FAILED", [Some("OFFRAMP_FAILED"), Some("INSUFFICIENT_FUNDS")], &failed).await;
    check_out("003", "FAILED", [Some("OFFRAMP_FAILED"), Some("ACCOUNT_INVALID")], &failed).await;
    check_out("004", "REJECTED", [None, Some("REJECTED_BY_RECEIVER")], &["PENDING", "REJECTED"])
        .await;
    check_out("005", "FAILED", [Some("OFFRAMP_FAILED"), Some("TIMEOUT")], &late).await;
    check_out("006", "COMPLETED", [None, None], &completed).await;
    check_out("007", "COMPLETED", [None, None], &completed).await;
    check_out("001", "COMPLETED", [None, None], &completed).await;
}

#[tokio::test]
async fn a_transfer_that_times_out_is_under_way_for_thirty_seconds() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("005").await;
    let body = transfer(&payer.usd, &bank, 1_000);
    let transaction = payer.client.post("/transfer-out", &body).await.expect(201).clone();
    server.pass(29_999).await;
    assert_eq!(payer.client.transaction(&transaction["id"]).await["status"], "PROCESSING");
    assert_eq!(payer.balance().await, 0);
    server.pass(1).await;
    assert_eq!(payer.client.transaction(&transaction["id"]).await["status"], "FAILED");
    assert_eq!(payer.balance().await, 1_000);
    server.verify();
}

#[tokio::test]
async fn more_than_there_is_is_refused_and_leaves_nothing() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let before = payer.client.count("/transactions").await;
    let answer = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1_001)).await;
    let details = answer.refused(400, "INSUFFICIENT_BALANCE");
    assert_eq!(details["available"], 1_000);
    assert_eq!(details["needed"], 1_001);
    assert_eq!(details["accountId"], payer.usd);
    assert_eq!(payer.client.count("/transactions").await, before);
    assert_eq!(payer.balance().await, 1_000);
    payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1_000)).await.expect(201);
    let answer = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1)).await;
    answer.refused(400, "INSUFFICIENT_BALANCE");
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn an_amount_must_be_there_and_positive() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let amounts =
        [json!(0), json!(-1), json!(i64::MIN), json!(i64::MAX), json!(9_000_000_000_000_001_i64)];
    for path in ["/transfer-out", "/transfer-in"] {
        let (source, destination) =
            if path == "/transfer-out" { (&payer.usd, &bank) } else { (&bank, &payer.usd) };
        let mut body = transfer(source, destination, 1);
        for amount in &amounts {
            body["amount"] = amount.clone();
            let answer = payer.client.post(path, &body).await;
            assert_eq!(answer.refused(400, "INVALID_AMOUNT")["field"], "amount", "{amount}");
        }
        for wrong in [json!("1"), json!(1.5), json!(true), json!([1])] {
            body["amount"] = wrong.clone();
            let answer = payer.client.post(path, &body).await;
            assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "amount", "{wrong}");
        }
        body["amount"] = json!(null);
        payer.client.post(path, &body).await.refused(400, "INVALID_AMOUNT");
        body.as_object_mut().expect("an object").remove("amount");
        let answer = payer.client.post(path, &body).await;
        assert_eq!(answer.refused(400, "INVALID_AMOUNT")["field"], "amount");
    }
    assert_eq!(payer.balance().await, 1_000);
    server.verify();
}

#[tokio::test]
async fn both_sides_have_one_currency() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let eur = payer.account("EUR").await;
    let body = transfer(&eur, &bank, 1);
    payer.client.post("/transfer-out", &body).await.refused(400, "INVALID_CURRENCY");
    let body = transfer(&bank, &eur, 1);
    payer.client.post("/transfer-in", &body).await.refused(400, "INVALID_CURRENCY");
    for end in ["source", "destination"] {
        let mut body = transfer(&payer.usd, &bank, 1);
        for wrong in ["EUR", "usd", "XXX", ""] {
            body[end]["currency"] = json!(wrong);
            let answer = payer.client.post("/transfer-out", &body).await;
            answer.refused(400, "INVALID_CURRENCY");
        }
        body[end]["currency"] = json!("USD");
        payer.client.post("/transfer-out", &body).await.expect(201);
    }
    server.verify();
}

#[tokio::test]
async fn a_customers_money_leaves_through_its_own_accounts_only() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let other = payer.client.customer().await;
    let bank = payer.client.usd_external(&other, "789").await;
    let answer = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1)).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "destination.accountId");
    let answer = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 1)).await;
    assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], "source.accountId");
    assert_eq!(payer.balance().await, 1_000);
    server.verify();
}

#[tokio::test]
async fn the_money_of_a_deleted_customer_does_not_move() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let bank = payer.bank("789").await;
    payer.client.delete_customer(&payer.customer).await;
    let answer = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1)).await;
    assert_eq!(answer.refused(410, "CUSTOMER_DELETED")["customerId"], payer.customer);
    let answer = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 1)).await;
    answer.refused(410, "CUSTOMER_DELETED");
    server.verify();
}

#[tokio::test]
async fn no_one_is_paid_through_the_account_of_a_deleted_customer() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let bank = payer.bank("789").await;
    let own = payer.client.account(None, "USD").await;
    payer.client.fund(&own, 1_000).await;
    payer.client.delete_customer(&payer.customer).await;
    let answer = payer.client.post("/transfer-out", &transfer(&own, &bank, 1)).await;
    answer.refused(410, "CUSTOMER_DELETED");
    let answer = payer.client.post("/transfer-in", &transfer(&bank, &own, 1)).await;
    answer.refused(410, "CUSTOMER_DELETED");
    assert_eq!(payer.client.balance(&own).await, 1_000);
    server.verify();
}

#[tokio::test]
async fn a_customer_whose_identity_is_not_approved_cannot_pay() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    for status in ["PENDING_REVIEW", "REJECTED"] {
        payer.client.set_kyc(&payer.customer, status).await;
        for (path, body) in [
            ("/transfer-out", transfer(&payer.usd, &bank, 1)),
            ("/transfer-in", transfer(&bank, &payer.usd, 1)),
        ] {
            let answer = payer.client.post(path, &body).await;
            assert_eq!(answer.refused(403, "USER_NOT_READY")["kycStatus"], status);
        }
    }
    payer.client.set_kyc(&payer.customer, "APPROVED").await;
    let body = transfer(&payer.usd, &bank, 1);
    payer.client.post("/transfer-out", &body).await.expect(201);
    server.verify();
}

#[tokio::test]
async fn the_limits_of_the_configuration_bound_what_is_sent() {
    let server = Server::new();
    let payer = Payer::with(&server, 10_000).await;
    let bank = payer.bank("789").await;
    payer.client.limit_usd(100, 500).await;
    for amount in [1, 99, 501] {
        let body = transfer(&payer.usd, &bank, amount);
        let answer = payer.client.post("/transfer-out", &body).await;
        let details = answer.refused(400, "AMOUNT_OUT_OF_RANGE");
        assert_eq!((&details["minAmount"], &details["maxAmount"]), (&json!(100), &json!(500)));
    }
    for amount in [100, 500] {
        let body = transfer(&payer.usd, &bank, amount);
        payer.client.post("/transfer-out", &body).await.expect(201);
    }
    server.verify();
}

#[tokio::test]
async fn unknown_accounts_and_those_of_others_are_not_found() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let stranger = Payer::with(&server, 1_000).await;
    let strange_bank = stranger.bank("789").await;
    let unknown = |id: &str| format!("{}1{}", &id[..id.len() - 8], &id[id.len() - 7..]);
    for (source, destination) in [
        (unknown(&payer.usd), bank.clone()),
        (payer.usd.clone(), unknown(&bank)),
        (stranger.usd.clone(), bank.clone()),
        (payer.usd.clone(), strange_bank.clone()),
    ] {
        let out = payer.client.post("/transfer-out", &transfer(&source, &destination, 1)).await;
        out.refused(404, "ACCOUNT_NOT_FOUND");
        let back = payer.client.post("/transfer-in", &transfer(&destination, &source, 1)).await;
        back.refused(404, "ACCOUNT_NOT_FOUND");
    }
    for (source, destination) in [
        (bank.clone(), payer.usd.clone()),
        (payer.usd.clone(), payer.usd.clone()),
        ("InternalAccount:x".to_owned(), bank.clone()),
        (String::new(), bank.clone()),
    ] {
        let answer = payer.client.post("/transfer-out", &transfer(&source, &destination, 1)).await;
        answer.refused(400, "INVALID_INPUT");
    }
    assert_eq!((payer.balance().await, stranger.balance().await), (1_000, 1_000));
    server.verify();
}

#[tokio::test]
async fn an_account_that_is_not_active_cannot_be_used() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    // The bank of the sandbox looks at this account for a minute.
    let bank = payer.bank("182").await;
    let answer = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1)).await;
    assert_eq!(answer.refused(400, "INVALID_BANK_ACCOUNT")["status"], "UNDER_REVIEW");
    let answer = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 1)).await;
    assert_eq!(answer.refused(400, "INVALID_BANK_ACCOUNT")["status"], "UNDER_REVIEW");
    assert_eq!(payer.balance().await, 1_000);
    server.verify();
}

#[tokio::test]
async fn a_transfer_in_is_available_when_it_is_completed() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let bank = payer.bank("789").await;
    let answer = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 700)).await;
    let pending = answer.expect(201);
    let mut expected = json!({
        "id": pending["id"],
        "status": "PENDING",
        "type": "INCOMING",
        "direction": "CREDIT",
        "source": { "sourceType": "ACCOUNT", "accountId": bank, "currency": "USD" },
        "destination": { "destinationType": "ACCOUNT", "accountId": payer.usd, "currency": "USD" },
        "customerId": payer.customer,
        "platformCustomerId": pending["platformCustomerId"],
        "receivedAmount": usd(700),
        "createdAt": START,
        "updatedAt": START,
        "reconciliationInstructions": pending["reconciliationInstructions"],
    });
    assert_eq!(pending, &expected);
    assert_eq!(payer.balance().await, 0);
    let out = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 1)).await;
    out.refused(400, "INSUFFICIENT_BALANCE");
    server.pass(100).await;
    assert_eq!(payer.client.transaction(&pending["id"]).await["status"], "PENDING");
    assert_eq!(payer.balance().await, 0);
    server.pass(900).await;
    expected["status"] = json!("COMPLETED");
    expected["updatedAt"] = json!(SETTLED);
    expected["settledAt"] = json!(SETTLED);
    assert_eq!(payer.client.transaction(&pending["id"]).await, expected);
    assert_eq!(payer.balance().await, 700);
    payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 700)).await.expect(201);
    server.verify();
}

#[tokio::test]
async fn a_transfer_in_that_fails_brings_nothing() {
    for (suffix, status, reason) in [
        ("002", "FAILED", [Some("OFFRAMP_FAILED"), Some("INSUFFICIENT_FUNDS")]),
        ("003", "FAILED", [Some("OFFRAMP_FAILED"), Some("ACCOUNT_INVALID")]),
        ("004", "REJECTED", [None, Some("DEBIT_REJECTED")]),
        ("005", "FAILED", [Some("OFFRAMP_FAILED"), Some("TIMEOUT")]),
    ] {
        let server = Server::new();
        let payer = Payer::with(&server, 5).await;
        let bank = payer.bank(suffix).await;
        let answer = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 700)).await;
        let id = answer.expect(201)["id"].clone();
        server.pass(30_000).await;
        let ended = payer.client.transaction(&id).await;
        assert_eq!(ended["status"], status, "{suffix}");
        assert_eq!(why(&ended), reason, "{suffix}");
        assert!(ended["refund"].is_null(), "nothing had come");
        assert_eq!(payer.balance().await, 5);
        server.verify();
    }
}

#[tokio::test]
async fn wallets_cannot_be_pulled_from() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let body = usdc_wallet(&payer.customer, "abc");
    let wallet = payer.client.post("/customers/external-accounts", &body).await;
    let wallet = text(&wallet.expect(201)["id"]);
    let usdc = payer.account("USDC").await;
    let answer = payer.client.post("/transfer-in", &transfer(&wallet, &usdc, 1)).await;
    assert_eq!(answer.refused(400, "INVALID_BANK_ACCOUNT")["accountId"], wallet);
    payer.client.fund(&usdc, 2_000_000).await;
    payer.client.post("/transfer-out", &transfer(&usdc, &wallet, 2_000_000)).await.expect(201);
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn an_account_never_holds_more_than_it_may_with_what_is_on_its_way() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let bank = payer.bank("789").await;
    let most = 9_000_000_000_000_000_i64;
    payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, most)).await.expect(201);
    let answer = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 1)).await;
    assert_eq!(answer.refused(400, "AMOUNT_OUT_OF_RANGE")["maxBalance"], most);
    server.pass(1_000).await;
    assert_eq!(payer.balance().await, most);
    server.verify();
}

#[tokio::test]
async fn customers_cannot_be_deleted_while_their_money_moves() {
    let server = Server::new();
    let payer = Payer::with(&server, 100).await;
    let bank = payer.bank("789").await;
    payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 100)).await.expect(201);
    let path = format!("/customers/{}", payer.customer);
    payer.client.delete(&path).await.refused(409, "CONFLICT");
    server.pass(1_000).await;
    payer.client.delete(&path).await.expect(200);
    server.verify();
}

#[tokio::test]
async fn the_limits_of_the_platform_bind_what_is_pulled_in() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let bank = payer.bank("789").await;
    payer.client.limit_usd(1_000, 2_000).await;
    let pull = async |amount: i64| {
        payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, amount)).await
    };
    for amount in [999, 2_001] {
        let answer = pull(amount).await;
        let details = answer.refused(400, "AMOUNT_OUT_OF_RANGE");
        assert_eq!((&details["minAmount"], &details["maxAmount"]), (&json!(1_000), &json!(2_000)));
        assert_eq!(details["errors"][0]["field"], "amount");
    }
    pull(1_000).await.expect(201);
    pull(2_000).await.expect(201);
    server.pass(1_000).await;
    assert_eq!(payer.balance().await, 3_000);
    server.verify();
}
