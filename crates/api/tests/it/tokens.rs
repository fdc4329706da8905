//! API tokens (specification 2.12, 4.3, 4.4, 5; contract 6.2).

use domain::platform::Mode;
use domain::token::{Permission, Permissions};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Call, Client, START, Server, fields, text};

/// Makes a token.
async fn make(client: &Client, name: &str, permissions: &[&str]) -> Value {
    let body = json!({ "name": name, "permissions": permissions });
    client.post("/tokens", &body).await.expect(201).clone()
}

/// The names on a list of tokens.
async fn names(client: &Client, query: &str) -> Vec<String> {
    let answer = client.get(&format!("/tokens{query}")).await;
    let body = answer.expect(200);
    let names: Vec<_> =
        body["data"].as_array().expect("rows").iter().map(|row| text(&row["name"])).collect();
    if body["hasMore"] == false {
        assert!(body.get("nextCursor").is_none(), "{body}");
    }
    names
}

#[tokio::test]
async fn a_manager_makes_a_token_whose_secret_is_shown_once() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({ "name": "worker", "permissions": ["TRANSACT", "VIEW", "VIEW"] });
    let answer = client.post("/tokens", &body).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let made = answer.expect(201).clone();
    let (id, secret) = (text(&made["id"]), text(&made["clientSecret"]));
    assert!(id.starts_with("Token:") && secret.len() == 64, "{made}");
    assert_eq!(text(&made["clientId"]).len(), 32);
    let mut shown = json!({
        "id": id,
        "name": "worker",
        "permissions": ["VIEW", "TRANSACT"],
        "clientId": made["clientId"],
        "createdAt": START,
        "updatedAt": START,
    });
    assert_eq!(*client.get(&format!("/tokens/{id}")).await.expect(200), shown);
    assert_eq!(client.get("/tokens").await.expect(200)["data"][0], shown);
    shown["clientSecret"] = json!(secret);
    assert_eq!(made, shown);
    let worker = server.client(client.platform, &text(&made["clientId"]), &secret);
    worker.get("/config").await.expect(200);
}

#[tokio::test]
async fn a_viewer_filters_tokens_by_every_field_inclusively() {
    let server = Server::new();
    let client = server.platform().await;
    for name in ["a", "b"] {
        server.clock.advance_millis(1_000);
        make(&client, name, &[]).await;
    }
    let check = async |query: &str, expected: &[&str]| {
        assert_eq!(names(&client, query).await, expected, "{query}");
    };
    let at = "2025-10-13T09:00:01.000Z";
    check("", &["b", "a", "test"]).await;
    check("?name=a", &["a"]).await;
    check("?name=A", &[]).await;
    check("?name=", &[]).await;
    check("?name=te", &[]).await;
    for field in ["created", "updated"] {
        check(&format!("?{field}After={at}"), &["b", "a"]).await;
        check(&format!("?{field}Before={at}"), &["a", "test"]).await;
        check(&format!("?{field}After={at}&{field}Before={at}"), &["a"]).await;
        check(&format!("?{field}After=2025-10-13T11:00:01.001%2B02:00"), &["b"]).await;
        check(&format!("?{field}Before=2025-10-13T09:00:00.999Z&name=a"), &[]).await;
    }
}

#[tokio::test]
async fn a_viewer_learns_every_wrong_filter_at_once() {
    let server = Server::new();
    let client = server.platform().await;
    let query = "?createdAfter=yesterday&createdBefore=2025-10-13&updatedAfter=\
        2025-02-30T00:00:00Z&updatedBefore=&limit=0&cursor=x";
    let answer = client.get(&format!("/tokens{query}")).await;
    let wrong =
        ["createdAfter", "createdBefore", "cursor", "limit", "updatedAfter", "updatedBefore"];
    assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), wrong);
}

#[tokio::test]
async fn a_viewer_pages_through_tokens_and_sees_each_once() {
    let server = Server::new();
    let client = server.platform().await;
    for number in 0..7 {
        make(&client, &format!("token {number}"), &[]).await;
    }
    let (mut seen, mut sizes, mut query) = (Vec::new(), Vec::new(), "?limit=3".to_owned());
    loop {
        let answer = client.get(&format!("/tokens{query}")).await;
        let body = answer.expect(200);
        let rows = body["data"].as_array().expect("rows");
        sizes.push(rows.len());
        seen.extend(rows.iter().map(|row| text(&row["name"])));
        assert_eq!(body["totalCount"], 8 + i64::from(sizes.len() > 1));
        if sizes.len() == 1 {
            // What is made meanwhile is newer than every page to come.
            make(&client, "late", &[]).await;
        }
        assert_eq!(body["hasMore"].as_bool(), Some(body.get("nextCursor").is_some()));
        let Some(cursor) = body["nextCursor"].as_str() else { break };
        query = format!("?limit=3&cursor={cursor}");
    }
    let expected: Vec<_> = (0..7).rev().map(|number| format!("token {number}")).collect();
    assert_eq!(sizes, [3, 3, 2]);
    assert_eq!(seen[..7], expected);
    assert_eq!(seen[7], "test");
}

