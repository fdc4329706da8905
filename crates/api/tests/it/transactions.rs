//! The list of transactions (specification 2.3, 4.14; contract 6.10).

use serde_json::{Value, json};

use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Answer, Server, text};

fn ids(answer: &Answer) -> Vec<String> {
    let rows = answer.expect(200)["data"].as_array().expect("rows").iter();
    rows.map(|row| text(&row["id"])).collect()
}

/// Five transactions, a second apart, oldest first: a deposit, a transfer out, a transfer in, a
/// quote that is never executed, and a deposit of the platform's own.
async fn five(server: &Server, payer: &Payer, bank: &str, eur: &str) -> Vec<Value> {
    let client = &payer.client;
    client.fund(&payer.usd, 1_000).await;
    let deposit = client.get("/transactions").await.expect(200)["data"][0].clone();
    server.clock.advance_millis(1_000);
    let out = client.post("/transfer-out", &transfer(&payer.usd, bank, 400)).await;
    server.clock.advance_millis(1_000);
    let back = client.post("/transfer-in", &transfer(bank, &payer.usd, 300)).await;
    server.pass(1_000).await;
    let quote = client.quote(&sending(&from(&payer.usd), &to(eur), 500)).await;
    let quoted = client.transaction_of(&quote).await;
    server.clock.advance_millis(1_000);
    let own = client.account(None, "USD").await;
    client.fund(&own, 9).await;
    let last = client.get("/transactions").await.expect(200)["data"][0].clone();
    vec![deposit, out.expect(201).clone(), back.expect(201).clone(), quoted, last]
}

#[tokio::test]
async fn transactions_are_listed_by_every_filter_in_both_orders() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let client = &payer.client;
    let (bank, eur) = (payer.bank("789").await, payer.account("EUR").await);
    let all = five(&server, &payer, &bank, &eur).await;
    let of = |indexes: &[usize]| -> Vec<String> {
        indexes.iter().map(|index| text(&all[*index]["id"])).collect()
    };
    let platform = client.platform.to_string();
    let own = client.account(None, "USD").await;
    let name = text(&all[0]["platformCustomerId"]);
    let reference = text(&all[2]["reconciliationInstructions"]["reference"]);
    for (query, expected) in [
        (String::new(), &[0, 1, 2, 3, 4][..]),
        (format!("customerId={}", payer.customer), &[0, 1, 2, 3]),
        (format!("customerId={platform}"), &[4]),
        ("customerId=Customer:0199dccc-4a80-7000-8000-000000010000".to_owned(), &[]),
        (format!("platformCustomerId={name}"), &[0, 1, 2, 3]),
        (format!("platformCustomerId={platform}"), &[4]),
        ("platformCustomerId=unknown".to_owned(), &[]),
        (format!("senderAccountIdentifier={}", payer.usd), &[1, 3]),
        (format!("senderAccountIdentifier={bank}"), &[2]),
        (format!("receiverAccountIdentifier={}", payer.usd), &[0, 2]),
        (format!("receiverAccountIdentifier={bank}"), &[1]),
        (format!("receiverAccountIdentifier={eur}"), &[3]),
        (format!("accountIdentifier={bank}"), &[1, 2]),
        (format!("accountIdentifier={}", payer.usd), &[0, 1, 2, 3]),
        (format!("accountIdentifier={own}"), &[4]),
        ("status=COMPLETED".to_owned(), &[0, 1, 2, 4]),
        ("status=PENDING".to_owned(), &[3]),
        ("status=CREATED".to_owned(), &[]),
        ("type=INCOMING".to_owned(), &[0, 2, 4]),
        ("type=OUTGOING".to_owned(), &[1, 3]),
        (format!("reference={reference}"), &[2]),
        ("reference=REF-1".to_owned(), &[]),
        // Both ends are inclusive, to the millisecond and in any time zone.
        ("startDate=2025-10-13T09:00:01.000Z".to_owned(), &[1, 2, 3, 4]),
        ("startDate=2025-10-13T09:00:01.001Z".to_owned(), &[2, 3, 4]),
        ("endDate=2025-10-13T09:00:01Z".to_owned(), &[0, 1]),
        ("endDate=2025-10-13T09:00:00.999Z".to_owned(), &[0]),
        (
            "startDate=2025-10-13T11:00:01%2B02:00&endDate=2025-10-13T04:00:02-05:00".to_owned(),
            &[1, 2],
        ),
        (format!("type=OUTGOING&status=COMPLETED&customerId={}", payer.customer), &[1]),
    ] {
        for order in ["asc", "desc"] {
            let mut expected = of(expected);
            if order == "desc" {
                expected.reverse();
            }
            let answer = client.get(&format!("/transactions?{query}&sortOrder={order}")).await;
            assert_eq!(ids(&answer), expected, "{query} {order}");
            assert_eq!(answer.body["totalCount"], expected.len(), "{query}");
            assert_eq!(answer.body["hasMore"], false, "{query}");
            assert!(answer.body["nextCursor"].is_null(), "{query}");
        }
    }
    let newest_first = client.get("/transactions").await;
    assert_eq!(ids(&newest_first), of(&[4, 3, 2, 1, 0]), "the order when none is asked for");
    // A row of the list is the same as the transaction by itself.
    for row in newest_first.body["data"].as_array().expect("rows") {
        assert_eq!(&client.transaction(&row["id"]).await, row);
    }
    server.verify();
}

