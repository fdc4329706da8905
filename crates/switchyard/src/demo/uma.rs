//! `switchyard demo --uma`: two institutions that pay each other, with every message between them.

use std::path::Path;

use serde_json::json;

use crate::command::{Failure, emit, print};
use crate::config::EXIT_OK;
use crate::demo::client::{Client, ToAddress, same, title};
use crate::demo::instance::{Instance, Stopped};
use crate::demo::ledger::{Names, books};
use crate::demo::messages::Shown;

/// The names of the databases in the story's folder.
pub(super) const DATABASES: [&str; 2] = ["alder.db", "birch.db"];

/// The institutions.
const ALDER: &str = "Alder";
const BIRCH: &str = "Birch";

/// The currencies of the story.
const CURRENCIES: [&str; 2] = ["USD", "EUR"];

/// An institution, its client, and its customer.
struct Side<'a> {
    name: &'static str,
    instance: &'a Instance,
    client: Client,
    customer: String,
    first_name: &'static str,
    address: String,
    dollars: String,
}

/// Tells the story in a folder, where the databases stay or do not.
pub(super) async fn run(folder: &Path, stays: bool) -> Result<u8, Failure> {
    let [first, second] = DATABASES;
    let alder = Instance::start(folder, first, stays, Shown::new(ALDER, BIRCH)).await?;
    let birch = Instance::start(folder, second, stays, Shown::new(BIRCH, ALDER)).await?;
    let done = tell(&alder, &birch).await;
    let (alder, birch) = tokio::join!(alder.stop(), birch.stop());
    done?;
    let (alder, birch) = (alder?, birch?);
    for (name, stopped) in [(ALDER, &alder), (BIRCH, &birch)] {
        print(&format!("\nVERIFY: the database of {name}\n\n"))?;
        stopped.file.check()?;
    }
    print("\nThe story is complete. docs/uma.md says how to begin with another institution.\n")?;
    if stays {
        print(&where_to_look(&alder, &birch))?;
    }
    emit(&json!({
        "complete": true,
        "institutions": [alder.described(), birch.described()],
    }))?;
    Ok(EXIT_OK)
}

/// How to inspect the databases, and how to serve them where their domains reach them.
fn where_to_look(alder: &Stopped, birch: &Stopped) -> String {
    let mut text = "\nThe story stays. To look at it, and to serve both again:\n\n".to_owned();
    for stopped in [alder, birch] {
        let (url, port) = (stopped.url(), stopped.port);
        text += &format!(
            "  switchyard verify --database-url {url}\n  \
             switchyard uma peers --database-url {url}\n  \
             switchyard --listen 127.0.0.1:{port} --database-url {url}\n",
        );
    }
    text + "\nRemove the folder when you have seen enough.\n"
}

async fn tell(alder: &Instance, birch: &Instance) -> Result<(), Failure> {
    let on = |name: &str, it: &Instance| format!("  {name}   {}   {}\n", it.domain, it.base_url);
    title("two institutions, each with a domain, a server and a database of its own")?;
    print(&(on(ALDER, alder) + &on(BIRCH, birch)))?;
    print(
        "\n  Settlement between them is hash-locked: the payee's server books and gives the \
         preimage of its\n  invoice as the receipt, so both books agree; it is not Lightning, and \
         no money moves between them.\n",
    )?;
    title("a customer with 1000.00 USD on each side")?;
    let ada = Side::new(ALDER, alder, ("ada", "Ada", "Ada Lovelace", "GB")).await?;
    let bo = Side::new(BIRCH, birch, ("bo", "Bo", "Bo Karlsson", "SE")).await?;

    title("exactly 25.00 USD shall arrive at Bo's: the receiving side is locked")?;
    ada.pay(&bo, ("USD", "RECEIVING", 2_500)).await?;
    title("Bo sends exactly 40.00 USD, which arrive as EUR: the sending side is locked")?;
    bo.pay(&ada, ("EUR", "SENDING", 4_000)).await?;

    title("what both have now")?;
    for side in [&ada, &bo] {
        for currency in CURRENCIES {
            side.client.account(&side.customer, currency).await?;
        }
    }
    for side in [&ada, &bo] {
        print(&format!("\nTHE LEDGER OF {}\n\n", side.name.to_uppercase()))?;
        let names = Names::new(&side.customer, side.first_name)?;
        print(&books(side.instance.app(), side.instance.first.platform, names).await?)?;
    }
    Ok(())
}

impl<'a> Side<'a> {
    /// A customer of the institution with 1000.00 USD.
    async fn new(
        name: &'static str,
        instance: &'a Instance,
        (id, first_name, full_name, nationality): (&str, &'static str, &str, &str),
    ) -> Result<Self, Failure> {
        let client = Client::new(instance, &format!("{name}'s client"))?;
        let (customer, address) = client.customer(id, full_name, nationality).await?;
        let dollars = client.account(&customer, "USD").await?;
        client.fund(&dollars, 100_000).await?;
        Ok(Self { name, instance, client, customer, first_name, address, dollars })
    }

    /// Pays the other side's customer, and looks at both ends of the payment.
    async fn pay(
        &self,
        payee: &Side<'_>,
        (currency, locked, amount): (&str, &str, i64),
    ) -> Result<(), Failure> {
        let order = ToAddress {
            customer: &self.customer,
            account: &self.dollars,
            address: &payee.address,
            currency,
            locked,
            amount,
        };
        let quote = self.client.pay_address(&order).await?;
        let received = payee.client.received_from(&self.address).await?;
        same(&received["receivedAmount"]["amount"], &quote["totalReceivingAmount"])
    }
}
