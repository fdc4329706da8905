//! Servers on PostgreSQL as their operator meets them: keys, passwords, several at once.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;
use testbed::instance::{Installation, without_variables};
use testbed::postgres::Database;
use testbed::recorder::{Api, Load, Recorder};

/// Thirty-two bytes that everybody knows.
const KEY: &str = "abababababababababababababababababababababababababababababababab";

/// A command in `folder`, without what the environment of the tests says.
fn switchyard(folder: &Path, url: &str, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchyard"));
    without_variables(&mut command);
    command.env("SWITCHYARD_DATABASE_URL", url).env("SWITCHYARD_LOG", "trace");
    command.current_dir(folder).args(line.split_whitespace()).output().unwrap()
}

fn check(folder: &Path, url: &str, line: &str, code: i32, part: &str) {
    let Output { status, stdout, stderr } = switchyard(folder, url, line);
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert_eq!(status.code(), Some(code), "{said}");
    assert!(said.contains(part), "{part} is missing in {said}");
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn commands_work_on_a_server_and_tell_no_password() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let database = Database::fresh();
    // It is not asked for here, but it is in the URL.
    let url = database.url().replace("switchyard@", "switchyard:s3cret@");
    check(folder.path(), &url, "platform list", 1, "there is no database at postgres://");
    check(folder.path(), &url, "verify", 2, "there is no database at postgres://");
    let create = "platform create --name first --uma-domain pay.test";
    check(folder.path(), &url, create, 0, "PlatformConfig:");
    assert!(folder.path().join("switchyard.key").is_file());
    check(folder.path(), &url, "platform list", 0, "first");
    check(folder.path(), &url, "verify", 0, " 0 broken, 0 skipped");
    // Another machine has no key yet, or a wrong one.
    check(elsewhere.path(), &url, "platform list", 1, "copy it from the server that made it");
    check(elsewhere.path(), &url, "verify", 0, " 0 broken, 7 skipped (it needs the key)");
    std::fs::write(elsewhere.path().join("switchyard.key"), KEY).unwrap();
    check(elsewhere.path(), &url, "platform list", 1, "the key is not the one");
    let key = folder.path().join("switchyard.key");
    std::fs::copy(key, elsewhere.path().join("switchyard.key")).unwrap();
    check(elsewhere.path(), &url, "platform list", 0, "first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_reach_each_other_where_the_operator_does() {
    let database = Database::fresh();
    let installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database.url());
    let installation = installation.with("SWITCHYARD_SECRET_KEY", KEY);
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let admins = listeners.map(|listener| listener.local_addr().unwrap().to_string());
    let servers = admins
        .each_ref()
        .map(|admin| installation.clone().with("SWITCHYARD_ADMIN_LISTEN", admin).start().unwrap());
    let api = Api::new(&servers.each_ref().map(|server| server.base())).unwrap();
    api.ready().await.unwrap();
    let recorder = Recorder::set_up(api).await.unwrap();
    let load = Load::start(&recorder, 4);
    recorder.more(200).await.unwrap();
    load.stop().await.unwrap();
    recorder.settled().await.unwrap();
    let report = recorder.check().await.unwrap();
    assert_eq!(report.lost, 0, "{report}");
    let http = testbed::recorder::http(Duration::from_secs(10)).unwrap();
    let get = async |url: String| http.get(url).send().await.unwrap();
    let mut forwarded = 0;
    for (admin, server) in admins.iter().zip(&servers) {
        let metrics = get(format!("http://{admin}/metrics")).await;
        let metrics = metrics.text().await.unwrap();
        let answered = "switchyard_forwarded_requests_total{outcome=\"answered\"} ";
        forwarded += metrics.lines().filter(|line| line.starts_with(answered)).count();
        for path in ["metrics", "peer"] {
            let answer = get(format!("{}/{path}", server.base())).await;
            assert_eq!(answer.status(), 404, "{path}");
        }
    }
    assert!(forwarded > 0, "nothing was forwarded");
    drop(servers);
    installation.verify().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_share_a_database_answer_as_one() {
    let database = Database::fresh();
    let installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database.url());
    let installation = installation.with("SWITCHYARD_SECRET_KEY", KEY);
    // Both find the database empty.
    let (one, two) = (installation.start().unwrap(), installation.start().unwrap());
    let api = Api::new(&[one.base(), two.base()]).unwrap();
    api.ready().await.unwrap();
    let platforms = database.query("select count(*) from platforms").unwrap();
    assert_eq!(platforms, "1", "only one of them makes the first platform");
    let recorder = Recorder::set_up(api).await.unwrap();
    let load = Load::start(&recorder, 8);
    recorder.more(200).await.unwrap();
    load.stop().await.unwrap();
    recorder.settled().await.unwrap();
    let report = recorder.check().await.unwrap();
    assert_eq!(report.lost, 0, "{report}");
    drop((one, two));
    installation.verify().unwrap();
}
