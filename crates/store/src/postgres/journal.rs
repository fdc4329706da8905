//! The journal on PostgreSQL.
//!
//! An append is one statement that commits by itself, under READ COMMITTED. An open transaction of
//! a leader that is frozen would keep the row of the leadership locked, and no server could take
//! over.

use domain::time::Timestamp;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::client::{Answer, Client, Purpose, Query};
use super::{PostgresServer, failure};
use crate::error::StoreError;
use crate::journal::{AppendError, Appended, Journal, Leader, Leadership, Row, RowHash, number};

/// Bodies are compressed and sealed: the server would try to compress them again.
const TABLES: [&str; 3] = [
    "create table if not exists journal (seq int8 primary key, epoch int8 not null, \
     at int8 not null, previous bytea not null, hash bytea not null, body bytea not null)",
    "alter table journal alter column body set storage external",
    "create table if not exists leadership (one int8 primary key check (one = 1), \
     epoch int8 not null, holder bytea not null, beat int8 not null)",
];

/// It takes effect only while the leadership is the leader's, which no other changes before this
/// statement has ended, and behind the row that the leader knows as the last.
const APPEND: &str = "with leads as \
    (select 1 from leadership where one = 1 and epoch = $1 and holder = $2 for share), \
    follows as (select 1 where $3::int8 = coalesce((select max(seq) from journal), 0) \
    and ($3 = 0 or exists (select 1 from journal where seq = $3 and hash = $4))) \
    insert into journal (seq, epoch, at, previous, hash, body) select new.* from leads, follows, \
    unnest($5::int8[], $6::int8[], $7::int8[], $8::bytea[], $9::bytea[], $10::bytea[]) as new \
    on conflict (seq) do nothing returning seq";

const ROWS: &str = "select seq, epoch, at, previous, hash, body from journal \
    where seq > $1 order by seq limit $2";

const LEADERSHIP: &str = "select epoch, holder, beat from leadership where one = 1";

const RENEW: &str = "update leadership set beat = beat + 1 \
    where one = 1 and epoch = $1 and holder = $2";

const FIRST: &str = "insert into leadership (one, epoch, holder, beat) values (1, 1, $1, 0) \
    on conflict do nothing returning epoch";

const NEXT: &str = "update leadership set epoch = epoch + 1, holder = $1, beat = 0 \
    where one = 1 and epoch = $2 and holder = $3 and beat = $4 returning epoch";

type Parameter = Box<dyn ToSql + Send + Sync>;

/// A connection to a journal.
pub struct PostgresJournal(Client);

impl PostgresJournal {
    /// Opens the journal in a database. Its tables are made if they are missing.
    pub fn open(server: &PostgresServer) -> Result<Self, StoreError> {
        let mut journal = Self(Client::new((*server.address).clone(), Purpose::REQUESTS));
        for sql in TABLES {
            journal.run(sql, Vec::new())?;
        }
        Ok(journal)
    }

    fn run(&mut self, sql: &str, parameters: Vec<Parameter>) -> Result<Answer, StoreError> {
        self.0.connect()?;
        let mut answers = self.0.run(&[Query { sql, parameters }])?;
        answers.pop().ok_or_else(failure::disconnected)
    }
}

fn boxed(value: impl ToSql + Send + Sync + 'static) -> Parameter {
    Box::new(value)
}

fn hash(bytes: Vec<u8>) -> Result<RowHash, StoreError> {
    let wrong = |_| StoreError::Engine("a hash of the journal has another length".to_owned());
    Ok(RowHash(bytes.try_into().map_err(wrong)?))
}

fn read(row: &tokio_postgres::Row) -> Result<Row, StoreError> {
    Ok(Row {
        seq: row.try_get::<_, i64>(0)?.cast_unsigned(),
        epoch: row.try_get::<_, i64>(1)?.cast_unsigned(),
        at: Timestamp::from_millis(row.try_get(2)?),
        previous: hash(row.try_get(3)?)?,
        hash: hash(row.try_get(4)?)?,
        body: row.try_get(5)?,
    })
}

/// The parameters of an append.
fn parameters(leader: Leader, rows: &[Row], first: &Row) -> Result<Vec<Parameter>, StoreError> {
    let numbers = |of: fn(&Row) -> u64| rows.iter().map(|row| number(of(row))).collect();
    let (seqs, epochs): (Result<Vec<i64>, _>, Result<Vec<i64>, _>) =
        (numbers(|row| row.seq), numbers(|row| row.epoch));
    let at: Vec<i64> = rows.iter().map(|row| row.at.millis()).collect();
    let bytes = |of: fn(&Row) -> &[u8]| -> Vec<Vec<u8>> {
        rows.iter().map(|row| of(row).to_vec()).collect()
    };
    Ok(vec![
        boxed(number(leader.epoch)?),
        boxed(leader.holder.as_bytes().to_vec()),
        boxed(number(first.seq - 1)?),
        boxed(first.previous.0.to_vec()),
        boxed(seqs?),
        boxed(epochs?),
        boxed(at),
        boxed(bytes(|row| &row.previous.0)),
        boxed(bytes(|row| &row.hash.0)),
        boxed(bytes(|row| &row.body)),
    ])
}

