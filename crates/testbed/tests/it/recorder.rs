//! The recorder catches servers that lie: a check that finds nothing is worth what it can find.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testbed::recorder::{Api, Ask, Recorder};

/// Answers a request, given how many with its key came before; `None` hangs up.
type Script = fn(path: &str, before: usize) -> Option<(u16, Value)>;

/// Plays a server. Its thread ends with the process.
fn play(script: Script) -> (Api, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let keys = Arc::new(Mutex::new(Vec::new()));
    std::thread::spawn({
        let keys = Arc::clone(&keys);
        move || {
            for stream in listener.incoming() {
                // A client that hangs up early is its own affair.
                let _ = answer(stream.expect("a connection"), script, &keys);
            }
        }
    });
    (Api::new(&[base]).expect("a client"), keys)
}

fn answer(mut stream: TcpStream, script: Script, keys: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let (mut path, mut key, mut length) = (String::new(), String::new(), 0);
    for line in input.by_ref().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if path.is_empty() {
            line.split(' ').nth(1).expect("a path").clone_into(&mut path);
        } else if let Some((name, value)) = line.split_once(": ") {
            match name {
                "idempotency-key" => value.clone_into(&mut key),
                "content-length" => length = value.parse().expect("a length"),
                _ => {}
            }
        }
    }
    input.read_exact(&mut vec![0; length])?;
    let before = {
        let mut keys = keys.lock().expect("the lock");
        keys.push(key.clone());
        keys.iter().filter(|other| **other == key).count() - 1
    };
    let Some((status, body)) = script(&path, before) else { return Ok(()) };
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What an honest server that has nothing answers to all but payments.
fn empty(path: &str) -> (u16, Value) {
    let balance = if path.contains("currency=USD") { 100_000_000_000_i64 } else { 0 };
    let account = json!({ "id": "account", "balance": { "amount": balance } });
    (200, json!({ "id": "thing", "totalCount": 0, "data": [account] }))
}

/// The same with so many payments.
fn holding(path: &str, payments: usize) -> (u16, Value) {
    let (status, mut body) = empty(path);
    if path.contains("type=OUTGOING") {
        body["totalCount"] = json!(payments);
    }
    (status, body)
}

/// The answer to a transfer.
fn made(path: &str, id: usize) -> Option<(u16, Value)> {
    path.ends_with("/transfer-out").then(|| (201, json!({ "id": id })))
}

fn transfer() -> Ask {
    Ask { path: "/transfer-out".to_owned(), body: json!({}), key: "the key".to_owned() }
}

/// What is said of a server after one transfer was asked for so many times.
async fn check(script: Script, asks: usize) -> String {
    let (api, _) = play(script);
    let recorder = Recorder::set_up(api).await.expect("set up");
    for _ in 0..asks {
        if let Err(error) = recorder.ask(&transfer()).await {
            return error.to_string();
        }
    }
    match recorder.check().await {
        Ok(report) => report.to_string(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn an_honest_server_passes() {
    let said = check(|path, _| Some(empty(path)), 0).await;
    assert!(said.starts_with("asks 0 "), "{said}");
}

#[tokio::test]
async fn an_answer_that_changes_is_caught() {
    let said = check(|path, before| Some(made(path, before).unwrap_or(empty(path))), 2).await;
    assert_eq!(said, r#"two answers to the key: first 201 {"id":0}, then 201 {"id":1}"#);
}

#[tokio::test]
async fn a_change_that_is_lost_is_caught() {
    let said = check(|path, _| Some(made(path, 0).unwrap_or(empty(path))), 1).await;
    assert_eq!(said, "1 payments were made, 0 are there");
}

#[tokio::test]
async fn a_change_that_is_doubled_is_caught() {
    let said = check(|path, _| Some(made(path, 0).unwrap_or(holding(path, 2))), 1).await;
    assert_eq!(said, "1 payments were made, 2 are there");
}

#[tokio::test]
async fn money_that_did_not_move_is_caught() {
    let said = check(|path, _| Some(made(path, 0).unwrap_or(holding(path, 1))), 1).await;
    assert_eq!(said, "99999999993 USD minor units, not 100000000000");
}

#[tokio::test]
async fn what_has_no_answer_is_asked_again_with_the_same_key() {
    let (api, keys) = play(|path, before| match (path.ends_with("/transfer-out"), before) {
        (true, 0) => None,
        (true, 1) => Some((503, json!({}))),
        (true, _) => Some((400, json!({ "code": "INSUFFICIENT_BALANCE" }))),
        (false, _) => Some(empty(path)),
    });
    let recorder = Recorder::set_up(api).await.expect("set up");
    keys.lock().expect("the lock").clear();
    let (status, _) = recorder.ask(&transfer()).await.expect("an answer in the end");
    assert_eq!(status, 400);
    assert_eq!(*keys.lock().expect("the lock"), ["the key"; 3]);
    let report = recorder.check().await.expect("nothing was made");
    assert_eq!((report.lost, report.unavailable, report.unreached), (1, 1, 0));
}
