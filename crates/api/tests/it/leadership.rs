//! Several servers on one database: one of them leads, and one that was held up changes
//! nothing when it comes back.

use std::sync::Arc;

use adapters::clock::ManualClock;
use adapters::rails::sandbox::SandboxRail;
use service::{App, jobs, leadership};

use crate::held_rail::{HeldRail, Refusing};
use crate::pay::{Payer, transfer};
use crate::support::Server;

async fn is_ours(app: &App) -> bool {
    jobs::step(app).await.expect("a step").is_ours
}

#[tokio::test]
async fn one_server_leads_until_it_is_gone() {
    let server = Server::new();
    let one = server.beside(1, Arc::new(SandboxRail::default()));
    let two = server.beside(2, Arc::new(SandboxRail::default()));
    let leader = |app: &App| leadership::elsewhere(app).map(|leader| leader.server.clone());
    assert_eq!((leader(&one), leader(&two)), (None, None));
    assert!(is_ours(&one).await && !is_ours(&two).await);
    assert_eq!((leader(&one), leader(&two)), (None, Some(leadership::name(&one))));
    // While it renews its lease, it keeps it.
    for _ in 0..10 {
        server.clock.advance_millis(1_500);
        assert!(is_ours(&one).await && !is_ours(&two).await);
    }
    // Once it is gone, the other waits until the lease has run out.
    server.clock.advance_millis(2_999);
    assert!(!is_ours(&two).await);
    assert_eq!(leader(&two), Some(leadership::name(&one)));
    server.clock.advance_millis(1);
    assert_eq!(leader(&two), None);
    assert!(is_ours(&two).await && !is_ours(&one).await);
    assert_eq!((leader(&one), leader(&two)), (Some(leadership::name(&two)), None));
    // One that stops does not keep the other waiting.
    leadership::give_up(&two).await.expect("it gives up");
    assert!(is_ours(&one).await && !is_ours(&two).await);
}

#[tokio::test]
async fn a_server_that_died_with_a_clock_ahead_is_missed_within_seconds() {
    let server = Server::new();
    let hour_ahead = ManualClock::new(server.app.server_now().plus_millis(3_600_000));
    let ahead = server.beside_at(&hour_ahead, 1, Arc::new(SandboxRail::default()));
    let right = server.beside(2, Arc::new(SandboxRail::default()));
    let pass = |millis: i64| {
        server.clock.advance_millis(millis);
        hour_ahead.advance_millis(millis);
    };
    assert!(is_ours(&ahead).await && !is_ours(&right).await);
    for _ in 0..10 {
        pass(1_500);
        assert!(is_ours(&ahead).await && !is_ours(&right).await);
    }
    // It is gone. Its lease ends in an hour.
    pass(2_999);
    assert!(!is_ours(&right).await);
    pass(1);
    assert!(is_ours(&right).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_held_up_keeps_nothing() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    payer.client.post("/transfer-out", &transfer(&payer.usd, &bank, 400)).await.expect(201);
    server.clock.advance_millis(1_000);
    let rail = HeldRail::new();
    let (late, other) = (server.beside(1, rail.clone()), server.beside(2, HeldRail::new()));
    assert_eq!(jobs::step(&late).await.expect("a step").under_way, 1);
    rail.asked.acquire().await.expect("it stays open").forget();

    // It hangs for an hour; another server takes over and finds the payment refused.
    server.clock.advance_millis(3_600_000);
    assert!(is_ours(&server.beside(3, Refusing::new())).await);
    let refused = payer.client.get("/transactions?status=FAILED").await.expect(200).clone();
    assert_eq!(refused["data"].as_array().expect("a list").len(), 1, "{refused}");
    assert_eq!(payer.balance().await, 1_000);

    // What it hears now, that the money has left, is not kept.
    rail.let_go.add_permits(1);
    jobs::settled(&late).await;
    assert_eq!(payer.balance().await, 1_000);
    assert!(!is_ours(&other).await);
    server.verify();
}
