//! A platform is notified of every change (specification 6; reliability 2.4). The checks of
//! numbers, ids and envelopes are in `Server::notified`.

use std::collections::BTreeSet;

use domain::event::{EventKind, EventNames};
use serde_json::{Value, json};
use service::platforms;

use crate::pay::{Payer, deposit, from, sending, to, transfer};
use crate::support::{Server, text};

/// Runs the clock in small steps and compares what is notified with what is shown, at every change.
async fn watch(server: &Server, payer: &Payer, id: &Value, expected: &[&str]) {
    let mut shown = vec![payer.client.transaction(id).await];
    for _ in 0..64 {
        server.pass(500).await;
        let now = payer.client.transaction(id).await;
        if shown.last() != Some(&now) {
            shown.push(now);
        }
    }
    let notified = server.notified(id).await;
    let statuses: Vec<_> = notified.iter().map(|data| data["status"].clone()).collect();
    assert_eq!(statuses, expected);
    for data in &shown {
        assert!(notified.contains(data), "shown but never notified: {data}");
    }
    assert_eq!(notified.last(), shown.last());
    assert_eq!(server.notified(id).await, notified, "the same again");
}

#[tokio::test]
async fn every_change_of_a_transfer_is_notified_as_it_is_shown() {
    for (suffix, expected) in [
        ("789", &["PENDING", "PROCESSING", "COMPLETED"][..]),
        ("003", &["PENDING", "FAILED"]),
        ("004", &["PENDING", "REJECTED"]),
        ("005", &["PENDING", "PROCESSING", "FAILED"]),
    ] {
        let server = Server::new();
        let payer = Payer::with(&server, 1_000).await;
        let bank = payer.bank(suffix).await;
        let out = payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 400)).await;
        assert_eq!(&server.notified(&out.body["id"]).await[0], out.expect(201));
        watch(&server, &payer, &out.body["id"], expected).await;
        let back = payer.client.post("/transfer-in", &transfer(&bank, &payer.usd, 400)).await;
        assert_eq!(&server.notified(&back.body["id"]).await[0], back.expect(201));
        watch(&server, &payer, &back.body["id"], expected).await;
        server.verify();
    }
}

#[tokio::test]
async fn every_change_of_a_quotes_payment_is_notified_as_it_is_shown() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let eur = payer.account("EUR").await;
    let body = sending(&from(&payer.usd), &to(&eur), 100_000);
    let quote = payer.client.quote(&body).await;
    let pending = payer.client.transaction_of(&quote).await;
    payer.client.execute(&quote).await.expect(200);
    assert_eq!(server.notified(&quote["transactionId"]).await[0], pending);
    let done = ["PENDING", "PROCESSING", "COMPLETED"];
    watch(&server, &payer, &quote["transactionId"], &done).await;
    for (suffix, expected) in [
        ("789", &done[..]),
        ("003", &["PENDING", "PROCESSING", "FAILED"]),
        ("004", &["PENDING", "PROCESSING", "REJECTED"]),
    ] {
        let bank = payer.bank(suffix).await;
        let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&bank), 400)).await;
        payer.client.execute(&quote).await.expect(200);
        watch(&server, &payer, &quote["transactionId"], expected).await;
    }
    let source = deposit("USD", &payer.customer);
    for (amount, expected) in [(400, &done[..]), (401, &["PENDING", "FAILED", "REFUNDED"])] {
        let quote = payer.client.quote(&sending(&source, &to(&payer.usd), 400)).await;
        payer.client.deposit(&quote, Some(amount)).await.expect(200);
        watch(&server, &payer, &quote["transactionId"], expected).await;
    }
    let quote = payer.client.quote(&body).await;
    server.pass(300_000).await;
    watch(&server, &payer, &quote["transactionId"], &["PENDING", "EXPIRED"]).await;
    server.verify();
}

#[tokio::test]
async fn what_is_refused_tells_nothing() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let (bank, eur) = (payer.bank("789").await, payer.account("EUR").await);
    let body = transfer(&payer.usd, &bank, 400);
    payer.client.post("/transfer-out", &body).await.refused(400, "INSUFFICIENT_BALANCE");
    let quote = payer.client.quote(&sending(&from(&payer.usd), &to(&eur), 100_000)).await;
    payer.client.execute(&quote).await.refused(400, "INSUFFICIENT_BALANCE");
    assert_eq!(server.notified_statuses(&quote["transactionId"]).await, ["PENDING"]);
    server.verify();
}

