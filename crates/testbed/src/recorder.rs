//! Clients that never let go of a change until they know what came of it, and check that it stays.
//!
//! Before a client asks, it writes down what for. An ask without a definite answer is asked again
//! with the same key, at the next server, until there is one. In the end every answer must come
//! again byte for byte, what is there must be what was asked for and nothing else, and the money
//! must be where a model without a server says.
//!
//! It says nothing of what the servers do inside: `verify` does, which should run after each fault.

mod api;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use self::api::{Accounts, Answer, Api, Ask, Outcome, within_deadline};

/// How long anything may take that must happen, faults and all.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client that found no server or got nothing waits as long as a person blinks, not to take the
/// processor from the server that starts.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Clients that ask for answers again at once: as many as the servers commit together anyway.
const REPLAYERS: usize = 16;

/// An HTTP client that gives up after a time.
///
/// # Errors
///
/// If none can be made.
pub fn http(within: Duration) -> Result<reqwest::Client> {
    // A program that knows several kinds of cryptography has to say which one it uses. The first to
    // say so is right.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(within).build().context("making a client")
}

/// US cents, the most that the server gives at once: more than any load uses up.
const FUNDED: i64 = 100_000_000_000;

/// US cents of one transfer.
const TRANSFERRED: i64 = 7;

/// US cents of one quote.
const QUOTED: i64 = 500;

/// The knowledge of all clients: each ask and, once it is known, its answer.
#[derive(Debug)]
pub struct Recorder {
    api: Api,
    accounts: Accounts,
    asked: Mutex<BTreeMap<String, (Ask, Option<Answer>)>>,
    answered: AtomicU64,
    changed: Notify,
    is_over: AtomicBool,
    tries: Tries,
}

/// How often a try ended without a definite answer.
#[derive(Debug, Default)]
struct Tries {
    lost: AtomicU64,
    unavailable: AtomicU64,
    unreached: AtomicU64,
}

impl Recorder {
    /// Makes accounts with money for the clients that are to come. The servers must be ready, and
    /// their database new.
    ///
    /// # Errors
    ///
    /// If a server refuses.
    pub async fn set_up(api: Api) -> Result<Arc<Self>> {
        let accounts = Accounts::set_up(&api, FUNDED).await?;
        Ok(Arc::new(Self {
            api,
            accounts,
            asked: Mutex::default(),
            answered: AtomicU64::new(0),
            changed: Notify::new(),
            is_over: AtomicBool::new(false),
            tries: Tries::default(),
        }))
    }

    /// The client that all share.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Definite answers so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Every ask whose answer is known, with it.
    pub fn known(&self) -> Vec<(Ask, Answer)> {
        let known = |(ask, answer): &(Ask, Option<Answer>)| Some((ask.clone(), answer.clone()?));
        self.asked().values().filter_map(known).collect()
    }

    /// Waits until `more` answers have come than there are now.
    ///
    /// # Errors
    ///
    /// If none comes for a minute.
    pub async fn more(&self, more: u64) -> Result<()> {
        let enough = self.answered() + more;
        while self.answered() < enough {
            let change = tokio::time::timeout(DEADLINE, self.changed.notified()).await;
            change.context("no client is answered")?;
        }
        Ok(())
    }

    /// Asks until the answer is known.
    ///
    /// # Errors
    ///
    /// If it is not within a minute, or is another than before.
    pub async fn ask(&self, ask: &Ask) -> Result<Answer> {
        self.ask_at(None, ask).await
    }

    /// Asks one server, or all in turn.
    async fn ask_at(&self, server: Option<usize>, ask: &Ask) -> Result<Answer> {
        self.asked().entry(ask.key.clone()).or_insert_with(|| (ask.clone(), None));
        let answer = tokio::time::timeout(DEADLINE, self.until_known(server, ask)).await;
        let answer = answer.with_context(|| format!("unknown outcome of {}", ask.key))?;
        let mut asked = self.asked();
        let (_, first) = asked.get_mut(&ask.key).context("it was noted above")?;
        let first = first.get_or_insert_with(|| answer.clone());
        ensure!(
            *first == answer,
            "two answers to {}: first {}, then {}",
            ask.key,
            shown(first),
            shown(&answer)
        );
        drop(asked);
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        Ok(answer)
    }

