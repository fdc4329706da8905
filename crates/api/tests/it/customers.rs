//! Customers (specification 2.6, 4.5, 4.6; contract 6.3).

use domain::platform::Mode;
use serde_json::{Value, json};

use crate::support::{Client, START, Server, fields, text};

/// A person with everything that can be said of one.
fn ada() -> Value {
    json!({
        "customerType": "INDIVIDUAL",
        "platformCustomerId": "user-42",
        "umaAddress": "$ada@uma.test",
        "fullName": "Ada Lovelace",
        "birthDate": "1985-12-10",
        "nationality": "GB",
        "email": "ada@mail.example",
        "phoneNumber": "+442079460001",
        "currencies": ["GBP", "EUR"],
        "address": {
            "line1": "12 St James's Square",
            "line2": "Flat 3",
            "city": "London",
            "state": "London",
            "postalCode": "SW1Y 4JH",
            "country": "GB",
        },
    })
}

/// A business with everything that can be said of one.
fn engines() -> Value {
    json!({
        "customerType": "BUSINESS",
        "platformCustomerId": "firm-7",
        "umaAddress": "$engines@uma.test",
        "businessInfo": {
            "legalName": "Analytical Engines Ltd.",
            "registrationNumber": "12345678",
            "taxId": "GB123456789",
        },
        "address": { "line1": "1 Dorset Street", "postalCode": "W1U 4EF", "country": "GB" },
        "email": "office@engines.example",
        "phoneNumber": "+442079460002",
        "currencies": ["GBP"],
        "beneficialOwners": [{
            "fullName": "Charles Babbage",
            "individualType": "DIRECTOR",
            "emailAddress": "charles@engines.example",
            "phoneNumber": "+442079460000",
            "taxId": "AB123456C",
            "birthDate": "1971-12-26",
            "nationality": "GB",
            "address": { "line1": "1 Dorset Street", "postalCode": "W1U 4EF", "country": "GB" },
            "percentageOwnership": 62.5,
            "title": "Chair",
        }],
    })
}

/// What the server adds to a customer.
fn shown(body: &Value, made: &Value, status: &str) -> Value {
    let mut shown = body.clone();
    shown["id"] = made["id"].clone();
    shown["isDeleted"] = json!(false);
    shown["createdAt"] = json!(START);
    shown["updatedAt"] = json!(START);
    shown[if body["customerType"] == "BUSINESS" { "kybStatus" } else { "kycStatus" }] =
        json!(status);
    shown
}

/// A person without anything, and these fields.
fn person(extra: Value) -> Value {
    let mut body = json!({ "customerType": "INDIVIDUAL" });
    for (name, value) in extra.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// Makes a customer.
async fn make(client: &Client, body: &Value) -> Value {
    client.post("/customers", body).await.expect(201).clone()
}

/// The path of a customer.
fn path(customer: &Value) -> String {
    format!("/customers/{}", text(&customer["id"]))
}

#[tokio::test]
async fn a_manager_makes_a_person_and_reads_it_back() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &ada()).await;
    assert!(text(&made["id"]).starts_with("Customer:"));
    assert_eq!(made, shown(&ada(), &made, "APPROVED"));
    assert_eq!(*client.get(&path(&made)).await.expect(200), made);
    server.verify();
}

#[tokio::test]
async fn a_manager_makes_a_business_and_reads_it_back() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &engines()).await;
    assert_eq!(made, shown(&engines(), &made, "APPROVED"));
    assert_eq!(*client.get(&path(&made)).await.expect(200), made);
    server.verify();
}

