//! Who a customer is: links, the page of a check, the operator's word, and what follows for money
//! (specification 3.5; contract 6.4).

use domain::id::CustomerId;
use domain::platform::Mode;
use serde_json::{Value, json};
use service::identity::{self, CHECK_LIFETIME_MILLIS};

use crate::pay::{from, sending, to, transfer};
use crate::support::{Answer, Call, Client, Server, fields, text, usd_external};

impl Client {
    /// A new link for a customer that the platform calls so.
    async fn link(&self, name: &str) -> Value {
        let path = format!("/customers/kyc-link?platformCustomerId={name}");
        self.get(&path).await.expect(200).clone()
    }

    async fn kyc(&self, customer: &Value) -> String {
        let customer = self.get(&format!("/customers/{}", text(customer))).await;
        text(&customer.expect(200)["kycStatus"])
    }

    /// Opens the page behind a link.
    async fn open(&self, link: &Value) -> Answer {
        self.send_to("GET", path(link), Call::default()).await
    }

    /// Fills the page in.
    async fn fill(&self, link: &Value, form: &str) -> Answer {
        let call = Call::raw(form).header("content-type", "application/x-www-form-urlencoded");
        self.send_to("POST", path(link), call).await
    }
}

fn path(link: &Value) -> &str {
    let url = link["kycUrl"].as_str().expect("a link");
    url.strip_prefix("https://pay.test").expect("our address")
}

fn page(answer: &Answer, status: u16) -> String {
    let text = String::from_utf8(answer.bytes.clone()).expect("text");
    assert_eq!(answer.status, status, "{text}");
    text
}

impl Server {
    /// The events about a customer.
    async fn notified_of_customer(&self, id: &Value) -> Vec<(u32, Value)> {
        let id = CustomerId::parse(&text(id)).expect("an id").uuid();
        let events = self.events_of(id).await;
        let notified = |event: &domain::event::Event| {
            let body: Value = serde_json::from_slice(&event.body).expect("JSON");
            assert_eq!(
                (&body["type"], &body["id"]),
                (&json!("KYC_STATUS"), &json!(event.id.to_string()))
            );
            (event.number, body["data"].clone())
        };
        events.iter().map(notified).collect()
    }
}

const ADA: &str = "fullName=Ada+Lovelace&birthDate=1985-12-10&nationality=gb&line1=1+High+St\
    &postalCode=N1&city=London&country=gb";

#[tokio::test]
async fn a_link_leads_to_a_decision_once() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, false).await;
    let anyone = server.anonymous();
    for (outcome, status) in
        [("approved", "APPROVED"), ("rejected", "REJECTED"), ("canceled", "CANCELED")]
    {
        let link = client.link(outcome).await;
        assert_eq!(link["platformCustomerId"], outcome);
        assert_eq!(client.kyc(&link["customerId"]).await, "PENDING_REVIEW");
        // Asking again gives the same link and the same customer.
        assert_eq!(client.link(outcome).await, link);
        let form = page(&anyone.open(&link).await, 200);
        assert!(form.contains("Full name") && form.contains("Approve"), "{form}");
        assert!(!form.contains("http") && !form.contains("<script"), "{form}");
        assert!(server.notified_of_customer(&link["customerId"]).await.is_empty());

        page(&anyone.fill(&link, &format!("outcome={outcome}&{ADA}")).await, 200);
        assert_eq!(client.kyc(&link["customerId"]).await, status);
        let path = format!("/customers/{}", text(&link["customerId"]));
        let customer = client.get(&path).await.expect(200).clone();
        let notified = server.notified_of_customer(&link["customerId"]).await;
        assert_eq!(notified, [(1, customer.clone())]);
        if status == "CANCELED" {
            assert_eq!(customer.get("fullName"), None);
        } else {
            assert_eq!(customer["fullName"], "Ada Lovelace");
            assert_eq!(customer["nationality"], "GB");
            assert_eq!(customer["address"]["line1"], "1 High St");
        }
        // The link works once.
        let gone = page(&anyone.open(&link).await, 410);
        assert!(gone.contains("cannot be used any more"), "{gone}");
        page(&anyone.fill(&link, &format!("outcome=approved&{ADA}")).await, 410);
        assert_eq!(client.kyc(&link["customerId"]).await, status);
        let again = client.get(&format!("/customers/kyc-link?platformCustomerId={outcome}")).await;
        if status == "CANCELED" {
            // What was called off can begin anew, for the same customer.
            assert_eq!(again.expect(200)["customerId"], link["customerId"]);
            assert_ne!(again.body["kycUrl"], link["kycUrl"]);
            assert_eq!(client.kyc(&link["customerId"]).await, "PENDING_REVIEW");
            let link = again.body;
            page(&anyone.fill(&link, &format!("outcome=approved&{ADA}")).await, 200);
            let notified = server.notified_of_customer(&link["customerId"]).await;
            let notified: Vec<_> =
                notified.iter().map(|(number, data)| (*number, text(&data["kycStatus"]))).collect();
            assert_eq!(notified, [(1, "CANCELED".to_owned()), (3, "APPROVED".to_owned())]);
        } else {
            again.refused(409, "CONFLICT");
        }
    }
    server.verify();
}

