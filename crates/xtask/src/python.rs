//! Programs from the Python package index, in an environment of their own below the target folder.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::workspace::{self, Workspace};

/// Every package with its version and the hashes of its files, written from `requirements.in` by
/// `pip-compile --generate-hashes --strip-extras`.
const REQUIREMENTS: &str = "crates/xtask/python/requirements.txt";

/// The environment, with everything that is required.
pub struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Makes the environment, unless it is there with just what is required now.
    pub fn prepare(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target_folder()?.join("python");
        let required = std::fs::read(workspace.root().join(REQUIREMENTS))
            .with_context(|| format!("reading {REQUIREMENTS}"))?;
        let environment = Self { folder };
        let installed = environment.folder.join("installed.txt");
        if std::fs::read(&installed).is_ok_and(|installed| installed == required) {
            return Ok(environment);
        }
        let mut make = workspace.command("python3");
        make.args(["-m", "venv", "--clear"]).arg(&environment.folder);
        workspace::run(make)?;
        let mut install = workspace.command(environment.program("python"));
        let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        install.args(options).args(["--require-hashes", "--requirement", REQUIREMENTS]);
        workspace::run(install)?;
        // Last, so that an environment that was not finished is made anew.
        std::fs::write(&installed, required)
            .with_context(|| format!("writing {}", installed.display()))?;
        Ok(environment)
    }

    /// A program of the environment.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(if cfg!(windows) { "Scripts" } else { "bin" }).join(name)
    }

    /// Whether this machine's Python can make one.
    pub fn is_possible() -> bool {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", "import ensurepip, venv"]);
        workspace::answers(command)
    }
}
