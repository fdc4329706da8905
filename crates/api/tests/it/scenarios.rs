//! What steers the sandbox: accounts that are not what they should be, and rows of an operator's.

use serde_json::{Value, json};
use service::platforms;

use crate::pay::{Payer, sending, to, transfer};
use crate::support::{Server, text, usd_external};

/// Adds a bank account with this suffix.
async fn added(payer: &Payer, suffix: &str) -> Value {
    let body = usd_external(Some(&payer.customer), suffix);
    payer.client.post("/customers/external-accounts", &body).await.expect(201).clone()
}

/// The account as the list shows it.
async fn shown(payer: &Payer, account: &Value) -> Value {
    let path = format!("/customers/external-accounts?customerId={}", payer.customer);
    let list = payer.client.get(&path).await.expect(200).clone();
    let mut rows = list["data"].as_array().expect("rows").iter();
    rows.find(|row| row["id"] == account["id"]).expect("it is listed").clone()
}

#[tokio::test]
async fn the_beneficiary_is_checked_when_an_account_is_added() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    for (suffix, status, holder) in [
        ("789", "MATCHED", json!({ "fullName": "Ada Lovelace" })),
        ("102", "NOT_MATCHED", Value::Null),
        ("103", "PARTIAL_MATCH", json!({ "fullName": "A. Lovelace" })),
        ("104", "PENDING", Value::Null),
        ("106", "UNSUPPORTED", Value::Null),
        ("107", "CHECKED_BY_RECEIVING_FI", Value::Null),
    ] {
        let account = added(&payer, suffix).await;
        assert_eq!(account["beneficiaryVerificationStatus"], status, "{suffix}");
        assert_eq!(account["beneficiaryVerifiedData"], holder, "{suffix}");
        assert_eq!(shown(&payer, &account).await, account);
        // A name that does not match does not stop a payment.
        let out = transfer(&payer.usd, &text(&account["id"]), 1);
        payer.client.post("/transfer-out", &out).await.expect(201);
    }
    let wallet = crate::pay::usdc_wallet(&payer.customer, "102");
    let wallet = payer.client.post("/customers/external-accounts", &wallet).await;
    assert_eq!(wallet.expect(201)["beneficiaryVerificationStatus"], Value::Null);
    server.pass(1_000).await;
    server.verify();
}

#[tokio::test]
async fn an_account_that_the_bank_does_not_know_is_refused() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let body = usd_external(Some(&payer.customer), "105");
    let path = "/customers/external-accounts";
    let refused = payer.client.post_once(path, "k", &body).await;
    refused.refused(400, "INVALID_BANK_ACCOUNT");
    let again = payer.client.post_once(path, "k", &body).await;
    assert_eq!(again.bytes, refused.bytes);
    let details = json!({
        "destinationType": "EXTERNAL_ACCOUNT_DETAILS",
        "externalAccountDetails": body,
    });
    let quote = sending(&crate::pay::from(&payer.usd), &details, 100);
    payer.client.post("/quotes", &quote).await.refused(400, "INVALID_BANK_ACCOUNT");
    assert_eq!(payer.client.count(path).await, 0);
    server.verify();
}

#[tokio::test]
async fn a_bank_that_does_not_answer_is_asked_again() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let path = "/customers/external-accounts";
    let body = usd_external(Some(&payer.customer), "109");
    for _ in 0..2 {
        let refused = payer.client.post_once(path, "k", &body).await;
        refused.refused(500, "INTERNAL_ERROR");
    }
    assert_eq!(payer.client.count(path).await, 0);
    // Nothing was kept of it, not even the key.
    let good = usd_external(Some(&payer.customer), "110");
    payer.client.post_once(path, "k", &good).await.expect(201);
    server.verify();
}

