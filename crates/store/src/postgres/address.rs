//! The address of a PostgreSQL database: a `postgres://` URL as libpq takes it.
//!
//! It is split here and its parts are read by the driver, for three reasons: the driver takes
//! everything before the first `@` for who connects, wherever that is; it knows three of libpq's
//! six `sslmode`s; and it stays with the first host that accepts a connection, even if that host
//! never answers. So each host gets a configuration of its own.
//!
//! No error repeats anything that could be a part of a password, whatever was left unescaped.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls::{self, Verified};
use crate::error::StoreError;

/// How long a server may take until it has let us in, unless the URL says `connect_timeout`. One
/// that is alive takes milliseconds.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Parameters of the driver unless the URL has others. A peer that went away without a word is
/// noticed within seconds, not within the hours that operating systems take.
const DEFAULTS: &str = "application_name=switchyard&tcp_user_timeout=10\
    &keepalives_idle=10&keepalives_interval=5&keepalives_retries=3";

/// A database on one of several servers, of which one takes writes. Shows no password.
#[derive(Clone)]
pub(super) struct Address {
    /// In the order of the URL; at least one.
    pub(super) servers: Vec<Server>,
    shown: String,
}

/// One server of an [`Address`].
#[derive(Clone)]
pub(super) struct Server {
    /// Host and port, for people.
    pub(super) name: String,
    /// Everything that the driver needs.
    pub(super) config: Config,
    /// TLS; not used where the configuration says so.
    pub(super) tls: MakeRustlsConnect,
    /// How long it may take until we are in.
    pub(super) connect_time: Duration,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl FromStr for Address {
    type Err = StoreError;

    fn from_str(url: &str) -> Result<Self, StoreError> {
        let Split { login, hosts, database, parameters, of_hosts, tls } = split(url)?;
        // The hosts and what is common to them, each read by the driver.
        let all = parsed(&format!("{DRIVERS}{hosts}?{}", of_hosts.trim_start_matches('&')))?;
        let mut common = parsed(&format!("{DRIVERS}/{database}?{DEFAULTS}{parameters}"))?;
        login.put_into(&mut common);
        let is_empty = |host: &Host| matches!(host, Host::Tcp(name) if name.is_empty());
        if all.get_hosts().is_empty() || all.get_hosts().iter().any(is_empty) {
            return Err(refused("it names no host"));
        }
        if !common.get_hostaddrs().is_empty() {
            return Err(refused("hostaddr is not supported: name the address as the host"));
        }
        if common.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
            return Err(refused("it asks for a server that only reads, but payments are written"));
        }
        let ports = all.get_ports();
        if ports.len() > 1 && ports.len() != all.get_hosts().len() {
            return Err(refused(
                "it names more or fewer ports than hosts: one for all, or one each",
            ));
        }
        let servers = all.get_hosts().iter().enumerate().map(|(index, host)| {
            // A single port is that of every host, as libpq reads it.
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            server(common.clone(), host, port, &tls)
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let shown = shown(&common, &servers);
        Ok(Self { servers, shown })
    }
}

/// The scheme of what the driver is given to read.
const DRIVERS: &str = "postgres://";

/// The parameters that are known, of the driver and of this module.
const PARAMETERS: [&str; 22] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// Remedy for a character of a password that ends it.
const ESCAPE: &str = "in a user name or a password, write @ as %40, : as %3A, / as %2F, ? as %3F, \
    # as %23, & as %26 and % as %25";

/// The URL in parts that the driver reads, and the parameters that it does not understand.
struct Split<'u> {
    login: Login,
    hosts: &'u str,
    database: String,
    /// Each with `&` in front.
    parameters: String,
    of_hosts: String,
    tls: Tls,
}

/// The user that connects, as the URL has it before the hosts.
#[derive(Default)]
struct Login {
    user: Option<String>,
    password: Option<Vec<u8>>,
}

impl Login {
    /// Reads `USER:PASSWORD`.
    fn read(text: &str) -> Result<Self, StoreError> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(percent_decode_str(password).collect())),
            None => (text, None),
        };
        Ok(Self { user: Some(decoded(user)?).filter(|user| !user.is_empty()), password })
    }

    /// Parameters of the same names count for more.
    fn put_into(self, config: &mut Config) {
        if let (Some(user), None) = (self.user, config.get_user()) {
            config.user(user);
        }
        if let (Some(password), None) = (self.password, config.get_password()) {
            config.password(password);
        }
    }
}

/// The parameters `sslmode` and `sslrootcert`.
#[derive(Default)]
struct Tls {
    mode: Option<String>,
    roots: Option<String>,
}

