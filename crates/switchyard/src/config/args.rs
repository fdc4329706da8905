//! The commands and their options, as the command line has them.

mod client;
mod operator;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use domain::time::Timestamp;
use domain::uma_address::UmaDomain;

use super::checks::{parse_age, parse_object, parse_time};
use super::connections::Connections;
use super::webhooks::Webhooks;
use super::{DatabaseUrl, Listen, PeerUrl, PublicUrl};
use crate::telemetry::LogFormat;

pub use client::*;
pub use operator::*;

/// A quote that lives shorter cannot be read and executed by a person.
const QUOTE_LIFETIME_SECONDS_MIN: i64 = 60;

/// A quote that lives longer makes the platform carry the risk of the market.
const QUOTE_LIFETIME_SECONDS_MAX: i64 = 900;

/// Clients may repeat a key for so long (docs/decisions/0005).
const IDEMPOTENCY_DAYS_MIN: i64 = 30;

/// Ten years: after that, no client repeats a request.
const IDEMPOTENCY_DAYS_MAX: i64 = 3_650;

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
pub(super) struct CommandLine {
    #[command(flatten)]
    pub(super) common: CommonOptions,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Keeps what every command has apart from what is its own.
const COMMON_OPTIONS: &str = "Common options";

#[derive(Debug, Args)]
pub(super) struct CommonOptions {
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
        default_value = DATABASE_URL
    )]
    pub(super) database_url: String,

    /// The file with the server's secret key [default: FILE.key beside the database FILE, or
    /// switchyard.key].
    ///
    /// The first start makes it. Servers that share a database need the same key: give the others
    /// a copy of the file. SWITCHYARD_SECRET_KEY can hold the key itself instead: 64
    /// hexadecimal digits, or the base64 of 32 bytes.
    #[arg(long, global = true, help_heading = COMMON_OPTIONS)]
    #[arg(value_name = "FILE", env = "SWITCHYARD_KEY_FILE")]
    pub(super) key_file: Option<PathBuf>,

    /// How log lines look on standard error [default: human on a terminal, else json].
    ///
    /// SWITCHYARD_LOG or RUST_LOG choose what is logged, for example info,store=debug.
    #[arg(long, global = true, help_heading = COMMON_OPTIONS)]
    #[arg(value_name = "FORMAT", env = "SWITCHYARD_LOG_FORMAT")]
    pub(super) log_format: Option<LogFormat>,

    /// Prints for programs: JSON objects, one a line, on standard output, and what went wrong as
    /// one on standard error.
    #[arg(long, global = true, help_heading = COMMON_OPTIONS)]
    pub(super) json: bool,
}

/// The database where nothing else is said.
pub(super) const DATABASE_URL: &str = "sqlite://switchyard.db";

/// Options of every command that say which database is meant.
const OF_DATABASE: [&str; 2] = ["database_url", "key_file"];

/// Commands that open no database of the operator's.
const WITHOUT_DATABASE: [&str; 6] = ["listen", "trigger", "demo", "rates", "completions", "man"];

/// Help never shows values of the environment: a URL may hold a password.
fn without_values(command: clap::Command) -> clap::Command {
    command.mut_args(|option| option.hide_env_values(true)).mut_subcommands(without_values)
}

/// The command line as its help shows it: no command has an option that it does not read.
pub fn definition() -> clap::Command {
    let mut command = without_values(CommandLine::command());
    for name in WITHOUT_DATABASE {
        let hidden: Vec<_> = command
            .get_arguments()
            .filter(|option| OF_DATABASE.contains(&option.get_id().as_str()))
            .map(|option| option.clone().hide(true))
            .collect();
        command = command.mut_subcommand(name, |command| command.args(hidden));
    }
    command
}

