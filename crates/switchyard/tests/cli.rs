//! The binary as its operator meets it: what it prints, when it refuses, how it ends.
//!
//! Every test starts real processes in a folder of its own and waits for what they say or answer,
//! never for a time.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::instance::without_variables;
use testbed::receiver::{Answer, Receiver};

/// Whatever should happen has happened by then, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at another process.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The design says 0.2 s; a test build on a busy machine gets ten times that.
const READY_WITHIN: Duration = Duration::from_secs(2);

const CLIENT_ID: &str = "given-client-id";
const CLIENT_SECRET: &str = "given-secret-0123456789abcdef";

#[expect(clippy::disallowed_methods, reason = "the test waits for another process")]
fn now() -> Instant {
    Instant::now()
}

/// What `look` finds, as soon as it finds it.
#[expect(clippy::disallowed_methods, reason = "the test waits for another process")]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

/// The binary in `folder`, without what the environment of the tests says.
fn switchyard(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchyard"));
    command.current_dir(folder).args(line.split_whitespace());
    without_variables(&mut command);
    command.env_remove("RUST_LOG");
    command
}

/// Runs a command to its end.
fn run(folder: &Path, line: &str) -> (i32, String, String) {
    finished(switchyard(folder, line).output().unwrap())
}

fn finished(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A command that is refused: one line on standard error, nothing on standard output.
fn check_refusal(mut command: Command, code: i32, part: &str) {
    let (exit, out, err) = finished(command.output().unwrap());
    assert_eq!((exit, out.as_str()), (code, ""), "{err}");
    let line = err.strip_suffix('\n').unwrap();
    assert!(line.starts_with("error: ") && !line.contains('\n') && line.contains(part), "{line}");
}

/// What a process has printed so far.
struct Printed {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Printed {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                kept.lock().unwrap().push_str(std::str::from_utf8(&bytes[..count]).unwrap());
            }
        });
        Self { text, reader }
    }

    fn so_far(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn all(self) -> String {
        self.reader.join().unwrap();
        Arc::try_unwrap(self.text).unwrap().into_inner().unwrap()
    }
}

/// A server on a port that the system has chosen.
struct Server {
    process: Option<Child>,
    out: Option<Printed>,
    err: Option<Printed>,
    /// `127.0.0.1:PORT`.
    address: String,
}

impl Server {
    fn start(folder: &Path) -> Self {
        Self::start_with(switchyard(folder, "--listen 127.0.0.1:0 --log-format json"))
    }

