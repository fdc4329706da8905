-- One text for every engine. Tokens stand for what the engines spell differently:
-- {int8} a 64-bit integer, {bytes} a byte string, {text} a text that is compared byte by byte;
-- {grows} ends a table that grows with every payment,
-- {strict} ends a table that refuses values of another type and is kept in the order of its primary
-- key, {wide} one whose rows are too large for that (SQLite keeps only a quarter of a page of such a
-- row in place) and has an index beside it.
--
-- The tables here follow the journal, whose own are in the other track: SQLite keeps the two in
-- files of their own. They refuse no row: what they were to hold was acknowledged before.
-- So they have no checks, no foreign keys and no unique keys but primary ones. What is unique is
-- claimed by a record with that key; the rest is the domain's to refuse, and `verify`'s to check.
--
-- Times are milliseconds since 1970 in UTC. Amounts are smallest units. Columns named `sealed` are
-- encrypted: personal data, memos and stored answers are in no plain column.

-- The last row of the journal that the tables follow.
create table applied (
    one {int8} not null primary key check (one = 1),
    seq {int8} not null,
    hash {bytes} not null
) {strict};

create table platforms (
    id {bytes} not null primary key,
    name {text} not null,
    mode {text} not null,
    settings {text} not null,
    manager_tokens {int8} not null,
    clock_ahead {int8} not null,
    created_at {int8} not null,
    updated_at {int8} not null
) {wide};

create table tokens (
    id {bytes} not null primary key,
    platform {bytes} not null,
    name {text} not null,
    permissions {int8} not null,
    client_id {text} not null,
    secret_hash {bytes} not null,
    revoked {int8} not null,
    created_at {int8} not null,
    updated_at {int8} not null
) {strict};
create index tokens_by_platform on tokens (platform, revoked, id);
create index tokens_by_client_id on tokens (client_id);

create table customers (
    id {bytes} not null primary key,
    platform {bytes} not null,
    platform_customer_id {text} not null,
    customer_type {text} not null,
    uma_address {text} not null,
    kyc_status {text} not null,
    kyc_changes {int8} not null,
    identity_check {bytes},
    default_uma_deposit_account {bytes},
    is_deleted {int8} not null,
    created_at {int8} not null,
    updated_at {int8} not null,
    sealed {bytes} not null
) {wide};
create index customers_by_platform on customers (platform, is_deleted, customer_type, id);
create index customers_by_platform_customer_id on customers (platform, platform_customer_id, id);
create index customers_by_uma_address on customers (uma_address);

-- The keyed hash of every address that was ever given out. Rows are never removed: a payment to an
-- old address must not reach another customer, also when its customer was erased.
create table uma_addresses (
    address_hash {bytes} not null primary key,
    customer {bytes} not null
) {strict};

create table external_accounts (
    id {bytes} not null primary key,
    platform {bytes} not null,
    owner_kind {text} not null,
    owner {bytes} not null,
    status {text} not null,
    currency {text} not null,
    created_at {int8} not null,
    updated_at {int8} not null,
    sealed {bytes} not null
) {wide};
create index external_accounts_by_platform on external_accounts (platform, owner_kind, id);
create index external_accounts_by_currency
    on external_accounts (platform, owner_kind, currency, id);
create index external_accounts_by_owner on external_accounts (owner, id);

-- Keyed hashes of what identifies an account on its rail: an owner has each account once.
create table external_account_fingerprints (
    fingerprint {bytes} not null primary key,
    external_account {bytes} not null
) {strict};

