//! The command line and the environment, read once and checked as a whole before anything starts.
//!
//! Guarantees: a bad configuration is one line on standard error that says what to do, and exit
//! code 2; secrets come from the environment or a file, never from a flag that other users of the
//! machine can see, and neither an error nor `Debug` shows one.

mod webhooks;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use domain::currency::Currency;
use domain::event::EventKind;
use domain::id::{CustomerId, PlatformId, TokenId};
use domain::pricing::Fees;
use domain::token::{Permission, Permissions};
use domain::uma_address::UmaDomain;
use http::Uri;
use rust_decimal::Decimal;

pub use self::webhooks::Webhooks;
use crate::database::Database;
use crate::keyfile::{KEY_BYTES, parse_key};
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

/// A quote that lives shorter cannot be read and executed by a person.
const QUOTE_LIFETIME_SECONDS_MIN: i64 = 60;

/// A quote that lives longer makes the platform carry the risk of the market.
const QUOTE_LIFETIME_SECONDS_MAX: i64 = 900;

/// As long as a generated one.
const CLIENT_ID_MAX: usize = 128;

/// What guessing cannot reach over a network.
const CLIENT_SECRET_MIN: usize = 16;

/// An `Authorization` header with both parts in base64 stays far below the limit of a head.
const CLIENT_SECRET_MAX: usize = 512;

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

/// An open, self-hosted payments platform.
#[derive(Debug, Parser)]
#[command(
    name = "switchyard",
    bin_name = "switchyard",
    version,
    max_term_width = 100,
    override_usage = "switchyard [OPTIONS] [COMMAND]",
    after_help = "Without a command, serves:\n  \
        switchyard\n  \
        switchyard --listen 0.0.0.0:8080 --database-url sqlite:///var/lib/switchyard/live.db\n  \
        switchyard --database-url postgres://switchyard:secret@db.example.com/switchyard\n  \
        switchyard serve --help\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage or configuration"
)]
struct CommandLine {
    #[command(flatten)]
    common: CommonOptions,
    #[command(subcommand)]
    command: Command,
}

/// Keeps what every command has apart from what is its own.
const COMMON_OPTIONS: &str = "Common options";