/// The command.
#[derive(Debug, Subcommand)]
#[cfg_attr(
    feature = "ldk",
    expect(clippy::large_enum_variant, reason = "a process has one command, which is not moved")
)]
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
    /// account and one that the bank refuses, a payment that comes from a UMA address and one to a
    /// customer of another server, the events that its endpoint is sent, the ledger's accounts, and
    /// the check of it all.
    #[command(after_help = "Example:\n  switchyard demo --keep demo\n  switchyard demo --uma")]
    Demo(Demo),

    /// Sends a platform's events to a developer's machine, as they happen.
    ///
    /// It asks a server for the events of the platform whose token is in SWITCHYARD_CLIENT_ID and
    /// SWITCHYARD_CLIENT_SECRET, or in SY_USER as a first start prints it, which must be allowed to
    /// VIEW and to MANAGE, and posts each to a URL, in order, with the bytes that the platform's
    /// endpoint gets. It signs them with the platform's webhook secret, and with a key of its own.
    /// The secret and the public key are printed at the start. Each event is a line with what the
    /// URL answered. It sends nothing twice, does not change what the platform's endpoint gets, and
    /// goes on until it is interrupted.
    #[command(
        after_help = "Example:\n  switchyard listen --forward-to http://localhost:3000/hooks\n  \
            switchyard listen --forward-to http://localhost:3000/hooks --approve"
    )]
    Listen(Forward),

    /// Makes an event of a sandbox platform happen.
    ///
    /// It is a client of the API with the token in SWITCHYARD_CLIENT_ID and
    /// SWITCHYARD_CLIENT_SECRET, or in SY_USER as a first start prints it, which must be allowed to
    /// VIEW, to TRANSACT and to MANAGE. It makes a customer, an account and money of the sandbox,
    /// and the requests that cause the event, and shows each.
    #[command(
        after_help = "Example:\n  switchyard trigger payment.failed\n  switchyard trigger approval"
    )]
    Trigger(Trigger),

    /// Checks that everything the system promises about its data holds.
    ///
    /// Names each break, repairs nothing, and exits with 0 if there is none, with 1 if there is,
    /// and with 2 if it could not look. The database may be in use. Without the key, what is
    /// sealed stays closed and its checks are skipped.
    #[command(after_help = "Example:\n  switchyard verify --database-url sqlite://switchyard.db")]
    Verify(Verify),

    /// Lists who changed what, commands included.
    ///
    /// Each line is one unit of work from the journal, oldest first: when, for whom, by which
    /// request, and the objects that it made, changed and removed. The one for whom it was done is
    /// a token, a command with the person who ran it, a job of the server, or the route of a
    /// request without a token. The database may be in use. Needs the key.
    #[command(after_help = "Example:\n  \
        switchyard audit --since 2025-10-13T00:00:00Z\n  \
        switchyard audit --object Customer:019542f5-b3e7-1d02-0000-000000000001 --json")]
    Audit(Audit),

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

    /// Makes the tables of a database anew from its journal, where they are lost or damaged.
    ///
    /// Stop every server first. A file with damaged tables is never removed: it gets another name,
    /// which is printed. Each step is kept: if the command was stopped, run it again.
    #[command(after_help = "Example:\n  \
        switchyard rebuild --database-url sqlite://switchyard.db")]
    Rebuild,

    /// Moves everything to another database, which must be empty, and proves that it is there.
    ///
    /// Stop every server first: the database that is moved is refused while a server uses it. When
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

    /// Decides about the identities of customers, and erases those who were deleted.
    #[command(subcommand, after_help = "Example:\n  switchyard customer pending")]
    Customer(CustomerCommand),

    /// Lists, makes and revokes API tokens.
    #[command(subcommand, after_help = "Example:\n  switchyard token list")]
    Token(TokenCommand),

    /// Shows other institutions of UMA, and sets which of them are dealt with.
    #[command(subcommand, after_help = "Example:\n  switchyard uma peers")]
    Uma(UmaCommand),

    /// Lists and resolves what only a person can settle.
    ///
    /// Rails that contradict themselves, payments of which the rail does not say what became of
    /// them, money that comes back for a customer who was deleted, and events that did not reach
    /// their endpoint. The server may run.
    #[command(subcommand, after_help = "Example:\n  switchyard attention list")]
    Attention(AttentionCommand),

    /// Shows the whole story of a payment on one time line.
    ///
    /// The time line has the states, the postings as the ledger has them, the decision of the
    /// platform, and each attempt to deliver an event. Above it stand the parties, the amounts and
    /// the answer of the rail, below it what comes next. The server may run.
    #[command(after_help = "Example:\n  switchyard show Transaction:...\n  switchyard show SY-...")]
    Show(Show),

    /// Reads the ledger: accounts, and the trial balance.
    #[command(subcommand, after_help = "Example:\n  switchyard ledger balances")]
    Ledger(LedgerCommand),

    /// Shows and replaces the rates of a server, also while it runs.
    #[command(subcommand, after_help = "Example:\n  switchyard rates show --rates-file rates.json")]
    Rates(RatesCommand),

    /// Replaces the keys of a database.
    #[command(subcommand, after_help = "Example:\n  switchyard key rotate")]
    Key(KeyCommand),

    /// Prints what a shell needs to complete the commands and options of this program.
    #[command(after_help = "Example:\n  \
        switchyard completions bash > /etc/bash_completion.d/switchyard")]
    Completions(Completions),

    /// Writes the manual pages of this program and its commands into a folder.
    #[command(after_help = "Example:\n  switchyard man /usr/local/share/man/man1")]
    Man(Man),
}

