//! The tasks of the repository: `cargo xtask <task>`.
//!
//! Continuous integration runs the same as a laptop. Every task works from any folder of
//! the repository and runs other programs only through [`workspace::Workspace`].

mod bench;
mod ci;
mod clients;
mod contract;
mod deny;
mod docs;
mod fuzz;
mod install;
mod lightning;
mod node;
mod python;
mod release;
mod suite;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Tasks of the Switchyard repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything a change must pass: format, lints, rules, tests, documentation, the demo
    Ci,
    /// Checks the rules of the repository that the compiler does not know
    Tidy,
    /// Runs all tests; what stands after `--` goes to the test runner
    Test {
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Lints and tests the Lightning node, which is only in builds with the feature `ldk`
    Lightning,
    /// Asks the release build everything that its OpenAPI document allows, and more
    Contract,
    /// Checks what dependencies bring: bans, licences, sources, and advisories if they can be had
    Deny,
    /// Fuzzes the server, a minute for each kind of input
    Fuzz,
    /// Generates clients from the OpenAPI document, and runs them against the release build
    Clients {
        /// Another build of `switchyard`, taken as it is
        binary: Option<std::path::PathBuf>,
    },
    /// Builds the binary that is published: stripped, with its symbols in a file beside it
    Release,
    /// Measures what the server reaches, against yardsticks of the same run; see its `--help`
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Installs what the tests need and is missing on this machine
    Install {
        /// Only say what is missing
        #[arg(long)]
        check: bool,
    },
    /// Writes the generated documents again
    Docs {
        /// Only say which are stale
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let task = Arguments::parse().task;
    let result = Workspace::find().and_then(|workspace| match task {
        Task::Ci => ci::run(&workspace),
        Task::Tidy => tidy::run(&workspace),
        Task::Test { arguments } => suite::run(&workspace, &arguments),
        Task::Lightning => lightning::run(&workspace),
        Task::Deny => deny::run(&workspace),
        Task::Fuzz => fuzz::run(&workspace),
        Task::Clients { binary: Some(binary) } => clients::run(&workspace, &binary),
        Task::Clients { binary: None } => {
            release::build(&workspace).and_then(|()| ci::clients(&workspace))
        }
        Task::Contract => release::build(&workspace).and_then(|()| contract::run(&workspace)),
        Task::Release => release::publish(&workspace),
        Task::Bench { arguments } => bench::run(&workspace, &arguments),
        Task::Install { check } => install::run(&workspace, check),
        Task::Docs { check } => docs::run(&workspace, check),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