#[tokio::test]
async fn a_viewer_gets_1_to_100_rows_and_20_without_asking() {
    let server = Server::new();
    let client = server.platform().await;
    for number in 0..24 {
        make(&client, &number.to_string(), &[]).await;
    }
    for (query, rows) in [("", 20), ("?limit=1", 1), ("?limit=24", 24), ("?limit=100", 25)] {
        assert_eq!(names(&client, query).await.len(), rows, "{query}");
    }
    for wrong in
        ["0", "101", "abc", "-1", "20%20", "%2B20", "1.0", "", "4294967297", "99999999999999999999"]
    {
        let answer = client.get(&format!("/tokens?limit={wrong}")).await;
        assert_eq!(fields(answer.refused(400, "INVALID_INPUT")), ["limit"], "{wrong}");
    }
    client.get("/tokens?limit=1&limit=2").await.refused(400, "INVALID_INPUT");
}

#[tokio::test]
async fn a_deleted_token_opens_nothing_and_is_not_found() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, "gone", &["VIEW", "MANAGE"]).await;
    let path = format!("/tokens/{}", text(&made["id"]));
    let gone =
        server.client(client.platform, &text(&made["clientId"]), &text(&made["clientSecret"]));
    gone.get("/config").await.expect(200);
    let deleted = client.delete(&path).await;
    assert_eq!((deleted.status, deleted.bytes.len()), (204, 0));
    gone.get("/config").await.refused(401, "UNAUTHORIZED");
    gone.post("/tokens", &json!({ "name": "x", "permissions": [] }))
        .await
        .refused(401, "UNAUTHORIZED");
    client.get(&path).await.refused(404, "TOKEN_NOT_FOUND");
    client.delete(&path).await.refused(404, "TOKEN_NOT_FOUND");
    assert_eq!(names(&client, "").await, ["test"]);
    assert_eq!(client.get("/tokens").await.expect(200)["totalCount"], 1);
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_that_come_together_are_let_in_together_or_not_at_all() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, "busy", &["VIEW"]).await;
    let busy =
        server.client(client.platform, &text(&made["clientId"]), &text(&made["clientSecret"]));
    let together = async || {
        // What was known of the client is too old for each of them.
        server.clock.advance_millis(1_000);
        let asked = (0..64).map(|_| {
            let busy = busy.clone();
            async move { busy.get("/config").await.status }
        });
        asked.collect::<JoinSet<_>>().join_all().await
    };
    busy.get("/config").await.expect(200);
    for _ in 0..3 {
        assert_eq!(together().await, [200; 64]);
    }
    client.delete(&format!("/tokens/{}", text(&made["id"]))).await.expect(204);
    assert_eq!(together().await, [401; 64]);
}

#[tokio::test]
async fn a_token_that_is_deleted_again_under_one_key_was_deleted_once() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, "gone", &["VIEW"]).await;
    let path = format!("/tokens/{}", text(&made["id"]));
    let delete = async || {
        client.send("DELETE", &path, Call::default().header("idempotency-key", "once")).await
    };
    let (first, again) = (delete().await, delete().await);
    for answer in [&first, &again] {
        assert_eq!((answer.status, answer.bytes.len()), (204, 0));
        assert!(!answer.headers.contains_key("content-type"), "of nothing");
    }
    assert!(!first.headers.contains_key("idempotent-replayed"));
    assert_eq!(again.headers["idempotent-replayed"], "true");
}

#[tokio::test]
async fn a_manager_cannot_delete_the_last_token_that_manages() {
    let server = Server::new();
    let client = server.platform().await;
    make(&client, "viewer", &["VIEW", "TRANSACT"]).await;
    let own = text(&client.get("/tokens?name=test").await.expect(200)["data"][0]["id"]);
    client.delete(&format!("/tokens/{own}")).await.refused(400, "INVALID_INPUT");
    client.get("/config").await.expect(200);
    let heir = make(&client, "heir", &["MANAGE"]).await;
    client.delete(&format!("/tokens/{own}")).await.expect(204);
    client.get("/config").await.refused(401, "UNAUTHORIZED");
    let manager =
        server.client(client.platform, &text(&heir["clientId"]), &text(&heir["clientSecret"]));
    let heir = text(&heir["id"]);
    manager.delete(&format!("/tokens/{heir}")).await.refused(400, "INVALID_INPUT");
    server.verify();
}