#[derive(Debug, Args)]
struct CommonOptions {
    /// The database: sqlite://FILE from here, sqlite:///FILE from the root, or
    /// postgres://USER:PASSWORD@HOST:PORT/DATABASE.
    ///
    /// A PostgreSQL server is 15 or newer. docs/postgresql.md says what may stand behind a question
    /// mark. Several hosts with commas between them are tried until one takes writes. A server on
    /// another machine must prove who it is with a certificate that this system believes, or that
    /// sslrootcert=FILE holds, unless sslmode says otherwise.
    #[arg(
        long,
        global = true,
        help_heading = COMMON_OPTIONS,
        value_name = "URL",
        env = "SWITCHYARD_DATABASE_URL",
        hide_env_values = true,
        default_value = "sqlite://switchyard.db"
    )]
    database_url: String,

    /// The file with the server's secret key [default: FILE.key beside the database FILE, or
    /// switchyard.key].
    ///
    /// The first start makes it. Servers that share a database need the same key: give the others
    /// a copy of the file. SWITCHYARD_SECRET_KEY can hold the key itself instead: 64
    /// hexadecimal digits, or the base64 of 32 bytes.
    #[arg(long, global = true, help_heading = COMMON_OPTIONS)]
    #[arg(value_name = "FILE", env = "SWITCHYARD_KEY_FILE", hide_env_values = true)]
    key_file: Option<PathBuf>,

    /// How log lines look on standard error [default: human on a terminal, else json].
    ///
    /// SWITCHYARD_LOG or RUST_LOG choose what is logged, for example info,store=debug.
    #[arg(long, global = true, help_heading = COMMON_OPTIONS)]
    #[arg(value_name = "FORMAT", env = "SWITCHYARD_LOG_FORMAT", hide_env_values = true)]
    log_format: Option<LogFormat>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves the API.
    ///
    /// The first start on an empty database makes a sandbox platform and one token. Its
    /// credentials are those in SWITCHYARD_CLIENT_ID and SWITCHYARD_CLIENT_SECRET, or are made and
    /// printed once.
    #[command(after_help = "Example:\n  switchyard serve --listen 127.0.0.1:9000")]
    Serve(Serve),

    /// Shows the whole story on a throw-away database and exits.
    ///
    /// A customer, funding, a quote with foreign exchange, its execution, a payment to a bank
    /// account and one that the bank refuses, a payment that comes from a UMA address, the events
    /// that its endpoint is sent, the ledger's accounts, and the check of it all.
    #[command(after_help = "Example:\n  switchyard demo")]
    Demo,

    /// Sends a platform's events to a developer's machine, as they happen.
    ///
    /// It asks a server for the events of the platform whose token is in SWITCHYARD_CLIENT_ID and
    /// SWITCHYARD_CLIENT_SECRET, which must be allowed to VIEW and to MANAGE, and posts each to a
    /// URL, in order, with the bytes that the platform's endpoint gets. It signs them with the
    /// platform's webhook secret, and with a key of its own whose public key it prints at the
    /// start. Each event is a line with what the URL answered. It sends nothing twice, does not
    /// change what the platform's endpoint gets, and goes on until it is interrupted.
    #[command(
        after_help = "Example:\n  switchyard listen --forward-to http://localhost:3000/hooks"
    )]
    Listen(Forward),

    /// Checks that everything the system promises about its data holds.
    ///
    /// Names each break, repairs nothing, and exits with 0 if there is none, with 1 if there is,
    /// and with 2 if it could not look. The database may be in use. Without the key, what is
    /// sealed stays closed and its checks are skipped.
    #[command(after_help = "Example:\n  switchyard verify --database-url sqlite://switchyard.db")]
    Verify(Verify),

    /// Copies the database into a file and verifies the copy, also while the server runs.
    ///
    /// The copy is of one instant and holds everything that was answered before it began. It has
    /// its name only once it is on the disk and was verified. The key is not in it.
    #[command(after_help = "Example:\n  switchyard backup --to switchyard-monday.db")]
    Backup(Backup),

    /// Makes a database from a backup, which is verified first.
    ///
    /// It tells how old the backup is: what was answered after that is not in it. The key must be
    /// the one that the database had.
    #[command(after_help = "Example:\n  \
        switchyard restore --from switchyard-monday.db --database-url sqlite://switchyard.db")]
    Restore(Restore),

    /// Moves everything to another database, which must be empty, and proves that it is there.
    ///
    /// Stop every server first: the database that is moved is refused while somebody uses it. When
    /// all rows are copied, both sides are read again: every table must be the same, every account
    /// must have the balance that its entries come to, and every check of verify must hold. Only
    /// then can the target be opened. A copy that was interrupted goes on when it is started again.
    ///
    /// Both have the same key.
    #[command(after_help = "Example:\n  \
        switchyard migrate --from sqlite://switchyard.db --to postgres://pay@db.example/switchyard")]
    Migrate(Migrate),

    /// Lists, makes and prices platforms.
    #[command(subcommand, after_help = "Example:\n  switchyard platform list")]
    Platform(PlatformCommand),

    /// Decides about the identities of customers.
    #[command(subcommand, after_help = "Example:\n  switchyard customer pending")]
    Customer(CustomerCommand),

    /// Lists, makes and revokes API tokens.
    #[command(subcommand, after_help = "Example:\n  switchyard token list")]
    Token(TokenCommand),
}

