//! Telemetry for the operator: a log on standard error, and metrics for Prometheus.
//!
//! Standard output is kept free for what a command prints, such as new credentials.

use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use service::App;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For eyes, in colour where the terminal has it.
    Human,
    /// One JSON object per line.
    Json,
}

/// Variables that hold a filter such as `info,store=debug`; the first that is set decides.
pub const FILTER_VARIABLES: [&str; 2] = ["SWITCHYARD_LOG", "RUST_LOG"];

/// The default log filter. The migrations tell each of their steps, and
/// what matters of it is in the error when one fails; the same goes for notices of the database.
const DEFAULT_FILTER: &str = "info,refinery_core=warn,tokio_postgres=warn";

/// The target of lines about changes that an operator's command has made.
pub const AUDIT: &str = "switchyard::audit";

/// The log of a command that ends by itself, unless a variable says otherwise: such a command tells
/// its results on standard output, but a change is always logged.
pub const COMMAND_FILTER: &str = "warn,switchyard::audit=info";

/// Logs a change that an operator's command has made. `object` is an id or a database, never
/// personal data.
pub fn log_change(command: &str, object: &impl std::fmt::Display) {
    tracing::info!(target: AUDIT, command, %object, "operator made a change");
}

/// Never logged, whatever a variable says: the driver repeats the values of statements, and
/// these are customers' data.
const NEVER: &str = "tokio_postgres::query=info";

/// The filter of the log from the environment. The error is one line that says what to do.
pub fn filter(variable: impl Fn(&str) -> Option<String>) -> Result<EnvFilter, String> {
    let set = FILTER_VARIABLES.into_iter().find_map(|name| {
        let text = variable(name)?;
        (!text.trim().is_empty()).then_some((name, text))
    });
    let (name, text) = set.unwrap_or(("", DEFAULT_FILTER.to_owned()));
    let filter = EnvFilter::builder().parse(&text).map_err(|error| {
        format!("{name} '{text}' is not a log filter such as info,store=debug: {error}")
    })?;
    Ok(filter.add_directive(NEVER.parse().expect("it is a target and a level")))
}