#[tokio::test]
async fn what_a_manager_leaves_out_is_made_up() {
    let server = Server::new();
    let client = server.platform().await;
    let (one, two) =
        (make(&client, &person(json!({}))).await, make(&client, &person(json!({}))).await);
    for made in [&one, &two] {
        let address = text(&made["umaAddress"]);
        let user = address.strip_suffix("@uma.test").and_then(|user| user.strip_prefix('$'));
        let user = user.expect("an address of the platform's domain");
        assert_eq!(user.len(), 12);
        assert!(user.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        assert!(!text(&made["platformCustomerId"]).is_empty());
        let named = ["id", "platformCustomerId", "umaAddress"];
        let rest: Vec<_> = made
            .as_object()
            .expect("an object")
            .keys()
            .filter(|name| !named.contains(&name.as_str()))
            .collect();
        let expected = ["createdAt", "customerType", "isDeleted", "kycStatus", "updatedAt"];
        assert_eq!(rest, expected);
    }
    assert_ne!(one["umaAddress"], two["umaAddress"]);
    assert_ne!(one["platformCustomerId"], two["platformCustomerId"]);
    let firm = json!({ "customerType": "BUSINESS", "businessInfo": { "legalName": "X" } });
    let firm = make(&client, &firm).await;
    assert_eq!(firm["beneficialOwners"], json!([]));
    assert_eq!(firm["businessInfo"], json!({ "legalName": "X" }));
}

#[tokio::test]
async fn several_customers_may_have_one_name_of_the_platforms() {
    let server = Server::new();
    let client = server.platform().await;
    let body = person(json!({ "platformCustomerId": "user-1" }));
    let (one, two) = (make(&client, &body).await, make(&client, &body).await);
    assert_ne!(one["id"], two["id"]);
    let found = client.get("/customers?platformCustomerId=user-1").await;
    assert_eq!(found.expect(200)["totalCount"], 2);
}

#[tokio::test]
async fn addresses_are_of_one_spelling_and_of_the_platforms_domain() {
    let server = Server::new();
    let client = server.platform().await;
    let longest = format!("${}@uma.test", "x".repeat(63));
    for (given, kept) in [
        ("$Ada@UMA.Test", "$ada@uma.test"),
        ("$a-b_c.d+e9@uma.test", "$a-b_c.d+e9@uma.test"),
        ("$0@uma.test", "$0@uma.test"),
        (longest.as_str(), longest.as_str()),
    ] {
        let made = make(&client, &person(json!({ "umaAddress": given }))).await;
        assert_eq!(made["umaAddress"], kept);
        let query = given.replace('+', "%2B");
        let found = client.get(&format!("/customers?umaAddress={query}")).await;
        assert_eq!(found.expect(200)["data"], json!([made]), "{given}");
    }
    let too_long = format!("${}@uma.test", "x".repeat(64));
    for wrong in [
        "",
        "$",
        "ada",
        "$ada",
        "ada@uma.test",
        "$@uma.test",
        "$ada@",
        "$ada@other.test",
        "$ada@uma.test.",
        "$ada@x.uma.test",
        "$ada@uma.test:80",
        "$ada@uma.test@uma.test",
        "$ad a@uma.test",
        " $ada@uma.test",
        "$ada@uma.test ",
        "$$ada@uma.test",
        "$ada!@uma.test",
        "$ada/b@uma.test",
        "$аda@uma.test",
        "＄ada@uma.test",
        "$ada＠uma.test",
        "$ad\u{e9}@uma.test",
        "$\u{212a}@uma.test",
        "$ad\u{200b}a@uma.test",
        "$ada@uma\u{3002}test",
        "$ada%40uma.test",
        too_long.as_str(),
    ] {
        let answer = client.post("/customers", &person(json!({ "umaAddress": wrong }))).await;
        assert_eq!(answer.refused(400, "INVALID_UMA_ADDRESS")["umaAddress"], wrong);
    }
    assert_eq!(client.get("/customers").await.expect(200)["totalCount"], 4);
    server.verify();
}

#[tokio::test]
async fn an_address_is_given_out_once_and_for_ever() {
    let server = Server::new();
    let (client, other) = (server.platform().await, server.platform().await);
    let first = make(&client, &person(json!({ "umaAddress": "$ada@uma.test" }))).await;
    let second = make(&client, &person(json!({}))).await;
    let taken = async |client: &Client, address: &str| {
        let body = person(json!({ "umaAddress": address }));
        let answer = client.post("/customers", &body).await;
        let kept = address.to_lowercase();
        assert_eq!(answer.refused(409, "UMA_ADDRESS_EXISTS")["umaAddress"], kept);
    };
    taken(&client, "$ADA@uma.test").await;
    // Its own addresses end otherwise.
    let body = person(json!({ "umaAddress": "$ada@uma.test" }));
    other.post("/customers", &body).await.refused(400, "INVALID_UMA_ADDRESS");
    let change = person(json!({ "umaAddress": "$ada@uma.test" }));
    client.patch(&path(&second), &change).await.refused(409, "UMA_ADDRESS_EXISTS");
    // Changed, deleted, and the address stays taken.
    let moved = person(json!({ "umaAddress": "$ada2@uma.test" }));
    client.patch(&path(&first), &moved).await.expect(200);
    taken(&client, "$ada@uma.test").await;
    client.delete(&path(&first)).await.expect(200);
    taken(&client, "$ada@uma.test").await;
    taken(&client, "$ada2@uma.test").await;
    let all = client.get("/customers?isIncludingDeleted=true").await;
    assert_eq!(all.expect(200)["totalCount"], 2);
    server.verify();
}

#[tokio::test]
async fn a_customer_may_return_to_an_address_that_it_had() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &ada()).await;
    for address in ["$ada2@uma.test", "$ada@uma.test", "$ADA@uma.test"] {
        let change = person(json!({ "umaAddress": address }));
        let changed = client.patch(&path(&made), &change).await;
        assert_eq!(changed.expect(200)["umaAddress"], address.to_lowercase());
    }
    let wrong = person(json!({ "umaAddress": "$ada@other.test" }));
    client.patch(&path(&made), &wrong).await.refused(400, "INVALID_UMA_ADDRESS");
    assert_eq!(client.get(&path(&made)).await.expect(200)["umaAddress"], "$ada@uma.test");
    server.verify();
}

