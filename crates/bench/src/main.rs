//! `cargo xtask bench`. The other commands are what it starts itself again for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use bench::child::Starter;
use bench::conditions::{self, Condition};
use bench::measure::{self, Plan};
use bench::place::{Engine, Ground};
use bench::postgres::Cluster;
use bench::report::Report;
use bench::rows::Row;
use bench::yardsticks::{self, Allocated};
use bench::{cells, child, generate, receivers, uma};
use clap::{Args, Parser, Subcommand};

/// The same as in the product, so that the server under test is the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what the server reaches, against yardsticks of the same run.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Args)]
struct Run {
    /// Short phases and a smaller database: some minutes. Its figures are not kept
    #[arg(long)]
    quick: bool,

    /// The engine to measure [default: all]
    #[arg(long, value_enum)]
    engine: Option<Engine>,

    /// Only these rows. Their figures are not kept
    #[arg(long, value_enum, num_args = 1..)]
    only: Vec<Row>,

    /// A PostgreSQL cluster to make databases in, with the right to do so [default: one of our own]
    #[arg(long, value_name = "URL", env = "SWITCHYARD_BENCH_POSTGRES_URL", hide_env_values = true)]
    postgres_url: Option<String>,

    /// Payments in the large database
    #[arg(long, value_name = "COUNT")]
    large: Option<u64>,

    /// Keep the large database for the next run, and take over the one that was kept: filling it
    /// takes longer than all else. On PostgreSQL this needs a cluster that stays
    #[arg(long)]
    keep_large: bool,

    /// Where databases are made and removed; must be on the disk that is meant
    #[arg(long, value_name = "FOLDER", env = "SWITCHYARD_BENCH_FOLDER", hide_env_values = true)]
    #[arg(default_value = "target/bench")]
    folder: PathBuf,

    /// Where results are kept [default: docs/benchmarks for a whole run, else in --folder]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Task {
    /// Serves as `switchyard serve` does, with the routes to compare with
    Server {
        /// Options of `switchyard serve`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Fills an empty database with payments
    Generate {
        /// The database
        #[arg(long, value_name = "URL", env = "SWITCHYARD_DATABASE_URL", hide_env_values = true)]
        database_url: String,
        /// Customers, each with accounts and money
        #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
        payers: u64,
        /// Payments of all of them
        #[arg(long, value_name = "COUNT")]
        payments: u64,
        /// Where events go; with several, each is the endpoint of a platform of its own, which has
        /// all of these customers and payments
        #[arg(long, value_name = "URL", num_args = 1..)]
        endpoints: Vec<String>,
    },
    /// Receives events, and counts them
    Receivers,
    /// Measures two servers that pay each other over UMA. Its figures are not kept
    Uma {
        /// Short phases: about half a minute
        #[arg(long)]
        quick: bool,
        /// Clients at once [default: 16]
        #[arg(long, value_name = "COUNT")]
        clients: Option<usize>,
        /// Where databases are made and removed; must be on the disk that is meant
        #[arg(
            long,
            value_name = "FOLDER",
            env = "SWITCHYARD_BENCH_FOLDER",
            hide_env_values = true
        )]
        #[arg(default_value = "target/bench")]
        folder: PathBuf,
    },
    /// Simulates 10⁹ payments a day with the figures that are kept, and writes it into the document
    Cells,
}

/// Where the results of whole runs are kept.
const RESULTS: &str = "docs/benchmarks";

/// The document that tells what they mean for many servers.
const SCALING: &str = "docs/scaling.md";

fn main() -> ExitCode {
    let Arguments { run, command } = Arguments::parse();
    let result = match command {
        None => self::run(&run).map(|()| 0),
        Some(Task::Server { options }) => {
            child::end_with_parent().and_then(|()| yardsticks::serve(&options, Allocated::default))
        }
        Some(Task::Generate { database_url, payers, payments, endpoints }) => {
            generate::run(&database_url, payers, payments, &endpoints).map(|()| 0)
        }
        Some(Task::Receivers) => child::end_with_parent().and_then(|()| receivers::run()),
        Some(Task::Uma { quick, clients, folder }) => {
            self::uma(quick, clients, &folder).map(|()| 0)
        }
        Some(Task::Cells) => cells::write(Path::new(RESULTS), Path::new(SCALING)).map(|()| 0),
    };
    result.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}

