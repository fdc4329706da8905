//! The clients' work while they are measured: payments, quotes and reads, each on a connection of
//! its own.

use std::net::SocketAddr;
use std::sync::Arc;

use adapters::entropy::SystemEntropy;
use anyhow::{Context as _, Result};
use domain::currency::Currency;
use domain::id::{CustomerId, InternalAccountId, Owner};
use ports::entropy::Entropy as _;
use serde_json::{Value, json};

use crate::http::{self, Answer, Client, Connection, Heads};
use crate::load::{Session, Verdict};

/// The amount of each payment, in the smallest unit. Small, so that one account lasts for a whole
/// run.
pub const AMOUNT_MINOR: i64 = 100;

/// A memo like those of real payments.
pub const DESCRIPTION: &str = "Invoice 2025-10-4711";

/// Bytes of an answer that a message repeats.
const SHOWN_BYTES: usize = 300;

/// Rows of a page when accounts are read.
const PAGE_ROWS: usize = 100;

/// A customer with the accounts that the load moves money between.
#[derive(Debug, Clone)]
pub struct Payer {
    owner: Owner,
    external: String,
}

/// Every payer of a database, the newest first.
pub fn payers(client: &mut Client) -> Result<Vec<Payer>> {
    let mut payers = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/customers/external-accounts?limit={PAGE_ROWS}{cursor}");
        let page = client.get(&path)?;
        for row in page["data"].as_array().context("a page has data")? {
            let customer = CustomerId::parse(text(row, "customerId")?)?;
            let external = text(row, "id")?.to_owned();
            payers.push(Payer { owner: Owner::Customer(customer), external });
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(payers),
        }
    }
}

/// The text of a field.
pub fn text<'a>(row: &'a Value, name: &str) -> Result<&'a str> {
    row[name].as_str().with_context(|| format!("no {name} in {row}"))
}

impl Payer {
    /// The person or business.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    fn internal(&self, code: &str) -> String {
        let currency = Currency::from_code(code).expect("the table starts with the large ones");
        InternalAccountId::of(self.owner, currency).to_string()
    }

    /// The body of a transfer to the payer's own bank account.
    fn transfer(&self) -> Value {
        json!({
            "source": { "accountId": self.internal("USD") },
            "destination": { "accountId": self.external },
            "amount": AMOUNT_MINOR,
            "description": DESCRIPTION,
        })
    }

    /// The body of a quote for an exchange between the payer's own accounts.
    fn quote(&self) -> Value {
        json!({
            "source": { "sourceType": "ACCOUNT", "accountId": self.internal("USD") },
            "destination": { "destinationType": "ACCOUNT", "accountId": self.internal("EUR") },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": AMOUNT_MINOR,
            "description": DESCRIPTION,
        })
    }
}

/// Idempotency keys that were never used before: a random half for each session and a number.
pub(crate) struct Keys {
    session: u64,
    number: u64,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self { session: SystemEntropy.number(), number: 0 }
    }

    pub(crate) fn next(&mut self) -> String {
        self.number += 1;
        format!("{:016x}-{:016x}", self.session, self.number)
    }
}

/// Posts that each have a body and an idempotency key, such as transfers.
#[derive(Debug, Clone)]
pub struct Posts {
    head: Arc<[u8]>,
    bodies: Arc<[Vec<u8>]>,
}

impl Posts {
    /// Transfers out of the accounts of these payers, in no order, to a path that takes them.
    pub fn transfers(heads: &Heads, path: &str, payers: &[Payer]) -> Self {
        Self::new(heads, path, payers.iter().map(Payer::transfer))
    }

    /// Posts of one of these bodies each, in no order.
    pub fn new(heads: &Heads, path: &str, bodies: impl IntoIterator<Item = Value>) -> Self {
        let bodies = bodies.into_iter().map(|body| body.to_string().into_bytes());
        Self { head: heads.post(path).into(), bodies: bodies.collect() }
    }

    /// A session that posts.
    pub async fn open(&self, address: SocketAddr) -> Result<impl Session + use<>> {
        Ok(Posting {
            connection: Connection::open(address).await?,
            posts: self.clone(),
            keys: Keys::new(),
            request: Vec::new(),
        })
    }
}

struct Posting {
    connection: Connection,
    posts: Posts,
    keys: Keys,
    request: Vec<u8>,
}