-- `source_account` and `destination_account` are the uuid of an account, or one that stands for a
-- UMA address on this platform.
create table quotes (
    id {bytes} not null primary key,
    platform {bytes} not null,
    owner_kind {text} not null,
    owner {bytes} not null,
    transaction_id {bytes} not null,
    status {text} not null,
    source_account {bytes},
    destination_account {bytes} not null,
    sending_currency {text} not null,
    sending_minor {int8} not null,
    fees_minor {int8} not null,
    receiving_currency {text} not null,
    receiving_minor {int8} not null,
    lookup {bytes},
    route {text},
    msat {int8},
    created_at {int8} not null,
    updated_at {int8} not null,
    expires_at {int8} not null,
    history {bytes} not null,
    sealed {bytes} not null
) {strict}{grows};
create index quotes_by_platform on quotes (platform, status, id);
create index quotes_by_owner on quotes (owner, status, id);
create index quotes_by_source on quotes (source_account, status, id);
create index quotes_by_destination on quotes (destination_account, status, id);

-- `own_address` stands for the owner's own UMA address in a payment between addresses; the other
-- side's is the source or the destination.
create table transactions (
    id {bytes} not null primary key,
    platform {bytes} not null,
    owner_kind {text} not null,
    owner {bytes} not null,
    platform_customer_id {text} not null,
    direction {text} not null,
    status {text} not null,
    failure_reason {text},
    source_account {bytes},
    destination_account {bytes} not null,
    own_address {bytes},
    sending_currency {text},
    sending_minor {int8},
    receiving_currency {text} not null,
    receiving_minor {int8} not null,
    quote {bytes},
    route {text},
    msat {int8},
    outgoing {bytes},
    created_at {int8} not null,
    updated_at {int8} not null,
    history {bytes} not null,
    sealed {bytes} not null
) {strict}{grows};
create index transactions_by_platform on transactions (platform, direction, status, id);
create index transactions_by_owner on transactions (owner, direction, status, id);
create index transactions_by_source on transactions (source_account, direction, status, id);
create index transactions_by_destination
    on transactions (destination_account, direction, status, id);
create index transactions_by_own_address on transactions (own_address, direction, status, id)
    where own_address is not null;

-- Balances: the fold of all entries, kept so that a payment reads one row (docs/ledger.md).
create table ledger_accounts (
    account {bytes} not null primary key,
    currency {text} not null,
    must_stay_covered {int8} not null,
    debits_pending {int8} not null,
    debits_posted {int8} not null,
    credits_pending {int8} not null,
    credits_posted {int8} not null,
    updated_at {int8} not null,
    notified_count {int8} not null,
    notified_minor {int8} not null
) {strict}{grows};

-- How many payments under way a customer has that hold no money in its accounts.
create table open_payments (
    customer {bytes} not null primary key,
    count {int8} not null
) {strict};

-- Never updated, never deleted. A pending posting ends by a later row that resolves it, and has no
-- entries of its own (`store::entries` says what they look like).
create table postings (
    transaction_id {bytes} not null,
    number {int8} not null,
    at {int8} not null,
    movement {text} not null,
    phase {text} not null,
    resolves {int8},
    entries {bytes},
    primary key (transaction_id, number)
) {strict}{grows};

-- A platform's events in the order in which they were committed. The id of an event follows from its
-- resource and number, which no other event has. The body stands in the journal, in row `seq`.
create table events (
    platform {bytes} not null,
    ordinal {int8} not null,
    kind {text} not null,
    resource {bytes} not null,
    number {int8} not null,
    at {int8} not null,
    seq {int8} not null,
    primary key (platform, ordinal)
) {strict}{grows};
create index events_by_kind on events (platform, kind, ordinal);

-- How many events a platform has (`head`), up to which they have deliveries (`taken`), how many it
-- had when its endpoint was set (`opened`), and whether that is to have those that come. `revision`
-- counts changes of the endpoint and what clients want to be sent again.
create table outboxes (
    platform {bytes} not null primary key,
    head {int8} not null,
    taken {int8} not null,
    opened {int8} not null,
    endpoint {text} not null,
    revision {int8} not null
) {strict};

