//! The institutions whose addresses can be paid.

use domain::platform::Mode;
use serde_json::{Value, json};

use crate::support::{Server, text};

fn domains(list: &Value) -> Vec<String> {
    list["data"].as_array().expect("rows").iter().map(|row| text(&row["domain"])).collect()
}

#[tokio::test]
async fn institutions_are_listed_by_every_filter() {
    let server = Server::new();
    let client = server.platform().await;
    let list = client.get("/uma-providers").await.expect(200).clone();
    assert_eq!(domains(&list), ["sandbox.uma.money", "sandbox.blocked.uma.money"]);
    assert_eq!((&list["totalCount"], &list["hasMore"]), (&json!(2), &json!(false)));
    let bank = &list["data"][0];
    assert_eq!((&bank["name"], &bank["allowListStatus"]), (&json!("Sandbox Bank"), &json!(true)));
    assert!(bank["supportedCurrencies"].as_array().expect("all").len() >= 3, "{bank}");
    for (query, expected) in [
        ("hasBlockedProviders=false", vec!["sandbox.uma.money"]),
        ("countryCode=MX", vec!["sandbox.uma.money"]),
        ("countryCode=AQ", vec![]),
        ("currencyCode=MXN&hasBlockedProviders=false", vec!["sandbox.uma.money"]),
        ("currencyCode=BTC", vec![]),
        ("sortOrder=asc", vec!["sandbox.blocked.uma.money", "sandbox.uma.money"]),
        ("sortOrder=desc", vec!["sandbox.uma.money", "sandbox.blocked.uma.money"]),
    ] {
        let list = client.get(&format!("/uma-providers?{query}")).await.expect(200).clone();
        assert_eq!(domains(&list), expected, "{query}");
        assert_eq!(list["totalCount"], expected.len(), "{query}");
    }
    for query in ["countryCode=Mexico", "hasBlockedProviders=perhaps", "sortOrder=up", "limit=0"] {
        let answer = client.get(&format!("/uma-providers?{query}")).await;
        answer.refused(400, "INVALID_INPUT");
    }
    let live = server.platform_with(Mode::Live, true).await;
    assert_eq!(live.get("/uma-providers").await.expect(200)["totalCount"], 0);
}

#[tokio::test]
async fn pages_of_institutions_join() {
    let server = Server::new();
    let client = server.platform().await;
    let first = client.get("/uma-providers?limit=1").await.expect(200).clone();
    assert_eq!((domains(&first).len(), &first["hasMore"]), (1, &json!(true)));
    let cursor = text(&first["nextCursor"]);
    let path = format!("/uma-providers?limit=1&cursor={cursor}");
    let second = client.get(&path).await.expect(200).clone();
    assert_eq!(domains(&second), ["sandbox.blocked.uma.money"]);
    assert_eq!((&second["hasMore"], second.get("nextCursor")), (&json!(false), None));
}

#[tokio::test]
async fn no_one_at_a_blocked_institution_is_found() {
    let server = Server::new();
    let client = server.platform().await;
    let customer = client.customer().await;
    let path =
        format!("/receiver/uma/$success.usd@sandbox.blocked.uma.money?customerId={customer}");
    client.get(&path).await.refused(403, "COUNTERPARTY_NOT_ALLOWED");
}
