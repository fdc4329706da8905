//! The yardstick on Postgres: what a ledger does that has one database transaction for each request
//! and locks the rows of both accounts.
//!
//! It writes what a payment needs and no more: idempotency key, transaction with its body, two
//! entries, two balances, an outbox row. Statements are prepared, commits are synchronous, and
//! locks are taken in the order of ids so that none of them deadlock.
//!
//! A payment of ours is booked twice: pending when it is accepted, posted when its rail took it.
//! [`Booked::Settled`] is the yardstick that does so too, in a database transaction of its own.

use std::sync::Arc;

use adapters::entropy::SystemEntropy;
use anyhow::{Context as _, Result};
use ports::entropy::Entropy as _;
use tokio_postgres::{Client, Statement};

use crate::load::{Session, Verdict};
use crate::postgres::{blocking, connect};

/// Bytes of a transaction as JSON, about what this API answers.
const BODY_BYTES: usize = 900;

/// The account that everybody pays from and the one that everybody pays to.
const HOT: [i64; 2] = [1, 2];

/// The first balance of the paying account: more than any run moves.
const FUNDS: i64 = 1_000_000_000_000_000;

const SCHEMA: &str = "
    create table accounts (
        id bigint primary key, balance bigint not null check (balance >= 0),
        posted bigint not null default 0);
    create table idempotency (key text primary key, transaction bigint not null);
    create table transactions (
        id bigint primary key, settled boolean not null default false, body jsonb not null);
    create table entries (
        transaction bigint not null references transactions, account bigint not null,
        amount bigint not null, primary key (transaction, account));
    create index on entries (account, transaction);
    create table outbox (id bigserial primary key, transaction bigint not null, event text not null)
";

/// How much of a payment is booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Booked {
    /// Its acceptance.
    Accepted,
    /// Its acceptance and then its settlement, each in a database transaction.
    Settled,
}

/// The tables of the yardstick in a database.
#[derive(Debug, Clone)]
pub struct RowLocks {
    url: Arc<str>,
}

impl RowLocks {
    /// Makes the tables and the two accounts in an empty database.
    pub fn set_up(url: &str) -> Result<Self> {
        blocking(async {
            let client = connect(url).await?;
            client.batch_execute(SCHEMA).await?;
            let [from, to] = HOT;
            let insert = "insert into accounts (id, balance) values ($1, $2), ($3, 0)";
            client.execute(insert, &[&from, &FUNDS, &to]).await?;
            Ok(())
        })?;
        Ok(Self { url: url.into() })
    }

    /// A session that pays from the hot account to the other.
    pub async fn open(&self, booked: Booked) -> Result<impl Session + use<>> {
        let client = connect(&self.url).await?;
        let text = async |sql: &str| client.prepare(sql).await;
        Ok(Paying {
            key: text("insert into idempotency (key, transaction) values ($1, $2)").await?,
            lock: text(
                "select id, balance from accounts where id in ($1, $2) order by id for update",
            )
            .await?,
            transaction: text("insert into transactions (id, body) values ($1, $2::text::jsonb)")
                .await?,
            entries: text(
                "insert into entries (transaction, account, amount) \
                 values ($1, $2, $3), ($1, $4, $5)",
            )
            .await?,
            balance: text("update accounts set balance = balance + $2 where id = $1").await?,
            event: text("insert into outbox (transaction, event) values ($1, $2)").await?,
            status: text("update transactions set settled = true where id = $1").await?,
            posted: text("update accounts set posted = posted + $2 where id = $1").await?,
            booked,
            body: format!("{{\"status\":\"PENDING\",\"filler\":\"{}\"}}", "x".repeat(BODY_BYTES)),
            client,
        })
    }
}

struct Paying {
    client: Client,
    key: Statement,
    lock: Statement,
    transaction: Statement,
    entries: Statement,
    balance: Statement,
    event: Statement,
    status: Statement,
    posted: Statement,
    booked: Booked,
    body: String,
}

impl Session for Paying {
    async fn operate(&mut self) -> Result<Verdict> {
        /// One unit of the currency, as in the payments that this is compared with.
        const AMOUNT: i64 = crate::sessions::AMOUNT_MINOR;
        let [from, to] = HOT;
        let id = (SystemEntropy.number() >> 1).cast_signed();
        let unit = self.client.transaction().await?;
        unit.execute(&self.key, &[&format!("{id:032x}"), &id]).await?;
        let rows = unit.query(&self.lock, &[&from, &to]).await?;
        let payer = rows.iter().find(|row| row.get::<_, i64>(0) == from);
        let balance: i64 = payer.context("the paying account is gone")?.get(1);
        anyhow::ensure!(balance >= AMOUNT, "the paying account is empty");
        unit.execute(&self.transaction, &[&id, &self.body]).await?;
        unit.execute(&self.entries, &[&id, &from, &-AMOUNT, &to, &AMOUNT]).await?;
        unit.execute(&self.balance, &[&from, &-AMOUNT]).await?;
        unit.execute(&self.balance, &[&to, &AMOUNT]).await?;
        unit.execute(&self.event, &[&id, &self.body]).await?;
        unit.commit().await?;
        if self.booked == Booked::Settled {
            let unit = self.client.transaction().await?;
            unit.query(&self.lock, &[&from, &to]).await?;
            unit.execute(&self.status, &[&id]).await?;
            unit.execute(&self.posted, &[&from, &-AMOUNT]).await?;
            unit.execute(&self.posted, &[&to, &AMOUNT]).await?;
            unit.execute(&self.event, &[&id, &self.body]).await?;
            unit.commit().await?;
        }
        Ok(Verdict::Done)
    }
}
