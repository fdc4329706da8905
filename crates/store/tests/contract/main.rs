//! The contract of an engine: one suite, run on each.
//!
//! A test is a function over a [`Provider`] and says nothing about the engine behind it. Another
//! engine is another provider and one line at the end of this file.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "../support/mod.rs"]
mod support;

mod statements;
mod records;
mod units;
mod group_commit;
mod durability;
mod tampered;
mod money;
mod lists;
mod events;
mod histories;
mod following;
mod timers;
mod opening;
mod files;
mod moving;
mod keys;

use std::path::PathBuf;

use store::engine::Engine;
use store::unit::Unit;
use store::{PostgresServer, SqliteFile};
use store::{Store, Threads};
use testbed::postgres::Database;

use self::support::{
    Refused, Result, journal_of, keyring, open_files, origin, plan_on_server, platform,
};

/// A database for one test.
pub trait Provider: Send + 'static {
    /// Whether the engine is in the process that uses it.
    const IS_EMBEDDED: bool;

    /// A new and empty one, which lasts as long as the value.
    fn new() -> Self;

    /// The way to it.
    fn engine(&self) -> Box<dyn Engine>;

    /// Everything that it has written where others could read it.
    fn bytes(&self) -> Vec<u8>;

    /// Runs statements behind the store's back.
    fn run(&self, sql: &str);

    /// Removes what a copy of the main part alone would not have.
    fn lose_side_files(&self);

    /// The steps of the plan for a statement, whatever its parameters are, as if there were many
    /// rows. Each step is one line.
    fn plan(&self, sql: &str) -> String;
}

/// The embedded engine.
pub struct Sqlite {
    directory: tempfile::TempDir,
}

impl Sqlite {
    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }
}

impl Provider for Sqlite {
    const IS_EMBEDDED: bool = true;

    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(SqliteFile::new(&self.path()))
    }

    fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.directory.path()).unwrap();
        files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
    }

    fn run(&self, sql: &str) {
        open_files(&self.path()).unwrap().execute_batch(sql).unwrap();
    }

    fn lose_side_files(&self) {
        for file in std::fs::read_dir(self.directory.path()).unwrap() {
            let path = file.unwrap().path();
            if path != self.path() && path != journal_of(&self.path()) {
                std::fs::remove_file(path).unwrap();
            }
        }
    }

    fn plan(&self, sql: &str) -> String {
        let connection = open_files(&self.path()).unwrap();
        let mut plan = connection.prepare(&format!("explain query plan {sql}")).unwrap();
        let unknown = vec![rusqlite::types::Null; plan.parameter_count()];
        let steps = plan.query_map(rusqlite::params_from_iter(unknown), |row| row.get(3)).unwrap();
        steps.collect::<rusqlite::Result<Vec<String>>>().unwrap().join("\n")
    }
}

/// A database on a real server.
pub struct Postgres(Database);

impl Provider for Postgres {
    const IS_EMBEDDED: bool = false;

    fn new() -> Self {
        Self(Database::fresh())
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(PostgresServer::new(&self.0.url()).unwrap())
    }

    fn bytes(&self) -> Vec<u8> {
        let tables = "select string_agg(table_name, ' ') from information_schema.tables \
            where table_schema = 'public'";
        let tables = self.0.query(tables).unwrap();
        let all = tables.split_whitespace().map(|table| {
            // Letters among the bytes are shown as letters.
            let rows = format!("select string_agg(t::text, '') from {table} t");
            self.0.query(&format!("set bytea_output = 'escape'; {rows}")).unwrap()
        });
        all.collect::<String>().into_bytes()
    }

    fn run(&self, sql: &str) {
        self.0.query(sql).unwrap();
    }

    fn lose_side_files(&self) {}

    fn plan(&self, sql: &str) -> String {
        // Without these settings, the planner would scan and sort a table that has no rows.
        plan_on_server(&self.0, "enable_seqscan enable_bitmapscan enable_sort", sql)
    }
}

/// A store that is open, with its database.
pub struct Opened<P> {
    /// The database.
    pub provider: P,
    /// The store.
    pub store: Store,
    threads: Threads,
}

/// Opens a store on a new database.
pub fn open<P: Provider>() -> Opened<P> {
    open_again(P::new())
}

/// Opens a store on a new database with the platform 1 in it.
pub async fn open_with_platform<P: Provider>() -> Opened<P> {
    let opened = open::<P>();
    opened
        .write(|unit| {
            unit.put(platform(1));
            Ok(())
        })
        .await;
    opened
}

/// Opens a store on a database that may hold something.
pub fn open_again<P: Provider>(provider: P) -> Opened<P> {
    let (store, threads) = Store::open(&*provider.engine(), keyring()).unwrap();
    Opened { provider, store, threads }
}

impl<P: Provider> Opened<P> {
    /// Closes the store and keeps the database.
    pub fn close(self) -> P {
        drop(self.store);
        self.threads.join();
        self.provider
    }

    /// Closes the store and opens it again.
    pub fn reopen(self) -> Self {
        open_again(self.close())
    }

    /// Writes, and wants that it succeeds.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Unit<'_, '_>) -> Result<T> + Send + 'static,
    ) -> T {
        self.store.write(origin(), work).await.unwrap()
    }

    /// Writes, and wants that it is refused.
    pub async fn refused(
        &self,
        work: impl FnMut(&mut Unit<'_, '_>) -> Result + Send + 'static,
    ) -> Refused {
        self.store.write(origin(), work).await.unwrap_err()
    }

    /// Reads.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut store::reader::View<'_>) -> Result<T> + Send + 'static,
    ) -> T {
        self.store.read(read).await.unwrap()
    }
}

