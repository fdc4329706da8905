//! Institutions of UMA that we did not write, and one of ours: each a process with a domain on the
//! loopback address.
//!
//! [`Peer`] runs `uma_peer.py` or `uma_peer.mjs`, whose first lines say how they are steered;
//! [`Ours`] is a server with one customer, Alice, who has money.

mod ours;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::recorder::{http, within_deadline};
use testbed::{packages, ports};

pub use self::ours::{FUNDED, Ours};

/// Longer than a peer waits for anybody.
const WITHIN: Duration = Duration::from_secs(60);

/// The folder of the peers' scripts.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers");

/// A peer that runs until it is dropped.
pub struct Peer {
    pub domain: String,
    http: reqwest::Client,
    process: Child,
    _script: Option<TempDir>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The folder in which `cargo xtask install` keeps packages.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

impl Peer {
    /// One on the Python SDK.
    pub async fn python() -> Self {
        let mut command = packages::python(target()).unwrap();
        command.arg(Path::new(SCRIPTS).join("uma_peer.py"));
        Self::start(command, None, &[]).await
    }

    /// One on the JavaScript SDK. `helper` makes its certificate and its invoices.
    pub async fn javascript(helper: &Self) -> Self {
        let mut command = packages::node(target()).unwrap();
        // Node looks for packages from the script's own folder upwards.
        let folder = tempfile::tempdir_in(packages::node_folder(target())).unwrap();
        let script = folder.path().join("uma_peer.mjs");
        std::fs::copy(Path::new(SCRIPTS).join("uma_peer.mjs"), &script).unwrap();
        command.arg(script);
        Self::start(command, Some(folder), &[&helper.domain]).await
    }

    async fn start(mut command: Command, script: Option<TempDir>, more: &[&str]) -> Self {
        let port = ports::free().unwrap();
        command.arg(port.to_string()).args(more);
        // A proxy of this machine has no business between processes on it.
        command.env("NO_PROXY", "127.0.0.1").env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().unwrap();
        let domain = format!("127.0.0.1:{port}");
        let mut peer = Self { domain, http: http(WITHIN).unwrap(), process, _script: script };
        peer.ready().await;
        peer
    }

    async fn ready(&mut self) {
        let url = format!("http://{}/.well-known/uma-configuration", self.domain);
        let is_ready = async || {
            if let Some(status) = self.process.try_wait()? {
                anyhow::bail!("the peer has ended with {status}: are its packages installed?");
            }
            let answer = self.http.get(&url).send().await;
            Ok(answer.is_ok_and(|answer| answer.status().is_success()))
        };
        within_deadline("the peer answers", is_ready).await.unwrap();
    }

    /// The address of one of its customers.
    pub fn address(&self, user: &str) -> String {
        format!("${user}@{}", self.domain)
    }

    async fn control(&self, what: &str, order: &Value) -> Value {
        let url = format!("http://{}/control/{what}", self.domain);
        let answer = self.http.post(url).json(order).send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "{what} {order}: {body}");
        body
    }

    /// Makes it behave so from now on.
    pub async fn behave(&self, behaviour: Value) {
        self.control("behave", &behaviour).await;
    }

    /// Lets it pay, or try to.
    pub async fn pay(&self, order: &Value) -> Report {
        Report(self.control("pay", order).await)
    }

    /// Gives it new keys, of which others know nothing.
    pub async fn rotate_keys(&self) {
        self.control("rotate", &json!({})).await;
    }

    /// Lets it send a signed post-transaction callback.
    pub async fn post_transaction(&self, url: &str) -> Value {
        self.control("post-transaction", &json!({ "url": url })).await
    }

    /// The requests of one kind that came to it, oldest first.
    pub async fn seen(&self, kind: &str) -> Vec<Value> {
        let url = format!("http://{}/control/seen", self.domain);
        let seen: Value = self.http.get(url).send().await.unwrap().json().await.unwrap();
        let seen = seen.as_array().unwrap().iter();
        seen.filter(|entry| entry["kind"] == kind).cloned().collect()
    }

    /// The last request of one kind, once there is one, whose signature it must have verified.
    pub async fn wait_for(&self, kind: &str) -> Value {
        let has_come = async || Ok(!self.seen(kind).await.is_empty());
        within_deadline("the peer's request", has_come).await.unwrap();
        self.last_verified(kind).await
    }

    /// The last request of one kind, whose signature it must have verified.
    pub async fn last_verified(&self, kind: &str) -> Value {
        let seen = self.seen(kind).await;
        let last = seen.last().unwrap_or_else(|| panic!("no {kind} has come")).clone();
        assert_eq!(last["verified"], true, "{last}");
        last
    }
}

/// A peer's account of a payment that it made.
#[derive(Debug)]
pub struct Report(pub Value);

impl Report {
    /// The last answer to a step, `lookups` or `payRequests`: its status and its body.
    pub fn last(&self, step: &str) -> (u64, &Value) {
        let answers = self.0[step].as_array().unwrap();
        let last = answers.last().unwrap_or_else(|| panic!("no answers in {}", self.0));
        (last["status"].as_u64().unwrap(), &last["body"])
    }

    /// The callback of the answer to the lookup.
    pub fn callback(&self) -> &str {
        self.last("lookups").1["callback"].as_str().unwrap()
    }

    /// The answer to the pay request, if everything that we have signed was verified.
    pub fn paid(&self) -> &Value {
        let (status, body) = self.last("payRequests");
        assert_eq!(status, 200, "{}", self.0);
        assert_eq!(self.0["lookupVerified"], "OK", "{}", self.0);
        assert_eq!(self.0["payRequestVerified"], "OK", "{}", self.0);
        body
    }

    /// Checks that the last answer to a step is a refusal of UMA with this status and code.
    pub fn refused(&self, step: &str, status: u64, code: &str) {
        let (found, body) = self.last(step);
        assert_eq!((found, &body["code"]), (status, &json!(code)), "{}", self.0);
        assert_eq!(body["status"], "ERROR", "{body}");
        assert!(body["reason"].is_string(), "{body}");
    }
}
