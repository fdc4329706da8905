//! What the server sends is checked with what its users have: the packages of Standard Webhooks of
//! PyPI and npm, Python's `cryptography` and Node's `crypto`, by the code of `docs/webhooks.md`.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::{Value, json};
use testbed::instance::Installation;
use testbed::packages;
use testbed::receiver::{Received, Receiver};
use testbed::recorder::{Api, Ask, Outcome};

/// The libraries accept what was signed up to five minutes ago; a second more is too old, and this
/// leaves time for the check to begin.
const YOUNG_SECONDS: u32 = 240;
const OLD_SECONDS: u32 = 301;

/// Runs the page's Python on cases, and prints what it says about each.
const PYTHON: &str = r#"
import datetime, sys

said = {}
for case in json.load(sys.stdin):
    body, headers, keys = base64.b64decode(case["body"]), case["headers"], case["keys"]
    if "age" in case:
        sent = datetime.datetime.now(datetime.timezone.utc)
        sent = sent.replace(microsecond=0) - datetime.timedelta(seconds=case["age"])
        headers["webhook-timestamp"] = str(int(sent.timestamp()))
        signed = Webhook(keys["secret"]).sign(headers["webhook-id"], sent, body.decode())
        headers["webhook-signature"] = signed
    said[case["name"]] = [is_standard(body, headers, keys), is_ecdsa(body, headers, keys)]
print(json.dumps(said))
"#;

/// The same in JavaScript.
const NODE: &str = r#"
import { readFileSync } from "node:fs";

const said = {};
for (const { name, body: text, headers, keys, age } of JSON.parse(readFileSync(0))) {
  const body = Buffer.from(text, "base64");
  if (age !== undefined) {
    const sent = new Date((Math.floor(Date.now() / 1000) - age) * 1000);
    headers["webhook-timestamp"] = String(sent.getTime() / 1000);
    headers["webhook-signature"] = new Webhook(keys.secret).sign(headers["webhook-id"], sent, body);
  }
  said[name] = [isStandard(body, headers, keys), isEcdsa(body, headers, keys)];
}
console.log(JSON.stringify(said));
"#;

/// The code of the page in one language.
fn code(language: &str) -> String {
    let page = include_str!("../../../docs/webhooks.md");
    let block = Regex::new(&format!(r"(?ms)^```{language}\n(.*?)^```$")).unwrap();
    let blocks: Vec<_> = block.captures_iter(page).map(|found| found[1].to_owned()).collect();
    assert!(!blocks.is_empty(), "the page has no {language}");
    blocks.concat()
}

/// What a script says about the cases: of each, whether its two signatures are good.
fn said(mut command: Command, script: &Path, cases: &Path) -> BTreeMap<String, (bool, bool)> {
    let input = std::fs::File::open(cases).unwrap();
    let output = command.arg(script).stdin(input).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    let said: BTreeMap<String, [bool; 2]> = serde_json::from_slice(&output.stdout).unwrap();
    said.into_iter().map(|(name, [standard, ecdsa])| (name, (standard, ecdsa))).collect()
}

/// Deliveries, each with the keys of whoever checks it and what must come of it.
#[derive(Default)]
struct Cases {
    given: Vec<Value>,
    expected: BTreeMap<String, (bool, bool)>,
}

impl Cases {
    /// A delivery with a change, and what must be said about its signatures: that of Standard
    /// Webhooks, and the other one.
    fn add(
        &mut self,
        name: &str,
        received: &Received,
        keys: &Value,
        change: impl FnOnce(&mut Value),
        expected: (bool, bool),
    ) {
        let headers: BTreeMap<_, _> = received
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let body = STANDARD.encode(&received.body);
        let mut case = json!({ "name": name, "headers": headers, "body": body, "keys": keys });
        change(&mut case);
        self.given.push(case);
        assert_eq!(self.expected.insert(name.to_owned(), expected), None, "{name} is there twice");
    }
}

/// A client of the server, and the receiver that its platform has set.
struct World {
    api: Api,
    receiver: Receiver,
}

impl World {
    async fn post(&self, path: &str, key: &str) -> Value {
        let (path, key) = (path.to_owned(), key.to_owned());
        let said = self.api.ask(&Ask { path, body: json!({}), key }).await;
        let Outcome::Known((200, bytes)) = said else { panic!("{said:?}") };
        serde_json::from_slice(&bytes).unwrap()
    }

