//! `cargo xtask ci`: everything a change must pass, in the order that finds mistakes soonest.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{self, Workspace};
use crate::{clients, contract, deny, fuzz, lightning, release, suite, tidy};

/// The whole run on a machine with two cores and nothing built yet. The aim is an hour, and a
/// quarter more is for a machine that others use too. A change that pushes it over the limit makes
/// everyone wait; it must find the time elsewhere.
const TIME_MAX: Duration = Duration::from_secs(75 * 60);

/// The demonstration settles payments in about a second each; longer means it hangs.
const DEMO_TIME_MAX: Duration = Duration::from_secs(3 * 60);

/// How often a running demonstration is looked at.
const DEMO_POLL: Duration = Duration::from_millis(50);

type Step = (&'static str, fn(&Workspace) -> Result<()>);

const STEPS: &[Step] = &[
    ("format", |workspace| workspace::run(workspace.cargo(&["fmt", "--all", "--check"]))),
    ("tidy", tidy::run),
    ("lints", |workspace| {
        let lints = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        workspace::run(workspace.cargo(&lints))
    }),
    ("dependencies", deny::run),
    ("tests", |workspace| suite::run(workspace, &[])),
    ("lightning", lightning::run),
    ("fuzzing", fuzz::run),
    ("documentation", |workspace| {
        let mut command = workspace.cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        workspace::run(command)
    }),
    ("release build", release::build),
    ("demo", demo),
    ("contract", contract::run),
    ("clients", clients),
];

/// Runs the steps until one fails and prints what each took.
pub fn run(workspace: &Workspace) -> Result<()> {
    let start = now();
    let mut table = Vec::new();
    let mut result = Ok(());
    for (name, step) in STEPS {
        println!("\n=== {name}");
        let step_start = now();
        result = step(workspace).with_context(|| format!("ci step '{name}'"));
        let took = step_start.elapsed();
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {word} after {}", minutes(took));
        table.push((*name, word, took));
        if result.is_ok() && start.elapsed() > TIME_MAX {
            result = Err(anyhow::anyhow!(
                "ci took {}, more than the {} allowed: make a step faster",
                minutes(start.elapsed()),
                minutes(TIME_MAX)
            ));
        }
        if result.is_err() {
            break;
        }
    }
    println!("\n{:<16}{:<8}{:>9}", "step", "result", "time");
    for (name, word, took) in &table {
        println!("{name:<16}{word:<8}{:>9}", minutes(*took));
    }
    for (name, _) in &STEPS[table.len()..] {
        println!("{name:<16}{:<8}{:>9}", "not run", "");
    }
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    println!("{:<16}{word:<8}{:>9}", "ci", minutes(start.elapsed()));
    result
}

/// Runs generated clients against the release build.
pub fn clients(workspace: &Workspace) -> Result<()> {
    clients::run(workspace, &release::binary(workspace)?)
}

/// Runs the whole story on a throw-away database with the release build.
fn demo(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.command(release::binary(workspace)?);
    command.arg("demo");
    run_within(command, DEMO_TIME_MAX)
}

/// Like [`workspace::run`], but stops a command that takes longer than `time_max`.
pub fn run_within(mut command: Command, time_max: Duration) -> Result<()> {
    let line = workspace::shown(&command);
    println!("$ {line}");
    let mut child = command.spawn().with_context(|| format!("starting {line}"))?;
    let start = now();
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("{line}: {status}");
        }
        if start.elapsed() > time_max {
            child.kill()?;
            child.wait()?;
            bail!("{line}: still running after {}, stopped", minutes(time_max));
        }
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "a task measures how long its steps take")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the standard library cannot wait with a limit")]
fn pause() {
    std::thread::sleep(DEMO_POLL);
}

/// `2m 05.3s`.
fn minutes(time: Duration) -> String {
    let tenths = time.as_millis() / 100;
    format!("{}m {:02}.{}s", tenths / 600, tenths / 10 % 60, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_minutes_and_seconds() {
        assert_eq!(minutes(Duration::from_millis(125_349)), "2m 05.3s");
        assert_eq!(minutes(Duration::from_millis(99)), "0m 00.0s");
    }

    #[test]
    fn a_command_that_hangs_is_stopped() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let error = run_within(command, Duration::from_millis(100)).expect_err("must be stopped");
        assert!(error.to_string().contains("still running"), "{error}");
    }

    #[test]
    fn a_command_that_fails_is_an_error() {
        run_within(Command::new("true"), DEMO_TIME_MAX).expect("ends well");
        run_within(Command::new("false"), DEMO_TIME_MAX).expect_err("must fail");
    }
}