    /// A server whose log cannot be read, and whose address is therefore a given one.
    #[cfg(target_os = "linux")]
    fn start_unheard(folder: &Path) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = switchyard(folder, &format!("serve --listen {free}"));
        let mut process = command.stdout(Stdio::piped()).stderr(full).spawn().expect("it starts");
        let out = Printed::of(process.stdout.take().unwrap());
        let address = free.to_string();
        let server = Self { process: Some(process), out: Some(out), err: None, address };
        until("readiness", || (server.get("/readyz", None).ok()?.0 == 200).then_some(()));
        server
    }

    fn start_with_given_credentials(folder: &Path) -> Self {
        let mut command = switchyard(folder, "serve --listen 127.0.0.1:0 --log-format json");
        command.env("SWITCHYARD_CLIENT_ID", CLIENT_ID);
        command.env("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET);
        Self::start_with(command)
    }

    /// Starts the server and waits until it is ready.
    fn start_with(mut command: Command) -> Self {
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = Printed::of(process.stdout.take().unwrap());
        let err = Printed::of(process.stderr.take().unwrap());
        let address = until("the address in the log", || {
            assert!(process.try_wait().unwrap().is_none(), "it ended: {}", err.so_far());
            let log = err.so_far();
            let (_, rest) = log.split_once("\"base_url\":\"http://")?;
            let (address, _) = rest.split_once("/2025-10-13\"")?;
            Some(address.to_owned())
        });
        let server = Self { process: Some(process), out: Some(out), err: Some(err), address };
        until("readiness", || (server.get("/readyz", None).ok()?.0 == 200).then_some(()));
        server
    }

    fn get(&self, path: &str, user: Option<&str>) -> std::io::Result<(u16, String)> {
        request(&self.address, "GET", path, user, "")
    }

    fn post(&self, path: &str, user: &str, body: &str) -> (u16, String) {
        request(&self.address, "POST", path, Some(user), body).unwrap()
    }

    /// What stands behind `name` in the banner.
    fn printed(&self, name: &str) -> String {
        let find = || {
            let out = self.out.as_ref().unwrap().so_far();
            let line = out.lines().find_map(|line| line.trim().strip_prefix(name))?;
            // The lines to paste are the last to be printed.
            out.contains("/transactions/$TRANSACTION").then(|| line.trim().to_owned())
        };
        until(name, find)
    }

    /// The user that the banner shows, as `id:secret`.
    fn user(&self) -> String {
        format!("{}:{}", self.printed("client id"), self.printed("client secret"))
    }

    /// The lines of the banner that are to be pasted.
    fn lines(&self) -> String {
        self.printed("export SY=");
        let out = self.out.as_ref().unwrap().so_far();
        out[out.find("export SY=").unwrap()..].to_owned()
    }

    fn signal(&self, name: &str) {
        let process = self.process.as_ref().unwrap().id();
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status();
        assert!(sent.unwrap().success());
    }

    /// Exit code, standard output and standard error, after a signal.
    fn ended(mut self) -> (Option<i32>, String, String) {
        let mut process = self.process.take().unwrap();
        let status = until("the end of the server", || process.try_wait().unwrap());
        let log = self.err.take().map(Printed::all).unwrap_or_default();
        (status.code(), self.out.take().unwrap().all(), log)
    }

    /// Stops in order, and gives what was printed.
    fn stop(self) -> (String, String) {
        self.signal("TERM");
        let (code, out, err) = self.ended();
        assert_eq!(code, Some(0), "{err}");
        (out, err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn head(method: &str, path: &str, user: Option<&str>, body: &str) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    if let Some(user) = user {
        let user = base64::engine::general_purpose::STANDARD.encode(user);
        head += &format!("Authorization: Basic {user}\r\n");
    }
    if method == "POST" {
        head += "Content-Type: application/json\r\n";
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn request(
    address: &str,
    method: &str,
    path: &str,
    user: Option<&str>,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = connect(address)?;
    write!(stream, "{}\r\n{body}", head(method, path, user, body))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(parsed(&answer))
}

fn parsed(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Runs pasted lines in a shell and gives what they print.
fn paste(lines: &str, variables: &[(&str, &str)]) -> String {
    let mut shell = Command::new("sh");
    shell.arg("-ec").arg(lines).envs(variables.iter().copied()).env("NO_PROXY", "*");
    let (code, out, err) = finished(shell.output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    out
}

/// Whether the last line is a completed transaction from dollars to euros.
fn check_story(out: &str) {
    let last = out.trim_end().lines().last().unwrap();
    let transaction: Value = serde_json::from_str(last).expect("the last line is JSON");
    assert_eq!(transaction["status"], "COMPLETED", "{out}");
    assert_eq!(transaction["sentAmount"]["amount"], 100_000, "{out}");
    assert_eq!(transaction["receivedAmount"]["currency"]["code"], "EUR", "{out}");
}

#[test]
fn a_first_start_prints_credentials_once_and_never_again() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let (user, secret) = (server.user(), server.printed("client secret"));
    assert_eq!(server.get("/2025-10-13/config", Some(&user)).unwrap().0, 200);
    assert_eq!(server.get("/2025-10-13/config", Some("a:b")).unwrap().0, 401);
    let config = server.get("/2025-10-13/config", Some(&user)).unwrap().1;
    let domain = server.address.replace("127.0.0.1", "localhost");
    assert!(config.contains(&format!("\"umaDomain\":\"{domain}\"")), "{config}");
    let (_, err) = server.stop();
    assert!(!err.contains(&secret), "{err}");

    let again = Server::start(folder.path());
    assert_eq!(again.get("/2025-10-13/config", Some(&user)).unwrap().0, 200);
    let platform: Value = serde_json::from_str(&config).unwrap();
    let platform = platform["id"].as_str().unwrap();
    let (out, err) = again.stop();
    assert!(!out.contains(&secret) && !err.contains(&secret), "{out}{err}");
    // It says how to get others, and that works.
    let line = out.lines().find(|line| line.contains("token create")).unwrap();
    assert!(line.contains(platform) && out.contains("shown once"), "{out}");
    let line = line.trim().strip_prefix("switchyard ").unwrap();
    let (code, out, err) = run(folder.path(), line);
    assert_eq!(code, 0, "{out}{err}");
    let last = Server::start(folder.path());
    let word = |name: &str| {
        let line = out.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    let user = format!("{}:{}", word("client id"), word("client secret"));
    assert_eq!(last.get("/2025-10-13/config", Some(&user)).unwrap().0, 200);
}

#[test]
fn given_credentials_work_and_are_never_printed() {
    let folder = TempDir::new().unwrap();
    let server = Server::start_with_given_credentials(folder.path());
    let user = format!("{CLIENT_ID}:{CLIENT_SECRET}");
    assert_eq!(server.get("/2025-10-13/config", Some(&user)).unwrap().0, 200);
    let lines = server.lines();
    let variables =
        [("SWITCHYARD_CLIENT_ID", CLIENT_ID), ("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET)];
    check_story(&paste(&lines, &variables));
    let (out, err) = server.stop();
    for text in [out, err] {
        assert!(!text.contains(CLIENT_ID) && !text.contains(CLIENT_SECRET), "{text}");
    }
}

#[test]
fn the_printed_lines_move_money_when_pasted() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    check_story(&paste(&server.lines(), &[]));
}

#[test]
fn the_demo_tells_its_story() {
    let folder = TempDir::new().unwrap();
    let (code, out, err) = run(folder.path(), "demo");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let expected = "webhook-signature: good   X-Grid-Signature: good";
    for part in [
        "\"REJECTED\"",
        "Idempotent-Replayed: true",
        "\"senderUmaAddress\":\"$success.usd@sandbox.uma.money\"",
        "INCOMING_PAYMENT COMPLETED",
        expected,
        "there: POST /customers",
        "`switchyard demo --uma` shows every message",
        "Dr Ada USD",
        " 0 broken",
    ] {
        assert!(out.contains(part), "{part} is missing in\n{out}");
    }
    assert!(!out.contains("client secret"), "{out}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "it left something behind");
}

#[test]
fn the_demo_of_uma_shows_every_message() {
    let folder = TempDir::new().unwrap();
    let (code, out, err) = run(folder.path(), "demo --uma");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for part in [
        "Alder to Birch: lookup",
        "Birch to Alder: answer to the lookup",
        "Birch to Alder: key document",
        "Alder to Birch: pay request",
        "Birch to Alder: answer to the pay request",
        "Alder to Birch: settlement",
        "preimage: ",
        "Birch to Alder: settlement",
        "Dr Ada USD",
        "Dr Bo USD",
        "VERIFY: the database of Birch",
    ] {
        assert!(out.contains(part), "{part} is missing in\n{out}");
    }
    assert_eq!(out.matches(" 0 broken").count(), 2, "{out}");
    // Two payments, each seen from both ends.
    assert_eq!(out.matches("200 {\"id\":\"Transaction:").count(), 2, "{out}");
    assert!(!out.contains("client secret"), "{out}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "it left something behind");

    let said = for_programs(folder.path(), "demo --uma --keep story");
    assert_eq!((said.0, said.1[0]["institutions"].as_array().unwrap().len()), (0, 2));
    let (code, out, err) = run(folder.path(), "uma peers --database-url sqlite://story/alder.db");
    assert_eq!((code, out.contains("localhost:")), (0, true), "{out}{err}");
    check_refusal(switchyard(folder.path(), "demo --uma --keep story"), 2, "is there already");
}

#[test]
fn the_commands_of_the_page_on_uma_move_money_between_two_servers() {
    let page = include_str!("../../../docs/uma.md");
    let (_, trying) = page.split_once("\n## Trying it\n").unwrap();
    let blocks = trying.split("```sh\n").skip(1);
    let commands: String = blocks.map(|block| block.split("```").next().unwrap()).collect();
    let [first, second] = [(); 2].map(|()| testbed::ports::free().unwrap().to_string());
    let commands = commands.replace("8081", &first).replace("8082", &second);
    let binaries = Path::new(env!("CARGO_BIN_EXE_switchyard")).parent().unwrap();
    // Servers of a script that fails end with it, and one that hangs is stopped.
    let script = format!(
        "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\nPATH={}:$PATH\n{commands}",
        binaries.display()
    );
    let folder = TempDir::new().unwrap();
    let mut shell = Command::new("timeout");
    shell.arg(PATIENCE.as_secs().to_string()).args(["bash", "-ec", &script]);
    shell.current_dir(&folder);
    without_variables(&mut shell);
    let (code, out, err) = finished(shell.output().unwrap());
    assert_eq!(code, 0, "{out}{err}");
    let paid = out.lines().find(|line| line.starts_with("{\"data\":")).unwrap();
    let paid: Value = serde_json::from_str(paid).unwrap();
    assert_eq!(paid["data"][0]["status"], "COMPLETED", "{paid}");
    // The last exchange is the pay request, or already the notification of its end.
    let peers = out.lines().filter(|it| it.starts_with("localhost:") && it.contains("  OK  "));
    assert_eq!(peers.count(), 2, "{out}");
    assert_eq!(out.matches(" 0 broken").count(), 2, "{out}");
}

#[test]
fn verify_tells_a_sound_database_from_a_corrupted_one() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    paste(&server.lines(), &[]);
    let (code, out, err) = run(path, "verify");
    assert_eq!(code, 0, "beside the server: {out}{err}");
    server.stop();

    let (code, out, _) = run(path, "verify");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(" 0 broken, 0 skipped"), "{out}");
    let named = switchyard(path, "verify --key-file nowhere.key");
    check_refusal(named, 2, "there is no key at nowhere.key");
    let (key, elsewhere) = (path.join("switchyard.db.key"), path.join("elsewhere.key"));
    std::fs::rename(&key, &elsewhere).unwrap();
    let (code, out, _) = run(path, "verify");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains(" skipped (it needs the key)"), "{out}");
    std::fs::rename(&elsewhere, &key).unwrap();
    let mut wrong_key = switchyard(path, "verify");
    wrong_key.env("SWITCHYARD_SECRET_KEY", "ab".repeat(32));
    check_refusal(wrong_key, 2, "the key is not the one");
    check_refusal(switchyard(path, "verify --database-url sqlite://no.db"), 2, "no database at");

    let database = rusqlite::Connection::open(path.join("switchyard.db")).unwrap();
    let sql = "update ledger_accounts set credits_posted = credits_posted + 1 \
        where must_stay_covered = 1 and currency = 'EUR'";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    let (code, out, err) = run(path, "verify");
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    assert!(out.contains("L3") && out.contains("BROKEN"), "{out}");
    let (code, out, _) = run(path, "verify --json");
    assert_eq!(code, 1, "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["sound"], false);
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["predicate"] == "L3" && check["holds"] == false));
}

#[test]
fn the_journal_is_replayed_and_compared() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    paste(&server.lines(), &[]);
    let (code, out, err) = run(path, "verify --replay");
    assert_eq!(code, 0, "beside the server: {out}{err}");
    assert!(out.contains("J3") && out.contains(" 0 broken, 0 skipped"), "{out}");
    server.stop();
    let (key, elsewhere) = (path.join("switchyard.db.key"), path.join("elsewhere.key"));
    std::fs::rename(&key, &elsewhere).unwrap();
    check_refusal(switchyard(path, "verify --replay"), 2, "--replay needs the key");
    std::fs::rename(&elsewhere, &key).unwrap();
    // An edit has no seal of the server. Once it is taken back, all is well.
    let database = rusqlite::Connection::open(path.join("switchyard.db")).unwrap();
    let rename = |from: &str, to: &str| {
        let sql = "update platforms set name = replace(name, ?1, ?2)";
        assert_eq!(database.execute(sql, [from, to]).unwrap(), 1);
    };
    rename("a", "Other");
    let (code, out, _) = run(path, "verify");
    assert!(code == 1 && out.contains("\nS2: platforms "), "{out}");
    rename("Other", "a");
    assert_eq!(run(path, "verify").0, 0);
    // A row that is missing has no seal at all, and no other row knows of it.
    let gone = "delete from tokens where id = (select max(id) from tokens)";
    assert_eq!(database.execute(gone, []).unwrap(), 1);
    assert_eq!(run(path, "verify").0, 0);
    let (code, out, _) = run(path, "verify --replay");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("\nJ3: tokens: ") && out.contains("and not there"), "{out}");
    let report: Value = serde_json::from_str(&run(path, "verify --replay --json").1).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let broken: Vec<_> = checks.iter().filter(|check| check["holds"] == false).collect();
    assert_eq!((broken.len(), &broken[0]["predicate"]), (1, &json!("J3")), "{report}");
}

#[test]
fn audit_tells_who_changed_what() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    paste(&server.lines(), &[]);
    let platforms: Value = serde_json::from_str(&run(path, "platform list --json").1).unwrap();
    let platform = platforms["platforms"][0]["id"].as_str().unwrap();
    let line =
        format!("token create --platform {platform} --name auditor --permissions VIEW --json");
    let made = run(path, &line).1;
    let made: Value = serde_json::from_str(&made).unwrap();
    let id = made["id"].as_str().unwrap();
    let (code, out, err) = run(path, "audit");
    assert_eq!((code, err.as_str()), (0, ""), "beside the server: {out}");
    let command = out.lines().find(|line| line.contains(id)).unwrap();
    assert!(command.contains("  token create (") && command.contains(&format!("created {id}")));
    assert!(out.contains("  Token:") && out.contains("created Customer:"), "{out}");
    assert!(!out.contains("Ada") && !out.contains("auditor"), "personal data: {out}");
    let of_token = run(path, &format!("audit --object {id} --json")).1;
    let of_token: Vec<Value> =
        of_token.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [entry] = &of_token[..] else { panic!("{of_token:?}") };
    assert_eq!(entry["actor"]["command"], "token create", "{entry}");
    assert!(entry["actor"]["by"].as_str().unwrap().contains('@'), "{entry}");
    let created = json!({ "object": id, "effect": "created" });
    assert!(entry["changes"].as_array().unwrap().contains(&created), "{entry}");
    let at = entry["at"].as_str().unwrap();
    let since = run(path, &format!("audit --since {at}")).1;
    assert!(since.contains(id) && since.lines().count() < out.lines().count(), "{since}");
    assert_eq!(run(path, "audit --since 2999-01-01T00:00:00Z"), (0, String::new(), String::new()));
    server.stop();
    assert_eq!(run(path, "audit").1, out);
    for (line, part) in [("--since yesterday", "a time such as"), ("--object x", "an id such as")] {
        let (code, out, err) = run(path, &format!("audit {line}"));
        assert_eq!((code, out.as_str(), err.contains(part)), (2, "", true), "{err}");
    }
    check_refusal(switchyard(path, "audit --database-url sqlite://no.db"), 1, "no database at");
    std::fs::remove_file(path.join("switchyard.db.key")).unwrap();
    check_refusal(switchyard(path, "audit"), 2, "the journal is sealed");
}

#[test]
fn a_request_in_flight_is_answered_before_the_server_ends() {
    let folder = TempDir::new().unwrap();
    let server = Server::start_with_given_credentials(folder.path());
    let user = format!("{CLIENT_ID}:{CLIENT_SECRET}");
    let body = r#"{"customerType":"INDIVIDUAL","fullName":"Ada Lovelace"}"#;
    let head = head("POST", "/2025-10-13/customers", Some(&user), body);
    let mut slow = connect(&server.address).unwrap();
    write!(slow, "{head}Expect: 100-continue\r\n\r\n").unwrap();
    // This is sent when the handler asks for the body: the request is in flight.
    let mut going_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    slow.read_exact(&mut going_on).unwrap();
    assert!(going_on.starts_with(b"HTTP/1.1 100"));

    server.signal("TERM");
    until("the end of accepting", || TcpStream::connect(&server.address).is_err().then_some(()));
    slow.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert_eq!(parsed(&answer).0, 201, "{answer}");
    let (code, _, err) = server.ended();
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(run(folder.path(), "verify").0, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn as_many_files_may_be_open_as_connections_need() {
    let folder = TempDir::new().unwrap();
    let server = switchyard(folder.path(), "--listen 127.0.0.1:0 --log-format json");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -n 256 && exec \"$0\" \"$@\""]).current_dir(folder.path());
    limited.arg(server.get_program()).args(server.get_args());
    for (name, _) in server.get_envs() {
        limited.env_remove(name);
    }
    let server = Server::start_with(limited);
    let process = server.process.as_ref().unwrap().id();
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|word| line.split_whitespace().nth(word).unwrap());
    let hard = hard.parse().unwrap_or(u64::MAX);
    assert_eq!(soft.parse::<u64>().unwrap(), hard.min(4_864), "{line}");
    server.stop();
}

#[test]
fn a_lost_or_wrong_key_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    Server::start(path).stop();
    let mut wrong = switchyard(path, "--listen 127.0.0.1:0 --log-format json");
    wrong.env("SWITCHYARD_SECRET_KEY", "ab".repeat(32));
    check_refusal(wrong, 1, "the key is not the one of this database");

    std::fs::rename(path.join("switchyard.db.key"), path.join("moved.key")).unwrap();
    let lost = switchyard(path, "--listen 127.0.0.1:0");
    check_refusal(lost, 1, "its key file switchyard.db.key is missing: restore it");
    check_refusal(switchyard(path, "token list"), 1, "its key file switchyard.db.key is missing");
    assert!(!path.join("switchyard.db.key").exists(), "a new key would hide the loss");
    Server::start_with(switchyard(
        path,
        "--listen 127.0.0.1:0 --log-format json --key-file moved.key",
    ))
    .stop();
}

#[test]
fn a_bad_configuration_is_refused_in_one_line() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let check = |line: &str, variables: &[(&str, &str)], code, part: &str| {
        let mut command = switchyard(path, line);
        command.envs(variables.iter().copied());
        check_refusal(command, code, part);
    };
    check("--database-url postgres://u:secret@/db", &[], 2, "names no host");
    check("--database-url mysql://host/db", &[], 2, "unknown scheme");
    check("serve", &[("SWITCHYARD_CLIENT_ID", "only")], 2, "SWITCHYARD_CLIENT_SECRET");
    check("serve", &[("SWITCHYARD_SECRET_KEY", "short")], 2, "64 hexadecimal digits");
    check("serve", &[("SWITCHYARD_LOG", "store=loud")], 2, "is not a log filter");
    std::fs::write(path.join("rates.json"), r#"{"defaults":{"spread":"much"}}"#).unwrap();
    let rates = "--listen 127.0.0.1:0 --rates-file rates.json";
    check(rates, &[], 2, "rates.json: defaults.spread");
    let far = "--listen 127.0.0.1:0 --database-url sqlite://no/such/folder.db";
    check(far, &[], 1, "there is no folder no/such for the database");
    check("--database-url sqlite://.", &[], 1, ". is a folder: name a file");
    check("--listen 192.0.2.1:8080", &[], 1, "cannot listen on 192.0.2.1:8080");
    check("token list", &[], 1, "there is no database at switchyard.db");
    assert!(!path.join("switchyard.db").exists());
}

