//! Rows that cannot be read (reliability F34): each is one payment's trouble, and no other's.

use domain::id::TransactionId;
use serde_json::Value;
use service::jobs;
use store::sql::Value as Stored;
use uuid::Uuid;

use crate::pay::{Payer, transaction_id, transfer};
use crate::support::Server;

/// Does what is due until nothing is done any more. How many timers failed.
async fn steps(server: &Server) -> usize {
    let mut failed = 0;
    loop {
        let step = jobs::step(&server.app).await.expect("a step goes on, whatever is in a row");
        failed += step.failed;
        if step.done == 0 {
            return failed;
        }
    }
}

async fn pay(payer: &Payer, external: &str) -> Value {
    let body = transfer(&payer.usd, external, 100);
    payer.client.post("/transfer-out", &body).await.expect(201)["id"].clone()
}

async fn set_currency(server: &Server, payment: TransactionId, code: &str) {
    let sql = "update transactions set receiving_currency = $1 where id = $2";
    assert_eq!(server.tamper(sql, &[code.into(), payment.into()]).await, 1);
}

#[tokio::test]
async fn a_payment_that_cannot_be_read_holds_up_no_other() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let external = payer.bank("789").await;
    let mut payments = Vec::new();
    for _ in 0..9 {
        payments.push(pay(&payer, &external).await);
    }
    let broken = payments.remove(4);
    set_currency(&server, transaction_id(&broken), "XXX").await;
    server.clock.advance_millis(5_000);
    assert_eq!(steps(&server).await, 1, "it is tried once");
    for payment in &payments {
        assert_eq!(payer.client.transaction(payment).await["status"], "COMPLETED");
    }
    // Not every second, and not never.
    server.clock.advance_millis(30_000);
    assert_eq!(steps(&server).await, 0);
    set_currency(&server, transaction_id(&broken), "USD").await;
    server.clock.advance_millis(30_000);
    assert_eq!(steps(&server).await, 0);
    server.clock.advance_millis(5_000);
    assert_eq!(steps(&server).await, 0);
    assert_eq!(payer.client.transaction(&broken).await["status"], "COMPLETED");
    server.verify();
}

#[tokio::test]
async fn a_timer_that_cannot_be_read_holds_up_no_other() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let external = payer.bank("789").await;
    let payment = pay(&payer, &external).await;
    let subject = Stored::from(Uuid::from_u128(7));
    let sql = "insert into timers (subject, kind, platform, due_at, since, attempts) \
        values ($1, 'WHATEVER', $2, 0, 0, 0)";
    assert_eq!(server.tamper(sql, &[subject.clone(), payer.client.platform.into()]).await, 1);
    server.clock.advance_millis(5_000);
    // It is no job of this server, which takes timers from memory; `verify` names it.
    assert_eq!(steps(&server).await, 0);
    assert_eq!(payer.client.transaction(&payment).await["status"], "COMPLETED");
    assert_eq!(server.tamper("delete from timers where subject = $1", &[subject]).await, 1);
    server.verify();
}

#[tokio::test]
async fn one_step_does_all_that_is_due_and_tries_nothing_twice() {
    // Several times as many as are taken at a time.
    const PAYMENTS: usize = 600;
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let external = payer.bank("789").await;
    let mut payments = Vec::new();
    for _ in 0..PAYMENTS {
        payments.push(pay(&payer, &external).await);
    }
    set_currency(&server, transaction_id(&payments[3]), "XXX").await;
    server.clock.advance_millis(5_000);
    let step = jobs::step(&server.app).await.expect("a step");
    assert_eq!((step.done, step.failed, step.more), (PAYMENTS - 1, 1, false));
    let completed = payer.client.count("/transactions?status=COMPLETED&type=OUTGOING").await;
    assert_eq!(completed, PAYMENTS as u64 - 1);
}
