//! nginx, HAProxy, Apache and Python's server, each with a page for a host that is blocked, one for a path that is, and another one.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::testbed::topology::{SERVER, Topology};
use packet_io::namespace::Namespace;
use packet_io::signal::die_with_parent;

use crate::common::program::{Folder, PATIENCE, wait_until};

/// The body of pages that a list has, by host and by path.
pub(super) const LISTED: [&[u8]; 2] = [b"page-of-the-host", b"page-of-the-path"];
/// The body of all other pages.
pub(super) const OTHER: &[u8] = b"another-page";
/// The name in the certificate of the blocked host.
pub(super) const CERTIFIED: &[u8] = b"blocked.example";
/// How long a client waits for an answer that may not come.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A server, and whether the rule of its port blocks what is undecided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) port: u16,
    pub(super) blocks_undecided: bool,
}

const fn lenient(name: &'static str, port: u16) -> Server {
    Server { name, port, blocks_undecided: false }
}

pub(super) const HTTP: [Server; 7] = [
    lenient("nginx", 80),
    lenient("haproxy", 81),
    lenient("haproxy that accepts invalid requests", 82),
    lenient("apache", 83),
    lenient("apache, unsafe", 84),
    lenient("python", 85),
    Server { name: "haproxy, undecided is blocked", port: 86, blocks_undecided: true },
];
pub(super) const TLS: [Server; 3] =
    [lenient("nginx with TLS", 443), lenient("haproxy with TLS", 444), lenient("apache with TLS", 445)];

const PROGRAMS: [(&str, &str); 5] = [
    ("nginx", "nginx-light"),
    ("haproxy", "haproxy"),
    ("apache2", "apache2"),
    ("python3", "python3"),
    ("openssl", "openssl"),
];

/// Whether all servers are installed; else the first that is not is named.
pub(super) fn are_installed() -> bool {
    let version = |program| Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let missing = PROGRAMS.iter().find(|(program, _)| version(program).is_err());
    if let Some((program, package)) = missing {
        packet_io::namespace::skip(format!("{program} is not installed: install Debian's {package}"));
    }
    missing.is_none()
}

/// The servers that run.
pub(super) struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts all servers in the server's namespace.
pub(super) fn start(topology: &Topology, folder: &Folder) -> Servers {
    make_certificate(folder, "blocked.example");
    make_certificate(folder, "other.example");
    let root = folder.display().to_string();
    for (site, path, body) in
        [("default", "", OTHER), ("host", "", LISTED[0]), ("path", "", OTHER), ("path", "ads/", LISTED[1])]
    {
        let directory = folder.join(site).join(path);
        fs::create_dir_all(&directory).expect("a folder");
        fs::write(directory.join("index.html"), body).expect("a page");
        fs::write(directory.join("top"), body).expect("a page");
    }
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let nginx = write("nginx.conf", nginx(&root));
    let haproxy = write("haproxy.cfg", haproxy(&root));
    let apaches = [("strict", "Strict", 83), ("unsafe", "Unsafe", 84)]
        .map(|(name, strictness, port)| write(&format!("{name}.conf"), apache(&root, name, strictness, port)));
    let python = write("server.py", PYTHON.to_string());
    let commands: [&[&str]; 5] = [
        &["nginx", "-c", &nginx],
        &["haproxy", "-f", &haproxy],
        &["apache2", "-X", "-f", &apaches[0]],
        &["apache2", "-X", "-f", &apaches[1]],
        &["python3", &python],
    ];
    let spawn = |words: &[&str]| {
        let log =
            fs::File::create(folder.join(format!("{}.output", words[words.len() - 1].rsplit('/').next().unwrap())));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("a file"));
        die_with_parent(&mut command);
        topology.server.spawn_command(command).expect("the server can be started")
    };
    let servers = Servers(commands.map(spawn).into());
    for server in HTTP.iter().chain(&TLS) {
        let address = SocketAddr::new(SERVER[0], server.port);
        wait_until(server.name, || {
            let connected =
                topology.server.run(|| TcpStream::connect_timeout(&address, PATIENCE)).expect("it is there");
            connected.map(drop).map_err(|error| error.to_string())
        });
    }
    servers
}

/// Makes `NAME.pem` and `NAME.key`, and both in one file for HAProxy.
fn make_certificate(folder: &Folder, name: &str) {
    let arguments = format!(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN={name} \
         -addext subjectAltName=DNS:{name} -keyout {name}.key -out {name}.pem"
    );
    let made = Command::new("openssl").current_dir(&**folder).args(arguments.split_whitespace()).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    let both =
        ["pem", "key"].map(|kind| fs::read_to_string(folder.join(format!("{name}.{kind}"))).expect("it is made"));
    fs::write(folder.join(format!("{name}.both")), both.concat()).expect("a file");
}