#[tokio::test]
async fn what_cannot_be_right_is_asked_again() {
    let server = Server::new();
    let client = server.platform().await;
    let anyone = server.anonymous();
    let link = client.link("ada").await;
    for (form, mistake) in [
        ("outcome=approved", "Enter your full name"),
        ("outcome=approved&fullName=%3Cb%3E", "Enter your full name"),
        ("outcome=approved&fullName=Ada&birthDate=1985-02-30", "1985-02-30"),
        ("outcome=approved&fullName=Ada&birthDate=2025-10-14", "in the future"),
        ("outcome=approved&fullName=Ada&birthDate=1899-12-31", "before 1900"),
        ("outcome=approved&fullName=%E3%85%A4", "Enter your full name"),
        ("outcome=approved&fullName=Ada&nationality=XX", "XX"),
        ("outcome=approved&fullName=Ada&line1=High+St", "mistake"),
        ("outcome=approved&fullName=Ada%00", "must be a text"),
    ] {
        let again = page(&anyone.fill(&link, form).await, 400);
        assert!(again.contains(mistake), "{form}: {again}");
        assert!(again.contains("aria-invalid=\"true\""), "{form}: {again}");
        assert!(!again.contains("<b>"), "{again}");
    }
    for form in ["", "outcome=manually+approved&fullName=Ada", "fullName=Ada"] {
        page(&anyone.fill(&link, form).await, 200);
    }
    let large = format!("outcome=approved&fullName={}", "a".repeat(70_000));
    anyone.fill(&link, &large).await;
    assert_eq!(client.kyc(&link["customerId"]).await, "PENDING_REVIEW");
    page(&anyone.fill(&link, "outcome=approved&fullName=Ada").await, 200);
    for unknown in ["aaaaaaaaaaaaaaaa", "x"] {
        let answer = anyone.send_to("GET", &format!("/kyc/{unknown}"), Call::default()).await;
        assert!(page(&answer, 404).contains("opens nothing"));
    }
    server.verify();
}

#[tokio::test]
async fn browsers_help_to_fill_the_page_in() {
    let server = Server::new();
    let client = server.platform().await;
    let anyone = server.anonymous();
    let link = client.link("ada").await;
    let form = page(&anyone.open(&link).await, 200);
    let element = |name: &str| {
        let start = form.find(&format!("id=\"{name}\"")).unwrap_or_else(|| panic!("no {name}"));
        let end = start + form[start..].find('>').expect("an end");
        form[start..end].to_owned()
    };
    for (name, purpose) in [
        ("fullName", "name"),
        ("birthDate", "bday"),
        ("line1", "address-line1"),
        ("line2", "address-line2"),
        ("city", "address-level2"),
        ("state", "address-level1"),
        ("postalCode", "postal-code"),
        ("country", "country"),
    ] {
        let element = element(name);
        assert!(element.contains(&format!("autocomplete=\"{purpose}\"")), "{element}");
        assert!(form.contains(&format!("<label for=\"{name}\">")), "{name}");
    }
    let date = element("birthDate");
    assert!(date.contains("type=\"date\" max=\"2025-10-13\""), "{date}");
    for country in ["<option value=\"GB\">United Kingdom", "<option value=\"CI\">C\u{f4}te"] {
        assert_eq!(form.matches(country).count(), 2, "{country}");
    }
    assert!(form.contains(">14 October 2025, 09:00 UTC</time>"), "{form}");
    // A person who leaves need not fill anything in.
    assert_eq!(form.matches("formnovalidate").count(), 1);
    // Today is a birthday too, and what was filled in stays.
    let again = format!("outcome=approved&{}", ADA.replace("line1=1+High+St", "line1="));
    let again = page(&anyone.fill(&link, &again).await, 400);
    for kept in ["value=\"1985-12-10\"", "<option value=\"GB\" selected>", "value=\"London\""] {
        assert!(again.contains(kept), "{kept}: {again}");
    }
    let today = "outcome=approved&fullName=+Ada+&birthDate=2025-10-13";
    page(&anyone.fill(&link, today).await, 200);
    let path = format!("/customers/{}", text(&link["customerId"]));
    let customer = client.get(&path).await.expect(200).clone();
    assert_eq!(
        (&customer["fullName"], &customer["birthDate"]),
        (&json!("Ada"), &json!("2025-10-13"))
    );
    server.verify();
}

