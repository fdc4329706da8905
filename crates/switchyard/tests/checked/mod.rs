//! Deliveries are checked by the code of `docs/webhooks.md`, with what receivers have: the packages
//! of Standard Webhooks of PyPI and npm, Python's `cryptography` and Node's `crypto`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::{Value, json};
use testbed::packages;
use testbed::receiver::Received;

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
    let page = include_str!("../../../../docs/webhooks.md");
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

/// Deliveries, each with the keys of its checker and what must come of it.
#[derive(Default)]
pub struct Cases {
    given: Vec<Value>,
    expected: BTreeMap<String, (bool, bool)>,
}

impl Cases {
    /// A delivery with a change, and what must be said about its signatures: that of Standard
    /// Webhooks, and the other one.
    pub fn add(
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

    /// Lets both languages check them.
    pub fn check(&self) {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cases.json");
        std::fs::write(&file, serde_json::to_vec(&self.given).unwrap()).unwrap();
        let python = folder.path().join("check.py");
        std::fs::write(&python, code("python") + PYTHON).unwrap();
        assert_eq!(said(packages::python(target).unwrap(), &python, &file), self.expected);
        // Node looks for packages from the script's own folder upwards.
        let command = packages::node(target).unwrap();
        let beside = tempfile::tempdir_in(packages::node_folder(target)).unwrap();
        let node = beside.path().join("check.mjs");
        std::fs::write(&node, code("js") + NODE).unwrap();
        assert_eq!(said(command, &node, &file), self.expected);
    }
}
