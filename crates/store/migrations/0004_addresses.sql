-- Where the other servers reach the one that has a duty, sealed (docs/decisions/0039).
alter table leases add column address {bytes};