-- Scheduled jobs. A row is committed with its cause and goes with its effect. Times are by the
-- platform's clock, which can be ahead of the server's.
create table timers (
    subject {bytes} not null,
    kind {text} not null,
    platform {bytes} not null,
    due_at {int8} not null,
    since {int8} not null,
    attempts {int8} not null,
    primary key (subject, kind)
) {strict}{grows};
create index timers_by_due on timers (platform, due_at);

-- First answers by idempotency key; `scope` is a keyed hash of platform, method, path and key. The
-- bytes of an answer stand in the journal, in row `seq`. `owner` is the customer whom it is about.
create table idempotency (
    scope {bytes} not null primary key,
    at {int8} not null,
    status {int8} not null,
    owner {bytes},
    seq {int8} not null
) {strict}{grows};
create index idempotency_by_time on idempotency (at);

-- Found by the keyed hash of their code, which is sealed like everything that a person could be
-- known by.
create table invitations (
    id {bytes} not null primary key,
    platform {bytes} not null,
    inviter {bytes} not null,
    status {text} not null,
    expires_at {int8},
    created_at {int8} not null,
    ended_at {int8},
    sealed {bytes} not null
) {wide};

-- The answer about a receiver that was looked up; `sender` is the customer who wants to pay.
-- Rows stay, because quotes name them.
create table lookups (
    id {bytes} not null primary key,
    platform {bytes} not null,
    sender {bytes} not null,
    expires_at {int8} not null,
    sealed {bytes} not null
) {wide};

-- Other institutions as a platform knows them: the operator's rule, their public keys, and how the
-- last exchange went.
create table uma_peers (
    id {bytes} not null primary key,
    platform {bytes} not null,
    domain {text} not null,
    rule {text} not null,
    stored {text} not null,
    created_at {int8} not null
) {wide};

-- Found like invitations, by the keyed hash of the code in their link.
create table identity_checks (
    id {bytes} not null primary key,
    platform {bytes} not null,
    customer {bytes} not null,
    status {text} not null,
    expires_at {int8} not null,
    created_at {int8} not null,
    sealed {bytes} not null
) {wide};

create table bulk_imports (
    id {bytes} not null primary key,
    platform {bytes} not null,
    status {text} not null,
    total {int8} not null,
    parts {int8} not null,
    parts_done {int8} not null,
    successful {int8} not null,
    failed {int8} not null,
    updated_at {int8} not null
) {strict};

-- The rows of a file, until they were gone through; then what was refused of them.
create table bulk_parts (
    id {bytes} not null primary key,
    import {bytes} not null,
    number {int8} not null,
    done {int8} not null,
    sealed {bytes} not null
) {wide};

-- Approval requests to platforms about incoming payments, and their decisions.
create table approvals (
    transaction_id {bytes} not null primary key,
    platform {bytes} not null,
    status {text} not null,
    asked_at {int8} not null,
    decide_by {int8} not null,
    updated_at {int8} not null,
    sealed {bytes} not null
) {wide};

-- The outbox: a row for each event of a platform with an endpoint, committed with the event. `due_at`
-- and `since` are by the platform's clock; a row behind one that failed is due with it. Attempts and
-- answers are sealed.
create table deliveries (
    id {bytes} not null primary key,
    platform {bytes} not null,
    kind {text} not null,
    resource {bytes} not null,
    number {int8} not null,
    ordinal {int8} not null,
    plan {text} not null,
    status {text} not null,
    since {int8} not null,
    due_at {int8},
    failures {int8} not null,
    updated_at {int8} not null,
    sealed {bytes} not null
) {strict}{grows};
create index deliveries_due on deliveries (platform, due_at, ordinal)
    where status = 'PENDING';
create index deliveries_waiting on deliveries (resource, ordinal) where status = 'PENDING';
create index deliveries_by_platform on deliveries (platform, id);
create index deliveries_by_kind on deliveries (platform, kind, status, id);
create index deliveries_by_resource on deliveries (resource, id);
