//! The binary: reads what it was asked to do, does it, and tells by its exit code how it went.

use std::process::ExitCode;

use switchyard::command::Failure;
use switchyard::config::{self, Command, Config};
use switchyard::telemetry::{self, FILTER_VARIABLES};
use switchyard::{demo, operator, serve, verify};

fn main() -> ExitCode {
    let config = match config::read(std::env::args_os(), |name| std::env::var_os(name)) {
        Ok(config) => config,
        Err(refusal) => return ExitCode::from(refusal.print()),
    };
    let code = run(&config).unwrap_or_else(|failure| {
        eprintln!("error: {failure}");
        failure.exit_code()
    });
    ExitCode::from(code)
}

fn run(config: &Config) -> Result<u8, Failure> {
    let filter = telemetry::filter(log_variable(&config.command));
    let filter = filter.map_err(|line| Failure::new(line).as_usage())?;
    telemetry::start_log(config.log_format, filter);
    if let Command::Verify(options) = &config.command {
        return verify::run(config, options);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("the process cannot start its threads: {error}")))?;
    let result = runtime.block_on(async {
        match &config.command {
            Command::Serve(options) => serve::run(config, options).await,
            Command::Demo => demo::run().await,
            Command::Platform(command) => operator::platform(config, command).await,
            Command::Token(command) => operator::token(config, command).await,
            Command::Verify(options) => verify::run(config, options),
        }
    });
    // Whatever still runs was given its time: nothing that was answered depends on it.
    runtime.shutdown_background();
    result
}

/// Where the filter of the log is looked up. A command that ends by itself tells what it did on
/// standard output, so its log is quiet unless a filter was asked for.
fn log_variable(command: &Command) -> impl Fn(&str) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok();
    let is_set = FILTER_VARIABLES.into_iter().any(|name| variable(name).is_some());
    let is_quiet = !is_set && !matches!(command, Command::Serve(_));
    move |name| if is_quiet { Some("warn".to_owned()) } else { variable(name) }
}
