//! Payments to UMA addresses: a quote whose receiving amount is fixed and its execution, which
//! together are one operation.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use adapters::clock::SystemClock;
use anyhow::{Context as _, Result};
use domain::time::Timestamp;
use ports::clock::Clock as _;
use serde_json::json;

use super::institution::{Books, Institution};
use crate::child;
use crate::http::{self, Connection, Heads};
use crate::load::{Session, Verdict};
use crate::sessions::{AMOUNT_MINOR, DESCRIPTION, Keys, quote_id, text, verdict};

/// Stands in a body for the amount.
const AMOUNT: &str = "<amount>";

/// Amounts in cents, each given once in a run: by it a payment is known at both institutions.
#[derive(Clone)]
pub(super) struct Amounts(Rc<Cell<i64>>);

impl Amounts {
    pub(super) fn new() -> Self {
        Self(Rc::new(Cell::new(AMOUNT_MINOR)))
    }

    fn next(&self) -> i64 {
        self.0.replace(self.0.get() + 1)
    }
}

/// Payments of an institution's customers, in no order.
#[derive(Clone)]
pub(super) struct Payments {
    heads: Heads,
    bodies: Arc<[String]>,
    amounts: Amounts,
    /// When the execution of each was answered, by its amount.
    accepted: Rc<RefCell<BTreeMap<i64, Timestamp>>>,
}

impl Payments {
    /// Looks up one payee for each payer: at the same institution, the next customer.
    pub(super) fn new(here: &Institution, to: &Institution, amounts: &Amounts) -> Result<Self> {
        let mut client = here.server.client();
        let payees = to.customers.iter().cycle().skip(1);
        let bodies = here.customers.iter().zip(payees).map(|(payer, payee)| {
            let lookup = client.get(&payer.lookup_path(payee))?;
            let body = json!({
                "source": { "sourceType": "ACCOUNT", "accountId": payer.usd },
                "destination": {
                    "destinationType": "UMA_ADDRESS",
                    "umaAddress": payee.address,
                    "currency": "USD",
                },
                "lockedCurrencySide": "RECEIVING",
                "lockedCurrencyAmount": AMOUNT,
                "lookupId": text(&lookup, "lookupId")?,
                "description": DESCRIPTION,
            });
            // As a number, which the body has no quotation marks around.
            Ok(body.to_string().replace(&format!("\"{AMOUNT}\""), AMOUNT))
        });
        let bodies = bodies.collect::<Result<_>>()?;
        let amounts = amounts.clone();
        Ok(Self { heads: child::heads(), bodies, amounts, accepted: Rc::default() })
    }

    /// A session that pays.
    pub(super) async fn open(&self, address: SocketAddr) -> Result<Paying> {
        let connection = Connection::open(address).await?;
        Ok(Paying { connection, payments: self.clone(), keys: Keys::new() })
    }

    /// From the acceptance of each payment to its completion by the books of the payees'
    /// institution. Both read the same clock, in milliseconds.
    pub(super) fn latencies(&self, books: &Books) -> Result<Vec<Duration>> {
        let (accepted, completions) = (self.accepted.borrow(), books.completions()?);
        let latency = |(amount, at): (&i64, &Timestamp)| {
            let completed = completions.get(amount);
            let completed = completed.with_context(|| format!("{amount} cents have not come"))?;
            // One may be complete before the client has read that it was accepted.
            let millis = u64::try_from(completed.millis() - at.millis()).unwrap_or(0);
            Ok(Duration::from_millis(millis))
        };
        accepted.iter().map(latency).collect()
    }
}

/// A session of [`Payments`].
pub(super) struct Paying {
    connection: Connection,
    payments: Payments,
    keys: Keys,
}

impl Session for Paying {
    async fn operate(&mut self) -> Result<Verdict> {
        let Payments { heads, bodies, amounts, accepted } = &self.payments;
        let amount = amounts.next();
        let body = &bodies[fastrand::usize(..bodies.len())];
        let body = body.replace(AMOUNT, &amount.to_string());
        let mut request = heads.post("/quotes");
        http::finish(&mut request, self.keys.next().as_bytes(), body.as_bytes());
        let answer = self.connection.ask(&request).await?;
        if !answer.is_success() {
            return Ok(verdict(answer));
        }
        let id = quote_id(answer.body).context("a quote without an id")?;
        let mut request = heads.post(&format!("/quotes/{id}/execute"));
        http::finish(&mut request, self.keys.next().as_bytes(), b"");
        let verdict = verdict(self.connection.ask(&request).await?);
        if verdict == Verdict::Done {
            accepted.borrow_mut().insert(amount, SystemClock.now());
        }
        Ok(verdict)
    }
}
