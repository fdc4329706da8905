//! Packages of other languages, as users of ours have them. `cargo xtask install` brings them; here
//! stands where they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// The environment of Python below a target folder.
pub fn python_folder(target: &Path) -> PathBuf {
    target.join("python")
}

/// A program of an environment of Python.
pub fn python_program(folder: &Path, name: &str) -> PathBuf {
    folder.join(if cfg!(windows) { "Scripts" } else { "bin" }).join(name)
}

/// The folder below a target folder in which Node finds its packages, and for whatever lies in it.
pub fn node_folder(target: &Path) -> PathBuf {
    target.join("node")
}

/// The Python that has our packages.
///
/// # Errors
///
/// If it was not installed.
pub fn python(target: &Path) -> Result<Command> {
    let program = python_program(&python_folder(target), "python");
    if !program.exists() {
        bail!("{} is not there: run cargo xtask install", program.display());
    }
    Ok(Command::new(program))
}

/// A Node for scripts in [`node_folder`], which is made sure to have our packages.
///
/// # Errors
///
/// If they were not installed.
pub fn node(target: &Path) -> Result<Command> {
    let modules = node_folder(target).join("node_modules");
    if !modules.exists() {
        bail!("{} is not there: run cargo xtask install", modules.display());
    }
    Ok(Command::new("node"))
}

/// Names a Chromium, or another browser that is built from it.
pub const CHROMIUM_VARIABLE: &str = "SWITCHYARD_CHROMIUM";

/// Where browsers are on machines whose programs are not all in `PATH`.
const BROWSERS: [&str; 2] = [
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/// A Chromium, or another browser that is built from it.
///
/// # Errors
///
/// If there is none.
pub fn chromium() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(CHROMIUM_VARIABLE) {
        return Ok(named.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&folders).flat_map(|folder| {
        ["chromium", "chromium-browser", "google-chrome"].map(|name| folder.join(name))
    });
    let Some(found) = in_path.chain(BROWSERS.map(PathBuf::from)).find(|path| path.is_file()) else {
        bail!("there is no chromium: run cargo xtask install, or name one in {CHROMIUM_VARIABLE}");
    };
    Ok(found)
}

/// An nginx. Debian has it in a folder that is in the `PATH` of root alone.
///
/// # Errors
///
/// If there is none.
pub fn nginx() -> Result<PathBuf> {
    proxy("nginx")
}

/// A Caddy.
///
/// # Errors
///
/// If there is none.
pub fn caddy() -> Result<PathBuf> {
    proxy("caddy")
}

fn proxy(name: &str) -> Result<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
    let mut all = all.map(|folder| folder.join(name));
    match all.find(|program| program.is_file()) {
        Some(found) => Ok(found),
        None => bail!("there is no {name}: run cargo xtask install"),
    }
}