/// Where the hosts end that follow the scheme: at the first `/`, or at a `?` before it. A password
/// may have a question mark, as libpq reads it; then an `@` follows, and no parameter's name.
fn end_of_hosts(rest: &str) -> usize {
    let end = rest.find('/').unwrap_or(rest.len());
    let begins_parameters = |(place, _): &(usize, &str)| {
        let after = &rest[place + 1..end];
        let name = after.split(['=', '@']).next().unwrap_or_default();
        !after.contains('@') || (after.contains('=') && PARAMETERS.contains(&name))
    };
    rest[..end].match_indices('?').find(begins_parameters).map_or(end, |(place, _)| place)
}

fn split(url: &str) -> Result<Split<'_>, StoreError> {
    let schemes = ["postgres://", "postgresql://"];
    let Some(rest) = schemes.iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return Err(refused("it must be postgres://USER:PASSWORD@HOST:PORT/DATABASE"));
    };
    let (authority, rest) = rest.split_at(end_of_hosts(rest));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Login::read(login)?, hosts),
        None => (Login::default(), authority),
    };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    // It would be a part of a password that was taken for a host.
    if path.contains('@') {
        return Err(refused(&format!("there is an @ behind a /: {ESCAPE}")));
    }
    let database = encoded(&decoded(path.strip_prefix('/').unwrap_or(path))?);
    let (mut parameters, mut of_hosts, mut tls) = (String::new(), String::new(), Tls::default());
    for (number, parameter) in (1..).zip(query.split('&').filter(|it| !it.is_empty())) {
        let (name, text) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = decoded(text)?;
        match name {
            "sslmode" => tls.mode = Some(value),
            "sslrootcert" => tls.roots = Some(value),
            "sslcert" | "sslkey" => {
                return Err(refused("certificates of clients are not supported: use a password"));
            }
            "host" if value.is_empty() => return Err(refused("it names no host")),
            // The driver takes them one by one.
            "host" => {
                value.split(',').for_each(|host| of_hosts += &format!("&host={}", encoded(host)));
            }
            "port" => of_hosts += &format!("&port={}", encoded(&value)),
            name if PARAMETERS.contains(&name) => {
                parameters += &format!("&{name}={}", encoded(&value))
            }
            // Its name may be the rest of a password.
            _ => {
                return Err(refused(&format!("parameter number {number} is not known; {ESCAPE}")));
            }
        }
    }
    Ok(Split { login, hosts, database, parameters, of_hosts, tls })
}

/// A part of a URL without its escapes.
fn decoded(text: &str) -> Result<String, StoreError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| refused("a part of it is not UTF-8"))
}

/// A part of a URL that ends nowhere but where it does.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The configuration that the driver reads from a URL of known parameters.
///
/// Its error names the part that is wrong and never repeats its value.
fn parsed(url: &str) -> Result<Config, StoreError> {
    Config::from_str(url).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        refused(&format!("{}; {ESCAPE}", cause.unwrap_or_else(|| error.to_string())))
    })
}

fn server(mut config: Config, host: &Host, port: u16, tls: &Tls) -> Result<Server, StoreError> {
    let (name, is_near) = match host {
        Host::Tcp(name) => (name.clone(), is_loopback(name)),
        #[cfg(unix)]
        Host::Unix(folder) => (folder.display().to_string(), true),
    };
    // Unless it says so, a password and payments cross no network that could listen in or answer
    // in the server's place.
    let mode = tls.mode.as_deref().unwrap_or(if is_near { "prefer" } else { "verify-full" });
    let (mode, verified) = match mode {
        "disable" => (SslMode::Disable, Verified::Nothing),
        "prefer" => (SslMode::Prefer, Verified::Nothing),
        // A URL that names a certificate wants it to count; libpq reads it so, too.
        "require" if tls.roots.is_none() => (SslMode::Require, Verified::Nothing),
        "require" | "verify-ca" => (SslMode::Require, Verified::Issuer),
        "verify-full" => (SslMode::Require, Verified::IssuerAndName),
        // Another value may be the rest of a password.
        mode => {
            let named = if mode == "allow" { "sslmode=allow" } else { "sslmode" };
            return Err(refused(&format!(
                "{named} is none of disable, prefer, require, verify-ca and verify-full"
            )));
        }
    };
    match host {
        Host::Tcp(name) => config.host(name).ssl_mode(mode),
        // A local socket is not encrypted, as with libpq.
        #[cfg(unix)]
        Host::Unix(folder) => config.host_path(folder).ssl_mode(SslMode::Disable),
    };
    config.port(port);
    let connect_time = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIME);
    let tls = tls::connector(verified, tls.roots.as_deref())?;
    Ok(Server { name: format!("{name}:{port}"), config, tls, connect_time })
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The address without the password and without parameters.
fn shown(config: &Config, servers: &[Server]) -> String {
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    let user = config.get_user().map_or(String::new(), |user| format!("{user}@"));
    let database = config.get_dbname().map_or(String::new(), |database| format!("/{database}"));
    format!("postgres://{user}{}{database}", names.join(","))
}

