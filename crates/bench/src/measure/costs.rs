//! The cost of a settled payment: processor by thread, bytes on the disk, and counts of all that is
//! done for it. Every count is one of the server, of the system, or of the database.

use anyhow::{Context as _, Result};

use super::clients::Clients;
use super::{Load, Run};
use crate::child::Server;
use crate::conditions;
use crate::counters::{
    ALLOCATED_BYTES, ALLOCATIONS, ATTEMPTS, BACKENDS, COMPLETED, Counters, DEVICE_BYTES, ENTRIES,
    JOURNAL_BYTES, JOURNAL_ROWS, LOG_BYTES, TABLE_BYTES, THREADS, TREES, Window,
};
use crate::place::{Engine, Place};
use crate::row_locks::RowLocks;
use crate::rows::{Breakdown, Part, Row, Side};
use crate::samples::Sample;

const UNITS: &str = "switchyard_commit_batch_units_sum";
const COMMITS: &str = "switchyard_commit_seconds_count";
const COMMIT_SECONDS: &str = "switchyard_commit_seconds_sum";
const APPENDS: &str = "switchyard_journal_append_seconds_count";
const APPEND_SECONDS: &str = "switchyard_journal_append_seconds_sum";
const RECORDS: &str = "switchyard_journal_records_total";
const FRAMES: &str = "switchyard_journal_frames_total";
const PROJECTED: &str = "switchyard_projected_records_total";
const STEPS: &str = "switchyard_projection_seconds_count";
const ZSTD: &str = "switchyard_zstd_calls_total";
const AEAD: &str = "switchyard_aead_calls_total";

const PROCESSOR: &str = "processor for a settled payment, µs";
const COUNTS: &str = "counts for a settled payment";
const WRITTEN: &str = "records that the projector writes for a settled payment";
const BYTES: &str = "disk for a settled payment, bytes";

/// A thread that has used less is not shown, in µs: most do nothing.
const MICROS_SHOWN: f64 = 0.05;

fn in_micros(seconds: f64) -> f64 {
    seconds * 1e6
}

fn in_kilobytes(bytes: f64) -> f64 {
    bytes / 1_000.0
}

