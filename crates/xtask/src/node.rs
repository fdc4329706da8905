//! Packages from the npm registry, below the target folder.

use std::process::Command;

use anyhow::{Context as _, Result};
use testbed::packages;

use crate::workspace::{self, Workspace};

/// The wanted packages, and every package that it takes with its version and the hash of its
/// content, written by `npm install --package-lock-only`.
const WANTED: [&str; 2] = ["crates/xtask/node/package.json", "crates/xtask/node/package-lock.json"];

/// Brings the packages, unless just those that are wanted now are there. None of them runs
/// anything while it is installed.
pub fn prepare(workspace: &Workspace) -> Result<()> {
    let folder = packages::node_folder(&workspace.target_folder()?);
    workspace.keep_installed(&folder, &WANTED, || {
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("making the folder {}", folder.display()))?;
        for wanted in WANTED {
            let wanted = workspace.root().join(wanted);
            let name = wanted.file_name().context("a file has a name")?;
            std::fs::copy(&wanted, folder.join(name))
                .with_context(|| format!("copying {}", wanted.display()))?;
        }
        let mut install = workspace.command("npm");
        let options = ["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"];
        install.current_dir(&folder).args(options);
        workspace::run(install)
    })
}

/// Whether this machine has a Node and what installs packages for it.
pub fn is_possible() -> bool {
    ["node", "npm"].into_iter().all(|program| {
        let mut command = Command::new(program);
        command.arg("--version");
        workspace::answers(command)
    })
}
