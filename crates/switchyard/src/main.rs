//! The binary: reads what it was asked to do, does it, and tells by its exit code how it went.

use std::process::ExitCode;

use switchyard::{command, config, dispatch, files, scratch};

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
    let code = dispatch::run(&config).unwrap_or_else(|failure| {
        command::say_failure(&failure.to_string(), failure.exit_code());
        failure.exit_code()
    });
    ExitCode::from(code)
}