#[tokio::test]
async fn a_regulated_platform_changes_what_it_knows_of_a_person() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &ada()).await;
    server.clock.advance_millis(7);
    let mut expected = made.clone();
    expected["updatedAt"] = json!("2025-10-13T09:00:00.007Z");
    for (field, value) in [
        ("fullName", json!("Augusta Ada King")),
        ("birthDate", json!("1984-02-29")),
        ("nationality", json!("FR")),
        ("address", json!({ "line1": "1 Rue X", "postalCode": "75001", "country": "FR" })),
        ("email", json!("king@mail.example")),
        ("phoneNumber", json!("+33123456789")),
        ("currencies", json!(["USD"])),
        ("kycStatus", json!("MANUALLY_REJECTED")),
        ("umaAddress", json!("$king@uma.test")),
    ] {
        let mut change = json!({ "customerType": "INDIVIDUAL" });
        change[field] = value.clone();
        expected[field] = value;
        assert_eq!(*client.patch(&path(&made), &change).await.expect(200), expected, "{field}");
    }
    assert_eq!(*client.get(&path(&made)).await.expect(200), expected);
    server.verify();
}

#[tokio::test]
async fn a_regulated_platform_changes_what_it_knows_of_a_business() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &engines()).await;
    let mut expected = made.clone();
    let owners = json!([{ "fullName": "Joan Clarke", "individualType": "TRUSTEE" }]);
    for (field, change, value) in [
        (
            "businessInfo",
            json!({ "taxId": "GB9" }),
            json!({
                "legalName": "Analytical Engines Ltd.",
                "registrationNumber": "12345678",
                "taxId": "GB9",
            }),
        ),
        ("beneficialOwners", owners.clone(), owners.clone()),
        ("beneficialOwners", json!([]), json!([])),
        ("beneficialOwners", owners.clone(), owners),
        ("kybStatus", json!("PENDING_REVIEW"), json!("PENDING_REVIEW")),
    ] {
        let mut body = json!({ "customerType": "BUSINESS" });
        body[field] = change;
        expected[field] = value;
        assert_eq!(*client.patch(&path(&made), &body).await.expect(200), expected, "{field}");
    }
    server.verify();
}

#[tokio::test]
async fn null_clears_what_a_customer_may_be_without() {
    let server = Server::new();
    let client = server.platform().await;
    for (body, cleared) in [
        (
            ada(),
            vec![
                "fullName",
                "birthDate",
                "nationality",
                "address",
                "email",
                "phoneNumber",
                "currencies",
            ],
        ),
        (engines(), vec!["address", "email", "phoneNumber", "currencies"]),
    ] {
        let made = make(&client, &body).await;
        let mut expected = made.clone();
        for field in cleared {
            let change = json!({ "customerType": body["customerType"], field: null });
            expected.as_object_mut().expect("a customer").remove(field);
            let changed = client.patch(&path(&made), &change).await;
            assert_eq!(*changed.expect(200), expected, "{field}");
            // Once more changes nothing.
            let changed = client.patch(&path(&made), &change).await;
            assert_eq!(*changed.expect(200), expected, "{field}");
        }
        assert_eq!(*client.get(&path(&made)).await.expect(200), expected);
    }
    server.verify();
}

#[tokio::test]
async fn null_clears_members_of_a_business_and_keeps_the_others() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &engines()).await;
    let change = json!({
        "customerType": "BUSINESS",
        "businessInfo": { "taxId": null },
        "beneficialOwners": null,
        "address": {
            "line1": "2 Dorset Street",
            "line2": null,
            "postalCode": "W1",
            "country": "GB",
        },
    });
    let mut expected = made.clone();
    expected["businessInfo"].as_object_mut().expect("an object").remove("taxId");
    expected["beneficialOwners"] = json!([]);
    expected["address"] =
        json!({ "line1": "2 Dorset Street", "postalCode": "W1", "country": "GB" });
    assert_eq!(*client.patch(&path(&made), &change).await.expect(200), expected);
    let owners = json!([{ "fullName": "Joan Clarke", "individualType": "TRUSTEE", "title": null }]);
    let change = json!({ "customerType": "BUSINESS", "beneficialOwners": owners });
    expected["beneficialOwners"] =
        json!([{ "fullName": "Joan Clarke", "individualType": "TRUSTEE" }]);
    assert_eq!(*client.patch(&path(&made), &change).await.expect(200), expected);
    server.verify();
}