impl Session for Posting {
    async fn operate(&mut self) -> Result<Verdict> {
        let body = &self.posts.bodies[fastrand::usize(..self.posts.bodies.len())];
        self.request.clear();
        self.request.extend_from_slice(&self.posts.head);
        http::finish(&mut self.request, self.keys.next().as_bytes(), body);
        Ok(verdict(self.connection.ask(&self.request).await?))
    }
}

/// Exchanges: a quote is made and then executed, which together are one operation.
#[derive(Debug, Clone)]
pub struct Exchanges {
    heads: Heads,
    quotes: Arc<[u8]>,
    bodies: Arc<[Vec<u8>]>,
}

impl Exchanges {
    /// Exchanges of these payers, in no order.
    pub fn new(heads: &Heads, payers: &[Payer]) -> Self {
        let bodies = payers.iter().map(|payer| payer.quote().to_string().into_bytes());
        Self {
            heads: heads.clone(),
            quotes: heads.post("/quotes").into(),
            bodies: bodies.collect(),
        }
    }

    /// A session that exchanges.
    pub async fn open(&self, address: SocketAddr) -> Result<impl Session + use<>> {
        Ok(Exchanging {
            connection: Connection::open(address).await?,
            exchanges: self.clone(),
            keys: Keys::new(),
            request: Vec::new(),
        })
    }
}

struct Exchanging {
    connection: Connection,
    exchanges: Exchanges,
    keys: Keys,
    request: Vec<u8>,
}

impl Session for Exchanging {
    async fn operate(&mut self) -> Result<Verdict> {
        let bodies = &self.exchanges.bodies;
        let body = &bodies[fastrand::usize(..bodies.len())];
        self.request.clear();
        self.request.extend_from_slice(&self.exchanges.quotes);
        http::finish(&mut self.request, self.keys.next().as_bytes(), body);
        let answer = self.connection.ask(&self.request).await?;
        if !answer.is_success() {
            return Ok(verdict(answer));
        }
        let id = quote_id(answer.body).context("a quote without an id")?;
        self.request = self.exchanges.heads.post(&format!("/quotes/{id}/execute"));
        http::finish(&mut self.request, self.keys.next().as_bytes(), b"");
        Ok(verdict(self.connection.ask(&self.request).await?))
    }
}

/// The id of the quote in an answer. Reading the whole JSON would cost the server's processor more.
pub(crate) fn quote_id(body: &[u8]) -> Option<&str> {
    const START: &str = "\"id\":\"Quote:";
    const QUOTED_FROM: usize = "\"id\":\"".len();
    let body = str::from_utf8(body).ok()?;
    let rest = &body[body.find(START)? + QUOTED_FROM..];
    rest.split_once('"').map(|(id, _)| id)
}

/// Reads, each of one of some paths.
#[derive(Debug, Clone)]
pub struct Reads {
    requests: Arc<[Vec<u8>]>,
}

impl Reads {
    /// Reads at these paths, in no order.
    pub fn new<'a>(heads: &Heads, paths: impl IntoIterator<Item = &'a str>) -> Self {
        Self { requests: paths.into_iter().map(|path| heads.get(path)).collect() }
    }

    /// A session that reads.
    pub async fn open(&self, address: SocketAddr) -> Result<impl Session + use<>> {
        let connection = Connection::open(address).await?;
        Ok(Looking { connection, requests: Arc::clone(&self.requests) })
    }
}

struct Looking {
    connection: Connection,
    requests: Arc<[Vec<u8>]>,
}

impl Session for Looking {
    async fn operate(&mut self) -> Result<Verdict> {
        let request = &self.requests[fastrand::usize(..self.requests.len())];
        Ok(verdict(self.connection.ask(request).await?))
    }
}

/// How an operation ended by its answer.
pub(crate) fn verdict(answer: Answer<'_>) -> Verdict {
    if answer.is_success() {
        return Verdict::Done;
    }
    let mut answer_text = answer.text();
    answer_text.truncate(answer_text.floor_char_boundary(SHOWN_BYTES));
    Verdict::Refused { status: answer.status, answer: answer_text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_quote_is_found() {
        let body = br#"{"id":"Quote:0195","transactionId":"Transaction:7"}"#;
        assert_eq!(quote_id(body), Some("Quote:0195"));
        assert_eq!(quote_id(br#"{"code":"INVALID_INPUT"}"#), None);
    }

    #[test]
    fn no_key_comes_twice() {
        let (mut one, mut other) = (Keys::new(), Keys::new());
        let keys = [one.next(), one.next(), other.next(), other.next()];
        let unique: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(unique.len(), keys.len());
    }
}
