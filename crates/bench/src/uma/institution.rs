//! An institution: a server with a database and a domain of its own, its customers and its books.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use domain::time::Timestamp;
use serde_json::{Value, json};
use store::server_key;
use switchyard::config::{self, Command, Config};

use crate::child::{self, Server, Starter};
use crate::http::Client;
use crate::place::{Ground, Place};
use crate::sessions::text;

/// The first balance of a payer in cents: enough for all payments of a run.
const FUNDS_MINOR: i64 = 1_000_000_000;

/// A server with one platform and customers who have UMA addresses.
pub(super) struct Institution {
    pub(super) server: Server,
    pub(super) domain: String,
    pub(super) customers: Vec<Customer>,
    place: Place,
}

/// A customer with an account in US dollars.
pub(super) struct Customer {
    id: String,
    pub(super) address: String,
    pub(super) usd: String,
}

impl Customer {
    /// Where this customer looks up another.
    pub(super) fn lookup_path(&self, payee: &Self) -> String {
        let address = payee.address.replace('$', "%24");
        format!("/receiver/uma/{address}?customerId={}", self.id)
    }
}

impl Institution {
    pub(super) fn start(
        ground: &Ground,
        starter: &Starter,
        name: &str,
        customers: usize,
    ) -> Result<Self> {
        let place = ground.fresh(name)?;
        let server = starter.serve(&place)?;
        // The domain that a first platform has unless another is named.
        let domain = format!("localhost:{}", server.address().port());
        let mut client = server.client();
        let customers = (0..customers).map(|number| {
            let address = format!("$customer-{number}@{domain}");
            let body = json!({
                "customerType": "INDIVIDUAL",
                "fullName": format!("Ada Number {number} Bench"),
                "umaAddress": address,
            });
            let made = client.post("/customers", &format!("customer-{number}"), &body)?;
            let id = text(&made, "id")?.to_owned();
            let path = format!("/customers/internal-accounts?currency=USD&customerId={id}");
            let usd = text(&client.get(&path)?["data"][0], "id")?.to_owned();
            Ok(Customer { id, address, usd })
        });
        let customers = customers.collect::<Result<_>>()?;
        Ok(Self { server, domain, customers, place })
    }

    /// Gives each customer money.
    pub(super) fn fund(&self) -> Result<()> {
        let mut client = self.server.client();
        for Customer { usd, .. } in &self.customers {
            let path = format!("/sandbox/internal-accounts/{usd}/fund");
            client.post(&path, &format!("fund-{usd}"), &json!({ "amount": FUNDS_MINOR }))?;
        }
        Ok(())
    }

    /// All payments, which must be complete and explain every balance.
    pub(super) fn books(&self) -> Result<Books> {
        let mut client = self.server.client();
        let payments = rows(&mut client, "/transactions?limit=100")?;
        let open = payments.iter().find(|payment| payment["status"] != "COMPLETED");
        ensure!(open.is_none(), "a payment is not complete: {open:?}");
        let books = Books { payments };
        let balances = rows(&mut client, "/customers/internal-accounts?currency=USD&limit=100")?;
        let balances: i64 = balances.iter().map(|account| cents(account, "balance")).sum();
        let sent = books.sum("OUTGOING", "sentAmount", |_| true);
        let expected = books.received() - sent;
        ensure!(balances == expected, "balances of {balances} cents, by payments {expected}");
        Ok(books)
    }

    /// Allows another institution, as an operator does with a partner: it is no stranger, whose
    /// requests are bounded.
    pub(super) fn allow(&self, other: &Self) -> Result<()> {
        let config = self.config(&["uma", "allow", &other.domain])?;
        let Command::Uma(command) = &config.command else { bail!("the line is another command") };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(switchyard::operator::uma::run(&config, command));
        ended.map(drop).map_err(|failure| anyhow::anyhow!("{failure}"))
    }

    /// The configuration of a command on the database.
    fn config(&self, command: &[&str]) -> Result<Config> {
        let url = self.place.url();
        let line = [&["switchyard"], command, &["--database-url", &url]].concat();
        let key = child::SECRET_KEY.map(|byte| format!("{byte:02x}")).concat();
        let environment = [(config::SECRET_KEY_VARIABLE.into(), key.into())].into();
        let config = config::read(line.into_iter().map(Into::into), &environment);
        config.ok().context("the line is a good one")
    }

    /// Stops the server and checks its database.
    pub(super) fn verify(self) -> Result<()> {
        let config = self.config(&["verify"])?;
        self.server.stop()?;
        let engine = config.database.engine();
        let keyring = server_key::unlock(&*engine, &child::SECRET_KEY)?;
        let report = store::verify::verify(&*engine, Some(&keyring))?;
        ensure!(report.is_sound(), "{}", switchyard::verify::human(&report));
        Ok(())
    }
}

/// The payments of an institution as its API shows them.
pub(super) struct Books {
    payments: Vec<Value>,
}

impl Books {
    fn sum(&self, way: &str, amount: &str, counts: impl Fn(&Value) -> bool) -> i64 {
        let payments = self.payments.iter();
        let counted = payments.filter(|payment| payment["type"] == way && counts(payment));
        counted.map(|payment| cents(payment, amount)).sum()
    }

    /// Cents that came, deposits among them.
    pub(super) fn received(&self) -> i64 {
        self.sum("INCOMING", "receivedAmount", |_| true)
    }

    /// Cents that arrive at a domain by what the payers' institution says.
    pub(super) fn sent_to(&self, domain: &str) -> i64 {
        self.sum("OUTGOING", "receivedAmount", |payment| {
            let payee = payment["receiverUmaAddress"].as_str();
            payee.and_then(|payee| payee.split_once('@')).is_some_and(|(_, it)| it == domain)
        })
    }

    /// When the payment from a UMA address over each amount of cents was complete.
    pub(super) fn completions(&self) -> Result<BTreeMap<i64, Timestamp>> {
        let incoming = self.payments.iter().filter(|payment| {
            payment["type"] == "INCOMING" && payment["senderUmaAddress"].is_string()
        });
        let completion = |payment| {
            let at = Timestamp::parse(text(payment, "settledAt")?)?;
            Ok((cents(payment, "receivedAmount"), at))
        };
        incoming.map(completion).collect()
    }
}

/// The amount of a field. The server shows one wherever it is asked for.
fn cents(row: &Value, name: &str) -> i64 {
    row[name]["amount"].as_i64().unwrap_or(0)
}

/// Every row of a list.
fn rows(client: &mut Client, path: &str) -> Result<Vec<Value>> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let mut page = client.get(&format!("{path}{cursor}"))?;
        let next = page["nextCursor"].as_str().map(|next| format!("&cursor={next}"));
        let Value::Array(data) = page["data"].take() else { anyhow::bail!("a page has data") };
        rows.extend(data);
        let Some(next) = next else { return Ok(rows) };
        cursor = next;
    }
}
