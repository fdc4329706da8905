//! Invitations (specification 2.13, 3.4, 4.15; contract 6.13).

use std::collections::BTreeSet;

use domain::platform::Mode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Answer, Call, Client, START, Server, fields, text};

/// A platform with a customer who invites.
struct Inviter {
    client: Client,
    customer: String,
    uma: String,
}

impl Inviter {
    async fn on(server: &Server) -> Self {
        let client = server.platform().await;
        let customer = client.customer().await;
        let uma = client.uma_address(&customer).await;
        Self { client, customer, uma }
    }

    /// A new invitation with these parts besides the inviter.
    async fn invite(&self, parts: Value) -> Value {
        let mut body = json!({ "inviterUma": self.uma });
        for (name, value) in parts.as_object().expect("an object") {
            body[name] = value.clone();
        }
        self.client.post("/invitations", &body).await.expect(201).clone()
    }
}

impl Client {
    async fn claim(&self, code: &Value, invitee: &str) -> Answer {
        let path = format!("/invitations/{}/claim", text(code));
        self.post(&path, &json!({ "inviteeUma": invitee })).await
    }

    /// Makes a customer with this address, who can be invited.
    async fn invitee(&self, address: &str) -> String {
        let body = json!({ "customerType": "INDIVIDUAL", "umaAddress": address });
        text(&self.post("/customers", &body).await.expect(201)["id"])
    }

    async fn cancel(&self, code: &Value) -> Answer {
        let path = format!("/invitations/{}/cancel", text(code));
        self.send("POST", &path, Call::default()).await
    }

    async fn invitation(&self, code: &Value) -> Value {
        self.get(&format!("/invitations/{}", text(code))).await.expect(200).clone()
    }

    /// The page that a person sees who opens a link.
    async fn page(&self, url: &Value, status: u16) -> (String, Answer) {
        let path = text(url).strip_prefix("https://pay.test").expect("our address").to_owned();
        let answer = self.send_to("GET", &path, Call::default()).await;
        assert_eq!(answer.status, status, "{path}");
        (String::from_utf8(answer.bytes.clone()).expect("text"), answer)
    }
}

impl Server {
    /// The events about an invitation.
    async fn notified_of(&self, code: &Value) -> Vec<Value> {
        let code = domain::code::Code::parse(&text(code)).expect("a code");
        let id = self.app.store().keyring().invitation(&code);
        let events = self.events_of(id.uuid()).await;
        let body = |body: &[u8]| serde_json::from_slice(body).expect("JSON");
        events.iter().map(|event| body(&event.body)).collect()
    }
}

#[tokio::test]
async fn an_invitation_is_shown_as_it_was_made() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let bare = inviter.invite(json!({})).await;
    let code = text(&bare["code"]);
    assert_eq!(
        bare,
        json!({
            "code": code,
            "createdAt": START,
            "url": format!("https://pay.test/i/{code}"),
            "inviterUma": inviter.uma,
            "status": "PENDING",
        })
    );
    let whole = inviter
        .invite(json!({
            "firstName": "Ada",
            "amountToSend": 5_000,
            "expiresAt": "2025-10-13T12:00:00+02:00",
        }))
        .await;
    assert_eq!(whole["firstName"], "Ada");
    assert_eq!(whole["expiresAt"], "2025-10-13T10:00:00.000Z");
    assert_eq!(whole["amountToSend"]["amount"], 5_000);
    let config = inviter.client.get("/config").await.expect(200).clone();
    let primary = &config["supportedCurrencies"][0]["currencyCode"];
    assert_eq!(&whole["amountToSend"]["currency"]["code"], primary);
    let last = "9999-12-31T23:59:59Z";
    let endless = inviter.invite(json!({ "expiresAt": last })).await;
    assert_eq!(endless["expiresAt"], "9999-12-31T23:59:59.000Z");
    assert_eq!(inviter.client.invitation(&endless["code"]).await, endless);
    // The holder of the code may read it, in any case.
    let other = server.platform().await;
    assert_eq!(other.invitation(&whole["code"]).await, whole);
    let loud = json!(text(&whole["code"]).to_uppercase());
    assert_eq!(other.invitation(&loud).await, whole);
    server.verify();
}