macro_rules! tests {
    ($provider:ty; $($room:ident: $($test:ident)+;)+) => {
        $(
            mod $room {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $test() {
                        crate::$room::$test::<$provider>().await;
                    }
                )+
            }
        )+
    };
}

macro_rules! suite {
    ($engine:ident, $provider:ty) => {
        mod $engine {
            tests! {
                $provider;
                statements: the_engine_accepts_every_statement
                    lists_read_one_run_of_an_index_each;
                records: every_record_comes_back_as_it_was_written
                    changed_records_come_back_as_they_were_changed
                    a_key_that_is_not_cached_has_its_answer
                    answers_come_back
                    outdated_answers_are_removed
                    what_was_never_written_is_not_there;
                units: a_unit_sees_those_before_it_in_its_batch
                    a_refused_unit_leaves_nothing
                    a_panicking_unit_leaves_nothing_and_its_neighbours_commit
                    what_cannot_be_sealed_fails_alone
                    a_discarded_change_is_not_written;
                group_commit: many_writes_at_once_are_all_durable
                    reads_never_wait_for_the_writer
                    many_point_reads_at_once_each_get_their_row
                    a_read_sees_what_was_written_before_it
                    a_payment_is_never_older_than_what_was_answered
                    a_full_queue_says_so
                    requests_go_before_jobs_and_jobs_follow
                    a_caller_who_goes_away_changes_nothing_about_the_effect
                    a_read_that_panics_is_an_error_and_the_next_one_works
                    a_read_after_one_that_panicked_sees_what_was_written_since
                    timers_that_are_set_wake_their_job;
                durability: units_see_what_is_being_written_and_are_answered_after_it
                    units_that_wait_share_a_commit
                    an_answer_that_is_being_written_is_given_again_after_it
                    a_payment_that_is_being_changed_is_as_the_database_has_it
                    a_record_that_a_table_refuses_keeps_no_other_away;
                money: what_is_pended_is_posted_or_voided_once counters_outgrow_64_bits
                    what_is_not_there_cannot_be_taken
                    many_who_drain_one_account_take_what_was_on_it
                    a_batch_of_units_has_one_balance;
                lists: pages_follow_one_another_in_both_orders
                    lists_show_one_platform_only
                    every_filter_of_customers
                    every_filter_of_tokens
                    every_filter_of_external_accounts
                    every_filter_of_transactions
                    lists_of_payments_are_those_of_a_model
                    payments_that_come_late_are_listed
                    a_long_list_has_no_total
                    a_list_of_many_accounts_is_counted
                    every_filter_of_quotes
                    tokens_are_found_by_their_client_id
                    events_come_in_their_order;
                events: events_come_page_by_page every_event_is_found_at_its_place_and_time
                    an_event_about_an_erased_person_comes_with_another_body
                    deliveries_are_due_behind_those_before_them;
                histories: every_read_sees_what_was_acknowledged;
                following: a_list_has_what_was_acknowledged_before_it
                    lost_payments_are_named_if_a_reader_meets_the_loss_first
                    tables_far_behind_follow_in_steps_that_are_kept
                    times_of_the_journal_never_go_back;
                timers: timers_are_set_moved_and_cleared due_timers_come_in_order
                    a_clock_that_is_moved_on_brings_its_timers_nearer
                    what_ends_is_due_by_its_platforms_clock
                    a_clock_brings_each_of_many_timers_nearer;
                opening: another_key_is_refused
                    a_database_of_an_earlier_build_is_refused
                    a_newer_schema_is_refused
                    reopening_keeps_everything
                    a_closed_database_is_complete_in_its_main_part
                    sealed_columns_show_no_plain_text
                    the_address_of_a_server_counts_for_no_other
                    an_edited_row_is_named_by_its_table_and_key;
                keys: a_database_opens_with_the_key_of_its_server
                    servers_that_begin_at_once_have_one_secret
                    another_key_takes_the_place_of_the_servers
                    rows_of_the_journal_are_sealed_with_its_newest_key
                    everything_is_sealed_anew_beside_servers
                    sealing_anew_that_dies_anywhere_goes_on
                    a_server_that_was_away_while_all_was_sealed_anew_changes_nothing
                    a_database_that_is_being_sealed_anew_moves
                    an_erased_customer_is_in_no_page;
                moving: everything_moves_there_and_back
                    a_copy_goes_on_from_where_it_was_interrupted
                    a_source_that_changed_is_copied_anew
                    what_was_damaged_on_its_way_is_found_and_never_opened
                    a_target_that_holds_anything_is_refused
                    a_source_that_is_used_empty_unsound_or_sealed_otherwise_is_refused;
            }
        }
    };
}

suite!(sqlite, crate::Sqlite);
suite!(postgres, crate::Postgres);

/// A command beside the server writes to the file.
mod one_file {
    tests! {
        crate::Sqlite;
        durability: what_another_process_wrote_is_seen;
    }
}

/// Several nodes share a database, and sessions with it end.
mod several_nodes {
    tests! {
        crate::Postgres;
        durability: what_another_node_wrote_before_is_seen
            what_comes_before_the_write_lock_is_part_of_the_batch
            a_batch_that_conflicts_runs_again
            a_batch_whose_connection_is_lost_at_the_commit_runs_again
            a_commit_in_a_session_that_ended_is_made_once;
    }
}
