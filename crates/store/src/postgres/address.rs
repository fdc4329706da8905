//! The address of a PostgreSQL database: a `postgres://` URL as libpq takes it.
//!
//! The driver reads it, but for two things: it knows three of libpq's six `sslmode`s, and it stays
//! with the first host that accepts a connection, even if that host never answers. So each host
//! gets a configuration of its own.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
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
        let Split { user, hosts, path, parameters, of_hosts, tls } = split(url)?;
        // The hosts and what is common to them, each read by the driver.
        let all = parsed(&format!("{user}{hosts}{path}?{}", of_hosts.trim_start_matches('&')))?;
        let common = parsed(&format!("{user}{path}?{DEFAULTS}{parameters}"))?;
        if all.get_hosts().is_empty() {
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

/// The URL in parts that the driver reads, and the parameters that it does not understand.
struct Split<'u> {
    /// The scheme, and who connects.
    user: &'u str,
    hosts: &'u str,
    /// The database.
    path: &'u str,
    /// Each with `&` in front.
    parameters: String,
    of_hosts: String,
    tls: Tls,
}

/// The parameters `sslmode` and `sslrootcert`.
#[derive(Default)]
struct Tls {
    mode: Option<String>,
    roots: Option<String>,
}

fn split(url: &str) -> Result<Split<'_>, StoreError> {
    let schemes = ["postgres://", "postgresql://"];
    let Some(scheme) = schemes.iter().find(|scheme| url.starts_with(**scheme)) else {
        return Err(refused("it must be postgres://USER:PASSWORD@HOST:PORT/DATABASE"));
    };
    // A password may have a question mark, as libpq reads it.
    let (user, rest) = url.split_at(url.find('@').map_or(scheme.len(), |at| at + 1));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (mut parameters, mut of_hosts, mut tls) = (String::new(), String::new(), Tls::default());
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, text) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = || Some(percent_decode_str(text).decode_utf8_lossy().into_owned());
        match name {
            "sslmode" => tls.mode = value(),
            "sslrootcert" => tls.roots = value(),
            "sslcert" | "sslkey" => {
                return Err(refused("certificates of clients are not supported: use a password"));
            }
            "host" if text.is_empty() => return Err(refused("it names no host")),
            // The driver takes them one by one.
            "host" => text.split(',').for_each(|host| of_hosts += &format!("&host={host}")),
            "port" => of_hosts += &format!("&{parameter}"),
            _ => parameters += &format!("&{parameter}"),
        }
    }
    Ok(Split { user, hosts, path, parameters, of_hosts, tls })
}

/// The configuration that the driver reads from a URL.
///
/// Its error names the part that is wrong and never repeats the URL.
fn parsed(url: &str) -> Result<Config, StoreError> {
    Config::from_str(url).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        refused(&cause.unwrap_or_else(|| error.to_string()))
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
        _ => {
            return Err(refused(&format!(
                "sslmode={mode} is none of disable, prefer, require, verify-ca and verify-full"
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
        let unreadable = format!("postgres://h/d?sslmode=prefer{file}");
        check(&unreadable, "postgres://h:5432/d", &[Prefer]);
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
            ("postgres://u:s3cret@h/d?colour=red", "unknown option `colour`"),
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