#[tokio::test]
async fn only_testers_read_of_the_sandbox() {
    let server = Server::new();
    let anyone = server.anonymous();
    for (mode, is_notified) in [(Mode::Sandbox, true), (Mode::Live, false)] {
        let client = server.platform_with(mode, true).await;
        let link = client.link("ada").await;
        let form = page(&anyone.open(&link).await, 200);
        let again = page(&anyone.fill(&link, "outcome=submitted").await, 400);
        for shown in [form, again] {
            assert_eq!(shown.to_lowercase().contains("sandbox"), is_notified, "{shown}");
        }
        let done = page(&anyone.fill(&link, &format!("outcome=submitted&{ADA}")).await, 200);
        let over = page(&anyone.open(&link).await, 410);
        for shown in [done, over] {
            assert!(!shown.to_lowercase().contains("sandbox"), "{shown}");
        }
    }
    server.verify();
}

#[tokio::test]
async fn the_person_goes_where_the_platform_said_and_nowhere_else() {
    let server = Server::new();
    let client = server.platform().await;
    let anyone = server.anonymous();
    for wrong in [
        "javascript:alert(1)",
        "data:text/html,x",
        "//evil.example",
        "/back",
        "ftp://example.com",
        "https://user:secret@example.com",
        "https://",
        "https://shop.example:99999/",
        "x",
    ] {
        let path = "/customers/kyc-link?platformCustomerId=a&redirectUri=";
        let answer = client.get(&format!("{path}{}", encoded(wrong))).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["redirectUri"], "{wrong}");
    }
    let answer = client.get("/customers/kyc-link").await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["platformCustomerId"]);
    let long = "x".repeat(256);
    let answer = client.get(&format!("/customers/kyc-link?platformCustomerId={long}")).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["platformCustomerId"]);

    let target = "https://shop.example:8443/done?order=7&x=%20";
    let path =
        format!("/customers/kyc-link?platformCustomerId=ada&redirectUri={}", encoded(target));
    let link = client.get(&path).await.expect(200).clone();
    let form = anyone.open(&link).await;
    let policy = form.headers["content-security-policy"].to_str().expect("text");
    assert!(policy.contains("form-action 'self' https://shop.example:8443;"), "{policy}");
    let done = anyone.fill(&link, "outcome=approved&fullName=Ada&redirectUri=https://evil").await;
    assert_eq!((done.status, done.headers["location"].to_str().expect("text")), (303, target));
    // Another target is another link, and the old one is over.
    let first = client.link("bo").await;
    let other = client
        .get("/customers/kyc-link?platformCustomerId=bo&redirectUri=https%3A%2F%2Fb.example%2F")
        .await
        .expect(200)
        .clone();
    assert_ne!(other["kycUrl"], first["kycUrl"]);
    assert_eq!(other["customerId"], first["customerId"]);
    page(&anyone.open(&first).await, 410);
    page(&anyone.open(&other).await, 200);
    server.verify();
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn time_ends_a_check_that_no_one_went_through() {
    let server = Server::new();
    let client = server.platform().await;
    let anyone = server.anonymous();
    let link = client.link("ada").await;
    server.pass(CHECK_LIFETIME_MILLIS - 1).await;
    page(&anyone.open(&link).await, 200);
    // Its time is over before its timer is due.
    server.clock.advance_millis(1);
    page(&anyone.fill(&link, "outcome=approved&fullName=Ada").await, 410);
    assert_eq!(client.kyc(&link["customerId"]).await, "EXPIRED");
    server.pass(0).await;
    assert_eq!(client.kyc(&link["customerId"]).await, "EXPIRED");
    assert_eq!(server.notified_of_customer(&link["customerId"]).await.len(), 1);
    let again = client.link("ada").await;
    assert_eq!(again["customerId"], link["customerId"]);
    page(&anyone.fill(&again, "outcome=approved&fullName=Ada").await, 200);
    assert_eq!(client.kyc(&link["customerId"]).await, "APPROVED");
    server.pass(CHECK_LIFETIME_MILLIS).await;
    assert_eq!(client.kyc(&link["customerId"]).await, "APPROVED");
    server.verify();
}