    /// An event that was delivered just now.
    async fn delivery(&self, key: &str) -> Received {
        self.receiver.take();
        let told = self.post("/webhooks/test", key).await;
        assert_eq!(told["response_status"], 200);
        self.receiver.wait_for(1).await.unwrap().remove(0)
    }
}

/// `body` with one change of its bytes.
fn changed(case: &mut Value, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let body = STANDARD.decode(case["body"].as_str().unwrap()).unwrap();
    case["body"] = json!(STANDARD.encode(change(body)));
}

#[tokio::test]
async fn users_find_deliveries_signed_and_everything_else_not() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", folder.path().join("signatures.db").display());
    let server = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database).start().unwrap();
    let api = Api::new(&[server.base()]).unwrap();
    api.ready().await.unwrap();
    let world = World { api, receiver: Receiver::start().unwrap() };
    let endpoint = json!({ "webhookEndpoint": world.receiver.url("/hooks") });
    world.api.change("/config", endpoint).await.unwrap();

    let first = world.api.get("/webhooks/keys").await.unwrap();
    let early = world.delivery("early").await;
    let second = world.post("/webhooks/keys/rotate", "rotate").await;
    let between = world.delivery("between").await;
    let third = world.post("/webhooks/keys/rotate", "rotate again").await;
    let late = world.delivery("late").await;
    // What a receiver has that does not know of the keys before.
    let alone = |keys: &Value| json!({ "secret": keys["secret"], "publicKey": keys["publicKey"] });

    let (good, bad) = ((true, true), (false, false));
    let mut cases = Cases::default();
    cases.add("as it came", &early, &first, |_| (), good);
    cases.add("between, with all keys", &between, &second, |_| (), good);
    cases.add("between, with the old keys", &between, &first, |_| (), good);
    cases.add("between, with the new keys", &between, &alone(&second), |_| (), good);
    cases.add("early, with the keys after it", &early, &second, |_| (), good);
    cases.add("early, with the newest alone", &early, &alone(&second), |_| (), bad);
    cases.add("late, with keys that were replaced twice", &late, &first, |_| (), bad);
    cases.add("late, with all keys", &late, &third, |_| (), good);
    let flip = |case: &mut Value| {
        changed(case, |mut body| {
            // Still text: the libraries read it as such.
            *body.last_mut().unwrap() ^= 1;
            body
        });
    };
    cases.add("a bit is another", &early, &first, flip, bad);
    let written_again = |case: &mut Value| {
        changed(case, |body| {
            let value: Value = serde_json::from_slice(&body).unwrap();
            serde_json::to_vec_pretty(&value).unwrap()
        });
    };
    cases.add("parsed and written again", &early, &first, written_again, bad);
    // The body alone is what the other signature covers.
    let body_only = (false, true);
    let set = |name: &'static str, value: String| {
        move |case: &mut Value| case["headers"][name] = json!(value)
    };
    let id = between.header("webhook-id").to_owned();
    cases.add("another id", &early, &first, set("webhook-id", id), body_only);
    let timestamp: u64 = early.header("webhook-timestamp").parse().unwrap();
    let timestamp = set("webhook-timestamp", (timestamp - 1).to_string());
    cases.add("another time", &early, &first, timestamp, body_only);
    let signature = set("webhook-signature", "v1a,AAAA".to_owned());
    cases.add("another kind of signature", &early, &first, signature, body_only);
    let aged = |seconds: u32| move |case: &mut Value| case["age"] = json!(seconds);
    cases.add("some minutes ago", &early, &first, aged(YOUNG_SECONDS), good);
    cases.add("too long ago", &early, &first, aged(OLD_SECONDS), body_only);
    let other = set("x-grid-signature", between.header("x-grid-signature").to_owned());
    cases.add("another body's signature", &early, &first, other, (true, false));

    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let file = folder.path().join("cases.json");
    std::fs::write(&file, serde_json::to_vec(&cases.given).unwrap()).unwrap();
    let python = folder.path().join("check.py");
    std::fs::write(&python, code("python") + PYTHON).unwrap();
    assert_eq!(said(packages::python(target).unwrap(), &python, &file), cases.expected);
    // Node looks for packages from the script's own folder upwards.
    let command = packages::node(target).unwrap();
    let beside = tempfile::tempdir_in(packages::node_folder(target)).unwrap();
    let node = beside.path().join("check.mjs");
    std::fs::write(&node, code("js") + NODE).unwrap();
    assert_eq!(said(command, &node, &file), cases.expected);
}
