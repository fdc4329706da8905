//! Which code runs which command.
//!
//! It is in the library, not in the binary: bodies of `async` functions are compiled where they are
//! awaited, and the binary would compile all commands once more after everything else.

use crate::command::Failure;
use crate::config::{Command, Config};
use crate::telemetry::{self, COMMAND_FILTER, FILTER_VARIABLES};
use crate::{
    audit, backup, demo, descriptors, listen, manual, migrate, operator, rebuild, restore, serve,
    trigger, verify,
};

/// Runs the command of a configuration, and returns the exit code. Errors say why it could not.
pub fn run(config: &Config) -> Result<u8, Failure> {
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
        Command::Show(options) => in_runtime(operator::show::run(config, options)),
        Command::Ledger(command) => in_runtime(operator::ledger::run(config, command)),
        Command::Rates(command) => operator::rates::run(command),
        Command::Key(command) => operator::keys::run(config, command),
        Command::Verify(options) => verify::run(config, options),
        Command::Audit(options) => audit::run(config, options),
        Command::Backup(options) => backup::run(config, options),
        Command::Restore(options) => restore::run(config, options),
        Command::Rebuild => rebuild::run(config),
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
