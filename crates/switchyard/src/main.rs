//! The binary: reads what it was asked to do, does it, and tells by its exit code how it went.

use std::process::ExitCode;

use switchyard::command::{self, Failure};
use switchyard::config::{self, Command, Config};
use switchyard::telemetry::{self, COMMAND_FILTER, FILTER_VARIABLES};
use switchyard::{
    audit, backup, demo, descriptors, files, listen, manual, migrate, operator, restore, scratch,
    serve, trigger, verify,
};

/// A payment makes and frees some hundred small values on two threads: this allocator takes half
/// the time of the system's for that and gives memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(file) = scratch::watched(&arguments) {
        scratch::watch(file);
        return ExitCode::SUCCESS;
    }
    // Also a command line that cannot be read is answered in the form that was asked for.
    command::for_programs(config::wants_json(&arguments));
    files::keep_to_owner();
    let config = match config::read(arguments, &std::env::vars_os().collect()) {
        Ok(config) => config,
        Err(refusal) => return ExitCode::from(refusal.print()),
    };
    command::for_programs(config.json);
    let code = run(&config).unwrap_or_else(|failure| {
        command::say_failure(&failure.to_string(), failure.exit_code());
        failure.exit_code()
    });
    ExitCode::from(code)
}

fn run(config: &Config) -> Result<u8, Failure> {
    let filter = telemetry::filter(log_variable(&config.command));
    let filter = filter.map_err(|line| Failure::new(line).as_usage())?;
    telemetry::start_log(config.log_format, filter);
    descriptors::refuse_too_few()?;
    match &config.command {
        Command::Serve(options) => in_runtime(serve::run(config, options)),
        Command::Demo(options) => in_runtime(demo::run(options)),
        Command::Listen(options) => in_runtime(listen::run(config, options)),
        Command::Trigger(options) => in_runtime(trigger::run(config, options)),
        Command::Platform(command) => in_runtime(operator::platform(config, command)),
        Command::Customer(command) => in_runtime(operator::customer(config, command)),
        Command::Token(command) => in_runtime(operator::token(config, command)),
        Command::Uma(command) => in_runtime(operator::uma::run(config, command)),
        Command::Attention(command) => in_runtime(operator::attention::run(config, command)),
        Command::Rates(command) => operator::rates::run(command),
        Command::Key(command) => operator::keys::run(config, command),
        Command::Verify(options) => verify::run(config, options),
        Command::Audit(options) => audit::run(config, options),
        Command::Backup(options) => backup::run(config, options),
        Command::Restore(options) => restore::run(config, options),
        Command::Migrate(options) => migrate::run(config, options),
        Command::Completions(options) => manual::completions(options),
        Command::Man(options) => manual::man(options),
    }
}

fn in_runtime(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("the process cannot start its threads: {error}")))?;
    let result = runtime.block_on(work);
    // Whatever still runs was given its time: nothing that was answered depends on it.
    runtime.shutdown_background();
    result
}

/// Where the filter of the log is looked up. A command that ends by itself prints its outcome on
/// standard output. Its log has only changes and trouble, unless a filter was asked for.
fn log_variable(command: &Command) -> impl Fn(&str) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok();
    let is_set = FILTER_VARIABLES.into_iter().any(|name| variable(name).is_some());
    let is_quiet = !is_set && !matches!(command, Command::Serve(_));
    move |name| if is_quiet { Some(COMMAND_FILTER.to_owned()) } else { variable(name) }
}