#[tokio::test]
async fn accounts_change_with_time_and_only_active_ones_are_paid() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    for (suffix, before, after) in [
        ("181", "PENDING", "ACTIVE"),
        ("182", "UNDER_REVIEW", "ACTIVE"),
        ("183", "ACTIVE", "UNDER_REVIEW"),
        ("184", "ACTIVE", "INACTIVE"),
    ] {
        let account = added(&payer, suffix).await;
        let out = transfer(&payer.usd, &text(&account["id"]), 1);
        for status in [before, after] {
            assert_eq!(shown(&payer, &account).await["status"], status, "{suffix}");
            let answer = payer.client.post("/transfer-out", &out).await;
            if status == "ACTIVE" {
                answer.expect(201);
            } else {
                let details = answer.refused(400, "INVALID_BANK_ACCOUNT");
                assert_eq!(details["status"], status);
            }
            if status == before {
                // A payment under way is not stopped by what becomes of the account.
                let minute = json!({ "advanceBySeconds": 60 });
                payer.client.post("/sandbox/clock", &minute).await.expect(200);
                server.pass(0).await;
            }
        }
    }
    server.pass(1_000).await;
    assert_eq!(payer.client.count("/transactions?type=OUTGOING&status=COMPLETED").await, 4);
    server.verify();
}

#[tokio::test]
async fn a_rail_is_asked_before_about_what_arrives() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let rows = "[[payments]]\namount = 66600\ncurrency = 'EUR'\n\
                path = [{ state = 'NOT_TAKEN', reason = 'ACCOUNT_INVALID' }]\n";
    let set = platforms::set_rail_settings(&server.app, payer.client.platform, Some(rows.into()));
    set.await.expect("they are set");
    let body = json!({
        "customerId": payer.customer,
        "currency": "EUR",
        "accountInfo": {
            "accountType": "EUR_ACCOUNT",
            "iban": "DE89370400440532013000",
            "beneficiary": { "beneficiaryType": "INDIVIDUAL", "fullName": "Bo Berg" },
        },
    });
    let bank = payer.client.post("/customers/external-accounts", &body).await.expect(201).clone();
    let pay = async |side: &str, amount: i64| {
        let mut body = sending(&crate::pay::from(&payer.usd), &to(&text(&bank["id"])), amount);
        body["lockedCurrencySide"] = json!(side);
        body["immediatelyExecute"] = json!(true);
        payer.client.post("/quotes", &body).await
    };
    pay("RECEIVING", 66_600).await.refused(400, "INVALID_BANK_ACCOUNT");
    // 666.00 dollars are fewer euros, which the bank takes.
    pay("SENDING", 66_600).await.expect(201);
    server.verify();
}

#[tokio::test]
async fn an_account_that_is_inactive_can_be_added_again() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let first = added(&payer, "184").await;
    let path = "/customers/external-accounts";
    let body = usd_external(Some(&payer.customer), "184");
    payer.client.post(path, &body).await.refused(409, "CONFLICT");
    let minute = json!({ "advanceBySeconds": 60 });
    payer.client.post("/sandbox/clock", &minute).await.expect(200);
    server.pass(0).await;
    assert_eq!(shown(&payer, &first).await["status"], "INACTIVE");
    let second = payer.client.post(path, &body).await.expect(201).clone();
    assert_ne!(second["id"], first["id"]);
    let out = transfer(&payer.usd, &text(&second["id"]), 1);
    payer.client.post("/transfer-out", &out).await.expect(201);
    // It stands in the way of the next one, until it is inactive too.
    let again = payer.client.post(path, &body).await;
    assert_eq!(again.refused(409, "CONFLICT")["accountId"], second["id"]);
    payer.client.post("/sandbox/clock", &minute).await.expect(200);
    server.pass(0).await;
    let details =
        json!({ "destinationType": "EXTERNAL_ACCOUNT_DETAILS", "externalAccountDetails": body });
    let quote = sending(&crate::pay::from(&payer.usd), &details, 100);
    payer.client.post("/quotes", &quote).await.expect(201);
    assert_eq!(payer.client.count(path).await, 3);
    server.verify();
}