    async fn until_known(&self, server: Option<usize>, ask: &Ask) -> Answer {
        loop {
            let outcome = match server {
                Some(server) => self.api.ask_at(server, ask).await,
                None => self.api.ask(ask).await,
            };
            let count = match outcome {
                Outcome::Known(answer) => return answer,
                Outcome::Lost => &self.tries.lost,
                Outcome::Unavailable(_) => &self.tries.unavailable,
                Outcome::Unreached => &self.tries.unreached,
            };
            count.fetch_add(1, Ordering::Relaxed);
            pause(RETRY_AFTER).await;
        }
    }

    /// Waits until no payment is under way.
    ///
    /// # Errors
    ///
    /// If one still is after a minute.
    pub async fn settled(&self) -> Result<()> {
        api::within_deadline("all payments have settled", async || {
            let total = async |path: &str| self.api.total(path).await;
            let processing = total("/transactions?status=PROCESSING&").await?;
            // A quote that was never executed has a transaction that waits for it.
            let pending = total("/transactions?status=PENDING&type=OUTGOING&").await?;
            Ok(processing == 0 && pending == total("/quotes?status=PENDING&").await?)
        })
        .await
    }

    /// Checks what is there against what was asked for, once all clients have stopped and all
    /// payments have [settled](Self::settled).
    ///
    /// # Errors
    ///
    /// The first that is not as it must be.
    pub async fn check(self: &Arc<Self>) -> Result<Report> {
        let answers: Vec<_> = self.asked().values().cloned().collect();
        let model = Model::of(&answers)?;
        let same = async |what: &str, path: &str, expected: i64| {
            let found = self.api.total(path).await?;
            ensure!(found == expected, "{expected} {what} were made, {found} are there");
            Ok(())
        };
        let Model { transfers, quotes, executed, received } = model;
        same("quotes", "/quotes?", quotes).await?;
        same("payments", "/transactions?type=OUTGOING&", transfers + quotes).await?;
        let completed = "/transactions?status=COMPLETED&type=OUTGOING&";
        same("settled payments", completed, transfers + executed).await?;

        let spent = transfers * TRANSFERRED + executed * QUOTED;
        for (currency, expected) in [("USD", FUNDED - spent), ("EUR", received)] {
            let path = format!("/customers/internal-accounts?currency={currency}");
            let balance = self.api.get(&path).await?["data"][0]["balance"]["amount"].clone();
            ensure!(balance == json!(expected), "{expected} {currency} minor units, not {balance}");
        }

        for server in 0..self.api.servers() {
            self.ask_again(&answers, server).await?;
        }
        let count = |tries: &AtomicU64| tries.load(Ordering::Relaxed);
        Ok(Report {
            asks: answers.len(),
            transfers,
            quotes,
            executed,
            lost: count(&self.tries.lost),
            unavailable: count(&self.tries.unavailable),
            unreached: count(&self.tries.unreached),
        })
    }

