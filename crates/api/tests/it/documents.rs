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

/// The page that says what this server does where the specification does not names a test for each
/// line of it.
#[test]
fn every_test_that_the_page_of_gaps_names_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/specification.md")).expect("a page");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for row in rows {
        let shown_by = row.trim_end_matches(" |").rsplit(" | ").next().expect("a column");
        let tests: Vec<_> = shown_by.split(", ").collect();
        for test in tests {
            let named = test.trim_matches('`').split_once("::");
            let (room, name) = named.unwrap_or_else(|| panic!("{test} names no test: {row}"));
            let source = std::fs::read_to_string(root.join(format!("tests/it/{room}.rs")));
            let source = source.unwrap_or_else(|error| panic!("{test}: {error}"));
            assert!(source.contains(&format!("fn {name}(")), "{test} is not there: {row}");
        }
    }
}
