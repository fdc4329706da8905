//! The folder that we work on, and how other programs are run in it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The repository.
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// Looks for the workspace manifest from the present folder upwards.
    pub fn find() -> Result<Self> {
        let here = std::env::current_dir().context("reading the present folder")?;
        for folder in here.ancestors() {
            let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            if manifest.lines().any(|line| line.trim() == "[workspace]") {
                return Ok(Self { root: folder.to_path_buf() });
            }
        }
        bail!("{} is not inside the repository: change into it and try again", here.display());
    }

    /// The top folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `program`, to be run in the top folder.
    pub fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.current_dir(&self.root);
        command
    }

    /// The cargo that started us, so that one toolchain does everything.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = self.command(cargo);
        command.args(arguments);
        command
    }

    /// Where cargo puts what it builds.
    pub fn target_folder(&self) -> Result<PathBuf> {
        let metadata = ["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"];
        let output = self.cargo(&metadata).output().context("running cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let folder = metadata["target_directory"].as_str();
        Ok(folder.context("cargo metadata names no target folder")?.into())
    }

    /// Installs something into a folder, unless it was installed there for these files of the
    /// repository, as they are now.
    pub fn keep_installed(
        &self,
        folder: &Path,
        files: &[&str],
        install: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut required = Vec::new();
        for file in files {
            let bytes = std::fs::read(self.root.join(file));
            required.append(&mut bytes.with_context(|| format!("reading {file}"))?);
        }
        let installed = folder.join("installed.txt");
        if std::fs::read(&installed).is_ok_and(|installed| installed == required) {
            return Ok(());
        }
        install()?;
        // Last, so that what was not finished is installed anew.
        std::fs::write(&installed, required)
            .with_context(|| format!("writing {}", installed.display()))
    }
}

/// Whether `program arguments` runs here and ends well; prints nothing.
pub fn answers(mut command: Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs `command` with our own input and output; an end that is not a success is an error.
pub fn run(mut command: Command) -> Result<()> {
    let line = shown(&command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("starting {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Like [`run`], and gives each line of standard output to `read` after printing it.
pub fn run_read(mut command: Command, mut read: impl FnMut(&str)) -> Result<()> {
    let line = shown(&command);
    println!("$ {line}");
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("starting {line}"))?;
    let output = child.stdout.take().context("the output was piped above")?;
    for text in BufReader::new(output).lines() {
        let text = text.with_context(|| format!("reading the output of {line}"))?;
        println!("{text}");
        read(&text);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// The command as one would type it; the full path of cargo is of no interest.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for argument in command.get_args() {
        // Writing to a string cannot fail.
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}
