//! Common parts of commands: one way to fail and two ways to print, for people and for programs.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use store::error::StoreError;

use crate::exit::{ConfigError, EXIT_FAILURE, EXIT_USAGE};
use crate::keyfile::KeyFileError;
use crate::telemetry;

/// Why a command was not done: one line for standard error that says what to do, and an exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    exit_code: u8,
    line: String,
}

impl Failure {
    /// Something went wrong that may go right another time.
    pub fn new(line: impl Into<String>) -> Self {
        Self { exit_code: EXIT_FAILURE, line: line.into() }
    }

    /// The same failure with the exit code for what trying again does not help.
    #[must_use]
    pub fn as_usage(self) -> Self {
        Self { exit_code: EXIT_USAGE, ..self }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(error.to_string()).as_usage()
    }
}

impl From<KeyFileError> for Failure {
    fn from(error: KeyFileError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<service::Error> for Failure {
    fn from(error: service::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Whether programs read what the process prints. Set once, before a command runs.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Chooses who reads what is printed from now on: programs (`--json`) or people.
pub fn for_programs(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

/// Whether programs read what is printed.
pub fn is_for_programs() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Prints text for people to standard output; nothing where programs read it.
pub fn print(text: &str) -> Result<(), Failure> {
    if is_for_programs() { Ok(()) } else { write_out(text) }
}

/// Prints one JSON value for programs on a line of standard output; nothing where people read it.
pub fn emit(value: &Value) -> Result<(), Failure> {
    if is_for_programs() { write_out(&format!("{value}\n")) } else { Ok(()) }
}

/// Says on standard error why a command was not done: a line for people, or an object for programs.
pub fn say_failure(line: &str, exit_code: u8) {
    if is_for_programs() {
        let error = json!({ "error": { "message": line, "exitCode": exit_code } });
        telemetry::say(error);
    } else {
        telemetry::say(format_args!("error: {line}"));
    }
}

/// Prints to standard output. A reader that has gone away is a failure and not a panic.
pub fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(format!("standard output cannot be written to: {error}")))
}

/// Rows of cells as lines with aligned columns, two spaces apart.
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line += &format!("{cell:<width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let text = aligned(&[row(["a", "é", "x"]), row(["long", "b", ""])]);
        assert_eq!(text, "a     é  x\nlong  b\n");
    }
}
