-- A filter that was damaged is told by its sum. All are made anew from the answers
-- (docs/decisions/0037).
drop table idempotency_filters;
create table idempotency_filters (
    part integer not null primary key,
    bits blob not null,
    sum blob not null
) strict;
