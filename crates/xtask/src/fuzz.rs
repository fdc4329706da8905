//! `cargo xtask fuzz`: every fuzz target (`tests/it/fuzz.rs` of `api` and `uma`) for a minute each.
//! Among the tests each runs for a second.

use anyhow::Result;

use crate::workspace::{self, Workspace};

/// For how long each target runs. A finding of a longer run becomes a test.
const MILLIS: u64 = 60_000;

/// Runs the targets, as many at a time as there are cores.
pub fn run(workspace: &Workspace) -> Result<()> {
    // With all packages named, cargo takes what the tests have built.
    let mut command = workspace.cargo(&["test", "--locked", "--workspace", "--test", "it"]);
    command.args(["--", "fuzz::"]).env("BOLERO_RANDOM_TEST_TIME_MS", MILLIS.to_string());
    workspace::run(command)
}
