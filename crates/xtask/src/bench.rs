//! `cargo xtask bench`: what the server reaches, measured on the build that is published.

use anyhow::Result;

use crate::release;
use crate::workspace::{self, Workspace};

/// Builds the benchmark and hands it the `arguments`. Its databases go beside what cargo builds,
/// because a folder for temporary files may be in memory, where nothing is ever synced to a disk.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let folder = workspace.target_folder()?.join("bench");
    // `run` does not build the server that counts its allocations.
    let mut build = workspace.cargo(&["build", "--profile", release::PUBLISHED, "--locked"]);
    build.args(["--quiet", "--package", "bench", "--bins"]);
    workspace::run(build)?;
    let mut command = workspace.cargo(&["run", "--profile", release::PUBLISHED, "--locked"]);
    command.args(["--quiet", "--package", "bench", "--"]);
    command.env("SWITCHYARD_BENCH_FOLDER", folder).args(arguments);
    workspace::run(command)
}
