//! Counters that are read before and after a load, whose differences are what it has cost: those of
//! the server's `/metrics`, of its threads, and of the database.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result};
use procfs::process::Process;

/// Payments that the server has completed.
pub const COMPLETED: &str = "switchyard_payments_completed_total";

/// Bytes that the journal has grown by.
pub const JOURNAL_BYTES: &str = "switchyard_journal_bytes_total";

/// Rows that the journal has grown by.
pub const JOURNAL_ROWS: &str = "switchyard_journal_rows_total";

/// Attempts to deliver an event.
pub const ATTEMPTS: &str = "switchyard_webhook_attempts_total";

/// Allocations of a server that counts them.
pub const ALLOCATIONS: &str = "allocations";

/// The bytes of these allocations.
pub const ALLOCATED_BYTES: &str = "allocated_bytes";

/// Processor time of a server's threads, in seconds, by `name`.
pub const THREADS: &str = "threads";

/// Processor time of the processes of a database server, in seconds, by `name`.
pub const BACKENDS: &str = "backends";

/// Bytes that a process has caused to be written to the disk.
pub const DEVICE_BYTES: &str = "device_bytes";

/// The end of the log of a database server, in bytes.
pub const LOG_BYTES: &str = "log_bytes";

/// Bytes of a table with its indexes, by `table`.
pub const TABLE_BYTES: &str = "table_bytes";

/// B-trees of a table, itself among them where it is one, by `table`.
pub const TREES: &str = "trees";

/// Rows and index entries that a database server has written, by `table`.
pub const ENTRIES: &str = "entries";

/// Nanoseconds of a second.
const NANOS: f64 = 1e9;

/// Counters by their names. One that has labels is named as Prometheus writes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters(BTreeMap<String, f64>);

impl Counters {
    /// The counters in a text for Prometheus.
    pub fn scraped(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.rsplit_once(' '));
        let pairs = pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        Self(pairs.collect())
    }

    /// The processor time and the writes of a process. A thread or a process that has ended
    /// meanwhile has none.
    pub fn of_server(process: u32) -> Result<Self> {
        let process = Process::new(i32::try_from(process)?)?;
        let mut counters = Self::default();
        for task in process.tasks()?.flatten() {
            let (Ok(stat), Ok(times)) = (task.stat(), task.schedstat()) else { continue };
            counters.add_time(THREADS, &stat.comm, task.tid, times.sum_exec_runtime);
        }
        let written = process.io().context("reading what a server has written")?.write_bytes;
        counters.0.insert(DEVICE_BYTES.to_owned(), written as f64);
        Ok(counters)
    }

    /// Adds the processor time of a process of a database server of this machine.
    pub fn add_backend(&mut self, kind: &str, process: i32) {
        let Ok(found) = Process::new(process) else { return };
        let (Ok(stat), Ok(times)) = (found.stat(), found.schedstat()) else { return };
        // A database server on another machine has numbers of that one.
        if stat.comm.starts_with("postgres") {
            self.add_time(BACKENDS, kind, process, times.sum_exec_runtime);
        }
    }

    fn add_time(&mut self, counter: &str, name: &str, id: i32, nanos: u64) {
        // Threads that do the same are numbered.
        let name = name.trim_end_matches(|at: char| at.is_ascii_digit()).trim_end_matches('-');
        let key = format!("{counter}{{name=\"{name}\",id=\"{id}\"}}");
        self.0.insert(key, nanos as f64 / NANOS);
    }

    /// Adds a counter.
    pub fn add(&mut self, name: &str, value: f64) {
        *self.0.entry(name.to_owned()).or_default() += value;
    }

    /// Adds a counter of a table.
    pub fn add_of_table(&mut self, name: &str, table: &str, value: f64) {
        self.add(&format!("{name}{{table=\"{table}\"}}"), value);
    }

    /// Adds all counters of others.
    pub fn merge(&mut self, others: Self) {
        for (name, value) in others.0 {
            *self.0.entry(name).or_default() += value;
        }
    }

    /// How much they have grown since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let grown = |(name, value): (&String, &f64)| {
            (name.clone(), value - before.0.get(name).copied().unwrap_or_default())
        };
        Self(self.0.iter().map(grown).collect())
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(key, value)| {
            let labels = key.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }

    /// A counter, over all of its labels.
    pub fn total(&self, name: &str) -> f64 {
        // The sum of no floats is -0.
        self.of(name).fold(0.0, |sum, (_, value)| sum + value)
    }

    /// A counter by the values of a label.
    pub fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let (start, mut values) = (format!("{label}=\""), BTreeMap::new());
        for (labels, value) in self.of(name) {
            let rest = labels.split_once(&start).map_or("", |(_, rest)| rest);
            let label = rest.split('"').next().unwrap_or_default();
            *values.entry(label.to_owned()).or_default() += value;
        }
        values
    }
}

/// The growth of counters while a load was measured.
#[derive(Debug, Clone)]
pub struct Window {
    /// From one reading to the next.
    pub seconds: f64,
    /// The differences.
    pub grown: Counters,
}

impl Window {
    /// The time between two readings.
    pub fn between(from: &(Instant, Counters), to: &(Instant, Counters)) -> Self {
        let seconds = to.0.duration_since(from.0).as_secs_f64();
        Self { seconds, grown: to.1.since(&from.1) }
    }

    /// Payments completed in a second.
    pub fn completed_per_second(&self) -> f64 {
        self.grown.total(COMPLETED) / self.seconds
    }

    /// A counter for each payment that was completed.
    pub fn each(&self, name: &str) -> f64 {
        self.grown.total(name) / self.grown.total(COMPLETED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# TYPE a counter\na 5\nrows{table=\"one\"} 1\n";
    const AFTER: &str = "a 7.5\na_sum 100\nrows{table=\"one\"} 4\nrows{table=\"two\"} 2\n";

    #[test]
    fn counters_have_grown_by_their_labels() {
        let grown = Counters::scraped(AFTER).since(&Counters::scraped(BEFORE));
        assert!((grown.total("a") - 2.5).abs() < f64::EPSILON);
        assert!((grown.total("rows") - 5.0).abs() < f64::EPSILON);
        let by_table = grown.by("rows", "table");
        assert_eq!(
            by_table.into_iter().collect::<Vec<_>>(),
            [("one".to_owned(), 3.0), ("two".to_owned(), 2.0)]
        );
    }

    #[test]
    fn threads_of_one_kind_are_one_name() {
        let mut counters = Counters::default();
        for (name, id) in [("reader-1", 7), ("reader-12", 8), ("projector", 9)] {
            counters.add_time(THREADS, name, id, 1_500_000_000);
        }
        let by_name = counters.by(THREADS, "name");
        assert_eq!(by_name["reader"].to_string(), "3");
        assert_eq!(by_name["projector"].to_string(), "1.5");
    }

    #[test]
    fn this_process_has_used_some_processor() {
        let counters = Counters::of_server(std::process::id()).expect("it runs");
        assert!(counters.total(THREADS) > 0.0);
    }
}
