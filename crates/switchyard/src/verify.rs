//! `switchyard verify`: does everything that the system promises about its data hold?
//!
//! Only reads, so it may run beside the server. Without the key, what is sealed stays closed, and
//! the report says which checks that leaves out.

use serde_json::{Value, json};
use store::SqliteFile;
use store::verify::{Check, Report, replay, verify};

use crate::command::{Failure, aligned, emit, print};
use crate::config::{Config, EXIT_FAILURE, EXIT_OK, Verify};
use crate::wiring;

/// Checks the database and prints the report. A database that cannot be looked at is a failure of
/// its own kind: it tells neither good nor bad.
pub fn run(config: &Config, options: &Verify) -> Result<u8, Failure> {
    let mut report = check(config).map_err(Failure::as_usage)?;
    // Rows under another schema say nothing.
    if options.replay && report.checks.first().is_some_and(Check::holds) {
        report.checks.push(replayed(config).map_err(Failure::as_usage)?);
    }
    emit(&json(&report))?;
    print(&human(&report))?;
    Ok(if report.is_sound() { EXIT_OK } else { EXIT_FAILURE })
}

fn check(config: &Config) -> Result<Report, Failure> {
    wiring::refuse_missing(&config.database, "--database-url")?;
    let keyring = wiring::keyring_if_there(&config.database, &config.key)?;
    let unwritable = || config.database.unwritable_folder().map(Failure::new);
    let report = verify(&*config.database.engine(), keyring.as_ref());
    let report = report
        .map_err(|error| unwritable().unwrap_or_else(|| wiring::failed(&config.database, error)))?;
    // Without its log, a database that was in use looks like an empty one.
    let is_empty = report.checks.first().is_some_and(|schema| schema.rows == 0);
    match unwritable().filter(|_| is_empty) {
        Some(failure) => Err(failure),
        None => Ok(report),
    }
}

/// Makes the tables once more from the journal, and compares.
fn replayed(config: &Config) -> Result<Check, Failure> {
    let keyring = wiring::keyring_if_there(&config.database, &config.key)?.ok_or_else(|| {
        Failure::new("the journal is sealed: --replay needs the key of the database")
    })?;
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::new(format!("no folder for temporary files: {error}")))?;
    let scratch = SqliteFile::new(&folder.path().join("replay.db"));
    replay(&*config.database.engine(), &keyring, &scratch)
        .map_err(|error| Failure::new(format!("the journal cannot be replayed: {error}")))
}

/// The report for people: one line for each predicate, the breaks below, and the sum of it.
pub fn human(report: &Report) -> String {
    let row = |check: &Check| {
        let breaks = check.breaks.len() as u64 + check.more;
        let result = match (breaks, check.skipped) {
            (0, None) => "holds".to_owned(),
            (0, Some(_)) => "skipped".to_owned(),
            (breaks, _) => format!("{breaks} BROKEN"),
        };
        [check.predicate.to_owned(), check.rows.to_string(), result, check.what.to_owned()]
    };
    let header = ["check", "rows", "result", "what must hold"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(header).chain(report.checks.iter().map(row)).collect();
    let mut text = aligned(&rows);
    for check in &report.checks {
        for line in &check.breaks {
            text += &format!("\n{}: {line}", check.predicate);
        }
        if check.more > 0 {
            text += &format!("\n{}: and {} more", check.predicate, check.more);
        }
    }
    let broken = report.checks.iter().filter(|check| !check.holds()).count();
    let skipped: Vec<_> = report.checks.iter().filter(|check| check.skipped.is_some()).collect();
    let hold = report.checks.len() - broken;
    let hold = hold - skipped.iter().filter(|check| check.holds()).count();
    text += &format!("\n{hold} hold, {broken} broken, {} skipped", skipped.len());
    if let Some(reason) = skipped.first().and_then(|check| check.skipped) {
        text += &format!(" ({reason})");
    }
    text.push('\n');
    text
}

/// The report for programs.
pub fn json(report: &Report) -> Value {
    let check = |check: &Check| {
        json!({
            "predicate": check.predicate,
            "what": check.what,
            "rows": check.rows,
            "holds": check.holds(),
            "breaks": check.breaks,
            "moreBreaks": check.more,
            "skipped": check.skipped,
        })
    };
    let checks: Vec<_> = report.checks.iter().map(check).collect();
    json!({ "sound": report.is_sound(), "checks": checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(breaks: &[&str], skipped: Option<&'static str>) -> Report {
        let check = Check {
            predicate: "L1",
            what: "it balances",
            rows: 7,
            breaks: breaks.iter().map(|line| (*line).to_owned()).collect(),
            more: 0,
            skipped,
        };
        Report { checks: vec![check] }
    }

    #[test]
    fn people_see_what_holds_what_is_broken_and_what_was_left_out() {
        let check = |breaks: &[&str], skipped, end: &str| {
            let text = human(&report(breaks, skipped));
            assert!(text.contains("it balances") && text.ends_with(end), "{text}");
        };
        check(&[], None, "it balances\n\n1 hold, 0 broken, 0 skipped\n");
        check(&["a is off"], None, "\nL1: a is off\n0 hold, 1 broken, 0 skipped\n");
        check(&[], Some("no key"), "\n0 hold, 0 broken, 1 skipped (no key)\n");
    }

    #[test]
    fn programs_see_the_same() {
        let value = json(&report(&["a is off"], None));
        assert_eq!(value["sound"], false);
        assert_eq!(value["checks"][0]["breaks"][0], "a is off");
        assert_eq!(json(&report(&[], None))["checks"][0]["holds"], true);
    }
}
