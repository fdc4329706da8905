//! Every page in a browser: `axe-core` finds nothing serious, nothing is asked of another host, and
//! no script fails, on a desk and on a telephone, in light and in dark.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use domain::platform::Mode;
use serde::Deserialize;
use serde_json::{Value, json};
use testbed::packages;

use crate::support::{Call, Client, Server, text};

/// Goes through pages in Chromium.
const SCRIPT: &str = include_str!("browser.mjs");

/// Names a folder for pictures of the pages, for people who change them.
const SHOTS_VARIABLE: &str = "SWITCHYARD_SCREENSHOTS";

/// What the script says about a page.
#[derive(Debug, Deserialize)]
struct Seen {
    title: String,
    wrong: Vec<String>,
}

/// The path of a link.
fn path(url: &Value) -> String {
    text(url).strip_prefix("https://pay.test").expect("our address").to_owned()
}

impl Client {
    async fn page_of_check(&self, name: &str) -> String {
        let made = self.get(&format!("/customers/kyc-link?platformCustomerId={name}")).await;
        path(&made.expect(200)["kycUrl"])
    }

    async fn page_of_invitation(&self, parts: Value) -> (String, String) {
        let customer = self.customer().await;
        let mut body = json!({ "inviterUma": self.uma_address(&customer).await });
        for (name, value) in parts.as_object().expect("an object") {
            body[name] = value.clone();
        }
        let made = self.post("/invitations", &body).await.expect(201).clone();
        (path(&made["url"]), text(&made["code"]))
    }
}

/// Every page in every state that a link leads to.
async fn pages(server: &Server, tester: &Client) -> Vec<Value> {
    let live = server.platform_with(Mode::Live, true).await;
    let business = json!({
        "customerType": "BUSINESS", "kybStatus": "PENDING_REVIEW", "platformCustomerId": "firm",
        "businessInfo": { "legalName": "Analytische Maschinen GmbH" },
    });
    tester.post("/customers", &business).await.expect(201);
    let used = tester.page_of_check("used").await;
    let form = Call::raw("outcome=approved&fullName=Ada")
        .header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(server.anonymous().send_to("POST", &used, form).await.status, 200);
    let parts = json!({
        "firstName": "Ada", "amountToSend": 123_456, "expiresAt": "2025-11-01T10:00:00Z",
    });
    let (open, _) = tester.page_of_invitation(parts).await;
    let (cancelled, code) = tester.page_of_invitation(json!({})).await;
    tester.send("POST", &format!("/invitations/{code}/cancel"), Call::default()).await.expect(200);
    let page = |name: &str, path: String| json!({ "name": name, "path": path });
    vec![
        json!({ "name": "docs", "path": "/docs", "isApp": true }),
        page("check of a tester", tester.page_of_check("ada").await),
        page("check of a person", live.page_of_check("ada").await),
        page("check of a business", tester.page_of_check("firm").await),
        json!({ "name": "check with mistakes", "path": tester.page_of_check("bo").await,
            "form": { "birthDate": "", "line1": "1 High Street" } }),
        page("check that is over", used),
        page("invitation", open),
        page("invitation that is over", cancelled),
        page("no invitation", "/i/aaaaaaaaaaaaaaaa".to_owned()),
        page("no check", "/kyc/aaaaaaaaaaaaaaaa".to_owned()),
    ]
}

/// What the script says about pages at an address.
fn look(input: &Value) -> BTreeMap<String, Seen> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder");
    let mut command = packages::node(target).expect("Node with our packages");
    // Node looks for packages from the script's own folder upwards.
    let folder = tempfile::tempdir_in(packages::node_folder(target)).expect("a folder");
    let script = folder.path().join("browser.mjs");
    std::fs::write(&script, SCRIPT).expect("a file");
    let command = command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = command.spawn().expect("Node");
    let bytes = serde_json::to_vec(input).expect("JSON");
    node.stdin.take().expect("it was piped").write_all(&bytes).expect("it reads");
    let output = node.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).expect("a report")
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_can_use_the_pages() {
    let server = Server::new();
    let tester = server.platform().await;
    let pages = pages(&server, &tester).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let router = server.router();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let input = json!({
        "chromium": packages::chromium().expect("a browser"),
        "origin": origin,
        "credentials": tester.credentials(),
        "pages": pages,
        "shots": std::env::var(SHOTS_VARIABLE).ok(),
    });
    let seen = tokio::task::spawn_blocking(move || look(&input)).await.expect("a report");
    serving.abort();
    assert_eq!(seen.len(), 4 * pages.len());
    let wrong: BTreeMap<_, _> = seen.iter().filter(|(_, page)| !page.wrong.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (name, page) in &seen {
        assert_eq!(page.title == "Switchyard API", name.starts_with("docs"), "{name}");
    }
}
