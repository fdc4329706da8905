//! Figures on their way to people: a table on standard output, and files that are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::place::Engine;
use crate::plot;
use crate::rows::{Aim, Breakdown, Figure, LatencyPoint, PageTime, Part, Row, Side, Throughput};

/// The file that programs read; the others are written from it.
const JSON: &str = "results.json";

/// The file that people read.
const MARKDOWN: &str = "results.md";

/// Everything that a run has found out about one engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineReport {
    /// On what and with what.
    pub conditions: Vec<Condition>,
    /// The rows, in order.
    pub figures: Vec<Figure>,
    /// Every load that was measured to find them.
    pub throughput: Vec<Throughput>,
    /// Latency at half of peak load.
    pub latency: Vec<LatencyPoint>,
    /// Times of pages.
    pub pages: Vec<PageTime>,
    /// The costs of a payment.
    #[serde(default)]
    pub costs: Vec<Breakdown>,
}

/// The last results of each engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// By engine.
    pub engines: BTreeMap<Engine, EngineReport>,
}

impl Report {
    /// Reads what is kept in a folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(JSON);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| format!("{} is no report", path.display()))
    }

    /// Keeps the report in a folder, beside what an earlier run has found out about other engines.
    pub fn keep(self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(JSON);
        let mut kept = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is no report: remove it", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        };
        kept.engines.extend(self.engines);
        std::fs::write(&path, serde_json::to_string_pretty(&kept)? + "\n")?;
        let plots = plot::draw(&kept, folder)?;
        std::fs::write(folder.join(MARKDOWN), kept.markdown(&plots))?;
        Ok(())
    }

    /// The report for people.
    fn markdown(&self, plots: &[(&'static str, &'static str)]) -> String {
        let mut text = "# Results\n\nWritten by `cargo xtask bench`; how it measures stands in \
                        [README.md](README.md).\n"
            .to_owned();
        for (engine, report) in &self.engines {
            text += &format!("\n## {engine}\n\n{}", report.figures_table());
            for Breakdown { title, parts } in &report.costs {
                text += &format!("\n| {title} | | with webhooks |\n|---|---:|---:|\n");
                for [name, value, notified] in parts.iter().map(part_cells) {
                    text += &format!("| {name} | {value} | {notified} |\n");
                }
            }
            text += "\nEvery load, medians of its rounds. The last column is the payments that came \
                     to `COMPLETED` in the time that is measured:\n\n";
            text += &report.throughput_table();
            if !report.pages.is_empty() {
                text += "\nPages of 20 transactions, median times:\n\n";
                text += &report.pages_table();
            }
            text += "\nMeasured with:\n\n";
            for Condition { name, value } in &report.conditions {
                text += &format!("- {name}: {value}\n");
            }
        }
        text += "\n## Plots\n";
        for (file, title) in plots {
            text += &format!("\n![{title}]({file})\n");
        }
        text
    }
}

impl EngineReport {
    /// The rows as a table.
    fn figures_table(&self) -> String {
        let mut table = "| row | ours | against | figure | with webhooks | aim | met | |\n\
                         |---|---:|---:|---:|---:|---:|---|---|\n"
            .to_owned();
        for figure in &self.figures {
            let [row, ours, against, value, notified, aim, met, note] = cells(figure);
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "| {row} | {ours} | {against} | **{value}** | {notified} | {aim} | {met} | {note} |"
            );
        }
        table
    }

    fn throughput_table(&self) -> String {
        let mut table = "| load | per second | p50 | p99 | per second, settled |\n\
                         |---|---:|---:|---:|---:|\n"
            .to_owned();
        for Throughput { load, per_second, settled_per_second, p50_millis, p99_millis } in
            &self.throughput
        {
            let settled = settled_per_second.map(|rate| format!("{rate:.0}"));
            let _ = writeln!(
                table,
                "| {load} | {per_second:.0} | {p50_millis:.2} ms | {p99_millis:.2} ms | {} |",
                settled.unwrap_or_default()
            );
        }
        table
    }

    /// A line for each page, with its time in each database.
    fn pages_table(&self) -> String {
        let sizes: BTreeSet<_> = self.pages.iter().map(|page| page.transactions).collect();
        let mut table = "| page |".to_owned();
        for size in &sizes {
            let _ = write!(table, " {size} payments |");
        }
        let _ = writeln!(table, "\n|---|{}", "---:|".repeat(sizes.len()));
        let mut lines: Vec<(&str, BTreeMap<u64, f64>)> = Vec::new();
        for PageTime { page, transactions, millis } in &self.pages {
            match lines.iter_mut().find(|(known, _)| known == page) {
                Some((_, times)) => drop(times.insert(*transactions, *millis)),
                None => lines.push((page, BTreeMap::from([(*transactions, *millis)]))),
            }
        }
        for (page, times) in lines {
            let _ = write!(table, "| {page} |");
            for size in &sizes {
                let time = times.get(size).map(|millis| format!("{millis:.3} ms"));
                let _ = write!(table, " {} |", time.unwrap_or_default());
            }
            table.push('\n');
        }
        table
    }

    /// The rows for a terminal.
    pub fn print(&self, engine: Engine) {
        println!("\n{engine}");
        let header = ["row", "ours", "against", "figure", "with webhooks", "aim", "met", ""];
        let header = header.map(str::to_owned);
        let rows = self.figures.iter().map(cells);
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        print!("{}", switchyard::command::aligned(&rows));
        for Breakdown { title, parts } in &self.costs {
            let header = [&**title, "", "with webhooks"].map(str::to_owned);
            let rows: Vec<_> =
                std::iter::once(header).chain(parts.iter().map(part_cells)).collect();
            print!("\n{}", switchyard::command::aligned(&rows));
        }
        println!();
        for Condition { name, value } in &self.conditions {
            println!("{name}: {value}");
        }
    }
}