/// Options of `serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Where to listen. Anything but this machine's own address needs a proxy with TLS in front.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "SWITCHYARD_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1:8080"
    )]
    pub listen: Listen,

    /// Domain of the first platform's UMA addresses [default: localhost:PORT].
    #[arg(
        long,
        value_name = "DOMAIN",
        env = "SWITCHYARD_UMA_DOMAIN",
        hide_env_values = true,
        value_parser = UmaDomain::parse
    )]
    pub uma_domain: Option<UmaDomain>,

    /// Where people reach this server's pages: scheme and host, and perhaps a port [default:
    /// http://HOST:PORT].
    ///
    /// Links to invitations and identity checks begin with it.
    #[arg(long, value_name = "URL", env = "SWITCHYARD_PUBLIC_URL", hide_env_values = true)]
    pub public_url: Option<PublicUrl>,

    /// Where other servers on the same database reach this one, or `none` [default: the address of
    /// --listen, unless that is every address of this machine].
    ///
    /// One of the servers writes most: it does what is due. The others pass requests on to it that
    /// change something, with what they are authorized by and unencrypted, so the network between
    /// them must be theirs alone. With none, this one passes nothing on and is passed nothing.
    #[arg(long, value_name = "URL", env = "SWITCHYARD_PEER_URL", hide_env_values = true)]
    pub peer_url: Option<PeerUrl>,

    /// How long a quote can be executed, from 60 to 900.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_QUOTE_LIFETIME_SECONDS",
        hide_env_values = true,
        default_value = "300",
        value_parser = clap::value_parser!(i64)
            .range(QUOTE_LIFETIME_SECONDS_MIN..=QUOTE_LIFETIME_SECONDS_MAX)
    )]
    pub quote_lifetime_seconds: i64,

    /// A file of exchange rates to use instead of the built-in ones.
    #[arg(long, value_name = "FILE", env = "SWITCHYARD_RATES_FILE", hide_env_values = true)]
    pub rates_file: Option<PathBuf>,

    /// How events are delivered.
    #[command(flatten)]
    pub webhooks: Webhooks,
}

impl Serve {
    /// Where other servers reach this one, when it listens there: as was said, or there, if that is
    /// one address.
    pub fn peer_address_at(&self, listen: &Listen) -> Option<String> {
        match &self.peer_url {
            Some(PeerUrl(url)) => url.clone(),
            None if listen.is_everywhere() => None,
            None => Some(format!("http://{listen}")),
        }
    }

    /// Whether it passes requests on to other servers, and takes theirs if they know where it is.
    pub fn passes_on(&self) -> bool {
        self.peer_url != Some(PeerUrl(None))
    }

    /// The domain of the first platform, when the server listens on `port`: the one that was given,
    /// or the one that reaches this server from the same machine.
    pub fn uma_domain_at(&self, port: u16) -> UmaDomain {
        self.uma_domain.clone().unwrap_or_else(|| local_uma_domain(port))
    }
}

/// The domain that reaches a server on `port` of the same machine.
pub fn local_uma_domain(port: u16) -> UmaDomain {
    UmaDomain::parse(&format!("localhost:{port}")).expect("a label and a port are a domain")
}

/// The beginning of links to this server: a scheme, a host and perhaps a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl FromStr for PublicUrl {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let url = text.strip_suffix('/').unwrap_or(text);
        let is_origin = |url: &http::Uri| {
            let authority = url.authority().map_or("", |authority| authority.as_str());
            matches!(url.scheme_str(), Some("http" | "https"))
                && !url.host().unwrap_or_default().is_empty()
                && !authority.contains('@')
                && url.path_and_query().is_none_or(|rest| rest.as_str() == "/")
        };
        match url.parse() {
            Ok(parsed) if is_origin(&parsed) => Ok(Self(url.to_owned())),
            Ok(_) | Err(_) => Err(ConfigError(
                "must be http:// or https:// with a host and perhaps a port, such as \
                 https://pay.example.com"
                    .to_owned(),
            )),
        }
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where other servers reach this one: `http://`, a host and perhaps a port. Nothing if they are
/// not to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUrl(Option<String>);

