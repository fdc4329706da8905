//! The release build that checks ask, and `cargo xtask release`: the binary that is published,
//! without symbols, and the symbols beside it.
//!
//! A debugger finds them by the link that the binary has; `addr2line` takes them by name. The
//! binary is a fifth as large without.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::workspace::{self, Workspace};

/// The profile of the first command of the README, and the folder of what it builds.
const RELEASE: &str = "release";

/// The profile of what is published. It takes three times as long to build.
pub const PUBLISHED: &str = "dist";

/// Where the release build is.
pub fn binary(workspace: &Workspace) -> Result<PathBuf> {
    built_by(workspace, RELEASE)
}

/// Makes the release build.
pub fn build(workspace: &Workspace) -> Result<()> {
    workspace::run(workspace.cargo(&["build", "--release", "--locked", "--bin", "switchyard"]))
}

/// Builds the binary that is published and takes its symbols out.
pub fn publish(workspace: &Workspace) -> Result<()> {
    let binary = built_by(workspace, PUBLISHED)?;
    // A file that an earlier run has stripped is no result of a build.
    let _ = std::fs::remove_file(&binary);
    let build = ["build", "--profile", PUBLISHED, "--locked", "--bin", "switchyard"];
    workspace::run(workspace.cargo(&build))?;
    for step in steps(&binary) {
        workspace::run(step)?;
    }
    Ok(())
}

fn built_by(workspace: &Workspace, profile: &str) -> Result<PathBuf> {
    let name = format!("switchyard{}", std::env::consts::EXE_SUFFIX);
    Ok(workspace.target_folder()?.join(profile).join(name))
}

/// The tool that strips symbols, where the platform's tools are those of GNU.
fn steps(binary: &Path) -> Vec<Command> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let symbols = binary.with_extension("debug");
    let objcopy = |arguments: &[&str], files: &[&Path]| {
        let mut command = Command::new("objcopy");
        command.args(arguments).args(files);
        command
    };
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&symbols);
    let mut linked = objcopy(&["--strip-all"], &[]);
    linked.arg(link).arg(binary);
    vec![objcopy(&["--only-keep-debug"], &[binary, &symbols]), linked]
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Whether a tool finds a section in a file.
    fn has(file: &Path, section: &str) -> bool {
        let output = Command::new("objdump").arg("-h").arg(file).output().expect("objdump");
        String::from_utf8_lossy(&output.stdout).contains(section)
    }

    #[test]
    fn the_symbols_are_beside_the_binary_and_not_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let binary = folder.path().join("program");
        std::fs::copy(std::env::current_exe().expect("this program"), &binary).expect("a copy");
        let before = binary.metadata().expect("a file").len();
        for mut step in steps(&binary) {
            assert!(step.status().expect("objcopy").success(), "{step:?}");
        }
        assert!(binary.metadata().expect("a file").len() < before);
        assert!(has(&binary, ".gnu_debuglink") && !has(&binary, ".symtab"));
        assert!(folder.path().join("program.debug").is_file());
        let version = Command::new(&binary).arg("--list").output().expect("it runs");
        assert!(version.status.success(), "{version:?}");
    }
}
