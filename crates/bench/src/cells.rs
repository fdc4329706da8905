//! A day of 10⁹ payments, simulated on cells as fast as the one that was measured.
//!
//! Cells are described in `docs/scaling.md`. Platforms of very different sizes are spread over
//! cells; each cell is a queue that is served at the measured speed; every second of a day brings
//! payments by the hour and by chance, and every cell loses its server once. The outcome is how
//! many cells it takes, how full they are, and how long a payment waits at worst.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::place::Engine;
use crate::report::Report;
use crate::rows::Row;

/// Payments of the day.
const PAYMENTS: f64 = 1e9;

/// Seconds of the day.
const SECONDS: usize = 86_400;

/// How much more comes in the busiest minute than on average; the quietest has as much less.
const PEAK: f64 = 1.8;

/// Platforms. The size of the n-th largest is that of the largest divided by n, as sizes of firms
/// and cities are.
const PLATFORMS: usize = 10_000;

/// How full a cell is made for its busiest second: the rest is for chance and for what was left
/// undone while a server was replaced.
const FULL: f64 = 0.7;

/// How long a cell does nothing when its server is lost, in seconds: more than the longest takeover
/// that the tests of faults have seen.
const OUTAGE: usize = 6;

/// The shares of payments that go to another cell, and so are made in two.
const ACROSS: [f64; 3] = [0.0, 0.1, 0.5];

/// Where the generated part of the document begins and ends.
const BEGIN: &str = "<!-- begin: written by `cargo xtask bench cells` -->\n";
const END: &str = "<!-- end -->\n";

/// The measured speed of one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Payments a second between many accounts, settlements with them.
    pub per_second: f64,
    /// Payments a second from one account, settlements with them.
    pub per_second_hot: f64,
    /// Disk for each payment, in kB.
    pub kilobytes: f64,
}

impl Cell {
    /// The figures of PostgreSQL in the last run.
    pub fn measured(report: &Report) -> Result<Self> {
        let of_postgres = report.engines.get(&Engine::Postgres).context("no run on PostgreSQL")?;
        let settled = |load: &str| {
            let mut loads = of_postgres.throughput.iter();
            let found = loads.find(|found| found.load == load);
            found
                .and_then(|found| found.settled_per_second)
                .with_context(|| format!("the report does not have the load '{load}'"))
        };
        let disk = of_postgres.figures.iter().find(|figure| figure.row == Row::Disk);
        Ok(Self {
            per_second: settled("transfer-out, random accounts")?,
            per_second_hot: settled("transfer-out, one hot account")?,
            kilobytes: disk.context("the report does not have the row of the disk")?.value,
        })
    }
}

/// The figures of a simulated day.
#[derive(Debug, Clone, PartialEq)]
struct Day {
    cells: usize,
    /// Platforms that are larger than a cell may be, and are spread over several.
    spread: usize,
    /// The share of the busiest second of the fullest cell that work took.
    fullest: f64,
    /// The longest wait while every cell works, in seconds.
    wait: f64,
    /// The longest wait in a cell that has lost its server, in seconds, and how long it took until
    /// no payment waited any more.
    wait_after_loss: f64,
    recovery: usize,
    /// Payments that waited for more than a second.
    late: f64,
}

/// The work of each cell as a share of all: the largest platforms first, each to the cell that has
/// the least; one that is larger than `most` in parts.
fn spread(cells: usize, most: f64) -> (Vec<f64>, usize) {
    let harmonic: f64 = (1..=PLATFORMS).map(|number| 1.0 / number as f64).sum();
    let (mut loads, mut spread) = (vec![0.0_f64; cells], 0);
    for number in 1..=PLATFORMS {
        let share = 1.0 / (number as f64 * harmonic);
        let parts = (share / most).ceil().max(1.0);
        spread += usize::from(parts > 1.0);
        for _ in 0..parts as usize {
            let emptiest = loads.iter_mut().min_by(|a, b| a.total_cmp(b));
            if let Some(load) = emptiest {
                *load += share / parts;
            }
        }
    }
    (loads, spread)
}

/// Payments of all platforms in a second of the day, on average.
fn arriving(second: usize) -> f64 {
    let turn = second as f64 / SECONDS as f64 * std::f64::consts::TAU;
    PAYMENTS / SECONDS as f64 * (1.0 - (PEAK - 1.0) * turn.cos())
}

/// A day of one cell with a share of all payments.
fn day_of(cell: Cell, share: f64, work: f64, lost_at: Option<usize>, day: &mut Day) {
    let mut random = fastrand::Rng::with_seed(share.to_bits());
    let (mut waiting, mut recovering) = (0.0_f64, 0);
    for second in 0..SECONDS {
        let mean = arriving(second) * share * work;
        // The sum of uniform numbers is close enough to a normal one; its variance is that of
        // payments that come independently.
        let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let arrived = (mean + normal * mean.sqrt()).max(0.0);
        let is_lost = lost_at.is_some_and(|at| (at..at + OUTAGE).contains(&second));
        let served = if is_lost { 0.0 } else { cell.per_second };
        waiting = (waiting + arrived - served).max(0.0);
        let unavailable = lost_at.map_or(0, |at| (at + OUTAGE).saturating_sub(second + 1));
        let unavailable = if is_lost { unavailable as f64 } else { 0.0 };
        let wait = waiting / cell.per_second + unavailable;
        if wait > 1.0 {
            day.late += arrived / work;
        }
        match lost_at {
            None => {
                day.wait = day.wait.max(wait);
                day.fullest = day.fullest.max(mean / cell.per_second);
            }
            Some(at) if second >= at => {
                day.wait_after_loss = day.wait_after_loss.max(wait);
                recovering += usize::from(waiting > 0.0 && recovering == second - at);
            }
            Some(_) => {}
        }
    }
    day.recovery = day.recovery.max(recovering);
}

