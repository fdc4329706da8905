//! `cargo xtask lightning`: the Lightning node, which is only in builds that ask for it.

use anyhow::Result;

use crate::workspace::{self, Workspace};

/// All packages are named, so that those without the node are built once for all steps.
const WITH_NODE: [&str; 4] = ["--workspace", "--features", "switchyard/ldk", "--locked"];

/// Lints the node, and tests it: two of them, and two servers that have one each.
pub fn run(workspace: &Workspace) -> Result<()> {
    let mut lints = workspace.cargo(&["clippy", "--all-targets"]);
    lints.args(WITH_NODE).args(["--", "-D", "warnings"]);
    workspace::run(lints)?;
    let mut tests = workspace.cargo(&["test", "--lib", "--test", "uma", "--quiet"]);
    tests.args(WITH_NODE).args(["--", "ldk::", "channels::"]);
    workspace::run(tests)
}
