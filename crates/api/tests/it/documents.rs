//! Documents that are written from this crate (`cargo xtask docs`).

use expect_test::expect_file;

use sha2::Digest as _;

use crate::support::{Call, Server, decoded};

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

/// The addresses of the scripts that a page loads.
fn scripts(page: &str) -> Vec<String> {
    let address = |rest: &str| rest.split('"').next().expect("an address").to_owned();
    page.split("<script src=\"").skip(1).map(address).collect()
}

#[tokio::test]
async fn the_page_to_read_the_document_needs_nothing_from_elsewhere() {
    let client = Server::new().anonymous();
    let page = client.send_to("GET", "/docs", Call::default()).await;
    let text = String::from_utf8(page.bytes).expect("text");
    assert!(
        text.contains("<html lang=\"en\">") && text.contains("<title>Switchyard API"),
        "{text}"
    );
    assert!(!text.contains("http"), "{text}");
    // Whatever the script tries, the browser lets it reach this server only.
    let policy = page.headers["content-security-policy"].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(!policy.contains("http"), "{policy}");
    assert_eq!(page.headers["referrer-policy"], "no-referrer");
    let document = client.send_to("GET", "/openapi.json", Call::default()).await;
    assert_eq!(document.body["openapi"], "3.1.0");
    let guide = document.body["info"]["description"].as_str().expect("a description");
    assert!(guide.contains("## Getting started") && guide.contains("## Webhooks"), "{guide}");
}

#[tokio::test]
async fn scripts_of_the_page_are_small_on_their_way_and_kept_for_good() {
    let client = Server::new().anonymous();
    let page = client.send_to("GET", "/docs", Call::default()).await;
    let scripts = scripts(&String::from_utf8(page.bytes).expect("text"));
    assert!(scripts.len() == 2 && scripts[0].contains("scalar"), "{scripts:?}");
    for script in scripts {
        let plain = client.send_to("GET", &script, Call::default()).await;
        assert_eq!(plain.bytes.len() > 1_000_000, script.contains("scalar"), "{script}");
        let header = |name: &str| plain.headers[name].to_str().expect("text").to_owned();
        assert_eq!(header("cache-control"), "public, max-age=31536000, immutable");
        assert_eq!(header("content-type"), "text/javascript; charset=utf-8");
        assert_eq!(plain.headers.get("content-encoding"), None);
        let hash = hex::encode(sha2::Sha256::digest(&plain.bytes));
        assert!(script.ends_with(&format!("-{}.js", &hash[..16])), "{script}: {hash}");
        for encoding in ["gzip", "br"] {
            let call = Call::default().header("accept-encoding", encoding);
            let compressed = client.send_to("GET", &script, call).await;
            assert!(decoded(&compressed.headers, &compressed.bytes) == plain.bytes, "{script}");
            if plain.bytes.len() > 1_000 {
                assert_eq!(compressed.headers["content-encoding"], encoding);
                assert_eq!(compressed.headers["vary"], "accept-encoding");
                // What is short has little to leave out.
                let parts = if script.contains("scalar") { 2 } else { 1 };
                assert!(compressed.bytes.len() * parts < plain.bytes.len(), "{script}: {encoding}");
            }
        }
        let other = script.replace('-', "-0");
        client.send_to("GET", &other, Call::default()).await.refused(404, "NOT_FOUND");
    }
}

#[tokio::test]
async fn the_document_is_sent_once_to_those_who_keep_it() {
    let client = Server::new().anonymous();
    let get = async |tag: Option<&str>, encoding: &str| {
        let mut call = Call::default().header("accept-encoding", encoding);
        if let Some(tag) = tag {
            call = call.header("if-none-match", tag);
        }
        client.send_to("GET", "/openapi.json", call).await
    };
    let first = get(None, "identity").await;
    let tag = first.headers["etag"].to_str().expect("text").to_owned();
    assert_eq!(first.headers["cache-control"], "no-cache");
    let strong = tag.strip_prefix("W/").expect("it holds for every encoding");
    for encoding in ["identity", "gzip", "br"] {
        assert_eq!(get(None, encoding).await.headers["etag"], tag.as_str());
        let several = format!("\"x\", {tag} , \"y\"");
        for known in [&*tag, strong, "*", several.as_str()] {
            let again = get(Some(known), encoding).await;
            assert_eq!((again.status, again.bytes.len()), (304, 0), "{known}");
            assert_eq!(again.headers["etag"], tag.as_str());
            assert_eq!(again.headers.get("content-encoding"), None);
        }
        for other in ["\"x\"", "W/\"\"", "", "x", &tag[..tag.len() - 1]] {
            let again = get(Some(other), encoding).await;
            assert_eq!((again.status, &again.body), (200, &first.body), "{other}");
        }
    }
}

/// Generators that know no section of events get a document without it, and nothing else is
/// different.
#[tokio::test]
async fn the_document_is_sent_without_webhooks_to_those_who_ask() {
    let client = Server::new().anonymous();
    let get = async |path: &str| client.send_to("GET", path, Call::default()).await;
    let whole = get("/openapi.json").await;
    let mut expected = whole.body.clone();
    expected.as_object_mut().expect("a document").remove("webhooks").expect("it has events");
    let tags = expected["tags"].as_array_mut().expect("sections");
    tags.retain(|tag| tag["name"] != "Webhook events");
    let without = get("/openapi.json?webhooks=false").await;
    assert_eq!(without.expect(200), &expected);
    assert_ne!(without.headers["etag"], whole.headers["etag"]);
    assert_eq!(get("/openapi.json?webhooks=true").await.body, whole.body);
}

#[tokio::test]
async fn the_root_leads_people_to_the_page_and_programs_to_the_addresses() {
    let client = Server::new().anonymous();
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
    for (accept, is_led) in [
        (browser, true),
        ("text/html", true),
        ("application/json;q=0.9, text/html", true),
        ("*/*", false),
        ("application/json", false),
        ("application/json, text/html;q=0.9", false),
        ("text/html;q=0", false),
        ("text/plain", false),
        ("", false),
    ] {
        let call = Call::default().header("accept", accept);
        let answer = client.send_to("GET", "/", call).await;
        assert_eq!(answer.headers["vary"], "accept", "{accept}");
        if is_led {
            assert_eq!(answer.status, 303, "{accept}");
            assert_eq!(answer.headers["location"], "/docs");
        } else {
            let body = answer.expect(200);
            assert_eq!(body["api"], format!("https://pay.test/{}", api::VERSION));
            assert_eq!(body["openapi"], "https://pay.test/openapi.json");
            assert_eq!(body["documentation"], "https://pay.test/docs");
        }
    }
    let bare = client.send_to("GET", "/", Call::default()).await;
    assert_eq!(bare.expect(200)["name"], "Switchyard");
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