impl Run<'_> {
    /// Full load for a long time, on a server that was started for it.
    pub(super) fn costs(&mut self) -> Result<()> {
        let place = self.database("small", self.plan.small)?;
        // A start and an end bring the files into the shape that they have between two runs.
        self.starter.serve(&place)?.stop()?;
        let (bytes, tables) = (place.bytes()?, place.tables()?);
        let server = self.serve(&place)?;
        let clients = self.clients(&server)?;
        let (noop, _) = self.load(&clients, &server, Load::NoopPost, None)?;
        let (sample, whole) = self.load(&clients, &server, Load::Transfer, None)?;
        let window = sample.window.as_ref().context("its counters were read")?;
        self.settled(&sample, window);
        self.commit(window)?;
        self.processor(&noop, &whole)?;
        self.log(&clients, &server, &whole)?;
        self.counts(&whole, window);
        server.stop()?;
        let grown = place.bytes()?.saturating_sub(bytes) as f64;
        self.disk(&whole, grown, &place.tables()?, &tables);
        self.allocations(&place)
    }

    /// A load of the length that costs are measured over, with the growth of counters until the
    /// last payment has settled and the last event was delivered.
    fn load(
        &self,
        clients: &Clients<'_>,
        server: &Server,
        load: Load,
        row_locks: Option<&RowLocks>,
    ) -> Result<(Sample, Window)> {
        let mut phase = self.plan.closed();
        if load == Load::Transfer {
            phase.duration = self.plan.costs_duration;
        }
        let servers = std::slice::from_ref(server);
        let began = clients.counters(servers)?;
        let sample = clients.measure(load, servers, row_locks, &phase)?;
        let whole = Window::between(&began, &clients.counters(servers)?);
        Ok((self.said(load.name(), sample), whole))
    }

    /// Keeps a row of a table of costs: that with a webhook endpoint beside the other.
    fn part(&mut self, title: &str, name: &str, value: f64) {
        let costs = &mut self.report.costs;
        let at = costs.iter().position(|found| found.title == title).unwrap_or_else(|| {
            costs.push(Breakdown { title: title.to_owned(), parts: Vec::new() });
            costs.len() - 1
        });
        let parts = &mut costs[at].parts;
        let at = parts.iter().position(|part| part.name == name).unwrap_or_else(|| {
            parts.push(Part { name: name.to_owned(), value: None, notified: None });
            parts.len() - 1
        });
        let value = Some(value).filter(|value| value.is_finite());
        match self.receivers {
            Some(_) => parts[at].notified = value,
            None => parts[at].value = value,
        }
    }

    fn settled(&mut self, sample: &Sample, window: &Window) {
        let (settled, accepted) = (window.completed_per_second(), sample.outcome.per_second());
        let sides =
            vec![Side::new("settled", settled, "/s"), Side::new("accepted", accepted, "/s")];
        let note = format!("over {:.0} s", window.seconds);
        self.figure(Row::Settled, settled / accepted, sides, note);
    }

    fn commit(&mut self, window: &Window) -> Result<()> {
        let grown = &window.grown;
        let mean = |seconds, count| grown.total(seconds) / grown.total(count);
        let (commit, batch) = (mean(APPEND_SECONDS, APPENDS), mean(COMMIT_SECONDS, COMMITS));
        // A database server flushes its own log.
        let log = match self.ground.engine() {
            Engine::Sqlite => JOURNAL_BYTES,
            Engine::Postgres => LOG_BYTES,
        };
        let bytes = mean(log, APPENDS).max(1.0) as usize;
        let sync = conditions::sync_time(self.starter.folder(), bytes)?.as_secs_f64();
        let side = |name, seconds| Side::new(name, seconds * 1_000.0, "ms");
        let sides = vec![side("commit", commit), side("fdatasync", sync)];
        let (units, millis) = (mean(UNITS, COMMITS), batch * 1_000.0);
        let note = format!("{bytes} bytes; the whole batch, {units:.0} units, {millis:.2} ms");
        self.figure(Row::Commit, commit / sync, sides, note);
        Ok(())
    }

    fn processor(&mut self, noop: &Sample, whole: &Window) -> Result<()> {
        let server = in_micros(whole.each(THREADS));
        let noop_window = noop.window.as_ref().context("its counters were read")?;
        let noops = noop.outcome.per_second() * noop_window.seconds;
        let noop = in_micros(noop_window.grown.total(THREADS) / noops);
        self.part(PROCESSOR, "server, all threads", server);
        let completed = whole.grown.total(COMPLETED);
        for (kind, counter) in [("", THREADS), ("PostgreSQL: ", BACKENDS)] {
            for (name, seconds) in whole.grown.by(counter, "name") {
                let micros = in_micros(seconds / completed);
                if micros < MICROS_SHOWN {
                    continue;
                }
                self.part(PROCESSOR, &format!("{kind}{name}"), micros);
            }
        }
        self.part(PROCESSOR, "for a no-op POST, all threads", noop);
        let sides = vec![Side::new("payment", server, "µs"), Side::new("no-op", noop, "µs")];
        let note = match self.ground.engine() {
            Engine::Sqlite => String::new(),
            Engine::Postgres => {
                format!("and {:.0} µs of PostgreSQL", in_micros(whole.each(BACKENDS)))
            }
        };
        self.figure(Row::Processor, server, sides, note);
        Ok(())
    }

    /// The log of a database server, beside that of payments with row locks.
    fn log(&mut self, clients: &Clients<'_>, server: &Server, whole: &Window) -> Result<()> {
        if !self.wants(&[Row::Log]) {
            return Ok(());
        }
        let place = self.ground.fresh("row-locks")?;
        let row_locks = RowLocks::set_up(&place.url())?;
        let row_locks = Some(&row_locks);
        let (locked, grown) = self.load(clients, server, Load::SettledRowLocks, row_locks)?;
        let each = |name| grown.grown.total(name) / locked.outcome.all as f64;
        let note = format!(
            "with row locks {:.0} µs of PostgreSQL's processor for each",
            in_micros(each(BACKENDS))
        );
        let [ours, theirs] = [whole.each(LOG_BYTES), each(LOG_BYTES)].map(in_kilobytes);
        let sides = vec![Side::new("ours", ours, "kB"), Side::new("row locks", theirs, "kB")];
        self.figure(Row::Log, ours, sides, note);
        Ok(())
    }

    fn counts(&mut self, whole: &Window, window: &Window) {
        let grown = &whole.grown;
        let each = |name| whole.each(name);
        let mut counts = vec![
            ("units of work", each(UNITS)),
            ("commits", each(COMMITS)),
            ("units in a commit", grown.total(UNITS) / grown.total(COMMITS)),
            ("rows of the journal", each(JOURNAL_ROWS)),
            ("bytes of the journal", each(JOURNAL_BYTES)),
            ("frames of the journal", each(FRAMES)),
            ("records changed", each(RECORDS)),
            ("records that the projector writes", each(PROJECTED)),
            ("steps of the projector a second", window.grown.total(STEPS) / window.seconds),
            ("records in a step", grown.total(PROJECTED) / grown.total(STEPS)),
        ];
        let operations = [
            ("zstd: compress", ZSTD, "compress"),
            ("zstd: decompress", ZSTD, "decompress"),
            ("AEAD: seal", AEAD, "seal"),
            ("AEAD: open", AEAD, "open"),
        ];
        for (name, counter, operation) in operations {
            let calls = grown.by(counter, "operation").get(operation).copied().unwrap_or_default();
            counts.push((name, calls / grown.total(COMPLETED)));
        }
        counts.push(("attempts to deliver an event", each(ATTEMPTS)));
        for (name, value) in counts {
            self.part(COUNTS, name, value);
        }
    }

    /// Disk, table by table, and what was written to their B-trees.
    fn disk(&mut self, whole: &Window, grown: f64, tables: &Counters, before: &Counters) {
        let [device, journal] = [DEVICE_BYTES, JOURNAL_BYTES].map(|name| whole.each(name));
        let side = |name, bytes| Side::new(name, in_kilobytes(bytes), "kB");
        let sides = vec![side("device", device), side("journal", journal)];
        self.figure(Row::Device, device / journal, sides, "for a settled payment");

        let payments = whole.grown.total(COMPLETED);
        let sides = [("all", grown / payments), ("journal", journal)];
        let sides = sides.map(|(name, bytes)| side(name, bytes));
        let note = format!("{payments:.0} payments, settled");
        self.figure(Row::Disk, in_kilobytes(grown / payments), sides.to_vec(), note);

        let written = whole.grown.by(PROJECTED, "table");
        let since = tables.since(before);
        // An embedded database does not count entries: each record is in each tree of its table.
        let trees = tables.by(TREES, "table");
        let in_trees =
            written.iter().map(|(table, records)| trees.get(table).unwrap_or(&0.0) * records);
        let (entries, name) = match self.ground.engine() {
            Engine::Sqlite => {
                (in_trees.sum(), "B-tree entries, at most: records × trees of tables")
            }
            Engine::Postgres => (since.total(ENTRIES), "rows and index entries, by pg_stat"),
        };
        self.part(COUNTS, name, entries / payments);
        for (table, records) in written {
            self.part(WRITTEN, &table, records / payments);
        }
        for (table, bytes) in since.by(TABLE_BYTES, "table") {
            if bytes != 0.0 {
                self.part(BYTES, &table, bytes / payments);
            }
        }
    }

    /// Allocations, by a server that counts them and is measured for nothing else.
    fn allocations(&mut self, place: &Place) -> Result<()> {
        let server = self.starter.counting().serve(place)?;
        if let Some(receivers) = &self.receivers {
            server.notify(Some(&receivers.fast))?;
        }
        let clients = self.clients(&server)?;
        for (load, name) in [(Load::NoopPost, "a no-op POST"), (Load::Hot, "a settled payment")] {
            let (sample, whole) = self.load(&clients, &server, load, None)?;
            let count = sample.outcome.all as f64;
            for (what, counter) in
                [("allocations", ALLOCATIONS), ("bytes of them", ALLOCATED_BYTES)]
            {
                let each = whole.grown.total(counter) / count;
                self.part(COUNTS, &format!("{what}, {name}"), each);
            }
        }
        server.stop()
    }
}