impl Command {
    /// Whether it opens the database that the command line names.
    pub(super) fn reads_database(&self) -> bool {
        match self {
            Self::Serve(_)
            | Self::Verify(_)
            | Self::Audit(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Rebuild
            | Self::Migrate(_)
            | Self::Platform(_)
            | Self::Customer(_)
            | Self::Token(_)
            | Self::Uma(_)
            | Self::Attention(_)
            | Self::Show(_)
            | Self::Ledger(_)
            | Self::Key(_) => true,
            Self::Demo(_)
            | Self::Listen(_)
            | Self::Trigger(_)
            | Self::Rates(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }

    /// How it reaches the API, if it is a client of it.
    pub(super) fn access(&self) -> Option<&Access> {
        match self {
            Self::Listen(options) => Some(&options.access),
            Self::Trigger(options) => Some(&options.access),
            Self::Serve(_)
            | Self::Demo(_)
            | Self::Verify(_)
            | Self::Audit(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Rebuild
            | Self::Migrate(_)
            | Self::Platform(_)
            | Self::Customer(_)
            | Self::Token(_)
            | Self::Uma(_)
            | Self::Attention(_)
            | Self::Show(_)
            | Self::Ledger(_)
            | Self::Key(_)
            | Self::Rates(_)
            | Self::Completions(_)
            | Self::Man(_) => None,
        }
    }

    /// Whether it reads secrets from the environment.
    pub(super) fn reads_secrets(&self) -> bool {
        self.reads_database() || self.access().is_some()
    }
}

/// Options of `demo`.
#[derive(Debug, Clone, Args)]
pub struct Demo {
    /// Leaves the databases and their keys in this folder, and says how to look at them.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,

    /// Shows two institutions that pay each other over UMA instead, with every message between
    /// them.
    ///
    /// Each is a server with a database of its own. One payment fixes the amount that arrives, the
    /// other the amount that is sent, in another currency. Payments are settled hash-locked, which
    /// docs/uma.md explains: both servers book, and no money moves between them.
    #[arg(long)]
    pub uma: bool,
}

/// Options of `completions`.
#[derive(Debug, Clone, Args)]
pub struct Completions {
    /// Which shell.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, Clone, Args)]
pub struct Man {
    /// The folder, which must be there.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Options of `serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Where to listen. Anything but this machine's own address needs a proxy with TLS in front.
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "SWITCHYARD_LISTEN",
        default_value = "127.0.0.1:8080"
    )]
    pub listen: Listen,

    /// Listeners and the connections of clients.
    #[command(flatten)]
    pub connections: Connections,

    /// Domain of the first platform's UMA addresses [default: localhost:PORT].
    #[arg(
        long,
        value_name = "DOMAIN",
        env = "SWITCHYARD_UMA_DOMAIN",
        value_parser = UmaDomain::parse
    )]
    pub uma_domain: Option<UmaDomain>,

    /// Where people reach this server's pages: scheme and host, and perhaps a port [default:
    /// http://HOST:PORT].
    ///
    /// Links to invitations and identity checks begin with it.
    #[arg(long, value_name = "URL", env = "SWITCHYARD_PUBLIC_URL")]
    pub public_url: Option<PublicUrl>,

    /// Where other servers on the same database reach this one, or `none` [default: the address of
    /// --admin-listen, unless that is every address of this machine, or its own while --listen is
    /// for others; without one, that of --listen while only this machine reaches it].
    ///
    /// One of the servers leads: it runs due jobs. The others forward requests to it that
    /// change something, sealed with the key that they share. With none, this one passes nothing on
    /// and is passed nothing.
    #[arg(long, value_name = "URL", env = "SWITCHYARD_PEER_URL")]
    pub peer_url: Option<PeerUrl>,

    /// How long a quote can be executed, from 60 to 900.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "SWITCHYARD_QUOTE_LIFETIME_SECONDS",
        default_value = "300",
        value_parser = clap::value_parser!(i64)
            .range(QUOTE_LIFETIME_SECONDS_MIN..=QUOTE_LIFETIME_SECONDS_MAX)
    )]
    pub quote_lifetime_seconds: i64,

    /// For how many days a repeated idempotency key gets its first answer: 30 to 3650.
    #[arg(
        long,
        value_name = "DAYS",
        env = "SWITCHYARD_IDEMPOTENCY_DAYS",
        default_value = "30",
        value_parser = clap::value_parser!(i64)
            .range(IDEMPOTENCY_DAYS_MIN..=IDEMPOTENCY_DAYS_MAX)
    )]
    pub idempotency_days: i64,

    /// A file of exchange rates to use instead of the built-in ones; docs/rates.md has its format.
    ///
    /// It is read again when it changes. Live platforms quote nothing without one.
    #[arg(long, value_name = "FILE", env = "SWITCHYARD_RATES_FILE")]
    pub rates_file: Option<PathBuf>,

    /// How old the rates of the file may be, by its asOf, for live platforms to quote them: a
    /// number of s, m, h or d. Sandbox platforms quote rates of any age.
    #[arg(
        long,
        value_name = "AGE",
        env = "SWITCHYARD_RATES_MAX_AGE",
        default_value = "24h",
        value_parser = parse_age
    )]
    pub rates_max_age: Duration,

    /// How events are delivered.
    #[command(flatten)]
    pub webhooks: Webhooks,

    /// The Lightning node.
    #[cfg(feature = "ldk")]
    #[command(flatten)]
    pub lightning: super::Lightning,
}

