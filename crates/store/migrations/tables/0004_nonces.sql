-- Nonces of UMA stand among the answers, with a status of their own. They are kept for minutes and
-- answers for days, so the sweep of nonces must not walk the answers.
create index idempotency_nonces on idempotency (at) where status = 299;
