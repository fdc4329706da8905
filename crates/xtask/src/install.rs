//! `cargo xtask install`: what the tests need beside Rust, from the machine's package manager.

use anyhow::{Result, bail};
use testbed::packages;
use testbed::postgres::Binaries;

use crate::node;
use crate::python::Environment;
use crate::workspace::{self, Workspace};

/// One thing that must be on the machine.
struct Need {
    what: &'static str,
    needed_by: &'static str,
    seen_by: Seen,
    /// Packages that bring it on Debian and its relatives.
    apt: &'static [&'static str],
    /// Packages that bring it with Homebrew.
    brew: &'static [&'static str],
    /// Advice where neither works.
    by_hand: &'static str,
}

/// How one sees that it is there.
enum Seen {
    /// A command that ends well.
    Command(&'static [&'static str]),
    /// The search of those who need it.
    Search(fn() -> bool),
}

/// Everything the tests need. Add a row together with the first test that needs it.
const NEEDS: &[Need] = &[
    Need {
        what: "a C compiler",
        needed_by: "the SQLite that is built into the store",
        seen_by: Seen::Command(&["cc", "--version"]),
        apt: &["gcc", "libc6-dev"],
        brew: &[],
        by_hand: "install one that answers to `cc` (on macOS: xcode-select --install)",
    },
    Need {
        what: "PostgreSQL 15 or newer",
        needed_by: "the tests of the store on PostgreSQL",
        seen_by: Seen::Search(|| Binaries::find().is_ok()),
        apt: &["postgresql"],
        brew: &["postgresql@17"],
        by_hand: "install it and name the folder of its programs in SWITCHYARD_PG_BIN",
    },
    Need {
        what: "Python 3 with venv",
        needed_by: "the run against the OpenAPI document, generated clients, checks of signatures, \
                    peers of UMA",
        seen_by: Seen::Search(Environment::is_possible),
        apt: &["python3", "python3-venv"],
        brew: &["python"],
        by_hand: "install one that answers to `python3` and can `import ensurepip, venv`",
    },
    Need {
        what: "Node.js with npm",
        needed_by: "generated clients, peers of UMA, the checks of signatures, and of pages in a \
                    browser",
        seen_by: Seen::Search(node::is_possible),
        apt: &["nodejs", "npm"],
        brew: &["node"],
        by_hand: "install them so that they answer to `node` and `npm`",
    },
    Need {
        what: "a Java runtime",
        needed_by: "the clients that OpenAPI Generator makes",
        seen_by: Seen::Command(&["java", "-version"]),
        apt: &["default-jre-headless"],
        brew: &["openjdk"],
        by_hand: "install one, version 11 or newer, that answers to `java`",
    },
    Need {
        what: "Chromium",
        needed_by: "the checks of pages in a browser",
        seen_by: Seen::Search(|| packages::chromium().is_ok()),
        apt: &["chromium"],
        brew: &["google-chrome"],
        by_hand: "install it and name its program in SWITCHYARD_CHROMIUM",
    },
    Need {
        what: "nginx",
        needed_by: "the tests of a server behind a proxy",
        seen_by: Seen::Search(|| packages::nginx().is_ok()),
        apt: &["nginx-light"],
        brew: &["nginx"],
        by_hand: "install it so that it is in PATH or in /usr/sbin",
    },
    Need {
        what: "Caddy",
        needed_by: "the tests of a server behind a proxy",
        seen_by: Seen::Search(|| packages::caddy().is_ok()),
        apt: &["caddy"],
        brew: &["caddy"],
        by_hand: "install version 2.6 or newer so that it is in PATH",
    },
    #[cfg(target_os = "linux")]
    Need {
        what: "strace",
        needed_by: "the tests in which a disk cannot flush",
        seen_by: Seen::Command(&["strace", "--version"]),
        apt: &["strace"],
        brew: &[],
        by_hand: "install one that answers to `strace`",
    },
];

/// Installs what is missing, or with `check` only names it.
pub fn run(workspace: &Workspace, check: bool) -> Result<()> {
    let missing = missing(workspace);
    if missing.is_empty() {
        println!("install: all {} needs are met", NEEDS.len());
    }
    for need in &missing {
        println!("install: {} is missing, needed by {}", need.what, need.needed_by);
    }
    if check {
        bail!("{} of {} needs are missing: run cargo xtask install", missing.len(), NEEDS.len());
    }
    for need in &missing {
        install(workspace, need)?;
        if !is_there(workspace, need) {
            bail!("{} was installed but is not seen: {}", need.what, need.by_hand);
        }
        println!("install: {} is there now", need.what);
    }
    if !check {
        Environment::prepare(workspace)?;
        node::prepare(workspace)?;
    }
    Ok(())
}

fn missing(workspace: &Workspace) -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !is_there(workspace, need)).collect()
}

fn is_there(workspace: &Workspace, need: &Need) -> bool {
    match need.seen_by {
        Seen::Command(words) => {
            let mut command = workspace.command(words[0]);
            command.args(&words[1..]);
            workspace::answers(command)
        }
        Seen::Search(is_there) => is_there(),
    }
}

fn install(workspace: &Workspace, need: &Need) -> Result<()> {
    let has = |program: &str| {
        let mut command = workspace.command(program);
        command.arg("--version");
        workspace::answers(command)
    };
    if !need.apt.is_empty() && has("apt-get") {
        let update = ["apt-get", "update"];
        let install = ["apt-get", "install", "--yes", "--no-install-recommends"];
        as_root(workspace, &update, &[])?;
        return as_root(workspace, &install, need.apt);
    }
    if !need.brew.is_empty() && has("brew") {
        let mut command = workspace.command("brew");
        command.arg("install").args(need.brew);
        return workspace::run(command);
    }
    bail!("{} is missing and cannot be installed from here: {}", need.what, need.by_hand);
}

/// Runs a command as root: as it is when we are root, else through sudo where there is one.
fn as_root(workspace: &Workspace, words: &[&str], more: &[&str]) -> Result<()> {
    let user = workspace.command("id").arg("-u").output();
    let is_root = user.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    let mut sudo = workspace.command("sudo");
    sudo.arg("--version");
    let mut command = if !is_root && workspace::answers(sudo) {
        workspace.command("sudo")
    } else {
        workspace.command("env")
    };
    if command.get_program() == "sudo" {
        command.arg("env");
    }
    command.arg("DEBIAN_FRONTEND=noninteractive").args(words).args(more);
    workspace::run(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_can_be_seen_and_met() {
        for need in NEEDS {
            if let Seen::Command(words) = need.seen_by {
                assert!(!words.is_empty(), "{} needs a way to be seen", need.what);
            }
            assert!(!need.needed_by.is_empty(), "{} needs a reason", need.what);
            assert!(!need.by_hand.is_empty(), "{} needs words for other machines", need.what);
        }
    }

    #[test]
    fn what_does_not_exist_is_not_there() {
        let workspace = Workspace::find().expect("tests run inside the repository");
        for seen_by in [Seen::Command(&["switchyard-no-such-program"]), Seen::Search(|| false)] {
            assert!(!is_there(&workspace, &Need { seen_by, ..NEEDS[0] }));
        }
    }
}
