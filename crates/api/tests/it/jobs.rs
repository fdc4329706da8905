//! What is due, on a server that has its database to itself.

use service::jobs;

use crate::held_rail::HeldRail;
use crate::pay::{Payer, transfer};
use crate::support::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_becomes_due_while_a_busy_step_runs_is_part_of_it() {
    // One more than is taken at a time, so that the step looks again.
    const EARLIER: usize = 257;
    const LATER: usize = 3;
    let server = Server::new();
    let payer = Payer::with(&server, 1_000_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 100);
    let pay = async |payments| {
        for _ in 0..payments {
            payer.client.post("/transfer-out", &body).await.expect(201);
        }
        server.clock.advance_millis(5_000);
    };
    pay(EARLIER).await;
    let rail = HeldRail::new();
    let app = server.with_rail(1, rail.clone());
    let stepping = tokio::spawn(async move { jobs::step(&app).await.expect("a step") });
    rail.asked.acquire_many(EARLIER as u32 - 1).await.expect("it stays open").forget();

    pay(LATER).await;
    rail.let_go.add_permits(EARLIER + LATER);
    let step = stepping.await.expect("it does not panic");
    assert_eq!((step.done, step.failed, step.more), (EARLIER + LATER, 0, false));
    let completed = payer.client.count("/transactions?status=COMPLETED&type=OUTGOING").await;
    assert_eq!(completed, (EARLIER + LATER) as u64);
    server.verify();
}
