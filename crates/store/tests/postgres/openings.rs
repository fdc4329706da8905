//! Asks: which databases are refused, and does the line say what to do?

use std::io::Write as _;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testbed::postgres::{Cluster, Database, Replication, shared};
use tokio_postgres::NoTls;

use crate::Served;

fn check(url: &str, what: &str) {
    let refused = Served::try_open(url).err().unwrap().to_string();
    assert!(refused.contains(what), "{refused}");
    assert!(!refused.contains('\n') && !refused.contains("s3cret"), "{refused}");
}

#[test]
fn a_server_or_database_that_is_not_there_is_refused() {
    check("postgres://me:s3cret@127.0.0.1:1/live", "127.0.0.1:1: error connecting to server");
    check(&shared().url_of("nowhere"), "create database nowhere");
}

#[test]
fn a_server_that_could_lose_what_it_acknowledges_is_refused() {
    for setting in ["fsync", "full_page_writes"] {
        let cluster = Cluster::start_with(&[(setting, "off")]).unwrap();
        check(&cluster.server().url_of("postgres"), &format!("{setting} is off"));
        cluster.set(setting, "on").unwrap();
    }
}

#[test]
fn a_database_that_cannot_hold_every_text_is_refused() {
    let server = shared();
    let make = "create database latin encoding latin1 template template0 locale 'C'";
    server.query("drop database if exists latin").unwrap();
    server.query(make).unwrap();
    check(&server.url_of("latin"), "encoding is LATIN1");
    server.query("drop database latin").unwrap();
}

#[test]
fn a_database_that_was_not_restored_whole_is_refused() {
    for lost in ["drop table quotes cascade", "alter table timers drop column due_at cascade"] {
        let named = lost.split(' ').nth(2).unwrap();
        let database = Database::fresh();
        Served::open(&database.url()).close();
        database.query(lost).unwrap();
        check(&database.url(), &format!("table {named} is not there as this program needs it"));
    }
}

#[test]
fn a_role_that_may_not_make_tables_is_refused() {
    let database = Database::fresh();
    let role = database.name();
    database.query(&format!("create role {role} login")).unwrap();
    let url = database.url().replace("switchyard@", &format!("{role}@"));
    check(&url, "grant create on schema public");
    database.query(&format!("drop role {role}")).unwrap();
}

/// Keeps what a setting is in a session that adds a customer.
fn note(setting: &str) -> String {
    format!(
        "create table noted (value text); \
         grant insert on noted to public; \
         create function note() returns trigger language plpgsql as $$ begin \
         insert into noted values (current_setting('{setting}')); return new; end $$; \
         create trigger note before insert on customers for each row execute function note()"
    )
}

/// Reads the settings that were noted.
const NOTED: &str = "select distinct value from noted";

/// The value of a setting in the write session of a store on a new database.
async fn noted(database: &Database, url: &str, setting: &str) -> String {
    Served::open(url).close();
    database.query(&note(setting)).unwrap();
    let served = Served::open(url);
    served.set_up().await;
    served.close();
    database.query(NOTED).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_in_the_log_are_compressed_if_we_may_decide_that() {
    let database = Database::fresh();
    let best = "select case when 'lz4' = any (enumvals) then 'lz4' else 'on' end \
                from pg_settings where name = 'wal_compression'";
    let best = database.query(best).unwrap();
    assert_eq!(noted(&database, &database.url(), "wal_compression").await, best);

    let database = Database::fresh();
    let role = database.name();
    let make = format!("create role {role} login; grant create on schema public to {role}");
    database.query(&make).unwrap();
    let url = database.url().replace("switchyard@", &format!("{role}@"));
    assert_eq!(noted(&database, &url, "wal_compression").await, "off");
    // As the documents advise.
    database.query(&format!("alter role {role} set wal_compression = 'pglz'")).unwrap();
    database
        .query("truncate noted; truncate customers cascade; truncate platforms cascade")
        .unwrap();
    let served = Served::open(&url);
    served.set_up().await;
    served.close();
    assert_eq!(database.query(NOTED).unwrap(), "pglz");
}

/// Starting one takes a hundred times what a request asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_has_parallel_workers_started() {
    let database = Database::fresh();
    let workers = noted(&database, &database.url(), "max_parallel_workers_per_gather").await;
    assert_eq!(workers, "0");
}

/// It is as large as the planner's guess, which is thousands of groups where there are two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_has_a_table_of_groups_made() {
    let database = Database::fresh();
    assert_eq!(noted(&database, &database.url(), "enable_hashagg").await, "off");
}

/// The tables with settings of their own, each with what it has.
const SETTINGS: &str = "select relname || ' ' || array_to_string(reloptions, ',') from pg_class \
     where relkind = 'r' and reloptions is not null \
     and relnamespace = current_schema()::regnamespace order by relname";