#[test]
fn a_second_server_on_the_same_file_is_refused() {
    let folder = TempDir::new().unwrap();
    let mut server = Server::start(folder.path());
    let second = switchyard(folder.path(), "--listen 127.0.0.1:0");
    check_refusal(second, 1, "another server has switchyard.db");
    // Nor is it another file by another name.
    std::os::unix::fs::symlink("switchyard.db", folder.path().join("alias.db")).unwrap();
    let key = ["SWITCHYARD_KEY_FILE", "switchyard.db.key"];
    let mut second =
        switchyard(folder.path(), "--listen 127.0.0.1:0 --database-url sqlite://alias.db");
    second.env(key[0], key[1]);
    check_refusal(second, 1, "another server has alias.db");
    // Nor by a name that looks like the first, nor when the lock was removed.
    let key = folder.path().join("switchyard.db.key");
    std::fs::hard_link(folder.path().join("switchyard.db"), folder.path().join("twin.db")).unwrap();
    std::fs::copy(&key, folder.path().join("twin.db.key")).unwrap();
    let twin = "--listen 127.0.0.1:0 --database-url sqlite://twin.db";
    check_refusal(switchyard(folder.path(), twin), 1, "another server has twin.db");
    std::fs::remove_file(folder.path().join("switchyard.db.lock")).unwrap();
    let second = switchyard(folder.path(), "--listen 127.0.0.1:0");
    check_refusal(second, 1, "another server has switchyard.db");
    // Nor by a copy of its tables beside a link to its journal.
    for is_hard in [false, true] {
        let other = TempDir::new().unwrap();
        let copied = |ending: &str| other.path().join(format!("copy.db{ending}"));
        std::fs::copy(folder.path().join("switchyard.db"), copied("")).unwrap();
        std::fs::copy(&key, copied(".key")).unwrap();
        let journal = folder.path().join("switchyard.db.journal");
        match is_hard {
            true => std::fs::hard_link(journal, copied(".journal")).unwrap(),
            false => std::os::unix::fs::symlink(journal, copied(".journal")).unwrap(),
        }
        let copy = "--listen 127.0.0.1:0 --database-url sqlite://copy.db";
        check_refusal(switchyard(other.path(), copy), 1, "another server has copy.db");
    }
    // Commands beside the server are not kept away, and the server is none the worse for them.
    assert_eq!(run(folder.path(), "verify").0, 0);
    assert_eq!(run(folder.path(), "token list").0, 0);
    std::fs::remove_file(folder.path().join("twin.db")).unwrap();
    // A server that is killed lets go.
    let mut process = server.process.take().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    drop(Server::start(folder.path()));
}

#[test]
fn a_second_server_on_the_same_port_is_refused() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let other = TempDir::new().unwrap();
    let second = switchyard(other.path(), &format!("--listen {}", server.address));
    check_refusal(second, 1, &format!("cannot listen on {}", server.address));
    assert_eq!(other.path().read_dir().unwrap().count(), 0, "it left something behind");
    assert_eq!(server.get("/healthz", None).unwrap().0, 200);
}

#[test]
fn a_start_on_an_empty_database_is_ready_soon() {
    let folder = TempDir::new().unwrap();
    let start = now();
    let server = Server::start(folder.path());
    let taken = start.elapsed();
    println!("ready after {} ms", taken.as_millis());
    assert!(taken < READY_WITHIN, "{taken:?}");
    assert_eq!(server.get("/readyz", None).unwrap(), (200, r#"{"status":"ready"}"#.to_owned()));
    assert_eq!(server.get("/healthz", None).unwrap(), (200, r#"{"status":"ok"}"#.to_owned()));
    let (status, metrics) = server.get("/metrics", None).unwrap();
    assert_eq!(status, 200);
    assert!(metrics.contains("switchyard_uptime_seconds "), "{metrics}");
    assert_eq!(request(&server.address, "POST", "/metrics", None, "{}").unwrap().0, 405);
}

#[test]
fn a_scrape_says_which_build_leads() {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path());
    let (_, metrics) = server.get("/metrics", None).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("switchyard_build_info{{version=\"{version}\",");
    let is_build = |line: &str| line.starts_with(&build) && line.ends_with("} 1");
    assert!(metrics.lines().any(is_build), "{metrics}");
    // A server alone takes the lead with its first step.
    until("the leader", || {
        let (_, metrics) = server.get("/metrics", None).unwrap();
        metrics.lines().any(|line| line == "switchyard_leader 1").then_some(())
    });
}

#[test]
fn help_wraps_at_the_width_of_the_terminal() {
    let folder = TempDir::new().unwrap();
    let help = |line: &str, width: &str| {
        let mut command = switchyard(folder.path(), line);
        let output = command.stdin(Stdio::null()).env("COLUMNS", width).output().unwrap();
        let (code, out, err) = finished(output);
        assert_eq!((code, err.as_str()), (0, ""));
        out
    };
    for line in ["--help", "serve --help", "uma --help"] {
        let lines = [50, 80, 400].map(|width: usize| {
            let help = help(line, &width.to_string());
            // No sentence is read past the hundredth column, and examples are copied whole.
            let prose = help.split("Example").next().unwrap();
            for line in prose.lines().filter(|line| line.trim().contains(' ')) {
                let length = line.chars().count();
                assert!(length <= width.min(100), "{length} of {width}: {line}");
            }
            prose.lines().count()
        });
        assert!(lines[0] > lines[1] && lines[1] >= lines[2], "{lines:?}");
    }
}

#[test]
fn tokens_are_made_and_revoked_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let (_, tokens, _) = run(path, "token list");
    let first = tokens.lines().nth(1).unwrap();
    let mut columns = first.split_whitespace();
    let (first_token, platform) = (columns.next().unwrap(), columns.next().unwrap());
    assert!(tokens.contains("VIEW,TRANSACT,MANAGE"), "{tokens}");

    let line = format!("token create --platform {platform} --name reports --permissions VIEW");
    let (code, out, err) = run(path, &line);
    assert_eq!(code, 0, "{err}");
    let word = |name: &str| {
        let line = out.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} is missing in {out}")).trim().to_owned()
    };
    let user = format!("{}:{}", word("client id"), word("client secret"));
    assert!(!err.contains(&word("client secret")), "{err}");
    assert_eq!(server.get("/2025-10-13/config", Some(&user)).unwrap().0, 200);
    assert_eq!(server.post("/2025-10-13/quotes", &user, "{}").0, 403);

    let id = out.split_whitespace().find_map(|word| word.strip_suffix(',')).unwrap();
    let (code, out, err) = run(path, &format!("token revoke {id}"));
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(server.get("/2025-10-13/config", Some(&user)).unwrap().0, 401);
    check_refusal(switchyard(path, &format!("token revoke {id}")), 1, "there is no token");
    let last = format!("token revoke {first_token}");
    check_refusal(switchyard(path, &last), 1, "is the last token of its platform with MANAGE");
    assert_eq!(run(path, "token list").1, tokens);
    let (_, all, _) = run(path, "token list --all");
    let revoked: Vec<_> = all.lines().filter(|line| line.contains("  revoked  ")).collect();
    assert!(matches!(revoked[..], [line] if line.starts_with(id)), "{all}");
    assert_eq!(all.lines().count(), tokens.lines().count() + 1, "{all}");
}

#[test]
fn the_operator_decides_about_identities_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    assert_eq!(run(path, "customer pending").1.lines().count(), 1);
    let link = "/2025-10-13/customers/kyc-link?platformCustomerId=ada";
    let link = server.get(link, Some(&user)).unwrap().1;
    let link: Value = serde_json::from_str(&link).unwrap();
    let page = link["kycUrl"].as_str().unwrap().strip_prefix("http://").unwrap();
    let page = page.strip_prefix(&server.address).expect("the link leads to this server");
    assert_eq!(server.get(page, None).unwrap().0, 200);
    let id = link["customerId"].as_str().unwrap();
    let (_, pending, _) = run(path, "customer pending");
    assert!(pending.lines().any(|line| line.starts_with(id) && line.contains("ada")), "{pending}");

    let (code, out, err) = run(path, &format!("customer approve {id}"));
    assert_eq!((code, out), (0, format!("{id} is MANUALLY_APPROVED now\n")), "{err}");
    let customer = server.get(&format!("/2025-10-13/customers/{id}"), Some(&user)).unwrap().1;
    assert!(customer.contains("MANUALLY_APPROVED"), "{customer}");
    assert_eq!(server.get(page, None).unwrap().0, 410);
    assert_eq!(run(path, "customer pending").1.lines().count(), 1);
    let again = switchyard(path, &format!("customer reject {id}"));
    check_refusal(again, 1, "identity is MANUALLY_APPROVED and cannot be manually rejected");
    let unknown = "customer approve Customer:00000000-0000-7000-8000-000000000001";
    check_refusal(switchyard(path, unknown), 1, "there is no customer");
}

#[test]
fn the_operator_erases_a_customer_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    let body = r#"{ "customerType": "INDIVIDUAL", "platformCustomerId": "quagmire-1",
        "fullName": "Glenn Quagmire" }"#;
    let (status, made) = server.post("/2025-10-13/customers", &user, body);
    assert_eq!(status, 201, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let id = made["id"].as_str().unwrap();
    let page = format!("/2025-10-13/customers/{id}");
    let erase = format!("customer erase {id}");
    check_refusal(switchyard(path, &erase), 1, "is not deleted, and only a deleted customer");
    assert_eq!(request(&server.address, "DELETE", &page, Some(&user), "").unwrap().0, 200);
    let (code, out, err) = run(path, &erase);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with(&format!("{id} is erased: ")), "{out}");
    assert!(err.contains(id) && !err.to_ascii_lowercase().contains("quagmire"), "{err}");
    let shown = server.get(&page, Some(&user)).unwrap().1;
    assert!(shown.contains(id) && !shown.to_ascii_lowercase().contains("quagmire"), "{shown}");
    let (code, audit, err) = run(path, "audit");
    assert_eq!(code, 0, "{err}");
    assert!(audit.contains("customer erase"), "{audit}");
    let again = run(path, &erase).1;
    assert!(again.contains("0 records, 0 events and 0 answers"), "{again}");
    let unknown = "customer erase Customer:00000000-0000-7000-8000-000000000001";
    check_refusal(switchyard(path, unknown), 1, "there is no customer");
    assert_eq!(run(path, "verify --replay").0, 0);
    // No page of the file has it either, once the server has stopped.
    server.stop();
    let file = std::fs::read(path.join("switchyard.db")).unwrap();
    let is_there = file.windows(8).any(|window| window.eq_ignore_ascii_case(b"quagmire"));
    assert!(!is_there, "the file still names the customer");
}

