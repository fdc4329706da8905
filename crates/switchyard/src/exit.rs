//! How the process ends: exit codes, and the configuration errors behind one of them.

use std::fmt;

/// The command succeeded.
pub const EXIT_OK: u8 = 0;

/// The command failed, or `verify` found something broken.
pub const EXIT_FAILURE: u8 = 1;

/// The command line or the configuration is wrong: trying again does not help.
pub const EXIT_USAGE: u8 = 2;

/// A configuration that nothing can be started with: one line that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

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
