//! `switchyard migrate`: everything to another database, and the proof that it is there.

use serde_json::{Value, json};
use store::copy::{COMMAND, CopyError, Proof, Step, copy};

use crate::command::{Failure, aligned, emit, print};
use crate::config::{Config, EXIT_FAILURE, EXIT_OK, Migrate};
use crate::copies::checked;
use crate::database::Database;
use crate::operator;
use crate::progress::{Progress, seconds};
use crate::telemetry::log_change;
use crate::verify::{self, human};
use crate::wiring;

/// Accounts that differ and are named; the rest is counted.
const ACCOUNTS_NAMED_MAX: usize = 100;

/// Moves the database and prints the proof.
pub fn run(config: &Config, options: &Migrate) -> Result<u8, Failure> {
    let mut progress = Progress::start();
    let (from, to) = (&config.database, Database::parse(&options.to.0)?);
    wiring::refuse_missing(from, "--from")?;
    if from.to_string() == to.to_string() {
        return Err(Failure::new("the database to move to is the one that is to be moved"));
    }
    let keyring = wiring::keyring(from, &config.key)?.ok_or_else(wiring::missing_key)?;
    let mut resumed_rows = 0;
    let mut on_step = |step| tell(step, &mut resumed_rows, &mut progress);
    let origin = operator::origin(COMMAND);
    let proof = match copy(&*from.engine(), &*to.engine(), &keyring, origin, &mut on_step) {
        Ok(proof) => proof,
        Err(error) => {
            if let CopyError::SourceUnsound(report) = &error {
                print(&human(report))?;
                emit(&verify::json(report))?;
            }
            return Err(Failure::new(format!("{from} to {to}: {error}")));
        }
    };
    if proof.holds() {
        log_change(COMMAND, &to);
    }
    print(&in_words(&proof))?;
    emit(&described(from, &to, &proof))?;
    if !proof.holds() {
        return Ok(EXIT_FAILURE);
    }
    let rows: u64 = proof.tables.iter().map(|table| table.target.rows).sum();
    print(&format!(
        "\nmoved {rows} rows to {to} in {time}; {checks}\n\n\
         Serve it with the same key, which is looked for in {key}. The old database is as it was: \
         keep\nit until the new one has a backup, and let no server use it.\n",
        key = to.key_file().display(),
        time = seconds(progress.elapsed()),
        checks = checked(&proof.report),
    ))?;
    Ok(EXIT_OK)
}

/// The proof for programs.
fn described(from: &Database, to: &Database, proof: &Proof) -> Value {
    let table = |table: &store::copy::TableProof| {
        json!({
            "table": table.table,
            "rows": table.target.rows,
            "sourceDigest": table.source.short_digest(),
            "targetDigest": table.target.short_digest(),
            "same": table.holds(),
        })
    };
    let tables: Vec<_> = proof.tables.iter().map(table).collect();
    let differ = proof.accounts.iter().filter(|account| !account.holds());
    let differ: Vec<_> = differ.map(|account| account.account.to_string()).collect();
    json!({
        "from": from.to_string(),
        "to": to.to_string(),
        "proven": proof.holds(),
        "tables": tables,
        "accounts": proof.accounts.len(),
        "accountsThatDiffer": differ,
        "sound": proof.report.is_sound(),
    })
}

/// Tells what is being done.
fn tell(step: Step, resumed_rows: &mut u64, progress: &mut Progress) {
    match step {
        Step::CheckingSource => progress.tell("verifying the database that is to be moved"),
        Step::Resuming { rows } => {
            *resumed_rows = rows;
            progress.tell(&format!("going on with an earlier copy, which moved {rows} rows"));
        }
        Step::FoundDone => progress
            .tell("an earlier copy was finished, and nothing was changed since: proving it again"),
        Step::StartingOver => progress
            .tell("an earlier copy was of something else, or could not be proven: starting over"),
        Step::Copied { table, rows, of_rows, all_rows, of_all_rows } => {
            let millis = u64::try_from(progress.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
            let line = || {
                format!(
                    "{table}: {rows} of {of_rows} rows, {percent} % of everything, {rate} rows/s",
                    percent = (all_rows * 100).checked_div(of_all_rows).unwrap_or(100),
                    rate = (all_rows - *resumed_rows).saturating_mul(1_000) / millis,
                )
            };
            if rows == of_rows {
                progress.tell(&line());
            } else {
                progress.tell_sometimes(line);
            }
        }
        Step::Comparing { table } => progress.tell(&format!("comparing {table} on both sides")),
        Step::CheckingTarget => progress.tell("verifying the new database"),
    }
}

/// The proof for people: every table, the sums of every currency, and whatever differs.
fn in_words(proof: &Proof) -> String {
    let header = ["table", "rows", "digest of all rows, from", "to", "result"].map(str::to_owned);
    let table = |table: &store::copy::TableProof| {
        [
            table.table.to_owned(),
            table.target.rows.to_string(),
            table.source.short_digest(),
            table.target.short_digest(),
            if table.holds() { "same" } else { "DIFFERENT" }.to_owned(),
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(proof.tables.iter().map(table)).collect();
    let mut text = aligned(&rows);
    let header = ["currency", "accounts", "debits", "credits", "debits pending", "credits pending"]
        .map(str::to_owned);
    let currency = |(currency, (accounts, sums)): (domain::currency::Currency, _)| {
        let (accounts, sums): (usize, ledger::audit::Sums) = (accounts, sums);
        [
            currency.code().to_owned(),
            accounts.to_string(),
            sums.debits_posted.to_string(),
            sums.credits_posted.to_string(),
            sums.debits_pending.to_string(),
            sums.credits_pending.to_string(),
        ]
    };
    let rows: Vec<_> =
        std::iter::once(header).chain(proof.totals().into_iter().map(currency)).collect();
    text += "\n";
    text += &aligned(&rows);
    let differ: Vec<_> = proof.accounts.iter().filter(|account| !account.holds()).collect();
    text += &format!(
        "\n{} accounts have the balance that their entries come to, and the same on both sides\n",
        proof.accounts.len() - differ.len()
    );
    for account in differ.iter().take(ACCOUNTS_NAMED_MAX) {
        text += &format!("DIFFERENT: {}\n", account.account);
    }
    if let Some(more @ 1..) = differ.len().checked_sub(ACCOUNTS_NAMED_MAX) {
        text += &format!("DIFFERENT: and {more} more\n");
    }
    if !proof.report.is_sound() {
        text += "\n";
        text += &human(&proof.report);
    }
    if !proof.holds() {
        text += "\nnot proven: the new database cannot be opened; the next migrate starts over\n";
    }
    text
}