#[tokio::test]
async fn null_is_refused_where_a_customer_must_have_a_value() {
    let server = Server::new();
    let client = server.platform().await;
    for (body, wrong) in [
        (ada(), json!({ "umaAddress": null })),
        (ada(), json!({ "kycStatus": null })),
        (engines(), json!({ "umaAddress": null })),
        (engines(), json!({ "kybStatus": null })),
        (engines(), json!({ "businessInfo": null })),
    ] {
        let mut body = body;
        body.as_object_mut().expect("an object").remove("umaAddress");
        let made = make(&client, &body).await;
        let mut change = wrong.clone();
        change["customerType"] = body["customerType"].clone();
        let answer = client.patch(&path(&made), &change).await;
        let field = wrong.as_object().expect("an object").keys().next().expect("a field");
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [field.as_str()], "{wrong}");
        let message = text(&answer.body["message"]);
        assert!(message.contains("cannot be cleared"), "{message}");
        assert_eq!(*client.get(&path(&made)).await.expect(200), made);
    }
    let made = make(&client, &engines()).await;
    let change = json!({ "customerType": "BUSINESS", "businessInfo": { "legalName": null } });
    let answer = client.patch(&path(&made), &change).await;
    let named = fields(answer.refused(400, "INVALID_INPUT"));
    assert_eq!(named, ["businessInfo.legalName"]);
    let change = person(json!({ "customerType": null }));
    let answer = client.patch(&path(&made), &change).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["customerType"]);
}

#[tokio::test]
async fn an_unregulated_platform_clears_no_personal_data() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, false).await;
    let made = make(&client, &ada()).await;
    for field in ["fullName", "birthDate", "nationality", "address"] {
        let answer = client.patch(&path(&made), &person(json!({ field: null }))).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [field]);
    }
    assert_eq!(*client.get(&path(&made)).await.expect(200), made);
    // Data that is not there stays away.
    let made = make(&client, &person(json!({ "fullName": "Eve" }))).await;
    let nothing = person(json!({ "birthDate": null, "address": null }));
    assert_eq!(*client.patch(&path(&made), &nothing).await.expect(200), made);
}

#[tokio::test]
async fn a_change_names_the_type_that_the_customer_has() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &ada()).await;
    let change = json!({ "customerType": "BUSINESS", "businessInfo": { "legalName": "X" } });
    let answer = client.patch(&path(&made), &change).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["customerType"]);
    for wrong in [json!({ "fullName": "X" }), person(json!({ "customerType": "ROBOT" }))] {
        let answer = client.patch(&path(&made), &wrong).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["customerType"], "{wrong}");
        let answer = client.post("/customers", &wrong).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["customerType"], "{wrong}");
    }
    assert_eq!(*client.get(&path(&made)).await.expect(200), made);
}

#[tokio::test]
async fn an_unregulated_platform_changes_addresses_only() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, false).await;
    let made = make(&client, &ada()).await;
    for (field, value) in [
        ("fullName", json!("Eve")),
        ("birthDate", json!("1990-01-01")),
        ("nationality", json!("FR")),
        ("address", json!({ "line1": "x", "postalCode": "1", "country": "GB" })),
    ] {
        let mut change = json!({ "customerType": "INDIVIDUAL", "umaAddress": "$eve@uma.test" });
        change[field] = value;
        let answer = client.patch(&path(&made), &change).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [field]);
    }
    assert_eq!(*client.get(&path(&made)).await.expect(200), made);
    // What the customer is already is no change.
    let mut same = ada();
    same["umaAddress"] = json!("$countess@uma.test");
    let changed = client.patch(&path(&made), &same).await;
    assert_eq!(changed.expect(200)["umaAddress"], "$countess@uma.test");
    let firm = make(&client, &engines()).await;
    let change = json!({
        "customerType": "BUSINESS",
        "businessInfo": { "legalName": "Other" },
        "beneficialOwners": [{ "fullName": "Eve", "individualType": "DIRECTOR" }],
    });
    let answer = client.patch(&path(&firm), &change).await;
    let named = fields(answer.refused(400, "INVALID_INPUT"));
    assert_eq!(named, ["beneficialOwners", "businessInfo.legalName"]);
    let change = json!({ "customerType": "BUSINESS", "beneficialOwners": [] });
    let answer = client.patch(&path(&firm), &change).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["beneficialOwners"]);
    assert_eq!(*client.get(&path(&firm)).await.expect(200), firm);
}

/// Nothing of it was checked, so that any platform may keep it up to date.
#[tokio::test]
async fn an_unregulated_platform_changes_how_a_customer_is_reached() {
    let server = Server::new();
    let client = server.platform_with(Mode::Sandbox, false).await;
    for (body, removed) in [(ada(), "phoneNumber"), (engines(), "email")] {
        let made = make(&client, &body).await;
        let change = json!({
            "customerType": body["customerType"],
            "email": "new@mail.example", "phoneNumber": "+12025550123", "currencies": [],
            removed: null,
        });
        let mut expected = made.clone();
        for field in ["email", "phoneNumber"] {
            expected[field] = change[field].clone();
        }
        for field in [removed, "currencies"] {
            expected.as_object_mut().expect("a customer").remove(field);
        }
        assert_eq!(*client.patch(&path(&made), &change).await.expect(200), expected);
        assert_eq!(*client.get(&path(&made)).await.expect(200), expected);
    }
    server.verify();
}