/// Prints a line for the caller of the program. If it cannot be said, nothing is there to read it.
pub fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Starts the log. Without a format it is human on a terminal and JSON elsewhere. A second start
/// changes nothing.
pub fn start_log(format: Option<LogFormat>, filter: EnvFilter) {
    let is_terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if is_terminal { LogFormat::Human } else { LogFormat::Json });
    // A line that cannot be written is lost. To say so, where this cannot be said, would panic on
    // whichever thread logs, the one that commits among them.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    // Failing means that a log is there already, which is what was asked for.
    let _ = match format {
        LogFormat::Human => {
            let colour = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
            log.with_ansi(colour).try_init()
        }
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Every metric of this server, with what it tells. A metric that is not here has no description
/// where the operator looks.
pub const METRICS: &[(Kind, &str, Unit, &str)] = &[
    (
        Kind::Gauge,
        "switchyard_attention_open",
        Unit::Count,
        "What waits for a person, by kind: see switchyard attention.",
    ),
    (
        Kind::Gauge,
        "switchyard_attention_oldest_seconds",
        Unit::Seconds,
        "For how long the oldest of it has waited, by kind.",
    ),
    (
        Kind::Gauge,
        "switchyard_build_info",
        Unit::Count,
        "1, labelled with the version of this build and that of the API's specification.",
    ),
    (
        Kind::Gauge,
        "switchyard_leader",
        Unit::Count,
        "1 while this server leads, and runs due jobs and deliveries; else 0.",
    ),
    (Kind::Gauge, "switchyard_uptime_seconds", Unit::Seconds, "Time since the process started."),
    (
        Kind::Gauge,
        "switchyard_clock_step_seconds",
        Unit::Seconds,
        "The last step of the machine's clock that record times have followed; below 0 if it went \
         back.",
    ),
    (Kind::Gauge, "switchyard_connections_open", Unit::Count, "HTTP connections now."),
    (Kind::Counter, "switchyard_connections_total", Unit::Count, "HTTP connections accepted."),
    (
        Kind::Counter,
        "switchyard_connections_ended_total",
        Unit::Count,
        "HTTP connections that were ended to make room, by reason: full, address, heads.",
    ),
    (
        Kind::Counter,
        "switchyard_connections_refused_total",
        Unit::Count,
        "HTTP connections that were answered 503, as none that only waited could end for them.",
    ),
    (
        Kind::Counter,
        "switchyard_accept_errors_total",
        Unit::Count,
        "Times that the system could not accept a connection.",
    ),
    (
        Kind::Histogram,
        "switchyard_commit_batch_units",
        Unit::Count,
        "Units of work that shared one commit.",
    ),
    (
        Kind::Gauge,
        "switchyard_commit_queue_units",
        Unit::Count,
        "Units of work in the commit queue.",
    ),
    (
        Kind::Histogram,
        "switchyard_commit_seconds",
        Unit::Seconds,
        "From the start of a batch until it is durable, its units of work among it.",
    ),
    (
        Kind::Counter,
        "switchyard_commit_conflicts_total",
        Unit::Count,
        "Batches that lost against another transaction and were tried again.",
    ),
    (
        Kind::Counter,
        "switchyard_payments_completed_total",
        Unit::Count,
        "Payments that came to COMPLETED.",
    ),
    (
        Kind::Histogram,
        "switchyard_journal_append_seconds",
        Unit::Seconds,
        "From the first write of a batch's rows to the journal until they are durable.",
    ),
    (Kind::Counter, "switchyard_journal_rows_total", Unit::Count, "Rows of the journal."),
    (
        Kind::Counter,
        "switchyard_journal_bytes_total",
        Unit::Bytes,
        "Bytes of these rows, compressed and sealed.",
    ),
    (
        Kind::Counter,
        "switchyard_journal_records_total",
        Unit::Count,
        "Changes of records in these rows.",
    ),
    (
        Kind::Counter,
        "switchyard_journal_frames_total",
        Unit::Count,
        "Parts of these rows that were compressed and sealed by themselves.",
    ),
    (
        Kind::Counter,
        "switchyard_projected_records_total",
        Unit::Count,
        "Records that the projector has written, by table.",
    ),
    (
        Kind::Histogram,
        "switchyard_projection_seconds",
        Unit::Seconds,
        "From the start of a step of the projector until it is committed.",
    ),
    (
        Kind::Counter,
        "switchyard_zstd_calls_total",
        Unit::Count,
        "Calls of the compressor, by operation: compress, decompress.",
    ),
    (
        Kind::Counter,
        "switchyard_aead_calls_total",
        Unit::Count,
        "Calls of the cipher, by operation: seal, open.",
    ),
    (
        Kind::Gauge,
        "switchyard_memtable_bytes",
        Unit::Bytes,
        "Memory of the records that are committed and that the tables do not have yet.",
    ),
    (
        Kind::Gauge,
        "switchyard_tables_behind_seconds",
        Unit::Seconds,
        "Age of the oldest commit that the tables do not have yet; not ready above 5.",
    ),
    (
        Kind::Counter,
        "switchyard_refused_records_total",
        Unit::Count,
        "Records that a table refused because of a bug, and lacks; verify --replay names them.",
    ),
    (
        Kind::Counter,
        "switchyard_missing_commits_total",
        Unit::Count,
        "Commits that the database had acknowledged to this server and does not have any more: it \
         is an older one.",
    ),
    (
        Kind::Gauge,
        "switchyard_database_reachable",
        Unit::Count,
        "1 while the circuit breaker of the database is closed, 0 while it is open.",
    ),
    (
        Kind::Gauge,
        "switchyard_timers_oldest_seconds",
        Unit::Seconds,
        "For how long the oldest timer that is due has been so.",
    ),
    (
        Kind::Gauge,
        "switchyard_rates_age_seconds",
        Unit::Seconds,
        "Age of the rates, by their asOf.",
    ),
    (
        Kind::Gauge,
        "switchyard_rates_file_refused",
        Unit::Count,
        "1 while the file of rates cannot be used and the rates before stay, else 0.",
    ),
    (
        Kind::Counter,
        "switchyard_webhook_attempts_total",
        Unit::Count,
        "Attempts to deliver events, by what came of them.",
    ),
    (
        Kind::Histogram,
        "switchyard_webhook_attempt_seconds",
        Unit::Seconds,
        "From the start of an attempt to deliver an event to its end.",
    ),
    (
        Kind::Gauge,
        "switchyard_webhook_pending",
        Unit::Count,
        "Deliveries that wait for an endpoint to take them.",
    ),
    (
        Kind::Gauge,
        "switchyard_webhook_oldest_seconds",
        Unit::Seconds,
        "Age of the oldest event that waits to be delivered.",
    ),
    (
        Kind::Counter,
        "switchyard_http_requests_total",
        Unit::Count,
        "Requests answered, by route, method and status.",
    ),
    (
        Kind::Counter,
        "switchyard_forwarded_requests_total",
        Unit::Count,
        "Requests forwarded to the leader, by outcome.",
    ),
    (
        Kind::Histogram,
        "switchyard_http_request_seconds",
        Unit::Seconds,
        "From a request's head to its answer, by route and method.",
    ),
];

/// From a cached read to the deadline of a slow body, about three steps to a factor of ten.
const SECONDS_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0];

/// A batch is one unit when the server is idle and some hundreds when it is busy.
const UNITS_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Samples of histograms wait in memory until this is over, whether they are scraped or not.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

struct Metrics {
    handle: PrometheusHandle,
    /// The standard metrics of a process, by the names that Prometheus has for them.
    process: metrics_process::Collector,
    started: Instant,
}

static METRICS_INSTALLED: OnceLock<Metrics> = OnceLock::new();

/// The metrics of this process, installed by the first call. [`scrape`] renders them with fresh
/// numbers about the process; [`keep`] must run beside a server.
pub fn metrics() -> PrometheusHandle {
    installed().handle.clone()
}

