//! How often the server looks through tables to know what is in them.
//!
//! Out of the box it does so whenever a tenth of a table has changed, which in those that grow
//! with every payment is each minute for as long as they are young. It takes seconds of a core, for
//! which requests wait, and what it finds changes no plan of theirs (docs/performance.md).
//!
//! This is no part of the schema: engines with the same protocol that do without such settings
//! refuse them, and nothing depends on it.

/// The tables that grow or change with every payment and are as they came.
pub(super) const TABLES_AS_THEY_CAME: &str = "select relname from pg_class \
     where relkind = 'r' and reloptions is null \
     and relnamespace = current_schema()::regnamespace \
     and relname in ('transactions', 'quotes', 'ledger_accounts', 'postings', 'events', \
     'timers', 'idempotency', 'deliveries') order by relname";

/// Has the server look through a table once it has twice the rows, or was changed as often, and not
/// before a hundred thousand changes, which is half a minute of full load.
pub(super) fn seldom(table: &str) -> String {
    format!(
        "alter table {table} set \
         (autovacuum_analyze_scale_factor = 1, autovacuum_analyze_threshold = 100000)"
    )
}