#[tokio::test]
async fn pages_join_without_gaps_in_both_orders() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for amount in 1..=7 {
        // All within one millisecond: the order is that of the ids.
        payer.client.fund(&payer.usd, amount).await;
    }
    for (order, amounts) in
        [("asc", vec![1, 2, 3, 4, 5, 6, 7]), ("desc", vec![7, 6, 5, 4, 3, 2, 1])]
    {
        for limit in [1, 2, 3, 7, 100] {
            let first = format!("/transactions?sortOrder={order}&limit={limit}");
            let (mut path, mut found) = (first.clone(), Vec::new());
            loop {
                let page = payer.client.get(&path).await.expect(200).clone();
                let rows = page["data"].as_array().expect("rows");
                assert!(rows.len() <= limit);
                assert_eq!(page["totalCount"], 7);
                found.extend(rows.iter().map(|row| row["receivedAmount"]["amount"].clone()));
                let has_more = found.len() < 7;
                assert_eq!(page["hasMore"], has_more);
                let Some(cursor) = page["nextCursor"].as_str() else { break };
                assert!(has_more);
                // What arrives in the meantime does not move the pages that follow downwards.
                path = format!("{first}&cursor={cursor}");
            }
            assert_eq!(json!(found), json!(amounts), "{order} {limit}");
        }
    }
    server.verify();
}

#[tokio::test]
async fn new_rows_do_not_move_the_pages_behind_a_cursor() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    for amount in 1..=4 {
        payer.client.fund(&payer.usd, amount).await;
    }
    let page = payer.client.get("/transactions?limit=2").await.expect(200).clone();
    payer.client.fund(&payer.usd, 5).await;
    let cursor = text(&page["nextCursor"]);
    let page = payer.client.get(&format!("/transactions?limit=2&cursor={cursor}")).await;
    let amounts: Vec<_> = page.expect(200)["data"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["receivedAmount"]["amount"].clone())
        .collect();
    assert_eq!(json!(amounts), json!([2, 1]));
    // A cursor is for its list, its order and its platform.
    let path = format!("/transactions?sortOrder=asc&cursor={cursor}");
    payer.client.get(&path).await.refused(400, "INVALID_INPUT");
    payer.client.get(&format!("/quotes?cursor={cursor}")).await.refused(400, "INVALID_INPUT");
    let stranger = server.platform().await;
    let path = format!("/transactions?cursor={cursor}");
    stranger.get(&path).await.refused(400, "INVALID_INPUT");
    server.verify();
}

#[tokio::test]
async fn bad_questions_are_refused_with_the_field() {
    let server = Server::new();
    let client = server.platform().await;
    for query in [
        "status=DONE",
        "status=completed",
        "type=BOTH",
        "customerId=x",
        "customerId=Quote:0199dccc-4a80-7000-8000-000000000001",
        "senderAccountIdentifier=x",
        "receiverAccountIdentifier=x",
        "accountIdentifier=Customer:0199dccc-4a80-7000-8000-000000000001",
        "startDate=yesterday",
        "startDate=2025-10-13",
        "endDate=2025-02-30T00:00:00Z",
        "limit=0",
        "limit=101",
        "limit=-1",
        "limit=ten",
        "cursor=x",
        "cursor=",
        "sortOrder=up",
        "sortOrder=ASC",
    ] {
        let answer = client.get(&format!("/transactions?{query}")).await;
        let field = query.split('=').next().expect("a name");
        assert_eq!(answer.refused(400, "INVALID_INPUT")["field"], field, "{query}");
    }
    let answer = client.get("/transactions?limit=0&status=DONE&startDate=x").await;
    let errors = answer.refused(400, "INVALID_INPUT")["errors"].as_array().expect("errors").len();
    assert_eq!(errors, 3, "all are named at once");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let server = Server::new();
    let payer = Payer::with(&server, 5).await;
    let stranger = server.platform().await;
    let list = payer.client.get("/transactions").await.expect(200).clone();
    let id = text(&list["data"][0]["id"]);
    let answer = stranger.get(&format!("/transactions/{id}")).await;
    assert_eq!(answer.refused(404, "TRANSACTION_NOT_FOUND")["transactionId"], id);
    assert_eq!(stranger.count("/transactions").await, 0);
    let uuid = id.trim_start_matches("Transaction:");
    for wrong in [
        "x",
        uuid,
        "Transaction:",
        "Transaction:x",
        "Transaction:0199dccc-4a80-7000-8000-000000000001",
        &format!("Quote:{uuid}"),
        &format!("{id}0"),
        &format!("%20{id}"),
        &"y".repeat(1_000),
    ] {
        let answer = payer.client.get(&format!("/transactions/{wrong}")).await;
        answer.refused(404, "TRANSACTION_NOT_FOUND");
    }
}

#[tokio::test]
async fn a_uma_address_is_an_account_identifier_that_matches_nothing_yet() {
    let server = Server::new();
    let client = server.platform().await;
    for name in ["accountIdentifier", "senderAccountIdentifier", "receiverAccountIdentifier"] {
        let list = client.get(&format!("/transactions?{name}=$ada@uma.test")).await;
        assert_eq!(list.expect(200)["totalCount"], 0, "{name}");
    }
}
