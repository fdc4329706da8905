//! Asks: does the writer thread find rows by their keys, and do lists go along their indexes,
//! whatever the tables looked like when the server planned its statements? Does what goes through a
//! whole table have the time for it?

use std::time::Duration;

use store::PostgresServer;
use store::engine::Engine as _;
use store::error::StoreError;
use store::sql::Value;
use store::timers::TimerKind;
use testbed::postgres::Database;
use testbed::wait;

use crate::Served;
use crate::support::*;

/// Tables that payments change.
const CHANGED: &str = "'transactions', 'ledger_accounts', 'postings', 'timers'";

/// Payments of the test. The server plans the first five times for what is asked, and may keep to
/// one plan then.
const PAYMENTS: u128 = 20;

/// How long the server may take to end sessions.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until all sessions have ended, which is when they report their statistics.
fn all_have_ended(database: &Database) {
    let sessions = "select count(*) from pg_stat_activity \
                    where datname = current_database() and pid <> pg_backend_pid()";
    let ended = || Ok((database.query(sessions)?.trim() == "0").then_some(()));
    wait::until("all sessions have ended", PATIENCE, ended).unwrap();
}

/// How often one of these tables was read from one end to the other.
fn scans(database: &Database) -> i64 {
    all_have_ended(database);
    let sum = format!("select sum(seq_scan) from pg_stat_user_tables where relname in ({CHANGED})");
    database.query(&sum).unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_is_read_from_end_to_end_to_change_a_row() {
    let database = Database::fresh();
    let served = Served::open(&database.url());
    served.set_up().await;
    served.close();
    let before = scans(&database);
    let served = Served::open(&database.url());
    for number in 1..=PAYMENTS {
        served.pay(number).await.unwrap();
        let set = served.store.write(origin(), move |unit| {
            unit.set_timer(timer(uuid(number), TimerKind::AskRail, at(1), at(0)));
            Ok::<_, StoreError>(())
        });
        set.await.unwrap();
        let clear = served.store.write(origin(), move |unit| {
            unit.clear_timer((uuid(number), TimerKind::AskRail));
            Ok::<_, StoreError>(())
        });
        clear.await.unwrap();
    }
    served.assert_paid(1..PAYMENTS + 1).await;
    served.close();
    assert_eq!(scans(&database), before);
}

/// The tables that have lists or feeds.
const LISTED: [&str; 7] =
    ["tokens", "customers", "external_accounts", "quotes", "transactions", "events", "deliveries"];

/// Whether a statement reads a list or a feed along an index. An address has one customer, whom no
/// order is wanted of.
fn is_of_a_list(sql: &str) -> bool {
    (sql.contains(" and id between ") || sql.contains(" and kind = $2 and ordinal > "))
        && !sql.contains("where uma_address = ")
}

/// Many rows of one platform, which are all alike, as the server knows after it has looked at them.
/// Nothing is vacuumed yet, so that it takes reading an index alone to be as expensive as reading
/// the table as well.
fn fill(database: &Database, table: &str, rows: u32) {
    let values = format!(
        "select string_agg(case when column_name = 'id' \
         then 'decode(lpad(to_hex(number), 32, ''0''), ''hex'')' \
         when column_name = 'ordinal' then 'number' \
         when data_type = 'bytea' then '''\\x01''::bytea' when data_type = 'bigint' then '1' \
         else '''A''' end, ', ' order by ordinal_position) \
         from information_schema.columns where table_name = '{table}'"
    );
    let values = database.query(&values).unwrap();
    let fill = format!(
        "truncate {table}; \
         insert into {table} select {} from generate_series(1, {rows}) as number; analyze {table}",
        values.trim()
    );
    database.query(&fill).unwrap();
}

/// What the planner does not do in sessions of ours (docs/postgresql.md).
const OFF: &str = "enable_seqscan enable_hashjoin enable_mergejoin enable_hashagg jit";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_go_along_their_indexes_however_alike_rows_are() {
    let database = Database::fresh();
    Served::open(&database.url()).close();
    let mut lists = store::statements();
    lists.retain(|sql| is_of_a_list(sql));
    assert!(lists.len() > 50, "{}", lists.len());
    for rows in [2_000, 50_000] {
        for table in LISTED {
            fill(&database, table, rows);
        }
        for sql in &lists {
            let plan = plan_on_server(&database, OFF, sql);
            let is_along_an_index = plan.contains("Index")
                && ["_pkey", "Seq Scan", "Filter: "].iter().all(|wrong| !plan.contains(wrong));
            assert!(is_along_an_index, "{rows} rows: {sql}\n{plan}");
        }
    }
}

#[test]
fn a_command_has_time_to_read_a_whole_table() {
    let database = Database::fresh();
    let server = PostgresServer::new(&database.url()).unwrap();
    let time_of = |server: &PostgresServer| {
        let (mut reader, mut time) = (server.reader().unwrap(), None);
        reader.begin_read().unwrap();
        let shown = "select current_setting('statement_timeout')";
        let mut keep = |values: Vec<Value>| {
            time = values.into_iter().next();
            Ok(())
        };
        reader.query(shown, &[], 1, &mut keep).unwrap();
        time
    };
    assert_eq!(time_of(&server), Some(Value::name("5s")));
    assert_eq!(time_of(&server.for_a_command()), Some(Value::name("1h")));
}
