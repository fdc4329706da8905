-- Payments that do not change any more, by the accounts, payers and addresses that they are listed
-- by, in place of indexes (docs/decisions/0041); and what is on its way there.
drop table if exists listed;
create table listed (
    leader blob not null,
    kind integer not null,
    id blob not null,
    primary key (leader, kind, id)
) strict, without rowid;
drop table if exists newly_listed;
create table newly_listed (
    number integer not null primary key,
    entries blob not null
) strict;
insert into listed (leader, kind, id)
    select leader, kind + (direction = 'OUTGOING') * 16
        + case status when 'COMPLETED' then 3 when 'REJECTED' then 4 when 'FAILED' then 5
        when 'REFUNDED' then 6 else 7 end, id
    from (
        select own_account as leader, 64 as kind, direction, status, id from transactions
        union all
        select destination_account, 96, direction, status, id from transactions
        where destination_account <> own_account
        union all
        select payer, 128, direction, status, id from transactions
        union all
        select own_address, 480, direction, status, id from transactions
    )
    where leader is not null
    and status not in ('CREATED', 'PENDING') and status <> 'PROCESSING'
    order by 1, 2, 3;
drop index if exists transactions_by_own_account_lasting;
drop index if exists transactions_by_destination_lasting;
drop index if exists transactions_by_payer_lasting;
drop index if exists transactions_by_own_address_lasting;