/// The story of a payment that came back, by its id and by its reference.
fn the_payment_is_shown(path: &Path, payment: &Value) {
    let id = payment["id"].as_str().unwrap();
    let (code, shown, err) = run(path, &format!("show {id}"));
    assert_eq!(code, 0, "{err}");
    let states =
        ["PENDING", "PROCESSING", "COMPLETED", "FAILED"].map(|it| format!("state     {it}"));
    let (first, rest) = shown.split_once('\n').unwrap();
    assert_eq!(first, format!("{id} is FAILED"));
    let mut rest = rest;
    for part in states {
        let (_, behind) = rest.split_once(&*part).unwrap_or_else(|| panic!("{part} in\n{shown}"));
        rest = behind;
    }
    for part in [
        "4.00 USD",
        "1 TRANSFER_OUT, pending\n      Dr InternalAccount:",
        "\n         Cr rail ACH  4.00 USD\n",
        "1 is posted",
        "a person settles LATE_RETURN: switchyard attention show Attention:",
        payment["source"]["accountId"].as_str().unwrap(),
        payment["destination"]["accountId"].as_str().unwrap(),
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(!shown.contains("Lovelace"), "{shown}");
    let reference = payment["reconciliationInstructions"]["reference"].as_str().unwrap();
    assert_eq!(run(path, &format!("show {reference}")), (0, shown, String::new()));
    let value = for_programs(path, &format!("show {id}")).1.remove(0);
    assert_eq!((&value["id"], &value["status"]), (&json!(id), &json!("FAILED")));
    let pending = &value["postings"][0];
    assert_eq!(
        (&pending["movement"], &pending["phase"]),
        (&json!("TRANSFER_OUT"), &json!("PENDING"))
    );
    assert_eq!(pending["entries"][0]["amount"], 400);
    let unknown = "show Transaction:00000000-0000-7000-8000-000000000001";
    check_refusal(switchyard(path, unknown), 1, "there is no Transaction:");
    let (code, _, err) = run(path, "show Token:1");
    assert!(code == 2 && err.contains("not the id of a transaction or a quote"), "{err}");
}

/// The trial balance, and an account of a customer in it.
fn the_books_are_read(path: &Path, account: &str) {
    let (code, text, err) = run(path, "ledger balances");
    assert_eq!(code, 0, "{err}");
    let total = text.lines().find(|line| line.starts_with("total")).unwrap();
    let cells: Vec<_> = total.split_whitespace().collect();
    assert_eq!((cells[1], cells[2], cells.last()), ("USD", cells[3], Some(&"0.00")), "{text}");
    let value = for_programs(path, "ledger balances").1.remove(0);
    assert!(value["totals"].as_array().unwrap().iter().all(|it| it["balance"] == "0"), "{value}");
    let accounts = for_programs(path, "ledger accounts").1.remove(0);
    let is_its = |it: &&Value| it["account"].as_str().is_some_and(|name| name.contains(account));
    let found = accounts["accounts"].as_array().unwrap().iter().find(is_its).unwrap();
    assert_eq!((&found["debitsPosted"], &found["creditsPosted"]), (&json!("400"), &json!("400")));
    let platform = found["platform"].as_str().unwrap();
    let own = for_programs(path, &format!("ledger accounts --platform {platform}")).1.remove(0);
    assert_eq!(own, accounts, "there is one platform");
    let unknown = "PlatformConfig:00000000-0000-7000-8000-000000000001";
    let unknown = format!("ledger balances --platform {unknown}");
    check_refusal(switchyard(path, &unknown), 1, "there is no platform");
}

#[test]
fn what_waits_for_a_person_is_listed_and_resolved_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    let post = |path: &str, body: &Value| -> Value {
        let (status, made) = server.post(&format!("/2025-10-13{path}"), &user, &body.to_string());
        assert!(matches!(status, 200 | 201), "{made}");
        serde_json::from_str(&made).unwrap()
    };
    let get = |path: &str| -> Value {
        let (status, found) = server.get(&format!("/2025-10-13{path}"), Some(&user)).unwrap();
        assert_eq!(status, 200, "{found}");
        serde_json::from_str(&found).unwrap()
    };
    let open = || {
        let metrics = server.get("/metrics", None).unwrap().1;
        let name = "switchyard_attention_open{kind=\"LATE_RETURN\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{metrics}"))
    };
    assert_eq!(run(path, "attention list").1, "nothing waits for a person\n");
    assert_eq!(open(), "0");

    // Its bank sends a payment back when its customer is gone.
    let customer =
        post("/customers", &json!({ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" }));
    let customer = customer["id"].as_str().unwrap();
    let accounts = get(&format!("/customers/internal-accounts?customerId={customer}&currency=USD"));
    let account = accounts["data"][0]["id"].as_str().unwrap();
    post(&format!("/sandbox/internal-accounts/{account}/fund"), &json!({ "amount": 400 }));
    let bank = post(
        "/customers/external-accounts",
        &json!({
            "customerId": customer,
            "currency": "USD",
            "accountInfo": {
                "accountType": "USD_ACCOUNT",
                "accountNumber": "123456185",
                "routingNumber": "021000021",
                "beneficiary": { "beneficiaryType": "BUSINESS", "legalName": "Analytical Ltd" },
            },
        }),
    );
    let out = post(
        "/transfer-out",
        &json!({
            "source": { "accountId": account },
            "destination": { "accountId": bank["id"] },
            "amount": 400,
        }),
    );
    let payment = out["id"].as_str().unwrap();
    post("/sandbox/clock", &json!({ "advanceBySeconds": 10 }));
    let page = format!("/2025-10-13/customers/{customer}");
    assert_eq!(request(&server.address, "DELETE", &page, Some(&user), "").unwrap().0, 200);
    post("/sandbox/clock", &json!({ "advanceBySeconds": 61 }));
    assert_eq!(get(&format!("/transactions/{payment}"))["status"], "FAILED");
    the_payment_is_shown(path, &get(&format!("/transactions/{payment}")));

    assert_eq!(open(), "1");
    let (code, mut listed, _) = for_programs(path, "attention list");
    let listed = listed.remove(0);
    let matter = &listed["attention"][0];
    assert_eq!((code, listed["attention"].as_array().unwrap().len()), (0, 1), "{listed}");
    assert_eq!((&matter["kind"], &matter["subject"]), (&json!("LATE_RETURN"), &json!(payment)));
    assert_eq!((&matter["status"], &matter["resolution"]), (&json!("OPEN"), &Value::Null));
    let id = matter["id"].as_str().unwrap();
    let (code, shown, err) = run(path, &format!("attention show {id}"));
    assert_eq!(code, 0, "{err}");
    for part in ["LATE_RETURN", payment, "amount: 400", "currency: USD", "outcomes: KEPT"] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
    assert!(!shown.contains("Lovelace"), "{shown}");

    let (code, _, err) = run(path, &format!("attention resolve {id}"));
    assert!(code == 2 && err.contains("--reason"), "a reason is needed: {err}");
    let wrong = format!("attention resolve {id} --reason x --outcome settled");
    check_refusal(switchyard(path, &wrong), 1, "the outcome of LATE_RETURN is KEPT");
    let unknown = "attention show Attention:00000000-0000-7000-8000-000000000001";
    check_refusal(switchyard(path, unknown), 1, "there is no Attention:");
    let (code, said, err) = run(path, &format!("attention resolve {id} --reason paid-by-cheque"));
    assert_eq!((code, said.as_str()), (0, &*format!("{id} is resolved: KEPT\n")), "{err}");
    assert!(err.contains("attention resolve") && !err.contains("cheque"), "{err}");
    let again = format!("attention resolve {id} --reason again");
    check_refusal(switchyard(path, &again), 1, "is RESOLVED and cannot be resolved");
    assert_eq!(open(), "0");
    assert_eq!(get(&format!("/transactions/{payment}"))["status"], "REFUNDED");
    the_books_are_read(path, account);
    server.stop();
    // Without a server, too.
    let resolved = for_programs(path, "attention list --all").1.remove(0);
    let resolution = &resolved["attention"][0]["resolution"];
    assert_eq!(
        (&resolution["outcome"], &resolution["reason"]),
        (&json!("KEPT"), &json!("paid-by-cheque"))
    );
    assert!(resolution["by"].as_str().is_some_and(|by| by.contains('@')), "{resolution}");
    let audit = run(path, &format!("audit --object {id}")).1;
    assert!(audit.contains("attention resolve"), "{audit}");
    assert_eq!(run(path, "verify --replay").0, 0);
}

#[test]
fn an_erasure_that_is_killed_is_done_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    let post = |path: &str, body: &str| {
        let (status, made) = server.post(&format!("/2025-10-13{path}"), &user, body);
        assert_eq!(status, 201, "{made}");
        serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let customer =
        post("/customers", r#"{ "customerType": "INDIVIDUAL", "fullName": "Glenn Quagmire" }"#);
    for number in 0..40 {
        let account = format!(
            r#"{{ "customerId": "{customer}", "currency": "GBP", "platformAccountId": "quagmire",
                "accountInfo": {{ "accountType": "GBP_ACCOUNT", "sortCode": "20-00-00",
                "accountNumber": "557799{number:02}", "beneficiary": {{
                "beneficiaryType": "BUSINESS", "legalName": "Quagmire Air" }} }} }}"#
        );
        post("/customers/external-accounts", &account);
    }
    let page = format!("/2025-10-13/customers/{customer}");
    assert_eq!(request(&server.address, "DELETE", &page, Some(&user), "").unwrap().0, 200);
    server.stop();
    let line = format!("customer erase {customer}");
    // Whenever it dies, what the journal can still say makes the tables.
    let log = || path.join("switchyard.db-wal").metadata().map_or(0, |log| log.len());
    let mut killed = 0;
    for written in [0, 1, 20_000, 40_000, 80_000, 160_000] {
        let mut command = switchyard(path, &line);
        let mut erasure = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let is_over = |erasure: &mut Child| erasure.try_wait().unwrap().is_some();
        until("a commit", || (log() >= written || is_over(&mut erasure)).then_some(()));
        let _ = erasure.kill();
        killed += usize::from(!erasure.wait().unwrap().success());
        let (code, out, err) = run(path, "verify --replay");
        assert_eq!(code, 0, "{written}: {out}{err}");
    }
    assert!(killed > 1, "the command was never killed");
    let (code, out, err) = run(path, &line);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(run(path, "verify --replay").0, 0);
    let server = Server::start(path);
    for page in [page, "/2025-10-13/customers/external-accounts?limit=100".to_owned()] {
        let shown = server.get(&page, Some(&user)).unwrap().1;
        assert!(!shown.to_ascii_lowercase().contains("quagmire"), "{shown}");
    }
}

#[test]
fn the_operator_replaces_keys_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    let config = "/2025-10-13/config";
    let key_file = path.join("switchyard.db.key");
    let old = std::fs::read_to_string(&key_file).unwrap();
    let old_file = path.join("old.key");
    std::fs::copy(&key_file, &old_file).unwrap();
    assert_eq!(run(path, "backup --to before.db").0, 0);
    let (code, out, err) = run(path, "key rotate-journal");
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, err) = run(path, "key rotate");
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("opens with the new key in") && out.contains("key only"), "{out}");
    let out_of_rotation = out.clone();
    let new = std::fs::read_to_string(&key_file).unwrap();
    let key_of = |text: &str| text.lines().last().unwrap().to_owned();
    assert_ne!(key_of(&old), key_of(&new));
    for text in [&out, &err] {
        assert!(!text.contains(&key_of(&old)) && !text.contains(&key_of(&new)), "{text}");
    }
    // The server goes on, and its tokens and rows are what they were.
    let body = r#"{ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" }"#;
    let (status, made) = server.post("/2025-10-13/customers", &user, body);
    assert_eq!(status, 201, "{made}");
    let (_, audit, _) = run(path, "audit");
    for command in ["key rotate ", "key rotate-journal "] {
        assert!(audit.contains(command), "{command}: {audit}");
    }
    assert_eq!(run(path, "verify --replay").0, 0);
    server.stop();
    let server = Server::start(path);
    assert_eq!(server.get(config, Some(&user)).unwrap().0, 200);
    server.stop();

    // The old key opens what was copied before, and nothing else.
    let with_old = format!("--key-file {}", old_file.display());
    let refused = switchyard(path, &format!("serve {with_old}"));
    check_refusal(refused, 1, "the key is not the one of this database");
    let refused = switchyard(path, &format!("key rotate {with_old}"));
    check_refusal(refused, 1, "the key is not the one of this database");
    let backup = format!("verify --database-url sqlite://{}", path.join("before.db").display());
    let (code, out, err) = run(path, &format!("{backup} {with_old}"));
    assert_eq!(code, 0, "{out}{err}");
    // It stays beside the new one under its fingerprint, where verify finds it.
    let kept = old_keys(path);
    assert!(kept.len() == 1 && kept[0].1 == 0o600, "{kept:?}");
    assert!(out_of_rotation.contains(&kept[0].0), "{out_of_rotation}");
    let (code, out, err) = run(path, &format!("{backup} --key-file {}", key_file.display()));
    assert_eq!(code, 0, "{out}{err}");

    let same = format!("key rotate --new-key-file {}", key_file.display());
    check_refusal(switchyard(path, &same), 2, "is the one that opens");

    // Another file is named for the new key, and is made.
    let next = path.join("next.key");
    let (code, out, err) = run(path, &format!("key rotate --new-key-file {}", next.display()));
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(std::fs::read_to_string(&key_file).unwrap(), new);
    check_refusal(switchyard(path, "verify"), 2, "the key is not the one of this database");
    assert_eq!(run(path, &format!("verify --key-file {}", next.display())).0, 0);
}

