//! Databases of every engine that can be damaged behind the store's back.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use store::catalogue;
use store::engine::{Engine, NewTables};
use store::error::StoreError;
use store::keyring::Keyring;
use store::sql::{Connection, Shape, Value, Write};
use store::verify::{Report, verify};
use store::{PostgresServer, SqliteFile};
use tempfile::TempDir;
use testbed::postgres::Database;

use crate::support::{journal_of, keyring, open_files};

/// Lets a statement write what the schema refuses, on PostgreSQL.
const UNCHECKED: &str = "do $$ declare found record; begin \
    for found in select conrelid::regclass as place, conname from pg_constraint \
    where contype = 'c' and connamespace = 'public'::regnamespace loop \
    execute format('alter table %s drop constraint %I', found.place, found.conname); \
    end loop; end $$";

/// Functions of SQLite that damages are written with.
const FUNCTIONS: &str = "create function hex(bytea) returns text \
    immutable language sql as $$ select encode($1, 'hex') $$; \
    create function unhex(text) returns bytea \
    immutable language sql as $$ select decode($1, 'hex') $$; \
    create function printf(text, bigint) returns text \
    immutable language sql as $$ select lpad(to_hex($2), 16, '0') $$; \
    create function zeroblob(int) returns bytea \
    immutable language sql as $$ select decode(repeat('00', $1), 'hex') $$";

/// An engine under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

/// A database that lasts as long as the value.
pub enum Place {
    Sqlite(TempDir),
    Postgres(Database),
}

impl Place {
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::Sqlite(tempfile::tempdir().unwrap()),
            Kind::Postgres => Self::Postgres(Database::fresh()),
        }
    }

    pub fn engine(&self) -> Box<dyn Engine> {
        match self {
            Self::Sqlite(folder) => Box::new(SqliteFile::new(&file(folder))),
            Self::Postgres(database) => Box::new(server(database)),
        }
    }

    /// Runs statements behind the store's back.
    pub fn run(&self, sql: &str) {
        match self {
            Self::Sqlite(folder) => {
                open_files(&file(folder)).unwrap().execute_batch(sql).unwrap();
            }
            Self::Postgres(database) => {
                database.query(&of_postgres(sql)).unwrap();
            }
        }
    }
}

fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("test.db")
}

fn server(database: &Database) -> PostgresServer {
    PostgresServer::new(&database.url()).unwrap()
}

/// The statements as PostgreSQL writes them.
fn of_postgres(sql: &str) -> String {
    let mut written = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once("x'") {
        written.push_str(before);
        // Behind a letter or a digit it is the end of a text and no byte string.
        let is_literal = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        written.push_str(if is_literal { r"'\x" } else { "x'" });
        rest = after;
    }
    written + rest
}

impl Kind {
    /// A report on the database that `build` makes, once for each engine, after `sql` was run on a
    /// copy of it.
    pub fn damaged(
        self,
        build: fn(&dyn Engine),
        sql: &str,
        by: By,
        key: Option<&Keyring>,
    ) -> Report {
        match self {
            Self::Sqlite => damaged_file(build, sql, by, key),
            Self::Postgres => {
                static SOUND: OnceLock<Database> = OnceLock::new();
                let sound = SOUND.get_or_init(|| {
                    let sound = Database::fresh();
                    build(&server(&sound));
                    sound.query(UNCHECKED).unwrap();
                    sound.query(FUNCTIONS).unwrap();
                    sound
                });
                let engine = Damaged { engine: server(sound), sql: of_postgres(sql), by };
                verify(&engine, key).unwrap()
            }
        }
    }
}

/// Who has damaged a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A server: it seals what it writes.
    Bug,
    /// A person with access to the database, who cannot.
    Intruder,
}

/// The rows of a sound database by their seals: all columns, and the values with nothing sealed.
type Parts = HashMap<Value, (Vec<Value>, Vec<Value>)>;

/// The rows of each table whose rows are sealed, as it has them. A damage may have left a table
/// that cannot be read.
pub fn sealed_rows(
    connection: &mut dyn Connection,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<(&'static Shape, Vec<Vec<Value>>)> {
    let is_wanted = |shape: &&&'static Shape| shape.is_sealed() && is_wanted(shape.table);
    let sealed = catalogue::tables().iter().filter(is_wanted);
    let rows = |shape: &&'static Shape| {
        let mut rows = Vec::new();
        let sql = format!("select {} from {}", shape.columns.join(", "), shape.table);
        let _ = connection.query(&sql, &[], shape.columns.len(), &mut |row| {
            rows.push(row);
            Ok(())
        });
        (*shape, rows)
    };
    sealed.map(rows).collect()
}

/// What its rows seal.
fn parts(connection: &mut dyn Connection) -> Parts {
    let mut parts = Parts::new();
    for (shape, rows) in sealed_rows(connection, |_| true) {
        for row in rows {
            let opened = shape.opened(row.clone(), &keyring()).unwrap();
            parts.insert(row.last().unwrap().clone(), (row, opened));
        }
    }
    parts
}

