-- The parts of the four counters above 63 bits, eight bytes each, in the order of their columns.
-- Null while all of them fit their own columns: what a release before this one wrote is so.
alter table ledger_accounts add column high_parts {bytes};