/// The old keys beside that of a server, with what others may do with them.
fn old_keys(folder: &Path) -> Vec<(String, u32)> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|it| (it.file_name().into_string().unwrap(), mode(&it.path())));
    named.filter(|(name, _)| name.starts_with("switchyard.db.key.")).collect()
}

#[test]
fn a_backup_from_before_a_rotation_is_restored_until_the_old_key_is_discarded() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    server.stop();
    let done = |line: &str| {
        let (code, out, err) = run(path, line);
        assert_eq!(code, 0, "{line}: {out}{err}");
        out
    };
    done("backup --to before.db");
    done("key rotate");
    done("backup --to between.db");
    done("key rotate");
    assert_eq!(old_keys(path).len(), 2);
    let key = "--key-file switchyard.db.key";
    done("backup --to after.db");
    for (backup, is_old) in [("before.db", true), ("between.db", true), ("after.db", false)] {
        done(&format!("verify --database-url sqlite://{backup} {key}"));
        let again = format!("--database-url sqlite://again-{backup}");
        let out = done(&format!("restore --from {backup} {again} {key}"));
        assert_eq!(out.contains("from before the key was rotated"), is_old, "{out}");
        // The key of today opens it, without those before.
        std::fs::copy(path.join("switchyard.db.key"), path.join("today.key")).unwrap();
        done(&format!("verify --replay {again} --key-file today.key"));
        let line = format!("--listen 127.0.0.1:0 --log-format json {again} --key-file today.key");
        let server = Server::start_with(switchyard(path, &line));
        assert_eq!(server.get("/2025-10-13/config", Some(&user)).unwrap().0, 200);
        server.stop();
    }
    done("key rotate --discard-old-key");
    assert_eq!(old_keys(path), []);
    let refused = format!("verify --database-url sqlite://before.db {key}");
    check_refusal(switchyard(path, &refused), 2, "the key is not the one of this database");
    let refused = format!("restore --from before.db --database-url sqlite://more.db {key}");
    check_refusal(switchyard(path, &refused), 1, "the key is not the one of this database");
    done("verify");
}

#[test]
fn the_operator_seals_everything_anew_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    let made = |name: &str| {
        let body = format!(r#"{{ "customerType": "INDIVIDUAL", "fullName": "{name}" }}"#);
        let (status, made) = server.post("/2025-10-13/customers", &user, &body);
        assert_eq!(status, 201, "{made}");
        serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let first = made("Ada Lovelace");
    let key_file = path.join("switchyard.db.key");
    std::fs::copy(&key_file, path.join("old.key")).unwrap();
    assert_eq!(run(path, "backup --to before.db").0, 0);

    // One that is stopped says how to go on, and other rotations wait for it.
    let mut command = switchyard(path, "key rotate --reencrypt");
    let mut command = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let old = std::fs::read(&key_file).unwrap();
    until("the new key", || (std::fs::read(&key_file).unwrap() != old).then_some(()));
    let is_drawn = || run(path, "audit").1.contains("key rotate ");
    until("the new secret", || is_drawn().then_some(()));
    command.kill().unwrap();
    command.wait().unwrap();
    check_refusal(switchyard(path, "key rotate"), 1, "--reencrypt goes on with that");
    let second = made("Grace Hopper");
    assert_eq!(run(path, "verify --replay").0, 0);
    assert_eq!(run(path, "backup --to between.db").0, 0);
    let new = std::fs::read(&key_file).unwrap();

    let (code, out, err) = run(path, "key rotate --reencrypt");
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("Everything is sealed with a new secret"), "{out}");
    assert_eq!(std::fs::read(&key_file).unwrap(), new, "it went on with the key that there was");
    let kept = old_keys(path);
    assert!(kept.len() == 1 && out.contains(&kept[0].0), "{kept:?}: {out}");
    assert!(run(path, "audit").1.contains("key rotate "));
    assert_eq!(run(path, "verify --replay").0, 0);
    let third = made("Mary Somerville");
    server.stop();
    let shown = |server: &Server| {
        for (id, name) in [(&first, "Ada"), (&second, "Grace"), (&third, "Mary")] {
            let page = format!("/2025-10-13/customers/{id}");
            let (status, customer) = server.get(&page, Some(&user)).unwrap();
            assert!(status == 200 && customer.contains(name), "{customer}");
        }
    };
    let server = Server::start(path);
    shown(&server);
    // The key of then opens what was copied then, and nothing of today.
    check_refusal(switchyard(path, "verify --key-file old.key"), 2, "the key is not the one");
    for backup in ["before.db --key-file old.key", "between.db --key-file switchyard.db.key"] {
        let (code, out, err) = run(path, &format!("verify --database-url sqlite://{backup}"));
        assert_eq!(code, 0, "{out}{err}");
    }
    // A backup from the middle is gone on with where it is restored.
    let again = "--database-url sqlite://again.db --key-file switchyard.db.key";
    for line in ["restore --from between.db", "key rotate --reencrypt", "verify --replay"] {
        let (code, out, err) = run(path, &format!("{line} {again}"));
        assert_eq!(code, 0, "{line}: {out}{err}");
    }
    let out = for_programs(path, "key rotate --reencrypt --discard-old-key").1.remove(0);
    assert_eq!(out["isSealedAnew"], json!(true), "{out}");
    assert_eq!(old_keys(path), []);
    shown(&server);
    server.stop();
    shown(&Server::start(path));
    assert_eq!(run(path, "verify --replay").0, 0);
}

/// A rotation is killed at each of its flushes, one after the other, and run again. Whatever it has
/// come to, one of the keys that are there opens everything.
#[cfg(target_os = "linux")]
#[test]
fn a_rotation_that_is_killed_at_any_step_goes_on() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    let body = r#"{ "customerType": "INDIVIDUAL", "fullName": "Ada Lovelace" }"#;
    assert_eq!(server.post("/2025-10-13/customers", &user, body).0, 201);
    server.stop();
    for options in ["", " --reencrypt", " --discard-old-key", " --reencrypt --discard-old-key"] {
        let rotate = switchyard(path, &format!("key rotate{options}"));
        let mut killed = 0;
        for flush in 1.. {
            let mut command = Command::new("strace");
            command.args(["-f", "-qq", "-o", "/dev/null"]);
            let inject = format!("inject=fsync,fdatasync:signal=KILL:when={flush}");
            command.args(["-e", &inject]).arg(rotate.get_program()).args(rotate.get_args());
            command.current_dir(path).stdout(Stdio::null()).stderr(Stdio::null());
            without_variables(&mut command);
            let Ok(status) = command.status() else {
                println!("nothing was tried: strace is not there");
                return;
            };
            let (code, out, err) = run(path, "verify --replay");
            assert_eq!(code, 0, "{options} at flush {flush}: {out}{err}");
            if status.success() {
                break;
            }
            killed += 1;
        }
        if killed == 0 {
            println!("nothing was tried: strace may not trace anything");
            return;
        }
        println!("key rotate{options}: killed {killed} times");
        // With the key of today alone.
        for (name, _) in old_keys(path) {
            std::fs::remove_file(path.join(name)).unwrap();
        }
        let (code, out, err) = run(path, "verify --replay");
        assert_eq!(code, 0, "{options}: {out}{err}");
        let server = Server::start(path);
        let (_, shown) = server.get("/2025-10-13/customers", Some(&user)).unwrap();
        assert!(shown.contains("Ada Lovelace"), "{shown}");
        server.stop();
    }
}

#[test]
fn the_operator_sets_scenarios_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let (_, list, _) = run(path, "platform list");
    let id = list.split_whitespace().find(|word| word.starts_with("PlatformConfig:")).unwrap();
    let file = path.join("rows.toml");
    let set = format!("platform set-scenarios --platform {id} --file {}", file.display());
    check_refusal(switchyard(path, &set), 1, "rows.toml: ");
    std::fs::write(&file, "[[payments]]\npath = []\n").unwrap();
    check_refusal(switchyard(path, &set), 1, "row 1 of payments: say what it fits");
    let rows = "[[accounts]]\nsuffix = '789'\npath = [{ status = 'INACTIVE' }]\n";
    std::fs::write(&file, rows).unwrap();
    let (code, out, err) = run(path, &set);
    assert_eq!(
        (code, out),
        (0, format!("{id} has rows of its own before the built-in ones\n")),
        "{err}"
    );
    let (code, out, _) = run(path, &format!("platform set-scenarios --platform {id}"));
    assert_eq!((code, out), (0, format!("{id} has the built-in rows alone\n")));
    let live = "platform create --uma-domain pay.example.com --live --name Live";
    let (_, out, _) = run(path, live);
    let live = out.split_whitespace().find(|word| word.starts_with("PlatformConfig:")).unwrap();
    let set = format!("platform set-scenarios --platform {live}");
    check_refusal(switchyard(path, &set), 1, "moves real money");
    drop(server);
}

#[test]
fn the_operator_names_events_beside_the_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let (_, list, _) = run(path, "platform list");
    let id = list.split_whitespace().find(|word| word.starts_with("PlatformConfig:")).unwrap();
    for names in ["dotted", "plain"] {
        let set = format!("platform set-events --platform {id} --names {names}");
        let (code, out, err) = run(path, &set);
        assert_eq!(code, 0, "{err}");
        assert_eq!(out, format!("{id} names its events {names} from now on\n"));
    }
    let wrong = format!("platform set-events --platform {id} --names camel");
    let (code, _, err) = run(path, &wrong);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("events are named plain or dotted"), "{err}");
    drop(server);
}

#[test]
fn the_operator_bounds_what_invoices_cost() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let (_, list, _) = run(path, "platform list");
    let id = list.split_whitespace().find(|word| word.starts_with("PlatformConfig:")).unwrap();
    let set = |points: &str| {
        let points = format!("--max-basis-points {points}");
        run(path, &format!("platform set-cost-drift --platform {id} {points}"))
    };
    let (code, out, err) = set("250");
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("at most 250 basis points"), "{out}");
    let (_, list, _) = run(path, "platform list --json");
    assert!(list.contains("\"costDriftMaxBasisPoints\":250"), "{list}");
    for wrong in ["10001", "-1", "x", "5.5"] {
        assert_eq!(set(wrong).0, 2, "{wrong}");
    }
    drop(server);
}

