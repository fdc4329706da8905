//! The soundness of PostgreSQL's own files, as far as it is known without reading all of them.

/// Queries for damaged objects, each with the fault of those that it finds.
pub(super) const CHECKS: [(&str, &str); 3] = [
    (
        "select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid \
         where c.relnamespace = current_schema()::regnamespace \
         and not (i.indisvalid and i.indisready and i.indislive)",
        "is an index that is not kept or not used: reindex it",
    ),
    (
        "select conname from pg_constraint where not convalidated \
         and connamespace = current_schema()::regnamespace",
        "is a constraint that old rows were not held to: validate it",
    ),
    (
        "select datname from pg_stat_database \
         where datname = current_database() and checksum_failures > 0",
        "has pages whose checksums were wrong when they were read: see the log of the server",
    ),
];

/// Every index that the extension `amcheck` can look through, if it is there and we may use it.
pub(super) const INDEXES: &str = "select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid \
     join pg_am a on a.oid = c.relam \
     where a.amname = 'btree' and i.indisvalid and i.indisready \
     and c.relnamespace = current_schema()::regnamespace \
     and exists (select 1 from pg_proc p where p.proname = 'bt_index_check' and p.pronargs = 2 \
     and pg_function_is_visible(p.oid) and has_function_privilege(p.oid, 'execute')) \
     order by c.relname";

/// Looks through an index, and whether every row of its table is in it.
pub(super) const CHECK_INDEX: &str = "select bt_index_check($1::text::regclass, true)";

/// A place to go back to.
pub(super) const BEFORE_INDEX: &str = "savepoint before_index";

/// Goes back to it.
pub(super) const AFTER_DAMAGE: &str = "rollback to before_index";
