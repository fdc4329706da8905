//! The server behind a real nginx and a real Caddy: with the files of docs/proxy, and with one that
//! says as little as it can.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation, Instance};
use testbed::receiver::{Answer, Receiver};
use testbed::recorder::Api;
use testbed::wait::until;
use testbed::{packages, ports};

/// nginx as most people begin with it: it speaks HTTP/1.0, names the upstream as the host, and adds
/// no header.
const BARE: &str = "events { }\nhttp { server { listen 80; location / { \
    proxy_pass http://127.0.0.1:8080; } } }";

/// The name in the files of docs/proxy.
const NAME: &str = "pay.example.com";

/// Whatever should happen has happened by then, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the log begins to say that the server is not local.
const NOT_LOCAL: &str = "not only this machine reaches this server";

/// A proxy and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// nginx with the file that users take.
    Nginx,
    /// nginx with [`BARE`].
    BareNginx,
    /// Caddy with the file that users take.
    Caddy,
}

/// A running proxy, with its files.
struct Proxy {
    kind: Kind,
    process: Child,
    http: u16,
    https: u16,
    _folder: TempDir,
}

impl Proxy {
    /// Runs a file with other ports and paths than it has.
    fn start(kind: Kind, upstream: u16) -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let [http, https] = [(); 2].map(|()| ports::free().unwrap());
        let certificate = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
        fs::write(path("cert.pem"), certificate.cert.pem()).unwrap();
        fs::write(path("cert.key"), certificate.signing_key.serialize_pem()).unwrap();
        let upstream = format!("127.0.0.1:{upstream}");
        let (text, mut command) = match kind {
            Kind::Nginx => {
                let file = include_str!("../../../docs/proxy/nginx.conf");
                nginx(&file.replace("127.0.0.1:8080", &upstream), (http, https), path)
            }
            Kind::BareNginx => {
                nginx(&BARE.replace("127.0.0.1:8080", &upstream), (http, https), path)
            }
            Kind::Caddy => {
                let file = include_str!("../../../docs/proxy/Caddyfile");
                caddy(&file.replace("127.0.0.1:8080", &upstream), (http, https), path)
            }
        };
        let process = command.stdin(Stdio::null()).spawn().unwrap();
        let mut proxy = Self { kind, process, http, https, _folder: folder };
        until("the proxy", PATIENCE, || {
            assert!(proxy.process.try_wait()?.is_none(), "{kind:?} does not take:\n{text}");
            Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, http)).ok())
        })
        .unwrap();
        proxy
    }
}

/// nginx with a file: the file as it is run, and the command.
fn nginx(
    file: &str,
    (http, https): (u16, u16),
    path: impl Fn(&str) -> String,
) -> (String, Command) {
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {};\n", path(kind)));
    let mut text = file.to_owned();
    let mut put = |from: &str, to: &str| text = text.replace(from, to);
    put("listen [::]:80;", "");
    put("listen [::]:443 ssl;", "");
    put("listen 80;", &format!("listen 127.0.0.1:{http};"));
    put("listen 443 ssl;", &format!("listen 127.0.0.1:{https} ssl;"));
    put("/etc/nginx/pay.example.com.pem", &path("cert.pem"));
    put("/etc/nginx/pay.example.com.key", &path("cert.key"));
    put("/var/log/nginx/switchyard.log", &path("access.log"));
    put("http {", &format!("http {{\n{}", folders.concat()));
    fs::write(path("nginx.conf"), &text).unwrap();
    let mut settings = format!("daemon off; pid {};", path("nginx.pid"));
    if geteuid().is_root() {
        settings += " user root;";
    }
    let mut command = Command::new(packages::nginx().unwrap());
    command.args(["-p", &path(""), "-c", &path("nginx.conf"), "-e", &path("error.log")]);
    command.args(["-g", &settings]);
    (text, command)
}

/// The same of Caddy. It asks no authority for a certificate, and keeps its files to itself.
fn caddy(
    file: &str,
    (http, https): (u16, u16),
    path: impl Fn(&str) -> String,
) -> (String, Command) {
    let (certificate, key) = (path("cert.pem"), path("cert.key"));
    let site = format!("{NAME} {{\n\ttls {certificate} {key}\n");
    let text = format!(
        "{{\n\tadmin off\n\tskip_install_trust\n\tdefault_bind 127.0.0.1\n\thttp_port {http}\n\t\
         https_port {https}\n}}\n{}",
        file.replace(&format!("{NAME} {{\n"), &site)
    );
    fs::write(path("Caddyfile"), &text).unwrap();
    let mut command = Command::new(packages::caddy().unwrap());
    command.args(["run", "--adapter", "caddyfile", "--config", &path("Caddyfile")]);
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        command.env(name, path(""));
    }
    command.stderr(Stdio::null());
    (text, command)
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its workers end with it only if it is asked.
        let id = Pid::from_raw(i32::try_from(self.process.id()).unwrap());
        let _ = kill(id, Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

struct Server {
    instance: Instance,
    port: u16,
    folder: TempDir,
    client: Client,
}

impl Server {
    async fn start(variables: &[(&str, &str)]) -> Self {
        adapters::outbound::choose_cryptography();
        let folder = TempDir::new().unwrap();
        let database = format!("sqlite://{}", folder.path().join("proxied.db").display());
        let installation = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database)
            .logging_to(&folder.path().join("log"));
        let with = |all: Installation, (name, value): &(&str, &str)| all.with(name, value);
        let installation = variables.iter().fold(installation, with);
        let port = ports::free().unwrap();
        let instance = installation.start_at(port).unwrap();
        Api::new(&[instance.base()]).unwrap().ready().await.unwrap();
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { instance, port, folder, client }
    }

    /// A client of a proxy, under the name that its file has.
    fn client_of(proxy: &Proxy) -> Client {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy.https));
        Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .tls_danger_accept_invalid_certs(true)
            .resolve(NAME, address)
            .build()
            .unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.instance.base())
    }

    async fn status(&self, path: &str) -> u16 {
        self.client.get(self.url(path)).send().await.unwrap().status().as_u16()
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.request(method, self.url(&format!("/2025-10-13{path}")));
        let request = request.basic_auth(CLIENT_ID, Some(CLIENT_SECRET)).json(body);
        in_json(request.send().await.unwrap()).await
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

async fn in_json(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, response.json().await.unwrap())
}