#[test]
fn platforms_are_made_and_priced() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let mut create = switchyard(path, "platform create --uma-domain pay.example.com --live");
    let (code, out, err) = finished(create.args(["--name", "Example Pay"]).output().unwrap());
    assert_eq!(code, 0, "{err}");
    let id = out.split_whitespace().find(|word| word.starts_with("PlatformConfig:")).unwrap();
    let (_, list, _) = run(path, "platform list");
    let row = list.lines().find(|line| line.contains(id)).unwrap();
    assert!(row.contains("LIVE") && row.contains("pay.example.com"), "{row}");
    assert!(row.ends_with("Example Pay"), "{row}");

    // A domain is one platform's, in whatever mode, until the operator gives it another.
    let other = "platform create --uma-domain pay.example.com --name Other";
    check_refusal(switchyard(path, other), 1, &format!("pay.example.com is the domain of {id}"));
    let domain = format!("platform set-domain --platform {id} --uma-domain bank.example.com");
    let (code, out, err) = run(path, &domain);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, format!("{id} now gives out addresses at bank.example.com\n"));
    let (code, _, err) = run(path, other);
    assert_eq!(code, 0, "{err}");
    let back = format!("platform set-domain --platform {id} --uma-domain pay.example.com");
    check_refusal(switchyard(path, &back), 1, "pay.example.com is the domain of");

    let pricing = |more: &str| format!("platform set-pricing --platform {id} {more}");
    let (code, _, err) = run(path, &pricing("--spread 0.004"));
    assert_eq!(code, 0, "{err}");
    let (_, out, _) = run(path, &pricing("--from USD --to EUR --fixed-fee 200"));
    let rules: Vec<Vec<_>> =
        out.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
    let specific = vec!["USD", "EUR", "built-in", "200", "built-in"];
    assert_eq!(rules, [specific, vec!["any", "any", "0.004", "built-in", "built-in"]]);
    let unknown = "--platform PlatformConfig:00000000-0000-7000-8000-000000000001";
    let line = format!("platform set-pricing {unknown} --spread 0");
    check_refusal(switchyard(path, &line), 1, "there is no platform");

    // The operator has chosen: a start makes no platform beside those.
    let (_, list, _) = run(path, "platform list");
    let (out, _) = Server::start(path).stop();
    assert!(out.contains("Switchyard serves 2 platforms"), "{out}");
    assert_eq!(run(path, "platform list").1, list);
}

#[test]
fn a_killed_server_starts_again_with_all_it_had() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    let user = server.user();
    let out = paste(&server.lines(), &[]);
    let customer = out.lines().find(|line| line.starts_with("Customer:")).unwrap();
    let look = format!("/2025-10-13/customers/internal-accounts?customerId={customer}");
    let before = server.get(&look, Some(&user)).unwrap();
    assert_eq!(before.0, 200);
    server.signal("KILL");
    assert_eq!(server.ended().0, None);

    let again = Server::start(path);
    assert_eq!(again.get(&look, Some(&user)).unwrap(), before);
    let (out, _) = again.stop();
    assert!(!out.contains("client secret"), "{out}");
    let (code, out, _) = run(path, "verify");
    assert_eq!(code, 0, "{out}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_whose_log_cannot_be_written_works_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_unheard(folder.path());
    let user = server.user();
    let body = r#"{"customerType":"INDIVIDUAL","fullName":"Ada Lovelace"}"#;
    assert_eq!(server.post("/2025-10-13/customers", &user, body).0, 201);
    server.signal("TERM");
    let (code, ..) = server.ended();
    assert_eq!(code, Some(0));
    // What could not be said to anybody is not a second failure.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = switchyard(folder.path(), "backup --to nowhere/copy.db");
    let status = command.stdout(Stdio::null()).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_variable_is_blamed_for_what_it_says() {
    let folder = TempDir::new().unwrap();
    let check = |line: &str, name: &str, value: &str, part: &str| {
        let mut command = switchyard(folder.path(), line);
        command.env(name, value);
        check_refusal(command, 2, part);
    };
    let slip = "there is no variable SWITCHYARD_LISEN: did you mean SWITCHYARD_LISTEN?";
    for line in ["serve", "verify", "demo", "token list"] {
        check(line, "SWITCHYARD_LISEN", "127.0.0.1:0", slip);
    }
    let listen = "SWITCHYARD_LISTEN is '8080': must be a host and a port";
    check("serve", "SWITCHYARD_LISTEN", "8080", listen);
    let range = "SWITCHYARD_QUOTE_LIFETIME_SECONDS is '901': 901 is not in 60..=900";
    check("serve", "SWITCHYARD_QUOTE_LIFETIME_SECONDS", "901", range);
    let format = "SWITCHYARD_LOG_FORMAT is 'xml': must be one of human, json";
    check("verify", "SWITCHYARD_LOG_FORMAT", "xml", format);
    let allow = "SWITCHYARD_ALLOW_PRIVATE_WEBHOOKS is 'maybe'";
    check("serve", "SWITCHYARD_ALLOW_PRIVATE_WEBHOOKS", "maybe", allow);
    let url = "SWITCHYARD_DATABASE_URL: the database URL has an unknown scheme";
    check("verify", "SWITCHYARD_DATABASE_URL", "mysql://x", url);
    // A command that opens no database does not mind.
    let mut none = switchyard(folder.path(), "completions bash");
    none.env("SWITCHYARD_DATABASE_URL", "mysql://x").env("SWITCHYARD_SECRET_KEY", "nonsense");
    assert_eq!(finished(none.output().unwrap()).0, 0);
    // An option that stands there is blamed itself, whatever the variable says.
    let mut command = switchyard(folder.path(), "serve --listen 80");
    let (code, _, err) =
        finished(command.env("SWITCHYARD_LISTEN", "127.0.0.1:0").output().unwrap());
    assert!(code == 2 && err.contains("'--listen <HOST:PORT>'"), "{err}");
    // One that is set to nothing is not set.
    let mut command = switchyard(folder.path(), "verify");
    command.env("SWITCHYARD_LISTEN", "").env("SWITCHYARD_DATABASE_URL", "");
    check_refusal(command, 2, "there is no database at switchyard.db");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// Runs a command for programs: its exit code, and the lines that it printed.
fn for_programs(folder: &Path, line: &str) -> (i32, Vec<Value>, Vec<Value>) {
    let (code, out, err) = run(folder, &format!("{line} --json"));
    let lines = |text: &str| -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        text.lines().map(parse).collect()
    };
    (code, lines(&out), lines(&err))
}

#[test]
fn every_command_prints_json_for_programs() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let command = switchyard(path, "serve --json --listen 127.0.0.1:0 --log-format json");
    let server = Server::start_with(command);
    let out = || server.out.as_ref().unwrap().so_far();
    let first = until("credentials", || serde_json::from_str::<Value>(&out()).ok());
    let user = |value: &Value| {
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        format!("{}:{}", text("clientId"), text("clientSecret"))
    };
    let first_user = user(&first["credentials"]);
    assert_eq!(server.get("/2025-10-13/config", Some(&first_user)).unwrap().0, 200);
    let platform = first["platform"].as_str().unwrap();

    let one = |line: &str| -> Value {
        let (code, mut out, err) = for_programs(path, line);
        assert_eq!((code, out.len()), (0, 1), "{line}: {out:?} {err:?}");
        let changes = [
            "token create",
            "token revoke",
            "platform set-pricing",
            "platform set-scenarios",
            "platform create",
            "backup",
            "rebuild",
            "restore",
            "migrate",
        ];
        // Without a filter that asks for it, a change is logged and nothing else.
        let logged = err.iter().map(|line| (&line["message"], line["command"].as_str()));
        let expected = changes.iter().find(|command| line.starts_with(*command));
        let message = json!("operator made a change");
        let expected = expected.map(|command| (&message, Some(*command)));
        assert_eq!(logged.collect::<Vec<_>>(), Vec::from_iter(expected), "{line}: {err:?}");
        assert!(err.iter().all(|line| line["object"].as_str().is_some_and(|it| !it.is_empty())));
        out.remove(0)
    };
    assert_eq!(one("platform list")["platforms"][0]["id"], platform);
    let token =
        one(&format!("token create --platform {platform} --name x --permissions VIEW,MANAGE"));
    assert_eq!(server.get("/2025-10-13/config", Some(&user(&token))).unwrap().0, 200);
    let id = token["id"].as_str().unwrap();
    assert_eq!(one(&format!("token revoke {id}")), json!({ "id": id, "isRevoked": true }));
    let tokens = one("token list --all")["tokens"].clone();
    let revoked = tokens.as_array().unwrap().iter().find(|token| token["id"] == id).unwrap();
    assert_eq!((&revoked["isRevoked"], revoked.get("clientSecret")), (&json!(true), None));
    assert_eq!(one("customer pending"), json!({ "customers": [] }));
    let price = one(&format!("platform set-pricing --platform {platform} --fixed-fee 1"));
    assert_eq!(price["prices"][0]["fixedFee"], 1);
    let rows = one(&format!("platform set-scenarios --platform {platform}"));
    assert_eq!(rows["hasOwnRows"], false);
    let live = one("platform create --name Live --live --uma-domain live.example");
    assert_eq!(live["mode"], "LIVE");
    assert_eq!(one("verify")["sound"], true);
    let backup = one("backup --to copy.db");
    assert_eq!((&backup["file"], &backup["checksSkipped"]), (&json!("copy.db"), &json!(0)));
    std::fs::copy(path.join("switchyard.db.key"), path.join("new.db.key")).unwrap();
    let restored = one("restore --from copy.db --database-url sqlite://new.db");
    assert_eq!(restored["transactions"], backup["transactions"]);
    // The first opening gives the journal a file of its own.
    one("token list --database-url sqlite://new.db");
    let rebuilt = one("rebuild --database-url sqlite://new.db");
    assert!(rebuilt["formerTables"].as_str().unwrap().ends_with("/new.db.replaced-1"));
    assert!(rebuilt["journalRows"].as_u64().unwrap() > 1 && rebuilt["wentOnBehindRow"] == 0);
    let line = "migrate --from sqlite://new.db --to sqlite://moved.db --key-file new.db.key";
    assert_eq!(one(line)["proven"], true);
    assert!(one("completions bash")["script"].as_str().unwrap().contains("switchyard"));
    assert!(one("man .")["files"].as_array().unwrap().len() > 10);
    assert_eq!(one("demo")["complete"], true);

    // Errors have the same form.
    let refused = |line: &str, code: i32, part: &str| {
        let (exit, out, err) = for_programs(path, line);
        assert_eq!((exit, out.len(), err.len()), (code, 0, 1), "{line}: {out:?} {err:?}");
        assert_eq!(err[0]["error"]["exitCode"], code, "{line}");
        let message = err[0]["error"]["message"].as_str().unwrap();
        assert!(message.contains(part) && !message.contains('\n'), "{message}");
    };
    refused("backup --to copy.db", 1, "is never written over");
    refused("verify --database-url sqlite://no.db", 2, "no database at no.db");
    refused("token revoke x", 2, "invalid value 'x'");
    refused("frobnicate", 2, "unrecognized subcommand");
    refused("listen --forward-to http://127.0.0.1:1", 2, "whose events?");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, err) = run(path, &format!("completions {shell}"));
        assert_eq!((code, err.as_str()), (0, ""), "{shell}");
        assert!(script.contains("set-pricing") && script.contains("uma-domain"), "{shell}");
        std::fs::write(path.join(shell), script).unwrap();
    }
    let checked = Command::new("bash").arg("-n").arg(path.join("bash")).output().unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
    let (code, ..) = run(path, "completions tcsh");
    assert_eq!(code, 2);

    std::fs::create_dir(path.join("man1")).unwrap();
    let (code, list, err) = run(path, "man man1");
    assert_eq!((code, err.as_str()), (0, ""), "{list}");
    for page in ["switchyard", "switchyard-serve", "switchyard-token-create", "switchyard-listen"] {
        assert!(list.contains(&format!("man1/{page}.1\n")), "{list}");
        let text = std::fs::read_to_string(path.join(format!("man1/{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")) && text.contains(".SH SYNOPSIS"), "{text}");
    }
    let listen = std::fs::read_to_string(path.join("man1/switchyard-listen.1")).unwrap();
    assert!(listen.contains("forward\\-to") && !listen.contains("key\\-file"), "{listen}");
    check_refusal(switchyard(path, "man nowhere"), 2, "there is no folder nowhere");
}

