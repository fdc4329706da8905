//! `cargo xtask contract`: thousands of requests that are made up from the OpenAPI document, good
//! and bad ones, against the binary that users get. No answer may be a failure of ours, have a
//! status that the document does not name, or a body that its schema does not allow.

use std::time::Duration;

use anyhow::{Context as _, Result};
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation};

use crate::python::Environment;
use crate::workspace::Workspace;
use crate::{ci, release};

/// Requests are the same in every run.
const SEED: &str = "20251013";

/// Requests that are made up for each operation, beside those at the borders of its schema, which
/// are always made: as many as fit the time.
const EXAMPLES: &str = "25";

/// Checks of every answer. Not asked for: that whatever the schema allows is accepted, for a
/// schema cannot say which account exists, which text is a bank's number, or how much money there
/// is; and that all else is refused, for `null` stands for what is not given (`api::patch`).
const CHECKS: [&str; 9] = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
    "use_after_free",
];

/// The whole run. Longer means that the server hangs, or that the document has outgrown
/// [`EXAMPLES`].
const TIME_MAX: Duration = Duration::from_secs(5 * 60);

/// Runs the release binary on a new database, asks it everything, and lets it check its books.
pub fn run(workspace: &Workspace) -> Result<()> {
    let environment = Environment::prepare(workspace)?;
    let binary = release::binary(workspace)?;
    let folder = tempfile::tempdir().context("making a folder for the database")?;
    let database = folder.path().join("contract.db");
    let installation = Installation::new(binary, &format!("sqlite://{}", database.display()));
    let server = installation.start()?;
    let mut command = workspace.command(environment.program("schemathesis"));
    command
        .current_dir(folder.path())
        .arg("run")
        .arg(format!("{}/openapi.json", server.base()))
        // One worker: the caches of the library that makes the requests are not for two threads,
        // and a run fails now and then for no fault of the server's.
        .args(["--wait-for-schema", "30", "--workers", "1"])
        .args(["--auth", &format!("{CLIENT_ID}:{CLIENT_SECRET}")])
        .args(["--seed", SEED, "--max-examples", EXAMPLES, "--generation-database", "none"])
        .args(["--checks", &CHECKS.join(",")])
        .args(["--continue-on-failure", "--warnings", "off", "--no-color"]);
    ci::run_within(command, TIME_MAX)?;
    drop(server);
    installation.verify().context("after the requests")
}