impl FromStr for PeerUrl {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if text == "none" {
            return Ok(Self(None));
        }
        match PublicUrl::from_str(text) {
            Ok(PublicUrl(url)) if url.starts_with("http://") => Ok(Self(Some(url))),
            Ok(_) | Err(_) => Err(ConfigError(
                "must be http:// with a host and perhaps a port, such as http://10.0.0.5:8080, or \
                 none"
                    .to_owned(),
            )),
        }
    }
}

/// A host and a port to listen on. The port 0 lets the system choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// A host name or an address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Listen {
    /// Whether it is every address of this machine, so that none tells where it is reached.
    pub fn is_everywhere(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
    }
}

impl FromStr for Listen {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| {
            let host = match host.strip_prefix('[') {
                Some(address) => address.strip_suffix(']')?,
                None if host.contains(':') => return None,
                None => host,
            };
            Some((host, port.parse().ok()?))
        });
        match parts {
            Some((host, port)) if !host.is_empty() => Ok(Self { host: host.to_owned(), port }),
            Some(_) | None => Err(ConfigError(
                "must be a host and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
            )),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Options of `listen`.
#[derive(Debug, Clone, Args)]
pub struct Forward {
    /// Where events are posted to.
    #[arg(long, value_name = "URL", value_parser = parse_web_url)]
    pub forward_to: Uri,

    /// The server that has them.
    #[arg(long, value_name = "URL", env = "SWITCHYARD_API", hide_env_values = true)]
    #[arg(default_value = "http://127.0.0.1:8080")]
    pub api: PublicUrl,

    /// Only events of these types, such as OUTGOING_PAYMENT,KYC_STATUS.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = parse_event_kind)]
    pub events: Vec<EventKind>,
}

fn parse_web_url(text: &str) -> Result<Uri, ConfigError> {
    let refused = || {
        ConfigError(
            "must be http:// or https:// with a host, such as http://localhost:3000/hooks"
                .to_owned(),
        )
    };
    let url: Uri = text.parse().map_err(|_| refused())?;
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    if is_web && url.host().is_some_and(|host| !host.is_empty()) { Ok(url) } else { Err(refused()) }
}

fn parse_event_kind(text: &str) -> Result<EventKind, ConfigError> {
    EventKind::from_name(text).ok_or_else(|| {
        let names = EventKind::ALL.map(EventKind::name).join(", ");
        ConfigError(format!("must be one of {names}"))
    })
}

/// Options of `verify`.
#[derive(Debug, Clone, Args)]
pub struct Verify {
    /// Prints the result as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Options of `backup`.
#[derive(Debug, Clone, Args)]
pub struct Backup {
    /// The file to make. One that is there is never written over.
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

/// Options of `restore`.
#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// The file that switchyard backup made.
    #[arg(long, value_name = "FILE")]
    pub from: PathBuf,
}

/// Options of `migrate`.
#[derive(Debug, Clone, Args)]
pub struct Migrate {
    /// The database to move [default: the one of --database-url].
    #[arg(long, value_name = "URL", env = "SWITCHYARD_MIGRATE_FROM", hide_env_values = true)]
    pub from: Option<DatabaseUrl>,

    /// The empty database to move it to. A URL with a password is better kept in the variable.
    #[arg(long, value_name = "URL", env = "SWITCHYARD_MIGRATE_TO", hide_env_values = true)]
    pub to: DatabaseUrl,
}

/// The URL of a database as it was given, which may hold a password. Prints nothing of itself, and
/// is checked where no error repeats it.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub String);

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(..)")
    }
}

impl FromStr for DatabaseUrl {
    type Err = std::convert::Infallible;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        Ok(Self(url.to_owned()))
    }
}

/// What to do with platforms.
#[derive(Debug, Clone, Subcommand)]
pub enum PlatformCommand {
    /// Lists all platforms.
    #[command(after_help = "Example:\n  switchyard platform list")]
    List,

