-- For PostgreSQL: how many values a column has, which it counts itself otherwise. Lists are
-- read along an index that begins with what is asked for. Of a column with few values the planner
-- expects many rows of each, and may rather walk the primary key, in whose order rows lie on the
-- disk, and leave out all others: if no row has what is asked for, that is all of the table.
-- Two hundred is what it expects of a column that it knows nothing of.
{postgres}alter table tokens alter column platform set (n_distinct = 200);
{postgres}alter table customers alter column platform set (n_distinct = 200);
{postgres}alter table external_accounts alter column platform set (n_distinct = 200),
{postgres}    alter column owner set (n_distinct = 200);
{postgres}alter table quotes alter column platform set (n_distinct = 200),
{postgres}    alter column owner set (n_distinct = 200),
{postgres}    alter column source_account set (n_distinct = 200),
{postgres}    alter column destination_account set (n_distinct = 200);
{postgres}alter table transactions alter column platform set (n_distinct = 200),
{postgres}    alter column owner set (n_distinct = 200),
{postgres}    alter column source_account set (n_distinct = 200),
{postgres}    alter column destination_account set (n_distinct = 200),
{postgres}    alter column own_address set (n_distinct = 200);
{postgres}alter table deliveries alter column platform set (n_distinct = 200),
{postgres}    alter column resource set (n_distinct = 200);
