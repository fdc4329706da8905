-- Lookups are removed once nothing can be quoted on them any more. Quotes go on naming them.
create index lookups_by_end on lookups (expires_at);