#[tokio::test]
async fn only_a_regulated_platform_says_what_it_knows_of_an_identity() {
    let server = Server::new();
    for (mode, is_regulated, first) in [
        (Mode::Sandbox, true, "EXPIRED"),
        (Mode::Live, true, "EXPIRED"),
        (Mode::Sandbox, false, "APPROVED"),
        (Mode::Live, false, "PENDING_REVIEW"),
    ] {
        let client = server.platform_with(mode, is_regulated).await;
        let made = make(&client, &person(json!({ "kycStatus": "EXPIRED" }))).await;
        assert_eq!(made["kycStatus"], first, "{mode:?}");
        let change = person(json!({ "kycStatus": "CANCELED" }));
        let changed = client.patch(&path(&made), &change).await;
        let expected = if is_regulated { "CANCELED" } else { first };
        assert_eq!(changed.expect(200)["kycStatus"], expected, "{mode:?}");
        let firm = json!({
            "customerType": "BUSINESS",
            "kybStatus": "EXPIRED",
            "businessInfo": { "legalName": "X" },
        });
        assert_eq!(make(&client, &firm).await["kybStatus"], first, "{mode:?}");
    }
    let client = server.platform().await;
    for status in [
        "APPROVED",
        "REJECTED",
        "PENDING_REVIEW",
        "EXPIRED",
        "CANCELED",
        "MANUALLY_APPROVED",
        "MANUALLY_REJECTED",
    ] {
        let made = make(&client, &person(json!({ "kycStatus": status }))).await;
        assert_eq!(made["kycStatus"], status);
    }
}

#[tokio::test]
async fn a_deleted_customer_stays_readable_and_ends() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &ada()).await;
    let id = text(&made["id"]);
    let bank = client.usd_external(&id, "789").await;
    server.clock.advance_millis(3);
    let mut expected = made.clone();
    expected["isDeleted"] = json!(true);
    expected["updatedAt"] = json!("2025-10-13T09:00:00.003Z");
    assert_eq!(*client.delete(&path(&made)).await.expect(200), expected);
    assert_eq!(*client.get(&path(&made)).await.expect(200), expected);
    client.delete(&path(&made)).await.refused(410, "CUSTOMER_DELETED");
    client.patch(&path(&made), &person(json!({}))).await.refused(410, "CUSTOMER_DELETED");
    let body = crate::support::usd_external(Some(&id), "111");
    let refused = client.post("/customers/external-accounts", &body).await;
    refused.refused(410, "CUSTOMER_DELETED");
    // Its accounts can still be read, by a client that asks by its id.
    let query = format!("?customerId={id}");
    let internal = client.get(&format!("/customers/internal-accounts{query}&limit=100")).await;
    assert_eq!(internal.expect(200)["totalCount"], 27);
    let external = client.get(&format!("/customers/external-accounts{query}")).await;
    assert_eq!(external.expect(200)["data"][0]["id"], bank.as_str());
    let account = text(&internal.body["data"][0]["id"]);
    let fund = format!("/sandbox/internal-accounts/{account}/fund");
    client.post(&fund, &json!({ "amount": 1 })).await.refused(410, "CUSTOMER_DELETED");
    server.verify();
}

#[tokio::test]
async fn a_customer_with_money_or_a_payment_under_way_cannot_be_deleted() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let path = format!("/customers/{customer}");
    let usd = client.funded(&customer, "USD", 100).await;
    let before = client.get(&path).await.expect(200).clone();
    client.delete(&path).await.refused(409, "CONFLICT");
    let bank = client.usd_external(&customer, "789").await;
    let body = json!({
        "source": { "accountId": usd },
        "destination": { "accountId": bank },
        "amount": 100,
    });
    client.post("/transfer-out", &body).await.expect(201);
    assert_eq!(client.balance(&usd).await, 0);
    client.delete(&path).await.refused(409, "CONFLICT");
    assert_eq!(*client.get(&path).await.expect(200), before);
    server.pass(1_000).await;
    // What is on its way in counts as well.
    let body = json!({
        "source": { "accountId": bank },
        "destination": { "accountId": usd },
        "amount": 5,
    });
    client.post("/transfer-in", &body).await.expect(201);
    assert_eq!(client.balance(&usd).await, 0);
    client.delete(&path).await.refused(409, "CONFLICT");
    server.pass(1_000).await;
    client.delete(&path).await.refused(409, "CONFLICT");
    let body = json!({
        "source": { "accountId": usd },
        "destination": { "accountId": bank },
        "amount": 5,
    });
    client.post("/transfer-out", &body).await.expect(201);
    server.pass(1_000).await;
    assert_eq!(client.delete(&path).await.expect(200)["isDeleted"], true);
    server.verify();
}

