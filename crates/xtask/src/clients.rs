//! `cargo xtask clients`: the OpenAPI document is linted, and clients are generated from what the
//! binary serves, as users of ours do it: TypeScript with `openapi-typescript` and `openapi-fetch`,
//! Python with `openapi-python-client`, and both with OpenAPI Generator, which makes clients for
//! most other languages too. Each compiles and runs one scenario against the binary.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation};
use testbed::packages;

use crate::python::Environment;
use crate::workspace::Workspace;
use crate::{ci, node};

/// Each step takes seconds; longer means that it hangs.
const STEP_TIME_MAX: Duration = Duration::from_secs(2 * 60);

/// Generated code is only read by the scenario: it needs no formatting.
const PYTHON_CLIENT: &str = "project_name_override: switchyard-client\npost_hooks: []\n";

/// Runs both clients against a binary on a new database, and lets it check its books.
pub fn run(workspace: &Workspace, binary: &Path) -> Result<()> {
    let environment = Environment::prepare(workspace)?;
    node::prepare(workspace)?;
    let folder = tempfile::tempdir().context("making a folder for the database")?;
    let database = folder.path().join("clients.db");
    let installation = Installation::new(binary, &format!("sqlite://{}", database.display()));
    let server = installation.start()?;
    let base = server.base();
    let document = folder.path().join("openapi.json");
    fetch(workspace, &environment, &format!("{base}/openapi.json"), &document)?;
    lint(workspace, &document)?;
    typescript(workspace, &document, &base)?;
    python(workspace, &environment, folder.path(), &base)?;
    let without_webhooks = folder.path().join("callable.json");
    let url = format!("{base}/openapi.json?webhooks=false");
    fetch(workspace, &environment, &url, &without_webhooks)?;
    generated_typescript(workspace, &environment, &without_webhooks, &base)?;
    generated_python(workspace, &environment, &without_webhooks, &base)?;
    drop(server);
    installation.verify().context("after the clients")
}

/// Waits until the server answers, and keeps the document that it serves.
fn fetch(workspace: &Workspace, environment: &Environment, url: &str, to: &Path) -> Result<()> {
    let script = workspace.root().join("crates/xtask/python/fetch.py");
    let mut command = workspace.command(environment.program("python"));
    command.arg(script).arg(url).arg(to);
    ci::run_within(command, STEP_TIME_MAX)
}

/// A program of the npm packages.
fn node_program(workspace: &Workspace, name: &str) -> Result<Command> {
    let folder = packages::node_folder(&workspace.target_folder()?);
    Ok(workspace.command(folder.join("node_modules/.bin").join(name)))
}

fn lint(workspace: &Workspace, document: &Path) -> Result<()> {
    let mut command = node_program(workspace, "redocly")?;
    command.arg("lint").arg(document).env("REDOCLY_TELEMETRY", "off");
    command.env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    ci::run_within(command, STEP_TIME_MAX)
}

/// The scenario is compiled beside the packages, where the compiler looks for them.
fn typescript(workspace: &Workspace, document: &Path, base: &str) -> Result<()> {
    let packages = packages::node_folder(&workspace.target_folder()?);
    let folder = tempfile::tempdir_in(&packages).context("making a folder for the client")?;
    let schema = folder.path().join("schema.d.ts");
    let mut generate = node_program(workspace, "openapi-typescript")?;
    generate.arg(document).arg("--output").arg(schema);
    ci::run_within(generate, STEP_TIME_MAX)?;
    let node = workspace.root().join("crates/xtask/node");
    copy(&node.join("client.ts"), &folder.path().join("client.ts"))?;
    copy(&node.join("tsconfig.json"), &folder.path().join("tsconfig.json"))?;
    compiled(workspace, folder.path())?;
    let mut scenario = workspace.command("node");
    scenario.arg(folder.path().join("client.js")).args([base, CLIENT_ID, CLIENT_SECRET]);
    ci::run_within(scenario, STEP_TIME_MAX)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| format!("copying {}", from.display())).map(drop)
}

