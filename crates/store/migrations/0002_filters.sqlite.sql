-- The scopes of some segments of answers that take no more, as a Bloom filter
-- (docs/decisions/0037).
create table idempotency_filters (
    part integer not null primary key,
    bits blob not null
) strict;