#[tokio::test]
async fn an_operators_rows_hold_at_once_and_for_one_platform() {
    let server = Server::new();
    let (payer, other) = (Payer::with(&server, 1_000).await, Payer::with(&server, 1_000).await);
    let rows = "[[payments]]\namount = 666\npath = [{ state = 'REFUSED' }]\n\
                [[accounts]]\nsuffix = '789'\npath = [{ verification = 'NOT_MATCHED' }]\n";
    let platform = payer.client.platform;
    // Another process of the same database, as an operator's command is.
    let operator = server.beside(7, ports::rails::Rails::none());
    let set = platforms::set_rail_settings(&operator, platform, Some(rows.into())).await;
    set.expect("they are set");
    let pay = async |payer: &Payer, bank: &Value, minor: i64| {
        let out = transfer(&payer.usd, &text(&bank["id"]), minor);
        let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
        server.pass(1_000).await;
        payer.client.transaction(&out["id"]).await["status"].clone()
    };
    let (bank, others) = (added(&payer, "789").await, added(&other, "789").await);
    assert_eq!(bank["beneficiaryVerificationStatus"], "NOT_MATCHED");
    assert_eq!(others["beneficiaryVerificationStatus"], "MATCHED");
    assert_eq!(pay(&payer, &bank, 666).await, "REJECTED");
    assert_eq!(pay(&payer, &bank, 5).await, "COMPLETED");
    assert_eq!(pay(&other, &others, 666).await, "COMPLETED");
    // The rows that come with the program stay behind them.
    let closed = added(&payer, "003").await;
    assert_eq!(pay(&payer, &closed, 5).await, "FAILED");
    let taken = platforms::set_rail_settings(&operator, platform, None).await;
    taken.expect("they are taken away");
    assert_eq!(pay(&payer, &bank, 666).await, "COMPLETED");
    server.verify();
}

#[tokio::test]
async fn a_payment_says_in_the_banks_own_words_why_it_was_not_made() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let rows = "[[payments]]\namount = 10\npath = [{ state = 'FAILED', \
                reason = 'ACCOUNT_INVALID', code = 'R03', text = 'No account' }]\n\
                [[payments]]\namount = 20\npath = [{ state = 'SETTLED', seconds = 60 }, \
                { state = 'RETURNED', code = 'AC04' }]\n";
    let platform = payer.client.platform;
    let set = platforms::set_rail_settings(&server.app, platform, Some(rows.into())).await;
    set.expect("they are set");
    let bank = added(&payer, "789").await;
    let paid = async |minor: i64| {
        let out = transfer(&payer.usd, &text(&bank["id"]), minor);
        let out = payer.client.post("/transfer-out", &out).await.expect(201).clone();
        server.pass(1_000).await;
        out["id"].clone()
    };
    let failed = payer.client.transaction(&paid(10).await).await;
    assert_eq!(failed["failureReason"], "OFFRAMP_FAILED");
    let reason = &failed["statusReason"];
    assert_eq!((&reason["code"], &reason["message"]), (&json!("R03"), &json!("No account")));
    let reference = text(&reason["reference"]);
    assert!(reference.starts_with("SBXO"), "{reference}");

    // A payment that was made keeps the reference, and shows it when it comes back.
    let id = paid(20).await;
    let made = payer.client.transaction(&id).await;
    assert_eq!((&made["status"], &made["statusReason"]), (&json!("COMPLETED"), &Value::Null));
    let key = domain::id::TransactionId::parse(&text(&id)).expect("an id");
    let kept = server.app.store().get::<domain::transaction::Transaction>(key).await;
    let kept = kept.expect("a read").expect("it is there");
    let kept = kept.rail_words().reference().expect("a reference").to_owned();
    server.pass(60_000).await;
    let back = payer.client.transaction(&id).await;
    let reason = &back["statusReason"];
    assert_eq!(back["status"], "REFUNDED");
    assert_eq!((&reason["code"], &reason["reference"]), (&json!("AC04"), &json!(kept)));
    assert_eq!(reason["message"], "the receiving institution sent the money back");
    server.verify();
}
