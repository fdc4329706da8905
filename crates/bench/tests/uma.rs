//! Two servers of the benchmark pay each other, and a run ends only if the books of both hold.

use std::path::Path;
use std::time::Duration;

use bench::child::Starter;
use bench::uma::{self, Plan};

#[test]
fn two_institutions_pay_each_other_and_leave_sound_books() {
    let folder = tempfile::tempdir().expect("a folder");
    let starter = Starter::new(Path::new(env!("CARGO_BIN_EXE_bench")), folder.path());
    let plan = Plan {
        rounds: 1,
        warm_up: Duration::ZERO,
        // A busy machine may take a second for the first flush.
        duration: Duration::from_secs(2),
        clients: 4,
        customers: 6,
    };
    let report = uma::run(&starter, folder.path(), &plan).expect("a run");
    let table = report.table();
    assert_eq!(table.lines().count(), 6, "a head and four loads: {table}");
    assert!(!table.contains("NaN"), "every load has figures: {table}");
}
