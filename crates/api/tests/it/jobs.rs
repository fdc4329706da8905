//! What is due, on a server that has its database to itself.

use std::sync::atomic::Ordering;

use adapters::rails::sandbox::SandboxRail;
use domain::money::AMOUNT_MAX;
use domain::rail::Rail;
use ports::rails::{Leg, Rails};
use serde_json::json;
use service::jobs;
use std::sync::Arc;

use crate::held_rail::{Hanging, HeldRail};
use crate::pay::{Payer, transfer};
use crate::support::{Server, text, usd_external};

/// A dollar account that is paid over this rail.
async fn account(payer: &Payer, number: &str, rail: &str) -> String {
    let mut body = usd_external(Some(&payer.customer), number);
    body["accountInfo"]["paymentRails"] = json!([rail]);
    let added = payer.client.post("/customers/external-accounts", &body).await.expect(201).clone();
    text(&added["id"])
}

async fn pay(payer: &Payer, account: &str, payments: usize) {
    let body = transfer(&payer.usd, account, 100);
    for _ in 0..payments {
        payer.client.post("/transfer-out", &body).await.expect(201);
    }
}

#[tokio::test]
async fn a_rail_that_hangs_holds_up_no_other() {
    // More than have a place in its bulkhead and its queue.
    const HELD: usize = 300;
    // More than are taken at a time.
    const TRANSFERS: usize = 300;
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let (ach, wire) = (account(&payer, "201", "ACH").await, account(&payer, "202", "WIRE").await);
    let held = HeldRail::on(|leg: &Leg| (leg.rail == Rail::Ach).then_some(AMOUNT_MAX));
    let ports = Rails::new(vec![held.clone(), Arc::new(SandboxRail::new(0))]);
    let app = server.with_rail(1, ports);
    let step = async || jobs::step(&app).await.expect("a step");

    pay(&payer, &ach, HELD).await;
    server.clock.advance_millis(1_000);
    let first = step().await;
    let postponed = HELD - first.under_way;
    assert!((1..HELD).contains(&postponed), "{first:?}");
    assert_eq!((first.done, first.failed, first.more), (postponed, 0, false));
    // Timers under way are not taken again, and nothing else is due yet.
    let again = step().await;
    assert_eq!((again.done, again.failed, again.under_way), (0, 0, 0));
    assert!(jobs::next_due(&app) > Some(server.app.server_now()));

    // As many steps as without a rail that hangs.
    pay(&payer, &wire, TRANSFERS).await;
    server.clock.advance_millis(500);
    let step = step().await;
    assert_eq!((step.done, step.failed, step.under_way, step.more), (TRANSFERS, 0, 0, false));
    let completed = "/transactions?status=COMPLETED&type=OUTGOING";
    assert_eq!(payer.client.count(completed).await, TRANSFERS as u64);

    // Once it answers, each order was given once, and all are settled.
    held.let_go.add_permits(HELD);
    jobs::settled(&app).await;
    server.clock.advance_millis(60_000);
    jobs::step(&app).await.expect("a step");
    jobs::settled(&app).await;
    assert_eq!(payer.client.count(completed).await, (TRANSFERS + HELD) as u64);
    assert_eq!(held.asked.available_permits(), HELD);
    server.verify();
}

#[tokio::test]
async fn a_rail_that_hangs_is_asked_less_often() {
    const PAYMENTS: usize = 40;
    const MINUTES: usize = 60;
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let bank = payer.bank("789").await;
    pay(&payer, &bank, PAYMENTS).await;
    let rail = Hanging::new(&server.clock);
    let hanging = server.with_rail(1, rail.clone());
    let end = server.app.server_now().plus_millis(MINUTES as i64 * 60_000);
    while server.app.server_now() < end {
        let step = jobs::step(&hanging).await.expect("a step");
        assert_eq!(step.failed, 0);
        let next = jobs::next_due(&hanging).expect("payments wait");
        let wait_millis = next.millis() - server.app.server_now().millis();
        server.clock.advance_millis(wait_millis.max(0));
    }
    // Some failures open the breaker; from then on it is probed about once a minute.
    let asked = rail.asked.load(Ordering::Relaxed);
    assert!((MINUTES / 10..2 * MINUTES).contains(&asked), "asked {asked} times");
    // It is back: every payment is settled, and soon.
    server.clock.advance_millis(5 * 60_000);
    let step = jobs::step(&server.app).await.expect("a step");
    assert_eq!((step.done, step.failed, step.more), (PAYMENTS, 0, false));
    server.verify();
}
