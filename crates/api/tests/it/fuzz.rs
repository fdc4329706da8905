//! Requests that no client would write: sound ones with some bytes changed, and any bytes at all.
//! Each target runs for a second among the tests, and for as long as `BOLERO_RANDOM_TEST_TIME_MS`
//! says in `cargo xtask fuzz`. A finding becomes a test of its own beside the others of its
//! resource.
//!
//! No answer may be a failure of ours, or leave the document (every answer is checked against it);
//! a refusal is in the one shape and in words of the API.

use std::panic::RefUnwindSafe;

use axum::http::Uri;
use bolero::{TypeGenerator, check};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::pay::{Payer, from, sending, to, transfer};
use crate::support::{Answer, Call, Client, Server, text, usd_external};

/// One change of a text.
#[derive(Debug, Clone, TypeGenerator)]
enum Edit {
    /// Some bytes go, and others come in their place.
    Splice { at: u16, gone: u8, bytes: Vec<u8> },
    /// A word of the format comes in.
    Word { at: u16, gone: u8, word: u8 },
    /// What stands behind is cut off.
    Cut { at: u16 },
    /// A part stands twice.
    Repeat { at: u16, length: u8 },
}

/// Words that mean something in JSON, in a query, in a table, or in a header.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "null",
    "true",
    "0",
    "-1",
    "1e3",
    "100.0",
    "0.5",
    "-0.0",
    "9223372036854775807",
    "9223372036854775808",
    "1e400",
    "\\u0000",
    "\\ud800",
    "\\n",
    "\u{feff}",
    "\u{202e}",
    "\u{200d}",
    "&",
    "=",
    "%",
    "%00",
    "%ff",
    "+",
    ";",
    "\r\n",
    "\"\"",
    "\t",
    "$",
    "@",
    "Basic ",
    "..",
    "limit=",
    "cursor=",
    "1969-12-31T23:59:59Z",
    "9999-12-31T23:59:59Z",
    "=1+1",
];

impl Edit {
    /// Makes the change, wherever it falls.
    fn make(&self, text: &mut Vec<u8>) {
        let start = |at: u16| usize::from(at) % (text.len() + 1);
        let end = |start: usize, length: u8| (start + usize::from(length)).min(text.len());
        match self {
            Self::Splice { at, gone, bytes } => {
                let start = start(*at);
                text.splice(start..end(start, *gone), bytes.iter().copied());
            }
            Self::Word { at, gone, word } => {
                let start = start(*at);
                let word = WORDS[usize::from(*word) % WORDS.len()];
                text.splice(start..end(start, *gone % 16), word.bytes());
            }
            Self::Cut { at } => text.truncate(start(*at)),
            Self::Repeat { at, length } => {
                let start = start(*at);
                let part = text[start..end(start, *length)].to_vec();
                text.splice(start..start, part);
            }
        }
    }
}

/// One of some texts, and what is changed in it.
#[derive(Debug, Clone, TypeGenerator)]
struct Changed {
    which: u8,
    edits: Vec<Edit>,
}

/// Changes of a text at most: what has more is as good as any bytes.
const EDITS_MAX: usize = 6;

impl Changed {
    fn pick<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[usize::from(self.which) % all.len()]
    }

    fn of(&self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        for edit in self.edits.iter().take(EDITS_MAX) {
            edit.make(&mut text);
        }
        text
    }

    /// Changed, with all that cannot stand in the head of a request left out.
    fn in_a_head(&self, text: &str) -> String {
        let text = self.of(text.as_bytes());
        let text = String::from_utf8_lossy(&text);
        text.chars().filter(|it| ('\u{20}'..'\u{7f}').contains(it)).collect()
    }
}

/// A server with something of everything, and who asks it.
struct World {
    runtime: Runtime,
    server: Server,
    client: Client,
    anonymous: Client,
    customer: String,
    usd: String,
    bank: String,
}

