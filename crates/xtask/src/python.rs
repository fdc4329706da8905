//! Programs from the Python package index, in an environment of their own below the target folder.

use std::path::PathBuf;

use anyhow::Result;
use testbed::packages;

use crate::workspace::{self, Workspace};

/// Every package with its version and the hashes of its files, written from `requirements.in` by
/// `pip-compile --generate-hashes --strip-extras --no-header --no-emit-find-links`.
const REQUIREMENTS: &str = "crates/xtask/python/requirements.txt";

/// The environment, with everything that is required.
pub struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Makes the environment, unless it is there with just what is required now.
    pub fn prepare(workspace: &Workspace) -> Result<Self> {
        let folder = packages::python_folder(&workspace.target_folder()?);
        let environment = Self { folder };
        workspace.keep_installed(&environment.folder, &[REQUIREMENTS], || {
            let mut make = workspace.command("python3");
            make.args(["-m", "venv", "--clear"]).arg(&environment.folder);
            workspace::run(make)?;
            let mut install = workspace.command(environment.program("python"));
            let options = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
            install.args(options).args(["--require-hashes", "--requirement", REQUIREMENTS]);
            workspace::run(install)
        })?;
        Ok(environment)
    }

    /// A program of the environment.
    pub fn program(&self, name: &str) -> PathBuf {
        packages::python_program(&self.folder, name)
    }

    /// Whether this machine's Python can make one.
    pub fn is_possible() -> bool {
        let mut command = std::process::Command::new("python3");
        command.args(["-c", "import ensurepip, venv"]);
        workspace::answers(command)
    }
}
