//! The command line and the environment, read once and checked as a whole before anything starts.
//!
//! Guarantees: a bad configuration is one line on standard error that says what to do, and exit
//! code 2; secrets come from the environment or a file, never from a flag that other users of the
//! machine can see, and neither an error nor `Debug` shows one.

mod args;
mod checks;
mod connections;
mod webhooks;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use clap::{CommandFactory as _, Parser as _};

use self::args::CommandLine;
pub use self::args::*;
pub use self::checks::{
    DatabaseUrl, Listen, PeerUrl, PublicUrl, parse_credentials, parse_secret_key,
};
use self::checks::{key_source, text_of};
pub use self::connections::Connections;
pub use self::webhooks::Webhooks;
use crate::database::Database;
use crate::keyfile::KEY_BYTES;
use crate::telemetry::{LogFormat, say};

/// What was asked for is done.
pub const EXIT_OK: u8 = 0;

/// What was asked for failed, or `verify` found something broken.
pub const EXIT_FAILURE: u8 = 1;

/// The command line or the configuration is wrong: trying again does not help.
pub const EXIT_USAGE: u8 = 2;

/// Holds the server's secret key itself, for systems that hand secrets to processes this way.
pub const SECRET_KEY_VARIABLE: &str = "SWITCHYARD_SECRET_KEY";

/// Holds the id of the first token that a start on an empty database makes.
pub const CLIENT_ID_VARIABLE: &str = "SWITCHYARD_CLIENT_ID";

/// Holds the secret of that token.
pub const CLIENT_SECRET_VARIABLE: &str = "SWITCHYARD_CLIENT_SECRET";

/// What the process was asked to do, checked.
#[derive(Debug)]
pub struct Config {
    /// The database.
    pub database: Database,
    /// Where the server's secret key is.
    pub key: KeySource,
    /// How log lines look, if that was said.
    pub log_format: Option<LogFormat>,
    /// What to do.
    pub command: Command,
    /// Credentials for the first token, if they were given.
    pub credentials: Option<ClientCredentials>,
}

/// Where the server's secret key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In this file, which the first start makes.
    File(PathBuf),
    /// It was in the environment.
    Given(SecretKey),
}

/// The server's secret key. Prints nothing of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub [u8; KEY_BYTES]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// What a client authenticates with. Prints nothing of the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCredentials {
    /// The name of the token.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientCredentials({}, ..)", self.id)
    }
}

/// A configuration that nothing can be started with: one line that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    /// A configuration that is found to be wrong when it is used, such as a file of rates.
    pub fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

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
            Self::Usage(error) => {
                // If even this cannot be printed, there is nobody to tell.
                let _ = error.print();
                if error.use_stderr() { EXIT_USAGE } else { EXIT_OK }
            }
            Self::Config(error) => {
                say(format_args!("error: {error}"));
                EXIT_USAGE
            }
        }
    }
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

/// Reads the command line (with the name of the program first) and, for what flags must not carry,
/// the environment.
pub fn read(
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Config, Refusal> {
    let line = CommandLine::try_parse_from(with_default_command(arguments))?;
    let url = match &line.command {
        Command::Migrate(Migrate { from: Some(url), .. }) => &url.0,
        Command::Migrate(_)
        | Command::Serve(_)
        | Command::Demo
        | Command::Listen(_)
        | Command::Verify(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Platform(_)
        | Command::Customer(_)
        | Command::Token(_) => &line.common.database_url,
    };
    let database = Database::parse(url)?;
    let given = text_of(SECRET_KEY_VARIABLE, &variable)?;
    let key = key_source(&database, line.common.key_file, given)?;
    let credentials = parse_credentials(
        text_of(CLIENT_ID_VARIABLE, &variable)?,
        text_of(CLIENT_SECRET_VARIABLE, &variable)?,
    )?;
    Ok(Config {
        database,
        key,
        log_format: line.common.log_format,
        command: line.command,
        credentials,
    })
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