#[tokio::test]
async fn a_viewer_filters_customers_by_every_field_inclusively() {
    let server = Server::new();
    let client = server.platform().await;
    let ada = make(&client, &ada()).await;
    server.clock.advance_millis(1_000);
    let engines = make(&client, &engines()).await;
    server.clock.advance_millis(1_000);
    let last = make(&client, &person(json!({ "platformCustomerId": "last" }))).await;
    server.clock.advance_millis(1_000);
    let change = person(json!({ "umaAddress": "$countess@uma.test" }));
    client.patch(&path(&ada), &change).await.expect(200);
    client.delete(&path(&last)).await.expect(200);
    let check = async |query: &str, expected: &[&Value]| {
        let answer = client.get(&format!("/customers{query}")).await;
        let body = answer.expect(200);
        let found: Vec<_> =
            body["data"].as_array().expect("rows").iter().map(|row| &row["id"]).collect();
        let expected: Vec<_> = expected.iter().map(|row| &row["id"]).collect();
        assert_eq!(found, expected, "{query}");
        assert_eq!(body["totalCount"], expected.len(), "{query}");
    };
    let (ada, engines, last) = (&ada, &engines, &last);
    check("", &[engines, ada]).await;
    check("?isIncludingDeleted=false", &[engines, ada]).await;
    check("?isIncludingDeleted=true", &[last, engines, ada]).await;
    check("?platformCustomerId=user-42", &[ada]).await;
    check("?platformCustomerId=USER-42", &[]).await;
    check("?platformCustomerId=last", &[]).await;
    check("?platformCustomerId=last&isIncludingDeleted=true", &[last]).await;
    check("?customerType=INDIVIDUAL", &[ada]).await;
    check("?customerType=BUSINESS", &[engines]).await;
    check("?umaAddress=$Countess@uma.test", &[ada]).await;
    check("?umaAddress=%24countess%40uma.test", &[ada]).await;
    check("?umaAddress=$ada@uma.test", &[]).await;
    let answer = client.get("/customers?umaAddress=ada").await;
    assert_eq!(answer.refused(400, "INVALID_UMA_ADDRESS")["umaAddress"], "ada");
    let at = |second: u8| format!("2025-10-13T09:00:0{second}.000Z");
    check(&format!("?createdAfter={}", at(1)), &[engines]).await;
    check(&format!("?createdBefore={}", at(1)), &[engines, ada]).await;
    check(&format!("?createdBefore={}", at(0)), &[ada]).await;
    check(&format!("?updatedAfter={}", at(3)), &[ada]).await;
    check(&format!("?updatedAfter={}&isIncludingDeleted=true", at(3)), &[last, ada]).await;
    check(&format!("?updatedBefore={}", at(1)), &[engines]).await;
    check(&format!("?createdBefore={}&updatedAfter={}", at(1), at(2)), &[ada]).await;
    check("?customerType=INDIVIDUAL&umaAddress=$engines@uma.test", &[]).await;
    let query = "?customerType=ROBOT&umaAddress=ada&isIncludingDeleted=1&createdAfter=x&limit=x";
    let answer = client.get(&format!("/customers{query}")).await;
    let wrong = ["createdAfter", "customerType", "isIncludingDeleted", "limit", "umaAddress"];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
}

#[tokio::test]
async fn a_viewer_pages_through_filtered_customers() {
    let server = Server::new();
    let client = server.platform().await;
    for number in 0..9 {
        let name = if number % 3 == 0 { "other" } else { "mine" };
        make(&client, &person(json!({ "platformCustomerId": name }))).await;
    }
    let (mut seen, mut query) = (Vec::new(), String::new());
    loop {
        let answer =
            client.get(&format!("/customers?platformCustomerId=mine&limit=4{query}")).await;
        let body = answer.expect(200);
        assert_eq!(body["totalCount"], 6);
        seen.extend(body["data"].as_array().expect("rows").iter().map(|row| text(&row["id"])));
        let Some(cursor) = body["nextCursor"].as_str() else { break };
        query = format!("&cursor={cursor}");
    }
    let mut newest_first = seen.clone();
    newest_first.sort();
    newest_first.reverse();
    newest_first.dedup();
    assert_eq!((seen.len(), &seen), (6, &newest_first));
}