impl Serve {
    /// Where other servers reach this one, when it listens for them there, or nowhere that they
    /// could know: as was said, or there, if that is one address.
    pub fn peer_address_at(&self, listen: Option<&Listen>) -> Option<String> {
        match (&self.peer_url, listen) {
            (Some(PeerUrl(url)), _) => url.clone(),
            (None, Some(listen)) if !listen.is_everywhere() => Some(format!("http://{listen}")),
            (None, _) => None,
        }
    }

    /// Whether no option says that other machines reach the server, behind a proxy on this one.
    pub fn is_for_this_machine(&self) -> bool {
        self.public_url.as_ref().is_none_or(PublicUrl::is_local)
            && self.uma_domain.as_ref().is_none_or(UmaDomain::is_of_this_machine)
            && self.connections.trust_forwarded_from.is_empty()
    }

    /// Whether it passes requests on to other servers, and takes theirs if they know where it is.
    pub fn forwards(&self) -> bool {
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

/// Options of `verify`.
#[derive(Debug, Clone, Args)]
pub struct Verify {
    /// Also makes all tables once more from the journal and compares them row by row. Takes room
    /// like the database's in the folder for temporary files, and the key.
    #[arg(long)]
    pub replay: bool,
}

/// Options of `audit`.
#[derive(Debug, Clone, Args)]
pub struct Audit {
    /// Only what was changed at this time or later, such as 2025-10-13T09:30:00Z.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub since: Option<Timestamp>,

    /// Only what changed the object with this id, such as Transaction:UUID.
    #[arg(long, value_name = "ID", value_parser = parse_object)]
    pub object: Option<String>,
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
    #[arg(long, value_name = "URL", env = "SWITCHYARD_MIGRATE_FROM")]
    pub from: Option<DatabaseUrl>,

    /// The empty database to move it to. A URL with a password is better kept in the variable.
    #[arg(long, value_name = "URL", env = "SWITCHYARD_MIGRATE_TO")]
    pub to: DatabaseUrl,
}