#[tokio::test]
async fn codes_have_eighty_random_bits() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let mut codes = BTreeSet::new();
    let mut letters = BTreeSet::new();
    for _ in 0..64 {
        let code = text(&inviter.invite(json!({})).await["code"]);
        assert_eq!(code.len(), 16);
        letters.extend(code.chars());
        assert!(codes.insert(code));
    }
    assert_eq!(letters.len(), 32, "5 bits each");
}

#[tokio::test]
async fn what_cannot_be_an_invitation_is_refused() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let stranger = Inviter::on(&server).await;
    let post = async |body: Value| inviter.client.post("/invitations", &body).await;
    for uma in ["ada", "$unknown@uma.test", "$ada@elsewhere.example", stranger.uma.as_str()] {
        let answer = post(json!({ "inviterUma": uma })).await;
        assert_eq!(answer.refused(400, "INVALID_UMA_ADDRESS")["umaAddress"], uma);
    }
    assert_eq!(fields(post(json!({})).await.refused(400, "INVALID_INPUT")), ["inviterUma"]);
    for expires_at in [START, "2025-10-12T00:00:00Z", "soon", "2025-10-14"] {
        let answer = post(json!({ "inviterUma": inviter.uma, "expiresAt": expires_at })).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["expiresAt"], "{expires_at}");
    }
    for amount in [0, -1, 9_000_000_000_000_001_i64] {
        let answer = post(json!({ "inviterUma": inviter.uma, "amountToSend": amount })).await;
        answer.refused(400, "INVALID_AMOUNT");
    }
    inviter.client.limit_usd(100, 200).await;
    for (amount, status) in [(99, 400), (100, 201), (200, 201), (201, 400)] {
        let answer = post(json!({ "inviterUma": inviter.uma, "amountToSend": amount })).await;
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    let own = format!("/customers/{}", inviter.customer);
    let newer = json!({ "customerType": "INDIVIDUAL", "umaAddress": "$newer@uma.test" });
    inviter.client.patch(&own, &newer).await.expect(200);
    // An address that was given up leads nowhere.
    let answer = post(json!({ "inviterUma": inviter.uma })).await;
    assert_eq!(answer.refused(400, "INVALID_UMA_ADDRESS")["umaAddress"], inviter.uma);
    post(json!({ "inviterUma": "$newer@uma.test" })).await.expect(201);
    inviter.client.delete_customer(&inviter.customer).await;
    post(json!({ "inviterUma": "$newer@uma.test" })).await.refused(410, "CUSTOMER_DELETED");
    server.verify();
}

#[tokio::test]
async fn any_platform_claims_and_the_inviters_is_notified() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let other = Inviter::on(&server).await;
    let made = inviter.invite(json!({ "firstName": "Ada", "amountToSend": 5_000 })).await;
    assert!(server.notified_of(&made["code"]).await.is_empty());
    server.pass(60_000).await;
    let claimed = other.client.claim(&made["code"], &other.uma).await.expect(200).clone();
    assert_eq!(claimed["status"], "CLAIMED");
    assert_eq!(claimed["inviteeUma"], other.uma);
    assert_eq!(claimed["claimedAt"], "2025-10-13T09:01:00.000Z");
    assert_eq!(claimed["amountToSend"], made["amountToSend"]);
    assert_eq!(inviter.client.invitation(&made["code"]).await, claimed);
    let notified = server.notified_of(&made["code"]).await;
    assert_eq!(
        notified,
        [json!({
            "id": notified[0]["id"],
            "type": "INVITATION_CLAIMED",
            "timestamp": claimed["claimedAt"],
            "data": claimed,
        })]
    );
    server.verify();
}