impl Journal for PostgresJournal {
    fn append(&mut self, leader: Leader, new: &[Row]) -> Result<Appended, AppendError> {
        let Some(first) = new.first() else { return Ok(Appended::Now) };
        let answer = match self.run(APPEND, parameters(leader, new, first)?) {
            Ok(answer) => answer,
            Err(error) if failure::is_lost(&error) => {
                return Err(AppendError::Lost(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        if answer.rows.len() == new.len() {
            return Ok(Appended::Now);
        }
        let count = u32::try_from(new.len()).unwrap_or(u32::MAX);
        match self.rows(first.seq - 1, count) {
            Ok(found) if found == new => Ok(Appended::Before),
            Ok(_) => Err(AppendError::Deposed),
            Err(error) => Err(AppendError::Lost(error.to_string())),
        }
    }

    fn take_over(
        &mut self,
        seen: Option<Leadership>,
        holder: Uuid,
    ) -> Result<Option<Leader>, StoreError> {
        let mine = boxed(holder.as_bytes().to_vec());
        let answer = match seen {
            None => self.run(FIRST, vec![mine])?,
            Some(Leadership { leader, beat }) => {
                let before = boxed(leader.holder.as_bytes().to_vec());
                let (epoch, beat) = (boxed(number(leader.epoch)?), boxed(number(beat)?));
                self.run(NEXT, vec![mine, epoch, before, beat])?
            }
        };
        let Some(row) = answer.rows.first() else { return Ok(None) };
        Ok(Some(Leader { epoch: row.try_get::<_, i64>(0)?.cast_unsigned(), holder }))
    }

    fn renew(&mut self, leader: Leader) -> Result<bool, StoreError> {
        let (epoch, holder) = (number(leader.epoch)?, leader.holder.as_bytes().to_vec());
        Ok(self.run(RENEW, vec![boxed(epoch), boxed(holder)])?.changed == 1)
    }

    fn leadership(&mut self) -> Result<Option<Leadership>, StoreError> {
        let answer = self.run(LEADERSHIP, Vec::new())?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let wrong = |_| StoreError::Engine("a holder of the journal has another length".to_owned());
        let holder = Uuid::from_slice(row.try_get(1)?).map_err(wrong)?;
        let leader = Leader { epoch: row.try_get::<_, i64>(0)?.cast_unsigned(), holder };
        Ok(Some(Leadership { leader, beat: row.try_get::<_, i64>(2)?.cast_unsigned() }))
    }

    fn rows(&mut self, after: u64, max: u32) -> Result<Vec<Row>, StoreError> {
        let parameters = vec![boxed(number(after)?), boxed(i64::from(max))];
        self.run(ROWS, parameters)?.rows.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testbed::postgres::Database;

    use super::*;
    use crate::journal::Chain;

    const DATABASE: Uuid = Uuid::from_u128(7);

    /// How many appends wait for a lock.
    const WAITING: &str = "select count(*) from pg_stat_activity \
        where datname = current_database() and wait_event_type = 'Lock' and query like 'with leads%'";

    #[test]
    fn an_append_that_waits_for_a_take_over_is_refused() {
        let database = Database::fresh();
        let server = PostgresServer::new(&database.url()).expect("a URL");
        let open = || PostgresJournal::open(&server).expect("a database");
        let (mut old, mut new, mut watcher) = (open(), open(), open());
        let first = old.take_over(None, Uuid::from_u128(1)).expect("an answer");
        let first = first.expect("the leadership");
        let mut chain = Chain::new(DATABASE);
        let row = chain.next(1, Timestamp::from_millis(5), b"a".to_vec());
        new.run("begin", Vec::new()).expect("a transaction");
        let seen = new.leadership().expect("an answer");
        let second = new.take_over(seen, Uuid::from_u128(2)).expect("an answer");
        let second = second.expect("the leadership");
        std::thread::scope(|scope| {
            let late = scope.spawn(|| old.append(first, std::slice::from_ref(&row)));
            let is_waiting = || {
                let answer = watcher.run(WAITING, Vec::new())?;
                let count: i64 = answer.rows[0].try_get(0)?;
                Ok((count == 1).then_some(()))
            };
            testbed::wait::until("the append waits", Duration::from_secs(20), is_waiting)
                .expect("it waits for the take-over");
            new.run("commit", Vec::new()).expect("the take-over");
            let late = late.join().expect("an end");
            assert!(matches!(late, Err(AppendError::Deposed)), "{late:?}");
        });
        let row = chain.next(2, Timestamp::from_millis(5), b"b".to_vec());
        let appended = new.append(second, std::slice::from_ref(&row));
        assert_eq!(appended.expect("an append"), Appended::Now);
        chain.take(&row).expect("the next row");
        assert_eq!(new.rows(0, 9).expect("rows"), [row]);
    }
}
