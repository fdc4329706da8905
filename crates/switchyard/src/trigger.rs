//! `switchyard trigger`: makes an event of a sandbox platform happen, by the requests and test
//! numbers that cause it.
//!
//! It is a client of the public API and shows each call that it makes. It makes a customer, an
//! account and money of the sandbox to pay with, and changes nothing that is there, but for the
//! platform's clock where an event takes time.

use std::fmt;

use adapters::entropy::SystemEntropy;
use ports::entropy::Entropy as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::command::{Failure, emit, print};
use crate::config::{self, Config, EXIT_OK, Trigger};
use crate::demo::client::{Client, text, transfer};

/// Money of the sandbox for one event, in cents.
const FUNDED: i64 = 100_000;

/// The amount of a payment, in cents.
const PAID: i64 = 10_000;

/// After how long the bank of the suffix 185 sends money back, and a second.
const RETURNED_AFTER_SECONDS: i64 = 61;

/// A quote lives for 15 minutes at most.
const EXPIRED_AFTER_SECONDS: i64 = 901;

/// Makes the event, and prints what came of it.
pub async fn run(config: &Config, options: &Trigger) -> Result<u8, Failure> {
    let credentials = config.client_credentials()?;
    let base_url = format!("{}/{}", config.api, api::VERSION);
    let client = Client::of(reqwest::Client::builder(), base_url, credentials.clone(), "")?;
    let mut id = [0; 4];
    SystemEntropy.fill(&mut id);
    let maker = Maker { client, id: format!("trigger-{:08x}", u32::from_be_bytes(id)) };
    let Made { resource, status } = maker.make(options.event).await?;
    let name = options.event.to_string();
    print(&format!("\n{name}: {resource} is {status}\n"))?;
    emit(&json!({ "event": name, "resource": resource, "status": status }))?;
    Ok(EXIT_OK)
}

/// The resource of an event.
struct Made {
    resource: String,
    status: String,
}

impl Made {
    /// A resource with the status that it has come to.
    fn of(answer: &Value, status: &str) -> Result<Self, Failure> {
        Ok(Self { resource: text(answer, "id")?, status: text(answer, status)? })
    }
}

/// Makes one event.
struct Maker {
    client: Client,
    /// Names what is made for it.
    id: String,
}

/// A customer with money.
struct Payer {
    customer: String,
    dollars: String,
}

impl Maker {
    async fn make(&self, event: config::Event) -> Result<Made, Failure> {
        use config::Event;
        // A live platform is refused before anything is made.
        self.client.get("/sandbox/clock", &["now"]).await?.expect(200)?;
        match event {
            Event::PaymentCompleted => self.pay("789").await,
            Event::PaymentFailed => self.pay("003").await,
            Event::PaymentRejected => self.pay("004").await,
            Event::PaymentReturned => self.have_returned().await,
            Event::PaymentExpired => self.let_expire().await,
            Event::Incoming => self.receive().await,
            Event::Approval => self.be_asked().await,
            Event::AccountStatus => {
                let payer = self.payer().await?;
                Ok(Made { resource: payer.dollars, status: "UPDATED".to_owned() })
            }
            Event::KycApproved => self.identify("APPROVED").await,
            Event::KycRejected => self.identify("REJECTED").await,
            Event::BulkUpload => self.import().await,
            Event::InvitationClaimed => self.invite().await,
            Event::Test => self.test().await,
        }
    }

    async fn customer(&self, number: u32) -> Result<(String, String), Failure> {
        self.client.customer(&format!("{}-{number}", self.id), "Ada Lovelace", "GB").await
    }

    /// A new customer with money, whose account tells that it came.
    async fn payer(&self) -> Result<Payer, Failure> {
        let (customer, _) = self.customer(1).await?;
        let dollars = self.client.account(&customer, "USD").await?;
        self.client.fund(&dollars, FUNDED).await?;
        Ok(Payer { customer, dollars })
    }

    /// Pays a bank account whose number ends in these digits, which decide what becomes of it.
    async fn pay(&self, suffix: &str) -> Result<Made, Failure> {
        let payer = self.payer().await?;
        let account = self.client.bank_account(&payer.customer, &format!("123456{suffix}")).await?;
        let body = transfer(&payer.dollars, &account, PAID);
        let sent = self.client.post("/transfer-out", &body, &["id", "status"]).await?;
        self.ended(&text(&sent.expect(201)?, "id")?).await
    }

    async fn ended(&self, id: &str) -> Result<Made, Failure> {
        let ended = self.client.ended(id).await?;
        Ok(Made { resource: id.to_owned(), status: text(&ended, "status")? })
    }

    async fn have_returned(&self) -> Result<Made, Failure> {
        let paid = self.pay("185").await?;
        self.advance(RETURNED_AFTER_SECONDS).await?;
        self.ended(&paid.resource).await
    }

    /// Lets a quote expire without its execution.
    async fn let_expire(&self) -> Result<Made, Failure> {
        let payer = self.payer().await?;
        let euros = self.client.account(&payer.customer, "EUR").await?;
        let body = json!({
            "source": { "sourceType": "ACCOUNT", "accountId": payer.dollars },
            "destination": { "destinationType": "ACCOUNT", "accountId": euros },
            "lockedCurrencySide": "SENDING",
            "lockedCurrencyAmount": PAID,
        });
        let shown = ["id", "transactionId", "expiresAt"];
        let quote = self.client.post("/quotes", &body, &shown).await?.expect(201)?;
        self.advance(EXPIRED_AFTER_SECONDS).await?;
        self.ended(&text(&quote, "transactionId")?).await
    }

