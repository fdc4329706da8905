use std::path::PathBuf;
use std::time::Duration;

use domain::currency::Currency;
use domain::delivery::Schedule;
use domain::token::Permission;
use rust_decimal::Decimal;
use service::env::Delivering;

use super::*;
use crate::edge::Limits;
use crate::keyfile::KEY_BYTES;

const SECRET: &str = "a-secret-of-the-tests";

fn read_with(line: &str, variables: &[(&str, &str)]) -> Result<Config, Refusal> {
    let arguments = std::iter::once("switchyard").chain(line.split_whitespace());
    let environment = variables.iter().map(|(name, value)| (name.into(), value.into()));
    read(arguments.map(OsString::from), &environment.collect())
}

fn config(line: &str) -> Config {
    read_with(line, &[]).unwrap_or_else(|refusal| panic!("{line}: {refusal:?}"))
}

/// The printed text, without colours.
fn refusal(line: &str, variables: &[(&str, &str)]) -> String {
    match read_with(line, variables) {
        Ok(config) => panic!("{line}: {config:?}"),
        Err(Refusal::Usage(error)) => error.render().to_string(),
        Err(Refusal::Config(error)) => error.to_string(),
    }
}

fn serve(line: &str) -> Serve {
    match config(line).command {
        Command::Serve(serve) => serve,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_definition_is_sound() {
    CommandLine::command().debug_assert();
}

#[test]
fn a_client_takes_what_a_first_start_prints() {
    let read = |line: &str, variables: &[(&str, &str)]| {
        let config = read_with(line, variables).unwrap_or_else(|it| panic!("{line}: {it:?}"));
        (config.api.to_string(), config.credentials.map(|it| it.id))
    };
    let user = ("SY_USER", "printed:a-secret-of-sixteen-or-more");
    let url = ("SY", "http://127.0.0.1:9000/2025-10-13");
    for command in ["listen --forward-to http://localhost:3000", "trigger payment.failed"] {
        let printed = ("http://127.0.0.1:9000".to_owned(), Some("printed".to_owned()));
        assert_eq!(read(command, &[url, user]), printed);
        let usual = ("http://127.0.0.1:8080".to_owned(), None);
        assert_eq!(read(command, &[]), usual);
        let given = format!("{command} --api https://pay.example.com/2025-10-13/");
        assert_eq!(read(&given, &[url]).0, "https://pay.example.com");
        let own = [user, (CLIENT_ID_VARIABLE, "own"), (CLIENT_SECRET_VARIABLE, SECRET)];
        assert_eq!(read(command, &own).1.as_deref(), Some("own"));
        assert!(refusal(command, &[("SY", "http://a/b")]).starts_with("SY: must be http"));
        assert!(refusal(command, &[("SY_USER", "no colon")]).starts_with("SY_USER must be"));
    }
    // Others have nothing to do with these variables.
    assert!(matches!(config("").command, Command::Serve(_)));
    assert!(read_with("serve", &[("SY", "nonsense"), ("SY_USER", "x")]).is_ok());
    assert!(refusal("trigger", &[]).contains("<EVENT>"));
    let both = "listen --forward-to http://localhost:3000 --approve --reject";
    assert!(refusal(both, &[]).contains("cannot be used with"));
}

#[test]
fn without_a_command_it_serves() {
    for line in ["", "serve", "--log-format json", "--database-url sqlite://a.db"] {
        let serve = serve(line);
        assert_eq!(serve.listen.to_string(), "127.0.0.1:8080", "{line}");
        assert_eq!(serve.quote_lifetime_seconds, 300, "{line}");
        assert_eq!(serve.uma_domain_at(8080).as_str(), "localhost:8080", "{line}");
        let delivering = serve.webhooks.delivering();
        assert_eq!(delivering.schedule, Schedule::USUAL, "{line}");
        assert_eq!(delivering.within, Delivering::WITHIN, "{line}");
    }
    assert_eq!(serve("--listen [::1]:80 --uma-domain Pay.Example.com").listen.port, 80);
    let given = serve("serve --uma-domain Pay.Example.com").uma_domain_at(1);
    assert_eq!(given.as_str(), "pay.example.com");
    assert!(matches!(config("--database-url sqlite://a.db verify").command, Command::Verify(_)));
    assert!(refusal("frobnicate", &[]).contains("unrecognized subcommand 'frobnicate'"));
    assert!(refusal("--lisen x", &[]).contains("a similar argument exists: '--listen'"));
}

#[test]
fn questions_are_answered_on_standard_output() {
    for line in ["--help", "-h", "--version", "help verify", "token create --help", "verify -h"] {
        match read_with(line, &[]) {
            Err(Refusal::Usage(error)) => assert!(!error.use_stderr(), "{line}: {error}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    for line in ["token", "verify --jsno", "--listen nonsense"] {
        match read_with(line, &[]) {
            Err(Refusal::Usage(error)) => assert_eq!(error.exit_code(), 2, "{line}: {error}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn help_shows_no_value_of_the_environment() {
    fn check(command: &clap::Command) {
        for option in command.get_arguments().filter(|option| option.get_env().is_some()) {
            assert!(option.is_hide_env_values_set(), "{}", option.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    check(&definition());
}

#[test]
fn every_command_has_an_example() {
    fn check(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("switchyard"), "{}", command.get_name());
        command.get_subcommands().for_each(check);
    }
    check(&CommandLine::command());
}

#[test]
fn the_operators_commands() {
    let platform = "PlatformConfig:00000000-0000-7000-8000-000000000001";
    let token = "Token:00000000-0000-7000-8000-000000000002";

    let line = "platform create --name Example --uma-domain pay.example.com --live --regulated";
    let Command::Platform(PlatformCommand::Create(create)) = config(line).command else {
        panic!("{line}")
    };
    assert!(create.live && create.regulated);
    assert!(config("verify --json").json && config("--json token list").json);
    assert!(!config("verify").json);

    let line = format!(
        "platform set-pricing --platform {platform} --from usd --spread 0.005 --fixed-fee 200"
    );
    let Command::Platform(PlatformCommand::SetPricing(pricing)) = config(&line).command else {
        panic!("{line}")
    };
    assert_eq!(pricing.from.map(Currency::code), Some("USD"));
    assert_eq!(pricing.to, None);
    assert_eq!(pricing.spread, Some(Decimal::new(5, 3)));
    assert_eq!(pricing.fixed_fee, Some(200));

    let line = format!("token create --platform {platform} --name x --permissions VIEW,manage");
    let Command::Token(TokenCommand::Create(create)) = config(&line).command else {
        panic!("{line}")
    };
    let permissions: Vec<_> = create.permissions().iter().collect();
    assert_eq!(permissions, [Permission::View, Permission::Manage]);
    let Command::Token(TokenCommand::Revoke(revoke)) =
        config(&format!("token revoke {token}")).command
    else {
        panic!("revoke")
    };
    assert_eq!(revoke.id.to_string(), token);
}

#[test]
fn wrong_options_are_refused() {
    let pricing =
        "platform set-pricing --platform PlatformConfig:00000000-0000-7000-8000-000000000001";
    let check = |line: &str, part: &str| {
        let text = refusal(line, &[]);
        assert!(text.contains(part), "{line}: {text}");
    };
    check("--quote-lifetime-seconds 59", "59 is not in 60..=900");
    check("--quote-lifetime-seconds 901", "901 is not in 60..=900");
    check("--idempotency-days 29", "29 is not in 30..=3650");
    check("--webhook-timeout-seconds 31", "31 is not in 1..=30");
    check("--webhook-retry-first-seconds 0", "0 is not in 1..=1800");
    check("--webhook-retry-longest-seconds 1801", "1801 is not in 1..=1800");
    check("--webhook-retry-days 31", "31 is not in 1..=30");
    check("--listen 8080", "must be a host and a port");
    check("--listen ::1:8080", "must be a host and a port");
    check("--listen :8080", "must be a host and a port");
    check("--listen localhost:80800", "must be a host and a port");
    check("--uma-domain a_b", "'a_b' is not a domain name");
    check("token revoke Quote:1", "'Quote:1'");
    check(pricing, "--spread");
    check(&format!("{pricing} --spread 1"), "from 0 to below 1");
    check(&format!("{pricing} --spread -0.1"), "from 0 to below 1");
    check(&format!("{pricing} --fixed-fee 1.5"), "whole number");
    check(&format!("{pricing} --fixed-fee -1"), "fixed part from 0");
    check(&format!("{pricing} --variable-fee-rate 1"), "below 1");
    check(&format!("{pricing} --spread 0 --from XXX"), "must be a code of ISO 4217");
    check("token create --name x --permissions VIEW", "--platform");
    check("platform create --name x", "--uma-domain");
}

#[test]
fn database_urls() {
    let check = |url: &str, expected: Result<&str, &str>| match (Database::parse(url), expected) {
        (Ok(database), Ok(expected)) => assert_eq!(database.to_string(), expected, "{url}"),
        (Err(error), Err(part)) => assert!(error.0.contains(part), "{url}: {error}"),
        (other, _) => panic!("{url}: {other:?}"),
    };
    check("sqlite://switchyard.db", Ok("switchyard.db"));
    check("sqlite://data/live.db", Ok("data/live.db"));
    check("sqlite://./live.db", Ok("./live.db"));
    check("sqlite:///var/lib/live.db", Ok("/var/lib/live.db"));
    check("", Err("must be sqlite://FILE"));
    check("switchyard.db", Err("must be sqlite://FILE"));
    check("sqlite:switchyard.db", Err("must be sqlite://FILE"));
    check("sqlite://", Err("names no file"));
    check("sqlite:///", Err("names no file"));
    check("sqlite://data/", Err("names no file"));
    check("sqlite://:memory:", Err("memory forgets"));
    check("sqlite://live.db?mode=ro", Err("plain path"));
    check("sqlite://a%20b.db", Err("plain path"));
    check("mysql://root@localhost/live", Err("unknown scheme"));
    let shown = "postgres://me@localhost:5432/live";
    check("postgres://me:hunter2@localhost/live", Ok(shown));
    check("postgresql://me@localhost:5432/live?sslmode=disable", Ok(shown));
    check("postgres://me:hunter2@/live", Err("names no host"));
    check("postgres://localhost/live?colour=red", Err("parameter number 1 is not known"));
}

#[test]
fn a_password_in_a_database_url_is_not_repeated() {
    for url in ["postgres://me:hunter2@host/live?x=1", "hunter2", "hunter2://x"] {
        let text = refusal(&format!("--database-url {url}"), &[]);
        assert!(!text.contains("hunter2") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn the_key_is_in_one_place() {
    let key = "ab".repeat(KEY_BYTES);
    let file = |path: &str| KeySource::File(PathBuf::from(path));
    assert_eq!(config("").key, file("switchyard.db.key"));
    assert_eq!(config("--database-url sqlite:///d/live.db").key, file("/d/live.db.key"));
    assert_eq!(config("--database-url postgres://localhost/live").key, file("switchyard.key"));
    assert_eq!(config("verify --key-file k").key, file("k"));
    let given = read_with("", &[(SECRET_KEY_VARIABLE, &key)]).unwrap();
    assert_eq!(given.key, KeySource::Given(SecretKey([0xab; KEY_BYTES])));
    let unset = read_with("", &[(SECRET_KEY_VARIABLE, "")]).unwrap();
    assert_eq!(unset.key, file("switchyard.db.key"));
    let text = refusal("--key-file k", &[(SECRET_KEY_VARIABLE, &key)]);
    assert!(text.contains("not both"), "{text}");
    let text = refusal("", &[(SECRET_KEY_VARIABLE, "hunter2")]);
    assert!(text.contains("64 hexadecimal digits") && !text.contains("hunter2"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn credentials_are_both_or_neither() {
    let check = |id: Option<&str>, secret: Option<&str>, expected: Result<bool, &str>| {
        let pair = [(CLIENT_ID_VARIABLE, id), (CLIENT_SECRET_VARIABLE, secret)];
        let set: Vec<_> =
            pair.iter().filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        match (read_with("", &set), expected) {
            (Ok(config), Ok(given)) => assert_eq!(config.credentials.is_some(), given, "{id:?}"),
            (Err(Refusal::Config(error)), Err(part)) => {
                assert!(error.0.contains(part), "{id:?}: {error}");
                assert!(!error.0.contains('\n') && !error.0.contains(SECRET), "{error}");
            }
            (other, _) => panic!("{id:?}: {other:?}"),
        }
    };
    let long = "x".repeat(129);
    check(None, None, Ok(false));
    check(Some(""), Some(""), Ok(false));
    check(Some("my-id_1"), Some(SECRET), Ok(true));
    check(Some("my-id"), Some("sixteen:letters!"), Ok(true));
    check(Some("my-id"), None, Err("without SWITCHYARD_CLIENT_SECRET"));
    check(None, Some(SECRET), Err("without SWITCHYARD_CLIENT_ID"));
    check(Some("my-id"), Some(""), Err("set both or neither"));
    check(Some("a:b"), Some(SECRET), Err("A-Z a-z 0-9"));
    check(Some("a b"), Some(SECRET), Err("A-Z a-z 0-9"));
    check(Some(&long), Some(SECRET), Err("1 to 128"));
    check(Some("my-id"), Some("fifteen-letters"), Err("16 to 512"));
    check(Some("my-id"), Some("sixteen-letters\n"), Err("control characters"));
}

#[test]
fn secrets_are_not_printed() {
    let variables = [
        (CLIENT_ID_VARIABLE, "my-id"),
        (CLIENT_SECRET_VARIABLE, SECRET),
        (SECRET_KEY_VARIABLE, &"ab".repeat(KEY_BYTES)),
    ];
    let shown = format!("{:?}", read_with("", &variables).unwrap());
    assert!(shown.contains("my-id") && shown.contains("SecretKey(..)"), "{shown}");
    assert!(
        !shown.contains(SECRET) && !shown.contains("abab") && !shown.contains("171"),
        "{shown}"
    );
}

#[test]
fn links_begin_with_an_origin() {
    for (given, kept) in [
        ("https://pay.example.com", "https://pay.example.com"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
    ] {
        let url = serve(&format!("--public-url {given}")).public_url;
        assert_eq!(url.map(|url| url.to_string()).as_deref(), Some(kept));
    }
    assert_eq!(serve("").public_url, None);
    for wrong in ["pay.example.com", "ftp://x", "https://a@b", "https://x/y", "https://", "http:/x"]
    {
        let line = format!("--public-url {wrong}");
        assert!(refusal(&line, &[]).contains("must be http:// or https://"), "{wrong}");
    }
}

#[test]
fn other_servers_reach_this_one_where_it_listens_unless_something_else_is_said() {
    let address_of = |line: &str| {
        let options = serve(line);
        options.peer_address_at(Some(&options.listen))
    };
    for (line, address) in [
        ("", Some("http://127.0.0.1:8080")),
        ("--listen [::1]:9000", Some("http://[::1]:9000")),
        ("--listen pay-1.internal:9000", Some("http://pay-1.internal:9000")),
        ("--listen 0.0.0.0:9000", None),
        ("--listen [::]:9000", None),
        ("--listen 0.0.0.0:9000 --peer-url http://10.0.0.5:9000/", Some("http://10.0.0.5:9000")),
        ("--peer-url none", None),
    ] {
        assert_eq!(address_of(line).as_deref(), address, "{line}");
    }
    assert!(serve("").forwards() && serve("--listen 0.0.0.0:9000").forwards());
    assert!(!serve("--peer-url none").forwards());
    for wrong in ["https://10.0.0.5", "10.0.0.5:8080", "http://a:b@10.0.0.5", "http://10.0.0.5/x"] {
        let line = format!("--peer-url {wrong}");
        assert!(refusal(&line, &[]).contains("must be http:// with a host"), "{wrong}");
    }
}

#[test]
fn the_operator_decides_about_customers() {
    let id = "Customer:01a1fda4-87d5-7000-b9c0-a990afab0000";
    let command = config(&format!("customer approve {id}")).command;
    let Command::Customer(CustomerCommand::Approve(options)) = command else {
        panic!("{command:?}");
    };
    assert_eq!(options.id.to_string(), id);
    assert!(refusal("customer reject Token:x", &[]).contains("Customer:<uuid>"));
}

#[test]
fn the_operators_endpoints_are_not_where_others_reach_the_api() {
    let check = |line: &str, expected: &str| {
        let admin = serve(line).connections.admin_address();
        assert_eq!(admin.to_string(), expected, "{line}");
    };
    check("", "127.0.0.1:9464");
    check("--listen 0.0.0.0:8080", "127.0.0.1:9464");
    check("--listen 0.0.0.0:8080 --admin-listen 10.0.0.5:9000", "10.0.0.5:9000");
    check("--admin-listen [::1]:9000", "[::1]:9000");
}

#[test]
fn limits_of_connections_can_be_set() {
    let limits = |line: &str| serve(line).connections.within(Limits::default());
    let usual = limits("");
    assert_eq!(usual.idle_timeout, Duration::from_secs(75));
    assert_eq!((usual.connections_of_address_max, usual.heads_of_address_max), (1_024, 64));
    assert!(!usual.trusted.contains("127.0.0.1".parse().unwrap()));
    let set = limits(
        "--idle-timeout-seconds 30 --address-connections-max 5 --address-heads-max 2 \
         --trust-forwarded-from 10.0.0.0/8,::1",
    );
    assert_eq!(set.idle_timeout, Duration::from_secs(30));
    assert_eq!((set.connections_of_address_max, set.heads_of_address_max), (5, 2));
    for (address, is_trusted) in [("10.1.2.3", true), ("::1", true), ("11.1.2.3", false)] {
        assert_eq!(set.trusted.contains(address.parse().unwrap()), is_trusted, "{address}");
    }
    assert!(refusal("--trust-forwarded-from nonsense", &[]).contains("such as 10.0.0.0/8"));
    assert!(refusal("--idle-timeout-seconds 1", &[]).contains("not in 10..=3600"));
}

#[test]
fn a_variable_that_no_one_reads_is_refused_and_the_nearest_one_named() {
    let unknown = |name: &str| refusal("", &[(name, "x")]);
    for (slip, meant) in [
        ("SWITCHYARD_LISEN", "SWITCHYARD_LISTEN"),
        ("SWITCHYARD_DATABSE_URL", "SWITCHYARD_DATABASE_URL"),
        ("SWITCHYARD_SECRETKEY", "SWITCHYARD_SECRET_KEY"),
        ("SWITCHYARD_CLIENT_SECRETS", "SWITCHYARD_CLIENT_SECRET"),
        ("SWITCHYARD_LOGS", "SWITCHYARD_LOG"),
        ("SWITCHYARD_ALLOW_PRIVATE_WEBHOOK", "SWITCHYARD_ALLOW_PRIVATE_WEBHOOKS"),
    ] {
        let line = unknown(slip);
        assert!(line.contains(slip) && line.ends_with(&format!("{meant}?")), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
    assert!(unknown("SWITCHYARD_XYZZY").contains("unset it"));
    let both = refusal("", &[("SWITCHYARD_LISEN", "x"), ("SWITCHYARD_XYZZY", "y")]);
    assert!(both.contains("SWITCHYARD_LISEN") && both.contains("SWITCHYARD_XYZZY"), "{both}");
    // A command takes what others read, and what is not this program's.
    let others = [("SWITCHYARD_LISTEN", "127.0.0.1:1"), ("SWITCH", "1"), ("PATH", "/bin")];
    read_with("verify", &others).unwrap();
    // Kubernetes sets these for a service that is called switchyard.
    let links = [
        ("SWITCHYARD_SERVICE_HOST", "10.0.0.1"),
        ("SWITCHYARD_SERVICE_PORT_HTTP", "8080"),
        ("SWITCHYARD_PORT", "tcp://10.0.0.1:8080"),
        ("SWITCHYARD_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ];
    read_with("", &links).unwrap();
    assert!(refusal("", &[("SWITCHYARD_PORT", "9000")]).contains("SWITCHYARD_PORT"));
}

#[test]
fn a_command_shows_the_options_that_it_reads() {
    for (command, shown) in [("listen", "--api"), ("demo", "--keep"), ("completions bash", "SHELL")]
    {
        let Err(Refusal::Usage(error)) = read_with(&format!("{command} --help"), &[]) else {
            panic!("{command}")
        };
        let help = error.render().to_string();
        assert!(help.contains(shown) && help.contains("--json"), "{help}");
        assert!(!help.contains("--database-url") && !help.contains("--key-file"), "{help}");
    }
    let Err(Refusal::Usage(error)) = read_with("verify --help", &[]) else { panic!("verify") };
    assert!(error.render().to_string().contains("--database-url"));
}

#[test]
fn a_server_is_local_unless_an_option_says_otherwise() {
    for (line, allows_private, bytes) in [
        ("", false, None),
        ("--allow-private-webhooks", true, None),
        ("--webhook-answer-bytes 100", false, Some(100)),
    ] {
        let delivering = serve(line).webhooks.delivering();
        let found = (delivering.allows_private, delivering.answer_bytes_shown);
        assert_eq!(found, (allows_private, bytes), "{line}");
    }
    for (line, is_local) in [
        ("", true),
        ("--public-url http://localhost:9000 --uma-domain localhost:9000", true),
        ("--public-url https://pay.example.com", false),
        ("--uma-domain pay.example.com", false),
        ("--uma-domain switchyard.internal", false),
        ("--trust-forwarded-from 127.0.0.1", false),
    ] {
        assert_eq!(serve(line).is_for_this_machine(), is_local, "{line}");
    }
    for (url, is_local) in [
        ("http://localhost:8080", true),
        ("http://127.0.0.2", true),
        ("http://[::1]:8080", true),
        ("https://pay.example.com", false),
        ("http://10.0.0.1", false),
        ("http://localhost.example.com", false),
    ] {
        assert_eq!(url.parse::<PublicUrl>().unwrap().is_local(), is_local, "{url}");
    }
}

#[test]
fn an_age_is_a_number_and_a_unit() {
    let age = |text: &str| super::checks::parse_age(text).ok().map(|age| age.as_secs());
    let read = [("90s", 90), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800)];
    for (text, seconds) in read {
        assert_eq!(age(text), Some(seconds), "{text}");
    }
    for text in ["", "h", "24", "-1h", "+1h", "0s", "1.5h", "24 h", "3651d", "1w", "99999999999d"] {
        assert_eq!(age(text), None, "{text}");
    }
}