    /// Makes a platform. It has no token yet: see switchyard token create.
    #[command(after_help = "Example:\n  \
        switchyard platform create --name \"Example Pay\" --uma-domain pay.example.com")]
    Create(CreatePlatform),

    /// Sets what a platform charges for a corridor, in place of the built-in price.
    #[command(
        after_help = "Example, 0.5 % on the rate and 2.00 USD for each payment from USD into another currency:\n  \
        switchyard platform set-pricing --platform PlatformConfig:... --from USD \
        --spread 0.005 --fixed-fee 200"
    )]
    SetPricing(SetPricing),

    /// Sets rows of a platform's own for what payments and accounts do in the sandbox.
    #[command(
        after_help = "docs/sandbox.md says how rows are written. They come before the built-in \
        ones, and hold at once, also on servers that run:\n  \
        switchyard platform set-scenarios --platform PlatformConfig:... --file rows.toml"
    )]
    SetScenarios(SetScenarios),
}

/// Options of `platform set-scenarios`.
#[derive(Debug, Clone, Args)]
pub struct SetScenarios {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// The file with the rows. Without it, the built-in rows alone hold.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Options of `platform create`.
#[derive(Debug, Clone, Args)]
pub struct CreatePlatform {
    /// Its name, for the operator.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,

    /// Moves real money. Without it, a sandbox.
    #[arg(long)]
    pub live: bool,

    /// Domain of its customers' UMA addresses.
    #[arg(long, value_name = "DOMAIN", value_parser = UmaDomain::parse)]
    pub uma_domain: UmaDomain,

    /// It is a regulated institution, which checks its customers itself.
    #[arg(long)]
    pub regulated: bool,
}

/// Options of `platform set-pricing`.
#[derive(Debug, Clone, Args)]
pub struct SetPricing {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// The currency that pays; any, when left out.
    #[arg(long, value_name = "CURRENCY", value_parser = parse_currency)]
    pub from: Option<Currency>,

    /// The currency that is paid; any, when left out.
    #[arg(long, value_name = "CURRENCY", value_parser = parse_currency)]
    pub to: Option<Currency>,

    /// Fraction by which the rate is worse than the market's, such as 0.005.
    #[arg(long, value_name = "FRACTION", value_parser = parse_spread)]
    #[arg(allow_negative_numbers = true, required_unless_present_any = PRICE_OTHER_THAN_SPREAD)]
    pub spread: Option<Decimal>,

    /// Fee per payment in the smallest unit of the currency that pays, such as 200 for 2.00 USD.
    #[arg(long, value_name = "UNITS", value_parser = parse_fixed_fee)]
    #[arg(allow_negative_numbers = true)]
    pub fixed_fee: Option<i64>,

    /// Fee as a fraction of the amount charged, such as 0.003.
    #[arg(long, value_name = "FRACTION", value_parser = parse_variable_fee_rate)]
    #[arg(allow_negative_numbers = true)]
    pub variable_fee_rate: Option<Decimal>,
}

/// One part of a price at least must be set, or there is nothing to do.
const PRICE_OTHER_THAN_SPREAD: [&str; 2] = ["fixed_fee", "variable_fee_rate"];

/// What to do with customers.
#[derive(Debug, Clone, Subcommand)]
pub enum CustomerCommand {
    /// Lists the customers whose identity waits for a decision, without their personal data.
    #[command(after_help = "Example:\n  switchyard customer pending")]
    Pending,

    /// Approves a customer's identity: its money can move. The platform is told.
    #[command(after_help = "Example:\n  switchyard customer approve Customer:...")]
    Approve(DecideCustomer),

    /// Refuses a customer's identity. The platform is told.
    #[command(after_help = "Example:\n  switchyard customer reject Customer:...")]
    Reject(DecideCustomer),
}

/// Options of `customer approve` and `customer reject`.
#[derive(Debug, Clone, Args)]
pub struct DecideCustomer {
    /// Id of the customer.
    #[arg(value_parser = CustomerId::parse)]
    pub id: CustomerId,
}

/// What to do with API tokens.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Lists tokens, without their secrets.
    #[command(after_help = "Example:\n  switchyard token list")]
    List(ListTokens),

