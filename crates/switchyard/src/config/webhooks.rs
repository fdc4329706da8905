//! Options about the delivery of events.

use std::time::Duration;

use clap::Args;
use domain::delivery::Schedule;
use service::env::Delivering;

/// A longer pause than half an hour is promised to no receiver (contract 7.4).
const LONGEST_SECONDS_MAX: i64 = 1_800;

/// Longer than this an endpoint that hangs only holds connections (contract 7.4).
const TIMEOUT_SECONDS_MAX: u64 = 30;

/// As much of an answer as is ever read.
const ANSWER_BYTES_MAX: i64 = Delivering::ANSWER_BYTES_MAX as i64;

/// As long as events are kept at least.
const DAYS_MAX: i64 = 30;

/// How events are delivered.
#[derive(Debug, Clone, Args)]
pub struct Webhooks {
    /// How long an endpoint has for a whole exchange, from 1 to 30.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_WEBHOOK_TIMEOUT_SECONDS",
        default_value = "15",
        value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_SECONDS_MAX)
    )]
    pub webhook_timeout_seconds: u64,

    /// Until the second attempt at a delivery, from 1 to 1800; then three times as long each time.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_WEBHOOK_RETRY_FIRST_SECONDS",
        default_value = "1",
        value_parser = clap::value_parser!(i64).range(1..=LONGEST_SECONDS_MAX)
    )]
    pub webhook_retry_first_seconds: i64,

    /// Between two attempts at most, from 1 to 1800.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_WEBHOOK_RETRY_LONGEST_SECONDS",
        default_value = "1800",
        value_parser = clap::value_parser!(i64).range(1..=LONGEST_SECONDS_MAX)
    )]
    pub webhook_retry_longest_seconds: i64,

    /// After how many days a delivery is given up, from 1 to 30.
    #[arg(
        long,
        value_name = "DAYS",
        env = "SWITCHYARD_WEBHOOK_RETRY_DAYS",
        default_value = "7",
        value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX)
    )]
    pub webhook_retry_days: i64,

    /// Lets sandbox platforms have their endpoints in private networks and on this machine, also
    /// while others reach this server.
    ///
    /// Without it they can only while nothing says that other machines reach this server: an
    /// address to listen on, --public-url, a UMA domain or a proxy. The holder of a token can then
    /// send requests to services of these networks, and other institutions can name hosts in them.
    /// Live platforms never can.
    #[arg(
        long,
        env = "SWITCHYARD_ALLOW_PRIVATE_WEBHOOKS",
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub allow_private_webhooks: bool,

    /// How much of what an endpoint answers clients are shown, from 0 to 4096 [default: 4096 while
    /// only this machine reaches the server, else 0].
    #[arg(
        long,
        value_name = "BYTES",
        env = "SWITCHYARD_WEBHOOK_ANSWER_BYTES",
        value_parser = clap::value_parser!(u16).range(0..=ANSWER_BYTES_MAX)
    )]
    pub webhook_answer_bytes: Option<u16>,
}

impl Webhooks {
    /// The options as the service takes them.
    pub fn delivering(&self) -> Delivering {
        const SECOND: i64 = 1_000;
        const DAY: i64 = 86_400 * SECOND;
        Delivering {
            schedule: Schedule {
                first_millis: self.webhook_retry_first_seconds * SECOND,
                longest_millis: self.webhook_retry_longest_seconds * SECOND,
                duration_max_millis: self.webhook_retry_days * DAY,
            },
            within: Duration::from_secs(self.webhook_timeout_seconds),
            allows_private: self.allow_private_webhooks,
            answer_bytes_shown: self.webhook_answer_bytes.map(usize::from),
        }
    }
}
