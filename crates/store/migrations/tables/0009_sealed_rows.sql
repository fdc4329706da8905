-- Every row is sealed with all of its columns, so that an edit by SQL is found. Tables without personal
-- data get the column of the seal. Rows of an earlier release have none, or another one: the tables
-- follow the journal from its first row again, which writes each as it is.
alter table platforms add column sealed {bytes};
alter table tokens add column sealed {bytes};
alter table uma_addresses add column sealed {bytes};
alter table external_account_fingerprints add column sealed {bytes};
alter table uma_peers add column sealed {bytes};
alter table ledger_accounts add column sealed {bytes};
alter table open_payments add column sealed {bytes};
alter table postings add column sealed {bytes};
alter table outboxes add column sealed {bytes};
alter table bulk_imports add column sealed {bytes};
alter table payment_hashes add column sealed {bytes};
alter table uma_domains add column sealed {bytes};
update applied set seq = 0, hash = {no_hash};