/// Asks for the health through a proxy, by whichever of its ports leads there.
async fn healthy_through(proxy: &Proxy) {
    let (client, url) = match proxy.kind {
        Kind::BareNginx => (
            Client::builder().no_proxy().build().unwrap(),
            format!("http://127.0.0.1:{}/healthz", proxy.http),
        ),
        Kind::Nginx | Kind::Caddy => (Server::client_of(proxy), format!("https://{NAME}/healthz")),
    };
    assert_eq!(client.get(url).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_first_request_through_a_proxy_ends_that_the_server_is_local() {
    for kind in [Kind::Nginx, Kind::BareNginx, Kind::Caddy] {
        let server = Server::start(&[]).await;
        let proxy = Proxy::start(kind, server.port);
        let receiver = Receiver::start().unwrap();
        receiver.answer(Answer::status(202).body("hello"));
        let endpoint = json!({ "webhookEndpoint": receiver.url("/hooks") });
        assert_eq!(server.ask(Method::PATCH, "/config", &endpoint).await.0, 200);
        let test = async || server.ask(Method::POST, "/sandbox/webhooks/test", &json!({})).await;

        let (status, tested) = test().await;
        assert_eq!((status, &tested["response_body"]), (200, &json!("hello")), "{tested}");
        assert_eq!(server.status("/metrics").await, 200);
        let connections = receiver.connections();

        healthy_through(&proxy).await;
        assert_eq!(server.status("/metrics").await, 404);
        let (status, refused) = test().await;
        assert_eq!((status, &refused["code"]), (400, &json!("WEBHOOK_DELIVERY_ERROR")));
        healthy_through(&proxy).await;
        assert_eq!(server.log().matches(NOT_LOCAL).count(), 1, "{}", server.log());
        assert_eq!(receiver.connections(), connections, "the endpoint was reached");
    }
}

#[tokio::test]
async fn the_documented_nginx_serves_a_server_that_knows_of_it() {
    check_documented(Kind::Nginx).await;
}

#[tokio::test]
async fn the_documented_caddy_serves_a_server_that_knows_of_it() {
    check_documented(Kind::Caddy).await;
}

async fn check_documented(kind: Kind) {
    let admin = format!("127.0.0.1:{}", ports::free().unwrap());
    let public = format!("https://{NAME}");
    let mut server = Server::start(&[
        ("SWITCHYARD_PUBLIC_URL", &public),
        ("SWITCHYARD_TRUST_FORWARDED_FROM", "127.0.0.1"),
        ("SWITCHYARD_ADMIN_LISTEN", &admin),
    ])
    .await;
    let proxy = Proxy::start(kind, server.port);
    let client = Server::client_of(&proxy);
    let get = async |path: &str| client.get(format!("{public}{path}")).send().await.unwrap();

    for path in ["/metrics", "/peer"] {
        assert_eq!((server.status(path).await, get(path).await.status().as_u16()), (404, 404));
        let operators = server.client.get(format!("http://{admin}{path}")).send().await.unwrap();
        assert_eq!(operators.status(), 200, "{path}");
    }
    assert!(!server.log().contains(NOT_LOCAL), "it has known that from the start");
    let insecure = server.client.get(format!("http://127.0.0.1:{}/docs?a=b", proxy.http));
    let insecure = insecure.header("host", NAME).send().await.unwrap();
    assert_eq!(insecure.headers()["location"], format!("{public}/docs?a=b").as_str());
    let document = in_json(get("/openapi.json").await).await.1;
    assert_eq!(document["servers"][0]["url"], format!("{public}/2025-10-13").as_str());

    // The largest file passes, and one beyond that is refused in the shape of all errors.
    let upload = async |megabytes: usize| {
        let file = b"a,b\n".repeat(megabytes * 250_000);
        let head = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        let form = [head.as_bytes(), &file, b"\r\n--x--\r\n"].concat();
        let request = client.post(format!("{public}/2025-10-13/customers/bulk/csv"));
        let request = request.basic_auth(CLIENT_ID, Some(CLIENT_SECRET)).body(form);
        request.header("content-type", "multipart/form-data; boundary=x").send().await.unwrap()
    };
    let taken = upload(4).await;
    assert!(taken.headers().contains_key("x-request-id"), "{taken:?}");
    let (status, refused) = in_json(upload(6).await).await;
    assert_eq!((status, &refused["code"]), (413, &json!("PAYLOAD_TOO_LARGE")));

    server.instance.kill().unwrap();
    let away = get("/2025-10-13/config").await;
    assert_eq!(away.headers()["retry-after"], "1");
    let (status, refused) = in_json(away).await;
    assert_eq!((status, &refused["code"]), (503, &json!("SERVICE_UNAVAILABLE")));
}
