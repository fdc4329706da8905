//! The API through its router: a real store in a temporary folder, a clock that the test moves,
//! chance from a seed, and the rail of the sandbox. Every answer is checked against the OpenAPI
//! document.

mod support;
mod pay;
mod held_rail;

mod deliveries;
mod documents;
mod published;
mod jobs;
mod pulled_quotes;
mod story;
mod tenure;
mod unreadable;
mod clock;
mod concurrency;
mod events;
mod balances;
mod exchange_rates;
mod idempotency;
mod quotes;
mod receivers;
mod uma;
mod receive;
mod approvals;
mod returns;
mod sandbox;
mod scenarios;
mod transactions;
mod transfers;
mod webhooks;
mod uma_providers;
mod crypto;
mod config;
mod tokens;
mod customers;
mod internal_accounts;
mod invitations;
mod kyc;
mod external_accounts;
mod prices;
mod permissions;
mod bad_input;
mod mutations;
mod fuzz;
mod bulk;