/// A day on as few cells as may be. `across` is the share of payments that are made in two cells.
fn simulate(cell: Cell, across: f64) -> Day {
    let work = 1.0 + across;
    let peak = PAYMENTS / SECONDS as f64 * PEAK * work;
    let most = cell.per_second * FULL / peak;
    let mut cells = (1.0 / most).ceil() as usize;
    let (loads, spread) = loop {
        let (loads, parts) = spread(cells, most);
        if loads.iter().all(|load| *load <= most) {
            break (loads, parts);
        }
        cells += 1;
    };
    let mut day = Day {
        cells,
        spread,
        fullest: 0.0,
        wait: 0.0,
        wait_after_loss: 0.0,
        recovery: 0,
        late: 0.0,
    };
    for load in &loads {
        day_of(cell, *load, work, None, &mut day);
    }
    // The worst moment for the fullest: its busiest second.
    let fullest = loads.iter().copied().fold(0.0, f64::max);
    day.late = 0.0;
    day_of(cell, fullest, work, Some(SECONDS / 2), &mut day);
    day
}

/// The part of the document that a report leads to.
pub fn text(cell: Cell) -> String {
    let average = PAYMENTS / SECONDS as f64;
    let mut text = format!(
        "Measured, on two cores that PostgreSQL shares with the server and the load: \
         {:.0} payments a second between many accounts and {:.0} from one, settled, and {:.2} kB of \
         disk for each ([results](benchmarks/results.md)).\n\n\
         10⁹ payments a day are {average:.0} a second, and {:.0} in the busiest. {PLATFORMS} \
         platforms make them, the n-th largest a n-th of the largest; cells are filled to {:.0} % of \
         their busiest second.\n\n\
         | payments to another cell | cells of that size | platforms over several cells | fullest \
         cell, busiest second | longest wait | a server lost in the busiest second: longest wait | \
         queue empty after | payments later than a second |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|\n",
        cell.per_second,
        cell.per_second_hot,
        cell.kilobytes,
        average * PEAK,
        FULL * 100.0,
    );
    for across in ACROSS {
        let day = simulate(cell, across);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {:.0} % | {} | {} | {:.0} % | {:.2} s | {:.1} s | {} s | {:.0} |",
            across * 100.0,
            day.cells,
            day.spread,
            day.fullest * 100.0,
            day.wait,
            day.wait_after_loss,
            day.recovery,
            day.late,
        );
    }
    let terabytes = PAYMENTS * cell.kilobytes / 1e9;
    let cells = simulate(cell, ACROSS[1]).cells as f64;
    let largest = 1.0 / (1..=PLATFORMS).map(|number| 1.0 / number as f64).sum::<f64>();
    let _ = writeln!(
        text,
        "\nThey write {terabytes:.1} TB a day, {:.0} GB in each cell, which is what decides for how \
         long payments stay in the database that takes them. The largest platform makes {:.0} \
         payments in the busiest second: a single account of it can have {:.0} of them, which is \
         what one writer does.",
        terabytes * 1e3 / cells,
        largest * average * PEAK,
        cell.per_second_hot,
    );
    text
}

/// Replaces the generated part of a document.
pub fn replaced(document: &str, text: &str) -> Result<String> {
    let marks = document
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let (before, after) = marks.context("the document does not have the marks for this part")?;
    Ok(format!("{before}{BEGIN}{text}{END}{after}"))
}

/// Writes what a report leads to into the document.
pub fn write(results: &Path, document: &Path) -> Result<()> {
    let report = Report::read(results)?;
    let before = std::fs::read_to_string(document)
        .with_context(|| format!("reading {}", document.display()))?;
    std::fs::write(document, replaced(&before, &text(Cell::measured(&report)?))?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell = Cell { per_second: 3_000.0, per_second_hot: 4_000.0, kilobytes: 4.0 };

    #[test]
    fn all_work_is_given_out_and_no_cell_gets_too_much() {
        for across in ACROSS {
            let peak = PAYMENTS / SECONDS as f64 * PEAK * (1.0 + across);
            let most = CELL.per_second * FULL / peak;
            let cells = simulate(CELL, across).cells;
            let (loads, _) = spread(cells, most);
            assert!((loads.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert!(loads.iter().all(|load| *load <= most));
            assert!(cells as f64 >= peak / (CELL.per_second * FULL));
        }
    }

    #[test]
    fn a_day_has_all_its_payments() {
        let all: f64 = (0..SECONDS).map(arriving).sum();
        assert!((all / PAYMENTS - 1.0).abs() < 1e-9, "{all}");
        assert!(arriving(SECONDS / 2) > PEAK * 0.999 * PAYMENTS / SECONDS as f64);
    }

    #[test]
    fn a_lost_server_is_felt_and_is_over() {
        let day = simulate(CELL, 0.0);
        assert!(day.wait < 0.1, "{day:?}");
        assert!(day.wait_after_loss >= (OUTAGE - 1) as f64, "{day:?}");
        // Work that waited for the outage is done with the capacity that a cell has to spare.
        assert!(day.recovery > OUTAGE && day.recovery < 10 * OUTAGE, "{day:?}");
        assert!(day.late > 0.0 && day.late < PAYMENTS * 1e-3, "{day:?}");
    }

    #[test]
    fn slower_cells_are_more_cells() {
        let slow = Cell { per_second: 1_500.0, ..CELL };
        assert!(simulate(slow, 0.0).cells > simulate(CELL, 0.0).cells * 19 / 10);
    }
}
