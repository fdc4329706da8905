//! Secrets that come from the environment or a file: the server's key and a client's credentials.

use std::fmt;
use std::path::PathBuf;

use crate::database::Database;
use crate::exit::ConfigError;
use crate::keyfile::{KEY_BYTES, parse_key};

/// Holds the server's secret key itself, for systems that hand secrets to processes this way.
pub const SECRET_KEY_VARIABLE: &str = "SWITCHYARD_SECRET_KEY";

/// Holds the id of the first token that a start on an empty database makes.
pub const CLIENT_ID_VARIABLE: &str = "SWITCHYARD_CLIENT_ID";

/// Holds the secret of that token.
pub const CLIENT_SECRET_VARIABLE: &str = "SWITCHYARD_CLIENT_SECRET";

/// As long as a generated one.
const CLIENT_ID_MAX: usize = 128;

/// Too long to be guessed over a network.
const CLIENT_SECRET_MIN: usize = 16;

/// An `Authorization` header with both parts in base64 stays far below the limit of a head.
const CLIENT_SECRET_MAX: usize = 512;

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

/// A client's credentials. Prints nothing of the secret.
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

/// The key in `text`, which came from the environment.
pub fn parse_secret_key(text: &str) -> Result<SecretKey, ConfigError> {
    parse_key(text).map(SecretKey).ok_or_else(|| {
        ConfigError(format!(
            "{SECRET_KEY_VARIABLE} must be 64 hexadecimal digits or the base64 of {KEY_BYTES} \
             bytes, such as openssl rand -hex {KEY_BYTES} prints"
        ))
    })
}

pub(super) fn key_source(
    database: &Database,
    file: Option<PathBuf>,
    given: Option<String>,
) -> Result<KeySource, ConfigError> {
    // The line break of a file that the name was read from would be a part of the name.
    let file = file.map(|file| match file.to_str() {
        Some(name) => PathBuf::from(name.trim_end_matches(['\r', '\n'])),
        None => file,
    });
    match (file, given) {
        (None, None) => Ok(KeySource::File(database.key_file())),
        (Some(file), None) => Ok(KeySource::File(file)),
        (None, Some(text)) => parse_secret_key(&text).map(KeySource::Given),
        (Some(_), Some(_)) => Err(ConfigError(format!(
            "there are two secret keys: set {SECRET_KEY_VARIABLE} or a key file, not both"
        ))),
    }
}

/// The credentials of the first token: both or neither, and such that HTTP Basic can carry them.
pub fn parse_credentials(
    id: Option<String>,
    secret: Option<String>,
) -> Result<Option<ClientCredentials>, ConfigError> {
    let (id, secret) = match (id, secret) {
        (None, None) => return Ok(None),
        (Some(id), Some(secret)) => (id, secret),
        (Some(_), None) => {
            return Err(ConfigError(format!(
                "{CLIENT_ID_VARIABLE} is set without {CLIENT_SECRET_VARIABLE}: set both or neither"
            )));
        }
        (None, Some(_)) => {
            return Err(ConfigError(format!(
                "{CLIENT_SECRET_VARIABLE} is set without {CLIENT_ID_VARIABLE}: set both or neither"
            )));
        }
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if id.len() > CLIENT_ID_MAX || !id.bytes().all(is_allowed) {
        return Err(ConfigError(format!(
            "{CLIENT_ID_VARIABLE} must be 1 to {CLIENT_ID_MAX} characters of A-Z a-z 0-9 _ -"
        )));
    }
    let length = secret.chars().count();
    if !(CLIENT_SECRET_MIN..=CLIENT_SECRET_MAX).contains(&length)
        || secret.chars().any(char::is_control)
    {
        return Err(ConfigError(format!(
            "{CLIENT_SECRET_VARIABLE} must be {CLIENT_SECRET_MIN} to {CLIENT_SECRET_MAX} \
             characters without control characters, such as openssl rand -hex 32 prints"
        )));
    }
    Ok(Some(ClientCredentials { id, secret }))
}
