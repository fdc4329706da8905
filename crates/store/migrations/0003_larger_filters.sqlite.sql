-- Filters have more bits now. They are made anew from the answers (docs/decisions/0037).
delete from idempotency_filters;