#[test]
fn tables_that_grow_with_payments_are_seldom_analyzed() {
    let database = Database::fresh();
    Served::open(&database.url()).close();
    let all = database.query(SETTINGS).unwrap();
    let tables = ["deliveries", "events", "idempotency", "journal", "ledger_accounts", "postings"];
    let tables = tables.into_iter().chain(["quotes", "timers", "transactions"]);
    let seldom = "autovacuum_analyze_scale_factor=1,autovacuum_analyze_threshold=100000";
    let expected: Vec<_> = tables.map(|table| format!("{table} {seldom}")).collect();
    assert_eq!(all.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_standby_is_refused() {
    let primary = Cluster::start().unwrap();
    let replica = primary.replica(Replication::Asynchronous).unwrap();
    check(&replica.server().url_of("postgres"), "it is a standby, which only reads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_waits_in_vain_for_a_locked_table_says_why() {
    let database = Database::fresh();
    let url = database.url();
    Served::open(&url).close();
    let (session, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    session.batch_execute("begin; lock table refinery_schema_history").await.unwrap();
    check(&url, "a table is in use, perhaps by pg_dump: start again");
    session.batch_execute("rollback").await.unwrap();

    session.batch_execute("begin; lock table meta").await.unwrap();
    check(&url, "pg_locks shows which session holds the lock");
    session.batch_execute("rollback").await.unwrap();
}

/// Which users may connect, and how.
const RULES: &str = "hostssl all guest 127.0.0.1/32 scram-sha-256\n\
    hostssl all all 127.0.0.1/32 trust\n";

/// An authority, and a key with a certificate from it for `localhost`.
struct Issued {
    /// The authority's certificate, in a file.
    roots: tempfile::NamedTempFile,
    certificate: String,
    key: String,
}

impl Issued {
    fn new() -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap());
        let authority = authority.unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &authority).unwrap().pem();
        let mut roots = tempfile::NamedTempFile::new().unwrap();
        roots.write_all(authority.pem().as_bytes()).unwrap();
        Self { roots, certificate, key: key.serialize_pem() }
    }

    /// A server with this certificate that refuses sessions without encryption.
    fn serve(&self) -> Cluster {
        let files = [
            ("server.crt", self.certificate.as_str()),
            ("server.key", self.key.as_str()),
            ("pg_hba.conf", RULES),
        ];
        Cluster::start_with_files(&[("ssl", "on")], &files).unwrap()
    }

    fn file(&self) -> String {
        self.roots.path().display().to_string()
    }
}

#[test]
fn a_server_proves_as_much_as_the_url_asks_for() {
    let (issued, other) = (Issued::new(), Issued::new());
    let cluster = issued.serve();
    let (port, right, wrong) = (cluster.port(), issued.file(), other.file());
    let url =
        |host: &str, rest: &str| format!("postgres://switchyard@{host}:{port}/postgres{rest}");
    let trusted = |host: &str, rest: &str| {
        Served::try_open(&url(host, rest)).unwrap();
    };
    // The name is in the certificate, the address is not.
    trusted("localhost", &format!("?sslmode=verify-full&sslrootcert={right}"));
    trusted("127.0.0.1", &format!("?sslmode=verify-ca&sslrootcert={right}"));
    trusted("127.0.0.1", &format!("?sslmode=require&sslrootcert={right}"));
    trusted("127.0.0.1", "?sslmode=require");
    trusted("127.0.0.1", "?sslmode=prefer");
    trusted("127.0.0.1", "");
    let named = format!("?sslmode=verify-full&sslrootcert={right}");
    check(&url("127.0.0.1", &named), "certificate not valid for name");
    for mode in ["require", "verify-ca", "verify-full"] {
        let unknown = format!("?sslmode={mode}&sslrootcert={wrong}");
        check(&url("localhost", &unknown), "invalid peer certificate");
    }
    check(&url("127.0.0.1", "?sslmode=disable"), "no encryption");
    let plain = shared().url_of("postgres");
    check(&format!("{plain}?sslmode=require"), "server does not support TLS");
}

#[test]
fn a_wrong_password_is_refused_and_not_repeated() {
    let cluster = Issued::new().serve();
    cluster.server().query("create role guest login superuser password 'right'").unwrap();
    let url = |password: &str| {
        let url = cluster.server().url_of("postgres");
        // The password is bound to the encrypted connection: a man in the middle cannot reuse it.
        url.replace("switchyard@", &format!("guest:{password}@")) + "?channel_binding=require"
    };
    check(&url("s3cret"), "check user and password of the URL");
    Served::try_open(&url("right")).unwrap();
}
