//! `cargo xtask docs`: documents that are made from the code.
//!
//! Each is held by a test that compares the file with what the code says and, when the variable
//! `UPDATE_EXPECT` is set, writes the file instead. So plain `cargo test` finds a stale document.

use anyhow::{Result, bail};

use crate::suite::Count;
use crate::workspace::{self, Workspace};

/// A document and the test that holds it.
struct Generated {
    package: &'static str,
    /// Part of the test's name.
    test: &'static str,
    file: &'static str,
}

/// Every generated document. Add a row together with the test.
const GENERATED: &[Generated] = &[
    Generated { package: "domain", test: "docs", file: "docs/states.md" },
    Generated { package: "domain", test: "docs", file: "docs/account-types.md" },
    Generated { package: "ledger", test: "docs", file: "docs/ledger.md" },
    Generated { package: "adapters", test: "docs", file: "docs/sandbox.md" },
    Generated { package: "api", test: "docs", file: "docs/errors.md" },
    Generated { package: "api", test: "docs", file: "openapi.json" },
    Generated { package: "switchyard", test: "docs", file: "docs/transcripts/payout.md" },
];

/// Writes every document again, or with `check` only compares.
pub fn run(workspace: &Workspace, check: bool) -> Result<()> {
    let mut done = Vec::new();
    for document in GENERATED {
        let test = (document.package, document.test);
        if !done.contains(&test) {
            run_test(workspace, document, check)?;
            done.push(test);
        }
        if !workspace.root().join(document.file).is_file() {
            bail!("{}: no test of {} wrote it", document.file, document.package);
        }
        println!("docs: {} is up to date", document.file);
    }
    Ok(())
}

fn run_test(workspace: &Workspace, document: &Generated, check: bool) -> Result<()> {
    let Generated { package, test, file } = document;
    let mut command = workspace.cargo(&["test", "--locked", "--package", package, test]);
    command.env_remove("UPDATE_EXPECT");
    if !check {
        command.env("UPDATE_EXPECT", "1");
    }
    let mut count = Count::default();
    workspace::run_read(command, |line| count.add(line))?;
    if count.passed == 0 {
        bail!(
            "{file}: {package} has no test with '{test}' in its name; correct the table in \
             crates/xtask/src/docs.rs or write the test"
        );
    }
    Ok(())
}