#[tokio::test]
async fn what_only_the_server_knows_of_a_customer_cannot_be_set() {
    let server = Server::new();
    let client = server.platform().await;
    let read_only = json!({
        "id": "Customer:019542f5-b3e7-7d02-8000-000000000000",
        "isDeleted": true,
        "createdAt": "2000-01-01T00:00:00Z",
        "updatedAt": "2000-01-01T00:00:00Z",
        "platform": "PlatformConfig:019542f5-b3e7-7d02-8000-000000000000",
        "balance": 5,
        "kybStatus": "REJECTED",
        "defaultUmaDepositAccount": "ExternalAccount:019542f5-b3e7-7d02-8000-000000000000",
    });
    let mut body = ada();
    for (name, value) in read_only.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let made = make(&client, &body).await;
    assert_ne!(made["id"], read_only["id"]);
    assert_eq!(made, shown(&ada(), &made, "APPROVED"));
    body["platformCustomerId"] = json!("changed");
    assert_eq!(*client.patch(&path(&made), &body).await.expect(200), made);
}

#[tokio::test]
async fn a_manager_learns_everything_that_is_wrong_with_a_person() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, &ada()).await;
    let check = async |extra: Value, wrong: &[&str]| {
        let body = person(extra);
        let answer = client.post("/customers", &body).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong, "{body}");
        let answer = client.patch(&path(&made), &body).await;
        let wrong: Vec<_> =
            wrong.iter().copied().filter(|field| *field != "platformCustomerId").collect();
        if wrong.is_empty() {
            answer.expect(200);
        } else {
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong, "{body}");
        }
    };
    for date in ["2025-02-30", "1985-13-01", "85-12-10", "10.12.1985", "19851210", "1985-W50-2", ""]
    {
        check(json!({ "birthDate": date }), &["birthDate"]).await;
    }
    // Tomorrow, by the platform's clock, and before anyone who lives was born.
    for date in ["2025-10-14", "9999-12-31", "1899-12-31", "0001-01-01"] {
        check(json!({ "birthDate": date }), &["birthDate"]).await;
    }
    for country in ["gb", "UK", "GBR", "ZZ", "G", ""] {
        check(json!({ "nationality": country }), &["nationality"]).await;
    }
    for name in ["", " ", " Ada", "Ada ", "Ada  King", "<b>Ada</b>", "Ada|King", "{ada}"] {
        check(json!({ "fullName": name }), &["fullName"]).await;
    }
    for name in INVISIBLE {
        check(json!({ "fullName": name }), &["fullName"]).await;
        check(json!({ "fullName": format!("Ada{name}Byron") }), &["fullName"]).await;
    }
    check(json!({ "fullName": "x".repeat(256) }), &["fullName"]).await;
    check(json!({ "platformCustomerId": "" }), &["platformCustomerId"]).await;
    check(json!({ "platformCustomerId": "x".repeat(256) }), &["platformCustomerId"]).await;
    check(json!({ "kycStatus": "approved" }), &["kycStatus"]).await;
    for email in ["", "ada", "@mail.example", "ada@mail", "a da@mail.example"] {
        check(json!({ "email": email }), &["email"]).await;
    }
    for phone in ["", "020 7946", "+0", "+44 20 7946", "+1234567890123456"] {
        check(json!({ "phoneNumber": phone }), &["phoneNumber"]).await;
    }
    check(json!({ "currencies": ["EUR", "XXX", "EUR"] }), &["currencies.1", "currencies.2"]).await;
    check(json!({ "currencies": "EUR" }), &["currencies"]).await;
    check(json!({ "address": {} }), &["address.country", "address.line1", "address.postalCode"])
        .await;
    check(json!({ "address": "London" }), &["address"]).await;
    check(
        json!({
            "umaAddress": "ada",
            "kycStatus": "GOOD",
            "fullName": " Ada",
            "birthDate": "1985-02-30",
            "nationality": "UK",
            "address": { "line1": "", "postalCode": "1", "country": "uk" },
        }),
        &[
            "address.country",
            "address.line1",
            "birthDate",
            "fullName",
            "kycStatus",
            "nationality",
            "umaAddress",
        ],
    )
    .await;
    assert_eq!(*client.get(&path(&made)).await.expect(200), made);
    assert_eq!(client.get("/customers").await.expect(200)["totalCount"], 1);
}

#[tokio::test]
async fn a_manager_learns_everything_that_is_wrong_with_a_business() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({
        "customerType": "BUSINESS",
        "kybStatus": "AWAITING",
        "businessInfo": { "legalName": " X", "taxId": 5 },
        "address": { "line1": "x", "postalCode": "1", "country": "XX" },
        "beneficialOwners": [
            {
                "fullName": "Ada  King",
                "individualType": "KING",
                "emailAddress": "no-address",
                "phoneNumber": "0044",
                "birthDate": "1985-02-30",
                "nationality": "UK",
                "percentageOwnership": 101,
                "address": { "line1": "x", "postalCode": "1" },
            },
            { "individualType": "DIRECTOR" },
        ],
    });
    let answer = client.post("/customers", &body).await;
    let wrong = [
        "address.country",
        "beneficialOwners.0.address.country",
        "beneficialOwners.0.birthDate",
        "beneficialOwners.0.emailAddress",
        "beneficialOwners.0.fullName",
        "beneficialOwners.0.individualType",
        "beneficialOwners.0.nationality",
        "beneficialOwners.0.percentageOwnership",
        "beneficialOwners.0.phoneNumber",
        "beneficialOwners.1.fullName",
        "businessInfo.legalName",
        "businessInfo.taxId",
        "kybStatus",
    ];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
    for (body, wrong) in [
        (json!({ "customerType": "BUSINESS" }), "businessInfo"),
        (json!({ "customerType": "BUSINESS", "businessInfo": {} }), "businessInfo.legalName"),
    ] {
        let answer = client.post("/customers", &body).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [wrong]);
    }
    assert_eq!(client.get("/customers").await.expect(200)["totalCount"], 0);
}