fn nginx(root: &str) -> String {
    let [host, path, other] = [LISTED[0], LISTED[1], OTHER].map(String::from_utf8_lossy);
    let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {root}/{kind};\n"))
        .concat();
    let tls = |name: &str| {
        format!("ssl_certificate {root}/{name}.pem; ssl_certificate_key {root}/{name}.key; ssl_protocols TLSv1.2;")
    };
    format!(
        "daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/nginx.log;\nevents {{ }}\n\
         http {{\naccess_log off;\n{folders}\
         server {{ listen 80 default_server; listen 443 ssl default_server; server_name _; {} location / {{ return 200 \"{other}\"; }} }}\n\
         server {{ listen 80; listen 443 ssl; server_name blocked.example; {} location / {{ return 200 \"{host}\"; }} }}\n\
         server {{ listen 80; server_name site.example; location /ads/ {{ return 200 \"{path}\"; }} location / {{ return 200 \"{other}\"; }} }}\n}}\n",
        tls("other.example"),
        tls("blocked.example"),
    )
}

fn haproxy(root: &str) -> String {
    let [host, path, other] = [LISTED[0], LISTED[1], OTHER].map(String::from_utf8_lossy);
    let answer = |body: &str, condition: &str| {
        format!(" http-request return status 200 content-type text/plain string \"{body}\" {condition}\n")
    };
    let answers = [
        answer(&host, "if { hdr(host),field(1,:),lower -m str blocked.example }"),
        answer(&path, "if { hdr(host),field(1,:),lower -m str site.example } { path /ads/top }"),
        answer(&other, ""),
    ]
    .concat();
    format!(
        "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 10s\n\
         frontend plain\n bind :81\n bind :86\n{answers}\
         frontend lenient\n bind :82\n option accept-invalid-http-request\n{answers}\
         frontend tls\n bind :444 ssl crt {root}/other.example.both crt {root}/blocked.example.both\n{answers}"
    )
}

fn apache(root: &str, name: &str, strictness: &str, port: u16) -> String {
    let modules = ["mpm_event", "authz_core", "dir", "alias", "ssl"]
        .map(|module| format!("LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so\n"))
        .concat();
    let host = |listens: u16, name: &str, site: &str, more: &str| {
        format!("<VirtualHost *:{listens}>\nServerName {name}\nDocumentRoot {root}/{site}\n{more}</VirtualHost>\n")
    };
    let tls = |name: &str| {
        format!(
            "SSLEngine on\nSSLProtocol TLSv1.2\nSSLCertificateFile {root}/{name}.pem\nSSLCertificateKeyFile {root}/{name}.key\n"
        )
    };
    let with_tls = if strictness == "Strict" {
        let hosts = [("other.example", "default"), ("blocked.example", "host")];
        "Listen 445\n".to_string() + &hosts.map(|(name, site)| host(445, name, site, &tls(name))).concat()
    } else {
        String::new()
    };
    format!(
        "ServerRoot {root}\nPidFile {root}/{name}.pid\nErrorLog {root}/{name}.log\nListen {port}\nServerName default.example\n\
         {modules}DirectoryIndex index.html\nFallbackResource /index.html\nHttpProtocolOptions {strictness} Allow0.9\n\
         {}{}{}{with_tls}",
        host(port, "default.example", "default", ""),
        host(port, "blocked.example", "host", ""),
        host(port, "site.example", "path", ""),
    )
}

/// Any method, path in normal form. The first `Host` counts, as in most frameworks.
const PYTHON: &str = r##"
import http.server, posixpath, urllib.parse

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        host = (self.headers.get("host") or "").split(":")[0].strip().lower()
        path = posixpath.normpath(urllib.parse.unquote(self.path.split("?")[0].split("#")[0]))
        body = b"another-page"
        if host == "blocked.example":
            body = b"page-of-the-host"
        elif host == "site.example" and path.startswith("/ads/"):
            body = b"page-of-the-path"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *words):
        pass

http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer(("", 85), Handler).serve_forever()
"##;

/// What a server answers to a client in this namespace that sends these segments; what has come when it ends the connection, has sent one of the pages, or
/// does not answer.
pub(super) fn answer(namespace: &Namespace, server: Server, segments: &[Vec<u8>]) -> Vec<u8> {
    let address = SocketAddr::new(SERVER[0], server.port);
    let connected = namespace.run(|| TcpStream::connect_timeout(&address, PATIENCE)).expect("the namespace is there");
    let mut stream = connected.unwrap_or_else(|error| panic!("{}: {error}", server.name));
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a socket");
    let (mut answer, mut buffer) = (Vec::new(), [0; 16384]);
    for segment in segments {
        if stream.write_all(segment).is_err() {
            break;
        }
    }
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..bytes]);
        if LISTED.iter().any(|page| has(&answer, page)) {
            break;
        }
    }
    answer
}

pub(super) fn has(answer: &[u8], marker: &[u8]) -> bool {
    answer.windows(marker.len()).any(|window| window == marker)
}
