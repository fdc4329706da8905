//! `cargo xtask test`: every test, through the fastest runner there is.

use std::process::Command;

use anyhow::{Context as _, Result};
use testbed::place::ENGINE_VARIABLE;
use testbed::postgres::{Cluster, SHARED_VARIABLE};

use crate::install;
use crate::workspace::{self, Workspace};

/// Installs what is missing, then runs the tests, with one PostgreSQL for all of them: each is a
/// process of its own and would start its own else. The last line that is printed is the summary of
/// the runner. `arguments` go to the runner; when there are any, documentation tests are left out,
/// because the two runners do not share their options.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    install::run(workspace, false)?;
    let postgres = Shared::start()?;
    if !workspace::answers(workspace.cargo(&["nextest", "--version"])) {
        return run_with_cargo(workspace, &postgres, arguments);
    }
    if arguments.is_empty() {
        workspace::run(workspace.cargo(&["test", "--doc", "--workspace", "--locked", "--quiet"]))?;
        // Clients see the same on every engine. Left out is what never reaches it: requests that
        // are refused as they are read, and documents; and the browser, which takes as long as a
        // hundred other tests. Other tests choose their engine themselves. All packages are named
        // for both runs, so that cargo builds them once.
        let mut command = workspace.cargo(&["nextest", "run", "--locked", "--workspace"]);
        let clients = "package(api) and not \
                       test(/^(browser|bad_input|compression|documents|mutations|published)::/)";
        command.args(["-E", clients, "--no-fail-fast"]).env(ENGINE_VARIABLE, "postgres");
        postgres.tell(&mut command);
        workspace::run(command)?;
    }
    let mut command = workspace.cargo(&["nextest", "run", "--locked"]);
    command.args(defaults(arguments)).args(arguments);
    postgres.tell(&mut command);
    workspace::run(command)
}

/// The PostgreSQL of this run: ours until the tests are done, or one that was named.
struct Shared(Option<Cluster>);

impl Shared {
    fn start() -> Result<Self> {
        if std::env::var_os(SHARED_VARIABLE).is_some() {
            return Ok(Self(None));
        }
        let cluster = Cluster::start().context("starting PostgreSQL for the tests")?;
        Ok(Self(Some(cluster)))
    }

    /// Lets the tests that `command` runs know where it is.
    fn tell(&self, command: &mut Command) {
        if let Some(cluster) = &self.0 {
            command.env(SHARED_VARIABLE, cluster.server().url());
        }
    }
}

/// `cargo test` prints a result for each test binary; the sum of them follows as the last line.
fn run_with_cargo(workspace: &Workspace, postgres: &Shared, arguments: &[String]) -> Result<()> {
    let mut total = Count::default();
    let mut result = Ok(());
    if arguments.is_empty() {
        let mut command = workspace.cargo(&["test", "--locked", "--package", "api"]);
        command.env(ENGINE_VARIABLE, "postgres");
        postgres.tell(&mut command);
        result = workspace::run_read(command, |line| total.add(line));
    }
    let mut command = workspace.cargo(&["test", "--locked"]);
    command.args(defaults(arguments)).args(arguments);
    postgres.tell(&mut command);
    let rest = workspace::run_read(command, |line| total.add(line));
    let result = result.and(rest);
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    let Count { passed, failed, ignored } = total;
    println!("\ntest summary: {word}. {passed} passed; {failed} failed; {ignored} ignored");
    result
}

/// Cargo ignores `--package` beside `--workspace`, and the runners refuse a flag given twice.
fn defaults(arguments: &[String]) -> Vec<&'static str> {
    let given = |names: &[&str]| {
        arguments.iter().any(|argument| {
            names.iter().any(|name| {
                argument
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            })
        })
    };
    let mut defaults = Vec::new();
    if !given(&["-p", "--package", "--workspace"]) {
        defaults.push("--workspace");
    }
    if !given(&["--no-fail-fast", "--fail-fast", "--max-fail"]) {
        defaults.push("--no-fail-fast");
    }
    defaults
}

/// The sum of the lines `test result: ok. 3 passed; 0 failed; 1 ignored; ..` of a run add up to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Tests that ran and were right.
    pub passed: u64,
    /// Tests that ran and were wrong.
    pub failed: u64,
    /// Tests that did not run.
    pub ignored: u64,
}

impl Count {
    /// Adds `line` if it is a result, else nothing.
    pub fn add(&mut self, line: &str) {
        let Some(result) = line.trim().strip_prefix("test result: ") else { return };
        for part in result.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let number = words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up() {
        let mut count = Count::default();
        count.add("running 4 tests");
        count.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        count.add(
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; finished in 0.1s",
        );
        assert_eq!(count, Count { passed: 5, failed: 1, ignored: 1 });
    }

    #[test]
    fn a_chosen_package_is_not_widened_to_the_workspace() {
        assert_eq!(defaults(&[]), ["--workspace", "--no-fail-fast"]);
        assert_eq!(defaults(&["-p".into(), "domain".into()]), ["--no-fail-fast"]);
        assert_eq!(defaults(&["--package=domain".into(), "--fail-fast".into()]), [""; 0]);
    }
}