#[tokio::test]
async fn what_is_left_empty_on_the_page_stays_as_the_platform_said_it() {
    let server = Server::new();
    let client = server.platform().await;
    let said = json!({
        "customerType": "INDIVIDUAL",
        "platformCustomerId": "ada",
        "kycStatus": "PENDING_REVIEW",
        "fullName": "Ada Byron",
        "birthDate": "1985-12-10",
        "nationality": "GB",
        "address": { "line1": "1 High Street", "postalCode": "N1", "country": "GB" },
    });
    let before = client.post("/customers", &said).await.expect(201).clone();
    let link = client.link("ada").await;
    assert_eq!(link["customerId"], before["id"]);
    let form = "outcome=approved&fullName=Ada+Lovelace&birthDate=&nationality=&line1=";
    page(&server.anonymous().fill(&link, form).await, 200);
    let path = format!("/customers/{}", text(&before["id"]));
    let after = client.get(&path).await.expect(200).clone();
    assert_eq!(
        (&after["fullName"], &after["kycStatus"]),
        (&json!("Ada Lovelace"), &json!("APPROVED"))
    );
    for field in ["birthDate", "nationality", "address"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    server.verify();
}

#[tokio::test]
async fn the_operator_has_the_last_word() {
    let server = Server::new();
    let client = server.platform_with(Mode::Live, false).await;
    let anyone = server.anonymous();
    let link = client.link("ada").await;
    // On a live platform no customer decides about themselves.
    let form = page(&anyone.open(&link).await, 200);
    assert!(form.contains("Submit for review") && !form.contains("Approve"), "{form}");
    page(&anyone.fill(&link, &format!("outcome=approved&{ADA}")).await, 200);
    assert_eq!(client.kyc(&link["customerId"]).await, "PENDING_REVIEW");
    page(&anyone.fill(&link, &format!("outcome=submitted&{ADA}")).await, 200);
    assert_eq!(client.kyc(&link["customerId"]).await, "PENDING_REVIEW");
    client.get("/customers/kyc-link?platformCustomerId=ada").await.refused(409, "CONFLICT");
    server.pass(2 * CHECK_LIFETIME_MILLIS).await;
    assert_eq!(client.kyc(&link["customerId"]).await, "PENDING_REVIEW");
    assert!(server.notified_of_customer(&link["customerId"]).await.is_empty());

    let id = |value: &Value| CustomerId::parse(&text(value)).expect("an id");
    identity::decide(&server.app, id(&link["customerId"]), true).await.expect("a decision");
    assert_eq!(client.kyc(&link["customerId"]).await, "MANUALLY_APPROVED");
    assert_eq!(server.notified_of_customer(&link["customerId"]).await.len(), 1);
    let again = identity::decide(&server.app, id(&link["customerId"]), false).await;
    assert!(matches!(again, Err(service::Error::Conflict(_))), "{again:?}");

    // A decision while the link is open ends the link.
    let other = client.link("bo").await;
    identity::decide(&server.app, id(&other["customerId"]), false).await.expect("a decision");
    assert_eq!(client.kyc(&other["customerId"]).await, "MANUALLY_REJECTED");
    page(&anyone.open(&other).await, 410);
    let unknown = CustomerId::from_uuid(uuid::Uuid::nil());
    let refused = identity::decide(&server.app, unknown, true).await;
    assert_eq!(
        refused,
        Err(service::Error::Customer(service::error::CustomerError::NotFound { id: unknown }))
    );
    // Nor does a deleted customer's link open anything.
    let gone = client.link("eve").await;
    client.delete_customer(&text(&gone["customerId"])).await;
    page(&anyone.open(&gone).await, 410);
    let deleted = identity::decide(&server.app, id(&gone["customerId"]), true).await;
    assert!(
        matches!(
            deleted,
            Err(service::Error::Customer(service::error::CustomerError::Deleted { .. }))
        ),
        "{deleted:?}"
    );
    server.verify();
}

#[tokio::test]
async fn what_a_regulated_platform_states_is_notified() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = json!(client.customer().await);
    let set = async |status: &str| client.set_kyc(&text(&customer), status).await;
    set("APPROVED").await;
    assert!(server.notified_of_customer(&customer).await.is_empty(), "nothing has changed");
    for status in ["REJECTED", "PENDING_REVIEW", "EXPIRED", "MANUALLY_APPROVED"] {
        set(status).await;
    }
    let notified: Vec<_> = server.notified_of_customer(&customer).await;
    let notified: Vec<_> =
        notified.iter().map(|(number, data)| (*number, text(&data["kycStatus"]))).collect();
    let expected = [(1, "REJECTED"), (3, "EXPIRED"), (4, "MANUALLY_APPROVED")];
    assert_eq!(notified, expected.map(|(number, name)| (number, name.to_owned())));
    // An unregulated platform says what it likes; it does not count.
    let other = server.platform_with(Mode::Sandbox, false).await;
    let customer = json!(other.customer().await);
    other.set_kyc(&text(&customer), "REJECTED").await;
    assert_eq!(other.kyc(&customer).await, "APPROVED");
    server.verify();
}