#[tokio::test]
async fn a_manager_grants_only_what_its_token_holds() {
    let server = Server::new();
    let client = server.platform().await;
    let manager = server.token_with(client.platform, Permission::Manage).await;
    let check = async |permissions: &[&str], missing: &[&str]| {
        let body = json!({ "name": "more", "permissions": permissions });
        let answer = manager.post("/tokens", &body).await;
        if missing.is_empty() {
            answer.expect(201);
        } else {
            let details = answer.refused(403, "FORBIDDEN");
            assert_eq!(details["missingPermissions"], json!(missing));
        }
    };
    check(&["VIEW"], &["VIEW"]).await;
    check(&["MANAGE", "TRANSACT", "VIEW"], &["VIEW", "TRANSACT"]).await;
    assert_eq!(client.get("/tokens").await.expect(200)["totalCount"], 2);
    check(&["MANAGE"], &[]).await;
    check(&[], &[]).await;
}

#[tokio::test]
async fn a_token_without_permissions_is_legal_and_may_nothing() {
    let server = Server::new();
    let client = server.platform().await;
    let made = make(&client, "nothing", &[]).await;
    assert_eq!(made["permissions"], json!([]));
    let nothing =
        server.client(client.platform, &text(&made["clientId"]), &text(&made["clientSecret"]));
    nothing.get("/config").await.refused(403, "FORBIDDEN");
    nothing
        .post("/tokens", &json!({ "name": "x", "permissions": [] }))
        .await
        .refused(403, "FORBIDDEN");
}

#[tokio::test]
async fn another_platforms_token_is_not_found() {
    let server = Server::new();
    let (client, other) = (server.platform().await, server.platform_with(Mode::Live, true).await);
    let theirs = text(&other.get("/tokens").await.expect(200)["data"][0]["id"]);
    client.get(&format!("/tokens/{theirs}")).await.refused(404, "TOKEN_NOT_FOUND");
    client.delete(&format!("/tokens/{theirs}")).await.refused(404, "TOKEN_NOT_FOUND");
    assert_eq!(names(&client, "").await.len(), 1);
    other.get(&format!("/tokens/{theirs}")).await.expect(200);
    server.token(other.platform, Permissions::ALL).await.get("/tokens").await.expect(200);
}

#[tokio::test]
async fn a_manager_learns_every_wrong_field_of_a_token() {
    let server = Server::new();
    let client = server.platform().await;
    for (body, wrong) in [
        (json!({}), &["name", "permissions"][..]),
        (json!({ "name": null, "permissions": null }), &["name", "permissions"]),
        (json!({ "name": "", "permissions": ["ADMIN"] }), &["name", "permissions.0"]),
        (json!({ "name": "x".repeat(256), "permissions": "VIEW" }), &["name", "permissions"]),
        (
            json!({ "name": 5, "permissions": ["VIEW", "view", 1] }),
            &["name", "permissions.1", "permissions.2"],
        ),
        (json!({ "name": "x", "permissions": ["VIEW", "VIEW", "VIEW", "VIEW"] }), &["permissions"]),
    ] {
        let answer = client.post("/tokens", &body).await;
        let mut named = fields(answer.refused(400, "INVALID_INPUT"));
        named.dedup();
        assert_eq!(named, wrong, "{body}");
    }
    assert_eq!(client.get("/tokens").await.expect(200)["totalCount"], 1);
}

#[tokio::test]
async fn what_only_the_server_knows_of_a_token_cannot_be_set() {
    let server = Server::new();
    let client = server.platform().await;
    let body = json!({
        "name": "x", "permissions": ["VIEW"], "id": "Token:019542f5-b3e7-7d02-8000-000000000003",
        "clientId": "mine", "clientSecret": "mine", "createdAt": "2000-01-01T00:00:00Z",
        "platform": "PlatformConfig:019542f5-b3e7-7d02-8000-000000000003",
    });
    let answer = client.post("/tokens", &body).await;
    let made = answer.expect(201);
    for field in ["id", "clientId", "clientSecret", "createdAt"] {
        assert_ne!(made[field], body[field], "{field}");
    }
}
