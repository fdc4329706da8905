-- Matters that only a person can settle. Those that are open are few.
create table attention (
    id {bytes} not null primary key,
    platform {bytes} not null,
    kind {text} not null,
    subject {bytes} not null,
    opened_at {int8} not null,
    resolved_at {int8},
    sealed {bytes} not null
) {wide};
create index attention_open on attention (opened_at, id) where resolved_at is null;
