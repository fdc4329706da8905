//! Documents that are written from this crate (`cargo xtask docs`).

use expect_test::expect_file;

use crate::support::{Call, Server};

#[tokio::test]
async fn docs_openapi_json_is_written_from_the_routes() {
    let server = Server::new();
    let document = api::document(&server.app);
    let text = serde_json::to_string_pretty(&document).expect("JSON") + "\n";
    expect_file!["../../../../openapi.json"].assert_eq(&text);
}

#[test]
fn docs_errors_are_written_from_the_catalogue() {
    expect_file!["../../../../docs/errors.md"].assert_eq(&api::error::markdown());
}

#[tokio::test]
async fn the_page_to_read_the_document_needs_nothing_from_elsewhere() {
    let client = Server::new().anonymous();
    let page = client.send_to("GET", "/docs", Call::default()).await;
    let text = String::from_utf8(page.bytes).expect("text");
    assert!(text.contains("src=\"/docs/scalar.js\""), "{text}");
    assert!(!text.contains("https://"), "{text}");
    // Whatever the script tries, the browser lets it reach this server only.
    let policy = page.headers["content-security-policy"].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("http"), "{policy}");
    let script = client.send_to("GET", "/docs/scalar.js", Call::default()).await;
    assert!(script.status == 200 && script.bytes.len() > 1_000_000);
    let document = client.send_to("GET", "/openapi.json", Call::default()).await;
    assert_eq!(document.body["openapi"], "3.1.0");
}
