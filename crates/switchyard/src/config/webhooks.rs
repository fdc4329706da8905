//! Options about the delivery of events.

use std::time::Duration;

use clap::Args;
use domain::delivery::Schedule;
use service::app::Delivering;

/// A longer pause than half an hour is promised to nobody (contract 7.4).
const LONGEST_SECONDS_MAX: i64 = 1_800;

/// Longer than this an endpoint that hangs only holds connections (contract 7.4).
const TIMEOUT_SECONDS_MAX: u64 = 30;

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
        hide_env_values = true,
        default_value = "15",
        value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_SECONDS_MAX)
    )]
    pub webhook_timeout_seconds: u64,

    /// Until the second attempt at a delivery, from 1 to 1800; then three times as long each time.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_WEBHOOK_RETRY_FIRST_SECONDS",
        hide_env_values = true,
        default_value = "1",
        value_parser = clap::value_parser!(i64).range(1..=LONGEST_SECONDS_MAX)
    )]
    pub webhook_retry_first_seconds: i64,

    /// Between two attempts at most, from 1 to 1800.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_WEBHOOK_RETRY_LONGEST_SECONDS",
        hide_env_values = true,
        default_value = "1800",
        value_parser = clap::value_parser!(i64).range(1..=LONGEST_SECONDS_MAX)
    )]
    pub webhook_retry_longest_seconds: i64,

    /// After how many days a delivery is given up, from 1 to 30.
    #[arg(
        long,
        value_name = "DAYS",
        env = "SWITCHYARD_WEBHOOK_RETRY_DAYS",
        hide_env_values = true,
        default_value = "7",
        value_parser = clap::value_parser!(i64).range(1..=DAYS_MAX)
    )]
    pub webhook_retry_days: i64,
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
                horizon_millis: self.webhook_retry_days * DAY,
            },
            within: Duration::from_secs(self.webhook_timeout_seconds),
        }
    }
}