/// Texts that show nothing, and that have no place inside a name either.
const INVISIBLE: [&str; 9] = [
    "\u{200B}", "\u{2060}", "\u{FEFF}", "\u{3164}", "\u{2800}", "\u{115F}", "\u{202E}", "\u{2066}",
    "\u{AD}",
];

/// Names with the invisible characters that they need.
const VISIBLE: [&str; 5] = [
    "Ada \u{1F469}\u{200D}\u{1F4BB}",
    "עדה\u{200F} לאבלייס",
    "محمد علی\u{200C}زاده",
    "\u{200E}Ada\u{200E}",
    "李小龍",
];

#[tokio::test]
async fn names_that_people_read_can_be_seen() {
    let server = Server::new();
    let client = server.platform().await;
    let uma = client.uma_address(&client.customer().await).await;
    let body = |kind: &str, name: &str| match kind {
        "fullName" => ("/customers", person(json!({ "fullName": name }))),
        "name" => ("/tokens", json!({ "name": name, "permissions": [] })),
        "firstName" => ("/invitations", json!({ "inviterUma": uma, "firstName": name })),
        "businessInfo.legalName" => {
            let info = json!({ "legalName": name });
            ("/customers", json!({ "customerType": "BUSINESS", "businessInfo": info }))
        }
        _ => {
            let mut body = engines();
            body.as_object_mut().expect("an object").remove("umaAddress");
            body["beneficialOwners"][0]["fullName"] = json!(name);
            ("/customers", body)
        }
    };
    for kind in
        ["fullName", "name", "firstName", "businessInfo.legalName", "beneficialOwners.0.fullName"]
    {
        for name in VISIBLE {
            let (path, body) = body(kind, name);
            client.post(path, &body).await.expect(201);
        }
        for name in INVISIBLE.into_iter().chain(["\u{200D}", "\u{200F}\u{200E}", "\u{A0}", " "]) {
            let (path, body) = body(kind, name);
            let answer = client.post(path, &body).await;
            assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), [kind], "{name:?}");
        }
    }
    server.verify();
}

#[tokio::test]
async fn no_one_was_born_after_the_platforms_today() {
    let server = Server::new();
    let client = server.platform().await;
    let mut body = engines();
    for (date, status) in [("2025-10-13", 201), ("2025-10-14", 400), ("1899-12-31", 400)] {
        body["beneficialOwners"][0]["birthDate"] = json!(date);
        body["umaAddress"] = json!(format!("$engines-{date}@uma.test"));
        let answer = client.post("/customers", &body).await;
        assert_eq!(answer.status, status, "{date}");
        if status == 400 {
            let named = fields(answer.refused(400, "INVALID_INPUT"));
            assert_eq!(named, ["beneficialOwners.0.birthDate"]);
        }
    }
    // The sandbox's clock of this platform goes ahead, and with it what was to come.
    let tomorrow = person(json!({ "birthDate": "2025-10-14" }));
    let answer = client.post("/customers", &tomorrow).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["birthDate"]);
    client.post("/sandbox/clock", &json!({ "advanceBySeconds": 86_400 })).await.expect(200);
    let made = make(&client, &tomorrow).await;
    let change = person(json!({ "birthDate": "2025-10-15" }));
    let answer = client.patch(&path(&made), &change).await;
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["birthDate"]);
    server.verify();
}

#[tokio::test]
async fn a_postal_code_is_asked_for_where_the_country_has_them() {
    let server = Server::new();
    let client = server.platform().await;
    for (country, status) in [("HK", 201), ("AE", 201), ("QA", 201), ("PA", 201), ("IE", 400)] {
        let address = json!({ "line1": "1 High Street", "country": country });
        let body = person(json!({ "fullName": "Ada", "address": address }));
        let answer = client.post("/customers", &body).await;
        assert_eq!(answer.status, status, "{country}");
        if status == 201 {
            assert_eq!(answer.body["address"], address);
            let path = path(&answer.body);
            assert_eq!(client.get(&path).await.expect(200)["address"], address);
        } else {
            let named = fields(answer.refused(400, "INVALID_INPUT"));
            assert_eq!(named, ["address.postalCode"]);
        }
    }
    server.verify();
}
