//! `switchyard demo`: the whole story on a database that is thrown away afterwards, through
//! the same HTTP that clients use, and checked at every step.

mod instance;
pub(crate) mod client;
mod endpoint;
mod ledger;
mod messages;
mod uma;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use adapters::outbound::GuardedClient;
use reqwest::Method;
use serde_json::{Value, json};
use service::webhooks::signature::PublicKeys;

use crate::command::{Failure, emit, print};
use crate::config::{ClientCredentials, EXIT_OK};
use crate::database::Database;
use crate::demo::client::{Answer, Client, QUOTE_PARTS, ToAddress, same, text, title, transfer};
use crate::demo::endpoint::Endpoint;
use crate::demo::instance::{Instance, Stopped};
use crate::demo::ledger::{Names, books};
use crate::{config, shutdown, telemetry};

/// Between two events that reach an endpoint of this machine.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(20);

/// The name of the story's database in its folder.
const DATABASE: &str = "demo.db";

/// The name of the database of the other institution.
const PEER_DATABASE: &str = "peer.db";

/// Tells the story. Fails at the first step that does not go as it should.
pub async fn run(options: &config::Demo) -> Result<u8, Failure> {
    let stop = shutdown::on_signals()
        .map_err(|error| Failure::new(format!("signals cannot be listened for: {error}")))?;
    let databases = if options.uma { uma::DATABASES } else { [DATABASE, PEER_DATABASE] };
    let made;
    let folder = match &options.keep {
        Some(folder) => kept(folder, databases)?,
        None => {
            made =
                tempfile::Builder::new().prefix("switchyard-demo-").tempdir().map_err(|error| {
                    Failure::new(format!("cannot make a temporary folder: {error}"))
                })?;
            made.path()
        }
    };
    // A temporary folder goes with its variable, whichever way this ends.
    let stays = options.keep.is_some();
    telemetry::metrics();
    let story = async {
        if options.uma { uma::run(folder, stays).await } else { in_folder(folder, stays).await }
    };
    tokio::select! {
        done = story => done,
        () = stop.cancelled() => Err(Failure::new("the demo was stopped before its end")),
    }
}

/// The folder in which the story stays. An earlier one is not written over.
fn kept<'a>(folder: &'a Path, databases: [&str; 2]) -> Result<&'a Path, Failure> {
    for name in databases {
        let database = folder.join(name);
        // The printed URL must be one that the other commands read.
        Database::parse(&format!("sqlite://{}", database.display()))?;
        if database.symlink_metadata().is_ok() {
            let line = format!("{} is there already: name another folder", database.display());
            return Err(Failure::new(line).as_usage());
        }
    }
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::new(format!("{} cannot be made: {error}", folder.display())).as_usage()
    })?;
    Ok(folder)
}

async fn in_folder(folder: &Path, stays: bool) -> Result<u8, Failure> {
    let way_out = || Arc::new(GuardedClient::default());
    let own = Instance::start(folder, DATABASE, stays, way_out()).await?;
    let peer = Instance::start(folder, PEER_DATABASE, stays, way_out()).await?;
    let done = tell(&own, &peer).await;
    let (own, peer) = tokio::join!(own.stop(), peer.stop());
    done?;
    let (own, peer) = (own?, peer?);
    print("\nVERIFY: everything the system promises about its data, checked on the database\n\n")?;
    own.file.check()?;
    print("\nand on the database of the other institution\n\n")?;
    peer.file.check()?;
    print("\nThe story is complete. Now yours: run switchyard and paste what it prints.\n")?;
    if stays {
        print(&where_to_look(&own))?;
    }
    let mut said = own.described();
    said["complete"] = json!(true);
    said["peer"] = peer.described();
    emit(&said)?;
    Ok(EXIT_OK)
}

/// How to inspect a demo that stays.
fn where_to_look(own: &Stopped) -> String {
    let ClientCredentials { id, secret } = &own.credentials;
    let (url, database, api) = (own.url(), &own.file.database, api::VERSION);
    format!(
        "\nThe story stays in {database}, with its key beside it. To look at it:\n\n  \
         switchyard verify --database-url {url}\n  \
         switchyard token list --database-url {url}\n  \
         sqlite3 -readonly {database} .tables\n  \
         sqlite3 -readonly {database} 'select status, count(*) from transactions group by 1'\n\n\
         To serve it, and to ask it for its payments and for what was sent to its endpoint:\n\n  \
         switchyard --database-url {url}\n  \
         curl -u {id}:{secret} http://127.0.0.1:8080/{api}/transactions\n  \
         curl -u {id}:{secret} http://127.0.0.1:8080/{api}/events\n\n\
         Its pages are at http://127.0.0.1:8080/docs then. Remove the folder when you have seen \
         enough.\n"
    )
}