#[tokio::test]
async fn in_the_sandbox_the_end_of_a_name_decides() {
    let server = Server::new();
    for is_regulated in [true, false] {
        let client = server.platform_with(Mode::Sandbox, is_regulated).await;
        for (name, status) in [
            ("Jane Doe 001", "PENDING_REVIEW"),
            ("Jane Doe 002", "REJECTED"),
            ("Jane Doe 003", "APPROVED"),
        ] {
            let person = json!({ "customerType": "INDIVIDUAL", "fullName": name });
            let made = client.post("/customers", &person).await.expect(201).clone();
            assert_eq!(made["kycStatus"], status, "{name}");
            let business =
                json!({ "customerType": "BUSINESS", "businessInfo": { "legalName": name } });
            let made = client.post("/customers", &business).await.expect(201).clone();
            assert_eq!(made["kybStatus"], status, "{name}");
        }
        let said = json!({
            "customerType": "INDIVIDUAL", "fullName": "Jane Doe 002", "kycStatus": "APPROVED",
        });
        let made = client.post("/customers", &said).await.expect(201).clone();
        assert_eq!(made["kycStatus"], if is_regulated { "APPROVED" } else { "REJECTED" });
    }
    let live = server.platform_with(Mode::Live, true).await;
    let person = json!({ "customerType": "INDIVIDUAL", "fullName": "Jane Doe 002" });
    assert_eq!(live.post("/customers", &person).await.expect(201)["kycStatus"], "APPROVED");
    server.verify();
}

#[tokio::test]
async fn money_waits_for_the_identity_and_accounts_do_not() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, false).await;
    let ready = client.customer().await;
    let source = client.funded(&ready, "USD", 10_000).await;
    let link = client.link("ada").await;
    let customer = text(&link["customerId"]);
    let account = client.account(Some(&customer), "USD").await;
    let bank = client.usd_external(&customer, "789").await;
    client
        .post("/customers/external-accounts", &usd_external(Some(&customer), "111"))
        .await
        .expect(201);
    let money = async || {
        let fund = format!("/sandbox/internal-accounts/{account}/fund");
        let in_time = json!({
            "sourceType": "REALTIME_FUNDING", "currency": "USD", "customerId": customer,
        });
        [
            client.post(&fund, &json!({ "amount": 100 })).await,
            client.post("/transfer-in", &transfer(&bank, &account, 100)).await,
            client.post("/transfer-out", &transfer(&account, &bank, 100)).await,
            client.post("/quotes", &sending(&from(&account), &to(&source), 100)).await,
            client.post("/quotes", &sending(&from(&source), &to(&account), 100)).await,
            client.post("/quotes", &sending(&in_time, &to(&source), 100)).await,
        ]
    };
    for answer in money().await {
        let details = answer.refused(403, "USER_NOT_READY");
        assert_eq!(details["kycStatus"], "PENDING_REVIEW");
        assert_eq!(details["customerId"], customer.as_str());
    }
    server.anonymous().fill(&link, "outcome=approved&fullName=Ada").await;
    for answer in money().await {
        assert!(matches!(answer.status, 200 | 201), "{}", answer.body);
    }
    server.pass(1_000).await;
    server.verify();
}