    /// Moves the platform's clock on: what takes time has happened then.
    async fn advance(&self, seconds: i64) -> Result<(), Failure> {
        let body = json!({ "advanceBySeconds": seconds });
        let answer = self.client.post("/sandbox/clock", &body, &["now"]).await?;
        answer.expect(200).map(drop)
    }

    /// Another institution pays a customer.
    async fn receive(&self) -> Result<Made, Failure> {
        let (customer, _) = self.customer(1).await?;
        let body = json!({
            "senderUmaAddress": "$success.usd@sandbox.uma.money",
            "customerId": customer,
            "receivingCurrencyCode": "USD",
            "receivingCurrencyAmount": PAID,
        });
        let shown = ["id", "status", "senderUmaAddress", "receiverUmaAddress"];
        let payment = self.client.post("/sandbox/uma/receive", &body, &shown).await?.expect(200)?;
        self.ended(&text(&payment, "id")?).await
    }

    /// The same, by a platform that is asked for its approval.
    async fn be_asked(&self) -> Result<Made, Failure> {
        let config = self.client.get("/config", &["webhookEndpoint"]).await?.expect(200)?;
        if config["webhookEndpoint"].is_null() {
            return Err(Failure::new(
                "the platform has no webhook endpoint, so it is not asked and payments go on: run \
                 switchyard listen with --approve or --reject beside this, or set webhookEndpoint",
            ));
        }
        self.receive().await
    }

    /// Has a customer's identity decided: by a regulated platform itself, else on the page that the
    /// customer fills in.
    async fn identify(&self, status: &str) -> Result<Made, Failure> {
        let shown = ["isRegulatedFinancialInstitution"];
        let config = self.client.get("/config", &shown).await?.expect(200)?;
        if config[shown[0]] == true {
            let (customer, _) = self.customer(1).await?;
            // From the other end to this one: an identity that stays as it is has no event.
            let other = if status == "APPROVED" { "REJECTED" } else { "APPROVED" };
            self.state(&customer, other).await?;
            return Made::of(&self.state(&customer, status).await?, "kycStatus");
        }
        let path = format!("/customers/kyc-link?platformCustomerId={}", self.id);
        let link = self.client.get(&path, &["customerId", "kycUrl"]).await?.expect(200)?;
        let form = format!(
            "outcome={}&fullName=Ada+Lovelace&birthDate=1985-12-10&nationality=GB&line1=1+High+St\
             &postalCode=N1&city=London&country=GB",
            status.to_lowercase()
        );
        self.client.fill_in(&text(&link, "kycUrl")?, form).await?;
        let path = format!("/customers/{}", text(&link, "customerId")?);
        let customer = self.client.get(&path, &["id", "kycStatus"]).await?.expect(200)?;
        Made::of(&customer, "kycStatus")
    }

    async fn state(&self, customer: &str, status: &str) -> Result<Value, Failure> {
        let body = json!({ "customerType": "INDIVIDUAL", "kycStatus": status });
        let path = format!("/customers/{customer}");
        let answer = self.client.call(Method::PATCH, &path, Some(&body), None, &["kycStatus"]);
        answer.await?.expect(200)
    }

    /// Imports a file with one customer.
    async fn import(&self) -> Result<Made, Failure> {
        let config = self.client.get("/config", &["umaDomain"]).await?.expect(200)?;
        let (id, domain) = (&self.id, text(&config, "umaDomain")?);
        let file = format!(
            "umaAddress,platformCustomerId,customerType,fullName,birthDate,addressLine1,city,state,\
             postalCode,country\r\n\
             ${id}@{domain},{id},INDIVIDUAL,Ada Lovelace,1985-12-10,1 High St,London,LND,N1,GB\r\n"
        );
        let upload = self.client.upload("/customers/bulk/csv", &file).await?.expect(202)?;
        let job = text(&upload, "jobId")?;
        let path = format!("/customers/bulk/jobs/{job}");
        let status = self.client.status_after(&path, &["PENDING", "PROCESSING"]).await?;
        Ok(Made { resource: job, status })
    }

    /// Invites a person, who becomes a customer.
    async fn invite(&self) -> Result<Made, Failure> {
        let (_, inviter) = self.customer(1).await?;
        let (_, invitee) = self.customer(2).await?;
        let body = json!({ "inviterUma": inviter });
        let made = self.client.post("/invitations", &body, &["status"]).await?.expect(201)?;
        let path = format!("/invitations/{}/claim", text(&made, "code")?);
        let body = json!({ "inviteeUma": invitee });
        let claimed = self.client.post(&path, &body, &["status"]).await?.expect(200)?;
        Ok(Made { resource: inviter, status: text(&claimed, "status")? })
    }

    /// Has the endpoint tried out.
    async fn test(&self) -> Result<Made, Failure> {
        let path = "/sandbox/webhooks/test";
        let tested = self.client.post(path, &Value::Null, &["url", "response_status"]).await?;
        let tested = tested.expect(200)?;
        let status = tested["response_status"].to_string();
        Ok(Made { resource: text(&tested, "url")?, status })
    }
}

impl fmt::Display for config::Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use clap::ValueEnum as _;
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("event", |value| value.get_name()))
    }
}