async fn tell(own: &Instance, peer: &Instance) -> Result<(), Failure> {
    print(&format!("A throw-away server listens at {}\n", own.base_url))?;
    let story = Story { client: Client::new(own, "")? };
    let mut endpoint = Endpoint::open().await?;
    story.set_endpoint(&endpoint).await?;
    title("a customer")?;
    let (customer, address) = story.client.customer("ada", "Ada Lovelace", "GB").await?;
    let dollars = story.client.account(&customer, "USD").await?;
    let euros = story.client.account(&customer, "EUR").await?;
    title("1000.00 USD arrive")?;
    story.client.fund(&dollars, 100_000).await?;
    story.exchange(&dollars, &euros).await?;
    let paid = story.pay_out(&customer, &dollars).await?;
    let refused = story.be_refused(&customer, &dollars).await?;
    let received = story.receive(&customer).await?;
    let quote = story.pay_peer((&customer, &address, &dollars), peer).await?;
    story.balances(&customer, &quote["totalSendingAmount"]).await?;
    let sent = text(&quote, "transactionId")?;
    let ends = [
        (&*paid, "COMPLETED"),
        (&refused, "REJECTED"),
        (&received, "COMPLETED"),
        (&sent, "COMPLETED"),
    ];
    story.be_notified(&mut endpoint, &ends).await?;
    print("\nTHE LEDGER: what was posted, and the accounts after it\n\n")?;
    let names = Names::new(&customer, "Ada")?;
    books(own.app(), own.first.platform, names).await.and_then(|books| print(&books))
}

/// The platform of the story.
struct Story {
    client: Client,
}

impl Story {
    async fn set_endpoint(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        title("where events go")?;
        let body = json!({ "webhookEndpoint": endpoint.url() });
        let answer =
            self.client.call(Method::PATCH, "/config", Some(&body), None, &["webhookEndpoint"]);
        answer.await?.expect(200).map(|_| ())
    }

    async fn exchange(&self, dollars: &str, euros: &str) -> Result<(), Failure> {
        title("a quote: what are 500.00 USD in EUR, with the rate locked?")?;
        let body = json!({
            "source": { "sourceType": "ACCOUNT", "accountId": dollars },
            "destination": { "destinationType": "ACCOUNT", "accountId": euros },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": 50_000,
        });
        let quote = self.client.post("/quotes", &body, &QUOTE_PARTS).await?.expect(201)?;
        same(&quote["status"], &json!("PENDING"))?;

        title("its execution")?;
        let path = format!("/quotes/{}/execute", text(&quote, "id")?);
        let executed = self.client.post(&path, &Value::Null, &["status"]).await?.expect(200)?;
        same(&executed["status"], &json!("COMPLETED"))?;
        let path = format!("/transactions/{}", text(&quote, "transactionId")?);
        let shown = ["status", "sentAmount.amount", "receivedAmount.amount", "settledAt"];
        let transaction = self.client.get(&path, &shown).await?.expect(200)?;
        same(&transaction["status"], &json!("COMPLETED"))?;
        same(&transaction["receivedAmount"]["amount"], &quote["totalReceivingAmount"])
    }

    async fn pay_out(&self, customer: &str, dollars: &str) -> Result<String, Failure> {
        title("200.00 USD to a bank account; a repeat with the same key pays once")?;
        let account = self.client.bank_account(customer, "123456789").await?;
        let body = transfer(dollars, &account, 20_000);
        let sent = self.send("demo-payout", &body).await?;
        let repeated = self.send("demo-payout", &body).await?;
        if !repeated.is_replay {
            return Err(Failure::new("the repeated transfer was not answered with the first"));
        }
        let (sent, repeated) = (sent.expect(201)?, repeated.expect(201)?);
        same(&repeated, &sent)?;
        let id = text(&sent, "id")?;
        let settled = self.client.ended(&id).await?;
        same(&settled["status"], &json!("COMPLETED"))?;
        Ok(id)
    }

    async fn be_refused(&self, customer: &str, dollars: &str) -> Result<String, Failure> {
        title("100.00 USD to an account whose bank refuses them: the money comes back")?;
        // The last three digits choose what the bank of the sandbox does.
        let account = self.client.bank_account(customer, "123456004").await?;
        let sent = self.send("demo-refused", &transfer(dollars, &account, 10_000)).await?;
        let id = text(&sent.expect(201)?, "id")?;
        let refused = self.client.ended(&id).await?;
        same(&refused["status"], &json!("REJECTED"))?;
        Ok(id)
    }