/// The cells of a row of costs.
fn part_cells(Part { name, value, notified }: &Part) -> [String; 3] {
    [name.clone(), value.map(digits).unwrap_or_default(), notified.map(digits).unwrap_or_default()]
}

/// The cells of a row: what, ours, against, figure, with webhooks, aim, met, note.
fn cells(figure: &Figure) -> [String; 8] {
    let Figure { row, value, notified, sides, aim, note } = figure;
    let side = |at: usize| {
        let said = |Side { value, unit, .. }: &Side| format!("{}{unit}", digits(*value));
        sides.get(at).map(said).unwrap_or_default()
    };
    let with_unit = |value: f64| format!("{} {}", digits(value), row.unit()).trim_end().to_owned();
    let aim_text = match aim {
        Some(Aim::AtLeast(bound)) => format!("≥ {}", with_unit(*bound)),
        Some(Aim::AtMost(bound)) => format!("≤ {}", with_unit(*bound)),
        None => String::new(),
    };
    let met = match figure.is_met() {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    };
    let mut notes = Vec::new();
    // Only a list page does not say by its row what was compared.
    if *row == Row::Pages
        && let Some(ours) = sides.first()
    {
        notes.push(ours.what.clone());
    }
    if !note.is_empty() {
        notes.push(note.clone());
    }
    let what = row.what().to_owned();
    let (figure, notified) = (with_unit(*value), notified.map(with_unit).unwrap_or_default());
    let note = notes.join("; ");
    [what, side(0), side(1), figure, notified, aim_text, met.to_owned(), note]
}

/// Three digits that count.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(row: Row, value: f64, aim: Aim) -> Figure {
        let sides = vec![Side::new("ours", 50.0, "/s"), Side::new("theirs", 100.0, "/s")];
        let notified = Some(value * 2.0);
        Figure { row, value, notified, sides, aim: Some(aim), note: "seen".to_owned() }
    }

    #[test]
    fn a_row_shows_both_sides_and_whether_the_aim_is_met() {
        let report = EngineReport {
            figures: vec![
                figure(Row::Transfer, 0.5, Aim::AtLeast(0.4)),
                figure(Row::Latency, 12.0, Aim::AtMost(10.0)),
            ],
            ..EngineReport::default()
        };
        let table = report.figures_table();
        assert!(
            table.contains("| 50.0/s | 100/s | **0.50** | 1.00 | ≥ 0.40 | yes | seen |"),
            "{table}"
        );
        assert!(table.contains("| **12.0 ms** | 24.0 ms | ≤ 10.0 ms | NO | seen |"), "{table}");
    }

    #[test]
    fn a_run_replaces_what_is_kept_of_its_own_engine_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let report = |engine: Engine, value: f64| {
            let figures = vec![figure(Row::Transfer, value, Aim::AtLeast(0.4))];
            let latency = vec![
                LatencyPoint { percent: 50.0, millis: 1.0 },
                LatencyPoint { percent: 99.9, millis: 7.0 },
            ];
            let report = EngineReport { figures, latency, ..EngineReport::default() };
            Report { engines: BTreeMap::from([(engine, report)]) }
        };
        report(Engine::Sqlite, 0.1).keep(folder.path()).expect("kept");
        report(Engine::Postgres, 0.2).keep(folder.path()).expect("kept");
        report(Engine::Sqlite, 0.3).keep(folder.path()).expect("kept");
        let kept = std::fs::read(folder.path().join(JSON)).expect("a file");
        let kept: Report = serde_json::from_slice(&kept).expect("a report");
        assert!((kept.engines[&Engine::Sqlite].figures[0].value - 0.3).abs() < f64::EPSILON);
        assert!((kept.engines[&Engine::Postgres].figures[0].value - 0.2).abs() < f64::EPSILON);
        let text = std::fs::read_to_string(folder.path().join(MARKDOWN)).expect("a file");
        for part in ["## SQLite", "## PostgreSQL", "![", "**0.30**", "**0.20**"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }
}