/// The metrics as Prometheus reads them.
pub fn scrape() -> String {
    let metrics = installed();
    let uptime = now().duration_since(metrics.started);
    metrics::gauge!("switchyard_uptime_seconds").set(uptime.as_secs_f64());
    metrics.process.collect();
    metrics.handle.render()
}

/// Keeps the memory that metrics use bounded, and logs refused requests once a minute, until
/// `shutdown`.
pub async fn keep(app: App, shutdown: CancellationToken) {
    let handle = metrics();
    while !shutdown.is_cancelled() {
        handle.run_upkeep();
        app.refusals().log(app.server_now());
        let _ = tokio::time::timeout(UPKEEP_INTERVAL, shutdown.cancelled()).await;
    }
}

fn installed() -> &'static Metrics {
    METRICS_INSTALLED.get_or_init(|| {
        let buckets = |builder: PrometheusBuilder, suffix: &str, buckets| {
            builder
                .set_buckets_for_metric(Matcher::Suffix(suffix.to_owned()), buckets)
                .expect("the lists of buckets are not empty")
        };
        let builder = buckets(PrometheusBuilder::new(), "_seconds", SECONDS_BUCKETS);
        let builder = buckets(builder, "_units", UNITS_BUCKETS);
        let handle = builder.install_recorder().expect("nothing else installs a recorder");
        for (kind, name, unit, text) in METRICS.iter().copied() {
            match kind {
                Kind::Counter => metrics::describe_counter!(name, unit, text),
                Kind::Gauge => metrics::describe_gauge!(name, unit, text),
                Kind::Histogram => metrics::describe_histogram!(name, unit, text),
            }
        }
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("specification", api::VERSION)];
        metrics::gauge!("switchyard_build_info", &labels).set(1.0);
        let process = metrics_process::Collector::default();
        process.describe();
        Metrics { handle, process, started: now() }
    })
}

#[expect(clippy::disallowed_methods, reason = "the uptime is measured where the process starts")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_filter(switchyard: Option<&str>, rust: Option<&str>) -> Result<String, String> {
        filter(|name| {
            let text = if name == "RUST_LOG" { rust } else { switchyard };
            text.map(str::to_owned)
        })
        .map(|filter| filter.to_string())
    }

    #[test]
    fn our_variable_decides_before_the_common_one() {
        let check = |switchyard, rust, expected: &str| {
            let filter = check_filter(switchyard, rust).unwrap();
            assert!(filter.split(',').any(|directive| directive == expected), "{filter}");
            assert!(filter.contains(NEVER), "values of statements are never logged: {filter}");
        };
        check(None, None, "info");
        check(None, Some("debug"), "debug");
        check(Some("warn"), Some("debug"), "warn");
        check(Some(" "), Some("debug"), "debug");
        check(None, Some("tokio_postgres=trace"), "tokio_postgres=trace");
        let error = check_filter(Some("store=loud"), None).unwrap_err();
        assert!(error.starts_with("SWITCHYARD_LOG 'store=loud' is not a log filter"), "{error}");
    }

    #[test]
    fn a_scrape_has_numbers_and_their_descriptions() {
        metrics();
        metrics::histogram!("switchyard_test_seconds").record(0.2);
        metrics::histogram!("switchyard_commit_batch_units").record(3.0);
        let text = scrape();
        for line in [
            "# TYPE switchyard_uptime_seconds gauge",
            "# HELP switchyard_uptime_seconds Time since the process started.",
            "switchyard_test_seconds_bucket{le=\"0.25\"} 1",
            "switchyard_commit_batch_units_bucket{le=\"4\"} 1",
            concat!("switchyard_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\""),
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        if cfg!(target_os = "linux") {
            let value = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("{text}"))
            };
            assert!(value("process_resident_memory_bytes") > 100_000.0);
            assert!(value("process_virtual_memory_bytes") > 100_000.0);
            assert!(value("process_open_fds") >= 3.0);
            assert!(value("process_max_fds") >= value("process_open_fds"));
            assert!(value("process_cpu_seconds_total") >= 0.0);
            assert!(value("process_start_time_seconds") > 1_600_000_000.0);
        }
    }

    /// The names behind the macros that set metrics in a folder of sources.
    fn set_in(folder: &std::path::Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                set_in(&path, names);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let macros = ["gauge", "counter", "histogram"];
                let macros = macros.map(|kind| format!("metrics::{kind}!("));
                let calls = macros.iter().flat_map(|name| text.split(name.as_str()).skip(1));
                let quoted = calls.filter_map(|call| call.trim_start().strip_prefix('"'));
                names.extend(quoted.filter_map(|name| Some(name.split_once('"')?.0.to_owned())));
            }
        }
    }

    #[test]
    fn every_metric_is_described() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut names = Vec::new();
        for member in std::fs::read_dir(crates).unwrap().map(Result::unwrap) {
            set_in(&member.path().join("src"), &mut names);
        }
        names.retain(|name| !name.starts_with("switchyard_test_"));
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            assert!(METRICS.iter().any(|(_, known, _, _)| *known == name), "{name}");
        }
    }

    #[test]
    fn no_metric_is_described_twice() {
        let mut names: Vec<_> = METRICS.iter().map(|(_, name, _, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