    /// Makes a token and prints its secret, once.
    #[command(after_help = "Example:\n  switchyard token create --platform PlatformConfig:... \
        --name reporting --permissions VIEW")]
    Create(CreateToken),

    /// Revokes a token at once and for good.
    #[command(after_help = "Example:\n  switchyard token revoke Token:...")]
    Revoke(RevokeToken),
}

/// Options of `token list`.
#[derive(Debug, Clone, Args)]
pub struct ListTokens {
    /// Id of the platform; all, when left out.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: Option<PlatformId>,
}

/// Options of `token create`.
#[derive(Debug, Clone, Args)]
pub struct CreateToken {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// Its name, for the operator.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,

    /// What it may do, with commas between: VIEW, TRANSACT, MANAGE. None implies another.
    #[arg(long, required = true, value_delimiter = ',', value_parser = parse_permission)]
    permissions: Vec<Permission>,
}

impl CreateToken {
    /// What the token may do; at least one thing.
    pub fn permissions(&self) -> Permissions {
        self.permissions.iter().copied().collect()
    }
}

/// Options of `token revoke`.
#[derive(Debug, Clone, Args)]
pub struct RevokeToken {
    /// Id of the token.
    #[arg(value_parser = TokenId::parse)]
    pub id: TokenId,
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

/// The key in `text`, which came from the environment.
pub fn parse_secret_key(text: &str) -> Result<SecretKey, ConfigError> {
    parse_key(text).map(SecretKey).ok_or_else(|| {
        ConfigError(format!(
            "{SECRET_KEY_VARIABLE} must be 64 hexadecimal digits or the base64 of {KEY_BYTES} \
             bytes, such as openssl rand -hex {KEY_BYTES} prints"
        ))
    })
}

fn key_source(
    database: &Database,
    file: Option<PathBuf>,
    given: Option<String>,
) -> Result<KeySource, ConfigError> {
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

/// The text of a variable. One that is set to nothing counts as not set: that is what a compose
/// file makes of a variable that its own environment lacks.
fn text_of(
    name: &str,
    variable: &impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>, ConfigError> {
    let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.into_string().map_err(|_| ConfigError(format!("{name} is not text")))?;
    Ok(Some(text))
}

fn parse_currency(text: &str) -> Result<Currency, ConfigError> {
    Currency::from_code(&text.to_ascii_uppercase()).ok_or_else(|| {
        let codes: Vec<_> = Currency::all().map(Currency::code).collect();
        ConfigError(format!("must be one of {}", codes.join(" ")))
    })
}

fn parse_permission(text: &str) -> Result<Permission, ConfigError> {
    Permission::from_name(&text.trim().to_ascii_uppercase())
        .ok_or_else(|| ConfigError("must be VIEW, TRANSACT or MANAGE".to_owned()))
}

fn parse_spread(text: &str) -> Result<Decimal, ConfigError> {
    text.parse()
        .ok()
        .filter(|spread| (Decimal::ZERO..Decimal::ONE).contains(spread))
        .ok_or_else(|| ConfigError("must be a fraction from 0 to below 1".to_owned()))
}

fn parse_fixed_fee(text: &str) -> Result<i64, String> {
    let minor = text.parse().map_err(|_| "must be a whole number of smallest units".to_owned())?;
    Fees::new(minor, Decimal::ZERO).map(Fees::fixed_minor).map_err(|error| error.to_string())
}

fn parse_variable_fee_rate(text: &str) -> Result<Decimal, String> {
    let rate = text.parse().map_err(|_| "must be a fraction from 0 to below 1".to_owned())?;
    Fees::new(0, rate).map(Fees::variable_rate).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
