//! What the server sends is found to be signed by those who receive it, and nothing else is.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod checked;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testbed::instance::Installation;
use testbed::receiver::{Received, Receiver};
use testbed::recorder::{Api, Ask, Outcome};

use crate::checked::Cases;

/// The libraries accept what was signed up to five minutes ago; a second more is too old, and this
/// leaves time for the check to begin.
const YOUNG_SECONDS: u32 = 240;
const OLD_SECONDS: u32 = 301;

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
        let tried = self.post("/webhooks/test", key).await;
        assert_eq!(tried["response_status"], 200);
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
    // It gets an event that it was set.
    world.receiver.wait_for(1).await.unwrap();

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
    cases.add(
        "between, read by a receiver that knows only `s`",
        &between,
        &first,
        |case| {
            let value: Value =
                serde_json::from_str(case["headers"]["x-grid-signature"].as_str().unwrap())
                    .unwrap();
            case["headers"]["x-grid-signature"] =
                json!(json!({ "v": value["v"], "s": value["s"] }).to_string());
        },
        good,
    );
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

    cases.check();
}