// A failure ends the run: a world that was left half-way is of no use.
impl RefUnwindSafe for World {}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (server, payer, bank) = runtime.block_on(async {
            let server = Server::new();
            let payer = Payer::with(&server, 1_000_000_000).await;
            let bank = payer.bank("789").await;
            (server, payer, bank)
        });
        let Payer { client, customer, usd } = payer;
        let anonymous = server.anonymous();
        Self { runtime, server, client, anonymous, customer, usd, bank }
    }

    /// Sends a request that may be anything, if it can be sent at all.
    fn ask(&self, method: &str, path: &str, call: Call) -> Option<Answer> {
        path.parse::<Uri>().ok()?;
        let sent =
            [percent_decode_str(path).decode_utf8_lossy().into_owned(), call.text()].concat();
        let sent = sent.to_lowercase();
        let answer = self.runtime.block_on(self.client.send(method, path, call));
        let Answer { status, body, .. } = &answer;
        assert!(*status < 500, "{method} {path}: {status} {body}");
        if *status >= 400 && !answer.bytes.is_empty() {
            assert_eq!(body["status"], *status, "{method} {path}: {body}");
            let message = body["message"].as_str().expect("a message").to_owned();
            assert!(!message.is_empty() && body["code"].is_string(), "{body}");
            for foreign in ["line 1 column", "invalid type", "i64", "expected", "EOF", "serde"] {
                let said = body["details"]["errors"].to_string();
                let is_foreign = message.contains(foreign) || said.contains(foreign);
                // A refusal repeats the value that was sent.
                let is_ours = is_foreign && !sent.contains(&foreign.to_lowercase());
                assert!(!is_ours, "{method} {path}: {foreign}: {body}");
            }
        }
        Some(answer)
    }

    /// Sound bodies, and where they go.
    fn bodies(&self) -> Vec<(&'static str, String, Value)> {
        let person = json!({
            "customerType": "INDIVIDUAL",
            "fullName": "Ada Lovelace",
            "birthDate": "1985-12-10",
            "nationality": "GB",
            "address": { "line1": "1 High St", "postalCode": "N1", "country": "GB" },
        });
        let business = json!({
            "customerType": "BUSINESS",
            "platformCustomerId": "works",
            "businessInfo": { "legalName": "Works Ltd", "taxId": "12-3456789" },
            "beneficialOwners": [{ "fullName": "Ada", "individualType": "DIRECTOR" }],
        });
        let invitation = json!({
            "inviterUma": "$ada@uma.test",
            "amountToSend": 100,
            "expiresAt": "2030-01-01T00:00:00Z",
        });
        let config = json!({
            "webhookEndpoint": "https://hooks.test/",
            "supportedCurrencies": [{ "currencyCode": "USD", "minAmount": 1, "maxAmount": 9 }],
        });
        let receive = json!({
            "senderUmaAddress": "$success.usd@sandbox.uma.money",
            "receivingCurrencyCode": "USD",
            "receivingCurrencyAmount": 100,
            "customerId": self.customer,
        });
        let token = json!({ "name": "another", "permissions": ["VIEW"] });
        let change = json!({ "customerType": "INDIVIDUAL", "fullName": "Ada" });
        let quote = sending(&from(&self.usd), &to(&self.bank), 100);
        let external = usd_external(Some(&self.customer), "789");
        let fund = format!("/sandbox/internal-accounts/{}/fund", self.usd);
        vec![
            ("POST", "/customers".to_owned(), person),
            ("POST", "/customers".to_owned(), business),
            ("PATCH", format!("/customers/{}", self.customer), change),
            ("POST", "/customers/external-accounts".to_owned(), external),
            ("POST", "/transfer-out".to_owned(), transfer(&self.usd, &self.bank, 1)),
            ("POST", "/quotes".to_owned(), quote),
            ("POST", "/tokens".to_owned(), token),
            ("POST", "/invitations".to_owned(), invitation),
            ("PATCH", "/config".to_owned(), config),
            ("POST", "/sandbox/uma/receive".to_owned(), receive),
            ("POST", fund, json!({ "amount": 1 })),
            ("POST", "/sandbox/clock".to_owned(), json!({ "advanceBySeconds": 1 })),
        ]
    }
}

#[test]
fn fuzz_bodies() {
    let world = World::new();
    let bodies = world.bodies();
    check!().with_type::<Changed>().for_each(|changed: &Changed| {
        let (method, path, body) = changed.pick(&bodies);
        let body = changed.of(body.to_string().as_bytes());
        world.ask(method, path, Call::raw(body).header("content-type", "application/json"));
    });
    world.server.verify();
}