fn refused(what: &str) -> StoreError {
    StoreError::Engine(format!("the URL of the database cannot be used: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, shown: &str, modes: &[SslMode]) {
        let address = Address::from_str(url).unwrap();
        assert_eq!((address.to_string(), format!("{address:?}")), (shown.into(), shown.into()));
        let read: Vec<_> = address.servers.iter().map(|it| it.config.get_ssl_mode()).collect();
        assert_eq!(read, modes, "{url}");
    }

    #[test]
    fn urls_are_read_as_libpq_reads_them_and_shown_without_their_secrets() {
        use SslMode::{Disable, Prefer, Require};
        let file = "&sslrootcert=/dev/null";
        check("postgres://u:s3cret@localhost/d", "postgres://u@localhost:5432/d", &[Prefer]);
        check("postgresql://u:p?@[::1]:1/d", "postgres://u@::1:1/d", &[Prefer]);
        check("postgres://127.0.0.2", "postgres://127.0.0.2:5432", &[Prefer]);
        check("postgres://h/d?sslmode=disable", "postgres://h:5432/d", &[Disable]);
        check("postgres://h/d?sslmode=require", "postgres://h:5432/d", &[Require]);
        check("postgres:///d?host=/run/pg", "postgres:///run/pg:5432/d", &[Disable]);
        check(
            "postgres:///d?host=a,b&port=6432&sslmode=prefer",
            "postgres://a:6432,b:6432/d",
            &[Prefer, Prefer],
        );
        check(
            "postgres://u@a:1,b:2/d?target_session_attrs=read-write&sslmode=prefer",
            "postgres://u@a:1,b:2/d",
            &[Prefer, Prefer],
        );
        check(
            "postgres://h/d?sslmode=prefer&password=s3cret&connect_timeout=1",
            "postgres://h:5432/d",
            &[Prefer],
        );
        check("postgres://h/d?user=u&password=Sup3r@Tail", "postgres://u@h:5432/d", &[Require]);
        check("postgres://h?user=u&password=Sup3r@Tail", "postgres://u@h:5432", &[Require]);
        let unreadable = format!("postgres://h/d?sslmode=prefer{file}");
        check(&unreadable, "postgres://h:5432/d", &[Prefer]);
    }

    /// User, password, host, port and database of a URL, or that it is refused.
    fn check_login(url: &str, expected: &str) {
        let shown = match Address::from_str(url) {
            Err(error) => {
                let line = error.to_string();
                assert!(!line.contains("Sup3r") && !line.contains("Tail"), "{url}: {line}");
                assert!(!line.contains('\n'), "{url}: {line}");
                "refused".to_owned()
            }
            Ok(address) => {
                let server = &address.servers[0];
                let password = server.config.get_password().unwrap_or_default();
                let password = String::from_utf8_lossy(password);
                let user = server.config.get_user().unwrap_or_default();
                let database = server.config.get_dbname().unwrap_or_default();
                format!("{user} {password} {} {database}", server.name)
            }
        };
        assert_eq!(shown, expected, "{url}");
    }

    #[test]
    fn a_password_is_read_whole_or_refused_and_never_repeated() {
        for (url, expected) in [
            // In a parameter.
            ("postgres://h/d?user=u&password=Sup3r@Tail", "u Sup3r@Tail h:5432 d"),
            ("postgres://h?user=u&password=Sup3r@Tail", "u Sup3r@Tail h:5432 "),
            ("postgres://h:1/d?password=Sup3r:Tail/x?y&user=u", "u Sup3r:Tail/x?y h:1 d"),
            ("postgres://h/d?user=u&password=Sup3r#Tail", "u Sup3r#Tail h:5432 d"),
            ("postgres://h/d?user=u&password=Sup3r%26%25%2FTail", "u Sup3r&%/Tail h:5432 d"),
            ("postgres://h/d?user=u&password=Sup3r=Tail", "u Sup3r=Tail h:5432 d"),
            ("postgres://u:x@h/d?password=Sup3r@Tail", "u Sup3r@Tail h:5432 d"),
            ("postgres://h/d?user=u&password=Sup3r&Tail", "refused"),
            ("postgres://h/d?user=u&password=Sup3r&Tail=x", "refused"),
            // Before the host.
            ("postgres://u:Sup3r@Tail@h/d", "u Sup3r@Tail h:5432 d"),
            ("postgres://u:Sup3r:Tail@h/d", "u Sup3r:Tail h:5432 d"),
            ("postgres://u:Sup3r?Tail@h/d", "u Sup3r?Tail h:5432 d"),
            ("postgres://u:Sup3r#Tail@h/d", "u Sup3r#Tail h:5432 d"),
            ("postgres://u:Sup3r%Tail@h/d", "u Sup3r%Tail h:5432 d"),
            ("postgres://u:Sup3r%40%2F%3ATail@h:1/d", "u Sup3r@/:Tail h:1 d"),
            ("postgres://u:Sup3r/Tail@h/d", "refused"),
            ("postgres://u:1/Sup3rTail@h/d", "refused"),
            ("postgres://u:Sup3r/Tail?x@h/d", "refused"),
            ("postgres://u:Sup3r@Tail", "u Sup3r Tail:5432 "),
            ("postgres://u:Sup3r Tail@h/d", "u Sup3r Tail h:5432 d"),
            ("postgres://u:@h/d", "u  h:5432 d"),
            // No password.
            ("postgres://u@h,i:2/d", "u  h:5432 d"),
            ("postgres://u@[::1]/d", "u  ::1:5432 d"),
            ("postgres://[fe80::1]:2/d?user=u", "u  fe80::1:2 d"),
            ("postgres://u@%2Frun%2Fpg:2/d", "u  /run/pg:2 d"),
            ("postgres://u@/d?host=/run/pg,/other", "u  /run/pg:5432 d"),
            ("postgres://u@h/d%2Fe", "u  h:5432 d/e"),
            ("postgres://u@h/?dbname=d", "u  h:5432 d"),
            ("postgres://", "refused"),
            ("postgres://,/d", "refused"),
            ("postgres://u@h,,i/d", "refused"),
            ("postgres://u@[::1/d", "refused"),
            ("postgres://u@h:Sup3r/d", "refused"),
            ("postgres://u@h/d?sslmode=Sup3r", "refused"),
            ("postgres://u@h/d?Sup3r=1", "refused"),
            ("postgres://u@h/d?connect_timeout=Sup3r", "refused"),
            ("postgres://u@h/d%ff", "refused"),
        ] {
            check_login(url, expected);
        }
    }

    #[test]
    fn what_the_url_says_counts_and_the_rest_has_defaults() {
        let server = |url| Address::from_str(url).unwrap().servers.remove(0);
        let plain = server("postgres://localhost/d");
        assert_eq!(plain.config.get_application_name(), Some("switchyard"));
        assert_eq!(plain.config.get_keepalives_idle(), Duration::from_secs(10));
        assert_eq!(plain.connect_time, CONNECT_TIME);
        let said = server("postgres://localhost/d?application_name=me&connect_timeout=7");
        assert_eq!(said.config.get_application_name(), Some("me"));
        assert_eq!(said.connect_time, Duration::from_secs(7));
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_one_line_without_the_password() {
        for (url, what) in [
            ("mysql://u:s3cret@h/d", "must be postgres://"),
            ("postgres://u:s3cret@/d", "names no host"),
            ("postgres://u:s3cret@h:x/d", "port"),
            ("postgres://u:s3cret@/d?host", "names no host"),
            ("postgres://u:s3cret@/d?host=a,b,c&port=1,2", "more or fewer ports than hosts"),
            ("postgres://u:s3cret@h/d?sslmode=allow", "sslmode=allow is none of"),
            ("postgres://u:s3cret@h/d?sslcert=x", "certificates of clients"),
            ("postgres://u:s3cret@h/d?colour=red", "parameter number 1 is not known"),
            ("postgres://u:s3cret@h/d?target_session_attrs=read-only", "only reads"),
            ("postgres://u:s3cret@h/d?hostaddr=127.0.0.1", "hostaddr"),
            ("postgres://u:s3cret@h/d?sslrootcert=/nowhere&sslmode=verify-ca", "/nowhere"),
        ] {
            let line = Address::from_str(url).unwrap_err().to_string();
            assert!(line.contains(what), "{url}: {line}");
            assert!(!line.contains("s3cret") && !line.contains('\n'), "{line}");
        }
    }
}