    async fn receive(&self, customer: &str) -> Result<String, Failure> {
        title("40.00 USD come from a UMA address of another institution")?;
        let body = json!({
            "senderUmaAddress": "$success.usd@sandbox.uma.money",
            "customerId": customer,
            "receivingCurrencyCode": "USD",
            "receivingCurrencyAmount": 4_000,
        });
        let shown = ["id", "status", "senderUmaAddress", "receiverUmaAddress"];
        let payment = self.client.post("/sandbox/uma/receive", &body, &shown).await?.expect(200)?;
        // The platform is asked first, and its endpoint approves by answering 200.
        same(&payment["status"], &json!("PENDING"))?;
        let id = text(&payment, "id")?;
        let received = self.client.ended(&id).await?;
        same(&received["status"], &json!("COMPLETED"))?;
        Ok(id)
    }

    /// Pays a customer of an institution whose server is another.
    async fn pay_peer(
        &self,
        (customer, address, dollars): (&str, &str, &str),
        peer: &Instance,
    ) -> Result<Value, Failure> {
        title("25.00 USD to a customer of another institution, on a server of its own")?;
        let there = Client::new(peer, "there")?;
        let (_, payee) = there.customer("bo", "Bo Karlsson", "SE").await?;
        let order = ToAddress {
            customer,
            account: dollars,
            address: &payee,
            currency: "USD",
            locked: "RECEIVING",
            amount: 2_500,
        };
        let quote = self.client.pay_address(&order).await?;
        let received = there.received_from(address).await?;
        same(&received["receivedAmount"]["amount"], &json!(2_500))?;
        print("  `switchyard demo --uma` shows every message\n")?;
        Ok(quote)
    }

    async fn balances(&self, customer: &str, paid: &Value) -> Result<(), Failure> {
        title("what the customer has now")?;
        let dollars = format!("/customers/internal-accounts?customerId={customer}&currency=USD");
        let shown = ["data.0.balance.amount", "data.0.balance.currency.code"];
        let left = self.client.get(&dollars, &shown).await?.expect(200)?;
        self.client.account(customer, "EUR").await?;
        // 1000.00 came, 500.00 were exchanged, 200.00 were paid out, 100.00 came back, 40.00 came,
        // and the other institution's customer was paid.
        let expected = 34_000 - paid.as_i64().unwrap_or_default();
        same(&left["data"][0]["balance"]["amount"], &json!(expected))
    }

    /// Shows what the endpoint was sent and whether the platform's keys have signed it, until the
    /// payments have come to these statuses there too.
    async fn be_notified(
        &self,
        endpoint: &mut Endpoint,
        ends: &[(&str, &str)],
    ) -> Result<(), Failure> {
        title("the notifications of the endpoint meanwhile, in requests that are signed twice")?;
        let keys = self.client.get("/webhooks/keys", &["publicKey"]).await?.expect(200)?;
        let (secret, public_key) = (text(&keys, "secret")?, text(&keys, "publicKey")?);
        let keys = PublicKeys { secret, public_key };
        let mut missing = ends.to_vec();
        let late = || Failure::new(format!("the endpoint was not notified of {ends:?} in time"));
        while !missing.is_empty() {
            let notification = tokio::time::timeout(NOTIFIED_WITHIN, endpoint.next()).await;
            let notification = notification.ok().flatten().ok_or_else(late)?;
            let (is_standard, is_ecdsa) = notification.signatures(&keys);
            let event = notification.event()?;
            let (kind, data) = (text(&event, "type")?, &event["data"]);
            let (id, status) = (data["id"].as_str(), data["status"].as_str());
            let said = [Some(&*kind), status, id].into_iter().flatten().collect::<Vec<_>>();
            let signed = |is_good: bool| if is_good { "good" } else { "WRONG" };
            print(&format!(
                "  POST {}\n       {}\n       webhook-signature: {}   X-Grid-Signature: {}\n",
                endpoint::PATH,
                said.join(" "),
                signed(is_standard),
                signed(is_ecdsa),
            ))?;
            if !(is_standard && is_ecdsa) {
                return Err(Failure::new("an event was delivered with a signature that is wrong"));
            }
            missing.retain(|end| Some(*end) != id.zip(status));
        }
        Ok(())
    }

    async fn send(&self, key: &str, body: &Value) -> Result<Answer, Failure> {
        let shown = ["id", "status", "sentAmount.amount"];
        self.client.call(Method::POST, "/transfer-out", Some(body), Some(key), &shown).await
    }
}