/// The names of a platform's events, each with the status that its resource has in it.
async fn named(payer: &Payer) -> BTreeSet<(String, String)> {
    let feed = payer.client.get("/events?limit=100").await.expect(200).clone();
    assert_eq!(feed["hasMore"], false, "one page has them all");
    let events = feed["data"].as_array().expect("a list").iter();
    events
        .map(|event| {
            let data = &event["data"];
            let status = ["status", "kycStatus"].iter().find_map(|name| data[name].as_str());
            (text(&event["type"]), status.unwrap_or_default().to_owned())
        })
        .collect()
}

#[tokio::test]
async fn events_are_named_with_their_state_where_the_operator_wants_it() {
    let server = Server::new();
    let payer = Payer::with(&server, 0).await;
    let client = &payer.client;
    let platform = client.platform;
    assert!(named(&payer).await.is_empty());
    client.fund(&payer.usd, 1_000).await;
    let plain = named(&payer).await;
    assert!(plain.contains(&("INCOMING_PAYMENT".to_owned(), "COMPLETED".to_owned())), "{plain:?}");
    let names = EventNames::Dotted;
    platforms::set_event_names(&server.app, platform, names).await.expect("a change");

    client.fund(&payer.usd, 100_000).await;
    for suffix in ["789", "003", "004"] {
        let bank = payer.bank(suffix).await;
        client.post("/transfer-out", &transfer(&payer.usd, &bank, 400)).await.expect(201);
    }
    let source = deposit("USD", &payer.customer);
    let quote = client.quote(&sending(&source, &to(&payer.usd), 400)).await;
    client.deposit(&quote, Some(401)).await.expect(200);
    client.quote(&sending(&source, &to(&payer.usd), 400)).await;
    let invitation = json!({ "inviterUma": client.uma_address(&payer.customer).await });
    let invitation = client.post("/invitations", &invitation).await.expect(201).clone();
    let invitee = client.customer().await;
    let claim = json!({ "inviteeUma": client.uma_address(&invitee).await });
    let path = format!("/invitations/{}/claim", text(&invitation["code"]));
    client.post(&path, &claim).await.expect(200);
    client.set_kyc(&invitee, "REJECTED").await;
    client.patch("/config", &json!({ "webhookEndpoint": "https://hooks.test/" })).await.expect(200);
    server.pass(600_000).await;

    let dotted: BTreeSet<_> = named(&payer).await.difference(&plain).cloned().collect();
    let expected = [
        ("CUSTOMER.KYC_REJECTED", "REJECTED"),
        ("INCOMING_PAYMENT.COMPLETED", "COMPLETED"),
        ("INCOMING_PAYMENT.PENDING", "PENDING"),
        ("INCOMING_PAYMENT.PROCESSING", "PROCESSING"),
        ("INTERNAL_ACCOUNT.BALANCE_UPDATED", "OPEN"),
        ("INVITATION.CLAIMED", "CLAIMED"),
        ("OUTGOING_PAYMENT.COMPLETED", "COMPLETED"),
        ("OUTGOING_PAYMENT.EXPIRED", "EXPIRED"),
        ("OUTGOING_PAYMENT.FAILED", "FAILED"),
        ("OUTGOING_PAYMENT.FAILED", "REJECTED"),
        ("OUTGOING_PAYMENT.PENDING", "PENDING"),
        ("OUTGOING_PAYMENT.PROCESSING", "PROCESSING"),
        ("OUTGOING_PAYMENT.REFUND_COMPLETED", "REFUNDED"),
        ("TEST", ""),
    ];
    let owned = |(name, status): (&str, &str)| (name.to_owned(), status.to_owned());
    assert_eq!(dotted, expected.into_iter().map(owned).collect());
    // A filter goes by the kind, however its events are named.
    let feed = client.get("/events?type=INVITATION_CLAIMED").await.expect(200).clone();
    assert_eq!(feed["data"][0]["type"], "INVITATION.CLAIMED");
    for (name, _) in expected {
        assert!(EventKind::of_type(name).is_some(), "{name}");
    }
    server.verify();
}