/// Seals rows again as a server would that has written them so, in the tables that `sql` names.
fn seal_again(connection: &mut dyn Connection, sql: &str, parts: &Parts) {
    for (shape, rows) in sealed_rows(connection, |table| sql.contains(table)) {
        for damaged in rows {
            let (seal, mut row) = (damaged.last().unwrap(), damaged.clone());
            row.pop();
            if let Some((before, opened)) = parts.get(seal) {
                for ((value, before), opened) in row.iter_mut().zip(before).zip(opened) {
                    // Columns that are as they were may have a hash.
                    if value == before {
                        value.clone_from(opened);
                    }
                }
                row.extend(opened[row.len()..].iter().cloned());
            } else if *seal != Value::Null {
                // A new row of a table without personal data has no seal yet.
                continue;
            }
            let sealed = shape.rows(row, &keyring()).swap_remove(0);
            let columns = shape.columns.iter().zip(sealed).zip(&damaged);
            let changed = columns.filter(|((_, value), damaged)| value != *damaged);
            for ((column, value), _) in changed {
                let meets = (2..).zip(&shape.columns[..shape.key]);
                let meets: Vec<_> = meets.map(|(at, key)| format!("{key} = ${at}")).collect();
                let (table, meets) = (shape.table, meets.join(" and "));
                let sql = format!("update {table} set {column} = $1 where {meets}");
                let parameters = [&[value], &damaged[..shape.key]].concat();
                assert_eq!(connection.execute(&sql, &parameters), Ok(1), "{table}");
            }
        }
    }
}

fn damaged_file(build: fn(&dyn Engine), sql: &str, by: By, key: Option<&Keyring>) -> Report {
    static BYTES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let files = |folder: &TempDir| [file(folder), journal_of(&file(folder))];
    let bytes = BYTES.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        build(&SqliteFile::new(&file(&folder)));
        // The last connection has moved everything out of the WAL.
        files(&folder).map(|file| std::fs::read(file).unwrap())
    });
    let folder = tempfile::tempdir().unwrap();
    for (file, bytes) in files(&folder).iter().zip(bytes) {
        std::fs::write(file, bytes).unwrap();
    }
    static PARTS: OnceLock<Parts> = OnceLock::new();
    let engine = SqliteFile::new(&file(&folder));
    let parts = PARTS.get_or_init(|| parts(&mut *engine.projector().unwrap()));
    damage(&file(&folder), sql);
    if by == By::Bug
        && let Ok(mut connection) = engine.projector()
        && connection.begin().is_ok()
    {
        seal_again(&mut *connection, sql, parts);
        connection.commit().unwrap();
    }
    verify(&engine, key).unwrap()
}

/// Runs statements that the schema refuses on a file.
pub fn damage(path: &Path, sql: &str) {
    let connection = open_files(path).unwrap();
    let freely = "pragma foreign_keys = off; pragma ignore_check_constraints = on; \
                  pragma writable_schema = on;";
    connection.execute_batch(freely).unwrap();
    let before = connection.total_changes();
    connection.execute_batch(sql).unwrap();
    assert!(connection.total_changes() > before || sql.is_empty(), "nothing was damaged: {sql}");
}

/// A database that looks damaged to `verify`. The damage is done in the transaction that reads it,
/// and is rolled back with that.
struct Damaged {
    engine: PostgresServer,
    sql: String,
    by: By,
}

struct DamagedConnection {
    connection: Box<dyn Connection>,
    sql: String,
    by: By,
}

impl Engine for Damaged {
    fn prepare(&self, keyring: &Keyring) -> Result<Box<dyn Connection>, StoreError> {
        self.engine.prepare(keyring)
    }

    fn projector(&self) -> Result<Box<dyn Connection>, StoreError> {
        self.engine.projector()
    }

    fn reader(&self) -> Result<Box<dyn Connection>, StoreError> {
        self.engine.reader()
    }

    fn auditor(&self) -> Result<Box<dyn Connection>, StoreError> {
        let connection = self.engine.prepare(&keyring())?;
        Ok(Box::new(DamagedConnection { connection, sql: self.sql.clone(), by: self.by }))
    }

    fn alone(&self) -> Result<Box<dyn Connection>, StoreError> {
        self.engine.alone()
    }

    fn new_tables(&self, keyring: &Keyring) -> Result<Box<dyn NewTables>, StoreError> {
        self.engine.new_tables(keyring)
    }

    fn readers(&self) -> usize {
        self.engine.readers()
    }

    fn holds_data(&self) -> Result<bool, StoreError> {
        self.engine.holds_data()
    }
}

impl Connection for DamagedConnection {
    fn begin_read(&mut self) -> Result<(), StoreError> {
        self.connection.begin()?;
        self.connection.execute("set local session_replication_role = replica", &[])?;
        static PARTS: OnceLock<Parts> = OnceLock::new();
        let parts = PARTS.get_or_init(|| parts(&mut *self.connection));
        let mut changed = 0;
        for statement in self.sql.split(';').filter(|statement| !statement.trim().is_empty()) {
            changed += self.connection.execute(statement, &[])?;
        }
        assert!(changed > 0 || self.sql.is_empty(), "nothing was damaged: {}", self.sql);
        if self.by == By::Bug {
            seal_again(&mut *self.connection, &self.sql, parts);
        }
        Ok(())
    }

    fn begin_point_read(&mut self) -> Result<(), StoreError> {
        self.begin_read()
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.connection.begin()
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.connection.commit()
    }

    fn rollback(&mut self) -> Result<(), StoreError> {
        self.connection.rollback()
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize, StoreError> {
        self.connection.execute(sql, parameters)
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        columns: usize,
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.connection.query(sql, parameters, columns, each)
    }

    fn fetch(
        &mut self,
        shape: &'static Shape,
        keys: &[Value],
        each: &mut dyn FnMut(Vec<Value>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.connection.fetch(shape, keys, each)
    }

    fn write(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        self.connection.write(writes)
    }

    fn is_remote(&self) -> bool {
        self.connection.is_remote()
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        self.connection.settle()
    }

    fn prepare(&mut self, sql: &str) -> Result<(), StoreError> {
        self.connection.prepare(sql)
    }

    fn integrity(&mut self) -> Result<Vec<String>, StoreError> {
        self.connection.integrity()
    }
}
