//! The environment: which variables this program reads, and which one a bad value came from.

use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory as _};

use super::{
    CLIENT_ID_VARIABLE, CLIENT_SECRET_VARIABLE, CommandLine, ConfigError, Environment, Refusal,
    SECRET_KEY_VARIABLE,
};
use crate::telemetry::FILTER_VARIABLES;

/// Variables that begin like this are this program's.
const PREFIX: &str = "SWITCHYARD_";

/// Names that are less alike are no slips of each other.
const ALIKE_MIN: f64 = 0.8;

/// The command line, for an environment. A variable that is set to nothing counts as not set: a
/// compose file makes that of a variable that its own environment lacks.
pub(super) fn definition(environment: &Environment) -> Command {
    let unset = |argument: Arg| {
        let value = argument.get_env().and_then(|name| environment.get(name));
        match value.is_some_and(|value| value.is_empty()) {
            true => argument.env(Resettable::<clap::builder::OsStr>::Reset),
            false => argument,
        }
    };
    fn each(command: Command, unset: &dyn Fn(Arg) -> Arg) -> Command {
        command.mut_args(unset).mut_subcommands(|command| each(command, unset))
    }
    each(super::args::definition(), &unset)
}

/// Whether an option stands on the command line.
pub(super) fn is_given(arguments: &[OsString], flag: &str) -> bool {
    arguments.iter().any(|argument| {
        let text = argument.to_string_lossy();
        text == flag || text.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))
    })
}

/// Every option of every command.
fn options(command: &Command) -> Vec<&Arg> {
    let own = command.get_arguments();
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

/// The refusal of a command line. A bad value that came from a variable is blamed on the variable:
/// the option is absent that it stands for.
pub(super) fn blamed(
    error: clap::Error,
    definition: &Command,
    arguments: &[OsString],
    environment: &Environment,
) -> Refusal {
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        return Refusal::Usage(error);
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let named = text(ContextKind::InvalidArg).unwrap_or_default();
    let flag = named.split_whitespace().next().unwrap_or_default();
    let found = options(definition).into_iter().find(|option| {
        option.get_long().is_some_and(|long| flag == format!("--{long}"))
            && option.get_env().is_some_and(|name| environment.contains_key(name))
    });
    let Some(name) = found.and_then(Arg::get_env).filter(|_| !is_given(arguments, flag)) else {
        return Refusal::Usage(error);
    };
    let reason = match (std::error::Error::source(&error), error.get(ContextKind::ValidValue)) {
        (Some(reason), _) => reason.to_string(),
        (None, Some(ContextValue::Strings(values))) => {
            format!("must be one of {}", values.join(", "))
        }
        (None, _) => "is not a value of it".to_owned(),
    };
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    Refusal::Config(ConfigError(format!("{} is '{value}': {reason}", name.display())))
}

/// Refuses variables of this program's that it does not read: a slip must not pass for a setting.
pub(super) fn refuse_unknown(environment: &Environment) -> Result<(), ConfigError> {
    let definition = CommandLine::command();
    let of_options = options(&definition).into_iter().filter_map(Arg::get_env);
    let others = [CLIENT_ID_VARIABLE, CLIENT_SECRET_VARIABLE, SECRET_KEY_VARIABLE];
    let others = others.into_iter().chain(FILTER_VARIABLES).map(OsStr::new);
    let known: Vec<&OsStr> = of_options.chain(others).collect();
    let mut unknown: Vec<String> = environment
        .iter()
        .filter(|(name, _)| !known.contains(&name.as_os_str()))
        .map(|(name, value)| (name.to_string_lossy(), value.to_string_lossy()))
        .filter(|(name, value)| name.starts_with(PREFIX) && !is_service_link(name, value))
        .map(|(name, _)| refusal_of(&name, &known))
        .collect();
    unknown.sort();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(ConfigError(unknown.join("; "))),
    }
}

fn refusal_of(name: &str, known: &[&OsStr]) -> String {
    let alike = |other: &str| {
        let (ours, theirs) = (name.strip_prefix(PREFIX)?, other.strip_prefix(PREFIX)?);
        Some((strsim::jaro_winkler(ours, theirs), other.to_owned()))
    };
    let names = known.iter().filter_map(|other| other.to_str());
    let nearest = names.filter_map(alike).max_by(|one, other| one.0.total_cmp(&other.0));
    match nearest.filter(|(alike, _)| *alike >= ALIKE_MIN) {
        Some((_, nearest)) => format!("there is no variable {name}: did you mean {nearest}?"),
        None => format!(
            "there is no variable {name}: unset it; switchyard serve --help shows which there are"
        ),
    }
}

/// Whether a variable is one of those that Kubernetes sets for a service whose name begins like
/// this program's.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_of_port = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && value.contains("://"))
        || name.split_once("_PORT_").is_some_and(|(_, rest)| is_of_port(rest))
}