#[test]
fn fuzz_queries() {
    let world = World::new();
    let queries = [
        "/transactions?limit=5&status=PENDING&startDate=2025-10-13T09:00:00Z&sortOrder=asc".into(),
        format!("/quotes?customerId={}&createdAfter=2025-10-13T09:00:00%2B00:00", world.customer),
        "/customers?isIncludingDeleted=true&customerType=INDIVIDUAL&umaAddress=%24ada@x.test"
            .into(),
        "/tokens?name=test&updatedBefore=2025-10-13T09:00:00Z&limit=100".into(),
        format!("/customers/internal-accounts?currency=USD&customerId={}", world.customer),
        "/platform/external-accounts?currency=USD".into(),
        "/exchange-rates?sourceCurrency=USD&destinationCurrency=EUR&sendingAmount=100".into(),
        format!("/receiver/external-account/{}?customerId={}", world.bank, world.customer),
        format!("/receiver/uma/%24success.usd@sandbox.uma.money?customerId={}", world.customer),
        "/events?type=TEST&start=latest&limit=1".into(),
        "/webhooks/deliveries?status=FAILED&type=TEST".into(),
        "/uma-providers?countryCode=US&hasBlockedProviders=false".into(),
    ];
    check!().with_type::<Changed>().for_each(|changed: &Changed| {
        let sound = changed.pick::<String>(&queries);
        let (path, query) = sound.split_once('?').expect("each has a query");
        let query = changed.in_a_head(query);
        world.ask("GET", &format!("{path}?{query}"), Call::default());
    });
}

#[test]
fn fuzz_cursors() {
    let world = World::new();
    let lists = ["/transactions", "/customers", "/events", "/customers/internal-accounts"];
    let cursors: Vec<_> = lists
        .iter()
        .filter_map(|path| {
            let first = world.ask("GET", &format!("{path}?limit=1"), Call::default())?;
            let cursor = first.body["nextCursor"].as_str()?.to_owned();
            Some((*path, cursor))
        })
        .collect();
    assert!(cursors.len() >= 2, "{cursors:?}");
    check!().with_type::<Changed>().for_each(|changed: &Changed| {
        let (path, cursor) = changed.pick(&cursors);
        let cursor = changed.in_a_head(cursor);
        world.ask("GET", &format!("{path}?limit=1&cursor={cursor}"), Call::default());
    });
}

#[test]
fn fuzz_headers() {
    let world = World::new();
    let transfer = transfer(&world.usd, &world.bank, 1).to_string();
    let headers = [
        ("idempotency-key", "\"9b2f0c1e-5a7d\""),
        ("content-type", "application/json; charset=utf-8"),
        ("x-request-id", "req-1"),
        ("accept-encoding", "gzip, br;q=0.5"),
        ("content-encoding", "identity"),
        ("if-none-match", "\"abc\""),
        ("authorization", "Basic YWRhOnNlY3JldA=="),
    ];
    check!().with_type::<Changed>().for_each(|changed: &Changed| {
        let (name, value) = *changed.pick(&headers);
        let call = Call::raw(transfer.clone()).header(name, changed.in_a_head(value));
        if name == "authorization" {
            let answer = world.anonymous.send("POST", "/transfer-out", call);
            let answer = world.runtime.block_on(answer);
            assert!(matches!(answer.status, 401 | 429), "{}", answer.body);
        } else {
            world.ask("POST", "/transfer-out", call);
        }
    });
    world.server.verify();
}

#[test]
fn fuzz_csv() {
    let world = World::new();
    let file = "umaAddress,platformCustomerId,customerType,fullName,birthDate,addressLine1,city,\
        state,postalCode,country,businessLegalName\r\n\
        $one@uma.test,one,INDIVIDUAL,Ada Lovelace,1985-12-10,\"1, High St\",London,LND,N1,GB,\r\n\
        $two@uma.test,two,BUSINESS,,,2 Side St,Berlin,BE,10115,DE,Works GmbH\r\n";
    check!().with_type::<Changed>().for_each(|changed: &Changed| {
        let head = "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"c.csv\"\r\n\
            content-type: text/csv\r\n\r\n";
        let content = changed.of(file.as_bytes());
        let body = [head.as_bytes(), &content, b"\r\n--edge--\r\n"].concat();
        let call = Call::raw(body).header("content-type", "multipart/form-data; boundary=edge");
        let Some(taken) = world.ask("POST", "/customers/bulk/csv", call) else { return };
        if taken.status != 202 {
            return;
        }
        world.runtime.block_on(world.server.pass(0));
        let path = format!("/customers/bulk/jobs/{}", text(&taken.body["jobId"]));
        let job = world.ask("GET", &path, Call::default()).expect("a path").body;
        let (status, progress) = (text(&job["status"]), &job["progress"]);
        assert!(["COMPLETED", "FAILED"].contains(&status.as_str()), "{job}");
        let count = |name: &str| progress[name].as_i64().expect("a count");
        if status == "COMPLETED" {
            assert_eq!(count("total"), count("successful") + count("failed"), "{job}");
        }
    });
    world.server.verify();
}