#[tokio::test]
async fn an_invitation_is_none_for_platforms_of_the_other_mode() {
    let server = Server::new();
    let sandbox = Inviter::on(&server).await;
    let real = server.platform_with(Mode::Live, true).await;
    let customer = real.customer().await;
    let uma = real.uma_address(&customer).await;
    let real = Inviter { client: real, customer, uma };
    for (inviter, other) in [(&sandbox, &real), (&real, &sandbox)] {
        let invitation = inviter.invite(json!({})).await;
        let code = &invitation["code"];
        let path = format!("/invitations/{}", text(code));
        other.client.get(&path).await.refused(404, "INVITATION_NOT_FOUND");
        let claim = other.client.claim(code, "$new@anything.example").await;
        claim.refused(404, "INVITATION_NOT_FOUND");
        other.client.cancel(code).await.refused(404, "INVITATION_NOT_FOUND");
        assert_eq!(inviter.client.invitation(code).await, invitation);
        assert!(server.notified_of(code).await.is_empty());
    }
    server.verify();
}

#[tokio::test]
async fn no_one_claims_their_own_invitation() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let made = inviter.invite(json!({})).await;
    inviter.client.claim(&made["code"], &inviter.uma).await.refused(400, "SELF_PAYMENT");
    // Nor with another address of theirs.
    let change = json!({ "customerType": "INDIVIDUAL", "umaAddress": "$ada2@uma.test" });
    inviter.client.patch(&format!("/customers/{}", inviter.customer), &change).await.expect(200);
    inviter.client.claim(&made["code"], "$ADA2@uma.test").await.refused(400, "SELF_PAYMENT");
    for wrong in ["", "bo", "$bo", "bo@uma.test"] {
        let answer = inviter.client.claim(&made["code"], wrong).await;
        answer.refused(400, "INVALID_UMA_ADDRESS");
    }
    assert_eq!(inviter.client.invitation(&made["code"]).await["status"], "PENDING");
    inviter.client.invitee("$bo@uma.test").await;
    inviter.client.claim(&made["code"], "$bo@uma.test").await.expect(200);
    server.verify();
}

#[tokio::test]
async fn a_platform_claims_only_for_a_customer_of_its_own() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let (own, other) = (Inviter::on(&server).await, Inviter::on(&server).await);
    let gone = own.client.invitee("$gone@uma-1.test").await;
    let renamed = own.client.invitee("$before@uma-1.test").await;
    let change = json!({ "customerType": "INDIVIDUAL", "umaAddress": "$after@uma-1.test" });
    own.client.patch(&format!("/customers/{renamed}"), &change).await.expect(200);
    own.client.delete_customer(&gone).await;
    let made = inviter.invite(json!({})).await;
    for stranger in [
        other.uma.as_str(),
        "$unknown@uma.test",
        "$grace@elsewhere.example",
        "$before@uma-1.test",
        "$success.usd@sandbox.uma.money",
    ] {
        let answer = own.client.claim(&made["code"], stranger).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["inviteeUma"], "{stranger}");
    }
    let answer = own.client.claim(&made["code"], "$gone@uma-1.test").await;
    assert_eq!(answer.refused(410, "CUSTOMER_DELETED")["customerId"], gone);
    assert_eq!(inviter.client.invitation(&made["code"]).await, made);
    assert!(server.notified_of(&made["code"]).await.is_empty());
    own.client.claim(&made["code"], "$AFTER@uma-1.test").await.expect(200);
    server.verify();
}

#[tokio::test]
async fn what_has_ended_stays_as_it_is() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let expiring = json!({ "expiresAt": "2025-10-13T09:01:00Z" });
    let claimed = inviter.invite(expiring.clone()).await;
    let cancelled = inviter.invite(expiring.clone()).await;
    let expired = inviter.invite(expiring).await;
    inviter.client.invitee("$bo@uma.test").await;
    inviter.client.claim(&claimed["code"], "$bo@uma.test").await.expect(200);
    let answer = inviter.client.cancel(&cancelled["code"]).await.expect(200).clone();
    assert_eq!(answer["status"], "CANCELLED");
    server.pass(60_000).await;
    for (made, status, code) in [
        (&claimed, "CLAIMED", "INVITATION_ALREADY_CLAIMED"),
        (&cancelled, "CANCELLED", "INVITATION_CANCELLED"),
        (&expired, "EXPIRED", "INVITATION_EXPIRED"),
    ] {
        let before = inviter.client.invitation(&made["code"]).await;
        assert_eq!(before["status"], status);
        let again = [
            inviter.client.claim(&made["code"], "$eve@uma.test").await,
            inviter.client.cancel(&made["code"]).await,
        ];
        for answer in again {
            let details = answer.refused(400, code);
            assert_eq!(details["status"], status);
            assert_eq!(details.get("inviteeUma"), before.get("inviteeUma"));
            let is_expired = status == "EXPIRED";
            assert_eq!(details.get("expirationTime").is_some(), is_expired);
        }
        assert_eq!(inviter.client.invitation(&made["code"]).await, before);
        let notified = server.notified_of(&made["code"]).await;
        assert_eq!(notified.len(), usize::from(status == "CLAIMED"));
    }
    server.verify();
}

