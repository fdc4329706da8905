//! The programs of PostgreSQL as they are installed on this machine, and how they are run.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use nix::unistd::{User, geteuid};

/// Names the folder with the programs, for a machine where they are not found or where another
/// version is wanted.
const FOLDER_VARIABLE: &str = "SWITCHYARD_PG_BIN";

/// The oldest version that Switchyard runs on.
const MAJOR_MIN: u32 = 15;

/// Every one of them must be in the folder.
const PROGRAMS: &[&str] = &["initdb", "pg_basebackup", "postgres", "psql"];

/// Where package managers put versions beside each other: a folder, and what a name in it starts
/// with before the version.
const INSTALLED: &[(&str, &str)] = &[
    ("/usr/lib/postgresql", ""),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
];

/// Users to run the server as when we are root, which it refuses.
const UNPRIVILEGED: &[&str] = &["postgres", "nobody"];

/// The programs of one installed version, 15 or newer.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    /// User and group that own data and run servers, where they are not our own.
    owner: Option<(u32, u32)>,
}

impl Binaries {
    /// Looks at `SWITCHYARD_PG_BIN`; if it is not set, where Debian and Homebrew install, newest
    /// version first; then at `PATH`.
    ///
    /// # Errors
    ///
    /// If no installed version is new enough and complete.
    pub fn find() -> Result<Self> {
        let folder = match std::env::var_os(FOLDER_VARIABLE) {
            Some(folder) => {
                let folder = PathBuf::from(folder);
                check(&folder).with_context(|| format!("looking where {FOLDER_VARIABLE} says"))?;
                folder
            }
            None => {
                installed().into_iter().find(|folder| check(folder).is_ok()).with_context(|| {
                    format!(
                        "PostgreSQL {MAJOR_MIN} or newer is not found: run cargo xtask install, \
                         or name the folder of its programs in {FOLDER_VARIABLE}"
                    )
                })?
            }
        };
        Ok(Self { folder, owner: owner()? })
    }

    /// `program`, to be run as a user that the server accepts, in `folder`. Nothing of our
    /// environment reaches it: `PGHOST`, `PGOPTIONS`, `LC_MESSAGES` and their like would change
    /// what it does.
    pub(super) fn command(&self, program: &str, folder: &Path) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.current_dir(folder).env_clear().env("LC_ALL", "C").env("TZ", "UTC");
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives `folder` to the user that runs the server.
    pub(super) fn give(&self, folder: &Path) -> Result<()> {
        let Some((user, group)) = self.owner else { return Ok(()) };
        chown(folder, Some(user), Some(group))
            .with_context(|| format!("giving {} to user {user}", folder.display()))
    }
}

/// Runs a program to its end and gives what it printed.
///
/// # Errors
///
/// If it cannot be started or does not end well; the error has what it said.
pub(super) fn output(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program}: {}: {}", output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("reading what {program} printed"))
}

fn owner() -> Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    for name in UNPRIVILEGED {
        if let Some(user) = User::from_name(name).context("reading the users of the machine")? {
            return Ok(Some((user.uid.as_raw(), user.gid.as_raw())));
        }
    }
    bail!("the server refuses to run as root, and there is no user {}", UNPRIVILEGED.join(" or "));
}

/// Folders that may have the programs, best first.
fn installed() -> Vec<PathBuf> {
    let mut versions = Vec::new();
    for (folder, prefix) in INSTALLED {
        for entry in Path::new(folder).read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix(prefix).and_then(|version| version.parse::<u32>().ok());
            versions.extend(version.map(|version| (version, entry.path().join("bin"))));
        }
    }
    versions.sort_unstable_by(|left, right| right.cmp(left));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = versions.into_iter().map(|(_, folder)| folder);
    found.chain(std::env::split_paths(&path)).collect()
}

fn check(folder: &Path) -> Result<()> {
    for program in PROGRAMS {
        let program = folder.join(program);
        if !program.is_file() {
            bail!("there is no {}", program.display());
        }
    }
    let mut command = Command::new(folder.join("postgres"));
    command.arg("--version");
    let version = output(command)?;
    let major = major(&version).with_context(|| format!("not a version: {}", version.trim()))?;
    if major < MAJOR_MIN {
        bail!("{} has version {major}, {MAJOR_MIN} or newer is needed", folder.display());
    }
    Ok(())
}

/// The major version in `postgres (PostgreSQL) 15.14 (Debian 15.14-0)`, also of a beta.
fn major(version: &str) -> Option<u32> {
    let number = version.split_whitespace().nth(2)?;
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 9.6.24"), Some(9));
        assert_eq!(major("postgres"), None);
    }

    #[test]
    fn a_folder_without_the_programs_is_refused() {
        let error = check(Path::new("/")).expect_err("nothing is installed there");
        assert!(error.to_string().contains("initdb"), "{error}");
    }
}