#[test]
fn a_demo_that_is_kept_can_be_looked_at_and_served() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let (code, out, err) = run(path, "demo --keep story");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for line in out.lines().filter_map(|line| line.trim().strip_prefix("switchyard ")) {
        if !line.starts_with("--") {
            let (code, said, err) = run(path, line);
            assert_eq!(code, 0, "{line}: {said}{err}");
        }
    }
    let serve = "--database-url sqlite://story/demo.db";
    assert!(out.contains(&format!("switchyard {serve}\n")), "{out}");
    let is_curl = |line: &&str| line.contains("curl -u") && line.contains("/transactions");
    let curl = out.lines().find(is_curl).unwrap();
    let user = curl.split_whitespace().nth(2).unwrap();
    let line = format!("{serve} --listen 127.0.0.1:0 --log-format json");
    let server = Server::start_with(switchyard(path, &line));
    let (status, body) = server.get("/2025-10-13/transactions", Some(user)).unwrap();
    assert_eq!(status, 200, "{body}");
    let payments: Value = serde_json::from_str(&body).unwrap();
    assert!(payments["data"].as_array().unwrap().len() >= 4, "{body}");
    server.stop();
    check_refusal(switchyard(path, "demo --keep story"), 2, "is there already");
    check_refusal(switchyard(path, "demo --keep a?b"), 2, "without ? # or %");
}

/// Sets an endpoint, tries it out, and gives the answer's status and body.
fn try_out(server: &Server, user: &str, receiver: &Receiver) -> (u16, Value) {
    let url = receiver.url("/hooks");
    let body = json!({ "webhookEndpoint": url }).to_string();
    let length = body.len();
    let mut stream = connect(&server.address).unwrap();
    let head = head("PATCH", "/2025-10-13/config", Some(user), "");
    let content = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
    write!(stream, "{head}{content}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(parsed(&answer).0, 200, "{answer}");
    let (status, body) = server.post("/2025-10-13/sandbox/webhooks/test", user, "{}");
    (status, serde_json::from_str(&body).unwrap())
}

#[test]
fn webhooks_reach_this_machine_only_from_a_server_that_no_one_else_reaches() {
    let everywhere = "--listen 0.0.0.0:0 --admin-listen 127.0.0.1:0";
    let allowed = "--listen 0.0.0.0:0 --admin-listen 127.0.0.1:0 --allow-private-webhooks";
    let shown = "--listen 0.0.0.0:0 --admin-listen 127.0.0.1:0 --allow-private-webhooks \
        --webhook-answer-bytes 3";
    let proxied = "--listen 127.0.0.1:0 --public-url https://pay.example.com";
    let named = "--listen 127.0.0.1:0 --uma-domain pay.example.com";
    let trusting = "--listen 127.0.0.1:0 --trust-forwarded-from 127.0.0.1";
    for (options, expected) in [
        ("--listen 127.0.0.1:0", Some("hello")),
        ("--listen 127.0.0.1:0 --webhook-answer-bytes 0", Some("")),
        (everywhere, None),
        (proxied, None),
        (named, None),
        (trusting, None),
        (allowed, Some("")),
        (shown, Some("hel")),
    ] {
        let folder = TempDir::new().unwrap();
        let line = format!("serve {options} --log-format json");
        let server = Server::start_with(switchyard(folder.path(), &line));
        let receiver = Receiver::start().unwrap();
        receiver.answer(Answer::status(202).body("hello"));
        let (status, body) = try_out(&server, &server.user(), &receiver);
        match expected {
            Some(part) => {
                assert_eq!((status, &body["response_body"]), (200, &json!(part)), "{options}");
            }
            None => {
                assert_eq!((status, &body["code"]), (400, &json!("WEBHOOK_DELIVERY_ERROR")));
                assert_eq!(receiver.connections(), 0, "{options}");
                assert_eq!(server.get("/metrics", None).unwrap().0, 404, "{options}");
                let reached_from = server.printed("reached from");
                assert_eq!(reached_from, "other machines", "{options}");
            }
        }
    }
}

#[test]
fn the_first_sign_of_another_machine_ends_that_a_server_is_local() {
    let header = |header: &'static str| {
        move |server: &Server, _: &Path| {
            let mut stream = connect(&server.address).unwrap();
            write!(stream, "GET /docs HTTP/1.1\r\nConnection: close\r\n{header}\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(parsed(&answer).0, 200, "{answer}");
        }
    };
    let configure = |server: &Server, _: &Path| {
        let body = json!({ "umaDomain": "pay.example.com" }).to_string();
        let mut stream = connect(&server.address).unwrap();
        let head = head("PATCH", "/2025-10-13/config", Some(&server.user()), "");
        let content = "Content-Type: application/json\r\nContent-Length";
        write!(stream, "{head}{content}: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(parsed(&answer).0, 200, "{answer}");
    };
    let create = |_: &Server, folder: &Path| {
        let line = "platform create --name other --uma-domain pay.example.com";
        assert_eq!(run(folder, line).0, 0);
    };
    type Sign<'a> = (&'a str, &'a dyn Fn(&Server, &Path), bool);
    let signs: [Sign<'_>; 6] = [
        ("nothing", &header("Host: 127.0.0.1:1"), false),
        ("a host", &header("Host: pay.example.com"), true),
        ("a header", &header("Host: localhost\r\nX-Forwarded-For: 203.0.113.7"), true),
        ("another header", &header("Host: localhost\r\nVia: 1.1 proxy"), true),
        ("a domain by its platform", &configure, true),
        ("a domain by the operator", &create, true),
    ];
    for (name, sign, ends) in signs {
        let folder = TempDir::new().unwrap();
        let server = Server::start(folder.path());
        let receiver = Receiver::start().unwrap();
        receiver.answer(Answer::status(202).body("hello"));
        let user = server.user();
        assert!(server.printed("reached from").starts_with("this machine only"));
        assert_eq!(try_out(&server, &user, &receiver).0, 200, "{name}");
        assert_eq!(server.get("/metrics", None).unwrap().0, 200, "{name}");
        let connections = receiver.connections();
        sign(&server, folder.path());
        let status = if ends { 404 } else { 200 };
        assert_eq!(server.get("/metrics", None).unwrap().0, status, "{name}");
        assert_eq!(server.get("/peer", None).unwrap().0, status, "{name}");
        let (tested, body) = server.post("/2025-10-13/sandbox/webhooks/test", &user, "{}");
        assert_eq!(tested, if ends { 400 } else { 200 }, "{name}: {body}");
        if ends {
            assert_eq!(receiver.connections(), connections, "{name}: it was reached");
        }
        let (_, log) = server.stop();
        let said = log.matches("not only this machine reaches this server").count();
        assert_eq!(said, usize::from(ends), "{name}: {log}");
    }
}

#[test]
fn operators_have_a_listener_if_its_port_is_free_or_was_asked_for() {
    let [first, second] = [(); 2].map(|()| TempDir::new().unwrap());
    let given = "serve --listen 127.0.0.1:0 --log-format json --admin-listen 127.0.0.1:0";
    let server = Server::start_with(switchyard(first.path(), given));
    let metrics = server.printed("metrics");
    let at = metrics.strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics")).unwrap();
    assert_ne!(at, server.address);
    assert_eq!(request(at, "GET", "/metrics", None, "").unwrap().0, 200);
    assert_eq!(server.get("/metrics", None).unwrap().0, 404, "it is there alone");
    let taken = format!("serve --listen 127.0.0.1:0 --admin-listen {at}");
    check_refusal(
        switchyard(second.path(), &taken),
        1,
        "choose another address with --admin-listen",
    );

    // Of two that ask for none, one has the usual port at most, and both start.
    let usual: Vec<_> = [&first, &second]
        .map(|folder| {
            Server::start_with(switchyard(
                folder.path(),
                "--listen 127.0.0.1:0 --database-url sqlite://other.db --log-format json",
            ))
        })
        .into();
    for server in &usual {
        assert_eq!(server.printed("metrics"), format!("http://{}/metrics", server.address));
        assert_eq!(server.get("/metrics", None).unwrap().0, 200);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_closes_stops_the_server_in_order() {
    let folder = TempDir::new().unwrap();
    // The parent of the tests may ignore the signal.
    let start = |hangup: &str| {
        let serve = switchyard(folder.path(), "--listen 127.0.0.1:0 --log-format json");
        let mut command = Command::new("env");
        command.arg(hangup).arg(serve.get_program()).args(serve.get_args());
        command.current_dir(folder.path());
        without_variables(&mut command);
        Server::start_with(command)
    };
    let server = start("--default-signal=HUP");
    server.signal("HUP");
    let (code, _, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("\"signal\":\"SIGHUP\"") && log.contains("\"stopped\""), "{log}");

    let server = start("--ignore-signal=HUP");
    server.signal("HUP");
    let (_, log) = server.stop();
    assert!(log.contains("\"signal\":\"SIGTERM\"") && !log.contains("SIGHUP"), "{log}");
}

#[cfg(unix)]
#[test]
fn a_process_that_may_open_too_few_files_says_so() {
    let folder = TempDir::new().unwrap();
    for line in ["--listen 127.0.0.1:0", "verify", "token list"] {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n 40; exec \"$0\" {line}"));
        command.arg(env!("CARGO_BIN_EXE_switchyard")).current_dir(folder.path());
        without_variables(&mut command);
        check_refusal(command, 2, "may have 40 files open at once");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "it left something behind");
}

/// What the owner and others may do with a file.
#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
#[test]
fn only_their_owner_can_read_the_files_whatever_the_umask() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let start = || {
        let server = switchyard(path, "--listen 127.0.0.1:0 --log-format json");
        let mut open = Command::new("sh");
        open.args(["-c", "umask 000 && exec \"$0\" \"$@\""]).current_dir(path);
        open.arg(server.get_program()).args(server.get_args());
        for (name, _) in server.get_envs() {
            open.env_remove(name);
        }
        Server::start_with(open)
    };
    let server = start();
    paste(&server.lines(), &[]);
    assert_eq!(run(path, "backup --to copy.db").0, 0);
    let all = ["switchyard.db", "switchyard.db-wal", "switchyard.db-shm", "switchyard.db.lock"];
    let check = |names: &[&str]| {
        for name in names {
            assert_eq!(mode(&path.join(name)), 0o600, "{name}");
        }
    };
    check(&all);
    check(&["switchyard.db.key", "copy.db"]);
    server.signal("KILL");
    server.ended();
    // What an older release has left to others is taken from them.
    for name in ["switchyard.db", "switchyard.db-wal"] {
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(path.join(name), open).unwrap();
    }
    let again = start();
    check(&all);
    drop(again);
}

#[test]
fn a_backup_that_is_killed_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    paste(&server.lines(), &[]);
    server.stop();
    let names = || {
        let entries = path.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|it| it.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let is_begun = || names().iter().any(|name| name.starts_with(".switchyard-copy-"));
    let mut killed = 0;
    for signal in ["KILL", "TERM", "KILL", "INT"] {
        let mut command = switchyard(path, "backup --to copy.db");
        let mut backup = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the copy", || (is_begun() || backup.try_wait().unwrap().is_some()).then_some(()));
        let line = format!("kill -{signal} {}", backup.id());
        let _ = Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status();
        if backup.wait().unwrap().success() {
            // It was done before it could be killed.
            std::fs::remove_file(path.join("copy.db")).unwrap();
            continue;
        }
        killed += 1;
        until("its removal", || (!is_begun()).then_some(()));
        assert!(!path.join("copy.db").exists());
    }
    assert!(killed > 0, "no backup was killed");
    let left = names();
    assert!(left.iter().all(|name| name.starts_with("switchyard.db")), "{left:?}");
    assert_eq!(run(path, "backup --to copy.db").0, 0);
}

#[test]
fn an_emptied_database_beside_its_key_is_refused_and_not_filled() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    Server::start(path).stop();
    let database = path.join("switchyard.db");
    // Nothing at all, and a database without a schema.
    for has_header in [false, true] {
        std::fs::remove_file(&database).unwrap();
        if has_header {
            let empty = rusqlite::Connection::open(&database).unwrap();
            empty.execute_batch("create table x (y); drop table x").unwrap();
        } else {
            std::fs::File::create(&database).unwrap();
        }
        let before = std::fs::read(&database).unwrap();
        for line in ["--listen 127.0.0.1:0", "platform create --name x --uma-domain x.example"] {
            check_refusal(switchyard(path, line), 1, "switchyard.db is empty, and its key");
        }
        assert_eq!(std::fs::read(&database).unwrap(), before, "it was filled");
    }
    // A journal without its tables is not taken for that of a new database.
    std::fs::remove_file(&database).unwrap();
    check_refusal(switchyard(path, "--listen 127.0.0.1:0"), 1, "is not there, and its journal");
    assert!(!database.exists(), "it was made");
    // A key that was made by a start had a database, whether that was removed, moved or is on a
    // volume that is not mounted.
    std::fs::remove_file(path.join("switchyard.db.journal")).unwrap();
    let start = "--listen 127.0.0.1:0";
    check_refusal(switchyard(path, start), 1, "switchyard.db is not there, and its key");
    let elsewhere = TempDir::new().unwrap();
    let key = path.join("switchyard.db.key");
    let start = format!("{start} --key-file {}", key.display());
    check_refusal(switchyard(elsewhere.path(), &start), 1, "switchyard.db is not there, and its");
    assert!(!database.exists() && !elsewhere.path().join("switchyard.db").exists());
    // One of another origin may have been brought for a new database.
    std::fs::write(&key, format!("{}\n", "ab".repeat(32))).unwrap();
    drop(Server::start(path));
}