#[tokio::test]
async fn time_is_over_before_its_timer_rings() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let made = inviter.invite(json!({ "expiresAt": "2025-10-13T09:01:00Z" })).await;
    server.clock.advance_millis(59_999);
    assert_eq!(inviter.client.invitation(&made["code"]).await["status"], "PENDING");
    server.clock.advance_millis(1);
    assert_eq!(inviter.client.invitation(&made["code"]).await["status"], "EXPIRED");
    inviter.client.claim(&made["code"], "$bo@uma.test").await.refused(400, "INVITATION_EXPIRED");
    server.pass(0).await;
    assert_eq!(inviter.client.invitation(&made["code"]).await["status"], "EXPIRED");
    server.verify();
}

#[tokio::test]
async fn only_the_inviters_platform_cancels() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let other = server.platform().await;
    let made = inviter.invite(json!({})).await;
    other.cancel(&made["code"]).await.refused(403, "FORBIDDEN");
    inviter.client.cancel(&made["code"]).await.expect(200);
    // Its end changes nothing about whose it is.
    other.cancel(&made["code"]).await.refused(403, "FORBIDDEN");
    for code in ["aaaaaaaaaaaaaaaa", "a", "0000000000000000", "%24", "Invitation:x"] {
        let code = json!(code);
        other.cancel(&code).await.refused(404, "INVITATION_NOT_FOUND");
        other.claim(&code, "$bo@uma.test").await.refused(404, "INVITATION_NOT_FOUND");
        let answer = other.get(&format!("/invitations/{}", text(&code))).await;
        answer.refused(404, "INVITATION_NOT_FOUND");
    }
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_claims_and_cancellations_at_once_exactly_one_wins() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let other = server.platform().await;
    for number in (0..8).step_by(2) {
        other.invitee(&format!("$bo{number}@uma-1.test")).await;
    }
    for _ in 0..16 {
        let made = inviter.invite(json!({})).await;
        let mut calls = JoinSet::new();
        for number in 0..8 {
            let (claiming, cancelling) = (other.clone(), inviter.client.clone());
            let code = made["code"].clone();
            calls.spawn(async move {
                if number % 2 == 0 {
                    claiming.claim(&code, &format!("$bo{number}@uma-1.test")).await
                } else {
                    cancelling.cancel(&code).await
                }
            });
        }
        let answers = calls.join_all().await;
        let (won, lost): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        assert_eq!((won.len(), lost.len()), (1, 7));
        let is_claimed = won[0].body["status"] == "CLAIMED";
        let code = if is_claimed { "INVITATION_ALREADY_CLAIMED" } else { "INVITATION_CANCELLED" };
        for answer in lost {
            answer.refused(400, code);
        }
        assert_eq!(inviter.client.invitation(&made["code"]).await, won[0].body);
        assert_eq!(server.notified_of(&made["code"]).await.len(), usize::from(is_claimed));
    }
    server.verify();
}

#[tokio::test]
async fn an_invitation_outlives_a_restart() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let made = inviter.invite(json!({ "expiresAt": "2025-10-13T09:01:00Z" })).await;
    let platform = inviter.client.platform;
    let server = server.restart();
    let client = server.token(platform, domain::token::Permissions::ALL).await;
    assert_eq!(client.invitation(&made["code"]).await, made);
    server.pass(60_000).await;
    assert_eq!(client.invitation(&made["code"]).await["status"], "EXPIRED");
    server.verify();
}

