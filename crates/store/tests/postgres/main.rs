//! Cases that PostgreSQL has and a file has not: it is shared, it goes away, and others set it up.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../support/mod.rs"]
mod support;

mod several_nodes;
mod absences;
mod openings;
mod plans;

use domain::rail::Rail;
use domain::transaction::Transaction;
use ledger::account::AccountKey;
use ledger::movements;
use store::PostgresServer;
use store::error::StoreError;
use store::{Store, Threads};

use self::support::*;

/// The amount of each payment into the common account.
const PAID: i64 = 10;

/// A server of ours on a database that others may use too.
struct Served {
    store: Store,
    threads: Threads,
}

impl Served {
    fn open(url: &str) -> Self {
        let (store, threads) = Self::try_open(url).unwrap();
        Self { store, threads }
    }

    fn try_open(url: &str) -> std::result::Result<(Store, Threads), StoreError> {
        Store::open(&PostgresServer::new(url)?, keyring())
    }

    fn close(self) {
        drop(self.store);
        self.threads.join();
    }

    /// Makes the platform and the customer of all payments.
    async fn set_up(&self) {
        let write = self.store.write(origin(), |unit| {
            unit.put(platform(1));
            unit.put(customer(1, 1));
            Ok::<_, StoreError>(())
        });
        write.await.unwrap();
    }

    /// Pays into the common account, as the payment with this number.
    async fn pay(&self, number: u128) -> Result {
        let write = self.store.write(origin(), move |unit| {
            begin(unit, deposit(number, 1, 1, PAID, "USD"))?;
            let account = customer_account(1, "USD");
            let posting =
                movements::deposit(platform_id(1), Rail::Ach, account, money(PAID, "USD")).unwrap();
            Ok::<_, Refused>(unit.post(transaction_id(number), &posting, at(1))?)
        });
        write.await
    }

    /// Which of these payments are there, and what is in the account.
    async fn found(&self, numbers: std::ops::Range<u128>) -> (Vec<u128>, i128) {
        let read = self.store.read(move |view| {
            let mut there = Vec::new();
            for number in numbers {
                if view.get::<Transaction>(&transaction_id(number))?.is_some() {
                    there.push(number);
                }
            }
            let account = AccountKey::Internal(customer_account(1, "USD"));
            let row = view.ledger_account(&account)?;
            Ok::<_, StoreError>((there, row.map_or(0, |row| row.balance.credits_posted())))
        });
        read.await.unwrap()
    }

    /// Everything that was paid is there once, and nothing else.
    async fn assert_paid(&self, numbers: std::ops::Range<u128>) {
        let (there, balance) = self.found(numbers.clone()).await;
        assert_eq!(there, numbers.collect::<Vec<_>>());
        let paid = PAID * i64::try_from(there.len()).unwrap();
        assert_eq!(balance, i128::from(paid));
    }
}

/// Tries until it is done, as a client does that gets `Retry-After`. Refusals are immediate while
/// the database is away, so many tries fit into the seconds that it may take.
async fn paid_in_the_end(served: &Served, number: u128) {
    const TRIES_MAX: u32 = 1_000_000;
    for _ in 0..TRIES_MAX {
        match served.pay(number).await {
            Ok(()) => return,
            Err(Refused::Store(StoreError::Unavailable(_))) => tokio::task::yield_now().await,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the database did not come back");
}