/// Makes the folder for databases, if figures would say anything.
fn prepare(folder: &Path) -> Result<()> {
    if cfg!(debug_assertions) {
        bail!("figures of a debug build say nothing: run cargo xtask bench");
    }
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
}

fn uma(quick: bool, clients: Option<usize>, folder: &Path) -> Result<()> {
    prepare(folder)?;
    let mut plan = if quick { uma::Plan::QUICK } else { uma::Plan::FULL };
    plan.clients = clients.unwrap_or(plan.clients);
    let program = std::env::current_exe().context("finding this program")?;
    let report = uma::run(&Starter::new(&program, folder), folder, &plan)?;
    for condition in conditions::of_machine(folder)?.iter().chain(&plan.conditions()) {
        println!("{}: {}", condition.name, condition.value);
    }
    println!("\n{}", report.table());
    Ok(())
}

fn run(options: &Run) -> Result<()> {
    let folder = &options.folder;
    prepare(folder)?;
    let mut plan = if options.quick { Plan::QUICK } else { Plan::FULL };
    plan.large = options.large.unwrap_or(plan.large);
    plan.keeps_large = options.keep_large;
    let only: BTreeSet<_> = options.only.iter().copied().collect();
    let wanted = if only.is_empty() { Row::ALL.into_iter().collect() } else { only.clone() };

    let program = std::env::current_exe().context("finding this program")?;
    let starter = Starter::new(&program, folder);
    let machine = conditions::of_machine(folder)?;
    let (mut report, mut errors) = (Report { engines: BTreeMap::new() }, Vec::new());
    for ground in grounds(options, folder)? {
        let engine = ground.engine();
        let measured = measure::run(&ground, &plan, &wanted, &starter);
        let (mut measured, failed) = match measured {
            Ok(measured) => measured,
            // Figures of other engines are not lost with this one.
            Err(error) => {
                println!("NOT MEASURED: {engine}: {error:#}");
                errors.push(error);
                continue;
            }
        };
        let mut conditions = machine.clone();
        if let Ground::Postgres(cluster) = &ground {
            let settings = cluster.settings()?;
            let settings = settings.iter().map(|(name, value)| format!("{name} {value}"));
            let settings: Vec<_> = settings.collect();
            conditions.push(Condition::new("PostgreSQL", settings.join(", ")));
        }
        conditions.append(&mut measured.conditions);
        measured.conditions = conditions;
        report.engines.insert(engine, measured);
        errors.extend(failed);
    }
    for (engine, measured) in &report.engines {
        measured.print(*engine);
    }
    let is_whole = !options.quick && only.is_empty() && options.large.is_none();
    let output = match (&options.output, is_whole) {
        (Some(output), _) => output.clone(),
        (None, true) => Path::new(RESULTS).to_owned(),
        (None, false) => folder.join("results"),
    };
    if !errors.is_empty() {
        bail!("{} groups of rows were not measured, nothing is kept: see above", errors.len());
    }
    report.keep(&output)?;
    if output == Path::new(RESULTS) {
        cells::write(&output, Path::new(SCALING))?;
    }
    println!("\nkept in {}", output.display());
    Ok(())
}

/// The engines to measure.
fn grounds(options: &Run, folder: &Path) -> Result<Vec<Ground>> {
    let wants = |engine| options.engine.is_none_or(|only| only == engine);
    let mut grounds = Vec::new();
    if wants(Engine::Sqlite) {
        grounds.push(Ground::Sqlite(folder.to_owned()));
    }
    if wants(Engine::Postgres) {
        let cluster = match &options.postgres_url {
            Some(url) => Cluster::at(url),
            None => Cluster::start(folder),
        };
        grounds.push(Ground::Postgres(cluster?));
    }
    Ok(grounds)
}
