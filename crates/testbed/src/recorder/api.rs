//! A client of one or several servers on the same database.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::Response;
use serde_json::{Value, json};

use super::{DEADLINE, RETRY_AFTER, pause};
use crate::instance::{CLIENT_ID, CLIENT_SECRET};

/// A request without an answer by then has none: a server gives up far sooner.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// The version that is part of each path.
const VERSION: &str = "2025-10-13";

/// A change that is asked for, until it is known what came of it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Below the version.
    pub path: String,
    /// The request.
    pub body: Value,
    /// The idempotency key: the same for every try. If it is empty, none is sent.
    pub key: String,
}

/// Status and bytes: what must be the same whenever it is asked again.
pub type Answer = (u16, Vec<u8>);

/// The outcome of one try of the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened or was refused, for good.
    Known(Answer),
    /// The server said that it cannot tell or is too busy, with this status.
    Unavailable(u16),
    /// It was sent and no whole answer came.
    Lost,
    /// No connection was made, so nothing was sent.
    Unreached,
}

/// Asks the servers in turn, so that tries of one change reach different ones.
#[derive(Debug)]
pub struct Api {
    http: reqwest::Client,
    bases: Vec<String>,
    next: AtomicUsize,
}

impl Api {
    /// A client of the servers at `bases`, each `http://host:port`.
    ///
    /// # Errors
    ///
    /// If there is none, or no client can be made.
    pub fn new(bases: &[String]) -> Result<Self> {
        ensure!(!bases.is_empty(), "a client needs a server");
        let http = super::http(ANSWER_WITHIN)?;
        Ok(Self { http, bases: bases.to_vec(), next: AtomicUsize::new(0) })
    }

    /// How many servers are asked in turn.
    pub fn servers(&self) -> usize {
        self.bases.len()
    }

    /// Waits until every server is ready.
    ///
    /// # Errors
    ///
    /// If one is not within a minute.
    pub async fn ready(&self) -> Result<()> {
        for base in &self.bases {
            let is_ready = async || {
                let answer = self.http.get(format!("{base}/readyz")).send().await;
                Ok(answer.is_ok_and(|answer| answer.status().is_success()))
            };
            within_deadline(&format!("the server at {base} is ready"), is_ready).await?;
        }
        Ok(())
    }

    /// Asks the next server once.
    pub async fn ask(&self, ask: &Ask) -> Outcome {
        self.ask_at(self.next(), ask).await
    }