#[test]
fn a_database_with_a_file_of_another_one_is_refused() {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = |folder: &TempDir, name: &str| folder.path().join(name);
    for folder in [&one, &other] {
        std::fs::write(path(folder, "switchyard.db.key"), "ab".repeat(32)).unwrap();
        let server = Server::start(folder.path());
        paste(&server.lines(), &[]);
        server.stop();
    }
    for name in ["switchyard.db", "switchyard.db.journal"] {
        let kept = path(&one, "kept");
        std::fs::rename(path(&one, name), &kept).unwrap();
        std::fs::copy(path(&other, name), path(&one, name)).unwrap();
        let (code, _, err) = run(one.path(), "--listen 127.0.0.1:0");
        assert_eq!(code, 1, "{name}: {err}");
        std::fs::rename(&kept, path(&one, name)).unwrap();
    }
    assert_eq!(run(one.path(), "verify --replay").0, 0);
}

/// A file that gets its log is changed once without one. What a kill leaves of that change is
/// rolled back by the next start, whatever reads the file first.
#[cfg(target_os = "linux")]
#[test]
fn a_first_start_that_is_killed_is_made_up_for_by_the_next() {
    for name in ["switchyard.db-journal", "switchyard.db.journal-journal"] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let rollback = path.join(name);
        let start = switchyard(&path, "--listen 127.0.0.1:0");
        let mut killed = Command::new("strace");
        killed.args(["-f", "-qq", "-o", "/dev/null", "-P"]).arg(&rollback);
        killed.args(["-e", "inject=unlink,unlinkat:signal=KILL:when=1"]);
        killed.arg(start.get_program()).args(start.get_args()).current_dir(&path);
        without_variables(&mut killed);
        killed.stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut killed) = killed.spawn() else {
            println!("nothing was tried: strace is not there");
            return;
        };
        until("the kill", || killed.try_wait().unwrap());
        if !rollback.exists() {
            println!("nothing was tried: strace may not trace anything");
            return;
        }
        for command in ["verify", "token list"] {
            let (_, _, err) = run(&path, command);
            assert!(!err.contains("readonly"), "{command} after a kill at {name}: {err}");
        }
        Server::start(&path).stop();
        assert_eq!(run(&path, "verify --replay").0, 0, "{name}");
    }
}

#[test]
fn a_database_url_may_come_from_a_file_and_its_password_is_never_shown() {
    let folder = TempDir::new().unwrap();
    let check = |url: &str, key_file: Option<&str>, code, part: &str| {
        let mut command = switchyard(folder.path(), "token list");
        command.env("SWITCHYARD_DATABASE_URL", url);
        command.envs(key_file.map(|file| ("SWITCHYARD_KEY_FILE", file)));
        let (exit, out, err) = finished(command.output().unwrap());
        assert_eq!((exit, out.as_str()), (code, ""), "{url:?}: {err}");
        assert!(err.contains(part), "{url:?}: {err}");
        for secret in ["Sup3r", "Tail"] {
            assert!(!err.contains(secret), "{url:?}: {err}");
        }
    };
    check("sqlite://live.db\n", None, 1, "there is no database at live.db: ");
    check(" sqlite://live.db \r\n", None, 1, "there is no database at live.db: ");
    check("sqlite://li\nve.db", None, 2, "has a line break");
    let away = "postgres://127.0.0.1:1/d?sslmode=disable&user=u&password=Sup3r@Tail\n";
    check(away, None, 1, "u@127.0.0.1:1/d");
    check("postgres://u:Sup3r@Tail@127.0.0.1:1/d?sslmode=disable", None, 1, "u@127.0.0.1:1/d");
    check("postgres://u:Sup3r/Tail@127.0.0.1:1/d", None, 2, "there is an @ behind a /");
    check("postgres://u@127.0.0.1:1/d?password=Sup3r&Tail", None, 2, "is not known");
    let mut start = switchyard(folder.path(), "--listen 127.0.0.1:0 --log-format json");
    start.env("SWITCHYARD_DATABASE_URL", "sqlite://live.db\n");
    start.env("SWITCHYARD_KEY_FILE", "live.key\n");
    Server::start_with(start).stop();
    let names = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.contains('\n')), "{names:?}");
    assert!(names.iter().any(|name| name == "live.key"), "{names:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn verify_says_that_it_cannot_read_from_a_mount_that_is_read_only() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let server = Server::start(path);
    paste(&server.lines(), &[]);
    assert_eq!(run(path, "backup --to copy.db").0, 0);
    server.signal("KILL");
    server.ended();
    std::fs::remove_file(path.join("switchyard.db-shm")).unwrap();
    let on_mount = |line: &str| {
        let command = switchyard(path, line);
        let script =
            "mount --bind -o ro . \"$PWD\" && cd \"$PWD\" && echo mounted && exec \"$0\" \"$@\"";
        let mut mounted = Command::new("unshare");
        mounted.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        mounted.current_dir(path).arg(command.get_program()).args(command.get_args());
        for (name, _) in command.get_envs() {
            mounted.env_remove(name);
        }
        finished(mounted.output().unwrap())
    };
    let (code, out, err) = on_mount("verify");
    if !out.starts_with("mounted\n") {
        println!("nothing was tried: users of this system may not mount anything");
        return;
    }
    assert_eq!((code, out.as_str()), (2, "mounted\n"), "{err}");
    assert!(err.contains("cannot be written to") && err.contains("-wal"), "{err}");
    // A backup needs no log, and can be checked there.
    let line = "verify --database-url sqlite://copy.db --key-file switchyard.db.key";
    let (code, out, err) = on_mount(line);
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn rates_are_shown_and_replaced_beside_a_server() {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    let write = |name: &str, rates: &str| std::fs::write(path.join(name), rates).unwrap();
    write(
        "rates.json",
        r#"{"asOf":"2025-11-21T00:00:00Z","currencies":{"EUR":{"usdPerUnit":"1.1"}}}"#,
    );
    let line = "--listen 127.0.0.1:0 --log-format json --rates-file rates.json";
    let mut command = switchyard(path, line);
    command.env("SWITCHYARD_CLIENT_ID", CLIENT_ID).env("SWITCHYARD_CLIENT_SECRET", CLIENT_SECRET);
    let server = Server::start_with(command);
    let user = format!("{CLIENT_ID}:{CLIENT_SECRET}");
    let as_of = || {
        let query = "/2025-10-13/exchange-rates?sourceCurrency=USD&destinationCurrency=EUR";
        let (status, body) = server.get(query, Some(&user)).unwrap();
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        body["data"][0]["updatedAt"].as_str().unwrap().to_owned()
    };
    assert_eq!(as_of(), "2025-11-21T00:00:00.000Z");
    let (code, shown, _) = run(path, "rates show --rates-file rates.json");
    assert_eq!(code, 0);
    assert!(shown.starts_with("as of 2025-11-21T00:00:00.000Z; "), "{shown}");
    for row in [["EUR", "1.1", "file"], ["USD", "1", "file"], ["GBP", "1.31", "built in"]] {
        let cells = |line: &str| line.split("  ").map(str::trim).collect::<Vec<_>>().concat();
        assert!(shown.lines().any(|line| cells(line) == row.concat()), "{row:?} in {shown}");
    }
    let set = |rates: &str| {
        write("new.json", rates);
        switchyard(path, "rates set new.json --rates-file rates.json")
    };
    // A file that does not say when the market was there, or lies, is not taken.
    let before = std::fs::read(path.join("rates.json")).unwrap();
    check_refusal(set("{}"), 2, "asOf is missing");
    check_refusal(set(r#"{"asOf":"2999-01-01T00:00:00Z"}"#), 2, "has not come");
    check_refusal(set(r#"{"asOf":"yesterday"}"#), 2, "asOf is \"yesterday\"");
    assert_eq!(std::fs::read(path.join("rates.json")).unwrap(), before);
    let new = r#"{"asOf":"2025-11-22T00:00:00Z","currencies":{"EUR":{"usdPerUnit":"1.2"}}}"#;
    let (code, _, err) = finished(set(new).output().unwrap());
    assert_eq!(code, 0, "{err}");
    until("the new rates", || (as_of() == "2025-11-22T00:00:00.000Z").then_some(()));
    let measured = |line: &str| {
        let (_, metrics) = server.get("/metrics", None).unwrap();
        metrics.lines().any(|it| it.starts_with(line)).then_some(())
    };
    until("the age", || measured("switchyard_rates_age_seconds "));
    until("a file that is used", || measured("switchyard_rates_file_refused 0"));
    // A file that is broken in its place leaves the rates as they were.
    write("rates.json", "{");
    until("a file that is not used", || measured("switchyard_rates_file_refused 1"));
    assert_eq!(as_of(), "2025-11-22T00:00:00.000Z");
    let (_, log) = server.stop();
    assert_eq!(log.matches("the file of rates cannot be used").count(), 1, "{log}");
}