/// Compiles the TypeScript of a folder, as modules.
fn compiled(workspace: &Workspace, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("package.json"), "{\"type\": \"module\"}\n")
        .context("writing package.json")?;
    let mut compile = node_program(workspace, "tsc")?;
    compile.arg("--project").arg(folder);
    ci::run_within(compile, STEP_TIME_MAX)
}

/// Parts that OpenAPI Generator leaves out: they have no reader here.
const LEFT_OUT: &str = "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false";

/// Has OpenAPI Generator make a client.
fn generate(
    workspace: &Workspace,
    environment: &Environment,
    document: &Path,
    to: &Path,
    options: &[&str],
) -> Result<()> {
    let mut generate = workspace.command(environment.program("openapi-generator-cli"));
    generate.arg("generate").arg("--input-spec").arg(document).arg("--output").arg(to);
    generate.args(["--global-property", LEFT_OUT]).args(options);
    ci::run_within(generate, STEP_TIME_MAX)
}

fn generated_typescript(
    workspace: &Workspace,
    environment: &Environment,
    document: &Path,
    base: &str,
) -> Result<()> {
    let folder = tempfile::tempdir().context("making a folder for the client")?;
    let options = [
        "--generator-name",
        "typescript-fetch",
        "--additional-properties",
        "importFileExtension=.js",
    ];
    generate(workspace, environment, document, &folder.path().join("generated"), &options)?;
    let node = workspace.root().join("crates/xtask/node");
    copy(&node.join("generated.ts"), &folder.path().join("generated.ts"))?;
    copy(&node.join("tsconfig.generated.json"), &folder.path().join("tsconfig.json"))?;
    compiled(workspace, folder.path())?;
    let mut scenario = workspace.command("node");
    scenario.arg(folder.path().join("generated.js")).arg(versioned(base));
    scenario.args([CLIENT_ID, CLIENT_SECRET]);
    ci::run_within(scenario, STEP_TIME_MAX)
}

fn generated_python(
    workspace: &Workspace,
    environment: &Environment,
    document: &Path,
    base: &str,
) -> Result<()> {
    let folder = tempfile::tempdir().context("making a folder for the client")?;
    let options = ["--generator-name", "python", "--package-name", "switchyard_generated"];
    generate(workspace, environment, document, folder.path(), &options)?;
    let script = workspace.root().join("crates/xtask/python/generated.py");
    let mut scenario = workspace.command(environment.program("python"));
    scenario.env("PYTHONPATH", folder.path()).arg(script).arg(versioned(base));
    scenario.args([CLIENT_ID, CLIENT_SECRET]);
    ci::run_within(scenario, STEP_TIME_MAX)
}

/// The base address of the API.
fn versioned(base: &str) -> String {
    format!("{base}/2025-10-13")
}

fn python(workspace: &Workspace, environment: &Environment, to: &Path, base: &str) -> Result<()> {
    let (config, client) = (to.join("client.yml"), to.join("client"));
    std::fs::write(&config, PYTHON_CLIENT).context("writing the settings of the generator")?;
    let mut generate = workspace.command(environment.program("openapi-python-client"));
    generate.args(["generate", "--meta", "none", "--fail-on-warning", "--config"]).arg(&config);
    generate.arg("--path").arg(to.join("openapi.json"));
    generate.arg("--output-path").arg(client.join("switchyard_client"));
    std::fs::create_dir_all(&client).context("making a folder for the client")?;
    ci::run_within(generate, STEP_TIME_MAX)?;
    let script = workspace.root().join("crates/xtask/python/client.py");
    let mut scenario = workspace.command(environment.program("python"));
    scenario.env("PYTHONPATH", &client).arg(script);
    scenario.arg(versioned(base)).args([CLIENT_ID, CLIENT_SECRET]);
    ci::run_within(scenario, STEP_TIME_MAX)
}