#[tokio::test]
async fn a_person_opens_the_page_without_credentials() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let anyone = server.anonymous();
    let expires_at = "2025-10-13T10:00:00.000Z";
    let parts = json!({ "firstName": "Ada & Bo's \"x\"", "amountToSend": 123_456,
        "expiresAt": expires_at });
    let made = inviter.invite(parts).await;
    let (page, answer) = anyone.page(&made["url"], 200).await;
    assert!(page.contains("Ada &amp; Bo's &quot;x&quot; invites you"), "{page}");
    assert!(page.contains("1234.56 USD") && page.contains(&text(&made["code"])), "{page}");
    assert!(page.contains(">13 October 2025, 10:00 UTC</time>"), "{page}");
    // What it does not need to say, it does not say; and it loads nothing from elsewhere.
    assert!(!page.contains(&inviter.uma), "{page}");
    assert!(!page.contains("http") && !page.contains("<script"), "{page}");
    let header = |name: &str| answer.headers[name].to_str().expect("text").to_owned();
    assert!(header("content-security-policy").starts_with("default-src 'none'; style-src 'self'"));
    assert!(header("content-type").starts_with("text/html"));
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("cache-control"), "no-store");
    assert_eq!(header("x-content-type-options"), "nosniff");
    let (_, rest) = page.split_once("rel=\"stylesheet\" href=\"").expect("a style");
    let (style, _) = rest.split_once('"').expect("its address");
    let style = anyone.send_to("GET", style, Call::default()).await;
    assert_eq!(
        (style.status, &style.headers["content-type"]),
        (200, &"text/css; charset=utf-8".parse().expect("a header"))
    );
    assert!(style.headers["cache-control"].to_str().expect("text").contains("immutable"));

    let bare = inviter.invite(json!({})).await;
    let (page, _) = anyone.page(&bare["url"], 200).await;
    assert!(page.contains("Someone invites you") && !page.contains("You are to receive"));
    inviter.client.invitee("$bo@uma.test").await;
    inviter.client.claim(&bare["code"], "$bo@uma.test").await.expect(200);
    let (page, _) = anyone.page(&bare["url"], 200).await;
    assert!(page.contains("was accepted") && !page.contains("$bo"), "{page}");
    inviter.client.cancel(&made["code"]).await.expect(200);
    let (page, _) = anyone.page(&made["url"], 200).await;
    assert!(page.contains("was cancelled") && !page.contains("1234.56"), "{page}");
    let expiring = inviter.invite(json!({ "expiresAt": expires_at })).await;
    server.pass(3_600_000).await;
    let (page, _) = anyone.page(&expiring["url"], 200).await;
    assert!(page.contains("has expired"), "{page}");
    for unknown in ["aaaaaaaaaaaaaaaa", "<script>", "%00", "a"] {
        let url = json!(format!(
            "https://pay.test/i/{}",
            unknown.replace('<', "%3C").replace('>', "%3E")
        ));
        let (page, _) = anyone.page(&url, 404).await;
        assert!(page.contains("opens nothing") && !page.contains("script"), "{page}");
    }
}

#[tokio::test]
async fn the_inviters_clock_says_when_it_is_over() {
    let server = Server::new();
    let inviter = Inviter::on(&server).await;
    let other = server.platform().await;
    let parts = json!({ "expiresAt": "2025-10-14T09:00:00Z" });
    let (open, late) = (inviter.invite(parts.clone()).await, inviter.invite(parts).await);
    // Another platform's clock changes nothing.
    let body = json!({ "advanceBySeconds": 86_400 });
    other.post("/sandbox/clock", &body).await.expect(200);
    server.pass(0).await;
    assert_eq!(other.invitation(&open["code"]).await["status"], "PENDING");
    other.invitee("$grace@uma-1.test").await;
    let claimed = other.claim(&open["code"], "$grace@uma-1.test").await.expect(200).clone();
    assert_eq!(claimed["claimedAt"], START);
    inviter.client.post("/sandbox/clock", &body).await.expect(200);
    assert_eq!(other.invitation(&late["code"]).await["status"], "EXPIRED");
    other.claim(&late["code"], "$grace@uma-1.test").await.refused(400, "INVITATION_EXPIRED");
    server.pass(0).await;
    assert_eq!(other.invitation(&late["code"]).await["status"], "EXPIRED");
    server.verify();
}
