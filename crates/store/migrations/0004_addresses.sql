-- Where the other servers reach the one that has a duty (docs/decisions/0039).
alter table leases add column address {text};
