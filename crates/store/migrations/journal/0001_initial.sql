-- The journal and what is kept beside it, which its writer alone writes. SQLite keeps it in a file of
-- its own. Tokens and columns are those of the tables' track.

create table meta (
    name {text} not null primary key,
    value {bytes} not null
) {strict};

-- What happened, in order, never edited (`store::journal`): the change sets of a commit, sealed with
-- the journal's key, each row chained to the one before by its hash. The other tables follow it.
create table journal (
    seq {int8} not null primary key check (seq >= 1),
    epoch {int8} not null check (epoch >= 1),
    at {int8} not null,
    previous {bytes} not null,
    hash {bytes} not null,
    body {bytes} not null
) {wide}{grows};

-- The keys of the journal, each sealed with the server's.
create table journal_keys (
    number {int8} not null primary key check (number >= 1),
    sealed {bytes} not null
) {strict};

-- The data keys with which a person's rows of the journal are sealed, each sealed with the
-- server's. One whose owner was erased is null.
create table data_keys (
    owner {bytes} not null primary key,
    sealed {bytes}
) {strict};

-- Leases: work that one server does for all that share the database. `holder` is that server, and
-- `address` is where the others reach it, sealed.
create table leases (
    name {text} not null primary key,
    holder {bytes} not null,
    epoch {int8} not null check (epoch >= 1),
    until {int8} not null,
    address {bytes}
) {strict};

-- The write lock, where several servers write: each locks this row first. SQLite locks the file
-- instead.
create table write_lock (
    one {int8} not null primary key check (one = 1)
) {strict};
insert into write_lock (one) values (1);