    /// Asks the next server once, for a test that looks at all of the answer.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn send(&self, ask: &Ask) -> reqwest::Result<Response> {
        self.send_to(self.next(), ask).await
    }

    async fn send_to(&self, server: usize, ask: &Ask) -> reqwest::Result<Response> {
        let url = format!("{}/{VERSION}{}", self.bases[server], ask.path);
        let request = self.http.post(url).basic_auth(CLIENT_ID, Some(CLIENT_SECRET));
        let request = match ask.key.as_str() {
            "" => request,
            key => request.header("idempotency-key", key),
        };
        request.json(&ask.body).send().await
    }

    /// Asks one of the [servers](Self::servers) once, counted from 0.
    pub(super) async fn ask_at(&self, server: usize, ask: &Ask) -> Outcome {
        let answer = match self.send_to(server, ask).await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => return Outcome::Unreached,
            Err(_) => return Outcome::Lost,
        };
        let status = answer.status();
        match answer.bytes().await {
            Ok(_) if status.is_server_error() => Outcome::Unavailable(status.as_u16()),
            Ok(bytes) => Outcome::Known((status.as_u16(), bytes.to_vec())),
            Err(_) => Outcome::Lost,
        }
    }

    /// Reads from the next server.
    ///
    /// # Errors
    ///
    /// If there is no good answer.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let url = format!("{}/{VERSION}{path}", self.bases[self.next()]);
        let request = self.http.get(url).basic_auth(CLIENT_ID, Some(CLIENT_SECRET));
        let answer = request.send().await.with_context(|| format!("reading {path}"))?;
        let answer = answer.error_for_status().with_context(|| format!("reading {path}"))?;
        answer.json().await.with_context(|| format!("reading {path}"))
    }

    /// How many there are in the list at `path`.
    ///
    /// # Errors
    ///
    /// If there is no good answer.
    pub async fn total(&self, path: &str) -> Result<i64> {
        let list = self.get(&format!("{path}limit=1")).await?;
        list["totalCount"]
            .as_i64()
            .with_context(|| format!("{path} has no total: it lists more than are counted"))
    }

    /// The ids in the list at `path`, page after page.
    ///
    /// # Errors
    ///
    /// If there is no good answer.
    pub async fn ids(&self, path: &str) -> Result<BTreeSet<String>> {
        let (mut ids, mut cursor) = (BTreeSet::new(), String::new());
        loop {
            let page = self.get(&format!("{path}limit=100{cursor}")).await?;
            let rows = page["data"].as_array().with_context(|| format!("{path} has no rows"))?;
            ids.extend(rows.iter().filter_map(|row| row["id"].as_str()).map(str::to_owned));
            match page["nextCursor"].as_str() {
                Some(next) if page["hasMore"] == true => cursor = format!("&cursor={next}"),
                _ => return Ok(ids),
            }
        }
    }

    /// Makes something that must succeed at once.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub async fn make(&self, path: &str, body: Value) -> Result<Value> {
        let ask = Ask { path: path.to_owned(), body, key: format!("set up {path}") };
        let Outcome::Known((status, bytes)) = self.ask(&ask).await else {
            anyhow::bail!("no answer from {path}");
        };
        let text = String::from_utf8_lossy(&bytes);
        ensure!(status < 300, "{path} answered {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("reading the answer of {path}"))
    }

    /// Changes what is at `path`.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub async fn change(&self, path: &str, body: Value) -> Result<Value> {
        let url = format!("{}/{VERSION}{path}", self.bases[self.next()]);
        let request = self.http.patch(url).basic_auth(CLIENT_ID, Some(CLIENT_SECRET));
        let answer = request.json(&body).send().await;
        let answer = answer.with_context(|| format!("changing {path}"))?;
        let answer = answer.error_for_status().with_context(|| format!("changing {path}"))?;
        answer.json().await.with_context(|| format!("changing {path}"))
    }

    fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.bases.len()
    }
}

/// Accounts of one customer to move money between.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Internal account that everything is paid from.
    pub usd: String,
    /// Internal account that quotes pay to.
    pub eur: String,
    /// External account that transfers pay to.
    pub bank: String,
}

impl Accounts {
    /// Makes a customer with `funds` US cents and a bank account.
    ///
    /// # Errors
    ///
    /// If the server refuses.
    pub async fn set_up(api: &Api, funds: i64) -> Result<Self> {
        let customer = json!({ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" });
        let customer = id(&api.make("/customers", customer).await?)?;
        let (usd, eur) = (
            id(&internal_account(api, &customer, "USD").await?)?,
            id(&internal_account(api, &customer, "EUR").await?)?,
        );
        let path = format!("/sandbox/internal-accounts/{usd}/fund");
        api.make(&path, json!({ "amount": funds })).await?;
        let bank = json!({
            "customerId": customer,
            "currency": "USD",
            "accountInfo": {
                "accountType": "USD_ACCOUNT",
                "accountNumber": "123456789",
                "routingNumber": "021000021",
                "beneficiary": {
                    "beneficiaryType": "BUSINESS",
                    "legalName": "Analytical Engines",
                },
            },
        });
        let bank = id(&api.make("/customers/external-accounts", bank).await?)?;
        Ok(Self { usd, eur, bank })
    }
}

async fn internal_account(api: &Api, customer: &str, currency: &str) -> Result<Value> {
    let path = format!("/customers/internal-accounts?customerId={customer}&currency={currency}");
    Ok(api.get(&path).await?["data"][0].clone())
}

fn id(made: &Value) -> Result<String> {
    let id = made["id"].as_str().with_context(|| format!("there is no id in {made}"))?;
    Ok(id.to_owned())
}

/// Asks again and again until it is so.
///
/// # Errors
///
/// If asking fails, or it is not so within a minute.
pub async fn within_deadline(
    what: &str,
    mut is_so: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let asked = async {
        while !is_so().await? {
            pause(RETRY_AFTER).await;
        }
        Ok(())
    };
    let in_time = tokio::time::timeout(DEADLINE, asked).await;
    in_time.with_context(|| format!("not within {} s: {what}", DEADLINE.as_secs()))?
}
