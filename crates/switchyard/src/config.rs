//! The command line and the environment, read once and checked as a whole before anything starts.
//!
//! Guarantees: a bad configuration is one line on standard error that says what to do, and exit
//! code 2; secrets come from the environment or a file, never from a flag that other users of the
//! machine can see. Neither an error nor `Debug` shows one.

mod args;
mod checks;
mod connections;
mod secrets;
mod variables;
mod webhooks;

use std::ffi::{OsStr, OsString};

use clap::{CommandFactory as _, FromArgMatches as _};

use self::args::CommandLine;
pub use self::args::*;
use self::checks::text_of;
pub use self::checks::{ApiUrl, DatabaseUrl, Environment, Listen, PeerUrl, PublicUrl};
pub use self::connections::Connections;
#[cfg(feature = "ldk")]
pub use self::connections::Lightning;
use self::secrets::key_source;
pub use self::secrets::{
    CLIENT_ID_VARIABLE, CLIENT_SECRET_VARIABLE, ClientCredentials, KeySource, SECRET_KEY_VARIABLE,
    SecretKey, parse_credentials, parse_secret_key,
};
pub use self::webhooks::Webhooks;
use crate::command::{is_for_programs, say_failure};
use crate::database::Database;
pub use crate::exit::{ConfigError, EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use crate::telemetry::LogFormat;

/// Where the lines that a first start prints have the address of the API.
const BANNER_API_VARIABLE: &str = "SY";

/// Where they have a token, as `ID:SECRET`.
const BANNER_USER_VARIABLE: &str = "SY_USER";

/// The checked configuration of the process.
#[derive(Debug)]
pub struct Config {
    /// The database.
    pub database: Database,
    /// Where the server's secret key is.
    pub key: KeySource,
    /// How log lines look, if that was said.
    pub log_format: Option<LogFormat>,
    /// Whether programs read what is printed.
    pub json: bool,
    /// The command.
    pub command: Command,
    /// Credentials for the first token, or of a client of the API, if they were given.
    pub credentials: Option<ClientCredentials>,
    /// The API, for commands that are clients of it.
    pub api: ApiUrl,
}

impl Config {
    /// The token of a command that is a client of the API.
    pub fn client_credentials(&self) -> Result<&ClientCredentials, ConfigError> {
        self.credentials.as_ref().ok_or_else(|| {
            ConfigError(format!(
                "whose events? Set {CLIENT_ID_VARIABLE} and {CLIENT_SECRET_VARIABLE} to those of a \
                 token that may VIEW, TRANSACT and MANAGE, or {BANNER_USER_VARIABLE} as a first \
                 start prints it"
            ))
        })
    }
}

/// Why there is nothing to do.
#[derive(Debug)]
pub enum Refusal {
    /// A wrong command line, or a question such as `--help`.
    Usage(clap::Error),
    /// A wrong configuration.
    Config(ConfigError),
}

impl Refusal {
    /// Prints why and tells the exit code. Only help and the version go to standard output.
    pub fn print(&self) -> u8 {
        match self {
            Self::Usage(error) if error.use_stderr() && is_for_programs() => {
                say_failure(&one_line(error), EXIT_USAGE);
                EXIT_USAGE
            }
            Self::Usage(error) => {
                // If even this cannot be printed, there is no reader.
                let _ = error.print();
                if error.use_stderr() { EXIT_USAGE } else { EXIT_OK }
            }
            Self::Config(error) => {
                say_failure(&error.0, EXIT_USAGE);
                EXIT_USAGE
            }
        }
    }
}

/// The first line of what is said about a wrong command line, without its beginning.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<clap::Error> for Refusal {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

/// Whether a command line asks for JSON, as far as can be said before it is checked.
pub fn wants_json(arguments: &[OsString]) -> bool {
    arguments.iter().skip(1).any(|argument| argument == "--json")
}

/// Reads the command line (with the name of the program first) and the environment.
pub fn read(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Config, Refusal> {
    let arguments = with_default_command(arguments);
    let definition = variables::definition(environment);
    let matches = definition
        .clone()
        .try_get_matches_from(&arguments)
        .map_err(|error| variables::blamed(error, &definition, &arguments, environment))?;
    let line = CommandLine::from_arg_matches(&matches)?;
    variables::refuse_unknown(environment)?;
    let is_given = |flag| variables::is_given(&arguments, flag);
    let (url, flag, name) = match &line.command {
        Command::Migrate(Migrate { from: Some(url), .. }) => {
            (url.0.as_str(), "--from", "SWITCHYARD_MIGRATE_FROM")
        }
        command if command.reads_database() => {
            (line.common.database_url.as_str(), "--database-url", "SWITCHYARD_DATABASE_URL")
        }
        _ => (args::DATABASE_URL, "", ""),
    };
    let text = |name: &str| {
        let is_read = line.command.reads_secrets();
        text_of(name, environment).map(|text| text.filter(|_| is_read))
    };
    let blame = |error: ConfigError| {
        let is_set = environment.contains_key(OsStr::new(name));
        if is_set && !is_given(flag) { ConfigError(format!("{name}: {error}")) } else { error }
    };
    let database = Database::parse(url).map_err(blame)?;
    let key = match line.command.reads_database() {
        true => key_source(&database, line.common.key_file, text(SECRET_KEY_VARIABLE)?)?,
        false => KeySource::File(database.key_file()),
    };
    let credentials = parse_credentials(text(CLIENT_ID_VARIABLE)?, text(CLIENT_SECRET_VARIABLE)?)?;
    let (credentials, api) = match line.command.access() {
        Some(access) => as_printed(access, credentials, environment)?,
        None => (credentials, ApiUrl::default()),
    };
    Ok(Config {
        database,
        key,
        log_format: line.common.log_format,
        json: line.common.json,
        command: line.command,
        credentials,
        api,
    })
}

/// How a client reaches the API where not all was said: as the lines have it that a first start
/// prints.
fn as_printed(
    access: &Access,
    credentials: Option<ClientCredentials>,
    environment: &Environment,
) -> Result<(Option<ClientCredentials>, ApiUrl), ConfigError> {
    let blamed = |name| move |error: ConfigError| ConfigError(format!("{name}: {error}"));
    let credentials = match (credentials, text_of(BANNER_USER_VARIABLE, environment)?) {
        (Some(given), _) => Some(given),
        (None, None) => None,
        (None, Some(user)) => {
            let (id, secret) = user.split_once(':').ok_or_else(|| {
                ConfigError(format!(
                    "{BANNER_USER_VARIABLE} must be a client id, a colon and its secret"
                ))
            })?;
            parse_credentials(Some(id.to_owned()), Some(secret.to_owned()))
                .map_err(blamed(BANNER_USER_VARIABLE))?
        }
    };
    let api = match (&access.api, text_of(BANNER_API_VARIABLE, environment)?) {
        (Some(given), _) => given.clone(),
        (None, Some(printed)) => printed.parse().map_err(blamed(BANNER_API_VARIABLE))?,
        (None, None) => ApiUrl::default(),
    };
    Ok((credentials, api))
}

/// Puts `serve` first where options stand without a command. A command's name anywhere, or a
/// question for help or the version, is left as it is.
fn with_default_command(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let command_line = CommandLine::command();
    let is_command = |argument: &OsStr| {
        ["help", "--help", "-h", "--version", "-V"].into_iter().any(|name| argument == name)
            || command_line.get_subcommands().any(|command| argument == command.get_name())
    };
    let is_word = |argument: &OsString| !argument.to_string_lossy().starts_with('-');
    let after_name = arguments.get(1..).unwrap_or_default();
    let has_command =
        after_name.first().is_some_and(is_word) || after_name.iter().any(|it| is_command(it));
    if !has_command {
        arguments.insert(arguments.len().min(1), "serve".into());
    }
    arguments
}

#[cfg(test)]
mod tests;
