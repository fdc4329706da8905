//! For whom something was changed, and by which request, as the journal says.

use domain::platform::Mode;
use domain::token::Permissions;
use serde_json::json;
use store::audit::Effect;
use store::origin::Actor;

use crate::pay::{Payer, transfer};
use crate::support::{Call, Client, Server, text};

/// The actor of a client's requests.
async fn actor(client: &Client) -> Actor {
    let tokens = client.get("/tokens").await.expect(200).clone();
    let id = text(&tokens["data"][0]["id"]);
    Actor::token(domain::id::TokenId::parse(&id).expect("an id"))
}

fn named(call: Call, request: &str) -> Call {
    call.header("x-request-id", request)
}

#[tokio::test]
async fn each_change_names_its_token_and_its_request() {
    let server = Server::new();
    let client = server.platform().await;
    let token = actor(&client).await;
    let ada = json!({ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" });
    let made = client.send("POST", "/customers", named(Call::json(&ada), "r-1")).await;
    let id = text(&made.expect(201)["id"]);
    let path = format!("/customers/{id}");
    let other = json!({ "customerType": "INDIVIDUAL", "fullName": "Ada King" });
    client.send("PATCH", &path, named(Call::json(&other), "r-2")).await.expect(200);
    // What was refused and what was only read is not there.
    let wrong = json!({ "customerType": "INDIVIDUAL", "fullName": "" });
    client.send("PATCH", &path, named(Call::json(&wrong), "r-3")).await.expect(400);
    client.send("GET", &path, named(Call::default(), "r-4")).await.expect(200);
    client.send("DELETE", &path, named(Call::default(), "r-5")).await.expect(200);
    let entry = |request: &str, effect| (token.clone(), Some(request.to_owned()), effect);
    let expected = [
        entry("r-1", Effect::Created),
        entry("r-2", Effect::Changed),
        entry("r-5", Effect::Changed),
    ];
    assert_eq!(server.audited(&id), expected);
    // A request that its client gave no name has one of ours.
    let made = client.post("/customers", &ada).await;
    let id = text(&made.expect(201)["id"]);
    let [(actor, Some(request), Effect::Created)] = &server.audited(&id)[..] else {
        panic!("{:?}", server.audited(&id));
    };
    let shown = made.headers.get("x-request-id").expect("a request id");
    assert_eq!((actor, request.as_bytes()), (&token, shown.as_bytes()));
    server.verify();
}

#[tokio::test]
async fn a_repeated_request_changes_nothing() {
    let server = Server::new();
    let client = server.platform().await;
    let ada = json!({ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" });
    let call = |request| named(Call::json(&ada), request).header("idempotency-key", "key-1");
    let first = client.send("POST", "/customers", call("r-1")).await;
    let again = client.send("POST", "/customers", call("r-2")).await;
    assert_eq!(first.bytes, again.bytes);
    let entries = server.audited(&text(&first.expect(201)["id"]));
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].1.as_deref(), Some("r-1"));
}

#[tokio::test]
async fn what_happens_later_names_its_job() {
    let server = Server::new();
    let payer = Payer::with(&server, 1_000).await;
    let bank = payer.bank("789").await;
    let body = transfer(&payer.usd, &bank, 400);
    let sent = payer.client.send("POST", "/transfer-out", named(Call::json(&body), "r-1")).await;
    let id = text(&sent.expect(201)["id"]);
    server.pass(1_000).await;
    let entries = server.audited(&id);
    let token = actor(&payer.client).await;
    assert_eq!(entries[0], (token, Some("r-1".to_owned()), Effect::Created));
    let job = (Actor::job("ASK_RAIL"), None, Effect::Changed);
    assert!(entries.len() > 1 && entries[1..].iter().all(|entry| *entry == job), "{entries:?}");
    // Its money is on an account that both have changed.
    let account = server.audited(&payer.usd);
    assert_eq!(account.last(), Some(&job));
    server.verify();
}

#[tokio::test]
async fn what_the_server_does_for_itself_names_it() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, true).await;
    server.token(client.platform, Permissions::ALL).await;
    let entries = server.audited(&client.platform.to_string());
    let itself = |effect| (Actor::job("SERVER"), None, effect);
    assert_eq!(entries.first(), Some(&itself(Effect::Created)), "{entries:?}");
}

#[tokio::test]
async fn a_person_at_a_page_is_named_by_the_route() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, false).await;
    let link = client.get("/customers/kyc-link?platformCustomerId=ada").await.expect(200).clone();
    let id = text(&link["customerId"]);
    let path = text(&link["kycUrl"]);
    let path = path.strip_prefix("https://pay.test").expect("our address");
    let form = "outcome=approved&fullName=Ada+Lovelace&birthDate=1985-12-10&nationality=gb\
                &line1=1+High+St&postalCode=N1&city=London&country=gb";
    let call = Call::raw(form).header("content-type", "application/x-www-form-urlencoded");
    let answer = server.anonymous().send_to("POST", path, named(call, "r-1")).await;
    assert_eq!(answer.status, 200);
    let entries = server.audited(&id);
    let (actor, request, effect) = entries.last().expect("the decision");
    let Actor::Route(route) = actor else { panic!("{entries:?}") };
    assert!(route.contains("{") && !path.contains(route.as_str()), "the code is in it: {route}");
    assert_eq!((request.as_deref(), *effect), (Some("r-1"), Effect::Changed));
    server.verify();
}
