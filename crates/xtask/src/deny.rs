//! `cargo xtask deny`: what dependencies may bring into the tree, by the rules of `deny.toml`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::workspace::{self, Workspace};

/// The version of the checker. Another one may know other rules.
const VERSION: &str = "0.20.2";

/// Checks bans, licences and sources, and advisories where their database can be had: a machine
/// without a way to it still checks everything else.
pub fn run(workspace: &Workspace) -> Result<()> {
    let program = installed(workspace)?;
    let deny = |arguments: &[&str]| {
        let mut command = workspace.command(&program);
        command.args(["--log-level", "error"]).args(arguments);
        command
    };
    workspace::run(deny(&["check", "bans", "licenses", "sources"]))?;
    if !workspace::answers(deny(&["fetch", "db"])) {
        println!("deny: the advisory database cannot be had here; advisories were not checked");
        return Ok(());
    }
    workspace::run(deny(&["check", "--disable-fetch", "advisories"]))
}

/// The checker below the target folder, built once for each version.
fn installed(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target_folder()?.join(format!("cargo-deny-{VERSION}"));
    let program = folder.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        let root = folder.to_str().context("the target folder's path is not text")?;
        let mut install = workspace.cargo(&["install", "cargo-deny", "--version", VERSION]);
        // It runs for seconds, and optimizing it would take minutes.
        install.args(["--locked", "--debug", "--root", root]);
        workspace::run(install)?;
    }
    Ok(program)
}