    /// Asks one server for every answer, which must be the one that any server gave first.
    async fn ask_again(
        self: &Arc<Self>,
        answers: &[(Ask, Option<Answer>)],
        server: usize,
    ) -> Result<()> {
        let mut clients = JoinSet::new();
        for part in answers.chunks(answers.len().div_ceil(REPLAYERS).max(1)) {
            let (recorder, part) = (Arc::clone(self), part.to_vec());
            clients.spawn(async move {
                for (ask, _) in part {
                    recorder.ask_at(Some(server), &ask).await?;
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.context("a client panicked")??;
        }
        Ok(())
    }

    /// The payments that were acknowledged and are not there: more than none where a database fell
    /// behind what it had promised. All clients must have stopped.
    ///
    /// # Errors
    ///
    /// If a server does not answer, or an ask has no answer.
    pub async fn vanished(&self) -> Result<BTreeSet<String>> {
        let answers: Vec<_> = self.asked().values().cloned().collect();
        let mut payments = BTreeSet::new();
        for (ask, answer) in &answers {
            let (status, bytes) = known(ask, answer.as_ref())?;
            let name = match (ask.path.as_str(), *status) {
                ("/transfer-out", 201) => "id",
                ("/quotes", 201) => "transactionId",
                _ => continue,
            };
            let made: Value = serde_json::from_slice(bytes).context("reading an answer")?;
            payments.insert(made[name].as_str().context("an answer names its payment")?.to_owned());
        }
        let there = self.api.ids("/transactions?type=OUTGOING&").await?;
        Ok(payments.difference(&there).cloned().collect())
    }

    /// A transfer as the clients send it.
    pub fn transfer(&self, key: String) -> Ask {
        let Accounts { usd, bank, .. } = &self.accounts;
        let body = json!({
            "source": { "accountId": usd },
            "destination": { "accountId": bank },
            "amount": TRANSFERRED,
        });
        Ask { path: "/transfer-out".to_owned(), body, key }
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<String, (Ask, Option<Answer>)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clients that run until they are [stopped](Self::stop).
#[derive(Debug)]
pub struct Load {
    recorder: Arc<Recorder>,
    clients: JoinSet<Result<()>>,
}

impl Load {
    /// Starts so many clients, each with one ask at a time.
    pub fn start(recorder: &Arc<Recorder>, clients: usize) -> Self {
        let recorder = Arc::clone(recorder);
        let clients = (0..clients).map(|number| client(Arc::clone(&recorder), number)).collect();
        Self { recorder, clients }
    }

    /// Lets each client wait for the answer that it is owed, then stops it.
    ///
    /// # Errors
    ///
    /// The first that a client met.
    pub async fn stop(mut self) -> Result<()> {
        self.recorder.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.context("a client panicked")??;
        }
        Ok(())
    }
}

/// Sends transfers, and quotes with their executions.
async fn client(recorder: Arc<Recorder>, client_number: usize) -> Result<()> {
    let Accounts { usd, eur, .. } = &recorder.accounts;
    let mut number = 0;
    while !recorder.is_over.load(Ordering::Relaxed) {
        number += 1;
        let key = |what: &str| format!("client {client_number} {what} {number}");
        recorder.ask(&recorder.transfer(key("transfer"))).await?;
        let quote = Ask {
            path: "/quotes".to_owned(),
            body: json!({
                "source": { "sourceType": "ACCOUNT", "accountId": usd },
                "destination": { "destinationType": "ACCOUNT", "accountId": eur },
                "lockedCurrencySide": "SENDING",
                "lockedCurrencyAmount": QUOTED,
            }),
            key: key("quote"),
        };
        let (status, quote) = recorder.ask(&quote).await?;
        if status == 201 {
            let quote: Value = serde_json::from_slice(&quote).context("reading a quote")?;
            let id = quote["id"].as_str().context("a quote has an id")?;
            let path = format!("/quotes/{id}/execute");
            recorder.ask(&Ask { path, body: json!({}), key: key("execute") }).await?;
        }
    }
    Ok(())
}

/// The expected records, computed from the answers alone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Model {
    transfers: i64,
    quotes: i64,
    executed: i64,
    /// Euro cents that executed quotes have brought.
    received: i64,
}

impl Model {
    fn of(answers: &[(Ask, Option<Answer>)]) -> Result<Self> {
        let mut model = Self::default();
        for (ask, answer) in answers {
            let (status, bytes) = known(ask, answer.as_ref())?;
            match (ask.path.as_str(), *status) {
                ("/transfer-out", 201) => model.transfers += 1,
                ("/quotes", 201) => model.quotes += 1,
                (path, 200) if path.ends_with("/execute") => {
                    let quote: Value = serde_json::from_slice(bytes).context("reading a quote")?;
                    let received = quote["totalReceivingAmount"].as_i64();
                    model.received += received.context("a quote says what arrives")?;
                    model.executed += 1;
                }
                _ => {}
            }
        }
        Ok(model)
    }
}

/// The answer to what was asked, which there must be.
fn known<'a>(ask: &Ask, answer: Option<&'a Answer>) -> Result<&'a Answer> {
    answer.with_context(|| format!("unknown outcome of {}", ask.key))
}

/// A run in which everything was found to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Changes that were asked for; each is known.
    pub asks: usize,
    /// Transfers that were made.
    pub transfers: i64,
    /// Quotes that were made.
    pub quotes: i64,
    /// Quotes that were executed.
    pub executed: i64,
    /// Tries whose answer never came: the change may or may not have happened.
    pub lost: u64,
    /// Tries that a server could not say anything definite to.
    pub unavailable: u64,
    /// Tries that reached no server.
    pub unreached: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asks, transfers, quotes, executed, lost, unavailable, unreached } = self;
        write!(
            f,
            "asks {asks} (transfers {transfers}, quotes {quotes}, executed {executed}); tries \
             without an answer {lost}, answered 5xx {unavailable}, not connected {unreached}; \
             changes lost 0, doubled 0"
        )
    }
}

fn shown((status, bytes): &Answer) -> String {
    format!("{status} {}", String::from_utf8_lossy(bytes))
}

#[expect(clippy::disallowed_methods, reason = "other processes take real time")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
