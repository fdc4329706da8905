//! A customer who is erased: nothing that is left tells who it was, and everything else holds.

use domain::id::CustomerId;
use serde_json::{Value, json};
use service::erasure::{Erased, erase};
use service::error::{CustomerError, Error};

use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Call, Client, Server, text, usd_external};
use crate::uma::{Payee, to_payee};

/// It is part of every text that is known of the person.
const MARK: &str = "quagmire";

/// The requests with a key that were made for the person.
struct Asked(Vec<(&'static str, Value)>);

impl Asked {
    async fn post(&mut self, client: &Client, path: &'static str, body: &Value) -> Value {
        let key = format!("key-{}", self.0.len());
        let answer = client.send("POST", path, Call::json(body).key(&key)).await;
        self.0.push((path, body.clone()));
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.body);
        answer.body
    }
}

fn person() -> Value {
    json!({
        "customerType": "INDIVIDUAL",
        "platformCustomerId": "quagmire-1",
        "umaAddress": "$glenn.quagmire@uma.test",
        "fullName": "Glenn Quagmire",
        "birthDate": "1985-12-10",
        "nationality": "US",
        "email": "glenn@quagmire.example",
        "phoneNumber": "+14015550193",
        "currencies": ["USD"],
        "address": {
            "line1": "29 Quagmire St", "postalCode": "00093", "city": "Quahog", "country": "US",
        },
    })
}

/// A person with accounts, quotes, payments of each kind, and an invitation.
async fn lives(server: &Server, client: &Client, payee: &Payee) -> (String, Asked) {
    let mut asked = Asked(Vec::new());
    let customer = text(&asked.post(client, "/customers", &person()).await["id"]);
    let usd = client.funded(&customer, "USD", 20_000).await;
    let eur = client.account(Some(&customer), "EUR").await;
    let mut bank = usd_external(Some(&customer), "789");
    bank["platformAccountId"] = json!("quagmires bank");
    bank["accountInfo"]["beneficiary"]["fullName"] = json!("Glenn Quagmire");
    let bank = text(&asked.post(client, "/customers/external-accounts", &bank).await["id"]);
    let mut out = transfer(&usd, &bank, 1_000);
    out["description"] = json!("Quagmire's savings");
    out["remittanceInformation"] = json!("for Quagmire");
    asked.post(client, "/transfer-out", &out).await;
    server.pass(60_000).await;
    let mut between = sending(&from(&usd), &to(&eur), 5_000);
    between["description"] = json!("Quagmire's euros");
    let quote = text(&asked.post(client, "/quotes", &between).await["id"]);
    client.post(&format!("/quotes/{quote}/execute"), &json!({})).await.expect(200);
    let payer = Payer { client: client.clone(), customer: customer.clone(), usd: usd.clone() };
    let mut paid = to_payee(&payer, payee, 14_000).await;
    paid["senderCustomerInfo"] = json!({ "FULL_NAME": "Glenn Quagmire" });
    let quote = text(&asked.post(client, "/quotes", &paid).await["id"]);
    client.post(&format!("/quotes/{quote}/execute"), &json!({})).await.expect(200);
    let invitation = json!({ "inviterUma": "$glenn.quagmire@uma.test", "firstName": "Quagmire" });
    asked.post(client, "/invitations", &invitation).await;
    let bank = transfer(&eur, &bank, 1);
    client.post("/transfer-out", &bank).await.expect(400);
    let home = client.account(None, "EUR").await;
    let rest = client.balance(&eur).await;
    let quote = text(&client.quote(&sending(&from(&eur), &to(&home), rest)).await["id"]);
    client.post(&format!("/quotes/{quote}/execute"), &json!({})).await.expect(200);
    (customer, asked)
}

/// How many answers of a platform tell of the person.
async fn shows(client: &Client, customer: &str) -> usize {
    let mut paths = vec![format!("/customers/{customer}")];
    for list in [
        "/customers?isIncludingDeleted=true",
        "/customers/external-accounts",
        "/customers/internal-accounts",
        "/transactions",
        "/quotes",
        "/events",
    ] {
        let with = if list.contains('?') { '&' } else { '?' };
        paths.push(format!("{list}{with}limit=100"));
    }
    let mut marked = 0;
    while let Some(path) = paths.pop() {
        let answer = client.get(&path).await;
        let shown = answer.expect(200).to_string().to_ascii_lowercase();
        marked += usize::from(shown.contains(MARK));
        let list = path.split_once('?').map(|(list, _)| list).filter(|list| *list != "/events");
        for row in answer.body["data"].as_array().into_iter().flatten() {
            if let (Some(list), Some(id)) = (list, row["id"].as_str()) {
                let is_shown = !id.starts_with("InternalAccount");
                paths.extend(is_shown.then(|| format!("{list}/{id}")));
            }
        }
    }
    marked
}

#[tokio::test]
async fn nothing_that_is_left_tells_who_it_was() {
    let server = Server::new();
    let (client, other) = (server.platform().await, server.platform().await);
    let payee = Payee::on(&other).await;
    let (customer, asked) = lives(&server, &client, &payee).await;
    let id = CustomerId::parse(&customer).expect("an id");
    let path = format!("/customers/{customer}");
    client.send("DELETE", &path, Call::default().key("gone")).await.expect(200);
    let before = shows(&client, &customer).await;
    assert!(before > 10, "{before} answers tell of the person");
    let balances = client.get("/customers/internal-accounts?limit=100").await.body;
    server.verify();

    let erased = erase(&server.app, id).await.expect("erased");
    let Erased { records, events, answers } = erased;
    assert!(records >= 10 && events >= 10 && answers > asked.0.len(), "{erased:?}");
    assert_eq!(shows(&client, &customer).await, 0);
    server.verify();
    // The books are as they were, and so is what others have.
    assert_eq!(client.get("/customers/internal-accounts?limit=100").await.body, balances);
    assert_eq!(payee.payment().await["status"], "COMPLETED");
    // A repeated request has no effect, and tells nothing.
    for (number, (path, body)) in asked.0.iter().enumerate() {
        let call = Call::json(body).key(&format!("key-{number}"));
        client.send("POST", path, call).await.refused(410, "CUSTOMER_DELETED");
    }
    client
        .send("DELETE", &path, Call::default().key("gone"))
        .await
        .refused(410, "CUSTOMER_DELETED");
    // A payment to the address must not reach another person.
    let again = client.post("/customers", &person()).await;
    again.refused(409, "UMA_ADDRESS_EXISTS");
    payee.client.get("/receiver/uma/%24glenn.quagmire@uma.test?customerId=none").await.expect(400);
    // Once is enough.
    assert_eq!(erase(&server.app, id).await.expect("erased"), Erased::default());
    // Who did it is kept, and what was done to the person before is not.
    assert!(server.audited(&customer).iter().all(|(_, request, _)| request.is_none()));
    server.verify();
    let server = server.restart();
    server.verify();
}

#[tokio::test]
async fn a_business_is_erased_with_its_owners() {
    let server = Server::new();
    let client = server.platform().await;
    let business = json!({
        "customerType": "BUSINESS",
        "platformCustomerId": "quagmire-air",
        "businessInfo": { "legalName": "Quagmire Air", "taxId": "quagmire-47" },
        "beneficialOwners": [{ "fullName": "Glenn Quagmire", "individualType": "DIRECTOR" }],
    });
    let made = client.post("/customers", &business).await;
    let customer = text(&made.expect(201)["id"]);
    client.send("DELETE", &format!("/customers/{customer}"), Call::default()).await.expect(200);
    assert!(shows(&client, &customer).await > 0);
    erase(&server.app, CustomerId::parse(&customer).expect("an id")).await.expect("erased");
    assert_eq!(shows(&client, &customer).await, 0);
    server.verify();
}

#[tokio::test]
async fn only_a_customer_who_was_deleted_is_erased() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let id = CustomerId::parse(&customer).expect("an id");
    let shown = client.get(&format!("/customers/{customer}")).await.body;
    let refused = erase(&server.app, id).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(client.get(&format!("/customers/{customer}")).await.body, shown);
    let unknown = CustomerId::from_uuid(uuid::Uuid::from_u128(1));
    let refused = erase(&server.app, unknown).await;
    let is_unknown =
        matches!(refused, Err(Error::Customer(CustomerError::NotFound { id })) if id == unknown);
    assert!(is_unknown, "{refused:?}");
    server.verify();
}
